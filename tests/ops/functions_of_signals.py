"""Samples of Fourier transforms, and of reading between elements."""

import numpy as np
import torch
from function_table import row

import ngraph as ng

F = torch.nn.functional
SINGLE = ["float32", "float64"]


def parts(x):
    """Real and imaginary parts along a last axis."""
    return np.stack([x.real, x.imag], -1)


def joined(x):
    return x[..., 0] + 1j * x[..., 1]


# ---- Fourier transforms -----------------------------------------------------------------------------------------------

for _n in (1, 5, 12, 131, 150, 521):  # a matrix, two factors, and long primes
    row(
        f"fft {_n}",
        [f"A T={_n}"],
        lambda x: ng.fft(x, "T"),
        lambda x: parts(np.fft.fft(x)),
        dtypes=SINGLE,
        ulp=600,
        lengths=(),
    )
row("fft along the first axis", ["T=6 A"], lambda x: ng.fft(x, "T"), lambda x: parts(np.fft.fft(x, axis=0)), ulp=30, lengths=())
row(
    "fft of complex numbers",
    ["A T=10 complex=2"],
    lambda x: ng.fft(x, "T", "ortho"),
    lambda x: parts(np.fft.fft(joined(x), norm="ortho")),
    torch=lambda x: torch.view_as_real(torch.fft.fft(torch.view_as_complex(x), norm="ortho")),
    dtypes=SINGLE,
    ulp=30,
    lengths=(),
)
row(
    "ifft",
    ["A T=150 complex=2"],
    lambda x: ng.ifft(x, "T"),
    lambda x: parts(np.fft.ifft(joined(x))),
    torch=lambda x: torch.view_as_real(torch.fft.ifft(torch.view_as_complex(x))),
    dtypes=SINGLE,
    ulp=30,
    lengths=(),
)
row(
    "rfft",
    ["A T=9 B"],
    lambda x: ng.rfft(x, "T"),
    lambda x: parts(np.fft.rfft(x, axis=1)),
    torch=lambda x: torch.view_as_real(torch.fft.rfft(x, dim=1)),
    dtypes=SINGLE,
    ulp=30,
    lengths=(1,),
)
for _n in (8, 9):
    row(
        f"irfft {_n}",
        ["A T=5 complex=2"],
        lambda x, n=_n: ng.irfft(x, "T", n),
        lambda x, n=_n: np.fft.irfft(joined(x), n),
        torch=lambda x, n=_n: torch.fft.irfft(torch.view_as_complex(x), n),
        dtypes=SINGLE,
        ulp=30,
        lengths=(1,),
    )
HANN = np.hanning(8)
row(
    "stft",
    ["A T=30"],
    lambda x: ng.stft(x, "T", 8, 3, HANN if x.dtype.bits == 64 else HANN.astype("float32")),
    lambda x: parts(np.fft.rfft(np.lib.stride_tricks.sliding_window_view(x, 8, 1)[:, ::3] * HANN)),
    torch=lambda x: torch.view_as_real(torch.stft(x, 8, 3, window=torch.tensor(HANN), center=False, return_complex=True).transpose(1, 2)),
    dtypes=SINGLE,
    ulp=60,
    lengths=(1,),
)

# ---- other lengths ----------------------------------------------------------------------------------------------------

TORCH = {"nearest": "nearest", "nearest-exact": "nearest-exact", "area": "area", "linear": "bilinear", "cubic": "bicubic"}
EDGED = [(corners, antialias) for corners in (False, True) for antialias in (False, True)]
for _method in TORCH:
    for _h, _w in ((11, 10), (3, 4), (1, 3), (6, 2)):
        for _corners, _antialias in EDGED if _method in ("linear", "cubic") else EDGED[:1]:
            _more = {"align_corners": _corners, "antialias": _antialias} if _method in ("linear", "cubic") else {}

            def sampled(x, method=_method, h=_h, w=_w, more=_more):
                return F.interpolate(x, (h, w), mode=TORCH[method], **more)

            row(
                f"interpolate {_method} to {_h} x {_w}{', corners' * _corners}{', antialias' * _antialias}",
                ["N C=2 H W"],
                lambda x, method=_method, h=_h, w=_w, more=_more: ng.interpolate(x, {"H": h, "W": w}, method, **more),
                lambda x, f=sampled: f(torch.tensor(x)).numpy(),
                torch=sampled,
                dtypes=SINGLE,
                ulp=60,
                lengths=(),
            )

for _many in (20, 15, 6, 13):  # places that repeat after 2, 3, 3 and 13 outputs

    def lengthened(x, many=_many):
        return F.interpolate(torch.as_tensor(x)[:, None], many, mode="linear")[:, 0]

    row(
        f"interpolate 10 to {_many}",
        ["N W=10"],
        lambda x, many=_many: ng.interpolate(x, {"W": many}),
        lambda x, f=lengthened: f(x).numpy(),
        torch=lengthened,
        dtypes=SINGLE,
        ulp=40,
        lengths=(),
    )

# ---- grids ------------------------------------------------------------------------------------------------------------

for _method in ("nearest", "linear", "cubic"):
    for _padding in ("zeros", "border", "reflection"):
        for _corners in (False, True):

            def gridded(x, g, method=_method, padding=_padding, corners=_corners):
                return F.grid_sample(x, g, TORCH[method], padding, corners)

            row(
                f"grid_sample {_method} {_padding}{' corners' * _corners}",
                ["N=2 C=3 H W", "N=2 P=4 Q=3 xy=2:-1.3..1.3"],
                lambda x, g, method=_method, padding=_padding, corners=_corners: ng.axes_with_order(
                    ng.grid_sample(x, g, "W H", "xy", method, padding, corners), "N C P Q"
                ),
                lambda x, g, f=gridded: f(torch.tensor(x), torch.tensor(g)).numpy(),
                torch=gridded if _method == "linear" or _padding == "zeros" else None,
                dtypes=SINGLE,
                ulp=200,
                lengths=(),
                slope=_method != "nearest",
            )

for _method in ("nearest", "linear", "cubic"):  # an axis of one element, whose ends coincide

    def folded(x, g, method=_method):
        return F.grid_sample(x, g, TORCH[method], "reflection", True)

    row(
        f"grid_sample {_method} of one row",
        ["N=2 C=3 H=1 W", "N=2 P=4 Q=3 xy=2:-1.3..1.3"],
        lambda x, g, method=_method: ng.axes_with_order(ng.grid_sample(x, g, "W H", "xy", method, "reflection", True), "N C P Q"),
        lambda x, g, f=folded: f(torch.tensor(x), torch.tensor(g)).numpy(),
        torch=folded,
        dtypes=SINGLE,
        ulp=200,
        lengths=(),
        slope=_method != "nearest",
    )

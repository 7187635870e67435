"""Functions of `ng` beside PyTorch's, at three sizes: `python bench/functions.py [NAME…]`; ratios above 1 are in favour of ngraph.

Each is called on its own, in turns with PyTorch, both on one thread: two pools of threads that wait for work would take turns on the
cores. The ratio is that of the medians. `--compile` only compiles, so that the time of the measurement goes to calls. The line at the end
is the geometric mean of all.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import ngraph as ng
import ngraph.transformers as ngt

SIZES = ((64, 64), (256, 512), (1024, 2048))
F, PLACES = torch.nn.functional, torch.linspace(-1, 1, 1000)


def signed(shape: tuple[int, int]) -> np.ndarray:
    return np.random.default_rng(1).uniform(-0.95, 0.95, shape).astype(np.float32)


def positive(shape: tuple[int, int]) -> np.ndarray:
    return np.random.default_rng(1).uniform(1.01, 20, shape).astype(np.float32)


ONE = "ceil trunc tan asin acos sinh cosh asinh atanh exp2 sinc isnan isinf isfinite erfinv"
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    **{n: (getattr(ng, n), getattr(torch, n), signed) for n in ONE.split()},
    **{n: (getattr(ng, n), getattr(torch, n), positive) for n in "acosh log2 log10 lgamma digamma".split()},
    "atan2": (lambda x: ng.atan2(x, 1.0 - x), lambda x: torch.atan2(x, 1 - x), signed),
    "hypot": (lambda x: ng.hypot(x, 1.0 - x), lambda x: torch.hypot(x, 1 - x), signed),
    "logaddexp": (lambda x: ng.logaddexp(x, 1.0 - x), lambda x: torch.logaddexp(x, 1 - x), signed),
    "nan_to_num": (ng.nan_to_num, torch.nan_to_num, signed),
    "leaky_relu": (ng.leaky_relu, F.leaky_relu, signed),
    "hardswish": (ng.hardswish, F.hardswish, signed),
    "mish": (ng.mish, F.mish, signed),
    "glu": (lambda x: ng.glu(x, "B"), F.glu, signed),
    "var": (lambda x: ng.var(x, "B"), lambda x: x.var(1, correction=0), signed),
    "std": (lambda x: ng.std(x, "A"), lambda x: x.std(0, correction=0), signed),
    "norm": (lambda x: ng.norm(x, 2, "B"), lambda x: torch.linalg.vector_norm(x, 2, 1), signed),
    "any": (lambda x: ng.any(x > 2.0, "B"), lambda x: (x > 2).any(1), signed),
    "all": (lambda x: ng.all(x < 2.0, "B"), lambda x: (x < 2).all(1), signed),
    "argsort": (lambda x: ng.argsort(x, "B"), lambda x: x.argsort(1), signed),
    "median": (lambda x: ng.median(x, "B"), lambda x: x.quantile(0.5, 1), signed),
    "cumprod": (lambda x: ng.cumprod(x, "B"), lambda x: x.cumprod(1), signed),
    "cummax": (lambda x: ng.cummax(x, "B"), lambda x: x.cummax(1).values, signed),
    "cummin": (lambda x: ng.cummin(x, "B"), lambda x: x.cummin(1).values, signed),
    "logcumsumexp": (lambda x: ng.logcumsumexp(x, "B"), lambda x: x.logcumsumexp(1), signed),
    "tril": (lambda x: ng.tril(x, "A", "B"), torch.tril, signed),
    "triu": (lambda x: ng.triu(x, "A", "B"), torch.triu, signed),
    "roll": (lambda x: ng.roll(x, 3, "B"), lambda x: x.roll(3, 1), signed),
    "repeat": (lambda x: ng.repeat(x, 2, "B"), lambda x: x.repeat_interleave(2, 1), signed),
    "tile": (lambda x: ng.tile(x, {"B": 2}), lambda x: x.tile(1, 2), signed),
    "flip": (lambda x: ng.flip(x, "B"), lambda x: x.flip(1), signed),
    "pad reflect": (lambda x: ng.pad(x, {"B": 3}, mode="reflect"), lambda x: F.pad(x, (3, 3), "reflect"), signed),
    "layer_norm": (lambda x: ng.layer_norm(x, "B"), lambda x: F.layer_norm(x, x.shape[1:]), signed),
    "rms_norm": (lambda x: ng.rms_norm(x, "B"), lambda x: F.rms_norm(x, x.shape[1:], eps=1e-6), signed),
    "interpolate": (
        lambda x: ng.interpolate(x, {"A": len(x.axes[0]) * 2, "B": len(x.axes[1]) * 2}),
        lambda x: F.interpolate(x[None, None], scale_factor=2, mode="bilinear")[0, 0],
        signed,
    ),
    "rfft": (lambda x: ng.rfft(x, "B"), lambda x: torch.view_as_real(torch.fft.rfft(x)), signed),
    "histogram": (lambda x: ng.histogram(x, "K=50", -1, 1)[0], lambda x: torch.histc(x, 50, -1, 1), signed),
    "searchsorted": (
        lambda x: ng.searchsorted(ng.linspace(-1, 1, "K=1000"), x),
        lambda x: torch.searchsorted(PLACES, x, out_int32=True),
        signed,
    ),
}


def median(call: Callable[[], Any], other: Callable[[], Any], seconds: float) -> tuple[float, float]:
    """Returns the median times of both, called in turns."""
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + seconds
    while len(times[0]) < 3 or (time.perf_counter() < end and len(times[0]) < 200):
        for f, found in zip((call, other), times, strict=True):
            begin = time.perf_counter()
            f()
            found.append(time.perf_counter() - begin)
    return statistics.median(times[0]), statistics.median(times[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--compile", action="store_true", help="compile and call once")
    parser.add_argument("--seconds", type=float, default=0.25, help="of each function at each size")
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    ratios = []
    for name in options.names or CASES:
        call, theirs, values = CASES[name]
        row = []
        for shape in SIZES:
            array = values(shape)
            x = ng.placeholder([ng.make_axis(shape[0], name="A"), ng.make_axis(shape[1], name="B")])
            with ng.config(num_threads=1), ngt.make_transformer() as t:
                f, tensor = t.computation(call(x), x), torch.tensor(array)
                f(array), theirs(tensor)
                if not options.compile:
                    mine, other = median(lambda f=f, a=array: f(a), lambda g=theirs, y=tensor: g(y), options.seconds)  # type: ignore[misc]  # bound now
                    row.append(other / mine)
        ratios += row
        print(f"{name:14}", *(f"{r:7.2f}" for r in row), flush=True)
    if ratios:
        print(f"{'geometric mean':14} {math.exp(statistics.fmean(map(math.log, ratios))):7.2f}")


if __name__ == "__main__":
    main()

"""Translators of TensorFlow's ops on complex numbers: pairs of real tensors, which the Fourier transforms of signals give.

What moves complex numbers, or is linear, does the same with both parts. Sources: tensorflow/core/kernels/spectrogram.cc,
mfcc_mel_filterbank.cc and mfcc_dct.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ngraph.errors import UnsupportedError
from ngraph.frontends.positional import elementwise as by_element
from ngraph.frontends.positional import fourier, products, shapes, windows
from ngraph.frontends.positional.values import ConstantArray, StringInput, Tensor, Value
from ngraph.frontends.tensorflow import table
from ngraph.frontends.tensorflow.table import Array, translates
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops import functions
from ngraph.ops.fourier import transform

REAL = {np.dtype(np.complex64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.float64)}


class Complex(list[Tensor]):
    """Complex numbers: the tensors of their real and imaginary parts, which have one shape."""

    @property
    def shape(self) -> tuple[Any, ...]:
        return self[0].shape

    @property
    def rank(self) -> int:
        return self[0].rank

    @property
    def np(self) -> Any:
        return np.dtype(np.complex128 if self[0].np == np.float64 else np.complex64)


def is_complex(v: Value) -> bool:
    """Returns whether a value is complex."""
    return isinstance(v, Complex) or (isinstance(v, ConstantArray) and v.array.dtype.kind == "c")


def parts(n: Any, v: Value) -> Complex:
    """Returns the real and imaginary parts of a value; a real one has the imaginary part 0."""
    if isinstance(v, Complex):
        return v
    if is_complex(v):
        return Complex([n.g.tensor(ConstantArray(np.array(a))) for a in (v.array.real, v.array.imag)])
    t = n.g.tensor(v)
    return Complex([t, by_element.alone(n.g, lambda op: e.filled(0, op.axes, op.dtype), t)])


def _part(n: Any, v: Value, k: int) -> Value:
    """Returns one of the parts of a value; that of a constant is a constant."""
    known = isinstance(v, ConstantArray) and is_complex(v)
    return ConstantArray(np.array((v.array.real, v.array.imag)[k])) if known else parts(n, v)[k]


def parts_of(g: Any, v: Value) -> Value:
    """Returns the parts of complex numbers that come with the call; other values as they are."""
    if not isinstance(v, StringInput) or v.np.kind != "c":
        return v
    (both,) = g.host("Complex", lambda a: np.stack([a.real, a.imag]), [v], [REAL[v.np]])
    return Complex([shapes.at(g, both, 0, k) for k in (0, 1)])


def joined(g: Any, v: Value) -> Value:
    """Returns complex numbers as one array, by a step in Python; other values as they are."""
    return g.host("Complex", lambda re, im: re + 1j * im, list(v), [v.np])[0] if isinstance(v, Complex) else v


# Ops that do the same with both parts, each with the number of inputs in front that are parts: -1 stands for all.
LINEAR = {
    **dict.fromkeys("Identity IdentityN Snapshot StopGradient PreventGradient EnsureShape Neg ZerosLike".split(), 1),
    **dict.fromkeys("Reshape ExpandDims Squeeze Transpose BroadcastTo Tile StridedSlice Slice SplitV Unpack Pad".split(), 1),
    **dict.fromkeys("Reverse ReverseV2 ReverseSequence Roll GatherV2 Gather GatherNd Sum Mean Cumsum MatrixBandPart".split(), 1),
    **dict.fromkeys("MatrixDiag MatrixDiagPart BatchToSpaceND SpaceToBatchND UnsortedSegmentSum MirrorPad".split(), 1),
    **dict.fromkeys("Add AddV2 Sub AddN Pack ParallelConcat".split(), -1),
}
PLACES: dict[str, Callable[[int], Sequence[int]]] = {  # where the inputs that are parts stand otherwise
    "ConcatV2": lambda many: range(many - 1),
    "Concat": lambda many: range(1, many),
    "Split": lambda many: [1],
    "Fill": lambda many: [1],
    **dict.fromkeys(("Select", "SelectV2"), lambda many: [1, 2]),
    **dict.fromkeys(("MatrixDiagV2", "MatrixDiagV3"), lambda many: [0, 4]),
    **dict.fromkeys(("MatrixDiagPartV2", "MatrixDiagPartV3"), lambda many: [0, 2]),
    **dict.fromkeys(("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3"), lambda many: [0, 1]),
}
MEASURES = frozenset("Shape Size Rank".split())
PASSING = frozenset(
    "PartitionedCall StatefulPartitionedCall If StatelessIf Case StatelessCase Switch Merge NoOp Assert IdentityN ShapeN "
    "OptionalFromValue OptionalGetValue".split()
)


def of_complex(n: Any, inputs: Sequence[Value]) -> Any:
    """Returns the result of an op that real numbers have too, for complex ones; NotImplemented where there are none."""
    cast_to_complex = n.op == "Cast" and np.dtype(n.attr("DstT")).kind == "c"
    if not cast_to_complex and not any(map(is_complex, inputs)) or n.op in PASSING or n.op in n.library:
        return NotImplemented
    if n.op in MEASURES:
        return table.TABLE[n.op](n, parts(n, inputs[0])[0])
    if n.op in LINEAR or n.op in PLACES:
        many = len(inputs)
        places = PLACES[n.op](many) if n.op in PLACES else range(many if LINEAR[n.op] < 0 else LINEAR[n.op])
        made = []
        for k in (0, 1):
            found = table.TABLE[n.op](n, *[_part(n, v, k) if j in places else v for j, v in enumerate(inputs)])
            made.append(found if isinstance(found, tuple) else (found,))
        return tuple(Complex([re, im]) for re, im in zip(*made, strict=True))
    if n.op in COMPLEX:
        return COMPLEX[n.op](n, *inputs)
    if n.op in OWN:
        return NotImplemented
    raise UnsupportedError(f"{n.op} of complex numbers has no translation", fix="take real and imaginary parts apart")


table.EARLY.append(of_complex)

# ---- elements -----------------------------------------------------------------------------------------------------------


def _each(n: Any, function: Callable[..., tuple[Op, Op]], *values: Value) -> Complex:
    """Returns the function of the parts of complex numbers, broadcast against each other."""
    given = [t for v in values for t in parts(n, v)]
    ops, dims = n.g.align(*given)
    return Complex([n.g.made(op, dims) for op in function(*ops)])


def _real(n: Any, function: Callable[[Op, Op], Op], x: Value) -> Tensor:
    return by_element.each(n.g, function, *parts(n, x))


def _times(a: Op, b: Op, c: Op, d: Op) -> tuple[Op, Op]:
    return a * c - b * d, a * d + b * c


def _over(a: Op, b: Op, c: Op, d: Op) -> tuple[Op, Op]:
    size = c * c + d * d
    return (a * c + b * d) / size, (b * c - a * d) / size


def _over_or_zero(a: Op, b: Op, c: Op, d: Op) -> tuple[Op, Op]:
    none = e.logical_and(e.equal(c, 0), e.equal(d, 0))
    re, im = _over(a, b, e.where(none, 1.0, c), d)
    return e.where(none, 0.0, re), e.where(none, 0.0, im)


def _direction(a: Op, b: Op) -> tuple[Op, Op]:
    size = functions.hypot(a, b)
    return _over_or_zero(a, b, size, size * 0.0)


def _root(a: Op, b: Op) -> tuple[Op, Op]:
    size = functions.hypot(a, b)
    re, im = e.sqrt(e.maximum((size + a) * 0.5, 0.0)), e.sqrt(e.maximum((size - a) * 0.5, 0.0))
    return re, e.where(e.less(b, 0), -im, im)


def _bilinear(n: Any, function: Callable[..., Tensor], x: Value, y: Value) -> Complex:
    """Returns a product of complex matrices by a product of real ones."""
    (a, b), (c, d) = parts(n, x), parts(n, y)
    each = partial(by_element.each, n.g)
    return Complex([each(e.subtract, function(a, c), function(b, d)), each(e.add, function(a, d), function(b, c))])


def _matmul(n: Any, x: Value, y: Value) -> Complex:
    sides = []
    for v, k in ((x, "x"), (y, "y")):
        re, im = parts(n, v)
        if n.attr(f"adj_{k}", False):
            re, im = shapes.turned(re), by_element.alone(n.g, e.negative, shapes.turned(im))
        if n.attr(f"transpose_{'a' if k == 'x' else 'b'}", False):
            re, im = shapes.turned(re), shapes.turned(im)
        sides.append(Complex([re, im]))
    return _bilinear(n, lambda a, b: products.matmul(n.g, a, b), *sides)


def _einsum(n: Any, x: Value, *more: Value) -> Complex:
    def product(*ts: Tensor) -> Tensor:
        return products.einsum(n.g, n.attr("equation"), ts)

    return _bilinear(n, product, x, *more) if more else Complex(map(product, parts(n, x)))


def _equal(n: Any, x: Value, y: Value) -> Tensor:
    both = [by_element.each(n.g, e.equal, a, b) for a, b in zip(parts(n, x), parts(n, y), strict=True)]
    return by_element.each(n.g, e.logical_and, *both)


def _conjugate(n: Any, x: Value) -> Value:
    if not is_complex(x):
        return x
    re, im = parts(n, x)
    return Complex([re, by_element.alone(n.g, e.negative, im)])


def _cast(n: Any, x: Value) -> Value:
    to = n.attr("DstT")
    re, im = parts(n, x)
    if to.kind != "c":
        return by_element.casted(n.g, re, to)
    return Complex([by_element.casted(n.g, t, REAL[to]) for t in (re, im)])


COMPLEX: dict[str, Callable[..., Any]] = {
    "Cast": _cast,
    "Mul": lambda n, x, y: _each(n, _times, x, y),
    "Square": lambda n, x: _each(n, lambda a, b: _times(a, b, a, b), x),
    **dict.fromkeys(("RealDiv", "Div"), lambda n, x, y: _each(n, _over, x, y)),
    "DivNoNan": lambda n, x, y: _each(n, _over_or_zero, x, y),
    "Sign": lambda n, x: _each(n, _direction, x),
    "Equal": lambda n, x, y: _equal(n, x, y),
    "NotEqual": lambda n, x, y: by_element.alone(n.g, e.logical_not, _equal(n, x, y)),
    **dict.fromkeys(("Reciprocal", "Inv"), lambda n, x: _each(n, _over, ConstantArray(np.ones((), parts(n, x).np)), x)),
    "Exp": lambda n, x: _each(n, lambda a, b: (e.exp(a) * e.cos(b), e.exp(a) * e.sin(b)), x),
    "Log": lambda n, x: _each(n, lambda a, b: (e.log(functions.hypot(a, b)), functions.atan2(b, a)), x),
    "Sqrt": lambda n, x: _each(n, _root, x),
    "ConjugateTranspose": lambda n, x, order: Complex([table.TABLE["Transpose"](n, t, order) for t in _conjugate(n, x)]),
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _matmul),
    "Einsum": _einsum,
    "OnesLike": lambda n, x: parts(n, by_element.alone(n.g, lambda op: e.filled(1, op.axes, op.dtype), parts(n, x)[0])),
}


table.rows(
    {
        "Complex": lambda g, *xs: Complex([g.made(op, dims) for ops, dims in [g.align(*xs)] for op in ops]),
        "Real": lambda n, x: parts(n, x)[0],
        "Imag": lambda n, x: parts(n, x)[1],
        "Conj": lambda n, x: _conjugate(n, x),
        "ComplexAbs": lambda n, x: _real(n, functions.hypot, x),
        "Angle": lambda n, x: _real(n, lambda re, im: functions.atan2(im, re), x),
    }
)

# ---- Fourier transforms -------------------------------------------------------------------------------------------------


def _along(n: Any, x: Complex, places: Sequence[tuple[int, int]], sign: float) -> Complex:
    """Returns the transform along dims, cut or filled with zeros to lengths; sign 1.0: the inverse."""
    for k, length in places:
        re, im = fourier.fourier(n.g, fourier.fitted(n.g, (x[0], x[1]), k, length), k, length, sign)
        assert im is not None
        x = Complex([re, im])
    return x


def _half(n: Any, t: Tensor, k: int, length: int) -> Complex:
    """Returns the first frequencies of a real signal, of which the others follow."""
    t = n.g.full(fourier.fitted(n.g, (t, None), k, length)[0], [k])
    out = n.g.fresh(length // 2 + 1)
    found = transform((t.op, None), t.dims[k], out, -1.0)
    return Complex([n.g.made(op, [out if j == k else d for j, d in enumerate(t.dims)]) for op in found])


def _whole(n: Any, x: Complex, k: int, length: int) -> Tensor:
    """Returns the real signal of its first frequencies."""
    made = fourier.half_inverse(n.g, fourier.fitted(n.g, (x[0], x[1]), k, length // 2 + 1), k, length)
    return Tensor(made.op, made.dims[:-1])


def _places(n: Any, x: Value, more: Sequence[Value]) -> list[tuple[int, int]]:
    """Returns the dims that a transform runs over, with lengths: the last ones, as many as its name says, or those of an input."""
    many = int(n.op[-2]) if n.op[-2].isdigit() else 1
    dims = [k % x.rank for k in n.g.ints(more[1])] if "ND" in n.op else range(x.rank - many, x.rank)
    return list(zip(dims, n.g.ints(more[0]) if more else n.g.numbers([x.shape[k] for k in dims]), strict=True))


translates("FFT", "FFT2D", "FFT3D", "FFTND")(lambda n, x, *more: _along(n, parts(n, x), _places(n, x, more), -1.0))
translates("IFFT", "IFFT2D", "IFFT3D", "IFFTND")(lambda n, x, *more: _along(n, parts(n, x), _places(n, x, more), 1.0))


@translates("RFFT", "RFFT2D", "RFFT3D", "RFFTND")
def rfft(n: Any, x: Value, *more: Value) -> Complex:
    *others, last = _places(n, x, more)
    return _along(n, _half(n, n.g.tensor(x), *last), others, -1.0)


@translates("IRFFT", "IRFFT2D", "IRFFT3D", "IRFFTND")
def irfft(n: Any, x: Value, *more: Value) -> Tensor:
    *others, last = _places(n, x, more)
    return _whole(n, _along(n, parts(n, x), others, 1.0), *last)


OWN = frozenset(op for op, function in table.TABLE.items() if function.__module__ == __name__)

# ---- sound --------------------------------------------------------------------------------------------------------------


@translates("AudioSpectrogram")
def spectrogram(n: Any, x: Tensor, *, window_size: int, stride: int, magnitude_squared: bool = False) -> Tensor:
    g, size = n.g, window_size
    t = shapes.permuted(x, 1, None, 0)  # channels, a dim that windows take for channels, samples
    framed, _, _ = windows.read(g, t, windows.windows(g, t, windows.windowing([size], [stride])), 0)
    window = g.tensor(ConstantArray((0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)).astype(np.float32)))
    found = _half(n, by_element.each(g, e.multiply, framed, window), 3, 1 << (size - 1).bit_length())
    made = _real(n, (lambda a, b: a * a + b * b) if magnitude_squared else functions.hypot, found)
    return Tensor(made.op, [made.dims[0], *made.dims[2:]])


def _mel(f: Any) -> Any:
    return 1127.0 * np.log1p(f / 700.0)


def _mel_bands(bins: int, rate: float, low: float, high: float, count: int) -> Array:
    """Returns the shares of each bin of a spectrum in bands whose middles are evenly apart on the mel scale."""
    step = 0.5 * rate / (bins - 1)
    ends = np.linspace(_mel(low), _mel(high), count + 2)  # the middle of band k is ends[k + 1]
    made = np.zeros((bins, count))
    for k in range(int(1.5 + low / step), min(int(high / step), bins - 1) + 1):
        at = _mel(k * step)
        band = int(np.searchsorted(ends[1 : count + 2], at)) - 1
        share = (ends[band + 2] - at) / (ends[band + 2] - ends[band + 1])
        if band >= 0:
            made[k, band] += share
        if band + 1 < count:
            made[k, band + 1] += 1.0 - share
    return made


@translates("Mfcc")
def mfcc(n: Any, t: Tensor, rate: Array) -> Tensor:
    g, count, kept = n.g, n.attr("filterbank_channel_count", 40), n.attr("dct_coefficient_count", 13)
    limits = n.attr("lower_frequency_limit", 20.0), n.attr("upper_frequency_limit", 4000.0)
    bands = _mel_bands(g.number(t.shape[-1]), float(rate.ravel()[0]), *limits, count)
    cosines = np.sqrt(2.0 / count) * np.cos(np.pi / count * np.outer(np.arange(count) + 0.5, np.arange(kept)))
    bands, cosines = (g.tensor(ConstantArray(a.astype(np.float32))) for a in (bands, cosines))
    energy = products.matmul(g, by_element.alone(g, e.sqrt, t), bands)
    return products.matmul(g, by_element.alone(g, lambda op: e.log(e.maximum(op, 1e-12)), energy), cosines)

"""Translators of quantisation: casts to narrow dtypes, QuantizeLinear and its inverse, products and convolutions of integers.

Rounding is to the nearest, ties to even; integers saturate. What the standard says in two steps (divide, then add the zero point) is
done in floats and clamped there, so numbers far outside the range land at its ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ngraph.errors import GraphError, UnsupportedError
from ngraph.frontends.onnx import arithmetic
from ngraph.frontends.onnx.layers import average_pool
from ngraph.frontends.onnx.pieces import each
from ngraph.frontends.onnx.products import convolution, matmul, with_bias
from ngraph.frontends.onnx.proto import numpy_type
from ngraph.frontends.onnx.shapes import joined
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType, as_dtype
from ngraph.op_graph.expr import Idx
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.reduce import reduce

FUSED = "com.microsoft"
Array = np.ndarray[Any, Any]

# ---- casts ----------------------------------------------------------------------------------------------------------------


@translates("Cast", "CastLike", since=19)
def cast(n: Any, x: Value, like: Value = None) -> Value:
    """To narrow floats with `saturate` and `round_mode`; all others as before."""
    target = np.dtype(like.np) if n.op == "CastLike" else numpy_type(arithmetic._type_number(n.attr("to")))
    source = np.dtype(x.np)
    if target == source or target.hasobject or source.hasobject or target.isbuiltin == 1 or as_dtype(target).kind != "narrow":
        return arithmetic.cast(n, x, like)
    t = n.g.tensor(x)
    return Tensor(as_narrow(t.op, as_dtype(target), bool(n.attr("saturate", 1)), n.attr("round_mode", "up")), t.dims)


def as_narrow(x: Op, target: DType, saturate: bool, mode: str = "up") -> Op:
    """A cast to a narrow dtype; `mode`, `up`, `down` or `nearest`, is for powers of two alone (float8_e8m0fnu).

    Floats become integers in two steps, so that only the low bits stay of what does not fit, as the standard's tests have it.
    """
    assert target.form is not None
    if target.python is int:
        return e.cast(e.cast(x, dtypes.int32) if x.dtype.python is float else x, target)
    if target.form.special != "power":
        return e.cast(x, target, saturate=saturate)
    if mode not in ("up", "down", "nearest"):
        raise GraphError(f"there is no round_mode {mode!r}", fix="there are up, down and nearest")
    bits = e.bitcast(e.cast(x, dtypes.float32), dtype=dtypes.uint32)
    exponent = e.bitwise(e.bitwise(bits, 23, kind="shr"), 0xFF, kind="and")
    fraction = e.bitwise(bits, 0x7FFFFF, kind="and")
    half = 0x400000
    if mode != "down":
        more = e.less(0 if mode == "up" else half, fraction)
        if mode == "nearest":
            more = e.logical_or(more, e.logical_and(e.equal(fraction, half), e.less(0, exponent)))
        exponent = exponent + e.cast(e.logical_and(more, e.less(exponent, 0xFE if saturate else 0xFF)), dtypes.uint32)
    return e.bitcast(e.cast(exponent, dtypes.uint8), dtype=target)


# ---- scales and zero points -------------------------------------------------------------------------------------------------


def spread(n: Any, v: Value, x: Tensor, axis: int, block: int = 0) -> Tensor:
    """A scale or zero point as it meets x: one for all, one for each index of `axis`, or one for each block along it."""
    g, t = n.g, n.g.tensor(v)
    if t.rank == 0 or all(d is None for d in t.dims):
        return Tensor(t.op, ())
    if not -x.rank <= axis < x.rank:
        raise GraphError(f"there is no axis {axis} of {g.show(x)}")
    axis %= x.rank
    if t.rank == 1:
        return Tensor(t.op, [*[None] * axis, t.dims[0], *[None] * (x.rank - axis - 1)])
    if t.rank != x.rank:
        raise GraphError(f"a scale of {g.show(t)} does not fit {g.show(x)}")
    own, theirs = t.dims[axis], x.dims[axis]
    if own is None or theirs is None:
        return t
    if not block:
        if g.same(own.size, theirs.size):
            return t
        block = -(-g.number(theirs.size) // g.number(own.size))
    whole = g.fresh(theirs.size)
    return g.read(t, [whole if k == axis else d for k, d in enumerate(t.dims)], {own: Idx(whole) // block})


def is_zero(v: Value) -> bool:
    """Whether a zero point is left out, or known to be 0."""
    return v is None or (isinstance(v, ConstantArray) and not v.array.astype(np.float32).any())


def limits(target: DType) -> tuple[float, float]:
    return float(target.lowest), float(target.highest)


def rounded(x: Op, target: DType, zero: Op | None) -> Op:
    """A quotient as integers of `target`: rounded, moved by the zero point, held at the limits."""
    y = e.rounded(x)
    y = y if y.dtype.bits >= 32 else e.cast(y, dtypes.float32)
    if zero is not None:
        y = y + e.cast(zero, y.dtype)
    low, high = limits(target)
    return e.cast(e.minimum(e.maximum(y, low), high), target)


def as_float(x: Op) -> Op:
    """A scale in which one can divide."""
    return e.cast(x, dtypes.float32) if x.dtype.kind == "narrow" else x


# ---- QuantizeLinear and back ------------------------------------------------------------------------------------------------


@translates("QuantizeLinear")
@translates("QuantizeLinear", domain=FUSED)
def quantize(n: Any, x: Value, scale: Value, zero: Value = None) -> Tensor:
    said = n.attr("output_dtype", 0)
    target = as_dtype(zero.np) if zero is not None else as_dtype(numpy_type(said)) if said else dtypes.uint8
    if said and as_dtype(numpy_type(said)) is not target:
        raise GraphError(f"output_dtype is {numpy_type(said)}, and the zero point is {target}")
    precision = as_dtype(numpy_type(n.attr("precision"))) if n.attr("precision", 0) else None
    return quantized(n, n.g.tensor(x), scale, zero, target, precision)


def quantized(n: Any, t: Tensor, scale: Value, zero: Value, target: DType, precision: DType | None = None) -> Tensor:
    """x / scale + zero point, as `target`; the quotient is of the scale's dtype, or of `precision`."""
    g, axis, block = n.g, n.attr("axis", 1), n.attr("block_size", 0)
    s = spread(n, scale, t, axis, block)
    parts = [t, s] if is_zero(zero) else [t, s, spread(n, zero, t, axis, block)]
    (a, by, *z), dims = g.align(*parts)
    by = as_float(by)
    kind = precision or (by.dtype if not (s.dtype.kind == "narrow" and a.dtype.is_float) else a.dtype)
    y = e.divide(e.cast(a, kind), e.cast(by, kind))
    if target.python is int:
        return g.made(rounded(y, target, z[0] if z else None), dims)
    if z:
        y = y + e.cast(z[0], y.dtype)
    return g.made(as_narrow(y, target, bool(n.attr("saturate", 1))), dims)


@translates("DequantizeLinear")
@translates("DequantizeLinear", domain=FUSED)
def dequantize(n: Any, x: Value, scale: Value, zero: Value = None) -> Tensor:
    said = n.attr("output_dtype", 0)
    target = as_dtype(numpy_type(said)) if said else None
    return dequantized(n, n.g.tensor(x), scale, zero, n.attr("axis", 1), n.attr("block_size", 0), target)


def dequantized(n: Any, t: Tensor, scale: Value, zero: Value, axis: int = 1, block: int = 0, target: DType | None = None) -> Tensor:
    """(x - zero point) * scale, in float32, as the scale's dtype or `target`."""
    g = n.g
    s = spread(n, scale, t, axis, block)
    parts = [t, s] if is_zero(zero) else [t, s, spread(n, zero, t, axis, block)]
    (a, by, *z), dims = g.align(*parts)
    target = target or (s.dtype if s.dtype.is_float else dtypes.float32)
    wide = dtypes.int32 if a.dtype.python is int else dtypes.float32
    if z:
        a = e.cast(a, wide) - e.cast(z[0], wide)
    return g.made(e.cast(e.cast(a, dtypes.float32) * e.cast(as_float(by), dtypes.float32), target), dims)


@translates("DynamicQuantizeLinear")
def dynamic(n: Any, x: Value) -> tuple[Tensor, ...]:
    """uint8 with the scale and zero point that this tensor needs."""
    t = n.g.tensor(x)
    scale, zero = ranged(t.op, dtypes.uint8)
    y = rounded(t.op / scale, dtypes.uint8, zero)
    return Tensor(y, t.dims), Tensor(scale, ()), Tensor(zero, ())


def ranged(x: Op, target: DType, axes: tuple[Any, ...] | None = None) -> tuple[Op, Op]:
    """The scale and zero point with which `target` reaches over x and 0; of zeros alone the scale is 1."""
    axes = tuple(x.axes) if axes is None else axes
    low, high = limits(target)
    top = e.maximum(reduce.build(x, kind="max", axes=axes) if axes else x, 0.0)
    bottom = e.minimum(reduce.build(x, kind="min", axes=axes) if axes else x, 0.0)
    scale = (top - bottom) / (high - low)
    scale = e.where(e.equal(scale, 0.0), 1.0, scale)
    zero = e.cast(e.rounded(e.minimum(e.maximum(low - bottom / scale, low), high)), target)
    return scale, zero


# ---- products of integers ---------------------------------------------------------------------------------------------------


def moved(n: Any, v: Value, zero: Value, as_column: bool = False) -> Tensor:
    """A tensor less its zero point, as int32 or, of floats, float32; a vector of zero points belongs to rows, or to columns."""
    t = n.g.tensor(v)
    wide = Tensor(e.cast(t.op, dtypes.float32 if t.op.dtype.python is float else dtypes.int32), t.dims)
    return wide if is_zero(zero) else minus(n, wide, zero, as_column)


def minus(n: Any, t: Tensor, zero: Value, as_column: bool) -> Tensor:
    z = n.g.tensor(zero)
    if z.rank == 1 and t.rank > 1:
        z = Tensor(z.op, [None, *z.dims] if as_column else [*z.dims, None])
    elif z.rank == 1:
        z = Tensor(z.op, z.dims if as_column else ())
    return each(n.g, lambda a, b: a - e.cast(b, a.dtype), t, Tensor(z.op, z.dims))


def product(n: Any, a: Value, b: Value, a_zero: Value = None, b_zero: Value = None) -> Tensor:
    """The matrix product of 8-bit numbers less their zero points; of integers it is exact."""
    return matmul(n.g, moved(n, a, a_zero), moved(n, b, b_zero, True))


@translates("MatMulInteger")
def matmul_integer(n: Any, a: Value, b: Value, a_zero: Value = None, b_zero: Value = None) -> Tensor:
    return product(n, a, b, a_zero, b_zero)


@translates("ConvInteger")
def conv_integer(n: Any, x: Value, w: Value, x_zero: Value = None, w_zero: Value = None) -> Tensor:
    return convolved(n, x, w, x_zero, w_zero)


def convolved(n: Any, x: Value, w: Value, x_zero: Value, w_zero: Value) -> Tensor:
    """The convolution of 8-bit integers less their zero points, exact."""
    f = moved(n, w, None)
    if not is_zero(w_zero):
        f = each(n.g, lambda a, b: a - e.cast(b, a.dtype), f, spread(n, w_zero, f, 0))
    return convolution(n, moved(n, x, x_zero), f)


def scaled(n: Any, y: Tensor, scales: tuple[Tensor, Tensor, Tensor], zero: Value, target: DType, at: Callable[[Tensor], Tensor]) -> Tensor:
    """Sums of products as `target`: times the scales of both operands over that of the result. `at` puts vectors on their dim."""
    g = n.g
    (a, b, c), dims = g.align(*map(at, scales))
    by = g.made(e.cast(as_float(a), dtypes.float32) * e.cast(as_float(b), dtypes.float32) / e.cast(as_float(c), dtypes.float32), dims)
    parts = [y, by] if is_zero(zero) else [y, by, at(g.tensor(zero))]
    (p, q, *z), dims = g.align(*parts)
    total = e.cast(p, dtypes.float32) * q
    if target.python is int:
        return g.made(rounded(total, target, z[0] if z else None), dims)
    return g.made(as_narrow(total + e.cast(z[0], dtypes.float32) if z else total, target, True), dims)


@translates("QLinearMatMul")
def qlinear_matmul(
    n: Any, a: Value, a_scale: Value, a_zero: Value, b: Value, b_scale: Value, b_zero: Value, y_scale: Value, y_zero: Value
) -> Tensor:
    g = n.g
    y = product(n, a, b, a_zero, b_zero)
    sa, sb, sy = g.tensor(a_scale), g.tensor(b_scale), g.tensor(y_scale)
    sa = Tensor(sa.op, [*sa.dims, None]) if sa.rank == 1 and y.rank > 1 else sa  # of rows
    return scaled(n, y, (sa, sb, sy), y_zero, as_dtype(y_zero.np), lambda t: t)


@translates("QLinearConv")
def qlinear_conv(
    n: Any,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    w: Value,
    w_scale: Value,
    w_zero: Value,
    y_scale: Value,
    y_zero: Value,
    bias: Value = None,
) -> Tensor:
    if n.attr("channels_last", 0):
        raise UnsupportedError("QLinearConv with channels_last", fix="quantise the model with channels first")
    g = n.g
    y = convolved(n, x, w, x_zero, w_zero)
    y = y if bias is None else with_bias(g, y, bias)

    def at(t: Tensor) -> Tensor:
        return Tensor(t.op, [*t.dims, *[None] * (y.rank - 2)]) if t.rank == 1 else t

    return scaled(n, y, (g.tensor(x_scale), g.tensor(w_scale), g.tensor(y_scale)), y_zero, as_dtype(y_zero.np), at)


# ---- com.microsoft: products of integers that give floats, and quantised ops of one element --------------------------------


@translates("MatMulIntegerToFloat", domain=FUSED)
def integers_to_float(
    n: Any, a: Value, b: Value, a_scale: Value, b_scale: Value, a_zero: Value = None, b_zero: Value = None, bias: Value = None
) -> Tensor:
    g = n.g
    sums = product(n, a, b, a_zero, b_zero)
    return unscaled(g, sums, g.tensor(a_scale), g.tensor(b_scale), bias)


def unscaled(g: Any, sums: Tensor, a_scale: Tensor, b_scale: Tensor, bias: Value) -> Tensor:
    """Sums of products of integers as floats: times both scales, and a bias for each column."""
    (p, q, r), dims = g.align(sums, a_scale, b_scale)
    y = g.made(e.cast(p, dtypes.float32) * (e.cast(q, dtypes.float32) * e.cast(r, dtypes.float32)), dims)
    if bias is None:
        return y
    (p, q), dims = g.align(y, bias)
    return g.made(p + q, dims)


@translates("DynamicQuantizeMatMul", domain=FUSED)
def dynamic_matmul(n: Any, a: Value, b: Value, b_scale: Value, b_zero: Value = None, bias: Value = None) -> Tensor:
    y, scale, zero = dynamic(n, a)
    return unscaled(n.g, product(n, y, b, zero, b_zero), scale, n.g.tensor(b_scale), bias)


def by_element(name: str, function: Callable[..., Op], count: int) -> None:
    """A quantised op of `count` operands, each with its scale and zero point: what it is of floats, quantised again."""

    def translate(n: Any, *given: Value) -> Tensor:
        parts = [dequantized(n, n.g.tensor(given[k]), given[k + 1], given[k + 2]) for k in range(0, 3 * count, 3)]
        ops, dims = n.g.align(*parts)
        scale, zero = given[3 * count], given[3 * count + 1] if len(given) > 3 * count + 1 else None
        return quantized(n, n.g.made(function(n, *ops), dims), scale, zero, as_dtype(given[0].np))

    translates(name, domain=FUSED)(translate)


by_element("QLinearAdd", lambda n, x, y: x + y, 2)
by_element("QLinearMul", lambda n, x, y: x * y, 2)
by_element("QLinearSigmoid", lambda n, x: e.sigmoid(x), 1)
by_element("QLinearLeakyRelu", lambda n, x: e.where(e.less(x, 0.0), x * n.attr("alpha", 0.01), x), 1)


@translates("QLinearConcat", domain=FUSED)
def qlinear_concat(n: Any, scale: Value, zero: Value, *parts: Value) -> Tensor:
    """Parts with scales and zero points of their own."""
    floats = [dequantized(n, n.g.tensor(x), s, z) for x, s, z in zip(parts[::3], parts[1::3], parts[2::3], strict=True)]
    return quantized(n, joined(n.g, floats, n.attr("axis") % floats[0].rank), scale, zero, as_dtype(zero.np))


@translates("QLinearGlobalAveragePool", domain=FUSED)
def qlinear_global(n: Any, x: Value, x_scale: Value, x_zero: Value, y_scale: Value, y_zero: Value) -> Tensor:
    t = dequantized(n, n.g.tensor(x), x_scale, x_zero)
    dims = list(range(1, t.rank - 1)) if n.attr("channels_last", 0) else list(range(2, t.rank))
    y = arithmetic.reduce_over(n.g, t, dims, arithmetic.mean, True)
    return quantized(n, y, y_scale, y_zero, as_dtype(x.np))


@translates("QLinearAveragePool", domain=FUSED)
def qlinear_average(n: Any, x: Value, x_scale: Value, x_zero: Value, y_scale: Value, y_zero: Value) -> Tensor:
    if n.attr("channels_last", 0):
        raise UnsupportedError("QLinearAveragePool with channels_last", fix="quantise the model with channels first")
    y = average_pool(n, dequantized(n, n.g.tensor(x), x_scale, x_zero))
    return quantized(n, y, y_scale, y_zero, as_dtype(x.np))

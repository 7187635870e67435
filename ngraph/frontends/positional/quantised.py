"""Quantised tensors: integers or narrow floats with scales and zero points, their products and convolutions.

Rounding is to the nearest, ties to even; integers saturate. What standards say in two steps (divide, then add the zero point) is done in
floats and clamped there, so numbers far outside the range land at its ends. A zero point may be left out (None).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.positional.elementwise import as_narrow, each
from ngraph.frontends.positional.products import matmul
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value
from ngraph.frontends.positional.windows import Windowing, convolution
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import Idx
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops import functions
from ngraph.ops.reduce import reduce


def spread(g: Any, v: Value, x: Tensor, axis: int, block: int = 0) -> Tensor:
    """A scale or zero point as it meets x: one for all, one for each index of `axis`, or one for each block along it."""
    t = g.tensor(v)
    if t.rank == 0 or all(d is None for d in t.dims):
        return Tensor(t.op, ())
    if not -x.rank <= axis < x.rank:
        raise GraphError(f"there is no axis {axis} of {g.show(x)}")
    axis %= x.rank
    if t.rank == 1 and (x.rank > 1 or not block):
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
    """The smallest and the largest number of a dtype."""
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


def quantized(
    g: Any, t: Tensor, scale: Value, zero: Value, target: DType, axis: int = 1, block: int = 0, saturate: bool = True, precision: Any = None
) -> Tensor:
    """t / scale + zero point, as `target`; the quotient is of the scale's dtype, or of `precision`. axis, block: see `spread`."""
    s = spread(g, scale, t, axis, block)
    parts = [t, s] if is_zero(zero) else [t, s, spread(g, zero, t, axis, block)]
    (a, by, *z), dims = g.align(*parts)
    by = as_float(by)
    kind = precision or (by.dtype if not (s.dtype.kind == "narrow" and a.dtype.is_float) else a.dtype)
    y = e.divide(e.cast(a, kind), e.cast(by, kind))
    if target.python is int:
        return g.made(rounded(y, target, z[0] if z else None), dims)
    if z:
        y = y + e.cast(z[0], y.dtype)
    return g.made(as_narrow(y, target, saturate), dims)


def dequantized(g: Any, t: Tensor, scale: Value, zero: Value, axis: int = 1, block: int = 0, target: DType | None = None) -> Tensor:
    """(x - zero point) * scale, in float32, as the scale's dtype or `target`."""
    s = spread(g, scale, t, axis, block)
    parts = [t, s] if is_zero(zero) else [t, s, spread(g, zero, t, axis, block)]
    (a, by, *z), dims = g.align(*parts)
    target = target or (s.dtype if s.dtype.is_float else dtypes.float32)
    wide = dtypes.int32 if a.dtype.python is int else dtypes.float32
    if z:
        a = e.cast(a, wide) - e.cast(z[0], wide)
    return g.made(e.cast(e.cast(a, dtypes.float32) * e.cast(as_float(by), dtypes.float32), target), dims)


def dynamic(x: Op) -> tuple[Op, Op, Op]:
    """uint8 with the scale and zero point that an op needs."""
    scale, zero = ranged(x, dtypes.uint8)
    return rounded(x / scale, dtypes.uint8, zero), scale, zero


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


# ---- products -----------------------------------------------------------------------------------------------------------


def less_zero(g: Any, v: Value, zero: Value, as_column: bool = False) -> Tensor:
    """A tensor less its zero point, as int32 or, of floats, float32; a vector of zero points belongs to rows, or to columns."""
    t = g.tensor(v)
    t = Tensor(e.cast(t.op, dtypes.float32 if t.op.dtype.python is float else dtypes.int32), t.dims)
    if is_zero(zero):
        return t
    z = g.tensor(zero)
    if z.rank == 1 and t.rank > 1:
        z = Tensor(z.op, [None, *z.dims] if as_column else [*z.dims, None])
    elif z.rank == 1:
        z = Tensor(z.op, z.dims if as_column else ())
    return each(g, lambda a, b: a - e.cast(b, a.dtype), t, z)


def product(g: Any, a: Value, b: Value, a_zero: Value = None, b_zero: Value = None) -> Tensor:
    """The matrix product of 8-bit numbers less their zero points; of integers it is exact."""
    return matmul(g, less_zero(g, a, a_zero), less_zero(g, b, b_zero, True))


def convolved(g: Any, x: Value, w: Value, x_zero: Value, w_zero: Value, by: Windowing, groups: int) -> Tensor:
    """The convolution of 8-bit integers less their zero points, exact."""
    f = less_zero(g, w, None)
    if not is_zero(w_zero):
        f = each(g, lambda a, b: a - e.cast(b, a.dtype), f, spread(g, w_zero, f, 0))
    return convolution(g, less_zero(g, x, x_zero), f, by, groups)


def scaled(g: Any, y: Tensor, scales: tuple[Tensor, Tensor, Tensor], zero: Value, target: DType, at: Callable[[Tensor], Tensor]) -> Tensor:
    """Sums of products as `target`: times the scales of both operands over that of the result. `at` puts vectors on their dim."""
    (a, b, c), dims = g.align(*map(at, scales))
    by = g.made(e.cast(as_float(a), dtypes.float32) * e.cast(as_float(b), dtypes.float32) / e.cast(as_float(c), dtypes.float32), dims)
    parts = [y, by] if is_zero(zero) else [y, by, at(g.tensor(zero))]
    (p, q, *z), dims = g.align(*parts)
    total = e.cast(p, dtypes.float32) * q
    if target.python is int:
        return g.made(rounded(total, target, z[0] if z else None), dims)
    return g.made(as_narrow(total + e.cast(z[0], dtypes.float32) if z else total, target, True), dims)


def unscaled(g: Any, sums: Tensor, a_scale: Tensor, b_scale: Tensor, bias: Value) -> Tensor:
    """Sums of products of integers as floats: times both scales, and a bias for each column."""
    (p, q, r), dims = g.align(sums, a_scale, b_scale)
    y = g.made(e.cast(p, dtypes.float32) * (e.cast(q, dtypes.float32) * e.cast(r, dtypes.float32)), dims)
    if bias is None:
        return y
    return each(g, e.add, y, bias)


def integers_to_float(g: Any, a: Value, b: Value, a_scale: Value, b_scale: Value, a_zero: Value, b_zero: Value, bias: Value) -> Tensor:
    """The product of two quantised matrices as floats."""
    return unscaled(g, product(g, a, b, a_zero, b_zero), g.tensor(a_scale), g.tensor(b_scale), bias)


def unpacked(packed: np.ndarray[Any, Any], bits: int, count: int) -> np.ndarray[Any, Any]:
    """Rows of bytes as rows of `count` numbers of so many bits, the first in the lowest ones."""
    flat = np.unpackbits(np.ascontiguousarray(packed), axis=1, bitorder="little", count=bits * count)
    weights = (1 << np.arange(bits)).astype(np.uint8)
    total = np.zeros((len(packed), count), np.uint8)
    for k in range(bits):
        total |= flat[:, k::bits] * weights[k]
    return total


# ---- floats that are rounded to the numbers of a range -----------------------------------------------------------------


def nudged(first: float, last: float, low: Op, high: Op) -> tuple[Op, Op, Op]:
    """Returns the ends of a range of the steps `first` to `last`, moved so that 0 is one of them, and the length of a step."""
    step = (high - low) / (last - first)
    zero = first - low / step
    zero = e.minimum(e.maximum(functions.trunc(zero + 0.5), first), last)
    return (first - zero) * step, (last - zero) * step, step


def fake(first: float, last: float, x: Op, low: Op, high: Op) -> Op:
    """Returns the nearest number of a nudged range; 0 for an empty one."""
    low_end, high_end, step = nudged(first, last, low, high)
    y = e.floor((e.minimum(e.maximum(x, low_end), high_end) - low_end) * (1.0 / step) + 0.5) * step + low_end
    return e.where(e.logical_and(e.equal(low, 0), e.equal(high, 0)), e.filled(0, (), y.dtype), y)


def there_and_back(first: float, last: float, given: bool, halves: bool, x: Op, low: Op, high: Op) -> Op:
    """Returns the nearest multiple of the step by which both ends of a range lie between the numbers `first` and `last`.

    given: whether the range was, and cuts x; halves: whether a half is rounded upwards, else to an even number
    """
    most = e.filled(float(np.finfo(np.float32).max), (), x.dtype)

    def scale(steps: float, end: Op) -> Op:
        fits = e.less(0, end * steps)
        return e.where(fits, steps / e.where(fits, end, e.filled(1, (), x.dtype)), most)

    by_low, by_high = scale(first, low), scale(last, high)
    lower = e.less(by_low, by_high)
    by = e.where(lower, by_low, by_high)
    unit = e.where(lower, low / (first or 1.0), high / last)
    low, high = e.where(lower, low, unit * first), e.where(lower, unit * last, high)
    if given:
        x = e.minimum(e.maximum(x, low), high)
    return (e.floor(x * by + 0.5) if halves else e.rounded(x * by)) * unit

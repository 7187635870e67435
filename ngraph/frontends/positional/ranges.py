"""Integers that stand for the floats of a range: the first and the last integer of their dtype stand for its ends, `low` and `high`.

The functions are of ops; ends are scalars, or what broadcasts with the integers.
"""

from __future__ import annotations

import numpy as np

from ngraph.frontends.positional.quantised import limits
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops import functions


def nearest(x: Op) -> Op:
    """Returns the nearest whole number, of two the one farther from 0."""
    return functions.trunc(x + e.where(e.less(x, 0), e.filled(-0.5, (), x.dtype), e.filled(0.5, (), x.dtype)))


def step(low: Op, high: Op, kind: DType) -> Op:
    """Returns the length that one integer stands for, in float64."""
    many = float(1 << kind.bits)
    return e.cast(high - low, dtypes.float64) * (many / (many - 1.0)) / many


def less_zero(x: Op, low: Op, high: Op) -> Op:
    """Returns integers less the one that stands for 0, as int32; of a range of length 0 as they are."""
    empty = e.equal(low, high)
    start = nearest(low / step(low, e.where(empty, high + 1.0, high), x.dtype))
    return e.cast(x, dtypes.int32) - e.cast(e.where(empty, 0.0, limits(x.dtype)[0] - start), dtypes.int32)


def integers(x: Op, low: Op, high: Op, kind: DType) -> Op:
    """Returns floats as integers of a range whose start is moved to the next multiple of the step."""
    (first, last), many = limits(kind), float(1 << kind.bits)
    by = many / (e.cast(high - low, dtypes.float64) * (many / (many - 1.0)))
    found = nearest(e.cast(x, dtypes.float64) * by) - nearest(e.cast(low, dtypes.float64) * by) + first
    return e.cast(e.minimum(e.maximum(found, first), last), kind)


def floats(x: Op, low: Op, high: Op) -> Op:
    """Returns the floats that integers of such a range stand for; low, high: in float32."""
    one = step(low, high, x.dtype)
    short = e.cast(one, dtypes.float32)
    start = e.where(e.equal(low, high), low, nearest(low / short) * short)
    return e.cast(start + (e.cast(x, dtypes.float64) - limits(x.dtype)[0]) * one, dtypes.float32)


def moved(x: Op, low: Op, high: Op, start: Op, end: Op, kind: DType) -> Op:
    """Returns integers as those of another range, from `start` to `end`; int32 become uint8 by arithmetic of fixed points."""
    if kind is not dtypes.uint8 or x.dtype is not dtypes.int32:
        return integers(floats(x, low, high), start, end, kind)
    length = e.cast(end - start, dtypes.float64)
    by = e.cast(255.0 * (1 << 16) * e.cast(high - low, dtypes.float64) / length, dtypes.int64)
    middle = e.cast((low + high) * 0.5 * e.cast(255.0 / length, dtypes.float32) * float(1 << 16), dtypes.int64)
    first = e.cast(nearest(e.cast(start, dtypes.float64) * 255.0 * (1 << 16) / length), dtypes.int64)
    found = e.bitwise(e.cast(x, dtypes.int64) * by, 32, kind="shr") + middle - first + (1 << 15)
    return e.cast(e.minimum(e.maximum(e.bitwise(found, 16, kind="shr"), 0), 255), kind)


def between(x: Op, low: Op, high: Op, *bounds: float) -> Op:
    """Returns integers that stand for at least the first bound, and at most the second one, if there is one."""
    ends = [integers(low * 0.0 + bound, low, high, x.dtype) for bound in bounds]
    x = e.maximum(x, ends[0])
    return x if len(ends) == 1 else e.minimum(x, ends[1])


def end_with_zero(low: Op, high: Op, least: float) -> Op:
    """Returns the end of a range that starts at `low` or 0, holds 0, and is not shorter than this share of its larger end or of 1."""
    length = e.maximum(e.maximum(e.absolute(low), e.absolute(high)), 1.0) * least
    return e.maximum(e.maximum(high, e.minimum(low, 0.0) + length), 0.0)


def scale_to(low: Op, high: Op, first: float, last: float) -> Op:
    """Returns the largest factor by which neither end of a range leaves these numbers."""
    none = np.float32(np.finfo(np.float32).max)
    parts = [e.where(e.less(0, v * end), end / v, none) for v, end in ((low, first), (high, last))]
    return e.minimum(*parts)


def room_for_sums(a: Op, b: Op, c: Op, d: Op, bits: int) -> Op:
    """Returns the end of a range around 0 that has room for 2 ** bits of the numbers of two others."""
    return e.maximum(e.maximum(b, -a), e.maximum(d, -c)) * float(1 << bits)


def step_of_product(a: Op, b: Op, c: Op, d: Op, kind: DType, other: DType) -> Op:
    """Returns what the product of a step of a range, a to b, and one of another, c to d, stands for."""
    (first, last), (low, high) = limits(kind), limits(other)
    return (b - a) / (last - first) * ((d - c) / (high - low))

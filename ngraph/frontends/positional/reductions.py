"""Reductions over dims, and what works along dims and keeps the shape: softmax, running sums, norms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.positional.values import Tensor
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axis
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops import sorting
from ngraph.ops.rearrange import flip, iota
from ngraph.ops.reduce import count, reduce


def dims_of(g: Any, t: Tensor, given: Sequence[int]) -> list[int]:
    """Dims counted from the start. Raises GraphError for one that is not there."""
    wrong = [k for k in given if not -t.rank <= k < t.rank]
    if wrong:
        raise GraphError(f"there is no dim {wrong[0]} of {g.show(t)}")
    return [k % t.rank for k in given]


def along(t: Tensor, dims: Iterable[int]) -> tuple[Axis, ...]:
    """The axes of these dims; one of length 1 may have none."""
    return tuple([a for k in dims if (a := t.dims[k]) is not None])


def reduce_over(t: Tensor, dims: Sequence[int], function: Callable[[Op, tuple[Axis, ...]], Op], keep: bool) -> Tensor:
    """A function of an op and the axes that go, over dims; those of length 1 that have no axis stay as they are.

    Raises GraphError for a dim that is named twice.
    """
    if len(set(dims)) < len(dims):
        raise GraphError(f"a reduction over the dims {list(dims[:8])} names one of them twice", fix="name each dim once")
    op = function(t.op, along(t, dims))
    left = [None if k in dims else d for k, d in enumerate(t.dims) if keep or k not in dims]
    return Tensor(op, left)


def total(x: Op, axes: tuple[Any, ...], kind: str = "add") -> Op:
    """The sum over axes; kind: or the product (`multiply`), max or min."""
    return reduce.build(x, kind=kind, axes=axes) if axes else x


def mean(x: Op, axes: tuple[Any, ...]) -> Op:
    """The mean over axes, see `in_float`."""
    if not axes:
        return x
    return in_float(lambda y: total(y, axes) / count(axes, y.dtype), x)


def log_sum_exp(x: Op, axes: tuple[Any, ...]) -> Op:
    """log of the sum of exp over axes, safe for large numbers."""
    if not axes:
        return x
    top = total(x, axes, "max")
    finite = e.where(e.less(e.absolute(top), np.inf), top, 0.0)
    return e.log(total(e.exp(x - finite), axes)) + finite


def in_float(function: Callable[[Op], Op], x: Op) -> Op:
    """A function of floats; of integers it is computed in float64, of 16-bit floats in float32, and then has their dtype."""
    return e.rounding_once(function)(x) if x.dtype.is_float else e.cast(function(e.cast(x, dtypes.float64)), x.dtype)


def power_mean(x: Op, axes: tuple[Any, ...], p: float) -> Op:
    """The p-norm over axes."""

    def norm(x: Op) -> Op:
        if p == 1:
            return total(e.absolute(x), axes)
        if p == 2:
            return e.sqrt(total(x * x, axes))
        return e.power(total(e.power(e.absolute(x), float(p)), axes), 1.0 / p)

    return e.rounding_once(norm)(x)


REDUCTIONS: dict[str, Callable[[Op, tuple[Any, ...]], Op]] = {
    "sum": total,
    "mean": mean,
    "prod": lambda x, axes: total(x, axes, "multiply"),
    "max": lambda x, axes: total(x, axes, "max"),
    "min": lambda x, axes: total(x, axes, "min"),
    "l1": lambda x, axes: total(e.absolute(x) if x.dtype.kind != "uint" else x, axes),
    "l2": lambda x, axes: in_float(lambda y: e.sqrt(total(y * y, axes)), x),
    "sumsquare": lambda x, axes: e.rounding_once(lambda y: total(y * y, axes))(x),
    "logsum": lambda x, axes: in_float(lambda y: e.log(total(y, axes)), x),
    "logsumexp": lambda x, axes: in_float(lambda y: log_sum_exp(y, axes), x),
}


def best(x: Op, axes: tuple[Axis, ...], kind: str, last: bool = False) -> Op:
    """The index of the largest (`max`) or smallest (`min`) along an axis, int64: the first of equal ones, or the last."""
    if not axes:
        return e.filled(0, x.axes, dtypes.int64)
    if last:
        found = sorting.argreduce.build(flip(x, axes[0]), kind=kind, axes=axes)
        return count(axes, dtypes.int64) - 1 - e.cast(found, dtypes.int64)
    return e.cast(sorting.argreduce.build(x, kind=kind, axes=axes), dtypes.int64)


# ---- along dims, with the shape kept ------------------------------------------------------------------------------------


def softmax(x: Op, axes: tuple[Any, ...], log: bool = False) -> Op:
    """Shares that add up to 1 over axes, or their logarithms."""
    if not axes:
        return e.filled(0 if log else 1, x.axes, x.dtype)

    def shares(x: Op) -> Op:
        shifted = x - total(x, axes, "max")
        if log:
            return shifted - e.log(total(e.exp(shifted), axes))
        y = e.exp(shifted)
        return y / total(y, axes)

    return e.rounding_once(shares)(x)


def hardmax(x: Op, axes: tuple[Any, ...]) -> Op:
    """1 where the first largest over axes stands, else 0."""
    if not axes:
        return e.filled(1, x.axes, x.dtype)
    if any(a.length == 0 for a in axes):
        return e.filled(0, x.axes, x.dtype)
    place = iota(axes[0])
    for a in axes[1:]:
        place = place * count((a,), dtypes.int32) + iota(a)
    return e.cast(e.equal(sorting.argreduce.build(x, kind="max", axes=axes), place), x.dtype)


def cumulated(t: Tensor, k: int, kind: str, exclusive: bool, reverse: bool) -> Tensor:
    """Running sums (`add`) or products (`multiply`) along dim k; exclusive: of what stands before each."""
    if t.dims[k] is None:
        return Tensor(e.filled(0 if kind == "add" else 1, t.op.axes, t.op.dtype), t.dims) if exclusive else t
    return Tensor(sorting.cumulate.build(t.op, kind=kind, axis=t.dims[k], exclusive=exclusive, reverse=reverse), t.dims)


def direction(x: Op, axes: tuple[Axis, ...], p: int) -> Op:
    """x over its length by the 1-norm or the 2-norm; 0 where that is 0."""

    def directions(x: Op) -> Op:
        size = total(e.absolute(x), axes) if p == 1 else e.sqrt(total(x * x, axes))
        return e.where(e.equal(size, 0.0), 0.0, x / size)

    return e.rounding_once(directions)(x)

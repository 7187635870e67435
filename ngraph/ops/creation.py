"""Tensors made of numbers alone: filled ones, the identity matrix, and sequences along an axis."""

from __future__ import annotations

import math
from typing import Any

from ngraph.errors import ArgumentError, AxisError
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axes, Axis, as_axis, make_axis
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.op import Op
from ngraph.ops.elementwise import as_op, cast, constant, equal, filled, where
from ngraph.ops.rearrange import broadcast, iota


def full(axes: Any, value: Any, dtype: Any = None) -> Op:
    """Returns a tensor with these axes that is `value` everywhere: a number, or a tensor that has some of the axes.

    axes: a list of axes, or text as in `ng.axes`. dtype: by default that of the value, float32 of Python's floats, int32 of its integers.

        >>> import ngraph as ng
        >>> ng.full("N=2 H=3", 7.0)
        <constant: float32[N=2, H=3]>
    """
    if isinstance(value, int) and not isinstance(value, bool) and dtype is None:
        dtype = dtypes.int32
    x = as_op(value) if dtype is None or isinstance(value, Op) else constant(value, dtype=dtype)
    x = x if dtype is None else cast(x, dtype)
    return filled(x.const, Axes(axes), x.dtype) if x.is_constant and not x.axes else broadcast(x, Axes(axes))


def zeros(axes: Any, dtype: Any = dtypes.float32) -> Op:
    """Returns a tensor of zeros with these axes: a list of axes, or text as in `ng.axes`.

    >>> import ngraph as ng
    >>> ng.zeros("N=2 H=3", dtype="int32")
    <constant: int32[N=2, H=3]>
    """
    return filled(0, Axes(axes), as_dtype(dtype))


def ones(axes: Any, dtype: Any = dtypes.float32) -> Op:
    """Returns a tensor of ones with these axes: a list of axes, or text as in `ng.axes`.

    >>> import ngraph as ng
    >>> ng.ones("N=2 H=3")
    <constant: float32[N=2, H=3]>
    """
    return filled(1, Axes(axes), as_dtype(dtype))


def eye(axis: Axis | str, other: Axis | str | None = None, offset: int = 0, dtype: Any = dtypes.float32) -> Op:
    """Returns 1 where the index along `other` is that along `axis` plus `offset`, else 0: the identity matrix.

    axis, other: two axes, or text such as "I=3"; without `other` it is the dual of `axis`, so that `ng.eye(H) @ x` is x.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.eye("I=2", "J=3"))()
        array([[1., 0., 0.],
               [0., 1., 0.]], dtype=float32)
    """
    row = as_axis(axis)
    column = row - 1 if other is None else as_axis(other)
    if row == column:
        raise AxisError(f"eye: {row!r} twice", fix="name two axes, or one: the other is its dual then")
    return cast(equal(iota(row) + offset if offset else iota(row), iota(column)), dtype)


def arange(start: float, stop: float | None = None, step: float = 1, *, axis: Axis | str, dtype: Any = None) -> Op:
    """Returns start, start + step, start + 2 step … up to, not including, `stop`, along an axis; with one number: from 0 up to it.

    axis: a name for a new axis, or an axis of that length. dtype: int32 for integers, else float32, by default.
    Raises ArgumentError for a step of 0, AxisError for an axis of another length. `ng.iota(axis)` counts along an axis that is there.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.arange(1, 10, 3, axis="K"))()
        array([1, 4, 7], dtype=int32)
    """
    start, stop = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise ArgumentError("arange with a step of 0", fix="take a step above or below 0")
    count = max(math.ceil((stop - start) / step), 0)
    whole = all(isinstance(n, int) for n in (start, stop, step))
    kind = as_dtype(dtype or (dtypes.int32 if whole else dtypes.float32))
    along = make_axis(count, name=axis) if isinstance(axis, str) and "=" not in axis else as_axis(axis)
    if along.length is None:
        along.length = count
    if along.length != count:
        raise AxisError(f"arange: there are {count} numbers, and {along!r}", fix=f"give an axis of {count}, or a name for a new one")
    inner = dtypes.int64 if kind.is_integer and whole else dtypes.accumulator(kind) if kind.is_float else dtypes.float64
    return cast(iota(along, inner) * step + start, kind)


def linspace(start: Any, stop: Any, axis: Axis | str, endpoint: bool = True, dtype: Any = dtypes.float32) -> Op:
    """Returns numbers evenly spaced from `start` to `stop` along `axis`, as many as it is long; both are among them.

    start, stop: numbers, or tensors without the axis. axis: an axis, or text such as "T=11". endpoint: False leaves `stop` out.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.linspace(0, 1, "T=5"))()
        array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    along, kind = as_axis(axis), as_dtype(dtype)
    inner = dtypes.accumulator(kind) if kind.is_float else dtypes.float64
    first, last = (cast(x, inner) if isinstance(x, Op) else constant(x, dtype=inner) for x in (start, stop))
    if along.length is None:
        raise AxisError(f"linspace along {along!r}, whose length is not known", fix='give it, as in "T=11"')
    steps = max(along.length - bool(endpoint), 1)
    i = iota(along, inner)
    y = first + i * ((last - first) / steps)
    if endpoint and along.length > 1:
        y = where(equal(i, float(steps)), last, y)
    return cast(y, kind)

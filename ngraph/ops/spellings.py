"""Names of earlier versions for functions with other names here, and queries about constants and axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ngraph.errors import AxisError, GraphError
from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.axes import Axes, Axis, as_axis
from ngraph.op_graph.op import Op
from ngraph.ops.elementwise import as_op, constant, sigmoid
from ngraph.ops.rearrange import cast_axes, slice_range
from ngraph.ops.reduce import reduced_axes

sigmoidAtomic = sigmoid  # the gradient of sigmoid is exact, so a separate form is not needed


def is_constant(x: Any) -> bool:
    """Whether this is a tensor that never changes.

    >>> ng.is_constant(ng.constant(1.0)), ng.is_constant(ng.placeholder(()))
    (True, False)
    """
    return isinstance(x, Op) and x.is_constant


def is_constant_scalar(x: Any) -> bool:
    """Whether this is a constant without axes, or filled with one number.

    >>> ng.is_constant_scalar(ng.constant(1.0)), ng.is_constant_scalar(ng.constant([1, 2], "H=2"))
    (True, False)
    """
    return is_constant(x) and (not x.axes or type(x.attrs["value"]) is not ArrayRef)


def constant_value(x: Any) -> Any:
    """Returns the number or array of a constant. Raises GraphError for other tensors.

    >>> ng.constant_value(ng.constant(2.5))
    2.5
    """
    if not is_constant(x):
        raise GraphError(f"{getattr(x, 'label', repr(x))} is not a constant", fix="compute it: ngt.make_transformer().computation(x)()")
    value = x.attrs["value"]
    return value.array if type(value) is ArrayRef else value


def constant_storage(axes: Any, dtype: Any = None, initial_value: Any = 0) -> Op:
    """Returns a constant; its value is passed as that of a variable.

    >>> ng.constant_storage("K=3", initial_value=1.0).axes
    Axes(K=3)
    """
    return constant(constant_value(initial_value) if is_constant(initial_value) else initial_value, axes, dtype)


def slice_axis(axis: Axis | str, s: slice) -> Axis:
    """Returns the axis that slicing `axis` gives: its name and flags, another length.

    >>> ng.slice_axis(ng.make_axis(8, name="H"), slice(2, None)).length
    6
    """
    mine: Axis = as_axis(axis)
    _, _, length = slice_range(
        mine.size, s, lambda what, fix="give slice(start, stop)": AxisError(f"slice_axis({mine!r}): {what}: {s!r}", fix=fix)
    )
    return mine.resized(length)


def dualed_axes(x: Any, filter: Callable[[Axis], bool], in_dual_offset: int, out_dual_offset: int) -> Op:
    """Returns `x` with its axes at other dual levels: shifted by `in_dual_offset` where `filter` holds, else by `out_dual_offset`.

    >>> ng.dualed_axes(ng.ones("H=3"), lambda axis: True, -1, 0).axes
    Axes(H'=3)
    """
    x = as_op(x)
    return cast_axes(x, [a + (in_dual_offset if filter(a) else out_dual_offset) for a in x.axes])


def compute_reduction_axes(x: Any, reduction_axes: Any = None, out_axes: Any = None) -> Axes:
    """Returns the axes that a reduction of `x` with these arguments removes.

    >>> ng.compute_reduction_axes(ng.placeholder("N=2 H=3 W=4"), out_axes="N")
    Axes(H=3, W=4)
    """
    return reduced_axes(as_op(x), reduction_axes, out_axes)

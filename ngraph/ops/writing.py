"""Writes to state on top of `assign`: filling, parts of a variable, `x += y`, `x[...] = v`.

Each returns an op that takes effect after the computation (docs/spec.md 5): put it among the results, or into a `sequential`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ngraph.errors import AxisError, GraphError
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import show_axes
from ngraph.op_graph.op import Op, collecting_lists
from ngraph.op_graph.opdef import show_input
from ngraph.ops.elementwise import add, cast, constant, divide, filled, floordivide, mod, multiply, not_equal, power, subtract, where
from ngraph.ops.rearrange import broadcast
from ngraph.ops.state import assign, variable_record


def fill(x: Op, scalar: Any) -> Op:
    """Returns an op that sets every element of the variable to this number.

    >>> w = ng.variable("K=3")
    >>> ng.function(ng.sequential([ng.fill(w, 2), ng.value_of(w)]))()
    ComputedArray([2., 2., 2.], dtype=float32)
    """
    if not isinstance(scalar, Op) and np.ndim(scalar):
        raise AxisError(f"fill with an array of shape {np.shape(scalar)}", fix="ng.assign takes arrays")
    return assign(x, scalar)


def init_tensor(tensor: Op, value: Any = None) -> Op:
    """Returns an op that sets the variable to `value` (a number, an array), or back to its initial value.

    Raises GraphError where the initial value is a function, which is called when the variable is first used.

    >>> w = ng.variable("K=3", initial_value=1.0)
    >>> ng.function(ng.sequential([ng.init_tensor(w, 5.0), ng.value_of(w)]))()
    ComputedArray([5., 5., 5.], dtype=float32)
    """
    if value is None:
        value = tensor.attrs.get("initial_value")
    if callable(value) and not isinstance(value, Op):
        raise GraphError(f"init_tensor({tensor.label}): its initial value is a function", fix="give the value, or call the function")
    if value is not None and not isinstance(value, Op):
        array = np.asarray(value)
        try:
            value = constant(np.broadcast_to(array, tensor.axes.lengths), tensor.axes, dtype=tensor.dtype)
        except ValueError:
            raise AxisError(
                f"init_tensor({tensor.label}): a value of shape {array.shape} does not fit the axes {show_axes(tensor.axes)}",
                details=(show_input(tensor),),
                fix="give a number, or an array of the axes' lengths",
            ) from None
    return assign(tensor, 0 if value is None else value)


def _whole_value(part: Op, value: Any) -> Op:
    """Returns the value to write into `part`, with its axes and dtype."""
    if isinstance(value, Op):
        return cast(broadcast(value, part.axes), part.dtype)
    array = np.asarray(value)
    if array.ndim and array.shape != part.axes.lengths:
        raise AxisError(f"set_item: an array of shape {array.shape} for {show_axes(part.axes)}", details=(show_input(part),))
    return constant(array if array.ndim else array[()].item(), part.axes, dtype=part.dtype)


def set_item(tensor: Op, item: Any, value: Any) -> Op:
    """Returns an op that sets a part of a variable to `value`; the other elements keep theirs.

    item: as in `tensor[item]`: `...`, indices and slices by position, or a dict by axis. value: a number, an array, or an op
    whose axes are among those of the part. Raises GraphError where `tensor` is not a variable, AxisError for axes that do not fit.

    >>> w = ng.variable("K=3")
    >>> ng.function(ng.sequential([ng.set_item(w, slice(0, 2), 5), ng.value_of(w)]))()
    ComputedArray([5., 5., 0.], dtype=float32)
    """
    if not isinstance(tensor, Op) or tensor.opdef is not variable_record:
        raise GraphError(
            f"set_item({getattr(tensor, 'label', repr(tensor))}), which is not a variable",
            fix="only what ng.variable or ng.persistent_tensor made can be written; ng.put gives a changed copy of any tensor",
        )
    part = tensor[item]
    if part is tensor:
        return assign(tensor, value)
    assert part.opdef.grad is not None

    def placed(x: Op) -> Op:  # the adjoint of a read moves each element back to its position
        put: Op = part.opdef.grad(part, x, tensor)  # type: ignore[misc]  # records of reads have a gradient
        return broadcast(put, tensor.axes)

    new = _whole_value(part, value)
    there = not_equal(placed(filled(1, part.axes, dtypes.int32)), 0)
    if new.dtype.kind == "bool":
        return assign(tensor, where(there, not_equal(placed(cast(new, dtypes.int32)), 0), tensor))
    return assign(tensor, where(there, placed(new), tensor))


def _setitem(x: Op, key: Any, value: Any) -> None:
    if not collecting_lists():
        raise GraphError(
            f"{x.label}[...] = value asks for an assignment, and nothing keeps the op that does",
            fix="update = ng.set_item(x, ..., value), then ask for update; or write it in `with ng.Op.all_ops() as made:`",
        )
    set_item(x, key, value)


def _in_place(function: Callable[[Any, Any], Op]) -> Callable[[Op, Any], Op]:
    """Returns `x += y` for variables as an assignment of x + y, which Python then binds to the name x; for other tensors x + y."""
    return lambda x, y: assign(x, function(x, y)) if x.opdef is variable_record else function(x, y)


_WRITING: dict[str, Callable[..., Any]] = {
    "__setitem__": _setitem,
    "__iadd__": _in_place(add),
    "__isub__": _in_place(subtract),
    "__imul__": _in_place(multiply),
    "__itruediv__": _in_place(divide),
    "__ifloordiv__": _in_place(floordivide),
    "__imod__": _in_place(mod),
    "__ipow__": _in_place(power),
}
for _name, _function in _WRITING.items():
    setattr(Op, _name, _function)

"""The derivative of an op: one walk back over all that it depends on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ngraph.errors import DTypeError, GraphError
from ngraph.op_graph.axes import show_axes
from ngraph.op_graph.op import Op, TensorType, made_for
from ngraph.op_graph.opdef import REGISTRY, show_input
from ngraph.ops.elementwise import as_op, cast, filled
from ngraph.ops.reduce import ordered_as, reduce


def fit(contribution: Op, to: Op) -> Op:
    """A contribution as `to` takes it: summed over axes it has not, repeated along those that are missing, of its dtype."""
    extra = tuple(a for a in contribution.axes if a not in to.axes)
    if extra:
        contribution = reduce.build(contribution, kind="add", axes=extra)
    if len(contribution.axes) < len(to.axes):
        contribution = REGISTRY["broadcast"].build(contribution, axes=to.axes)
    return cast(contribution, to.dtype)


def _is_float(t: Any) -> bool:
    return type(t) is TensorType and t.dtype.is_float


def _order(root: Op, expanded: dict[Op, Op]) -> Iterator[Op]:
    """What the root depends on, inputs first; composites without a gradient stand before what they lower to."""
    done: set[Op] = set()
    stack = [root]
    while stack:
        o = stack[-1]
        if o in done:
            stack.pop()
            continue
        if o.opdef.grad is None and o.opdef.lower is not None and o not in expanded:
            with made_for(o):
                expanded[o] = o.opdef.lower(o, *o.inputs)
        waiting = [i for i in ((expanded[o],) if o in expanded else o.inputs) if i not in done]
        if waiting:
            stack += waiting[::-1]
        else:
            stack.pop()
            done.add(o)
            yield o


def _adjoints(dependent: Op, error: Op | None) -> dict[Op, Op]:
    """The derivative of the dependent with respect to every op that it depends on; built once per (dependent, error)."""
    if dependent.backward is None:
        dependent.backward = {}
    if error in dependent.backward:
        return dependent.backward[error]
    start = filled(1, dependent.axes, dependent.dtype) if error is None else fit(as_op(error), dependent)
    found: dict[Op, Op] = {dependent: start}
    several: dict[Op, dict[int, Op]] = {}  # an op with several results -> the adjoints of its parts
    expanded: dict[Op, Op] = {}
    for o in reversed(list(_order(dependent, expanded))):
        if o not in found and o not in several:
            continue
        with made_for(o):
            if o in expanded:
                pairs: list[tuple[Op, Op | None]] = [(expanded[o], found[o])]
            elif o.opdef.name == "part":
                several.setdefault(o.inputs[0], {})[o.attrs["index"]] = found[o]
                continue
            else:
                pairs = list(zip(o.inputs, _contributions(o, found.get(o), several.get(o)), strict=True))
            for i, contribution in pairs:
                if contribution is None or i.is_constant or not _is_float(i.type):
                    continue
                if i is not o:
                    contribution = fit(contribution, i)
                    found[i] = found[i] + contribution if i in found else contribution
    dependent.backward[error] = found
    return found


def _contributions(o: Op, dy: Op | None, by_part: dict[int, Op] | None) -> tuple[Op | None, ...]:
    """What the op's record says its inputs get; nothing where it has no derivative (steps, integers)."""
    grad = o.opdef.grad
    if grad is None or not o.inputs:
        if "no_gradient" in o.opdef.attrs:
            raise GraphError(f"{o.label} has no derivative: {o.opdef.attrs['no_gradient']}", line=o.line)
        return (None,) * len(o.inputs)
    if by_part is not None:
        dys = tuple(by_part.get(k, filled(0, t.axes, t.dtype) if t.dtype.is_float else None) for k, t in enumerate(o.type))
        given = grad(o, dys, *o.inputs)
    else:
        given = grad(o, dy, *o.inputs)
    return given if isinstance(given, tuple) else (given,)


def deriv(dependent: Op, independent: Any, error: Any = None) -> Any:
    """The derivative of `dependent` with respect to `independent` (an op, or a list of them for a list), with its axes and dtype.

    dependent: a float scalar; or any float tensor with `error`, a tensor of its axes, for a vector-Jacobian product.
    An independent that the dependent does not use gives zeros. Raises GraphError, DTypeError.
    """
    dependent = as_op(dependent)
    if not _is_float(dependent.type):
        raise DTypeError(f"the derivative of {dependent.label}, which is no float tensor", details=(show_input(dependent),))
    if error is None and dependent.axes:
        raise GraphError(
            f"the derivative of {dependent.label}, which has axes {show_axes(dependent.axes)}",
            details=(show_input(dependent),),
            fix="sum it to a scalar first: ng.sum(x, out_axes=()), or give error=",
        )
    if isinstance(independent, (list, tuple)):
        return [deriv(dependent, i, error) for i in independent]
    if not _is_float(independent.type):
        raise DTypeError(
            f"the derivative with respect to {independent.label}, which is no float tensor", details=(show_input(independent),)
        )
    error = None if error is None else as_op(error)
    found = _adjoints(dependent, error).get(independent)
    if found is None:
        return filled(0, independent.axes, independent.dtype)
    return ordered_as(found, independent.axes)

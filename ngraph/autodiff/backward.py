"""The derivative of an op: one walk back over all that it depends on; and the products with a Jacobian that are made of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ngraph.errors import AxisError, DTypeError, GraphError
from ngraph.op_graph.axes import show_axes
from ngraph.op_graph.op import Op, TensorType, made_for
from ngraph.op_graph.opdef import REGISTRY, show_input
from ngraph.ops.elementwise import as_op, cast, filled, stop_gradient
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
            if o in expanded and o in several:
                several[expanded[o]] = several[o]
                continue
            dy = found[o] * o.scale if o in found and o.scale != 1.0 else found.get(o)
            if o in expanded:
                pairs: list[tuple[Op, Op | None]] = [(expanded[o], dy)]
            elif o.opdef.name == "part":
                several.setdefault(o.inputs[0], {})[o.attrs["index"]] = dy  # type: ignore[assignment]
                continue
            else:
                pairs = list(zip(o.inputs, _contributions(o, dy, several.get(o)), strict=True))
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
    if not isinstance(independent, Op):
        raise GraphError(
            f"the derivative of {dependent.label} with respect to {independent!r}, which is no op",
            fix="name a variable, a placeholder, or any other op that it is made of",
        )
    if not _is_float(independent.type):
        raise DTypeError(
            f"the derivative with respect to {independent.label}, which is no float tensor", details=(show_input(independent),)
        )
    error = None if error is None else as_op(error)
    found = _adjoints(dependent, error).get(independent)
    if found is None:
        return filled(0, independent.axes, independent.dtype)
    return ordered_as(found, independent.axes)


def _listed(name: str, given: Any, number: int | None = None) -> list[Op]:
    """One op or several as a list of float tensors; `number` is how many there should be."""
    found = [as_op(x) for x in (given if isinstance(given, (list, tuple)) else [given])]
    if number is not None and len(found) != number:
        raise GraphError(f"{name}: {len(found)} given where {number} belong", fix="give one for each, in the same order")
    wrong = [x for x in found if not _is_float(x.type)]
    if wrong:
        raise DTypeError(f"{name}: {', '.join(x.label for x in wrong)} is no float tensor", details=tuple(show_input(x) for x in wrong))
    return found


def _paired(name: str, values: Sequence[Op], weights: Sequence[Op]) -> Op:
    """The sum of all values times their weights: its derivative is linear in the weights."""
    total: Op | None = None
    for value, weight in zip(values, weights, strict=True):
        extra = [a.label for a in weight.axes if a not in value.axes]
        if extra:
            raise AxisError(
                f"{name}: {weight.label} has {', '.join(extra)}, which {value.label} has not",
                details=(show_input(value), show_input(weight)),
                fix="give it the axes of what it stands beside",
            )
        each = value * cast(weight, value.dtype)
        each = reduce.build(each, kind="add", axes=each.axes) if each.axes else each
        total = each if total is None else total + each
    if total is None:
        raise GraphError(f"{name}: nothing to differentiate", fix="give at least one output")
    return total


def vjp(outputs: Any, inputs: Any, errors: Any) -> Any:
    """The vector-Jacobian product: for each input the sum over outputs of error times the output's derivative, in one walk back.

    outputs, inputs: a float tensor or several. errors: one for each output, of its axes or fewer (then the same along the others).
    One op for one input, a list for several, with their axes and dtypes. Raises GraphError, AxisError, DTypeError.
    """
    results = _listed("vjp, outputs", outputs)
    total = _paired("vjp", results, _listed("vjp, errors", errors, len(results)))
    return deriv(total, inputs)


def jvp(outputs: Any, inputs: Any, tangents: Any) -> Any:
    """The Jacobian-vector product: for each output how it changes as the inputs move along `tangents`, by two walks back.

    outputs, inputs: a float tensor or several. tangents: one for each input, of its axes or fewer (then the same along the others).
    One op for one output, a list for several, with their axes and dtypes. Source: J. Townsend, "A new trick for calculating Jacobian
    vector products" (2017): the vector-Jacobian product is linear in its errors, and its derivative in their direction is this one.
    """
    results, moved = _listed("jvp, outputs", outputs), _listed("jvp, inputs", inputs)
    along = _listed("jvp, tangents", tangents, len(moved))
    errors = [stop_gradient(filled(0, o.axes, o.dtype)) for o in results]  # any values would do
    found = deriv(_paired("jvp", vjp(results, moved, errors), along), errors)
    return found if isinstance(outputs, (list, tuple)) else found[0]

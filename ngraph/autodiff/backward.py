"""Reverse-mode derivatives: one backward traversal over all dependencies of an op; and the Jacobian products built on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ngraph.errors import AxisError, DTypeError, GraphError
from ngraph.op_graph.axes import show_axes
from ngraph.op_graph.op import Body, Op, TensorType, again, copy_graph, made_for, ordered
from ngraph.op_graph.opdef import REGISTRY, show_input
from ngraph.ops.elementwise import as_op, cast, filled, like, sigmoid, stop_gradient, uncast
from ngraph.ops.losses import softmax_record, through_probabilities
from ngraph.ops.reduce import ordered_as, reduce
from ngraph.ops.state import placeholder
from ngraph.parts.walk import post_order

Seeds = tuple[tuple[Op, Op | None], ...]  # results, each with its error; None stands for ones


def fit(contribution: Op, to: Op) -> Op:
    """Returns a contribution in the axes and dtype of `to`: summed over its other axes, broadcast along missing ones, cast."""
    extra = tuple(a for a in contribution.axes if a not in to.axes)
    if extra:
        contribution = reduce.build(contribution, kind="add", axes=extra)
    if len(contribution.axes) < len(to.axes):
        contribution = REGISTRY["broadcast"].build(contribution, axes=to.axes)
    return cast(contribution, to.dtype)


def _is_float(t: Any) -> bool:
    return type(t) is TensorType and t.dtype.is_float


def _order(roots: Iterable[Op], expanded: dict[Op, Op]) -> Iterator[Op]:
    """Yields the dependencies of the roots, inputs first; a composite without a gradient follows its lowering, stored in `expanded`."""

    def needs(o: Op) -> tuple[Op, ...]:
        if o.opdef.grad is None and o.opdef.lower is not None and o not in expanded:
            with made_for(o):
                expanded[o] = o.opdef.lower(o, *o.inputs)
        return (expanded[o],) if o in expanded else o.inputs

    return post_order(roots, needs)


def _adjoints(seeds: Seeds, constants: bool = False, instead: Mapping[Op, Op] = {}) -> tuple[dict[Op, Op], list[Op]]:
    """Returns the derivatives of the sum of all results times their errors by every dependency, with the errors held fixed.

    An error of None stands for ones. With `constants`, also by constants. `instead`: equal ops that the traversal takes in place of others.
    Cached for equal arguments. The second result lists the ops without a derivative that the traversal reached: their dependencies have
    none either.
    """
    kept = seeds[0][0].traversals
    if kept is None:
        kept = seeds[0][0].traversals = {}
    key = seeds, constants, tuple(instead.values())
    if key in kept:
        return kept[key]
    found: dict[Op, Op] = {}
    for result, error in seeds:
        start = filled(1, result.axes, result.dtype) if error is None else fit(error, result)
        found[result] = found[result] + start if result in found else start
    barriers: list[Op] = []
    several: dict[Op, dict[int, Op]] = {}  # an op with several results -> the adjoints of its parts
    expanded = dict(instead)
    for o in reversed(list(_order([result for result, _ in seeds], expanded))):
        if o not in found and o not in several:
            continue
        if "no_gradient" in o.opdef.attrs:
            barriers.append(o)
            continue
        with made_for(o):
            if o in expanded and o in several:
                several[expanded[o]] = several[o]
                continue
            dy = found[o] * o.scale if o in found and o.scale != 1.0 else found.get(o)
            if o in expanded:
                pairs: list[tuple[Op, Op | None]] = [(expanded[o], dy)]
            elif o.opdef.name == "part":
                by_part, index = several.setdefault(o.inputs[0], {}), o.attrs["index"]
                assert dy is not None
                by_part[index] = by_part[index] + dy if index in by_part else dy  # a part may have been made more than once
                continue
            else:
                pairs = list(zip(o.inputs, _contributions(o, dy, several.get(o)), strict=True))
            for i, contribution in pairs:
                i = uncast(i) if constants else i
                if contribution is None or (i.is_constant and not constants) or not _is_float(i.type):
                    continue
                if i is not o:
                    contribution = fit(contribution, i)
                    found[i] = found[i] + contribution if i in found else contribution
    kept[key] = found, barriers
    return found, barriers


def _exposed(o: Op, inputs: Sequence[Op], independent: Op) -> Op:
    """Returns the op over these inputs, rebuilt where its dependence on `independent` is hidden.

    A constant in a body of a loop or choice becomes an input of it; a loss computed from logits is computed from their probabilities.
    """
    given, attrs = list(inputs), dict(o.attrs)
    bodies = {k: (body.inputs, _inside(body.outputs, independent)) for k, body in attrs.items() if type(body) is Body}
    stand_ins = {i: None for _, outputs in bodies.values() for i in ordered(outputs) if i.is_constant and uncast(i) is independent}
    if stand_ins:
        hole = placeholder(independent.axes, dtype=independent.dtype)
        for k, (holes, outputs) in bodies.items():
            copied = copy_graph(outputs, {i: cast(hole, i.dtype) for i in stand_ins})
            attrs[k] = Body((*holes, hole), [copied[x] for x in outputs])
        given.append(independent)
    with made_for(o):
        longer = through_probabilities(o, independent, given[1]) if len(given) == 2 else None
    same = len(given) == len(o.inputs) and all(a is b for a, b in zip(given, o.inputs, strict=True))
    return longer if longer is not None else o if same else again(o, given, attrs)


def _inside(outputs: Iterable[Op], independent: Op) -> list[Op]:
    """Returns the outputs of a body with all of their dependencies exposed (`_exposed`)."""
    outputs, new = list(outputs), dict[Op, Op]()
    for o in ordered(outputs):
        new[o] = _exposed(o, [new[i] for i in o.inputs], independent)
    return [new[x] for x in outputs]


def _slope(seeds: Seeds, independent: Op) -> Op:
    """Returns the derivative by one op, with its axes; zeros where no result depends on it."""
    instead: dict[Op, Op] = {}
    if independent.is_constant or independent.opdef in (softmax_record, sigmoid):
        for o in ordered([result for result, _ in seeds]):
            made = _exposed(o, o.inputs, independent)
            if made is not o:
                instead[o], made.scale = made, 1.0  # the traversal has applied the scale of the op itself
    adjoints, barriers = _adjoints(seeds, independent.is_constant, instead)
    for o in barriers:
        if any(i is independent for i in ordered([o])):
            why, _, fix = o.opdef.attrs["no_gradient"].partition("; ")
            raise GraphError(f"{o.label} has no derivative: {why}", line=o.line, fix=fix)
    found = adjoints.get(independent)
    return filled(0, independent.axes, independent.dtype) if found is None else ordered_as(found, independent.axes)


def _contributions(o: Op, dy: Op | None, by_part: dict[int, Op] | None) -> tuple[Op | None, ...]:
    """Returns the contributions to the op's inputs by its record; None where it has no derivative (steps, integers)."""
    grad = o.opdef.grad
    if grad is None or not o.inputs:
        return (None,) * len(o.inputs)
    if by_part is not None:
        dys = tuple(by_part.get(k, filled(0, t.axes, t.dtype) if t.dtype.is_float else None) for k, t in enumerate(o.type))
        given = grad(o, dys, *o.inputs)
    else:
        given = grad(o, dy, *o.inputs)
    return given if isinstance(given, tuple) else (given,)


def _check_exchanged(dependent: Op, independent: Any) -> None:
    """Raises GraphError where the independent is computed from the dependent, a leaf."""
    if dependent.inputs or not isinstance(independent, Op) or independent is dependent or not independent.inputs:
        return
    if dependent in set(ordered([independent])):
        raise GraphError(
            f"the derivative of {dependent.label} with respect to {independent.label}, which is computed from it",
            details=(show_input(dependent), show_input(independent)),
            fix=f"exchange them: ng.deriv({independent.label}, {dependent.label})",
        )


def deriv(dependent: Op, independent: Any, error: Any = None) -> Any:
    """Returns the derivative of `dependent` with respect to `independent` (an op, or a list of them for a list), with its axes and dtype.

    dependent: a float scalar; or any float tensor with `error`, a tensor of its axes, for a vector-Jacobian product.
    An independent that the dependent does not use gives zeros. Raises GraphError, DTypeError.

    >>> x = ng.variable((), initial_value=3.0)
    >>> float(ng.function(ng.deriv(x * x, x))())
    6.0
    """
    dependent = as_op(dependent)
    _check_exchanged(dependent, independent)
    if not _is_float(dependent.type):
        fix = "cast before it is computed: ng.cast(x, 'float32')" if dependent.is_tensor_op else "name the tensor that was assigned"
        raise DTypeError(f"the derivative of {dependent.label}, which is not a float tensor", details=(show_input(dependent),), fix=fix)
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
            f"the derivative of {dependent.label} with respect to {independent!r}, which is not an op",
            fix="name a variable, a placeholder, or any other op that it is made of",
        )
    if not _is_float(independent.type):
        raise DTypeError(
            f"the derivative with respect to {independent.label}, which is not a float tensor",
            details=(show_input(independent),),
            fix=f"name a float tensor: of {independent.label} make one first, x = ng.cast({independent.label}, 'float32'), and use x",
        )
    return _slope(((dependent, None),) if error is None else _seeds("deriv", [dependent], [like(error, dependent)]), independent)


def _listed(name: str, given: Any, beside: Sequence[Op] | None = None) -> list[Op]:
    """Returns one op or several as a list of float tensors; with `beside`, one for each of these, whose axes an array takes."""
    each = list(given) if isinstance(given, (list, tuple)) else [given]
    if beside is not None and len(each) != len(beside):
        raise GraphError(f"{name}: {len(each)} given where {len(beside)} belong", fix="give one for each, in the same order")
    found = [as_op(x) for x in each] if beside is None else [like(x, o) for x, o in zip(each, beside, strict=True)]
    wrong = [x for x in found if not _is_float(x.type)]
    if wrong:
        raise DTypeError(f"{name}: {', '.join(x.label for x in wrong)} is not a float tensor", details=tuple(show_input(x) for x in wrong))
    return found


def _seeds(name: str, results: Sequence[Op], errors: Sequence[Op]) -> Seeds:
    """Returns results with their errors. Raises GraphError where there are none, AxisError for an error with axes that its result lacks."""
    if not results:
        raise GraphError(f"{name}: nothing to differentiate", fix="give at least one output")
    for result, error in zip(results, errors, strict=True):
        extra = [a.label for a in error.axes if a not in result.axes]
        if extra:
            raise AxisError(
                f"{name}: {error.label} has {', '.join(extra)}, which {result.label} lacks",
                details=(show_input(result), show_input(error)),
                fix="give it the axes of what it stands beside",
            )
    return tuple(zip(results, errors, strict=True))


def vjp(outputs: Any, inputs: Any, errors: Any) -> Any:
    """Returns the vector-Jacobian product: for each input the sum over outputs of error times derivative, in one backward traversal.

    outputs, inputs: a float tensor or several. errors: one for each output, of its axes or fewer (broadcast along the others).
    Returns one op for one input, a list for several, with their axes and dtypes. Raises GraphError, AxisError, DTypeError.

    >>> x = ng.variable((), initial_value=3.0)
    >>> float(ng.function(ng.vjp([x * x], [x], [1.0])[0])())
    6.0
    """
    results = _listed("vjp, outputs", outputs)
    seeds = _seeds("vjp", results, _listed("vjp, errors", errors, results))
    slopes = [_slope(seeds, i) for i in _listed("vjp, inputs", inputs)]
    return slopes if isinstance(inputs, (list, tuple)) else slopes[0]


def jvp(outputs: Any, inputs: Any, tangents: Any) -> Any:
    """Returns the Jacobian-vector product: for each output its directional derivative along `tangents`, by two backward traversals.

    outputs, inputs: a float tensor or several. tangents: one for each input, of its axes or fewer (broadcast along the others).
    Returns one op for one output, a list for several, with their axes and dtypes. Source: J. Townsend, "A new trick for calculating
    Jacobian vector products" (2017): the vector-Jacobian product is linear in its errors; this is its derivative in their direction.

    >>> x = ng.variable((), initial_value=3.0)
    >>> float(ng.function(ng.jvp([x * x], [x], [1.0])[0])())
    6.0
    """
    results, moved = _listed("jvp, outputs", outputs), _listed("jvp, inputs", inputs)
    along = _listed("jvp, tangents", tangents, moved)
    errors = [stop_gradient(filled(0, o.axes, o.dtype)) for o in results]  # any values give the same result
    _seeds("jvp", moved, along)  # checks that each tangent fits its input
    seeds = tuple(zip(vjp(results, moved, errors), along, strict=True))
    found = [_slope(seeds, e) for e in errors]
    return found if isinstance(outputs, (list, tuple)) else found[0]

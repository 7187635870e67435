"""More axes through a graph: the ops that a function made, again for operands with further axes, which every result then has.

Most records need nothing: an axis that an operand has goes through by its name. Those with axes among their attributes have a rule here,
and other composites are taken apart. `vmap` rests on it, and so do Jacobians.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ngraph.errors import AxisError, DTypeError, GraphError, NgraphError, UnsupportedError
from ngraph.op_graph.axes import Axes, Axis, as_axis
from ngraph.op_graph.expr import Idx
from ngraph.op_graph.op import Body, Op, TensorType, again, made_for, numbers_in, ordered, with_numbers
from ngraph.op_graph.opdef import REGISTRY, find_axis
from ngraph.ops.elementwise import as_op, where
from ngraph.ops.rearrange import axes_with_order, broadcast
from ngraph.ops.state import parts, placeholder
from ngraph.parts import nest

Rule = Callable[[Op, Sequence[Op], Sequence[Axis]], Op]


def _extra(new: Sequence[Op], old: Sequence[Op]) -> list[Axis]:
    """Returns the axes that the new operands have beyond the old ones."""
    found: dict[Axis, None] = {}
    for a, b in zip(new, old, strict=True):
        if type(a.type) is TensorType:
            found.update(dict.fromkeys(x for x in a.axes if x not in b.axes))
        elif type(a.type) is tuple:
            found.update(dict.fromkeys(x for t, u in zip(a.type, b.type, strict=True) for x in t.axes if x not in u.axes))
    return list(found)


def _alike(op: Op, inputs: Sequence[Op], extra: Sequence[Axis]) -> list[Op]:
    """Returns the inputs, each with all of the further axes."""
    return [broadcast(x, (*(a for a in extra if a not in x.axes), *x.axes)) for x in inputs]


def _broadcast(op: Op, inputs: Sequence[Op], extra: Sequence[Axis]) -> Op:
    return broadcast(inputs[0], (*extra, *op.attrs["axes"]))


def _reindex(op: Op, inputs: Sequence[Op], extra: Sequence[Axis]) -> Op:
    attrs = {**op.attrs, "axes": Axes((*extra, *op.attrs["axes"])), "index": (*((a, Idx(a)) for a in extra), *op.attrs["index"])}
    return op.opdef.build(*inputs, **attrs)


def _all_alike(op: Op, inputs: Sequence[Op], extra: Sequence[Axis]) -> Op:
    return op.opdef.build(*_alike(op, inputs, extra), **op.attrs)


def _right_hand_sides(op: Op, inputs: Sequence[Op], extra: Sequence[Axis]) -> Op:
    matrices, b = inputs
    return op.opdef.build(matrices, *_alike(op, [b], [a for a in extra if a in matrices.axes]), **op.attrs)


def _holes(inputs: Sequence[Op], old: Sequence[Op], extra: Sequence[Axis]) -> list[Op]:
    """Returns new placeholders of a body: the old ones with those of the further axes that the input has."""
    return [placeholder([*(a for a in extra if a in x.axes), *hole.axes], dtype=hole.dtype) for x, hole in zip(inputs, old, strict=True)]


def _scan(op: Op, inputs: Sequence[Op], extra: Sequence[Axis]) -> Op:
    carries, body = op.attrs["carries"], op.attrs["body"]
    given = [*_alike(op, inputs[:carries], extra), *inputs[carries:]]
    holes = _holes(given, body.inputs, extra)
    new = with_axes(body.outputs, dict(zip(body.inputs, holes, strict=True)))
    outputs = [_alike(op, [o], extra)[0] if o.is_tensor_op else o for o in new]
    return op.opdef.build(*given, **{**op.attrs, "body": Body(holes, outputs)})


def _cond(op: Op, inputs: Sequence[Op], extra: Sequence[Axis]) -> Op:
    predicate, *given = inputs
    branches = []
    for name in ("then", "else"):
        body = op.attrs[name]
        holes = _holes(given, body.inputs, extra)
        new = with_axes(body.outputs, dict(zip(body.inputs, holes, strict=True)))
        branches.append((holes, [_alike(op, [o], extra)[0] for o in new]))
    if not predicate.axes:
        return op.opdef.build(predicate, *given, **{n: Body(*b) for n, b in zip(("then", "else"), branches, strict=True)})
    # both run where the choice differs along the axis
    chosen = [with_axes(outputs, dict(zip(holes, given, strict=True))) for holes, outputs in branches]
    made = [where(predicate, a, b) for a, b in zip(*chosen, strict=True)]
    return made[0] if len(made) == 1 else REGISTRY["together"].build(*made)


def _while(op: Op, inputs: Sequence[Op], extra: Sequence[Axis]) -> Op:
    """Returns a loop that runs while one index of the further axes goes on; at the others the carries stay as they are.

    Only carries that depend on the axes get them, so a condition on a counter stays one for all indices.
    """
    carries, cond, body = op.attrs["carries"], op.attrs["cond"], op.attrs["body"]

    def renewed(part: Body) -> tuple[list[Op], list[Op]]:
        holes = _holes(given, part.inputs, extra)
        return holes, with_axes(part.outputs, dict(zip(part.inputs, holes, strict=True)))

    given = list(inputs)
    while True:
        tested, (holds,) = renewed(cond)
        holes, outputs = renewed(body)
        if holds.axes:
            goes = with_axes([holds], dict(zip(tested, holes, strict=True)))[0]
            outputs = [where(goes, o, hole) for o, hole in zip(outputs, holes, strict=False)]
        wider = [len(o.axes) > len(x.axes) for o, x in zip(outputs, given, strict=False)]
        if not any(wider):
            break
        given[:carries] = [_alike(op, [x], extra)[0] if more else x for x, more in zip(given[:carries], wider, strict=True)]
    outputs = [broadcast(o, hole.axes) for o, hole in zip(outputs, holes, strict=False)]
    one = REGISTRY["reduce"].build(holds, kind="max", axes=holds.axes) if holds.axes else holds
    made = op.opdef.build(*given, cond=Body(tested, [one]), body=Body(holes, outputs), carries=carries)
    results = _alike(op, parts(made) if type(made.type) is tuple else [made], extra)
    return results[0] if len(results) == 1 else REGISTRY["together"].build(*results)


def _custom(op: Op, inputs: Sequence[Op], extra: Sequence[Axis]) -> Op:
    body, gradient = op.attrs["body"], op.attrs["gradient"]
    holes, results = _holes(inputs, body.inputs, extra), len(body.outputs)
    outputs = _alike(op, with_axes(body.outputs, dict(zip(body.inputs, holes, strict=True))), extra)
    given = [*_alike(op, gradient.inputs[:results], extra), *inputs]
    errors = _holes(given, gradient.inputs, extra)
    slopes = _alike(op, with_axes(gradient.outputs, dict(zip(gradient.inputs, errors, strict=True))), extra)
    return op.opdef.build(*inputs, body=Body(holes, outputs), gradient=Body(errors, slopes))


def _draw(op: Op, inputs: Sequence[Op], extra: Sequence[Axis]) -> Op:
    """Returns the numbers of the trip that the loops are at: the trip number of an index at which a loop has ended is a lower one."""
    trips = [REGISTRY["reduce"].build(t, kind="max", axes=t.axes) if t.axes else t for t in inputs[1:]]
    return broadcast(op.opdef.build(inputs[0], *trips, **op.attrs), (*extra, *op.axes))


_RULES: dict[str, Rule] = {
    "broadcast": _broadcast,
    "reindex": _reindex,
    "scan": _scan,
    "cond": _cond,
    "while": _while,
    "custom_gradient": _custom,
    **dict.fromkeys(("concat", "sort", "scatter", "together"), _all_alike),
    **dict.fromkeys(("triangular_block", "triangular_solve"), _right_hand_sides),
    **dict.fromkeys(("random_bits", "uniform", "normal", "randint"), _draw),
}


def _fits(new: Op, old: Op, extra: Sequence[Axis]) -> bool:
    """Whether an op has the axes and dtypes of the old one, and the further axes in each of its values."""
    mine, theirs = (t.type if type(t.type) is tuple else (t.type,) for t in (new, old))
    return len(mine) == len(theirs) and all(
        type(a) is TensorType and set(a.axes) == {*b.axes, *extra} and a.dtype is b.dtype for a, b in zip(mine, theirs, strict=True)
    )


def _again(op: Op, inputs: Sequence[Op]) -> Op:
    """Returns the op over operands with further axes. Raises UnsupportedError for one through which they do not go."""
    if op.opdef.name == "sequential":
        return op.opdef.build(*inputs)
    extra = _extra(inputs, op.inputs)
    with made_for(op):
        if not extra:
            return op.opdef.build(*inputs, **op.attrs)
        rule = _RULES.get(op.opdef.name)
        try:
            made = rule(op, inputs, extra) if rule else op.opdef.build(*inputs, **op.attrs)
            if _fits(made, op, extra):
                return made
        except (AxisError, DTypeError, GraphError):
            pass
        if op.opdef.lower is None:
            raise UnsupportedError(f"the axis {extra[0].label} does not go through {op.label}", line=op.line, fix="write it with the axis")
        lowered = op.opdef.lower(op, *op.inputs)
        return with_axes([lowered], dict(zip(op.inputs, inputs, strict=True)))[0]


def _renumbered(op: Op, replace: Mapping[Op, Op]) -> Op:
    """Returns the op with the numbers in its indices computed of other ops. Raises UnsupportedError for one that has more axes now."""
    numbers = dict.fromkeys(n for a in op.attrs.values() for n in numbers_in(a))
    new = dict(zip(numbers, with_axes(list(numbers), replace), strict=True)) if numbers else {}
    if all(a is b for a, b in new.items()):
        return op
    for number, other in new.items():
        if extra := _extra([other], [number]):
            why = f"the indices of {op.label} differ along {extra[0].label}: {number.label} has that axis"
            raise UnsupportedError(why, line=op.line, fix="keep all elements, and choose by ng.where, or index with ng.take")
    return again(op, op.inputs, {k: with_numbers(a, lambda n: new.get(n, n)) for k, a in op.attrs.items()})


def _check_lengths(op: Op, new: Mapping[Op, Op]) -> None:
    """Raises UnsupportedError where the length of an axis of `op` is a number that has more axes now."""
    for axis in op.axes if op.is_tensor_op else ():
        for number in numbers_in(axis.size):
            extra = _extra([new.get(number, number)], [number])
            if extra:
                raise UnsupportedError(
                    f"the length of {axis.label} differs along {extra[0].label}: {number.label} has that axis",
                    line=op.line,
                    fix="keep all elements, and choose by ng.where",
                )


def with_axes(results: Sequence[Op], replace: Mapping[Op, Op]) -> list[Op]:
    """Returns the results with ops replaced by others that may have more axes; each result has these where it depends on them."""
    new: dict[Op, Op] = {}
    for op in ordered(results):
        inputs = [new[i] for i in op.inputs]
        same = all(a is b for a, b in zip(inputs, op.inputs, strict=True))
        _check_lengths(op, new)
        made = op if op in replace else _renumbered(op, replace)
        new[op] = replace[op] if op in replace else made if same else _again(made, inputs)
    return [new[r] for r in results]


def vmap(function: Callable[..., Any], axis: Axis | str) -> Callable[..., Any]:
    """Returns a function that applies `function` at each index of `axis`, all at once: `ng.vmap(f, "B")(x, w)`.

    function: of ops, or nests of them, which it sees without the axis; so a sum over all axes leaves it alone. Arguments that lack the
    axis are the same at each index. Each result has the axis, in front. Random numbers are the same at each index.
    A `while` whose condition depends on the axis runs until it holds at no index, and each index keeps what it had when it ended.
    Raises AxisError where no argument has the axis, UnsupportedError for an op through which an axis does not go.

    >>> import ngraph as ng
    >>> x = ng.placeholder("B=4 H=3")
    >>> ng.vmap(lambda x: ng.sum(x * x), "B")(x).axes
    Axes(B=4)
    """

    def mapped(*args: Any, **named: Any) -> Any:
        given = [as_op(x) for x in nest.leaves([args, named])]
        every = [x for x in given if x.is_tensor_op and _has(x, axis)]
        if not every:
            mine = find_axis(given, axis, "vmap") if given else as_axis(axis)
            raise AxisError(f"vmap: no argument has the axis {mine.label}", fix="pass a tensor that has it")
        along = find_axis(every[0], axis, "vmap")
        holes = {x: placeholder([a for a in x.axes if a != along], dtype=x.dtype) for x in every}
        inner_args, inner_named = nest.rebuilt([args, named], [holes.get(x, x) for x in given])
        results = function(*inner_args, **inner_named)
        ops = [as_op(r) for r in nest.leaves(results)]
        new = with_axes(ops, {hole: x for x, hole in holes.items()})
        return nest.rebuilt(
            results, [axes_with_order(broadcast(n, (along, *o.axes)), (along, *o.axes)) for n, o in zip(new, ops, strict=True)]
        )

    return mapped


def _has(x: Op, axis: Axis | str) -> bool:
    try:
        find_axis(x, axis, "vmap")
    except NgraphError:
        return False
    return True

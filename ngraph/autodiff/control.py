"""The gradients of `scan` and `cond`: their bodies are differentiated; a reversed scan reads the values that the first one saved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ngraph.autodiff.backward import vjp
from ngraph.op_graph.axes import Axis, make_axis
from ngraph.op_graph.op import Body, Op, TensorType, again, copy_graph, ordered
from ngraph.op_graph.opdef import REGISTRY
from ngraph.ops.control import close, cond_record, print_record, scan_record
from ngraph.ops.elementwise import filled
from ngraph.ops.state import parts, placeholder


def _hole(t: TensorType) -> Op:
    return placeholder(t.axes, dtype=t.dtype)


def is_float(x: Any) -> bool:
    return bool(x.type.dtype.is_float)


def _zero(dy: Op | None) -> bool:
    return dy is None or (dy.is_constant and dy.attrs["value"] == 0)


def quiet(body: Body) -> tuple[Body, dict[Op, Op]]:
    """Returns the body without its prints, since the backward pass recomputes it; and the replacement of each of its ops."""
    new: dict[Op, Op] = {}
    for o in ordered(body.outputs):
        kind = o.opdef.name
        if o.opdef is print_record:
            new[o] = new[o.inputs[0]]
        elif kind == "sequential" and all(i.opdef.name == "effect" for i in o.control_deps):
            new[o] = new[o.inputs[-1]]
        else:
            attrs = {k: quiet(a)[0] if type(a) is Body else a for k, a in o.attrs.items()}
            inputs = tuple([new[i] for i in o.inputs])
            same = all(a is b for a, b in zip((*inputs, *attrs.values()), (*o.inputs, *o.attrs.values()), strict=True))
            new[o] = o if same else again(o, inputs, attrs)
    same = all(new[o] is o for o in body.outputs)
    return (body if same else Body(body.inputs, [new[o] for o in body.outputs])), new


def slopes_of(outputs: Sequence[Op], errors: Sequence[Op], inputs: Sequence[Op]) -> list[Op]:
    """Returns the vector-Jacobian product of a body; zeros where it has no outputs."""
    return vjp(outputs, inputs, errors) if outputs else [filled(0, i.axes, i.dtype) for i in inputs]


def _results(op: Op) -> tuple[Op, ...]:
    return parts(op) if type(op.type) is tuple else (op,)


def _relabelled(x: Op, old: Axis, new: Axis) -> Op:
    return REGISTRY["rename"].build(x, to=((old, new),)) if old in x.axes else x


def _apart(axis: Axis, body: Body) -> Axis:
    """Returns an axis of the length of a loop's axis that no input and no output of the body has."""
    name = axis.name + "_carried"
    while any(a.name == name for o in (*body.inputs, *body.outputs) for a in o.axes):
        name += "_"
    return make_axis(name=name).resized(axis.size)


def _with_carries(op: Op, inputs: Sequence[Op], apart: Axis) -> tuple[Op, dict[Op, Op]]:
    """Returns the loop with the carries of each trip among its results, and the stacked array of each value that its body gives.

    For a carry that has the axis of the loop, `apart` replaces that axis in the stack.
    """
    body, carries, axis = op.attrs["body"], op.attrs["carries"], op.attrs["axis"]
    holes = body.inputs[:carries]
    missing = [h for h in holes if h not in body.outputs[carries:]]
    if missing:
        attrs = {**op.attrs, "body": Body(body.inputs, (*body.outputs, *(_relabelled(h, axis, apart) for h in missing)))}
        op = scan_record.build(*inputs, **attrs)
    stacks = _results(op)[carries:]
    return op, dict(zip((*body.outputs[carries:], *missing), stacks, strict=True))


def _scan_gradient(op: Op, dys: Any, *inputs: Op) -> tuple[Op | None, ...]:
    """Returns the gradients, by a reversed loop whose carries are the derivatives by the carries and by loop-invariant inputs.

    Saved values of each trip (carries, contractions) are read; others are recomputed.
    """
    dys = dys if isinstance(dys, tuple) else (dys,)
    body, axis, carries, xs = (op.attrs[k] for k in ("body", "axis", "carries", "xs"))
    apart = _apart(axis, body)
    loop, stacks = _with_carries(op, inputs, apart)
    body, new = quiet(body)
    stacks = {new.get(value, value): stack for value, stack in stacks.items()}
    holes, along, shared = body.inputs[:carries], body.inputs[carries : carries + xs], body.inputs[carries + xs :]
    moving, kept = [h for h in holes if is_float(h)], [s for s in shared if is_float(s)]
    sliced = [a for a in along if is_float(a)]

    # the derivatives of one trip, as functions of the body's own ops, which are then replaced by the saved values
    outputs: list[Op] = []
    errors: list[Op] = []
    d_carry = {h: _hole(h.type) for h in moving}
    for h, after in zip(holes, body.outputs[:carries], strict=True):
        if h in d_carry:
            outputs.append(after)
            errors.append(d_carry[h])
    d_ys: list[tuple[Op, Op]] = []  # hole, value from outside
    for y, dy in zip(body.outputs[carries:], dys[carries:], strict=True):
        if is_float(y) and not _zero(dy):
            d_ys.append((_hole(y.type), dy))
            outputs.append(y)
            errors.append(d_ys[-1][0])
    wanted = [*moving, *kept, *sliced]
    slopes = slopes_of(outputs, errors, wanted)
    total = {s: _hole(s.type) for s in kept}
    given = dict(zip(wanted, slopes, strict=True))
    results = [*(given[h] for h in moving), *(total[s] + given[s] for s in kept), *(given[a] for a in sliced)]

    saved = {value: _hole(_relabelled(value, axis, apart).type) for value in stacks}
    fresh = {h: _hole(h.type) for h in (*along, *shared)}
    copied = copy_graph(results, {**fresh, **{value: _relabelled(hole, apart, axis) for value, hole in saved.items()}})
    back_holes = [
        *(d_carry[h] for h in moving),
        *(total[s] for s in kept),
        *saved.values(),
        *(fresh[a] for a in along),
        *(h for h, _ in d_ys),
        *(fresh[s] for s in shared),
    ]
    (back,), captured = close([(back_holes, [copied[r] for r in results])])
    by_hole = dict(zip(holes, dys, strict=False))
    start = [by_hole[h] if by_hole[h] is not None else filled(0, h.axes, h.dtype) for h in moving]
    made = scan_record.build(
        *start,
        *(filled(0, s.axes, s.dtype) for s in kept),
        *stacks.values(),
        *inputs[carries : carries + xs],
        *(dy for _, dy in d_ys),
        *inputs[carries + xs :],
        *captured,
        body=back,
        axis=axis,
        reverse=not op.attrs["reverse"],
        carries=len(moving) + len(kept),
        xs=len(stacks) + xs + len(d_ys),
    )
    found = dict(zip((*moving, *kept, *sliced), _results(made), strict=True))
    return tuple([found.get(i) for i in body.inputs])


def _cond_gradient(op: Op, dys: Any, predicate: Op, *inputs: Op) -> tuple[Op | None, ...]:
    """Returns the gradients, as the same choice between the derivatives of the branches."""
    dys = dys if isinstance(dys, tuple) else (dys,)
    errors = [dy for dy in dys if dy is not None and dy.dtype.is_float]
    bodies = {}
    for branch in ("then", "else"):
        body, _ = quiet(op.attrs[branch])
        holes = [_hole(dy.type) for dy in errors]
        outputs = [o for o, dy in zip(body.outputs, dys, strict=True) if dy is not None and dy.dtype.is_float]
        slopes = slopes_of(outputs, holes, [i for i in body.inputs if is_float(i)])
        bodies[branch] = Body((*body.inputs, *holes), slopes)
    if not bodies["then"].outputs:
        return (None,) * (1 + len(inputs))
    made = iter(_results(cond_record.build(predicate, *inputs, *errors, **bodies)))
    return (None, *(next(made) if is_float(i) else None for i in inputs))


scan_record.grad = _scan_gradient
cond_record.grad = _cond_gradient

"""What bodies have in common with what stands around them: orders of axes, and what no trip and no call changes.

What goes into a loop or a branch, and what comes out, lies in memory as the bodies have it: slices are addresses that move, carries need
no conversion from trip to trip, both branches fill the same memory. What a body would do before its first trip, the plan around it does
once for many calls where it can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ngraph.op_graph.op import Origin, TensorType
from ngraph.plan.kernels import Buffer, Kernel, Line, OpaqueOp, Plan, PlanStep, Read
from ngraph.program.program import AxisId, Program, Step, Value

Order = tuple[AxisId, ...]


def arranged(step: Step, lies: Callable[[Value], Order | None]) -> tuple[dict[str, Any], list[Order], list[Order | None]]:
    """Attributes with bodies that agree on orders; the orders in which the step's inputs and, None for any, its results have to lie.

    lies   the order in which a value lies already, if that is settled
    """
    if step.op not in ARRANGE:
        return step.attrs, [v.axes for v in step.inputs], [None] * len(step.results)
    return ARRANGE[step.op](step, lies)


def _orders(values: Sequence[Value]) -> list[Order]:
    return [v.axes for v in values]


def _scan(step: Step, lies: Callable[[Value], Order | None]) -> tuple[dict[str, Any], list[Order], list[Order | None]]:
    """Slices and constants lie as they do outside, where that is settled; what has no order yet follows those that have."""
    body, axis, carries = step.attrs["body"], step.attrs["axis"], step.attrs["carries"]
    orders = _orders(body.inputs)
    sliced = range(carries, carries + step.attrs["xs"])
    settled = list(orders[:carries])
    for k in range(carries, len(orders)):
        there = lies(step.inputs[k])
        if there is not None and (k not in sliced or there[:1] == (axis,)):
            orders[k] = there[1:] if k in sliced else there
            settled.append(orders[k])
    rank = ranked([*settled, *orders])
    for k in sliced:
        if not any(o is orders[k] for o in settled):
            orders[k] = tuple(sorted(orders[k], key=rank.index))
    stacked = _orders(body.outputs[carries:])
    rank = ranked([rank, *stacked])
    after = [*orders[:carries], *[tuple(sorted(o, key=rank.index)) for o in stacked]]
    body = in_order(body, orders, after, step.origin, carries)
    given = [(axis, *o) if k in sliced else o for k, o in enumerate(orders)]
    return {**step.attrs, "body": body}, given, [o if k < carries else (axis, *o) for k, o in enumerate(after)]


def ranked(orders: Sequence[Sequence[AxisId]]) -> list[AxisId]:
    """All axes in one order that agrees with the first of these, and with the others as far as it can: each axis behind its neighbour."""
    rank: list[AxisId] = []
    agree = [o for o in orders if len(o) > 1]
    for strict in (True, False):  # those that contradict come last
        for order in agree if strict else orders:
            places = [rank.index(a) for a in order if a in rank]
            if strict and places != sorted(places):
                continue
            at = 0
            for a in order:
                if a not in rank:
                    rank.insert(at, a)
                at = rank.index(a) + 1
    return rank


def _while(step: Step, lies: Callable[[Value], Order | None]) -> tuple[dict[str, Any], list[Order], list[Order | None]]:
    body, cond, carries = step.attrs["body"], step.attrs["cond"], step.attrs["carries"]
    orders = _orders(body.inputs)
    body = in_order(body, orders, orders[:carries], step.origin)
    return {**step.attrs, "body": body, "cond": in_order(cond, orders, [()], step.origin)}, orders, list(orders[:carries])


def _cond(step: Step, lies: Callable[[Value], Order | None]) -> tuple[dict[str, Any], list[Order], list[Order | None]]:
    then, other = step.attrs["then"], step.attrs["else"]
    orders, after = _orders(then.inputs), _orders(then.outputs)
    bodies = {"then": in_order(then, orders, after, step.origin), "else": in_order(other, orders, after, step.origin)}
    return {**step.attrs, **bodies}, [(), *orders], list(after)


ARRANGE = {"scan": _scan, "while": _while, "cond": _cond}


def in_order(body: Program, inputs: Sequence[Order], outputs: Sequence[Order], origin: tuple[Origin, ...], carries: int = 0) -> Program:
    """The body with its inputs and outputs in these orders, each output a value of its own; only what is carried may also be stacked."""
    first: list[Step] = []
    taken: list[Value] = []
    for v, order in zip(body.inputs, inputs, strict=True):
        taken.append(v if v.axes == order else Value(TensorType(order, v.dtype), v.hint))
        if v.axes != order:
            first.append(Step((v,), "broadcast", (taken[-1],), {"axes": v.axes}, origin))
    last: list[Step] = []
    given: list[Value] = []
    used: set[tuple[Value, bool]] = set()
    for k, (v, order) in enumerate(zip(body.outputs, outputs, strict=True)):
        key = (v, k < carries)
        if v.dtype.np is None or (v.axes == order and key not in used):
            given.append(v)
        else:
            given.append(Value(TensorType(order, v.dtype), v.hint))
            last.append(Step((given[-1],), "broadcast", (v,), {"axes": order}, origin))
        used.add(key)
    return body.with_(inputs=tuple(taken), steps=(*first, *body.steps, *last), outputs=tuple(given)) if first or last else body


def lifted(plan: Plan, still: set[Buffer]) -> None:
    """Takes out of the bodies of scans what depends on nothing but buffers that no call changes; the bodies get it as inputs."""
    steps: list[PlanStep] = []
    for step in plan.steps:
        body = step.attrs.get("body") if type(step) is OpaqueOp and step.op == "scan" else None
        steps.append(_lifted(plan, step, body, still) if type(step) is OpaqueOp and type(body) is Plan else step)
    plan.steps = tuple(steps)


def _lifted(plan: Plan, step: OpaqueOp, body: Plan, still: set[Buffer]) -> OpaqueOp:
    outside = {b: out for b, out in zip(body.inputs, step.inputs, strict=True) if b.loop_invariant and out in still}
    taken: list[Buffer] = []
    left: list[PlanStep] = []
    for k in body.once:
        axes = {a: n for a, n in body.axes.items() if type(k) is Kernel and a in _axes(k)}
        agree = all(isinstance(n, int) and plan.axes.get(a, n) == n for a, n in axes.items())
        if type(k) is not Kernel or not agree or not outside.keys() >= set(k.sources):
            left.append(k)
            continue
        plan.axes |= axes
        for b in k.targets:
            outside[b] = made = Buffer(b.name, b.dims, b.dtype, "once")
            made.border, made.fill, made.row = b.border, b.fill, b.row
            still.add(made)
            taken.append(b)
        plan.once += (_over(k, outside),)
        plan.buffers += tuple([outside[b] for b in k.targets])
    for b in taken:
        b.storage, b.offset, b.loop_invariant = "input", None, True
    body.once, body.inputs = tuple(left), (*body.inputs, *taken)
    body.kept = max([(b.offset or 0) + (b.bytes or 0) for b in body.buffers if b.storage == "once"], default=0)
    return replace(step, inputs=(*step.inputs, *[outside[b] for b in taken])) if taken else step


def _axes(kernel: Kernel) -> set[AxisId]:
    found = {a for a, _ in kernel.loops}
    found.update([a for s in kernel.stages for a in (*s.free, *s.reduced)])
    return found.union([a for b in (*kernel.sources, *kernel.targets) for a in b.axes])


def _over(kernel: Kernel, other: Mapping[Buffer, Buffer]) -> Kernel:
    """The same kernel over other buffers."""

    def line(x: Line) -> Line:
        r = x.read
        return x if r is None or r.source not in other else replace(x, read=Read(other[r.source], r.index, r.guard, r.fill))

    stages = [
        replace(
            s,
            before=tuple(map(line, s.before)),
            after=tuple(map(line, s.after)),
            to=tuple([replace(t, target=other.get(t.target, t.target)) for t in s.to]),
        )
        for s in kernel.stages
    ]
    return replace(kernel, stages=tuple(stages))

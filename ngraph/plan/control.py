"""Orders of axes around bodies: what goes into a loop or a branch, and what comes out, lies in memory as the bodies have it.

So slices are addresses that move, carries need no conversion from trip to trip, and both branches fill the same memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ngraph.op_graph.op import Origin, TensorType
from ngraph.program.program import AxisId, Program, Step, Value

Order = tuple[AxisId, ...]


def arranged(step: Step) -> tuple[dict[str, Any], list[Order], list[Order | None]]:
    """Attributes with bodies that agree on orders; the orders in which the step's inputs and, None for any, its results have to lie."""
    if step.op not in ARRANGE:
        return step.attrs, [v.axes for v in step.inputs], [None] * len(step.results)
    return ARRANGE[step.op](step)


def _orders(values: Sequence[Value]) -> list[Order]:
    return [v.axes for v in values]


def _scan(step: Step) -> tuple[dict[str, Any], list[Order], list[Order | None]]:
    body, axis, carries = step.attrs["body"], step.attrs["axis"], step.attrs["carries"]
    orders = _orders(body.inputs)
    after = [*orders[:carries], *_orders(body.outputs[carries:])]
    body = in_order(body, orders, after, step.origin, carries)
    given = [(axis, *a) if carries <= k < carries + step.attrs["xs"] else a for k, a in enumerate(orders)]
    return {**step.attrs, "body": body}, given, [a if k < carries else (axis, *a) for k, a in enumerate(after)]


def _while(step: Step) -> tuple[dict[str, Any], list[Order], list[Order | None]]:
    body, cond, carries = step.attrs["body"], step.attrs["cond"], step.attrs["carries"]
    orders = _orders(body.inputs)
    body = in_order(body, orders, orders[:carries], step.origin)
    return {**step.attrs, "body": body, "cond": in_order(cond, orders, [()], step.origin)}, orders, list(orders[:carries])


def _cond(step: Step) -> tuple[dict[str, Any], list[Order], list[Order | None]]:
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

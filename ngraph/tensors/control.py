"""Dimension orders that the bodies of loops and branches share with the graph around them.

The inputs and results of a loop or a branch are stored in the order that the bodies use: a slice is an address that moves, carries need no
conversion between iterations, and both branches write to the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ngraph.op_graph.op import Origin, TensorType
from ngraph.program.program import AxisId, Program, Step, Value

Order = tuple[AxisId, ...]


def arranged(step: Step, lies: Callable[[Value], Order | None]) -> tuple[dict[str, Any], list[Order], list[Order | None]]:
    """Returns attributes whose bodies agree on orders, and the orders of the step's inputs and results (None: any).

    lies   the order of a value, if it is fixed already
    """
    if step.op not in ARRANGE:
        return step.attrs, [v.axes for v in step.inputs], [None] * len(step.results)
    return ARRANGE[step.op](step, lies)


def _orders(values: Sequence[Value]) -> list[Order]:
    return [v.axes for v in values]


def _scan(step: Step, lies: Callable[[Value], Order | None]) -> tuple[dict[str, Any], list[Order], list[Order | None]]:
    """Slices and constants keep their order from outside where it is fixed; values without an order follow those that have one."""
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
    """Returns all axes in one order that agrees with the first of these orders, and as far as possible with the others."""
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
    """Returns the body with inputs and outputs in these orders. Each output is a value of its own; only a carry may also be stacked."""
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

"""Sinking into loops: slices of a large value that is cheap to compute (gathered rows, say) are computed in the loop."""

from __future__ import annotations

import math
from typing import Any

from ngraph.op_graph.op import TensorType
from ngraph.op_graph.opdef import ELEMENTWISE
from ngraph.parts.runner import pass_
from ngraph.passes.facts import Makers, Uses
from ngraph.passes.loop_cse import expensive
from ngraph.program.program import AxisId, Program, Step, Value

CHEAP_OPS = {"gather", "broadcast", "constant"}  # beside elementwise ops of few instructions
MIN_SIZE_RATIO = 4  # minimum factor by which the operands are smaller


def cheap(op: str) -> bool:
    """Whether each iteration may recompute it."""
    return op in CHEAP_OPS or (ELEMENTWISE[op] and not expensive(op))


@pass_(needs=("makers", "uses"), gives=("sunk",))
def sink(program: Program, makers: Makers, uses: Uses) -> Program:
    """Returns `program` whose loops take smaller operands and compute cheap slices in each trip."""
    if not any(s.op == "scan" for s in program.steps):
        return program
    steps = [_fed(program, s, makers, uses) if s.op == "scan" else s for s in program.steps]
    changed = any(a is not b for a, b in zip(steps, program.steps, strict=True))
    return program.with_(steps=tuple(steps)) if changed else program


def _fed(program: Program, loop: Step, maker: Makers, uses: Uses) -> Step:
    """Returns the loop with the slices that it alone uses computed inside."""
    axis, body, n, xs = (loop.attrs[k] for k in ("axis", "body", "carries", "xs"))
    slices = dict(zip(body.inputs[n : n + xs], loop.inputs[n : n + xs], strict=True))
    still = dict(zip(body.inputs[n + xs :], loop.inputs[n + xs :], strict=True))
    made: list[Step] = []
    for inner, outer in list(slices.items()):
        cone = _cone(axis, outer, maker, uses)
        leaves = dict.fromkeys([v for s in cone for v in s.inputs if all(v not in c.results for c in cone)])
        if not cone or MIN_SIZE_RATIO * sum(_bits(program, v) for v in leaves) > _bits(program, outer) or not _agree(program, body, cone):
            continue
        del slices[inner]
        here: dict[Value, Value] = {}
        for v in leaves:
            of = slices if axis in v.axes else still
            here[v] = next((a for a, b in of.items() if b is v), None) or Value(_slice(axis, v), v.hint)
            of[here[v]] = v
        for s in cone:
            here[s.result] = inner if s.result is outer else Value(_slice(axis, s.result), s.result.hint)
            attrs = {**s.attrs, "axes": tuple([a for a in s.attrs["axes"] if a != axis])} if s.op == "broadcast" else s.attrs
            made.append(Step((here[s.result],), s.op, tuple([here[v] for v in s.inputs]), attrs, s.origin))
    if not made:
        return loop
    axes = {a: e for a, e in program.axes.items() if a not in body.axes and any(a in v.axes for s in made for v in (*s.inputs, *s.results))}
    hints = {a: h for a, h in program.hints.items() if a in axes}
    holes = (*body.inputs[:n], *slices, *still)
    body = body.with_(axes=body.axes | axes, hints=body.hints | hints, inputs=holes, steps=(*made, *body.steps))
    inputs = (*loop.inputs[:n], *slices.values(), *still.values())
    return Step(loop.results, "scan", inputs, {**loop.attrs, "body": body, "xs": len(slices)}, loop.origin)


def _cone(axis: AxisId, v: Value, maker: Makers, uses: Uses) -> list[Step]:
    """Returns the cheap steps that compute a value without other uses, in order."""
    found: list[Step] = []
    todo = [v]
    while todo:
        s = maker.get(todo.pop())
        if s is None or not cheap(s.op) or (s.op == "gather" and axis in s.attrs["axes"]):
            continue
        if not s.result.axes if s.op == "constant" else axis in s.result.axes and uses[s.result] == 1:
            found.append(s)
            todo += s.inputs
    order = {s: k for k, s in enumerate(dict.fromkeys(maker.values()))}
    return sorted(dict.fromkeys(found), key=order.__getitem__)


def _slice(axis: AxisId, v: Value) -> TensorType:
    return TensorType(tuple([a for a in v.axes if a != axis]), v.dtype)


def _bits(program: Program, v: Value) -> int:
    """Returns the size of a value in bits; axes of unknown length do not count."""
    return v.dtype.bits * math.prod(n for a in v.axes if isinstance(n := program.axes[a], int))


def _agree(program: Program, body: Program, cone: list[Step]) -> bool:
    """Whether the axes of these steps have the same lengths in the body."""
    every: list[Any] = [a for s in cone for v in (*s.inputs, *s.results) for a in v.axes]
    return all(isinstance(n := program.axes[a], int) and body.axes.get(a, n) == n for a in every)

"""Loop-invariant code motion: invariant steps, products of values known before the loop, and sums over all trips leave loops.

A contraction of slices and constants becomes one over the whole axis, before the loop (x·W of a recurrent net). A carry that only
accumulates a contraction or a sum becomes one contraction or sum over the trips, after the loop (the gradient of every weight); so
does a contraction that is only a result of each trip (the gradient of the slices).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ngraph.op_graph.expr import Idx
from ngraph.op_graph.op import Origin, TensorType
from ngraph.op_graph.opdef import ELEMENTWISE, REGISTRY
from ngraph.parts.runner import pass_
from ngraph.parts.walk import post_order
from ngraph.passes.facts import makers, uses
from ngraph.program.program import Program, Step, Value, run_values
from ngraph.rewrite.driver import map_bodies

PRODUCTS = frozenset(("contract", "convolve"))
MOVES = frozenset(("broadcast", "rename", "reindex", "constant", "iota"))  # free of cost wherever they are
BATCHED = PRODUCTS | MOVES | {"reduce"}  # beside elementwise ops, those that can run for all trips at once


@pass_(gives=("hoisted",))
def hoist(program: Program) -> Program:
    """Returns `program` with less work in each trip of its scans, nested ones included."""
    return _hoist(program, {}) if any(s.op in ("scan", "while", "cond") for s in program.steps) else program


def _hoist(program: Program, bodies: dict[Program, Program]) -> Program:
    def body(p: Program) -> Program:
        if p not in bodies:
            bodies[p] = _hoist(p, bodies)
        return bodies[p]

    axes, hints, steps = dict(program.axes), dict(program.hints), []
    for step in program.steps:
        step = map_bodies(step, body)
        if step.op != "scan" or not _may_leave(step):
            steps.append(step)
            continue
        loop = _HoistedScan(step)
        steps += loop.hoisted()
        for a, length in step.attrs["body"].axes.items():
            axes.setdefault(a, length)
            if a in step.attrs["body"].hints:
                hints.setdefault(a, step.attrs["body"].hints[a])
    return program.with_(axes=axes, hints=hints, steps=tuple(steps))


def _may_leave(step: Step) -> bool:
    """Whether the axes of a body can be combined with that of its trips, outside of the loop."""
    body = step.attrs["body"]
    return step.attrs["axis"] not in body.axes and not any(next(iter(run_values(e)), None) for e in body.axes.values())


class _HoistedScan:
    """One scan, and the steps moved before and after it."""

    def __init__(self, step: Step):
        self.step, self.body, self.axis = step, step.attrs["body"], step.attrs["axis"]
        self.carries, self.xs = step.attrs["carries"], step.attrs["xs"]
        self.maker, self.uses = makers(self.body), uses(self.body)
        self.moving = set(self.body.inputs[: self.carries + self.xs])  # loop-variant values
        self.inside = set(self.body.inputs[: self.carries])  # values that depend on carries
        for s in self.body.steps:
            if not (s.op in BATCHED or ELEMENTWISE[s.op]) or any(v in self.inside for v in s.inputs):
                self.inside.update(s.results)
            if not (s.op in BATCHED or ELEMENTWISE[s.op]) or any(v in self.moving for v in s.inputs):
                self.moving.update(s.results)
        self.outer = {v: w for v, w in zip(self.body.inputs, step.inputs, strict=True) if v not in self.inside}
        self.before: list[Step] = []
        self.behind: list[Step] = []
        self.slices: list[Value] = []  # new inputs of the body
        self.consts: list[Value] = []
        self.stacked: dict[Value, Value] = {}  # values of the body that leave it -> their stacked values outside
        for v, w in zip(self.body.outputs[self.carries :], step.results[self.carries :], strict=True):
            self.stacked.setdefault(v, w)
        self.added = 0

    def hoisted(self) -> list[Step]:
        """Returns the steps that replace the loop."""
        totals = {k: s for k in range(self.carries) if (s := self.total(k)) is not None}
        ends = {k: s for k in range(self.carries, len(self.body.outputs)) if (s := self.end(k)) is not None}
        gone = totals | ends
        asked = {v for k, v in enumerate(self.body.outputs) if k not in gone}
        steps = []
        for s in self.body.steps:
            if s.result not in self.inside and (s.op in PRODUCTS or not (s.op in MOVES or s.result in self.moving)):
                if s.result not in self.moving or s.op in PRODUCTS:
                    self.outside(s.result)
                    (self.slices if s.result in self.moving else self.consts).append(s.result)
                    continue
            steps.append(s)
        for k, s in totals.items():
            self.summed(k, s)
        for k, s in ends.items():
            inputs = [self.known(v) for v in s.inputs]
            self.behind.append(Step((self.step.results[k],), s.op, tuple(inputs), self.attrs(s, inputs), s.origin))
        if not (gone or self.slices or self.consts):
            return [self.step]
        rest = self.rest(steps, gone, asked)
        return [*self.before, *([rest] if rest.results else []), *self.behind]

    # before the loop
    def outside(self, v: Value) -> Value:
        """Returns a value that no carry affects, for all trips at once."""
        for w in post_order([v], lambda w: self.maker[w].inputs[::-1], self.outer):
            self.outer[w] = self.batched(self.maker[w])
        return self.outer[v]

    def batched(self, s: Step) -> Value:
        """Adds a step for all trips at once: the axis of the trips is one more that stays."""
        inputs = [self.outer[v] for v in s.inputs]
        return made(self.before, s.op, inputs, self.attrs(s, inputs), s.origin)

    def attrs(self, s: Step, inputs: list[Value]) -> dict[str, Any]:
        attrs = dict(s.attrs)
        if any(self.axis in v.axes for v in inputs):
            if s.op in ("broadcast", "reindex"):
                attrs["axes"] = (self.axis, *attrs["axes"])
            if s.op == "reindex":
                attrs["index"] = ((self.axis, Idx(self.axis)), *attrs["index"])
        return attrs

    # after the loop
    def total(self, k: int) -> Step | None:
        """Returns the product or sum that is the only update of a carry; None where there is another."""
        carry, after = self.body.inputs[k], self.body.outputs[k]
        s = self.maker.get(after)
        if s is None or s.op != "add" or self.uses.get(carry) != 1 or self.uses[after] != 1 or carry not in s.inputs:
            return None
        (u,) = [v for v in s.inputs if v is not carry] or [carry]
        p = self.maker.get(u)
        sums = p is not None and (p.op in PRODUCTS or (p.op == "reduce" and p.attrs["kind"] == "add"))
        return p if p is not None and sums and any(v in self.moving for v in p.inputs) else None

    def end(self, k: int) -> Step | None:
        """Returns the product that a trip computes only as a result; None where the result is something else."""
        v = self.body.outputs[k]
        s = self.maker.get(v)
        return s if s is not None and s.op in PRODUCTS and v in self.inside and self.uses[v] == 1 else None

    def summed(self, k: int, s: Step) -> None:
        """Adds that product or sum, over the trips, too, and the carry's initial value."""
        inputs = [self.known(v) for v in s.inputs]
        name = "axes" if s.op == "reduce" else "over"
        u = made(self.behind, s.op, inputs, {**s.attrs, name: (*s.attrs[name], self.axis)}, s.origin)
        self.behind.append(Step((self.step.results[k],), "add", (self.step.inputs[k], u), {}, s.origin))

    def known(self, v: Value) -> Value:
        """Returns a value of the body after the loop."""
        return self.stack(v) if v in self.inside else self.outside(v)

    def stack(self, v: Value) -> Value:
        """Returns a value of every trip, stacked along the axis of the trips."""
        if v not in self.stacked:
            self.stacked[v] = Value(TensorType((self.axis, *v.axes), v.dtype), v.hint)
            self.added += 1
        return self.stacked[v]

    # the loop
    def rest(self, steps: list[Step], gone: dict[int, Step], asked: set[Value]) -> Step:
        """Returns the loop without the results in `gone`; `asked`: the values that its remaining results need."""
        body, step, n = self.body, self.step, self.carries
        kept = [k for k in range(n) if k not in gone]
        ys = [k for k in range(n, len(body.outputs)) if k not in gone]
        many = list(self.stacked)[len(self.stacked) - self.added :]
        inputs = [*[body.inputs[k] for k in kept], *body.inputs[n : n + self.xs], *self.slices, *body.inputs[n + self.xs :], *self.consts]
        outputs = [*[body.outputs[k] for k in kept], *[body.outputs[k] for k in ys], *many]
        given = [
            *[step.inputs[k] for k in kept],
            *step.inputs[n : n + self.xs],
            *[self.outer[v] for v in self.slices],
            *step.inputs[n + self.xs :],
            *[self.outer[v] for v in self.consts],
        ]
        results = [*[step.results[k] for k in kept], *[step.results[k] for k in ys], *[self.stacked[v] for v in many]]
        lost = {body.outputs[k] for k in gone} - asked
        inner = body.with_(inputs=tuple(inputs), outputs=tuple(outputs), steps=tuple([s for s in steps if s.result not in lost]))
        attrs = {**step.attrs, "body": inner, "carries": len(kept), "xs": self.xs + len(self.slices)}
        return Step(tuple(results), "scan", tuple(given), attrs, step.origin)


def made(into: list[Step], op: str, inputs: Iterable[Value], attrs: dict[str, Any], origin: tuple[Origin, ...]) -> Value:
    """Returns the result of a new step."""
    inputs = tuple(inputs)
    result = Value(REGISTRY[op].type(tuple([v.type for v in inputs]), **attrs))
    into.append(Step((result,), op, inputs, attrs, origin))
    return result

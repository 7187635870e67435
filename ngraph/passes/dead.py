"""Dead-code elimination: steps that reach no output, new state, token or needed length; state that is only read; axes of neither.

Of loops and choices it removes unused results, carries that only they themselves use, and the inputs of those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ngraph.op_graph import expr
from ngraph.op_graph.expr import Len, Run
from ngraph.parts.runner import pass_
from ngraph.program.program import AxisId, Program, Step, Value, attr_axes
from ngraph.rewrite.driver import map_bodies, runs


@pass_(gives=("live",), keeps=("folded", "hoisted"))
def dead(program: Program) -> Program:
    """Returns the program with the steps that the results depend on. Inputs stay, needed or not: they are the caller's."""
    return _dead(program, {})


def _dead(program: Program, bodies: dict[Program, Program]) -> Program:
    def body(p: Program) -> Program:
        if p not in bodies:
            made = _dead(p, bodies)
            bodies[p] = bodies[made] = made
        return bodies[p]

    need = _Needs(program)
    for v in (*program.inputs, *program.results()):
        need.value(v)
    kept: list[Step] = []
    for step in reversed(program.steps):
        if any(v in need.values for v in step.results):
            prune, before = PRUNE.get(step.op), None
            step = map_bodies(step, body)
            while prune is not None and step is not before:  # a loop inside the body, with fewer results, reads fewer of its inputs
                before = step
                step = prune(step, [k for k, v in enumerate(step.results) if v in need.values])
                step = step if step is before else map_bodies(step, body)
            kept.append(step)
            need.step(step)
    written = {name for name, _ in program.state_out}
    state_in = tuple([s for s in program.state_in if s.value in need.values or s.name in written])
    for s in state_in:
        need.value(s.value)
    return program.with_(
        axes={a: e for a, e in program.axes.items() if a in need.axes},
        hints={a: h for a, h in program.hints.items() if a in need.axes},
        state_in=state_in,
        steps=tuple(reversed(kept)),
    )


class _Needs:
    """The values and axes found needed so far."""

    def __init__(self, program: Program):
        self.program = program
        self.values: set[Value] = set()
        self.axes: set[AxisId] = set()

    def value(self, v: Value) -> None:
        if v not in self.values:
            self.values.add(v)
            for a in v.type.axes:
                if a not in self.axes:
                    self.axis(a)

    def axis(self, axis: AxisId) -> None:
        todo = [axis]
        while todo:
            a = todo.pop()
            if a not in self.axes:
                self.axes.add(a)
                for leaf in expr.leaves(self.program.axes[a]):
                    if type(leaf) is Len:
                        todo.append(leaf.of)
                    elif type(leaf) is Run:
                        self.value(leaf.of)

    def step(self, step: Step) -> None:
        for v in step.results:
            self.value(v)
        for v in step.inputs:
            self.value(v)
        for a in step.attrs.values():
            for axis in attr_axes(a):
                if axis not in self.axes:
                    self.axis(axis)
            for v in runs(a):
                self.value(v)
            if type(a) is Program:
                for axis in a.axes:
                    if axis in self.program.axes:
                        self.axis(axis)


# ---- loops and choices: unused results, and what only they needed -----------------------------------------------------


def _used(body: Program, outputs: Iterable[int]) -> set[int]:
    """Returns the indices of a body's inputs on which some of its outputs depend."""
    need = _Needs(body)
    for k in outputs:
        need.value(body.outputs[k])
    for step in reversed(body.steps):
        if any(v in need.values for v in step.results):
            need.step(step)
    return {k for k, v in enumerate(body.inputs) if v in need.values}


def _closed(wanted: list[int], carries: int, used: Callable[[list[int]], set[int]]) -> tuple[list[int], list[int]]:
    """Returns the indices of a loop body's outputs and inputs that are needed: a carry that is read must be carried."""
    while True:
        inputs = used(wanted)
        more = [k for k in sorted(inputs) if k < carries and k not in wanted]
        if not more:
            return wanted, sorted({*inputs, *(k for k in wanted if k < carries)})
        wanted = sorted([*wanted, *more])


def _some(body: Program, inputs: list[int], outputs: list[int]) -> Program:
    return body.with_(inputs=tuple([body.inputs[k] for k in inputs]), outputs=tuple([body.outputs[k] for k in outputs]))


def _prune_scan(step: Step, wanted: list[int]) -> Step:
    body, carries, xs = (step.attrs[name] for name in ("body", "carries", "xs"))
    outputs, inputs = _closed(wanted, carries, lambda outputs: _used(body, outputs))
    if len(inputs) == len(step.inputs) and len(outputs) == len(step.results):
        return step
    counts = {"carries": sum(k < carries for k in inputs), "xs": sum(carries <= k < carries + xs for k in inputs)}
    return _with(step, inputs, outputs, {"body": _some(body, inputs, outputs), **counts})


def _prune_while(step: Step, wanted: list[int]) -> Step:
    cond, body, carries = (step.attrs[name] for name in ("cond", "body", "carries"))
    asked = _used(cond, [0])
    outputs, inputs = _closed(wanted, carries, lambda outputs: _used(body, outputs) | asked)
    if len(inputs) == len(step.inputs):
        return step
    return _with(step, inputs, outputs, {"cond": _some(cond, inputs, [0]), "body": _some(body, inputs, outputs), "carries": len(outputs)})


def _prune_cond(step: Step, wanted: list[int]) -> Step:
    branches = {name: step.attrs[name] for name in ("then", "else")}
    inputs = sorted(set().union(*[_used(b, wanted) for b in branches.values()]))
    if len(inputs) == len(step.inputs) - 1 and len(wanted) == len(step.results):
        return step
    return _with(step, [0, *(k + 1 for k in inputs)], wanted, {name: _some(b, inputs, wanted) for name, b in branches.items()})


def _with(step: Step, inputs: list[int], results: list[int], attrs: dict[str, Any]) -> Step:
    made = tuple([step.results[k] for k in results])
    return Step(made, step.op, tuple([step.inputs[k] for k in inputs]), {**step.attrs, **attrs}, step.origin)


PRUNE = {"scan": _prune_scan, "while": _prune_while, "cond": _prune_cond}

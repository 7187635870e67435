"""Drops what nobody needs: steps that reach no output, new state, token or needed length; state only read; axes of neither."""

from __future__ import annotations

from ngraph.op_graph import expr
from ngraph.op_graph.expr import Len, Run
from ngraph.program.program import AxisId, Program, Step, Value, attr_axes
from ngraph.rewrite.driver import map_bodies, runs
from ngraph.rewrite.runner import pass_


@pass_(gives=("live",))
def dead(program: Program) -> Program:
    """Keeps the steps that the results depend on. Inputs stay, needed or not: they are the caller's."""
    return _dead(program, {})


def _dead(program: Program, bodies: dict[Program, Program]) -> Program:
    def body(p: Program) -> Program:
        if p not in bodies:
            bodies[p] = _dead(p, bodies)
        return bodies[p]

    need = _Needs(program)
    for v in (*program.inputs, *program.results()):
        need.value(v)
    kept: list[Step] = []
    for step in reversed(program.steps):
        if any(v in need.values for v in step.results):
            step = map_bodies(step, body)
            kept.append(step)
            need.step(step)
    state_in = tuple([s for s in program.state_in if s.value in need.values or any(name == s.name for name, _ in program.state_out)])
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

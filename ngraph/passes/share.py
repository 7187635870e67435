"""Common-subexpression elimination: equal steps on equal inputs become one. Draws of one random stream are equal; effects never are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ngraph.op_graph import expr
from ngraph.op_graph.expr import Expr, Run
from ngraph.parts.runner import pass_
from ngraph.program.program import Program, Step, Value
from ngraph.rewrite.driver import finish, map_bodies, merge_origins, with_inputs
from ngraph.rewrite.pattern import commutes


@pass_(gives=("shared",), keeps=("folded", "live"))
def share(program: Program) -> Program:
    """Merges steps that have equal ops, inputs and attributes; the first one stays, with the origins of all."""
    return _share(program, {}, inner=False)


def _share(program: Program, bodies: dict[Program, Program], inner: bool) -> Program:
    def body(p: Program) -> Program:
        if p not in bodies:
            bodies[p] = _share(p, bodies, inner=True)
        return bodies[p]

    first: dict[Any, int] = {}
    replaced: dict[Value, Value] = {}
    place: dict[Value, int] = {}  # for commutative ops
    doubles: dict[int, list[Step]] = {}
    steps: list[Step] = []

    def at(v: Value) -> Value:
        return replaced.get(v, v)

    for v in program.sources():
        place[v] = -1 - len(place)
    for step in program.steps:
        step = map_bodies(step, body)
        if replaced:
            step = with_inputs(step, replaced)
        key = step_key(step, place, at)
        found = first.setdefault(key, len(steps)) if key is not None else len(steps)
        if found < len(steps):
            replaced.update(zip(step.results, steps[found].results, strict=True))
            doubles.setdefault(found, []).append(step)
            continue
        for v in step.results:
            place[v] = len(steps)
        steps.append(step)
    for k, others in doubles.items():
        s = steps[k]
        steps[k] = Step(s.results, s.op, s.inputs, s.attrs, merge_origins([s, *others]))
    return finish(program, steps, replaced, inner)


def step_key(step: Step, place: dict[Value, int], at: Callable[[Value], Value]) -> Any:
    """Returns a key that is equal for equal steps; None for a step that equals no other."""
    if any(v.type.dtype.kind == "token" for v in step.results):
        return None
    inputs = step.inputs
    attrs = step.attrs
    if len(inputs) == 2 and place[inputs[1]] < place[inputs[0]] and commutes(step.op, attrs) and step.op not in ("maximum", "minimum"):
        inputs = inputs[::-1]  # of zeros of different sign maximum may return either, so its inputs stay in order
    if not attrs:
        return step.op, inputs
    return step.op, inputs, tuple([(name, attr_key(attrs[name], at)) for name in sorted(attrs)])


def attr_key(a: Any, at: Callable[[Value], Value] = lambda v: v) -> Any:
    """Returns a hashable key that is equal for equal attributes: floats by their bits, sub-programs by structure."""
    kind = type(a)
    if kind is float:
        return ("float", a.hex())
    if kind is tuple:
        return tuple([attr_key(x, at) for x in a])
    if kind is Program:
        return program_key(a)
    if isinstance(a, Expr):
        return expr.substitute(a, lambda leaf: Run(at(leaf.of)) if type(leaf) is Run else leaf)
    return a


def program_key(program: Program) -> Any:
    """Returns a key that is equal for structurally equal sub-programs, whatever the names of their values."""
    number: dict[Value, Any] = {}

    def at(v: Value) -> Any:
        return number[v]

    for v in program.inputs:
        number[v] = len(number)
    steps = []
    for s in program.steps:
        steps.append((s.op, tuple([number[v] for v in s.inputs]), tuple([(k, attr_key(s.attrs[k], at)) for k in sorted(s.attrs)])))
        for v in s.results:
            number[v] = len(number)
    axes = tuple(sorted((str(k), attr_key(e, at)) for k, e in program.axes.items()))
    return tuple([v.type for v in program.inputs]), tuple(steps), tuple([number[v] for v in program.outputs]), axes

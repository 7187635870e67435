"""Applies rules in one forward traversal, program in, program out. Steps built by a rule are matched again at once, from a worklist.

A replaced value keeps its dtype and its set of axes (a `broadcast` is inserted where a rule's result lacks some), and new steps get
the origins of the steps that they replace. Unused steps are left to `passes.dead`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from ngraph.config import config
from ngraph.errors import ProgramError
from ngraph.op_graph import expr
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import Expr, ExprLike, Run
from ngraph.op_graph.op import Origin, TensorType
from ngraph.op_graph.opdef import REGISTRY
from ngraph.program.program import AxisId, Program, Step, Value, map_attr
from ngraph.rewrite.pattern import Bound, Candidate, Rule, Rules, Term, match, number
from ngraph.rewrite.trace import Firing, RewriteTrace, current

ORIGINS = 16  # origins of a step
DEPTH = 200  # rewrites of a rule's own result in sequence, beyond which rules count as circular


def merge_origins(steps: Iterable[Step]) -> tuple[Origin, ...]:
    """Returns the origins of some steps in order of appearance, at most 16."""
    found = dict.fromkeys([o for s in steps for o in s.origin])
    return tuple(found)[:ORIGINS]


class Built(Term):
    """A value in a rule: operators and `functions` on it build steps."""

    __slots__ = ("value", "builder")

    def __init__(self, value: Value, builder: Builder):
        self.value, self.builder = value, builder

    def apply(self, op: str, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        return self.builder.build(op, inputs, attrs)

    @property
    def type(self) -> TensorType:
        return self.value.type

    @property
    def axes(self) -> tuple[AxisId, ...]:
        return self.value.type.axes

    @property
    def dtype(self) -> DType:
        return self.value.type.dtype

    @property
    def maker(self) -> Step | None:
        """The step that computes it; None for inputs."""
        return self.builder.makers.get(self.value)

    @property
    def number(self) -> Any:
        """The number that a constant fills it with; else None."""
        return number(self.value, self.builder.makers)

    @property
    def uses(self) -> int:
        """The number of its uses in the program; 1 for values made by rules."""
        return self.builder.uses.get(self.value, 1)

    def length(self, axis: AxisId) -> int | None:
        """Returns the length of an axis of the program, None where it is unknown."""
        return self.builder.length(axis)

    def of(self, value: Value) -> Built:
        """Returns another value of the program, to build on."""
        return Built(value, self.builder)

    def filled(self, n: Any, dtype: DType | None = None) -> Built:
        """Returns a scalar constant, of this value's dtype."""
        return self.builder.constant(n, dtype or self.dtype)

    def __repr__(self) -> str:
        return f"<built {self.value!r}>"


class Builder:
    """A builder of steps for rules: the steps made so far, for one application, on one program."""

    def __init__(self, program: Program, makers: dict[Value, Step]):
        self.program, self.makers = program, makers
        self.axes: dict[AxisId, ExprLike] = program.axes
        self.hints: dict[AxisId, str] = program.hints
        self.made: list[Step] = []
        self.origin: tuple[Origin, ...] = ()
        self._lengths: dict[AxisId, int | None] = {}

    def length(self, axis: AxisId) -> int | None:
        if axis not in self._lengths:
            own = self.axes[axis]
            if not isinstance(own, int):
                try:
                    own = self.program.length(axis)
                except LookupError:
                    own = None  # type: ignore[assignment]  # None stands for an open length
            self._lengths[axis] = own  # type: ignore[assignment]  # None stands for an open length
        return self._lengths[axis]

    @cached_property
    def uses(self) -> dict[Value, int]:
        """The number of uses of each value of the program."""
        return self.program.uses()

    def build(self, op: str, inputs: Iterable[Any], attrs: dict[str, Any]) -> Built | tuple[Built, ...]:
        """Adds a step. Numbers among the inputs take the dtype of the first input that is none (and no bool, where one is not)."""
        inputs = tuple(inputs)
        terms = [i for i in inputs if isinstance(i, Built)]
        beside = next((t.dtype for t in terms if t.dtype.kind != "bool"), terms[0].dtype if terms else None)
        values = tuple([i.value if isinstance(i, Built) else self.constant(i, beside).value for i in inputs])
        types = REGISTRY[op].type(tuple([v.type for v in values]), **attrs)
        results = tuple([Value(t) for t in (types if type(types) is tuple else (types,))])
        self._add(Step(results, op, values, attrs, self.origin))
        built = tuple([Built(v, self) for v in results])
        return built[0] if len(built) == 1 else built

    def constant(self, n: Any, dtype: DType | None) -> Built:
        if isinstance(n, Term) or dtype is None:
            raise TypeError(f"{n!r} stands on the right side of a rule, which takes values and numbers")
        held = dtype.python(n)
        value = Value(TensorType((), dtype))
        self._add(Step((value,), "constant", (), {"value": held, "axes": (), "dtype": dtype}, self.origin))
        return Built(value, self)

    def _add(self, step: Step) -> None:
        self.made.append(step)
        for v in step.results:
            self.makers[v] = step

    def inline(self, body: Program, inputs: Iterable[Built]) -> tuple[Built, ...]:
        """Adds the steps of a sub-program here, on these inputs; returns its outputs."""
        new = dict(zip(body.inputs, [i.value for i in inputs], strict=True))

        def at(v: Value) -> Value:
            return new.get(v, v)

        for step in body.steps:
            results = tuple([Value(v.type, v.hint) for v in step.results])
            attrs = {k: map_attr(a, lambda axis: axis, at) for k, a in step.attrs.items()}
            self._add(Step(results, step.op, tuple([at(v) for v in step.inputs]), attrs, step.origin or self.origin))
            new.update(zip(step.results, results, strict=True))
        missing = {a: map_attr(length, lambda axis: axis, at) for a, length in body.axes.items() if a not in self.axes}
        if missing:
            self.axes = {**self.axes, **missing}
            self.hints = {**self.hints, **{a: body.hints[a] for a in missing if a in body.hints}}
        return tuple([Built(at(v), self) for v in body.outputs])


class Rewriting:
    """The state of rewriting one program with one table of rules."""

    def __init__(
        self, program: Program, candidates: Callable[..., tuple[Candidate, ...]], trace: RewriteTrace | None, bodies: dict[Program, Program]
    ):
        self.program, self.candidates, self.trace, self.bodies = program, candidates, trace, bodies
        self.makers: dict[Value, Step] = {}
        self.replaced: dict[Value, Value] = {}
        self.steps: list[Step] = []
        self.builder = Builder(program, self.makers)

    def run(self, inner: bool = False) -> Program:
        makers, replaced, steps, candidates = self.makers, self.replaced, self.steps, self.candidates
        for step in self.program.steps:
            step = map_bodies(step, self._body)
            if replaced:
                step = with_inputs(step, replaced)
            if candidates(step.op, tuple([m.op if (m := makers.get(v)) is not None else "" for v in step.inputs])):
                self._settle(step)
            else:
                steps.append(step)
                for v in step.results:
                    makers[v] = step
        if self.trace is not None:
            self.trace.steps += len(self.program.steps)
        done = self.program.with_(axes=self.builder.axes, hints=self.builder.hints)
        return finish(done, steps, replaced, inner)

    def _body(self, body: Program) -> Program:
        if body not in self.bodies:
            self.bodies[body] = Rewriting(body, self.candidates, self.trace, self.bodies).run(inner=True)
        return self.bodies[body]

    def _settle(self, first: Step) -> None:
        """Adds a step to the new program, rewritten by the rules."""
        work: list[Any] = [(first, 0, ())]  # steps with the rules that led to them; or pairs: the first value becomes the second
        while work:
            item = work.pop()
            if len(item) == 2:
                old, new = item
                self.replaced[old] = self.replaced.get(new, new)
                continue
            step, depth, names = item
            if self.replaced:
                step = with_inputs(step, self.replaced)
            fired = self._fire(step)
            if fired is None:
                self.steps.append(step)
                for v in step.results:
                    self.makers[v] = step
                continue
            rule, made, pairs = fired
            names = (*names[-7:], rule.name)
            if depth == DEPTH:
                raise ProgramError(
                    f"rules go in circles at {step!r}: {', '.join(names)}", fix="leave one of them out, or give it a condition"
                )
            work += pairs
            work += [(s, depth + 1, names) for s in reversed(made)]

    def _fire(self, step: Step) -> tuple[Rule, list[Step], list[tuple[Value, Value]]] | None:
        """Returns the first rule that applies, its steps, and the values that replace the step's results; None where none applies."""
        makers = self.makers
        for rule, node in self.candidates(step.op, tuple([m.op if (m := makers.get(v)) is not None else "" for v in step.inputs])):
            if self.trace is not None:
                self.trace.attempts += 1
            bound: Bound = {}
            used: list[Step] = []
            if not match(node, step, makers, bound, used):
                continue
            if rule.when is not None and not rule.when(*self._arguments(rule.asks, bound, step)):
                continue
            self.builder.made = []
            self.builder.origin = step.origin if len(used) == 1 else merge_origins(used)
            result = rule.result(*self._arguments(rule.takes, bound, step))
            if result is None:
                for s in self.builder.made:
                    for v in s.results:
                        del makers[v]
                continue
            pairs = self._stand_in(rule, step, result)
            made = self.builder.made
            if self.trace is not None:
                self.trace.firings.append(Firing(rule.name, step, tuple(made)))
            return rule, made, pairs
        return None

    def _arguments(self, names: tuple[str, ...], bound: Bound, step: Step) -> list[Any]:
        arguments: list[Any] = []
        for name in names:
            held = step if name == "step" else self.builder if name == "new" else bound[name]
            if type(held) is Value:
                held = Built(held, self.builder)
            elif type(held) is tuple and held and type(held[0]) is Value:
                held = tuple([Built(v, self.builder) for v in held])
            arguments.append(held)
        return arguments

    def _stand_in(self, rule: Rule, step: Step, result: Any) -> list[tuple[Value, Value]]:
        """Converts the result to the step's results: dtype, axes, identity. Returns the pairs of values to replace."""
        results = result if type(result) is tuple else (result,)
        made, pairs = self.builder.made, []
        for old, new in zip(step.results, results, strict=True):
            if not isinstance(new, Built):
                new = self.builder.constant(new, old.dtype)
            have, want = set(new.axes), set(old.axes)
            if new.dtype is not old.dtype or not have <= want:
                raise ProgramError(f"rule {rule.name!r} gives {new.type} in place of {old.type}", fix="give it a condition")
            if have != want:
                new = self.builder.build("broadcast", (new,), {"axes": old.axes})
            last = made[-1] if made else None
            if last is not None and last.results == (new.value,) and len(results) == 1:
                del self.makers[new.value]
                if new.axes == old.axes:  # else the record would list the axes in another order
                    made[-1] = Step((old,), last.op, last.inputs, last.attrs, last.origin)
                else:
                    new.value.hint = new.value.hint or old.hint
                    pairs.append((old, new.value))
            elif new.value is not old:
                pairs.append((old, new.value))
        return pairs


def rewrite(program: Program, rules: Rules) -> Program:
    """Returns `program` with `rules` applied wherever they match, sub-programs included; inexact ones only under `config(exact=False)`."""
    return Rewriting(program, rules.candidates(config.exact), current(), {}).run()


# ---- shared with other passes -------------------------------------------------------------------------------------------


def with_inputs(step: Step, replaced: Mapping[Value, Value]) -> Step:
    """Returns the step with inputs replaced; itself where none is."""
    inputs = step.inputs
    for v in inputs:
        if v in replaced:
            return Step(step.results, step.op, tuple([replaced.get(v, v) for v in inputs]), step.attrs, step.origin)
    return step


def map_bodies(step: Step, function: Callable[[Program], Program]) -> Step:
    """Returns the step with each sub-program among its attributes replaced; itself where there is none."""
    for a in step.attrs.values():
        if type(a) is Program:
            attrs = {k: function(a) if type(a) is Program else a for k, a in step.attrs.items()}
            return Step(step.results, step.op, step.inputs, attrs, step.origin)
    return step


def runs(a: Any) -> list[Value]:
    """Returns the values that an attribute, or a length, needs at run time."""
    if isinstance(a, Expr):
        return [leaf.of for leaf in expr.leaves(a) if type(leaf) is Run]
    if type(a) is tuple:
        return [v for x in a if type(x) is tuple or isinstance(x, Expr) for v in runs(x)]
    return []


def finish(program: Program, steps: list[Step], replaced: Mapping[Value, Value], inner: bool = False) -> Program:
    """Returns `program` with other steps and with values replaced. The caller's results keep their order of axes."""
    if not replaced:
        return program.with_(steps=tuple(steps))
    steps = list(steps)

    def at(v: Value) -> Value:
        return replaced.get(v, v)

    def leaving(v: Value) -> Value:
        new = at(v)
        if new.axes == v.axes or inner:
            return new
        if not origins:
            origins.update((r, s.origin) for s in program.steps for r in s.results)
        if v not in ordered:
            steps.append(Step((v,), "broadcast", (new,), {"axes": v.axes}, origins[v]))
            ordered.add(v)
        return v

    ordered: set[Value] = set()
    origins: dict[Value, tuple[Origin, ...]] = {}
    axes = {a: map_attr(e, lambda axis: axis, at) if any(v in replaced for v in runs(e)) else e for a, e in program.axes.items()}
    for k, s in enumerate(steps):
        if s.attrs and any(v in replaced for a in s.attrs.values() for v in runs(a)):
            attrs = {name: map_attr(a, lambda axis: axis, at) for name, a in s.attrs.items()}
            steps[k] = Step(s.results, s.op, s.inputs, attrs, s.origin)
    return program.with_(
        axes=axes,
        outputs=tuple([leaving(v) for v in program.outputs]),
        state_out=tuple([(name, leaving(v)) for name, v in program.state_out]),
        token_out=None if program.token_out is None else at(program.token_out),
        steps=tuple(steps),
    )

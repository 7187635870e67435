"""Program: a straight line of core ops over named axes, with state only at its two ends.

    Program = axes · hints · inputs · state_in · steps · outputs · state_out · writes · token_in, token_out
    Step    = results · op · inputs · attrs · origin
    Value   = type, hint                    identity is meaning; numbers are given when printed
    AxisId  = a string: H, H' (a dual), H.2 (another length)

Programs are immutable: a pass returns a new one. `docs/spec.md` section 2 states the rules, `verify` checks them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ngraph.errors import UnsupportedError
from ngraph.op_graph import expr
from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.axes import Axis
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import Expr, ExprLike, Len
from ngraph.op_graph.html import some, table
from ngraph.op_graph.op import Body, Origin, TensorType

__all__ = ["ArrayRef", "AxisId", "Origin", "Program", "State", "Step", "TensorType", "Value", "attr_axes", "map_attr", "run_values"]


class AxisId(str):
    """The identity of an axis below the op-graph; its string form is the id itself."""

    __slots__ = ()


class Value:
    """A result of a step, or an input. `hint` is the user's name for it, "" where there is none."""

    __slots__ = ("type", "hint")

    def __init__(self, type: TensorType, hint: str = ""):
        self.type, self.hint = type, hint

    @property
    def axes(self) -> tuple[AxisId, ...]:
        return self.type.axes

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    def __repr__(self) -> str:
        return f"<Value{' ' + self.hint if self.hint else ''}: {self.type}>"


class Step:
    """One core op applied to values."""

    __slots__ = ("results", "op", "inputs", "attrs", "origin")

    def __init__(
        self,
        results: tuple[Value, ...],
        op: str,
        inputs: tuple[Value, ...],
        attrs: dict[str, Any],
        origin: tuple[Origin, ...] = (),
    ):
        self.results, self.op, self.inputs, self.attrs, self.origin = results, op, inputs, attrs, origin

    @property
    def result(self) -> Value:
        """The first result; most steps have just one."""
        return self.results[0]

    @property
    def type(self) -> TensorType:
        return self.results[0].type

    def __repr__(self) -> str:
        return f"<Step {', '.join(map(repr, self.results))} = {self.op}({', '.join(map(repr, self.inputs))})>"


@dataclass(frozen=True)
class State:
    """A named piece of state and its value when the program starts."""

    name: str
    value: Value


@dataclass(eq=False, repr=False)
class Program:
    """See the module. `state_out` pairs a state's name with its final value; states not in it keep theirs.

    `writes` has (k, n) where output n replaces input k: once all reads of the input are done, its memory holds the output's value.
    """

    axes: dict[AxisId, ExprLike] = field(default_factory=dict)
    hints: dict[AxisId, str] = field(default_factory=dict)
    inputs: tuple[Value, ...] = ()
    state_in: tuple[State, ...] = ()
    steps: tuple[Step, ...] = ()
    outputs: tuple[Value, ...] = ()
    state_out: tuple[tuple[str, Value], ...] = ()
    writes: tuple[tuple[int, int], ...] = ()
    token_in: Value | None = None
    token_out: Value | None = None
    name: str = "program"

    def __repr__(self) -> str:
        given = some([f"{v.hint + ': ' if v.hint else ''}{v.type!r}" for v in self.inputs])
        gives = some([*(v.type for v in self.outputs), *(f"{name} ←" for name, _ in self.state_out)])
        return f"<Program {self.name}({given}) -> {gives or 'nothing'}: {len(self.steps)} step{'s' * (len(self.steps) != 1)}>"

    def _repr_html_(self) -> str:
        names = {v: f"%{k} {v.hint}".rstrip() for k, v in enumerate([*self.sources(), *(v for s in self.steps for v in s.results)])}
        rows = [(names[v], repr(v.type), "", "") for v in self.sources()]
        for s in self.steps:
            given, types = ", ".join(names[v] for v in s.results), ", ".join(repr(v.type) for v in s.results)
            rows.append((given, types, s.op, ", ".join(names.get(v, "?") for v in s.inputs)))
        return table(repr(self)[1:-1], rows, ("value", "type", "op", "of"))

    def with_(self, **changes: Any) -> Program:
        """Returns a copy in which these fields differ."""
        return replace(self, **changes)

    def sources(self) -> Iterable[Value]:
        """Yields the values that no step computes: inputs, state, token."""
        yield from self.inputs
        for s in self.state_in:
            yield s.value
        if self.token_in is not None:
            yield self.token_in

    def results(self) -> Iterable[Value]:
        """Yields the values that leave the program: outputs, new state, token, and those in lengths."""
        yield from self.outputs
        for _, v in self.state_out:
            yield v
        if self.token_out is not None:
            yield self.token_out

    def uses(self) -> dict[Value, int]:
        """Returns the number of uses of each value, by steps and as a result; unused values are not in it."""
        found: dict[Value, int] = {}
        for v in (*self.results(), *[v for s in self.steps for v in s.inputs]):
            found[v] = found.get(v, 0) + 1
        return found

    def symbols(self) -> list[AxisId]:
        """Returns the axes whose length only a call determines, in order."""
        return [a for a, length in self.axes.items() if isinstance(length, Len) and length.of == a]

    def no_length(self, axis: AxisId) -> UnsupportedError:
        return UnsupportedError(
            f"{self.name}: the length of axis {self.hints.get(axis, axis)} is not known, and no argument has it",
            fix="give the axis its length, or pass a tensor that has it",
        )

    def check_lengths(self) -> None:
        """Raises UnsupportedError where a step needs a length that no argument has."""
        given = {a for v in self.sources() for a in v.axes}
        open_ = [a for a in self.symbols() if a not in given and not any(self.axes[g] == Len(a) for g in given)]
        if not open_:
            return
        todo, seen = list(self.steps), set[AxisId]()
        needed: list[AxisId] = []
        for s in todo:
            needed += [a for v in s.results for a in v.axes]
            needed += [a for x in s.attrs.values() for a in attr_axes(x)]
            todo += [step for x in s.attrs.values() if type(x) is Program for step in x.steps]
        while needed:
            a = needed.pop()
            if a in open_:
                raise self.no_length(a)
            if a not in seen and a in self.axes:
                seen.add(a)
                needed += list(attr_axes(self.axes[a]))

    def settled(self, e: ExprLike) -> ExprLike:
        """Returns an expression whose lengths are those of symbols alone."""

        def leaf(e: expr.Leaf) -> ExprLike:
            own = self.axes[e.of] if isinstance(e, Len) else e
            return e if own == e else self.settled(own)

        return expr.substitute(e, leaf)

    def length(self, axis: AxisId, lengths: Mapping[AxisId, int] = {}, run: Callable[[Value], int] | None = None) -> int:
        """Returns the number of elements of an axis, given the lengths of the symbols and the run-time values."""

        def leaf(e: expr.Leaf) -> int:
            if isinstance(e, Len):
                if e.of in lengths:
                    return lengths[e.of]
                own = self.axes[e.of]
                if own == e:
                    raise LookupError(f"the length of axis {e.of} is not known")
                return expr.evaluate(own, leaf)
            if isinstance(e, expr.Run) and run is not None:
                return run(e.of)
            raise LookupError(f"{e!r} has no value here")

        return int(leaf(Len(axis)))


def map_attr(a: Any, axis: Callable[[Any], Any], value: Callable[[Any], Any], body: Callable[[Any], Any] = lambda p: p) -> Any:
    """Returns an attribute with its axes (op-graph or id), values of `Run` and sub-programs replaced, also inside tuples and Exprs."""
    kind = type(a)
    if kind in (bool, int, float, str, DType, ArrayRef) or a is None:
        return a
    if isinstance(a, tuple):  # an op-graph's Axes, too
        return tuple([map_attr(x, axis, value, body) for x in a])
    if isinstance(a, Expr):
        return expr.substitute(a, lambda e: type(e)(value(e.of) if isinstance(e, expr.Run) else axis(e.of)))
    if kind is Program or kind is Body:
        return body(a)
    return axis(a)


def attr_axes(a: Any) -> Iterable[Any]:
    """Yields every axis in an attribute (op-graph or id), with repetition, but not those inside sub-programs."""
    if type(a) is AxisId or type(a) is Axis:
        yield a
    elif isinstance(a, tuple):  # an op-graph's Axes, too
        for x in a:
            yield from attr_axes(x)
    elif isinstance(a, Expr):
        for e in expr.leaves(a):
            if not isinstance(e, expr.Run):
                yield e.of


def run_values(e: ExprLike) -> Iterable[Value]:
    """Yields the values that an expression needs at run time."""
    return (leaf.of for leaf in expr.leaves(e) if isinstance(leaf, expr.Run))

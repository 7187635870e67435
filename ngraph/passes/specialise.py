"""Substitutes known lengths for symbols in axes, attributes and sub-programs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ngraph.errors import AxisError
from ngraph.op_graph import expr
from ngraph.op_graph.expr import Expr, Len
from ngraph.parts.runner import pass_
from ngraph.program.program import AxisId, Program, Step


@pass_(needs=("lengths",), gives=("special",), keeps=("live",))
def specialise(program: Program, lengths: Mapping[str, int]) -> Program:
    """Returns `program` for these lengths, given by axis id or by the user's name; lengths that depend on them are computed.

    Raises AxisError for an axis that the program lacks or that has another length, and where lengths contradict each other.
    """
    if not lengths:
        return program
    known: dict[AxisId, int] = {}
    for name, length in lengths.items():
        for axis in _named(program, name):
            own = program.axes[axis]
            if isinstance(length, bool) or not isinstance(length, int) or length < 0:
                raise AxisError(f"axis {name} cannot have length {length!r}", fix="give a whole number, 0 or more")
            if (isinstance(own, int) and own != length) or known.get(axis, length) != length:
                raise AxisError(f"axis {name} has length {known.get(axis, own)}, so it cannot be specialised to {length}")
            if isinstance(own, int) or own == Len(axis):
                known[axis] = length
            else:
                raise AxisError(
                    f"the length of axis {name} follows from others: {own!r}", fix=f"give those: {', '.join(map(repr, expr.leaves(own)))}"
                )
    return _Specialising(known).program(program)


def _named(program: Program, name: str) -> list[AxisId]:
    """Returns the axis of this id; else the symbols, or axes, of this user's name, in full or by its last component."""
    if name in program.axes:
        return [AxisId(name)]
    called = [a for a in program.axes if program.hints.get(a) == name]
    called = called or [a for a in program.axes if program.hints.get(a, "").rsplit(".", 1)[-1] == name]
    if not called:
        there = ", ".join(f"{a} ({program.hints[a]})" if program.hints.get(a, a) != a else a for a in program.symbols())
        raise AxisError(f"the program has no axis {name}", fix=f"its axes of unknown length are {there or 'none'}")
    return [a for a in called if program.axes[a] == Len(a)] or called


class _Specialising:
    """The substitution of one set of lengths in a program and its sub-programs."""

    def __init__(self, known: dict[AxisId, int]):
        self.known = known
        self.bodies: dict[Program, Program] = {}

    def program(self, program: Program) -> Program:
        for axis in program.axes:
            with suppress(LookupError):
                self.known[axis] = program.length(axis, self.known)
        axes = {a: self.known[a] if a in self.known else self._attr(e) for a, e in program.axes.items()}
        return program.with_(axes=axes, steps=tuple([self._step(s) for s in program.steps]))

    def _step(self, step: Step) -> Step:
        attrs = {k: self._attr(a) for k, a in step.attrs.items()}
        if all(attrs[k] is a for k, a in step.attrs.items()):
            return step
        return Step(step.results, step.op, step.inputs, attrs, step.origin)

    def _attr(self, a: Any) -> Any:
        if type(a) is tuple:
            new = tuple([self._attr(x) for x in a])
            return a if all(x is y for x, y in zip(a, new, strict=True)) else new
        if isinstance(a, Expr):
            return expr.substitute(a, lambda leaf: self.known.get(leaf.of, leaf) if type(leaf) is Len else leaf)
        if type(a) is Program:
            if a not in self.bodies:
                self.bodies[a] = self.program(a)
            return self.bodies[a]
        return a

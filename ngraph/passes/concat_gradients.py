"""Concatenation of partial gradients: a sum of disjoint slices padded with zeros, the gradient of a sliced tensor, becomes one `concat`.

Each term is a value padded with zeros. Adding such arrays takes one pass over the whole per term; concatenated, each term is computed
and written once, at its place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngraph.op_graph import expr
from ngraph.op_graph.expr import ExprLike, Idx, Len
from ngraph.op_graph.op import Origin, TensorType
from ngraph.parts.runner import pass_
from ngraph.passes.dead import dead
from ngraph.passes.facts import Makers, Uses, makers, uses
from ngraph.program.program import AxisId, Program, Step, Value
from ngraph.rewrite.driver import map_bodies, merge_origins

MAX_CHECKED_PLACES = 4096  # indices along an axis that are evaluated one by one


class Piece(NamedTuple):
    """A value padded with zeros: nonzero from `start` to `stop` along one axis only."""

    step: Step
    axis: AxisId
    start: int
    stop: int


@pass_(needs=("makers", "uses"), gives=("joined",))
def concat_gradients(program: Program, makers: Makers, uses: Uses) -> Program:
    """Returns `program` with its sums of pieces concatenated, in bodies, too."""
    made = _joined(_Sums(program, makers, uses), {})
    return program if made is program else dead(made)


def _joined(own: _Sums, bodies: dict[Program, Program]) -> Program:
    def body(p: Program) -> Program:
        if p not in bodies:
            bodies[p] = _joined(_Sums(p, makers(p), uses(p)), bodies)
        return bodies[p]

    program = own.program
    steps: list[Step] = []
    for step in program.steps:
        step = map_bodies(step, body)
        steps += own.join(step) or [step]
    changed = len(steps) != len(program.steps) or any(a is not b for a, b in zip(steps, program.steps, strict=True))
    return program.with_(axes=own.axes, hints=own.hints, steps=tuple(steps)) if changed else program


class _Sums:
    """The sums of a program, each with all of its terms."""

    def __init__(self, program: Program, maker: Makers, uses: Uses):
        self.program, self.maker, self.uses = program, maker, uses
        self.axes, self.hints = dict(program.axes), dict(program.hints)
        self.inside: set[Step] = set()  # sums that are terms of a larger one
        for s in program.steps:
            if s.op == "add":
                self.inside.update([m for v in s.inputs if (m := self.maker.get(v)) is not None and self.nested(m, s)])

    def nested(self, term: Step, of: Step) -> bool:
        """Whether a term is itself a sum without other uses."""
        return term.op == "add" and self.uses[term.result] == 1 and set(term.result.axes) == set(of.result.axes)

    def join(self, step: Step) -> list[Step] | None:
        """Returns the steps that replace a sum of disjoint pieces."""
        if step.op != "add" or step in self.inside:
            return None
        terms, todo, chain = [], [step], []
        while todo:
            s = todo.pop()
            chain.append(s)
            for v in reversed(s.inputs):
                m = self.maker.get(v)
                if m is not None and m in self.inside and self.nested(m, s):
                    todo.append(m)
                else:
                    terms.append(v)
        if len(terms) > MAX_CHECKED_PLACES:
            return None
        pieces, rest = self.side_by_side(terms, step)
        if len(pieces) < 2:
            return None
        into: list[Step] = []
        total = self.whole(pieces, step, into)
        for v in rest:
            total = _made(into, "add", (total, v), {}, TensorType(step.result.axes, step.result.dtype), step.origin)
        last = into.pop()
        into.append(Step(step.results, last.op, last.inputs, last.attrs, merge_origins([step, *chain])))
        return into

    def side_by_side(self, terms: list[Value], step: Step) -> tuple[list[Piece], list[Value]]:
        """Returns disjoint pieces along one axis, and the other terms."""
        found = {v: p for v in dict.fromkeys(terms) if (p := self.piece(v, step.result)) is not None and terms.count(v) == 1}
        axes = [p.axis for p in found.values()]
        if not axes:
            return [], terms
        axis = max(dict.fromkeys(axes), key=axes.count)
        taken: list[Piece] = []
        end = 0
        for p in sorted(found.values(), key=lambda p: p.start):
            if p.axis == axis and p.start >= end:
                taken.append(p)
                end = p.stop
        own = {p.step.result for p in taken}
        return taken, [v for v in terms if v not in own]

    def piece(self, v: Value, whole: Value) -> Piece | None:
        """Returns the value as a piece, if it has all axes of the sum and is zero outside of one interval of one of them."""
        s = self.maker.get(v)
        if s is None or s.op != "reindex" or s.attrs["pad_value"] != 0 or set(v.axes) != set(whole.axes):
            return None
        axis = None
        for a, e in s.attrs["index"]:
            if not (type(e) is Idx and self.axes[e.of] == self.axes[a]):  # such an index may be outside
                moves = {leaf.of for leaf in expr.leaves(e) if type(leaf) is Idx}
                if len(moves) != 1 or (axis is not None and moves != {axis}):
                    return None
                (axis,) = moves
        for e in s.attrs["predicate"]:
            moves = {leaf.of for leaf in expr.leaves(e) if type(leaf) is Idx}
            if len(moves) != 1 or (axis is not None and moves != {axis}):
                return None
            (axis,) = moves
        length = self.axes.get(axis) if axis is not None else None
        if axis is None or not isinstance(length, int) or not 1 < length <= MAX_CHECKED_PLACES:
            return None
        holds = self.holds(s, axis, length)
        if holds is None or not holds.any() or holds.all():
            return None
        (at,) = np.nonzero(holds)
        return Piece(s, axis, int(at[0]), int(at[-1]) + 1) if at[-1] - at[0] + 1 == len(at) else None

    def holds(self, s: Step, axis: AxisId, length: int) -> np.ndarray | None:
        """Returns a mask of the indices along an axis that a reindex reads; None where that is unknown."""
        at, ok = np.arange(length), np.ones(length, bool)

        def leaf(x: expr.Leaf) -> np.ndarray | int:
            n = self.axes.get(x.of) if type(x) is Len else None
            if type(x) is Idx and x.of == axis:
                return at
            if isinstance(n, int):
                return n
            raise LookupError(x)

        try:
            for a, e in s.attrs["index"]:
                n = self.axes[a]
                if not (type(e) is Idx and self.axes[e.of] == n):
                    if not isinstance(n, int):
                        return None
                    place = expr.evaluate(e, leaf)
                    ok &= (place >= 0) & (place < n)
            for e in s.attrs["predicate"]:
                ok &= expr.evaluate(e, leaf) >= 0
        except LookupError:
            return None
        return ok

    def whole(self, pieces: list[Piece], step: Step, into: list[Step]) -> Value:
        """Returns the pieces concatenated along their axis, with zeros between them."""
        axis, dtype, origin = pieces[0].axis, step.result.dtype, step.origin
        length = self.axes[axis]
        assert isinstance(length, int)
        order = step.result.axes
        zero = _made(into, "constant", (), {"value": _zero(dtype), "axes": (), "dtype": dtype}, TensorType((), dtype), origin)
        parts: list[tuple[AxisId, Value]] = []

        def gap(n: int) -> None:
            if n:
                own = self.part(axis, n)
                axes = tuple([own if a == axis else a for a in order])
                parts.append((own, _made(into, "broadcast", (zero,), {"axes": axes}, TensorType(axes, dtype), origin)))

        end = 0
        for p in pieces:
            gap(p.start - end)
            end = p.stop
            own = self.part(axis, p.stop - p.start)
            axes = tuple([own if a == axis else a for a in p.step.result.axes])
            at: ExprLike = p.start if p.stop - p.start == 1 else Idx(own) + p.start

            def moved(e: ExprLike, at: ExprLike = at) -> ExprLike:
                return expr.substitute(e, lambda x: at if type(x) is Idx and x.of == axis else x)

            index = tuple([(a, moved(e)) for a, e in p.step.attrs["index"]])
            attrs = {"axes": axes, "index": index, "predicate": (), "pad_value": p.step.attrs["pad_value"]}
            (v,) = p.step.inputs
            if dtype.is_float:  # the result of -0 + 0
                v = _made(into, "add", (v, zero), {}, v.type, p.step.origin)
            parts.append((own, _made(into, "reindex", (v,), attrs, TensorType(axes, dtype), p.step.origin)))
        gap(length - end)
        attrs = {"parts": tuple([own for own, _ in parts]), "axis": axis}
        return _made(into, "concat", tuple([v for _, v in parts]), attrs, TensorType(order, dtype), origin)

    def part(self, axis: AxisId, length: int) -> AxisId:
        """Returns a new axis for a piece."""
        k = 1
        while (name := AxisId(f"{axis}_part{k}")) in self.axes:
            k += 1
        self.axes[name], self.hints[name] = length, self.hints.get(axis, str(axis))
        return name


def _zero(dtype: object) -> float | int | bool:
    return 0.0 if getattr(dtype, "is_float", False) else False if getattr(dtype, "kind", "") == "bool" else 0


def _made(
    into: list[Step], op: str, inputs: tuple[Value, ...], attrs: dict[str, object], type_: TensorType, origin: tuple[Origin, ...]
) -> Value:
    v = Value(type_, "")
    into.append(Step((v,), op, inputs, attrs, origin))
    return v

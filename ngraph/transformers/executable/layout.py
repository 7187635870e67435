"""Memory layout of a plan's buffers for all lengths of calls: sizes and offsets are numbers, or expressions over those lengths."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ngraph.op_graph import expr
from ngraph.op_graph.expr import Bin, ExprLike, Leaf, Len, maximum, minimum
from ngraph.parts.storage import lifetimes
from ngraph.plan.kernels import Buffer, OpaqueOp, room_of
from ngraph.program.program import AxisId
from ngraph.runtime.host.bytecode import INTEGERS
from ngraph.targets.tuning import ASSUMED_LENGTH
from ngraph.tensors.index import Load, bounds, loads
from ngraph.transformers.executable.code import Control, KernelStep, LoadedPlan, Step

ALIGN = 64  # bytes: a line of the cache
PLACED = ("arena", "run", "temp", "once")  # kinds of storage that have an offset
MAX_SLOT_RATIO = 4.0  # between the sizes of buffers that share a slot: at lengths far from the plan's one may waste the other's memory
_numbers = itertools.count()


class Computed(Leaf):
    """A number with a name of its own, so that expressions over it stay small: `value` is what it stands for."""

    __slots__ = ("value",)

    def __init__(self, value: ExprLike):
        super().__init__(next(_numbers))
        self.value = value


@dataclass
class _Slot:
    """Memory of the arena that buffers have one after another; the last of them lives to step `end`."""

    buffers: list[Buffer]
    size: ExprLike
    end: int


class Inner(NamedTuple):
    """A loop or branch in its surroundings' arena: where its bodies, by name, and its own memory lie, how often it runs.

    Memory is for the largest lengths; `trips` and the lengths of bodies may be counted by steps before it.
    """

    bodies: dict[str, tuple[Any, ExprLike]]  # a `Layout`, and what is made of it for given lengths
    spare: dict[int, ExprLike]  # the second place of a carry
    flag: ExprLike
    trips: ExprLike
    end: ExprLike

    @staticmethod
    def of(outer: Layout, step: OpaqueOp, at: ExprLike, length: Callable[[AxisId], ExprLike]) -> Inner:
        """Raises LookupError where lengths are not known."""
        found: dict[str, tuple[Any, ExprLike]] = {}
        for name, plan in step.bodies.items():
            known = {a: length(a) for a, n in plan.axes.items() if n == Len(a) and a in outer.plan.axes}
            made = Layout(outer.code.bodies[id(plan)], known, outer.symbols, outer.names)
            if any(real(b) and made.sizes[b] is None for b in (*plan.inputs, *plan.outputs)):
                raise LookupError(f"the body of a {step.op} has values of unknown size")
            if made.counted and not made.runs_counted():
                raise LookupError(f"the body of a {step.op} needs memory of unknown size")
            at = outer.named(aligned_up(at))
            found[name] = made, at
            at = at + made.apart + made.lasting
        spare: dict[int, ExprLike] = {}
        trips = length(step.attrs["axis"]) if step.op == "scan" else 0
        for k in range(step.attrs.get("carries", 0)):
            body, _ = found["body"]
            at = outer.named(aligned_up(at))
            spare[k] = at
            at = at + (body.sizes[body.plan.inputs[k]] or 0)
        at = outer.named(at)
        return Inner(found, spare, at, trips, at + 1)


class Layout:
    """Sizes and offsets in bytes. `lengths` of a plan's open axes are numbers, or expressions over `symbols`, which calls bring."""

    def __init__(self, code: LoadedPlan, lengths: Mapping[AxisId, ExprLike], symbols: frozenset[AxisId], names: dict[ExprLike, Computed]):
        self.code, self.plan, self.lengths, self.symbols, self.names = code, code.plan, dict(lengths), symbols, names
        self.counted = {a: n for a, n in self.lengths.items() if not self.early(n)}  # by steps of its surroundings
        self.arena: ExprLike = self.plan.arena
        self.lasting: ExprLike = self.plan.kept
        self.offsets: dict[Buffer, ExprLike] = {}
        self.guesses: dict[Computed, int] = {}
        self.sizes: dict[Buffer, ExprLike | None] = {b: self._size(b) for b in self._buffers()}
        self._place()
        self.total: ExprLike = self.arena
        self.base: ExprLike = self.arena  # where bodies lie without borders that have to last
        self.inner: dict[OpaqueOp, Inner] = {}
        steps = [s.step for s in code.every if type(s) is Control]
        for step in sorted(steps, key=lambda step: not self._is_bordered(step)):
            self._inner(step)

    @staticmethod
    def of(code: LoadedPlan, symbols: frozenset[AxisId]) -> Layout:
        """That of a whole program, made once; these are the axes whose lengths calls bring."""
        if code.layout is None:
            opened = frozenset([a for a in symbols if code.plan.axes.get(a) == Len(a)])
            code.layout = Layout(code, {a: Len(a) for a in opened}, opened, {})
        made: Layout = code.layout
        return made

    def named(self, e: ExprLike) -> ExprLike:
        """A number, or the name of an expression."""
        if not isinstance(e, Bin):
            return e
        return self.names[e] if e in self.names else self.names.setdefault(e, Computed(e))

    # ---- lengths

    def over(self, e: ExprLike) -> ExprLike:
        """An expression over lengths as one over what calls bring, and what is loaded."""

        def leaf(x: Leaf) -> ExprLike:
            if type(x) is not Len:
                return x
            if x.of in self.lengths:
                return self.lengths[x.of]
            own = self.plan.axes[x.of]
            return own if isinstance(own, int) or own == x else self.over(own)

        return e if isinstance(e, int) else expr.substitute(e, leaf)

    def length(self, axis: AxisId) -> ExprLike:
        """The length of an axis. Raises LookupError where it is known only when steps have run."""
        e = self.over(Len(axis))
        if not self.early(e):
            raise LookupError(f"the length of {axis} has no value here")
        return e

    def early(self, e: ExprLike) -> bool:
        """Whether a number is known before any step runs."""
        return all(map(self._known, expr.leaves(e)))

    def _known(self, x: Leaf) -> bool:
        return type(x) is Computed or type(x) is Len and x.of in self.symbols

    def computable(self, e: ExprLike) -> bool:
        """Whether a table can compute a number: before any step runs, or then from what steps have counted."""
        return all(self._known(x) or type(x) is Load and x.of.dtype.name in INTEGERS for x in expr.leaves(e))

    def runs_counted(self) -> bool:
        """Whether a table can run the steps for lengths computed then: no size is unbounded, no border is filled ahead."""
        kernels = [s for s in self.code.every if type(s) is KernelStep]
        sized = all(self.sizes[b] is not None for s in kernels for b in s.code.buffers) and all(map(self.computable, self.counted.values()))
        inside = all(s.step in self.inner for s in self.code.every if type(s) is Control)
        return sized and inside and not self.code.bordered and all(self.scratch(s) is not None for s in kernels)

    def scratch(self, s: KernelStep) -> ExprLike | None:
        """Returns the scratch that a kernel never exceeds, if there is such a limit and a table can compute all its lengths."""
        exprs = [self.over(e) for e in (s.code.scratch, s.code.work_items, *map(Len, s.code.lengths))]
        return self.most(exprs[0]) if all(map(self.computable, exprs)) else None

    def most(self, e: ExprLike) -> ExprLike | None:
        """Returns an upper bound of an expression over lengths that is known before any step runs; None where there is none."""
        if self.early(e):
            return e
        _, top = bounds(expr.substitute(e, lambda x: maximum(x, 0)), lambda _: None)  # no length is negative
        return int(top) if top < math.inf else self._top(e)

    def _top(self, e: ExprLike) -> ExprLike | None:
        if not isinstance(e, Bin):
            return e if self.early(e) else None
        a, b = self._top(e.a), self._top(e.b)
        if e.op == "min":
            return b if a is None else a if b is None else minimum(a, b)
        if e.op in ("%", "//") and isinstance(e.b, int) and e.b > 0:
            return e.b - 1 if e.op == "%" else None if a is None else a // e.b
        if e.op == "-":
            return None if a is None else a - e.b if isinstance(e.b, int) else a
        if a is None or b is None or e.op not in ("+", "*", "max"):
            return None
        return a + b if e.op == "+" else a * b if e.op == "*" else maximum(a, b)

    def varies(self, s: Step) -> bool:
        """Whether a step does something else for other lengths of calls."""
        if not self.symbols:
            return False
        if type(s) is not KernelStep:
            return True
        exprs = (s.code.work_items, s.code.scratch, *map(Len, s.code.lengths))
        return not all(isinstance(self.over(e), int) for e in exprs)

    # ---- memory

    def _buffers(self) -> list[Buffer]:
        """All buffers, those between the parts of a routine too."""
        found = dict.fromkeys(self.plan.buffers)
        for s in self.code.every:
            if type(s) is KernelStep:
                found.update(dict.fromkeys(s.code.buffers))
        return list(found)

    def _size(self, b: Buffer) -> ExprLike | None:
        """Bytes; None where nothing bounds them before steps run."""
        if b.dtype.np is None:
            return None
        if b.bytes is not None:
            return self.named(b.bytes)
        found = {a: self.most(self.over(Len(a))) for a, _, _ in b.dims}
        lengths = {a: n for a, n in found.items() if n is not None}
        return self.named(_bytes(b, lengths.__getitem__)) if len(lengths) == len(found) else None

    def content(self, b: Buffer) -> ExprLike:
        """Returns the bytes that the elements of a buffer take: as many as its size, or fewer where steps count its lengths."""
        size = _bytes(b, lambda a: self.over(Len(a)))
        return self.named(size) if self.early(size) else size

    def _place(self) -> None:
        """Gives buffers their offsets. Those that the plan could not place lie behind the others, in slots that some share."""
        self.offsets.update({b: b.offset for b in self.sizes if b.offset is not None})
        others = {b: n for b, n in self.sizes.items() if n is not None and b.storage in PLACED and b.offset is None and b.shares is None}
        lives = self._lifetimes() if others else {}
        slots: list[_Slot] = []
        for b in sorted(others, key=lambda b: lives.get(b, (0, 0))):
            size = others[b]
            if b.storage == "once":
                self.offsets[b] = self.lasting = self.named(aligned_up(self.lasting))
                self.lasting = self.named(self.lasting + size)
            else:
                self._slot(slots, lives.get(b), self.named(aligned_up(size))).buffers.append(b)
        for slot in slots:
            self.offsets.update(dict.fromkeys(slot.buffers, self.arena))
            self.arena = self.named(self.arena + slot.size)

    def _slot(self, slots: list[_Slot], life: tuple[int, int] | None, size: ExprLike) -> _Slot:
        """Returns the slot for a buffer that lives for these steps: of those that are free the one nearest in size, or a new one."""
        start, end = life or (-1, len(self.code.every))
        guess = self.guess(size)
        free = [s for s in slots if s.end < start and 1 / MAX_SLOT_RATIO <= guess / max(self.guess(s.size), 1) <= MAX_SLOT_RATIO]
        if not free:
            slots.append(_Slot([], size, end))
            return slots[-1]
        slot = min(free, key=lambda s: (s.size != size, abs(self.guess(s.size) - guess)))
        slot.size, slot.end = size if slot.size == size else self.named(maximum(slot.size, size)), end
        return slot

    def guess(self, e: ExprLike) -> int:
        """A number over lengths, where each length that calls bring is the one that the plan was made for."""
        if isinstance(e, Computed):
            if e not in self.guesses:
                self.guesses[e] = self.guess(e.value)
            return self.guesses[e]
        return e if isinstance(e, int) else int(expr.evaluate(e, self._guess))

    def _guess(self, leaf: Leaf) -> int:
        return self.guess(leaf) if type(leaf) is Computed else self.plan.guess(leaf.of) if type(leaf) is Len else ASSUMED_LENGTH

    def _lifetimes(self) -> dict[Buffer, tuple[int, int]]:
        """The first and the last step that uses each buffer. Those that outlive the steps, or have borders, are not in it."""
        plan, steps = self.plan, self.code.every
        kept = {root(b) for b in (*plan.outputs, *[b for _, *pair in plan.state for b in pair], *loads(*plan.axes.values()))}
        kept.update([root(b) for s in self.code.start for b in s.step.targets])
        found = lifetimes([root(b) for b in used(s)] for s in steps)
        return {b: life for b, life in found.items() if b not in kept}

    def _is_bordered(self, step: OpaqueOp) -> bool:
        """Whether the bodies of a loop or branch have borders, which are filled once and have to last."""
        return any(self.code.bodies[id(plan)].bordered for plan in step.bodies.values())

    def _inner(self, step: OpaqueOp) -> None:
        """Puts the bodies of a loop or branch behind the arena, if a table can compute all lengths.

        Those with borders come first, and have memory of their own; behind it the others lie at the same place.
        """
        try:
            inner = Inner.of(self, step, self.base, lambda a: self.over(Len(a)))
        except LookupError:
            return
        if not self.computable(inner.trips) or any(real(b) and self.sizes[root(b)] is None for b in (*step.inputs, *step.results)):
            return
        self.inner[step], self.total = inner, self.named(maximum(self.total, inner.end))
        if self._is_bordered(step):
            self.base = inner.end

    @property
    def apart(self) -> ExprLike:
        """Bytes of the arena, those of bodies too, up to where other memory may begin."""
        return self.named(aligned_up(self.total))


def aligned_up(n: ExprLike) -> ExprLike:
    return (n + (ALIGN - 1)) // ALIGN * ALIGN


def _bytes(b: Buffer, length: Callable[[AxisId], ExprLike]) -> ExprLike:
    """Returns the bytes of a buffer at these lengths of its axes."""
    return b.bytes if b.bytes is not None else math.prod(room_of(b, length), start=b.dtype.np.itemsize)


def root(b: Buffer) -> Buffer:
    """The buffer whose memory it has."""
    while b.shares is not None:
        b = b.shares
    return b


def used(s: Step) -> list[Buffer]:
    """The buffers that a step reads and writes, those between the parts of a routine too."""
    own = s.code.buffers if type(s) is KernelStep else ()
    return [*s.step.sources, *s.step.targets, *own]


def real(b: Buffer) -> bool:
    """Whether it is memory at all, and no token."""
    return b.dtype.np is not None

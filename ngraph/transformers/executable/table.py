"""The table that threads walk: records, and the words that they work on.

A kernel is one record. Loops and branches never leave generated code: the body's records stand in the same table, between trips a record
moves words (slices are addresses that advance, carries addresses that change places), another counts and jumps back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ngraph.op_graph import expr
from ngraph.op_graph.expr import Bin, ExprLike, Len, maximum
from ngraph.plan.kernels import Buffer, OpaqueOp
from ngraph.runtime.host.bytecode import COMPUTE, COPY, FIELDS, HOST, JUMP, KERNEL, LOOP, MOVES, OPERATIONS, UNLESS, WORDS
from ngraph.tensors.index import Load, bounds
from ngraph.transformers.executable.code import Control, HostCallback, NativeStep, Step

if TYPE_CHECKING:
    from ngraph.transformers.executable.frame import BufferAddresses, Inner

SHARE, PIECE = 2.5e-6, 5e-5  # seconds: what a thread is worth being given; what is long enough to be handed out piece by piece
PIECES = 8  # ranges for each thread of a long kernel


class WordAddress(NamedTuple):
    """The address of a word."""

    word: int


class Word(NamedTuple):
    """Where a buffer lies that moves while the table is walked: the word that holds its address."""

    word: int


class InstructionField(NamedTuple):
    """The address of a word of a record."""

    record: int
    name: str


Place = int | Buffer | Word  # an address for good, a buffer that calls come with, or a word
Triple = tuple[Any, Any, int]  # a word becomes another word and a number


class Table:
    """Records and words under construction; `finish` makes memory of them."""

    def __init__(self) -> None:
        self.records: list[list[Any]] = []
        self.steps: list[Any] = []  # what each record is, for those who look
        self.hosts: dict[int, Callable[[], None]] = {}  # what Python does at a record
        self.checks = 0  # how many of these only say what is wrong, where something is
        self.words: list[int | WordAddress | InstructionField] = []
        self.places: dict[Buffer, list[int]] = {}  # words that hold the address of a buffer that calls come with
        self.followers: dict[int, list[int]] = {}  # words that follow one that moves
        self.constants: dict[int, int] = {}
        self.scratch = 0
        self.seconds = 0.0
        self.longest = 0.0
        self.times = 1  # how often what is added now runs, as far as known

    def finish(self) -> None:
        self.array = np.zeros(len(self.words) + 1, np.int64)
        self.table = np.zeros((len(self.records) + 1, WORDS), np.int64)
        at, here = self.array.ctypes.data, self.table.ctypes.data

        def number(x: int | WordAddress | InstructionField) -> int:
            if isinstance(x, InstructionField):
                return here + 8 * WORDS * x.record + FIELDS[x.name]
            return at + 8 * x.word if isinstance(x, WordAddress) else x

        self.array[: len(self.words)] = [number(x) for x in self.words]
        for k, r in enumerate(self.records):
            self.table[k, : len(r)] = [number(x) for x in r]

    # ---- words and records

    def word(self, value: int | WordAddress = 0) -> int:
        self.words.append(value)
        return len(self.words) - 1

    def held(self, place: Place) -> int:
        """A new word that holds where a place is, all the time."""
        k = self.word(place if isinstance(place, int) else 0)
        if isinstance(place, Buffer):
            self.places.setdefault(place, []).append(k)
        elif isinstance(place, Word):
            self.followers.setdefault(place.word, []).append(k)
        return k

    def source(self, place: Place) -> int:
        """A word to move from."""
        if isinstance(place, Word):
            return place.word
        if isinstance(place, Buffer):
            return self.held(place)
        if place not in self.constants:
            self.constants[place] = self.word(place)
        return self.constants[place]

    def record(self, *fields: Any, step: Any = None) -> int:
        self.records.append(list(fields))
        self.steps.append(step)
        return len(self.records) - 1

    def host(self, does: Callable[[], None], step: Any = None) -> None:
        self.hosts[self.record(HOST, step=step)] = does

    def check(self, scope: BufferAddresses, s: HostCallback) -> None:
        """Where the last input is true, Python takes over, to say what is wrong with the others."""
        unless = self.record()
        self.host(partial(scope.refuse, s.step), s)
        self.checks += 1
        self.records[unless] = [UNLESS, WordAddress(self.source(scope.resolve(s.step.inputs[-1]))), len(self.records)]

    def move(self, record: int, triples: Sequence[Triple]) -> None:
        """Makes a record move words, one triple after another."""
        start = len(self.words)
        for to, source, more in triples:
            self.words += [WordAddress(to) if isinstance(to, int) else to, WordAddress(source) if isinstance(source, int) else source, more]
        self.records[record] = [MOVES, WordAddress(start), len(triples)]

    def following(self, cells: Sequence[int]) -> list[Triple]:
        """What has to be moved when these words have changed."""
        return [(word, cell, 0) for cell in cells for word in self.followers.get(cell, ())]

    # ---- steps

    def add(self, scope: BufferAddresses, steps: Sequence[Step]) -> None:
        for s in steps:
            if type(s) is NativeStep:
                self.native(scope, s)
            elif type(s) is Control:
                inner = scope.bound.inner.get(s.step)
                if inner is None:  # its lengths are known once the steps before it have run
                    self.host(partial(scope.late, s), s)
                else:
                    CONTROL[s.step.op](self, scope, s.step, inner)
            elif type(s) is HostCallback and s.step.op == "check_bounds":
                self.check(scope, s)
            elif type(s) is HostCallback:
                self.host(partial(scope.routine, s.step), s)
                self.seconds += 1.0  # who knows

    def native(self, scope: BufferAddresses, s: NativeStep) -> None:
        places = [scope.resolve(b) for b in s.code.buffers]
        known = all(not isinstance(p, Buffer) or scope.sized(b) for p, b in zip(places, s.code.buffers, strict=True))
        at = len(self.words)
        for p in places:
            self.held(p)
        for a in s.code.lengths:
            try:
                self.word(scope.bound.length(a))
            except LookupError:
                self.word()
                known = False
        if known:
            self.record(*self.kernel(scope, s, at), step=s)
        elif all(scope.sized(b) for b in s.code.buffers) and self.room(scope, s) is not None:
            self.measured(scope, s, at)
        else:
            self.host(partial(self.settle, scope, s, at, len(self.records) + 1))
            self.record(KERNEL, s.entry.address, WordAddress(at), 0, 1, 1, 0, step=s)
        self.seconds += s.seconds * self.times
        self.longest = max(self.longest, s.seconds)

    def kernel(self, scope: BufferAddresses, s: NativeStep, at: int) -> list[Any]:
        """A kernel's record: how many work items, on how many threads, how many at a time."""
        items, threads = number(s.code.work_items, scope.length), scope.bound.threads
        self.scratch = max(self.scratch, number(s.code.scratch, scope.length))
        ways = max(1, min(threads, items, int(s.seconds / SHARE)))
        pieces = ways if s.seconds < PIECE * ways else ways * max(1, min(PIECES, int(s.seconds / (PIECE * ways))))
        about = self.times > 1 and self.large(scope, s)
        pieces = max(pieces, PIECES * ways) if about else pieces
        return [KERNEL, s.entry.address, WordAddress(at), items, at_once(items, pieces, ways), ways, int(s.seconds > PIECE), int(about)]

    def large(self, scope: BufferAddresses, s: NativeStep) -> bool:
        """Whether a kernel of a loop reads so much again in each trip that the second cache holds a part of it.

        Every other trip then takes the work items from the last to the first: what one trip has read last, the next one finds.
        """
        loop_invariant = [b for b in s.step.sources if b.parameters]
        return sum([scope.bound.sizes[b] or 0 for b in loop_invariant]) > scope.bound.code.target.l2 // 2

    def room(self, scope: BufferAddresses, s: NativeStep) -> int | None:
        """The scratch that a kernel never exceeds, if there is such a limit and all its lengths can be computed by the table."""
        exprs = [scope.bound.settled(e) for e in (s.code.scratch, s.code.work_items, *map(Len, s.code.lengths))]
        leaves = [x for e in exprs for x in expr.leaves(e)]
        if not all(type(x) is Load and x.of.dtype.name in OPERATIONS for x in leaves):
            return None
        _, most = bounds(expr.substitute(exprs[0], lambda x: maximum(x, 0)), lambda _: None)  # no length is negative
        return int(most) if most < math.inf else None

    def measured(self, scope: BufferAddresses, s: NativeStep, at: int) -> None:
        """A kernel whose lengths the table computes, from what lies in memory then."""
        bound = scope.bound
        self.scratch = max(self.scratch, self.room(scope, s) or 0)
        for k, a in enumerate(s.code.lengths, at + len(s.code.buffers)):
            self.compute(scope, bound.settled(Len(a)), WordAddress(k))
        items = bound.settled(s.code.work_items)
        ways = max(1, min(bound.threads, int(s.seconds / SHARE)))
        self.compute(scope, items, WordAddress(total := self.word()))
        grain = self.compute(scope, maximum((items + (ways - 1)) // ways, 1), None)
        triples = len(self.records)
        self.record()
        kernel = self.record(KERNEL, s.entry.address, WordAddress(at), 0, 1, ways, int(s.seconds > PIECE), step=s)
        self.move(
            triples,
            [(InstructionField(kernel, "items"), WordAddress(total), 0), (InstructionField(kernel, "grain"), WordAddress(grain), 0)],
        )

    def compute(self, scope: BufferAddresses, e: ExprLike, to: WordAddress | None) -> int:
        """Records that compute a whole number; the word that holds it."""
        if isinstance(e, int):
            if to is None:
                return self.source(e)
            self.move(self.record(), [(to, WordAddress(self.source(e)), 0)])
            return to.word
        k = self.word() if to is None else to.word
        if type(e) is Load:
            at = self.source(scope.resolve(e.of))
            self.record(COMPUTE, WordAddress(k), WordAddress(at), WordAddress(at), OPERATIONS.index(e.of.dtype.name))
        else:
            assert type(e) is Bin
            a, b = self.compute(scope, e.a, None), self.compute(scope, e.b, None)
            self.record(COMPUTE, WordAddress(k), WordAddress(a), WordAddress(b), OPERATIONS.index(e.op))
        return k

    def settle(self, scope: BufferAddresses, s: NativeStep, at: int, record: int) -> None:
        """A kernel whose lengths have become known gets its arguments."""
        for k, b in enumerate(s.code.buffers, at):
            if isinstance(scope.resolve(b), Buffer):
                array = scope.place(b) if b in s.step.targets else scope.array(b)
                self.array[k] = array.__array_interface__["data"][0]
        for k, a in enumerate(s.code.lengths, at + len(s.code.buffers)):
            self.array[k] = scope.length(a)
        kind, fn, _, *rest = self.kernel(scope, s, at)
        self.table[record] = [kind, fn, self.table[record, 2], *rest]

    def copy(self, scope: BufferAddresses, to: Place, source: Place, size: int) -> None:
        """Bytes from one place to another."""
        at = len(self.words)
        self.held(to)
        self.held(source)
        self.word(size)
        self.record(COPY, WordAddress(at))


def at_once(items: int, pieces: int, ways: int) -> int:
    """How many work items make a range, if there are to be about so many: of the sizes near, the one with which threads have equal work."""
    most = max(1, -(-items // pieces))
    sizes = range(most, max(most // PIECES, most - 64, 0), -1)
    return min(sizes, key=lambda size: round(-(-items // size // ways) * size / max(items, 1), 2))


def number(e: ExprLike, length: Callable[[Any], int]) -> int:
    """An expression over lengths."""
    return e if isinstance(e, int) else int(expr.evaluate(e, lambda x: length(x.of)))


# ---- loops and branches --------------------------------------------------------------------------------------------------


def real(b: Buffer) -> bool:
    """Whether it is memory at all, and no token."""
    return b.dtype.np is not None


class _LoopInstructions:
    """What happens to words before the first trip, and after each."""

    def __init__(self, table: Table, scope: BufferAddresses, inner: Inner):
        self.table, self.scope, self.inner = table, scope, inner
        self.enter: list[Triple] = []
        self.turn: list[Triple] = []  # carries change places
        self.advance: list[Triple] = []  # then slices move on
        self.cells: list[int] = []

    def cell(self, place: Place, more: int = 0) -> int:
        """A word that starts as a place and moves."""
        k = self.table.word()
        self.enter.append((k, self.table.source(place), more))
        self.cells.append(k)
        return k

    def slices(self, place: Place, size: int, reverse: bool) -> Word:
        """Where each trip has its own slice of `size` bytes."""
        k = self.cell(place, (self.inner.trips - 1) * size if reverse else 0)
        self.advance.append((k, k, -size if reverse else size))
        return Word(k)

    def swapped(self, start: Place, first: Place, second: Place) -> tuple[Word, Word]:
        """Where a trip takes a carry and where it puts it: what it puts is what the next one takes, and they change places."""
        taken, put, spare = self.cell(start), self.cell(first), self.cell(second)
        self.turn += [(taken, put, 0), (put, spare, 0), (spare, taken, 0)]
        return Word(taken), Word(put)

    def begin(self) -> int:
        return self.table.record()

    def fill(self, begin: int, again: int | None) -> None:
        """Writes the records of moves, once all that follows the words is known."""
        follow = self.table.following(self.cells)
        self.table.move(begin, self.enter + follow)
        if again is not None:
            self.table.move(again, self.turn + self.advance + follow)


def _scan(table: Table, scope: BufferAddresses, r: OpaqueOp, inner: Inner) -> None:
    carries, xs, reverse, n = r.attrs["carries"], r.attrs["xs"], r.attrs["reverse"], inner.trips
    body, child = inner.scope("body", scope, table)
    plan, sizes = body.plan, body.sizes
    if n == 0:
        for first, last, b in zip(r.inputs[:carries], r.results[:carries], plan.inputs, strict=False):
            if real(b):
                table.copy(scope, scope.resolve(last), scope.resolve(first), sizes[b] or 0)
        return
    loop = _LoopInstructions(table, scope, inner)
    for k, (outer, b) in enumerate(zip(r.inputs, plan.inputs, strict=True)):
        if real(b) and k >= carries:
            place = scope.resolve(outer)
            child.name(b, loop.slices(place, sizes[b] or 0, reverse) if k < carries + xs else place)
    for stack, b in zip(r.results[carries:], plan.outputs[carries:], strict=True):
        if real(b):
            child.name(b, loop.slices(scope.resolve(stack), sizes[b] or 0, reverse))
    stacked: list[tuple[Place, Place, int]] = []
    for k, (b, made) in enumerate(zip(plan.inputs[:carries], plan.outputs[:carries], strict=True)):
        if not real(b):
            continue
        start, end = scope.resolve(r.inputs[k]), scope.resolve(r.results[k])
        taken: Word
        out = child.resolve(made)
        if isinstance(out, Word):  # each trip's carry lies in a stack, and the next one takes it from there
            taken = Word(loop.cell(start))
            loop.turn.append((taken.word, out.word, 0))
            if scope.bound.needs(r.results[k]):
                stacked.append((end, taken, sizes[b] or 0))
        else:  # the last trip puts it where it shall be
            spare = scope.base + inner.spare[k]
            taken, out = loop.swapped(start, *((end, spare) if n % 2 else (spare, end)))
            child.name(made, out)
        child.name(b, taken)
    table.add(child, body.code.once)
    begin, counter = loop.begin(), table.word()
    loop.enter.append((counter, table.source(0), 0))
    top, before = len(table.records), table.times
    table.times *= n
    table.add(child, body.code.steps)
    table.times = before
    again = table.record()
    if n > 1:
        table.record(LOOP, WordAddress(counter), n, top)
    for end, place, size in stacked:
        table.copy(scope, end, place, size)
    loop.fill(begin, again)


def _while(table: Table, scope: BufferAddresses, r: OpaqueOp, inner: Inner) -> None:
    carries = r.attrs["carries"]
    body, child = inner.scope("body", scope, table)
    test, asked = inner.scope("cond", scope, table)
    loop = _LoopInstructions(table, scope, inner)
    ends: list[tuple[Place, Place, int]] = []
    for k, (b, again) in enumerate(zip(body.plan.inputs, test.plan.inputs, strict=True)):
        if not real(b):
            continue
        place = scope.resolve(r.inputs[k])
        if k < carries:
            end, size = scope.resolve(r.results[k]), body.sizes[b] or 0
            place, out = loop.swapped(place, end, scope.base + inner.spare[k])
            child.name(body.plan.outputs[k], out)
            ends.append((end, place, size))
        child.name(b, place)
        asked.name(again, place)
    flag = scope.base + inner.flag
    asked.name(test.plan.outputs[0], flag)
    table.add(asked, test.code.once)
    table.add(child, body.code.once)
    begin, top = loop.begin(), len(table.records)
    table.add(asked, test.code.steps)
    leave = table.record()
    table.add(child, body.code.steps)
    turn = table.record()
    table.record(JUMP, top)
    table.records[leave] = [UNLESS, WordAddress(table.source(flag)), len(table.records)]
    for end, place, size in ends:
        table.copy(scope, end, place, size)
    loop.fill(begin, turn)


def _cond(table: Table, scope: BufferAddresses, r: OpaqueOp, inner: Inner) -> None:
    choose = table.record()
    ends: list[int] = []
    for name in ("then", "else"):
        body, child = inner.scope(name, scope, table)
        for outer, b in (*zip(r.inputs[1:], body.plan.inputs, strict=True), *zip(r.results, body.plan.outputs, strict=True)):
            if real(b):
                child.name(b, scope.resolve(outer))
        table.add(child, [*body.code.once, *body.code.steps])
        if name == "then":
            ends.append(table.record())
            table.records[choose] = [UNLESS, WordAddress(table.source(scope.resolve(r.inputs[0]))), len(table.records)]
    for k in ends:
        table.records[k] = [JUMP, len(table.records)]


CONTROL: dict[str, Callable[[Table, BufferAddresses, OpaqueOp, Inner], None]] = {"scan": _scan, "while": _while, "cond": _cond}

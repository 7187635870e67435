"""The table that threads walk: instructions, and the words that they work on.

A kernel is one instruction. Loops and branches never leave generated code: the body's instructions stand in the same table, between trips
one moves words (slices are addresses that advance, carries addresses that change places), another counts and jumps back.

There is no address in a table: a place is a region and an offset, and its caller says where regions lie. Lengths that calls bring are
words; instructions ahead of the others compute from them what the table needs: offsets, sizes, work items, trips.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ngraph.op_graph import expr
from ngraph.op_graph.expr import Bin, Expr, ExprLike, Len, maximum, minimum
from ngraph.plan.kernels import Buffer, OpaqueOp
from ngraph.program.program import AxisId
from ngraph.runtime.host.bytecode import (
    COMPUTE,
    COPY,
    END,
    FIELDS,
    HOST,
    JUMP,
    KERNEL,
    LOOP,
    MOVES,
    OPERATIONS,
    PIECES,
    UNLESS,
    WORDS,
    at_once,
)
from ngraph.targets.tuning import ASSUMED_LENGTH
from ngraph.tensors.index import Load
from ngraph.transformers.executable.code import Control, HostCallback, KernelStep, Step
from ngraph.transformers.executable.layout import Computed, Inner, real

if TYPE_CHECKING:
    from ngraph.transformers.executable.frame import BufferAddresses

SHARE, PIECE = 2.5e-6, 5e-5  # seconds: the least work for a thread; the least that is shared out in small ranges
MOST_WAYS = 1 << 30  # no limit: threads there are fewer
ZEROS = [0] * WORDS


TABLE, ARENA, ONCE, ABSOLUTE = "table", "arena", "once", "absolute"  # regions; the last one starts at 0, for what is there for one walk


class ConstantRegion(NamedTuple):
    """The region of a constant's array."""

    of: Buffer


class Address(NamedTuple):
    """A place in a region: TABLE, ARENA, ONCE, ABSOLUTE, a `ConstantRegion`, a kernel, or a buffer that calls come with."""

    region: Any
    offset: ExprLike = 0

    def plus(self, more: ExprLike) -> Address:
        return Address(self.region, self.offset + more)


class WordAddress(NamedTuple):
    """The address of a word."""

    word: int


class Word(NamedTuple):
    """The location of a buffer that moves while the table runs: the word that holds its address."""

    word: int


class InstructionField(NamedTuple):
    """The address of a word of an instruction."""

    record: int
    name: str


Place = Address | Word
Triple = tuple[Any, Any, ExprLike | Word]  # a word becomes another word and a number, which may be in a word
Operand = int | Address | WordAddress | InstructionField


class Table:
    """Instructions and words under construction; `finish` makes memory of them. `bases` says where regions lie."""

    def __init__(self, bases: Mapping[Any, int] = {}) -> None:
        self.bases: dict[Any, int] = {**bases, ABSOLUTE: 0}
        self.records: list[list[Any]] = []
        self.prologue: list[list[Any]] = []  # what computes from lengths
        self.lengths: dict[AxisId, int] = {}  # words of lengths that calls bring
        self.numbers: dict[ExprLike, int] = {}  # words of what is computed from these
        self.steps: list[Any] = []  # what each instruction is, for those who look
        self.hosts: dict[int, Callable[[], None]] = {}  # what Python does at an instruction
        self.checks = 0  # how many of these only say what is wrong, where something is
        self.words: list[Operand] = []
        self.followers: dict[int, list[int]] = {}  # words that follow one that moves
        self.sources: dict[Address | int, int] = {}
        self.scratches: list[ExprLike] = []  # bytes that kernels need
        self.scratch = 0
        self.ways: list[ExprLike] = []  # on how many threads kernels run, where lengths decide
        self.most_scratch: int | None = None  # the word of the largest of these, where lengths decide
        self.most_ways: int | None = None
        self.total = 0  # the word of the bytes of the arena, where it may grow
        self.seconds = 0.0
        self.longest = self.longest_known = 0.0  # of all kernels, and of those whose work items are known
        self.times = 1  # how often what is added now runs, as far as known

    def finish(self) -> None:
        """Lays out instructions, those ahead of them, words; puts in where regions lie, as far as that is known."""
        self.most_scratch, self.most_ways = self._most(self.scratches), self._most(self.ways)
        self.start = len(self.records) + 1
        flat: list[Any] = []
        for row in (*self.records, [END], *self.prologue, [END]):
            flat += row
            flat += ZEROS[len(row) :]
        first = len(flat)
        flat += self.words
        flat.append(0)
        self.relocations: dict[Any, list[tuple[int, int]]] = {}  # by region: words of memory, and what is added to where the region lies
        for at, x in enumerate(flat):
            if type(x) is int:
                continue
            region: Any = TABLE
            offset: Any = 0
            if type(x) is Address:
                region, offset = x  # a number: `hold` computes what is an expression
            elif type(x) is WordAddress:
                offset = 8 * (first + x.word)
            else:
                offset = 8 * WORDS * x.record + FIELDS[x.name]
            self.relocations.setdefault(region, []).append((at, offset))
            flat[at] = self.bases.get(region, 0) + offset
        self.memory = np.array(flat, np.int64)
        self.table, self.array = self.memory[:first].reshape(-1, WORDS), self.memory[first:]
        self.address = self.bases[TABLE] = int(self.memory.ctypes.data)
        for at, offset in self.relocations.get(TABLE, ()):
            self.memory[at] = self.address + offset

    def _most(self, numbers: Sequence[ExprLike]) -> int | None:
        """Adds what computes the largest of some numbers over lengths, and returns its word; None where there are none."""
        found = [n for n in dict.fromkeys(numbers) if not isinstance(n, int)]
        if not found:
            return None
        most = self.word()
        self.ahead(WordAddress(most), self.source(0), "+", self.source(0))
        for n in found:
            self.ahead(WordAddress(most), most, "max", self.early(n))
        return most

    def measure(self) -> None:
        """Reads what the instructions ahead of the others have computed: the bytes of scratch."""
        if self.most_scratch is not None:
            self.scratch = max(self.scratch, int(self.array[self.most_scratch]))

    @property
    def wide(self) -> bool:
        """Whether a kernel runs on several threads."""
        most = self.most_ways
        return self.longest >= 2 * SHARE if most is None else self.longest_known >= 2 * SHARE or int(self.array[most]) > 1

    # ---- words and records

    def word(self, value: Operand = 0) -> int:
        self.words.append(value)
        return len(self.words) - 1

    def hold(self, k: int, place: Place) -> None:
        """A word holds where a place is, all the time."""
        if isinstance(place, Word):
            self.followers.setdefault(place.word, []).append(k)
        elif isinstance(place.offset, int):
            self.words[k] = place
        else:
            self.ahead(WordAddress(k), self.source(Address(place.region)), "+", self.early(place.offset))

    def source(self, place: Place | int) -> int:
        """A word to move from: of a place, or of a number."""
        if isinstance(place, Word):
            return place.word
        if place not in self.sources:
            self.sources[place] = k = self.word()
            if isinstance(place, int):
                self.words[k] = place
            else:
                self.hold(k, place)
        return self.sources[place]

    # ---- what is computed from lengths, ahead of all steps

    def ahead(self, to: WordAddress | InstructionField | Address, a: int, op: str, b: int, *more: int) -> None:
        self.prologue.append([COMPUTE, to, WordAddress(a), WordAddress(b), OPERATIONS.index(op), *more])

    def early(self, e: ExprLike, to: WordAddress | InstructionField | Address | None = None) -> int:
        """The word of a number over lengths that calls bring; `to` is another word that it goes to."""
        if to is not None:
            k = self.early(e)
            self.ahead(to, k, "+", self.source(0))
            return k
        todo = [e]
        while todo:  # without recursion: names stand for expressions over other names, in long rows
            x = todo[-1]
            parts = (x.a, x.b) if isinstance(x, Bin) else (x.value,) if isinstance(x, Computed) else ()
            missing = [p for p in parts if not isinstance(p, int) and p not in self.numbers]
            todo += missing
            if not missing:
                todo.pop()
                if not isinstance(x, int) and x not in self.numbers:
                    self.numbers[x] = self._early(x)
        return self.source(e) if isinstance(e, int) else self.numbers[e]

    def _early(self, e: Expr) -> int:
        """The word of an expression whose parts have theirs."""
        if isinstance(e, Computed):
            return self.early(e.value)
        k = self.word()
        if isinstance(e, Bin):
            self.ahead(WordAddress(k), self.early(e.a), e.op, self.early(e.b))
        else:
            assert isinstance(e, Len)
            self.lengths[e.of] = k
        return k

    # ---- instructions

    def record(self, *fields: Any, step: Any = None) -> int:
        self.records.append(list(fields))
        self.steps.append(step)
        return len(self.records) - 1

    def host(self, does: Callable[[], None], step: Any = None) -> None:
        self.hosts[self.record(HOST, step=step)] = does

    def check(self, scope: BufferAddresses, s: HostCallback) -> None:
        """Adds a check: where its last input is true, Python takes over and raises the error about the others."""
        unless = self.record()
        self.host(partial(scope.refuse, s.step), s)
        self.checks += 1
        self.records[unless] = [UNLESS, WordAddress(self.source(scope.resolve(s.step.inputs[-1]))), len(self.records)]

    def move(self, record: int, triples: Sequence[Triple]) -> list[Triple]:
        """Makes an instruction move words, one triple after another; returns the moves, due before it, of numbers that are words."""
        start = len(self.words)
        ahead: list[Triple] = []
        for to, source, more in triples:
            self.word(WordAddress(to) if isinstance(to, int) else to)
            self.word(WordAddress(source) if isinstance(source, int) else source)
            self.word(more if isinstance(more, int) else 0)
        for k, (_, _, more) in enumerate(triples):
            if isinstance(more, Word):
                ahead.append((start + 3 * k + 2, more.word, 0))
            elif not isinstance(more, int):
                self.early(more, WordAddress(start + 3 * k + 2))
        self.records[record] = [MOVES, WordAddress(start), len(triples)]
        return ahead

    def following(self, cells: Sequence[int]) -> list[Triple]:
        """Returns the moves that are due when these words have changed."""
        return [(word, cell, 0) for cell in cells for word in self.followers.get(cell, ())]

    # ---- steps

    def add(self, scope: BufferAddresses, steps: Sequence[Step]) -> None:
        for s in steps:
            if type(s) is KernelStep:
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
                self.seconds += 1.0  # unknown

    def native(self, scope: BufferAddresses, s: KernelStep) -> None:
        layout = scope.bound.layout
        places = [scope.resolve(b) for b in s.code.buffers]
        sizes = scope.bound.sizes
        unsized = [p for p, b in zip(places, s.code.buffers, strict=True) if b.shares is None and sizes[b] is None]
        known = not any(map(of_call, unsized))
        at = len(self.words)
        self.words += [0] * (len(places) + len(s.code.lengths))
        for k, p in enumerate(places, at):
            self.hold(k, p)
        for k, a in enumerate(s.code.lengths, at + len(places)):
            try:
                n = layout.length(a)
            except LookupError:
                known = False
                continue
            if isinstance(n, int):
                self.words[k] = n
            else:
                self.early(n, WordAddress(k))
        self.bases[s.entry] = s.entry.address
        if known:
            self.kernel(scope, s, at)
        elif not unsized and layout.scratch(s) is not None:
            self.measured(scope, s, at)
        else:
            self.host(partial(self.settle, scope, s, at, len(self.records) + 1))
            self.record(KERNEL, Address(s.entry), WordAddress(at), 0, 1, 1, 0, step=s)
        self.seconds += s.seconds * self.times
        self.longest = max(self.longest, s.seconds)
        if all(isinstance(layout.over(e), int) for e in (s.code.work_items, s.code.growth)):
            self.longest_known = max(self.longest_known, s.seconds)

    def kernel(self, scope: BufferAddresses, s: KernelStep, at: int) -> None:
        """A kernel's instruction: how many work items, on how many threads, how many at a time."""
        layout = scope.bound.layout
        items = layout.over(s.code.work_items)
        self.needs(scope, layout.over(s.code.scratch))
        about = self.times > 1 and self.large(scope, s)
        size = layout.over(s.code.growth)
        size = size if layout.early(size) else items
        if isinstance(items, int) and (isinstance(size, int) or items == 1):
            self.record(KERNEL, Address(s.entry), WordAddress(at), *self.shares(scope, s, items, about), step=s)
            return
        k = self.record(KERNEL, Address(s.entry), WordAddress(at), items if isinstance(items, int) else 0, 1, 1, 0, int(about), step=s)
        if not isinstance(items, int):
            self.early(items, InstructionField(k, "items"))
        self.open_shares(scope, s, items, size, about, k)

    def open_shares(self, scope: BufferAddresses, s: KernelStep, items: ExprLike, size: ExprLike, about: bool, k: int) -> None:
        """Adds what computes on how many threads a kernel runs and how many work items it takes at a time.

        size: the number with which its time grows.
        """
        layout, threads = scope.bound.layout, scope.bound.threads
        each = s.seconds / max(layout.guess(size), 1)

        def times(limit: float) -> ExprLike:
            """Returns how often the kernel takes so many seconds."""
            return size * int(each / limit) if each >= limit else size // int(limit / each) if each else 0

        ways = layout.named(maximum(minimum(times(SHARE), minimum(items, threads)), 1))
        long = layout.named(times(PIECE))
        pieces = ways * maximum(minimum(long // ways, PIECES), 1)
        self.early(ways, InstructionField(k, "ways"))
        self.early(minimum(long, 1), InstructionField(k, "long"))
        self.ways.append(ways)
        pieces = maximum(pieces, PIECES * ways) if about else pieces
        self.ahead(InstructionField(k, "grain"), self.early(items), "at once", self.early(pieces), threads)

    def pieces(self, scope: BufferAddresses, s: KernelStep, about: bool, most: int = MOST_WAYS) -> tuple[int, int]:
        """On how many threads a kernel runs, and in about how many pieces, of which there are no more than `most` to share out."""
        ways = max(1, min(scope.bound.threads, most, int(s.seconds / SHARE)))
        pieces = ways if s.seconds < PIECE * ways else ways * max(1, min(PIECES, int(s.seconds / (PIECE * ways))))
        return ways, max(pieces, PIECES * ways) if about else pieces

    def shares(self, scope: BufferAddresses, s: KernelStep, items: int, about: bool) -> list[int]:
        """Returns the instruction's fields from `items` on, for a known number of work items."""
        ways, pieces = self.pieces(scope, s, about, items)
        return [items, at_once(items, pieces, ways), ways, int(s.seconds > PIECE), int(about)]

    def needs(self, scope: BufferAddresses, scratch: ExprLike) -> None:
        """A kernel needs so many bytes."""
        self.scratches.append(scratch)
        if isinstance(scratch, int):
            self.scratch = max(self.scratch, scratch)

    def large(self, scope: BufferAddresses, s: KernelStep) -> bool:
        """Whether a kernel of a loop reads so much again in each trip that the second cache holds a part of it.

        Every other trip then takes the work items from the last to the first: what one trip has read last, the next one finds.
        """
        loop_invariant = [b for b in s.step.sources if b.parameters]
        return sum([scope.bound.sizes[b] or 0 for b in loop_invariant]) > scope.bound.code.target.l2 // 2

    def measured(self, scope: BufferAddresses, s: KernelStep, at: int) -> None:
        """A kernel whose lengths the table computes where it stands, from what lies in memory then."""
        layout = scope.bound.layout
        self.needs(scope, layout.scratch(s) or 0)
        for k, a in enumerate(s.code.lengths, at + len(s.code.buffers)):
            self.compute(scope, layout.over(Len(a)), WordAddress(k))
        items = layout.over(s.code.work_items)
        ways = max(1, min(scope.bound.threads, int(s.seconds / SHARE)))
        total = self.compute(scope, items, None)
        grain = self.compute(scope, maximum((items + (ways - 1)) // ways, 1), None)
        triples = self.record()
        kernel = self.record(KERNEL, Address(s.entry), WordAddress(at), 0, 1, ways, int(s.seconds > PIECE), step=s)
        self.move(triples, [(InstructionField(kernel, "items"), total, 0), (InstructionField(kernel, "grain"), grain, 0)])

    def compute(self, scope: BufferAddresses, e: ExprLike, to: WordAddress | None) -> int:
        """Instructions that compute a whole number where they stand; the word that holds it."""
        if scope.bound.layout.early(e):
            k = self.early(e)
            if to is not None:
                self.move(self.record(), [(to, k, 0)])
            return k
        k = self.word() if to is None else to.word
        if type(e) is Load:
            at = self.source(scope.resolve(e.of))
            self.now(k, at, e.of.dtype.name, at)
        else:
            assert type(e) is Bin
            a, b = self.compute(scope, e.a, None), self.compute(scope, e.b, None)
            self.now(k, a, e.op, b)
        return k

    def now(self, to: int, a: int, op: str, b: int) -> int:
        """An instruction that computes a word; that word."""
        self.record(COMPUTE, WordAddress(to), WordAddress(a), WordAddress(b), OPERATIONS.index(op))
        return to

    def settle(self, scope: BufferAddresses, s: KernelStep, at: int, record: int) -> None:
        """A kernel whose lengths have become known gets its arguments."""
        for k, b in enumerate(s.code.buffers, at):
            if of_call(scope.resolve(b)):
                array = scope.place(b) if b in s.step.targets else scope.array(b)
                self.array[k] = array.__array_interface__["data"][0]
        for k, a in enumerate(s.code.lengths, at + len(s.code.buffers)):
            self.array[k] = scope.length(a)
        self.scratch = max(self.scratch, number(s.code.scratch, scope.length))
        items, about = number(s.code.work_items, scope.length), self.times > 1 and self.large(scope, s)
        self.table[record, 3:] = self.shares(scope, s, items, about)

    def copy(self, scope: BufferAddresses, to: Place, source: Place, size: ExprLike) -> None:
        """Bytes from one place to another."""
        at = len(self.words)
        self.words += [0] * 3
        self.hold(at, to)
        self.hold(at + 1, source)
        if isinstance(size, int):
            self.words[at + 2] = size
        elif scope.bound.layout.early(size):
            self.early(size, WordAddress(at + 2))
        else:
            self.compute(scope, size, WordAddress(at + 2))
        self.record(COPY, WordAddress(at))


def of_call(place: Place) -> bool:
    """Whether it is an array that calls come with."""
    return isinstance(place, Address) and isinstance(place.region, Buffer)


def number(e: ExprLike, length: Callable[[Any], int]) -> int:
    """An expression over lengths."""
    return e if isinstance(e, int) else int(expr.evaluate(e, lambda x: length(x.of)))


# ---- loops and branches --------------------------------------------------------------------------------------------------


class _LoopInstructions:
    """The changes of words before the first trip, and after each."""

    def __init__(self, table: Table, scope: BufferAddresses, inner: Inner):
        self.table, self.scope, self.inner = table, scope, inner
        self.enter: list[Triple] = []
        self.turn: list[Triple] = []  # carries change places
        self.advance: list[Triple] = []  # then slices move on
        self.cells: list[int] = []

    def number(self, e: ExprLike) -> ExprLike | Word:
        """Returns a number that is known before any step runs; of another one the word, computed ahead of the loop."""
        return e if self.scope.bound.layout.early(e) else Word(self.table.compute(self.scope, e, None))

    def cell(self, place: Place, more: ExprLike = 0) -> int:
        """Returns a word that starts as a place and moves."""
        k, source, ahead = self.table.word(), self.table.source(place), self.number(more)
        if isinstance(ahead, Word):
            source, ahead = self.table.now(self.table.word(), source, "+", ahead.word), 0
        self.enter.append((k, source, ahead))
        self.cells.append(k)
        return k

    def slices(self, place: Place, size: ExprLike, reverse: bool) -> Word:
        """Returns the word with the address of each trip's own slice of `size` bytes."""
        k = self.cell(place, (self.inner.trips - 1) * size if reverse else 0)
        self.advance.append((k, k, self.number(size * -1 if reverse else size)))
        return Word(k)

    def swapped(self, start: Place, first: Place, second: Place) -> tuple[Word, Word]:
        """Returns the words for a carry's input and output: they are exchanged after each trip, so that the output is the next input."""
        taken, put, spare = self.cell(start), self.cell(first), self.cell(second)
        self.turn += [(taken, put, 0), (put, spare, 0), (spare, taken, 0)]
        return Word(taken), Word(put)

    def ordered(self, end: Place, spare: Place) -> tuple[Place, Place]:
        """Returns the places of a carry after the first and the second trip, so that the last trip puts it at `end`."""
        n, t = self.inner.trips, self.table
        if isinstance(n, int):
            return (end, spare) if n % 2 else (spare, end)
        a, b, odd = t.source(end), t.source(spare), t.compute(self.scope, n % 2, None)
        apart = t.now(t.word(), t.now(t.word(), a, "-", b), "*", odd)
        return Word(t.now(t.word(), b, "+", apart)), Word(t.now(t.word(), a, "-", apart))

    def begin(self) -> int:
        return self.table.record()

    def fill(self, begin: int, again: int | None) -> None:
        """Writes the records of moves, once all that follows the words is known."""
        follow = self.table.following(self.cells)
        ahead = [] if again is None else self.table.move(again, self.turn + self.advance + follow)
        self.table.move(begin, self.enter + ahead + follow)


def _scan(table: Table, scope: BufferAddresses, r: OpaqueOp, inner: Inner) -> None:
    n = inner.trips
    if not isinstance(n, int):
        some = table.word(WordAddress(table.compute(scope, minimum(n, 1), None)))
        test = table.record()
        _trips(table, scope, r, inner)
        leave = table.record()
        table.records[test] = [UNLESS, WordAddress(some), len(table.records)]
        _no_trip(table, scope, r, inner)
        table.records[leave] = [JUMP, len(table.records)]
    elif n:
        _trips(table, scope, r, inner)
    else:
        _no_trip(table, scope, r, inner)


def _no_trip(table: Table, scope: BufferAddresses, r: OpaqueOp, inner: Inner) -> None:
    """Carries are what they were."""
    body, _ = inner.bodies["body"]
    for first, last, b in zip(r.inputs[: r.attrs["carries"]], r.results, body.plan.inputs, strict=False):
        if real(b):
            table.copy(scope, scope.resolve(last), scope.resolve(first), body.layout.content(b))


def _trips(table: Table, scope: BufferAddresses, r: OpaqueOp, inner: Inner) -> None:
    carries, xs, reverse, n = r.attrs["carries"], r.attrs["xs"], r.attrs["reverse"], inner.trips
    body, child = scope.body(r, inner, "body", table)
    plan, content = body.plan, body.layout.content
    loop = _LoopInstructions(table, scope, inner)
    for k, (outer, b) in enumerate(zip(r.inputs, plan.inputs, strict=True)):
        if real(b) and k >= carries:
            place = scope.resolve(outer)
            child.name(b, loop.slices(place, content(b), reverse) if k < carries + xs else place)
    for stack, b in zip(r.results[carries:], plan.outputs[carries:], strict=True):
        if real(b):
            child.name(b, loop.slices(scope.resolve(stack), content(b), reverse))
    stacked: list[tuple[Place, Place, ExprLike]] = []
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
                stacked.append((end, taken, content(b)))
        else:  # the last trip puts it where it shall be
            taken, out = loop.swapped(start, *loop.ordered(end, scope.base.plus(inner.spare[k])))
            child.name(made, out)
        child.name(b, taken)
    table.add(child, body.code.once)
    trips = loop.number(n)
    begin, counter = loop.begin(), table.word()
    loop.enter.append((counter, table.source(0), 0))
    top, before = len(table.records), table.times
    most = scope.bound.layout.most(n)
    table.times *= ASSUMED_LENGTH if most is None else scope.bound.value(most)
    table.add(child, body.code.steps)
    table.times = before
    again = table.record()
    if isinstance(trips, Word):
        loop.enter.append((InstructionField(table.record(LOOP, WordAddress(counter), 0, top), "b"), trips.word, 0))
    elif not isinstance(trips, int):
        table.early(trips, InstructionField(table.record(LOOP, WordAddress(counter), 0, top), "b"))
    elif trips > 1:
        table.record(LOOP, WordAddress(counter), trips, top)
    for end, place, size in stacked:
        table.copy(scope, end, place, size)
    loop.fill(begin, again)


def _while(table: Table, scope: BufferAddresses, r: OpaqueOp, inner: Inner) -> None:
    carries = r.attrs["carries"]
    body, child = scope.body(r, inner, "body", table)
    test, asked = scope.body(r, inner, "cond", table)
    loop = _LoopInstructions(table, scope, inner)
    ends: list[tuple[Place, Place, ExprLike]] = []
    for k, (b, again) in enumerate(zip(body.plan.inputs, test.plan.inputs, strict=True)):
        if not real(b):
            continue
        place = scope.resolve(r.inputs[k])
        if k < carries:
            end, size = scope.resolve(r.results[k]), body.layout.content(b)
            place, out = loop.swapped(place, end, scope.base.plus(inner.spare[k]))
            child.name(body.plan.outputs[k], out)
            ends.append((end, place, size))
        child.name(b, place)
        asked.name(again, place)
    flag = scope.base.plus(inner.flag)
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
        body, child = scope.body(r, inner, name, table)
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

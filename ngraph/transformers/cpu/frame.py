"""A compiled plan with its lengths settled, and the memory and table of one call of it.

`Bound` is what all calls with equal lengths share: sizes, constants, what runs once. `Frame` is one call's arena and table; a call takes
one that is free, or has one made, so that calls on several threads never meet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ngraph.codegen import pool as pools
from ngraph.codegen.pool import FIELDS, FRAME, HOST, KERNEL, WORDS, aligned
from ngraph.errors import OutOfMemoryError
from ngraph.op_graph import expr
from ngraph.op_graph.expr import ExprLike, Len
from ngraph.plan.kernels import Buffer, Plan, places
from ngraph.program.program import AxisId
from ngraph.transformers.cpu.code import Code, Host, Native, Step
from ngraph.transformers.cpu.host import run_routine

ALIGN, HUGE = 64, 1 << 21
SHARE, PIECE = 2.5e-6, 5e-5  # seconds: what a thread is worth being given; what is long enough to be handed out piece by piece
PIECES = 8  # ranges for each thread of a long kernel
LET_GO = 2e-5  # seconds from which on other Python threads may run meanwhile
TABLE, PC, SCRATCH, STRIDE, THREADS, RELEASE, TIMES = (
    FIELDS["frame"][f] // 8 for f in ("table", "pc", "scratch", "stride", "threads", "release", "times")
)


def empty(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """An array without values; a large one starts at a line of the cache, a very large one at a huge page. Raises OutOfMemoryError."""
    size = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
    if size < 1 << 16:
        return np.empty(shape, dtype)
    alignment = HUGE if size >= HUGE << 1 else ALIGN
    available(size)
    try:
        raw = np.empty(size + alignment, np.uint8)
    except MemoryError:
        raise OutOfMemoryError(f"there is no room for {size:,} bytes") from None
    off = -raw.ctypes.data % alignment
    return raw[off : off + size].view(dtype).reshape(shape)


def available(size: int) -> None:
    """Raises OutOfMemoryError where the machine has not so many bytes; only large amounts are looked at."""
    if size < 1 << 28:
        return
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            free = {line.split(":")[0]: int(line.split()[1]) << 10 for line in file}
    except (OSError, ValueError, IndexError):
        return
    have = free.get("MemAvailable", size) + free.get("SwapFree", 0)
    if size > have:
        raise OutOfMemoryError(f"{size:,} bytes are needed, and the machine has {have:,}", fix="take a smaller batch")


class Bound:
    """A compiled plan for given lengths of its symbols."""

    def __init__(self, code: Code, lengths: Mapping[AxisId, int]):
        self.code, self.plan, self.lengths = code, code.plan, dict(lengths)
        self.arena = self.plan.arena
        self.offsets: dict[Buffer, int] = {}
        self.sizes: dict[Buffer, int | None] = {b: self._size(b) for b in self._buffers()}
        self.constants = {b: np.require(b.value.array, requirements="CA") for b in self.plan.buffers if b.value is not None}
        self.kept, self.kept_at = aligned(max(self.plan.kept, 1))
        self.version = -1
        self.preparing = threading.Lock()
        self.free: list[Frame] = []
        self.bodies: dict[int, Bound] = {}
        self.threads = pools.threads()
        self.results = [b for k, b in enumerate(self.plan.outputs) if b.home == "output" and b not in self.plan.outputs[:k]]

    def _buffers(self) -> list[Buffer]:
        """All buffers, those between the parts of a routine too."""
        found = dict.fromkeys(self.plan.buffers)
        for s in self.code.every:
            if type(s) is Native:
                found.update(dict.fromkeys(s.code.buffers))
        return list(found)

    def _size(self, b: Buffer) -> int | None:
        """Bytes; buffers without a place in the arena that are of known size get one behind it."""
        if b.dtype.np is None:
            return None
        size = b.bytes
        if size is None:
            try:
                size = int(np.prod(self.full(b), dtype=object)) * b.dtype.np.itemsize
            except LookupError:
                return None
        if b.offset is None and b.home in ("arena", "run", "temp"):
            self.offsets[b] = self.arena
            self.arena += -(-size // ALIGN) * ALIGN
        elif b.offset is not None:
            self.offsets[b] = b.offset
        return size

    def length(self, axis: AxisId, run: Callable[[Any], int] | None = None) -> int:
        return self.plan.length(axis, self.lengths, run)

    def full(self, b: Buffer, run: Callable[[Any], int] | None = None) -> tuple[int, ...]:
        """How many places each dim of a buffer has, borders and padding included."""
        shape = [places(b, d, self.length(d[0], run)) for d in b.dims]
        shape[-1:] = [-(-n // b.pad) * b.pad for n in shape[-1:]]
        return tuple(shape)

    def shape(self, b: Buffer, run: Callable[[Any], int] | None = None) -> tuple[int, ...]:
        return tuple([self.length(a, run) for a in b.axes])

    def take(self) -> Frame:
        try:
            return self.free.pop()
        except IndexError:
            return Frame(self)

    def prepare(self, version: int, states: Mapping[Buffer, np.ndarray]) -> None:
        """Runs the steps that run once, if state has changed since."""
        if self.version == version or not self.code.once:
            return
        with self.preparing:
            if self.version != version:
                frame = Frame(self, self.code.once)
                frame.point_all(states)
                frame.run()
                self.version = version

    def __call__(
        self, inputs: Sequence[Any], states: Sequence[Any], version: int = 0, outs: Sequence[Any] | None = None
    ) -> tuple[list[Any], dict[str, Any]]:
        """The outputs, and the states after it. `outs` are arrays for the results that fit."""
        plan = self.plan
        given = {before: array for (_, before, _), array in zip(plan.state, states, strict=True)}
        self.prepare(version, given)
        frame = self.take()
        given.update(zip(plan.inputs, inputs, strict=True))
        for k, b in enumerate(plan.outputs):
            if b.home == "output" and b not in given:
                given[b] = outs[k] if outs is not None else None
        return frame.call(given)


class Frame:
    """One call's memory: arena, arguments of kernels, the table that threads walk."""

    def __init__(self, bound: Bound, steps: Sequence[Step] | None = None):
        self.bound, self.plan = bound, bound.plan
        self.steps: list[Any] = []  # what each record is, for Python
        self.arena = empty((max(bound.arena, 1),), np.uint8)
        if bound.arena < 1 << 16:
            self.arena, _ = aligned(max(bound.arena, 1))
        self.arena_at = self.arena.ctypes.data
        self.arrays: dict[Buffer, Any] = {}  # what Python has seen or made
        self.places: dict[Buffer, list[int]] = {}  # words that hold the address of a buffer that changes from call to call
        self.words = np.zeros(FRAME, np.int64)
        own = bound.code.steps if steps is None else steps
        self._build(own)
        if steps is None and bound.code.start:
            first = Frame.__new__(Frame)
            first.share(self, bound.code.start)
            first.run()

    def share(self, other: Frame, steps: Sequence[Step]) -> None:
        """Becomes a frame for other steps over the memory of `other`."""
        self.bound, self.plan, self.steps = other.bound, other.plan, []
        self.arena, self.arena_at, self.arrays, self.places = other.arena, other.arena_at, {}, {}
        self.words = np.zeros(FRAME, np.int64)
        self._build(steps)

    # ---- the table

    def _build(self, steps: Sequence[Step]) -> None:
        natives = [s for s in steps if type(s) is Native]
        self.args = np.zeros(sum(len(s.code.buffers) + len(s.code.lengths) for s in natives) + 1, np.int64)
        self.args_at = self.args.ctypes.data
        self.scratch_size = 0
        total, at = 0.0, 0
        records: list[list[int]] = []
        self.late: dict[int, int] = {}  # record of a kernel whose lengths are not known yet -> where its arguments begin
        for s in steps:
            if type(s) is Host:
                records.append([HOST])
                self.steps.append(s)
                total += 1.0  # who knows
                continue
            late = not self._fill(s, at)
            if late:
                records.append([HOST])
                self.late[len(records)] = at
                self.steps.append(None)
            records.append([KERNEL, s.entry.address, self.args_at + 8 * at, 0, 1, 1, 0] if late else self._record(s, at))
            self.steps.append(s)
            at += len(s.code.buffers) + len(s.code.lengths)
            total += s.seconds
        self.table = np.zeros((len(records) + 1, WORDS), np.int64)
        for k, r in enumerate(records):
            self.table[k, : len(r)] = r
        wide = any(s.seconds >= 2 * SHARE for s in natives) and self.bound.threads > 1
        self.pool = self.bound.code.threads()
        threads = self.pool.ensure(self.bound.threads) if wide else 1
        self.words[THREADS], self.words[TABLE] = threads, self.table.ctypes.data
        self.words[RELEASE] = total > LET_GO
        self._scratch()
        self.host_steps = sum(r[0] == HOST for r in records)
        self.at = self.words.ctypes.data

    def _scratch(self) -> None:
        stride = -(-self.scratch_size // 4096) * 4096 + ALIGN
        self.scratch, self.words[SCRATCH] = aligned(stride * int(self.words[THREADS]))
        self.words[STRIDE] = stride

    def _fill(self, s: Native, at: int) -> bool:
        """Writes a kernel's arguments; False if some are not known yet."""
        known = True
        for k, b in enumerate(s.code.buffers, at):
            place = self.address(b)
            if place is None:
                self.places.setdefault(self.root(b), []).append(k)
                known = known and (self.bound.sizes[b] is not None or b.shares is not None)
            else:
                self.args[k] = place
        for k, a in enumerate(s.code.lengths, at + len(s.code.buffers)):
            try:
                self.args[k] = self.bound.length(a)
            except LookupError:
                known = False
        return known

    def _record(self, s: Native, at: int, run: Callable[[Any], int] | None = None) -> list[int]:
        """A kernel's record: how many turns, on how many threads, how many at a time."""
        turns = self.number(s.code.turns, run)
        self.scratch_size = max(self.scratch_size, self.number(s.code.scratch, run))
        most = self.bound.threads
        ways = max(1, min(most, turns, int(s.seconds / SHARE)))
        pieces = ways if s.seconds < PIECE * ways else ways * max(1, min(PIECES, int(s.seconds / (PIECE * ways))))
        long = s.seconds > PIECE
        return [KERNEL, s.entry.address, self.args_at + 8 * at, turns, max(1, -(-turns // pieces)), ways, int(long)]

    def number(self, e: ExprLike, run: Callable[[Any], int] | None = None) -> int:
        if isinstance(e, int):
            return e

        def leaf(x: Any) -> int:
            if type(x) is Len:
                return self.bound.length(x.of, run)
            raise LookupError(x)

        return int(expr.evaluate(e, leaf))

    # ---- memory

    @staticmethod
    def root(b: Buffer) -> Buffer:
        """The buffer whose memory it has."""
        while b.shares is not None:
            b = b.shares
        return b

    def address(self, b: Buffer) -> int | None:
        """Where a buffer lies, if that is the same in every call."""
        b = self.root(b)
        if b in self.bound.constants:
            return int(self.bound.constants[b].ctypes.data)
        at = self.bound.offsets.get(b)
        if at is None:
            return None
        return at + (self.bound.kept_at if b.home == "once" else self.arena_at)

    def point(self, b: Buffer, array: np.ndarray) -> None:
        """This buffer is that array, from now on."""
        self.arrays[b] = array
        at = self.places.get(b)
        if at:
            self.args[at] = array.__array_interface__["data"][0]

    def point_all(self, arrays: Mapping[Buffer, np.ndarray]) -> None:
        for b, array in arrays.items():
            self.point(b, array)

    def array(self, b: Buffer) -> np.ndarray:
        """What a buffer holds, by its axes."""
        b = self.root(b)
        if b in self.arrays:
            return self.arrays[b]
        if b in self.bound.constants:
            return self.bound.constants[b]
        shape, full = self.bound.shape(b, self.run_length), self.bound.full(b, self.run_length)
        at, item = self.bound.offsets[b], b.dtype.np.itemsize
        memory = self.bound.kept if b.home == "once" else self.arena
        whole = memory[at : at + int(np.prod(full, dtype=object)) * item].view(b.dtype.np)
        if full == shape:
            return whole.reshape(shape)
        strides = b.strides or tuple(int(np.prod(full[k + 1 :], dtype=object)) for k in range(len(full)))
        return np.lib.stride_tricks.as_strided(whole[b.first :], shape, [item * n for n in strides])

    def run_length(self, b: Buffer) -> int:
        return int(self.array(b))

    def length(self, axis: AxisId) -> int:
        return self.bound.length(axis, self.run_length)

    def shape(self, b: Buffer) -> tuple[int, ...]:
        return self.bound.shape(b, self.run_length)

    @property
    def bodies(self) -> dict[int, Bound]:
        return self.bound.bodies

    def place(self, b: Buffer) -> np.ndarray:
        """The memory of a buffer that a host step is about to fill."""
        if self.address(b) is None and self.root(b) not in self.arrays:
            self.point(self.root(b), np.empty(self.bound.full(b, self.run_length), b.dtype.np))
        return self.array(b)

    # ---- running

    def run(self) -> None:
        """Walks the table to its end; Python takes the steps that are its own."""
        words, pool = self.words, self.pool
        words[PC] = 0
        while pool.run(pool.address, self.at):
            k = int(words[PC])
            step = self.steps[k]
            if step is None:
                self._settle(k + 1)
            else:
                run_routine(self, step.step)
            words[PC] = k + 1

    def _settle(self, k: int) -> None:
        """A kernel whose lengths have become known gets its arguments."""
        s, at = self.steps[k], self.late[k]
        for i, b in enumerate(s.code.buffers, at):
            if self.address(b) is None:
                self.place(b)
                self.args[i] = self.array(b).ctypes.data
        for i, a in enumerate(s.code.lengths, at + len(s.code.buffers)):
            self.args[i] = self.bound.length(a, self.run_length)
        before = self.scratch_size
        self.table[k, :7] = self._record(s, at, self.run_length)
        if self.scratch_size > before:
            self._scratch()

    def call(self, given: dict[Buffer, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Runs over these arrays; outputs given as None are made."""
        bound, plan = self.bound, self.plan
        for b, array in given.items():
            if array is None:
                try:
                    array = empty(bound.shape(b), b.dtype.np)
                except LookupError:
                    continue  # a step makes it
            self.point(b, array)
        taken = set(given)
        states: dict[str, Any] = {}
        for name, before, after in plan.state:
            root = self.root(after)
            if after is not before and root not in taken and root.home == "state":
                taken.add(root)
                self.point(root, empty(bound.shape(root), root.dtype.np))
        self.run()
        seen: set[int] = set()
        outputs = [self._given(b, b.home == "output", seen) for b in plan.outputs]
        befores = {before for _, before, _ in plan.state}
        for name, before, after in plan.state:
            root = self.root(after)
            states[name] = self._given(after, root is before or root.home == "state" and root not in befores, seen)
        self.arrays = {}
        bound.free.append(self)
        return outputs, states

    def _given(self, b: Buffer, own: bool, seen: set[int]) -> np.ndarray:
        """What a buffer holds, as an array that nobody else has."""
        array = self.array(b)
        if own and id(array) not in seen:
            seen.add(id(array))
            return array
        return np.array(array, order="C")

"""Runs scheduled plans in NumPy in the order that the schedule says: the oracle of every schedule, on machines without the device.

Memory is flat and addresses are those of the schedule, so that a wrong stride, tail or merged loop gives wrong values. Beside the values
it checks what no value shows: addresses outside a buffer, reads of elements that were not stored, and elements that two work items store
with different values, or that one stores and another reads. The threads of a block run from barrier to barrier: where one reads or stores
what another has stored since the last barrier, or stores what another has read, the order of threads could be seen, which is an error. So
is a barrier that some threads do not come to.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ngraph.errors import ProgramError
from ngraph.op_graph import expr
from ngraph.op_graph.expr import ExprLike, Idx, Leaf, Len
from ngraph.plan.interpret import GARBAGE, PlanRun
from ngraph.plan.kernels import Buffer, Combine, Kernel, Line, Local, Plan
from ngraph.program.program import AxisId
from ngraph.schedule.form import (
    BARRIERS,
    Access,
    BlockNumber,
    BlockStart,
    Loop,
    LoopKind,
    ScheduledKernel,
    ScheduledPlan,
    ScheduledStage,
    Version,
)
from ngraph.schedule.matrix import instruction
from ngraph.schedule.search import matrix_rows, open_segments, segments
from ngraph.targets.products import PRODUCTS
from ngraph.tensors.index import Load
from ngraph.tensors.scalars import COMBINE, elementwise


def interpret(
    scheduled: ScheduledPlan,
    inputs: Sequence[Any],
    state: Mapping[str, Any] | None = None,
    lengths: Mapping[AxisId, int] | None = None,
) -> tuple[list[Any], dict[str, np.ndarray]]:
    """The outputs, and the state afterwards. Raises ProgramError where a kernel breaks a rule of the module."""
    return ScheduleRun(scheduled, dict(lengths or {})).call(inputs, state or {})


class _Elements:
    """The elements of a buffer in one kernel.

    written     whether an element is stored, for what the kernel fills
    writer      the work item that stored it
    storing     the thread that stored it since the last barrier: -1 for none
    reading     the thread that read it since then: -1 for none, -2 for several
    """

    def __init__(self, b: Buffer, flat: np.ndarray, fresh: bool) -> None:
        self.name, self.flat = b.name or type(b).__name__.lower(), flat
        self.written = np.zeros(flat.size, bool) if fresh else None
        self.writer = np.full(flat.size, -1)
        self.storing, self.reading = np.full(flat.size, -1), np.full(flat.size, -1)
        self.used = False  # since the last barrier

    def barrier(self) -> None:
        """Forgets which threads have stored and read: all of them know now."""
        if self.used:
            self.storing.fill(-1)
            self.reading.fill(-1)
            self.used = False

    def check(self, at: np.ndarray, what: str) -> None:
        """Raises ProgramError for addresses outside."""
        if at.size and (at.min() < 0 or at.max() >= self.flat.size):
            raise ProgramError(f"{what} {self.name} at elements {at.min()} to {at.max()}, and it has {self.flat.size}")

    def read(self, at: np.ndarray, item: int, thread: np.ndarray | None = None) -> np.ndarray:
        """The elements at addresses; `thread`: that reads each of them."""
        self.check(at, "a kernel reads")
        if self.written is not None and not self.written[at].all():
            raise ProgramError(f"a kernel reads {self.name} at element {at[~self.written[at]][0]}, which it has not stored before")
        others = (self.writer[at] >= 0) & (self.writer[at] != item)
        if others.any():
            raise ProgramError(f"work item {item} reads {self.name} at element {at[others][0]}, which another one stores")
        if thread is not None:
            self.race(at, thread, self.storing, "reads", "has stored")
            self.reading[at] = np.where((self.reading[at] == -1) | (self.reading[at] == thread), thread, -2)
            several = self.reading[at] != thread
            self.reading[at[several]] = -2
            self.used = True
        return self.flat[at]

    def race(self, at: np.ndarray, thread: np.ndarray, since: np.ndarray, does: str, did: str) -> None:
        """Raises ProgramError where another thread has done something to an element since the last barrier."""
        wrong = (since[at] != -1) & (since[at] != thread)
        if wrong.any():
            k = int(np.flatnonzero(wrong)[0])
            other = "another thread" if since[at[k]] < 0 else f"thread {since[at[k]]}"
            raise ProgramError(f"thread {thread[k]} {does} {self.name} at element {at[k]}, which {other} {did} since the last barrier")

    def store(self, at: np.ndarray, value: np.ndarray, how: str, item: int, shared: bool, thread: np.ndarray | None = None) -> None:
        """Stores at addresses; `shared`: other work items see it; `thread`: that stores each of them."""
        self.check(at, "a kernel stores")
        if thread is not None:
            self.race(at, thread, self.storing, "stores", "has stored")
            self.race(at, thread, self.reading, "stores", "has read")
            self.storing[at] = thread
            self.race(at, thread, self.storing, "stores", "stores too")
            self.used = True
        if how == "set":
            others = shared & (self.writer[at] >= 0) & (self.writer[at] != item)
            same = self.flat[at[others]].tobytes() == value[others].astype(self.flat.dtype).tobytes() if others.any() else True
            if not same:
                raise ProgramError(f"work items store different values in {self.name} at element {at[others][0]}")
            self.flat[at] = value
        else:
            if self.written is not None and not self.written[at].all():
                raise ProgramError(f"a kernel folds values into {self.name} before it has stored any")
            with np.errstate(all="ignore"):
                COMBINE[how].at(self.flat, at, value)
        if self.written is not None:
            self.written[at] = True
        if shared:
            self.writer[at] = item


class ScheduleRun(PlanRun):
    """A plan whose kernels run as scheduled."""

    def __init__(self, scheduled: ScheduledPlan, lengths: dict[AxisId, int]) -> None:
        super().__init__(scheduled.plan, lengths)
        self.scheduled = scheduled

    def body(self, plan: Plan, arrays: Sequence[Any]) -> list[Any]:
        known = {a: self.length(a) for a, n in plan.axes.items() if n == Len(a) and a in self.plan.axes}
        return ScheduleRun(self.scheduled.bodies[plan], known).call(arrays, {})[0]

    def number(self, e: ExprLike, blocks: Mapping[AxisId, int] | None = None) -> int:
        """An expression over lengths and block numbers."""

        def leaf(x: Leaf) -> int:
            return (blocks or {})[x.of] if type(x) is BlockNumber else self.length(x.of)

        return int(expr.evaluate(e, leaf))

    def work_items(self, kernel: Kernel) -> None:
        scheduled = self.scheduled.kernels[kernel]
        memory = {b: self.memory_of(scheduled, b) for b in dict.fromkeys((*kernel.sources, *kernel.targets, *scheduled.places))}
        counts = [self.number(d.extent) for d in scheduled.grid]
        items = list(itertools.product(*map(range, counts[: len(kernel.parallel)])))
        items = items[1::2] + items[0::2][::-1]  # they are parallel: no order may matter
        before: tuple[int, ...] = ()
        for n, item in enumerate(items):
            axes = [d.parts[0][0] for d in scheduled.grid]
            stages = self.version(scheduled, dict(zip(axes, item, strict=False))).stages
            running = [k for k, s in enumerate(stages) if not n or item[: s.stage.depth] != before[: s.stage.depth]]
            alone = scheduled.threads > 1  # blocks of threads find nothing that another one left
            running = [*range(len(stages))] if alone else running
            stored = {s.target for k in running for s in stages[k].stage.to if type(s.target) is Local}
            for target in scheduled.places if alone else stored:
                written = memory[target].written
                assert written is not None  # a Local's elements are the kernel's own
                written[:] = False
            for m in memory.values():
                m.barrier()
            for block, some in kernel.rounds(running, counts[-1] if counts else 0):
                blocks = dict(zip(axes, (*item, *block), strict=True))
                for k in some:
                    _StageRun(self, memory, scheduled, stages[k], blocks, n).run_all()
            before = item

    def version(self, scheduled: ScheduledKernel, blocks: Mapping[AxisId, int]) -> Version:
        """The version for a work item's blocks."""
        sizes = {a: min(b, self.length(a) - blocks[a] * b) for a, b in scheduled.kernel.parallel}
        bound = next(b for b in scheduled.bounds if b is None or self.length(b.axis) <= b.most)
        found = [v for v in scheduled.bounded(bound) if all(sizes[a] == n for a, n in v.blocks.items())]
        if len(found) != 1:
            raise ProgramError(f"{len(found)} versions of a kernel are for blocks of {sizes}")
        return found[0]

    def memory_of(self, scheduled: ScheduledKernel, b: Buffer) -> _Elements:
        """The elements of a buffer as the kernel addresses them."""
        if type(b) is Local:
            place = scheduled.places[b]
            n = self.number(place.elements) * (scheduled.threads if place.space == "register" else 1)
            return _Elements(b, np.full(n * b.dtype.np.itemsize, GARBAGE, np.uint8).view(b.dtype.np), True)
        array = np.asarray(self.arrays[b])
        strides = [self.number(n) for n in scheduled.strides[b]]
        size = array.dtype.itemsize
        if array.size and any(n > 1 and s != k * size for n, s, k in zip(array.shape, array.strides, strides, strict=True)):
            if b in scheduled.kernel.targets:
                raise ProgramError(f"{b.name} lies with strides {array.strides} of bytes, and its kernel takes {strides} elements")
            array = np.ascontiguousarray(array)
        reach = 1 + sum([(n - 1) * k for n, k in zip(array.shape, strides, strict=True)]) if array.size else 0
        flat = np.lib.stride_tricks.as_strided(array, (reach,), (size,))
        return _Elements(b, flat, b in scheduled.kernel.targets and b.shares is None)


class _StageRun:
    """One stage in one work item. Values are arrays over (rows, columns, lanes, threads) of the tile, of length 1 where they do not differ.

    above   the counters of the loops around it, where it fills the tile of a source
    """

    def __init__(
        self,
        run: ScheduleRun,
        memory: Mapping[Buffer, _Elements],
        kernel: ScheduledKernel,
        scheduled: ScheduledStage,
        blocks: Mapping[AxisId, int],
        item: int,
        above: Mapping[Loop, np.ndarray] | None = None,
    ) -> None:
        self.run, self.memory, self.kernel, self.scheduled, self.blocks, self.item = run, memory, kernel, scheduled, blocks, item
        self.stage, self.tile = scheduled.stage, scheduled.tile
        self.covered: dict[Loop, int] = {}
        self.uncertain: set[Loop] = set()  # digits under the last place of a loop whose length is open
        self.at: dict[Loop, np.ndarray] = dict(above or {})  # the counters of the open loops over the tile
        self.units: dict[Loop, int] = {}
        self.border = len(self.stage.before)
        self.threads = np.arange(kernel.threads).reshape(1, 1, 1, -1)
        self.spread = scheduled.spread
        self.tails = () if scheduled.block is None else scheduled.block.tails
        used = math.prod([d.extent for d in self.spread if isinstance(d.extent, int)])
        self.mask = self.threads < max(used, 1)  # lanes and threads inside
        self.rows = np.ones((1, 1, 1, 1), bool)  # and rows

    def run_all(self) -> None:
        """The stage, after the barrier before it."""
        self.barrier("stage")
        self.free(0)

    def barrier(self, where: str) -> None:
        """All threads of the block wait for each other, if there is such a barrier."""
        block = self.scheduled.block
        if block is None or where not in block.barriers:
            return
        if where != "stage":
            self.together(f"a barrier {BARRIERS[where]}")
        for m in self.memory.values():
            m.barrier()

    def together(self, what: str) -> None:
        """Raises ProgramError where threads have left the loop nest that others are in."""
        block = self.scheduled.block
        if block is None or not block.skip:
            return
        here = self.mask & self.within([e for e in block.tails if not self.later(e)])
        inside = np.broadcast_to(here, np.broadcast_shapes(here.shape, self.threads.shape)).any((0, 1, 2))
        if not inside.all():
            raise ProgramError(f"{what} is in a loop nest that thread {int(np.flatnonzero(~inside)[0])} has left")

    def later(self, e: ExprLike) -> bool:
        """Whether a predicate is one of loops that are not open yet."""
        opened = {a for d in self.at for a, _, _ in d.parts}
        return any(type(x) is Idx and x.of not in opened and x.of not in self.blocks for x in expr.leaves(e))

    def within(self, tails: Sequence[ExprLike]) -> np.ndarray:
        """A mask of the places inside the block."""
        return self.holds(tails, {})

    # ---- loops

    def free(self, k: int) -> None:
        """The free loops from the k-th on, and the tile inside them."""
        order = self.tile.order
        if k < len(order):
            for _ in self.iterations(order[k]):
                self.free(k + 1)
            return
        lines: dict[int, np.ndarray] = {}
        mask = self.mask
        if self.scheduled.reducing:
            lines |= self.sums()
            self.mask = mask & self.within([e for e in self.tails if not self.later(e)])
        else:
            self.mask = mask & self.within(self.tails)
            self.compute(range(self.border), lines)
        self.compute(range(self.border + len(self.stage.combine), self.border + len(self.stage.combine) + len(self.stage.after)), lines)
        self.store(lines, [k for k, s in enumerate(self.stage.to) if not self.scheduled.reducing or s.line >= self.border])
        self.mask = mask

    def iterations(self, d: Loop) -> Iterator[None]:
        """Each iteration of a loop, with its counter set."""
        n = -(-self.covered[d] // d.unit) if d in self.covered else self.run.number(d.extent, self.blocks)
        if d in self.spread:
            self.at[d], self.units[d] = self.threads // self.spread[d] % n, 1
            yield
            del self.at[d], self.units[d]
            return
        unit, units = (self.tile.lanes if d is self.tile.vector else 1), self.tile.units(d)
        total = self.covered[d] if d in self.covered else self.run.number(d.total, self.blocks)
        unknown = (d.uneven and not isinstance(d.total, int)) or d in self.uncertain
        if d.lower is not None and (unknown or total % d.unit):  # the last place covers less
            for i in range(n):
                size = min(d.unit, total - i * d.unit)
                with self.covering(d.lower, size, unknown and size < d.unit), self.opened(d, i, 1, None):
                    yield
            return
        if d is self.tile.deep:
            for i in range(0, n, self.tile.terms):
                self.terms = min(self.tile.terms, n - i)
                with self.opened(d, i, 1, None):
                    yield
            return
        if d is self.tile.tile and self.tile.deep is not None:
            known = isinstance(d.extent, int) and d not in self.uncertain
            row, _ = instruction(self.stage, self.kernel.target)
            for first, last, size, _ in matrix_rows(n, units, row.m, known):
                for i in range(first, last, size):
                    with self.opened(d, i, size, None):
                        yield
            return
        if isinstance(d.extent, int) and d not in self.uncertain:
            for first, last, size, left in segments(n, unit, units):
                for i in range(first, last, unit * size):
                    with self.opened(d, i, size, left):
                        yield
            return
        for first, last, size, left in open_segments(n, unit, units, self.scheduled.cuts_rows(d)):
            for i in range(first, last, unit * size):
                with self.opened(d, i, size, left):
                    yield

    @contextmanager
    def covering(self, d: Loop | None, total: int, unknown: bool = False) -> Iterator[None]:
        before = dict(self.covered), set(self.uncertain)
        while d is not None:
            self.covered[d] = total
            (self.uncertain.add if unknown else self.uncertain.discard)(d)
            total, d = min(d.unit, total), d.lower
        yield
        self.covered, self.uncertain = before

    @contextmanager
    def opened(self, d: Loop, first: int, units: int, left: int | None) -> Iterator[None]:
        """The loop at this place, with so many steps of the tile, the last of which has `left` lanes."""
        mask, counter = self.mask, np.full((1, 1, 1, 1), first)
        if d is self.tile.across:
            counter = counter + np.arange(units).reshape(1, -1, 1, 1) * (self.tile.lanes if d is self.tile.vector else 1)
        elif d is self.tile.tile:
            rows = np.arange(units).reshape(-1, 1, 1, 1)
            counter = counter + (rows if left is None else np.minimum(rows, left - 1))
            self.rows = self.rows if left is None else rows < left
        if d is self.tile.vector:
            lanes = np.arange(self.tile.lanes).reshape(1, 1, -1, 1)
            counter = counter + lanes
            if left is not None:
                last = np.arange(units).reshape(1, -1, 1, 1) == units - 1 if d is self.tile.across else True
                self.mask = mask & ((lanes < left) | ~np.asarray(last))
        self.at[d], self.units[d] = counter, units
        yield
        self.mask = mask
        if d is self.tile.tile:
            self.rows = np.ones((1, 1, 1, 1), bool)
        del self.at[d], self.units[d]

    # ---- sums

    def sums(self) -> dict[int, np.ndarray]:
        """The accumulators after the reduced loops."""
        tile, columns = self.tile, self.tile.columns if self.tile.across in self.scheduled.reduced else 1
        lanes = tile.lanes if tile.vector in self.scheduled.reduced else 1
        found = [np.full((1, columns, lanes, 1), _identity(c)) for c in self.stage.combine]
        early = [k for k, s in enumerate(self.stage.to) if s.line < self.border]

        def level(k: int) -> None:
            if self.scheduled.copies and self.scheduled.block is not None and k == self.scheduled.block.outer:
                self.copy()
            if k < len(self.scheduled.sums):
                for _ in self.iterations(self.scheduled.sums[k]):
                    level(k + 1)
                return
            if tile.deep is not None:
                found[0] = self.of_matrices(found[0])
                return
            lines: dict[int, np.ndarray] = {}
            mask = self.mask
            self.mask = mask & self.within(self.tails)
            self.compute(range(self.border), lines)
            here = self.units.get(tile.across, 1) if tile.across is not None and columns > 1 else 1
            for n, c in enumerate(self.stage.combine):
                x = lines[c.line]
                shape = np.broadcast_shapes(x.shape, (1, here if columns > 1 else 1, lanes, self.threads.size))
                if lanes > 1 or self.tails or self.spread:
                    shape = np.broadcast_shapes(shape, self.mask.shape)
                x = np.broadcast_to(x, shape)
                if lanes > 1 or self.tails or self.spread:
                    x = np.where(self.mask, x, _identity(c)).astype(x.dtype)
                    shape = x.shape
                old = found[n]
                if columns > 1:
                    old = np.array(np.broadcast_to(old, np.broadcast_shapes(old.shape, (shape[0], columns, *shape[2:]))))
                    old[:, :here] = _fold(c, old[:, :here], x)
                    found[n] = old
                else:
                    found[n] = _fold(c, old, x)
            self.store(lines, early)
            self.mask = mask

        level(0)
        made = {}
        for n, (c, x) in enumerate(zip(self.stage.combine, found, strict=True)):
            if columns > 1:
                parts = [x[:, j : j + 1] for j in range(columns)]
                while len(parts) > 1:
                    parts = [_fold(c, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)] + parts[len(parts) // 2 * 2 :]
                x = parts[0]
            while lanes > 1 and x.shape[2] > 1:
                half = x.shape[2] // 2
                x = _fold(c, x[:, :, :half], x[:, :, half:])
            made[self.border + n] = self.of_warps(c, x)
        return self.of_groups(made)

    def of_matrices(self, sums: np.ndarray) -> np.ndarray:
        """Sums with what one instruction for matrices adds: of each term the sums of its products of one place, then of all places."""
        deep, c = self.tile.deep, self.stage.combine[0]
        assert deep is not None
        product = self.stage.before[c.line]
        of = PRODUCTS[product.op]
        first, each = self.at[deep], list[np.ndarray]()
        for k in range(self.terms):
            self.at[deep] = first + k
            lines: dict[int, np.ndarray] = {}
            self.compute(range(c.line), lines)
            x, y = np.broadcast_arrays(*[lines[n] for n in product.args])
            u, v = (
                z.astype("<u4").view(d.np).reshape(*z.shape, of.k)
                for z, d in zip((np.ascontiguousarray(x), np.ascontiguousarray(y)), of.operands, strict=True)
            )
            terms = u.astype(of.sum.np) * v.astype(of.sum.np)
            each = [terms[..., n] + (each[n] if k else 0) for n in range(of.k)]
        self.at[deep] = first
        return np.asarray(sums + sum(each[1:], each[0])).astype(c.dtype.np)

    # ---- the threads of a block

    def copy(self) -> None:
        """Tiles of sources, by all threads of the block."""
        self.barrier("tile")
        for _, _, stage in self.scheduled.copies:
            _StageRun(self.run, self.memory, self.kernel, stage, self.blocks, self.item, self.outer_counters()).free(0)
        self.barrier("copied")

    def outer_counters(self) -> dict[Loop, np.ndarray]:
        """The counters of the reduced loops around the tiles of sources: they are the same for all threads."""
        assert self.scheduled.block is not None
        return {d: self.at[d] for d in self.scheduled.sums[: self.scheduled.block.outer]}

    def of_warps(self, c: Combine, x: np.ndarray) -> np.ndarray:
        """An accumulator with the sums of all lanes of a warp that share it: each adds what the lane half the way, a quarter … off has."""
        for d in [d for d in self.scheduled.reduced if self.scheduled.kind(d) is LoopKind.WARP]:
            self.together(f"an exchange between lanes along {d.name}")
            x = np.broadcast_to(x, (*x.shape[:3], self.threads.size))
            lane, step = self.threads.ravel(), self.run.number(d.extent) // 2
            while step:
                x = _fold(c, x, x[..., lane ^ (step * self.spread[d])])
                step //= 2
        return x

    def of_groups(self, made: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        """Accumulators with the sums of all warps that share them, which meet in shared memory."""
        groups = [d for d in self.scheduled.reduced if self.scheduled.kind(d) is LoopKind.GROUP_REDUCE]
        if not groups:
            return made
        lanes = math.prod([self.run.number(d.extent) for d in self.spread if self.scheduled.kind(d) is LoopKind.WARP])
        inner = math.prod([self.run.number(d.extent) for d in self.spread if self.scheduled.kind(d) is LoopKind.THREAD])
        count = math.prod([self.run.number(d.extent) for d in groups])
        place = self.threads // lanes
        inside = self.threads < lanes * inner * count
        self.barrier("partials")
        size = dict[int, int]()
        for b, (n, x) in zip(self.scheduled.partials, made.items(), strict=True):
            x = np.broadcast_to(x, (*x.shape[:3], self.threads.size))
            size[n] = math.prod(x.shape[:3])
            at = place * size[n] + np.arange(size[n]).reshape(*x.shape[:3], 1)
            first = np.broadcast_to(inside & (self.threads % lanes == 0), x.shape)
            self.memory[b].store(at[first], x[first], "set", self.item, False, np.broadcast_to(self.threads, x.shape)[first])
        self.barrier("folded")
        found = dict[int, np.ndarray]()
        for b, c, (n, x) in zip(self.scheduled.partials, self.stage.combine, made.items(), strict=True):
            total = np.full((*x.shape[:3], self.threads.size), _identity(c))
            each = np.broadcast_to(inside, total.shape)
            for g in range(count):
                at = ((g * inner + place % inner) * size[n] + np.arange(size[n]).reshape(*x.shape[:3], 1))[each]
                part = np.full(total.shape, _identity(c))
                part[each] = self.memory[b].read(at, self.item, np.broadcast_to(self.threads, total.shape)[each])
                total = _fold(c, total, part) if g else part
            found[n] = total
        return found

    # ---- lines

    def compute(self, numbers: Sequence[int], lines: dict[int, np.ndarray]) -> None:
        """The values of these lines, in their order."""
        every = dict(self.stage.lines())
        for n in numbers:
            lines[n] = self.line(n, every[n], lines)

    def line(self, n: int, line: Line, lines: dict[int, np.ndarray]) -> np.ndarray:
        if line.op == "number":
            return np.asarray(line.dtype.array(line.attrs["value"])).reshape(1, 1, 1, 1)
        if line.op == "index":
            return self.whole(line.attrs["value"], lines).astype(line.dtype.np)
        if line.op == "predicate":
            return self.holds(line.attrs["predicate"], lines)
        if line.op == "read":
            return self.read(self.scheduled.reads[n], lines)
        args = np.broadcast_arrays(*[lines[k] for k in line.args])
        return elementwise(line.op, line.attrs, line.dtype, args, args[0].shape)

    def whole(self, e: ExprLike, lines: dict[int, np.ndarray]) -> np.ndarray:
        """An expression over the tile."""

        def leaf(x: Leaf) -> Any:
            if type(x) is Idx:
                return self.index(x.of)
            if type(x) is Load:
                return lines[x.of].astype(np.int64)
            if type(x) is BlockStart:
                start = self.scheduled.forms.start[x.of]
                at = np.zeros((1, 1, 1, 1), np.int64)
                for d, c in start.coef.items():
                    at = at + (self.blocks[x.of] if d.grid else self.at[d]) * self.run.number(c, self.blocks)
                return at
            return self.run.number(x, self.blocks)

        found = np.asarray(expr.evaluate(e, leaf))
        return found if found.ndim else found.reshape((1, 1, 1, 1))

    def index(self, a: AxisId) -> np.ndarray:
        """The index along an axis: where the block begins, and the digits of the open loops."""
        kernel_block = self.blocks.get(a)
        found = np.full((1, 1, 1, 1), kernel_block * self.block(a) if kernel_block is not None else 0)
        for d, at in self.at.items():
            for k, (axis, unit, _) in enumerate(d.parts):
                if axis == a:
                    behind = [self.run.number(places, self.blocks) for _, _, places in d.parts[k + 1 :]]
                    digit = at // int(np.prod(behind, dtype=np.int64))
                    places = self.run.number(d.parts[k][2], self.blocks)
                    found = found + (digit if k == 0 else digit % max(places, 1)) * unit
        return found

    def block(self, a: AxisId) -> int:
        """Returns the number of elements of a grid block along an axis."""
        return dict(self.kernel.kernel.loops).get(a, 0)

    def holds(self, predicate: Sequence[ExprLike], lines: dict[int, np.ndarray]) -> np.ndarray:
        ok = np.ones((1, 1, 1, 1), bool)
        for e in predicate:
            ok = ok & (self.whole(e, lines) >= 0)
        return ok

    # ---- memory

    def address(self, a: Access, lines: dict[int, np.ndarray]) -> np.ndarray:
        """The elements from the start of the buffer to each place of the tile."""
        at = np.full((1, 1, 1, 1), a.const)
        for d, c in a.base:
            at = at + self.run.number(c, self.blocks) * (1 if d is None else self.blocks[d.parts[0][0]])
        for d, c in a.coef.items():
            at = at + self.at[d] * self.run.number(c, self.blocks)
        for stride, e in a.rest:
            at = at + self.run.number(stride, self.blocks) * self.whole(e, lines)
        return at

    def read(self, a: Access, lines: dict[int, np.ndarray]) -> np.ndarray:
        ok, at = self.holds(a.predicate, lines), self.address(a, lines)
        if self.tile.vector in a.deps or self.scheduled.block is not None:
            ok = ok & self.mask
        ok, at, thread = np.broadcast_arrays(ok, at, self.threads)
        made = np.full(at.shape, a.dtype.array(a.pad_value) if a.predicate else 0, a.dtype.np)
        made[ok] = self.memory[a.source].read(self.own(a, at, thread)[ok], self.item, thread[ok] if self.threads.size > 1 else None)
        return made

    def own(self, a: Access, at: np.ndarray, thread: np.ndarray) -> np.ndarray:
        """Addresses in what the threads have of a Local, where each of them has one of its own."""
        place = self.kernel.places.get(a.source) if type(a.source) is Local else None
        if place is None or place.space != "register":
            return at
        elements = self.run.number(place.elements)
        if at.size and (at.min() < 0 or at.max() >= elements):
            raise ProgramError(f"a thread goes to elements {at.min()} to {at.max()} of {a.source.name}, and has {elements}")
        return np.asarray(at + thread * elements)

    def store(self, lines: dict[int, np.ndarray], which: Sequence[int]) -> None:
        values = {k: lines[self.stage.to[k].line] for k in which}  # all values come before the first store: buffers may share memory
        for k, value in values.items():
            a, s = self.scheduled.stores[k], self.stage.to[k]
            ok = self.holds(a.predicate, lines) & self.rows
            if self.tile.vector in a.deps | self.scheduled.deps[s.line] or self.scheduled.block is not None:
                ok = ok & self.mask
            ok, at, value, thread = np.broadcast_arrays(ok, self.address(a, lines), value, self.threads)
            if s.line >= self.border and self.scheduled.reducing and not self.registers(a):
                ok = ok & self.first()
            at, by = self.own(a, at, thread)[ok], thread[ok] if self.threads.size > 1 else None
            self.memory[a.source].store(at, value[ok], s.combine, self.item, type(a.source) is not Local, by)

    def registers(self, a: Access) -> bool:
        """Whether an access is to what each thread has of a Local."""
        return type(a.source) is Local and self.kernel.places[a.source].space == "register"

    def first(self) -> np.ndarray:
        """The threads that store sums: of those that share one, the first."""
        ok = np.ones((1, 1, 1, 1), bool)
        for d, step in self.spread.items():
            if d in self.scheduled.reduced:
                ok = ok & (self.threads // step % self.run.number(d.extent) == 0)
        return ok


def _identity(c: Combine) -> Any:
    number = {"add": 0, "multiply": 1, "max": c.dtype.lowest, "min": c.dtype.highest}[c.kind]
    return np.array(number).astype(c.dtype.np)


def _fold(c: Combine, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    fold: Callable[..., Any] = COMBINE[c.kind]
    with np.errstate(all="ignore"):
        return np.asarray(fold(a, b)).astype(c.dtype.np)

"""Runs scheduled plans in NumPy in the order that the schedule says: the oracle of every schedule, on machines without the device.

Memory is flat and addresses are those of the schedule, so that a wrong stride, tail or merged loop gives wrong values. Beside the values
it checks what no value shows: addresses outside a buffer, reads of elements that nobody has stored, and elements that two work items store
with different values, or that one stores and another reads.
"""

from __future__ import annotations

import itertools
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
from ngraph.schedule.form import Access, BlockNumber, Loop, ScheduledKernel, ScheduledPlan, ScheduledStage, Version
from ngraph.schedule.search import segments
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
    """The elements of a buffer in one kernel. `written`, `writer`: whether and by which work item, for what the kernel fills."""

    def __init__(self, b: Buffer, flat: np.ndarray, fresh: bool) -> None:
        self.name, self.flat = b.name or type(b).__name__.lower(), flat
        self.written = np.zeros(flat.size, bool) if fresh else None
        self.writer = np.full(flat.size, -1)

    def check(self, at: np.ndarray, what: str) -> None:
        """Raises ProgramError for addresses outside."""
        if at.size and (at.min() < 0 or at.max() >= self.flat.size):
            raise ProgramError(f"{what} {self.name} at elements {at.min()} to {at.max()}, and it has {self.flat.size}")

    def read(self, at: np.ndarray, item: int) -> np.ndarray:
        self.check(at, "a kernel reads")
        if self.written is not None and not self.written[at].all():
            raise ProgramError(f"a kernel reads {self.name} at element {at[~self.written[at]][0]}, which it has not stored before")
        others = (self.writer[at] >= 0) & (self.writer[at] != item)
        if others.any():
            raise ProgramError(f"work item {item} reads {self.name} at element {at[others][0]}, which another one stores")
        return self.flat[at]

    def store(self, at: np.ndarray, value: np.ndarray, how: str, item: int, shared: bool) -> None:
        """Stores at addresses; `shared`: other work items see it."""
        self.check(at, "a kernel stores")
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
        items = list(itertools.product(*[range(self.number(d.extent)) for d in scheduled.grid]))
        items = items[1::2] + items[0::2][::-1]  # they are parallel: no order may matter
        before: tuple[int, ...] = ()
        for n, item in enumerate(items):
            blocks = {d.parts[0][0]: k for d, k in zip(scheduled.grid, item, strict=True)}
            stages = self.version(scheduled, blocks).stages
            running = [s for s in stages if not n or item[: s.stage.depth] != before[: s.stage.depth]]
            for target in {s.target for stage in running for s in stage.stage.to if type(s.target) is Local}:
                written = memory[target].written
                assert written is not None  # a Local's elements are the kernel's own
                written[:] = False
            for stage in running:
                _StageRun(self, memory, stage, blocks, n).free(0)
            before = item

    def version(self, scheduled: ScheduledKernel, blocks: Mapping[AxisId, int]) -> Version:
        """The version for a work item's blocks."""
        sizes = {a: min(b, self.length(a) - blocks[a] * b) for a, b in scheduled.kernel.loops}
        found = [v for v in scheduled.versions if all(sizes[a] == n for a, n in v.blocks.items())]
        if len(found) != 1:
            raise ProgramError(f"{len(found)} versions of a kernel are for blocks of {sizes}")
        return found[0]

    def memory_of(self, scheduled: ScheduledKernel, b: Buffer) -> _Elements:
        """The elements of a buffer as the kernel addresses them."""
        if type(b) is Local:
            n = self.number(scheduled.places[b].elements)
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
    """One stage in one work item. Values are arrays over (rows, columns, lanes) of the tile, of length 1 where they do not differ."""

    def __init__(
        self, run: ScheduleRun, memory: Mapping[Buffer, _Elements], scheduled: ScheduledStage, blocks: Mapping[AxisId, int], item: int
    ) -> None:
        self.run, self.memory, self.scheduled, self.blocks, self.item = run, memory, scheduled, blocks, item
        self.stage, self.tile = scheduled.stage, scheduled.tile
        self.covered: dict[Loop, int] = {}
        self.at: dict[Loop, np.ndarray] = {}  # the counters of the open loops over the tile
        self.units: dict[Loop, int] = {}
        self.mask = np.ones((1, 1, 1), bool)  # lanes inside
        self.border = len(self.stage.before)

    # ---- loops

    def free(self, k: int) -> None:
        """The free loops from the k-th on, and the tile inside them."""
        order = self.tile.order
        if k < len(order):
            for _ in self.iterations(order[k]):
                self.free(k + 1)
            return
        lines: dict[int, np.ndarray] = {}
        if self.scheduled.reducing:
            lines |= self.sums()
        else:
            self.compute(range(self.border), lines)
        self.compute(range(self.border + len(self.stage.combine), self.border + len(self.stage.combine) + len(self.stage.after)), lines)
        self.store(lines, [k for k, s in enumerate(self.stage.to) if not self.scheduled.reducing or s.line >= self.border])

    def iterations(self, d: Loop) -> Iterator[None]:
        """Each iteration of a loop, with its counter set."""
        n = d.places(self.covered[d]) if d in self.covered else self.run.number(d.extent, self.blocks)
        unit, units = (self.tile.lanes if d is self.tile.vector else 1), self.tile.units(d)
        total = self.covered.get(d, d.total)
        if d.lower is not None and total % d.unit:  # the last place covers less
            for i in range(n):
                with self.covering(d.lower, min(d.unit, total - i * d.unit)), self.opened(d, i, 1, None):
                    yield
            return
        if isinstance(d.extent, int):
            for first, last, size, left in segments(n, unit, units):
                for i in range(first, last, unit * size):
                    with self.opened(d, i, size, left):
                        yield
            return
        whole = n // (unit * units) * unit * units
        for i in range(0, whole, unit * units):
            with self.opened(d, i, units, None):
                yield
        for i in range(whole, n, unit):
            with self.opened(d, i, 1, min(unit, n - i)):
                yield

    @contextmanager
    def covering(self, d: Loop | None, total: int) -> Iterator[None]:
        before = dict(self.covered)
        while d is not None:
            self.covered[d] = total
            total, d = min(d.unit, total), d.lower
        yield
        self.covered = before

    @contextmanager
    def opened(self, d: Loop, first: int, units: int, left: int | None) -> Iterator[None]:
        """The loop at this place, with so many steps of the tile, the last of which has `left` lanes."""
        mask, counter = self.mask, np.full((1, 1, 1), first)
        if d is self.tile.across:
            counter = counter + np.arange(units).reshape(1, -1, 1) * (self.tile.lanes if d is self.tile.vector else 1)
        elif d is self.tile.tile:
            counter = counter + np.arange(units).reshape(-1, 1, 1)
        if d is self.tile.vector:
            lanes = np.arange(self.tile.lanes).reshape(1, 1, -1)
            counter = counter + lanes
            if left is not None:
                last = np.arange(units).reshape(1, -1, 1) == units - 1 if d is self.tile.across else True
                self.mask = mask & ((lanes < left) | ~np.asarray(last))
        self.at[d], self.units[d] = counter, units
        yield
        self.mask = mask
        del self.at[d], self.units[d]

    # ---- sums

    def sums(self) -> dict[int, np.ndarray]:
        """The accumulators after the reduced loops."""
        tile, columns = self.tile, self.tile.columns if self.tile.across in self.scheduled.reduced else 1
        lanes = tile.lanes if tile.vector in self.scheduled.reduced else 1
        found = [np.full((1, columns, lanes), _identity(c)) for c in self.stage.combine]
        early = [k for k, s in enumerate(self.stage.to) if s.line < self.border]

        def level(k: int) -> None:
            if k < len(self.scheduled.sums):
                for _ in self.iterations(self.scheduled.sums[k]):
                    level(k + 1)
                return
            lines: dict[int, np.ndarray] = {}
            self.compute(range(self.border), lines)
            here = self.units.get(tile.across, 1) if tile.across is not None and columns > 1 else 1
            for n, c in enumerate(self.stage.combine):
                x = lines[c.line]
                shape = np.broadcast_shapes(x.shape, (1, here if columns > 1 else 1, lanes))
                x = np.broadcast_to(x, shape)
                if lanes > 1:
                    x = np.where(self.mask, x, _identity(c)).astype(x.dtype)
                    shape = x.shape
                old = found[n]
                if columns > 1:
                    old = np.array(np.broadcast_to(old, np.broadcast_shapes(old.shape, (shape[0], columns, shape[2]))))
                    old[:, :here] = _fold(c, old[:, :here], x)
                    found[n] = old
                else:
                    found[n] = _fold(c, old, x)
            self.store(lines, early)

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
            made[self.border + n] = x
        return made

    # ---- lines

    def compute(self, numbers: Sequence[int], lines: dict[int, np.ndarray]) -> None:
        """The values of these lines, in their order."""
        every = dict(self.stage.lines())
        for n in numbers:
            lines[n] = self.line(n, every[n], lines)

    def line(self, n: int, line: Line, lines: dict[int, np.ndarray]) -> np.ndarray:
        if line.op == "number":
            return np.asarray(line.dtype.array(line.attrs["value"])).reshape(1, 1, 1)
        if line.op == "index":
            return self.whole(line.attrs["value"], lines).astype(line.dtype.np)
        if line.op == "guard":
            return self.holds(line.attrs["guard"], lines)
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
            return self.run.number(x, self.blocks)

        return np.asarray(expr.evaluate(e, leaf)).reshape((1, 1, 1)) if not expr_moves(e) else np.asarray(expr.evaluate(e, leaf))

    def index(self, a: AxisId) -> np.ndarray:
        """The index along an axis: where the block begins, and the digits of the open loops."""
        kernel_block = self.blocks.get(a)
        found = np.full((1, 1, 1), kernel_block * self.block(a) if kernel_block is not None else 0)
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
        coef = self.scheduled.forms.start[a].coef
        return int(next(iter(coef.values()), 0))

    def holds(self, guard: Sequence[ExprLike], lines: dict[int, np.ndarray]) -> np.ndarray:
        ok = np.ones((1, 1, 1), bool)
        for e in guard:
            ok = ok & (self.whole(e, lines) >= 0)
        return ok

    # ---- memory

    def address(self, a: Access, lines: dict[int, np.ndarray]) -> np.ndarray:
        """The elements from the start of the buffer to each place of the tile."""
        at = np.full((1, 1, 1), a.const)
        for d, c in a.base:
            at = at + self.run.number(c, self.blocks) * (1 if d is None else self.blocks[d.parts[0][0]])
        for d, c in a.coef.items():
            at = at + self.at[d] * self.run.number(c, self.blocks)
        for stride, e in a.rest:
            at = at + self.run.number(stride, self.blocks) * self.whole(e, lines)
        return at

    def read(self, a: Access, lines: dict[int, np.ndarray]) -> np.ndarray:
        ok, at = self.holds(a.guard, lines), self.address(a, lines)
        if self.tile.vector in a.deps:
            ok = ok & self.mask
        ok, at = np.broadcast_arrays(ok, at)
        made = np.full(at.shape, a.dtype.array(a.fill) if a.guard else 0, a.dtype.np)
        made[ok] = self.memory[a.source].read(at[ok], self.item)
        return made

    def store(self, lines: dict[int, np.ndarray], which: Sequence[int]) -> None:
        values = {k: lines[self.stage.to[k].line] for k in which}  # all values come before the first store: buffers may share memory
        for k, value in values.items():
            a, s = self.scheduled.stores[k], self.stage.to[k]
            ok = self.holds(a.guard, lines)
            if self.tile.vector in a.deps | self.scheduled.deps[s.line]:
                ok = ok & self.mask
            ok, at, value = np.broadcast_arrays(ok, self.address(a, lines), value)
            self.memory[a.source].store(at[ok], value[ok], s.combine, self.item, type(a.source) is not Local)


def expr_moves(e: ExprLike) -> bool:
    """Whether an expression has indices or loads, so that its value is an array over the tile."""
    return any(type(x) in (Idx, Load) for x in expr.leaves(e))


def _identity(c: Combine) -> Any:
    number = {"add": 0, "multiply": 1, "max": c.dtype.lowest, "min": c.dtype.highest}[c.kind]
    return np.array(number).astype(c.dtype.np)


def _fold(c: Combine, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    fold: Callable[..., Any] = COMBINE[c.kind]
    with np.errstate(all="ignore"):
        return np.asarray(fold(a, b)).astype(c.dtype.np)

"""The seconds of a scheduled kernel on one thread, from its schedule and the record of the machine alone.

A stage takes the instructions of its tiles as often as its loops run, or as long as its bytes move, whichever is longer, and a part of the
other. Bytes move where a level of memory does not hold them: it holds the places of as many inner loops as fit into it, and what loops
outside of those come back to moves again. Data that the kernel used before is taken to be where it fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ngraph.op_graph.expr import ExprLike
from ngraph.op_graph.opdef import COST
from ngraph.plan.kernels import Buffer, Local
from ngraph.schedule.cpu import FREE
from ngraph.schedule.form import Access, Loop, ScheduledKernel, ScheduledStage, Version
from ngraph.schedule.matrix import instruction
from ngraph.targets import Cpu, Target
from ngraph.targets.products import PRODUCTS
from ngraph.targets.tuning import (
    BROADCAST_RELATIVE_COST,
    CALL_COST,
    GATHERED_LANE_COST,
    ITERATION_COST,
    LOAD_COST,
    LOOP_COST,
    MATRIX_COST,
    MATRIX_LOAD_COST,
    MATRIX_PRODUCT_COST,
    OVERLAPPED_PART,
    PREDICATE_COST,
    SHUFFLE_COST,
    STORE_COST,
    SUMS_IN_FLIGHT,
    WORK_ITEM_COST,
)

Places = Mapping[Loop, int]


def seconds(kernel: ScheduledKernel) -> float:
    """Returns the seconds of all work items on one thread; of open lengths, those that the plan was made for."""
    machine = kernel.target
    assert isinstance(machine, Cpu)
    work = moved = 0.0
    general = kernel.bounded(None)
    for version in general:
        items = _items(kernel, version)
        stages = [_StageCost(s, machine) for s in version.stages]
        work += items * sum([s.instructions() / _places(kernel.grid[s.stage.stage.depth :]) for s in stages])
        if version is general[0]:
            moved = sum([moving / rate for moving, rate in _moving(kernel, stages, machine)])
    started = CALL_COST + WORK_ITEM_COST * _places(kernel.grid)
    work /= machine.vector_speed
    return started / machine.vector_speed + max(work, moved) + OVERLAPPED_PART * min(work, moved)


def extent(d: Loop) -> int:
    """Returns the places of a loop, at least one."""
    return d.likely


def _places(loops: Iterable[Loop]) -> int:
    return math.prod(map(extent, loops))


def _items(kernel: ScheduledKernel, version: Version) -> int:
    """Returns the number of work items that run a version."""
    blocks, count = dict(kernel.kernel.loops), 1
    for d in kernel.grid:
        a = d.parts[0][0]
        whole = extent(d) - (a in version.blocks)  # the last block has another version
        count *= whole if version.blocks.get(a, blocks[a]) == blocks[a] else 1
    return count


class _StageCost:
    """A stage with the loops of its nest, outermost first, and how often each runs."""

    def __init__(self, stage: ScheduledStage, target: Target) -> None:
        self.stage, self.tile, self.target = stage, stage.tile, target
        nest = (*stage.tile.order, *stage.sums)
        self.nest = (*nest, *[d for d in stage.loops if d not in nest])
        self.depth = {d: k for k, d in enumerate(self.nest)}
        self.trips = [self._trips(d) for d in self.nest]
        self.free = len(stage.tile.order)

    def unit(self, d: Loop) -> int:
        """Returns the places of a loop that a tile takes together."""
        return min(self.tile.units(d) * (self.tile.lanes if d is self.tile.vector else 1), extent(d))

    def _trips(self, d: Loop) -> int:
        together = self.tile.lanes if d is self.tile.vector else self.tile.terms if d is self.tile.deep else 1
        steps = -(-extent(d) // together)
        return -(-steps // self.tile.units(d))

    def together(self, deps: frozenset[Loop]) -> int:
        """Returns how many values a tile has of something that moves with these loops."""
        return (self.tile.rows if self.tile.tile in deps else 1) * (self.tile.columns if self.tile.across in deps else 1)

    def times(self, deps: frozenset[Loop], epilogue: bool) -> int:
        """Returns how often it is done: outside of all loops inside the innermost one that it moves with; after sums, once for each."""
        inside = [k for d, k in self.depth.items() if d in deps and (k < self.free or not epilogue)]
        return math.prod(self.trips[: max(inside, default=-1) + 1]) * self.together(deps)

    def instructions(self) -> float:
        """Returns the vector instructions of one work item."""
        s, border = self.stage, len(self.stage.stage.before)
        lines = dict(s.stage.lines())
        fused = {c.line for c in s.stage.combine if c.kind == "add" and lines[c.line].op in PRODUCTS}
        shown = [(n, line.op) for n, line in lines.items() if n not in fused and line.op not in FREE]
        total: float = sum([COST[op] * self.times(s.deps[n], s.reducing and n >= border) for n, op in shown])
        total += sum([self._access(a, False, 1) for a in s.reads.values() if self.tile.deep is None or a.epilogue])
        total += sum([self._access(a, True, len(s.interleaved[k])) for k, a in enumerate(s.stores)])
        return total + self._sums() + self._loops()

    def _sums(self) -> float:
        """Returns the instructions of accumulators, as many in flight as hide the latency of each, and of one value made of lanes."""
        s, t = self.stage, self.tile
        reduced = frozenset(s.reduced) if t.vector in s.reduced or t.across in s.reduced else frozenset()
        sums = sum([self.together(s.deps[c.line] | reduced) for c in s.stage.combine])
        if not sums:
            return 0.0
        if t.deep is not None:
            row, _ = instruction(s.stage, self.target)
            high = -(-t.rows // row.m)
            each = t.columns * t.rows / row.m * MATRIX_PRODUCT_COST + (high + t.columns) * MATRIX_LOAD_COST
            return math.prod(self.trips) * each + math.prod(self.trips[: self.free]) * (MATRIX_COST + 2 * sums)
        ends = 2 * SHUFFLE_COST * math.log2(t.lanes) if t.vector in s.reduced else 0.0
        return math.prod(self.trips) * max(sums, SUMS_IN_FLIGHT) + math.prod(self.trips[: self.free]) * sums * ends

    def _loops(self) -> float:
        """Returns the instructions that loops themselves take: each iteration of the innermost one, and each beginning of one."""
        begun, outer = 0, 1
        for n in self.trips[: len(self.trips) - max(self.stage.flattened - 1, 0)]:
            begun += outer * (n > 1)
            outer *= n
        return ITERATION_COST * math.prod(self.trips) + LOOP_COST * begun

    def _access(self, a: Access, store: bool, run: int) -> float:
        """Returns the instructions of a read or store. `run`: stores to places next to each other."""
        lanes, v = self.tile.lanes, self.tile.vector
        step = 1 if v is None else a.coef.get(v, 0)
        one = STORE_COST if store else LOAD_COST
        if a.mode == "indexed" or (a.mode == "strided" and store and run != step):
            one = lanes * GATHERED_LANE_COST * (2 if store else 1)
        elif a.mode == "one":
            one *= BROADCAST_RELATIVE_COST
        elif a.mode == "strided" and isinstance(step, int):
            one = one * (1 if store else step) + SHUFFLE_COST * (step - 1)
        elif a.mode == "reversed":
            one += SHUFFLE_COST
        elif a.mode == "transposed":
            along = 1 if self.tile.tile is None else a.coef.get(self.tile.tile, 1)
            apart = along if isinstance(along, int) else 1
            one = one * apart + SHUFFLE_COST * (apart - 1 + math.log2(lanes))
        return self.times(a.deps, a.epilogue) * (one + PREDICATE_COST * len(a.predicate))


# ---- bytes


def _moving(kernel: ScheduledKernel, stages: Sequence[_StageCost], machine: Cpu) -> Iterator[tuple[float, float]]:
    """Yields for each level of memory the bytes that all work items move from and to what lies behind it, and the bytes per second."""
    grid = kernel.grid
    held = [_held(grid[k:], stages) for k in range(len(grid) + 1)]  # what all touch, what those of one place of the first loop do, …
    sizes = [sum(some.values()) for some in held]
    for room, rate in machine.levels:
        lost = 2 * (1 - room / max(sizes[0], 1))  # of twice its size, a level keeps nothing until the kernel runs again
        if lost > 0:
            k = next((k for k, size in enumerate(sizes) if k and size <= room), 0)
            moved = _of_work_items(grid[:k], stages, held[k]) if k else sum([_of_stage(s, grid, room) for s in stages])
            yield min(lost, 1.0) * moved, rate


def _held(grid: Sequence[Loop], stages: Sequence[_StageCost]) -> dict[Buffer, float]:
    """Returns the bytes of each buffer that some work items touch in all their stages."""
    held: dict[Buffer, float] = {}
    for s in stages:
        places = {d: extent(d) for d in (*grid, *s.nest)}
        for a in s.stage.accesses:
            held[a.source] = max(held.get(a.source, 0.0), _touched(a, places))
    return held


def _of_work_items(outer: Sequence[Loop], stages: Sequence[_StageCost], held: Mapping[Buffer, float]) -> float:
    """Returns the bytes that move where a level holds all that the loops inside of `outer` touch: each buffer again where it differs."""
    total = 0.0
    for b, size in held.items():
        mine = [a for s in stages for a in s.stage.accesses if a.source is b]
        last = max([k for k, d in enumerate(outer, 1) if any(a.rest or _step(a, d) != 0 for a in mine)], default=0)
        stored = any(a in s.stage.stores for s in stages for a in mine)
        total += 0.0 if type(b) is Local else size * _places(outer[:last]) * (1 + stored)
    return total


def _of_stage(s: _StageCost, grid: Sequence[Loop], room: int) -> float:
    """Returns the bytes that a stage moves in all work items, for a level that holds as many of its inner loops as fit into it."""
    whole, tile = {d: extent(d) for d in s.nest}, {d: s.unit(d) for d in s.nest}
    sizes: dict[Access, float] = {}
    for k in range(len(s.nest) + 1):
        places = {d: tile[d] if j < k else whole[d] for j, d in enumerate(s.nest)}
        sizes = {a: _touched(a, places) for a in s.stage.accesses}
        if sum(sizes.values()) <= room:
            break
    total = 0.0
    for a, size in sizes.items():
        last = max([j for j, d in enumerate(s.nest[:k], 1) if d in a.deps], default=0)
        total += size * math.prod(s.trips[:last]) * (2 if a in s.stage.stores else 1)
    return total * _places(grid[: s.stage.stage.depth])


def _step(a: Access, d: Loop) -> ExprLike | None:
    """Returns the elements from one place of a loop to the next; None where it moves by no fixed number."""
    if d.grid:
        found = [c for loop, c in a.base if loop is d]
        return found[0] if found else None if a.rest else 0
    return a.coef.get(d) if d in a.deps else 0


def _touched(a: Access, places: Places) -> float:
    """Returns the bytes of the lines that an access touches along loops, so many places of each."""
    size = max(a.dtype.bits // 8, 1)
    whole = math.inf if a.source.bytes is None else float(a.source.bytes)
    count, span, least = 1.0, 1.0, 64 // size
    for d, n in places.items():
        step = _step(a, d)
        if n == 1 or step == 0:
            continue
        count *= n
        span = span + abs(step) * (n - 1) if isinstance(step, int) else math.inf
        least = min(least, abs(step)) if isinstance(step, int) else least
    if a.rest:
        return min(count * size, whole)
    return min(count * size * least, span * size + 64, whole) if count > 1 else min(size, whole)

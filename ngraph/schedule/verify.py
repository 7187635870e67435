"""The rules of scheduled plans, checked without running them.

A scheduled plan is valid if its plan is, and in every stage of every kernel

    each loop of the stage runs once, sums inside the free loops; digits of an axis cover its block without a gap or an overlap
    versions are for all lengths, and their sums are added up in one order
    loops over an axis of open length have as many places as it has in a block, at every length
    vectors have lanes that the target has; no loop is a vector and a row, or a vector and the columns beside it; sums in order run one
      term after the other; lanes that fold values into memory do not meet
    lanes lie as the address says: contiguous ones one element apart, and so on
    strides give every place of a buffer elements of its own, and addresses without a predicate stay inside it
    work items store in elements of their own, or the same values
    addresses are those of the places that indices name
    Locals that are needed at one time do not overlap, on the stack, in scratch or in shared memory

and of kernels that blocks of threads run

    threads, shared memory and registers are within what the target has
    loops of free axes are spread over threads, of reduced ones over the lanes of one warp or over warps
    predicates hold inside a block and nowhere else
    between two stages, or trips of a loop, there is a barrier if one reads or stores what another thread may have stored or read
    all threads of a block come to every barrier and exchange between lanes
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NoReturn

from ngraph.errors import ProgramError
from ngraph.op_graph.expr import ExprLike, Idx, Leaf, evaluate, leaves
from ngraph.plan.kernels import Buffer, Local, Plan, extent
from ngraph.plan.verify import verify as verify_plan
from ngraph.program.program import AxisId
from ngraph.schedule.form import (
    BARRIERS,
    Access,
    BlockChoice,
    BlockNumber,
    BlockStart,
    Loop,
    LoopKind,
    ScheduledKernel,
    ScheduledPlan,
    ScheduledStage,
    Version,
)
from ngraph.schedule.matrix import instruction, matrix_loops
from ngraph.targets import Gpu
from ngraph.targets.tuning import MAX_SHUFFLED_STEP, MAX_STACK_BYTES
from ngraph.tensors.index import in_order

PREFETCHES = ("item", "page", "panel", "rows")
SAMPLES = (0, 1, 2, 7, 33, 100, 1021)  # places of each axis, modulo its length, at which addresses are compared
OPEN = 257  # the length that open axes have there
OPENS = (1, 2, 15, 16, 17, 70)  # lengths at which the loops over an open axis are compared with it
STEPS = {"one": (0,), "contiguous": (1,), "reversed": (-1,), "strided": tuple(range(2, MAX_SHUFFLED_STEP + 1))}  # elements between lanes


def verify(scheduled: ScheduledPlan) -> ScheduledPlan:
    """The scheduled plan itself. Raises ProgramError for the first rule that it breaks, with kernel and stage."""
    verify_plan(scheduled.plan)
    for made in scheduled.kernels.values():
        verify_kernel(scheduled.plan, made)
    for body in scheduled.bodies.values():
        verify(body)
    return scheduled


def verify_kernel(plan: Plan, scheduled: ScheduledKernel) -> ScheduledKernel:
    """The scheduled kernel itself. Raises ProgramError for the first rule that it breaks."""
    _KernelCheck(plan, scheduled, next((k for k, step in enumerate(plan.every) if step is scheduled.kernel), 0)).kernel()
    return scheduled


class _KernelCheck:
    """One kernel."""

    def __init__(self, plan: Plan, scheduled: ScheduledKernel, number: int) -> None:
        self.plan, self.scheduled, self.here = plan, scheduled, f"kernel {number}"

    def fail(self, message: str) -> NoReturn:
        line = next(((o.file, o.line) for o in self.scheduled.kernel.origin if o.line), None)
        raise ProgramError(f"{self.here}: {message}", line=line)

    def kernel(self) -> None:
        self.tiles = {tile: self.spans(s) for v in self.scheduled.versions for s in v.stages for _, tile, _ in s.copies}
        self.places()
        self.threads()
        for b, strides in self.scheduled.strides.items():
            self.strides(b, strides)
        self.bounds()
        kernel = self.here
        for version in self.scheduled.versions:
            if len(version.stages) != len(self.scheduled.kernel.stages):
                self.fail(f"a version has {len(version.stages)} stages of {len(self.scheduled.kernel.stages)}")
            self.carried: dict[Buffer, set[Loop]] = {}  # the grid loops with which what a Local holds changes
            for k, stage in enumerate(version.stages):
                self.here = f"{kernel}, stage {k}"
                self.stage(version, stage)
                self.block_stage(version, stage)
            self.here = kernel
            self.barriers(version)
        self.here = kernel

    def bounds(self) -> None:
        """The versions are for all lengths, each bound for longer ones than the one before, with sums that are added up in one order."""
        *bounds, last = self.scheduled.bounds
        found = [b for b in bounds if b is not None]
        if last is not None or len(found) < len(bounds):
            self.fail("the last versions have a bound, and no version is for longer lengths")
        for a, b in itertools.pairwise(found):
            if a.axis != b.axis or a.most >= b.most:
                self.fail(f"versions for up to {b.most} places of {b.axis} stand behind those for up to {a.most} of {a.axis}")
        general = self.scheduled.bounded(None)
        for bound in found:
            if self.plan.axes.get(bound.axis) is None or isinstance(self.plan.axes[bound.axis], int):
                self.fail(f"versions are for lengths of {bound.axis}, which has no open length")
            mine = self.scheduled.bounded(bound)
            if [v.blocks for v in mine] != [v.blocks for v in general]:
                self.fail(f"the versions for up to {bound.most} places of {bound.axis} are for other blocks than those for more")
            for v, other in zip(mine, general, strict=True):
                if [s.order_of_sums for s in v.stages] != [s.order_of_sums for s in other.stages]:
                    self.fail(f"sums of up to {bound.most} places of {bound.axis} are added up in another order than those of more")

    # ---- memory

    def places(self) -> None:
        """Locals: their room, and that those which are needed at one time lie apart."""
        live = self._live()
        spans: dict[Local, tuple[int, int]] = {}
        for b, place in self.scheduled.places.items():
            if place.space == "scratch" and isinstance(place.offset, int) and isinstance(place.elements, int):
                spans[b] = (place.offset, place.offset + place.elements * (b.dtype.bits // 8))
                if isinstance(self.scheduled.scratch, int) and spans[b][1] > self.scheduled.scratch:
                    self.fail(f"{b.name} ends at byte {spans[b][1]} of scratch, which has {self.scheduled.scratch}")
        for a, b in itertools.combinations(spans, 2):
            apart = spans[a][1] <= spans[b][0] or spans[b][1] <= spans[a][0]
            if not apart and live[a][0] <= live[b][1] and live[b][0] <= live[a][1]:
                self.fail(f"{a.name} and {b.name} overlap in scratch and are needed at one time")
        end, last = 0, ""
        for b, place in self.scheduled.places.items():  # one behind the other
            if place.space == "shared" and isinstance(place.offset, int) and isinstance(place.elements, int):
                if place.offset < end:
                    self.fail(f"{last} and {b.name} overlap in shared memory")
                end, last = place.offset + place.elements * (b.dtype.bits // 8), b.name
        if end > self.scheduled.shared:
            self.fail(f"{last} ends at byte {end} of shared memory, and the kernel has {self.scheduled.shared}")
        on_stack = [(b, p.elements) for b, p in self.scheduled.places.items() if p.space == "stack"]
        size = sum([n * b.dtype.bits // 8 for b, n in on_stack if isinstance(n, int) and n > 1])
        if size > MAX_STACK_BYTES:
            self.fail(f"Locals of {size} bytes lie on the stack, which has room for {MAX_STACK_BYTES}")

    def _live(self) -> dict[Buffer, tuple[int, int]]:
        """The first and the last stage that uses each Local; all of them where a stage that fills it does not run in every work item."""
        stages, depth = self.scheduled.kernel.stages, len(self.scheduled.kernel.loops)
        found: dict[Buffer, tuple[int, int]] = {}
        for k, stage in enumerate(stages):
            for b in (*[s.target for s in stage.to], *[r.source for r in stage.reads()]):
                found[b] = (found.get(b, (k, k))[0], k)
        for stage in stages:
            for s in stage.to:
                if stage.depth < depth:
                    found[s.target] = (-1, len(stages))
        return found

    def strides(self, b: Buffer, strides: tuple[ExprLike, ...]) -> None:
        """Every place has elements of its own, and all lie inside the buffer."""
        shape = self.shape(b)
        if len(strides) != len(b.dims):
            self.fail(f"{b.name} has {len(b.dims)} dims and {len(strides)} strides")
        known = [(k, n) for k, n in zip(strides, shape, strict=True) if n != 1]
        if not known or any(not isinstance(k, int) or n is None for k, n in known):
            return
        if any(n == 0 for _, n in known):
            return
        reach = 1
        for k, n in sorted(known):
            assert isinstance(k, int) and n is not None
            if k < reach:
                self.fail(f"the strides {', '.join(map(str, strides))} of {b.name} put two places on one element")
            reach = k * (n - 1) + reach
        size = self.elements(b)
        if size is not None and reach > size:
            self.fail(f"{b.name} reaches over {reach} elements, and has {size}")

    def shape(self, b: Buffer) -> list[int | None]:
        """Places along each dim; None where the length is unknown. A Local has those of one block."""
        if b in self.tiles:
            return [self.tiles[b].get(a) for a, _, _ in b.dims]
        found: list[int | None] = []
        blocks = dict(self.scheduled.kernel.loops)
        for a, div, mod in b.dims:
            try:
                n = self.plan.length(a)
            except LookupError:
                n = blocks.get(a, 0) if type(b) is Local and blocks.get(a, 1) > 1 else -1
            if n < 0:
                found.append(None)
                continue
            if type(b) is Local and blocks.get(a, 1) > 1:
                n = min(n, blocks[a])
            found.append(extent((a, div, mod), n) + sum(b.border.get(a, ())))
        return found

    def elements(self, b: Buffer) -> int | None:
        """Elements of a buffer; None where they are not known."""
        if type(b) is Local:
            n = self.scheduled.places[b].elements
            return n if isinstance(n, int) else None
        return None if b.bytes is None else b.bytes * 8 // b.dtype.bits

    # ---- stages

    def stage(self, version: Version, s: ScheduledStage) -> None:
        self.tile(s)
        self.loops(version, s)
        names = [f"%{n}" for n in s.reads] + [f"the store of %{t.line}" for t in s.stage.to]
        for name, a in zip(names, s.accesses, strict=True):
            self.access(s, a, name)
        for k, t in enumerate(s.stage.to):
            self.store(s, k, t.combine)
        self.addresses(version, s, names)

    def addresses(self, version: Version, s: ScheduledStage, names: list[str], above: tuple[Loop, ...] = ()) -> None:
        """Every access goes to the elements of the places that its index names, at some places of each axis."""
        tiles = {n: tile for n, tile, _ in s.copies}
        reads = [(line.read.source, line.read.index, n) for n, line in s.stage.lines() if line.read is not None]
        named = [(tiles.get(n, b), {a: Idx(a) for a in index} if n in tiles else index) for b, index, n in reads]
        named += [(t.target, t.index) for t in s.stage.to]
        every = (*s.loops, *above, *self.scheduled.grid)
        for k in SAMPLES:
            index = {a: self.sample(version, a, k) for d in every for a, _, _ in d.parts}
            blocks = {d.parts[0][0]: index[d.parts[0][0]] // d.parts[0][1] for d in self.scheduled.grid}
            counter = {d: self.counter(d, index) for d in every}
            outer = {a: sum([counter[d] * d.unit for d in above if d.parts[0][0] == a]) for a in index}
            starts = {a: blocks[a] * dict(self.scheduled.kernel.loops)[a] if a in blocks else 0 for a in index}

            value = partial(self.value, index, blocks)
            for name, a, (b, at) in zip(names, s.accesses, named, strict=True):
                if a.rest or any(type(x) is not Idx or x.of not in index for e in at.values() for x in leaves(e)):
                    continue  # what is left is evaluated as it stands
                wanted = 0
                for (axis, div, mod), stride in zip(b.dims, self.scheduled.strides[b], strict=True):
                    place = value(at[axis])
                    if b in self.tiles:
                        tile = next((tile for tile in tiles.values() if tile is b), None)
                        inside = [d for d in s.sums[: s.block.outer] if d.parts[0][0] == axis] if tile and s.block else []
                        place -= starts.get(axis, 0) + (sum([counter[d] * d.unit for d in inside]) if tile else outer.get(axis, 0))
                    elif type(b) is Local and dict(self.scheduled.kernel.loops).get(axis, 1) > 1:
                        place -= starts.get(axis, 0)
                    place = place // div if mod is None else place // div % mod
                    wanted += (place + (b.border[axis][0] if axis in b.border else 0)) * value(stride)
                got = a.const + sum([value(c) * counter[d] for d, c in a.coef.items()])
                got += sum([value(c) * (1 if d is None else blocks[d.parts[0][0]]) for d, c in a.base])
                if got != wanted:
                    self.fail(f"{name} goes to element {got} of {a.source.name}, and its index names {wanted}")

    def sample(self, version: Version, a: AxisId, k: int) -> int:
        """The k-th index of an axis, counted round, in blocks of the lengths that a version is for."""
        n = self.length(a)
        if a not in version.blocks or n == 0:
            return k % max(n, 1)
        block, size = min(dict(self.scheduled.kernel.loops)[a], n), version.blocks[a]
        return (k // block % (n // block) if size == block else n // block) * block + k % size

    def value(self, index: Mapping[AxisId, int], blocks: Mapping[AxisId, int], e: ExprLike) -> int:
        """An expression over indices, lengths and numbers of blocks."""

        def leaf(x: Leaf) -> int:
            return index[x.of] if type(x) is Idx else blocks[x.of] if type(x) is BlockNumber else self.length(x.of)

        return int(evaluate(e, leaf))

    def length(self, a: AxisId) -> int:
        """The length of an axis, or one that it may have."""
        try:
            return self.plan.length(a)
        except LookupError:
            return OPEN

    def counter(self, d: Loop, index: Mapping[AxisId, int]) -> int:
        """The counter of a loop at these indices."""
        found = 0
        for a, unit, places in d.parts:
            n = places if isinstance(places, int) else OPEN
            place = index[a]
            if not d.grid and a in (blocks := dict(self.scheduled.kernel.loops)):
                place %= blocks[a]
            found = found * n + place // unit % max(n, 1)
        return found

    def loops(self, version: Version, s: ScheduledStage) -> None:
        for what, run, there in (("free", s.tile.order, s.free), ("reduced", s.sums, s.reduced)):
            if sorted(map(id, run)) != sorted(map(id, there)):
                self.fail(f"the {what} loops {_names(there)} run as {_names(run)}")
        covered: dict[str, list[tuple[int, ExprLike]]] = {}
        for d in s.loops:
            if isinstance(d.extent, int) and len(d.parts) > 1 and d.extent != math.prod([n for _, _, n in d.parts if isinstance(n, int)]):
                self.fail(f"the loop {d.name} has {d.extent} places, and not the product of its axes'")
            for a, unit, n in d.parts:
                covered.setdefault(a, []).append((unit, n))
        blocks = dict(self.scheduled.kernel.loops)
        for a in (*s.stage.free, *s.stage.reduced):
            digits = sorted(covered.get(a, []), key=lambda part: part[0])
            try:
                length = self.plan.length(a)
            except LookupError:
                if s.block is None:  # those of a block of threads are cut off by predicates
                    self.open_axis(a, [d for d in s.loops if d.parts[0][0] == a])
                continue
            size = version.blocks.get(a, min(length, blocks.get(a, length)))
            if not digits and size == 1:
                continue
            if any(not isinstance(n, int) for _, n in digits):
                continue
            if s.block is not None:
                self.covered(s.block, a, [(unit, n) for unit, n in digits if isinstance(n, int)], size, length)
                continue
            below = 1
            for k, (unit, n) in enumerate(digits):
                above = digits[k + 1][0] if k + 1 < len(digits) else size
                if unit != below or n != -(-min(above, size) // unit):
                    self.fail(f"the loops over {a} cover {_digits(digits)} of {size} places")
                below = above

    def open_axis(self, a: AxisId, digits: list[Loop]) -> None:
        """The loops over an axis of open length have the places of its block, whatever the length is: what is behind whole tiles, too."""
        block, digits = dict(self.scheduled.kernel.loops).get(a), sorted(digits, key=lambda d: d.unit)
        for length in OPENS:
            for number in range(-(-length // block)) if block is not None else (0,):
                size, below = length if block is None else min(length - number * block, block), 1
                for k, d in enumerate(digits):
                    above = digits[k + 1].unit if k + 1 < len(digits) else size
                    leaf = partial(_in_block, length, number)
                    if d.unit != below or evaluate(d.extent, leaf) != -(-above // d.unit):
                        self.fail(f"the loops over {a} cover {_digits([(d.unit, d.extent) for d in digits])}, and {size} places may come")
                    below = above

    def tile(self, s: ScheduledStage) -> None:
        tile, target = s.tile, self.scheduled.target
        if s.chosen.second is not None and s.chosen.second == s.chosen.vector:
            self.fail(f"the loop {'' if tile.vector is None else tile.vector.name} is the vector and the columns beside it")
        if tile.vector is None:
            if tile.lanes != 1:
                self.fail(f"there are {tile.lanes} lanes and no vector loop")
        elif tile.lanes & (tile.lanes - 1) or not 1 < tile.lanes <= target.lanes(8):
            self.fail(f"a vector of {tile.lanes} lanes is none of the target {target.name}")
        if tile.tile is not None and tile.tile in (tile.vector, tile.across):
            self.fail(f"the loop {tile.tile.name} is rows and columns of one tile")
        if min(tile.rows, tile.columns) < 1 or s.unroll < 1 or not 0 <= s.flattened <= len(s.sums):
            self.fail(f"a tile of {tile.rows} rows and {tile.columns} columns, {s.unroll} steps, {s.flattened} listed loops")
        if any(not isinstance(d.extent, int) or d.uneven for d in s.sums[len(s.sums) - s.flattened :]):
            self.fail("offsets are listed of loops whose length is unknown or uneven")
        bound = [d for d in s.loops if d.uneven and d.lower is not None]
        if any(in_order(c.kind, c.dtype) for c in s.stage.combine):
            bound += s.reduced
        if tile.deep is not None:
            self.matrix(s)
        for d in (tile.vector, tile.tile, tile.across):
            if d is not None and d in bound:
                self.fail(f"the loop {d.name} takes several places at once, and has to run one after the other")

    def matrix(self, s: ScheduledStage) -> None:
        """An instruction for matrices: its loops are those that it can take, and its tile fits into registers."""
        tile, target = s.tile, self.scheduled.target
        loops = matrix_loops(s.stage, s.reads, s.free, s.reduced, target)
        if (tile.vector, tile.tile, tile.deep) not in loops or tile.across is not tile.vector:
            self.fail(f"the loops {_names([d for d in (tile.vector, tile.tile, tile.deep) if d])} are none of an instruction for matrices")
        row, most = instruction(s.stage, target)
        high = -(-tile.rows // row.m)
        if tile.lanes != row.n or high * tile.columns + high + tile.columns > row.registers:
            self.fail(f"{tile.rows} rows and {tile.columns} columns of {tile.lanes} lanes do not fit into {row.registers} matrices")
        if s.sums[-1] is not tile.deep or s.flattened or not 1 <= tile.terms <= most:
            self.fail(f"an instruction for matrices takes {tile.terms} places of {tile.deep.name if tile.deep else ''}, the innermost loop")
        if tile.order[-1] is not tile.tile:
            self.fail("the rows of matrices are not the innermost loop outside of the sums")

    def access(self, s: ScheduledStage, a: Access, name: str) -> None:
        v = s.tile.vector
        moves = v is not None and v in a.deps
        step = a.coef.get(v, 0) if v is not None else 0
        if (a.mode == "scalar") == moves:
            self.fail(f"{name} is {a.mode}, and {'moves' if moves else 'does not move'} with the vector loop")
        if a.mode in STEPS and step not in STEPS[a.mode]:
            self.fail(f"{name} is {a.mode}, and its lanes lie {step} elements apart")
        if a.prefetch is not None and a.prefetch.kind not in PREFETCHES:
            self.fail(f"{name} prefetches {a.prefetch.kind!r}, which is none of {', '.join(PREFETCHES)}")
        size = self.elements(a.source)
        if size is None or a.predicate or a.rest or not all(isinstance(c, int) for c in (*a.coef.values(), *[c for _, c in a.base])):
            return
        if self.scheduled.threads > 1:
            self.reach(a, name, size)
            return
        low = high = a.const
        for d, c in (*a.coef.items(), *a.base):
            if d is None or not isinstance(c, int) or d.most is None:
                return
            if d.most == 0:
                return
            far = c * (d.most - 1)
            low, high = low + min(far, 0), high + max(far, 0)
        if (low < 0 or high >= size) and not self.partial(a):
            self.fail(f"{name} goes to elements {low} to {high} of {a.source.name}, which has {size}")

    def reach(self, a: Access, name: str, size: int) -> None:
        """An access of a block of threads stays inside its buffer, where the predicates of ends hold."""
        digits: dict[AxisId, list[tuple[Loop, int]]] = {}
        for d, c in (*a.coef.items(), *a.base):
            if d is None or not isinstance(c, int) or d.most is None:
                return
            digits.setdefault(d.parts[0][0], []).append((d, c))
        low = high = a.const
        for axis, some in digits.items():
            n = self.length(axis)
            if n == 0:
                return
            block = n if any(d.grid for d, _ in some) else min(n, dict(self.scheduled.kernel.loops).get(axis, n))
            if a.source in self.tiles and type(a.source) is Local:
                block = min(block, self.tiles[a.source].get(axis, block))
            steps = {c // d.parts[0][1] for d, c in some if c % d.parts[0][1] == 0}
            if len(steps) == 1:
                (step,) = steps
                places = 1 + sum([d.parts[0][1] * ((d.most or 1) - 1) for d, _ in some])
                far = step * (min(places, block) - 1)
            else:
                far = sum([c * ((d.most or 1) - 1) for d, c in some])
            low, high = low + min(far, 0), high + max(far, 0)
        if low < 0 or high >= size:
            self.fail(f"{name} goes to elements {low} to {high} of {a.source.name}, which has {size}")

    def partial(self, a: Access) -> bool:
        """Whether a block or digit may be shorter than the loops' largest, so that the outermost addresses are never reached."""
        return any(d is not None and (d.uneven or (d.grid and self.short(d))) for d in (*a.coef, *[d for d, _ in a.base]))

    def short(self, d: Loop) -> bool:
        """Whether the last block of a loop of the grid may be shorter."""
        ((a, block, _),) = d.parts
        try:
            return self.plan.length(a) % block > 0
        except LookupError:
            return True

    def store(self, s: ScheduledStage, k: int, how: str) -> None:
        a, value = s.stores[k], s.deps[s.stage.to[k].line]
        v = s.tile.vector
        if how != "set" and v is not None and v in (a.deps | value) and not a.coef.get(v):
            self.fail(f"lanes fold values into one element of {a.source.name}")
        if type(a.source) is Local:
            self.carried.setdefault(a.source, set()).update(self.grid_loops_of(s, s.stage.to[k].line))
        if type(a.source) is Local or a.rest:
            return
        moves = {d for d, c in a.base if d is not None and c != 0}
        for d in self.scheduled.grid[: s.stage.depth]:
            if d not in moves and d.extent != 1 and d in self.grid_loops_of(s, s.stage.to[k].line):
                self.fail(f"all work items along {d.name} store in the same elements of {a.source.name}")

    def grid_loops_of(self, s: ScheduledStage, line: int) -> set[Loop]:
        """The grid loops with which a line changes."""
        found: set[Loop] = set()
        by_axis = {d.parts[0][0]: d for d in self.scheduled.grid}
        todo, seen = [line], set[int]()
        lines = dict(s.stage.lines())
        while todo:
            n = todo.pop()
            if n in seen:
                continue
            seen.add(n)
            border = len(s.stage.before)
            if border <= n < border + len(s.stage.combine):
                todo.append(s.stage.combine[n - border].line)
                continue
            todo += [*s.uses[n]]
            if n in s.reads:
                found |= {d for d, c in s.reads[n].base if d is not None and c != 0} | self.carried.get(s.reads[n].source, set())
            elif lines[n].op == "index":
                form = s.forms.of(lines[n].attrs["value"])
                if form is not None:
                    found |= {d for d in form.coef if d.grid}
                    found |= {by_axis[x.of] for x in leaves(form.const) if type(x) is BlockNumber}
        return found

    # ---- blocks of threads

    def spans(self, s: ScheduledStage) -> dict[AxisId, int]:
        """The places of a tile in shared memory along each axis."""
        blocks, outer = dict(self.scheduled.kernel.loops), 0 if s.block is None else s.block.outer
        found = {a: min(self.length(a), blocks.get(a, OPEN * self.length(a))) for a in s.stage.free}
        inner = {a: [d.most or 1 for d in s.sums[outer:] if d.parts[0][0] == a] for a in s.stage.reduced}
        return found | {a: math.prod(extents) for a, extents in inner.items()}

    def threads(self) -> None:
        """Threads, shared memory and registers are within what the target has."""
        made, target = self.scheduled, self.scheduled.target
        if not isinstance(target, Gpu):
            return
        if not target.warp <= made.threads <= target.threads_per_block or made.threads % target.warp:
            most = target.threads_per_block
            self.fail(f"a block has {made.threads} threads, and {target.name} runs up to {most} in warps of {target.warp}")
        if made.shared > target.shared:
            self.fail(f"a block takes {made.shared} bytes of shared memory, and {target.name} has {target.shared}")
        own = [(b, p.elements) for b, p in made.places.items() if p.space == "register"]
        kept = sum([n * max(b.dtype.bits, 32) // 32 for b, n in own if isinstance(n, int)])
        for version in made.versions:
            for s in version.stages:
                tile = s.tile.rows * s.tile.columns * s.tile.lanes
                used = kept + tile * sum([max(c.dtype.bits, 32) // 32 for c in s.stage.combine])
                if used > target.registers_per_thread:
                    self.fail(f"a thread keeps {used} registers, and {target.name} has {target.registers_per_thread}")

    def block_stage(self, version: Version, s: ScheduledStage) -> None:
        """The rules of a stage that a block of threads runs; tiles of its sources too."""
        block, made = s.block, self.scheduled
        if block is None:
            return
        used, lanes = 1, 1
        target = made.target
        assert isinstance(target, Gpu)
        for d in s.spread:
            if not isinstance(d.extent, int):
                self.fail(f"the loop {d.name} is spread over {d.extent} threads")
            used *= d.extent
            if (d.spread is LoopKind.THREAD) == (d in s.reduced):
                self.fail(f"the loop {d.name} is {'reduced' if d in s.reduced else 'free'}, and {d.spread} loops are not")
            if d.spread is LoopKind.WARP:
                lanes *= d.extent
                if d.extent & (d.extent - 1) or lanes > target.warp:
                    self.fail(f"{lanes} lanes share the loop {d.name}, and warps have {target.warp}, halved again and again")
        if used > made.threads:
            self.fail(f"the loops of a stage are spread over {used} threads of {made.threads}")
        if any(d in s.reduced for d in s.spread) and any(in_order(c.kind, c.dtype) for c in s.stage.combine):
            self.fail("a sum whose terms are combined one after the other is spread over threads")
        inner = [b for b in block.barriers if b != "stage"]
        if block.skip and (inner or s.copies or lanes > 1 or s.partials):
            what = f"a barrier {BARRIERS[inner[0]]}" if inner else "an exchange between threads"
            self.fail(f"{what} is in a loop nest that the threads outside the block have left")
        if any(name not in BARRIERS for name in block.barriers):
            self.fail(f"there are no barriers but {', '.join(BARRIERS)}")
        for t in s.stage.to:
            own = type(t.target) is Local and made.places[t.target].space == "register"
            if own and (used != made.threads or block.skip or any(d in s.free for d in s.spread)):
                self.fail(f"{t.target.name} lies in registers, and some threads do not compute all of it")
        groups = [d.most or 1 for d in s.spread if d.spread is not LoopKind.WARP]
        shared_out = any(d.spread is LoopKind.GROUP_REDUCE for d in s.spread)
        if shared_out != bool(s.partials) or (shared_out and len(s.partials) != len(s.stage.combine)):
            self.fail(f"{len(s.stage.combine)} sums of warps meet in {len(s.partials)} Locals")
        for b in s.partials:
            need, there = math.prod(groups) * s.tile.rows * s.tile.columns * s.tile.lanes, made.places[b].elements
            if isinstance(there, int) and there < need:
                self.fail(f"{need} sums of warps meet in {b.name}, which has {there} elements")
        for n, tile, stage in s.copies:
            if s.reads[n].source is not tile:
                self.fail(f"%{n} does not read the tile of its source")
            above = s.sums[: block.outer]
            self.addresses(version, stage, ["the tile's source", "the tile"], above)
            for name, a in zip(("the tile's source", "the tile"), stage.accesses, strict=True):
                self.access(stage, a, name)
            assert stage.block is not None
            for axis in stage.stage.free:
                digits = [(d.unit, d.most) for d in stage.free if d.parts[0][0] == axis and d.most is not None]
                outer = [d.unit for d in above if d.parts[0][0] == axis]
                self.covered(stage.block, axis, sorted(digits), self.tiles[tile][axis], self.length(axis), min(outer, default=0))
            self.block_stage(version, stage)

    def covered(self, block: BlockChoice, a: AxisId, digits: list[tuple[int, int]], size: int, length: int, step: int = 0) -> None:
        """The digits reach every place of a block, and the predicates hold for those inside the block and the axis alone.

        step    places from tile to tile, where the block is a tile of a source
        """
        below = 1
        for unit, n in digits:
            if unit != below:
                self.fail(f"the loops over {a} cover {_digits(digits)} of {size} places")
            below = unit * n
        if below < size:
            self.fail(f"the loops over {a} cover {_digits(digits)} of {size} places")
        own = [e for e in block.tails if any(type(x) is Idx and x.of == a for x in leaves(e))]
        whole = step or dict(self.scheduled.kernel.loops).get(a, max(length, 1))
        for start in {0, (length - 1) // whole * whole}:
            for place in {*range(max(size - 2, 0), below), max(min(size, length - start) - 1, 0), min(below - 1, length - start)}:

                def leaf(x: Leaf, start: int = start, place: int = place) -> int:
                    return start if type(x) is BlockStart else start + place if type(x) is Idx else self.length(x.of)

                holds = all(int(evaluate(e, leaf)) >= 0 for e in own)
                if holds != (place < size and start + place < length) and length:
                    cut = "are left out" if not holds else "are taken in"
                    self.fail(f"places from {start + place} of {a} {cut}, and the block ends at {min(start + size, length)}")

    def barriers(self, version: Version) -> None:
        """A barrier stands wherever threads could see in which order they run."""
        own = {b for b, p in self.scheduled.places.items() if p.space == "register"}
        filled = {a.source.shares or a.source for s in version.stages for a in s.stores} - own
        stored, read = set[Buffer](), set[Buffer]()
        for k, s in enumerate(version.stages):
            if s.block is None:
                return
            inner = [a.source for _, _, stage in s.copies for a in stage.reads.values()]
            reads = filled & {b.shares or b for b in (*[a.source for a in s.reads.values()], *inner)}
            stores = filled & {a.source.shares or a.source for a in s.stores}
            if "stage" in s.block.barriers:
                stored, read = set(), set()
            for b in (stored & (reads | stores)) | (read & stores):
                self.fail(f"stage {k} {'reads' if b in reads else 'stores'} {b.name}, which threads use before, and there is no barrier")
            stored, read = stored | stores, read | reads
            around = [d for d in (*s.free, *s.sums[: s.block.outer]) if s.kind(d) in (LoopKind.SERIAL, LoopKind.REDUCE) and d.extent != 1]
            if s.copies and "copied" not in s.block.barriers:
                self.fail(f"stage {k} reads tiles that other threads copy, and there is no barrier after the copies")
            if s.copies and around and "tile" not in s.block.barriers:
                self.fail(f"stage {k} copies tiles that other threads may still read, and there is no barrier before the copies")
            if s.partials and "folded" not in s.block.barriers:
                self.fail(f"stage {k} reads the sums of other warps, and there is no barrier after they are stored")
            if s.partials and any(d in s.free for d in around) and "partials" not in s.block.barriers:
                self.fail(f"stage {k} stores sums of warps that others may still read, and there is no barrier before")


def _in_block(length: int, number: int, x: Leaf) -> int:
    """A length, or the number of a block along it."""
    return number if type(x) is BlockNumber else length


def _names(loops: Iterable[Loop]) -> str:
    return ", ".join([d.name for d in loops]) or "none"


def _digits(digits: Iterable[tuple[int, ExprLike]]) -> str:
    return " and ".join([f"{n} times {unit}" for unit, n in digits]) or "none"

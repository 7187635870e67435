"""Schedules kernels for processors: loops, vectors, register tiles, prefetches, code for last blocks, places of Locals.

A stage's axes become loops, cut into the digits that memory has; loops that every access walks as one are merged; `search` chooses what
is a vector and what a tile; the rest follows from addresses and sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ngraph.errors import ProgramError
from ngraph.op_graph import expr
from ngraph.op_graph.expr import Bin, ExprLike, Idx, Leaf, Len, combine
from ngraph.op_graph.opdef import COST
from ngraph.parts.storage import lifetimes, lowest_place
from ngraph.plan.kernels import Buffer, Kernel, Local, Plan, Stage, room_of
from ngraph.program.program import AxisId
from ngraph.schedule.address import KernelAddresses, StageAddresses, dense, inside_expressions
from ngraph.schedule.form import (
    Access,
    LengthBound,
    Loop,
    Place,
    PrefetchAhead,
    ScheduledKernel,
    ScheduledPlan,
    ScheduledStage,
    StageChoice,
    Tile,
    Version,
    sliding,
)
from ngraph.schedule.linear import Forms
from ngraph.schedule.matrix import matrix_loops, terms
from ngraph.schedule.search import AccessDescriptor, LoopSchedule, MatrixLoops, View, cost, scalar, schedule, summing_alike
from ngraph.targets import Cpu
from ngraph.targets.products import PRODUCTS
from ngraph.targets.tuning import (
    ALIGNMENT,
    BOUNDED_PARTS,
    CONFLICT_BYTES,
    MAX_HOT_BLOCKS,
    MAX_LISTED_OFFSETS,
    MAX_PEELED_AXES,
    MAX_SLIDING_TERMS,
    MAX_STACK_BYTES,
    MAX_UNROLLED_STEPS,
    MIN_BOUNDED_GAIN,
    MIN_BOUNDED_SHARE,
    MIN_FULL_SHARE,
    MIN_INSTRUCTIONS_PER_LINE,
    MIN_STEPS_TO_PREFETCH,
    MIN_UNROLLED_SHARE,
    MIN_WORK_ITEMS_TO_PREFETCH,
    PAGE_BYTES,
    SPILLED_UNROLL,
    WRITTEN_COST,
)
from ngraph.tensors.index import Read, loop_variant_axes

FREE = ("read", "number", "index", "predicate", "copy")  # lines that cost nothing beside their address


def schedule_kernel(
    plan: Plan, kernel: Kernel, target: Cpu, picks: Mapping[View, LoopSchedule] | None = None, bare: bool = False
) -> ScheduledKernel:
    """The kernel as it runs on a processor. Lengths that the plan does not know stay expressions.

    picks: schedules of loop nests that take the place of the cheapest ones. bare: without vectors and tiles, which makes the shortest code.
    """
    return _Scheduler(plan, kernel, target, picks or {}, bare=bare).scheduled()


Choose = Callable[[Sequence[Loop], Sequence[Loop]], StageChoice]


def chosen_kernel(
    plan: Plan,
    kernel: Kernel,
    target: Cpu,
    choices: Sequence[Choose],
    bounds: Sequence[LengthBound] = (),
    peeled: frozenset[AxisId] = frozenset(),
) -> ScheduledKernel:
    """The kernel with these choices: functions of the free and the reduced loops, one for each stage of each version.

    bounds: those of the first versions. peeled: the axes whose last block has versions of its own. Raises ProgramError where choices are
    of another kernel.
    """
    given = iter(choices)
    made = _Scheduler(plan, kernel, target, {}, given).given(bounds, peeled)
    if sum([len(v.stages) for v in made.versions]) != len(choices):
        raise ProgramError(f"a kernel with {len(made.versions)} versions of {len(kernel.stages)} stages is given {len(choices)} schedules")
    return made


def schedule_plan(plan: Plan, target: Cpu, each: Callable[[Plan, Kernel, Cpu], ScheduledKernel] = schedule_kernel) -> ScheduledPlan:
    """All kernels of a plan, and of the plans inside its opaque ops, as they run on a processor. each: what schedules a kernel."""
    kernels = {step: each(plan, step, target) for step in plan.every if type(step) is Kernel}
    return ScheduledPlan(plan, target, kernels, {body: schedule_plan(body, target, each) for body in plan.bodies})


class _Scheduler(KernelAddresses):
    """One kernel: its grid, its memory, and what its stages share."""

    def __init__(
        self,
        plan: Plan,
        kernel: Kernel,
        target: Cpu,
        picks: Mapping[View, LoopSchedule],
        choices: Iterator[Choose] | None = None,
        bare: bool = False,
    ) -> None:
        super().__init__(plan, kernel)
        self.target, self.picks, self.choices, self.bare = target, picks, choices, bare
        self.share = plan.share(kernel)
        self.written = WRITTEN_COST  # the price of a value of code
        if 0 < self.share < MIN_FULL_SHARE:
            self.written *= 4.0 ** math.ceil(math.log(MIN_FULL_SHARE / self.share, 4))
        self.views: dict[View, None] = {}  # in order
        self.cut: dict[AxisId, int] = {}
        self.cold = False
        self.bound: LengthBound | None = None  # of the versions that are being made
        self.joined: frozenset[AxisId] = frozenset()  # axes whose last, shorter block runs the code of the others
        self.whole: tuple[ScheduledStage, ...] = ()  # those of whole blocks that were made to find these axes, for the first version
        self.same: list[StageChoice] = []  # what was chosen for stages that are made again, the first one first
        self.like: list[LoopSchedule] = []  # the schedules of stages that these have to add up like, the first one first
        self.looked: list[View] = []  # the views of their stages
        self.touched: set[Buffer] = set()  # buffers that stages before have brought into the caches
        self.places, self.walks, self.scratch = self._locals()
        counts = [d.likely for d in self.grid.values()]
        self.repeated = len(kernel.stages) > 1 and bool(counts) and math.prod(counts) >= MIN_WORK_ITEMS_TO_PREFETCH

    def scheduled(self) -> ScheduledKernel:
        """The kernel with versions for all lengths, and for short ones where that pays and nothing is picked for it."""
        versions = self._bounded(None)
        return self._kernel(versions if self.picks or self.bare else [*self._shorter(versions), *versions])

    def given(self, bounds: Sequence[LengthBound], peeled: frozenset[AxisId]) -> ScheduledKernel:
        """The kernel with what is chosen for it: versions of these bounds, and for last blocks along these axes."""
        self.joined = frozenset([a for a, _ in self._short_ends()]) - peeled
        return self._kernel([v for bound in (*bounds, None) for v in self._bounded(bound)])

    def _kernel(self, versions: Sequence[Version]) -> ScheduledKernel:
        strides = {b: self.strides(b) for b in dict.fromkeys((*self.kernel.sources, *self.kernel.targets, *self.places))}
        return ScheduledKernel(
            self.kernel, tuple(self.grid.values()), self.places, strides, self.scratch, tuple(versions), tuple(self.views), self.target
        )

    # ---- versions

    def _bounded(self, bound: LengthBound | None, like: Sequence[Version] = ()) -> list[Version]:
        """The versions of a bound. `like`: those that they have to add up like."""
        self.bound, self.like, self.looked = bound, [s.chosen for v in like for s in v.stages], []
        self.touched.clear()
        ends = self._short_ends()
        if ends and bound is None and self.choices is None:
            self.joined = self._alike(ends)
        return list(self._versions([(a, short) for a, short in ends if a not in self.joined]))

    def _alike(self, ends: Sequence[tuple[AxisId, int]]) -> frozenset[AxisId]:
        """The axes whose last block needs no code of its own: its loops run whole tiles, as those of other blocks do, but fewer.

        Where short code counts, one loop with a remainder does for all blocks.
        """
        with self._cut({a: self.block[a] for a, _ in ends}):
            self.whole = self._stages()

        def alike(s: ScheduledStage, a: AxisId, short: int) -> bool:
            return _fewer(s, a, self.block[a], short) or (self.written > WRITTEN_COST and _is_one_free_loop(s, a))

        return frozenset([a for a, short in ends if all(alike(s, a, short) for s in self.whole)])

    def _shorter(self, general: list[Version]) -> list[Version]:
        """The versions for lengths far below the assumed one of an axis, the shortest first; none where they gain little or sum otherwise.

        They are for the axis of open length along which the kernel gains most.
        """
        free = [d for s in general[0].stages if s.stage.combine for d in s.free if len(d.parts) == 1]
        inner = [d for d in free if not isinstance(d.extent, int) and not isinstance(self.length(d.parts[0][0]), int)]
        if not inner or self.share < MIN_BOUNDED_SHARE:
            return []
        best, gained = list[Version](), 0.0
        for axis in dict.fromkeys([d.parts[0][0] for d in inner]):
            found, now, gain = list[Version](), general, 0.0
            for parts in BOUNDED_PARTS:
                most = self.plan.guess(axis) // parts
                made = self._bounded(LengthBound(axis, most), general) if most else now
                before, after = (self._cost(versions[0]) for versions in (now, made))
                if made is now or before < MIN_BOUNDED_GAIN * after or _orders(made) != _orders(general):
                    continue
                found, now, gain = [*made, *found], made, max(gain, before - after)
            if gain > gained:
                best, gained = found, gain
        self.bound, self.like = None, []
        return best

    def short(self, d: Loop) -> bool:
        """Whether the versions that are being made are for short lengths of a loop: prices take the mean of these."""
        if self.bound is None or self.bound.axis != d.parts[0][0] or isinstance(d.extent, int):
            return False
        return d.most is None or self.bound.most < d.most

    def likely(self, d: Loop) -> int:
        """The places that prices take of a loop, and of the axis of one whose last block alone is shorter."""
        if d.most is None or isinstance(d.extent, int) or self.short(d):
            return d.likely
        return -(-self.plan.guess(d.parts[0][0]) // d.unit)

    def _cost(self, version: Version) -> float:
        """Returns the cost of a version's stages at the lengths that were looked at last."""
        return sum([cost(view, self.target, s.chosen) for view, s in zip(self.looked, version.stages, strict=False)])

    def _short_ends(self) -> list[tuple[AxisId, int]]:
        """The axes whose last block is shorter, with its places; none where there would be too many versions."""
        sizes = [(a, b, self.length(a)) for a, b in self.kernel.parallel]
        ends = [(a, size % b) for a, b, size in sizes if isinstance(size, int) and size > b and size % b]
        return [] if len(ends) > MAX_PEELED_AXES else ends

    def _versions(self, ends: list[tuple[AxisId, int]]) -> Iterator[Version]:
        """For each combination of whole and last blocks the stages, all of whose sizes are then known."""
        if not ends:
            yield Version(dict(self.cut), self.cold, self._joined_stages(), self.bound)
            return
        (a, short), *others = ends
        count, before = self.grid[a].extent, self.cold
        assert isinstance(count, int)
        for size in (self.block[a], short):
            self.cut[a] = size
            self.cold = before or (size == short and count > MAX_HOT_BLOCKS)
            yield from self._versions(others)
        self.cold = before
        del self.cut[a]

    def _joined_stages(self) -> tuple[ScheduledStage, ...]:
        """The stages, with the schedules of whole blocks along the axes whose last block runs the same code."""
        whole, self.whole = self.whole, ()
        if not self.joined or self.choices is not None:
            return whole or self._stages()
        if not whole:
            with self._cut({a: self.block[a] for a in self.joined}):
                whole = self._stages()
        self.same = [s.choice for s in whole]
        return self._stages()

    def _stages(self) -> tuple[ScheduledStage, ...]:
        return tuple([_StageScheduler(self, s).scheduled() for s in self.kernel.stages])

    @contextmanager
    def _cut(self, sizes: Mapping[AxisId, int]) -> Iterator[None]:
        """In the block, work items have so many places of these axes."""
        before = dict(self.cut)
        self.cut |= sizes
        yield
        self.cut = before

    # ---- lengths and memory

    def streams(self, b: Buffer) -> bool:
        """Whether this kernel is the first to bring a buffer from memory, piece by piece with its work items."""
        return self.repeated and b not in self.touched and self.bytes_of(b) > 2 * self.target.l2

    def bytes_of(self, b: Buffer) -> int:
        """The bytes of a buffer, at the lengths that costs take where they are open; 0 of a Local, which is in the caches."""
        if b.bytes is not None or type(b) is Local:
            return b.bytes or 0
        return math.prod(room_of(b, self.guess)) * b.dtype.bits // 8

    def guess(self, a: AxisId) -> int:
        """The length of an axis that prices take in the versions that are being made."""
        n = self.plan.guess(a)
        return min(n, self.bound.most) if self.bound is not None and self.bound.axis == a else n

    def _locals(self) -> tuple[dict[Local, Place], dict[Buffer, tuple[ExprLike, ...]], ExprLike]:
        """Places and strides of the Locals, and the bytes of scratch: on the stack if all of them fit there."""
        every = dict.fromkeys([s.target for stage in self.kernel.stages for s in stage.to if type(s.target) is Local])
        sizes: dict[Local, ExprLike] = {}
        walks: dict[Buffer, tuple[ExprLike, ...]] = {}
        for b in every:
            shape = [self.room(b, d) for d in b.dims]
            if len(shape) > 1 and isinstance(shape[-1], int):  # rows start at whole vectors
                whole = self.target.lanes(b.dtype.bits)
                shape[-1] = -(-shape[-1] // whole) * whole
            walks[b] = self._spread(b, shape)
            sizes[b] = combine("*", shape[0], walks[b][0]) if shape else 1
        known = {b: n for b, n in sizes.items() if isinstance(n, int)}
        if len(known) == len(sizes) and sum([k * b.dtype.bits // 8 for b, k in known.items()]) <= MAX_STACK_BYTES:
            return {b: Place("stack", max(k, 1)) for b, k in known.items()}, walks, 0
        if len(known) == len(sizes):
            at, total = self._packed({b: -(-k * (b.dtype.bits // 8) // ALIGNMENT) * ALIGNMENT for b, k in known.items()})
            return {b: Place("scratch", known[b], at[b]) for b in at}, walks, total
        places: dict[Local, Place] = {}
        scratch: ExprLike = 0
        for b, n in sizes.items():
            places[b] = Place("scratch", n, scratch)
            scratch = scratch + (n * (b.dtype.bits // 8) + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT
        return places, walks, scratch

    def _spread(self, b: Local, shape: list[ExprLike]) -> tuple[ExprLike, ...]:
        """Strides of a Local. Rows that are read together lie an odd number of lines apart, where they would share sets of the first cache.

        Rows are what stands before the terms of a sum; rows of open length may have any distance.
        """
        strides = dense(shape)
        rows = min([_rows_of(b, r, s.reduced) for s in self.kernel.stages for r in s.reads() if r.source is b], default=0)
        step = strides[rows - 1] if rows else 0
        if isinstance(step, int) and (not step or step * b.dtype.bits // 8 % CONFLICT_BYTES):
            return strides
        line = max(self.target.line * 8 // b.dtype.bits, 1)
        apart = (step + (line - 1)) // line // 2 * (2 * line) + line
        return (*[combine("*", n, apart) for n in dense(shape[:rows])], *strides[rows:])

    def _packed(self, sizes: dict[Local, int]) -> tuple[dict[Local, int], int]:
        """Offsets of Locals in scratch, and its bytes: what no later stage of a work item reads leaves its place to others.

        What a stage stores that does not run in every work item stays.
        """
        stages, depth = self.kernel.stages, len(self.kernel.loops)
        lives = lifetimes((*[s.target for s in stage.to], *[r.source for r in stage.reads()]) for stage in stages)
        lives |= {s.target: (-1, len(stages)) for stage in stages if stage.depth < depth for s in stage.to}
        places: dict[Local, int] = {}
        for b in sorted(sizes, key=lambda b: (lives[b][0], -sizes[b])):
            first, last = lives[b]
            beside = [(at, sizes[other]) for other, at in places.items() if lives[other][0] <= last and first <= lives[other][1]]
            places[b] = lowest_place(sizes[b], beside)
        return places, max([at + sizes[b] for b, at in places.items()], default=0)

    # ---- loops of an axis

    def divided(self, a: AxisId, unit: int) -> bool:
        """Whether a length is a multiple of `unit` in every call, and so are the places of a work item."""
        return expr.divisor(self.length(a)) % unit == 0 and self.block.get(a, unit) % unit == 0 and self.cut.get(a, unit) % unit == 0

    def digits(self, a: AxisId, units: list[int]) -> list[Loop]:
        """The loops along an axis, outermost first: one, or one for each digit that memory has; none for a single place."""
        n, block = self.length(a), self.block.get(a)
        size: ExprLike
        if block is None or (isinstance(n, int) and n <= block):
            size, most = n, n if isinstance(n, int) else None
        elif a in self.cut or (isinstance(n, int) and n % block == 0):
            size = most = self.cut.get(a, block)
        else:
            size, most = expr.minimum(n - combine("*", self.grid[a].counter, block), block), block
        if size == 1:
            return []
        found: list[Loop] = []
        likely = self.guess(a) if most is None else min(self.guess(a), max(most, 1))
        every = [1, *[k for k in units if most is None or k < most]]
        uneven = any(expr.divisor(size) % k for k in units)
        for unit, above in zip(every, [*every[1:], size], strict=True):
            total = min(above, size) if isinstance(size, int) and isinstance(above, int) else above
            places = total // unit if expr.divisor(total) % unit == 0 else (total + (unit - 1)) // unit
            count = places if isinstance(places, int) else None if most is None else -(-most // unit)
            guess = -(-min(above if isinstance(above, int) else likely, likely) // unit)
            found.insert(0, Loop(((a, unit, places),), places, count, unit, total, found[0] if found else None, uneven, guess=guess))
        return found


class _StageScheduler(StageAddresses):
    """One stage in one version."""

    def __init__(self, kernel: _Scheduler, stage: Stage) -> None:
        super().__init__(kernel, stage)
        self.kernel = kernel
        cuts = self._cuts()
        digits = {a: kernel.digits(a, cuts.get(a, [])) for a in (*stage.free, *stage.reduced)}
        self.free = [d for a in stage.free for d in digits[a]]
        self.reduced = [d for a in stage.reduced for d in digits[a]]
        self.dims = frozenset((*self.free, *self.reduced))
        place = {a: kernel.place(a, digits.get(a, ())) for a in (*digits, *kernel.block)}
        start = {a: kernel.place(a, ()) for a in kernel.block}
        self.forms = Forms(place, start, kernel.length)

    def scheduled(self) -> ScheduledStage:
        """The stage with what is chosen for it, or with the next of the choices that the kernel was given."""
        self._look()
        choose = None if self.kernel.choices is None else next(self.kernel.choices, None)
        given = self.kernel.same.pop(0) if self.kernel.same else None if choose is None else choose(self.free, self.reduced)
        chosen = self._choose() if given is None else given.loops
        self.tile = self._tile(chosen)
        accesses = (*self.reads.values(), *self.stores)
        for a in accesses:
            a.mode = self.mode(a, self.tile)
        if given is None:
            sums, flattened = self._one_loop() if self.tile.deep is None else (self._deep_last(self.tile.deep), 0)
            unroll = self._unroll(sums[-1]) if flattened else 1
            self._prefetch(sums, flattened, unroll)
        else:
            loops, asked = (*self.free, *self.reduced), dict(given.prefetch)
            sums, flattened, unroll = [self._numbered(loops, k) for k in given.sums], given.flattened, given.unroll
            for k, a in enumerate(accesses):
                a.prefetch = asked.get(k)
        self.kernel.touched.update([a.source for a in self.reads.values()])
        return ScheduledStage(
            self.stage,
            tuple(self.free),
            tuple(self.reduced),
            self.reads,
            tuple(self.stores),
            self.deps,
            self.uses,
            self.interleaved,
            chosen,
            self.tile,
            tuple(sums),
            flattened,
            unroll,
            self.forms,
        )

    def _tile(self, chosen: LoopSchedule) -> Tile:
        """A schedule over the loops of the stage."""
        loops = (*self.free, *self.reduced)
        vector, tile, second = [None if k is None else self._numbered(loops, k) for k in (chosen.vector, chosen.tile, chosen.second)]
        across = second if second is not None else vector
        order = tuple([self._numbered(loops, k) for k in chosen.order])
        made = Tile(chosen.lanes, vector, tile, across, chosen.rows, chosen.columns, order)
        if chosen.deep is None:
            return made
        deep = self._numbered(loops, chosen.deep)
        return made._replace(deep=deep, terms=terms(self.stage, deep, self.kernel.target))

    def _numbered(self, loops: Sequence[Loop], k: int) -> Loop:
        if not 0 <= k < len(loops):
            raise ProgramError(f"a schedule names loop {k}, and the stage has {len(loops)}")
        return loops[k]

    # ---- loops and addresses

    def _cuts(self) -> dict[AxisId, list[int]]:
        """The digits into which memory and indices split the axes of the stage: their units, each a multiple of the one before."""
        found: dict[AxisId, set[int]] = {}
        for b, index in [(r.source, r.index) for r in self.stage.reads()] + [(s.target, s.index) for s in self.stage.to]:
            for a, div, mod in b.dims:
                e = index[a]
                if (div > 1 or mod is not None) and type(e) is Idx:
                    found.setdefault(e.of, set()).update([k for k in (div, div * (mod or 1)) if k > 1])
                for axis, unit in _digits_of(e):
                    if self.kernel.divided(axis, unit):
                        found.setdefault(axis, set()).add(unit)
        made: dict[AxisId, list[int]] = {}
        for a, units in found.items():
            for k in sorted(units):
                if k % made.setdefault(a, [1])[-1] == 0:
                    made[a].append(k)
        return {a: units[1:] for a, units in made.items()}

    def _look(self) -> None:
        """Finds what each line uses and depends on, and how each read and store moves."""
        self.find_accesses()
        for a in (*self.reads.values(), *self.stores):
            if a.turn and self.kernel.streams(a.source):
                a.prefetch = PrefetchAhead("item", a.turn)
        self._merge()
        self.interleaved = self._runs()
        self.find_deps()
        self.hoisted = [a for a in (*self.reads.values(), *self.stores) if not a.epilogue]

    def _merge(self) -> None:
        """Loops that every access walks as one become one."""
        accesses, inside = [*self.reads.values(), *self.stores], inside_expressions(self.stage, self.reads, self.stores)
        apart = {d for e in inside for leaf in expr.leaves(e) if type(leaf) is Idx for d in self.forms.place[leaf.of].coef}
        apart |= {d for d in self.dims if not isinstance(d.extent, int) or d.uneven}
        for loops in (self.free, self.reduced):
            todo = [d for d in loops if d not in apart]
            pairs = [(o, i) for o in todo for i in todo if o is not i]
            while pairs:
                outer, inner = pairs.pop(0)
                if outer not in loops or inner not in loops:
                    continue
                n = inner.extent
                assert isinstance(n, int) and isinstance(outer.extent, int)
                steps = [(a.coef.get(outer, 0), a.coef.get(inner, 0)) for a in accesses]
                if any(not isinstance(c, int) or not isinstance(k, int) or k != c * n for k, c in steps):
                    continue
                one = Loop((*outer.parts, *inner.parts), outer.extent * n, outer.extent * n, total=outer.extent * n)
                for a, (_, c) in zip(accesses, steps, strict=True):
                    a.coef = {d: k for d, k in a.coef.items() if d is not outer and d is not inner} | ({one: c} if c else {})
                loops[loops.index(outer)] = one
                loops.remove(inner)
                todo = [d for d in loops if d not in apart]
                pairs = [(one, d) for d in todo if d is not one] + [(d, one) for d in todo if d is not one]
                pairs += [(o, i) for o in todo for i in todo if o is not i and one not in (o, i)]
        self.dims = frozenset((*self.free, *self.reduced))

    def _runs(self) -> dict[int, list[int]]:
        """For each store the stores that go to the places next to each other, all along, itself among them."""
        alike: dict[Any, list[int]] = {}
        for k, (a, s) in enumerate(zip(self.stores, self.stage.to, strict=True)):
            alone = (
                k if s.combine != "set" or a.rest or (a.predicate and a.dtype.bits < 32) else -1
            )  # of narrowed lanes masks are constants
            alike.setdefault((alone, a.source, a.base, a.dtype, frozenset(a.coef.items()), s.line < self.border), []).append(k)
        runs: dict[int, list[int]] = {}
        for some in alike.values():
            run: list[int] = []
            for k in sorted(some, key=lambda k: self.stores[k].const):
                run = run if run and self.stores[run[-1]].const + 1 == self.stores[k].const else []
                run.append(k)
                runs[k] = run
        return runs

    # ---- vectors and tiles

    def _choose(self) -> LoopSchedule:
        """The cheapest vectors, tile and order."""
        target, stage = self.kernel.target, self.stage
        walks = [self._walk(a) for a in self.reads.values()]
        stores = enumerate(zip(self.stores, stage.to, strict=True))
        walks += [self._walk(a, True, s.combine != "set", len(self.interleaved[k])) for k, (a, s) in stores]
        moving = [a for a in (*self.reads.values(), *self.stores) if a.deps]  # what stays fills no vector
        bits = [a.dtype.bits for a in moving] + [c.dtype.bits for c in stage.combine]
        lanes = target.lanes(max([32 if b == 16 else b for b in bits], default=32))
        fused = {c.line for c in stage.combine if c.kind == "add" and self.lines[c.line].op in PRODUCTS}
        shown = range(self.border) if self.reducing else self.lines
        work = [(float(COST[self.lines[n].op]), self.deps[n]) for n in shown if n not in fused and self.lines[n].op not in FREE]
        self.work = sum([k for k, _ in work])
        bound = [d for d in self.dims if d.uneven and d.lower is not None]
        bound += self.reduced if self.takes_in_order() else []
        loops = (*self.free, *self.reduced)
        number = {d: k for k, d in enumerate(loops)}

        def numbers(dims: Iterable[Loop]) -> frozenset[int]:
            return frozenset([number[d] for d in dims])

        seen = [
            AccessDescriptor(
                tuple([_known(a.coef.get(d, 0)) for d in loops]), numbers(a.deps), numbers(non_affine), a.dtype.bits // 8, *how
            )
            for a, non_affine, how in walks
        ]
        view = View(
            tuple(range(len(self.free))),
            tuple(range(len(self.free), len(loops))),
            tuple([None if self.kernel.short(d) else d.most for d in loops]),
            tuple(seen),
            tuple([(k, numbers(deps)) for k, deps in work]),
            tuple([numbers(self.deps[c.line]) for c in stage.combine]),
            lanes,
            numbers(bound),
            numbers([d for d in loops if not isinstance(d.extent, int)]),
            tuple([self.kernel.likely(d) for d in loops]),
        )
        if found := matrix_loops(stage, self.reads, self.free, self.reduced, target) if lanes == target.lanes32 else ():
            product = self.lines[stage.combine[0].line].op
            view = view._replace(matrices=tuple([MatrixLoops(*[number[d] for d in some]) for some in found]), product=product)
        if not self.kernel.cold and self.kernel.bound is None:
            self.kernel.views[view] = None
        self.kernel.looked.append(view)
        if self.kernel.like:
            return summing_alike(view, target, self.kernel.like.pop(0))
        if self.kernel.bare and view in self.kernel.views:
            return scalar(view, target)
        return self.kernel.picks.get(view) or schedule(view, target, self.kernel.written)

    def _walk(self, a: Access, store: bool = False, combines: bool = False, run: int = 1) -> tuple[Access, frozenset[Loop], Any]:
        return a, self.moving([e for _, e in a.rest]), (store, a.epilogue, combines, run)

    # ---- sums

    def _one_loop(self) -> tuple[list[Loop], int]:
        """The reduced loops in the order in which they run, and how many of the last become one whose offsets are known beforehand."""
        early_stores = any(s.line < self.border for s in self.stage.to)
        if not self.reduced or not self.reducing or early_stores or self.takes_in_order():
            return list(self.reduced), 0
        if not all(isinstance(d.extent, int) and d.extent > 0 and not d.uneven for d in self.reduced):
            return self._near_last(), 0
        early = [a for a in self.hoisted if not a.deps.isdisjoint(self.reduced)]
        fixed = self.tile.vector not in self.reduced and self.tile.across not in self.reduced
        listed = {d for d in self.reduced if all(isinstance(a.coef.get(d, 0), int) for a in early)}  # others follow from open lengths
        inside = [e for a in early for e in (*a.predicate, *[e for _, e in a.rest])]
        for line in self.stage.before:
            inside += line.exprs if line.read is None else ()
        if not fixed or not listed or not self.moving(inside).isdisjoint(self.reduced):
            return list(self.reduced), 0
        main = [a for a in early if self.tile.vector in a.coef] or early
        far = {d: max([abs(_certain(a.coef.get(d, 0))) for a in main], default=0) if d in listed else math.inf for d in self.reduced}
        order = sorted(self.reduced, key=lambda d: -far[d])
        slides = [d for d in order if d in listed and sliding(self.reads.values(), self.tile, d) is not None][-1:]
        order = [*[d for d in order if d not in slides], *slides]
        k, steps = len(order), 1
        while k and order[k - 1] in listed and steps * _certain(order[k - 1].extent) <= MAX_LISTED_OFFSETS:
            k -= 1
            steps *= _certain(order[k].extent)
        return order, max(len(order) - k, 1)

    def _deep_last(self, deep: Loop) -> list[Loop]:
        """The reduced loops, that of an instruction for matrices last."""
        return [*[d for d in self._near_last() if d is not deep], deep]

    def _near_last(self) -> list[Loop]:
        """The reduced loops where a length is open, those along which what fills vectors is far apart at assumed lengths first."""
        v = self.tile.vector
        if v in self.reduced or self.tile.across in self.reduced or any(d.lower is not None for d in self.reduced):
            return list(self.reduced)

        def assumed(leaf: Leaf) -> int | None:
            return self.kernel.plan.guess(leaf.of) if type(leaf) is Len else None

        def apart(d: Loop) -> float:
            return max([abs(expr.evaluate(a.coef.get(d, 0), assumed)) for a in self.hoisted if v in a.coef], default=0)

        return sorted(self.reduced, key=lambda d: -apart(d))

    def _unroll(self, d: Loop) -> int:
        """Returns the unroll factor of a reduced loop.

        No two unrolled steps may read the same element, or it would stay in a register; but where a window slides along rows, each
        element is read once for all steps and rows that it is a term of.
        """
        n, t, most = _certain(d.extent), self.tile, 1 if self.kernel.share < MIN_UNROLLED_SHARE else MAX_UNROLLED_STEPS
        slides = most > 1 and sliding(self.hoisted, t, d) is not None
        if slides:
            most = max(min(n, MAX_SLIDING_TERMS // (t.rows * t.columns)), 1)
        for a in self.hoisted if not slides else ():
            step, row = a.coef.get(d, 0), a.coef.get(t.tile, 0) if t.tile is not None else 0
            if step and row and isinstance(row, int):  # of a row of open length no two steps are known to be the same
                shared = [u for u in range(1, most) if u * _certain(step) % row == 0 and 0 < u * _certain(step) // row < t.rows]
                most = min([most, *shared])
        full = t.rows * t.columns * len(self.stage.combine) > self.kernel.target.vector_registers // 2
        good = [u for u in range(most, 1, -1) if n % u == 0 and not (u == SPILLED_UNROLL and full and not slides)]
        return good[0] if good else most if len(self.reduced) == 1 and n >= most else 1

    # ---- prefetches

    def _prefetch(self, sums: list[Loop], flattened: int, unroll: int) -> None:
        """Decides what accesses ask for ahead; one of the four ways each."""
        for a in self.reads.values():
            a.prefetch = a.prefetch if a.deps >= self.dims else None
        for a in self.stores:
            a.prefetch = None
        for a in self._paged():
            a.prefetch = PrefetchAhead("page", PAGE_BYTES)
        if not flattened:
            return
        t, d = self.tile.tile, sums[-1]
        rows = 1 if t is None else -(-t.likely // self.tile.rows)
        if unroll > 1 and rows > 1:
            for a in self.hoisted:
                step = self._panel(a) if d in a.coef else 0
                if step:
                    a.prefetch = PrefetchAhead("panel", step)
        if flattened == len(sums):
            for a, step in self._rows():
                a.prefetch = PrefetchAhead("rows", step)

    def _paged(self) -> list[Access]:
        """Reads that come from memory line by line while others are computed with: they ask for lines a page ahead."""
        v = self.tile.vector

        def moves(a: Access) -> bool:
            return self.kernel.bytes_of(a.source) > 2 * self.kernel.target.l2 and a.deps >= self.dims

        reads = [a for a in self.reads.values() if moves(a)]
        lines = len(reads) + 2 * sum(map(moves, self.stores))  # what is stored is read before
        if v is None or self.work < MIN_INSTRUCTIONS_PER_LINE * lines or self.kernel.cold:
            return []
        return [a for a in reads if a.coef.get(v) == 1 and not (a.prefetch or a.rest or a.predicate)]

    def _panel(self, a: Access) -> int:
        """Elements from a panel to the next one, if it is read from memory and again by each row of tiles; else 0."""
        l2, size, v = self.kernel.target.l2, self.kernel.bytes_of(a.source), self.tile.vector
        if size <= l2 or v is None or a.coef.get(v, 0) != 1 or self.tile.tile in a.deps or a.rest or a.predicate:
            return 0
        step = min([c for d, c in a.coef.items() if d in self.free and d is not v and isinstance(c, int)], default=a.turn)
        return step if 0 < step * a.dtype.bits // 8 <= l2 // 2 else 0

    def _rows(self) -> list[tuple[Access, int]]:
        """Operands of the epilogue that come from memory, and elements from row to row."""
        t, v = self.tile.tile, self.tile.vector
        if t is None or v is None or math.prod([_certain(d.extent) for d in self.reduced]) < MIN_STEPS_TO_PREFETCH:
            return []
        found, seen = [], set[Any]()
        for a in (*self.reads.values(), *self.stores):
            place = a.source.shares or a.source, a.const, frozenset(a.coef.items())
            step, beside = a.coef.get(t), a.coef.get(v) == 1 and not a.rest and not a.predicate
            large = self.kernel.bytes_of(a.source) > self.kernel.target.l2
            if a.epilogue and beside and isinstance(step, int) and large and place not in seen:
                seen.add(place)
                found.append((a, step))
        return found


def _fewer(s: ScheduledStage, axis: AxisId, block: int, short: int) -> bool:
    """Whether a stage for blocks of an axis does shorter ones by the same tiles, with fewer iterations of the axis's outermost loop."""
    own = [d for d in s.loops if any(axis == a for a, _, _ in d.parts)]
    if any(len(d.parts) > 1 or d in s.reduced for d in own):
        return False
    for d in own[:1]:  # outermost first
        unit = d.unit * (s.tile.lanes if d is s.tile.vector else 1)
        rows = unit * s.tile.units(d)
        if any(block % e.unit or short % e.unit for e in own) or block % rows or short % (unit if d is s.tile.vector else rows):
            return False
    return True


def _is_one_free_loop(s: ScheduledStage, axis: AxisId) -> bool:
    """Whether at most one loop of a stage runs along an axis, which no other axis shares and over which nothing is summed."""
    own = [d for d in s.loops if any(axis == a for a, _, _ in d.parts)]
    return not own or (len(own) == 1 and len(own[0].parts) == 1 and own[0] not in s.reduced)


def _digits_of(e: ExprLike) -> list[tuple[AxisId, int]]:
    """Returns the digits of axes, `index // k` and `index % k`, that an index is made of: (axis, k) each."""
    if type(e) is not Bin:
        return []
    if e.op not in ("//", "%") or not isinstance(e.b, int) or e.b < 2:
        return [*_digits_of(e.a), *_digits_of(e.b)]
    if type(e.a) is Idx:
        return [(e.a.of, e.b)]
    inner = _digits_of(e.a)
    quotient = type(e.a) is Bin and e.a.op == "//" and len(inner) == 1
    return [*inner, *[(axis, unit * e.b) for axis, unit in inner if quotient and e.op == "%"]]


def _rows_of(b: Local, read: Read, reduced: Sequence[AxisId]) -> int:
    """The dims of a Local before those along which a sum reads it, if these are the last ones; else 0."""
    along = [not set(reduced).isdisjoint(loop_variant_axes(read.index[a])) for a, _, _ in b.dims]
    rows = along.index(True) if True in along else 0
    return rows if all(along[rows:]) else 0


def _orders(versions: Sequence[Version]) -> list[Any]:
    """The order in which the sums of each stage of each version are added up."""
    return [s.order_of_sums for v in versions for s in v.stages]


def _known(c: ExprLike) -> int | None:
    return c if isinstance(c, int) else None


def _certain(c: ExprLike) -> int:
    """A whole number that is known."""
    assert isinstance(c, int)
    return c

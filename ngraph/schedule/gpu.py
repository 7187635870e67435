"""Schedules kernels for graphics processors: grids, loops over the threads of a block, tiles in shared memory, barriers.

A work item is a block of threads. Free axes are shared out to threads, the contiguous one to adjacent threads; a register tile of a sum of
products stays with each thread, and its operands go tile by tile through shared memory. Other sums are shared out to the lanes of warps
(WARP) and to warps (GROUP_REDUCE). Locals lie in shared memory, or in registers where each thread has all of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ngraph.errors import ProgramError, UnsupportedError
from ngraph.op_graph.expr import ExprLike, Idx, Len, combine, leaves
from ngraph.plan.kernels import Buffer, Kernel, Line, Local, OpaqueOp, Plan, Stage, Store
from ngraph.program.program import AxisId
from ngraph.schedule.address import KernelAddresses, StageAddresses, dense
from ngraph.schedule.form import (
    SPREAD,
    BlockChoice,
    BlockStart,
    CopyChoice,
    Loop,
    LoopChoice,
    LoopKind,
    Place,
    ScheduledKernel,
    ScheduledPlan,
    ScheduledStage,
    Tile,
    Version,
)
from ngraph.schedule.linear import Forms
from ngraph.schedule.search import LoopSchedule
from ngraph.targets import Gpu
from ngraph.targets.tuning import (
    BLOCK_ELEMENTS,
    MAX_BLOCK_THREADS,
    MAX_REGISTER_ELEMENTS,
    MAX_SHARED_DEPTH,
    PRODUCT_BLOCK,
    PRODUCT_DEPTH,
    SHARED_ALIGNMENT,
    THREAD_COLUMNS,
    THREAD_ROWS,
)
from ngraph.tensors.index import Read, identity_index

UNKNOWN_LENGTH = 1 << 30  # the assumed length of an axis of unknown length


def schedule_plan(plan: Plan, target: Gpu) -> ScheduledPlan:
    """All kernels of a plan, and of the plans inside its opaque ops, for a graphics processor, in blocks that suit it.

    Raises UnsupportedError for a kernel that has no schedule, with the reason.
    """
    made: dict[Kernel, ScheduledKernel] = {}
    bodies: dict[Plan, ScheduledPlan] = {}

    def step(s: Kernel | OpaqueOp) -> Kernel | OpaqueOp:
        if type(s) is Kernel:
            scheduled = schedule_kernel(plan, s, target)
            made[scheduled.kernel] = scheduled
            return scheduled.kernel
        assert type(s) is OpaqueOp
        inner = {k: schedule_plan(a, target) for k, a in s.bodies.items()}
        bodies.update({body.plan: body for body in inner.values()})
        return replace(s, attrs={**s.attrs, **{k: body.plan for k, body in inner.items()}}) if inner else s

    once, start, steps = [tuple([step(s) for s in some]) for some in (plan.once, plan.start, plan.steps)]
    return ScheduledPlan(replace(plan, once=once, start=start, steps=steps), target, made, bodies)


def schedule_kernel(plan: Plan, kernel: Kernel, target: Gpu) -> ScheduledKernel:
    """The kernel in blocks that suit the target, as blocks of threads run it. Raises UnsupportedError with the reason where none can."""
    kernel = _with_grid(plan, kernel)
    while True:
        scheduler = _Chooser(plan, kernel, target)
        made = chosen_kernel(plan, kernel, target, scheduler.threads, [scheduler.choice(s) for s in kernel.stages])
        made = _BlockScheduler(plan, kernel, target, scheduler.threads).scheduled(_with_barriers(made))
        if made.shared <= target.shared:
            return made
        smaller = _smaller(plan, kernel)
        if smaller is None:
            raise UnsupportedError(
                f"a kernel needs {made.shared} bytes of shared memory, and {target.name} has {target.shared} for a block of threads",
                line=_line(kernel),
                fix="take smaller axes, or compute the value in several statements",
            )
        kernel = smaller


def chosen_kernel(plan: Plan, kernel: Kernel, target: Gpu, threads: int, choices: Sequence[BlockChoice]) -> ScheduledKernel:
    """The kernel with these choices, one for each stage. Raises ProgramError where they are of another kernel."""
    if len(choices) != len(kernel.stages):
        raise ProgramError(f"a kernel of {len(kernel.stages)} stages is given {len(choices)} schedules")
    return _BlockScheduler(plan, kernel, target, threads).scheduled(choices)


def _line(kernel: Kernel) -> tuple[str, int] | None:
    return next(((o.file, o.line) for o in kernel.origin if o.line), None)


# ---- the grid


def _with_grid(plan: Plan, kernel: Kernel) -> Kernel:
    """A sum of products with blocks along two of its free axes; another kernel with blocks of the first axis that all stages share."""
    loops, movable, known = dict(kernel.loops), _movable(kernel), partial(_known, plan)
    wanted = {}
    if len(kernel.stages) == 1 and _operands(kernel.stages[0], known):
        wanted = dict.fromkeys(_tile_axes(kernel.stages[0], known), PRODUCT_BLOCK)
    else:
        (first, *_) = [*[a for a, _ in kernel.loops if a in movable], *[a for a in kernel.stages[0].free if a in movable], None]
        if first is not None:
            others = [[a for a in (*s.free, *s.reduced) if a != first and a not in loops] for s in kernel.stages]
            rest = max([math.prod([_long(known(a)) for a in axes]) for axes in others])
            wanted = {first: max(-(-BLOCK_ELEMENTS // max(rest, 1)), 2)}
    for a, b in wanted.items():
        if a in movable and loops.get(a, b) > 1:
            loops[a] = b
    stages = tuple([replace(s, depth=len(loops)) for s in kernel.stages]) if len(loops) > len(kernel.loops) else kernel.stages
    return replace(kernel, loops=tuple(loops.items()), stages=stages)


def _smaller(plan: Plan, kernel: Kernel) -> Kernel | None:
    """The kernel with its largest block halved; None where no block can be smaller."""
    movable = _movable(kernel)
    sizes = {a: b if (n := _known(plan, a)) is None else min(b, n) for a, b in kernel.loops if a in movable and b > 2}
    if not sizes:
        return None
    largest = max(sizes, key=lambda a: sizes[a])
    return replace(kernel, loops=tuple([(a, -(-sizes[a] // 2) if a == largest else b) for a, b in kernel.loops]))


def _movable(kernel: Kernel) -> set[AxisId]:
    """The axes along which blocks may have any length: in all stages, and what a stage stores is read at the index where it was stored."""
    found = set.intersection(*[{*stage.free} for stage in kernel.stages])
    stored = {s.target for stage in kernel.stages for s in stage.to}
    at = [s.index for stage in kernel.stages for s in stage.to]
    at += [r.index for stage in kernel.stages for r in stage.reads() if r.source in stored]
    return {a for a in found if all(Idx(a) in index.values() and _moves_alone(index, a) for index in at)}


def _moves_alone(index: Mapping[AxisId, ExprLike], a: AxisId) -> bool:
    """Whether an axis stands in an index only as it is."""
    return all(e == Idx(a) or not any(type(x) is Idx and x.of == a for x in leaves(e)) for e in index.values())


def _known(plan: Plan, a: AxisId) -> int | None:
    """The length of an axis; None where it is open."""
    try:
        return plan.length(a)
    except LookupError:
        return None


def _operands(stage: Stage, known: partial[int | None]) -> list[int]:
    """The lines that read operands of a sum of products, each again for the places of some free axis; none where it is another stage."""
    found = [n for n, line in enumerate(stage.before) if line.read is not None and _is_shared(stage, line.read, known)]
    return found if len(stage.combine) == 1 and stage.combine[0].kind == "add" and len(_tile_axes(stage, known)) == 2 else []


def _is_shared(stage: Stage, r: Read, known: partial[int | None]) -> bool:
    """Whether threads along some free axis read the same of a source, a block of it at its own indices."""
    if type(r.source) is Local or r.predicate or any(e != Idx(a) or a not in (*stage.free, *stage.reduced) for a, e in r.index.items()):
        return False
    again = [a for a in stage.free if a not in r.index and known(a) != 1]
    return bool(again) and any(a in stage.reduced for a in r.index)


def _tile_axes(stage: Stage, known: partial[int | None]) -> list[AxisId]:
    """The two free axes of a thread's tile of sums: the contiguous one of the result, and the longest that its other operand has."""
    free = [a for a in stage.free if known(a) != 1]
    reads = [{x.of for e in r.index.values() for x in leaves(e) if type(x) is Idx} for r in stage.reads()]
    last = [a for a in reversed(_store_axes(stage)) if a in free]
    if not last:
        return []
    others = [a for a in free if a != last[0] and any(a in axes and last[0] not in axes for axes in reads)]
    return [last[0], *sorted(others, key=lambda a: -_long(known(a)))[:1]]


def _store_axes(stage: Stage) -> list[AxisId]:
    """The axes of the stage along which its first store goes, the contiguous one last."""
    if not stage.to:
        return [*stage.free]
    s = stage.to[0]
    return [x.of for a, _, _ in s.target.dims for x in leaves(s.index[a]) if type(x) is Idx]


def _long(n: int | None) -> int:
    return UNKNOWN_LENGTH if n is None else n


def _power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


# ---- choices


class _Chooser(KernelAddresses):
    """The choices for the stages of one kernel, barriers between them left out."""

    def __init__(self, plan: Plan, kernel: Kernel, target: Gpu) -> None:
        super().__init__(plan, kernel)
        self.target = target
        work = max([math.prod([min(self.places(a), MAX_BLOCK_THREADS) for a in (*s.free, *s.reduced)]) for s in kernel.stages], default=1)
        self.threads = min(max(_power(work), target.warp), MAX_BLOCK_THREADS, target.threads_per_block)

    def places(self, a: AxisId) -> int:
        """The places along an axis in one block."""
        n, block = _known(self.plan, a), self.block.get(a)
        return _long(n) if block is None else min(_long(n), block)

    def choice(self, stage: Stage) -> BlockChoice:
        """Returns the choice for a stage. Raises UnsupportedError where it has no schedule."""
        folding = [s for s in stage.to if s.combine != "set"]
        if folding:
            name = folding[0].target.name or "a Local"
            raise UnsupportedError(
                f"a kernel folds values into {name} by {folding[0].combine}, which takes atomic instructions", line=_line(self.kernel)
            )
        operands = _operands(stage, partial(_known, self.plan))
        if operands:
            return self.product(stage, operands)
        made = self.reduction(stage) if stage.reduced else self.elementwise(stage)
        return made

    def split(self, a: AxisId, inner: Iterable[tuple[int, LoopKind | None, str]]) -> list[LoopChoice]:
        """The loops along an axis, outermost first: `inner` ones from the inside out, and one over what is left."""
        unit, found = 1, list[LoopChoice]()
        for extent, spread, tile in inner:
            if extent > 1:
                found.insert(0, LoopChoice(a, unit, extent, spread, tile))
                unit *= extent
        size: ExprLike = self.places(a)
        if a not in self.block and _known(self.plan, a) is None:
            size = Len(a)
        left = (size + (unit - 1)) // unit
        return found if left == 1 else [LoopChoice(a, unit, left), *found]

    def tails(self, loops: Iterable[LoopChoice]) -> list[ExprLike]:
        """The predicates of places inside the block, for axes with these loops."""
        covered: dict[AxisId, int | None] = {}
        for c in loops:
            before = covered.get(c.axis, 1)
            covered[c.axis] = before * c.extent if isinstance(c.extent, int) and before is not None else None
        return [e for a, cover in covered.items() for e in self.ends(a, cover, self.block.get(a))]

    def ends(self, a: AxisId, cover: int | None, block: int | None) -> list[ExprLike]:
        """The predicates of an axis whose loops cover so many places of each block of so many."""
        n, known = self.length(a), _known(self.plan, a)
        end = combine("-", combine("-", n, 1), Idx(a))
        if block is None or (known is not None and known <= block):
            return [] if known is not None and cover == known else [end]
        inside = combine("-", combine("+", BlockStart(a), block - 1), Idx(a))
        return [*([inside] if cover != block else []), *([end] if known is None or known % block else [])]

    def nested(self, loops: Mapping[AxisId, list[LoopChoice]], order: Iterable[AxisId]) -> tuple[LoopChoice, ...]:
        """Loops of several axes: those of one thread, those that are spread, then the register tile."""
        every = [c for a in order for c in loops[a]]
        serial = [c for c in every if c.spread is None and not c.tile]
        spread = [c for kind in SPREAD for c in every if c.spread is kind]
        return (*serial, *spread, *[c for role in ("rows", "columns", "vector") for c in every if c.tile == role])

    def elementwise(self, stage: Stage) -> BlockChoice:
        """Free axes over threads, the contiguous one of the result over adjacent ones; reduced axes one place after the other."""
        order = self.last(stage.free, _store_axes(stage))
        left, loops = self.threads, dict[AxisId, list[LoopChoice]]()
        for a in reversed(order):
            vector = self.vector(stage) if a == order[-1] else 1
            share = min(_power(-(-self.places(a) // vector)), left)
            left //= share
            loops[a] = self.split(a, [(vector, None, "vector"), (share, LoopKind.THREAD, "")])
        free = self.nested(loops, order)
        reduced = tuple([c for a in stage.reduced for c in self.split(a, ())])
        return BlockChoice(free, reduced, tuple(self.tails((*free, *reduced))), True)

    def last(self, axes: Iterable[AxisId], wanted: Sequence[AxisId]) -> list[AxisId]:
        """Axes in an order whose last ones are those that memory has last."""
        return sorted(axes, key=lambda a: wanted.index(a) if a in wanted else -1)

    def vector(self, stage: Stage) -> int:
        """Returns the places along the contiguous axis of the result that one instruction takes, if all accesses go along."""
        axes = _store_axes(stage)
        if stage.reduced or not axes or axes[-1] not in stage.free:
            return 1
        a, exprs = axes[-1], [e for _, line in stage.lines() if line.read is None for e in line.exprs]
        at = [(r.source, r.index, r.predicate) for r in stage.reads()] + [(s.target, s.index, s.predicate) for s in stage.to]
        bits = max([b.dtype.bits for b, _, _ in at], default=32)
        lanes = self.target.lanes(max(bits, 32))
        if self.places(a) % lanes or self.length(a) == Len(a) or int(str(self.length(a))) % lanes or lanes == 1:
            return 1
        for b, index, predicate in at:
            moving = [d for d in b.dims if any(type(x) is Idx and x.of == a for x in leaves(index[d[0]]))]
            whole = not moving or (len(moving) == 1 and moving[0] == (*b.dims[-1][:1], 1, None) and index[moving[0][0]] == Idx(a))
            aligned = all(isinstance(k, int) and k % lanes == 0 for k in self.strides_in(b)[:-1]) if moving else True
            if not whole or not aligned or b.border or any(x.of == a for e in predicate for x in leaves(e) if type(x) is Idx):
                return 1
        return 1 if any(type(x) is not Len for e in exprs for x in leaves(e)) else lanes

    def strides_in(self, b: Buffer) -> tuple[ExprLike, ...]:
        """Strides of a buffer; those of a Local in shared memory."""
        return dense([self.room(b, d) for d in b.dims]) if type(b) is Local else self.strides(b)

    def reduction(self, stage: Stage) -> BlockChoice:
        """A sum over lanes of warps and over warps; free axes over the threads that are left."""
        if StageAddresses(self, stage).takes_in_order():
            return self.elementwise(stage)
        reads = [r for r in stage.reads() if r.index]
        own = frozenset((*stage.free, *stage.reduced))
        moving = [{x.of for e in r.index.values() for x in leaves(e) if type(x) is Idx and x.of in own} for r in reads]
        sizes = [math.prod([self.places(a) for a in axes]) for axes in moving]
        widest = reads[sizes.index(max(sizes))] if reads else None
        along = [] if widest is None else [x.of for a, _, _ in widest.source.dims for x in leaves(widest.index[a]) if type(x) is Idx]
        along = [a for a in along if a in (*stage.free, *stage.reduced)]
        free, reduced = self.last(stage.free, along), self.last(stage.reduced, along)
        inner: dict[AxisId, list[tuple[int, LoopKind | None, str]]] = {a: [] for a in (*free, *reduced)}
        left = self.threads
        if not along or along[-1] in stage.reduced or math.prod([self.places(a) for a in free]) * self.target.warp <= left:
            lanes = min(_power(self.places(reduced[-1])), self.target.warp)
            inner[reduced[-1]].append((lanes, LoopKind.WARP, ""))
            left //= lanes
        for a in reversed(free):
            share = min(_power(self.places(a)), left)
            inner[a].append((share, LoopKind.THREAD, ""))
            left //= share
        for a in reversed(reduced):
            taken = math.prod([extent for extent, _, _ in inner[a]])
            share = min(_power(-(-self.places(a) // taken)), left)
            inner[a].append((share, LoopKind.GROUP_REDUCE, ""))
            left //= share
        loops = {a: self.split(a, inner[a]) for a in inner}
        chosen = self.nested(loops, free), self.nested(loops, reduced)
        return BlockChoice(*chosen, tuple(self.tails((*chosen[0], *chosen[1]))))

    def product(self, stage: Stage, operands: list[int]) -> BlockChoice:
        """A sum of products: a tile of sums for each thread, and tiles of the operands in shared memory."""
        column, row = _tile_axes(stage, partial(_known, self.plan))
        left, loops = self.threads, dict[AxisId, list[LoopChoice]]()
        order = [a for a in stage.free if a not in (row, column)] + [row, column]
        for a in reversed(order):
            wide, how = (THREAD_COLUMNS, "columns") if a == column else (THREAD_ROWS, "rows") if a == row else (1, "")
            wide = min(wide, self.places(a))
            most = PRODUCT_BLOCK // THREAD_COLUMNS if a == column else left
            share = min(_power(-(-self.places(a) // wide)), left, most)
            left //= share
            loops[a] = self.split(a, [(wide, None, how), (share, LoopKind.THREAD, "")])
        free = self.nested(loops, order)
        depth = self.depths(stage)
        sums = {a: self.split(a, [(depth[a], None, "")]) for a in stage.reduced}
        outer = [c for a in stage.reduced for c in sums[a] if c.unit == depth[a] and (c.unit > 1 or depth[a] == 1)]
        inner = [c for a in stage.reduced for c in sums[a] if c not in outer]
        copies = tuple([c for n in operands if (c := self.copy(stage, n, depth)) is not None])
        return BlockChoice(free, (*outer, *inner), tuple(self.tails((*free, *outer, *inner))), False, copies, len(outer))

    def depths(self, stage: Stage) -> dict[AxisId, int]:
        """Returns the places of tiles in shared memory along each reduced axis."""
        found: dict[AxisId, int] = {}
        left = MAX_SHARED_DEPTH
        for a in sorted(stage.reduced, key=self.places):
            n = self.places(a)
            found[a] = n if n <= min(PRODUCT_DEPTH, left) else min(PRODUCT_DEPTH, left) if len(found) == len(stage.reduced) - 1 else 1
            left = max(left // found[a], 1)
        return found

    def copy(self, stage: Stage, n: int, depth: Mapping[AxisId, int]) -> CopyChoice | None:
        """A tile of an operand: its contiguous axis over adjacent threads. None where its size is not known."""
        read = stage.before[n].read
        assert read is not None
        left, loops, tails = self.threads, dict[AxisId, list[LoopChoice]](), list[ExprLike]()
        axes = [x.of for e in read.index.values() for x in leaves(e) if type(x) is Idx]
        for a in reversed(axes):
            block = depth.get(a, self.places(a))
            if block >= UNKNOWN_LENGTH:
                return None
            share = min(_power(block), left)
            left //= share
            places = -(-block // share)
            loops[a] = [LoopChoice(a, share, places)] if places > 1 else []
            loops[a] += [LoopChoice(a, 1, share, LoopKind.THREAD)] if share > 1 else []
            tails += self.ends(a, places * share, depth.get(a, self.block.get(a)))
        return CopyChoice(n, self.nested(loops, axes), tuple(tails))


# ---- from choices to stages


class _BlockScheduler(KernelAddresses):
    """One kernel: where its Locals lie, and its stages as they were chosen."""

    def __init__(self, plan: Plan, kernel: Kernel, target: Gpu, threads: int) -> None:
        super().__init__(plan, kernel)
        self.target, self.threads, self.shared = target, threads, 0
        self.places: dict[Local, Place] = {}

    def scheduled(self, choices: Sequence[BlockChoice]) -> ScheduledKernel:
        kernel = self.kernel
        for b in dict.fromkeys([s.target for stage in kernel.stages for s in stage.to if type(s.target) is Local]):
            shape = [self.room(b, d) for d in b.dims]
            if not all(isinstance(n, int) for n in shape):
                raise UnsupportedError(f"{b.name} in shared memory has an open length", line=_line(kernel))
            size = math.prod([n for n in shape if isinstance(n, int)])
            self.walks[b] = dense(shape)
            self.take(b, size, self.of_each_thread(b, size, choices))
        stages = tuple([_BlockStage(self, s, c).scheduled() for s, c in zip(kernel.stages, choices, strict=True)])
        strides = {b: self.strides(b) for b in dict.fromkeys((*kernel.sources, *kernel.targets, *self.places))}
        grid = tuple(self.grid.values())
        return ScheduledKernel(
            kernel, grid, self.places, strides, 0, (Version({}, False, stages),), (), self.target, self.threads, self.shared
        )

    def take(self, b: Local, elements: int, register: bool = False) -> None:
        """Gives a Local its place."""
        self.places[b] = Place("register", elements) if register else Place("shared", elements, self.shared)
        if not register:
            self.shared += -(-elements * (b.dtype.bits // 8) // SHARED_ALIGNMENT) * SHARED_ALIGNMENT

    def of_each_thread(self, b: Local, size: int, choices: Sequence[BlockChoice]) -> bool:
        """Whether every thread computes all of a Local, or the same elements of it that it reads later."""
        if size > MAX_REGISTER_ELEMENTS:
            return False
        for stage, c in zip(self.kernel.stages, choices, strict=True):
            if any(s.target is b for s in stage.to):
                shared_out = any(loop.spread is not None for loop in c.free) or c.skip
                count = math.prod([loop.extent for loop in c.reduced if loop.spread is not None and isinstance(loop.extent, int)])
                early = any(s.target is b and s.line < len(stage.before) for s in stage.to)
                if shared_out or early or count != self.threads:
                    return False
        return True


class _BlockStage(StageAddresses):
    """One stage. `above`: the loops around the copy of a tile, and `span` the lengths of the tile."""

    def __init__(
        self, kernel: _BlockScheduler, stage: Stage, choice: BlockChoice, above: Sequence[Loop] = (), tile: Iterable[AxisId] = ()
    ) -> None:
        super().__init__(kernel, stage)
        self.kernel, self.choice = kernel, choice
        self.free, self.reduced = [_loop(c) for c in choice.free], [_loop(c) for c in choice.reduced]
        self.dims = frozenset((*self.free, *self.reduced))
        every = (*above, *self.free, *self.reduced)
        axes = dict.fromkeys((*stage.free, *stage.reduced, *kernel.block))
        place = {a: kernel.place(a, [d for d in every if d.parts[0][0] == a]) for a in axes}
        start = {a: kernel.place(a, [d for d in above if d.parts[0][0] == a]) for a in axes}
        self.forms = Forms(place, start, kernel.length)
        self.blocked |= frozenset(tile)

    def scheduled(self) -> ScheduledStage:
        """The stage with its addresses."""
        choice = self.choice
        self.find_accesses()
        copies = tuple([self.copied(c) for c in choice.copies])
        self.find_deps()
        roles = {c.tile: d for c, d in zip(choice.free, self.free, strict=True) if c.tile}
        vector, rows = roles.get("vector"), roles.get("rows")
        columns = roles.get("columns", vector)
        lanes = vector.most or 1 if vector is not None else 1
        across = 1 if columns is vector or columns is None else columns.most or 1
        tile = Tile(lanes, vector, rows, columns, 1 if rows is None else rows.most or 1, across, tuple(self.free))
        for a in (*self.reads.values(), *self.stores):
            a.mode = self.mode(a, tile)
        partials = self.partials(tile) if any(d.spread is LoopKind.GROUP_REDUCE for d in self.reduced) else ()
        alone = {k: [k] for k in range(len(self.stores))}
        number = {d: k for k, d in enumerate(self.free)}
        numbered = LoopSchedule(
            lanes,
            None if vector is None else number[vector],
            None if rows is None else number[rows],
            None if columns is None or columns is vector else number[columns],
            tile.rows,
            tile.columns,
            tuple(number.values()),
        )
        free, reduced = tuple(self.free), tuple(self.reduced)
        return ScheduledStage(
            self.stage,
            free,
            reduced,
            self.reads,
            tuple(self.stores),
            self.deps,
            self.uses,
            alone,
            numbered,
            tile,
            reduced,
            forms=self.forms,
            block=choice,
            copies=copies,
            partials=partials,
        )

    def copied(self, c: CopyChoice) -> tuple[int, Local, ScheduledStage]:
        """The tile of a source, which the line reads from then on."""
        read = self.stage.before[c.line].read if c.line < len(self.stage.before) else None
        if read is None or any(e != Idx(a) for a, e in read.index.items()):
            raise ProgramError(f"a tile is copied for %{c.line}, which reads no source at its own indices")
        above = self.reduced[: self.choice.outer]
        axes = tuple(read.index)
        tile = Local(f"tile{len(self.kernel.places)}", tuple([(a, 1, None) for a in axes]), read.source.dtype)
        shape: list[ExprLike] = []
        for a in axes:
            inner = [d for d in self.reduced[self.choice.outer :] if d.parts[0][0] == a]
            if a in self.stage.reduced:
                shape.append(math.prod([d.most or 1 for d in inner]))
            else:
                shape.append(self.kernel.room(tile, (a, 1, None)))
        if not all(isinstance(n, int) for n in shape):
            raise UnsupportedError(f"a tile of {read.source.name} has an open length", line=_line(self.kernel.kernel))
        self.kernel.walks[tile] = dense(shape)
        self.kernel.take(tile, math.prod([n for n in shape if isinstance(n, int)]))
        line, index = Line("read", (), read.source.dtype, {}, read), identity_index(axes)
        stage = Stage(axes, (), (line,), (), (), (Store(0, tile, index),), self.stage.depth)
        made = _BlockStage(self.kernel, stage, BlockChoice(c.loops, (), c.tails), above, axes).scheduled()
        forms, blocked = self.forms, self.blocked
        start = {a: self.kernel.place(a, [d for d in above if d.parts[0][0] == a]) for a in forms.place}
        self.forms, self.blocked = Forms(forms.place, start, self.kernel.length), frozenset(axes)
        self.reads[c.line] = self.access(tile, index, (), None)
        self.forms, self.blocked = forms, blocked
        return c.line, tile, made

    def partials(self, tile: Tile) -> tuple[Local, ...]:
        """Room for the sums of warps: one for each place of the loops that are spread, lanes of a warp's sum aside."""
        spread = [d for d in (*self.free, *self.reduced) if d.spread in (LoopKind.THREAD, LoopKind.GROUP_REDUCE)]
        size = math.prod([d.most or 1 for d in spread]) * tile.rows * tile.columns * tile.lanes
        found = []
        for c in self.stage.combine:
            found.append(Local(f"partial{len(self.kernel.places)}", (), c.dtype))
            self.kernel.walks[found[-1]] = ()
            self.kernel.take(found[-1], size)
        return tuple(found)


def _loop(c: LoopChoice) -> Loop:
    most = c.extent if isinstance(c.extent, int) else None
    return Loop(((c.axis, c.unit, c.extent),), c.extent, most, c.unit, (most or 0) * c.unit, spread=c.spread)


# ---- barriers


def _with_barriers(scheduled: ScheduledKernel) -> list[BlockChoice]:
    """The choices of a kernel's stages with the barriers that they need: between threads that store and those that read, or store anew."""
    (version,) = scheduled.versions
    stored, read = set[Buffer](), set[Buffer]()  # since the last barrier
    filled = {b for s in version.stages for b in _stores(s)} - {b for b, p in scheduled.places.items() if p.space == "register"}
    found = []
    for s in version.stages:
        assert s.block is not None
        own = set[str]()
        reads, stores = _reads(s) & filled, _stores(s) & filled
        if stored & (reads | stores) or read & stores:
            own.add("stage")
            stored, read = set(), set()
        again = any(d.extent != 1 for d in (*s.free, *s.reduced[: s.block.outer]) if s.kind(d) in (LoopKind.SERIAL, LoopKind.REDUCE))
        if s.copies:
            own |= {"tile", "copied"} if again else {"copied"}
        if s.partials:
            own |= {"partials", "folded"} if any(s.kind(d) is LoopKind.SERIAL for d in s.free) else {"folded"}
        stored |= stores
        read |= reads
        found.append(s.block._replace(barriers=frozenset(own)))
    return found


def _reads(s: ScheduledStage) -> set[Buffer]:
    inner = [a.source for _, _, copy in s.copies for a in copy.reads.values()]
    return {b.shares or b for b in (*[a.source for a in s.reads.values()], *inner)}


def _stores(s: ScheduledStage) -> set[Buffer]:
    return {a.source.shares or a.source for a in s.stores}

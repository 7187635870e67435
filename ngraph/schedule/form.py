"""The nouns of a scheduled kernel: how a kernel of a plan runs on one kind of machine, as values.

    ScheduledKernel = kernel · grid loops · Locals with their places · versions
    Version         = {axis: places of the block} · cold · stages · the lengths that it is for
    ScheduledStage  = stage · loops · reads and stores as addresses · LoopSchedule · prefetches

One work item runs the stages one after another for one block of every grid loop. A version is code for blocks of known lengths: the last
block along an axis may be shorter, and has a version of its own, but where loops of the same tiles run less often for it.
`docs/native.md` shows the printed form.

On a graphics processor a work item is a block of threads that run the stages together. Loops may be spread over them, predicates cut off
the places behind the ends of blocks, a tile of a source may be copied to shared memory, and barriers stand where threads read what others
have stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from ngraph.op_graph.expr import ExprLike, Leaf, divisor
from ngraph.plan.kernels import Buffer, Kernel, Local, Plan, Stage
from ngraph.program.program import AxisId
from ngraph.schedule.search import LoopSchedule, View
from ngraph.targets import Target
from ngraph.targets.tuning import ASSUMED_LENGTH


class LoopKind(StrEnum):
    """The ways in which a loop runs.

    GRID          its places are work items
    THREAD        each thread of a block takes one place
    WARP          so does each thread of a warp, of a reduced loop: lanes exchange their sums
    GROUP_REDUCE  so do threads of several warps, of a reduced loop: sums go through shared memory
    VECTOR        its places are lanes of one instruction
    UNROLL        some places are done together, in registers
    REDUCE        one place after the other, of a reduced loop
    SERIAL        one place after the other, of a free loop
    """

    GRID = "grid"
    THREAD = "thread"
    WARP = "warp"
    GROUP_REDUCE = "group"
    VECTOR = "vector"
    UNROLL = "unroll"
    REDUCE = "reduce"
    SERIAL = "serial"


SPREAD = (LoopKind.GROUP_REDUCE, LoopKind.THREAD, LoopKind.WARP)  # over the threads of a block, those of distant threads first


class BlockNumber(Leaf):
    """The number of a work item's block along a loop of the grid."""

    __slots__ = ()


class BlockStart(Leaf):
    """The index at which a work item's block begins along an axis: indices of Locals count from there."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Loop:
    """One loop: `extent` places, at most `most` (None: unknown).

    parts   the digits of axes that its counter is made of, outermost first: (axis, elements for each place, places). One part, but
            where loops were merged because every access walks them as one
    unit    elements of the axis that one place covers; `total` elements are covered by all places together
    lower   the loop over the elements inside one place, if memory splits the axis
    uneven  the loop has fewer places at the end of the axis than elsewhere
    grid    the loop is one of the kernel's: each place is a block of its axis, and work items run in parallel
    guess   the places that prices take where `extent` is unknown, at least 1
    spread  THREAD, WARP or GROUP_REDUCE of a loop whose places are taken by threads of a block
    """

    parts: tuple[tuple[AxisId, int, ExprLike], ...]
    extent: ExprLike
    most: int | None
    unit: int = 1
    total: ExprLike = 0
    lower: Loop | None = None
    uneven: bool = False
    grid: bool = False
    spread: LoopKind | None = None
    guess: int = ASSUMED_LENGTH

    @property
    def likely(self) -> int:
        """The places that prices take, at least 1."""
        return max(self.extent, 1) if isinstance(self.extent, int) else self.guess

    @property
    def counter(self) -> BlockNumber:
        """The counter of a loop of the grid, as an expression."""
        return BlockNumber(self.parts[0][0])

    @property
    def name(self) -> str:
        """The axes and digits that it walks, such as "H", "C // 16" and "H, W"."""
        return ", ".join([a if unit == 1 else f"{a} // {unit}" for a, unit, _ in self.parts])


def whole_steps(extent: ExprLike, unit: int) -> int:
    """Returns what divides the number of steps of `unit` places along a loop in every call; 0 where the last step may be cut."""
    places = divisor(extent)
    return places // unit if places % unit == 0 else 0


class PrefetchAhead(NamedTuple):
    """A prefetch of an access.

    kind      "item"   the same place of the next work item, `distance` elements on
              "page"   the line `distance` bytes on, where hardware prefetchers stop
              "panel"  the packed operand's next panel, `distance` elements on, shared by the rows of tiles
              "rows"   the lines of all rows of a tile, `distance` elements apart, before the end of the sum
    """

    kind: str
    distance: int


class Access:
    """One read or store at `source` + the sum of `base`, of `coef[loop] * counter`, of `const`, of stride * `rest`, in elements.

    base    terms that stay in a work item: (grid loop, elements), and elements over lengths
    rest    (stride, expression) of what is not a sum of multiples of counters
    zero    all bytes of the value that is read where a predicate fails are 0
    deps    the loops that it moves with
    room    elements of the buffer behind the last one that it reaches; None where that is unknown
    turn    elements to the same place of the next work item
    mode    how lanes lie: "one" element for all, "contiguous", "strided", "reversed", "transposed", "indexed"; "scalar" without lanes
    """

    __slots__ = "source dtype predicate pad_value zero base coef const rest deps room turn prefetch epilogue mode".split()

    def __init__(self, source: Buffer, predicate: tuple[ExprLike, ...], pad_value: Any):
        self.source, self.dtype, self.predicate, self.pad_value = source, source.dtype, predicate, pad_value
        self.zero = not predicate or pad_value is None or not any(self.dtype.array(pad_value).tobytes())
        self.base: tuple[tuple[Loop | None, ExprLike], ...] = ()
        self.coef: dict[Loop, ExprLike] = {}
        self.const = 0
        self.rest: list[tuple[ExprLike, ExprLike]] = []
        self.deps: frozenset[Loop] = frozenset()
        self.room: int | None = None
        self.turn = 0
        self.prefetch: PrefetchAhead | None = None
        self.epilogue = False
        self.mode = "scalar"


class Tile(NamedTuple):
    """A LoopSchedule over the loops of a stage.

    deep, terms   the reduced loop of whose places an instruction for matrices takes so many at once; the last one may take fewer
    """

    lanes: int
    vector: Loop | None
    tile: Loop | None
    across: Loop | None
    rows: int
    columns: int
    order: tuple[Loop, ...]
    deep: Loop | None = None
    terms: int = 1

    def units(self, d: Loop) -> int:
        """Returns the number of steps of a loop that are computed together."""
        return self.rows if d is self.tile else self.columns if d is self.across else 1


def sliding(accesses: Iterable[Access], tile: Tile, d: Loop) -> Access | None:
    """A read of vectors whose window slides along the rows of a tile: steps of a reduced loop meet what other rows have read before.

    Only where the vectors begin anywhere in lines, or are put together from several: others are read as fast as they are added up.
    """
    t, v, n = tile.tile, tile.vector, d.extent
    if t is None or v is None or not isinstance(n, int):
        return None
    for a in accesses:
        row, step = a.coef.get(t, 0), a.coef.get(d, 0)
        if not isinstance(row, int) or not isinstance(step, int) or v not in a.coef or a.epilogue or a.rest or a.predicate:
            continue
        apart = a.coef[v] != 1 or any(c % tile.lanes for e, c in a.coef.items() if e is not v and isinstance(c, int))
        if apart and row and step and any(u * step % row == 0 and abs(u * step // row) < tile.rows for u in range(1, n)):
            return a
    return None


class StageChoice(NamedTuple):
    """All that is chosen for a stage; the rest of a ScheduledStage follows from it, the stage and the target.

    loops      vectors, tile and order of the free loops, by number
    sums       the reduced loops in the order in which they run, by number; the last `flattened` run as one
    unroll     steps of the innermost reduced loop that are written out
    prefetch   (number of the access among reads and stores, what it asks for)
    """

    loops: LoopSchedule
    sums: tuple[int, ...]
    flattened: int
    unroll: int
    prefetch: tuple[tuple[int, PrefetchAhead], ...]


class LoopChoice(NamedTuple):
    """One loop of a block of threads: `extent` places of `unit` elements each. `tile`: its part of the register tile, "rows" and so on."""

    axis: AxisId
    unit: int
    extent: ExprLike
    spread: LoopKind | None = None
    tile: str = ""


class CopyChoice(NamedTuple):
    """A line's source goes tile by tile to shared memory: the loops over the tile, and the predicates of its ends."""

    line: int
    loops: tuple[LoopChoice, ...]
    tails: tuple[ExprLike, ...]


class BlockChoice(NamedTuple):
    """All that is chosen for a stage that a block of threads runs.

    free, reduced   its loops, outermost first
    tails           the predicates that hold inside the block: nothing is done where one is negative
    skip            threads outside leave the loop nest; without it, they go along and do nothing
    copies          tiles of sources, made inside the first `outer` of the reduced loops
    barriers        where the threads wait for each other, some of BARRIERS
    """

    free: tuple[LoopChoice, ...]
    reduced: tuple[LoopChoice, ...]
    tails: tuple[ExprLike, ...] = ()
    skip: bool = False
    copies: tuple[CopyChoice, ...] = ()
    outer: int = 0
    barriers: frozenset[str] = frozenset()


BARRIERS = {
    "stage": "before the stage",
    "tile": "before the tiles of sources are copied",
    "copied": "after they are copied",
    "partials": "before the sums of warps are stored",
    "folded": "after they are stored",
}


@dataclass(eq=False)
class ScheduledStage:
    """A stage with its loops.

    free, reduced   its loops in the order of its axes
    reads, stores   addresses, by the number of the line, and in the order of the stage's stores
    deps, uses      the loops with which a line or accumulator changes, and the lines that it reads
    interleaved     for each store the stores that go to the places next to each other, itself among them
    chosen, tile    the schedule by numbers of loops, and over the loops themselves
    sums            the reduced loops in the order in which they run; the last `flattened` of them run as one, with listed offsets
    unroll          steps of the innermost reduced loop that are written out in whole tiles
    block           what was chosen for a block of threads
    copies          (line, Local, stage that fills it) of each tile of a source; the line reads the Local
    partials        for each accumulator the Local in which sums of warps meet; none without GROUP_REDUCE
    """

    stage: Stage
    free: tuple[Loop, ...]
    reduced: tuple[Loop, ...]
    reads: Mapping[int, Access]
    stores: tuple[Access, ...]
    deps: Mapping[int, frozenset[Loop]]
    uses: Mapping[int, tuple[int, ...]]
    interleaved: Mapping[int, list[int]]
    chosen: LoopSchedule
    tile: Tile
    sums: tuple[Loop, ...] = ()
    flattened: int = 0
    unroll: int = 1
    forms: Any = field(default=None, repr=False)
    block: BlockChoice | None = None
    copies: tuple[tuple[int, Local, ScheduledStage], ...] = ()
    partials: tuple[Local, ...] = ()

    def kind(self, d: Loop) -> LoopKind:
        """Returns the way in which a loop runs."""
        if d.grid or d.spread is not None:
            return d.spread or LoopKind.GRID
        if d is self.tile.vector:
            return LoopKind.VECTOR
        if d in (self.tile.tile, self.tile.across, self.tile.deep):
            return LoopKind.UNROLL
        return LoopKind.REDUCE if d in self.reduced else LoopKind.SERIAL

    def cuts_rows(self, d: Loop) -> bool:
        """Whether an iteration behind whole tiles may have fewer rows than it computes."""
        return d is self.tile.tile and bool(self.stage.combine) and self.block is None and self.tile.deep is None

    @property
    def spread(self) -> dict[Loop, int]:
        """The loops that are spread over threads, and the numbers by which threads of adjacent places differ."""
        found: dict[Loop, int] = {}
        step = 1
        for kind in reversed(SPREAD):
            for d in reversed((*self.tile.order, *self.sums)):
                if d.spread is kind:
                    found[d] = step
                    step *= d.extent if isinstance(d.extent, int) else 1
        return found

    @property
    def choice(self) -> StageChoice:
        """Returns the choices of its schedule."""
        number = {d: k for k, d in enumerate(self.loops)}
        asked = [(k, a.prefetch) for k, a in enumerate(self.accesses) if a.prefetch is not None]
        return StageChoice(self.chosen, tuple([number[d] for d in self.sums]), self.flattened, self.unroll, tuple(asked))

    @property
    def order_of_sums(self) -> tuple[Any, ...]:
        """The order in which its sums are added up: their loops, and how many vectors of how many lanes lie along."""
        if not self.stage.combine:
            return ()
        tile, loops = self.tile, tuple([loop.parts for loop in self.sums])
        if tile.deep is not None:
            return loops, tile.deep.parts, tile.terms
        vector = (tile.vector.parts, tile.lanes) if tile.vector in self.reduced and tile.vector is not None else None
        across = (tile.across.parts, tile.columns) if tile.across in self.reduced and tile.across is not None else None
        return loops, vector, across

    @property
    def reducing(self) -> bool:
        """Whether it has accumulators or reduced axes."""
        return bool(self.stage.combine or self.stage.reduced)

    @property
    def loops(self) -> tuple[Loop, ...]:
        return (*self.free, *self.reduced)

    @property
    def accesses(self) -> tuple[Access, ...]:
        return (*self.reads.values(), *self.stores)


class LengthBound(NamedTuple):
    """The predicate of a version: an axis of open length has at most so many places."""

    axis: AxisId
    most: int


@dataclass(eq=False)
class Version:
    """The stages for blocks of these lengths. `cold`: few work items run it, so that its code is short.

    bound   the calls that it is for; None: those that no version before is for. A call has one bound, by its own lengths alone, and all
            of them add up sums in one order, so that an input gives the same bits whatever comes before it, or beside it in a batch
    """

    blocks: Mapping[AxisId, int]
    cold: bool
    stages: tuple[ScheduledStage, ...]
    bound: LengthBound | None = None


@dataclass(frozen=True)
class Place:
    """The storage of a Local of `elements`.

    space   "stack"     of the thread that runs the work item
            "scratch"   `offset` bytes into that thread's scratch
            "shared"    `offset` bytes into the memory that the threads of a block share
            "register"  each thread of a block has one of its own
    """

    space: str
    elements: ExprLike
    offset: ExprLike = 0


@dataclass(eq=False)
class ScheduledKernel:
    """A kernel as it runs.

    strides   elements from one place to the next along each dim, for all buffers
    scratch   bytes that each thread needs
    threads   that run a work item together
    shared    bytes that they share
    searched  what had to be scheduled, but for cold versions
    """

    kernel: Kernel
    grid: tuple[Loop, ...]
    places: Mapping[Local, Place]
    strides: Mapping[Buffer, tuple[ExprLike, ...]]
    scratch: ExprLike
    versions: tuple[Version, ...]
    searched: tuple[View, ...]
    target: Target
    threads: int = 1
    shared: int = 0

    @property
    def bounds(self) -> tuple[LengthBound | None, ...]:
        """The bounds that versions are for, the shortest lengths first; None last."""
        return tuple(dict.fromkeys([v.bound for v in self.versions]))

    def bounded(self, bound: LengthBound | None) -> tuple[Version, ...]:
        """The versions of a bound: one for each combination of whole and last blocks."""
        return tuple([v for v in self.versions if v.bound == bound])

    @property
    def peeled(self) -> tuple[AxisId, ...]:
        """The axes whose last block has versions of its own."""
        return tuple(self.versions[0].blocks)


@dataclass(eq=False)
class ScheduledPlan:
    """A plan with its kernels as they run on a target, and the plans inside its opaque ops likewise."""

    plan: Plan
    target: Target
    kernels: Mapping[Kernel, ScheduledKernel]
    bodies: Mapping[Plan, ScheduledPlan]

"""The data structures of a plan: kernels, stages, reads and buffers.

    Plan   = axes · buffers · once, start, steps (Kernel | OpaqueOp …) · inputs · state · outputs · arena
    Kernel = loops ((axis, block) …) · stages (Stage …) · origin
    Stage  = free axes · reduced axes · before (Line …) · combine (Combine …) · after (Line …) · to (Store …) · depth
    Read   = source Buffer | Local · {axis: Expr} · predicate (Expr …) · pad_value

A stage's lines, then its accumulators, then the lines of `after` are numbered consecutively; a line refers to others by number. An
index is an Expr over `Idx` of loops and the stage's axes, and over `Load` of a line. Loops are parallel: one work item for each
combination of blocks. A block of 1 removes the axis from the stages; a larger one leaves an axis of that length in them, the last one
shorter at the end. A store after a reduction over blocks of a loop may use `Idx(a) // block`, the number of the work item's block: each
work item has a partial sum. The last loop of a kernel may be serial: every work item takes all of its blocks, one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from ngraph.op_graph import expr
from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import ExprLike, Leaf, Len
from ngraph.op_graph.op import Origin, TensorType
from ngraph.program.program import AxisId
from ngraph.tensors.graph import guessed_length, guessed_symbols
from ngraph.tensors.index import Load, Read, loads, loop_variant_axes
from ngraph.tensors.memo import memo_key

N = TypeVar("N", int, ExprLike)
Dim = tuple[AxisId, int, int | None]  # the digit `index // div % mod` of an axis


class Buffer:
    """Memory that kernels share: inputs, outputs, kept values, or intermediate values in the arena.

    storage         "input", "state", "output", "constant", "arena" (at `offset`), "once" (at `offset` of memory that outlasts the call),
                    "run" (its size is known at run time only)
    dims            digits of axes, outermost first; strides in elements; `first`: the position of index 0 of every axis
    border          {axis: (elements before index 0, elements after the last)}: they hold `pad_value`; a separate step fills them
    row             elements from one row of the last dim to the next, where that is more than its length
    shares          the buffer whose memory this one reuses: a new value of state, or of an input that is written, in place of the old
    loop_invariant  an input of a loop's body that is the same in all iterations
    """

    __slots__ = tuple("name dims dtype storage offset strides first bytes value shares border pad_value row loop_invariant".split())

    def __init__(self, name: str, dims: tuple[Dim, ...], dtype: DType, storage: str, value: ArrayRef | None = None):
        self.name, self.dims, self.dtype, self.storage, self.value = name, dims, dtype, storage, value
        self.offset: int | None = None
        self.strides: tuple[int, ...] | None = None
        self.first = 0
        self.bytes: int | None = None
        self.shares: Buffer | None = None
        self.border: dict[AxisId, tuple[int, int]] = {}
        self.pad_value: Any = 0
        self.row = 0
        self.loop_invariant = False

    @property
    def parameters(self) -> bool:
        """Whether many calls, or trips, find the same content in it, or in an adjacent part."""
        return self.storage in ("state", "constant", "once") or self.loop_invariant

    @property
    def axes(self) -> tuple[AxisId, ...]:
        return tuple(dict.fromkeys([a for a, _, _ in self.dims]))

    @property
    def type(self) -> TensorType:
        return TensorType(self.axes, self.dtype)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.dtype.name}[{', '.join(self.axes)}]>"


class Local(Buffer):
    """Memory of one work item: a register, a row, a panel. Live until its stage runs again; indices count from the work item's start."""

    __slots__ = ()

    def __init__(self, name: str, dims: tuple[Dim, ...], dtype: DType):
        super().__init__(name, dims, dtype, "local")


def used(*exprs: ExprLike) -> list[int]:
    """Returns the lines whose numbers expressions load."""
    return [of for of in loads(*exprs) if type(of) is int]


@dataclass(frozen=True, eq=False)
class Line:
    """One scalar operation on earlier lines: an elementwise op, or `read`, `number`, `index`, `copy`, `random_bits`."""

    op: str
    args: tuple[int, ...]
    dtype: DType
    attrs: Mapping[str, Any] = field(default_factory=dict)
    read: Read | None = None

    def memo_key(self) -> tuple[Any, ...]:
        """Returns all of its content, as the key for caches by equal lines."""
        return self.op, self.args, self.dtype, repr(sorted(self.attrs.items())), memo_key(self.read)

    @property
    def exprs(self) -> list[ExprLike]:
        """Returns the expressions in it."""
        if self.read is not None:
            return [*self.read.index.values(), *self.read.predicate]
        return [self.attrs["value"]] if self.op == "index" else [*self.attrs["predicate"]] if self.op == "predicate" else []


@dataclass(frozen=True)
class Combine:
    """An accumulator: a line's values over the reduced axes, under `add multiply max min`."""

    kind: str
    line: int
    dtype: DType


@dataclass(frozen=True, eq=False)
class Store:
    """A store of a line's value; `combine` other than "set" folds it into the stored value. A negative predicate prevents the store."""

    line: int
    target: Buffer
    index: dict[AxisId, ExprLike]
    predicate: tuple[ExprLike, ...] = ()
    combine: str = "set"


def renumbered(line: Line, new: Mapping[int, int]) -> Line:
    """Returns a line with the numbers of the lines that it uses replaced, inside expressions, too."""
    read = line.read
    if read is not None:
        index = {a: _renumbered(e, new) for a, e in read.index.items()}
        read = Read(read.source, index, tuple([_renumbered(e, new) for e in read.predicate]), read.pad_value)
    attrs = {k: _renumbered(a, new) for k, a in line.attrs.items()} if line.op in ("index", "predicate") else line.attrs
    return replace(line, args=tuple([new[n] for n in line.args]), read=read, attrs=attrs)


def renumbered_store(s: Store, new: Mapping[int, int]) -> Store:
    """Returns a store with the numbers of the lines that it uses replaced, inside expressions, too."""
    index = {a: _renumbered(e, new) for a, e in s.index.items()}
    return replace(s, line=new[s.line], index=index, predicate=tuple([_renumbered(e, new) for e in s.predicate]))


def _renumbered(e: Any, new: Mapping[int, int]) -> Any:
    if type(e) is tuple:
        return tuple([_renumbered(part, new) for part in e])
    return expr.substitute(e, lambda x: Load(new[x.of]) if type(x) is Load and type(x.of) is int else x)


@dataclass(frozen=True, eq=False)
class Stage:
    """One loop nest. It runs once per iteration of the first `depth` loops."""

    free: tuple[AxisId, ...]
    reduced: tuple[AxisId, ...]
    before: tuple[Line, ...]
    combine: tuple[Combine, ...]
    after: tuple[Line, ...]
    to: tuple[Store, ...]
    depth: int

    def lines(self) -> Iterable[tuple[int, Line]]:
        """Yields all lines with their numbers."""
        yield from enumerate(self.before)
        yield from enumerate(self.after, len(self.before) + len(self.combine))

    def reads(self) -> Iterable[Read]:
        return (line.read for _, line in self.lines() if line.read is not None)


@dataclass(frozen=True, eq=False)
class Kernel:
    """Stages that run one after another in every work item of the loops.

    serial: whether each work item takes all blocks of the last loop, in order. Stages of full depth run for each of them; stages before
    these run before the first block, stages after them after the last one.
    """

    loops: tuple[tuple[AxisId, int], ...]
    stages: tuple[Stage, ...]
    origin: tuple[Origin, ...] = ()
    seconds: float = field(default=0.0, compare=False)  # predicted
    serial: bool = False

    @property
    def parallel(self) -> tuple[tuple[AxisId, int], ...]:
        """The loops whose blocks are work items."""
        return self.loops[:-1] if self.serial else self.loops

    @property
    def repeated(self) -> slice:
        """The stages that run for each block of a serial loop; all stages where no loop is serial."""
        inside = [k for k, s in enumerate(self.stages) if not self.serial or s.depth == len(self.loops)]
        return slice(inside[0], inside[-1] + 1) if inside else slice(0, 0)

    def rounds(self, stages: Sequence[int], blocks: int) -> list[tuple[tuple[int, ...], list[int]]]:
        """Returns what a work item runs of some stages: (the block of a serial loop of so many, stages), one after another."""
        if not self.serial:
            return [((), [*stages])]
        inside = range(*self.repeated.indices(len(self.stages)))
        before, after = [k for k in stages if k < inside.start], [k for k in stages if k >= inside.stop]
        return [((0,), before), *[((q,), [k for k in stages if k in inside]) for q in range(blocks)], ((0,), after)]

    @property
    def sources(self) -> tuple[Buffer, ...]:
        """The buffers that it reads and that exist before it."""
        stored = {s.target for stage in self.stages for s in stage.to}
        return tuple(dict.fromkeys([r.source for s in self.stages for r in s.reads() if r.source not in stored]))

    @property
    def targets(self) -> tuple[Buffer, ...]:
        """The buffers that it fills, without Locals."""
        return tuple(dict.fromkeys([t.target for s in self.stages for t in s.to if type(t.target) is Buffer]))


@dataclass(frozen=True, eq=False)
class OpaqueOp:
    """A core op that is not a loop nest, or not yet: control flow over sub-plans, sorting, cumulative values, effects."""

    op: str
    inputs: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    attrs: Mapping[str, Any]
    origin: tuple[Origin, ...] = ()

    @property
    def sources(self) -> tuple[Buffer, ...]:
        return self.inputs

    @property
    def targets(self) -> tuple[Buffer, ...]:
        return self.results

    @property
    def bodies(self) -> dict[str, Plan]:
        """The plans that it runs, by attribute."""
        return {name: a for name, a in self.attrs.items() if type(a) is Plan}


def variant_loops(loops: Iterable[tuple[AxisId, int]], stages: Iterable[Stage]) -> list[frozenset[AxisId]]:
    """Returns for each stage of a kernel the loops with which its values vary.

    Stages that fill one Local together run together: where one accumulates into it, another has to initialise it again.
    """
    axes, stages = frozenset([a for a, _ in loops]), tuple(stages)
    of: dict[Buffer, frozenset[AxisId]] = {}
    own = [own_moves(stage, axes) for stage in stages]
    found: list[frozenset[AxisId]] = []
    while True:
        before, found = found, []
        for stage, moves in zip(stages, own, strict=True):
            for b in (*[r.source for r in stage.reads()], *[s.target for s in stage.to if type(s.target) is Local]):
                moves |= of.get(b, frozenset())
            for s in stage.to:
                of[s.target] = of.get(s.target, frozenset()) | moves
            found.append(moves)
        if found == before:
            return found


def own_moves(stage: Stage, axes: frozenset[AxisId]) -> frozenset[AxisId]:
    """Returns the loops along which a stage itself varies."""
    exprs = [e for s in stage.to for e in (*s.index.values(), *s.predicate)] + [e for _, line in stage.lines() for e in line.exprs]
    return axes.intersection((*stage.free, *stage.reduced, *loop_variant_axes(*exprs)))


PlanStep = Kernel | OpaqueOp


@dataclass(frozen=True)
class Memory:
    """The memory of a plan beside its arguments, in bytes."""

    arena: int
    constants: int
    state: int
    outputs: int
    once: int = 0


@dataclass(eq=False)
class Plan:
    """Kernels over buffers, in the order in which they run. `state`: (name, buffer before, buffer after), the same one where in place.

    once    steps that depend only on constants and on state that is only read: they run when that state has changed, before a call;
            those of a loop's body, which depend on nothing that varies from trip to trip, run before the first trip
    start   steps that fill borders: they run when an arena has been created
    writes  (k, n) where output n replaces input k: it shares the input's memory, unless a length is read from there
    few     the axes of open length of which calls are assumed to have few places, as batches have
    """

    axes: dict[AxisId, ExprLike]
    buffers: tuple[Buffer, ...]
    steps: tuple[PlanStep, ...]
    inputs: tuple[Buffer, ...]
    state: tuple[tuple[str, Buffer, Buffer], ...]
    outputs: tuple[Buffer, ...]
    token_in: Buffer | None = None
    token_out: Buffer | None = None
    arena: int = 0
    name: str = "program"
    once: tuple[PlanStep, ...] = ()
    start: tuple[PlanStep, ...] = ()
    kept: int = 0  # bytes that outlast the call
    writes: tuple[tuple[int, int], ...] = ()
    few: frozenset[AxisId] = frozenset()

    @property
    def loop_invariant(self) -> tuple[Buffer, ...]:
        """The inputs that are the same in all trips of the loop whose body it is."""
        return tuple([b for b in self.inputs if b.loop_invariant])

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple([s for s in self.steps if type(s) is Kernel])

    @cached_property
    def seconds(self) -> float:
        """The predicted seconds of all kernels that a call runs."""
        return sum([k.seconds for k in self.kernels])

    def share(self, kernel: Kernel) -> float:
        """Returns the part of these that one kernel takes; 0 where none takes any."""
        return kernel.seconds / self.seconds if self.seconds else 0.0

    @property
    def every(self) -> tuple[PlanStep, ...]:
        """All steps, in the order of a first call."""
        return (*self.once, *self.start, *self.steps)

    @property
    def bodies(self) -> list[Plan]:
        """The plans that its steps run, in order; not those inside them."""
        return [body for s in self.every if type(s) is OpaqueOp for body in s.bodies.values()]

    @property
    def memory(self) -> Memory:
        """The bytes of the arena, of constants, of state, of results; buffers of unknown size do not count."""

        def total(buffers: Iterable[Buffer]) -> int:
            return sum(b.bytes or 0 for b in dict.fromkeys(buffers) if b.shares is None)

        state = total(b for _, before, after in self.state for b in (before, after))
        return Memory(self.arena, total(b for b in self.buffers if b.storage == "constant"), state, total(self.outputs), self.kept)

    def length(self, axis: AxisId, lengths: Mapping[AxisId, int] = {}, run: Callable[[Any], int] | None = None) -> int:
        """Returns the number of elements of an axis, given those of the symbols and the content of buffers. Raises LookupError."""
        own = self.axes[axis]
        if isinstance(own, int):
            return own
        if axis in lengths:
            return lengths[axis]

        def leaf(e: Leaf) -> int:
            if type(e) is Len and e.of != axis:
                return self.length(e.of, lengths, run)
            if type(e) is Load and run is not None:
                return run(e.of)
            raise LookupError(f"{e!r} has no value here")

        return int(expr.evaluate(own, leaf))

    @cached_property
    def guessed_symbols(self) -> dict[AxisId, int]:
        """The lengths that costs take for axes whose length comes with a call."""
        return guessed_symbols(self.axes, self.few)

    @cached_property
    def guesses(self) -> dict[AxisId, int]:
        """The memo of `guess`."""
        return {}

    def guess(self, axis: AxisId) -> int:
        """The length of an axis, at least 1, that costs take where calls bring it."""
        return guessed_length(self.axes, axis, self.guessed_symbols, self.guesses)

    def formula(self, axis: AxisId) -> ExprLike:
        """Returns the length of an axis as an expression over lengths that calls bring, and over what buffers hold."""
        own = self.axes[axis]
        return own if own == Len(axis) else expr.substitute(own, lambda e: self.formula(e.of) if type(e) is Len else e)


def dims_of(axes: Iterable[AxisId]) -> tuple[Dim, ...]:
    """Returns one dim for each axis, in order."""
    return tuple([(a, 1, None) for a in axes])


def extent(dim: Dim, length: N) -> N:
    """Returns the number of elements of a dim of an axis of this length."""
    _, div, mod = dim
    n = (length + (div - 1)) // div
    return n if mod is None else expr.minimum(n, mod)


def shape_of(b: Buffer, length: Callable[[AxisId], N]) -> list[N]:
    """Returns the number of elements along each dim of a buffer, borders included, at these lengths of axes."""
    return [extent(d, length(d[0])) + sum(b.border.get(d[0], ())) for d in b.dims]


def room_of(b: Buffer, length: Callable[[AxisId], N]) -> list[N]:
    """Returns the shape of a buffer with what separates its rows."""
    shape: list[N] = shape_of(b, length)
    shape[-1:] = [expr.maximum(n, b.row) for n in shape[-1:]]
    return shape

"""A scheduled kernel → LLVM IR of one function that runs a range of its work items.

    void kernel(ptr args, i64 first, i64 last, ptr scratch)

`args`: the addresses of `KernelCode.buffers`, then `KernelCode.lengths`, 8 bytes each. `scratch`: memory of the calling thread,
aligned to 64 bytes. The text names nothing of the user's, so that kernels that do the same are equal texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

from ngraph.codegen.forms import Whole, apply, register
from ngraph.codegen.matrices import CONFIGURATION, MATRIX_SUMS, release
from ngraph.codegen.nest import Nest
from ngraph.codegen.signature import KernelCode
from ngraph.codegen.text import IRValue, IRWriter, constant
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import Bin, ExprLike, Len
from ngraph.plan.kernels import Buffer, Kernel, Local, Plan, Stage
from ngraph.program.program import AxisId
from ngraph.schedule.address import strides_of
from ngraph.schedule.cost import seconds
from ngraph.schedule.cpu import schedule_kernel
from ngraph.schedule.form import BlockNumber, LengthBound, ScheduledKernel, ScheduledStage, Version
from ngraph.schedule.search import LoopSchedule, View
from ngraph.targets import Cpu
from ngraph.targets.tuning import MIN_ZERO_BYTES


def emit(plan: Plan, kernel: Kernel, target: Cpu, picks: Mapping[View, LoopSchedule] | None = None) -> KernelCode:
    """The code of a kernel. Lengths that the plan does not know are arguments; `picks` are schedules to use instead of predicted ones."""
    return lower(plan, schedule_kernel(plan, kernel, target, picks))


def lower(plan: Plan, scheduled: ScheduledKernel) -> KernelCode:
    """The code of a scheduled kernel."""
    return _KernelWriter(plan, scheduled).code()


class FunctionWriter:
    """A function over buffers and lengths that is being written."""

    def __init__(self, plan: Plan, buffers: Sequence[Buffer], target: Cpu) -> None:
        self.plan, self.target = plan, target
        self.w = IRWriter(target)
        self.buffers = tuple(buffers)
        self.slots = {b: k for k, b in enumerate(self.buffers)}
        self.lengths: list[AxisId] = []
        self.known: dict[AxisId, Whole] = {}
        self.pointers: dict[Buffer, str] = {}
        self.walks: dict[Buffer, tuple[Whole, ...]] = {}
        self.args = ""  # the register of the arguments
        self.rooms: dict[str, str] = {}  # memory on the stack, by what it is for
        self.at: dict[AxisId, Whole] = {}  # the number of the work item's block along each loop of the grid

    def open(self, a: AxisId) -> ExprLike:
        """The length of an axis as an expression over arguments."""
        n = self.length(a)
        return n if isinstance(n, int) else Len(a)

    def length(self, a: AxisId) -> Whole:
        """The length of an axis: a number, else an argument."""
        if a not in self.known:
            try:
                self.known[a] = self.plan.length(a)
            except LookupError:
                self.lengths.append(a)
                self.known[a] = IRValue(self.argument(len(self.buffers) + len(self.lengths) - 1, "i64"), dtypes.int64)
        return self.known[a]

    def argument(self, k: int, kind: str) -> str:
        w = self.w
        place, name = w.fresh(), w.fresh()
        w.entry.append(f"  {place} = getelementptr i64, ptr {self.args}, i64 {k}")
        w.entry.append(f"  {name} = load {kind}, ptr {place}, align 8")
        return name

    def pointer(self, b: Buffer) -> str:
        """The address of a buffer."""
        if b not in self.pointers:
            self.pointers[b] = self.argument(self.slots[b], "ptr")
        return self.pointers[b]

    def zeros(self, size: int) -> str:
        """An address from which so many bytes may be loaded: zeros."""
        return self.w.table([0] * max(size, MIN_ZERO_BYTES), dtypes.uint8)

    def room(self, what: str, dtype: DType, count: int) -> str:
        """Memory on the stack for so many elements, the same for all that ask for it by one name."""
        if what not in self.rooms:
            self.rooms[what] = self.w.slot(dtype, count)
        return self.rooms[what]

    def tile_room(self, dtype: DType) -> str:
        """Memory for the sums of registers of matrices."""
        return self.room("sums", dtype, MATRIX_SUMS)

    def configuration_room(self) -> str:
        """Memory for the shapes of registers of matrices."""
        return self.room("shapes", dtypes.uint8, CONFIGURATION)

    def strides(self, b: Buffer) -> tuple[Whole, ...]:
        """Elements from one place to the next along each dim."""
        if b not in self.walks:
            self.walks[b] = tuple([self.number(n) for n in strides_of(b, self.open)])
        return self.walks[b]

    def number(self, e: ExprLike) -> Whole:
        """An expression over lengths and block numbers."""
        if type(e) is int:
            return e
        if isinstance(e, Bin):
            return apply(self.w, e.op, self.number(e.a), self.number(e.b))
        if isinstance(e, BlockNumber):
            return self.at[e.of]
        return self.length(e.of) if isinstance(e, Len) else e  # type: ignore[return-value]  # no other leaf stands in a schedule


class _KernelWriter(FunctionWriter):
    """A scheduled kernel that is being written."""

    def __init__(self, plan: Plan, scheduled: ScheduledKernel) -> None:
        kernel, target = scheduled.kernel, scheduled.target
        assert isinstance(target, Cpu)
        super().__init__(plan, [b for b in dict.fromkeys((*kernel.sources, *kernel.targets)) if type(b) is not Local], target)
        self.kernel, self.scheduled = kernel, scheduled

    def code(self) -> KernelCode:
        self.w.function("kernel", ("ptr", "i64", "i64", "ptr"), self.body)
        items: ExprLike = 1
        for d in self.scheduled.grid[: len(self.kernel.parallel)]:
            items = items * d.extent
        stages = [stage for version in self.scheduled.versions for stage in version.stages]
        notes = [f"{' '.join([f'{k}:{d.most}' for k, d in enumerate(s.loops)])} {s.chosen}" for s in stages]
        return KernelCode(
            self.w.text(),
            self.buffers,
            tuple(self.lengths),
            items,
            self.scheduled.scratch,
            self.growth(),
            seconds(self.scheduled),
            {"schedules": tuple(notes)},
        )

    def growth(self) -> ExprLike:
        """Returns the lengths among the arguments that the largest stage goes along, multiplied: the time of the kernel grows with them."""
        sizes = []
        for stage in self.kernel.stages:
            axes = list(dict.fromkeys((*[a for a, _ in self.kernel.loops[: stage.depth]], *stage.free, *stage.reduced)))
            sizes.append((math.prod(map(self.plan.guess, axes)), axes))
        _, axes = max(sizes, key=itemgetter(0), default=(0, []))
        return math.prod([Len(a) for a in axes if a in self.lengths], start=1)

    def body(self, args: str, first: str, last: str, scratch: str) -> None:
        self.args = args
        self.first = IRValue(first, dtypes.int64)
        for local, place in self.scheduled.places.items():
            if place.space == "stack":
                assert isinstance(place.elements, int)
                self.pointers[local] = self.w.slot(local.dtype, place.elements)
            else:
                self.pointers[local] = self.w.at(scratch, self.number(place.offset), dtypes.uint8)
        counts = [self.number(d.extent) for d in self.scheduled.grid]
        for b in self.buffers:
            self.pointer(b)
        for b, strides in self.scheduled.strides.items():  # registers that come before every use
            self.walks[b] = tuple([self.number(n) for n in strides])
        before = self.w.flush_denormals() if self.target.flush else None
        self.bounded(self.scheduled.bounds, IRValue(last, dtypes.int64), counts)
        if "sums" in self.rooms:
            release(self.w)
        if before is not None:
            self.w.float_mode(before)

    def bounded(self, bounds: Sequence[LengthBound | None], last: IRValue, counts: list[Whole]) -> list[IRValue]:
        """The work items by the versions of the first of these bounds that a call keeps."""
        w, (bound, *others) = self.w, bounds
        versions = self.scheduled.bounded(bound)

        def items() -> Sequence[IRValue]:
            return w.loop(self.first, last, 1, [], lambda t: self.work_item(t, counts, versions))

        if bound is None:
            items()
            return []
        length, most = register(self.length(bound.axis)), constant(bound.most, dtypes.int64)
        for test, body in (("sle", items), ("sgt", lambda: self.bounded(others, last, counts))):
            w.when(w.op(f"icmp {test}", length, most, dtype=dtypes.bool_), [], body, rare=False)
        return []

    def work_item(self, t: IRValue, counts: list[Whole], versions: Sequence[Version]) -> list[IRValue]:
        """All stages once. Work items are numbered row by row."""
        w, rest = self.w, t
        for k, (a, _) in reversed(list(enumerate(self.kernel.parallel))):
            q = rest
            if k:
                n = register(counts[k])
                q, rest = w.op("urem", rest, n), w.op("udiv", rest, n)
            self.at[a] = q
        return self.versions(t, list(self.scheduled.peeled), iter(versions))

    def versions(self, t: IRValue, axes: Sequence[AxisId], versions: Iterator[Version]) -> list[IRValue]:
        """The code for whole and for last blocks along each of these axes; `versions` come in this order."""
        if not axes:
            return self.stages(t, next(versions))
        w, (a, *others) = self.w, axes
        count = next(d.extent for d in self.scheduled.grid if d.parts[0][0] == a)
        assert isinstance(count, int)
        last = constant(count - 1, dtypes.int64)
        for test in ("slt", "eq"):
            here = w.op(f"icmp {test}", register(self.at[a]), last, dtype=dtypes.bool_)
            w.when(here, [], lambda: self.versions(t, others, versions), rare=False)
        return []

    def stages(self, t: IRValue, version: Version) -> list[IRValue]:
        """The stages of a version, those that a serial loop repeats inside it."""
        inside, stages = self.kernel.repeated, version.stages

        def block(q: IRValue) -> list[IRValue]:
            self.at[self.kernel.loops[-1][0]] = q
            return self.some(t, stages[inside], version)

        self.some(t, stages[: inside.start], version)
        if self.kernel.serial:
            self.w.loop(0, self.number(self.scheduled.grid[-1].extent), 1, [], block)
        else:
            self.some(t, stages[inside], version)
        return self.some(t, stages[inside.stop :], version)

    def some(self, t: IRValue, stages: Sequence[ScheduledStage], version: Version) -> list[IRValue]:
        """Some stages, one after another, each in the work items that begin a block of one of its loops."""
        for stage in stages:
            begins = self.begins(t, stage.stage)
            nest = Nest(self, stage, version.cold)
            if begins is None:
                nest.write()
            else:
                self.w.when(begins, [], nest.write, rare=False)
        return []

    def begins(self, t: IRValue, stage: Stage) -> IRValue | None:
        """Whether one of the first `depth` loops begins a new block; None where one always does."""
        w, inner = self.w, self.kernel.parallel[stage.depth :]
        if not inner:
            return None
        zero, still = constant(0, dtypes.int64), constant(True, dtypes.bool_)
        for a, _ in inner:
            same = w.op("icmp eq", register(self.at[a]), zero, dtype=dtypes.bool_)
            still = same if still.name == "true" else w.op("and", still, same)
        return w.op("or", still, w.op("icmp eq", t, self.first, dtype=dtypes.bool_))

"""A kernel of a plan → LLVM IR of one function that runs a range of its work items.

    void kernel(ptr args, i64 first, i64 last, ptr scratch)

`args`: the addresses of `KernelCode.buffers`, then `KernelCode.lengths`, 8 bytes each. `scratch`: memory of the calling thread,
aligned to 64 bytes. The text names nothing of the user's, so that kernels that do the same are equal texts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ngraph.codegen.forms import Dim, LinearForm, Whole, apply, plus, register, times
from ngraph.codegen.nest import Nest
from ngraph.codegen.signature import KernelCode
from ngraph.codegen.text import IRValue, IRWriter, constant
from ngraph.op_graph import dtypes, expr
from ngraph.op_graph.expr import ExprLike, Len
from ngraph.plan.kernels import Buffer, Kernel, Local, Plan, Stage, extent
from ngraph.plan.schedule import CoreModel, LoopSchedule, View
from ngraph.program.program import AxisId
from ngraph.targets import Target

STACK = 32 << 10  # bytes of Locals that lie on the stack; more lie in the thread's scratch
ALIGN = 64
TWICE = 2  # axes whose last block is shorter, for which there is code of its own
HOT_ITERATIONS = 2  # blocks along an axis up to which the last one matters
MANY = 16  # work items from which on the next one is fetched ahead


def emit(plan: Plan, kernel: Kernel, target: Target, picks: Mapping[View, LoopSchedule] | None = None) -> KernelCode:
    """The code of a kernel. Lengths that the plan does not know are arguments; `picks` are schedules that somebody chose."""
    return KernelText(plan, kernel, target, picks).code()


class KernelText:
    """A kernel that is being written: arguments, Locals, work items."""

    def __init__(self, plan: Plan, kernel: Kernel, target: Target, picks: Mapping[View, LoopSchedule] | None = None):
        self.plan, self.kernel, self.target, self.picks = plan, kernel, target, picks or {}
        self.views: dict[View, CoreModel] = {}  # what had to be scheduled, but for what runs seldom
        self.w = IRWriter(target)
        self.buffers = tuple([b for b in dict.fromkeys((*kernel.sources, *kernel.targets)) if type(b) is not Local])
        self.slots = {b: k for k, b in enumerate(self.buffers)}
        self.lengths: list[AxisId] = []
        self.known: dict[AxisId, Whole] = {}
        self.pointers: dict[Buffer, str] = {}
        self.walks: dict[Buffer, tuple[Whole, ...]] = {}
        self.block = dict(kernel.loops)
        self.counters: dict[AxisId, Dim] = {}  # one for each loop: its index is the number of the block
        self.at: dict[Dim, Whole] = {}  # where the work item stands
        self.cold = False  # whether what is being written runs seldom, and should be short
        self.cut: dict[AxisId, int] = {}  # the size of the block that is being written
        self.scratch: ExprLike = 0
        self.many = False  # work items
        self.touched: set[Buffer] = set()
        self.debug_info: list[str] = []

    def code(self) -> KernelCode:
        self.w.function("kernel", ("ptr", "i64", "i64", "ptr"), self.body)
        items: ExprLike = 1
        for a, b in self.kernel.loops:
            items = items * ((self.open(a) + (b - 1)) // b)
        return KernelCode(self.w.text(), self.buffers, tuple(self.lengths), items, self.scratch, {"schedules": tuple(self.debug_info)})

    def body(self, args: str, first: str, last: str, scratch: str) -> None:
        self.args = args
        self.first = IRValue(first, dtypes.int64)
        self.locals(scratch)
        counts: list[Whole] = []
        for a, b in self.kernel.loops:
            n = self.length(a)
            counts.append(apply(self.w, "//", plus(self.w, n, b - 1), b, small=type(n) is int))
            most = counts[-1] if type(counts[-1]) is int else None
            self.counters[a] = Dim(counts[-1], most)
        known = [n for n in counts if isinstance(n, int)]
        self.many = len(self.kernel.stages) > 1 and bool(counts) and len(known) == len(counts) and math.prod(known) >= MANY
        for outside in self.buffers:
            self.pointer(outside)
            self.strides(outside)  # registers that come before every use
        self.w.loop(self.first, IRValue(last, dtypes.int64), 1, [], lambda t: self.work_item(t, counts))

    def work_item(self, t: IRValue, counts: list[Whole]) -> list[IRValue]:
        """All stages once. Work items are numbered row by row."""
        w, rest = self.w, t
        for k, (a, _) in reversed(list(enumerate(self.kernel.loops))):
            q = rest
            if k:
                n = register(counts[k])
                q, rest = w.op("urem", rest, n), w.op("udiv", rest, n)
            self.at[self.counters[a]] = q
        sizes = [(a, b, self.length(a)) for a, b in self.kernel.loops]
        ends = [(a, size % b) for a, b, size in sizes if isinstance(size, int) and size > b and size % b]
        return self.stages(t) if len(ends) > TWICE else self.by_size(t, ends)

    def by_size(self, t: IRValue, ends: list[tuple[AxisId, int]]) -> list[IRValue]:
        """The stages, written once for whole blocks and once for each kind of last one, so that all of them know their sizes."""
        if not ends:
            return self.stages(t)
        w = self.w
        (a, short), *others = ends
        counter = self.counters[a]
        assert isinstance(counter.size, int)
        last = constant(counter.size - 1, dtypes.int64)
        for test, size in (("slt", self.block[a]), ("eq", short)):
            here = w.op(f"icmp {test}", register(self.at[counter]), last, dtype=dtypes.bool_)
            self.cut[a] = size
            before, self.cold = self.cold, self.cold or (test == "eq" and counter.size > HOT_ITERATIONS)
            w.when(here, [], lambda: self.by_size(t, others), rare=False)
            self.cold = before
        del self.cut[a]
        return []

    def stages(self, t: IRValue) -> list[IRValue]:
        w = self.w
        for stage in self.kernel.stages:
            moved = self.moved(t, stage)
            if moved is None:
                Nest(self, stage).write()
            else:
                w.when(moved, [], Nest(self, stage).write, rare=False)
        return []

    def moved(self, t: IRValue, stage: Stage) -> IRValue | None:
        """Whether one of the first `depth` loops has moved; None where one always has."""
        w, inner = self.w, self.kernel.loops[stage.depth :]
        if not inner:
            return None
        zero, still = constant(0, dtypes.int64), constant(True, dtypes.bool_)
        for a, _ in inner:
            same = w.op("icmp eq", register(self.at[self.counters[a]]), zero, dtype=dtypes.bool_)
            still = same if still.name == "true" else w.op("and", still, same)
        return w.op("or", still, w.op("icmp eq", t, self.first, dtype=dtypes.bool_))

    # ---- lengths

    def open(self, a: AxisId) -> ExprLike:
        """The length of an axis as an expression over arguments."""
        n = self.length(a)
        return n if type(n) is int else Len(a)

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

    # ---- memory

    def pointer(self, b: Buffer) -> str:
        """The address of a buffer."""
        if b not in self.pointers:
            self.pointers[b] = self.argument(self.slots[b], "ptr")
        return self.pointers[b]

    def nothing(self, size: int) -> str:
        """An address from which so many bytes may be loaded: zeros."""
        return self.w.table([0] * max(size, ALIGN), dtypes.uint8)

    def streams(self, b: Buffer) -> bool:
        """Whether this kernel is the first to bring a buffer from memory, piece by piece with its work items."""
        large = b.bytes is not None and b.bytes > 2 * self.target.l2
        return large and self.many and b not in self.touched

    def strides(self, b: Buffer) -> tuple[Whole, ...]:
        """Elements from one place to the next along each dim."""
        if b not in self.walks:
            if b.strides is not None:
                self.walks[b] = b.strides
            else:
                shape = [plus(self.w, self.extent(d, self.length(d[0])), sum(b.border.get(d[0], ()))) for d in b.dims]
                self.walks[b] = self.dense(shape)
        return self.walks[b]

    def dense(self, shape: list[Whole]) -> tuple[Whole, ...]:
        made: list[Whole] = []
        step: Whole = 1
        for n in reversed(shape):
            made.append(step)
            step = times(self.w, step, n)
        return tuple(made[::-1])

    def extent(self, dim: Any, n: Whole) -> Whole:
        if type(n) is int:
            return extent(dim, n)
        _, div, mod = dim
        n = apply(self.w, "//", plus(self.w, n, div - 1), div)
        return n if mod is None else apply(self.w, "min", n, mod)

    def locals(self, scratch: str) -> None:
        """Places for the Locals: on the stack if all of them fit there, else in scratch."""
        every = dict.fromkeys([s.target for stage in self.kernel.stages for s in stage.to if type(s.target) is Local])
        sizes: dict[Buffer, ExprLike] = {}
        for b in every:
            shape = [self.room(d) for d in b.dims]
            if len(shape) > 1 and type(shape[-1]) is int:  # rows start at whole vectors
                whole = self.target.lanes(b.dtype.bits)
                shape[-1] = -(-shape[-1] // whole) * whole
            size: ExprLike = 1
            for n in shape:
                size = size * n
            sizes[b] = size
            if all(type(n) is int for n in shape):
                self.walks[b] = self.dense(list(shape))  # type: ignore[arg-type]
            else:
                self.walks[b] = self.dense([self.number(n) for n in shape])
        known = {b: n for b, n in sizes.items() if isinstance(n, int)}
        if len(known) == len(sizes) and sum(k * x.dtype.bits // 8 for x, k in known.items()) <= STACK:
            for x, k in known.items():
                self.pointers[x] = self.w.slot(x.dtype, max(k, 1))
            return
        if len(known) == len(sizes):
            places, total = self.packed({x: -(-k * (x.dtype.bits // 8) // ALIGN) * ALIGN for x, k in known.items()})
            self.scratch = total
            self.pointers.update({x: self.w.at(scratch, at, dtypes.uint8) for x, at in places.items()})
            return
        for x, n in sizes.items():
            self.pointers[x] = self.w.at(scratch, self.number(self.scratch), dtypes.uint8)
            self.scratch = self.scratch + (n * (x.dtype.bits // 8) + (ALIGN - 1)) // ALIGN * ALIGN

    def packed(self, sizes: dict[Buffer, int]) -> tuple[dict[Buffer, int], int]:
        """Where Locals lie, and how much they take: what no later stage of a work item reads leaves its place to others.

        What a stage stores that does not run in every work item stays.
        """
        stages, loops = self.kernel.stages, len(self.kernel.loops)
        first: dict[Buffer, int] = {}
        last: dict[Buffer, int] = {}
        for k, stage in enumerate(stages):
            for b in (*[s.target for s in stage.to], *[r.source for r in stage.reads()]):
                if b in sizes:
                    first.setdefault(b, k)
                    last[b] = k
            for s in stage.to:
                if s.target in sizes and stage.depth < loops:
                    first[s.target], last[s.target] = -1, len(stages)
        for b in [b for b in sizes if first[b] < 0]:
            last[b] = len(stages)
        places: dict[Buffer, int] = {}
        for b in sorted(sizes, key=lambda b: (first[b], -sizes[b])):
            at = 0
            for other, place in sorted(places.items(), key=lambda p: p[1]):
                if first[other] <= last[b] and first[b] <= last[other] and place < at + sizes[b] and at < place + sizes[other]:
                    at = place + sizes[other]
            places[b] = at
        return places, max([at + sizes[b] for b, at in places.items()], default=0)

    def room(self, dim: Any) -> ExprLike:
        """How many places a dim of a Local needs in any work item."""
        a, div, mod = dim
        n, block = self.open(a), self.block.get(a, 1)
        n = n if block == 1 else min(n, block) if type(n) is int else block
        n = (n + (div - 1)) // div
        return n if mod is None else mod if type(n) is not int else min(n, mod)

    def number(self, e: ExprLike) -> Whole:
        """An expression over lengths, in the function's first block."""
        if isinstance(e, expr.Bin):
            return apply(self.w, e.op, self.number(e.a), self.number(e.b))
        return self.length(e.of) if isinstance(e, Len) else e  # type: ignore[return-value]

    # ---- indices

    def place(self, a: AxisId, digits: Sequence[Dim]) -> LinearForm:
        """The index along an axis: its block's start, and a place in the block."""
        coef: dict[Dim, Whole] = {}
        if a in self.block:
            coef[self.counters[a]] = self.block[a]
        return LinearForm(coef | {d: d.unit for d in digits}, 0)

    def digits(self, a: AxisId, units: Sequence[int]) -> list[Dim]:
        """The loops of a stage along an axis, outermost first: one, or one for each digit that memory has; none for a single place."""
        n, block = self.length(a), self.block.get(a)
        if block is None or (isinstance(n, int) and n <= block):
            size, most = n, n if isinstance(n, int) else None
        elif a in self.cut or (isinstance(n, int) and n % block == 0):
            size = most = self.cut.get(a, block)
        else:
            left = apply(self.w, "-", n, times(self.w, self.at[self.counters[a]], block))
            size, most = apply(self.w, "min", left, block), block
        if not isinstance(size, int):
            return [Dim(size, most)]
        if size == 1:
            return []
        found: list[Dim] = []
        for unit in (1, *[k for k in units if k < size]):
            top = Dim(size, size, unit, found[0] if found else None)
            found.insert(0, top)
        for upper, d in zip((None, *found), found, strict=False):
            d.most = -(-(size if upper is None else upper.unit) // d.unit)
            d.uneven = any(size % k for k in units)
        found[0].cover(size)
        return found

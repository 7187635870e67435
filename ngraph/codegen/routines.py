"""Routines of a plan as code of the kernels' interface: running values, sorting, where something holds, copies.

`emit_opaque_op` gives one or several kernels, which run one after another; "temp" buffers among theirs lie wherever the caller has room.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from ngraph.codegen.forms import Whole, apply, plus, register, times
from ngraph.codegen.kernel import FunctionWriter
from ngraph.codegen.math import emit
from ngraph.codegen.signature import KernelCode
from ngraph.codegen.sorting import Ordering, first_few, room, sort_row
from ngraph.codegen.text import IRValue, constant, silent
from ngraph.errors import UnsupportedError
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import Bin, ExprLike, Len, evaluate, leaves
from ngraph.op_graph.opdef import OPS
from ngraph.parts.registry import Column
from ngraph.plan.kernels import Buffer, OpaqueOp, Plan
from ngraph.program.program import AxisId
from ngraph.targets.machine import Cpu
from ngraph.targets.tuning import INSTRUCTIONS_PER_ELEMENT, MAX_SCAN_PIECES, RADIX_BITS, SCAN_PIECE
from ngraph.tensors.index import in_order, loads

KERNELS: Column[Any] = OPS.column("kernels", Callable, None, "(plan, routine, target): the kernels of an op that is not a loop nest")
COMBINE = {"add": "add", "multiply": "multiply", "max": "maximum", "min": "minimum"}
ELSEWHERE = {  # imported when first used
    **dict.fromkeys(("cholesky_block", "triangular_block"), "ngraph.codegen.factorisation"),
    "lu_block": "ngraph.codegen.lu",
}
ROWS_IN_ORDER = 8  # rows whose products are in flight at once: a product takes 3 or 4 cycles, and two start in each
IDENTITY = {"add": -0.0, "multiply": 1}  # x + -0.0 is x for every x


def emit_opaque_op(plan: Plan, routine: OpaqueOp, target: Cpu) -> tuple[KernelCode, ...]:
    """The kernels of a routine. Raises UnsupportedError for what is not a routine of generated code: effects, and control flow."""
    if routine.op in ELSEWHERE:
        import_module(ELSEWHERE[routine.op])
    write = KERNELS[routine.op]
    if write is None:
        raise UnsupportedError(f"{routine.op} is not a routine of generated code")
    made: tuple[KernelCode, ...] = write(plan, routine, target)
    return made


class OpaqueOpText(FunctionWriter):
    """A kernel written by hand: its body is a function of a work item's number."""

    def written(
        self, items: ExprLike, work_item: Callable[[IRValue], None], scratch: ExprLike = 0, instructions: ExprLike | None = None
    ) -> KernelCode:
        """The kernel whose work items are these; `self.memory` is the thread's scratch.

        instructions: of all work items, from which follows how many threads share them out; by default a few for each element.
        """

        def body(args: str, first: str, last: str, memory: str) -> None:
            self.args, self.memory = args, memory
            for b in self.buffers:
                self.pointer(b)
                self.strides(b)
            for leaf in (*leaves(items), *leaves(scratch)):
                self.length(leaf.of)
            limits = IRValue(first, dtypes.int64), IRValue(last, dtypes.int64)
            self.w.loop(*limits, 1, [], silent(work_item))

        self.w.function("kernel", ("ptr", "i64", "i64", "ptr"), body)
        return KernelCode(self.w.text(), self.buffers, tuple(self.lengths), items, scratch, items, self.seconds(instructions))

    def seconds(self, instructions: ExprLike | None) -> float:
        """Returns the seconds of all work items on one thread; of open lengths, those that the plan was made for."""
        moved = work = 0.0
        for b in self.buffers:
            count = math.prod([self.plan.guess(a) for a in b.axes])
            moved += count * (b.dtype.bits // 8 or 1)
            work += count * INSTRUCTIONS_PER_ELEMENT
        if instructions is not None:
            work = float(evaluate(instructions, lambda leaf: self.plan.guess(leaf.of)))
        return max(work / self.target.vector_speed, moved / self.target.memory_bandwidth)

    def open(self, a: AxisId) -> ExprLike:
        """The length of an axis as an expression over arguments; before there are any, too."""
        try:
            return self.plan.length(a)
        except LookupError:
            return Len(a)

    def count(self, axes: Sequence[AxisId]) -> ExprLike:
        """Returns the number of elements along these axes together, over arguments."""
        n: ExprLike = 1
        for a in axes:
            n = n * self.open(a)
        return n

    def unflatten(self, t: IRValue, axes: Sequence[AxisId]) -> dict[AxisId, Whole]:
        """The index along each axis at a flat place, row by row."""
        rest: Whole = t
        found: dict[AxisId, Whole] = {}
        for k, a in reversed(list(enumerate(axes))):
            n = register(self.length(a))
            found[a] = self.w.op("urem", register(rest), n) if k else rest
            rest = self.w.op("udiv", register(rest), n) if k else rest
        return found

    def along(self, b: Buffer, a: AxisId, at: Whole) -> Whole:
        """Returns the offset in a buffer for an index along one axis, in elements."""
        w = self.w
        total: Whole = 0
        for (axis, div, mod), stride in zip(b.dims, self.strides(b), strict=True):
            if axis == a:
                digit = at if div == 1 else apply(w, "//", at, div)
                digit = digit if mod is None else apply(w, "%", digit, mod)
                total = plus(w, total, times(w, digit, stride))
        return total

    def offset(self, b: Buffer, index: Mapping[AxisId, Whole]) -> Whole:
        """The place in a buffer, in elements; axes that it has not do not count."""
        total: Whole = 0
        for a, at in index.items():
            total = plus(self.w, total, self.along(b, a, at))
        return total

    def address(self, b: Buffer, offset: Whole, base: str | None = None) -> str:
        return self.w.at(base or self.pointer(b), offset, b.dtype)


def unit_axis(b: Buffer) -> AxisId | None:
    """Returns the axis along which elements are neighbours."""
    if not b.dims or (b.strides is not None and b.strides[-1] != 1):
        return None
    axis, div, mod = b.dims[-1]
    alone = div == 1 and mod is None and sum(a == axis for a, _, _ in b.dims) == 1
    return axis if alone else None


# ---- running values ------------------------------------------------------------------------------------------------------


def wide(d: DType) -> DType:
    """The dtype that running values of `d` are kept in."""
    if d.kind == "bool":
        return dtypes.uint8
    return dtypes.float32 if d.is_float and d.bits == 16 else d


class _Running:
    """Common parts of all forms of cumulative values: loading, combining, storing."""

    def __init__(self, plan: Plan, routine: OpaqueOp, target: Cpu, *more: Buffer):
        self.x, self.y = routine.inputs[0], routine.results[0]
        self.t = OpaqueOpText(plan, (self.x, self.y, *more), target)
        self.w, self.target = self.t.w, target
        self.kind, self.axis = routine.attrs["kind"], routine.attrs["axis"]
        self.exclusive, self.reverse = routine.attrs["exclusive"], routine.attrs["reverse"]
        self.dtype = wide(self.x.dtype)

    def both(self, a: IRValue, b: IRValue) -> IRValue:
        return emit(self.w, COMBINE[self.kind], [a, b])

    def nothing(self, lanes: int) -> IRValue:
        """Returns the neutral element."""
        edge = self.dtype.lowest if self.kind == "max" else self.dtype.highest
        number = IDENTITY.get(self.kind, edge)
        return constant(number if self.dtype.is_float else int(number), self.dtype, lanes)

    def first(self, lanes: int) -> IRValue:
        """Returns the initial cumulative value: 0 where it is a result."""
        return constant(0, self.dtype, lanes) if self.exclusive and self.kind == "add" else self.nothing(lanes)

    def load(self, pointer: str, lanes: int, mask: IRValue | None = None) -> IRValue:
        return self.cast(self.w.load(pointer, self.x.dtype, lanes, mask=mask), self.dtype)

    def store(self, v: IRValue, pointer: str, mask: IRValue | None = None) -> None:
        self.w.store(self.cast(v, self.y.dtype), pointer, mask=mask)

    def cast(self, v: IRValue, dtype: DType) -> IRValue:
        return v if v.dtype is dtype else emit(self.w, "cast", [v], {"dtype": dtype})

    def back(self, n: Whole, p: Whole, units: int = 1) -> Whole:
        """Returns the positions from `p` on, in cumulative order."""
        return apply(self.w, "-", apply(self.w, "-", n, units), p) if self.reverse else p


@KERNELS.of("cumulate")
def _cumulate(plan: Plan, routine: OpaqueOp, target: Cpu) -> tuple[KernelCode, ...]:
    unit = unit_axis(routine.results[0])
    if unit == unit_axis(routine.inputs[0]) and unit not in (None, routine.attrs["axis"]):
        return (_Beside(plan, routine, target, unit).code(),)
    serial = _Along(plan, routine, target)
    n, rows = serial.t.open(serial.axis), serial.t.count(serial.rows)
    size = serial.piece(n) if type(n) is int else 0
    if type(n) is type(rows) is type(size) is int and n > size and rows * 2 < target.cores:  # two passes pay from three cores on
        pieces = -(-n // size)
        totals = Buffer("totals", (), serial.dtype, "temp")
        totals.strides, totals.bytes = (), rows * pieces * serial.dtype.bits // 8
        return (
            _Along(plan, routine, target, totals).totals(rows, pieces),
            _Along(plan, routine, target, totals).pieces(rows, pieces),
        )
    return (serial.code(),)


class _Beside(_Running):
    """Along one axis, for many places of another side by side in vectors."""

    def __init__(self, plan: Plan, routine: OpaqueOp, target: Cpu, unit: AxisId):
        super().__init__(plan, routine, target)
        self.unit, self.lanes = unit, target.lanes(self.dtype.bits)
        n = self.t.open(unit)
        self.units = 4 if type(n) is not int else max(1, min(4, n // self.lanes))
        self.others = [a for a in self.x.axes if a not in (unit, self.axis)]

    def code(self) -> KernelCode:
        width = self.units * self.lanes
        blocks = (self.t.open(self.unit) + (width - 1)) // width
        return self.t.written(self.t.count(self.others) * blocks, self.work_item)

    def work_item(self, t: IRValue) -> None:
        w, width = self.w, self.units * self.lanes
        n = self.t.length(self.unit)
        blocks = apply(w, "//", plus(w, n, width - 1), width)
        index = self.t.unflatten(w.op("udiv", t, register(blocks)), self.others)
        start = times(w, w.op("urem", t, register(blocks)), width)
        left = register(apply(w, "-", n, start))
        places = [self.t.address(b, plus(w, self.t.offset(b, index), start)) for b in (self.x, self.y)]
        full = w.op("icmp sge", left, constant(width, dtypes.int64), dtype=dtypes.bool_)
        if type(n) is int and n % width == 0:
            return self.column(places, self.units, None)
        w.when(full, [], silent(lambda: self.column(places, self.units, None)), rare=False)

        def rest(j: IRValue) -> list[IRValue]:
            mask = w.tail(w.op("sub", left, j), self.lanes)
            self.column([w.at(p, j, b.dtype) for p, b in zip(places, (self.x, self.y), strict=True)], 1, mask)
            return []

        w.loop(0, w.select(full, constant(0, dtypes.int64), left), self.lanes, [], rest)

    def column(self, places: Sequence[str], units: int, mask: IRValue | None) -> None:
        """So many vectors side by side, from the first place along the axis to the last."""
        w, t, n = self.w, self.t, self.t.length(self.axis)

        def step(p: IRValue, *carried: IRValue) -> list[IRValue]:
            q = self.back(n, p)
            sources, targets = [t.address(b, t.along(b, self.axis, q), at) for b, at in zip((self.x, self.y), places, strict=True)]
            values = [self.load(w.at(sources, k * self.lanes, self.x.dtype), self.lanes, mask) for k in range(units)]
            after = [self.both(c, v) for c, v in zip(carried, values, strict=True)]
            for k, v in enumerate(carried if self.exclusive else after):
                self.store(v, w.at(targets, k * self.lanes, self.y.dtype), mask)
            return after

        w.loop(0, n, 1, [self.first(self.lanes)] * units, step)


class _Along(_Running):
    """Along the axis of the vectors: a vector at a time, by shuffles within it; long rows in pieces, which several threads may share."""

    def __init__(self, plan: Plan, routine: OpaqueOp, target: Cpu, totals: Buffer | None = None):
        super().__init__(plan, routine, target, *([] if totals is None else [totals]))
        self.in_order = in_order(self.kind, self.dtype)  # then neither vectors nor pieces combine places apart from those before
        dense = unit_axis(self.x) == unit_axis(self.y) == self.axis and not self.in_order
        self.lanes, self.between = target.lanes(self.dtype.bits) if dense else 1, totals
        self.rows = [a for a in self.x.axes if a != self.axis]

    def piece(self, n: Whole) -> Whole:
        """Returns the number of elements of a row of n that are summed separately: the order of a sum depends on n alone."""
        if self.in_order:
            return n
        share = apply(self.w, "//", plus(self.w, n, MAX_SCAN_PIECES * SCAN_PIECE - 1), MAX_SCAN_PIECES * SCAN_PIECE)
        return times(self.w, apply(self.w, "max", share, 1), SCAN_PIECE)

    def rows_at_once(self) -> KernelCode:
        """Several rows for each work item, place by place: products of one row wait for each other, those of several do not.

        Where fewer rows are left the last one stands for those that lack: all elements of a place are read before any is written.
        """
        rows = self.t.count(self.rows)
        many = ROWS_IN_ORDER if type(rows) is not int else max(1, min(ROWS_IN_ORDER, rows // self.target.cores))

        def work_item(t: IRValue) -> None:
            w, n = self.w, self.t.length(self.axis)
            first, last = times(w, t, many), apply(w, "-", self.t.number(rows), 1)
            places = [self.row(register(apply(w, "min", plus(w, first, k), last))) for k in range(many)]

            def step(p: IRValue, *carried: IRValue) -> list[IRValue]:
                q = self.back(n, p)
                at = [
                    [self.t.address(b, self.t.along(b, self.axis, q), a) for b, a in zip((self.x, self.y), row, strict=True)]
                    for row in places
                ]
                values = [self.load(source, 1) for source, _ in at]
                after = [self.both(c, v) for c, v in zip(carried, values, strict=True)]
                for v, (_, to) in zip(carried if self.exclusive else after, at, strict=True):
                    self.store(v, to)
                return after

            w.loop(0, n, 1, [self.first(1)] * many, step)

        return self.t.written((rows + (many - 1)) // many, work_item)

    def code(self) -> KernelCode:
        """One work item for each row."""
        if self.in_order:
            return self.rows_at_once()

        def work_item(t: IRValue) -> None:
            w, places, n = self.w, self.row(t), self.t.length(self.axis)
            size = self.piece(n)
            if type(n) is int and type(size) is int and n <= size:
                self.run(places, 0, n, None)
                return
            count = apply(w, "//", plus(w, n, apply(w, "-", size, 1)), size)

            def piece(k: IRValue, base: IRValue) -> list[IRValue]:
                return [self.both(base, self.part(places, k, size, n, base))]

            w.loop(0, count, 1, [self.nothing(1)], piece)

        return self.t.written(self.t.count(self.rows), work_item)

    def totals(self, rows: int, pieces: int) -> KernelCode:
        """The first pass over rows that several threads share: what each piece but the last comes to."""

        def work_item(t: IRValue) -> None:
            w, n = self.w, self.t.length(self.axis)
            row, k = (w.op(op, t, constant(pieces - 1, dtypes.int64)) for op in ("udiv", "urem"))
            total = self.part(self.row(row), k, self.piece(n), n, None, store=False)
            assert self.between is not None
            w.store(total, self.t.address(self.between, plus(w, times(w, row, pieces), k)))

        return self.t.written(rows * (pieces - 1), work_item)

    def pieces(self, rows: int, pieces: int) -> KernelCode:
        """The second pass: each piece, on top of what those before it come to."""

        def work_item(t: IRValue) -> None:
            w, n, between = self.w, self.t.length(self.axis), self.between
            assert between is not None
            row, k = (w.op(op, t, constant(pieces, dtypes.int64)) for op in ("udiv", "urem"))
            mine = self.t.address(between, times(w, row, pieces))

            def more(j: IRValue, base: IRValue) -> list[IRValue]:
                return [self.both(base, w.load(w.at(mine, j, between.dtype), between.dtype))]

            (base,) = w.loop(0, k, 1, [self.nothing(1)], more)
            self.part(self.row(row), k, self.piece(n), n, base)

        return self.t.written(rows * pieces, work_item)

    def row(self, t: IRValue) -> list[str]:
        index = self.t.unflatten(t, self.rows)
        return [self.t.address(b, self.t.offset(b, index)) for b in (self.x, self.y)]

    def part(self, places: Sequence[str], k: IRValue, size: Whole, n: Whole, base: IRValue | None, store: bool = True) -> IRValue:
        """A piece of a row; what it comes to."""
        start = times(self.w, k, size)
        stop = apply(self.w, "min", plus(self.w, start, size), n)
        return self.run(places, start, stop, base, store)

    def run(self, places: Sequence[str], start: Whole, stop: Whole, base: IRValue | None, store: bool = True) -> IRValue:
        """Places `start` to `stop` of a row, on top of `base`; what they come to, where their number is a multiple of the lanes."""
        w, lanes, n = self.w, self.lanes, self.t.length(self.axis)
        onto = None if base is None else w.splat(base, lanes)

        def step(p: Whole, carry: IRValue, left: IRValue | None = None) -> list[IRValue]:
            q = self.back(n, p, lanes)
            mask = None if left is None else self.flip(w.tail(left, lanes))
            source, to = (self.t.address(b, self.t.along(b, self.axis, q), at) for b, at in zip((self.x, self.y), places, strict=True))
            value = self.flip(self.load(source, lanes, mask))
            s = 1
            while s < lanes:
                value = self.both(self.shifted(self.nothing(lanes), value, s), value)
                s *= 2
            value = self.both(carry, value)
            last = w.shuffle(value, [lanes - 1] * lanes) if lanes > 1 else value
            if self.exclusive:
                value = self.shifted(carry, value, 1)
            if store:
                self.store(self.flip(value if onto is None else self.both(onto, value)), to, mask)
            return [last]

        whole = apply(w, "-", stop, apply(w, "%", apply(w, "-", stop, start), lanes))
        (carry,) = w.loop(start, whole, lanes, [self.first(lanes)], step)
        if lanes > 1 and (type(stop) is not int or whole != stop):
            left = register(apply(w, "-", stop, whole))
            some = w.op("icmp sgt", left, constant(0, dtypes.int64), dtype=dtypes.bool_)
            w.when(some, [], lambda: step(whole, carry, left) and [])
        return w.lane(carry, 0)

    def flip(self, v: IRValue) -> IRValue:
        """The lanes as they lie in memory, or back."""
        return self.w.shuffle(v, range(self.lanes)[::-1]) if self.reverse and self.lanes > 1 else v

    def shifted(self, before: IRValue, v: IRValue, by: int) -> IRValue:
        """The lanes moved up; `before`, the same in each lane, comes in."""
        if self.lanes == 1:
            return before
        return self.w.shuffle(v, [k - by if k >= by else self.lanes for k in range(self.lanes)], before)


# ---- sort ----------------------------------------------------------------------------------------------------------------


@KERNELS.of("sort")
def _sort(plan: Plan, routine: OpaqueOp, target: Cpu) -> tuple[KernelCode, ...]:
    """One work item for each row: its keys as whole numbers in order, with the places they come from; then all is moved."""
    key, axis = routine.inputs[0], routine.attrs["axis"]
    t = OpaqueOpText(plan, (*routine.inputs, *routine.results), target)
    rows = [a for a in key.axes if a != axis]
    n, few = t.open(axis), routine.attrs.get("few")
    ordering = Ordering(routine.attrs["descending"], routine.attrs["nan_largest"])
    if type(n) is int and n >= 1 << 32:
        raise UnsupportedError(f"sort along {axis} of {n} elements", fix="at most 2**32 - 1 can be sorted")

    def work_item(number: IRValue) -> None:
        w, length, index = t.w, t.length(axis), t.unflatten(number, rows)
        place = {b: t.address(b, t.offset(b, index)) for b in t.buffers}

        def element(p: IRValue) -> IRValue:
            return w.load(t.address(key, t.along(key, axis, p), place[key]), key.dtype)

        def put(to: IRValue, source: IRValue) -> None:
            for x, y in zip(routine.inputs, routine.results, strict=True):
                w.store(w.load(t.address(x, t.along(x, axis, source), place[x]), x.dtype), t.address(y, t.along(y, axis, to), place[y]))

        def some(p: Whole, lanes: int, mask: IRValue | None) -> IRValue:
            return w.load(t.address(key, t.along(key, axis, p), place[key]), key.dtype, lanes, mask=mask)

        how = key.dtype, ordering, element, some if t.along(key, axis, 1) == 1 else None
        if few is not None and type(length) is int:
            first_few(w, t.memory, length, few, *how, put)
        else:
            sort_row(w, t.memory, length, *how, put)

    each, more = room(key.dtype)
    return (
        t.written(
            t.count(rows), work_item, n * each + more, t.count(key.axes) * INSTRUCTIONS_PER_ELEMENT * max(key.dtype.bits // RADIX_BITS, 1)
        ),
    )


# ---- compact -------------------------------------------------------------------------------------------------------------


@KERNELS.of("compact")
def _compact(plan: Plan, routine: OpaqueOp, target: Cpu) -> tuple[KernelCode, ...]:
    """Each place is written, and the next one goes behind it only where the condition held: no branch to guess wrong."""
    (c,), (found, count) = routine.inputs, routine.results
    axes, t = routine.attrs["axes"], OpaqueOpText(plan, (c, found, count), target)

    def work_item(_: IRValue) -> None:
        w = t.w
        limit = register(t.number(capacity(plan, routine)))

        def level(k: int, base: Whole, flat: Whole, filled: IRValue) -> IRValue:
            if k == len(axes):
                holds = w.load(t.address(c, base), dtypes.bool_)
                fits = w.op("icmp slt", filled, limit, dtype=dtypes.bool_)
                position = w.convert("trunc", register(flat), dtypes.int32)
                w.when(fits, [], silent(lambda: w.store(position, w.at(t.pointer(found), filled, dtypes.int32))), rare=False)
                return w.op("add", filled, w.convert("zext", holds, dtypes.int64))
            n = t.length(axes[k])

            def step(p: IRValue, filled: IRValue) -> list[IRValue]:
                return [level(k + 1, plus(w, base, t.along(c, axes[k], p)), plus(w, times(w, flat, n), p), filled)]

            return w.loop(0, n, 1, [filled], step)[0]

        total = level(0, 0, 0, constant(0, dtypes.int64))
        w.store(w.convert("trunc", total, dtypes.int32), t.pointer(count))

    return (t.written(1, work_item),)


def capacity(plan: Plan, routine: OpaqueOp) -> ExprLike:
    """The most places that `compact` fills: the bound of its axis, else as many as there are in all."""
    length = plan.axes[routine.attrs["axis"]]
    bounds = [e for e in (getattr(length, "a", None), getattr(length, "b", None)) if e is not None and not loads(e)]
    if type(length) is Bin and length.op == "min" and bounds:
        return bounds[0]
    return math.prod([Len(a) for a in routine.attrs["axes"]])

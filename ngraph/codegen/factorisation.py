"""Kernels of `cholesky_block` and `triangular_block`: matrices are copied into scratch memory and factored there by vectors.

Many small matrices stand side by side: lane l of each vector belongs to matrix l of a work item. A larger one has vectors along its
rows. Both are one algorithm over `_Scratch`, which finds an element or a vector of a row in either arrangement. `Factorisation` is what
these kernels and that of `lu_block` share.

The order of sums depends on lengths and the arrangement alone; 16-bit floats are computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ngraph.codegen.forms import Whole, apply, plus, register, times
from ngraph.codegen.lanes import leading, transposed
from ngraph.codegen.math import emit
from ngraph.codegen.number import Number
from ngraph.codegen.routines import KERNELS, OpaqueOpText, unit_axis, wide
from ngraph.codegen.signature import KernelCode
from ngraph.codegen.text import IRValue, IRWriter, constant, silent
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import ExprLike
from ngraph.plan.kernels import Buffer, OpaqueOp, Plan
from ngraph.program.program import AxisId
from ngraph.targets.machine import Cpu
from ngraph.targets.tuning import MAX_INTERLEAVED_BYTES, RIGHT_HAND_VECTORS


def in_groups(w: IRWriter, start: Whole, stop: Whole, size: int, body: Callable[[Whole, int], Any]) -> None:
    """`body(first, count)` for so many numbers at a time, then for those that are left; one by one where their number is not known."""
    split = apply(w, "-", stop, apply(w, "%", apply(w, "max", apply(w, "-", stop, start), 0), size))
    w.loop(start, split, size, [], silent(lambda c: body(c, size)))
    if type(start) is type(stop) is type(split) is int:
        if split < stop:
            body(split, stop - split)
    else:
        w.loop(apply(w, "max", split, start), stop, 1, [], silent(lambda c: body(c, 1)))


class _Scratch:
    """Matrices in the scratch memory of a thread, from element `start` on. A vector of a row is one column of `lanes` matrices, or
    `lanes` columns of one matrix."""

    def __init__(self, t: OpaqueOpText, dtype: DType, columns: ExprLike, interleaved: bool, start: ExprLike = 0):
        self.t, self.w, self.dtype, self.interleaved = t, t.w, dtype, interleaved
        self.lanes = t.target.lanes(dtype.bits)
        self.per_vector = 1 if interleaved else self.lanes  # columns
        self.columns, self.start = columns, start

    @property
    def row(self) -> ExprLike:
        """Returns the elements of a row: whole vectors."""
        return self.columns * self.lanes if self.interleaved else (self.columns + (self.lanes - 1)) // self.lanes * self.lanes

    @property
    def vectors(self) -> Whole:
        """Returns the number of vectors of a row."""
        return apply(self.w, "//", self.t.number(self.row), self.lanes)

    def _at(self, i: Whole, offset: Whole) -> str:
        w = self.w
        return w.at(self.t.memory, plus(w, plus(w, times(w, self.t.number(self.row), i), offset), self.t.number(self.start)), self.dtype)

    def at(self, i: Whole, vector: Whole) -> str:
        """Returns the address of a vector of row i."""
        return self._at(i, times(self.w, vector, self.lanes))

    def place(self, i: Whole, j: Whole, lane: Whole) -> str:
        """Returns the address of the element in row i and column j of the matrix of this lane."""
        return self._at(i, plus(self.w, times(self.w, j, self.lanes), lane) if self.interleaved else j)

    def vector(self, i: Whole, k: Whole) -> Number:
        return Number(self.w, self.w.load(self.at(i, k), self.dtype, self.lanes))

    def put_vector(self, v: Number, i: Whole, k: Whole) -> None:
        self.w.store(v.v, self.at(i, k))

    def element(self, i: Whole, j: Whole) -> Number:
        """Returns the elements in row i and column j: one for each lane, or one."""
        return Number(self.w, self.w.load(self.place(i, j, 0), self.dtype, self.lanes if self.interleaved else 1))

    def put(self, v: Number, i: Whole, j: Whole) -> None:
        self.w.store(v.v, self.place(i, j, 0))

    def everywhere(self, v: Number) -> Number:
        """Returns an element as the factor of a vector."""
        return Number(self.w, self.w.splat(v.v, self.lanes))

    def vector_of(self, j: Whole) -> Whole:
        """Returns the vector in which column j stands."""
        return apply(self.w, "//", j, self.per_vector)

    def subtract(self, i: Whole, start: Whole, stop: Whole, factor: Callable[[Whole], Number], first: Whole) -> None:
        """Subtracts rows `start` to `stop`, each times its factor, from row i, from vector `first` on."""
        w = self.w

        def several(c: Whole, count: int) -> None:
            places = [plus(w, c, n) for n in range(count)]

            def term(k: IRValue, *sums: IRValue) -> list[IRValue]:
                f = self.everywhere(factor(k))
                return [self.minus(Number(w, v), f, self.vector(k, p)).v for v, p in zip(sums, places, strict=True)]

            sums = w.loop(start, stop, 1, [self.vector(i, p).v for p in places], term)
            for v, p in zip(sums, places, strict=True):
                self.put_vector(Number(w, v), i, p)

        in_groups(w, first, self.vectors, RIGHT_HAND_VECTORS, several)

    def minus(self, x: Number, f: Number, y: Number) -> Number:
        """x - f y, rounded once where the target can."""
        return Number(self.w, self.w.fma((-f).v, y.v, x.v))


class Factorisation:
    """Shared by the kernels: which matrices a work item has, and their copies."""

    def __init__(self, plan: Plan, routine: OpaqueOp, target: Cpu):
        self.routine = routine
        self.x = routine.inputs[0]
        self.t = OpaqueOpText(plan, (*routine.inputs, *routine.results), target)
        self.w = self.t.w
        self.rows, self.columns = routine.attrs["rows"], routine.attrs["columns"]
        self.batch = [a for a in self.x.axes if a not in (self.rows, self.columns)]
        self.dtype = wide(self.x.dtype)
        self.lanes = target.lanes(self.dtype.bits)
        self.m, self.n = (self.t.open(a) for a in (self.rows, self.columns))
        count, bytes_ = self.t.count(self.batch), self.m * self.n * self.lanes * self.dtype.bits // 8
        self.interleaved = type(count) is int and type(bytes_) is int and count > 1 and bytes_ <= MAX_INTERLEAVED_BYTES
        self.matrices = _Scratch(self.t, self.dtype, self.n, self.interleaved)

    def height(self) -> Whole:
        """Returns the number of rows; once the function is being written."""
        return self.t.length(self.rows)

    def width(self) -> Whole:
        """Returns the number of columns."""
        return self.t.length(self.columns)

    @property
    def items(self) -> ExprLike:
        count = self.t.count(self.batch)
        return (count + (self.lanes - 1)) // self.lanes if self.interleaved else count

    def each_matrix(self, t: IRValue, body: Callable[[dict[AxisId, Whole], Whole], None]) -> None:
        """`body` with the index and the lane of each matrix of a work item; lanes behind the last one hold anything."""
        if not self.interleaved:
            body(self.t.unflatten(t, self.batch), 0)
            return
        w, first = self.w, times(self.w, t, self.lanes)
        count = apply(w, "min", apply(w, "-", self.t.number(self.t.count(self.batch)), first), self.lanes)
        self.loop(0, count, lambda k: body(self.t.unflatten(register(plus(w, first, k)), self.batch), k))

    def each_move(self, t: IRValue, fast: Callable[[], None] | None, slow: Callable[[dict[AxisId, Whole], Whole], None]) -> None:
        """`fast` for a work item that has a matrix for each lane, `slow` for each matrix of others, or of all where `fast` is None."""
        count = self.t.count(self.batch)
        if fast is None:
            self.each_matrix(t, slow)
        elif type(count) is int and count % self.lanes == 0:
            fast()
        else:
            w = self.w
            left = register(apply(w, "-", self.t.number(count), times(w, t, self.lanes)))
            full = w.op("icmp sge", left, constant(self.lanes, dtypes.int64), dtype=dtypes.bool_)
            w.when(full, [], silent(fast), rare=False)
            w.when(w.op("xor", full, constant(1, dtypes.bool_)), [], silent(lambda: self.each_matrix(t, slow)))

    def by_lanes(
        self, t: IRValue, b: Buffer, rows: AxisId, columns: AxisId | None, place: Callable[..., str], fetch: bool
    ) -> Callable[[], None] | None:
        """Returns what moves one matrix for each lane between a buffer and `place(row, column, lane)` in scratch, by whole vectors.

        Elements that are neighbours in the buffer are those of one matrix: so many vectors as there are lanes are transposed in registers.
        None where neighbours belong to neither rows nor columns.
        """
        w, lanes, dense = self.w, self.lanes, unit_axis(b)
        if not self.interleaved or dense is None or dense not in (rows, columns):
            return None
        other = columns if dense == rows else rows
        n = self.t.open(dense)
        if type(n) is not int:
            return None

        def run() -> None:
            spots = []
            for k in range(lanes):
                index = self.t.unflatten(register(plus(w, times(w, t, lanes), k)), self.batch)
                spots.append(self.places(b, index, *([dense] if other is None else [other, dense])))

            def chunk(row: tuple[Whole, ...], c: Whole, count: int) -> None:
                mask = leading(count, lanes)

                def at(q: int) -> str:
                    i = row[0] if row else 0
                    j = plus(w, c, q)
                    return place(*((i, j) if dense == columns else (j, i)), 0)

                if fetch:
                    vectors = transposed(w, [self.load(spot(*row, c), b.dtype, lanes, mask) for spot in spots])
                    for q in range(count):
                        w.store(vectors[q], at(q))
                    return
                vectors = transposed(w, [w.load(at(min(q, count - 1)), self.dtype, lanes) for q in range(lanes)])
                for spot, v in zip(spots, vectors, strict=True):
                    w.store(self.cast(v, b.dtype), spot(*row, c), mask=mask)

            def line(*row: Whole) -> None:
                w.loop(0, n - n % lanes, lanes, [], silent(lambda c: chunk(row, c, lanes)))
                if n % lanes:
                    chunk(row, n - n % lanes, n % lanes)

            if other is None:
                line()
            else:
                self.loop(0, self.t.length(other), line)

        return run

    def places(self, b: Buffer, index: dict[AxisId, Whole], *axes: AxisId) -> Callable[..., str]:
        """Returns the addresses in a buffer by the indices along these axes, of one matrix."""
        base = self.t.address(b, self.t.offset(b, index))

        def place(*at: Whole) -> str:
            return self.t.address(b, self.t.offset(b, dict(zip(axes, at, strict=True))), base)

        return place

    def load(self, pointer: str, dtype: DType, lanes: int = 1, mask: IRValue | None = None) -> IRValue:
        return self.cast(self.w.load(pointer, dtype, lanes, mask=mask), self.dtype)

    def cast(self, v: IRValue, dtype: DType) -> IRValue:
        return v if v.dtype is dtype else emit(self.w, "cast", [v], {"dtype": dtype})

    def loop(self, start: Whole, stop: Whole, body: Callable[[IRValue], Any]) -> None:
        self.w.loop(start, stop, 1, [], silent(body))

    def instructions(self, each: ExprLike) -> ExprLike:
        """Returns those of all matrices: twice as many as multiply-adds of vectors, and the moves in and out."""
        return self.t.count(self.batch) * (each * 2 // self.lanes + self.m * self.n)

    def root(self, x: Number) -> Number:
        return Number(self.w, emit(self.w, "sqrt", [x.v]))

    def scratch(self, elements: ExprLike) -> ExprLike:
        """Returns the bytes of so many elements."""
        return elements * (self.dtype.bits // 8)


@KERNELS.of("cholesky_block")
def _cholesky(plan: Plan, routine: OpaqueOp, target: Cpu) -> tuple[KernelCode, ...]:
    """The transposed factor is computed in scratch, whose rows are then those from which multiples are subtracted."""
    f = Factorisation(plan, routine, target)
    s, y = f.matrices, routine.results[0]

    def fetch(index: dict[AxisId, Whole], lane: Whole) -> None:
        source = f.places(f.x, index, f.rows, f.columns)
        f.loop(
            0, f.width(), lambda i: f.loop(0, plus(f.w, i, 1), lambda j: f.w.store(f.load(source(i, j), f.x.dtype), s.place(j, i, lane)))
        )

    def store(index: dict[AxisId, Whole], lane: Whole) -> None:
        to, zero = f.places(y, index, f.rows, f.columns), constant(0, y.dtype)

        def row(i: IRValue) -> None:
            f.loop(0, plus(f.w, i, 1), lambda j: f.w.store(f.cast(f.w.load(s.place(j, i, lane), f.dtype), y.dtype), to(i, j)))
            f.loop(plus(f.w, i, 1), f.width(), lambda j: f.w.store(zero, to(i, j)))

        f.loop(0, f.width(), row)

    def less(i: IRValue, first: Whole, last: Whole) -> None:
        s.subtract(i, first, last, lambda k: s.element(k, i), s.vector_of(i))

    def column(k: IRValue, first: Whole) -> None:
        less(k, first, k)
        pivot = f.root(s.element(k, k))
        scale = s.everywhere(1.0 / pivot)
        f.loop(s.vector_of(k), s.vectors, lambda c: s.put_vector(s.vector(k, c) * scale, k, c))
        s.put(pivot, k, k)

    def block(c: IRValue) -> None:
        """Finds the rows of as many columns as a vector has, then subtracts their multiples from all rows below."""
        first = times(f.w, c, s.per_vector)
        last = apply(f.w, "min", plus(f.w, first, s.per_vector), f.width())
        f.loop(first, last, lambda k: column(k, first))
        f.loop(last, f.width(), lambda i: less(i, first, last))

    def zeros() -> None:
        """Fills the triangle below the diagonal of the transposed factors."""
        f.loop(0, f.height(), lambda i: f.loop(0, i, lambda j: s.put(s.everywhere(Number(f.w, constant(0, f.dtype))), i, j)))

    def turned(i: Whole, j: Whole, lane: Whole) -> str:
        return s.place(j, i, lane)

    def work_item(t: IRValue) -> None:
        f.each_move(t, f.by_lanes(t, f.x, f.rows, f.columns, turned, fetch=True), fetch)
        f.loop(0, s.vectors, block)
        out = f.by_lanes(t, y, f.rows, f.columns, turned, fetch=False)
        if out is not None:
            zeros()
        f.each_move(t, out, store)

    return (f.t.written(f.items, work_item, f.scratch(f.m * s.row), f.instructions(f.m * f.m * f.m // 6)),)


@KERNELS.of("triangular_block")
def _triangular(plan: Plan, routine: OpaqueOp, target: Cpu) -> tuple[KernelCode, ...]:
    return (_Triangular(plan, routine, target).code(),)


class _Triangular(Factorisation):
    """A work item has some right-hand sides of a matrix, or all of as many matrices as there are lanes."""

    def __init__(self, plan: Plan, routine: OpaqueOp, target: Cpu):
        super().__init__(plan, routine, target)
        self.b, self.y = routine.inputs[1], routine.results[0]
        self.lower, self.unit = routine.attrs["lower"], routine.attrs["unit"]
        others = [a for a in self.b.axes if a not in (*self.batch, self.rows)]
        dense = unit_axis(self.b)
        self.along = dense if dense in others else others[-1] if others else None  # the axis of the right-hand sides of a vector
        self.others = [a for a in others if a != self.along]
        self.sides: ExprLike = 1 if self.along is None else self.t.open(self.along)
        self.block: ExprLike = self.sides if self.interleaved else self.lanes * RIGHT_HAND_VECTORS
        if type(self.sides) is int and not self.interleaved:
            self.block = max(min(-(-self.sides // self.lanes), RIGHT_HAND_VECTORS), 1) * self.lanes
        own = self.n * self.matrices.row if self.interleaved else 0
        self.solution = _Scratch(self.t, self.dtype, self.block, self.interleaved, own)
        self.elements = own + self.n * self.solution.row

    def code(self) -> KernelCode:
        others = self.t.count(self.others)
        blocks = 1 if self.interleaved else (self.sides + (self.block - 1)) // self.block

        def work_item(t: IRValue) -> None:
            w = self.w
            count = register(self.t.number(others * blocks))
            first, rest = w.op("udiv", t, count), w.op("urem", t, count)
            blocks_ = register(self.t.number(blocks))
            here = self.t.unflatten(w.op("udiv", rest, blocks_), self.others)
            self.solve(first, here, times(w, w.op("urem", rest, blocks_), self.t.number(self.block)))

        count = self.t.count(self.b.axes)
        return self.t.written(
            self.items * others * blocks, work_item, self.scratch(self.elements), count * (self.n + self.lanes) // self.lanes
        )

    def solve(self, t: IRValue, here: dict[AxisId, Whole], start: Whole) -> None:
        n, s = self.t.length(self.rows), self.solution
        count = apply(self.w, "min", apply(self.w, "-", self.t.number(self.sides), start), self.t.number(self.block))
        self.each_move(
            t, self.all_lanes(t, self.x, self.b, fetch=True), lambda index, lane: self.fetch({**index, **here}, lane, start, count)
        )
        if self.interleaved:
            element = self.matrices.element
        else:
            source = self.places(self.x, self.t.unflatten(t, self.batch), self.rows, self.columns)

            def element(i: Whole, j: Whole) -> Number:
                return Number(self.w, self.load(source(i, j), self.x.dtype))

        def row(k: IRValue) -> None:
            i = k if self.lower else self.w.op("sub", register(apply(self.w, "-", n, 1)), k)
            first, last = (0, i) if self.lower else (plus(self.w, i, 1), n)
            vectors = s.vectors
            scale = None if self.unit else s.everywhere(1.0 / element(i, i))

            def some(chunks: list[Whole]) -> None:
                def term(j: IRValue, *sums: IRValue) -> list[IRValue]:
                    factor = s.everywhere(element(i, j))
                    return [s.minus(Number(self.w, v), factor, s.vector(j, c)).v for v, c in zip(sums, chunks, strict=True)]

                sums = self.w.loop(first, last, 1, [s.vector(i, c).v for c in chunks], term)
                for v, c in zip(sums, chunks, strict=True):
                    s.put_vector(Number(self.w, v) if scale is None else Number(self.w, v) * scale, i, c)

            in_groups(self.w, 0, vectors, RIGHT_HAND_VECTORS, lambda c, count: some([plus(self.w, c, n) for n in range(count)]))

        self.loop(0, n, row)
        self.each_move(
            t, self.all_lanes(t, None, self.y, fetch=False), lambda index, lane: self.store({**index, **here}, lane, start, count)
        )

    def all_lanes(self, t: IRValue, x: Buffer | None, b: Buffer, fetch: bool) -> Callable[[], None] | None:
        """Returns what moves matrices and right-hand sides by whole vectors; None where they do not lie so."""
        if self.others:
            return None
        sides = self.by_lanes(t, b, self.rows if fetch else self.columns, self.along, self.solution.place, fetch)
        matrices = None if x is None else self.by_lanes(t, x, self.rows, self.columns, self.matrices.place, fetch)
        if sides is None or (x is not None and matrices is None):
            return None

        def run() -> None:
            if matrices is not None:
                matrices()
            sides()

        return run

    def fetch(self, index: dict[AxisId, Whole], lane: Whole, start: Whole, count: Whole) -> None:
        n, s = self.t.length(self.rows), self.solution
        if self.interleaved:
            source = self.places(self.x, index, self.rows, self.columns)

            def row(i: IRValue) -> None:
                first, last = (0, plus(self.w, i, 1)) if self.lower else (i, n)
                self.loop(first, last, lambda j: self.w.store(self.load(source(i, j), self.x.dtype), self.matrices.place(i, j, lane)))

            self.loop(0, n, row)
        right = self.sides_of(self.b, index, self.rows)
        if self.vectorised(self.b):
            self.by_vectors(
                n,
                count,
                lambda i, c, mask: s.put_vector(
                    Number(self.w, self.load(right(i, plus(self.w, start, c)), self.b.dtype, self.lanes, mask)),
                    i,
                    apply(self.w, "//", c, self.lanes),
                ),
            )
            return
        self.loop(
            0,
            n,
            lambda i: self.loop(
                0, count, lambda c: self.w.store(self.load(right(i, plus(self.w, start, c)), self.b.dtype), s.place(i, c, lane))
            ),
        )

    def store(self, index: dict[AxisId, Whole], lane: Whole, start: Whole, count: Whole) -> None:
        n, s = self.t.length(self.rows), self.solution
        to = self.sides_of(self.y, index, self.columns)
        if self.vectorised(self.y):
            self.by_vectors(
                n,
                count,
                lambda i, c, mask: self.w.store(
                    self.cast(s.vector(i, apply(self.w, "//", c, self.lanes)).v, self.y.dtype), to(i, plus(self.w, start, c)), mask=mask
                ),
            )
            return
        self.loop(
            0,
            n,
            lambda i: self.loop(
                0,
                count,
                lambda c: self.w.store(
                    self.cast(self.w.load(s.place(i, c, lane), self.dtype), self.y.dtype), to(i, plus(self.w, start, c))
                ),
            ),
        )

    def vectorised(self, b: Buffer) -> bool:
        """Whether right-hand sides that are neighbours in memory are one vector."""
        return not self.interleaved and self.along is not None and unit_axis(b) == self.along

    def by_vectors(self, n: Whole, count: Whole, body: Callable[[IRValue, IRValue, IRValue], None]) -> None:
        """`body` with each row, each first column of a vector and the mask of its columns."""
        w = self.w

        def row(i: IRValue) -> None:
            w.loop(0, count, self.lanes, [], silent(lambda c: body(i, c, w.tail(register(apply(w, "-", count, c)), self.lanes))))

        self.loop(0, n, row)

    def sides_of(self, b: Buffer, index: dict[AxisId, Whole], axis: AxisId) -> Callable[[Whole, Whole], str]:
        if self.along is not None:
            return self.places(b, index, axis, self.along)
        place = self.places(b, index, axis)
        return lambda i, _: place(i)

"""Kernels of `lu_block`: LU factors by partial pivoting, by vectors that run down the rows, or over as many matrices as there are lanes.

Both find the pivot that LAPACK's `idamax` finds, the first of the largest, and scale a column by the pivot's reciprocal. A column without
a pivot other than 0 is left as it is, so that the determinant of a singular matrix is 0.
Source: Golub and Van Loan, Matrix Computations, 3.4; columns within a block are found "left-looking" (3.4.2).
"""

from __future__ import annotations

from collections.abc import Callable

from ngraph.codegen.factorisation import Factorisation, in_groups
from ngraph.codegen.forms import Whole, apply, plus, register, times
from ngraph.codegen.lanes import transposed
from ngraph.codegen.number import BITS, Number
from ngraph.codegen.routines import KERNELS, unit_axis
from ngraph.codegen.signature import KernelCode
from ngraph.codegen.text import IRValue, constant, counting, silent, vector
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import ExprLike
from ngraph.plan.kernels import Buffer, OpaqueOp, Plan
from ngraph.program.program import AxisId
from ngraph.targets.machine import Cpu
from ngraph.targets.tuning import MAX_LU_COLUMNS, UPDATED_COLUMNS


@KERNELS.of("lu_block")
def _lu(plan: Plan, routine: OpaqueOp, target: Cpu) -> tuple[KernelCode, ...]:
    f = _Lu(plan, routine, target)
    return ((f if f.interleaved else _Columns(plan, routine, target)).code(),)


class _Lu(Factorisation):
    """Many small matrices side by side: each lane exchanges rows of its own, by selects."""

    def __init__(self, plan: Plan, routine: OpaqueOp, target: Cpu):
        super().__init__(plan, routine, target)
        self.packed, self.order, self.sign = routine.results
        self.integer = BITS[self.dtype.bits][0]  # as wide as an element

    def code(self) -> KernelCode:
        each = self.m * self.n * self.m // 2
        elements = self.m * self.matrices.row + (self.m + 1) * self.lanes  # matrices, the order of their rows, the signs
        return self.t.written(self.items, self.work_item, self.scratch(elements), self.instructions(each))

    def work_item(self, t: IRValue) -> None:
        w, s = self.w, self.matrices
        self.each_move(t, self.by_lanes(t, self.x, self.rows, self.columns, s.place, fetch=True), self.fetch)
        self.loop(0, plus(w, self.height(), 1), lambda i: w.store(self.initial(i), self.numbers(i)))
        self.loop(0, apply(w, "min", self.height(), self.width()), self.column)
        self.each_move(t, self.by_lanes(t, self.packed, self.rows, self.columns, s.place, fetch=False), self.store)
        self.each_matrix(t, self.numbered)

    def initial(self, i: IRValue) -> IRValue:
        """Returns the number of row i, or 1, the sign, behind the last."""
        w = self.w
        one = w.op("icmp eq", i, register(self.height()), dtype=dtypes.bool_)
        return w.splat(self.narrow(w.select(one, constant(1, dtypes.int64), i)), self.lanes)

    def narrow(self, i: IRValue) -> IRValue:
        return i if self.integer is dtypes.int64 else self.w.convert("trunc", i, self.integer)

    def scale(self, pivot: Number) -> Number:
        """Returns the factor of a column below its pivot; 1 for a pivot of 0, below which are zeros."""
        return pivot.equal(0.0).select(1.0, 1.0 / pivot)

    def numbers(self, i: Whole, lane: Whole = 0) -> str:
        """Returns the address behind the matrices that holds which rows are in row i."""
        w = self.w
        start = self.t.number(self.m * self.matrices.row)
        return w.at(self.t.memory, plus(w, plus(w, start, times(w, i, self.lanes)), lane), self.integer)

    def fetch(self, index: dict[AxisId, Whole], lane: Whole) -> None:
        source, s = self.places(self.x, index, self.rows, self.columns), self.matrices
        self.loop(
            0,
            self.height(),
            lambda i: self.loop(0, self.width(), lambda j: self.w.store(self.load(source(i, j), self.x.dtype), s.place(i, j, lane))),
        )

    def store(self, index: dict[AxisId, Whole], lane: Whole) -> None:
        w, to, s = self.w, self.places(self.packed, index, self.rows, self.columns), self.matrices

        def element(i: Whole, j: Whole) -> None:
            w.store(self.cast(w.load(s.place(i, j, lane), self.dtype), self.packed.dtype), to(i, j))

        self.loop(0, self.height(), lambda i: self.loop(0, self.width(), lambda j: element(i, j)))

    def numbered(self, index: dict[AxisId, Whole], lane: Whole) -> None:
        """Stores the order of the rows, and its sign."""
        w, to = self.w, self.places(self.order, index, self.rows)

        def put(i: Whole, place: str) -> None:
            w.store(self.to_int32(w.load(self.numbers(i, lane), self.integer)), place)

        self.loop(0, self.height(), lambda i: put(i, to(i)))
        put(self.height(), self.places(self.sign, index)())

    def to_int32(self, v: IRValue) -> IRValue:
        return v if v.dtype is dtypes.int32 else self.w.convert("trunc", v, dtypes.int32)

    def column(self, k: IRValue) -> None:
        """Brings the largest element of column k to row k, finds column k of L, and subtracts its multiples of row k."""
        w, s, m = self.w, self.matrices, self.height()
        after = register(plus(w, k, 1))
        here = w.splat(self.narrow(k), self.lanes)

        def larger(i: IRValue, best: IRValue, at: IRValue) -> list[IRValue]:
            size = s.element(i, k).magnitude()
            more = size > Number(w, best)
            return [w.select(more.v, size.v, best), w.select(more.v, w.splat(self.narrow(i), self.lanes), at)]

        _, at = w.loop(after, m, 1, [s.element(k, k).magnitude().v, here], larger)
        moved = w.op("icmp ne", at, here, dtype=dtypes.bool_)
        sign = Number(w, w.load(self.numbers(m), self.integer, self.lanes))
        w.store(w.select(moved, (-sign).v, sign.v), self.numbers(m))

        def exchange(dtype: DType, place: Callable[[Whole], str], count: int = 1) -> list[IRValue]:
            """Exchanges vectors from place(k) on with those from where its lanes' pivots are; returns the new ones."""
            step = self.lanes
            top = [w.at(place(k), n * step, dtype) for n in range(count)]
            first = [w.load(spot, dtype, step) for spot in top]

            def row(i: IRValue, *found: IRValue) -> list[IRValue]:
                chosen = w.op("icmp eq", at, w.splat(self.narrow(i), step), dtype=dtypes.bool_)
                spots = [w.at(place(i), n * step, dtype) for n in range(count)]
                values = [w.load(spot, dtype, step) for spot in spots]
                for spot, x, v in zip(spots, first, values, strict=True):
                    w.store(w.select(chosen, x, v), spot)
                return [w.select(chosen, v, x) for v, x in zip(values, found, strict=True)]

            found = w.loop(after, m, 1, first, row)
            for spot, x in zip(top, found, strict=True):
                w.store(x, spot)
            return list(found)

        def place(j: Whole) -> Callable[[Whole], str]:
            return lambda i: s.place(i, j, 0)

        def right(j: Whole, count: int) -> None:
            """Exchanges rows of columns from j on, then subtracts multiples of row k."""
            us = exchange(self.dtype, place(j), count)

            def row(i: IRValue) -> None:
                factor = s.element(i, k)
                spots = [w.at(s.place(i, j, 0), n * self.lanes, self.dtype) for n in range(count)]
                values = [Number(w, w.load(spot, self.dtype, self.lanes)) for spot in spots]
                for spot, x, u in zip(spots, values, us, strict=True):
                    w.store(s.minus(x, factor, Number(w, u)).v, spot)

            self.loop(after, m, row)

        exchange(self.integer, self.numbers)
        in_groups(w, 0, k, UPDATED_COLUMNS, lambda j, count: exchange(self.dtype, place(j), count))
        scale = self.scale(Number(w, exchange(self.dtype, place(k))[0]))
        self.loop(after, m, lambda i: s.put(s.element(i, k) * scale, i, k))
        in_groups(w, after, self.width(), UPDATED_COLUMNS, right)


class _Columns(_Lu):
    """One matrix: vectors run down its rows. Vector (v, c) of scratch memory holds rows v times the lanes on of column c.

    As many columns as there are lanes are found at a time, so that the diagonal of such a block is in one vector of each column.
    Columns are padded to whole blocks; rows behind the last are 0, and never a pivot.
    """

    def __init__(self, plan: Plan, routine: OpaqueOp, target: Cpu):
        super().__init__(plan, routine, target)
        self.lanes = lanes = min(self.lanes, MAX_LU_COLUMNS)
        self.some = min(UPDATED_COLUMNS, lanes)  # columns that are updated together: a part of a block's
        self.down: ExprLike = (self.m + (lanes - 1)) // lanes  # vectors
        self.wide: ExprLike = (self.n + (lanes - 1)) // lanes * lanes  # columns
        self.step = (self.wide + 1) * lanes  # one vector apart, so that the vectors of a column share no set of the cache

    def code(self) -> KernelCode:
        each = self.m * self.n * self.m // 2
        return self.t.written(self.items, self.work_item, self.scratch(self.down * self.step), self.instructions(each))

    def line(self, v: Whole, c: Whole = 0) -> str:
        """Returns the address of vector v of column c; those of the next columns follow."""
        w = self.w
        return w.at(self.t.memory, plus(w, times(w, v, self.t.number(self.step)), times(w, c, self.lanes)), self.dtype)

    def column_at(self, line: str, c: int) -> str:
        return self.w.at(line, c * self.lanes, self.dtype)

    def vector(self, line: str, c: int) -> IRValue:
        return self.w.load(self.column_at(line, c), self.dtype, self.lanes)

    def below(self, q: int) -> IRValue:
        """Returns the mask of the lanes behind lane q."""
        return vector([int(lane > q) for lane in range(self.lanes)], dtypes.bool_)

    def work_item(self, t: IRValue) -> None:
        w = self.w
        index = self.t.unflatten(t, self.batch)
        self.limit = apply(w, "min", self.height(), self.width())
        self.vectors = self.t.number(self.down)
        self.move(self.x, index, fetch=True)
        numbers = self.places(self.order, index, self.rows)
        self.loop(0, self.height(), lambda i: w.store(w.convert("trunc", i, dtypes.int32), numbers(i)))
        w.store(constant(1, dtypes.int32), self.places(self.sign, index)())
        blocks = apply(w, "//", plus(w, self.limit, self.lanes - 1), self.lanes)
        self.loop(0, blocks, lambda d: self.block(d, index))
        self.move(self.packed, index, fetch=False)

    def move(self, b: Buffer, index: dict[AxisId, Whole], fetch: bool) -> None:
        """Copies the matrix into scratch memory, or back; rows that are neighbours in the buffer are vectors, columns are transposed."""
        w, lanes, dense = self.w, self.lanes, unit_axis(b)
        place = self.places(b, index, self.rows, self.columns)
        m, n = self.height(), self.width()

        def down(v: IRValue, c: IRValue) -> None:
            line, mask = self.line(v, c), w.tail(register(apply(w, "-", m, times(w, v, lanes))), lanes)
            to = place(times(w, v, lanes), c)
            if fetch:
                w.store(self.load(to, b.dtype, lanes, mask), line)
            else:
                w.store(self.cast(self.vector(line, 0), b.dtype), to, mask=mask)

        def across(v: IRValue, c: IRValue, whole: bool) -> None:
            """`lanes` rows of `lanes` columns; where there are not so many of either, those that there are."""
            line, first = self.line(v, c), register(times(w, v, lanes))
            mask = None if type(n) is int and n % lanes == 0 else w.tail(register(apply(w, "-", n, c)), lanes)
            left = register(apply(w, "-", m, first))

            def held(r: int) -> IRValue | None:
                if whole:
                    return mask
                some = w.splat(w.op("icmp sgt", left, constant(r, dtypes.int64), dtype=dtypes.bool_), lanes)
                return some if mask is None else w.op("and", some, mask)

            spots = [place(plus(w, first, r), c) for r in range(lanes)]
            if fetch:
                for q, x in enumerate(transposed(w, [self.load(spot, b.dtype, lanes, held(r)) for r, spot in enumerate(spots)])):
                    w.store(x, self.column_at(line, q))
            else:
                for r, x in enumerate(transposed(w, [self.vector(line, q) for q in range(lanes)])):
                    w.store(self.cast(x, b.dtype), spots[r], mask=held(r))

        def one(v: IRValue, c: IRValue) -> None:
            """Rows that are apart, and columns, too."""
            if fetch:
                w.store(constant(0, self.dtype, lanes), self.line(v, c))
            first = times(w, v, lanes)

            def element(r: IRValue) -> None:
                here, there = w.at(self.line(v, c), r, self.dtype), place(plus(w, first, r), c)
                if fetch:
                    w.store(self.load(there, b.dtype), here)
                else:
                    w.store(self.cast(w.load(here, self.dtype), b.dtype), there)

            self.loop(0, apply(w, "min", apply(w, "-", m, first), lanes), element)

        if dense == self.rows or dense != self.columns:
            body = down if dense == self.rows else one
            self.loop(0, self.vectors, lambda v: self.loop(0, n, lambda c: body(v, c)))
            return
        full = apply(w, "//", m, lanes)

        def rows(first: Whole, last: Whole, whole: bool) -> None:
            self.loop(first, last, lambda v: w.loop(0, n, lanes, [], silent(lambda c: across(v, c, whole))))

        rows(0, full, whole=True)
        rows(full, self.vectors, whole=False)

    def block(self, d: IRValue, index: dict[AxisId, Whole]) -> None:
        """Finds the columns whose diagonal is in vector d of each, then subtracts their multiples from all columns behind them."""
        w, lanes = self.w, self.lanes
        first = register(times(w, d, lanes))
        diagonal, after = self.line(d, first), plus(w, d, 1)
        for k in range(lanes):
            self.find(d, k, first, diagonal, index)
        behind = plus(w, first, lanes)
        some, width = self.some, self.t.number(self.wide)

        def top(c: IRValue) -> None:
            """Solves for the rows of U, of some columns."""
            line = self.line(d, c)
            values = [self.vector(line, n) for n in range(some)]
            for q in range(lanes - 1):
                lower = self.vector(diagonal, q)
                values = [self.reduced(x, q, lower, self.spread(x, q)) for x in values]
            for n, x in enumerate(values):
                w.store(x, self.column_at(line, n))

        def rows(v: IRValue) -> None:
            line = self.line(v, first)
            factors = [(-Number(w, self.vector(line, q))).v for q in range(lanes)]

            def columns(c: IRValue) -> None:
                upper, here = self.line(d, c), self.line(v, c)
                values = [self.vector(here, n) for n in range(some)]
                for q in range(lanes):
                    us = [w.splat(w.load(w.at(self.column_at(upper, n), q, self.dtype), self.dtype), lanes) for n in range(some)]
                    values = [w.fma(factors[q], u, x) for u, x in zip(us, values, strict=True)]
                for n, x in enumerate(values):
                    w.store(x, self.column_at(here, n))

            w.loop(behind, width, some, [], silent(columns))

        w.loop(behind, width, some, [], silent(top))
        self.loop(after, self.vectors, rows)

    def spread(self, x: IRValue, q: int) -> IRValue:
        """Returns minus lane q in all lanes."""
        return (-Number(self.w, self.w.shuffle(x, [q] * self.lanes))).v

    def reduced(self, x: IRValue, q: int, lower: IRValue, u: IRValue) -> IRValue:
        """Returns a vector of the diagonal block with the multiples of its lane q subtracted from those behind it."""
        return self.w.select(self.below(q), self.w.fma(lower, u, x), x)

    def find(self, d: IRValue, k: int, first: IRValue, diagonal: str, index: dict[AxisId, Whole]) -> None:
        """Subtracts the multiples of the block's columns before column k of it, exchanges rows and finds its factors."""
        w, lanes, integer = self.w, self.lanes, self.integer
        x = self.vector(diagonal, k)
        us: list[IRValue] = []
        for q in range(k):
            us.append(self.spread(x, q))
            x = self.reduced(x, q, self.vector(diagonal, q), us[-1])
        w.store(x, self.column_at(diagonal, k))
        zero = constant(0, self.dtype, lanes)

        def larger(v: IRValue, size: Number, best: IRValue, at: IRValue) -> list[IRValue]:
            more = size > Number(w, best)
            return [w.select(more.v, size.v, best), w.select(more.v, w.splat(self.narrow(v), lanes), at)]

        def row(v: IRValue, best: IRValue, at: IRValue) -> list[IRValue]:
            line = self.line(v, first)
            x = self.vector(line, k)
            for q, u in enumerate(us):
                x = w.fma(self.vector(line, q), u, x)
            if us:
                w.store(x, self.column_at(line, k))
            return larger(v, Number(w, x).magnitude(), best, at)

        here = w.splat(self.narrow(d), lanes)
        candidates = w.select(self.below(k - 1), Number(w, x).magnitude().v, zero) if k else Number(w, x).magnitude().v
        best, at = w.loop(plus(w, d, 1), self.vectors, 1, larger(d, Number(w, candidates), zero, here), row)
        column = register(plus(w, first, k))

        def rest() -> list[IRValue]:
            most = w.intrinsic("vector.reduce.fmax", self.dtype, 1, best)
            places = w.op("add", w.op("mul", at, constant(lanes, integer, lanes)), counting(integer, lanes))
            largest = w.op("fcmp oeq", best, w.splat(most, lanes), dtype=dtypes.bool_)
            places = w.select(largest, places, constant((1 << integer.bits - 1) - 1, integer, lanes))
            place = w.intrinsic("vector.reduce.smin", integer, 1, places)
            place = place if integer is dtypes.int64 else w.convert("sext", place, dtypes.int64)
            better = w.op("fcmp ogt", most, Number(w, w.lane(x, k)).magnitude().v, dtype=dtypes.bool_)
            w.when(better, [], silent(lambda: self.exchange(column, place, index)), rare=False)
            pivot = w.load(w.at(self.column_at(diagonal, k), k, self.dtype), self.dtype)
            scale = w.splat(self.scale(Number(w, pivot)).v, lanes)
            v = self.vector(diagonal, k)
            w.store(w.select(self.below(k), w.op("fmul", v, scale), v), self.column_at(diagonal, k))

            def scaled(v: IRValue) -> None:
                to = self.column_at(self.line(v, first), k)
                w.store(w.op("fmul", w.load(to, self.dtype, lanes), scale), to)

            self.loop(plus(w, d, 1), self.vectors, scaled)
            return []

        w.when(w.op("icmp slt", column, register(self.limit), dtype=dtypes.bool_), [], rest, rare=False)

    def exchange(self, one: IRValue, other: IRValue, index: dict[AxisId, Whole]) -> None:
        """Exchanges two rows of the matrix, and their numbers."""
        w, lanes = self.w, self.lanes

        def swap(a: str, b: str, dtype: DType) -> None:
            x, y = w.load(a, dtype), w.load(b, dtype)
            w.store(y, a)
            w.store(x, b)

        def columns(c: IRValue) -> None:
            a, b = (w.at(self.line(apply(w, "//", i, lanes), c), register(apply(w, "%", i, lanes)), self.dtype) for i in (one, other))
            for n in range(self.some):
                swap(self.column_at(a, n), self.column_at(b, n), self.dtype)

        w.loop(0, self.t.number(self.wide), self.some, [], silent(columns))
        numbers, flag = self.places(self.order, index, self.rows), self.places(self.sign, index)()
        swap(numbers(one), numbers(other), dtypes.int32)
        w.store((-Number(w, w.load(flag, dtypes.int32))).v, flag)

"""The code of one scheduled stage: its loops, its sums, and the values of its lines by demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from ngraph.codegen import math as scalar
from ngraph.codegen.access import address, lane_step, offset, read, store, store_interleaved
from ngraph.codegen.forms import Whole, apply, as_whole, certain, meet, plus, register, times
from ngraph.codegen.lanes import as_one, fold, identity, meet_all, number
from ngraph.codegen.matrices import MatrixSums
from ngraph.codegen.philox import WORDS, random_bits, side_by_side
from ngraph.codegen.scope import INT32_END, Open, Scope
from ngraph.codegen.text import Body, IRValue, constant
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.opdef import COST
from ngraph.plan.kernels import Combine
from ngraph.schedule.form import Access, Loop, ScheduledStage, sliding, whole_steps
from ngraph.schedule.matrix import instruction
from ngraph.schedule.search import matrix_rows, remainders, segments
from ngraph.targets.products import DOTS, PACKS, PRODUCTS
from ngraph.targets.tuning import (
    ASSUMED_SPREAD,
    INTERLEAVED_PLACES,
    MATRIX_ROWS_AT_ONCE,
    MATRIX_ROWS_TRANSPOSED,
    MIN_INTERLEAVED_COST,
    MIN_LOOPED_COST,
    MIN_LOOPED_STEPS,
    MIN_LOOPED_STEPS_OF_OPEN,
    PREFETCH_ROUNDS,
    SELDOM_SHARE,
)

if TYPE_CHECKING:
    from ngraph.codegen.kernel import FunctionWriter


class Nest(Scope):
    """The loops of one stage in one work item. `cold`: what is being written runs seldom, so that its code is short."""

    def __init__(self, kernel: FunctionWriter, scheduled: ScheduledStage, cold: bool) -> None:
        super().__init__(kernel, scheduled)
        self.cold = cold
        self.border = len(self.stage.before)
        self.row, self.across = self.tile.tile, self.tile.across
        self.reduced = scheduled.reduced
        self.hoisted = [a for a in scheduled.accesses if not a.epilogue]
        self.prefetched: list[tuple[Access, int, list[str]]] = []

    # ---- loops

    def write(self) -> Sequence[IRValue]:
        """The whole stage."""
        epilogue = self.border if self.scheduled.reducing else len(self.lines) + self.border
        roots = [s.line for s in self.stage.to if s.line < epilogue] + [c.line for c in self.stage.combine]
        self._hoist(roots, (*self.tile.order, *self.reduced))
        self._walk_free(0, roots)
        return []

    def _walk_free(self, k: int, roots: list[int]) -> None:
        order = self.tile.order
        if k == len(order):
            self._leaf()
            return
        if self.tile.deep is not None and order[k] is self.row:
            self._matrix_rows(order[k])
            return

        def body(*_: IRValue) -> list[IRValue]:
            self._hoist(roots, (*order[k + 1 :], *self.reduced))
            self._walk_free(k + 1, roots)
            return []

        self._each(order[k], (), body)

    def _each(self, d: Loop, carried: Sequence[IRValue], body: Body) -> tuple[IRValue, ...]:
        """A loop over a dim, in segments: equal steps of the tile; what is less than a vector is masked."""
        w, n = self.w, self.size(d)
        unit, units = (self.lanes if d is self.vec else 1), self.tile.units(d)
        values = tuple(carried)

        def segment(first: Whole, last: Whole, units: int, left: int | None = None, cut: bool = False, rows: bool = False) -> None:
            nonlocal values

            def inside(i: IRValue, *carried: IRValue) -> Sequence[IRValue]:
                base, offset = (i, 0) if i.name[0] == "%" else (None, int(i.name))
                rest = apply(w, "min", meet(w, "sub", n, i), units) if rows else meet(w, "sub", last, i) if cut else left
                with self.scope(
                    {d: Open(base, offset, units, rest)}, {a: times(w, i, self.coef(a, d)) for a in self.hoisted if base and d in a.coef}
                ):
                    return body(*carried)

            values = w.loop(first, last, unit * units, values, inside)

        if self.ragged(d):
            total = self.total(d)
            whole, rest = apply(w, "//", total, d.unit), apply(w, "%", total, d.unit)
            segment(0, whole, 1)
            before, self.cold = self.cold, self.cold or (isinstance(whole, int) and whole > 1)
            with self.covering(d.lower, rest):
                segment(whole, n, 1)
            self.cold = before
        elif not isinstance(n, int):
            first: Whole = 0
            steps = whole_steps(d.extent, unit) if d not in self.covered else int(unit == 1)
            for size, least in remainders(units, self.scheduled.cuts_rows(d), steps or 1):
                rest = plus(w, meet(w, "sub", n, first), (size - least) * unit)
                last = plus(w, first, times(w, apply(w, "//", rest, unit * size), unit * size))
                segment(first, last, size, rows=least < size)
                first = last if least == size else apply(w, "min", last, n)
            if not steps:
                segment(first, n, 1, cut=True)
        else:
            before, ahead = self.cold, any(a.prefetch is not None and a.prefetch.kind == "panel" for a in self.hoisted)
            for first, last, size, left in segments(n, unit, units):
                self.cold = before or (not ahead and (last - first) * SELDOM_SHARE <= n)  # all tiles share a panel's prefetches
                segment(first, last, size, left)
            self.cold = before
        return values

    def _hoist(self, roots: Iterable[int], inside: Sequence[Loop]) -> None:
        """Computes what the loops inside need and do not change."""
        if not inside:
            return
        inner, todo, seen = frozenset(inside), list(roots), set[int]()
        while todo:
            n = todo.pop()
            if n in seen:
                continue
            seen.add(n)
            if not self.deps[n].isdisjoint(inner):
                todo += self.uses[n]
            elif n in self.lines and self.lines[n].op != "number":  # a sum is known already
                for i, j in self.places(self.deps[n]):
                    self.value(n, i, j)

    # ---- products of matrices

    def _matrix_rows(self, d: Loop) -> None:
        """The loop over rows of sums in registers of matrices: whole tiles, then what is left."""
        w, n, rows = self.w, self.size(d), self.tile.rows
        m = instruction(self.stage, self.kernel.target)[0].m

        def tile(i: IRValue, size: Whole) -> Sequence[IRValue]:
            base, start = (i, 0) if i.name[0] == "%" else (None, int(i.name))
            moved = {a: times(w, i, self.coef(a, d)) for a in self.hoisted if base and d in a.coef}
            with self.scope({d: Open(base, start)}, moved):
                sums = MatrixSums(self, size)
                sums.write()
                self._matrix_ends(d, sums, size)
            return []

        if isinstance(n, int):
            for s in matrix_rows(n, rows, m, True):
                w.loop(s.first, s.last, s.units, [], partial(_sized, tile, s.units))
            return
        first: Whole = 0
        for size in dict.fromkeys((rows, m)) if rows > m else (rows,):
            last = plus(w, first, times(w, apply(w, "//", meet(w, "sub", n, first), size), size))
            w.loop(first, last, size, [], partial(_sized, tile, size))
            first = last
        start, left = register(first), meet(w, "sub", n, first)
        w.when(w.op("icmp sgt", left, constant(0, dtypes.int64), dtype=dtypes.bool_), [], lambda: tile(start, left), rare=False)

    def _matrix_ends(self, d: Loop, sums: MatrixSums, rows: Whole) -> None:
        """Stores what the epilogue makes of the sums of a tile, some rows at a time."""
        w, o = self.w, self.opened[d]
        which = [k for k, s in enumerate(self.stage.to) if s.line >= self.border]
        self._hoist([self.stage.to[k].line for k in which], (d,))
        apart = any(a.mode == "transposed" for a in self.scheduled.accesses if a.epilogue)
        each = MATRIX_ROWS_TRANSPOSED if apart else MATRIX_ROWS_AT_ONCE

        def some(units: int, i: IRValue) -> Sequence[IRValue]:
            first = as_whole(i)
            with self.scope({d: self._rows_from(o, first, units)}):
                for k, j in product(range(units), range(sums.columns)):
                    self.known[self.border, k, j] = sums.value(plus(w, first, k), j)
                self._put(which)
            return []

        if isinstance(rows, int):
            for s in segments(rows, 1, each):
                w.loop(s.first, s.last, s.units, [], partial(some, s.units))
            return
        first: Whole = 0
        for units in (each, 1):
            last = plus(w, first, times(w, apply(w, "//", meet(w, "sub", rows, first), units), units))
            w.loop(first, last, units, [], partial(some, units))
            first = last

    def each(self, d: Loop, body: Callable[[], None]) -> None:
        """A reduced loop around what code keeps in registers of matrices."""

        def inside(*_: IRValue) -> list[IRValue]:
            body()
            return []

        self._each(d, (), inside)

    # ---- sums

    def _leaf(self) -> None:
        if not self.scheduled.reducing:
            self._put(list(range(len(self.stage.to))))
            return
        self._reduce()
        which = [k for k, s in enumerate(self.stage.to) if s.line >= self.border]
        if self._looped(which):
            self._put_rows(which)
        else:
            self._put(which)

    def _looped(self, which: Sequence[int]) -> bool:
        """Whether what follows the sums of a tile is written once for some of its rows, in a loop over them.

        It is where it is long, and depends on rows by the sums and by what is read then alone.
        """
        d = self.row
        if d is None or self.units(d) < 2 * self._rows_together():
            return False
        if prod([r.likely for r in self.reduced]) < (MIN_LOOPED_STEPS if isinstance(d.extent, int) else MIN_LOOPED_STEPS_OF_OPEN):
            return False
        if any(a.epilogue and a.mode == "transposed" for a in self.scheduled.accesses) or any(d not in self.stores[k].deps for k in which):
            return False
        needed, todo = set[int](), [self.stage.to[k].line for k in which]
        while todo:
            n = todo.pop()
            if n not in needed and d in self.deps[n]:
                needed.add(n)
                todo += self.uses[n]
        after = [n for n in needed if n in self.lines]
        return min(after, default=0) >= self.border and sum([max(COST[self.lines[n].op], 1) for n in after]) >= MIN_LOOPED_COST

    def _rows_together(self) -> int:
        """Returns the rows of a tile whose values are written beside each other after its sums."""
        return max(INTERLEAVED_PLACES // self.units(self.across), 1)

    def _put_rows(self, which: list[int]) -> None:
        """Stores what is made of the sums of a tile, some rows at a time: the sums wait in memory."""
        w, d, columns = self.w, self.row, self.units(self.across)
        assert d is not None
        o = self.opened[d]
        waiting: list[tuple[int, DType, str, int, list[int]]] = []  # a sum, its dtype and memory, elements of a row, lanes by column
        for n, c in enumerate(self.stage.combine, self.border):
            if d in self.deps[n]:
                wide = columns if self.across in self.deps[n] else 1
                lanes = [self.known[n, 0, j].lanes for j in range(wide)]
                step = wide * max(lanes)
                room = self.kernel.room(f"sums {n} {c.dtype.name} {step * o.units}", c.dtype, step * o.units)
                for i, j in product(range(o.units), range(wide)):
                    w.store(self.known[n, i, j], w.at(room, i * step + j * max(lanes), c.dtype))
                waiting.append((n, c.dtype, room, step, lanes))
        self._hoist([self.stage.to[k].line for k in which], (d,))

        def some(units: int, i: IRValue) -> Sequence[IRValue]:
            first = as_whole(i)
            with self.scope({d: self._rows_from(o, first, units)}):
                for n, dtype, room, step, lanes in waiting:
                    for k, (j, count) in product(range(units), enumerate(lanes)):
                        place = plus(w, times(w, plus(w, first, k), step), j * max(lanes))
                        self.known[n, k, j] = w.load(w.at(room, place, dtype), dtype, count)
                self._put(which)
            return []

        if o.left is not None:
            w.loop(0, o.left, 1, [], partial(some, 1))
            return
        for s in segments(o.units, 1, self._rows_together()):
            w.loop(s.first, s.last, s.units, [], partial(some, s.units))

    def _rows_from(self, o: Open, first: Whole, units: int) -> Open:
        """Some rows of an open tile, from the one numbered `first` in it."""
        at = plus(self.w, o.offset, first)
        at = at if o.base is None else plus(self.w, o.base, at)
        return Open(None, at, units) if isinstance(at, int) else Open(at, 0, units)

    def _reduce(self) -> None:
        """The reduced loops with their accumulators, then one value of each where vectors lie along a reduced loop."""
        w, flat = self.w, self.vec in self.reduced
        tracks: list[tuple[int, int, int]] = []  # accumulator, place in the tile
        first: list[IRValue] = []
        for k, c in enumerate(self.stage.combine):
            deps = self.deps[c.line]
            columns = self.tile.columns if self.across in self.reduced else self.units(self.across) if self.across in deps else 1
            for i in range(self.units(self.row) if self.row in deps else 1):
                tracks += [(k, i, j) for j in range(columns)]
            wide = self.vec in deps or flat
            first += [identity(c.kind, c.dtype, self.width(j) if wide else 1) for _, _, j in tracks[len(first) :]]
        early = [k for k, s in enumerate(self.stage.to) if s.line < self.border]
        roots = [self.stage.to[k].line for k in early] + [c.line for c in self.stage.combine]
        products = [c.line for c in self.stage.combine if self.lines[c.line].op in PRODUCTS]
        summed = [n for n in roots if n not in products] + [n for p in products for n in self.lines[p].args]
        kept = len(self.reduced) - self.scheduled.flattened
        order, inner = self.scheduled.sums[:kept], self.scheduled.sums[kept:]
        if inner:
            self._find_panels(inner[-1])
        self.prefetched = self._rows_ahead() if inner and not order else []

        def leaf(*carried: IRValue) -> Sequence[IRValue]:
            made = []
            for t, ((k, i, j), v) in enumerate(zip(tracks, carried, strict=True)):
                if t % INTERLEAVED_PLACES == 0:
                    self._interleaved_rows(summed, [place for _, *place in tracks[t : t + INTERLEAVED_PLACES]])
                made.append(self._fold(k, i, j, v))
            self._put(early)
            return made

        def steps(count: int, *carried: IRValue) -> Sequence[IRValue]:
            """Some steps of the innermost loop. Where a window slides along the rows, they run in the order of what it reads."""
            d, made = inner[-1], list(carried)
            window = sliding(self.hoisted, self.tile, d) if count > 1 else None
            if window is None:
                for u in range(count):
                    with self.scope({d: Open(None, u)}):
                        made = list(leaf(*made))
                return made
            row, step = (certain(self.coef(window, loop)) for loop in (self.row, d) if loop is not None)
            forward = 1 if step > 0 else -1  # each sum takes its terms in the order of the loop
            places = [((tracks[t][1] * row + u * step) * forward, u, t) for u, t in product(range(count), range(len(tracks)))]
            for _, u, t in sorted(places):
                with self.scope({d: Open(None, u)}):
                    made[t] = self._fold(*tracks[t], made[t])
            return made

        def last(*carried: IRValue) -> Sequence[IRValue]:
            return self._together(inner, carried, steps) if inner else leaf(*carried)

        of: dict[tuple[int, int, int], list[IRValue]] = {}
        for (k, i, j), v in zip(tracks, self._ordered(order, inner, roots, first, last), strict=True):
            of.setdefault((k, i, 0 if self.across in self.reduced else j), []).append(v)
        for (k, i, j), values in of.items():
            kind = self.stage.combine[k].kind
            while len(values) > 1:
                values = [fold(w, kind, a, b) for a, b in zip(values[::2], values[1::2], strict=False)] + values[len(values) // 2 * 2 :]
            self.known[self.border + k, i, j] = as_one(w, kind, values[0]) if flat else values[0]

    def _ordered(
        self, order: Sequence[Loop], inner: Sequence[Loop], roots: Sequence[int], carried: Sequence[IRValue], last: Body
    ) -> Sequence[IRValue]:
        """Reduced loops one inside the other, with what the innermost one of `order` does. inner: those that are written as one there."""
        if not order:
            return last(*carried)

        def body(*values: IRValue) -> Sequence[IRValue]:
            self._hoist(roots, (*order[1:], *inner))
            return self._ordered(order[1:], inner, roots, values, last)

        return self._each(order[0], carried, body)

    def _rows_ahead(self) -> list[tuple[Access, int, list[str]]]:
        """Operands of the epilogue that are prefetched: elements from row to row, and the addresses of the first row's lines."""
        rows, columns, found = self.units(self.row), self.units(self.across), []
        for a in self.scheduled.accesses if rows > 1 else ():
            if a.prefetch is not None and a.prefetch.kind == "rows":
                line = self.kernel.target.line * 8 // (self.lanes * a.dtype.bits) if self.across is self.vec else 1
                with self.scope({}):
                    found.append((a, a.prefetch.distance, [address(self, a, 0, j)[0] for j in range(0, columns, max(line, 1))]))
        return found

    def _prefetch_rows(self, i: IRValue, iterations: int) -> None:
        """Prefetches operands of the epilogue, a share of the rows in each of the last iterations of the loop that makes the sums."""
        if not self.prefetched:
            return
        w, rows = self.w, self.units(self.row)
        each = -(-rows // max(iterations, 1))
        span = -(-rows // each)
        first = max(0, iterations - PREFETCH_ROUNDS * span)  # earlier, it would be evicted before it is read

        def rows_of(iteration: Whole) -> list[IRValue]:
            for k in range(each):
                row = apply(w, "min", plus(w, times(w, iteration, each), k), rows - 1)
                for a, step, lines in self.prefetched:
                    for line in lines:
                        w.prefetch(w.at(line, times(w, row, step), a.dtype))
            return []

        if i.name[0] != "%":
            if first <= int(i.name) < first + span:
                rows_of(int(i.name) - first)
            return
        iteration = register(plus(w, i, -first))
        inside = w.op("icmp ult", iteration, constant(span, dtypes.int64), dtype=dtypes.bool_)
        w.when(inside, [], lambda: rows_of(iteration))

    def _find_panels(self, d: Loop) -> None:
        """Finds which lines of an operand's next panel each row of tiles prefetches: all that use a panel share those of the next one."""
        unroll, t = self._unroll(), self.row
        panels = [a for a in self.hoisted if a.prefetch is not None and a.prefetch.kind == "panel"]
        if t is None or not panels:
            return
        w, o, n = self.w, self.opened[t], self.size(t)
        if unroll == 1 and isinstance(n, int):
            return
        rows = -(-(n if isinstance(n, int) else -(-t.likely // ASSUMED_SPREAD)) // self.tile.rows)
        share = -(-unroll // rows)
        row = apply(w, "//", plus(w, o.offset if o.base is None else o.base, self.tile.rows - 1), self.tile.rows)
        first = apply(w, "%", times(w, row, share), unroll)
        for a in panels:
            assert a.prefetch is not None
            self.known["panel", a] = plus(w, times(w, first, self.coef(a, d)), a.prefetch.distance), d, share

    def _together(self, order: Sequence[Loop], carried: Sequence[IRValue], some: Callable[..., Sequence[IRValue]]) -> tuple[IRValue, ...]:
        """Loops as one: each iteration does `some` steps of the innermost one; offsets that do not step evenly come from a table."""
        w, sizes = self.w, [certain(self.size(d)) for d in order]
        n, unroll = sizes[-1], self._unroll()
        moving = [a for a in self.hoisted if any(d in a.coef for d in order)]
        iterations = list(product(*[range(k) for k in sizes[:-1]], range(0, n - n % unroll, unroll))) if len(order) > 1 else []
        steps = {a: [certain(self.coef(a, d)) for d in order] for a in moving}
        offsets = {a: [sum([c * t for c, t in zip(steps[a], at, strict=True)]) for at in iterations] for a in moving}

        def moves(i: IRValue) -> dict[Access, Whole]:
            found: dict[Access, Whole] = {}
            for a in moving:
                step, far = steps[a][-1] * unroll, offsets[a]
                if len(order) > 1:
                    step = far[1] if len(far) > 1 else 0
                if any(x != k * step for k, x in enumerate(far)):
                    kind = dtypes.int32 if max(map(abs, far)) < INT32_END else dtypes.int64
                    entry = w.load(w.at(w.table(far, kind), i, kind), kind) if i.name[0] == "%" else None
                    found[a] = far[int(i.name)] if entry is None else w.convert("sext", entry, dtypes.int64)
                else:
                    found[a] = times(w, as_whole(i), step)
            return found

        def iteration(i: IRValue, values: Sequence[IRValue], steps: int) -> Sequence[IRValue]:
            self._prefetch_rows(i, count)
            with self.scope({d: Open(None, 0) for d in order}, moves(i)):
                return some(steps, *values)

        count = len(iterations) if len(order) > 1 else n // unroll
        values = w.loop(0, count, 1, carried, lambda i, *v: iteration(i, v, unroll))
        if n % unroll:  # one loop alone
            values = tuple(iteration(constant(n // unroll, dtypes.int64), values, n % unroll))
        return values

    def _unroll(self) -> int:
        """Steps of the innermost reduced loop that are written out here.

        One in the cut end of a tile, but where a window slides along its rows, and in code that runs seldom.
        """
        slides = bool(self.scheduled.flattened) and sliding(self.hoisted, self.tile, self.scheduled.sums[-1]) is not None
        tail = not slides and any(
            d is self.vec and o.left is not None and (d.most is None or d.most > self.lanes) for d, o in self.opened.items()
        )
        short = any(o.units < self.tile.units(d) and not isinstance(d.extent, int) for d, o in self.opened.items())
        return 1 if tail or short or self.cold else self.scheduled.unroll

    def _fold(self, k: int, i: int, j: int, old: IRValue) -> IRValue:
        """An accumulator with one more value."""
        c, w = self.stage.combine[k], self.w
        if self.across in self.reduced and j >= self.units(self.across):
            return old
        line, mask = self.lines[c.line], self.mask(j) if self.vec in self.reduced else None
        fused = self._fused(c) if mask is None else None
        if fused is not None:
            x, y = (w.splat(self.value(a, i, j), old.lanes) for a in line.args)
            return fused(x, y, old)
        x = w.splat(self.value(c.line, i, j), old.lanes)
        if mask is not None:
            x = w.select(mask, x, identity(c.kind, c.dtype, old.lanes))
        return fold(w, c.kind, old, x)

    def _fused(self, c: Combine) -> Callable[[IRValue, IRValue, IRValue], IRValue] | None:
        """The function that adds a product to a sum by one instruction; None where the product is computed by itself."""
        op, w = self.lines[c.line].op, self.w
        if c.kind != "add":
            return None
        if op == "multiply":
            return w.fma if c.dtype.is_float and c.dtype.bits > 16 else None
        return partial(w.dot, op) if op in DOTS else None

    # ---- values

    def value(self, n: int, i: int, j: int) -> IRValue:
        """A line at a place of the tile: a vector if it moves along the vector axis, else a scalar."""
        found = self.known.get(self._key(n, i, j))
        if found is not None:
            return found
        todo = [n]
        while todo:
            n = todo[-1]
            key = self._key(n, i, j)
            if key in self.known:
                todo.pop()
                continue
            whole = self._together_there(n, i, j) if self.lines[n].op in PACKS else None
            missing = [] if whole is not None else [u for u in self.uses[n] if self._key(u, i, j) not in self.known]
            if missing:
                todo += missing[::-1]
                continue
            todo.pop()
            self.known[key] = found = whole or self._compute(n, i, j)
        return found  # type: ignore[return-value]  # the loop ends at the key asked for

    def _interleaved_rows(self, roots: Iterable[int], places: Sequence[Sequence[int]]) -> None:
        """Computes what several places of the tile need line by line, where a line takes long: their chains then run beside each other."""
        roots = list(roots)
        if len(places) < 2 or self._costly.isdisjoint(roots):
            return
        needed, todo = set[int](), roots
        while todo:
            n = todo.pop()
            if n not in needed and any(self._key(n, i, j) not in self.known for i, j in places):
                needed.add(n)
                todo += self.uses[n]
        if any(COST[self.lines[n].op] >= MIN_INTERLEAVED_COST for n in needed):
            for n in sorted(needed):
                for i, j in places:
                    self.value(n, i, j)

    @cached_property
    def _costly(self) -> frozenset[int]:
        """The lines that take long, and those that use them, directly or not."""
        found = set[int]()
        for n, line in self.lines.items():
            if COST[line.op] >= MIN_INTERLEAVED_COST or not found.isdisjoint(self.uses[n]):
                found.add(n)
        return frozenset(found)

    def _key(self, n: int, i: int, j: int) -> tuple[int, int, int]:
        deps = self.deps[n]
        return n, i if self.row in deps else 0, j if self.across in deps else 0

    def _compute(self, n: int, i: int, j: int) -> IRValue:
        line, w = self.lines[n], self.w
        if line.op == "read":
            return read(self, self.reads[n], i, j)
        if line.op == "number":
            return number(line.attrs["value"], line.dtype)
        if line.op == "index":
            at = register(self.index(line.attrs["value"], i, j))
            return scalar.emit(w, "cast", (at,), {"dtype": line.dtype})
        if line.op == "predicate":
            return meet_all(w, *self.holds(line.attrs["predicate"], i, j)) or constant(True, dtypes.bool_)
        args = [self.known[self._key(a, i, j)] for a in self.uses[n]]
        if line.op == "copy":
            return args[0]
        if line.op == "random_bits":
            return self._random(n, args[:-1], i, j) or random_bits(w, args, line.attrs["stream"])
        attrs = {**line.attrs, "dtype": line.dtype} if line.op in ("cast", "bitcast") else line.attrs
        return scalar.emit(w, line.op, args, attrs)

    def _random(self, n: int, same: Sequence[IRValue], i: int, j: int) -> IRValue | None:
        """Random words of whole vectors side by side, that begin where a block of words does; None where that is not so."""
        flat = self.lines[n].args[-1]
        form, v = self.scheduled.forms.of(self.lines[flat].attrs["value"]), self.vec
        beside = range(self.units(v)) if self.across is v else range(j, j + 1)
        if j not in beside or form is None or v is None or form.coef.get(v) != 1 or len(beside) * self.lanes < 2 * WORDS:
            return None
        apart = [form.const, *[c for d, c in form.coef.items() if d is not v]]
        if self.opened[v].left is not None or self.lanes % WORDS or not all(isinstance(c, int) and c % WORDS == 0 for c in apart):
            return None
        first = self.w.lane(self.value(flat, i, beside[0]), 0)
        found = side_by_side(self.w, same, self.lines[n].attrs["stream"], first, len(beside), self.lanes)
        for k, x in zip(beside, found, strict=True):
            self.known[self._key(n, i, k)] = x
        return found[beside.index(j)]

    def _together_there(self, n: int, i: int, j: int) -> IRValue | None:
        """Parts of 32 bits that lie side by side in memory as one element each; None where they do not."""
        line, w = self.lines[n], self.w
        parts = [self.reads[k] for k in line.args if self.lines[k].op == "read"]
        first = parts[0] if len(parts) == len(line.args) else None
        if first is None or any(a.predicate or a.rest or a.coef != first.coef for a in parts):
            return None
        if self.vec in first.deps and lane_step(self, first) != len(parts):
            return None
        at = [(self.pointer(a), a.const) for a in parts]
        if any(p != at[0][0] or not isinstance(c, int) or c != first.const + k for k, (p, c) in enumerate(at)):
            return None
        place = w.at(self.pointer(first), offset(self, first, i, j), first.dtype)
        lanes, mask = (self.width(j), self.mask(j)) if self.vec in first.deps else (1, None)
        return w.load(place, line.dtype, lanes, align=first.dtype.bits // 8, mask=mask)

    # ---- stores

    def _put(self, which: list[int]) -> None:
        """Stores at every place of the tile; the values of a place come before its first store, for buffers may share memory."""
        if not which:
            return
        moves = [self.stores[k].deps | self.deps[self.stage.to[k].line] for k in which]
        places = list(self.places(frozenset().union(*moves)))
        for k, (i, j) in enumerate(places):
            if k % INTERLEAVED_PLACES == 0:
                self._interleaved_rows([self.stage.to[t].line for t in which], places[k : k + INTERLEAVED_PLACES])
            here = [k for k, m in zip(which, moves, strict=True) if (not i or self.row in m) and (not j or self.across in m)]
            values = {k: self.value(self.stage.to[k].line, i, j) for k in here}
            while values:
                k = next(iter(values))
                run = self.scheduled.interleaved[k]
                if 1 < len(run) == lane_step(self, self.stores[k]) and values.keys() >= set(run):
                    store_interleaved(self, [self.stores[n] for n in run], [values.pop(n) for n in run], i, j)
                else:
                    store(self, self.stage.to[k].combine, self.stores[k], values.pop(k), i, j)


def _sized(tile: Callable[[IRValue, Whole], Sequence[IRValue]], size: int, i: IRValue) -> Sequence[IRValue]:
    """The body of a loop over tiles of one size."""
    return tile(i, size)

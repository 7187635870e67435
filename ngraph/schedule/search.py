"""Schedules of a stage's loops: the vector axis, the axes of the register tile, and the order. A value beside the stage.

Chosen by counting what one element costs; it knows of a stage only how its reads and stores move, and of a machine its vectors
and caches. A tile has rows along one axis and columns along the vector axis, or along a second one where one vector is all there is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ngraph.targets.machine import Cpu
from ngraph.targets.products import PRODUCTS
from ngraph.targets.tuning import (
    ASSUMED_LENGTH,
    BROADCAST_RELATIVE_COST,
    LOAD_COST,
    MATRIX_COST,
    MATRIX_LOAD_COST,
    MATRIX_PRODUCT_COST,
    MAX_COLUMNS,
    MAX_CUT_ROWS,
    MAX_MEAN_LENGTHS,
    MAX_READ_STREAMS,
    MAX_SHUFFLED_STEP,
    MIN_LOOP_BODY,
    MIN_MATRIX_ROWS,
    SCATTERED_LANE_COST,
    SCATTERED_STORE_COST,
    SPARE_REGISTERS,
    SUMS_IN_FLIGHT,
    WRITTEN_COST,
)
from ngraph.tensors.contraction import vectors_of

D = int  # a loop of a stage, by number


class AccessDescriptor(NamedTuple):
    """A read or store: elements per step of each loop (None: not known yet; 0: stays), and what else it depends on."""

    steps: tuple[int | None, ...]
    deps: frozenset[D]  # all loops that it depends on
    non_affine: frozenset[D]  # those through an index that is not a sum of steps
    bytes: int  # of one element
    store: bool = False
    epilogue: bool = False  # after the reduction
    combines: bool = False  # folds into what is there, so no two lanes may meet
    run: int = 1  # stores that go to places next to each other


class MatrixLoops(NamedTuple):
    """Loops along which an instruction may multiply matrices: lanes of the sums, their rows, and the terms that each one adds."""

    vector: D
    tile: D
    deep: D


class View(NamedTuple):
    """A stage as the search sees it, and the lanes of a vector of its elements.

    sizes  the most places of each loop; None where a call brings them
    work   (instructions, loops) of what each step computes
    sums   the loops of each accumulator
    bound  loops that neither vectors nor tiles may take: the ends of others depend on them
    open   loops that may end before their size
    likely the places that prices take: of each loop that a call brings, of the axis of one that ends before its size; by default
           ASSUMED_LENGTH
    matrices   the loops that an instruction for matrices may take, and the product that it adds up, "" for none
    """

    free: tuple[D, ...]
    reduced: tuple[D, ...]
    sizes: tuple[int | None, ...]
    walks: tuple[AccessDescriptor, ...]
    work: tuple[tuple[float, frozenset[D]], ...]
    sums: tuple[frozenset[D], ...]
    lanes: int
    bound: frozenset[D] = frozenset()
    open: frozenset[D] = frozenset()
    likely: tuple[int, ...] = ()
    matrices: tuple[MatrixLoops, ...] = ()
    product: str = ""


class LoopSchedule(NamedTuple):
    """`order` of the free loops; `rows` steps of `tile` and `columns` of `second`, else of `lanes` along `vector`, are done together.

    deep: the reduced loop some steps of which an instruction for matrices takes, for all rows and lanes of a tile.
    """

    lanes: int
    vector: D | None
    tile: D | None = None
    second: D | None = None
    rows: int = 1
    columns: int = 1
    order: tuple[D, ...] = ()
    deep: D | None = None

    @property
    def across(self) -> D | None:
        """The loop of the columns."""
        return self.vector if self.second is None else self.second

    def units(self, d: D) -> int:
        """Returns the number of steps of a loop that are computed together."""
        return self.rows if d is self.tile else self.columns if d is self.across else 1


@lru_cache(4096)
def schedule(view: View, m: Cpu, written: float = WRITTEN_COST) -> LoopSchedule:
    """The cheapest schedule; the first of equal ones.

    written: the price of each value that a tile's code has, as a part of the tile's time. A higher one leads to shorter code, which adds up
    in the same order.
    """
    some, prices = [*_candidates(view, m)], _Prices(view, m)
    best = prices.cheapest(some)
    if written > WRITTEN_COST:
        best = prices.cheapest([s for s in some if _sums(view, s) == _sums(view, best)], written)
    return best._replace(order=_order(view, m, best))


def cost(view: View, m: Cpu, s: LoopSchedule) -> float:
    """The cost of all elements by a schedule, in vector instructions."""
    return _Prices(view, m).of(s) * math.prod([size(view, d) for d in (*view.free, *view.reduced)])


def summing_alike(view: View, m: Cpu, like: LoopSchedule) -> LoopSchedule:
    """The cheapest schedule of those with the same vectors that add up in the same order as another one."""
    alike = [s for s in _candidates(view, m, (like.vector,)) if s.vector == like.vector and _sums(view, s) == _sums(view, like)]
    best = min([like, *alike], key=_Prices(view, m).of)
    return best._replace(order=_order(view, m, best))


def scalar(view: View, m: Cpu) -> LoopSchedule:
    """The schedule without vectors and tiles, which has the shortest code."""
    bare = LoopSchedule(1, None)
    return bare._replace(order=_order(view, m, bare))


def alternatives(view: View, m: Cpu, count: int) -> list[LoopSchedule]:
    """The schedule, then those that come next and add up in the same order, so that they give the same bits."""
    first = schedule(view, m)
    ranked = sorted([s for s in _candidates(view, m) if _sums(view, s) == _sums(view, first)], key=_Prices(view, m).of)
    others = [s._replace(order=_order(view, m, s)) for s in ranked]
    return [first, *[s for s in dict.fromkeys(others) if s != first][:count]]


def _sums(view: View, s: LoopSchedule) -> tuple[int, ...]:
    """Returns what determines the order of sums: nothing where each lane has its own, else how many accumulators are interleaved."""
    if s.deep is not None:
        return (s.deep,)
    if s.vector is not None and s.vector in view.reduced:
        return s.vector, s.lanes, s.columns if s.second is None else 1
    return (s.second, 1, s.columns) if s.second is not None and s.second in view.reduced else ()


def terms_together(n: int | None, most: int) -> int:
    """Returns how many terms of a sum of n an instruction that takes `most` adds: all instructions alike, if that is most of them."""
    if n is None or n % most == 0:
        return most
    return next((k for k in range(min(n, most), max(most // 2, 1), -1) if n % k == 0), min(n, most))


def matrix_rows(n: int, rows: int, m: int, known: bool) -> list[Segment]:
    """A loop over n rows of sums in registers of m rows each: as `segments`, or whole tiles, then one register, then what is left."""
    if known:
        return segments(n, 1, rows)
    found, first = [], 0
    for size in dict.fromkeys((rows, m)) if rows > m else (rows,):
        last = first + (n - first) // size * size
        if last > first:
            found.append(Segment(first, last, size))
        first = last
    return [*found, *([Segment(first, n, n - first)] if first < n else [])]


def split(n: int, most: int) -> list[tuple[int, int]]:
    """n in as few equal pieces of at most `most` as there can be: (how many, how long), the longer ones first."""
    pieces = -(-n // most)
    length, longer = divmod(n, pieces) if pieces else (0, 0)
    return [(k, size) for k, size in ((longer, length + 1), (pieces - longer, length)) if k]


class Segment(NamedTuple):
    """Equal iterations of a loop, from `first` to before `last`: `units` steps each, and `left` lanes in the last step if it is cut."""

    first: int
    last: int
    units: int
    left: int | None = None


def segments(n: int, unit: int, units: int) -> list[Segment]:
    """A loop over n places in iterations of at most `units` steps of `unit` lanes: as few as there can be, and as equal."""
    pieces = split(-(-n // unit), units)
    found, first = [], 0
    for number, (count, size) in enumerate(pieces):
        cut = n % unit if number == len(pieces) - 1 else 0  # the last vector of the last iteration
        for some, left in ((count - 1, None), (1, cut)) if cut else ((count, None),):
            if some:
                last = min(first + some * size * unit, n)
                found.append(Segment(first, last, size, left))
                first = last
    return found


class OpenStep(NamedTuple):
    """Iterations of a loop whose length is open, of `units` steps each; one runs where at least `least` are left."""

    units: int
    least: int


def remainders(units: int, rows: bool = False, multiple: int = 1) -> list[OpenStep]:
    """The iterations of a loop whose length is open: whole ones, then what is left by shorter ones.

    Those take a power of two of steps: up to half of a whole iteration, then a quarter of that and so on, and 1. More of them, such as 8
    and 2 beside 12, 4 and 1, are a third more code, and made no model faster.

    rows: the loop is one of a tile's rows, each with sums of its own. There an iteration of four or more takes up to `MAX_CUT_ROWS` less,
    too: rows that are not there are then the last one that is, and are not stored. Two rows are one pass over what they share.
    multiple: of which the number of steps is one in every call; shorter iterations are left out where longer ones leave nothing.
    """
    powers = [1 << k for k in range((units // 2).bit_length())][::-1]
    shorter = powers[::2] + powers[-1:] * (len(powers) % 2 == 0)
    step = math.gcd(units, multiple)
    found = [OpenStep(units, units - MAX_CUT_ROWS * (rows and step == 1 and units == 2 * MAX_CUT_ROWS))]
    for k in shorter if step not in (units, *shorter) else [k for k in shorter if k >= step]:
        least = k - MAX_CUT_ROWS * (rows and step == 1 and k >= 2 * MAX_CUT_ROWS)
        if least < found[-1].least:  # else nothing is left for it
            found.append(OpenStep(k, least))
    return found


def open_segments(n: int, unit: int, units: int, rows: bool = False) -> list[Segment]:
    """A loop over n places whose length is open, as `remainders` cuts it; `left`: rows of an iteration that has fewer, or lanes."""
    found, first = [], 0
    for k, least in remainders(units, rows):
        count = max((n - first) // unit + k - least, 0) // k
        cut = first + count * k * unit > n  # the last iteration has fewer rows
        if count - cut:
            found.append(Segment(first, first + (count - cut) * k * unit, k))
        if cut:
            found.append(Segment(first + (count - 1) * k, n, k, n - first - (count - 1) * k))
        first = min(first + count * k * unit, n)
    return [*found, *([Segment(first, n, 1, n - first)] if first < n else [])]


def size(view: View, d: D) -> int:
    """The places along a loop that prices take, at least one."""
    n = view.sizes[d]
    return max(n, 1) if n is not None else view.likely[d] if view.likely else ASSUMED_LENGTH


def _candidates(view: View, m: Cpu, along: Sequence[D | None] = ()) -> Iterator[LoopSchedule]:
    """Yields what may be the cheapest schedule. along: the loops along which vectors may lie, by default all."""
    yield from _matrices(view, m)
    rows = [d for d in view.free if d not in view.bound and view.sizes[d] != 1 and view.sums]
    rows = [d for d in rows if any(d not in w.deps for w in view.walks if not w.epilogue and not w.store)]
    rows = [d for d in rows if not any(w.combines for w in view.walks)]
    rows.sort(key=lambda d: max([_apart(w, d) for w in view.walks if not w.epilogue and not w.store], default=0))  # near ones first
    for v in along or (None, *view.free, *view.reduced):
        if v is not None and (view.lanes == 1 or not _may_lie(view, v)):
            continue
        lanes = 1 if v is None else view.lanes
        vectors = 1 if v is None else -(-size(view, v) // lanes)
        seconds: list[D | None] = [None]
        if vectors == 1 or v in view.reduced:
            seconds += [d for d in rows if d != v]
        if vectors == 1 and v is not None and v in view.free and view.sums:  # several sums of the same
            seconds += [d for d in view.reduced if d not in view.bound]
        for s in seconds:
            most = vectors if s is None else size(view, s)
            wide = (
                MAX_COLUMNS
                if not view.sums or s is not None or v in view.reduced
                else m.vector_registers - SPARE_REGISTERS
                if m.vector_registers > MAX_COLUMNS * SPARE_REGISTERS
                else m.vector_registers // 2
            )
            turned = [t for t in view.free if any(_is_transposed(view, w, v, t) for w in view.walks)] if not view.sums else []
            tiles = [t for t in rows if t is not v and t is not s] if view.sums and s not in view.reduced else []
            most_rows = {t: _independent_rows(view, m, v, t, s) for t in tiles}
            for columns in [k for k in (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28) if k <= min(most, wide)]:
                if not view.sums and columns not in ((1, 2, 4) if len(view.work) <= MIN_LOOP_BODY else (1, 2)):
                    continue
                yield LoopSchedule(lanes, v, None, s, 1, columns)
                for t in turned if columns == 1 else ():
                    n = size(view, t)
                    yield LoopSchedule(lanes, v, t, None, -(-n // -(-n // lanes)), 1)
                for t in tiles:
                    spare = SPARE_REGISTERS // 2 + max(columns, SPARE_REGISTERS if m.vector_registers < 32 else 1)
                    room = min((m.vector_registers - spare) // (columns * len(view.sums)), most_rows[t])
                    if room > 1:
                        for k in _heights(size(view, t), room, t in view.open):
                            yield LoopSchedule(lanes, v, t, s, k, columns)


@lru_cache(4096)
def _heights(n: int, room: int, open_: bool) -> tuple[int, ...]:
    """The rows of tiles for n rows, at most `room`: as few tiles as there can be, and the highest of which all are equal.

    open_: the last tile may have fewer; those are done by shorter ones, whose rows are powers of two, and so may all be.
    """
    fewest = -(-n // -(-n // min(room, n)))
    other = 1 << (min(room, n).bit_length() - 1) if open_ else next(k for k in range(fewest, 0, -1) if n % k == 0)
    return (fewest, other) if (1 < other or open_) and other != fewest else (fewest,)


def _matrices(view: View, m: Cpu) -> Iterator[LoopSchedule]:
    """Yields the tiles of an instruction for matrices: registers hold the sums, one column of a factor's and one row of the other's."""
    row = m.matrix(view.product)
    for v, t, d in view.matrices if row is not None else ():
        assert row is not None
        n, vectors = size(view, t), -(-size(view, v) // row.n)
        if n < MIN_MATRIX_ROWS:
            continue
        for high, wide in ((2, 2), (2, 1), (1, 2), (1, 1)):
            if high * wide + high + wide <= row.registers and wide <= vectors and (high == 1 or n > row.m):
                most = high * row.m
                rows = most if view.sizes[t] is None or t in view.open else -(-n // -(-n // most))
                yield LoopSchedule(row.n, v, t, None, rows, wide, deep=d)


def _matrix_cost(view: View, m: Cpu, s: LoopSchedule) -> float:
    """Returns the instructions of one step of a sum that an instruction for matrices shares, for a whole tile."""
    row = m.matrix(view.product)
    assert row is not None and s.deep is not None
    n = size(view, s.deep)
    taken = terms_together(n, row.k // PRODUCTS[view.product].k)
    high = -(-s.rows // row.m)
    each = s.columns * s.rows / row.m * MATRIX_PRODUCT_COST + (high + s.columns) * MATRIX_LOAD_COST
    return each * -(-n // taken) / n


def _apart(w: AccessDescriptor, d: D) -> float:
    """Returns the elements from one place along a loop to the next; infinite where an open length separates them."""
    step = w.steps[d]
    return math.inf if step is None else abs(step)


def _is_transposed(view: View, w: AccessDescriptor, v: D | None, t: D | None) -> bool:
    """Whether a read has the elements of a vector apart, and those of the rows near each other: vectors of rows are then transposed."""
    if v is None or t is None or v is t or view.sums or w.store or w.non_affine or t in view.bound:
        return False
    return 1 <= (w.steps[t] or 0) <= MAX_SHUFFLED_STEP < abs(w.steps[v] or 0)


def _independent_rows(view: View, m: Cpu, v: D | None, t: D, s: D | None) -> int:
    """Returns the number of rows of a tile that may each read cache lines of their own; one where none of them is reused.

    Where vectors lie along a sum and no second loop shares them, only a few such streams arrive in time.
    """
    own = [w for w in view.walks if not w.epilogue and not w.store and v in w.deps and t in w.deps]
    if any(abs(w.steps[t] or 0) * w.bytes > m.l1 and footprint(view, w) > m.l2 for w in own):
        return 1
    apart = [w for w in own if abs(w.steps[t] or 0) > view.lanes]
    if v not in view.reduced or s in view.free or not apart:
        return m.vector_registers
    return MAX_READ_STREAMS // 2 if max([footprint(view, w) for w in apart]) >= m.l2 // 2 else MAX_READ_STREAMS


def _may_lie(view: View, d: D) -> bool:
    """Whether vectors may lie along a loop: lanes that fold into memory must not meet."""
    if view.sizes[d] == 1 or d in view.bound:
        return False
    return all(not w.combines or (w.steps[d] and d not in w.non_affine) for w in view.walks)


class _Tiled(NamedTuple):
    """Counts of what one step computes and moves: each the sums of what a tile has once, for each column, each row, and each of both."""

    work: list[float]
    sums: list[float]
    flat: list[float]  # sums that several lanes or columns of one element share
    early: list[float]  # accesses before the end of the sum
    late: list[float]  # accesses after it


ROUNDING = 1e-9  # more than the relative error of a price


class _Prices:
    """Prices of the schedules of a view: the cost of one element, in vector instructions."""

    def __init__(self, view: View, m: Cpu):
        self.view, self.m = view, m
        self.sizes = [size(view, d) for d in range(len(view.sizes))]
        self.open = [n is None or d in view.open for d, n in enumerate(view.sizes)]
        self.steps = math.prod([self.sizes[d] for d in view.reduced])
        self.tiled: dict[Any, _Tiled] = {}
        self.moved: dict[Any, tuple[list[Any], list[Any]]] = {}  # costs of accesses before the end of the sum, and after it
        self.values: dict[Any, int] = {}  # written out for so many steps of a loop

    def cheapest(self, some: Iterable[LoopSchedule], written: float = WRITTEN_COST) -> LoopSchedule:
        """Returns the first of the schedules with the least price."""
        least, best = math.inf, None
        for s in some:
            price = self.of(s, written, least)
            if price < least or best is None:
                least, best = price, s
        assert best is not None
        return best

    def of(self, s: LoopSchedule, written: float = WRITTEN_COST, least: float = math.inf) -> float:
        """Returns the price of a schedule; a lower bound of it, where that is above `least`."""
        view, (lanes, v, tile, second, rows, columns, _, deep) = self.view, s
        across = v if second is None else second
        key = lanes, v, tile, across
        found = self.tiled.get(key)
        if found is None:
            found = self.tiled[key] = self._tiled(*key)
        sums = _times(found.flat, rows, columns)
        total = _times(found.work, rows, columns) + sums * max(1.0, SUMS_IN_FLIGHT / max(sums, 1))
        total += (LOAD_COST if view.sums else 1.0) * _times(found.early, rows, columns) + 2.0
        steps, ends = self.steps, _times(found.late, rows, columns)
        if deep is not None:
            total = _matrix_cost(view, self.m, s)
            ends += MATRIX_COST + 2 * sums
        if v in view.reduced:
            steps = max(1, steps // lanes)
            ends += sums * 2 * math.log2(lanes)
        step = total + ends / steps
        if step > least * lanes * rows * columns * (1 + ROUNDING):
            return step / (lanes * rows * columns)
        values = self._values(s) if (view.sums and deep is None) or written > WRITTEN_COST else 0
        short = min(1.0, SUMS_IN_FLIGHT / max(_times(found.sums, rows, columns), 1)) if view.sums else 0.0
        return step * (1 + written * values) / self._together(s, short)

    def _tiled(self, lanes: int, v: D | None, tile: D | None, across: D | None) -> _Tiled:
        view = self.view

        def parts(of: Iterable[tuple[float, frozenset[D]]]) -> list[float]:
            found = [0.0] * 4
            for k, deps in of:
                found[(across in deps) + 2 * (tile in deps)] += k
            return found

        flat = view.reduced if v in view.reduced or across in view.reduced else ()
        key = lanes, v, None if view.sums else tile  # what is summed is not transposed
        if key not in self.moved:
            moved = [(w.epilogue, _access_cost(view, w, lanes, v, tile)) for w in view.walks]
            self.moved[key] = [found for late, found in moved if not late], [found for late, found in moved if late]
        early, late = self.moved[key]
        return _Tiled(
            parts(view.work),
            parts([(1, deps) for deps in view.sums]),
            parts([(1, deps.union(flat)) for deps in view.sums]),
            parts(early),
            parts(late),
        )

    def _together(self, s: LoopSchedule, short: float) -> float:
        """Returns the elements that a step of a tile computes, in the mean. short: the least part of its time that a shorter one takes."""
        view, v = self.view, s.vector
        n = 1 if v is None else self.sizes[v]
        together: float = n / vectors_of(n, s.lanes) if v is None or view.sizes[v] is not None else _lanes_used(s.lanes, n)
        for d, units in ((s.tile, s.rows), (s.across, s.columns)):
            if d is None:
                continue
            rows, lanes = d == s.tile, s.lanes if d == v else 1
            if rows and s.deep is not None:
                together *= min(units, self.sizes[d])
            elif self.open[d] and units > 1:
                likely = view.likely[d] if view.likely else self.sizes[d]
                together *= _units_used(units, lanes, short, likely, rows and bool(view.sums), view.sizes[d])
            else:
                steps = -(-self.sizes[d] // lanes)
                together *= steps / -(-steps // units)
        return together

    def _values(self, s: LoopSchedule) -> int:
        """Returns the values that a tile's code has: the steps of its loops that are written out, in tiles of all sizes."""
        found = 1
        for d, units, rows in ((s.tile, s.rows, True), (s.across, s.columns, False)):
            if d is not None:
                lanes = s.lanes if d == s.vector else 1
                key = d, units, lanes, rows
                if key not in self.values:
                    self.values[key] = _open_steps(units, rows) if self.open[d] else _steps(self.sizes[d], lanes, units)
                found *= self.values[key]
        return found


def _times(parts: list[float], rows: int, columns: int) -> float:
    """Returns the count of a tile: what it has once, for each column, each row, and each of both."""
    once, of_column, of_row, of_both = parts
    return once + of_column * columns + of_row * rows + of_both * rows * columns


@lru_cache(1024)
def _open_steps(units: int, rows: bool) -> int:
    """Returns the steps of all iterations of a loop whose length is open."""
    return sum([x.units for x in remainders(units, rows)])


@lru_cache(4096)
def _steps(n: int, unit: int, units: int) -> int:
    """Returns the steps of all different iterations of a loop over n places."""
    return sum({x.units for x in segments(n, unit, units)})


def _access_cost(view: View, w: AccessDescriptor, lanes: int, v: D | None, tile: D | None) -> tuple[float, frozenset[D]]:
    """Returns the cost of a read or store of one vector, in vector instructions, and the loops along which a tile has more of them."""
    step = w.steps[v] if v is not None else 1
    if v is None or (v not in w.non_affine and (step == 1 or v not in w.deps)):
        return 1.0 if v in w.deps else BROADCAST_RELATIVE_COST, w.deps
    if tile is not None and _is_transposed(view, w, v, tile):
        return lanes * (2.0 * (w.steps[tile] or 1) - 1 + math.log2(lanes)), frozenset()
    if step and (2 <= step <= MAX_SHUFFLED_STEP or step == -1) and v not in w.non_affine and not w.store:
        return 2.0 * step - 1 if step > 0 else 2.0, w.deps
    if step and w.store and 2 <= step == w.run <= MAX_SHUFFLED_STEP:
        return float(step), w.deps
    # a store that scatters its lanes is no faster than as many stores of single elements, with the loop around them
    if w.store:
        return SCATTERED_STORE_COST * lanes, w.deps
    return SCATTERED_LANE_COST * lanes * (1 if w.epilogue or not view.sums else 1 / LOAD_COST), w.deps


@lru_cache
def _lanes_used(lanes: int, likely: int) -> float:
    """Returns the lanes that a vector fills along a loop of open length: the mean over lengths up to twice the likely one."""
    every = range(1, 2 * likely + 1)
    return sum(every) / sum([vectors_of(n, lanes) for n in every])


@lru_cache(1024)
def _units_used(units: int, lanes: int, short: float, likely: int, rows: bool, most: int | None) -> float:
    """Returns the steps that a whole iteration along a loop of open length is worth: the mean over lengths up to twice the likely one.

    What is left is done by shorter iterations; each takes its part of the time of a whole one, and `short` of it at least.
    most: the places of a block of the loop, whose last one alone is shorter.
    """
    longest = min(max(2 * likely // lanes, 1), MAX_MEAN_LENGTHS)
    block = longest if most is None else min(max(most // lanes, 1), longest)
    left = []
    for n in range(min(units, block + 1)):
        left.append(sum([-(-(x.last - x.first) // x.units) * max(x.units / units, short) for x in open_segments(n, 1, units, rows)]))
    costs = [n // units + left[n % units] for n in range(block + 1)]
    steps, cost = 0, 0.0
    for n in range(1, longest + 1):
        steps += n
        cost += n // block * costs[block] + costs[n % block]
    return steps / cost


def _order(view: View, m: Cpu, s: LoopSchedule) -> tuple[D, ...]:
    """Outer loops, vectors, rows; what vectors read, if it is too large for the cache, is walked by the outermost loops."""
    inner = [d for d in (s.vector, s.second, s.tile) if d is not None and d in view.free]
    outer = [d for d in view.free if d not in inner]
    reads = [w for w in view.walks if not w.epilogue and not w.store and s.vector in w.deps]
    if view.sums and reads and not view.bound:
        heavy = max(reads, key=lambda w: footprint(view, w))
        if footprint(view, heavy) > m.l2 // 2:
            outer = [d for d in outer if d in heavy.deps] + [d for d in outer if d not in heavy.deps]
            if s.second is not None and s.second in inner and s.second in heavy.deps:
                inner.remove(s.second)
                inner.insert(0, s.second)
    if not view.sums and not view.bound:
        apart = [w for w in view.walks if not w.store and s.vector is not None and (w.steps[s.vector] or 0) > MAX_SHUFFLED_STEP]
        if apart:  # lanes in lines of their own: the next step uses the same lines
            outer.sort(key=lambda d: -abs(apart[0].steps[d] or 0))
        total = sum([k for k, _ in view.work])  # what of it does not change with a loop is done once for all its places, if that is inside
        again = [d for d in outer if 2 * sum([k for k, deps in view.work if d not in deps]) > total + MIN_LOOP_BODY]
        outer, inner = [d for d in outer if d not in again], [*inner, *again]
    return (*outer, *inner)


def footprint(view: View, w: AccessDescriptor) -> int:
    """The bytes that a read touches in all."""
    return math.prod([size(view, d) for d in w.deps]) * w.bytes

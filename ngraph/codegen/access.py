"""Reads and stores of a stage: vectors from and to memory, by the way in which their lanes lie there."""

from __future__ import annotations

from collections.abc import Sequence

from ngraph.codegen.forms import Whole, plus, register, times
from ngraph.codegen.lanes import each_kth, fold, interleaved, leading, load, meet_all, number, transposed
from ngraph.codegen.scope import Scope
from ngraph.codegen.text import IRValue, constant, counting
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType
from ngraph.schedule.form import Access
from ngraph.tensors.memo import memo


def lane_step(s: Scope, a: Access) -> Whole:
    """Elements from one lane to the next."""
    return 0 if s.vec is None else s.coef(a, s.vec)


def offset(s: Scope, a: Access, i: int, j: int) -> Whole:
    """The elements from where an access's pointer stands to a place of the tile, in the first lane."""
    total: Whole = a.const
    for d in a.coef:
        steps = plus(s.w, s.opened[d].offset, s.step(d, i, j))
        if steps != 0:
            total = plus(s.w, total, times(s.w, steps, s.coef(a, d)))
    return total


def address(s: Scope, a: Access, i: int, j: int) -> tuple[str, IRValue | None]:
    """A pointer, and what each lane adds to it in elements: None where lanes lie side by side, or there are none."""
    w = s.w
    at, elements, lanes = s.pointer(a), offset(s, a, i, j), lane_step(s, a)
    for stride, e in a.rest:
        elements = plus(w, elements, times(w, s.index(e, i, j), s.kernel.number(stride)))
    vector = isinstance(elements, IRValue) and elements.lanes > 1
    if not vector:
        at = w.at(at, elements, a.dtype)
    if s.vec is None or (not vector and lanes in (0, 1)):
        return at, None
    n = s.width(j)
    apart: Whole = times(w, counting(dtypes.int64, n), lanes)
    return at, w.splat(register(plus(w, elements, apart) if vector else apart), n)


def read(s: Scope, a: Access, i: int, j: int) -> IRValue:
    """The elements of a read: a vector if it moves along the vector loop, else a scalar."""
    w, vector = s.w, s.vec in a.deps
    whole = WHOLE_VECTORS[a.mode](s, a, i, j) if a.mode in WHOLE_VECTORS else None
    if whole is not None:
        return whole
    one, each = s.holds(a.predicate, i, j)
    at, apart = address(s, a, i, j)
    n = s.width(j) if vector else 1
    if apart is None:
        at = _or_zeros(s, one, at, a, n)
    holds = meet_all(w, one, each)
    if not vector:
        return _filled(s, a, holds, w.load(at, a.dtype))
    mask = meet_all(w, s.mask(j), each if apart is None else meet_all(w, one, each), n)
    if apart is None and s.vec not in a.coef:
        apart = constant(0, dtypes.int64, n)  # one element, for some lanes
    x = w.load(at, a.dtype, n, mask=mask) if apart is None else w.gather(at, apart, a.dtype, mask)
    if a.prefetch is not None:
        _prefetch(s, a, at, mask is None, apart is None)
    return _filled(s, a, holds, x)


def _prefetch(s: Scope, a: Access, at: str, unmasked: bool, adjacent: bool) -> None:
    """Asks for what the access will read later, from where it reads now."""
    w, (kind, distance) = s.w, a.prefetch or (None, 0)
    if kind == "page" and unmasked:
        w.prefetch(w.at(at, distance * 8 // a.dtype.bits, a.dtype))
    elif kind == "item" and adjacent:
        w.prefetch(w.at(at, distance, a.dtype))
    elif kind == "panel" and ("panel", a) in s.known:
        far, d, share = s.known["panel", a]
        if s.opened[d].offset < share:
            w.prefetch(w.at(at, far, a.dtype), locality=2)


def _strided(s: Scope, a: Access, i: int, j: int) -> IRValue | None:
    """Each k-th element, k from 2 to 4, by loads of whole vectors and shuffles; None where the place or the lanes are not known."""
    w, n = s.w, s.lanes
    k, elements, left = lane_step(s, a), offset(s, a, i, j), s.left(j)
    if not isinstance(k, int) or not isinstance(elements, int) or not isinstance(left, int):
        return None
    phase, end = _reach(a, elements, left, n, k)
    one, each = s.holds(a.predicate, i, j)
    parts = []
    for q in range(-(-end // n)):
        some = None
        if each is not None:  # an element is allowed where the lane that it is for is
            m, places = each.lanes, range(q * n - phase, (q + 1) * n - phase)
            lanes = [e // k if 0 <= e < k * m and e % k == 0 else m for e in places]
            some = w.shuffle(each, lanes, constant(False, dtypes.bool_, m))
        mask = meet_all(w, leading(end - q * n, n), some)
        place = _or_zeros(s, one, w.at(s.pointer(a), elements - phase + q * n, a.dtype), a, n)
        parts.append(memo(s.known, load, w, place, a.dtype, n, mask))
    return _filled(s, a, meet_all(w, one, each), _narrowed(s, each_kth(w, parts, k, phase), j))


def _reach(a: Access, elements: Whole, count: int, whole: int, k: int) -> tuple[int, int]:
    """Returns two numbers of elements, for vectors that hold `count` elements: each k-th from the place `elements` on.

    The vectors begin so many elements before that place: reads that begin at other phases of the same elements then load the same vectors.
    And they have so many elements up to the last one that may be loaded.
    whole: the count from which on that includes what lies behind the last element, if it belongs to the buffer.
    """
    phase = 0
    if isinstance(elements, int) and elements >= 0 and all(isinstance(c, int) and c >= 0 for c in a.coef.values()):
        phase = elements % k  # else elements before may belong to another buffer
    fits = count == whole and a.room is not None and a.room >= k - 1
    return phase, count * k if fits else (count - 1) * k + phase + 1


def _transposed(s: Scope, a: Access, i: int, j: int) -> IRValue | None:
    """Elements apart along vectors, and at most some apart along the rows of the tile: vectors of rows, transposed in registers."""
    w, n, top, tile = s.w, s.lanes, i - i % s.lanes, s.tile.tile
    k, step, rows, left = 0 if tile is None else a.coef.get(tile), lane_step(s, a), min(s.units(tile) - top, n), s.left(j)
    if rows == 1 or not isinstance(left, int) or not isinstance(k, int):
        return None
    elements = offset(s, a, top, j)
    phase, end = _reach(a, elements, rows, n, k)
    at = w.at(s.pointer(a), plus(w, elements, -phase), a.dtype)
    inside = s.cut_row(top + rows - 1)
    last = end if inside is None else plus(w, times(w, plus(w, inside, -1 - top), k), phase + 1)
    ends = [plus(w, last, -q * n) for q in range(-(-end // n))]
    columns = memo(s.known, _transposed_rows, s, at, a.dtype, left, tuple(ends), step, k, phase)
    return _narrowed(s, columns[i - top], j)


def _transposed_rows(
    s: Scope, at: str, dtype: DType, left: int, ends: tuple[Whole, ...], step: Whole, k: int, phase: int
) -> Sequence[IRValue]:
    """The transpose of `left` rows, `step` elements apart, of each k-th element: the m-th vector has the m-th of every row.

    ends: of each vector of a row, the elements to the end.
    """
    w, n, rows = s.w, s.lanes, []
    masks = [leading(end, n) if isinstance(end, int) else w.tail(end, n) for end in ends]
    for lane in range(left):
        line = w.at(at, times(w, lane, step), dtype)
        parts = [memo(s.known, load, w, w.at(line, q * n, dtype), dtype, n, mask) for q, mask in enumerate(masks)]
        rows.append(parts[0] if k == 1 else each_kth(w, parts, k, phase))
    return transposed(w, rows + rows[-1:] * (n - left))


def _reversed(s: Scope, a: Access, i: int, j: int) -> IRValue | None:
    """Elements that lie side by side in the opposite order: a vector that ends where the first lane reads, reversed."""
    w, n = s.w, s.width(j)
    one, each = s.holds(a.predicate, i, j)
    mask = meet_all(w, s.mask(j), each, n)
    there = None if mask is None else w.shuffle(mask, range(n)[::-1])
    at = w.at(s.pointer(a), plus(w, offset(s, a, i, j), 1 - n), a.dtype)
    x = w.load(_or_zeros(s, one, at, a, n), a.dtype, n, mask=there)
    return _filled(s, a, meet_all(w, one, each), w.shuffle(x, range(n)[::-1]))


WHOLE_VECTORS = {"strided": _strided, "transposed": _transposed, "reversed": _reversed}


def _or_zeros(s: Scope, one: IRValue | None, at: str, a: Access, n: int) -> str:
    """Returns an address of zeros where the predicate is false: masked loads from an unmapped page are slow."""
    return at if one is None else s.w.pure(f"select {one}, ptr {at}, ptr {s.kernel.zeros(n * a.dtype.bits // 8)}")


def _filled(s: Scope, a: Access, holds: IRValue | None, x: IRValue) -> IRValue:
    """Returns the loaded value, with the pad value where the predicate is false; the load gives 0 there."""
    if holds is None or a.zero:
        return x
    return s.w.select(s.w.splat(holds, x.lanes), x, s.w.splat(number(a.pad_value, a.dtype), x.lanes))


def _narrowed(s: Scope, x: IRValue, j: int) -> IRValue:
    """A vector without the lanes that its step has not."""
    n = s.width(j)
    return x if x.lanes <= n else s.w.shuffle(x, range(n))


def store_interleaved(s: Scope, stores: Sequence[Access], values: Sequence[IRValue], i: int, j: int) -> None:
    """Stores vectors whose lanes lie between each other, from the first one's place on: by shuffles, as whole vectors."""
    w, n, k, left = s.w, s.width(j), len(values), s.left(j)
    at, _ = address(s, stores[0], i, j)
    holds = [meet_all(w, meet_all(w, *s.holds(a.predicate, i, j)), s.row_inside(i)) for a in stores]
    every = None if holds == [None] * k else [w.splat(h or constant(True, dtypes.bool_), n) for h in holds]
    for q in range(k):
        rest = plus(w, times(w, left, k), -q * n)
        if not isinstance(rest, int) or rest > 0:
            mask = leading(rest, n) if isinstance(rest, int) else w.tail(rest, n)
            mask = meet_all(w, mask, None if every is None else interleaved(w, every, q))
            w.store(interleaved(w, [w.splat(x, n) for x in values], q), w.at(at, q * n, stores[0].dtype), mask=mask)


def store(s: Scope, how: str, a: Access, x: IRValue, i: int, j: int) -> None:
    w, vector = s.w, s.vec in a.deps
    holds = meet_all(w, meet_all(w, *s.holds(a.predicate, i, j)), s.row_inside(i))
    at, apart = address(s, a, i, j)
    if not vector:
        x = w.lane(x, 0)

        def one() -> Sequence[IRValue]:
            w.store(x if how == "set" else fold(w, how, w.load(at, a.dtype), x), at)
            return []

        if holds is None:
            one()
        else:
            w.when(holds, [], one, rare=False)
        return
    n = s.width(j)
    x, mask = w.splat(x, n), meet_all(w, s.mask(j), holds, n)
    if apart is None and s.vec not in a.coef:
        apart = constant(0, dtypes.int64, n)
    if how != "set":
        old = w.load(at, a.dtype, n, mask=mask) if apart is None else w.gather(at, apart, a.dtype, mask)
        x = fold(w, how, old, x)
    if apart is None:
        w.store(x, at, mask=mask)
    else:
        w.scatter(x, at, apart, mask)

"""Vectors in registers: masks, shuffles, and the folding of lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ngraph.codegen import math as scalar
from ngraph.codegen.text import IRValue, IRWriter, constant
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType

FOLD = {"add": "add", "multiply": "multiply", "max": "maximum", "min": "minimum"}
FOLD_BOOL = {"add": "or", "multiply": "and", "max": "or", "min": "and"}


def leading(count: int, lanes: int) -> IRValue | None:
    """The mask of so many of some lanes; None for all."""
    if count >= lanes:
        return None
    return IRValue(f"<{', '.join([f'i1 {str(k < count).lower()}' for k in range(lanes)])}>", dtypes.bool_, lanes)


def load(w: IRWriter, at: str, dtype: DType, lanes: int, mask: IRValue | None) -> IRValue:
    """A vector from memory."""
    return w.load(at, dtype, lanes, mask=mask)


def each_kth(w: IRWriter, parts: Sequence[IRValue], k: int, phase: int) -> IRValue:
    """Each k-th element of vectors that lie one behind the other, from the element `phase` on."""
    n, found = parts[0].lanes, parts[0]
    picks = [phase + lane * k for lane in range(n)]
    if len(parts) == 1:
        return w.shuffle(found, [min(e, n - 1) for e in picks])
    for q, x in enumerate(parts[1:], 1):
        earlier = [e if q == 1 else lane for lane, e in enumerate(picks)]
        found = w.shuffle(found, [o if e < q * n else n + e % n if e // n == q else 0 for e, o in zip(picks, earlier, strict=True)], x)
    return found


def interleaved(w: IRWriter, rows: Sequence[IRValue], q: int) -> IRValue:
    """The q-th of as many vectors, in which the lanes of these lie between each other."""
    n, k = rows[0].lanes, len(rows)
    places = [divmod(q * n + lane, k) for lane in range(n)]  # lane, of which
    x = rows[0]
    for m in range(1, k):
        here = [lane if m == 1 else e for e, (lane, _) in enumerate(places)]
        x = w.shuffle(x, [n + lane if of == m else h for h, (lane, of) in zip(here, places, strict=True)], rows[m])
    return x


def transposed(w: IRWriter, rows: Sequence[IRValue]) -> Sequence[IRValue]:
    """As many vectors as each has lanes, rows as columns: blocks of one half are exchanged with those of the other, of 1, 2, 4 … lanes."""
    n, rows = len(rows), list(rows)
    for s in [1 << k for k in range(n.bit_length() - 1)]:
        for r in [r for r in range(n) if not r & s]:
            x, y = rows[r], rows[r + s]
            rows[r] = w.shuffle(x, [n + c - s if c & s else c for c in range(n)], y)
            rows[r + s] = w.shuffle(x, [n + c if c & s else c + s for c in range(n)], y)
    return rows


def meet_all(w: IRWriter, a: IRValue | None, b: IRValue | None, lanes: int = 1) -> IRValue | None:
    """Both of two conditions, of which one may be missing."""
    if a is None or b is None:
        found = a or b
        return None if found is None else w.splat(found, lanes)
    lanes = max(lanes, a.lanes, b.lanes)
    return w.op("and", w.splat(a, lanes), w.splat(b, lanes))


def number(value: Any, dtype: DType) -> IRValue:
    """A constant as NumPy would make it."""
    return constant(dtype.array(value).item(), dtype)


def identity(kind: str, dtype: DType, lanes: int) -> IRValue:
    """Returns the neutral element of a reduction: 0, 1, the lowest, the highest."""
    return constant({"add": 0, "multiply": 1, "max": dtype.lowest, "min": dtype.highest}[kind], dtype, lanes)


def fold(w: IRWriter, kind: str, a: IRValue, b: IRValue) -> IRValue:
    """Two values as one; sums of bool are `or`."""
    if a.dtype.kind == "bool":
        return w.op(FOLD_BOOL[kind], a, b)
    return scalar.emit(w, FOLD[kind], (a, b))


def as_one(w: IRWriter, kind: str, x: IRValue) -> IRValue:
    """The lanes of a vector folded into one: halves with halves."""
    n = x.lanes
    while n > 1:
        n //= 2
        x = fold(w, kind, w.shuffle(x, range(n)), w.shuffle(x, range(n, 2 * n))) if n > 1 else x
        if n == 1:
            return fold(w, kind, w.lane(x, 0), w.lane(x, 1))
    return x

"""How the loops of a stage run: where vectors lie, which axes make a tile of registers, in which order. A value beside the stage.

Chosen by counting what one element costs; it knows of a stage only how its reads and stores move, and of a machine its vectors.
"""

from __future__ import annotations

import math
from typing import Generic, NamedTuple, TypeVar

D = TypeVar("D")
UNKNOWN = 64  # places along a loop whose length nobody knows
SCATTERED = 0.8  # what one element costs that lies apart from its neighbours, in vector instructions


class Walk(NamedTuple, Generic[D]):
    """A read or store: elements per step of each loop (None: not known yet), and the other loops that it depends on."""

    steps: dict[D, int | None]
    other: frozenset[D]  # through a guard or an index that is no sum
    loose: frozenset[D]  # through such an index
    store: bool
    combines: bool  # folds into what is there, so no two lanes may meet


class View(NamedTuple, Generic[D]):
    """What a schedule sees of a stage."""

    free: tuple[D, ...]
    reduced: tuple[D, ...]
    sizes: dict[D, int | None]
    walks: tuple[Walk[D], ...]
    work: int  # instructions that each element takes
    sums: int  # accumulators


class Schedule(NamedTuple, Generic[D]):
    """`order` of the free loops; `vectors` steps of `lanes` along `vector` and `rows` of `tile` are done together."""

    lanes: int
    vector: D | None
    tile: D | None
    vectors: int
    rows: int
    order: tuple[D, ...]

    def units(self, d: D) -> int:
        """How many steps of a loop are done together."""
        return self.vectors if d is self.vector else self.rows if d is self.tile else 1


def schedule(view: View[D], lanes: int, registers: int) -> Schedule[D]:
    """The cheapest schedule for vectors of so many lanes."""
    best, vector = _cost(view, None, 1), None
    for d in (*view.free, *view.reduced):
        if lanes > 1 and _may(view, d):
            cost = _cost(view, d, lanes)
            if cost <= best:
                best, vector = cost, d
    size = _size(view, vector) if vector is not None else 1
    steps = max(1, -(-size // lanes))
    vectors = min(4 if view.reduced else 1, steps) if vector is not None else 1
    order = [d for d in view.free if d is not vector] + [d for d in view.free if d is vector]
    return Schedule(lanes if vector is not None else 1, vector, None, vectors, 1, tuple(order))


def _size(view: View[D], d: D) -> int:
    n = view.sizes[d]
    return UNKNOWN if n is None else n


def _may(view: View[D], d: D) -> bool:
    """Whether vectors may lie along a loop: lanes that fold into memory must not meet."""
    return all(not w.combines or (w.steps.get(d) and d not in w.loose) for w in view.walks) and view.sizes[d] != 1


def _cost(view: View[D], v: D | None, lanes: int) -> float:
    """What one element costs."""
    size = _size(view, v) if v is not None else 1
    together = size / max(1, -(-size // lanes)) or 1.0
    total = float(view.work)
    for w in view.walks:
        step = w.steps.get(v, 0) if v is not None else 1
        easy = v is None or (v not in w.loose and step in (0, 1))
        total += 1 if easy else SCATTERED * lanes * (2 if w.store else 1)
    total /= together
    if v in view.reduced:
        total += view.sums * 2 * math.log2(lanes) / max(1, math.prod([_size(view, d) for d in view.reduced]))
    return total

"""Labels of the outputs of connectionist temporal classification, in NumPy, for steps in Python."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def as_sparse(rows: Sequence[Any]) -> tuple[Array, Array, Array]:
    """Returns rows of labels as the places, values and shape of a sparse matrix."""
    many = np.array([len(row) for row in rows], np.int64)
    at = np.stack([np.repeat(np.arange(len(rows)), many), np.concatenate([np.zeros(0, np.int64), *map(np.arange, many)])], 1)
    return at, np.concatenate([np.zeros(0, np.int64), *rows]).astype(np.int64), np.array([len(rows), many.max(initial=0)])


def best_path(logits: Array, lengths: Array, *, merge_repeated: bool = False, blank_index: int = -1) -> tuple[Array, ...]:
    """Returns the best class of each time, without repetitions and blanks, as a sparse matrix; and the sums of their logits, negated."""
    best, times = logits.argmax(2).T, np.arange(len(logits)) < lengths[:, None]
    kept = times & (best != blank_index % logits.shape[2])
    if merge_repeated:
        kept[:, 1:] &= best[:, 1:] != best[:, :-1]
    score = -np.where(times, logits.max(2).T, 0).sum(1, keepdims=True)
    return *as_sparse([row[there] for row, there in zip(best, kept, strict=True)]), score


class Beam:
    """A row of labels in the search: its last label, the row before it, and logarithms of shares of the paths that give it.

    now, before: of those that end in a blank, in the label, and of both, after this time and after the one before
    """

    __slots__ = ("label", "parent", "children", "now", "before")

    def __init__(self, label: int | None, parent: Beam | None):
        self.label, self.parent, self.children = label, parent, dict[int, Beam]()
        self.now = self.before = NONE

    def labels(self, merge: bool) -> list[int]:
        """Returns the row; merge: each run of one label once."""
        found = list[int]()
        beam: Beam = self
        while beam.parent is not None and beam.label is not None:
            if not merge or beam.label != beam.parent.label:
                found.append(beam.label)
            beam = beam.parent
        return found[::-1]


NONE = (-math.inf, -math.inf, -math.inf)


def _sum(a: float, b: float) -> float:
    """Returns the logarithm of the sum of two numbers by their logarithms."""
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


def _searched(scores: Array, width: int) -> list[Beam]:
    """Returns the best rows of labels for logarithms of shares [time, classes], of which the last class is the blank."""
    *_, blank = range(scores.shape[1])
    root = Beam(None, None)
    root.now = (0.0, -math.inf, 0.0)
    beams = [root]
    for row in scores.tolist():
        leaves, count = list[tuple[float, int, Beam]](), itertools.count()
        for beam in beams:
            beam.before = beam.now
        for beam in beams:
            label = beam.now[1]
            if beam.parent is not None and beam.label is not None:
                if beam.parent.now is not NONE:
                    label = _sum(label, beam.parent.before[0 if beam.label == beam.parent.label else 2])
                label += row[beam.label]
            empty = beam.before[2] + row[blank]
            beam.now = (empty, label, _sum(empty, label))
            heapq.heappush(leaves, (beam.now[2], -next(count), beam))
        for beam in beams:
            for k, score in enumerate(row[:blank]):
                child = beam.children.get(k)
                if child is not None and child.now is not NONE:
                    continue
                found = score + beam.before[0 if k == beam.label else 2]
                if found == -math.inf or (len(leaves) >= width and found <= leaves[0][0]):
                    continue
                if child is None:
                    child = beam.children[k] = Beam(k, beam)
                child.now = (-math.inf, found, found)
                if len(leaves) >= width:
                    heapq.heappop(leaves)[2].now = NONE
                heapq.heappush(leaves, (found, -next(count), child))
        beams = [leaf for _, _, leaf in sorted(leaves, key=lambda item: (-item[0], -item[1]))]
    return beams


def beam_search(
    logits: Array, lengths: Array, *, beam_width: int = 100, top_paths: int = 1, merge_repeated: bool = True
) -> tuple[Array, ...]:
    """Returns the places, values and shapes of the best rows of labels, rank by rank, and the logarithms of their shares [batch, ranks].

    logits [time, batch, classes]; the last class is the blank.
    """
    best = list[list[Beam]]()
    for k, length in enumerate(lengths):
        x = logits[:length, k].astype(np.float64)
        top = x.max(1, keepdims=True, initial=-np.inf)
        best.append(_searched(x - top - np.log(np.exp(x - top).sum(1, keepdims=True)), beam_width)[:top_paths])
    rows = [as_sparse([np.array(found[j].labels(merge_repeated), np.int64) for found in best]) for j in range(top_paths)]
    return *(row[part] for part in range(3) for row in rows), np.array([[beam.now[2] for beam in found] for found in best])

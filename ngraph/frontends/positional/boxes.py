"""Boxes in images, in NumPy, for steps in Python: which of them to keep, and their edges. A box is two corners, (y, x) each."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngraph.frontends.positional.sampling import apart_from_better

Array = np.ndarray[Any, Any]


def shared(boxes: Array) -> Callable[[Any, Any], Array]:
    """Returns the share that two boxes have in common of what they cover, for some boxes, rows, and others, columns."""
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    area = (high - low).prod(1)

    def run(some: Any, others: Any) -> Array:
        first, last, mine = low[some][:, None], high[some][:, None], area[some][:, None]
        both = np.maximum(np.minimum(last, high[others]) - np.maximum(first, low[others]), 0).prod(2)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = both / (mine + area[others] - both)
        return np.where((mine > 0) & (area[others] > 0), share, 0)

    return run


def chosen(scores: Array, share: Callable[[Any, Any], Array], count: int, most: float, least: float, sigma: float) -> tuple[Array, Array]:
    """Returns the numbers of the best boxes, at most `count`, and their scores.

    share: of some boxes, rows, with others, columns. Those that share more than `most` with a better one are left out; with a sigma
    their scores sink instead. least: of a score.
    """
    if sigma <= 0:
        left = np.flatnonzero(scores > least)
        left = left[np.argsort(-scores[left], kind="stable")]
        found = apart_from_better(left, count, lambda some, others: ~(share(some, others) > most))
        return found.astype(np.int32), scores[found]
    queue = [(-float(s), k, 0) for k, s in enumerate(scores) if s > least]
    heapq.heapify(queue)
    numbers, kept = list[int](), list[Any]()
    kind = scores.dtype.type
    while queue and len(numbers) < count:
        negative, k, start = heapq.heappop(queue)
        before = score = kind(-negative)
        if len(numbers) > start:
            for part in share([k], numbers[start:])[0, ::-1]:
                score = kind(score * np.exp(kind(-0.5 / sigma) * kind(part) * kind(part)))
                if score <= least:
                    break
        if score == before:
            numbers.append(k)
            kept.append(score)
        elif score > least:
            heapq.heappush(queue, (-float(score), k, len(numbers)))
    return np.array(numbers, np.int32), np.array(kept, scores.dtype)


def chosen_by_class(b: Array, s: Array, limits: Sequence[Array], by_class: bool, clipped: bool) -> tuple[Array, Array, Array, Array]:
    """Returns the best boxes of each image, their scores and classes, and how many there are; the rest is 0.

    b: boxes [images, boxes, classes or 1, 4]; s: scores [images, boxes, classes]; limits: how many there are at most of a class, and
    in an image, and `most` and `least` of `chosen`; by_class: give no more than `each` times the classes; clipped: cut boxes at 0 and 1.
    """
    each, whole, most, least = limits
    kinds = s.shape[2]
    count = min(int(whole), int(each) * kinds) if by_class else int(whole)
    found = np.zeros((len(b), count, 4), np.float32), np.zeros((len(b), count), np.float32), np.zeros((len(b), count), np.float32)
    valid = np.zeros(len(b), np.int32)
    for k in range(len(b)):
        best = list[tuple[float, int, int]]()
        for kind in range(kinds):
            of = b[k, :, kind if b.shape[2] > 1 else 0]
            numbers, kept = chosen(s[k, :, kind], shared(of), int(each), float(most), float(least), 0.0)
            best += [(-float(score), kind, int(i)) for i, score in zip(numbers, kept, strict=True)]
        best = sorted(best, key=lambda row: row[0])[:count]
        valid[k] = len(best)
        for j, (score, kind, i) in enumerate(best):
            box = b[k, i, kind if b.shape[2] > 1 else 0]
            found[0][k, j], found[1][k, j], found[2][k, j] = np.clip(box, 0, 1) if clipped else box, -score, kind
    return *found, valid


# The colours of boxes where none are given, in turn: red, green, blue and opacity.
_TEN = "1 1 0 1  0 0 1 1  1 0 0 1  0 1 0 1  .5 0 .5 1  .5 .5 0 1  .5 0 0 1  0 0 .5 1  0 1 1 1  1 0 1 1"
OF_BOXES = np.array(_TEN.split(), np.float32).reshape(-1, 4)


def drawn(images: Array, boxes: Array, table: Array | None = None) -> Array:
    """Returns images with the edges of boxes, as far as they are inside; those turned around are left out. table: the colours in turn."""
    made, (_, height, width, depth) = images.copy(), images.shape
    if table is None or not table.size:
        table = np.where(np.arange(4) < 1, 1, OF_BOXES) if depth == 1 else OF_BOXES
    for k, edges in enumerate((boxes * np.array([height - 1, width - 1] * 2, np.float32)).astype(np.int64)):
        for j, (top, left, bottom, right) in enumerate(edges):
            if top > bottom or left > right or bottom < 0 or right < 0:
                continue
            colour = table[j % len(table), :depth]
            across, down = slice(max(left, 0), right + 1), slice(max(top, 0), bottom + 1)
            for row in (top, bottom):
                if 0 <= row < height:
                    made[k, row, across] = colour
            for column in (left, right):
                if 0 <= column < width:
                    made[k, down, column] = colour
    return made

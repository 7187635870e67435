"""Labels of the outputs of connectionist temporal classification, in NumPy, for steps in Python."""

from __future__ import annotations

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

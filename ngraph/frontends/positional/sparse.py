"""Sparse and ragged tensors in NumPy, for steps in Python: places [elements, dims], values and a shape; ends of rows and values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph.errors import GraphError

Array = np.ndarray[Any, Any]


def numbered(i: Array, shape: Array) -> Array:
    """Returns places as numbers of elements, in the order of the dims."""
    return np.ravel_multi_index(tuple(i.T), tuple(shape)) if i.size else np.zeros(len(i), np.int64)


def placed(numbers: Array, shape: Array) -> Array:
    """Returns the places of elements by their numbers."""
    return np.stack(np.unravel_index(numbers, tuple(shape)), 1) if numbers.size else np.zeros((0, len(shape)), np.int64)


def ordered(i: Array, v: Array) -> tuple[Array, Array]:
    """Returns places and values in the order of the places."""
    order = np.lexsort(i.T[::-1])
    return i[order], v[order]


def met(i: Array, v: Array, j: Array, w: Array, shape: Array) -> tuple[Array, Array, Array]:
    """Returns the places of two sparse tensors, in order, and the elements of both there, 0 where there is none."""
    every, at = np.unique(np.concatenate([numbered(i, shape), numbered(j, shape)]), return_inverse=True)
    both = np.zeros((2, len(every)), v.dtype)
    both[0, at[: len(i)]], both[1, at[len(i) :]] = v, w
    return placed(every, shape), both[0], both[1]


def best(choose: Any, i: Array, v: Array, shape: Array, j: Array, w: Array, other: Array) -> tuple[Array, Array]:
    """Returns the larger or smaller elements of two sparse tensors."""
    at, a, b = met(i, v, j, w, shape)
    return at, choose(a, b)


def added(i: Array, v: Array, shape: Array, j: Array, w: Array, other: Array, least: Any) -> tuple[Array, Array, Array]:
    """Returns the sum of two sparse tensors, without those sums of two elements whose size is below `least`."""
    at, a, b = met(i, v, j, w, shape)
    kept = (np.abs(a + b) >= least) | ~np.isin(numbered(at, shape), np.intersect1d(numbered(i, shape), numbered(j, shape)))
    return at[kept], (a + b)[kept], shape


def added_gradient(d: Array, i: Array, j: Array, at: Array) -> list[Array]:
    """Returns the derivatives of a sum by the elements of both; those of which the sum has none get 0. at: places of d."""
    there = {tuple(place): v for place, v in zip(at.tolist(), d, strict=True)}
    return [np.array([there.get(tuple(place), 0) for place in places], d.dtype) for places in (i.tolist(), j.tolist())]


def reshaped(i: Array, old: Array, new: Array) -> tuple[Array, Array]:
    """Returns places in another shape, of which one length may be -1, and this shape. Raises GraphError where there is none."""
    new = new.copy()
    if (new < 0).any():
        new[new < 0] = np.prod(old) // max(int(np.prod(new[new >= 0])), 1)
    if np.prod(new) != np.prod(old):
        raise GraphError(f"a sparse tensor of the shape {old.tolist()} cannot have the shape {new.tolist()}")
    return placed(numbered(i, old), new), new


def joined(*given: Array, N: int, concat_dim: int) -> tuple[Array, Array, Array]:
    """Returns N sparse tensors one behind the other along a dim. given: the places of all, then their values, then their shapes."""
    places, values, shapes = given[:N], given[N : 2 * N], given[2 * N :]
    whole = shapes[0].copy()
    starts = np.cumsum([0, *(shape[concat_dim] for shape in shapes)])
    whole[concat_dim] = starts[-1]
    along = np.arange(len(whole)) == concat_dim % len(whole)
    moved = [i + start * along for i, start in zip(places, starts, strict=False)]
    return *ordered(np.concatenate(moved), np.concatenate(values)), whole


def part(i: Array, v: Array, shape: Array, start: Array, size: Array) -> tuple[Array, Array, Array]:
    """Returns a slice of a sparse tensor."""
    kept = ((i >= start) & (i < start + size)).all(1)
    return i[kept] - start, v[kept], np.maximum(np.minimum(start + size, shape) - start, 0)


def parts(k: Array, i: Array, v: Array, shape: Array, *, num_split: int) -> list[Array]:
    """Returns the places, then the values, then the shapes of parts along dim k, the first ones one longer where it does not divide."""
    along, length = np.arange(len(shape)) == k, int(shape[k])
    sizes = [length // num_split + (p < length % num_split) for p in range(num_split)]
    starts = np.cumsum([0, *sizes])
    found = [part(i, v, shape, along * start, np.where(along, size, shape)) for start, size in zip(starts, sizes, strict=False)]
    return [piece[what] for what in range(3) for piece in found]


def softmax(i: Array, v: Array, shape: Array) -> Array:
    """Returns the shares of the elements that there are in each row."""
    _, at = np.unique(numbered(i[:, :-1], shape[:-1]), return_inverse=True)
    best = np.full(len(v), -np.inf)
    np.maximum.at(best, at, v)
    share = np.exp(v - best[at])
    return share / np.bincount(at, share, len(v))[at]


def largest(i: Array, v: Array, shape: Array, axes: Array, *, keep_dims: bool = False) -> Array:
    """Returns the largest elements along dims, as a dense tensor; 0 where there is none."""
    along = np.isin(np.arange(len(shape)), axes % len(shape))
    every, at = np.unique(numbered(np.where(along, 0, i), shape), return_inverse=True)
    made, best = np.zeros(np.where(along, 1, shape), v.dtype), np.full(len(every), v.min(initial=0))
    np.maximum.at(best, at, v)
    made[np.unravel_index(every, tuple(shape))] = best
    return made if keep_dims else made.reshape(shape[~along])


def with_rows(i: Array, v: Array, shape: Array, default: Any) -> tuple[Array, Array, Array, Array]:
    """Returns places and values with a default in rows that have none, which rows these are, and where each element is now."""
    many = int(shape[0])
    empty = np.bincount(i[:, 0], minlength=many)[:many] == 0 if len(i) else np.ones(many, bool)
    rows = np.flatnonzero(empty)
    more = np.zeros((len(rows), len(shape)), np.int64)
    more[:, 0] = rows
    every = np.concatenate([i, more])
    order = np.argsort(every[:, 0], kind="stable")
    filled = np.concatenate([v, np.full(len(rows), default, v.dtype)])
    return every[order], filled[order], empty, np.argsort(order, kind="stable")[: len(i)]


def bins(rows: Array, many: int, numbers: Array, size: int, weights: Array, flags: bool) -> Array:
    """Returns, for each of `many` rows, how often each number is there, or the sums of its weights; flags: whether it is there."""
    made, good = np.zeros((many, size), weights.dtype), numbers < size
    counted = weights[good] if weights.size and not flags else weights.dtype.type(1)
    (np.maximum if flags else np.add).at(made, (rows[good], numbers[good]), counted)
    return made


def ragged_bins(splits: Array, numbers: Array, size: Array, weights: Array, *, binary_output: bool = False) -> Array:
    """Returns `bins` of each row of a ragged tensor."""
    many = len(splits) - 1
    return bins(np.repeat(np.arange(many), np.diff(splits)), many, numbers, int(size), weights, binary_output)


def sparse_bins(i: Array, v: Array, shape: Array, size: Array, weights: Array, *, binary_output: bool = False) -> Array:
    """Returns `bins` of a sparse vector, or of each row of a sparse matrix."""
    rows = len(shape) > 1
    made = bins(i[:, 0] * rows, int(shape[0]) if rows else 1, v, int(size), weights, binary_output)
    return made if rows else made[0]


def ranges(first: Array, last: Array, by: Array) -> tuple[Array, Array]:
    """Returns where rows begin, and the numbers of each: from a first one on, below a last one, by steps."""
    rows = [np.arange(a, b, d) for a, b, d in zip(*np.broadcast_arrays(*np.atleast_1d(first, last, by)), strict=True)]
    return np.cumsum([0, *map(len, rows)]), np.concatenate([np.zeros(0, first.dtype), *rows])


def rows_at(splits: Array, values: Array, numbers: Array) -> tuple[Array, Array]:
    """Returns rows of a ragged tensor by their numbers."""
    places = [np.arange(a, b) for a, b in zip(splits[numbers], splits[numbers + 1], strict=True)]
    return np.cumsum([0, *map(len, places)]), values[np.concatenate([np.zeros(0, np.int64), *places])]


def sparse_rows(*given: Array) -> tuple[Array, Array, Array]:
    """Returns a ragged tensor as a sparse one. given: where the rows of each dim begin, then the values."""
    at, shape = places_in_rows(given[:-1], given[-1].shape)
    return at, given[-1].ravel(), shape


def places_in_rows(splits: Sequence[Array], shape: Sequence[int]) -> tuple[Array, Array]:
    """Returns the places of the elements of a ragged tensor, and its lengths at most; shape: of its values."""
    places, sizes = [np.arange(len(splits[0]) - 1)], [len(splits[0]) - 1]
    for ends in splits:
        of = np.diff(ends)
        places = [*(np.repeat(p, of) for p in places), np.arange(ends[-1]) - np.repeat(ends[:-1], of)]
        sizes.append(int(of.max(initial=0)))
    inner = np.indices(shape)[1:].reshape(len(shape) - 1, math.prod(shape))
    return np.stack([*(np.repeat(p, math.prod(shape[1:])) for p in places), *inner], 1), np.array([*sizes, *shape[1:]])


def dense_rows(shape: Array, v: Array, default: Array, *rows: Array, row_partition_types: Sequence[str]) -> Array:
    """Returns a ragged tensor as a dense one: rows as long as the longest one, or as the shape says, filled up with the default.

    rows: of each dim where its rows end, or the number of each value's row, or how many there are; the types, as TensorFlow names them.
    """
    kinds = row_partition_types
    lengths = list[Array]()  # of the rows of each dim but the first
    many = int(rows[0]) if kinds[0] == "FIRST_DIM_SIZE" else len(rows[0]) - 1
    for kind, given in zip(kinds, rows, strict=True):
        if kind == "ROW_SPLITS":
            lengths.append(np.diff(given))
        elif kind == "VALUE_ROWIDS":
            count = int(lengths[-1].sum()) if lengths else many
            lengths.append(np.bincount(given, minlength=count)[:count] if len(given) else np.zeros(count, np.int64))
    sizes = [many, *(int(of.max(initial=0)) for of in lengths), *v.shape[1:]]
    if shape.ndim:
        sizes = [int(s) if s >= 0 else found for s, found in zip(shape, sizes, strict=True)]
    made = np.empty(sizes, v.dtype)
    made[...] = default
    places = [np.arange(many)]
    for of in lengths:  # the places of each element, dim by dim
        ends = np.cumsum(of)
        within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - of, of)
        places = [*(np.repeat(p, of) for p in places), within]
    kept = np.ones(len(places[0]), bool)
    for p, s in zip(places, sizes, strict=False):
        kept &= p < s
    made[tuple(p[kept] for p in places)] = v[: len(kept)][kept]
    return made


def hits(true: Array, sampled: Array, *, num_true: int = 1) -> tuple[Array, Array, Array]:
    """Returns rows of true classes with places of sampled classes that are among them, and the weights that take these out."""
    row, _, place = np.nonzero(true[:, :, None] == sampled)
    return row, place, np.full(len(row), np.finfo(np.float32).min)


def difference(a: Array, b: Array) -> tuple[Array, Array]:
    """Returns the elements of a that are not in b, and their places."""
    there = set(b.tolist())
    kept = np.array([k for k, v in enumerate(a.tolist()) if v not in there], np.int64)
    return a[kept], kept


def distances(i: Array, v: Array, shape: Array, j: Array, w: Array, other: Array, *, normalize: bool = True) -> Array:
    """Returns how many symbols are put in, taken out or changed on the way from each row to the true one; normalize: over its length."""
    made = np.zeros(np.maximum(shape, other)[:-1], np.float32)
    for at in np.unique(np.concatenate([i, j])[:, :-1], axis=0):
        a, b = v[(i[:, :-1] == at).all(1)], w[(j[:, :-1] == at).all(1)]
        many = steps_between(a, b)
        made[tuple(at)] = many if not normalize else many / len(b) if len(b) else np.inf
    return made


def steps_between(a: Array, b: Array) -> int:
    """Returns how many symbols are put in, taken out or changed between two rows (Levenshtein's distance)."""
    places = np.arange(len(b) + 1)
    row = places
    for k, symbol in enumerate(a, 1):
        row = np.concatenate([[k], np.minimum(row[1:] + 1, row[:-1] + (b != symbol))])
        row = np.minimum.accumulate(row - places) + places
    return int(row[-1])

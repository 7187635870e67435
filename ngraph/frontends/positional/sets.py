"""Sets in the last dim of dense and sparse tensors, and crosses of features, in NumPy, for steps in Python."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngraph.frontends.positional.text import fingerprint64

Array = np.ndarray[Any, Any]
Sets = dict[tuple[int, ...], set[Any]]

OPERATIONS: dict[str, Callable[[set[Any], set[Any]], set[Any]]] = {
    "a-b": lambda a, b: a - b,
    "b-a": lambda a, b: b - a,
    "intersection": lambda a, b: a & b,
    "union": lambda a, b: a | b,
}


def of_dense(a: Array) -> tuple[Sets, Sequence[int]]:
    """Returns the elements of each row by its place, and the lengths in front of the rows."""
    return {at: set(a[at].tolist()) for at in np.ndindex(a.shape[:-1])}, a.shape[:-1]


def of_sparse(i: Array, v: Array, shape: Array) -> tuple[Sets, Sequence[int]]:
    """Returns the elements of each row of a sparse tensor by its place, and the lengths in front of the rows."""
    found: Sets = {}
    for at, value in zip(i[:, :-1].tolist(), v.tolist(), strict=True):
        found.setdefault(tuple(at), set()).add(value)
    return found, shape[:-1].tolist()


def sizes(i: Array, v: Array, shape: Array) -> Array:
    """Returns how many different elements each row of a sparse tensor has."""
    found, lengths = of_sparse(i, v, shape)
    made = np.zeros(lengths, np.int32)
    for at, row in found.items():
        made[at] = len(row)
    return made


def combined(*given: Array, sparse: tuple[bool, bool], set_operation: str) -> tuple[Array, Array, Array]:
    """Returns the places, values and shape of what an operation makes of the rows of two tensors, in order.

    given: dense ones, or the places, values and shape of sparse ones, as `sparse` says.
    """
    first = 3 if sparse[0] else 1
    (a, front), (b, other) = ((of_sparse if k else of_dense)(*part) for k, part in zip(sparse, (given[:first], given[first:]), strict=True))
    run, lengths = OPERATIONS[set_operation], np.maximum(front, other).astype(int)
    rows = {at: sorted(run(a.get(at, set()), b.get(at, set()))) for at in sorted({*a, *b})}
    places = [(*at, k) for at, row in rows.items() for k in range(len(row))]
    values = np.array([v for row in rows.values() for v in row], given[1 if sparse[0] else 0].dtype)
    most = max(map(len, rows.values()), default=0)
    return np.array(places, np.int64).reshape(-1, len(lengths) + 1), values, np.array([*lengths, most])


# ---- crosses ------------------------------------------------------------------------------------------------------------

_MASK, _MULTIPLY = (1 << 64) - 1, 0xC6A4A7935BD1E995


def joined_fingerprint(a: int, b: int) -> int:
    """Returns the fingerprint of two fingerprints, that of tensorflow/tsl/platform/fingerprint.h."""
    mixed = b * _MULTIPLY & _MASK
    found = ((a ^ _MULTIPLY) ^ (mixed ^ mixed >> 47) * _MULTIPLY & _MASK) * _MULTIPLY & _MASK
    found = (found ^ found >> 47) * _MULTIPLY & _MASK
    return found ^ found >> 47


def hashed(features: Sequence[Any], buckets: int, key: int) -> int:
    """Returns the number of the bucket for a cross of strings and whole numbers; without buckets their fingerprint."""
    found = key & _MASK
    for feature in features:
        found = joined_fingerprint(found, fingerprint64(feature) if isinstance(feature, bytes) else int(feature) & _MASK)
    return found % (buckets or (1 << 63) - 1)


def text_of(features: Sequence[Any], by: bytes) -> bytes:
    """Returns a cross of strings and whole numbers as a string."""
    return by.join(feature if isinstance(feature, bytes) else str(feature).encode() for feature in features)


def crossed(columns: Sequence[Sequence[Sequence[Any]]], one: Callable[[Sequence[Any]], Any], dtype: Any) -> tuple[Array, Array, Array]:
    """Returns the places, values and shape of what a function makes of each choice of one feature of each column, row by row."""
    rows = [[one(choice) for choice in itertools.product(*row)] for row in zip(*columns, strict=True)]
    places = [(k, j) for k, row in enumerate(rows) for j in range(len(row))]
    values = np.empty(len(places), dtype)
    values[:] = [v for row in rows for v in row]
    return np.array(places, np.int64).reshape(-1, 2), values, np.array([len(rows), max(map(len, rows), default=0)])


def cross(
    *given: Array,
    N: int,
    hashed_output: bool = True,
    num_buckets: int = 0,
    hash_key: int = 0,
) -> tuple[Array, Array, Array]:
    """Returns crosses of the features of N sparse matrices and of dense ones: numbers of buckets, or strings joined with _X_.

    given: the places of the sparse ones, their values, their shapes, the dense ones; for strings the separator may come last.
    """
    places, values, shapes, dense = given[:N], given[N : 2 * N], given[2 * N : 3 * N], [a for a in given[3 * N :] if a.ndim]
    by = next((bytes(a[()]) for a in given[3 * N :] if not a.ndim), b"_X_")
    many = len(dense[0]) if dense else int(shapes[0][0])
    columns = [[v[i[:, 0] == row].tolist() for row in range(many)] for i, v in zip(places, values, strict=True)]
    columns += [a.tolist() for a in dense]
    if hashed_output:
        return crossed(columns, lambda choice: hashed(choice, num_buckets, hash_key), np.int64)
    return crossed(columns, lambda choice: text_of(choice, by), object)


# ---- ordered numbers ----------------------------------------------------------------------------------------------------


def descending(a: Array) -> tuple[Array, Array]:
    """Returns the numbers that descend along rows and are nearest to those given, and of each the number of its run of equal ones."""
    made, runs = list[Array](), list[Array]()
    for row in a.astype(np.float64):
        sums, counts = list[float](), list[int]()
        for v in row:
            sums.append(float(v))
            counts.append(1)
            while len(sums) > 1 and sums[-2] / counts[-2] <= sums[-1] / counts[-1]:
                sums[-2:], counts[-2:] = [sums[-2] + sums[-1]], [counts[-2] + counts[-1]]
        made.append(np.repeat([s / c for s, c in zip(sums, counts, strict=True)], counts))
        runs.append(np.repeat(np.arange(len(counts)), counts))
    return np.array(made).reshape(a.shape), np.array(runs, np.int32).reshape(a.shape)

"""Translators of TensorFlow's ops on segments, sparse and ragged tensors, and what counts or sorts values into bins.

Sparse tensors are three dense ones, their places, values and shape; ragged ones are values and the ends or numbers of their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph.errors import GraphError, UnsupportedError
from ngraph.frontends.positional import elementwise as by_element
from ngraph.frontends.positional import indexing, reductions, shapes
from ngraph.frontends.positional.text import in_python
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value
from ngraph.frontends.tensorflow.host import step
from ngraph.frontends.tensorflow.table import translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.expr import ExprLike
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops import functions
from ngraph.ops.rearrange import iota
from ngraph.ops.statistics import searchsorted

Array = np.ndarray[Any, Any]

# ---- segments -----------------------------------------------------------------------------------------------------------


def _many(n: Any, i: Value) -> ExprLike:
    """Returns how many segments there are: the last number and 1."""
    numbers = n.g.known(i)
    return int(numbers[-1]) + 1 if numbers.size else 0


def _counts(n: Any, i: Value, many: ExprLike, dtype: Any) -> Tensor:
    """Returns how many elements each segment has."""
    t = n.g.tensor(i)
    ones = by_element.alone(n.g, lambda op: e.filled(1, op.axes, dtype), t)
    base = shapes.filled(n.g, np.zeros((), dtype.np)[()], [many])
    return indexing.scattered_slices(n.g, base, Tensor(t.op, [*t.dims, None]), ones, "add", n.takes[-1])


def _totals(n: Any, t: Tensor, i: Value, many: ExprLike, root: bool | None) -> Tensor:
    """Returns the sums of segments; root None: as they are, False: over their lengths, True: over the roots of these."""
    g, rows = n.g, n.g.tensor(i)
    wide = dtypes.accumulator(t.op.dtype)
    t_wide = Tensor(e.cast(t.op, wide), t.dims)
    base = shapes.filled(g, np.zeros((), wide.np)[()], [many, *t.shape[1:]])
    found = indexing.scattered_slices(g, base, Tensor(rows.op, [*rows.dims, None]), t_wide, "add", n.takes[-1])
    if root is not None:
        counts = _counts(n, i, many, wide)
        counts = Tensor(counts.op, [*counts.dims, *[None] * (t.rank - 1)])

        def share(x: Op, c: Op) -> Op:
            c = e.maximum(c, 1)
            return x / (e.sqrt(c) if root else c)

        found = by_element.each(g, share, found, counts)
    return Tensor(e.cast(found.op, t.op.dtype), found.dims)


@translates("SegmentMean")
def segment_mean(n: Any, x: Value, i: Value) -> Tensor:
    return _totals(n, n.g.tensor(x), i, _many(n, i), False)


@translates("SegmentMax", "SegmentMin", "SegmentProd")
def segment_best(n: Any, x: Value, i: Value) -> Tensor:
    """Returns the largest, least or product of each segment; that of one without elements is 0, its product 1."""
    g, t, many, rows = n.g, n.g.tensor(x), _many(n, i), n.g.tensor(i)
    kind = {"Max": "max", "Min": "min", "Prod": "multiply"}[n.op[7:]]
    start = {"max": t.op.dtype.lowest, "min": t.op.dtype.highest, "multiply": 1}[kind]
    base = shapes.filled(g, np.array(start).astype(t.np)[()], [many, *t.shape[1:]])
    found = indexing.scattered_slices(g, base, Tensor(rows.op, [*rows.dims, None]), t, kind, n.takes[-1])
    if kind == "multiply":
        return found
    counts = _counts(n, i, many, dtypes.int32)
    counts = Tensor(counts.op, [*counts.dims, *[None] * (t.rank - 1)])
    return by_element.each(g, lambda y, c: e.where(e.less(0, c), y, e.filled(0, (), y.dtype)), found, counts)


_ROOTS = {"Sum": None, "Mean": False, "SqrtN": True}


@translates(*(f"SparseSegment{kind}{more}" for kind in _ROOTS for more in ("", "WithNumSegments")))
def sparse_segments(n: Any, x: Value, places: Value, i: Value, count: Value = None) -> Tensor:
    """Returns the totals of segments of rows that are taken by their numbers."""
    many = _many(n, i) if count is None else n.g.sizes(count)[0]
    rows = indexing.gathered(n.g, n.g.tensor(x), places, 0, n.takes[0])
    return _totals(n, rows, i, many, _ROOTS[n.op.removeprefix("SparseSegment").removesuffix("WithNumSegments")])


@translates("DynamicPartition", python=True)
def partition(n: Any, x: Value, numbers: Value) -> tuple[Tensor, ...]:
    g, t, i = n.g, n.g.tensor(x), n.g.tensor(numbers)
    if i.rank != 1:
        t, i = g.reshape(t, [_size(i.shape), *t.shape[i.rank :]]), g.reshape(i, [_size(i.shape)])
    found = []
    for k in range(n.attr("num_partitions")):
        if not n.wants(k):
            found.append(t)  # nothing asks for it
            continue
        number = ConstantArray(np.array(k, numbers.np))
        known = isinstance(numbers, ConstantArray)
        here: Value = ConstantArray(numbers.array.ravel() == k) if known else by_element.each(g, e.equal, i, number)
        found.append(indexing.compressed(g, t, here, 0))
    return tuple(found)


def _size(shape: Sequence[ExprLike]) -> ExprLike:
    size: ExprLike = 1
    for s in shape:
        size = size * s
    return size


# ---- sparse tensors -----------------------------------------------------------------------------------------------------


@translates("SparseToDense")
def dense(n: Any, places: Value, wanted: Value, values: Value, default: Value) -> Tensor:
    g, sizes = n.g, n.g.sizes(wanted)
    i, v = g.tensor(places), g.tensor(values)
    if i.rank < 2:  # one place, or places in a vector
        i = Tensor(i.op, [*([None] if not i.rank else []), *i.dims, None]) if len(sizes) == 1 else Tensor(i.op, [None, *i.dims])
    if not v.rank:
        v = g.expanded(Tensor(v.op, [None]), [i.shape[0]])
    base = g.expanded(g.tensor(default), sizes)
    return indexing.scattered_slices(g, base, i, v, "set", n.takes[1])


@translates("SparseTensorDenseMatMul")
def sparse_matmul(n: Any, places: Value, values: Value, wanted: Value, b: Value) -> Tensor:
    """Returns the product of a sparse matrix with a dense one: rows of the latter, weighted and added."""
    g, i, v, y = n.g, n.g.tensor(places), n.g.tensor(values), n.g.tensor(b)
    sizes = g.sizes(wanted)
    row, column = (1, 0) if n.attr("adjoint_a", False) else (0, 1)
    y = shapes.turned(y) if n.attr("adjoint_b", False) else y
    taken = indexing.gathered(g, y, shapes.at(g, i, 1, column), 0, n.takes[3])
    part = by_element.each(g, e.multiply, Tensor(v.op, [*v.dims, None]), taken)
    base = shapes.filled(g, np.zeros((), part.np)[()], [sizes[row], y.shape[1]])
    to = shapes.at(g, i, 1, row)
    return indexing.scattered_slices(g, base, Tensor(to.op, [*to.dims, None]), part, "add", n.takes[0])


@translates("SparseReduceSum")
def sparse_sum(n: Any, places: Value, values: Value, wanted: Value, axes: Value) -> Tensor:
    g, v = n.g, n.g.tensor(values)
    t = indexing.scattered_slices(g, shapes.filled(g, np.zeros((), v.np)[()], g.sizes(wanted)), g.tensor(places), v, "add", n.takes[2])
    dims = reductions.dims_of(g, t, g.ints(axes))
    return g.ones(reductions.reduce_over(t, dims, reductions.total, bool(n.attr("keep_dims", False))))


@translates("SparseReshape", results="output_indices output_shape", python=True)
def sparse_reshape(n: Any, places: Value, old: Value, new: Value) -> tuple[Value, ...]:
    def run(i: Array, old: Array, new: Array) -> tuple[Array, Array]:
        new = new.copy()
        if (new < 0).any():
            new[new < 0] = np.prod(old) // max(int(np.prod(new[new >= 0])), 1)
        if np.prod(new) != np.prod(old):
            raise GraphError(f"a sparse tensor of the shape {old.tolist()} cannot have the shape {new.tolist()}")
        flat = np.ravel_multi_index(tuple(i.T), tuple(old)) if i.size else np.zeros(len(i), np.int64)
        return np.stack(np.unravel_index(flat, tuple(new)), 1) if i.size else np.zeros((len(i), len(new)), np.int64), new

    return in_python(n, run, [places, old, new], [np.int64, np.int64])


@translates("SparseFillEmptyRows", results="output_indices output_values empty_row_indicator reverse_index_map", python=True)
def fill_rows(n: Any, places: Value, values: Value, wanted: Value, default: Value) -> tuple[Value, ...]:
    def run(i: Array, v: Array, shape: Array, default: Array) -> tuple[Array, ...]:
        many = int(shape[0])
        empty = np.bincount(i[:, 0], minlength=many)[:many] == 0 if len(i) else np.ones(many, bool)
        rows = np.flatnonzero(empty)
        added = np.zeros((len(rows), len(shape)), np.int64)
        added[:, 0] = rows
        every = np.concatenate([i, added])
        order = np.argsort(every[:, 0], kind="stable")
        filled = np.concatenate([v, np.full(len(rows), default, v.dtype)])
        return every[order], filled[order], empty, np.argsort(order, kind="stable")[: len(i)]

    return step(n, run, [places, values, wanted, default], np.int64, np.dtype(values.np), np.bool_, np.int64)


@translates("SparseReorder", results="output_indices output_values", python=True)
def sparse_reorder(n: Any, places: Value, values: Value, wanted: Value) -> tuple[Value, ...]:
    def run(i: Array, v: Array, shape: Array) -> tuple[Array, Array]:
        order = np.lexsort(i.T[::-1])
        return i[order], v[order]

    return step(n, run, [places, values, wanted], np.int64, np.dtype(values.np))


# ---- ragged tensors -----------------------------------------------------------------------------------------------------


@translates("RaggedTensorToTensor", python=True)
def ragged_to_dense(n: Any, wanted: Value, values: Value, default: Value, *rows: Value) -> Value:
    """A step in Python: rows become as long as the longest one, or as the shape says, filled up with the default."""
    kinds = n.attr("row_partition_types")

    def run(shape: Array, v: Array, default: Array, *rows: Array) -> Array:
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

    return step(n, run, [wanted, values, default, *rows], np.dtype(values.np))[0]


@translates("RaggedRange", results="rt_nested_splits rt_dense_values", python=True)
def ragged_range(n: Any, first: Value, last: Value, by: Value) -> tuple[Value, ...]:
    def run(first: Array, last: Array, by: Array) -> tuple[Array, Array]:
        rows = [np.arange(a, b, d) for a, b, d in zip(*np.broadcast_arrays(*np.atleast_1d(first, last, by)), strict=True)]
        return np.cumsum([0, *map(len, rows)]), np.concatenate([np.zeros(0, first.dtype), *rows])

    return in_python(n, run, [first, last, by], [n.attr("Tsplits", np.dtype(np.int64)), np.dtype(first.np)])


@translates("RaggedGather", results="output_nested_splits output_dense_values", python=True)
def ragged_gather(n: Any, *given: Value) -> tuple[Value, ...]:
    """Returns rows by their numbers. Raises UnsupportedError for rows of rows."""
    if n.attr("OUTPUT_RAGGED_RANK") != 1:
        raise UnsupportedError("RaggedGather of rows of rows", fix="gather from a dense tensor")
    splits, values, numbers = given

    def run(splits: Array, values: Array, numbers: Array) -> tuple[Array, Array]:
        first, last = splits[numbers], splits[numbers + 1]
        places = [np.arange(a, b) for a, b in zip(first, last, strict=True)]
        return np.cumsum([0, *map(len, places)]), values[np.concatenate([np.zeros(0, np.int64), *places])]

    return step(n, run, [splits, values, numbers], np.dtype(splits.np), np.dtype(values.np))


# ---- bins and sets ------------------------------------------------------------------------------------------------------


@translates("Bincount", "DenseBincount")
def bincount(n: Any, x: Value, size: Value, weights: Value) -> Tensor:
    """Returns how often each number is there, or the sums of its weights; of a matrix by rows."""
    g, t = n.g, n.g.tensor(x)
    (many,) = g.sizes(size)
    to, out = as_dtype(n.attr("T", np.dtype(np.int32))), g.fresh(many)
    weighted = not any(g.same(s, 0) for s in weights.shape)
    w = g.expanded(g.tensor(weights), t.shape) if weighted else None
    if n.op == "Bincount":
        t, w = (None if v is None else g.reshape(v, [_size(v.shape)]) for v in (t, w))
    t = g.full(t)
    here = e.equal(iota(out, t.op.dtype), t.op)
    last = (t.dims[-1],)
    if n.attr("binary_output", False):
        return g.made(e.cast(reductions.total(here, last, "max"), to), [*t.dims[:-1], out])
    part = e.cast(here, to) if w is None else e.where(here, g.renamed(g.full(w), t.dims).op, e.filled(0, (), to))
    return g.made(reductions.total(part, last), [*t.dims[:-1], out])


@translates("RaggedBincount", python=True)
def ragged_bincount(n: Any, splits: Value, x: Value, size: Value, weights: Value) -> Value:
    """Returns, for each row of a ragged tensor, how often each number is there, or the sums of its weights."""
    dtype = np.dtype(weights.np)

    def run(splits: Array, numbers: Array, size: Array, weights: Array) -> Array:
        made = np.zeros((len(splits) - 1, int(size)), dtype)
        rows, good = np.repeat(np.arange(len(made)), np.diff(splits)), numbers < size
        binary = n.attr("binary_output", False)
        added = weights[good] if weights.size and not binary else dtype.type(1)
        (np.maximum if binary else np.add).at(made, (rows[good], numbers[good]), added)
        return made

    return in_python(n, run, [splits, x, size, weights], [dtype])[0]


@translates("LowerBound", "UpperBound")
def bound(n: Any, ordered: Value, values: Value) -> Tensor:
    g = n.g
    t, v = g.full(g.tensor(ordered)), g.tensor(values)
    v = g.apart(g.full(v), t.dims)
    v = g.renamed(v, [t.dims[0], v.dims[1]])
    found = searchsorted(t.op, v.op, t.dims[1], "left" if n.op == "LowerBound" else "right")
    return g.made(e.cast(found, as_dtype(n.attr("out_type", np.dtype(np.int32)))), v.dims)


@translates("Bucketize")
def bucketize(n: Any, x: Value) -> Tensor:
    """Returns how many of ascending boundaries are not above each number."""
    limits = n.attr("boundaries", [])

    def run(op: Op) -> Op:
        found = e.filled(0, op.axes, dtypes.int32)
        for limit in limits:
            found = found + e.cast(e.less_equal(np.float32(limit), e.cast(op, dtypes.accumulator(op.dtype))), dtypes.int32)
        return found

    return by_element.alone(n.g, run, x)


@translates("HistogramFixedWidth")
def histogram(n: Any, x: Value, ends: Value, count: Value) -> Tensor:
    g, t = n.g, n.g.tensor(x)
    (many,) = g.ints(count)
    low, high = (shapes.at(g, g.tensor(ends), 0, k).op for k in (0, 1))
    step = (e.cast(high, dtypes.float64) - e.cast(low, dtypes.float64)) / float(many)
    at = e.floor((e.cast(t.op, dtypes.float64) - e.cast(low, dtypes.float64)) / step)
    at = e.cast(e.minimum(e.maximum(at, 0.0), many - 1.0), dtypes.int32)
    out = g.fresh(many)
    to = as_dtype(n.attr("dtype", np.dtype(np.int32)))
    return g.made(reductions.total(e.cast(e.equal(iota(out), at), to), tuple(at.axes)), [out])


@translates("InTopK", "InTopKV2")
def in_top_k(n: Any, x: Value, targets: Value, k: Value = None) -> Tensor:
    """Returns whether fewer than k of a row are larger than its target; numbers that are not finite are not among the best."""
    g, t, i = n.g, n.g.full(n.g.tensor(x)), n.g.tensor(targets)
    many = n.attr("k") if k is None else int(g.known(k).ravel()[0])
    i = g.renamed(g.full(i), [t.dims[0]])
    here = e.equal(iota(t.dims[1], i.op.dtype), i.op)
    best = reductions.total(e.where(here, t.op, -np.inf), (t.dims[1],), "max")
    ahead = reductions.total(e.cast(e.less(best, t.op), dtypes.int32), (t.dims[1],))
    finite = e.logical_not(reductions.total(e.logical_not(functions.isfinite(t.op)), (t.dims[1],), "max"))
    inside = e.logical_and(e.less_equal(0, i.op), e.less(i.op, e.cast(shapes.size_op(t.shape[1]), i.op.dtype)))
    return g.made(e.logical_and(e.logical_and(inside, finite), e.less(ahead, many)), [t.dims[0]])


@translates("ListDiff", results="out idx", python=True)
def list_difference(n: Any, x: Value, y: Value) -> tuple[Value, ...]:
    def run(a: Array, b: Array) -> tuple[Array, Array]:
        there = set(b.tolist())
        kept = np.array([k for k, v in enumerate(a.tolist()) if v not in there], np.int64)
        return a[kept], kept

    return step(n, run, [x, y], np.dtype(x.np), n.attr("out_idx", np.dtype(np.int32)))


@translates("CTCGreedyDecoder", results="decoded_indices decoded_values decoded_shape log_probability", python=True)
def greedy_decoder(n: Any, x: Value, lengths: Value) -> tuple[Value, ...]:
    """A step in Python: the best class of each time, without repetitions and blanks."""
    merge = n.attr("merge_repeated", False)

    def run(logits: Array, lengths: Array) -> tuple[Array, ...]:
        blank = n.attr("blank_index", -1) % logits.shape[2]
        best, top = logits.argmax(2), logits.max(2)
        places, found, score = list[tuple[int, int]](), list[int](), np.zeros((logits.shape[1], 1), logits.dtype)
        longest = 0
        for b, length in enumerate(lengths.tolist()):
            before, many = -1, 0
            for t in range(length):
                score[b, 0] -= top[t, b]
                k = int(best[t, b])
                if k != blank and not (merge and k == before):
                    places.append((b, many))
                    found.append(k)
                    many += 1
                before = k
            longest = max(longest, many)
        at = np.array(places, np.int64).reshape(-1, 2)
        return at, np.array(found, np.int64), np.array([len(lengths), longest]), score

    return in_python(n, run, [x, lengths], [np.int64, np.int64, np.int64, np.dtype(x.np)])

"""Translators of TensorFlow's ops on segments, sparse and ragged tensors, and what counts or sorts values into bins.

Sparse tensors are three dense ones, their places, values and shape; ragged ones are values and the ends or numbers of their rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ngraph.errors import GraphError, UnsupportedError
from ngraph.frontends.positional import elementwise as by_element
from ngraph.frontends.positional import indexing, reductions, shapes
from ngraph.frontends.positional import sparse as arrays
from ngraph.frontends.positional.adjoint import adjoint
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value
from ngraph.frontends.tensorflow.host import steps
from ngraph.frontends.tensorflow.shapes import segment_count
from ngraph.frontends.tensorflow.table import Array, Ints, Length, Lengths, translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import ExprLike
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops import functions
from ngraph.ops.ctc import ctc_record
from ngraph.ops.rearrange import iota, product
from ngraph.ops.statistics import searchsorted

# ---- segments -----------------------------------------------------------------------------------------------------------


def _zeros(g: Any, like: Tensor, shape: Lengths) -> Tensor:
    return shapes.filled(g, np.zeros((), like.np)[()], shape)


def _sums(n: Any, t: Tensor, i: Value, many: ExprLike) -> Tensor:
    """Returns the sums of segments."""
    return indexing.scattered_rows(n.g, _zeros(n.g, t, [many, *t.shape[1:]]), i, t, "add", n.takes[-1])


def _counts(n: Any, i: Value, many: ExprLike, like: Tensor) -> Tensor:
    """Returns how many elements each segment has, beside a tensor's other dims."""
    ones = by_element.alone(n.g, lambda op: e.filled(1, op.axes, like.dtype), i)
    counts = _sums(n, ones, i, many)
    return Tensor(counts.op, [*counts.dims, *[None] * (like.rank - 1)])


def _totals(n: Any, t: Tensor, i: Value, many: ExprLike, root: bool | None) -> Tensor:
    """Returns the sums of segments; root None: as they are, False: over their lengths, True: over the roots of these."""
    wide = Tensor(e.cast(t.op, dtypes.accumulator(t.op.dtype)), t.dims)
    found = _sums(n, wide, i, many)

    def share(x: Op, c: Op) -> Op:
        c = e.maximum(c, 1)
        return x / (e.sqrt(c) if root else c)

    found = found if root is None else by_element.each(n.g, share, found, _counts(n, i, many, wide))
    return Tensor(e.cast(found.op, t.op.dtype), found.dims)


translates("SegmentMean")(lambda n, x, i: _totals(n, n.g.tensor(x), i, segment_count(n.g, i), False))


@translates("SegmentMax", "SegmentMin", "SegmentProd")
def segment_best(n: Any, t: Tensor, i: Value) -> Tensor:
    """Returns the largest, least or product of each segment; that of one without elements is 0, its product 1."""
    many = segment_count(n.g, i)
    kind = {"Max": "max", "Min": "min", "Prod": "multiply"}[n.op[7:]]
    start = {"max": t.op.dtype.lowest, "min": t.op.dtype.highest, "multiply": 1}[kind]
    base = shapes.filled(n.g, np.array(start).astype(t.np)[()], [many, *t.shape[1:]])
    found = indexing.scattered_rows(n.g, base, i, t, kind, n.takes[-1])
    if kind == "multiply":
        return found
    return by_element.each(n.g, lambda y, c: e.where(e.less(0, c), y, e.filled(0, (), y.dtype)), found, _counts(n, i, many, t))


_ROOTS = {"Sum": None, "Mean": False, "SqrtN": True}


@translates(*(f"SparseSegment{kind}{more}" for kind in _ROOTS for more in ("", "WithNumSegments")))
def sparse_segments(n: Any, t: Tensor, places: Value, i: Value, many: Length | None = None) -> Tensor:
    """Returns the totals of segments of rows that are taken by their numbers."""
    many = segment_count(n.g, i) if many is None else many
    rows = indexing.gathered(n.g, t, places, 0, n.takes[0])
    return _totals(n, rows, i, many, _ROOTS[n.op.removeprefix("SparseSegment").removesuffix("WithNumSegments").removesuffix("Grad")])


@translates(*(f"SparseSegment{kind}Grad" for kind in _ROOTS))
def sparse_segments_gradient(n: Any, d: Tensor, places: Value, i: Value, many: Length) -> Tensor:
    return adjoint(n.g, lambda t: sparse_segments(n, t, places, i, d.shape[0]), [many, *d.shape[1:]], d.op.dtype, d)


@translates("DynamicPartition", python=True)
def partition(n: Any, t: Tensor, numbers: Value, *, num_partitions: int) -> tuple[Tensor, ...]:
    g, i = n.g, n.g.tensor(numbers)
    if i.rank != 1:
        t, i = g.reshape(t, [product(i.shape), *t.shape[i.rank :]]), g.reshape(i, [product(i.shape)])

    def here(k: int) -> Value:
        known = isinstance(numbers, ConstantArray)
        return ConstantArray(numbers.array.ravel() == k) if known else by_element.alone(g, lambda op: e.equal(op, k), i)

    return tuple([indexing.compressed(g, t, here(k), 0) if n.wants(k) else t for k in range(num_partitions)])


# ---- sparse tensors -----------------------------------------------------------------------------------------------------


@translates("SparseToDense")
def dense(n: Any, i: Tensor, sizes: Lengths, v: Tensor, default: Tensor) -> Tensor:
    g = n.g
    if i.rank < 2:  # one place, or places in a vector
        i = Tensor(i.op, [*([None] if not i.rank else []), *i.dims, None]) if len(sizes) == 1 else Tensor(i.op, [None, *i.dims])
    if not v.rank:
        v = g.expanded(Tensor(v.op, [None]), [i.shape[0]])
    return indexing.scattered_slices(g, g.expanded(default, sizes), i, v, "set", n.takes[1])


@steps(
    "SparseSlice", gives=lambda n, i, v, *more: (np.int64, v.np, np.int64), results="output_indices output_values output_shape", python=True
)
def sparse_slice(n: Any, i: Array, v: Array, shape: Array, start: Array, size: Array) -> tuple[Array, ...]:
    return arrays.part(i, v, shape, start, size)


@translates("SparseTensorDenseMatMul")
def sparse_matmul(n: Any, i: Tensor, v: Tensor, sizes: Lengths, y: Tensor, *, adjoint_a: bool = False, adjoint_b: bool = False) -> Tensor:
    """Returns the product of a sparse matrix with a dense one: rows of the latter, weighted and added."""
    g = n.g
    row, column = (1, 0) if adjoint_a else (0, 1)
    y = shapes.turned(y) if adjoint_b else y
    taken = indexing.gathered(g, y, shapes.at(g, i, 1, column), 0, n.takes[3])
    part = by_element.each(g, e.multiply, Tensor(v.op, [*v.dims, None]), taken)
    base = _zeros(g, part, [sizes[row], y.shape[1]])
    return indexing.scattered_rows(g, base, shapes.at(g, i, 1, row), part, "add", n.takes[0])


@translates("SparseReduceSum")
def sparse_sum(n: Any, places: Tensor, v: Tensor, wanted: Lengths, axes: Ints, *, keep_dims: bool = False) -> Value:
    t = indexing.scattered_slices(n.g, _zeros(n.g, v, wanted), places, v, "add", n.takes[2])
    return n.g.ones(reductions.reduce_over(t, reductions.dims_of(n.g, t, axes), reductions.total, keep_dims))


@steps("SparseReshape", gives=(np.int64, np.int64), results="output_indices output_shape", python=True)
def sparse_reshape(n: Any, i: Array, old: Array, new: Array) -> tuple[Array, Array]:
    new = new.copy()
    if (new < 0).any():
        new[new < 0] = np.prod(old) // max(int(np.prod(new[new >= 0])), 1)
    if np.prod(new) != np.prod(old):
        raise GraphError(f"a sparse tensor of the shape {old.tolist()} cannot have the shape {new.tolist()}")
    return arrays.placed(arrays.numbered(i, old), new), new


@steps(
    "SparseFillEmptyRows",
    gives=lambda n, i, v, *more: (np.int64, v.np, np.bool_, np.int64),
    results="output_indices output_values empty_row_indicator reverse_index_map",
    python=True,
)
def fill_rows(n: Any, i: Array, v: Array, shape: Array, default: Array) -> tuple[Array, ...]:
    return arrays.with_rows(i, v, shape, default)


@steps("SparseReorder", gives=lambda n, i, v, shape: (np.int64, v.np), results="output_indices output_values", python=True)
def sparse_reorder(n: Any, i: Array, v: Array, shape: Array) -> tuple[Array, Array]:
    return arrays.ordered(i, v)


@steps("SparseAdd", gives=lambda n, i, v, *more: (np.int64, v.np, np.int64), results="sum_indices sum_values sum_shape", python=True)
def sparse_add(n: Any, i: Array, v: Array, shape: Array, j: Array, w: Array, other: Array, least: Array) -> tuple[Array, ...]:
    return *arrays.added(i, v, j, w, shape, least), shape


@steps("SparseAddGrad", gives=lambda n, d, *more: (d.np, d.np), results="a_val_grad b_val_grad", python=True)
def sparse_add_gradient(n: Any, d: Array, i: Array, j: Array, at: Array) -> list[Array]:
    """Returns the derivatives by the elements of both; those of which the sum has none get 0."""
    there = {tuple(place): v for place, v in zip(at.tolist(), d, strict=True)}
    return [np.array([there.get(tuple(place), 0) for place in places], d.dtype) for places in (i.tolist(), j.tolist())]


@steps(
    "SparseSparseMaximum",
    "SparseSparseMinimum",
    gives=lambda n, i, v, *more: (np.int64, v.np),
    results="output_indices output_values",
    python=True,
)
def sparse_best(n: Any, i: Array, v: Array, shape: Array, j: Array, w: Array, other: Array) -> tuple[Array, Array]:
    at, a, b = arrays.met(i, v, j, w, shape)
    return at, (np.maximum if n.op.endswith("Maximum") else np.minimum)(a, b)


@steps(
    "SparseConcat",
    gives=lambda n, *given: (np.int64, given[n.attr("N")].np, np.int64),
    results="output_indices output_values output_shape",
    python=True,
)
def sparse_concat(n: Any, *given: Array, N: int, concat_dim: int) -> tuple[Array, ...]:
    return arrays.joined(given[:N], given[N : 2 * N], given[2 * N :], concat_dim)


@steps(
    "SparseSplit",
    gives=lambda n, k, i, v, *more: [kind for kind in (np.int64, v.np, np.int64) for _ in range(n.attr("num_split"))],
    results="output_indices*num_split output_values*num_split output_shape*num_split",
    python=True,
)
def sparse_split(n: Any, dim: Array, i: Array, v: Array, shape: Array, *, num_split: int) -> list[Array]:
    found = arrays.parts(i, v, shape, int(dim), num_split)
    return [part[k] for k in range(3) for part in found]


steps("SparseSoftmax", gives=lambda n, i, v, shape: [v.np], python=True)(lambda n, i, v, shape: arrays.softmax(i, v, shape))


@steps("SparseReduceMax", gives=lambda n, i, v, *more: [v.np], python=True)
def sparse_max(n: Any, i: Array, v: Array, shape: Array, axes: Array, *, keep_dims: bool = False) -> Array:
    return arrays.largest(i, v, shape, axes, keep_dims)


_BY_PLACES = {"Add": e.add, "Mul": e.multiply, "Div": e.divide}


@translates(*(f"SparseDenseCwise{kind}" for kind in _BY_PLACES))
def sparse_and_dense(n: Any, i: Tensor, v: Tensor, sizes: Lengths, y: Tensor) -> Tensor:
    return by_element.each(n.g, _BY_PLACES[n.op[16:]], v, indexing.gathered_slices(n.g, n.g.expanded(y, sizes), i, 0, n.takes[3]))


translates("SparseTensorDenseAdd")(lambda n, i, v, sizes, y: indexing.scattered_slices(n.g, y, i, v, "add", n.takes[3]))


@steps("SparseFillEmptyRowsGrad", gives=lambda n, at, d: (d.np, d.np), results="d_values d_default_value", python=True)
def fill_rows_gradient(n: Any, at: Array, d: Array) -> tuple[Array, Array]:
    return d[at], np.delete(d, at).sum()


# ---- ragged tensors -----------------------------------------------------------------------------------------------------


@steps("RaggedTensorToTensor", gives=lambda n, shape, v, *more: [v.np], python=True)
def ragged_to_dense(n: Any, shape: Array, v: Array, default: Array, *rows: Array, row_partition_types: Any) -> Array:
    return arrays.dense_rows(shape, v, default, rows, row_partition_types)


@steps(
    "RaggedTensorToSparse",
    gives=lambda n, *given: (np.int64, given[-1].np, np.int64),
    results="sparse_indices sparse_values sparse_dense_shape",
    python=True,
)
def ragged_to_sparse(n: Any, *given: Array) -> tuple[Array, Array, Array]:
    at, shape = arrays.places_in_rows(given[:-1], given[-1].shape)
    return at, given[-1].ravel(), shape


@steps(
    "RaggedRange", gives=lambda n, a, *more: (n.attr("Tsplits", np.int64), a.np), results="rt_nested_splits rt_dense_values", python=True
)
def ragged_range(n: Any, first: Array, last: Array, by: Array) -> tuple[Array, Array]:
    rows = [np.arange(a, b, d) for a, b, d in zip(*np.broadcast_arrays(*np.atleast_1d(first, last, by)), strict=True)]
    return np.cumsum([0, *map(len, rows)]), np.concatenate([np.zeros(0, first.dtype), *rows])


def _ragged_rows(n: Any, splits: Value, values: Value, *more: Value) -> tuple[Any, Any]:
    """Returns the dtypes of splits and values. Raises UnsupportedError for rows of rows."""
    if n.attr("OUTPUT_RAGGED_RANK") != 1:
        raise UnsupportedError("RaggedGather of rows of rows", fix="gather from a dense tensor")
    return splits.np, values.np


@steps("RaggedGather", gives=_ragged_rows, results="output_nested_splits output_dense_values", python=True)
def ragged_gather(n: Any, splits: Array, values: Array, numbers: Array) -> tuple[Array, Array]:
    """Returns rows by their numbers."""
    places = [np.arange(a, b) for a, b in zip(splits[numbers], splits[numbers + 1], strict=True)]
    return np.cumsum([0, *map(len, places)]), values[np.concatenate([np.zeros(0, np.int64), *places])]


# ---- bins and sets ------------------------------------------------------------------------------------------------------


@translates("Bincount", "DenseBincount")
def bincount(n: Any, t: Tensor, many: Length, weights: Value, *, T: DType = dtypes.int32, binary_output: bool = False) -> Value:
    """Returns how often each number is there, or the sums of its weights; of a matrix by rows."""
    g, out = n.g, n.g.fresh(many)
    weighted = not any(g.same(s, 0) for s in weights.shape)
    w = g.expanded(g.tensor(weights), t.shape) if weighted else t
    if n.op == "Bincount":
        t, w = (g.reshape(v, [product(v.shape)]) for v in (t, w))
    t = g.full(t)
    here = e.equal(iota(out, t.op.dtype), t.op)
    last = (t.dims[-1],)
    if binary_output:
        return g.made(e.cast(reductions.total(here, last, "max"), T), [*t.dims[:-1], out])
    part = e.where(here, g.renamed(g.full(w), t.dims).op, e.filled(0, (), T)) if weighted else e.cast(here, T)
    return g.made(reductions.total(part, last), [*t.dims[:-1], out])


@steps("RaggedBincount", gives=lambda n, splits, x, size, weights: [weights.np], python=True)
def ragged_bincount(n: Any, splits: Array, numbers: Array, size: Array, weights: Array, *, binary_output: bool = False) -> Array:
    """Returns, for each row of a ragged tensor, how often each number is there, or the sums of its weights."""
    many = len(splits) - 1
    return arrays.bins(np.repeat(np.arange(many), np.diff(splits)), many, numbers, int(size), weights, binary_output)


@steps("SparseBincount", gives=lambda n, i, v, shape, size, weights: [weights.np], python=True)
def sparse_bincount(n: Any, i: Array, v: Array, shape: Array, size: Array, weights: Array, *, binary_output: bool = False) -> Array:
    """Returns the same of a sparse vector, or of each row of a sparse matrix."""
    rows = len(shape) > 1
    made = arrays.bins(i[:, 0] * rows, int(shape[0]) if rows else 1, v, int(size), weights, binary_output)
    return made if rows else made[0]


@translates("LowerBound", "UpperBound")
def bound(n: Any, ordered: Tensor, values: Tensor, *, out_type: DType = dtypes.int32) -> Value:
    g, t = n.g, n.g.full(ordered)
    v = g.apart(g.full(values), t.dims)
    v = g.renamed(v, [t.dims[0], v.dims[1]])
    found = searchsorted(t.op, v.op, t.dims[1], "left" if n.op == "LowerBound" else "right")
    return g.made(e.cast(found, out_type), v.dims)


@translates("Bucketize")
def bucketize(g: Any, x: Value, *, boundaries: Any) -> Tensor:
    """Returns how many of ascending boundaries are not above each number."""

    def run(op: Op) -> Op:
        found = e.filled(0, op.axes, dtypes.int32)
        for limit in boundaries or []:
            found = found + e.cast(e.less_equal(np.float32(limit), e.cast(op, dtypes.accumulator(op.dtype))), dtypes.int32)
        return found

    return by_element.alone(g, run, x)


@translates("HistogramFixedWidth")
def histogram(g: Any, t: Tensor, ends: Tensor, count: Ints, *, dtype: DType = dtypes.int32) -> Value:
    (many,) = count
    low, high = (e.cast(shapes.at(g, ends, 0, k).op, dtypes.float64) for k in (0, 1))
    at = e.floor((e.cast(t.op, dtypes.float64) - low) / ((high - low) / float(many)))
    at = e.cast(e.minimum(e.maximum(at, 0.0), many - 1.0), dtypes.int32)
    out = g.fresh(many)
    return g.made(reductions.total(e.cast(e.equal(iota(out), at), dtype), tuple(at.axes)), [out])


@translates("InTopK", "InTopKV2")
def in_top_k(n: Any, x: Tensor, targets: Tensor, k: Ints | None = None) -> Value:
    """Returns whether fewer than k of a row are larger than its target; numbers that are not finite are not among the best."""
    g, t = n.g, n.g.full(x)
    i = g.renamed(g.full(targets), [t.dims[0]])
    last = (t.dims[1],)
    here = e.equal(iota(t.dims[1], i.op.dtype), i.op)
    best = reductions.total(e.where(here, t.op, -np.inf), last, "max")
    ahead = reductions.total(e.cast(e.less(best, t.op), dtypes.int32), last)
    finite = e.logical_not(reductions.total(e.logical_not(functions.isfinite(t.op)), last, "max"))
    inside = e.logical_and(e.less_equal(0, i.op), e.less(i.op, e.cast(shapes.size_op(t.shape[1]), i.op.dtype)))
    few = e.less(ahead, n.attr("k") if k is None else k[0])
    return g.made(e.logical_and(e.logical_and(inside, finite), few), [t.dims[0]])


@steps("ComputeAccidentalHits", gives=(np.int32, np.int64, np.float32), results="indices ids weights", python=True)
def accidental_hits(n: Any, true: Array, sampled: Array) -> tuple[Array, ...]:
    """Returns rows of true classes with places of sampled classes that are among them, and the weights that take these out."""
    row, _, place = np.nonzero(true[:, :, None] == sampled)
    return row, place, np.full(len(row), np.finfo(np.float32).min)


@steps("ListDiff", gives=lambda n, x, y: (x.np, n.attr("out_idx", np.int32)), results="out idx", python=True)
def list_difference(n: Any, a: Array, b: Array) -> tuple[Array, Array]:
    there = set(b.tolist())
    kept = np.array([k for k, v in enumerate(a.tolist()) if v not in there], np.int64)
    return a[kept], kept


@translates("CTCLoss", results="loss gradient")
def ctc_loss(n: Any, x: Tensor, i: Tensor, v: Tensor, steps: Tensor) -> tuple[Value, Value]:
    """Returns the losses of scores [time, batch, classes] and labels, a sparse matrix, and their derivative by the scores."""
    plain = {"preprocess_collapse_repeated": False, "ctc_merge_repeated": True, "ignore_longer_outputs_than_inputs": False}
    if any(n.attr(name, said) != said for name, said in plain.items()):
        raise UnsupportedError(f"{n.op} with other attributes than {plain}", fix="leave them out")
    g, t = n.g, n.g.full(x)
    time, batch, classes = t.dims
    symbols = g.fresh(time.size)  # there is no alignment of more labels than steps
    labels = indexing.scattered_slices(g, shapes.filled(g, np.int32(0), [batch.size, time.size]), i, v, "set", n.takes[1])
    counts = _sums(n, g.expanded(g.tensor(ConstantArray(np.array(1, np.int32))), v.shape), shapes.at(g, i, 1, 0), batch.size)
    rows = [g.renamed(g.full(u), dims).op for u, dims in ((labels, [batch, symbols]), (steps, [batch]), (counts, [batch]))]
    blank = g.number(classes.size) - 1

    def run(scores: Tensor) -> Tensor:
        return g.made(ctc_record.build(scores.op, *rows, time=time, classes=classes, symbols=symbols, blank=blank), [batch])

    return run(t), adjoint(g, run, (), None, by_element.alone(g, lambda op: e.filled(1, op.axes, t.op.dtype), steps), t)


@steps("EditDistance", gives=(np.float32,), python=True)
def edit_distance(n: Any, i: Array, v: Array, shape: Array, j: Array, w: Array, other: Array, *, normalize: bool = True) -> Array:
    """Returns how many symbols are put in, taken out or changed on the way from each row to the true one."""
    made = np.zeros(np.maximum(shape, other)[:-1], np.float32)
    for at in np.unique(np.concatenate([i, j])[:, :-1], axis=0):
        a, b = v[(i[:, :-1] == at).all(1)], w[(j[:, :-1] == at).all(1)]
        many = arrays.steps_between(a, b)
        made[tuple(at)] = many if not normalize else many / len(b) if len(b) else np.inf
    return made


@steps(
    "CTCGreedyDecoder",
    gives=lambda n, x, lengths: (np.int64, np.int64, np.int64, x.np),
    results="decoded_indices decoded_values decoded_shape log_probability",
    python=True,
)
def greedy_decoder(n: Any, logits: Array, lengths: Array, *, merge_repeated: bool = False, blank_index: int = -1) -> tuple[Array, ...]:
    """Returns the best class of each time, without repetitions and blanks, as a sparse matrix; and the sums of their logits, negated."""
    best, times = logits.argmax(2).T, np.arange(len(logits)) < lengths[:, None]
    kept = times & (best != blank_index % logits.shape[2])
    if merge_repeated:
        kept[:, 1:] &= best[:, 1:] != best[:, :-1]
    many = kept.sum(1)
    at = np.stack([np.repeat(np.arange(len(many)), many), np.concatenate([np.zeros(0, np.int64), *map(np.arange, many)])], 1)
    score = -np.where(times, logits.max(2).T, 0).sum(1, keepdims=True)
    return at, best[kept], np.array([len(lengths), many.max(initial=0)]), score

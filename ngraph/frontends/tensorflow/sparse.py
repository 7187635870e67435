"""Translators of TensorFlow's ops on segments, sparse and ragged tensors, and what counts or sorts values into bins.

Sparse tensors are three dense ones, their places, values and shape; ragged ones are values and the ends or numbers of their rows.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ngraph.errors import UnsupportedError
from ngraph.frontends.positional import ctc, indexing, reductions, sets, shapes
from ngraph.frontends.positional import elementwise as by_element
from ngraph.frontends.positional import sparse as arrays
from ngraph.frontends.positional.adjoint import adjoint
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value
from ngraph.frontends.tensorflow.host import rows_of_steps
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


_BY_PLACES = {"Add": e.add, "Mul": e.multiply, "Div": e.divide}


@translates(*(f"SparseDenseCwise{kind}" for kind in _BY_PLACES))
def sparse_and_dense(n: Any, i: Tensor, v: Tensor, sizes: Lengths, y: Tensor) -> Tensor:
    return by_element.each(n.g, _BY_PLACES[n.op[16:]], v, indexing.gathered_slices(n.g, n.g.expanded(y, sizes), i, 0, n.takes[3]))


translates("SparseTensorDenseAdd")(lambda n, i, v, sizes, y: indexing.scattered_slices(n.g, y, i, v, "add", n.takes[3]))


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


# ---- steps in Python ----------------------------------------------------------------------------------------------------


def _each(n: Any, k: Array, i: Value, v: Value, shape: Value) -> list[Any]:
    """Returns the dtypes of so many places, values and shapes."""
    return [kind for kind in (np.int64, v.np, np.int64) for _ in range(n.attr("num_split"))]


def _row_of_rows(n: Any, splits: Value, values: Value, *more: Value) -> tuple[Any, Any]:
    """Returns the dtypes of splits and values. Raises UnsupportedError for rows of rows."""
    if n.attr("OUTPUT_RAGGED_RANK") != 1:
        raise UnsupportedError("RaggedGather of rows of rows", fix="gather from a dense tensor")
    return splits.np, values.np


def _of_paths(n: Any, x: Value, lengths: Value) -> list[Any]:
    """Returns the dtypes of the places, values and shapes of all ranks, and of their scores."""
    return [np.int64] * 3 * n.attr("top_paths", 1) + [x.np]


_SPARSE, _OUT = "int64 1 int64", "output_indices output_values output_shape"
_MANY = "output_indices*num_split output_values*num_split output_shape*num_split"
_PATHS = "decoded_indices*top_paths decoded_values*top_paths decoded_shape*top_paths log_probability"
_SETS = "result_indices result_values result_shape"
rows_of_steps(
    {
        "SparseSlice": (arrays.part, _SPARSE, _OUT),
        "SparseReshape": (arrays.reshaped, "int64 int64", "output_indices output_shape"),
        "SparseReorder": (lambda i, v, shape: arrays.ordered(i, v), "int64 1", "output_indices output_values"),
        "SparseAdd": (arrays.added, _SPARSE, "sum_indices sum_values sum_shape"),
        "SparseAddGrad": (arrays.added_gradient, "0 0", "a_val_grad b_val_grad"),
        "SparseSparseMaximum": (partial(arrays.best, np.maximum), "int64 1", "output_indices output_values"),
        "SparseSparseMinimum": (partial(arrays.best, np.minimum), "int64 1", "output_indices output_values"),
        "SparseConcat": (arrays.joined, lambda n, *given: (np.int64, given[n.attr("N")].np, np.int64), _OUT),
        "SparseSplit": (arrays.parts, _each, _MANY),
        "SparseSoftmax": (arrays.softmax, "1", ""),
        "SparseReduceMax": (arrays.largest, "1", ""),
        "SparseFillEmptyRows": (
            arrays.with_rows, "int64 1 bool int64", "output_indices output_values empty_row_indicator reverse_index_map"
        ),
        "SparseFillEmptyRowsGrad": (lambda at, d: (d[at], np.delete(d, at).sum()), "1 1", "d_values d_default_value"),
        "SparseBincount": (arrays.sparse_bins, "4", ""),
        "RaggedBincount": (arrays.ragged_bins, "3", ""),
        "RaggedTensorToTensor": (arrays.dense_rows, "1", ""),
        "RaggedTensorToSparse": (arrays.sparse_rows, "int64 -1 int64", "sparse_indices sparse_values sparse_dense_shape"),
        "RaggedRange": (arrays.ranges, "Tsplits=int64 0", "rt_nested_splits rt_dense_values"),
        "RaggedGather": (arrays.rows_at, _row_of_rows, "output_nested_splits output_dense_values"),
        "ComputeAccidentalHits": (arrays.hits, "int32 int64 float32", "indices ids weights"),
        "ListDiff": (arrays.difference, "0 out_idx=int32", "out idx"),
        "EditDistance": (arrays.distances, "float32", ""),
        "CTCGreedyDecoder": (ctc.best_path, "int64 int64 int64 0", "decoded_indices decoded_values decoded_shape log_probability"),
        "CTCBeamSearchDecoder": (ctc.beam_search, _of_paths, _PATHS),
        "SetSize": (sets.sizes, "int32", ""),
        "DenseToDenseSetOperation": (partial(sets.combined, sparse=(False, False)), "int64 0 int64", _SETS),
        "DenseToSparseSetOperation": (partial(sets.combined, sparse=(False, True)), "int64 0 int64", _SETS),
        "SparseToSparseSetOperation": (partial(sets.combined, sparse=(True, True)), _SPARSE, _SETS),
        "SparseCross": (sets.cross, "int64 out_type=int64 int64", _OUT),
        "SparseCrossV2": (partial(sets.cross, hashed_output=False), "int64 object int64", _OUT),
        "IsotonicRegression": (sets.descending, "output_dtype=float32 int32", "output segments"),
    }
)  # fmt: skip

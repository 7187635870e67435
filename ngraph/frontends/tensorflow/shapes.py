"""Translators of TensorFlow's ops that move elements, and of what is made of sizes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.positional import elementwise as by_element
from ngraph.frontends.positional import indexing, shapes
from ngraph.frontends.positional.adjoint import adjoint
from ngraph.frontends.positional.reductions import dims_of
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value, settled
from ngraph.frontends.tensorflow.folding import stitch_order, strided_items
from ngraph.frontends.tensorflow.table import Array, Dim, Ints, Length, Lengths, rows, translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import ExprLike
from ngraph.ops import elementwise as e
from ngraph.ops.indexing import gather as gather_op
from ngraph.ops.indexing import scatter
from ngraph.ops.rearrange import iota, product

rows(
    {
        "Const": lambda n: n.library.constant(n.node.proto),
        "Shape ShapeN": lambda n, *xs: tuple([shapes.shape_of(x, dtype=n.attr("out_type", np.int32)) for x in xs]),
        "Size": lambda n, x: settled(product(x.shape), n.attr("out_type", np.int32)),
        "Rank": lambda g, x: ConstantArray(np.array(x.rank, np.int32)),
        "Reshape": lambda g, x, wanted: shapes.reshaped(g, g.tensor(x), g.sizes(wanted), False),
        "ExpandDims": lambda g, x, axis: shapes.unsqueezed(g.tensor(x), g.ints(axis)),
        "Squeeze": lambda n, x: shapes.squeezed(n.g, n.g.tensor(x), n.attr("squeeze_dims") or n.attr("axis") or None),
        "Transpose ConjugateTranspose": lambda g, x, order: shapes.transposed(g.tensor(x), [k % x.rank for k in g.ints(order)]),
        "BroadcastTo": lambda g, x, wanted: g.expanded(g.tensor(x), g.sizes(wanted)),
        "BroadcastArgs": lambda g, a, b: settled(shapes.broadcast_shape(g, g.sizes(a), g.sizes(b)), a.np),
        "Tile": lambda g, x, times: shapes.tiled(g, g.tensor(x), g.sizes(times)),
        "Fill": lambda g, wanted, value: g.expanded(g.tensor(value), g.sizes(wanted)),
        "Empty": lambda n, wanted: shapes.filled(n.g, np.zeros((), n.attr("dtype"))[()], n.g.sizes(wanted)),
        "Range": lambda g, *ends: shapes.ranged(g, *ends),
        "Pack": lambda n, *xs: shapes.stacked(n.g, list(xs), n.attr("axis", 0) % (xs[0].rank + 1)),
        "Reverse": lambda g, x, flags: shapes.flipped(g, g.tensor(x), np.flatnonzero(g.known(flags)).tolist()),
        "ReverseV2": lambda g, x, dims: shapes.flipped(g, g.tensor(x), dims_of(g, x, g.ints(dims))),
        "ReverseSequence": lambda n, x, lengths: indexing.reversed_parts(
            n.g, x, lengths, n.attr("batch_dim", 0), n.attr("seq_dim"), n.takes[0]
        ),
        "Roll": lambda g, x, shifts, dims: shapes.rolled(g, g.tensor(x), g.ints(shifts), dims_of(g, x, g.ints(dims))),
        "GatherNd": lambda n, x, i: indexing.gathered_slices(n.g, x, i, 0, n.takes[0]),
    }
)


@translates("Placeholder", "PlaceholderV2")
def lacking(n: Any) -> Value:
    raise GraphError(f"the placeholder {n.name!r} is needed, and is not an input of what is called", fix="feed it by its name")


@translates("EnsureShape")
def ensure_shape(n: Any, x: Value) -> Value:
    said = n.attr("shape")
    if said is not None and (len(said) != x.rank or not all(s is None or n.g.same(s, m) for s, m in zip(said, x.shape, strict=True))):
        raise GraphError(f"{n.g.described(x)} where the shape {list(said)} is ensured")
    return x


# ---- slices -------------------------------------------------------------------------------------------------------------


def _ends(n: Any, begin: Value, end: Value) -> tuple[list[Any], list[Any]]:
    """Returns where a StridedSlice begins and ends. A place that is computed stays one where single elements are taken alone."""
    g = n.g
    if isinstance(begin, Tensor):
        count = g.number(begin.shape[0])
        masks = {k: int(n.attr(f"{k}_mask", 0)) for k in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
        free = masks["shrink_axis"] | masks["begin"] & masks["end"] | masks["ellipsis"] | masks["new_axis"]
        if not ~free & (1 << count) - 1:
            return [shapes.at(g, begin, 0, k) for k in range(count)], [None] * count
    return g.sizes(begin), g.sizes(end)


@translates("StridedSlice")
def strided_slice(n: Any, t: Tensor, begin: Value, end: Value, strides: Ints) -> Tensor:
    g = n.g
    items = strided_items(n, t.rank, *_ends(n, begin, end), strides)
    at, new = 0, list[int]()
    for place, item in enumerate(items):
        if item is None:
            new.append(place - sum(1 for i in items[:place] if not isinstance(i, slice) and i is not None))
            continue
        if at >= t.rank:
            raise GraphError(f"a slice of {len(items)} dims of {g.show(t)}")
        if isinstance(item, slice):
            if item != slice(None) and item != slice(None, None, 1):
                step = item.step or 1
                first = item.start if item.start is not None else (0 if step > 0 else shapes.TO_THE_END)
                last = item.stop if item.stop is not None else (shapes.TO_THE_END if step > 0 else -shapes.TO_THE_END)
                t = shapes.slices(g, t, [first], [last], [at], [step])
            at += 1
        elif isinstance(item, Tensor):
            t = indexing.gathered(g, t, item, at, n.takes[0])
        else:
            i = item
            if g.truth("lt", i, 0):
                i = i + t.shape[at]
            if g.truth("lt", i, 0) or g.truth("le", t.shape[at], i):
                raise indexing.out_of_bounds(g, item, g.hint(t.shape[at]), indexing.dim_named(at, n.takes[0]))
            t = shapes.at(g, t, at, i)
    return shapes.unsqueezed(t, new) if new else t


@translates("TensorStridedSliceUpdate")
def strided_slice_written(n: Any, x: Tensor, begin: Value, end: Value, strides: Ints, value: Tensor) -> Tensor:
    """Returns x with a value in the places that `strided_slice` reads."""
    g, t = n.g, n.g.full(x)
    along = g.fresh(product(t.shape))
    numbered = shapes.reshaped(g, Tensor(iota(along, dtypes.int64), [along]), t.shape)
    places = strided_slice(n, numbered, begin, end, strides)
    many = product(places.shape)
    if many == 0:
        return t
    updates = shapes.reshaped(g, g.expanded(value, places.shape), [many])
    flat, at = shapes.reshaped(g, t, [along.size]), shapes.reshaped(g, places, [many])
    return shapes.reshaped(g, indexing.scattered_rows(g, flat, at, updates, "set", n.takes[0]), t.shape)


@translates("Slice")
def slice_(n: Any, t: Tensor, begin: Value, sizes: Lengths) -> Tensor:
    g = n.g
    if isinstance(begin, Tensor) and not g.few(begin):  # a place that the call computes
        return _moving_slice(n, t, begin, sizes)
    for k, (first, many) in enumerate(zip(g.sizes(begin), sizes, strict=True)):
        rest = isinstance(many, int) and many == -1
        t = shapes.sliced(g, t, k, first, 1, t.shape[k] - first if rest else many)
    return t


def _moving_slice(n: Any, t: Tensor, begin: Tensor, sizes: Lengths) -> Tensor:
    g = n.g
    for k, many in enumerate(sizes):
        if isinstance(many, int) and many == -1 or g.same(many, t.shape[k]):
            continue
        first = shapes.at(g, begin, 0, k)
        axis = g.fresh(many)
        place = Tensor(iota(axis, dtypes.int64) + e.cast(first.op, dtypes.int64), [axis])
        t = indexing.gathered(g, t, place, k, n.takes[0])
    return t


@translates("Split")
def split(g: Any, k: Dim, t: Tensor, *, num_split: int) -> tuple[Tensor, ...]:
    return tuple(shapes.split(g, t, k, [t.shape[k] // num_split] * num_split))


@translates("SplitV")
def split_v(g: Any, t: Tensor, wanted: Lengths, k: Dim) -> tuple[Tensor, ...]:
    open_ = [isinstance(s, int) and s == -1 for s in wanted]
    rest = t.shape[k]
    for s, free in zip(wanted, open_, strict=True):
        rest = rest if free else rest - s
    return tuple(shapes.split(g, t, k, [rest if free else s for s, free in zip(wanted, open_, strict=True)]))


@translates("Unpack")
def unpack(g: Any, t: Tensor, *, axis: int = 0) -> tuple[Tensor, ...]:
    k = axis % t.rank
    return tuple(shapes.at(g, t, k, i) for i in range(g.number(t.shape[k])))


@translates("ConcatV2", "Concat", "ParallelConcat")
def concat(n: Any, *given: Value) -> Tensor:
    first = [ConstantArray(np.array(0))] if n.op == "ParallelConcat" else []
    axis, *xs = (*first, *given) if n.op != "ConcatV2" else (given[-1], *given[:-1])
    ts = [n.g.tensor(x) for x in xs]
    (k,) = dims_of(n.g, ts[0], n.g.ints(axis))
    return shapes.joined(n.g, ts, k)


@translates("Pad", "PadV2", "MirrorPad")
def pad(n: Any, t: Tensor, sizes: Lengths, fill: Array | None = None, *, mode: str = "") -> Tensor:
    number = 0 if fill is None else fill.item()
    for k in range(t.rank):
        before, after = sizes[2 * k : 2 * k + 2]
        if before == 0 and after == 0:
            continue
        if mode == "SYMMETRIC":  # mirrored at the ends, which are repeated
            size, first, last = n.g.numbers([t.shape[k], before, after])
            place = np.pad(np.arange(size), (first, last), "symmetric")
            t = indexing.gathered(n.g, t, ConstantArray(place), k, n.takes[0])
        else:
            t = shapes.padded(n.g, t, k, before, after, "reflect" if mode == "REFLECT" else "constant", number)
    return t


@translates("MirrorPadGrad")
def pad_gradient(n: Any, d: Tensor, sizes: Ints) -> Tensor:
    shape = [s - (before + after) for s, before, after in zip(d.shape, sizes[::2], sizes[1::2], strict=True)]
    return adjoint(n.g, lambda x: pad(n, x, sizes, mode=n.attr("mode")), shape, d.op.dtype, d)


# ---- gathers and scatters -----------------------------------------------------------------------------------------------


@translates("GatherV2", "Gather")
def gather(n: Any, t: Tensor, i: Value, k: Dim = 0, *, batch_dims: int = 0) -> Tensor:
    batch = batch_dims + i.rank if batch_dims < 0 else batch_dims
    if not batch:
        return indexing.gathered(n.g, t, i, k, n.takes[0])
    g = n.g
    t = g.full(t, [*range(batch), k])  # the first dims are the same index in both
    i = g.full(g.apart(g.tensor(i), t.dims), range(batch))
    i = g.renamed(i, [*t.dims[:batch], *i.dims[batch:]])
    index = indexing.index_along(g, i.op, None, t.dims[k], indexing.dim_named(k, n.takes[0]), negative=False)
    op = gather_op(t.op, index, axes=(t.dims[k],), mode="clip")
    return g.made(op, [*t.dims[:k], *i.dims[batch:], *t.dims[k + 1 :]])


_COMBINED = {"Update": "set", "Add": "add", "Sub": "add", "Max": "max", "Min": "min"}


@translates(*(f"TensorScatter{kind}" for kind in _COMBINED), "ScatterNdNonAliasingAdd")
def tensor_scatter(n: Any, x: Value, i: Value, u: Value) -> Tensor:
    kind = n.op.removeprefix("TensorScatter").removeprefix("ScatterNdNonAliasing")
    if kind == "Sub":
        u = by_element.alone(n.g, by_element.FUNCTIONS["negative"], u)
    return indexing.scattered_slices(n.g, x, i, u, _COMBINED[kind], n.takes[0])


@translates("ScatterNd")
def scatter_nd(n: Any, i: Value, u: Value, wanted: Lengths) -> Tensor:
    flags = u.np == np.bool_  # the sum of which is whether one is true
    u = by_element.casted(n.g, u, np.dtype(np.uint8)) if flags else u
    zeros = shapes.filled(n.g, np.zeros((), u.np)[()], wanted)
    found = indexing.scattered_slices(n.g, zeros, i, u, "max" if flags else "add", n.takes[0])
    return by_element.alone(n.g, lambda op: e.cast(op, dtypes.bool_), found) if flags else found


def segment_count(g: Any, i: Value) -> int:
    """Returns how many segments there are of sorted numbers: the last one and 1."""
    numbers = g.known(i)
    return int(numbers[-1]) + 1 if numbers.size else 0


@translates("SegmentSum", "UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd")
def segments(n: Any, t: Tensor, i: Value, many: Length | None = None) -> Tensor:
    many = segment_count(n.g, i) if many is None else many
    kind = {"Sum": "add", "Max": "max", "Min": "min", "Prod": "multiply"}[n.op.rpartition("Segment")[2]]
    ends = (ml_dtypes.finfo if t.op.dtype.is_float else np.iinfo)(t.np)  # finite, as TensorFlow leaves segments without elements
    start = np.array({"add": 0, "multiply": 1, "max": ends.min, "min": ends.max}[kind], t.np)[()]
    numbers = n.g.tensor(i)
    base = shapes.filled(n.g, start, [many, *t.shape[numbers.rank :]])
    # rows of numbers below 0 are left out: their elements become what changes nothing
    inside = Tensor(e.less_equal(0, numbers.op), [*numbers.dims, *[None] * (t.rank - numbers.rank)])
    t = by_element.each(n.g, lambda c, a: e.where(c, a, e.filled(start, (), a.dtype)), inside, t)
    return indexing.scattered_rows(n.g, base, Tensor(e.maximum(numbers.op, 0), numbers.dims), t, kind, n.takes[0])


@translates("OneHot")
def one_hot(g: Any, t: Tensor, depth: Length, on: Tensor, off: Tensor, *, axis: int = -1) -> Tensor:
    return shapes.one_hot(g, t, depth, axis, on.op, off.op)


@translates("TopKV2", "TopK", results="values indices")
def top_k(g: Any, t: Tensor, count: Length | None = None, *, k: int, index_type: DType = dtypes.int32) -> tuple[Tensor, Tensor]:
    values, places = indexing.top_k(g, t, t.rank - 1, k if count is None else count, True)
    return values, Tensor(e.cast(places.op, index_type), places.dims)


@translates("NthElement")
def nth(g: Any, t: Tensor, k: Ints, *, reverse: bool = False) -> Tensor:
    """Returns the element that has k smaller ones along the last dim, or as many larger ones."""
    (many,) = k
    return shapes.at(g, indexing.top_k(g, t, t.rank - 1, many + 1, reverse)[0], t.rank - 1, many)


@translates("UnravelIndex")
def unravelled(g: Any, i: Tensor, sizes: Lengths) -> Value:
    """Returns the places, dim by dim, of elements by their numbers."""

    def along(k: int) -> Value:
        inner, own = (shapes.size_op(s, i.op.dtype) for s in (product(sizes[k + 1 :]), sizes[k]))
        return by_element.alone(g, lambda v: e.remainder(e.floordivide(v, inner), own), i)

    return shapes.stacked(g, [along(k) for k in range(len(sizes))])


@translates("ApproxTopK", results="values indices")
def approximate_top_k(g: Any, t: Tensor, *, k: int, reduction_dimension: int = -1, is_max_k: bool = True) -> tuple[Tensor, Tensor]:
    """Returns the best elements along a dim, all of which are found."""
    values, places = indexing.top_k(g, t, reduction_dimension % t.rank, k, is_max_k)
    return values, Tensor(e.cast(places.op, dtypes.int32), places.dims)


translates("Where", python=True)(lambda g, x: shapes.permuted(indexing.nonzero(g, g.tensor(x)), 1, 0))


@translates("Unique", "UniqueV2", "UniqueWithCounts", results="y idx count", python=True)
def unique(n: Any, x: Value, axis: Value = None, *, out_idx: DType = dtypes.int32) -> tuple[Value, ...]:
    def run(a: Any) -> Any:
        y, _, inverse, counts = indexing.unique(a, None, False)
        return y, inverse, counts

    return tuple(n.g.host(n.op, run, [x], [x.np, out_idx.np, out_idx.np]))


@translates("InvertPermutation")
def invert(g: Any, x: Tensor) -> Tensor:
    t = g.full(x)
    out = g.fresh(t.dims[0].size)
    op = scatter.build(e.filled(0, [out], t.op.dtype), t.op, iota(t.dims[0], t.op.dtype), axes=(out,), combine="set", mode="clip")
    return g.made(op, [out])


# ---- blocks and diagonals -----------------------------------------------------------------------------------------------


@translates("DepthToSpace", "SpaceToDepth")
def blocks(n: Any, t: Tensor, *, block_size: int, data_format: str = "NHWC") -> Tensor:
    last = data_format == "NHWC"
    t = shapes.permuted(t, 0, 3, 1, 2) if last else t
    made = (shapes.depth_to_space if n.op == "DepthToSpace" else shapes.space_to_depth)(n.g, t, block_size, True)
    return shapes.permuted(made, 0, 2, 3, 1) if last else made


@translates("BatchToSpaceND")
def batch_to_space(g: Any, t: Tensor, by: Ints, crops: Array) -> Tensor:
    m = len(by)
    batch, *rest = t.shape
    whole = int(np.prod(by))
    t = g.reshape(t, [*by, batch // whole, *rest])
    order = [m, *(place for k in range(m) for place in (m + 1 + k, k))]
    t = shapes.permuted(t, *order, *range(2 * m + 1, t.rank))
    t = g.reshape(t, [batch // whole, *[s * b for s, b in zip(rest[:m], by, strict=True)], *rest[m:]])
    for k, (before, after) in enumerate(crops.tolist(), 1):
        t = shapes.sliced(g, t, k, before, 1, t.shape[k] - (before + after))
    return t


@translates("SpaceToBatchND")
def space_to_batch(g: Any, t: Tensor, by: Ints, pads: Array) -> Tensor:
    m = len(by)
    for k, (before, after) in enumerate(pads.tolist(), 1):
        t = shapes.padded(g, t, k, before, after) if before or after else t
    batch, *rest = t.shape
    cut = [s // b for s, b in zip(rest[:m], by, strict=True)]
    t = g.reshape(t, [batch, *(n for pair in zip(cut, by, strict=True) for n in pair), *rest[m:]])
    order = [2 + 2 * k for k in range(m)] + [0] + [1 + 2 * k for k in range(m)]
    t = shapes.permuted(t, *order, *range(2 * m + 1, t.rank))
    return g.reshape(t, [batch * int(np.prod(by)), *cut, *rest[m:]])


@translates("MatrixBandPart", "BatchMatrixBandPart")
def band(g: Any, t: Tensor, lower: Ints, upper: Ints) -> Tensor:
    t = shapes.triangle(g, t, -lower[0], True) if lower[0] >= 0 else t
    return shapes.triangle(g, t, upper[0], False) if upper[0] >= 0 else t


@translates("MatrixDiag", "BatchMatrixDiag", "Diag")
def diagonal(n: Any, t: Tensor) -> Tensor:
    if n.op != "Diag":
        return shapes.on_diagonal(n.g, t, 0)
    return n.g.reshape(shapes.on_diagonal(n.g, n.g.reshape(t, [product(t.shape)]), 0), [*t.shape, *t.shape])


def _band(ends: Ints) -> list[int]:
    """Returns the diagonals that an op is about, the uppermost first."""
    return list(range(ends[-1], ends[0] - 1, -1))


def _room(n: Any, offset: int, many: int, longest: int) -> tuple[int, int]:
    """Returns how far a diagonal of `many` elements stands from both ends of a row of the longest one's length."""
    side = n.attr("align", "LEFT_LEFT" if n.op.endswith("V2") else "RIGHT_LEFT").split("_")[offset < 0]
    return (longest - many, 0) if side == "RIGHT" else (0, longest - many)


@translates("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3")
def with_diagonals(n: Any, base: Tensor, t: Tensor, ends: Ints | None = None) -> Tensor:
    """Returns matrices with rows of t on their diagonals."""
    g, offsets = n.g, _band(ends or [0])
    rows, columns = base.shape[-2:]
    for k, offset in enumerate(offsets):
        row = t
        if len(offsets) > 1:
            many = min(g.number(rows) + min(offset, 0), g.number(columns) - max(offset, 0))
            first = _room(n, offset, many, g.number(t.shape[-1]))[0]
            row = shapes.at(g, shapes.sliced(g, t, t.rank - 1, first, 1, many), t.rank - 2, k)
        base = g.full(base)
        spread = g.renamed(g.full(shapes.on_diagonal(g, row, offset, rows, columns)), base.dims)
        i, j = (iota(d) for d in base.dims[-2:])
        base = g.made(e.where(e.equal(i + offset, j), spread.op, base.op), base.dims)
    return base


@translates("MatrixDiagV2", "MatrixDiagV3")
def diagonal_at(n: Any, t: Tensor, ends: Ints, high: Length, wide: Length, fill: Array) -> Tensor:
    first, last = ends[0], ends[-1]
    if first == last:
        return shapes.on_diagonal(n.g, t, first, high, wide, fill.item())
    longest, sizes = n.g.number(t.shape[-1]), [high, wide]
    least = [longest - min(last, 0), longest + max(first, 0)]
    least = [max(least)] * 2 if sizes == [-1, -1] else least
    shape = [*t.shape[:-2], *(few if many == -1 else many for few, many in zip(least, sizes, strict=True))]
    return with_diagonals(n, shapes.filled(n.g, np.array(fill.item(), t.np)[()], shape), t, ends)


@translates("MatrixDiagPart", "BatchMatrixDiagPart", "DiagPart")
def diagonal_part(n: Any, t: Tensor) -> Tensor:
    if n.op != "DiagPart":
        return shapes.diagonal(n.g, t)
    half = t.shape[: t.rank // 2]
    return n.g.reshape(shapes.diagonal(n.g, n.g.reshape(t, [product(half)] * 2)), half)


@translates("MatrixDiagPartV2", "MatrixDiagPartV3")
def diagonal_part_at(n: Any, t: Tensor, ends: Ints, fill: Array) -> Value:
    offsets, last = _band(ends), t.rank - 2
    found = [shapes.diagonal(n.g, t, offset) for offset in offsets]
    if len(found) == 1:
        return found[0]
    lengths = [n.g.number(d.shape[-1]) for d in found]
    for j, (offset, many) in enumerate(zip(offsets, lengths, strict=True)):
        found[j] = shapes.padded(n.g, found[j], last, *_room(n, offset, many, max(lengths)), "constant", fill.item())
    return shapes.stacked(n.g, list(found), last)


@translates("BroadcastGradientArgs", results="r0 r1")
def gradient_args(g: Any, a: Value, b: Value) -> tuple[Value, ...]:
    """Returns the dims along which the gradients of two broadcast operands are summed."""
    x, y = g.sizes(a), g.sizes(b)
    many = max(len(x), len(y))
    x, y = [1] * (many - len(x)) + x, [1] * (many - len(y)) + y

    def summed(these: list[ExprLike], others: list[ExprLike]) -> list[int]:
        pairs = enumerate(zip(these, others, strict=True))
        return [k for k, (p, q) in pairs if (g.same(p, 1) and not g.same(q, 1)) or (p == 1 and q == 1)]

    found = (summed(x, y), summed(y, x))
    alike = all(g.same(p, q) for p, q in zip(x, y, strict=True))
    return tuple([ConstantArray(np.array([] if alike else f, a.np)) for f in found])


@translates("ConcatOffset")
def concat_offsets(g: Any, axis: Ints, *lengths: Lengths) -> tuple[Value, ...]:
    """Returns where each of several tensors starts in their concatenation."""
    start: ExprLike = 0
    found = []
    for sizes in lengths:
        found.append(settled([start if k == axis[0] else 0 for k in range(len(sizes))], np.int32))
        start = start + sizes[axis[0]]
    return tuple(found)


@translates("DynamicStitch", "ParallelDynamicStitch")
def stitched(g: Any, *inputs: Value) -> Tensor:
    """Returns the rows of several tensors by their numbers, which have to be known."""
    half = len(inputs) // 2
    numbers, parts = [g.known(i) for i in inputs[:half]], [g.tensor(d) for d in inputs[half:]]
    every = [g.full(g.reshape(t, [i.size, *t.shape[i.ndim :]]), [0]) for i, t in zip(numbers, parts, strict=True)]
    return indexing.gathered(g, shapes.joined(g, every, 0), ConstantArray(stitch_order(numbers)), 0, "params")

"""Translators of TensorFlow's ops that move elements, and of what is made of sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.positional import elementwise as by_element
from ngraph.frontends.positional import indexing, shapes
from ngraph.frontends.positional.reductions import dims_of
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value, settled
from ngraph.frontends.tensorflow.folding import stitch_order, strided_items
from ngraph.frontends.tensorflow.table import translates
from ngraph.op_graph import dtypes, expr
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.expr import ExprLike, Idx
from ngraph.ops import elementwise as e
from ngraph.ops.indexing import gather as gather_op
from ngraph.ops.indexing import scatter
from ngraph.ops.rearrange import iota, product


@translates("Const")
def const(n: Any) -> ConstantArray:
    found: ConstantArray = n.library.constant(n.node.proto)
    return found


@translates("Placeholder", "PlaceholderV2")
def lacking(n: Any) -> Value:
    raise GraphError(f"the placeholder {n.name!r} is needed, and is not an input of what is called", fix="feed it by its name")


# ---- shapes -------------------------------------------------------------------------------------------------------------


@translates("Shape", "ShapeN")
def shape(n: Any, *xs: Value) -> Any:
    to = n.attr("out_type", np.dtype(np.int32))
    found = []
    for x in xs:
        sizes = np.empty(x.rank, object)
        sizes[:] = list(x.shape)
        found.append(settled(sizes, to))
    return tuple(found)


@translates("Size")
def size(n: Any, x: Value) -> Value:
    return settled(np.array(product(x.shape), object), n.attr("out_type", np.dtype(np.int32)))


@translates("Rank")
def rank(n: Any, x: Value) -> Value:
    return ConstantArray(np.array(x.rank, np.int32))


@translates("Reshape")
def reshape(n: Any, x: Value, wanted: Value) -> Tensor:
    return shapes.reshaped(n.g, n.g.tensor(x), n.g.sizes(wanted), False)


@translates("EnsureShape")
def ensure_shape(n: Any, x: Value) -> Value:
    said = n.attr("shape")
    if said is not None and (len(said) != x.rank or not all(s is None or n.g.same(s, m) for s, m in zip(said, x.shape, strict=True))):
        raise GraphError(f"{n.g.described(x)} where the shape {list(said)} is ensured")
    return x


@translates("ExpandDims")
def expand_dims(n: Any, x: Value, axis: Value) -> Tensor:
    return shapes.unsqueezed(n.g.tensor(x), n.g.ints(axis))


@translates("Squeeze")
def squeeze(n: Any, x: Value) -> Tensor:
    return shapes.squeezed(n.g, n.g.tensor(x), n.attr("squeeze_dims", []) or n.attr("axis", []) or None)


@translates("Transpose", "ConjugateTranspose")
def transpose(n: Any, x: Value, order: Value) -> Tensor:
    t = n.g.tensor(x)
    return shapes.transposed(t, [k % t.rank for k in n.g.ints(order)])


@translates("BroadcastTo")
def broadcast_to(n: Any, x: Value, wanted: Value) -> Tensor:
    found: Tensor = n.g.expanded(n.g.tensor(x), n.g.sizes(wanted))
    return found


@translates("BroadcastArgs")
def broadcast_args(n: Any, a: Value, b: Value) -> Value:
    found = shapes.broadcast_shape(n.g, n.g.sizes(a), n.g.sizes(b))
    return settled(np.array(found, object), a.np)


@translates("Tile")
def tile(n: Any, x: Value, times: Value) -> Tensor:
    return shapes.tiled(n.g, n.g.tensor(x), n.g.sizes(times))


@translates("Fill")
def fill(n: Any, wanted: Value, value: Value) -> Tensor:
    found: Tensor = n.g.expanded(n.g.tensor(value), n.g.sizes(wanted))
    return found


@translates("Empty")
def empty(n: Any, wanted: Value) -> Tensor:
    return shapes.filled(n.g, np.zeros((), n.attr("dtype"))[()], n.g.sizes(wanted))


@translates("Range")
def range_(n: Any, start: Value, limit: Value, delta: Value) -> Value:
    return shapes.ranged(n.g, start, limit, delta)


# ---- slices -------------------------------------------------------------------------------------------------------------


@translates("StridedSlice")
def strided_slice(n: Any, x: Value, begin: Value, end: Value, strides: Value) -> Tensor:
    g, t = n.g, n.g.tensor(x)
    items = strided_items(n, t.rank, g.sizes(begin), g.sizes(end), g.ints(strides))
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
        else:
            i = item
            if g.truth("lt", i, 0):
                i = i + t.shape[at]
            if g.truth("lt", i, 0) or g.truth("le", t.shape[at], i):
                raise indexing.out_of_bounds(g, item, g.hint(t.shape[at]), indexing.dim_named(at, n.takes[0]))
            t = shapes.at(g, t, at, i)
    return shapes.unsqueezed(t, new) if new else t


@translates("TensorStridedSliceUpdate")
def strided_slice_written(n: Any, x: Value, begin: Value, end: Value, strides: Value, value: Value) -> Tensor:
    """Returns x with a value in the places that `strided_slice` reads."""
    g, t = n.g, n.g.full(n.g.tensor(x))
    along = g.fresh(product(t.shape))
    numbered = shapes.reshaped(g, Tensor(iota(along, dtypes.int64), [along]), t.shape)
    places = strided_slice(n, numbered, begin, end, strides)
    many = product(places.shape)
    if many == 0:
        return t
    updates = shapes.reshaped(g, g.expanded(g.tensor(value), places.shape), [many])
    flat, rows = shapes.reshaped(g, t, [along.size]), shapes.reshaped(g, places, [many, 1])
    return shapes.reshaped(g, indexing.scattered_slices(g, flat, rows, updates, "set", n.takes[0]), t.shape)


@translates("Slice")
def slice_(n: Any, x: Value, begin: Value, sizes: Value) -> Tensor:
    g, t = n.g, n.g.tensor(x)
    if isinstance(begin, Tensor) and not g.few(begin):  # a place that the call computes
        return _moving_slice(n, t, begin, g.sizes(sizes))
    for k, (first, many) in enumerate(zip(g.sizes(begin), g.sizes(sizes), strict=True)):
        rest = isinstance(many, int) and many == -1
        t = shapes.sliced(g, t, k, first, 1, t.shape[k] - first if rest else many)
    return t


def _moving_slice(n: Any, t: Tensor, begin: Tensor, sizes: Sequence[ExprLike]) -> Tensor:
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
def split(n: Any, axis: Value, x: Value) -> tuple[Tensor, ...]:
    t = n.g.tensor(x)
    (k,) = dims_of(n.g, t, n.g.ints(axis))
    many = n.attr("num_split")
    return tuple(shapes.split(n.g, t, k, [t.shape[k] // many] * many))


@translates("SplitV")
def split_v(n: Any, x: Value, sizes: Value, axis: Value) -> tuple[Tensor, ...]:
    t = n.g.tensor(x)
    (k,) = dims_of(n.g, t, n.g.ints(axis))
    wanted = n.g.sizes(sizes)
    known: ExprLike = 0
    for s in wanted:
        known = known + (s if not (isinstance(s, int) and s == -1) else 0)
    return tuple(shapes.split(n.g, t, k, [t.shape[k] - known if isinstance(s, int) and s == -1 else s for s in wanted]))


@translates("Unpack")
def unpack(n: Any, x: Value) -> tuple[Tensor, ...]:
    t = n.g.tensor(x)
    k = n.attr("axis", 0) % t.rank
    return tuple(shapes.at(n.g, t, k, i) for i in range(n.g.number(t.shape[k])))


@translates("Pack")
def pack(n: Any, *xs: Value) -> Value:
    k = n.attr("axis", 0)
    return shapes.stacked(n.g, list(xs), k % (xs[0].rank + 1))


@translates("ConcatV2", "Concat", "ParallelConcat")
def concat(n: Any, *given: Value) -> Tensor:
    rows = [ConstantArray(np.array(0))] if n.op == "ParallelConcat" else []
    *xs, axis = [*given[1:], given[0]] if n.op == "Concat" else [*given, *rows]
    ts = [n.g.tensor(x) for x in xs]
    (k,) = dims_of(n.g, ts[0], n.g.ints(axis))
    return shapes.joined(n.g, ts, k)


@translates("Pad", "PadV2", "MirrorPad")
def pad(n: Any, x: Value, pads: Value, value: Value = None) -> Tensor:
    t = n.g.tensor(x)
    mode = {"REFLECT": "reflect", "SYMMETRIC": "symmetric"}.get(n.attr("mode", ""), "constant")
    fill = 0 if value is None else n.g.known(value).item()
    sizes = n.g.sizes(pads)
    for k in range(t.rank):
        before, after = sizes[2 * k : 2 * k + 2]
        if before == 0 and after == 0:
            continue
        t = _symmetric(n, t, k, before, after) if mode == "symmetric" else shapes.padded(n.g, t, k, before, after, mode, fill)
    return t


def _symmetric(n: Any, t: Tensor, k: int, before: Any, after: Any) -> Tensor:
    """A dim mirrored at its ends, which are repeated."""
    size, first, last = n.g.numbers([t.shape[k], before, after])
    place = np.pad(np.arange(size), (first, last), "symmetric")
    return indexing.gathered(n.g, t, ConstantArray(place), k, n.takes[0])


@translates("Reverse", "ReverseV2")
def reverse(n: Any, x: Value, axes: Value) -> Tensor:
    t = n.g.tensor(x)
    for k in dims_of(n.g, t, np.flatnonzero(n.g.known(axes)).tolist() if n.op == "Reverse" else n.g.ints(axes)):
        t = shapes.sliced(n.g, t, k, t.shape[k] - 1, -1, t.shape[k])
    return t


@translates("ReverseSequence")
def reverse_sequence(n: Any, x: Value, lengths: Value) -> Tensor:
    return indexing.reversed_parts(n.g, x, lengths, n.attr("batch_dim", 0), n.attr("seq_dim"), n.takes[0])


@translates("Roll")
def roll(n: Any, x: Value, shift: Value, axis: Value) -> Tensor:
    t = n.g.tensor(x)
    for k, by in zip(dims_of(n.g, t, n.g.ints(axis)), n.g.ints(shift), strict=True):
        d = t.dims[k]
        if d is not None:
            t = n.g.read(t, t.dims, {d: (Idx(d) - by) % d.size})
    return t


# ---- gathers and scatters -----------------------------------------------------------------------------------------------


@translates("GatherV2", "Gather")
def gather(n: Any, x: Value, i: Value, axis: Value = None) -> Tensor:
    t = n.g.tensor(x)
    (k,) = [0] if axis is None else dims_of(n.g, t, n.g.ints(axis))
    batch = n.attr("batch_dims", 0)
    batch = batch + i.rank if batch < 0 else batch
    if not batch:
        return indexing.gathered(n.g, t, i, k, n.takes[0])
    return _gathered_beside(n, t, n.g.tensor(i), k, batch)


def _gathered_beside(n: Any, t: Tensor, i: Tensor, k: int, batch: int) -> Tensor:
    """A gather along dim k, whose first dims are the same index in both."""
    g = n.g
    t = g.full(t, [*range(batch), k])
    i = g.full(g.apart(i, t.dims), range(batch))
    i = g.renamed(i, [*t.dims[:batch], *i.dims[batch:]])
    index = indexing.index_along(g, i.op, None, t.dims[k], indexing.dim_named(k, n.takes[0]), negative=False)
    op = gather_op(t.op, index, axes=(t.dims[k],), mode="clip")
    return g.made(op, [*t.dims[:k], *i.dims[batch:], *t.dims[k + 1 :]])


@translates("GatherNd")
def gather_nd(n: Any, x: Value, i: Value) -> Tensor:
    return indexing.gathered_slices(n.g, x, i, 0, n.takes[0])


_COMBINED = {"Update": "set", "Add": "add", "Sub": "add", "Max": "max", "Min": "min"}


@translates(*(f"TensorScatter{kind}" for kind in _COMBINED), "ScatterNdNonAliasingAdd")
def tensor_scatter(n: Any, x: Value, i: Value, u: Value) -> Tensor:
    kind = n.op.removeprefix("TensorScatter").removeprefix("ScatterNdNonAliasing")
    if kind == "Sub":
        u = by_element.alone(n.g, by_element.FUNCTIONS["negative"], u)
    return indexing.scattered_slices(n.g, x, i, u, _COMBINED[kind], n.takes[0])


@translates("ScatterNd")
def scatter_nd(n: Any, i: Value, u: Value, wanted: Value) -> Tensor:
    flags = u.np == np.bool_  # the sum of which is whether one is true
    u = by_element.casted(n.g, u, np.dtype(np.uint8)) if flags else u
    zeros = shapes.filled(n.g, np.zeros((), u.np)[()], n.g.sizes(wanted))
    found = indexing.scattered_slices(n.g, zeros, i, u, "max" if flags else "add", n.takes[0])
    return by_element.alone(n.g, lambda op: e.cast(op, dtypes.bool_), found) if flags else found


@translates("SegmentSum", "UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd")
def segments(n: Any, x: Value, i: Value, count: Value = None) -> Tensor:
    t = n.g.tensor(x)
    if count is None:  # sorted: the last one says how many there are
        count = ConstantArray(np.array(int(n.g.known(i)[-1]) + 1 if n.g.known(i).size else 0))
    kind = {"Sum": "add", "Max": "max", "Min": "min", "Prod": "multiply"}[n.op.rpartition("Segment")[2]]
    ends = (ml_dtypes.finfo if t.op.dtype.is_float else np.iinfo)(t.np)  # finite, as TensorFlow leaves segments without elements
    start = np.array({"add": 0, "multiply": 1, "max": ends.min, "min": ends.max}[kind], t.np)[()]
    (many,) = n.g.sizes(count)
    rows = n.g.tensor(i)
    base = shapes.filled(n.g, start, [many, *t.shape[rows.rank :]])
    # rows of numbers below 0 are left out: their elements become what changes nothing
    inside = Tensor(e.less_equal(0, rows.op), [*rows.dims, *[None] * (t.rank - rows.rank)])
    t = by_element.each(n.g, lambda c, a: e.where(c, a, e.filled(start, (), a.dtype)), inside, t)
    index = Tensor(e.maximum(rows.op, 0), [*rows.dims, None])
    return indexing.scattered_slices(n.g, base, index, t, kind, n.takes[0])


@translates("OneHot")
def one_hot(n: Any, i: Value, depth: Value, on: Value, off: Value) -> Tensor:
    g, t = n.g, n.g.tensor(i)
    (many,) = g.sizes(depth)
    axis = g.fresh(many)
    at = n.attr("axis", -1)
    at = at + t.rank + 1 if at < 0 else at
    one, zero = (g.tensor(v).op for v in (on, off))
    made = e.where(e.equal(iota(axis, dtypes.int64), e.cast(t.op, dtypes.int64)), one, zero)
    return g.made(made, [*t.dims[:at], axis, *t.dims[at:]])


@translates("TopKV2", "TopK", results="values indices")
def top_k(n: Any, x: Value, count: Value = None) -> tuple[Tensor, Tensor]:
    many = n.attr("k") if count is None else n.g.sizes(count)[0]
    values, places = indexing.top_k(n.g, n.g.tensor(x), x.rank - 1, many, True)
    to = as_dtype(n.attr("index_type", np.dtype(np.int32)))
    return values, Tensor(e.cast(places.op, to), places.dims)


@translates("Where", python=True)
def where(n: Any, x: Value) -> Tensor:
    t = n.g.tensor(x)
    found = indexing.nonzero(n.g, t)
    return shapes.permuted(found, 1, 0)


@translates("Unique", "UniqueV2", "UniqueWithCounts", results="y idx count", python=True)
def unique(n: Any, x: Value, axis: Value = None) -> tuple[Value, ...]:
    to = n.attr("out_idx", np.dtype(np.int32))

    def run(a: Any) -> Any:
        y, _, inverse, counts = indexing.unique(a, None, False)
        return y, inverse, counts

    return tuple(n.g.host(n.op, run, [x], [x.np, to, to]))


@translates("InvertPermutation")
def invert(n: Any, x: Value) -> Tensor:
    t = n.g.full(n.g.tensor(x))
    out = n.g.fresh(t.dims[0].size)
    op = scatter.build(e.filled(0, [out], t.op.dtype), t.op, iota(t.dims[0], t.op.dtype), axes=(out,), combine="set", mode="clip")
    return n.g.made(op, [out])


# ---- blocks and diagonals -----------------------------------------------------------------------------------------------


@translates("DepthToSpace", "SpaceToDepth")
def blocks(n: Any, x: Value) -> Tensor:
    t = n.g.tensor(x)
    last = n.attr("data_format", "NHWC") == "NHWC"
    t = shapes.permuted(t, 0, 3, 1, 2) if last else t
    made = (shapes.depth_to_space if n.op == "DepthToSpace" else shapes.space_to_depth)(n.g, t, n.attr("block_size"), True)
    return shapes.permuted(made, 0, 2, 3, 1) if last else made


@translates("BatchToSpaceND")
def batch_to_space(n: Any, x: Value, block: Value, crops: Value) -> Tensor:
    g, t, by = n.g, n.g.tensor(x), n.g.ints(block)
    m = len(by)
    batch, *rest = t.shape
    whole = int(np.prod(by))
    t = g.reshape(t, [*by, batch // whole, *rest])
    order = [m]
    for k in range(m):
        order += [m + 1 + k, k]
    t = shapes.permuted(t, *order, *range(2 * m + 1, t.rank))
    t = g.reshape(t, [batch // whole, *[s * b for s, b in zip(rest[:m], by, strict=True)], *rest[m:]])
    cut = g.known(crops)
    for k in range(m):
        t = shapes.sliced(g, t, 1 + k, int(cut[k, 0]), 1, t.shape[1 + k] - int(cut[k].sum()))
    return t


@translates("SpaceToBatchND")
def space_to_batch(n: Any, x: Value, block: Value, pads: Value) -> Tensor:
    g, t, by = n.g, n.g.tensor(x), n.g.ints(block)
    m, room = len(by), g.known(pads)
    for k in range(m):
        if room[k].any():
            t = shapes.padded(g, t, 1 + k, int(room[k, 0]), int(room[k, 1]))
    batch, *rest = t.shape
    split: list[Any] = [batch]
    for s, b in zip(rest[:m], by, strict=True):
        split += [s // b, b]
    t = g.reshape(t, [*split, *rest[m:]])
    order = [2 + 2 * k for k in range(m)] + [0] + [1 + 2 * k for k in range(m)]
    t = shapes.permuted(t, *order, *range(2 * m + 1, t.rank))
    return g.reshape(t, [batch * int(np.prod(by)), *[s // b for s, b in zip(rest[:m], by, strict=True)], *rest[m:]])


@translates("MatrixBandPart", "BatchMatrixBandPart")
def band(n: Any, x: Value, lower: Value, upper: Value) -> Tensor:
    g, t = n.g, n.g.full(n.g.tensor(x), (x.rank - 2, x.rank - 1))
    low, high = (g.ints(v)[0] for v in (lower, upper))
    i, j = (iota(d, dtypes.int64) for d in t.dims[-2:])
    inside = e.filled(True, (), dtypes.bool_)
    if low >= 0:
        inside = e.logical_and(inside, e.less_equal(i - low, j))
    if high >= 0:
        inside = e.logical_and(inside, e.less_equal(j, i + high))
    return g.made(e.where(inside, t.op, e.filled(0, (), t.op.dtype)), t.dims)


@translates("MatrixDiag", "BatchMatrixDiag", "Diag")
def diagonal(n: Any, x: Value) -> Tensor:
    if n.op != "Diag":
        return _on_diagonal(n, x, 0, 0, -1, -1)
    made: Tensor = n.g.reshape(_on_diagonal(n, n.g.reshape(n.g.tensor(x), [product(x.shape)]), 0, 0, -1, -1), [*x.shape, *x.shape])
    return made


def _on_diagonal(n: Any, x: Value, offset: int, fill: Any, rows: ExprLike, columns: ExprLike) -> Tensor:
    """Matrices with x on a diagonal, which stands `offset` to the right; rows, columns: how many, -1 for as many as it needs."""
    g, t = n.g, n.g.full(n.g.tensor(x))
    d = t.dims[-1]
    high, wide = d.size + max(0, -offset), d.size + max(0, offset)
    if isinstance(rows, int) and isinstance(columns, int) and rows == columns == -1:
        high = wide = d.size + abs(offset)
    i = g.fresh(high if isinstance(rows, int) and rows == -1 else rows)
    j = g.fresh(wide if isinstance(columns, int) and columns == -1 else columns)
    down = max(0, -offset)
    dims = [*t.dims[:-1], i, j]
    spread = g.read(t, dims, {d: Idx(i) - down}, predicate=(Idx(i) - down, d.size - 1 - (Idx(i) - down)))
    on = e.equal(iota(i) + offset, iota(j))
    return g.made(e.where(on, spread.op, e.filled(fill, (), t.op.dtype)), dims)


def _band(n: Any, k: Value) -> list[int]:
    """Returns the diagonals that an op is about, the uppermost first."""
    found = n.g.ints(k)
    return list(range(found[-1], found[0] - 1, -1))


def _room(n: Any, offset: int, many: int, longest: int) -> tuple[int, int]:
    """Returns how far a diagonal of `many` elements stands from both ends of a row of the longest one's length."""
    side = n.attr("align", "LEFT_LEFT" if n.op.endswith("V2") else "RIGHT_LEFT").split("_")[offset < 0]
    return (longest - many, 0) if side == "RIGHT" else (0, longest - many)


def _with_diagonals(n: Any, x: Value, base: Tensor, offsets: Sequence[int]) -> Tensor:
    """Matrices with rows of x on their diagonals."""
    g, t = n.g, n.g.tensor(x)
    rows, columns = base.shape[-2:]
    for k, offset in enumerate(offsets):
        row = t
        if len(offsets) > 1:
            many = min(g.number(rows) + min(offset, 0), g.number(columns) - max(offset, 0))
            first = _room(n, offset, many, g.number(t.shape[-1]))[0]
            row = shapes.at(g, shapes.sliced(g, t, t.rank - 1, first, 1, many), t.rank - 2, k)
        base = g.full(base)
        spread = g.renamed(g.full(_on_diagonal(n, row, offset, 0, rows, columns)), base.dims)
        i, j = (iota(d) for d in base.dims[-2:])
        base = g.made(e.where(e.equal(i + offset, j), spread.op, base.op), base.dims)
    return base


@translates("MatrixDiagV2", "MatrixDiagV3")
def diagonal_at(n: Any, x: Value, k: Value, rows: Value, columns: Value, fill: Value) -> Tensor:
    offsets, value = _band(n, k), n.g.known(fill).item()
    sizes = [n.g.sizes(v)[0] for v in (rows, columns)]
    if len(offsets) == 1:
        return _on_diagonal(n, x, offsets[0], value, *sizes)
    longest = n.g.number(x.shape[-1])
    least = [longest - min(offsets[0], 0), longest + max(offsets[-1], 0)]
    least = [max(least)] * 2 if sizes == [-1, -1] else least
    shape = [*x.shape[:-2], *(few if many == -1 else many for few, many in zip(least, sizes, strict=True))]
    return _with_diagonals(n, x, shapes.filled(n.g, np.array(value, x.np)[()], shape), offsets)


@translates("MatrixDiagPart", "BatchMatrixDiagPart", "DiagPart")
def diagonal_part(n: Any, x: Value) -> Tensor:
    if n.op != "DiagPart":
        return _diagonal_of(n, x, 0)
    half = x.shape[: x.rank // 2]
    made: Tensor = n.g.reshape(_diagonal_of(n, n.g.reshape(n.g.tensor(x), [product(half)] * 2), 0), half)
    return made


@translates("MatrixDiagPartV2", "MatrixDiagPartV3")
def diagonal_part_at(n: Any, x: Value, k: Value, fill: Value) -> Tensor:
    offsets = _band(n, k)
    found = [_diagonal_of(n, x, offset) for offset in offsets]
    if len(found) == 1:
        return found[0]
    lengths = [n.g.number(t.shape[-1]) for t in found]
    value, last = n.g.known(fill).item(), x.rank - 2
    for j, (offset, many) in enumerate(zip(offsets, lengths, strict=True)):
        found[j] = shapes.padded(n.g, found[j], last, *_room(n, offset, many, max(lengths)), "constant", value)
    return shapes.stacked(n.g, found, last)


def _diagonal_of(n: Any, x: Value, offset: int) -> Tensor:
    g, t = n.g, n.g.full(n.g.tensor(x))
    rows, columns = t.dims[-2:]
    down, right = max(0, -offset), max(0, offset)
    axis = g.fresh(expr.minimum(rows.size - down, columns.size - right))
    return g.read(t, [*t.dims[:-2], axis], {rows: Idx(axis) + down, columns: Idx(axis) + right})


@translates("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3")
def set_diagonal(n: Any, x: Value, d: Value, k: Value = None) -> Tensor:
    return _with_diagonals(n, d, n.g.tensor(x), [0] if k is None else _band(n, k))


@translates("BroadcastGradientArgs", results="r0 r1")
def gradient_args(n: Any, a: Value, b: Value) -> tuple[Value, ...]:
    """The dims along which the gradients of two broadcast operands are summed."""
    x, y = n.g.sizes(a), n.g.sizes(b)
    many = max(len(x), len(y))
    x, y = [1] * (many - len(x)) + x, [1] * (many - len(y)) + y
    found: tuple[list[int], list[int]] = ([], [])
    for k, (p, q) in enumerate(zip(x, y, strict=True)):
        for mine, this, that in ((found[0], p, q), (found[1], q, p)):
            if (n.g.same(this, 1) and not n.g.same(that, 1)) or (this == 1 and that == 1):
                mine.append(k)
    alike = all(n.g.same(p, q) for p, q in zip(x, y, strict=True))
    return tuple([ConstantArray(np.array([] if alike else f, a.np)) for f in found])


@translates("ConcatOffset")
def concat_offsets(n: Any, axis: Value, *lengths: Value) -> tuple[Value, ...]:
    """Returns where each of several tensors starts in their concatenation."""
    k, start, found = n.g.ints(axis)[0], 0, []
    for given in lengths:
        sizes = n.g.sizes(given)
        at = np.zeros(len(sizes), object)
        at[k] = start
        start = start + sizes[k]
        found.append(settled(at, np.dtype(np.int32)))
    return tuple(found)


@translates("DynamicStitch", "ParallelDynamicStitch")
def stitched(n: Any, *inputs: Value) -> Tensor:
    """Returns the rows of several tensors by their numbers, which have to be known."""
    numbers = [n.g.known(i) for i in inputs[: len(inputs) // 2]]
    parts = [n.g.tensor(d) for d in inputs[len(inputs) // 2 :]]
    rows = [n.g.full(n.g.reshape(t, [i.size, *t.shape[i.ndim :]]), [0]) for i, t in zip(numbers, parts, strict=True)]
    return indexing.gathered(n.g, shapes.joined(n.g, rows, 0), ConstantArray(stitch_order(numbers)), 0, "params")

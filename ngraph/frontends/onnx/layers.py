"""Translators of pooling and normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph.frontends.onnx.arithmetic import mean, reduce_over, total
from ngraph.frontends.onnx.products import Window, outs_of, windows
from ngraph.frontends.onnx.proto import numpy_type
from ngraph.frontends.onnx.shapes import index_along, known_array, padded
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value, check_room
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axes, Axis
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.expr import Expr, ExprLike, Idx
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.indexing import scatter
from ngraph.ops.rearrange import iota, product, reindex
from ngraph.ops.rearrange import windows as read_windows
from ngraph.ops.reduce import reduce
from ngraph.ops.sorting import argreduce

# ---- pooling ------------------------------------------------------------------------------------------------------------


def read(g: Any, t: Tensor, ws: Sequence[Window], fill: Any) -> tuple[Tensor, list[Axis], list[Axis]]:
    """The tensor with an axis along each window; the axes that count windows, and those within."""
    t = g.full(t, range(2, t.rank))
    outs, inner = outs_of(g, t, ws), [g.fresh(w.size) for w in ws]
    index = {a: Idx(o) * w.stride + Idx(r) * w.dilation - w.before for a, o, r, w in zip(t.dims[2:], outs, inner, ws, strict=True)}
    whole = {a: index.get(a, Idx(a)) for a in t.op.axes}
    kept = [d for d in t.dims[:2] if d is not None]
    op = reindex(t.op, axes=(*kept, *outs, *inner), index=whole, fill=fill)
    return Tensor(op, [*t.dims[:2], *outs, *inner]), outs, inner


@translates("MaxPool")
def max_pool(n: Any, x: Value) -> tuple[Tensor, ...]:
    g, t = n.g, n.g.tensor(x)
    ws = windows(n, t, n.attr("kernel_shape"))
    r, outs, inner = read(g, t, ws, t.op.dtype.lowest)
    dims = [*t.dims[:2], *outs]
    y = g.made(reduce.build(r.op, kind="max", axes=tuple(inner)), dims)
    if not n.wants(1):
        return (y,)
    flat = e.cast(argreduce.build(r.op, kind="max", axes=tuple(inner)), dtypes.int64)
    within: list[Op] = []
    for w in ws[::-1]:
        within.insert(0, e.remainder(flat, w.size))
        flat = e.divide.build(flat, size_op(w.size))
    order = list(range(len(ws)))
    if n.attr("storage_order", 0):
        order = order[::-1]
    place = position(g, t.dims[:2], t.shape[:2])
    for j in order:
        i = iota(outs[j], dtypes.int64) * ws[j].stride + within[j] * ws[j].dilation - size_op(ws[j].before)
        place = place * size_op(t.shape[2 + j]) + i
    return y, g.made(place, dims)


def size_op(size: ExprLike) -> Op:
    """A length as an int64 scalar."""
    return e.constant_record.build(value=size if isinstance(size, Expr) else int(size), axes=Axes(), dtype=dtypes.int64)


def position(g: Any, dims: Sequence[Axis | None], sizes: Sequence[ExprLike]) -> Op:
    """The flat position along dims, int64."""
    place = e.filled(0, (), dtypes.int64)
    for d, s in zip(dims, sizes, strict=True):
        place = place * size_op(s) + (0 if d is None else iota(d, dtypes.int64))
    return place


def counted(g: Any, out: Axis, w: Window, size: ExprLike, padding: bool, dtype: Any) -> Op:
    """How many elements each window along one dim covers, padding among them or not."""
    first: ExprLike = 0 if padding else w.before
    last = size + (w.before + w.after if padding else w.before)
    if isinstance(first, int) and isinstance(last, int) and isinstance(w.many, int):
        check_room(w.many, w.size)
        at = np.arange(w.many)[:, None] * w.stride + np.arange(w.size) * w.dilation
        many = ((at >= first) & (at < last)).sum(1)
        if (many == many[:1]).all():
            return e.filled(int(many[0]) if len(many) else 1, (), dtype)
        t = g.renamed(g.tensor(ConstantArray(many.astype(np.int64))), [out])
        return e.cast(t.op, dtype)
    r = g.fresh(w.size)
    at_ = iota(out, dtypes.int64) * w.stride + iota(r, dtypes.int64) * w.dilation
    inside = e.logical_and(e.less_equal(size_op(first), at_), e.less(at_, size_op(last)))
    return reduce.build(e.cast(inside, dtype), kind="add", axes=(r,))


@translates("AveragePool")
def average_pool(n: Any, x: Value) -> Tensor:
    g, t = n.g, n.g.tensor(x)
    ws = windows(n, t, n.attr("kernel_shape"))
    r, outs, inner = read(g, t, ws, 0)

    def means(x: Op) -> Op:
        many = e.filled(1, (), x.dtype)
        for out, w, size in zip(outs, ws, t.shape[2:], strict=True):
            many = many * counted(g, out, w, size, bool(n.attr("count_include_pad", 0)), x.dtype)
        return reduce.build(x, kind="add", axes=tuple(inner)) / many

    return g.made(e.rounding_once(means)(r.op), [*t.dims[:2], *outs])


def power_mean(x: Op, axes: tuple[Any, ...], p: float) -> Op:
    """The p-norm over axes."""

    def norm(x: Op) -> Op:
        if p == 1:
            return total(e.absolute(x), axes)
        if p == 2:
            return e.sqrt(total(x * x, axes))
        return e.power(total(e.power(e.absolute(x), float(p)), axes), 1.0 / p)

    return e.rounding_once(norm)(x)


@translates("LpPool")
def lp_pool(n: Any, x: Value) -> Tensor:
    g, t = n.g, n.g.tensor(x)
    r, outs, inner = read(g, t, windows(n, t, n.attr("kernel_shape")), 0)
    return g.made(power_mean(r.op, tuple(inner), n.attr("p", 2)), [*t.dims[:2], *outs])


@translates("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(n: Any, x: Value) -> Tensor:
    t = n.g.tensor(x)
    function = {
        "GlobalAveragePool": mean,
        "GlobalMaxPool": lambda x, axes: total(x, axes, "max"),
        "GlobalLpPool": lambda x, axes: power_mean(x, axes, n.attr("p", 2)),
    }[n.op]
    return reduce_over(n.g, t, range(2, t.rank), function, True)


@translates("MaxUnpool")
def max_unpool(n: Any, x: Value, indices: Value, shape: Value = None) -> Tensor:
    """Each value goes to its flat position in a tensor of zeros."""
    g, t = n.g, n.g.tensor(x)
    k = t.rank - 2
    kernel, strides, pads = n.attr("kernel_shape"), n.attr("strides") or [1] * k, n.attr("pads") or [0] * 2 * k
    least = [(s - 1) * strides[j] + (kernel[j] - pads[j] - pads[j + k]) for j, s in enumerate(t.shape[2:])]
    sizes = [*t.shape[:2], *least]
    wanted = sizes if shape is None else g.sizes(shape)
    axis = g.fresh(product(sizes))
    i, u = (g.reshape(g.tensor(v), [product(t.shape)]) for v in (indices, t))
    i, u = g.full(i), g.full(u)
    u = g.renamed(u, i.dims)
    zeros = e.filled(0, (axis,), t.op.dtype)
    place = index_along(g, i.op, known_array(indices), axis, f"{n.proto.output[0]} as one row", negative=False)
    flat = scatter.build(zeros, place, u.op, axes=(axis,), combine="set", mode="clip")
    y = g.reshape(Tensor(flat, [axis]), sizes)
    for d, (a, b) in enumerate(zip(sizes, wanted, strict=True)):
        if not g.same(a, b):
            y = padded(g, y, d, 0, b - a)
    return y


# ---- normalization ------------------------------------------------------------------------------------------------------


def by_channel(g: Any, v: Value, rank: int) -> Tensor:
    """A vector along dim 1."""
    t = g.tensor(v)
    return Tensor(t.op, [None, *t.dims, *[None] * (rank - 2)])


@translates("BatchNormalization")
def batch_norm(n: Any, x: Value, scale: Value, bias: Value, average: Value, variance: Value) -> tuple[Tensor, ...]:
    g, t = n.g, n.g.tensor(x)
    if n.version < 9 and not n.attr("spatial", 1):
        vectors = [g.tensor(v) for v in (scale, bias, average, variance)]
        vectors = [Tensor(v.op, [None, *v.dims]) for v in vectors]
    else:
        vectors = [by_channel(g, v, t.rank) for v in (scale, bias, average, variance)]
    training = n.attr("training_mode", 0) if n.version >= 14 else 0
    if not training:
        return (normalized(g, t, vectors, n.attr("epsilon", 1e-5)),)
    axes = tuple(d for k, d in enumerate(t.dims) if k != 1 and d is not None)
    wide = e.cast(t.op, dtypes.accumulator(t.op.dtype))
    m = mean(wide, axes)
    v = mean((wide - m) * (wide - m), axes)
    dims = [None, t.dims[1], *[None] * (t.rank - 2)]
    now = [Tensor(e.cast(s, vectors[2].dtype), dims) for s in (m, v)]
    y = normalized(g, t, [*vectors[:2], *now], n.attr("epsilon", 1e-5))
    keep = n.attr("momentum", 0.9)
    moved = []
    for old, new in zip(vectors[2:], now, strict=True):
        (a, b), out = g.align(old, new)
        moved.append(g.made(a * keep + b * (1 - keep), [out[1]]))
    return (y, *moved)


def normalized(g: Any, x: Tensor, vectors: Sequence[Tensor], epsilon: float) -> Tensor:
    """x scaled to mean 0 and variance 1, then by scale and bias: one product and one sum for each element.

    vectors: scale, bias, mean, variance.
    """
    (a, s, b, m, v), dims = g.align(x, *vectors)
    kind = a.dtype
    wide = dtypes.accumulator(dtypes.promote(kind, m.dtype))
    a, s, b, m, v = (e.cast(o, wide) for o in (a, s, b, m, v))
    by = s / e.sqrt(v + epsilon)
    return g.made(e.cast(a * by + (b - m * by), kind), dims)


@translates("InstanceNormalization")
def instance_norm(n: Any, x: Value, scale: Value, bias: Value) -> Tensor:
    g, t = n.g, n.g.tensor(x)
    axes = tuple(d for d in t.dims[2:] if d is not None)
    wide = e.cast(t.op, dtypes.accumulator(t.op.dtype))
    m = mean(wide, axes)
    v = mean((wide - m) * (wide - m), axes)
    dims = [*t.dims[:2], *[None] * (t.rank - 2)]
    vectors = [by_channel(g, scale, t.rank), by_channel(g, bias, t.rank), Tensor(m, dims), Tensor(v, dims)]
    return normalized(g, t, vectors, n.attr("epsilon", 1e-5))


@translates("LayerNormalization")
def layer_norm(n: Any, x: Value, scale: Value = None, bias: Value = None) -> tuple[Tensor, ...]:
    g, t = n.g, n.g.tensor(x)
    at = n.attr("axis", -1) % t.rank
    wide = as_dtype(numpy_type(n.attr("stash_type", 1)))
    op = e.cast(t.op, wide) if t.op.dtype.bits < wide.bits else t.op
    axes = tuple(d for d in t.dims[at:] if d is not None)
    m = mean(op, axes)
    centred = op - m
    inverse = e.reciprocal(e.sqrt(mean(centred * centred, axes) + n.attr("epsilon", 1e-5)))
    y = Tensor(e.cast(centred * inverse, t.op.dtype), t.dims)
    for v, function in ((scale, e.multiply), (bias, e.add)):
        if v is not None:
            (a, b), dims = g.align(y, v)
            y = g.made(function(a, b), dims)
    dims = [*t.dims[:at], *[None] * (t.rank - at)]
    return y, Tensor(m, dims), Tensor(inverse, dims)


@translates("RMSNormalization")
def rms_norm(n: Any, x: Value, scale: Value) -> Tensor:
    g, t = n.g, n.g.tensor(x)
    at = n.attr("axis", -1) % t.rank
    wide = as_dtype(numpy_type(n.attr("stash_type", 1)))
    op = e.cast(t.op, wide) if t.op.dtype.bits < wide.bits else t.op
    axes = tuple(d for d in t.dims[at:] if d is not None)
    y = Tensor(e.cast(op / e.sqrt(mean(op * op, axes) + n.attr("epsilon", 1e-5)), t.op.dtype), t.dims)
    (a, b), dims = g.align(y, scale)
    return g.made(e.cast(e.cast(a, b.dtype) * b, b.dtype), dims)


@translates("LRN")
def local_response(n: Any, x: Value) -> Tensor:
    g, t = n.g, n.g.tensor(x)
    size, alpha, beta, bias = n.attr("size"), n.attr("alpha", 1e-4), n.attr("beta", 0.75), n.attr("bias", 1.0)
    t = g.full(t, [1])
    c, r = t.dims[1], g.fresh(size)

    def response(x: Op) -> Op:
        near = read_windows(x * x, {c: r}, padding=((size - 1) // 2, size // 2))
        scale = bias + (alpha / size) * reduce.build(near, kind="add", axes=(r,))
        return x / e.power(scale, beta)

    return g.made(e.rounding_once(response)(t.op), t.dims)


@translates("MeanVarianceNormalization")
def mean_variance(n: Any, x: Value) -> Tensor:
    t = n.g.tensor(x)
    axes = tuple(d for k in n.attr("axes", [0, 2, 3]) if (d := t.dims[k % t.rank]) is not None)

    def normal(x: Op) -> Op:
        centred = x - mean(x, axes)
        return centred / (e.sqrt(mean(centred * centred, axes)) + 1e-9)

    return Tensor(e.rounding_once(normal)(t.op), t.dims)

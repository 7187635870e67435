"""Translators of TensorFlow's convolutions, pooling, normalization and resizing, with their gradient ops.

A layout with channels last is another order of a tensor's dims: nothing is moved for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph.errors import GraphError, UnsupportedError
from ngraph.frontends.positional import elementwise as by_element
from ngraph.frontends.positional import norms, sampling, shapes, windows
from ngraph.frontends.positional.adjoint import adjoint
from ngraph.frontends.positional.reductions import total
from ngraph.frontends.positional.shapes import permuted
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value
from ngraph.frontends.positional.windows import Windowing
from ngraph.frontends.tensorflow.shapes import strided_slice
from ngraph.frontends.tensorflow.table import Ints, Lengths, translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.expr import ExprLike
from ngraph.ops import elementwise as e


def channels_last(n: Any) -> bool:
    """Returns whether a node's tensors have their channels behind the spatial dims."""
    form = n.attr("data_format", "NHWC")
    if form not in ("NHWC", "NCHW", "NDHWC", "NCDHW", "NWC", "NCW"):
        raise UnsupportedError(f"the data format {form!r}", fix="use NHWC or NCHW")
    return bool(form[-1] == "C")


def first(n: Any, t: Tensor) -> Tensor:
    """Returns a node's tensor with its channels as dim 1."""
    return permuted(t, 0, t.rank - 1, *range(1, t.rank - 1)) if channels_last(n) else t


def back(n: Any, t: Tensor) -> Tensor:
    """Returns a tensor whose channels are dim 1 in the node's layout."""
    return permuted(t, 0, *range(2, t.rank), 1) if channels_last(n) else t


def spatial(n: Any, name: str, rank: int) -> list[int] | None:
    """Returns the numbers of an attribute for the spatial dims. Raises UnsupportedError where they also skip images or channels."""
    given = n.attr(name)
    if not given:
        return None
    if len(given) == 1:
        return list(given) * (rank - 2)
    if len(given) == rank - 2:
        return list(given)
    channel = rank - 1 if channels_last(n) else 1
    if given[0] != 1 or given[channel] != 1:
        raise UnsupportedError(f"{name} {list(given)} along the batch or the channels", fix="use 1 there")
    return [v for k, v in enumerate(given) if k not in (0, channel)]


def windowing(n: Any, kernel: Sequence[int], rank: int) -> Windowing:
    """Returns the windows that a node's attributes describe."""
    padding = n.attr("padding", "VALID")
    pads = None
    if padding == "EXPLICIT":
        given = np.array(n.attr("explicit_paddings")).reshape(-1, 2)
        inner = given[1:-1] if channels_last(n) else given[2:]
        pads = [*map(int, inner[:, 0]), *map(int, inner[:, 1])]
    auto = {"SAME": "SAME_UPPER", "VALID": "VALID"}.get(padding, "NOTSET")
    return windows.windowing(kernel, spatial(n, "strides", rank), spatial(n, "dilations", rank), pads, auto)


# ---- convolution --------------------------------------------------------------------------------------------------------


def _filters(w: Value) -> Value:
    """Returns filters [spatial…, c, m] as [m, c, spatial…]."""
    k = w.rank - 2
    if isinstance(w, ConstantArray):
        return ConstantArray(np.transpose(w.array, (k + 1, k, *range(k))), w.name)
    return permuted(w, k + 1, k, *range(k))


def _convolution(n: Any, x: Tensor, w: Tensor | ConstantArray) -> Tensor:
    """Returns the convolution of x, channels as dim 1, with filters [spatial…, c, m]."""
    g = n.g
    by = windowing(n, g.numbers(w.shape[:-2]), x.rank)
    depth = g.number(w.shape[-2])
    channels = g.number(x.shape[1])
    if channels % depth:
        raise GraphError(f"{channels} channels, and filters for {depth}")
    return windows.convolution(g, x, _filters(w if isinstance(w, ConstantArray) else g.tensor(w)), by, channels // depth)


@translates("Conv2D", "Conv3D")
def conv(n: Any, x: Value, w: Value) -> Tensor:
    return back(n, _convolution(n, first(n, n.g.tensor(x)), w))


def _by_depth(n: Any, w: Value) -> Value:
    """Returns filters [h, w, c, m] of a convolution by channels as [h, w, 1, c * m]."""
    *sides, c, m = w.shape
    if isinstance(w, ConstantArray):
        return ConstantArray(w.array.reshape([*map(int, sides), 1, -1]), w.name)
    found: Tensor = n.g.reshape(n.g.tensor(w), [*sides, 1, c * m])
    return found


@translates("DepthwiseConv2dNative")
def depthwise(n: Any, x: Value, w: Value) -> Tensor:
    return back(n, _convolution(n, first(n, n.g.tensor(x)), _by_depth(n, w)))


@translates("Conv2DBackpropInput", "Conv3DBackpropInputV2", "DepthwiseConv2dNativeBackpropInput")
def conv_input_gradient(n: Any, sizes: Value, w: Value, dy: Value) -> Tensor:
    g, d = n.g, n.g.tensor(dy)
    w = _by_depth(n, w) if n.op.startswith("Depth") else w
    wanted = g.sizes(sizes)
    if len(wanted) == d.rank - 2:  # spatial sizes alone
        wanted = [d.shape[0], *wanted, w.shape[-2]] if channels_last(n) else [d.shape[0], w.shape[-2], *wanted]
    ordered = [wanted[0], wanted[-1], *wanted[1:-1]] if channels_last(n) else wanted
    depth = g.number(w.shape[-2])
    groups = g.number(ordered[1]) // depth
    by = windowing(n, g.numbers(w.shape[:-2]), d.rank)
    # with one filter for all channels the result is a transposed convolution, whose filters are [c, m, spatial…]
    k = len(by.kernel)
    known = all(isinstance(s, int) for s in ordered[2:])
    if known and groups == 1:
        turned: Value = _filters(w if isinstance(w, ConstantArray) else g.tensor(w))
        pads = list(by.pads)
        auto = "NOTSET" if by.auto == "VALID" else by.auto
        back_by = Windowing(by.kernel, by.strides, by.dilations, pads, auto)
        if auto != "NOTSET":
            made = windows.conv_transpose(g, first(n, d), turned, back_by, 1, None, [int(s) for s in ordered[2:]])
        else:
            spans = [
                (m - 1) * s + (q - 1) * p + 1 - before - after
                for m, s, q, p, before, after in zip(
                    g.numbers(first(n, d).shape[2:]), by.strides, by.kernel, by.dilations, pads[:k], pads[k:], strict=True
                )
            ]
            more = [int(s) - m for s, m in zip(ordered[2:], spans, strict=True)]
            made = windows.conv_transpose(g, first(n, d), turned, back_by, 1, more)
        return back(n, made)
    return back(n, adjoint(g, lambda x: _convolution(n, x, w), ordered, d.op.dtype, first(n, d)))


@translates("Conv2DBackpropFilter", "Conv3DBackpropFilterV2", "DepthwiseConv2dNativeBackpropFilter")
def conv_filter_gradient(n: Any, x: Value, sizes: Value, dy: Value) -> Tensor:
    g, t, d = n.g, first(n, n.g.tensor(x)), first(n, n.g.tensor(dy))
    wanted = g.numbers(g.sizes(sizes))
    if n.op.startswith("Depth"):
        *sides, c, m = wanted
        made = adjoint(g, lambda w: _convolution(n, t, w), [*sides, 1, c * m], d.op.dtype, d)
        found: Tensor = g.reshape(made, wanted)
        return found
    return adjoint(g, lambda w: _convolution(n, t, w), wanted, d.op.dtype, d)


@translates("StridedSliceGrad")
def strided_slice_gradient(n: Any, shape: Lengths, begin: Lengths, end: Lengths, strides: Ints, d: Tensor) -> Tensor:
    return adjoint(n.g, lambda x: strided_slice(n, x, begin, end, strides), shape, d.op.dtype, d)


# ---- pooling ------------------------------------------------------------------------------------------------------------


def _pooled(n: Any, t: Tensor, kernel: Sequence[int] | None = None) -> Tensor:
    """Returns the pooling of a tensor whose channels are dim 1, by the node's attributes."""
    size = spatial(n, "ksize", t.rank) if kernel is None else kernel
    ws = windows.windows(n.g, t, windowing(n, size or [], t.rank))
    if "Max" in n.op:
        return windows.max_pool(n.g, t, ws)[0]
    return windows.average_pool(n.g, t, ws)


@translates("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D")
def pool(n: Any, x: Value) -> Tensor:
    return back(n, _pooled(n, first(n, n.g.tensor(x))))


@translates("MaxPoolV2")
def pool_v2(n: Any, x: Value, size: Value, strides: Value) -> Tensor:
    t = first(n, n.g.tensor(x))
    channel = t.rank - 1 if channels_last(n) else 1
    kernel, steps = ([v for k, v in enumerate(n.g.ints(given)) if k not in (0, channel)] for given in (size, strides))
    auto = {"SAME": "SAME_UPPER"}.get(n.attr("padding"), "VALID")
    return back(n, windows.max_pool(n.g, t, windows.windows(n.g, t, windows.windowing(kernel, steps, None, None, auto)))[0])


@translates("MaxPoolGrad", "MaxPool3DGrad")
def max_pool_gradient(n: Any, x: Value, y: Value, dy: Value) -> Tensor:
    t, d = first(n, n.g.tensor(x)), first(n, n.g.tensor(dy))
    return back(n, adjoint(n.g, lambda v: _pooled(n, v), (), None, d, t))


@translates("AvgPoolGrad", "AvgPool3DGrad")
def average_pool_gradient(n: Any, sizes: Value, dy: Value) -> Tensor:
    d = first(n, n.g.tensor(dy))
    wanted = n.g.sizes(sizes)
    ordered = [wanted[0], wanted[-1], *wanted[1:-1]] if channels_last(n) else wanted
    return back(n, adjoint(n.g, lambda v: _pooled(n, v), ordered, d.op.dtype, d))


# ---- normalization ------------------------------------------------------------------------------------------------------


@translates(
    "FusedBatchNorm",
    "FusedBatchNormV2",
    "FusedBatchNormV3",
    results="y batch_mean batch_variance reserve_space_1 reserve_space_2 reserve_space_3",
)
def batch_norm(n: Any, x: Value, scale: Value, offset: Value, mean: Value, variance: Value) -> tuple[Tensor, ...]:
    g, t = n.g, first(n, n.g.tensor(x))
    epsilon = n.attr("epsilon", 1e-4)
    if not n.attr("is_training", True):
        vectors = [norms.by_channel(g, v, t.rank) for v in (scale, offset, mean, variance)]
        y = norms.batch_norm(g, t, vectors, epsilon)[0]
        kept = [g.tensor(v) for v in (mean, variance)]
        return (back(n, y), *kept, *kept, g.tensor(ConstantArray(np.zeros(1, np.float32))))
    others = [k for k in range(t.rank) if k != 1]
    m, v = norms.moments(t, others)
    dims = [None, t.dims[1], *[None] * (t.rank - 2)]
    vectors = [*(norms.by_channel(g, s, t.rank) for s in (scale, offset)), Tensor(m, dims), Tensor(v, dims)]
    y = norms.normalized(g, t, vectors, epsilon)
    count = e.filled(1, (), dtypes.float32)
    for k in others:
        count = count * shapes.size_op(t.shape[k], dtypes.float32)
    unbiased = e.cast(v, dtypes.float32) * (count / e.maximum(count - 1.0, 1.0))
    share = n.attr("exponential_avg_factor", 1.0)
    news = [g.made(e.cast(m, dtypes.float32), [t.dims[1]]), g.made(unbiased, [t.dims[1]])]
    if share != 1.0:
        for k, old in enumerate((mean, variance)):
            news[k] = by_element.each(g, lambda a, b: a * (1 - share) + b * share, old, news[k])
    kept = [g.made(e.cast(m, dtypes.float32), [t.dims[1]]), g.made(e.cast(v, dtypes.float32), [t.dims[1]])]
    return (back(n, y), *news, *kept, g.tensor(ConstantArray(np.zeros(1, np.float32))))


@translates(
    "FusedBatchNormGrad",
    "FusedBatchNormGradV2",
    "FusedBatchNormGradV3",
    results="x_backprop scale_backprop offset_backprop reserve_space_3 reserve_space_4",
)
def batch_norm_gradient(n: Any, dy: Value, x: Value, scale: Value, mean: Value, variance: Value, more: Value = None) -> tuple[Tensor, ...]:
    """The derivatives by x, scale and offset. mean, variance: of the batch in training, else the kept ones."""
    g, t, d = n.g, first(n, n.g.tensor(x)), first(n, n.g.tensor(dy))
    epsilon = n.attr("epsilon", 1e-4)
    others = [k for k in range(t.rank) if k != 1]
    s, m, v = (norms.by_channel(g, u, t.rank) for u in (scale, mean, variance))
    (a, b, p, q, r), dims = g.align(t, d, s, m, v)
    wide = dtypes.accumulator(a.dtype)
    a, b, p, q, r = (e.cast(o, wide) for o in (a, b, p, q, r))
    by = 1.0 / e.sqrt(r + epsilon)
    if n.attr("is_training", True):  # the file's moments are TensorFlow's own word for these
        batch, spread = norms.moments(t, others)
        q, by = batch, 1.0 / e.sqrt(spread + epsilon)
    away = (a - q) * by
    axes = tuple([dims[k] for k in others if dims[k] is not None])
    d_offset = total(b, axes)
    d_scale = total(b * away, axes)
    if n.attr("is_training", True):
        count = e.filled(1, (), wide)
        for k in others:
            count = count * shapes.size_op(t.shape[k], wide)
        dx = p * by * (b - (d_offset + away * d_scale) / count)
    else:
        dx = b * p * by
    vectors = [g.made(e.cast(o, dtypes.float32), [dims[1]]) for o in (d_scale, d_offset)]
    empty = g.tensor(ConstantArray(np.zeros(0, np.float32)))
    return (back(n, g.made(e.cast(dx, t.op.dtype), dims)), *vectors, empty, empty)


def _local_response(n: Any, x: Tensor) -> Tensor:
    size = 2 * n.attr("depth_radius", 5) + 1
    y = norms.local_response(n.g, permuted(x, 0, 3, 1, 2), size, n.attr("alpha", 1.0) * size, n.attr("beta", 0.5), n.attr("bias", 1.0))
    return permuted(y, 0, 2, 3, 1)


@translates("LRN")
def local_response(n: Any, x: Value) -> Tensor:
    return _local_response(n, n.g.tensor(x))


@translates("LRNGrad")
def local_response_grad(n: Any, dy: Value, x: Value, y: Value) -> Tensor:
    t = n.g.tensor(x)
    return adjoint(n.g, lambda v: _local_response(n, v), t.shape, t.dtype, n.g.tensor(dy), t)


# ---- resizing -----------------------------------------------------------------------------------------------------------


def _resized(n: Any, t: Tensor, sizes: Sequence[ExprLike]) -> Tensor:
    """Returns images of other heights and widths, by the node's name and attributes."""
    corners, half = n.attr("align_corners", False), n.attr("half_pixel_centers", False)
    kind = {"ResizeBilinear": "linear", "ResizeNearestNeighbor": "nearest", "ResizeBicubic": "cubic"}[n.op.removesuffix("Grad")]
    places = "align_corners" if corners else "half_pixel" if half else "asymmetric"
    nearest = "round_prefer_ceil" if corners else "floor"
    if kind == "nearest" and half:  # floor((i + 0.5) * scale): the half is not taken away again
        places = "tf_half_pixel_for_nn"
    if kind == "cubic":
        by = sampling.Resizing(kind, places, nearest, cubic=-0.5 if half else -0.75, inside=bool(half), steps=1024)
    else:
        by = sampling.Resizing(kind, places, nearest)
    if kind != "nearest":
        t = Tensor(e.cast(t.op, dtypes.float32), t.dims)
    for k, many in zip((1, 2), sizes, strict=True):
        t = sampling.resized(n.g, t, k, many, 0.0, by)
    return t


@translates("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic")
def resize(n: Any, x: Value, sizes: Value) -> Tensor:
    return _resized(n, n.g.tensor(x), n.g.sizes(sizes))


@translates("ResizeBilinearGrad", "ResizeBicubicGrad", "ResizeNearestNeighborGrad")
def resize_gradient(n: Any, dy: Value, like: Value) -> Tensor:
    """Returns the derivative of a resize; like: the images, of ResizeNearestNeighborGrad their height and width."""
    g, d = n.g, n.g.tensor(dy)
    if n.op == "ResizeNearestNeighborGrad":
        shape, dtype = [d.shape[0], *g.sizes(like), d.shape[3]], d.op.dtype
    else:
        x = g.tensor(like)
        shape, dtype = x.shape, x.op.dtype
    return adjoint(g, lambda x: _resized(n, x, d.shape[1:3]), shape, dtype, d)


@translates("ResizeArea")
def resize_area(n: Any, x: Value, sizes: Value) -> Tensor:
    t = by_element.casted(n.g, n.g.tensor(x), np.dtype(np.float32))
    for k, many in zip((1, 2), n.g.numbers(n.g.sizes(sizes)), strict=True):
        ends = int(n.attr("align_corners", False) and many > 1)
        t = sampling.averaged(n.g, t, k, many, (n.g.number(t.shape[k]) - ends) / (many - ends))
    return t


@translates("ScaleAndTranslate")
def scale_and_translate(n: Any, x: Value, sizes: Value, scale: Value, shift: Value) -> Tensor:
    t = by_element.casted(n.g, n.g.tensor(x), np.dtype(np.float32))
    factors = [n.g.known(v).tolist() for v in (scale, shift)]
    for k, many, factor, by in zip((1, 2), n.g.numbers(n.g.sizes(sizes)), *factors, strict=True):
        t = sampling.moved(n.g, t, k, many, factor, by, n.attr("kernel_type", "lanczos3"), bool(n.attr("antialias", True)))
    return t

"""Translators of TensorFlow's convolutions, pooling, normalization and resizing, with their gradient ops.

A layout with channels last is another order of a tensor's dims: nothing is moved for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph.errors import GraphError, UnsupportedError
from ngraph.frontends.positional import elementwise as by_element
from ngraph.frontends.positional import indexing, norms, recurrent, sampling, shapes, windows
from ngraph.frontends.positional.adjoint import adjoint
from ngraph.frontends.positional.reductions import total
from ngraph.frontends.positional.shapes import permuted
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value
from ngraph.frontends.positional.windows import Windowing
from ngraph.frontends.tensorflow.shapes import strided_slice
from ngraph.frontends.tensorflow.table import Array, Ints, Lengths, rows, translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.expr import ExprLike
from ngraph.ops import elementwise as e
from ngraph.ops.rearrange import product


def channels_last(n: Any) -> bool:
    """Returns whether a node's tensors have their channels behind the spatial dims."""
    form = n.attr("data_format", "NHWC")
    if form not in ("NHWC", "NCHW", "NDHWC", "NCDHW", "NWC", "NCW"):
        raise UnsupportedError(f"the data format {form!r}", fix="use NHWC or NCHW")
    return bool(form[-1] == "C")


def first(n: Any, t: Tensor) -> Tensor:
    """Returns a node's tensor with its channels as dim 1."""
    return permuted(t, 0, t.rank - 1, *range(1, t.rank - 1)) if channels_last(n) else t


def first_size(n: Any, shape: Lengths) -> Lengths:
    """Returns the shape of a node's tensor with its channels as dim 1."""
    return [shape[0], shape[-1], *shape[1:-1]] if channels_last(n) else shape


def back(n: Any, t: Tensor) -> Tensor:
    """Returns a tensor whose channels are dim 1 in the node's layout."""
    return permuted(t, 0, *range(2, t.rank), 1) if channels_last(n) else t


def spatial(n: Any, name: str, rank: int, given: Sequence[int] | None = None) -> list[int]:
    """Returns numbers for the spatial dims, by default those of an attribute; none where it has none.

    Raises UnsupportedError where they also skip images or channels.
    """
    given = n.attr(name) or [] if given is None else given
    if len(given) == 1:
        return list(given) * (rank - 2)
    if len(given) in (0, rank - 2):
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


def _filters(g: Any, w: Value) -> Value:
    """Returns filters [spatial…, c, m] as [m, c, spatial…]."""
    order = (w.rank - 1, w.rank - 2, *range(w.rank - 2))
    return ConstantArray(np.transpose(w.array, order), w.name) if isinstance(w, ConstantArray) else permuted(g.tensor(w), *order)


def convolved(n: Any, x: Tensor, w: Value) -> Tensor:
    """Returns the convolution of x, channels as dim 1, with filters [spatial…, c, m]."""
    g = n.g
    by = windowing(n, g.numbers(w.shape[:-2]), x.rank)
    channels, depth = g.numbers([x.shape[1], w.shape[-2]])
    if channels % depth:
        raise GraphError(f"{channels} channels, and filters for {depth}")
    return windows.convolution(g, x, _filters(g, w), by, channels // depth)


def _by_depth(n: Any, w: Value) -> Value:
    """Returns filters [h, w, c, m] of a convolution by channels as [h, w, 1, c * m]; those of other convolutions as they are."""
    if not n.op.startswith("Depth"):
        return w
    *sides, c, m = w.shape
    if isinstance(w, ConstantArray):
        return ConstantArray(w.array.reshape([*map(int, sides), 1, -1]), w.name)
    return n.g.reshape(n.g.tensor(w), [*sides, 1, c * m])


@translates("Conv2DBackpropInput", "Conv3DBackpropInputV2", "DepthwiseConv2dNativeBackpropInput")
def conv_input_gradient(n: Any, sizes: Lengths, w: Value, d: Tensor) -> Tensor:
    w = _by_depth(n, w)
    inside = sizes if len(sizes) == d.rank - 2 else first_size(n, sizes)[2:]  # spatial sizes may stand alone
    channels = w.shape[-2] if len(sizes) == d.rank - 2 else first_size(n, sizes)[1]
    return back(n, adjoint(n.g, lambda x: convolved(n, x, w), [d.shape[0], channels, *inside], d.op.dtype, first(n, d)))


@translates("Conv2DBackpropFilter", "Conv3DBackpropFilterV2", "DepthwiseConv2dNativeBackpropFilter")
def conv_filter_gradient(n: Any, x: Tensor, sizes: Lengths, dy: Tensor) -> Value:
    t, d = first(n, x), first(n, dy)
    wanted = n.g.numbers(sizes)
    *sides, c, m = wanted
    shape = [*sides, 1, c * m] if n.op.startswith("Depth") else wanted
    return n.g.reshape(adjoint(n.g, lambda w: convolved(n, t, w), shape, d.op.dtype, d), wanted)


@translates("StridedSliceGrad")
def strided_slice_gradient(n: Any, shape: Lengths, begin: Value, end: Value, strides: Ints, d: Tensor) -> Tensor:
    return adjoint(n.g, lambda x: strided_slice(n, x, begin, end, strides), shape, d.op.dtype, d)


# ---- pooling ------------------------------------------------------------------------------------------------------------


def _pooled(n: Any, t: Tensor) -> Tensor:
    """Returns the pooling of a tensor whose channels are dim 1, by the node's attributes."""
    if "Max" in n.op:
        return _largest(n, t, ())[0]
    return windows.average_pool(n.g, t, windows.windows(n.g, t, windowing(n, spatial(n, "ksize", t.rank), t.rank)))


def _largest(n: Any, t: Tensor, given: Sequence[Sequence[int]], places: bool = False) -> tuple[Tensor, ...]:
    """Returns the largest of each window of a tensor whose channels are dim 1; given: kernel and strides, else attributes are."""
    kernel, strides = (spatial(n, name, t.rank, sizes) for name, sizes in zip(("ksize", "strides"), given or (None, None), strict=True))
    by = windowing(n, kernel, t.rank)._replace(strides=strides)
    return windows.max_pool(n.g, t, windows.windows(n.g, t, by), places)


@translates("MaxPoolV2")
def pool_v2(n: Any, x: Tensor, *given: Ints) -> Tensor:
    return back(n, _largest(n, first(n, x), given)[0])


@translates("MaxPoolGrad", "MaxPool3DGrad", "MaxPoolGradV2")
def max_pool_gradient(n: Any, x: Tensor, y: Value, dy: Tensor, *given: Ints) -> Tensor:
    return back(n, adjoint(n.g, lambda v: _largest(n, v, given)[0], (), None, first(n, dy), first(n, x)))


@translates("MaxPoolGradGrad", "MaxPool3DGradGrad", "MaxPoolGradGradV2")
def max_pool_gradient_by_gradient(n: Any, x: Tensor, y: Value, d: Tensor, *given: Ints) -> Tensor:
    """Returns, for each window, the element of d where that of x is the largest."""
    g, (t, u) = n.g, (n.g.full(first(n, v)) for v in (x, d))
    place = _largest(n, t, given, True)[1]
    return back(n, indexing.gathered(g, g.reshape(u, [product(u.shape)]), place, 0, n.takes[2]))


@translates("AvgPoolGrad", "AvgPool3DGrad")
def average_pool_gradient(n: Any, sizes: Lengths, d: Tensor) -> Tensor:
    return back(n, adjoint(n.g, lambda v: _pooled(n, v), first_size(n, sizes), d.op.dtype, first(n, d)))


# ---- normalization ------------------------------------------------------------------------------------------------------

VERSIONS = ("", "V2", "V3")
_RESERVED = " ".join(f"reserve_space_{k}" for k in (1, 2, 3))


@translates(*(f"FusedBatchNorm{version}" for version in VERSIONS), results=f"y batch_mean batch_variance {_RESERVED}")
def batch_norm(
    n: Any, x: Tensor, scale: Value, offset: Value, mean: Value, variance: Value, *, is_training: bool = True, epsilon: float = 1e-4
) -> tuple[Tensor, ...]:
    g, t = n.g, first(n, x)
    others = [k for k in range(t.rank) if k != 1]
    if is_training:
        kept = [g.made(e.cast(s, dtypes.float32), [t.dims[1]]) for s in norms.moments(t, others)]
    else:
        kept = [g.tensor(v) for v in (mean, variance)]
    y = norms.normalized(g, t, [norms.by_channel(g, v, t.rank) for v in (scale, offset, *kept)], epsilon)
    news = list(kept)
    if is_training:
        count = shapes.size_op(product([t.shape[k] for k in others]), dtypes.float32)
        news[1] = by_element.alone(g, lambda v: v * (count / e.maximum(count - 1.0, 1.0)), kept[1])
        share = n.attr("exponential_avg_factor", 1.0)
        if share != 1.0:
            pairs = zip((mean, variance), news, strict=True)
            news = [by_element.each(g, lambda a, b: a * (1 - share) + b * share, old, new) for old, new in pairs]
    return (back(n, y), *news, *kept, g.tensor(ConstantArray(np.zeros(1, np.float32))))


@translates(
    *(f"FusedBatchNormGrad{version}" for version in VERSIONS),
    results="x_backprop scale_backprop offset_backprop reserve_space_3 reserve_space_4",
)
def batch_norm_gradient(
    n: Any, dy: Tensor, x: Tensor, *vectors: Value, is_training: bool = True, epsilon: float = 1e-4
) -> tuple[Tensor, ...]:
    """The derivatives by x, scale and offset. vectors: scale, and mean and variance, of the batch in training, else the kept ones."""
    g, t, d = n.g, first(n, x), first(n, dy)
    others = [k for k in range(t.rank) if k != 1]
    ops, dims = g.align(t, d, *(norms.by_channel(g, v, t.rank) for v in vectors[:3]))
    wide = dtypes.accumulator(ops[0].dtype)
    a, b, scale, mean, variance = (e.cast(op, wide) for op in ops)
    if is_training:  # the file's moments are TensorFlow's own word for these
        mean, variance = norms.moments(t, others)
    by = 1.0 / e.sqrt(variance + epsilon)
    away = (a - mean) * by
    axes = tuple([dims[k] for k in others if dims[k] is not None])
    d_offset, d_scale = total(b, axes), total(b * away, axes)
    if is_training:
        b = b - (d_offset + away * d_scale) / shapes.size_op(product([t.shape[k] for k in others]), wide)
    found = [g.made(e.cast(op, dtypes.float32), [dims[1]]) for op in (d_scale, d_offset)]
    empty = g.tensor(ConstantArray(np.zeros(0, np.float32)))
    return (back(n, g.made(e.cast(b * scale * by, t.op.dtype), dims)), *found, empty, empty)


def _local_response(n: Any, x: Tensor) -> Tensor:
    size = 2 * n.attr("depth_radius", 5) + 1
    y = norms.local_response(n.g, permuted(x, 0, 3, 1, 2), size, n.attr("alpha", 1.0) * size, n.attr("beta", 0.5), n.attr("bias", 1.0))
    return permuted(y, 0, 2, 3, 1)


@translates("LRNGrad")
def local_response_grad(n: Any, dy: Tensor, t: Tensor, y: Value) -> Tensor:
    return adjoint(n.g, lambda v: _local_response(n, v), t.shape, t.dtype, dy, t)


# ---- resizing -----------------------------------------------------------------------------------------------------------


def _resized(n: Any, t: Tensor, sizes: Sequence[ExprLike]) -> Tensor:
    """Returns images of other heights and widths, by the node's name and attributes."""
    corners, half = n.attr("align_corners", False), n.attr("half_pixel_centers", False)
    kind = {"ResizeBilinear": "linear", "ResizeNearestNeighbor": "nearest", "ResizeBicubic": "cubic"}[n.op.removesuffix("Grad")]
    places = "align_corners" if corners else "half_pixel" if half else "asymmetric"
    if kind == "nearest" and half:  # floor((i + 0.5) * scale): the half is not taken away again
        places = "tf_half_pixel_for_nn"
    by = sampling.Resizing(kind, places, "round_prefer_ceil" if corners else "floor")
    if kind == "cubic":
        by = by._replace(cubic=-0.5 if half else -0.75, inside=bool(half), steps=1024)
    if kind != "nearest":
        t = Tensor(e.cast(t.op, dtypes.float32), t.dims)
    return sampling.resized_dims(n.g, t, (1, 2), sizes, (0.0, 0.0), by)


@translates("ResizeBilinearGrad", "ResizeBicubicGrad", "ResizeNearestNeighborGrad")
def resize_gradient(n: Any, d: Tensor, like: Value) -> Tensor:
    """Returns the derivative of a resize; like: the images, of ResizeNearestNeighborGrad their height and width."""
    g, shape, dtype = n.g, like.shape, dtypes.as_dtype(like.np)
    if n.op == "ResizeNearestNeighborGrad":
        shape, dtype = [d.shape[0], *g.sizes(like), d.shape[3]], d.op.dtype
    return adjoint(g, lambda x: _resized(n, x, d.shape[1:3]), shape, dtype, d)


@translates("ResizeArea")
def resize_area(g: Any, x: Tensor, sizes: Lengths, *, align_corners: bool = False) -> Tensor:
    t = by_element.casted(g, x, np.dtype(np.float32))
    for k, many in zip((1, 2), g.numbers(sizes), strict=True):
        ends = int(align_corners and many > 1)
        t = sampling.averaged(g, t, k, many, (g.number(t.shape[k]) - ends) / (many - ends))
    return t


@translates("ScaleAndTranslate")
def scale_and_translate(
    g: Any, x: Tensor, sizes: Lengths, scale: Array, shift: Array, *, kernel_type: str = "lanczos3", antialias: bool = True
) -> Tensor:
    t = by_element.casted(g, x, np.dtype(np.float32))
    return _moved(g, t, g.numbers(sizes), scale, shift, kernel_type, antialias)


def _moved(g: Any, t: Tensor, sizes: Sequence[int], scale: Array, shift: Array, kind: str, antialias: bool) -> Tensor:
    for k, many, factor, by in zip((1, 2), sizes, scale.tolist(), shift.tolist(), strict=True):
        t = sampling.moved(g, t, k, many, factor, by, kind, antialias)
    return t


@translates("ScaleAndTranslateGrad")
def scale_and_translate_gradient(
    g: Any, d: Tensor, like: Value, scale: Array, shift: Array, *, kernel_type: str = "lanczos3", antialias: bool = True
) -> Tensor:
    def run(x: Tensor) -> Tensor:
        return _moved(g, x, g.numbers(d.shape[1:3]), scale, shift, kernel_type, antialias)

    return adjoint(g, run, like.shape, dtypes.float32, d)


rows(
    {
        "Conv2D Conv3D DepthwiseConv2dNative": lambda n, x, w: back(n, convolved(n, first(n, n.g.tensor(x)), _by_depth(n, w))),
        "MaxPool AvgPool MaxPool3D AvgPool3D": lambda n, x: back(n, _pooled(n, first(n, n.g.tensor(x)))),
        "LRN": lambda n, x: _local_response(n, n.g.tensor(x)),
        "ResizeBilinear ResizeNearestNeighbor ResizeBicubic": lambda n, x, sizes: _resized(n, n.g.tensor(x), n.g.sizes(sizes)),
    }
)


# ---- recurrent layers of TensorFlow 1 -----------------------------------------------------------------------------------

_GATES = {"LSTMBlockCell": (1.0, 3.0), "BlockLSTM": (1.0, 3.0), "BlockLSTMV2": (0.0, 0.0)}  # forget_bias and cell_clip by default


@translates(*_GATES, results="i cs f o ci co h")
def lstm_block(n: Any, *given: Tensor) -> tuple[Tensor, ...]:
    """Returns gates, cell and output of a step, or with the number of steps in front, of all times of [time, batch, inputs]."""
    steps, (x, c, h, w, *peepholes, b) = given[:-8] or [None], given[-8:]
    forget, clip = (n.attr(name, default) for name, default in zip(("forget_bias", "cell_clip"), _GATES[n.op], strict=True))
    how = ("ifco" if n.op.endswith("V2") else "icfo", forget, clip)
    return recurrent.lstm_block(n.g, how, x, c, h, w, peepholes if n.attr("use_peephole", False) else [], b, steps[0])


translates("GRUBlockCell", results="r u c h")(lambda n, *given: recurrent.gru_block(n.g, *map(n.g.tensor, given)))

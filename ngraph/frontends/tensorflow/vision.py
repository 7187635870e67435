"""Translators of TensorFlow's ops on images: regions, boxes, colours, patches, and pooling that says where.

Sources: tensorflow/core/kernels/image/crop_and_resize_op.cc, non_max_suppression_op.cc, colorspace_op.h, adjust_*_op.cc, image_ops.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph.frontends.positional import boxes, colours, indexing, shapes, windows
from ngraph.frontends.positional import elementwise as by_element
from ngraph.frontends.positional.adjoint import adjoint
from ngraph.frontends.positional.reductions import REDUCTIONS, mean, reduce_over, total
from ngraph.frontends.positional.sampling import cropped
from ngraph.frontends.positional.values import Tensor, Value
from ngraph.frontends.tensorflow.host import steps
from ngraph.frontends.tensorflow.layers import back, first, spatial, windowing
from ngraph.frontends.tensorflow.table import Array, Lengths, Translator, rows, translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.indexing import gather
from ngraph.ops.random import normal, uniform
from ngraph.ops.rearrange import iota, product

# ---- regions ------------------------------------------------------------------------------------------------------------


@translates("CropAndResize")
def crop_and_resize(
    n: Any, x: Tensor, boxes: Tensor, numbers: Value, sizes: Lengths, *, method: str = "bilinear", extrapolation_value: float = 0.0
) -> Value:
    t = by_element.casted(n.g, x, dtypes.float32.np)
    return cropped(n.g, t, 1, boxes, numbers, n.g.numbers(sizes), method == "nearest", extrapolation_value, n.takes[0])


@translates("CropAndResizeGradImage")
def by_images(n: Any, d: Tensor, boxes: Tensor, numbers: Value, sizes: Lengths, *, T: DType, method: str = "bilinear") -> Value:
    def run(x: Tensor) -> Tensor:
        return cropped(n.g, x, 1, boxes, numbers, n.g.numbers(d.shape[1:3]), method == "nearest", 0.0, n.takes[1])

    return by_element.casted(n.g, adjoint(n.g, run, sizes, dtypes.float32, d), T.np)


@translates("CropAndResizeGradBoxes")
def by_boxes(n: Any, d: Tensor, x: Tensor, boxes: Tensor, numbers: Value) -> Value:
    t = by_element.casted(n.g, x, dtypes.float32.np)
    return adjoint(n.g, lambda b: cropped(n.g, t, 1, b, numbers, n.g.numbers(d.shape[1:3]), False, 0.0, n.takes[1]), (), None, d, boxes)


def _folded(at: Op, size: Op, mode: str) -> Op:
    """Returns coordinates that are beyond the ends of an axis of this length where the mode says that they read."""
    last, zero = size - 1.0, e.filled(0.0, (), at.dtype)
    if mode == "CONSTANT":
        return at
    if mode == "REFLECT":
        both = size * 2.0
        below, above = at + both * e.floor(-at / both), at - both * e.floor(at / both)
        below = e.where(e.less(below, -size), below + both, -below - 1.0)
        above = e.where(e.greater_equal(above, size), both - above - 1.0, above)
    elif mode == "WRAP":
        below, above = at + size * (e.floor(-at / last) + 1.0), at - size * e.floor(at / last)
    else:
        below, above = zero, last
    folded = e.where(e.less(at, 0.0), below, e.where(e.greater(at, last), above, at))
    return e.minimum(e.maximum(e.where(e.less_equal(size, 1.0), zero, folded), 0.0), last)


def _nearest_whole(at: Op) -> Op:
    """Returns the nearest whole number, of two the one farther from 0."""
    low = e.floor(at)
    part = at - low
    return low + e.cast(e.logical_or(e.greater(part, 0.5), e.logical_and(e.equal(part, 0.5), e.greater(at, 0.0))), at.dtype)


@translates("ImageProjectiveTransformV2", "ImageProjectiveTransformV3")
def projected(
    n: Any, x: Tensor, transforms: Tensor, sizes: Lengths, fill: Value | None = None, *, interpolation: str, fill_mode: str = "CONSTANT"
) -> Value:
    """Returns images in which each pixel reads the place that its image's projective transform gives."""
    g, wide = n.g, dtypes.float32
    images, t = g.full(x), g.full(g.apart(transforms, x.dims))
    each = gather(t.op, iota(images.dims[0]), axes=(t.dims[0],), mode="clip")  # a single transform is that of all images
    a, b, c, d, f, h, p, q = (each[{t.dims[1]: k}] for k in range(8))
    high, across = (g.fresh(size) for size in sizes)
    row, column = (e.cast(iota(axis), wide) for axis in (high, across))
    depth = p * column + q * row + 1.0
    lengths = [shapes.size_op(axis.size, wide) for axis in images.dims[1:3]]
    ways = ((d * column + f * row + h) / depth, (a * column + b * row + c) / depth)
    at = [_folded(v, size, fill_mode) for v, size in zip(ways, lengths, strict=True)]
    linear = interpolation == "BILINEAR"
    pixels = e.cast(images.op, wide) if linear else images.op
    value = e.filled(0, (), images.op.dtype) if fill is None else e.cast(g.tensor(fill).op, images.op.dtype)
    outside = e.cast(value, pixels.dtype)

    def read(*places: Op) -> Op:
        inside, index = e.filled(True, (), dtypes.bool_), list[Op]()
        for place, size in zip(places, lengths, strict=True):
            inside = e.logical_and(inside, e.logical_and(e.less_equal(0.0, place), e.less_equal(place, size - 1.0)))
            index.append(e.cast(e.minimum(e.maximum(place, 0.0), size - 1.0), dtypes.int32))
        return e.where(inside, gather(pixels, *index, axes=tuple(images.dims[1:3]), mode="clip"), outside)

    if linear:
        low = [e.floor(v) for v in at]
        (y, left), (top, start) = at, low
        rows_read = [(start + 1.0 - left) * read(v, start) + (left - start) * read(v, start + 1.0) for v in (top, top + 1.0)]
        found = e.cast((top + 1.0 - y) * rows_read[0] + (y - top) * rows_read[1], value.dtype)
    else:
        found = read(*[_nearest_whole(v) for v in at])
    return g.made(e.where(e.equal(depth, 0.0), value, found), [images.dims[0], high, across, images.dims[3]])


@translates("ExtractGlimpse", "ExtractGlimpseV2")
def glimpses(
    n: Any, x: Tensor, sizes: Lengths, offsets: Tensor, *, centered: bool = True, normalized: bool = True, uniform_noise: bool = True
) -> Tensor:
    """Returns a window of each image, and noise where it is outside. Two versions count offsets from other places."""
    g, t, old = n.g, n.g.full(x), n.op == "ExtractGlimpse"
    noise, at, inside = "uniform" if uniform_noise else n.attr("noise"), list[Op](), e.filled(True, (), dtypes.bool_)
    axes = [g.fresh(size) for size in sizes]
    for k, (axis, size) in enumerate(zip(axes, sizes, strict=True)):
        length, half = shapes.size_op(t.shape[1 + k], dtypes.float32), shapes.size_op(size, dtypes.float32) * 0.5
        start = g.renamed(g.full(shapes.at(g, offsets, 1, k)), t.dims[:1]).op
        start = start * length if normalized else start
        if centered:
            start = (start * 0.5 if old or normalized else start) + length * 0.5
        i = e.cast(start - half if old or (centered and normalized) else start, dtypes.int64) + iota(axis)
        inside = e.logical_and(inside, e.logical_and(e.less_equal(0, i), e.less(i, shapes.size_op(t.shape[1 + k]))))
        at.append(i)
    found = gather(t.op, *at, axes=tuple(t.dims[1:3]), mode="clip")
    every, fill = tuple(t.dims), e.filled(0, (), t.op.dtype)
    if noise != "zero":
        low, high, middle = (*(total(t.op, every, kind) for kind in ("min", "max")), mean(t.op, every))
        spread = e.sqrt(mean((t.op - middle) * (t.op - middle), every))
        drawn = normal(found.axes) * spread + middle if noise == "gaussian" else uniform(found.axes) * (high - low) + low
        fill = e.minimum(e.maximum(drawn, low), high)
    return g.made(e.where(inside, found, fill), [t.dims[0], *axes, t.dims[3]])


def _given(n: Any, *of: Any) -> Sequence[Any]:
    """Returns those of numbers, scores and count that a version of the op gives."""
    return {"V4": of[::2], "V5": of}.get(n.op[-2:], of[:1])


def _dtypes_given(n: Any, boxes: Value, scores: Value, *more: Value) -> Sequence[Any]:
    return _given(n, np.int32, scores.np, np.int32)


@steps(*(f"NonMaxSuppression{version}" for version in ("", "V2", "V3", "WithOverlaps")), gives=_dtypes_given, python=True)
@steps("NonMaxSuppressionV4", gives=_dtypes_given, results="selected_indices valid_outputs", python=True)
@steps("NonMaxSuppressionV5", gives=_dtypes_given, results="selected_indices selected_scores valid_outputs", python=True)
def suppressed(
    n: Any, b: Array, s: Array, many: Array, *given: Array, iou_threshold: float = 0.5, pad_to_max_output_size: bool = False
) -> Sequence[Array]:
    """Returns the numbers, scores and count of the best boxes."""
    most, least, sigma = [float(v) for v in given] + [iou_threshold, -np.inf, 0.0][len(given) :]
    wide = np.float64 if s.dtype == np.float64 else np.float32
    b, s = b.astype(wide), s.astype(wide)
    shared = (lambda some, others: b[np.ix_(some, others)]) if n.op.endswith("Overlaps") else boxes.shared(b)
    found, kept = boxes.chosen(s, shared, int(many), most, least, sigma)
    valid = np.array(len(found))
    if pad_to_max_output_size:
        found, kept = (np.pad(a, (0, max(int(many) - len(a), 0))) for a in (found, kept))
    return _given(n, found, kept, valid)


@steps(
    "CombinedNonMaxSuppression",
    gives=(np.float32, np.float32, np.float32, np.int32),
    results="nmsed_boxes nmsed_scores nmsed_classes valid_detections",
    python=True,
)
def suppressed_by_class(
    n: Any, b: Array, s: Array, *limits: Array, pad_per_class: bool = False, clip_boxes: bool = True
) -> tuple[Array, ...]:
    return boxes.chosen_by_class(b, s, limits, pad_per_class, clip_boxes)


steps("DrawBoundingBoxes", "DrawBoundingBoxesV2", gives=lambda n, pictures, *more: [pictures.np], python=True)(
    lambda n, *given: boxes.drawn(*given)
)


# ---- colours ------------------------------------------------------------------------------------------------------------


def _hue_moved(r: Op, g: Op, b: Op, by: Op) -> tuple[Op, Op, Op]:
    h, s, v = colours.to_hsv(r, g, b)
    h = h + by
    return colours.from_hsv(h - e.floor(h), s, v)


def _saturated(r: Op, g: Op, b: Op, by: Op) -> tuple[Op, Op, Op]:
    h, s, v = colours.to_hsv(r, g, b)
    return colours.from_hsv(h, e.minimum(e.maximum(s * by, 0.0), 1.0), v)


def _by_channels(function: Any) -> Translator:
    return lambda g, x, *more: colours.by_channels(g, function, x, x.rank - 1, *more)


COLOURS = {"RGBToHSV": colours.to_hsv, "HSVToRGB": colours.from_hsv, "AdjustHue": _hue_moved, "AdjustSaturation": _saturated}
rows({op: _by_channels(function) for op, function in COLOURS.items()})


@translates("AdjustContrastv2")
def contrast(g: Any, t: Tensor, by: Value) -> Tensor:
    mean = reduce_over(t, [t.rank - 3, t.rank - 2], REDUCTIONS["mean"], True)
    return by_element.each(g, lambda v, m, k: e.cast((v - m) * e.cast(k, v.dtype) + m, v.dtype), t, mean, by)


# ---- windows ------------------------------------------------------------------------------------------------------------


def _by_rates(n: Any, kernel: Sequence[int], rank: int) -> windows.Windowing:
    """Returns the windows of a node whose dilations are called rates."""
    return windowing(n, kernel, rank)._replace(dilations=spatial(n, "rates", rank) or [1] * (rank - 2))


@translates("ExtractImagePatches")
def patches(n: Any, x: Tensor) -> Value:
    """Returns each window's elements along the last dim, channels fastest."""
    t = first(n, x)
    by = _by_rates(n, spatial(n, "ksizes", t.rank), t.rank)
    read, _, _ = windows.read(n.g, t, windows.windows(n.g, t, by), 0)
    made = back(n, read)
    return n.g.reshape(made, [*made.shape[: t.rank - 1], product(made.shape[t.rank - 1 :])])


@translates("MaxPoolWithArgmax", results="output argmax")
def max_pool_with_places(
    n: Any, x: Tensor, *, include_batch_in_index: bool = False, Targmax: DType = dtypes.int64
) -> tuple[Tensor, Tensor]:
    """Returns the largest of each window, and its position in the image, or with `include_batch_in_index` in the batch."""
    g, t = n.g, n.g.full(first(n, x))
    by = windowing(n, spatial(n, "ksize", t.rank), t.rank)
    y, place = windows.max_pool(g, t, windows.windows(g, t, by), places=True)
    many, image = shapes.size_op(t.shape[1]), shapes.size_op(product(t.shape[2:]))
    image_of, channel = (iota(d, dtypes.int64) for d in t.dims[:2])
    position = place.op - (image_of * many + channel) * image
    if include_batch_in_index:
        position = position + image_of * image
    found = g.made(e.cast(position * many + channel, Targmax), [*t.dims[:2], *g.full(place).dims[2:]])
    return back(n, y), back(n, found)


@translates("MaxPoolGradWithArgmax")
def by_places(n: Any, x: Tensor, d: Tensor, places: Tensor, *, include_batch_in_index: bool = False) -> Tensor:
    """Returns elements of d at the places of the largest ones."""
    g, (d, at) = n.g, (n.g.full(v) for v in (d, places))
    image = product(x.shape[1:])
    i = e.cast(g.renamed(at, d.dims).op, dtypes.int64)
    if not include_batch_in_index:
        i = i + iota(d.dims[0], dtypes.int64) * shapes.size_op(image)
    zeros = shapes.filled(g, np.zeros((), d.np)[()], [product(x.shape)])
    return g.reshape(indexing.scattered_rows(g, zeros, Tensor(i, d.dims), d, "add", n.takes[2]), x.shape)


@translates("Dilation2DBackpropInput", "Dilation2DBackpropFilter")
def dilation_gradient(n: Any, x: Tensor, f: Tensor, d: Tensor) -> Tensor:
    if n.op.endswith("Input"):
        return adjoint(n.g, lambda v: dilation(n, v, f), (), None, d, x)
    return adjoint(n.g, lambda v: dilation(n, x, v), (), None, d, f)


@translates("Dilation2D")
def dilation(n: Any, x: Tensor, f: Tensor) -> Tensor:
    """Returns the largest sum of each window's elements and those of a filter."""
    g, t = n.g, first(n, x)
    ws = windows.windows(g, t, _by_rates(n, g.numbers(f.shape[:2]), t.rank))
    read, _, _ = windows.read(g, t, ws, 0)
    inside, _, _ = windows.read(g, by_element.alone(g, lambda op: e.filled(True, op.axes, dtypes.bool_), t), ws, False)
    order = shapes.permuted(f, None, 2, None, None, 0, 1)
    made = by_element.each(g, lambda c, a, b: e.where(c, a + b, e.filled(a.dtype.lowest, (), a.dtype)), inside, read, order)
    return back(n, reduce_over(made, [4, 5], REDUCTIONS["max"], False))

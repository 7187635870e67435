"""Translators of ops that read between elements: Resize, GridSample, RoiAlign and their like."""

from __future__ import annotations

from typing import Any

import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional import sampling
from ngraph.frontends.positional.sampling import Resizing, scaled_size
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.expr import ExprLike
from ngraph.ops import elementwise as e


def resizing(n: Any) -> Resizing:
    """Returns a node's attributes for resizing."""
    old = n.op == "Upsample" or n.version < 11
    return Resizing(
        {"bilinear": "linear"}.get(kind := n.attr("mode", "nearest"), kind),
        n.attr("coordinate_transformation_mode", "asymmetric" if old else "half_pixel"),
        n.attr("nearest_mode", "by_scale" if old else "round_prefer_floor"),
        bool(n.attr("antialias", 0)),
        n.attr("cubic_coeff_a", -0.75),
        bool(n.attr("exclude_outside", 0)),
        n.attr("extrapolation_value", 0.0),
        np.float32,
    )


@translates("Resize")
def resize(n: Any, x: Value, *more: Value) -> Tensor:
    g, t = n.g, n.g.tensor(x)
    roi, scales, sizes = (None, *more, None)[:3] if n.version == 10 else (*more, None, None, None)[:3]
    axes = [k % t.rank for k in n.attr("axes") or range(t.rank)]
    shape = t.shape
    by: list[float] = []
    counts: list[ExprLike] = []
    if sizes is not None and (not isinstance(sizes, ConstantArray) or sizes.array.size):
        wanted = g.sizes(sizes)
        policy = n.attr("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            lengths = g.numbers(shape[k] for k in axes)
            ratio = (min if policy == "not_larger" else max)(w / o for w, o in zip(g.numbers(wanted), lengths, strict=True))
            counts, by = [int(ratio * o + 0.5) for o in lengths], [ratio] * len(axes)
        else:
            counts = wanted
            by = [0.0] * len(axes)
    else:
        if scales is None:
            raise GraphError("neither scales nor sizes are given")
        by = [float(s) for s in g.known(scales)]
        counts = [scaled_size(g, shape[k], s) for k, s in zip(axes, by, strict=True)]
    crops = roi is not None and n.attr("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    regions = [*zip(*np.split(np.asarray(g.known(roi)), 2), strict=True)] if crops else []
    how, old = resizing(n), t.op.dtype
    mixes = old.is_integer and how.kind != "nearest"  # integers are rounded once, behind the last dim
    if mixes:
        t = g.made(e.cast(t.op, dtypes.float32), t.dims)
    t = sampling.resized_dims(g, t, axes, counts, by, how, regions)
    if mixes:
        y = e.minimum(e.maximum(e.rounded(t.op) if how.antialias else t.op, float(old.lowest)), float(old.highest))
        t = g.made(e.cast(y, old), t.dims)
    return t


@translates("Upsample")
def upsample(n: Any, x: Value, scales: Value = None) -> Tensor:
    g, t = n.g, n.g.tensor(x)
    by = n.attr("scales") if scales is None else g.known(scales)
    if by is None:  # version 1
        by = [1.0] * (t.rank - 2) + [n.attr("height_scale"), n.attr("width_scale")]
    scales = [float(s) for s in by]
    counts = [scaled_size(g, size, s) for size, s in zip(t.shape, scales, strict=True)]
    return sampling.resized_dims(g, t, range(t.rank), counts, scales, resizing(n))


@translates("GridSample")
def grid_sample(n: Any, x: Value, grid: Value) -> Tensor:
    mode = n.attr("mode", "linear")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return sampling.grid_sample(n.g, x, grid, mode, n.attr("padding_mode", "zeros"), bool(n.attr("align_corners", 0)))


@translates("AffineGrid")
def affine_grid(n: Any, matrices: Value, size: Value) -> Tensor:
    return sampling.affine_grid(n.g, matrices, n.g.sizes(size)[2:], bool(n.attr("align_corners", 0)))


@translates("RoiAlign")
def roi_align(n: Any, x: Value, rois: Value, batches: Value) -> Tensor:
    half = n.attr("coordinate_transformation_mode", "half_pixel" if n.version >= 16 else "output_half_pixel") == "half_pixel"
    counts, scale, ratio = (
        [n.attr("output_height", 1), n.attr("output_width", 1)],
        n.attr("spatial_scale", 1.0),
        n.attr("sampling_ratio", 0),
    )
    return sampling.roi_align(n.g, x, rois, batches, counts, scale, ratio, half, n.attr("mode", "avg") == "max", n.takes[0])


@translates("MaxRoiPool")
def max_roi_pool(n: Any, x: Value, rois: Value) -> Tensor:
    return sampling.max_roi_pool(n.g, x, rois, n.attr("spatial_scale", 1.0), n.attr("pooled_shape"), n.takes[0])


@translates("NonMaxSuppression")
def non_max_suppression(n: Any, boxes: Value, scores: Value, most: Value = None, overlap: Value = None, least: Value = None) -> Value:
    """The standard's default is no box."""
    none = ConstantArray(np.zeros((), np.int64))
    return sampling.suppressed(n.g, boxes, scores, none if most is None else most, overlap, least, bool(n.attr("center_point_box", 0)))

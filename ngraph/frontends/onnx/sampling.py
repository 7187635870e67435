"""Translators of ops that read between elements: Resize, GridSample, RoiAlign."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product as every
from typing import Any

import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.onnx.arithmetic import total
from ngraph.frontends.onnx.shapes import dim_of, index_along, known_array
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value, check_room
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axes, Axis
from ngraph.op_graph.expr import Expr, ExprLike, Idx
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.indexing import gather
from ngraph.ops.linear import contract
from ngraph.ops.rearrange import iota
from ngraph.ops.reduce import reduce

Taps = list[tuple[Op, Op]]  # index and weight of each element that is read along an axis


def number(size: ExprLike, dtype: Any) -> Op:
    """A length as a scalar."""
    return e.constant_record.build(value=size if isinstance(size, Expr) else int(size), axes=Axes(), dtype=dtype)


def tapped(x: Op, axes: Sequence[Axis], taps: Sequence[Taps], mode: str = "fill") -> Op:
    """The weighted sum of what every choice of a tap along each axis reads."""
    found: Op | None = None
    for chosen in every(*taps):
        read = gather(x, *(i for i, _ in chosen), axes=tuple(axes), mode=mode)
        weight = chosen[0][1]
        for _, w in chosen[1:]:
            weight = weight * w
        part = read * e.cast(weight, x.dtype)
        found = part if found is None else found + part
    assert found is not None
    return found


def between(x: Op, axes: Sequence[Axis], places: Sequence[Op]) -> Op:
    """x at places between elements, linear along each axis; 0 outside."""
    taps: list[Taps] = []
    for p in places:
        low = e.floor(p)
        part = p - low
        i = e.cast(low, dtypes.int32)
        taps.append([(i, 1.0 - part), (i + 1, part)])
    return tapped(x, axes, taps)


# ---- Resize -------------------------------------------------------------------------------------------------------------


def places(mode: str, size: int, count: int, scale: float, region: tuple[float, float]) -> np.ndarray[Any, Any]:
    """Where in a dim of `size` elements each of `count` reads, as a real number."""
    check_room(count)
    o = np.arange(count, dtype=np.float64)
    whole = scale * size
    if mode == "align_corners":
        return o * 0 if whole == 1 else o * (size - 1) / (whole - 1)
    if mode == "asymmetric":
        return o / scale
    if mode == "tf_crop_and_resize":
        first, last = region
        step = (last - first) * (size - 1)
        return first * (size - 1) + (np.full(count, step / 2) if count == 1 else o * step / (count - 1))
    if mode == "half_pixel_symmetric":
        return size / 2 * (1 - count / whole) + (o + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel" and count == 1:
        return np.full(1, -0.5)
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return (o + 0.5) / scale - 0.5
    if mode == "tf_half_pixel_for_nn":
        return (o + 0.5) / scale
    raise GraphError(f"there is no coordinate_transformation_mode {mode!r}")


NEAREST: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def hat(x: Any) -> Any:
    return np.clip(1 - abs(x), 0, None)


def cubic(a: float) -> Callable[[Any], Any]:
    """The cubic convolution kernel (Keys 1981)."""

    def kernel(x: Any) -> Any:
        x = abs(x)
        near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return np.where(x <= 1, near, np.where(x < 2, far, 0))

    return kernel


def weights(at: Any, kernel: Callable[[Any], Any], reach: int, scale: float) -> tuple[Any, Any]:
    """For each place the elements around it, and their weights; scale below 1 widens the kernel."""
    scale = min(scale, 1.0)
    base = np.floor(at)
    first = int(math.floor(-reach / scale) + 1)
    check_room(len(at), 2 - 2 * first)
    near = base[:, None] + np.arange(first, 2 - first)
    w = kernel((near - at[:, None]) * scale)
    return near.astype(int), w / w.sum(1, keepdims=True)


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
            old = g.numbers(shape[k] for k in axes)
            ratio = (min if policy == "not_larger" else max)(w / o for w, o in zip(g.numbers(wanted), old, strict=True))
            counts, by = [int(ratio * o + 0.5) for o in old], [ratio] * len(axes)
        else:
            counts = wanted
            by = [0.0] * len(axes)
    else:
        if scales is None:
            raise GraphError("neither scales nor sizes are given")
        by = [float(s) for s in g.known(scales)]
        counts = [scaled_size(g, shape[k], s) for k, s in zip(axes, by, strict=True)]
    region = [] if roi is None or n.attr("coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize" else g.known(roi).tolist()
    for j, k in enumerate(axes):
        part = (region[j], region[j + len(axes)]) if region else (0.0, 1.0)
        t = resized(n, t, k, counts[j], by[j], part, bool(region))
    return t


def scaled_size(g: Any, size: ExprLike, scale: float) -> ExprLike:
    if isinstance(size, int):
        return int(math.floor(size * scale))
    if scale == int(scale):
        return size * int(scale)
    return size // round(1 / scale) if 1 / scale == round(1 / scale) else int(math.floor(g.number(size) * scale))


@translates("Upsample")
def upsample(n: Any, x: Value, scales: Value = None) -> Tensor:
    g, t = n.g, n.g.tensor(x)
    by = n.attr("scales") if scales is None else g.known(scales)
    if by is None:  # version 1
        by = [1.0] * (t.rank - 2) + [n.attr("height_scale"), n.attr("width_scale")]
    for k, s in enumerate(by):
        t = resized(n, t, k, scaled_size(g, t.shape[k], float(s)), float(s), (0.0, 1.0), False)
    return t


def resized(n: Any, t: Tensor, k: int, count: ExprLike, scale: float, region: tuple[float, float], cropped: bool) -> Tensor:
    """One dim of another length."""
    g, size = n.g, t.shape[k]
    old = n.op == "Upsample" or n.version < 11
    mode, kind = n.attr("coordinate_transformation_mode", "asymmetric" if old else "half_pixel"), n.attr("mode", "nearest")
    if not cropped and (scale == 1.0 or (scale == 0.0 and g.same(size, count))):
        return t
    nearest = n.attr("nearest_mode", "floor" if old else "round_prefer_floor")
    t = g.full(t, [k])
    d = t.dims[k]
    whole = scale and scale == int(scale) and kind == "nearest"
    if whole and (mode, nearest) in (("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")):
        out = g.resized(d, count)
        return g.read(t, [out if j == k else a for j, a in enumerate(t.dims)], {d: Idx(out) // int(scale)})
    length, many = g.numbers([size, count])
    scale = scale or many / length
    at = places(mode, length, many, scale, region)
    antialias = bool(n.attr("antialias", 0))
    if kind == "nearest":
        near, w = NEAREST[nearest](at).astype(int)[:, None], np.ones((many, 1))
    elif kind in ("linear", "bilinear"):
        near, w = weights(at, hat, 1, scale if antialias else 1.0)
    elif kind == "cubic":
        near, w = weights(at, cubic(n.attr("cubic_coeff_a", -0.75)), 2, scale if antialias else 1.0)
    else:
        raise GraphError(f"there is no mode {kind!r}")
    if n.attr("exclude_outside", 0):
        w = np.where((near >= 0) & (near < length), w, 0)
        w = w / w.sum(1, keepdims=True)
    y = mixed(g, t, k, near.clip(0, length - 1), w)
    if mode == "tf_crop_and_resize":
        outside = g.tensor(ConstantArray((at < 0) | (at > length - 1)))
        o = g.renamed(g.full(outside), [y.dims[k]]).op if y.dims[k] is not None else outside.op
        y = g.made(e.where(o, e.filled(n.attr("extrapolation_value", 0.0), (), y.op.dtype), y.op), y.dims)
    return y


def mixed(g: Any, t: Tensor, k: int, near: Any, w: Any) -> Tensor:
    """Along dim k, for each row of `near` the elements there, weighted by `w`."""
    d = t.dims[k]
    used = (w != 0).any(0)
    near, w = near[:, used], w[:, used]
    out, tap = g.fresh(len(near)), g.fresh(near.shape[1])
    dims = [out if j == k else a for j, a in enumerate(t.dims)]
    index = e.constant(near.astype(np.int32), [out, tap])
    read = gather(t.op, index, axes=(d,), mode="clip")
    if near.shape[1] == 1 and (w == 1).all():
        return g.made(g.squeezed(Tensor(read, [*dims, tap]), len(dims)).op, dims)
    wide = dtypes.float32 if not t.op.dtype.is_float or t.op.dtype.bits < 32 else t.op.dtype
    made = contract.build(e.cast(read, wide), e.constant(w.astype(wide.np), [out, tap]), over=(tap,), accumulate=wide)
    if t.op.dtype.is_integer:
        made = e.minimum(e.maximum(e.rounded(made), float(t.op.dtype.lowest)), float(t.op.dtype.highest))
    return g.made(e.cast(made, t.op.dtype), dims)


# ---- GridSample ---------------------------------------------------------------------------------------------------------


def reflected(x: Op, low: Op, high: Op) -> Op:
    """x folded back between two ends."""
    span = high - low
    turn = e.remainder(x - low, span * 2.0)
    return low + span - e.absolute(turn - span)


@translates("GridSample")
def grid_sample(n: Any, x: Value, grid: Value) -> Tensor:
    g = n.g
    t = g.full(g.tensor(x))
    mode, padding, corners = n.attr("mode", "linear"), n.attr("padding_mode", "zeros"), n.attr("align_corners", 0)
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    spatial = t.dims[2:]
    p = g.apart(g.full(g.tensor(grid)), t.dims)
    p = g.renamed(p, [t.dims[0], *p.dims[1:]])
    last, wide = p.dims[-1], p.op.dtype
    taps: list[Taps] = []
    for j, d in enumerate(spatial):
        at = g.read(p, [*p.dims[:-1], None], {last: len(spatial) - 1 - j}).op
        size = number(d.size, wide)
        low = e.filled(0.0 if corners else -0.5, (), wide)
        high = size - (1.0 if corners else 0.5)
        v = (at + 1.0) * 0.5 * (size - 1.0) if corners else ((at + 1.0) * size - 1.0) * 0.5
        if mode == "nearest":
            v = e.rounded(v)
        if padding == "border":
            v = e.minimum(e.maximum(v, 0.0), size - 1.0)
        elif padding == "reflection":
            v = reflected(v, low, high)

        def index(i: Op, low: Op = low, high: Op = high, size: Op = size) -> Op:
            if padding == "reflection":
                i = e.minimum(e.maximum(e.rounded(reflected(i, low, high)), 0.0), size - 1.0)
            elif padding == "border":
                i = e.minimum(e.maximum(i, 0.0), size - 1.0)
            return e.cast(i, dtypes.int32)

        if mode == "nearest":
            taps.append([(index(e.rounded(v)), e.filled(1.0, (), wide))])
            continue
        base = e.floor(v)
        part = v - base
        if mode == "linear":
            taps.append([(index(base), 1.0 - part), (index(base + 1.0), part)])
        elif mode == "cubic":
            taps.append([(index(base + float(k)), keys(e.absolute(part - float(k)))) for k in (-1, 0, 1, 2)])
        else:
            raise GraphError(f"there is no mode {mode!r}")
    dims = [t.dims[0], t.dims[1], *p.dims[1:-1]]
    return g.made(tapped(t.op, spatial, taps), dims)


def keys(x: Op, a: float = -0.75) -> Op:
    """The cubic convolution kernel of a distance."""
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1.0, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return e.where(e.less_equal(x, 1.0), near, e.where(e.less(x, 2.0), far, 0.0))


# ---- RoiAlign -----------------------------------------------------------------------------------------------------------


@translates("RoiAlign")
def roi_align(n: Any, x: Value, rois: Value, batches: Value) -> Tensor:
    g = n.g
    t = g.full(g.tensor(x))
    r = g.apart(g.full(g.tensor(rois)), t.dims)
    b = g.renamed(g.full(g.tensor(batches)), [r.dims[0]])
    half = n.attr("coordinate_transformation_mode", "half_pixel" if n.version >= 16 else "output_half_pixel") == "half_pixel"
    scale, ratio, kind = n.attr("spatial_scale", 1.0), n.attr("sampling_ratio", 0), n.attr("mode", "avg")
    ends = [g.read(r, [r.dims[0], None], {r.dims[1]: k}).op * scale - (0.5 if half else 0.0) for k in range(4)]
    counts = [n.attr("output_height", 1), n.attr("output_width", 1)]
    outs, inner, taps, masks = [], [], [], []
    wide = r.op.dtype
    many_of = e.filled(1.0, (), wide)
    for j in (0, 1):
        first, last = ends[1 - j], ends[3 - j]
        length = last - first if half else e.maximum(last - first, 1.0)
        bin_ = length / counts[j]
        if ratio > 0:
            many, bound = e.filled(float(ratio), (), wide), ratio
        else:  # as many as the largest bin has elements
            many = e.maximum(-e.floor(-bin_), 1.0)
            top = reduce.build(many, kind="max", axes=tuple(many.axes))
            bound = int(g.known(Tensor(e.cast(top, dtypes.int64), [])))
        out, inside = g.fresh(counts[j]), g.fresh(bound)
        at = first + bin_ * (e.cast(iota(out), wide)) + (e.cast(iota(inside), wide) + 0.5) * bin_ / many
        masks.append(e.less(e.cast(iota(inside), wide), many))
        many_of = many_of * many
        size = number(t.dims[2 + j].size, wide)
        lies = e.logical_and(e.less_equal(-1.0, at), e.less_equal(at, size))
        at = e.minimum(e.maximum(at, 0.0), size - 1.0)
        low = e.floor(at)
        part = at - low
        live = e.cast(lies, wide)
        taps.append([(e.cast(low, dtypes.int32), (1.0 - part) * live), (e.cast(low, dtypes.int32) + 1, part * live)])
        outs.append(out)
        inner.append(inside)
    whole = e.logical_and(masks[0], masks[1])
    index = index_along(g, b.op, known_array(batches), t.dims[0], dim_of(n, 0), negative=False)
    parts: list[Op] = []
    for chosen in every(*taps):
        read = gather(t.op, index, *(i for i, _ in chosen), axes=(t.dims[0], *t.dims[2:]), mode="clip")
        parts.append(read * (chosen[0][1] * chosen[1][1]))
    if kind == "max":
        best = parts[0]
        for part in parts[1:]:
            best = e.maximum(best, part)
        op = total(e.where(whole, best, -np.inf), tuple(inner), "max")
    else:
        op = total(e.where(whole, sum(parts[1:], start=parts[0]), 0.0), tuple(inner)) / many_of
    return g.made(op, [r.dims[0], t.dims[1], *outs])

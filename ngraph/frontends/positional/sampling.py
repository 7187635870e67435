"""Reading between elements: other sizes, grids, regions; and which regions are kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product as every
from typing import Any, NamedTuple

import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.positional.indexing import dim_named, index_along, known_array, positions
from ngraph.frontends.positional.reductions import total
from ngraph.frontends.positional.shapes import size_op, stacked
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value, check_room
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axis
from ngraph.op_graph.expr import ExprLike, Idx
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops import resampling
from ngraph.ops.control import while_loop
from ngraph.ops.functions import ceil
from ngraph.ops.indexing import gather
from ngraph.ops.rearrange import iota
from ngraph.ops.reduce import reduce
from ngraph.ops.resampling import Taps, cubic, grid_taps, hat, kernel_weights, places, tapped, taps_around
from ngraph.ops.resampling import mixed as mix
from ngraph.ops.sorting import argreduce


def between(x: Op, axes: Sequence[Axis], places: Sequence[Op]) -> Op:
    """x at places between elements, linear along each axis; 0 outside."""
    return tapped(x, axes, [taps_around(p, "linear") for p in places])


# ---- other sizes --------------------------------------------------------------------------------------------------------


class Resizing(NamedTuple):
    """The method by which dims are resized.

    kind     nearest, linear or cubic                       places   the position of each result element in the old dim, see `places`
    nearest  the rounding of positions, a name of NEAREST   antialias  whether the kernel grows where the result is smaller
             or `by_scale`: up for scales below 1, else down
    cubic    the parameter of the cubic kernel              inside   whether only elements inside have weight
    outside  the value where a region exceeds the old dim    dtype    in which positions are computed
    steps    the parts of an element to which positions are rounded; 0: none
    single   whether positions and the step between them are rounded to float32
    """

    kind: str = "nearest"
    places: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    antialias: bool = False
    cubic: float = -0.75
    inside: bool = False
    outside: float = 0.0
    dtype: Any = np.float64
    steps: int = 0
    single: bool = False


TIE = 1e-6  # how near a position is to the middle of two elements to count as it: one in float32, as ONNX Runtime has it
NEAREST: dict[str, Callable[[Any, Any, Any], Any]] = {  # of places in float64, with `floor` and `ceil` of arrays or of ops
    "round_prefer_floor": lambda x, floor, ceil: ceil(x - (0.5 + TIE)),
    "round_prefer_ceil": lambda x, floor, ceil: floor(x + (0.5 + TIE)),
    "floor": lambda x, floor, ceil: floor(x),
    "ceil": lambda x, floor, ceil: ceil(x),
}


def weighted(at: Any, kernel: Callable[[Any], Any], reach: int, scale: float) -> tuple[Any, Any]:
    """For each place the elements around it, and their weights, where there is room for so many."""
    check_room(len(at), 2 * reach + 2 if scale >= 1 else int(2 * reach / scale) + 4)
    return kernel_weights(at, kernel, reach, scale)


MAX_EXACT_BITS = 8  # of a scale's numerator: float32 has the product with a length up to 65,536 without rounding


def scaled_size(g: Any, size: ExprLike, scale: float) -> ExprLike:
    """A length times a scale, in float32, rounded down."""

    def product(size: int) -> int:
        return math.floor(np.float32(size) * np.float32(scale))

    if isinstance(size, int):
        return product(size)
    above, below = float(np.float32(scale)).as_integer_ratio()
    if below == 1 or above.bit_length() <= MAX_EXACT_BITS:
        return size * above // below
    return size // round(1 / scale) if 1 / scale == round(1 / scale) else product(g.number(size))


def _placed_by_ops(by: Resizing) -> bool:
    """Whether ops can compute the places and weights of a method, for lengths that come with calls."""
    return by.kind in ("nearest", "linear", "bilinear", "cubic") and by.places in resampling.PLACED and not by.antialias and not by.steps


def _open_resized(g: Any, t: Tensor, k: int, count: ExprLike, scale: float, by: Resizing) -> Tensor:
    """Dim k of another length, where one of both comes with the call."""
    d, dtype = t.dims[k], dtypes.as_dtype(by.dtype)
    out = g.fresh(count)
    at = resampling.placed(by.places, out, size_op(d.size, dtype), size_op(count, dtype), scale, by.single)
    if by.kind == "nearest":
        place = NEAREST[by.nearest](e.cast(at, dtypes.float64), e.floor, ceil)
        y = gather(t.op, e.cast(place, dtypes.int32), axes=(d,), mode="clip")
    else:
        steps = resampling.regular_places(
            by.places, scale or next((n for n in range(1, resampling.MAX_PERIOD + 1) if count == d.size * n), 0)
        )
        y = resampling.between(t.op, d, at, "cubic" if by.kind == "cubic" else "linear", by.cubic, by.inside, steps)
    return g.made(y, [out if j == k else a for j, a in enumerate(t.dims)])


def resized(g: Any, t: Tensor, k: int, count: ExprLike, scale: float, by: Resizing, region: tuple[float, float] | None = None) -> Tensor:
    """Dim k of another length. scale: of the lengths; 0: as they are. region: where its ends lie in the old one, as shares of it."""
    size = t.shape[k]
    if by.nearest == "by_scale":
        by = by._replace(nearest="ceil" if 0 < scale < 1 else "floor")
    kind, mode, nearest = by.kind, by.places, by.nearest
    if region is None and (scale == 1.0 or (scale == 0.0 and g.same(size, count))):
        return t
    t = g.full(t, [k])
    d = t.dims[k]
    whole = scale and scale == int(scale) and kind == "nearest"
    if whole and (mode, nearest) in (("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")):
        out = g.resized(d, count)
        return g.read(t, [out if j == k else a for j, a in enumerate(t.dims)], {d: Idx(out) // int(scale)})
    if not (isinstance(size, int) and isinstance(count, int)) and _placed_by_ops(by) and region is None:
        return _open_resized(g, t, k, count, scale, by)
    length, many = g.numbers([size, count])
    scale = scale or many / length
    check_room(many)
    at = places(mode, length, many, scale, region or (0.0, 1.0), by.dtype, by.single)
    at = np.rint(at * by.steps) / by.steps if by.steps else at
    if kind == "nearest":
        near, w = NEAREST[nearest](at.astype(np.float64), np.floor, np.ceil).astype(int)[:, None], np.ones((many, 1))
    elif kind in ("linear", "bilinear"):
        near, w = weighted(at, hat, 1, scale if by.antialias else 1.0)
    elif kind == "cubic":
        near, w = weighted(at, cubic(by.cubic), 2, scale if by.antialias else 1.0)
    else:
        raise GraphError(f"there is no mode {kind!r}")
    if by.inside:
        w = np.where((near >= 0) & (near < length), w, 0)
        w = w / w.sum(1, keepdims=True)
    y = mixed(g, t, k, near, w)
    if mode == "tf_crop_and_resize":
        outside = g.tensor(ConstantArray((at < 0) | (at > length - 1)))
        o = g.renamed(g.full(outside), [y.dims[k]]).op if y.dims[k] is not None else outside.op
        y = g.made(e.where(o, e.filled(by.outside, (), y.op.dtype), y.op), y.dims)
    return y


def resized_dims(
    g: Any,
    t: Tensor,
    dims: Sequence[int],
    counts: Sequence[ExprLike],
    scales: Sequence[float],
    by: Resizing,
    regions: Sequence[tuple[float, float]] = (),
) -> Tensor:
    """Dims of other lengths, as `resized` makes each of them."""

    def ratio(k: int) -> float:
        size, many = t.shape[dims[k]], counts[k]
        return scales[k] or (many / size if isinstance(size, int) and isinstance(many, int) and size else 1.0)

    for k in resampling.order_of_passes([ratio(k) for k in range(len(dims))]):
        t = resized(g, t, dims[k], counts[k], scales[k], by, regions[k] if regions else None)
    return t


def _lanczos(radius: int) -> Callable[[Any], Any]:
    return lambda x: np.where(abs(x) < radius, np.sinc(x) * np.sinc(x / radius), 0.0)


def _mitchell(x: Any) -> Any:
    x = abs(x)
    near, far = ((7 * x - 12) * x * x + 16 / 3) / 6, (((-7 / 3 * x + 12) * x - 20) * x + 32 / 3) / 6
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


# The kernels that TensorFlow names, each a function of the distance, with a whole distance from which it is 0.
KERNELS: dict[str, tuple[Callable[[Any], Any], int]] = {
    **{f"lanczos{reach}": (_lanczos(reach), reach) for reach in (1, 3, 5)},
    "gaussian": (lambda x: np.where(abs(x) < 1.5, np.exp(-2.0 * x * x), 0.0), 2),
    "box": (lambda x: np.where(abs(x) < 0.5, 1.0, np.where(abs(x) == 0.5, 0.5, 0.0)), 1),
    "triangle": (hat, 1),
    "keyscubic": (cubic(-0.5), 2),
    "mitchellcubic": (_mitchell, 2),
}


def moved(g: Any, t: Tensor, k: int, count: int, scale: float, shift: float, kernel: str, antialias: bool) -> Tensor:
    """Dim k scaled by a factor and shifted, `count` elements of it; 0 where an element's place is outside of the old dim."""
    size, (weight, reach) = g.number(t.shape[k]), KERNELS[kernel]
    step = np.float32(1) / np.float32(scale)  # places are TensorFlow's in float32: some lie just where a kernel ends
    at = (np.arange(count, dtype=np.float32) + np.float32(0.5)) * step - step * np.float32(shift)
    wide = max(step, np.float32(1)) if antialias else np.float32(1)
    most = math.ceil(reach * wide) + 1
    check_room(count, 2 * most)
    near = np.floor(at)[:, None] + np.arange(-most, most, dtype=np.float32)
    w = weight(((near + np.float32(0.5) - at[:, None]) * (np.float32(1) / wide)).astype(np.float64))
    near = near.astype(int)
    w = np.where((near >= 0) & (near < size), w, 0.0)
    whole = w.sum(1, keepdims=True)
    w = np.where(((at < 0) | (at > size))[:, None], 0.0, w / np.where(abs(whole) > 1e-35, whole, 1.0))
    if not w.any():  # nothing of the old dim is seen
        t, near, w = Tensor(e.filled(0, t.op.axes, t.op.dtype), t.dims), near[:, :1], np.ones((count, 1))
    return mixed(g, g.full(t, [k]), k, np.clip(near, 0, size - 1), w)


def averaged(g: Any, t: Tensor, k: int, count: int, step: float) -> Tensor:
    """Dim k of another length: each element the mean of the old ones over `step`, with their shares at both ends; 0: of the only one."""
    step = step or 1.0
    size, first = g.number(t.shape[k]), np.arange(count) * step
    near = np.floor(first).astype(int)[:, None] + np.arange(math.ceil(step) + 1)
    check_room(count, near.shape[1])
    w = np.clip(np.minimum(near + 1, first[:, None] + step) - np.maximum(near, first[:, None]), 0.0, None) / step
    return mixed(g, g.full(t, [k]), k, np.clip(near, 0, size - 1), w)


def mixed(g: Any, t: Tensor, k: int, near: Any, w: Any) -> Tensor:
    """Along dim k, for each row of `near` the elements there, weighted by `w`."""
    out = g.fresh(len(near))
    return g.made(mix(t.op, t.dims[k], out, near, w), [out if j == k else a for j, a in enumerate(t.dims)])


# ---- grids --------------------------------------------------------------------------------------------------------------


def grid_sample(g: Any, x: Value, grid: Value, mode: str, padding: str, corners: bool) -> Tensor:
    """x [n, c, spatial…] at places of a grid [n, …, dims], from -1 to 1, the last spatial dim first.

    mode: nearest, linear or cubic. padding: zeros, border or reflection. corners: whether the ends are the middles of the last elements.
    """
    t = g.full(g.tensor(x))
    spatial = t.dims[2:]
    p = g.apart(g.full(g.tensor(grid)), t.dims)
    p = g.renamed(p, [t.dims[0], *p.dims[1:]])
    last, wide = p.dims[-1], p.op.dtype
    taps: list[Taps] = []
    for j, d in enumerate(spatial):
        at = g.read(p, [*p.dims[:-1], None], {last: len(spatial) - 1 - j}).op
        taps.append(grid_taps(at, size_op(d.size, wide), mode, padding, corners))
    dims = [t.dims[0], t.dims[1], *p.dims[1:-1]]
    return g.made(tapped(t.op, spatial, taps), dims)


def affine_grid(g: Any, matrices: Value, sizes: Sequence[ExprLike], corners: bool) -> Tensor:
    """A grid [n, spatial…, dims] of these sizes: places from -1 to 1 along each dim, the last first, times matrices [n, dims, dims + 1].

    corners: whether the ends are the middles of the last elements, as in `grid_sample`.
    """
    t = g.full(g.tensor(matrices))
    if t.rank != 3 or not g.same(t.shape[1], len(sizes)):
        raise GraphError(f"the matrices are {t.shape}, for {len(sizes)} spatial dims")
    batch, rows, columns = t.dims
    outs, wide = [g.fresh(size) for size in sizes], t.op.dtype
    y = t.op[{columns: len(sizes)}]
    for j, out in enumerate(reversed(outs)):
        at, size = e.cast(iota(out), wide), size_op(out.size, wide)
        if corners:  # one place alone is the middle
            at = at * 2.0 / e.maximum(size - 1.0, 1.0) - e.minimum(size - 1.0, 1.0)
        else:
            at = (at * 2.0 + 1.0) / size - 1.0
        y = y + t.op[{columns: j}] * at
    return g.made(y, [batch, *outs, rows])


# ---- regions ------------------------------------------------------------------------------------------------------------


def roi_align(
    g: Any, x: Value, rois: Value, batches: Value, counts: Sequence[int], scale: float, ratio: int, half: bool, largest: bool, name: str
) -> Tensor:
    """The mean or largest of `ratio` (0: as many as fit) samples a side in each of counts[0] x counts[1] bins of each region.

    half: whether an element's middle stands at its number and a half.
    """
    t = g.full(g.tensor(x))
    r = g.apart(g.full(g.tensor(rois)), t.dims)
    b = g.renamed(g.full(g.tensor(batches)), [r.dims[0]])
    ends = [g.read(r, [r.dims[0], None], {r.dims[1]: k}).op * scale - (0.5 if half else 0.0) for k in range(4)]
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
        size = size_op(t.dims[2 + j].size, wide)
        lies = e.logical_and(e.less_equal(-1.0, at), e.less_equal(at, size))
        at = e.minimum(e.maximum(at, 0.0), size - 1.0)
        low = e.floor(at)
        part = at - low
        live = e.cast(lies, wide)
        taps.append([(e.cast(low, dtypes.int32), (1.0 - part) * live), (e.cast(low, dtypes.int32) + 1, part * live)])
        outs.append(out)
        inner.append(inside)
    whole = e.logical_and(masks[0], masks[1])
    index = index_along(g, b.op, known_array(batches), t.dims[0], dim_named(0, name), negative=False)
    parts: list[Op] = []
    for chosen in every(*taps):
        read = gather(t.op, index, *(i for i, _ in chosen), axes=(t.dims[0], *t.dims[2:]), mode="clip")
        parts.append(read * (chosen[0][1] * chosen[1][1]))
    if largest:
        best = parts[0]
        for part in parts[1:]:
            best = e.maximum(best, part)
        op = total(e.where(whole, best, -np.inf), tuple(inner), "max")
    else:
        op = total(e.where(whole, sum(parts[1:], start=parts[0]), 0.0), tuple(inner)) / many_of
    return g.made(op, [r.dims[0], t.dims[1], *outs])


def cropped(
    g: Any, t: Tensor, first: int, boxes: Value, numbers: Value, sizes: Sequence[int], nearest: bool, fill: float, name: str
) -> Tensor:
    """Regions of the two dims of images from `first` on, resized: boxes [region, (low, low, high, high)], as shares of the dims' lengths.

    numbers: of which image each region is. fill: for what lies outside. name: of the images, for errors.
    """
    t = g.full(t)
    wide, spatial = t.op.dtype, t.dims[first : first + 2]
    r = g.apart(g.full(g.tensor(boxes)), t.dims)
    images = g.renamed(g.full(g.tensor(numbers)), [r.dims[0]])
    index = index_along(g, images.op, known_array(numbers), t.dims[0], dim_named(0, name), negative=False)
    one, inside = e.filled(1.0, (), wide), e.filled(True, (), dtypes.bool_)
    outs, taps = [], [[(index, one)]]
    for k, many in enumerate(sizes):
        low, high = (r.op[{r.dims[1]: j}] for j in (k, k + 2))
        last, out = size_op(spatial[k].size, wide) - 1.0, g.fresh(many)
        if many > 1:
            at = low * last + e.cast(iota(out), wide) * ((high - low) * last / (many - 1.0))
        else:
            at = (low + high) * 0.5 * last
        inside = e.logical_and(inside, e.logical_and(e.less_equal(0.0, at), e.less_equal(at, last)))
        taps.append([(e.cast(e.floor(at + 0.5), dtypes.int32), one)] if nearest else taps_around(at, "linear"))
        outs.append(out)
    found = e.where(inside, tapped(t.op, [t.dims[0], *spatial], taps, "clip"), e.filled(float(fill), (), wide))
    return g.made(found, [r.dims[0], *t.dims[1:first], *outs, *t.dims[first + 2 :]])


def max_roi_pool(g: Any, x: Value, rois: Value, scale: float, sizes: Sequence[int], name: str) -> Tensor:
    """The largest of each of so many bins of each region, whose ends are rounded."""
    t = g.full(g.tensor(x))
    r = g.apart(g.full(g.tensor(rois)), t.dims)
    columns = [r.op[{r.dims[1]: k}] for k in range(5)]
    index = index_along(g, e.cast(columns[0], dtypes.int64), None, t.dims[0], dim_named(0, name), negative=False)
    op = gather(t.op, index, axes=(t.dims[0],), mode="clip")
    outs = []
    for j, d in enumerate(t.dims[2:]):
        first, last = (e.floor(columns[k] * scale + 0.5) for k in (2 - j, 4 - j))
        part = e.maximum(last - first + 1.0, 1.0) / sizes[j]
        out = g.fresh(sizes[j])
        k_ = e.cast(iota(out), r.op.dtype)
        low = e.minimum(e.maximum(e.floor(k_ * part) + first, 0.0), size_op(d.size, r.op.dtype))
        high = e.minimum(e.maximum(-e.floor(-((k_ + 1.0) * part)) + first, 0.0), size_op(d.size, r.op.dtype))
        place = e.cast(iota(d), r.op.dtype)
        inside = e.logical_and(e.less_equal(low, place), e.less(place, high))
        best = reduce.build(e.where(inside, op, -np.inf), kind="max", axes=(d,))
        op = e.where(e.less(low, high), best, 0.0)
        outs.append(out)
    return g.made(op, [r.dims[0], t.dims[1], *outs])


COMPARED = 64  # boxes that are compared with each other at once


def apart_from_better(ordered: Any, count: int, apart: Callable[[Any, Any], Any]) -> Any:
    """Returns the numbers of boxes, the best first, at most `count` of them, without those that are not apart from a better one.

    apart: for some numbers, rows, and better ones, columns, whether those boxes may both be there.
    """
    chosen = ordered[:0]
    for start in range(0, len(ordered), COMPARED):
        if len(chosen) >= count:
            break
        some = ordered[start : start + COMPARED]
        some = some[apart(some, chosen).all(1)]
        free, stays = apart(some, some), np.ones(len(some), bool)
        for k in range(len(some)):
            if stays[k]:
                stays[k + 1 :] &= free[k + 1 :, k]
        chosen = np.concatenate([chosen, some[stays]])
    return chosen[:count]


class Boxes(NamedTuple):
    """Rectangles: where they begin and end along both sides, and their areas."""

    x: Op
    y: Op
    x_end: Op
    y_end: Op
    area: Op

    @staticmethod
    def of(sides: Sequence[Op], center: bool) -> Boxes:
        """Returns boxes given by their middle and lengths, else by two opposite corners."""
        a, b, c, d = sides
        if center:
            x, y, x_end, y_end = a - c * 0.5, b - d * 0.5, a + c * 0.5, b + d * 0.5
        else:
            x, y, x_end, y_end = e.minimum(a, c), e.minimum(b, d), e.maximum(a, c), e.maximum(b, d)
        return Boxes(x, y, x_end, y_end, (x_end - x) * (y_end - y))

    def overlap(self, other: Boxes, share: Op) -> Op:
        """Returns whether boxes have more than a share of what both cover in common."""
        across = e.minimum(self.x_end, other.x_end) - e.maximum(self.x, other.x)
        along = e.minimum(self.y_end, other.y_end) - e.maximum(self.y, other.y)
        both = e.maximum(across, 0.0) * e.maximum(along, 0.0)
        return e.logical_and(e.less(0.0, both), e.less(share * (self.area + other.area - both), both))


def suppressed(g: Any, boxes: Value, scores: Value, most: Value, shared: Value, least: Value, center: bool) -> Value:
    """[batch, class, box] of the best boxes, at most so many of a class, without those that share more with a better one.

    In each turn of a loop every class takes its best box that is left, the first of equal ones, and drops those that overlap it.
    least: of a score. center: boxes are given by their middle and lengths, else by two corners.
    """
    s = g.full(g.tensor(scores))
    batch, kind, box = s.dims
    if g.same(box.size, 0):
        return ConstantArray(np.zeros((0, 3), np.int64))
    t = g.full(g.tensor(boxes))
    t = g.renamed(t, [batch, box, t.dims[2]])
    every = Boxes.of([t.op[{t.dims[2]: k}] for k in range(4)], center)
    count, share, low = (None if v is None else g.reshape(g.tensor(v), []).op for v in (most, shared, least))
    share = e.filled(0.0, (), t.op.dtype) if share is None else share
    bottom = float(np.finfo(s.op.dtype.np).min)
    left = e.where(e.equal(s.op, s.op), e.maximum(s.op, bottom), bottom)  # NaN is the worst, and what is dropped has less
    left = left if low is None else e.where(e.less(low, s.op), left, -np.inf)

    def any_left(left: Op) -> Op:
        return e.less(-np.inf, reduce.build(left, kind="max", axes=tuple(left.axes)))

    def turn(k: Op, more: Op, left: Op, found: Op) -> tuple[Op, ...]:
        best = argreduce.build(left, kind="max", axes=(box,))
        there = e.less(-np.inf, gather(left, best, axes=(box,), mode="clip"))
        other = Boxes(*(gather(side, best, axes=(box,), mode="clip") for side in every))
        dropped = e.logical_or(every.overlap(other, share), e.equal(iota(box), best))
        left = e.where(dropped, -np.inf, left)
        found = e.where(e.logical_and(e.equal(iota(box), k), there), best, found)
        return k + 1, any_left(left), left, found

    def wanted(k: Op, more: Op, left: Op, found: Op) -> Op:
        return more if count is None else e.logical_and(more, e.less(e.cast(k, count.dtype), count))

    first = (e.filled(0, (), dtypes.int32), any_left(left), left, e.filled(-1, (batch, kind, box), dtypes.int32))
    found = while_loop(wanted, turn, first)[3]
    where, axis = positions(g, g.made(e.less_equal(0, found), s.dims))
    numbers = (*where[:2], gather(found, *where, axes=(batch, kind, box), mode="clip"))
    made = stacked(g, [Tensor(e.cast(n, dtypes.int64), [axis]) for n in numbers], 1)
    g.cut([made])
    return made

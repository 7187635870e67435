"""Translators of TensorFlow's ops on images: regions, boxes, colours, patches, and pooling that says where.

Sources: tensorflow/core/kernels/image/crop_and_resize_op.cc, non_max_suppression_op.cc, colorspace_op.h, adjust_*_op.cc.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngraph.frontends.positional import colours, indexing, shapes, windows
from ngraph.frontends.positional import elementwise as by_element
from ngraph.frontends.positional.reductions import REDUCTIONS, reduce_over, total
from ngraph.frontends.positional.sampling import apart_from_better
from ngraph.frontends.positional.text import in_python
from ngraph.frontends.positional.values import Tensor, Value
from ngraph.frontends.tensorflow.layers import first, spatial, windowing
from ngraph.frontends.tensorflow.table import translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.indexing import gather
from ngraph.ops.rearrange import iota

Array = np.ndarray[Any, Any]

# ---- regions ------------------------------------------------------------------------------------------------------------


@translates("CropAndResize")
def crop_and_resize(n: Any, x: Value, boxes: Value, numbers: Value, sizes: Value) -> Tensor:
    g, wide = n.g, dtypes.float32
    t = g.full(by_element.casted(g, g.tensor(x), wide.np))
    r = g.apart(g.full(g.tensor(boxes)), t.dims)
    images = g.renamed(g.full(g.tensor(numbers)), [r.dims[0]])
    index = indexing.index_along(g, images.op, indexing.known_array(numbers), t.dims[0], indexing.dim_named(0, n.takes[0]), negative=False)
    outs, taps, inside = [], [], e.filled(True, (), dtypes.bool_)
    for k, many in enumerate(g.numbers(g.sizes(sizes))):
        low, high = (r.op[{r.dims[1]: j}] for j in (k, k + 2))
        last, out = shapes.size_op(t.dims[1 + k].size, wide) - 1.0, g.fresh(many)
        if many > 1:
            at = low * last + e.cast(iota(out), wide) * ((high - low) * last / (many - 1.0))
        else:
            at = (low + high) * 0.5 * last
        inside = e.logical_and(inside, e.logical_and(e.less_equal(0.0, at), e.less_equal(at, last)))
        if n.attr("method", "bilinear") == "nearest":
            taps.append([(e.cast(e.floor(at + 0.5), dtypes.int32), e.filled(1.0, (), wide))])
        else:
            start = e.floor(at)
            near, share = e.cast(start, dtypes.int32), at - start
            taps.append([(near, 1.0 - share), (near + 1, share)])
        outs.append(out)
    reads = [
        gather(t.op, index, *(i for i, _ in chosen), axes=tuple(t.dims[:3]), mode="clip") * (chosen[0][1] * chosen[1][1])
        for chosen in itertools.product(*taps)
    ]
    found = e.where(inside, sum(reads[1:], start=reads[0]), e.filled(float(n.attr("extrapolation_value", 0.0)), (), wide))
    return g.made(found, [r.dims[0], *outs, t.dims[3]])


def _corners(boxes: Array) -> tuple[Array, Array]:
    """Returns the low and the high corners of boxes."""
    return np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])


def _shared(boxes: Array) -> Callable[[Any, Any], Array]:
    """Returns the share that two boxes have in common of what they cover, for some boxes, rows, and others, columns."""
    low, high = _corners(boxes)
    area = (high - low).prod(1)

    def run(some: Any, others: Any) -> Array:
        first, last, mine = low[some][:, None], high[some][:, None], area[some][:, None]
        both = np.maximum(np.minimum(last, high[others]) - np.maximum(first, low[others]), 0).prod(2)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = both / (mine + area[others] - both)
        return np.where((mine > 0) & (area[others] > 0), share, 0)

    return run


def _chosen(scores: Array, shared: Callable[[Any, Any], Array], count: int, most: float, least: float, sigma: float) -> tuple[Array, Array]:
    """Returns the numbers of the best boxes, at most `count`, and their scores.

    shared: of some boxes, rows, with others, columns. Those that share more than `most` with a better one are left out; with a sigma
    their scores sink instead. least: of a score.
    """
    if sigma <= 0:
        left = np.flatnonzero(scores > least)
        left = left[np.argsort(-scores[left], kind="stable")]
        found = apart_from_better(left, count, lambda some, others: ~(shared(some, others) > most))
        return found.astype(np.int32), scores[found]
    queue = [(-float(s), k, 0) for k, s in enumerate(scores) if s > least]
    heapq.heapify(queue)
    chosen, kept = list[int](), list[Any]()
    kind = scores.dtype.type
    while queue and len(chosen) < count:
        negative, k, start = heapq.heappop(queue)
        before = score = kind(-negative)
        if len(chosen) > start:
            for share in shared([k], chosen[start:])[0, ::-1]:
                score = kind(score * np.exp(kind(-0.5 / sigma) * kind(share) * kind(share)))
                if score <= least:
                    break
        if score == before:
            chosen.append(k)
            kept.append(score)
        elif score > least:
            heapq.heappush(queue, (-float(score), k, len(chosen)))
    return np.array(chosen, np.int32), np.array(kept, scores.dtype)


@translates("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionWithOverlaps", python=True)
def suppress(n: Any, boxes: Value, scores: Value, count: Value, *limits: Value) -> Value:
    return _suppressed(n, boxes, scores, count, limits)[0]


@translates("NonMaxSuppressionV4", results="selected_indices valid_outputs", python=True)
def suppress_v4(n: Any, boxes: Value, scores: Value, count: Value, *limits: Value) -> tuple[Value, ...]:
    indices, _, many = _suppressed(n, boxes, scores, count, limits)
    return indices, many


@translates("NonMaxSuppressionV5", results="selected_indices selected_scores valid_outputs", python=True)
def suppress_v5(n: Any, boxes: Value, scores: Value, count: Value, *limits: Value) -> tuple[Value, ...]:
    return _suppressed(n, boxes, scores, count, limits)


def _suppressed(n: Any, boxes: Value, scores: Value, count: Value, limits: Sequence[Value]) -> tuple[Value, ...]:
    """Returns the numbers, scores and count of the best boxes, by a step in Python."""
    overlap, pad = n.attr("iou_threshold", 0.5), n.attr("pad_to_max_output_size", False)

    def run(b: Array, s: Array, many: Array, *given: Array) -> tuple[Array, Array, Array]:
        most, least, sigma = [float(v) for v in given] + [overlap, -np.inf, 0.0][len(given) :]
        wide = np.float64 if s.dtype == np.float64 else np.float32
        b, s = b.astype(wide), s.astype(wide)
        shared = (lambda some, others: b[np.ix_(some, others)]) if n.op.endswith("Overlaps") else _shared(b)
        found, kept = _chosen(s, shared, int(many), most, least, sigma)
        valid = np.array(len(found))
        if pad:
            found, kept = (np.pad(a, (0, max(int(many) - len(a), 0))) for a in (found, kept))
        return found, kept, valid

    return in_python(n, run, [boxes, scores, count, *limits], [np.int32, np.dtype(scores.np), np.int32])


@translates("CombinedNonMaxSuppression", results="nmsed_boxes nmsed_scores nmsed_classes valid_detections", python=True)
def suppress_classes(n: Any, boxes: Value, scores: Value, each: Value, whole: Value, most: Value, least: Value) -> tuple[Value, ...]:
    pad, clip = n.attr("pad_per_class", False), n.attr("clip_boxes", True)

    def run(b: Array, s: Array, each: Array, whole: Array, most: Array, least: Array) -> tuple[Array, ...]:
        kinds = s.shape[2]
        count = min(int(whole), int(each) * kinds) if pad else int(whole)
        found = np.zeros((len(b), count, 4), np.float32), np.zeros((len(b), count), np.float32), np.zeros((len(b), count), np.float32)
        valid = np.zeros(len(b), np.int32)
        for k in range(len(b)):
            best = list[tuple[float, int, int]]()
            for kind in range(kinds):
                of = b[k, :, kind if b.shape[2] > 1 else 0]
                numbers, kept = _chosen(s[k, :, kind], _shared(of), int(each), float(most), float(least), 0.0)
                best += [(-float(score), kind, int(i)) for i, score in zip(numbers, kept, strict=True)]
            best = sorted(best, key=lambda row: row[0])[:count]
            valid[k] = len(best)
            for j, (score, kind, i) in enumerate(best):
                box = b[k, i, kind if b.shape[2] > 1 else 0]
                found[0][k, j], found[1][k, j], found[2][k, j] = np.clip(box, 0, 1) if clip else box, -score, kind
        return *found, valid

    return in_python(n, run, [boxes, scores, each, whole, most, least], [np.float32] * 3 + [np.int32])


# The colours of boxes where none are given, in turn: red, green, blue and opacity.
OF_BOXES = np.array(
    [
        *((1, 1, 0, 1), (0, 0, 1, 1), (1, 0, 0, 1), (0, 1, 0, 1), (0.5, 0, 0.5, 1)),
        *((0.5, 0.5, 0, 1), (0.5, 0, 0, 1), (0, 0, 0.5, 1), (0, 1, 1, 1), (1, 0, 1, 1)),
    ],
    np.float32,
)


@translates("DrawBoundingBoxes", "DrawBoundingBoxesV2", python=True)
def draw_boxes(n: Any, pictures: Value, boxes: Value, *colours_given: Value) -> Value:
    """Returns images with the edges of boxes, as far as they are inside; those turned around are left out."""

    def run(images: Array, boxes: Array, table: Array | None = None) -> Array:
        made, (_, height, width, depth) = images.copy(), images.shape
        if table is None or not table.size:
            table = np.where(np.arange(4) < 1, 1, OF_BOXES) if depth == 1 else OF_BOXES
        for k, rows in enumerate((boxes * np.array([height - 1, width - 1] * 2, np.float32)).astype(np.int64)):
            for j, (top, left, bottom, right) in enumerate(rows):
                if top > bottom or left > right or bottom < 0 or right < 0:
                    continue
                colour = table[j % len(table), :depth]
                across, down = slice(max(left, 0), right + 1), slice(max(top, 0), bottom + 1)
                for row in (top, bottom):
                    if 0 <= row < height:
                        made[k, row, across] = colour
                for column in (left, right):
                    if 0 <= column < width:
                        made[k, down, column] = colour
        return made

    return in_python(n, run, [pictures, boxes, *colours_given], [np.dtype(pictures.np)])[0]


# ---- colours ------------------------------------------------------------------------------------------------------------


def _hue_moved(r: Op, g: Op, b: Op, by: Op) -> tuple[Op, Op, Op]:
    h, s, v = colours.to_hsv(r, g, b)
    h = h + by
    return colours.from_hsv(h - e.floor(h), s, v)


def _saturated(r: Op, g: Op, b: Op, by: Op) -> tuple[Op, Op, Op]:
    h, s, v = colours.to_hsv(r, g, b)
    return colours.from_hsv(h, e.minimum(e.maximum(s * by, 0.0), 1.0), v)


COLOURS: dict[str, Callable[..., Sequence[Op]]] = {
    "RGBToHSV": colours.to_hsv,
    "HSVToRGB": colours.from_hsv,
    "AdjustHue": _hue_moved,
    "AdjustSaturation": _saturated,
}
for _op, _function in COLOURS.items():
    translates(_op)(lambda n, x, *more, function=_function: colours.by_channels(n.g, function, x, x.rank - 1, *more))


@translates("AdjustContrastv2")
def contrast(n: Any, x: Value, by: Value) -> Tensor:
    t = n.g.tensor(x)
    mean = reduce_over(t, [t.rank - 3, t.rank - 2], REDUCTIONS["mean"], True)
    return by_element.each(n.g, lambda v, m, k: e.cast((v - m) * e.cast(k, v.dtype) + m, v.dtype), t, mean, by)


# ---- windows ------------------------------------------------------------------------------------------------------------


@translates("ExtractImagePatches")
def patches(n: Any, x: Value) -> Tensor:
    """Returns each window's elements along the last dim, channels fastest."""
    g, t = n.g, n.g.tensor(x)
    k = t.rank - 2
    t = shapes.permuted(t, 0, k + 1, *range(1, k + 1))
    by = windowing(n, spatial(n, "ksizes", t.rank) or [], t.rank)._replace(dilations=spatial(n, "rates", t.rank) or [1] * k)
    read, _, _ = windows.read(g, t, windows.windows(g, t, by), 0)
    made = shapes.permuted(read, 0, *range(2, 2 + 2 * k), 1)
    size: Any = 1
    for s in made.shape[1 + k :]:
        size = size * s
    found: Tensor = g.reshape(made, [*made.shape[: 1 + k], size])
    return found


@translates("MaxPoolWithArgmax", results="output argmax")
def max_pool_with_places(n: Any, x: Value) -> tuple[Tensor, Tensor]:
    """Returns the largest of each window, and its position in the image, or with `include_batch_in_index` in the batch."""
    g, t = n.g, n.g.full(first(n, n.g.tensor(x)))
    by = windowing(n, spatial(n, "ksize", t.rank) or [], t.rank)
    y, place = windows.max_pool(g, t, windows.windows(g, t, by), places=True)
    image = shapes.size_op(t.shape[2]) * shapes.size_op(t.shape[3])
    image_of, channel = (iota(d, dtypes.int64) for d in t.dims[:2])
    many = shapes.size_op(t.shape[1])
    position = place.op - (image_of * many + channel) * image
    if n.attr("include_batch_in_index", False):
        position = position + image_of * image
    found = g.made(
        e.cast(position * many + channel, as_dtype(n.attr("Targmax", np.dtype(np.int64)))), [*t.dims[:2], *g.full(place).dims[2:]]
    )
    return shapes.permuted(y, 0, 2, 3, 1), shapes.permuted(found, 0, 2, 3, 1)


@translates("Dilation2D")
def dilation(n: Any, x: Value, w: Value) -> Tensor:
    """Returns the largest sum of each window's elements and those of a filter."""
    g, t, f = n.g, shapes.permuted(n.g.tensor(x), 0, 3, 1, 2), n.g.tensor(w)
    by = windowing(n, g.numbers(f.shape[:2]), 4)._replace(dilations=spatial(n, "rates", 4) or [1, 1])
    ws = windows.windows(g, t, by)
    read, _, _ = windows.read(g, t, ws, 0)
    inside, _, _ = windows.read(g, by_element.alone(g, lambda op: e.filled(True, op.axes, dtypes.bool_), t), ws, False)
    order = shapes.permuted(f, None, 2, None, None, 0, 1)
    made = by_element.each(g, lambda c, a, b: e.where(c, a + b, e.filled(a.dtype.lowest, (), a.dtype)), inside, read, order)
    found = reduce_over(made, [4, 5], lambda op, axes: total(op, axes, "max"), False)
    return shapes.permuted(found, 0, 2, 3, 1)

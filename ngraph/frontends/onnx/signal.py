"""Translators of Fourier transforms, of random numbers, and of what detectors and trainers need."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph.autodiff import deriv
from ngraph.frontends.onnx.control import stacked
from ngraph.frontends.onnx.proto import numpy_type
from ngraph.frontends.onnx.sampling import number
from ngraph.frontends.onnx.shapes import dim_of, index_along, padded, sliced
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value, check_room
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axis
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.expr import ExprLike, Idx
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.indexing import gather
from ngraph.ops.linear import contract
from ngraph.ops.random import normal, uniform
from ngraph.ops.rearrange import iota, reindex, rename_record
from ngraph.ops.reduce import reduce
from ngraph.ops.sorting import argreduce

# ---- Fourier ------------------------------------------------------------------------------------------------------------

MAX_MATRIX_DFT = 128  # a transform of this length or less, or of a prime length, is one product with a matrix

Pair = tuple[Tensor, Tensor | None]  # real and imaginary part; None: all 0


def turns(x: Pair, k: int, table: Any, axes: tuple[Axis, Axis]) -> Pair:
    """Dim k, of the first axis, multiplied with a matrix of complex numbers, to the second axis."""
    re, im = x
    old, new = axes
    dtype = re.op.dtype
    real, imaginary = (e.constant(np.ascontiguousarray(t).astype(dtype.np), [old, new]) for t in (table.real, table.imag))

    def times(t: Tensor, m: Op) -> Op:
        return contract(t.op, m, over=(old,))

    dims = [new if j == k else d for j, d in enumerate(re.dims)]
    if im is None:
        return Tensor(times(re, real), dims), Tensor(times(re, imaginary), dims)
    return Tensor(times(re, real) - times(im, imaginary), dims), Tensor(times(re, imaginary) + times(im, real), dims)


def fourier(g: Any, x: Pair, k: int, length: int, sign: float) -> Pair:
    """The discrete Fourier transform along dim k: of a composite length as two shorter ones (Cooley and Tukey 1965)."""
    x = (g.full(x[0], [k]), None if x[1] is None else g.full(x[1], [k]))
    if x[1] is not None:
        met, _ = g.meet([x[0], x[1]])
        x = met[0], met[1]
    p = next((p for p in range(MAX_MATRIX_DFT, 1, -1) if length % p == 0), 1)
    if length <= MAX_MATRIX_DFT or p == 1:
        check_room(length, length)
        out = g.fresh(length)
        at = np.outer(np.arange(length), np.arange(length)) % max(length, 1)
        return turns(x, k, np.exp(sign * 2j * np.pi * at / max(length, 1)), (x[0].dims[k], out))
    check_room(length)
    q = length // p

    def split(t: Tensor) -> Tensor:
        return g.reshape(t, [*t.shape[:k], p, q, *t.shape[k + 1 :]])

    re, im = fourier(g, (split(x[0]), None if x[1] is None else split(x[1])), k, p, sign)
    assert im is not None
    re, im = g.full(re, [k, k + 1]), g.full(im, [k, k + 1])
    met, dims = g.meet([re, im])
    twiddle = np.exp(sign * 2j * np.pi * np.outer(np.arange(p), np.arange(q)) / length)
    cos, sin = (e.constant(t.astype(re.op.dtype.np), [dims[k], dims[k + 1]]) for t in (twiddle.real, twiddle.imag))
    a, b = met[0].op, met[1].op
    re, im = Tensor(a * cos - b * sin, dims), Tensor(a * sin + b * cos, dims)
    re, im = fourier(g, (re, im), k + 1, q, sign)
    assert im is not None
    order = [*range(k), k + 1, k, *range(k + 2, re.rank)]
    turned = (Tensor(t.op, [t.dims[j] for j in order]) for t in (re, im))
    joined = [g.reshape(t, [*t.shape[:k], length, *t.shape[k + 2 :]]) for t in turned]
    return joined[0], joined[1]


def complex_parts(g: Any, t: Tensor) -> Pair:
    """The real and imaginary parts in the last dim."""
    last = t.dims[-1]
    if last is None:
        return Tensor(t.op, t.dims[:-1]), None
    parts = [g.read(t, [*t.dims[:-1], None], {last: k}) for k in (0, 1)]
    return tuple(Tensor(p.op, p.dims[:-1]) for p in parts)  # type: ignore[return-value]


def fitted(g: Any, x: Pair, k: int, length: int) -> Pair:
    """Cut, or filled with zeros, to a length."""

    def fit(t: Tensor) -> Tensor:
        size = g.number(t.shape[k])
        return t if size == length else padded(g, t, k, 0, length - size)

    return fit(x[0]), None if x[1] is None else fit(x[1])


@translates("DFT")
def dft(n: Any, x: Value, length: Value = None, axis: Value = None) -> Tensor:
    g, t = n.g, n.g.tensor(x)
    at = n.attr("axis", 1) if n.version < 20 else -2 if axis is None else g.ints(axis)[0]
    k = at % t.rank
    inverse, half = n.attr("inverse", 0), n.attr("onesided", 0)
    parts = complex_parts(g, t)
    count = g.number(t.shape[k])
    if half and inverse:  # the other half is the conjugate, the result real
        whole = 2 * (count - 1) if length is None else g.ints(length)[0]
        kept = fitted(g, parts, k, whole // 2 + 1)
        return half_inverse(g, kept, k, whole)
    count = count if length is None else g.ints(length)[0]
    re, im = fourier(g, fitted(g, parts, k, count), k, count, 1.0 if inverse else -1.0)
    assert im is not None
    found = [re, im]
    if inverse:
        found = [Tensor(t.op * (1 / count), t.dims) for t in found]
    if half:
        found = [sliced(g, t, k, 0, 1, count // 2 + 1) for t in found]
    return stacked(g, list(found), t.rank - 1)


def half_inverse(g: Any, x: Pair, k: int, whole: int) -> Tensor:
    """The real signal of one half of its spectrum."""
    re, im = (None if t is None else g.full(t, [k]) for t in x)
    assert re is not None
    check_room(whole, whole // 2 + 1)
    half, out = re.dims[k], g.fresh(whole)
    f, i = np.arange(whole // 2 + 1)[:, None], np.arange(whole)[None]
    weight = np.where((f == 0) | (2 * f == whole), 1, 2) / whole
    angle = 2 * np.pi * ((f * i) % whole) / whole
    dtype = re.op.dtype.np
    y = contract(re.op, e.constant((weight * np.cos(angle)).astype(dtype), [half, out]), over=(half,))
    dims = [out if j == k else d for j, d in enumerate(re.dims)]
    if im is not None:
        met, _ = g.meet([re, im])
        y = y - contract(met[1].op, e.constant((weight * np.sin(angle)).astype(dtype), [met[1].dims[k], out]), over=(met[1].dims[k],))
    return Tensor(y, [*dims, None])


@translates("STFT")
def stft(n: Any, signal: Value, step: Value, window: Value = None, length: Value = None) -> Tensor:
    """Frames of a signal, each times a window and transformed."""
    g, t = n.g, n.g.tensor(signal)
    hop = g.ints(step)[0]
    size = g.ints(length)[0] if length is not None else g.number(window.shape[0])
    re, im = complex_parts(g, t)
    frames = g.fresh((re.shape[1] - size) // hop + 1)
    inner = g.fresh(size)

    def framed(p: Tensor) -> Tensor:
        p = g.full(p, [1])
        made = g.read(p, [p.dims[0], frames, inner], {p.dims[1]: Idx(frames) * hop + Idx(inner)})
        if window is not None:
            w = g.renamed(g.full(g.tensor(window)), [inner])
            made = g.made(made.op * w.op, made.dims)
        return made

    pair: Pair = framed(re), None if im is None else framed(im)
    a, b = fourier(g, pair, 2, size, -1.0)
    assert b is not None
    found = [a, b]
    if n.attr("onesided", 1):
        found = [sliced(g, p, 2, 0, 1, size // 2 + 1) for p in found]
    return stacked(g, list(found), 3)


@translates("MelWeightMatrix")
def mel_weights(n: Any, bins: Value, length: Value, rate: Value, low: Value, high: Value) -> ConstantArray:
    """Triangles, evenly apart on the mel scale, over the bins of a spectrum."""
    g = n.g
    count, size, sampled = g.ints(bins)[0], g.ints(length)[0], g.ints(rate)[0]
    check_room(size // 2 + 1, count + 2)
    ends = [2595 * math.log10(1 + float(g.known(v)) / 700) for v in (low, high)]
    points = ends[0] + np.arange(count + 2) * ((ends[1] - ends[0]) / (count + 2))
    places = ((size + 1) * (700 * (10 ** (points / 2595) - 1)) // sampled).astype(int)
    made = np.zeros((size // 2 + 1, count))
    for k in range(count):
        first, middle, last = places[k : k + 3]
        if middle == first:
            made[middle, k] = 1
        else:
            made[first : middle + 1, k] = np.arange(middle - first + 1) / (middle - first)
        if last != middle:
            made[middle:last, k] = (last - np.arange(middle, last)) / (last - middle)
    return ConstantArray(made.astype(numpy_type(n.attr("output_datatype", 1))))


# ---- random numbers -----------------------------------------------------------------------------------------------------


def seed_of(n: Any) -> dict[str, int]:
    """A seed is a float, whose bits are as good as any number."""
    given = n.attr("seed")
    return {} if given is None else {"seed": struct.unpack("<I", struct.pack("<f", given))[0]}


@translates("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
def random(n: Any, like: Value = None) -> Tensor:
    g = n.g
    shape: Sequence[ExprLike] = n.attr("shape") if like is None else like.shape
    dtype = as_dtype(numpy_type(n.attr("dtype")) if n.has("dtype") else np.float32 if like is None else like.np)
    axes = [g.fresh(s) for s in shape]
    wide = dtype if dtype.is_float and dtype.bits >= 32 else dtypes.float32
    if n.op.startswith("RandomNormal"):
        made = normal(axes, n.attr("mean", 0.0), n.attr("scale", 1.0), dtype=wide, **seed_of(n))
    else:
        made = uniform(axes, n.attr("low", 0.0), n.attr("high", 1.0), dtype=wide, **seed_of(n))
    return g.made(e.cast(made, dtype), axes)


@translates("Multinomial")
def multinomial(n: Any, x: Value) -> Tensor:
    """Draws by the largest of log-probabilities with Gumbel noise."""
    g = n.g
    t = g.full(g.tensor(x))
    draws = g.fresh(n.attr("sample_size", 1))
    noise = uniform([t.dims[0], draws, t.dims[1]], dtype=dtypes.float32, **seed_of(n))
    score = e.cast(t.op, dtypes.float32) - e.log(-e.log(e.maximum(noise, 1e-30)))
    chosen = argreduce.build(score, kind="max", axes=(t.dims[1],))
    return g.made(e.cast(chosen, as_dtype(numpy_type(n.attr("dtype", 6)))), [t.dims[0], draws])


# ---- linear algebra, images ---------------------------------------------------------------------------------------------


@translates("Det")
def determinant(n: Any, x: Value) -> Tensor:
    """By elimination with row pivots."""
    g = n.g
    t = g.full(g.tensor(x), (x.rank - 2, x.rank - 1))
    I, J = t.dims[-2:]
    size = g.number(I.size)
    a, det = t.op, e.filled(1, (), t.op.dtype)

    def at(axis: Axis, k: int, y: Op) -> Op:
        return y[{axis: k}] if axis in y.axes else y

    row = iota(I)
    other = g.fresh(size)
    for k in range(size):
        column = e.where(e.less(row, k), -1.0, e.absolute(at(J, k, a)))
        pivot = argreduce.build(column, kind="max", axes=(I,))
        to = e.where(e.equal(row, k), pivot, e.where(e.equal(row, pivot), k, row))
        there = rename_record.build(to, to=((I, other),)) if I in to.axes else to
        a = rename_record.build(gather(a, there, axes=(I,), mode="clip"), to=((other, I),))
        head = at(I, k, a)
        diagonal = at(J, k, head)
        det = det * diagonal * e.where(e.equal(pivot, k), 1.0, -1.0)
        below = e.logical_and(e.less(k, row), e.not_equal(diagonal, 0.0))
        factor = e.where(below, at(J, k, a) / e.where(e.equal(diagonal, 0.0), 1.0, diagonal), 0.0)
        a = a - factor * head
    return g.made(det, t.dims[:-2])


@translates("Col2Im")
def col2im(n: Any, x: Value, image: Value, block: Value) -> Tensor:
    """Blocks summed where they lie in the image: each element reads the blocks that cover it."""
    g = n.g
    sizes, kernel = g.ints(image), g.ints(block)
    k = len(sizes)
    strides, dilations, pads = n.attr("strides") or [1] * k, n.attr("dilations") or [1] * k, n.attr("pads") or [0] * 2 * k
    counts = [(s + pads[j] + pads[j + k] - dilations[j] * (kernel[j] - 1) - 1) // strides[j] + 1 for j, s in enumerate(sizes)]
    t = g.tensor(x)
    channels = t.shape[1] // math.prod(kernel)
    t = g.full(g.reshape(t, [t.shape[0], channels, *kernel, *counts]))
    outs = [g.fresh(s) for s in sizes]
    index: dict[Axis, Any] = {}
    guard = []
    for j, (r, o, i) in enumerate(zip(t.dims[2 : 2 + k], t.dims[2 + k :], outs, strict=True)):
        distance = Idx(i) + pads[j] - Idx(r) * dilations[j]
        index[o] = distance // strides[j]
        if strides[j] > 1:
            guard.append(0 - distance % strides[j])
    inner = t.dims[2 : 2 + k]
    whole = {a: index.get(a, Idx(a)) for a in t.op.axes}
    read = reindex(t.op, axes=(*t.dims[:2], *inner, *outs), index=whole, guard=tuple(guard))
    return g.made(reduce.build(read, kind="add", axes=tuple(inner)), [*t.dims[:2], *outs])


@translates("MaxRoiPool")
def max_roi_pool(n: Any, x: Value, rois: Value) -> Tensor:
    g = n.g
    t = g.full(g.tensor(x))
    r = g.apart(g.full(g.tensor(rois)), t.dims)
    scale, sizes = n.attr("spatial_scale", 1.0), n.attr("pooled_shape")
    columns = [r.op[{r.dims[1]: k}] for k in range(5)]
    index = index_along(g, e.cast(columns[0], dtypes.int64), None, t.dims[0], dim_of(n, 0), negative=False)
    op = gather(t.op, index, axes=(t.dims[0],), mode="clip")
    outs = []
    for j, d in enumerate(t.dims[2:]):
        first, last = (e.floor(columns[k] * scale + 0.5) for k in (2 - j, 4 - j))
        part = e.maximum(last - first + 1.0, 1.0) / sizes[j]
        out = g.fresh(sizes[j])
        k_ = e.cast(iota(out), r.op.dtype)
        low = e.minimum(e.maximum(e.floor(k_ * part) + first, 0.0), number(d.size, r.op.dtype))
        high = e.minimum(e.maximum(-e.floor(-((k_ + 1.0) * part)) + first, 0.0), number(d.size, r.op.dtype))
        place = e.cast(iota(d), r.op.dtype)
        inside = e.logical_and(e.less_equal(low, place), e.less(place, high))
        best = reduce.build(e.where(inside, op, -np.inf), kind="max", axes=(d,))
        op = e.where(e.less(low, high), best, 0.0)
        outs.append(out)
    return g.made(op, [r.dims[0], t.dims[1], *outs])


@translates("NonMaxSuppression")
def non_max_suppression(n: Any, boxes: Value, scores: Value, most: Value = None, overlap: Value = None, least: Value = None) -> Value:
    """The best boxes of each class, without those that overlap a better one. A step in Python."""
    center = n.attr("center_point_box", 0)

    def corners(b: Any) -> Any:
        if center:
            return np.stack([b[:, 0] - b[:, 2] / 2, b[:, 1] - b[:, 3] / 2, b[:, 0] + b[:, 2] / 2, b[:, 1] + b[:, 3] / 2], 1)
        low, high = np.minimum(b[:, :2], b[:, 2:]), np.maximum(b[:, :2], b[:, 2:])
        return np.concatenate([low, high], 1)

    given = [v for v in (most, overlap, least) if v is not None]

    def run(b: Any, s: Any, *limits: Any) -> Any:
        values = iter(limits)
        count, shared, floor_ = (None if v is None else np.ravel(next(values))[0] for v in (most, overlap, least))
        count, shared = int(count or 0), float(shared or 0)
        found = []
        for batch in range(s.shape[0]):
            box = corners(b[batch].astype(np.float32))
            area = (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1])
            for kind in range(s.shape[1]):
                score = s[batch, kind]
                left = np.argsort(-score, kind="stable")
                if floor_ is not None:
                    left = left[score[left] > floor_]
                for _ in range(count):
                    if not len(left):
                        break
                    i, left = left[0], left[1:]
                    found.append((batch, kind, i))
                    low, high = np.maximum(box[i, :2], box[left, :2]), np.minimum(box[i, 2:], box[left, 2:])
                    both = np.prod(np.clip(high - low, 0, None), axis=1)
                    union = area[i] + area[left] - both
                    left = left[~((both > 0) & (both > shared * union))]
        return np.array(found, np.int64).reshape(-1, 3)

    return n.g.host("NonMaxSuppression", run, [boxes, scores, *given], [np.int64])[0]


# ---- training -----------------------------------------------------------------------------------------------------------

TRAINING = "ai.onnx.preview.training"


@translates("Gradient", domain=TRAINING)
def gradient(n: Any, *values: Value) -> tuple[Tensor, ...]:
    g = n.g
    y = g.tensor(n.frame.find(n.attr("y")))
    whole = reduce.build(y.op, kind="add", axes=tuple(y.op.axes)) if y.op.axes else y.op
    xs = [g.tensor(v) for v in values[: len(n.attr("xs"))]]
    return tuple(g.made(deriv(whole, x.op), x.dims) for x in xs)


def trained(n: Any, values: Sequence[Value], parts: int) -> list[list[Tensor]]:
    """The tensors of each parameter: itself, its gradient, and its state."""
    ts = [n.g.tensor(v) for v in values]
    count = len(ts) // parts
    return [[ts[k + count * p] for p in range(parts)] for k in range(count)]


def spread(rows: Sequence[Sequence[Tensor]]) -> tuple[Tensor, ...]:
    return tuple(row[k] for k in range(len(rows[0])) for row in rows)


@translates("Momentum", domain=TRAINING)
def momentum(n: Any, rate: Value, step: Value, *values: Value) -> tuple[Tensor, ...]:
    g = n.g
    r, t = g.tensor(rate).op, g.tensor(step).op
    alpha, decay = n.attr("alpha"), n.attr("norm_coefficient")
    beta = e.where(e.equal(t, 0), 1.0, n.attr("beta"))
    rows = []
    for row in trained(n, values, 3):
        (x, dx, v), dims = g.align(*row)
        slope = dx + x * decay
        v = v * alpha + slope * beta
        moved = slope + v * alpha if n.attr("mode") == "nesterov" else v
        rows.append([g.made(x - r * moved, dims), g.made(v, dims)])
    return spread(rows)


@translates("Adagrad", domain=TRAINING)
def adagrad(n: Any, rate: Value, step: Value, *values: Value) -> tuple[Tensor, ...]:
    g = n.g
    r, t = g.tensor(rate).op, g.tensor(step).op
    r = r / (e.cast(t, r.dtype) * n.attr("decay_factor", 0.0) + 1.0)
    rows = []
    for row in trained(n, values, 3):
        (x, dx, h), dims = g.align(*row)
        slope = dx + x * n.attr("norm_coefficient", 0.0)
        h = h + slope * slope
        rows.append([g.made(x - r * slope / (e.sqrt(h) + n.attr("epsilon", 1e-6)), dims), g.made(h, dims)])
    return spread(rows)


@translates("Adam", domain=TRAINING)
def adam(n: Any, rate: Value, step: Value, *values: Value) -> tuple[Tensor, ...]:
    g = n.g
    r, t = g.tensor(rate).op, g.tensor(step).op
    alpha, beta = n.attr("alpha", 0.9), n.attr("beta", 0.999)
    k = e.cast(t, r.dtype)
    later = r * e.sqrt(1.0 - e.power(beta, k)) / (1.0 - e.power(alpha, k))
    r = e.where(e.less(0, t), later, r)
    rows = []
    for row in trained(n, values, 4):
        (x, dx, v, h), dims = g.align(*row)
        slope = dx + x * n.attr("norm_coefficient", 0.0)
        v, h = v * alpha + slope * (1 - alpha), h * beta + slope * slope * (1 - beta)
        new = (x - r * v / (e.sqrt(h) + n.attr("epsilon", 1e-6))) * (1 - n.attr("norm_coefficient_post", 0.0))
        rows.append([g.made(new, dims), g.made(v, dims), g.made(h, dims)])
    return spread(rows)

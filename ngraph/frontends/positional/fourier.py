"""Fourier transforms of signals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.positional.shapes import padded, sliced, stacked
from ngraph.frontends.positional.values import Tensor, Value, check_room
from ngraph.op_graph.expr import Idx
from ngraph.ops.fourier import real_of_half, transform

Pair = tuple[Tensor, Tensor | None]  # real and imaginary part; None: all 0


def fourier(g: Any, x: Pair, k: int, length: int, sign: float) -> Pair:
    """The discrete Fourier transform along dim k; sign: -1.0, or 1.0 for the inverse, which is divided by the length."""
    check_room(length)
    ts = [g.full(t, [k]) for t in x if t is not None]
    ts, met = g.meet(ts) if len(ts) > 1 else (ts, ts[0].dims)
    out = g.fresh(length)
    re, im = transform((ts[0].op, ts[1].op if len(ts) > 1 else None), ts[0].dims[k], out, sign)
    re, im = (re * (1 / length), im * (1 / length)) if sign > 0 else (re, im)
    dims = [out if j == k else d for j, d in enumerate(met)]
    return g.made(re, dims), g.made(im, dims)


def complex_parts(g: Any, t: Tensor) -> Pair:
    """The real part and, where there are two, the imaginary one in the last dim. Raises GraphError for more or none."""
    last = t.dims[-1]
    if last is None:
        return Tensor(t.op, t.dims[:-1]), None
    count = 2 if not g.follows(last.size) or g.differ(last.size, 1) else 1
    if count == 2 and g.differ(last.size, 2):
        raise GraphError(f"{g.show(t)} has {g.hint(last.size)} parts in its last dim", fix="give a real and an imaginary one")
    re, *im = [Tensor(p.op, p.dims[:-1]) for p in (g.read(t, [*t.dims[:-1], None], {last: k}) for k in range(count))]
    return re, im[0] if im else None


def fitted(g: Any, x: Pair, k: int, length: int) -> Pair:
    """Cut, or filled with zeros, to a length."""

    def fit(t: Tensor) -> Tensor:
        size = g.number(t.shape[k])
        return t if size == length else padded(g, t, k, 0, length - size)

    return fit(x[0]), None if x[1] is None else fit(x[1])


def dft(g: Any, t: Tensor, k: int, length: int | None, inverse: bool, half: bool) -> Tensor:
    """The transform along dim k of complex numbers in the last dim, cut or filled up to a length; half: half of a spectrum."""
    parts = complex_parts(g, t)
    count = g.number(t.shape[k])
    if half and inverse:  # the other half is the conjugate, the result real
        whole = 2 * (count - 1) if length is None else length
        kept = fitted(g, parts, k, whole // 2 + 1)
        return half_inverse(g, kept, k, whole)
    count = count if length is None else length
    re, im = fourier(g, fitted(g, parts, k, count), k, count, 1.0 if inverse else -1.0)
    assert im is not None
    found = [re, im]
    if half:
        found = [sliced(g, t, k, 0, 1, count // 2 + 1) for t in found]
    return stacked(g, list(found), t.rank - 1)


def half_inverse(g: Any, x: Pair, k: int, whole: int) -> Tensor:
    """The real signal of one half of its spectrum."""
    re, im = (None if t is None else g.full(t, [k]) for t in x)
    assert re is not None
    check_room(whole, whole // 2 + 1)
    ts, met = ([re], re.dims) if im is None else g.meet([re, im])
    out = g.fresh(whole)
    y = real_of_half((ts[0].op, ts[1].op if im is not None else None), ts[0].dims[k], out)
    return g.made(y, [*(out if j == k else d for j, d in enumerate(met)), None])


def stft(g: Any, t: Tensor, hop: int, size: int, window: Value, half: bool) -> Tensor:
    """Frames of a signal [batch, length] or [batch, length, parts], `size` long and `hop` apart, each times a window and transformed."""
    re, im = complex_parts(g, t) if t.rank == 3 else (t, None)
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
    if half:
        found = [sliced(g, p, 2, 0, 1, size // 2 + 1) for p in found]
    return stacked(g, list(found), 3)


def mel_weights(count: int, size: int, sampled: int, low: float, high: float) -> np.ndarray:
    """Triangles, evenly apart on the mel scale, over the bins of a spectrum."""
    check_room(size // 2 + 1, count + 2)
    ends = [2595 * math.log10(1 + v / 700) for v in (low, high)]
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
    return made

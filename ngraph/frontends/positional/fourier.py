"""Fourier transforms of signals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ngraph.frontends.positional.shapes import padded, permuted, sliced, stacked
from ngraph.frontends.positional.values import Tensor, Value, check_room
from ngraph.op_graph.axes import Axis
from ngraph.op_graph.expr import Idx
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.linear import contract

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
    turned = (permuted(t, *order) for t in (re, im))
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


def stft(g: Any, t: Tensor, hop: int, size: int, window: Value, half: bool) -> Tensor:
    """Frames of a signal, `size` long and `hop` apart, each times a window and transformed."""
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

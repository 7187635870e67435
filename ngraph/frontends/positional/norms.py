"""Normalization: over the batch, each image, the last dims, or neighbouring channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ngraph.frontends.positional.elementwise import each
from ngraph.frontends.positional.reductions import along, mean
from ngraph.frontends.positional.values import Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.rearrange import windows as read_windows
from ngraph.ops.reduce import reduce


def by_channel(g: Any, v: Value, rank: int) -> Tensor:
    """A vector along dim 1."""
    t = g.tensor(v)
    return Tensor(t.op, [None, *t.dims, *[None] * (rank - 2)])


def moments(t: Tensor, dims: Sequence[int]) -> tuple[Op, Op]:
    """Mean and variance over dims, as wide as sums are."""
    axes = along(t, dims)
    wide = e.cast(t.op, dtypes.accumulator(t.op.dtype))
    m = mean(wide, axes)
    return m, mean((wide - m) * (wide - m), axes)


def normalized(g: Any, x: Tensor, vectors: Sequence[Tensor], epsilon: float) -> Tensor:
    """x scaled to mean 0 and variance 1, then by scale and bias: one product and one sum for each element.

    vectors: scale, bias, mean, variance.
    """
    (a, s, b, m, v), dims = g.align(x, *vectors)
    kind = a.dtype
    wide = dtypes.accumulator(dtypes.promote(kind, m.dtype))
    a, s, b, m, v = (e.cast(o, wide) for o in (a, s, b, m, v))
    by = s / e.sqrt(v + epsilon)
    return g.made(e.cast(a * by + (b - m * by), kind), dims)


def batch_norm(g: Any, t: Tensor, vectors: Sequence[Tensor], epsilon: float, momentum: float | None = None) -> tuple[Tensor, ...]:
    """t normalized by scale, bias, mean and variance along dim 1; momentum: by its own mean and variance, and the old ones moved."""
    if momentum is None:
        return (normalized(g, t, vectors, epsilon),)
    dims = [None, t.dims[1], *[None] * (t.rank - 2)]
    now = [Tensor(e.cast(s, vectors[2].dtype), dims) for s in moments(t, [k for k in range(t.rank) if k != 1])]
    moved = []
    for old, new in zip(vectors[2:], now, strict=True):
        (a, b), out = g.align(old, new)
        moved.append(g.made(a * momentum + b * (1 - momentum), [out[1]]))
    return (normalized(g, t, [*vectors[:2], *now], epsilon), *moved)


def instance_norm(g: Any, t: Tensor, scale: Value, bias: Value, epsilon: float) -> Tensor:
    """Each channel of each image by its own mean and variance."""
    dims = [*t.dims[:2], *[None] * (t.rank - 2)]
    m, v = moments(t, range(2, t.rank))
    return normalized(g, t, [by_channel(g, scale, t.rank), by_channel(g, bias, t.rank), Tensor(m, dims), Tensor(v, dims)], epsilon)


def layer_norm(
    g: Any, t: Tensor, scale: Value, bias: Value, at: int, epsilon: float, wide: DType, centre: bool = True
) -> tuple[Tensor, ...]:
    """The dims from `at` on with mean 0 (if wanted) and mean square 1, times a scale, plus a bias; that mean, and 1 over the deviation.

    wide: a dtype in which narrower ones are computed.
    """
    x = e.cast(t.op, wide) if t.op.dtype.bits < wide.bits else t.op
    axes = along(t, range(at, t.rank))
    m = mean(x, axes) if centre else e.filled(0, (), x.dtype)
    x = x - m if centre else x
    inverse = e.reciprocal(e.sqrt(mean(x * x, axes) + epsilon))
    y = Tensor(e.cast(x * inverse, t.op.dtype), t.dims)
    y = y if scale is None else each(g, e.multiply, y, scale)
    y = y if bias is None else each(g, e.add, y, bias)
    ends = [*t.dims[:at], *[None] * (t.rank - at)]
    return y, g.made(m, ends), g.made(inverse, ends)


def rms_norm(g: Any, t: Tensor, scale: Value, at: int, epsilon: float, wide: DType) -> Tensor:
    """The dims from `at` on with mean square 1, times a scale, whose dtype the result has."""
    x = e.cast(t.op, wide) if t.op.dtype.bits < wide.bits else t.op
    y = Tensor(e.cast(x / e.sqrt(mean(x * x, along(t, range(at, t.rank))) + epsilon), t.op.dtype), t.dims)
    return each(g, lambda a, b: e.cast(e.cast(a, b.dtype) * b, b.dtype), y, scale)


def local_response(g: Any, t: Tensor, size: int, alpha: float, beta: float, bias: float) -> Tensor:
    """Each element over a power of the squares of so many channels around it."""
    t = g.full(t, [1])
    c, r = t.dims[1], g.fresh(size)

    def response(x: Op) -> Op:
        near = read_windows(x * x, {c: r}, padding=((size - 1) // 2, size // 2))
        scale = bias + (alpha / size) * reduce.build(near, kind="add", axes=(r,))
        return x / e.power(scale, beta)

    return g.made(e.rounding_once(response)(t.op), t.dims)


def mean_variance(t: Tensor, dims: Sequence[int]) -> Tensor:
    """Mean 0 and variance 1 over dims."""
    axes = along(t, dims)

    def normal(x: Op) -> Op:
        centred = x - mean(x, axes)
        return centred / (e.sqrt(mean(centred * centred, axes)) + 1e-9)

    return Tensor(e.rounding_once(normal)(t.op), t.dims)

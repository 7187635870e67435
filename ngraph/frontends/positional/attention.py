"""Attention: queries [batch, heads, time, width] meet keys and values [batch, heads, time, width]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.positional.elementwise import each
from ngraph.frontends.positional.products import matmul
from ngraph.frontends.positional.reductions import along, total
from ngraph.frontends.positional.shapes import at, joined, part, permuted, size_op, turned
from ngraph.frontends.positional.values import Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.expr import ExprLike, Idx
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.indexing import gather
from ngraph.ops.rearrange import iota

LOW = float(np.finfo(np.float32).min)  # added to a score, it takes it away


def heads(g: Any, t: Tensor, count: int) -> Tensor:
    """[batch, time, heads * width] as [batch, heads, time, width]."""
    width = g.number(t.shape[2])
    if width % count:
        raise GraphError(f"{count} heads do not divide {g.show(t)}")
    return permuted(g.reshape(t, [t.shape[0], t.shape[1], count, width // count]), 0, 2, 1, 3)


def one(g: Any, t: Tensor) -> Tensor:
    """And back."""
    t = permuted(t, 0, 2, 1, 3)
    return g.reshape(t, [t.shape[0], t.shape[1], g.number(t.shape[2]) * g.number(t.shape[3])])


def attend(
    g: Any, q: Tensor, k: Tensor, v: Tensor, scale: float | None, added: Sequence[Value] = (), softcap: float = 0.0, sink: Value = None
) -> tuple[Tensor, Tensor]:
    """Softmax of scores times the values, and the scores. added: what meets the scores [batch, heads, time, time].

    sink: one more score of each head [heads, 1, 1], which takes its share of the softmax and gives nothing.
    """

    def last(t: Tensor, kind: str) -> Tensor:
        return g.made(total(t.op, along(t, [-1]), kind), [*t.dims[:-1], None])

    width = g.number(q.shape[-1])
    s = matmul(g, q, turned(k))
    s = Tensor(s.op * (scale or 1 / math.sqrt(width)), s.dims)
    if softcap:
        s = Tensor(e.tanh(s.op / softcap) * softcap, s.dims)
    for more in added:
        s = each(g, lambda a, b: a + e.cast(b, a.dtype), s, more)
    top = last(s, "max")
    if sink is not None:
        top = each(g, lambda a, b: e.maximum(a, e.cast(b, a.dtype)), top, sink)
    p = each(g, lambda a, b: e.exp(a - b), s, top)
    below = last(p, "add")
    if sink is not None:
        below = each(g, lambda a, b, m: a + e.exp(e.cast(b, a.dtype) - m), below, sink, top)
    return matmul(g, each(g, e.divide, p, below), v), s


def only(allowed: Tensor, low: float = LOW) -> Tensor:
    """Returns the additive mask of scores: 0 where allowed, `low` elsewhere."""
    return Tensor(e.where(allowed.op, 0.0, low), allowed.dims)


def positions(t: Tensor) -> Op:
    """The position in time of [..., time, width]."""
    return e.filled(0, (), dtypes.int32) if t.dims[-2] is None else iota(t.dims[-2])


def times(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """The positions of queries and of keys, as they meet the scores."""
    return Tensor(positions(q), [None, None, q.dims[-2], None]), Tensor(positions(k), [None, None, None, k.dims[-2]])


def later(g: Any, q: Tensor, k: Tensor, before: ExprLike) -> Tensor:
    """Keys behind the query's own taken away. That of the first query has `before` keys in front; the last query meets all."""
    i, j = times(q, k)
    first, last = (e.cast(size_op(n), dtypes.int32) for n in (before, q.shape[2] - 1))
    return only(each(g, lambda a, b: e.logical_or(e.less_equal(b, a + first), e.equal(a, last)), i, j))


def rotated(g: Any, t: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """[batch, heads, time, width] turned by angles [batch, time, half]; what lies behind twice the half stays."""
    half = g.number(cos.shape[-1])
    width = g.number(t.shape[3])
    rest = part(g, t, 3, 2 * half, width - 2 * half) if width > 2 * half else None
    t = part(g, t, 3, 0, 2 * half) if rest is not None else t
    c, s = (permuted(u, 0, None, 1, 2) for u in (cos, sin))
    if interleaved:
        pairs = g.reshape(t, [*t.shape[:3], half, 2])
        a, b = (at(g, pairs, 4, k) for k in (0, 1))
    else:
        a, b = part(g, t, 3, 0, half), part(g, t, 3, half, half)
    real = each(g, lambda x, y, c, s: x * c - y * s, a, b, c, s)
    imaginary = each(g, lambda x, y, c, s: x * s + y * c, a, b, c, s)
    if interleaved:
        both = [Tensor(u.op, [*u.dims, None]) for u in (real, imaginary)]
        turned_ = g.reshape(joined(g, both, 4), list(t.shape))
    else:
        turned_ = joined(g, [real, imaginary], 3)
    return turned_ if rest is None else joined(g, [turned_, rest], 3)


def written(g: Any, old: Tensor, new: Tensor, before: Tensor, room: Any) -> Tensor:
    """[batch, heads, room, width]: of each row the first `before` of the old ones, behind them the new ones, then zeros."""
    new, old, own = g.full(new, [2]), g.full(old, [2]), g.fresh(room)
    before = before if new.dims[0] is None else g.renamed(before, new.dims[:1])
    here, start = Tensor(iota(own), [None, own]), Tensor(before.op, [before.dims[0], None])
    at = each(g, e.subtract, here, start)
    axis = new.dims[2]
    late = g.made(gather.build(new.op, at.op, axes=(axis,), mode="fill"), [new.dims[0] or at.dims[0], new.dims[1], own, new.dims[3]])
    early = g.read(old, [*old.dims[:2], own, old.dims[3]], {old.dims[2]: Idx(own)})
    kept = each(g, e.less, here, start)
    return each(g, e.where, permuted(kept, 0, None, 1, None), early, late)

"""Translators of com.microsoft's attention: Attention, MultiHeadAttention, GroupQueryAttention, QAttention, RotaryEmbedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ngraph.errors import UnsupportedError
from ngraph.frontends.onnx.quantised import FUSED, integers_to_float
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional.attention import attend, heads, later, one, only, positions, rotated, times, written
from ngraph.frontends.positional.elementwise import each
from ngraph.frontends.positional.indexing import dim_named, rows
from ngraph.frontends.positional.products import matmul
from ngraph.frontends.positional.shapes import at, joined, part, permuted, size_op
from ngraph.frontends.positional.values import Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.expr import ExprLike
from ngraph.ops import elementwise as e


def masked(g: Any, mask: Value, q: Tensor, k: Tensor, low: float) -> Tensor:
    """A mask in any of the forms that there are: for keys, for queries and keys, or where each row begins and ends."""
    m = g.tensor(mask)
    _, j = times(q, k)
    if m.rank == 1:
        batch = q.shape[0]
        if g.same(m.shape[0], batch) or g.same(m.shape[0], 3 * batch + 2):  # which has also where each row begins, as packed ones need it
            ends = permuted(part(g, m, 0, 0, batch), 0, None, None, None)
            return only(each(g, lambda a, b: e.less(a, e.cast(b, a.dtype)), j, ends), low)
        batch = g.number(batch)
        if not g.same(m.shape[0], 2 * batch):
            raise UnsupportedError(f"a mask of {g.show(m)} for {batch} rows of packed sentences", fix="export it with a mask for each key")
        ends, starts = (permuted(part(g, m, 0, at, batch), 0, None, None, None) for at in (0, batch))
        inside = each(g, lambda a, b, c: e.logical_and(e.less_equal(e.cast(c, a.dtype), a), e.less(a, e.cast(b, a.dtype))), j, ends, starts)
        return only(inside, low)
    places: dict[int, Sequence[int | None]] = {2: (0, None, None, 1), 3: (0, None, 1, 2), 4: (0, 1, 2, 3)}
    m = permuted(m, *places[m.rank])
    if m.rank == 4 and not g.equal(m.shape[3], k.shape[2]) and isinstance(m.shape[3], int):  # for the longest sentence that may come
        m = part(g, m, 3, 0, k.shape[2])
        if not g.equal(m.shape[2], q.shape[2]) and not g.same(m.shape[2], 1):
            m = part(g, m, 2, k.shape[2] - q.shape[2], q.shape[2])
    return only(Tensor(e.less(0, m.op) if m.op.dtype.kind != "bool" else m.op, m.dims), low)


# ---- attention whose keys stay as they are -----------------------------------------------------------------------------------


def finish(n: Any, q: Tensor, k: Tensor, v: Tensor, mask: Value, bias: Value, past: ExprLike) -> tuple[Tensor, Tensor]:
    """Attention as Attention and MultiHeadAttention have it. past: how many keys stand before the first query's own."""
    g = n.g
    added: list[Value] = [] if bias is None else [bias]
    if mask is not None:
        added.append(masked(g, mask, q, k, n.attr("mask_filter_value", -10000.0)))
    if n.attr("unidirectional", 0):
        added.append(later(g, q, k, past))
    y, scores = attend(g, q, k, v, n.attr("scale", 0.0) or None, added)
    return one(g, y), scores


@translates("Attention", domain=FUSED)
def attention(
    n: Any, x: Value, weights: Value, bias: Value = None, mask: Value = None, past: Value = None, more: Value = None, length: Value = None
) -> tuple[Tensor, ...]:
    g = n.g
    t = matmul(g, g.tensor(x), g.tensor(weights))
    return projected(n, t if bias is None else each(g, e.add, t, bias), mask, past, more)


@translates("QAttention", domain=FUSED)
def quantised_attention(n: Any, *values: Value) -> tuple[Tensor, ...]:
    x, weights, bias, x_scale, w_scale, mask, x_zero, w_zero, past = n.inputs(values, 5, 9)
    return projected(n, integers_to_float(n, x, weights, x_scale, w_scale, x_zero, w_zero, bias), mask, past, None)


def projected(n: Any, t: Tensor, mask: Value, past: Value, more: Value) -> tuple[Tensor, ...]:
    """Attention of queries, keys and values that lie beside each other; and the keys and values, with those of the past."""
    g, count = n.g, n.attr("num_heads")
    if n.attr("do_rotary", 0) or n.attr("past_present_share_buffer", 0):
        raise UnsupportedError("Attention with do_rotary or past_present_share_buffer", fix="export it without them")
    width = g.number(t.shape[2])
    sizes = n.attr("qkv_hidden_sizes") or [width // 3] * 3
    starts = (0, sizes[0], sizes[0] + sizes[1])
    q, k, v = (heads(g, part(g, t, 2, start, size), count) for start, size in zip(starts, sizes, strict=True))
    before: ExprLike = 0
    if past is not None:
        old = g.tensor(past)
        before = old.shape[3]
        k, v = (joined(g, [at(g, old, 0, j), new], 2) for j, new in enumerate((k, v)))
    y, _ = finish(n, q, k, v, mask, more, before)
    if not n.wants(1):
        return (y,)
    return y, joined(g, [Tensor(u.op, [None, *u.dims]) for u in (k, v)], 0)


@translates("MultiHeadAttention", domain=FUSED)
def multi_head(n: Any, *values: Value) -> tuple[Tensor, ...]:
    """Queries, keys and values come apart, keys and values in one, all in one, or with heads already in front."""
    query, key, value, bias, mask, more, past_key, past_value, length, beams = n.inputs(values, 1, 10)
    g, count = n.g, n.attr("num_heads")
    if length is not None or beams is not None:
        raise UnsupportedError("MultiHeadAttention that shares its buffers or searches with beams", fix="export it without them")
    t = g.tensor(query)
    if t.rank == 5:  # [batch, time, heads, 3, width]
        sides = [permuted(at(g, t, 3, k), 0, 2, 1, 3) for k in range(3)]
    else:
        u = g.tensor(key)
        if u.rank == 5:
            sides = [heads(g, t, count), *(permuted(at(g, u, 3, k), 0, 2, 1, 3) for k in range(2))]
        else:
            sides = [heads(g, s, count) if s.rank == 3 else s for s in (t, u, g.tensor(value))]
    if bias is not None:
        start = 0
        for k, s in enumerate(sides):
            width = g.number(s.shape[3]) * count
            if k == 0 or t.rank == 5 or g.tensor(key).rank != 4:
                b = g.reshape(part(g, g.tensor(bias), 0, start, width), [count, 1, g.number(s.shape[3])])
                sides[k] = each(g, e.add, s, b)
            start += width
    q, k_, v = sides
    before: ExprLike = 0
    if past_key is not None:
        before = g.tensor(past_key).shape[2]
        k_, v = joined(g, [g.tensor(past_key), k_], 2), joined(g, [g.tensor(past_value), v], 2)
    y, scores = finish(n, q, k_, v, mask, more, before)
    return y, k_, v, scores


# ---- rotary embedding --------------------------------------------------------------------------------------------------------


def steps(t: Tensor) -> Tensor:
    """The position in time of [batch, heads, time, width], as [1, time]."""
    return Tensor(positions(t), [None, t.dims[2]])


@translates("RotaryEmbedding", domain=FUSED)
def rotary(n: Any, x: Value, given: Value, cos: Value, sin: Value) -> Tensor:
    """given: where the first of each row stands, or where each stands."""
    g, t = n.g, n.g.tensor(x)
    if n.attr("is_packed_batching", 0):
        raise UnsupportedError("RotaryEmbedding of packed sentences", fix="export it without is_packed_batching")
    flat = t.rank == 3
    tables = [g.tensor(v) for v in (cos, sin)]
    if flat:
        count = n.attr("num_heads", 0) or g.number(t.shape[2]) // (2 * g.number(tables[0].shape[1]))
        t = heads(g, t, count)
    place = g.tensor(given)
    if place.rank == 1:
        place = each(g, lambda a, b: a + e.cast(b, a.dtype), permuted(place, 0, None), steps(t))
    angles = [rows(g, u, place, dim_named(0, n.takes[k])) for k, u in enumerate(tables, 2)]
    y = rotated(g, t, angles[0], angles[1], bool(n.attr("interleaved", 0)))
    return one(g, y) if flat else y


# ---- grouped queries ---------------------------------------------------------------------------------------------------------


@translates("GroupQueryAttention", domain=FUSED)
def grouped(n: Any, *values: Value) -> tuple[Tensor, ...]:
    """Several heads of queries share one of keys; new keys are written behind those that each row has already.

    lengths: how many keys each row has with the new ones, less one. total: the most of them.
    """
    query, key, value, past_key, past_value, lengths, total, cos, sin, given, more, sink, *quantised = n.inputs(values, 7, 12)
    g, count, fewer = n.g, n.attr("num_heads"), n.attr("kv_num_heads")
    if any(v is not None for v in quantised) or n.attr("sliding_window_cache", 0):
        raise UnsupportedError("GroupQueryAttention with a quantised or sliding cache, or norms of its own", fix="export it without them")
    t = g.tensor(query)
    if key is None:  # all in one
        width = g.number(t.shape[2]) // (count + 2 * fewer)
        sizes = (count * width, fewer * width, fewer * width)
        sides = [part(g, t, 2, start, size) for start, size in zip((0, sizes[0], sizes[0] + sizes[1]), sizes, strict=True)]
    else:
        sides = [t, g.tensor(key), g.tensor(value)]
    q, k, v = (heads(g, s, c) for s, c in zip(sides, (count, fewer, fewer), strict=True))
    now = k.shape[2]
    first, room = stages(g, total, now, None if past_key is None else g.tensor(past_key).shape[2])
    have = g.tensor(lengths)
    have = g.renamed(Tensor(e.cast(have.op, dtypes.int32) + 1, have.dims[:1]), [t.dims[0]])
    new = e.filled(0, (), dtypes.int32) + e.cast(size_op(now), dtypes.int32)
    before = Tensor(e.filled(0, (), dtypes.int32), [None]) if first else Tensor(have.op - new, have.dims)  # keys that each row had
    if n.attr("do_rotary", 0):
        place = g.tensor(given) if given is not None else each(g, e.add, permuted(before, 0, None), steps(k))
        angles = [rows(g, g.tensor(u), place) for u in (cos, sin)]
        q, k = (rotated(g, u, angles[0], angles[1], bool(n.attr("rotary_interleaved", 0))) for u in (q, k))
    if past_key is not None:
        k, v = (written(g, g.tensor(old), new, before, room) for old, new in ((past_key, k), (past_value, v)))
    i, j = times(q, k)
    here = each(g, e.add, i, permuted(before, 0, None, None, None))
    causal, far = n.attr("causal", 1), n.attr("local_window_size", -1)
    added: list[Value] = [] if more is None else [more]
    if causal:
        seen = each(g, lambda a, b: e.less_equal(b, a), here, j)
        added.append(only(seen if far < 0 else each(g, lambda s, a, b: e.logical_and(s, e.less(a, b + far)), seen, here, j)))
    else:
        added.append(only(each(g, e.less, j, permuted(have, 0, None, None, None))))
    if sink is not None or n.attr("smooth_softmax", -1) == 1:
        u = g.tensor(sink) if sink is not None else Tensor(e.filled(0, (), q.dtype), [None])
        sink = Tensor(u.op, [*u.dims, None, None])
    each_one = [1, 1, count // fewer, 1, 1]
    many = [g.reshape(g.expanded(permuted(u, 0, 1, None, 2, 3), each_one), [u.shape[0], count, *u.shape[2:]]) for u in (k, v)]
    y, scores = attend(g, q, many[0], many[1], n.attr("scale", 0.0) or None, added, n.attr("softcap", 0.0), sink)
    return one(g, y), k, v, scores


def stages(g: Any, total: Value, now: Any, past: Any) -> tuple[bool, Any]:
    """Whether this is the first part of a sentence, and for how many keys there is room with the past: as many as before, or more."""
    if past is None or g.same(past, 0):
        return True, now
    if isinstance(total, Tensor):  # comes with the call: only asked how it compares, so that a longer sentence is read alike
        (slot,) = g.computed([total])

        def compared(run: Any) -> tuple[bool, bool, bool]:
            n = int(run.slots[slot])
            return n == run.number(now), n <= run.number(past), n == run.number(past + now)

        first, fits, grown = g.ask(("room", slot, now, past), compared)
        if fits or grown:
            return first, past if fits else past + now
    said = g.sizes(total)[0]
    return g.same(said, now), said if g.truth("lt", past, said) else past

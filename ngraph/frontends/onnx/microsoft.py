"""Translators of com.microsoft's fused ops but attention: activations, products, normalization, embeddings, weights of a few bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph.errors import GraphError, UnsupportedError
from ngraph.frontends.onnx.layers import conv
from ngraph.frontends.onnx.products import gemm
from ngraph.frontends.onnx.quantised import FUSED
from ngraph.frontends.onnx.recurrent import recurrent_layer
from ngraph.frontends.onnx.sampling import grid_sample
from ngraph.frontends.onnx.shapes import gather_nd, pad, range_, trilu, unsqueeze
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional import factors
from ngraph.frontends.positional.elementwise import activation, alone, clipped, each, gelu
from ngraph.frontends.positional.indexing import dim_named, gathered, place, rows, top_k
from ngraph.frontends.positional.norms import layer_norm
from ngraph.frontends.positional.products import matmul, rows_by_group
from ngraph.frontends.positional.quantised import dequantized, unpacked
from ngraph.frontends.positional.reductions import reduce_over, softmax, total
from ngraph.frontends.positional.sampling import cropped
from ngraph.frontends.positional.shapes import at, part, turned, without
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.expr import Idx
from ngraph.ops import elementwise as e
from ngraph.ops.rearrange import iota, product
from ngraph.ops.reduce import reduce
from ngraph.ops.sorting import sort

# ---- activations ------------------------------------------------------------------------------------------------------------


@translates("BiasGelu", domain=FUSED)
def bias_gelu(n: Any, x: Value, bias: Value) -> Tensor:
    return each(n.g, lambda a, b: gelu(a + b), x, bias)


@translates("FastGelu", domain=FUSED)
def fast_gelu(n: Any, x: Value, bias: Value = None) -> Tensor:
    return each(n.g, lambda a, *b: gelu(a + b[0] if b else a, tanh=True), *[v for v in (x, bias) if v is not None])


@translates("QuickGelu", domain=FUSED)
def quick_gelu(n: Any, x: Value) -> Tensor:
    return each(n.g, lambda a: a * e.sigmoid(a * n.attr("alpha", 1.702)), x)


@translates("BiasAdd", domain=FUSED)
def bias_add(n: Any, x: Value, bias: Value, skip: Value) -> Tensor:
    return each(n.g, lambda a, b, c: a + b + c, x, bias, skip)


ACTIVATIONS = ("Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid", "HardSwish", "Elu")


def activated(n: Any, t: Tensor, numbers: Sequence[float]) -> Tensor:
    """Returns the activation that the attribute `activation` names, of a tensor."""
    name = n.attr("activation")
    if name and name not in ACTIVATIONS:
        raise GraphError(f"there is no activation {name!r}", fix=f"there are {', '.join(ACTIVATIONS)}")
    return alone(n.g, activation(name, numbers), t) if name else t


# ---- products ---------------------------------------------------------------------------------------------------------------


@translates("FusedConv", domain=FUSED)
def fused_conv(n: Any, x: Value, w: Value, bias: Value = None, more: Value = None) -> Tensor:
    y = conv(n, x, w, bias)
    return activated(n, y if more is None else each(n.g, e.add, y, more), n.attr("activation_params") or [])


@translates("FusedGemm", domain=FUSED)
def fused_gemm(n: Any, a: Value, b: Value, c: Value = None) -> Tensor:
    return activated(n, gemm(n, a, b, c), [n.attr(k) for k in ("activation_alpha", "activation_beta") if n.has(k)])


@translates("FusedMatMul", "TransposeMatMul", domain=FUSED)
def fused_matmul(n: Any, a: Value, b: Value) -> Tensor:
    """trans: the last two dims change places. transBatch: rows stand first, before the dims of the batch."""
    g = n.g
    sides = []
    for v, side in ((a, "A"), (b, "B")):
        t = g.tensor(v)
        if n.attr(f"transBatch{side}", 0) and t.rank > 2:
            t = Tensor(t.op, [*t.dims[1:-1], t.dims[0], t.dims[-1]])
        sides.append(turned(t) if n.attr(f"trans{side}", 0) and t.rank > 1 else t)
    y = matmul(g, sides[0], sides[1])
    alpha = n.attr("alpha", 1.0)
    return y if alpha == 1 else Tensor(y.op * alpha, y.dims)


@translates("MatMulNBits", domain=FUSED)
def matmul_bits(n: Any, a: Value, b: Value, scales: Value, zeros: Value = None, groups: Value = None, bias: Value = None) -> Tensor:
    """Weights of 2 to 8 bits, packed, with a scale (and a zero point) for each block along the columns of a."""
    g, bits, block, wide, deep = n.g, n.attr("bits", 4), n.attr("block_size"), n.attr("N"), n.attr("K")
    if groups is not None or n.attr("weight_prepacked", 0):
        raise UnsupportedError("MatMulNBits with g_idx or weights packed for one device", fix="quantise the model without them")
    blocks = -(-deep // block)
    codes = unpacked(g.known(b).reshape(wide * blocks, -1), bits, block).reshape(wide, blocks, block)
    kind = g.tensor(a).dtype
    s = g.tensor(scales)
    s = g.reshape(s, [wide, blocks, 1])
    if zeros is None:
        zero: Value = ConstantArray(np.array(1 << bits - 1, np.uint8))
    elif np.dtype(zeros.np) == np.uint8:
        zero = ConstantArray(unpacked(g.known(zeros).reshape(wide, -1), bits, blocks).reshape(wide, blocks, 1))
    else:
        zero = g.reshape(g.tensor(zeros), [wide, blocks, 1])
    w = each(g, lambda q, z, by: (e.cast(q, by.dtype) - e.cast(z, by.dtype)) * by, ConstantArray(codes), zero, s)
    w = part(g, g.reshape(w, [wide, blocks * block]), 1, 0, deep)
    y = matmul(g, g.tensor(a), Tensor(e.cast(w.op, kind), turned(w).dims))
    return y if bias is None else each(g, e.add, y, bias)


@translates("GatherBlockQuantized", domain=FUSED)
def gather_blocks(n: Any, data: Value, indices: Value, scales: Value, zeros: Value = None) -> Tensor:
    """Rows of weights of a few bits with a scale for each block; those in bytes are packed along the last dim."""
    g, bits, axis, along = n.g, n.attr("bits", 4), n.attr("gather_axis", 0), n.attr("quantize_axis", 1)
    count = len(data.shape)
    if np.dtype(data.np) == np.uint8:
        if along % count != count - 1:
            raise UnsupportedError(f"GatherBlockQuantized of bytes with blocks along dim {along}", fix="they are packed along the last dim")
        wide = data.shape[-1] * 8 // bits
        packed = [(v, k) for v, k in ((data, wide), (zeros, scales.shape[-1])) if v is not None]
        data, *rest = (ConstantArray(unpacked(g.known(v).reshape(-1, v.shape[-1]), bits, k).reshape(*v.shape[:-1], k)) for v, k in packed)
        zeros = rest[0] if rest else ConstantArray(np.array(1 << bits - 1, np.uint8))
    places = g.tensor(indices)
    rank = places.rank
    if not rank:
        places = Tensor(places.op, [None])

    def chosen(v: Value) -> Tensor:
        return gathered(g, g.tensor(v), places, axis % count, n.takes[0])

    zero = zeros if zeros is None or not zeros.shape else chosen(zeros)
    moved = along % count + (places.rank - 1) * (along % count > axis % count)
    y = dequantized(g, chosen(data), chosen(scales), zero, moved, n.attr("block_size", 128))
    return y if rank else without(y, axis % count)


def _gated(n: Any, t: Tensor) -> Tensor:
    """Pairs along the last dim, a gate and what it lets through, each within the limit."""
    g, limit = n.g, n.attr("swiglu_limit")
    pairs = g.reshape(t, [*t.shape[:-1], t.shape[-1] // 2, 2])
    gate, straight = (at(g, pairs, pairs.rank - 1, k) for k in (0, 1))
    if limit is not None:
        gate = alone(g, lambda v: e.minimum(v, limit), gate)
        straight = alone(g, lambda v: clipped(v, -limit, limit), straight)
    alpha, beta = n.attr("activation_alpha", 1.0), n.attr("activation_beta", 0.0)
    return each(g, lambda u, v: u * e.sigmoid(u * alpha) * (v + beta), gate, straight)


EXPERTS: dict[str, Any] = {"gelu": lambda v: gelu(v, tanh=True), "silu": lambda v: v * e.sigmoid(v), "identity": lambda v: v}


@translates("MoE", domain=FUSED)
def experts(
    n: Any, x: Value, router: Value, w1: Value, b1: Value, w2: Value, b2: Value = None, w3: Value = None, _: Value = None
) -> Tensor:
    """The sum of what the k best experts make of each row, by the chances that the router gives them."""
    g, k, kind = n.g, n.attr("k", 1), n.attr("activation_type", "relu")
    strange = w3 is not None or n.attr("use_sparse_mixer", 0) or n.attr("swiglu_limit_after_activation", 0)
    if strange or kind == "swiglu" and n.attr("swiglu_fusion", 0) != 1:
        raise UnsupportedError("MoE with a third product, the sparse mixer or gates beside each other", fix="take swiglu_fusion=1")
    t = g.tensor(x)
    rows, wide = product(t.shape[:-1]), t.shape[-1]
    chances = g.full(g.tensor(router))
    best, which = top_k(g, Tensor(softmax(chances.op, (chances.dims[1],)), chances.dims), 1, k, True)
    if n.attr("normalize_routing_weights", 0):
        best = each(g, e.divide, best, reduce_over(best, [1], total, True))
    chosen = g.full(g.reshape(which, [rows * k]))
    axis, expert = chosen.dims[0], g.fresh(w1.shape[0])
    number, order = sort(chosen.op, axis, iota(axis))
    ends = Tensor(total(e.cast(e.less_equal(chosen.op, iota(expert)), dtypes.int64), (axis,)), [expert])

    def layer(v: Tensor, w: Value, bias: Value) -> Tensor:
        y = rows_by_group(g, v, turned(g.tensor(w)), ends)
        return y if bias is None else each(g, e.add, y, gathered(g, g.tensor(bias), Tensor(number, [axis]), 0, n.takes[3]))

    h = layer(gathered(g, g.reshape(t, [rows, wide]), Tensor(order // k, [axis]), 0, n.takes[0]), w1, b1)
    h = _gated(n, h) if kind == "swiglu" else alone(g, EXPERTS.get(kind) or activation("Relu"), h)
    y = gathered(g, layer(h, w2, b2), Tensor(sort(order, axis, iota(axis))[1], [axis]), 0, n.takes[0])
    parts = each(g, e.multiply, g.reshape(y, [rows, k, wide]), Tensor(best.op, [*best.dims, None]))
    return g.reshape(reduce_over(parts, [1], total, False), t.shape)


# ---- normalization ----------------------------------------------------------------------------------------------------------


@translates("SimplifiedLayerNormalization")
@translates("SimplifiedLayerNormalization", domain=FUSED)
def simplified(n: Any, x: Value, scale: Value) -> tuple[Tensor, ...]:
    t = n.g.tensor(x)
    if n.attr("axis", -1) % t.rank != t.rank - 1:
        said = f"SimplifiedLayerNormalization along axis {n.attr('axis')} of {n.g.show(t)}"
        raise UnsupportedError(said, fix="along the last dim it is there")
    y, _, inverse = layer_norm(n.g, t, scale, None, t.rank - 1, n.attr("epsilon", 1e-5), dtypes.float32, centre=False)
    return y, inverse


@translates("SkipLayerNormalization", domain=FUSED)
def skip_norm(n: Any, x: Value, skip: Value, gamma: Value, beta: Value = None, bias: Value = None) -> tuple[Tensor, ...]:
    return skipped(n, x, skip, bias, gamma, beta, True)


@translates("SkipSimplifiedLayerNormalization", domain=FUSED)
def skip_simplified(n: Any, x: Value, skip: Value, gamma: Value, bias: Value = None) -> tuple[Tensor, ...]:
    return skipped(n, x, skip, bias, gamma, None, False)


def skipped(n: Any, x: Value, skip: Value, bias: Value, gamma: Value, beta: Value, centre: bool) -> tuple[Tensor, ...]:
    """The sum of both, and that normalized."""
    total = each(n.g, e.add, x, skip)
    total = total if bias is None else each(n.g, e.add, total, bias)
    return (*layer_norm(n.g, total, gamma, beta, total.rank - 1, n.attr("epsilon", 1e-12), dtypes.float32, centre), total)


@translates("EmbedLayerNormalization", domain=FUSED)
def embed(n: Any, *values: Value) -> tuple[Tensor, ...]:
    """The sum of up to three embeddings, normalized; and how many words of each sentence the mask keeps."""
    ids, segments, words, positions, segment_table, gamma, beta, mask, position_ids = n.inputs(values, 7, 9)
    g = n.g
    t = g.tensor(ids)
    total = rows(g, g.tensor(words), t, dim_named(0, n.takes[2]))
    spots = place(t, 1) if position_ids is None else g.tensor(position_ids)
    if spots.rank < 2:
        spots = Tensor(spots.op, [None] * (2 - spots.rank) + list(spots.dims))
    total = each(g, e.add, total, rows(g, g.tensor(positions), spots, dim_named(0, n.takes[3])))
    if segment_table is not None and segments is not None:
        total = each(g, e.add, total, rows(g, g.tensor(segment_table), g.tensor(segments), dim_named(0, n.takes[4])))
    y, _, _ = layer_norm(g, total, gamma, beta, total.rank - 1, n.attr("epsilon", 1e-12), dtypes.float32)
    batch = t.dims[0]
    kept = e.filled(0, () if batch is None else (batch,), dtypes.int32)
    if mask is not None:
        m = g.tensor(mask)
        there = e.cast(e.equal(m.op, 1), dtypes.int32)
        kept = reduce.build(there, kind="add", axes=(m.dims[1],)) if m.dims[1] is not None else there
        batch = m.dims[0]
    return y, Tensor(kept, [batch]), total


# ---- recurrent layers with quantised weights ----------------------------------------------------------------------------------


@translates("DynamicQuantizeLSTM", domain=FUSED)
def quantised_lstm(n: Any, x: Value, w: Value, r: Value, *others: Value) -> tuple[Tensor, ...]:
    """An LSTM of weights kept as integers, [directions, inputs, gates]; what they meet stays float."""
    w_scale, w_zero, r_scale, r_zero = others[5:9]
    matrices = []
    for v, s, z in ((w, w_scale, w_zero), (r, r_scale, r_zero)):
        t = n.g.tensor(v)
        by, zero = (Tensor(u.op, [u.dims[0], *[None] * (2 - u.rank), *u.dims[1:]]) for u in (n.g.tensor(s), n.g.tensor(z)))
        by, zero = (Tensor(u.op, [u.dims[0], None, u.dims[-1] if u.rank > 1 else None]) for u in (by, zero))
        matrices.append(turned(dequantized(n.g, t, by, zero, 0)))
    return recurrent_layer(n, "LSTM", x, *matrices, *others[:5])


# ---- ops that ONNX has, too, or had not yet -----------------------------------------------------------------------------------


translates("Trilu", domain=FUSED)(trilu)
translates("ExpandDims", domain=FUSED)(unsqueeze)
translates("Pad", domain=FUSED)(pad)
translates("GatherND", domain=FUSED)(gather_nd)
translates("GridSample", domain=FUSED)(grid_sample)
translates("Inverse", domain=FUSED)(lambda n, x: factors.inverse(n.g, x))


@translates("Range", domain=FUSED)
def counted(n: Any, start: Value, limit: Value, delta: Value = None) -> Value:
    return range_(n, start, limit, ConstantArray(np.ones((), start.np)) if delta is None else delta)


@translates("CDist", domain=FUSED)
def distances(n: Any, a: Value, b: Value) -> Tensor:
    """The distance of each row of a from each of b, or its square."""
    x, y = n.g.tensor(a), n.g.tensor(b)
    d = each(n.g, e.subtract, Tensor(x.op, [x.dims[0], None, x.dims[1]]), Tensor(y.op, [None, *y.dims]))
    squares = reduce_over(Tensor(d.op * d.op, d.dims), [2], total, False)
    return squares if n.attr("metric") == "sqeuclidean" else alone(n.g, e.sqrt, squares)


@translates("CropAndResize", domain=FUSED)
def crop_and_resize(n: Any, x: Value, boxes: Value, numbers: Value, sizes: Value) -> Tensor:
    nearest, fill = n.attr("mode", "bilinear") == "nearest", n.attr("extrapolation_value", 0.0)
    return cropped(n.g, n.g.tensor(x), 2, boxes, numbers, n.g.ints(sizes), nearest, fill, n.takes[0])


@translates("UnfoldTensor", domain=FUSED)
def unfold(n: Any, x: Value) -> Tensor:
    """Windows along a dim, whose elements become the last one."""
    t, size, step = n.g.tensor(x), n.attr("size"), n.attr("step", 1)
    k = n.attr("dim", -1) % t.rank
    t = n.g.full(t, [k])
    outer, inner = n.g.fresh((t.shape[k] - size) // step + 1), n.g.fresh(size)
    dims = [*t.dims[:k], outer, *t.dims[k + 1 :], inner]
    return n.g.read(t, dims, {t.dims[k]: Idx(outer) * step + Idx(inner)})

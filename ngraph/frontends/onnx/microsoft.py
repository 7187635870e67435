"""Translators of com.microsoft's fused ops but attention: activations, products, normalization, embeddings, weights of a few bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np

from ngraph.errors import GraphError, UnsupportedError
from ngraph.frontends.onnx import arithmetic, quantised, recurrent
from ngraph.frontends.onnx.layers import layer_norm
from ngraph.frontends.onnx.pieces import each, part, place, rows
from ngraph.frontends.onnx.products import conv, gemm, matmul, turned
from ngraph.frontends.onnx.quantised import FUSED, dequantized, integers_to_float
from ngraph.frontends.onnx.shapes import dim_of
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.reduce import reduce

# ---- activations ------------------------------------------------------------------------------------------------------------


def gelu(x: Op) -> Op:
    return x * 0.5 * (1.0 + e.erf(x * math.sqrt(0.5)))


def tanh_gelu(x: Op) -> Op:
    return x * 0.5 * (1.0 + e.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


@translates("BiasGelu", domain=FUSED)
def bias_gelu(n: Any, x: Value, bias: Value) -> Tensor:
    return each(n.g, lambda a, b: gelu(a + b), x, bias)


@translates("FastGelu", domain=FUSED)
def fast_gelu(n: Any, x: Value, bias: Value = None) -> Tensor:
    return each(n.g, lambda a, *b: tanh_gelu(a + b[0] if b else a), *[v for v in (x, bias) if v is not None])


@translates("QuickGelu", domain=FUSED)
def quick_gelu(n: Any, x: Value) -> Tensor:
    return each(n.g, lambda a: a * e.sigmoid(a * n.attr("alpha", 1.702)), x)


@translates("BiasAdd", domain=FUSED)
def bias_add(n: Any, x: Value, bias: Value, skip: Value) -> Tensor:
    return each(n.g, lambda a, b, c: a + b + c, x, bias, skip)


# by name: from two numbers to a function; defaults in front
ACTIVATIONS: dict[str, tuple[float, float, Callable[[Op, float, float], Op]]] = {
    "Relu": (0, 0, lambda x, a, b: e.relu(x)),
    "Tanh": (0, 0, lambda x, a, b: e.tanh(x)),
    "Sigmoid": (0, 0, lambda x, a, b: e.sigmoid(x)),
    "LeakyRelu": (0.01, 0, lambda x, a, b: e.where(e.less(x, 0.0), x * a, x)),
    "Clip": (-math.inf, math.inf, lambda x, a, b: e.minimum(e.maximum(x, a), b)),
    "HardSigmoid": (0.2, 0.5, lambda x, a, b: e.minimum(e.maximum(x * a + b, 0.0), 1.0)),
    "HardSwish": (1 / 6, 0.5, lambda x, a, b: x * e.minimum(e.maximum(x * a + b, 0.0), 1.0)),
    "Elu": (1.0, 0, lambda x, a, b: e.where(e.less(x, 0.0), e.expm1(e.minimum(x, 0.0)) * a, x)),
}


def activated(n: Any, t: Tensor, numbers: Sequence[float]) -> Tensor:
    """What the attribute `activation` names, of a tensor."""
    name = n.attr("activation")
    if not name:
        return t
    if name not in ACTIVATIONS:
        raise GraphError(f"there is no activation {name!r}", fix=f"there are {', '.join(ACTIVATIONS)}")
    a, b, function = ACTIVATIONS[name]
    given = [*numbers, *[a, b][len(numbers) :]]
    return Tensor(function(t.op, given[0], given[1]), t.dims)


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


def unpacked(packed: np.ndarray[Any, Any], bits: int, count: int) -> np.ndarray[Any, Any]:
    """Rows of bytes as rows of `count` numbers of so many bits, the first in the lowest ones."""
    flat = np.unpackbits(np.ascontiguousarray(packed), axis=1, bitorder="little", count=bits * count)
    weights = (1 << np.arange(bits)).astype(np.uint8)
    total = np.zeros((len(packed), count), np.uint8)
    for k in range(bits):
        total |= flat[:, k::bits] * weights[k]
    return total


# ---- normalization ----------------------------------------------------------------------------------------------------------


def normal(g: Any, t: Tensor, epsilon: float, centre: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """A tensor with mean 0 (if wanted) and mean square 1 along its last dim; that mean, and the reciprocal of the deviation. In float32."""
    axes = tuple(d for d in t.dims[-1:] if d is not None)
    x = e.cast(t.op, dtypes.float32) if t.op.dtype.bits < 32 else t.op
    m = arithmetic.mean(x, axes) if centre else e.filled(0, (), x.dtype)
    x = x - m if centre else x
    inverse = e.reciprocal(e.sqrt(arithmetic.mean(x * x, axes) + epsilon))
    ends = [*t.dims[:-1], None]
    return Tensor(e.cast(x * inverse, t.op.dtype), t.dims), g.made(m, ends), g.made(inverse, ends)


def scaled(g: Any, t: Tensor, by: Value, more: Value) -> Tensor:
    t = t if by is None else each(g, e.multiply, t, by)
    return t if more is None else each(g, e.add, t, more)


translates("LayerNormalization", domain=FUSED)(layer_norm)


@translates("SimplifiedLayerNormalization")
@translates("SimplifiedLayerNormalization", domain=FUSED)
def simplified(n: Any, x: Value, scale: Value) -> tuple[Tensor, ...]:
    t = n.g.tensor(x)
    if n.attr("axis", -1) % t.rank != t.rank - 1:
        raise UnsupportedError(
            f"SimplifiedLayerNormalization along axis {n.attr('axis')} of {n.g.show(t)}", fix="along the last dim it is there"
        )
    y, _, inverse = normal(n.g, t, n.attr("epsilon", 1e-5), centre=False)
    return scaled(n.g, y, scale, None), inverse


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
    y, m, inverse = normal(n.g, total, n.attr("epsilon", 1e-12), centre)
    return scaled(n.g, y, gamma, beta), m, inverse, total


@translates("EmbedLayerNormalization", domain=FUSED)
def embed(
    n: Any,
    ids: Value,
    segments: Value,
    words: Value,
    positions: Value,
    segment_table: Value,
    gamma: Value,
    beta: Value,
    mask: Value = None,
    position_ids: Value = None,
) -> tuple[Tensor, ...]:
    """The sum of up to three embeddings, normalized; and how many words of each sentence the mask keeps."""
    g = n.g
    t = g.tensor(ids)
    total = rows(g, g.tensor(words), t, dim_of(n, 0, 2))
    at = place(t, 1) if position_ids is None else g.tensor(position_ids)
    if at.rank < 2:
        at = Tensor(at.op, [None] * (2 - at.rank) + list(at.dims))
    total = each(g, e.add, total, rows(g, g.tensor(positions), at, dim_of(n, 0, 3)))
    if segment_table is not None and segments is not None:
        total = each(g, e.add, total, rows(g, g.tensor(segment_table), g.tensor(segments), dim_of(n, 0, 4)))
    y, _, _ = normal(g, total, n.attr("epsilon", 1e-12))
    batch = t.dims[0]
    kept = e.filled(0, () if batch is None else (batch,), dtypes.int32)
    if mask is not None:
        m = g.tensor(mask)
        there = e.cast(e.equal(m.op, 1), dtypes.int32)
        kept = reduce.build(there, kind="add", axes=(m.dims[1],)) if m.dims[1] is not None else there
        batch = m.dims[0]
    return scaled(g, y, gamma, beta), Tensor(kept, [batch]), total


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
        matrices.append(turned(dequantized(n, t, by, zero, 0)))
    plain = copy(n)
    plain.op, plain.domain, plain.version = "LSTM", "", 14
    return recurrent.recurrent(plain, x, *matrices, *others[:5])


# ---- quantised ops ------------------------------------------------------------------------------------------------------------


@translates("QGemm", domain=FUSED)
def quantised_gemm(
    n: Any,
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    c: Value = None,
    scale: Value = None,
    zero: Value = None,
) -> Tensor:
    """A product of integers plus int32 in units of both scales; float where no scale is given for the result."""
    g = n.g
    x, y = (turned(g.tensor(v)) if n.attr(k, 0) else g.tensor(v) for v, k in ((a, "transA"), (b, "transB")))
    z = integers_to_float(n, x, y, a_scale, b_scale, a_zero, b_zero)
    alpha = n.attr("alpha", 1.0)
    z = z if alpha == 1 else Tensor(z.op * alpha, z.dims)
    if c is not None:
        z = each(g, lambda p, q, s, t: p + e.cast(q, dtypes.float32) * (s * t * alpha), z, c, a_scale, b_scale)
    return z if scale is None else quantised.quantized(n, z, scale, zero, as_dtype(a.np if zero is None else zero.np))


@translates("QLinearSoftmax", domain=FUSED)
def quantised_softmax(n: Any, x: Value, x_scale: Value, x_zero: Value, scale: Value, zero: Value) -> Tensor:
    t = dequantized(n, n.g.tensor(x), x_scale, x_zero)
    axis = n.attr("axis", -1) % t.rank
    dims = [axis] if (n.attr("opset") or 13) >= 13 else list(range(axis, t.rank))
    axes = tuple([t.dims[k] for k in dims if t.dims[k] is not None])
    return quantised.quantized(n, Tensor(arithmetic.softmax_over(t.op, axes, False), t.dims), scale, zero, as_dtype(x.np))


@translates("QLinearReduceMean", domain=FUSED)
def quantised_mean(n: Any, x: Value, x_scale: Value, x_zero: Value, scale: Value, zero: Value = None) -> Tensor:
    t = dequantized(n, n.g.tensor(x), x_scale, x_zero)
    y = arithmetic.reduce_over(n.g, t, arithmetic.reduced_dims(n, t), arithmetic.mean, bool(n.attr("keepdims", 1)))
    return quantised.quantized(n, y, scale, zero, as_dtype(x.np))


@translates("QLinearWhere", domain=FUSED)
def quantised_where(
    n: Any, c: Value, x: Value, x_scale: Value, x_zero: Value, y: Value, y_scale: Value, y_zero: Value, scale: Value, zero: Value
) -> Tensor:
    a, b = dequantized(n, n.g.tensor(x), x_scale, x_zero), dequantized(n, n.g.tensor(y), y_scale, y_zero)
    return quantised.quantized(n, each(n.g, e.where, c, a, b), scale, zero, as_dtype(x.np))

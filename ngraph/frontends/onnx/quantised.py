"""Translators of quantisation: QuantizeLinear and its inverse, products and convolutions of integers, and com.microsoft's quantised ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ngraph.errors import GraphError, UnsupportedError
from ngraph.frontends.onnx.arithmetic import reduced_dims
from ngraph.frontends.onnx.layers import average_pool, windowing
from ngraph.frontends.onnx.proto import numpy_type
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional import quantised
from ngraph.frontends.positional.elementwise import each
from ngraph.frontends.positional.quantised import dequantized, quantized, unscaled
from ngraph.frontends.positional.reductions import along, mean, reduce_over, softmax
from ngraph.frontends.positional.shapes import joined, turned
from ngraph.frontends.positional.values import Tensor, Value
from ngraph.frontends.positional.windows import with_bias
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e

FUSED = "com.microsoft"

# ---- QuantizeLinear and back ------------------------------------------------------------------------------------------------


@translates("QuantizeLinear")
@translates("QuantizeLinear", domain=FUSED)
def quantize(n: Any, x: Value, scale: Value, zero: Value = None) -> Tensor:
    said = n.attr("output_dtype", 0)
    target = as_dtype(zero.np) if zero is not None else as_dtype(numpy_type(said)) if said else dtypes.uint8
    if said and as_dtype(numpy_type(said)) is not target:
        raise GraphError(f"output_dtype is {numpy_type(said)}, and the zero point is {target}")
    precision = as_dtype(numpy_type(n.attr("precision"))) if n.attr("precision", 0) else None
    numbers = n.attr("axis", 1), n.attr("block_size", 0), bool(n.attr("saturate", 1))
    return quantized(n.g, n.g.tensor(x), scale, zero, target, *numbers, precision)


@translates("DequantizeLinear")
@translates("DequantizeLinear", domain=FUSED)
def dequantize(n: Any, x: Value, scale: Value, zero: Value = None) -> Tensor:
    said = n.attr("output_dtype", 0)
    target = as_dtype(numpy_type(said)) if said else None
    return dequantized(n.g, n.g.tensor(x), scale, zero, n.attr("axis", 1), n.attr("block_size", 0), target)


@translates("DynamicQuantizeLinear")
def dynamic(n: Any, x: Value) -> tuple[Tensor, ...]:
    t = n.g.tensor(x)
    y, scale, zero = quantised.dynamic(t.op)
    return Tensor(y, t.dims), Tensor(scale, ()), Tensor(zero, ())


# ---- products of integers ---------------------------------------------------------------------------------------------------


@translates("MatMulInteger")
def matmul_integer(n: Any, a: Value, b: Value, a_zero: Value = None, b_zero: Value = None) -> Tensor:
    return quantised.product(n.g, a, b, a_zero, b_zero)


@translates("ConvInteger")
def conv_integer(n: Any, x: Value, w: Value, x_zero: Value = None, w_zero: Value = None) -> Tensor:
    return quantised.convolved(n.g, x, w, x_zero, w_zero, windowing(n, n.g.numbers(w.shape[2:])), n.attr("group", 1))


@translates("QLinearMatMul")
def qlinear_matmul(
    n: Any, a: Value, a_scale: Value, a_zero: Value, b: Value, b_scale: Value, b_zero: Value, y_scale: Value, y_zero: Value
) -> Tensor:
    g = n.g
    y = quantised.product(g, a, b, a_zero, b_zero)
    sa, sb, sy = g.tensor(a_scale), g.tensor(b_scale), g.tensor(y_scale)
    sa = Tensor(sa.op, [*sa.dims, None]) if sa.rank == 1 and y.rank > 1 else sa  # of rows
    return quantised.scaled(g, y, (sa, sb, sy), y_zero, as_dtype(y_zero.np), lambda t: t)


@translates("QLinearConv")
def qlinear_conv(n: Any, *values: Value) -> Tensor:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = n.inputs(values, 8, 9)
    if n.attr("channels_last", 0):
        raise UnsupportedError("QLinearConv with channels_last", fix="quantise the model with channels first")
    g = n.g
    y = conv_integer(n, x, w, x_zero, w_zero)
    y = with_bias(g, y, bias)

    def at(t: Tensor) -> Tensor:
        return Tensor(t.op, [*t.dims, *[None] * (y.rank - 2)]) if t.rank == 1 else t

    return quantised.scaled(g, y, (g.tensor(x_scale), g.tensor(w_scale), g.tensor(y_scale)), y_zero, as_dtype(y_zero.np), at)


# ---- com.microsoft ------------------------------------------------------------------------------------------------------


@translates("MatMulIntegerToFloat", domain=FUSED)
def integers_to_float(
    n: Any, a: Value, b: Value, a_scale: Value, b_scale: Value, a_zero: Value = None, b_zero: Value = None, bias: Value = None
) -> Tensor:
    return quantised.integers_to_float(n.g, a, b, a_scale, b_scale, a_zero, b_zero, bias)


@translates("DynamicQuantizeMatMul", domain=FUSED)
def dynamic_matmul(n: Any, a: Value, b: Value, b_scale: Value, b_zero: Value = None, bias: Value = None) -> Tensor:
    y, scale, zero = dynamic(n, a)
    return unscaled(n.g, quantised.product(n.g, y, b, zero, b_zero), scale, n.g.tensor(b_scale), bias)


def by_element(name: str, function: Callable[..., Op], count: int) -> None:
    """A quantised op of `count` operands, each with its scale and zero point: what it is of floats, quantised again."""

    def translate(n: Any, *given: Value) -> Tensor:
        parts = [dequantized(n.g, n.g.tensor(given[k]), given[k + 1], given[k + 2]) for k in range(0, 3 * count, 3)]
        ops, dims = n.g.align(*parts)
        scale, zero = given[3 * count], given[3 * count + 1] if len(given) > 3 * count + 1 else None
        return quantized(n.g, n.g.made(function(n, *ops), dims), scale, zero, as_dtype(given[0].np))

    translates(name, domain=FUSED)(translate)


by_element("QLinearAdd", lambda n, x, y: x + y, 2)
by_element("QLinearMul", lambda n, x, y: x * y, 2)
by_element("QLinearSigmoid", lambda n, x: e.sigmoid(x), 1)
by_element("QLinearLeakyRelu", lambda n, x: e.where(e.less(x, 0.0), x * n.attr("alpha", 0.01), x), 1)


@translates("QLinearConcat", domain=FUSED)
def qlinear_concat(n: Any, scale: Value, zero: Value, *parts: Value) -> Tensor:
    """Parts with scales and zero points of their own."""
    floats = [dequantized(n.g, n.g.tensor(x), s, z) for x, s, z in zip(parts[::3], parts[1::3], parts[2::3], strict=True)]
    return quantized(n.g, joined(n.g, floats, n.attr("axis") % floats[0].rank), scale, zero, as_dtype(zero.np))


@translates("QLinearGlobalAveragePool", domain=FUSED)
def qlinear_global(n: Any, x: Value, x_scale: Value, x_zero: Value, y_scale: Value, y_zero: Value) -> Tensor:
    t = dequantized(n.g, n.g.tensor(x), x_scale, x_zero)
    dims = list(range(1, t.rank - 1)) if n.attr("channels_last", 0) else list(range(2, t.rank))
    return quantized(n.g, reduce_over(t, dims, mean, True), y_scale, y_zero, as_dtype(x.np))


@translates("QLinearAveragePool", domain=FUSED)
def qlinear_average(n: Any, x: Value, x_scale: Value, x_zero: Value, y_scale: Value, y_zero: Value) -> Tensor:
    if n.attr("channels_last", 0):
        raise UnsupportedError("QLinearAveragePool with channels_last", fix="quantise the model with channels first")
    y = average_pool(n, dequantized(n.g, n.g.tensor(x), x_scale, x_zero))
    return quantized(n.g, y, y_scale, y_zero, as_dtype(x.np))


@translates("QGemm", domain=FUSED)
def quantised_gemm(n: Any, *values: Value) -> Tensor:
    """A product of integers plus int32 in units of both scales; float where no scale is given for the result."""
    a, a_scale, a_zero, b, b_scale, b_zero, c, scale, zero = n.inputs(values, 6, 9)
    g = n.g
    x, y = (turned(g.tensor(v)) if n.attr(k, 0) else g.tensor(v) for v, k in ((a, "transA"), (b, "transB")))
    z = integers_to_float(n, x, y, a_scale, b_scale, a_zero, b_zero)
    alpha = n.attr("alpha", 1.0)
    z = z if alpha == 1 else Tensor(z.op * alpha, z.dims)
    if c is not None:
        z = each(g, lambda p, q, s, t: p + e.cast(q, dtypes.float32) * (s * t * alpha), z, c, a_scale, b_scale)
    return z if scale is None else quantized(n.g, z, scale, zero, as_dtype(a.np if zero is None else zero.np))


@translates("QLinearSoftmax", domain=FUSED)
def quantised_softmax(n: Any, x: Value, x_scale: Value, x_zero: Value, scale: Value, zero: Value) -> Tensor:
    t = dequantized(n.g, n.g.tensor(x), x_scale, x_zero)
    axis = n.attr("axis", -1) % t.rank
    dims = [axis] if (n.attr("opset") or 13) >= 13 else list(range(axis, t.rank))
    return quantized(n.g, Tensor(softmax(t.op, along(t, dims)), t.dims), scale, zero, as_dtype(x.np))


@translates("QLinearReduceMean", domain=FUSED)
def quantised_mean(n: Any, x: Value, x_scale: Value, x_zero: Value, scale: Value, zero: Value = None) -> Tensor:
    t = dequantized(n.g, n.g.tensor(x), x_scale, x_zero)
    y = reduce_over(t, reduced_dims(n, t), mean, bool(n.attr("keepdims", 1)))
    return quantized(n.g, y, scale, zero, as_dtype(x.np))


@translates("QLinearWhere", domain=FUSED)
def quantised_where(
    n: Any, c: Value, x: Value, x_scale: Value, x_zero: Value, y: Value, y_scale: Value, y_zero: Value, scale: Value, zero: Value
) -> Tensor:
    a, b = dequantized(n.g, n.g.tensor(x), x_scale, x_zero), dequantized(n.g, n.g.tensor(y), y_scale, y_zero)
    return quantized(n.g, each(n.g, e.where, c, a, b), scale, zero, as_dtype(x.np))

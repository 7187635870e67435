"""Translators of TensorFlow's ops on integers that stand for the floats of a range, and on floats that are rounded to such numbers.

Sources: tensorflow/core/kernels/fake_quant_ops_functor.h, quantize_and_dequantize_op.h, quantize_op.cc, dequantize_op.cc,
quantization_utils.h and quantized_*.cc.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ngraph.frontends.positional import elementwise as by_element
from ngraph.frontends.positional import products, quantised, ranges
from ngraph.frontends.positional.reductions import REDUCTIONS, reduce_over, total
from ngraph.frontends.positional.shapes import joined, turned
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value
from ngraph.frontends.tensorflow import layers
from ngraph.frontends.tensorflow.table import TABLE, Array, Ints, register, translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType, as_dtype
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e


def _range(n: Any, bounds: tuple[Value, ...]) -> tuple[Value, ...]:
    """Returns the ends of the range, inputs of the node or attributes."""
    return bounds or tuple(ConstantArray(np.float32(n.attr(key, default))) for key, default in (("min", -6.0), ("max", 6.0)))


def _ends(n: Any) -> tuple[float, float]:
    """Returns the numbers of the first and the last step of a range."""
    return float(bool(n.attr("narrow_range", False))), float((1 << n.attr("num_bits", 8)) - 1)


KINDS = ("Args", "Vars", "VarsPerChannel")


@translates(*(f"FakeQuantWithMinMax{kind}" for kind in KINDS))
def fake_quant(n: Any, x: Value, *bounds: Value) -> Tensor:
    return by_element.each(n.g, lambda *ops: quantised.fake(*_ends(n), *ops), x, *_range(n, bounds))


@translates(*(f"FakeQuantWithMinMax{kind}Gradient" for kind in KINDS), results="backprops_wrt_input backprop_wrt_min backprop_wrt_max")
def fake_quant_gradient(n: Any, dy: Value, x: Value, *bounds: Value) -> tuple[Tensor, ...]:
    """Returns the gradient where x lies within the range; those of its ends are the sums of the others."""
    kept = [0] if "PerChannel" in n.op else []

    def part(choose: Callable[[Op, Op, Op], Op]) -> Tensor:
        def run(d: Op, v: Op, low: Op, high: Op) -> Op:
            first, last, _ = quantised.nudged(*_ends(n), low, high)
            none = e.logical_and(e.equal(low, 0), e.equal(high, 0))  # all is within
            first, last = e.where(none, -np.inf, first), e.where(none, np.inf, last)
            return e.where(choose(v, first, last), d, e.filled(0, (), d.dtype))

        return by_element.each(n.g, run, dy, x, *_range(n, bounds))

    def ends(t: Tensor) -> Tensor:
        return n.g.ones(reduce_over(t, range(t.rank - len(kept)), total, False))

    inside = part(lambda v, first, last: e.logical_and(e.less_equal(first, v), e.less_equal(v, last)))
    if not bounds:
        return (inside,)
    return inside, ends(part(lambda v, first, last: e.less(v, first))), ends(part(lambda v, first, last: e.less(last, v)))


def _along(t: Tensor, axis: int, *bounds: Tensor) -> list[Tensor]:
    """Returns bounds as they meet a tensor: those for each index of an axis, or, below 0, for all of it."""
    return [b if axis < 0 else Tensor(b.op, [*b.dims, *[None] * (t.rank - 1 - axis)]) for b in bounds]


@translates("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV3", "QuantizeAndDequantizeV4")
def quantize_and_dequantize(
    n: Any, t: Tensor, low: Value, high: Value, bits: Ints | None = None, *, signed_input: bool = True, axis: int = -1
) -> Tensor:
    many, given = n.attr("num_bits", 8) if bits is None else bits[0], n.attr("range_given", bits is not None)
    last = float((1 << (many - signed_input)) - 1)
    first = float(-last if n.attr("narrow_range", False) else -last - 1) if signed_input else 0.0
    others = [k for k in range(t.rank) if k != axis]
    bounds = [n.g.tensor(v) if given else reduce_over(t, others, REDUCTIONS[kind], False) for v, kind in ((low, "min"), (high, "max"))]
    bounds = _along(t, axis, *bounds)
    halves = n.attr("round_mode", "HALF_TO_EVEN") == "HALF_UP"

    def run(*ops: Op) -> Op:
        return quantised.there_and_back(first, last, given, halves, *(e.cast(o, dtypes.accumulator(t.op.dtype)) for o in ops))

    made = by_element.each(n.g, run, t, *bounds)
    return Tensor(e.cast(made.op, t.op.dtype), made.dims)


# ---- integers -----------------------------------------------------------------------------------------------------------


@translates("QuantizeV2", results="output output_min output_max")
def quantize(
    n: Any, t: Tensor, low: Tensor, high: Tensor, *, T: DType, mode: str = "MIN_COMBINED", narrow_range: bool = False, axis: int = -1
) -> tuple[Tensor, ...]:
    """Returns floats as integers of a range, and the range: one that holds 0, and is not too short."""
    g, even = n.g, n.attr("round_mode", "HALF_AWAY_FROM_ZERO") == "HALF_TO_EVEN"
    first, last = quantised.limits(T)
    first += mode == "SCALED" and narrow_range

    def run(x: Op, a: Op, b: Op) -> Op:
        x = e.minimum(e.maximum(x, a), b)
        if mode == "SCALED":
            return e.cast((e.rounded if even else ranges.nearest)(x * (last / b)), T)
        by = e.cast((last - first) / e.cast(b - a, dtypes.float64), x.dtype)
        if mode == "MIN_FIRST":
            found = ranges.nearest(x * by - (ranges.nearest(a * by) if first else a * by) + first)
            return e.cast(e.minimum(e.maximum(found, first), last), T)
        return e.cast(ranges.nearest((x - a) * by + first), T)

    end = by_element.each(g, partial(ranges.end_with_zero, least=n.attr("ensure_minimum_range", 0.01)), low, high)
    ends = [by_element.alone(g, partial(e.minimum, y=0.0), low), end]
    if mode == "SCALED":
        by = by_element.each(g, partial(ranges.scale_to, first=first, last=last), *ends)
        ends = [by_element.alone(g, partial(e.divide, number), by) for number in (first, last)]
    return by_element.each(g, run, t, *_along(t, axis, *ends)), *ends


@translates("Dequantize")
def dequantize(n: Any, t: Tensor, low: Tensor, high: Tensor, *, mode: str = "MIN_COMBINED", axis: int = -1) -> Tensor:
    first, last = quantised.limits(t.op.dtype)

    def run(x: Op, a: Op, b: Op) -> Op:
        if mode == "MIN_FIRST":
            return ranges.floats(x, a, b)
        x = e.cast(x, dtypes.float32)
        if mode == "MIN_COMBINED":
            return (x - first) * ((b - a) / (last - first)) + a
        return x * (e.maximum(a / (first + n.attr("narrow_range", False)), b / last) if first else b / last)

    found = by_element.each(n.g, run, t, *_along(t, axis, low, high))
    return Tensor(e.cast(found.op, as_dtype(n.attr("dtype", np.float32))), found.dims)


def _matmul(n: Any, a: Tensor, b: Tensor) -> Tensor:
    x, y = (turned(v) if n.attr(name, False) else v for v, name in ((a, "transpose_a"), (b, "transpose_b")))
    return products.matmul(n.g, x, y)


PRODUCTS: dict[str, Callable[[Any, Tensor, Tensor], Tensor]] = {
    "QuantizedConv2D": lambda n, x, w: layers.back(n, layers.convolved(n, layers.first(n, x), w)),
    "QuantizedMatMul": _matmul,
    "QuantizedMul": lambda n, a, b: by_element.each(n.g, e.multiply, a, b),
}


@translates("QuantizedConv2D", results="output min_output max_output")
@translates("QuantizedMatMul", results="out min_out max_out")
@translates("QuantizedMul", results="z min_z max_z")
def product(n: Any, a: Tensor, b: Tensor, *ends: Tensor) -> tuple[Tensor, ...]:
    """Returns a product as int32, and what the least and the largest of these stand for."""
    y = PRODUCTS[n.op](n, *(by_element.each(n.g, ranges.less_zero, t, *two) for t, two in ((a, ends[:2]), (b, ends[2:]))))
    one = by_element.each(n.g, partial(ranges.step_of_product, kind=a.op.dtype, other=b.op.dtype), *ends)
    return y, *(by_element.alone(n.g, partial(e.multiply, end), one) for end in quantised.limits(dtypes.int32))


@translates("QuantizedBiasAdd", results="output min_out max_out")
def add(n: Any, a: Tensor, b: Tensor, *ends: Tensor) -> tuple[Tensor, ...]:
    """Returns sums as int32, and a range with room for many of them."""
    g, move = n.g, partial(ranges.moved, kind=dtypes.int32)
    high = by_element.each(g, partial(ranges.room_for_sums, bits=17), *ends)
    low = by_element.alone(g, e.negative, high)
    x, y = (by_element.each(g, move, t, *two, low, high) for t, two in ((a, ends[:2]), (b, ends[2:])))
    return by_element.each(g, e.add, x, y), low, high


def _average(n: Any, t: Tensor) -> Tensor:
    """Returns the means of windows, rounded to the nearest."""
    mean = TABLE["AvgPool"](n, Tensor(e.cast(t.op, dtypes.float32), t.dims))
    return Tensor(e.cast(e.rounded(mean.op), t.op.dtype), mean.dims)


for _op, _result, _function in (
    ("Relu", "activations", lambda n, *given: by_element.each(n.g, lambda *ops: ranges.between(*ops, 0.0), *given)),
    ("Relu6", "activations", lambda n, *given: by_element.each(n.g, lambda *ops: ranges.between(*ops, 0.0, 6.0), *given)),
    ("MaxPool", "output", lambda n, t, *ends: TABLE["MaxPool"](n, t)),
    ("AvgPool", "output", lambda n, t, *ends: _average(n, n.g.tensor(t))),
    ("Reshape", "output", lambda n, t, shape, *ends: TABLE["Reshape"](n, t, shape)),
):
    _names = "output_min output_max" if _op == "Reshape" else f"min_{_result} max_{_result}"
    register(lambda n, *given, run=_function: (run(n, *given), *given[-2:]), [f"Quantized{_op}"], f"{_result} {_names}")


@translates("QuantizedConcat", results="output output_min output_max")
def concat(n: Any, k: Array, *given: Tensor, N: int) -> tuple[Tensor, ...]:
    """Returns tensors one behind the other, moved to the range that holds those of all."""
    low, high = (by_element.folded(n.g, f, given[k * N : (k + 1) * N]) for k, f in ((1, e.minimum), (2, e.maximum)))

    def run(x: Op, a: Op, b: Op, c: Op, d: Op) -> Op:
        return e.where(e.logical_and(e.equal(a, c), e.equal(b, d)), x, ranges.moved(x, a, b, c, d, x.dtype))

    return joined(n.g, [by_element.each(n.g, run, *given[j::N], low, high) for j in range(N)], int(k) % given[0].rank), low, high


@translates("RequantizationRange", results="output_min output_max")
def used_range(n: Any, t: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, ...]:
    """Returns the range from what the least integer stands for, or 0, to what the largest one does."""
    least, most = (
        by_element.each(n.g, ranges.floats, reduce_over(t, range(t.rank), REDUCTIONS[kind], False), low, high) for kind in ("min", "max")
    )
    return by_element.alone(n.g, partial(e.minimum, y=0.0), least), most


@translates("Requantize", "QuantizeDownAndShrinkRange", results="output output_min output_max")
def requantize(n: Any, t: Tensor, low: Tensor, high: Tensor, *wanted: Tensor, out_type: DType) -> tuple[Tensor, ...]:
    """Returns int32 as narrower integers of another range, by default that of those that there are."""
    ends = wanted or used_range(n, t, low, high)
    return by_element.each(n.g, partial(ranges.moved, kind=out_type), t, low, high, *ends), *ends

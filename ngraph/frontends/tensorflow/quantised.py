"""Translators of TensorFlow's ops that round to the numbers of a quantised dtype and stay floats.

Sources: tensorflow/core/kernels/fake_quant_ops_functor.h and quantize_and_dequantize_op.h.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ngraph.frontends.positional import elementwise as by_element
from ngraph.frontends.positional import quantised
from ngraph.frontends.positional.reductions import REDUCTIONS, reduce_over, total
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value
from ngraph.frontends.tensorflow.table import Ints, translates
from ngraph.op_graph import dtypes
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


@translates("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV3", "QuantizeAndDequantizeV4")
def quantize_and_dequantize(
    n: Any, t: Tensor, low: Value, high: Value, bits: Ints | None = None, *, signed_input: bool = True, axis: int = -1
) -> Tensor:
    many, given = n.attr("num_bits", 8) if bits is None else bits[0], n.attr("range_given", bits is not None)
    last = float((1 << (many - signed_input)) - 1)
    first = float(-last if n.attr("narrow_range", False) else -last - 1) if signed_input else 0.0
    others = [k for k in range(t.rank) if k != axis]
    bounds = [n.g.tensor(v) if given else reduce_over(t, others, REDUCTIONS[kind], False) for v, kind in ((low, "min"), (high, "max"))]
    if axis >= 0:
        bounds = [Tensor(b.op, [*b.dims, *[None] * (t.rank - 1 - axis)]) for b in bounds]
    halves = n.attr("round_mode", "HALF_TO_EVEN") == "HALF_UP"

    def run(*ops: Op) -> Op:
        return quantised.there_and_back(first, last, given, halves, *(e.cast(o, dtypes.accumulator(t.op.dtype)) for o in ops))

    made = by_element.each(n.g, run, t, *bounds)
    return Tensor(e.cast(made.op, t.op.dtype), made.dims)

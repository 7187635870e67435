"""Elementwise functions of neural networks beyond relu, sigmoid and tanh; and `clip`. All lower to smaller ops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import OpDef
from ngraph.ops.elementwise import (
    NUMERIC,
    absolute,
    as_op,
    cast,
    common,
    composite,
    elementwise,
    erf,
    exp,
    expm1,
    filled,
    floating,
    less,
    less_equal,
    log1p,
    logical_and,
    maximum,
    minimum,
    rounding_once,
    sigmoid,
    tanh,
    where,
)


def _normal_cdf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda t: 0.5 * math.erfc(-t / math.sqrt(2)), otypes=[np.float64])(x)


def _density(x: Op) -> Op:
    return exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))


gelu_record: OpDef = composite(
    "gelu",
    "x times the standard normal distribution function of x.",
    lambda x: x * _normal_cdf(x),
    rounding_once(lambda x: x * 0.5 * (erf(x * math.sqrt(0.5)) + 1.0)),
    lambda op, dy, x: dy * ((erf(x * math.sqrt(0.5)) + 1.0) * 0.5 + x * _density(x)),
    error=1e-6,
    onnx="Gelu",
    torch="aten.gelu",
)
silu: OpDef = composite(
    "silu",
    "x times its sigmoid, also called swish.",
    lambda x: x / (1 + np.exp(-x)),
    rounding_once(lambda x: x * sigmoid(x)),
    lambda op, dy, x: dy * (sigmoid(x) * (x * (1.0 - sigmoid(x)) + 1.0)),
    error=5e-7,
    torch="aten.silu",
)
softplus: OpDef = composite(
    "softplus",
    "log(1 + e to the x), a smooth relu; exact for large x.",
    lambda x: np.logaddexp(x, np.zeros((), x.dtype)),
    rounding_once(lambda x: maximum(x, 0.0) + log1p(exp(-absolute(x)))),
    lambda op, dy, x: dy * sigmoid(x),
    error=5e-7,
    onnx="Softplus",
    torch="aten.softplus",
)
mish: OpDef = composite(
    "mish",
    "x times the hyperbolic tangent of softplus(x).",
    lambda x: x * np.tanh(np.logaddexp(x, np.zeros((), x.dtype))),
    rounding_once(lambda x: x * tanh(softplus(x))),
    error=5e-7,
    onnx="Mish",
    torch="aten.mish",
)
hardswish: OpDef = composite(
    "hardswish",
    "x times the straight line from 0 at -3 to 1 at 3, limited to these: silu in pieces.",
    lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    rounding_once(lambda x: x * minimum(maximum(x * (1 / 6) + 0.5, 0.0), 1.0)),
    lambda op, dy, x: where(less_equal(x, -3.0), 0.0, where(less(x, 3.0), dy * (x * (1 / 3) + 0.5), dy)),
    smooth=False,
    error=2e-7,
    onnx="HardSwish",
    torch="aten.hardswish",
)


def leaky_relu(x: Any, slope: float = 0.01) -> Op:
    """Returns x where it is positive, else slope * x; the derivative at 0 is the slope. Integers and bool become float32.

    Source: A. Maas and others, "Rectifier nonlinearities improve neural network acoustic models" (2013).

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.leaky_relu(ng.constant([-10.0, 5.0])))()
        array([-0.1,  5. ])
    """
    return prelu(x, slope)


def prelu(x: Any, slope: Any) -> Op:
    """Returns x where it is positive, else slope * x, of a tensor of slopes that has some of x's axes; all else as in `leaky_relu`.

    Source: K. He and others, "Delving deep into rectifiers" (2015).

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> x, w = ng.constant([[-1.0, 2.0], [-3.0, -4.0]], "N=2 C=2"), ng.constant([0.5, 0.25], "C=2")
        >>> executor(ng.prelu(x, w))()
        array([[-0.5,  2. ],
               [-1.5, -1. ]])
    """
    (x, slope), _ = floating((x, slope), {})
    return where(less(0.0, x), x, x * slope)


def gelu(x: Any, approximate: bool = False) -> Op:
    """Returns x times the standard normal distribution function of x; `approximate`: with a tanh in place of the error function.

    Integers and bool become float32. Source: D. Hendrycks, K. Gimpel, "Gaussian error linear units" (2016).

    >>> ng.function(ng.gelu(ng.constant([-1.0, 2.0], "H=2")))().round(3)
    array([-0.159,  1.954])
    """
    if not approximate:
        return gelu_record(x)
    (x,), _ = floating((as_op(x),), {})
    return rounding_once(lambda x: x * 0.5 * (tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1.0))(x)


def elu(x: Any, alpha: float = 1.0) -> Op:
    """Returns x where it is positive, else alpha * (exp(x) - 1). Source: D. Clevert and others, "Exponential linear units" (2015).

    >>> ng.function(ng.elu(ng.constant([-1.0, 2.0], "H=2")))().round(3)
    array([-0.632,  2.   ])
    """
    (x,), _ = floating((as_op(x),), {})

    def made(x: Op) -> Op:
        positive = less(0.0, x)
        return where(positive, x, expm1(where(positive, 0.0, x)) * alpha)

    return rounding_once(made)(x)


# ---- clip -------------------------------------------------------------------------------------------------------------


def _clip_gradient(op: Op, dy: Op, x: Op, low: Op, high: Op) -> tuple[Op, Op, Op]:
    """Returns the gradients: of x within the bounds, inclusive; of a bound where it is the result."""
    inside = logical_and(less_equal(low, x), less_equal(x, high))
    above = less(high, maximum(x, low))
    return where(inside, dy, 0.0), where(logical_and(less(x, low), less_equal(low, high)), dy, 0.0), where(above, dy, 0.0)


clip_record: OpDef = elementwise(
    "clip",
    "x limited to low … high; high where low > high.",
    lambda x, low, high: np.minimum(np.maximum(x, low), high),
    _clip_gradient,
    lower=lambda op, x, low, high: minimum(maximum(x, low), high),
    arity=3,
    form="(x, low, high)",
    kinds=NUMERIC,
    smooth=False,
    samples=lambda s: [
        *(clip_record.build(s.x(*axes), *(s.given(b, dtype=s.dtype) for b in (1, 2))) for axes in s.shapes()),
        clip_record.build(s.x(s.I, s.J), s.x(s.J, low=-1, high=0), s.x(s.I, low=0.5, high=1)),
        clip_record.build(s.x(s.J), s.x(s.I, s.J, low=0, high=1), s.given(0, dtype=s.dtype)),
        clip_record.build(s.special(s.N), s.given(1, dtype=s.dtype), s.given(2, dtype=s.dtype)),
        clip_record.build(s.x(s.N), s.special(s.N), s.special(s.N)),
    ],
    onnx="Clip",
    torch="aten.clamp",
)


def clip(x: Any, low: Any = None, high: Any = None) -> Op:
    """Returns `x` limited to `low` … `high`: numbers, tensors, or None for no bound. NaN is kept.

    The derivative with respect to x is 1 on the bounds, too. Numbers take the dtype of x as in arithmetic; bool becomes float32.

    >>> ng.function(ng.clip(ng.constant([-2.0, 0.5, 9.0], "H=3"), 0.0, 1.0))()
    ComputedArray([0. , 0.5, 1. ])
    """
    x = as_op(x)
    bounds = [b for b in (low, high) if b is not None]
    x, *given = common((x, *bounds)) if bounds else (x,)
    x, *given = (cast(o, "float32") if o.dtype.kind == "bool" else o for o in (x, *given))
    rest = iter(given)
    edges = (filled(edge, (), x.dtype) if b is None else next(rest) for b, edge in ((low, x.dtype.lowest), (high, x.dtype.highest)))
    return clip_record(x, *edges)

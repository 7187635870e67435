"""Random numbers from further distributions, made of the uniform and normal numbers of `random`; all are new in each call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ngraph.errors import ArgumentError
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axes, Axis
from ngraph.op_graph.dtypes import DType, as_dtype
from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import OpDef, find_axis
from ngraph.ops.control import while_loop
from ngraph.ops.elementwise import (
    as_op,
    cast,
    composite,
    exp,
    filled,
    floating,
    floor,
    less,
    less_equal,
    log,
    log1p,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    power,
    reciprocal,
    sqrt,
    stop_gradient,
    where,
)
from ngraph.ops.incomplete import gamma_sample_by_a
from ngraph.ops.random import normal, uniform
from ngraph.ops.rearrange import broadcast
from ngraph.ops.reduce import reduce
from ngraph.ops.sorting import argmax
from ngraph.ops.special import erfinv, lgamma

_HALF_STEP = {dtypes.float64: 2.0**-54, dtypes.float32: 2.0**-25}  # half the distance of uniform numbers: what 0 stands for


def _axes(name: str, x: Any) -> Axes:
    return x.axes if isinstance(x, Op) else Axes(x)


def _inner(dtype: Any) -> Any:
    """Returns the dtype in which numbers of `dtype` are drawn."""
    kind = as_dtype(dtype)
    if not kind.is_float:
        raise ArgumentError(f"random numbers as {kind}", fix="take a float dtype")
    return dtypes.accumulator(kind)


def gumbel(x: Any, loc: float = 0.0, scale: float = 1.0, dtype: Any = dtypes.float32, seed: int | None = None) -> Op:
    """Returns random numbers from the Gumbel distribution: of the largest of many; -log(-log(u)) of uniform u.

    x: axes, or a tensor whose axes are taken. dtype: a float dtype. seed: as in `ng.uniform`.

        >>> import ngraph as ng
        >>> ng.gumbel("N=3").axes.lengths
        (3,)
    """
    inner = _inner(dtype)
    u = maximum(uniform(_axes("gumbel", x), dtype=inner, seed=seed), _HALF_STEP[inner])
    return cast(-log(-log(u)) * scale + loc, dtype)


def categorical(logits: Any, axis: Axis | str, axes: Any = (), seed: int | None = None) -> Op:
    """Returns random indices along `axis`, which goes, int32: each with the probability softmax(logits). -infinity is never drawn.

    axes: further axes for more than one draw, which stand first. seed: as in `ng.uniform`.
    Source: the largest of logits plus Gumbel noise (E. Gumbel 1954).

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.categorical(ng.constant([0.0, float("-inf")], "K=2"), "K", "N=4"))()
        array([0, 0, 0, 0], dtype=int32)
    """
    (logits,), _ = floating((as_op(logits),), {})
    along = find_axis(logits, axis, "categorical")
    inner = dtypes.accumulator(logits.dtype)
    whole = Axes((*Axes(axes), *logits.axes))
    return argmax(broadcast(cast(logits, inner), whole) + gumbel(whole, dtype=inner, seed=seed), reduction_axes=[along])


_TAIL = 2.0  # standard deviations beyond which a normal distribution is drawn by rejection: 0.84 of the tries fit, more further out


def _everywhere(x: Op) -> Op:
    """Returns whether a bool holds everywhere, as a scalar."""
    return reduce.build(x, kind="min", axes=x.axes) if x.axes else x


def _first_that_fits(draw: Callable[[], tuple[Op, Op]], done: Op, found: Op) -> Op:
    """Returns `found` where `done` holds, elsewhere the number of the first try that fits. draw: whether a try fits, and its number."""

    def more(carry: tuple[Op, Op]) -> tuple[Op, Op]:
        done, found = carry
        fits, number = draw()
        return logical_or(done, fits), where(logical_and(fits, logical_not(done)), number, found)

    return while_loop(lambda carry: logical_not(_everywhere(carry[0])), more, (done, found))[1]


def _tail(axes: Axes, low: float, high: float, inner: DType, seed: int | None) -> Op:
    """Returns numbers from the standard normal distribution within 0 < low to high. Source: G. Marsaglia (1964).

    The root of `low` squared and twice an exponential number has the density z exp(-z²/2); it is kept with the probability low / z.
    """
    within = -math.expm1(-(high - low) * (high + low) / 2)

    def draw() -> tuple[Op, Op]:
        u = uniform(axes, dtype=inner, seed=seed)
        kept = uniform(axes, dtype=inner, seed=None if seed is None else seed + 1)
        twice = log1p(u * -within) * -2.0
        z = twice / (sqrt(twice + low * low) + low) + low
        return less(kept * z, low), minimum(z, high)

    return _first_that_fits(draw, filled(False, axes, dtypes.bool_), filled(0, axes, inner))


def truncated_normal(
    x: Any,
    low: float = -2.0,
    high: float = 2.0,
    loc: float = 0.0,
    scale: float = 1.0,
    dtype: Any = dtypes.float32,
    seed: int | None = None,
) -> Op:
    """Returns random numbers from the normal distribution within `low` to `high`, counted in standard deviations from `loc`.

    x: axes, or a tensor whose axes are taken. dtype: a float dtype. seed: as in `ng.uniform`. Raises ArgumentError unless low < high.
    Source: the inverse of the distribution; from two standard deviations on, rejection (G. Marsaglia, "Generating a variable from the
    tail of the normal distribution", 1964).

        >>> import ngraph as ng
        >>> ng.truncated_normal("N=3", scale=0.1).axes.lengths
        (3,)
    """
    if not low < high:
        raise ArgumentError(f"a normal distribution from {low} to {high}", fix="take low < high")
    axes, inner = _axes("truncated_normal", x), _inner(dtype)
    near = max(low, -high)
    if near >= _TAIL:
        z = _tail(axes, near, max(high, -low), inner, seed)
        return cast((z if low > 0 else -z) * scale + loc, dtype)
    first, last = (math.erf(b / math.sqrt(2)) for b in (low, high))
    inside = 1 - 2 * _HALF_STEP[inner]  # beside 1, where the inverse is infinite
    u = uniform(axes, dtype=inner, seed=seed) * (last - first) + first
    z = minimum(maximum(erfinv(minimum(maximum(u, -inside), inside)) * math.sqrt(2), low), high)
    return cast(z * scale + loc, dtype)


def _sample_slope(op: Op, dy: Op, drawn: Op, a: Op) -> tuple[None, Op]:
    by_shape = gamma_sample_by_a(cast(a, dtypes.float64), cast(drawn, dtypes.float64))
    return None, dy * cast(by_shape, a.dtype)


sample_of_gamma: OpDef = composite(
    "sample_of_gamma",
    "The first operand, numbers drawn from the gamma distribution; their derivative by its shape, the second operand.",
    lambda x, shape: np.broadcast_arrays(x, shape)[0],
    lambda x, shape: broadcast(x, (x + shape).axes),
    _sample_slope,
    arity=2,
    low=0.5,
    high=3,
)
sample_of_gamma.attrs["no_gradient_check"] = "its derivative is that of the draw, which is an operand"


def gamma(x: Any, shape: Any = 1.0, scale: float = 1.0, dtype: Any = dtypes.float32, seed: int | None = None) -> Op:
    """Returns random numbers from the gamma distribution of this shape and scale; of shape 1 it is the exponential distribution.

    x: axes, or a tensor whose axes are taken. shape: a number above 0, or a tensor that has some of the axes. seed: as in `ng.uniform`.
    A shape below 0 in a tensor gives NaN. Numbers have a derivative by the shape, at the share of the distribution below each.
    Source: G. Marsaglia and W. Tsang, "A simple method for generating gamma variables" (2000); M. Figurnov and others, "Implicit
    reparameterization gradients" (2018).

        >>> import ngraph as ng
        >>> ng.gamma("N=3", 2.5).axes.lengths
        (3,)
    """
    axes, inner = _axes("gamma", x), _inner(dtype)
    if isinstance(shape, (int, float)) and not 0 < shape < math.inf:
        raise ArgumentError(f"a gamma distribution of shape {shape}", fix="take a shape above 0")
    a = broadcast(cast(as_op(shape), inner), axes)
    small = less(a, 1.0)
    d = where(small, a + 1.0, a) - 1 / 3
    c = reciprocal(sqrt(d * 9.0))

    def draw() -> tuple[Op, Op]:
        z = normal(axes, dtype=inner, seed=seed)
        u = maximum(uniform(axes, dtype=inner, seed=None if seed is None else seed + 1), _HALF_STEP[inner])
        t = c * z
        v = t * (t * (t + 3.0) + 3.0)  # (1 + t)³ - 1: differences of small numbers, as d times a number near 1 would lose all digits
        fits = logical_and(less(-1.0, t), less(log(u), z * z * 0.5 + d * (log1p(maximum(t, -0.999999)) * 3.0 - v)))
        return fits, d * v + d

    known = logical_and(less(0.0, a), less(a, math.inf))
    drawn = _first_that_fits(draw, logical_not(known), where(less(a, 0.0), math.nan, a))  # 0 and infinity are drawn as they are
    u = maximum(uniform(axes, dtype=inner, seed=None if seed is None else seed + 2), _HALF_STEP[inner])
    drawn = where(small, drawn * power(u, 1.0 / where(small, a, 1.0)), drawn)
    return cast(sample_of_gamma(stop_gradient(drawn), a) * scale, dtype)


_FEW = 10.0  # means below are drawn by inversion, larger ones by rejection


def _by_inversion(rate: Op, u: Op) -> Op:
    """Returns how many terms of the distribution sum to `u`."""

    def holds(carry: tuple[Op, Op, Op]) -> Op:
        return logical_not(_everywhere(less(u, carry[2])))

    def more(carry: tuple[Op, Op, Op]) -> tuple[Op, Op, Op]:
        k, p, total = carry
        go = logical_not(less(u, total))
        p = p * rate / (k + 1.0)
        gone = less(p, 1e-30)  # what rounding leaves of 1
        return where(go, k + 1.0, k), p, total + where(gone, 1.0, p)

    p = exp(-rate)
    return while_loop(holds, more, (rate * 0.0, p, p))[0]


def _by_rejection(rate: Op, axes: Axes, seed: int | None) -> Op:
    """Returns numbers by transformed rejection with squeeze, in float64, as the logarithms cancel. Source: W. Hörmann (1993)."""
    rate = cast(rate, dtypes.float64)
    root, logarithm = sqrt(rate), log(rate)
    b = root * 2.53 + 0.931
    a = b * 0.02483 - 0.059
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    share = 0.9277 - 3.6224 / (b - 2.0)

    def draw() -> tuple[Op, Op]:
        u = uniform(axes, dtype=rate.dtype, seed=seed) - 0.5
        v = maximum(uniform(axes, dtype=rate.dtype, seed=None if seed is None else seed + 1), _HALF_STEP[rate.dtype])
        us = 0.5 - where(less(u, 0.0), -u, u)
        k = floor((a * 2.0 / us + b) * u + rate + 0.43)
        easy = logical_and(less(0.07, us), less(v, share))
        likely = less(log(v) + log(inverse) - log(a / (us * us) + b), k * logarithm - rate - lgamma(maximum(k, 0.0) + 1.0))
        fits = logical_and(less(-0.5, k), logical_or(easy, logical_and(less(0.013, us), likely)))
        return fits, k

    return _first_that_fits(draw, filled(False, axes, dtypes.bool_), filled(0, axes, rate.dtype))


def poisson(x: Any, rate: Any = 1.0, dtype: Any = dtypes.int32, seed: int | None = None) -> Op:
    """Returns random whole numbers from the Poisson distribution with this mean: how often something happens.

    x: axes, or a tensor whose axes are taken. rate: a number, at least 0, or a tensor that has some of the axes. seed: as in
    `ng.uniform`. A rate in a tensor that is below 0 or NaN gives NaN, as an integer 0. It has no derivative.

        >>> import ngraph as ng
        >>> ng.poisson("N=3", 2.5).axes.lengths
        (3,)
    """
    axes = _axes("poisson", x)
    if isinstance(rate, (int, float)) and not 0 <= rate < math.inf:
        raise ArgumentError(f"a Poisson distribution with mean {rate}", fix="take a mean of 0 or more")
    known = isinstance(rate, (int, float))
    inner = rate.dtype if isinstance(rate, Op) and rate.dtype is dtypes.float64 else dtypes.float32
    mean = broadcast(cast(as_op(rate), inner), axes)
    valid = logical_and(less_equal(0.0, mean), less(mean, math.inf))
    other = where(less(0.0, mean), mean, math.nan)  # an infinite mean is drawn as it is
    mean = mean if known else where(valid, mean, 0.0)
    few = less(mean, _FEW)
    drawn = filled(0, axes, inner)
    if not known or rate < _FEW:
        drawn = _by_inversion(where(few, mean, 0.0), uniform(axes, dtype=inner, seed=seed))
    if not known or rate >= _FEW:
        large = _by_rejection(where(few, _FEW, mean), axes, seed)
        drawn = where(few, cast(drawn, large.dtype), large) if not known else large
    return cast(drawn if known else where(valid, drawn, other), dtype)

"""Special functions of float64, element by element: Riemann's and Euler's, the incomplete beta function, integrals, and Bessel's.

Series, fractions and sums over points whose error is below float64's rounding; narrower floats are computed in it, for their own digits do
not suffice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np

from ngraph.frontends.positional.elementwise import casted, each
from ngraph.frontends.positional.values import Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import make_axis
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops import functions, special
from ngraph.ops.control import while_loop
from ngraph.ops.incomplete import fraction
from ngraph.ops.rearrange import broadcast
from ngraph.ops.reduce import reduce

BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)  # B2, B4, …
HEAD = 10  # after so many terms Euler's and Maclaurin's rule gives the rest of a zeta series to float64's precision
NAN, INF = float("nan"), float("inf")


def in_double(g: Any, function: Callable[..., Op], *values: Value) -> Tensor:
    """Returns a function of floats that is computed in float64, in the dtype of the first value."""
    wide = [casted(g, v, np.dtype(np.float64)) for v in values]
    made = each(g, function, *wide)
    return Tensor(e.cast(made.op, g.tensor(values[0]).op.dtype), made.dims)


# ---- zeta and what is made of it ----------------------------------------------------------------------------------------


def _zeta_of_positive(s: Op, q: Op) -> Op:
    """Returns Σ (q + k) ** -s over k from 0 on, for s above 1 and q from 0 on, by Euler's and Maclaurin's rule."""
    axes = (s + q).axes
    q = broadcast(q, axes)

    def more(k: Op, w: Op, total: Op) -> tuple[Op, ...]:
        return k + 1, w + 1.0, total + e.power(w, -s)

    start = e.filled(0, (), dtypes.int32), q, e.filled(0.0, axes, dtypes.float64)
    _, w, total = while_loop(lambda k, w, total: e.less(k, HEAD), more, start)
    tail = e.power(w, 1.0 - s) / (s - 1.0) + e.power(w, -s) * 0.5
    factor, by = s, e.power(w, -s) / w
    for j, b in enumerate(BERNOULLI):
        tail = tail + e.where(e.equal(by, 0.0), 0.0, factor * by) * (b / math.factorial(2 * j + 2))  # the factor of a large s is infinite
        factor = factor * (s + (2.0 * j + 1)) * (s + (2.0 * j + 2))
        by = by / (w * w)
    return e.where(e.less(1e8, q), e.power(q, 1.0 - s) * (1.0 / (s - 1.0) + 0.5 / q), total + tail)


def zeta(s: Op, q: Op) -> Op:
    """Returns Σ (q + k) ** -s over k from 0 on, for s above 1; infinite at the whole q up to 0, and below 0 there for a whole s alone."""
    below = e.less(q, 0.0)
    # below 0 the terms up to the last negative number are a sum of their own; that is the number of this term
    last = e.where(below, -e.floor(q) - 1.0, 0.0)
    found = _zeta_of_positive(s, e.where(below, q + last + 1.0, q))
    sizes = _zeta_of_positive(s, e.where(below, -(q + last), 1.0)) - _zeta_of_positive(s, e.where(below, 1.0 - q, 1.0))
    even = e.equal(e.remainder(s, e.filled(2.0, (), s.dtype)), 0.0)
    found = e.where(below, found + e.where(even, sizes, -sizes), found)
    whole = e.equal(e.floor(q), q)
    found = e.where(e.less_equal(q, 0.0), e.where(whole, INF, e.where(e.equal(e.floor(s), s), found, NAN)), found)
    return e.where(e.equal(s, 1.0), INF, e.where(e.less(s, 1.0), NAN, found))


def polygamma(k: Op, x: Op) -> Op:
    """Returns derivative k of the digamma function; NaN for a k that is not a whole number from 0 on."""
    first, whole = e.equal(k, 0.0), e.logical_and(e.less_equal(0.0, k), e.equal(k, e.floor(k)))
    sign = e.where(e.equal(e.remainder(k, e.filled(2.0, (), k.dtype)), 0.0), -1.0, 1.0)
    higher = sign * e.exp(special.lgamma(k + 1.0)) * zeta(e.where(first, 2.0, k + 1.0), x)
    return e.where(whole, e.where(first, special.digamma(x), higher), NAN)


# ---- the incomplete beta function -------------------------------------------------------------------------------------


def beta_share(a: Op, b: Op, x: Op) -> Op:
    """Returns the regularized incomplete beta function. Source: Press and others, Numerical Recipes, 6.4."""
    scale = e.exp(special.lgamma(a + b) - special.lgamma(a) - special.lgamma(b) + a * e.log(x) + b * e.log1p(-x))
    a, b, x = (broadcast(v, scale.axes) for v in (a, b, x))
    beyond = e.less((a + 1.0) / (a + b + 2.0), x)
    p, q, y = e.where(beyond, b, a), e.where(beyond, a, b), e.where(beyond, 1.0 - x, x)

    def term(k: Op) -> tuple[Op, Op | float]:
        m = e.floor(k * 0.5)
        even, at = e.equal(m * 2.0, k), p + m * 2.0
        return e.where(even, m * (q - m) / (at - 1.0), -(p + m) * (p + q + m) / (at + 1.0)) * y / at, 1.0

    share = scale / (fraction(e.filled(1, scale.axes, dtypes.float64), term) * p)
    found = e.where(beyond, 1.0 - share, share)
    for end in (0.0, 1.0):
        found = e.where(e.equal(x, end), end, found)
    inside = e.logical_and(e.less_equal(0.0, x), e.less_equal(x, 1.0))
    positive = e.logical_and(e.less(0.0, a), e.less(0.0, b))
    return e.where(e.logical_and(inside, positive), found, NAN)


# ---- integrals ----------------------------------------------------------------------------------------------------------


def _summed(points: np.ndarray[Any, Any], term: Callable[[Op], Op]) -> Op:
    """Returns the sum of a function over points."""
    axis = make_axis(len(points), name="point")
    return reduce.build(term(e.constant(points, axes=[axis])), kind="add", axes=(axis,))


def _erfcx_of_positive(x: Op) -> Op:
    """Returns e ** (x * x) * erfc(x), for x above 0, as float64: a sum over points, and what it leaves of the pole at i x.

    Source: Chiarella and Reichel (1968).
    """
    step, w = 0.5, e.cast(x, dtypes.float64)
    points = np.arange(1, 14) * step
    ratio = 2 * math.pi / step
    total = 1.0 / w + _summed(points, lambda t: e.exp(-t * t) * 2.0 / (t * t / w + w))
    low = e.minimum(w, 7.0)
    pole = e.where(e.less(w, 7.0), e.exp(low * low) * 2.0 / (e.exp(low * ratio) - 1.0), 0.0)  # nothing is left of one farther away
    return total * (step / math.pi) - pole


def _unless_far(x: Op, far: Callable[[Op], Op], near: Callable[[Op], Op]) -> Op:
    """Returns `near` of x, and `far` of it, cast, where 1 - erf(x) has lost digits."""
    is_far = e.less(0.5, x)
    return e.where(is_far, e.cast(far(e.where(is_far, x, 1.0)), x.dtype), near(e.where(is_far, 0.0, x)))


def erfcx(x: Op) -> Op:
    """Returns e ** (x * x) * erfc(x), in the dtype of x."""
    return _unless_far(x, _erfcx_of_positive, lambda x: e.exp(x * x) * (1.0 - e.erf(x)))


def erfc(x: Op) -> Op:
    """Returns 1 - erf(x), exact where erf(x) is nearly 1, in the dtype of x."""

    def far(x: Op) -> Op:
        w = e.cast(x, dtypes.float64)
        return e.exp(-w * w) * _erfcx_of_positive(x)

    return _unless_far(x, far, e.rounding_once(lambda x: 1.0 - e.erf(x)))


def ndtri(p: Op) -> Op:
    """Returns the number below which the standard normal distribution has the share p: by `erfinv`, and at the ends by Newton's method.

    The method takes the logarithm of the share beyond, from a start with an error below 3e-3 (Abramowitz and Stegun, 26.2.22).
    """
    low = e.minimum(p, 1.0 - p)
    log_low = e.log(low)
    s = e.sqrt(log_low * -2.0)
    x = s - (s * 0.27061 + 2.30753) / ((s * 0.04481 + 0.99229) * s + 1.0)
    for _ in range(3):
        t = x * math.sqrt(0.5)
        share = erfcx(t)
        x = x + (e.log(share * 0.5) - t * t - log_low) * share * math.sqrt(math.pi / 2)
    x = e.where(e.equal(low, 0.0), INF, x)
    return e.where(e.less(0.1, low), special.erfinv(p * 2.0 - 1.0) * math.sqrt(2.0), e.where(e.less(p, 0.5), -x, x))


def dawson(x: Op) -> Op:
    """Returns exp(-x²) times the integral of exp(t²) from 0 to x, by Rybicki's sum; near 0 by the series.

    Source: Press and others, Numerical Recipes, 6.10.
    """
    step, odd = 0.25, np.arange(-25.0, 26.0, 2.0)
    at = e.minimum(e.absolute(x), 1e15)
    near = e.floor(at / (2 * step) + 0.5) * 2.0
    rest = at - near * step
    sums = _summed(odd, lambda k: e.exp(-(rest - k * step) * (rest - k * step)) / (near + k)) * (1 / math.sqrt(math.pi))
    low = e.minimum(at, 0.5)
    series = low * special.polynomial(low * low, list(accumulate(range(1, 14), lambda a, k: a * -2.0 / (2 * k + 1), initial=1.0)))
    found = e.where(e.less(at, 0.5), series, e.where(e.less(1e15, e.absolute(x)), 0.5 / at, sums))
    found = e.where(e.equal(e.absolute(x), INF), 0.0, e.where(functions.isnan(x), x, found))
    return e.where(e.less(x, 0.0), -found, found)


def exponential_integral(x: Op) -> Op:
    """Returns the integral of exp(t) / t up to x, by the series, and by the one in 1 / x for large x; NaN below 0."""
    low, far = e.minimum(e.maximum(x, 1e-300), 40.0), e.maximum(x, 40.0)
    series = special.polynomial(low, [np.euler_gamma, *(1 / (k * math.factorial(k)) for k in range(1, 150))]) + e.log(low)
    large = e.exp(far) * special.polynomial(1.0 / far, [float(math.factorial(k)) for k in range(40)]) / far
    found = e.where(e.less(x, 40.0), e.where(e.less(0.0, x), series, -INF), large)
    return e.where(e.logical_or(e.less(x, 0.0), functions.isnan(x)), NAN, e.where(e.equal(x, INF), INF, found))


def fresnel(x: Op) -> tuple[Op, Op]:
    """Returns the integrals of cos(π t² / 2) and of sin(π t² / 2) from 0 to x: series, and beyond 1.5 sums for the auxiliary functions.

    Source: NIST Handbook of Mathematical Functions, 7.6 and 7.7.10.
    """
    size = e.absolute(x)
    low, far = e.minimum(size, 1.5), e.minimum(e.maximum(size, 1.5), 1e8)
    half, fourth = math.pi / 2, low * low * low * low
    terms = [[(-1) ** n * half ** (2 * n + k) / (math.factorial(2 * n + k) * (4 * n + 2 * k + 1)) for n in range(14)] for k in (0, 1)]
    cosine, sine = special.polynomial(fourth, terms[0]) * low, special.polynomial(fourth, terms[1]) * low * low * low
    points = np.arange(-31.0, 32.0) / 6

    def auxiliary(power: int) -> Op:
        def term(v: Op) -> Op:
            u = v / far
            return e.exp(v * v * -half) / (1.0 + u * u * u * u) * (u * u if power else 1.0)

        return _summed(points, term) * (math.sqrt(2) / math.pi / 12) / far

    f, g = auxiliary(0), auxiliary(2)
    angle = e.remainder(far * far, e.filled(4.0, (), far.dtype)) * half
    c, d = e.cos(angle), e.sin(angle)
    small, end = e.less(size, 1.5), e.less(1e8, size)

    def odd(series: Op, far: Op) -> Op:
        found = e.where(small, series, e.where(end, 0.5, far))
        return e.where(functions.isnan(x), x, e.where(e.less(x, 0.0), -found, found))

    return odd(cosine, 0.5 + f * d - g * c), odd(sine, 0.5 - f * c - g * d)


def spence(x: Op) -> Op:
    """Returns the integral of log(t) / (1 - t) from 1 to x, NaN below 0: a series of Bernoulli's numbers in log(x), between 1/2 and 2."""
    low, high = e.less(x, 0.5), e.less(2.0, x)
    beside = e.where(low, 1.0 - x, e.where(high, 1.0 / x, x))
    u = -e.log(beside)
    coefficients = [b / math.factorial(2 * k + 3) for k, b in enumerate(BERNOULLI)]
    series = u - u * u * 0.25 + u * u * u * special.polynomial(u * u, coefficients)
    whole = e.log(e.where(e.less(0.0, x), x, 1.0))
    found = e.where(low, math.pi**2 / 6 - whole * e.log(beside) - series, e.where(high, -series - whole * whole * 0.5, series))
    return e.where(e.logical_or(e.less(x, 0.0), functions.isnan(x)), NAN, found)


# ---- Bessel functions of order 0 and 1 ----------------------------------------------------------------------------------

LARGE = 20.0  # from here on 22 terms of the series in 1 / x give float64's precision
POINTS = (np.arange(64) + 0.5) * (math.pi / 128)  # a quarter of the circle: the midpoint rule is exact to rounding up to x = 25
WAVES = sum((-1) ** k * np.cos(2 * k * POINTS) / k for k in range(1, 41))  # of Neumann's series for the second kind


def _hankel(order: int) -> list[float]:
    """Returns the coefficients of the series in 1 / x that all these functions have for large x."""
    factors = [(4 * order * order - (2 * k - 1) ** 2) / (8 * k) for k in range(1, 22)]
    return list(accumulate(factors, lambda a, b: a * b, initial=1.0))


def _near(order: int, s: Op, weights: Callable[[int], float] = lambda k: 1.0) -> Op:
    """Returns Σ (s / 2) ** (2 k + order) / (k! (k + order)!), each term with a weight."""
    terms = [weights(k) / (math.factorial(k) * math.factorial(k + order)) for k in range(44)]
    half = s * 0.5
    found = special.polynomial(half * half, terms)
    return found * half if order else found


def modified_first(order: int, scaled: bool) -> Callable[[Op], Op]:
    """Returns the modified function of the first kind, I; scaled: times exp(-|x|)."""

    def run(x: Op) -> Op:
        size = e.absolute(x)
        s, far = e.minimum(size, LARGE), e.maximum(size, LARGE)
        series = special.polynomial(-1.0 / far, _hankel(order)) / e.sqrt(far * (2 * math.pi))
        near = _near(order, s)
        found = e.where(e.less(size, LARGE), near * e.exp(-s) if scaled else near, series if scaled else series * e.exp(far))
        return e.where(e.less(x, 0.0), -found, found) if order else found

    return run


def modified_second(order: int, scaled: bool) -> Callable[[Op], Op]:
    """Returns the modified function of the second kind, K, which is NaN below 0; scaled: times exp(x)."""
    step = 1 / 12
    t = np.arange(48) * step  # of ∫ exp(-x (cosh t - 1)) cosh(order t) dt, from 0 on
    weights = np.where(t == 0, step / 2, step) * np.cosh(order * t)
    sums = np.cumsum([0.0, *(1 / k for k in range(1, 44))])

    def run(x: Op) -> Op:
        low, far = e.minimum(x, 2.0), e.maximum(x, LARGE)
        first = _near(0, low)
        zero = _near(0, low, lambda k: sums[k]) - (e.log(low * 0.5) + np.euler_gamma) * first
        near = ((1.0 / low - _near(1, low) * zero) / first if order else zero) * e.exp(low)
        axis = make_axis(len(t), name="point")
        middle = e.minimum(e.maximum(x, 2.0), LARGE)
        parts = e.exp(-middle * e.constant(np.cosh(t) - 1, axes=[axis])) * e.constant(weights, axes=[axis])
        between = reduce.build(parts, kind="add", axes=(axis,))
        series = special.polynomial(1.0 / far, _hankel(order)) * e.sqrt(math.pi / 2 / far)
        found = e.where(e.less(x, 2.0), near, e.where(e.less(x, LARGE), between, series))
        found = found if scaled else found * e.exp(-x)
        return e.where(e.less(x, 0.0), NAN, e.where(e.equal(x, 0.0), INF, found))

    return run


def bessel(order: int, second: bool) -> Callable[[Op], Op]:
    """Returns the function of the first kind, J, or of the second, Y, which is NaN below 0."""
    coefficients = _hankel(order)
    even, odd = ([(-1) ** j * c for j, c in enumerate(coefficients[k::2])] for k in (0, 1))

    def run(x: Op) -> Op:
        size = e.absolute(x)
        s, far = e.minimum(size, 25.0), e.maximum(size, 25.0)
        axis = make_axis(len(POINTS), name="point")
        at = s * e.constant(np.sin(POINTS), axes=[axis])

        def mean(order: int, weights: np.ndarray[Any, Any] | float = 1.0) -> Op:
            by = e.constant((np.sin(POINTS) ** order * weights + 0 * POINTS) / len(POINTS), axes=[axis])
            return reduce.build((e.sin(at) if order else e.cos(at)) * by, kind="add", axes=(axis,))

        near = mean(order)
        if second:
            logarithm = e.log(s * 0.5) + np.euler_gamma
            near = (logarithm * near - (mean(0) / s if order else 0.0)) * (2 / math.pi) - mean(order, WAVES) * (4 / math.pi)
        inverse = 1.0 / far
        p, q = special.polynomial(inverse * inverse, even), special.polynomial(inverse * inverse, odd) * inverse
        c, d = e.cos(far), e.sin(far)
        c, d = (d - c, -(c + d)) if order else (c + d, d - c)  # cosine and sine of the phase, times the root of 2
        wave = (p * d + q * c if second else p * c - q * d) / e.sqrt(far * math.pi)
        found = e.where(e.less(size, 25.0), near, wave)
        if second:
            return e.where(e.less(x, 0.0), NAN, e.where(e.equal(x, 0.0), -INF, found))
        return e.where(e.less(x, 0.0), -found, found) if order else found

    return run


BESSEL: dict[str, Callable[[Op], Op]] = {
    **{f"i{n}{'e' * scaled}": modified_first(n, bool(scaled)) for n in (0, 1) for scaled in (0, 1)},
    **{f"k{n}{'e' * scaled}": modified_second(n, bool(scaled)) for n in (0, 1) for scaled in (0, 1)},
    **{f"{kind}{n}": bessel(n, kind == "y") for kind in "jy" for n in (0, 1)},
}

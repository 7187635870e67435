"""Special functions: the inverse of the error function, and the logarithm of the gamma function with its derivatives.

They lower to polynomials (`coefficients`, by `bench/polynomials.py`) that `cpu` fuses into one loop. 16-bit floats are computed in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import OpDef
from ngraph.ops.coefficients import CENTRES, DIGAMMA_ROOT, POLYNOMIALS
from ngraph.ops.elementwise import (
    absolute,
    cast,
    composite,
    equal,
    exp,
    floor,
    less,
    less_equal,
    log,
    logical_and,
    logical_or,
    rounded,
    rounding_once,
    sin,
    sqrt,
    where,
)


def polynomial(x: Op, coefficients: Sequence[float]) -> Op:
    """Returns the polynomial of x by Horner's scheme; the coefficient of the power 0 comes first."""
    *rest, top = coefficients
    result = x * 0.0 + top
    for c in reversed(rest):
        result = result * x + c
    return result


def _fitted(name: str, x: Op) -> Op:
    """Returns the polynomial of this name for the dtype of x."""
    name = f"{name}{x.dtype.bits}"
    return polynomial(x - CENTRES[name] if name in CENTRES else x, POLYNOMIALS[name])


def _by_element(function: Callable[[float], float]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.vectorize(function, otypes=[np.float64])(x.astype(np.float64))


# ---- the inverse of the error function --------------------------------------------------------------------------------


def _erfinv(x: Op) -> Op:
    """Lowers to x times polynomials of w = -log(1 - x * x), and of its root where x is near 1. Source: M. Giles (2010)."""
    w = -log((1.0 - x) * (x + 1.0))
    r = sqrt(w)
    far = _fitted("erfinv_far", r)
    if x.dtype.bits == 64:
        far = where(less(r, 4.0), far, _fitted("erfinv_end", r))
    y = where(less(w, 5.0 if x.dtype.bits == 32 else 6.25), _fitted("erfinv", w), far)
    return where(equal(absolute(x), 1.0), x * math.inf, x * y)


def _reference_erfinv(x: float) -> float:
    """Returns the inverse by Newton's method on the smaller of erf and erfc."""
    if not abs(x) < 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    rest, y = 1 - abs(x), 0.0
    if rest < 0.5:
        y = math.sqrt(-math.log(rest))
    for _ in range(60):
        error = math.erf(y) - abs(x) if rest >= 0.5 else rest - math.erfc(y)
        y -= error * math.sqrt(math.pi) / 2 * math.exp(min(y * y, 700.0))
    return math.copysign(y, x)


erfinv: OpDef = composite(
    "erfinv",
    "The number whose error function is x; infinite at 1 and -1, NaN beyond.",
    _by_element(_reference_erfinv),
    rounding_once(_erfinv),
    lambda op, dy, x: dy * (math.sqrt(math.pi) / 2) * exp(op * op),
    low=-0.9,
    high=0.9,
    torch="aten.erfinv",
)

# ---- the gamma function -----------------------------------------------------------------------------------------------


def _sine_of_turn(x: Op) -> Op:
    """Returns |sin(pi x)|."""
    return absolute(sin((x - rounded(x)) * math.pi))


def _lgamma_of_positive(x: Op) -> Op:
    """Lowers to Stirling's series from 6 or 8 on; below to lgamma(2 + t) of a t from -1/2 to 1/2, and the product on the way there."""
    far, steps = (6.0, 4) if x.dtype.bits == 32 else (8.0, 6)
    large = less(far, x)
    y, product = where(large, 2.0, x), None
    for _ in range(steps):
        more = less(2.5, y)
        y = where(more, y - 1.0, y)
        product = where(more, y, 1.0) if product is None else product * where(more, y, 1.0)
    assert product is not None
    below, tiny = less(y, 1.5), less(y, 0.5)
    t = where(tiny, y, where(below, y - 1.0, y - 2.0))
    product = where(below, where(tiny, y * (y + 1.0), y), product)
    logarithm = log(where(large, x, product))
    small = t * _fitted("lgamma", t) + where(below, -logarithm, logarithm)
    inverse = 1.0 / where(large, x, far)
    stirling = (x - 0.5) * (logarithm - 1.0) + _fitted("stirling", inverse * inverse) * inverse + (math.log(2 * math.pi) - 1) / 2
    return where(large, where(equal(x, math.inf), x, stirling), small)


def _lgamma(x: Op) -> Op:
    """Lowers below 0 to Euler's reflection; near 0, where `turn * a` underflows, it is -log(a)."""
    a = absolute(x)
    positive = _lgamma_of_positive(a)
    below, tiny = less(x, 0.0), less(a, 1e-16)
    turn = _sine_of_turn(where(below, x, 0.5))
    product = where(tiny, a, turn * where(below, a, 1.0))
    reflected = where(tiny, 0.0, math.log(math.pi) - positive) - log(product)
    pole = logical_and(below, equal(turn, 0.0))
    return where(below, where(pole, math.inf, where(equal(a, math.inf), math.inf, reflected)), where(equal(x, 0.0), math.inf, positive))


def _reference_lgamma(x: float) -> float:
    if not math.isfinite(x):
        return abs(x)
    return math.inf if x <= 0 and x == math.floor(x) else math.lgamma(x)


lgamma: OpDef = composite(
    "lgamma",
    "The logarithm of the absolute value of the gamma function; inf at 0, -1, -2 … and at both infinities, as in C (SciPy: -inf at -inf).",
    _by_element(_reference_lgamma),
    rounding_once(_lgamma),
    lambda op, dy, x: dy * digamma(x),
    low=0.1,
    high=9,
    error=1e-6,
    torch="aten.lgamma",
)


def _digamma_of_positive(x: Op) -> Op:
    """Lowers to x less the root, times a polynomial, from 1 to 2, and by one step below and above; beyond 3 to a series, after steps up."""
    far, steps = (6.0, 4) if x.dtype.bits == 32 else (10.0, 8)
    near, low, high = less(x, 3.0), less(x, 1.0), less_equal(2.0, x)
    y = where(near, where(low, x + 1.0, where(high, x - 1.0, x)), 1.5)
    away = where(low, x - (DIGAMMA_ROOT[0] - 1.0), y - DIGAMMA_ROOT[0]) - DIGAMMA_ROOT[1]
    step = where(logical_or(low, high), 1.0 / where(low, -x, y), 0.0)
    inside = away * _fitted("digamma", y - 1.5) + step
    z, over, under = where(near, far, x), None, None
    for _ in range(steps):  # the sum of 1 / z as one fraction: over / under
        more = less(z, far)
        if over is None:
            over, under = cast(more, x.dtype), where(more, z, 1.0)
        else:
            over, under = where(more, over * z + under, over), where(more, under * z, under)
        z = where(more, z + 1.0, z)
    assert over is not None and under is not None
    inverse = 1.0 / z
    square = inverse * inverse
    series = log(z) - inverse * 0.5 + square * _fitted("digamma_far", square)
    return where(near, inside, series - over / under)


def _digamma(x: Op) -> Op:
    """Lowers below 0 to the reflection psi(1 - x) - pi / tan(pi x)."""
    below = less(x, 0.0)
    part = where(below, x - rounded(x), 0.25) * math.pi
    positive = _digamma_of_positive(where(below, 1.0 - x, x))
    cotangent = sin(math.pi / 2 - absolute(part)) / sin(part)
    pole = logical_and(below, equal(x, floor(x)))
    made = where(below, positive - cotangent * math.pi, positive)
    return where(pole, math.nan, where(equal(x, 0.0), -1.0 / x, made))


def _reference_digamma(x: float) -> float:
    if x == 0:
        return math.copysign(math.inf, -x)
    if x < 0:
        return math.nan if math.isinf(x) or x == math.floor(x) else _reference_digamma(1 - x) - math.pi / math.tan(math.pi * (x % 1))
    if math.isinf(x) or x != x:
        return x
    total = 0.0
    while x < 20:
        total, x = total - 1 / x, x + 1
    u = 1 / (x * x)
    return total + math.log(x) - 0.5 / x - u * (1 / 12 - u * (1 / 120 - u * (1 / 252 - u * (1 / 240 - u / 132))))


digamma: OpDef = composite(
    "digamma",
    "The derivative of lgamma; NaN at -1, -2 …",
    _by_element(_reference_digamma),
    rounding_once(_digamma),
    lambda op, dy, x: dy * trigamma(x),
    low=0.1,
    high=9,
    error=1e-6,
    torch="aten.digamma",
)


def _trigamma(x: Op) -> Op:
    """Lowers to a series after steps up; below 0 to the reflection (pi / sin(pi x))**2 - psi'(1 - x)."""
    far, steps = (6.0, 6) if x.dtype.bits == 32 else (10.0, 10)
    below = less(x, 0.0)
    z = where(below, 1.0 - x, x)
    total = None
    for _ in range(steps):
        more = less_equal(z, far)
        part = where(more, 1.0 / (z * z), 0.0)
        total = part if total is None else total + part
        z = where(more, z + 1.0, z)
    assert total is not None
    inverse = 1.0 / z
    square = inverse * inverse
    positive = total + inverse + square * 0.5 + square * inverse * _fitted("trigamma_far", square)
    sine = sin(where(below, x - rounded(x), 0.5) * math.pi) * (1 / math.pi)
    return where(below, 1.0 / (sine * sine) - positive, positive)


def _reference_trigamma(x: float) -> float:
    if x < 0:
        sine = math.sin(math.pi * (x % 1)) if math.isfinite(x) else math.nan
        return ((math.pi / sine) ** 2 if sine else math.inf) - _reference_trigamma(1 - x)
    if x == 0 or math.isinf(x) or x != x:
        return math.inf if x == 0 else 0.0 if x > 0 else x
    total = 0.0
    while x < 20:
        total, x = total + 1 / (x * x), x + 1
    u = 1 / (x * x)
    return total + 1 / x + u / 2 + u / x * (1 / 6 - u * (1 / 30 - u * (1 / 42 - u * (1 / 30 - u * 5 / 66))))


trigamma: OpDef = composite(
    "trigamma",
    "The derivative of digamma.",
    _by_element(_reference_trigamma),
    rounding_once(_trigamma),
    low=0.5,
    high=9,
    error=2e-6,
    ulp=8,
)

"""Translators of special functions, element by element: polynomials by their recurrences, and functions of Euler's and Riemann's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ngraph.frontends.positional.elementwise import alone, each
from ngraph.frontends.positional.values import Tensor
from ngraph.frontends.torch import dtype as kinds
from ngraph.frontends.torch.graph import TorchNode
from ngraph.frontends.torch.table import translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops import functions, special
from ngraph.ops.control import while_loop
from ngraph.ops.rearrange import broadcast
from ngraph.ops.reduce import reduce

BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)  # B2, B4, …
HEAD = 10  # from here on Euler's and Maclaurin's rule gives the rest of a zeta series to float64's precision
NAN, INF = float("nan"), float("inf")

# ---- zeta and what is made of it ----------------------------------------------------------------------------------------


def zeta_of(s: Op, q: Op) -> Op:
    """Σ (q + k) ** -s over k from 0 on, for s above 1 (Euler's and Maclaurin's rule); infinite at the whole q up to 0."""
    axes = (s + q).axes
    least = reduce.build(q, kind="min", axes=tuple(q.axes)) if len(q.axes) else q
    start = broadcast(q, axes)

    def more(lowest: Op, w: Op, total: Op) -> tuple[Op, ...]:
        on = e.less(w, float(HEAD))
        return lowest + 1.0, e.where(on, w + 1.0, w), total + e.where(on, e.power(w, -s), 0.0)

    _, w, total = while_loop(lambda lowest, w, total: e.less(lowest, float(HEAD)), more, (least, start, start * 0.0))
    tail = e.power(w, 1.0 - s) / (s - 1.0) + e.power(w, -s) * 0.5
    factor, by = s, e.power(w, -s) / w
    for j, b in enumerate(BERNOULLI):
        tail = tail + factor * by * (b / math.factorial(2 * j + 2))
        factor = factor * (s + (2.0 * j + 1)) * (s + (2.0 * j + 2))
        by = by / (w * w)
    found = e.where(e.less(1e8, w), e.power(q, -s) * (0.5 + q / (s - 1.0)), total + tail)
    whole = e.equal(e.floor(q), q)
    found = e.where(e.less_equal(q, 0.0), e.where(whole, INF, e.where(e.equal(e.floor(s), s), found, NAN)), found)
    return e.where(e.equal(s, 1.0), INF, e.where(e.less(s, 1.0), NAN, found))


def in_double(n: TorchNode, f: Callable[..., Op], *values: Any) -> Tensor:
    """A function of floats computed in float64: float32 has too few digits for its series."""
    return n.give(each(n.g, f, *[n.of(v, dtypes.float64) for v in values]))


@translates("aten.special_zeta")
def zeta(n: TorchNode, s: Any, q: Any) -> Tensor:
    return in_double(n, zeta_of, s, q)


@translates("aten.polygamma")
def polygamma(n: TorchNode, k: int, a: Tensor) -> Tensor:
    if k == 0:
        return in_double(n, special.digamma, a)
    by = (-1.0) ** (k + 1) * math.factorial(k)
    return n.give(alone(n.g, lambda x: zeta_of(e.filled(k + 1, x.axes, x.dtype), x) * by, n.of(a, dtypes.float64)))


# ---- incomplete gamma functions -----------------------------------------------------------------------------------------

SERIES = 400  # steps after which a series or a fraction ends, converged or not


def gamma_shares(a: Op, x: Op) -> tuple[Op, Op]:
    """The regularized lower and upper incomplete gamma functions of float64, by a series below a + 1 and a continued fraction above.

    Source: Press and others, Numerical Recipes, 6.2; the fraction by Lentz's rule.
    """
    scale = e.exp(a * e.log(x) - x - special.lgamma(a))
    axes = scale.axes
    a, x = broadcast(a, axes), broadcast(x, axes)
    small = e.less(x, a + 1.0)
    one = e.filled(1, axes, dtypes.float64)

    def most(t: Op) -> Op:
        return reduce.build(t, kind="max", axes=tuple(axes)) if len(axes) else t

    def goes_on(k: Op, moved: Op) -> Op:
        return e.logical_and(e.less(k, float(SERIES)), e.less(1e-16, moved))

    def term(k: Op, moved: Op, total: Op, last: Op) -> tuple[Op, ...]:
        last = last * x / (a + k)
        total = total + last
        size = e.where(small, e.absolute(last / total), 0.0)
        return k + 1.0, most(e.where(functions.isnan(size), 0.0, size)), total, last

    start = (e.filled(1, (), dtypes.float64), e.filled(1, (), dtypes.float64))
    *_, total, _ = while_loop(lambda k, moved, total, last: goes_on(k, moved), term, (*start, one / a, one / a))
    tiny = 1e-300
    b = x + 1.0 - a

    def fraction(k: Op, moved: Op, b: Op, c: Op, d: Op, h: Op) -> tuple[Op, ...]:
        by = k * (a - k)
        b = b + 2.0
        d = by * d + b
        d = 1.0 / e.where(e.less(e.absolute(d), tiny), tiny, d)
        c = b + by / c
        c = e.where(e.less(e.absolute(c), tiny), tiny, c)
        step = d * c
        size = e.where(small, 0.0, e.absolute(step - 1.0))
        return k + 1.0, most(e.where(functions.isnan(size), 0.0, size)), b, c, d, h * step

    first = 1.0 / e.where(e.less(e.absolute(b), tiny), tiny, b)
    *_, h = while_loop(lambda k, moved, b, c, d, h: goes_on(k, moved), fraction, (*start, b, one / tiny, first, first))
    lower = e.where(small, total * scale, 1.0 - h * scale)
    upper = e.where(small, 1.0 - total * scale, h * scale)
    ends = ((e.equal(x, 0.0), 0.0), (e.equal(a, 0.0), 1.0), (e.equal(x, INF), 1.0))
    for at, value in ends:
        lower, upper = e.where(at, value, lower), e.where(at, 1.0 - value, upper)
    wrong = e.logical_or(e.less(x, 0.0), e.less(a, 0.0))
    wrong = e.logical_or(
        wrong, e.logical_or(e.logical_and(e.equal(a, 0.0), e.equal(x, 0.0)), e.logical_and(e.equal(a, INF), e.equal(x, INF)))
    )
    return e.where(wrong, NAN, lower), e.where(wrong, NAN, upper)


@translates("aten.igamma", "aten.special_gammainc")
def lower_gamma(n: TorchNode, a: Any, x: Any) -> Tensor:
    return in_double(n, lambda a, x: gamma_shares(a, x)[0], a, x)


@translates("aten.igammac", "aten.special_gammaincc")
def upper_gamma(n: TorchNode, a: Any, x: Any) -> Tensor:
    return in_double(n, lambda a, x: gamma_shares(a, x)[1], a, x)


# ---- orthogonal polynomials ---------------------------------------------------------------------------------------------

# of degree 1, and of degree k + 1 from those of degrees k and k - 1: what PyTorch calls them, and both rules
POLYNOMIALS: dict[str, tuple[Callable[[Op], Op], Callable[[Op, Op, Op, Op], Op]]] = {
    "chebyshev_polynomial_t": (lambda x: x, lambda k, x, p, q: 2.0 * x * p - q),
    "chebyshev_polynomial_u": (lambda x: 2.0 * x, lambda k, x, p, q: 2.0 * x * p - q),
    "chebyshev_polynomial_v": (lambda x: 2.0 * x - 1.0, lambda k, x, p, q: 2.0 * x * p - q),
    "chebyshev_polynomial_w": (lambda x: 2.0 * x + 1.0, lambda k, x, p, q: 2.0 * x * p - q),
    "shifted_chebyshev_polynomial_t": (lambda x: 2.0 * x - 1.0, lambda k, x, p, q: (4.0 * x - 2.0) * p - q),
    "shifted_chebyshev_polynomial_u": (lambda x: 4.0 * x - 2.0, lambda k, x, p, q: (4.0 * x - 2.0) * p - q),
    "shifted_chebyshev_polynomial_v": (lambda x: 4.0 * x - 3.0, lambda k, x, p, q: (4.0 * x - 2.0) * p - q),
    "shifted_chebyshev_polynomial_w": (lambda x: 4.0 * x - 1.0, lambda k, x, p, q: (4.0 * x - 2.0) * p - q),
    "hermite_polynomial_h": (lambda x: 2.0 * x, lambda k, x, p, q: 2.0 * x * p - 2.0 * k * q),
    "hermite_polynomial_he": (lambda x: x, lambda k, x, p, q: x * p - k * q),
    "laguerre_polynomial_l": (lambda x: 1.0 - x, lambda k, x, p, q: ((2.0 * k + 1.0 - x) * p - k * q) / (k + 1.0)),
    "legendre_polynomial_p": (lambda x: x, lambda k, x, p, q: ((2.0 * k + 1.0) * x * p - k * q) / (k + 1.0)),
}


def polynomial(n: TorchNode, x: Any, degree: Any, name: str) -> Tensor:
    """A polynomial of a degree for each element, by its recurrence: a loop up to the largest degree. Of one below 0 it is 0."""
    first, next_ = POLYNOMIALS[name]

    def function(x: Op, degree: Op) -> Op:
        degree = functions.trunc(degree)
        axes = (x + degree).axes
        one = e.filled(1, axes, x.dtype)
        top = reduce.build(degree, kind="max", axes=tuple(degree.axes)) if len(degree.axes) else degree

        def step(k: Op, p: Op, q: Op) -> tuple[Op, ...]:
            more = e.less(k, degree)
            return k + 1.0, e.where(more, next_(k, x, p, q), p), e.where(more, p, q)

        start = (e.filled(1, (), x.dtype), broadcast(first(x), axes), one)
        _, p, _ = while_loop(lambda k, p, q: e.less(k, top), step, start)
        return e.where(e.less(degree, 0.0), 0.0, e.where(e.equal(degree, 0.0), one, p))

    return in_double(n, function, x, degree)


for _name in POLYNOMIALS:
    translates(f"aten.special_{_name}")(lambda n, x, degree, name=_name: polynomial(n, x, degree, name))


# ---- bits of floats -----------------------------------------------------------------------------------------------------


@translates("aten.nextafter")
def next_after(n: TorchNode, a: Any, b: Any) -> Tensor:
    """The next float from one towards another: bits as whole numbers run with the floats on each side of 0."""
    kind = {16: dtypes.int16, 32: dtypes.int32, 64: dtypes.int64}[n.dtype.bits]

    def function(x: Op, y: Op) -> Op:
        whole = e.bitcast(x, dtype=kind)
        away = e.equal(e.less(x, y), e.less(0.0, x))  # whether the step goes away from 0
        moved = e.bitcast(e.where(away, whole + 1, whole - 1), dtype=n.dtype)
        least = e.bitcast(e.filled(1, x.axes, kind), dtype=n.dtype)
        moved = e.where(e.equal(x, 0.0), e.where(e.less(0.0, y), least, -least), moved)
        nan = e.logical_or(functions.isnan(x), functions.isnan(y))
        return e.where(nan, x + y, e.where(e.equal(x, y), y, moved))

    return n.each(function, a, b) if n.dtype not in kinds.HALVES else n.give(each(n.g, function, n.of(a, n.dtype), n.of(b, n.dtype)))


@translates("aten.ldexp")
def scaled_by_power(n: TorchNode, a: Any, b: Any) -> Tensor:
    return n.each(lambda x, y: x * e.power(2.0, y), a, b)


@translates("aten.frexp")
def mantissa_and_exponent(n: TorchNode, a: Tensor) -> tuple[Tensor, Tensor]:
    """m from 0.5 up to 1 and a whole k with m * 2 ** k = x."""

    def exponent(x: Op) -> Op:
        x = e.cast(x, dtypes.float64)
        bits = e.bitwise(e.bitwise(e.bitcast(x, dtype=dtypes.int64), 52, kind="shr"), 0x7FF, kind="and")
        k = e.cast(bits, dtypes.int32) - 1022
        finite = e.logical_and(e.less(e.absolute(x), INF), e.not_equal(x, 0.0))
        return e.where(finite, k, e.filled(0, (), dtypes.int32))

    k = alone(n.g, exponent, a)
    m = each(n.g, lambda x, k: e.cast(e.cast(x, dtypes.float64) * e.power(2.0, -e.cast(k, dtypes.float64)), x.dtype), a, k)
    return m, k

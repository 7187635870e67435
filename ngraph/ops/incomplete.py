"""The incomplete gamma functions of float64, element by element, and their derivatives by the first operand.

Series and continued fractions whose error is below float64's rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ngraph.op_graph import dtypes
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops import functions, special
from ngraph.ops.control import while_loop
from ngraph.ops.rearrange import broadcast
from ngraph.ops.reduce import reduce

STEPS = 100_000  # after which a series or a fraction ends, converged or not: operands of 1e8 take so many
ROUNDING = 2.0**-50
LEAST = 1e-300  # what stands for 0 where it divides
NAN, INF = float("nan"), float("inf")


def until_still(step: Callable[..., tuple[Op, ...]], *start: Op) -> tuple[Op, ...]:
    """Returns the values that `step` ends with: it takes a number from 1 on and values, and gives the change of each element and values."""
    many = tuple(start[0].axes)

    def turn(carry: Sequence[Op]) -> tuple[Op, ...]:
        k, _, *values = carry
        change, *found = step(k, *values)
        change = e.where(functions.isnan(change), 0.0, change)
        return k + 1.0, reduce.build(change, kind="max", axes=many) if many else change, *found

    def on(carry: Sequence[Op]) -> Op:
        return e.logical_and(e.less(carry[0], float(STEPS)), e.less(1e-16, carry[1]))

    one = e.filled(1, (), dtypes.float64)
    found: tuple[Op, ...] = while_loop(on, turn, (one, one, *start))[2:]
    return found


def _unless_rounding(change: Op) -> Op:
    """Returns the size of a relative change, 0 where it is rounding: a quotient that is 1 may round to its neighbours."""
    size = e.absolute(change)
    return e.where(e.less(size, ROUNDING), 0.0, size)


def fraction(first: Op, term: Callable[[Op], tuple[Op, Op | float]]) -> Op:
    """Returns first + a1 / (b1 + a2 / (b2 + …)) by Lentz's rule; term: a and b by their number."""

    def away(x: Op) -> Op:
        return e.where(e.less(e.absolute(x), LEAST), LEAST, x)

    def step(k: Op, c: Op, d: Op, found: Op) -> tuple[Op, ...]:
        a, b = term(k)
        d = 1.0 / away(a * d + b)
        c = away(a / c + b)
        return _unless_rounding(c * d - 1.0), c, d, found * (c * d)

    return until_still(step, away(first), first * 0.0, away(first))[2]


def gamma_shares(a: Op, x: Op) -> tuple[Op, Op]:
    """Returns the regularized lower and upper incomplete gamma functions, by a series below a + 1 and a continued fraction above.

    Source: Press and others, Numerical Recipes, 6.2.
    """
    scale = e.exp(a * e.log(x) - x - special.lgamma(a))
    a, x = (broadcast(v, scale.axes) for v in (a, x))
    small = e.less(x, a + 1.0)
    near, far = e.where(small, x, 0.0), e.where(small, a + 2.0, x)

    def term(k: Op, total: Op, last: Op) -> tuple[Op, ...]:
        last = last * near / (a + k)
        return e.absolute(last / total), total + last, last

    series = until_still(term, 1.0 / a, 1.0 / a)[0] * scale
    rest = scale / fraction(far + 1.0 - a, lambda k: (k * (a - k), far + 1.0 - a + k * 2.0))
    lower, upper = e.where(small, series, 1.0 - rest), e.where(small, 1.0 - series, rest)
    for at, value in ((e.equal(x, 0.0), 0.0), (e.equal(a, 0.0), 1.0), (e.equal(x, INF), 1.0)):
        lower, upper = e.where(at, value, lower), e.where(at, 1.0 - value, upper)
    wrong = e.logical_or(e.less(x, 0.0), e.less(a, 0.0))
    for end in (0.0, INF):
        wrong = e.logical_or(wrong, e.logical_and(e.equal(a, end), e.equal(x, end)))
    return e.where(wrong, NAN, lower), e.where(wrong, NAN, upper)


def _gamma_change(a: Op, x: Op) -> Op:
    """Returns the derivative of the lower incomplete gamma function by a, over x ** a * exp(-x) / gamma(a).

    The series and the fraction are those of `gamma_shares`; beside each of their numbers its derivative is carried.
    """
    both = (a + x).axes
    a, x = (broadcast(v, both) for v in (a, x))
    small = e.less(x, a + 1.0)
    near, far = e.where(small, x, 0.0), e.where(small, a + 2.0, x)
    slope = e.log(x) - special.digamma(a)

    def term(k: Op, total: Op, change: Op, last: Op, inverses: Op) -> tuple[Op, ...]:
        last, inverses = last * near / (a + k), inverses + 1.0 / (a + k)
        by = last * inverses
        return e.maximum(e.absolute(last / total), e.absolute(by / change)), total + last, change - by, last, inverses

    one = 1.0 / a
    total, change, _, _ = until_still(term, one, -(one * one), one, one)
    series = total * slope + change

    def step(k: Op, c: Op, dc: Op, d: Op, dd: Op, found: Op, change: Op) -> tuple[Op, ...]:
        top, below = k * (a - k), far + 1.0 - a + k * 2.0
        new = 1.0 / (top * d + below)
        dd = -(k * d + top * dd - 1.0) * new * new
        c, dc = top / c + below, k / c - top * dc / (c * c) - 1.0
        by = dc / c + dd / new
        moved = e.maximum(_unless_rounding(c * new - 1.0), _unless_rounding(by / (e.absolute(change) + LEAST)))
        return moved, c, dc, new, dd, found * (c * new), change + by

    first = far + 1.0 - a
    start = (first, first * 0.0 - 1.0, first * 0.0, first * 0.0, first, -1.0 / first)
    *_, whole, change = until_still(step, *start)
    return e.where(small, series, (change - slope) / whole)


def gamma_share_by_a(a: Op, x: Op) -> Op:
    """Returns the derivative of the regularized lower incomplete gamma function by its first operand."""
    found = e.exp(a * e.log(x) - x - special.lgamma(a)) * _gamma_change(a, x)
    wrong = e.logical_or(e.less(x, 0.0), e.less_equal(a, 0.0))
    return e.where(wrong, NAN, e.where(e.logical_or(e.equal(x, 0.0), e.equal(x, INF)), 0.0, found))


def gamma_sample_by_a(a: Op, x: Op) -> Op:
    """Returns the derivative of a sample x of the gamma distribution by its concentration a, where its share below x is held.

    Source: M. Figurnov and others, "Implicit reparameterization gradients" (2018).
    """
    wrong = e.logical_or(e.less(x, 0.0), e.less_equal(a, 0.0))
    return e.where(wrong, NAN, e.where(e.equal(x, 0.0), 0.0, -x * _gamma_change(a, x)))

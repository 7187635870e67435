"""Indices as sums of multiples of loop counters: what a schedule needs to know of an index to walk it by a pointer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ngraph.op_graph.expr import Bin, ExprLike, Idx, Len, combine
from ngraph.program.program import AxisId
from ngraph.schedule.form import BlockStart, Loop


class LinearForm(NamedTuple):
    """The sum of `coef[loop] * counter of loop`, and `const`; both may be expressions over lengths and blocks of the grid."""

    coef: dict[Loop, ExprLike]
    const: ExprLike

    def plus(self, other: LinearForm, factor: ExprLike = 1) -> LinearForm:
        """This form and `factor` times another one."""
        coef = dict(self.coef)
        for d, c in other.coef.items():
            coef[d] = combine("+", coef.get(d, 0), combine("*", c, factor))
        return LinearForm({d: c for d, c in coef.items() if c != 0}, combine("+", self.const, combine("*", other.const, factor)))

    def times(self, k: ExprLike) -> LinearForm:
        """k times this form."""
        return LinearForm({d: combine("*", c, k) for d, c in self.coef.items()} if k != 0 else {}, combine("*", self.const, k))

    def extremes(self) -> tuple[float, float]:
        """The least and the greatest value; infinite where they are unknown."""
        if not isinstance(self.const, int):
            return -math.inf, math.inf
        low = high = float(self.const)
        for d, c in self.coef.items():
            if not isinstance(c, int) or d.most is None:
                return -math.inf, math.inf
            far = c * max(d.most - 1, 0)
            low, high = low + min(far, 0), high + max(far, 0)
        return low, high


class Forms:
    """The linear forms of expressions in one stage.

    place   the form of each axis' index
    start   the form of the place where each block begins
    length  the length of an axis: a number, or `Len` of it
    """

    def __init__(
        self, place: Mapping[AxisId, LinearForm], start: Mapping[AxisId, LinearForm], length: Callable[[AxisId], ExprLike]
    ) -> None:
        self.place, self.start, self.length = place, start, length
        self.found: dict[ExprLike, LinearForm | None] = {}

    def of(self, e: ExprLike) -> LinearForm | None:
        """The form of an expression; None where it is not such a sum."""
        if isinstance(e, int):
            return LinearForm({}, e)
        if e not in self.found:
            self.found[e] = self._of(e)
        return self.found[e]

    def _of(self, e: ExprLike) -> LinearForm | None:
        if type(e) is Idx:
            return self.place[e.of]
        if type(e) is BlockStart:
            return self.start[e.of]
        if type(e) is Len:
            return LinearForm({}, self.length(e.of))
        if type(e) is not Bin:
            return None
        a, b = self.of(e.a), self.of(e.b)
        if a is None or b is None:
            return None
        if e.op in ("+", "-"):
            return a.plus(b, 1 if e.op == "+" else -1)
        if not a.coef and not b.coef:
            return LinearForm({}, folded(e.op, a.const, b.const))
        if e.op == "*":
            a, b = (a, b) if a.coef else (b, a)
            return None if b.coef else a.times(b.const)
        if e.op in ("//", "%") and isinstance(b.const, int) and not b.coef and b.const > 0:
            return _digit(a, b.const, e.op)
        return None


def folded(op: str, a: ExprLike, b: ExprLike) -> ExprLike:
    """`a op b`; a division by the length 0 gives 0, for nothing is read there."""
    return 0 if op in ("//", "%") and b == 0 else combine(op, a, b)


def _digit(f: LinearForm, k: int, op: str) -> LinearForm | None:
    """f // k or f % k, where f is the sum of a multiple of k and of a rest from 0 to k - 1.

    So it is as well where the block of the grid adds a multiple of a part of k, and the rest is less than that part: in a work item
    that stays inside one panel of a packed operand.
    """
    if not isinstance(f.const, int):
        return None
    coef: dict[Loop, int] = {}
    for d, c in f.coef.items():
        if not isinstance(c, int):
            return None
        coef[d] = c
    small = {d: c for d, c in coef.items() if c % k}
    for fixed in ([], [d for d in small if d.grid]):
        rest = LinearForm({d: c for d, c in small.items() if d not in fixed}, f.const % k)
        low, high = rest.extremes()
        if low >= 0 and high < math.gcd(k, *[small[d] for d in fixed]):
            break
    else:
        return None
    here: ExprLike = 0
    for d in fixed:
        here = combine("+", here, combine("*", d.counter, small[d]))
    here = combine(op, here, k)
    if op == "%":
        return LinearForm(rest.coef, combine("+", here, rest.const))
    return LinearForm({d: c // k for d, c in coef.items() if d not in small}, combine("+", here, f.const // k))

"""Positions as sums of multiples of loop indices: what a nest needs to know of an index to walk it by pointers.

A whole number is an `int` where it is known while code is written, else an int64 in a register.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ngraph.codegen import math as scalar
from ngraph.codegen.text import IRValue, IRWriter, constant
from ngraph.op_graph import dtypes
from ngraph.op_graph.expr import APPLY, Bin, ExprLike, Idx, Leaf, Len
from ngraph.program.program import AxisId

Whole = int | IRValue


class Dim:
    """One loop. `size` is how many places it has; `most` what it never exceeds, None where nobody knows.

    A digit of an axis: each place covers `unit` elements of `total`, `lower` is the next digit. `uneven`: it has fewer places at the end.
    """

    __slots__ = ("size", "most", "unit", "total", "lower", "uneven")

    def __init__(self, size: Whole, most: int | None, unit: int = 1, lower: Dim | None = None):
        self.size, self.most, self.unit, self.lower, self.total, self.uneven = size, most, unit, lower, 0, False

    @property
    def ragged(self) -> bool:
        """Whether its last place covers less than the others."""
        return self.lower is not None and self.total % self.unit > 0

    def cover(self, total: int) -> None:
        """Takes so many elements."""
        self.total, self.size = total, -(-total // self.unit)
        if self.lower is not None:
            self.lower.cover(min(self.unit, total))


class LinearForm(NamedTuple):
    """The sum of `coef[d] * index of d`, and `const`."""

    coef: dict[Dim, Whole]
    const: Whole


class Start(Leaf):
    """Where a work item starts along an axis: Locals count from there."""

    __slots__ = ()


def certain(a: Whole) -> int:
    """A whole number that is known now."""
    assert isinstance(a, int)
    return a


def plus(w: IRWriter, a: Whole, b: Whole) -> Whole:
    """a + b; scalars and vectors meet."""
    if type(a) is int and type(b) is int:
        return a + b
    if type(a) is int:
        a, b = b, a
    return a if b == 0 else meet(w, "add", a, b)


def times(w: IRWriter, a: Whole, b: Whole) -> Whole:
    """a * b."""
    if type(a) is int and type(b) is int:
        return a * b
    if type(a) is int:
        a, b = b, a
    return a if b == 1 else 0 if b == 0 else meet(w, "mul", a, b)


def register(a: Whole) -> IRValue:
    """A whole number as a value."""
    return a if isinstance(a, IRValue) else constant(a, dtypes.int64)


def meet(w: IRWriter, name: str, a: Whole, b: Whole) -> IRValue:
    """An instruction on two whole numbers."""
    a, b = register(a), register(b)
    lanes = max(a.lanes, b.lanes)
    return w.op(name, w.splat(a, lanes), w.splat(b, lanes))


_SIMPLE = {"+": "add", "-": "sub", "*": "mul"}
_EXTREME = {"min": "smin", "max": "smax"}


def apply(w: IRWriter, op: str, a: Whole, b: Whole, small: bool = False) -> Whole:
    """An operator of expressions; `small`: both are known to lie in 0 … 2**31 - 1."""
    if type(a) is int and type(b) is int:
        return int(APPLY[op](a, b)) if b or op not in ("//", "%") else 0
    if op == "+":
        return plus(w, a, b)
    if op == "*":
        return times(w, a, b)
    if op in _SIMPLE:
        return meet(w, _SIMPLE[op], a, b)
    x, y = register(a), register(b)
    lanes = max(x.lanes, y.lanes)
    x, y = w.splat(x, lanes), w.splat(y, lanes)
    if op in _EXTREME:
        return w.intrinsic(_EXTREME[op], dtypes.int64, lanes, x, y)
    if type(b) is int and b == 1:
        return x if op == "//" else 0
    if type(b) is int and b > 0 and b & (b - 1) == 0:  # shifts and masks round down
        return w.op("ashr", x, w.constant(b.bit_length() - 1, x)) if op == "//" else w.op("and", x, w.constant(b - 1, x))
    if type(b) is int and b > 0 and small:
        half = w.op("udiv" if op == "//" else "urem", w.convert("trunc", x, dtypes.uint32), constant(b, dtypes.uint32, lanes))
        return w.convert("zext", half, dtypes.int64)
    return scalar.emit(w, "divide" if op == "//" else "remainder", (x, y))


def extremes(f: LinearForm) -> tuple[float, float]:
    """The least and the greatest value; infinite where not known."""
    if type(f.const) is not int:
        return -math.inf, math.inf
    low = high = float(f.const)
    for d, c in f.coef.items():
        if type(c) is not int or d.most is None:
            return -math.inf, math.inf
        far = c * max(d.most - 1, 0)
        low, high = low + min(far, 0), high + max(far, 0)
    return low, high


class Forms:
    """Expressions as forms, for one stage. `place` says where the index of each axis comes from, `at` where dims stand that stay."""

    def __init__(
        self,
        w: IRWriter,
        place: Mapping[AxisId, LinearForm],
        start: Mapping[AxisId, LinearForm],
        length: Callable[[AxisId], Whole],
        at: Mapping[Dim, Whole],
    ):
        self.w, self.place, self.start, self.length, self.at = w, place, start, length, at
        self.known: dict[ExprLike, LinearForm | None] = {}

    def of(self, e: ExprLike) -> LinearForm | None:
        """None where it is not such a sum."""
        if type(e) is int:
            return LinearForm({}, e)
        if e not in self.known:
            self.known[e] = self._of(e)
        return self.known[e]

    def prepare(self, exprs: Iterable[ExprLike]) -> None:
        """Make the registers that forms of expressions and of their parts hold, here, where they come before every use."""
        todo = list(exprs)
        while todo:
            e = todo.pop()
            if self.of(e) is None and type(e) is Bin:
                todo += [e.a, e.b]

    def _of(self, e: ExprLike) -> LinearForm | None:
        if type(e) is Idx:
            return self.place[e.of]
        if type(e) is Start:
            return self.start[e.of]
        if type(e) is Len:
            return LinearForm({}, self.length(e.of))
        if type(e) is not Bin:
            return None
        a, b = self.of(e.a), self.of(e.b)
        if a is None or b is None:
            return None
        if e.op in ("+", "-"):
            return self.sum(a, b, 1 if e.op == "+" else -1)
        if not a.coef and not b.coef:
            return LinearForm({}, apply(self.w, e.op, a.const, b.const))
        if e.op == "*":
            a, b = (a, b) if a.coef else (b, a)
            return None if b.coef else self.multiple(a, b.const)
        if e.op in ("//", "%") and type(b.const) is int and not b.coef and b.const > 0:
            return self.digit(a, b.const, e.op)
        return None

    def sum(self, a: LinearForm, b: LinearForm, times_b: Whole = 1) -> LinearForm:
        """a + b * times_b."""
        coef = dict(a.coef)
        for d, c in b.coef.items():
            coef[d] = plus(self.w, coef.get(d, 0), times(self.w, c, times_b))
        return LinearForm({d: c for d, c in coef.items() if c != 0}, plus(self.w, a.const, times(self.w, b.const, times_b)))

    def multiple(self, a: LinearForm, k: Whole) -> LinearForm:
        return LinearForm({d: times(self.w, c, k) for d, c in a.coef.items()} if k != 0 else {}, times(self.w, a.const, k))

    def digit(self, f: LinearForm, k: int, op: str) -> LinearForm | None:
        """f // k or f % k, where f is a multiple of k and something from 0 to k - 1.

        So it is, too, if what stays is a multiple of a part of k, and the rest is less than that part: of a work item inside one panel.
        """
        if type(f.const) is not int or any(type(c) is not int for c in f.coef.values()):
            return None
        coef = {d: certain(c) for d, c in f.coef.items()}
        small = {d: c for d, c in coef.items() if c % k}
        for still in ([], [d for d in small if d in self.at]):
            rest = LinearForm({d: c for d, c in small.items() if d not in still}, f.const % k)
            low, high = extremes(rest)
            if low >= 0 and high < math.gcd(k, *[small[d] for d in still]):
                break
        else:
            return None
        here: Whole = 0
        for d in still:
            here = plus(self.w, here, times(self.w, self.at[d], small[d]))
        here = apply(self.w, op, here, k)
        if op == "%":
            return LinearForm(rest.coef, plus(self.w, here, rest.const))
        return LinearForm({d: c // k for d, c in coef.items() if d not in small}, plus(self.w, here, f.const // k))

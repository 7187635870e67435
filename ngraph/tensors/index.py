"""Reads at indices, and the analysis of index expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ngraph.op_graph import expr
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import Bin, ExprLike, Idx, Leaf, Len, combine
from ngraph.parts.deferred import deferred
from ngraph.program.program import AxisId

if TYPE_CHECKING:
    from fractions import Fraction

fractions = deferred("fractions")  # loads decimal, and most starts divide nothing


class Load(Leaf):
    """The integer that a line, or in a tensor graph a read, has at this index."""

    __slots__ = ()


class Read:
    """One element of a source at each index; `pad_value` where a predicate is negative."""

    __slots__ = ("source", "index", "predicate", "pad_value", "_axes", "_identity_indexed", "walk")

    def __init__(self, source: Any, index: dict[AxisId, ExprLike], predicate: tuple[ExprLike, ...] = (), pad_value: Any = 0):
        self.source, self.index, self.predicate, self.pad_value = source, index, predicate, pad_value
        self._axes: frozenset[AxisId] | None = None
        self._identity_indexed: frozenset[AxisId] | None = None
        self.walk: Any = None  # what `price` found out about it

    @property
    def axes(self) -> frozenset[AxisId]:
        """The axes that it moves along."""
        if self._axes is None:
            self._axes = frozenset(loop_variant_axes(*self.index.values(), *self.predicate))
        return self._axes

    @property
    def identity_indexed(self) -> frozenset[AxisId]:
        """The axes of the source that are read at the reader's own index of that name."""
        if self._identity_indexed is None:
            self._identity_indexed = frozenset(a for a, e in self.index.items() if type(e) is Idx and e.of == a)
        return self._identity_indexed

    def of(self, source: Any) -> Read:
        """The same read of another source that has these axes."""
        made = Read(source, self.index, self.predicate, self.pad_value)
        made._axes, made._identity_indexed = self._axes, self._identity_indexed
        return made

    def at(self, index: Mapping[AxisId, ExprLike]) -> Read:
        """The same read where each `Idx` of an axis in `index` is that expression."""
        moved = {a: substitute_index(e, index) for a, e in self.index.items()}
        return Read(self.source, moved, tuple([substitute_index(g, index) for g in self.predicate]), self.pad_value)


def loop_variant_axes(*exprs: ExprLike) -> list[AxisId]:
    """Returns the axes that expressions depend on, those of reads inside them too, with repetition."""
    found: list[AxisId] = []
    for e in exprs:
        if type(e) is Idx:
            found.append(e.of)
        elif type(e) is not int:
            for leaf in expr.leaves(e):
                if type(leaf) is Idx:
                    found.append(leaf.of)
                elif type(leaf) is Load and type(leaf.of) is Read:
                    found += leaf.of.axes
    return found


def divided_axes(r: Read) -> Iterator[AxisId]:
    """Yields the axes of the indices that a read divides."""
    todo: list[ExprLike] = [e for e in r.index.values() if type(e) is Bin]
    while todo:
        e = todo.pop()
        if type(e) is Bin:
            if e.op in ("//", "%"):
                yield from loop_variant_axes(e.a)
            else:
                todo += (e.a, e.b)


def loads(*exprs: ExprLike) -> list[Any]:
    """Returns the loads in expressions."""
    return [leaf.of for e in exprs for leaf in expr.leaves(e) if type(leaf) is Load]


def substitute_index(e: ExprLike, index: Mapping[AxisId, ExprLike]) -> ExprLike:
    """Returns an expression at another index."""

    def leaf(x: Leaf) -> ExprLike:
        if type(x) is Idx:
            return index.get(x.of, x)
        if type(x) is Load and type(x.of) is Read:
            return Load(x.of.at(index))
        return x

    return expr.substitute(e, leaf)


def in_order(kind: str, dtype: DType) -> bool:
    """Whether terms must be combined one after the other, as products of floats must.

    A partial product may overflow or underflow where the whole product does not: every second factor of 1e3, 1e-3, 1e3, 1e-3 … does.
    """
    return kind == "multiply" and dtype.is_float


def identity_index(axes: Iterable[AxisId]) -> dict[AxisId, ExprLike]:
    """Returns the index in which each axis is at its own position."""
    return {a: Idx(a) for a in axes}


def affine(e: ExprLike) -> tuple[dict[AxisId, int], int] | None:
    """({axis: coefficient}, constant), not to be changed; None for what is not a sum of multiples of indices."""
    if isinstance(e, int):
        return {}, e
    if type(e) is Idx:
        return {e.of: 1}, 0
    if type(e) is not Bin:
        return None
    if e.affine is ...:
        e.affine = _affine(e)
    found: tuple[dict[AxisId, int], int] | None = e.affine
    return found


def _affine(e: Bin) -> tuple[dict[AxisId, int], int] | None:
    if e.op not in ("+", "-", "*"):
        return None
    a, b = affine(e.a), affine(e.b)
    if a is None or b is None:
        return None
    if e.op == "*":
        if a[0] and b[0]:
            return None
        (moves, start), factor = (a, b[1]) if a[0] else (b, a[1])
        return {k: c * factor for k, c in moves.items() if c * factor}, start * factor
    sign = 1 if e.op == "+" else -1
    moves = dict(a[0])
    for k, c in b[0].items():
        moves[k] = moves.get(k, 0) + c * sign
    return {k: c for k, c in moves.items() if c}, a[1] + b[1] * sign


def bounds(e: ExprLike, length: Callable[[AxisId], int | None]) -> tuple[float, float]:
    """The least and the greatest value of an expression; infinite where that is not known."""
    unknown = (-math.inf, math.inf)
    if isinstance(e, int):
        return e, e
    if isinstance(e, Idx | Len):
        size = length(e.of)
        top = math.inf if size is None else size
        return (0, max(top - 1, 0)) if isinstance(e, Idx) else (0 if size is None else top, top)
    form = affine(e)
    if form is not None:  # an index that occurs twice counts once
        low: float = form[1]
        high: float = form[1]
        for axis, k in form[0].items():
            n = length(axis)
            far = k * (math.inf if n is None else max(n - 1, 0)) if n != 1 else 0
            low, high = low + min(0, far), high + max(0, far)
        return low, high
    if type(e) is not Bin:
        return unknown
    a, b = bounds(e.a, length)
    c, d = bounds(e.b, length)
    if e.op == "+":
        return a + c, b + d
    if e.op == "-":
        return a - d, b - c
    if e.op in ("min", "max"):
        return (min(a, c), min(b, d)) if e.op == "min" else (max(a, c), max(b, d))
    if e.op == "//" and c > 0 and a >= 0:
        return a // d if d < math.inf else 0, b // c if b < math.inf else b
    if e.op == "//" and c == d > 0:
        return a // c if a > -math.inf else a, b // c if b < math.inf else b
    if e.op == "%" and c > 0:
        return (a, b) if 0 <= a and b < c else (0, d - 1)
    if math.inf in (abs(a), abs(b), abs(c), abs(d)):
        return (0, math.inf) if a >= 0 and c >= 0 else unknown
    if e.op == "*":
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    return unknown


class Quotient(NamedTuple):
    """The floor of a sum of terms, divided by a whole number."""

    terms: frozenset[tuple[Any, int | Fraction]]
    by: int


Terms = dict[Any, "int | Fraction"]  # {leaf, Quotient or other expression: factor}, and the constant by 1


def least(e: ExprLike, length: Callable[[AxisId], ExprLike]) -> float:
    """The least value of an expression, whatever the lengths are; -inf where that is not known.

    length: of an axis, as an expression; `Len` of itself where it comes with a call. Axes that the expression moves along have a place.
    """
    form = affine(e)
    if form is not None:
        total = form[1]
        for a, c in form[0].items():
            n = length(a) if c < 0 else 1
            if not isinstance(n, int):
                break
            total += c * (n - 1)
        else:
            return total
    terms = _at_ends(_terms(e), length)
    found = _least(terms, length)
    if found < 0:  # lengths that are made of others
        found = max(found, _least(_expanded(terms, length), length))
    return found


def _at_ends(terms: Terms, length: Callable[[AxisId], ExprLike]) -> Terms:
    """The terms with the end that makes them least in place of each index that is multiplied by the length of another axis of theirs."""
    own = [length(a) for k in terms if k != 1 for a in dict.fromkeys(loop_variant_axes(k))]  # none of them is negative
    for k, c in terms.items():
        if type(k) is Bin and k.op == "*":
            i, by = (k.a, k.b) if type(k.a) is Idx else (k.b, k.a)
            if type(i) is Idx and any(same(by, n, length) for n in own):
                end = _terms((length(i.of) - 1) * by) if c < 0 else {}
                return _at_ends(_sum(_sum(terms, {k: -c}), end, c), length)
    return terms


def same(a: ExprLike, b: ExprLike, length: Callable[[AxisId], ExprLike]) -> bool:
    """Whether two expressions are equal for all lengths and indices, as far as sums and divisions by numbers tell."""
    if a == b:
        return True
    forms = affine(a), affine(b)
    return forms[0] == forms[1] if None not in forms else not _expanded(_sum(_terms(a), _terms(b), -1), length)


def without_digits(walked: Iterable[tuple[Any, ExprLike]], length: Callable[[AxisId], ExprLike]) -> list[tuple[Any, ExprLike]]:
    """Returns strides and indices, with one index in the place of two digits of it that lie in memory as it does.

    Digits of i are i // n and i % n, where one step of the first is as far as n of the second; so are i // n % m and i % n of i % (n * m).
    """
    found = list(walked)
    for low, digit in found[::-1]:
        while (low, digit) in found and type(digit) is Bin and digit.op == "%":
            far = combine("*", low, digit.b)
            more = [(stride, e, whole) for stride, e in found if (whole := _whole(e, digit)) is not None and same(stride, far, length)]
            if not more:
                break
            stride, e, whole = more[0]
            found.remove((stride, e))
            found[found.index((low, digit))] = low, whole
            digit = whole
    return found


def digits_in(index: Mapping[AxisId, ExprLike]) -> Iterator[tuple[AxisId, AxisId]]:
    """Yields pairs of axes that are read at two digits of one index, the upper digit first: i // n, or i // n % m, and i % n."""
    for lower, e in index.items():
        for upper, other in index.items():
            if _whole(other, e) is not None:
                yield upper, lower


def _whole(upper: ExprLike, lower: ExprLike) -> ExprLike | None:
    """Returns the index of which these are two digits, None where they are not.

    It is i for i // n and i % n, and i % (n * m) for i // n % m and i % n.
    """
    if type(lower) is not Bin or lower.op != "%" or type(upper) is not Bin or upper.op not in ("//", "%"):
        return None
    above = _over(lower.a, lower.b)
    if upper.op == "//":
        return lower.a if _over(upper.a, upper.b) == above else None
    rest = _over(upper.a.a, upper.a.b) if type(upper.a) is Bin and upper.a.op == "//" else upper.a
    return combine("%", lower.a, combine("*", lower.b, upper.b)) if rest == above else None


def _over(i: ExprLike, n: ExprLike) -> ExprLike:
    """Returns i // n; i // (m * n) of i // m // n."""
    return _over(i.a, combine("*", i.b, n)) if isinstance(i, Bin) and i.op == "//" else combine("//", i, n)


def simplest(e: ExprLike, length: Callable[[AxisId], ExprLike]) -> ExprLike:
    """Returns an expression of lengths that calls bring, as a sum in which equal terms are one and exact divisions are carried out.

    length: of an axis, as an expression; `Len` of itself where it comes with a call.
    """
    return e if isinstance(e, int) else _total(_expanded(_terms(e), length))


def _total(terms: Terms) -> ExprLike:
    """The sum of terms as an expression, its terms in an order of their own."""
    made: ExprLike = 0
    parts = [(_total(dict(k.terms)) // k.by if isinstance(k, Quotient) else k, c) for k, c in terms.items() if k != 1]
    for part, c in sorted(parts, key=lambda x: (x[1] < 0, expr.text(x[0]))):
        made = made + part * int(c) if c > 0 else made - part * -int(c)
    return made + int(terms.get(1, 0))


def _terms(e: ExprLike) -> Terms:
    """An expression as a sum of terms, in which equal ones are one; not to be changed."""
    if isinstance(e, int):
        return {1: e} if e else {}
    if type(e) is not Bin:
        return {e: 1}
    if e.terms is None:
        e.terms = _terms_of(e)
    found: Terms = e.terms
    return found


def _terms_of(e: Bin) -> Terms:
    if e.op in ("+", "-"):
        return _sum(_terms(e.a), _terms(e.b), 1 if e.op == "+" else -1)
    if e.op == "*" and (isinstance(e.a, int) or isinstance(e.b, int)):
        factor, other = (e.a, e.b) if isinstance(e.a, int) else (e.b, e.a)
        return _sum({}, _terms(other), factor)  # type: ignore[arg-type]  # one of them is a number
    if e.op in ("//", "%") and isinstance(e.b, int) and e.b > 0:
        whole = _terms(e.a)
        return _quotient(whole, e.b) if e.op == "//" else _sum(whole, _quotient(whole, e.b), -e.b)
    return {e: 1}


def _sum(a: Terms, b: Terms, factor: int | Fraction = 1) -> Terms:
    made = dict(a)
    for k, c in b.items():
        made[k] = made.get(k, 0) + c * factor
    return {k: c for k, c in made.items() if c}


def _quotient(terms: Terms, by: int) -> Terms:
    """The floor of terms / by: multiples of `by` stand before it, a division of a division is one."""
    inner = [k for k in terms if k != 1]
    if len(inner) == 1 and type(inner[0]) is Quotient and terms[inner[0]] == 1:
        q = inner[0]
        return _quotient(_sum(dict(q.terms), {1: terms.get(1, 0) * q.by}), q.by * by)
    whole = {k: c // by for k, c in terms.items() if k == 1 or c % by == 0}
    rest = {k: c % by if k == 1 else c for k, c in terms.items() if k == 1 or c % by}
    rest = {k: c for k, c in rest.items() if c}
    alone = not rest or set(rest) == {1}
    return _sum({k: c for k, c in whole.items() if c}, {} if alone else {Quotient(frozenset(rest.items()), by): 1})


def _expanded(terms: Terms, length: Callable[[AxisId], ExprLike]) -> Terms:
    """The terms with lengths in place of the axes that have them."""
    made: Terms = {}
    for k, c in terms.items():
        if type(k) is Len and length(k.of) != k:
            more = _expanded(_terms(length(k.of)), length)
        elif type(k) is Quotient:
            more = _quotient(_expanded(dict(k.terms), length), k.by)
        else:
            more = {k: 1}
        made = _sum(made, more, c)
    return made


def _least(terms: Terms, length: Callable[[AxisId], ExprLike]) -> float:
    """The least value of a sum: indices at an end, quotients without their floor, each minimum as one of its parts."""
    for k, c in terms.items():
        places = length(k.of) if type(k) is Idx else _digit_places(k, length)
        if places is not None:
            end = _terms(places - 1) if c < 0 else {}
            return _least(_sum(_sum(terms, {k: -c}), end, c), length)
    outer: list[Any] = [k for k in terms if type(k) is Quotient or (type(k) is Bin and k.op in ("min", "max"))]
    if outer:
        k = max(outer, key=_nesting)
        c = terms[k]
        rest = _sum(terms, {k: -c})
        if isinstance(k, Quotient):
            near = dict(k.terms) if c < 0 else _sum(dict(k.terms), {1: 1 - k.by})
            return _least(_sum(rest, near, fractions.Fraction(c) / k.by), length)
        ends = [_least(_sum(rest, _terms(x), c), length) for x in (k.a, k.b)]
        return max(ends) if (k.op == "max") == (c > 0) else min(ends)
    if any(c < 0 or type(k) is not Len for k, c in terms.items() if k != 1):
        return -math.inf
    return math.ceil(terms.get(1, 0))


def _digit_places(e: Any, length: Callable[[AxisId], ExprLike]) -> ExprLike | None:
    """The number of places of a digit of an index, `i // n` or `i % n`, where n is a factor of the length of i; None for all else."""
    if type(e) is not Bin or e.op not in ("//", "%") or type(e.a) is not Idx:
        return None
    whole = length(e.a.of)
    if type(whole) is not Bin or whole.op != "*":
        return None
    for one, other in ((whole.a, whole.b), (whole.b, whole.a)):
        if same(one, e.b, length):
            return other if e.op == "//" else e.b
    return None


def _nesting(k: Any) -> int:
    if type(k) is Quotient:
        return 1 + max([_nesting(x) for x, _ in k.terms], default=0)
    return 1 + getattr(k, "depth", 0)


def depth(e: ExprLike) -> int:
    """Returns the length of the chain of dependent loads in an expression."""
    inner = [leaf.of for leaf in expr.leaves(e) if type(leaf) is Load]
    return max([1 + max(map(depth, (*r.index.values(), *r.predicate)), default=0) if type(r) is Read else 1 for r in inner], default=0)

"""Integer expressions: the one type for lengths, index maps, predicates and loop bounds.

    Expr = int | Len(axis) | Run(value) | Idx(axis) | Expr (+ - * // % min max) Expr

Division is floor division, with one meaning everywhere: Python, NumPy and generated code.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any, Union, overload

import numpy as np

from ngraph.errors import GraphError

ExprLike = Union["Expr", int]


class Expr:
    """Base of the expression nodes; an `int` is an expression too."""

    __slots__ = ()

    def __add__(self, other: ExprLike) -> ExprLike:
        return combine("+", self, other)

    def __radd__(self, other: ExprLike) -> ExprLike:
        return combine("+", other, self)

    def __sub__(self, other: ExprLike) -> ExprLike:
        return combine("-", self, other)

    def __rsub__(self, other: ExprLike) -> ExprLike:
        return combine("-", other, self)

    def __mul__(self, other: ExprLike) -> ExprLike:
        return combine("*", self, other)

    def __rmul__(self, other: ExprLike) -> ExprLike:
        return combine("*", other, self)

    def __floordiv__(self, other: ExprLike) -> ExprLike:
        return combine("//", self, other)

    def __rfloordiv__(self, other: ExprLike) -> ExprLike:
        return combine("//", other, self)

    def __mod__(self, other: ExprLike) -> ExprLike:
        return combine("%", self, other)

    def __rmod__(self, other: ExprLike) -> ExprLike:
        return combine("%", other, self)

    def __neg__(self) -> ExprLike:
        return combine("*", self, -1)

    def __repr__(self) -> str:
        return text(self)


class Leaf(Expr):
    """A name whose value comes from outside: `Len`, `Idx` or `Run` of something hashable."""

    __slots__ = ("of",)

    def __init__(self, of: Any):
        self.of = of

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.of == self.of

    def __hash__(self) -> int:
        return hash(self.of)


class Len(Leaf):
    """The length of an axis."""

    __slots__ = ()


class Idx(Leaf):
    """The index along an axis of the result."""

    __slots__ = ()


class Run(Leaf):
    """An integer scalar that a step computes: an op or a value of a program. Equal where it is the same one."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is Run and other.of is self.of

    def __hash__(self) -> int:
        return hash(self.of)


DEEPEST = 256  # nested operators: expressions of this depth can be walked by recursion
MAX_OPERATORS = 4096  # operators in all, counted with repetition
MOST_NORMAL = 256  # operators of an expression whose normal form is looked for
MOST_TERMS = 64  # operators of two sums whose common terms are looked for


class Bin(Expr):
    """A binary operator over two expressions: + - * // % min max. Raises GraphError where the expression would exceed the limits above."""

    __slots__ = ("op", "a", "b", "depth", "size", "_hash", "_leaves", "affine", "terms")

    def __init__(self, op: str, a: ExprLike, b: ExprLike):
        self.op, self.a, self.b = op, a, b
        self.depth = 1 + max(getattr(a, "depth", 0), getattr(b, "depth", 0))
        self.size = 1 + getattr(a, "size", 0) + getattr(b, "size", 0)
        if self.depth > DEEPEST or self.size > MAX_OPERATORS:
            raise GraphError(
                f"a length or an index is an expression of {self.size} operators, {self.depth} within each other,"
                f" and there may be {MAX_OPERATORS} and {DEEPEST}",
                fix="give an axis that it is made of a known length",
            )
        self._hash = hash((op, a, b))
        self._leaves: tuple[Leaf, ...] | None = None
        self.affine: Any = ...  # what `ngraph.tensors.index.affine` found out about it
        self.terms: Any = None  # the same of `ngraph.tensors.index`: it as a sum of terms

    def __eq__(self, other: object) -> bool:
        return self is other or (
            type(other) is Bin and other._hash == self._hash and other.op == self.op and other.a == self.a and other.b == self.b
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Bin, (self.op, self.a, self.b)  # another process hashes strings otherwise


# each operator, for Python integers and NumPy integer arrays alike
APPLY: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": lambda a, b: min(a, b) if isinstance(a, int) and isinstance(b, int) else np.minimum(a, b),
    "max": lambda a, b: max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b),
}


def plain(e: Any) -> Any:
    """Returns an integer of NumPy as one of Python, all else as it is."""
    return int(e) if isinstance(e, np.integer) else e


def combine(op: str, a: ExprLike, b: ExprLike) -> ExprLike:
    """Returns `a op b`, evaluated where both are numbers, without neutral operands of 0 and 1, and with constants gathered."""
    if isinstance(a, int) and isinstance(b, int):
        if op in ("//", "%") and b == 0:
            raise ZeroDivisionError("an index or length expression divides by zero")
        return APPLY[op](a, b)
    if isinstance(a, np.integer) or isinstance(b, np.integer):  # counts of users
        return combine(op, plain(a), plain(b))
    if op == "+":
        if isinstance(a, int):
            a, b = b, a
        if b == 0:
            return a
        if a == b:
            return combine("*", a, 2)
        if isinstance(b, int) and isinstance(a, Bin) and a.op == "+" and isinstance(a.b, int):
            return combine("+", a.a, a.b + b)
        whole = _rejoined(a, b) or _rejoined(b, a)
        if whole is not None:
            return whole
    elif op == "-":
        if isinstance(b, int):
            return combine("+", a, -b)
        if a == b:
            return 0
        cut = _cut_by(a, b)
        if cut is not None:
            return combine("min", a, cut)
        rest = _difference(a, b)
        if rest is not None:
            return rest
    elif op == "*":
        if isinstance(a, int):
            a, b = b, a
        if b == 1:
            return a
        if b == 0:
            return 0
    elif op == "//":
        if b == 1:
            return a
        if isinstance(b, int) and b > 0:
            product, rest = (a.a, a.b) if isinstance(a, Bin) and a.op == "+" and isinstance(a.b, int) else (a, 0)
            if isinstance(product, Bin) and product.op == "*" and product.b == b:
                return combine("+", product.a, rest // b)
    elif op == "%":
        if b == 1:
            return 0
    elif op in ("min", "max"):
        if a == b:
            return a
        for more, less in ((a, b), (b, a)):
            rest = combine("+", more, -less) if isinstance(less, int) else _difference(more, less)
            if rest is not None and not_negative(rest):
                return more if op == "max" else less
        if (
            op == "max"
            and b == 0
            and isinstance(a, Bin)
            and a.op == "+"
            and isinstance(a.b, int)
            and a.b < 0
            and isinstance(a.a, Bin)
            and a.a.op == "max"
            and a.a.b == 0
        ):
            return combine("max", combine("+", a.a.a, a.b), 0)  # cut twice
        counted = _count_of_windows(a) if op == "max" and b == 0 else None
        if counted is not None:
            return combine("max", counted, 0)
    return Bin(op, a, b)


def _count_of_windows(e: ExprLike) -> ExprLike | None:
    """Returns (n + c * k) // k where e is n // k + c, how many windows fit, with c above 0; otherwise None."""
    if not isinstance(e, Bin) or e.op != "+" or not isinstance(e.b, int) or e.b <= 0:
        return None
    n = e.a
    return combine("//", n.a + e.b * n.b, n.b) if isinstance(n, Bin) and n.op == "//" and isinstance(n.b, int) and n.b > 0 else None


def _terms(e: ExprLike, factor: int, into: dict[Expr, int]) -> int:
    """Adds the terms of a sum, `factor` times, to `into`, their factors; returns `factor` times the constant term."""
    if isinstance(e, int):
        return factor * e
    if isinstance(e, Bin) and e.op in ("+", "-"):
        return _terms(e.a, factor, into) + _terms(e.b, factor if e.op == "+" else -factor, into)
    if isinstance(e, Bin) and e.op == "*" and isinstance(e.b, int):
        return _terms(e.a, factor * e.b, into)
    into[e] = into.get(e, 0) + factor
    return 0


def _difference(a: ExprLike, b: ExprLike) -> ExprLike | None:
    """Returns a - b where both have terms in common, and none is left over of b; otherwise None."""
    if getattr(a, "size", 0) + getattr(b, "size", 0) > MOST_TERMS:
        return None
    terms: dict[Expr, int] = {}
    constant = _terms(a, 1, terms) + _terms(b, -1, terms)
    left = {e: n for e, n in terms.items() if n}
    if len(left) == len(terms) or min(left.values(), default=1) < 0:
        return None
    rest: ExprLike = 0
    for e, n in left.items():
        rest = combine("+", rest, combine("*", e, n))
    return combine("+", rest, constant)


def _cut_by(a: ExprLike, e: ExprLike) -> ExprLike | None:
    """Returns c where e is max(a - c, 0), what is left of a length without c elements; otherwise None."""
    if not isinstance(e, Bin) or e.op != "max" or e.b != 0 or not isinstance(e.a, Bin) or e.a.a != a:
        return None
    return -e.a.b if e.a.op == "+" and isinstance(e.a.b, int) else e.a.b if e.a.op == "-" else None


def _rejoined(e: ExprLike, rest: ExprLike) -> ExprLike | None:
    """Returns a where the two are min(a, c) and max(a - c, 0), the lengths of both parts of an axis that was cut; otherwise None."""
    if isinstance(e, Bin) and e.op == "min":
        for a, c in ((e.a, e.b), (e.b, e.a)):
            if _cut_by(a, rest) == c:
                return a
    return None


def not_negative(e: ExprLike) -> bool:
    """Whether an expression is made of lengths and indices in such a way that no call makes it negative."""
    if isinstance(e, Bin):
        if e.op == "max":
            return not_negative(e.a) or not_negative(e.b)
        return e.op in ("+", "*", "//", "%", "min") and not_negative(e.a) and not_negative(e.b)
    return e >= 0 if isinstance(e, int) else type(e) in (Len, Idx)


@overload
def minimum(a: int, b: int) -> int: ...
@overload
def minimum(a: ExprLike, b: ExprLike) -> ExprLike: ...
def minimum(a: ExprLike, b: ExprLike) -> ExprLike:
    return combine("min", a, b)


@overload
def maximum(a: int, b: int) -> int: ...
@overload
def maximum(a: ExprLike, b: ExprLike) -> ExprLike: ...
def maximum(a: ExprLike, b: ExprLike) -> ExprLike:
    return combine("max", a, b)


def divisor(e: ExprLike) -> int:
    """Returns a whole number that divides an expression whatever its leaves are: the largest that is seen at once, 0 of 0."""
    if not isinstance(e, Bin):
        return abs(e) if isinstance(e, int) else 1
    a, b = divisor(e.a), divisor(e.b)
    if e.op == "*":
        return a * b
    if e.op == "//":
        return a // b if isinstance(e.b, int) and b and a % b == 0 else 1
    return math.gcd(a, b)  # of sums, differences, remainders, and of either of two


# ---- which lengths are one ------------------------------------------------------------------------------------------------

# A sum is (constant, frozenset of (term, factor)). A term is a leaf, ("//", sum, number), ("max", frozenset of sums),
# ("*", frozenset of sums), or (op, sum, sum): also a quotient by a length.
Sum = tuple[int, frozenset[tuple[Any, int]]]


def normal(e: ExprLike) -> Sum:
    """Returns a form of a length that equal lengths share, as far as these rules see it; different lengths never share one.

    Remainders become quotients and minima become maxima, quotients are of remainders of their divisors and hold no quotients, divisions of
    a maximum are the maximum of divisions, and the sum of all x + i divided by k, for i below k, is x.
    """
    if not isinstance(e, Bin) or e.size > MOST_NORMAL:
        return (e, frozenset()) if isinstance(e, int) else (0, frozenset({(e, 1)}))
    if e.op in ("//", "%") and isinstance(e.b, int) and e.b > 0:
        whole = _quotient(e.a, e.b)
        return whole if e.op == "//" else _added(normal(e.a), whole, -e.b)
    if e.op == "max" and e.size <= MOST_TERMS:
        for one, other in ((e.a, e.b), (e.b, e.a)):
            inner, shift = _shifted(one)
            if isinstance(inner, Bin) and inner.op == "min":  # the larger of a minimum and a third is a minimum of the larger ones
                return normal(Bin("min", *(Bin("max", Bin("+", x, shift), other) for x in (inner.a, inner.b))))
    a, b = normal(e.a), normal(e.b)
    if e.op in ("+", "-"):
        return _added(a, b, 1 if e.op == "+" else -1)
    if e.op == "*" and (not a[1] or not b[1]):
        return _added((0, frozenset()), a, b[0]) if not b[1] else _added((0, frozenset()), b, a[0])
    if e.op in ("min", "max"):
        most = _most((a, b))
        return most if e.op == "max" else _added(_added(a, b, 1), most, -1)
    return 0, frozenset({((e.op, frozenset((a, b))) if e.op == "*" else (e.op, a, b), 1)})


def _shifted(e: ExprLike) -> tuple[ExprLike, int]:
    """Returns an expression without the number added to it, and this."""
    return (e.a, e.b) if isinstance(e, Bin) and e.op == "+" and isinstance(e.b, int) else (e, 0)


def settled(e: ExprLike) -> ExprLike:
    """Returns the number, or the shorter sum of lengths, that an expression is in every call; otherwise the expression itself."""
    if not isinstance(e, Bin):
        return e
    constant, terms = normal(e)
    if not all(isinstance(term, Leaf) for term, _ in terms):
        return e
    factors = dict(terms)
    total: ExprLike = 0
    for leaf in dict.fromkeys(leaves(e)):
        total = combine("+", total, combine("*", leaf, factors.get(leaf, 0)))
    total = combine("+", total, constant)
    return total if getattr(total, "size", 0) < e.size else e


def _added(a: Sum, b: Sum, factor: int) -> Sum:
    """Returns a + factor * b."""
    terms = dict(a[1])
    for term, n in b[1]:
        terms[term] = terms.get(term, 0) + factor * n
    return _joined(a[0] + factor * b[0], {t: n for t, n in terms.items() if n})


def _joined(constant: int, terms: dict[Any, int]) -> Sum:
    """Returns a sum in which x // k + (x + 1) // k + ... + (x + k - 1) // k is x (Hermite's identity)."""
    for term in list(terms):
        if type(term) is tuple and term[0] == "//" and type(term[2]) is int:
            (_, of), k = term[1], term[2]
            every = [("//", (i, of), k) for i in range(k)] if k <= MOST_TERMS else []
            least = min([terms.get(t, 0) for t in every], default=0)
            if least > 0:
                rest = {t: n - least if t in every else n for t, n in terms.items()}
                return _added((constant, frozenset((t, n) for t, n in rest.items() if n)), (0, of), least)
    return constant, frozenset(terms.items())


def _quotient(e: ExprLike, k: int) -> Sum:
    """Returns the normal form of e // k."""
    inner, shift = _shifted(e)
    if isinstance(inner, Bin) and inner.op in ("min", "max"):  # division keeps the order
        return normal(Bin(inner.op, Bin("//", Bin("+", inner.a, shift), k), Bin("//", Bin("+", inner.b, shift), k)))
    return _divided(normal(e), k)


def _divided(a: Sum, k: int) -> Sum:
    constant, terms = a
    whole = constant // k, frozenset((t, n // k) for t, n in terms if n // k)
    rest = constant % k, frozenset((t, n % k) for t, n in terms if n % k)
    if not rest[1]:
        return whole
    shared = math.gcd(k, *[n for _, n in rest[1]])
    if shared > 1:
        rest, k = (rest[0] // shared, frozenset((t, n // shared) for t, n in rest[1])), k // shared
        return _added(_divided(rest, k), whole, 1)
    (term, n), *others = rest[1]
    if not others and n == 1 and type(term) is tuple:
        if term[0] == "//" and type(term[2]) is int:
            return _added(_divided(_added(term[1], (rest[0] * term[2], frozenset()), 1), k * term[2]), whole, 1)
        if term[0] == "max":
            return _added(_most([_divided(_added(x, (rest[0], frozenset()), 1), k) for x in term[1]]), whole, 1)
    return _added((0, frozenset({(("//", rest, k), 1)})), whole, 1)


def _most(sums: Iterable[Sum]) -> Sum:
    """Returns the largest of sums: of those that no other one reaches in every call, less what their constants have in common."""
    found: dict[Sum, None] = {}
    for constant, terms in sums:
        (term, n), *others = terms or ((None, 0),)
        if not others and n == 1 and type(term) is tuple and term[0] == "max":
            found.update(dict.fromkeys([(x[0] + constant, x[1]) for x in term[1]]))
        else:
            found[constant, terms] = None
    kept = [x for x in found if not any(y != x and _is_least(_added(y, x, -1)) for y in found)]
    if len(kept) == 1:
        return kept[0]
    least = min([constant for constant, _ in kept])
    return least, frozenset({(("max", frozenset((constant - least, terms) for constant, terms in kept)), 1)})


def _is_least(a: Sum) -> bool:
    """Whether a sum is made of lengths in such a way that no call makes it negative."""
    return a[0] >= 0 and all(n > 0 and _is_natural(t) for t, n in a[1])


def _is_natural(term: Any) -> bool:
    if type(term) is not tuple:
        return type(term) in (Len, Idx)
    if term[0] == "//":
        return _is_least(term[1]) and (type(term[2]) is int or _is_least(term[2]))
    return (any if term[0] == "max" else all)(map(_is_least, term[1])) if term[0] in ("max", "*") else False


def is_length(e: ExprLike) -> bool:
    """Whether an expression is one of lengths, and its normal form shows that no call makes it negative."""
    return not_negative(e) or _is_least(normal(e))


def can_be_equal(a: ExprLike, b: ExprLike) -> bool:
    """Whether two lengths are equal for some lengths from 1 and computed numbers from 0 on, of about a thousand cases that are tried.

    With more than five of these, True.
    """
    found = tuple(dict.fromkeys((*leaves(a), *leaves(b))))
    if len(found) > 5:
        return True
    tried = [range(0 if isinstance(leaf, Run) else 1, 2 + int(1024 ** (1 / len(found)))) for leaf in found]
    cases = (dict(zip(found, numbers, strict=True)) for numbers in itertools.product(*tried))
    return any(evaluate(a, case.__getitem__) == evaluate(b, case.__getitem__) for case in cases)


def leaves(e: ExprLike) -> tuple[Leaf, ...]:
    """Returns every leaf, left to right, with repetition."""
    if not isinstance(e, Bin):
        return (e,) if isinstance(e, Leaf) else ()
    if e._leaves is None:
        found, todo = list[Leaf](), [e.b, e.a]
        while todo:
            x = todo.pop()
            if isinstance(x, Leaf):
                found.append(x)
            elif isinstance(x, Bin):
                todo += (x.b, x.a)
        e._leaves = tuple(found)
    return e._leaves


def substitute(e: ExprLike, leaf: Callable[[Leaf], ExprLike]) -> ExprLike:
    """Returns `e` with each leaf replaced by `leaf(leaf)`."""
    if isinstance(e, Leaf):
        return leaf(e)
    if isinstance(e, Bin):
        a, b = substitute(e.a, leaf), substitute(e.b, leaf)
        return e if a is e.a and b is e.b else combine(e.op, a, b)
    return e


def evaluate(e: ExprLike, leaf: Callable[[Leaf], Any]) -> Any:
    """Returns the value of `e`; `leaf` gives integers or NumPy integer arrays (which broadcast)."""
    if isinstance(e, Bin):
        return APPLY[e.op](evaluate(e.a, leaf), evaluate(e.b, leaf))
    if isinstance(e, Leaf):
        return leaf(e)
    return e


_LEVEL = {"+": 1, "-": 1, "*": 2, "//": 2, "%": 2}


def text(e: ExprLike, leaf: Callable[[Leaf], str] | None = None, level: int = 0) -> str:
    """Returns `e` in Python syntax; `leaf` prints the leaves (default: `Len(H)`)."""
    if isinstance(e, Leaf):
        return leaf(e) if leaf else f"{type(e).__name__}({e.of})"
    if isinstance(e, Bin):
        if e.op in ("min", "max"):
            return f"{e.op}({text(e.a, leaf)}, {text(e.b, leaf)})"
        mine = _LEVEL[e.op]
        if e.op == "+" and isinstance(e.b, int) and e.b < 0:
            inner = f"{text(e.a, leaf, mine)} - {-e.b}"
        else:
            inner = f"{text(e.a, leaf, mine)} {e.op} {text(e.b, leaf, mine + 1)}"
        return f"({inner})" if level > mine else inner
    return str(e) if not isinstance(e, int) or e >= 0 or level == 0 else f"({e})"

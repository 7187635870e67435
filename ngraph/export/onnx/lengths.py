"""Properties that hold for every length that a call brings.

Lengths are piecewise linear in those of the inputs, with few pieces, so a property that holds for many of them holds: it is tested on
some, small and large ones, without an algebra of floors and minima.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ngraph.op_graph import expr
from ngraph.op_graph.expr import Bin, ExprLike, Idx, Len
from ngraph.passes.reach import reach
from ngraph.program.program import AxisId

TRIED = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 23, 31, 32, 50, 64, 97, 257, 1000)
Length = Callable[[AxisId], ExprLike]


def indexed(e: ExprLike) -> list[AxisId]:
    """Returns the axes whose indices an expression contains, each once."""
    return list(dict.fromkeys(leaf.of for leaf in expr.leaves(e) if isinstance(leaf, Idx)))


def assignments(*expressions: ExprLike) -> Iterator[dict[AxisId, int]]:
    """Yields lengths for the symbols of some expressions; none where a step computes one."""
    leaves = [leaf for e in expressions for leaf in expr.leaves(e) if not isinstance(leaf, Idx)]
    if not all(isinstance(leaf, Len) for leaf in leaves):
        return
    symbols = list(dict.fromkeys(leaf.of for leaf in leaves))
    for n in TRIED if symbols else TRIED[:1]:
        yield {a: n + (2 * n + 3) * k for k, a in enumerate(symbols)}


def value(e: ExprLike, at: dict[AxisId, int]) -> int:
    return int(expr.evaluate(e, lambda leaf: at[leaf.of]))


def numbers(*expressions: ExprLike) -> list[tuple[int, ...]]:
    """Returns the values of some expressions together, for each assignment."""
    return [tuple([value(e, at) for e in expressions]) for at in assignments(*expressions)]


def same(a: ExprLike, b: ExprLike) -> bool:
    """Whether two lengths are equal."""
    if a == b or (isinstance(a, int) and isinstance(b, int)):
        return bool(a == b)
    found = numbers(a, b)
    return bool(found) and all(x == y for x, y in found)


def constant(e: ExprLike) -> int | None:
    """Returns the number that an expression always equals; None where it varies."""
    if isinstance(e, int):
        return e
    found = set(numbers(e))
    return found.pop()[0] if len(found) == 1 else None


def beyond(e: ExprLike, n: ExprLike, length: Length) -> tuple[int, int] | None:
    """Returns how far an index goes below 0, and how far beyond the end of n; None where that varies."""
    found: set[tuple[int, int]] = set()
    axes = indexed(e)
    tried = False
    for at in assignments(e, n, *[length(a) for a in axes]):
        tried = True
        size = value(n, at)
        if size <= 0 or any(value(length(a), at) <= 0 for a in axes):
            continue
        r = reach(e, lambda a, at=at: at[a] if a in at else value(length(a), at))  # type: ignore[misc]  # a lambda with defaults
        if r is None:
            return None
        found.add((max(0, -r[0]), max(0, r[1] - size + 1)))
    if tried and not found:
        return 0, 0
    return found.pop() if len(found) == 1 else None


def positive(e: ExprLike) -> bool:
    """Whether an expression of lengths and indices is provably not negative."""
    if isinstance(e, int):
        return e >= 0
    if isinstance(e, Bin):
        if e.op == "max":
            return positive(e.a) or positive(e.b)
        return e.op == "%" or (e.op != "-" and positive(e.a) and positive(e.b))
    return True

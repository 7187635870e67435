"""Value ranges of index expressions: interval arithmetic over `Idx` and `Len`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ngraph.op_graph.expr import Bin, ExprLike, Idx, Len

Interval = tuple[int, int]
Length = Callable[[Any], "int | None"]


def reach(e: ExprLike, length: Length) -> Interval | None:
    """Returns the least and largest value of `e`; None where a length or divisor is unknown, or there is no index at all."""
    if isinstance(e, int):
        return e, e
    if isinstance(e, Bin):
        a, b = reach(e.a, length), reach(e.b, length)
        return None if a is None or b is None else _apply(e.op, a, b)
    if type(e) is Idx or type(e) is Len:
        n = length(e.of)
        if n is not None and (n > 0 or type(e) is Len):
            return (0, n - 1) if type(e) is Idx else (n, n)
    return None


def _apply(op: str, a: Interval, b: Interval) -> Interval | None:
    if op == "+":
        return a[0] + b[0], a[1] + b[1]
    if op == "-":
        return a[0] - b[1], a[1] - b[0]
    if op == "*":
        corners = [x * y for x in a for y in b]
        return min(corners), max(corners)
    if op == "min":
        return min(a[0], b[0]), min(a[1], b[1])
    if op == "max":
        return max(a[0], b[0]), max(a[1], b[1])
    if b[0] <= 0:
        return None
    if op == "//":
        corners = [x // y for x in a for y in b]
        return min(corners), max(corners)
    return (a if 0 <= a[0] and a[1] < b[0] else (0, b[1] - 1)) if op == "%" else None


def inside(e: ExprLike, n: int | None, length: Length) -> bool:
    """Whether `e` provably lies in 0 .. n - 1."""
    r = reach(e, length)
    return r is not None and n is not None and 0 <= r[0] and r[1] < n


def never_negative(e: ExprLike, length: Length) -> bool:
    r = reach(e, length)
    return r is not None and r[0] >= 0

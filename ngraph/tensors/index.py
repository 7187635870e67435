"""Reads at indices: what a value is made of, at which place of it, and what follows from that for expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ngraph.op_graph import expr
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import ExprLike, Idx, Leaf, Len
from ngraph.program.program import AxisId


class Load(Leaf):
    """The whole number that a line has at this index; in a graph of nodes, that a read gives."""

    __slots__ = ()


class Read:
    """One element of a source at each index; `fill` where a guard is negative."""

    __slots__ = ("source", "index", "guard", "fill", "_axes", "_identity_indexed", "walk")

    def __init__(self, source: Any, index: dict[AxisId, ExprLike], guard: tuple[ExprLike, ...] = (), fill: Any = 0):
        self.source, self.index, self.guard, self.fill = source, index, guard, fill
        self._axes: frozenset[AxisId] | None = None
        self._identity_indexed: frozenset[AxisId] | None = None
        self.walk: Any = None  # what `price` found out about it

    @property
    def axes(self) -> frozenset[AxisId]:
        """The axes that it moves along."""
        if self._axes is None:
            self._axes = frozenset(a for e in (*self.index.values(), *self.guard) for a in loop_variant_axes(e))
        return self._axes

    @property
    def identity_indexed(self) -> frozenset[AxisId]:
        """The axes of the source that are read at the reader's own index of that name."""
        if self._identity_indexed is None:
            self._identity_indexed = frozenset(a for a, e in self.index.items() if type(e) is Idx and e.of == a)
        return self._identity_indexed

    def of(self, source: Any) -> Read:
        """The same read of another source that has these axes."""
        made = Read(source, self.index, self.guard, self.fill)
        made._axes, made._identity_indexed = self._axes, self._identity_indexed
        return made

    def at(self, index: Mapping[AxisId, ExprLike]) -> Read:
        """The same read where each `Idx` of an axis in `index` is that expression."""
        moved = {a: substitute_index(e, index) for a, e in self.index.items()}
        return Read(self.source, moved, tuple([substitute_index(g, index) for g in self.guard]), self.fill)


def loop_variant_axes(e: ExprLike) -> Iterable[AxisId]:
    """The axes along which an expression moves, those of reads inside it too."""
    for leaf in expr.leaves(e):
        if type(leaf) is Idx:
            yield leaf.of
        elif type(leaf) is Load and type(leaf.of) is Read:
            yield from leaf.of.axes


def loads(*exprs: ExprLike) -> list[Any]:
    """Returns the loads in expressions."""
    return [leaf.of for e in exprs for leaf in expr.leaves(e) if type(leaf) is Load]


def substitute_index(e: ExprLike, index: Mapping[AxisId, ExprLike]) -> ExprLike:
    """An expression at another index."""

    def leaf(x: Leaf) -> ExprLike:
        if type(x) is Idx:
            return index.get(x.of, x)
        if type(x) is Load and type(x.of) is Read:
            return Load(x.of.at(index))
        return x

    return expr.substitute(e, leaf)


def in_order(kind: str, dtype: DType) -> bool:
    """Whether terms are combined one after the other, as products of floats are.

    A part of a product may overflow, or become 0, where the whole does not: of 1e3, 1e-3, 1e3, 1e-3 and so on every second factor.
    """
    return kind == "multiply" and dtype.is_float


def identity_index(axes: Iterable[AxisId]) -> dict[AxisId, ExprLike]:
    """Every axis at its own index."""
    return {a: Idx(a) for a in axes}


def affine(e: ExprLike) -> tuple[dict[AxisId, int], int] | None:
    """({axis: coefficient}, constant); None for what is not a sum of multiples of indices."""
    if isinstance(e, int):
        return {}, e
    if type(e) is Idx:
        return {e.of: 1}, 0
    if type(e) is not expr.Bin or e.op not in ("+", "-", "*"):
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
    if form is not None:  # an index that stands twice counts once
        low: float = form[1]
        high: float = form[1]
        for axis, k in form[0].items():
            n = length(axis)
            far = k * (math.inf if n is None else max(n - 1, 0)) if n != 1 else 0
            low, high = low + min(0, far), high + max(0, far)
        return low, high
    if type(e) is not expr.Bin:
        return unknown
    a, b = bounds(e.a, length)
    c, d = bounds(e.b, length)
    if e.op == "+":
        return a + c, b + d
    if e.op == "-":
        return a - d, b - c
    if e.op in ("min", "max"):
        return (min(a, c), min(b, d)) if e.op == "min" else (max(a, c), max(b, d))
    if math.inf in (abs(a), abs(b), abs(c), abs(d)):
        return (0, d - 1) if e.op == "%" and c == d > 0 else unknown
    if e.op == "*":
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if c != d or c <= 0:
        return unknown
    return (a // c, b // c) if e.op == "//" else ((a, b) if 0 <= a and b < c else (0, c - 1))


def depth(e: ExprLike) -> int:
    """Returns the length of the chain of dependent loads in an expression."""
    inner = [leaf.of for leaf in expr.leaves(e) if type(leaf) is Load]
    return max([1 + max(map(depth, (*r.index.values(), *r.guard)), default=0) if type(r) is Read else 1 for r in inner], default=0)

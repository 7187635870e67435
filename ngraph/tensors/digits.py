"""Axes that are read at digits of their index become one axis for each digit.

A reshape that joins dims, such as that of a group normalisation, gives a value whose one axis is read at `i // n` and `i % n` of what it is
made of. Reductions and elementwise values over that axis are as well values over the two: then nothing divides, every value lies as its
readers want it, and each is fused with its neighbours. This holds for lengths that calls bring, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from ngraph.op_graph import expr
from ngraph.op_graph.expr import Bin, Expr, ExprLike, Idx, Len, combine
from ngraph.parts.runner import pass_
from ngraph.program.program import AxisId, attr_axes
from ngraph.tensors.edit import GraphEditor
from ngraph.tensors.graph import Arg, IndexValue, TensorGraph
from ngraph.tensors.index import Read, divided_axes, in_order, loop_variant_axes, same, substitute_index


@pass_(keeps=("integer sums",))
def split_digits(graph: TensorGraph) -> TensorGraph:
    """Splits the axes of reductions and elementwise values that are read at digits, where fewer divisions are left."""
    wanted = dict.fromkeys([a for n in graph.nodes for r in n.reads for a in divided_axes(r) if a in n.space])
    if not wanted:
        return graph
    e = GraphEditor(graph)
    for a in wanted:
        _Split(e, a).apply()
    return e.frozen()


class Digit(NamedTuple):
    """An axis that stands for a digit of another: the index along that one grows by `stride` with each place."""

    axis: AxisId
    stride: ExprLike
    length: ExprLike


class _Split:
    """The values over one axis, and what reads them."""

    def __init__(self, graph: GraphEditor, axis: AxisId):
        self.graph, self.axis, self.length = graph, axis, graph.formula(axis)
        self.nodes = [n for n in graph.nodes if axis in n.space]
        self.members, self.sources = set(self.nodes), {n for n in self.nodes if axis in n.axes}
        self.known: dict[ExprLike, ExprLike] = {}  # what expressions became

    def apply(self) -> None:
        """Splits the axis, if that is possible and leaves fewer divisions."""
        strides = self.strides()
        if not strides:
            return
        self.digits = self.named(strides)
        sum_: ExprLike = 0
        for d in self.digits:
            sum_ = sum_ + Idx(d.axis) * d.stride
        self.at = {self.axis: sum_}
        readers = [n for n in self.graph.nodes if n in self.members or any(r.source in self.sources for r in n.reads)]
        made = [[self.read(r, n in self.members) for r in n.reads] for n in readers]
        found = [r for reads in made for r in reads if r is not None]
        before = [r for n in readers for r in n.reads]
        if len(found) < len(before) or _divisions(found) >= _divisions(before):
            return
        for n in readers:
            n.reread(partial(self.moved, n in self.members))
        for n in self.nodes:
            names = [d.axis for d in self.digits]
            n.args = tuple([self.value(a) for a in n.args])
            n.reduced = tuple([b for a in n.reduced for b in (names if a == self.axis else [a])])
            n.axes = tuple([b for a in n.axes for b in (names if a == self.axis else [a])])
            n.set_args(n.args)
        last = self.digits[-1].axis
        self.graph.preferences = [(s, last if a == self.axis else a, w) for s, a, w in self.graph.preferences]
        self.graph.again()

    def strides(self) -> list[ExprLike]:
        """Returns the strides of the digits that are read, the largest first; none where the axis has to stay."""
        given = {r.source for r in self.graph.numbers.values()}
        found: list[ExprLike] = []
        for n in self.nodes:
            fixed = n.kind not in ("elem", "reduce") or n.result or n.state or n in given or n.selects or n.split_k is not None
            fixed = fixed or (n.kind == "reduce" and in_order(n.op, n.dtype))
            if fixed or any(self.axis in attr_axes(v) for v in n.attrs.values()):
                return []
            for r in n.reads:
                inside = r.source in self.sources
                if inside and r.index[self.axis] != Idx(self.axis):
                    return []
                for a, e in r.index.items():
                    read = [] if inside and a == self.axis else list(_strides(e, self.axis))
                    if None in read:
                        return []
                    found += [s for s in read if s is not None]
        return self.chain(found)

    def chain(self, found: list[ExprLike]) -> list[ExprLike]:
        """Returns strides in order, each a multiple of the next and a divisor of the length; none where they are not."""
        chain: list[ExprLike] = []
        for s in found:
            k = next((k for k, t in enumerate(chain) if quotient(t, s) is None), len(chain))
            if s != 1 and not self.equal(s, self.length) and not any(self.equal(s, t) for t in chain):
                chain.insert(k, s)
        whole = [self.length, *chain, 1]
        return chain if all(quotient(s, t) is not None for s, t in zip(whole, whole[1:], strict=False)) else []

    def named(self, strides: list[ExprLike]) -> list[Digit]:
        made: list[Digit] = []
        for above, stride in zip([self.length, *strides], [*strides, 1], strict=True):
            length = quotient(above, stride)
            assert length is not None
            made.append(Digit(self.graph.axis(f"{self.axis}_{len(made)}", length), stride, length))
        return made

    def read(self, r: Read, inside: bool) -> Read | None:
        """Returns a read over the digits; None where a division would be left that there was not. `inside`: by a value over the axis."""
        index: dict[AxisId, ExprLike] = {}
        for a, e in r.index.items():
            if a != self.axis or r.source not in self.sources:
                index[a] = self.simple(substitute_index(e, self.at) if inside else e)
            elif inside:
                index.update({d.axis: Idx(d.axis) for d in self.digits})
            else:
                places = {d.axis: self.simple(self.place(d, e)) for d in self.digits}
                if not all(map(_plain, places.values())):
                    return None
                index.update(places)
        predicate = tuple([self.simple(substitute_index(e, self.at)) for e in r.predicate]) if inside else r.predicate
        return Read(r.source, index, tuple([p for p in predicate if not self.graph.holds(p)]), r.pad_value)

    def moved(self, inside: bool, r: Read) -> Read:
        return self.read(r, inside) or r

    def place(self, d: Digit, e: ExprLike) -> ExprLike:
        """Returns the digit of an index."""
        e = combine("//", e, d.stride)
        return e if d is self.digits[0] else combine("%", e, d.length)

    def value(self, a: Arg) -> Arg:
        return IndexValue(substitute_index(a.value, self.at), a.dtype) if type(a) is IndexValue else a

    def simple(self, e: ExprLike) -> ExprLike:
        if e not in self.known:
            self.known[e] = simplified(e, self.graph)
        return self.known[e]

    def equal(self, a: ExprLike, b: ExprLike) -> bool:
        return same(a, b, self.graph.formula)


def _strides(e: ExprLike, axis: AxisId) -> Iterator[ExprLike | None]:
    """Yields the strides of the digits of an axis that an index has; None where it moves with the axis in another way."""
    if type(e) is not Bin or axis not in loop_variant_axes(e):
        if axis in loop_variant_axes(e):
            yield None
        return
    if e.op not in ("//", "%") or not _fixed(e.b):
        if e.op in ("+", "-", "*"):
            yield from _strides(e.a, axis)
            yield from _strides(e.b, axis)
        else:
            yield None
        return
    inner, low = (e.a.a, e.a.b) if e.op == "%" and type(e.a) is Bin and e.a.op == "//" else (e.a, 1)
    terms = linear(inner)
    if terms is None or terms[0].get(Idx(axis)) != 1 or not _fixed(low):
        yield None
        return
    yield low if e.op == "%" else e.b
    if e.op == "%":
        yield combine("*", low, e.b)


def _fixed(e: ExprLike) -> bool:
    """Whether an expression is one of lengths alone."""
    return isinstance(e, int) or all(type(leaf) is Len for leaf in expr.leaves(e))


def _divisions(reads: Iterable[Read]) -> int:
    """Returns the number of divisions of indices in reads."""
    return sum([_count(e) for r in reads for e in r.index.values()])


def _count(e: ExprLike) -> int:
    """Returns the number of divisions of indices in an expression."""
    if type(e) is not Bin:
        return 0
    return (e.op in ("//", "%") and not _fixed(e.a)) + _count(e.a) + _count(e.b)


def _plain(e: ExprLike) -> bool:
    """Whether an index is a sum of multiples of indices, or a digit of one by a number."""
    if type(e) is Bin and e.op in ("//", "%"):
        return isinstance(e.b, int) and (type(e.a) is Idx or (e.op == "%" and _plain(e.a)))
    terms = linear(e)
    return terms is not None and all(type(i) is Idx or _plain(i) for i in terms[0])


# ---- divisions that are exact --------------------------------------------------------------------------------------------


Moves = dict[Expr, ExprLike]  # {an index or a digit of one: how far one step of it leads}


def linear(e: ExprLike) -> tuple[Moves, ExprLike] | None:
    """Returns ({index or digit: coefficient}, constant), which lengths may be in; None for what is no such sum."""
    if _fixed(e):
        return {}, e
    if type(e) is Idx or (type(e) is Bin and e.op in ("//", "%") and _fixed(e.b)):
        return {e: 1}, 0
    if type(e) is not Bin or e.op not in ("+", "-", "*"):
        return None
    a, b = linear(e.a), linear(e.b)
    if a is None or b is None or (e.op == "*" and a[0] and b[0]):
        return None
    if e.op == "*":
        (moves, start), factor = (a, b[1]) if a[0] else (b, a[1])
        return {k: c * factor for k, c in moves.items()}, start * factor
    moves = dict(a[0])
    for k, c in b[0].items():
        moves[k] = combine(e.op, moves.get(k, 0), c)
    return moves, combine(e.op, a[1], b[1])


def quotient(a: ExprLike, b: ExprLike) -> ExprLike | None:
    """Returns a / b for a product of lengths and numbers that has the factors of b; None where it has not."""
    above, below = _factors(a), _factors(b)
    number, rest = above[0], list(above[1])
    for f in below[1]:
        if f not in rest:
            return None
        rest.remove(f)
    if below[0] == 0 or number % below[0]:
        return None
    made: ExprLike = number // below[0]
    for f in rest:
        made = f * made
    return made


def _factors(e: ExprLike) -> tuple[int, list[ExprLike]]:
    if isinstance(e, int):
        return e, []
    if type(e) is Bin and e.op == "*":
        a, b = _factors(e.a), _factors(e.b)
        return a[0] * b[0], [*a[1], *b[1]]
    return 1, [e]


def simplified(e: ExprLike, graph: GraphEditor) -> ExprLike:
    """Returns an index in which divisions whose result is known from the lengths of axes are carried out."""
    if type(e) is not Bin:
        return e
    a, b = simplified(e.a, graph), simplified(e.b, graph)
    if e.op == "//" and _fixed(b):
        return _floor(a, b, graph)
    if e.op == "%" and _fixed(b):
        return _remainder(a, b, graph)
    return combine(e.op, a, b)


def _floor(a: ExprLike, by: ExprLike, graph: GraphEditor) -> ExprLike:
    if type(a) is Bin and a.op == "%" and (more := quotient(a.b, by)) is not None:  # of i % (n * m) by n: i // n % m
        return _remainder(_floor(a.a, by, graph), more, graph)
    terms = linear(a)
    if terms is not None and terms[1] == 0:
        for unit in [by, *_units(terms[0], by)]:
            whole, rest = _parts(terms[0], unit)
            if whole and _below(rest, unit, graph):
                return combine("//", _sum(whole), quotient(by, unit) or 1)
        if _below(terms[0], by, graph):
            return 0
    return combine("//", a, by)


def _remainder(a: ExprLike, by: ExprLike, graph: GraphEditor) -> ExprLike:
    if type(a) is Bin and a.op == "%" and quotient(a.b, by) is not None:
        return _remainder(a.a, by, graph)
    terms = linear(a)
    if terms is not None and terms[1] == 0:
        _, rest = _parts(terms[0], by)
        if _below(rest, by, graph):
            return _sum(rest)
        for unit in _units(rest, by):  # (i * c + j) % (c * m) is i % m * c + j
            whole, less = _parts(rest, unit)
            if _below(less, unit, graph):
                return _remainder(_sum(whole), quotient(by, unit) or 1, graph) * unit + _sum(less)
        a = _sum(rest)
    return combine("%", a, by)


def _units(moves: Moves, by: ExprLike) -> list[ExprLike]:
    """Returns the steps of terms, above 1, that divide a number."""
    return [c for c in moves.values() if (not isinstance(c, int) or c > 1) and quotient(by, c) is not None]


def _parts(moves: Moves, unit: ExprLike) -> tuple[Moves, Moves]:
    """Returns the terms that are multiples of a unit, in units, and the others."""
    whole = {i: q for i, c in moves.items() if (q := quotient(c, unit)) is not None}
    return whole, {i: c for i, c in moves.items() if i not in whole}


def _sum(moves: Moves) -> ExprLike:
    made: ExprLike = 0
    for i, c in moves.items():
        made = made + i * c
    return made


def _below(moves: Moves, end: ExprLike, graph: GraphEditor) -> bool:
    """Whether a sum of multiples of indices and digits is never negative, and always less than `end`."""
    if not moves:
        return True
    if all(isinstance(c, int) and c >= 0 for c in moves.values()) and graph.holds(_sum(moves)) and graph.holds(end - 1 - _sum(moves)):
        return True
    for i, c in moves.items():  # the largest term spans all, and the others lie within one step of it
        places = graph.formula(i.of) if isinstance(i, Idx) else i.b if isinstance(i, Bin) and i.op == "%" else None
        if places is not None and same(places * c, end, graph.formula):
            return _below({j: k for j, k in moves.items() if j is not i}, c, graph)
    return False

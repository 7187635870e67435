"""Splits the gradient of a strided window into one dense reduction per residue class (polyphase decomposition).

An axis whose index is read as `(a * o + c * r + d) // k`, predicated by its remainder, is made as k values of its own: `o = k * o' + e`.
In each the terms of r that remain are known, the division is exact, and no predicate is left; together they are one value again.

A reduction of a few terms, such as that of a pooling window, is unrolled: it is then elementwise, and can be fused with its readers.

A value whose elements are read at a quotient `o // k`, as for adjacent windows, is split into k classes, too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ngraph.op_graph import dtypes, expr
from ngraph.op_graph.expr import Bin, ExprLike, Idx
from ngraph.parts.runner import pass_
from ngraph.parts.walk import post_order
from ngraph.program.program import AxisId
from ngraph.targets.products import PRODUCTS
from ngraph.targets.tuning import MAX_CLASSES_OF_AXIS, MAX_CLASSES_OF_REDUCTION, MAX_UNROLLED_TERMS
from ngraph.tensors.edit import Draft, GraphEditor
from ngraph.tensors.graph import Arg, IndexValue, PiecewisePart, ScalarConstant, TensorGraph, TensorNode, dtype_of
from ngraph.tensors.index import Load, Read, affine, bounds, identity_index, in_order, loop_variant_axes, same, simplest, substitute_index

PAIR = {"add": "add", "multiply": "multiply", "max": "maximum", "min": "minimum"}


class Cut(NamedTuple):
    """The predicate `(out * o + window * r + start) % by == 0`; r may be None."""

    o: AxisId
    r: AxisId | None
    out: int
    window: int
    start: int
    by: int


class ResidueClass(NamedTuple):
    """One residue class of a cut: o and r as expressions of shorter axes, and the lengths of these."""

    first: int
    r_first: int
    r_step: int
    r_count: int


@pass_(keeps=("integer sums",))
def split_strided_reductions(graph: TensorGraph) -> TensorGraph:
    """Splits reductions and quotients into residue classes, and unrolls reductions of few terms."""
    if not any(n.kind == "reduce" and _few(graph, n) or any(map(_has_digits, n.reads)) for n in graph.nodes):
        return graph
    e = GraphEditor(graph)
    _instead(
        e,
        lambda n: _cuts(e, n) if n.kind == "reduce" and not in_order(n.op, n.dtype) else [],
        lambda n, cuts: _by_residue(e, n, cuts),
    )
    _instead(e, lambda n: n.kind == "reduce" and _few(e, n), lambda n, _: _terms(e, n))
    _part(e)
    return e.frozen()


def _has_digits(r: Read) -> bool:
    """Whether an index or a predicate of the read holds a quotient or a remainder."""
    todo: list[ExprLike] = [e for e in (*r.index.values(), *r.predicate) if type(e) is Bin]
    while todo:
        e = todo.pop()
        if type(e) is Bin:
            if e.op in ("//", "%"):
                return True
            todo += (e.a, e.b)
    return False


def _instead(graph: GraphEditor, chosen: Callable[[Draft], Any], make: Callable[[Draft, Any], None]) -> None:
    """Replaces each node for which `chosen` has a value by what is built of the two."""
    before, graph.nodes = graph.nodes, []  # new ones go here
    changed = False
    for n in before:
        found = chosen(n)
        if found:
            changed, graph.origin = True, n.origin
            make(n, found)
        else:
            graph.nodes.append(n)
    if changed:
        graph.again()


def _cone(n: Draft) -> list[Read]:
    """Returns the reads of a reduction, and those of the product that it sums."""
    own = [a for a in n.args if type(a) is Read]
    r = own[0] if own else None
    m = r.source if r is not None else None
    if (
        r is None
        or not isinstance(m, Draft)
        or m.kind != "elem"
        or len(m.users) > 1
        or m.result
        or r.predicate
        or len(r.identity_indexed) < len(r.index)
    ):
        return own
    return [*own, *[a for a in m.args if type(a) is Read]]


def _cuts(graph: GraphEditor, n: Draft) -> list[Cut]:
    """Returns the remainders in a reduction's predicates, if they are independent."""
    found: dict[AxisId, Cut] = {}
    cone = _cone(n)
    for r in cone:
        for g in r.predicate:
            if type(g) is not Bin or g.op != "-" or g.a != 0 or type(g.b) is not Bin or g.b.op != "%" or type(g.b.b) is not int:
                continue
            if not _adds_nothing(n, cone, r):
                return []
            cut = _cut(n, g.b.a, g.b.b)
            if cut is None or found.get(cut.o, cut) != cut:
                return []
            found[cut.o] = cut
    cuts = list(found.values())
    windows = [c.r for c in cuts if c.r is not None]
    known = all(graph.known(r) is not None for r in windows)
    several = 1
    for c in cuts:
        several *= c.by
    return cuts if known and several <= MAX_CLASSES_OF_REDUCTION and len(set(windows)) == len(windows) else []


def _adds_nothing(n: Draft, cone: list[Read], r: Read) -> bool:
    """Whether a term whose read gives the pad value is the identity of the reduction, so that classes may omit it."""
    if len(cone) == 1:
        return bool(r.pad_value == _nothing(n))
    m = cone[0].source
    k = next(k for k, a in enumerate(m.args) if a is r) if r is not cone[0] else None
    if k is None or n.op != "add" or r.pad_value != 0:
        return False
    return m.op in PRODUCTS or (m.op == "where" and k > 0 and all(_is_zero(a) for j, a in enumerate(m.args) if j not in (0, k)))


def _is_zero(a: Arg) -> bool:
    return type(a) is ScalarConstant and bool(a.value == 0)


def _cut(n: Draft, e: ExprLike, by: int) -> Cut | None:
    form = affine(e)
    if form is None or by < 2:
        return None
    moves = {a: k for a, k in form[0].items() if k % by}
    outs, windows = [a for a in moves if a in n.axes], [a for a in moves if a in n.reduced]
    if len(outs) != 1 or len(windows) > 1 or len(moves) != 1 + len(windows):
        return None
    r = windows[0] if windows else None
    return Cut(outs[0], r, moves[outs[0]], moves[r] if r is not None else 0, form[1], by)


def _ways(graph: GraphEditor, c: Cut) -> Iterable[ResidueClass]:
    """Returns the terms of r for each remainder of o: first, step and number."""
    length = (graph.known(c.r) or 0) if c.r is not None else 1
    for first in range(c.by):
        terms = [v for v in range(length) if (c.out * first + c.window * v + c.start) % c.by == 0]
        step = terms[1] - terms[0] if len(terms) > 1 else 1
        yield ResidueClass(first, terms[0] if terms else 0, step, len(terms))


def _counted(graph: GraphEditor, c: Cut, first: int) -> ExprLike:
    """Returns the number of elements of a residue class that begins at `first`."""
    return simplest((graph.formula(c.o) + (c.by - 1 - first)) // c.by, graph.formula)


def _class(graph: GraphEditor, c: Cut, first: int, o: AxisId) -> tuple[ExprLike, list[ExprLike]]:
    """Returns the index of a class's elements, and, where the axis is longer than the class, the predicate of those inside."""
    own = _counted(graph, c, first)
    return Idx(o) * c.by + first, [] if same(own, graph.formula(o), graph.formula) else [own - 1 - Idx(o)]


def _by_residue(graph: GraphEditor, n: Draft, cuts: list[Cut]) -> None:
    parts, together = [], _few(graph, n)
    for ways in itertools.product(*[list(_ways(graph, c)) for c in cuts]):
        index: dict[AxisId, ExprLike] = {}
        names: dict[AxisId, AxisId | None] = {}  # what an axis becomes; None where one term remains
        predicates: list[ExprLike] = []
        for c, w in zip(cuts, ways, strict=True):
            names[c.o] = o = graph.axis(f"{c.o}_by{c.by}", _counted(graph, c, 0 if together else w.first))
            index[c.o], ends = _class(graph, c, w.first, o)
            predicates += ends
            if c.r is not None:
                names[c.r] = r = graph.axis(f"{c.r}_by{w.r_step}", w.r_count) if w.r_count > 1 else None
                index[c.r] = w.r_first if r is None else Idx(r) * w.r_step + w.r_first
        axes = tuple([names.get(a, a) or a for a in n.axes])
        place = {a: index.get(a, Idx(a)) for a in n.axes}
        empty = not all(w.r_count for w in ways)
        value = ScalarConstant(_nothing(n), n.dtype) if empty else _one(graph, n, axes, index, names)
        parts.append(PiecewisePart(axes, value, place, tuple(predicates)))
    _join(graph, n, parts)


def _join(graph: GraphEditor, n: Draft, parts: list[PiecewisePart]) -> None:
    """Replaces a value by the join of its residue classes, which are disjoint."""
    graph.replaced(n, graph.node("join", "join", [], n.axes, n.dtype, parts=tuple(parts), disjoint=True).source)


def _nothing(n: Draft) -> object:
    """Returns the identity of the reduction."""
    return {"add": 0, "multiply": 1, "max": n.dtype.lowest, "min": n.dtype.highest}[n.op]


def _one(graph: GraphEditor, n: Draft, axes: tuple[AxisId, ...], index: dict[AxisId, ExprLike], names: dict[AxisId, AxisId | None]) -> Arg:
    """Returns the reduction of one residue class."""
    reduced = tuple([b for a in n.reduced if (b := names.get(a, a)) is not None])
    (arg,) = n.args
    assert type(arg) is Read
    if len(_cone(n)) > 1:
        m = arg.source
        space = tuple([b for a in m.axes if (b := names.get(a, a)) is not None])
        arg = graph.node("elem", m.op, [_moved(graph, a, index) for a in m.args], space, m.dtype, attrs=m.attrs)
        moved: Arg = arg
    else:
        moved = _moved(graph, arg, index)
    return graph.node("reduce", n.op, [moved], axes, n.dtype, reduced=reduced) if reduced else moved


def _moved(graph: GraphEditor, a: Arg, index: dict[AxisId, ExprLike]) -> Arg:
    """Returns an argument at another index: exact divisions are simplified, predicates that always hold dropped, and bounds checked."""
    return _predicated(graph, a.at(index))


def _predicated(graph: GraphEditor, made: Arg) -> Arg:
    if type(made) is IndexValue:
        return IndexValue(exact(_inside(graph, made.value)), made.dtype)
    if type(made) is not Read:
        return made
    at = {k: exact(_inside(graph, e)) for k, e in made.index.items()}
    ends: list[ExprLike] = []
    for k, e in at.items():
        low, high = bounds(e, graph.known)
        ends += [e] if 0 > low > -math.inf else []
        end = exact(graph.length(k) - 1 - e)
        classes = high == math.inf and any(a in graph.made and graph.known(a) is None for a in loop_variant_axes(e))
        ends += [end] if classes or math.inf > high > (graph.known(k) or math.inf) - 1 else []
    predicates = [g for g in dict.fromkeys([*[exact(_inside(graph, g)) for g in made.predicate], *ends]) if not graph.holds(g)]
    return Read(made.source, at, tuple(predicates), made.pad_value)


def _inside(graph: GraphEditor, e: ExprLike) -> ExprLike:
    """Returns an expression whose own reads are predicated, too."""
    if type(e) is int:
        return e
    return expr.substitute(e, lambda x: Load(_predicated(graph, x.of)) if type(x) is Load and type(x.of) is Read else x)


def exact(e: ExprLike) -> ExprLike:
    """Returns an expression with exact divisions carried out."""
    if type(e) is not Bin:
        return Load(e.of) if type(e) is Load else e
    a, b = exact(e.a), exact(e.b)
    if e.op in ("//", "%") and type(b) is int and b > 0:
        form = affine(a)
        if form is not None and all(k % b == 0 for k in form[0].values()):
            if e.op == "%":
                return form[1] % b
            return _sum({x: k // b for x, k in form[0].items()}, form[1] // b)
    made = expr.combine(e.op, a, b)
    form = affine(made)
    return _sum(*form) if form is not None else made


def _sum(moves: dict[AxisId, int], start: int) -> ExprLike:
    made: ExprLike = 0
    for a, k in moves.items():
        made = made + Idx(a) * k
    return made + start


# ---- few terms ----------------------------------------------------------------------------------------------------------


def _few(graph: TensorGraph | GraphEditor, n: TensorNode) -> bool:
    """Whether a reduction has few terms, at least one, and sums no products."""
    lengths = [graph.known(a) for a in n.reduced]
    terms = math.prod([k or 0 for k in lengths])
    m = n.args[0].source if type(n.args[0]) is Read else None
    product = isinstance(m, TensorNode) and m.op in PRODUCTS and m.kind == "elem"
    return 0 < terms <= MAX_UNROLLED_TERMS and n.dtype.kind != "bool" and not product and n.axes != ()


def _terms(graph: GraphEditor, n: Draft) -> None:
    made: Read | None = None
    places = [dict(zip(n.reduced, at, strict=True)) for at in itertools.product(*[range(graph.known(a) or 0) for a in n.reduced])]
    if n.selects:
        graph.replaced(n, _chosen(graph, n, places))
        return
    for at in places:
        term = _fixed(graph, n.args[0], at, {})
        made = (
            graph.elem("copy", term, axes=n.axes, dtype=n.dtype)
            if made is None
            else graph.elem(PAIR[n.op], made, term, axes=n.axes, dtype=n.dtype)
        )
    assert made is not None
    graph.replaced(n, made.source)


def _chosen(graph: GraphEditor, n: Draft, places: list[dict[AxisId, int]]) -> Draft:
    """Returns the first index of the best value, for reductions of `_argreduce`: a better value replaces it, a NaN does so for good."""
    hit = _within(n.args[0], 0)
    value = _within(hit if hit.source.op == "compare" else _within(hit, 1), 0)
    dtype = dtype_of(value)
    best, place = _fixed(graph, value, places[0], {}), graph.elem("copy", ScalarConstant(0, n.dtype), axes=n.axes, dtype=n.dtype)
    for k, at in enumerate(places[1:], 1):
        x = _fixed(graph, value, at, {})
        ordered = (x, best) if n.selects == "max" else (best, x)
        stays = graph.elem("compare", *ordered, axes=n.axes, dtype=dtypes.bool_, kind="le")
        rest: Arg = ScalarConstant(True, dtypes.bool_)
        if dtype.is_float:
            rest = graph.elem("compare", best, best, axes=n.axes, dtype=dtypes.bool_, kind="eq")
        better = graph.elem("where", stays, ScalarConstant(False, dtypes.bool_), rest, axes=n.axes, dtype=dtypes.bool_)
        best = graph.elem("where", better, x, best, axes=n.axes, dtype=dtype)
        place = graph.elem("where", better, ScalarConstant(k, n.dtype), place, axes=n.axes, dtype=n.dtype)
    return place.source


def _within(a: Arg, k: int) -> Any:
    """Returns the k-th operand of a value that is read, at the same index."""
    assert type(a) is Read
    return a.source.args[k].at(a.index)


def _fixed(graph: GraphEditor, a: Arg, at: dict[AxisId, int], known: dict[Draft, Draft]) -> Arg:
    """Returns an argument at one index along some axes; operands computed over them are computed at that index."""
    if type(a) is not Read or not isinstance(a.source, Draft) or not _along(a, at):
        return _moved(graph, a, dict(at))

    def needs(n: Draft) -> Iterable[Draft]:
        return [r.source for r in n.args[::-1] if type(r) is Read and isinstance(r.source, Draft) and _along(r, at)]

    for n in post_order([a.source], needs, known):
        args = [_at(graph, r, at, known) for r in n.args]
        axes = tuple([x for x in n.axes if x not in at])
        known[n] = graph.elem(n.op, *args, axes=axes, dtype=n.dtype, **n.attrs).source
    return _at(graph, a, at, known)


def _along(a: Read, at: dict[AxisId, int]) -> bool:
    """Whether a read has a node as its source, at the reader's own index along these axes."""
    n = a.source
    return (
        isinstance(n, Draft)
        and n.kind == "elem"
        and not n.result
        and n.op != "random_bits"
        and a.identity_indexed.issuperset(at)
        and n.space.issuperset(at)
    )


def _at(graph: GraphEditor, a: Arg, at: dict[AxisId, int], known: dict[Draft, Draft]) -> Arg:
    if type(a) is not Read or a.source not in known or not _along(a, at):  # it may be read at other places, too
        return _moved(graph, a, dict(at))
    index = {x: exact(substitute_index(e, dict(at))) for x, e in a.index.items() if x not in at}
    return Read(known[a.source], index, tuple([exact(substitute_index(g, dict(at))) for g in a.predicate]), a.pad_value)


# ---- k elements of one place --------------------------------------------------------------------------------------------


def _part(graph: GraphEditor) -> None:
    """Replaces each value read at `o // k`, and the elementwise values that lead to it, by their k residue classes."""
    cuts: dict[Draft, dict[AxisId, Cut]] = {}
    for n in graph.nodes:
        found = _quotients(graph, n, cuts) if n.kind == "elem" else {}
        if found and math.prod([c.by for c in found.values()]) <= MAX_CLASSES_OF_REDUCTION:
            cuts[n] = found
    _instead(graph, lambda n: n in cuts and _stands(n, cuts), lambda n, _: _parted(graph, n, cuts))


def _quotients(graph: GraphEditor, n: Draft, cuts: dict[Draft, dict[AxisId, Cut]]) -> dict[AxisId, Cut]:
    """Returns the axes of an elementwise value whose quotients are read, directly or through operands; {} where they conflict."""
    found: dict[AxisId, Cut] = {}
    for r in n.reads:
        s = r.source
        here = list(cuts[s].values()) if isinstance(s, Draft) and s in cuts and _on_the_way(s, r, n) else []
        made = isinstance(s, Draft) and s.kind == "elem" and not s.result
        for e in r.index.values():
            if type(e) is Bin and e.op in ("//", "%") and type(e.b) is int and 2 <= e.b <= MAX_CLASSES_OF_AXIS:
                cut = _cut(n, e.a, e.b)
                if cut is None or (e.op == "%" and not made):  # digits of what lies in memory: a copy
                    return {}
                here.append(cut)
        for cut in here:
            if found.setdefault(cut.o, cut).by != cut.by:
                return {}
    return found


def _on_the_way(s: Draft, r: Read, n: Draft) -> bool:
    """Whether an elementwise value reads its operand at the same index."""
    simple = s.kind == "elem" and s.op != "random_bits" and not s.result and not r.predicate
    return simple and s.space == n.space and len(r.identity_indexed) == len(r.index)


def _stands(n: Draft, cuts: dict[Draft, dict[AxisId, Cut]]) -> bool:
    """Whether a value is materialised anyway: it is a result, an operand of a contraction, or read at another index."""
    for u in n.users:
        for r in u.reads:
            if r.source is n and len(r.identity_indexed) == len(r.index) and (u in cuts or u.kind != "elem" or u.space == n.space):
                return False
    return True


def _parted(graph: GraphEditor, n: Draft, cuts: dict[Draft, dict[AxisId, Cut]]) -> None:
    parts, mine = [], cuts[n].values()
    for firsts in itertools.product(*[range(c.by) for c in mine]):
        index: dict[AxisId, ExprLike] = {}
        names: dict[AxisId, AxisId] = {}
        predicates: list[ExprLike] = []
        for c, first in zip(mine, firsts, strict=True):
            names[c.o] = o = _fewer(graph, n, c)
            index[c.o], ends = _class(graph, c, first, o)
            predicates += ends
        axes = tuple([names.get(a, a) for a in n.axes])
        place = {a: index.get(a, Idx(a)) for a in n.axes}
        parts.append(PiecewisePart(axes, _moved_with(graph, n, index, names, cuts), place, tuple(predicates)))
    _join(graph, n, parts)


def _fewer(graph: GraphEditor, n: Draft, c: Cut) -> AxisId:
    """Returns the axis of the classes: that of the source, if it has their length, so that values over it are read at their own index."""
    length = _counted(graph, c, 0)
    for r in n.reads:
        for a, e in r.index.items():
            if type(e) is Bin and e.op == "//" and e.a == Idx(c.o) and e.b == c.by and a not in n.space:
                if same(graph.formula(a), length, graph.formula):
                    return a
    return graph.axis(f"{c.o}_by{c.by}", length)


def _moved_with(
    graph: GraphEditor, n: Draft, index: dict[AxisId, ExprLike], names: dict[AxisId, AxisId], cuts: dict[Draft, dict[AxisId, Cut]]
) -> Read:
    """Returns a value at the indices of a class, with the elementwise operands that are split, too, or have no other reader."""
    made: dict[Draft, Read] = {}

    def ways(m: Draft) -> list[Read]:
        leading = [a for a in m.args if type(a) is Read and isinstance(a.source, Draft) and _on_the_way(a.source, a, m)]
        return [a for a in leading if a.source in cuts or len(a.source.users) == 1]

    for m in post_order([n], lambda m: [a.source for a in ways(m)[::-1]], made):
        taken = ways(m)
        args = [made[a.source] if a in taken else _placed(graph, _moved(graph, a, index)) for a in m.args]
        made[m] = graph.elem(m.op, *args, axes=tuple([names.get(x, x) for x in m.axes]), dtype=m.dtype, **m.attrs)
    return made[n]


def _placed(graph: GraphEditor, a: Arg) -> Arg:
    """Returns an argument; a node read at one index along some axes is computed for that index."""
    at = {x: e for x, e in a.index.items() if type(e) is int} if type(a) is Read else {}
    if type(a) is not Read or not isinstance(a.source, Draft) or not at or a.predicate or len(at) + len(a.identity_indexed) < len(a.index):
        return a
    return _fixed(graph, Read(a.source, identity_index(a.source.axes)), at, {})

"""Verifier of tensor graphs: `verify` names the node that violates an invariant. Fusion does not check; kernels would be wrong."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from ngraph.errors import ProgramError
from ngraph.op_graph import dtypes, expr
from ngraph.op_graph.expr import Expr, ExprLike, Idx, Len, Run
from ngraph.op_graph.op import TensorType
from ngraph.op_graph.opdef import REGISTRY
from ngraph.program.program import AxisId, Value
from ngraph.targets.products import DOTS, PACKS
from ngraph.tensors.graph import (
    DERIVED,
    FMA,
    Constant,
    IndexValue,
    PiecewisePart,
    TensorGraph,
    TensorNode,
    changed,
    dtype_of,
    known_length,
    sizes,
)
from ngraph.tensors.index import Load, Read, affine, bounds, depth, loads
from ngraph.tensors.text import node_text

ARGUMENTS = {
    "copy": 1,
    **dict.fromkeys(FMA, 3),
    **{op: row.k for op, row in PACKS.items()},
    **dict.fromkeys(DOTS, 2),
}  # of operations that programs lack
COMBINES = ("add", "multiply", "max", "min")


def verify(graph: TensorGraph) -> TensorGraph:
    """Returns the graph itself, if it is valid. Raises ProgramError with the node, the rule and what disagrees."""
    complaint = next(_lengths(graph), None)
    there: set[Any] = set(graph.sources)
    for n in graph.nodes:
        if complaint is None:
            complaint = next(_node(graph, n, there), None)
        if complaint is not None:
            raise ProgramError(f"tensor graph {graph.name}: {complaint}", details=tuple(node_text(graph, n).splitlines()))
        there.add(n)
    complaint = complaint or next(_ends(graph, there), None)
    if complaint is not None:
        raise ProgramError(f"tensor graph {graph.name}: {complaint}")
    return graph


def _lengths(g: TensorGraph) -> Iterator[str]:
    """Checks that lengths refer to lengths and numbers of this graph."""
    for a, length in g.axes.items():
        for leaf in expr.leaves(length) if isinstance(length, Expr) else ():
            if type(leaf) is Len and leaf.of not in g.axes:
                yield f"the length of {a} is made of that of {leaf.of}, which is not an axis of the graph"
            elif type(leaf) is Run and leaf.of not in g.numbers:
                yield f"the length of {a} is made of a number that no node has"
            elif type(leaf) is Idx or type(leaf) is Load:
                yield f"the length of {a} depends on an index"
        known = known_length(g.axes, a, {})
        if known != g.lengths.get(a, known):
            yield f"{a} has {g.lengths[a]} places in the table of known lengths, and is {known} long"
        if known is not None and known < 0:
            yield f"{a} has the length {known}"
    yield from (f"{a} is said to be made by rewrites, and is not an axis of the graph" for a in sorted(g.made - set(g.axes)))


def _node(g: TensorGraph, n: TensorNode, there: set[Any]) -> Iterator[str]:
    every = (*n.axes, *n.reduced)
    if n in there:
        yield f"{n!r} occurs twice"
    if n.kind not in ("elem", "reduce", "join", "routine", "part"):
        yield f"{n!r} is of no kind that there is"
    if len(set(every)) < len(every):
        yield f"{n!r} has an axis twice: {', '.join(every)}"
    yield from (f"{n!r} is over {a}, which is not an axis of the graph" for a in every if a not in g.axes)
    if n.split_k is not None and (n.kind != "reduce" or n.split_k not in n.axes):
        yield f"{n!r} has parts along {n.split_k}, which is none of its axes"
    for r, predicate in _reads(n):
        yield from _read(g, n, r, predicate, there)
    yield from _kind(g, n)
    fresh = changed(n)
    for name in DERIVED:
        if getattr(n, name) != getattr(fresh, name):
            yield f"{n!r} says {name} = {getattr(n, name)}, and that follows to be {getattr(fresh, name)}"
    if (n.size, n.bytes) != sizes(n, g.guesses):
        yield f"{n!r} says it has {n.size} operations and {n.bytes} bytes, and it has {sizes(n, g.guesses)}"


def _reads(n: TensorNode) -> Iterator[tuple[Read, tuple[ExprLike, ...]]]:
    """Yields the reads of a node, each with the predicates under which it is made.

    A read inside an index is made where those predicates of the reads around it hold that are known without it.
    """
    todo: list[tuple[Any, tuple[ExprLike, ...]]] = [(a, ()) for a in (*n.args, *(p.arg for p in n.parts))]
    for p in n.parts:
        todo += [(inner, p.predicate) for inner in loads(*p.place.values(), *p.predicate)]
    seen = set[tuple[int, tuple[ExprLike, ...]]]()
    while todo:
        a, around = todo.pop()
        if type(a) is IndexValue:
            todo += [(inner, around) for inner in loads(a.value)]
        elif type(a) is Read:
            size = depth(Load(a))
            every = tuple(dict.fromkeys((*a.predicate, *(e for e in around if depth(e) < size))))
            if (id(a), every) not in seen:
                seen.add((id(a), every))
                yield a, every
                todo += [(inner, every) for inner in loads(*a.index.values(), *a.predicate)]


def _read(g: TensorGraph, n: TensorNode, r: Read, predicates: tuple[ExprLike, ...], there: set[Any]) -> Iterator[str]:
    source = r.source
    if type(source) is not Constant and source not in there:
        yield f"{n!r} reads {source!r}, which does not stand before it"
    if not isinstance(source, TensorNode | Constant | Value):
        yield f"{n!r} reads {source!r}, which is not a value"
        return
    if set(r.index) != set(source.axes):
        yield f"{n!r} reads {source!r} at an index of [{', '.join(r.index)}]"
        return
    if isinstance(source, TensorNode) and source.kind == "routine" and n.kind != "part":
        yield f"{n!r} reads {source!r}, of which only parts have values"
    if any(isinstance(e, int) and e < 0 for e in predicates):
        return  # it never reads
    inside = [inner for inner in loads(*predicates) if type(inner) is Read]
    predicated = {x for predicate in predicates for x in _moving(predicate)}.union(*[inner.axes for inner in inside])
    for a, e in r.index.items():
        size, moving = g.known(a), _moving(e)
        if not size or affine(e) is None or not all(g.known(x) for x in moving) or not predicated.isdisjoint(moving):
            continue
        low, high = bounds(e, g.known)
        if low < 0 or high >= size:
            yield f"{n!r} reads {source!r} at {e!r} along {a}, from {low} to {high} of {size} places, and no predicate is about that"


def _moving(e: ExprLike) -> set[AxisId]:
    return {leaf.of for leaf in expr.leaves(e) if type(leaf) is Idx}


def _scope(n: TensorNode, what: str, exprs: Iterable[ExprLike], axes: Iterable[AxisId]) -> Iterator[str]:
    """Checks that indices, and reads inside them, use axes of the node."""
    todo, seen = list(exprs), set[AxisId]()
    while todo:
        e = todo.pop()
        seen |= _moving(e)
        for inner in loads(e):
            todo += (*inner.index.values(), *inner.predicate)
    lost = sorted(seen.difference(axes))
    if lost:
        yield f"{what} of {n!r} moves along {', '.join(lost)}, over which it is not"


def _arg_exprs(a: Any) -> list[ExprLike]:
    return [a.value] if type(a) is IndexValue else [*a.index.values(), *a.predicate] if type(a) is Read else []


def _kind(g: TensorGraph, n: TensorNode) -> Iterator[str]:
    axes = {"reduce": [a for a in (*n.axes, *n.reduced) if a != n.split_k], "join": [], "part": [], "routine": []}.get(n.kind, n.axes)
    for k, a in enumerate(n.args if n.kind != "routine" else ()):
        yield from _scope(n, f"argument {k}", _arg_exprs(a), axes)
    if n.kind != "reduce" and (n.reduced or n.selects):
        yield f"{n!r} is not a reduction, and says over what it is one"
    if n.kind != "join" and (n.parts or n.disjoint or n.inline):
        yield f"{n!r} is not a join, and has parts"
    if n.kind == "elem":
        yield from _elementwise(n)
    elif n.kind == "reduce":
        if len(n.args) != 1 or n.op not in COMBINES or not n.reduced:
            yield f"{n!r} is not a reduction of one argument over some axes by one of {', '.join(COMBINES)}"
        elif dtype_of(n.args[0]) is not n.dtype:
            yield f"{n!r} combines values of {dtype_of(n.args[0]).name}"
    elif n.kind == "join":
        for p in n.parts:
            yield from _part(n, p)
        if n.disjoint:
            yield from _disjoint(g, n)
    elif n.kind == "part":
        (r,) = n.args
        if type(r) is not Read or not isinstance(r.source, TensorNode) or r.source.kind != "routine":
            yield f"{n!r} is part of no routine"
    elif n.kind == "routine":
        for a in n.args:
            if type(a) is not Read or a.predicate or len(a.identity_indexed) < len(a.source.axes):
                yield f"{n!r} takes a value that does not lie somewhere whole"


def _elementwise(n: TensorNode) -> Iterator[str]:
    record = REGISTRY.get(n.op)
    if n.op in ARGUMENTS:
        if len(n.args) != ARGUMENTS[n.op]:
            yield f"{n!r} has {len(n.args)} arguments, and takes {ARGUMENTS[n.op]}"
        if (n.op == "copy" or n.op in FMA) and any(dtype_of(a) is not n.dtype for a in n.args):
            yield f"{n!r} has arguments of {', '.join([dtype_of(a).name for a in n.args])}"
    elif record is None:
        yield f"{n!r} is of no operation that there is"
    elif n.op != "random_bits":
        attrs = {**n.attrs, "dtype": n.dtype} if n.op in ("cast", "bitcast") else dict(n.attrs)
        made = record.type(tuple([TensorType((), dtype_of(a)) for a in n.args]), **attrs)
        if type(made) is not TensorType or made.dtype is not n.dtype:
            yield f"{n!r} of {', '.join([dtype_of(a).name for a in n.args])} would be {made}"


def _part(n: TensorNode, p: PiecewisePart) -> Iterator[str]:
    if set(p.place) != set(n.axes):
        yield f"a part of {n!r} is written at an index of [{', '.join(p.place)}]"
    if dtype_of(p.arg) is not n.dtype:
        yield f"a part of {n!r} has values of {dtype_of(p.arg).name}"
    if p.combine not in ("set", *COMBINES):
        yield f"a part of {n!r} meets what is there by {p.combine}"
    yield from _scope(n, "a part", [*_arg_exprs(p.arg), *p.place.values(), *p.predicate], p.axes)


def _disjoint(g: TensorGraph, n: TensorNode) -> Iterator[str]:
    """Checks that no two parts write to one element, and none does so twice: they differ along one axis, by range or by remainder."""
    for k, p in enumerate(n.parts):
        lost = set(p.axes).difference(*[set(_moving(e)) for e in p.place.values()])
        if any((g.known(a) or 2) > 1 for a in lost):
            yield f"part {k} of {n!r} writes at one place for all of {', '.join(sorted(lost))}"
    there = [(k, p) for k, p in enumerate(n.parts) if 0 not in map(g.known, p.axes)]  # a part over no places writes nowhere
    for (j, p), (k, q) in itertools.combinations(there, 2):
        if not any(_apart(g, p, q, a) for a in n.axes):
            yield f"parts {j} and {k} of {n!r} may write at one place"


def _apart(g: TensorGraph, p: PiecewisePart, q: PiecewisePart, a: AxisId) -> bool:
    """Whether two parts provably write to different indices along an axis."""
    forms = [affine(part.place[a]) for part in (p, q)]
    if any(f is None for f in forms):
        return True  # lengths that a call brings stand in it
    ranges = [bounds(part.place[a], g.known) for part in (p, q)]
    if ranges[0][1] < ranges[1][0] or ranges[1][1] < ranges[0][0]:
        return True
    (x, start), (y, other) = forms  # type: ignore[misc]  # both are there
    steps = [abs(c) for c in (*x.values(), *y.values()) if c]
    step = min(steps, default=0)
    return step > 1 and all(s % step == 0 for s in steps) and (start - other) % step != 0


def _ends(g: TensorGraph, there: set[Any]) -> Iterator[str]:
    leaving = {*g.outputs, *[n for _, _, n in g.state_out], *[r.source for r in g.numbers.values() if isinstance(r.source, TensorNode)]}
    yield from (f"{n!r} leaves the graph and does not stand in it" for n in leaving if n not in there)
    for n in g.nodes:
        if n.result != (n in leaving):
            yield f"{n!r} {'leaves the graph, and does not say so' if n in leaving else 'says that it leaves the graph, and does not'}"
        if n.kind == "elem" and not n.result and not g.users[n]:
            yield f"{n!r} is read by nobody, and does not leave the graph"
    known = {s.name: s.value for s in g.states}
    for name, before, n in g.state_out:
        if known.get(name) is not before or n.state != name:
            yield f"{n!r} becomes the state {name!r}, which is none that comes in, or it does not say so"
        elif n.axes != before.axes or n.dtype is not before.dtype:
            yield f"{n!r} becomes the state {name!r} of {before.type}"
    yield from (
        f"a number of {r.source!r} is not a single one" for r in g.numbers.values() if r.source.axes or r.source.dtype is dtypes.token
    )
    if g.token_out is not None and g.token_out not in there:
        yield f"the last effect, {g.token_out!r}, does not stand in the graph"

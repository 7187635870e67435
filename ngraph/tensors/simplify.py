"""Target-independent rewrites: values over the axes of their readers, fused multiply-adds, split reductions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ngraph.op_graph.expr import ExprLike, Idx
from ngraph.parts.runner import pass_
from ngraph.program.program import AxisId
from ngraph.tensors.edit import GraphEditor, Rebuilt, free_axis, users_of
from ngraph.tensors.graph import TensorGraph, TensorNode, changed, derive
from ngraph.tensors.index import Read, identity_index, same

Users = Callable[[Any], Any]
Known = Callable[[AxisId], int | None]
Length = Callable[[AxisId], ExprLike]


# ---- renaming -------------------------------------------------------------------------------------------------------------


@pass_(keeps=("integer sums",))
def rename_axes(graph: TensorGraph) -> TensorGraph:
    """Computes a value over axis b if all its readers read axis a at `Idx(b)`, so that it can be fused with them.

    A value stays as it is where this would keep it from being fused with an operand that others read, too.
    """
    if not any(True for _ in _renamed(graph.nodes, graph.users.__getitem__, graph.formula)):
        return graph
    e = GraphEditor(graph)
    names: dict[TensorNode, dict[AxisId, AxisId]] = {}
    for n, found in _renamed(e.nodes, users_of, e.formula):
        names[n] = found
        n.moved(tuple([found.get(a, a) for a in n.axes]), {a: Idx(b) for a, b in found.items()})

    def rekeyed(r: Read) -> Read:
        known = names.get(r.source, {})
        return Read(r.source, {known.get(k, k): i for k, i in r.index.items()}, r.predicate, r.pad_value) if known else r

    for n in e.nodes:
        if any(r.source in names for r in n.reads):
            n.reread(rekeyed)
    return e.frozen()


def _renamed(nodes: Any, users: Users, length: Length) -> Any:
    """Yields the nodes to rename, the last first, with the new names of their axes; a node may be changed before the next is searched."""
    at: dict[TensorNode, list[Read]] = {}
    for n in reversed(nodes):
        if n.kind in ("elem", "reduce") and not n.result:
            reads = at.get(n, [])
            found = {a: b for a in n.axes if (b := _asked(a, reads, length)) is not None and _free(n, a, users)}
            if found and len({*[found.get(a, a) for a in n.axes], *n.reduced}) == len(n.space):
                yield n, found
        for r in n.reads:
            if isinstance(r.source, TensorNode):
                at.setdefault(r.source, []).append(r)


def _asked(a: AxisId, reads: list[Read], length: Length) -> AxisId | None:
    """Returns the axis whose index all these reads use along a, if it is another axis of the same length."""
    wanted = {e.of if type(e) is Idx else None for r in reads for e in [r.index[a]]}
    b = wanted.pop() if len(wanted) == 1 else None
    return b if b is not None and b != a and same(length(a), length(b), length) else None


def _free(n: TensorNode, a: AxisId, users: Users) -> bool:
    """Whether no operand of n is fixed at a by other readers; the product of a sum is never computed with its operands."""
    factors = n.kind == "elem" and n.op == "multiply" and len(users(n)) == 1 and users(n)[0].kind == "reduce"
    return factors or not any(isinstance(r.source, TensorNode) and len(users(r.source)) > 1 and a in r.identity_indexed for r in n.reads)


# ---- results that are copies ------------------------------------------------------------------------------------------------


@pass_(keeps=("integer sums",))
def drop_result_copies(graph: TensorGraph) -> TensorGraph:
    """Makes a value the result itself where that is its copy with dims in another order, or with dims of length 1; others read the result.

    A decoder that returns its cache is the case: what it joins to the cache is read by attention, too. A value that nobody else reads is
    copied in the kernel that makes it, without a dim of length 1 in the way.
    """
    if not any(_copied(n, graph.known, graph.users.__getitem__) for n in graph.nodes):
        return graph
    e = GraphEditor(graph)
    for n in list(e.nodes):
        s = _copied(n, e.known, users_of)
        if s is None:
            continue
        added: dict[AxisId, ExprLike] = {a: 0 for a in n.axes if a not in s.axes}
        s.axes, s.parts = n.axes, tuple([p._replace(place={**p.place, **added}) for p in s.parts])
        derive(s)
        for u in s.users:
            if u is not n:
                u.reread(_reading(s, added))
        e.replaced(n, s)
    return e.frozen()


def _reading(s: TensorNode, added: Mapping[AxisId, ExprLike]) -> Callable[[Read], Read]:
    """Gives reads of a value indices along the axes that it has got."""
    return lambda r: Read(s, {**r.index, **added}, r.predicate, r.pad_value) if r.source is s else r


def _copied(n: TensorNode, known: Known, users: Users) -> Any:
    """Returns the value of which a result is such a copy, and which may become it; None for other nodes."""
    r = n.args[0] if n.result and not n.state and n.kind == "elem" and n.op == "copy" else None
    if type(r) is not Read or r.predicate or not isinstance(r.source, TensorNode) or r.source.dtype is not n.dtype:
        return None
    s = r.source
    if s.kind not in ("elem", "reduce", "join") or s.result or s.inline or s.split_k is not None or r.identity_indexed != {*s.axes}:
        return None
    return s if len(users(s)) > 1 and {*s.axes}.issubset(n.axes) and all(a in s.axes or known(a) == 1 for a in n.axes) else None


# ---- fused multiply-adds ----------------------------------------------------------------------------------------------------


@pass_(keeps=("integer sums",))
def contract_fma(graph: TensorGraph) -> TensorGraph:
    """The graph in which sums whose products have no other reader are one op, rounded once: `fma(x, y, z)` = x * y + z.

    Differences are `fms`, x * y - z, and `fnma`, z - x * y. The ops are contracted here and not in code generation, so that a value that
    several kernels recompute has the same bits in all of them, and an element equals the maximum that it is.
    """
    if not any(_own_product(n, graph.users.__getitem__) for n in graph.nodes):
        return graph
    e = GraphEditor(graph)
    for n in e.nodes:
        found = _own_product(n, users_of)
        if found is not None:
            m, k = found
            n.attrs, n.origin = {}, tuple(dict.fromkeys([*m.origin, *n.origin]))
            n.op = "fma" if n.op == "add" else "fnma" if k else "fms"
            n.set_args((*m.args, n.args[1 - k]))
    return e.frozen()


def _own_product(n: TensorNode, users: Users) -> tuple[TensorNode, int] | None:
    """Returns the product that is one argument of a sum and has no other reader, and the number of that argument."""
    if n.kind != "elem" or n.op not in ("add", "subtract") or not n.dtype.is_float or n.dtype.bits < 32:
        return None
    for k in (1, 0):
        r, other = n.args[k], n.args[1 - k]
        m = r.source if type(r) is Read and not r.predicate and r.identity_indexed == n.space else None
        if not isinstance(m, TensorNode) or m.kind != "elem" or m.op != "multiply" or m.space != n.space or m.result:
            continue
        if len(users(m)) == 1 and users(m)[0] is n and not (type(other) is Read and other.source is m):
            return m, k
    return None


# ---- what fusion decides ----------------------------------------------------------------------------------------------------


def split_reductions(graph: TensorGraph, parts: Mapping[TensorNode, int]) -> tuple[TensorGraph, dict[TensorNode, TensorNode]]:
    """Splits reductions into so many partial ones and a final one (split-K). Returns the graph and new nodes by old."""
    axes, made, new = dict(graph.axes), set(graph.made), Rebuilt(graph)
    along = {n: free_axis(axes, made, "chunk", many) for n, many in parts.items()}
    for n in graph.nodes:
        node = new.current(n)
        if n not in along:
            new.add(n, node)
            continue
        a = along[n]
        part = changed(node, axes=(a, *n.axes), split_k=a, result=False, state="", bytes=n.bytes * parts[n])
        size = math.prod([graph.guesses[x] for x in n.axes]) * parts[n]
        arg = Read(part, identity_index(part.axes))
        new.add(n, part, changed(n, args=(arg,), reduced=(a,), selects="", size=size))
    return new.done(axes, made), new.became


def merge_twins(graph: TensorGraph, twins: Mapping[TensorNode, TensorNode]) -> tuple[TensorGraph, dict[TensorNode, TensorNode]]:
    """Replaces each node by the equal one that `twins` has for it. Returns the graph and new nodes by old."""
    new = Rebuilt(graph)
    for n in graph.nodes:
        if n in twins:
            new.read[n] = new.became[n] = new.became[twins[n]]
        else:
            new.add(n, new.current(n))
    return new.done(graph.axes, graph.made), new.became

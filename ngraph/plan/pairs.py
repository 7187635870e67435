"""Sums of products of bfloat16 values two terms at a time, for machines that have an instruction for it (Intel's AVX512_BF16).

So are sums of products of whole numbers up to 256, which are bfloat16 values whatever their dtype is. Products of two bfloat16 values are
exact in float32, so that adding two of them to a sum in float32 is what two fused multiply-adds do, the odd term first; only numbers below
2**-126 count as 0. Terms that follow each other along one axis of the sum become halves of 32 bits (`pair`), products of such halves are
`multiply_pairs`: to all other passes that is a sum of products like any other, half as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ngraph.op_graph import dtypes
from ngraph.op_graph.expr import Idx
from ngraph.plan.kernels import Read, bounds, moving, straight
from ngraph.plan.nodes import Arg, Graph, Node, summed
from ngraph.plan.price import PRODUCT, Machine
from ngraph.plan.whole import EXACT, whole
from ngraph.program.program import AxisId

PACK = 6.0  # of two values that become halves, written and read again
WORTH = 0.9  # of the time of all products, below which it is taken
LEAST = 1 << 16  # products that are worth another form


class Factor(NamedTuple):
    """One side of a product: how it reads a value that is a bfloat16 one, and along which axis of that value pairs lie."""

    read: Read
    at: AxisId


def paired(graph: Graph, machine: Machine) -> None:
    """Puts sums over pairs in the place of those that then take less time."""
    if not machine.pairs:
        return
    halves: dict[tuple[Any, AxisId], Read] = {}
    still = graph.parameters()
    nodes: list[Node] = []
    for n in graph.nodes:
        nodes.append(n)
        product = _product(n)
        if product is None:
            continue
        over, factors = _over(graph, n, product)
        if over is None or not _pays(graph, n, factors, still):
            continue
        graph.nodes, graph.origin = nodes, n.origin
        half = graph.axis(f"{over}.half", -(-(graph.known(over) or 0) // 2))
        args = [_half(graph, f, half, halves) for f in factors]
        axes, reduced = (tuple([half if a == over else a for a in some]) for some in (product.axes, n.reduced))
        p = graph.elem("multiply_pairs", *args, axes=axes, dtype=n.dtype)
        graph.replaced(n, graph.node("reduce", "add", [p], n.axes, n.dtype, reduced=reduced).source)
        nodes = graph.nodes
    graph.nodes = nodes
    if halves:
        graph.again()


def _product(n: Node) -> Node | None:
    """What is summed in float32, if it is a product of two values that bfloat16 can hold."""
    p = summed(n) if n.dtype is dtypes.float32 else None
    return p if p is not None and all(map(_short, p.args)) else None


def _short(a: Arg) -> bool:
    """Whether it is a value that bfloat16 can hold: one that was cast from it, or a whole number."""
    if type(a) is not Read or (a.guard and a.fill != 0):
        return False
    found = whole(a)
    return _cast(a) is not None or (found is not None and max(map(abs, found)) <= EXACT)


def _cast(r: Read) -> Read | None:
    """The bfloat16 value that it is a cast of."""
    s = r.source
    x = s.args[0] if type(s) is Node and s.kind == "elem" and s.op == "cast" else None
    return x if type(x) is Read and x.source.dtype is dtypes.bfloat16 and not x.guard else None


def _over(graph: Graph, n: Node, product: Node) -> tuple[AxisId | None, tuple[Factor, ...]]:
    """The longest axis of the sum along which both factors are read place by place."""
    best: tuple[AxisId | None, tuple[Factor, ...]] = None, ()
    most = 1
    for a in n.reduced:
        factors = [Factor(r, k) for r in product.args if type(r) is Read for k, e in r.index.items() if type(e) is Idx and e.of == a]
        ways = [sum([a in moving(e) for e in (*r.index.values(), *r.guard)]) for r in product.args if type(r) is Read]
        if (graph.known(a) or 0) > most and len(factors) == 2 and ways == [1, 1]:
            most, best = graph.known(a) or 0, (a, tuple(factors))
    return best


def _pays(graph: Graph, n: Node, factors: Iterable[Factor], still: Callable[[Read], bool]) -> bool:
    """Whether half of the products is worth the packing of what changes."""
    changing = [f.read.source for f in factors if not _still(f.read, still)]
    packed = sum([math.prod([graph.known(a) or 0 for a in source.axes]) for source in changing])
    return n.size >= LEAST and PACK * packed / 2 < (WORTH - 0.5) * PRODUCT * n.size


def _still(a: Arg, known: Callable[[Read], bool]) -> bool:
    """Whether it is made of parameters alone."""
    if type(a) is not Read or known(a):
        return True
    return type(a.source) is Node and a.source.kind == "elem" and all(_still(b, known) for b in a.source.args)


def _half(graph: Graph, f: Factor, half: AxisId, known: dict[tuple[Any, AxisId], Read]) -> Read:
    """A factor in halves; what lies behind an odd last place is 0."""
    source = f.read.source
    if (source, f.at) not in known:
        x = _cast(f.read) or Read(source, straight(source.axes))
        axes = tuple([half if a == f.at else a for a in source.axes])
        parts: list[Arg] = []
        for place in (2 * Idx(half), 2 * Idx(half) + 1):
            r, left = x.at({f.at: place}), graph.length(f.at) - 1 - place
            guarded = Read(r.source, r.index, () if bounds(left, graph.known)[0] >= 0 else (left,), 0)
            parts.append(graph.cast(guarded, axes, dtypes.bfloat16))
        known[source, f.at] = graph.elem("pair", *parts, axes=axes, dtype=dtypes.uint32)
    made = known[source, f.at].source
    (own,) = [a for a in made.axes if a not in source.axes]
    index = {a: e for a, e in f.read.index.items() if a != f.at} | {own: Idx(half)}
    return Read(made, index, f.read.guard, 0)

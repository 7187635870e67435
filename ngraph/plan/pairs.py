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
from ngraph.plan.nodes import Arg, Graph, Node
from ngraph.plan.price import Machine
from ngraph.plan.whole import EXACT, whole
from ngraph.program.program import AxisId

PRODUCT = 0.7  # vector instructions of a product that is summed
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
    nodes: list[Node] = []
    for n in graph.nodes:
        nodes.append(n)
        product = _product(n)
        if product is None:
            continue
        over, factors = _over(graph, n, product)
        if over is None or not _pays(graph, n, factors):
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
    if n.kind != "reduce" or n.op != "add" or n.dtype is not dtypes.float32:
        return None
    (arg,) = n.args
    p = arg.source if type(arg) is Read and not arg.guard and len(arg.straight) == len(arg.index) else None
    if type(p) is not Node or p.kind != "elem" or p.op != "multiply" or len(p.users) > 1 or p.result:
        return None
    return p if all(_was_short(a) or _is_short(a) for a in p.args) else None


def _was_short(a: Arg) -> bool:
    """Whether it is a bfloat16 value, cast."""
    s = a.source if type(a) is Read and not (a.guard and a.fill != 0) else None
    if type(s) is not Node or s.kind != "elem" or s.op != "cast":
        return False
    (x,) = s.args
    return type(x) is Read and x.source.dtype is dtypes.bfloat16 and not x.guard


def _is_short(a: Arg) -> bool:
    """Whether it is a whole number that bfloat16 can hold."""
    found = whole(a) if type(a) is Read and not (a.guard and a.fill != 0) else None
    return found is not None and max(map(abs, found)) <= EXACT


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


def _pays(graph: Graph, n: Node, factors: Iterable[Factor]) -> bool:
    """Whether half of the products is worth the packing of what changes."""
    packed = sum([math.prod([graph.known(a) or 0 for a in f.read.source.axes]) for f in factors if not _still(f.read, graph.parameters())])
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
        x = source.args[0] if _was_short(f.read) else Read(source, straight(source.axes))
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

"""Where values lie: what is computed once for many calls, in which order dims stand, what has a border, what is copied to panels.

Before the merge, `settle` marks the nodes that no call changes, and orders the axes of what the plan owns by its readers. After it,
`lay` gives buffers dims, borders and padding, and puts copies in front of reductions that read an operand again and again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ngraph.op_graph.expr import Idx
from ngraph.plan.kernels import Read
from ngraph.plan.nodes import Constant, Graph, Node
from ngraph.plan.price import DEAR, REREAD, SMALL, Machine
from ngraph.program.program import AxisId


def settle(graph: Graph, machine: Machine) -> None:
    """What is decided about nodes before they are merged."""
    _mark_once(graph)
    _order(graph, machine)


# ---- what no call changes -------------------------------------------------------------------------------------------------


def _mark_once(graph: Graph) -> None:
    """Nodes that depend on constants and on state that is only read, where keeping their value is worth more than computing it again."""
    written = {old for _, old, _ in graph.state}
    still = {s.value for s in graph.program.state_in} - written
    cost: dict[Node, float] = {}
    for n in graph.nodes:
        sources = [r.source for r in n.reads]
        n.once = n.kind in ("elem", "reduce", "join") and not n.result and bool(sources)
        n.once = n.once and all(s.once if type(s) is Node else type(s) is Constant or s in still for s in sources)
        cost[n] = 2 * DEAR if n.kind != "elem" else n.weight + sum([cost.get(s, 1) for s in sources])
    for n in reversed(graph.nodes):
        if n.once and not all(u.once for u in n.users):
            n.once = cost[n] > DEAR or (cost[n] > 2 and n.size <= SMALL)


# ---- the order of dims ----------------------------------------------------------------------------------------------------

Votes = dict[AxisId, float]


def _order(graph: Graph, machine: Machine) -> None:
    """Puts last, in each value that the plan owns, the axis along which its readers and its writer want to walk.

    Elementwise values over one space go together. A contraction wants its result and one operand contiguous along the axis that its
    vectors take, and the other along what it sums: its votes weigh as much as its products, all others as much as what they move.
    """
    length = graph.guesses()
    family = _families(graph)
    votes: dict[Node, Votes] = {}
    fixed: set[Node] = set()

    def vote(s: object, a: AxisId | None, weight: float) -> None:
        if type(s) is Node and a is not None and a in s.axes:
            mine = votes.setdefault(family[s], {})
            mine[a] = mine.get(a, 0.0) + weight * min(1.0, length[a] / machine.lanes)

    for n in graph.nodes:
        if n.result or n.kind in ("routine", "part", "join"):
            vote(n, n.axes[-1] if n.axes else None, n.size)
            fixed.add(n)
        for r in n.reads:
            if n.kind in ("routine", "part"):
                fixed.add(r.source)
            elif not isinstance(r.source, Node) and r.source.axes:
                e = r.index[r.source.axes[-1]]
                vote(n, e.of if type(e) is Idx else None, n.size)
        found = contraction(n, length.__getitem__, machine)
        if found is not None:
            vote(n, found.vector, n.size)
            for r in found.reads:
                along = found.vector if found.vector in r.straight else found.inner(r)
                vote(r.source, next((a for a, e in r.index.items() if type(e) is Idx and e.of == along), None), n.size)
    for n in graph.nodes:
        mine = votes.get(family[n])
        if n not in fixed and mine and len(n.axes) > 1:
            last = max(mine, key=lambda a: (mine[a], -n.axes.index(a) if a in n.axes else -99))
            if last in n.axes:
                n.axes = (*[a for a in n.axes if a != last], last)


def _families(graph: Graph) -> dict[Node, Node]:
    """For each node the first of those with which it shares its order: elementwise ones over one space."""
    parent: dict[Node, Node] = {}

    def root(n: Node) -> Node:
        while parent[n] is not n:
            parent[n] = parent[parent[n]]
            n = parent[n]
        return n

    for n in graph.nodes:
        parent[n] = n
        for r in n.reads:
            s = r.source
            if type(s) is Node and n.kind == "elem" and len(r.straight) == len(s.axes) == len(n.axes) and s.axes:
                a, b = sorted((root(s), root(n)), key=lambda x: x.number)
                parent[b] = a
    return {n: root(n) for n in graph.nodes}


class Contraction(NamedTuple):
    """A sum of products that reads operands again and again: along which free axis its vectors lie, and what it reads."""

    vector: AxisId
    reads: tuple[Read, ...]
    reduced: tuple[AxisId, ...]
    length: Callable[[AxisId], int]

    def inner(self, r: Read) -> AxisId | None:
        """What an operand without the vector axis should be contiguous along: the longest axis that is summed, else any."""
        own = [a for a in self.reduced if a in r.straight and self.length(a) > 1]
        own = own or [a for a in sorted(r.straight) if self.length(a) > 1]
        return max(own, key=lambda a: self.length(a)) if own else None


def contraction(n: Node, length: Callable[[AxisId], int], machine: Machine) -> Contraction | None:
    """A reduction of a product as a contraction, if an operand lacks a free axis of some length."""
    if n.kind != "reduce":
        return None
    (arg,) = n.args
    p = arg.source if type(arg) is Read else None
    if type(p) is not Node or p.kind != "elem" or p.op != "multiply" or not all(type(a) is Read for a in p.args):
        return None
    operands = [a for a in p.args if type(a) is Read]
    reads = tuple([o for a in operands for o in _sources(a)])
    wide = [a for a in n.axes if length(a) >= REREAD]
    if all(a in o.axes for a in wide for o in operands):
        return None
    vector = vector_of(n.axes, n.reduced, operands, length, machine.lanes)
    return None if vector is None else Contraction(vector, reads, n.reduced, length)


def _sources(r: Read) -> Iterable[Read]:
    """What an operand is made of, casts left out."""
    while type(r.source) is Node and r.source.op == "cast" and len(r.source.users) == 1 and type(r.source.args[0]) is Read:
        r = r.source.args[0].at(r.index)
    yield r


def vector_of(
    free: Sequence[AxisId], reduced: Sequence[AxisId], operands: Sequence[Read], length: Callable[[AxisId], int], lanes: int
) -> AxisId | None:
    """The free axis along which vectors of a contraction lie: filled well, moved along by one operand only, and without a window."""

    def score(a: AxisId) -> tuple[float, float]:
        n = length(a)
        full = n / (-(-n // lanes) * lanes)
        with_a = [r for r in operands if a in r.axes]
        windows = sum([a not in r.straight for r in with_a])
        shared = len(with_a) > 1
        size = sum([math.prod([length(x) for x in r.axes]) for r in with_a])
        return (full / (1 + 3 * windows) / (1 + shared), -size)

    long = [a for a in free if length(a) > 1]
    return max(long, key=lambda a: (*score(a), free.index(a))) if long else None

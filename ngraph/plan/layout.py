"""Where values lie: what is computed once for many calls, in which order dims stand, what has a border, what is copied to panels.

Before the merge, `settle` marks the nodes that no call changes, and orders the axes of what the plan owns by its readers. After it,
`lay` gives buffers dims, borders and padding, and puts copies in front of reductions that read an operand again and again.
"""

from __future__ import annotations

from ngraph.plan.nodes import Constant, Graph, Node
from ngraph.plan.price import DEAR, SMALL


def settle(graph: Graph) -> None:
    """What is decided about nodes before they are merged."""
    _mark_once(graph)


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
        cost[n] = 2 * DEAR if n.kind != "elem" else n.weight + sum([cost.get(s, 1) for s in sources])  # type: ignore[call-overload]
    for n in reversed(graph.nodes):
        if n.once and not all(u.once for u in n.users):
            n.once = cost[n] > DEAR or (cost[n] > 2 and n.size <= SMALL)

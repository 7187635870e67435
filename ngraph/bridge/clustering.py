"""Second and third phase: clusters of marked nodes, and which of them are worth a call.

Nodes are put into as few clusters as others allow: a node's level counts the changes between ours and TensorFlow's on the way to it,
over data and control edges, and the nodes of ours on one level are one cluster. A way that leaves a cluster comes back on a higher
level, so clusters have no cycles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ngraph.bridge import prices
from ngraph.bridge.flatten import TypedFunction
from ngraph.bridge.marking import VARIANT, Marks, in_order, without
from ngraph.frontends.tensorflow.graph import node_of
from ngraph.targets import chosen

LEAST_NODES = 2  # nodes that compute something in a cluster: the bridge of 2019 had the same (NGRAPH_TF_MIN_NONTRIVIAL_NODES)
LEAST_IN_LOOPS = 64  # the same in a loop's body: an LSTM's backward step of 37 nodes took 0.25 ms longer here, a train step of 150 less


class Cluster(NamedTuple):
    """A cluster's nodes, by name in order, and its level."""

    level: int
    nodes: list[str]


class Unmerged(NamedTuple):
    """An edge between nodes of ours in two clusters, or between ours and TensorFlow's, that was not contracted, and why."""

    source: str
    target: str
    reason: str


class Clustering:
    """The clusters of a function. edges: those that were not contracted; dropped: for clusters given back, the reason, with their nodes."""

    def __init__(self, clusters: list[Cluster], edges: list[Unmerged]):
        self.clusters, self.edges = clusters, edges
        self.dropped: list[tuple[str, list[str]]] = []

    @property
    def of(self) -> dict[str, int]:
        """Returns each node's cluster, by its place in `clusters`."""
        return {name: k for k, c in enumerate(self.clusters) for name in c.nodes}


def assign(function: TypedFunction, marks: Marks) -> Clustering:
    """Returns clusters of the marked nodes; takes marks from nodes whose lists of tensors would cross a cluster's border."""
    while True:
        levels = _levels(function, marks)
        crossing = _variants_across(function, marks, levels)
        if not crossing:
            break
        without(marks, crossing, "its list of tensors would leave the cluster")
    groups: dict[int, list[str]] = {}
    for name, level in levels.items():
        if name in marks.ours and name not in marks.known:
            groups.setdefault(level, []).append(name)
    made = Clustering([Cluster(level, groups[level]) for level in sorted(groups)], [])
    made.edges = _unmerged(function, marks, levels)
    return made


def _levels(function: TypedFunction, marks: Marks) -> dict[str, int]:
    """Returns each node's level. What is known has the one that it needs, and is computed again where it is used."""
    levels: dict[str, int] = {}
    for node in in_order(function):
        ours, found = node.name in marks.ours, 0
        for name in (*map(node_of, node.takes), *node.after):
            if name in levels:
                found = max(found, levels[name] + (name in marks.ours and name not in marks.known and not ours))
        levels[node.name] = found
    return levels


def _variants_across(function: TypedFunction, marks: Marks, levels: dict[str, int]) -> list[str]:
    """Returns marked nodes at ends of edges with lists of tensors whose other end is elsewhere."""
    found: dict[str, None] = {}
    results = {node_of(v) for v in function.flat.gives if function.dtype(v) == VARIANT}
    for node in function.nodes.values():
        for value in node.takes:
            if function.dtype(value) != VARIANT:
                continue
            ends = (node_of(value), node.name)
            together = all(e in marks.ours for e in ends) and levels[ends[0]] == levels[ends[1]]
            if not together or ends[0] in results:
                found.update({e: None for e in ends if e in marks.ours})
    return list(found)


def _unmerged(function: TypedFunction, marks: Marks, levels: dict[str, int]) -> list[Unmerged]:
    found = []
    for node in function.nodes.values():
        for name in (*map(node_of, node.takes), *node.after):
            if name not in levels or name in marks.known or node.name in marks.known:
                continue
            ours = [n in marks.ours for n in (name, node.name)]
            if all(ours) and levels[name] != levels[node.name]:
                found.append(Unmerged(name, node.name, "a way over nodes of TensorFlow's joins them"))
            elif any(ours) and not all(ours):
                left = node.name if ours[0] else name
                found.append(Unmerged(name, node.name, f"{function.nodes[left].op}: {marks.reasons.get(left, 'unmarked')}"))
    return found


# ---- third phase ---------------------------------------------------------------------------------------------------------


def deassign(function: TypedFunction, marks: Marks, clustering: Clustering, keep_all: bool = False, least: int = LEAST_NODES) -> bool:
    """Gives clusters back that are too small, or cheaper in TensorFlow than any plan could be; returns whether there were any.

    What a plan costs beside its call is known once it is made, with the first call (`running`): more clusters are given back then.

    keep_all: none is given back (NGRAPH_TF_DISABLE_DEASSIGN_CLUSTERS).
    """
    if keep_all:
        return False
    kept, gone = [], False
    for cluster in clustering.clusters:
        nodes = [function.nodes[name] for name in cluster.nodes]
        work = [n for n in nodes if n.op not in prices.TRIVIAL]
        reason = ""
        if len(work) < least:
            reason = f"it has {len(work)} node{'s' * (len(work) != 1)} that compute{'s' * (len(work) == 1)} something"
        else:
            theirs = prices.in_tensorflow(function, cluster.nodes, chosen())
            reason = "" if theirs is None else prices.why_given_back(prices.here(borders(function, cluster)), theirs)
        if reason:
            gone = True
            clustering.dropped.append((reason, cluster.nodes))
            without(marks, cluster.nodes, f"its cluster was given back: {reason}")
        else:
            kept.append(cluster)
    clustering.clusters = kept
    return gone


def borders(function: TypedFunction, cluster: Cluster) -> int:
    """Returns how many values of others a cluster takes."""
    inside = set(cluster.nodes)
    return len({v for name in cluster.nodes for v in function.nodes[name].takes if node_of(v) not in inside})


def kinds(function: TypedFunction, names: Sequence[str]) -> dict[str, int]:
    """Returns how often each op stands among nodes."""
    return dict(Counter(function.nodes[name].op for name in names if name in function.nodes).most_common())

"""Fourth phase: each cluster becomes one op `NgraphEncapsulate`, and a graph, which we read, and TensorFlow runs if we fail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tensorflow.core.framework.graph_pb2 import GraphDef

from ngraph.bridge.clustering import Cluster, Clustering
from ngraph.bridge.flatten import (
    FlatFunction,
    TypedFunction,
    TypedNode,
    definition,
    functions_used,
    imported,
    typed,
)
from ngraph.bridge.kernel import OP
from ngraph.bridge.marking import Marks
from ngraph.frontends.tensorflow.graph import node_of

Shape = tuple[int | None, ...] | None


class ClusterGraph(NamedTuple):
    """A cluster as a graph of its own: placeholders `argument_0`, …, its nodes, and the functions that these refer to.

    takes, gives  values of the function around it, in order      results  the values of `graph` that are these
    """

    number: int
    nodes: list[str]
    graph: Any
    takes: list[str]
    gives: list[str]
    results: list[str]


class Encapsulated(NamedTuple):
    """A function with its clusters as ops, and these. shapes: of the ops' results, by value."""

    flat: FlatFunction
    clusters: list[ClusterGraph]
    shapes: dict[str, Shape]


def op_name(number: int) -> str:
    """Returns the name of a cluster's op."""
    return f"ngraph_cluster_{number}"


def encapsulate(function: TypedFunction, marks: Marks, clustering: Clustering, numbers: Iterable[int], backend: str) -> Encapsulated:
    """Returns a function with its clusters as ops. numbers: of the clusters, in the process."""
    of, nodes = clustering.of, function.nodes
    kept = _kept(function, marks, of)
    wanted = {v for name in kept for v in nodes[name].takes} | set(function.flat.gives)
    for k, cluster in enumerate(clustering.clusters):
        for name in _with_known(function, marks, cluster):
            wanted.update(v for v in nodes[name].takes if of.get(node_of(v), k) != k)
    homes: dict[str, str] = {}  # values of clusters -> results of their ops
    made: list[ClusterGraph] = []
    for cluster, number in zip(clustering.clusters, numbers, strict=False):
        one = _cluster_graph(function, marks, cluster, number, wanted)
        homes.update({v: f"{op_name(number)}:{k}" for k, v in enumerate(one.gives)})
        made.append(one)
    names = {name: op_name(made[k].number) for name, k in of.items()}
    graph = GraphDef()
    graph.versions.CopyFrom(function.flat.graph.versions)

    def before(after: Iterable[str], own: str = "") -> list[str]:
        found = dict.fromkeys(names.get(a, a) for a in after)
        return [f"^{a}" for a in found if a != own and (a in kept or a.startswith("ngraph_cluster_"))]

    for name in nodes:
        if name in kept:
            new = graph.node.add()
            new.CopyFrom(nodes[name].proto)
            _rewire(new, [homes.get(v, v) for v in nodes[name].takes], before(nodes[name].after))
    for one in made:
        new = graph.node.add(name=op_name(one.number), op=OP)
        after = [a for name in one.nodes for a in nodes[name].after]
        _rewire(new, [homes.get(v, v) for v in one.takes], before(after, new.name))
        new.attr["Targuments"].list.type.extend(function.dtype(v) for v in one.takes)
        new.attr["Tresults"].list.type.extend(function.dtype(v) for v in one.gives)
        new.attr["ngraph_cluster"].i = one.number
        new.attr["ngraph_backend"].s = backend.encode()
    flat = function.flat
    gives = [homes.get(v, v) for v in flat.gives]
    effects = list(dict.fromkeys(names.get(n, n) for n in flat.effects))
    shapes = {home: function.shape(v) for v, home in homes.items()}
    return Encapsulated(FlatFunction(flat.name, graph, flat.takes, gives, effects), made, shapes)


def _rewire(node: Any, takes: Sequence[str], after: Sequence[str]) -> None:
    del node.input[:]
    node.input.extend([*takes, *after])


def _kept(function: TypedFunction, marks: Marks, of: dict[str, int]) -> set[str]:
    """Returns the nodes that stay: all that are in no cluster, and of what is known that which they use."""
    nodes = function.nodes
    kept = {name for name in nodes if name not in of and name not in marks.known}
    todo = [
        *kept,
        *(n for v in function.flat.gives if (n := node_of(v)) in marks.known),
        *(n for n in function.flat.effects if n in marks.known),
    ]
    kept.update(todo[len(kept) :])
    while todo:
        node = nodes[todo.pop()]
        for name in (*map(node_of, node.takes), *node.after):
            if name in marks.known and name not in kept:
                kept.add(name)
                todo.append(name)
    return kept


def _with_known(function: TypedFunction, marks: Marks, cluster: Cluster) -> list[str]:
    """Returns a cluster's nodes, and the known ones that they need."""
    found: dict[str, None] = dict.fromkeys(cluster.nodes)
    todo = list(cluster.nodes)
    while todo:
        for value in function.nodes[todo.pop()].takes:
            name = node_of(value)
            if name in marks.known and name not in found:
                found[name] = None
                todo.append(name)
    return list(found)


def _cluster_graph(function: TypedFunction, marks: Marks, cluster: Cluster, number: int, wanted: set[str]) -> ClusterGraph:
    names = dict.fromkeys(_with_known(function, marks, cluster))
    graph = GraphDef()
    graph.versions.CopyFrom(function.flat.graph.versions)
    takes: dict[str, str] = {}

    def inside(value: str) -> str:
        if node_of(value) in names:
            return value
        if value not in takes:
            takes[value] = f"argument_{len(takes)}"
            _placeholder(graph.node.add(), takes[value], function.dtype(value), function.shape(value))
        return f"{takes[value]}:0"

    for name in names:
        node: TypedNode = function.nodes[name]
        given = [inside(v) for v in node.takes]
        new = graph.node.add()
        new.CopyFrom(node.proto)
        _rewire(new, given, [f"^{a}" for a in node.after if a in names])
    for used in functions_used(graph.node):
        graph.library.function.append(definition(used))
    own = set(cluster.nodes)
    gives = sorted(v for v in wanted if node_of(v) in own)
    return ClusterGraph(number, cluster.nodes, graph, list(takes), gives, gives)


def typed_cluster(cluster: ClusterGraph, arguments: Sequence[Any]) -> TypedFunction:
    """Returns a cluster with what TensorFlow says of its values when its arguments are these arrays."""
    takes = [f"argument_{k}" for k in range(len(cluster.takes))]
    graph = GraphDef(node=[n for n in cluster.graph.node if n.name not in takes], versions=cluster.graph.versions)
    flat = FlatFunction(op_name(cluster.number), graph, takes, cluster.results, [])
    return typed(flat, imported(flat, arguments))


def _placeholder(node: Any, name: str, dtype: int, shape: Shape) -> None:
    node.name, node.op = name, "Placeholder"
    node.attr["dtype"].type = dtype
    if shape is None:
        node.attr["shape"].shape.unknown_rank = True
    else:
        for n in shape:
            node.attr["shape"].shape.dim.add(size=-1 if n is None else n)

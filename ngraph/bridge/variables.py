"""Before marking: reads of variables that a function has assigned before become the values that were assigned.

A read behind an assignment waits for it, and the assignment for a cluster: so each would part a cluster in two. Where all accesses of a
variable in a function are ordered by its edges, the reads are not needed, and `AssignAddVariableOp` becomes an addition that a cluster can
have, and an assignment. Assignments themselves stay TensorFlow's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorflow.core.framework.graph_pb2 import GraphDef

from ngraph.bridge.flatten import FlatFunction, value_of
from ngraph.bridge.marking import DTYPES
from ngraph.frontends.tensorflow.graph import node_of
from ngraph.parts.walk import post_order

READ, SHAPE = "ReadVariableOp", "VariableShape"
STEPS = {"AssignAddVariableOp": "AddV2", "AssignSubVariableOp": "Sub"}
WRITES = frozenset({"AssignVariableOp", *STEPS})


def forwarded(flat: FlatFunction) -> FlatFunction:
    """Returns a function whose reads behind assignments of the same variable are gone."""
    nodes = {n.name: n for n in flat.graph.node}
    needs = {name: _before(n) for name, n in nodes.items()}
    if any(n.op == "NextIteration" for n in nodes.values()):
        return flat
    order = {name: k for k, name in enumerate(post_order(nodes, lambda name: [b for b in needs[name] if b in nodes]))}
    accesses: dict[str, list[str]] = {}
    unclear: set[str] = set()
    for name in order:
        node = nodes[name]
        for k, given in enumerate(node.input):
            if given.startswith("^"):
                continue
            if k == 0 and node.op in WRITES | {READ}:
                accesses.setdefault(value_of(given), []).append(name)
            elif node.op != SHAPE:
                unclear.add(value_of(given))
    unclear |= set(flat.gives)
    graph = GraphDef()
    graph.CopyFrom(flat.graph)
    made = {n.name: n for n in graph.node}
    alias: dict[str, str] = {}
    for handle, there in accesses.items():
        if handle not in unclear and any(nodes[n].op in WRITES for n in there) and _ordered(there, nodes, needs, order):
            _forward(handle, there, graph, made, alias)
    if not alias and len(made) == len(nodes):
        return flat
    gone = {node_of(v) for v in alias}
    after = {name: [i for i in made[name].input if i.startswith("^")] for name in gone}
    for node in graph.node:
        inputs = [i if i.startswith("^") else _source(value_of(i), alias) for i in node.input]
        control = list(dict.fromkeys(c for i in inputs if i.startswith("^") for c in _through(i, after)))
        del node.input[:]
        node.input.extend([*(i for i in inputs if not i.startswith("^")), *(c for c in control if c != f"^{node.name}")])
    kept = GraphDef()
    kept.versions.CopyFrom(graph.versions)
    kept.node.extend(n for n in graph.node if n.name not in gone)
    gives = [_source(v, alias) for v in flat.gives]
    return flat._replace(graph=kept, gives=gives, effects=[n for n in flat.effects if n not in gone])


def with_shapes(flat: FlatFunction) -> FlatFunction:
    """Returns a function that asks values of variables for their shapes, which clusters can, and not handles."""
    dtypes = {value_of(n.input[0]): n.attr["dtype"].type for n in flat.graph.node if n.op in WRITES | {READ}}
    if not any(n.op == SHAPE and value_of(n.input[0]) in dtypes for n in flat.graph.node):
        return flat
    graph = GraphDef()
    graph.CopyFrom(flat.graph)
    for node in list(graph.node):
        handle = value_of(node.input[0]) if node.op == SHAPE else ""
        if handle in dtypes:
            read = graph.node.add(name=f"{node.name}/read", op=READ)
            read.input.append(handle)
            node.op = "Shape"
            node.input[0] = f"{read.name}:0"
            read.attr["dtype"].type = node.attr["T"].type = dtypes[handle]
    return flat._replace(graph=graph)


def _before(node: Any) -> list[str]:
    return [i[1:] if i.startswith("^") else node_of(value_of(i)) for i in node.input]


def _source(value: str, alias: Mapping[str, str]) -> str:
    while value in alias:
        value = alias[value]
    return value


def _through(control: str, after: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns what a control edge waits for when reads that are gone pass it on."""
    found, todo, seen = list[str](), [control], set[str]()
    while todo:
        c = todo.pop()
        if c not in seen:
            seen.add(c)
            if c[1:] in after:
                todo += after[c[1:]]
            else:
                found.append(c)
    return found


def _ordered(there: Sequence[str], nodes: Mapping[str, Any], needs: Mapping[str, Sequence[str]], order: Mapping[str, int]) -> bool:
    """Returns whether edges order each write of a variable behind the accesses before it, and each read behind the write before it."""
    last, reads = "", list[str]()
    for name in there:
        if nodes[name].op == READ:
            if last and not _reaches(last, name, needs, order):
                return False
            reads.append(name)
            continue
        if not all(_reaches(before, name, needs, order) for before in ([last] if last else []) + reads):
            return False
        last, reads = name, []
    return True


def _reaches(first: str, second: str, needs: Mapping[str, Sequence[str]], order: Mapping[str, int]) -> bool:
    """Returns whether edges lead from one node to another one."""
    if first in needs[second]:
        return True
    least, seen, todo = order[first], set[str](), [second]
    while todo:
        name = todo.pop()
        if name == first:
            return True
        for n in needs[name]:
            if n not in seen and order.get(n, -1) >= least:
                seen.add(n)
                todo.append(n)
    return False


def _forward(handle: str, there: Sequence[str], graph: Any, made: dict[str, Any], alias: dict[str, str]) -> None:
    """Replaces what reads a variable by what it holds, from its first assignment on."""
    current, written = "", False
    for name in there:
        node = made[name]
        dtype = node.attr["dtype"].type
        if dtype not in DTYPES:
            return
        if node.op == READ:
            if written:
                alias[f"{name}:0"] = current
            elif not current:
                current = f"{name}:0"
            continue
        if node.op in STEPS:
            if not current:
                read = graph.node.add(name=f"{name}/read", op=READ)
                read.input.extend([handle, *(i for i in node.input if i.startswith("^"))])
                read.attr["dtype"].type = dtype
                made[read.name], current = read, f"{read.name}:0"
            step = graph.node.add(name=f"{name}/value", op=STEPS[node.op])
            step.input.extend([current, node.input[1]])
            step.attr["T"].type = dtype
            made[step.name] = step
            node.op = "AssignVariableOp"
            node.input[1] = f"{step.name}:0"
        current, written = value_of(node.input[1]), True

"""A function of TensorFlow's with the functions that it calls inlined, and what its values are: the graph that the phases work on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.python.eager import context
from tensorflow.python.framework import function_def_to_graph, op_def_registry
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops import handle_data_util

from ngraph.errors import UnsupportedError
from ngraph.frontends.tensorflow.graph import CALLS, node_of

MOST_NODES = 200_000  # of a function with what it calls: beyond it TensorFlow runs it (a ResNet-50's train step has 12,000)
COMPILED = "_XlaMustCompile"  # the attribute of functions with jit_compile=True


class FlatFunction(NamedTuple):
    """A function without calls of others: its nodes, and the names of its arguments, of its results (`node:0`), of nodes that must run."""

    name: str
    graph: Any
    takes: list[str]
    gives: list[str]
    effects: list[str]


def definition(name: str) -> Any:
    """Returns the FunctionDef of a function that TensorFlow knows; None for another name."""
    known = context.context()
    return known.get_function_def(name) if known.has_function(name) else None


def stateful(op: str) -> bool:
    """Returns whether TensorFlow says that an op has state; also for ops that it does not know."""
    found = op_def_registry.get(op)
    return found is None or found.is_stateful


def _flat(name: str) -> FlatFunction:
    """Returns a function as TensorFlow has it, calls included."""
    fdef = definition(name)
    if fdef is None:
        raise UnsupportedError(f"TensorFlow has no function {name!r}", fix="keep the function that calls it")
    graph, names = function_def_to_graph.function_def_to_graph_def(fdef, include_library_functions=False)
    takes = [a.name for a in fdef.signature.input_arg]
    gives = [names[fdef.ret[a.name]] for a in fdef.signature.output_arg]
    return FlatFunction(name, graph, takes, gives, list(fdef.control_ret.values()))


def value_of(given: str) -> str:
    """Returns the name of a value with its number."""
    return given if ":" in given else f"{given}:0"


def callee(node: Any) -> str:
    """Returns the function that a node calls; "" where it calls none, or one of another process."""
    if node.op in CALLS and "f" in node.attr and node.op != "RemoteCall":
        return str(node.attr["f"].func.name)
    return node.op if op_def_registry.get(node.op) is None and definition(node.op) is not None else ""


def flat_function(name: str) -> FlatFunction:
    """Returns a function with what it calls inlined. Raises UnsupportedError where it calls itself, or is too large.

    What is behind a call by a control edge waits for all of its body that has state; what has state in the body waits for what is before.
    """
    top = _flat(name)
    made: list[Any] = []
    alias: dict[str, str] = {}  # results of calls -> values of their bodies
    ends: dict[str, str] = {}  # calls -> the node that waits for their bodies

    def add(function: FlatFunction, prefix: str, arguments: Mapping[str, str], begin: str, around: tuple[str, ...]) -> list[str]:
        """Adds the nodes of a body; returns those that have state."""
        if function.name in around:
            raise UnsupportedError(f"the function {function.name!r} calls itself", fix="TensorFlow runs it")
        state: list[str] = []
        for node in function.graph.node:
            if node.name in arguments:
                continue
            new = type(node)()
            new.CopyFrom(node)
            new.name = prefix + node.name
            del new.input[:]
            for given in node.input:
                if given.startswith("^"):
                    if given[1:] not in arguments:
                        new.input.append(f"^{prefix}{given[1:]}")
                else:
                    home = node_of(value_of(given))
                    new.input.append(arguments.get(home) or prefix + value_of(given))
            new.attr.pop("_class", None)
            inner = callee(node)
            waits = bool(begin) and (bool(inner) or node.op == "NoOp" or stateful(node.op))
            if waits:
                new.input.append(f"^{begin}")
            if not inner:
                made.append(new)
                if stateful(node.op):
                    state.append(new.name)
                if len(made) > MOST_NODES:
                    raise UnsupportedError(f"{name!r} has more than {MOST_NODES:,} nodes", fix="TensorFlow runs it")
                continue
            body, before = _flat(inner), [i for i in new.input if i.startswith("^")]
            start = _barrier(f"{new.name}/begin", before) if before else None
            made.extend([start] if start is not None else [])
            data = [i for i in new.input if not i.startswith("^")]
            there = add(
                body,
                f"{new.name}/",
                dict(zip(body.takes, data, strict=True)),
                start.name if start is not None else "",
                (*around, function.name),
            )
            inputs = dict(zip(body.takes, data, strict=True))
            for k, value in enumerate(body.gives):
                alias[f"{new.name}:{k}"] = inputs.get(node_of(value)) or f"{new.name}/{value}"
            waited = dict.fromkeys([*there, *(f"{new.name}/{n}" for n in body.effects if n not in inputs)])
            end = _barrier(f"{new.name}/end", [f"^{n}" for n in waited] + ([f"^{start.name}"] if start is not None else []))
            made.append(end)
            ends[new.name] = end.name
            state.append(end.name)
        return state

    add(top, "", {a: f"{a}:0" for a in top.takes}, "", ())

    def resolved(value: str) -> str:
        while value in alias:
            value = alias[value]
        return value

    for node in made:
        given = dict.fromkeys(_control(i[1:], ends) if i.startswith("^") else resolved(i) for i in node.input if i.startswith("^"))
        data = [resolved(i) for i in node.input if not i.startswith("^")]
        del node.input[:]
        node.input.extend([*data, *given])
    graph = GraphDef()
    graph.node.extend(made)
    graph.versions.CopyFrom(top.graph.versions)
    effects = [ends.get(n, n) for n in top.effects if n not in top.takes]
    return FlatFunction(name, graph, top.takes, [resolved(v) for v in top.gives], effects)


def _control(name: str, ends: Mapping[str, str]) -> str:
    return f"^{ends.get(name, name)}"


def _barrier(name: str, before: Sequence[str]) -> Any:
    """Returns a node that does nothing, after others."""
    node = GraphDef().node.add(name=name, op="NoOp")
    node.input.extend(before)
    return node


# ---- with dtypes and shapes ---------------------------------------------------------------------------------------------


class TypedNode(NamedTuple):
    """A node: values that it takes, nodes before it by control edges, and for each result dtype (a number) and shape (None: unknown)."""

    proto: Any
    name: str
    op: str
    takes: tuple[str, ...]
    after: tuple[str, ...]
    dtypes: tuple[int, ...]
    shapes: tuple[tuple[int | None, ...] | None, ...]


class TypedFunction(NamedTuple):
    """A flat function with the dtype and shape of each value; nodes stand behind what they need."""

    flat: FlatFunction
    nodes: dict[str, TypedNode]
    arguments: list[TypedNode]

    def maker(self, value: str) -> TypedNode | None:
        """Returns the node that gives a value; None for an argument."""
        return self.nodes.get(node_of(value))

    def dtype(self, value: str) -> int:
        """Returns the number of a value's dtype."""
        node, _, k = value.rpartition(":")
        return self._any(node).dtypes[int(k)]

    def shape(self, value: str) -> tuple[int | None, ...] | None:
        """Returns a value's lengths, None for open ones; None for an unknown rank."""
        node, _, k = value.rpartition(":")
        return self._any(node).shapes[int(k)]

    def _any(self, name: str) -> TypedNode:
        found = self.nodes.get(name)
        return next(a for a in self.arguments if a.name == name) if found is None else found


def functions_used(nodes: Iterable[Any]) -> list[str]:
    """Returns the names of functions that nodes of a graph refer to by attributes, and those that these refer to."""
    found: dict[str, None] = {}
    todo = list(nodes)
    while todo:
        node = todo.pop()
        named = [a.func.name for a in node.attr.values() if a.WhichOneof("value") == "func"]
        named += [f.name for a in node.attr.values() if a.WhichOneof("value") == "list" for f in a.list.func]
        named += [node.op] if op_def_registry.get(node.op) is None else []
        for name in named:
            fdef = definition(name) if name not in found else None
            if fdef is not None:
                found[name] = None
                todo += fdef.node_def
    return list(found)


def imported(flat: FlatFunction, like: Sequence[Any]) -> FuncGraph:
    """Returns a function as a graph of TensorFlow's. like: for each argument a tensor, or what else has `dtype` and `shape`."""
    graph = FuncGraph(flat.name)
    whole = GraphDef()
    whole.CopyFrom(flat.graph)
    for name in functions_used(flat.graph.node):
        whole.library.function.append(definition(name))
    with graph.as_default():
        for name, t in zip(flat.takes, like, strict=True):
            hole = tf.compat.v1.placeholder(t.dtype, t.shape, name=name)
            handle = handle_data_of(t)
            if handle is not None:
                handle_data_util.set_handle_data(hole, handle)
            graph.inputs.append(hole)
        used = {i for n in flat.graph.node for i in n.input}
        given = {f"{n}:0": t for n, t in zip(flat.takes, graph.inputs, strict=True) if f"{n}:0" in used}
        tf.graph_util.import_graph_def(whole, given, name="")
    return graph


def handle_data_of(t: Any) -> Any:
    """Returns what TensorFlow knows of the variable behind a handle; None where there is none."""
    given = getattr(t.dtype, "_handle_data", None)
    if given is not None:
        return given.shape_inference
    found = handle_data_util.get_resource_handle_data(t) if isinstance(t, tf.Tensor) and t.dtype == tf.resource else None
    return found if found is not None and found.is_set else None


def typed(flat: FlatFunction, graph: FuncGraph) -> TypedFunction:
    """Returns a function with what TensorFlow's shape inference says of its graph, `imported`."""
    protos = {n.name: n for n in flat.graph.node}
    arguments = set(flat.takes)

    def node(op: Any) -> TypedNode:
        outputs = op.outputs
        shapes = tuple([None if t.shape.rank is None else tuple(t.shape.as_list()) for t in outputs])
        takes = tuple([t.name for t in op.inputs])
        after = tuple([c.name for c in op.control_inputs if c.name not in arguments])
        return TypedNode(protos.get(op.name), op.name, op.type, takes, after, tuple([t.dtype.as_datatype_enum for t in outputs]), shapes)

    every = [node(op) for op in graph.get_operations()]
    given = {n.name: n for n in every if n.name in arguments}
    return TypedFunction(flat, {n.name: n for n in every if n.name not in arguments}, [given[name] for name in flat.takes])

"""Before marking: variables that a loop only reads are read before it, and the loop takes their values.

Keras's recurrent layers read weights in each step, through handles that the loop carries. A loop without handles has no state, and
can stand in a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.python.eager import context

from ngraph.bridge.flatten import FlatFunction, definition
from ngraph.bridge.variables import READ
from ngraph.frontends.tensorflow.dtypes import NUMBERS

LOOPS = frozenset({"While", "StatelessWhile"})
RESOURCE = NUMBERS["DT_RESOURCE"]


def hoisted(flat: FlatFunction) -> FlatFunction:
    """Returns a function whose loops take values of variables that they only read. Their new bodies are added to TensorFlow's functions."""
    loops = [n for n in flat.graph.node if n.op in LOOPS and RESOURCE in n.attr["T"].list.type]
    if not loops:
        return flat
    graph = GraphDef()
    graph.CopyFrom(flat.graph)
    for node in [n for n in graph.node if n.name in {loop.name for loop in loops}]:
        _hoist(node, graph, flat.gives)
    return flat._replace(graph=graph)


def _hoist(node: Any, graph: Any, gives: list[str]) -> None:
    """Makes one loop take values; what used the handles that it gave takes those that it was given."""
    bodies = {key: definition(node.attr[key].func.name) for key in ("cond", "body")}
    if None in bodies.values():
        return
    reads: dict[int, int] = {}  # place among what the loop carries -> dtype of the variable
    for k, dtype in enumerate(node.attr["T"].list.type):
        if dtype == RESOURCE and f"{node.name}:{k}" not in gives:
            found = {_read_only(fdef, k, key == "body") for key, fdef in bodies.items()} - {0}
            if len(found) == 1 and None not in found:
                reads[k] = int(found.pop() or 0)
    if not reads:
        return
    control = [i for i in node.input if i.startswith("^")]
    shapes = node.attr["output_shapes"].list.shape
    handles = {f"{node.name}:{k}": node.input[k] for k in reads}
    for other in graph.node:
        for place, given in enumerate(other.input):
            other.input[place] = handles.get(given, given)
    for k, dtype in reads.items():
        read = graph.node.add(name=f"{node.name}/read_{k}", op=READ)
        read.input.extend([node.input[k], *control])
        read.attr["dtype"].type = dtype
        node.input[k] = f"{read.name}:0"
        node.attr["T"].list.type[k] = dtype
        if k < len(shapes):
            shapes[k].Clear()
            shapes[k].unknown_rank = True
    for key, fdef in bodies.items():
        node.attr[key].func.name = _with_values(fdef, reads, key == "body")


def _read_only(fdef: Any, k: int, carried: bool) -> int | None:
    """Returns the dtype of a variable that a function only reads, 0 where it does not use it, None where it does more."""
    name, found = fdef.signature.input_arg[k].name, 0
    for node in fdef.node_def:
        for place, given in enumerate(node.input):
            if given.split(":")[0] != name:
                continue
            if node.op == READ and place == 0:
                found = node.attr["dtype"].type
            elif not (carried and node.op == "Identity" and _gives(fdef, k) == node.name):
                return None
    if carried and _gives(fdef, k) not in (name, *(n.name for n in fdef.node_def if n.op == "Identity" and n.input[0] == name)):
        return None
    returned = sum(v.split(":")[0] == name for v in fdef.ret.values())
    return None if returned > carried else found


def _gives(fdef: Any, k: int) -> str:
    """Returns the node or argument that a function's result is."""
    return str(fdef.ret[fdef.signature.output_arg[k].name].split(":")[0]) if k < len(fdef.signature.output_arg) else ""


def _with_values(fdef: Any, reads: Mapping[int, int], body: bool) -> str:
    """Returns the name of a function that takes values in place of handles."""
    new = type(fdef)()
    new.CopyFrom(fdef)
    new.signature.name = f"{fdef.signature.name}_values_{'_'.join(map(str, reads))}"
    for k, dtype in reads.items():
        name = new.signature.input_arg[k].name
        new.signature.input_arg[k].type = dtype
        del new.signature.input_arg[k].handle_data[:]
        new.arg_attr.pop(k, None)
        if body:
            new.signature.output_arg[k].type = dtype
            del new.signature.output_arg[k].handle_data[:]
        for node in new.node_def:
            if node.input and node.input[0].split(":")[0] == name and node.op in (READ, "Identity"):
                node.op = "Identity"
                node.attr.pop("dtype", None)
                node.attr.pop("_output_shapes", None)
                node.attr["T"].type = dtype
    renamed = {n.name for n in new.node_def if n.op == "Identity"}
    for node in new.node_def:  # the result of a read is `value`, that of an identity `output`
        for place, given in enumerate(node.input):
            node.input[place] = _output(given, renamed)
    for key, value in list(new.ret.items()):
        new.ret[key] = _output(value, renamed)
    if definition(new.signature.name) is None:
        context.context().add_function_def(new)
    return str(new.signature.name)


def _output(value: str, renamed: set[str]) -> str:
    name, _, rest = value.partition(":")
    return f"{name}:output:0" if name in renamed and rest.startswith("value:") else value

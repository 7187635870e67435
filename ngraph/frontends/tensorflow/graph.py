"""TensorFlow's graphs and functions as they are walked: nodes in any order, control edges, results by number or by name.

A value is called `node:k` here, for graphs, whose files say `node` for `node:0`, and for functions, whose files say `node:name:k`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ngraph.errors import GraphError, ParseError, UnsupportedError
from ngraph.frontends.positional.trace import MOST_NODES, ModelTrace
from ngraph.frontends.positional.values import ConstantArray, Held, Value
from ngraph.frontends.positional.walk import DEEPEST, Frame, GraphNode, in_order, last_uses, walk
from ngraph.frontends.tensorflow import folding, table
from ngraph.frontends.tensorflow.dtypes import array_of, numpy_type, shape_of

MERGES = frozenset({"Merge", "RefMerge"})
# How ops that write variables begin.
WRITERS = tuple("Assign Apply SparseApply Resource Rng Scatter StatefulRandom StridedSliceAssign".split())
REFERENCED = frozenset({"VariableV2", "Variable"})
HANDLES = REFERENCED | {"VarHandleOp"}
CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall", "TPUPartitionedCall", "RemoteCall"})


class Resource(Held):
    """A variable's handle: its name. What else a handle may stand for (a table, an iterator) is refused by who uses it."""

    __slots__ = ("name",)
    np = np.dtype(object)

    def __init__(self, name: str):
        self.name = name
        self.array = np.empty((), object)

    def __repr__(self) -> str:
        return f"Resource({self.name!r})"


class Reference(Resource):
    """A reference to a variable of TensorFlow 1: who takes it as a value reads the variable when it runs."""

    __slots__ = ()


DEAD: Any = object()  # a value on the way that a `Switch` of TensorFlow 1 has not taken


class Node:
    """A node of a file, with its inputs as names of values.

    takes  names of values      after  names of nodes that come before, by control edges
    """

    __slots__ = ("proto", "name", "op", "takes", "after")

    def __init__(self, proto: Any, takes: list[str], after: list[str]):
        self.proto, self.name, self.op, self.takes, self.after = proto, proto.name, proto.op, takes, after

    @property
    def called(self) -> str:
        """The function that a node calls; "" for another node."""
        return self.proto.attr["f"].func.name if self.op in CALLS else ""


class GraphBody:
    """A graph or function: nodes by name, its arguments and results as names of values.

    wanted  names of nodes that have effects, which are run though no result needs them
    """

    def __init__(self, name: str, nodes: Sequence[Node], takes: Sequence[str], gives: Sequence[str], wanted: Sequence[str] = ()):
        self.name, self.takes, self.gives, self.wanted = name, list(takes), list(gives), list(wanted)
        self.nodes = {node.name: node for node in nodes}
        if len(self.nodes) < len(nodes):
            raise ParseError(f"two nodes of {name} have one name", fix="is the file damaged?")
        self._order: dict[Any, tuple[list[Node], dict[str, list[str]], dict[str, int]]] = {}

    def order(self, outputs: Sequence[str], fed: Iterable[str] = ()) -> tuple[list[Node], dict[str, list[str]], dict[str, int]]:
        """Returns the nodes that outputs need, in order; for each its results that are used, by number; each value's last user.

        fed: values that are there already; what only they need is left out.
        """
        there = frozenset(map(node_of, fed))
        key = (tuple(outputs), there)
        if key not in self._order:
            wanted, nodes = dict.fromkeys([*map(node_of, outputs), *self.wanted]), [n for n in self.nodes.values() if n.name not in there]
            found = in_order(nodes, lambda n: map(node_of, n.takes), lambda n: [n.name], lambda n: n.after, wanted)
            used: dict[str, int] = {}
            for name in (*outputs, *(t for n in found for t in n.takes)):
                node, _, k = name.rpartition(":")
                used[node] = max(used.get(node, 0), int(k))
            every = {name for n in found for name in n.takes} | set(outputs)
            gives = {n.name: [v if (v := f"{n.name}:{k}") in every else "" for k in range(used.get(n.name, -1) + 1)] for n in found}
            self._order[key] = found, gives, last_uses([n.takes for n in found], outputs)
        return self._order[key]

    def source(self, value: str, ops: Container[str] = ("Identity",)) -> str:
        """Returns the value that nodes of these ops only hand on."""
        return handed_on(self.nodes, value, ops)

    def fetched(self, value: str) -> str:
        """Returns the variable of TensorFlow 1 that a value was read from, which a call gives as it is in the end; else the value."""
        source = self.source(value)
        node = self.nodes.get(node_of(source))
        return source if node is not None and node.op in REFERENCED else value

    def silent(self, value: str) -> bool:
        """Returns whether a value is that of a node which gives nothing, and is run for what it does."""
        node = self.nodes.get(node_of(value))
        return node is not None and not has_results(node.op)

    def maker(self, value: str) -> Node | None:
        """Returns the node that computes a value; None for an argument."""
        source = self.source(value)
        return None if source in self.takes else self.nodes.get(node_of(source))


def has_results(op: str) -> bool:
    """Returns whether an op gives anything; others are run for what they do."""
    if op.startswith("Resource"):
        return op.startswith("ResourceGather")
    silent = {"Assert", "ControlTrigger", "DisableCopyOnRead", "NoOp", "PrintV2", "SaveV2", "StackCloseV2", "TensorArrayCloseV3"}
    silent |= {"LookupTableImportV2", "LookupTableInsertV2", "InitializeTableFromTextFileV2", "InitializeTableV2"}
    return op not in silent and not (op.startswith("Assign") and op.endswith("VariableOp"))


def node_of(value: str) -> str:
    """Returns the node that gives a value."""
    return value.rpartition(":")[0]


def handed_on(nodes: Mapping[str, Node], value: str, ops: Container[str] = ("Identity",)) -> str:
    """Returns the value that nodes of these ops only hand on."""
    seen = set[str]()
    while (node := nodes.get(node_of(value))) is not None and node.op in ops and node.takes and node.name not in seen:
        seen.add(node.name)
        value = node.takes[0]
    return value


def body_of_graph(proto: Any, name: str, takes: Sequence[str] = (), gives: Sequence[str] = ()) -> GraphBody:
    """Returns the nodes of a GraphDef."""
    return GraphBody(name, [_node(n, named) for n in proto.node], takes, gives)


def _node(proto: Any, value: Callable[[str], str]) -> Node:
    """Returns a node of a file; value: the name of a value by what the file says."""
    return Node(proto, [value(i) for i in proto.input if not i.startswith("^")], [i[1:] for i in proto.input if i.startswith("^")])


def named(given: str) -> str:
    """Returns a value's name with its number, 0 where the file leaves it out."""
    node, colon, k = given.rpartition(":")
    return given if colon and k.isdigit() and node else f"{given}:0"


def body_of_function(proto: Any, functions: Mapping[str, Any] | None = None) -> GraphBody:
    """Returns the nodes of a FunctionDef. Its arguments are the values `argument:0`.

    functions: others of the file by name, which nodes may call as if they were ops.
    """
    arguments = {a.name for a in proto.signature.input_arg}
    protos = {n.name: n for n in proto.node_def}
    ops = {name: n.op for name, n in protos.items()}

    def value(given: str) -> str:
        parts = given.split(":")
        if len(parts) == 1:
            return f"{given}:0"
        if parts[0] in arguments and parts[0] not in ops:
            return f"{parts[0]}:{parts[-1]}"
        op = ops.get(parts[0], "")
        called = (functions or {}).get(op)
        names = table.RESULTS.get(op, ()) if called is None else tuple([a.name for a in called.signature.output_arg])
        k = int(parts[2]) if len(parts) > 2 else 0
        return f"{parts[0]}:{_places(names, protos.get(parts[0])).get(parts[1], 0) + k}"

    nodes = [_node(n, value) for n in proto.node_def]
    gives = [value(proto.ret[a.name]) for a in proto.signature.output_arg]
    takes = [f"{a.name}:0" for a in proto.signature.input_arg]
    return GraphBody(proto.signature.name, nodes, takes, gives, list(proto.control_ret.values()))


def _places(names: Sequence[str], proto: Any) -> dict[str, int]:
    """Returns the numbers of a node's results by their names; `name*attribute` stands for as many as the attribute says."""
    found, at = dict[str, int](), 0
    for name, _, attribute in [name.partition("*") for name in names]:
        found[name] = at
        said = proto.attr[attribute] if attribute else None
        at += 1 if said is None else max(said.i, len(said.list.type))
    return found


class FunctionLibrary:
    """State shared by the graphs of one model: functions, read when they are first called, and constants, read once.

    What a file adds, such as its variables' arrays, `saved.ModelFile` does.
    """

    def __init__(self, graph: Any, structured: Callable[[GraphBody, FunctionLibrary], GraphBody]):
        self.structured = structured  # makes a body whose loops and branches are nodes with bodies
        self._functions = {f.signature.name: f for f in graph.library.function}
        self._bodies: dict[str, GraphBody] = {}
        self._constants: dict[int, ConstantArray] = {}
        self.tables: dict[str, dict[Any, Any]] = {}  # what lookup tables hold, by name
        self.unset = set[str]()  # variables that calls have to write before they read them
        self.initializing = False
        self.most = max(MOST_NODES, 16 * (len(graph.node) + sum(len(f.node_def) for f in graph.library.function)))

    def __contains__(self, name: str) -> bool:
        return name in self._functions or name in self._bodies

    def add(self, body: GraphBody) -> None:
        """Adds a function that the file does not have as one. Raises ParseError where there is one of its name."""
        if body.name in self:
            raise ParseError(f"there are two functions {body.name!r}", fix="is the file damaged?")
        self._bodies[body.name] = body

    def made(self, name: str) -> GraphBody | None:
        """Returns a function of nodes that became a loop or branch; None for one of the file."""
        return None if name in self._functions else self._bodies.get(name)

    def function(self, name: str) -> GraphBody:
        """Returns a function by name. Raises ParseError where there is none."""
        if name not in self._bodies:
            if name not in self._functions:
                raise ParseError(f"there is no function {name!r}", fix="is the file damaged?")
            self._bodies[name] = self.structured(body_of_function(self._functions[name], self._functions), self)
        return self._bodies[name]

    def constant(self, proto: Any) -> ConstantArray:
        """Returns the array of a Const node."""
        found = self._constants.get(id(proto))
        if found is None:
            found = self._constants[id(proto)] = ConstantArray(array_of(proto.attr["value"].tensor), proto.name)
        return found

    def current(self, g: ModelTrace, name: str) -> Value:
        """Returns what a variable holds now. Raises GraphError for one that has no value."""
        found = None if name in self.unset else g.current(name) if name in g.variables else self.stored(name)
        if found is None:
            raise GraphError(f"the variable {name!r} has no value", fix="run its initializer first, or give the checkpoint of the graph")
        return found

    def has_value(self, g: ModelTrace, name: str) -> bool:
        """Returns whether a variable has been written, or starts with an array."""
        return name not in self.unset and (name in g.variables or self.stored(name) is not None)

    def read(self, g: ModelTrace, value: Value) -> Value:
        """Returns what a variable holds now, for a reference to it; other values as they are."""
        return self.current(g, value.name) if isinstance(value, Reference) else value

    def stored(self, name: str) -> ConstantArray | None:
        """Returns the array that a variable starts with; None for an unknown variable."""
        raise NotImplementedError


def functions_in(node: Node) -> list[str]:
    """Returns the names of functions that a node may call."""
    found = [node.op]
    for a in node.proto.attr.values():
        kind = a.WhichOneof("value")
        if kind == "func":
            found.append(a.func.name)
        elif kind == "list":
            found += [f.name for f in a.list.func]
    return found


class TensorflowNode(GraphNode):
    """A node as its translator sees it."""

    __slots__ = ("node", "library")

    def __init__(self, g: ModelTrace, frame: Frame, node: Node, gives: Sequence[str], library: FunctionLibrary):
        super().__init__(g, frame, node.op, node.takes, gives, node.name)
        self.node, self.library = node, library

    def attr(self, name: str, default: Any = None) -> Any:
        """Returns an attribute: a number, bytes as text, a dtype, a shape, a function's name, or a list of these."""
        if name not in self.node.proto.attr:
            return default
        value = self.node.proto.attr[name]
        kind = value.WhichOneof("value")
        if kind == "list":
            return [_plain(field.name, v) for field, values in value.list.ListFields() for v in values]
        return default if kind is None else _plain(kind, getattr(value, kind))

    def wants(self, k: int) -> bool:
        """Returns whether result k is used."""
        return k < len(self.gives) and bool(self.gives[k])

    def translate(self, inputs: list[Value]) -> Any:
        """See `GraphNode.translate`."""
        names = self.frame.names
        if self.op not in MERGES and (any(i is DEAD for i in inputs) or any(f"^{name}" in names for name in self.node.after)):
            names[f"^{self.name}"] = DEAD  # for those that run after this node
            return (DEAD,) * len(self.gives)
        if self.op not in table.REFERENCES:
            inputs = [self.library.read(self.g, i) for i in inputs]
        for early in (folding.fold, *table.EARLY):  # what known values, and strings, make of it
            found = early(self, inputs)
            if found is not NotImplemented:
                return found
        translator = table.TABLE.get(self.op)
        if translator is not None:
            return translator(self, *inputs)
        if self.op in self.library:
            return self.call(self.op, inputs)
        raise UnsupportedError(f"there is no translation of {self.op}", fix="see the table in docs/tensorflow.md")

    def call(self, function: str, inputs: Sequence[Value], wanted: Sequence[str] | None = None) -> tuple[Value, ...]:
        """Returns the results of a function of the model, or values within it, whose nodes are walked in place of the call."""
        body = self.library.function(function)
        if len(inputs) != len(body.takes):
            said = f"the function {function!r} takes {len(body.takes)} values, and gets {len(inputs)}"
            raise GraphError(said, fix="is the file damaged?")
        frame = Frame()
        frame.depth = self.frame.depth + 1
        if frame.depth > DEEPEST:
            raise ParseError(f"functions call each other more than {DEEPEST} deep", fix="is the file damaged?")
        frame.names.update(zip(body.takes, inputs, strict=True))
        return tuple(walk_body(self.g, frame, body, body.gives if wanted is None else wanted, self.library))


def _plain(kind: str, value: Any) -> Any:
    if kind in ("type", "shape"):
        return numpy_type(value) if kind == "type" else shape_of(value)
    return value.decode("utf-8", "replace") if kind == "s" else value.name if kind == "func" else value


def walk_body(g: ModelTrace, frame: Frame, body: GraphBody, outputs: Sequence[str], library: FunctionLibrary) -> list[Value]:
    """Returns values of a body whose arguments are in the frame."""
    nodes, gives, last = body.order(outputs, frame.names)
    made = (TensorflowNode(g, frame, n, gives[n.name], library) for n in nodes)
    return [library.read(g, value) for value in walk(g, frame, made, outputs, last)]


# ---- what cannot be read ----------------------------------------------------------------------------------------------


def needed(library: FunctionLibrary, body: GraphBody, outputs: Sequence[str], fed: Iterable[str] = ()) -> Iterator[tuple[GraphBody, Node]]:
    """Yields each node that outputs need, of the graph and of the functions that it calls, with the body that it stands in."""
    todo: list[tuple[GraphBody, Sequence[str]]] = [(body, outputs)]
    seen: set[str] = set()
    while todo:
        here, wanted = todo.pop()
        for node in here.order(wanted, fed if here is body else ())[0]:
            yield here, node
            for name in functions_in(node):
                if name in library and name not in seen:
                    seen.add(name)
                    inner = library.function(name)
                    todo.append((inner, inner.gives))


def unsupported(library: FunctionLibrary, body: GraphBody, outputs: Sequence[str], fed: Iterable[str] = ()) -> list[str]:
    """Returns each node that outputs need and that has no translation: op, function, name, the nearest op that has one."""
    found: list[str] = []
    for here, node in needed(library, body, outputs, fed):
        if node.op not in table.TABLE and node.op not in library and node.op not in folding.FOLD:
            near = difflib.get_close_matches(node.op, table.TABLE, 1)
            where = f" of function {here.name}" if here is not body else ""
            found.append(f"{node.op}, node {node.name!r}{where}" + (f"; the nearest is {near[0]}" if near else ""))
    return found


def check_supported(library: FunctionLibrary, name: str, body: GraphBody, outputs: Sequence[str], fed: Iterable[str] = ()) -> None:
    """Raises UnsupportedError with each node that outputs need and that has no translation. name: of the model."""
    bad = unsupported(library, body, outputs, fed)
    if bad:
        said = f"{len(bad)} node{'s' * (len(bad) > 1)} of {name} cannot be translated"
        raise UnsupportedError(said, details=tuple(bad), fix="`ngraph ops --tensorflow` lists what can be")


def assigned(
    library: FunctionLibrary, body: GraphBody, outputs: Sequence[str], handles: Mapping[str, str], fed: Sequence[str] = ()
) -> set[str]:
    """Returns the names of variables that may be written on the way to outputs.

    handles: names of variables by the value that is their handle, in `body`. Handles are followed through calls, branches and loops.
    """
    found: set[str] = set()
    todo = [(body, outputs, {value: frozenset({name}) for value, name in handles.items()})]
    seen: set[tuple[str, tuple[frozenset[str], ...]]] = set()
    while todo:
        here, wanted, known = todo.pop()
        for node in here.order(wanted, fed if here is body else ())[0]:
            if node.op in HANDLES and f"{node.name}:0" in handles:  # also within a branch or loop of TensorFlow 1
                known[f"{node.name}:0"] = frozenset({handles[f"{node.name}:0"]})
            given = [known.get(name, frozenset()) for name in node.takes]
            if node.op.startswith(WRITERS) and node.op != "ResourceGather":
                found.update(*given)
            elif given and node.op in ("Identity", "RefIdentity", "Switch", "RefSwitch"):
                known[f"{node.name}:0"] = known[f"{node.name}:1"] = given[0]
            for name in functions_in(node):
                if name in library:
                    inner = library.function(name)
                    args = given[len(given) - len(inner.takes) :] if len(given) > len(inner.takes) else given
                    if (name, tuple(args)) not in seen:
                        seen.add((name, tuple(args)))
                        todo.append((inner, inner.gives, dict(zip(inner.takes, args, strict=False))))
    return found

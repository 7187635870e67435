"""ONNX graphs as they are walked: a node's attributes, functions, and the table that says what translates it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ngraph.errors import GraphError, ParseError, UnsupportedError
from ngraph.export.onnx import package as onnx
from ngraph.frontends.onnx import folding, proto, table
from ngraph.frontends.positional.elementwise import each
from ngraph.frontends.positional.folding import is_text
from ngraph.frontends.positional.trace import MOST_NODES, SMALLER, ModelTrace
from ngraph.frontends.positional.values import ConstantArray, Sizes, Value
from ngraph.frontends.positional.walk import DEEPEST, Frame, GraphNode, last_uses, walk

Attrs = dict[str, Any]


class Library:
    """State shared by the graphs of one model: its home, its functions, and constants, read once."""

    def __init__(self, model: onnx.ModelProto, home: proto.Home):
        self.home, self.opsets = home, proto.opsets(model)
        self.functions = {(f.domain, f.name, getattr(f, "overload", "")): f for f in model.functions}
        self.constants: dict[int, ConstantArray] = {}
        self.attributes: dict[int, Any] = {}
        self.last: dict[tuple[int, tuple[str, ...]], dict[str, int]] = {}
        self.kept: list[Any] = []  # function bodies made on the way, so that ids stay theirs
        self.most = self._most(model)

    def _most(self, model: onnx.ModelProto) -> int:
        """Returns the number of nodes that may be read of this model. Raises ParseError for expansion beyond it, and for recursion."""
        bodies = [model.graph.node, *(f.node for f in model.functions)]
        most = max(MOST_NODES, proto.EXPANSION * sum(1 for body in bodies for _ in proto.nodes_in(body)))
        stands: dict[int, int] = {}  # for how many nodes each function's body stands; 0 while it is being counted

        def count(nodes: Sequence[onnx.NodeProto], depth: int) -> int:
            if depth > DEEPEST:
                raise ParseError(f"functions call each other more than {DEEPEST} deep", fix="is the file damaged?")
            total = 0
            for node in proto.nodes_in(nodes):
                called = self.functions.get((node.domain, node.op_type, getattr(node, "overload", "")))
                total += 1 + (0 if called is None else of(called, depth))
            return total

        def of(function: onnx.FunctionProto, depth: int) -> int:
            found = stands.get(id(function))
            name = f"the function {function.domain}.{function.name}"
            if found == 0:
                raise ParseError(f"{name} calls itself", fix="is the file damaged? ONNX has no recursion")
            if found is None:
                stands[id(function)] = 0
                stands[id(function)] = found = max(1, count(function.node, depth + 1))
            if found > most:
                raise ParseError(f"{name} stands for {found:,} nodes; at most {most:,} are read of this file", fix=SMALLER)
            return found

        found = count(model.graph.node, 0)
        if found > most:
            raise ParseError(f"the graph stands for {found:,} nodes with those of its functions; at most {most:,} are read", fix=SMALLER)
        return most

    def constant(self, tensor: Any) -> ConstantArray:
        found = self.constants.get(id(tensor))
        if found is None:
            sparse = isinstance(tensor, onnx.SparseTensorProto)
            values = proto.dense(tensor, self.home) if sparse else proto.array(tensor, self.home)
            found = self.constants[id(tensor)] = ConstantArray(values, tensor.values.name if sparse else tensor.name)
            self.kept.append(tensor)  # else its id might be another's later
        return found

    def attribute(self, a: onnx.AttributeProto) -> Any:
        if id(a) not in self.attributes:
            self.attributes[id(a)] = proto.attribute(a, self.home)
            self.kept.append(a)
        return self.attributes[id(a)]

    def last_uses(self, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> dict[str, int]:
        """The last node that uses each name. Calls of one function may want different outputs of it."""
        key = id(nodes), tuple(outputs)
        if key not in self.last:
            self.last[key] = last_uses(map(used, nodes), outputs)
            self.kept.append(nodes)
        return self.last[key]


def used(node: onnx.NodeProto) -> Iterator[str]:
    """Every name that a node or a graph in it reads."""
    for inner in proto.nodes_in([node]):
        yield from inner.input
        for graph in proto.graphs_in(inner):
            yield from (o.name for o in graph.output)


class GraphNames(Frame):
    """The names of an ONNX graph while it is walked, and what attributes of a function are bound to."""

    def __init__(self, library: Library, opsets: dict[str, int], outer: GraphNames | None = None, bound: Attrs | None = None):
        super().__init__(outer)
        self.library, self.opsets = library, opsets
        self.bound: Attrs = bound if bound is not None else (outer.bound if outer else {})


class ModelNode(GraphNode):
    """A node as its translator sees it."""

    __slots__ = ("proto", "domain", "version", "given")
    frame: GraphNames

    def __init__(self, g: ModelTrace, frame: GraphNames, node: onnx.NodeProto):
        super().__init__(g, frame, node.op_type, node.input, node.output, node.name)
        self.proto = node
        self.domain = proto.domain_of(node)
        self.version = frame.opsets.get(self.domain, 1)
        self.given = {a.name: a for a in node.attribute}

    @property
    def outputs(self) -> int:
        """The number of results: those up to the last one that has a name."""
        return max((k + 1 for k, name in enumerate(self.proto.output) if name), default=0)

    def inputs(self, values: Sequence[Value], least: int, most: int) -> list[Value]:
        """At least `most` inputs, None for those that are left out. Raises GraphError for fewer than `least`."""
        if len(values) < least:
            raise GraphError(f"{self.op} has {len(values)} inputs, and needs {least}", fix="is the file damaged?")
        return [*values, *[None] * (most - len(values))]

    def wants(self, k: int) -> bool:
        return k < len(self.proto.output) and bool(self.proto.output[k])

    def has(self, name: str) -> bool:
        return self.attr(name) is not None

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute's value; within a function that of the call."""
        a = self.given.get(name)
        if a is None:
            return default
        if a.ref_attr_name:
            return self.frame.bound.get(a.ref_attr_name, default)
        return self.frame.library.attribute(a)

    @property
    def described(self) -> str:
        """See `GraphNode.described`."""
        return f"{self.domain or 'ai.onnx'}.{self.op}, version {self.version}"

    def translate(self, inputs: list[Value]) -> Any:
        """See `GraphNode.translate`."""
        return translated(self, inputs)

    def graph(self, graph: onnx.GraphProto, inputs: Sequence[Value]) -> list[Value]:
        """A graph in an attribute, walked with these values for its inputs."""
        self.g.count()
        if len(inputs) != len(graph.input):
            raise GraphError(f"the graph {graph.name!r} takes {len(graph.input)} values, and gets {len(inputs)}")
        frame = GraphNames(self.frame.library, self.frame.opsets, self.frame)
        frame.names.update({i.name: v for i, v in zip(graph.input, inputs, strict=True)})
        return walk_graph(self.g, frame, graph)


def walk_graph(g: ModelTrace, frame: GraphNames, graph: onnx.GraphProto, outputs: Sequence[str] | None = None) -> list[Value]:
    """The outputs of a graph whose inputs are in the frame, or other values of it."""
    library = frame.library
    for t in (*graph.initializer, *graph.sparse_initializer):
        name = t.name if isinstance(t, onnx.TensorProto) else t.values.name
        constant = library.constant(t)
        frame.names.setdefault(name, g.parameter(name, constant) if frame.outer is None else constant)
    return walk_nodes(g, frame, graph.node, [o.name for o in graph.output] if outputs is None else outputs)


def walk_nodes(g: ModelTrace, frame: GraphNames, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> list[Value]:
    """Nodes in the order of the file."""
    return walk(g, frame, (ModelNode(g, frame, node) for node in nodes), outputs, frame.library.last_uses(nodes, outputs))


def translated(node: ModelNode, inputs: list[Value]) -> Any:
    """Returns a node's results: folded if all inputs are constant, by its translator, as a record, or by calling its function."""
    if node.domain == "" and node.op in folding.FOLD and all(i is None or isinstance(i, (ConstantArray, Sizes)) for i in inputs):
        folded = folding.fold(node, inputs)
        if folded is not NotImplemented:
            return folded
    if node.domain == "" and node.op in folding.TEXTUAL and any(is_text(i) for i in inputs):
        return folding.of_text(node, inputs)
    function = local_function(node)
    if function is not None:
        return call_function(node, function, inputs)
    translator = table.find(node.domain, node.op, node.version)
    if translator is not None:
        return translator(node, *inputs)
    record = table.one_to_one().get(node.op) if node.domain == "" else None
    if record is not None:
        return each(node.g, record, *inputs)
    function = standard_function(node, inputs)
    if function is not None:
        return call_function(node, function, inputs)
    raise UnsupportedError(f"there is no translation of {node.domain or 'ai.onnx'}.{node.op}", fix="see the table in docs/onnx.md")


# ---- functions --------------------------------------------------------------------------------------------------------


def local_function(node: ModelNode) -> onnx.FunctionProto | None:
    """The model's own function of this name."""
    return node.frame.library.functions.get((node.proto.domain, node.op, getattr(node.proto, "overload", "")))


def schema(domain: str, op: str, version: int) -> Any:
    try:
        return onnx.defs.get_schema(op, version, domain)
    except (onnx.defs.SchemaError, TypeError):
        return None


def standard_function(node: ModelNode, inputs: Sequence[Value]) -> onnx.FunctionProto | None:
    """The function that the standard says the op is."""
    found = schema(node.domain, node.op, node.version)
    if found is None:
        return None
    if found.has_function:
        return kept(node, found.function_body)
    if not found.has_context_dependent_function:
        return None
    types = [b"" if v is None else type_proto(v).SerializeToString() for v in inputs]
    plain = onnx.NodeProto()
    plain.CopyFrom(node.proto)
    for k in [k for k, a in enumerate(plain.attribute) if a.ref_attr_name][::-1]:
        name = plain.attribute[k].name
        del plain.attribute[k]
        if node.attr(name) is not None:
            plain.attribute.append(onnx.helper.make_attribute(name, node.attr(name)))
    body = found.get_context_dependent_function(plain.SerializeToString(), types)
    function = onnx.FunctionProto()
    function.ParseFromString(body)
    return kept(node, function) if function.node else None


def kept(node: ModelNode, function: onnx.FunctionProto) -> onnx.FunctionProto:
    node.frame.library.kept.append(function)
    return function


def type_proto(v: Value) -> onnx.TypeProto:
    if isinstance(v, list):
        return onnx.helper.make_sequence_type_proto(type_proto(v[0]) if v else onnx.helper.make_tensor_type_proto(1, None))
    shape = [n if isinstance(n, int) else None for n in v.shape]
    return onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(v.np)), shape)


def call_function(node: ModelNode, function: onnx.FunctionProto, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """A function's body in place of the call, with its attributes bound."""
    bound: Attrs = {a.name: node.frame.library.attribute(a) for a in function.attribute_proto}
    standard = schema(node.domain, node.op, node.version) if local_function(node) is None else None
    if standard is not None:
        bound.update(
            {name: node.frame.library.attribute(a.default_value) for name, a in standard.attributes.items() if a.default_value.type}
        )
    bound.update({a: node.attr(a) for a in node.given})
    frame = GraphNames(node.frame.library, node.frame.opsets | proto.imported(function), None, bound)
    frame.depth = node.frame.depth + 1
    given = [*inputs, *[None] * (len(function.input) - len(inputs))]
    frame.names.update(dict(zip(function.input, given, strict=False)))
    wanted = [name for k, name in enumerate(function.output) if node.wants(k)]
    found = dict(zip(wanted, walk_nodes(node.g, frame, function.node, wanted), strict=True))
    return tuple(found.get(name) for name in function.output)


# ---- what cannot be read ----------------------------------------------------------------------------------------------


def unsupported(model: onnx.ModelProto, library: Library) -> list[str]:
    """Every node, in graphs and functions at any depth, that has no translation: op, domain, version, name, the nearest."""
    found: list[str] = []
    own = {(f.domain, f.name) for f in model.functions}
    todo = [(model.graph.node, library.opsets)]
    todo += [(f.node, library.opsets | proto.imported(f)) for f in model.functions]
    for nodes, versions in todo:
        for node in proto.nodes_in(nodes):
            domain = proto.domain_of(node)
            version = versions.get(domain, 1)
            if (node.domain, node.op_type) not in own and not known(domain, node.op_type, version):
                found.append(refusal(node, domain, version))
    return found


def known(domain: str, op: str, version: int) -> bool:
    if table.find(domain, op, version) is not None or (domain == "" and op in table.one_to_one()):
        return True
    found = schema(domain, op, version)
    return found is not None and (found.has_function or found.has_context_dependent_function)


def refusal(node: onnx.NodeProto, domain: str, version: int) -> str:
    same = sorted({d or "ai.onnx" for d, op in table.TABLE if op == node.op_type})
    near = difflib.get_close_matches(node.op_type, [op for d, op in table.TABLE if d == domain], 1)
    hint = f"; there is {same[0]}.{node.op_type}" if same else f"; the nearest is {near[0]}" if near else ""
    return f"{domain or 'ai.onnx'}.{node.op_type} (version {version}), node {node.name or ', '.join(map(str, node.output))!r}{hint}"

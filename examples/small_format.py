"""A frontend in a hundred lines: `.steps`, JSON files of nodes in any order, with variables, branches, loops, channels last.

{"name": "counter", "inputs": {"x": ["float32", ["N", 3]]}, "outputs": ["y"], "variables": {"count": 0.0}, "arrays": {"one": 1.0},
 "nodes": [{"op": "assign", "variable": "count", "takes": ["more"], "name": "counted"},
           {"op": "add", "takes": ["now", "one"], "gives": ["more"]}, {"op": "read", "variable": "count", "gives": ["now"]},
           {"op": "multiply", "takes": ["x", "more"], "gives": ["y"], "after": ["counted"]}]}
"""

import json
import os

import numpy as np

from ngraph.errors import UnsupportedError
from ngraph.frontends.positional import control
from ngraph.frontends.positional.elementwise import alone, each
from ngraph.frontends.positional.formats import FileFacts, FileGraph, FileNode, Format, register
from ngraph.frontends.positional.ports import About, Port
from ngraph.frontends.positional.products import matmul
from ngraph.frontends.positional.reader import Reader, parameter, trainable
from ngraph.frontends.positional.reductions import REDUCTIONS, reduce_over
from ngraph.frontends.positional.shapes import permuted
from ngraph.frontends.positional.values import ConstantArray
from ngraph.frontends.positional.walk import Frame, GraphNode, in_order, last_uses, walk
from ngraph.frontends.positional.windows import convolution, windowing
from ngraph.op_graph.files import told
from ngraph.ops import elementwise as e

TRANSLATORS = {
    "add": lambda n, a, b: each(n.g, e.add, a, b),
    "multiply": lambda n, a, b: each(n.g, e.multiply, a, b),
    "less": lambda n, a, b: each(n.g, e.less, a, b),
    "relu": lambda n, x: alone(n.g, e.relu, x),
    "matmul": lambda n, a, b: matmul(n.g, n.g.tensor(a), n.g.tensor(b)),
    "sum": lambda n, x: reduce_over(n.g.tensor(x), range(x.rank), REDUCTIONS["sum"], False),
    "read": lambda n: n.g.current(n.about["variable"]),
}


def translates(op):
    return lambda function: TRANSLATORS.setdefault(op, function)


@translates("assign")
def assign(n, value):
    n.g.assign(n.about["variable"], value)
    return ()


@translates("conv")
def conv(n, x, w):
    """x [n, height, width, c], w [height, width, c, m]: other orders of dims, no transposes."""
    image, filters = permuted(n.g.tensor(x), 0, 3, 1, 2), permuted(n.g.tensor(w), 3, 2, 0, 1)
    by = windowing(n.g.numbers(filters.shape[2:]), n.about.get("strides"), auto=n.about.get("padding", "VALID"))
    return permuted(convolution(n.g, image, filters, by), 0, 2, 3, 1)


@translates("if")
def branch(n, condition):
    return control.branch(n.g, condition, lambda: n.graph("then", []), lambda: n.graph("else", []))


@translates("while")
def loop(n, *carry):
    """The graph `holds` says of what is carried whether the graph `body` is walked again."""

    def turn(values):
        carried = n.graph("body", values[2:])
        return [*n.graph("holds", carried), *carried]

    return control.loop(n.g, None, n.graph("holds", carry)[0], carry, turn)


@translates("repeat")
def repeat(n, *carry):
    return control.loop(n.g, ConstantArray(n.about["times"]), None, carry, lambda v: [ConstantArray(True), *n.graph("body", v[2:])])


class Step(GraphNode):
    """A node of such a file."""

    def __init__(self, g, frame, about):
        super().__init__(g, frame, about["op"], about.get("takes", []), about.get("gives", []), about.get("name", ""))
        self.about = about

    def translate(self, inputs):
        return TRANSLATORS[self.op](self, *inputs)

    def graph(self, name, values):
        frame = Frame(self.frame)
        frame.names.update(zip(self.about[name]["takes"], values, strict=True))
        return walk_graph(self.g, frame, self.about[name], self.about[name]["gives"])


def graphs(about):
    return {name: value for name, value in about.items() if isinstance(value, dict)}


def used(about):
    """What a node and the graphs in it take from around it, or from themselves."""
    return [*about.get("takes", []), *(x for g in graphs(about).values() for inner in g["nodes"] for x in used(inner)), *outputs(about)]


def outputs(about):
    return [x for g in graphs(about).values() for x in g["gives"]]


def ordered(graph):
    """Nodes in an order in which each finds what it takes; `after` names nodes, or values, that come before it."""
    return in_order(graph["nodes"], used, lambda n: [*n.get("gives", []), n.get("name")], lambda n: n.get("after", []))


def walk_graph(g, frame, graph, wanted):
    nodes = ordered(graph)
    return walk(g, frame, (Step(g, frame, n) for n in nodes), wanted, last_uses(map(used, nodes), wanted))


class StepsReader(Reader):
    def __init__(self, source, transformer, patterns, indices):
        self.file = file = content(source)
        unknown = [f"{n['op']}, node {n.get('name', '?')}" for n in file["nodes"] if n["op"] not in TRANSLATORS]
        if unknown:
            raise UnsupportedError(f"{len(unknown)} nodes of {file['name']} cannot be translated", details=tuple(unknown))
        self.arrays = {name: np.array(a, np.float32) for name, a in file.get("arrays", {}).items()}
        own = {name: np.array(a, np.float32) for name, a in file.get("variables", {}).items()}
        own |= {name: self.arrays.pop(name) for name in trainable(patterns, list(self.arrays))}
        about = About(file["name"], *ports(file))
        super().__init__(about, transformer, {name: parameter(name, a) for name, a in own.items()}, indices)

    def values(self, g, inputs, outputs):
        frame = Frame()
        frame.names.update({name: ConstantArray(a, name) for name, a in self.arrays.items()})
        frame.names.update({name: g.current(name) for name in self.variables}, **inputs)
        return walk_graph(g, frame, self.file, outputs)


def content(source):
    with told(source, "read"), open(source, encoding="utf-8") as file:
        return json.load(file)


def ports(file):
    inputs = [Port(name, kind, tuple(shape), np.dtype(kind), "tensor") for name, (kind, shape) in file["inputs"].items()]
    return tuple(inputs), (), tuple([Port(name, "float32", None, None, "tensor") for name in file["outputs"]])


def file_graph(graph, inputs, outputs, arrays):
    nodes = []
    for n in ordered(graph):
        words = [f"{k} = {v}" for k, v in n.items() if k not in ("op", "name", "takes", "gives") and not isinstance(v, dict)]
        inner = [(name, file_graph(g, g["takes"], g["gives"], {})) for name, g in graphs(n).items()]
        nodes.append(FileNode(n.get("name", ""), n["op"], n.get("takes", []), n.get("gives", []), words, inner))
    return FileGraph(nodes, inputs, outputs, {name: np.shape(a) for name, a in arrays.items()}, {})


class Steps(Format):
    name, endings = "steps", (".steps",)

    def read(self, source, transformer, trainable, indices):
        return StepsReader(os.fspath(source), transformer, trainable, indices)

    def facts(self, path):
        file = content(path)
        inputs, _, outputs = ports(file)
        arrays = file.get("arrays", {}) | file.get("variables", {})
        return FileFacts(file["name"], inputs, outputs, file_graph(file, list(file["inputs"]), file["outputs"], arrays))


STEPS = register(Steps())

"""The verbs that look into model files: `profile`, where the time of a call goes, and `view`, the graph as a page to move around in.

ngraph profile model.onnx --shape x:1,3,224,224 --html profile.html
ngraph view model.onnx --open
"""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

from ngraph.runtime.profile import KernelProfile, Profile
from ngraph.tools import graph, viewer
from ngraph.tools.files import check_output, number_from, write
from ngraph.tools.models import feeds_of, frontend, inputs_of, loaded, model_of
from ngraph.verbs import Answer, UsageError, verb

MAX_SHOWN = 6  # numbers of an attribute, values of a node, that a box shows

# ---- profile ------------------------------------------------------------------------------------------------------------


def _profile(parser: Any) -> None:
    inputs_of(parser)
    parser.add_argument("--calls", type=number_from(1), default=10, metavar="N", help="calls, of which the fastest counts (default: 10)")
    parser.add_argument("--trace", metavar="FILE", help="write a trace for chrome://tracing or ui.perfetto.dev")
    parser.add_argument("--html", metavar="FILE", help="write a page that shows every kernel")


@verb("profile", "say where the time of a call goes, kernel by kernel, with the nodes of the file", _profile)
def profile(arguments: Any) -> Answer:
    """`ngraph profile model.onnx`, `… --trace trace.json`, `… --html profile.html`."""
    check_output(arguments.trace, ".json")
    check_output(arguments.html, ".html")
    model = loaded(arguments.model)
    slots = model.about.bound(feeds_of(arguments, model))
    found = joined(model.name, [call.profile(*given, calls=arguments.calls) for call, given in model.reader.computations(slots)])
    for path, text in ((arguments.trace, Profile.json), (arguments.html, Profile.html)):
        if path:
            write(path, text(found))
    hosts = sum(model.host_callbacks.values())
    lines = [str(found), *([f"{hosts} steps run in Python: {', '.join(model.host_callbacks)}"] if hosts else [])]
    fields = [f.name for f in dataclasses.fields(KernelProfile)]
    rows = [{name: getattr(r, name) for name in fields} | {"share of limit": r.share} for r in found.ranked]
    data = {"name": found.name, "seconds": found.seconds, "calls": found.calls, "threads": found.threads, "kernels": rows}
    return Answer("\n".join(lines), data | {"host_callbacks": model.host_callbacks})


def joined(name: str, parts: Sequence[Profile]) -> Profile:
    """One profile of computations that run one after another."""
    rows: list[KernelProfile] = []
    at = 0.0
    for p in parts:
        rows += [dataclasses.replace(r, start=r.start + at, end=r.end + at) for r in p.rows]
        at += p.seconds
    if not parts:
        raise UsageError(f"{name} computes nothing: what it gives is known, or comes from Python")
    return dataclasses.replace(parts[0], name=name, rows=tuple(rows), seconds=at, threads=max(p.threads for p in parts))


# ---- view ---------------------------------------------------------------------------------------------------------------


def _view(parser: Any) -> None:
    model_of(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="where the page goes (default: the model's name with .html, here)")
    parser.add_argument("--open", action="store_true", help="show it in the browser")


@verb("view", "draw a model's graph as a page: names fold, nodes are found, attributes and shapes are shown", _view)
def view(arguments: Any) -> Answer:
    """`ngraph view model.onnx -o model.html --open`."""
    name = os.path.splitext(os.path.basename(arguments.model))[0]
    path = arguments.output or f"{name}.html"
    check_output(path, ".html")
    file, _ = frontend("proto").read(arguments.model)
    drawn = Drawing(file).picture
    write(path, viewer.page(drawn, graph.FILLS, name))
    if arguments.open:
        importlib.import_module("webbrowser").open(f"file://{os.path.abspath(path)}")
    size = {"boxes": len(drawn.boxes), "arrows": len(drawn.edges)}
    return Answer(f"{path}: {size['boxes']} boxes, {size['arrows']} arrows", {"page": path, **size})


class Drawing:
    """A file's graph as boxes: inputs, nodes, those of graphs in them too; names with slashes are scopes. Weights stand in their nodes."""

    def __init__(self, model: Any):
        self.picture = graph.Picture()
        self.types = dict(types(model.graph))
        self.graph(model.graph, {}, "")

    def graph(self, g: Any, outer: dict[str, int | str], scope: str) -> list[int | str]:
        """Its outputs. `outer` are the names around it: for each the number of a box, or the text of a constant."""
        names = dict(outer)
        self.types.update(types(g))
        names.update({t.name: f"{shown_shape(t.dims)}" for t in g.initializer})
        for i in g.input:
            if i.name not in names or i.name in outer:
                names[i.name] = self.box("placeholder", [i.name], "", scope)
        results = {o.name for o in g.output}
        for node in g.node:
            if node.op_type == "Constant" and not results & set(node.output):
                names.update(dict.fromkeys(node.output, "constant"))
                continue
            path = (node.name or next(filter(None, node.output), "")).split("/")
            within = "/".join(filter(None, [scope, *path[:-1]]))
            graphs = [(a.name, h) for a in node.attribute for h in (*([a.g] if a.HasField("g") else []), *a.graphs)]
            about = [f"{a.name} = {self.value(a)}" for a in node.attribute if not a.HasField("g") and not a.graphs]
            held = [f"{k}: {names[name]}" for k, name in enumerate(node.input) if isinstance(names.get(name), str)][:MAX_SHOWN]
            note = "\n".join([node.op_type + (f" of {node.domain}" if node.domain else ""), *about, *held])
            inner = [b for name, h in graphs for b in self.graph(h, names, "/".join(filter(None, [within, f"{path[-1]} {name}"])))]
            lines = [path[-1], ".".join(filter(None, [frontend("proto").domain_of(node), node.op_type])), *held[:2]]
            here = self.box("op", lines, note, within, node.output, bool(results & set(node.output)))
            used = [names.get(name) for name in node.input]
            self.picture.edges += [(a, here) for a in dict.fromkeys([*used, *inner]) if type(a) is int]
            names.update({o: here for o in node.output if o})
        return [names[o.name] for o in g.output if o.name in names]

    def box(self, kind: str, lines: list[str], note: str, scope: str, outputs: Sequence[str] = (), result: bool = False) -> int:
        number = len(self.picture.boxes)
        of = ", ".join([self.types[o] for o in (outputs or lines[:1]) if o in self.types])
        notes = "\n".join([note, *(f"gives {o}" for o in outputs if o), "", f"box {number}"])
        self.picture.boxes.append(graph.Box(kind, [*filter(None, lines), *([of] if of else [])], notes, result, of, scope))
        return number

    def value(self, a: Any) -> str:
        made = importlib.import_module("onnx").helper.printable_attribute(a)
        return str(made).partition(" = ")[2][:200]


def types(g: Any) -> Iterator[tuple[str, str]]:
    """The types of a graph's values, where the file tells them."""
    port = frontend("reading").port
    for v in (*g.input, *g.output, *g.value_info):
        found = port(v)
        yield v.name, str(found).rpartition(": ")[2]


def shown_shape(dims: Sequence[int]) -> str:
    return f"[{', '.join(map(str, dims))}]"

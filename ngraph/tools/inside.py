"""The verbs that inspect model files: `profile`, the time of a call by kernel, and `view`, the graph as a navigable page.

ngraph profile model.onnx --shape x:1,3,224,224 --html profile.html
ngraph view model.onnx --open
"""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Sequence
from typing import Any

from ngraph.frontends.positional import formats
from ngraph.frontends.positional.formats import FileGraph
from ngraph.runtime.profile import KernelProfile, Profile
from ngraph.tools import graph, viewer
from ngraph.tools.files import check_output, number_from, write
from ngraph.tools.models import feeds_of, inputs_of, loaded, model_of
from ngraph.verbs import Answer, UsageError, verb

MAX_SHOWN = 6  # numbers of an attribute, values of a node, in a box

# ---- profile ------------------------------------------------------------------------------------------------------------


def _profile(parser: Any) -> None:
    inputs_of(parser)
    parser.add_argument("--calls", type=number_from(1), default=10, metavar="N", help="calls, of which the fastest counts (default: 10)")
    parser.add_argument("--trace", metavar="FILE", help="write a trace for chrome://tracing or ui.perfetto.dev")
    parser.add_argument("--html", metavar="FILE", help="write a page that shows every kernel")


@verb("profile", "say where the time of a call goes, kernel by kernel, with the nodes of the file", _profile)
def profile(arguments: Any) -> Answer:
    """Runs `ngraph profile model.onnx`, `… --trace trace.json`, `… --html profile.html`."""
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
    """Returns one profile of computations that run in sequence."""
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
    """Runs `ngraph view model.onnx -o model.html --open`."""
    name = os.path.splitext(os.path.basename(arguments.model))[0]
    path = arguments.output or f"{name}.html"
    check_output(path, ".html")
    drawn = Drawing(formats.of(arguments.model).facts(arguments.model).graph).picture
    write(path, viewer.page(drawn, graph.FILLS, name))
    if arguments.open:
        importlib.import_module("webbrowser").open(f"file://{os.path.abspath(path)}")
    size = {"boxes": len(drawn.boxes), "arrows": len(drawn.edges)}
    return Answer(f"{path}: {size['boxes']} boxes, {size['arrows']} arrows", {"page": path, **size})


class Drawing:
    """A file's graph as boxes: inputs and nodes, nested graphs included; names with slashes are scopes. Weights are part of nodes."""

    def __init__(self, whole: FileGraph):
        self.picture = graph.Picture()
        self.types: dict[str, str] = {}
        self.graph(whole, {}, "")

    def graph(self, g: FileGraph, outer: dict[str, int | str], scope: str) -> list[int | str]:
        """Returns its outputs. `outer` maps the enclosing graph's names to the number of a box, or the text of a constant."""
        names = dict(outer)
        self.types.update(g.types)
        names.update({name: f"[{', '.join(map(str, shape))}]" for name, shape in g.arrays.items()})
        for name in g.inputs:
            if name not in names or name in outer:
                names[name] = self.box("placeholder", [name], "", scope)
        results = set(g.outputs)
        for node in g.nodes:
            if node.constant and not results & set(node.gives):
                names.update(dict.fromkeys(node.gives, "constant"))
                continue
            path = (node.name or next(filter(None, node.gives), "")).split("/")
            within = "/".join(filter(None, [scope, *path[:-1]]))
            held = [f"{k}: {names[name]}" for k, name in enumerate(node.takes) if isinstance(names.get(name), str)][:MAX_SHOWN]
            note = "\n".join([node.op, *node.attributes, *held])
            inner = [b for name, h in node.graphs for b in self.graph(h, names, "/".join(filter(None, [within, f"{path[-1]} {name}"])))]
            here = self.box("op", [path[-1], node.op, *held[:2]], note, within, node.gives, bool(results & set(node.gives)))
            used = [names.get(name) for name in node.takes]
            self.picture.edges += [(a, here) for a in dict.fromkeys([*used, *inner]) if type(a) is int]
            names.update({o: here for o in node.gives if o})
        return [names[name] for name in g.outputs if name in names]

    def box(self, kind: str, lines: list[str], note: str, scope: str, outputs: Sequence[str] = (), result: bool = False) -> int:
        number = len(self.picture.boxes)
        of = ", ".join([self.types[o] for o in (outputs or lines[:1]) if o in self.types])
        notes = "\n".join([note, *(f"gives {o}" for o in outputs if o), "", f"box {number}"])
        self.picture.boxes.append(graph.Box(kind, [*filter(None, lines), *([of] if of else [])], notes, result, of, scope))
        return number

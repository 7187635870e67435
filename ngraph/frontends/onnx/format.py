"""ONNX among the formats of model files. The package onnx is imported when a file is read."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ngraph.frontends.positional.formats import FileFacts, FileGraph, FileNode, Format, register
from ngraph.frontends.positional.model import Model

if TYPE_CHECKING:
    from ngraph.frontends.positional.reader import Reader


def room(name: str) -> Any:
    """A module of this frontend that needs the package onnx."""
    return importlib.import_module(f"ngraph.frontends.onnx.{name}")


class Onnx(Format):
    """The format ONNX, which takes files of other names too."""

    name, endings, package = "ONNX", (".onnx", ""), "onnx"

    def read(self, source: Any, transformer: Any, trainable: Sequence[str], indices: str) -> Reader:
        """See `Format.read`."""
        made: Reader = room("reading").OnnxReader(source, transformer, trainable, indices)
        return made

    def facts(self, path: str) -> FileFacts:
        """See `Format.facts`."""
        proto, reading = room("proto"), room("reading")
        file, home = proto.read(path)
        main = file.graph
        own = {t.name for t in main.initializer}
        inputs, outputs = ([reading.port(v) for v in vs] for vs in ([i for i in main.input if i.name not in own], main.output))
        made_by = f"{file.producer_name} {file.producer_version}".strip()
        opsets = {k or "ai.onnx": v for k, v in proto.opsets(file).items()}
        said = [f"IR {file.ir_version}", *(f"{k} {v}" for k, v in opsets.items()), *([f"made by {made_by}"] if made_by else [])]
        data = {"producer": made_by, "ir_version": file.ir_version, "opsets": opsets, "functions": len(file.functions)}
        return FileFacts(main.name, inputs, outputs, graph_of(main), reading.refused(file, home), said, data)

    def save(self, model: Model, path: str, **options: Any) -> None:
        """See `ng.onnx.save`."""
        room("export").save(model, path, **options)

    def elsewhere(self, path: str, values: Sequence[str] = ()) -> Any:
        """See `Format.elsewhere`."""
        if not values:
            return path
        onnx, file = importlib.import_module("onnx"), room("proto").whole(path)
        del file.graph.output[:]
        file.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in values)
        return file.SerializeToString()


def graph_of(graph: Any) -> FileGraph:
    """A graph of a file, with those in its nodes."""
    proto, reading = room("proto"), room("reading")
    printed = importlib.import_module("onnx").helper.printable_attribute
    types = {v.name: str(reading.port(v)).rpartition(": ")[2] for v in (*graph.input, *graph.output, *graph.value_info)}
    nodes = []
    for n in graph.node:
        plain = [a for a in n.attribute if not a.HasField("g") and not a.graphs]
        words = [f"{a.name} = {str(printed(a)).partition(' = ')[2][:200]}" for a in plain]
        inner = [(a.name, graph_of(g)) for a in n.attribute for g in (*([a.g] if a.HasField("g") else []), *a.graphs)]
        op = ".".join(filter(None, [proto.domain_of(n), n.op_type]))
        nodes.append(FileNode(n.name, op, n.input, n.output, words, inner, n.op_type == "Constant"))
    arrays: Mapping[str, Sequence[int]] = {t.name: t.dims for t in graph.initializer}
    return FileGraph(nodes, [i.name for i in graph.input], [o.name for o in graph.output], arrays, types)


ONNX = register(Onnx())

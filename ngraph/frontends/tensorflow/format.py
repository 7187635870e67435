"""TensorFlow's files among the formats of model files. The package protobuf is imported when a file is read."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ngraph.frontends.positional.formats import FileFacts, FileGraph, FileNode, Format, register

if TYPE_CHECKING:
    from ngraph.frontends.positional.reader import Reader


def room(name: str) -> Any:
    """Returns a module of this frontend that needs the package protobuf."""
    return importlib.import_module(f"ngraph.frontends.tensorflow.{name}")


class Tensorflow(Format):
    """SavedModels (folders), graphs (.pb, .pbtxt), meta graphs (.meta) with their checkpoints.

    signature  the one that is called, by name; None: the default one      tags  of the graph in a SavedModel; None: `serve`
    """

    name, endings, package = "TensorFlow", (".pb", ".pbtxt", ".meta"), "google_crc32c"

    def __init__(self, signature: str | None = None, tags: Any = None):
        self.signature, self.tags = signature, tags

    def owns(self, path: str) -> bool:
        """See `Format.owns`."""
        if os.path.isdir(path):
            return any(os.path.isfile(os.path.join(path, f"saved_model.{end}")) for end in ("pb", "pbtxt"))
        return super().owns(path)

    def main(self, source: Any) -> Any:
        """See `Format.main`."""
        inner = [os.path.join(source, f"saved_model.{end}") for end in ("pb", "pbtxt")] if os.path.isdir(source) else []
        return next((path for path in inner if os.path.isfile(path)), source)

    def options(self, source: Any) -> str:
        """See `Format.options`. A model is called after its folder."""
        return repr((self.signature, self.tags, os.path.basename(os.path.abspath(source))))

    def read(self, source: Any, transformer: Any, trainable: Sequence[str], indices: str) -> Reader:
        """See `Format.read`."""
        file = room("saved").opened(source, self.tags)
        with room("saved").readable(file.name):
            made: Reader = room("reading").TensorflowReader(file, file.signature(self.signature), transformer, trainable, indices)
        return made

    def facts(self, path: str) -> FileFacts:
        """See `Format.facts`."""
        file = room("saved").opened(path, self.tags)
        room("translate")
        chosen = file.signature(self.signature)
        outputs = list(chosen.results.values())
        refused = room("graph").unsupported(file, file.graph, outputs, list(chosen.values.values()))
        nodes = [n for _, n in room("graph").needed(file, file.graph, outputs, list(chosen.values.values()))]
        version = file.proto.versions.producer
        said = [f"graph version {version}", *(f"signature {name}" for name in file.signatures)]
        arrays: Mapping[str, Sequence[int]] = file.checkpoint.get_variable_to_shape_map() if file.checkpoint is not None else {}
        shown = [FileNode(n.name, n.op, n.takes, [f"{n.name}:0"], (), (), n.op == "Const") for n in nodes]
        graph = FileGraph(shown, list(chosen.values.values()), outputs, arrays, {})
        data = {"version": version, "signatures": list(file.signatures), "functions": len(file.proto.library.function)}
        return FileFacts(file.name, chosen.inputs, chosen.outputs, graph, refused, said, data)


TENSORFLOW = register(Tensorflow())

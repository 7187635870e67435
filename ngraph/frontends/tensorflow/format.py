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


def inside(path: Any) -> str | None:
    """Returns the path of the file in a SavedModel's folder; None for another path."""
    inner = [os.path.join(path, f"saved_model.{end}") for end in ("pb", "pbtxt")] if os.path.isdir(path) else []
    return next(filter(os.path.isfile, inner), None)


class Tensorflow(Format):
    """SavedModels (folders), graphs (.pb, .pbtxt), meta graphs (.meta) with their checkpoints.

    signature  the one that is called, by name; None: the default one      tags  of the graph in a SavedModel; None: `serve`
    """

    name, endings, package = "TensorFlow", (".pb", ".pbtxt", ".meta"), "google_crc32c"

    def __init__(self, signature: str | None = None, tags: Any = None):
        self.signature, self.tags = signature, tags

    def owns(self, path: str) -> bool:
        """See `Format.owns`."""
        return inside(path) is not None if os.path.isdir(path) else super().owns(path)

    def main(self, source: Any) -> Any:
        """See `Format.main`."""
        return inside(source) or source

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
        chosen, version = file.signature(self.signature), file.proto.versions.producer
        outputs, inputs = list(chosen.results.values()), list(chosen.values.values())
        refused = room("graph").unsupported(file, file.graph, outputs, inputs)
        nodes = [n for _, n in room("graph").needed(file, file.graph, outputs, inputs)]
        said = [f"graph version {version}", *(f"signature {name}" for name in file.signatures)]
        arrays: Mapping[str, Sequence[int]] = file.checkpoint.get_variable_to_shape_map() if file.checkpoint is not None else {}
        shown = [FileNode(n.name, n.op, n.takes, [f"{n.name}:0"], (), (), n.op == "Const") for n in nodes]
        graph = FileGraph(shown, inputs, outputs, arrays, {})
        data = {"version": version, "signatures": list(file.signatures), "functions": len(file.proto.library.function)}
        return FileFacts(file.name, chosen.inputs, chosen.outputs, graph, refused, said, data)


TENSORFLOW = register(Tensorflow())

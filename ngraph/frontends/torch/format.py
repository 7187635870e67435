"""PyTorch's exported programs among the formats of model files. The package torch is imported when a file is read."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ngraph.frontends.positional.formats import FileFacts, FileGraph, FileNode, Format, register

if TYPE_CHECKING:
    from ngraph.frontends.positional.reader import Reader


def room(name: str) -> Any:
    """Returns a module of this frontend that needs the package torch."""
    return importlib.import_module(f"ngraph.frontends.torch.{name}")


class Pytorch(Format):
    """Exported programs, `.pt2`, as torch.export.save writes them."""

    name, endings, package = "PyTorch", (".pt2",), "torch"

    def read(self, source: Any, transformer: Any, trainable: Sequence[str], indices: str) -> Reader:
        """See `Format.read`."""
        made: Reader = room("reading").ExportedReader(room("exported").opened(source), transformer, trainable, indices)
        return made

    def facts(self, path: str) -> FileFacts:
        """See `Format.facts`."""
        file = room("exported").opened(path)
        named = room("graph").name_of
        shown = []
        for n in file.nodes:
            if n.op == "call_function" and not room("exported").skipped(n):
                gives = [] if isinstance(n.meta.get("val"), (tuple, list)) else [n.name]  # else `getitem` gives its results
                shown.append(FileNode(n.name, named(n).removeprefix("aten."), [a.name for a in n.all_input_nodes], gives))
        arrays = {name: a.array.shape for name, a in file.arrays.items()}
        graph = FileGraph(shown, [p.name for p in file.inputs], [str(v) for v in file.results.values()], arrays, {})
        said = [f"symbol {s}: {low or 0} to {'any' if high is None else high}" for s, (low, high) in file.ranges.items()]
        return FileFacts(file.name, file.inputs, file.outputs, graph, file.unsupported(), said, {"ranges": file.ranges})


PYTORCH = register(Pytorch())

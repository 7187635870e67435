"""Exported programs as models: `load` reads a `.pt2` file, or takes an ExportedProgram."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ngraph.errors import ArgumentError
from ngraph.frontends.positional.model import Model, patterns_of
from ngraph.frontends.torch.format import PYTORCH
from ngraph.op_graph.arguments import checked
from ngraph.transformers.base import Transformer, make_transformer


@checked
def load(source: Any, transformer: Any = None, trainable: str | Sequence[str] = (), indices: str = "raise") -> Model:
    """Returns the model in a file that `torch.export.save` has written, or in an ExportedProgram.

    source: the path of a `.pt2` file, or a torch.export.ExportedProgram. transformer: what runs it; the default one by default.
    trainable: patterns such as "*"; float parameters of these names, those of the state dict, are variables that can be trained; buffers
    that the program writes are variables, too. indices: what becomes of those of gathers that are out of bounds, `raise` a BoundsError or
    `clip` them to the nearest. Dims that were exported with a `torch.export.Dim` stay open; in others the length is fixed.
    Raises UnsupportedError with every node that has no translation, and for a file that carries pickled or compiled code; ParseError for
    a damaged file, FileError where there is none.
    Source: PyTorch 2.13, torch.export, PT2 archives.
    """
    if transformer is not None and not isinstance(transformer, Transformer):
        raise ArgumentError(f"transformer= takes a transformer, not {transformer!r}", fix="ngt.make_transformer()")
    if indices not in ("raise", "clip"):
        raise ArgumentError(f"indices={indices!r} is none of 'raise' and 'clip'", fix="indices='clip' takes the nearest place")
    if isinstance(source, (str, os.PathLike)):
        source = os.fspath(source)
        if not source.endswith(".pt2"):
            raise ArgumentError(
                f"{source} does not end in .pt2", fix="torch.export.save(torch.export.export(model, (x,)), 'model.pt2') writes such a file"
            )
    elif not hasattr(source, "graph_signature"):
        fix = "torch.export.export(model, (x,)) makes one of a module"
        raise ArgumentError(f"a model is loaded from a path or an ExportedProgram, not from {type(source).__name__}", fix=fix)
    patterns = patterns_of(trainable)
    return Model(source, PYTORCH, transformer if transformer is not None else make_transformer(), patterns, indices)

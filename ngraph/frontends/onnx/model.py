"""ONNX models: `load` reads a file, and gives a `Model` to be called."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ngraph.errors import ArgumentError
from ngraph.frontends.onnx.format import ONNX
from ngraph.frontends.positional.model import Model, Port, patterns_of
from ngraph.op_graph.arguments import checked
from ngraph.transformers.base import Transformer

__all__ = ["Model", "Port", "load"]


@checked
def load(
    source: Any,
    transformer: Any = None,
    trainable: str | Sequence[str] = (),
    indices: str = "raise",
    state: Mapping[str, str] | None = None,
    capacity: int | None = None,
) -> Model:
    """A model from an ONNX file: a path, the bytes of one, or a ModelProto.

    transformer: what runs it; the default one by default. trainable: patterns such as "*" or "layer4.*"; float initializers of these
    names become variables (`Model.graph`). indices: what becomes of those of Gather, Scatter and their like that are out of bounds: `raise`
    a BoundsError with the node's name, as ONNX Runtime does, or `clip` them to the nearest. state: {input: output}; these inputs become
    variables, which start as the file's array or as zeros, and hold after each call what the output gave. Those with one open length grow,
    from none to `capacity` places: the keys and values of a decoder's past. `model.used` has the lengths, `model.reset()` starts again.
    Raises UnsupportedError with every node that has no translation, ParseError for a damaged file.
    """
    if not isinstance(source, (str, os.PathLike, bytes, bytearray, memoryview)) and not hasattr(source, "graph"):
        fix = "ng.onnx.load(file.read())" if hasattr(source, "read") else "give the path of the file, as text"
        raise ArgumentError(f"a model is loaded from a path, bytes or a ModelProto, not from {type(source).__name__}", fix=fix)
    if transformer is not None and not isinstance(transformer, Transformer):
        fix = f"ngt.make_transformer_factory({transformer!r})()" if isinstance(transformer, str) else "ngt.make_transformer()"
        raise ArgumentError(f"transformer= takes a transformer, not {transformer!r}", fix=fix)
    patterns = patterns_of(trainable)
    if indices not in ("raise", "clip"):
        raise ArgumentError(f"indices={indices!r} is none of 'raise' and 'clip'", fix="indices='clip' takes the nearest place")
    if state is not None and not (isinstance(state, Mapping) and all(isinstance(n, str) for pair in state.items() for n in pair)):
        raise ArgumentError(f"state= takes names of inputs with names of outputs, not {state!r}", fix='state={"h": "h_new"}')
    if capacity is not None and (isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1):
        raise ArgumentError(f"capacity= takes a whole number above 0, not {capacity!r}", fix="capacity=512")
    return ONNX.load(source, transformer, trainable=patterns, indices=indices, state=state, capacity=capacity)

"""TensorFlow models: `load` reads a file, and gives a `TensorflowModel` to be called."""

from __future__ import annotations

import collections
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ngraph.errors import ArgumentError
from ngraph.frontends.positional.model import Model, patterns_of
from ngraph.frontends.tensorflow.format import Tensorflow, room
from ngraph.op_graph.arguments import checked
from ngraph.transformers.base import Transformer, make_transformer

__all__ = ["TensorflowModel", "load"]


class TensorflowModel(Model):
    """A model of TensorFlow's, called by its default signature: `model(x)`, or `model(x=…)`.

    signatures  a model for each signature, by name; they share the variables
    variables   the values of those that are written or trained, by name
    """

    reader: Any  # a TensorflowReader, whose room needs the package protobuf

    def __init__(self, source: Any, format: Tensorflow, transformer: Any, trainable: Sequence[str], indices: str):
        self._options = transformer, trainable, indices
        self._others: dict[str, TensorflowModel] = {}
        self._sessions: dict[str, TensorflowModel] = {}  # by the values that `run` fetches and feeds
        super().__init__(source, format, transformer, trainable, indices)

    @property
    def file(self) -> Any:
        """The model as its file has it (`saved.ModelFile`)."""
        return self.reader.file

    @property
    def signature(self) -> str:
        """The name of the signature that is called."""
        return str(self.reader.signature.name)

    @property
    def host_callbacks(self) -> dict[str, int]:
        """The steps that Python runs, by op, with their number; also in calls by values of the graph."""
        found = collections.Counter(super().host_callbacks)
        for made in self._sessions.values():
            found.update(made.host_callbacks)
        return dict(found)

    @property
    def signatures(self) -> Mapping[str, TensorflowModel]:
        """The model by each of its signatures."""
        for name in self.file.signatures:
            if name not in self._others:
                other = name != self.signature
                self._others[name] = TensorflowModel(self.file, Tensorflow(name), *self._options) if other else self
        return self._others

    def run(self, outputs: Any, feeds: Mapping[str, Any] | None = None, options: Any = None) -> Any:
        """See `Model.run`. Values of the graph may be named as TensorFlow's `Session.run` does: `run(["loss:0"], {"x:0": x})`.

        Names with a colon are values of the graph, as are those of nodes that are no outputs: those that are fed take the place of the
        nodes that make them, and what no fetched value needs is not run.
        """
        asked = outputs if feeds is not None else None
        fetched = asked if isinstance(asked, (list, tuple)) else []
        if feeds is not None and (any(":" in str(name) for name in (*fetched, *feeds)) or self._nodes_alone(fetched, feeds)):
            return self._session(list(fetched), feeds)
        return super().run(outputs, feeds, options)

    def _nodes_alone(self, fetched: Sequence[str], feeds: Iterable[str]) -> bool:
        """Returns whether some fetched name is no output, and all are names of nodes."""
        outputs = {p.name for p in self.outputs}
        return not outputs.issuperset(fetched) and all(str(name) in self.file.graph.nodes for name in (*fetched, *feeds))

    def _session(self, fetched: Sequence[str], feeds: Mapping[str, Any]) -> list[Any]:
        """Returns values of the graph by name, with others fed; None for a node that gives nothing."""
        key = "\n".join([*fetched, "", *feeds])
        if key not in self._sessions:
            self.file.by_value[key] = room("saved").by_values(self.file, list(fetched), list(feeds))
            self._sessions[key] = TensorflowModel(self.file, Tensorflow(key), *self._options)
        session, unset = self._sessions[key], len(self.file.unset)
        found = session._results({name: np.asarray(a) for name, a in feeds.items()})
        if len(self.file.unset) < unset:
            self._sessions.clear()  # they may have asked whether these variables have values
        silent = [self.file.graph.silent(value) for value in self.file.by_value[key].results.values()]
        return [None if nothing else a for nothing, a in zip(silent, found, strict=True)]

    def value(self, name: str) -> np.ndarray[Any, Any]:
        """Returns what a variable holds. Raises ArgumentError for an unknown name."""
        variable = self.file.shared.get(id(self.transformer), {}).get(name)
        if variable is not None and name not in self.file.unset:
            return np.asarray(self.transformer.get(variable))
        stored = self.file.stored(name)
        if stored is None:
            raise ArgumentError(f"{self.name} has no variable {name!r}", fix=f"there are {', '.join(self.file.handles.values()) or 'none'}")
        return np.array(stored.array)

    def save_checkpoint(self, prefix: str) -> None:
        """Writes all variables as a checkpoint that `tf.train.load_checkpoint` and the graph's own restore op read."""
        file, arrays = self.file, dict[str, Any]()
        for name in file.handles.values():
            key, value = file.keys.get(name, name), self.value(name)
            if name in file.parts:  # of a partitioned variable, which is written whole
                whole = arrays.setdefault(key, np.array(file.checkpoint.get_tensor(key)))
                whole[file.parts[name]] = value
            else:
                arrays[key] = value
        room("bundle").save_checkpoint(prefix, arrays)


@checked
def load(
    source: Any,
    transformer: Any = None,
    tags: Any = None,
    signature: str | None = None,
    trainable: str | Sequence[str] = (),
    indices: str = "raise",
) -> TensorflowModel:
    """Returns a model of TensorFlow's files, read without TensorFlow: a SavedModel's folder, a graph, or a meta graph with its checkpoint.

    source: a path, the bytes of a GraphDef, or an object of TensorFlow's own (GraphDef, Graph, concrete function).
    transformer: what runs it; the default one by default. tags: of the graph in a SavedModel, `serve` by default. signature: the one that
    `model(...)` calls, the default one by default. trainable: patterns such as "*"; float variables of these names can be trained.
    indices: what becomes of those of gathers that are out of bounds, `raise` a BoundsError or `clip` them to the nearest.
    Raises UnsupportedError with every node that has no translation, ParseError for a damaged file, FileError where there is none.
    """
    if transformer is not None and not isinstance(transformer, Transformer):
        raise ArgumentError(f"transformer= takes a transformer, not {transformer!r}", fix="ngt.make_transformer()")
    if indices not in ("raise", "clip"):
        raise ArgumentError(f"indices={indices!r} is none of 'raise' and 'clip'", fix="indices='clip' takes the nearest place")
    patterns = patterns_of(trainable)
    stored = isinstance(source, (str, os.PathLike, bytes, bytearray, memoryview))
    if not stored and not any(hasattr(source, a) for a in ("SerializeToString", "as_graph_def", "graph")):
        raise ArgumentError(f"a model is loaded from a path, not from {type(source).__name__}", fix="give the path of the model, as text")
    return TensorflowModel(source, Tensorflow(signature, tags), transformer or make_transformer(), patterns, indices)

"""The reader of a TensorFlow model: one signature of its graph, walked for each reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ngraph.errors import ArgumentError, GraphError
from ngraph.frontends.positional.ports import About
from ngraph.frontends.positional.reader import Reader, parameter, trainable
from ngraph.frontends.positional.trace import ModelTrace
from ngraph.frontends.positional.values import ConstantArray, Value
from ngraph.frontends.positional.walk import Frame
from ngraph.frontends.tensorflow import translate
from ngraph.frontends.tensorflow.graph import DEAD, GraphBody, check_supported, needed, node_of, walk_body
from ngraph.frontends.tensorflow.saved import ModelFile, Signature
from ngraph.frontends.tensorflow.signals import joined, parts_of

__all__ = ["TensorflowReader", "translate"]


class TensorflowReader(Reader):
    """The reader of a signature of a TensorFlow model."""

    def __init__(self, file: ModelFile, signature: Signature, transformer: Any, patterns: Sequence[str] = (), indices: str = "raise"):
        self.file, self.signature, self.proto = file, signature, file.proto
        results = list(signature.results.values())
        fed = list(signature.values.values())
        check_supported(file, file.name, file.graph, results, fed)
        about = About(file.name, signature.inputs, (), signature.outputs)
        wanted = file.written()
        nodes = [node.name for _, node in needed(file, file.graph, results, fed)] if patterns else []
        reached = dict.fromkeys(file.handles[name] for name in nodes if name in file.handles)  # files may store a weight twice
        floats = [name for name in reached if (start := file.stored(name)) is not None and start.array.dtype.kind == "f"]
        wanted |= set(trainable(patterns, floats))
        shared = file.shared.setdefault(id(transformer), {})
        for name in sorted(wanted - set(shared)):
            start = file.stored(name) or file.empty(name)
            if start is None:
                raise ArgumentError(f"the variable {name!r} of {file.name} has no value", fix="give the checkpoint of the graph")
            shared[name] = parameter(name, np.array(start.array))
        super().__init__(about, transformer, shared, indices)

    def external(self) -> list[str]:
        """See `Reader.external`."""
        return [] if self.file.checkpoint is None else self.file.checkpoint.files(self.file.home)

    def initial(self, name: str) -> np.ndarray[Any, Any] | None:
        """See `Reader.initial`."""
        return None

    def values(self, g: ModelTrace, inputs: Mapping[str, Value], outputs: Sequence[str]) -> list[Value]:
        """See `Reader.values`."""
        g.most, g.few_decide, g.clamped = self.file.most, self.file.few_decide, "ng.tensorflow.load(path, indices='clip') takes the nearest"
        frame = Frame()
        frame.names.update({self.signature.values[name]: parts_of(g, value) for name, value in inputs.items()})
        wanted, body = [self.signature.results[name] for name in outputs], self.file.graph
        silent = [v for v in wanted if body.silent(v)]  # nodes that are run and give nothing
        variables = {v: held for v in wanted if v not in frame.names and (held := body.fetched(v)) != v}  # given as they are in the end
        if silent or variables:
            run = [*body.wanted, *map(node_of, (*silent, *variables))]
            body = GraphBody(body.name, list(body.nodes.values()), body.takes, body.gives, run)
        wanted = [variables.get(v, v) for v in wanted]
        given = iter(walk_body(g, frame, body, [v for v in wanted if v not in silent], self.file))
        found = [ConstantArray(np.zeros(0)) if v in silent else next(given) for v in wanted]
        dead = [self.signature.results[name] for name, value in zip(outputs, found, strict=True) if value is DEAD]
        if dead:
            said = f"{', '.join(dead)} of {self.file.name} {'is' if len(dead) == 1 else 'are'} dead: a Switch sent its input the other way"
            raise GraphError(said, fix="fetch what the Merge behind it gives")
        return [joined(g, value) for value in found]

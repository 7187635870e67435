"""Compiled graphs that AOTAutograd keeps, and finds in the next process: no graph is traced or translated there.

AOTAutograd's key covers the graph of Dynamo's, its inputs and torch's own settings; `key` is the text that covers the rest.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import torch

from ngraph.config import config
from ngraph.frontends.torch import private
from ngraph.frontends.torch.graph import memory_order
from ngraph.frontends.torch.options import transformer_of
from ngraph.frontends.torch.reports import FunctionReport, GraphReport, begin
from ngraph.frontends.torch.steps import CompiledGraph
from ngraph.parts.deferred import deferred
from ngraph.runtime.cache import digest, makers
from ngraph.transformers.base import Transformer

dynamo = deferred("ngraph.frontends.torch.dynamo")
compiling: ContextVar[FunctionReport | None] = ContextVar("compiling", default=None)


def key(
    gm: torch.fx.GraphModule, given: Mapping[str, Any], settings: Mapping[str, Any], transformer: Transformer, inputs: Sequence[Any]
) -> str | None:
    """Returns a text that covers options, settings, ngraph itself, the orders of inputs in memory, and floats; None where nothing is kept.

    Floats of Python's come as tensors. AOTAutograd makes constants of some, with a guard that it does not look at when it finds a graph.
    """
    with config(**settings):
        facts, lengths = transformer.facts(), config.lengths
    if facts is None:
        return None
    orders = [memory_order(t) if isinstance(t, torch.Tensor) and t.layout is torch.strided else None for t in inputs]
    values = [n.meta.get("example_value") for n in gm.graph.nodes]
    floats = [v.node.hint for v in values if isinstance(v, torch.SymFloat)]
    return repr((makers().hex(), sorted(given.items()), sorted(settings.items()), facts, lengths, orders, floats))


class GraphCode(private.KeptCode):
    """A compiled graph, with what its report says. `warned`: the text of the warning of what torch runs; `given`: the options."""

    def __init__(self, graph: CompiledGraph, about: GraphReport, given: Mapping[str, Any], warned: str):
        super().__init__(graph.run)
        self.graph: CompiledGraph | None = graph
        self.about: GraphReport | None = about
        self.said, self.given, self.warned = about.said(), dict(given), warned
        self.held, self.checksum = b"", b""

    def packed(self) -> None:
        """See `KeptCode`."""
        assert self.graph is not None
        self.held = pickle.dumps(self.graph.packed(), 5)
        self.checksum = digest(self.held)
        self.graph = self.about = self.run = None

    def unpacked(self) -> None:
        """See `KeptCode`."""
        if digest(self.held) != self.checksum:
            raise private.Missed("a compiled graph of ngraph's is damaged")
        try:
            held = pickle.loads(self.held)
            frozen = any(step.frozen for step in held.ours.values())
            self.graph = CompiledGraph.restored(held, transformer_of(self.given, frozen))
        except Exception as error:  # written by another version, or for a library that is not imported here
            raise private.Missed(f"a compiled graph of ngraph's cannot be read here: {error!r}") from error
        self.run = self.graph.run
        found = compiling.get() or begin(private.Compiled("loaded", 0, "", False, ""))
        self.about = found.graph(self.said["kind"])
        self.about.again(self.said, self.graph)
        dynamo.warn(self.warned)

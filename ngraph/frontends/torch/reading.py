"""The reader of an exported program: its graph, walked for each reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch.fx import Node

from ngraph.errors import ArgumentError, UnsupportedError
from ngraph.frontends.positional.ports import About
from ngraph.frontends.positional.reader import Reader, parameter, trainable
from ngraph.frontends.positional.stages import StageRun
from ngraph.frontends.positional.trace import ModelTrace
from ngraph.frontends.positional.values import Tensor, Value, settled
from ngraph.frontends.torch.drawing import SEED
from ngraph.frontends.torch.exported import ExportedFile
from ngraph.frontends.torch.graph import NodeReading, behind_checks, is_item, name_of, skipped, told
from ngraph.frontends.torch.lengths import ExportTrace


class ExportedReader(Reader):
    """The reader of an exported program. Buffers that it writes, such as running statistics, are variables."""

    trace = ExportTrace

    def __init__(self, file: ExportedFile, transformer: Any, patterns: Sequence[str] = (), indices: str = "raise"):
        self.file = file
        bad = file.unsupported()
        if bad:
            what = f"{len(bad)} kinds of nodes" if len(bad) > 1 else "a node"
            raise UnsupportedError(
                f"{what} of {file.name} cannot be translated",
                details=tuple(bad),
                fix="run it in PyTorch by torch.compile(model, backend='ngraph'), which leaves these to torch",
            )
        floats = [name for name, a in file.arrays.items() if a.array.dtype.kind == "f" or a.np.name == "bfloat16"]
        names = {*file.writes, *trainable(patterns, floats)}
        variables = {name: parameter(name, np.array(file.arrays[name].array)) for name in file.arrays if name in names}
        super().__init__(About(file.name, file.inputs, (), file.outputs), transformer, variables, indices)

    def _measure(self, run: StageRun) -> None:
        """See `Reader._measure`. Raises ArgumentError for a length that the program was not exported for."""
        super()._measure(run)
        for symbol, given in self.file.symbols.items():
            n = run.lengths.get(given.label)
            if n is not None and self.fitting(given.label, n) != n:
                least, most = self.file.bounds(symbol)
                bounds = f"{least or 0} to {'any' if most is None else most}"
                bounds += f", in steps of {given.factor}" if given.factor != 1 else ""
                raise ArgumentError(
                    f"{self.file.name}: dim {given.dim} of {given.name} has length {n}, and the program was exported for {bounds}",
                    fix=f"give it a length that fits, or export it with a Dim(…, min=…, max=…) that allows {n}",
                )

    def fitting(self, label: str, length: int) -> int:
        """See `Reader.fitting`."""
        for symbol, given in self.file.symbols.items():
            if given.label == label:
                least, most = self.file.ranges.get(symbol, (None, None))
                n = max(given.symbol_of(length), least or 0)
                if most is not None and n > most:
                    first = min(max(least or 0, 3), most)  # shorter ones may be other graphs
                    n = first + (n - first) % (most - first + 1)
                return int(n * given.factor + given.offset)
        return length

    def _decided(self, g: ExportTrace, node: Node, reading: NodeReading) -> None:
        """Takes the lengths that a node's values decide: those before it are computed, and then it is known for the rest."""
        new = [(symbol, dim) for symbol, dim in told(node) if symbol not in g.symbols]
        if new and is_item(node):
            (number,) = g.ints(reading.of(node.args[0]))
            g.symbols.update({symbol: number for symbol, _ in new})
        elif new and isinstance(reading.values.get(node), Tensor):
            if any(map(g.unknown, reading.values[node].dims)):
                g.cut([reading.values[node]])
            g.symbols.update({symbol: reading.values[node].shape[dim] for symbol, dim in new})

    def values(self, g: ModelTrace, inputs: Mapping[str, Value], outputs: Sequence[str]) -> list[Value]:
        """See `Reader.values`."""
        assert isinstance(g, ExportTrace)
        file = self.file
        g.clamped = "ng.torch.load(path, indices='clip') takes the nearest"
        given = {name: g.tensor(value) for name, value in inputs.items()}
        g.symbols = {symbol: d.symbol_of(given[d.name].shape[d.dim]) for symbol, d in file.symbols.items()}
        reading = NodeReading(g)
        g.scopes.append(reading.values)  # stages put other values in place of these
        for node in file.nodes:
            if node.op == "placeholder":
                if node.name in file.holds:
                    name = file.holds[node.name]
                    reading.values[node] = g.tensor(g.parameter(name, file.arrays[name]))
                else:
                    reading.values[node] = given.get(node.name)  # None for a token, which keeps checks in order
            elif node.op == "call_function":
                g.count()
                if name_of(node) == SEED:
                    reading.values[node] = None  # the state of the transformer takes its place
                elif not skipped(node):
                    reading.read(node)
                self._decided(g, node, reading)
        by_name = {n.name: n for n in file.nodes}
        for name, written in file.writes.items():
            g.assign(name, reading.values[by_name[written]])
        found = [reading.of(file.results[name] if name in file.results else by_name[name]) for name in outputs]
        found = behind_checks(g, found, file.nodes, reading.values)
        g.scopes.pop()
        return [settled(np.array(v, object)) if not hasattr(v, "np") else v for v in found]

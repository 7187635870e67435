"""A model read from a file: named inputs and outputs, and calls that any number of threads may make.

What an earlier process compiled for a file and for inputs of these shapes is found by the `index`. Else the graph is read when it is first
called, and again only for calls whose lengths decide otherwise (`reading`). Parameters live in one transformer, which all computations of
a model share.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ngraph.errors import ArgumentError, ParseError, StateError
from ngraph.frontends.positional.index import DirectCall, ModelIndex
from ngraph.frontends.positional.ports import About, Port
from ngraph.op_graph.memory import no_collection
from ngraph.transformers import make_transformer

if TYPE_CHECKING:
    from ngraph.frontends.positional.formats import Format
    from ngraph.frontends.positional.reader import ImportedGraph, Reader

__all__ = ["Model", "Port"]

STRAIGHT = 256  # shapes of inputs for which the way to the computation is remembered


def patterns_of(trainable: Any) -> list[str]:
    """Returns `trainable=` of a `load` as a list. Raises ArgumentError for what is no pattern of names and no list of them."""
    patterns = [trainable] if isinstance(trainable, str) else trainable
    if not isinstance(patterns, Sequence) or not all(isinstance(p, str) for p in patterns):
        raise ArgumentError(f"trainable= takes a pattern of names or several, not {trainable!r}", fix='trainable="*"')
    return list(patterns)


class Model:
    """An imported model. Call it with arrays in the order of `inputs`, or by name; `run({"name": array})` gives a dict.

    inputs, outputs   what it takes and gives, each a `Port`
    variables         those initializers and inputs that are variables, by name
    fixed             names of dims whose length is taken as it comes, with a version for each; the others stay open
    readings          how often the graph was read: never, where all that was called was found compiled
    host_callbacks    what Python runs, by op, with their number
    proto             the file as the package of its format has it, large arrays apart; None where it has none
    """

    def __init__(
        self,
        source: Any,
        format: Format,
        transformer: Any = None,
        trainable: Sequence[str] = (),
        indices: str = "raise",
        state: Mapping[str, str] | None = None,
        capacity: int | None = None,
    ):
        self.format, self._state, self._capacity = format, dict(state or {}), capacity
        self.transformer = transformer if transformer is not None else make_transformer()
        self._source, self._trainable, self._indices = source, list(trainable), indices
        self._reader: Reader | None = None
        self._lock = threading.RLock()
        self._straight: dict[Hashable, DirectCall] = {}
        self._index = None if self._trainable or self._state else ModelIndex.of(source, self.transformer, format, indices)
        about = None if self._index is None else self._index.about()
        self.about: About = self.reader.about if about is None else about
        self.name, self.inputs, self.defaults, self.outputs = self.about

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise StateError(
            f"{self!r} can be neither copied nor pickled: its state and its code belong to this process",
            fix="load the file again there; processes share what was compiled through the cache",
        )

    @property
    def reader(self) -> Reader:
        """The reader of the graph; created on first use. Raises UnsupportedError, ParseError."""
        with self._lock:
            if self._reader is None:
                if self._index is not None:  # nobody has compiled this file for such a call
                    self.transformer.prepare()
                with no_collection():
                    self._reader = made = self.format.read(self._source, self.transformer, self._trainable, self._indices)
                made.hold(self._state, self._capacity)
                if getattr(self, "about", made.about) != made.about:
                    raise ParseError(f"{self._source} has changed since it was loaded", fix="load it again")
            return self._reader

    @property
    def proto(self) -> Any:
        return self.reader.proto

    @property
    def variables(self) -> dict[str, Any]:
        return self.reader.variables

    @property
    def fixed(self) -> frozenset[str]:
        return frozenset() if self._reader is None else self._reader.fixed

    @property
    def readings(self) -> int:
        return 0 if self._reader is None else self._reader.readings

    @property
    def used(self) -> dict[str, int]:
        """The number of used places of state that grows, by the name of its dim in the file."""
        return dict(self.reader.used)

    def reset(self, length: int = 0) -> None:
        """Starts another text: of state that grows the first `length` places stay, at most; with 0 all other state is what it was first."""
        self.reader.reset(length)

    @property
    def host_callbacks(self) -> dict[str, int]:
        return {} if self._reader is None else self._reader.host_callbacks

    def graph(self, shapes: Mapping[str, Any]) -> ImportedGraph:
        """The model as op-graph, to be built on: for a loss, its derivatives, an optimizer.

        shapes: of each input, or an array of that shape; open lengths stay open. Compute what is made of it on `model.transformer`, and
        the model sees what training does to its variables. Raises UnsupportedError where values decide what comes next.
        """
        return self.reader.graph(shapes)

    def watched(self, names: Sequence[str]) -> Model:
        """The same model with other values of its graph for outputs, by name."""
        made = Model(self._source, self.format, self.transformer, self._trainable, self._indices, self._state, self._capacity)
        made._index, made.outputs = None, tuple([Port(name, "", None, None, "tensor") for name in names])
        made.reader.about = made.about = made.about._replace(outputs=made.outputs)
        return made

    # ---- calling
    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """The outputs for these inputs: one array, or a tuple. Raises ArgumentError for inputs that do not fit."""
        if len(arrays) > len(self.inputs):
            count = len(self.inputs)
            raise ArgumentError(
                f"{self.name} takes {count} input{'s' * (count != 1)}, and got {len(arrays)}",
                details=tuple(map(str, self.inputs)),
                fix="give it these alone",
            )
        given = {p.name: a for p, a in zip(self.inputs, arrays, strict=False)}
        twice = given.keys() & named.keys()
        if twice:
            raise ArgumentError(
                f"{self.name} got {', '.join(sorted(twice))} twice, by place and by name",
                details=tuple(map(str, self.inputs)),
                fix="give each input once",
            )
        feeds = {**given, **named}
        results = self._results(feeds)
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, outputs: Any, feeds: Mapping[str, Any] | None = None, options: Any = None) -> Any:
        """`run({"x": x})` gives {name: array}. `run(names, {"x": x})`, names or None for all, gives a list, as ONNX Runtime does."""
        given = outputs if feeds is None else feeds
        if not isinstance(given, Mapping):
            fix = f"model.run({{{self.inputs[0].name!r}: array}})" if self.inputs else "model.run({})"
            raise ArgumentError(f"{self.name} is run on arrays by name, not on {type(given).__name__}", fix=fix)
        if isinstance(outputs, str):
            raise ArgumentError(f"the names of outputs are a list, not {outputs!r}", fix=f"[{outputs!r}]")
        if feeds is None:
            return dict(zip([p.name for p in self.outputs], self._results(outputs), strict=True))
        found = self._results(feeds)
        if outputs is None:
            return found
        by_name = dict(zip([p.name for p in self.outputs], found, strict=True))
        unknown = [n for n in outputs if n not in by_name]
        if unknown:
            raise ArgumentError(f"{self.name} has no output {', '.join(map(str, unknown))}", fix=f"it has {', '.join(by_name)}")
        return [by_name[n] for n in outputs]

    def get_inputs(self) -> list[Port]:
        return list(self.inputs)

    def get_outputs(self) -> list[Port]:
        return list(self.outputs)

    def _results(self, feeds: Mapping[str, Any]) -> list[Any]:
        slots = self.about.bound(feeds)
        try:
            shapes = tuple([(k, a.shape) for k, a in slots.items()])
        except AttributeError:
            shapes = None  # lists and optionals
        way = self._straight.get(shapes)
        if way is None and self._index is not None and shapes is not None:
            way = self._found(self._index, shapes, slots)
        if way is not None:
            call, takes, order = way
            given = call(*[slots[k] for k in takes])
            return [given[k] for k in order]
        results, way = self.reader.call(slots)
        index, self._index = self._index, None
        if way is not None and shapes is not None and len(self._straight) < STRAIGHT:
            self._straight[shapes] = way
            if index is not None and not self.reader.variables:
                index.keep(self.about, self.reader.external(), slots, way, self.transformer)
        return results

    def _found(self, index: ModelIndex, shapes: Hashable, slots: Mapping[int, Any]) -> DirectCall | None:
        """Returns the program that an earlier process compiled for the first call; later calls of other lengths read the graph."""
        with self._lock:
            found = self._straight.get(shapes)
            if found is None and not index.asked:
                found = index.find(slots, self.transformer)
                if found is not None:
                    self._straight[shapes], self._index = found, None
            return found

    def __repr__(self) -> str:
        return f"<model {self.name}: {', '.join(map(str, self.inputs))} -> {', '.join(map(str, self.outputs))}>"

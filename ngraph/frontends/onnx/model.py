"""A model read from an ONNX file: named inputs and outputs, and calls that any number of threads may make.

The graph is read when it is first called, and again only for calls whose lengths decide otherwise (`trace`). Parameters live in one
transformer, which all computations of a model share.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
import onnx

from ngraph.errors import ArgumentError, GraphError, UnsupportedError
from ngraph.frontends.onnx import graph, proto
from ngraph.frontends.onnx.stages import Ask, Compute, Done, Run, Stage
from ngraph.frontends.onnx.trace import Fixed, Trace
from ngraph.frontends.onnx.values import NOTHING, Known, Sizes, Tensor, Text, Value
from ngraph.op_graph.axes import make_axis
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.op import Op
from ngraph.ops.rearrange import broadcast
from ngraph.ops.state import variable
from ngraph.transformers import make_transformer

STRAIGHT = 256  # shapes of inputs for which the way to the computation is remembered


class Port(NamedTuple):
    """An input or output: its name, its ONNX type (such as `tensor(float)`), and its dims: numbers, names, or None; None for any rank."""

    name: str
    type: str
    shape: tuple[int | str | None, ...] | None
    dtype: Any
    kind: str  # tensor, sequence or optional

    def __str__(self) -> str:
        dims = "…" if self.shape is None else ", ".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.name}: {self.type}[{dims}]"


def port(info: onnx.ValueInfoProto) -> Port:
    kind, t, wrap = "tensor", info.type, "{}"
    while t.WhichOneof("value") in ("optional_type", "sequence_type"):
        this = str(t.WhichOneof("value"))[:-5]
        kind = "sequence" if this == "sequence" else kind if kind == "sequence" else "optional"
        wrap = wrap.format(f"{'seq' if this == 'sequence' else 'optional'}({{}})")
        t = getattr(t, f"{this}_type").elem_type
    field = t.WhichOneof("value")
    if field not in ("tensor_type", "sparse_tensor_type"):
        return Port(info.name, field or "unknown", None, None, kind)
    tensor = getattr(t, field)
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim)
        if any(isinstance(d, int) and d < 0 for d in shape):
            shape = tuple(None if isinstance(d, int) and d < 0 else d for d in shape)
    name = {"FLOAT": "float", "DOUBLE": "double"}.get(proto.type_name(tensor.elem_type), proto.type_name(tensor.elem_type).lower())
    return Port(info.name, wrap.format(f"tensor({name})"), shape, proto.numpy_type(tensor.elem_type) if tensor.elem_type else None, kind)


class Graph(NamedTuple):
    """A model as op-graph: placeholders, results and variables by their names in the file."""

    inputs: dict[str, Op]
    outputs: dict[str, Op]
    variables: dict[str, Op]


class Model:
    """An imported model. Call it with arrays in the order of `inputs`, or by name; `run({"name": array})` gives a dict.

    inputs, outputs   what it takes and gives, each a `Port`
    variables         those initializers that are variables, by name
    fixed             names of dims whose length is taken as it comes, with a version for each; the others stay open
    """

    def __init__(self, source: Any, transformer: Any = None, trainable: str | Sequence[str] = ()):
        self.proto, folder = proto.read(source)
        main = self.proto.graph
        self.library = graph.Library(self.proto, folder)
        refused = graph.unsupported(self.proto, self.library)
        if refused:
            raise UnsupportedError(
                f"{len(refused)} node{'s' * (len(refused) > 1)} of {main.name or 'the model'} cannot be translated",
                details=tuple(refused),
                fix="`ngraph ops --onnx` lists what can be",
            )
        own = {t.name for t in main.initializer} | {t.values.name for t in main.sparse_initializer}
        self.inputs = tuple(port(i) for i in main.input if i.name not in own)
        self.defaults = tuple(port(i) for i in main.input if i.name in own)  # initializers that a call may replace
        self.outputs = tuple(port(o) for o in main.output)
        self.name = main.name or "model"
        patterns = [trainable] if isinstance(trainable, str) else list(trainable)
        self.variables = {t.name: self._variable(t) for t in main.initializer if any(fnmatchcase(t.name, p) for p in patterns)}
        self.variables = {name: v for name, v in self.variables.items() if v.dtype.is_float}
        self.fixed: frozenset[str] = frozenset()
        self.transformer = transformer if transformer is not None else make_transformer()
        self.readings = 0
        self.host_steps: dict[str, int] = {}
        self._root: Stage = Stage()
        self._ports = {p.name: p for p in (*self.inputs, *self.defaults)}
        self._lock = threading.RLock()
        self._start()

    def _variable(self, t: onnx.TensorProto) -> Op:
        array = self.library.constant(t).array
        axes = [make_axis(n, name=f"{t.name}.{k}") for k, n in enumerate(array.shape)]
        return variable(axes, dtype=as_dtype(array.dtype), initial_value=array).named(t.name)

    def graph(self, shapes: Mapping[str, Any]) -> Graph:
        """The model as op-graph, to be built on: for a loss, its derivatives, an optimizer.

        shapes: of each input, or an array of that shape; open lengths stay open. Compute what is made of it on `model.transformer`, and
        the model sees what training does to its variables. Raises UnsupportedError where values decide what comes next.
        """
        ports = {p.name: p for p in self.inputs}
        feeds = {}
        for name, shape in shapes.items():
            port = ports.get(name)
            dtype = np.float32 if port is None or port.dtype is None else port.dtype
            feeds[name] = np.zeros(shape, dtype) if isinstance(shape, (tuple, list)) else np.asarray(shape)
        fixed = self.fixed
        while True:
            run = Run(self._bound(feeds), {})
            self._measure(run)
            g = Trace(Ask(self._signature, True), run, fixed, _values_decide, self.variables)
            try:
                values = self._values(g)
            except Fixed as found:
                fixed |= found.names
                continue
            whole = [g.full(g.tensor(v)) for v in values]
            holes = {slot: o for o, (slot, _) in g.slots.items() if o.is_placeholder}
            return Graph(
                {p.name: holes[-1 - k] for k, p in enumerate(self.inputs)},
                {p.name: broadcast(t.op, t.dims) for p, t in zip(self.outputs, whole, strict=True)},
                self.variables,
            )

    def _start(self) -> None:
        self._root = Ask(self._signature, True)
        self._straight: dict[Hashable, tuple[Callable[..., Any], Sequence[int], Sequence[int]]] = {}

    # ---- calling
    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """The outputs for these inputs: one array, or a tuple. Raises ArgumentError for inputs that do not fit."""
        if len(arrays) > len(self.inputs):
            raise ArgumentError(f"{self.name} takes {len(self.inputs)} inputs, and got {len(arrays)}", details=tuple(map(str, self.inputs)))
        feeds = {**{p.name: a for p, a in zip(self.inputs, arrays, strict=False)}, **named}
        results = self._results(feeds)
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, outputs: Any, feeds: Mapping[str, Any] | None = None, options: Any = None) -> Any:
        """`run({"x": x})` gives {name: array}. `run(names, {"x": x})`, names or None for all, gives a list, as ONNX Runtime does."""
        if feeds is None:
            return dict(zip([p.name for p in self.outputs], self._results(outputs), strict=True))
        found = self._results(feeds)
        if outputs is None:
            return found
        by_name = dict(zip([p.name for p in self.outputs], found, strict=True))
        unknown = [n for n in outputs if n not in by_name]
        if unknown:
            raise ArgumentError(f"{self.name} has no output {', '.join(unknown)}", fix=f"it has {', '.join(by_name)}")
        return [by_name[n] for n in outputs]

    def get_inputs(self) -> list[Port]:
        return list(self.inputs)

    def get_outputs(self) -> list[Port]:
        return list(self.outputs)

    def _results(self, feeds: Mapping[str, Any]) -> list[Any]:
        slots = self._bound(feeds)
        try:
            shapes = tuple([(k, a.shape) for k, a in slots.items()])
        except AttributeError:
            shapes = None  # lists and optionals
        straight = self._straight.get(shapes)
        if straight is not None:
            computation, takes, order = straight
            given = computation(*[slots[k] for k in takes])
            return [given[k] for k in order]
        run = Run(slots, {})
        self._measure(run)
        stage: Stage = self._root
        way: list[Stage] = []
        while type(stage) is not Done:
            way.append(stage)
            follow = stage.next.get(stage.step(run))
            if follow is None:
                return self._read(feeds)
            stage = follow
        self._learn(shapes, way, stage)
        return [result(run) for result in stage.results]

    def _learn(self, shapes: Hashable, way: Sequence[Stage], done: Done) -> None:
        """Inputs of these shapes go straight to the one computation, where questions about them are all that stands before it."""
        *asks, last = way
        plain = all(type(s) is Ask and s.shapes for s in asks) and type(last) is Compute and all(k < 0 for k in last.takes)
        if shapes is not None and plain and isinstance(last, Compute) and len(self._straight) < STRAIGHT:
            slots = [getattr(result, "slot", None) for result in done.results]
            if all(s in last.gives for s in slots) and len(set(slots)) == len(slots):
                self._straight[shapes] = last.computation, last.takes, [last.gives.index(s) for s in slots if s is not None]

    # ---- inputs
    def _bound(self, feeds: Mapping[str, Any]) -> dict[int, Any]:
        """Arrays by slot. Raises ArgumentError naming all that is missing, unknown, or does not fit."""
        wrong = [f"there is no input {name!r}" for name in feeds if name not in self._ports]
        slots: dict[int, Any] = {}
        for p in self.inputs:
            if p.name not in feeds:
                wrong.append(f"input {p} is missing")
        for k, p in enumerate((*self.inputs, *self.defaults)):
            if p.name not in feeds:
                continue
            given = feeds[p.name]
            if p.kind == "tensor":
                slots[-1 - k] = self._fitted(p, given, wrong)
            else:
                slots[-1 - k] = None if given is None else given if isinstance(given, (list, tuple)) else np.asarray(given)
        if wrong:
            raise ArgumentError(f"{self.name}: {'; '.join(wrong)}", fix=f"it takes {'; '.join(map(str, self.inputs))}")
        return slots

    def _fitted(self, p: Port, given: Any, wrong: list[str]) -> Any:
        try:
            array = np.asarray(given)
        except ValueError:
            wrong.append(f"{p} got lists of unlike lengths")
            return np.zeros(0)
        if array.dtype.kind in "SU":
            array = array.astype(object)
        if p.dtype is not None and array.dtype != p.dtype:
            if not np.can_cast(array.dtype, p.dtype, "same_kind") and not isinstance(given, (bool, int, float, list)):
                wrong.append(f"{p} got an array of {array.dtype}")
                return array
            array = array.astype(p.dtype)
        if p.shape is not None:
            if array.ndim != len(p.shape) or any(isinstance(d, int) and d != n for d, n in zip(p.shape, array.shape, strict=True)):
                wrong.append(f"{p} got the shape {list(array.shape)}")
        return array

    def _measure(self, run: Run) -> None:
        """Lengths of open axes of the inputs, by name: those of dim_params, and `x.0` for dims without a name."""
        for k, p in enumerate((*self.inputs, *self.defaults)):
            array = run.slots.get(-1 - k)
            if isinstance(array, np.ndarray):
                for d, n in enumerate(array.shape):
                    run.lengths[f"{p.name}.{d}"] = n
                    name = p.shape[d] if p.shape is not None else None
                    if isinstance(name, str):
                        run.lengths.setdefault(name, n)

    def _signature(self, run: Run) -> Hashable:
        """What tells readings apart before the first node: ranks, lists, which dims of one name agree, and lengths that are fixed."""
        key: list[Hashable] = []
        for k, p in enumerate((*self.inputs, *self.defaults)):
            array = run.slots.get(-1 - k)
            if isinstance(array, np.ndarray):
                key.append(array.ndim)
                for d, n in enumerate(array.shape):
                    name = p.shape[d] if p.shape is not None else None
                    if isinstance(name, str):
                        key.append(run.lengths[name] == n)
            elif array is None:
                key.append(None)
            else:
                key.append(tuple((np.asarray(a).dtype.str, np.asarray(a).shape) for a in array))
        return (*key, *(run.lengths.get(name) for name in sorted(self.fixed)))

    # ---- reading
    def _read(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The results, with the graph read (again) on the way."""
        with self._lock:
            while True:
                run = Run(self._bound(feeds), {})
                self._measure(run)
                try:
                    return self._walked(run)
                except Fixed as found:
                    if found.names <= self.fixed:
                        raise GraphError(f"the lengths {sorted(found.names)} are needed, and cannot be known") from None
                    self.fixed |= found.names
                    self._start()

    def _walked(self, run: Run) -> list[Any]:
        self.readings += 1
        g = Trace(self._root, run, self.fixed, self._compute, self.variables)
        values = self._values(g)
        found = Results(g)
        tensors = [t for v in values for t in found.tensors(v)]
        todo = list({id(t): t for t in tensors if g.slot_of(t) is None}.values())
        found.slots = {id(t): s for t, s in zip(todo, g.compute_stage(todo) if todo else [], strict=True)}
        made = [found.result(v) for v in values]
        done = g.follow(lambda: Done(made))
        for name in g.hosts:
            self.host_steps[name] = self.host_steps.get(name, 0) + 1
        assert isinstance(done, Done)
        return [result(run) for result in done.results]

    def _values(self, g: Trace) -> list[Value]:
        """The outputs, with the graph walked."""
        frame = graph.Frame(self.library, self.library.opsets)
        for k, p in enumerate((*self.inputs, *self.defaults)):
            if -1 - k in g.run.slots:
                frame.names[p.name] = self._input(g, p, -1 - k)
        return graph.walk_body(g, frame, self.proto.graph)

    def _input(self, g: Trace, p: Port, slot: int) -> Value:
        given = g.run.slots[slot]
        if p.kind == "tensor":
            return self._tensor(g, p, slot, given)
        if given is None:
            return NOTHING
        if isinstance(given, np.ndarray):
            return self._tensor(g, p, slot, given)
        items: list[Value] = []
        for k, item in enumerate(given):
            made, array = g.slot(), np.asarray(item)
            g.follow(lambda made=made, k=k: Ask(lambda run: run.put(made, np.asarray(run.slots[slot][k]))))  # type: ignore[misc]
            items.append(Text(made, array) if array.dtype.kind in "OSU" else g.hole(made, as_dtype(array.dtype), array.ndim))
        return items

    def _tensor(self, g: Trace, p: Port, slot: int, array: Any) -> Value:
        if array.dtype == object:
            return Text(slot, array)
        axes = []
        for d, n in enumerate(array.shape):
            said = p.shape[d] if p.shape is not None else None
            if isinstance(said, int):
                axes.append(make_axis(said, name=f"{p.name}.{d}"))
                continue
            name = said if isinstance(said, str) and g.run.lengths[said] == n else f"{p.name}.{d}"
            if any(a.name == name for a in axes):
                name = f"{p.name}.{d}"
            axes.append(g.open_axis(name, slot, d))
        return g.input(slot, as_dtype(array.dtype), axes, p.name)

    def _compute(self, ops: Sequence[Op], holes: Sequence[Op]) -> Callable[..., Any]:
        return self.transformer.computation(list(ops), *holes, name=None)

    def __repr__(self) -> str:
        return f"<model {self.name}: {', '.join(map(str, self.inputs))} -> {', '.join(map(str, self.outputs))}>"


def _values_decide(ops: Sequence[Op], holes: Sequence[Op]) -> Any:
    raise UnsupportedError("what this model computes depends on values, so it is not one op-graph", fix="call it instead")


class Slot:
    """The result that stands in a slot."""

    __slots__ = ("slot",)

    def __init__(self, slot: int):
        self.slot = slot

    def __call__(self, run: Run) -> Any:
        return run.slots[self.slot]


class Results:
    """How values go out: each as a function of the call."""

    def __init__(self, g: Trace):
        self.g = g
        self.slots: dict[int, int] = {}

    def tensors(self, v: Value) -> list[Tensor]:
        if isinstance(v, Tensor):
            return [v]
        return [t for item in v for t in self.tensors(item)] if isinstance(v, list) else []

    def result(self, v: Value) -> Callable[[Run], Any]:
        if isinstance(v, Tensor):
            slot = self.slots[id(v)] if id(v) in self.slots else self.g.slot_of(v)
            assert slot is not None
            return Slot(slot) if slot >= 0 else (lambda run: run.slots[slot].copy())
        if isinstance(v, Known):
            return lambda run: v.array.copy()
        if isinstance(v, Sizes):
            return lambda run: np.array([run.number(e) for e in v.array.ravel()], v.np).reshape(v.array.shape)
        if isinstance(v, Text):
            return lambda run: run.slots[v.slot]
        if isinstance(v, list):
            each = [self.result(item) for item in v]
            return lambda run: [item(run) for item in each]
        return lambda run: None


def load(source: Any, transformer: Any = None, trainable: str | Sequence[str] = ()) -> Model:
    """A model from an ONNX file: a path, the bytes of one, or a ModelProto.

    transformer: what runs it; the default one by default. trainable: patterns such as "*" or "layer4.*"; float initializers of these
    names become variables (`Model.graph`). Raises UnsupportedError with every node that has no translation, ParseError for a damaged file.
    """
    return Model(source, transformer, trainable)

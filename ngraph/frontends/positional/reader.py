"""Reading a model's graph: stages for calls, found by those that come the same way, made by the others (`trace`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ngraph.errors import ArgumentError, BoundsError, GraphError, NgraphError, OutOfMemoryError, UnsupportedError
from ngraph.frontends.positional.growing import Growth
from ngraph.frontends.positional.index import DirectCall
from ngraph.frontends.positional.ports import About, Port
from ngraph.frontends.positional.stages import Ask, CallStage, Compute, Done, StageRun
from ngraph.frontends.positional.trace import Fixed, Inside, ModelTrace, leaves
from ngraph.frontends.positional.values import NOTHING, ConstantArray, Sizes, StringInput, Tensor, Value
from ngraph.op_graph.axes import Axis, make_axis
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.expr import ExprLike
from ngraph.op_graph.memory import no_collection, with_room
from ngraph.op_graph.op import Op
from ngraph.ops.rearrange import broadcast
from ngraph.ops.state import assign, variable

# what Python and NumPy raise where a damaged file names the wrong kind of thing, or numbers that do not fit
DAMAGED = (ArithmeticError, AssertionError, AttributeError, BufferError, LookupError, RuntimeError, TypeError, ValueError)


class ImportedGraph(NamedTuple):
    """A model as op-graph: placeholders, results and variables by their names in the file; `name.new` is what a variable gets."""

    inputs: dict[str, Op]
    outputs: dict[str, Op]
    variables: dict[str, Op]


class Reader:
    """A model's graph, read as calls need it. A format's own walks the graph: it has `values`, and `external` where files lie beside it.

    fixed       names of dims whose length is taken as it comes, with a version for each; the others stay open
    readings    how often the graph was walked      host_callbacks  what Python runs, by op, with their number
    trace       the class of its readings
    proto       the file as a package has it                     state  inputs that are variables, each with the output that it gets
    growing     those of the state that grow                     used   how many places of them are used, by the name of the dim
    """

    proto: Any = None
    trace: type[ModelTrace] = ModelTrace

    def __init__(self, about: About, transformer: Any, variables: Mapping[str, Op] | None = None, indices: str = "raise"):
        self.about, self.transformer, self.indices = about, transformer, indices
        self.variables = dict(variables or {})
        self.state: dict[str, str] = {}
        self.growing: dict[str, Growth] = {}
        self.used: dict[str, int] = {}
        self.fixed: frozenset[str] = frozenset()
        self.readings = 0
        self.host_callbacks: dict[str, int] = {}
        self.root: CallStage = Ask(self._signature, True)
        self._lock = threading.RLock()

    def values(self, g: ModelTrace, inputs: Mapping[str, Value], outputs: Sequence[str]) -> list[Value]:
        """Values of the graph by name, for these inputs, with the graph walked."""
        raise NotImplementedError

    def initial(self, name: str) -> np.ndarray[Any, Any] | None:
        """The array that the file has for an input."""
        return None

    def hold(self, state: Mapping[str, str], capacity: int | None = None) -> None:
        """Makes variables of inputs; after a call each holds what an output gave, which is an output no more. Raises ArgumentError.

        An input with one open length is state that grows, from none to `capacity` places.
        """
        inputs, outputs = {p.name: p for p in self.about.every}, [p.name for p in self.about.outputs]
        for name, output in state.items():
            if name not in inputs or output not in outputs:
                there = (f"inputs {', '.join(inputs)}", f"outputs {', '.join(outputs)}")
                raise ArgumentError(f"there is no input {name!r} with an output {output!r}", details=there, fix="state={input: output}")
            port, start = inputs[name], self.initial(name)
            if start is None:
                open_ = [d for d, n in enumerate((None, None) if port.shape is None else port.shape) if not isinstance(n, int)]
                if port.dtype is None or port.shape is None or len(open_) > 1 or (open_ and capacity is None):
                    grows = "; capacity=512 makes one open length grow up to that" if len(open_) == 1 else " but one"
                    raise ArgumentError(
                        f"{port} cannot be state: its lengths are open", fix=f"`ngraph convert --shape` fixes lengths{grows}"
                    )
                if open_ and capacity is not None:
                    self.growing[name] = Growth(open_[0], str(port.shape[open_[0]] or f"{name}.{open_[0]}"), capacity)
                    self.used[self.growing[name].label] = 0
                start = np.zeros([capacity if d in open_ else n for d, n in enumerate(port.shape)], port.dtype)
            self.variables[name] = parameter(name, start)
        self.state = dict(state)
        about = self.about
        self.about = about._replace(
            inputs=tuple([p for p in about.inputs if p.name not in state]),
            defaults=tuple([p for p in about.defaults if p.name not in state]),
            outputs=tuple([p for p in about.outputs if p.name not in state.values()]),
        )

    def fitting(self, label: str, length: int) -> int:
        """Returns a length that an open dim of the inputs may have: this one, or another where the model does not take it."""
        return length

    def reset(self, length: int) -> None:
        """State that grows keeps its first places, at most so many; with 0 all other state starts again, too."""
        with self._lock:
            for label, n in self.used.items():
                self.used[label] = min(n, length)
            for name in self.state:
                if not length and name not in self.growing:
                    variable = self.variables[name]
                    self.transformer.set(variable, variable.attrs["initial_value"])

    def external(self) -> list[str]:
        """The files beside the model that have data of its tensors, by their names in its folder."""
        return []

    def graph(self, shapes: Mapping[str, Any]) -> ImportedGraph:
        """See `Model.graph`."""
        return self.graph_and_dims(shapes)[0]

    def graph_and_dims(self, shapes: Mapping[str, Any]) -> tuple[ImportedGraph, dict[str, tuple[int | None, ...]]]:
        """Returns the graph of `Model.graph`, and for the values that ops are called after which axis of the op each dim is, by name; None
        for a dim of length 1 that the op lacks."""
        feeds, fixed = self._feeds(shapes), self.fixed
        text = [str(p) for p in self.about.inputs if p.dtype is not None and np.dtype(p.dtype).kind in "Oc"]
        if text:
            raise UnsupportedError(f"{text[0]} cannot be the input of an op-graph", fix="call the model instead")
        while True:
            run, self._first = self._run(self.about.bound(feeds)), Ask(self._signature, True)
            g = self.trace(self._first, run, fixed, _values_decide, self.variables)
            g.indices = self.indices
            g.unseen = frozenset(-1 - k for k, p in enumerate(self.about.inputs) if isinstance(shapes.get(p.name), (tuple, list)))
            try:
                values = self._values(g)
            except Fixed as found:
                fixed |= found.names
                continue
            whole = [g.full(g.tensor(v)) for v in values]
            changed = {f"{name}.new": op for name, op in g.changes().items()}
            holes = {slot: o for o, (slot, _) in g.slots.items() if o.is_placeholder}
            made = ImportedGraph(
                {p.name: holes[-1 - k] for k, p in enumerate(self.about.inputs)},
                {p.name: broadcast(t.op, t.dims) for p, t in zip(self.about.outputs, whole, strict=True)} | changed,
                self.variables,
            )
            self._last_answer = g.key
            return made, g.dims

    def _feeds(self, shapes: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Returns arrays for inputs of which the shape is given, or the array itself."""
        ports, feeds = {p.name: p for p in self.about.inputs}, dict[str, np.ndarray[Any, Any]]()
        for name, shape in shapes.items():
            port = ports.get(name)
            dtype = np.float32 if port is None or port.dtype is None else port.dtype
            feeds[name] = np.broadcast_to(np.zeros((), dtype), shape) if isinstance(shape, (tuple, list)) else np.asarray(shape)
        return feeds

    def holds(self, shapes: Mapping[str, Any]) -> bool:
        """Returns whether the graph that `graph_and_dims` read last is that for these shapes, too: they answer alike all that was asked."""
        run = self._run(self.about.bound(self._feeds(shapes)))
        stage: CallStage = self._first
        while stage.next:
            follow = stage.next.get(stage.step(run))
            if follow is None:
                return False
            stage = follow
        return self._last_answer == stage.step(run)

    # ---- calling
    def call(self, slots: Mapping[int, Any]) -> tuple[list[Any], DirectCall | None]:
        """The results for these inputs, and the straight way to them, if shapes alone lead there."""
        if self.growing:
            with self._lock:  # one call after another
                results, _ = self._walk(self._run(slots)) or self._read(slots)
                return self._grown(results), None
        run = self._run(slots)
        found = self._walk(run)
        if found is None:
            with self._lock:  # a thread that waited while another one read finds the result
                run = self._run(slots)
                found = self._walk(run) or self._read(slots)
        return found

    def replay(self, slots: Mapping[int, Any]) -> ShapeReplay | None:
        """Returns how calls of these shapes, of which there was one, are run without a look at them; None where values decide."""
        run, stage, computes = self._run(slots), self.root, list[Compute]()
        while not isinstance(stage, Done):
            if isinstance(stage, Compute):
                computes.append(stage)
            elif not (type(stage) is Ask and stage.shapes):
                return None
            follow = stage.next.get(stage.step(run))
            if follow is None or len(computes) > 1:
                return None
            stage = follow
        last = computes[0] if computes else Compute(len, (), ())
        made = list[int | np.ndarray[Any, Any]]()
        for result in stage.results:
            if isinstance(result, Slot) and result.slot >= 0:
                made.append(last.gives.index(result.slot))
            else:
                made.append(result.slot if isinstance(result, Slot) else np.asarray(result(run)))
        return ShapeReplay(last.computation if computes else None, last.takes, tuple(made)) if all(k < 0 for k in last.takes) else None

    def _grown(self, results: list[Any]) -> list[Any]:
        """The results of a call, without the lengths of state that follow them. Raises BoundsError where there is no room for it."""
        count = len(self.about.outputs)
        used: dict[str, int] = {}
        for (name, growth), n in zip(self.growing.items(), results[count:], strict=True):
            if n > growth.capacity:
                what = f"{self.about.name}: the state {name!r} has room for {growth.capacity} places along {growth.label}, and gets {n}"
                have = f"{self.used[growth.label]} are used"
                raise BoundsError(what, details=(have,), fix=f"load it with capacity={n} or more, or call reset() before another text")
            if used.setdefault(growth.label, n) != n:
                raise GraphError(
                    f"state that is as long as {growth.label} gets {used[growth.label]} and {n} places", fix="name the dims apart"
                )
        self.used.update(used)
        return results[:count]

    def _run(self, slots: Mapping[int, Any]) -> StageRun:
        run = StageRun(dict(slots), dict(self.used))
        for k, n in enumerate(self.used.values(), len(self.about.every)):
            run.slots[-1 - k] = np.zeros(n, bool)  # only its length is read
        self._measure(run)
        return run

    def _walk(self, run: StageRun) -> tuple[list[Any], DirectCall | None] | None:
        """The stages of an earlier reading; None where it went elsewhere. Raises GraphError for lengths with which a step fails."""
        stage: CallStage = self.root
        way: list[CallStage] = []
        try:
            while type(stage) is not Done:
                way.append(stage)
                follow = stage.next.get(stage.step(run))
                if follow is None:
                    return None
                stage = follow
        except NgraphError:
            raise
        except DAMAGED as error:
            raise self._unfit(run, error) from error
        return [result(run) for result in stage.results], straight(way, stage)

    def _measure(self, run: StageRun) -> None:
        """Lengths of open axes of the inputs, by name: those of dim_params, and `x.0` for dims without a name."""
        for k, p in enumerate(self.about.every):
            array = run.slots.get(-1 - k)
            if isinstance(array, np.ndarray):
                for d, n in enumerate(array.shape):
                    run.lengths[f"{p.name}.{d}"] = n
                    name = p.shape[d] if p.shape is not None else None
                    if isinstance(name, str):
                        run.lengths.setdefault(name, n)

    def _signature(self, run: StageRun) -> Hashable:
        """Returns the key of a reading before the first node: ranks, lists, equality of dims of one name, and fixed lengths."""
        key: list[Hashable] = []
        for k, p in enumerate(self.about.every):
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

    @with_room
    def _read(self, slots: Mapping[int, Any]) -> tuple[list[Any], DirectCall | None]:
        """The results, with the graph read (again) on the way."""
        while True:
            try:
                with no_collection():
                    return self._walked(self._run(slots))
            except Fixed as found:
                if found.names <= self.fixed:
                    raise GraphError(f"the lengths {sorted(found.names)} are needed, and cannot be known") from None
                self.fixed |= found.names
                self.root = Ask(self._signature, True)

    def _walked(self, run: StageRun) -> tuple[list[Any], DirectCall | None]:
        """Reads, compiles and runs the model for the first time. Raises NgraphErrors alone: a damaged file may say anything."""
        try:
            return self._read_once(run)
        except GraphError as error:
            error.fix = error.fix or self._advice()
            error.at(error.line)
            raise
        except (NgraphError, Fixed):
            raise
        except MemoryError as error:
            raise OutOfMemoryError(f"there is no room for {self.about.name}: {error}", fix="take smaller inputs") from error
        except DAMAGED as error:
            raise self._unfit(run, error) from error

    def _unfit(self, run: StageRun, error: Exception) -> GraphError:
        """Returns the error for inputs on which the model cannot be run."""
        shapes = ", ".join(f"{p.name} {list(np.shape(run.slots[-1 - k]))}" for k, p in enumerate(self.about.every) if -1 - k in run.slots)
        small = "negative dimensions" in str(error)
        why = "a length comes out negative" if small else f"{type(error).__name__}: {error}"
        fix = "give larger inputs (random ones have length 1 where --shape says no other)" if small else "do the shapes fit?"
        return GraphError(f"{self.about.name} cannot be run on {shapes or 'nothing'}: {why}", fix=fix)

    def _advice(self) -> str:
        """Returns a fix for lengths that do not agree."""
        free = [str(p) for p in self.about.every if any(not isinstance(d, int) for d in p.shape or (None,))]
        return f"check the lengths that are open: {', '.join(free)}" if free else "export the model again: the file fixes all lengths"

    def _read_once(self, run: StageRun) -> tuple[list[Any], DirectCall | None]:
        self.readings += 1
        g = self.trace(self.root, run, self.fixed, self._compute, self.variables)
        g.indices = self.indices
        values = self._values(g)
        found = OutputGetters(g)
        tensors = [t for v in values for t in leaves(v)]
        todo = list({id(t): t for t in tensors if g.slot_of(t) is None}.values())
        stores = [assign(self.variables[name], value) for name, value in g.changes().items()]  # in the last stage, so all or none
        found.slots = {id(t): s for t, s in zip(todo, g.compute_stage(todo, stores) if todo or stores else [], strict=True)}
        made = [found.result(v) for v in values]
        made += [partial(_length_of, g.grown[name].length) for name in self.growing]
        done = g.follow(lambda: Done(made))
        for name in g.hosts:
            self.host_callbacks[name] = self.host_callbacks.get(name, 0) + 1
        assert isinstance(done, Done)
        return [result(run) for result in done.results], straight(list(self._way(run, done)), done)

    def computations(self, slots: Mapping[int, Any]) -> list[tuple[Any, list[Any]]]:
        """Returns the computations of a call with these inputs, in order, each with its arguments."""
        self.call(slots)
        run, found = self._run(slots), []
        stage: CallStage = self.root
        while type(stage) is not Done:
            if type(stage) is Compute:
                found.append((stage.computation, [run.slots[k] for k in stage.takes]))
            stage = stage.next[stage.step(run)]
        return found

    def _way(self, run: StageRun, done: Done) -> Iterator[CallStage]:
        """The stages that were read, as far as questions about shapes lead; then what comes next."""
        stage: CallStage = self.root
        while stage is not done:
            yield stage
            plain = type(stage) is Compute or type(stage) is Ask and stage.shapes
            follow = stage.next.get(stage.step(run) if type(stage) is Ask and stage.shapes else None) if plain else None
            if follow is None:
                return
            stage = follow

    def _values(self, g: ModelTrace) -> list[Value]:
        """The outputs, with the inputs of this call."""
        given = {p.name: self._input(g, p, -1 - k) for k, p in enumerate(self.about.every) if -1 - k in g.run.slots}
        given.update({name: g.current(name) for name in self.state if name not in self.growing})
        lengths: dict[str, Axis] = {}
        for k, label in enumerate(self.used, len(self.about.every)):
            lengths[label] = g.open_axis(label, -1 - k, 0)
            g.input(-1 - k, as_dtype(bool), [lengths[label]])
        given.update({name: g.past(name, growth.dim, lengths[growth.label]) for name, growth in self.growing.items()})
        outputs = [p.name for p in self.about.outputs]
        try:
            values = self.values(g, given, [*outputs, *self.state.values()])
        except Inside as error:  # outside of all loops and branches
            if error.args:
                raise GraphError(f"{self.about.name}: {error}") from None
            said = f"{self.about.name} needs a value that one of its branches has only where it is taken"
            raise UnsupportedError(said, fix="have both branches give that value") from None
        for name, value in zip(self.state, values[len(outputs) :], strict=True):
            (g.grow if name in self.growing else g.assign)(name, value)
        return values[: len(outputs)]

    def _input(self, g: ModelTrace, p: Port, slot: int) -> Value:
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
            g.follow(partial(Ask, partial(_copy_item, slot, k, made)))
            items.append(StringInput(made, array) if array.dtype.kind in "OSU" else g.hole(made, as_dtype(array.dtype), array.ndim))
        return items

    def _tensor(self, g: ModelTrace, p: Port, slot: int, array: Any) -> Value:
        if array.dtype.kind in "Oc":
            return StringInput(slot, array)
        axes: list[Axis] = []
        for d, n in enumerate(array.shape):
            said = p.shape[d] if p.shape is not None else None
            if isinstance(said, int):
                axes.append(make_axis(said, name=f"{p.name}.{d}"))
                continue
            name = said if isinstance(said, str) and g.run.lengths[said] == n else f"{p.name}.{d}"
            same = next((a for a in axes if a.name == name), None)
            axes.append(g.open_axis(name, slot, d) if same is None else g.fresh(same.size, f"{p.name}.{d}"))
        return g.input(slot, as_dtype(array.dtype), axes, p.name)

    def _compute(self, ops: Sequence[Op], holes: Sequence[Op]) -> Callable[..., Any]:
        return self.transformer.computation(list(ops), *holes, name=None)


def _copy_item(slot: int, k: int, made: int, run: StageRun) -> None:
    """Puts item k of the list in a slot of a call into the slot `made`."""
    run.put(made, np.asarray(run.slots[slot][k]))


def _length_of(length: ExprLike, run: StageRun) -> int:
    """Returns the number of places of state after a call."""
    return run.number(length)


def straight(way: Sequence[CallStage], done: Done) -> DirectCall | None:
    """The way to results of one computation, where questions about shapes are all that stands before it."""
    *asks, last = way
    plain = all(type(s) is Ask and s.shapes for s in asks) and type(last) is Compute and all(k < 0 for k in last.takes)
    slots = [getattr(result, "slot", None) for result in done.results]
    if not plain or not isinstance(last, Compute) or len(set(slots)) < len(slots) or any(s not in last.gives for s in slots):
        return None
    return DirectCall(last.computation, last.takes, tuple([last.gives.index(s) for s in slots if s is not None]))


def _values_decide(ops: Sequence[Op], holes: Sequence[Op]) -> Any:
    raise UnsupportedError("what this model computes depends on values, so it is not one op-graph", fix="call it instead")


class Slot:
    """The result that stands in a slot."""

    __slots__ = ("slot",)

    def __init__(self, slot: int):
        self.slot = slot

    def __call__(self, run: StageRun) -> Any:
        return run.slots[self.slot]


class Copied(Slot):
    """The copy of an input, which is a result."""

    __slots__ = ()

    def __call__(self, run: StageRun) -> Any:
        return run.slots[self.slot].copy()


class ShapeReplay(NamedTuple):
    """A call that shapes alone decide: the computation, None where there is nothing to compute, the slots that it takes, and each result.

    A result is the place among those of the computation, a negative slot for an input as it is, or an array that these shapes decide.
    """

    call: Callable[..., Any] | None
    takes: tuple[int, ...]
    results: tuple[int | np.ndarray[Any, Any], ...]


class OutputGetters:
    """The outputs of a model, each as a function of the call."""

    def __init__(self, g: ModelTrace):
        self.g = g
        self.slots: dict[int, int] = {}

    def result(self, v: Value) -> Callable[[StageRun], Any]:
        if isinstance(v, Tensor):
            slot = self.slots[id(v)] if id(v) in self.slots else self.g.slot_of(v)
            assert slot is not None
            return Slot(slot) if slot >= 0 else Copied(slot)
        if isinstance(v, ConstantArray):
            return lambda run: v.array.copy()
        if isinstance(v, Sizes):
            return lambda run: np.array([run.number(e) for e in v.array.ravel()], v.np).reshape(v.array.shape)
        if isinstance(v, StringInput):
            return lambda run: run.slots[v.slot]
        if isinstance(v, list):
            each = [self.result(item) for item in v]
            return lambda run: [item(run) for item in each]
        return lambda run: None


def trainable(patterns: Sequence[str], floats: Sequence[str]) -> list[str]:
    """Those of a model's float arrays whose names match a pattern. Raises ArgumentError for a pattern that none matches."""
    found = [name for name in floats if any(fnmatchcase(name, p) for p in patterns)]
    lost = [p for p in patterns if not any(fnmatchcase(name, p) for name in found)]
    if lost:
        shown = ", ".join(floats[:8]) + (", …" if len(floats) > 8 else "")
        fix = 'trainable="*"' if floats else "leave trainable out: only initializers can be trained"
        raise ArgumentError(f"no float initializer is called {lost[0]!r}", details=(f"there are {shown or 'none'}",), fix=fix)
    return found


def parameter(name: str, array: np.ndarray[Any, Any]) -> Op:
    """A variable that starts as this array, an axis for each dim."""
    axes = [make_axis(n, name=f"{name}.{k}") for k, n in enumerate(array.shape)]
    return variable(axes, dtype=as_dtype(array.dtype), initial_value=array).named(name)

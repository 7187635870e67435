"""A graph as a straight line of steps, ours and torch's, and the Python function that runs it.

The function is generated, so that a call of a graph that is one computation costs little more than the call of that computation: values
are local variables, lengths are expressions of them, and nothing is looked up.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from ngraph.config import config
from ngraph.errors import ArgumentError
from ngraph.frontends.torch import dtype as kinds
from ngraph.frontends.torch import private
from ngraph.frontends.torch.graph import memory_order
from ngraph.op_graph import expr
from ngraph.op_graph.expr import ExprLike, Leaf
from ngraph.parts.deferred import deferred
from ngraph.runtime.computation import inside
from ngraph.runtime.host.locks import fork_safe_lock
from ngraph.transformers.base import Transformer

if TYPE_CHECKING:
    from ngraph.runtime.computation import Computation
    from ngraph.runtime.packed import PackedComputation

packing = deferred("ngraph.runtime.packed")


class Length(NamedTuple):
    """A length at run time: an expression over the symbols of a call."""

    of: ExprLike


class TensorSlot(NamedTuple):
    """A place among a call's values."""

    number: int


class Result(NamedTuple):
    """The way from a result of a computation to the tensor that was traced."""

    slot: int
    order: tuple[int, ...] | None  # where each dim of the tensor stands in the result; None: as they stand
    shape: tuple[Any, ...] | None  # to expand to
    stride: tuple[Any, ...] | None  # that cannot be had by an order alone


class OurStep:
    """One computation: from tensors in slots to tensors in slots.

    takes    slots of its arguments     lengths  symbols whose lengths follow them     gives  its results
    writes   slots of those arguments that it writes            nodes  how many of the graph it stands for
    settings  of `ngraph.config` while it is compiled           first  seconds of the first call, in which it is
    frozen   slots of its state, in the order of the computation's variables
    """

    def __init__(
        self,
        computation: Computation,
        takes: Sequence[int],
        lengths: Sequence[str],
        gives: Sequence[Result],
        writes: Sequence[int],
        nodes: int,
        settings: Mapping[str, Any],
        frozen: Sequence[int] = (),
    ):
        self.computation, self.takes, self.lengths, self.gives, self.nodes = computation, tuple(takes), tuple(lengths), tuple(gives), nodes
        self.writes, self.settings, self.first, self.free = tuple(writes), dict(settings), 0.0, ()
        self.frozen, self.state = tuple(frozen), FrozenTensors(computation) if frozen else None

    def begin(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Calls the computation, in this way, for the first time, which compiles it."""
        start = time.perf_counter()
        with config(**self.settings):
            results = call(*arguments)
        self.first = time.perf_counter() - start
        return results

    @property
    def slots(self) -> list[int]:
        """The slots that it reads and fills."""
        return [*self.takes, *self.frozen, *[g.slot for g in self.gives]]


class FrozenTensors:
    """Tensors that are state of a computation. Called with them, it gives their memory to the state anew where they have changed.

    A change is another address, or another `_version`, which torch counts; tensors of inference mode count as changed in each call.
    Modules of one class share a graph: `alone` is held from here to the end of the computation's call, so that no other thread gives it
    the tensors of another module between.
    """

    def __init__(self, computation: Any):
        self.computation, self.alone = computation, fork_safe_lock()
        self.versions, self.addresses = list[Any](), list[int]()

    def __call__(self, *tensors: torch.Tensor) -> None:
        try:
            versions, addresses = [t._version for t in tensors], [t.data_ptr() for t in tensors]
        except RuntimeError:  # of inference mode
            versions, addresses = [object()], []
        if versions != self.versions or addresses != self.addresses:
            self.versions = [object()]  # none, should this fail
            self._lend(tensors)
            self.versions, self.addresses = versions, addresses

    def _lend(self, tensors: Sequence[torch.Tensor]) -> None:
        arrays = [kinds.array_of(t) for t in tensors]
        orders = [memory_order(t) for t in tensors]
        variables = self.computation.variables
        self.computation.state.lend({v: a.transpose(order) for v, a, order in zip(variables, arrays, orders, strict=True)})


class TorchStep:
    """One call of torch's, or of Python's on lengths."""

    def __init__(self, function: Callable[..., Any], args: Any, named: Any, slot: int):
        self.function, self.args, self.named, self.slot = function, args, named, slot
        self.free: tuple[int, ...] = ()

    @property
    def slots(self) -> list[int]:
        """The slots that it reads and fills."""
        return [*[s.number for s in slots_in((self.args, self.named))], self.slot]


class LengthStep:
    """A length that a result tells: that of a dim of its tensor, or the number that it is."""

    def __init__(self, name: str, slot: int, dim: int | None):
        self.name, self.slot, self.dim = name, slot, dim
        self.free: tuple[int, ...] = ()

    @property
    def slots(self) -> list[int]:
        """The slots that it reads."""
        return [self.slot]

    @property
    def text(self) -> str:
        """Returns it as Python."""
        return f"n_{self.name} = v{self.slot}" + ("" if self.dim is None else f".shape[{self.dim}]")


class PackedStep(NamedTuple):
    """A computation of a graph, and what `OurStep` says of it."""

    computation: PackedComputation
    takes: tuple[int, ...]
    lengths: tuple[str, ...]
    writes: tuple[int, ...]
    nodes: int
    settings: dict[str, Any]
    frozen: tuple[int, ...]


class PackedGraph(NamedTuple):
    """A graph as a value that pickles: the function that runs, and what it knows, by name.

    ops  (namespace, op, overload) of torch's    arrays  constants of the graph    values  all else that it was written with
    """

    source: str
    ours: dict[str, PackedStep]
    ops: dict[str, tuple[str, str, str]]
    arrays: dict[str, np.ndarray[Any, Any]]
    values: dict[str, Any]


class Calls:
    """The calls of a graph that have been made: how many, and the seconds in which the first ones compiled its computations."""

    def __init__(self) -> None:
        self.count, self.seconds = 0, 0.0


class CompiledGraph:
    """A graph as steps. Called with the list of its inputs, which it empties, it gives the list of its outputs.

    symbols  name -> the slot of a length, or of a tensor and its dim       kept  constants of the graph, by slot
    lengths  names of those, and of what steps tell                         expressions  Python for lengths that follow from these, by name
    made     the calls that have been made                                  source  the function that runs
    label    of the block that a profiler of torch's shows for a call
    named    what the function knows beside the steps that are ours, by name; those are in `ours`
    """

    def __init__(
        self,
        steps: Sequence[Any],
        inputs: int,
        symbols: Mapping[str, tuple[int, int | None]],
        outputs: Sequence[Any],
        kept: Sequence[tuple[int, torch.Tensor]],
        expressions: Mapping[str, str],
    ):
        self.steps, self.inputs, self.symbols, self.outputs, self.kept = tuple(steps), inputs, dict(symbols), list(outputs), list(kept)
        self.lengths = {*self.symbols, *[s.name for s in self.steps if isinstance(s, LengthStep)]}
        self.expressions = dict(expressions)
        self.named, self.ours = dict[str, Any](), dict[str, OurStep]()
        self._begin(self._written())

    def _begin(self, source: str) -> None:
        """Makes the function of its text."""
        self.made, self.source, self.label = Calls(), source, "ngraph"
        self.known = dict(
            graph=self,
            calls=self.made,
            profilers=private.profilers,
            empty=np.empty,
            math=math,
            torch=torch,
            bool_=np.bool_,
            increment=private.written,
            laid=laid,
            **self.named,
        )
        for name, step in self.ours.items():
            self.known[name], self.known[f"{name}_state"] = partial(self._first, name, step, step.computation), step.state
        code = compile(source, inside("<graph of torch>"), "exec")
        seen = {**self.known, **{name: partial(self._seen, name, step) for name, step in self.ours.items()}, "profiled": None}
        exec(code, seen)

        def profiled(args: list[Any]) -> Any:
            with private.Recorded(self.label):
                return seen["run"](args)

        self.known["profiled"] = profiled
        exec(code, self.known)
        self.run: Callable[[list[Any]], list[Any]] = self.known["run"]

    def _first(self, name: str, step: OurStep, call: Callable[..., Any], *given: Any) -> Any:
        """Calls a step that is not compiled yet, in this way."""
        results = step.begin(call, *given)
        self.made.seconds += step.first
        self.known[name] = step.computation
        return results

    def _seen(self, name: str, step: OurStep, *given: Any) -> Any:
        """Calls a step while a profiler runs: where it records this thread, each kernel is in a block of its own."""
        if not private.profiled():
            return self.known[name](*given)
        call = partial(step.computation.watched, private.Recorded)
        return call(*given) if self.known[name] is step.computation else self._first(name, step, call, *given)

    def __call__(self, args: list[Any]) -> list[Any]:
        return self.run(args)

    @property
    def calls(self) -> int:
        """Returns how often it was called."""
        return self.made.count

    # ---- for another process
    def packed(self) -> PackedGraph:
        """Returns it as a value that pickles. Raises UnsupportedError where a computation cannot be packed."""
        ours = {
            name: PackedStep(packing.packed(s.computation), s.takes, s.lengths, s.writes, s.nodes, s.settings, s.frozen)
            for name, s in self.ours.items()
        }
        ops, arrays, values = dict[str, tuple[str, str, str]](), dict[str, np.ndarray[Any, Any]](), dict[str, Any]()
        for name, value in self.named.items():
            if isinstance(value, torch._ops.OpOverload):
                namespace, _, op = value._schema.name.partition("::")
                ops[name] = namespace, op, value._overloadname
            elif isinstance(value, torch.Tensor):
                with private.no_fakes():
                    arrays[name] = np.array(kinds.array_of(value))
            else:
                values[name] = value
        return PackedGraph(self.source, ours, ops, arrays, values)

    @classmethod
    def restored(cls, held: PackedGraph, transformer: Transformer) -> CompiledGraph:
        """Returns the graph that was packed. Raises what bytes that are damaged lead to."""
        made = cls.__new__(cls)
        made.named = {name: getattr(getattr(getattr(torch.ops, space), op), way) for name, (space, op, way) in held.ops.items()}
        with private.no_fakes():
            made.named |= {name: kinds.tensor_of(array) for name, array in held.arrays.items()}
        made.named |= held.values
        made.ours = {}
        for name, step in held.ours.items():
            computation = transformer.restored(step.computation, torch.Tensor)
            made.ours[name] = OurStep(computation, step.takes, step.lengths, (), step.writes, step.nodes, step.settings, step.frozen)
        made.steps = tuple(made.ours.values())
        made._begin(held.source)
        return made

    # ---- its text
    def _written(self) -> str:
        names = "".join(f"v{k}, " for k in range(self.inputs))
        lines = [
            "def run(args):",
            "    if profilers._is_profiler_enabled and profiled:",
            "        return profiled(args)",
            "    calls.count += 1",
        ]
        lines += [f"    {names}= args"] if names else []
        lines += ["    args.clear()"]
        lines += [f"    {LengthStep(name, k, dim).text}" for name, (k, dim) in self.symbols.items()]
        for slot, tensor in self.kept:
            lines.append(f"    v{slot} = {self._name('t', tensor)}")
        for step in self.steps:
            rows = [step.text] if isinstance(step, LengthStep) else self._ours(step) if isinstance(step, OurStep) else self._torch(step)
            lines += [f"    {row}" for row in rows]
            if step.free and step is not self.steps[-1]:
                lines.append("    " + "".join(f"v{k} = " for k in step.free) + "None")
        lines.append(f"    return [{', '.join(self._text(o) for o in self.outputs)}]")
        return "\n".join(lines)

    def _name(self, kind: str, value: Any) -> str:
        """Returns a name under which the function knows a value."""
        name = f"{kind}{len(self.named)}"
        self.named[name] = value
        return name

    def _ours(self, step: OurStep) -> list[str]:
        arguments = [f"v{k}" for k in step.takes] + [f"empty({self._symbol(name)}, bool_)" for name in step.lengths]
        call = f"c{len(self.ours)}"
        self.ours[call] = step
        names = "".join(f"v{g.slot}, " for g in step.gives)
        lines = [f"{names}{'= ' * bool(names)}{call}({', '.join(arguments)})"]
        if step.frozen:
            state = f"{call}_state"
            lines = [f"with {state}.alone:", f"    {state}({', '.join(f'v{k}' for k in step.frozen)})", f"    {lines[0]}"]
        for g in step.gives:
            made = f"v{g.slot}"
            made += "" if g.order is None else f".permute({g.order})"
            made += "" if g.shape is None else f".expand({self._text(tuple(g.shape))})"
            made = made if g.stride is None else f"laid({made}, {self._text(tuple(g.stride))})"
            lines += [f"v{g.slot} = {made}"] * (made != f"v{g.slot}")
        if step.writes:
            lines.append(f"increment(({''.join(f'v{k}, ' for k in step.writes)}))")
        return lines

    def _torch(self, step: TorchStep) -> list[str]:
        arguments = [self._text(a) for a in step.args] + [f"{key}={self._text(a)}" for key, a in step.named.items()]
        return [f"v{step.slot} = {self._name('f', step.function)}({', '.join(arguments)})"]

    def _text(self, a: Any) -> str:
        """Returns an argument as Python."""
        if type(a) is TensorSlot:
            return f"v{a.number}"
        if type(a) is Length:
            return self._length(a.of)
        if type(a) in (list, tuple):
            items = "".join(f"{self._text(x)}, " for x in a)
            return f"[{items}]" if type(a) is list else f"({items})"
        if type(a) is dict:
            return "{" + "".join(f"{key!r}: {self._text(x)}, " for key, x in a.items()) + "}"
        return repr(a) if a is None or type(a) in (bool, int, str) else self._name("k", a)

    def _symbol(self, name: str) -> str:
        return f"n_{name}" if name in self.lengths else f"({self.expressions[name]})"

    def _length(self, of: ExprLike) -> str:
        def leaf(x: Leaf) -> str:
            name = x.of.name
            return self._symbol(name) if name in self.lengths or name in self.expressions else f"({self._length(x.of.size)})"

        return f"({expr.text(of, leaf)})"


def laid(t: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """Returns a tensor with other strides."""
    return t if t.stride() == stride else torch.empty_strided(t.shape, stride, dtype=t.dtype).copy_(t)


def slots_in(a: Any) -> list[TensorSlot]:
    """The slots in nested arguments."""
    if type(a) is TensorSlot:
        return [a]
    if isinstance(a, dict):
        a = list(a.values())
    return [s for x in a for s in slots_in(x)] if type(a) in (list, tuple) else []


def refresh(model: Any) -> None:
    """Says that the parameters and buffers of a model were written where torch counts no write: through `.data`, or NumPy.

    model: a module, a tensor, or an iterable of tensors. Calls that were compiled with `options={"freeze": True}` then read them anew; no
    others need it. Raises ArgumentError for what has no tensors.
    """
    tensors = [*model.parameters(), *model.buffers()] if isinstance(model, torch.nn.Module) else model
    tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
    try:
        found = list(tensors)
    except TypeError:
        found = [None]
    if not all(isinstance(t, torch.Tensor) for t in found):
        raise ArgumentError(f"refresh takes a module or tensors, not {type(model).__name__}", fix="ng.torch.refresh(model)")
    private.written(found)

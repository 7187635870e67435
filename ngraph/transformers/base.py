"""The interface of transformers, their registry, and everything that does not depend on how a program is executed.

A new one is a subclass with a `name` and a `compile`; it inherits passes, state, saving, and the tests generated from the records.
"""

from __future__ import annotations

import importlib
import operator
import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from ngraph.config import config, from_environment, number
from ngraph.errors import ArgumentError, ArgumentTypeError, GraphError, StateError, UnsupportedError
from ngraph.op_graph.arguments import checked
from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.dlpack import exchange_api
from ngraph.op_graph.html import some, table
from ngraph.op_graph.misspelt import OF_TRANSFORMERS, missing_attribute, no_attribute
from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import REGISTRY
from ngraph.ops.computation import ComputationOp, check_parameters
from ngraph.ops.rearrange import axes_with_order
from ngraph.ops.state import value_for
from ngraph.parts.deferred import deferred
from ngraph.parts.runner import Pipeline
from ngraph.passes import default_passes
from ngraph.program.lower import lower, unique
from ngraph.program.program import Program, Step
from ngraph.rewrite.runner import run as run_passes
from ngraph.runtime.computation import Computation, Executable, ResultForm
from ngraph.runtime.host.entry import ArrayForms
from ngraph.runtime.state import Alone, Device, StateArrays
from ngraph.warn import warn

if TYPE_CHECKING:
    from ngraph.runtime.graph_cache import CachedGraph, CacheHit
    from ngraph.runtime.packed import PackedComputation

packing, weights = deferred("ngraph.runtime.packed"), deferred("ngraph.runtime.weights")
TRANSFORMERS: dict[str, type[Transformer]] = {}
PREFERRED = ("cpu", "numpy", "direct")
GROUP = "ngraph.transformers"


class Transformer(Alone):
    """Makes computations that share its state.

    name    its name in the registry; setting one registers the class      passes   the pipeline from lowering to `compile`
    device  the location of arrays; the host unless a subclass changes it

    Use it as a context manager, or `close()` it.
    """

    name: str = ""
    passes: tuple[Any, ...] = default_passes

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.name and "name" in vars(cls):
            TRANSFORMERS[cls.name] = cls

    def __init__(self) -> None:
        self.device = self.make_device()
        self.state = StateArrays(self.device)
        self.graph_passes = Pipeline(*self.passes)
        self._made: list[weakref.ref[Computation]] = []
        self._names: set[str] = set()
        self._tried: dict[str, int] = {}
        self.finalized = False
        self._seed: int | None = None

    if not TYPE_CHECKING:
        __getattr__ = missing_attribute(
            lambda self, name: no_attribute("a transformer", name, OF_TRANSFORMERS, dir(type(self)), "transformer")
        )

    # written by each kind of transformer
    def compile(self, program: Program) -> Executable:
        """Returns an executable for the program."""
        raise NotImplementedError(f"{type(self).__name__} has no compile")

    def prepare(self) -> None:
        """Starts on other cores what a compilation that comes soon will wait for."""

    def takes(self, step: Step) -> bool:
        """Whether it runs this step as one op, without lowering it. Any core op, unless a subclass changes it."""
        record = REGISTRY.get(step.op)
        return record is not None and record.core

    def make_device(self) -> Device:
        """Returns the device of its arrays."""
        return Device()

    # reuse of compiled programs in a later process, without lowering the graph again
    def facts(self) -> tuple[Any, ...] | None:
        """Returns everything that determines a compilation beside the program; None where nothing can be cached."""
        return None

    def graph(self, results: Sequence[Op], parameters: Sequence[Op], asked: tuple[Any, ...] = ()) -> CachedGraph | None:
        """Returns the cache entry for the lowering of these results, of which this is asked besides; None where nothing can be cached."""
        return None

    def found(self, found: CacheHit, whole: Callable[[], Program]) -> Executable:
        """Returns the executable of a program that was compiled before under the same facts; `whole` returns it with its steps."""
        raise NotImplementedError(f"{type(self).__name__} has no found")

    def keep(self, computation: Computation, arguments: Sequence[np.ndarray]) -> tuple[Any, Sequence[ArrayRef]] | None:
        """Returns the cache entry for a computation first called with these arguments, and its large arrays; None where it has none."""
        return None

    def recall(self, kept: Any, arrays: Sequence[np.ndarray]) -> Callable[..., Any] | None:
        """Returns a callable for a cache entry, with these large arrays, for arguments of the same lengths; None where it is gone."""
        return None

    @classmethod
    def unavailable(cls) -> str:
        """Returns the reason why it is not available here; "" where it is."""
        return ""

    # computations
    def compilations(self) -> int:
        """Returns how many programs and versions of them for lengths were compiled or found in the cache."""
        return sum(max(len(c.versions), 1) for c in self.computations if c.compiled)

    def computation(
        self,
        results: Any,
        *parameters: Op,
        name: str | None = None,
        writes: Mapping[Op, Any] | None = None,
        orders: Mapping[Op, Any] | None = None,
        array_type: type | None = None,
    ) -> Computation:
        """Returns a callable that computes `results` from values for `parameters`, in order.

        results: an op gives one value, a list or tuple a tuple, a set a dict keyed by op, None nothing, and any other nest of dicts, lists,
        tuples and dataclasses its own form. Ops without a value, such as assigns, are executed and give None.
        parameters: placeholders, or variables whose value is then the argument.
        writes: {parameter: value}: a call writes the value into the array that it got for the parameter, once all reads of it are
        done; the value may lack axes of the parameter, as in `assign`, and is not a result.
        orders: {parameter or result: its axes from the slowest in memory to the fastest}, where that is not the order of its dims:
        arguments that lie so are not copied, and results are given so. array_type: the type of results, where that is not
        np.ndarray: one with DLPack's C exchange API, such as torch.Tensor, whose library allocates them (docs/arrays.md).
        Raises GraphError for a placeholder that is needed and no parameter; StateError after an explicit `initialize()`; AxisError,
        DTypeError for a written value that does not fit; ArgumentTypeError for an array_type without that API.
        """
        self._open()
        if self.finalized:
            raise StateError(
                "a computation cannot be added after transformer.initialize()",
                fix="make all computations first, or leave initialize() out: the first call does its work",
            )
        flat = list(parameters[0]) if len(parameters) == 1 and isinstance(parameters[0], (list, tuple)) else list(parameters)
        form = ResultForm(results, _written(writes or {}, flat))
        forms = _forms(orders or {}, array_type, flat, form)
        asked = tuple(form.writes), forms.given, forms.made
        graph = self.graph(form.roots, flat, asked if any(asked) else ())
        with self.state.making:
            label = unique(_identifier(name or f"computation_{len(self._names)}"), self._names, self._tried)
            self._names.add(label)
        found = None if graph is None else graph.find(label)
        try:
            if found is None:
                check_parameters(form.roots, flat)
            lowered = lower(form.roots, flat, label, writes=list(form.writes)) if found is None else found.lowered
        except BaseException:
            self._names.discard(label)
            raise
        made = Computation(form, lowered, self, graph, found, forms)
        self._apply_seed()
        return self._add(made)

    def _add(self, made: Computation) -> Computation:
        with self.state.making:
            self._made.append(weakref.ref(made))
        return made

    def restored(self, held: PackedComputation, array_type: type | None = None) -> Computation:
        """Returns the computation that `runtime.packed.packed` has packed, maybe in another process. array_type: as in `computation`."""
        self._open()
        return self._add(packing.RestoredComputation(held, self, array_type))

    def add_computation(self, computation: ComputationOp) -> Computation:
        """Returns a callable for the computation that `ng.computation` describes; all else as in `computation`."""
        return self.computation(computation.returns, *computation.parameters, name=computation.name)

    @property
    def computations(self) -> list[Computation]:
        """Returns the computations that are still referenced, in order of creation."""
        with self.state.making:
            self._made = [ref for ref in self._made if ref() is not None]
            return [c for ref in self._made if (c := ref()) is not None]

    @property
    def closed(self) -> bool:
        return self.state.closed

    def run_passes(self, program: Program) -> Program:
        made: Program = run_passes(program, self.graph_passes)
        return made

    def run_later_passes(self, program: Program, executable: Executable | None) -> None:
        """Runs again what passes `compile` runs, for those who look on; those of `executable`, if there is one. None here."""

    def register_graph_pass(self, graph_pass: Callable[[Program], Program], position: int | None = None) -> None:
        """Adds a pass, at the end or at a position. Raises StateError once a computation has been compiled without it."""
        done = [c.name for c in self.computations if c.compiled]
        if done:
            raise StateError(f"a pass comes too late for {', '.join(done)}, compiled already", fix="register passes before the first call")
        at = len(self.graph_passes) if position is None else position
        self.graph_passes = Pipeline(*self.graph_passes[:at], graph_pass, *self.graph_passes[at:])

    def allocate(self) -> None:
        """Compiles all computations, and allocates and initialises all state that is not yet."""
        self._open()
        for c in self.computations:
            c.executable  # noqa: B018  compiled here
        with self.state.lock.reading():
            self.state.ensure(list(self.state.names.values()))

    def initialize(self) -> None:
        """Allocates, and ends the creation of computations. Calls allocate by themselves, so this is seldom needed."""
        self.allocate()
        self.finalized = True

    # state
    def get(self, variable: Op) -> np.ndarray:
        """Returns a copy of a variable's value."""
        self._open()
        return self.state.get(variable)

    def set(self, variable: Op, value: Any) -> None:
        """Sets a variable's value, which may broadcast to its axes. Raises ArgumentError where it does not fit."""
        self._open()
        self.state.set(variable, value)

    def seed(self, seed: int) -> None:
        """Restarts the random numbers of this transformer with this seed."""
        self._open()
        self._seed = _seed(seed)
        for v in list(self.state.names.values()):
            if _is_random(v):
                self.state.set(v, np.array([self._seed, 0], np.uint64))

    def _apply_seed(self) -> None:
        """Sets the seed of new random state: the one that was set, else NGRAPH_SEED."""
        seed = self._seed if self._seed is not None else from_environment("NGRAPH_SEED", number(0), 0) % (1 << 64)
        for v in list(self.state.names.values()):
            if seed and _is_random(v) and v not in self.state.arrays:
                self.state.set(v, np.array([seed, 0], np.uint64))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves all state into one safetensors file, atomically. Raises StateError for state whose update failed half-way."""
        self._open()
        weights.save(self.state, path)

    def restore(self, path: str | os.PathLike[str], partial: bool = False) -> None:
        """Loads state from a file. Raises StateError that lists all that does not fit, before any change.

        partial: skips variables that only one side has.
        """
        self._open()
        weights.restore(self.state, path, partial)

    # closing
    def close(self) -> None:
        """Releases state, once calls on other threads have ended; computations can no longer be called."""
        self.state.close()
        for c in self.computations:
            c.close()

    def _open(self) -> None:
        if self.closed:
            raise StateError("this transformer is closed", fix="make a new one")

    def __enter__(self) -> Transformer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        made = some([c.name for c in self.computations])
        return f"<transformer {self.name}{' (closed)' if self.closed else ''}: {made or 'no computations'}>"

    def _repr_html_(self) -> str:
        rows = [
            *(("computation", c.name, c) for c in self.computations),
            *(("state", name, v) for name, v in self.state.names.items()),
        ]
        return table(f"transformer {self.name}{' (closed)' if self.closed else ''}", rows)


def _is_random(variable: Op) -> bool:
    return variable.attrs.get("advance") is not None


def _seed(given: Any) -> int:
    """Returns a seed as the 64 bits that generators take. Raises ArgumentError where it is not an integer."""
    try:
        return operator.index(given) % (1 << 64)
    except TypeError:
        raise ArgumentError(f"a seed is a whole number, not {given!r}", fix="give one, such as 1") from None


def _written(writes: Mapping[Op, Any], parameters: Sequence[Op]) -> dict[int, Op]:
    """Returns the value of each parameter that is written, by its number. Raises GraphError for what is not a parameter."""
    found = {}
    for x, value in writes.items():
        if x not in parameters:
            raise GraphError(
                f"writes: {getattr(x, 'label', repr(x))} is not a parameter of the computation",
                fix="name it among the parameters, or use ng.assign for a variable that is state",
            )
        found[parameters.index(x)] = value_for(x, value, "writes")
    return dict(sorted(found.items()))


def _forms(orders: Mapping[Op, Any], array_type: type | None, parameters: Sequence[Op], form: ResultForm) -> ArrayForms:
    """Returns the forms of a computation's arrays. Raises GraphError for an order of what is not an array of it, ArgumentTypeError."""
    api = None if array_type is None or array_type is np.ndarray else exchange_api(array_type)
    if api is None and array_type not in (None, np.ndarray):
        raise ArgumentTypeError(
            f"array_type: {getattr(array_type, '__name__', repr(array_type))} has no DLPack C exchange API (__dlpack_c_exchange_api__)",
            fix="leave it out for NumPy arrays, or take a type that has it, such as torch.Tensor",
        )
    tensors = [op for op in form.ops if op.is_tensor_op]
    found: dict[Op, tuple[int, ...]] = {}
    for x, axes in orders.items():
        if x not in parameters and x not in tensors:
            raise GraphError(f"orders: {getattr(x, 'label', repr(x))} is neither a parameter nor a result of the computation")
        own = axes_with_order(x, axes).axes  # or the error
        order = tuple([x.axes.index(a) for a in own])
        if order != tuple(range(len(order))):
            found[x] = order
    given = {k: found[p] for k, p in enumerate(parameters) if p in found}
    made = {n: found[op] for n, op in enumerate(tensors) if op in found}
    made |= {form.count + n: given[k] for n, k in enumerate(form.writes) if k in given}
    return ArrayForms(given, made, api)


def _identifier(name: str) -> str:
    clean = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    return clean if clean and not clean[0].isdigit() else f"c_{clean}"


# ---- registry and choice ----------------------------------------------------------------------------------------------

_factory: Callable[[], Transformer] | None = None


def _entry_points() -> dict[str, Any]:
    """Returns transformers of other packages, not yet loaded."""
    metadata = importlib.import_module("importlib.metadata")  # slow to import, and seldom needed
    return {e.name: e for e in metadata.entry_points(group=GROUP)}


def _found(name: str) -> type[Transformer] | None:
    if name not in TRANSFORMERS:
        point = _entry_points().get(name)
        if point is not None:
            loaded = point.load()
            TRANSFORMERS.setdefault(name, loaded)
    return TRANSFORMERS.get(name)


def transformer_choices() -> list[str]:
    """Returns the names of available transformers, sorted."""
    here = [name for name, cls in TRANSFORMERS.items() if not cls.unavailable()]
    return sorted({*here, *_entry_points()} - {name for name, cls in TRANSFORMERS.items() if cls.unavailable()})


@checked
def make_transformer_factory(name: str, **options: Any) -> Callable[[], Transformer]:
    """Returns a function without arguments that makes such transformers.

    Raises ArgumentError that lists the names for an unknown one, UnsupportedError with the reason where this one cannot be had.
    """
    cls = _found(name)
    if cls is None:
        raise ArgumentError(f"there is no transformer {name!r}", fix=f"take one of {', '.join(transformer_choices())}")
    reason = cls.unavailable()
    if reason:
        raise UnsupportedError(f"transformer {name!r} cannot be had here: {reason}", fix=f"take one of {', '.join(transformer_choices())}")
    made = cls

    def factory() -> Transformer:
        return made(**options)

    return factory


def set_transformer_factory(factory: Callable[[], Transformer] | None) -> None:
    """Sets the factory that `make_transformer` uses; None restores the default."""
    global _factory
    if factory is not None and not callable(factory):
        raise ArgumentTypeError(f"{factory!r} makes no transformers", fix="pass what ngt.make_transformer_factory(name) gives")
    _factory = factory


def allocate_transformer(name: str, **options: Any) -> Transformer:
    """Returns a transformer by name. Raises as `make_transformer_factory`."""
    return make_transformer_factory(name, **options)()


def _preferred() -> str:
    """Returns the first available one in order of preference; warns of an unavailable one before it, which would be faster."""
    reasons = {name: TRANSFORMERS[name].unavailable() for name in PREFERRED if name in TRANSFORMERS}
    found = next(name for name, reason in reasons.items() if not reason)
    for name, reason in reasons.items():
        if name == found:
            break
        warn(
            f"transformer {name!r} cannot be had here: {reason}; {found!r} runs instead",
            fix=f"say so: NGRAPH_TRANSFORMER={found}",
            error=UnsupportedError,
        )
    return found


@checked
def make_transformer() -> Transformer:
    """Returns a transformer from the factory that was set, else the one that NGRAPH_TRANSFORMER names, else cpu, numpy or direct."""
    if _factory is not None:
        made = _factory()
    elif config.transformer:
        made = allocate_transformer(config.transformer)
    else:
        made = allocate_transformer(_preferred())
    if config.debug >= 1:
        print(f"transformer: {made.name}", file=sys.stderr)
    return made

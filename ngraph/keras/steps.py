"""Compiled functions of nests of tensors: read once for a form of their arguments, with the batch open, then one computation a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from keras.src import tree
from keras.src.backend.common import KerasVariable

from ngraph.config import config
from ngraph.frontends.positional.stages import StageRun
from ngraph.frontends.positional.trace import Inside
from ngraph.keras import core
from ngraph.keras.tensors import BackendTensor, lifted, transformer, whole
from ngraph.keras.traces import KerasTrace, LengthNeeded, NotTraceable, TraceScope, reading
from ngraph.op_graph.op import ordered
from ngraph.warn import warn

BATCH = "batch"  # the name of the axis of dim 0 of all data
MOST_READINGS = 8  # of one call: each makes one more length fixed


class StaticLeaf:
    """A leaf of results that is not a tensor."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value


def form_of(x: Any, arrays: list[Any]) -> Any:
    """Returns the structure of a nest as something hashable; its tensors are added to `arrays`."""
    if isinstance(x, BackendTensor):
        arrays.append(x if x.t is not None else x.array)
    elif isinstance(x, (list, tuple)):
        return (type(x), *[form_of(v, arrays) for v in x])
    elif isinstance(x, Mapping):
        return (type(x), *[(k, form_of(v, arrays)) for k, v in x.items()])
    elif isinstance(x, KerasVariable):
        arrays.append(np.asarray(x.value))
    elif hasattr(x, "shape") and hasattr(x, "dtype"):
        arrays.append(x if type(x) is np.ndarray and x.dtype.kind in "fiub" else core.convert_to_tensor(x).array)
    else:
        return x
    return "*"


class CompiledReading:
    """One reading of a function: its computation, and which variables it reads and writes.

    guards   questions of the call and their answers in this reading
    results  for each leaf of the function's result a number of the computation's results, or StaticLeaf
    """

    def __init__(self, g: KerasTrace, function: Callable[..., Any], arrays: Sequence[Any], args: Any, dims: Sequence[Any], on: str):
        holes = []
        for a, d in zip(arrays, dims, strict=True):
            own = [d if k == 0 and d is not None else g.fresh(n) for k, n in enumerate(a.shape)]
            holes.append(g.holes_of((), a.dtype, own) if own else g.holes_of((), a.dtype))
        given = iter(holes)
        with TraceScope(g):
            found = function(*_rebuilt(args, lambda: BackendTensor(t=next(given)[1], g=g)))
        self.nest = found
        leaves = tree.flatten(found)
        ops: list[Any] = []
        self.results: list[Any] = []
        for x in leaves:
            if isinstance(x, BackendTensor) and x.t is not None:
                self.results.append(len(ops))
                ops.append(whole(g, lifted(g, x)))
            else:
                self.results.append(StaticLeaf(x))
        changes = g.changes()
        used = set(ordered([*ops, *changes.values()]))
        names = [n for n, op in g.variables.items() if op in used or n in changes]
        self.variables = [(g.held[n], n in changes) for n in names]
        self.guards = g.guards
        self.lengths = list(g.run.lengths)
        self.computation = transformer(on).computation(
            ops,
            *[op for op, _ in holes],
            *[g.variables[n] for n in names],
            writes={g.variables[n]: op for n, op in changes.items()},
        )

    def holds(self, lengths: dict[str, int]) -> bool:
        """Whether all questions have the answers of this reading."""
        run = StageRun({}, lengths)
        return all(question(run) == answer for question, answer in self.guards)

    def __call__(self, arrays: Sequence[Any]) -> Any:
        given = [*arrays, *[v.own_array() if written else v.array for v, written in self.variables]]
        with np.errstate(all="ignore"), config(denormals="flush"):  # as XLA and TensorFlow do
            values = self.computation(*given)
        leaves = [r.value if type(r) is StaticLeaf else BackendTensor(np.asarray(values[r])) for r in self.results]
        return tree.pack_sequence_as(self.nest, leaves)


def _rebuilt(x: Any, tensor: Callable[[], Any]) -> Any:
    """Returns a nest with its tensors replaced, in order."""
    if isinstance(x, (list, tuple)):
        parts = [_rebuilt(v, tensor) for v in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    if isinstance(x, Mapping):
        made: Any = type(x)
        return made((k, _rebuilt(v, tensor)) for k, v in x.items())
    return tensor() if isinstance(x, (BackendTensor, KerasVariable)) or (hasattr(x, "shape") and hasattr(x, "dtype")) else x


class CompiledFunction:
    """A function of nests of tensors that is read and compiled once for each form of its arguments.

    Variables that it reads are further arguments, those that it assigns are written in place. open_batch: dim 0 of all arguments that have
    the length of the first one's stays open, so that other lengths need no other computation. on: the transformer's name. compilations: how
    often it was read. at_once: what cannot be read runs op by op, with a warning; else NotTraceable is raised.
    """

    def __init__(self, function: Callable[..., Any], on: str = "cpu", open_batch: bool = False, at_once: bool = False):
        self.function, self.on, self.open_batch, self.at_once = function, on, open_batch, at_once
        self.made: dict[Any, list[CompiledReading]] = {}
        self.compilations, self.runs_at_once = 0, False

    def __call__(self, *args: Any) -> Any:
        if self.runs_at_once:
            return self.function(*tree.map_structure(lambda x: None if x is None else core.convert_to_tensor(x), args))
        arrays: list[Any] = []
        form = form_of(args, arrays)
        if reading() is not None or any(isinstance(a, BackendTensor) for a in arrays):
            return self.function(*args)
        batch = next((a.shape[0] for a in arrays if a.ndim), None) if self.open_batch else None
        shapes = tuple([(a.dtype, a.shape if not a.ndim or a.shape[0] != batch else (BATCH, *a.shape[1:])) for a in arrays])
        lengths = {} if batch is None else {BATCH: batch}
        steps = self.made.setdefault((form, shapes), [])
        fixed = self.made.get((form, shapes, batch))
        for step in (*steps, *(fixed or ())):
            if step.holds(lengths):
                return step(arrays)
        try:
            step, was_fixed = self._read(arrays, args, batch)
        except NotTraceable as error:
            if not self.at_once:
                raise
            cause: Any = error
            while isinstance(cause.__context__, NotTraceable):  # the layers that it passed have each made a longer one of it
                cause = cause.__context__
            where = tuple(error.message.splitlines()[: cause is not error])
            message = f"{self.function.__name__} runs op by op, much slower than compiled: {cause.message}"
            warn(message, details=where, fix=cause.fix, line=cause.line)
            self.runs_at_once = True
            return self(*args)
        if was_fixed:
            self.made.setdefault((form, shapes, batch), []).append(step)
        else:
            steps.append(step)
        return step(arrays)

    def _read(self, arrays: Sequence[Any], args: Any, batch: int | None) -> tuple[CompiledReading, bool]:
        """Returns the function as a computation, and whether the batch had to be fixed."""
        fixed: frozenset[str] = frozenset()
        for _ in range(MOST_READINGS):
            g = KerasTrace(StageRun({}, {}), fixed)
            axis = None if batch is None else g.open_dim(BATCH, batch)
            dims = [axis if axis is not None and a.ndim and a.shape[0] == batch else None for a in arrays]
            try:
                step = CompiledReading(g, self.function, arrays, args, dims, self.on)
            except LengthNeeded as error:
                fixed |= error.names
                continue
            except Inside:
                raise NotTraceable("a loop or a branch of the model changes the shape or the dtype of what it carries") from None
            self.compilations += 1
            return step, bool(fixed)
        raise NotTraceable("the model needs the values of lengths that are computed")


def jit(function: Callable[..., Any], open_batch: bool = False) -> CompiledFunction:
    """Returns the function compiled: a train step on Keras's stateless API, for example."""
    return CompiledFunction(function, open_batch=open_batch)

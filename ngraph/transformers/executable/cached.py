"""Calls of programs that an earlier process compiled, without lowering: only lengths and large arrays are needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ngraph.errors import ArgumentError
from ngraph.op_graph.arrays import ArrayRef
from ngraph.program.program import AxisId
from ngraph.runtime.cache import ProgramNames, cache
from ngraph.transformers.executable.code import CompiledPlan, LoadedPlan
from ngraph.transformers.executable.device import KernelDevice
from ngraph.transformers.executable.frame import InstantiatedPlan


class CachedProgram(NamedTuple):
    """A cached program: the key of its plan, its number of axes, and the lengths of those that were unknown, by number."""

    plan: str
    axes: int
    lengths: tuple[tuple[int, int], ...]


class Restored(partial[Any]):
    """A callable: arrays in the order of the inputs, of the same lengths, give a tuple of arrays. `fast`: its fast path."""

    fast: Any


def code_of(made: Any, device: KernelDevice) -> LoadedPlan | None:
    """Returns a stripped plan as loaded kernels; None where some are not in the cache any more."""
    try:
        return LoadedPlan(made, device) if type(made) is CompiledPlan else None
    except LookupError:
        return None


def restored(kept: Sequence[Any], arrays: Sequence[np.ndarray], device: KernelDevice) -> Restored | None:
    """Returns the cached program, with these large arrays; None where its plan is not in the cache any more."""
    plan, count, lengths = CachedProgram(*kept)
    axes = [f"axis {k}" for k in range(count)]  # a plan's own axes have no space in their names
    compile_plan = cache().planned(bytes.fromhex(plan), ProgramNames(axes, [ArrayRef(a) for a in arrays]))
    code = code_of(compile_plan, device)
    if code is None:
        return None
    bound = InstantiatedPlan(code, {AxisId(axes[k]): n for k, n in lengths})
    bound.prepare(0, ())
    way = device.entry(bound, range(len(bound.plan.outputs)), called(bound))
    made = Restored(called(bound) if way is None else way.function)
    made.fast = way
    return made


def called(bound: InstantiatedPlan) -> Callable[..., tuple[Any, ...]]:
    """Returns the call for arguments that do not fit as they are. Raises ArgumentError for those of other lengths."""
    wanted = [(b.dtype.np, bound.shape(b)) for b in bound.plan.inputs]

    def call(*arrays: Any) -> tuple[Any, ...]:
        given = [np.require(a, d, ("C", "A")) for a, (d, _) in zip(arrays, wanted, strict=True)]
        if [a.shape for a in given] != [shape for _, shape in wanted]:
            raise ArgumentError(f"{bound.plan.name} was compiled for the shapes {[s for _, s in wanted]}, not {[a.shape for a in given]}")
        return tuple(bound(given, ())[0])

    return call

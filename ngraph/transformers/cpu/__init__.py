"""Compiles programs to machine code for this processor, which `transformers.executable` runs.

`native` a program as machine code · `writing` plans, and writes and compiles kernels · `device` memory, kernels and threads of this
process · `fast` calls that bypass Python. None of it is loaded before something is compiled.

Words: docs/glossary.md.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ngraph.config import config
from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.op import Op
from ngraph.parts.deferred import deferred
from ngraph.passes import default_passes, plan_passes
from ngraph.program.program import Program
from ngraph.runtime.computation import Computation, Executable
from ngraph.runtime.host.entry import PLAIN
from ngraph.runtime.state import Device
from ngraph.targets import missing
from ngraph.transformers.base import Transformer

if TYPE_CHECKING:
    from ngraph.runtime.graph_cache import CachedGraph, CacheHit

native, device = deferred("ngraph.transformers.cpu.native"), deferred("ngraph.transformers.cpu.device")
cached, graph_cache = deferred("ngraph.transformers.executable.cached"), deferred("ngraph.runtime.graph_cache")


class HostDevice(Device):
    """The host's memory, for code that packs its operands in every call."""

    maps = True


class CpuTransformer(Transformer):
    """The default: machine code for several threads, without libraries.

    plan_passes   the pipeline for each version by lengths, after `passes`; `ngraph.plan.planner` has those of graphs and plans
    """

    name = "cpu"
    plan_passes = plan_passes

    def make_device(self) -> Device:
        return HostDevice()

    def compile(self, program: Program) -> Executable:
        program.check_lengths()
        made: Executable = native.NativeExecutable(program, self.plan_passes).executable()
        return made

    def prepare(self) -> None:
        native.prepare()

    def run_later_passes(self, program: Program, executable: Executable | None) -> None:
        lengths = {} if executable is None else executable.native.lengths
        native.planned(program, lengths, native.settings(), self.plan_passes)

    def facts(self) -> tuple[Any, ...] | None:
        own = type(self) is not CpuTransformer or (self.graph_passes, self.plan_passes) != (default_passes, plan_passes)
        if own or config.debug or config.dump or config.check:
            return None
        settings: tuple[Any, ...] = native.settings()
        return settings

    def graph(self, results: Sequence[Op], parameters: Sequence[Op], asked: tuple[Any, ...] = ()) -> CachedGraph | None:
        facts = self.facts()
        if facts is None:
            return None
        made: CachedGraph | None = graph_cache.CachedGraph.of(results, parameters, facts, asked)
        return made

    def found(self, found: CacheHit, whole: Callable[[], Program]) -> Executable:
        made: Executable = native.NativeExecutable(found, self.plan_passes, whole).executable()
        return made

    def keep(self, computation: Computation, arguments: Sequence[np.ndarray]) -> tuple[Any, Sequence[ArrayRef]] | None:
        if computation.forms != PLAIN:
            return None
        found: tuple[Any, Sequence[ArrayRef]] | None = computation.executable.native.kept(arguments)
        return found

    def recall(self, kept: Any, arrays: Sequence[np.ndarray]) -> Callable[..., Any] | None:
        made: Callable[..., Any] | None = cached.restored(kept, arrays, device.CpuDevice())
        return made

    @classmethod
    def unavailable(cls) -> str:
        return missing() or ("" if importlib.util.find_spec("llvmlite") else "llvmlite is not installed")

"""A program as machine code of this processor: the settings of its compilation, the texts of its kernels, reports about them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ngraph.config import config
from ngraph.errors import Line
from ngraph.op_graph import expr
from ngraph.op_graph.expr import Expr, ExprLike
from ngraph.op_graph.opdef import LIBRARY
from ngraph.parts.deferred import deferred
from ngraph.parts.runner import Pipeline
from ngraph.passes import plan_passes
from ngraph.plan.kernels import OpaqueOp, Plan
from ngraph.program.program import AxisId, Program
from ngraph.rewrite.runner import run
from ngraph.runtime.cache import start_compiler
from ngraph.runtime.graph_cache import CacheHit
from ngraph.targets import chosen
from ngraph.transformers.cpu.device import CpuDevice
from ngraph.transformers.cpu.fast import load_ahead
from ngraph.transformers.executable.code import CompiledPlan, LoadedPlan, title
from ngraph.transformers.executable.versions import VersionedExecutable
from ngraph.warn import warn

writing = deferred("ngraph.transformers.cpu.writing")  # plans and writes kernels: most starts find them in the cache
plan_text = deferred("ngraph.plan.text")


def settings() -> tuple[Any, ...]:
    """Returns the target, and all other settings that affect compilation."""
    target = chosen()
    return replace(target, flush=True) if config.denormals == "flush" else target, config.exact, config.winograd, config.tune


def prepare() -> None:
    """Loads LLVM in another process, and compiles there what runs every program, while this one goes on."""
    start_compiler()
    load_ahead()


class NativeExecutable(VersionedExecutable):
    """A program, and the machine code of its kernels."""

    def __init__(self, program: Program | CacheHit, passes: Pipeline, whole: Callable[[], Program] | None = None):
        self.planning = 0.0  # seconds
        self.passes, self.cached = passes, passes == plan_passes  # plans of other pipelines are not found in the cache
        super().__init__(CpuDevice(), program, whole)

    def facts(self) -> tuple[Any, ...]:
        return settings()

    def compile(self, lengths: Mapping[AxisId, int], facts: tuple[Any, ...]) -> CompiledPlan:
        prepare()
        start = time.perf_counter()
        plan = planned(self.program, lengths, facts, self.passes)
        self.planning = time.perf_counter() - start
        made: CompiledPlan = writing.compile_plan(plan, facts[0], config.tune)
        return made

    def again(self, made: CompiledPlan) -> None:
        writing.compile_plan(made.plan, self.device.target, made.tuned)

    def stripped(self, made: CompiledPlan) -> CompiledPlan:
        bare: CompiledPlan = writing.stripped(made)
        return bare

    def missing(self, step: OpaqueOp) -> None:
        if LIBRARY[step.op]:
            return
        fix = f"say what its machine code is: OPS.fill({step.op!r}, machine_code=...)"
        warn(f"there is no machine code for {step.op}: NumPy runs it", fix=fix, line=where(step))

    def report(self, code: LoadedPlan, compiling: float) -> None:
        if config.debug < 2:
            return
        texts = writing.texts(code)
        planned = f"planned in {self.planning * 1e3:.1f} ms, compiled in {(compiling - self.planning) * 1e3:.1f} ms"
        how = planned if compiling else "found in the cache"
        print(f"{self.program.name}: {counted(len(code.kernels()), 'kernel')}, {len(texts)} different, {how}", file=sys.stderr)
        for t, ks in texts.items():
            predicted = f"{sum([k.seconds for k in ks]) * 1e6:9.1f} us predicted"
            print(f"  {len(ks):4} x {predicted}, {t.count(chr(10)):6} lines of IR  {names(ks)}", file=sys.stderr)
        if config.debug >= 3:
            print(plan_text.text(code.plan), file=sys.stderr)
        if config.debug >= 4:
            print(self.llvm(), file=sys.stderr)
            print(self.asm(), file=sys.stderr)

    def schedule_text(self) -> str:
        """Every kernel as the loop nest that runs it."""
        return str(writing.scheduled(self.chosen))

    def llvm(self) -> str:
        found = writing.texts(self.chosen).items()
        return "\n".join(f"; {names(ks)}\n; {called(ks[0])}\n{t}" for t, ks in found)

    def asm(self) -> str:
        target = self.chosen.target
        found = writing.texts(self.chosen).items()
        return "\n".join(f"# {names(ks)}\n# {called(ks[0])}\n{writing.assembly(t, target)}" for t, ks in found)


def planned(program: Program, lengths: Mapping[AxisId, int], facts: tuple[Any, ...], passes: Pipeline) -> Plan:
    """Returns the plan of a program for these lengths, under these settings."""
    target, _, winograd, _ = facts
    made: Plan = writing.plan(program, lengths, target, winograd, passes, writing.MACHINE_CODE.names)
    shared: Plan = run(made, (writing.share_out,), machine=target)
    return shared


def where(step: OpaqueOp) -> Line | None:
    """Returns the user's line of a step."""
    return next(((o.file, o.line) for o in step.origin if o.file), None)


def names(kernels: Sequence[Any]) -> str:
    """Returns the user's name of a kernel that runs several steps: ops and lines of the first, and how many more."""
    return title(kernels[0].step) + (f" and {len(kernels) - 1} more" if len(kernels) > 1 else "")


def called(kernel: Any) -> str:
    """Returns a kernel's signature: its arguments in order, and the number of its work items."""
    arguments = ", ".join([*[b.name or b.storage for b in kernel.code.buffers], *map(str, kernel.code.lengths)])
    loops = ", ".join([f"{a} by {block}" for a, block in getattr(kernel.step, "loops", ())])
    return f"arguments: {arguments}; work items: {show_work_items(kernel.code.work_items)}{f', along {loops}' if loops else ''}"


def show_work_items(items: ExprLike) -> str:
    return expr.text(items) if isinstance(items, Expr) else str(items)


def counted(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"

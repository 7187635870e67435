"""Writing and compiling of a plan's kernels; it is not loaded where the cache has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ngraph.codegen.deduplication import moved
from ngraph.codegen.kernel import lower
from ngraph.codegen.math import MACHINE_CODE
from ngraph.codegen.routines import emit_opaque_op
from ngraph.codegen.signature import KernelCode
from ngraph.config import config
from ngraph.errors import UnsupportedError
from ngraph.parts.deferred import deferred
from ngraph.plan.deduplication import Shape, shape
from ngraph.plan.kernels import Kernel, OpaqueOp, Plan, PlanStep
from ngraph.plan.planner import plan
from ngraph.runtime.cache import cache
from ngraph.runtime.host import jit, worker
from ngraph.schedule.cores import share_out
from ngraph.schedule.cost import seconds
from ngraph.schedule.cpu import schedule_kernel, schedule_plan
from ngraph.targets import Cpu
from ngraph.targets.tuning import MAX_QUICK_SECONDS
from ngraph.transformers.executable.code import CompiledKernel, CompiledPlan, KernelStep, LoadedPlan, StrippedKernel

if TYPE_CHECKING:
    from ngraph.schedule.form import ScheduledKernel

tuning = deferred("ngraph.runtime.tune")
schedule_text, schedule_verify = deferred("ngraph.schedule.text"), deferred("ngraph.schedule.verify")

__all__ = ["MACHINE_CODE", "assembly", "stripped", "plan", "compile_plan", "share_out", "texts"]


def compile_plan(plan: Plan, target: Cpu, tuned: bool = False) -> CompiledPlan:
    """Writes and compiles the kernels of a plan, equal ones once. `tuned`: with measured schedules."""
    if tuned:
        tuning.tune(every(plan), target)
    made: _Made = {}
    cache().objects(_written(plan, target, tuned, made, {}), target)
    return _compiled(plan, tuned, made)


_Made = dict[Plan, dict[PlanStep, tuple[CompiledKernel, ...]]]


def _written(
    plan: Plan, target: Cpu, tuned: bool, made: _Made, known: dict[tuple[bytes, bool], tuple[CompiledKernel, Shape]]
) -> Iterator[str]:
    """Yields the texts of kernels, those of plans inside too, and adds the kernels to `made`; what `known` has is not written again."""
    own, steps, seldom = cache(), made.setdefault(plan, {}), {*plan.once, *plan.start}
    for s in sorted(plan.every, key=lambda s: (s in seldom, not summing(s), -lines(s))):  # what LLVM takes long for comes first
        this = shape(plan, s) if type(s) is Kernel else None
        key = (this.key if this is not None else b"", s in seldom)
        if this is not None and key in known:
            part, other = known[key]
            steps[s] = (CompiledKernel(moved(part.code, other, this), part.key),)
            continue
        codes = emitted(plan, s, target, tuned)
        parts = tuple([CompiledKernel(replace(c, text=""), own.key(c.text, target)) for c in codes])
        steps[s] = parts
        if this is not None:
            known[key] = parts[0], this
        yield from [c.text for c in codes]
        for body in s.bodies.values() if type(s) is OpaqueOp else ():
            yield from _written(body, target, tuned, made, known)


def _compiled(plan: Plan, tuned: bool, made: _Made) -> CompiledPlan:
    return CompiledPlan(plan, tuple([made[plan][s] for s in plan.every]), tuple([_compiled(p, tuned, made) for p in plan.bodies]), tuned)


def summing(step: PlanStep) -> bool:
    """Whether a step has a sum, or the like, over an axis; its code is longer than that of others."""
    return type(step) is Kernel and any(stage.combine for stage in step.stages)


def lines(step: PlanStep) -> int:
    """The lines of a step's stages; code of many lines is mostly long."""
    return sum([len(stage.before) + len(stage.after) for stage in step.stages]) if type(step) is Kernel else 0


def stripped(made: CompiledPlan) -> CompiledPlan:
    """Returns the plan with what calls need alone, a tenth as long: without the descriptions of kernels."""
    bodies = [stripped(b) for b in made.bodies]
    of = {id(b.plan): c.plan for b, c in zip(made.bodies, bodies, strict=True)}

    def step(s: PlanStep) -> Any:
        if isinstance(s, Kernel):
            return StrippedKernel(s.sources, s.targets, s.seconds)
        return replace(s, attrs={k: of.get(id(a), a) for k, a in s.attrs.items()}, origin=())

    steps: dict[str, Any] = {part: tuple(map(step, getattr(made.plan, part))) for part in ("once", "start", "steps")}
    parts = tuple([tuple([CompiledKernel(replace(p.code, debug_info={}), p.key) for p in s]) for s in made.parts])
    return CompiledPlan(replace(made.plan, **steps), parts, tuple(bodies), made.tuned)


def texts(code: LoadedPlan) -> dict[str, list[KernelStep]]:
    """Returns the different kernels of a plan, written again, each with the steps that it runs."""
    found: dict[str, list[KernelStep]] = {}
    natives = iter([s for s in code.every if type(s) is KernelStep])
    for s in code.plan.every:
        for c in emitted(code.plan, s, code.target, code.tuned):
            found.setdefault(c.text, []).append(next(natives))
    for body in code.bodies.values():
        for t, ks in texts(body).items():
            found.setdefault(t, []).extend(ks)
    return found


def every(plan: Plan) -> list[Plan]:
    """Returns a plan and all plans nested in its opaque ops."""
    found = [plan]
    for p in found:
        found += p.bodies
    return found


def emitted(plan: Plan, step: PlanStep, target: Cpu, tuned: bool = False) -> Sequence[KernelCode]:
    """Returns the code of a step; none for host callbacks. What runs once and is short is compiled quickly, and runs slower."""
    if type(step) is Kernel:
        scheduled = schedule_step(plan, step, target, tuned)
        code = lower(plan, schedule_verify.verify_kernel(plan, scheduled) if config.check else scheduled)
        quick = step not in plan.steps and code.seconds < MAX_QUICK_SECONDS
        how = worker.QUICK if quick else worker.OPEN if code.lengths else ""
        return (replace(code, text=how + code.text),)
    assert type(step) is OpaqueOp
    try:
        return emit_opaque_op(plan, step, target)
    except UnsupportedError:
        return ()


def schedule_step(plan: Plan, kernel: Kernel, target: Cpu, tuned: bool) -> ScheduledKernel:
    """Returns a kernel with its cheapest schedules, or with measured ones, or with scalars where it is short and runs once."""
    if kernel in plan.steps:
        return schedule_kernel(plan, kernel, target, tuning.picks(plan, kernel, target) if tuned else None)
    bare = schedule_kernel(plan, kernel, target, bare=True)
    return bare if seconds(bare) < MAX_QUICK_SECONDS else schedule_kernel(plan, kernel, target)


def scheduled(code: LoadedPlan) -> str:
    """The kernels of a plan as scheduled for its target, as text."""
    return str(schedule_text.text(schedule_plan(code.plan, code.target, partial(schedule_step, tuned=code.tuned))))


def assembly(text: str, target: Cpu) -> str:
    return jit.compile_assembly(text, target)

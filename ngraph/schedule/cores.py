"""More work items for machines with more cores than plans are made for.

A plan, and with it the order in which each sum is added up, does not depend on the number of cores. Blocks along axes that no sum takes in
may be shorter than planned, so that there are work items for all cores: but only where the schedules of all stages, which follow from the
lengths of blocks, add up as before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ngraph.op_graph.expr import ExprLike
from ngraph.plan.cost import wanted_items
from ngraph.plan.kernels import Kernel, OpaqueOp, Plan, PlanStep
from ngraph.program.program import AxisId
from ngraph.schedule.cpu import schedule_kernel
from ngraph.schedule.form import ScheduledKernel, ScheduledStage
from ngraph.targets import Cpu
from ngraph.targets.tuning import MIN_SHARED_PANEL, MIN_SHARED_ROWS, PLANNED_CORES
from ngraph.tensors.index import affine, loop_variant_axes


def share_out(plan: Plan, target: Cpu) -> Plan:
    """The plan, and those inside it, with blocks short enough for the cores of a target; nothing changes for as many as it is made for."""
    if target.cores > PLANNED_CORES:
        plan.steps = tuple([_shared(plan, s, target) for s in plan.steps])
        plan.once = tuple([_shared(plan, s, target) for s in plan.once])
    return plan


def order_of_sums(kernel: ScheduledKernel) -> tuple[tuple[Any, ...], ...]:
    """The order in which the sums of each version and stage are added up: their loops, and how many vectors of how many lanes lie along."""
    return tuple([tuple(map(_order, version.stages)) for version in kernel.versions])


def _order(s: ScheduledStage) -> tuple[Any, ...]:
    if not s.stage.combine:
        return ()
    tile, loops = s.tile, tuple([loop.parts for loop in s.sums])
    vector = (tile.vector.parts, tile.lanes) if tile.vector in s.reduced and tile.vector is not None else None
    across = (tile.across.parts, tile.columns) if tile.across in s.reduced and tile.across is not None else None
    return loops, vector, across


def _shared(plan: Plan, step: PlanStep, target: Cpu) -> PlanStep:
    if type(step) is OpaqueOp:
        for body in _plans(step.attrs.values()):
            share_out(body, target)
    if type(step) is not Kernel:
        return step
    try:
        lengths = {a: plan.length(a) for a, _ in step.loops}
    except LookupError:  # open ones
        return step
    want = wanted_items(PLANNED_CORES * step.seconds, target.cores)
    sums = any(stage.combine for stage in step.stages)
    before, made, open_ = None, step, _free(step)
    while open_ and _items(made, lengths) < want:
        loops = dict(made.loops)
        axis = max(open_, key=loops.__getitem__)
        size = loops[axis] // _divisor(loops[axis])
        if lengths[axis] % loops[axis] or size < open_[axis] or size % math.lcm(*_units(step, axis)):
            del open_[axis]
            continue
        shorter = replace(made, loops=tuple([(a, size if a == axis else b) for a, b in made.loops]))
        if sums:
            before = order_of_sums(schedule_kernel(plan, step, target)) if before is None else before
            if order_of_sums(schedule_kernel(plan, shorter, target)) != before:
                del open_[axis]
                continue
        made = shorter
    return made


def _plans(values: Iterable[Any]) -> Iterator[Plan]:
    for value in values:
        if type(value) is Plan:
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _plans(value)


def _items(kernel: Kernel, lengths: Mapping[AxisId, int]) -> int:
    return math.prod([-(-lengths[a] // b) for a, b in kernel.loops])


def _divisor(n: int) -> int:
    """Its least prime factor."""
    return next((k for k in range(2, math.isqrt(n) + 1) if n % k == 0), max(n, 2))


def _free(kernel: Kernel) -> dict[AxisId, int]:
    """The loops whose blocks may be shorter, with the least length: no sum takes them in, and no index tells blocks apart."""
    exprs: list[ExprLike] = []
    for stage in kernel.stages:
        exprs += [e for r in stage.reads() for e in (*r.index.values(), *r.guard)]
        exprs += [e for to in stage.to for e in (*to.index.values(), *to.guard)]
        exprs += [e for _, line in stage.lines() for e in line.exprs]
    told = {a for e in exprs if affine(e) is None for a in loop_variant_axes(e)}
    told |= {a for stage in kernel.stages for a in stage.reduced}
    last = {b.dims[-1][0] for b in (*kernel.sources, *kernel.targets) if b.dims}
    return {a: MIN_SHARED_PANEL if a in last else MIN_SHARED_ROWS for a, b in kernel.loops if a not in told and b > 1}


def _units(kernel: Kernel, axis: AxisId) -> list[int]:
    """The multiples that blocks along an axis have to be of: the digits in which memory has it."""
    buffers = [*[r.source for s in kernel.stages for r in s.reads()], *[t.target for s in kernel.stages for t in s.to]]
    return [1, *[div * (mod or 1) for b in buffers for a, div, mod in b.dims if a == axis]]

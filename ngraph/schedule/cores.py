"""More work items for machines with more cores than plans are made for.

A plan, and with it the order in which each sum is added up, does not depend on the number of cores. Blocks along axes that no sum takes in
may be shorter than planned, so that there are work items for all cores: but only where the schedules of all stages, which follow from the
lengths of blocks, add up as before, and where the core with most work items is done earlier, as predicted from the schedules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ngraph.op_graph.expr import ExprLike
from ngraph.parts.runner import pass_
from ngraph.plan.cost import wanted_items
from ngraph.plan.kernels import Kernel, OpaqueOp, Plan, PlanStep
from ngraph.program.program import AxisId
from ngraph.schedule.cost import extent, seconds
from ngraph.schedule.cpu import schedule_kernel
from ngraph.schedule.form import ScheduledKernel
from ngraph.targets import Cpu
from ngraph.targets.tuning import PLANNED_CORES
from ngraph.tensors.index import affine, loop_variant_axes


@pass_(needs=("machine",))
def share_out(plan: Plan, machine: Cpu) -> Plan:
    """The plan, and those inside it, with blocks short enough for the cores of a machine; nothing changes for as many as it is made for."""
    if machine.cores > PLANNED_CORES:
        plan.steps = tuple([_shared(plan, s, machine) for s in plan.steps])
        plan.once = tuple([_shared(plan, s, machine) for s in plan.once])
    return plan


def order_of_sums(kernel: ScheduledKernel) -> tuple[tuple[Any, ...], ...]:
    """The order in which the sums of each version and stage are added up: their loops, and how many vectors of how many lanes lie along."""
    return tuple([tuple([stage.order_of_sums for stage in version.stages]) for version in kernel.versions])


def _shared(plan: Plan, step: PlanStep, target: Cpu) -> PlanStep:
    if type(step) is OpaqueOp:
        for body in step.bodies.values():
            share_out(body, target)
    if type(step) is not Kernel:
        return step
    try:
        lengths = {a: plan.length(a) for a, _ in step.loops}
    except LookupError:  # open ones
        return step
    scheduled = schedule_kernel(plan, step, target)
    order, took, made = order_of_sums(scheduled), _seconds(scheduled, target.cores), step
    want, open_ = wanted_items(seconds(scheduled), target.cores), _free(step, target)
    while open_ and _items(made, lengths) < want:
        loops = dict(made.loops)
        axis = max(open_, key=loops.__getitem__)
        size = loops[axis] // _divisor(loops[axis])
        shorter = replace(made, loops=tuple([(a, size if a == axis else b) for a, b in made.loops]))
        whole = lengths[axis] % loops[axis] == 0 and size >= open_[axis] and size % math.lcm(*_units(step, axis)) == 0
        scheduled = schedule_kernel(plan, shorter, target) if whole else scheduled
        if not whole or _seconds(scheduled, target.cores) >= took or order_of_sums(scheduled) != order:
            del open_[axis]
        else:
            made, took = shorter, _seconds(scheduled, target.cores)
    return made


def _seconds(kernel: ScheduledKernel, cores: int) -> float:
    """Returns the seconds of the core that has most work items to run, as predicted."""
    items = math.prod(map(extent, kernel.grid[: len(kernel.kernel.parallel)]))
    return seconds(kernel) * -(-items // cores) / items


def _items(kernel: Kernel, lengths: Mapping[AxisId, int]) -> int:
    return math.prod([-(-lengths[a] // b) for a, b in kernel.parallel])


def _divisor(n: int) -> int:
    """Its least prime factor."""
    return next((k for k in range(2, math.isqrt(n) + 1) if n % k == 0), max(n, 2))


def _free(kernel: Kernel, target: Cpu) -> dict[AxisId, int]:
    """The loops whose blocks may be shorter, with the least length: no sum takes them in, and no index tells blocks apart.

    Along a contiguous axis a block has whole lines, so that no two cores write to one.
    """
    exprs: list[ExprLike] = []
    for stage in kernel.stages:
        exprs += [e for r in stage.reads() for e in (*r.index.values(), *r.predicate)]
        exprs += [e for to in stage.to for e in (*to.index.values(), *to.predicate)]
        exprs += [e for _, line in stage.lines() for e in line.exprs]
    told = {a for e in exprs if affine(e) is None for a in loop_variant_axes(e)}
    told |= {a for stage in kernel.stages for a in stage.reduced}
    ends = [(b.dims[-1][0], b.dtype.bits // 8 or 1) for b in (*kernel.sources, *kernel.targets) if b.dims]
    return {
        a: max([target.line // size for last, size in ends if last == a], default=1) for a, b in kernel.loops if a not in told and b > 1
    }


def _units(kernel: Kernel, axis: AxisId) -> list[int]:
    """The multiples that blocks along an axis have to be of: the digits in which memory has it."""
    buffers = [*[r.source for s in kernel.stages for r in s.reads()], *[t.target for s in kernel.stages for t in s.to]]
    return [1, *[div * (mod or 1) for b in buffers for a, div, mod in b.dims if a == axis]]

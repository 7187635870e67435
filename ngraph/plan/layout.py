"""Memory layouts of values: padding around arrays, packed operands, rows padded to whole vectors.

`insert_packing` gives buffers dims, borders and padding, and inserts copies before reductions that read an operand repeatedly.
"""

from __future__ import annotations

from collections.abc import Callable

from ngraph.parts.runner import pass_
from ngraph.plan.control import lifted
from ngraph.plan.kernels import Buffer, Plan
from ngraph.plan.packing import Packer, product_of
from ngraph.plan.padding import Padding
from ngraph.program.program import AxisId
from ngraph.targets.machine import Cpu
from ngraph.targets.tuning import CONFLICT_BYTES, MAX_ROW_GROWTH
from ngraph.tensors.index import loads


@pass_(needs=("machine", "unplaced"), gives=("borders",), keeps=("unplaced",))
def insert_packing(plan: Plan, machine: Cpu) -> Plan:
    """Inserts packed copies before contractions, and pads the plan's own buffers and their rows."""
    lengths: dict[AxisId, int | None] = {}

    def length(a: AxisId) -> int | None:
        if a not in lengths:
            try:
                lengths[a] = plan.length(a)
            except LookupError:
                lengths[a] = None
        return lengths[a]

    def guess(a: AxisId) -> int:
        return plan.guess(a) if (n := length(a)) is None else n

    still = unchanged(plan)
    lifted(plan, still)
    Packer(plan, still, guess, length, machine).pack()
    borders = Padding(plan, still, length, guess, machine)
    borders.draw()
    _rows(plan, borders.rigid, guess, length, machine)
    _passing(plan)
    return plan


def _passing(plan: Plan) -> None:
    """Moves values that no step of a call reads into the arena: they live only while the steps that run once do."""
    read = {b for step in plan.steps for b in step.sources}.union(plan.outputs, loads(*plan.axes.values()))
    for b in plan.buffers:
        if b.storage == "once" and b not in read and not b.border:
            b.storage = "arena"


def unchanged(plan: Plan) -> set[Buffer]:
    """Returns the buffers that no call changes."""
    moved = {b for _, before, after in plan.state if before is not after for b in (before, after)}
    found = {b for b in plan.buffers if b.storage in ("constant", "state") and b not in moved}
    found.update(plan.loop_invariant, [b for step in plan.once for b in step.targets])
    return found.difference([b for step in plan.steps for b in step.targets])


def _rows(plan: Plan, rigid: set[Buffer], guess: Callable[[AxisId], int], length: Callable[[AxisId], int | None], machine: Cpu) -> None:
    """Aligns rows of contractions' operands and results to whole vectors, and staggers rows that would conflict in the cache."""
    for kernel in plan.kernels:
        for stage in kernel.stages:
            if any(product_of(kernel, stage, c, guess, length, machine) is not None for c in stage.combine):
                for b in (*[r.source for r in stage.reads()], *[s.target for s in stage.to]):
                    if type(b) is Buffer and b.storage in ("arena", "once") and b not in rigid and len(b.dims) > 1:
                        set_row(b, length, machine)


def set_row(b: Buffer, length: Callable[[AxisId], int | None], machine: Cpu) -> None:
    a, div, mod = b.dims[-1]
    n, size = length(a), b.dtype.bits // 8
    if n is None or mod is not None or div != 1 or a in b.border:
        return
    lanes = machine.lanes(8 * size)
    row = -(-n // lanes) * lanes
    row = n if row > MAX_ROW_GROWTH * n else row
    row = row + lanes if row * size % CONFLICT_BYTES == 0 else row
    b.row = row if row > n else 0

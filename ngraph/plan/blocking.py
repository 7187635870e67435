"""Long sums in blocks: each work item takes them one after another, and copies of operands have the terms of one block alone.

A stage that sums over a serial loop becomes three: one that clears sums in a Local before the first block, one that adds the terms of a
block to them, and one that stores what is made of them after the last one.

Source: K. Goto and R. van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008: the blocks of the summed axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ngraph.parts.walk import closure
from ngraph.plan.kernels import Kernel, Line, Local, Stage, Store, dims_of, renumbered, renumbered_store, used
from ngraph.program.program import AxisId
from ngraph.targets.tuning import ASSUMED_LENGTH, COPY_ITEMS_PER_CORE, MIN_SUM_BLOCKS, PLANNED_CORES, SUM_BLOCK_VECTORS
from ngraph.tensors.index import Read, identity_index

if TYPE_CHECKING:
    from ngraph.plan.packing import Operand, Packer

GREAT = 1 << 62


def in_blocks(packer: Packer, kernel: Kernel) -> Kernel:
    """Returns the kernel with a serial loop over the longest axis of its sums, where copies for whole sums would not fit the caches."""
    cut = _cut(packer, kernel)
    if cut is None:
        return kernel
    kernel, axis, block = cut
    fixed = frozenset([axis] if block == 1 else [])
    first: list[Stage] = []
    inside: list[Stage] = []
    after: list[Stage] = []
    for stage in kernel.stages:
        if axis in stage.reduced:
            along = [p.vector for p in packer.products(kernel, stage)]
            clear, add, end = _divided(stage, along[-1:], len(first), len(kernel.loops))
            first.append(clear)
            inside.append(replace(add, reduced=tuple([a for a in add.reduced if a not in fixed])))
            after.append(end)
        else:
            after.append(stage)
    return replace(kernel, loops=(*kernel.loops, (axis, block)), stages=(*first, *inside, *after), serial=True)


def _cut(packer: Packer, kernel: Kernel) -> tuple[Kernel, AxisId, int] | None:
    """Returns the kernel with loops of an operand whose rows are turned over alone, the axis to cut, and the length of a block.

    None where no copy is too large, or stages depend on each other along the axis.
    """
    sums = {a for stage in kernel.stages for a in stage.reduced}
    if kernel.serial or not sums.isdisjoint([a for a, _ in kernel.loops]):
        return None
    for stage in kernel.stages:
        for p in packer.products(kernel, stage):
            turned = [o for o in p.operands if packer.is_across(p, o) and not packer.fixed(o)]
            wider = next((k for o in turned if (k := _wider(packer, kernel, o))), None)
            terms = math.prod([ASSUMED_LENGTH if packer.known(a) is None else packer.length(a) or 0 for a in p.reduced])
            wanted = SUM_BLOCK_VECTORS * packer.machine.lanes32
            if wider is None or terms < MIN_SUM_BLOCKS * wanted or packer.deep(stage, p) is not None:
                continue
            others = {a: max(packer.size([b for b in p.reduced if b != a]), 1) for a in packer.order(p, turned[0], turned[0])}
            axis = next((a for a, n in others.items() if n <= wanted), min(others, key=others.__getitem__))
            if _divides(kernel, axis):
                return wider, axis, _equal(packer, axis, max(wanted // others[axis], 1))
    return None


def _wider(packer: Packer, kernel: Kernel, o: Operand) -> Kernel | None:
    """Returns the kernel without the loops along which work items share an operand; None where too few work items would be left."""
    kept = [(a, b) for a, b in kernel.loops if a in o.axes]
    blocks = dict(kept)
    items = math.prod([-(-(packer.length(a) or 0) // b) for a, b in kept])
    sums = max([math.prod([min(packer.length(a) or 0, blocks.get(a, GREAT)) for a in s.free]) for s in kernel.stages], default=0)
    dropped = [b for a, b in kernel.loops if a not in o.axes]
    large = sums * o.dtype.bits // 8 > packer.machine.usable_l2 // 2
    if dropped and (1 in dropped or items < COPY_ITEMS_PER_CORE * PLANNED_CORES or large):
        return None
    stages = [replace(s, depth=sum([a in o.axes for a, _ in kernel.loops[: s.depth]])) for s in kernel.stages]
    return replace(kernel, loops=tuple(kept), stages=tuple(stages))


def _equal(packer: Packer, axis: AxisId, most: int) -> int:
    """Returns the longest block of at most so many places; of an axis of known length one that divides it, if one is half as long."""
    n = packer.known(axis)
    return most if n is None else next((k for k in range(most, most // 2, -1) if n % k == 0), most)


def _divides(kernel: Kernel, axis: AxisId) -> bool:
    """Whether all stages along an axis are sums over it, of what other kernels have made, that can be added up in parts."""
    own = {s.target for stage in kernel.stages for s in stage.to}
    for stage in kernel.stages:
        if axis in stage.free:
            return False
        if axis in stage.reduced:
            early = any(s.line < len(stage.before) for s in stage.to)
            if (
                early
                or any(c.kind != "add" or not c.dtype.is_float for c in stage.combine)
                or not own.isdisjoint([r.source for r in stage.reads()])
            ):
                return False
    return True


def _divided(stage: Stage, last: Sequence[AxisId], number: int, depth: int) -> tuple[Stage, Stage, Stage]:
    """Returns the stages that clear the sums of a stage, add a block's terms to them, and store what is made of them.

    last: the axis along which sums lie in vectors, if it is known; else it is that of what is stored.
    """
    border, count = len(stage.before), len(stage.combine)
    order = [a for s in stage.to for a in s.target.axes if a in stage.free and a not in last]
    free = tuple(dict.fromkeys((*order, *[a for a in stage.free if a not in last], *last)))
    at = identity_index(free)
    made = [Local(f"s{number}_{k}" if count > 1 else f"s{number}", dims_of(free), c.dtype) for k, c in enumerate(stage.combine)]
    zeros = tuple([Line("number", (), c.dtype, {"value": 0.0}) for c in stage.combine])
    clear = Stage(free, (), zeros, (), (), tuple([Store(k, b, at) for k, b in enumerate(made)]), depth)
    lines: list[Line] = []
    for k, (b, c) in enumerate(zip(made, stage.combine, strict=True)):
        lines += [Line("read", (), c.dtype, {}, Read(b, at)), Line("add", (border + count + 2 * k, border + k), c.dtype)]
    stores = tuple([Store(border + count + 2 * k + 1, b, at) for k, b in enumerate(made)])
    add = replace(stage, after=tuple(lines), to=stores, depth=depth + 1)
    return clear, add, replace(_after_sums(stage, made), depth=depth)


def _after_sums(stage: Stage, sums: Sequence[Local]) -> Stage:
    """Returns what a stage does after its sums, which it reads from Locals."""
    border, lines = len(stage.before), dict(stage.lines())
    at = identity_index(sums[0].axes)
    lines |= {border + k: Line("read", (), b.dtype, {}, Read(b, at)) for k, b in enumerate(sums)}
    todo = [s.line for s in stage.to] + [u for s in stage.to for u in used(*s.index.values(), *s.predicate)]
    needed = closure(todo, lambda n: [*lines[n].args, *used(*lines[n].exprs)])
    new = {n: k for k, n in enumerate(sorted(needed))}
    before = tuple([renumbered(lines[n], new) for n in sorted(needed)])
    return Stage(stage.free, (), before, (), (), tuple([renumbered_store(s, new) for s in stage.to]), stage.depth)

"""Products of matrices in registers: which stages they may compute, along which loops, and where their factors lie.

An instruction adds to m x n sums the products of `terms` places of a reduced loop (`deep`). The terms of a row of one factor lie side by
side in memory, the lanes of the other one do for each term: both are loaded as they lie, so no code may stand between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ngraph.errors import ProgramError
from ngraph.op_graph.expr import ExprLike
from ngraph.plan.kernels import Stage
from ngraph.schedule.form import Access, Loop
from ngraph.schedule.search import terms_together
from ngraph.targets.machine import Target
from ngraph.targets.products import PACKED_BITS, PACKS, PRODUCTS, ProductInstruction


class Factor(NamedTuple):
    """A factor in memory: the read of its first part, and how many parts each element has."""

    access: Access
    parts: int

    def step(self, d: Loop) -> ExprLike:
        """Elements from one place of a loop to the next; 0 where that is no whole number of them."""
        c = self.access.coef.get(d, 0)
        return c // self.parts if isinstance(c, int) and c % self.parts == 0 else 0


def matrix_loops(
    stage: Stage, reads: Mapping[int, Access], free: Sequence[Loop], reduced: Sequence[Loop], target: Target
) -> list[tuple[Loop, Loop, Loop]]:
    """Returns the loops that an instruction for matrices may take: the lanes of sums, their rows, and the terms."""
    border = len(stage.before)
    if len(stage.combine) != 1 or stage.combine[0].kind != "add" or any(s.line < border or s.combine != "set" for s in stage.to):
        return []
    line = stage.before[stage.combine[0].line]
    if target.matrix(line.op) is None:
        return []
    pair = [factor(stage, reads, n) for n in line.args]
    found = []
    for rows, lanes in (pair, pair[::-1]):
        if rows is None or lanes is None:
            continue
        across = [v for v in free if lanes.step(v) == 1 and v not in rows.access.deps and v.lower is None]
        down = [t for t in free if t in rows.access.deps and t not in lanes.access.deps and t.lower is None]
        deep = [d for d in reduced if rows.step(d) == 1 and d in lanes.access.deps and d.lower is None and not d.uneven]
        found += [(v, t, d) for v in across for t in down for d in deep]
    return found


def factor(stage: Stage, reads: Mapping[int, Access], n: int) -> Factor | None:
    """Returns a factor of a product whose elements lie in memory as it takes them; None where code computes them."""
    line = stage.before[n]
    if line.op not in ("read", *PACKS):
        return None
    parts = [reads.get(k) for k in ((n,) if line.op == "read" else line.args)]
    first = parts[0]
    if first is None or first.dtype.bits * len(parts) != PACKED_BITS:
        return None
    for k, a in enumerate(parts):
        if a is None or a.predicate or a.rest or a.dtype.kind == "bool":
            return None
        if (a.source, a.base, a.coef, a.const) != (first.source, first.base, first.coef, first.const + k):
            return None
    return Factor(first, len(parts))


def instruction(stage: Stage, target: Target) -> tuple[ProductInstruction, int]:
    """Returns the instruction for the product that a stage sums, and the places of a reduced loop that it takes at most."""
    op = stage.before[stage.combine[0].line].op
    row = target.matrix(op)
    if row is None:
        raise ProgramError(f"the target {target.name} has no instruction that multiplies matrices by {op}")
    return row, row.k // PRODUCTS[op].k


def terms(stage: Stage, deep: Loop, target: Target) -> int:
    """Returns how many places of a reduced loop an instruction takes."""
    return terms_together(deep.extent if isinstance(deep.extent, int) else None, instruction(stage, target)[1])

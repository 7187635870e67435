"""The rules of scheduled plans, checked without running them.

A scheduled plan is lawful if its plan is, and in every stage of every kernel

    each loop of the stage runs once, sums inside the free loops; digits of an axis cover its block without a gap or an overlap
    vectors have lanes that the target has; no loop is a vector and a row; sums in order run one term after the other; lanes that fold
      values into memory do not meet
    lanes lie as the address says: contiguous ones one element apart, and so on
    strides give every place of a buffer elements of its own, and addresses without a predicate stay inside it
    work items store in elements of their own, or the same values
    Locals that are needed at one time do not overlap, on the stack or in scratch
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import NoReturn

from ngraph.errors import ProgramError
from ngraph.op_graph.expr import ExprLike, leaves
from ngraph.plan.kernels import Buffer, Local, Plan, extent
from ngraph.plan.verify import verify as verify_plan
from ngraph.schedule.form import Access, BlockNumber, Loop, ScheduledKernel, ScheduledPlan, ScheduledStage, Version
from ngraph.targets.tuning import MAX_SHUFFLED_STEP, MAX_STACK_BYTES
from ngraph.tensors.index import in_order

PREFETCHES = ("item", "page", "panel", "rows")
STEPS = {"one": (0,), "contiguous": (1,), "reversed": (-1,), "strided": tuple(range(2, MAX_SHUFFLED_STEP + 1))}  # elements between lanes


def verify(scheduled: ScheduledPlan) -> ScheduledPlan:
    """The scheduled plan itself. Raises ProgramError for the first rule that it breaks, with kernel and stage."""
    verify_plan(scheduled.plan)
    for made in scheduled.kernels.values():
        verify_kernel(scheduled.plan, made)
    for body in scheduled.bodies.values():
        verify(body)
    return scheduled


def verify_kernel(plan: Plan, scheduled: ScheduledKernel) -> ScheduledKernel:
    """The scheduled kernel itself. Raises ProgramError for the first rule that it breaks."""
    _KernelCheck(plan, scheduled, next((k for k, step in enumerate(plan.every) if step is scheduled.kernel), 0)).kernel()
    return scheduled


class _KernelCheck:
    """One kernel."""

    def __init__(self, plan: Plan, scheduled: ScheduledKernel, number: int) -> None:
        self.plan, self.scheduled, self.here = plan, scheduled, f"kernel {number}"

    def fail(self, message: str) -> NoReturn:
        line = next(((o.file, o.line) for o in self.scheduled.kernel.origin if o.line), None)
        raise ProgramError(f"{self.here}: {message}", line=line)

    def kernel(self) -> None:
        self.places()
        for b, strides in self.scheduled.strides.items():
            self.strides(b, strides)
        kernel = self.here
        for version in self.scheduled.versions:
            if len(version.stages) != len(self.scheduled.kernel.stages):
                self.fail(f"a version has {len(version.stages)} stages of {len(self.scheduled.kernel.stages)}")
            self.carried: dict[Buffer, set[Loop]] = {}  # the grid loops with which what a Local holds changes
            for k, stage in enumerate(version.stages):
                self.here = f"{kernel}, stage {k}"
                self.stage(version, stage)
        self.here = kernel

    # ---- memory

    def places(self) -> None:
        """Locals: their room, and that those which are needed at one time lie apart."""
        live = self._live()
        spans: dict[Local, tuple[int, int]] = {}
        for b, place in self.scheduled.places.items():
            if place.space == "scratch" and isinstance(place.offset, int) and isinstance(place.elements, int):
                spans[b] = (place.offset, place.offset + place.elements * (b.dtype.bits // 8))
                if isinstance(self.scheduled.scratch, int) and spans[b][1] > self.scheduled.scratch:
                    self.fail(f"{b.name} ends at byte {spans[b][1]} of scratch, which has {self.scheduled.scratch}")
        for a, b in itertools.combinations(spans, 2):
            apart = spans[a][1] <= spans[b][0] or spans[b][1] <= spans[a][0]
            if not apart and live[a][0] <= live[b][1] and live[b][0] <= live[a][1]:
                self.fail(f"{a.name} and {b.name} overlap in scratch and are needed at one time")
        on_stack = [(b, p.elements) for b, p in self.scheduled.places.items() if p.space == "stack"]
        size = sum([n * b.dtype.bits // 8 for b, n in on_stack if isinstance(n, int) and n > 1])
        if size > MAX_STACK_BYTES:
            self.fail(f"Locals of {size} bytes lie on the stack, which has room for {MAX_STACK_BYTES}")

    def _live(self) -> dict[Buffer, tuple[int, int]]:
        """The first and the last stage that uses each Local; all of them where a stage that fills it does not run in every work item."""
        stages, depth = self.scheduled.kernel.stages, len(self.scheduled.kernel.loops)
        found: dict[Buffer, tuple[int, int]] = {}
        for k, stage in enumerate(stages):
            for b in (*[s.target for s in stage.to], *[r.source for r in stage.reads()]):
                found[b] = (found.get(b, (k, k))[0], k)
        for stage in stages:
            for s in stage.to:
                if stage.depth < depth:
                    found[s.target] = (-1, len(stages))
        return found

    def strides(self, b: Buffer, strides: tuple[ExprLike, ...]) -> None:
        """Every place has elements of its own, and all lie inside the buffer."""
        shape = self.shape(b)
        if len(strides) != len(b.dims):
            self.fail(f"{b.name} has {len(b.dims)} dims and {len(strides)} strides")
        known = [(k, n) for k, n in zip(strides, shape, strict=True) if n != 1]
        if not known or any(not isinstance(k, int) or n is None for k, n in known):
            return
        if any(n == 0 for _, n in known):
            return
        reach = 1
        for k, n in sorted(known):
            assert isinstance(k, int) and n is not None
            if k < reach:
                self.fail(f"the strides {', '.join(map(str, strides))} of {b.name} put two places on one element")
            reach = k * (n - 1) + reach
        size = self.elements(b)
        if size is not None and reach > size:
            self.fail(f"{b.name} reaches over {reach} elements, and has {size}")

    def shape(self, b: Buffer) -> list[int | None]:
        """Places along each dim; None where the length is unknown. A Local has those of one block."""
        found: list[int | None] = []
        blocks = dict(self.scheduled.kernel.loops)
        for a, div, mod in b.dims:
            try:
                n = self.plan.length(a)
            except LookupError:
                n = blocks.get(a, 0) if type(b) is Local and blocks.get(a, 1) > 1 else -1
            if n < 0:
                found.append(None)
                continue
            if type(b) is Local and blocks.get(a, 1) > 1:
                n = min(n, blocks[a])
            found.append(extent((a, div, mod), n) + sum(b.border.get(a, ())))
        return found

    def elements(self, b: Buffer) -> int | None:
        """Elements of a buffer; None where they are not known."""
        if type(b) is Local:
            n = self.scheduled.places[b].elements
            return n if isinstance(n, int) else None
        return None if b.bytes is None else b.bytes * 8 // b.dtype.bits

    # ---- stages

    def stage(self, version: Version, s: ScheduledStage) -> None:
        self.loops(version, s)
        self.tile(s)
        names = [f"%{n}" for n in s.reads] + [f"the store of %{t.line}" for t in s.stage.to]
        for name, a in zip(names, s.accesses, strict=True):
            self.access(s, a, name)
        for k, t in enumerate(s.stage.to):
            self.store(s, k, t.combine)

    def loops(self, version: Version, s: ScheduledStage) -> None:
        for what, run, there in (("free", s.tile.order, s.free), ("reduced", s.sums, s.reduced)):
            if sorted(map(id, run)) != sorted(map(id, there)):
                self.fail(f"the {what} loops {_names(there)} run as {_names(run)}")
        covered: dict[str, list[tuple[int, ExprLike]]] = {}
        for d in s.loops:
            if isinstance(d.extent, int) and len(d.parts) > 1 and d.extent != math.prod([n for _, _, n in d.parts if isinstance(n, int)]):
                self.fail(f"the loop {d.name} has {d.extent} places, and not the product of its axes'")
            for a, unit, n in d.parts:
                covered.setdefault(a, []).append((unit, n))
        blocks = dict(self.scheduled.kernel.loops)
        for a in (*s.stage.free, *s.stage.reduced):
            digits = sorted(covered.get(a, []), key=lambda part: part[0])
            try:
                length = self.plan.length(a)
            except LookupError:
                continue
            size = version.blocks.get(a, min(length, blocks.get(a, length)))
            if not digits and size == 1:
                continue
            if any(not isinstance(n, int) for _, n in digits):
                continue
            below = 1
            for k, (unit, n) in enumerate(digits):
                above = digits[k + 1][0] if k + 1 < len(digits) else size
                if unit != below or n != -(-min(above, size) // unit):
                    self.fail(f"the loops over {a} cover {_digits(digits)} of {size} places")
                below = above

    def tile(self, s: ScheduledStage) -> None:
        tile, target = s.tile, self.scheduled.target
        if tile.vector is None:
            if tile.lanes != 1:
                self.fail(f"there are {tile.lanes} lanes and no vector loop")
        elif tile.lanes & (tile.lanes - 1) or not 1 < tile.lanes <= target.lanes(8):
            self.fail(f"a vector of {tile.lanes} lanes is none of the target {target.name}")
        if tile.tile is not None and tile.tile in (tile.vector, tile.across):
            self.fail(f"the loop {tile.tile.name} is rows and columns of one tile")
        if min(tile.rows, tile.columns) < 1 or s.unroll < 1 or not 0 <= s.flattened <= len(s.sums):
            self.fail(f"a tile of {tile.rows} rows and {tile.columns} columns, {s.unroll} steps, {s.flattened} listed loops")
        if any(not isinstance(d.extent, int) or d.uneven for d in s.sums[len(s.sums) - s.flattened :]):
            self.fail("offsets are listed of loops whose length is unknown or uneven")
        bound = [d for d in s.loops if d.uneven and d.lower is not None]
        if any(in_order(c.kind, c.dtype) for c in s.stage.combine):
            bound += s.reduced
        for d in (tile.vector, tile.tile, tile.across):
            if d is not None and d in bound:
                self.fail(f"the loop {d.name} takes several places at once, and has to run one after the other")

    def access(self, s: ScheduledStage, a: Access, name: str) -> None:
        v = s.tile.vector
        moves = v is not None and v in a.deps
        step = a.coef.get(v, 0) if v is not None else 0
        if (a.mode == "scalar") == moves:
            self.fail(f"{name} is {a.mode}, and {'moves' if moves else 'does not move'} with the vector loop")
        if a.mode in STEPS and step not in STEPS[a.mode]:
            self.fail(f"{name} is {a.mode}, and its lanes lie {step} elements apart")
        if a.prefetch is not None and a.prefetch.kind not in PREFETCHES:
            self.fail(f"{name} prefetches {a.prefetch.kind!r}, which is none of {', '.join(PREFETCHES)}")
        size = self.elements(a.source)
        if size is None or a.guard or a.rest or not all(isinstance(c, int) for c in (*a.coef.values(), *[c for _, c in a.base])):
            return
        low = high = a.const
        for d, c in (*a.coef.items(), *a.base):
            if d is None or not isinstance(c, int) or d.most is None:
                return
            if d.most == 0:
                return
            far = c * (d.most - 1)
            low, high = low + min(far, 0), high + max(far, 0)
        if (low < 0 or high >= size) and not self.partial(a):
            self.fail(f"{name} goes to elements {low} to {high} of {a.source.name}, which has {size}")

    def partial(self, a: Access) -> bool:
        """Whether a block or digit may be shorter than the loops' largest, so that the outermost addresses are never reached."""
        return any(d is not None and (d.uneven or (d.grid and self.short(d))) for d in (*a.coef, *[d for d, _ in a.base]))

    def short(self, d: Loop) -> bool:
        """Whether the last block of a loop of the grid may be shorter."""
        ((a, block, _),) = d.parts
        try:
            return self.plan.length(a) % block > 0
        except LookupError:
            return True

    def store(self, s: ScheduledStage, k: int, how: str) -> None:
        a, value = s.stores[k], s.deps[s.stage.to[k].line]
        v = s.tile.vector
        if how != "set" and v is not None and v in (a.deps | value) and not a.coef.get(v):
            self.fail(f"lanes fold values into one element of {a.source.name}")
        if type(a.source) is Local:
            self.carried.setdefault(a.source, set()).update(self.grid_loops_of(s, s.stage.to[k].line))
        if type(a.source) is Local or a.rest:
            return
        moves = {d for d, c in a.base if d is not None and c != 0}
        for d in self.scheduled.grid[: s.stage.depth]:
            if d not in moves and d.extent != 1 and d in self.grid_loops_of(s, s.stage.to[k].line):
                self.fail(f"all work items along {d.name} store in the same elements of {a.source.name}")

    def grid_loops_of(self, s: ScheduledStage, line: int) -> set[Loop]:
        """The grid loops with which a line changes."""
        found: set[Loop] = set()
        by_axis = {d.parts[0][0]: d for d in self.scheduled.grid}
        todo, seen = [line], set[int]()
        lines = dict(s.stage.lines())
        while todo:
            n = todo.pop()
            if n in seen:
                continue
            seen.add(n)
            border = len(s.stage.before)
            if border <= n < border + len(s.stage.combine):
                todo.append(s.stage.combine[n - border].line)
                continue
            todo += [*s.uses[n]]
            if n in s.reads:
                found |= {d for d, c in s.reads[n].base if d is not None and c != 0} | self.carried.get(s.reads[n].source, set())
            elif lines[n].op == "index":
                form = s.forms.of(lines[n].attrs["value"])
                if form is not None:
                    found |= {d for d in form.coef if d.grid}
                    found |= {by_axis[x.of] for x in leaves(form.const) if type(x) is BlockNumber}
        return found


def _names(loops: Iterable[Loop]) -> str:
    return ", ".join([d.name for d in loops]) or "none"


def _digits(digits: Iterable[tuple[int, ExprLike]]) -> str:
    return " and ".join([f"{n} times {unit}" for unit, n in digits]) or "none"

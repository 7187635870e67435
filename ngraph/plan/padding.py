"""Padding: the predicate of a read is dropped where the buffer holds the pad value around its elements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ngraph.op_graph import expr
from ngraph.op_graph.expr import ExprLike, Idx, Len
from ngraph.op_graph.op import Origin
from ngraph.plan.kernels import Buffer, Kernel, Line, Local, Plan, PlanStep, Stage, Store
from ngraph.plan.memory import around, reused_places
from ngraph.plan.packing import copy_of
from ngraph.program.program import AxisId
from ngraph.targets.machine import Cpu
from ngraph.targets.tuning import BORDERED_PART, MAX_BORDER, MIN_READS_TO_PAD, MIN_READS_TO_SLIDE
from ngraph.tensors.index import Read, affine, least, same

Length = Callable[[AxisId], int | None]


@dataclass
class _PaddingRequest:
    """The padding that readers of a buffer with one pad value request."""

    pad_value: Any
    weight: int = 0
    border: dict[AxisId, tuple[int, int]] = field(default_factory=dict)
    reads: list[tuple[Read, dict[ExprLike, None]]] = field(default_factory=list)


class Padding:
    """Determines the padding that readers request, gives each of the plan's own buffers the heaviest request, and fills it."""

    def __init__(self, plan: Plan, still: set[Buffer], known: Length, length: Callable[[AxisId], int], machine: Cpu):
        """known: the length of an axis, None where it is open; length: a guess there."""
        self.plan, self.still, self.known, self.length, self.machine = plan, still, known, length, machine
        calls = [s for s in plan.every if type(s) is not Kernel]
        self.settled = all(known(a) is not None for a in plan.axes)
        self.rigid = {b for s in calls for b in (*s.sources, *s.targets)} | {b for b in plan.buffers if b.shares is not None}

    def draw(self) -> None:
        self.copy()
        self.plan.steps = tuple([self.locals(s) if type(s) is Kernel else s for s in self.plan.steps])
        preferences: dict[Buffer, dict[str, _PaddingRequest]] = {}
        for kernel in [s for s in self.plan.steps if type(s) is Kernel]:  # steps that run once are not worth a border
            own = set(kernel.targets)
            for stage in kernel.stages:
                for r in stage.reads():
                    if type(r.source) is Buffer and r.source.storage == "arena" and r.source not in own and r.source not in self.rigid:
                        self.wish(preferences, kernel, stage, r)
        made: list[Buffer] = []
        for b, some in preferences.items():
            self.grant(b, max(some.values(), key=lambda w: w.weight))
            made.append(b)
        self.fill(made)

    def wish(self, preferences: dict[Buffer, dict[str, _PaddingRequest]], kernel: Kernel, stage: Stage, r: Read) -> None:
        border, dropped = self.covered(r)
        if dropped:
            w = preferences.setdefault(r.source, {}).setdefault(repr(r.pad_value), _PaddingRequest(r.pad_value))
            w.weight += self.work(kernel, stage)
            w.reads.append((r, dropped))
            for a, (low, high) in border.items():
                old = w.border.get(a, (0, 0))
                w.border[a] = (max(old[0], low), max(old[1], high))

    def grant(self, b: Buffer, best: _PaddingRequest) -> None:
        """Gives a buffer the border that was requested, and drops the predicates that it replaces."""
        b.border, b.pad_value = best.border, best.pad_value
        for r, dropped in best.reads:
            r.predicate = tuple([g for g in r.predicate if g not in dropped])

    def work(self, kernel: Kernel, stage: Stage) -> int:
        axes = (*[a for a, b in kernel.loops if b == 1], *stage.free, *stage.reduced)
        return math.prod([max(self.length(a), 1) for a in axes])

    def extent(self, a: AxisId) -> ExprLike:
        """The length of an axis where it is known, else its name."""
        n = self.known(a)
        return Len(a) if n is None else n

    def formula(self, a: AxisId) -> ExprLike:
        """The length of an axis, as an expression over lengths that calls bring."""
        n = self.known(a)
        return self.plan.axes[a] if n is None else n

    def early(self, a: AxisId) -> bool:
        """Whether the length of an axis is known before any step runs."""
        own = self.formula(a)
        return all(type(x) is Len and (x == own or self.early(x.of)) for x in expr.leaves(own))

    def covered(self, r: Read) -> tuple[dict[AxisId, tuple[int, int]], dict[ExprLike, None]]:
        """Returns the border that a read needs, and the predicates that become redundant."""
        border: dict[AxisId, tuple[int, int]] = {}
        dropped: dict[ExprLike, None] = {}
        if any(div != 1 or mod is not None or not self.early(a) for a, div, mod in r.source.dims):
            return border, dropped
        for a, e in r.index.items() if r.predicate else ():
            ends = (e, expr.combine("-", self.extent(a) - 1, e))  # no less than 0 inside
            over = [max(0, -least(end, self.formula)) for end in ends]
            if affine(e) is None or max(over) > MAX_BORDER:
                continue
            mine = [g for g in r.predicate if any(same(g, end, self.formula) for end in ends)]
            if mine:
                border[a] = (int(over[0]), int(over[1]))
                dropped |= dict.fromkeys(mine)
        return border, dropped

    # copies of buffers that the plan does not own
    def copy(self) -> None:
        """Inserts a padded copy of such a buffer, before a stage that reads it with predicates repeatedly."""
        steps: list[PlanStep] = []
        made: dict[Buffer, Buffer] = {}
        for step in self.plan.steps:
            for stage in step.stages if type(step) is Kernel else ():
                for r in stage.reads():
                    b = r.source
                    mine = b.storage == "input" or (b in self.still and b.storage != "once")
                    if not mine or type(step) is not Kernel or not self.covered(r)[1]:
                        continue
                    added = bool(stage.combine) and all(c.kind == "add" for c in stage.combine)
                    slides = added and not any(type(e) is Idx and e.of in stage.reduced for e in r.index.values())
                    least = MIN_READS_TO_SLIDE if slides else MIN_READS_TO_PAD
                    if self.work(step, stage) < least * math.prod([max(self.length(a), 1) for a in b.axes]):
                        continue
                    if b not in made:
                        made[b], copy = copy_of(b, self.length, step.origin)
                        steps.append(copy)
                    r.source = made[b]
            steps.append(step)
        self.plan.steps = tuple(steps)
        self.plan.buffers += tuple(made.values())

    # values of one work item
    def locals(self, kernel: Kernel) -> Kernel:
        """Returns a kernel whose Locals have borders along whole axes, where its stages read them with predicates.

        The first stage that fills such a Local comes behind stages that fill its border, in every work item: scratch is shared.
        Predicates that a stage evaluates for other values too gain nothing from a border, and stay.
        """
        preferences: dict[Buffer, dict[str, _PaddingRequest]] = {}
        cut = {a for a, block in kernel.loops if block > 1}
        for stage in kernel.stages:
            others = {g for r in stage.reads() if type(r.source) is not Local for g in r.predicate}
            others.update(*[line.attrs["predicate"] for _, line in stage.lines() if line.op == "predicate"])
            for r in stage.reads():
                if type(r.source) is Local and cut.isdisjoint((found := self.covered(r))[0]) and others.isdisjoint(found[1]):
                    self.wish(preferences, kernel, stage, r)
        stages = [*kernel.stages]
        for b, some in preferences.items():
            first = next(k for k, stage in enumerate(stages) if any(s.target is b for s in stage.to))
            self.grant(b, max(some.values(), key=lambda w: w.weight))
            stages[first:first] = [replace(edge, depth=stages[first].depth) for edge in self.edges(b, shared=False).stages]
        return replace(kernel, stages=tuple(stages)) if preferences else kernel

    # ---- filling
    def fill(self, buffers: list[Buffer]) -> None:
        """Inserts the filling of borders: small ones when an arena is created; others before each use, so that they can share memory.

        Where lengths are open, buffers lie elsewhere in each call.
        """
        shapes = {b: tuple([self.length(a) + sum(b.border.get(a, ())) for a, _, _ in b.dims]) for b in buffers}
        leader = reused_places(self.plan, buffers, lambda b: (shapes[b], around(b)))
        room, lasts = self.machine.usable_l3 // BORDERED_PART, set[Buffer]()
        for b in sorted(dict.fromkeys(leader.values()), key=lambda b: math.prod(shapes[b])):
            room -= math.prod(shapes[b]) * b.dtype.bits // 8
            if room >= 0 and self.settled:
                lasts.add(b)
        waiting = dict.fromkeys(buffers)
        start: list[Kernel] = []
        steps: list[PlanStep] = []
        for step in self.plan.steps:
            for b in [b for b in step.targets if b in waiting]:
                del waiting[b]
                (start if leader[b] in lasts else steps).append(self.edges(b, step.origin))
            steps.append(step)
        self.plan.start, self.plan.steps = tuple(start), tuple(steps)

    def edges(self, b: Buffer, origin: tuple[Origin, ...] = (), shared: bool = True) -> Kernel:
        """Returns the kernel that fills a buffer's border: two slabs for each axis, which extend over the borders of earlier axes.

        origin: that of the step that fills the rest; shared: whether work items share out an axis without a border.
        """
        inside = [a for a in b.axes if shared and a not in b.border and self.length(a) > 1]
        outer = inside[0] if len(inside) > 1 else None
        stages: list[Stage] = []
        whole: dict[AxisId, tuple[AxisId, ExprLike]] = {}
        for a in [a for a in b.axes if a in b.border]:
            low, high = b.border[a]
            n = self.extent(a)
            for wide, first in ((low, -low), (high, n)):
                if wide:
                    slab = self.axis(wide, (*b.axes, *[x for x, _ in whole.values()]))
                    index: dict[AxisId, ExprLike] = {x: whole[x][1] if x in whole else Idx(x) for x in b.axes}
                    index[a] = Idx(slab) + first
                    free = [slab if x == a else whole[x][0] if x in whole else x for x in b.axes if x != outer]
                    line = Line("number", (), b.dtype, {"value": b.pad_value})
                    store = Store(0, b, index)
                    stages.append(Stage(tuple(free), (), (line,), (), (), (store,), 0 if outer is None else 1))
            ring = self.axis(n + (low + high), (*b.axes, *[x for x, _ in whole.values()]))
            whole[a] = (ring, Idx(ring) - low)
        return Kernel(() if outer is None else ((outer, 1),), tuple(stages), origin)

    def axis(self, length: ExprLike, taken: Iterable[AxisId]) -> AxisId:
        """Returns an axis that the program does not have."""
        names = (AxisId("edge" if k == 1 else f"edge.{k}") for k in itertools.count(1))
        made = next(a for a in names if self.plan.axes.get(a, length) == length and a not in taken)
        self.plan.axes[made] = length
        return made

"""Memory planning: offsets in one arena by liveness, and results that reuse the memory of an operand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ngraph.op_graph.expr import ExprLike, Idx
from ngraph.parts.runner import pass_
from ngraph.parts.storage import lifetimes, lowest_place
from ngraph.plan.kernels import Buffer, Kernel, Plan, Stage, room_of
from ngraph.program.program import AxisId
from ngraph.targets.tuning import ALIGNMENT, MIN_STAGGERED_BYTES, PAGE_BYTES, STAGGER_BYTES
from ngraph.tensors.index import loads


@pass_(needs=("unplaced",))
def allocate(plan: Plan) -> Plan:
    """Assigns every buffer its size, strides and, in the arena, its offset."""
    for b in plan.buffers:
        _size(plan, b)
    _place(plan)
    return plan


def _size(plan: Plan, b: Buffer) -> None:
    try:
        shape = room_of(b, plan.length)
    except LookupError:
        b.storage = "run" if b.storage == "arena" else b.storage
        return
    strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
    b.strides = tuple(strides)
    b.first = sum([s * b.border[a][0] for s, (a, _, _) in zip(strides, b.dims, strict=True) if a in b.border])
    b.bytes = math.prod(shape) * (b.dtype.bits // 8)


def last_uses(plan: Plan) -> dict[Buffer, int]:
    """Returns the last of all steps that reads each buffer."""
    last = {b: k for b, (_, k) in lifetimes(step.sources for step in plan.every).items()}
    end = len(plan.every)
    last.update(dict.fromkeys(loads(*plan.axes.values()), end))  # buffers in lengths live to the end
    for b in plan.buffers:
        if b.storage == "once":
            last[b] = end
    return last


def lasting(plan: Plan) -> list[Buffer]:
    """Returns the buffers whose borders are filled at the start: they share memory only with buffers of their form."""
    return [b for step in plan.start for b in step.targets]


def around(b: Buffer) -> Any:
    """Returns the content and extent of a border."""
    return tuple([b.border.get(a) for a, _, _ in b.dims]), b.dtype, repr(b.pad_value)


def reused_places(plan: Plan, buffers: Iterable[Buffer], form: Callable[[Buffer], Any]) -> dict[Buffer, Buffer]:
    """Returns for each buffer the first one whose memory it can reuse: of the same form, and dead when it is filled."""
    lives = lifetimes((*step.sources, *step.targets) for step in plan.steps)
    lines: dict[Any, list[tuple[int, Buffer]]] = {}
    leader: dict[Buffer, Buffer] = {}
    for b in sorted(buffers, key=lambda b: lives[b]):
        line = lines.setdefault(form(b), [])
        free = next((x for x in line if x[0] < lives[b][0]), None)
        leader[b] = b if free is None else free[1]
        if free is not None:
            line.remove(free)
        line.append((lives[b][1], leader[b]))
    return leader


def _place(plan: Plan) -> None:
    """Places buffers by linear scan: the lowest gap that is large enough, or the memory of an operand that dies there."""
    last = last_uses(plan)
    top = {storage: max([_end(b) for b in plan.buffers if b.storage == storage], default=0) for storage in ("arena", "once")}
    live: list[tuple[int, int, Buffer]] = []
    pinned = reused_places(plan, lasting(plan), lambda b: (b.strides, b.bytes, b.row, around(b)))
    held: list[tuple[int, int, Buffer]] = []

    def put(b: Buffer, at: int) -> None:
        b.offset = at
        top[b.storage] = max(top[b.storage], _end(b))

    for b in plan.buffers:  # these have memory of their own
        if b.offset is None and b.bytes is not None and (b.storage == "once" or pinned.get(b) is b):
            put(b, top[b.storage])
            if b.storage == "arena":
                held.append((_end(b) - _size_of(b), _size_of(b), b))
    for b, first in pinned.items():
        b.offset = first.offset
    for k, step in enumerate(plan.every):
        live = [x for x in live if last.get(x[2], -1) >= k]
        for b in step.targets:
            if b.storage != "arena" or b.bytes is None or b.offset is not None:
                continue
            size = _size_of(b)
            heir = next((x for x in live if last[x[2]] == k and x[1] >= size and type(step) is Kernel and may_replace(step, x[2], b)), None)
            if heir is not None:
                live.remove(heir)
            put(b, heir[0] if heir is not None else lowest_place(size, [x[:2] for x in (*held, *live)]))
            last.setdefault(b, k)
            live.append((b.offset or 0, size, b))
    plan.arena, plan.kept = top["arena"], top["once"]


def _size_of(b: Buffer) -> int:
    n = b.bytes or 0
    return (
        -(-n // PAGE_BYTES) * PAGE_BYTES + STAGGER_BYTES
        if n >= MIN_STAGGERED_BYTES and b.storage == "arena"
        else -(-n // ALIGNMENT) * ALIGNMENT
    )


def _end(b: Buffer) -> int:
    return 0 if b.offset is None or b.bytes is None else b.offset + _size_of(b)


def may_replace(kernel: Kernel, old: Buffer, new: Buffer) -> bool:
    """Whether `new` may overwrite `old`: each element of old is read only where the same element of new is written, not after.

    Both have the same dims; every read of old is at the index itself, in the first storing stage or one before it. That stage stores
    all of new; later ones may store again, each work item within its own part.
    """
    if old.dims != new.dims or old.dtype.bits != new.dtype.bits or any(a not in old.axes for a, _ in kernel.parallel):
        return False
    if old.border or new.border or old.row != new.row:
        return False
    stored = [(k, s) for k, stage in enumerate(kernel.stages) for s in stage.to if s.target is new]
    if not stored or stored[0][1].predicate or not _own(stored[0][1].index):
        return False
    (at, store), *others = stored
    if any(k == at or s.combine != "set" or not _own({a: s.index[a] for a, _ in kernel.parallel}) for k, s in others):
        return False
    stage = kernel.stages[at]
    if store.line < len(stage.before) and stage.reduced and not set(stage.reduced) <= set(new.axes):
        return False
    for k, stage in enumerate(kernel.stages):
        for read in stage.reads():
            if read.source is old and (k > at or read.predicate or not _own(read.index)):
                return False
            if read.source is new and k <= at:
                return False
    return True


def kept_in_place(kernel: Kernel, old: Buffer, new: Buffer) -> Kernel:
    """Returns the kernel without the stages that copy old to new in the same memory; with them where nothing else stores new."""
    stages = tuple([s for s in kernel.stages if not _copies(s, old, new)])
    return replace(kernel, stages=stages) if any(s.target is new for stage in stages for s in stage.to) else kernel


def _copies(stage: Stage, old: Buffer, new: Buffer) -> bool:
    if (
        len(stage.before) != 1
        or stage.combine
        or stage.after
        or any(s.target is not new or s.predicate or not _own(s.index) for s in stage.to)
    ):
        return False
    r = stage.before[0].read
    return r is not None and r.source is old and not r.predicate and _own(r.index)


def _own(index: Mapping[AxisId, ExprLike]) -> bool:
    return all(type(e) is Idx and e.of == a for a, e in index.items())

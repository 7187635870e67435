"""Where buffers lie: offsets in one arena by liveness, and which results may take the place of what they are made from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ngraph.op_graph.expr import ExprLike, Idx
from ngraph.plan.kernels import Buffer, Kernel, Plan, extent
from ngraph.program.program import AxisId

ALIGN = 64  # bytes: a line of the cache


def lay_out(plan: Plan) -> Plan:
    """Gives every buffer its size, strides and, in the arena, its offset."""
    for b in plan.buffers:
        _size(plan, b)
    _place(plan)
    return plan


def _size(plan: Plan, b: Buffer) -> None:
    try:
        shape = [extent(d, plan.length(d[0])) for d in b.dims]
    except LookupError:
        b.home = "run" if b.home == "arena" else b.home
        return
    strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
    b.strides = tuple(strides)
    b.bytes = math.prod(shape) * (b.dtype.bits // 8)


def last_uses(plan: Plan) -> dict[Buffer, int]:
    """The last step that reads each buffer."""
    last: dict[Buffer, int] = {}
    for k, step in enumerate(plan.steps):
        for b in step.sources:
            last[b] = k
    for a in plan.axes.values():  # what lengths need lives to the end
        for b in loaded(a):
            last[b] = len(plan.steps)
    return last


def loaded(e: object) -> Iterable[Buffer]:
    """The buffers that a length reads."""
    from_expr = getattr(e, "a", None), getattr(e, "b", None), getattr(e, "of", None)
    for part in from_expr:
        if isinstance(part, Buffer):
            yield part
        elif part is not None and not isinstance(part, int | str):
            yield from loaded(part)


def _place(plan: Plan) -> None:
    """Linear scan: the lowest gap that is large enough. A result may take the place of a value that ends here and is read as it is."""
    last = last_uses(plan)
    live: list[tuple[int, int, Buffer]] = []
    top = max([b.offset + -(-b.bytes // ALIGN) * ALIGN for b in plan.buffers if b.offset is not None and b.bytes is not None], default=0)
    for k, step in enumerate(plan.steps):
        live = [x for x in live if last.get(x[2], -1) >= k]
        for b in step.targets:
            if b.home != "arena" or b.bytes is None or b.offset is not None:
                continue
            size = -(-b.bytes // ALIGN) * ALIGN
            heir = next((x for x in live if last[x[2]] == k and x[1] >= size and type(step) is Kernel and may_replace(step, x[2], b)), None)
            if heir is not None:
                live.remove(heir)
                at = heir[0]
            else:
                at = _gap(live, size)
            b.offset = at
            last.setdefault(b, k)
            live.append((at, size, b))
            top = max(top, at + size)
    plan.arena = top


def _gap(live: list[tuple[int, int, Buffer]], size: int) -> int:
    at = 0
    for offset, taken, _ in sorted(live, key=lambda x: x[0]):
        if at + size <= offset:
            break
        at = max(at, offset + taken)
    return at


def may_replace(kernel: Kernel, old: Buffer, new: Buffer) -> bool:
    """Whether `new` may be written where `old` lies: each element of old is read only where the same element of new is written, not after.

    Both have the same dims; every read of old is at the index itself, in the storing stage or one before it; and it is written once.
    """
    if old.dims != new.dims or old.dtype.bits != new.dtype.bits or any(a not in old.axes for a, _ in kernel.loops):
        return False
    stored = [(k, s) for k, stage in enumerate(kernel.stages) for s in stage.to if s.target is new]
    if len(stored) != 1 or stored[0][1].guard or not _own(stored[0][1].index):
        return False
    (at, store) = stored[0]
    stage = kernel.stages[at]
    if store.line < len(stage.before) and stage.reduced and not set(stage.reduced) <= set(new.axes):
        return False
    for k, stage in enumerate(kernel.stages):
        for read in stage.reads():
            if read.source is old and (k > at or read.guard or not _own(read.index)):
                return False
            if read.source is new and k <= at:
                return False
    return True


def _own(index: Mapping[AxisId, ExprLike]) -> bool:
    return all(type(e) is Idx and e.of == a for a, e in index.items())

"""The verifier of plans: `verify` names the step and the rule that it violates. Compiled code would not fail; it would be wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ngraph.errors import ProgramError
from ngraph.op_graph import expr
from ngraph.op_graph.expr import Expr, ExprLike, Idx, Len
from ngraph.plan.kernels import Buffer, Kernel, Local, Plan, PlanStep, Stage, Store, own_moves, used, variant_loops
from ngraph.plan.memory import around, last_uses, lasting
from ngraph.program.program import AxisId
from ngraph.targets.tuning import ALIGNMENT
from ngraph.tensors.index import loads


def verify(plan: Plan) -> Plan:
    """Returns the plan itself, if it is valid. Raises ProgramError that names the step and the rule."""
    filled = {*plan.inputs, *[before for _, before, _ in plan.state], *[b for b in plan.buffers if b.storage == "constant"]}
    if plan.token_in is not None:
        filled.add(plan.token_in)
    steps = [("once ", k, s) for k, s in enumerate(plan.once)] + [("", k, s) for k, s in enumerate(plan.steps)]
    edged: set[Buffer] = set()  # buffers with a border that will be filled
    written = {before for _, before, after in plan.state if before is not after}
    complaint = next((c for s in plan.start if type(s) is Kernel for c in _kernel(plan, s, filled)), None)
    if complaint is not None:
        raise ProgramError(f"plan {plan.name}, at the start: {complaint}")
    for when, k, step in steps:
        complaint = next(_kernel(plan, step, filled) if type(step) is Kernel else _missing(step.sources, filled), None)
        if when and complaint is None:
            complaint = next(_changing(step, [b for b in plan.inputs if b not in plan.loop_invariant], written), None)
        if complaint is not None:
            raise ProgramError(f"plan {plan.name}, {when}step {k}: {complaint}")
        made = step.targets
        twice = [b.name for b in made if b in filled and b not in edged]
        edged.update([b for b in made if b.border and b not in filled])
        if twice:
            raise ProgramError(f"plan {plan.name}, {when}step {k}: it fills {', '.join(twice)}, which was filled before")
        filled.update(made)
        for b in made:
            if b.shares is not None:
                filled.discard(b.shares)
    complaint = next(_replaced(plan), None)
    if complaint is not None:
        raise ProgramError(f"plan {plan.name}: {complaint}")
    complaint = next(_missing([*plan.outputs, *[after for _, _, after in plan.state]], filled), None) or _overlap(plan)
    if complaint is not None:
        raise ProgramError(f"plan {plan.name}: {complaint}")
    return plan


def _replaced(plan: Plan) -> Iterator[str]:
    """Yields outputs that lie on an input that they are not said to replace, or replace one of another form."""
    written = {plan.outputs[n]: plan.inputs[k] for k, n in plan.writes}
    for b in plan.buffers:
        if b.shares is not None and b.shares.storage == "input" and written.get(b) is not b.shares:
            yield f"{b!r} lies on the input {b.shares!r}, and does not replace it"
    for after, before in written.items():
        if after.shares not in (None, before):
            yield f"{after!r} replaces {before!r}, and lies on another"
        if after.dims != before.dims or after.dtype is not before.dtype:
            yield f"{after!r} replaces {before!r} of {before.type}"


def _missing(buffers: Iterable[Buffer], filled: set[Buffer]) -> Iterator[str]:
    return (f"{b!r} is read and nothing has filled it" for b in buffers if b not in filled)


def _kernel(plan: Plan, kernel: Kernel, filled: set[Buffer]) -> Iterator[str]:
    fixed = {a for a, block in kernel.loops if block == 1}
    for a in dict.fromkeys([*[a for a, _ in kernel.loops], *[a for s in kernel.stages for a in (*s.free, *s.reduced)]]):
        yield from (f"the length of {a} is in {b!r}, which nothing has filled" for b in _numbers(plan, a) if b not in filled)
    stored: set[Buffer] = set()
    own = {s.target for stage in kernel.stages for s in stage.to}
    moves = variant_loops(kernel.loops, kernel.stages)
    changing: dict[Buffer, frozenset[AxisId]] = {}  # the loops with which a stored value varies
    inside = range(*kernel.repeated.indices(len(kernel.stages)))
    for k, stage in enumerate(kernel.stages):
        loops = kernel.loops if k in inside else kernel.parallel  # those with which it may vary
        space = {*stage.free, *stage.reduced}
        if len(space) < len(stage.free) + len(stage.reduced):
            yield f"stage {k} has an axis twice: {', '.join(map(str, (*stage.free, *stage.reduced)))}"
        for r in stage.reads():
            if r.source in own and r.source not in stored:
                yield f"stage {k} reads {r.source!r} of its own kernel, and no stage before it stores it"
            if r.source not in own and r.source not in filled:
                yield f"stage {k} reads {r.source!r}, which nothing has filled"
            if {a for a, _, _ in r.source.dims} - set(r.index):
                yield f"stage {k} reads {r.source!r} without an index for each axis"
        for a in space & fixed:
            yield f"stage {k} has the axis {a}, which is a loop"
        yield from (f"stage {k}: {c}" for c in _lines(stage, fixed, {a for a, _ in kernel.loops}))
        for s in stage.to:
            if s.target.storage in ("input", "constant"):
                yield f"stage {k} stores into {s.target!r}"
            changes = _changes(stage, s, changing).intersection([a for a, _ in loops])
            changing[s.target] = changing.get(s.target, frozenset()) | changes
            if type(s.target) is not Local and not changes <= _moving(s.index.values()):
                yield f"stage {k} stores {s.target!r} at the same place in several work items"
            absent = [a for a, _ in loops[stage.depth :] if not isinstance(plan.axes[a], int)]
            if absent and type(s.target) is not Local and (s.target.storage == "output" or _read_elsewhere(plan, kernel, s.target)):
                yield f"stage {k} stores {s.target!r}, which others read, in no work item where {', '.join(map(str, absent))} is 0"
        stored.update([s.target for s in stage.to])
        if not 0 <= stage.depth <= len(loops):
            yield f"stage {k} has depth {stage.depth} of {len(loops)} loops"
        if kernel.serial and (stage.depth == len(kernel.loops)) != (k in inside):
            yield f"stage {k} has depth {stage.depth}, between stages that run for each block of the serial loop {kernel.loops[-1][0]}"
        if k not in inside and kernel.loops[-1][0] in own_moves(stage, frozenset([a for a, _ in kernel.loops])):
            yield f"stage {k} runs once for all blocks of the serial loop {kernel.loops[-1][0]}, and changes with them"
        still = sorted(moves[k].intersection([a for a, _ in loops[stage.depth :]]))
        if still:
            yield f"stage {k} has depth {stage.depth}, and changes with {', '.join(still)}"


def _read_elsewhere(plan: Plan, kernel: Kernel, b: Buffer) -> bool:
    return any(b in step.sources for step in plan.every if step is not kernel)


def _changes(stage: Stage, s: Store, changing: dict[Buffer, frozenset[AxisId]]) -> set[AxisId]:
    """Returns the axes with which a store varies: those of its indices, predicates and sums, and of the values that it reads."""
    lines, sums = dict(stage.lines()), dict(enumerate(stage.combine, len(stage.before)))
    found, seen, todo = _moving(s.predicate), set[int](), [s.line, *used(*s.index.values(), *s.predicate)]
    while todo:
        k = todo.pop()
        if k in seen:
            continue
        seen.add(k)
        if k in sums:
            found.update(stage.reduced)
            todo.append(sums[k].line)
        elif k in lines:
            line = lines[k]
            todo += [*line.args, *used(*line.exprs)]
            found |= _moving(line.exprs)
            if line.read is not None:
                found |= changing.get(line.read.source, frozenset())
    return found


def _numbers(plan: Plan, a: AxisId) -> Iterator[Buffer]:
    """Yields the buffers in the length of an axis."""
    length = plan.axes[a]
    yield from loads(length)
    for leaf in expr.leaves(length) if isinstance(length, Expr) else ():
        if type(leaf) is Len and leaf.of != a:
            yield from _numbers(plan, leaf.of)


def _changing(step: PlanStep, inputs: Iterable[Buffer], written: set[Buffer]) -> Iterator[str]:
    """Yields the values that a step that runs once must not read or fill."""
    given = {*inputs, *written}
    yield from (f"{b!r} changes from call to call" for b in step.sources if b in given)
    yield from (f"it fills {b!r}" for b in step.targets if b.storage not in ("arena", "once", "run"))


def _lines(stage: Stage, fixed: set[AxisId], loops: set[AxisId]) -> Iterator[str]:
    """Returns a complaint unless lines use earlier lines of their own side of the reduction, and indices use existing axes."""
    border = len(stage.before)
    for n, line in stage.lines():
        late = n >= border
        needs = [*line.args, *used(*line.exprs)]
        if any(u >= n or (late and u < border) for u in needs):
            yield f"line {n} uses a line that is not there yet, or no longer"
        yield from _outside(f"line {n}", line.exprs, fixed | {*stage.free, *(() if late else stage.reduced)})
    for c in stage.combine:
        if not 0 <= c.line < border:
            yield f"an accumulator combines line {c.line}, which is none of those before"
    for s in stage.to:
        reach = fixed | {*stage.free, *(stage.reduced if s.line < border else loops)}
        yield from _outside(f"the store into {s.target.name}", [*s.index.values(), *s.predicate], reach)


def _moving(exprs: Iterable[ExprLike]) -> set[AxisId]:
    return {leaf.of for e in exprs for leaf in expr.leaves(e) if type(leaf) is Idx}


def _outside(what: str, exprs: Iterable[ExprLike], there: set[AxisId]) -> Iterator[str]:
    lost = sorted(_moving(exprs) - there)
    if lost:
        yield f"{what} moves along {', '.join(lost)}, which is neither an axis of the stage nor a loop of single steps"


def _overlap(plan: Plan) -> str | None:
    """Returns a complaint where two buffers that are live at the same time overlap in the arena, except where one replaces the other.

    A buffer with a lasting border shares memory only with buffers of an equal one.
    """
    last, lasts = last_uses(plan), lasting(plan)
    live: list[tuple[int, Buffer]] = []
    for k, step in enumerate(plan.every):
        live = [x for x in live if x[0] >= k]
        for b in step.targets if step not in plan.start else ():
            if b.offset is None or b.bytes is None or any(b is x for _, x in live):
                continue
            size = plan.kept if b.storage == "once" else plan.arena
            if b.offset % ALIGNMENT or b.offset + b.bytes > size:
                return f"{b!r} lies at {b.offset} of an arena of {size} bytes"
            for end, other in [*live, *[(len(plan.every), x) for x in lasts if b not in lasts or around(x) != around(b)]]:
                assert other.offset is not None and other.bytes is not None
                apart = other.offset + other.bytes <= b.offset or b.offset + b.bytes <= other.offset
                if (
                    not apart
                    and b.storage == other.storage
                    and b.bytes
                    and other.bytes
                    and (b in lasts or end != k or other.offset != b.offset)
                ):
                    return f"{b!r} and {other!r} lie on each other in step {k}"
            live.append((last.get(b, k), b))
    return None

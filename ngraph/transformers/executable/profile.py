"""Times kernels where they run: the table says for each record how long it took, the plan what it computes and moves."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ngraph.errors import show_line
from ngraph.plan.kernels import Buffer, Kernel
from ngraph.runtime.host.bytecode import FRAME
from ngraph.runtime.host.bytecode import TIMES as WORDS
from ngraph.runtime.measure import measured
from ngraph.runtime.profile import KernelProfile, Profile
from ngraph.targets.machine import Cpu
from ngraph.targets.products import PACKS, PRODUCTS
from ngraph.transformers.executable.code import KernelStep, origin
from ngraph.transformers.executable.frame import THREADS, InstantiatedPlan
from ngraph.transformers.executable.table import number

TIMES = FRAME["times"]
OPERATIONS = dict.fromkeys(("read", "number", "index", "copy", "cast", "predicate", *PACKS), 0)  # of a line, where not one
OPERATIONS |= {op: 2 * row.k - 1 for op, row in PRODUCTS.items()}


def profile(name: str, bound: InstantiatedPlan, call: Callable[[], Any], calls: int, title: Callable[[Any], str]) -> Profile:
    """Calls it so often, and says where the time of the fastest call went."""
    frame = bound.take()
    walk, table = frame.walk, frame.walk.table
    cells = np.zeros((len(table.records) + 1, WORDS), np.int64)
    walk.words[TIMES] = cells.ctypes.data
    bound.free.append(frame)  # the next call takes it
    try:
        took: list[tuple[float, int, list[list[int]]]] = []
        for _ in range(calls):
            cells[:] = 0
            began = time.monotonic_ns()
            call()
            took.append((time.monotonic_ns() - began, began, cells.tolist()))
    finally:
        walk.words[TIMES] = 0
    spent_all, began, counted = min(took)
    memory, peak = limits(bound.code.target)
    homes = {id(s): b for b in within(bound) for s in b.code.every}
    rows = []
    for step, (spent, often, first, last) in zip(table.steps, counted, strict=False):
        if type(step) is not KernelStep:
            continue
        flops, moved = work(step, homes[id(step)])
        least = max(flops / peak / together(step), moved / memory)
        origins = origin(step.step)
        lines = tuple(dict.fromkeys([show_line((o.file, o.line)) for o in origins if o.file]))
        ops = title(step.step).split(" (")[0]
        scopes = tuple(dict.fromkeys([o.scope for o in origins]))
        spans = flops, moved, predicted(step, homes[id(step)]), least, (first - began) * 1e-9, (last - began) * 1e-9
        rows.append(KernelProfile(ops, lines, often, spent * 1e-9, *spans, largest(step, homes[id(step)]), names(step), scopes))
    known = measured(bound.code.target) is not None
    most = max([together(step) for step in table.steps if type(step) is KernelStep], default=1)
    by_python = [s for s in bound.code.host_callbacks() if s.op != "check_bounds"]  # which runs where it fails
    host = tuple(dict.fromkeys([f"{s.op} ({show_line((o.file, o.line))})" for s in by_python for o in s.origin[:1] if o.file]))
    return Profile(name, tuple(rows), spent_all * 1e-9, calls, int(walk.words[THREADS]), (memory, peak), known, host, most)


def largest(step: KernelStep, bound: InstantiatedPlan) -> str:
    """The type of the largest result of a kernel, its axes with their lengths."""
    results: Sequence[Any] = [b for b in step.step.targets if type(b) is Buffer]
    if not results:
        return ""
    b = max(results, key=lambda b: bound.sizes.get(b) or 0)
    return f"{b.dtype.name}[{', '.join([f'{a}={_length(bound, a)}' for a in b.axes])}]"


def names(step: KernelStep) -> tuple[str, ...]:
    """Returns the user's names of a kernel's inputs: state, arguments and constants."""
    return tuple(dict.fromkeys([b.name for b in step.step.sources if b.storage in ("state", "input", "constant", "once") and b.name]))


def within(bound: InstantiatedPlan) -> list[InstantiatedPlan]:
    """A plan and the bodies of its loops and branches, those inside these too."""
    found = [bound]
    for b in found:
        found += [body for inner in b.inner.values() for body, _ in inner.bodies.values()]
    return found


def limits(target: Cpu) -> tuple[float, float]:
    """Bytes and operations per second: measured ones where there are any, else those of the description."""
    found = measured(target)
    if found is not None:
        return found.memory, found.flops
    return target.memory_bandwidth, 4 * target.speed * target.cores


def work(step: KernelStep, bound: InstantiatedPlan) -> tuple[float, float]:
    """Operations, and bytes of what comes in and goes out, of one run of a kernel."""
    buffers: Sequence[Any] = dict.fromkeys((*step.step.sources, *step.step.targets))  # type: ignore[assignment]  # only iterated over
    moved = sum(bound.sizes.get(b) or 0 for b in buffers)
    if type(step.step) is not Kernel:
        return 0.0, moved
    total = 0.0
    loops = [a for a, _ in step.step.loops]
    for stage in step.step.stages:
        outer = [a for a in loops[: stage.depth] if a not in stage.free and a not in stage.reduced]
        free = math.prod(_length(bound, a) for a in {*outer, *stage.free, *[a for a in loops if a in stage.free]})
        every = free * math.prod(_length(bound, a) for a in stage.reduced)
        total += every * (sum([OPERATIONS.get(line.op, 1) for line in stage.before]) + len(stage.combine))
        total += free * sum([OPERATIONS.get(line.op, 1) for line in stage.after])
    return total, moved


def predicted(step: KernelStep, bound: InstantiatedPlan) -> float:
    """Returns the predicted seconds of a kernel at the lengths of the calls: those for assumed ones grow with its largest stage."""
    growth, layout = step.code.growth, bound.layout
    return step.seconds * number(growth, partial(_length, bound)) / max(layout.guess(layout.over(growth)), 1)


def together(step: KernelStep) -> int:
    """Returns the number of products per instruction of a kernel: the factor of the machine's limit."""
    lines = [line.op for s in step.step.stages for line in s.before] if type(step.step) is Kernel else []
    return max([PRODUCTS[op].k for op in lines if op in PRODUCTS], default=1)


def _length(bound: InstantiatedPlan, axis: Any) -> int:
    try:
        return bound.length(axis)
    except LookupError:
        return 1

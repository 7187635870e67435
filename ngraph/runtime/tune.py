"""Autotuning: a few schedules of a kernel are compiled and timed once, and the fastest is cached.

All of them sum in the same order, so that the choice changes no bit of any result. A kernel's key covers everything that its code
depends on, so equal kernels of other programs and later processes reuse the choice from the cache's folder, without a measurement.
"""

from __future__ import annotations

import ctypes
import json
import math
import sys
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ngraph.codegen.kernel import lower
from ngraph.codegen.signature import KernelCode
from ngraph.config import config
from ngraph.plan.deduplication import shape
from ngraph.plan.kernels import Kernel, Local, Plan
from ngraph.runtime.cache import cache, digest, makers
from ngraph.runtime.host.loader import LoadedObjects
from ngraph.runtime.host.pool import aligned
from ngraph.runtime.measure import processor
from ngraph.schedule.cpu import schedule_kernel
from ngraph.schedule.form import ScheduledKernel
from ngraph.schedule.search import LoopSchedule, View, alternatives
from ngraph.targets import Cpu

Picks = dict[View, LoopSchedule]
TRIED_SCHEDULES = 3  # schedules tried beside the first, for each of the most expensive
HEAVY = 2  # stages of a kernel that are tuned
MAX_RELATIVE_TIME = 0.97  # of the first one's time, below which another replaces it
SECONDS, RUNS = 0.02, 9  # of one kernel's runs, and their maximum number
CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


class _Trial(NamedTuple):
    """A kernel with its key, and codes: the first is as it would be, each other has for one view, by number, the schedule of that rank."""

    key: bytes
    codes: tuple[KernelCode, ...]
    changes: tuple[tuple[int, int], ...]


def tune(plans: Iterable[Plan], target: Cpu) -> None:
    """Measures the kernels of these plans that are not in the cache; nothing where lengths are unknown."""
    own, trials = cache(), dict[bytes, _Trial]()
    for plan in plans:
        for kernel in plan.every:
            if type(kernel) is Kernel and (found := _key(plan, kernel, target)) is not None:
                if found not in trials and own.find(found, "tunings") is None:
                    trials[found] = _trial(found, plan, kernel, target)
    objects = iter(own.objects([c.text for t in trials.values() for c in t.codes], target))
    for trial in trials.values():
        made = [next(objects) for _ in trial.codes]
        best = _winners(trial, _times(trial.codes, made) if len(made) > 1 else [])
        own.keep("tunings", trial.key, json.dumps(best).encode())


def picks(plan: Plan, kernel: Kernel, target: Cpu) -> Picks:
    """Returns the schedules of a kernel that were faster than the first ones."""
    key = _key(plan, kernel, target)
    found = None if key is None else cache().find(key, "tunings")
    if found is None:
        return {}
    chosen = json.loads(found)
    if not chosen:
        return {}
    views = _heavy(schedule_kernel(plan, kernel, target))
    return {views[number]: alternatives(views[number], target, TRIED_SCHEDULES)[rank] for number, rank in chosen}


def _key(plan: Plan, kernel: Kernel, target: Cpu) -> bytes | None:
    made = shape(plan, kernel)
    known = all(type(b) is Local or b.bytes is not None for b in (*kernel.sources, *kernel.targets))
    return digest(b"tuned", makers(), processor().encode(), repr(target).encode(), made.key) if made is not None and known else None


def _heavy(scheduled: ScheduledKernel) -> list[View]:
    """Returns the most expensive of the views that were scheduled."""

    def weight(view: View) -> float:
        return math.prod([n or 1 for n in view.sizes]) * (len(view.sums) + sum([k for k, _ in view.work]))

    return sorted(scheduled.searched, key=lambda view: -weight(view))[:HEAVY]


def _trial(key: bytes, plan: Plan, kernel: Kernel, target: Cpu) -> _Trial:
    first = schedule_kernel(plan, kernel, target)
    codes, changes = [lower(plan, first)], list[tuple[int, int]]()
    if isinstance(codes[0].work_items, int) and isinstance(codes[0].scratch, int):
        for number, view in enumerate(_heavy(first)):
            for rank, other in enumerate(alternatives(view, target, TRIED_SCHEDULES)[1:], 1):
                made = lower(plan, schedule_kernel(plan, kernel, target, {view: other}))
                if all(made.text != c.text for c in codes):
                    codes.append(made)
                    changes.append((number, rank))
    return _Trial(key, tuple(codes), tuple(changes))


def _times(codes: Sequence[KernelCode], objects: Sequence[bytes]) -> list[float]:
    """Returns the least seconds of each, on one thread, in turn."""
    loaded, draw = LoadedObjects(*objects), np.random.default_rng(0)
    memory = [aligned(b.bytes or 1) for b in codes[0].buffers]
    for b, (array, _) in zip(codes[0].buffers, memory, strict=True):
        if b.dtype.is_float and b.dtype.np is not None:  # zeros would become denormal numbers, which are slow
            part = array[: (b.bytes or 0) // b.dtype.np.itemsize * b.dtype.np.itemsize].view(b.dtype.np)
            part[...] = draw.random(part.size, np.float32)
    args = np.array([at for _, at in memory], np.int64)
    scratch = [aligned(max(c.scratch, 64) if isinstance(c.scratch, int) else 64) for c in codes]
    calls = [CALL(loaded.address("kernel", k)) for k in range(len(codes))]
    best, start = [math.inf] * len(codes), time.perf_counter()
    for run in range(RUNS):
        for k, (call, code) in enumerate(zip(calls, codes, strict=True)):
            began = time.perf_counter()
            call(args.ctypes.data, 0, code.work_items, scratch[k][1])
            best[k] = min(best[k], time.perf_counter() - began)
        if run and time.perf_counter() - start > SECONDS * len(codes):
            break
    return best


def _winners(trial: _Trial, seconds: Sequence[float]) -> list[tuple[int, int]]:
    """Returns for each view, by number, with a better schedule than the first, the rank of the best."""
    found = []
    for number in dict.fromkeys([number for number, _ in trial.changes]):
        best, rank = min([(s, rank) for s, (of, rank) in zip(seconds[1:], trial.changes, strict=True) if of == number])
        if best < MAX_RELATIVE_TIME * seconds[0]:
            found.append((number, rank))
    if config.debug >= 2 and len(seconds) > 1:
        first, least = seconds[0] * 1e6, min(seconds) * 1e6
        print(f"tuned: {len(seconds)} ways of a kernel, the first {first:.1f} us, the best {least:.1f} us", file=sys.stderr)
    return found

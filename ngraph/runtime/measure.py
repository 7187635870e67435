"""Measures the limits of this machine by generated kernels: bytes moved and multiplications per second, and the cost of a launch.

`measure` takes a few seconds and keeps what it found in the cache's folder. Reports compare with it. Nothing that is compiled depends on
it: plans follow from the description of the target, so that equal machines give equal bits.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ngraph.codegen.text import IRValue, IRWriter, constant
from ngraph.op_graph import dtypes
from ngraph.runtime.cache import Cache, cache, digest
from ngraph.runtime.host import bytecode
from ngraph.runtime.host import pool as pools
from ngraph.runtime.host.bytecode import FRAME
from ngraph.runtime.host.loader import LoadedObjects
from ngraph.targets import Cpu, caches

ACCUMULATORS = 12  # independent chains: more than the latency of a multiply-add times its throughput; fewer than registers
LAUNCHES = 1000
ITEM_SECONDS = 5e-6  # seconds of a work item in which a launch is measured
SECONDS = 0.01  # of one run, of which the best counts
RUNS = 15
LEAST_BYTES, MOST_BYTES = 64 << 20, 512 << 20  # of the arrays in memory together


class Measured(NamedTuple):
    """Bytes per second of a triad (a = b + s c) in memory and in the second and third cache, FLOP per second, seconds of a launch."""

    memory: float
    l3: float
    l2: float
    flops_of_one: float
    flops: float
    launch: float
    threads: int


# ---- kernels; arguments: three addresses, elements of a work item, repetitions


def _kernel(target: Cpu, item: Callable[[IRWriter, Sequence[str], IRValue, IRValue, IRValue], None]) -> str:
    w = IRWriter(target)

    def body(args: str, first: str, last: str, _: str) -> None:
        pointers = [w.effect(f"load ptr, ptr {w.at(args, k, dtypes.int64)}") for k in range(3)]
        size, times = (w.load(w.at(args, k, dtypes.int64), dtypes.int64) for k in (3, 4))

        def one(t: IRValue) -> Sequence[IRValue]:
            item(w, pointers, t, size, times)
            return ()

        w.loop(IRValue(first, dtypes.int64), IRValue(last, dtypes.int64), 1, [], one)

    w.function("kernel", ("ptr", "i64", "i64", "ptr"), body)
    return w.text()


def triad(target: Cpu) -> str:
    """Returns the kernel a = b + s c, in vectors, each work item over its own part."""
    lanes = target.lanes(32)

    def item(w: IRWriter, pointers: Sequence[str], t: IRValue, size: IRValue, times: IRValue) -> None:
        a, b, c = (w.at(p, w.op("mul", t, size), dtypes.float32) for p in pointers)

        def vector(i: IRValue) -> Sequence[IRValue]:
            for k in range(4):
                j = w.op("add", i, constant(k * lanes, dtypes.int64))
                x, y = (w.load(w.at(p, j, dtypes.float32), dtypes.float32, lanes) for p in (b, c))
                w.store(w.fma(y, constant(1.5, dtypes.float32, lanes), x), w.at(a, j, dtypes.float32))
            return ()

        def again(_: IRValue) -> Sequence[IRValue]:
            return w.loop(0, size, 4 * lanes, [], vector)

        w.loop(0, times, 1, [], again)

    return _kernel(target, item)


def products(target: Cpu) -> str:
    """Returns the kernel of multiply-adds in registers."""
    lanes = target.lanes(32)

    def item(w: IRWriter, pointers: Sequence[str], t: IRValue, size: IRValue, times: IRValue) -> None:
        x, y = (w.load(p, dtypes.float32, lanes) for p in pointers[1:])

        def step(_: IRValue, *sums: IRValue) -> Sequence[IRValue]:
            return [w.fma(s, x, y) for s in sums]

        for s in w.loop(0, times, 1, [constant(k, dtypes.float32, lanes) for k in range(ACCUMULATORS)], step):
            w.store(s, pointers[0])

    return _kernel(target, item)


def nothing(target: Cpu) -> str:
    """Returns an empty kernel, whose cost is that of a launch."""
    return _kernel(target, lambda w, pointers, t, size, times: None)


# ---- runs


class _Bench:
    """Kernels that run in the pool's threads."""

    def __init__(self, target: Cpu, own: Cache):
        self.target, self.threads = target, pools.threads()
        self.code = LoadedObjects(*own.objects([triad(target), products(target), nothing(target)], target))
        self.pool = pools.pool(lambda write, t: LoadedObjects(own.written(write, t)))
        self.threads = self.pool.ensure(self.threads)
        self.memory = [pools.aligned(4096) for _ in range(3)]
        self.held = [at for _, at in self.memory]

    def seconds(self, which: int, threads: int, arguments: Sequence[int], records: int = 1) -> float:
        """Returns the least time of this many launches, each with a work item for each thread."""
        args = np.array(arguments, np.int64)
        table = np.zeros((records + 1, bytecode.WORDS), np.int64)
        table[:records, :7] = bytecode.KERNEL, self.code.address("kernel", which), args.ctypes.data, threads, 1, threads, 1
        frame = np.zeros(len(FRAME), np.int64)
        scratch, place = pools.aligned(4096 * threads)
        for field, value in (("table", table.ctypes.data), ("scratch", place), ("stride", 4096), ("threads", threads)):
            frame[FRAME[field]] = value
        best = float("inf")
        for _ in range(RUNS):
            frame[FRAME["pc"]] = 0
            start = time.perf_counter()
            self.pool.run(self.pool.address, frame.ctypes.data)
            best = min(best, time.perf_counter() - start)
        return best

    def often(self, which: int, threads: int, arguments: Sequence[int]) -> tuple[float, int]:
        """Returns the least time of one launch of about `SECONDS`, and its repetitions."""
        times = 1
        while (took := self.seconds(which, threads, [*arguments, times])) < SECONDS / 2:
            times = max(times + 1, int(times * min(SECONDS / took, 100)))
        return took, times

    def bandwidth(self, size: int) -> float:
        """Returns bytes per second of a triad whose arrays have this many bytes together."""
        step = 4 * self.target.lanes(32)
        each = max(size // (12 * self.threads) // step, 1) * step
        arrays = [pools.aligned(4 * each * self.threads, 4096) for _ in range(3)]
        for array, _ in arrays:
            array[:] = 0
        took, times = self.often(0, self.threads, [*[at for _, at in arrays], each])
        return 12 * each * self.threads * times / took

    def flops(self, threads: int) -> float:
        took, times = self.often(1, threads, [*self.held, 0])
        return 2 * ACCUMULATORS * self.target.lanes(32) * times * threads / took

    def launch(self) -> float:
        """Returns the time of a launch on all threads beyond that of one thread for its work item."""
        took, times = self.often(1, 1, [*self.held, 0])
        arguments = [*self.held, 0, max(1, int(times * ITEM_SECONDS / took))]
        alone, shared = (self.seconds(1, n, arguments, LAUNCHES) for n in (1, self.threads))
        least = self.seconds(2, self.threads, [0] * 5, LAUNCHES)
        return max(shared - alone, least) / LAUNCHES


def measure(target: Cpu) -> Measured:
    """Measures this machine with the target's instructions and stores the best of all measurements; it should be idle meanwhile."""
    own, before = cache(), measured(target)
    b = _Bench(target, own)
    last = max(target.l3, caches().get("l3", 0))  # a target may count on less than there is
    found = Measured(
        memory=b.bandwidth(min(max(4 * last, LEAST_BYTES), MOST_BYTES)),
        l3=b.bandwidth(max(target.l3 // 2, 2 * target.l2 * b.threads)),
        l2=b.bandwidth(target.l2 // 2 * b.threads),
        flops_of_one=b.flops(1),
        flops=b.flops(b.threads),
        launch=b.launch(),
        threads=b.threads,
    )
    if before is not None and before.threads == found.threads:
        memory, l3, l2, one, flops = map(max, found[:5], before[:5])
        found = Measured(memory, l3, l2, one, flops, min(before.launch, found.launch), b.threads)
    if own.folder is not None:
        own.folder.put("machines", {_key(target): json.dumps(found._asdict()).encode()})
    return found


def measured(target: Cpu) -> Measured | None:
    """Returns the measurements of this machine; None where there are none."""
    folder = cache().folder
    data = None if folder is None else folder.read("machines", _key(target))
    return None if data is None else Measured(**json.loads(data))


def processor() -> str:
    """Returns the name of the processor, "" where the system does not report it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            found = re.search(r"^(?:model name|CPU part)\s*: (.*)$", file.read(), re.MULTILINE)
    except OSError:
        return ""
    return found[1] if found else ""


def _key(target: Cpu) -> bytes:
    return digest(processor().encode(), str(os.cpu_count()).encode(), repr(replace(target, cores=0)).encode())

"""Predicted and measured seconds of the peer workloads' kernels, each alone on one thread.

    python bench/measured.py [WORKLOAD …] --prepare     plans, schedules and compiles their kernels; runs none
    python bench/measured.py --time                     runs each of these some times, with nothing else on the machine
    python bench/measured.py                            prints what is known, by kind; -v: each kernel that is predicted badly
    python bench/measured.py --save                     and tracks it in bench/measured.json

A kernel counts once for each workload that has it. What is measured is the best of some runs with the data of the run before in the
caches, as far as it fits; floats are random, all else is zero, so that indices are lawful.
"""

import argparse
import ctypes
import json
import math
import os
import pickle
import statistics
import sys
import time
from datetime import date

os.environ.setdefault("NGRAPH_TRANSFORMER", "direct")
sys.path.insert(0, os.environ.get("PEERBENCH", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "shared", "bench")))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np

from ngraph.codegen.kernel import lower
from ngraph.op_graph import expr
from ngraph.op_graph.arrays import ArrayRef
from ngraph.plan.deduplication import shape
from ngraph.plan.kernels import Kernel
from ngraph.plan.planner import plan
from ngraph.runtime.cache import cache
from ngraph.runtime.host import jit
from ngraph.runtime.host.loader import LoadedObjects
from ngraph.runtime.measure import processor
from ngraph.schedule.cost import seconds
from ngraph.schedule.cpu import schedule_kernel
from ngraph.targets import host
from ngraph.targets.products import PRODUCTS

HERE = os.path.dirname(os.path.abspath(__file__))
KEPT = os.path.join(HERE, "..", "out", "measured")
TRACKED = os.path.join(HERE, "measured.json")
TIMES, WITHIN = 2.0, 0.9  # predictions should be within so many times of what is measured, for this part of the kernels
SECONDS, LEAST = 0.03, 1e-4  # of all runs of one kernel, two at least; of one of these, which repeats a short kernel
REPEAT = """define void @repeat(ptr %f, i64 %n, ptr %args, i64 %items, ptr %scratch) {
entry:
  br label %loop
loop:
  %k = phi i64 [0, %entry], [%next, %loop]
  call void %f(ptr %args, i64 0, i64 %items, ptr %scratch)
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


class Row:
    """A kernel: in which workloads it is, how often each runs it, its schedule, its object, its buffers, its work items and scratch."""

    def __init__(self, scheduled, code, key):
        self.scheduled, self.key, self.runs = scheduled, key, {}
        self.buffers = [(b.bytes or 0, b.dtype.kind == "f" if b.dtype.np is None else b.dtype.is_float, b.dtype.np) for b in code.buffers]
        self.items, self.scratch = int(expr.evaluate(code.work_items, int)), int(expr.evaluate(code.scratch, int))
        self.object = b""


class Pickler(pickle.Pickler):
    """Without the values of constants."""

    def persistent_id(self, x):
        return "" if type(x) is ArrayRef else None


class Unpickler(pickle.Unpickler):
    def persistent_load(self, _):
        return None


def plans_in(made, times=1):
    """A plan and those inside its steps, with how often each runs."""
    yield made, times
    for step in made.every:
        for body in [a for a in getattr(step, "attrs", {}).values() if hasattr(a, "steps")]:
            trips = made.length(step.attrs["axis"]) if step.op == "scan" else 1
            yield from plans_in(body, times * trips)


def prepare(names):
    """Plans, schedules and compiles the kernels of workloads."""
    from plans import program_of

    target, rows, texts = host(), {}, {}
    for name in names:
        known = {}
        for p, times in plans_in(plan(program_of(name), machine=target)):
            for k in [k for k in p.every if type(k) is Kernel]:
                found = shape(p, k).key
                if found not in known:
                    scheduled = schedule_kernel(p, k, target)
                    code = lower(p, scheduled)
                    key = cache().key(code.text, target)
                    known[found] = rows.setdefault(key, Row(scheduled, code, key.hex()[:16]))
                    texts[key] = code.text
                known[found].runs[name] = known[found].runs.get(name, 0) + times
        print(f"{name:5} {len(known)} kernels", flush=True)
    for row, data in zip(rows.values(), cache().objects([texts[k] for k in rows], target), strict=True):
        row.object = data
    os.makedirs(KEPT, exist_ok=True)
    with open(os.path.join(KEPT, "rows"), "wb") as file:
        Pickler(file, 5).dump(list(rows.values()))


def prepared():
    with open(os.path.join(KEPT, "rows"), "rb") as file:
        return Unpickler(file).load()


def aligned(size):
    memory = np.zeros(size + 8192, np.uint8)
    start = -memory.ctypes.data % 4096 + 64
    return memory[start : start + size]


def timed(row, repeat, draw):
    """The best seconds of a kernel among some runs, all its work items on this thread."""
    arrays = []
    for size, is_float, dtype in row.buffers:
        arrays.append(aligned(size + 64))
        if is_float and dtype is not None:  # zeros would become denormal numbers, which are slow
            part = arrays[-1][: size // dtype.itemsize * dtype.itemsize].view(dtype)
            part[...] = np.resize(draw, part.size)
    args, scratch = np.array([a.ctypes.data for a in arrays], np.int64), aligned(row.scratch + 64)
    loaded = LoadedObjects(row.object)

    def run(n):
        start = time.perf_counter()
        repeat(loaded.address("kernel"), n, args.ctypes.data, row.items, scratch.ctypes.data)
        return (time.perf_counter() - start) / n

    n, took = 1, min(run(1), run(1))
    while n * took < LEAST:  # so that starting the first of them does not count
        n = max(2 * n, math.ceil(LEAST / took / 4))
        took = run(n)
    return min([took, *[run(n) for _ in range(max(2, min(20, round(SECONDS / n / took))))]])


def measure(limit):
    """Runs what was prepared and not run yet, for so many seconds."""
    code = jit.load(REPEAT)
    kinds = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    repeat = ctypes.CFUNCTYPE(None, *kinds)(code.address("repeat"))
    draw, known, end = np.random.default_rng(0).standard_normal(1 << 16, dtype=np.float32), times(), time.time() + limit
    left = [row for row in prepared() if row.key not in known]
    for k, row in enumerate(left):
        if time.time() > end:
            print(f"{len(left) - k} of {len(left)} kernels are left")
            break
        known[row.key] = timed(row, repeat, draw)
    with open(os.path.join(KEPT, "times.json"), "w", encoding="utf-8") as file:
        json.dump(known, file)


def times():
    try:
        with open(os.path.join(KEPT, "times.json"), encoding="utf-8") as file:
            return json.load(file)
    except OSError:
        return {}


def kind(scheduled):
    """What a kernel mostly is, by its stages."""
    stages = scheduled.bounded(None)[0].stages
    reads = [a for s in stages for a in s.reads.values()]
    for s in stages:
        sums = [c for c in s.stage.combine if c.kind == "add" and dict(s.stage.lines())[c.line].op in PRODUCTS]
        index = [e for r in s.stage.reads() for e in r.index.values()]
        if sums and len(s.reads) > 1:
            window = any(len({leaf.of for leaf in expr.leaves(e)} & {*s.stage.reduced}) and len(set(expr.leaves(e))) > 1 for e in index)
            return "convolution" if window else "product"
    if any(a.mode == "indexed" or a.rest for a in reads):
        return "gather"
    return "reduction" if any(s.stage.combine for s in stages) else "elementwise"


def report(rows, verbose):
    """{kind: [kernels, those within, ratio in the middle, ratio of all runs together]}, printed, too."""
    known, found = times(), {}
    for row in rows:
        if row.key in known:
            found.setdefault(kind(row.scheduled), []).append((seconds(row.scheduled), known[row.key], row))
    found["all"] = [x for some in found.values() for x in some]
    table = {}
    print("kind          kernels  within  middle   10 %   90 %  all runs together   (predicted / measured)")
    for name, some in found.items():
        ratios = sorted([p / t for p, t, row in some for _ in row.runs])
        within, n = sum([1 / TIMES <= r <= TIMES for r in ratios]), len(ratios)
        runs = [(p, t, sum(row.runs.values())) for p, t, row in some]
        together = sum([p * k for p, _, k in runs]) / sum([t * k for _, t, k in runs])
        table[name] = [n, within, round(statistics.median(ratios), 2), round(together, 2)]
        ends = f"{ratios[n // 10]:6.2f} {ratios[-1 - n // 10]:6.2f}"
        print(f"{name:12} {n:8} {within / n:7.1%} {table[name][2]:7.2f} {ends} {together:7.2f}")
    for p, t, row in sorted(found["all"], key=lambda x: -abs(math.log(x[0] / x[1])))[:verbose]:
        print(f"{t * 1e6:10.2f} us, predicted {p / t:5.2f} times  {' '.join(row.runs)}  {kind(row.scheduled)}  {shown(row)}")
    return table


def shown(row):
    """The loops of a kernel's stages."""
    made = []
    for s in row.scheduled.bounded(None)[0].stages:
        loops, t = " ".join([f"{'+' if d in s.reduced else ''}{d.name}:{d.extent}" for d in s.loops]), s.tile
        tile = f"{t.vector.name if t.vector else '-'}x{t.lanes} rows {t.rows} columns {t.columns}"
        modes = [" ".join([a.mode + "*" * a.epilogue for a in accesses]) for accesses in (s.reads.values(), s.stores)]
        made.append(f"[{loops} | {tile} | {modes[0]} > {modes[1]}]")
    return f"{row.items} work items: {' '.join(made)}"


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("workloads", nargs="*")
    args.add_argument("--prepare", action="store_true")
    args.add_argument("--time", action="store_true")
    args.add_argument("--limit", type=float, default=3600, help="seconds after which to stop timing; the next run goes on")
    args.add_argument("--save", action="store_true")
    args.add_argument("-v", "--verbose", type=int, default=0, help="kernels to list, the worst first")
    asked = args.parse_args()
    if asked.prepare:
        from peerbench.workloads import WORKLOADS

        prepare(asked.workloads or list(WORKLOADS))
    elif asked.time:
        measure(asked.limit)
    else:
        table = report([row for row in prepared() if not asked.workloads or {*asked.workloads} & {*row.runs}], asked.verbose)
        if asked.save:
            made = {"machine": processor(), "date": str(date.today()), "kinds": table}
            with open(TRACKED, "w", encoding="utf-8") as file:
                file.write(json.dumps(made, indent=1) + "\n")
        within, kernels = table["all"][1], table["all"][0]
        sys.exit(0 if within >= WITHIN * kernels else f"{within / kernels:.1%} are within {TIMES:g} times, and {WITHIN:.0%} should be")


if __name__ == "__main__":
    main()

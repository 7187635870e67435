"""What the peer benchmark's workloads become: `PYTHONPATH=.:<bench> python bench/plans.py [-v] [WORKLOAD …]`, nothing is compiled or run.

Kernels and routines, those that differ, bytes moved beside the least there is, products beside those needed, predicted time, planning time.
"""

import argparse
import math
import os
import sys
import time

from ngraph.targets import DEFAULT

os.environ.setdefault("NGRAPH_TRANSFORMER", "direct")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np
from peer_adapter import Infer, Train
from peerbench.workloads import WORKLOADS

from ngraph.plan.kernels import Kernel
from ngraph.plan.planner import plan
from ngraph.plan.text import text
from ngraph.plan.verify import verify


def program_of(name):
    """The program of a workload, as its computation would compile it."""
    w = WORKLOADS[name]
    w.resident = False  # nothing is called
    g = w.graph()
    draw = np.random.default_rng(0)
    w.params_cache = {k: draw.standard_normal(shape, dtype=np.float32) * 0.01 for k, (shape, _) in g.params.items()}
    return (Train if w.kind == "train" else Infer)(w).run.program


def kernels(steps, parts):
    """All kernels and routines, those of sub-plans too, with how often they run."""
    for step in steps:
        yield step, parts
        for body in [a for a in getattr(step, "attrs", {}).values() if hasattr(a, "steps")]:
            trips = 1
            if step.op == "scan":
                n = step.attrs["axis"]
                trips = int(n) if isinstance(n, int) else body.length(n) if n in body.axes else 1
            yield from kernels(body.steps, parts * trips)


def size(made, axes):
    return math.prod([made.length(a) for a in axes])


def products_needed(p):
    """Multiplications that are summed, without those with a zero that a dilated input brings."""
    total = 0.0
    for s in p.steps:
        if s.op in ("contract", "convolve"):
            wide = [*s.result.axes, *s.attrs["over"], *[t[1] for t in s.attrs.get("spatial", ())]]
            spread = math.prod([t[5] for t in s.attrs.get("spatial", ())])
            total += math.prod([p.length(a) for a in wide]) / spread
        for body in [a for a in s.attrs.values() if hasattr(a, "state_in")]:
            total += products_needed(body) * (p.length(s.attrs["axis"]) if s.op == "scan" else 1)
    return total


def products_planned(made):
    """Places at which a stage multiplies and sums."""
    total = 0.0
    for step in made.steps:
        for stage in getattr(step, "stages", ()):
            summed = [c for c in stage.combine if c.kind == "add" and stage.before[c.line].op == "multiply"]
            fixed = [a for a, _ in step.loops[: stage.depth]]
            space = {*stage.free, *stage.reduced, *fixed}
            total += len(summed) * size(made, sorted(space))
        for body in [a for a in getattr(step, "attrs", {}).values() if hasattr(a, "steps")]:
            total += products_planned(body) * (made.length(step.attrs["axis"]) if step.op == "scan" else 1)
    return total


def bytes_of(buffers):
    return sum(b.bytes or 0 for b in buffers)


def least(made):
    """Everything that comes in, is kept or goes out, once."""
    used = dict.fromkeys(b for s in made.steps for b in (*s.sources, *s.targets) if b.storage not in ("arena", "run"))
    return bytes_of(used)


def describe(made, step):
    if type(step) is not Kernel:
        return f"{step.op}: {[b.name or '-' for b in step.results]}"
    items = math.prod([-(-made.length(a) // b) for a, b in step.loops])
    loops = ", ".join([f"{a}({made.length(a)}) by {b}" for a, b in step.loops])
    stages = "; ".join(
        [
            f"[{' '.join(f'{a}{made.length(a)}' for a in s.free)}|{' '.join(f'{a}{made.length(a)}' for a in s.reduced)}]"
            f"{len(s.before)}+{len(s.combine)}+{len(s.after)} d{s.depth}"
            for s in step.stages
        ]
    )
    names = ",".join(dict.fromkeys([o.name for o in step.origin]))[:60]
    return f"{step.seconds * 1e6:9.1f} us  {items:6} work items of [{loops}]  {stages}  {names}"


def shape(made, kernel):
    """What a kernel is but for the names of its axes."""
    loops = [(made.length(a), b) for a, b in kernel.loops]
    stages = [([size(made, [a]) for a in (*s.free, 0, *s.reduced) if a], [line.op for _, line in s.lines()]) for s in kernel.stages]
    return repr((loops, stages))


def row(name, verbose, machine):
    p = program_of(name)
    start = time.process_time()
    made = plan(p, machine=machine)
    took = time.process_time() - start
    verify(made)
    flat = list(kernels(made.steps, 1))
    count = sum(1 for s, _ in flat if type(s) is Kernel)
    idle = 0
    for s, _ in flat:
        if type(s) is Kernel and s.seconds > 50e-6:
            idle += not s.loops
    different = len({shape(made, s) for s, _ in flat if type(s) is Kernel})
    moved = sum(bytes_of([*s.sources, *s.targets]) for s in made.steps)
    need, do = products_needed(p), products_planned(made)
    seconds = sum([s.seconds * n for s, n in flat if type(s) is Kernel])
    counts = f"{len(p.steps):6} {count:6} {len(flat) - count:5} {different:6} {idle:5}"
    bytes_ = f"{moved / 1e6:9.1f} {moved / max(least(made), 1):6.2f} {need * 2e-9:9.2f} {do / need if need else 1:6.2f}"
    print(f"{name:5} {counts} {bytes_} {seconds * 1e3:9.2f} {made.arena / 1e6:8.1f} {took:7.2f}", flush=True)
    if verbose:
        for s, n in flat:
            print(f"      x{n:<4}", describe(made, s))
    if verbose > 1:
        print(text(made))


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("workloads", nargs="*", default=list(WORKLOADS))
    args.add_argument("-v", action="count", default=0, help="each kernel; twice: the whole plan")
    asked = args.parse_args()
    print("      steps kernels  rout  diff  1turn       MB  /least    GFLOP  /need predicted   arena    plan s")
    for name in asked.workloads:
        row(name, asked.v, DEFAULT)


if __name__ == "__main__":
    main()

"""How much each tuned number matters: `python bench/sensitivity.py [NAME …] [-w WORKLOAD …] [--code] [--time]`; PEERBENCH

Each number of ngraph/targets/tuning.py is halved and doubled, one at a time, and the peer benchmark's workloads are planned again: which
plans change, and with `--code` which kernels' LLVM IR where the plan stays. `--time` runs the workloads whose plans or kernels changed, in
turns with those of today, and prints the ratio of medians of each and their geometric mean. A number may move the mean by less than 5 % and
no workload by 20 %, or the text beside it says why. `--quick`: few calls of each.
"""

import argparse
import ast
import dataclasses
import hashlib
import math
import os
import pickle
import statistics
import subprocess
import sys
import time

os.environ.setdefault("NGRAPH_TRANSFORMER", "direct")
sys.path.insert(0, os.environ.get("PEERBENCH", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "shared", "bench")))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import plans

from ngraph.codegen.kernel import emit
from ngraph.plan import Kernel, plan, text
from ngraph.schedule import search
from ngraph.targets import DEFAULT, tuning

MEAN, ONE = 0.05, 0.2  # of the time of all workloads, and of one, that a number may move
FIELDS = {
    "MEMORY_BANDWIDTH": "memory_bandwidth",
    "CACHE_BANDWIDTH": "cache_bandwidth",
    "LANE_SPEED": "lane_speed",
    "LAUNCH_SECONDS": "launch",
}
TIMED = """# runs a workload with one number changed before anything imports it
import importlib.util, statistics, sys, time
sys.path[:0] = {path!r}
spec = importlib.util.spec_from_file_location("ngraph.targets.tuning", {file!r})
tuning = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tuning)
setattr(tuning, {name!r}, {value!r})
import numpy as np
from peer_adapter import Infer, Train
from peerbench.workloads import WORKLOADS
w = WORKLOADS[{workload!r}]
draw = np.random.default_rng(0)
w.params_cache = {{k: draw.standard_normal(shape, dtype=np.float32) * 0.01 for k, (shape, _) in w.graph().params.items()}}
made, calls = (Train if w.kind == "train" else Infer)(w), []
for k in range({calls}):
    start = time.perf_counter()
    made.call(k)
    calls.append(time.perf_counter() - start)
print(statistics.median(calls[len(calls) // 3 :]))
"""


def numbers():
    """{name: value} of all tuned numbers, in the order of the file."""
    with open(tuning.__file__, encoding="utf-8") as file:
        names = [node.targets[0].id for node in ast.parse(file.read()).body if isinstance(node, ast.Assign)]
    return {name: getattr(tuning, name) for name in names}


def changed(value, factor):
    """A number times a factor, an integer if it is one; at least 1 then."""
    return max(1, round(value * factor)) if isinstance(value, int) else value * factor


def use(name, value):
    """Puts a value in the place of a number wherever it was imported to; the machine that plans are then made for."""
    old = getattr(tuning, name)
    for module in [m for n, m in sys.modules.items() if n.startswith("ngraph.") and getattr(m, name, None) is old]:
        setattr(module, name, value)
        for made in vars(module).values():
            if getattr(made, "__module__", None) == module.__name__ and getattr(made, "__defaults__", None):
                made.__defaults__ = tuple([value if d is old and name == "MAX_RANGE_STEPS" else d for d in made.__defaults__])
    search.schedule.cache_clear()
    return dataclasses.replace(DEFAULT, **({FIELDS[name]: value} if name in FIELDS else {}))


def digest(data):
    return hashlib.sha256(data.encode()).hexdigest()


def seen(programs, machine, code):
    """{workload: (digest of its plan, digest of its kernels' LLVM IR)}."""
    found = {}
    for workload, program in programs.items():
        made = plan(program, machine=machine)
        kernels = [emit(made, k, machine).text for k in made.every if isinstance(k, Kernel)] if code else []
        found[workload] = digest(text(made)), digest("\n".join(kernels))
    return found


def apart(work):
    """What a function returns in a process of its own, which may change whatever it wants."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            made = work()
        except Exception as e:  # a number that a plan cannot do without: that is what is asked
            made = e
        with os.fdopen(write, "wb") as file:
            pickle.dump(made, file)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        made = pickle.load(file)
    os.waitpid(child, 0)
    return made


def seconds(workload, name, value, calls):
    """The median of some calls of a workload, in a process of its own."""
    script = TIMED.format(path=sys.path[:2], file=tuning.__file__, name=name, value=value, workload=workload, calls=calls)
    environment = {**os.environ, "NGRAPH_TRANSFORMER": "cpu", "NGRAPH_CACHE": "off"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout.split()[-1])


def timed(workloads, name, value, quick):
    """{workload: its time with that value over that of today}, medians of runs in turns."""
    rounds, calls = (1, 9) if quick else (5, 60)
    found = {}
    for workload in workloads:
        runs = [[seconds(workload, name, v, calls) for v in (getattr(tuning, name), value)] for _ in range(rounds)]
        found[workload] = statistics.median([b for _, b in runs]) / statistics.median([a for a, _ in runs])
    return found


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("names", nargs="*", help="numbers; all of them without any")
    args.add_argument("-w", "--workloads", nargs="+", default=list(plans.WORKLOADS))
    args.add_argument("--code", action="store_true", help="compare LLVM IR, too")
    args.add_argument("--time", action="store_true", help="run what changed")
    args.add_argument("--quick", action="store_true", help="few calls")
    asked = args.parse_args()
    known = numbers()
    programs = {w: plans.program_of(w) for w in asked.workloads}
    today = apart(lambda: seen(programs, DEFAULT, asked.code))
    for name in asked.names or known:
        for factor in (0.5, 2):
            value, start = changed(known[name], factor), time.time()
            if value == known[name]:
                continue
            found = apart(lambda name=name, value=value: seen(programs, use(name, value), asked.code))
            if isinstance(found, Exception):
                print(f"{name:28} x{factor:<4} {type(found).__name__}: {found}"[:140], flush=True)
                continue
            by_plan = [w for w in programs if found[w][0] != today[w][0]]
            by_code = [w for w in programs if found[w][0] == today[w][0] and found[w][1] != today[w][1]]
            line = f"plans: {' '.join(by_plan) or '-'}" + (f"; code alone: {' '.join(by_code) or '-'}" if asked.code else "")
            print(f"{name:28} x{factor:<4} {line}   {time.time() - start:.1f} s", flush=True)
            if asked.time and by_plan + by_code:
                ratios = timed(by_plan + by_code, name, value, asked.quick)
                mean = math.exp(sum(map(math.log, ratios.values())) / len(programs))
                much = abs(mean - 1) > MEAN or max(abs(r - 1) for r in ratios.values()) > ONE
                print(
                    "    " + "  ".join([f"{w} {r:.2f}" for w, r in ratios.items()]) + f"; mean {mean:.3f}{'  MUCH' if much else ''}",
                    flush=True,
                )


if __name__ == "__main__":
    main()

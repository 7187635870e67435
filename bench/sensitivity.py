"""How much each tuned number matters: `python bench/sensitivity.py [NAME …] [-w WORKLOAD …] [--time] [--save]`; PEERBENCH

Each number of ngraph/targets/tuning.py is halved and doubled. First all workloads of the peer benchmark become machine code once with
numbers that watch themselves: a number that is only compared, and whose comparisons would all come out alike at half and at twice its
value, changes nothing. Of the others, one at a time, plans and code are made again for the workloads where something would come out
otherwise; where they change, the seconds of all kernels are predicted; `--time` runs these, in turns with those of today, in one process
each. A number may move the mean of all workloads by less than 5 % and none by 20 %, or the text beside it says why.

`--save` keeps what was found in bench/sensitivity.json; numbers that are there are skipped, so that the work can be done in pieces
(`--limit`, seconds). `--table` prints what is there.
"""

import argparse
import ast
import dataclasses
import hashlib
import json
import math
import os
import pickle
import subprocess
import sys
import time

os.environ.setdefault("NGRAPH_TRANSFORMER", "direct")
sys.path.insert(0, os.environ.get("PEERBENCH", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "shared", "bench")))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import plans
from measured import plans_in

from ngraph import targets
from ngraph.codegen.kernel import lower
from ngraph.codegen.routines import emit_opaque_op
from ngraph.errors import UnsupportedError
from ngraph.plan.deduplication import shape
from ngraph.plan.kernels import Kernel
from ngraph.plan.planner import plan
from ngraph.plan.text import text
from ngraph.schedule import cost, search
from ngraph.schedule.cost import seconds
from ngraph.schedule.cpu import schedule_kernel
from ngraph.targets import DEFAULT, tuning

TRACKED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sensitivity.json")
FACTORS = (0.5, 2)
MEAN, ONE = 0.05, 0.2  # of the time of all workloads, and of one, that a number may move
FIELDS = {
    "MEMORY_BANDWIDTH": "memory_bandwidth",
    "CACHE_BANDWIDTH": "cache_bandwidth",
    "LANE_SPEED": "lane_speed",
    "LAUNCH_SECONDS": "launch",
    "LEVEL_BANDWIDTH": "level_bandwidth",
    "VECTOR_SPEED": "vector_speed",
}
TIMED = """# a workload with one number as it is and changed, in turns: two computations in one process
import importlib, statistics, sys, time
sys.path[:0] = {path!r}
import numpy as np
import sensitivity
from ngraph.runtime.cache import cache
from peer_adapter import Infer, Train
from peerbench.workloads import WORKLOADS
w = WORKLOADS[{workload!r}]
draw = np.random.default_rng(0)
w.params_cache = {{k: draw.standard_normal(shape, dtype=np.float32) * 0.01 for k, (shape, _) in w.graph().params.items()}}
make, made = Train if w.kind == "train" else Infer, []
for value in ({before!r}, {value!r}):
    sensitivity.put({name!r}, value)
    cache().here.clear()  # plans are found by their programs
    made.append(make(w))
    for k in range(3):
        made[-1].call(k)
start, calls = time.perf_counter(), ([], [])
while time.perf_counter() - start < {seconds} or len(calls[0]) < 5:
    for side in (0, 1) if len(calls[0]) % 2 else (1, 0):
        began = time.perf_counter()
        made[side].call(len(calls[0]))
        calls[side].append(time.perf_counter() - began)
print(statistics.median(calls[1]) / statistics.median(calls[0]))
"""


def numbers():
    """{name: value} of all tuned numbers, in the order of the file."""
    with open(tuning.__file__, encoding="utf-8") as file:
        names = [node.targets[0].id for node in ast.parse(file.read()).body if isinstance(node, ast.Assign)]
    return {name: getattr(tuning, name) for name in names}


def changed(value, factor):
    """A number times a factor, an integer if it is one, at least 1 then; of several numbers each."""
    if isinstance(value, tuple):
        return tuple([changed(v, factor) for v in value])
    return max(1, round(value * factor)) if isinstance(value, int) else value * factor


def put(name, value):
    """Puts a value in the place of a number wherever it was imported to, but for what predicts seconds: that is the measure."""
    old = getattr(tuning, name)
    modules = [m for n, m in sys.modules.items() if n.startswith("ngraph.") and m is not cost]
    for module in [m for m in modules if getattr(m, name, None) is old]:
        setattr(module, name, value)
        for made in vars(module).values():
            if getattr(made, "__module__", None) == module.__name__ and getattr(made, "__defaults__", None):
                made.__defaults__ = tuple([value if d is old and name == "MAX_RANGE_STEPS" else d for d in made.__defaults__])
    search.schedule.cache_clear()
    here = dataclasses.replace(targets.host(), **({FIELDS[name]: value} if name in FIELDS else {}))  # what it derives is derived again
    targets.host = lambda: here


def machine_with(values):
    """The machine that plans are made for, where these numbers are others."""
    return dataclasses.replace(DEFAULT, **{FIELDS[name]: value for name, value in values.items() if name in FIELDS})


# ---- numbers that watch themselves


class Watch:
    """What happened to a number: `flips` are the factors at which a comparison comes out otherwise; `used`: it was computed with."""

    def __init__(self):
        self.flips, self.used = set(), False


def _compared(op):
    def method(self, other):
        found = getattr(self.plain, op)(other)
        for factor in FACTORS:
            if getattr(changed(self.plain, factor), op)(other) != found:
                self.watch.flips.add(factor)
        return found

    return method


def _computed(kind, op):
    def method(self, *others):
        self.watch.used = True
        return getattr(kind, op)(self.plain, *others)

    return method


def watched(kind):
    """A class of numbers that behave as plain ones, and watch what is done with them."""
    compare = "lt le gt ge eq ne".split()
    compute = "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod divmod rdivmod pow rpow neg pos abs int float index"
    compute += " round trunc ceil floor lshift rlshift rshift rrshift and rand or ror xor rxor str repr format reduce"
    own = {f"__{op}__": _compared(f"__{op}__") for op in compare}
    own |= {f"__{op}__": _computed(kind, f"__{op}__") for op in compute.split() if hasattr(kind, f"__{op}__")}
    own["__hash__"] = _computed(kind, "__hash__")
    own["__reduce_ex__"] = lambda self, _: (setattr(self.watch, "used", True), (kind, (self.plain,)))[1]
    return type(f"Watched{kind.__name__}", (kind,), own)


WATCHED = {kind: watched(kind) for kind in (int, float)}


def watching(value, watch):
    """The number as one that watches itself, or each of several."""
    if isinstance(value, tuple):
        return tuple([watching(v, watch) for v in value])
    made = WATCHED[type(value)](value)
    made.plain, made.watch = value, watch
    return made


def watches(program, known):
    """{name: Watch} of planning and scheduling a program."""
    found, values = {}, {}
    for name, value in known.items():
        found[name] = Watch()
        values[name] = made = watching(value, found[name])
        put(name, made)
    digests(program, machine_with(values))
    return {name: (sorted(w.flips), w.used) for name, w in found.items()}


# ---- plans and code


def digest(data):
    return hashlib.sha256(data.encode()).hexdigest()


def digests(program, machine):
    """(digest of its plan, digest of its code, predicted seconds of all kernels)."""
    made, total, known = plan(program, machine=machine), 0.0, {}
    for p, times in plans_in(made):
        for step in p.every:
            key = shape(p, step).key if type(step) is Kernel else step
            if key not in known:
                known[key] = _kernel(p, step, machine) if type(step) is Kernel else _routine(p, step, machine)
            total += times * known[key][1]
    return digest(text(made)), digest("\n".join([code for code, _ in known.values()])), total


def _kernel(p, step, machine):
    scheduled = schedule_kernel(p, step, machine)
    return digest(lower(p, scheduled).text), seconds(dataclasses.replace(scheduled, target=DEFAULT))


def _routine(p, step, machine):
    try:
        return digest("\n".join([code.text for code in emit_opaque_op(p, step, machine)])), 0.0
    except UnsupportedError:
        return "", 0.0


def apart(work):
    """What a function returns in a process of its own, which may change whatever it wants."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            made = work()
        except Exception as e:  # a number that a plan cannot do without: that is what is asked
            made = f"{type(e).__name__}: {e}"
        with os.fdopen(write, "wb") as file:
            pickle.dump(made, file)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        made = pickle.load(file)
    os.waitpid(child, 0)
    return made


def with_value(program, name, value):
    put(name, value)
    return digests(program, machine_with({name: value}))


def timed(workload, name, value, length):
    """Its time with that value over that of today, medians of calls in turns, in a process of its own."""
    script = TIMED.format(path=sys.path[:2], name=name, before=getattr(tuning, name), value=value, workload=workload, seconds=length)
    environment = {**os.environ, "NGRAPH_TRANSFORMER": "cpu", "NGRAPH_CACHE": "off"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout.split()[-1])


# ---- what is kept


def kept():
    try:
        with open(TRACKED, encoding="utf-8") as file:
            return json.load(file)
    except OSError:
        return {"watched": {}, "changes": {}, "times": {}}


def keep(found):
    parts = []
    for part, rows in found.items():
        lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in rows.items()]
        parts.append(json.dumps(part) + ": {\n" + ",\n".join(lines) + "\n}")
    with open(TRACKED, "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(parts) + "\n}\n")


def table(found, known):
    """Prints one line for each number and factor that changes a plan or code: of how many workloads, and seconds over those of today."""
    print("number                       factor  plans  code alone  predicted, furthest  measured: mean, furthest")
    for name in known:
        for factor in FACTORS:
            changes, times = (found[part].get(f"{name} x{factor}", {}) for part in ("changes", "times"))
            moved = [c for c in changes.values() if isinstance(c, list) and c[:2] != [0, 0]]
            if not moved:
                continue
            far = max([c[2] for c in moved], key=lambda r: abs(math.log(r)))
            line = f"{name:28} {factor:6}  {sum(c[0] for c in moved):5}  {sum(not c[0] for c in moved):10}  {far:19.2f}"
            if times:
                mean = math.exp(sum(map(math.log, times.values())) / len(found["watched"]))
                far = max(times, key=lambda w: abs(math.log(times[w])))
                line += f"  {mean:.3f}, {far} {times[far]:.2f}"
            print(line)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("names", nargs="*", help="numbers; all of them without any")
    args.add_argument("-w", "--workloads", nargs="+", default=list(plans.WORKLOADS))
    args.add_argument("--time", action="store_true", help="run what changed")
    args.add_argument("--table", action="store_true")
    args.add_argument("--save", action="store_true")
    args.add_argument("--limit", type=float, default=math.inf, help="seconds after which nothing else is begun")
    args.add_argument("--seconds", type=float, default=1.0, help="of the calls of a workload")
    asked = args.parse_args()
    known, end, _ = numbers(), time.time() + asked.limit, DEFAULT.levels  # as they are today, once and for all
    found = kept() if asked.save or asked.table or asked.time else {"watched": {}, "changes": {}, "times": {}}
    if asked.table:
        return table(found, known)
    if asked.time:
        moved = [(key, w, c) for key, changes in found["changes"].items() for w, c in changes.items() if isinstance(c, list) and any(c[:2])]
        for key, w, _ in sorted(moved, key=lambda row: -abs(math.log(row[2][2]))):  # first what is predicted to matter most
            name, factor = key.split(" x")
            times = found["times"].setdefault(key, {})
            if w in asked.workloads and w not in times and (not asked.names or name in asked.names) and time.time() < end:
                times[w] = round(timed(w, name, changed(known[name], float(factor)), asked.seconds), 3)
                print(f"{key:36} {w:5} {times[w]:.3f}", flush=True)
        return keep(found) if asked.save else None
    programs = {w: plans.program_of(w) for w in asked.workloads}
    today = {}
    for w, program in programs.items():
        if w not in found["watched"]:
            found["watched"][w] = apart(lambda program=program: watches(program, known))
            flips = [f"{n} {'*' if used else ''}{f}" for n, (f, used) in found["watched"][w].items() if f or used]
            print(f"{w:5} {len(flips)} of {len(known)} numbers may matter", flush=True)
    for name in asked.names or known:
        for factor in FACTORS:
            key, value = f"{name} x{factor}", changed(known[name], factor)
            changes = found["changes"].setdefault(key, {})
            for w, program in programs.items():
                flips, used = found["watched"][w].get(name, ([], True))
                if w in changes or value == known[name] or not (used or factor in flips) or time.time() > end:
                    continue
                if w not in today:
                    today[w] = apart(lambda program=program: digests(program, DEFAULT))
                made = apart(lambda program=program, name=name, value=value: with_value(program, name, value))
                same = isinstance(made, tuple)
                changes[w] = [int(made[0] != today[w][0]), int(made[1] != today[w][1]), round(made[2] / today[w][2], 3)] if same else made
            moved = {w: c for w, c in changes.items() if not isinstance(c, list) or c[:2] != [0, 0]}
            if moved:
                print(f"{key:36} {' '.join([f'{w} {c}' for w, c in moved.items()])}"[:200], flush=True)
            if asked.save:
                keep(found)
    return None


if __name__ == "__main__":
    main()

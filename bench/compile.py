"""What compiling costs: build + first call - steady call, cold and from the cache, each in a fresh process.

python bench/compile.py [workload …] [--rounds 2] [--growth]     needs the peer benchmark (PEERBENCH, by default beside this repository)

`--growth` compiles stacks of 10 to 1,000 equal layers instead.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LIMITS = {"T2": 0.6, "I1": 2.5, "I2": 2.5, "T5": 5.0, "T6": 10.0}
BYTES = os.path.join(tempfile.gettempdir(), f"ngraph-bytecode-{os.getuid()}")  # as an installed package has it
WARM = 0.15  # seconds from the cache, packing left out
STACKS = (10, 100, 1000)


def workload(name):
    """How a workload is made: what the peer benchmark does."""
    sys.path[:0] = [HERE, os.environ.get("PEERBENCH", os.path.join(HERE, "..", "..", "shared", "bench"))]
    import peer_adapter
    from peerbench.workloads import WORKLOADS

    w = WORKLOADS[name]
    adapter = peer_adapter.Adapter({}, int(os.environ.get("NGRAPH_NUM_THREADS", "2")))
    return lambda: adapter.load(w)


def stack(layers):
    """Equal layers, one behind the other."""
    import numpy as np

    import ngraph as ng
    import ngraph.transformers as ngt

    class Run:
        def __init__(self):
            N, H, G = ng.make_axis(32, name="N"), ng.make_axis(64, name="H"), ng.make_axis(64, name="G")
            x = y = ng.placeholder([N, H])
            for k in range(layers):
                w = ng.variable([H, G], initial_value=np.full((64, 64), 0.01, np.float32)).named(f"w{k}")
                y = y + ng.cast_axes(ng.tanh(ng.dot(y, w)), [N, H])
            self.run = ngt.make_transformer().computation(y, x)
            self.x = np.ones((32, 64), np.float32)

        def call(self, _):
            return self.run(self.x)

    return Run


def child(what):
    """One process: seconds of building, of the first call, of a steady one; and what the plan holds."""
    make = stack(int(what)) if what.isdigit() else workload(what)
    start = time.perf_counter()
    run = make()
    built = time.perf_counter()
    run.call(0)
    first = time.perf_counter()
    steady = []
    for k in range(3):
        begin = time.perf_counter()
        run.call(k)
        steady.append(time.perf_counter() - begin)
    native = run.run.native.chosen
    building = built - start - getattr(run, "excluded_s", 0.0)
    row = {"build": building, "first": first - built, "steady": min(steady), "kernels": len(native.kernels())}
    row["different"] = len({id(k.entry) for k in native.kernels()})
    row["steps"] = len(run.run.program.steps)
    row["packing"] = getattr(run, "packing", 0.0)
    print(json.dumps(row))


def measure(what, rounds):
    """The best cold and the best warm start of some."""
    best = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            for kind in ("cold", "warm"):
                env = {**os.environ, "NGRAPH_CACHE": folder, "PYTHONPATH": os.path.dirname(HERE), "PYTHONPYCACHEPREFIX": BYTES}
                env.pop("PYTHONDONTWRITEBYTECODE", None)
                made = subprocess.run([sys.executable, __file__, "--child", what], env=env, capture_output=True, text=True)
                if made.returncode:
                    raise SystemExit(made.stderr)
                row = json.loads(made.stdout.splitlines()[-1])
                row["seconds"] = row["build"] + row["first"] - row["steady"]
                if kind not in best or row["seconds"] < best[kind]["seconds"]:
                    best[kind] = row
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--child")
    asked = parser.parse_args()
    if asked.child:
        return child(asked.child)
    names = asked.what or [str(n) for n in STACKS] if asked.growth else asked.what or list(LIMITS)
    heads = ("build", "first", "steady", "steps", "kernels", "different")
    print(f"{'':6} {'cold s':>8} {'limit':>6} {'warm s':>8} " + " ".join(f"{h:>9}" for h in heads))
    for name in names:
        best = measure(name, asked.rounds)
        cold, warm = best["cold"], best["warm"]
        facts = " ".join(f"{cold[h]:9.4g}" for h in heads)
        print(f"{name:6} {cold['seconds']:8.2f} {LIMITS.get(name, ''):>6} {warm['seconds']:8.2f} {facts}", flush=True)


if __name__ == "__main__":
    main()

"""What the tool itself costs: import, building and simplifying large graphs, a call, getting ready. `python bench/tool.py [--json]`

Every figure is a median over runs in one process or fresh processes, beside the figure it is compared with in the same run.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.passes import default_passes
from ngraph.program.lower import lower
from ngraph.rewrite.runner import run

LIMITS = {
    "import seconds above numpy": 0.08,
    "import MiB above numpy": 20,
    "build 60,000 ops, seconds": 1.5,
    "simplify 60,000 ops, seconds": 2.5,
    "25,000 to 50,000 ops, growth": 2.3,
    "x + 1 call above NumPy, microseconds": 3,
    "ResNet-50 ready on direct, seconds": 0.15,
}

_IMPORT = """
import time, sys
import numpy
def rss():
    return int(open('/proc/self/statm').read().split()[1]) * 4096 / 2**20
t, m = time.perf_counter(), rss()
import ngraph
print(time.perf_counter() - t, rss() - m, [n for n in ('llvmlite', 'matplotlib', 'torch', 'onnx') if n in sys.modules])
"""


def median(f, times=5):
    took = []
    for _ in range(times):
        gc.collect()
        start = time.perf_counter()
        f()
        took.append(time.perf_counter() - start)
    return statistics.median(took)


def import_cost():
    rows = [
        subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True).stdout.split(" ", 2) for _ in range(9)
    ]
    assert all(r[2].strip() == "[]" for r in rows), rows[0][2]
    return statistics.median(float(r[0]) for r in rows), statistics.median(float(r[1]) for r in rows)


def chain(count):
    """A graph of `count` ops in which simplify finds work everywhere."""
    A, B = ng.make_axis(3, name="A"), ng.make_axis(4, name="B")
    x, y = ng.placeholder([A, B]), ng.placeholder([B])
    z = x
    for k in range(count // 6):
        z = ng.tanh(z * 1.0 + y) - y
        z = ng.negative(-z) if k % 2 else z / 1.0 + x
    return z, [x, y]


def large_graphs():
    built = {}

    def build(n):
        built[n] = chain(n)

    def ready(n):
        z, parameters = built[n]
        run(lower([z], parameters).program, default_passes)

    row = {"build 60,000 ops, seconds": median(lambda: build(60_000), 3)}
    program = lower([built[60_000][0]], built[60_000][1]).program
    row["simplify 60,000 ops, seconds"] = median(lambda: run(program, default_passes), 3)
    times = {}
    for n in (25_000, 50_000):
        build(n)
        times[n] = median(lambda n=n: ready(n), 3)
    row["25,000 to 50,000 ops, growth"] = times[50_000] / times[25_000]
    return row


def call_cost(count=100_000):
    x = ng.placeholder(())
    f = ngt.make_transformer_factory("numpy")().computation(x + 1, x)
    value, one = np.float32(3), np.float32(1)
    a, expression = np.asarray(value), lambda a: a + one

    def loop(g):
        for _ in range(count):
            g(a)

    f(a)
    ours, theirs = median(lambda: loop(f)), median(lambda: loop(expression))
    return (ours - theirs) / count * 1e6


def resnet50_ready():
    sys.path.insert(0, os.environ.get("PEERBENCH", os.path.join(os.path.dirname(__file__), "..", "..", "shared", "bench")))
    from peerbench.workloads import WORKLOADS

    sys.path.insert(0, os.path.dirname(__file__))
    from peer_adapter import Model

    g = WORKLOADS["I1"].graph()
    model = Model(g, g.init())

    def ready():
        f = ngt.make_transformer_factory("direct")().computation(model.output, *model.inputs.values())
        f.compile()

    return median(ready)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    seconds, mib = import_cost()
    row = {"import seconds above numpy": seconds, "import MiB above numpy": mib, **large_graphs()}
    row["x + 1 call above NumPy, microseconds"] = call_cost()
    try:
        row["ResNet-50 ready on direct, seconds"] = resnet50_ready()
    except ImportError:
        pass  # the peer benchmark is not here
    if arguments.json:
        print(json.dumps(row))
        return
    for name, value in row.items():
        print(f"{name:42} {value:8.3f}   limit {LIMITS[name]:g}{'' if value <= LIMITS[name] else '   OVER'}")


if __name__ == "__main__":
    main()

"""The peer benchmark's workloads at nearby sizes: time per FLOP beside that of the size they have. And how it grows with a size.

python bench/neighbours.py [workload …] [--growth] [--seconds 6] [--kernels]        needs the peer benchmark (PEERBENCH)

All sizes of a workload take turns in one process and the best call of each counts, of long ones the best of each kernel, so that a busy
machine is the same for all.
`--kernels` names, for each size that misses, the kernels that lost most against those of the workload itself.
"""

import argparse
import dataclasses
import math
import os
import statistics
import sys
import time

os.environ.setdefault("NGRAPH_NUM_THREADS", "1")  # what several give depends on who else is there
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.environ.get("PEERBENCH", os.path.join(HERE, "..", "..", "shared", "bench"))]
import peer_adapter  # noqa: E402
from peerbench import workloads  # noqa: E402
from peerbench.graph import Graph  # noqa: E402
from peerbench.workloads import WORKLOADS, Workload  # noqa: E402

LONG = 0.02  # seconds of a call from which on its kernels are timed one by one
NEAR, GROWTH = 1.3, 1.5  # limits: of the workload's own time per FLOP; of the median of a series
# sizes of inputs, and of layers, that change: {was: is}
NEIGHBOURS = {
    "T1": [({128: 127}, {}), ({128: 130, 4: 5}, {})],
    "T2": [({128: 127}, {}), ({}, {100: 101}), ({784: 785}, {}), ({128: 96, 784: 800}, {100: 120})],
    "T3": [({128: 127}, {}), ({32: 33}, {}), ({}, {500: 501}), ({}, {16: 17, 32: 31})],
    "T4": [({20: 19}, {}), ({}, {650: 641}), ({35: 37}, {}), ({}, {10000: 9999})],
    "T4c": [({64: 63}, {}), ({}, {128: 129}), ({60: 59}, {87: 88})],
    "T5": [({64: 63}, {}), ({32: 33}, {}), ({}, {16: 18, 32: 36, 64: 72})],
    "T6": [({224: 225}, {}), ({8: 7}, {})],
    "I1": [({224: 225}, {}), ({224: 208}, {}), ({}, {64: 63})],
    "I1b8": [({8: 7}, {})],
    "I2": [({128: 127}, {}), ({128: 131}, {}), ({}, {768: 780, 3072: 3120})],
    "I3": [({224: 225}, {}), ({224: 192}, {})],
    "I4": [({}, {512: 500}), ({256: 255}, {}), ({100: 99}, {})],
    "I5": [({}, {768: 780, 3072: 3120}), ({}, {50257: 50000})],
    "I6": [({768: 767}, {}), ({768: 800}, {})],
    "I6r": [({13020: 13021, 768: 767}, {})],
}


class Resized(Graph):
    """A graph whose inputs and layers have other sizes than it is told."""

    def __init__(self, name, inputs, layers):
        super().__init__(name)
        self.given, self.layers = inputs, layers

    def input(self, name, shape, dtype="float32"):
        return super().input(name, [self.given.get(n, n) for n in shape], dtype)

    def state_in(self, name, shape):
        heads, length, size = shape[1:]
        width = self.layers.get(heads * size, heads * size)
        return super().state_in(name, (shape[0], heads, length, width // heads))

    def conv(self, x, cout, k, stride=1, pad=None, groups=1, bias=False, gain=2.0):
        cout = self.shape[x][1] if groups > 1 else self.layers.get(cout, cout)
        return super().conv(x, cout, k, stride, pad, cout if groups > 1 else 1, bias, gain)

    def linear(self, x, n_out, bias=True, std=None):
        return super().linear(x, self.layers.get(n_out, n_out), bias, std)

    def embed(self, ids, vocab, dim, std=0.05):
        return super().embed(ids, self.layers.get(vocab, vocab), self.layers.get(dim, dim), std)

    def lstm(self, x, hidden):
        return super().lstm(x, self.layers.get(hidden, hidden))


def resized(w, inputs, layers):
    """A workload at other sizes."""

    def build():
        workloads.Graph = lambda name: Resized(name, inputs, layers)
        try:
            g = w.build()
        finally:
            workloads.Graph = Graph
        g.id_range = {name: layers.get(n, n) for name, n in g.id_range.items()}
        return g

    title = ", ".join([f"{was} -> {now}" for sizes in (inputs, layers) for was, now in sizes.items()])
    return dataclasses.replace(w, build=build, classes=layers.get(w.classes, w.classes), title=title or "itself", resident=False)


def series():
    """Workloads that grow: (name, sizes, what makes the workload of a size)."""

    def infer(build):
        return lambda n: Workload(f"G{n}", str(n), "infer", lambda: build(n))

    def wide(n):
        g = workloads._graph("wide")
        g.linear(g.relu(g.linear(g.input("x", (128, n)), n)), n)
        return g

    batches, sequences, widths = (1, 2, 4, 8, 16, 32, 64), (128, 256, 512, 1024, 2048), (256, 512, 1024, 2048, 4096)
    yield "ResNet-20, batch", batches, infer(lambda n: workloads.resnet20(n))
    yield "ResNet-50, batch", batches[:4], infer(lambda n: workloads.resnet50(n))
    yield "MLP 1024, batch", batches, infer(lambda n: mlp_of(n, 1024))
    yield "BERT, 1 layer, sequence", sequences, infer(lambda n: workloads.bert_base(seq=n, layers=1))
    yield "LSTM 256, sequence", sequences[:4], infer(lambda n: workloads.lstm_infer(t=n, batch=8, hidden=256, layers=1))
    yield "two layers, width", widths, infer(wide)
    yield "two layers, width, training", widths[:4], lambda n: Workload(f"G{n}", str(n), "train", lambda: wide(n), "ce", 0.01, 0.9, n)


def mlp_of(batch, width):
    g = workloads._graph("mlp")
    g.linear(g.relu(g.linear(g.input("x", (batch, width)), width)), width)
    return g


def ready(w):
    """A workload's step or call, and its work: FLOP, or elements where there is none to speak of."""
    g = w.graph()
    run = peer_adapter.Adapter({}, int(os.environ["NGRAPH_NUM_THREADS"])).load(w)
    run.call(0)
    elements = sum(len_of(shape) for shape, _ in g.inputs.values())
    work = g.flops(w.kind == "train")
    moved = 4 * sum(len_of(shape) for shape, _ in g.params.values()) * (5 if w.kind == "train" else 1)
    w.params_cache = None
    return run, max(work, moved, 30 * elements)


def len_of(shape):
    n = 1
    for k in shape:
        n *= k
    return n


class Timed:
    """The least seconds of a call: of the whole where it is short, else of each of its kernels, for no long call is undisturbed."""

    def __init__(self, run):
        self.run, self.whole, self.rows = run, math.inf, []

    @property
    def seconds(self):
        return sum(r.seconds for r in self.rows) if self.rows else self.whole

    def again(self, k):
        if self.whole > LONG and k:
            given = self.run.data[k % len(self.run.data)] if hasattr(self.run, "data") else self.run.feeds
            rows = self.run.run.profile(*given, calls=1).rows
            self.rows = [min(pair, key=lambda r: r.seconds) for pair in zip(rows, self.rows or rows, strict=True)]
            return
        for _ in range(1 if self.whole > LONG else 5):
            start = time.perf_counter()
            self.run.call(k)
            self.whole = min(self.whole, time.perf_counter() - start)


def best(runs, seconds):
    """Each timed, in turns."""
    timed, end, k = [Timed(run) for run in runs], time.perf_counter() + seconds, 0
    while k < 3 or time.perf_counter() < end:
        for t in timed:
            t.again(k)
        k += 1
    return timed


def losers(own, other, scale):
    """The kernels that take most beyond what the workload's own take for as much; where they differ, those farthest from the limit."""
    pairs = list(zip(own.rows, other.rows, strict=False))
    if not pairs:
        return []
    if len(own.rows) == len(other.rows) and all(a.ops == b.ops for a, b in pairs):
        pairs.sort(key=lambda pair: pair[0].seconds * scale - pair[1].seconds)
        return [f"{b.seconds / max(a.seconds * scale, 1e-12):5.2f} x {shown(b)}" for a, b in pairs[:3]]
    far = sorted(other.rows, key=lambda r: r.limit * r.calls - r.seconds)[:3]
    return [f"{len(other.rows)} kernels instead of {len(own.rows)}; those farthest from the limit:", *map(shown, far)]


def shown(row):
    return f"{row.seconds * 1e3:8.3f} ms  {row.rate:>14} {row.share:4.0%}  {row.ops}  {row.shape}  {', '.join(row.reads[:2])}"


def rate(work, took):
    return f"{work / 1e9:9.3f} {took * 1e3:10.4f} {work / took / 1e9:8.1f}"


def neighbours(name, seconds, kernels):
    sizes = [resized(WORKLOADS[name], {}, {}), *[resized(WORKLOADS[name], *change) for change in NEIGHBOURS[name]]]
    made = [ready(w) for w in sizes]
    times = best([run for run, _ in made], seconds)
    missed = 0
    for w, (_, work), t in zip(sizes, made, times, strict=True):
        took = t.seconds
        ratio = took / work / (times[0].seconds / made[0][1])
        missed += ratio > NEAR
        print(f"{name:5} {w.title:28} {rate(work, took)} {ratio:6.2f}{'  MISS' * (ratio > NEAR)}", flush=True)
        if ratio > NEAR and kernels:
            print("".join([f"          {line}\n" for line in losers(times[0], t, work / made[0][1])]), end="", flush=True)
    return missed


def growth(name, sizes, make, seconds):
    made = [ready(make(n)) for n in sizes]
    times = [t.seconds for t in best([run for run, _ in made], seconds)]
    each = [took / work for took, (_, work) in zip(times, made, strict=True)]
    middle, missed = statistics.median(each), 0
    for n, (_, work), took, one in zip(sizes, made, times, each, strict=True):
        missed += one > GROWTH * middle
        print(f"{name:28} {n:5} {rate(work, took)} {one / middle:6.2f}{'  MISS' * (one > GROWTH * middle)}", flush=True)
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*")
    parser.add_argument("--growth", action="store_true", help="series of growing sizes instead")
    parser.add_argument("--seconds", type=float, default=6.0, help="for each workload")
    parser.add_argument("--kernels", action="store_true", help="name what is slow")
    asked = parser.parse_args()
    print(f"{'':34} {'GFLOP':>9} {'ms':>10} {'GFLOP/s':>8}  ratio   (at most {GROWTH if asked.growth else NEAR})")
    if asked.growth:
        chosen = [s for s in series() if not asked.workloads or any(word in s[0] for word in asked.workloads)]
        missed = sum([growth(*s, asked.seconds) for s in chosen])
    else:
        missed = sum([neighbours(name, asked.seconds, asked.kernels) for name in asked.workloads or NEIGHBOURS])
    print(f"{missed} of these miss")


if __name__ == "__main__":
    main()

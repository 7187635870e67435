"""Calls whose lengths change every time: ngraph beside other runtimes, and code for open lengths beside code for known ones.

    python bench/serving.py [S1 S3 ...] [--models PATHS] [--python onnxruntime=PYTHON] [--python openvino=PYTHON] [--calls 300]
    python bench/serving.py S1 --open 6      # code for open lengths ÷ code for known ones, at 6 lengths, kernel by kernel

--models    a JSON file {name: path}, or a folder with NAME.onnx, of ocr_rec_v4, ocr_det_v4 and silero_seq (S1, S2, S5)
--made      the folder where the other models are put, exported from PyTorch with random weights when they are missing (out/serving)
--python    a runtime's interpreter; without any, ngraph runs alone

Each runtime has a process of its own. All get one sequence of inputs, drawn from a fixed seed, in slices that take turns. A row gives:
the paired ratio, the median over the later half of the calls of (best other's time ÷ ours) on the same input; that of the sum of all calls;
that of the 99th percentiles of the later half; the worst call of all but the first, ours and the best other's; the seconds to the first
result, from loading on. Above 1 we are faster. ngraph starts with an empty cache unless --cache names one.
"""

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
from typing import NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__))


class Traffic(NamedTuple):
    """A model and its inputs: dims are lengths, or names of ranges `first..last`, `/step` behind it for its multiples.

    `back`: {input: result of the last call that it is}. `grow`: lengths rise by one with each call and then start again; else they are
    drawn at random. `kept`: {input: output} that ngraph keeps as state that grows; the others
    are passed it.
    """

    title: str
    model: str
    inputs: list
    ranges: dict
    integers: dict = {}
    back: dict = {}
    grow: bool = False
    kept: dict = {}
    rivals: tuple = ("onnxruntime", "openvino")


TEXT = [("input_ids", "int64", ("n", "t")), ("attention_mask", "int64", ("n", "t"))]
CACHE = [(f"past.{k}", "float32", (1, 12, "p", 64)) for k in range(24)]
PICTURE = [("pixel_values", "float32", ("n", 3, 224, 224))]
CHARACTERS = [(name, "int64", (32, "t")) for name in ("tokens", "targets")]
CHUNKS = [("input", "float32", ("n", 576)), ("h", "float32", (1, 1, 128)), ("c", "float32", (1, 1, 128))]
ONES = {"attention_mask": (1, 1)}
SMALL = {"tokens": (0, 86), "targets": (0, 86)}
DECODER = Traffic(
    "GPT-2-small, decoding from 1 to 512",
    "gpt2",
    [("input_ids", "int64", (1, 1)), *CACHE],
    {"p": "0..511"},
    back={name: k for k, (name, _, _) in enumerate(CACHE, 1)},
    grow=True,
)
CASES = {
    "S1": Traffic("PP-OCRv4 recognition, width 64..320", "ocr_rec_v4", [("x", "float32", (1, 3, 48, "w"))], {"w": "64..320"}),
    "S2": Traffic(
        "PP-OCRv4 detection, sides 64..480", "ocr_det_v4", [("x", "float32", (1, 3, "h", "w"))], {"h": "64..480/32", "w": "64..480/32"}
    ),
    "S3": Traffic("BERT-base, length 8..512", "bert", TEXT, {"n": "1..1", "t": "8..512"}, ONES),
    "S4": Traffic("BERT-base, batch 1..8, length 16..256", "bert", TEXT, {"n": "1..8", "t": "16..256"}, ONES),
    "S5": Traffic("silero, 1..40 chunks", "silero_seq", CHUNKS, {"n": "1..40"}),
    "S6": DECODER,
    "S6k": DECODER._replace(title="GPT-2-small, decoding, the cache kept as state", kept={f"past.{k}": f"new.{k}" for k in range(24)}),
    "S7a": Traffic("ResNet-50, batch 1..16", "resnet50", PICTURE, {"n": "1..16"}),
    "S7b": Traffic("MobileNetV2, batch 1..16", "mobilenet", PICTURE, {"n": "1..16"}),
    "S8a": Traffic("training an LSTM, length 16..128", "training:lstm", CHARACTERS, {"t": "16..128"}, SMALL, rivals=("torch",)),
    "S8b": Traffic(
        "training a transformer, length 16..128", "training:transformer", CHARACTERS, {"t": "16..128"}, SMALL, rivals=("torch",)
    ),
}


class Runtime:
    """A process that runs one model."""

    def __init__(self, name, python, path, o, cache):
        threads = str(o.threads)
        paths = os.pathsep.join([os.path.dirname(HERE), HERE])
        own = {"NGRAPH_CACHE": cache, "PYTHONPATH": paths} if name == "ngraph" else {"PYTHONPATH": HERE}
        own |= {"OMP_NUM_THREADS": threads, "NGRAPH_NUM_THREADS": threads}
        command = [python, os.path.join(HERE, "serving_worker.py"), name, path, threads]
        self.name, pipe = name, subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env={**os.environ, **own})

    def ask(self, do, **job):
        """The answer to a job; exits where the process has ended."""
        self.process.stdin.write(json.dumps({"do": do, **job}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        return json.loads(line) if line else sys.exit(f"{self.name} ended: see its message above")

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def lengths(case, count, seed):
    """The lengths of so many calls, by name."""
    draw, found = random.Random(seed), []
    for k in range(count):
        own = {}
        for name, span in case.ranges.items():
            bounds, _, step = span.partition("/")
            first, last = [int(n) // int(step or 1) for n in bounds.split("..")]
            own[name] = (first + k % (last - first + 1) if case.grow else draw.randint(first, last)) * int(step or 1)
        found.append(own)
    return found


def calls(case, sizes):
    """The inputs of calls of these lengths, each with a seed of its own."""
    return [[[(name, dtype, [own.get(d, d) for d in dims]) for name, dtype, dims in case.inputs], k] for k, own in enumerate(sizes)]


def measured(case, path, pythons, o):
    """Times of each runtime and the magnitudes of its results, call by call, the first call included: {runtime: (times, magnitudes)}."""
    back, sequence = (case.back if case.grow else {}), calls(case, lengths(case, o.calls + 1, o.seed))
    with tempfile.TemporaryDirectory() as folder:
        runtimes = [Runtime(name, python, path, o, o.cache or folder) for name, python in pythons.items()]
        found = {r.name: ([], []) for r in runtimes}
        size = -(-o.calls // o.rounds)
        for part in [sequence[:1], *[sequence[at : at + size] for at in range(1, len(sequence), size)]]:
            for r in runtimes:
                got = r.ask("calls", calls=part, integers=case.integers, back=back, kept=case.kept if r.name == "ngraph" else {})
                found[r.name][0].extend(got["times"])
                found[r.name][1].extend(got["means"])
        for r in runtimes:
            r.close()
    return found


def differs(found):
    """The largest relative difference between the magnitudes of ngraph's results and another's."""
    ours = found["ngraph"][1]
    return max(
        (
            abs(x - y) / (abs(x) + 1e-6)
            for name, (_, theirs) in found.items()
            if name != "ngraph"
            for p, q in zip(ours, theirs, strict=True)
            for x, y in zip(p, q, strict=False)
        ),
        default=0.0,
    )


def tail(times):
    return sorted(times)[int(0.99 * (len(times) - 1))]


def row(case, found):
    """The fields of a table's row."""
    times = {name: t for name, (t, _) in found.items()}
    ours, others = times["ngraph"], [t for name, t in times.items() if name != "ngraph"]
    late = slice(1 + (len(ours) - 1) // 2, None)
    fields = [case.title, f"{1e3 * statistics.median(ours[late]):.2f} ms", f"{1e3 * tail(ours[late]):.2f} ms"]
    if not others:
        return [*fields, f"{1e3 * max(ours[1:]):.0f} ms", f"{ours[0]:.2f} s"]
    paired = statistics.median(min(t) / u for *t, u in zip(*[t[late] for t in others], ours[late], strict=True))
    total = min(sum(t[1:]) for t in others) / sum(ours[1:])
    best = min(others, key=lambda t: statistics.median(t[late]))
    ratios = [f"{x:.2f}" for x in (paired, total, tail(best[late]) / tail(ours[late]))]
    worst = [f"{1e3 * max(ours[1:]):.0f} ms", f"{1e3 * min(max(t[1:]) for t in others):.0f} ms"]
    return [*fields, *ratios, *worst, f"{ours[0]:.2f} s", f"{min(t[0] for t in others):.2f} s", f"{differs(found):.0e}"]


ALONE = ["", "median", "p99", "worst", "first result"]
BESIDE = ["", "median", "p99", "paired", "whole", "tail", "worst", "theirs", "first result", "theirs", "differs"]


def beside(cases, pythons, o):
    """Prints the table of ngraph beside others, a row for each case."""
    head = BESIDE if len(pythons) > 1 else ALONE
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    for name, case in cases.items():
        chosen = {n: p for n, p in pythons.items() if n in ("ngraph", *case.rivals)}
        found = measured(case, located(case.model, o), chosen, o)
        print(f"| {name} {' | '.join(row(case, found))} |", flush=True)


def opened(cases, python, o):
    """Prints code for open lengths ÷ code for known ones: whole calls, and kernels that take more than 2 % of one."""
    print("| | open ÷ known | least | most | kernels | worst of those above 2 % |\n|" + " --- |" * 6)
    for name, case in cases.items():
        if case.model.startswith("training:"):
            print(f"| {name} {case.title} | not measured by kernels |")
            continue
        with tempfile.TemporaryDirectory() as folder:
            r = Runtime("ngraph", python, located(case.model, o), o, o.cache or folder)
            sizes = lengths(case._replace(grow=False), o.open + 2, o.seed)
            every = calls(case, sizes)
            found = r.ask("open", warm=every[:2], calls=every[2:], integers=case.integers, times=o.times)["open"]
            r.close()
        ratios = [a / b for a, b, _ in found]
        heavy = [(u / k, u, k, nodes) for a, _, rows in found for nodes, u, k in rows if k > 0 and u > 0 and max(u, k) > 0.02 * a]
        kernels = math.exp(statistics.fmean(math.log(q) for q, *_ in heavy)) if heavy else math.nan
        worst, _, _, nodes = max(heavy, default=(math.nan, 0, 0, [""]))
        fields = [f"{geometric(ratios):.2f}", f"{min(ratios):.2f}", f"{max(ratios):.2f}", f"{kernels:.2f}", f"{worst:.2f} {nodes[-1]}"]
        print(f"| {name} {case.title} | {' | '.join(fields)} |", flush=True)
        if o.kernels:
            for own, (a, b, rows) in zip(sizes[2:], found, strict=True):
                print(f"\n{own}: open {1e3 * a:.2f} ms, known {1e3 * b:.2f} ms")
                for nodes, u, k in sorted(rows, key=lambda r: r[2] - r[1])[: o.kernels]:
                    print(f"  {1e6 * u:9.0f} us  {1e6 * k:9.0f} us  {u / k if k else math.inf:6.2f}  {', '.join(nodes)[:150]}")


def geometric(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def located(model, o):
    """The path of a model's file; it is made where a function of serving_models makes it."""
    import serving_models

    if model.startswith("training:"):
        return model
    if model in serving_models.MADE:
        return serving_models.found(model, o.made)
    if o.models and os.path.isdir(o.models):
        return os.path.join(o.models, f"{model}.onnx")
    if not o.models:
        sys.exit(f"where is {model}? --models names a folder with {model}.onnx, or a JSON file of paths by name")
    with open(o.models, encoding="utf-8") as file:
        return json.load(file)[model]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help=f"of {' '.join(CASES)}; names that begin so; all by default")
    parser.add_argument("--models", help="a JSON file of paths by name, or a folder")
    parser.add_argument("--made", default=os.path.join("out", "serving"), help="the folder of exported models")
    parser.add_argument("--python", action="append", default=[], metavar="RUNTIME=PYTHON", help="a runtime's interpreter")
    parser.add_argument("--calls", type=int, default=300, help="after the first")
    parser.add_argument("--rounds", type=int, default=4, help="slices of the calls, in turns")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cache", help="ngraph's cache; an empty one by default")
    parser.add_argument("--open", type=int, metavar="LENGTHS", help="compare code for open with code for known lengths, at so many")
    parser.add_argument("--times", type=int, default=7, help="calls of each in that comparison")
    parser.add_argument("--kernels", type=int, default=0, help="show so many kernels of each length in that comparison")
    o = parser.parse_args()
    begins = tuple(o.cases) or ("",)
    cases = {name: case for name, case in CASES.items() if name.startswith(begins)}
    if not cases:
        parser.error(f"no case begins with {' or '.join(begins)}")
    pythons = dict(p.split("=", 1) for p in o.python)
    pythons = {**{n: p for n, p in pythons.items() if n != "ngraph"}, "ngraph": pythons.get("ngraph", sys.executable)}
    if o.open:
        opened(cases, pythons["ngraph"], o)
    else:
        beside(cases, pythons, o)


if __name__ == "__main__":
    main()

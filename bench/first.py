"""Seconds to a first result: a new process with an empty cache, another one with that cache, beside ONNX Runtime and OpenVINO.

    python bench/first.py FOLDER [NAME …] [--python onnxruntime=PYTHON] [--python openvino=PYTHON] [--rounds 3] [--parts]

FOLDER has a model and an input for each name: NAME.onnx and NAME.npz (`python bench/first_models.py FOLDER` makes ten), or the cases of
files.py (`files.py FOLDER --collect …`), whose first inputs are taken. Seconds run from the import of the runtime to the first result;
Python's own start and NumPy are left out. Each figure is the least of the rounds, in which the runtimes take turns. All get two threads.
`--parts` says what ngraph's time from an empty cache went into: seconds of the first process, and of processor time in LLVM beside it.
"""

import argparse
import importlib
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
THREADS = 2
BYTES = os.path.join(tempfile.gettempdir(), f"ngraph-bytecode-{os.getuid()}")  # compiled modules, as an installed package has them
PEERS = ("onnxruntime", "openvino")
PARTS = {  # what is timed, without what else is timed inside: (module, function)
    "import": [],
    "open": [("ngraph.frontends.positional.reader", "Reader.__init__"), ("ngraph.frontends.onnx.proto", "read")],
    "translate": [("ngraph.frontends.positional.reader", "Reader._read")],
    "lower": [("ngraph.program.lower", "lower")],
    "passes": [("ngraph.rewrite.runner", "run")],
    "plan": [("ngraph.transformers.cpu.native", "planned")],
    "schedule": [("ngraph.schedule.cpu", "schedule_kernel")],
    "write": [("ngraph.codegen.kernel", "lower"), ("ngraph.codegen.routines", "emit_opaque_op")],
    "cache": [("ngraph.runtime.cache", "Cache.plan"), ("ngraph.runtime.cache", "Cache.keep_plan"), ("ngraph.runtime.cache", "Folder.put")],
    "wait": [("ngraph.runtime.host.workers", "Workers._compiled")],
    "load": [("ngraph.transformers.executable.code", "LoadedPlan.__init__")],
    "call": [("ngraph.transformers.executable.versions", "VersionedExecutable.call")],
}


# ---- in a process of its own


def ngraph(path):
    import ngraph as ng

    model = ng.onnx.load(path)
    return lambda feeds: model.run(None, feeds)


def onnxruntime(path):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = THREADS, 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


def openvino(path):
    import openvino

    hints = {"INFERENCE_NUM_THREADS": THREADS, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(path, "CPU", hints).create_infer_request()
    return lambda feeds: list(request.infer(feeds, share_inputs=True).values())


class Clock:
    """Seconds of parts, on the first thread, each without the parts inside."""

    def __init__(self):
        self.seconds, self.inside, self.thread = dict.fromkeys(PARTS, 0.0), [0.0], threading.get_ident()

    def timed(self, part, function):
        def run(*arguments, **options):
            if threading.get_ident() != self.thread:
                return function(*arguments, **options)
            start = time.perf_counter()
            self.inside.append(0.0)
            try:
                return function(*arguments, **options)
            finally:
                took = time.perf_counter() - start
                self.seconds[part] += took - self.inside.pop()
                self.inside[-1] += took

        return run

    def watch(self):
        """Puts itself around the functions of PARTS, wherever a module has them."""
        for part, places in PARTS.items():
            for module, path in places:
                *owners, name = path.split(".")
                place = importlib.import_module(module)
                for owner in owners:
                    place = getattr(place, owner)
                found = getattr(place, name)
                timed = self.timed(part, found)
                holders = (
                    [place]
                    if owners
                    else [m for n, m in list(sys.modules.items()) if n.startswith("ngraph") and vars(m).get(name) is found]
                )
                for holder in holders:
                    setattr(holder, name, timed)


def child(runtime, path, inputs, parts):
    """Prints the seconds of one start and sums of the results."""
    import numpy as np

    with np.load(inputs) as file:
        feeds = {k: file[k] for k in file.files}
    clock, start = Clock(), time.perf_counter()
    if parts:
        clock.watch()
        clock.seconds["import"] = time.perf_counter() - start
    results = [np.asarray(r) for r in globals()[runtime](path)(feeds)]
    row = {"seconds": time.perf_counter() - start}
    row["sums"] = [float(np.abs(r.astype(np.float64)).mean()) for r in results if r.size and r.dtype.kind in "fiub"]
    if parts:
        importlib.import_module("ngraph.runtime.host.workers").workers.end()
        row["parts"] = {**clock.seconds, "rest": row["seconds"] - sum(clock.seconds.values())}
        row["llvm"] = importlib.import_module("resource").getrusage(-1).ru_utime  # RUSAGE_CHILDREN
    print(json.dumps(row))


# ---- the rounds


def start(runtime, python, model, inputs, cache, parts=False):
    """What a new process printed; None where the runtime refuses the model."""
    env = {
        **os.environ,
        "PYTHONPATH": str(HERE.parent),
        "PYTHONPYCACHEPREFIX": BYTES,
        "NGRAPH_CACHE": cache,
        "NGRAPH_NUM_THREADS": str(THREADS),
    }
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    made = subprocess.run(
        [python, str(HERE / "first.py"), "--child", runtime, model, inputs, *["parts"] * parts], env=env, capture_output=True, text=True
    )
    if made.returncode and runtime == "ngraph":
        sys.exit(made.stderr)
    return None if made.returncode else json.loads(made.stdout.splitlines()[-1])


def measured(model, inputs, pythons, rounds):
    """{who: seconds}, of ngraph from an empty cache and of ngraph again, and of the others; the first rows of results."""
    best, sums = {}, {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            for who, runtime in [("ngraph", "ngraph"), ("again", "ngraph"), *[(p, p) for p in pythons if p != "ngraph"]]:
                row = start(runtime, pythons[runtime], model, inputs, folder)
                if row is not None:
                    best[who] = min(best.get(who, math.inf), row["seconds"])
                    sums[who] = row["sums"]
    return best, sums


def agree(sums):
    """Whether the mean magnitudes of all results are alike."""
    return all(
        len(s) == len(sums["ngraph"])
        and all(math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-5) for a, b in zip(s, sums["ngraph"], strict=True))
        for s in sums.values()
    )


def cases(folder, wanted):
    """(name, model, input) of each case, each model once."""
    found = [(p.stem, str(p), str(p.with_suffix(".npz"))) for p in sorted(folder.glob("*.onnx"))]
    from files import cases as filed

    seen = set()
    for name, model, inputs in filed(folder, []):
        if model not in seen:
            seen.add(model)
            found.append((name.split("/")[0], model, inputs))
    return [c for c in found if not wanted or c[0] in wanted]


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def beside(chosen, pythons, o):
    """Prints seconds of all, and ngraph's over OpenVINO's."""
    peers = [p for p in PEERS if p in pythons]
    heads = ["", "empty cache, s", "from the cache, s", *[f"{p}, s" for p in peers], "ours ÷ OpenVINO's"]
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}")
    every = []
    for name, model, inputs in chosen:
        best, sums = measured(model, inputs, pythons, o.rounds)
        over = best["ngraph"] / best["openvino"] if "openvino" in best else None
        every.append((best["ngraph"], best["again"], over))
        cells = [f"{best[p]:.2f}" if p in best else "refused" for p in ("ngraph", "again", *peers)]
        print(f"| {name} | {' | '.join(cells)} | {f'{over:.2f}' if over else ''}{'' if agree(sums) else ' (results differ)'} |", flush=True)
    cold, warm, overs = zip(*every, strict=True)
    known = [x for x in overs if x]
    ratio = f"{mean(known):.2f}" if known else ""
    print(f"| geometric mean | {mean(cold):.2f} | {mean(warm):.2f} |{' |' * len(peers)} {ratio} |")
    print(f"| most | {max(cold):.2f} | {max(warm):.2f} |{' |' * len(peers)} {f'{max(known):.2f}' if known else ''} |")


def parted(chosen, python):
    """Prints what ngraph's time went into, in milliseconds."""
    heads = ["", "all", *PARTS, "rest", "LLVM beside"]
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}")
    for name, model, inputs in chosen:
        with tempfile.TemporaryDirectory() as folder:
            row = start("ngraph", python, model, inputs, folder, parts=True)
        cells = [row["seconds"], *row["parts"].values(), row["llvm"]]
        print(f"| {name} | {' | '.join([f'{1e3 * s:.0f}' for s in cells])} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--python", action="append", default=[], metavar="RUNTIME=PATH", help="the interpreter of a runtime")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", action="store_true")
    o = parser.parse_intermixed_args()
    pythons = {"ngraph": sys.executable, **dict(p.split("=", 1) for p in o.python)}
    chosen = cases(o.folder, o.names)
    if o.parts:
        parted(chosen, pythons["ngraph"])
    else:
        beside(chosen, pythons, o)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:5], parts=len(sys.argv) > 5)
    else:
        main()

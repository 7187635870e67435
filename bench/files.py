"""Models from files beside other runtimes, .onnx beside ONNX Runtime and OpenVINO: each in a process of its own, slices of time in turn.

    python bench/files.py FOLDER [CASE …] [--rounds 7] [--python onnxruntime=PATH --python openvino=PATH] [--out FILE.json]

    python bench/files.py FOLDER --collect PEERBENCH MODELS VENV        makes FOLDER of the peer benchmark's models and of real ones
    python bench/files.py FOLDER CASE … --quantise        adds these cases in 8 bits, by ONNX Runtime's quantiser: CASE.qdq and so on

A case is a folder below FOLDER with `model.onnx`, `saved_model` or `model` (the path of a file) and `inputs.npz`. SavedModels stand beside
TensorFlow and OpenVINO (`bench/tensorflow.py --export FOLDER` makes some). All runtimes get as many threads. The table gives medians, and
for each case the median over the rounds of the better peer's time divided by ours.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

PEERS = {"onnx": ("onnxruntime", "openvino"), "saved_model": ("tensorflow", "openvino")}  # by the kind of file
TOLERANCE = {"onnx": 1e-3, "saved_model": 1e-4}  # of the largest number of a result
CHECKED = 1000  # elements of a result that are compared, spread over it
BUILT = {"I1": "resnet50", "I2": "bert", "I3": "mobilenetv2", "I4": "lstm", "I5": "gpt2"}  # of the peer benchmark's workloads
FORMS = ("qdq", "qoperator", "dynamic")
THREADS = len(os.sched_getaffinity(0))


# ---- what each process does


def ours(model: str, feeds: Any) -> Callable[[], Any]:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import ngraph as ng

    if kind_of(model) == "onnx":
        loaded = ng.onnx.load(model)
        return lambda: loaded.run(None, feeds)
    signature = ng.tensorflow.load(model)
    return lambda: results_of(signature(**feeds))


def results_of(found: Any) -> list[Any]:
    return list(found.values()) if isinstance(found, dict) else [found]


def kind_of(model: str) -> str:
    return "saved_model" if os.path.isdir(model) else "onnx"


def tensorflow(model: str, feeds: Any) -> Callable[[], Any]:
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent]  # bench/tensorflow.py is another one
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    held = tf.saved_model.load(model)
    signature, given = held.signatures["serving_default"], {k: tf.constant(v) for k, v in feeds.items()}
    return lambda: [t.numpy() for t in signature(**given).values()] if held else []


def onnxruntime(model: str, feeds: Any) -> Callable[[], Any]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, THREADS
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)


def openvino(model: str, feeds: Any) -> Callable[[], Any]:
    import openvino as ov

    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": THREADS, "INFERENCE_PRECISION_HINT": "f32"}
    request = ov.Core().compile_model(model, "CPU", settings).create_infer_request()
    return lambda: list(request.infer(feeds, share_inputs=True).values())


RUNTIMES = {"ngraph": ours, "onnxruntime": onnxruntime, "openvino": openvino, "tensorflow": tensorflow}


def worker(name: str, model: str, inputs: str) -> None:
    """Loads the model, says so, then answers each number of seconds on its input with the median time of a call in it."""
    with np.load(inputs) as file:
        feeds = {k: file[k] for k in file.files}
    start = time.perf_counter()
    call = RUNTIMES[name](model, feeds)
    results = [np.asarray(r) for r in call()]
    report: dict[str, Any] = {"ready": time.perf_counter() - start}
    report["checks"] = [checked(r) for r in results]
    print(json.dumps(report), flush=True)
    for line in sys.stdin:
        end, times = time.perf_counter() + float(line), []
        call()
        while not times or time.perf_counter() < end:
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        print(json.dumps(float(np.median(times))), flush=True)


def checked(result: Any) -> list[float]:
    """Elements of a result, spread over it."""
    flat = result.ravel() if result.dtype.kind in "fiub" else result.ravel()[:0]
    return [float(x) for x in flat[:: max(1, flat.size // CHECKED)]]


# ---- the cases


def collect(folder: Path, peerbench: str, models: str, venv: str) -> None:
    """The peer benchmark's models as files, and those that `get_models.py` finds in packages, which it installs into `venv`."""
    sys.path.insert(0, peerbench)
    from peerbench import onnx_build
    from peerbench.workloads import WORKLOADS

    for name, called in BUILT.items():
        home, w = folder / called, WORKLOADS[name]
        home.mkdir(parents=True, exist_ok=True)
        w.params_cache = w.graph().init()
        (home / "model.onnx").write_bytes(onnx_build.build(w))
        np.savez(home / "inputs.npz", **onnx_build.feeds_of(w)[0])
    get = [sys.executable, str(Path(models) / "get_models.py"), venv]
    paths = json.loads(subprocess.run(get, check=True, capture_output=True, text=True).stdout)
    subprocess.run([*get, "--manifest", str(folder)], check=True)
    for inputs in folder.glob("*/*/inputs.npz"):
        (inputs.parent / "model").write_text(paths[inputs.parent.parent.name])


def quantise(case: tuple[str, str, str], folder: Path) -> None:
    """A model in 8 bits, in the three forms that there are, with ranges found on its own input."""
    import onnx
    from onnxruntime import quantization as tools
    from onnxruntime.quantization.preprocess import quant_pre_process

    name, model, inputs = case
    feeds = dict(np.load(inputs))

    class Calibration(tools.CalibrationDataReader):
        def __init__(self) -> None:
            self.left = [feeds]

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    formats = dict(zip(FORMS, (tools.QuantFormat.QDQ, tools.QuantFormat.QOperator, None), strict=True))
    whole = {"per_channel": True, "weight_type": tools.QuantType.QInt8, "activation_type": tools.QuantType.QUInt8}
    ready = str(Path(tempfile.mkdtemp()) / "ready.onnx")
    quant_pre_process(model, ready, skip_symbolic_shape=True)
    for form in formats:
        home = folder / f"{name}.{form}"
        home.mkdir(parents=True, exist_ok=True)
        made = str(home / "model.onnx")
        if form == "dynamic":
            tools.quantize_dynamic(ready, made, weight_type=tools.QuantType.QInt8)
        else:
            tools.quantize_static(ready, made, Calibration(), quant_format=formats[form], **whole)
        onnx.checker.check_model(made)
        np.savez(home / "inputs.npz", **feeds)


# ---- the rounds


def cases(folder: Path, wanted: list[str]) -> Iterator[tuple[str, str, str]]:
    for inputs in sorted(folder.glob("**/inputs.npz")):
        home = inputs.parent
        name = str(home.relative_to(folder))
        if wanted and not any(name.startswith(w) for w in wanted):
            continue
        here = [m for m in (home / "model.onnx", home / "saved_model") if m.exists()]
        yield name, str(here[0]) if here else (home / "model").read_text().strip(), str(inputs)


def measured(case: tuple[str, str, str], pythons: dict[str, str], rounds: int, seconds: float) -> dict[str, Any]:
    """Median seconds of a call for each runtime, one for each round; how long each took to be ready."""
    _, model, inputs = case
    running: dict[str, subprocess.Popen[str]] = {}
    found: dict[str, Any] = {"times": {}, "ready": {}, "checks": {}}
    try:
        for name, python in pythons.items():
            command = [python, __file__, "--worker", name, model, inputs]
            running[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            first = answer(running[name])
            if first is None:
                continue
            found["ready"][name], found["checks"][name], found["times"][name] = first["ready"], first["checks"], []
        for _ in range(rounds):
            for name, times in found["times"].items():
                times.append(answer(running[name], seconds))
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    return found


def answer(process: subprocess.Popen[str], seconds: float | None = None) -> Any:
    """The next line of a process; None where it has none."""
    assert process.stdin is not None and process.stdout is not None
    if seconds is not None:
        print(seconds, file=process.stdin, flush=True)
    line = process.stdout.readline()
    return json.loads(line) if line else None


def ratio(times: dict[str, list[float]]) -> float:
    """The better peer's time over ours in the same round, the median of the rounds."""
    peers = [t for p, t in times.items() if p != "ngraph"]
    return max(1e-9, float(np.median([min(t) / mine for mine, *t in zip(times["ngraph"], *peers, strict=True)])))


def apart(checks: dict[str, Any]) -> float:
    """The largest difference between our results and those of a peer with as many, as a part of the result's largest number."""
    mine, found = [np.array(r) for r in checks["ngraph"]], 0.0
    for name, results in checks.items():
        if name != "ngraph" and len(results) == len(mine):
            for a, b in zip(map(np.array, results), mine, strict=True):
                found = max(found, float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30)) if a.size else 0.0)
    return found


def row(name: str, kind: str, found: dict[str, Any]) -> str:
    times, ready = found["times"], found["ready"]
    if "ngraph" not in times:
        return f"| {name} | not run by ngraph |"
    cells = [f"{np.median(times[p]) * 1e3:.3g}" if p in times else "refused" for p in (*PEERS[kind], "ngraph")]
    differ = apart(found["checks"])
    note = "" if differ <= TOLERANCE[kind] else f" (results are {differ:.0e} apart)"
    return f"| {name} | {' | '.join(cells)} | **{ratio(times):.2f}**{note} | {ready['ngraph']:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*", help="only those whose names begin so")
    parser.add_argument("--collect", nargs=3, metavar=("PEERBENCH", "MODELS", "VENV"), help="make the folder instead")
    parser.add_argument("--quantise", action="store_true", help="add these cases in 8 bits instead; needs onnx and onnxruntime")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.2, help="of a slice (default: 0.2)")
    parser.add_argument("--python", action="append", default=[], metavar="RUNTIME=PATH", help="the interpreter of a runtime")
    parser.add_argument("--out", type=Path, help="where figures are added to those of other cases")
    arguments = parser.parse_args()
    if arguments.collect:
        collect(arguments.folder, *arguments.collect)
        return
    chosen = list(cases(arguments.folder, arguments.cases))
    if not chosen:
        there = [name for name, *_ in cases(arguments.folder, [])]
        sys.exit(f"no case below {arguments.folder} begins so; there are: {', '.join(there) or 'none (--collect makes them)'}")
    if arguments.quantise:
        for case in [c for c in chosen if not c[0].endswith(FORMS)]:
            quantise(case, arguments.folder)
        return
    table(chosen, dict(p.split("=", 1) for p in arguments.python), arguments.rounds, arguments.seconds, arguments.out)


def table(chosen: list[tuple[str, str, str]], given: dict[str, str], rounds: int, seconds: float, out: Path | None) -> None:
    """Measures cases and prints their rows. given: interpreters of runtimes; out: where figures are added to those of other cases."""
    kept = json.loads(out.read_text()) if out and out.exists() else {}
    ratios, kind = [], ""
    for case in chosen:
        if kind_of(case[1]) != kind:
            kind = kind_of(case[1])
            print(f"| file | {', ms | '.join(PEERS[kind])}, ms | ngraph, ms | ratio to the better | ready, s |", flush=True)
            print("| --- | --- | --- | --- | --- | --- |", flush=True)
        pythons = {name: given.get(name, sys.executable) for name in (*PEERS[kind], "ngraph")}
        found = kept[case[0]] = measured(case, pythons, rounds, seconds)
        print(row(case[0], kind, found), flush=True)
        ratios += [ratio(found["times"])] if "ngraph" in found["times"] else []
        if out:
            out.write_text(json.dumps(kept))
    if ratios:
        print(f"\nGeometric mean of the ratios: {math.exp(np.mean(np.log(ratios))):.2f}; the least: {min(ratios):.2f}.")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:5])
    else:
        main()

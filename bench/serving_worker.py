"""One runtime of serving.py, in a process of its own under any interpreter that has NumPy: jobs come in as lines of JSON, results go out.

    serving_worker.py RUNTIME MODEL THREADS

MODEL is an ONNX file, or `training:lstm`, `training:transformer`.
"""

import json
import statistics
import sys
import time

import numpy as np

ROOM = 1024  # places of state that grows


def onnxruntime(path, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


def openvino(path, threads):
    import openvino

    hints = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    model = openvino.Core().compile_model(path, "CPU", hints)
    return lambda feeds: [np.array(value) for value in model(feeds).values()]


def ngraph(path, threads, state=None):
    import ngraph

    if path.startswith("training:"):
        return trained(path, "ngraph")
    model = ngraph.onnx.load(path, state=state, capacity=ROOM if state else None)
    return lambda feeds: model.run(None, feeds)


def torch(path, threads):
    import torch

    torch.set_num_threads(threads)
    return trained(path, "torch")


def trained(path, runtime):
    import serving_training

    step = serving_training.steps(path.partition(":")[2], runtime)
    return lambda feeds: [step(*feeds.values())]


def drawn(inputs, seed, integers):
    """The inputs of a call: {name: array} for [name, dtype, shape]. `integers` has the first and the last value."""
    random, found = np.random.default_rng(seed), {}
    for name, dtype, shape in inputs:
        if dtype.startswith(("int", "uint")):
            low, high = integers.get(name, (0, 99))
            found[name] = random.integers(low, high, shape, dtype, endpoint=True)
        elif dtype == "bool":
            found[name] = random.random(shape) < 0.5
        else:
            found[name] = random.standard_normal(shape).astype(dtype)
    return found


class Worker:
    """A runtime and its model, made in the first call."""

    def __init__(self, runtime, path, threads):
        self.make, self.run = lambda *state: globals()[runtime](path, threads, *state), None
        self.path, self.threads, self.last = path, threads, []

    def feeds(self, job, inputs, seed):
        """The inputs of a call, results of the last one among them: {input: which result}."""
        found = drawn(inputs, seed, job["integers"])
        if self.last and not job["kept"]:
            found.update({name: self.last[k] for name, k in job["back"].items()})
        return found

    def calls(self, job):
        """Seconds of each call, and the mean magnitude of each result."""
        times, means = [], []
        for inputs, seed in job["calls"]:
            feeds = self.feeds(job, inputs, seed)
            feeds = {name: array for name, array in feeds.items() if name not in job["kept"]}
            start = time.perf_counter()
            if self.run is None:
                self.run = self.make(job["kept"]) if job["kept"] else self.make()
            self.last = self.run(feeds)
            times.append(time.perf_counter() - start)
            means.append([magnitude(array) for array in self.last])
        return {"times": times, "means": means}

    def open(self, job):
        """For each of these calls, in ngraph: seconds with code for open lengths, with code for its own lengths, and of both by kernels."""
        import ngraph

        with ngraph.config(lengths="open"):
            loaded = ngraph.onnx.load(self.path)
            for inputs, seed in job["warm"]:
                loaded.run(drawn(inputs, seed, job["integers"]))
        found = []
        for inputs, seed in job["calls"]:
            feeds = drawn(inputs, seed, job["integers"])
            with ngraph.config(lengths="first"):
                exact = ngraph.onnx.load(self.path)
                exact.run(feeds)
            pairs = [[timed(model, feeds) for model in (loaded, exact)] for _ in range(job["times"])]
            both = [statistics.median(side) for side in zip(*pairs, strict=True)]
            found.append([*both, kernels(*[profiled(model, feeds, job["times"]) for model in (loaded, exact)])])
        return {"open": found}


def magnitude(array):
    array = np.asarray(array)
    return float(np.abs(array.astype(np.float64)).mean()) if array.size and array.dtype.kind in "fiub" else 0.0


def timed(model, feeds):
    start = time.perf_counter()
    model.run(feeds)
    return time.perf_counter() - start


def profiled(model, feeds, calls):
    """The kernels of a call: the user's nodes in it, its seconds."""
    about = model.about.bound(feeds)
    rows = []
    for computation, arguments in model.reader.computations(about):
        rows += [(row.lines or (row.ops,), row.seconds) for row in computation.profile(*arguments, calls=calls).rows]
    return rows


def kernels(*sides):
    """Kernels that have nodes in common, grouped: their nodes, seconds on each side."""
    groups = []
    for side, rows in enumerate(sides):
        for nodes, seconds in rows:
            merged = (set(nodes), [seconds * (k == side) for k in range(len(sides))])
            for group in [g for g in groups if not g[0].isdisjoint(nodes)]:
                groups.remove(group)
                merged = (merged[0] | group[0], [a + b for a, b in zip(merged[1], group[1], strict=True)])
            groups.append(merged)
    return [(sorted(nodes), *seconds) for nodes, seconds in groups]


def main():
    runtime, path, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    worker = Worker(runtime, path, threads)
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(getattr(worker, job["do"])(job)), flush=True)


if __name__ == "__main__":
    main()

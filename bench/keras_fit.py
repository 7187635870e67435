"""`fit` of five models on Keras's backends: `python bench/keras_fit.py ngraph=PYTHON jax=PYTHON tensorflow=PYTHON torch=PYTHON`.

Each backend runs in a process of its own, by the Python that is named for it, on two threads. The processes take turns: a turn is one
`fit` over some batches, data and weights being the same. The first two turns of each (compilation) are not counted, and printed apart.
A ratio is the median, over the rounds, of the fastest other backend's seconds in a round by ngraph's: above 1 ngraph is faster. `--build`
times the building of ResNet50 in fresh processes instead.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

THREADS = "2"
MODELS = {"mlp": (128, 40), "cnn": (64, 12), "resnet20": (32, 4), "lstm": (64, 8), "transformer": (32, 10)}  # batch, batches in a turn


# ---- a process of one backend ------------------------------------------------------------------------------------------


def resnet20() -> Any:
    """Returns a ResNet of 20 layers for ten classes of 32 x 32 x 3 pixels."""
    import keras
    from keras import layers

    given = keras.Input((32, 32, 3))
    h = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(16, 3, padding="same", use_bias=False)(given)))
    for stage, width in enumerate((16, 32, 64)):
        for block in range(3):
            step = 2 if stage and not block else 1
            inner = layers.Conv2D(width, 3, strides=step, padding="same", use_bias=False)(h)
            inner = layers.ReLU()(layers.BatchNormalization()(inner))
            inner = layers.BatchNormalization()(layers.Conv2D(width, 3, padding="same", use_bias=False)(inner))
            h = layers.Conv2D(width, 1, strides=step, use_bias=False)(h) if step == 2 else h
            h = layers.ReLU()(layers.Add()([h, inner]))
    return keras.Model(given, layers.Dense(10)(layers.GlobalAveragePooling2D()(h)))


def build(name: str) -> tuple[Any, Any, Any]:
    """Returns a compiled model and its data; weights and data come from NumPy, so that all backends have the same."""
    import keras
    import numpy as np
    from keras import layers

    rng = np.random.default_rng(1)
    batch, many = MODELS[name]
    rows = batch * many
    if name == "mlp":
        x = rng.normal(size=(rows, 784)).astype("float32")
        hidden = [layers.Dense(n, activation="relu") for n in (512, 256)]
        model = keras.Sequential([keras.Input((784,)), hidden[0], layers.Dropout(0.2), hidden[1], layers.Dense(10)])
    elif name == "cnn":
        x = rng.normal(size=(rows, 28, 28, 1)).astype("float32")
        parts: list[Any] = [keras.Input((28, 28, 1))]
        for width in (32, 64):
            parts += [layers.Conv2D(width, 3, activation="relu"), layers.MaxPooling2D()]
        model = keras.Sequential([*parts, layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(10)])
    elif name == "resnet20":
        x = rng.normal(size=(rows, 32, 32, 3)).astype("float32")
        model = resnet20()
    elif name == "lstm":
        x = rng.integers(1, 5000, size=(rows, 80)).astype("int32")
        model = keras.Sequential([keras.Input((80,), dtype="int32"), layers.Embedding(5000, 64), layers.LSTM(64), layers.Dense(10)])
    else:
        x = rng.integers(1, 2000, size=(rows, 64)).astype("int32")
        given = keras.Input((64,), dtype="int32")
        h = layers.Embedding(2000, 64)(given)
        for _ in range(2):
            h = layers.LayerNormalization()(h + layers.MultiHeadAttention(4, 16)(h, h))
            h = layers.LayerNormalization()(h + layers.Dense(64)(layers.Dense(128, activation="gelu")(h)))
        model = keras.Model(given, layers.Dense(10)(layers.GlobalAveragePooling1D()(h)))
    model.set_weights(
        [(rng.normal(size=w.shape) / math.sqrt(w.shape[0])).astype("float32") if w.ndim > 1 else w for w in model.get_weights()]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.001), loss, metrics=["accuracy"])
    return model, x, rng.integers(0, 10, size=rows).astype("int32")


def chosen(backend: str) -> None:
    """Imports Keras on a backend, with two threads."""
    sys.path = [p for p in sys.path if p != os.path.dirname(os.path.abspath(__file__))]  # where a file is called tensorflow.py
    if backend == "ngraph":
        import ngraph.keras  # noqa: F401
    else:
        os.environ["KERAS_BACKEND"] = backend
    import keras  # noqa: F401

    if backend == "torch":
        import torch

        torch.set_num_threads(int(THREADS))
    if backend == "tensorflow":
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(int(THREADS))


def work(backend: str, clock: Callable[[], float]) -> None:
    """Answers each line of standard input, the name of a model, by the seconds and the loss of a `fit` of it."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    chosen(backend)
    made: dict[str, Any] = {}
    for line in sys.stdin:
        name = line.strip()
        start = clock()
        if name not in made:
            made[name] = build(name)
        model, x, y = made[name]
        history = model.fit(x, y, batch_size=MODELS[name][0], epochs=1, shuffle=False, verbose=0)
        print(json.dumps([clock() - start, float(history.history["loss"][0])]), file=out, flush=True)


def build_resnet50(backend: str) -> None:
    """Prints the seconds that building ResNet50 takes, Keras being imported."""
    chosen(backend)
    import keras

    start = time.perf_counter()
    keras.applications.ResNet50(weights=None)
    print(time.perf_counter() - start)


# ---- the one that gives the turns --------------------------------------------------------------------------------------


def environment(backend: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": THREADS, "NGRAPH_NUM_THREADS": THREADS, "TF_CPP_MIN_LOG_LEVEL": "3"}


def compare(pythons: dict[str, str], names: list[str], rounds: int, more: list[str]) -> None:
    command = {b: [p, __file__, "--work", b, *more] for b, p in pythons.items()}
    workers = {
        b: subprocess.Popen(
            command[b], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment(b)
        )
        for b in pythons
    }

    def turn(b: str, name: str) -> list[float]:
        worker = workers[b]
        assert worker.stdin is not None and worker.stdout is not None
        print(name, file=worker.stdin, flush=True)
        return json.loads(worker.stdout.readline() or "null") or sys.exit(f"{b} ended in {name}")

    others = [b for b in pythons if b != "ngraph"]
    print(f"| model | first fit, s: {', '.join(pythons)} | ms of a batch: {', '.join(pythons)} | ngraph to the fastest other | losses |")
    print("| --- | --- | --- | --- | --- |")
    found = []
    for name in names:
        first = {b: turn(b, name) for b in pythons}
        for b in pythons:
            turn(b, name)
        times = [{b: turn(b, name) for b in pythons} for _ in range(rounds)]
        ms = {b: statistics.median(t[b][0] for t in times) / MODELS[name][1] * 1000 for b in pythons}
        ratio = statistics.median(min(t[b][0] for b in others) / t["ngraph"][0] for t in times) if others else math.nan
        found.append(ratio)
        print(
            f"| {name} | {', '.join(f'{first[b][0]:.1f}' for b in pythons)} | {', '.join(f'{ms[b]:.2f}' for b in pythons)} | {ratio:.2f} | "
            f"{', '.join(f'{first[b][1]:.5f}' for b in pythons)} |",
            flush=True,
        )
    print(f"geometric mean {math.exp(statistics.fmean(map(math.log, found))):.2f}")
    for worker in workers.values():
        assert worker.stdin is not None
        worker.stdin.close()
        worker.wait(10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backends", nargs="*", metavar="BACKEND=PYTHON")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--processor", action="store_true", help="processor time instead of the clock, for a machine that others use")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        if given.build:
            build_resnet50(given.work)
        else:
            work(given.work, time.process_time if given.processor else time.perf_counter)
        return
    pythons = dict(pair.split("=", 1) for pair in given.backends)
    if not given.build:
        compare(pythons, given.models, given.rounds, ["--processor"] if given.processor else [])
        return
    for b, p in pythons.items():
        command = [p, __file__, "--build", "--work", b]
        seconds = [float(subprocess.run(command, capture_output=True, text=True, check=True, env=environment(b)).stdout) for _ in range(3)]
        print(f"{b}: ResNet50 built in {statistics.median(seconds):.2f} s")


if __name__ == "__main__":
    main()

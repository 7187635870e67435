"""Keras's fit on TensorFlow with the bridge on against off: steps of five models, in turns in one process, and the median of the ratios.

    make bench-tensorflow [ROWS="mlp cnn"]

Both sides are the same script, model and data; what compiles comes before. A row prints milliseconds of a step without and with the bridge,
off ÷ on (above 1: the bridge is faster), the largest relative difference of losses, seconds of the first epoch, and nodes in clusters.
"""

from __future__ import annotations

import os
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # not this folder, where `tensorflow` would be this file

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers as L  # noqa: E402

from ngraph.frontends.tensorflow import bridge  # noqa: E402

BATCH, STEPS, ROUNDS = 32, 8, 5


def mlp():
    return keras.Sequential([L.Input((784,)), L.Dense(512, "relu"), L.Dense(512, "relu"), L.Dense(10)])


def cnn():
    convolutions = [L.Conv2D(32, 3, activation="relu"), L.MaxPooling2D(), L.Conv2D(64, 3, activation="relu"), L.MaxPooling2D()]
    return keras.Sequential([L.Input((28, 28, 1)), *convolutions, L.Flatten(), L.Dropout(0.5), L.Dense(10)])


def resnet20():
    def normalised(x, channels, size, stride=1):
        return L.BatchNormalization()(L.Conv2D(channels, size, strides=stride, padding="same", use_bias=False)(x))

    def block(x, channels, stride):
        y = normalised(L.ReLU()(normalised(x, channels, 3, stride)), channels, 3)
        if stride > 1:
            x = normalised(x, channels, 1, stride)
        return L.ReLU()(L.Add()([x, y]))

    given = L.Input((32, 32, 3))
    x = L.ReLU()(normalised(given, 16, 3))
    for channels in (16, 32, 64):
        for k in range(3):
            x = block(x, channels, 2 if k == 0 and channels > 16 else 1)
    return keras.Model(given, L.Dense(10)(L.GlobalAveragePooling2D()(x)))


def lstm():
    return keras.Sequential([L.Input((80,), dtype="int32"), L.Embedding(5000, 64), L.LSTM(64), L.Dense(10)])


def transformer():
    given = L.Input((64,), dtype="int32")
    x = L.Embedding(5000, 64)(given)
    for _ in range(2):
        x = L.LayerNormalization()(L.Add()([x, L.MultiHeadAttention(4, 16)(x, x)]))
        x = L.LayerNormalization()(L.Add()([x, L.Dense(64)(L.Dense(256, "gelu")(x))]))
    return keras.Model(given, L.Dense(10)(L.GlobalAveragePooling1D()(x)))


MODELS = {f.__name__: f for f in (mlp, cnn, resnet20, lstm, transformer)}


def side(make, x, y):
    """A compiled model's fit of one epoch, which returns the loss."""
    keras.utils.set_random_seed(1)
    model = make()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return lambda: model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0).history["loss"][0]


def row(name, clock):
    make = MODELS[name]
    rng = np.random.default_rng(0)
    shape, kind = make().input_shape[1:], make().inputs[0].dtype
    x = rng.integers(0, 5000, (BATCH * STEPS, *shape)) if kind == "int32" else rng.random((BATCH * STEPS, *shape), np.float32)
    y = rng.integers(0, 10, BATCH * STEPS)
    fits = [side(make, x, y) for _ in range(2)]
    first, times, losses = [0.0, 0.0], [[], []], [[], []]
    bridge.reset()
    for turn in range(ROUNDS + 2):  # the first compiles; the second has lengths of memory settled
        for k in (0, 1) if turn % 2 else (1, 0):
            (bridge.enable if k else bridge.disable)()
            start = clock() if turn else time.perf_counter()
            losses[k].append(fits[k]())
            took = (clock() if turn else time.perf_counter()) - start
            if turn == 0:
                first[k] = took
            elif turn > 1:
                times[k].append(took / STEPS * 1e3)
    off, on = map(statistics.median, times)
    ratio = statistics.median(a / b for a, b in zip(*times, strict=True))
    apart = max(abs(a - b) / abs(a) for a, b in zip(*losses, strict=True))
    found = bridge.report().json()
    clusters = sum(len(f["clusters"]) for f in found["functions"])
    print(
        f"{name:12} off {off:8.2f} ms  on {on:8.2f} ms  off / on {ratio:5.2f}  losses {apart:.0e} apart  first epoch {first[0]:.1f},"
        f" {first[1]:.1f} s  {found['clustered']} of {found['nodes']} nodes, {clusters} clusters, {found['fallbacks']} fallbacks",
        flush=True,
    )
    return ratio


if __name__ == "__main__":
    asked = [a for a in sys.argv[1:] if not a.startswith("-")] or list(MODELS)
    processor = "--processor" in sys.argv
    ratios = [row(name, time.process_time if processor else time.perf_counter) for name in asked]
    print(f"geometric mean {statistics.geometric_mean(ratios):.2f}, of {'processor time' if processor else 'time'}")

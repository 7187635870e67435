"""Keras with TensorFlow: `fit` with the bridge on against off, and SavedModels that Keras exports beside TensorFlow and OpenVINO.

    make bench-tensorflow [ROWS="mlp cnn"]
    python bench/tensorflow.py --export FOLDER [NAME …]
    python bench/files.py FOLDER --python tensorflow=PATH --python openvino=PATH --python ngraph=PATH
    python bench/tensorflow.py --first FOLDER/resnet50 tensorflow=PATH ngraph=PATH

The first takes steps of five models, in turns in one process, and gives the median of the ratios. Both sides are the same script, model and
data; what compiles comes before. A row prints milliseconds of a step without and with the bridge, off ÷ on (above 1: the bridge is faster),
the largest relative difference of losses, seconds of the first epoch, and nodes in clusters. The second makes cases for bench/files.py. The
third prints the seconds from the start of a process to a model's first answer: of ours without what an earlier start compiled, and with it.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
HERE = os.path.abspath(__file__)
sys.path[0] = os.path.dirname(os.path.dirname(HERE))  # not this folder, where `tensorflow` would be this file

if "--first" not in sys.argv:
    import keras
    import numpy as np
    from keras import layers as L

    from ngraph.frontends.tensorflow import bridge

BATCH, STEPS, ROUNDS = 32, 40, 5  # with few steps the start of `fit` is most of the time


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


# ---- exports


def application(name, size=224):
    """A network of `keras.applications` with numbers drawn for what its normalisations have gathered in training."""
    model = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classifier_activation=None)
    rng = np.random.default_rng(0)
    for layer in model.layers:
        if isinstance(layer, L.BatchNormalization):
            for variable in layer.variables:
                low = 0.5 if "variance" in variable.name or "gamma" in variable.name else -0.1
                variable.assign(rng.uniform(low, low + 1.0 if low > 0 else 0.1, variable.shape))
    return model


def attention():
    given = L.Input((128, 256))
    return keras.Model(given, L.MultiHeadAttention(8, 32)(given, given))


EXPORTS = {  # a model, and the batch that it gets
    "mobilenetv2": (lambda: application("MobileNetV2"), 1),
    "resnet50": (lambda: application("ResNet50"), 1),
    "inceptionv3": (lambda: application("InceptionV3", 299), 1),
    "lstm": (lambda: keras.Sequential([L.Input((80, 128)), L.LSTM(128)]), 8),
    "bidirectional_gru": (lambda: keras.Sequential([L.Input((80, 128)), L.Bidirectional(L.GRU(128, return_sequences=True))]), 8),
    "convlstm2d": (lambda: keras.Sequential([L.Input((10, 32, 32, 3)), L.ConvLSTM2D(32, 3, padding="same")]), 1),
    "attention": (attention, 8),
}


def export(folder, wanted):
    """Exports models as SavedModels with an open batch, each a case for bench/files.py."""
    for name in wanted or EXPORTS:
        make, batch = EXPORTS[name]
        keras.utils.set_random_seed(1)
        model, home = make(), os.path.join(folder, name)
        shutil.rmtree(home, ignore_errors=True)
        model.export(os.path.join(home, "saved_model"), verbose=False)
        (signature,) = keras.tree.flatten(model.inputs)
        feed = np.random.default_rng(1).standard_normal((batch, *signature.shape[1:]), np.float32)
        np.savez(os.path.join(home, "inputs.npz"), **{signature.name: feed})


# ---- the first answer

PROGRAMS = {  # what a user would write; answers go to standard output, so that all have given one
    "ngraph": "import ngraph as ng; model = ng.tensorflow.load(path); print(float(np.sum(model(x))))",
    "tensorflow": "import tensorflow as tf; model = tf.saved_model.load(path);"
    " print(float(sum(tf.reduce_sum(v) for v in model.signatures['serving_default'](tf.constant(x)).values())))",
}


def first(home, pythons, rounds=3):
    """Prints medians of the seconds that processes take from their start to the first answer of a model."""
    cache = tempfile.mkdtemp()
    cases = [(name, name, name == "ngraph") for name in pythons] + [("ngraph, second start", "ngraph", False)]
    times = {case: [] for case, _, _ in cases}
    for _ in range(rounds):
        for case, name, empty in cases:
            if empty:
                shutil.rmtree(cache, ignore_errors=True)
            program = f"import sys, numpy as np; sys.path.insert(0, {sys.path[0]!r}); path = {os.path.join(home, 'saved_model')!r}"
            program += f"; (x,) = np.load({os.path.join(home, 'inputs.npz')!r}).values(); {PROGRAMS[name]}"
            start = time.perf_counter()
            kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {"NGRAPH_CACHE": cache}
            subprocess.run([pythons[name], "-c", program], check=True, capture_output=True, env=kept)
            times[case].append(time.perf_counter() - start)
    print(json.dumps({case: round(statistics.median(t), 2) for case, t in times.items()}))
    shutil.rmtree(cache, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--export"]:
        export(sys.argv[2], sys.argv[3:])
        sys.exit()
    if sys.argv[1:2] == ["--first"]:
        first(sys.argv[2], dict(p.split("=", 1) for p in sys.argv[3:]))
        sys.exit()
    asked = [a for a in sys.argv[1:] if not a.startswith("-")] or list(MODELS)
    processor = "--processor" in sys.argv
    ratios = [row(name, time.process_time if processor else time.perf_counter) for name in asked]
    print(f"geometric mean {statistics.geometric_mean(ratios):.2f}, of {'processor time' if processor else 'time'}")

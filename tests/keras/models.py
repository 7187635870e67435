"""Six models and their losses over 50 steps: `python tests/keras/models.py jax out.json` records those of another backend."""

import json
import os
import runpy
import sys

import numpy as np

STEPS, BATCH, MANY = 50, 32, 330  # the last batch of an epoch is short


def build(name):
    """The model of this name and its data; weights and data come from NumPy, so that all backends have the same."""
    import keras
    from keras import layers

    rng = np.random.default_rng(sum(map(ord, name)))
    words = rng.integers(0, 50, size=(MANY, 12)).astype("int32")
    if name == "mlp":
        x = rng.normal(size=(MANY, 20)).astype("float32")
        parts = [keras.Input((20,)), layers.Dense(64, activation="relu"), layers.LayerNormalization(), layers.Dense(10)]
        model = keras.Sequential(parts)
    elif name == "cnn":
        x = rng.normal(size=(MANY, 16, 16, 3)).astype("float32")
        model = keras.Sequential(
            [
                keras.Input((16, 16, 3)),
                layers.Conv2D(8, 3, padding="same", activation="relu"),
                layers.BatchNormalization(),
                layers.MaxPooling2D(),
                layers.Conv2D(16, 3, strides=2, activation="relu"),
                layers.GlobalAveragePooling2D(),
                layers.Dense(10),
            ]
        )
    elif name == "lstm":
        x = words
        model = keras.Sequential([keras.Input((12,), dtype="int32"), layers.Embedding(50, 16), layers.LSTM(24), layers.Dense(10)])
    elif name == "masked_gru":
        x = words
        inner = layers.Bidirectional(layers.GRU(24))
        model = keras.Sequential([keras.Input((12,), dtype="int32"), layers.Embedding(50, 16, mask_zero=True), inner, layers.Dense(10)])
    elif name == "resnet20":
        x = rng.normal(size=(MANY, 32, 32, 3)).astype("float32")
        model = runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "keras_fit.py"))["resnet20"]()
    else:
        x = words
        given = keras.Input((12,), dtype="int32")
        h = layers.Embedding(50, 32)(given)
        for _ in range(2):
            h = layers.LayerNormalization()(h + layers.MultiHeadAttention(4, 8)(h, h))
            h = layers.LayerNormalization()(h + layers.Dense(32)(layers.Dense(64, activation="gelu")(h)))
        model = keras.Model(given, layers.Dense(10)(layers.GlobalAveragePooling1D()(h)))
    model.set_weights([drawn(rng, w) if w.ndim > 1 else w for w in map(np.array, model.get_weights())])
    return model, x, rng.integers(0, 10, size=MANY).astype("int32")


def drawn(rng, w):
    return (rng.normal(size=w.shape) / np.sqrt(w.shape[0])).astype("float32")


def losses(name, epochs=5, **compiled):
    """The running losses after each step of training, and the model."""
    import keras

    model, x, y = build(name)
    found = []

    class Kept(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            found.append(float(logs["loss"]))

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.003, clipnorm=1.0), loss, metrics=["accuracy"], **compiled)
    model.fit(x, y, batch_size=BATCH, epochs=epochs, shuffle=False, verbose=0, callbacks=[Kept()])
    return found[:STEPS], model


if __name__ == "__main__":
    backend, out = sys.argv[1:3]
    if backend == "ngraph":
        import ngraph.keras  # noqa: F401
    else:
        os.environ["KERAS_BACKEND"] = backend
    recorded = {name: [round(v, 7) for v in losses(name)[0]] for name in ("mlp", "cnn", "lstm", "masked_gru", "transformer", "resnet20")}
    with open(out, "w", encoding="utf-8") as file:
        json.dump(recorded, file)

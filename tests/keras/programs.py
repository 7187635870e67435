"""Programs as users of Keras write them, at small size: `programs.py ngraph|jax OUT [NAME...]` writes the numbers that each one gives.

Weights and data come from NumPy, so that backends agree but for rounding. A program returns a nest of numbers: losses, metrics and
predictions. `programs.py compare OURS THEIRS` prints the largest difference of each, relative to the number or 1, whichever is larger.
`programs.py record OUT JSON` keeps the numbers of those that tests run (QUICK).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback

import numpy as np

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def rng_of(name):
    return np.random.default_rng(sum(map(ord, name)))


def drawn(model, seed=0):
    """The model with weights from NumPy."""
    rng = np.random.default_rng(seed)
    for w in model.weights:
        if len(w.shape) > 1 or w.path.endswith("additive_attention/scale"):
            w.assign((rng.normal(size=w.shape) / np.sqrt(w.shape[0] if len(w.shape) == 2 else np.prod(w.shape[:-1]))).astype("float32"))
    return model


def trained(model, x, y, loss="mse", epochs=3, batch_size=16, metrics=(), optimizer=None, compiled=None, **fit):
    import keras

    drawn(model)
    model.compile(optimizer or keras.optimizers.Adam(0.01), loss, metrics=list(metrics), **(compiled or {}))
    return model.fit(x, y, batch_size=batch_size, epochs=epochs, shuffle=False, verbose=0, **fit).history


def rows(*shape, name="rows"):
    return rng_of(name).normal(size=shape).astype("float32")


def classes(n, many, name="classes"):
    return rng_of(name).integers(0, many, n).astype("int32")


# ---- models -------------------------------------------------------------------------------------------------------------


@program
def functional_two_inputs_two_outputs():
    import keras
    from keras import layers

    title, body = keras.Input((None,), dtype="int32", name="title"), keras.Input((None,), dtype="int32", name="body")
    tags = keras.Input((12,), name="tags")
    t = layers.LSTM(8)(layers.Embedding(50, 6)(title))
    b = layers.LSTM(5)(layers.Embedding(50, 6)(body))
    h = layers.concatenate([t, b, tags])
    model = keras.Model([title, body, tags], {"priority": layers.Dense(1, name="priority")(h), "department": layers.Dense(4)(h)})
    x = {"title": rng_of("t").integers(0, 50, (50, 7)), "body": rng_of("b").integers(0, 50, (50, 11)), "tags": rows(50, 12)}
    y = {"priority": rng_of("p").integers(0, 2, (50, 1)).astype("float32"), "department": classes(50, 4)}
    loss = {
        "priority": keras.losses.BinaryCrossentropy(from_logits=True),
        "department": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    }
    drawn(model)
    model.compile(keras.optimizers.RMSprop(0.01), loss, loss_weights={"priority": 1.0, "department": 0.2})
    return model.fit(x, y, epochs=3, batch_size=16, shuffle=False, verbose=0).history


@program
def subclassed_with_nested_layers():
    import keras
    from keras import layers, ops

    class Block(layers.Layer):
        def __init__(self, width):
            super().__init__()
            self.a, self.b = layers.Dense(width, "relu"), layers.Dense(width)
            self.norm = layers.LayerNormalization()

        def call(self, x):
            return self.norm(x + self.b(self.a(x)))

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.first, self.blocks, self.last = layers.Dense(12), [Block(12) for _ in range(2)], layers.Dense(3)

        def call(self, x, training=False):
            h = self.first(x)
            for block in self.blocks:
                h = block(h)
            return ops.softmax(self.last(h))

    model, x = Net(), rows(50, 9)
    model(x[:2])
    return trained(model, x, classes(50, 3), "sparse_categorical_crossentropy", metrics=["accuracy"])


@program
def custom_layer_with_add_loss_and_add_weight():
    import keras
    from keras import layers, ops

    class Scaled(layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")
            self.seen = self.add_weight(shape=(), initializer="zeros", trainable=False, name="seen")

        def call(self, x):
            self.add_loss(1e-2 * ops.sum(ops.square(self.scale)))
            self.seen.assign_add(ops.cast(ops.shape(x)[0], "float32"))
            return x * self.scale

    model = keras.Sequential([keras.Input((6,)), layers.Dense(8, "tanh"), Scaled(), layers.Dense(1)])
    found = trained(model, rows(52, 6), rows(52, 1, name="y"))
    return found, float(model.layers[1].seen.value)


@program
def custom_train_step():
    import keras
    from keras import layers, ops

    backend = keras.backend.backend()

    class Own(keras.Model):
        def __init__(self, **more):
            super().__init__(**more)
            self.one, self.two = layers.Dense(8, "relu"), layers.Dense(1)
            self.mean, self.mae = keras.metrics.Mean("loss"), keras.metrics.MeanAbsoluteError("mae")

        @property
        def metrics(self):
            return [self.mean, self.mae]

        def call(self, x, training=False):
            return self.two(self.one(x))

        if backend == "ngraph":

            def train_step(self, data):
                import ngraph.keras

                x, y = data

                def loss(_):
                    predicted = self(x, training=True)
                    return ops.mean(ops.square(predicted - y)), predicted

                (value, predicted), grads = ngraph.keras.value_and_grad(loss, has_aux=True)(self.trainable_variables)
                self.optimizer.apply(grads, self.trainable_variables)
                self.mean.update_state(value)
                self.mae.update_state(y, predicted)
                return {m.name: m.result() for m in self.metrics}

        else:

            def train_step(self, state, data):
                import jax

                x, y = data
                trainable, rest, optimizer, metrics = state

                def loss(trainable):
                    predicted, _ = self.stateless_call(trainable, rest, x, training=True)
                    return ops.mean(ops.square(predicted - y)), predicted

                (value, predicted), grads = jax.value_and_grad(loss, has_aux=True)(trainable)
                trainable, optimizer = self.optimizer.stateless_apply(optimizer, grads, trainable)
                new, logs = [], {}
                for m, given in ((self.mean, (value,)), (self.mae, (y, predicted))):
                    own = [metrics[k] for k, v in enumerate(self.metrics_variables) if any(v is w for w in m.variables)]
                    own = m.stateless_update_state(own, *given)
                    logs[m.name] = m.stateless_result(own)
                    new += own
                return logs, (trainable, rest, optimizer, new)

    model, x = Own(), rows(50, 5)
    model(x[:1])
    drawn(model)
    model.compile(keras.optimizers.Adam(0.01))
    return model.fit(x, rows(50, 1, name="y"), epochs=3, batch_size=16, shuffle=False, verbose=0).history


def gradients_of(loss, variables):
    """A function of arrays that gives the loss and its gradients, on the backend that runs."""
    import keras

    if keras.backend.backend() == "ngraph":
        import ngraph.keras

        return ngraph.keras.value_and_grad(loss), ngraph.keras.jit
    import jax

    return jax.value_and_grad(loss), jax.jit


@program
def gan_by_a_loop():
    import keras
    from keras import layers, ops

    make = keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(49 * 4),
            layers.LeakyReLU(0.2),
            layers.Reshape((7, 7, 4)),
            layers.Conv2DTranspose(4, 4, strides=2, padding="same"),
            layers.LeakyReLU(0.2),
            layers.Conv2D(1, 5, padding="same", activation="sigmoid"),
        ]
    )
    judge = keras.Sequential(
        [
            keras.Input((14, 14, 1)),
            layers.Conv2D(4, 3, strides=2, padding="same"),
            layers.LeakyReLU(0.2),
            layers.GlobalMaxPooling2D(),
            layers.Dense(1),
        ]
    )
    drawn(make, 1), drawn(judge, 2)
    optimizers = [keras.optimizers.Adam(3e-3, beta_1=0.5) for _ in range(2)]
    for o, m in zip(optimizers, (make, judge), strict=True):
        o.build(m.trainable_variables)
    entropy = keras.losses.BinaryCrossentropy(from_logits=True)

    def judged(j, m, real, noise):
        fake, _ = make.stateless_call(m, [], noise)
        logits, _ = judge.stateless_call(j, [], ops.concatenate([fake, real]))
        return entropy(ops.concatenate([ops.ones((noise.shape[0], 1)), ops.zeros((real.shape[0], 1))]), logits)

    def fooled(m, j, noise):
        fake, _ = make.stateless_call(m, [], noise)
        logits, _ = judge.stateless_call(j, [], fake)
        return entropy(ops.zeros((noise.shape[0], 1)), logits)

    by_judge, jit = gradients_of(judged, None)
    by_make, _ = gradients_of(fooled, None)

    def step(m, j, ms, js, real, noise):
        a, grads = by_judge(j, m, real, noise)
        j, js = optimizers[1].stateless_apply(js, grads, j)
        b, grads = by_make(m, j, noise)
        m, ms = optimizers[0].stateless_apply(ms, grads, m)
        return a, b, m, j, ms, js

    step = jit(step)
    state = [
        [v.value for v in vs]
        for vs in (make.trainable_variables, judge.trainable_variables, optimizers[0].variables, optimizers[1].variables)
    ]
    losses = []
    for k in range(8):
        a, b, *state = step(*state, abs(rows(6, 14, 14, 1, name=f"r{k}")), rows(6, 4, name=f"n{k}"))
        losses.append([float(a), float(b)])
    return losses


@program
def variational_autoencoder():
    import keras
    from keras import layers, ops

    class Sampling(layers.Layer):
        def call(self, inputs):
            mean, log_var, noise = inputs
            self.add_loss(-0.5 * ops.mean(ops.sum(1 + log_var - ops.square(mean) - ops.exp(log_var), axis=1)))
            return mean + ops.exp(0.5 * log_var) * noise

    given, noise = keras.Input((12, 12, 1)), keras.Input((2,))
    h = layers.Conv2D(4, 3, activation="relu", strides=2, padding="same")(given)
    h = layers.Dense(8, "relu")(layers.Flatten()(h))
    z = Sampling()([layers.Dense(2)(h), layers.Dense(2)(h), noise])
    h = layers.Reshape((6, 6, 4))(layers.Dense(144, "relu")(z))
    h = layers.Conv2DTranspose(4, 3, activation="relu", strides=2, padding="same")(h)
    model = keras.Model([given, noise], layers.Conv2DTranspose(1, 3, activation="sigmoid", padding="same")(h))
    x = 1 / (1 + np.exp(-rows(40, 12, 12, 1)))
    return trained(model, [x, rows(40, 2, name="n")], x, "binary_crossentropy")


@program
def siamese_with_contrastive_loss():
    import keras
    from keras import layers, ops

    def distance(pair):
        return ops.sqrt(ops.maximum(ops.sum(ops.square(pair[0] - pair[1]), axis=1, keepdims=True), keras.backend.epsilon()))

    def contrastive(y, d):
        return ops.mean((1 - y) * ops.square(d) + y * ops.square(ops.maximum(1 - d, 0)))

    base = keras.Sequential(
        [
            keras.Input((14, 14, 1)),
            layers.BatchNormalization(),
            layers.Conv2D(4, 5, activation="tanh"),
            layers.AveragePooling2D(2),
            layers.Flatten(),
            layers.BatchNormalization(),
            layers.Dense(10, "tanh"),
        ]
    )
    a, b = keras.Input((14, 14, 1)), keras.Input((14, 14, 1))
    d = layers.Lambda(distance, output_shape=(1,))([base(a), base(b)])
    model = keras.Model([a, b], layers.Dense(1, "sigmoid")(layers.BatchNormalization()(d)))
    y = classes(40, 2).astype("float32")[:, None]
    return trained(model, [rows(40, 14, 14, 1), rows(40, 14, 14, 1, name="o")], y, contrastive, metrics=["accuracy"])


def encoder(x, heads=2, width=8):
    from keras import layers

    h = layers.LayerNormalization(epsilon=1e-6)(x)
    x = x + layers.MultiHeadAttention(heads, width)(h, h)
    h = layers.LayerNormalization(epsilon=1e-6)(x)
    return x + layers.Conv1D(x.shape[-1], 1)(layers.Conv1D(12, 1, activation="relu")(h))


@program
def transformer_timeseries_classifier():
    import keras
    from keras import layers

    given = keras.Input((31, 1))
    h = encoder(encoder(given))
    h = layers.GlobalAveragePooling1D(data_format="channels_last")(h)
    model = keras.Model(given, layers.Dense(2, "softmax")(layers.Dense(8, "relu")(h)))
    return trained(model, rows(40, 31, 1), classes(40, 2), "sparse_categorical_crossentropy", metrics=["sparse_categorical_accuracy"])


@program
def transformer_text_classifier_with_mask():
    import keras
    from keras import layers, ops

    class Placed(layers.Layer):
        def __init__(self):
            super().__init__()
            self.words, self.places = layers.Embedding(40, 8, mask_zero=True), layers.Embedding(15, 8)
            self.supports_masking = True

        def call(self, x):
            return self.words(x) + self.places(ops.arange(0, ops.shape(x)[-1], 1))

        def compute_mask(self, x, mask=None):
            return self.words.compute_mask(x)

    given = keras.Input((15,), dtype="int32")
    h = Placed()(given)
    h = layers.LayerNormalization()(h + layers.MultiHeadAttention(2, 4)(h, h))
    h = layers.GlobalAveragePooling1D()(h)
    model = keras.Model(given, layers.Dense(2)(h))
    x = rng_of("x").integers(1, 40, (45, 15)) * (np.arange(15) < rng_of("l").integers(1, 15, (45, 1)))
    return trained(model, x, classes(45, 2), keras.losses.SparseCategoricalCrossentropy(from_logits=True))


@program
def sequence_to_sequence_lstm():
    import keras
    from keras import layers

    source, target = keras.Input((None, 9)), keras.Input((None, 7))
    _, h, c = layers.LSTM(8, return_state=True, name="enc")(source)
    out, _, _ = layers.LSTM(8, return_sequences=True, return_state=True, name="dec")(target, initial_state=[h, c])
    model = keras.Model([source, target], layers.Dense(7, activation="softmax")(out))
    eye = np.eye(9, dtype="float32")
    x = [eye[rng_of("s").integers(0, 9, (40, 6))], np.eye(7, dtype="float32")[rng_of("t").integers(0, 7, (40, 10))]]
    y = np.roll(x[1], -1, axis=1)
    found = trained(model, x, y, "categorical_crossentropy", metrics=["accuracy"], validation_split=0.2)
    # inference step by step, with the layers of the trained model
    encoder_model = keras.Model(source, [h, c])
    state = [keras.Input((8,)), keras.Input((8,))]
    o, hh, cc = model.get_layer("dec")(target, initial_state=state)
    step = keras.Model([target, *state], [model.layers[-1](o), hh, cc])
    states = encoder_model.predict(x[0][:2], verbose=0)
    word, said = np.zeros((2, 1, 7), "float32"), []
    for _ in range(4):
        p, *states = step.predict([word, *states], verbose=0)
        word = np.eye(7, dtype="float32")[p[:, -1:].argmax(-1)]
        said.append(p)
    return found, np.array(said)


@program
def timeseries_forecast_with_gru():
    import keras
    from keras import layers

    series = np.cumsum(rows(120, 3), axis=0) / 5
    windows = np.stack([series[i : i + 12] for i in range(100)])
    targets = series[12:112, :1]
    model = keras.Sequential(
        [keras.Input((12, 3)), layers.GRU(6, return_sequences=True), layers.GRU(5, reset_after=False), layers.Dense(1)]
    )
    return trained(model, windows, targets, "mae", validation_split=0.25)


@program
def convolutional_autoencoder():
    import keras
    from keras import layers

    given = keras.Input((14, 14, 1))
    h = layers.MaxPooling2D(2, padding="same")(layers.Conv2D(6, 3, activation="relu", padding="same")(given))
    h = layers.MaxPooling2D(2, padding="same")(layers.Conv2D(6, 3, activation="relu", padding="same")(h))
    h = layers.Conv2DTranspose(6, 3, strides=2, activation="relu", padding="same")(h)
    h = layers.Cropping2D(((0, 1), (1, 0)))(layers.UpSampling2D(2, interpolation="bilinear")(h))
    model = keras.Model(given, layers.Conv2D(1, 2, activation="sigmoid", padding="valid")(layers.ZeroPadding2D(0)(h)))
    x = (abs(rows(30, 14, 14, 1)) / 4).clip(0, 1)
    return trained(model, x, x, "binary_crossentropy") if model.output_shape[1:] == (14, 14, 1) else model.output_shape


@program
def mixed_precision():
    import keras
    from keras import layers

    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = keras.Sequential(
            [keras.Input((16,)), layers.Dense(24, "relu"), layers.Dense(3), layers.Activation("softmax", dtype="float32")]
        )
    finally:
        keras.config.set_dtype_policy("float32")
    return trained(model, rows(50, 16), classes(50, 3), "sparse_categorical_crossentropy", optimizer=keras.optimizers.SGD(0.1))


@program
def callbacks():
    import keras
    from keras import layers

    model = keras.Sequential([keras.Input((6,)), layers.Dense(8, "relu"), layers.Dense(1)])
    with tempfile.TemporaryDirectory() as folder:
        given = [
            keras.callbacks.ModelCheckpoint(f"{folder}/best.keras", save_best_only=True, monitor="val_loss"),
            keras.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True),
            keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, min_lr=1e-4),
            keras.callbacks.CSVLogger(f"{folder}/log.csv"),
            keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: None),
            keras.callbacks.TerminateOnNaN(),
            keras.callbacks.BackupAndRestore(f"{folder}/backup"),
        ]
        x, y = rows(50, 6), rows(50, 1, name="y")
        found = trained(model, x, y, epochs=12, validation_data=(rows(20, 6, name="v"), rows(20, 1, name="w")), callbacks=given)
        best = keras.saving.load_model(f"{folder}/best.keras")
        log = np.genfromtxt(f"{folder}/log.csv", delimiter=",", skip_header=1)
        return found, best.predict(x, verbose=0), log, model.predict(x, verbose=0)


@program
def schedules_and_learning_rate_callback():
    import keras
    from keras import layers

    found = []
    for rate in (
        keras.optimizers.schedules.ExponentialDecay(0.02, 3, 0.9, staircase=True),
        keras.optimizers.schedules.CosineDecay(0.001, 6, warmup_target=0.02, warmup_steps=3),
        keras.optimizers.schedules.PiecewiseConstantDecay([3, 6], [0.02, 0.01, 0.001]),
    ):
        model = keras.Sequential([keras.Input((6,)), layers.Dense(8, "relu"), layers.Dense(1)])
        found.append(trained(model, rows(50, 6), rows(50, 1, name="y"), optimizer=keras.optimizers.AdamW(rate)))
    model = keras.Sequential([keras.Input((6,)), layers.Dense(8, "relu"), layers.Dense(1)])
    back = [keras.callbacks.LearningRateScheduler(lambda epoch, lr: lr * 0.7)]
    return found, trained(model, rows(50, 6), rows(50, 1, name="y"), callbacks=back)


@program
def class_weights_and_sample_weights():
    import keras
    from keras import layers

    def made():
        return keras.Sequential([keras.Input((6,)), layers.Dense(8, "relu"), layers.Dense(3)])

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    x, y = rows(50, 6), classes(50, 3)
    a = trained(made(), x, y, loss, metrics=["accuracy"], class_weight={0: 1.0, 1: 5.0, 2: 0.2})
    b = trained(made(), x, y, loss, sample_weight=abs(rows(50)), compiled={"weighted_metrics": ["accuracy"]})
    return a, b


@program
def custom_metrics_and_losses():
    import keras
    from keras import layers, ops

    class Positives(keras.metrics.Metric):
        def __init__(self, name="positives", **more):
            super().__init__(name=name, **more)
            self.count = self.add_variable(shape=(), initializer="zeros", name="count")

        def update_state(self, y, p, sample_weight=None):
            hit = ops.cast(ops.cast(y, "int32") == ops.cast(ops.reshape(ops.argmax(p, axis=1), (-1, 1)), "int32"), "float32")
            self.count.assign_add(ops.sum(hit))

        def result(self):
            return ops.convert_to_tensor(self.count)

        def reset_state(self):
            self.count.assign(0.0)

    class Smooth(keras.losses.Loss):
        def call(self, y, p):
            y = ops.one_hot(ops.reshape(ops.cast(y, "int32"), (-1,)), 3)
            return ops.sum(ops.where(abs(y - p) < 0.5, ops.square(y - p), abs(y - p)), axis=-1)

    model = keras.Sequential([keras.Input((6,)), layers.Dense(8, "relu"), layers.Dense(3, "softmax")])
    metrics = [Positives(), keras.metrics.SparseTopKCategoricalAccuracy(2)]
    return trained(model, rows(50, 6), classes(50, 3)[:, None], Smooth(), metrics=metrics)


@program
def binary_metrics():
    import keras
    from keras import layers

    model = keras.Sequential([keras.Input((6,)), layers.Dense(8, "relu"), layers.Dense(1, "sigmoid")])
    names = [
        keras.metrics.AUC(name="auc"),
        keras.metrics.Precision(name="p"),
        keras.metrics.Recall(name="r"),
        keras.metrics.F1Score(threshold=0.5, name="f"),
        keras.metrics.BinaryIoU(name="i"),
        keras.metrics.SensitivityAtSpecificity(0.5, name="s"),
    ]
    y = classes(50, 2)[:, None].astype("float32")
    return trained(model, rows(50, 6), y, keras.losses.BinaryFocalCrossentropy(), metrics=names)


@program
def steps_per_execution():
    import keras
    from keras import layers

    model = keras.Sequential([keras.Input((6,)), layers.Dense(8, "relu"), layers.BatchNormalization(), layers.Dense(1)])
    x, y = rows(130, 6), rows(130, 1, name="y")
    return trained(model, x, y, compiled={"steps_per_execution": 3}), model.evaluate(x, y, verbose=0), model.predict(x, verbose=0)


@program
def saving_and_loading():
    import keras
    from keras import layers

    @keras.saving.register_keras_serializable(package="own", name=f"Times{time.time_ns()}")
    class Times(layers.Layer):
        def __init__(self, by=2.0, **more):
            super().__init__(**more)
            self.by = by

        def call(self, x):
            return x * self.by

        def get_config(self):
            return {**super().get_config(), "by": self.by}

    given = keras.Input((10, 10, 2))
    h = layers.SeparableConv2D(4, 3, activation="relu")(given)
    h = layers.DepthwiseConv2D(3, depth_multiplier=2)(layers.GroupNormalization(2)(h))
    model = keras.Model(given, layers.Dense(3)(Times(0.5)(layers.GlobalAveragePooling2D()(h))))
    x, y = rows(30, 10, 10, 2), classes(30, 3)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    first = trained(model, x, y, loss)
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/m.keras")
        model.save_weights(f"{folder}/m.weights.h5")
        model.save(f"{folder}/m.h5")
        again = keras.saving.load_model(f"{folder}/m.keras")
        old = keras.saving.load_model(f"{folder}/m.h5")
        third = keras.models.clone_model(model)
        third.load_weights(f"{folder}/m.weights.h5")
        more = again.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0).history  # goes on with the optimizer's state
    same = [float(np.abs(m.predict(x, verbose=0) - model.predict(x, verbose=0)).max()) for m in (old, third)]
    return first, more, same, again.predict(x, verbose=0)


@program
def transfer_learning_with_frozen_layers():
    import keras
    from keras import layers

    base = keras.applications.MobileNetV2(input_shape=(32, 32, 3), include_top=False, weights=None, alpha=0.35)
    drawn(base, 5)
    base.trainable = False
    given = keras.Input((32, 32, 3))
    h = layers.GlobalAveragePooling2D()(base(layers.Rescaling(1 / 127.5, offset=-1)(given), training=False))
    model = keras.Model(given, layers.Dense(1)(h))
    x, y = (rows(24, 32, 32, 3) * 40 + 128).clip(0, 255), classes(24, 2).astype("float32")[:, None]
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    w = np.random.default_rng(7).normal(size=model.layers[-1].kernel.shape).astype("float32") / 30
    model.layers[-1].kernel.assign(w)
    model.compile(keras.optimizers.Adam(0.01), loss)
    a = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history
    for layer in base.layers[-12:]:
        layer.trainable = not isinstance(layer, layers.BatchNormalization)
    model.compile(keras.optimizers.SGD(1e-4), loss)
    b = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history
    return a, b


@program
def time_distributed_and_bidirectional():
    import keras
    from keras import layers

    given = keras.Input((5, 8, 8, 1))
    h = layers.TimeDistributed(layers.Conv2D(3, 3, activation="relu"))(given)
    h = layers.TimeDistributed(layers.Flatten())(h)
    h = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(h)
    h = layers.Bidirectional(layers.GRU(3), merge_mode="sum")(h)
    model = keras.Model(given, layers.Dense(2)(h))
    return trained(model, rows(40, 5, 8, 8, 1), rows(40, 2, name="y"))


@program
def masking_and_recurrent_layers():
    import keras
    from keras import layers

    x = rows(40, 9, 3)
    x[np.arange(9) >= rng_of("l").integers(1, 9, 40)[:, None]] = -10.0
    found = []
    for core in (
        layers.LSTM(5),
        layers.GRU(5),
        layers.SimpleRNN(5),
        layers.Bidirectional(layers.LSTM(4)),
        layers.RNN([layers.LSTMCell(4), layers.GRUCell(3)]),
    ):
        model = keras.Sequential([keras.Input((9, 3)), layers.Masking(-10.0), core, layers.Dense(1)])
        found.append(trained(model, x, rows(40, 1, name="y"), epochs=2)["loss"])
    return found


@program
def embedding_with_mask_zero():
    import keras
    from keras import layers

    given = keras.Input((None,), dtype="int32")
    h = layers.Embedding(30, 6, mask_zero=True, embeddings_regularizer=keras.regularizers.L2(1e-3))(given)
    h = layers.Bidirectional(layers.GRU(5, return_sequences=True))(h)
    model = keras.Model(given, layers.TimeDistributed(layers.Dense(4, "softmax"))(h))
    x = rng_of("x").integers(1, 30, (40, 8)) * (np.arange(8) < rng_of("l").integers(1, 8, (40, 1)))
    y = rng_of("y").integers(0, 4, (40, 8))
    return trained(model, x, y, "sparse_categorical_crossentropy", metrics=["accuracy"])


@program
def decoder_with_causal_attention():
    import keras
    from keras import layers, ops

    class GPT(keras.Model):
        def __init__(self):
            super().__init__()
            self.words, self.places = layers.Embedding(30, 12), layers.Embedding(20, 12)
            self.attention, self.query = layers.MultiHeadAttention(3, 4), layers.GroupQueryAttention(4, 4, 2)
            self.norms, self.last = [layers.LayerNormalization() for _ in range(2)], layers.Dense(30)

        def call(self, x):
            h = self.words(x) + self.places(ops.arange(ops.shape(x)[1]))
            h = h + self.attention(self.norms[0](h), self.norms[0](h), use_causal_mask=True)
            h = h + self.query(self.norms[1](h), self.norms[1](h), use_causal_mask=True)
            return ops.matmul(h, ops.transpose(self.words.embeddings)) + self.last(h)

    model, words = GPT(), rng_of("w").integers(0, 30, (40, 12))
    model(words[:1, :-1])
    found = trained(model, words[:, :-1], words[:, 1:], keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    said = words[:1, :3]
    for _ in range(3):
        said = np.concatenate([said, np.asarray(model(said))[:, -1:].argmax(-1)], axis=1)
    return found, said


@program
def py_dataset_and_generators():
    import keras
    from keras import layers

    class Data(keras.utils.PyDataset):
        def __len__(self):
            return 4

        def __getitem__(self, k):
            return rows(16 if k < 3 else 5, 6, name=f"x{k}"), rows(16 if k < 3 else 5, 1, name=f"y{k}")

    def made():
        return drawn(keras.Sequential([keras.Input((6,)), layers.Dense(8, "relu"), layers.Dense(1)]))

    found = []
    for data, more in ((Data(workers=2, use_multiprocessing=False), {}), ((Data()[k % 4] for k in range(8)), {"steps_per_epoch": 4})):
        model = made()
        model.compile(keras.optimizers.Adam(0.01), "mse")
        found.append(model.fit(data, epochs=2, shuffle=False, verbose=0, **more).history["loss"])
    return found, model.evaluate(Data(), verbose=0), model.predict(Data(), verbose=0)


@program
def augmentation_without_tensorflow():
    import keras
    from keras import layers

    image = (rows(4, 12, 12, 3) * 40 + 128).clip(0, 255)
    given = [
        layers.Resizing(9, 7),
        layers.Resizing(9, 7, crop_to_aspect_ratio=True),
        layers.CenterCrop(8, 6),
        layers.Rescaling(1 / 255),
        layers.RandomFlip("horizontal", seed=1),
        layers.RandomRotation(0.1, seed=1),
        layers.RandomZoom(0.2, seed=1),
        layers.RandomContrast(0.2, seed=1),
        layers.RandomTranslation(0.1, 0.1, seed=1),
        layers.RandomBrightness(0.2, seed=1),
        layers.Solarization(seed=1),
        layers.AutoContrast(),
        layers.Normalization(mean=[1.0, 2, 3], variance=[4.0, 5, 6]),
    ]
    still = [np.asarray(layer(image, training=False)) for layer in given]
    moved = [list(layer(image, training=True).shape) for layer in given]
    model = keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            *given[4:9],
            layers.Rescaling(1 / 255),
            layers.Conv2D(4, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(2),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    drawn(model)
    model.compile("adam", loss)
    fine = np.isfinite(model.fit(image, classes(4, 2), epochs=2, verbose=0).history["loss"]).all()
    return still, moved, bool(fine)


@program
def train_on_batch():
    import keras
    from keras import layers

    model = drawn(keras.Sequential([keras.Input((6,)), layers.Dense(8, "relu"), layers.Dense(1)]))
    model.compile(keras.optimizers.Nadam(0.01), "huber", metrics=["mae"])
    x, y = rows(50, 6), rows(50, 1, name="y")
    found = [model.train_on_batch(x[k : k + 16], y[k : k + 16], return_dict=True) for k in (0, 16, 32, 0, 16)]
    return found, model.test_on_batch(x, y), model.predict_on_batch(x)


@program
def quantize_int8():
    import keras
    from keras import layers

    model = drawn(
        keras.Sequential(
            [
                keras.Input((8,), dtype="int32"),
                layers.Embedding(30, 16),
                layers.Flatten(),
                layers.Dense(24, "relu"),
                layers.EinsumDense("ab,bc->ac", 12, bias_axes="c"),
                layers.Dense(4),
            ]
        )
    )
    x = rng_of("x").integers(0, 30, (30, 8))
    found = [model.predict(x, verbose=0)]
    model.quantize("int8")
    found.append(model.predict(x, verbose=0))
    return found


@program
def lora_on_dense_and_embedding():
    import keras
    from keras import layers

    model = drawn(
        keras.Sequential(
            [keras.Input((8,), dtype="int32"), layers.Embedding(30, 16), layers.Flatten(), layers.Dense(24, "relu"), layers.Dense(4)]
        )
    )
    x, y = rng_of("x").integers(0, 30, (50, 8)), classes(50, 4)
    model.layers[0].enable_lora(4)
    model.layers[2].enable_lora(4)
    found = trained(model, x, y, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    count = [int(np.prod(w.shape)) for w in model.trainable_variables]
    model.quantize("int8")
    return found, count, model.predict(x, verbose=0)


@program
def regularizers_constraints_and_ema():
    import keras
    from keras import layers

    more = {"kernel_regularizer": keras.regularizers.L1L2(1e-3, 1e-2), "kernel_constraint": keras.constraints.MaxNorm(1.0)}
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(8, "relu", **more),
            layers.Dense(8),
            layers.Dense(1, activity_regularizer="l2"),
        ]
    )
    drawn(model)
    optimizer = keras.optimizers.SGD(
        0.05, momentum=0.9, nesterov=True, use_ema=True, ema_momentum=0.9, global_clipnorm=1.0, weight_decay=1e-3
    )
    found = trained(model, rows(50, 6), rows(50, 1, name="y"), optimizer=optimizer, callbacks=[keras.callbacks.SwapEMAWeights()])
    optimizer = keras.optimizers.Adam(0.01, gradient_accumulation_steps=2)
    return found, trained(model, rows(64, 6), rows(64, 1, name="y"), optimizer=optimizer)


@program
def every_optimizer():
    import keras
    from keras import layers

    found = {}
    for name in ("SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax", "Adafactor", "Nadam", "Ftrl", "Lion", "Lamb", "Muon"):
        model = keras.Sequential([keras.Input((6,)), layers.Dense(8, "tanh"), layers.Dense(1)])
        found[name] = trained(model, rows(50, 6), rows(50, 1, name="y"), epochs=2, optimizer=getattr(keras.optimizers, name)(0.01))["loss"]
    return found


@program
def unet_segmentation():
    import keras
    from keras import layers

    given = keras.Input((16, 16, 3))
    h = layers.Activation("relu")(layers.BatchNormalization()(layers.Conv2D(8, 3, strides=2, padding="same")(given)))
    kept = h
    for width in (12, 16):
        h = layers.BatchNormalization()(layers.SeparableConv2D(width, 3, padding="same")(layers.Activation("relu")(h)))
        h = layers.MaxPooling2D(3, strides=2, padding="same")(h)
        kept = h = layers.add([h, layers.Conv2D(width, 1, strides=2, padding="same")(kept)])
    for width in (16, 12, 8):
        h = layers.BatchNormalization()(layers.Conv2DTranspose(width, 3, padding="same")(layers.Activation("relu")(h)))
        h = layers.UpSampling2D(2)(h)
        kept = h = layers.add([h, layers.Conv2D(width, 1, padding="same")(layers.UpSampling2D(2)(kept))])
    model = keras.Model(given, layers.Conv2D(3, 3, activation="softmax", padding="same")(h))
    y = rng_of("y").integers(0, 3, (10, 16, 16))
    return trained(
        model, rows(10, 16, 16, 3), y, "sparse_categorical_crossentropy", epochs=3, batch_size=4, optimizer=keras.optimizers.Adam(1e-3)
    )


@program
def vision_transformer():
    import keras
    from keras import layers, ops

    class Placed(layers.Layer):
        def __init__(self):
            super().__init__()
            self.places = layers.Embedding(9, 8)

        def call(self, x):
            return x + self.places(ops.expand_dims(ops.arange(9), 0))

    class Patches(layers.Layer):
        def call(self, x):
            n, h, w, c = ops.shape(x)
            x = ops.reshape(x, (n, h // 4, 4, w // 4, 4, c))
            return ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (n, -1, 16 * 3))

    given = keras.Input((12, 12, 3))
    h = layers.Dense(8)(Patches()(given))
    h = Placed()(h)
    h = encoder(h)
    model = keras.Model(given, layers.Dense(3)(layers.Flatten()(layers.LayerNormalization(epsilon=1e-6)(h))))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return trained(model, rows(20, 12, 12, 3), classes(20, 3), loss, optimizer=keras.optimizers.AdamW(1e-3), batch_size=8)


@program
def convlstm_next_frame():
    import keras
    from keras import layers

    given = keras.Input((None, 8, 8, 1))
    h = layers.ConvLSTM2D(4, 3, padding="same", return_sequences=True)(given)
    h = layers.ConvLSTM2D(3, 1, padding="same", return_sequences=True)(layers.BatchNormalization()(h))
    model = keras.Model(given, layers.Conv3D(1, 3, activation="sigmoid", padding="same")(h))
    x = (abs(rows(12, 5, 8, 8, 1)) / 4).clip(0, 1)
    return trained(model, x[:, :-1], x[:, 1:], "binary_crossentropy", batch_size=5, epochs=2)


@program
def wavenet_of_dilated_convolutions():
    import keras
    from keras import layers

    given = keras.Input((24, 2))
    h, kept = layers.Conv1D(4, 1)(given), []
    for rate in (1, 2, 4, 8):
        gate = layers.multiply([layers.Conv1D(4, 2, padding="causal", dilation_rate=rate, activation=a)(h) for a in ("tanh", "sigmoid")])
        gate = layers.Conv1D(4, 1)(gate)
        kept.append(gate)
        h = layers.add([h, gate])
    model = keras.Model(given, layers.Conv1D(1, 1)(layers.Activation("relu")(layers.add(kept))))
    return trained(model, rows(30, 24, 2), rows(30, 24, 1, name="y"), keras.losses.LogCosh(), batch_size=8)


@program
def collaborative_filtering():
    import keras
    from keras import layers, ops

    class Recommender(keras.Model):
        def __init__(self):
            super().__init__()
            more = {"embeddings_regularizer": keras.regularizers.l2(1e-6)}
            self.user, self.user_bias = layers.Embedding(20, 5, **more), layers.Embedding(20, 1)
            self.film, self.film_bias = layers.Embedding(30, 5, **more), layers.Embedding(30, 1)

        def call(self, x):
            u, f = x[:, 0], x[:, 1]
            dot = ops.sum(self.user(u) * self.film(f), axis=1, keepdims=True)
            return ops.sigmoid(dot + self.user_bias(u) + self.film_bias(f))

    model, x = Recommender(), np.stack([classes(60, 20), classes(60, 30, "f")], axis=1)
    model(x[:1])
    return trained(model, x, rng_of("y").random((60, 1)).astype("float32"), "binary_crossentropy")


@program
def attention_layers_and_pooling():
    import keras
    from keras import layers

    q, v = keras.Input((6, 8)), keras.Input((9, 8))
    h = layers.concatenate([layers.Attention(use_scale=True, score_mode="concat")([q, v]), layers.AdditiveAttention()([q, v])])
    h = layers.GlobalMaxPooling1D()(layers.PReLU()(layers.Conv1DTranspose(6, 3, strides=2)(h)))
    h = layers.UnitNormalization()(layers.RMSNormalization()(h))
    model = keras.Model([q, v], layers.Dense(1)(layers.Maximum()([h, layers.Dense(6)(h)])))
    return trained(model, [rows(30, 6, 8), rows(30, 9, 8, name="v")], rows(30, 1, name="y"))


@program
def reinforcement_learning_actor_critic():
    import keras
    from keras import layers, ops

    given = keras.Input((4,))
    h = layers.Dense(16, "relu")(given)
    model = drawn(keras.Model(given, [layers.Dense(2, "softmax")(h), layers.Dense(1)(h)]))
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)

    def loss(weights, states, actions, returns):
        (p, value), _ = model.stateless_call(weights, [], states)
        chosen = ops.take_along_axis(p, actions[:, None], axis=1)[:, 0]
        better = returns - value[:, 0]
        return ops.sum(-ops.log(chosen) * ops.stop_gradient(better)) + ops.sum(keras.losses.huber(value, returns[:, None]))

    both, jit = gradients_of(loss, None)

    def step(weights, state, *data):
        value, grads = both(weights, *data)
        weights, state = optimizer.stateless_apply(state, grads, weights)
        return value, weights, state

    step, losses = jit(step), []
    weights, state = [v.value for v in model.trainable_variables], [v.value for v in optimizer.variables]
    for k in range(6):
        value, weights, state = step(weights, state, rows(20, 4, name=f"s{k}"), classes(20, 2, f"a{k}"), rows(20, name=f"r{k}"))
        losses.append(float(value))
    return losses


@program
def knowledge_distillation():
    import keras
    from keras import layers

    def net(width):
        return drawn(keras.Sequential([keras.Input((6,)), layers.Dense(width, "relu"), layers.Dense(3)]), width)

    model = keras.distillation.Distiller(net(16), net(4), distillation_losses=keras.distillation.LogitsDistillation(temperature=2.0))
    model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model.fit(rows(50, 6), classes(50, 3), epochs=3, batch_size=16, shuffle=False, verbose=0).history


@program
def stateful_recurrent_layer():
    import keras
    from keras import layers

    model = keras.Sequential([keras.Input(batch_shape=(4, 5, 2)), layers.LSTM(3, stateful=True), layers.Dense(1)])
    found = trained(model, rows(16, 5, 2), rows(16, 1, name="y"), batch_size=4)
    model.layers[0].reset_state()
    return found


@program
def ctc_and_crf_like_losses():
    import keras
    from keras import layers, ops

    given = keras.Input((14, 5))
    model = keras.Model(given, layers.Dense(7)(layers.Bidirectional(layers.LSTM(6, return_sequences=True))(given)))
    a = trained(model, rows(20, 14, 5), rng_of("y").integers(1, 6, (20, 4)), keras.losses.CTC())

    def dice(y, p):
        p = ops.sigmoid(p)
        return 1 - (2 * ops.sum(y * p, axis=[1, 2]) + 1) / (ops.sum(y, axis=[1, 2]) + ops.sum(p, axis=[1, 2]) + 1)

    b = trained(model, rows(20, 14, 5), (rows(20, 14, 7) > 0).astype("float32"), dice)
    return a, b


# ---- running ------------------------------------------------------------------------------------------------------------


def plain(x):
    if isinstance(x, dict):
        return [plain(v) for _, v in sorted(x.items())]
    return [plain(v) for v in x] if isinstance(x, (list, tuple)) else np.asarray(x).astype("float64").tolist()


def flat(x):
    return [v for y in x for v in flat(y)] if isinstance(x, list) else [x]


QUICK = """custom_train_step class_weights_and_sample_weights custom_metrics_and_losses steps_per_execution train_on_batch
py_dataset_and_generators saving_and_loading collaborative_filtering reinforcement_learning_actor_critic knowledge_distillation
callbacks lora_on_dense_and_embedding binary_metrics""".split()


def record(out, path):
    with open(out, encoding="utf-8") as file:
        found = json.load(file)
    kept = {name: [float(f"{v:.7g}") for v in flat(found[name]["numbers"])] for name in QUICK}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(kept, file)
        file.write("\n")


def compare(ours, theirs):
    with open(ours, encoding="utf-8") as a, open(theirs, encoding="utf-8") as b:
        ours, theirs = json.load(a), json.load(b)
    for name, wanted in theirs.items():
        found = ours.get(name, {"error": "did not run"})
        if "error" in found or "error" in wanted:
            print(f"ERROR {name}: ours {found.get('error')} theirs {wanted.get('error')}")
            continue
        x, y = np.array(flat(found["numbers"])), np.array(flat(wanted["numbers"]))
        apart = float((np.abs(x - y) / np.maximum(1, np.abs(y))).max()) if x.shape == y.shape else np.inf
        print(f"{'ok   ' if apart < 1e-4 else 'APART'} {name}: {apart:.1e} of {len(y)} numbers")


def run(backend, out, names):
    if backend == "ngraph":
        import ngraph.keras  # noqa: F401  # it makes the backend, which Keras looks up when it is imported
    else:
        os.environ["KERAS_BACKEND"] = backend
    import keras

    found = {}
    if os.path.exists(out):
        with open(out, encoding="utf-8") as file:
            found = json.load(file)
    for name in names or PROGRAMS:
        if name in found and not names:
            continue
        start = time.time()
        keras.utils.set_random_seed(1)
        try:
            found[name] = {"numbers": plain(PROGRAMS[name]())}
        except Exception as error:  # a program that fails is a finding
            traceback.print_exc()
            found[name] = {"error": f"{type(error).__name__}: {error}"[:300]}
        found[name]["seconds"] = round(time.time() - start, 2)
        print(name, found[name]["seconds"], found[name].get("error", "")[:100], flush=True)
        with open(out, "w", encoding="utf-8") as file:
            json.dump(found, file)


if __name__ == "__main__":
    if sys.argv[1] in ("compare", "record"):
        {"compare": compare, "record": record}[sys.argv[1]](*sys.argv[2:4])
    else:
        run(sys.argv[1], sys.argv[2], sys.argv[3:])

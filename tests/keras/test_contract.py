"""What Keras promises of training: data of all kinds, weights of samples and classes, added losses, callbacks. Oracle: NumPy."""

import colorsys
import os

import numpy as np
import pytest

import ngraph.keras
from ngraph.errors import NgraphError, NgraphWarning

import keras  # isort: skip  # behind ngraph.keras
from keras import layers, ops  # isort: skip

RNG = np.random.default_rng(5)
X = RNG.normal(size=(12, 3)).astype("float32")
Y = RNG.normal(size=(12, 1)).astype("float32")
RATE, BATCH = 0.1, 4


def model(**compiled):
    made = keras.Sequential([keras.Input((3,)), layers.Dense(1, kernel_initializer="ones")])
    made.compile(keras.optimizers.SGD(RATE), "mse", **compiled)
    return made


def trained(weight=None, decay=0.0, targets=Y):
    """The kernel and the bias after an epoch of gradient descent on the mean of weighted squares, in float64."""
    w, b = np.ones((3, 1)), np.zeros(1)
    weight = np.ones(12) if weight is None else weight
    for k in range(0, 12, BATCH):
        x, y = X[k : k + BATCH].astype("float64"), targets[k : k + BATCH]
        error = (x @ w + b - y) * weight[k : k + BATCH, None] * 2 / BATCH
        w, b = w - RATE * (x.T @ error + 2 * decay * w), b - RATE * error.sum(0)
    return w, b


def batches():
    for k in range(0, 12, BATCH):
        yield X[k : k + BATCH], Y[k : k + BATCH]


class Rows(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, k):
        return X[k * BATCH : (k + 1) * BATCH], Y[k * BATCH : (k + 1) * BATCH]


def loader():
    torch = pytest.importorskip("torch")
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y)), batch_size=BATCH)


@pytest.mark.parametrize("data", [batches, Rows, loader])
def test_data_of_all_kinds(data):
    made = model()
    made.fit(data(), shuffle=False, verbose=0)
    for mine, wanted in zip(made.get_weights(), trained(), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("how", ["samples", "classes"])
def test_weights_of_samples_and_classes(how):
    labels = (np.arange(12) % 2).astype("float32")
    weight = np.where(labels == 1, 3.0, 0.5)
    made = model()
    if how == "samples":
        made.fit(X, Y, batch_size=BATCH, sample_weight=weight, shuffle=False, verbose=0)
        wanted = trained(weight)
    else:
        made.fit(X, labels[:, None], batch_size=BATCH, class_weight={0: 0.5, 1: 3.0}, shuffle=False, verbose=0)
        wanted = trained(weight, targets=labels[:, None])
    for mine, theirs in zip(made.get_weights(), wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_an_added_loss():
    class Decayed(layers.Dense):
        def call(self, x):
            self.add_loss(0.05 * ops.sum(self.kernel * self.kernel))
            return super().call(x)

    made = keras.Sequential([keras.Input((3,)), Decayed(1, kernel_initializer="ones")])
    made.compile(keras.optimizers.SGD(RATE), "mse")
    made.fit(X, Y, batch_size=BATCH, shuffle=False, verbose=0)
    for mine, wanted in zip(made.get_weights(), trained(decay=0.05), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-6)


def test_a_training_that_breaks_off_is_continued(tmp_path):
    class Broken(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise InterruptedError

    def fit(made, *more):
        backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
        made.fit(X, Y, batch_size=BATCH, epochs=4, shuffle=False, verbose=0, callbacks=[backup, *more])

    with pytest.raises(InterruptedError):
        fit(model(), Broken())
    again, whole = model(), model()
    fit(again)
    whole.fit(X, Y, batch_size=BATCH, epochs=4, shuffle=False, verbose=0)
    for mine, wanted in zip(again.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, wanted)


def test_the_best_weights_are_kept(tmp_path):
    made = model()
    path = str(tmp_path / "best.weights.h5")
    kept = keras.callbacks.ModelCheckpoint(path, monitor="val_loss", save_best_only=True, save_weights_only=True)
    history = made.fit(X, Y, batch_size=BATCH, epochs=5, validation_data=(X, Y), shuffle=False, verbose=0, callbacks=[kept]).history
    assert os.path.exists(path)
    other = model()
    other.load_weights(path)
    np.testing.assert_allclose(other.evaluate(X, Y, verbose=0), min(history["val_loss"]), rtol=1e-5)


def test_an_error_names_the_line_of_the_layer_and_the_shapes():
    class Adder(layers.Layer):
        def call(self, x):
            return ops.add(x, ops.ones((3, 7)))

    model = keras.Sequential([Adder(name="adder"), layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(NgraphError, match=r"test_contract\.py:\d+: a dim has length 8 in one, and 3 in another") as found:
        model.fit(np.ones((8, 7), "float32"), np.ones((8, 1), "float32"), verbose=0)
    assert "the shapes are [8, 7] and [3, 7]" in str(found.value) and "'adder'" in str(found.value)
    with pytest.raises(NgraphError, match=r"\[2, 3\] and \[4, 5\]"):
        ops.einsum("ij,jk->ik", np.ones((2, 3)), np.ones((4, 5)))


def test_an_error_shows_an_open_length_as_none():
    model = keras.Sequential([keras.Input((6,)), layers.Dense(1, name="first")])
    with pytest.raises(ValueError, match=r"shape=\(None, 5\)") as found:
        model.predict(np.ones((8, 5), "float32"), verbose=0)
    assert "OpenLength" not in str(found.value) and "'first'" in str(found.value)


def test_a_metric_that_counts_elements_of_an_open_batch():
    """R2Score adds the number of elements to a variable; the last of these batches is shorter."""
    made = model(metrics=[keras.metrics.R2Score()])
    loss, score = made.evaluate(X[:10], Y[:10], batch_size=BATCH, verbose=0)
    error = X[:10] @ np.ones((3, 1)) - Y[:10]
    np.testing.assert_allclose([loss, score], [np.mean(error**2), 1 - np.mean(error**2) / np.var(Y[:10])], rtol=1e-5)


PICTURES = RNG.uniform(size=(6, 12, 10, 3)).astype("float32")


def of_pictures(layer, **compiled):
    keras.utils.set_random_seed(1)
    made = keras.Sequential([keras.Input((12, 10, 3)), layer, layers.GlobalAveragePooling2D(), layers.Dense(2)])
    made.compile("sgd", "mse", **compiled)
    return made


@pytest.mark.parametrize("compiled", [{}, {"jit_compile": False}, {"steps_per_execution": 2}])
def test_a_layer_that_needs_values_trains_op_by_op_with_one_warning(compiled):
    made = of_pictures(layers.RandomCrop(8, 7, seed=1), **compiled)
    with pytest.warns(NgraphWarning, match="train_step runs op by op") as warned:
        history = made.fit(PICTURES, np.zeros((6, 2), "float32"), batch_size=2, epochs=3, verbose=0).history["loss"]
    assert history[-1] < history[0] and len([w for w in warned if w.category is NgraphWarning]) == 1
    assert made.train_function.compiled[0].compilations == 0 and made.predict(PICTURES, verbose=0).shape == (6, 2)


def test_a_step_that_was_asked_to_be_compiled_is_refused_where_it_cannot_be():
    with pytest.raises(NgraphError, match="the value of a tensor is needed"):
        of_pictures(layers.RandomCrop(8, 7), jit_compile=True).fit(PICTURES, np.zeros((6, 2), "float32"), verbose=0)


@pytest.mark.parametrize(
    "layer", [layers.RandomPerspective(0.2), layers.RandomRotation(0.1), layers.RandomZoom(0.1), layers.RandomShear(0.1)]
)
def test_layers_that_xla_does_not_take_are_compiled(layer):
    made = of_pictures(layer)
    made.fit(PICTURES, np.zeros((6, 2), "float32"), batch_size=4, verbose=0)
    assert made.train_function.compiled[0].compilations == 1 and made.train_function.compiled[0].on == "cpu"


def test_repeats_of_an_open_length():
    class Repeated(layers.Layer):
        def call(self, x):
            return ops.reshape(ops.repeat(ops.ones((2, 3)), ops.shape(x)[0], axis=0), (2, -1, 3))[0] * x

    made = keras.Sequential([keras.Input((3,)), Repeated()])
    for n in (12, 5, 1):
        np.testing.assert_array_equal(made.predict(X[:n], verbose=0), X[:n])


def test_the_bessel_function_i0_in_a_compiled_function():
    x = np.linspace(-30, 30, 41).astype("float32")
    compiled = ngraph.keras.jit(ops.i0)
    np.testing.assert_allclose(np.asarray(compiled(x)), np.i0(x.astype("float64")), 1e-6)
    np.testing.assert_allclose(ops.i0(x), np.i0(x.astype("float64")), 1e-6)


def test_a_loop_over_numbers_has_a_derivative():
    w, x = np.array([[0.3, -0.2], [0.1, 0.4]], "float32"), np.array([[1.0, 2.0]], "float32")

    def loss(w, x):
        return ops.sum(ops.fori_loop(0, 3, lambda k, v: ops.matmul(v, w) + ops.cast(k, "float32"), x))

    value, gradient = ngraph.keras.jit(ngraph.keras.value_and_grad(loss))(w, x)
    states = [x.astype("float64")]
    for k in range(3):
        states.append(states[-1] @ w + k)
    np.testing.assert_allclose(value, states[3].sum(), 1e-6)
    back, wanted = np.ones((1, 2)), np.zeros((2, 2))
    for state in states[2::-1]:
        wanted, back = wanted + state.T @ back, back @ w.T
    np.testing.assert_allclose(gradient, wanted, 1e-5)
    assert float(ops.fori_loop(2, 2, lambda k, v: v + 1, 5.0)) == 5.0


@pytest.mark.parametrize("form", ["channels_last", "channels_first"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_colours(form, dtype):
    x = RNG.random((2, 5, 7, 3)).astype(dtype)
    x[0, 0], x[0, 1] = 0.5, 0.0
    given = x if form == "channels_last" else np.moveaxis(x, -1, 1)
    for function, single in ((ops.image.rgb_to_hsv, colorsys.rgb_to_hsv), (ops.image.hsv_to_rgb, colorsys.hsv_to_rgb)):
        wanted = np.array([single(*p) for p in x.reshape(-1, 3).astype("float64")]).reshape(x.shape)
        for call in (function, ngraph.keras.jit(lambda v, f=function: f(v, data_format=form))):
            found = np.asarray(call(given, data_format=form) if call is function else call(given))
            assert found.dtype == dtype
            found = found if form == "channels_last" else np.moveaxis(found, 1, -1)
            np.testing.assert_allclose(found, wanted, atol={"float16": 2e-3, "float32": 1e-6, "float64": 1e-14}[dtype])

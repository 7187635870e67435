"""Keras's fit on TensorFlow with the bridge on and off: the same losses, also where clusters fail."""

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="TensorFlow has an environment of its own: make bridge-tests")

import keras

from ngraph.bridge import running
from ngraph.errors import NgraphWarning
from ngraph.frontends.tensorflow import table

RNG = np.random.default_rng(0)
X, Y = RNG.random((40, 12, 12, 1), np.float32), RNG.integers(0, 4, 40)


def cnn():
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((12, 12, 1)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.25),
            layers.Dense(4),
        ]
    )
    model.compile(keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def losses(**options):
    """The losses of two epochs; the last batch of each has 8 rows, the others 16."""
    model = cnn()
    return model.fit(X, Y, batch_size=16, epochs=2, shuffle=False, verbose=0, **options).history["loss"]


@pytest.fixture(scope="module")
def wanted():
    """The losses without the bridge."""
    return losses()


@pytest.fixture(scope="module", autouse=True)
def first(wanted):
    """They are computed before the bridge is enabled."""


@pytest.fixture(autouse=True)
def small(without_prices):
    """The models of these tests are so small that TensorFlow is cheaper."""


def trained(bridge):
    (found,) = [f for f in bridge.report().json()["functions"] if "multi_step" in f["name"]]
    return found


def test_a_cnn_has_the_same_losses(bridge, wanted):
    np.testing.assert_allclose(losses(), wanted, 1e-4)
    step = trained(bridge)
    assert step["clustered"] > 150 and not bridge.report().fallbacks and not any(c["failure"] for c in step["clusters"]), str(
        bridge.report()
    )
    assert len(step["clusters"]) <= 2, "variables are read and assigned around clusters, not within the step"


def test_several_steps_in_a_loop(bridge):
    def run():
        model = cnn()
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), steps_per_execution=2)
        return model.fit(X[:32], Y[:32], batch_size=16, epochs=2, shuffle=False, verbose=0).history["loss"]

    found = run()
    bridge.disable()
    np.testing.assert_allclose(found, run(), 1e-4)


def lstm(layers):
    return [layers.LSTM(5)]


def sequences(layers):
    return [layers.LSTM(5, return_sequences=True), layers.GRU(4, return_sequences=True), layers.SimpleRNN(3)]


def both_ways(layers):
    return [layers.Bidirectional(layers.GRU(4, return_sequences=True)), layers.GlobalAveragePooling1D()]


def masked(layers):
    return [layers.Masking(), layers.LSTM(4, go_backwards=True)]


@pytest.mark.parametrize("length", [7, 11])  # up to eight turns are written out, more are one loop
@pytest.mark.parametrize("recurrent", [lstm, sequences, both_ways, masked])
def test_recurrent_layers_train_in_one_cluster(bridge, recurrent, length):
    tokens = np.random.default_rng(1).integers(0, 20, (40, length))

    def run():
        keras.utils.set_random_seed(1)
        layers = keras.layers
        model = keras.Sequential([layers.Input((length,), dtype="int32"), layers.Embedding(20, 6), *recurrent(layers), layers.Dense(4)])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        found = model.fit(tokens, Y, batch_size=16, epochs=3, shuffle=False, verbose=0).history["loss"]
        return found, model.get_weights()

    found, weights = run()
    step = trained(bridge)
    assert len(step["clusters"]) == 1 and not bridge.report().fallbacks, str(bridge.report())
    assert not {"While", "StatelessWhile"} & set(step["in TensorFlow"]), str(bridge.report())
    bridge.disable()
    losses, theirs = run()
    np.testing.assert_allclose(found, losses, 1e-5)
    for a, b in zip(weights, theirs, strict=True):
        np.testing.assert_allclose(a, b, 1e-3, 1e-5)


def raises_in_translator(monkeypatch, op):
    def broken(n, *args):
        raise RuntimeError("a translator that raises")

    monkeypatch.setitem(table.TABLE, op, broken)


def raises_in_compiler(monkeypatch, op):
    real = running._transformer

    class Broken:
        def __getattr__(self, name):
            return getattr(real("CPU"), name)

        def computation(self, *args, **named):
            raise RuntimeError("a compiler that fails")

    monkeypatch.setattr(running, "_transformer", lambda backend: Broken())


def raises_for_memory(monkeypatch, op):
    real = running.way_of

    def once(call, way, arguments):
        if way.call is not None and way.gives.count > 2:
            raise MemoryError("no memory for the results")
        return real(call, way, arguments)

    monkeypatch.setattr(running, "way_of", once)


def test_rows_of_an_embedding_are_updated_beside_the_cluster(bridge):
    """RMSprop divides rows, whose places only values tell: TensorFlow keeps this branch, and nothing falls back."""

    def run():
        keras.utils.set_random_seed(2)
        model = keras.Sequential([keras.Input((6,)), keras.layers.Embedding(30, 4), keras.layers.LSTM(5), keras.layers.Dense(2)])
        model.compile("rmsprop", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        words = np.arange(40 * 6).reshape(40, 6) * 7 % 30
        return model.fit(words, Y % 2, batch_size=16, epochs=2, shuffle=False, verbose=0).history["loss"]

    bridge.disable()
    wanted = run()
    bridge.enable()
    np.testing.assert_allclose(run(), wanted, 1e-4)
    step = trained(bridge)
    assert step["clusters"] and not any(c["failure"] for c in step["clusters"]) and not bridge.report().fallbacks, str(bridge.report())


@pytest.mark.parametrize("op", ["Conv2D", "MaxPoolGrad", "Sqrt"])
def test_a_translator_that_raises(bridge, wanted, monkeypatch, op):
    raises_in_translator(monkeypatch, op)
    with pytest.warns(NgraphWarning, match="is TensorFlow's again"):
        np.testing.assert_allclose(losses(), wanted, 1e-4)
    step = trained(bridge)
    assert any("a translator that raises" in c["failure"] for c in step["clusters"]) and bridge.report().fallbacks
    assert step["in TensorFlow"][op], "the node alone is TensorFlow's"
    assert step["clustered"] > 100, "what is not to blame stays in clusters"


@pytest.mark.parametrize("fault", [raises_in_compiler, raises_for_memory])
def test_a_compiler_that_fails_and_no_memory(bridge, wanted, monkeypatch, fault):
    bridge.set_disabled_ops("MaxPool,Square")  # several clusters, which all fail
    fault(monkeypatch, "")
    with pytest.warns(NgraphWarning, match="is TensorFlow's again"):
        np.testing.assert_allclose(losses(), wanted, 1e-4)
    failed = [c for c in trained(bridge)["clusters"] if c["failure"]]
    assert len(failed) >= 2 and all(c["fallbacks"] >= 1 for c in failed)

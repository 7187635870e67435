"""Keras 3 on ngraph. Oracles: NumPy, finite differences, and losses that Keras on JAX gave (`losses_of_jax.json`, by models.py)."""

import json
import os
import runpy
import subprocess
import sys

import numpy as np
import pytest
import scipy.special

import ngraph.keras
import ngraph.keras.hook as hook
from ngraph.errors import NgraphError

import keras  # isort: skip  # behind ngraph.keras
from keras import layers, ops  # isort: skip

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = runpy.run_path(os.path.join(HERE, "models.py"))
RNG = np.random.default_rng(0)


def recorded(name):
    with open(os.path.join(HERE, "losses_of_jax.json"), encoding="utf-8") as file:
        return json.load(file)[name]


def test_keras_runs_on_ngraph_and_imports_no_other_backend():
    code = "import sys, ngraph.keras, keras; print(keras.backend.backend(), {'tensorflow', 'jax', 'torch'} & set(sys.modules))"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()})
    assert made.stdout.split("\n")[-2] == "ngraph set()", made.stderr


def test_a_script_is_run_by_the_module(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys, keras\nprint(keras.backend.backend(), sys.argv[1:])\n")
    command = [sys.executable, "-m", "ngraph.keras", str(script), "a", "b"]
    made = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()})
    assert made.stdout.strip() == "ngraph ['a', 'b']" and f"keras {keras.__version__} on ngraph" in made.stderr


def test_a_module_without_the_chain_of_branches_is_refused(monkeypatch, tmp_path):
    path = tmp_path / "other.py"
    path.write_text("x = 1\n")
    monkeypatch.setitem(hook.BRANCHES, "other", hook.BRANCHES["keras.src.backend"])
    with pytest.raises(NgraphError, match="chooses its backend in another way"):
        hook.BranchLoader("other", str(path)).get_code("other")


@pytest.mark.parametrize("name", ["mlp", "lstm"])
def test_losses_are_those_of_keras_on_jax(name):
    found, model = MODELS["losses"](name)
    np.testing.assert_allclose(found, recorded(name), rtol=1e-4)
    assert model.compilations() == 1  # the short last batch is served too


def regression(**compiled):
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((8,)), layers.Dense(16, activation="tanh"), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse", metrics=["mae"], **compiled)
    return model


X = RNG.normal(size=(64, 8)).astype("float32")
Y = X[:, :1] * 2 + 1


@pytest.mark.parametrize("how", [{"jit_compile": False}, {"run_eagerly": True}, {"steps_per_execution": 2}])
def test_ways_of_running_agree(how):
    fit = {"batch_size": 16, "epochs": 2, "shuffle": False, "verbose": 0}
    wanted = regression().fit(X, Y, **fit).history
    found = regression(**how).fit(X, Y, **fit).history
    for key in wanted:
        np.testing.assert_allclose(found[key], wanted[key], rtol=1e-5)


def test_evaluate_and_predict_agree_with_numpy():
    model = regression()
    a, b, c, d = (np.array(w) for w in model.get_weights())
    wanted = np.tanh(X @ a + b) @ c + d
    np.testing.assert_allclose(model.predict(X, batch_size=24, verbose=0), wanted, rtol=1e-5, atol=1e-5)
    found = model.evaluate(X, Y, batch_size=24, verbose=0, return_dict=True)
    np.testing.assert_allclose([found["loss"], found["mae"]], [((wanted - Y) ** 2).mean(), np.abs(wanted - Y).mean()], rtol=1e-5)
    assert model.compilations() == 2


def test_functions_keep_their_digits_where_they_are_nearly_0():
    x = np.linspace(-4, 9, 99).astype("float32")
    np.testing.assert_allclose(ops.erfc(x), scipy.special.erfc(x.astype("float64")), 2e-6)
    for b in (4, 0.5):
        x = np.array([-1e30, -1e4, -50, -1, 0, 1, 50, 1e30], "float32")
        wide = x.astype("float64")
        size = np.hypot(wide, np.sqrt(b))
        np.testing.assert_allclose(ops.squareplus(x, b), np.where(x < 0, b / (size - np.minimum(wide, 0)), wide + size) / 2, 1e-6)


def test_a_custom_step_differentiates_by_value_and_grad():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(1)

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            x, y = data

            def loss(_):
                return ops.mean((self(x) - y) ** 2)

            value, grads = ngraph.keras.value_and_grad(loss)(self.trainable_variables)
            self.optimizer.apply(grads, self.trainable_variables)
            return {"own": value}

    model = Own()
    model.compile(keras.optimizers.SGD(0.1))
    history = model.fit(X, Y, epochs=3, batch_size=64, verbose=0).history["own"]
    assert history[2] < 0.6 * history[0]


def test_a_loop_on_the_stateless_api():
    model = regression()
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)

    def loss(trainable, rest, x, y):
        predicted, rest = model.stateless_call(trainable, rest, x)
        return ops.mean((predicted - y) ** 2), rest

    differentiated = ngraph.keras.value_and_grad(loss, has_aux=True)

    @ngraph.keras.jit
    def step(trainable, rest, state, x, y):
        (value, rest), grads = differentiated(trainable, rest, x, y)
        trainable, state = optimizer.stateless_apply(state, grads, trainable)
        return value, trainable, rest, state

    state = [[v.value for v in vs] for vs in (model.trainable_variables, model.non_trainable_variables, optimizer.variables)]
    values = []
    for _ in range(4):
        value, *state = step(*state, X, Y)
        values.append(float(value))
    assert values == sorted(values, reverse=True) and step.compilations == 1


@pytest.mark.parametrize("compiled", [False, True])
def test_derivatives_are_those_of_differences(compiled):
    def f(xp, w):
        y = xp.tanh(xp.matmul(xp.transpose(w), w))
        return xp.sum(xp.where(y > 0, y * y, xp.exp(y))) + xp.log(xp.sum(xp.exp(w[1:, 0])))

    w = RNG.normal(size=(4, 3)).astype("float32")
    both = ngraph.keras.value_and_grad(lambda w: f(ops, w))
    value, found = (ngraph.keras.jit(both) if compiled else both)(w)
    w = w.astype("float64")
    assert abs(float(value) - f(np, w)) < 1e-5
    for i, j in np.ndindex(w.shape):
        d = np.zeros_like(w)
        d[i, j] = 1e-6
        slope = (f(np, w + d) - f(np, w - d)) / 2e-6
        assert abs(float(found[i, j]) - slope) < 1e-5 * max(1, abs(slope))


@pytest.mark.parametrize("compiled", [False, True])
def test_what_was_computed_before_is_constant_to_a_derivative(compiled):
    def step(m, j):  # as of a GAN: the derivative by m leaves out that the new j was computed from m
        _, slope = ngraph.keras.value_and_grad(lambda j: ops.sum((j * m) ** 2))(j)
        j = j - 0.1 * slope
        return j, ngraph.keras.value_and_grad(lambda m, j: ops.sum(j * m**3))(m, j)[1]

    m, j = RNG.normal(size=(2, 5)).astype("float32")
    new, found = (ngraph.keras.jit(step) if compiled else step)(m, j)
    np.testing.assert_allclose(new, j - 0.2 * j * m**2, rtol=1e-5)
    np.testing.assert_allclose(found, 3 * np.asarray(new) * m**2, rtol=1e-5)

    w = keras.Variable(m)

    def towards_target(x):
        target = w * 2.0 * x
        _, (slope,) = ngraph.keras.value_and_grad(lambda _: ops.sum((w - target) ** 2))([w])
        w.assign(w - 0.5 * slope)
        _, (after,) = ngraph.keras.value_and_grad(lambda _: ops.sum((w - target) ** 2))([w])
        return slope, after

    slope, after = (ngraph.keras.jit(towards_target) if compiled else towards_target)(np.ones(5, "float32"))
    np.testing.assert_allclose(slope, -2 * m, rtol=1e-5)
    np.testing.assert_allclose(after, np.zeros(5), atol=1e-6)
    np.testing.assert_allclose(w, 2 * m, rtol=1e-5)


@pytest.mark.parametrize("eagerly", [False, True])
def test_what_a_layer_assigns_to_its_weight_is_what_is_trained(eagerly):
    """The derivative is that of the values read, before the assignment and behind it; the step starts from what was assigned."""

    class Halved(keras.layers.Layer):
        def build(self, shape):
            self.w = self.add_weight(shape=shape[1:], initializer="ones")

        def call(self, x, training=False):
            before = keras.ops.sum(x * self.w**2, -1)
            if training:
                self.w.assign(self.w * 0.5)
            return before + keras.ops.sum(x * self.w**3, -1)

    model = keras.Sequential([keras.Input((3,)), Halved()])
    model.compile(keras.optimizers.SGD(0.1), loss=lambda y, p: p, run_eagerly=eagerly)
    x, w = np.random.default_rng(5).normal(size=(4, 3)).astype("float32"), np.ones(3)
    for _ in range(3):
        model.train_on_batch(x, np.zeros((4, 1)))
        w = w / 2 - 0.1 * x.mean(0) * (2 * w + 3 * (w / 2) ** 2)
    np.testing.assert_allclose(np.asarray(model.layers[-1].w), w, 1e-5, 1e-6)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "int8", "float32"])
def test_negative_and_sign_bit_are_numpys(dtype):
    x = np.array([1, 0, 3]).astype(dtype) if dtype != "float32" else np.array([1, -0.0, -3], dtype)
    for name in ("negative", "signbit"):
        np.testing.assert_array_equal(np.asarray(getattr(keras.ops, name)(x)), getattr(np, name)(x), strict=True)


def test_derivatives_of_derivatives():
    inner = ngraph.keras.value_and_grad(lambda x: ops.sum(x**3))
    outer = ngraph.keras.jit(ngraph.keras.value_and_grad(lambda x: ops.sum(inner(x)[1])))
    np.testing.assert_allclose(outer(X[0])[1], 6 * X[0], rtol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_gradient_of_ones_own(compiled):
    @ops.custom_gradient
    def clipped(x):
        return x * x, lambda upstream: upstream * 10.0

    both = ngraph.keras.value_and_grad(lambda x: ops.sum(clipped(x) * 2.0))
    _, found = (ngraph.keras.jit(both) if compiled else both)(np.ones((2, 1), "float32"))
    np.testing.assert_array_equal(found, np.full((2, 1), 20.0))


@pytest.mark.parametrize("inside", ["cond", "vectorized_map", "scan", "fori_loop", "remat"])
def test_a_gradient_of_ones_own_inside_of(inside):
    """A derivative that reads what the function computed, which a body of a loop or a branch computes."""

    @ops.custom_gradient
    def cubed(x):
        y = x * x
        return y * x, lambda upstream: upstream * (2 * y + 1)

    made = {
        "cond": lambda x: ops.cond(ops.sum(x) > -9, lambda: cubed(x), lambda: x),
        "vectorized_map": lambda x: ops.vectorized_map(cubed, x),
        "scan": lambda x: ops.scan(lambda c, t: (cubed(c) + t, c), x, ops.zeros((2, 3)))[0],
        "fori_loop": lambda x: ops.fori_loop(0, 2, lambda i, v: cubed(v), x),
        "remat": keras.remat(cubed),
    }[inside]
    x = np.array([0.3, -0.8, 1.1], "float32")
    value, slope = ngraph.keras.jit(ngraph.keras.value_and_grad(lambda x: ops.sum(made(x))))(x)
    once = 2 * x * x + 1
    twice = inside in ("scan", "fori_loop")
    np.testing.assert_allclose(value, ((x**3) ** 3 if twice else x**3).sum(), rtol=1e-5)
    np.testing.assert_allclose(slope, once * (2 * x**6 + 1) if twice else once, rtol=1e-5)


def test_a_value_that_is_needed_while_a_step_is_compiled_is_refused():
    with pytest.raises(NgraphError, match="the value of a tensor is needed"):
        ngraph.keras.jit(lambda x: x if bool(ops.sum(x) > 0) else -x)(np.ones(3, "float32"))


def test_a_tensor_that_left_its_computation_is_refused():
    kept = []
    ngraph.keras.jit(lambda x: kept.append(x + 1) or x)(np.ones(3, "float32"))
    with pytest.raises(NgraphError, match="is used outside of it"):
        ngraph.keras.jit(lambda x: x + kept[0])(np.ones(3, "float32"))


def test_a_length_that_is_needed_as_a_number_fixes_the_batch():
    f = ngraph.keras.jit(lambda x: ops.sum(ops.stack([x[k] for k in range(x.shape[0])]), axis=0), open_batch=True)
    for n in (3, 4, 3):
        np.testing.assert_array_equal(f(np.ones((n, 2), "float32")), [n, n])
    assert f.compilations == 2


def test_values_that_were_read_before_a_step_stay():
    model = regression()
    before = model.layers[0].kernel.value
    copy = np.array(before)
    model.fit(X, Y, verbose=0)
    np.testing.assert_array_equal(before, copy)
    assert not np.array_equal(model.layers[0].kernel, copy)


def test_saving(tmp_path):
    model = regression()
    model.fit(X, Y, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    wanted = model.predict(X, verbose=0)
    np.testing.assert_array_equal(again.predict(X, verbose=0), wanted)
    model.save_weights(tmp_path / "model.weights.h5")
    other = regression()
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(other.predict(X, verbose=0), wanted)


def exported(model, path, *inputs):
    """The names of the file's inputs, and ONNX Runtime's results."""
    import onnxruntime

    model.export(path, format="onnx", verbose=False)
    file = onnxruntime.InferenceSession(str(path))
    names = [i.name for i in file.get_inputs()]
    return names, file.run(None, dict(zip(names, inputs, strict=True)))


def test_a_model_is_exported_with_an_open_batch(tmp_path):
    given = keras.Input((9, 9, 2), name="picture")
    h = layers.BatchNormalization()(layers.Conv2D(3, 3, strides=2, padding="same", activation="gelu")(given))
    model = keras.Model(given, layers.Dense(4, activation="softmax")(layers.Dropout(0.5)(layers.Flatten()(h))))
    for n in (1, 3):
        x = RNG.normal(size=(n, 9, 9, 2)).astype("float32")
        model(x)
        names, (found,) = exported(model, tmp_path / "m.onnx", x)
        assert names == ["picture"]
        np.testing.assert_allclose(found, model.predict(x, verbose=0), rtol=1e-4, atol=1e-6)


def test_several_inputs_and_a_loop_over_an_open_length_are_exported(tmp_path):
    a, b = keras.Input((4,), name="left"), keras.Input((None, 4), name="right")
    model = keras.Model([a, b], [layers.Dense(3)(a), layers.LSTM(5)(b)])
    x = [RNG.normal(size=shape).astype("float32") for shape in ((2, 4), (2, 6, 4))]
    wanted = model(x)
    _, found = exported(model, tmp_path / "m.onnx", *x)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)


def test_a_length_that_the_model_needs_is_asked_for(tmp_path):
    given = keras.Input((None, 4))
    model = keras.Model(given, layers.Lambda(lambda x: ops.sum(ops.stack([x[:, k] for k in range(x.shape[1] or 3)]), 0))(given))
    model(np.ones((2, 3, 4), "float32"))
    with pytest.raises(NgraphError, match="open length dim_0_1"):
        model.export(tmp_path / "m.onnx", format="onnx", verbose=False)
    fixed = [keras.layers.InputSpec(shape=(None, 3, 4), dtype="float32")]
    model.export(tmp_path / "m.onnx", format="onnx", verbose=False, input_signature=fixed)


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_a_quantized_model_answers_nearly_the_same(mode, tmp_path):
    model = keras.Sequential([keras.Input((16,)), layers.Dense(32, activation="relu"), layers.Dense(8)])
    x = RNG.normal(size=(20, 16)).astype("float32")
    before = model.predict(x, verbose=0)
    model.quantize(mode)
    after = model.predict(x, verbose=0)
    error = np.abs(after - before).max() / np.abs(before).max()
    assert 0 < error < {"int8": 0.03, "int4": 0.25}[mode]
    assert np.dtype(model.layers[0]._kernel.dtype) == np.int8
    model.save(tmp_path / "q.keras")
    np.testing.assert_array_equal(keras.saving.load_model(tmp_path / "q.keras").predict(x, verbose=0), after)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_trains_and_keeps_weights_in_float32(policy):
    keras.config.set_dtype_policy(policy)
    try:
        model = regression()
    finally:
        keras.config.set_dtype_policy("float32")
    assert type(model.optimizer).__name__ == ("LossScaleOptimizer" if policy == "mixed_float16" else "SGD")
    losses = model.fit(X, Y, batch_size=16, epochs=8, shuffle=False, verbose=0).history["loss"]
    assert losses[-1] < 0.2 * losses[0]
    assert {w.dtype for w in model.weights} == {"float32"} and model.layers[0](X).dtype.name == policy[6:]


@pytest.mark.parametrize("axis", [-1, 1, (1, 2)])
@pytest.mark.parametrize("compiled", [False, True])
def test_layer_normalization_is_exact_where_the_mean_is_large(axis, compiled):
    """NumPy's, in float64; a single channel gives beta. Keras's formula loses digits where a mean is large, and noise where x is it."""
    layer = keras.layers.LayerNormalization(axis, epsilon=1e-6)
    model = keras.Sequential([keras.Input((7, 5)), layer])
    layer.beta.assign(np.full(layer.beta.shape, 0.25))
    x = (np.random.default_rng(0).normal(size=(3, 7, 5)) + 4096).astype(np.float32)
    wide = x.astype(np.float64)
    want = (wide - wide.mean(axis, keepdims=True)) / np.sqrt(wide.var(axis, keepdims=True) + 1e-6) + 0.25
    np.testing.assert_allclose(model.predict(x, verbose=0) if compiled else np.asarray(model(x)), want, atol=2e-3)

    single = keras.Sequential([keras.Input((7, 1)), keras.layers.LayerNormalization()])
    y = single.predict(x[..., :1], verbose=0) if compiled else np.asarray(single(x[..., :1]))
    assert not y.any()


def test_a_loss_scale_skips_steps_with_infinite_gradients():
    model = regression()
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=1e38), "mse")
    before = [np.array(w) for w in model.get_weights()]
    model.fit(X * 1e3, Y, batch_size=64, verbose=0)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    assert float(model.optimizer.dynamic_scale) == np.float32(5e37)


X3 = RNG.normal(size=(2, 3, 4)).astype("float32")
FUNCTIONS = {
    "matmul": (lambda n, x: n.matmul(x, n.swapaxes(x, 1, 2)), 1e-6),
    "einsum": (lambda n, x: n.einsum("bij,bkj->bik", x, x), 1e-6),
    "var": (lambda n, x: n.var(x, axis=(0, 2), keepdims=True), 1e-6),
    "quantile": (lambda n, x: n.quantile(x, np.array([0.1, 0.5], "float32"), axis=1), 1e-6),
    "cumsum": (lambda n, x: n.cumsum(x, axis=1), 1e-6),
    "argsort": (lambda n, x: n.argsort(x, axis=-1), 0),
    "pad": (lambda n, x: n.pad(x, ((0, 0), (1, 2), (0, 1)), mode="reflect"), 0),
    "take": (lambda n, x: n.take(x, np.array([[1, 0], [2, -1]]), axis=2), 0),
    "getitem": (lambda n, x: x[:, None, ::-2, 1:][..., 0], 0),
    "concatenate": (lambda n, x: n.concatenate([x, x[:, :0], x * 2], axis=1), 0),
    "roll": (lambda n, x: n.roll(x, 2, axis=1), 0),
    "diagonal": (lambda n, x: n.diagonal(x, offset=-1, axis1=1, axis2=2), 0),
    "tril": (lambda n, x: n.tril(x, k=-1), 0),
    "where": (lambda n, x: n.where(x > 0, x, -1.0), 0),
    "median": (lambda n, x: n.median(x), 1e-6),
    "nanmedian of infinities": (lambda n, x: n.nanmedian(n.where(x > 0, float("inf"), n.where(x < -1, float("nan"), x)), axis=1), 1e-6),
    "floor_divide": (lambda n, x: x // 0.3, 0),
    "floor_divide of infinities": (lambda n, x: n.where(x > 0, float("inf"), x) // 0.7, 0),
    "floor_divide by infinities": (lambda n, x: x // n.where(x > 0, float("inf"), -0.5), 0),
    "tensordot": (lambda n, x: n.tensordot(x, x, axes=([0, 1], [0, 1])), 1e-6),
    "any of none": (lambda n, x: n.any(x[:, :0] > 0, axis=1), 0),
    "median along a dim beside one of none": (lambda n, x: n.median(x[:, :0], axis=2), 0),
    "roll along one dim twice": (lambda n, x: n.roll(x, (1, 1), axis=(1, 1)), 0),
    "roll of none": (lambda n, x: n.roll(x[:, :0], 1, axis=1), 0),
    "clip without an upper end": (lambda n, x: n.clip(x, -0.5, None), 0),
    "take one of all": (lambda n, x: n.take(x, 3), 0),
    "digitize by falling bins": (lambda n, x: n.digitize(n.round(x * 2) / 2, np.array([1.0, 0.5, 0.5, -0.5], "float32")), 0),
    "digitize by rising bins": (lambda n, x: n.digitize(n.round(x * 2) / 2, np.array([-0.5, 0.5, 1.0], "float32")), 0),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_functions_are_those_of_numpy(name, compiled):
    function, error = FUNCTIONS[name]
    mine = ngraph.keras.jit(lambda x: function(ops, x)) if compiled else lambda x: function(ops, ops.convert_to_tensor(x))
    found, wanted = np.asarray(mine(X3)), np.asarray(function(np, X3))
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=error, atol=error)


def test_the_logarithm_of_a_negative_determinant_is_that_of_its_size():
    x = np.array([[[0, 2], [3, 0]], [[2, 0], [0, 3]]], "float32")
    np.testing.assert_allclose(ops.logdet(x), np.linalg.slogdet(x)[1], rtol=1e-6)


def test_counts_of_a_histogram_have_the_dtype_of_what_is_counted():
    x = ops.convert_to_tensor(np.array([0.1, 0.2, 0.9], "float32"))
    counts, edges = ops.histogram(x, bins=2, range=(0, 1))
    symbolic = ops.histogram(keras.KerasTensor((3,), "float32"), bins=2, range=(0, 1))
    assert [t.dtype for t in symbolic] == [str(t.dtype) for t in (counts, edges)]
    np.testing.assert_array_equal(counts, [2, 1])


def test_nan_goes_through_activations_and_is_the_largest():
    x = np.array([np.nan, -2, 0.5, 7], "float32")
    np.testing.assert_array_equal(ops.relu6(x), [np.nan, 0, 0.5, 6])
    np.testing.assert_array_equal(ops.sparse_sigmoid(x), [np.nan, 0, 0.75, 1])
    np.testing.assert_array_equal(ops.top_k(x, 2)[1], [0, 3])


def test_a_target_outside_of_the_classes_is_not_among_the_best():
    np.testing.assert_array_equal(
        ops.in_top_k(np.array([2, 3, -4], "int32"), np.tile(np.array([0, 1, 2], "float32"), (3, 1)), 1), [1, 0, 0]
    )


def test_channels_first_become_places_as_a_transposition_has_them():
    x = np.arange(2 * 8 * 3 * 5, dtype="float32").reshape(2, 8, 3, 5)
    wide = x.reshape(2, 2, 2, 2, 3, 5).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 6, 10)
    np.testing.assert_array_equal(ops.depth_to_space(x, 2, data_format="channels_first"), wide)
    np.testing.assert_array_equal(ops.space_to_depth(wide, 2, data_format="channels_first"), x)


def test_without_a_window_frames_are_as_long_as_the_transform():
    x = RNG.normal(size=20).astype("float32")
    wanted = np.fft.rfft(np.stack([x[:8], x[4:12], x[8:16], x[12:20]]))
    re, im = ops.stft(x, 6, 4, 8, window=None, center=False)
    np.testing.assert_allclose(np.asarray(re) + 1j * np.asarray(im), wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda x: ops.cross(x, x), r"\(2, 4\)"),
        (lambda x: ops.tensordot(x, x, axes=1), r"\[1\].*\[0\]"),
        (lambda x: ops.inner(x, x[:, :1]), r"\(2, 1\)"),
        (lambda x: ops.correlate(x, x), r"\(2, 4\)"),
        (lambda x: ops.repeat(x, [1, 2, 3], axis=1), "3 numbers"),
        (lambda x: ops.argmax(x, axis=(0, 1)), r"\(0, 1\)"),
        (lambda x: ops.diff(x, axis=None), "None"),
        (lambda x: ops.transpose(x, (0, 2)), "axis 2"),
        (lambda x: ops.transpose(x, (0, 0)), r"\(0, 0\)"),
        (lambda x: ops.polar(x, x), "complex"),
    ],
)
def test_what_does_not_fit_is_refused(function, named):
    with pytest.raises((ValueError, TypeError, NgraphError), match=named):
        function(np.ones((2, 4), "float32"))


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("target", ["uint8", "int8", "uint16", "int16"])
def test_floats_beyond_narrow_integers_become_the_nearest_one(source, target):
    """As by JAX; GPTQ takes zero points below 0 for 0."""
    x = np.array([-1.5, -0.5, 7.9, 254.0, 300, -200, 40000, -40000, np.inf, -np.inf], "float32")
    bounds = np.iinfo(target)
    wanted = [int(np.clip(np.trunc(v), bounds.min, bounds.max)) for v in np.asarray(keras.ops.cast(x, source)).astype("float64")]
    cast = lambda v: keras.ops.cast(keras.ops.cast(v, source), target)
    for found in (cast(keras.ops.convert_to_tensor(x)), ngraph.keras.jit(cast)(x)):
        assert found.dtype.name == target and np.asarray(found).tolist() == wanted

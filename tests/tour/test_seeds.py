"""The programs of the walk-through as they were published, run as processes; then again with other names, orders and lengths."""

import ast
import importlib.util
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt

HERE = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "walk_through")


def output(name):
    done = subprocess.run([sys.executable, os.path.join(HERE, name)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbers(text):
    return [float(n) for n in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", text)]


def load_gendata():
    spec = importlib.util.spec_from_file_location("gendata", os.path.join(HERE, "gendata.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


gendata = load_gendata()

# ---- word for word, with the published numbers


@pytest.mark.parametrize("name", ["hello.py", "x_plus_one.py"])
def test_x_plus_one_prints_one_to_five(name):
    assert [float(line) for line in output(name).split()] == [1, 2, 3, 4, 5]


def test_logistic_regression_1():
    lines = re.sub(r"\n(?!W)", " ", output("logistic_regression_1.py")).strip().splitlines()
    rows = np.array([numbers(line) for line in lines])  # four weights, then the loss
    assert rows.shape == (100, 5)
    np.testing.assert_allclose(rows[:3, 4], [0.693147, 0.370376, 0.320175], atol=2e-6)
    np.testing.assert_allclose(rows[0, :4], [0.221108, 1.606587, 0.115972, -0.818215], atol=2e-6)
    np.testing.assert_allclose(rows[-1, 4], 0.205593, atol=2e-6)
    np.testing.assert_allclose(rows[-10:, 4].mean(), 0.183540, atol=2e-6)
    np.testing.assert_allclose(rows[-1, :4], [2.259776, 5.174287, 0.566021, 1.194095], atol=2e-5)


def test_logistic_regression_2():
    first, start, *epochs = re.sub(r"\n(?!After|Starting)", " ", output("logistic_regression_2.py")).strip().splitlines()
    assert ast.literal_eval(first) == ["W", "b"]
    np.testing.assert_allclose(numbers(start), [0.0216609], atol=2e-7)
    rows = np.array([numbers(line) for line in epochs])  # epoch, four weights, b, loss
    assert rows.shape == (10, 7) and rows[:, 0].tolist() == list(range(10))
    np.testing.assert_allclose(rows[0, 5:], [0.001146, 0.0203053], atol=1e-6)
    np.testing.assert_allclose(rows[9, 1:], [0.057490, 0.312584, 0.008162, -0.129788, 0.019858, 0.0182838], atol=1e-6)


def test_transformer_usage():
    assert numbers(output("transformer_usage.py")) == [15, 8, 15, 15]


# ---- again: other names, orders and lengths, against NumPy


def trained_by_numpy(xs, ys, steps):
    """Losses and weights of logistic regression in float64; xs are [features, batch]."""
    w, losses = np.zeros(xs[0].shape[0]), []
    for i in range(steps):
        x, y = xs[i % len(xs)], ys[i % len(ys)]
        p = 1 / (1 + np.exp(-w @ x))
        losses.append(-(y * np.log(p) + (1 - y) * np.log1p(-p)).mean())
        w = w - 2.0 / (1 + i) * x @ (p - y) / len(y)
    return losses, w


@pytest.mark.parametrize("batch", [1, 7, 128])
@pytest.mark.parametrize("features", [1, 4, 9])
@pytest.mark.parametrize("order", ["feature first", "batch first"])
@pytest.mark.parametrize("names", [("C", "N"), ("N2", "samples"), ("ax.C", "REC")])
@pytest.mark.parametrize("transformer_name", ["direct", "numpy", "cpu"])
def test_logistic_regression_by_any_other_name(transformer_name, names, order, features, batch):
    C = ng.make_axis(features, name=names[0])
    N = ng.make_axis(batch, name=names[1], batch=True, recurrent=False)
    x_axes = [C, N] if order == "feature first" else [N, C]
    alpha, X, Y = ng.placeholder(()), ng.placeholder(x_axes), ng.placeholder([N])
    W = ng.variable([C - 1], initial_value=0)
    Y_hat = ng.sigmoid(ng.dot(W, X))
    L = ng.cross_entropy_binary(Y_hat, Y, out_axes=()) / ng.batch_size(Y_hat)
    update = ng.assign(W, W - alpha * ng.deriv(L, W))
    results = [L, W, update] if batch != 7 else [update, W, L]
    step = ngt.make_transformer_factory(transformer_name)().computation(results, alpha, X, Y)

    XS, YS = gendata.MixtureGenerator([0.3, 0.7], (features,), seed=batch).gen_data(batch, 3)
    losses, w = trained_by_numpy(XS, YS, 9)
    for i in range(9):
        x = XS[i % 3] if order == "feature first" else np.ascontiguousarray(XS[i % 3].T)
        loss, weights = (v for v in step(2.0 / (1 + i), x, YS[i % 3])[:: 1 if batch != 7 else -1] if v is not None)
        np.testing.assert_allclose(loss, losses[i], rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(weights, w, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("transformer_name", ["direct", "numpy", "cpu"])
@pytest.mark.parametrize("axes", ["whn", "nhw", "hnw"])
def test_two_feature_axes_and_a_bias_by_any_order(transformer_name, axes):
    scope = ng.make_name_scope("other")
    scope.W, scope.H, scope.N = ng.make_axis(3), ng.make_axis(2), ng.make_axis(40, batch=True)
    by_letter = {"w": scope.W, "h": scope.H, "n": scope.N}
    alpha, X, Y = ng.placeholder(()), ng.placeholder([by_letter[a] for a in axes]), ng.placeholder([scope.N])
    W = ng.variable([scope.H - 1, scope.W - 1], initial_value=0).named("W")
    b = ng.variable((), initial_value=0).named("b")
    Y_hat = ng.sigmoid(ng.dot(W, X) + b)
    L = ng.cross_entropy_binary(Y_hat, Y, out_axes=()) / ng.batch_size(Y_hat)
    assert [v.name for v in L.variables()] == ["W", "b"]
    transformer = ngt.make_transformer_factory(transformer_name)()
    update = transformer.computation([L, W, b, ng.doall([ng.assign(v, v - alpha * ng.deriv(L, v)) for v in L.variables()])], alpha, X, Y)
    evaluate = transformer.computation(L, X, Y)

    XS, YS = gendata.MixtureGenerator([0.5, 0.5], (3, 2)).gen_data(40, 4)
    biased = [np.vstack([x.reshape(6, 40), np.ones(40)]) for x in XS]
    losses, w = trained_by_numpy(biased, YS, 8)
    for i in range(8):
        x = np.einsum(f"whn->{axes}", XS[i % 4])
        assert np.isclose(evaluate(x, YS[i % 4]), losses[i], rtol=2e-4, atol=1e-5)
        loss, w_value, b_value, _ = update(2.0 / (1 + i), x, YS[i % 4])
        np.testing.assert_allclose(loss, losses[i], rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(w_value.T.reshape(-1), w[:6], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(b_value, w[6], rtol=1e-3, atol=1e-4)

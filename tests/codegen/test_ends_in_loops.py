"""What follows long sums, written once in a loop over the rows of a tile: sums of rows, of columns, of both, cut tiles, open lengths."""

import numpy as np
import pytest

import ngraph as ng
from ngraph.targets import runnable

TERMS = 131  # from 128 on, known rows take the loop; open ones from 24 on
LENGTHS = [1, 2, 3, 5, 7, 8, 9, 11, 12, 13, 16, 17, 23, 32, 33, 47, 64, 70]


def together(x, w):
    """Each element of a product after ops that need its row's and its column's sums, too."""
    y = ng.dot(x, w)
    of_columns, of_rows = ng.sum(ng.square(w), "K"), ng.sum(x, "K")
    return ng.relu(y * 0.5 + of_columns - of_rows) * ng.tanh(y) + ng.exp(-ng.absolute(of_rows))


def wanted(x, w):
    y = x @ w
    columns, rows = (w**2).sum(0), x.sum(1)[:, None]
    return np.maximum(y * 0.5 + columns - rows, 0) * np.tanh(y) + np.exp(-np.abs(rows))


def drawn(n, m, k):
    draw = np.random.default_rng(n * 100 + m)
    return draw.standard_normal((n, k)).astype("float32") / 8, draw.standard_normal((k, m)).astype("float32") / 8


@pytest.fixture(params=runnable())
def target(request, monkeypatch):
    monkeypatch.setenv("NGRAPH_TARGET", request.param)


@pytest.mark.parametrize("m", [1, 16, 21, 40])
def test_known_rows(m, target):
    for n in LENGTHS:
        x, w = drawn(n, m, TERMS)
        a, b = ng.placeholder(f"N={n} K={TERMS}"), ng.placeholder(f"K={TERMS} M={m}")
        np.testing.assert_allclose(ng.function(together(a, b), a, b)(x, w), wanted(x, w), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("m", [1, 16, 21, 40])
def test_open_rows(m, target):
    a, b = ng.placeholder("N=? K=40"), ng.placeholder(f"K=40 M={m}")
    f = ng.function(together(a, b), a, b)
    for n in LENGTHS:
        x, w = drawn(n, m, 40)
        np.testing.assert_allclose(f(x, w), wanted(x, w), rtol=2e-5, atol=2e-5)


def test_sums_wait_in_memory():
    """The kernels above are of this form: what follows the product stands once, not for each row of a tile."""
    a, b, rest = ng.placeholder("N=64 K=256"), ng.placeholder("K=256 M=32"), ng.placeholder("N=64 M=32")
    f = ng.function(ng.tanh(ng.dot(a, b)) * rest + rest, a, b, rest)
    x, w = drawn(64, 32, 256)
    r = drawn(64, 5, 32)[0]
    np.testing.assert_allclose(f(x, w, r), np.tanh(x @ w) * r + r, rtol=2e-5, atol=2e-5)
    assert "alloca [" in f.computation.llvm

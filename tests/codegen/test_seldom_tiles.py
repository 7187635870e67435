"""Tiles that compute a small part of a loop's places write out one step of their sums: shorter code, the same bits."""

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.codegen import nest
from ngraph.runtime.host import worker


def product(monkeypatch, share, m, k, n):
    """The product of two matrices, compiled anew; what NumPy gives in float64; the code."""
    monkeypatch.setattr(nest, "SELDOM_SHARE", share)
    rows, over, columns = (ng.make_axis(size, name=name) for size, name in ((m, "M"), (k, "K"), (n, "N")))
    x, y = ng.placeholder([rows, over]), ng.placeholder([over, columns])
    rng = np.random.default_rng(m * n + k)
    a, b = rng.normal(size=(m, k)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32)
    with ng.config(cache=""), ngt.allocate_transformer("cpu") as t:
        f = t.computation(ng.dot(x, y), x, y)
        return f(a, b), a.astype(np.float64) @ b, f.llvm


@pytest.mark.parametrize("target", ["host", "x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("m, k, n", [(1, 8, 17), (27, 36, 33), (53, 7, 100), (64, 32, 16), (65, 40, 48), (100, 13, 112)])
def test_bits_are_those_of_code_that_writes_out_as_many_steps_everywhere(monkeypatch, target, m, k, n):
    if target != "host":
        monkeypatch.setenv("NGRAPH_TARGET", target)
    short, expected, text = product(monkeypatch, nest.SELDOM_SHARE, m, k, n)
    whole, _, longer = product(monkeypatch, 1 << 40, m, k, n)
    np.testing.assert_allclose(short, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(short, whole)
    assert len(text) <= len(longer)


def test_the_code_of_a_remainder_is_shorter(monkeypatch):
    monkeypatch.setenv("NGRAPH_TARGET", "x86-64-v4")
    _, _, text = product(monkeypatch, nest.SELDOM_SHARE, 64, 32, 32)
    _, _, longer = product(monkeypatch, 1 << 40, 64, 32, 32)
    assert worker.QUICK not in text
    assert text.count("call <16 x float> @llvm.fma") < 0.9 * longer.count("call <16 x float> @llvm.fma")

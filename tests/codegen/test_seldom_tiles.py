"""Tiles that compute a small part of a loop's places write out one step of their sums: shorter code, the same bits."""

import numpy as np
import pytest
from plan_programs import axis, hole, program

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.codegen import nest
from ngraph.codegen.kernel import emit
from ngraph.plan.planner import plan
from ngraph.runtime.host import worker
from ngraph.targets import TARGETS, runnable


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


@pytest.mark.parametrize("target", ["host", *runnable()])
@pytest.mark.parametrize("m, k, n", [(1, 8, 17), (27, 36, 33), (53, 7, 100), (64, 32, 16), (65, 40, 48), (100, 13, 112)])
def test_bits_are_those_of_code_that_writes_out_as_many_steps_everywhere(monkeypatch, target, m, k, n):
    if target != "host":
        monkeypatch.setenv("NGRAPH_TARGET", target)
    short, expected, text = product(monkeypatch, nest.SELDOM_SHARE, m, k, n)
    whole, _, longer = product(monkeypatch, 1 << 40, m, k, n)
    np.testing.assert_allclose(short, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(short, whole)
    assert len(text) <= len(longer) and worker.QUICK not in text


def test_the_code_of_a_remainder_is_shorter(monkeypatch):
    i, j, k = axis(64, "I"), axis(32, "J"), axis(32, "K")
    x, y = hole(i, k), hole(k, j)
    made = plan(program([ng.dot(x, y)], x, y), machine=TARGETS["x86-64-v4"])

    def written(share):
        monkeypatch.setattr(nest, "SELDOM_SHARE", share)
        return "".join(emit(made, step, TARGETS["x86-64-v4"]).text for step in made.every)

    short, longer = written(nest.SELDOM_SHARE), written(1 << 40)
    assert short.count("call <16 x float> @llvm.fma") < 0.9 * longer.count("call <16 x float> @llvm.fma")

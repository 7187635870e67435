"""The toy transformer of the documentation is complete, small, and its own; what it computes is in the generated tests."""

import os

import cells
import numpy as np
import toy_transformer

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.op_graph.opdef import REGISTRY


def test_it_has_under_100_lines():
    with open(toy_transformer.__file__, encoding="utf-8") as file:
        assert len(file.readlines()) < 100


def test_the_generated_tests_run_on_it():
    assert "toy" in cells.TRANSFORMERS and sum(t == "toy" for _, _, t in cells.cells("value")) == sum(
        t == "numpy" for _, _, t in cells.cells("value")
    )


def test_a_model_trains_on_it_and_no_reference_is_read(monkeypatch, tmp_path):
    for record in REGISTRY.values():
        monkeypatch.setattr(record, "reference", None)
    N, C = ng.make_axis(name="N"), ng.make_axis(3, name="C")
    x, t, w = ng.placeholder([N, C]), ng.placeholder([N]), ng.variable([C - 1]).named("w")
    loss = ng.mean(ng.square(ng.dot(w, x) - t), out_axes=())
    step = [loss, ng.assign(w, w - 0.1 * ng.deriv(loss, w))]
    with ngt.make_transformer_factory("toy")() as toy, ngt.make_transformer_factory("numpy")() as other:
        f, g = toy.computation(step, x, t), other.computation(step, x, t)
        draw = np.random.default_rng(0)
        for n in (4, 7, 1):
            xs, ts = draw.normal(size=(n, 3)), draw.normal(size=n)
            np.testing.assert_allclose(f(xs, ts)[0], g(xs, ts)[0], rtol=1e-5)
        toy.save(os.path.join(tmp_path, "toy.safetensors"))
        other.restore(os.path.join(tmp_path, "toy.safetensors"))
        np.testing.assert_array_equal(toy.get(w), other.get(w))
    assert "for N in range(n['N']):" in f.source and "np.matmul" not in f.source

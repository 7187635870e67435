"""Copies of weights in another layout: made when weights were written, and not again before that."""

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt


@pytest.fixture
def cpu():
    with ngt.make_transformer_factory("cpu")() as made:
        yield made


def axes(**lengths):
    return [ng.make_axis(n, name=name) for name, n in lengths.items()]


def test_weights_are_packed_again_only_when_they_were_written(cpu):
    """Not when other state was: by the computation that has them packed itself, by another, by its fast way in."""
    a, b, n = axes(A=96, B=80, N=24)
    rng = np.random.default_rng(0)
    first = rng.standard_normal((96, 80)).astype("f")
    w, seen, other = (
        ng.variable([a, b], initial_value=first),
        ng.persistent_tensor([n, b], initial_value=0),
        ng.variable((), initial_value=0),
    )
    x = ng.placeholder([n, a])
    y = ng.tanh(ng.dot(x, ng.sin(ng.cos(w))))
    both = cpu.computation([ng.assign(seen, seen + y), y], x)
    reads, counts, trains = cpu.computation(y, x), cpu.computation(ng.assign(other, other + 1)), cpu.computation(ng.assign(w, w * 0.5))
    values = rng.standard_normal((24, 96)).astype("f")
    packed = []
    for k in range(8):
        if k == 5:
            trains()
        expected = np.tanh(values @ np.sin(np.cos(first if k < 5 else first / 2)))
        for _ in range(3):
            np.testing.assert_allclose(both(values)[1], expected, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(reads(values), expected, rtol=1e-4, atol=1e-5)
            counts()
        bounds = [next(iter(c.native.bound.values())) for c in (both, reads)]
        assert all(bound.plan.once for bound in bounds)
        packed.append(tuple(bound.version for bound in bounds))
    assert len(set(packed[:5])) == 1 == len(set(packed[5:])) and packed[0] != packed[5]
    cpu.set(w, first)
    np.testing.assert_allclose(reads(values), np.tanh(values @ np.sin(np.cos(first))), rtol=1e-4, atol=1e-5)

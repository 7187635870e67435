"""Copies of weights: in another layout when they were written, and not again before that; their own when they are to be written."""

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


def test_initial_values_that_nobody_can_write_are_copied_when_the_variable_is_to_be_written(cpu):
    a, b = axes(A=600, B=500)
    rng = np.random.default_rng(0)
    first = rng.standard_normal((600, 500)).astype("f")
    value = np.frombuffer(first.tobytes(), "f").reshape(600, 500)
    w, x = ng.variable([a, b], initial_value=value), ng.placeholder([a])
    reads, writes = cpu.computation(ng.dot(x, w), x), cpu.computation(ng.assign(w, w * 2))
    one = np.ones(600, "f")
    np.testing.assert_allclose(reads(one), first.sum(0), rtol=1e-3, atol=1e-3)
    assert np.shares_memory(cpu.state.arrays[w], value)
    assert cpu.get(w).flags.writeable and not np.shares_memory(cpu.get(w), value)
    for k in range(1, 4):
        writes()
        np.testing.assert_array_equal(cpu.get(w), first * 2**k)
        np.testing.assert_allclose(reads(one), first.sum(0) * 2**k, rtol=1e-3, atol=1e-2)
    np.testing.assert_array_equal(value, first)
    with ngt.make_transformer_factory("cpu")() as other:  # starts from the same value
        np.testing.assert_array_equal(other.get(w), first)
        other.set(w, first + 1)
        other.computation(ng.assign(w, w * 2))()
        np.testing.assert_array_equal(other.get(w), (first + 1) * 2)
    np.testing.assert_array_equal(value, first)


def test_an_initial_value_is_copied_once(cpu):
    """When the variable is made; its state is that copy until somebody writes it."""
    a, b = axes(A=600, B=500)
    given = np.ones((600, 500), "f")
    w = ng.variable([a, b], initial_value=given)
    held = w.attrs["initial_value"]
    assert not np.shares_memory(held, given) and given.flags.writeable
    cpu.computation(ng.sum(w, out_axes=()))()
    assert np.shares_memory(cpu.state.arrays[w], held)
    with pytest.raises(ValueError, match="WRITEABLE"):
        held.flags.writeable = True

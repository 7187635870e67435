"""Draws that name their own seed, and further draws: against Philox written out in plain Python, and against statistics."""

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import AxisError, DTypeError
from ngraph.op_graph.text import dumps, loads

N, H = ng.make_axis(1000, name="N"), ng.make_axis(7, name="H")
NAMES = ["direct", "numpy", "cpu"]


def words(seed, step, count, stream=0xFFFFFFFC, trip=0):
    """Section 6 of the spec, one block of four words at a time."""
    found = []
    for block in range(-(-count // 4)):
        c, k = [block, step, stream, trip], [seed & 0xFFFFFFFF, seed >> 32]
        for _ in range(10):
            a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
            k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
        found += c
    return np.array(found[:count], np.uint64)


def drawn(name, ops, calls=1, seed=None):
    with ngt.make_transformer_factory(name)() as transformer:
        if seed is not None:
            transformer.seed(seed)
        computation = transformer.computation(ops)
        return [computation() for _ in range(calls)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [0, 7, (1 << 64) - 3])
def test_the_numbers_of_a_seed_are_those_of_the_spec(name, seed):
    made = ng.uniform([N], seed=seed)
    for step, got in enumerate(drawn(name, made, calls=3)):
        np.testing.assert_array_equal(got, (words(seed, step, 1000) >> np.uint64(8)).astype(np.float32) * np.float32(2**-24))


def test_they_are_equal_on_every_transformer_and_saved_ones_too():
    made = [ng.uniform([N], seed=3), ng.normal([N, H], seed=3), ng.randint([N], 5, 50, seed=4), ng.permutation(N, seed=5)]
    first, *others = (drawn(name, made, calls=2) for name in NAMES)
    again = [drawn(name, loads(dumps(made)), calls=2) for name in NAMES[1:]]
    for other, read in zip(others, again, strict=True):
        for one, two, three in zip(first, other, read, strict=True):
            for k, (a, b, c) in enumerate(zip(one, two, three, strict=True)):
                np.testing.assert_array_equal(b, c)
                if k == 1:
                    np.testing.assert_allclose(a, b, rtol=1e-6)
                else:
                    np.testing.assert_array_equal(a, b)


def test_they_do_not_depend_on_what_else_is_drawn():
    alone = drawn("numpy", ng.uniform([N], seed=9), calls=2)
    others = [ng.normal([N]) for _ in range(3)]
    (crowd, *_), (crowd_again, *_) = drawn("numpy", [ng.uniform([N], seed=9), *others], calls=2)
    np.testing.assert_array_equal(alone, [crowd, crowd_again])
    assert not np.array_equal(crowd, crowd_again)  # each call draws anew
    same, other = drawn("numpy", [ng.uniform([N], seed=9), ng.uniform([N], seed=10)], seed=123)[0]  # nor on the transformer's seed
    np.testing.assert_array_equal(same, crowd)
    assert not np.array_equal(same, other)


def test_without_a_seed_no_draw_repeats_one_with_a_seed():
    with_zero, *others = drawn("numpy", [ng.uniform([N], seed=0), *(ng.uniform([N]) for _ in range(5))])[0]
    assert all(not np.array_equal(with_zero, o) for o in others)


@pytest.mark.parametrize("name", NAMES)
def test_in_a_loop_each_trip_draws_anew(name):
    T = ng.make_axis(4, name="T")
    _, each = ng.scan(lambda c, x: (c, ng.uniform([H], seed=1)), ng.constant(0.0), None, T)
    (got,) = drawn(name, each)
    for trip in range(4):
        np.testing.assert_array_equal(got[trip], (words(1, 0, 7, trip=trip + 1) >> np.uint64(8)).astype(np.float32) * np.float32(2**-24))


@pytest.mark.parametrize("name", NAMES)
def test_whole_numbers_are_spread_evenly_over_their_range(name):
    made = [ng.randint([N, H], -3, 4, seed=1), ng.randint([N], 0, 2, dtype="uint8", seed=1), ng.randint([N], -(1 << 31), 1 << 31, seed=2)]
    got = drawn(name, made)[0]
    expected = (words(1, 0, 7000) * np.uint64(7) >> np.uint64(32)).astype(np.int64) - 3
    np.testing.assert_array_equal(got[0].ravel(), expected)
    assert got[0].dtype == np.int32 and got[1].dtype == np.uint8
    counts = np.bincount(got[0].ravel() + 3, minlength=7)
    assert counts.size == 7 and abs(counts - 1000).max() < 150  # five standard deviations
    np.testing.assert_array_equal(got[2], words(2, 0, 1000).astype(np.int64) - (1 << 31))


@pytest.mark.parametrize("name", NAMES)
def test_true_as_often_as_its_probability_says(name):
    p = ng.placeholder([H])
    probabilities = np.array([0, 0.1, 0.25, 0.5, 0.75, 0.9, 1])
    with ngt.make_transformer_factory(name)() as transformer:
        drawn, mask = transformer.computation([ng.bernoulli([N, H], p), ng.bernoulli([N], 0.3, dtype="float32")], p)(probabilities)
    assert drawn.dtype == bool and mask.dtype == np.float32 and set(np.unique(mask)) == {0, 1}
    np.testing.assert_allclose(drawn.mean(0), probabilities, atol=0.08)
    assert not drawn[:, 0].any() and drawn[:, -1].all()


@pytest.mark.parametrize("name", NAMES)
def test_a_permutation_holds_each_index_once_and_shuffles(name):
    x = ng.placeholder([N])
    order = ng.permutation(N)
    with ngt.make_transformer_factory(name)() as transformer:
        computation = transformer.computation([order, ng.take(ng.map_roles(x, {N: "M"}), order, "M")], x)
        (one, shuffled), (two, _) = (computation(np.arange(1000)) for _ in range(2))
    np.testing.assert_array_equal(np.sort(one), np.arange(1000))
    np.testing.assert_array_equal(shuffled, one)
    assert not np.array_equal(one, two) and abs(np.corrcoef(one, np.arange(1000))[0, 1]) < 0.2
    np.testing.assert_array_equal(drawn(name, ng.permutation(N, seed=6))[0], np.argsort(words(6, 0, 1000), kind="stable"))


def test_draws_say_what_is_wrong():
    with pytest.raises(AxisError, match="needs axes"):
        ng.randint(low=3, high=5)
    with pytest.raises(DTypeError, match="whole numbers as float32"):
        ng.randint([N], dtype="float32")
    with pytest.raises(ValueError, match="low < high"):
        ng.randint([N], 5, 5)
    with pytest.raises(ValueError, match="in its range"):
        ng.randint([N], 0, 300, dtype="uint8")

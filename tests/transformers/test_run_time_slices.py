"""Slices whose bounds the program computes: NumPy's elements on every transformer, equal lengths for equal bounds, gradients, errors."""

import itertools

import numpy as np
import pytest

import ngraph as ng
from ngraph.errors import AxisError, BoundsError
from ngraph.program.lower import lower
from ngraph.program.text import arrays, parse, text

BOUNDS = (-9, -5, -2, -1, 0, 1, 3, 4, 5, 8)
A, B = ng.make_axis(5, name="A"), ng.make_axis(3, name="B")


@pytest.fixture(scope="module")
def values():
    return np.random.default_rng(0).standard_normal((5, 3)).astype("f4")


@pytest.mark.parametrize("known", [True, False], ids=["known", "open"])
def test_every_bound_is_pythons(transformer, known, values):
    x = ng.placeholder([A if known else ng.make_axis(name="A"), B])
    i, j = (ng.placeholder((), dtype=d) for d in ("int32", "int64"))
    f = transformer.computation([x[i:j], x["A", :j], x["A", i:], x[1:j], x[i:-1], ng.sum(x[i:j]) * 1], x, i, j)
    for start, stop, n in itertools.product(BOUNDS, BOUNDS, (5,) if known else (5, 0, 1, 4)):
        v = values[:n]
        wanted = [v[start:stop], v[:stop], v[start:], v[1:stop], v[start:-1], v[start:stop].sum()]
        for got, want in zip(f(v, start, stop), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_bounds_without_a_sign_count_from_the_start(transformer, values):
    x, i = ng.placeholder([A, B]), ng.placeholder((), dtype="uint8")
    f = transformer.computation([x[:i], x[i:]], x, i)
    for n in (0, 2, 5, 255):
        for got, want in zip(f(values, n), (values[:n], values[n:]), strict=True):
            np.testing.assert_array_equal(got, want)


def test_two_axes_and_a_known_slice_beside_them(transformer):
    x, i, j = ng.placeholder([A, B, ng.make_axis(7, name="C")]), *(ng.placeholder((), dtype="int32") for _ in "ij")
    f = transformer.computation([x["A", i:, "B", :j, "C", ::-2], x[i:j, 1:, 3]], x, i, j)
    v = np.random.default_rng(1).standard_normal((5, 3, 7)).astype("f4")
    for a, b in itertools.product((-2, 0, 3), (0, 1, 3)):
        got = f(v, a, b)
        np.testing.assert_array_equal(got[0], v[a:, :b, ::-2])
        np.testing.assert_array_equal(got[1], v[a:b, 1:, 3])


def test_slices_up_to_equal_sums_have_equal_lengths(transformer, values):
    x, y, n = ng.placeholder([A, B]), ng.placeholder([A, B]), ng.placeholder((), dtype="int32")
    f = transformer.computation(ng.sum(x[: n + 1] * y[: n + 1], reduction_axes="A"), x, y, n)
    for k in range(5):
        np.testing.assert_allclose(f(values, 2 * values, k), (2 * values**2)[: k + 1].sum(0), rtol=1e-5)


def test_a_length_computed_from_values_and_from_state(transformer, values):
    x, seen = ng.placeholder([A, B]), ng.persistent_tensor((), dtype="int32").named("seen")
    many = ng.sum(ng.cast(x > 0, "int32"))
    f = transformer.computation([x[:many], x[:seen], ng.assign(seen, seen + 2)], x)
    for k in (0, 2, 4, 6):
        got = f(values)
        np.testing.assert_array_equal(got[0], values[: (values > 0).sum()])
        np.testing.assert_array_equal(got[1], values[:k])


def test_a_slice_by_state_that_changes_on_the_way(transformer, values):
    x, seen = ng.placeholder([A, B]), ng.persistent_tensor((), dtype="int32", initial_value=1).named("seen")
    before, after = x[: seen + 1] * 1, x[: seen + 1] * 1
    both = ng.sequential([before, ng.assign(seen, 3), after])
    got = transformer.computation([before, both], x)(values)
    np.testing.assert_array_equal(got[0], values[:2])
    np.testing.assert_array_equal(got[1], values[:4])


def test_gradients_reach_what_was_read_alone(transformer, values):
    x, i, j = ng.variable([A, B], initial_value=values), *(ng.placeholder((), dtype="int32") for _ in "ij")
    f = transformer.computation([ng.deriv(ng.sum(ng.square(x[:j])), x), ng.deriv(ng.sum(ng.square(x[i:j])), x)], i, j)
    for a, b in itertools.product((-2, 0, 1, 4), (0, 2, 5, -1)):
        for got, cut in zip(f(a, b), (slice(None, b), slice(a, b)), strict=True):
            want = np.zeros_like(values)
            want[cut] = 2 * values[cut]
            np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("rows", [1, 40])
def test_products_with_a_part_of_state_that_is_only_read(transformer, rows):
    """What runs once, when state has changed, takes no part of a length that each call has its own of."""
    K, M, V = ng.make_axis(70, name="K"), ng.make_axis(rows, name="M"), ng.make_axis(33, name="V")
    w = np.random.default_rng(2).standard_normal((70, 33)).astype("f4")
    table, x, n = ng.variable([K, V], initial_value=w), ng.placeholder([M, V]), ng.placeholder((), dtype="int32")
    used = table[:n]
    f = transformer.computation([ng.dot(x, used), ng.exp(used) * 2, ng.einsum("M V, K V -> M K", x, ng.tanh(used))], x, n)
    v = np.random.default_rng(3).standard_normal((rows, 33)).astype("f4")
    for k in (0, 1, 7, 16, 33, 69, 70, 3):
        products, powers, others = f(v, k)
        np.testing.assert_allclose(products, v @ w[:k].T, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(powers, 2 * np.exp(w[:k]), rtol=1e-5)
        np.testing.assert_allclose(others, v @ np.tanh(w[:k]).T, rtol=1e-4, atol=1e-4)


def test_the_text_of_a_program_is_parsed_back():
    x, n = ng.placeholder([A, B]), ng.placeholder((), dtype="int32")
    program = lower([ng.sum(x[n : n + 2], reduction_axes="A")], [x, n]).program
    assert "Run(" in text(program) and text(parse(text(program), arrays(program))) == text(program)


@pytest.mark.parametrize(
    "bound, said",
    [
        (lambda: ng.placeholder([B], dtype="int32"), "not an integer without axes"),
        (lambda: ng.placeholder(()), "not an integer without axes"),
        (lambda: ng.placeholder((), dtype="bool"), "not an integer without axes"),
    ],
)
def test_bounds_that_are_no_places(bound, said):
    x = ng.placeholder([A, B]).named("x")
    with pytest.raises(AxisError, match=said) as found:
        x["A", : bound()]
    assert "A=5" in str(found.value) and "int32" in found.value.fix
    with pytest.raises(AxisError, match="step"):
        x["A", : ng.placeholder((), dtype="int32") : 2]


def test_several_indices_at_once(transformer):
    x, v = ng.placeholder([A, B, ng.make_axis(2, name="C")]), np.arange(30, dtype="f4").reshape(5, 3, 2)
    N = ng.make_axis(4, name="N")
    i, j, u = ng.placeholder([N], dtype="int32"), ng.placeholder([N], dtype="int32"), ng.placeholder([N, x.axes[2]])
    f = transformer.computation([ng.take(x, (i, j), ("A", "B")), ng.put(x, (i, j), u, ("A", "B"), mode="raise")], x, i, j, u)
    a, b, new = np.array([4, 0, 2, 3]), np.array([2, 2, 0, 1]), -np.arange(1, 9, dtype="f4").reshape(4, 2)
    want = v.copy()
    want[a, b] = new
    got = f(v, a, b, new)
    np.testing.assert_array_equal(got[0], v[a, b])
    np.testing.assert_array_equal(got[1], want)
    with pytest.raises(BoundsError, match="index 3 is out of bounds of axis B, which has length 3"):
        f(v, a, b + 1, new)
    with pytest.raises(AxisError, match="2 indices for 1 axes"):
        ng.take(x, (i, j), ("A",))

"""Gathers and scatters against NumPy, each kind of combining and each meaning of an index outside; lookups and one-hot codes."""

import numpy as np
import pytest

import ngraph as ng
from ngraph.autodiff import deriv
from ngraph.errors import AxisError, DTypeError, NgraphWarning
from ngraph.op_graph.op import Op
from ngraph.ops.indexing import gather, lookuptable, one_hot, put, scatter, take
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower
from ngraph.warn import forget

RNG = np.random.default_rng(7)
I, J, K, N = (ng.make_axis(n, name=name) for name, n in {"I": 3, "J": 4, "K": 2, "N": 6}.items())
INDEX = np.array([0, 3, -1, 5, 3, -6], "int32")
MODES = ["clip", "fill", "wrap"]


def compute(results, feeds):
    return interpret(lower(results, list(feeds)).program, list(feeds.values()))[0]


def hole(*axes, dtype="float64"):
    return ng.placeholder(axes, dtype=dtype)


def placed(index, n, mode):
    """Where each index points, and whether anywhere."""
    if mode == "clip":
        return np.clip(index, 0, n - 1), np.ones(index.shape, bool)
    return index % n, (index >= 0) & (index < n) if mode == "fill" else np.ones(index.shape, bool)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["int32", "int8", "int64"])
def test_take_reads_and_its_gradient_adds(mode, dtype):
    x, i, e, g = hole(I, J, K), hole(N, dtype=dtype), hole(I, N, K), hole(I, J, K)
    xs, es, gs = RNG.normal(size=(3, 4, 2)), RNG.normal(size=(3, 6, 2)), RNG.normal(size=(3, 4, 2))
    y = take(x, i, J, mode)
    dx = deriv(y, x, error=e)
    found = compute([y, dx, deriv(dx, e, error=g)], {x: xs, i: INDEX.astype(dtype), e: es, g: gs})
    at, inside = placed(INDEX, 4, mode)
    adjoint = np.zeros((3, 4, 2))
    for k in range(6):
        adjoint[:, at[k]] += es[:, k] * inside[k]
    assert [a.name for a in y.axes] == ["I", "N", "K"]
    np.testing.assert_array_equal(found[0], xs[:, at] * inside[:, None])
    np.testing.assert_allclose(found[1], adjoint, rtol=1e-12)
    np.testing.assert_array_equal(found[2], gs[:, at] * inside[:, None])


def test_shared_axes_are_the_same_index():
    x, i = hole(N, J), hole(N, dtype="int32")
    xs, at = RNG.normal(size=(6, 4)), np.array([3, 0, 1, 2, 2, 0], "int32")
    y = take(x, i, "J")
    e = hole(N)
    es = RNG.normal(size=6)
    found = compute([y, deriv(y, x, error=e)], {x: xs, i: at, e: es})
    assert list(y.axes) == [N]
    np.testing.assert_array_equal(found[0], xs[np.arange(6), at])
    adjoint = np.zeros((6, 4))
    adjoint[np.arange(6), at] = es
    np.testing.assert_array_equal(found[1], adjoint)


def test_an_index_may_have_the_axis_that_it_indexes():
    x, i = hole(J, K), hole(J, dtype="uint8")
    xs, at = RNG.normal(size=(4, 2)), np.array([2, 0, 3, 1], "uint8")
    np.testing.assert_array_equal(compute([take(x, i, J)], {x: xs, i: at})[0], xs[at])


def test_several_axes_at_once():
    x, a, b = hole(I, K, J), hole(N, dtype="int32"), hole(N, dtype="int64")
    xs, rows, columns = RNG.normal(size=(3, 2, 4)), RNG.integers(0, 3, 6), RNG.integers(0, 4, 6)
    y = gather(x, b, a, axes=(J, I), mode="clip")
    found = compute([y], {x: xs, a: rows.astype("int32"), b: columns})[0]
    assert [axis.name for axis in y.axes] == ["N", "K"]
    np.testing.assert_array_equal(found, xs[rows, :, columns])


def test_numbers_are_indices():
    x = hole(I, K, J)
    xs = RNG.normal(size=(3, 2, 4))
    one, two, put, negative = compute([take(x, 2, J), take(x, (1, 3), (I, J)), ng.put(x, 0, 7.0, J), take(x, np.int64(1), [I])], {x: xs})
    np.testing.assert_array_equal(one, xs[:, :, 2])
    np.testing.assert_array_equal(two, xs[1, :, 3])
    np.testing.assert_array_equal(negative, xs[1])
    xs[:, :, 0] = 7
    np.testing.assert_array_equal(put, xs)
    with pytest.raises(DTypeError, match="the index constant is bool"):
        take(x, True, J)


def test_lengths_that_come_with_the_call():
    j, n = ng.make_axis(name="J"), ng.make_axis(name="N")
    x, i = ng.placeholder([j, K], dtype="float64"), ng.placeholder([n], dtype="int32")
    y = take(x, i, j, "wrap")
    for rows, count in ((4, 3), (7, 1), (1, 0)):
        xs, at = RNG.normal(size=(rows, 2)), RNG.integers(-20, 20, count).astype("int32")
        e = ng.placeholder(y.axes, dtype="float64")
        es = RNG.normal(size=(count, 2))
        found = compute([y, deriv(y, x, error=e)], {x: xs, i: at, e: es})
        np.testing.assert_array_equal(found[0], xs[at % rows])
        adjoint = np.zeros((rows, 2))
        np.add.at(adjoint, at % rows, es)
        np.testing.assert_allclose(found[1], adjoint, atol=1e-15)


def slow_scatter(x, at, inside, u, combine):
    result = x.copy()
    for k in range(len(at)):
        if inside[k]:
            old = result[at[k]]
            result[at[k]] = {
                "set": u[k],
                "add": old + u[k],
                "multiply": old * u[k],
                "min": np.minimum(old, u[k]),
                "max": np.maximum(old, u[k]),
            }[combine]
    return result


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("combine", ["set", "add", "multiply", "min", "max"])
def test_put_and_its_gradients(mode, combine):
    index = {"clip": [0, -9, 3, 3, 7, 1], "fill": [0, -1, 3, 3, 4, 1], "wrap": [0, -4, 3, 7, -1, 1]}[mode]
    if combine == "set":
        index = {"clip": [2, -9, 1, 9], "fill": [2, -1, 1, 4], "wrap": [2, -4, 1, 7]}[mode]
    index = np.array(index)
    m = ng.make_axis(len(index), name="M")
    x, i, u = hole(J, K), hole(m, dtype="int32"), hole(m, K)
    xs, us = RNG.normal(size=(4, 2)) + 2, RNG.normal(size=(len(index), 2)) + 2
    y = put(x, i, u, J, combine, mode)
    assert y.axes == x.axes
    at, inside = placed(index, 4, mode)
    weights = RNG.normal(size=(4, 2))

    def value(xs, us):
        return (slow_scatter(xs, at, inside, us, combine) * weights).sum()

    loss = ng.sum(y * ng.constant(weights, y.axes), out_axes=())
    found = compute([y, *deriv(loss, [x, u])], {x: xs, i: index.astype("int32"), u: us})
    np.testing.assert_allclose(found[0], slow_scatter(xs, at, inside, us, combine), rtol=1e-12)
    for which, gradient in ((0, found[1]), (1, found[2])):
        for place in np.ndindex(gradient.shape):
            both = [[xs.copy(), us.copy()], [xs.copy(), us.copy()]]
            both[0][which][place] += 1e-6
            both[1][which][place] -= 1e-6
            np.testing.assert_allclose(gradient[place], (value(*both[0]) - value(*both[1])) / 2e-6, atol=1e-8)


def test_products_with_zeros_have_exact_gradients():
    x, i, u = hole(K), hole(N, dtype="int32"), hole(N)
    us = np.array([0.0, 2, 3, 0, 0, 5])
    y = put(x, i, u, K, "multiply")
    found = compute(deriv(ng.sum(y, out_axes=()), [x, u]), {x: np.array([2.0, 3]), i: np.array([0, 0, 0, 1, 1, 1], "int32"), u: us})
    np.testing.assert_array_equal(found[0], [0, 0])
    np.testing.assert_array_equal(found[1], [12, 0, 0, 0, 0, 0])


def test_ties_share_the_gradient():
    x, i, u = hole(K), hole(I, dtype="int32"), hole(I)
    y = put(x, i, u, K, "max")
    found = compute(
        deriv(ng.sum(y, out_axes=()), [x, u]), {x: np.array([1.0, 4]), i: np.array([0, 0, 1], "int32"), u: np.array([1.0, 1, 2])}
    )
    np.testing.assert_allclose(found[0], [1 / 3, 1])
    np.testing.assert_allclose(found[1], [1 / 3, 1 / 3, 0])


def test_sixteen_bits_are_added_in_thirty_two():
    x, i, u = hole(K, dtype="float16"), hole(N, dtype="int32"), hole(N, dtype="float16")
    found = compute([put(x, i, u, K, "add")], {x: np.float16([2048, 0]), i: np.zeros(6, "int32"), u: np.ones(6, "float16")})[0]
    np.testing.assert_array_equal(found, [2054, 0])


def test_values_are_repeated_along_axes_that_they_lack():
    x, i = hole(J, K), hole(I, dtype="int32")
    xs = RNG.normal(size=(4, 2))
    found = compute([put(x, i, 7, J)], {x: xs, i: np.array([0, 2, 9], "int32")})[0]
    xs[[0, 2]] = 7
    np.testing.assert_array_equal(found, xs)


class TestLookup:
    def setup_method(self):
        self.lut, self.idx = hole(J, I), hole(N, dtype="int32")
        self.values, self.at = RNG.normal(size=(4, 3)), np.array([1, 3, 1, 0, 4, 3], "int32")
        self.feeds = {self.lut: self.values, self.idx: self.at}

    def gradient(self, y):
        es = RNG.normal(size=y.axes.lengths)
        e = ng.placeholder(y.axes, dtype="float64")
        return compute([deriv(y, self.lut, error=e)], {**self.feeds, e: es})[0], es

    @pytest.mark.parametrize("order", [(N, I), (I, N)])
    def test_rows(self, order):
        y = lookuptable(self.lut, self.idx, order)
        wanted = np.concatenate([self.values, np.zeros((1, 3))])[self.at]
        np.testing.assert_array_equal(compute([y], self.feeds)[0], wanted if order == (N, I) else wanted.T)

    def test_the_gradient_adds_up_and_skips_the_padding_row(self):
        for pad_idx in (None, 1, 3):
            found, es = self.gradient(lookuptable(self.lut, self.idx, [N, I], pad_idx=pad_idx))
            adjoint = np.zeros((5, 3))
            np.add.at(adjoint, self.at, es)
            if pad_idx is not None:
                adjoint[pad_idx] = 0
            np.testing.assert_allclose(found, adjoint[:4], atol=1e-15)

    def test_a_table_that_is_not_updated_has_no_gradient(self):
        np.testing.assert_array_equal(self.gradient(lookuptable(self.lut, self.idx, [N, I], update=False))[0], np.zeros((4, 3)))

    def test_numbers_of_two_axes(self):
        idx = hole(K, N, dtype="int64")
        at = RNG.integers(0, 4, (2, 6))
        np.testing.assert_array_equal(
            compute([lookuptable(self.lut, idx, [K, N, I])], {self.lut: self.values, idx: at})[0], self.values[at]
        )

    def test_mistakes(self):
        for axes in ([N], [J, I], [N, I, J], [N, K]):
            with pytest.raises(AxisError, match="test_indexing.py.*lookuptable"):
                lookuptable(self.lut, self.idx, axes)
        with pytest.raises(DTypeError, match="float16"):
            lookuptable(self.lut, hole(N, dtype="float16"), [N, I])

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_word_ids_that_are_floats(self, dtype):
        forget()
        words = hole(N, dtype=dtype).named("words")
        with pytest.warns(NgraphWarning) as said:
            y = lookuptable(self.lut, words, [N, I])
        assert f"words is {dtype}, and is read as int32" in str(said[0].message) and "dtype='int32'" in str(said[0].message)
        at = RNG.integers(0, 4, 6)
        np.testing.assert_array_equal(compute([y], {self.lut: self.values, words: at.astype(dtype)})[0], self.values[at])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint16", "float32", "float16", "bool"])
def test_one_hot(dtype):
    at = np.array([2, 0, 1, 1, 0, 2]) % (2 if dtype == "bool" else 3)
    x = hole(N, dtype=dtype)
    y = one_hot(x, I)
    assert list(y.axes) == [I, N] and y.dtype is ng.float32
    np.testing.assert_array_equal(compute([y], {x: at.astype(dtype)})[0], np.eye(3, dtype="float32")[:, at])


def test_one_hot_counts_further_than_its_input_can():
    wide = ng.make_axis(300, name="wide")
    x = hole(K, dtype="uint8")
    found = compute([one_hot(x, wide)], {x: np.array([44, 255], "uint8")})[0]
    assert found.sum() == 2 and found[44, 0] == found[255, 1] == 1


def test_one_hot_of_what_is_outside_and_reads_nothing_at_computed_places():
    x = hole(K, dtype="int32")
    y = one_hot(x, I)
    np.testing.assert_array_equal(compute([y], {x: np.array([-1, 3], "int32")})[0], np.zeros((3, 2)))
    assert not {"gather", "scatter"} & {s.op for s in lower([y], [x]).program.steps}
    y = one_hot(x, ng.make_axis(name="classes"))
    e = ng.placeholder(y.axes)
    assert compute([y + e], {x: np.array([1, 0], "int32"), e: np.zeros((5, 2), "float32")})[0].shape == (5, 2)


X, F = hole(I, J), hole(N)
AT = hole(N, dtype="int32")
MISTAKES = [
    (AxisError, lambda: take(X, AT, K), "K is not an axis"),
    (DTypeError, lambda: take(X, F, J), "float64"),
    (AxisError, lambda: take(X, hole(ng.make_axis(5, name="I"), dtype="int32"), J), "axis I has length"),
    (AxisError, lambda: gather(X, AT, axes=(I, J), mode="clip"), "1 indices for the axes"),
    (AxisError, lambda: gather(X, axes=(), mode="clip"), "0 indices"),
    (ValueError, lambda: take(X, AT, J, "mirror"), "clip, fill, wrap"),
    (ValueError, lambda: put(X, AT, 1, J, "mean"), "set, add, multiply, min, max"),
    (AxisError, lambda: put(X, AT, hole(N, I, K), J), "the values have K, and the places"),
    (AxisError, lambda: scatter(X, AT, F, axes=(J,), combine="add", mode="fill"), "wanted are the axes"),
    (DTypeError, lambda: put(hole(J, dtype="bool"), AT, True, J, "add"), "scatter add of bool"),
    (AxisError, lambda: one_hot(AT, N), "has already"),
]


@pytest.mark.parametrize("error, call, part", MISTAKES, ids=[part for _, _, part in MISTAKES])
def test_mistakes_are_told(error, call, part):
    with pytest.raises(error) as caught:
        call()
    assert part in str(caught.value), str(caught.value)


def test_gradients_are_ordinary_graph():
    x, i = hole(J), hole(N, dtype="int32")
    dx = deriv(ng.sum(take(x, i, J) ** 3, out_axes=()), x)
    second = deriv(ng.sum(dx * dx, out_axes=()), x)
    assert {"gather", "scatter"} <= {o.opdef.name for o in Op.ordered_ops([second])}
    xs, at = RNG.normal(size=4), np.array([0, 3, 3, 1, 3, 0], "int32")
    times = np.bincount(at, minlength=4)
    np.testing.assert_allclose(compute([second], {x: xs, i: at})[0], 36 * times**2 * xs**3, rtol=1e-12)

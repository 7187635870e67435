"""Indexing with `x[...]` by ops and arrays, beside NumPy; norms of several tensors; axes given by a generator."""

import numpy as np
import pytest
import torch

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import AxisError, BoundsError, DTypeError

X = np.arange(24, dtype=np.float32).reshape(3, 8)
TRANSFORMERS = ["cpu", "numpy", "direct"]


def made(transformer, results, *inputs):
    return ngt.make_transformer_factory(transformer)().computation(results, *inputs)


@pytest.mark.parametrize("transformer", TRANSFORMERS)
@pytest.mark.parametrize("lengths", ["H=3 W=8", "H=? W=?"])
def test_an_index_may_be_an_op(transformer, lengths):
    x, i, k = ng.placeholder(lengths), ng.placeholder((), dtype="int32"), ng.placeholder("K=?", dtype="int64")
    ys = [x["H", i], x["W", i - 1], x[{"W": k}], x["H", i, "W", k], x[i], x[:, k], x[..., i], x["W", 1:7:2, "H", k], x["H", k]["W", k]]
    f = made(transformer, [*ys, ng.deriv(ng.sum(ys[2] * ys[2], out_axes=()), x)], x, i, k)
    for at, places in ((1, [0, -1, 2]), (-2, [1, 1]), (2, [])):
        p = np.array(places, np.int64)
        *got, slope = f(X, at, p)
        wanted = [X[at], X[:, at - 1], X[:, p], X[at][p], X[at], X[:, p], X[:, at], X[:, 1:7:2][p], X[p, p]]
        for g, w in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(g, w)
        there = torch.tensor(X, requires_grad=True)
        (there[:, p] ** 2).sum().backward()
        np.testing.assert_array_equal(slope, there.grad.numpy())
    for at, places in ((3, [0]), (0, [8])):
        with pytest.raises(BoundsError, match="out of bounds of axis"):
            f(X, at, np.array(places))


@pytest.mark.parametrize("index", [[0, 2], [-1], [], np.array([2, 2, 0]), [True, False, True], np.array([False] * 3), (1, 0)])
@pytest.mark.parametrize("form", ["name", "dict", "place"])
def test_an_index_may_be_a_list_or_an_array(index, form):
    x = ng.placeholder("H=3 W=8")
    y = x["H", index] if form == "name" else x[{"H": index}] if form == "dict" else x[index, :]
    wanted = X[np.asarray(index) if len(index) else np.zeros(0, int)]
    assert [(a.short_name, a.length) for a in y.axes] == [("H", len(wanted)), ("W", 8)]
    np.testing.assert_array_equal(ng.function(y, x)(X), wanted)


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ([0, 3], "there are 3 elements, and index 3 is outside along H=3"),
        ([[0], [1]], "an array of 2 dims along H=3"),
        ([0.5], "indices of float64 along H=3"),
        ([True, False], "2 flags along H=3"),
        (["a"], "indices of <U1 along H=3"),
    ],
)
def test_a_wrong_list_is_told(index, said):
    with pytest.raises(AxisError, match=said):
        ng.placeholder("H=3 W=8")["H", index]


@pytest.mark.parametrize("transformer", TRANSFORMERS)
def test_none_of_a_constant_up_to_a_computed_bound(transformer):
    x, empty = ng.placeholder("T=?"), ng.zeros("K=0 D=5")
    used = empty["K", : ng.cast(ng.sum(x, out_axes=()), "int32")]
    f = made(transformer, ng.flatten(used, "D K"), x)  # its length, 0, is known, and the number in the index is not
    assert [f(np.ones(n, np.float32)).shape for n in (2, 0)] == [(0,), (0,)]


def test_a_mask_that_is_computed_and_an_index_of_floats_are_told():
    x = ng.placeholder("H=3 W=8")
    with pytest.raises(AxisError, match="an array of flags"):
        x["H", x["W", 0] > 0]
    with pytest.raises(DTypeError, match="is float32"):
        x["H", ng.placeholder(())]


# ---- several tensors, and generators ----


@pytest.mark.parametrize("transformer", TRANSFORMERS)
def test_norms_of_several_tensors(transformer):
    a, b = ng.placeholder("H=3 N=?"), ng.placeholder("K=2")
    results = [
        f(several())
        for f in (ng.L1_norm, ng.L2_norm, ng.squared_L2)
        for several in (lambda: [a, b], lambda: (t for t in (a, b)), lambda: {"a": a, "b": b})
    ]
    f = made(transformer, results, a, b)
    x, y = np.random.RandomState(0).randn(3, 5).astype(np.float32), np.array([3, -4], np.float32)
    every = torch.cat([torch.tensor(x).ravel(), torch.tensor(y)])
    wanted = [every.norm(1), every.norm(2), every.norm(2) ** 2]
    np.testing.assert_allclose(f(x, y), np.repeat(np.array(wanted), 3), rtol=1e-6)


def test_half_precision_norms_do_not_overflow_inside():
    a, b = (ng.placeholder("H=4", dtype="float16") for _ in range(2))
    f = ng.function([ng.L2_norm([a, b]), ng.L2_norm(a, out_axes=())], a, b)
    big = np.full(4, 300, np.float16)
    np.testing.assert_array_equal(f(big, big), [np.float16(np.sqrt(8 * 300.0**2)), np.float16(600)])


@pytest.mark.parametrize(
    "function",
    [
        ng.sum,
        ng.mean,
        ng.var,
        ng.std,
        ng.max,
        ng.prod,
        ng.L1_norm,
        ng.L2_norm,
        ng.squared_L2,
        ng.norm,
        ng.argmax,
        ng.any,
        ng.median,
        ng.logsumexp,
    ],
)
def test_axes_may_come_from_a_generator(function):
    x = ng.placeholder("H=3 W=8")
    for said in ({"out_axes": ("W", "H")}, {"out_axes": ["H"]}, {"reduction_axes": ["W"]}):
        given = {k: (a for a in axes) for k, axes in said.items()}
        got, wanted = (ng.function(function(x, **d), x)(X / 24) for d in (given, said))
        np.testing.assert_array_equal(got, wanted)


def test_tensors_may_come_from_a_generator_or_the_values_of_a_dict():
    x = ng.placeholder("H=3")
    results = [
        ng.stack((x + i for i in range(3)), "K"),
        ng.concat_along_axis((x * i for i in (1, 2)), "H"),
        ng.stack({1: x, 2: -x}.values(), "K"),
    ]
    given = np.array([1, 2, 3], np.float32)
    wanted = np.stack([given, given + 1, given + 2]), np.concatenate([given, 2 * given]), np.stack([given, -given])
    for got, want in zip(ng.function(results, x)(given), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_the_name_of_an_error_says_where_it_is():
    with pytest.raises(AttributeError, match="write ngraph.errors.AxisError"):
        ng.AxisError  # noqa: B018 - the read itself fails

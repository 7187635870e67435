"""Random numbers have the distribution that they are named for: moments and shares of 200,000 of them against SciPy."""

import numpy as np
import pytest
import scipy.stats

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ArgumentError

N = ng.make_axis(200_000, name="N")
CASES = {
    "gumbel": (lambda: ng.gumbel([N], 1.0, 2.0), scipy.stats.gumbel_r(1, 2)),
    "truncated_normal": (lambda: ng.truncated_normal([N], -1.0, 2.0, 3.0, 0.5), scipy.stats.truncnorm(-1, 2, 3, 0.5)),
    "gamma": (lambda: ng.gamma([N], 2.5, 3.0), scipy.stats.gamma(2.5, scale=3)),
    "gamma of a small shape": (lambda: ng.gamma([N], 0.3, dtype="float64"), scipy.stats.gamma(0.3)),
    "normal in a tail": (lambda: ng.truncated_normal([N], 8.0, 9.0), scipy.stats.truncnorm(8, 9)),
    "normal below": (lambda: ng.truncated_normal([N], -np.inf, -5.0, 1.0, 2.0), scipy.stats.truncnorm(-np.inf, -5, 1, 2)),
    "gamma of a large shape": (lambda: ng.gamma([N], 1e7, 2.0), scipy.stats.gamma(1e7, scale=2)),
    "poisson of millions": (lambda: ng.poisson([N], 1e6), scipy.stats.poisson(1e6)),
    "poisson of few": (lambda: ng.poisson([N], 3.7), scipy.stats.poisson(3.7)),
    "poisson of many": (lambda: ng.poisson([N], 80.5), scipy.stats.poisson(80.5)),
    "poisson of a tensor": (lambda: ng.poisson([N], ng.constant(12.0, [N])), scipy.stats.poisson(12)),
    "poisson of none": (lambda: ng.poisson([N], 0.0), scipy.stats.poisson(0)),
}


@pytest.mark.parametrize("transformer", [t for t in ("numpy", "cpu") if t in ngt.transformer_choices()])
@pytest.mark.parametrize("name", CASES)
def test_numbers_follow_their_distribution(name, transformer):
    call, wanted = CASES[name]
    with ngt.make_transformer_factory(transformer)() as t:
        f = t.computation(call())
        got, again = f().astype(np.float64), f()
    assert (got != again).any() or wanted.std() == 0
    error = 5 / np.sqrt(len(got))
    assert abs(got.mean() - wanted.mean()) <= error * wanted.std() + 1e-12
    if wanted.std():
        kurtosis = float(wanted.stats("k")) + 3
        assert abs(got.var() / wanted.var() - 1) <= error * np.sqrt(kurtosis)
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        at = wanted.ppf(share)
        assert abs((got <= at).mean() - wanted.cdf(at)) <= 0.5 * error
    if hasattr(wanted.dist, "pdf"):
        assert scipy.stats.kstest(got, wanted.cdf).pvalue > 1e-6


def test_parameters_without_a_distribution_end_and_give_nan():
    odd = ng.constant(np.array([np.nan, -1, np.inf, 0, 500], "float32"), "H=5")
    with ngt.make_transformer() as t:
        shapes, rates, whole = t.computation([ng.gamma("H=5", odd), ng.poisson("H=5", odd, "float32"), ng.poisson("H=5", odd)])()
    for got in (shapes, rates):
        np.testing.assert_array_equal(got[:4], np.array([np.nan, np.nan, np.inf, 0], "float32"))
        assert 350 < got[4] < 650
    assert list(whole[:4]) == [0, 0, np.iinfo(np.int32).max, 0]


@pytest.mark.parametrize(
    "call",
    [
        lambda bad: ng.gamma("H=5", bad),
        lambda bad: ng.poisson("H=5", bad),
        lambda bad: ng.normal("H=5", 0.0, bad),
        lambda bad: ng.uniform("H=5", 0.0, bad),
        lambda bad: ng.truncated_normal("H=5", 0.0, bad),
    ],
)
def test_numbers_without_a_distribution_are_refused(call):
    with pytest.raises(ArgumentError, match="nan"):
        call(float("nan"))


def test_categories_are_drawn_by_their_probabilities():
    logits = np.log(np.array([[0.1, 0.2, 0.7], [0.5, 0.0, 0.5]]) + 1e-300).astype("float32")
    with ngt.make_transformer() as t:
        got = t.computation(ng.categorical(ng.constant(logits, "B=2 K=3"), "K", [N]))()
    assert got.shape == (200_000, 2) and got.dtype == np.int32
    shares = np.stack([(got == k).mean(0) for k in range(3)], 1)
    np.testing.assert_allclose(shares, [[0.1, 0.2, 0.7], [0.5, 0, 0.5]], atol=0.005)


def test_dropout_keeps_the_mean_and_knows_training():
    x = ng.ones([N])
    training = ng.placeholder((), dtype="bool")
    with ngt.make_transformer() as t:
        f = t.computation([ng.dropout(x, 0.3), ng.dropout(x, 0.3, training), ng.dropout(x, 0.3, training=False)], training)
        dropped, given, never = f(False)
        assert set(np.unique(dropped)) == {np.float32(0), np.float32(1 / 0.7)} and abs(dropped.mean() - 1) < 0.01
        assert (given == 1).all() and (never == 1).all() and (f(True)[1] == 0).any()


@pytest.mark.parametrize("axes", ["N=40 K=3", "N=? K=3"])
def test_numbers_of_a_gamma_distribution_follow_their_shape(axes):
    a = ng.placeholder(axes, dtype="float64")
    y = ng.gamma(a, a, scale=2.0, dtype="float64", seed=3)
    given = np.random.default_rng(0).uniform(0.05, 20, (40, 3))
    numbers, slope = ng.function([y, ng.deriv(ng.sum(y, out_axes=()), a)], a)(given)
    share, step = scipy.stats.gamma.cdf(numbers, given, scale=2), 1e-5
    ends = [scipy.stats.gamma.ppf(share, given + sign * step, scale=2) for sign in (1, -1)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "call", [lambda: ng.gamma("N=5", 2.0, seed=3), lambda: ng.poisson("N=5", 20.0, seed=3), lambda: ng.gumbel("N=5", seed=3)]
)
def test_a_seed_fixes_the_numbers(call):
    with ngt.make_transformer() as t:
        a, b = t.computation([call(), call()])()
        np.testing.assert_array_equal(a, b)

"""Special functions beside SciPy's: values on both sides of each change of method, ends of the domains, derivatives."""

import numpy as np
import pytest
import scipy.special

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.frontends.positional import special
from ngraph.ops import incomplete

RNG = np.random.default_rng(3)
NUMBERS = np.concatenate([RNG.uniform(-60, 60, 701), np.geomspace(1e-12, 1e4, 58), [0.0, 2.0, 20.0, 25.0, -20.0, -np.inf, np.nan]])


def computed(function, *arrays, kind="cpu"):
    axes = [ng.make_axis(n, name=f"A{k}") for k, n in enumerate(arrays[0].shape)]
    given = [ng.placeholder(axes, dtype=a.dtype) for a in arrays]
    with ngt.make_transformer_factory(kind)() as transformer:
        return transformer.computation(function(*given), *given)(*arrays)


@pytest.mark.parametrize("kind", ["cpu", "direct"])
@pytest.mark.parametrize("name", special.BESSEL)
def test_bessel_functions(name, kind):
    found, wanted = computed(special.BESSEL[name], NUMBERS, kind=kind), getattr(scipy.special, name)(NUMBERS)
    relative = name[0] in "ik"  # the others have roots, and their phase has the rounding of x
    np.testing.assert_allclose(found, wanted, 1e-13, 0 if relative else 2e-12)


PAIRS = {
    "gammainc": (lambda a, x: incomplete.gamma_shares(a, x)[0], (0.01, 40), (0, 60)),
    "gammaincc": (lambda a, x: incomplete.gamma_shares(a, x)[1], (0.01, 40), (0, 60)),
    "zeta": (special.zeta, (1.01, 12), (0.05, 60)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_functions_of_two_numbers(name):
    function, *ranges = PAIRS[name]
    a, x = (RNG.uniform(*r, (7, 3, 11)) for r in ranges)
    x.ravel()[::17] = np.ceil(x.ravel()[::17])
    np.testing.assert_allclose(computed(function, a, x), getattr(scipy.special, name)(a, x), 3e-12, 1e-300)


def test_zeta_of_large_exponents():
    """Above the exponents at which Euler's and Maclaurin's factors overflow, and where their series alone does not converge."""
    s = np.array([1e18, 1e19, 1e300, np.inf, 1e20, 1e20, 200, 50, 150, 30, 19.4, 1.5])
    q = np.array([1, 1, 1, 1, 0.5, 1e10, 12, 12, 30, 10.3, 135.2, 1e9])
    wanted = scipy.special.zeta(s, q)
    wanted[5] = 0.0  # where SciPy gives NaN
    np.testing.assert_allclose(computed(special.zeta, s, q), wanted, 3e-12)
    np.testing.assert_array_equal(computed(special.zeta, np.array([1e20, 1e300]), np.array([2.0, 3.0])), 0.0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_the_error_function_leaves_of_1(dtype):
    x = np.linspace(-5, 9 if dtype == "float32" else 26, 999).astype(dtype)
    np.testing.assert_allclose(computed(special.erfc, x), scipy.special.erfc(x.astype("float64")), 2e-6 if dtype == "float32" else 1e-13)


def test_the_inverse_of_the_normal_distribution():
    low = np.concatenate([np.geomspace(1e-300, 0.5, 301), [0.1, 0.0, -0.1, np.nan, 1.1]])
    high = 1 - np.geomspace(2**-53, 0.49, 99)
    for p in (low, high):
        np.testing.assert_allclose(computed(special.ndtri, p), scipy.special.ndtri(p), 1e-13)


@pytest.mark.parametrize("a", [3e3, 1e5, 1e7])
def test_incomplete_gamma_functions_of_large_numbers(a):
    """The series and the fraction take some nine times the root of a terms there."""
    x = a + np.array([-4, -1, 0, 1, 4]) * np.sqrt(a)
    for name in ("gammainc", "gammaincc"):
        np.testing.assert_allclose(computed(PAIRS[name][0], np.full(5, a), x), getattr(scipy.special, name)(a, x), 5e-8)


def test_derivatives_by_the_concentration():
    a = np.exp(RNG.uniform(-3, 9, 301))
    x = RNG.gamma(a)
    h = a * 1e-4
    share = scipy.special.gammainc(a, x)
    samples = (scipy.special.gammaincinv(a + h, share) - scipy.special.gammaincinv(a - h, share)) / (2 * h)
    np.testing.assert_allclose(computed(incomplete.gamma_sample_by_a, a, x), samples, 1e-5)
    shares = (scipy.special.gammainc(a + h, x) - scipy.special.gammainc(a - h, x)) / (2 * h)
    np.testing.assert_allclose(computed(incomplete.gamma_share_by_a, a, x), shares, 1e-4, 1e-9)
    ends = np.array([0.0, np.inf, -1.0])
    np.testing.assert_array_equal(computed(incomplete.gamma_share_by_a, np.ones(3), ends), [0, 0, np.nan])
    np.testing.assert_array_equal(computed(incomplete.gamma_sample_by_a, np.ones(3), ends)[::2], [0, np.nan])


def test_ends_of_incomplete_gamma_functions():
    a, x = (
        np.array(v) for v in zip(*[(2.0, 0.0), (2.0, np.inf), (2.0, -1.0), (0.0, 1.0), (-1.0, 1.0), (0.0, 0.0), (3.0, np.nan)], strict=True)
    )
    np.testing.assert_array_equal(computed(PAIRS["gammainc"][0], a, x), scipy.special.gammainc(a, x))
    np.testing.assert_array_equal(computed(PAIRS["gammaincc"][0], a, x), scipy.special.gammaincc(a, x))


def test_the_incomplete_beta_function():
    a, b = RNG.uniform(0.02, 50, (2, 5, 41))
    x = RNG.uniform(0, 1, (5, 41))
    x[0, :3] = 0, 1, 0.5
    np.testing.assert_allclose(computed(special.beta_share, a, b, x), scipy.special.betainc(a, b, x), 5e-12, 1e-300)
    outside = computed(special.beta_share, np.array([1.0, 1.0, -1.0, 0.0]), np.ones(4), np.array([-0.1, 1.1, 0.5, 0.5]))
    assert np.isnan(outside).all()


def test_zeta_of_numbers_below_0():
    """Of a whole exponent alone. Each element depends on its own operands: beside NaN, and numbers that no step leads away from."""
    q = np.concatenate([[np.nan, -1e20, -np.inf, np.inf, -3.0, -1e-9], -RNG.uniform(0, 30, 60)])
    for s in (2.0, 3.0, 7.0):
        found = computed(special.zeta, np.full(len(q), s), q)
        assert np.isnan(found[0]) and np.isposinf(found[[1, 2, 4]]).all() and found[3] == 0
        np.testing.assert_allclose(found[5:], scipy.special.zeta(s, q[5:]), 1e-11)
    assert np.isnan(computed(special.zeta, np.full(1, 2.5), np.full(1, -0.5)))


def test_the_rest_of_the_error_function():
    x = np.concatenate([RNG.uniform(-6, 26, 301), [2.5, 0.0, 1e20, -1e20, np.inf, -np.inf, np.nan]])
    np.testing.assert_allclose(computed(special.erfc, x), scipy.special.erfc(x), 3e-13)
    np.testing.assert_allclose(computed(special.erfcx, x), scipy.special.erfcx(x), 1e-12)


def test_polygamma():
    k, x = RNG.integers(0, 8, 203).astype(float), RNG.uniform(0.05, 40, 203)
    wanted = [scipy.special.polygamma(int(i), v) for i, v in zip(k, x, strict=True)]
    np.testing.assert_allclose(computed(special.polygamma, k, x), wanted, 1e-12)
    assert np.isnan(computed(special.polygamma, np.array([0.5, -1.0]), np.ones(2))).all()


DERIVATIVES = {"i0": scipy.special.i1, "j0": lambda x: -scipy.special.j1(x), "k0": lambda x: -scipy.special.k1(x)}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_of_bessel_functions(name):
    x = np.abs(NUMBERS[:701]) + 0.01
    found = computed(lambda v: ng.deriv(special.BESSEL[name](v), v, ng.ones(v.axes, v.dtype)), x)
    np.testing.assert_allclose(found, DERIVATIVES[name](x), 1e-10, 1e-10)

"""Values and derivatives at zeros, infinities, NaN and ties, beside PyTorch's; docs/autodiff.md lists where they differ and why."""

import numpy as np
import pytest
import torch

import ngraph as ng
import ngraph.transformers as ngt

inf, nan = np.inf, np.nan
functional = torch.nn.functional
ALL = [-inf, -3.0, -1.0, -0.0, 0.0, 0.5, 1.0, 3.0, inf, nan]
PAIRS = [np.repeat(ALL, len(ALL)), np.tile(ALL, len(ALL))]
BASES = [[0.0, 0.0, 0.0, 2.0, -2.0, 1.0, inf, 0.0, 4.0], [2.0, 0.0, 1.0, 0.0, 2.0, 5.0, 2.0, -1.0, 0.5]]

EDGES = {  # the function here, in PyTorch, and its inputs
    "power": (ng.power, torch.pow, BASES),
    "x ** 0": (lambda x: x**0, lambda x: x**0, [ALL]),
    "x ** 1": (lambda x: x**1, lambda x: x**1, [[0.0, -1.0, inf]]),
    "x ** 0.5": (lambda x: x**0.5, lambda x: x**0.5, [[0.0, 4.0, inf]]),
    "x ** 3": (lambda x: x**3, lambda x: x**3, [ALL]),
    "x ** -1": (lambda x: x**-1, lambda x: x**-1, [[-2.0, 0.0, inf]]),
    "2 ** x": (lambda x: 2**x, lambda x: 2**x, [[-2.0, 0.0, 200.0, -inf, inf]]),
    "maximum": (ng.maximum, torch.maximum, PAIRS),
    "minimum": (ng.minimum, torch.minimum, PAIRS),
    "mod": (ng.mod, torch.remainder, [[5.0, -5.0, 5.0, -5.0, 5.0, -0.0, -1e-30], [3.0, 3.0, -3.0, inf, inf, 3.0, 1e30]]),
    "clip": (lambda x: ng.clip(x, 0.0, 1.0), lambda x: torch.clamp(x, 0.0, 1.0), [ALL]),
    "relu": (ng.relu, torch.relu, [[0.0, -0.0, inf, -inf]]),
    "absolute": (ng.absolute, torch.abs, [ALL[:-1]]),
    "softplus": (ng.softplus, functional.softplus, [[100.0, -100.0, 0.0, 1000.0]]),
    "gelu": (ng.gelu, functional.gelu, [[-20.0, 20.0, 0.0]]),
    "silu": (ng.silu, functional.silu, [[-80.0, 1000.0, 0.0]]),
    "elu": (ng.elu, functional.elu, [[-1000.0, -inf, 1000.0, inf, 0.0, -0.0]]),
    "elu, alpha 2": (lambda x: ng.elu(x, 2.0), lambda x: functional.elu(x, 2.0), [[-1.0, 0.0, 1.0]]),
    "sigmoid": (ng.sigmoid, torch.sigmoid, [[-1000.0, 1000.0, 0.0, -inf, inf, nan]]),
    "tanh": (ng.tanh, torch.tanh, [ALL]),
    "log": (ng.log, torch.log, [[0.0, 1.0, inf]]),
    "log1p": (ng.log1p, torch.log1p, [[-1.0, 0.0, 1e-20, inf]]),
    "expm1": (ng.expm1, torch.expm1, [[-1e9, 1e-20, 200.0]]),
    "reciprocal": (ng.reciprocal, torch.reciprocal, [[0.0, -0.0, inf]]),
    "sqrt": (ng.sqrt, torch.sqrt, [[0.0, 4.0, -1.0, inf, nan]]),
    "sign": (ng.sign, torch.sign, [[0.0, -3.0, inf, -inf]]),
    "atan": (ng.atan, torch.atan, [ALL]),
    "erf": (ng.erf, torch.erf, [[-10.0, 1e-30, 10.0, inf, -inf, nan]]),
    "lgamma": (ng.lgamma, torch.lgamma, [[-1e-10, -1e-17, -1e-30, -1e-38, 1e-38, -0.5, 0.0, -3.5, 1e30]]),
    "where": (lambda x: ng.where(ng.greater(x, 0), x * x, 0.0), lambda x: torch.where(x > 0, x * x, 0.0), [[1.0, 0.0, -1.0]]),
    "max": (lambda x: ng.max(x, out_axes=()), lambda x: x.amax(), [[1.0, 1.0, 0.0]]),
    "prod with a zero": (lambda x: ng.prod(x, out_axes=()), lambda x: x.prod(), [[0.0, 3.0, 2.0]]),
    "prod with two zeros": (lambda x: ng.prod(x, out_axes=()), lambda x: x.prod(), [[0.0, 0.0, 2.0]]),
    **{
        f"{name} of {what}": (ours, theirs, [v])
        for what, v in (("a mask", [0.0, -inf, 1.0]), ("inf", [inf, 0.0, 1.0]), ("large numbers", [1e30, -1e30, 0.0]))
        for name, ours, theirs in (
            ("softmax", ng.softmax, lambda x: x.softmax(0)),
            ("log_softmax", ng.log_softmax, lambda x: x.log_softmax(0)),
            ("logsumexp", ng.logsumexp, lambda x: x.logsumexp(0)),
        )
    },
}


@pytest.mark.parametrize("transformer", ["cpu", "numpy", "direct"])
@pytest.mark.parametrize("name", EDGES)
def test_edges_are_those_of_pytorch(name, transformer):
    ours, theirs, values = EDGES[name]
    axis = ng.make_axis(len(values[0]), name="A")
    inputs = [ng.placeholder([axis]) for _ in values]
    y = ours(*inputs)
    compute = ngt.make_transformer_factory(transformer)().computation([y, *ng.deriv(ng.sum(y, out_axes=()), inputs)], *inputs)
    with np.errstate(all="ignore"):
        got = compute(*values)
    tensors = [torch.tensor(v, dtype=torch.float32, requires_grad=True) for v in values]
    z = theirs(*tensors)
    z.sum().backward()
    for what, mine, other in zip(("value", "by x", "by y"), got, [z.detach(), *(t.grad for t in tensors)], strict=False):
        np.testing.assert_allclose(mine, other.numpy(), rtol=1e-5, atol=1e-6, err_msg=what)


OURS = {  # what docs/autodiff.md lists: the value or derivative at a place where PyTorch's is another
    "relu": (lambda x: ng.deriv(ng.sum(ng.relu(x), out_axes=()), x), [nan], [0.0]),
    "absolute": (lambda x: ng.deriv(ng.sum(ng.absolute(x), out_axes=()), x), [nan], [nan]),
    "sign": (ng.sign, [nan], [nan]),
    "logsumexp": (lambda x: ng.deriv(ng.logsumexp(x), x), [-inf, -inf], [0.0, 0.0]),
    "gelu": (ng.gelu, [inf], [inf]),
}


@pytest.mark.parametrize("transformer", ["cpu", "numpy", "direct"])
@pytest.mark.parametrize("name", OURS)
def test_edges_that_differ(name, transformer):
    ours, given, expected = OURS[name]
    x = ng.placeholder([ng.make_axis(len(given), name="A")])
    with np.errstate(all="ignore"):
        got = ngt.make_transformer_factory(transformer)().computation(ours(x), x)(given)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("length", ["0", "?"])
def test_a_median_of_nothing_is_nan(length):
    x = ng.placeholder(f"N=2 H={length}")
    with ngt.make_transformer() as transformer:
        found = transformer.computation([ng.median(x, "H"), ng.quantile(x, 0.2, "H", method="lower")], x)(np.zeros((2, 0)))
    np.testing.assert_array_equal(found, np.full((2, 2), nan))


@pytest.mark.parametrize("length", ["0", "?"])
def test_norms_of_nothing_are_0(length):
    x = ng.placeholder(f"N=2 H={length}", dtype="float64")
    norms = [ng.norm(x, p, "H") for p in (1, 2, 3, inf)]
    with ngt.make_transformer() as transformer:
        found = transformer.computation([*norms, ng.norm(x, -inf, "H")], x)(np.zeros((2, 0)))
        np.testing.assert_array_equal(found, [[0, 0]] * 4 + [[inf, inf]])
        if length == "0":
            a = ng.placeholder("N=2 H=0 W=0", dtype="float64")
            orders = ["fro", "nuc", 1, 2, inf]
            found = transformer.computation([ng.linalg.matrix_norm(a, "H", "W", p) for p in orders], a)(np.zeros((2, 0, 0)))
            np.testing.assert_array_equal(found, [[torch.linalg.matrix_norm(torch.zeros(0, 0), p)] * 2 for p in orders])


@pytest.mark.parametrize("side", ["left", "right"])
def test_places_in_a_sorted_tensor_of_open_length(side):
    rows, values = ng.placeholder("H=?", dtype="float64"), ng.placeholder("N=?", dtype="float64")
    with ngt.make_transformer() as transformer:
        f = transformer.computation(ng.searchsorted(rows, values, side=side), rows, values)
        for n in (0, 1, 2, 7, 64, 65):
            held = np.sort(np.round(np.random.default_rng(n).normal(size=n) * 3))
            asked = np.concatenate([held, held + 0.5, [-inf, inf, nan]])
            np.testing.assert_array_equal(f(held, asked), np.searchsorted(held, asked, side))


QUANTILES = (
    "inverted_cdf averaged_inverted_cdf closest_observation interpolated_inverted_cdf hazen weibull linear median_unbiased normal_unbiased "
    "lower higher midpoint nearest"
).split()


@pytest.mark.parametrize("method", QUANTILES)
def test_quantiles_of_all_shares_and_lengths(method):
    """Shares that fall on elements, between them and beyond them, of known and open lengths; in float64, as NumPy computes places in it."""
    for n in (1, 2, 3, 4, 7, 10):
        shares = np.unique(np.concatenate([np.arange(2 * n + 1) / (2 * n), np.linspace(0, 1, 13)]))
        held = np.random.default_rng(n).normal(size=(2, n))
        held[1] = np.round(held[1])  # with ties
        for length in (n, "?"):
            x, q = ng.placeholder(f"N=2 H={length}", dtype="float64"), ng.placeholder(f"Q={len(shares)}", dtype="float64")
            with ngt.make_transformer() as transformer:
                found = transformer.computation(ng.quantile(x, q, "H", method=method), x, q)(held, shares)
            np.testing.assert_allclose(found, np.quantile(held, shares, axis=1, method=method), rtol=1e-14, atol=1e-15)


def test_gradients_of_quantiles_between_equal_elements_are_torchs():
    held = np.array([[3.0, 1.0, 1.0, 2.0], [5.0, 5.0, 5.0, 5.0]])
    x = ng.placeholder("N=2 H=4", dtype="float64")
    for q in (0.2, 0.5, 0.8):
        theirs = torch.tensor(held, requires_grad=True)
        torch.quantile(theirs, q, 1).sum().backward()
        found = ng.function(ng.deriv(ng.sum(ng.quantile(x, q, "H"), out_axes=()), x), x)(held)
        np.testing.assert_allclose(
            np.sort(found, 1), np.sort(theirs.grad.numpy(), 1), rtol=1e-12
        )  # of equal ones either may be taken first


@pytest.mark.parametrize("length", ["3", "?"])
@pytest.mark.parametrize("name", ["var", "std"])
def test_deviations_with_as_many_elements_as_the_correction_are_torchs(name, length):
    x = ng.placeholder(f"H={length}", dtype="float64")
    for held in ([1.0, 2.0, 4.0], [1.0, 2.0, 3.0], [2.0, 2.0, 2.0]):
        for correction in (0, 1, 2.5, 3, 4):
            theirs = torch.tensor(held, dtype=torch.float64, requires_grad=True)
            value = getattr(theirs, name)(0, correction=correction)
            value.backward()
            made = getattr(ng, name)(x, "H", correction=correction)
            got, slope = ng.function([made, ng.deriv(made, x)], x)(np.array(held))
            wanted = theirs.grad.numpy()
            if name == "std" and held == [2.0, 2.0, 2.0]:
                wanted = np.zeros(3) if correction < 3 else wanted  # the derivative of a deviation of 0 is 0 here, and NaN there
            np.testing.assert_allclose(got, value.item(), rtol=1e-12)
            np.testing.assert_allclose(slope, wanted, rtol=1e-12, err_msg=f"{name} {held} {correction}")


@pytest.mark.parametrize(
    ("method", "more"),
    [
        *[(method, {}) for method in ("nearest", "nearest-exact", "area")],
        *[(method, {"align_corners": corners, "antialias": antialias}) for method in ("linear", "cubic")
          for corners in (False, True) for antialias in (False, True)],
    ],
)  # fmt: skip
def test_lengths_that_come_with_calls_are_interpolated(method, more):
    """To fewer elements and more, from one element too; with the gradient."""
    theirs = {"linear": "bilinear", "cubic": "bicubic"}.get(method, method)
    for h, w in ((7, 11), (1, 5)):
        x = ng.placeholder("N=? H=? W=?")
        y = ng.interpolate(x, {"H": h, "W": w}, method, **more)
        f = ng.function([y, ng.deriv(ng.sum(y * y, out_axes=()), x)], x)
        for shape in ((1, 4, 5), (2, 9, 3), (3, 1, 1), (1, 13, 40)):
            given = np.random.default_rng(h).uniform(size=shape).astype(np.float32)
            t = torch.tensor(given[:, None], requires_grad=True)
            wanted = torch.nn.functional.interpolate(t, size=(h, w), mode=theirs, **more)
            (slope,) = torch.autograd.grad((wanted * wanted).sum(), t)
            found, gradient = f(given)
            np.testing.assert_allclose(found, wanted[:, 0].detach(), rtol=1e-5, atol=2e-6)
            np.testing.assert_allclose(gradient, slope[:, 0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("more", [{"method": "area"}, {"antialias": True}])
def test_infinities_reach_what_takes_them_in_alone(more):
    given = np.arange(24, dtype=np.float32).reshape(2, 12)
    given[0, 5], given[1, 11] = inf, nan
    found = []
    for axes in ("N=? H=?", "N=2 H=12"):
        x = ng.placeholder(axes)
        found.append(ng.function(ng.interpolate(x, {"H": 4}, **more), x)(given))
    np.testing.assert_allclose(*found, rtol=1e-6)
    assert np.isfinite(found[0]).sum() >= 4


@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_one_element_between_corners_is_that_of_a_known_length(method):
    given = np.random.default_rng(1).uniform(size=(2, 9)).astype(np.float32)
    found = []
    for axes in ("N=? H=?", "N=2 H=9"):
        x = ng.placeholder(axes)
        found.append(ng.function(ng.interpolate(x, {"H": 1}, method, align_corners=True, antialias=True), x)(given))
    np.testing.assert_allclose(*found, rtol=1e-6)

"""Pooling against PyTorch: values, gradients, ties; and against plain loops where PyTorch has no such pooling."""

import itertools

import numpy as np
import pytest
import torch

import ngraph as ng
from ngraph.autodiff import deriv
from ngraph.errors import AxisError
from ngraph.ops.pooling import avg_pool, max_pool, pooling
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower

RNG = np.random.default_rng(5)
SPATIAL = {1: ("H",), 2: ("H", "W"), 3: ("D", "H", "W")}
TORCH = {
    "max": {1: torch.max_pool1d, 2: torch.max_pool2d, 3: torch.max_pool3d},
    "avg": {1: torch.nn.functional.avg_pool1d, 2: torch.nn.functional.avg_pool2d, 3: torch.nn.functional.avg_pool3d},
}
POOL = {"max": max_pool, "avg": avg_pool}


def compute(results, feeds):
    return interpret(lower(results, list(feeds)).program, list(feeds.values()))[0]


def axes(**lengths):
    return [ng.make_axis(n, name=name) for name, n in lengths.items()]


def check(pool, x, xs, theirs):
    """Value and gradient of a pooling equal what PyTorch gives for a tensor of the same values."""
    tx = torch.tensor(xs, requires_grad=True)
    ty = theirs(tx)
    error = RNG.normal(size=ty.shape).astype(xs.dtype)
    y = pool(x)
    e = ng.placeholder(y.axes, dtype=y.dtype)
    found = compute([y, deriv(y, x, error=e)], {x: xs, e: error})
    (wanted,) = torch.autograd.grad(ty, tx, torch.tensor(error))
    np.testing.assert_allclose(found[0], ty.detach().numpy(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found[1], wanted.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize(
    "dims, window, stride, padding",
    [
        *itertools.product((1, 2), (2, 3), (1, 2, 3), (0, 1)),
        (1, 5, 2, 2),
        (3, 2, 1, 0),
        (3, 3, 2, 1),
    ],
)
@pytest.mark.parametrize("ties", [False, True])
def test_values_and_gradients_equal_pytorch(kind, dims, window, stride, padding, ties):
    names = SPATIAL[dims]
    n, c, *space = axes(N=2, C=3, **{name: 8 - at for at, name in enumerate(names)})
    x = ng.placeholder([n, c, *space], dtype="float64")
    shape = x.axes.lengths
    xs = RNG.integers(0, 3, shape).astype(float) if ties else RNG.normal(size=shape)
    extra = {"count_include_pad": False} if kind == "avg" else {}
    check(
        lambda x: POOL[kind](x, dict.fromkeys(space, window), stride=stride, padding=padding),
        x,
        xs,
        lambda t: TORCH[kind][dims](t, window, stride, padding, **extra),
    )


@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_dilated_windows(dilation):
    n, c, h, w = axes(N=2, C=2, H=9, W=8)
    x = ng.placeholder([n, c, h, w], dtype="float64")
    check(
        lambda x: max_pool(x, {h: 3, w: 2}, stride=1, padding=1 if dilation == 1 else 0, dilation=dilation),
        x,
        RNG.normal(size=(2, 2, 9, 8)),
        lambda t: torch.max_pool2d(t, (3, 2), 1, 1 if dilation == 1 else 0, dilation),
    )


@pytest.mark.parametrize(
    "window, stride, padding, dilation", [((5, 5), (1, 1), (2, 2), 1), ((7, 4), (1, 1), (3, 0), 1), ((6, 9), (2, 1), (3, 4), 2)]
)
def test_large_windows_that_overlap_are_pooled_axis_by_axis(window, stride, padding, dilation):
    """With NaN in some; known lengths and open ones; the gradient as well."""
    xs = RNG.normal(size=(2, 23, 21)).astype(np.float32)
    t = torch.tensor(xs[None], requires_grad=True)
    wanted = torch.max_pool2d(t, window, stride, padding, dilation)
    (slope,) = torch.autograd.grad((wanted * wanted).sum(), t)
    holes = np.where(RNG.uniform(size=xs.shape) < 0.02, np.nan, xs).astype(np.float32)
    sides = [dict(zip("HW", v, strict=True)) for v in (window, stride, padding)]
    for text in ("C=2 H=23 W=21", "C=? H=? W=?"):
        x = ng.placeholder(text)
        y = max_pool(x, sides[0], stride=sides[1], padding=sides[2], dilation=dilation)
        f = ng.function([y, deriv(ng.sum(y * y, out_axes=()), x)], x)
        found, gradient = f(xs)
        np.testing.assert_array_equal(found, wanted[0].detach())
        np.testing.assert_allclose(gradient, slope[0], rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(f(holes)[0], torch.max_pool2d(torch.tensor(holes[None]), window, stride, padding, dilation)[0])


def test_the_first_of_ties_in_a_window_has_the_gradient():
    h, w = axes(H=2, W=4)
    x = ng.placeholder([h, w], dtype="float64")
    y = max_pool(x, {h: 2, w: 2})
    found = compute([deriv(y, x, error=ng.constant(np.array([[1.0, 2.0]]), y.axes))], {x: np.ones((2, 4))})[0]
    np.testing.assert_array_equal(found, [[1, 0, 2, 0], [0, 0, 0, 0]])
    swapped = max_pool(x, {w: 2, h: 2})  # the windows' own order says which is first
    xs = np.array([[0.0, 1, 0, 1], [1, 0, 1, 0]])
    rows, columns = compute([deriv(y, x, error=ng.constant(np.ones((1, 2)), y.axes)) for y in (y, swapped)], {x: xs})
    np.testing.assert_array_equal(rows, [[0, 1, 0, 1], [0, 0, 0, 0]])
    np.testing.assert_array_equal(columns, [[0, 0, 0, 0], [1, 0, 1, 0]])


def test_nan_is_the_largest_and_padding_never_is():
    (h,) = axes(H=4)
    x = ng.placeholder([h], dtype="float64")
    found = compute([max_pool(x, {h: 2}, stride=2, padding=1)], {x: np.array([-5.0, np.nan, -2.0, -3.0])})[0]
    np.testing.assert_array_equal(found, [-5, np.nan, -3])
    ints = ng.placeholder([h], dtype="int8")
    np.testing.assert_array_equal(compute([max_pool(ints, {h: 2}, padding=1)], {ints: np.int8([-5, -7, -128, -9])})[0], [-5, -7, -9])


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_gradients_of_gradients_equal_pytorch(kind):
    n, h, w = axes(N=2, H=7, W=6)
    x = ng.placeholder([n, h, w], dtype="float64")
    xs = RNG.normal(size=(2, 7, 6))
    y = POOL[kind](x, {h: 3, w: 2}, stride=2, padding=1)
    dx = deriv(ng.sum(y * y * y, out_axes=()), x)
    found = compute([dx, deriv(ng.sum(dx * dx, out_axes=()), x)], {x: xs})
    tx = torch.tensor(xs, requires_grad=True)
    extra = {"count_include_pad": False} if kind == "avg" else {}
    ty = TORCH[kind][2](tx, (3, 2), 2, 1, **extra)
    (first,) = torch.autograd.grad((ty**3).sum(), tx, create_graph=True)
    (second,) = torch.autograd.grad((first**2).sum(), tx)
    np.testing.assert_allclose(found[0], first.detach().numpy(), rtol=1e-10)
    np.testing.assert_allclose(found[1], second.numpy(), rtol=1e-10)


@pytest.mark.parametrize("length", [5, 6, 9])
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_lengths_that_come_with_the_call(kind, length):
    n, h = ng.make_axis(name="N"), ng.make_axis(name="H")
    x = ng.placeholder([n, h], dtype="float64")
    extra = {"count_include_pad": False} if kind == "avg" else {}
    xs = RNG.normal(size=(2, length))
    check(lambda x: POOL[kind](x, {h: 3}, stride=2, padding=1), x, xs, lambda t: TORCH[kind][1](t, 3, 2, 1, **extra))


def loops(xs, sizes, strides, pads, function):
    """Pooling of the first four dims as the definition has it."""
    shape = [(n + 2 * p - w) // s + 1 for n, w, s, p in zip(xs.shape, sizes, strides, pads, strict=False)]
    result = np.empty((*shape, xs.shape[4]))
    for at in np.ndindex(*shape):
        spans = []
        for i, w, s, p, n in zip(at, sizes, strides, pads, xs.shape, strict=False):
            spans.append(slice(max(i * s - p, 0), min(i * s - p + w, n)))
        result[at] = function(xs[tuple(spans)], axis=(0, 1, 2, 3))
    return result


@pytest.mark.parametrize("kind, function", [("max", np.max), ("avg", np.mean)])
@pytest.mark.parametrize("names", ["CDHWN", "CMPQN", "KMPQB"])
@pytest.mark.parametrize(
    "sizes, strides, pads",
    [
        ((1, 1, 2, 2), (1, 1, 2, 2), (0, 0, 0, 0)),
        ((3, 1, 3, 2), (1, 1, 2, 1), (1, 0, 1, 0)),
        ((2, 2, 1, 1), (2, 1, 1, 2), (0, 1, 0, 0)),
        ((1, 1, 1, 1), (1, 1, 1, 1), (0, 0, 0, 0)),
    ],
)
def test_five_axes_by_position_channels_too(kind, function, names, sizes, strides, pads):
    x = ng.placeholder(axes(C=4, D=3, H=6, W=5, N=2), dtype="float64")
    xs = RNG.normal(size=(4, 3, 6, 5, 2))
    params = {"op": kind, **dict(zip("JTRS", sizes, strict=True))}
    params |= {f"str_{side}": s for side, s in zip("cdhw", strides, strict=True)} | {
        f"pad_{side}": p for side, p in zip("cdhw", pads, strict=True)
    }
    wanted = loops(xs, sizes, strides, pads, function)
    for lengths in (wanted.shape, (None,) * 4 + (2,)):
        out = [ng.make_axis(n, name=name) for n, name in zip(lengths, names, strict=True)]
        out = [x.axes[k] if wanted.shape[k] == len(x.axes[k]) and a == x.axes[k] else a for k, a in enumerate(out)]
        y = pooling(params, x, out)
        assert list(y.axes) == out and y.axes.lengths == wanted.shape
        np.testing.assert_allclose(compute([y], {x: xs})[0], wanted, rtol=1e-12)


def test_same_padding_and_integers():
    (h,) = axes(H=5)
    x = ng.placeholder([h], dtype="int32")
    found = compute(
        [avg_pool(x, {h: 3}, stride=1, padding="same"), max_pool(x, {h: 2}, stride=2, padding="same")], {x: np.int32([1, 2, 6, 3, 9])}
    )
    np.testing.assert_allclose(found[0], np.float32([1.5, 3, 11 / 3, 6, 6]), rtol=1e-6)
    np.testing.assert_array_equal(found[1], [2, 6, 9])
    assert found[0].dtype == np.float32 and found[1].dtype == np.int32


class TestMistakes:
    def setup_method(self):
        self.h, self.n = axes(H=5, N=2)
        self.x = ng.placeholder([self.h, self.n])

    def error(self, call, *parts):
        with pytest.raises(AxisError) as caught:
            call()
        message = str(caught.value)
        assert "test_pooling.py" in message.splitlines()[0] and all(part in message for part in parts), message

    def test_each_says_what_and_how_to_mend_it(self):
        h = self.h
        self.error(lambda: max_pool(self.x, {"W": 2}), "W is not an axis", "H=5, N=2")
        self.error(lambda: max_pool(self.x, {h: 2}, padding=2), "nothing in them", "pad less")
        self.error(lambda: max_pool(self.x, {h: 0}), "at least 1")
        self.error(lambda: max_pool(self.x, {h: 6}), "H_window=6 fits along H=5", "take a shorter window")
        self.error(lambda: avg_pool(self.x, {h: 2}, stride={self.n: 2}), "nothing is said for H")
        self.error(lambda: avg_pool(self.x, {h: 2}, out={h: ng.make_axis(3, name="P")}), "P=3", "length 2")
        self.error(lambda: pooling({"op": "max"}, self.x, [h, self.n]), "J, T, R, S, pad_c")
        params = {"op": "median", **dict.fromkeys("JTRS", 1)} | {
            f"{what}_{side}": int(what == "str") for what in ("str", "pad") for side in "cdhw"
        }
        five = ng.placeholder(axes(C=1, D=1, H=4, W=4, N=1))
        self.error(lambda: pooling(params, self.x, [h, self.n]), "five axes C D H W N")
        self.error(lambda: pooling(params, five, five.axes), "median", "'max' or 'avg'")
        self.error(lambda: pooling(params | {"op": "max"}, five, five.axes[:4]), "five")

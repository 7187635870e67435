"""Open lengths: any number of batch and sequence lengths are one compilation of Dynamo's, after at most one that knew them."""

import math
import random

import pytest
import sympy
import torch
from torch.nn import functional
from torch.utils._sympy import functions

import ngraph as ng
from ngraph.frontends.torch import backend, lengths
from ngraph.frontends.torch.steps import OurStep


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    ng.torch.reset()


def pairs():
    """Fifty unlike pairs of a batch size and a length; the first two differ in both, from each other and from other lengths."""
    draw = random.Random(0)
    return [(17, 5), (3, 9), *draw.sample([(n, t) for n in range(2, 12) for t in range(2, 30) if n != t], 48)]


@pytest.mark.parametrize("way, train", [("dynamic", False), ("mark_dynamic", False), ("automatic", True)])
def test_fifty_pairs_are_one_plan(way, train, monkeypatch):
    """The derivative's graph has the same lengths. What is known at first, automatic dynamic compiles once more.

    With dynamic=True Dynamo finds out while it compiles that the features are of one length, and begins again.
    """
    model = torch.nn.Sequential(torch.nn.Linear(33, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))
    calls, begun, begin = [], [], OurStep.begin

    def counted(gm, inputs, **named):
        calls.append(gm)
        return backend(gm, inputs, **named)

    monkeypatch.setattr(OurStep, "begin", lambda self, *args: begun.append(self) or begin(self, *args))
    known = {"dynamic": True} if way == "dynamic" else {}
    compiled = torch.compile(lambda x: model(x).softmax(1) * x.shape[0] + x.shape[1], backend=counted, fullgraph=True, **known)
    parameters = list(model.parameters())
    for n, t in pairs():
        x = torch.randn(n, t, 33)
        if way == "mark_dynamic":
            torch._dynamo.mark_dynamic(x, 0)
            torch._dynamo.mark_dynamic(x, 1)
        with torch.set_grad_enabled(train):
            got, want = compiled(x), model(x).softmax(1) * n + t
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        if train:
            for a, b in zip(*[torch.autograd.grad((y * y).sum(), parameters) for y in (got, want)], strict=True):
                torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
    most = 2 if way == "automatic" else 1
    assert len(calls) <= 2 and len(ng.torch.report().functions) == most
    assert len(begun) == most * (1 + train)
    assert not ng.torch.report().in_torch


def test_numbers_that_follow_from_lengths_stay_inside():
    def f(x):
        n = x.shape[0] * x.shape[1]
        return x * (n / (n - 1)) + (x.shape[0] + 0.5) * 2.0 - math.sqrt(x.shape[1]), x.shape[0] / 2 - x.sum()

    compiled = torch.compile(f, backend=ng.torch.backend, dynamic=True, fullgraph=True, options={"fallback": "error"})
    for shape in ((3, 4), (7, 5), (2, 9)):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            x = torch.randn(shape, dtype=dtype)
            for got, wanted in zip(compiled(x), f(x), strict=True):
                torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, k: x * k + 2 * k,
        lambda x, k: x.roll(k, 1),
        lambda x, k: torch.nn.functional.pad(x, (k, 1)),
        lambda x, k: x.tril(k),
        lambda x, k: x + torch.arange(k, k + 6),
        lambda x, k: x[:, k:] * x.shape[0],
    ],
)
def test_numbers_below_zero_that_dynamo_makes_symbols(f):
    compiled = torch.compile(f, backend=ng.torch.backend, dynamic=True, fullgraph=True, options={"fallback": "error"})
    x = torch.randn(4, 6)
    for k in (2, -1, -2, 3, -3):
        torch.testing.assert_close(compiled(x, k), f(x, k))


def test_numbers_of_tensors_may_be_below_zero():
    def f(x, k):
        return x * (k[0].item() - k[1].item()) + k[1].item(), torch.arange(k[2].item())

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = torch.compile(f, backend=ng.torch.backend, fullgraph=True, options={"fallback": "error"})
        x = torch.randn(4, 6)
        for k in ([3, 5, 2], [-2, 4, 0], [1, -9, 7]):
            for got, wanted in zip(compiled(x, torch.tensor(k)), f(x, torch.tensor(k)), strict=True):
                torch.testing.assert_close(got, wanted)


def test_a_number_below_zero_is_one_more_plan_and_a_large_one_is_no_array():
    f = torch.compile(lambda x, k: x * k, backend=ng.torch.backend, dynamic=True, options={"fallback": "error"})
    x = torch.randn(3)
    for k in (5, 7, -2, -9, 0, 2**20):
        torch.testing.assert_close(f(x, k), x * k)
    assert len(ng.torch.report().functions) == 2
    for k in (10**15, -(10**15)):
        torch.testing.assert_close(f(x, k), x * k)


def test_numbers_that_dynamo_makes_symbols_decide_how_an_op_is_computed():
    """They are no lengths to the op: each other one is compiled anew."""

    def f(x, y, k):
        scaled = torch.add(x, y, alpha=k), torch.addmm(x, x, y, beta=k, alpha=k)
        scaled += functional.leaky_relu(x, k), functional.elu(x, k), functional.hardtanh(x, -k, k), functional.softplus(x, k)
        return torch.dist(x, y, k), torch.cdist(x, y, p=k), functional.normalize(x, p=k), x.var(0, correction=k), *scaled

    compiled = torch.compile(f, backend=ng.torch.backend, dynamic=True, fullgraph=True, options={"fallback": "error"})
    x, y = torch.randn(2, 4, 4)
    for k in (2, 3, 2, 1):
        for got, wanted in zip(compiled(x, y, k), f(x, y, k), strict=True):
            torch.testing.assert_close(got, wanted)


def test_numbers_that_dynamo_makes_symbols_fill_and_stride():
    numbers = [2, 0, 1]  # read by a closure, which makes them SymInts where lengths are dynamic

    def f(x, w):
        y = torch.nn.functional.pad(x, (1, 1), value=numbers[1])
        return torch.nn.functional.conv1d(y, w, stride=numbers[0], padding=numbers[2], dilation=numbers[2])

    compiled = torch.compile(f, backend=ng.torch.backend, fullgraph=True, dynamic=True, options={"fallback": "error"})
    for n in (9, 12):
        x, w = torch.randn(2, 3, n), torch.randn(4, 3, 3)
        torch.testing.assert_close(compiled(x, w), f(x, w))


FACTORS = [
    (2.0, "nearest"),
    (2.0, "bilinear"),
    (1.5, "bilinear"),
    (0.375, "bilinear"),
    (2.0, "bicubic"),
    (0.7, "nearest"),
    (0.7, "bilinear"),
]


@pytest.mark.parametrize("by, mode", FACTORS)
def test_pictures_grow_by_a_factor(by, mode):
    """The new length is a float times the old one, rounded down."""

    def f(x):
        return torch.nn.functional.interpolate(x * 2, scale_factor=by, mode=mode)

    compiled = torch.compile(f, backend=ng.torch.backend, fullgraph=True, dynamic=True, options={"fallback": "error"})
    for size in ((8, 13), (11, 21), (32, 9), (10, 90)):  # 0.7 * 10 is 7.0 in float64, and 0.7 * 90 is below 63
        x = torch.randn(2, 3, *size)
        torch.testing.assert_close(compiled(x), f(x))
    assert len(ng.torch.report().functions) == 1


ROUNDED = {
    "root": lambda x: x[: int(math.sqrt(x.shape[0]))] * 2,
    "rounded": lambda x: x[: round(x.shape[0] * 0.3)] + 1,
    "ceiling": lambda x: x.new_zeros(math.ceil(x.shape[0] / 3), x.shape[1]) + x[0],
    "bits": lambda x: x[: (x.shape[0] & 3) + 1] * 1.5,
    "two parts": lambda x: torch.cat([x[: int(x.shape[0] * 0.3)], x[int(x.shape[0] * 0.3) :] * 2]),
    "logarithm": lambda x: x[: int(math.log2(x.shape[0]))] * 1.5,
}


@pytest.mark.parametrize("name", ROUNDED)
def test_python_computes_lengths_that_floats_round(name):
    function = ROUNDED[name]
    torch._dynamo.reset()
    ng.torch.reset()
    compiled = torch.compile(function, backend=ng.torch.backend, fullgraph=True, dynamic=True, options={"fallback": "error"})
    for size in ((10, 9), (21, 14), (90, 7), (33, 33)):
        x = torch.randn(*size, requires_grad=True)
        got, want = compiled(x), function(x)
        torch.testing.assert_close(got, want)
        slope = torch.randn_like(want)
        torch.testing.assert_close(torch.autograd.grad(got, x, slope), torch.autograd.grad(want, x, slope))
    assert len(ng.torch.report().functions) == 1


@pytest.mark.parametrize(
    "text, found",
    [
        ("TruncToInt(1.5*ToFloat(s))", "s*3//2"),
        ("CeilToInt(0.75*ToFloat(s))", "-(-s*3//4)"),
        ("TruncToInt(ToFloat(s))", "s"),
        ("TruncToInt(0.7*ToFloat(s))", None),
        ("TruncToInt(-0.5*ToFloat(s))", None),
    ],
)
def test_floats_of_lengths_are_exact_or_refused(text, found):
    s = sympy.Symbol("s", integer=True, positive=True)
    names = {"s": s, "TruncToInt": functions.TruncToInt, "CeilToInt": functions.CeilToInt, "ToFloat": functions.ToFloat}
    e = eval(text, names)
    got = lengths.scaled(e.args[0])
    assert (got is None) == (found is None)
    for n in range(1, 200) if got is not None else ():
        up = got[0].denominator - 1 if text.startswith("Ceil") else 0
        assert (n * got[0].numerator + up) // got[0].denominator == eval(found, {"s": n}) == int(e.subs(s, n))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (functional.adaptive_avg_pool2d(x, (5, 3)),),
        lambda x: functional.adaptive_max_pool2d(x, (4, 3), return_indices=True),
    ],
)
def test_pictures_of_any_size_are_pooled_into_one(f):
    compiled = torch.compile(f, backend=ng.torch.backend, fullgraph=True, dynamic=True, options={"fallback": "error"})
    for size in ((15, 16), (20, 9), (3, 4), (7, 30)):
        x = torch.randn(2, 3, *size, requires_grad=True)
        found, wanted = compiled(x), f(x)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b)
        slope = torch.randn_like(wanted[0])
        torch.testing.assert_close(torch.autograd.grad(found[0], x, slope), torch.autograd.grad(wanted[0], x, slope))
    assert len(ng.torch.report().functions) == 1


def test_steps_that_dynamo_makes_symbols():
    def f(x, y, start, step):
        return x[start::step] * 2, torch.slice_scatter(x, y, 0, start, None, step)

    compiled = torch.compile(f, backend=ng.torch.backend, fullgraph=True, dynamic=True, options={"fallback": "error"})
    for n, start, step in ((10, 2, 3), (9, 0, 3), (7, 5, 4), (12, 3, 2)):
        x = torch.randn(n, 3)
        y = torch.ones_like(x[start::step])
        for a, b in zip(compiled(x, y, start, step), f(x, y, start, step), strict=True):
            torch.testing.assert_close(a, b)


def test_bins_that_dynamo_makes_symbols():
    f = torch.compile(torch.histc, backend=ng.torch.backend, fullgraph=True, dynamic=True, options={"fallback": "error"})
    for bins, low, high in ((5, -1, 2), (7, -3, 4)):
        x = torch.randn(30)
        torch.testing.assert_close(f(x, bins, low, high), torch.histc(x, bins, low, high))


def test_numbers_of_tensors_with_one_element():
    def f(x):
        first = x[:1, :1]
        return first.item(), x * first.item(), x.clamp(max=first.item()), x.masked_fill(x > 0, first.item())

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = torch.compile(f, backend=ng.torch.backend, fullgraph=True, options={"fallback": "error"})
        for x in torch.randn(2, 4, 6):
            torch.testing.assert_close(compiled(x), f(x))

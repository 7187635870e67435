"""Functions of PyTorch's in one graph each, with known and open lengths: results and gradients beside eager PyTorch."""

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from ngraph.frontends.torch import backend, report, reset

F = torch.nn.functional


def with_specials(x):
    return torch.where(x > 0.5, float("nan"), torch.where(x < -1, float("inf"), x))


def whole_powers(x, dtype):
    """Powers of integers, which wrap; of negative exponents those of 1 and -1 alone are not 0."""
    whole = (x * 3).round().to(torch.int64).to(dtype)
    return whole**9, whole ** whole.flip(1), whole.abs() ** whole[:1], (-1) ** whole, (x > 0) ** whole.abs()


def labels(x):
    """Several classes of each row, which end before the first -1; what follows does not count."""
    found = x.detach().argsort(1)
    return torch.where(torch.arange(x.shape[1]) == torch.arange(len(x))[:, None] % 4, -1, found)


def multilabel(x):
    rows = [F.multilabel_margin_loss(row, row.detach().argsort()) for row in x[:1]]  # no -1
    losses = [F.multilabel_margin_loss(x, labels(x), reduction=r).sum() for r in ("none", "mean", "sum")]
    return torch.stack([*rows, *losses, F.multilabel_margin_loss(x, labels(x), size_average=False)])


SHAPES = [(3, 9), (2, 6), (5, 7)]
WHOLE = [torch.int64, torch.int32, torch.int16]
TALL, SQUARE = [(5, 3), (6, 4), (4, 4)], [(2, 3, 3), (1, 4, 4), (3, 2, 2)]


def divisors(dtype):
    low = torch.iinfo(dtype).min
    some = torch.tensor([low, low + 1, -7, -3, -2, -1, 0, 1, 2, 3, 6, 12, 64, -low - 1], dtype=dtype)
    return [(some[:, None], some), (some, torch.tensor(low, dtype=dtype))]


CASES = {  # a function, and shapes of its input
    "sort of NaN": (lambda x: torch.sort(with_specials(x), stable=True, descending=True), SHAPES),
    "sort of NaN, columns": (lambda x: torch.argsort(with_specials(x), dim=0, descending=True, stable=True), SHAPES),
    "top of NaN": (lambda x: [torch.topk(with_specials(x), k, largest=up)[0] for k, up in ((3, True), (3, False), (5, True))], SHAPES),
    "top, columns": (lambda x: torch.topk(x, 2, dim=0), SHAPES),
    "top of half": (lambda x: torch.topk(with_specials(x).half(), 3)[0], SHAPES),
    "top of double": (lambda x: torch.topk(with_specials(x.double()), 3)[0], SHAPES),
    "determinant": (torch.linalg.det, SQUARE),
    "determinant of transposed": (lambda x: torch.linalg.det(x.mT), SQUARE),
    "logarithm of determinant": (lambda x: torch.linalg.slogdet(x)[1], SQUARE),
    "solution on the right": (lambda x: torch.linalg.solve(x, x[:, :1].sin(), left=False), SQUARE),
    "singular values": (torch.linalg.svdvals, TALL),
    "orthogonal": (lambda x: torch.linalg.qr(x)[1].abs(), TALL),
    "pseudo-inverse": (torch.linalg.pinv, TALL),
    "common divisors": (lambda x: [f((x * 40).to(t), (x.flip(1) * 7).to(t)) for f in (torch.gcd, torch.lcm) for t in WHOLE], SHAPES),
    "uint8 divisors": (lambda x: torch.gcd((x * 40).abs().to(torch.uint8), torch.tensor(12, dtype=torch.uint8)), SHAPES),
    "divisors of the lowest": (lambda x: [torch.gcd(a, b) for t in (*WHOLE, torch.int8) for a, b in divisors(t)], SHAPES),
    "tangents": (lambda x: torch.func.jvp(lambda a: (a @ a.mT / 8).sin(), (x / 2,), (x.cos(),)), SHAPES),
    "second derivatives": (lambda x: torch.func.hessian(lambda a: (a.square() @ a[0]).tanh().sum())(x / 4), SHAPES),
    "quantiles": (lambda x: torch.quantile(x, 0.3, dim=1), SHAPES),
    "edges, 1d": (lambda x: F.pad(x, (2, 1), mode="replicate"), SHAPES),
    "edges, 2d": (lambda x: F.pad(x, (2, -1, 0, 3), mode="replicate"), SQUARE),
    "edges, 3d": (lambda x: F.pad(x[None], (1, 0, 0, 3, 2, 2), mode="replicate"), SQUARE),
    "whole powers": (lambda x: [2 ** torch.arange(x.shape[1]), *[whole_powers(x, t) for t in (*WHOLE, torch.int8, torch.uint8)]], SHAPES),
    "scattered by masks": (lambda x: (x * 2).masked_scatter(x[:, :1] > 0, x.sin().flatten()) + x.masked_scatter(x > 0, x.T.exp()), SHAPES),
    "margins of several labels": (multilabel, SHAPES),
    "response norm": (lambda x: F.local_response_norm(x[None], 3), SHAPES),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_those_of_eager(name, dynamic):
    function, shapes = CASES[name]
    torch._dynamo.reset()
    reset()
    torch.manual_seed(0)
    compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic, options={"fallback": "error"})
    near = {"rtol": 1e-3, "atol": 1e-3} if shapes is SQUARE or shapes is TALL else {}
    for shape in shapes:
        x = torch.randn(shape, requires_grad=True)
        found, want = compiled(x), function(x)
        torch.testing.assert_close(found, want, equal_nan=True, **near)
        if isinstance(want, torch.Tensor) and want.requires_grad and "NaN" not in name and "top" not in name:
            slope = torch.randn_like(want)
            torch.testing.assert_close(torch.autograd.grad(found, x, slope), torch.autograd.grad(want, x, slope), **near)
    assert report().ours


ENDS = [0.0, -0.0, 1e-30, 0.3, 1.0, 2.0, 3.5, 7.5, 9.0, 20.0, 1e20, float("inf")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("function", [torch.erfc, torch.angle, torch.special.erfcx, torch.special.log_ndtr, lambda x: x**-0.5])
def test_functions_at_the_ends_of_their_range(function, dtype):
    """Relative to results that are nearly 0, too."""
    torch._dynamo.reset()
    x = torch.tensor([*ENDS, *[-v for v in ENDS], float("nan")], dtype=dtype)
    found = torch.compile(function, backend=backend, fullgraph=True, options={"fallback": "error"})(x)
    near = 1e-5 if dtype is torch.float32 else 1e-12
    torch.testing.assert_close(found, function(x), rtol=near, atol=torch.finfo(dtype).tiny, equal_nan=True)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_each_polygamma_depends_on_its_own_element(k):
    """Beside NaN, and numbers so large that no step leads from them to 0."""
    torch._dynamo.reset()
    x = torch.tensor([float("nan"), -1e20, 1e-3, 0.3, 1.5, 40.0, 1e20, -0.3, -2.7], dtype=torch.float64)
    compiled = torch.compile(lambda x: torch.polygamma(k, x), backend=backend, fullgraph=True, options={"fallback": "error"})
    found, want = compiled(x), torch.polygamma(k, x[2:])
    torch.testing.assert_close(found[2:], want, rtol=1e-7, atol=0.0)
    assert found[0].isnan() and found[1].isinf()


@pytest.mark.parametrize("dynamic", [None, True])
def test_functions_of_scores_and_masks_are_part_of_attention(dynamic):
    kinds = torch.tensor([0] * 6 + [1] * 10)
    mask = create_block_mask(lambda b, h, i, j: (i >= j) & (kinds[i] == kinds[j]), None, None, 16, 16, device="cpu", BLOCK_SIZE=8)

    def f(q, k, v, bias):
        falling = flex_attention(q, k, v, lambda s, b, h, i, j: torch.where(i >= j, s * bias[h] - (i - j), -torch.inf), enable_gqa=True)
        return falling, *flex_attention(q, k, v, block_mask=mask, scale=0.3, enable_gqa=True, return_lse=True)

    q, k, v, bias = torch.randn(2, 4, 16, 8), torch.randn(2, 2, 16, 8), torch.randn(2, 2, 16, 6), torch.rand(4)
    torch._dynamo.reset()
    compiled = torch.compile(f, backend=backend, fullgraph=True, dynamic=dynamic, options={"fallback": "error"})
    for found, wanted in zip(compiled(q, k, v, bias), f(q, k, v, bias), strict=True):
        torch.testing.assert_close(found, wanted)
        assert found.stride() == wanted.stride()

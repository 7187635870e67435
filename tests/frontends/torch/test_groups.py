"""Products of matrices by groups of rows, as mixtures of experts have them, and their gradients, beside eager products group by group."""

import copy

import pytest
import torch
import transformers
from transformers.integrations import moe  # noqa: F401  # it registers transformers::grouped_mm_fallback
from transformers.models.mixtral import modeling_mixtral as moe_of_mixtral

from ngraph.frontends.torch import backend, report, reset

CASES = [  # rows, where groups end, inner length, columns
    (10, (3, 3, 10), 8, 16),
    (7, (0, 7), 8, 8),
    (300, (100, 101, 230, 290), 16, 24),
    (64, (20, 30, 40), 8, 8),
    (5, (1, 1, 1, 2, 2, 4, 4, 4, 5), 8, 8),
    (2, (2,), 16, 8),
    (129, (129,), 8, 8),
]


def by_group(ends):
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def compiled(function, dynamic):
    torch._dynamo.reset()
    reset()
    return torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic, options={"fallback": "error"})


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", ["aten", "transformers"])
def test_rows_by_the_matrix_of_their_group(kind, dynamic):
    """Groups without rows, rows without a group, one group; rows behind the last group have no product, and no gradient."""
    torch.manual_seed(0)
    dtype = torch.bfloat16 if kind == "aten" else torch.float32  # PyTorch traces its op for bfloat16 alone
    near = {"rtol": 2**-8, "atol": 2**-8} if kind == "aten" else {"rtol": 1e-5, "atol": 1e-5}
    op = (lambda x, w, ends: torch._grouped_mm(x, w, offs=ends)) if kind == "aten" else torch.ops.transformers.grouped_mm_fallback
    function = compiled(lambda x, w, ends: op(x, w, ends), dynamic)
    with torch._dynamo.config.patch(recompile_limit=2 * len(CASES)):
        for number, (rows, ends, inner, columns) in enumerate(CASES):
            x = torch.randn(rows, inner).to(dtype).requires_grad_()
            w = torch.randn(len(ends), columns, inner).to(dtype).transpose(1, 2)
            w = (w if number % 2 else w.contiguous()).detach().requires_grad_()
            y = function(x, w, torch.tensor(ends, dtype=torch.int32))
            slope = torch.randn(y.shape).to(dtype)
            found = torch.autograd.grad(y, (x, w), slope)
            a, b, d = x.detach().double(), w.detach().double(), slope.double()
            product, gx, gw = a.new_zeros(y.shape), torch.zeros_like(a), torch.zeros_like(b)
            for k, s in enumerate(by_group(ends)):
                product[s], gx[s], gw[k] = a[s] @ b[k], d[s] @ b[k].T, a[s].T @ d[s]
            assert y.dtype == dtype
            for got, want in ((y, product), *zip(found, (gx, gw), strict=True)):
                torch.testing.assert_close(got.double(), want, **near)
    assert report().ours
    assert not report().in_torch


@pytest.mark.parametrize(
    ("left", "right", "ends"),
    [((8, 16), (16, 24), (3, 3, 16)), ((3, 8, 16), (16, 24), (3, 8, 24)), ((3, 8, 16), (3, 16, 8), None)],
)
def test_groups_of_columns_of_inner_dims_and_of_whole_matrices(left, right, ends):
    torch.manual_seed(0)
    a, b = torch.randn(left).bfloat16(), torch.randn(right).bfloat16()
    offsets = None if ends is None else torch.tensor(ends, dtype=torch.int32)
    function = compiled(lambda a, b: torch._grouped_mm(a, b, offs=offsets), False)
    torch.testing.assert_close(function(a, b), torch._grouped_mm(a, b, offs=offsets))


def mixture(**more):
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = transformers.MixtralConfig(vocab_size=31, num_hidden_layers=2, num_local_experts=4, num_experts_per_tok=2, **sizes, **more)
    config._experts_implementation = "grouped_mm"
    return transformers.MixtralForCausalLM(config).eval()


def test_a_mixture_of_experts_is_wholly_compiled():
    torch.manual_seed(0)
    model = mixture()
    words = torch.randint(0, 31, (2, 9))
    function = compiled(model, False)
    found, want = (f(words, labels=words, use_cache=False) for f in (function, model))
    torch.testing.assert_close(found.logits, want.logits)
    given = list(model.parameters())
    torch.testing.assert_close(torch.autograd.grad(found.loss, given), torch.autograd.grad(want.loss, given), rtol=1e-4, atol=1e-6)


def by_given_experts(router, hidden):
    logits = torch.nn.functional.linear(hidden.reshape(-1, router.hidden_dim), router.weight)
    scores = logits.float().softmax(-1).gather(-1, router.chosen)
    return logits, scores / scores.sum(-1, keepdim=True), router.chosen


def test_gradients_of_bfloat16_are_as_near_as_eagers(monkeypatch):
    """Both are compared with float64. Experts are given: a score rounded to bfloat16 may choose another, whose gradients are not near."""
    monkeypatch.setattr(moe_of_mixtral.MixtralTopKRouter, "forward", by_given_experts)
    torch.manual_seed(0)
    model, apart = mixture(initializer_range=0.5).bfloat16(), {"eager": 0.0, "ours": 0.0}
    routers = [m for m in model.modules() if isinstance(m, moe_of_mixtral.MixtralTopKRouter)]
    for router in routers:
        router.register_buffer("chosen", torch.rand(80, 4).topk(2)[1])
    function, words = compiled(model, False), torch.randint(0, 31, (2, 40))

    def slopes(f, model):
        return torch.autograd.grad(f(words, labels=words, use_cache=False).loss, list(model.parameters()))

    for _ in range(8):
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.randn_like(p) * (0.5 if p.ndim > 1 else 0.1) + (p.ndim == 1))
            for router in routers:
                router.chosen.copy_(torch.rand(80, 4).topk(2)[1])
        exact = copy.deepcopy(model).double()
        exact.config._experts_implementation = "eager"
        want = slopes(exact, exact)
        model.config._experts_implementation = "grouped_mm"
        for name, f in (("eager", model), ("ours", function)):
            apart[name] += sum((x.double() - y).square().sum() for x, y in zip(slopes(f, model), want, strict=True)).item()
    assert 0 < apart["ours"] <= 1.5 * apart["eager"]
    assert report().ours
    assert not report().recompiles

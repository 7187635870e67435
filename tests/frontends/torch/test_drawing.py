"""Random ops are ours: seeded by torch's generator, of the right distributions, with masks that the backward graph draws again."""

import pytest
import torch

import ngraph as ng
from ngraph.frontends.torch import backend

OURS = {"fallback": "error"}


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    ng.torch.reset()


def test_a_seed_repeats_all_and_calls_differ():
    def f(x):
        return torch.nn.functional.dropout(x, 0.5), torch.rand_like(x), torch.randn(5), torch.randint(3, 9, (4,))

    f, x = torch.compile(f, backend=backend, options=OURS, fullgraph=True), torch.ones(50)
    torch.manual_seed(3)
    first, second = f(x), f(x)
    torch.manual_seed(3)
    again = f(x)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first[:3], second[:3], strict=True))
    assert not ng.torch.report().in_torch


@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
def test_the_backward_graph_has_the_mask_of_the_forward_graph(p):
    f = torch.compile(lambda x: torch.nn.functional.dropout(x, p) * 3, backend=backend, options=OURS, fullgraph=True)
    x = torch.full((100, 40), 2.0, requires_grad=True)
    y = f(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad * 2, y.detach())
    assert abs((y == 0).float().mean().item() - p) < 0.03
    if 0 < p < 1:
        torch.testing.assert_close(y[y != 0], torch.full_like(y[y != 0], 6 / (1 - p)))


@pytest.mark.parametrize("p, train", [(0.5, False), (0.0, True)])
def test_dropout_that_drops_nothing_is_its_input(p, train):
    """What is written in the result is written in the input, as in eager."""

    def f(x):
        hidden = x * 2
        y = torch.nn.functional.dropout(hidden, p, train)
        y += 1
        return hidden, torch.nn.functional.dropout(x, p, train)

    x = torch.ones(3)
    hidden, given = torch.compile(f, backend=backend, options=OURS, fullgraph=True)(x)
    assert torch.equal(hidden, torch.full((3,), 3.0)) and given.data_ptr() == x.data_ptr()


@pytest.mark.parametrize("p", [1.5, -0.1, float("nan")])
@pytest.mark.parametrize("train", [False, True])
def test_probabilities_of_dropout_are_refused_in_inference_too(p, train):
    def f(x):
        return torch.dropout(x, p, train)

    for function in (f, torch.compile(f, backend=backend)):
        with pytest.raises(RuntimeError, match="probability"):
            function(torch.ones(3))


def test_what_the_forward_graph_keeps_of_a_mask_is_its_seed():
    kept = []

    def pack(t):
        kept.append(t)
        return t

    model = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(64, 64, bias=False))
    f = torch.compile(model, backend=backend, options=OURS)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        f(torch.ones(64, 64, requires_grad=True)).sum().backward()
    assert all(t.dtype is not torch.bool for t in kept) and any(t.dtype is torch.int64 and t.numel() == 2 for t in kept)


def test_what_is_checkpointed_is_computed_again_with_the_same_mask():
    """Attention without dropout, which PyTorch takes for random, too; and no op runs in torch."""
    layer, drop = torch.nn.Linear(4, 12), torch.nn.Dropout(0.25)

    def block(x):
        q, k, v = layer(x).unflatten(-1, (3, 1, 4)).permute(2, 0, 3, 1, 4)
        return drop(torch.nn.functional.scaled_dot_product_attention(q, k, v).squeeze(1)) + drop(x)

    def f(x):
        for _ in range(2):
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        return x

    compiled = torch.compile(f, backend=backend, options=OURS, fullgraph=True)
    x, way = torch.randn(2, 5, 4, requires_grad=True), torch.randn(2, 5, 4)
    values = []
    for step in (0.0, 1e-2, -1e-2):
        torch.manual_seed(3)
        values.append(compiled(x + step * way).square().sum())
    (slope,) = torch.autograd.grad(values[0], x)
    torch.testing.assert_close((slope * way).sum(), (values[1] - values[2]).detach() / 2e-2, rtol=1e-2, atol=1e-2)
    assert not ng.torch.report().in_torch


@pytest.mark.parametrize("dynamic", [False, True])
def test_permutations(dynamic):
    f = torch.compile(lambda x: torch.randperm(x.shape[0]) + x, backend=backend, options=OURS, fullgraph=True, dynamic=dynamic)
    x = torch.zeros(20000, dtype=torch.int64)
    first, second = f(x), f(x)
    assert first.dtype is torch.int64 and torch.equal(first.sort().values, torch.arange(20000)) and not torch.equal(first, second)
    assert abs(torch.corrcoef(torch.stack([first, torch.arange(20000)]).double())[0, 1]) < 0.03
    torch.manual_seed(3)
    again = f(x)
    torch.manual_seed(3)
    assert torch.equal(f(x), again)
    for n in (0, 1, 2, 7):
        assert f(x[:n]).sort().values.tolist() == list(range(n))
    seen = {tuple(f(x[:3]).tolist()) for _ in range(200)}
    assert len(seen) == 6


def test_distributions():
    def f(x):
        return (
            torch.rand(20000),
            torch.randn(20000),
            torch.randint(2, 5, (20000,)),
            torch.bernoulli(x),
            torch.empty(20000).exponential_(2.0),
        )

    u, z, k, b, w = torch.compile(f, backend=backend, options=OURS)(torch.full((20000,), 0.3))
    assert abs(u.mean() - 0.5) < 0.01 and 0 <= u.min() and u.max() < 1
    assert abs(z.mean()) < 0.03 and abs(z.std() - 1) < 0.03
    assert set(k.tolist()) == {2, 3, 4} and abs(b.mean() - 0.3) < 0.02 and abs(w.mean() - 0.5) < 0.02


def test_more_distributions():
    def f(x):
        return x.clone().log_normal_(0.2, 0.5), x.clone().cauchy_(1.0, 2.0), x.clone().geometric_(0.35), torch.randint_like(x, 4)

    for found, wanted in zip(torch.compile(f, backend=backend, options=OURS)(torch.zeros(20000)), f(torch.zeros(20000)), strict=True):
        places = torch.tensor([0.2, 0.45, 0.7])  # where no geometric or whole numbers change
        torch.testing.assert_close(found.quantile(places), wanted.quantile(places), rtol=0.05, atol=0.05)
        assert found.dtype is wanted.dtype


def test_whole_numbers_below_one_that_comes_with_calls():
    def f(x, k):
        return torch.randint(0, k, (20000,)), torch.randint(-k, x.shape[0], (5000,))

    f = torch.compile(f, backend=backend, options=OURS, fullgraph=True, dynamic=True)
    for k in (6, 9, 1 << 29, 5):
        a, b = f(torch.ones(k % 100), k)
        assert a.min() >= 0 and a.max() < k and b.min() >= -k and b.max() < k % 100
        assert abs(a.double().mean() / ((k - 1) / 2) - 1) < 0.03
        assert a.unique().numel() == k if k < 10 else a.unique().numel() > 19900 and (a % 64).unique().numel() == 64
    assert len(ng.torch.report().functions) == 1


def test_whole_numbers_below_one_that_values_decide():
    def f(x):
        return torch.randint(0, x.max().item(), (x.shape[0],))

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        f = torch.compile(f, backend=backend, options=OURS, fullgraph=True)
        assert f(torch.full((200,), 3)).unique().tolist() == [0, 1, 2]


def test_long_ranges_of_whole_numbers():
    found = torch.compile(lambda: torch.randint(0, 1 << 47, (20000,)), backend=backend, options=OURS)()
    assert abs(found.double().mean() / 2**46 - 1) < 0.03 and (found % 1024).unique().numel() == 1024


def test_torch_draws_the_numbers_of_eager_and_checks_what_eager_checks():
    for x in (torch.full((50,), 0.5, dtype=torch.float64), torch.tensor([0.2, 1.5]), torch.tensor([0.2, float("nan")])):
        outcomes = []
        compiled = torch.compile(torch.bernoulli, backend=backend, options={"random": "torch", "fallback": "silent"})
        for f in (torch.bernoulli, compiled):
            torch.manual_seed(3)
            try:
                outcomes.append(f(x).tolist())
            except RuntimeError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("p", [-0.5, 1.5, float("nan")])
def test_shares_that_eager_refuses_are_refused(p):
    for f in (lambda x: torch.dropout(x, p, True), lambda x: torch.native_dropout(x, p, True)[0]):
        for taken in (f, torch.compile(f, backend=backend, options={"fallback": "silent"})):
            with pytest.raises(RuntimeError, match="p=|probability"):
                taken(torch.ones(5, requires_grad=True))

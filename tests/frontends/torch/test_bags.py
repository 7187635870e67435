"""Sums, means and greatest of bags of embeddings, and their gradients, beside eager PyTorch."""

import pytest
import torch

from ngraph.frontends.torch import backend, report, reset


@pytest.mark.parametrize(
    ("mode", "last", "padding", "dtype"),  # each two values of two columns meet in one row
    [
        ("sum", False, None, torch.int64),
        ("sum", True, 2, torch.int32),
        ("mean", False, 2, torch.int64),
        ("mean", True, None, torch.int32),
        ("max", False, None, torch.int32),
        ("max", True, 2, torch.int64),
        ("weighted sum", False, 2, torch.int32),
        ("weighted sum", True, None, torch.int64),
    ],
)
def test_bags_of_embeddings(mode, last, padding, dtype):
    """Empty bags, no rows at all, rows that count in no bag, and offsets with and without the end."""
    torch._dynamo.reset()
    reset()
    torch.manual_seed(0)

    def f(weight, indices, offsets, factors):
        return torch.nn.functional.embedding_bag(
            indices,
            weight,
            offsets,
            mode=mode.rpartition(" ")[2],
            include_last_offset=last,
            padding_idx=padding,
            per_sample_weights=factors,
        )

    compiled = torch.compile(f, backend=backend, dynamic=True, fullgraph=True, options={"fallback": "error"})
    for many, starts in ((9, [0, 2, 2, 5]), (5, [0, 0, 0]), (0, [0, 0]), (7, [0])):
        weight, factors = torch.randn(6, 3, requires_grad=True), torch.rand(many, requires_grad=True) if " " in mode else None
        indices, offsets = torch.randint(0, 6, (many,)).to(dtype), torch.tensor(starts + [many] * last).to(dtype)
        given = [weight] if factors is None else [weight, factors]
        want = f(weight, indices, offsets, factors)
        found = compiled(weight, indices, offsets, factors)
        torch.testing.assert_close(found, want)
        slope = torch.randn_like(want)
        torch.testing.assert_close(torch.autograd.grad(found, given, slope), torch.autograd.grad(want, given, slope))
        with torch.no_grad():
            torch.testing.assert_close(compiled(weight, indices, offsets, factors), want.detach())
    assert not report().in_torch


@pytest.mark.parametrize(
    ("indices", "offsets", "says"),
    [
        ([1, -1], [0, 1], "at least 0"),
        ([1, 2, 4], [1, 2], "start at 0"),
        ([1, 2, 4], [0, 50], "no more"),
        ([1, 2, 4, 5, 3], [0, 4, 2], "fall"),
    ],
    ids=["negative", "start", "end", "falling"],
)
def test_bags_that_eager_refuses_are_refused(indices, offsets, says):
    torch._dynamo.reset()
    f = torch.nn.functional.embedding_bag
    given = torch.tensor(indices), torch.randn(10, 4), torch.tensor(offsets)
    if says != "fall":  # on some processors eager PyTorch reads rows out of bounds here, and answers
        with pytest.raises(RuntimeError):
            f(*given)
    with pytest.raises(RuntimeError, match=says):
        torch.compile(f, backend=backend, fullgraph=True)(*given)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("starts", [[], [0]])
def test_indices_without_a_bag(mode, starts):
    """As eager gives for a sum. For a mean or the greatest it reads memory that is not there."""
    torch._dynamo.reset()
    weight, indices, offsets = torch.randn(6, 3, requires_grad=True), torch.tensor([1, 5]), torch.tensor(starts, dtype=torch.int64)
    factors = torch.rand(2, requires_grad=True) if mode == "sum" else None

    def f(weight, indices, offsets, factors):
        more = {"include_last_offset": bool(starts), "per_sample_weights": factors}
        return torch.nn.functional.embedding_bag(indices, weight, offsets, mode=mode, **more)

    found = torch.compile(f, backend=backend, fullgraph=True, options={"fallback": "error"})(weight, indices, offsets, factors)
    assert found.shape == (0, 3)
    found.sum().backward()
    assert not weight.grad.any() and (factors is None or not factors.grad.any())


@pytest.mark.parametrize("p", [2.0, 1.0])
def test_rows_that_are_looked_up_get_a_norm_of_at_most_one(p):
    """The table is written, in rows that are looked up, once or twice, and are too long."""
    torch._dynamo.reset()
    reset()
    tables = [(torch.arange(20.0).reshape(5, 4) / 20).requires_grad_() for _ in range(2)]

    def f(table, indices):
        return torch.nn.functional.embedding(indices, table, max_norm=1.0, norm_type=p).sin()

    compiled = torch.compile(f, backend=backend, fullgraph=True, dynamic=True, options={"fallback": "error"})
    for indices in (torch.tensor([[4, 0], [4, 2]]), torch.tensor([[3, 4, 3]])):
        found, want = (g(table, indices) for g, table in zip((compiled, f), tables, strict=True))
        torch.testing.assert_close(found, want)
        torch.testing.assert_close(tables[0], tables[1])
        torch.testing.assert_close(*[torch.autograd.grad(y.sum(), t)[0] for y, t in zip((found, want), tables, strict=True)])
    assert not report().in_torch

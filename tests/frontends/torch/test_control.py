"""Branches and loops of PyTorch's are ops of ours: results and derivatives are eager's, and nothing of them runs in torch."""

import numpy as np
import pytest
import torch
from torch._higher_order_ops import associative_scan, while_loop
from torch._higher_order_ops import map as map_
from torch._higher_order_ops import scan as scan_

import ngraph as ng
from ngraph.frontends.torch import backend


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    ng.torch.reset()


def cond(x, w):
    return torch.cond(x.sum() > 0, lambda x, w: (x @ w).sin(), lambda x, w: x.cos() @ w, (x, w))


def cond_in_cond(x, w):
    def positive(x, w):
        return torch.cond(x.max() > 0.9, lambda x, w: x @ w, lambda x, w: (x @ w) * 2, (x, w))

    return torch.cond(x.sum() > 0, positive, lambda x, w: x.cos() @ w, (x, w))


def scan(x, w):
    def step(state, now):
        state = (state @ w + now).tanh()
        return state, state * 2

    return scan_(step, x.new_zeros(3), x)


def scan_of_two(x, w):
    def step(state, now):  # PyTorch itself refuses the derivatives of many others
        a, b = state
        return [(a + now).sin(), (b + now).cos()], [a + b]

    return scan_(step, [x.new_ones(3), x.new_zeros(3)], x @ w, reverse=True)


def mapped(x, w):
    return map_(lambda row, w: (row @ w).sin(), x, w)


def associative(x, w):
    return associative_scan(lambda a, b: a * b + a, x[:5] @ w, 0, combine_mode="generic")


def leaves(y):
    return torch.utils._pytree.tree_leaves(y)


def outcome(call, x, w):
    """What a call gives, and the derivatives for both of its inputs."""
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    found = leaves(call(x, w))
    sum((k + 1) * (t * t).sum() for k, t in enumerate(found)).backward()
    return [*[t.detach() for t in found], x.grad, w.grad]


@pytest.mark.parametrize("function", [cond, cond_in_cond, scan, scan_of_two, mapped, associative])
def test_results_and_derivatives_are_those_of_eager(function):
    compiled = torch.compile(function, backend=backend, fullgraph=True, options={"fallback": "error"})
    w = torch.randn(3, 3)
    for x in (torch.rand(12, 3), -torch.rand(12, 3), torch.rand(12, 3) / 2):
        torch.testing.assert_close(outcome(compiled, x, w), outcome(function, x, w), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(leaves(compiled(x, w)), leaves(function(x, w)))
    assert not ng.torch.report().in_torch


@pytest.mark.parametrize("function", [scan, mapped])
def test_the_number_of_turns_may_be_open(function):
    compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=True, options={"fallback": "error"})
    w = torch.randn(3, 3)
    for steps in (9, 40, 3, 2):
        x = torch.rand(steps, 3)
        torch.testing.assert_close(leaves(compiled(x, w)), leaves(function(x, w)))
    assert len(ng.torch.report().functions) == 1


def halved(x, w):
    return while_loop(lambda k, x: (k < 40) & (x.abs().sum() > 1), lambda k, x: (k + 1, (x @ w) * 0.5), (torch.tensor(0), x))


def test_a_loop_runs_while_its_condition_holds():
    compiled = torch.compile(halved, backend=backend, fullgraph=True, options={"fallback": "error"})
    for scale in (1, 0.01, 1000):
        x, w = torch.rand(4, 3) * scale, torch.rand(3, 3) * 0.4
        torch.testing.assert_close(leaves(compiled(x, w)), leaves(halved(x, w)))


def test_the_derivative_of_a_while_loop_is_that_of_eager():
    compiled = torch.compile(lambda x, w: halved(x, w)[1], backend=backend, fullgraph=True, options={"fallback": "silent"})
    plain = torch.compile(lambda x, w: halved(x, w)[1], backend="aot_eager", fullgraph=True)
    x, w = torch.rand(4, 3) * 30, torch.rand(3, 3) * 0.4
    torch.testing.assert_close(outcome(compiled, x, w), outcome(plain, x, w))


def test_what_a_branch_lacks_is_named():
    def f(x):
        return torch.cond(x.sum() > 0, lambda x: torch.special.airy_ai(x), lambda x: x.cos(), (x,))

    compiled = torch.compile(f, backend=backend, fullgraph=True, options={"fallback": "error"})
    with pytest.raises(Exception, match=r"higher_order.cond: aten.special_airy_ai.default in its body: no translation"):
        compiled(torch.rand(3))
    torch._dynamo.reset()
    compiled = torch.compile(f, backend=backend, fullgraph=True, options={"fallback": "silent"})
    for x in (torch.rand(3), -torch.rand(3)):
        torch.testing.assert_close(compiled(x), f(x))


class Module(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.w, self.function = torch.nn.Parameter(torch.randn(3, 3)), function

    def forward(self, x):
        return self.function(x, self.w)


@pytest.mark.parametrize("function", [cond, cond_in_cond, scan, mapped, associative, halved])
def test_exported_programs_have_branches_and_loops(function, tmp_path):
    module = Module(function)
    torch.export.save(torch.export.export(module, (torch.rand(12, 3),)), tmp_path / "m.pt2")
    loaded = ng.torch.load(tmp_path / "m.pt2")
    for x in (torch.rand(12, 3), -torch.rand(12, 3)):
        found = loaded(x.numpy())
        for a, b in zip(found if isinstance(found, tuple) else [found], leaves(module(x)), strict=True):
            np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-5, atol=1e-6)


# ---- lengths that values decide -----------------------------------------------------------------------------------------

BY_VALUE = {
    "nonzero": lambda x: (torch.nonzero(x > 0), torch.nonzero(x > 0) * 2 + 1),
    "nonzero as a tuple": lambda x: torch.nonzero(x > 0, as_tuple=True)[1] + 1,
    "masked_select": lambda x: torch.masked_select(x, x > 0) * 2,
    "mask": lambda x: x[x > 0].exp(),
    "mask of rows": lambda x: x[x.sum(1) > 0] @ torch.ones(4, 2),
    "two masks": lambda x: (x[x > 0].sum() + x[x < 0].sum(), x[x > 0]),
    "item": lambda x: x * x.sum().item() + (x > 0).sum().item(),
    "range": lambda x: torch.arange((x > 0).sum().item()) * 2.0,
    "slice": lambda x: x[: (x[:, 0] > 0).sum().item()] * 2,
}


@pytest.mark.parametrize("name", BY_VALUE)
def test_lengths_that_values_decide_stay_inside(name):
    function = BY_VALUE[name]
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        compiled = torch.compile(function, backend=backend, fullgraph=True, options={"fallback": "error"})
        for x in (torch.randn(5, 4), torch.randn(5, 4), torch.rand(5, 4), -torch.rand(5, 4)):
            torch.testing.assert_close(compiled(x), function(x))
            assert len(ng.torch.report().functions) == 1
        if "mask" in name:
            x = torch.randn(5, 4)
            outcomes = [outcome(lambda x, w, call=call: call(x), x, torch.zeros(1))[:-1] for call in (compiled, function)]
            torch.testing.assert_close(*outcomes)
    assert not ng.torch.report().in_torch

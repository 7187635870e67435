"""What a forward graph keeps for its backward: in an order of ours, with the gradients of eager."""

import copy

import pytest
import torch

import ngraph as ng
from ngraph.frontends.torch import report, reset

OPTIONS = {"fallback": "error"}


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    reset()


class Residual(torch.nn.Module):
    def __init__(self, strided=False):
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Conv2d(8, 8, 3, padding=1)
        self.norms = torch.nn.ModuleList([torch.nn.BatchNorm2d(8), torch.nn.BatchNorm2d(8)])
        self.last, self.strided = torch.nn.Linear(8 * 15, 4), strided

    def forward(self, x):
        y = self.norms[0](self.first(x)).relu()
        if self.strided:
            y = y * torch.as_strided(y, y.shape, (1, *y.stride()[1:])).sigmoid()
        z = (self.norms[1](self.second(y)) + y).relu()
        return z.square(), self.last(z.flatten(1))


def compared(model, x, **named):
    """Compares outputs, gradients and statistics with eager; returns the strides of the tensors that were saved."""
    ours, theirs = copy.deepcopy(model), copy.deepcopy(model)
    compiled = torch.compile(ours, backend=ng.torch.backend, fullgraph=True, options=OPTIONS, **named)
    for _ in range(3):
        results = []
        for f in (compiled, theirs):
            given, saved = x.clone().requires_grad_(), []

            def pack(t, saved=saved):
                saved.append((t.shape, t.stride()))
                return t

            with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                image, found = f(given)
            (found.sum() + image.mean()).backward()
            results.append((image, found, given.grad, saved))
        for a, b in zip(*[r[:3] for r in results], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
            assert a.stride() == b.stride()
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-3)
            assert a.grad.stride() == b.grad.stride()
        for a, b in zip(ours.buffers(), theirs.buffers(), strict=True):
            torch.testing.assert_close(a, b)
    return [stride for shape, stride in results[0][3] if shape[1:] == (8, 3, 5)]


def test_images_that_are_saved_have_their_channels_last():
    found = compared(Residual(), torch.randn(5, 3, 3, 5))
    assert found and {s[1] for s in found} == {1}
    assert report().in_torch == {}


def test_what_depends_on_strides_has_those_of_eager():
    compared(Residual(strided=True), torch.randn(8, 3, 3, 5))


def test_open_lengths_keep_the_order_of_eager():
    found = compared(Residual(), torch.randn(7, 3, 3, 5), dynamic=True)
    assert {s[1] for s in found} == {15}


def test_equal_gradients_are_tensors_of_their_own():
    a, b = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))
    f = torch.compile(lambda x: (x + a).sin() + b.cos() * 0 + (x + a).cos(), backend=ng.torch.backend, options=OPTIONS)
    g = torch.compile(lambda x: (x * 2 + a + b).sin(), backend=ng.torch.backend, options=OPTIONS)
    for _ in range(5):
        f(torch.ones(3)).sum().backward()
        a.grad = b.grad = None
        g(torch.ones(3)).sum().backward()
        assert a.grad.data_ptr() != b.grad.data_ptr()
        torch.testing.assert_close(a.grad, torch.full((3,), 4.0).cos())
        torch.testing.assert_close(a.grad, b.grad)

"""Inputs that a compiled function writes: in our segments where they lie, else by torch at the end."""

import pytest
import torch

from ngraph.frontends.torch import backend, report, reset
from ngraph.frontends.torch.steps import OurStep, TorchStep


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    reset()


def agree(f, *inputs, written=None, **options):
    """Both ways give the same, and leave the same in the inputs, three times; `written` inputs are written by our segments."""
    ours = [x.clone() for x in inputs]
    compiled = torch.compile(f, backend=backend, options={"fallback": "silent", **options})
    for _ in range(3):
        before = [x._version for x in ours]
        wanted, found = f(*inputs), compiled(*ours)
        for a, b in zip((*inputs, *wanted), (*ours, *found), strict=True):
            torch.testing.assert_close(b, a)
        assert [x._version > n for x, n in zip(ours, before, strict=True)] == [x._version > 0 for x in inputs]
    steps = report().functions[0].graphs[0].made.steps
    if written is not None:
        assert not any(isinstance(s, TorchStep) for s in steps)
        assert [len(s.writes) for s in steps if isinstance(s, OurStep)] == written


def test_a_segment_writes_where_inputs_lie():
    def f(x, y):
        x.mul_(2).add_(y)
        y.sub_(1)
        return (x * y,)

    agree(f, torch.randn(3, 4), torch.randn(4), written=[2])


def test_inputs_change_places():
    def f(x, y):
        old = x.clone()
        x.copy_(y)
        y.copy_(old)
        return (x + y, old)

    agree(f, torch.randn(5), torch.randn(5))


def test_old_values_are_results_too():
    def f(x):
        old, double = x.clone(), x * 2
        x.add_(1)
        return old, double, x.clone()

    agree(f, torch.randn(3), written=[1], fallback="error")


def test_what_torch_reads_it_reads_before():
    """`svdvals` is torch's: it takes the old values, and the segment behind it writes."""

    def f(x):
        s = torch.linalg.svdvals(x)
        x.mul_(s.sum())
        return (s + x.sum(),)

    agree(f, torch.randn(3, 3))
    assert [len(s.writes) for s in report().functions[0].graphs[0].made.steps if isinstance(s, OurStep)] == [1]

    def g(x):
        y = x * 2
        s = torch.linalg.svdvals(x)
        x.copy_(y + 1)  # computed before torch runs, and written after
        return (s, y)

    torch._dynamo.reset()
    reset()
    agree(g, torch.randn(3, 3))


def test_views_and_orders_in_memory():
    def f(x, y):
        x[1:].add_(1)
        x.t()[0].zero_()
        y.relu_()
        return (x.sum(), y * 2)

    agree(f, torch.randn(3, 4), torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), written=[2])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int64, torch.bool])
def test_dtypes(dtype):
    def f(x, y):
        x.logical_or_(y) if dtype is torch.bool else x.add_(y)
        return (x.clone(),)

    agree(f, torch.ones(7).to(dtype), (torch.arange(7) % 2).to(dtype), written=[1])


def test_open_lengths():
    def f(x, y):
        x.add_(y)
        return (x.sum(),)

    compiled = torch.compile(f, backend=backend, dynamic=True)
    for n in (3, 5, 8, 2):
        x, y = torch.randn(n), torch.randn(n)
        wanted = x + y
        compiled(x, y)
        torch.testing.assert_close(x, wanted)
    assert len(report().functions) == 1


def test_a_written_parameter_makes_an_old_graph_stale():
    """Autograd finds that what it saved was written, as it does when torch writes."""
    w = torch.ones(3, requires_grad=True)
    loss = (w * w).sum()

    def step():
        with torch.no_grad():
            w.sub_(0.1)

    torch.compile(step, backend=backend)()
    torch.testing.assert_close(w.detach(), torch.full((3,), 0.9))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_tensor_of_inference_mode_that_is_written_and_the_result():
    with torch.inference_mode():
        x = torch.zeros(3)
        y = torch.compile(lambda x: x.add_(1), backend=backend, options={"fallback": "error"})(x)
        assert x.sum() == 3 and y.data_ptr() == x.data_ptr()


class Counted(torch.nn.Module):
    """Its buffers are written, and their old and new values are factors of what is differentiated."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.linspace(0, 1, 5))

    def forward(self, x):
        old = self.mean.clone()
        self.count += 1
        self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        self.mean[1:3] = self.mean[0:2].clone()
        return x.sin() * self.count * (self.mean + 1).exp() * old


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_backward_pass_has_the_values_that_its_forward_pass_had(dynamic):
    eager, ours = Counted(), Counted()
    compiled = torch.compile(ours, backend=backend, dynamic=dynamic, fullgraph=True, options={"fallback": "error"})
    for n in (4, 7, 2):
        x = torch.randn(n, 5, requires_grad=True)
        want, found = eager(x), compiled(x)
        ours.mean.add_(1)  # between forward and backward, too
        eager.mean.add_(1)
        torch.testing.assert_close(found, want)
        slope = torch.randn(n, 5)
        torch.testing.assert_close(torch.autograd.grad(found, x, slope), torch.autograd.grad(want, x, slope))
        torch.testing.assert_close(list(ours.buffers()), list(eager.buffers()))

"""options={"freeze": True}: what parameters alone decide is computed once, and each write of one is seen, or told by `refresh`."""

import threading
import time

import pytest
import torch

from ngraph.errors import ArgumentError
from ngraph.frontends.torch import backend, refresh, report, reset
from ngraph.frontends.torch.steps import FrozenTensors, OurStep


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    reset()


class Low(torch.nn.Module):
    """A layer with an addition of low rank, which can be merged into its weight."""

    def __init__(self, layer, rank=2):
        super().__init__()
        self.layer = layer
        self.down = torch.nn.Parameter(torch.randn(rank, layer.in_features))
        self.up = torch.nn.Parameter(torch.randn(layer.out_features, rank))

    def forward(self, x):
        return self.layer(x) + x @ self.down.T @ self.up.T


def model():
    layers = [torch.nn.Conv2d(3, 6, 3), torch.nn.BatchNorm2d(6), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(96, 5)]
    return torch.nn.Sequential(*layers).eval()


def steps():
    """Our steps of all graphs without a backward."""
    return [s for f in report().functions for g in f.graphs for s in g.made.steps if isinstance(s, OurStep) and g.kind == "inference"]


def frozen(m, **options):
    return torch.compile(m, backend=backend, options={"freeze": True, "fallback": "error", **options})


@torch.no_grad()
def agree(compiled, m, x):
    for _ in range(2):
        torch.testing.assert_close(compiled(x), m(x))


def by_step(m):
    optimizer = torch.optim.SGD(m.parameters(), 0.5)
    m(torch.ones(1, 3, 6, 6)).sum().backward()
    optimizer.step()


def by_data(m):
    m[4].weight.data = torch.randn(5, 96)


def by_another(m):
    m[4].weight = torch.nn.Parameter(torch.randn(5, 96))


def by_loading(m):
    m.load_state_dict({name: t + 1 for name, t in m.state_dict().items()})


def by_layout(m):
    m.to(memory_format=torch.channels_last)


def in_place(m):
    with torch.no_grad():
        m[0].weight.mul_(3)
        m[1].running_mean.add_(1)


SEEN = [in_place, by_step, by_data, by_another, by_loading, by_layout]


def test_each_write_that_torch_counts_is_seen():
    m, x = model(), torch.randn(2, 3, 6, 6)
    compiled = frozen(m)
    agree(compiled, m, x)
    assert [len(s.takes) for s in steps()] == [1] and steps()[0].computation.memory["packed"] > 0
    for write in SEEN:
        write(m)
        agree(compiled, m, x)


def test_other_writes_are_told():
    m, x = model(), torch.randn(2, 3, 6, 6)
    compiled = frozen(m)
    agree(compiled, m, x)
    last = m[4].weight
    for what, write in ((m, lambda w: w.data.mul_(2)), (last, lambda w: w.detach().numpy().fill(0.5)), ([last], torch.Tensor.sin_)):
        with torch.no_grad():
            write(m[4].weight)
        refresh(what)
        agree(compiled, m, x)
    with pytest.raises(ArgumentError, match="refresh takes a module"):
        refresh(3)


def test_without_freeze_all_writes_are_seen():
    m, x = model(), torch.randn(2, 3, 6, 6)
    compiled = torch.compile(m, backend=backend, options={"fallback": "error"})
    agree(compiled, m, x)
    assert steps()[0].frozen == ()
    for write in (*SEEN, lambda m: m[4].weight.data.mul_(2), lambda m: m[4].weight.detach().numpy().fill(0.5)):
        write(m)
        agree(compiled, m, x)


def test_layers_are_swapped_and_merged():
    low = Low(torch.nn.Linear(6, 4))
    m = torch.nn.Sequential(low, torch.nn.Tanh())
    compiled, x = frozen(m), torch.randn(3, 6)
    agree(compiled, m, x)
    low.down.data, low.up.data = torch.randn(2, 6), torch.randn(4, 2)
    agree(compiled, m, x)
    with torch.no_grad():
        low.layer.weight.add_(low.up @ low.down)
        low.up.zero_()
    agree(compiled, m, x)
    m[0] = low.layer
    agree(compiled, m, x)


def test_tied_transposed_and_open():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(7, 4)
            self.turned = torch.nn.Parameter(torch.randn(5, 4).T)
            self.register_buffer("scale", torch.tensor(0.5))

        def forward(self, k):
            return (self.embedding(k) @ self.turned @ self.turned.T * self.scale) @ self.embedding.weight.T

    m = Tied()
    compiled = torch.compile(m, backend=backend, dynamic=True, options={"freeze": True, "fallback": "error"})
    for n in (3, 5, 2):
        agree(compiled, m, torch.arange(2 * n).reshape(2, n) % 7)
    with torch.no_grad():
        m.embedding.weight[3] = 4
        m.scale.fill_(2)
    agree(compiled, m, torch.tensor([[3, 1]]))


def test_gradients_are_not_frozen_and_modes_freeze():
    m, x = torch.nn.Linear(4, 3), torch.randn(2, 4)
    compiled = frozen(m)
    for _ in range(2):
        m.weight.grad = None
        compiled(x).square().sum().backward()
        wanted = torch.autograd.grad(m(x).square().sum(), m.weight)[0]
        torch.testing.assert_close(m.weight.grad, wanted)
        m.weight.data.mul_(2)  # no version
    tuned = torch.compile(m, backend=backend, mode="max-autotune", options=None)
    agree(tuned, m, x)
    assert any(s.frozen for s in steps())
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="the option 'freeze' is 3"):
        torch.compile(m, backend=backend, options={"freeze": 3})(x)


def test_weights_of_inference_mode_and_kept_graphs():
    with torch.inference_mode():
        m = torch.nn.Linear(4, 3)
        x = torch.randn(2, 4)
        compiled = frozen(m)
        torch.testing.assert_close(compiled(x), m(x))
        m.weight.mul_(2)
        torch.testing.assert_close(compiled(x), m(x))
    plain = torch.nn.Linear(4, 3)
    for _ in range(2):
        torch._dynamo.reset()
        agree(frozen(plain), plain, torch.ones(2, 4))
    assert [len(s.frozen) for s in steps()][-2:] == [2, 2]
    assert report().functions[-1].graphs[0].seconds["translation"] == 0  # found in the cache


def test_written_parameters_and_other_transformers():
    m = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).train()
    twin = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).train()
    twin.load_state_dict(m.state_dict())
    for options in ({}, {"transformer": "numpy"}):
        compiled, x = frozen(m, **options), torch.randn(5, 4)
        with torch.no_grad():
            for _ in range(2):
                torch.testing.assert_close(compiled(x), twin(x))
        torch.testing.assert_close(m[1].running_var, twin[1].running_var)
        torch._dynamo.reset()


def test_modules_that_share_a_graph_are_called_by_threads_of_their_own(monkeypatch):
    """Two modules of one class are one graph with two sets of parameters; a thread switch between parameters and call changes nothing."""
    modules = [Low(torch.nn.Linear(16, 8)).eval() for _ in range(3)]
    x, wrong = torch.randn(4, 16), []
    with torch.no_grad():
        compiled = [frozen(m) for m in modules]
        want = [m(x) for m in modules]
        for c in compiled:
            c(x)
        assert len(report().functions) == 1
    given = FrozenTensors.__call__

    def slowly(self, *tensors):
        given(self, *tensors)
        time.sleep(1e-3)  # others run

    monkeypatch.setattr(FrozenTensors, "__call__", slowly)

    def call(c, y):
        with torch.no_grad():
            for _ in range(30):
                found = c(x)
                if not torch.allclose(found, y, rtol=1e-5, atol=1e-6):
                    wrong.append(float((found - y).abs().max()))

    threads = [threading.Thread(target=call, args=pair) for pair in zip(compiled, want, strict=True)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []

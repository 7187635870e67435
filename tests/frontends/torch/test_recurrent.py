"""Recurrent layers are loops: results and derivatives are eager's, nothing of them runs in torch, and no number of steps is unrolled."""

import pytest
import torch

import ngraph as ng
from ngraph.frontends.torch import backend

KINDS = {
    "lstm": lambda: torch.nn.LSTM(4, 5, 2, bidirectional=True, batch_first=True),
    "projection": lambda: torch.nn.LSTM(4, 5, 1, proj_size=3, bias=False),
    "gru": lambda: torch.nn.GRU(4, 5, 2, bidirectional=True),
    "tanh": lambda: torch.nn.RNN(4, 5, 2),
    "relu": lambda: torch.nn.RNN(4, 5, nonlinearity="relu", bias=False),
}


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    ng.torch.reset()


def outcome(call, model, x):
    """The results of a call, and the derivatives of all that goes in."""
    model.zero_grad()
    x = x.clone().requires_grad_()
    y, state = call(x)
    results = [y, *(state if isinstance(state, tuple) else (state,))]
    sum((k + 1) * (r * r).sum() for k, r in enumerate(results)).backward()
    return [*results, x.grad, *[p.grad.clone() for p in model.parameters()]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(3, 2, 4), (6, 4), (1, 1, 4)])
def test_layers_are_those_of_eager(kind, shape):
    model, x = KINDS[kind](), torch.randn(shape)
    compiled = torch.compile(model, backend=backend, fullgraph=True, options={"fallback": "error"})
    for found, wanted in zip(outcome(compiled, model, x), outcome(model, model, x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x)[0], model(x)[0], rtol=1e-5, atol=1e-6)
    assert not ng.torch.report().in_torch and not ng.torch.report().breaks


def test_the_number_of_steps_changes_no_graph():
    model = torch.nn.LSTM(4, 5)
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=True, options={"fallback": "error"})
    for steps in (100, 1000, 7):
        x = torch.randn(steps, 2, 4)
        torch.testing.assert_close(compiled(x)[0], model(x)[0], rtol=1e-4, atol=1e-5)
    (function,) = ng.torch.report().functions
    assert sum(g.ours for g in function.graphs) < 30


def test_other_backends_get_no_recurrent_layers():
    graphs = []

    def other(gm, inputs):
        graphs.append(gm)
        return gm

    with pytest.raises(Exception, match="RNN, GRU, or LSTM"):
        torch.compile(torch.nn.LSTM(4, 5), backend=other, fullgraph=True)(torch.ones(2, 3, 4))
    assert not graphs and not torch._dynamo.config.allow_rnn

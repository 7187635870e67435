"""Recurrent layers are loops: results and derivatives are eager's, nothing of them runs in torch, and no number of steps is unrolled."""

import pytest
import torch

import ngraph as ng
from ngraph.frontends.torch import backend
from ngraph.frontends.torch.steps import OurStep

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


PARTS = {  # of the results of `outcome`, which take part in the loss
    "the last state": (1,),
    "the last c twice, and no step": (2, 2),
    "all steps": (0,),
    "all of them, the steps twice": (0, 0, 1, 2),
}


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("kind", ["lstm", "projection"])
def test_derivatives_of_some_results(kind, parts):
    model, x = KINDS[kind](), torch.randn(3, 7, 4)
    compiled = torch.compile(model, backend=backend, fullgraph=True, options={"fallback": "error"})
    found = []
    for call in (compiled, model):
        leaf = x.clone().requires_grad_()
        y, (h, c) = call(leaf)
        given = y, h, c
        loss = sum((given[k] * (n + 2 + given[k])).mean() for n, k in enumerate(PARTS[parts]))
        grads = torch.autograd.grad(loss, [leaf, *model.parameters()], allow_unused=True)
        found.append([torch.zeros(()) if g is None else g for g in grads])
    for ours, wanted in zip(*found, strict=True):
        torch.testing.assert_close(ours, wanted if wanted.dim() else torch.zeros_like(ours), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_for_first_states_and_open_lengths(kind):
    """One compiled layer trains at several lengths; the first states are leaves, and float64 tells any term that is left out."""
    model = KINDS[kind]().double()
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=True, options={"fallback": "error"})
    ways, batch_first = 2 if model.bidirectional else 1, model.batch_first
    for steps, batch in ((5, 3), (17, 2), (2, 9)):
        x = torch.randn((batch, steps, 4) if batch_first else (steps, batch, 4), dtype=torch.float64)
        sizes = [getattr(model, "proj_size", 0) or 5, 5] if isinstance(model, torch.nn.LSTM) else [5]
        first, found = [torch.randn(model.num_layers * ways, batch, n, dtype=torch.float64) for n in sizes], []
        for call in (compiled, model):
            leaves = [t.clone().requires_grad_() for t in (x, *first)]
            y, state = call(leaves[0], tuple(leaves[1:]) if len(sizes) == 2 else leaves[1])
            results = [y, *(state if isinstance(state, tuple) else (state,))]
            loss = sum((k + 1) * (r * r * r).sum() for k, r in enumerate(results))
            found.append([*results, *torch.autograd.grad(loss, [*leaves, *model.parameters()])])
        for ours, wanted in zip(*found, strict=True):
            torch.testing.assert_close(ours, wanted, rtol=1e-10, atol=1e-11)


def test_the_backward_graph_runs_no_forward_loop():
    """The gates are kept: the graph of the derivative has one loop for each layer and direction, not two."""
    model = torch.nn.LSTM(4, 5, 2)
    compiled = torch.compile(model, backend=backend, fullgraph=True, options={"fallback": "error"})
    outcome(compiled, model, torch.randn(6, 3, 4))
    (function,) = ng.torch.report().functions
    ours = [step.computation.program for g in function.graphs for step in g.made.steps if isinstance(step, OurStep)]
    assert [[s.op for s in program.steps].count("scan") for program in ours] == [2, 2]


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

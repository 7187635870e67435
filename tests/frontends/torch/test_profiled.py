"""Profilers of torch's show each call of a compiled graph, and each kernel of it with the user's line; nothing else changes."""

import inspect
import threading

import pytest
import torch

import ngraph as ng
from ngraph.frontends.torch import backend


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    ng.torch.reset()


def compiled(f):
    return torch.compile(f, backend=backend, fullgraph=True, options={"fallback": "error"})


def below(event):
    """The names of all events beneath one, in order."""
    return [name for child in event.cpu_children for name in (child.name, *below(child))]


def graphs(profiler):
    """The kernels of each call of a graph of ours: its name, and what stands beneath it with a line."""
    events = profiler.events() if isinstance(profiler, torch.profiler.profile) else profiler.function_events
    return [(e.name, [n for n in below(e) if "(" in n]) for e in events if e.name.startswith("ngraph ")]


def line(f, text):
    """The number of the line of a function that holds a text."""
    lines, first = inspect.getsourcelines(f)
    return next(first + k for k, row in enumerate(lines) if text in row)


def two_kernels(x, w):
    hidden = torch.tanh(x @ w)
    return torch.cumsum(hidden, 0), hidden


@pytest.mark.parametrize("profile", [torch.profiler.profile, torch.autograd.profiler.profile])
def test_each_kernel_stands_beneath_its_graph_with_the_users_line(profile):
    x, w = torch.randn(40, 30), torch.randn(30, 20)
    call = compiled(two_kernels)
    before = call(x, w)
    for _ in range(20):  # calls that pass by Python
        call(x, w)
    count = ng.torch.report().functions[0].graphs[0].calls.count
    with profile() as profiler:
        within = [call(x, w) for _ in range(3)]
    after = call(x, w)
    found = graphs(profiler)
    assert [name for name, _ in found] == ["ngraph inference"] * 3
    assert len({tuple(kernels) for _, kernels in found}) == 1
    kernels = found[0][1]
    first, summed = [
        [k for k in kernels if k.endswith(f"test_profiled.py:{line(two_kernels, text)})")] for text in ("hidden = ", "torch.cumsum")
    ]
    assert len(kernels) > 1 and any("tanh" in k for k in first) and any("cum" in k for k in summed)
    assert all("test_profiled.py:" in k for k in kernels)
    for results in (*within, after):
        assert all(torch.equal(a, b) for a, b in zip(results, before, strict=True))
    assert ng.torch.report().functions[0].graphs[0].calls.count == count + 4
    assert torch.allclose(before[0], two_kernels(x, w)[0], atol=1e-5)


def test_the_first_call_may_be_profiled():
    x, w = torch.randn(8, 6), torch.randn(6, 5)
    call = compiled(lambda x, w: two_kernels(x, w))
    with torch.profiler.profile() as profiler:
        first = call(x, w)
    assert torch.equal(first[0], call(x, w)[0])
    assert any("test_profiled.py:" in k for _, kernels in graphs(profiler) for k in kernels)
    assert ng.torch.report().functions[0].graphs[0].calls.seconds > 0


def test_training_gives_the_same_with_a_profiler_and_shows_its_three_graphs():
    def train(profiled):
        torch._dynamo.reset()
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.GELU(), torch.nn.Linear(24, 3))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        loss_of = torch.compile(lambda x: model(x).square().mean(), backend=backend)
        update = torch.compile(optimizer.step, backend=backend)
        x, losses = torch.randn(16, 12), []

        def step():
            optimizer.zero_grad()
            loss = loss_of(x)
            loss.backward()
            update()
            losses.append(loss.item())

        step()
        step()
        with torch.profiler.profile() as profiler:
            if profiled:
                step()
        if not profiled:
            step()
        step()
        return losses, graphs(profiler), [p.detach().clone() for p in model.parameters()]

    losses, none, parameters = train(False)
    again, found, others = train(True)
    assert losses == again and losses[-1] < losses[0] and not none
    assert all(torch.equal(a, b) for a, b in zip(parameters, others, strict=True))
    assert [name for name, _ in found] == ["ngraph forward", "ngraph backward", "ngraph inference"]
    mine = f"test_profiled.py:{line(train, 'square().mean()')})"
    assert all(any(mine in k for k in kernels) for _, kernels in found[:2])
    assert found[2][1] and all("torch/optim/" in k for k in found[2][1])


def test_a_whole_step_is_one_range():
    model = torch.nn.Linear(6, 3)
    step = ng.torch.compile_step(model, lambda y: y.square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))
    x = torch.randn(4, 6)
    first = step(x)
    with torch.profiler.profile() as profiler:
        second = step(x)
    assert second < first
    ((name, kernels),) = graphs(profiler)
    assert name == "ngraph step" and kernels


def test_the_kernels_of_a_loop_stand_there_once_for_each_turn():
    layer = torch.nn.GRU(5, 7)
    call, x = compiled(layer), torch.randn(9, 2, 5)
    with torch.no_grad():
        before = call(x)[0]
        with torch.profiler.profile() as profiler:
            within = call(x)[0]
        assert torch.equal(before, within) and torch.equal(call(x)[0], before)
        assert torch.allclose(before, layer(x)[0], atol=1e-5)
    ((_, kernels),) = graphs(profiler)
    assert max(map(kernels.count, kernels)) >= 9


def test_lengths_that_differ_and_an_index_outside_the_table():
    def f(table, k):
        return table[k].tanh().sum(0)

    call, table = torch.compile(f, backend=backend, dynamic=True), torch.randn(11, 4)
    call(table, torch.tensor([1, 2]))
    for n in (0, 1, 3, 7):
        k = torch.arange(n)
        plain = call(table, k)
        with torch.profiler.profile() as profiler:
            assert torch.equal(call(table, k), plain)
        assert len(graphs(profiler)) == 1
    with torch.profiler.profile(), pytest.raises(Exception, match="11"):
        call(table, torch.tensor([3, 11, 4]))
    assert torch.equal(call(table, torch.tensor([3])), call(table, torch.tensor([3])))


def test_other_threads_go_on_beside_a_profiler():
    x, w = torch.randn(16, 6), torch.randn(6, 5)
    call = compiled(two_kernels)
    expected = call(x, w)
    stop, wrong, calls = threading.Event(), [], []

    def go_on():
        while not stop.is_set():
            got = call(x, w)
            calls.append(1)
            if not all(torch.equal(a, b) for a, b in zip(got, expected, strict=True)):
                wrong.append(got)

    threads = [threading.Thread(target=go_on) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            with torch.profiler.profile() as profiler:
                for _ in range(5):
                    assert torch.equal(call(x, w)[0], expected[0])
            assert len([name for name, kernels in graphs(profiler) if kernels]) == 5
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert calls and not wrong


def test_other_transformers_show_the_call_alone():
    call = torch.compile(torch.tanh, backend=backend, options={"transformer": "numpy"})
    x = torch.randn(5)
    call(x)
    with torch.profiler.profile() as profiler:
        assert torch.allclose(call(x), torch.tanh(x))
    assert graphs(profiler) == [("ngraph inference", [])]

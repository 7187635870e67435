"""An imported model is an op-graph: its initializers become variables, its derivatives are PyTorch's, and training it works."""

import io
import threading
import warnings

import numpy as np
import pytest

pytest.importorskip("onnx")
torch = pytest.importorskip("torch")

import ngraph as ng  # noqa: E402


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(2)
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(2, 4, 3, 2), nn.LeakyReLU(0.1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)).eval()


@pytest.fixture(scope="module")
def content(network):
    out = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):
        settings = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": {"x": {0: "N"}, "y": {0: "N"}}}
        torch.onnx.export(network, torch.zeros(1, 2, 9, 9), out, dynamo=False, opset_version=17, **settings)
    return out.getvalue()


def test_derivatives_and_steps_are_those_of_pytorch(network, content):
    m = ng.onnx.load(content, trainable="*")
    x, t = np.random.default_rng(0).standard_normal((5, 2, 9, 9), np.float32), np.ones((5, 3), np.float32)
    before = m(x)
    inputs, outputs, variables = m.graph({"x": (5, 2, 9, 9)})
    assert set(variables) == {n for n, _ in network.named_parameters()}
    y = outputs["y"]
    target = ng.placeholder(y.axes).named("t")
    loss = ng.sum((y - target) ** 2, out_axes=())
    slopes = {name: ng.deriv(loss, v) for name, v in variables.items()}
    steps = [ng.assign(v, v - 0.01 * slopes[name]) for name, v in variables.items()]
    step = m.transformer.computation([loss, *slopes.values(), *steps], inputs["x"], target)
    first, *found = step(x, t)[: 1 + len(slopes)]
    theirs = ((network(torch.tensor(x)) - torch.tensor(t)) ** 2).sum()
    theirs.backward()
    np.testing.assert_allclose(first, theirs.item(), rtol=1e-5)
    wanted = dict(network.named_parameters())
    for name, slope in zip(slopes, found, strict=True):
        np.testing.assert_allclose(slope, wanted[name].grad.numpy(), rtol=1e-3, atol=1e-4, err_msg=name)
    for _ in range(30):
        last = step(x, t)[0]
    assert last < 0.5 * first
    assert abs(((m(x) - t) ** 2).sum() - last) < 0.2 * last and not np.allclose(m(x), before)  # the model sees what was trained


def test_names_choose_what_is_trained(content):
    assert list(ng.onnx.load(content, trainable=["4.*"]).variables) == ["4.weight", "4.bias"]
    assert not ng.onnx.load(content).variables


def test_threads_call_one_model(network, content, monkeypatch):
    """All meet before any has read the graph; one reads it, and the others go its way."""
    m, wrong, far = ng.onnx.load(content), [], []
    meet, walk = threading.Barrier(4), type(m.reader)._walk
    first = threading.local()

    def met(reader, run):
        found = walk(reader, run)
        if not hasattr(first, "time"):
            first.time = meet.wait(30)
        return found

    monkeypatch.setattr(type(m.reader), "_walk", met)

    def call(k):
        random = np.random.default_rng(k)
        try:
            for _ in range(20):
                x = random.standard_normal((1 + int(random.integers(4)), 2, 9, 9), np.float32)
                with torch.no_grad():
                    error = np.abs(m(x) - network(torch.tensor(x)).numpy()).max()
                if error > 1e-4:
                    far.append((k, len(x), error))
        except Exception as error:
            wrong.append((k, error))

    threads = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, f"calls that failed, by thread: {wrong}"
    assert not far, f"results that are wrong, by thread and batch: {far}"
    assert m.readings == 1, f"the graph was read {m.readings} times"

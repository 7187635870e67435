"""Graphs of single ops and of small functions, with the answers that TensorFlow gave (`record.py`), on every transformer."""

import os

import numpy as np
import onnxruntime
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import UnsupportedError

HERE = os.path.dirname(os.path.abspath(__file__))
with np.load(os.path.join(HERE, "recorded", "ops.npz"), allow_pickle=True) as file:
    RECORDED = {key: file[key] for key in file.files}
GRAPHS = sorted(key[: -len("|graph")] for key in RECORDED if key.endswith("|graph"))
LOOSE = {"Lgamma": 2e-5, "Digamma": 2e-5, "Linalg": 1e-4, "Solve": 1e-4, "Norm_gradients": 2e-4, "Prod": 1e-5}


@pytest.fixture(scope="module", params=["cpu", "direct"])
def transformer(request):
    with ngt.make_transformer_factory(request.param)() as made:
        yield made


def load(key, transformer):
    names = [str(n) for n in RECORDED[f"{key}|names"]]
    at = names.index("->")
    return ng.tensorflow.load(RECORDED[f"{key}|graph"].tobytes(), transformer), names[:at], names[at + 1 :]


@pytest.mark.parametrize("key", GRAPHS)
def test_answers(transformer, key):
    model, inputs, outputs = load(key, transformer)
    name = key.removesuffix(".open")
    feeds = {given: RECORDED[f"{name}|in{k}"] for k, given in enumerate(inputs)}
    found = model.run(outputs, feeds)
    assert len(found) == len(outputs)
    for k, y in enumerate(found):
        want = RECORDED[f"{name}|out{k}"]
        assert y.dtype == want.dtype and y.shape == want.shape, (k, y.dtype, y.shape, want.dtype, want.shape)
        limit = LOOSE.get(name, 2e-6)
        np.testing.assert_allclose(y, want, rtol=limit, atol=limit * 10, err_msg=f"result {k}")


@pytest.mark.parametrize(
    ("name", "lengths"), [("Fourier_product", (None, 12)), ("Spectrum", (None, 100)), ("Colours", (None, None, None, 3))]
)
def test_graphs_with_open_lengths_convert(name, lengths, tmp_path):
    """What shapes decide is computed while the graph is read; ONNX Runtime runs the file for the recorded lengths."""
    model, inputs, outputs = load(f"{name}.open", None)
    feeds = {p.name: RECORDED[f"{name}|in{k}"] for k, p in enumerate(model.inputs)}
    ng.onnx.save(model, tmp_path / "model.onnx", shapes={model.inputs[0].name: lengths})
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", options)
    for k, y in enumerate(session.run(None, feeds)):
        np.testing.assert_allclose(y, RECORDED[f"{name}|out{k}"], rtol=2e-5, atol=2e-5)


def test_an_array_that_grows_by_one_in_each_turn_is_read_once(transformer):
    model, _, _ = load("Grown_array.open", transformer)
    x, rows, sizes = (RECORDED[f"Grown_array|{k}"] for k in ("in0", "out0", "out1"))
    for many in (11, 4, 1):
        found, total = model(x[:many])
        np.testing.assert_allclose(found, rows[:many], rtol=2e-6)
        assert total == sum(k * (k + 1) for k in range(many))
    assert sizes == sum(k * (k + 1) for k in range(11)) and model.readings == 1


def test_a_graph_for_one_length_alone_is_not_converted(tmp_path):
    """A loop whose turns change shapes is read turn by turn: another length makes it another graph."""
    model, _, _ = load("Growing_array.open", None)
    name = model.inputs[0].name
    with pytest.raises(UnsupportedError, match=f"another graph for other lengths of {name}.0"):
        ng.onnx.save(model, tmp_path / "model.onnx")
    x = RECORDED["Growing_array|in0"]
    ng.onnx.save(model, tmp_path / "model.onnx", shapes={name: x.shape})
    (y,) = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, {name: x})
    np.testing.assert_array_equal(y, RECORDED["Growing_array|out0"])


def test_what_python_runs_is_not_converted(tmp_path):
    model, _, _ = load("Boxes", None)
    with pytest.raises(UnsupportedError, match="NonMaxSuppressionV3 is a step in Python"):
        ng.onnx.save(model, tmp_path / "model.onnx")


def test_there_are_many():
    assert len(GRAPHS) > 300

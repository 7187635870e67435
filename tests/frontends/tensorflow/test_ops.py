"""Graphs of single ops and of small functions, with the answers that TensorFlow gave (`record.py`), on every transformer."""

import os

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt

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


def test_there_are_many():
    assert len(GRAPHS) > 300

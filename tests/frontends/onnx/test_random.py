"""Random graphs of random ops give what ONNX Runtime gives, on every transformer. NGRAPH_EXAMPLES: how many, in place of a few."""

import os

import numpy as np
import pytest

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from hypothesis import HealthCheck, given, note, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from random_graphs import STEPS, Made, model_of  # noqa: E402

import ngraph as ng  # noqa: E402
import ngraph.transformers as ngt  # noqa: E402

FEW = {"direct": 60, "numpy": 40, "cpu": 25}


@st.composite
def graphs(draw):
    """A model, and inputs for it."""
    made = Made(
        lambda *options: draw(st.sampled_from(options)),
        lambda low, high: draw(st.integers(low, high)),
        lambda sequence: draw(st.permutations(sequence)),
        draw(st.integers(0, 1 << 30)),
    )
    made.input(rank=draw(st.integers(1, 4)))
    for step in draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=14)):
        getattr(made, step)()
    return model_of(made)


def answers(model, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


@pytest.mark.parametrize("name", [n for n in FEW if n in ngt.transformer_choices()])
def test_random_graphs_agree_with_onnx_runtime(name):
    count = int(os.environ.get("NGRAPH_EXAMPLES", FEW[name]))

    @settings(
        max_examples=count,
        deadline=None,
        derandomize="NGRAPH_EXAMPLES" not in os.environ,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(graphs())
    def check(found):
        model, feeds = found
        note("\n".join(f"{n.op_type}({', '.join(n.input)}) -> {n.output[0]}" for n in model.graph.node))
        wanted = answers(model, feeds)
        got = ng.onnx.load(model, ngt.allocate_transformer(name)).run(None, feeds)
        for g, w in zip(got, wanted, strict=True):
            assert (g.shape, g.dtype) == (w.shape, w.dtype)
            scale = np.abs(w).max(initial=1) if w.dtype.kind == "f" else 1
            np.testing.assert_allclose(g, w, rtol=1e-3, atol=2e-5 * scale if np.isfinite(scale) else np.inf)

    check()

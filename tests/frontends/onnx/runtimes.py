"""One node or a few, run here and by ONNX Runtime on the same inputs."""

import numpy as np
import onnx
import onnxruntime
from onnx import helper as h

import ngraph as ng

FUSED = "com.microsoft"


def onnx_type(a):
    return h.np_dtype_to_tensor_dtype(a.dtype)


def model(nodes, inputs, outputs, constants=(), opset=20, ml=3):
    """A ModelProto of nodes. inputs, constants: {name: array}; outputs: names."""
    open_ = [h.make_tensor_value_info(k, onnx_type(a), a.shape) for k, a in inputs.items()]
    held = [onnx.numpy_helper.from_array(np.asarray(a), k) for k, a in dict(constants).items()]
    graph = h.make_graph(nodes, "made", open_, [onnx.ValueInfoProto(name=k) for k in outputs], held)
    versions = [h.make_opsetid("", opset), h.make_opsetid(FUSED, 1), h.make_opsetid("ai.onnx.ml", ml)]
    return h.make_model(graph, opset_imports=versions, ir_version=10)


def both(proto, inputs, **session):
    """What ONNX Runtime gives, and what is given here."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    theirs = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"], **session)
    return theirs.run(None, inputs), ng.onnx.load(proto).run(None, inputs)


def agree(nodes, inputs, outputs=("y",), constants=(), rtol=1e-4, atol=1e-5, steps=0, **more):
    """Raises AssertionError where they differ; `steps`: by how much integers may differ where rounding falls on one side or the other."""
    nodes = nodes if isinstance(nodes, list) else [nodes]
    wanted, got = both(model(nodes, inputs, outputs, constants, **more), inputs)
    assert len(wanted) == len(got)
    for w, g in zip(wanted, got, strict=True):
        g, w = np.asarray(g), np.asarray(w)
        assert g.shape == w.shape and (g.dtype == w.dtype or w.dtype == object), (g.shape, w.shape, g.dtype, w.dtype)
        if w.dtype.kind in "OSU":
            np.testing.assert_array_equal(g.astype(str), w.astype(str))
        elif w.dtype.kind in "iub":
            far = np.abs(g.astype(np.int64) - w.astype(np.int64))
            assert far.max(initial=0) <= steps, f"{far.max()} apart:\n{g}\n{w}"
        else:
            np.testing.assert_allclose(g, w, rtol=rtol, atol=atol)
    return got

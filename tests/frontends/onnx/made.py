"""Small ONNX models made in Python, and their answers beside those of ONNX Runtime."""

import numpy as np
import onnx
from onnx import helper as h

import ngraph as ng

F, I, B = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


def graph(nodes, inputs, outputs, constants=None):
    """A GraphProto; inputs and outputs are (name, type, shape)."""
    values = [[h.make_tensor_value_info(*v) for v in vs] for vs in (inputs, outputs)]
    return h.make_graph(nodes, "made", *values, [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()])


def model(nodes, inputs, outputs, constants=None, opset=18):
    return h.make_model(graph(nodes, inputs, outputs, constants), opset_imports=[h.make_opsetid("", opset)], ir_version=9)


def agree(source, *feeds, rtol=1e-3, atol=1e-5):
    """Our model, after its outputs for all feeds were those of ONNX Runtime."""
    import onnxruntime

    content = source if isinstance(source, bytes) else source.SerializeToString()
    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    mine = ng.onnx.load(content)
    for feed in feeds:
        for port, got, want in zip(mine.outputs, mine.run(None, feed), session.run(None, feed), strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype), port
            np.testing.assert_allclose(got, want, rtol, atol, err_msg=str(port))
    return mine

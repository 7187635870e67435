"""Models of opsets 1 to 6 are read as they were meant: what onnx's converter makes of them gives the same in ONNX Runtime.

What the converter does not take, or gets wrong, is compared with NumPy.
"""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from onnx import helper as h  # noqa: E402
from onnx import numpy_helper, version_converter  # noqa: E402

import ngraph as ng  # noqa: E402

R = np.random.default_rng(0)


def a(*shape):
    return R.uniform(0.5, 2, shape).astype(np.float32)


X, ROW, COLUMN, IMAGE, SLOPE = a(2, 3, 4, 5), a(5), a(3, 4), a(1, 2, 6, 6), a(3)
WHOLE = R.integers(0, 3, (2, 3, 4, 5)).astype(np.int32)
n = h.make_node
CONVERTED = {  # name: opset, node, inputs
    "Add from the end": (1, n("Add", ["x", "y"], ["z"], broadcast=1), [X, ROW]),
    "Div of one shape": (1, n("Div", ["x", "y"], ["z"]), [X, X + 1]),
    "Sub from the end": (6, n("Sub", ["x", "y"], ["z"], broadcast=1), [X, ROW]),
    "Gemm": (6, n("Gemm", ["x", "y", "c"], ["z"], broadcast=1, transB=1, alpha=0.5), [a(2, 3), a(4, 3), a(4)]),
    "Reshape by an attribute": (1, n("Reshape", ["x"], ["z"], shape=[0, -1, 5]), [X]),
    "Reshape by an input": (5, n("Reshape", ["x", "s"], ["z"]), [X, np.array([4, -1], np.int64)]),
    "Concat without axis": (1, n("Concat", ["x", "y"], ["z"]), [X, X]),
    "Clip": (1, n("Clip", ["x"], ["z"], min=0.7, max=1.3), [X]),
    "Clip below": (6, n("Clip", ["x"], ["z"], min=0.9), [X]),
    "Dropout at rest": (1, n("Dropout", ["x"], ["z"], is_test=1), [X]),
    "BatchNormalization at rest": (
        1,
        n("BatchNormalization", ["x", "s", "b", "m", "v"], ["z"], is_test=1, consumed_inputs=[0, 0, 0, 1, 1]),
        [X, *(a(3) for _ in range(4))],
    ),
    "BatchNormalization": (6, n("BatchNormalization", ["x", "s", "b", "m", "v"], ["z"], is_test=1), [X, *(a(3) for _ in range(4))]),
    "Cast": (6, n("Cast", ["x"], ["z"], to=7), [X]),
    "Split by an attribute": (2, n("Split", ["x"], ["z"], axis=1, split=[3]), [X]),
    "Sum": (1, n("Sum", ["x", "y", "w"], ["z"]), [X, X + 1, X]),
    "Max": (1, n("Max", ["x", "y"], ["z"]), [X, 3 - X]),
    "Mean": (6, n("Mean", ["x", "y"], ["z"]), [X, 3 - X]),
    "Softmax over the rest": (1, n("Softmax", ["x"], ["z"], axis=1), [X]),
    "LogSoftmax": (1, n("LogSoftmax", ["x"], ["z"]), [X]),
    "MaxPool": (1, n("MaxPool", ["x"], ["z"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), [IMAGE]),
    "AveragePool": (1, n("AveragePool", ["x"], ["z"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]), [IMAGE]),
    "AveragePool to the same": (1, n("AveragePool", ["x"], ["z"], kernel_shape=[2, 3], strides=[2, 2], auto_pad="SAME_UPPER"), [IMAGE]),
    "Conv": (1, n("Conv", ["x", "w"], ["z"], pads=[1, 1, 1, 1], dilations=[2, 2]), [IMAGE, a(3, 2, 3, 3)]),
    "ConvTranspose": (1, n("ConvTranspose", ["x", "w"], ["z"], strides=[2, 2]), [IMAGE, a(2, 3, 3, 3)]),
    "LRN": (1, n("LRN", ["x"], ["z"], size=3, alpha=0.1), [X]),
    "InstanceNormalization": (6, n("InstanceNormalization", ["x", "s", "b"], ["z"]), [X, a(3), a(3)]),
    "PRelu": (6, n("PRelu", ["x", "s"], ["z"]), [X - 1, a(3, 1, 1)]),
    "Pad": (2, n("Pad", ["x"], ["z"], pads=[0, 0, 1, 2, 0, 0, 0, 1], value=0.5), [X]),
    "Slice": (1, n("Slice", ["x"], ["z"], starts=[1, -3], ends=[9, -1], axes=[1, 3]), [X]),
    "Squeeze": (1, n("Squeeze", ["x"], ["z"], axes=[0]), [IMAGE]),
    "Unsqueeze": (1, n("Unsqueeze", ["x"], ["z"], axes=[0, 4]), [X]),
    "ReduceMean": (1, n("ReduceMean", ["x"], ["z"], axes=[1, 3], keepdims=0), [X]),
    "ArgMax": (1, n("ArgMax", ["x"], ["z"], axis=2), [X]),
    "Tile": (6, n("Tile", ["x", "r"], ["z"]), [X, np.array([1, 2, 1, 2], np.int64)]),
    "TopK": (1, n("TopK", ["x"], ["z", "i"], k=2, axis=3), [X]),
    "Flatten": (1, n("Flatten", ["x"], ["z"], axis=2), [X]),
    "Transpose": (1, n("Transpose", ["x"], ["z"]), [X]),
    "Gather": (1, n("Gather", ["x", "i"], ["z"], axis=1), [X, np.array([2, 0], np.int64)]),
    "MatMul": (1, n("MatMul", ["x", "y"], ["z"]), [X, a(5, 3)]),
    "DepthToSpace": (1, n("DepthToSpace", ["x"], ["z"], blocksize=2), [a(1, 8, 2, 3)]),
    "LpPool": (2, n("LpPool", ["x"], ["z"], kernel_shape=[2, 2], p=2), [IMAGE]),
    "GlobalAveragePool": (1, n("GlobalAveragePool", ["x"], ["z"]), [IMAGE]),
    "Selu": (6, n("Selu", ["x"], ["z"]), [X - 1]),
    "HardSigmoid": (6, n("HardSigmoid", ["x"], ["z"], alpha=0.3), [X - 1]),
    "Elu": (6, n("Elu", ["x"], ["z"], alpha=0.7), [X - 1]),
    "Hardmax": (1, n("Hardmax", ["x"], ["z"]), [X]),
    "Not": (1, n("Not", ["x"], ["z"]), [X > 1]),
}

OURS = {  # what the converter does not take: opset, node, inputs, what NumPy says
    "Add with axis": (6, n("Add", ["x", "y"], ["z"], broadcast=1, axis=1), [X, COLUMN], X + COLUMN[..., None]),
    "Mul with axis": (1, n("Mul", ["x", "y"], ["z"], broadcast=1, axis=1), [X, COLUMN], X * COLUMN[..., None]),
    "Sub with axis from the end": (6, n("Sub", ["x", "y"], ["z"], broadcast=1, axis=-3), [X, COLUMN], X - COLUMN[..., None]),
    "Pow with axis": (1, n("Pow", ["x", "y"], ["z"], broadcast=1, axis=1), [X, COLUMN], X ** COLUMN[..., None]),
    "Cast to a word": (1, n("Cast", ["x"], ["z"], to="INT32"), [X], X.astype(np.int32)),
    "Less": (1, n("Less", ["x", "y"], ["z"], broadcast=1), [X, ROW], X < ROW),
    "Equal with axis": (1, n("Equal", ["x", "y"], ["z"], broadcast=1, axis=1), [WHOLE, WHOLE[0, :, :, 0]], WHOLE == WHOLE[:1, ..., :1]),
    "And": (1, n("And", ["x", "y"], ["z"], broadcast=1), [X > 1, ROW > 1], (X > 1) & (ROW > 1)),
    "Tile by numbers": (1, n("Tile", ["x", "t", "a"], ["z"]), [X, np.int64(3), np.int64(2)], np.tile(X, (1, 1, 3, 1))),
    "Pad by paddings": (1, n("Pad", ["x"], ["z"], paddings=[0, 0, 1, 0, 0, 0, 0, 2]), [X], np.pad(X, ((0, 0), (0, 0), (1, 0), (0, 2)))),
    "Upsample by numbers": (1, n("Upsample", ["x"], ["z"], height_scale=2.0, width_scale=3.0), [X], X.repeat(2, 2).repeat(3, 3)),
    "Split by an input": (1, n("Split", ["x", "s"], ["z", "i"], axis=3), [X, np.array([2, 3], np.int64)], X[..., :2]),
    "PRelu by channel": (1, n("PRelu", ["x", "s"], ["z"]), [X - 1, SLOPE], np.where(X < 1, SLOPE[:, None, None] * (X - 1), X - 1)),
    "Selu of old": (1, n("Selu", ["x"], ["z"]), [X - 1], np.where(X < 1, 1.0507 * 1.6732 * np.expm1(X - 1), 1.0507 * (X - 1))),
}
SAME = {  # what opset 7 says in the same words: opset, node, inputs
    "LSTM": (1, n("LSTM", ["x", "w", "r", "b"], ["z"], hidden_size=3), [a(4, 2, 5), a(1, 12, 5), a(1, 12, 3), a(1, 24)]),
    "RNN": (1, n("RNN", ["x", "w", "r"], ["z"], hidden_size=3, direction="reverse"), [a(4, 2, 5), a(1, 3, 5), a(1, 3, 3)]),
    "GRU": (3, n("GRU", ["x", "w", "r"], ["z"], hidden_size=3, linear_before_reset=1), [a(4, 2, 5), a(1, 9, 5), a(1, 9, 3)]),
}


def model(opset, node, arrays):
    infos = [h.make_tensor_value_info(k, h.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in zip(node.input, arrays, strict=True)]
    outputs = [h.make_tensor_value_info(k, 7 if k == "i" else 1, None) for k in node.output]
    graph = h.make_graph([node], "old", infos, outputs)
    return h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=3)


def ours(opset, node, arrays):
    return ng.onnx.load(model(opset, node, arrays)).run(None, dict(zip(node.input, arrays, strict=True)))


def held(proto, arrays):
    """The model with its arrays as initializers, which the converter looks at."""
    kept = onnx.ModelProto()
    kept.CopyFrom(proto)
    for i, v in list(zip(proto.graph.input, arrays, strict=True))[1:]:
        kept.graph.initializer.append(numpy_helper.from_array(v, i.name))
    return kept


@pytest.mark.parametrize("name", CONVERTED)
def test_as_converted(name):
    opset, node, arrays = CONVERTED[name]
    proto = model(opset, node, arrays)
    for o in proto.graph.output:
        o.type.Clear()
    new = version_converter.convert_version(onnx.shape_inference.infer_shapes(held(proto, arrays)), 12)
    new.ir_version = 7
    close(ours(opset, node, arrays), run(new, node, arrays))


@pytest.mark.parametrize("name", SAME)
def test_as_opset_7(name):
    opset, node, arrays = SAME[name]
    close(ours(opset, node, arrays), run(model(7, node, arrays), node, arrays))


@pytest.mark.parametrize("name", OURS)
def test_as_numpy(name):
    opset, node, arrays, wanted = OURS[name]
    close(ours(opset, node, arrays)[:1], [wanted])


def run(proto, node, arrays):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    there = {i.name for i in session.get_inputs()}
    return session.run(None, {k: v for k, v in zip(node.input, arrays, strict=True) if k in there})


def close(got, wanted):
    for g, w in zip(got, wanted, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)

"""Quantised nodes give ONNX Runtime's integers; narrow dtypes those of onnx's helpers."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
import ml_dtypes  # noqa: E402
from onnx import helper as h  # noqa: E402
from runtimes import FUSED, agree, model  # noqa: E402

import ngraph as ng  # noqa: E402

draw = np.random.default_rng(3)


def f(*shape):
    return draw.normal(size=shape).astype("f4")


def whole(dtype, *shape, low=None, high=None):
    info = np.iinfo(dtype)
    return draw.integers(info.min if low is None else low, info.max + 1 if high is None else high, shape).astype(dtype)


def weights(*shape):
    """Weights for which ONNX Runtime's sums are exact also where it adds two products in 16 bits: on processors without VNNI."""
    return whole("i1", *shape, low=-64, high=65)


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2"])
def test_quantize_and_back(dtype):
    """For all, by axis, by block; what lies far outside lands at the ends."""
    x = f(3, 8, 5) * 40
    x[0, 0, :3] = 1e9, -1e9, 0.5
    scales = np.array([0.01, 0.5, 1, 2, 0.1, 3, 0.25, 0.7], "f4")
    zeros = whole(dtype, 8)
    for s, z, attrs in (
        (scales[:1].reshape(()), zeros[:1].reshape(()), {}),
        (scales, zeros, {"axis": 1}),
        (np.abs(f(3, 4, 5)) + 0.1, whole(dtype, 3, 4, 5), {"axis": 1, "block_size": 2}),
    ):
        nodes = [
            h.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **attrs),
            h.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **attrs),
        ]
        agree(nodes, {"x": x}, ["q", "y"], {"s": s, "z": z}, opset=21)


def test_blocks_of_a_vector():
    """The last block may be short."""
    s, z = np.array([0.5, 2], "f4"), np.array([1, 2], "u1")
    for x, block in ((f(6) * 9, 3), (f(5) * 9, 3), (f(2) * 9, 1)):
        nodes = [
            h.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=0, block_size=block),
            h.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=-1, block_size=block),
        ]
        agree(nodes, {"x": x}, ["q", "y"], {"s": s, "z": z}, opset=21)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "int4", "uint4"])
def test_weights_kept_in_narrow_dtypes(name):
    """Initializers, packed where the dtype is narrower than a byte, with a scale for each block."""
    d = np.dtype(getattr(ml_dtypes, name))
    w = (f(16, 6) * 3).astype("f4").clip(0 if name[0] == "u" else -7, 7).astype(d)
    s = np.abs(f(4, 6)) + 0.1
    nodes = [h.make_node("DequantizeLinear", ["w", "s"], ["v"], axis=0, block_size=4), h.make_node("MatMul", ["x", "v"], ["y"])]
    x = f(2, 16)
    proto = model(nodes, {"x": x}, ["y"], {"w": w, "s": s}, opset=23)
    wanted = x @ (w.astype("f4") * np.repeat(s, 4, 0))
    np.testing.assert_allclose(ng.onnx.load(proto)(x), wanted, rtol=1e-4, atol=1e-4)


def test_casts_to_float8_saturate_if_asked():
    x = np.array([1, 449, 1e9, -np.inf, np.nan, 0.3, -0.0], "f4")
    for saturate in (0, 1):
        node = h.make_node("Cast", ["x"], ["y"], to=onnx.TensorProto.FLOAT8E4M3FN, saturate=saturate)
        got = ng.onnx.load(model([node], {"x": x}, ["y"]))(x)
        with np.errstate(all="ignore"):
            wanted = (x.clip(-448, 448) if saturate else x).astype(ml_dtypes.float8_e4m3fn)
        assert got.tobytes() == wanted.tobytes()


def test_products_of_integers():
    a, b = whole("u1", 2, 3, 8), weights(8, 5)
    for za, zb in ((np.uint8(7), np.int8(3)), (np.uint8(0), whole("i1", 5))):
        agree(h.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["y"]), {"a": a, "b": b}, constants={"za": za, "zb": zb})
    x, w = whole("u1", 1, 4, 7, 6), whole("u1", 6, 2, 3, 3)
    node = h.make_node("ConvInteger", ["x", "w", "zx", "zw"], ["y"], pads=[1, 1, 0, 1], strides=[2, 1], group=2)
    agree(node, {"x": x, "w": w}, constants={"zx": np.uint8(120), "zw": np.uint8(9)})


@pytest.mark.parametrize("channels", [16, 64])
def test_convolutions_of_any_size_are_exact(channels):
    """Also where floats would be convolved by fewer products."""
    x, w = whole("u1", 1, channels, 28, 28), whole("i1", 64, channels, 3, 3)
    node = h.make_node("ConvInteger", ["x", "w", "zx"], ["y"], pads=[1] * 4)
    agree(node, {"x": x}, constants={"w": w, "zx": np.uint8(120)})
    agree(node, {"x": x, "w": w}, constants={"zx": np.uint8(120)})


def test_long_sums_are_exact():
    """Beyond what float32 holds, with all at the ends of their range, and with random weights; so with channels of a convolution."""
    for a, b in ((np.full((2, 3000), 255, "u1"), np.full((3000, 3), -128, "i1")), (whole("u1", 2, 5000), whole("i1", 5000, 3))):
        node, wanted = h.make_node("MatMulInteger", ["a", "b"], ["y"]), a.astype("i8") @ b.astype("i8")
        assert np.array_equal(ng.onnx.load(model([node], {"a": a}, ["y"], {"b": b}))(a), wanted)
        assert np.array_equal(ng.onnx.load(model([node], {"a": a, "b": b}, ["y"]))(a, b), wanted)
    x, w = np.full((1, 600, 4, 4), 255, "u1"), np.full((2, 600, 3, 3), 255, "u1")
    w[1] = whole("u1", 600, 3, 3)
    agree(h.make_node("ConvInteger", ["x", "w"], ["y"]), {"x": x}, constants={"w": w})
    agree(h.make_node("ConvInteger", ["x", "w"], ["y"], group=2), {"x": x}, constants={"w": w[:, :300]})


def test_qlinear_products():
    a, b = whole("u1", 3, 8), weights(8, 5)
    names = ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"]
    held = {"sa": np.float32(0.05), "za": np.uint8(130), "b": b, "zb": np.int8(-3), "sy": np.float32(0.9), "zy": np.uint8(100)}
    for sb in (np.float32(0.1), np.abs(f(5)) + 0.05):
        zb = np.zeros(np.shape(sb), "i1") + np.int8(-3)
        agree(h.make_node("QLinearMatMul", names, ["y"]), {"a": a}, constants={**held, "sb": sb, "zb": zb}, steps=1)
    x, w = whole("u1", 2, 4, 9, 9), weights(8, 4, 3, 3)
    names = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "bias"]
    held = {"sx": np.float32(0.02), "zx": np.uint8(128), "w": w, "sw": np.abs(f(8)) * 0.1 + 0.01, "zw": np.zeros(8, "i1")}
    held |= {"sy": np.float32(0.8), "zy": np.uint8(90), "bias": whole("i4", 8, low=-2000, high=2000)}
    agree(h.make_node("QLinearConv", names, ["y"], pads=[1] * 4), {"x": x}, constants=held, steps=1)


def test_dynamic_quantization():
    node = h.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
    for x in (f(4, 5), np.abs(f(4, 5)) + 1, -np.abs(f(3)), np.zeros((2, 2), "f4")):
        agree(node, {"x": x}, ["y", "s", "z"], steps=1)
    nodes = [
        h.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        h.make_node("MatMulIntegerToFloat", ["q", "w", "s", "sw", "z", "zw", "b"], ["y"], domain=FUSED),
    ]
    held = {"w": weights(8, 5), "sw": np.float32(0.02), "zw": np.int8(2), "b": f(5)}
    agree(nodes, {"x": f(3, 8)}, constants=held)
    node = h.make_node("DynamicQuantizeMatMul", ["x", "w", "sw", "zw", "b"], ["y"], domain=FUSED)
    agree(node, {"x": f(3, 8)}, constants=held)


class Calibration:
    """Some inputs, as ONNX Runtime's quantiser asks for them."""

    def __init__(self, *arrays):
        self.left = [{"x": a} for a in arrays]

    def get_next(self):
        return self.left.pop() if self.left else None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", ["dynamic", "QDQ", "QOperator"])
def test_a_network_by_onnx_runtimes_quantiser(how, tmp_path):
    """Convolutions, a residual, pooling and a product, quantised as users do it: the integers are the same in every layer."""
    tools = pytest.importorskip("onnxruntime.quantization")
    nodes = [
        h.make_node("Conv", ["x", "w0", "b0"], ["a"], pads=[1] * 4, strides=[2, 2]),
        h.make_node("Relu", ["a"], ["b"]),
        h.make_node("Conv", ["b", "w1", "b1"], ["c"], pads=[1] * 4),
        h.make_node("Add", ["b", "c"], ["d"]),
        h.make_node("Relu", ["d"], ["e"]),
        h.make_node("MaxPool", ["e"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        h.make_node("GlobalAveragePool", ["p"], ["g"]),
        h.make_node("Flatten", ["g"], ["f"]),
        h.make_node("MatMul", ["f", "w2"], ["y"]),
    ]
    held = {"w0": f(8, 3, 3, 3) * 0.2, "b0": f(8), "w1": f(8, 8, 3, 3) * 0.1, "b1": f(8), "w2": f(8, 5)}
    x = f(2, 3, 16, 16)
    before, after = str(tmp_path / "float.onnx"), str(tmp_path / "whole.onnx")
    proto = model(nodes, {"x": x}, ["y"], held, opset=17)
    proto.graph.output[0].CopyFrom(h.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 5]))
    onnx.save(proto, before)
    if how == "dynamic":
        tools.quantize_dynamic(before, after)
    else:
        form = tools.QuantFormat[how]
        tools.quantize_static(
            before, after, Calibration(x, x * 0.5), quant_format=form, per_channel=True, weight_type=tools.QuantType.QInt8
        )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    wanted = onnxruntime.InferenceSession(after, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    np.testing.assert_allclose(ng.onnx.load(after)(x), wanted, rtol=1e-5, atol=1e-6)

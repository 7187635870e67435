"""com.microsoft's fused ops give what ONNX Runtime gives."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import helper as h  # noqa: E402  needs what is looked for above
from runtimes import FUSED, agree, model  # noqa: E402  needs what is looked for above

import ngraph as ng  # noqa: E402  stands behind what is looked for above

draw = np.random.default_rng(5)


def f(*shape):
    return draw.normal(size=shape).astype("f4")


def whole(dtype, *shape, low=None, high=None):
    info = np.iinfo(dtype)
    return draw.integers(info.min if low is None else low, info.max + 1 if high is None else high, shape).astype(dtype)


def node(op, inputs, outputs=("y",), **attrs):
    return h.make_node(op, inputs.split(), list(outputs), domain=FUSED, **attrs)


def test_activations():
    x, b = f(2, 3, 8), f(8)
    agree(node("Gelu", "x"), {"x": x})
    agree(node("QuickGelu", "x", alpha=1.5), {"x": x})
    agree(node("FastGelu", "x"), {"x": x})
    agree(node("FastGelu", "x b"), {"x": x}, constants={"b": b})
    agree(node("BiasGelu", "x b"), {"x": x}, constants={"b": b})


@pytest.mark.parametrize("activation", ["Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid"])
def test_convolutions_and_products_with_activations(activation):
    numbers = {"LeakyRelu": [0.2], "Clip": [-0.5, 0.6], "HardSigmoid": [0.3, 0.4]}.get(activation, [])
    x, w, b, z = f(1, 4, 6, 6), f(6, 4, 3, 3), f(6), f(1, 6, 6, 6)
    attrs = {"pads": [1, 1, 1, 1], "activation": activation} | ({"activation_params": numbers} if numbers else {})
    agree(node("FusedConv", "x w b", **attrs), {"x": x}, constants={"w": w, "b": b})
    if activation == "Relu":
        agree(node("FusedConv", "x w b z", **attrs), {"x": x, "z": z}, constants={"w": w, "b": b})
    if activation not in ("Clip", "HardSigmoid"):
        attrs = {"activation": activation, "transB": 1, "alpha": 0.5} | ({"activation_alpha": 0.2} if numbers else {})
        agree(node("FusedGemm", "x w c", **attrs), {"x": f(3, 4)}, constants={"w": f(5, 4), "c": f(5)})


def test_fused_products():
    for ta, tb in ((0, 0), (1, 0), (0, 1), (1, 1)):
        a, b = f(2, 4, 3) if ta else f(2, 3, 4), f(2, 5, 4) if tb else f(2, 4, 5)
        agree(node("FusedMatMul", "a b", transA=ta, transB=tb, alpha=0.5), {"a": a, "b": b})
    agree(node("FusedMatMul", "a b", transBatchA=1), {"a": f(3, 2, 4), "b": f(2, 4, 5)})


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weights_of_a_few_bits(bits):
    n, k, block = 7, 40, 16
    blocks = -(-k // block)
    b, s = whole("u1", n, blocks, block * bits // 8), np.abs(f(n, blocks)) * 0.1
    zeros = whole("u1", n, -(-blocks * bits // 8))
    for held in ({"b": b, "s": s}, {"b": b, "s": s, "z": zeros}):
        agree(
            node("MatMulNBits", "a " + " ".join(held), bits=bits, block_size=block, N=n, K=k), {"a": f(2, 3, k)}, constants=held, atol=1e-4
        )


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_rows_of_weights_of_a_few_bits(bits):
    n, k, block = 6, 48, 16
    data, s, zeros = whole("u1", n, k * bits // 8), f(n, k // block), whole("u1", n, -(-k // block * bits // 8))
    for held in ({"d": data, "s": s}, {"d": data, "s": s, "z": zeros}):
        made = node("GatherBlockQuantized", "d i " + " ".join([*held][1:]), bits=bits, block_size=block)
        for places in (np.array([[1, -2], [5, 0]]), np.array(3)):
            agree(made, {"i": places}, constants=held)


def test_normalization():
    x, skip, gamma, beta, bias = f(2, 5, 8), f(2, 5, 8), f(8), f(8), f(8)
    held = {"gamma": gamma, "beta": beta, "bias": bias}
    agree(node("SkipLayerNormalization", "x s gamma beta", epsilon=1e-5), {"x": x, "s": skip}, constants=held)
    agree(node("SkipLayerNormalization", "x s gamma beta bias", ["y", "", "", "t"]), {"x": x, "s": skip}, ["y", "t"], held)
    agree(node("SkipLayerNormalization", "x s gamma beta bias"), {"x": x, "s": skip[0]}, constants=held)
    agree(node("SkipSimplifiedLayerNormalization", "x s gamma bias", ["y", "", "", "t"]), {"x": x, "s": skip}, ["y", "t"], held)
    agree(h.make_node("SimplifiedLayerNormalization", ["x", "gamma"], ["y"], epsilon=1e-6), {"x": x}, constants=held)


def test_embeddings():
    ids, segments = whole("i4", 2, 5, low=0, high=9), whole("i4", 2, 5, low=0, high=2)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "i4")
    held = {"w": f(9, 8), "p": f(6, 8), "s": f(2, 8), "g": f(8), "b": f(8)}
    agree(node("EmbedLayerNormalization", "i k w p s g b m", ["y", "c"]), {"i": ids, "k": segments, "m": mask}, ["y", "c"], held)
    made = h.make_node("EmbedLayerNormalization", ["i", "", "w", "p", "", "g", "b"], ["y", "c"], domain=FUSED)
    agree(made, {"i": ids}, ["y", "c"], held)


def test_quantised_ops():
    held = {"sx": np.float32(0.03), "zx": np.uint8(120), "sy": np.float32(0.05), "zy": np.uint8(100)}
    x, y = whole("u1", 2, 3, 8), whole("u1", 2, 3, 8)
    for op in ("QLinearAdd", "QLinearMul"):
        agree(node(op, "x sx zx y sy zy sx zx", ["z"]), {"x": x, "y": y}, ["z"], held, steps=1)
    for op, attrs in (("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.1})):
        agree(node(op, "x sx zx sy zy", ["z"], **attrs), {"x": x}, ["z"], held, steps=1)
    agree(node("QLinearConcat", "sy zy x sx zx y sy zy", ["z"], axis=1), {"x": x, "y": y}, ["z"], held, steps=1)
    image = whole("u1", 1, 3, 6, 6)
    agree(node("QLinearGlobalAveragePool", "x sx zx sy zy", ["z"]), {"x": image}, ["z"], held, steps=1)
    agree(node("QLinearAveragePool", "x sx zx sy zy", ["z"], kernel_shape=[2, 2], strides=[2, 2]), {"x": image}, ["z"], held, steps=1)
    agree(
        node("QLinearSoftmax", "x sx zx sp zp", ["z"], axis=-1, opset=13),
        {"x": x},
        ["z"],
        {**held, "sp": np.float32(1 / 256), "zp": np.uint8(0)},
        steps=1,
    )
    agree(node("QLinearWhere", "c x sx zx y sy zy sy zy", ["z"]), {"c": x > 100, "x": x, "y": y}, ["z"], held, steps=1)
    weights = {"w": whole("u1", 8, 5), "c": whole("i4", 5, low=-500, high=500), **held}
    agree(node("QGemm", "x sx zx w sy zy c sx zx", ["z"]), {"x": x[0]}, ["z"], weights, steps=1)
    agree(node("QGemm", "x sx zx w sy zy c", ["z"]), {"x": x[0]}, ["z"], weights)


def test_an_lstm_with_quantised_weights():
    """ONNX Runtime also rounds what the weights meet to 8 bits, so it is within a hundredth or so."""
    t, batch, inside, hidden = 4, 2, 6, 5
    held = {"w": whole("i1", 1, inside, 4 * hidden), "r": whole("i1", 1, hidden, 4 * hidden), "b": f(1, 8 * hidden) * 0.1}
    held |= {"sw": np.array([0.004], "f4"), "zw": np.array([0], "i1"), "sr": np.array([0.003], "f4"), "zr": np.array([0], "i1")}
    made = h.make_node(
        "DynamicQuantizeLSTM",
        ["x", "w", "r", "b", "", "", "", "", "sw", "zw", "sr", "zr"],
        ["y", "", "c"],
        hidden_size=hidden,
        domain=FUSED,
    )
    agree(made, {"x": f(t, batch, inside)}, ["y", "c"], held, atol=0.02)


def test_triangles_dims_and_inverses():
    agree(node("Trilu", "x k", upper=0), {"x": f(2, 3, 5)}, constants={"k": np.array(1)})
    agree(node("ExpandDims", "x k"), {"x": f(3, 4)}, constants={"k": np.array(-2, np.int32)})
    agree(node("Inverse", "x"), {"x": f(2, 3, 3) + 3 * np.eye(3, dtype="f4")})


def test_the_mean_of_a_quantised_window_beyond_the_padding():
    """It is that of what is there, as AveragePool of the standard; ONNX Runtime's op for integers divides by the whole window."""
    x, one, zero = np.array([[[10, 20, 40]]], np.uint8), np.float32(1), np.uint8(0)
    window = {"kernel_shape": [3], "strides": [2], "pads": [1, 0], "ceil_mode": 1, "count_include_pad": 1}
    held = {"s": np.array(one), "z": np.array(zero)}
    found = ng.onnx.load(model([node("QLinearAveragePool", "x s z s z", **window)], {"x": x}, ["y"], held)).run({"x": x})["y"]
    plain = agree(h.make_node("AveragePool", ["x"], ["y"], **window), {"x": x.astype("f4")}, opset=22)
    assert found.tolist() == plain[0].tolist() == [[[10, 30]]]


# ---- ops that ONNX has too, or lacks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["i2", "i8", "f4", "f8"])
def test_ranges(dtype):
    for start, limit, delta in ((-3, 8, 3), (5, -4, -2), (2, 2, 1), (3, 7, None)):
        held = {k: np.array(v, dtype) for k, v in (("s", start), ("l", limit), ("d", delta)) if v is not None}
        agree(node("Range", " ".join(held)), {}, constants=held)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances(metric):
    for rows, others, wide in ((4, 3, 5), (1, 6, 1), (2, 1, 3)):
        agree(node("CDist", "a b", metric=metric), {"a": f(rows, wide), "b": f(others, wide)})


def test_windows_and_moves():
    x = f(3, 4, 6)
    for dim, size, step in ((-1, 3, 2), (0, 2, 1), (1, 4, 1)):
        agree(node("UnfoldTensor", "x", dim=dim, size=size, step=step), {"x": x})
    agree(node("UnfoldTensor", "x", size=2), {"x": x})
    for mode in ("constant", "edge", "reflect"):
        agree(node("Pad", "x p v", mode=mode), {"x": x}, constants={"p": np.array([1, 0, -1, 0, 1, 2]), "v": np.float32(3)})
    agree(node("GatherND", "x i"), {"x": x, "i": np.array([[2, 0], [-1, 3]], np.int32)})


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grids(mode):
    for corners, padding in ((0, "zeros"), (1, "border"), (0, "reflection")):
        grid = draw.uniform(-1.3, 1.3, (2, 3, 5, 2)).astype("f4")
        agree(node("GridSample", "x g", mode=mode, padding_mode=padding, align_corners=corners), {"x": f(2, 3, 4, 6), "g": grid})


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_regions(mode):
    boxes, images = draw.uniform(-0.2, 1.2, (4, 4)).astype("f4"), np.array([1, 0, 1, 1], np.int32)
    for sizes in ((3, 5), (1, 2)):
        inputs = {"x": f(2, 3, 6, 5), "b": boxes, "i": images}
        agree(node("CropAndResize", "x b i s", mode=mode, extrapolation_value=2.5), inputs, constants={"s": np.array(sizes, np.int32)})


@pytest.mark.parametrize("kind", ["relu", "gelu", "silu", "identity", "swiglu"])
def test_mixtures_of_experts(kind):
    gates = 2 if kind == "swiglu" else 1
    held = {"w": f(5, 6 * gates, 4), "b": f(5, 6 * gates), "u": f(5, 4, 6), "c": f(5, 4)}
    for k, share, names, rows in ((1, 0, "w b u c", (7,)), (2, 1, "w b u c", (2, 3)), (5, 1, "w '' u", (1,))):
        more = {"swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 1.5} if gates == 2 else {}
        made = node("MoE", f"x p {names}", activation_type=kind, k=k, normalize_routing_weights=share, **more)
        made.input[:] = [i.strip("'") for i in made.input]
        inputs = {"x": f(*rows, 4), "p": f(int(np.prod(rows)), 5)}
        agree(made, inputs, constants={k: v for k, v in held.items() if k in names}, atol=3e-3 if kind == "gelu" else 1e-4)


def test_mixtures_that_runtimes_lack_are_refused():
    held = {"w": f(2, 6, 4), "u": f(2, 4, 6), "v": f(2, 6, 4)}
    made = node("MoE", "x p w - u - v")
    made.input[:] = [i.strip("-") for i in made.input]
    with pytest.raises(ng.errors.UnsupportedError, match="MoE with a third product"):
        ng.onnx.load(model([made], {"x": f(3, 4), "p": f(3, 2)}, ["y"], held)).run({"x": f(3, 4), "p": f(3, 2)})

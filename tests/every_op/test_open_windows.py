"""Windows over axes of open length: convolutions, pools and resizing, at lengths around tiles, against ONNX Runtime, between guard pages.

One compilation serves all lengths of a case: the first call's are 9, those of the second differ along the open axes.
"""

import numpy as np
import pytest
from fences import fenced
from onnx import TensorProto, helper

import ngraph as ng
import ngraph.transformers as ngt

ort = pytest.importorskip("onnxruntime")
AXES = {"batch": ("n",), "height": ("h",), "width": ("w",), "all": ("n", "h", "w")}
LENGTHS = (10, 1, 2, 3, 5, 7, 11, 13, 15, 16, 17, 22, 23, 31, 37, 64)
C = 20  # channels: a vector and a part of one


def conv(kernel, out=24, **attrs):
    groups = attrs.get("group", 1)
    return "Conv", [(out, C // groups, *kernel), (out,)], attrs


NODES = {
    "pointwise": [conv((1, 1))],
    "three": [conv((3, 3), pads=[1, 1, 1, 1])],
    "strided": [conv((3, 3), pads=[1, 1, 1, 1], strides=[2, 2])],
    "uneven": [conv((2, 3), pads=[0, 2, 1, 0], strides=[1, 2])],
    "dilated": [conv((3, 3), pads=[2, 2, 2, 2], dilations=[2, 2])],
    "depthwise": [conv((5, 5), out=C, group=C, pads=[2, 2, 2, 2])],
    "depthwise strided": [conv((3, 3), out=C, group=C, pads=[1, 1, 1, 1], strides=[2, 1])],
    "grouped": [conv((3, 3), group=4, pads=[1, 1, 1, 1])],
    "transposed": [("ConvTranspose", [(C, 6, 2, 2), (6,)], {"strides": [2, 2]})],
    "transposed, overlapping": [("ConvTranspose", [(C, 6, 3, 3), (6,)], {"strides": [2, 2], "pads": [1, 1, 1, 1]})],
    "max pool": [("MaxPool", [], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]})],
    "average pool": [("AveragePool", [], {"kernel_shape": [2, 2], "strides": [1, 2], "pads": [1, 1, 1, 1]})],
    "global pool": [("GlobalAveragePool", [], {}), conv((1, 1), out=C), ("Sigmoid", [], {})],
    "normalised": [conv((3, 3), out=C, pads=[1, 1, 1, 1]), ("BatchNormalization", [(C,)] * 4, {}), ("Relu", [], {}), conv((1, 1))],
    "separable": [conv((3, 3), out=C, group=C, pads=[1, 1, 1, 1]), ("HardSwish", [], {}), conv((1, 1), out=C), ("Clip6", [], {})],
    "twice": [conv((3, 3), out=C, pads=[1, 1, 1, 1]), ("Relu", [], {}), conv((3, 3), pads=[1, 1, 1, 1], strides=[2, 2])],
    "enlarged": [conv((3, 3), out=C, pads=[1, 1, 1, 1]), ("Resize", [], {"mode": "nearest"}), conv((3, 3), pads=[1, 1, 1, 1])],
}


def model_of(nodes):
    """A model of these nodes in sequence, over [n, C, h, w]."""
    draw, made, arrays, value = np.random.default_rng(0), [], [], "x"

    def array(name, content):
        arrays.append(helper.make_tensor(name, TensorProto.FLOAT, content.shape, content.astype("f").ravel()))
        return name

    for k, (op, shapes, attrs) in enumerate(nodes):
        scale = np.sqrt(max(np.prod(shapes[0][1:]), 1)) if shapes else 1
        given = [
            array(f"a{k}.{i}", np.abs(draw.normal(size=s)) + 0.5 if op == "BatchNormalization" else draw.normal(size=s) / scale)
            for i, s in enumerate(shapes)
        ]
        if op == "Resize":
            given = ["", array(f"a{k}.scales", np.array([1, 1, 2, 2]))]
        if op == "Clip6":
            op, given = "Clip", [array(f"a{k}.{i}", np.array(v)) for i, v in enumerate((0, 6))]
        made.append(helper.make_node(op, [value, *given], [f"v{k}"], **attrs))
        value = f"v{k}"
    value_info = helper.make_tensor_value_info
    graph = helper.make_graph(made, "windows", [value_info("x", 1, ["n", C, "h", "w"])], [value_info(value, 1, None)], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("open_", AXES, ids=str)
@pytest.mark.parametrize("name", NODES)
def test_open_windows(name, open_):
    made = model_of(NODES[name])
    peer = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    draw = np.random.default_rng(1)
    with fenced(), ngt.allocate_transformer("cpu") as t:
        model = ng.onnx.load(made, transformer=t)
        for n in (9, *LENGTHS):
            at = {"n": 2, "h": 9, "w": 9} | ({} if n == 9 else {a: min(n, 5) if a == "n" else n for a in AXES[open_]})
            x = draw.standard_normal((at["n"], C, at["h"], at["w"])).astype("f")
            try:
                (expected,) = peer.run(None, {"x": x})
            except Exception:
                with pytest.raises(ng.NgraphError):
                    model(x)
                continue
            got = model(x)
            assert got.shape == expected.shape
            assert np.allclose(got, expected, rtol=2e-4, atol=2e-4), (n, np.abs(got - expected).max())
        ((call, _),) = model.reader.computations(model.about.bound({"x": x}))
        assert 1 <= len(call.native.codes) <= 2 and any(None in key for key in call.native.codes)

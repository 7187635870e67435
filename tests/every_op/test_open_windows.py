"""Windows over axes of open length: convolutions, pools and resizing, at lengths around tiles, against ONNX Runtime, between guard pages.

One compilation serves all lengths of a case.
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
    "three, far smaller": [
        conv((1, 1), out=96),
        ("MaxPool", [], {"kernel_shape": [4, 4], "strides": [4, 4], "ceil_mode": 1}),
        ("Conv", [(24, 96, 3, 3), (24,)], {"pads": [1, 1, 1, 1]}),
    ],
    "strided": [conv((3, 3), pads=[1, 1, 1, 1], strides=[2, 2])],
    "uneven": [conv((2, 3), pads=[0, 2, 1, 0], strides=[1, 2])],
    "dilated": [conv((3, 3), pads=[2, 2, 2, 2], dilations=[2, 2])],
    "depthwise": [conv((5, 5), out=C, group=C, pads=[2, 2, 2, 2])],
    "depthwise strided": [conv((3, 3), out=C, group=C, pads=[1, 1, 1, 1], strides=[2, 1])],
    "grouped": [conv((3, 3), group=4, pads=[1, 1, 1, 1])],
    "transposed": [("ConvTranspose", [(C, 6, 2, 2), (6,)], {"strides": [2, 2]})],
    "transposed, overlapping": [("ConvTranspose", [(C, 6, 3, 3), (6,)], {"strides": [2, 2], "pads": [1, 1, 1, 1]})],
    "transposed by 3": [("ConvTranspose", [(C, 6, 2, 4), (6,)], {"strides": [3, 3]})],
    "transposed, with rows behind": [("ConvTranspose", [(C, 6, 3, 3)], {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]})],
    "transposed, unevenly": [("ConvTranspose", [(C, 6, 5, 2)], {"strides": [3, 2], "pads": [2, 0, 1, 1], "output_padding": [2, 0]})],
    "transposed, dilated": [("ConvTranspose", [(C, 6, 3, 3)], {"strides": [2, 3], "dilations": [2, 2], "pads": [1, 0, 0, 1]})],
    "transposed, depthwise": [("ConvTranspose", [(C, 1, 4, 4)], {"strides": [2, 2], "group": C, "pads": [1] * 4}), ("Relu", [], {})],
    "transposed, twice": [
        ("ConvTranspose", [(C, C, 2, 2), (C,)], {"strides": [2, 2]}),
        ("Relu", [], {}),
        ("ConvTranspose", [(C, 1, 2, 2), (1,)], {"strides": [2, 2]}),
        ("Sigmoid", [], {}),
    ],
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
        assert len(call.native.codes) == 1 and None in next(iter(call.native.codes))


@pytest.mark.parametrize(("stride", "pad", "kernel"), [(2, 1, 3), (3, 0, 2), (2, (1, 2), 4), (3, 2, 5), ((2, 1), 1, 3)], ids=str)
@pytest.mark.parametrize("open_", ["hw", "nhw"])
def test_gradients_of_strided_convolutions(open_, stride, pad, kernel):
    """A small network trained on pictures of any size: the results and all gradients are those of PyTorch."""
    torch = pytest.importorskip("torch")
    draw = np.random.default_rng(2)
    n = ng.make_axis(None if "n" in open_ else 2, name="N")
    c, h, w = ng.make_axis(3, name="C"), ng.make_axis(name="H"), ng.make_axis(name="W")
    k, m, r, s = ng.make_axis(5, name="K"), ng.make_axis(4, name="M"), ng.make_axis(kernel, name="R"), ng.make_axis(kernel, name="S")
    first, second = draw.standard_normal((5, 3, kernel, kernel)).astype("f"), draw.standard_normal((4, 5, kernel, kernel)).astype("f")
    x, f, g = ng.placeholder([n, c, h, w]), ng.placeholder([k, c, r, s]), ng.placeholder([m, k, r, s])
    strides, pads = (dict(zip((h, w), v if isinstance(v, tuple) else (v, v), strict=True)) for v in (stride, pad))
    y = ng.tanh(ng.conv(x, f, {h: r, w: s}, stride=strides, padding=pads))
    p, q = (y.axes[a.name] for a in (h, w))
    z = ng.conv(y, g, {p: r, q: s}, padding=2, stride=2)
    loss = ng.sum(z * z, out_axes=())
    with fenced(), ngt.allocate_transformer("cpu") as t:
        call = t.computation([loss, *[ng.deriv(loss, v) for v in (x, f, g)]], x, f, g)
        for sides in ((9, 11), (7, 7), (8, 6), (16, 17), (13, 31), (33, 10), (24, 19)):
            value = draw.standard_normal((2, 3, *sides)).astype("f")
            given = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (value, first, second)]
            conv2d = torch.nn.functional.conv2d
            inside = torch.tanh(conv2d(given[0], given[1], stride=tuple(strides.values()), padding=tuple(pads.values())))
            expected = (conv2d(inside, given[2], padding=2, stride=2) ** 2).sum()
            expected.backward()
            for got, wanted in zip(call(value, first, second), [expected.detach(), *[v.grad for v in given]], strict=True):
                assert np.allclose(got, wanted.numpy(), rtol=2e-3, atol=2e-3 * float(wanted.abs().max())), sides
        assert list(call.native.codes) == [(None,) * len(next(iter(call.native.codes)))]


def test_short_pictures_are_work_for_all_cores_in_winograds_form():
    """A convolution over places a quarter as wide: the rows of a tile lie along the width and the batch, so one row of tiles is enough."""
    model = ng.onnx.load(model_of(NODES["three, far smaller"]))
    x = np.zeros((1, C, 64, 64), "f")
    model(x)
    ((call, _),) = model.reader.computations(model.about.bound({"x": x}))
    found = next(iter(call.native.codes.values())).plan
    tiled = [{str(a): b for a, b in k.loops} for k in found.kernels if any(str(a).startswith("tile0") for a, _ in k.loops)]
    assert len(tiled) == 1 and all(b == 1 for loops in tiled for a, b in loops.items() if a.startswith("tile0")), tiled

"""Imported models, exported again, give the numbers of the file that they came from; `ngraph convert` does it from the command line."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")
import test_families as families  # noqa: E402
from exported import exported, kinds, session  # noqa: E402
from made import B, F, I, graph, h, model  # noqa: E402
from runtimes import FUSED  # noqa: E402

import ngraph as ng  # noqa: E402
from ngraph.tools.main import main  # noqa: E402

random = np.random.default_rng(5)


def there_and_back(content, *feeds, shapes=None, opset=20, rtol=1e-4, atol=1e-5):
    """The model exported again, after ONNX Runtime gave for it what it gave for the first one."""
    content = content if isinstance(content, bytes) else content.SerializeToString()
    made = exported(ng.onnx.load(content), opset, shapes=shapes)
    first, second = session(onnx.load_from_string(content)), session(made)
    assert [i.name for i in first.get_inputs()] == [i.name for i in second.get_inputs()]
    assert [o.name for o in first.get_outputs()] == [o.name for o in second.get_outputs()]
    for feed in feeds:
        for got, want in zip(second.run(None, feed), first.run(None, feed), strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(got, want, rtol, atol)
    return made


def test_pictures():
    """With ceil-mode pooling, resizing and a transposed convolution."""
    content = families.exported(families.seeded(families.Picture), (torch.zeros(2, 3, 20, 24),), {0: "n", 2: "h", 3: "w"})
    feeds = [{"x0": torch.randn(n, 3, a, b).numpy()} for n, a, b in ((2, 20, 24), (1, 20, 24))]
    there_and_back(content, *feeds, *({"x0": torch.randn(1, 3, a, b).numpy()} for a, b in ((12, 16), (28, 20))))
    made = there_and_back(content, *feeds, shapes={"x0": (None, 3, 20, 24)})
    found = kinds(made)
    assert (found["Conv"], found["ConvTranspose"], found["MaxPool"]) == (2, 1, 1), found
    (given,) = made.graph.input
    assert [d.dim_param or d.dim_value for d in given.type.tensor_type.shape.dim] == ["n", 3, 20, 24]


WINDOWS = [
    {"kernel_shape": [2, 1, 2], "strides": [2, 3, 1], "ceil_mode": 1},
    {"kernel_shape": [2, 1, 2], "strides": [2, 3, 1], "ceil_mode": 1, "pads": [1, 0, 0, 1, 0, 0]},
    {"kernel_shape": [2, 3, 2], "strides": [2, 2, 1], "auto_pad": "SAME_UPPER"},
]


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("how", WINDOWS)
def test_windows_over_open_lengths_that_strides_do_not_divide(op, how):
    node = h.make_node(op, ["x"], ["y"], **how)
    content = model([node], [("x", F, ["n", "c", "d", "h", "w"])], [("y", F, None)])
    there_and_back(content, *({"x": random.normal(size=s).astype("f4")} for s in ((1, 2, 7, 8, 5), (2, 3, 4, 9, 2), (1, 1, 6, 7, 3))))


END = 2**63 - 1


@pytest.mark.parametrize(
    "first, last, step",
    [(2, 9, 1), (1, 9, 3), (-6, 5, 2), (0, -3, 1), (-8, END, 1), (-1, 1, 1), (5, -END, -1), (1, 0, -1), (7, 2, -2), (-2, -7, -1)],
)
def test_slices_with_known_ends_are_right_for_every_length(first, last, step):
    ends = {name: np.array([value]) for name, value in (("first", first), ("last", last), ("dim", 1), ("step", step))}
    node = h.make_node("Slice", ["x", *ends], ["y"])
    content = model([node], [("x", F, ["h", "w"])], [("y", F, None)], ends)
    there_and_back(content, *({"x": random.normal(size=(3, n)).astype("f4")} for n in (1, 2, 3, 5, 6, 8, 9, 12)))


def test_a_graph_for_some_lengths_alone_is_refused():
    """What 0.7 times a length is depends on its rounding in float32."""
    node = h.make_node("Resize", ["x", "", "by"], ["y"], mode="linear")
    content = model([node], [("x", F, [1, 2, "h", 9])], [("y", F, None)], {"by": np.array([1, 1, 0.7, 1], np.float32)})
    with pytest.raises(ng.errors.UnsupportedError, match="another graph for other lengths of h of x"):
        exported(ng.onnx.load(content.SerializeToString()))


@pytest.mark.parametrize("op, length", [("Less", 4), ("Less", 7), ("Greater", 200)])
def test_a_graph_that_is_another_one_for_some_batches_is_refused(op, length):
    ways = [h.make_graph([h.make_node(name, ["x"], ["z"])], "way", [], [h.make_tensor_value_info("z", F, None)]) for name in ("Neg", "Abs")]
    nodes = [
        h.make_node("Shape", ["x"], ["shape"], start=0, end=1),
        h.make_node("Squeeze", ["shape"], ["n"]),
        h.make_node(op, ["n", "length"], ["c"]),
        h.make_node("If", ["c"], ["y"], then_branch=ways[0], else_branch=ways[1]),
    ]
    content = model(nodes, [("x", F, ["n", 2])], [("y", F, None)], {"length": np.array(length)})
    with pytest.raises(ng.errors.UnsupportedError, match="another graph for other lengths of n of x"):
        exported(ng.onnx.load(content.SerializeToString()))


def test_words():
    """A transformer's layer and recurrent layers in both directions, as scans."""
    content = families.exported(families.seeded(families.Words), (torch.zeros(2, 7, dtype=torch.int64),), {0: "n"})
    made = there_and_back(content, *({"x0": random.integers(0, 50, (n, 7))} for n in (2, 3)))
    found = kinds(made)
    assert found["Scan"] >= 3 and found["LayerNormalization"] == 2 and found["Softmax"] == 1, found


class Chosen(torch.nn.Module):
    def forward(self, x):
        return families.Choice()(x)[:-1]


def test_choices():
    """Sorting, indices, masks, running sums."""
    content = families.exported(Chosen(), (torch.rand(4, 9),), {0: "n"})
    made = there_and_back(content, *({"x0": torch.rand(n, 9).numpy()} for n in (4, 6)))
    assert kinds(made)["TopK"] == 2 and kinds(made)["CumSum"] == 1


def test_loops_and_branches():
    body = graph(
        [
            h.make_node("Mul", ["s", "factor"], ["next"]),
            h.make_node("ReduceMax", ["next"], ["m"], keepdims=0),
            h.make_node("Greater", ["m", "limit"], ["on"]),
        ],
        [("i", I, []), ("c", B, []), ("s", F, [9, 9])],
        [("on", B, []), ("next", F, [9, 9])],
    )
    branches = [graph([h.make_node(op, ["end"], ["z"])], [], [("z", F, [9, 9])]) for op in ("Exp", "Neg")]
    nodes = [
        h.make_node("Loop", ["", "true", "x"], ["end"], body=body),
        h.make_node("ReduceSum", ["end"], ["sum"], keepdims=0),
        h.make_node("Greater", ["sum", "limit"], ["high"]),
        h.make_node("If", ["high"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    constants = {"true": np.array(True), "factor": np.float32(0.9), "limit": np.float32(0.1)}
    whole = model(nodes, [("x", F, [9, 9])], [("y", F, None)], constants)
    made = there_and_back(whole, *({"x": random.random((9, 9), np.float32) * k} for k in (1, 100, -1)))
    assert {"Loop", "If"} <= set(kinds(made))


def test_quantised():
    """Integers with scales, in QDQ form and as operators: the same steps."""
    f = lambda *shape: random.normal(size=shape).astype(np.float32)
    held = {
        "s": np.float32(0.05),
        "z": np.uint8(120),
        "w": random.integers(-64, 64, (8, 5)).astype(np.int8),  # ONNX Runtime adds two products in 16 bits where there is no VNNI
        "sw": np.abs(f(5)) * 0.02,
        "zw": np.zeros(5, np.int8),
    }
    nodes = [
        h.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        h.make_node("DequantizeLinear", ["q", "s", "z"], ["a"]),
        h.make_node("DequantizeLinear", ["w", "sw", "zw"], ["b"], axis=1),
        h.make_node("MatMul", ["a", "b"], ["c"]),
        h.make_node("QuantizeLinear", ["c", "s", "z"], ["y"]),
        h.make_node("MatMulInteger", ["q", "w", "z"], ["i"]),
    ]
    whole = model(nodes, [("x", F, ["n", 8])], [("y", onnx.TensorProto.UINT8, None), ("i", onnx.TensorProto.INT32, None)], held)
    made = there_and_back(whole, *({"x": f(n, 8) * 5} for n in (1, 4)), atol=1)
    assert (kinds(made)["QuantizeLinear"], kinds(made)["DequantizeLinear"]) == (2, 2)


def test_fused_ops_of_com_microsoft():
    """Ops of another domain go out as ONNX's own."""
    w = random.normal(size=(8,)).astype(np.float32)
    nodes = [
        h.make_node("SkipLayerNormalization", ["x", "k", "g", "b"], ["n"], domain=FUSED, epsilon=1e-5),
        h.make_node("BiasGelu", ["n", "b"], ["y"], domain=FUSED),
    ]
    whole = model(nodes, [("x", F, ["n", 4, 8]), ("k", F, ["n", 4, 8])], [("y", F, None)], {"g": w, "b": w * 0.5})
    whole.opset_import.append(h.make_opsetid(FUSED, 1))
    feed = {name: random.normal(size=(2, 4, 8)).astype(np.float32) for name in "xk"}
    made = there_and_back(whole, feed)
    assert kinds(made)["LayerNormalization"] == 1 and kinds(made)["Gelu"] == 1
    assert [o.domain for o in made.opset_import] == [""]


def test_trained_values_go_out():
    """Initializers that became variables keep their names, and have the values that training gave them."""
    nodes = [h.make_node("MatMul", ["x", "w"], ["a"]), h.make_node("Relu", ["a"], ["y"])]
    whole = model(nodes, [("x", F, ["n", 3])], [("y", F, None)], {"w": np.ones((3, 2), np.float32)})
    m = ng.onnx.load(whole, trainable="*")
    inputs, outputs, variables = m.graph({"x": (2, 3)})
    train = m.transformer.computation(ng.assign(variables["w"], variables["w"] * 0.5), inputs["x"])
    train(np.ones((2, 3), np.float32))
    made = exported(m)
    (weights,) = made.graph.initializer
    assert weights.name == "w" and onnx.numpy_helper.to_array(weights).tolist() == [[0.5, 0.5]] * 3
    assert session(made).run(None, {"x": np.ones((1, 3), np.float32)})[0].tolist() == [[1.5, 1.5]]
    assert outputs.keys() == {"y"}


@pytest.mark.parametrize("op", ["Unique", "NonZero"])
def test_what_is_no_one_graph_is_refused(op, tmp_path):
    """Steps in Python, and values that decide how long things are."""
    whole = model([h.make_node(op, ["x"], ["y"])], [("x", F, ["n"])], [("y", F if op == "Unique" else I, None)])
    with pytest.raises(ng.errors.UnsupportedError, match="cannot be exported"):
        ng.onnx.save(ng.onnx.load(whole), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_values_that_decide():
    """An input that says along which dim to sum: refused, or taken as it is given."""
    nodes = [h.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)]
    m = ng.onnx.load(model(nodes, [("x", F, ["n", 3]), ("axes", I, [1])], [("y", F, None)]))
    with pytest.raises(ng.errors.UnsupportedError, match="depends on values"):
        exported(m)
    made = exported(m, shapes={"axes": np.array([1])})
    x = random.random((4, 3), np.float32)
    np.testing.assert_allclose(session(made).run(None, {"x": x, "axes": np.array([1])})[0], x.sum(1), rtol=1e-5)


# ---- ngraph convert -----------------------------------------------------------------------------------------------------


@pytest.fixture
def before(tmp_path):
    nodes = [h.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4), h.make_node("Relu", ["a"], ["y"])]
    whole = model(nodes, [("x", F, ["n", 2, "h", "w_"])], [("y", F, None)], {"w": random.random((4, 2, 3, 3), np.float32)}, opset=12)
    onnx.save(whole, tmp_path / "a.onnx")
    return tmp_path / "a.onnx"


def with_outputs(made, names):
    """The model with values of its inside as outputs, too."""
    made = onnx.ModelProto.FromString(made.SerializeToString())
    have = {o.name for o in made.graph.output}
    made.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in have)
    return made


def test_names_stay():
    """Values, initializers and nodes are called as before, and a value of a name has the numbers that it had; one folded away has none."""
    r = np.random.default_rng(3)
    weights = {"w": (4, 3, 3, 3), "s": (4,), "b": (4,), "m": (4,), "v": (4,), "lone": (5, 4, 1, 1), "dense": (80, 6), "bias": (6,)}
    constants = {k: r.random(shape, np.float32) for k, shape in weights.items()}
    constants["half"] = np.float32(0.5)
    nodes = [
        h.make_node("Conv", ["x", "w"], ["folded"], "conv"),
        h.make_node("BatchNormalization", ["folded", "s", "b", "m", "v"], ["normed"], "batch"),
        h.make_node("Tanh", ["normed"], ["active"], "lone"),  # a node that is called as an initializer
        h.make_node("Conv", ["active", "lone"], ["second"], "conv 2"),
        h.make_node("Flatten", ["second"], ["flat"], "flatten"),
        h.make_node("MatMul", ["flat", "dense"], ["product"], "hidden"),
        h.make_node("Add", ["product", "bias"], ["hidden"], "product"),  # names of nodes are not names of values
        h.make_node("Split", ["hidden"], ["left", "right"], "split", axis=1, num_outputs=2),
        h.make_node("Mul", ["left", "half"], ["halved"], "halve"),
        h.make_node("Softmax", ["halved"], ["shares"], "softmax", axis=1),
        h.make_node("Add", ["shares", "right"], ["y"], "join"),
    ]
    before = model(nodes, [("x", F, ["n", 3, 6, 6])], [("y", F, ["n", 3])], constants)
    made = exported(ng.onnx.load(before.SerializeToString()))
    values = {o for n in made.graph.node for o in n.output}
    kept = [o for n in nodes for o in n.output if o != "folded"]
    assert set(kept) <= values and "folded" not in values
    assert {"w", "lone", "dense", "bias", "half"} <= {i.name for i in made.graph.initializer}
    names = [n.name for n in made.graph.node]
    assert {n.name for n in nodes} - {"batch", "conv"} <= set(names) and len(set(names)) == len(names)
    feed = {"x": r.random((2, 3, 6, 6), np.float32)}
    for name, got, want in zip(kept, *[session(with_outputs(m, kept)).run(kept, feed) for m in (made, before)], strict=True):
        np.testing.assert_allclose(got, want, 1e-4, 1e-5, err_msg=name, strict=True)


def test_a_name_stays_where_its_value_has_its_dims():
    """Dims of length 1 that the product and the pooled value do without: these values have other names, those with all dims have theirs."""
    r = np.random.default_rng(0)
    constants = {
        "kernel": r.random((4, 3, 3, 3), np.float32),
        "shape": np.array([4, 1, 2, 8], np.int64),
        "matrix": r.random((4, 5), np.float32),
        "added": r.random(5, np.float32),
    }
    nodes = [
        h.make_node("Conv", ["x", "kernel"], ["images"], pads=[1, 1, 1, 1]),
        h.make_node("Reshape", ["images", "shape"], ["halves"]),
        h.make_node("Transpose", ["halves"], ["turned"], perm=[2, 3, 1, 0]),
        h.make_node("ReduceMean", ["turned"], ["mean"], axes=[0, 1], keepdims=1),
        h.make_node("Flatten", ["mean"], ["flat"], axis=3),
        h.make_node("MatMul", ["flat", "matrix"], ["product"]),
        h.make_node("Add", ["product", "added"], ["sum"]),
        h.make_node("Tanh", ["sum"], ["y"]),
    ]
    before = model(nodes, [("x", F, [1, 3, 4, 4])], [("y", F, [1, 5])], constants, 17)
    made = exported(ng.onnx.load(before.SerializeToString()))
    values = [o for n in made.graph.node for o in n.output]
    kept = [o for n in nodes for o in n.output if o in values]
    assert "images" in kept and len(set(values)) == len(values)
    feed = {"x": r.random((1, 3, 4, 4), np.float32)}
    for name, got, want in zip(kept, *[session(with_outputs(m, kept)).run(kept, feed) for m in (made, before)], strict=True):
        np.testing.assert_allclose(got, want, 1e-4, 1e-5, err_msg=name, strict=True)


def test_a_value_that_is_computed_before_it_is_broadcast_has_another_name():
    """A product with equal columns is computed once for all of them, so no value of the export is called after it."""
    r = np.random.default_rng(0)
    constants = {"equal": np.full((3, 4), 0.5, np.float32), "other": r.random((4, 2), np.float32)}
    nodes = [
        h.make_node("MatMul", ["x", "equal"], ["product"], "product"),
        h.make_node("Softmax", ["product"], ["shares"], "shares", axis=1),
        h.make_node("MatMul", ["shares", "other"], ["y"], "last"),
    ]
    before = model(nodes, [("x", F, ["n", 3])], [("y", F, ["n", 2])], constants)
    made = exported(ng.onnx.load(before.SerializeToString()))
    values = [o for n in made.graph.node for o in n.output]
    kept = [o for n in nodes for o in n.output if o in values]
    feed = {"x": r.random((5, 3), np.float32)}
    assert "y" in kept and len(set(values)) == len(values)
    for name, got, want in zip(kept, *[session(with_outputs(m, kept)).run(kept, feed) for m in (made, before)], strict=True):
        np.testing.assert_allclose(got, want, 1e-4, 1e-5, err_msg=name, strict=True)


def test_an_input_that_is_a_result_stays_one():
    before = model([h.make_node("Neg", ["x"], ["y"])], [("x", F, ["n"])], [("y", F, ["n"]), ("x", F, ["n"])], {})
    made = exported(ng.onnx.load(before.SerializeToString()))
    assert [o.name for o in made.graph.output] == ["y", "x"] and kinds(made) == {"Neg": 1}
    y, x = session(made).run(None, {"x": np.ones(2, np.float32)})
    assert y.tolist() == [-1, -1] and x.tolist() == [1, 1]


def test_names_of_other_formats_stay(tmp_path):
    """Of a program of PyTorch: the names of its nodes and parameters."""
    module = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
    program = torch.export.export(module, (torch.zeros(2, 4),))
    torch.export.save(program, tmp_path / "a.pt2")
    assert main(["convert", str(tmp_path / "a.pt2"), str(tmp_path / "a.onnx")]) == 0
    made = onnx.load(tmp_path / "a.onnx").graph
    assert [list(n.output) for n in made.node] == [["linear"], ["tanh"], [made.output[0].name]]
    assert [i.name for i in made.initializer] == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_convert(before, capsys):
    """Another opset, lengths that are fixed and lengths that stay open, arrays beside the file."""
    after = before.with_name("b.onnx")
    assert main(["convert", str(before), str(after), "--opset", "17", "--shape", "x:?,2,8,6", "--external", "64"]) == 0
    assert "opset 17, 2 nodes" in capsys.readouterr().out
    made = onnx.load(after)
    assert made.opset_import[0].version == 17 and after.with_name("b.onnx.data").exists()
    assert [d.dim_param or d.dim_value for d in made.graph.input[0].type.tensor_type.shape.dim] == ["n", 2, 8, 6]
    x = random.random((3, 2, 8, 6), np.float32)
    np.testing.assert_allclose(ng.onnx.load(after)(x), ng.onnx.load(before)(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (["b.onnx", "--opset", "12"], 1, "take one from 13"),
        (["nowhere/b.onnx"], 1, "nowhere/b.onnx cannot be written"),
        (["b.onnx", "--shape", "q:1,2"], 1, "there is no input q"),
        (["b.onnx", "--shape", "x"], 2, "is not a shape"),
        (["b.onnx", "--shape", "x:1,3,8,8"], 1, "has length 2, and 3 was given"),
        (["b.onnx", "--shape", "x:"], 1, "input x has the dims [n, 2, "),
        (["b.onnx", "--shape", "x:1,2,8,8,8"], 1, "and the shape (1, 2, 8, 8, 8) was given"),
    ],
)
def test_convert_says_what_is_wrong(before, capsys, arguments, code, words):
    arguments = [str(before.parent / arguments[0]), *arguments[1:]]
    assert main(["convert", str(before), *arguments]) == code
    said = capsys.readouterr().err
    assert words in said and "Traceback" not in said
    assert sorted(p.name for p in before.parent.iterdir()) == ["a.onnx"]

"""ONNX models read and run: lengths that stay open, stages, refusals."""

import copy
import itertools
import os
import pickle

import numpy as np
import pytest

from ngraph.tools.ops import with_table

onnx = pytest.importorskip("onnx")
from onnx import helper as h  # noqa: E402

import ngraph as ng  # noqa: E402
from ngraph.frontends.onnx import support  # noqa: E402


def model(nodes, inputs, outputs, initializers=(), opset=18, **more):
    """A ModelProto; inputs and outputs are (name, type, shape)."""
    values = [[h.make_tensor_value_info(*v) for v in vs] for vs in (inputs, outputs)]
    constants = [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in dict(initializers).items()]
    graph = h.make_graph(nodes, "made", *values, constants)
    return h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], **more)


F, INT = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def flattening():
    """x + y, all but the first dim joined by a chain of shape ops."""
    nodes = [
        h.make_node("Add", ["x", "y"], ["a"]),
        h.make_node("Shape", ["a"], ["s"]),
        h.make_node("Gather", ["s", "zero"], ["n"]),
        h.make_node("Unsqueeze", ["n", "zeros"], ["one"]),
        h.make_node("Concat", ["one", "rest"], ["shape"], axis=0),
        h.make_node("Reshape", ["a", "shape"], ["r"]),
    ]
    return model(
        nodes, [("x", F, ["N", 3, "W"]), ("y", F, ["W"])], [("r", F, None)], {"zero": np.int64(0), "zeros": [0], "rest": [-1]}.items()
    )


def test_lengths_stay_open_and_one_reading_serves_them_all():
    m = ng.onnx.load(flattening())
    for n, w in ((2, 5), (3, 7), (4, 1), (1, 2)):
        x, y = np.random.rand(n, 3, w).astype("f4"), np.arange(w, dtype="f4")
        assert np.array_equal(m(x, y), (x + y).reshape(n, -1))
    assert m.readings == 1


def test_steps_and_diagonals_that_are_lengths_stay_open():
    nodes = [
        h.make_node("Shape", ["x"], ["t"], start=1),
        h.make_node("Shape", ["x"], ["n"], start=0, end=1),
        h.make_node("Add", ["t", "one"], ["next"]),
        h.make_node("Neg", ["t"], ["back"]),
        h.make_node("Sub", ["t", "n"], ["right"]),
        h.make_node("Reshape", ["x", "all"], ["flat"]),
        h.make_node("Slice", ["flat", "zero", "far", "zero", "next"], ["diagonal"]),
        h.make_node("Slice", ["flat", "last", "least", "zero", "back"], ["column"]),
        h.make_node("Trilu", ["x", "right"], ["above"], upper=1),
        *[h.make_node("Squeeze", [v], [f"{v}_"]) for v in ("n", "t", "back")],
        h.make_node("Range", ["first", "n_", "t_"], ["places"]),
        h.make_node("Range", ["n_", "first", "back_"], ["backwards"]),
    ]
    held = {"one": [1], "zero": [0], "all": [-1], "far": [2**62], "last": [-1], "least": [-(2**62)], "first": np.int64(0)}
    results = ["diagonal", "column", "above", "places", "backwards"]
    m = ng.onnx.load(model(nodes, [("x", F, ["N", "T"])], [(r, F if k < 3 else INT, None) for k, r in enumerate(results)], held))
    for n, t in ((2, 5), (3, 7), (17, 3), (5, 5)):
        x = np.random.rand(n, t).astype("f4")
        wanted = x.ravel()[:: t + 1], x.ravel()[::-t], np.triu(x, t - n), np.arange(0, n, t), np.arange(n, 0, -t)
        for got, want in zip(m(x), wanted, strict=True):
            np.testing.assert_array_equal(got, want)
    assert m.readings == 1


def test_repeats_are_made_of_lengths_by_onehot():
    """As PyTorch writes x.repeat_interleave(n, 0) for an open n."""
    nodes = [
        h.make_node("Shape", ["x"], ["n"], start=0, end=1),
        h.make_node("Concat", ["one", "n"], ["pair"], axis=0),
        h.make_node("OneHot", ["one", "three", "pair"], ["rows"]),
        h.make_node("Reshape", ["rows", "all"], ["times"]),
        h.make_node("Unsqueeze", ["x", "one"], ["apart"]),
        h.make_node("Tile", ["apart", "times"], ["tiled"]),
        h.make_node("Reshape", ["tiled", "flat"], ["y"]),
    ]
    m = ng.onnx.load(model(nodes, [("x", F, ["N", 2])], [("y", F, None)], {"one": [1], "three": [3], "all": [-1], "flat": [-1, 2]}))
    for n in (3, 5, 17):
        x = np.random.rand(n, 2).astype("f4")
        np.testing.assert_array_equal(m(x), x.repeat(n, 0))
    assert m.readings == 1


def test_inputs_and_outputs_have_names():
    m = ng.onnx.load(flattening())
    assert [str(p) for p in m.inputs] == ["x: tensor(float)[N, 3, W]", "y: tensor(float)[W]"]
    x, y = np.ones((1, 3, 2), "f4"), np.ones(2, "f4")
    assert np.array_equal(m.run({"x": x, "y": y})["r"], m.run(["r"], {"y": y, "x": x})[0])
    with pytest.raises(ng.NgraphError, match="no input 'z'; input y: .* is missing"):
        m.run({"x": x, "z": y})


def test_all_that_cannot_be_translated_is_said_at_once():
    nodes = [h.make_node("Relux", ["x"], ["a"], name="first"), h.make_node("Attn", ["a"], ["y"], domain="other", name="second")]
    with pytest.raises(
        ng.NgraphError, match=r"(?s)ai.onnx.Relux .version 18., node .first.; the nearest is Relu.*other.Attn .*node .second."
    ):
        ng.onnx.load(model(nodes, [("x", F, [1])], [("y", F, [1])]))


def test_the_table_of_the_docs_is_todays():
    with open(os.path.join(os.path.dirname(__file__), "..", "..", "..", "docs", "onnx.md"), encoding="utf-8") as file:
        page = file.read()
    assert with_table("onnx.md", page, support.page()) == page, "docs/onnx.md differs; `make docs` rewrites it"


def test_lengths_alone_are_told_by_the_input_that_has_them():
    """Of the input itself nothing is read."""
    nodes = [h.make_node("Shape", ["x"], ["s"]), h.make_node("Cast", ["s"], ["f"], to=F), h.make_node("Mul", ["f", "k"], ["y"])]
    m = ng.onnx.load(model(nodes, [("x", F, ["A", "B"])], [("y", F, None)], {"k": np.float32(2.5)}))
    for a, b in ((2, 3), (4, 5), (1, 1)):
        assert np.array_equal(m(np.ones((a, b), "f4")), [2.5 * a, 2.5 * b])
    m = ng.onnx.load(model([h.make_node("Softmax", ["x"], ["y"])], [("x", F, ["A", "B", "C"])], [("y", F, None)]))
    for shape in ((1, 1, 1), (2, 3, 1), (2, 1, 4)):
        assert np.allclose(m(np.ones(shape, "f4")), 1 / shape[-1])


@pytest.mark.parametrize(
    "op, shapes, attributes, said",
    [
        ("LSTM", [[5, 1, 2, 3], [1, 16, 3], [1, 16, 4]], {"hidden_size": 4}, "4 dims, .5, 1, 2, 3., and takes 3: steps, batch, width"),
        ("GRU", [[5, 3], [1, 12, 3], [1, 12, 4]], {"hidden_size": 4, "layout": 1}, "2 dims, .5, 3., and takes 3: batch, steps, width"),
        ("DepthToSpace", [[4, 6, 6]], {"blocksize": 2}, "3 dims, .4, 6, 6., and takes 4: batch, channels, height, width"),
        ("SpaceToDepth", [[4, 6, 6]], {"blocksize": 2}, "3 dims, .4, 6, 6., and takes 4"),
    ],
)
def test_an_input_of_another_rank_is_named(op, shapes, attributes, said):
    inputs = [h.make_tensor_value_info(f"x{k}", onnx.TensorProto.FLOAT, s) for k, s in enumerate(shapes)]
    node = h.make_node(op, [i.name for i in inputs], ["y"], **attributes)
    graph = h.make_graph([node], "g", inputs, [h.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)])
    with pytest.raises(ng.NgraphError, match=said):
        ng.onnx.load(model).run({i.name: np.zeros(s, "float32") for i, s in zip(inputs, shapes, strict=True)})


def test_a_model_is_loaded_again_in_another_process():
    loaded = ng.onnx.load(model([h.make_node("Relu", ["x"], ["y"])], [("x", F, [2])], [("y", F, [2])]))
    for take in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(ng.errors.StateError, match="load the file again there"):
            take(loaded)


@pytest.mark.parametrize("step", [-2, -1, 1, 2])
@pytest.mark.parametrize("kind", ["open", "known", "folded"])
def test_slices_from_and_to_places_outside(kind, step):
    """Backwards from before the first element they begin at that, of nothing they take nothing."""
    for first, last in itertools.product((-(2**63), -4, -3, 0, 4), (-(2**63), -4, 0, 4)):
        ends = {"first": np.array([first]), "last": np.array([last]), "dim": np.array([0]), "step": np.array([step])}
        for n in (3, 1, 0):
            a, (start, end) = np.arange(n, dtype=np.float32), (k + n if k < 0 else k for k in (first, last))
            whole = range(
                *(min(max(start, 0), n), min(max(end, 0), n)) if step > 0 else (min(max(start, 0), n - 1), min(max(end, -1), n - 1)), step
            )
            held, dims = ({"x": a}, []) if kind == "folded" else ({}, [("x", F, ["n" if kind == "open" else n])])
            made = model([h.make_node("Slice", ["x", *ends], ["y"])], dims, [("y", F, None)], {**ends, **held})
            np.testing.assert_array_equal(ng.onnx.load(made).run({} if held else {"x": a})["y"], a[list(whole)])

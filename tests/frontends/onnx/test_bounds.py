"""Indices of ONNX files that are out of bounds are refused, as ONNX Runtime refuses them: with the node, the index, the length."""

import numpy as np
import onnxruntime
import pytest
from onnx import helper as h

import ngraph as ng
import ngraph.transformers as ngt
from tests.frontends.onnx.made import B, F, I, graph, model

N = h.make_node
errors = onnxruntime.capi.onnxruntime_pybind11_state
REFUSED = (errors.InvalidArgument, errors.Fail)
X = np.arange(12, dtype=np.float32).reshape(4, 3)
U = -np.ones((2, 3), np.float32)

# op: attributes, indices that are right, the same with one that is not, updates, the dim
OPS = {
    "Gather": ({}, [0, -4, 3], [0, 4, 3], None, 0),
    "Gather of columns": ({"axis": 1}, [[0, -3], [2, 1]], [[0, -4], [2, 1]], None, 1),
    "Gather of one": ({}, 3, -5, None, 0),
    "GatherElements": ({"axis": 0}, [[0, -1, 2]], [[0, -5, 2]], None, 0),
    "GatherElements of columns": ({"axis": 1}, [[0], [-3]], [[0], [3]], None, 1),
    "GatherND": ({}, [[0], [-4]], [[0], [4]], None, 0),
    "GatherND of two": ({}, [[3, 2], [-1, -3]], [[3, 2], [-1, -4]], None, 1),
    "ScatterElements": ({"axis": 0}, [[0, 1, -4], [3, 2, 1]], [[0, 1, -4], [4, 2, 1]], U, 0),
    "ScatterElements that adds": ({"axis": 0, "reduction": "add"}, [[0, 1, -4], [3, 2, 1]], [[0, 1, -4], [3, 2, -5]], U, 0),
    "ScatterND": ({}, [[0], [-1]], [[0], [-5]], U, 0),
    "ScatterND of two": ({"reduction": "max"}, [[0, 1], [-1, -3]], [[0, 1], [-1, 3]], U[:, 0], 1),
}


def made(case, index, known=False, opened=False):
    attributes, _, _, updates, _ = OPS[case]
    index = np.array(index, np.int64)
    inputs = [("x", F, [None, None] if opened else X.shape)]
    if not known:
        inputs.append(("i", I, [None] * index.ndim if opened else index.shape))
    names = ["x", "i", *([] if updates is None else ["u"])]
    constants = {"i": index} if known else {}
    if updates is not None:
        constants["u"] = updates
    return model([N(case.split()[0], names, ["y"], name="looks", **attributes)], inputs, [("y", F, None)], constants)


def reference(file, feeds):
    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(file.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


def refused(file, feeds, **how):
    """What is said of a call that fails."""
    with pytest.raises(ng.errors.BoundsError) as caught:
        ng.onnx.load(file, **how).run(feeds)
    return str(caught.value)


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("transformer", ["cpu", "numpy", "direct"])
@pytest.mark.parametrize("case", OPS)
def test_an_index_out_of_bounds_is_refused(case, transformer, opened):
    _, right, wrong, _, dim = OPS[case]
    right, wrong = np.array(right, np.int64), np.array(wrong, np.int64)
    file = made(case, right, opened=opened)
    mine = ng.onnx.load(file, ngt.make_transformer_factory(transformer)())
    for _ in range(3):  # the later ones go the short way
        np.testing.assert_array_equal(mine.run({"x": X, "i": right})["y"], reference(file, {"x": X, "i": right}))
        with pytest.raises(ng.errors.BoundsError) as caught:
            mine.run({"x": X, "i": wrong})
        bad = next(k for k in wrong.ravel() if k not in right)
        said = f"{case.split()[0]} 'looks': index {bad} is out of bounds of dim {dim} of x, which has length {X.shape[dim]}"
        assert said in str(caught.value)
    with pytest.raises(REFUSED):
        reference(file, {"x": X, "i": wrong})


R = np.random.default_rng(0).random
OTHERS = {  # node, feeds but for the index, its name, one that is right, those that are not
    "RoiAlign": ("x r i", {"x": R((2, 3, 4, 4)), "r": np.array([[0, 0, 3, 3]])}, [1], [[2], [-1]]),
    "MaxRoiPool": ("x i", {"x": R((2, 3, 4, 4))}, [[1.0, 0, 0, 3, 3]], [[[2.0, 0, 0, 3, 3]], [[-1.0, 0, 0, 3, 3]]]),
    "ReverseSequence": ("x i", {"x": R((4, 2))}, [4, 0], [[5, 1], [1, -1]]),
    "TensorScatter": ("x u i", {"x": R((2, 1, 4, 3)), "u": R((2, 1, 2, 3))}, [0, 2], [[3, 0], [0, -1]]),
    "RotaryEmbedding": ("x i c s", {"x": R((1, 2, 2, 4)), "c": R((4, 2)), "s": R((4, 2))}, [[3, 0]], [[[4, 0]], [[0, -1]]]),
    "ArrayFeatureExtractor": ("x i", {"x": R((2, 3))}, [[2, 0]], [[[3, 0]], [[-1, 0]]]),
}
ATTRIBUTES = {"RoiAlign": {"output_height": 2, "output_width": 2}, "MaxRoiPool": {"pooled_shape": [2, 2]}}
NEWEST = {"TensorScatter": 24}
DOMAINS = {"RotaryEmbedding": "com.microsoft", "ArrayFeatureExtractor": "ai.onnx.ml"}


@pytest.mark.parametrize("op", OTHERS)
def test_other_ops_that_read_and_write_at_an_index_refuse_it(op):
    names, feeds, right, wrongs = OTHERS[op]
    feeds = {k: v.astype(np.float32) for k, v in feeds.items()} | {"i": np.array(right)}
    if op == "MaxRoiPool":
        feeds["i"] = feeds["i"].astype(np.float32)
    kinds = {np.dtype(np.float32): F, np.dtype(np.int64): I}
    node = N(op, names.split(), ["y"], name="looks", domain=DOMAINS.get(op, ""), **ATTRIBUTES.get(op, {}))
    file = model([node], [(k, kinds[v.dtype], v.shape) for k, v in feeds.items()], [("y", F, None)], opset=NEWEST.get(op, 16))
    file.opset_import.extend([h.make_opsetid("com.microsoft", 1), h.make_opsetid("ai.onnx.ml", 3)])
    file.ir_version = 11
    mine = ng.onnx.load(file)
    for wrong in wrongs:
        np.testing.assert_allclose(mine.run(feeds)["y"], reference(file, feeds), 1e-5, 1e-6)
        bad = feeds | {"i": np.array(wrong, feeds["i"].dtype)}
        with pytest.raises(REFUSED):
            reference(file, bad)
        with pytest.raises(ng.errors.BoundsError, match=rf"{op} 'looks': index -?\d+ is out of bounds of dim \d of"):
            mine.run(bad)
        assert np.isfinite(ng.onnx.load(file, indices="clip").run(bad)["y"]).all()


LSTM = {"x": R((5, 2, 3)), "w": R((1, 16, 3)), "r": R((1, 16, 4)), "b": R((1, 32))}
MET = {  # inputs that fit, one of them in another shape, attributes, and what is said
    "Split": ({"x": R(5), "s": [2, 3]}, {"s": [2, 4]}, {}, "parts of 2, 4 do not sum to the length 5"),
    "GridSample": ({"x": R((2, 1, 3, 3)), "g": R((2, 2, 2, 2))}, {"g": R((1, 2, 2, 2))}, {}, "a dim of length 1"),
    "NonMaxSuppression": ({"x": R((1, 3, 4)), "g": R((1, 1, 3)), "k": np.array(2)}, {"g": R((1, 1, 2))}, {}, "a dim of length 3"),
    "LSTM": (LSTM, {"w": R((1, 15, 3))}, {"hidden_size": 4}, "weights is .1, 15, 3., and takes .1, 16, 3."),
    "LSTM of two directions": (LSTM, {"r": R((2, 16, 4))}, {"hidden_size": 4}, "weights of the state is .2, 16, 4."),
    "LSTM with a bias": (LSTM, {"b": R((1, 33))}, {"hidden_size": 4}, "bias is .1, 33., and takes .1, 32."),
    "DepthToSpace": ({"x": R((1, 8, 2, 2))}, {"x": R((1, 9, 2, 2))}, {"blocksize": 2}, "another number of elements"),
    "SpaceToDepth": ({"x": R((1, 2, 4, 4))}, {"x": R((1, 2, 5, 4))}, {"blocksize": 2}, "another number of elements"),
    "MaxUnpool": (
        {"x": R((1, 1, 2)), "i": np.arange(2).reshape(1, 1, 2)},
        {"x": R((1, 1, 3))},
        {"kernel_shape": [2]},
        "positions is .1, 1, 2.",
    ),
    "Compress": ({"x": R(3), "m": np.ones(2, bool)}, {"m": np.ones(4, bool)}, {"axis": 0}, "the condition has length 4"),
    "STFT": ({"x": R((1, 16, 2)), "k": np.array(4), "w": R(8)}, {"x": R((1, 16, 3))}, {"onesided": 0}, "3 parts in its last dim"),
}
ANSWERED = ("Compress",)  # ONNX Runtime leaves out what is too much


@pytest.mark.parametrize("case", MET)
def test_open_lengths_that_do_not_meet_are_refused(case):
    given, other, attributes, said = MET[case]
    op = case.split()[0]
    kinds = {"f": (np.float32, F), "i": (np.int64, I), "b": (bool, B)}
    arrays = {k: np.asarray(v) for k, v in given.items()}
    right = {k: v.astype(kinds[v.dtype.kind][0]) for k, v in arrays.items()}
    wrong = right | {k: np.asarray(v).astype(right[k].dtype) for k, v in other.items()}
    results = ["y", "z"] if op == "Split" else ["y"]
    node = N(op, [*right], results, name="looks", **attributes)
    inputs = [(k, kinds[v.dtype.kind][1], [None] * v.ndim) for k, v in right.items()]
    file = model([node], inputs, [(y, I if op == "NonMaxSuppression" else F, None) for y in results])
    mine = ng.onnx.load(file)
    for _ in range(2):
        np.testing.assert_allclose(mine.run(right)["y"], reference(file, right), 1e-4, 1e-5)
        with pytest.raises(ng.errors.GraphError, match=f"(?s)'looks'.*{said}"):
            mine.run(wrong)
    if op not in ANSWERED:
        with pytest.raises(REFUSED):
            reference(file, wrong)


def test_a_place_of_an_unpooled_row_is_refused():
    """ONNX Runtime's node does not look."""
    node = N("MaxUnpool", ["x", "i"], ["y"], name="looks", kernel_shape=[2], strides=[2])
    mine = ng.onnx.load(model([node], [("x", F, [1, 1, 2]), ("i", I, [1, 1, 2])], [("y", F, None)]))
    x = np.float32([[[5, 6]]])
    np.testing.assert_array_equal(mine(x, np.array([[[0, 3]]])), [[[5, 0, 0, 6]]])
    for bad in (4, -1):
        said = f"MaxUnpool 'looks': index {bad} is out of bounds of y as one row, which has length 4"
        with pytest.raises(ng.errors.BoundsError, match=said):
            mine(x, np.array([[[0, bad]]]))


@pytest.mark.parametrize("case", OPS)
def test_a_known_index_out_of_bounds_is_refused_when_the_graph_is_read(case):
    _, right, wrong, _, dim = OPS[case]
    file = made(case, right, known=True)
    np.testing.assert_array_equal(ng.onnx.load(file).run({"x": X})["y"], reference(file, {"x": X}))
    for opened in (False, True):
        said = refused(made(case, wrong, known=True, opened=opened), {"x": X})
        assert "'looks'" in said and f"is out of bounds of dim {dim} of x, which has length {X.shape[dim]}" in said


@pytest.mark.parametrize("case", OPS)
def test_clamping_takes_the_nearest(case):
    _, _, wrong, _, dim = OPS[case]
    wrong = np.array(wrong, np.int64)
    n = np.array(X.shape) if "ND of two" in case else X.shape[dim]
    clamped = np.asarray(np.clip(np.where(wrong < 0, wrong + n, wrong), 0, np.asarray(n) - 1))
    want = reference(made(case, clamped), {"x": X, "i": clamped})
    np.testing.assert_array_equal(ng.onnx.load(made(case, wrong), indices="clip").run({"x": X, "i": wrong})["y"], want)
    np.testing.assert_array_equal(ng.onnx.load(made(case, wrong, known=True), indices="clip").run({"x": X})["y"], want)


@pytest.mark.parametrize("case", OPS)
def test_an_exported_model_refuses_too(case, tmp_path):
    _, right, wrong, _, _ = OPS[case]
    right, wrong = np.array(right, np.int64), np.array(wrong, np.int64)
    path = str(tmp_path / "m.onnx")
    ng.onnx.save(ng.onnx.load(made(case, right)), path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": X, "i": right})[0], reference(made(case, right), {"x": X, "i": right}))
    with pytest.raises(REFUSED):
        session.run(None, {"x": X, "i": wrong})


def branches(known):
    """A model that gathers where c holds."""
    index = {} if known is None else {"k": np.array(known)}
    then = graph([N("Gather", ["x", "k" if index else "i"], ["r"], name="inside")], [], [("r", F, None)], index)
    other = graph([N("Neg", ["x"], ["r"])], [], [("r", F, None)])
    nodes = [
        N("ReduceMax", ["x"], ["m"], keepdims=0),
        N("Cast", ["m"], ["c"], to=B),
        N("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    return model(nodes, [("x", F, [200]), ("i", I, [200])], [("y", F, [200])])


@pytest.mark.parametrize("known", [None, [0] * 199 + [200]])
def test_a_branch_that_is_not_taken_refuses_nothing(known):
    mine = ng.onnx.load(branches(known))
    x, i = np.zeros(200, np.float32), np.full(200, 200)
    for _ in range(3):
        np.testing.assert_array_equal(mine.run({"x": x, "i": i})["y"], x)
    with pytest.raises(ng.errors.BoundsError, match="Gather 'inside'.*: index 200 is out of bounds of dim 0 of x"):
        mine.run({"x": x + 1, "i": i})


@pytest.mark.parametrize("trips", [0, 20])
def test_a_loop_without_trips_refuses_nothing(trips):
    body = graph(
        [N("Identity", ["go"], ["on"]), N("Gather", ["x", "i"], ["row"], name="inside"), N("Add", ["s", "row"], ["t"])],
        [("k", I, []), ("go", B, []), ("s", F, [3])],
        [("on", B, []), ("t", F, [3])],
    )
    file = model(
        [N("Loop", ["n", "", "z"], ["y"], body=body)], [("x", F, [4, 3]), ("i", I, []), ("n", I, [])], [("y", F, [3])], {"z": X[0] * 0}
    )
    mine = ng.onnx.load(file)
    feeds = {"x": X, "i": np.array(2), "n": np.array(trips)}
    np.testing.assert_array_equal(mine.run(feeds)["y"], X[2] * trips)
    feeds["i"] = np.array(9)
    if not trips:
        np.testing.assert_array_equal(mine.run(feeds)["y"], X[2] * 0)
        return
    with pytest.raises(ng.errors.BoundsError, match="Gather 'inside'"):
        mine.run(feeds)


def test_a_program_from_the_cache_names_the_node(tmp_path):
    path = str(tmp_path / "m.onnx")
    with open(path, "wb") as file:
        file.write(made("Gather", [0, 1, 2]).SerializeToString())
    with ng.config(cache=str(tmp_path / "cache")):
        for _ in range(2):
            mine = ng.onnx.load(path)
            mine.run({"x": X, "i": np.array([0, 1, 2])})
            with pytest.raises(ng.errors.BoundsError, match="Gather 'looks': index 7 is out of bounds of dim 0 of x"):
                mine.run({"x": X, "i": np.array([0, 7, 2])})
        assert mine.readings == 0
        got = ng.onnx.load(path, indices="clip").run({"x": X, "i": np.array([0, 7, -9])})["y"]
        np.testing.assert_array_equal(got, X[[0, 3, 0]])


def test_one_hot_of_a_number_outside_is_all_off():
    """So the standard says."""
    file = model([N("OneHot", ["i", "d", "v"], ["y"])], [("i", I, [3])], [("y", F, None)], {"d": np.array(3), "v": np.float32([0, 1])})
    np.testing.assert_array_equal(ng.onnx.load(file)(np.array([1, 3, -4])), [[0, 1, 0], [0, 0, 0], [0, 0, 0]])


def test_wrong_values_of_the_switch():
    with pytest.raises(ng.errors.ArgumentError, match="indices='wrap' is none of 'raise' and 'clip'"):
        ng.onnx.load(made("Gather", [0]), indices="wrap")


def test_labels_of_a_loss():
    """A function of the standard, in whose body there is a GatherElements; what is ignored is not looked up."""
    file = model(
        [N("NegativeLogLikelihoodLoss", ["x", "i"], ["y"], reduction="none", ignore_index=-1)],
        [("x", F, [4, 3]), ("i", I, [4])],
        [("y", F, [4])],
    )
    mine = ng.onnx.load(file)
    np.testing.assert_array_equal(mine(X, np.array([0, -1, 2, 1])), -np.where([1, 0, 1, 1], X[range(4), [0, 0, 2, 1]], 0))
    with pytest.raises(ng.errors.BoundsError, match="index 3 is out of bounds"):
        mine(X, np.array([0, -1, 3, 1]))


@pytest.mark.parametrize("axes", [[1, 1], [1, -1]])
def test_a_dim_that_a_reduction_names_twice_counts_once(axes):
    made = model(
        [N("ReduceMean", ["x", "axes"], ["y"])], [("x", F, [4, 3])], [("y", F, None)], {"axes": np.array(axes)}
    ).SerializeToString()
    (want,) = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"]).run(None, {"x": X})
    np.testing.assert_allclose(ng.onnx.load(made)(X), want, rtol=1e-6)


def test_a_written_check_of_lengths_fails_only_where_they_differ(tmp_path):
    x = ng.placeholder("T=?").named("x")
    ng.onnx.save(x["T", ::2] + ng.split(x, "T", 2)[1], tmp_path / "pairs.onnx")
    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(tmp_path / "pairs.onnx", providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": np.arange(4, dtype=np.float32)})[0].tolist() == [2, 5]
    with pytest.raises(REFUSED):
        session.run(None, {"x": np.arange(5, dtype=np.float32)})


def test_a_length_that_stands_twice_in_an_input_is_one_length():
    """A matrix of nodes by nodes; where its lengths differ in a call, as a file's words allow it, the graph is read for that."""
    file = model(
        [N("MatMul", ["a", "x"], ["h"]), N("MatMul", ["a", "h"], ["y"])], [("a", F, ["n", "n"]), ("x", F, ["n", 3])], [("y", F, None)]
    )
    net, draw = ng.onnx.load(file.SerializeToString()), np.random.default_rng(0)
    for n in (4, 1, 7, 0, 33):
        given = {"a": draw.random((n, n), np.float32), "x": draw.random((n, 3), np.float32)}
        np.testing.assert_allclose(net(**given), given["a"] @ (given["a"] @ given["x"]), 1e-5)
    with pytest.raises(ng.errors.GraphError, match=r"\[3, 4\] and \[3, 3\] have no product"):
        net(a=np.ones((3, 4), np.float32), x=np.ones((4, 3), np.float32))

"""ai.onnx.ml gives what ONNX Runtime gives: nodes made by hand, and scikit-learn's models exported by skl2onnx."""

import importlib

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from onnx import helper as h  # noqa: E402
from runtimes import agree, model  # noqa: E402  needs what is looked for above

import ngraph as ng  # noqa: E402
import ngraph.transformers as ngt  # noqa: E402

draw = np.random.default_rng(11)


def f(*shape):
    return draw.normal(size=shape).astype("f4")


def node(op, inputs=("x",), outputs=("y",), **attrs):
    return h.make_node(op, list(inputs), list(outputs), domain="ai.onnx.ml", **attrs)


# ---- columns and categories ---------------------------------------------------------------------------------------------------


def test_columns():
    x = f(5, 3)
    agree(node("Scaler", offset=[0.5, 1.0, -1.0], scale=[2.0, 0.5, 1.0]), {"x": x})
    agree(node("Scaler", offset=[0.5], scale=[2.0]), {"x": (x * 4).astype("i8")})
    for norm in ("MAX", "L1", "L2"):
        y = x if norm != "MAX" else np.abs(x)
        y[1] = 0
        agree(node("Normalizer", norm=norm), {"x": y})
    agree(node("Binarizer", threshold=0.3), {"x": x})
    gone = np.where(x > 0.5, np.nan, x).astype("f4")
    agree(node("Imputer", imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=float("nan")), {"x": gone})
    agree(node("Imputer", imputed_value_int64s=[7], replaced_value_int64=0), {"x": draw.integers(0, 3, (4, 3))})
    agree(node("ArrayFeatureExtractor", ["x", "i"]), {"x": x}, constants={"i": np.array([2, 0])})
    agree(node("FeatureVectorizer", ["x", "z"], inputdimensions=[3, 2]), {"x": x, "z": f(5, 2)})


def test_categories():
    words = np.array([["ant"], ["cat"], ["emu"], ["ant"]], object)
    numbers = np.array([1, 7, 3, 99])
    agree(node("OneHotEncoder", cats_int64s=[1, 3, 7], zeros=1), {"x": numbers})
    agree(node("LabelEncoder", keys_int64s=[1, 3, 7], values_int64s=[10, 30, 70], default_int64=-5), {"x": numbers})
    agree(node("LabelEncoder", keys_int64s=[1, 3, 7], values_floats=[0.1, 0.3, 0.7]), {"x": numbers})
    agree(node("LabelEncoder", keys_floats=[1.0, float("nan")], values_int64s=[1, 2]), {"x": np.array([1, np.nan, 5], "f4")}, ml=4)
    m = ng.onnx.load(strings(node("LabelEncoder", keys_strings=["ant", "cat"], values_int64s=[0, 1], default_int64=9)))
    assert m(words).tolist() == [[0], [1], [9], [0]]
    m = ng.onnx.load(strings(node("OneHotEncoder", cats_strings=["cat", "ant"])))
    assert m(words).tolist() == [[[0, 1]], [[1, 0]], [[0, 0]], [[0, 1]]]


def strings(made):
    graph = h.make_graph([made], "g", [h.make_tensor_value_info("x", onnx.TensorProto.STRING, [4, 1])], [onnx.ValueInfoProto(name="y")])
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 18), h.make_opsetid("ai.onnx.ml", 3)], ir_version=9)


@pytest.mark.parametrize("transformer", ["cpu", "direct"])
def test_lengths_of_strings_are_those_of_the_call(transformer):
    """Shape and Size of strings, and what is made of them, follow each call, as ONNX Runtime's do."""
    nodes = [
        h.make_node("Shape", ["x"], ["shape"]),
        h.make_node("Shape", ["x"], ["last"], start=-1),
        h.make_node("Size", ["x"], ["size"]),
        h.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        h.make_node("Reshape", ["x", "all"], ["flat"]),
        h.make_node("Concat", ["flat", "flat"], ["twice"], axis=0),
        h.make_node("Size", ["twice"], ["many"]),
    ]
    names = ["shape", "last", "size", "zeros", "many"]
    kinds = [onnx.TensorProto.FLOAT if name == "zeros" else onnx.TensorProto.INT64 for name in names]
    outputs = [h.make_tensor_value_info(name, kind, None) for name, kind in zip(names, kinds, strict=True)]
    inputs = [h.make_tensor_value_info("x", onnx.TensorProto.STRING, ["N", "M"])]
    graph = h.make_graph(nodes, "g", inputs, outputs, [onnx.numpy_helper.from_array(np.array([-1]), "all")])
    file = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9).SerializeToString()
    reference = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    with ngt.make_transformer_factory(transformer)() as made:
        m = ng.onnx.load(file, made)
        for shape in ((2, 3), (4, 1), (2, 3), (0, 5)):
            x = np.full(shape, "a", object)
            for found, want in zip(m.run(names, {"x": x}), reference.run(names, {"x": x}), strict=True):
                assert found.dtype == want.dtype and found.shape == want.shape and np.array_equal(found, want)


# ---- trees ---------------------------------------------------------------------------------------------------------------------


def forest(modes, trees=3, depth=3, features=4, values=None):
    """Attributes of full random trees; leaves come last in each."""
    inner, size = 2**depth - 1, 2 ** (depth + 1) - 1
    k = np.arange(size)
    leaf = k >= inner
    a = {
        "nodes_treeids": np.repeat(np.arange(trees), size).tolist(),
        "nodes_nodeids": np.tile(k, trees).tolist(),
        "nodes_truenodeids": np.tile(np.where(leaf, 0, 2 * k + 1), trees).tolist(),
        "nodes_falsenodeids": np.tile(np.where(leaf, 0, 2 * k + 2), trees).tolist(),
        "nodes_featureids": draw.integers(0, features, size * trees).tolist(),
        "nodes_values": (f(size * trees) if values is None else draw.choice(values, size * trees)).tolist(),
        "nodes_modes": ["LEAF" if x else str(draw.choice(modes)) for x in np.tile(leaf, trees)],
        "nodes_missing_value_tracks_true": draw.integers(0, 2, size * trees).tolist(),
    }
    return a, [(t, int(i)) for t in range(trees) for i in k[leaf]]


MIXED = ["BRANCH_LEQ", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_GTE", "BRANCH_LT"]


@pytest.mark.parametrize("modes", [["BRANCH_LEQ"], ["BRANCH_LT"], MIXED], ids=["leq", "lt", "mixed"])
def test_trees_of_numbers(modes):
    x = draw.integers(-1, 2, (20, 4)).astype("f4")
    x[3, :] = np.nan
    for how, depth in (("SUM", 3), ("AVERAGE", 2), ("MIN", 3), ("MAX", 3), ("SUM", 14)):
        a, leaves = forest(modes, trees=1 if depth > 9 else 3, depth=depth, values=[-1.0, 0.0, 1.0])
        targets = {"target_treeids": [t for t, _ in leaves], "target_nodeids": [i for _, i in leaves]}
        targets |= {"target_ids": draw.integers(0, 2, len(leaves)).tolist(), "target_weights": f(len(leaves)).tolist()}
        made = node("TreeEnsembleRegressor", n_targets=2, aggregate_function=how, base_values=[0.5, -0.5], **a, **targets)
        agree(made, {"x": x})


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_trees_of_classes(transform):
    x = f(20, 4)
    a, leaves = forest(["BRANCH_LEQ"])
    for labels, ids in (([4, 5, 6], [0, 1, 2]), ([0, 1], [0]), ([0, 1], [1]), ([0, 1], [0, 1])):
        spoken = [(t, i, c) for t, i in leaves for c in (ids if len(labels) == 2 else [int(draw.choice(ids))])]
        weights = np.abs(f(len(spoken))) / 6 if transform == "NONE" else f(len(spoken))
        columns = dict(zip(("class_treeids", "class_nodeids", "class_ids"), map(list, zip(*spoken, strict=True)), strict=True))
        attrs = {**a, **columns, "class_weights": weights.tolist(), "classlabels_int64s": labels, "post_transform": transform}
        agree(node("TreeEnsembleClassifier", outputs=["l", "y"], **attrs), {"x": x}, ["l", "y"])


# ---- scikit-learn --------------------------------------------------------------------------------------------------------------

MODELS = {
    "linear_model": ["LogisticRegression()", "RidgeClassifier()", "SGDClassifier(random_state=0)", "Ridge()"],
    "tree": ["DecisionTreeClassifier(random_state=0)", "DecisionTreeRegressor(random_state=0)"],
    "ensemble": [
        "RandomForestClassifier(4, random_state=0)",
        "GradientBoostingClassifier(n_estimators=3)",
        "RandomForestRegressor(3, random_state=0)",
    ],
    "svm": ["SVC()", "SVC(probability=True, random_state=0)", "LinearSVC(random_state=0)", "SVR()", "NuSVC(kernel='poly')"],
    "neural_network": ["MLPClassifier((5,), max_iter=5, random_state=0)"],
    "naive_bayes": ["GaussianNB()"],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("room", "made"), [(room, m) for room, all_ in MODELS.items() for m in all_], ids=str)
def test_models_of_scikit_learn(room, made):
    """Two classes, three called by strings, or numbers: labels and scores are ONNX Runtime's."""
    to_onnx = pytest.importorskip("skl2onnx").to_onnx
    sklearn = importlib.import_module(f"sklearn.{room}")
    x = np.random.default_rng(0).normal(size=(80, 5)).astype("f4")
    score = x @ [1, -1, 0.5, 0.2, 0] + x[:, 0] * x[:, 1]
    words = np.array(["ant", "bee", "cat"])[np.digitize(score, [-0.7, 0.7])]
    regression = made.startswith(("Ridge()", "SVR", "DecisionTreeR", "RandomForestR"))
    for y in (score,) if regression else ((score > 0).astype(int), words):
        proto = to_onnx(eval(made, vars(sklearn)).fit(x, y), x[:1], target_opset={"": 18, "ai.onnx.ml": 3})
        name = proto.graph.input[0].name
        wanted = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {name: x})
        for got, want in zip(ng.onnx.load(proto).run(None, {name: x}), wanted, strict=True):
            if isinstance(want, list):  # a dict for each row
                assert [list(row) for row in got] == [list(row) for row in want]
                got, want = ([list(row.values()) for row in rows] for rows in (got, want))
            got, want = np.asarray(got), np.asarray(want)
            if want.dtype.kind == "f":
                np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
            else:
                np.testing.assert_array_equal(got.astype(want.dtype), want)


# ---- edges ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_one_row_is_normalized_as_it_is(norm):
    agree(node("Normalizer", norm=norm), {"x": np.array([3, 0, 4], np.float32)})


def test_columns_are_as_many_as_the_node_says():
    for wide in ([3, 2], [2, 4], [5, 1]):
        agree(node("FeatureVectorizer", ("x", "y"), ("z",), inputdimensions=wide), {"x": f(4, 3), "y": f(4, 2)}, ("z",))


def test_a_number_that_is_no_category():
    made = node("OneHotEncoder", cats_int64s=[1, 3, 7], zeros=0)
    agree(made, {"x": np.array([[3, 1], [7, 7]])})
    loaded = ng.onnx.load(model([made], {"x": np.array([3, 1])}, ["y"]))
    with pytest.raises(ng.errors.OperandError, match="a number is not a category of a OneHotEncoder"):
        loaded(np.array([3, 2]))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_a_class_of_which_no_leaf_speaks_has_its_base_value(transform):
    nodes = {"treeids": [0], "nodeids": [0], "featureids": [0], "values": [0.0], "truenodeids": [0], "falsenodeids": [0]}
    leaf = {"class_treeids": [0, 0], "class_nodeids": [0, 0], "class_ids": [0, 1], "class_weights": [0.3, 0.4]}
    made = node(
        "TreeEnsembleClassifier",
        outputs=("label", "scores"),
        nodes_modes=["LEAF"],
        base_values=[0.5, -1.0, 2.5],
        post_transform=transform,
        classlabels_int64s=[4, 5, 9],
        **leaf,
        **{f"nodes_{k}": v for k, v in nodes.items()},
    )
    found = agree(made, {"x": f(2, 2)}, ("label", "scores"))
    assert found[0].tolist() == [9, 9]

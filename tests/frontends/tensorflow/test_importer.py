"""The importer of 2016 to 2019: handles of nodes, those with effects, restoring, ops by position, arithmetic of windows."""

import importlib.util
import sys

import numpy as np
import pytest
from graphs_v1 import CASES, IN_CALLS, RECORDED, load, under

import ngraph as ng
import ngraph.frontends.tensorflow.tf_importer.ngraph_shaped as ns
import ngraph.transformers as ngt
from ngraph.errors import ArgumentError, ArgumentTypeError, FileError, UnsupportedError
from ngraph.frontends.common.utils import (
    CommonSGDOptimizer,
    ConvParameters,
    common_conv2d_pool_output_shape,
    common_conv2d_pool_padding,
    conv_output_dim,
    deconv_output_dim,
    squeeze_axes,
)
from ngraph.frontends.tensorflow.tf_importer.importer import TFImporter, make_tf_importer
from ngraph.frontends.tensorflow.tf_importer.utils import get_nested_attr, np_layout_shuffle, remove_tf_name_prefix, to_int
from ngraph.frontends.tensorflow.tf_importer.utils_broadcast import broadcast_to, broadcasted_shape, is_compatible_broadcast_shape
from ngraph.frontends.tensorflow.tf_importer.utils_pos_axes import cast_to_pos_axes, make_pos_axes, reorder_pos_axes

ASKING = tuple(f"{kind}_training_{how}" for kind in ("embedded", "lstm", "recurrent") for how in ("handle", "reference"))
OPEN = {
    "maps_open",
    "nested_derivative_while",
    "checked",
    "derivative_loop_without_turns",
    "derivative_loops_of_other_lengths",
    *ASKING,
    *(name for name in CASES if name.endswith("_rows")),
}  # these ask what the length or value of an input is


def imported(name):
    importer = TFImporter()
    importer.import_graph_def(RECORDED[f"{name}|graph"].tobytes())
    return importer


@pytest.mark.parametrize("name", sorted(set(CASES) - IN_CALLS - OPEN))
def test_handles_compute_what_tensorflow_does(name):
    importer, names = imported(name), [str(n) for n in RECORDED[f"{name}|names"]]
    state = bool(under(f"{name}|start|"))
    first = len(names) - 1 if state else 0  # each handle has its effects: one of them is enough
    results, holes = importer.get_op_handle(names[first:]), importer.get_op_handle(list(under(f"{name}|feed0|")))
    with ngt.make_transformer() as transformer:
        if state:
            init = transformer.computation(importer.get_op_handle_by_name("init"))
        f = transformer.computation(results, *holes)
        if state:
            init()  # draws the random ones
            start = [ng.assign(importer.get_op_handle_by_name(v), value) for v, value in under(f"{name}|start|").items()]
            transformer.computation(ng.doall(start))()
        k = 0
        while feeds := under(f"{name}|feed{k}|"):
            for turn in range(int(RECORDED[f"{name}|turns"])):
                for j, y in enumerate(f(*feeds.values()), first):
                    np.testing.assert_allclose(y, RECORDED[f"{name}|out{k}.{turn}.{j}"], rtol=2e-6, atol=2e-6)
            k += 1


def test_handles_share_placeholders_and_variables():
    """A cost from the file is trained by gradients of our own: the steps are TensorFlow's, which the file has, too."""
    importer = imported("GradientDescent_handle")
    x, t, w, b = importer.get_op_handle(["x", "t", "w", "b"])
    last = importer.model.graph.nodes[str(RECORDED["GradientDescent_handle|names"][0]).removesuffix(":0")]
    cost = importer.get_op_handle_by_name(last.takes[0])
    step = CommonSGDOptimizer(0.1).minimize(cost, [w, b])
    feeds = under("GradientDescent_handle|feed0|")
    with ngt.make_transformer() as transformer:
        init = transformer.computation(importer.init_ops)
        f = transformer.computation([cost, step], x, t)
        init()
        losses = [float(f(feeds["x:0"], feeds["t:0"])[0]) for _ in range(2)]
        np.testing.assert_allclose(losses, [RECORDED[f"GradientDescent_handle|out0.{k}.0"] for k in (0, 1)], rtol=1e-6)
        np.testing.assert_allclose(transformer.get(w), RECORDED["GradientDescent_handle|end|w"], rtol=1e-5, atol=1e-7)


def test_a_meta_graph_and_its_checkpoint(tmp_path):
    load("Adam_reference", tmp_path)
    importer = make_tf_importer()
    importer.import_meta_graph(str(tmp_path / "model.meta"), str(tmp_path / "model"))
    w = importer.get_op_handle_by_name("w")
    with ngt.make_transformer() as transformer:
        restore, read = transformer.computation(importer.get_restore_op()), transformer.computation(w)
        transformer.computation(ng.assign(w, 0.0 * w))()
        assert not np.any(read())
        restore()
        np.testing.assert_array_equal(read(), RECORDED["Adam_reference|start|w"])


def test_collections(models):
    importer = TFImporter()
    importer.import_meta_graph(str(models / "old" / "model.meta"))
    (first,) = importer.get_collection_handle(["trainable_variables"])
    assert first.is_variable and first is importer.get_op_handle_by_name("w:0")
    with pytest.raises(ArgumentError, match="has no collection 'lost'"):
        importer.get_collection_handle(["lost"])


def test_mistakes(tmp_path):
    with pytest.raises(ArgumentError, match="no graph has been imported"):
        TFImporter().get_op_handle_by_name("x")
    importer = imported("cond")
    with pytest.raises(ArgumentTypeError, match="3 is no node of a graph"):
        importer.get_op_handle(3)
    with pytest.raises(ArgumentError, match="has no node 'y'"):
        importer.get_op_handle_by_name("y")
    with pytest.raises(ArgumentError, match="has no checkpoint"):
        importer.get_restore_op()
    with pytest.raises(FileError):
        importer.import_protobuf(str(tmp_path / "none.pb"))
    with pytest.raises(UnsupportedError, match="depends on"):
        name = str(RECORDED["two_predicates|names"][0])
        imported("two_predicates").get_op_handle_by_name(name)
    path = tmp_path / "graph.pb"
    path.write_bytes(RECORDED["cond|graph"].tobytes().replace(b"Sin", b"Foo"))
    assert TFImporter()._get_unimplemented_ops(str(path)) == ["Foo"]


def values(op, *arguments):
    with ngt.make_transformer() as transformer:
        holes = [a for a, _ in arguments]
        return np.asarray(transformer.computation(op, *holes)(*[v for _, v in arguments]))


def test_ops_by_position():
    r = np.random.default_rng(5)
    a, b = r.standard_normal((5, 1, 4, 1)).astype("f4"), r.standard_normal((3, 1, 2)).astype("f4")
    x, y = ns.placeholder(np.float32, a.shape), ns.placeholder(np.float32, b.shape)
    both = (x, a), (y, b)
    for name, f in {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum, "less": np.less}.items():
        np.testing.assert_array_equal(values(getattr(ns, name)(x, y), *both), f(a, b))
    np.testing.assert_allclose(values(ns.divide(x, y), *both), a / b, rtol=1e-6)
    for name, f in {"reduce_sum": np.sum, "reduce_mean": np.mean, "reduce_max": np.max, "reduce_prod": np.prod}.items():
        for axis, keep in ((None, False), (1, False), ((0, -1), True), (None, True)):
            got = values(getattr(ns, name)(y, axis, keep), (y, b))
            np.testing.assert_allclose(got, f(b, axis=axis, keepdims=keep), rtol=1e-5)
    p, q = ns.placeholder(np.float32, (4, 3)), ns.placeholder(np.float32, (5, 3))
    c, d = r.standard_normal((4, 3)).astype("f4"), r.standard_normal((5, 3)).astype("f4")
    np.testing.assert_allclose(values(ns.matmul(p, q, transpose_b=True), (p, c), (q, d)), c @ d.T, rtol=1e-5)
    np.testing.assert_allclose(values(ns.matmul(q, ns.constant(c.T), transpose_b=False), (q, d)), d @ c.T, rtol=1e-5)
    assert not np.any(values(ns.zeros((2, 3)))) and values(ns.ones([2])).tolist() == [1, 1]
    with pytest.raises(ArgumentError, match="have no product"):
        ns.matmul(p, q)
    with pytest.raises(ArgumentError, match="do not fit"):
        ns.add(p, q)


def test_cross_entropy_by_position():
    torch = pytest.importorskip("torch")
    logits, labels = np.random.default_rng(6).standard_normal((5, 4)).astype("f4"), np.array([0, 3, 1, 1, 2])
    x, t = ns.placeholder(np.float32, (5, 4)), ns.placeholder(np.int32, (5,))
    got = values(ns.sparse_softmax_cross_entropy_with_logits(labels=t, logits=x), (x, logits), (t, labels))
    want = torch.nn.functional.cross_entropy(torch.tensor(logits), torch.tensor(labels), reduction="none")
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_axes_by_position():
    axes = make_pos_axes((5, 1, 2))
    assert [a.name for a in axes] == ["POS_2", "POS_1", "POS_0"]
    x = ng.placeholder([axes[1], axes[2], axes[0]])
    assert [a.name for a in reorder_pos_axes(x).axes] == ["POS_2", "POS_1", "POS_0"]
    assert cast_to_pos_axes(ng.placeholder([ng.make_axis(3, name="H")])).axes[0].name == "POS_0"
    assert broadcasted_shape((1, 3), (2, 4, 1)) == (2, 4, 3) and is_compatible_broadcast_shape((1, 3), (7, 4, 3))
    a = np.arange(10, dtype=np.float32).reshape(5, 1, 2)
    y = ng.placeholder(axes)
    np.testing.assert_array_equal(values(broadcast_to(y, (4, 5, 3, 2)), (y, a)), np.broadcast_to(a, (4, 5, 3, 2)))
    with pytest.raises(ArgumentError):
        make_pos_axes((1, 2), (0, 0))
    picture = np.arange(24).reshape(1, 2, 3, 4)
    np.testing.assert_array_equal(np_layout_shuffle(picture, "NHWC", "CDHWN"), picture.transpose(3, 1, 2, 0)[:, None])
    np.testing.assert_array_equal(np_layout_shuffle(picture, "NHWC", "CHW"), picture[0].transpose(2, 0, 1))
    assert remove_tf_name_prefix("^a") == "a" and to_int((1.0, 2.0)) == (1, 2) and get_nested_attr(np, "linalg.norm") is np.linalg.norm


def test_windows_are_tensorflows():
    assert common_conv2d_pool_output_shape([2, 9, 8, 3], [3, 3, 3, 5], [1, 2, 3, 1], "SAME") == (2, 5, 3, 5)
    assert common_conv2d_pool_output_shape([2, 9, 8, 3], [3, 3, 3, 5], [1, 2, 3, 1], "VALID") == (2, 4, 2, 5)
    assert common_conv2d_pool_padding([2, 9, 8, 3], [3, 3, 3, 5], [1, 2, 3, 1], "SAME") == (1, 1, 0, 1)
    assert conv_output_dim(10, 3, "causal", 1, dilation=2) == 10 and deconv_output_dim(4, 3, 0, 2) == 9
    assert ConvParameters(10, 3).get_padding_size("full") == (2, 2)
    with pytest.raises(ArgumentError, match="channels"):
        common_conv2d_pool_output_shape([2, 9, 8, 3], [3, 3, 4, 5], [1, 1, 1, 1], "SAME")
    (x,) = squeeze_axes([ng.placeholder(make_pos_axes((3, 1, 2)))])
    assert x.axes.lengths == (3, 2)


@pytest.mark.parametrize("name", ["ngraph_bridge", "ngraph.bridge"])
def test_the_bridge_says_what_to_install_where_tensorflow_is_missing(monkeypatch, name):
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *of: None if name == "tensorflow" else there(name, *of))
    for module in ("ngraph_bridge", "ngraph.bridge"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(UnsupportedError, match="pip install tensorflow-cpu"):
        importlib.import_module(name)

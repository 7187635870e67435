"""Prices of clusters: what decides that TensorFlow runs one, the arithmetic of ops beside TensorFlow's own count, and what views show."""

import os
import warnings
from importlib import import_module

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="TensorFlow has an environment of its own: make bridge-tests")

import tensorflow as tf
from tensorflow.python.framework import ops

from ngraph.bridge import prices
from ngraph.bridge.flatten import FlatFunction, imported, typed
from ngraph.targets import chosen
from ngraph.transformers.executable.versions import VersionedExecutable

import_module("tensorflow.python.profiler.internal.flops_registry")  # it registers TensorFlow's own counts
RNG = np.random.default_rng(0)


def normal(*shape):
    return tf.constant(RNG.normal(size=shape).astype(np.float32))


def typed_nodes(function, *shapes):
    """A function of TensorFlow's, and the graph that knows its own count of operations."""
    graph = tf.Graph()
    with graph.as_default():
        holes = [tf.compat.v1.placeholder(tf.float32, s, name=f"x{k}") for k, s in enumerate(shapes)]
        function(*holes)
    proto = graph.as_graph_def()
    takes = [h.op.name for h in holes]
    inner = type(proto)(node=[n for n in proto.node if n.name not in takes], versions=proto.versions)
    for node in inner.node:
        node.input[:] = [f"{i}:0" if i in takes else i for i in node.input]
    flat = FlatFunction("f", inner, takes, [], [])
    return typed(flat, imported(flat, [tf.TensorSpec(s) for s in shapes])), graph


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda a, b: tf.matmul(a, b), [(3, 5), (5, 7)]),
        (lambda a, b: tf.matmul(a, b, transpose_a=True), [(5, 3), (5, 7)]),
        (lambda a, b: tf.matmul(a, b, transpose_b=True), [(3, 5), (7, 5)]),
        (lambda x, w: tf.nn.conv2d(x, w, 1, "SAME"), [(2, 9, 7, 3), (3, 2, 3, 5)]),
        (lambda x, w: tf.nn.conv2d(x, w, 2, "VALID"), [(2, 9, 7, 3), (3, 2, 3, 5)]),
        (lambda x, w: tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME"), [(2, 9, 7, 3), (3, 2, 3, 2)]),
    ],
)
def test_products_have_the_operations_that_tensorflow_counts(function, shapes):
    found, graph = typed_nodes(function, *shapes)
    named = [n for n in found.nodes.values() if "MatMul" in n.op or "onv2" in n.op]
    assert len(named) == 1
    proto = next(n for n in graph.as_graph_def().node if n.name == named[0].name)
    assert prices.flops(found, named[0]) == ops.get_stats_for_node_def(graph, proto, "flops").value


def test_products_of_einsum_and_gradients_are_counted():
    """A gradient of a convolution multiplies as many pairs as the convolution; an einsum one pair for each place of all its labels."""
    found, _ = typed_nodes(lambda a, b: tf.einsum("...ij,jk->...ik", a, b), (2, 3, 4, 5), (5, 6))
    (node,) = [n for n in found.nodes.values() if n.op == "Einsum"]
    assert prices.flops(found, node) == 2 * 2 * 3 * 4 * 5 * 6
    found, _ = typed_nodes(lambda a, b: tf.matmul(a, b, adjoint_a=True), (2, 5, 3), (2, 5, 7))
    (node,) = [n for n in found.nodes.values() if "MatMul" in n.op]
    assert prices.flops(found, node) == 2 * 2 * 3 * 5 * 7

    def gradients(x, w):
        with tf.GradientTape() as tape:
            tape.watch((x, w))
            y = tf.nn.conv2d(x, w, 2, "SAME")
        return tape.gradient(y, (x, w))

    found, _ = typed_nodes(gradients, (2, 8, 6, 3), (3, 3, 3, 5))
    counts = {n.op: prices.flops(found, n) for n in found.nodes.values() if "Conv2D" in n.op}
    assert counts == dict.fromkeys(("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"), 2 * (2 * 4 * 3 * 5) * (3 * 3 * 3))


def test_prices_follow_the_lengths_and_stay_away_from_what_is_not_measured():
    def price(function, *shapes):
        found, _ = typed_nodes(function, *shapes)
        return prices.in_tensorflow(found, list(found.nodes), chosen())

    few, many = (price(lambda a, b: tf.nn.relu(a @ b), (n, 256), (256, 256)) for n in (4, 400))
    assert 0 < few < many
    assert price(lambda x: x**2.0, (400, 400)) < price(lambda x: x**1.7, (400, 400))  # TensorFlow squares
    assert price(lambda x: tf.linalg.inv(x) + 1.0, (4, 4)) is None
    assert price(lambda x: tf.while_loop(lambda y: tf.reduce_sum(y) < 9, lambda y: y + 1, [x])[0], (4,)) is None


def layer(x, w):
    return tf.nn.softmax(tf.nn.relu(x @ w) * 2.0)


def clusters(bridge):
    return [c for f in bridge.report().json()["functions"] for c in f["clusters"]]


def wanted(x, w):
    y = np.maximum(x @ w, 0) * 2.0
    e = np.exp(y - y.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_the_price_of_the_plan_decides(bridge, monkeypatch, tmp_path, seconds):
    """A cluster is kept or given back by what its plan costs; answers are NumPy's in the first call and in those behind it."""
    monkeypatch.setattr(VersionedExecutable, "predicted", lambda self: seconds)
    monkeypatch.setenv("NGRAPH_TF_DUMP_GRAPHS", str(tmp_path))
    f = tf.function(layer)
    x, w = normal(256, 301), normal(301, 307)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a decision is no failure
        for _ in range(3):
            np.testing.assert_allclose(f(x, w), wanted(x.numpy(), w.numpy()), rtol=1e-4, atol=1e-6)
    report = bridge.report()
    assert not report.fallbacks
    (told,) = report.json()["functions"]
    dumped = sorted(p for p in os.listdir(tmp_path) if p.endswith(".txt") and "declustered" in p)
    last = (tmp_path / dumped[-1]).read_text()
    if seconds:
        assert not told["clusters"] and "in about" in told["given back"][0]["reason"] and "given back" in str(report)
        assert len(dumped) == 2 and "its cluster was given back: TensorFlow runs it in about" in last
    else:
        (c,) = told["clusters"]
        assert c["calls"] == 3 and 0 < c["price"] < c["price in TensorFlow"] and ", price " in str(report)
        assert len(dumped) == 1 and "cluster 0" in last


def test_the_prices_of_kept_and_small_clusters(bridge):
    """What costs less than a call of a cluster is not even planned; long chains of large tensors are kept."""
    f = tf.function(lambda x: tf.nn.relu(tf.tanh(x) * 2.0 + 1.0))
    for _ in range(2):
        f(normal(5))
        f(normal(1000, 1000))
    given = [d["reason"] for t in bridge.report().json()["functions"] for d in t["given back"]]
    assert len(given) == 1 and "in about" in given[0]
    (c,) = clusters(bridge)
    assert c["calls"] == 2 and c["price"] < c["price in TensorFlow"]


def test_nothing_is_given_back_where_the_environment_says_so(bridge, every_cluster, monkeypatch):
    monkeypatch.setattr(VersionedExecutable, "predicted", lambda self: 1.0)
    f = tf.function(layer)
    x, w = normal(3, 5), normal(5, 7)
    for _ in range(2):
        np.testing.assert_allclose(f(x, w), wanted(x.numpy(), w.numpy()), rtol=1e-4, atol=1e-6)
    (c,) = clusters(bridge)
    assert c["calls"] == 2 and "price" not in c

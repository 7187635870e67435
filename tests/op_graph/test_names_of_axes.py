"""Axes by name: text that makes them, and names in every argument that takes axes."""

import gc

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import AxisError


def run(op, *pairs):
    holes = [hole for hole, _ in pairs]
    return ngt.make_transformer_factory("numpy")().computation(op, *holes)(*[value for _, value in pairs])


def test_text_makes_axes():
    N, H, W = ng.axes("N=? H=28, W=5")
    assert [(a.name, a.length) for a in (N, H, W)] == [("N", None), ("H", 28), ("W", 5)] and N.is_batch
    assert ng.axes("") == () and ng.axes([H, "W"])[1] is W
    assert ng.axes("H' W+1")[0] == H - 1 and ng.axes("H'' W+1").lengths == (28, 5) and ng.axes("H''")[0] == H - 2


def test_a_name_and_length_in_use_are_reused():
    x = ng.placeholder("N=? D=3")
    w = ng.variable("D K=5")
    assert w.axes[0] is x.axes[1] and w.axes.lengths == (3, 5)
    assert ng.axes("D=3")[0] is x.axes[1] and ng.axes("D=4")[0] is not x.axes[1]
    assert ng.axes("N=?")[0] is not x.axes[0]  # a length that comes later may be another one


def test_what_is_no_longer_in_use_is_forgotten():
    ng.axes("Unused=7")
    gc.collect()
    assert ng.axes("Unused")[0].length is None


def test_a_scope_sees_its_own_axes_and_those_around_it():
    outer = ng.axes("D=3")[0]
    with ng.name_scope("inner"):
        assert ng.axes("D")[0] is outer
        inner = ng.axes("D=4")[0]
        assert ng.axes("D")[0] is inner
        with ng.name_scope("most"):
            assert ng.axes("D")[0] is inner
    assert ng.axes("D")[0] is outer


def test_lengths_that_are_open_meet():
    x, t = ng.placeholder("N=? D=3"), ng.placeholder("N=?")
    loss = ng.sum((ng.sum(x, "D") - t) ** 2, out_axes=())
    assert run(loss, (x, np.ones((2, 3))), (t, [3, 1])) == 4
    with pytest.raises(ng.NgraphError, match="axis N has length 2"):
        run(loss, (x, np.ones((2, 3))), (t, np.ones(3)))


X, Y = ng.placeholder("N=2 H=3 W=4"), ng.placeholder("H=3 K=5")
IMAGE, FILTERS = ng.placeholder("N=2 C=3 H=6 W=7"), ng.placeholder("C=3 R=2 S=3 K=5")
IDX = ng.placeholder("N=2", dtype="int32")
ax, ay, ai = X.axes, Y.axes, IMAGE.axes
N, H, W = ax

SAME = {  # with names, and with axes
    "sum": (lambda: ng.sum(X, "H"), lambda: ng.sum(X, [H])),
    "sum of two": (lambda: ng.sum(X, "H W"), lambda: ng.sum(X, [H, W])),
    "mean": (lambda: ng.mean(X, ["H", W]), lambda: ng.mean(X, [H, W])),
    "out_axes": (lambda: ng.max(X, out_axes="W, N"), lambda: ng.max(X, out_axes=[W, N])),
    "variance": (lambda: ng.variance(X, reduction_axes="H"), lambda: ng.variance(X, reduction_axes=[H])),
    "argmax": (lambda: ng.argmax(X, reduction_axes="W H"), lambda: ng.argmax(X, reduction_axes=[W, H])),
    "softmax": (lambda: ng.softmax(X, "W"), lambda: ng.softmax(X, [W])),
    "log_softmax": (lambda: ng.log_softmax(X, ["W"]), lambda: ng.log_softmax(X, [W])),
    "logsumexp": (lambda: ng.logsumexp(X, "W"), lambda: ng.logsumexp(X, [W])),
    "contract": (lambda: ng.contract(X, Y, over="H"), lambda: ng.contract(X, Y, over=(H,))),
    "contract more": (lambda: ng.contract(X, Y, over=["H", "K"]), lambda: ng.contract(X, Y, over=(H, ay[1]))),
    "dot": (lambda: ng.dot(X, Y, out_axes="K W N"), lambda: ng.dot(X, Y, out_axes=[ay[1], W, N])),
    "einsum": (lambda: ng.einsum(X, Y, out_axes="K N"), lambda: ng.einsum(X, Y, out_axes=[ay[1], N])),
    "flatten": (lambda: ng.flatten(X, "W H"), lambda: ng.flatten(X, [W, H])),
    "unflatten": (lambda: ng.unflatten(X, "N H W1=2 W2=2"), lambda: ng.unflatten(X, [N, H, *ng.axes("W1=2 W2=2")])),
    "broadcast": (lambda: ng.broadcast(X, "H B=2 W N"), lambda: ng.broadcast(X, [H, *ng.axes("B=2"), W, N])),
    "axes_with_order": (lambda: ng.axes_with_order(X, "W N H"), lambda: ng.axes_with_order(X, [W, N, H])),
    "cast_axes": (lambda: ng.cast_axes(X, "P Q R"), lambda: ng.cast_axes(X, ng.axes("P=2 Q=3 R=4"))),
    "expand_dims": (lambda: ng.expand_dims(X, "B=2", 1), lambda: ng.expand_dims(X, ng.make_axis(2, "B"), 1)),
    "flip": (lambda: ng.flip(X, "H W"), lambda: ng.flip(X, [H, W])),
    "a slice": (lambda: X["W", 1:3], lambda: X[:, :, 1:3]),
    "two slices": (lambda: X["W", 1:, "N", 0], lambda: X[0, :, 1:]),
    "slices as a dict": (lambda: X[{"H": slice(2, None), W: -1}], lambda: X[:, 2:, -1]),
    "pad": (lambda: ng.pad(X, {"H": 1}), lambda: ng.pad(X, {H: 1})),
    "stack": (lambda: ng.stack([X, X], "B"), lambda: ng.stack([X, X], ng.make_axis(2, "B"))),
    "concat": (lambda: ng.concat_along_axis([X, X], "H"), lambda: ng.concat_along_axis([X, X], H)),
    "take": (lambda: ng.take(X, IDX, "H", out_axes="W N"), lambda: ng.take(X, IDX, H, out_axes=[W, N])),
    "gather": (lambda: ng.gather(X, IDX, axes="H"), lambda: ng.gather(X, IDX, axes=(H,))),
    "lookuptable": (lambda: ng.lookuptable(Y, IDX, "K N"), lambda: ng.lookuptable(Y, IDX, [ay[1], N])),
    "one_hot": (lambda: ng.one_hot(IDX, "Q=4"), lambda: ng.one_hot(IDX, ng.make_axis(4, "Q"))),
    "iota": (lambda: ng.iota("Q=4"), lambda: ng.iota(ng.make_axis(4, "Q"))),
    "top_k": (lambda: ng.top_k(X, "W", "V=2")[1], lambda: ng.top_k(X, W, ng.make_axis(2, "V"))[1]),
    "sort": (lambda: ng.sort(X, "W"), lambda: ng.sort(X, W)),
    "cumsum": (lambda: ng.cumsum(X, "W"), lambda: ng.cumsum(X, W)),
    "conv": (
        lambda: ng.conv(IMAGE, FILTERS, {"H": "R", "W": "S"}, out={"H": "P", "W": "Q"}),
        lambda: ng.conv(
            IMAGE, FILTERS, {ai[2]: FILTERS.axes[1], ai[3]: FILTERS.axes[2]}, out=dict(zip(ai[2:], ng.axes("P=5 Q=5"), strict=True))
        ),
    ),
    "max_pool": (
        lambda: ng.max_pool(IMAGE, {"H": 2}, out={"H": "P=3"}),
        lambda: ng.max_pool(IMAGE, {ai[2]: 2}, out={ai[2]: ng.axes("P=3")[0]}),
    ),
    "scan": (
        lambda: ng.scan(lambda c, x: (c + x, c), ng.constant(0.0, "N=2 W=4"), X, "H")[1],
        lambda: ng.scan(lambda c, x: (c + x, c), ng.constant(0.0, [N, W]), X, H)[1],
    ),
    "map_roles": (lambda: ng.map_roles(X, {"H": "P"}), lambda: ng.map_roles(X, {H: ng.make_axis(3, "P")})),
    "diagonal": (lambda: ng.diagonal(X, "H", "W"), lambda: ng.diagonal(X, H, W)),
}


@pytest.mark.parametrize("name", SAME)
def test_a_name_does_what_the_axis_does(name):
    by_name, by_axis = (make() for make in SAME[name])
    assert by_name.axes == by_axis.axes and by_name.axes.lengths == by_axis.axes.lengths
    random = np.random.default_rng(0)
    feeds = [(x, random.integers(0, 3, x.axes.lengths) if x is IDX else random.random(x.axes.lengths)) for x in (X, Y, IMAGE, FILTERS, IDX)]
    feeds = [(x, value) for x, value in feeds if x in {*by_name.placeholders(), *by_axis.placeholders()}]
    np.testing.assert_array_equal(*run([by_name, by_axis], *feeds))


def test_duals_by_name():
    w = ng.placeholder("K=2 D'=3")
    assert ng.sum(w, "D'").axes == ng.axes("K=2") and ng.contract(w, w, over="D'").axes == w.axes[:1]


def test_a_slice_by_name_is_written_in_pairs():
    for wrong in (lambda: X["H"], lambda: X["H", 1, "W"], lambda: X["H", 1, 2, 3]):
        with pytest.raises(AxisError, match="do not alternate"):
            wrong()
    with pytest.raises(AxisError, match="(?s)Q is not an axis.*N=2, H=3, W=4"):
        X["Q", 1]
    assert X["H", IDX].axes == ng.take(X, IDX, "H").axes

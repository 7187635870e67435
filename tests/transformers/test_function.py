"""`ng.function`: results in any nest that know their axes, values by position, by name, or as one dict."""

import copy
import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ArgumentError, AxisError, GraphError, UnknownName

DATA = np.random.default_rng(0).random((4, 3)).astype(np.float32)


def test_the_program_of_the_readme():
    x = ng.placeholder("N=? D=3")
    w = ng.variable("D K=5", initial_value=ng.KaimingInit())
    f = ng.function({"mean": (x @ w).mean("N"), "top": ng.argmax(x @ w, "K")}, x)
    found = f(x=DATA)
    assert found["mean"].axes == w.axes[1:] and found["mean"].axes.lengths == (5,) and found["top"].axes.lengths == (4,)
    values = f.transformer.get(w)
    np.testing.assert_allclose(found["mean"], (DATA @ values).mean(0), rtol=1e-5)
    np.testing.assert_array_equal(found["top"], (DATA @ values).argmax(1))
    assert values.std() > 0 and "x[N=?, D=3]" in repr(f)


def test_results_are_arrays_that_know_their_axes():
    x = ng.placeholder("N=? D=3")
    got = ng.function(x * 2, x)(DATA)
    assert isinstance(got, np.ndarray) and got.dims == ("N", "D") and got.axes.lengths == (4, 3)
    for plain in (got + 1, np.exp(got), got @ got.T, np.asarray(got)):
        assert type(plain) is np.ndarray
    with pytest.raises(GraphError, match="a part of a result"):
        got[0].axes  # noqa: B018
    assert isinstance(got.sum(), np.floating) and float(ng.function(ng.sum(x, out_axes=()), x)(DATA)) == pytest.approx(DATA.sum())
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(got)), got)
    np.testing.assert_array_equal(ng.function(x + 1, x)(got), got + 1)


def test_an_ordinary_computation_gives_ordinary_arrays():
    x = ng.placeholder("N=? D=3")
    assert type(ngt.make_transformer().computation(x * 2, x)(DATA)) is np.ndarray


def test_values_by_position_by_name_and_as_one_dict():
    a, b = ng.placeholder("D=3"), ng.placeholder("D=3").named("second")
    f = ng.function(a - b, a, b)
    one, two = np.ones(3), np.full(3, 2.0)
    for got in (f(one, two), f(a=one, second=two), f(one, second=two), f({"a": one, "second": two}), f({a: one, b: two})):
        np.testing.assert_array_equal(got, [-1, -1, -1])
    np.testing.assert_array_equal(ng.function(a - b, left=a, right=b)(right=one, left=two), [1, 1, 1])


@dataclasses.dataclass
class Pair:
    left: Any
    right: Any


def test_nests_of_inputs_and_results():
    a, b, c = (ng.placeholder("D=3") for _ in range(3))
    f = ng.function(Pair(a + b, [b * c, {"c": c}, None]), {"a": a, "more": (b, c)})
    got = f({"a": np.ones(3), "more": (np.full(3, 2.0), np.full(3, 5.0))})
    assert isinstance(got, Pair) and got.right[2] is None
    np.testing.assert_array_equal(got.left, [3, 3, 3])
    np.testing.assert_array_equal(got.right[0], [10, 10, 10])
    assert got.right[1]["c"].dims == ("D",)
    by_leaf = ng.function(a * b, {"a": a, "b": b})
    np.testing.assert_array_equal(by_leaf(a=np.ones(3), b=np.full(3, 7.0)), [7, 7, 7])


def test_functions_share_the_values_of_variables():
    w = ng.variable("D=3", initial_value=1.0)
    step = ng.function({"done": ng.assign(w, w + 1.0)})
    assert step()["done"] is None
    step()
    np.testing.assert_array_equal(ng.function(w)(), [3, 3, 3])
    own = ngt.make_transformer()
    np.testing.assert_array_equal(ng.function(w, transformer=own)(), [1, 1, 1])


def test_a_function_of_ops_is_applied_to_the_inputs():
    x = ng.placeholder("D=3")
    np.testing.assert_allclose(ng.function(ng.grad(lambda x: ng.sum(x * x)), x)([1, 2, 3]), [2, 4, 6])


def test_errors_name_the_inputs():
    x, t = ng.placeholder("N=? D=3"), ng.placeholder("N=?")
    f = ng.function(ng.sum(x, "D") - t, x, t)
    with pytest.raises(ArgumentError, match=r"t \[N=\?\] is not given(?s:.*)write f\(x=\.\.\., t=\.\.\.\)"):
        f(DATA)
    with pytest.raises(ArgumentError, match="takes 2 inputs, not 3"):
        f(1, 2, 3)
    with pytest.raises(ArgumentError, match="x is given twice"):
        f(DATA, DATA, x=DATA)
    target = t
    g = ng.function(target * 2, {"target": target})
    with pytest.raises(ArgumentError, match="has the parts target, and got other"):
        g({"other": 1})
    with pytest.raises(UnknownName, match="no input taget"):
        ng.function(target * 2, target=target)(taget=1)
    with pytest.raises(GraphError, match="3 is not an input"):
        ng.function(x, 3)
    with pytest.raises(GraphError, match="needed"):
        ng.function(x + 1)


def test_inputs_are_axes_as_text():
    """A placeholder for each text, named as the parameter of the function or as the keyword; texts share axes by name."""
    f = ng.function(lambda x, w: ng.sum(x * w["scale"], "D") + w["shift"], "N=? D=3", {"scale": "D", "shift": ""})
    w = {"scale": [1, 0, 2], "shift": 1}
    np.testing.assert_allclose(f(x=[[1, 2, 3]], w=w), [8])
    np.testing.assert_allclose(f([[1, 2, 3], [0, 0, 1]], w), [8, 3])
    np.testing.assert_allclose(ng.function(lambda a, b: a - b, b="N=2", a="N")(a=[1, 2], b=[3, 5]), [-2, -3])
    with pytest.raises(AxisError, match="D occurs twice"):
        ng.function(lambda x: x, "D=3 D")


def test_copies_of_results_know_their_axes():
    x = ng.placeholder("N=? D=3")
    found = ng.function(x * 2, x)(DATA)
    for again in (copy.copy(found), copy.deepcopy(found), found.copy(), pickle.loads(pickle.dumps(found))):
        assert again is not found and not np.shares_memory(again, found)
        assert again.axes == found.axes and again.axes.lengths == (4, 3) and again.dims == ("N", "D")
        np.testing.assert_array_equal(again, DATA * 2)
    assert type(found + 1) is np.ndarray
    for part in (found[0], pickle.loads(pickle.dumps(found.T))):
        with pytest.raises(GraphError, match="a part of a result"):
            _ = part.axes


def test_xarray_in_and_out():
    xarray = pytest.importorskip("xarray")
    x = ng.placeholder("N=? D=3")
    f = ng.function({"twice": x * 2, "sum": ng.sum(x, "N D")}, x)
    given = xarray.DataArray(DATA.T, dims=("D", "N"))
    out = f.to_xarray(x=given)
    assert out["twice"].dims == ("N", "D") and out["sum"].dims == ()
    np.testing.assert_allclose(out["twice"].values, DATA * 2)
    assert ng.function(x * 2, x, xarray=True)(given).dims == ("N", "D")

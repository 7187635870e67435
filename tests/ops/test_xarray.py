"""Arrays of xarray meet axes by the names of their dims, in any order."""

import contextlib
import subprocess
import sys

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ArgumentError, AxisError

xarray = pytest.importorskip("xarray")
H, N = ng.make_axis(3, name="H"), ng.make_axis(4, name="N")
V = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
BY_NAME = xarray.DataArray(V.T, dims=("N", "H"))


@pytest.fixture(params=["direct", "numpy", "cpu"])
def compute(request):
    def run(ops, parameters=(), values=()):
        with ngt.make_transformer_factory(request.param)() as transformer:
            return transformer.computation(ops, *parameters)(*values)

    return run


def test_arguments_may_have_their_dims_in_any_order(compute):
    x = ng.placeholder([H, N])
    for given in (BY_NAME, BY_NAME.transpose("H", "N"), BY_NAME.variable, BY_NAME.astype("float64")):
        np.testing.assert_array_equal(compute(x + 1, [x], [given]), V + 1)
    square = ng.make_axis(3, name="K")
    y = ng.placeholder([H, square])  # lengths alone could not tell
    v = np.arange(9.0).reshape(3, 3)
    np.testing.assert_array_equal(compute(y * 1, [y], [xarray.DataArray(v, dims=("K", "H"))]), v.T)


def test_names_in_scopes_and_lengths_that_come_with_the_call(compute):
    ax = ng.make_name_scope("ax")
    ax.N, ax.H = ng.make_axis(), ng.make_axis(3)
    x = ng.placeholder([ax.H, ax.N])
    np.testing.assert_array_equal(compute(x * 2, [x], [BY_NAME]), V * 2)
    with ngt.make_transformer() as t:
        computation = t.computation(x * 2, x)
        for _ in range(2):  # also when the first call has settled how arguments come
            np.testing.assert_array_equal(computation(BY_NAME), V * 2)
            np.testing.assert_array_equal(computation(V), V * 2)


@pytest.mark.parametrize("scope", [None, "maps"])
def test_duals_are_called_as_they_are_printed(scope):
    with ng.name_scope(scope) if scope else contextlib.nullcontext():
        axis = ng.make_axis(3, name="H")
        x = ng.placeholder([axis, axis - 1])
    v = np.arange(9.0).reshape(3, 3)
    f = ng.function(x + 1, x)
    dims = f.to_xarray(v).dims
    for order in (dims, dims[::-1], ("H", "H'"), ("H'", "H")):
        given = xarray.DataArray(v, dims=dims if order[0] in dims else ("H", "H'"))
        np.testing.assert_array_equal(f(given.transpose(*order)), v + 1)


def test_constants_have_the_axes_of_their_dims(compute):
    c = ng.constant(BY_NAME)
    assert c.axes == (N, H)
    assert ng.constant(BY_NAME, [H, N]).axes == (H, N)
    x = ng.placeholder([H, N])
    np.testing.assert_array_equal(compute(ng.constant(BY_NAME, [H, N])), V)
    np.testing.assert_array_equal(compute(x + c, [x], [V]), V + V)
    np.testing.assert_array_equal(compute(x + BY_NAME, [x], [V]), V + V)
    np.testing.assert_array_equal(compute(x * BY_NAME[:, 0], [x], [V]), V * V[0])


def test_state_takes_them_too():
    w = ng.variable([H, N], initial_value=BY_NAME)
    with ngt.make_transformer() as t:
        np.testing.assert_array_equal(t.computation(w * 1)(), V)
        t.computation(ng.assign(w, BY_NAME * 2))()
        np.testing.assert_array_equal(t.computation(w * 1)(), V * 2)


def test_other_dims_are_refused_with_both_sides():
    x = ng.placeholder([H, N])
    with ngt.make_transformer() as t:
        with pytest.raises(ArgumentError, match=r"\[H=3, N=4\], and got the dims \(N, Q\)"):
            t.computation(x + 1, x)(BY_NAME.rename(H="Q"))
        with pytest.raises(ArgumentError, match=r"got the dims \(N\)"):
            t.computation(x + 1, x)(BY_NAME[:, 0])
        with pytest.raises(ArgumentError, match="axis N of placeholder .* has length 4, and got 2"):
            t.computation(x + 1, x)(BY_NAME[:2])
    with pytest.raises(AxisError, match="a constant has the axes"):
        ng.constant(BY_NAME, [H])


def test_xarray_is_not_imported():
    code = "import sys, ngraph, ngraph.transformers; sys.exit('xarray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

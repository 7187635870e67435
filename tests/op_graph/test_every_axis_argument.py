"""Every public function that takes an axis of its first operand takes the axis's name, and answers a misspelt one with the nearest."""

import inspect

import numpy as np
import pytest

import ngraph as ng
from ngraph.op_graph.opdef import OpDef

AXIS = ("axis", "axes", "reduction_axes", "normalization_axes", "other", "channel", "rows", "columns", "along", "parts")
X = ng.placeholder("N=2 Rows=6 Wide=6")
MORE = {  # arguments besides the axes
    "layer_norm": {}, "group_norm": {"groups": 2}, "repeat": {"count": 2},
    "roll": {"shift": 1}, "split": {"parts": 2}, "quantile": {"q": 0.5},
    "norm": {"p": 2}, "top_k": {"k": 2}, "pixel_shuffle": {"factors": {"Wide": 2}}, "stft": {"size": 4, "hop": 2}, "matrix_power": {"n": 2},
    "kron": {"y": X}, "slice_along_axis": {"idx": 0}, "take": {"idx": ng.constant([0, 1], "K=2")}, "lstsq": {"b": ng.ones("Rows=6")},
    "histogram": {"bins": "K=3"}, "solve": {"b": ng.ones("Rows=6")}, "triangular_solve": {"b": ng.ones("Rows=6")},
}  # fmt: skip
# functions whose axes are new ones, or those of the result
NEW = """axes_with_order broadcast cast_axes cast_role expand_dims unflatten iota arange one_hot stack linspace ones zeros full
eye permutation
bernoulli normal uniform randint constant placeholder variable temporary persistent_tensor constant_storage make_axes axes lookuptable
convolution deconvolution pooling ctc gather grid_sample all_gather reduce_scatter rearrange categorical
truncated_normal gamma poisson
random_axes pad put scatter_add scan vmap sort slice_axis spatial_axis tensor_slice concat_along_axis cross searchsorted bincount
broadcast_from compute_reduction_axes segment_sum segment_max segment_mean eigh dualed_axes""".split()


def taken():
    """Yields (label, function, its parameters that are axes)."""
    for module in (ng, ng.linalg):
        for name in dir(module):
            f = getattr(module, name)
            if name.startswith("_") or name in NEW or not inspect.isfunction(f) or isinstance(f, OpDef):
                continue
            if module is ng.linalg and inspect.unwrap(f).__module__ != "ngraph.ops.linalg":
                continue
            found = [p for p in inspect.signature(f).parameters if p in AXIS and p not in MORE.get(name, {})]
            if found and next(iter(inspect.signature(f).parameters)) in ("x", "a", "logits"):
                yield f"{module.__name__.rpartition('.')[2]}.{name}", f, found


TAKEN = {name: (f, found) for name, f, found in taken()}


def called(name, first, second):
    f, found = TAKEN[name]
    x = ng.constant(np.eye(6) + np.ones((2, 6, 6)) * 0.1, X.axes)
    return f(x, **dict(zip(found, (first, second), strict=False)), **MORE.get(name.rpartition(".")[2], {}))


@pytest.mark.parametrize("name", sorted(TAKEN))
def test_a_name_is_its_axis(name):
    rows, wide = X.axes[1:]
    for by_name, by_axis in zip(leaves(called(name, "Rows", "Wide")), leaves(called(name, rows, wide)), strict=True):
        assert [a.length for a in by_name.axes] == [a.length for a in by_axis.axes] and by_name.opdef is by_axis.opdef
    with pytest.raises(ng.NgraphError, match=r"(?s)Rowz.*(name one of|as Rows|Rows)"):
        called(name, "Rowz", "Wide")


@pytest.mark.parametrize("name", sorted(TAKEN))
def test_one_axis_may_stand_in_a_list(name):
    for listed, alone in zip(leaves(called(name, ["Rows"], "Wide")), leaves(called(name, "Rows", "Wide")), strict=True):
        assert listed.axes == alone.axes and listed.axes.lengths == alone.axes.lengths and listed.opdef is alone.opdef


@pytest.mark.parametrize("f", [ng.sum, ng.mean, ng.max, ng.var, ng.std, ng.argmax, ng.logsumexp, ng.median, ng.norm])
def test_axes_are_read_once(f):
    """A generator gives the axes that a list gives; NumPy says the values."""
    array = np.random.default_rng(1).random((2, 3, 4))
    x = ng.constant(array, "N=2 H=3 W=4")
    argument = "reduction_axes"
    found = ng.function(f(x, **{argument: (name for name in ("H", "W"))}))()
    flat = array.reshape(2, 12)
    own = {"logsumexp": lambda a, axis: np.log(np.exp(a).sum(axis)), "norm": lambda a, axis: np.linalg.norm(a, axis=axis)}
    np.testing.assert_allclose(found, own.get(f.__name__, getattr(np, f.__name__, None))(flat, axis=1))


def leaves(made):
    return [made] if not isinstance(made, (tuple, list)) else list(made)


def test_there_are_many():
    assert len(TAKEN) > 45

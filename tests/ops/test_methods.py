"""Methods of ops are the functions of the package, by one table; attributes say axes and lengths by name."""

import inspect

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import OpDef
from ngraph.ops import methods

X = ng.placeholder("N=? H=3 W=4", dtype="float64")
ARGUMENTS = {
    **dict.fromkeys(("add", "sub", "mul", "div", "divide", "maximum", "minimum", "multiply", "subtract", "pow"), (2.0,)),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or"), (0.5,)),
    **dict.fromkeys("all any argmax argmin logsumexp log_softmax max mean min prod softmax sum std var median".split(), ("H",)),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "sort", "argsort", "flip", "logcumsumexp"), ("W",)),
    **dict.fromkeys(("clip", "clamp"), (0.1, 0.4)),
    "astype": ("int32",),
    "broadcast": ("B=2 N H W",),
    "dot": (ng.constant(np.arange(12.0).reshape(4, 3), "W=4 K=3"),),
    "flatten": ("H W",),
    "logical_not": (),
    "pad": ({"H": 1},),
    "rearrange": ("N H W -> (H W) N",),
    "rename": ({"H": "P"},),
    "take": (ng.constant([2, 0], "K=2", dtype="int32"), "H"),
    "transpose": ("W N H",),
    "diagonal": ("H", "W"),
    "top_k": ("W", 2),
    "where": (1.0, 2.0),
    "roll": (1, "H"),
    "repeat": (2, "H"),
    "norm": (2, "H"),
}
LATER = {"unflatten", "split", "tile", "unstack", "quantile", "unique", "tril", "triu"}  # their own tests call them


def run(*results):
    return ngt.make_transformer_factory("numpy")().computation(list(results), X)(np.random.default_rng(3).random((2, 3, 4)))


@pytest.mark.parametrize("name", sorted(set(methods.installed()) - LATER))
def test_a_method_is_its_function(name):
    function = getattr(ng, methods.METHODS[name])
    x = X > 0.5 if name in ("where", "logical_not", "all", "any") else X
    given = ARGUMENTS.get(name, ())
    mine, other = (f(*given) for f in (getattr(x, name), lambda *a: function(x, *a)))
    pairs = list(zip(mine, other, strict=True)) if isinstance(mine, tuple) else [(mine, other)]
    for a, b in pairs:
        assert a.axes == b.axes and a.axes.lengths == b.axes.lengths and a.dtype is b.dtype and a.opdef is b.opdef
        np.testing.assert_array_equal(*run(a, b))


def test_every_function_of_the_table_is_there_or_is_no_function_yet():
    assert {m for m, f in methods.METHODS.items() if hasattr(ng.api, f)} == set(methods.installed())
    assert {"sum", "mean", "argmax", "cumsum", "astype", "abs", "exp", "rearrange", "rename", "eq"} <= set(methods.installed())


def test_no_method_hides_an_attribute():
    own = set(Op.__slots__) | {n for n, v in vars(Op).items() if isinstance(v, (property, staticmethod)) and n != "T"}
    assert own & set(methods.METHODS) == set()


def test_a_method_has_the_signature_and_the_help_of_its_function():
    for name, function in methods.installed().items():
        method, f = getattr(Op, name), getattr(ng, function)
        assert (method.__doc__ or "").startswith((f.doc if isinstance(f, OpDef) else f.__doc__).split("\n")[0][:40])
        assert list(inspect.signature(method).parameters)[1:] == list(inspect.signature(f).parameters)[1:]


def test_type_checkers_know_the_methods():
    source = inspect.getsource(Op)
    lines = [line.strip().removesuffix("_method").removesuffix("_several") for line in source.splitlines() if "= _" in line]
    declared = {n for line in lines if line.endswith(" = ") for n in line.split(" = ")}
    assert {n.strip() for n in declared} - {""} == set(methods.METHODS)


def test_shape_by_name():
    assert X.shape == X.axes and X.shape["H"] == 3 and X.shape["N"] is None and list(X.shape) == list(X.axes)
    assert X.dims == ("N", "H", "W") and X.lengths == (None, 3, 4) and X.sizes == {"N": None, "H": 3, "W": 4}
    assert X.axes["W"] is X.axes[2] and isinstance(X.shape[1:], ng.Axes) and X.T.axes == X.axes[::-1]
    with pytest.raises(ng.NgraphError, match="Q is not an axis of"):
        X.shape["Q"]


def test_a_method_that_is_not_there_names_the_function():
    with pytest.raises(ng.NgraphError, match="ng.expand_dims"):
        X.unsqueeze(0)
    with pytest.raises(ng.NgraphError, match="write x.softmax"):
        X.sofmax("H")

"""The collectives on one process: the identity, with derivatives that are collectives again, and never folded away."""

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ArgumentError, AxisError, DTypeError, UnsupportedError
from ngraph.passes import default_passes
from ngraph.program.lower import lower
from ngraph.rewrite.runner import run

H, N, M = ng.make_axis(3, name="H"), ng.make_axis(4, name="N"), ng.make_axis(4, name="M")
MADE = {
    "all_reduce": lambda x: ng.all_reduce(x),
    "all_reduce of the largest": lambda x: ng.all_reduce(x, "max"),
    "all_gather": lambda x: ng.all_gather(x, N, M),
    "reduce_scatter": lambda x: ng.reduce_scatter(x, "N", M),
    "reduce_scatter of the smallest": lambda x: ng.reduce_scatter(x, N, kind="min"),
    "broadcast_from": lambda x: ng.broadcast_from(x, 0),
}


@pytest.mark.parametrize("name", ["direct", "numpy", "cpu"])
@pytest.mark.parametrize("case", MADE)
def test_one_process_has_it_all(case, name):
    x, v = ng.placeholder([H, N]), np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    y = MADE[case](x)
    with ngt.make_transformer_factory(name)() as transformer:
        got, slope = transformer.computation([y, ng.deriv(ng.sum(y * y, out_axes=()), x)], x)(v)
    np.testing.assert_array_equal(got, v)
    np.testing.assert_allclose(slope, 2 * v, rtol=1e-6)


def backward(y, x):
    """Which collectives stand in the derivative of y."""
    found = [o.opdef.name for o in ng.deriv(ng.sum(y, out_axes=()), x).ordered_ops([ng.deriv(ng.sum(y, out_axes=()), x)])]
    return [n for n in found if n in ("all_reduce", "all_gather", "reduce_scatter", "broadcast_from")]


def test_each_is_the_way_back_of_another():
    x = ng.placeholder([H, N])
    assert backward(ng.all_gather(x, N, M), x) == ["reduce_scatter"]
    assert backward(ng.reduce_scatter(x, N, M), x) == ["all_gather"]
    assert backward(ng.all_reduce(x), x) == ["all_reduce"]
    assert backward(ng.broadcast_from(x), x) == ["all_reduce"]


def test_constants_are_not_folded_through_them():
    """Twice two on two processes is four: only the processes together know."""
    program = run(lower([ng.all_reduce(ng.constant(2.0, [H]) * 3.0)]).program, default_passes)
    assert [s.op for s in program.steps][-1] == "all_reduce"


@pytest.mark.parametrize("name", ["direct", "numpy", "cpu"])
def test_one_process_cannot_have_parts_of_others(name):
    x, whole = ng.placeholder([H, N]), ng.make_axis(8, name="whole")
    with ngt.make_transformer_factory(name)() as transformer, pytest.raises(UnsupportedError, match="N=4 to whole=8: there is one process"):
        transformer.computation(ng.all_gather(x, N, whole), x)(np.zeros((3, 4)))


def test_what_is_wrong():
    with pytest.raises(AxisError, match="M is not an axis"):
        ng.all_gather(ng.placeholder([H]), M)
    with pytest.raises(AxisError, match="name an axis of x, and a new one"):
        ng.all_gather(ng.placeholder([H, N]), H, N)
    with pytest.raises(DTypeError, match="add of bool"):
        ng.all_reduce(ng.placeholder([H], dtype="bool"))
    with pytest.raises(ValueError, match="none of add, max, min"):
        ng.all_reduce(ng.placeholder([H]), "multiply")


def test_a_root_is_the_number_of_a_process():
    with pytest.raises(ArgumentError, match="fix: count from 0: root=0"):
        ng.broadcast_from(ng.placeholder([H]), root=-1)

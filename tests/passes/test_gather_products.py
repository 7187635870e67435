"""lookups: products of looked up rows are made by the row, and give the same as before."""

import numpy as np
import pytest

import ngraph as ng
from ngraph.op_graph import dtypes
from ngraph.passes import default_passes, run
from ngraph.passes.gather_products import gather_products
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower
from ngraph.program.verify import verify

T, N, V, E, H = (ng.make_axis(n, name=name) for n, name in ((7, "T"), (5, "N"), (6, "V"), (17, "E"), (3, "H")))


def hole(*axes, dtype=None):
    return ng.placeholder(list(axes), dtype=dtype or dtypes.float32)


def embedded(mode="fill", dtype=None, length=T):
    """tanh(rows of a table, times a matrix), its gradients, and the holes."""
    table, w, ids = hole(V, E, dtype=dtype), hole(E, H, dtype=dtype), hole(length, N, dtype=dtypes.int32)
    y = ng.tanh(ng.dot(ng.take(table, ids, V, mode=mode), w))
    loss = ng.sum(y * y, out_axes=())
    return [y, ng.deriv(loss, table), ng.deriv(loss, w)], [table, w, ids]


def program(results, holes):
    return run(lower(results, holes).program, default_passes)


def places(p):
    """The contractions that are made at every place."""
    return [s for s in p.steps if s.op == "contract" and {"T", "N"} & {*s.inputs[0].axes, *s.inputs[1].axes}]


def arrays(p, low=0, high=6):
    draw = np.random.default_rng(0)
    made = []
    for v in p.inputs:
        shape = [p.length(a) for a in v.axes]
        made.append(
            draw.integers(low, high, shape).astype(v.dtype.np) if v.dtype.is_integer else draw.normal(size=shape).astype(v.dtype.np)
        )
    return made


def same(p, q, inputs):
    for a, b in zip(interpret(p, inputs, {})[0], interpret(verify(q), inputs, {})[0], strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("mode", ["fill", "clip", "wrap"])
def test_products_forward_and_back_are_made_by_the_row(mode):
    p = program(*embedded(mode))
    q = gather_products(p)
    assert len(places(p)) == 3 and not places(q)
    assert sum(s.op == "contract" for s in q.steps) == 3
    assert sum(s.op == "scatter" and s.attrs["combine"] == "add" for s in q.steps) == 1  # both gradients take the same sums
    same(p, q, arrays(p, -3, 9))


def test_a_row_that_no_index_names_does_not_count():
    p = program(*embedded())
    inputs = arrays(p, 0, 5)
    inputs[0][5] = np.nan
    y, _, dw = interpret(gather_products(p), inputs, {})[0]
    assert np.isfinite(y).all() and np.isfinite(dw).all()
    same(p, gather_products(p), inputs)


def test_several_indices_and_sums_along_other_axes_too():
    a, b = ng.make_axis(2, name="A"), ng.make_axis(3, name="B")
    table, w, one, two = hole(a, b, E, H), hole(E, H), hole(T, N, dtype=dtypes.int32), hole(N, dtype=dtypes.int32)
    rows = ng.gather(table, one, two, axes=(a, b), mode="fill")
    y = ng.contract(rows, w, over=[E])
    g = hole(T, N, H)
    p = program([y, ng.contract(rows, g, over=[T, N]), ng.contract(rows, g, over=[T, N, H])], [table, w, one, two, g])
    q = gather_products(p)
    assert len(places(p)) == 3 and not places(q)
    same(p, q, arrays(p, -1, 4))


def test_what_a_table_had_before_stays():
    table, g, w, ids = hole(V, E), hole(T, N, H), hole(E, H), hole(T, N, dtype=dtypes.int32)
    p = program([ng.scatter(table, ids, ng.contract(g, w, over=[H]), axes=(V,), combine="add", mode="fill")], [table, g, w, ids])
    q = gather_products(p)
    assert not places(q)
    same(p, q, arrays(p))


@pytest.mark.parametrize("how", ["narrow", "few places", "open length"])
def test_others_stay(how):
    length = {"few places": ng.make_axis(2, name="T"), "open length": ng.make_axis(name="T")}.get(how, T)
    p = program(*embedded(dtype=dtypes.float16 if how == "narrow" else None, length=length))
    q = gather_products(p)
    forward = how == "narrow"  # the same numbers, rounded once: only sums of sums are more exact in one piece
    assert len(places(q)) == len(places(p)) - forward
    assert q is p or forward

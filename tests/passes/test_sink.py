"""sunk: rows of a small table are looked up in the loop that takes them, and give the same as before."""

import numpy as np
import pytest

import ngraph as ng
from ngraph.op_graph import dtypes
from ngraph.passes import dead, default_passes, hoist, run
from ngraph.passes.sink import sink
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower
from ngraph.program.verify import verify

T, N, V, H = (ng.make_axis(n, name=name) for n, name in ((30, "T"), (5, "N"), (4, "V"), (6, "H")))


def recurrent(twice=False, length=T, rows=V, reverse=False):
    """h = tanh(rows of a table + b + h U) over time, from places on."""
    table, ids, b = ng.placeholder([rows, H]), ng.placeholder([length, N], dtype=dtypes.int32), ng.placeholder([H])
    w = ng.placeholder([H - 1, H])
    x = ng.take(table, ids, rows) + b

    def step(h, x):
        h = ng.tanh(x + ng.dot(w, h))
        return h, h

    _, y = ng.scan(step, ng.constant(0.0, [N, H]), x, length, reverse=reverse)
    p = run(lower([y, x] if twice else [y], [table, ids, b, w]).program, default_passes)
    return hoist(p)


def scan(p):
    (found,) = [s for s in p.steps if s.op == "scan"]
    return found


def same(p, q):
    draw = np.random.default_rng(0)
    inputs = []
    for v in p.inputs:
        shape = [p.length(a) for a in v.axes]
        inputs.append(draw.integers(-1, 6, shape).astype(v.dtype.np) if v.dtype.is_integer else draw.normal(size=shape).astype(v.dtype.np))
    for a, b in zip(interpret(p, inputs, {})[0], interpret(verify(q), inputs, {})[0], strict=True):
        np.testing.assert_array_equal(b, a)


@pytest.mark.parametrize("reverse", [False, True])
def test_rows_are_looked_up_in_the_loop(reverse):
    p = recurrent(reverse=reverse)
    q = dead(sink(p))
    assert [s.op for s in scan(q).attrs["body"].steps][:2] == ["gather", "add"] and "gather" not in [s.op for s in q.steps]
    assert [v.dtype.name for v in scan(q).inputs[1:2]] == ["int32"] and scan(q).attrs["xs"] == 1  # the places alone are slices
    same(p, q)


@pytest.mark.parametrize("why", ["asked for twice", "large table", "open length"])
def test_otherwise_they_stay_outside(why):
    large, open_ = ng.make_axis(100, name="V"), ng.make_axis(name="T")
    p = recurrent(why == "asked for twice", open_ if why == "open length" else T, large if why == "large table" else V)
    assert sink(p) is p

"""saved: what the way there of a loop has worked out is not worked out again on the way back, unless that would move more."""

import numpy as np
import pytest

import ngraph as ng
from ngraph.passes import default_passes, hoist, run
from ngraph.passes.loop_cse import expensive, loop_cse
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower
from ngraph.program.verify import verify

T, N, H = (ng.make_axis(n, name=name) for n, name in ((5, "T"), (3, "N"), (4, "H")))
GATES = ng.make_axis(4, name="G")


def program(results, holes):
    return hoist(run(lower(results, holes).program, default_passes))


def scans(p):
    return [s for s in p.steps if s.op == "scan"]


def long(loop):
    return [s.op for s in loop.attrs["body"].steps if expensive(s.op) and s.op != "contract"]


def same(p, q):
    draw = np.random.default_rng(0)
    inputs = [draw.normal(size=[p.length(a) for a in v.axes]).astype(v.dtype.np) for v in p.inputs]
    for a, b in zip(interpret(p, inputs, {})[0], interpret(verify(q), inputs, {})[0], strict=True):
        np.testing.assert_array_equal(b, a)


def lstm(length=T, reverse=False):
    x, w = ng.placeholder([length, N, GATES, H]), ng.placeholder([H - 1, GATES, H])

    def step(state, x):
        h, c = state
        i, f, g, o = (z[{GATES: k}] for z in [x + ng.dot(w, h)] for k in range(4))
        c = ng.sigmoid(f) * c + ng.sigmoid(i) * ng.tanh(g)
        h = ng.sigmoid(o) * ng.tanh(c)
        return (h, c), h

    zero = ng.constant(0.0, [N, H])
    _, y = ng.scan(step, (zero, zero), x, length, reverse=reverse)
    loss = ng.sum(y * y, out_axes=())
    return [loss, ng.deriv(loss, x), ng.deriv(loss, w)], [x, w]


@pytest.mark.parametrize("reverse", [False, True])
def test_gates_take_the_place_of_what_they_are_made_of(reverse):
    p = program(*lstm(reverse=reverse))
    q = loop_cse(p)
    assert [len(long(s)) for s in scans(p)] == [8, 8] and [len(long(s)) for s in scans(q)] == [8, 0]
    assert scans(q)[1].attrs["xs"] < scans(p)[1].attrs["xs"] + 5  # what they were made of is not read
    same(p, q)


def test_a_value_that_leaves_the_loop_anyway_costs_nothing():
    x, w = ng.placeholder([T, N, H]), ng.placeholder([H - 1, H])

    def step(h, x):
        h = ng.tanh(x + ng.dot(w, h))
        return h, h

    _, y = ng.scan(step, ng.constant(0.0, [N, H]), x, T)
    loss = ng.sum(y * y, out_axes=())
    p = program([loss, ng.deriv(loss, w)], [x, w])
    q = loop_cse(p)
    assert [long(s) for s in scans(q)] == [["tanh"], []]
    assert len(scans(q)[0].results) <= len(scans(p)[0].results)
    same(p, q)


def test_what_would_move_more_is_worked_out_again():
    x, w = ng.placeholder([T, N]), ng.placeholder([N, H])

    def step(c, x):
        c = c + ng.sum(ng.exp(x * w), reduction_axes=[H]) * c
        return c, c

    _, y = ng.scan(step, ng.constant(1.0, [N]), x, T)
    loss = ng.sum(y * y, out_axes=())
    p = program([loss, ng.deriv(loss, x)], [x, w])
    assert loop_cse(p) is p and "exp" in long(scans(p)[1])


def test_one_trip_is_a_checkpoint():
    p = program(*lstm(ng.make_axis(1, name="T")))
    assert loop_cse(p) is p

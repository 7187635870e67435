"""hoist: what leaves a loop, what stays, and that the oracle gives the same before and after."""

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_random_programs import programs, results

import ngraph as ng
from ngraph.passes import dead, default_passes, hoist, run
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower
from ngraph.program.program import AxisId, Program
from ngraph.program.verify import verify

T, N, X, H, G = (ng.make_axis(n, name=name) for n, name in ((5, "T"), (3, "N"), (4, "X"), (6, "H"), (2, "G")))


def hole(*axes):
    return ng.placeholder(list(axes))


def program(results, *holes):
    return run(lower(results if isinstance(results, list) else [results], holes).program, default_passes)


def same(p, q, tolerance=1e-5):
    """Both give the same for random inputs; `q` is lawful."""
    draw = np.random.default_rng(0)
    inputs = [draw.normal(size=[p.length(a) for a in v.axes]).astype(v.dtype.np) for v in p.inputs]
    expected, _ = interpret(p, inputs, {})
    got, _ = interpret(verify(q), inputs, {})
    for e, g in zip(expected, got, strict=True):
        np.testing.assert_allclose(g, e, rtol=tolerance, atol=tolerance)


def scans(p):
    return [s for s in p.steps if s.op == "scan"]


def products(p):
    """The contractions of a program, and of the bodies inside it, as two numbers."""
    inner = [a for s in p.steps for a in s.attrs.values() if isinstance(a, Program)]
    return sum(s.op == "contract" for s in p.steps), sum(sum(products(b)) for b in inner)


def recurrent(gradient):
    """h = tanh(x W + h U + b), one step in the loop; with the gradients of everything."""
    x, w, u, b = hole(T, N, X), hole(X, H), hole(H - 1, H), hole(H)

    def step(h, x):
        h = ng.tanh(ng.dot(x, w) + ng.dot(u, h) + b)
        return h, h

    _, y = ng.scan(step, ng.constant(0.0, [N, H]), x, T)
    if not gradient:
        return y, x, w, u, b
    loss = ng.sum(y * y, out_axes=())
    return [loss, *(ng.deriv(loss, v) for v in (x, w, u, b))], x, w, u, b


def test_products_of_slices_become_one_before_the_loop():
    p = program(*recurrent(False))
    q = dead(hoist(p))
    assert products(p) == (0, 2) and products(q) == (1, 1)
    (first, *_) = [s for s in q.steps if s.op == "contract"]
    assert AxisId("T") in first.result.axes
    same(p, q)


def test_gradients_of_weights_become_one_product_behind_the_loop():
    p = program(*recurrent(True))
    q = dead(hoist(p))
    forward, backward = scans(q)
    assert len(scans(p)[1].inputs[: scans(p)[1].attrs["carries"]]) > backward.attrs["carries"] == 1
    assert products(q)[1] == 2  # h U forward, and its other factor backward
    assert sum(AxisId("T") in s.attrs["over"] for s in q.steps if s.op == "contract") == 2
    assert any(AxisId("T") in s.attrs["axes"] for s in q.steps if s.op == "reduce")  # the bias
    same(p, q)


def test_what_no_trip_changes_is_computed_once():
    w, x = hole(H - 1, H), hole(T, H)

    def step(h, x):
        return ng.dot(ng.exp(w) * 0.1, h) + x, None

    (p,) = [program(ng.scan(step, ng.constant(1.0, [H]), x, T)[0], w, x)]
    q = dead(hoist(p))
    assert not any(s.op == "exp" for s in scans(q)[0].attrs["body"].steps) and any(s.op == "exp" for s in q.steps)
    same(p, q)


def test_what_a_carry_changes_stays():
    x, w = hole(T, N, H), hole(H - 1, H)

    def step(h, x):
        return ng.tanh(ng.dot(w, h)) + x, None

    p = program(ng.scan(step, ng.constant(0.0, [N, H]), x, T)[0], x, w)
    q = dead(hoist(p))
    assert products(q) == products(p) == (0, 1)
    same(p, q)


def test_a_sum_that_is_read_on_the_way_stays():
    x, w = hole(T, N, X), hole(X, H)

    def step(total, x):
        total = total + ng.dot(x, w)
        return total, ng.tanh(total)

    total, y = ng.scan(step, ng.constant(0.0, [N, H]), x, T)
    p = program([total, y], x, w)
    q = dead(hoist(p))
    assert scans(q)[0].attrs["carries"] == 1 and products(q) == (1, 0)
    same(p, q)


def test_a_loop_that_only_sums_is_gone():
    x, w = hole(T, N, X), hole(X, H)
    p = program(ng.scan(lambda total, x: (total + ng.dot(x, w), None), ng.constant(1.0, [N, H]), x, T)[0], x, w)
    q = dead(hoist(p))
    assert not scans(q)
    same(p, q)


def test_a_loop_of_which_all_leaves_inside_a_loop_that_is_hoisted_again():
    """As `cpu` does for each version of a program: nothing is left of the inner loop, not even a step without results."""
    x, y, w, h = hole(T, N, X), hole(G, N, H), hole(X, H), hole(N, H)

    def outer(h, y):
        total, _ = ng.scan(lambda c, x: (c + ng.dot(x, w), None), h * y, x, T)
        return ng.tanh(h + total), total

    last, totals = ng.scan(outer, h, y, G)
    whole = dead(lower([last, totals], (x, y, w, h)).program)
    once = hoist(whole)
    assert all(s.results for p in (once, *(a for s in once.steps for a in s.attrs.values() if isinstance(a, Program))) for s in p.steps)
    same(whole, once)
    same(whole, hoist(once))


def test_loops_in_loops():
    x, w, u = hole(G, T, N, X), hole(X, H), hole(H - 1, H)

    def inner(h, x):
        h = ng.tanh(ng.dot(x, w) + ng.dot(u, h))
        return h, h

    def outer(total, x):
        h, _ = ng.scan(inner, total, x, T)
        return h, None

    loss = ng.sum(ng.scan(outer, ng.constant(0.0, [N, H]), x, G)[0], out_axes=())
    p = program([loss, ng.deriv(loss, w), ng.deriv(loss, u)], x, w, u)
    same(p, dead(hoist(p)))


def test_backwards():
    x, w = hole(T, N, X), hole(X, H)

    def step(h, x):
        h = ng.tanh(h + ng.dot(x, w))
        return h, h

    _, y = ng.scan(step, ng.constant(0.0, [N, H]), x, T, reverse=True)
    p = program(y, x, w)
    q = dead(hoist(p))
    assert products(q) == (1, 0)
    same(p, q)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(programs(), st.integers(0, 1000))
def test_random_programs_stay_the_same(whole, seed):
    draw = np.random.default_rng(seed)
    lengths = {AxisId("N"): 2}
    inputs = [draw.integers(-3, 4, [whole.length(a, lengths) for a in v.axes]).astype(v.dtype.np) for v in whole.inputs]
    with np.errstate(all="ignore"):
        expected = results(whole, inputs)
        assume(all(np.all(np.abs(a.astype(np.float64)) < 2.0**50) for a in expected))
        got = results(verify(dead(hoist(whole))), inputs)
    for e, g in zip(expected, got, strict=True):
        assert np.array_equal(g, e, equal_nan=e.dtype.kind == "f")

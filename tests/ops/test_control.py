"""Loops and choices traced from Python functions, their values and derivatives against PyTorch and NumPy."""

import numpy as np
import pytest
import torch

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import AxisError, GraphError

T, N, H, I = (ng.make_axis(n, name=a) for n, a in ((6, "T"), (3, "N"), (4, "H"), (2, "I")))
R = np.random.default_rng(0)


@pytest.fixture(params=["direct", "numpy", "cpu"])
def compute(request):
    def run(ops, parameters=(), values=()):
        with ngt.make_transformer_factory(request.param)() as transformer:
            return transformer.computation(ops, *parameters)(*values)

    return run


def rnn(x, h, w, u, reverse=False):
    """A recurrent layer: next h = tanh(W h + U x), each h is given."""

    def step(h, x):
        h = ng.tanh(ng.dot(w, h) + ng.dot(u, x))
        return h, h

    return ng.scan(step, h, x, T, reverse=reverse)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_recurrent_layer_and_its_gradients(compute, reverse):
    x, h = ng.placeholder([T, I, N], dtype="float64"), ng.placeholder([H, N], dtype="float64")
    w, u = ng.placeholder([H, H - 1], dtype="float64"), ng.placeholder([H, I], dtype="float64")
    values = [R.normal(size=s) for s in ((6, 2, 3), (4, 3), (4, 4), (4, 2))]
    last, all_h = rnn(x, h, w, u, reverse)
    loss = ng.sum(last * last, out_axes=()) + ng.sum(ng.sin(all_h), out_axes=())
    got = compute([loss, *(ng.deriv(loss, p) for p in (x, h, w, u))], [x, h, w, u], values)

    tx, th, tw, tu = (torch.tensor(v, requires_grad=True) for v in values)
    state, given = th, []
    for t in reversed(range(6)) if reverse else range(6):
        state = torch.tanh(tw @ state + tu @ tx[t])
        given.append(state)
    expected = (state * state).sum() + torch.stack(given).sin().sum()
    expected.backward()
    np.testing.assert_allclose(got[0], expected.detach(), rtol=1e-12)
    for g, p in zip(got[1:], (tx, th, tw, tu), strict=True):
        np.testing.assert_allclose(g, p.grad, rtol=1e-9, atol=1e-12)


def test_second_derivatives_of_a_loop(compute):
    a, c = ng.placeholder((), dtype="float64"), ng.placeholder((), dtype="float64")
    last, _ = ng.scan(lambda c, x: (c * c * a + ng.sin(c), None), c, None, T)
    first = ng.deriv(last, c)
    got = compute([first, ng.deriv(first, c), ng.deriv(first, a)], [a, c], [0.3, 0.2])
    ta, tc = torch.tensor(0.3, dtype=torch.float64, requires_grad=True), torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
    v = tc
    for _ in range(6):
        v = v * v * ta + torch.sin(v)
    (d,) = torch.autograd.grad(v, tc, create_graph=True)
    np.testing.assert_allclose(got, [d.item(), *(g.item() for g in torch.autograd.grad(d, [tc, ta]))], rtol=1e-9)


def test_a_loop_whose_length_comes_with_the_call(compute):
    steps = ng.make_axis(name="S")
    x = ng.placeholder([steps])
    total, running = ng.scan(lambda c, x: (c + x, c * x), 0.0, x, steps)
    for n in (5, 1, 0):
        v = np.arange(1.0, n + 1)
        got, each = compute([total, running], [x], [v])
        assert got == v.sum()
        np.testing.assert_allclose(each, (np.cumsum(v) - v) * v)


def test_loops_inside_loops(compute):
    x = ng.placeholder([T, N])

    def outer(c, row):
        inner, _ = ng.scan(lambda d, v: (d * 0.5 + v * c, None), 1.0, row, N)
        return c + inner, inner

    last, each = ng.scan(outer, 1.0, x, T)
    loss = last + ng.sum(each, out_axes=())
    v = R.normal(size=(6, 3))
    got, slope = compute([loss, ng.deriv(loss, x)], [x], [v])
    tv = torch.tensor(v, requires_grad=True)
    c, total = torch.tensor(1.0), 0.0
    for t in range(6):
        d = torch.tensor(1.0)
        for n in range(3):
            d = d * 0.5 + tv[t, n] * c
        c, total = c + d, total + d
    (c + total).backward()
    np.testing.assert_allclose(got, float((c + total).detach()), rtol=1e-5)
    np.testing.assert_allclose(slope, tv.grad, rtol=1e-4, atol=1e-5)


def test_the_same_axis_name_with_two_lengths_around_a_loop(compute):
    x = ng.placeholder([T, N])
    y = x[1:, :2]  # T of length 5, N of length 2
    short = y.axes
    last, each = ng.scan(lambda c, v: (c + v, c), ng.sum(y, out_axes=[short[1]]) * 0, y, short[0])
    v = R.normal(size=(6, 3)).astype(np.float32)
    got, stacked = compute([last, each], [x], [v])
    np.testing.assert_allclose(got, v[1:, :2].sum(0), rtol=1e-5)
    np.testing.assert_allclose(stacked, np.cumsum(v[1:, :2], 0) - v[1:, :2], rtol=1e-4, atol=1e-5)


def test_random_ops_draw_anew_in_each_trip(compute):
    _, draws = ng.scan(lambda c, x: (None, ng.uniform([N])), None, None, T)
    got = compute(draws)
    assert got.shape == (6, 3) and len(np.unique(got)) == 18
    _, nested = ng.scan(lambda c, x: (None, ng.scan(lambda c, x: (None, ng.uniform(())), None, None, N)[1]), None, None, T)
    assert len(np.unique(compute(nested))) == 18


def test_while_runs_as_long_as_its_condition_holds(compute):
    x = ng.placeholder(())
    n, power = ng.while_loop(lambda c: c[1] < x, lambda c: (c[0] + 1, c[1] * 2), (ng.constant(0, dtype="int32"), ng.constant(1.0)))
    for limit, expected in ((100, (7, 128)), (1, (0, 1)), (64.5, (7, 128))):
        assert tuple(map(float, compute([n, power], [x], [limit]))) == expected
    with pytest.raises(GraphError, match="while"):
        ng.deriv(power, x)


def test_python_numbers_that_a_loop_carries_take_the_dtype_that_its_function_gives(compute):
    x = ng.placeholder([T], dtype="float64")
    values = np.arange(1.0, 7.0)
    trips, picked = ng.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v + ng.take(x, i, T)), (0, 0))
    (count, product), _ = ng.scan(lambda n, c, v: ((n + 1, c * v), None), (0, 1), x, T)
    far = ng.while_loop(lambda i: i < 2**40, lambda i: i * 2, 2**35)
    assert [o.dtype.name for o in (trips, picked, count, product, far)] == ["int32", "float64", "int32", "float64", "int64"]
    assert [float(r) for r in compute([trips, picked, count, product, far], [x], [values])] == [3, 6, 6, 720, 2**40]
    np.testing.assert_allclose(compute([ng.deriv(product, x)], [x], [values])[0], 720 / values)


def test_cond_computes_one_branch_and_differentiates(compute):
    x, w = ng.placeholder([N]), ng.placeholder([N])
    p = ng.sum(x, out_axes=()) > 0
    y = ng.cond(p, lambda: ng.sum(x * w, out_axes=()), lambda: ng.sum(w * w * w, out_axes=()))
    slope = [ng.deriv(y, x), ng.deriv(y, w)]
    a, b = np.array([1.0, 2, 3]), np.array([4.0, 5, 6])
    got = compute([y, *slope], [x, w], [a, b])
    np.testing.assert_allclose(got[0], a @ b)
    np.testing.assert_allclose(got[1], b)
    np.testing.assert_allclose(got[2], a)
    got = compute([y, *slope], [x, w], [-a, b])
    np.testing.assert_allclose(got[0], (b**3).sum())
    np.testing.assert_allclose(got[1], 0 * b)
    np.testing.assert_allclose(got[2], 3 * b * b)


def test_weights_that_are_variables_train_through_a_loop(compute):
    r = np.random.default_rng(1)
    w = ng.variable([H, H - 1], initial_value=r.normal(size=(4, 4)) * 0.1).named("w")
    u = ng.variable([H, I], initial_value=r.normal(size=(4, 2))).named("u")
    x = ng.placeholder([T, I, N])
    last, _ = rnn(x, ng.constant(0.0, [H, N]), w, u)
    loss = ng.mean((last - 0.5) ** 2, out_axes=())
    with ngt.make_transformer() as transformer:
        step = transformer.computation([loss, *(ng.assign(v, v - 0.5 * ng.deriv(loss, v)) for v in loss.variables())], x)
        v = r.normal(size=(6, 2, 3))
        losses = [float(step(v)[0]) for _ in range(200)]
    assert losses[-1] < 0.3 * losses[0]


def test_bodies_that_do_not_fit_are_refused():
    x = ng.placeholder([T, N])
    with pytest.raises(AxisError, match="takes .* and gives"):
        ng.scan(lambda c, v: (v, None), 0.0, x, T)
    with pytest.raises(AxisError, match="no such axis"):
        ng.scan(lambda c, v: (c, None), 0.0, x, H)
    with pytest.raises(GraphError, match="not a pair"):
        ng.scan(lambda c, v: c, 0.0, x, T)


# ---- what happens in a body -----------------------------------------------------------------------------------------------


def test_what_a_body_prints_is_printed_in_order_and_once(compute, capsys):
    """In each trip, in order with what stands around the loop; and the way back prints nothing."""
    x = ng.placeholder([T])

    def step(c, s):
        c = ng.PrintOp(ng.tanh(ng.PrintOp(c + s, "in")), "out")
        return c, c

    last, every = ng.scan(step, ng.constant(0.0), x, T)
    slope = ng.deriv(last + ng.sum(every, out_axes=()), x)
    data = np.linspace(0.1, 0.6, 6, dtype=np.float32)
    c, wanted = 0.0, []
    for s in data:
        wanted += [c + s, np.tanh(c + s)]
        c = np.tanh(c + s)
    got = compute([last, slope], [x], [data])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["in", "out"] * 6
    np.testing.assert_allclose([float(line.split()[1]) for line in lines], wanted, rtol=1e-5)
    quiet, all_quiet = ng.scan(lambda c, s: (ng.tanh(c + s),) * 2, ng.constant(0.0), x, T)
    plain = compute([quiet, ng.deriv(quiet + ng.sum(all_quiet, out_axes=()), x)], [x], [data])
    for a, b in zip(got, plain, strict=True):
        np.testing.assert_array_equal(a, b)


def test_only_the_branch_that_runs_prints(compute, capsys):
    x = ng.placeholder([I])
    chosen = ng.cond(x[0] > 0.0, lambda: ng.PrintOp(x * 2.0, "then"), lambda: x * 3.0)
    results = [chosen, ng.deriv(ng.sum(chosen, out_axes=()), x)]
    around = ng.sequential([ng.print_values(x, text="before"), chosen, ng.print_values(x, text="after"), chosen])
    for start, said in ((1.0, ["before", "then", "after"]), (-1.0, ["before", "after"])):
        value, slope = compute([around, results[1]], [x], [[start, 5.0]])
        assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == said
        factor = 2.0 if start > 0 else 3.0
        assert value.tolist() == [start * factor, 5 * factor] and slope.tolist() == [factor] * 2


def test_loops_inside_loops_print_in_order(compute, capsys):
    x = ng.placeholder([I])

    def outer(c, s):
        inner, _ = ng.scan(lambda d, u: (ng.PrintOp(d + u * s, "inner"), None), c, x, I)
        return ng.while_loop(lambda v: v < 3.0, lambda v: ng.PrintOp(v * 2.0, "doubled"), inner), None

    last, _ = ng.scan(outer, ng.constant(0.0), x, I)
    assert float(compute(last, [x], [[0.5, 0.25]])) == 3.1875
    wanted = "inner 0.25 inner 0.375 doubled 0.75 doubled 1.5 doubled 3.0 inner 3.125 inner 3.1875"
    assert capsys.readouterr().out.split() == wanted.split()


def test_effects_that_no_body_may_have_are_refused_at_their_line():
    x, v = ng.placeholder([I]), ng.variable(())
    condition = ng.while_loop(lambda c: ng.PrintOp(c) < 3.0, lambda c: c + 1.0, ng.constant(0.0))
    with pytest.raises(GraphError, match=r"test_control.py:\d+: the condition of a loop has effects"):
        ngt.make_transformer().computation(condition)
    assigned, _ = ng.scan(lambda c, s: (ng.sequential([ng.assign(v, c), c + s]), None), ng.constant(0.0), x, I)
    with pytest.raises(GraphError, match=r"test_control.py:\d+: a variable is assigned in the function of a loop"):
        ngt.make_transformer().computation(assigned, x)

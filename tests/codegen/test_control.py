"""Loops and branches as records of the table that threads walk: what the references give, and Python takes no part."""

import math
import threading

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.config import config
from ngraph.ops.sorting import compact
from ngraph.targets import host

H, T, S, N = (ng.make_axis(n, name=name) for n, name in ((3, "H"), (5, "T"), (2, "S"), (4, "N")))


def values(*axes, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=[a.length for a in axes]).astype(dtype)


def both(results, holes, arrays, calls=2, hosts=0):
    """Results by the cpu, the same in each call, held against those of the references' table; so many steps are Python's."""
    given = {}
    for name in ("numpy", "cpu"):
        with ngt.allocate_transformer(name) as t:
            computation = t.computation(list(results), *holes)
            given[name] = [[np.array(a) for a in computation(*arrays)] for _ in range(calls)]
            if name == "cpu":
                assert host_callbacks(computation) == hosts
    for one, other in zip(given["numpy"], given["cpu"], strict=True):
        for a, b in zip(one, other, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)
    return given["cpu"][0]


def host_callbacks(computation):
    (bound,) = computation.executable.native.bound.values()
    return bound.take().walk.host_callbacks


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("trips", [0, 1, 2, 5])
def test_carries_slices_and_stacks(trips, reverse):
    axis = ng.make_axis(trips, name="T")
    x, c, d, w = ng.placeholder([axis, H]), ng.placeholder([H]), ng.placeholder([N, H]), ng.placeholder([N])

    def body(carry, x):
        c, d = carry
        return (x + c * 0.5, d * 0.5 + x * w + c), (c * x, d)

    (c1, d1), (y, z) = ng.scan(body, (c, d), x, axis, reverse=reverse)
    both([c1, d1, y, z], [x, c, d, w], [values(axis, H), values(H), values(N, H), values(N)])


def test_slices_that_are_not_outermost_and_carries_in_another_order():
    x, c = ng.placeholder([H, T]), ng.placeholder([N, H])
    c1, y = ng.scan(lambda c, x: (ng.broadcast(c * 0.5 + x, [N, H]), ng.broadcast(c, [H, N])), c, x, T)
    both([c1, y], [x, c], [values(H, T), values(N, H)])


def test_what_is_carried_is_stacked_and_used_twice():
    x, c = ng.placeholder([T, H]), ng.placeholder([H])
    (a, b), (y, z) = ng.scan(lambda c, x: ((c[1] + x, c[0]), (c[1] + x, c[1] + x)), (c, c), x, T)
    both([a, b, y, z], [x, c], [values(T, H), values(H)])
    (a, b), y = ng.scan(lambda c, x: ((c[1], c[0]), None), (c, c + 1), x, T)  # an odd number of exchanges
    both([a, b], [x, c], [values(T, H), values(H)])


def test_loops_in_loops():
    x, c, w = ng.placeholder([S, T, H]), ng.placeholder([H]), ng.placeholder([T, H])

    def outer(c, xs):
        c2, ys = ng.scan(lambda d, given: (d * 0.5 + given[0] * given[1] + c, d), c, (xs, w), T, reverse=True)
        return c2, (ys, c2)

    c1, (y, z) = ng.scan(outer, c, x, S)
    both([c1, y, z], [x, c, w], [values(S, T, H), values(H), values(T, H)])


@pytest.mark.parametrize("turns", [0, 1, 2, 7])
def test_while(turns):
    limit, x = ng.placeholder([], dtype=np.int32), ng.placeholder([N, H])

    def body(carry):
        n, x, y = carry
        return n + 1, y * 0.5, x + 1.0

    n, a, b = ng.while_loop(lambda c: ng.less(c[0], limit), body, (ng.constant(0, dtype=np.int32), x, x * 2.0))
    both([n, a, b], [limit, x], [np.int32(turns), values(N, H)])


@pytest.mark.parametrize("p", [True, False])
def test_cond(p):
    c, x = ng.placeholder([], dtype=np.bool_), ng.placeholder([N, H])
    a, b = ng.cond(c, lambda: (x * 2.0, x), lambda: (x, ng.exp(x)))
    both([a, b], [c, x], [np.bool_(p), values(N, H)])


def test_branches_and_loops_in_a_loop():
    x, c = ng.placeholder([T, H]), ng.placeholder([H])

    def body(c, x):
        total = ng.sum(x, out_axes=())
        d = ng.cond(total > 0.0, lambda: c + x, lambda: c * 0.5)
        n, e = ng.while_loop(lambda s: ng.less(s[0], 3), lambda s: (s[0] + 1, s[1] * 0.5 + d), (ng.constant(0, dtype=np.int32), d))
        return e, d

    c1, y = ng.scan(body, c, x, T)
    both([c1, y], [x, c], [values(T, H), values(H)])


def test_each_trip_draws_anew():
    x = ng.placeholder([T, H])
    _, y = ng.scan(lambda c, x: (c, x + ng.uniform([H])), None, x, T)
    (drawn,) = both([y], [x], [np.zeros((5, 3), np.float32)], calls=1)
    assert len(np.unique(drawn)) == drawn.size


def test_sorting_and_running_sums_in_a_loop():
    x = ng.placeholder([T, H, N])
    _, (y, z) = ng.scan(lambda c, x: (c, (ng.sort(x, N), ng.cumsum(x, H))), None, x, T)
    both([y, z], [x], [values(T, H, N)])


def test_gradients_of_a_loop():
    x, c, w = ng.placeholder([T, H, N]), ng.placeholder([H, N]), ng.placeholder([H, H - 1])
    c1, y = ng.scan(lambda c, x: (ng.tanh(ng.dot(w, c) + x), c * c), c, x, T)
    loss = ng.sum(c1, out_axes=()) + ng.sum(y, out_axes=())
    both([loss, *(ng.deriv(loss, v) for v in (x, c, w))], [x, c, w], [values(T, H, N), values(H, N), values(H, H - 1)])


def test_printing_in_a_loop_is_pythons(capsys):
    x, c = ng.placeholder([T]), ng.placeholder([])
    c1, _ = ng.scan(lambda c, x: (ng.PrintOp(c + x, "sum"), None), c, x, T)
    both([c1], [x, c], [np.arange(5, dtype=np.float32), np.float32(0)], calls=1, hosts=1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10 and lines[:5] == lines[5:]


def test_lengths_that_come_with_the_call():
    axis = ng.make_axis(None, name="T")
    x, c = ng.placeholder([axis, H]), ng.placeholder([H])
    c1, y = ng.scan(lambda c, x: (c * 0.5 + x, c), c, x, axis, reverse=True)
    with ngt.allocate_transformer("cpu") as t, ngt.allocate_transformer("numpy") as u:
        mine, other = (k.computation([c1, y], x, c) for k in (t, u))
        for n in (3, 0, 7, 1, 4):
            given = np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32), values(H)
            for a, b in zip(mine(*given), other(*given), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6)


def test_calls_on_several_threads_have_memory_of_their_own():
    x, c = ng.placeholder([T, N, H]), ng.placeholder([N, H])
    c1, y = ng.scan(lambda c, x: (ng.tanh(c + x), c), c, x, T)
    with ngt.allocate_transformer("cpu") as t:
        f = t.computation([c1, y], x, c)
        given = [(values(T, N, H, seed=k), values(N, H, seed=k)) for k in range(4)]
        want = [[np.array(a) for a in f(*g)] for g in given]
        wrong = []

        def work(k):
            for _ in range(50):
                got = f(*given[k])
                if any(a.tobytes() != b.tobytes() for a, b in zip(got, want[k], strict=True)):
                    wrong.append(k)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for th in threads:
            th.start()
        for th in threads:
            th.join()
        assert not wrong


def test_every_other_trip_goes_backwards_over_large_weights():
    """What one trip has read last, the next one finds in the cache; with one thread and with two, the bits are the same."""
    side = max(512, math.isqrt(host().l2 // 4) + 64)  # of a matrix that is larger than the second cache
    wide, trips = ng.make_axis(side, name="W"), ng.make_axis(6, name="T")
    x, c, w = ng.placeholder([trips, wide]), ng.placeholder([wide]), ng.placeholder([wide, wide - 1])
    c1, y = ng.scan(lambda c, x: (ng.tanh(ng.dot(w, c) * 0.02 + x), c), c, x, trips)
    arrays = [values(trips, wide), values(wide), values(wide, wide)]
    want = both([c1, y], [x, c, w], arrays)
    for threads in (1, 2):
        with config(num_threads=threads), ngt.allocate_transformer("cpu") as t:
            f = t.computation([c1, y], x, c, w)
            got = [np.array(a) for a in f(*arrays)]
            (bound,) = f.executable.native.bound.values()
            assert any(r[7:] == [1] for r in bound.take().walk.table.records)
        for a, b in zip(want, got, strict=True):
            assert a.tobytes() == b.tobytes()


def test_lengths_that_a_step_finds():
    """Kernels behind it, and a loop over them, get their lengths from memory, in the table."""
    rows = ng.make_axis(6, name="R")
    x = ng.placeholder([rows, H])
    found, count = compact(x > 0.0)
    (axis,) = found.axes
    y = ng.cast(found, "float32") * 0.5 + 1.0
    straight = [found, count, y, ng.sum(y, out_axes=()), ng.sort(y, axis, descending=True), ng.cumsum(y, axis)]
    c1, stack = ng.scan(lambda c, v: (c * 0.5 + v, c), ng.constant(0.0), y, axis)
    for shift in (0.0, 0.5, 9.0, -9.0):
        given = [values(rows, H) - np.float32(shift)]
        both(straight, [x], given)
        both([c1, stack], [x], given)

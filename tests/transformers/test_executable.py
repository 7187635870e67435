"""`transformers.executable` knows a machine by its `KernelDevice` alone: a second one, whose kernels the plan's interpreter runs."""

import numpy as np
import pytest
from checking import CheckingTransformer

import ngraph as ng
import ngraph.transformers as ngt


def dense():
    n, k, m = (ng.make_axis(length, name=name) for length, name in ((6, "N"), (5, "K"), (7, "M")))
    x, w = ng.placeholder([n, k]), ng.constant(np.arange(35.0, dtype=np.float32).reshape(5, 7) / 35, [k, m])
    return [ng.softmax(ng.dot(x, w), [m]), ng.sum(x, out_axes=())], [x], [(np.ones((6, 5), "f"),)]


def scan(reverse=False):
    n, t = ng.make_axis(5, name="N"), ng.make_axis(4, name="T")
    x, s = ng.placeholder([n]), ng.placeholder([t, n])
    last, every = ng.scan(lambda c, v: (ng.tanh(c) + v, c * v), x, s, t, reverse=reverse)
    return [last, every], [x, s], [(np.ones(5, "f"), np.arange(20, dtype="f").reshape(4, 5) / 20)]


def loop():
    n = ng.make_axis(5, name="N")
    x, limit = ng.placeholder([n]), ng.placeholder(())
    count, made = ng.while_loop(lambda c: c[0] < limit, lambda c: (c[0] + 1.0, c[1] * 1.5), (ng.constant(0.0), x))
    return [count, made], [x, limit], [(np.ones(5, "f"), np.float32(k)) for k in (0, 1, 4)]


def branch():
    n = ng.make_axis(5, name="N")
    x = ng.placeholder([n])
    return [ng.cond(ng.sum(x, out_axes=()) > 3, lambda: ng.exp(x), lambda: x - 1)], [x], [(np.ones(5, "f"),), (np.zeros(5, "f"),)]


def state():
    n = ng.make_axis(5, name="N")
    x, w = ng.placeholder([n]), ng.variable([n], initial_value=2)
    moved = ng.assign(w, w[::-1] * x)
    return [ng.sequential([moved, w * 1]), ng.sum(w, out_axes=())], [x], [(np.arange(5, dtype="f"),)] * 3


def open_lengths():
    n, c = ng.make_axis(name="N"), ng.make_axis(3, name="C")
    x = ng.placeholder([n, c])
    mean = ng.mean(x, out_axes=[c])
    return [ng.exp(x - mean), ng.sum(x * x, out_axes=())], [x], [(np.ones((k, 3), "f") * k,) for k in (4, 9, 2, 4)]


def counted():
    n = ng.make_axis(6, name="N")
    x = ng.placeholder([n])
    (places,) = ng.nonzero(x)
    return [places * 2, ng.sum(places, out_axes=()), ng.sort(x, n)], [x], [(np.array([3, 0, 1, 0, 2, 5], "f"),), (np.zeros(6, "f"),)]


CASES = {
    "products and sums": dense,
    "a scan": scan,
    "a scan from the end": lambda: scan(True),
    "a loop": loop,
    "a branch": branch,
    "state": state,
    "open lengths": open_lengths,
    "lengths that are counted, and what Python runs": counted,
}


@pytest.mark.parametrize("case", CASES)
def test_a_second_device_gives_what_the_reference_gives(case):
    results, holes, calls = CASES[case]()
    with CheckingTransformer() as checking, ngt.allocate_transformer("direct") as direct:
        f, g = checking.computation(results, *holes), direct.computation(results, *holes)
        for arguments in calls:
            for got, want in zip(f(*arguments), g(*arguments), strict=True):
                np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-6)
        device = checking.checking
        device.check()
        assert device.launches and device.allocations


def test_a_loop_runs_in_the_table():
    """Each trip launches the body's kernels at other addresses; what a trip hands on is copied at the end alone."""
    results, holes, calls = scan()
    with CheckingTransformer() as checking:
        f, device = checking.computation(results, *holes), checking.checking
        f(*calls[0])
        first, memory = len(device.launches), len(device.allocations)
        f(*calls[0])
        assert len(device.launches) == 2 * first and len(device.allocations) == memory  # the frame of the first call serves the second
        launched = device.launches[first:]
        assert len(launched) % 4 == 0 and len({x.addresses for x in launched}) == len(launched) > 0
        assert next(iter(f.native.bound.values())).take().walk.host_callbacks == 0


def test_bytes_are_copied_by_the_device():
    """A loop without a trip gives what it was given."""
    results, holes, calls = loop()
    with CheckingTransformer() as checking:
        f = checking.computation(results, *holes)
        f(*calls[0])
        assert [size for _, _, size in checking.checking.copies] == [4, 20]


def test_profiles_and_comparisons_are_the_rooms():
    results, holes, calls = dense()
    with CheckingTransformer() as checking:
        f = checking.computation(results, *holes)
        profile = f.profile(*calls[0], calls=2)
        assert profile.rows and all(r.calls == 1 and r.seconds > 0 for r in profile.rows)
        assert f.compare(*calls[0]) == len(profile.rows)


def test_offsets_follow_from_each_other_in_long_rows():
    """Each open value lies behind the one before: as many as there are, no recursion is as deep."""
    n = ng.make_axis(name="N")
    x = ng.placeholder([n])
    parts = [ng.cumsum(x * float(k), n) for k in range(400)]
    with ngt.allocate_transformer("cpu") as cpu:
        f = cpu.computation(sum(parts[1:], start=parts[0]), x)
        for length in (3, 5, 4):
            np.testing.assert_allclose(f(np.ones(length, "f")), np.arange(1, length + 1) * sum(range(400)), rtol=1e-5)
        assert len(set(next(reversed(f.native.bound.values())).layout.offsets.values())) > 300


def test_lengths_that_keep_coming_get_a_version(monkeypatch):
    monkeypatch.setattr("ngraph.transformers.executable.versions.CALLS_BEFORE_SPECIALISING", 2)
    results, holes, _ = open_lengths()
    with ng.config(lengths="first"), CheckingTransformer() as checking:
        f = checking.computation(results, *holes)
        for n in (2, 5, 5, 5, 5):
            f(np.ones((n, 3), "f"))
        assert list(f.native.codes) == [(2,), (None,), (5,)]


# ---- borders in loops -----------------------------------------------------------------------------------------------------


def padded(deep):
    """Two loops: trips of the first smooth twice, by filters over padded tensors; those of the second take running sums."""
    t, s, p, q = ng.axes("T=3 S=2 P=40 Q=30")
    filters = ng.constant(np.full((3, 3), 0.1), "I=3 J=3")
    x, start = ng.placeholder([t, s, p, q], dtype="float64"), ng.placeholder([p, q], dtype="float64")

    def smooth(h, row):
        for _ in range(2):
            h = ng.conv(h + row, filters, {"P": "I", "Q": "J"}, padding=1)
        return h, h

    def sums(h, row):
        h = ng.tanh(ng.cumsum(ng.cumsum(h + row, "P"), "Q") * 0.01)
        return h, h

    first = (lambda h, rows: (ng.scan(smooth, h, rows, s)[0], h)) if deep else lambda h, rows: smooth(h, rows["S", 0])
    h, ys = ng.scan(first, start, x, t)
    _, zs = ng.scan(sums, h, ys, t)
    return [ys, zs], [x, start]


@pytest.mark.parametrize("deep", [False, True])
def test_borders_of_bodies_lie_where_no_other_loop_does(deep):
    """They are filled once: with those of loops inside a body, too, the memory of all other loops begins behind them."""
    results, inputs = padded(deep)
    f = ngt.make_transformer_factory("cpu")().computation(results, *inputs)
    f(*[np.zeros([a.length for a in x.axes]) for x in inputs])
    (bound,) = f.native.bound.values()
    found = {step: (inner, bound.layout._is_bordered(step)) for step, inner in bound.layout.inner.items()}
    (kept,), (other,) = [[inner for inner, bordered in found.values() if bordered is wanted] for wanted in (True, False)]
    assert kept.end <= other.bodies["body"][1]


def test_a_second_derivative_through_loops_with_borders():
    """Of a loop in a loop whose filter is different in each trip; beside Python's own loops over the same steps."""
    a, b, h, w, p, q = ng.axes("A=4 B=4 H=3 W=2 P=3 Q=3")
    x, c, v, u = inputs = [ng.placeholder(axes, dtype="float64") for axes in ([h, b], [p, q], [a, b], [a, w])]
    filters = ng.constant([0.5, -1.0, 0.25], "F=3")

    def body(carry, row):
        n = ng.broadcast(0.4 * ng.sum(x, out_axes=()), [p, q])
        _, ys = ng.scan(lambda g, t: (ng.tanh(n), ng.conv(g, t * filters, {"P": "F"}, padding=1)), c, carry, a)
        return ng.tanh(ng.sum(ys, ["P", "Q"])), carry

    last, rows = ng.scan(body, u, v, b, reverse=True)
    value = ng.sum(ng.sin(ng.sum(last * rows, "B") * 0.7), out_axes=())

    def weight(y):
        return ng.constant(np.cos(np.arange(np.prod([n.length for n in y.axes]))).reshape([n.length for n in y.axes]), y.axes)

    slope = sum([ng.sum(d * weight(d), out_axes=()) for d in ng.deriv(value, inputs)], ng.constant(np.float64(0)))
    random = np.random.default_rng(0)
    values = [random.normal(size=[n.length for n in y.axes]) for y in inputs]
    wanted, found = (
        ngt.make_transformer_factory(name)().computation(ng.deriv(slope, inputs)[:2], *inputs)(*values) for name in ("numpy", "cpu")
    )
    for one, other in zip(wanted, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-10, atol=1e-12)

"""Calls that no Python runs in: NumPy arrays and tensors of any order, `out=`, results of another library; each against NumPy."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from growth import needs_statm, printed

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ArgumentError, ArgumentTypeError, AxisError, GraphError

ALL = pytest.mark.parametrize("name", ["cpu", "numpy", "direct"])


def made(name: str = "cpu") -> Any:
    return ngt.make_transformer_factory(name)()


def axes(*lengths: int | None) -> list[Any]:
    return [ng.make_axis(n, name=f"A{k}") for k, n in enumerate(lengths)]


def fast(f: Any, call: Any) -> int:
    """How many calls of three go the fast way, once the first ones have been made."""
    for _ in range(8):
        call()
    before = f._fast.call.calls
    for _ in range(3):
        call()
    return f._fast.call.calls - before


def test_which_calls_run_no_python() -> None:
    p, m = axes(4, 3)
    x, y = ng.placeholder([p, m]), ng.placeholder([m, p])
    a, b = np.ones((4, 3), "f"), np.ones((3, 4), "f")
    ta, tb = torch.ones(4, 3), torch.nn.Parameter(torch.ones(3, 4))
    f = made().computation(x + y, x, y)
    out, other = np.empty((4, 3), "f"), torch.empty(4, 3)
    for call in (lambda: f(a, b), lambda: f(ta, tb), lambda: f(a, tb), lambda: f(a, b, out=out), lambda: f(ta, b, out=other)):
        assert fast(f, call) == 3
    assert f(a, b, out=out) is out and f(ta, tb, out=other) is other and (out == 2).all() and (other == 2).all()
    for call in (
        lambda: f(a[::-1], b),
        lambda: f(a, a.T),
        lambda: f(a, b, out=a),
        lambda: f(a.astype("d"), b),
        lambda: f(ta.t().t()[::2].repeat(2, 1), b.tolist()),
    ):
        a[...] = 1
        assert fast(f, call) == 0 or call().shape == (4, 3)
    g = made().computation(x * 2.0, x, y, orders={x: [m, p]}, writes={y: y + 1.0})
    turned = np.ones((3, 4), "f").T
    assert fast(g, lambda: g(turned, b)) == 3 and fast(g, lambda: g(ta.t().contiguous().t(), tb)) == 3
    assert fast(g, lambda: g(a, b)) == 0
    assert fast(g, lambda: g(turned, turned.T)) == 0  # what is written shares memory with what is read
    h = made().computation([x + 1.0, y], x, y, array_type=torch.Tensor)
    assert fast(h, lambda: h(ta, tb)) == 3 and fast(h, lambda: h(a, b)) == 3
    both = [torch.empty(4, 3), np.empty((3, 4), "f")]
    assert fast(h, lambda: h(ta, tb, out=both)) == 3 and h(ta, tb, out=both) is both
    assert fast(h, lambda: h(ta, tb, out=tuple(both))) == 3
    np.testing.assert_array_equal(both[1], tb.detach().numpy())


@ALL
def test_results_of_another_library(name: str) -> None:
    p, m = axes(4, 3)
    x = ng.placeholder([p, m], dtype="bfloat16")
    f = made(name).computation([x, ng.cast(x, "float32"), ng.sum(ng.cast(x, "int32"), [p, m])], x, array_type=torch.Tensor)
    t = torch.arange(12).reshape(4, 3).bfloat16()
    for given in (t, t, t, t, t.t().contiguous().t(), torch.nn.Parameter(t)):
        one, two, three = f(given)
        assert [r.dtype for r in (one, two, three)] == [torch.bfloat16, torch.float32, torch.int32]
        assert torch.equal(one, t) and torch.equal(two, t.float()) and three.shape == () and int(three) == 66
        assert not one.requires_grad and one.data_ptr() != given.data_ptr()
        one.zero_()
    kept = f(t)
    f(t * 2)
    assert torch.equal(kept[0], t)  # later calls leave it alone
    with pytest.raises(ArgumentTypeError, match="list has no DLPack C exchange API"):
        made(name).computation(x, x, array_type=list)


@ALL
def test_a_result_whose_length_steps_find(name: str) -> None:
    (p,) = axes(6)
    x = ng.placeholder([p])
    f = made(name).computation([*ng.nonzero(x), x], x, array_type=torch.Tensor)
    for _ in range(4):
        found, same = f(torch.tensor([0.0, 1, 0, 2, 3, 0]))
        assert type(found) is torch.Tensor and sorted(found.reshape(-1).tolist()) == [1, 3, 4]
        assert type(same) is torch.Tensor


@ALL
@pytest.mark.parametrize("seed", range(10))
def test_orders_of_memory(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(0, 5))
    shape = [int(rng.choice([1, 2, 3, 5, 17] if seed % 4 else [0, 1, 4])) for _ in range(rank)]
    own = axes(*[None if seed % 3 == 0 else n for n in shape])
    x, y = ng.placeholder(own), ng.placeholder([own[d] for d in rng.permutation(rank)])
    orders = {op: [own[d] for d in rng.permutation(rank)] for op in (x, y)}
    total, result = ng.sum(x, own[:1]) if rank else x * 1.0, x * y + 1.0
    orders[result] = [own[d] for d in rng.permutation(rank)]
    kind = torch.Tensor if seed % 2 else None
    f = made(name).computation([result, total], x, y, orders=orders, writes={y: y - x}, array_type=kind)

    def given(op: Any, ordered: bool) -> np.ndarray:
        lengths = [shape[own.index(a)] for a in op.axes]
        order = [list(op.axes).index(a) for a in orders[op]] if ordered else list(range(rank))
        array = (
            np.ascontiguousarray(rng.random([lengths[d] for d in order]), "f").transpose(np.argsort(order))
            if rank
            else np.array(rng.random(), "f")
        )
        return np.array(array) if not rank else array

    turn = [list(y.axes).index(a) for a in own]
    for call in range(7):
        a, b = given(x, call != 3), given(y, call != 4)
        before = a.copy(), b.copy()
        args = [torch.from_numpy(v) for v in (a, b)] if call % 2 else [a, b]
        one, two = f(*args)
        assert type(one) is (kind or np.ndarray)
        np.testing.assert_allclose(np.asarray(one), before[0] * before[1].transpose(turn) + 1, rtol=1e-6)
        np.testing.assert_allclose(np.asarray(two), before[0].sum(0) if rank else before[0], rtol=1e-5)
        np.testing.assert_allclose(b, before[1] - before[0].transpose(np.argsort(turn)), rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(a, before[0])
        strides = np.asarray(one).transpose([own.index(c) for c in orders[result]])
        assert strides.flags.c_contiguous


def test_orders_that_cannot_be() -> None:
    p, m = axes(4, 3)
    x, y = ng.placeholder([p, m]).named("x"), ng.placeholder([p, m]).named("y")
    with pytest.raises(GraphError, match="y is neither a parameter nor a result"):
        made().computation(x + 1.0, x, orders={y: [m, p]})
    with pytest.raises(AxisError, match="is not an order of"):
        made().computation(x + 1.0, x, orders={x: [m]})


def test_an_argument_in_the_declared_order_is_not_copied() -> None:
    p, m = axes(64, 32)
    x = ng.placeholder([p, m])
    f = made().computation(ng.sum(x, p), x, orders={x: [m, p]})
    assert f.lowered.inputs[0].type.axes == ("A1", "A0")
    given = np.random.rand(32, 64).astype("f").T
    assert fast(f, lambda: f(given)) == 3
    np.testing.assert_allclose(f(given), given.sum(0), rtol=1e-5)
    assert f.compare(given) >= 1


@pytest.mark.parametrize("seed", range(30))
def test_any_array_at_any_time(seed: int) -> None:
    """What does not fit goes another way, and what fits is right: arrays and tensors of any strides, in turns."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(0, 4))
    shape = tuple(int(n) for n in rng.choice([0, 1, 2, 3, 7], rank, p=[0.04, 0.2, 0.26, 0.25, 0.25]))
    own = axes(*shape)
    x, y = ng.placeholder(own), ng.placeholder(own)
    f = made().computation([x - y, x + y], x, y)

    def drawn() -> Any:
        order = rng.permutation(rank)
        steps = [int(rng.choice([1, 1, 1, 2, -1])) for _ in shape]
        whole = rng.random([max(shape[d], 1) * abs(steps[d]) for d in order]).astype("f")
        array = whole.transpose(np.argsort(order))[tuple(slice(None, None, s) for s in steps)][tuple(map(slice, shape))] if rank else whole
        if rng.random() < 0.3:
            array = np.ascontiguousarray(array).reshape(shape)
        if rng.random() < 0.4 and all(s >= 0 for s in array.strides):
            return torch.from_numpy(np.asarray(array))
        return np.asarray(array)

    for _ in range(25):
        a, b = drawn(), drawn()
        wanted = np.asarray(a) - np.asarray(b), np.asarray(a) + np.asarray(b)
        if rng.random() < 0.5:
            out = [drawn(), drawn()]
            assert f(a, b, out=out) is out
        else:
            out = f(a, b)
        for got, want in zip(out, wanted, strict=True):
            np.testing.assert_array_equal(np.asarray(got), want)


def test_out_may_be_an_argument_and_two_may_not_overlap() -> None:
    (p,) = axes(8)
    x = ng.placeholder([p])
    f = made().computation([x + 1.0, ng.tensor_slice(x, [slice(None, None, -1)])], x)
    a = np.arange(8.0, dtype="f")
    for _ in range(5):
        before = a.copy()
        other = np.empty(8, "f")
        f(a, out=[a, other])
        np.testing.assert_array_equal(a, before + 1)
        np.testing.assert_array_equal(other, before[::-1])


def test_frozen_and_wrong_outs_are_refused() -> None:
    p, m = axes(4, 3)
    x = ng.placeholder([p, m])
    f = made().computation(x + 1.0, x)
    a, frozen = np.ones((4, 3), "f"), np.ones((4, 3), "f")
    frozen.flags.writeable = False
    for _ in range(5):
        f(a)
        for bad in (np.empty((3, 4), "f"), np.empty((4, 3)), torch.empty(4, 3, dtype=torch.float64), 3):
            with pytest.raises(ArgumentError, match="out="):
                f(a, out=bad)
        with pytest.raises((ArgumentError, ValueError), match="read-only|out="):
            f(a, out=frozen)
    assert (frozen == 1).all()


GROWTH = """
import numpy as np, torch
import ngraph as ng, ngraph.transformers as ngt

p, m = ng.make_axis(100, name="P"), ng.make_axis(30, name="M")
x, y = ng.placeholder([p, m]), ng.placeholder([p, m])
a, ta, w, out = np.ones((100, 30), "f"), torch.ones(100, 30), torch.nn.Parameter(torch.ones(100, 30)), np.empty((100, 30), "f")
t = ngt.make_transformer()
plain = t.computation([x + y, x - y], x, y)
theirs = t.computation([x + y, x - y], x, y, array_type=torch.Tensor, orders={x: [m, p]})
writes = t.computation(x - y, x, y, writes={x: x + y})
n = ng.make_axis(name="N")
z = ng.placeholder([n, m])
opened = t.computation([z + 1.0, ng.sum(z, n)], z)
outs = [out, out.copy()]
calls = [
    lambda: plain(ta, w),
    lambda: plain(a, a, out=outs),
    lambda: theirs(ta, w),
    lambda: theirs(ta.t().contiguous().t(), w),
    lambda: writes(w, a),
    lambda: [opened(a[:k]) for k in (3, 100, 41)],
    lambda: plain(ta[:, :1].expand(100, 30), w),
]
for call in calls:
    for _ in range(300):
        call()
before = resident()
for call in calls:
    for _ in range(10_000 if call is not calls[-1] else 1000):
        call()
print(resident() - before)
"""


@needs_statm
def test_ten_thousand_calls_leave_no_memory() -> None:
    (growth,) = printed(GROWTH)
    assert growth < 4 << 20  # one result in a hundred kept would be 1.2 MB


def test_threads_that_call_with_tensors() -> None:
    p, m = axes(100, 30)
    x = ng.placeholder([p, m])
    f = made().computation(x * 2.0, x, array_type=torch.Tensor)
    f(torch.ones(100, 30))
    wrong: list[Any] = []

    def work(k: int) -> None:
        given = torch.full((100, 30), float(k))
        for _ in range(300):
            if not bool((f(given) == 2.0 * k).all()):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# ---- lengths that calls bring


def lengths_of(*names: str) -> list[Any]:
    return [ng.make_axis(name=n) for n in names]


@pytest.mark.parametrize("kind", [None, torch.Tensor], ids=["arrays", "tensors"])
@pytest.mark.parametrize("seed", range(4))
def test_any_lengths_run_no_python(seed: int, kind: Any) -> None:
    """Arguments in any order of memory, some with lengths computed from others; results against NumPy, in memory of their own or `out=`."""
    rng = np.random.default_rng(seed)
    n, m = lengths_of("N", "M")
    (c,) = axes(5)
    x, y = ng.placeholder([n, c, m]), ng.placeholder([m, n])
    order = [[n, c, m], [m, n, c], [c, m, n], [n, m, c]][seed]
    results = [x * 2.0 + y, ng.sum(x, m), ng.concat_along_axis([y, y + 1.0], n)]
    f = made().computation(results, x, y, orders={x: order, results[0]: order}, array_type=kind)
    own = [n, c, m]
    turn = [own.index(a) for a in order]
    kept = []
    for call in range(40):
        k, j = (int(v) for v in rng.integers(1, 40 if call < 20 else 400, 2))
        lengths = [k, 5, j]
        a = rng.random([lengths[d] for d in turn]).astype("f").transpose(np.argsort(turn))
        b = rng.random((j, k)).astype("f")
        wanted = [a * 2 + b.T[:, None], a.sum(2), np.concatenate([b, b + 1], 1)]
        args = [torch.from_numpy(v) for v in (a, b)] if kind or call % 3 == 2 else [a, b]
        got = f(*args)
        for one, want in zip(got, wanted, strict=True):
            assert type(one) is (kind or np.ndarray) and tuple(one.shape) == want.shape
            np.testing.assert_allclose(np.asarray(one), want, rtol=1e-5)
        kept.append((got, wanted))
        assert np.asarray(got[0]).transpose(turn).flags.c_contiguous
        if call % 4 == 3 and kind is None:
            into = [np.empty(w.shape, "f") for w in wanted]
            into[0] = np.empty([lengths[d] for d in turn], "f").transpose(np.argsort(turn))
            assert f(*args, out=into) is into
            for one, want in zip(into, wanted, strict=True):
                np.testing.assert_allclose(one, want, rtol=1e-5)
    for got, wanted in kept:  # later calls leave results alone
        np.testing.assert_allclose(np.asarray(got[2]), wanted[2], rtol=1e-5)
    assert f._fast.open and f._fast.call.calls > 30
    with pytest.raises((ArgumentError, AxisError), match="length"):
        f(np.ones((3, 5, 4), "f"), np.ones((4, 2), "f"))
    np.testing.assert_allclose(np.asarray(f(*args)[1]), a.sum(2), rtol=1e-5)


def test_memory_grows_for_longer_calls_and_wrong_ones_change_nothing() -> None:
    """Loops, borders, scratch, an arena of another size in each call: short and long ones in turns; an empty axis that may not be."""
    (n,), (c, d) = lengths_of("N"), axes(24, 24)
    x = ng.placeholder([n, c])
    w = np.random.default_rng(0).standard_normal((24, 24)).astype("f") / 5
    y = ng.tanh(ng.contract(x, ng.constant(w, [c, d]), over=[c]))
    y = y - ng.mean(y, reduction_axes=[n])
    _, z = ng.scan(lambda carry, row: (carry * 0.5 + row, carry + row), ng.constant(0.0, [d]), y, n)
    f = made().computation([z, ng.max(z, n), ng.argmax(x, n)], x)
    for k in (3, 5, 4, 9, 2, 700, 1, 3, 2000, 8, 1999, 2001, 13):
        a = np.random.default_rng(k).standard_normal((k, 24)).astype("f")
        v = np.tanh(a.astype("d") @ w)
        v -= v.mean(0)
        carry, rows = np.zeros(24), []
        for row in v:
            rows.append(carry + row)
            carry = carry * 0.5 + row
        for _ in range(2):
            every, most, where = f(a)
            np.testing.assert_allclose(every, rows, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(most, np.max(rows, 0), rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(where, a.argmax(0))
        with pytest.raises(ArgumentError, match="0 elements to choose from"):
            f(a[:0])
        with pytest.raises((ArgumentError, AxisError), match="C|A0"):
            f(a[:, 1:])
    assert f._fast.call.calls > 10


def test_a_version_that_is_asked_for_is_used() -> None:
    (n,), (c,) = lengths_of("N"), axes(6)
    x = ng.placeholder([n, c])
    f = made().computation(x + 1.0, x)
    for k in (2, 3, 4, 5, 6):
        f(np.ones((k, 6), "f"))
    f.compile(N=7)
    for k in (7, 7, 3, 7):
        np.testing.assert_array_equal(f(np.ones((k, 6), "f")), np.full((k, 6), 2.0))
    assert f.versions == {"N open": 6, "N=7": 3}


def test_training_steps_of_any_length_run_no_python() -> None:
    """New weights that are computed from old ones elsewhere are copied back: state keeps its memory, and what Python sets counts."""
    (n,), (c, k) = lengths_of("N"), axes(9, 4)
    x, t = ng.placeholder([n, c]), ng.placeholder([n, k])
    rng = np.random.default_rng(0)
    first = rng.standard_normal((9, 4)).astype("f")
    w, v = ng.variable([c, k], initial_value=first), ng.variable([c, k], initial_value=0.0)
    error = ng.contract(x, w, over=[c]) - t
    cost = ng.sum(ng.square(error), out_axes=())
    speed = ng.assign(v, v * 0.5 + ng.deriv(cost, w) * -1e-3)
    swap = ng.assign(w, w + ng.sum(w, k) * 1e-3 + v)
    transformer = made()
    f = transformer.computation(ng.sequential([speed, swap, cost]), x, t)
    weight, velocity = first.astype("d"), np.zeros((9, 4))
    for call in range(30):
        rows = int(rng.integers(1, 70))
        a, b = rng.standard_normal((rows, 9)).astype("f"), rng.standard_normal((rows, 4)).astype("f")
        if call == 17:
            weight = first.astype("d")
            transformer.set(w, first)
        velocity = velocity * 0.5 - 1e-3 * 2 * a.T @ (a @ weight - b)
        wanted = ((a @ weight - b) ** 2).sum(), ((a @ (weight + weight.sum(1)[:, None] * 1e-3 + velocity) - b) ** 2).sum()
        weight = weight + weight.sum(1)[:, None] * 1e-3 + velocity
        got = float(f(a, b))
        assert min(abs(got - q) for q in wanted) < 1e-3 * max(wanted)
        np.testing.assert_allclose(transformer.get(w), weight, rtol=1e-3, atol=1e-4)
    assert f._fast.open and f._fast.call.calls > 20


def test_threads_with_unlike_lengths() -> None:
    (n,), (c,) = lengths_of("N"), axes(300)
    x = ng.placeholder([n, c])
    f = made().computation([x * 2.0, ng.sum(x, n)], x)
    for k in (1, 2, 3, 4, 5):
        f(np.ones((k, 300), "f"))
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(200):
            k = int(rng.integers(1, 600))
            double, total = f(np.full((k, 300), float(seed), "f"))
            if double.shape != (k, 300) or not (double == 2.0 * seed).all() or not (total == float(k * seed)).all():
                wrong.append((seed, k))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong

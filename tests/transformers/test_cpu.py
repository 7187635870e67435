"""What is special about transformer cpu: threads and bits, memory, versions for lengths, the fast way in, state that is packed."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ArgumentError, OutOfMemoryError
from ngraph.plan.kernels import OpaqueOp
from ngraph.runtime.host.bytecode import at_once
from ngraph.transformers.cpu import fast
from ngraph.transformers.cpu.device import CpuDevice
from ngraph.transformers.executable import versions


@pytest.fixture
def cpu():
    with ngt.make_transformer_factory("cpu")() as transformer:
        yield transformer


def axes(**lengths):
    return [ng.make_axis(n, name=name) for name, n in lengths.items()]


def network(transformer, width=300, batch=64):
    """A training step and a forward pass of two layers, with momentum."""
    n, i, h, o = axes(N=batch, I=200, H=width, O=10)
    rng = np.random.default_rng(0)
    x, y = ng.placeholder([n, i]).named("x"), ng.placeholder([n], dtype=ng.int64).named("y")
    w = [
        ng.variable(a, initial_value=(rng.standard_normal([len(k) for k in a]) / 10).astype("f")).named(f"w{k}")
        for k, a in enumerate(([i, h], [h, o]))
    ]
    logits = ng.dot(ng.tanh(ng.dot(x, w[0])), w[1])
    loss = ng.mean(ng.cross_entropy_multi(ng.softmax(logits, [o]), ng.one_hot(y, o), out_axes=[n]), out_axes=())
    updates = []
    for v in w:
        speed = ng.persistent_tensor(v.axes, initial_value=0)
        step = speed * 0.9 + ng.deriv(loss, v)
        updates += [ng.assign(speed, step), ng.assign(v, v - 0.1 * step)]
    train = transformer.computation([loss, ng.doall(updates)], x, y)
    forward = transformer.computation(logits, x)
    data = rng.standard_normal((batch, 200)).astype("f"), rng.integers(0, 10, batch)
    return train, forward, data


def trained(threads):
    with ng.config(num_threads=threads), ngt.make_transformer_factory("cpu")() as transformer:
        train, forward, (x, y) = network(transformer)
        losses = [train(x, y)[0].tobytes() for _ in range(5)]
        return losses, forward(x).tobytes()


def test_training_gives_equal_bits_for_any_number_of_threads():
    first = trained(1)
    assert first[0][0] != first[0][-1]
    for threads in (1, 2, 3, 4):
        assert trained(threads) == first


def large(transformer):
    """Kernels long enough to be cut up: rows, columns, totals, a product, a convolution and its gradients."""
    a, b, c = axes(A=500, B=700, C=300)
    x, z = ng.placeholder([a, b]), ng.placeholder([b, c])
    n, k, h, w, r, s, o = axes(N=4, K=8, H=40, W=40, R=3, S=3, O=16)
    image, weights = ng.placeholder([n, k, h, w]), ng.placeholder([o, k, r, s])
    out = ng.conv(image, weights, {h: r, w: s}, padding=1)
    total = ng.sum(ng.square(out), out_axes=())
    results = [
        ng.softmax(x, [b]) + ng.mean(x, out_axes=[b]),
        ng.sum(ng.exp(x), out_axes=()),
        ng.variance(x, out_axes=[b]),
        ng.dot(x, z),
        ng.deriv(total, weights),
        ng.deriv(total, image),
    ]
    rng = np.random.default_rng(1)
    holes = [x, z, image, weights]
    values = [rng.standard_normal([len(i) for i in p.axes]).astype("f") for p in holes]
    return transformer.computation(results, *holes), values


def test_large_kernels_give_equal_bits_for_any_number_of_threads_and_each_time():
    kept = None
    for threads in (1, 2, 3, 4):
        with ng.config(num_threads=threads), ngt.make_transformer_factory("cpu")() as transformer:
            f, values = large(transformer)
            for _ in range(5):
                got = [a.tobytes() for a in f(*values)]
                kept = kept or got
                assert got == kept


def test_large_kernels_are_right(cpu):
    f, values = large(cpu)
    with ngt.make_transformer_factory("numpy")() as other:
        g, _ = large(other)
        for a, b in zip(f(*values), g(*values), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4 * float(np.abs(b).max()))


# ---- threads and processes ----------------------------------------------------------------------------------------------


def test_eight_threads_call_at_once(cpu):
    f, values = large(cpu)
    right = [a.tobytes() for a in f(*values)]
    wrong = []

    def work():
        for _ in range(5):
            if [a.tobytes() for a in f(*values)] != right:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_eight_threads_count(cpu):
    """Calls that write state come one after another, the fast ones too."""
    (a,) = axes(A=100)
    w = ng.variable([a], initial_value=np.zeros(100, "f"))
    step, read = cpu.computation(ng.assign(w, w + 1)), cpu.computation(ng.sum(w, out_axes=()))
    seen = []

    def work():
        for _ in range(300):
            step()
            total = float(read())
            seen.append(total % 100)  # all elements are of one age

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not any(seen) and (cpu.get(w) == 2400).all()


def test_a_child_process_computes(cpu):
    f, values = large(cpu)
    train, forward, (x, y) = network(cpu)
    right = [a.tobytes() for a in f(*values)]
    train(x, y)
    ahead = forward(x).tobytes()
    child = os.fork()
    if not child:
        fine = [a.tobytes() for a in f(*values)] == right and forward(x).tobytes() == ahead
        train(x, y)
        os._exit(0 if fine and forward(x).tobytes() != ahead else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert forward(x).tobytes() == ahead


def test_a_child_of_a_process_in_the_middle_of_calls(cpu):
    """Whatever other threads were doing when it was forked: it computes, fast and slow."""
    f, values = large(cpu)
    right = [a.tobytes() for a in f(*values)]
    stop = threading.Event()

    def work():
        while not stop.is_set():
            f(*values)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    try:
        for _ in range(5):
            child = os.fork()
            if not child:
                os._exit(0 if [a.tobytes() for a in f(*values)] == right else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        for t in threads:
            t.join()


def test_importing_ngraph_loads_no_compiler():
    code = "import sys, ngraph, ngraph.transformers; print([m for m in sys.modules if 'llvm' in m or m.startswith('ngraph.plan')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


# ---- Ctrl-C ---------------------------------------------------------------------------------------------------------------


def pressed(after):
    timer = threading.Timer(after, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    return timer


def test_control_c_ends_a_call_without_state(cpu):
    """A call of about a minute."""
    a, b, t = axes(A=2000, B=2000, T=5000)
    x, z = ng.placeholder([a, b]), ng.placeholder([t])
    last, _ = ng.scan(lambda state, s: (ng.sin(ng.exp(state)) + s, s), x, z, t)
    f = cpu.computation(last, x, z).compile()
    timer, start = pressed(1), time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        f(np.zeros((2000, 2000), "f"), np.zeros(5000, "f"))
    assert time.monotonic() - start < 20
    timer.join()


# ---- memory -----------------------------------------------------------------------------------------------------------------


def test_results_are_the_callers_alone(cpu):
    """What goes out is neither an argument nor state nor the same array twice."""
    a, b = axes(A=3, B=4)
    x = ng.placeholder([a, b])
    w = ng.variable([a, b], initial_value=np.ones((3, 4), "f"))
    f = cpu.computation([x, x, w, x + 1, x + 1, ng.constant(np.arange(20, dtype="f"), [ng.make_axis(20, name="C")])], x)
    value = np.zeros((3, 4), "f")
    for _ in range(3):
        got = f(value)
        for array in got:
            array[...] = 77
        assert (value == 0).all()
    assert (cpu.get(w) == 1).all() and (f(value)[5] == np.arange(20)).all() and (f(value)[3] == 1).all()


@pytest.mark.parametrize("swap", [False, True])
def test_state_that_changes_places(cpu, swap):
    a = axes(A=5)
    u, v = (ng.variable(a, initial_value=np.full(5, k, "f")) for k in (1, 2))
    f = cpu.computation([u, v, ng.doall([ng.assign(u, v), ng.assign(v, u if swap else v + u)])])
    expected = [1.0, 2.0]
    for _ in range(4):
        expected = [expected[1], expected[0] if swap else sum(expected)]
        got = f()
        assert [float(got[0][0]), float(got[1][0])] == expected
        assert [float(cpu.get(k)[4]) for k in (u, v)] == expected


def test_out_is_filled_where_it_lies(cpu):
    a, b = axes(A=30, B=40)
    x = ng.placeholder([a, b])
    f = cpu.computation([x + 1, ng.sum(x, out_axes=[a])], x)
    value = np.random.default_rng(0).standard_normal((30, 40)).astype("f")
    right = f(value)
    out = (np.zeros((30, 40), "f"), np.zeros(30, "f"))
    assert f(value, out=out) is out and all((o == r).all() for o, r in zip(out, right, strict=True))
    strided = (np.zeros((40, 30), "f").T, np.zeros(60, "f")[::2])
    f(value, out=strided)
    assert all((o == r).all() for o, r in zip(strided, right, strict=True))
    f(value, out=(value, out[1]))  # the argument itself
    assert (value == right[0]).all() and (out[1] == right[1]).all()
    with pytest.raises(ArgumentError, match=r"out= holds float32\[30, 41\] where the result is float32\[30, 40\]"):
        f(value, out=(np.zeros((30, 41), "f"), out[1]))


def test_what_does_not_fit_into_memory_is_said_before_anything_runs(cpu):
    a, b = axes(A=1 << 20, B=1 << 24)
    x, z = ng.placeholder([a]), ng.placeholder([b])
    w = ng.variable([ng.make_axis(3, name="W")], initial_value=np.ones(3, "f"))
    f = cpu.computation([x + z, ng.assign(w, w + 1)], x, z)
    with pytest.raises(OutOfMemoryError, match="bytes"):
        f(np.zeros(1 << 20, "f"), np.zeros(1 << 24, "f"))
    assert (cpu.get(w) == 1).all() and not cpu.state.torn


def test_memory_says_what_it_is_for(cpu):
    train, forward, (x, y) = network(cpu)
    train(x, y)
    assert set(train.memory) == {"arena", "constants", "packed", "state", "outputs"}
    assert train.memory["state"] == 2 * 4 * (200 * 300 + 300 * 10) and train.memory["arena"] > 64 * 300 * 4
    assert forward.memory["outputs"] == 64 * 10 * 4


# ---- lengths ------------------------------------------------------------------------------------------------------------------


def test_fifty_lengths_are_one_compilation(cpu):
    n, a = ng.make_axis(name="N"), ng.make_axis(7, name="A")
    x = ng.placeholder([n, a])
    f = cpu.computation([ng.softmax(x, [a]), ng.sum(x, out_axes=[a])], x)
    for length in [5, *range(1, 51), 5, 0]:
        value = np.random.default_rng(length).standard_normal((length, 7)).astype("f")
        soft, total = f(value)
        e = np.exp(value - value.max(1, keepdims=True))
        np.testing.assert_allclose(soft, e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(total, value.sum(0), rtol=1e-4, atol=1e-5)
    assert len(f.native.codes) == 1 and len(f.native.bound) <= 16


def test_lengths_that_keep_coming_get_a_version_of_their_own(cpu, monkeypatch):
    monkeypatch.setattr(versions, "CALLS_BEFORE_SPECIALISING", 3)
    n = ng.make_axis(name="N")
    x = ng.placeholder([n])
    f = cpu.computation(x + 1, x)
    with ng.config(lengths="first"):
        for calls, (length, codes) in enumerate([(2, 1)] + [(5, 2)] * 3 + [(5, 3)] * 2 + [(7, 3)] * 6 + [(7, 4), (5, 4), (9, 4)]):
            assert (f(np.full(length, calls, "f")) == calls + 1).all() and len(f.native.codes) == codes
    assert list(f.native.codes) == [(2,), (None,), (5,), (7,)]


def test_lengths_of_what_writes_state_stay_open(cpu, monkeypatch):
    monkeypatch.setattr(versions, "CALLS_BEFORE_SPECIALISING", 3)
    n, v = ng.make_axis(name="N"), ng.variable([], initial_value=0.0)
    x = ng.placeholder([n])
    f = cpu.computation(ng.assign(v, v + ng.sum(x, out_axes=[])), x)
    with ng.config(lengths="first"):
        for length in [2] + [5] * 9:
            f(np.ones(length, "f"))
    assert list(f.native.codes) == [(2,), (None,)]


def test_a_version_for_lengths_that_matter(cpu):
    n, m = ng.make_axis(name="N"), ng.make_axis(name="M")
    x = ng.placeholder([n, m])
    f = cpu.computation(ng.sum(x, out_axes=[n]), x).compile(N=4, M=6).compile(N=3)
    native = f.native
    assert list(native.codes) == [(4, 6), (3, None)]
    for shape in ((4, 6), (3, 9), (3, 2)):
        assert (f(np.ones(shape, "f")) == shape[1]).all()
    assert len(native.codes) == 2
    for shape in ((5, 7), (8, 9), (1, 1)):
        assert (f(np.ones(shape, "f")) == shape[1]).all()
    assert len(native.codes) <= 4
    with pytest.raises(ng.errors.AxisError, match="no axis Q whose length is open"):
        f.compile(Q=3)


def test_what_has_a_length_waits_for_the_step_that_finds_it(cpu):
    """Not only what reads what that step finds: a number spread along such an axis, beside a sum that it comes from."""
    a, b = axes(A=200, B=3)
    x, y = ng.placeholder([a]), ng.placeholder([b])
    (where,) = ng.nonzero(x)
    (found,) = where.axes
    total = ng.sum(y * 2, out_axes=())
    spread = ng.broadcast(total, [found])
    run = cpu.computation([total, spread, ng.sum(spread * 3, out_axes=()), where], x, y)
    draw = np.random.default_rng(0)
    for k in range(6):
        v, u = draw.integers(0, 2 + k % 2, 200).astype("f"), draw.integers(0, 9, 3).astype("f")
        one, each, sums, places = run(v, u)
        assert one == 2 * u.sum() and places.tolist() == np.flatnonzero(v).tolist()
        assert each.tolist() == [2 * u.sum()] * len(places) and sums == 6 * u.sum() * len(places)


# ---- the fast way in ------------------------------------------------------------------------------------------------------------


def test_threads_and_the_entry_are_loaded_at_once(monkeypatch):
    """Neither waits for the other: LLVM has both before the kernels of the program come."""
    met = threading.Barrier(3, timeout=5)
    monkeypatch.setattr(fast.pool, "made", lambda: False)
    monkeypatch.setattr(fast.pool, "pool", lambda load: met.wait())
    monkeypatch.setattr(fast.entry, "code", lambda load: met.wait())
    fast.load_ahead()
    met.wait()


@pytest.mark.parametrize("limit, quick", [(1e9, True), (0.0, False)])
def test_what_a_call_takes_decides_where_more_was_predicted(cpu, monkeypatch, limit, quick):
    """Calls of programs with state keep other threads waiting on the fast way: it is for short ones."""
    real = CpuDevice.entry
    monkeypatch.setattr("ngraph.transformers.cpu.fast.ALONE", limit)
    monkeypatch.setattr(CpuDevice, "entry", lambda self, *given: given[3] and real(self, *given))
    n, c = axes(N=8, C=4)
    x, w = ng.placeholder([n, c]), ng.variable([c], initial_value=3)
    run = cpu.computation(x * w, x)
    for k in range(6):
        assert run(np.full((8, 4), k, np.float32)).tolist() == [[3 * k] * 4] * 8
        assert (run._fast is not None) is (quick and k > 0)
    assert quick or run._entry.__name__ == "entry"  # no call is timed any more
    cpu.set(w, 5)
    assert run(np.ones((8, 4), np.float32))[0, 0] == 5
    cpu.close()
    with pytest.raises(ng.errors.StateError, match="closed"):
        run(np.ones((8, 4), np.float32))


def test_arguments_of_all_kinds(cpu):
    """Those that fit as they are, and those that have to be converted, in turn."""
    a, b = axes(A=3, B=4)
    x = ng.placeholder([a, b])
    f = cpu.computation(x * 2, x)
    value = np.arange(12, dtype="f").reshape(3, 4)
    assert f(value) is not f(value)
    given = [value, value.astype("f8"), value.tolist(), np.asfortranarray(value), np.repeat(value, 2, 1)[:, ::2], value.astype("i4")]
    readonly, unaligned = value.copy(), np.zeros(12 * 4 + 1, np.uint8)[1:].view("f").reshape(3, 4)
    readonly.flags.writeable = False
    unaligned[...] = value
    for v in [*given, readonly, unaligned, np.broadcast_to(value, (3, 4)), value.view(np.recarray)]:
        got = f(v)
        assert type(got) is np.ndarray and got.dtype == "f" and (got == value * 2).all() and got.flags.writeable
    assert (f(3) == 6).all() and (f(feed_dict={x: value}) == value * 2).all()
    kept = [f(value) for _ in range(100)]
    assert len({k.ctypes.data for k in kept}) == 100 and all((k == value * 2).all() for k in kept)


def test_errors_are_those_of_other_transformers(cpu):
    a, b = axes(A=3, B=4)
    x, z = ng.placeholder([a, b]).named("x"), ng.placeholder([b], dtype=ng.int32).named("z")
    right = np.zeros((3, 4), "f"), np.zeros(4, "i4")
    with ngt.make_transformer_factory("numpy")() as other:
        fs = [t.computation(x + z, x, z, name="f") for t in (cpu, other)]
        for f in fs:
            f(*right)
        bad = [
            (),
            right[:1],
            (*right, 1),
            (np.zeros((3, 5), "f"), right[1]),
            (right[0], right[1].astype("f") + 0.5),
            (right[0][0], right[1]),
            ("text", right[1]),
            (None, right[1]),
            (right[0], np.full(4, 1 << 40)),
        ]
        for arguments in bad:
            said = []
            for f in fs:
                with pytest.raises(Exception) as error:
                    f(*arguments)
                said.append((type(error.value), str(error.value)))
            assert said[0] == said[1]


def test_results_of_all_forms(cpu):
    a = axes(A=3)
    x = ng.placeholder(a)
    w = ng.variable(a, initial_value=np.zeros(3, "f"))
    one, two = x + 1, x * 2
    value = np.ones(3, "f")
    forms = {
        "single": (one, lambda r: (r == 2).all()),
        "list": ([one, two], lambda r: type(r) is tuple and len(r) == 2 and (r[1] == 2).all()),
        "set": ({one, two}, lambda r: (r[one] == 2).all() and (r[two] == 2).all()),
        "none": (None, lambda r: r is None),
        "empty": ([], lambda r: r == ()),
        "effect": ([ng.assign(w, x), one], lambda r: r[0] is None and (r[1] == 2).all()),
        "assign": (ng.assign(w, x), lambda r: r is None),
    }
    for name, (results, fine) in forms.items():
        f = cpu.computation(results, x)
        for _ in range(3):
            assert fine(f(value)), name


def test_no_reference_is_lost_or_kept(cpu):
    a = axes(A=3)
    x = ng.placeholder(a)
    f = cpu.computation([x + 1, x * 2], x)
    value = np.ones(3, "f")
    f(value)
    counted = [value, value.dtype, None, f]
    before = [sys.getrefcount(k) for k in counted]
    for _ in range(1000):
        f(value)
    after = [sys.getrefcount(k) for k in counted]
    assert max(abs(p - q) for p, q in zip(before, after, strict=True)) < 20
    first = f(value)[0]
    assert sys.getrefcount(first) == 2


def test_state_set_from_outside_is_seen(cpu):
    a = axes(A=4)
    w = ng.variable(a, initial_value=np.zeros(4, "f"))
    step, read = cpu.computation([w + 0, ng.assign(w, w + 1)]), cpu.computation(w * 2)
    for k in range(1, 200):
        if k % 7 == 0:
            cpu.set(w, 100 * k)
        before = cpu.get(w)[0]
        step()
        assert read()[0] == 2 * (before + 1) == 2 * cpu.get(w)[0]


def test_a_call_from_inside_a_write_is_refused(cpu):
    """The fast way sees the lock too."""
    a = axes(A=4)
    w = ng.variable(a, initial_value=np.zeros(4, "f"))
    step, read = cpu.computation(ng.assign(w, w + 1)), cpu.computation(w * 2)
    for _ in range(3):
        step(), read()
    with cpu.state.lock.writing():
        for f in (step, read):
            with pytest.raises(ng.errors.StateError, match="called from inside"):
                f()
    with cpu.state.lock.reading():
        assert read()[0] == 6
        with pytest.raises(ng.errors.StateError, match="called from inside"):
            step()
    step()
    assert read()[0] == 8


def test_closed_computations_are_closed(cpu):
    x = ng.placeholder(axes(A=3))
    f = cpu.computation(x + 1, x)
    for _ in range(3):
        f(np.zeros(3, "f"))
    cpu.close()
    with pytest.raises(ng.errors.StateError, match="closed"):
        f(np.zeros(3, "f"))


# ---- packed state -------------------------------------------------------------------------------------------------------------


def test_training_and_testing_in_turn_see_each_others_weights():
    """Copies of weights in another layout are made anew whenever the weights have changed."""
    with ngt.make_transformer_factory("cpu")() as one, ngt.make_transformer_factory("numpy")() as two:
        pairs = [network(t) for t in (one, two)]
        for _ in range(4):
            got = [forward(train(*data) and data[0]) for train, forward, data in pairs]
            np.testing.assert_allclose(*got, rtol=1e-3, atol=1e-4)
            got = [forward(data[0]) for _, forward, data in pairs]
            np.testing.assert_allclose(*got, rtol=1e-3, atol=1e-4)


# ---- Python stays out -----------------------------------------------------------------------------------------------------------


def test_no_step_calls_python():
    """Nothing that a network is made of: kernels only, and no routine that Python runs."""
    with ngt.make_transformer_factory("cpu")() as cpu:
        train, forward, (x, y) = network(cpu)
        f, values = large(cpu)
        for c, arguments in ((train, (x, y)), (forward, (x,)), (f, values)):
            c(*arguments)
            bound = next(iter(c.native.bound.values()))
            assert not any(isinstance(s, OpaqueOp) for s in bound.plan.steps)
            frame = bound.take()
            assert frame.walk.host_callbacks == 0 and len(frame.walk.table.records) >= 1


def test_effects_are_host_steps(cpu, capsys):
    x = ng.placeholder(axes(A=2))
    f = cpu.computation(ng.sequential([ng.print_values(x, text="x is"), x + 1]), x)
    assert (f(np.zeros(2, "f")) == 1).all() and "x is [0. 0.]" in capsys.readouterr().out
    bound = next(iter(f.native.bound.values()))
    assert bound.take().walk.host_callbacks == 1 == sum(isinstance(s, OpaqueOp) for s in bound.plan.steps)


def test_state_in_two_arrays_is_nobody_elses(cpu):
    """A new value that cannot take the old one's place; several computations, and values from outside, in between."""
    (a,) = axes(A=6)
    w = ng.variable([a], initial_value=np.arange(6, dtype="f"))
    turn = cpu.computation([ng.assign(w, w[::-1] + ng.sum(w, out_axes=())), ng.sum(w, out_axes=())])
    other = cpu.computation(ng.assign(w, w[::-1] * 2))
    expected = np.arange(6, dtype="f")
    for k in range(12):
        turn()
        expected = expected[::-1] + expected.sum()
        if k % 3 == 1:
            other()
            expected = expected[::-1] * 2
        if k % 5 == 4:
            kept = cpu.get(w)
            cpu.set(w, expected % 7)
            expected = expected % 7
            turn()
            expected = expected[::-1] + expected.sum()
            assert kept is not cpu.get(w)
        np.testing.assert_allclose(cpu.get(w), expected, rtol=1e-5)
        if k % 4 == 3:
            expected = np.arange(6, dtype="f")
            cpu.set(w, expected)


def test_a_product_of_one_hots_counts(cpu):
    """Neither operand has an array of its own along the vector axis."""
    y, p, n = ng.make_axis(5, name="Y"), ng.make_axis(5, name="P"), ng.make_axis(name="N")
    truth, guess = ng.placeholder([n], dtype="int32"), ng.placeholder([n], dtype="int32")
    f = cpu.computation(ng.contract(ng.one_hot(truth, y), ng.one_hot(guess, p), over=(n,)), truth, guess)
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 5, (2, 70)).astype(np.int32)
    expected = np.zeros((5, 5))
    np.add.at(expected, (a, b), 1)
    assert (f(a, b) == expected).all()


def test_predicates_of_open_lengths_are_known_in_every_block(cpu):
    """The last step of a scan by the version for any batch: its predicates hold lengths that come with the call."""
    n, t, i, h = ng.make_axis(name="N"), *axes(REC=12, F=2, H=24)
    rng = np.random.default_rng(0)
    wv, uv = (rng.standard_normal(s).astype("f") / 5 for s in ((24, 24), (24, 2)))
    x, w, u = ng.placeholder([n, t, i]), ng.variable([h, h - 1], initial_value=wv), ng.variable([h, i - 1], initial_value=uv)

    def step(state, v):
        new = ng.tanh(v + ng.dot(w, state))
        return new, new

    _, ys = ng.scan(step, ng.broadcast(ng.constant(0.0), [h, n]), ng.dot(u, x), t)
    last = ng.slice_along_axis(ys, t, -1)
    f = cpu.computation([last, ng.sum(last, out_axes=())], x)
    for size in (10, 7, 3):
        xv = rng.standard_normal((size, 12, 2)).astype("f")
        state = np.zeros((24, size), "f")
        for k in range(12):
            state = np.tanh(uv @ xv[:, k].T + wv @ state)
        got, total = f(xv)
        np.testing.assert_allclose(got, state if last.axes[0].name == "H" else state.T, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(total, state.sum(), rtol=1e-3, atol=1e-4)


def test_what_is_computed_of_state_alone_may_be_as_long_as_an_argument(cpu):
    """It is kept from call to call, in memory of its own for each length."""
    a, c, n = *axes(A=5, C=3), ng.make_axis(name="N")
    w = ng.variable([a], initial_value=np.arange(5.0))
    v, x = ng.variable([a, c], initial_value=np.arange(15.0).reshape(5, 3)), ng.placeholder([n])
    wide = ng.dot(ng.broadcast(w, [a, n]), v)
    _, each = ng.scan(lambda carry, u: (carry + u, carry), wide, w, a)
    f, more = cpu.computation([x + 1, each], x), cpu.computation(ng.assign(w, w + 1))
    for step, size in enumerate((2, 129, 17, 129, 0, 1)):
        now = np.arange(5.0) + step
        row = now @ np.arange(15.0).reshape(5, 3)
        expected = row + (np.cumsum(now) - now)[:, None, None] + np.zeros((1, size, 1))
        np.testing.assert_array_equal(f(np.ones(size))[1], expected)
        more()


def test_what_is_kept_reads_nothing_that_a_call_makes(cpu):
    """A cheap value of state alone, needed for a total that is kept and in calls."""
    a, d, b = axes(A=2, D=33, B=2)
    value = np.random.default_rng(0).standard_normal((2, 33, 2))
    w, x = ng.variable([a, d, b], initial_value=value, dtype="float64"), ng.placeholder([], dtype="float64")
    total = ng.sum(w * abs(w), out_axes=())
    last, _ = ng.scan(lambda carry, v: (carry * 0.5 + v, None), ng.broadcast(total, [a, d]), abs(w), b)
    f, grow = cpu.computation([last + x, ng.exp(total) * 0 + total], x), cpu.computation(ng.assign(w, w * 2))
    for factor in (1, 2, 4):
        v = value * factor
        expected = np.sum(v * abs(v)) / 4 + abs(v[..., 0]) / 2 + abs(v[..., 1])
        np.testing.assert_allclose(f(0.0)[0], expected, rtol=1e-12)
        grow()


def test_blocks_that_do_not_divide_beside_an_open_length(cpu):
    """Whole and last blocks are written apart: what both need of the open length is computed before either."""
    b, c, a, q = ng.make_axis(name="B"), *axes(C=17, A=3, Q=2)
    x = ng.placeholder([c, b, a], dtype="float64")
    wide = ng.concat_along_axis([x, x, x], a)
    f = cpu.computation([wide, ng.stack([wide, wide], q, pos=3)], x)
    for size in (3, 17, 0, 1):
        v = np.arange(17.0 * size * 3).reshape(17, size, 3)
        once, twice = f(v)
        expected = np.concatenate([v, v, v], axis=2)
        assert (once == expected).all() and (twice == expected[..., None]).all() and twice.shape == (17, size, 9, 2)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8"])
def test_a_vector_with_one_lane_in_use_writes_one_element(cpu, dtype):
    """The mask is known while code is written: the store is one of an element, as wide as the element."""
    (n,) = axes(N=1)
    x = ng.placeholder([n], dtype=dtype)
    room = np.full(8, 7, x.dtype.np)
    cpu.computation([ng.cumsum(x, n)], x)(np.full(1, 3, x.dtype.np), out=[room[:1]])
    assert room.tolist() == [3] + [7] * 7


def test_masked_stores_of_narrow_values_stay_inside(cpu):
    """One byte left at the end of an array: nothing behind it changes, though the value was wider while it was computed."""
    n, h = axes(N=1000, H=7)
    wide = ng.randint([n, h], -3, 4, seed=3)
    narrow = ng.randint([n], 0, 2, dtype="uint8", seed=5)
    room = np.full(1128, 167, np.uint8)
    f = cpu.computation([wide, narrow])
    f(out=[np.empty((1000, 7), np.asarray(f()[0]).dtype), room[:1000]])
    assert (room[:1000] < 2).all() and (room[1000:] == 167).all()


@pytest.mark.parametrize(
    "items, pieces, ways", [(0, 2, 2), (1, 2, 2), (10, 4, 2), (14, 4, 2), (100, 16, 2), (3136, 16, 2), (1 << 40, 32, 4)]
)
def test_ranges_of_work_items_are_shared_out_evenly(items, pieces, ways):
    size = at_once(items, pieces, ways)
    assert 1 <= size <= max(1, -(-items // pieces))
    assert -(-items // size // ways) * size <= -(-items // ways) * 1.01


def test_sums_beside_an_axis_of_length_0(cpu):
    """Work items have parts of both sums; those of one are of nothing."""
    a, z = ng.make_axis(1_000_000, name="A"), ng.make_axis(0, name="Z")
    x, y = ng.placeholder([a]), ng.placeholder([a, z])
    one, none = cpu.computation([ng.sum(x * 2, [a]), ng.sum(y + x, [a])], x, y)(np.ones(1_000_000, np.float32), np.ones((1_000_000, 0)))
    assert one == 2_000_000 and none.shape == (0,)


def test_terms_that_are_written_out_may_read_one_value_at_several_places(cpu):
    """At its own place, and beside it."""
    draw = np.random.default_rng(0)
    h, c = ng.make_axis(4, name="H"), ng.make_axis(16, name="C")
    x, b = ng.placeholder([h, c]), ng.placeholder([c])
    y = ng.avg_pool(x * b + 1, {h: 3}, stride=1, padding=1)
    p, q = draw.normal(size=(4, 16)).astype(np.float32), draw.normal(size=16).astype(np.float32)
    z = p * q + 1
    wanted = np.stack([z[max(k - 1, 0) : k + 2].mean(0) for k in range(4)]).max(0)
    np.testing.assert_allclose(cpu.computation(ng.max(y, reduction_axes=[y.axes[0]]), x, b)(p, q), wanted, rtol=1e-5)


@pytest.mark.filterwarnings("error")
def test_numbers_too_large_for_their_type_are_infinite_without_a_word(cpu):
    a = ng.make_axis(5, name="A")
    x = ng.placeholder([a], dtype="float16")
    y = cpu.computation(ng.softmax(ng.where(ng.greater(ng.iota(a), 2), -1e9, x), [a]), x)(np.arange(5, dtype=np.float16))
    np.testing.assert_allclose(y, np.array([1, np.e, np.e**2, 0, 0]) / (1 + np.e + np.e**2), rtol=2e-3)

"""What several threads do at once with one transformer, one computation, one state; and calls after one that found no memory."""

import threading
import time

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import OutOfMemoryError
from ngraph.runtime.host import entry
from ngraph.transformers import base
from ngraph.transformers.executable import frame
from ngraph.transformers.executable.versions import VersionedExecutable
from tests.together import together


def test_a_call_that_finds_no_memory_leaves_those_after_it_right(monkeypatch):
    """It raises each time it is made, and the same lengths are right once there is memory."""
    n, m = ng.make_axis(name="N"), ng.make_axis(name="M")
    x, y = ng.placeholder([n]), ng.placeholder([m])
    small, large = [np.linspace(0, 1, k, dtype="f") for k in (5, 3000)]
    want = np.cumsum(np.outer(large, large).astype("d"), 1).sum()

    def none(size):
        if size > 1 << 22:
            raise OutOfMemoryError("there is none")

    with ngt.allocate_transformer("cpu") as t:
        f = t.computation(ng.sum(ng.cumsum(x * y, m), [n, m]), x, y)
        first = [f(small, small) for _ in range(8)]
        with monkeypatch.context() as patched:
            patched.setattr(frame, "available", none)
            for _ in range(3):
                with pytest.raises(OutOfMemoryError):
                    f(large, large)
                assert f(small, small) == first[0]
        assert f(large, large) == pytest.approx(want, rel=1e-4)


def test_a_thread_that_reads_state_leaves_calls_fast():
    n = ng.make_axis(8, name="N")
    x, v = ng.placeholder([n]), ng.variable([n], initial_value=np.arange(8, dtype="f"))
    ones = np.ones(8, "f")
    with ngt.allocate_transformer("cpu") as t:
        f = t.computation(x * v, x)
        for _ in range(8):
            f(ones)
        for other in (lambda: f([1.0] * 8), lambda: t.get(v)):
            together(other, other)
            f(ones)
            before = f._fast.calls
            for _ in range(10):
                assert (f(ones) == np.arange(8)).all()
            assert f._fast.calls == before + 10


def test_computations_made_and_dropped_leave_no_words_behind():
    """What they write is counted in one word for the same variables, which others go on to watch."""
    n = ng.make_axis(4, name="N")
    v = ng.variable([n], initial_value=0.0)
    with ngt.allocate_transformer("cpu") as t:
        for k in range(20):
            add, read = t.computation(ng.assign(v, v + 1)), t.computation(v * 2)
            for _ in range(5):
                add()
            assert (read() == 2 * 5 * (k + 1)).all()
        assert len(t.state.quick) == 1


def test_words_that_count_writes_are_of_the_variables_asked_for(switching):
    """Threads that ask at once never get each other's word."""
    with ngt.allocate_transformer("cpu") as t:
        vs = [ng.variable([ng.make_axis(1, name="N")], initial_value=0.0) for _ in range(8)]
        for k in range(40):
            got = together(*[lambda v=v, k=k: t.state.counter([v, vs[k % 8]]) for v in vs])
            assert all(t.state.quick[frozenset([v, vs[k % 8]])] is word for v, word in zip(vs, got, strict=True))


def test_a_function_of_c_has_one_description_for_all_threads(monkeypatch):
    """It is read in each call, and so never freed."""
    both = threading.Barrier(2, timeout=20)

    class Slow(entry._Method):
        def __init__(self, *given):
            super().__init__(*given)
            both.wait()

    monkeypatch.setattr(entry, "_Method", Slow)
    one, other = together(lambda: entry._method(1), lambda: entry._method(1))
    assert one is other


def test_functions_made_at_once_share_a_transformer(monkeypatch):
    made = base.make_transformer

    def slow():
        time.sleep(0.05)
        return made()

    monkeypatch.setattr(base, "make_transformer", slow)
    monkeypatch.setattr("ngraph.transformers.function._default", {})
    v = ng.variable([ng.make_axis(2, name="N")], initial_value=1.0)
    found = together(*[lambda: ng.function(v * 2)] * 3)
    assert len({id(f.transformer) for f in found}) == 1


def test_a_way_past_python_that_came_too_late_is_dropped(monkeypatch):
    n = ng.make_axis(name="N")
    x = ng.placeholder([n])
    made, ones = VersionedExecutable.fast, np.ones(4, "f")
    with ngt.allocate_transformer("cpu") as t:
        f = t.computation(x + 1, x)

        def late(self, *given):
            found = made(self, *given)
            monkeypatch.setattr(VersionedExecutable, "fast", made)
            together(lambda: f(ones))
            return found

        monkeypatch.setattr(VersionedExecutable, "fast", late)
        assert (f(ones) == 2).all()
        assert [len(code.entries) for code in f.native.codes.values()] == [1]


@pytest.mark.parametrize("lengths", ["open", "first"])
def test_who_looks_on_disturbs_no_call(switching, lengths):
    """Threads call with many lengths, while others read what a computation says of itself, compile versions and check results."""
    n, m = ng.make_axis(name="N"), ng.make_axis(5, name="M")
    x = ng.placeholder([n, m])
    given = [np.random.default_rng(k).standard_normal((k, 5)).astype("f") for k in range(40)]
    with ng.config(lengths=lengths):
        for _ in range(4):
            with ngt.allocate_transformer("cpu") as t:
                f = t.computation(ng.sum(ng.tanh(x) * 2 + 1, [m]), x)

                def calls(seed, f=f):
                    for k in np.random.default_rng(seed).integers(0, 40, 100):
                        np.testing.assert_allclose(f(given[k]), (np.tanh(given[k]) * 2 + 1).sum(1), atol=1e-5)

                def looks(f=f, t=t):
                    for k in range(8):
                        assert f.memory and f in t.computations and t.compilations() >= 1 and isinstance(f.versions, dict)
                        if k in (3, 5):
                            f.compile(N=k)
                        with ng.config(nans="raise"):
                            t.computation(x + k, x)

                together(*[lambda s=s: calls(s) for s in range(3)], looks, looks)

"""Many threads on shared state: what they leave is what some serial order of their calls leaves."""

import threading
import time
from contextlib import nullcontext

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import StateError
from ngraph.ops.control import HOST_CALLS
from ngraph.runtime.lock import ReadersWriter
from tests.together import together

WRAP = 1 << 64
THREADS, CALLS = 8, 1000


class Shared:
    """Two computations whose updates of one state do not commute, and one that only reads it."""

    def __init__(self, transformer):
        W = ng.make_axis(64, name="W")
        self.step, self.total = (ng.persistent_tensor((), dtype=ng.uint64, initial_value=0) for _ in "st")
        self.wide = ng.persistent_tensor([W], dtype=ng.uint64, initial_value=0)
        x = ng.placeholder((), dtype=ng.uint64)
        self.runs = []
        for factor in (3, 5):
            step, total, wide = self.step + 1, self.total * factor + x, self.wide * factor + x
            assigns = [ng.assign(self.step, step), ng.assign(self.total, total), ng.assign(self.wide, wide)]
            self.runs.append((factor, transformer.computation([step, total, *assigns], x)))
        self.read = transformer.computation([self.step * 1, self.total * 1, self.wide * 1])
        self.transformer = transformer

    def work(self, seed, calls, log):
        """Calls one or the other at random, and notes which update it was, and what it gave."""
        draw = np.random.default_rng(seed)
        for k in draw.integers(0, 1 << 30, calls):
            if k % 4 == 3:
                step, total, wide = self.read()
                log.append((int(step), None, 0, int(total), wide.tolist()))
            else:
                factor, run = self.runs[k % 4 % 2]
                step, total = run(np.uint64(k))[:2]
                log.append((int(step), factor, int(k), int(total), None))

    def is_serial(self, logs):
        """Whether the numbered updates, one after the other, give every total that was seen, and the state at the end."""
        writes = sorted(entry for log in logs for entry in log if entry[1] is not None)
        if [w[0] for w in writes] != list(range(1, len(writes) + 1)):
            return False
        history = [0]
        for _, factor, x, total, _ in writes:
            history.append((history[-1] * factor + x) % WRAP)
            if history[-1] != total:
                return False
        reads = [entry for log in logs for entry in log if entry[1] is None]
        for step, _, _, total, wide in reads:
            if history[step] != total or set(wide) != {total}:
                return False
        for log in logs:  # a thread sees its own updates, and never an older state after a newer one
            if any(a[0] > b[0] - (b[1] is not None) for a, b in zip(log, log[1:], strict=False)):
                return False
        t = self.transformer
        return len(writes) == int(t.get(self.step)) and set(t.get(self.wide).tolist()) == {history[-1]} == {int(t.get(self.total))}


def test_eight_threads_leave_what_a_serial_order_leaves(transformer, switching):
    shared = Shared(transformer)
    logs = [[] for _ in range(THREADS)]
    together(*[lambda k=k: shared.work(k, CALLS, logs[k]) for k in range(THREADS)])
    assert sum(map(len, logs)) == THREADS * CALLS and all(logs)
    assert shared.is_serial(logs)


def test_without_the_lock_they_would_not(switching, monkeypatch):
    """The check sees what goes wrong where nobody waits for anybody."""
    monkeypatch.setattr(ReadersWriter, "reading", lambda self: nullcontext())
    monkeypatch.setattr(ReadersWriter, "start_writing", lambda self, held: None)
    monkeypatch.setattr(ReadersWriter, "stop_writing", lambda self: None)
    for _ in range(20):
        with ngt.allocate_transformer("numpy") as transformer:
            shared = Shared(transformer)
            logs = [[] for _ in range(THREADS)]
            together(*[lambda k=k, shared=shared, logs=logs: shared.work(k, 200, logs[k]) for k in range(THREADS)])
            if not shared.is_serial(logs):
                return
    raise AssertionError("nothing went wrong without the lock")


def test_first_calls_at_once_compile_once(transformer, monkeypatch, tmp_path, switching):
    compiled, made = [], []
    real = type(transformer).compile

    def slow(program):
        compiled.append(program)
        time.sleep(0.05)
        return real(transformer, program)

    monkeypatch.setattr(transformer, "compile", slow)
    C = ng.make_axis(3, name="C")
    w = ng.variable([C], initial_value=lambda: made.append(time.sleep(0.02)) or 1)
    with ng.config(cache=str(tmp_path)):  # where nothing is found that others compiled
        run, results = transformer.computation([w * 1, ng.assign(w, w + 1)]), []
    together(*[lambda: results.append(run()[0].tolist())] * 8)
    assert len(compiled) == len(made) == 1
    assert sorted(results) == [[k] * 3 for k in range(1, 9)]


def test_computations_made_on_many_threads_have_their_own_names(transformer, switching):
    made, x = [], ng.placeholder(())
    together(*[lambda: made.extend([transformer.computation(x + 1, x) for _ in range(20)])] * 8)
    assert len({c.name for c in made}) == 160 == len(transformer.computations)


def test_variables_of_one_name_met_on_many_threads_are_all_kept(transformer, switching, tmp_path):
    variables = [ng.variable((), initial_value=k).named("w") for k in range(64)]
    kept = []
    together(*[lambda k=k: kept.extend([transformer.computation(v) for v in variables[k::8]]) for k in range(8)])
    assert sorted(transformer.state.names) == sorted(["w", *(f"w_{n}" for n in range(2, 65))])
    assert set(transformer.state.names.values()) == set(variables)


# ---- the lock -----------------------------------------------------------------------------------------------------------


def test_nobody_starves():
    """Threads that give the lock back and ask for it again at once let each other in."""
    for hog, guest in (("writing", "reading"), ("reading", "writing"), ("writing", "writing")):
        lock, stop, waits = ReadersWriter(), threading.Event(), []

        def hogs(lock=lock, stop=stop, hog=hog):
            hold = getattr(lock, hog)
            while not stop.is_set():
                with hold():
                    time.sleep(1e-4)

        def guests(lock=lock, stop=stop, guest=guest, waits=waits):
            for _ in range(20):
                start = time.monotonic()
                with getattr(lock, guest)():
                    waits.append(time.monotonic() - start)
                time.sleep(1e-3)
            stop.set()

        together(hogs, hogs, guests)
        assert len(waits) == 20 and max(waits) < 5, (hog, guest, waits)


def test_readers_are_not_alone():
    lock, met = ReadersWriter(), threading.Barrier(4, timeout=20)

    def reader():
        with lock.reading():
            met.wait()  # all four are inside

    together(*[reader] * 4)


def test_locks_of_ended_threads_do_not_pile_up():
    lock = ReadersWriter()

    def reader():
        with lock.reading():
            pass

    for _ in range(50):
        together(reader, reader)
    assert len(lock._readers) < 50
    with lock.writing():
        pass


@pytest.mark.parametrize("outer", ["reads", "writes"])
@pytest.mark.parametrize("inner", ["reads", "writes"])
def test_calls_inside_calls(transformer, outer, inner):
    """A reader inside a reader is let in; all else is refused at once, and nothing stays locked."""
    w = ng.variable((), initial_value=1)
    runs = {"reads": transformer.computation(w * 1), "writes": transformer.computation([w * 1, ng.assign(w, w + 1)])}
    seen = []
    HOST_CALLS["inner"] = lambda text, *arrays: seen.append(runs[inner]())
    try:
        call = ng.ops.control.effect.build(w, kind="inner", text="")
        results = [w * 1, call] if outer == "reads" else [ng.assign(w, w + 1), call]
        run = transformer.computation(results)
        if outer == inner == "reads":
            run()
            assert float(seen[0]) == 1
        else:
            with pytest.raises(StateError, match=f"from inside one that {outer}"):
                run()
    finally:
        del HOST_CALLS["inner"]
    runs["writes"]()
    together(runs["reads"], runs["writes"])


def test_a_reader_inside_a_reader_passes_a_writer_that_waits():
    lock, inside, asked = ReadersWriter(), threading.Event(), []

    def reader():
        with lock.reading():
            inside.set()
            while not lock.writer:
                time.sleep(1e-3)
            with lock.reading():
                asked.append("reader")

    def writer():
        inside.wait()
        with lock.writing():
            asked.append("writer")

    together(reader, writer)
    assert asked == ["reader", "writer"]


def test_an_error_in_a_call_gives_the_lock_back(transformer):
    w, x = ng.variable((), initial_value=1), ng.placeholder(())
    HOST_CALLS["fail"] = lambda text, a: 1 / a.item()
    try:
        stop = ng.ops.control.effect.build(x, kind="fail", text="")
        read, write = transformer.computation([w * 1, stop], x), transformer.computation([ng.assign(w, w + 1), stop], x)
        for run in (read, write):
            with pytest.raises(ZeroDivisionError):
                run(0)
        together(lambda: read(1), lambda: write(1))
    finally:
        del HOST_CALLS["fail"]
    assert transformer.get(w) in (2, 3)  # `numpy` had updated it where it lies

"""Ctrl-C, sent as real signals to processes: it waits for the end of a call that writes state, cuts off all else, and tears nothing."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEAD = """
import os, signal, sys, threading, time
import numpy as np
import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import StateError
from ngraph.ops.control import HOST_CALLS
from ngraph.runtime.interrupts import interrupts

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
C = ng.make_axis(1000, name="C")
transformer = ngt.allocate_transformer(sys.argv[1])
path = sys.argv[2]
TRIPS = 5_000_000 if sys.argv[1] == "cpu" else 50_000  # of a loop that lasts some tenths of a second

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def watch(arrived):
    '''Says "arrived" once that is so: the system makes one of two signals if the first has not been taken yet.'''
    def wait():
        while not arrived():
            time.sleep(0.001)
        say("arrived")
    threading.Thread(target=wait, daemon=True).start()

def update(trips):
    '''v is doubled where it lies, then a loop of so many trips changes w.'''
    v, w = (ng.variable([C], initial_value=1).named(n) for n in "vw")
    n = ng.placeholder(())
    HOST_CALLS["begun"] = lambda text, *arrays: say("begun")
    doubled = v * 2 + 0
    begun = ng.ops.control.effect.build(doubled, kind="begun", text="")
    end, _ = ng.while_loop(lambda c: c[1] > 0, lambda c: (c[0] * 0.5 + 1, c[1] - 1), (w, n))
    run = transformer.computation([ng.assign(v, doubled), begun, ng.assign(w, end)], n)
    run(1)
    run(1)
    return v, w, lambda: run(trips)
"""


class Child:
    """A Python process that runs HEAD and then a script, and says lines."""

    def __init__(self, transformer, folder, script):
        source = HEAD + textwrap.dedent(script)
        environment = {
            **os.environ,
            "PYTHONPATH": ROOT,
            "OMP_NUM_THREADS": "1",
            "NGRAPH_CACHE": "off",
        }  # there is always something to compile
        command = [sys.executable, "-u", "-c", source, transformer, str(folder / "state.safetensors")]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.communicate()

    def line(self):
        said = self.process.stdout.readline().strip()
        assert said, self.process.stderr.read()
        return said

    def until(self, wanted):
        lines = [self.line()]
        while not lines[-1].startswith(wanted):
            lines.append(self.line())
        return lines[-1]

    def interrupt(self, after=0.0):
        time.sleep(after)
        self.process.send_signal(signal.SIGINT)

    def ends_well(self):
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, err
        return out


@pytest.fixture(params=["direct", "numpy", "cpu"])
def child(request, tmp_path):
    return lambda script: Child(request.param, tmp_path, script)


def test_a_call_that_writes_ends_first(child):
    script = """
        v, w, run = update(TRIPS)
        say("ready")
        try:
            run()
        except KeyboardInterrupt:
            say("interrupted")
        assert not transformer.state.torn and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert np.allclose(transformer.get(w), 2) and (transformer.get(v) == 8).all()
        transformer.save(path)
    """
    with child(script) as c:
        c.until("ready")
        c.until("begun")
        c.interrupt(0.05)
        assert "interrupted" in c.ends_well()


def test_a_second_one_cuts_it_off_and_torn_state_is_not_saved(child, tmp_path):
    script = """
        v, w, run = update(1e9)
        transformer.save(path)
        watch(lambda: interrupts.pending is not None)
        say("ready")
        try:
            run()
        except KeyboardInterrupt:
            say("interrupted")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if sys.argv[1] == "direct":  # it writes all at the end, or nothing
            assert not transformer.state.torn and (transformer.get(v) == 4).all()
            transformer.save(path)
            sys.exit()
        before = open(path, "rb").read()
        for heal in (lambda: transformer.restore(path), lambda: [transformer.set(x, 4) for x in (v, w)]):
            assert transformer.state.torn == {v, w}
            try:
                transformer.save(path)
            except StateError as error:
                assert "the last update of v, w was cut off" in str(error) and "restore a file, or set" in str(error)
            else:
                sys.exit("torn state was saved")
            assert open(path, "rb").read() == before
            heal()
            assert not transformer.state.torn and (transformer.get(v) == 4).all()
            transformer.save(path)
            transformer.restore(path)
            transformer.state.torn.update((v, w))
        transformer.set(v, 1)
        try:
            transformer.save(path)
        except StateError as error:
            assert "update of w was" in str(error)
        else:
            sys.exit("torn state was saved")
    """
    with child(script) as c:
        c.until("ready")
        c.until("begun")
        c.interrupt(0.05)
        c.until("arrived")
        time.sleep(0.2)
        assert c.process.poll() is None
        c.interrupt()
        assert "interrupted" in c.ends_well()


@pytest.mark.parametrize("kind", ["no state", "state that is read"])
def test_other_calls_are_cut_off_at_once(child, kind):
    script = f"""
        w, n = ng.variable([C], initial_value=1), ng.placeholder(())
        start = w if {kind == "state that is read"} else ng.placeholder([C])
        end, _ = ng.while_loop(lambda c: c[1] > 0, lambda c: (c[0] * 0.5 + 1, c[1] - 1), (start, n))
        parameters = [n] if start is w else [n, start]
        run = transformer.computation(end, *parameters)
        run(*[1] * len(parameters))
        say("ready")
        try:
            run(1e9, *[1] * (len(parameters) - 1))
        except KeyboardInterrupt:
            say("interrupted")
        transformer.set(w, 3)
        assert (run(*[0] * len(parameters)) == (3 if start is w else 0)).all()
    """
    with child(script) as c:
        c.until("ready")
        c.interrupt(0.1)
        start = time.monotonic()
        assert "interrupted" in c.ends_well() and time.monotonic() - start < 20


def test_at_random_moments_each_one_arrives_once_and_nothing_is_torn_or_stuck(child):
    """Five hundred signals into calls of all kinds, at most microseconds long."""
    script = """
        one = ng.make_axis(8, name="D")
        step, total, wide = (ng.persistent_tensor(a, dtype=ng.int64, initial_value=0) for a in ((), (), [one]))
        write = transformer.computation([ng.assign(step, step + 1), ng.assign(total, total * 3 + 1), ng.assign(wide, wide * 3 + 1)])
        read, other = transformer.computation([step * 1, total * 1, wide * 1]), ng.variable([one], initial_value=0)
        write(), read(), transformer.get(other)
        done, caught, k = 1, 0, 0

        def check():
            now, sum, many = read()
            assert now in (done, done + 1), (now, done)
            x = (3 ** int(now) - 1) // 2
            assert (int(sum) - x) % 2**64 == 0 and (many == sum).all(), (now, sum, many)
            assert not transformer.state.torn and signal.getsignal(signal.SIGINT) is signal.default_int_handler
            assert transformer.state.lock.writer is None
            return int(now)

        while caught < 500:
            try:
                say(caught or "ready")  # in here, for the next one may come before this has returned
                while True:
                    write()
                    done += 1
                    read()
                    k += 1
                    if k % 5 == 0:
                        transformer.set(other, k)
                    if k % 7 == 0:
                        transformer.get(other)
            except KeyboardInterrupt:
                caught += 1
                done = check()
        say(caught)
        threading.Thread(target=write).start()
        transformer.save(path)
        say("calls", k)
    """
    draw = random.Random(0)
    with child(script) as c:
        c.until("ready")
        for k in range(500):
            c.interrupt(draw.uniform(0, 2e-3))
            assert c.line() == str(k + 1)
        assert "calls" in c.ends_well()


def test_the_users_own_handler_stays_and_gets_every_signal(child):
    script = """
        got = []
        def mine(number, frame):
            got.append(number)
        signal.signal(signal.SIGINT, mine)
        v, w, run = update(TRIPS)
        watch(lambda: got or interrupts.pending is not None)
        say("ready")
        run()
        assert signal.getsignal(signal.SIGINT) is mine
        end = time.monotonic() + 20
        while len(got) < 2 and time.monotonic() < end:  # the second may come when all is done
            time.sleep(0.01)
        say(len(got), not transformer.state.torn, bool((transformer.get(v) == 8).all()))
    """
    with child(script) as c:
        c.until("ready")
        c.until("begun")
        c.interrupt(0.05)
        c.until("arrived")
        c.interrupt(0.05)
        assert c.ends_well().strip() == "2 True True"


@pytest.mark.parametrize("handler", ["SIG_IGN", "SIG_DFL"])
def test_no_handler_in_python_is_left_alone(child, handler):
    script = f"""
        signal.signal(signal.SIGINT, signal.{handler})
        v, w, run = update(TRIPS)
        say("ready")
        run()
        assert signal.getsignal(signal.SIGINT) is signal.{handler}
        say("done")
    """
    with child(script) as c:
        c.until("ready")
        c.until("begun")
        c.interrupt(0.05)
        if handler == "SIG_IGN":
            assert "done" in c.ends_well()
        else:
            assert c.process.wait(60) == -signal.SIGINT


def test_a_handler_set_inside_a_call_stays(child):
    script = """
        w = ng.variable((), initial_value=1)
        theirs = lambda number, frame: say("theirs")
        HOST_CALLS["set"] = lambda text, *arrays: signal.signal(signal.SIGINT, theirs)
        run = transformer.computation([ng.assign(w, w + 1), ng.ops.control.effect.build(w, kind="set", text="")])
        run()
        assert signal.getsignal(signal.SIGINT) is theirs
        say("ready")
        time.sleep(1)
    """
    with child(script) as c:
        c.until("ready")
        c.interrupt()
        assert "theirs" in c.ends_well()


def test_compiling_can_be_interrupted_and_is_done_again(child):
    script = """
        w = ng.variable([C], initial_value=1)
        x = w
        for k in range(600 if sys.argv[1] == "cpu" else 6_000):
            x = ng.tanh(x + 1.0) if k % 2 else x * (1 + 1 / (k + 1))
        run = transformer.computation([ng.assign(w, x), ng.sum(x, out_axes=())])
        small = transformer.computation([ng.assign(w, w + 1)])
        say("ready")
        try:
            run()
        except KeyboardInterrupt:
            say("interrupted", run.compiled)
        small()
        assert (transformer.get(w) == 2).all()
        assert run()[1] != 0 and run.compiled
    """
    with child(script) as c:
        c.until("ready")
        c.interrupt(0.1)
        assert "interrupted False" in c.ends_well()


def test_who_waits_to_write_is_interrupted_at_once(child):
    script = """
        w = ng.variable((), initial_value=1)
        HOST_CALLS["sleep"] = lambda text, *arrays: (say("ready"), time.sleep(1.2))
        slow = transformer.computation([ng.assign(w, w + 1), ng.ops.control.effect.build(w, kind="sleep", text="")])
        quick, read = transformer.computation([ng.assign(w, w * 10)]), transformer.computation(w * 1)
        quick(), read()
        for wait in (quick, read, lambda: transformer.set(w, 0)):
            transformer.set(w, 1)
            thread = threading.Thread(target=slow)
            thread.start()
            time.sleep(0.1)
            start = time.monotonic()
            try:
                wait()
            except KeyboardInterrupt:
                assert thread.is_alive(), time.monotonic() - start
                say("interrupted")
            thread.join()
            assert transformer.get(w) == 2 and not transformer.state.torn
    """
    with child(script) as c:
        for _ in range(3):
            c.until("ready")
            c.interrupt(0.4)
            c.until("interrupted")
        c.ends_well()


def test_a_call_on_another_thread_goes_on(child):
    script = """
        v, w, run = update(TRIPS)
        thread = threading.Thread(target=run)
        say("ready")
        thread.start()
        try:
            while thread.is_alive():
                time.sleep(0.01)
        except KeyboardInterrupt:
            say("interrupted", thread.is_alive())
        thread.join()
        assert (transformer.get(v) == 8).all() and not transformer.state.torn
    """
    with child(script) as c:
        c.until("ready")
        c.until("begun")
        c.interrupt(0.05)
        assert "interrupted True" in c.ends_well()

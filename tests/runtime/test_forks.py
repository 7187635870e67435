"""A child process that was forked while other threads were calling goes on: no lock that it needs is held by a thread it has not."""

import os
import subprocess
import sys
import threading

import pytest

from ngraph.runtime.host.locks import fork_safe_lock

SCRIPT = """
import os, signal, sys, threading
import numpy as np
import ngraph as ng
import ngraph.transformers as ngt

A = ng.make_axis(2000, name="A")
x, v = ng.placeholder([A]), ng.variable([A], initial_value=0)
with ngt.make_transformer_factory(sys.argv[1])() as t:
    writes = t.computation([ng.sum(v + x, out_axes=()), ng.assign(v, v + 1)], x)
    reads = t.computation(ng.sum(v * 0 + x, out_axes=()), x)
    one, stop, bad = np.ones(2000, np.float32), threading.Event(), []
    writes(one), reads(one)

    def work():
        while not stop.is_set():
            writes(one)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(25):
        child = os.fork()
        if not child:
            signal.alarm(20)  # ends one that waits for ever
            os._exit(0 if float(reads(one)) == 2000 and float(writes(one)[0]) > 0 else 3)
        bad += [os.waitpid(child, 0)[1]]
    stop.set()
    for thread in threads:
        thread.join()
sys.exit(str(bad) if any(bad) else 0)
"""


@pytest.mark.parametrize("name", ["direct", "numpy"])
def test_a_child_calls_what_its_parent_was_calling(name, tmp_path):
    script = tmp_path / "forks.py"
    script.write_text(SCRIPT)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    command, environment = [sys.executable, str(script), name], {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr


def test_a_lock_that_another_thread_holds_is_free_in_the_child():
    """Its own thread's is not: the block in which that forks goes on in the child, and ends there."""
    other, own = fork_safe_lock(), fork_safe_lock()
    held, done = threading.Event(), threading.Event()

    def hold():
        with other:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    with own:
        child = os.fork()
        if child == 0:
            os._exit(0 if other.acquire(timeout=1) and own._is_owned() else 1)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

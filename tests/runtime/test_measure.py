"""The machine's limits: the kernels that measure do what they say, what was measured is kept and priced with."""

import ctypes
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import ngraph as ng
from ngraph.runtime import measure
from ngraph.runtime.cache import cache
from ngraph.runtime.host import jit
from ngraph.targets import TARGETS, chosen, host, runnable
from ngraph.transformers.cpu.native import settings

HOST = host()


@pytest.fixture
def cached(tmp_path):
    with ng.config(cache=str(tmp_path)):
        yield tmp_path


def call(text, arrays, size, times, items=2):
    code = jit.load(text, HOST)
    args = np.array([*[a.ctypes.data for a in arrays], size, times], np.int64)
    ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(code.address("kernel"))(args.ctypes.data, 0, items, 0)


@pytest.mark.parametrize("name", runnable())
def test_the_kernels_do_the_work_that_is_counted(name):
    target = TARGETS[name]
    n = 8 * target.lanes(32)
    a, b, c = np.zeros(2 * n, np.float32), np.arange(2 * n, dtype=np.float32), np.ones(2 * n, np.float32)
    call(measure.triad(target), (a, b, c), n, 3)
    np.testing.assert_array_equal(a, b + 1.5)
    call(measure.products(target), (a, np.full_like(b, 2), c), 0, 5, 1)
    assert a[0] == 2.0**5 * (measure.ACCUMULATORS - 1) + 31  # the last chain began at 11: twice it and 1, five times
    assert a[target.lanes(32)] == target.lanes(32) + 1.5
    call(measure.nothing(target), (a, b, c), n, 1)


def test_what_was_measured_is_kept(cached, monkeypatch):
    monkeypatch.setattr(measure, "SECONDS", 1e-4)
    monkeypatch.setattr(measure, "RUNS", 2)
    monkeypatch.setattr(measure, "LAUNCHES", 10)
    assert measure.measured(HOST) is None
    found = measure.measure(HOST)
    assert measure.measured(HOST) == found and all(x > 0 for x in found)
    again = measure.measure(HOST)  # the best of both
    assert again.memory >= found.memory and again.flops >= found.flops and again.launch <= found.launch
    other = TARGETS["x86-64-v2" if HOST.triple.startswith("x86") else "aarch64"]
    assert measure.measured(other) is None  # other instructions have other limits


@pytest.mark.parametrize(("reported", "memory"), [(480 << 20, 512 << 20), (64 << 20, 256 << 20), (4 << 20, 64 << 20)])
def test_arrays_in_memory_follow_the_reported_cache_and_are_bounded(monkeypatch, reported, memory):
    asked = []

    class Bench:
        threads = 2

        def __init__(self, *_):
            pass

        def bandwidth(self, size):
            asked.append(size)
            return 1.0

        def flops(self, threads):
            return 1.0

        def launch(self):
            return 1.0

    monkeypatch.setattr(measure, "_Bench", Bench)
    monkeypatch.setattr(measure, "caches", lambda: {"l3": reported})
    with ng.config(cache="off"):
        measure.measure(replace(HOST, l2=2 << 20, l3=reported))
        measure.measure(replace(HOST, l2=2 << 20, l3=min(reported, 32 << 20)))
    assert asked[0] == asked[3] == memory and max(asked) == memory
    assert asked[1] == max(reported // 2, 8 << 20) and asked[4] == max(min(reported, 32 << 20) // 2, 8 << 20)
    assert asked[2] == asked[5] == 2 << 20


def test_what_is_compiled_does_not_depend_on_what_was_measured(cached):
    """A measurement is never twice the same: with it, the order of a sum could change."""
    before = settings()
    fast = measure.Measured(1e12, 1e12, 1e12, 1e13, 1e13, 1e-9, 2)
    cache().folder.put("machines", {measure._key(chosen()): json.dumps(fast._asdict()).encode()})
    assert measure.measured(chosen()) == fast and settings() == before


def test_targets_do_not_depend_on_how_many_processors_a_process_may_use():
    script = "from ngraph.targets import allowed_cores, host; print(host(), allowed_cores())"
    own = f"import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); {script}"
    every, one = (subprocess.run([sys.executable, "-c", s], capture_output=True, text=True, check=True).stdout for s in (script, own))
    assert every.rpartition(" ")[0] == one.rpartition(" ")[0] and one.endswith(" 1\n")
    assert TARGETS["x86-64-v2"].speed < TARGETS["x86-64-v4"].speed

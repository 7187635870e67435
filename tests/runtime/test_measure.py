"""The machine's limits: the kernels that measure do what they say, what was measured is kept and priced with."""

import ctypes

import numpy as np
import pytest

import ngraph as ng
from ngraph.plan.cost import MachineModel
from ngraph.runtime import measure
from ngraph.runtime.host import jit
from ngraph.targets import TARGETS, host, runnable

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


def test_what_was_measured_is_kept_and_priced_with(cached, monkeypatch):
    monkeypatch.setattr(measure, "SECONDS", 1e-4)
    monkeypatch.setattr(measure, "RUNS", 2)
    monkeypatch.setattr(measure, "LAUNCHES", 10)
    usual = measure.machine(HOST)
    assert measure.measured(HOST) is None and usual.memory == MachineModel().memory
    found = measure.measure(HOST)
    assert measure.measured(HOST) == found and all(x > 0 for x in found)
    machine = measure.machine(HOST)
    assert machine.memory == found.memory and machine.launch == found.launch and machine.speed == found.flops_of_one / 4
    again = measure.measure(HOST)  # the best of both
    assert again.memory >= found.memory and again.flops >= found.flops and again.launch <= found.launch
    other = TARGETS["x86-64-v2" if HOST.triple.startswith("x86") else "aarch64"]
    assert measure.measured(other) is None  # other instructions have other limits


def test_plans_do_not_depend_on_how_many_processors_a_process_may_use(cached):
    from dataclasses import replace

    assert measure.machine(replace(HOST, cores=1)) == measure.machine(replace(HOST, cores=8))
    assert measure.machine(TARGETS["x86-64-v2"]).speed < measure.machine(TARGETS["x86-64-v4"]).speed

"""`ng.config(denormals="flush")`: kernels that take numbers below the normal ones as 0. The oracle is NumPy, which keeps them."""

from dataclasses import replace

import numpy as np
import plans
import pytest
import static
from plan_programs import axis, hole, program

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.plan.planner import plan

SMALL = np.full((64, 4096), 1e-30, np.float32)


@pytest.fixture
def times():
    x = ng.placeholder("N M", dtype="float32")
    computation = ngt.make_transformer_factory("cpu")().computation(x * 1e-10, x)
    return lambda: computation(SMALL)


@pytest.mark.parametrize("threads", [1, 2])
def test_flushed_only_where_it_is_asked_for(times, threads):
    with ng.config(num_threads=threads):
        kept = times()
    np.testing.assert_array_equal(kept, SMALL * np.float32(1e-10))
    assert (kept > 0).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_flushed_and_the_callers_mode_is_as_before(times, threads):
    with ng.config(num_threads=threads, denormals="flush"):
        np.testing.assert_array_equal(times(), np.zeros_like(SMALL))
    assert (SMALL * np.float32(1e-10) > 0).all()


def test_normal_numbers_do_not_change():
    a = np.random.default_rng(1).normal(size=(33, 70)).astype("float32")
    found = []
    for how in ("keep", "flush"):
        x = ng.placeholder("N M", dtype="float32")
        with ng.config(denormals=how):
            found.append(ngt.make_transformer_factory("cpu")().computation(ng.tanh(x) / (x * x + 1.0), x)(a))
    np.testing.assert_array_equal(*found)


@static.emulated
@pytest.mark.parametrize("flush", [False, True])
def test_aarch64_flushes_too(flush):
    """In an emulator: four numbers of 1e-30 times 1e-10."""
    x = hole(axis(4, "N"))
    small = np.full(4, 1e-30, np.float32)
    target = replace(static.TARGET, flush=flush)
    ((got,), _) = plans.run(plan(program([x * 1e-10], x)), [small], target=target, kind=static.Emulated)
    np.testing.assert_array_equal(got, np.zeros(4, np.float32) if flush else small * np.float32(1e-10))

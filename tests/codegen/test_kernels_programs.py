"""Whole programs as machine code: those of the tests of plans, and random ones bit by bit, for all targets that run here."""

from dataclasses import replace

import numpy as np
import plans
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels import RUNNABLE
from machines import usable
from plan_programs import arrays_for, axis, hole, program
from test_kernels import ONE, network
from test_random_programs import LENGTHS, cases, same

import ngraph as ng
from ngraph.codegen.kernel import emit
from ngraph.plan.kernels import Kernel
from ngraph.plan.planner import plan
from ngraph.plan.text import text
from ngraph.program import interpret as oracle
from ngraph.program.text import text as program_text
from ngraph.runtime.host import jit
from ngraph.runtime.host.loader import undefined_symbols
from ngraph.targets import DEFAULT, TARGETS, host

MACHINES = (DEFAULT, replace(DEFAULT, launch=1.0), replace(DEFAULT, launch=0.0), replace(usable(l1=8, l2=64), cores=64))


def agree(p, target=None, machine=DEFAULT, rtol=1e-3, atol=1e-3):
    inputs, state = arrays_for(p)
    expected, after = oracle.interpret(p, inputs, dict(state))
    made = plan(p, machine=machine)
    got, now = plans.run(made, inputs, state, target=target)
    for a, b in zip([*got, *now.values()], [*expected, *after.values()], strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
    return made


@pytest.mark.parametrize("make", ONE, ids=[f.__name__ for f in ONE])
def test_programs(make):
    results, holes = make()
    p = program(results, *holes)
    for target in (host(), *RUNNABLE):
        agree(p, target)


@pytest.mark.parametrize("machine", MACHINES, ids=["usual", "one launch", "free launches", "many small cores"])
def test_a_training_step(machine):
    agree(network(), machine=machine)


def test_contractions_and_convolutions():
    n, h, w, c, k, j = (axis(m, a) for m, a in ((3, "N"), (13, "H"), (17, "W"), (9, "C"), (33, "K"), (70, "J")))
    r, s = axis(3, "R"), axis(3, "S")
    x, f, b, v = hole(n, c, h, w), hole(k, c, r, s), hole(k), hole(k, j)
    y = ng.relu(ng.conv(x, f, {h: r, w: s}, padding=1) + b)
    z = ng.conv(x, f, {h: r, w: s}, stride=2, padding=1)
    p = program([y, z, ng.dot(y, v), *[ng.deriv(ng.sum(z * z, out_axes=()), q) for q in (x, f)]], x, f, b, v)
    for target in (host(), *RUNNABLE):
        agree(p, target, rtol=1e-3, atol=1e-2)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(cases(), st.sampled_from(MACHINES), st.sampled_from((host(), *RUNNABLE)))
def test_random_programs(case, machine, target):
    p, inputs, expected = case
    for made in (plan(p, LENGTHS, machine), plan(p, None, machine)):
        with np.errstate(all="ignore"):
            got, _ = plans.run(made, inputs, lengths=LENGTHS, target=target)
        assert same(got, expected), f"\n{program_text(p)}\n{text(made)}"


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
def test_kernels_need_nothing_from_elsewhere(target):
    every = [program(r, *h) for r, h in (make() for make in ONE)] + [network()]
    for p in every:
        for made in (plan(p), plan(p, machine=MACHINES[3])):
            for kernel in made.steps:
                if isinstance(kernel, Kernel):
                    assert undefined_symbols(jit.compile_object(emit(made, kernel, target).text, target)) <= {"_GLOBAL_OFFSET_TABLE_"}


def test_equal_kernels_are_equal_texts():
    def make(n, h):
        x = hole(n, h)
        return plan(program([ng.softmax(x, normalization_axes=[h]) + x], x))

    one, two = make(axis(64, "Zeta"), axis(96, "Alpha")), make(axis(64, "N"), axis(96, "H"))
    assert [emit(one, k, host()).text for k in one.kernels] == [emit(two, k, host()).text for k in two.kernels]

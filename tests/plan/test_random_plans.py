"""Random programs: planned = interpreted, bit by bit, for arithmetic on small whole numbers is exact; the plan is lawful and parses."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machines import usable
from test_random_programs import LENGTHS, cases, same

import ngraph as ng
from ngraph.plan.interpret import interpret
from ngraph.plan.planner import plan
from ngraph.plan.text import arrays, parse, text
from ngraph.plan.verify import verify
from ngraph.program.lower import lower
from ngraph.program.text import text as program_text
from ngraph.targets import DEFAULT

# machines on which nothing is free to start, and on which nothing costs to move: other merges, other loops
MACHINES = (DEFAULT, replace(DEFAULT, launch=1.0), replace(DEFAULT, launch=0.0), replace(usable(l1=8, l2=64), cores=64))


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(cases(), st.sampled_from(MACHINES))
def test_planned_is_interpreted(case, machine):
    program, inputs, expected = case
    for made in (plan(program, LENGTHS, machine), plan(program, None, machine)):
        shown = text(verify(made))
        again = parse(shown, arrays(made))
        assert text(verify(again)) == shown
        for p in (made, again):
            with np.errstate(all="ignore"):
                got, _ = interpret(p, inputs, lengths=LENGTHS)
            assert same(got, expected), f"\n{program_text(program)}\n{shown}"


@pytest.mark.parametrize("mode", ["fill", "clip", "wrap"])
def test_an_index_at_a_predicated_place_is_read_only_there(mode):
    n, a, b = (ng.make_axis(k, name=name) for k, name in ((2, "N"), (2, "A"), (3, "B")))
    x, i = ng.placeholder([n]), ng.placeholder([a, b], dtype=np.int32)
    whole = lower([ng.take(ng.absolute(ng.take(ng.absolute(x), i, n, mode=mode)), i, a)], [x, i]).program
    given = [np.array([2.0, -3.0], np.float32), np.array([[0, -2, 1], [-3, 1, 3]], np.int32)]
    inside, near = (given[1] >= 0) & (given[1] < 2), given[1] % 2 if mode == "wrap" else given[1].clip(0, 1)
    inner = np.where(inside | (mode != "fill"), np.abs(given[0])[near], 0)
    want = np.where(inside, np.take_along_axis(inner, given[1].clip(0, 1), 0), 0)
    for machine in MACHINES:
        assert np.array_equal(interpret(plan(whole, None, machine), given)[0][0], want)


def test_a_sum_is_there_whatever_an_index_says():
    n, a = ng.make_axis(3, name="N"), ng.make_axis(2, name="A")
    x, i = ng.placeholder([n]), ng.placeholder([], dtype=np.int32)
    spread = ng.broadcast(ng.sum(ng.absolute(x), out_axes=()), [a])
    whole = lower([ng.take(spread, i, a, mode="fill")], [x, i]).program
    for index, want in ((1, 6), (2, 0), (-5, 0)):
        for machine in MACHINES:
            got, _ = interpret(plan(whole, None, machine), [np.array([1, -2, 3], np.float32), np.array(index, np.int32)])
            assert got[0] == want

"""Random programs: planned = interpreted, bit by bit, for arithmetic on small whole numbers is exact; the plan is lawful and parses."""

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_random_programs import programs, results

from ngraph.plan import arrays, interpret, parse, plan, text, verify
from ngraph.plan.price import Machine
from ngraph.program.program import AxisId
from ngraph.program.text import text as program_text

LENGTHS = {AxisId("N"): 2}
# machines on which nothing is free to start, and on which nothing costs to move: other merges, other loops
MACHINES = (Machine(), Machine(launch=1.0), Machine(launch=0.0), Machine(cores=64, l1=8, l2=64))


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(programs(), st.sampled_from(MACHINES), st.data())
def test_planned_is_interpreted(whole, machine, data):
    draw = np.random.Generator(np.random.PCG64(data.draw(st.integers(0, 1000))))
    inputs = [draw.integers(-3, 4, [whole.length(a, LENGTHS) for a in v.axes]).astype(v.dtype.np) for v in whole.inputs]
    with np.errstate(all="ignore"):
        every = results(whole, inputs)
    assume(all(np.all(np.abs(a.astype(np.float64)) < 2.0**50) for a in every))
    keep = data.draw(st.lists(st.integers(0, len(every) - 1), min_size=1, max_size=4))
    program = whole.with_(outputs=tuple(whole.outputs[k] for k in keep))
    for made in (plan(program, LENGTHS, machine), plan(program, None, machine)):
        shown = text(verify(made))
        again = parse(shown, arrays(made))
        assert text(verify(again)) == shown
        for p in (made, again):
            with np.errstate(all="ignore"):
                got, _ = interpret(p, inputs, lengths=LENGTHS)
            for k, g in zip(keep, got, strict=True):
                e = every[k]
                assert g.dtype == e.dtype and np.array_equal(g, e, equal_nan=e.dtype.kind == "f"), f"\n{program_text(program)}\n{shown}"

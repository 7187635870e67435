"""The samples of every record, planned: the plan is lawful, prints and parses, and gives what the oracle gives."""

import contextlib
import io

import cells
import numpy as np
import pytest
from cells import assert_close, case

from ngraph.parts.runner import watching
from ngraph.plan.interpret import interpret
from ngraph.plan.planner import plan
from ngraph.plan.text import arrays, parse, text
from ngraph.plan.verify import verify
from ngraph.program.lower import lower

EVERY = sorted({(r, d) for r, d, _ in cells.cells("value")})


@pytest.mark.parametrize(("record", "dtype"), EVERY, ids=["-".join(c) for c in EVERY])
def test_planned_is_interpreted(record, dtype):
    c = case(record, dtype)
    made = verify(plan(lower(c.roots, c.holes).program))
    again = verify(parse(text(made), arrays(made)))
    assert text(again) == text(made)
    expected, said = c.expected
    for p in (made, again):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), np.errstate(all="ignore"):
            got, _ = interpret(p, c.values)
        assert_close(got, expected, c.record, c.tensors)
        assert printed.getvalue() == said


ONE_DTYPE = sorted(dict(reversed(EVERY)).items())


@pytest.mark.parametrize(("record", "dtype"), ONE_DTYPE, ids=["-".join(c) for c in ONE_DTYPE])
def test_the_text_after_each_pass_is_that_of_what_it_parses_to(record, dtype):
    c = case(record, dtype)
    with watching() as passes:
        large = arrays(plan(lower(c.roots, c.holes).program))
    plans = [ran for ran in passes if ran.form.name == "plan"]
    assert {"fuse", "insert_packing", "allocate"} <= {ran.name for ran in plans}
    for ran in plans:
        assert text(parse(ran.text, large)) == ran.text, ran.name

"""The samples of every record, planned: the plan is lawful, prints and parses, and gives what the oracle gives."""

import contextlib
import io

import cells
import numpy as np
import pytest
from cells import assert_close, case

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

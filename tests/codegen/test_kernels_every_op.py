"""The samples of every record, planned and compiled, give what the oracle gives: work items in any order, in memory full of garbage.

All dtypes of all records run on the cpu in the tests of every op; here are float32 and one dtype more of each.
"""

import contextlib
import io

import cells
import numpy as np
import plans
import pytest
from cells import assert_close, case

from ngraph.plan.planner import plan
from ngraph.program.lower import lower

EVERY = sorted(sum(cells.some_cells(), []))


@pytest.mark.parametrize(("record", "dtype"), EVERY, ids=["-".join(c) for c in EVERY])
def test_compiled_is_interpreted(record, dtype):
    c = case(record, dtype)
    made = plan(lower(c.roots, c.holes).program)
    expected, said = c.expected
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), np.errstate(all="ignore"):
        got, _ = plans.run(made, c.values)
    assert_close(got, expected, c.record, c.tensors)
    assert printed.getvalue() == said

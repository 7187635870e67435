"""On the cpu Python has no part in any op's samples, but for the effects that it is asked for and for LAPACK's ops: they are counted."""

import contextlib
import io

import cells
import pytest
from cells import case

import ngraph.transformers as ngt
from ngraph.op_graph.opdef import LIBRARY

EVERY = sorted({record for record, _, _ in cells.cells("value")})


def effects(program):
    """How many steps with effects or of libraries a program has, those in its bodies too."""
    bodies = [a for s in program.steps for a in s.attrs.values() if type(a) is type(program)]
    return sum(s.op == "effect" or bool(LIBRARY[s.op]) for s in program.steps) + sum(map(effects, bodies))


@pytest.mark.skipif("cpu" not in cells.TRANSFORMERS, reason="cpu cannot be had here")
@pytest.mark.parametrize("record", EVERY)
def test_only_effects_are_python_s(record):
    kinds = cells.dtypes_of(cells.RECORDS[record], "value")
    c = case(record, "float32" if "float32" in kinds else kinds[-1])
    with ngt.allocate_transformer("cpu") as t, contextlib.redirect_stdout(io.StringIO()):
        computation = t.computation(list(c.roots), *c.holes)
        computation(*c.values)
        (bound,) = computation.executable.native.bound.values()
        assert bound.take().walk.host_callbacks == effects(computation.program)

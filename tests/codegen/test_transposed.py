"""Rows of a tile that lie side by side in memory and are turned over: each read has the elements that are its own."""

from dataclasses import replace

import kernels
import numpy as np
import plans
import pytest
from plan_programs import axis, hole, program

import ngraph as ng
from ngraph.plan.planner import plan
from ngraph.targets import DEFAULT

LEVELS = kernels.RUNNABLE


def on(target, results, holes, values):
    machine = replace(DEFAULT, vector_bits=target.vector_bits, vector_registers=target.vector_registers)
    return plans.run(plan(program(results, *holes), machine=machine), values, target=target)[0]


@pytest.mark.parametrize("target", LEVELS, ids=lambda t: t.name)
@pytest.mark.parametrize(("m", "steps"), [(8, (8, 9)), (8, (10, 13)), (12, (12, 24)), (24, (24, 25)), (5, (5, 7))])
def test_reads_from_the_same_place_in_other_steps_along_the_lanes(target, m, steps):
    """Of a tile whose rows lie side by side in memory: reads begin at one place and differ in how far apart lanes are."""
    rows, columns, inner = axis(m, "M"), axis(16, "N"), axis(20, "K")
    a, b, z = hole(rows, inner), hole(inner, columns), hole(axis(16 * (steps[1] + 1), "L"))
    i, j = ng.iota(rows, dtype="int32"), ng.iota(columns, dtype="int32")
    total = ng.dot(a, b) + ng.take(z, j * steps[0] + i, "L") + ng.take(z, j * steps[1] + i, "L")
    draw = np.random.default_rng(0)
    av, bv, zv = (draw.normal(size=[x.length for x in h.axes]).astype(np.float32) for h in (a, b, z))
    i, j = np.arange(m)[:, None], np.arange(16)
    want = av @ bv + zv[j * steps[0] + i] + zv[j * steps[1] + i]
    (got,) = on(target, [total], [a, b, z], [av, bv, zv])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)

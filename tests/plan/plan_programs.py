"""What the tests of plans run: graphs by the public API, lowered and passed; the oracle beside the plan's interpreter."""

import numpy as np

import ngraph as ng
from ngraph.passes import default_passes, run
from ngraph.plan.interpret import interpret
from ngraph.plan.planner import plan
from ngraph.program import interpret as oracle
from ngraph.program.lower import lower


def program(results, *holes):
    return run(lower(results, holes).program, default_passes)


def arrays_for(p, seed=0):
    draw = np.random.Generator(np.random.PCG64(seed))

    def one(v):
        shape = [p.length(a) for a in v.axes]
        return draw.normal(size=shape).astype(v.dtype.np) if v.dtype.is_float else draw.integers(0, 5, shape).astype(v.dtype.np)

    return [one(v) for v in p.inputs], {s.name: one(s.value) for s in p.state_in}


def agree(p, made=None, rtol=2e-5, atol=2e-5, seed=0):
    """The plan of a program, once its interpreter has given what the oracle gives."""
    made = made or plan(p)
    inputs, state = arrays_for(p, seed)
    expected, after = oracle.interpret(p, inputs, dict(state))
    got, now = interpret(made, inputs, dict(state))
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
    for name in after:
        np.testing.assert_allclose(now[name], after[name], rtol=rtol, atol=atol)
    return made


def axis(length, name):
    return ng.make_axis(length, name=name)


def hole(*axes, dtype=np.float32):
    return ng.placeholder(list(axes), dtype=dtype)

"""What the arena holds: values that are cheap to make again are not kept for the way back; state is updated in place."""

import numpy as np
from machines import machines, usable
from plan_programs import axis, hole, program

import ngraph as ng
from ngraph.op_graph import dtypes
from ngraph.op_graph.expr import Idx
from ngraph.op_graph.op import TensorType
from ngraph.plan.interpret import interpret
from ngraph.plan.kernels import Kernel
from ngraph.plan.planner import plan
from ngraph.plan.verify import verify
from ngraph.program import interpret as oracle
from ngraph.program.program import AxisId, State, Value
from ngraph.targets import DEFAULT
from ngraph.testing.rules import Steps

SMALL = usable(l2=1 << 10)  # so that small arrays are large


def network(layers=4):
    """Normalised layers, and the gradients of their weights."""
    n, width = axis(48, "N"), axis(40, "H0")
    x = y = hole(n, width)
    made = []
    for k in range(layers):
        w = ng.variable([y.axes[1], axis(40, f"H{k + 1}")], initial_value=0.1)
        z = ng.dot(y, w)
        z = z - ng.mean(z, out_axes=[z.axes[1]])
        y = ng.relu(z / ng.sqrt(ng.mean(z * z, out_axes=[z.axes[1]]) + 1e-3))
        made.append(w)
    loss = ng.sum(y * y, out_axes=())
    return program([loss, ng.doall([ng.assign(w, w - 0.01 * ng.deriv(loss, w)) for w in made])], x)


def held(p, machine):
    """The plan, once it gave what the oracle gives."""
    made = verify(plan(p, machine=machine))
    draw = np.random.default_rng(0)
    inputs = [draw.normal(size=[p.length(a) for a in v.axes]).astype(np.float32) for v in p.inputs]
    state = {s.name: draw.normal(size=[p.length(a) for a in s.value.axes]).astype(np.float32) * 0.2 for s in p.state_in}
    expected, after = oracle.interpret(p, inputs, dict(state))
    got, now = interpret(made, inputs, dict(state))
    for a, b in zip([*got, *[now[k] for k in after]], [*expected, *after.values()], strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)
    return made


def test_cheap_values_are_made_again_on_the_way_back():
    p = network()
    keeping, again = held(p, usable(l2=1 << 30)), held(p, SMALL)
    assert again.arena < keeping.arena


def test_weights_are_updated_in_place():
    made = held(network(), SMALL)
    assert sum(after.shares is before for _, before, after in made.state) >= len(made.state) - 1


def test_buffers_start_at_lines_of_the_cache():
    made = held(network(), SMALL)
    assert all(b.offset % 64 == 0 for b in made.buffers if b.offset is not None)
    assert made.memory.arena == made.arena and made.memory.once == made.kept


def test_state_that_becomes_what_it_is_stays():
    """Seen at once, or after a reduction of one term has become a copy: nothing is written, or the copy is."""
    s = Steps(A=1, B=5)
    x, w, u = s.input("B"), Value(TensorType((AxisId("B"),), dtypes.float32), "w"), Value(TensorType((AxisId("B"),), dtypes.float32), "u")
    same = s("reduce", w, kind="add", axes=())
    one = s(
        "reduce", s("reindex", u, axes=("A", "B"), index=(("B", Idx(AxisId("B"))),), predicate=(), pad_value=0.0), kind="max", axes=("A",)
    )
    fields = {"state_in": (State("w", w), State("u", u)), "state_out": (("w", same), ("u", one))}
    held(s.program(x, **fields), DEFAULT)


def test_what_is_made_of_state_once_has_no_borders():
    s = Steps(A=7, B=14, C=53)
    w, i = Value(TensorType((AxisId("A"),), dtypes.float32), "w"), Value(TensorType((AxisId("A"),), dtypes.int64), "i")
    places = s("concat", i, i, parts=("A", "A"), axis="B")
    found = s("gather", w, places, axes=("A",), mode="wrap")
    y = s("reindex", found, axes=("C",), index=(("B", (Idx(AxisId("C")) + 1) // 3),), predicate=(), pad_value=0.0)
    p = s.program(y, state_in=(State("w", w), State("i", i)))
    state = {"w": np.arange(7, dtype=np.float32), "i": np.arange(7)[::-1] - 3}
    made = verify(plan(p, machine=next(machines(408789, 1))))  # for which it is kept
    assert len([k for k in made.once if type(k) is Kernel]) == 2
    np.testing.assert_array_equal(interpret(made, [], dict(state))[0][0], oracle.interpret(p, [], dict(state))[0][0])

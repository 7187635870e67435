"""What the arena holds: values that are cheap to make again are not kept for the way back; state is updated in place."""

import numpy as np
from plan_programs import axis, hole, program

import ngraph as ng
from ngraph.plan import Machine, interpret, plan, verify
from ngraph.program import interpret as oracle

SMALL = Machine(l2=1 << 10)  # so that small arrays are large


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
    keeping, again = held(p, Machine(l2=1 << 30)), held(p, SMALL)
    assert again.arena < keeping.arena


def test_weights_are_updated_in_place():
    made = held(network(), SMALL)
    assert sum(after.shares is before for _, before, after in made.state) >= len(made.state) - 1


def test_buffers_start_at_lines_of_the_cache():
    made = held(network(), SMALL)
    assert all(b.offset % 64 == 0 for b in made.buffers if b.offset is not None)
    assert made.memory.arena == made.arena and made.memory.once == made.kept

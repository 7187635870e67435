"""What becomes one kernel, without being known by name; and what a plan's text does not depend on."""

import math
import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machines
from plan_programs import agree, axis, hole, program

import ngraph as ng
import ngraph.frontends.neon as neon
from ngraph.op_graph.opdef import REGISTRY
from ngraph.plan import cost as prices
from ngraph.plan.kernels import Kernel, OpaqueOp
from ngraph.plan.planner import plan
from ngraph.plan.text import text
from ngraph.plan.verify import verify
from ngraph.program.lower import lower
from ngraph.program.program import Step
from ngraph.schedule.search import AccessDescriptor, View, schedule
from ngraph.targets import DEFAULT

N, H, W, C = axis(64, "N"), axis(96, "H"), axis(5, "W"), axis(8, "C")


def norm(x, g, b, over):
    m = ng.mean(x, reduction_axes=over)
    d = x - m
    v = ng.mean(d * d, reduction_axes=over)
    return d / ng.sqrt(v + 1e-5) * g + b, m, v


def gelu(x):
    return 0.5 * x * (1 + ng.erf(x * 0.70710678))


def softmax():
    x = hole(N, H)
    return [ng.softmax(x, normalization_axes=[H])], [x]


def layer_norm_gelu():
    x, g, b = hole(N, H), hole(H), hole(H)
    return [gelu(norm(x, g, b, [H])[0]) + x], [x, g, b]


def layer_norm_backward():
    x, g, b = hole(N, H), hole(H), hole(H)
    y = norm(x, g, b, [H])[0]
    return [ng.deriv(ng.sum(y * y, out_axes=()), x)], [x, g, b]


def batch_norm():
    x, g, b = hole(N, C, W), hole(C), hole(C)
    return list(norm(x, g, b, [N, W])), [x, g, b]


def batch_norm_backward():
    x, g, b, dy = hole(N, C, W), hole(C), hole(C), hole(N, C, W)
    loss = ng.sum(norm(x, g, b, [N, W])[0] * dy, out_axes=())
    return [ng.deriv(loss, v) for v in (x, g, b)], [x, g, b, dy]


def attention():
    q, k, v = (axis(n, name) for n, name in ((32, "Q"), (32, "K"), (16, "V")))
    d, heads = axis(16, "D"), axis(4, "E")
    x, y, z = hole(heads, q, d), hole(heads, k, d), hole(heads, k, v)
    scores = ng.sum(x * y, reduction_axes=[d]) * 0.25
    return [ng.sum(ng.softmax(scores, normalization_axes=[k]) * z, reduction_axes=[k])], [x, y, z]


def lstm_gates():
    gates = [hole(N, H) for _ in range(4)]
    c = hole(N, H)
    i, f, o = (ng.sigmoid(x) for x in gates[:3])
    new = f * c + i * ng.tanh(gates[3])
    return [new, o * ng.tanh(new)], [*gates, c]


def cross_entropy():
    x, y = hole(N, H), hole(N, H)
    p = ng.softmax(x, normalization_axes=[H])
    return [ng.sum(ng.log(p) * y, reduction_axes=[H]) * -1.0, p - y], [x, y]


ONE = [softmax, layer_norm_gelu, layer_norm_backward, batch_norm, batch_norm_backward, attention, lstm_gates, cross_entropy]


@pytest.mark.parametrize("make", ONE, ids=[f.__name__ for f in ONE])
def test_one_kernel(make):
    made = verify(agree(program(*_flat(make()))))
    assert len(made.kernels) == len(made.steps) == 1
    assert made.arena == 0  # nothing but inputs and outputs is moved
    assert all(len(k.loops) for k in made.kernels)


@pytest.mark.parametrize("width", [512, 1024, 4096])
def test_norms_of_rows_of_any_width_are_one_kernel(width):
    """What is added to each row, and multiplied with it, is near in any work item, however long it is."""
    rows, columns = axis(64, "I"), axis(width, "J")
    x, g, b, dy = hole(rows, columns), hole(columns), hole(columns), hole(rows, columns)
    y = norm(x, g, b, [columns])[0]
    made = verify(agree(program([y, ng.deriv(y, x, dy)], x, g, b, dy)))
    assert len(made.kernels) == 1 and dict(made.kernels[0].loops)["I"] < 64


def test_gradients_of_a_norm_for_rows_and_columns_read_what_is_near():
    """Sums over rows in parts, each of so few rows that all of its stages find them in the second cache."""
    rows, columns = axis(4096, "I"), axis(1024, "J")
    x, g, b, dy = hole(rows, columns), hole(columns), hole(columns), hole(rows, columns)
    y = norm(x, g, b, [columns])[0]
    made = verify(plan(program([ng.deriv(y, v, dy) for v in (x, g, b)], x, g, b, dy)))
    large = max(made.kernels, key=lambda k: len(k.stages))
    assert len(large.stages) > 4 and 3 * 4 * 1024 * dict(large.loops)["I"] <= DEFAULT.usable_l2


def test_what_several_kernels_would_compute_again_is_one_value_in_one():
    rows, columns = axis(1024, "I"), axis(256, "J")
    x, dy = hole(rows, columns), hole(rows, columns)
    y = ng.log(ng.softmax(x, normalization_axes=[columns]))
    made = verify(agree(program([y, ng.deriv(y, x, dy)], x, dy)))
    (kernel,) = made.kernels
    ops = [line.op for stage in kernel.stages for _, line in stage.lines()]
    assert ops.count("exp") == ops.count("log") == 1


def _flat(made):
    results, holes = made
    return results, *holes


def test_momentum_update_is_one_kernel_in_place():
    w = ng.variable([N, H], initial_value=1.0)
    m = ng.variable([N, H], initial_value=0.0)
    g = hole(N, H)
    new = m * 0.9 - g * 0.1
    made = agree(program([ng.doall([ng.assign(m, new), ng.assign(w, w + new)])], g))
    assert len(made.kernels) == len(made.steps) == 1
    assert all(after.shares is before for _, before, after in made.state)


def test_a_line_put_into_state_copies_nothing():
    """A cache of keys: the new one goes to its place, all are read where they are."""
    heads, past, size = axis(4, "E"), axis(50, "P"), axis(16, "D")
    cache = ng.persistent_tensor([heads, past, size], initial_value=0)
    key, query = hole(heads, size), hole(heads, size)
    new = ng.put(cache, ng.constant(7, dtype="int32"), key, past)
    scores = ng.softmax(ng.contract(query, new, over=[size]), [past])
    made = verify(agree(program([ng.sequential([ng.assign(cache, new), scores])], key, query)))
    ((_, before, after),) = made.state
    assert after.shares is before
    for kernel in made.kernels:
        for stage in kernel.stages:
            read = {line.read.source for _, line in stage.lines() if line.read is not None}
            for s in stage.to:
                assert s.target is not after or (before not in read and s.index[past.name] == 7)


def test_lines_put_into_state_by_several_turns_or_read_behind_are_right():
    rows, width = axis(40, "R"), axis(200, "D")
    x, i = hole(rows, width), hole(dtype=np.int32)
    for reads_old in (False, True):
        state = ng.persistent_tensor([rows, width], initial_value=0)
        new = ng.put(state, i, x[{rows: 3}] * 2, rows)
        more = ng.put(new, ng.constant(5, dtype="int32"), x[{rows: 1}], rows)
        seen = [ng.sum(more, reduction_axes=[width])] + ([ng.sum(ng.exp(state), reduction_axes=[rows])] if reads_old else [])
        agree(program([ng.sequential([ng.assign(state, more), *seen])], x, i))


def test_what_two_loops_take_is_stored_once():
    """The input of a loop and of its way back."""
    t, n, h = axis(6, "T"), axis(8, "N"), axis(32, "H")
    x, w = hole(n, t, h), ng.variable([h, h + 1], initial_value=0.0)
    u = ng.variable([h - 1, h], initial_value=0.0)

    def step(s, z):
        s = ng.tanh(ng.dot(u, s) * 0.1 + z * z)
        return s, s

    zero = ng.constant(0.0, [n, h])
    _, y = ng.scan(step, zero, ng.cast_axes(ng.dot(x, w), [n, t, h]) * 0.1, t)
    made = agree(program([ng.deriv(ng.sum(y * y, out_axes=()), w)], x), rtol=1e-3, atol=1e-3)
    assert len([s for s in made.steps if not isinstance(s, Kernel)]) == 2
    for kernel in made.kernels:
        for stage in kernel.stages:
            stored = [s.line for s in stage.to]
            assert len(set(stored)) == len(stored)


def test_a_dear_value_of_one_product_is_not_computed_in_each_turn_of_the_next():
    one, wide = axis(1, "N"), axis(2048, "H2")
    x, w = hole(one, H), ng.variable([H, wide], initial_value=0.0)
    out = axis(640, "O")
    v = ng.variable([wide, out], initial_value=0.0)
    made = agree(program([ng.dot(gelu(ng.dot(x, w)), v)], x), rtol=1e-3, atol=1e-3)
    first, second = made.kernels
    assert any(line.op == "erf" for s in first.stages for _, line in s.lines())
    assert not any(line.op == "erf" for s in second.stages for _, line in s.lines())


def test_state_that_is_read_elsewhere_is_not_in_place():
    w = ng.variable([N, H], initial_value=1.0)
    total = ng.sum(w, reduction_axes=[N])
    made = agree(program([ng.assign(w, w + total)]))
    assert [before.axes for _, before, _ in made.state]


def test_dropout_is_one_kernel():
    x = hole(N, H)
    kept = ng.cast(ng.uniform([N, H]) < 0.5, np.float32)
    made = agree(program([x * kept * 2.0], x))
    words = [s for s in made.steps if isinstance(s, Kernel) and any(t.target in made.outputs for g in s.stages for t in g.to)]
    assert len(words) == 1
    assert made.arena == 0


def test_epilogue_joins_its_contraction():
    k = axis(48, "K")
    x, w, b = hole(N, k), hole(k, H), hole(H)
    made = agree(program([ng.relu(ng.dot(x, w) + b)], x, w, b), rtol=1e-4, atol=1e-4)
    (kernel,) = made.kernels
    (stage,) = kernel.stages
    assert stage.reduced and stage.after and made.arena == 0


STEPS = ("exp", "tanh", "add", "multiply", "subtract", "max", "sum", "mean", "relu", "square")


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(STEPS), min_size=2, max_size=10), st.integers(2, 40), st.integers(33, 100))
def test_chains_of_elements_and_rows_are_one_kernel(steps, rows, width):
    n, h = axis(rows * 8, "N"), axis(width, "H")
    x, y = hole(n, h), hole(n, h)
    v = x * 0.5
    for s in steps:
        if s == "exp":
            v = ng.exp(ng.tanh(v))
        elif s in ("tanh", "relu"):
            v = getattr(ng, s)(v)
        elif s in ("add", "multiply", "subtract"):
            v = {"add": v + y, "multiply": v * y, "subtract": v - y}[s]
        elif s == "square":
            v = ng.tanh(v) * ng.tanh(v)
        else:
            v = v - {"max": ng.max, "sum": ng.mean, "mean": ng.mean}[s](v, reduction_axes=[h])
    made = agree(program([v], x, y), rtol=1e-3, atol=1e-3)
    assert len(made.kernels) == len(made.steps) == 1
    assert made.arena == 0
    assert set(made.kernels[0].targets) == set(made.outputs)


def network():
    k, o = axis(40, "K"), axis(10, "O")
    x, y = hole(N, H), hole(N, o)
    w, v = ng.variable([H, k], initial_value=0.1), ng.variable([k, o], initial_value=0.1)
    p = ng.softmax(ng.dot(ng.relu(ng.dot(x, w)), v), normalization_axes=[o])
    loss = ng.sum(ng.log(p + 1e-3) * y, out_axes=()) * (-1 / 64)
    updates = [ng.assign(a, a - 0.1 * ng.deriv(loss, a)) for a in (w, v)]
    return lower([loss, ng.doall(updates)], [x, y]).program


def test_training_step():
    p = network()
    made = verify(agree(p, rtol=1e-3, atol=1e-3))
    assert len(made.kernels) <= 8 < len(p.steps)
    assert any(after.shares is before for _, before, after in made.state)
    assert made.memory.arena == made.arena and made.memory.state > 0
    assert all(b.offset % 64 == 0 for b in made.buffers if b.offset is not None)


def convolutions():
    """A strided convolution with batch norm and pooling, trained: classes, parts of sums, windows."""
    n, c, h, w, k, r, q = (axis(a, b) for a, b in ((8, "N"), (3, "C"), (16, "H"), (16, "W"), (16, "K"), (3, "R"), (3, "S")))
    x, f = hole(n, c, h, w), ng.variable([k, c, r, q], initial_value=0.1)
    y = ng.conv(x, f, {h: r, w: q}, stride=2, padding=1)
    y = norm(y, 1.0, 0.0, [n, *y.axes[2:]])[0]
    y = ng.max_pool(ng.relu(y), dict.fromkeys(y.axes[2:], 3), stride=2, padding=1)
    loss = ng.sum(y * y, out_axes=())
    return lower([loss, ng.deriv(loss, x), ng.assign(f, f - 0.1 * ng.deriv(loss, f))], [x]).program


def test_convolutions_trained():
    verify(agree(convolutions(), rtol=2e-3, atol=2e-3))


def test_a_convolution_of_one_place_runs_in_the_kernel_of_the_one_before_it():
    n, c, h, w, k, r, q = (axis(a, b) for a, b in ((8, "N"), (48, "C"), (56, "H"), (56, "W"), (24, "K"), (3, "R"), (3, "S")))
    one, other = axis(1, "I"), axis(1, "J")
    x, f, g = hole(n, h, w, c), hole(r, q, c), hole(k, c, one, other)
    y = ng.relu(ng.conv(x, f, {h: r, w: q}, padding=1, groups=c))
    _, rows, columns = [a for a in y.axes if a.name != "C"]
    made = verify(agree(program([ng.conv(y, g, {rows: one, columns: other})], x, f, g)))
    (kernel,) = [s for s in made.kernels if sum(bool(stage.combine) for stage in s.stages) == 2]
    assert len(kernel.loops) > 1  # pixels, too, are shared out


def test_a_total_is_begun_by_many_turns_and_finished_by_one():
    n, h = axis(1000, "N"), axis(300, "H")
    x, y = hole(n, h), hole(n, h)
    p = program([ng.mean(ng.sigmoid(x) * ng.tanh(y), out_axes=())], x, y)
    made = verify(agree(p))
    first, last = made.kernels
    items = math.prod([-(-made.length(a) // b) for a, b in first.loops])
    (parts,) = first.targets
    assert items >= DEFAULT.cores * 4 and made.length(parts.axes[-1]) == items <= 16
    assert not last.loops and last.sources == (parts,)


def test_turns_put_parts_of_a_sum_together_in_whole_lines():
    rows, long, columns = axis(256, "M"), axis(100_000, "K"), axis(64, "C")
    x, w = hole(rows, long), hole(long, columns)
    made = plan(program([norm(ng.dot(x, w), 1.0, 0.0, [rows])[0]], x, w))
    *_, last = made.kernels
    assert any("chunk" in s.reduced for s in last.stages)
    assert [(a, b >= 16) for a, b in last.loops] == [("C", True)]


@pytest.mark.parametrize("rows, columns", [(1000, 1000), (768, 3072), (3072, 768)])
def test_turns_of_a_vector_times_parameters_have_whole_panels(rows, columns):
    """However the parameters came: a copy of them is read, and work items across its panels would read most of it again."""
    i, j = axis(rows, "I"), axis(columns, "J")
    x = hole(j)
    for axes in ((i, j), (j, i)):
        w = ng.variable(axes, initial_value=np.zeros([len(a) for a in axes], np.float32))
        (kernel,) = plan(program([ng.dot(w, x)], x)).kernels
        assert [(a, b % 32) for a, b in kernel.loops] == [("I", 0)]


def test_the_parts_of_a_sum_follow_from_the_machine_alone():
    n, h = axis(1000, "N"), axis(300, "H")
    x = hole(n, h)
    p = program([ng.sum(ng.exp(x), out_axes=())], x)
    assert len({text(plan(p, machine=m)) for m in (DEFAULT, replace(DEFAULT), replace(DEFAULT, name="another"))}) == 1


def test_what_is_read_along_another_axis_is_made_along_it():
    other = axis(96, "H2")
    x, y = hole(N, H), hole(N, other)
    p = program([ng.sigmoid(x) * ng.cast_axes(ng.tanh(y), [N, H])], x, y)
    made = verify(agree(p))
    assert len(made.kernels) == 1 and made.arena == 0


def test_small_values_are_computed_once_by_each_thread():
    k = axis(640, "K")
    x, g, w = hole(H), hole(H), hole(H, k)
    made = verify(agree(program([ng.dot(norm(x, g, 1.0, [H])[0], w)], x, g, w), rtol=1e-4, atol=1e-4))
    (kernel,) = made.kernels
    *norms, product = kernel.stages
    assert kernel.loops and product.depth == len(kernel.loops)
    assert len(norms) >= 2 and all(s.depth == 0 for s in norms)


@pytest.mark.parametrize("rows, columns", [(4096, 1024), (64, 65536), (7, 300000), (300000, 7), (300, 2000)])
def test_what_is_only_moved_is_shared_out_in_whole_lines(rows, columns):
    """Nothing is computed, yet all threads have their share; what a work item stores beside each other fills lines."""
    i, j = axis(rows, "I"), axis(columns, "J")
    x = hole(i, j)
    for result, last in ((ng.axes_with_order(x, [j, i]), i), (ng.flip(x, i), j)):
        made = plan(program([result], x))
        (kernel,) = made.kernels
        blocks = {a: min(b, made.length(a)) for a, b in kernel.loops}
        assert math.prod([-(-made.length(a) // b) for a, b in blocks.items()]) >= 2
        assert blocks.get(last.name, 64) >= min(64, len(last))


def test_work_is_shared_out_in_pieces_that_hold_whole_vectors():
    m, k = axis(128, "M"), axis(768, "K")
    o = axis(768, "O")
    x, w = hole(m, k), hole(k, o)
    *_, kernel = plan(program([ng.relu(ng.dot(x, w))], x, w)).kernels  # the first copies w to panels
    loops = dict(kernel.loops)
    assert math.prod([-(-len(a) // loops[a.name]) for a in (m, o) if a.name in loops]) >= 4 * DEFAULT.cores
    assert loops.get("O", 64) % 32 == 0


def dear_value_in_a_window():
    """A small value that takes long, read beside its own place along an axis of what reads it."""
    n, f, h, w, k, r, s = (axis(length, a) for a, length in zip("NFHWKRS", (2, 20, 7, 7, 20, 5, 3), strict=True))
    x, g = hole(n, h, w, f), hole(k, f, r, s)
    return [ng.conv(ng.sigmoid(x), g, {h: r, w: s}, padding=2)], [x, g]


EVERYWHERE = (*ONE, attention, lstm_gates, layer_norm_backward, batch_norm_backward, cross_entropy, dear_value_in_a_window)


@pytest.mark.parametrize("make", dict.fromkeys(EVERYWHERE), ids=lambda f: f.__name__)
def test_plans_for_any_machine_are_right(make):
    p = program(*_flat(make()))
    for machine in machines(0, 24):
        agree(p, verify(plan(p, machine=machine)), rtol=2e-4, atol=2e-4)


def test_ops_that_cost_the_same_are_planned_the_same():
    """Beside sums and products no op is known by name: others of equal weight in the place of each change nothing but the lines."""
    other = {"maximum": "minimum", "tanh": "expm1", "expm1": "sin", "abs": "floor", "negative": "abs", "erf": "atan"}

    def swapped(p):
        steps = [Step(s.results, other.get(s.op, s.op), s.inputs, s.attrs, s.origin) for s in p.steps]
        return p.with_(steps=tuple(steps))

    for make in (softmax, layer_norm_gelu, batch_norm, lstm_gates):
        p = program(*_flat(make()))
        shown = text(plan(p), origins=False)
        expected = re.sub(r" = (\w+)\(", lambda m: f" = {other.get(m[1], m[1])}(", shown)
        assert text(plan(swapped(p)), origins=False) == expected


def test_what_records_are_called_changes_no_plan(monkeypatch):
    """All records that are made of smaller ones get other names, and every op a name of its own."""

    def plans():
        made = [program(*_flat(make())) for make in (layer_norm_gelu, batch_norm_backward, attention, lstm_gates, cross_entropy)]
        return [text(plan(p), origins=False) for p in (*made, network(), convolutions())]

    before = plans()
    for k, record in enumerate([r for r in REGISTRY.values() if r.lower is not None]):
        monkeypatch.setattr(record, "name", f"record{k}")
    assert plans() == before


def test_same_plan_in_every_process():
    made = "print(*map(t.text, map(t.plan, (t.network(), t.convolutions()))))"
    script = f"import sys; sys.path[:0] = sys.argv[1:]; import test_kernels as t; {made}"
    here = os.path.dirname(os.path.abspath(__file__))
    tests = os.path.dirname(here)
    command = [sys.executable, "-c", script, here, os.path.join(tests, "every_op"), os.path.dirname(tests)]
    texts = set()
    for seed in ("0", "1", "77"):
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed})
        texts.add(done.stdout)
    assert len(texts) == 1 and "kernel" in texts.pop()


def test_names_change_nothing():
    def make(n, h):
        x = hole(n, h)
        return text(plan(program([ng.softmax(x, normalization_axes=[h]) + x], x)), origins=False)

    a, b = axis(64, "Zeta"), axis(96, "Alpha")
    assert make(a, b).replace("Zeta", "N").replace("Alpha", "H") == make(N, H)


def test_cores_keep_their_rows_of_a_loop_where_each_has_room_for_the_weights():
    """Work items go first along what the weights have not: what one trip makes of its rows, the next takes on the same core."""
    T, B = axis(5, "T"), axis(64, "B")
    for size, first in ((128, "B"), (512, "H")):
        h = axis(size, "H")
        x, w = hole(T, B, h), ng.variable([h - 1, h], initial_value=0.01)

        def step(s, x, w=w):
            s = ng.tanh(x + ng.dot(w, s))
            return s, s

        _, y = ng.scan(step, ng.constant(0.0, [B, h]), x, T)
        (scan,) = [s for s in plan(program([y], x)).steps if isinstance(s, OpaqueOp)]
        loops = [k.loops for k in scan.attrs["body"].steps if isinstance(k, Kernel) and any(s.combine for s in k.stages)]
        assert [[a for a, _ in found][0] for found in loops] == [first]


@pytest.mark.parametrize("height", [56, 49])
def test_what_several_stages_of_a_turn_read_stays_near(height):
    n, y, x, c, d = axis(8, "N"), axis(height, "Y"), axis(56, "X"), axis(32, "C"), axis(256, "D")
    dy, w, other, before = hole(n, y, x, c), hole(c, d), hole(n, y, x, d), hole(n, y, x, d)
    back = ng.where(ng.greater(before, 0.0), ng.sum(dy * w, reduction_axes=[c]) + other, 0.0)
    results = [back, ng.sum(back * before, out_axes=[d]), ng.sum(dy * before, out_axes=[c, d])]
    made = plan(program(results, dy, w, other, before))
    k = max([k for k in made.kernels if isinstance(k, Kernel)], key=lambda k: len(k.stages))
    assert len(k.stages) > 2
    lengths = {**made.axes, **dict(k.loops)}
    near = sum([math.prod([lengths[a] for a in b.axes if a in lengths]) * 4 for b in {*k.sources, *k.targets} if len(b.axes) == 4])
    assert near <= DEFAULT.usable_l2, k.loops


def test_what_places_of_a_window_have_in_common_is_computed_once():
    """As the gradient of pooling does, which looks for a maximum and then asks at each place of its window whether it lies there."""
    places = frozenset({0, 3})
    reads = AccessDescriptor((56, 0, 0, 1), places, frozenset(), 4)
    stores = AccessDescriptor((504, 168, 56, 1), frozenset(range(4)), frozenset(), 4, True)
    work = ((60.0, places), (2.0, frozenset(range(4))))
    view = View((0, 1, 2, 3), (), (56, 3, 3, 56), (reads, stores), work, (), 16)
    made = schedule(view, DEFAULT)
    assert made.vector == 3 and made.order == (0, 3, 1, 2)
    light = view._replace(work=((2.0, places), (60.0, frozenset(range(4)))))
    assert schedule(light, DEFAULT).order == (0, 1, 2, 3)


def test_products_that_one_kernel_makes_have_their_registers_for_themselves():
    n, f = axis(64, "N"), axis(128, "F")
    x, rate = hole(n, f), hole()
    weights = [ng.variable([f - 1, f], initial_value=0.01) for _ in range(4)]
    y = x
    for w in weights:
        y = y + gelu(ng.dot(w, y))
    cost = ng.mean(y * y, out_axes=())
    made = plan(program([ng.sequential([*[ng.assign(w, w - rate * ng.deriv(cost, w)) for w in weights], cost])], x, rate))
    sums = [s for k in made.kernels for s in k.stages if any(s.before[c.line].op == "multiply" for c in s.combine)]
    wide = [s for s in sums if math.prod([made.length(a) for a in s.free]) >= 128 * 128]
    assert len(wide) >= 4
    assert all(len(s.combine) == 1 for s in wide)


def test_what_planning_asks_for_grows_with_the_layers(monkeypatch):
    """Twice the blocks of a transformer, trained by AdamW, take at most a little more than twice the prices."""
    asked = []
    seconds = prices.CostTable.seconds
    monkeypatch.setattr(prices.CostTable, "seconds", lambda self, nodes: asked.append(len(nodes)) or seconds(self, nodes))
    n, t = axis(4, "N"), axis(64, "REC")
    ids, init = hole(n, t, dtype=np.int32), neon.GaussianInit(0.0, 0.05)
    counts = []
    for layers in (2, 4):
        embed = neon.Embedding(90, 96, init, max_len=64)
        blocks = [neon.TransformerBlock(6, init=init, causal=True) for _ in range(layers)]
        model = neon.Sequential([embed, *blocks, neon.LayerNorm(), neon.TiedLinear(embed)])
        cost = ng.mean(neon.CrossEntropyMulti(logits=True).of(model(ids), ids), out_axes=())
        update = neon.AdamW(1e-3)(cost)
        asked.clear()
        plan(program([ng.sequential([update, cost])], ids))
        counts.append(sum(asked))
    assert counts[1] < 2.5 * counts[0]

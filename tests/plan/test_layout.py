"""Where values lie: borders instead of predicates, copies in panels, once-steps, orders by readers; and that results stay what they are."""

from dataclasses import replace

import numpy as np
import pytest
from machines import usable
from plan_programs import arrays_for, axis, hole, program

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.op_graph import expr
from ngraph.ops.rearrange import reindex
from ngraph.plan.interpret import interpret
from ngraph.plan.kernels import Buffer, Kernel, Local, OpaqueOp, dims_of
from ngraph.plan.layout import set_row
from ngraph.plan.packing import OperandAxes, panel_width, vector_of
from ngraph.plan.planner import plan
from ngraph.plan.text import arrays, parse, text
from ngraph.plan.verify import verify
from ngraph.program import interpret as oracle
from ngraph.program.program import AxisId
from ngraph.schedule import interpret as schedule_interpret
from ngraph.schedule import verify as schedule_verify
from ngraph.schedule.address import strides_of
from ngraph.schedule.cpu import schedule_plan
from ngraph.schedule.text import text as schedule_text
from ngraph.targets import DEFAULT
from ngraph.tensors import winograd
from ngraph.tensors.build import build
from ngraph.tensors.index import affine
from ngraph.tensors.simplify import _copied, drop_result_copies

N, C, H, W = axis(2, "N"), axis(16, "C"), axis(9, "H"), axis(10, "W")


@pytest.fixture(autouse=True)
def directly(monkeypatch):
    """Convolutions are the sums that they are written as."""
    monkeypatch.setattr(winograd, "MAX_WINOGRAD_TIME", 0)


def weights(*axes, seed=0):
    draw = np.random.default_rng(seed)
    return ng.variable(list(axes), initial_value=draw.normal(size=[len(a) for a in axes]) * 0.1)


def conv(x, k, size=3, **options):
    """A convolution over the last two axes of N, C, rows, columns, with weights of its own."""
    r, s = axis(size, "R"), axis(size, "S")
    return ng.conv(x, weights(k, x.axes[1], r, s), {x.axes[2]: r, x.axes[3]: s}, **options)


def planned(results, *holes, machine=DEFAULT, **limits):
    """The plan, once it was verified, printed, parsed and held against the oracle."""
    p = program(results, *holes)
    made = verify(plan(p, machine=machine))
    shown = text(made)
    again = verify(parse(shown, arrays(made)))
    assert text(again) == shown
    inputs, state = arrays_for(p)
    state = {name: (0.1 * a).astype(a.dtype) if a.dtype.kind == "f" else a for name, a in state.items()}
    expected, after = oracle.interpret(p, inputs, dict(state))
    for m in (made, again):
        got, now = interpret(m, inputs, dict(state))
        for a, b in zip([*got, *[now[k] for k in after]], [*expected, *after.values()], strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            np.testing.assert_allclose(a, b, **{"rtol": 1e-4, "atol": 1e-4, **limits})
    return made


def reads(steps):
    return [r for s in steps if isinstance(s, Kernel) for stage in s.stages for r in stage.reads()]


def predicates(made):
    return [r for r in reads(made.steps) if r.predicate]


LAYERS = {
    "plain": {"padding": 1},
    "stride": {"padding": 1, "stride": 2},
    "dilation": {"padding": 2, "dilation": 2},
    "wide": {"padding": 3, "size": 7},
    "uneven": {"padding": 0},
}


@pytest.mark.parametrize("layer", LAYERS)
def test_convolutions_read_borders_and_panels(layer):
    x = hole(N, C, H, W)
    y = ng.relu(conv(x, axis(32, "K"), padding=1))
    made = planned([conv(y, axis(24, "L"), **LAYERS[layer])], x)
    assert not predicates(made)
    inner = [b for b in made.buffers if b.storage == "arena" and b.border]
    copies = [b for b in inner if "C" in b.axes]  # of the input, in its own order; between two layers channels are last
    assert inner and all(b.axes == ("N", "C", "H", "W") if b in copies else b.dims[-1][0] == "K" for b in inner)
    packed = [b for b in made.buffers if b.storage == "once"]
    assert {b.dims[-1][0] for b in packed} == {"K", "L"} and len(made.once) == 2
    assert made.kept >= sum(b.bytes for b in packed)


def test_channels_are_last_in_between():
    x = hole(N, C, H, W)
    made = planned([conv(ng.relu(conv(x, axis(32, "K"), padding=1)), axis(24, "L"), padding=1)], x)
    (between,) = [b for b in made.buffers if b.storage == "arena" and "K" in b.axes]
    assert between.dims[-1][0] == "K" and set(between.border) == {a for a in between.axes if a[0] in "HW"}
    assert [b.axes for b in made.outputs] == [("N", "L", "H", "W")]  # as the caller asked


def test_depthwise_and_transposed():
    x = hole(N, C, H, W)
    r, s = axis(3, "R"), axis(3, "S")
    y = ng.relu(conv(x, axis(24, "G"), padding=1))
    c = y.axes[1]
    z = ng.conv(y, weights(c, r, s), {y.axes[2]: r, y.axes[3]: s}, padding=1, groups=c)
    planned([z], x)
    back = ng.deriv(ng.sum(z * z, out_axes=()), x)
    planned([back], x, rtol=2e-4, atol=2e-4)


def windows(form, n, h, w, c, k, sides=(None, None, None)):
    """A product whose results are read through windows of 3 x 3, its input, and the arrays of its weights; `sides`: lengths of n, h, w."""
    draw = np.random.default_rng(0)
    by, taps = [draw.normal(size=shape).astype("f") / 10 for shape in ((c, k), (k, 3, 3))]
    a, b, d = [ng.make_axis(m, name=name) for m, name in zip(sides, "NHW", strict=True)]
    channels, kept, r, s = axis(c, "C"), axis(k, "K"), axis(3, "R"), axis(3, "S")
    x = hole(a, b, d, channels)
    y = ng.relu(ng.dot(x, ng.constant(by, [channels, kept])))
    if form == "max":
        z = ng.max_pool(y, {b: 3, d: 3}, padding=1, stride=1)
    else:
        z = ng.conv(y, ng.constant(taps, [kept, r, s]), {b: r, d: s}, padding=1, groups=kept)
    return ng.axes_with_order(z, [one for name in "NHWK" for one in z.axes if one.name == name]), x, by, taps


def through_windows(form, x, by, taps):
    """The same in float64, by NumPy."""
    y = np.maximum(x.astype("f8") @ by, 0)
    full = np.pad(y, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf if form == "max" else 0)
    seen = np.lib.stride_tricks.sliding_window_view(full, (3, 3), (1, 2))
    return seen.max((-1, -2)) if form == "max" else np.einsum("nhwkrs,krs->nhwk", seen, taps.astype("f8"))


@pytest.mark.parametrize("form", ["max", "depthwise"])
def test_values_of_a_work_item_have_borders(form):
    """They are in the cache that a work item has, and each item fills the borders."""
    z, x, _, _ = windows(form, 2, 12, 11, 16, 48, (2, 12, 11))
    made = planned([z], x, machine=replace(DEFAULT, l2=1 << 17, l3=1 << 18))
    (kernel,) = [k for k in made.kernels if any(type(s.target) is Local and s.target.border for stage in k.stages for s in stage.to)]
    assert len(kernel.stages) == 6 and not any(r.predicate for stage in kernel.stages for r in stage.reads())
    shown = schedule_verify.verify(schedule_plan(made, DEFAULT))
    given = np.random.default_rng(1).normal(size=(2, 12, 11, 16)).astype("f")
    p = program([z], x)
    (got,), _ = schedule_interpret.interpret(shown, [given], {})
    (expected,), _ = oracle.interpret(p, [given], {})
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", ["max", "depthwise"])
@pytest.mark.parametrize("sides", [(None, 20, 19), (2, None, None), (None, None, 20)])
def test_borders_inside_kernels_under_open_lengths(form, sides):
    z, x, by, taps = windows(form, 4, 20, 19, 24, 144, sides)
    run = ngt.make_transformer().computation(z, x)
    for lengths in [(1, 1, 1), (3, 20, 19), (2, 7, 64), (5, 2, 20), (1, 33, 20)]:
        shape = [n if own is None else own for n, own in zip(lengths, sides, strict=True)]
        given = np.random.default_rng(2).normal(size=(*shape, 24)).astype("f")
        np.testing.assert_allclose(run(given), through_windows(form, given, by, taps), rtol=1e-4, atol=1e-4)


def test_gradients_of_strided_convolutions():
    x = hole(N, C, H, W)
    w = weights(axis(32, "K"), C, axis(3, "R"), axis(3, "S"))
    k, _, r, s = w.axes
    y = ng.relu(ng.conv(x, w, {H: r, W: s}, stride=2, padding=1))
    loss = ng.sum(y * y, out_axes=())
    planned([loss, ng.assign(w, w - 0.001 * ng.deriv(loss, w))], x, rtol=2e-3, atol=2e-3)
    planned([ng.deriv(loss, x)], x, rtol=2e-3, atol=2e-3)


def test_one_dimension_and_three():
    for names in (["T"], ["A", "B", "D"]):
        places = [axis(4 + k, name) for k, name in enumerate(names)]
        x = hole(axis(1, "N"), C, *places)
        y = x
        for k in (32, 16):
            taps = [axis(3, f"R{a.name}") for a in y.axes[2:]]
            w = weights(axis(k, f"K{k}"), y.axes[1], *taps)
            y = ng.relu(ng.conv(y, w, dict(zip(y.axes[2:], taps, strict=True)), padding=1))
        made = planned([y], x)
        assert any(set(b.border) == set(made.inputs[0].axes[2:]) for b in made.buffers)


def test_one_buffer_has_one_pad_value():
    x = hole(N, C, H, W)
    y = conv(x, axis(32, "K"), padding=1)
    pooled = ng.max_pool(y, dict.fromkeys(y.axes[2:], 3), stride=2, padding=1)
    made = planned([conv(y, axis(64, "L"), padding=1), pooled], x)
    (between,) = [b for b in made.buffers if b.storage == "arena" and b.axes[-1] == "K"]
    assert between.pad_value == 0 and {r.pad_value for r in predicates(made)} == {-np.inf}


def test_max_pooling_reads_a_border_of_its_own_pad_value():
    c, h, w = axis(64, "C"), axis(56, "H"), axis(56, "W")
    x = hole(axis(1, "N"), c, h, w)
    y = ng.relu(conv(x, axis(64, "K"), padding=1))
    made = verify(plan(program([ng.max_pool(y, dict.fromkeys(y.axes[2:], 3), stride=2, padding=1)], x)))
    assert not predicates(made) and any(b.pad_value == -np.inf for b in made.buffers if b.border)


def test_borders_last_from_call_to_call():
    x = hole(N, C, H, W)
    y = x
    for k in range(4):
        y = ng.relu(conv(y, axis(16, f"K{k}"), padding=1))
    made = planned([y], x, rtol=1e-3, atol=1e-3)
    inner = [b for b in made.buffers if b.border]
    assert len(inner) == 4 and len(made.start) == 4
    assert len({b.offset for b in inner if "C" not in b.axes}) == 2  # those of one form take turns; the input's copy is of another
    taken = sorted((b.offset, b.offset + b.bytes) for b in made.buffers if b.storage == "arena")
    for b in inner:  # nobody else lies on it, at any time
        assert {(low, high) for low, high in taken if low < b.offset + b.bytes and b.offset < high} == {(b.offset, b.offset + b.bytes)}


def test_a_border_that_lasts_is_not_written_over():
    x = hole(N, C, H, W)
    y = x
    for k in range(3):
        y = ng.relu(conv(y, axis(16, f"K{k}"), padding=1))
    made = planned([y], x, rtol=1e-3, atol=1e-3)
    a, b = next((a, b) for k in made.kernels for a in k.sources for b in k.targets if a.border and b.border)
    b.offset = a.offset  # one is made of the other
    with pytest.raises(ng.NgraphError, match="lie on each other"):
        verify(made)


def test_mirrored_windows_are_copied_before_they_are_summed():
    t, f, s, k = axis(100, "T"), axis(10, "F"), axis(32, "S"), axis(24, "K")
    x = hole(t)
    place = 16 * expr.Idx(f) + expr.Idx(s)
    frames = reindex(x, axes=(f, s), index={t: expr.minimum(place, 198 - place)})
    made = planned([ng.dot(frames, weights(s, k))], x, rtol=1e-4, atol=1e-4)
    copy, product = [stage for kernel in made.kernels for stage in kernel.stages]
    assert not copy.combine and product.combine
    assert all(affine(e) is not None for r in product.reads() for e in r.index.values())


def test_borders_of_much_memory_are_filled_in_the_call():
    x = hole(N, C, H, W)
    y = x
    for k in range(6):
        y = ng.relu(conv(y, axis(16 * (k + 1), f"K{k}"), padding=1))
    few, many = (planned([y], x, machine=usable(l3=size), rtol=1e-3, atol=1e-3) for size in (0, 1 << 24))
    assert not few.start and few.arena < many.arena


def test_what_no_call_changes_is_computed_once():
    x, g, v = hole(N, H), weights(H), ng.variable([H], initial_value=np.linspace(0.5, 2, len(H)))
    made = planned([x * (g / ng.sqrt(v + 1e-5))], x)
    assert len(made.once) == 1 and len(made.steps) == 1
    (kernel,) = made.steps
    assert not any(line.op in ("sqrt", "divide") for s in kernel.stages for _, line in s.lines())


def test_what_was_only_on_the_way_to_a_copy_is_not_kept(monkeypatch):
    """Weights that are transformed and then packed: the first lie in the arena, one layer's where the next one's lie."""
    monkeypatch.setattr(winograd, "MAX_WINOGRAD_TIME", 10)
    x = hole(N, C, H, W)
    k, o = axis(272, "K"), axis(272, "L")
    made = planned([conv(x, k, padding=1), conv(x * 2, o, padding=1)], x, rtol=1e-3, atol=1e-3)
    filled = [b for step in made.once for b in step.targets]
    passing, kept = ([b for b in filled if (b.storage == "once") is here] for here in (False, True))
    assert len(passing) == len(kept) == 2 and {r.source for r in reads(made.steps)}.issuperset(kept)
    assert all(b.storage == "arena" for b in passing) and passing[0].offset == passing[1].offset
    assert made.kept == sum(b.bytes for b in kept)
    assert [b in passing for b in filled] == [True, False] * 2


def test_state_that_a_call_writes_is_not_once():
    x, w = hole(N, H), weights(H)
    scale = 1 / ng.sqrt(w * w + 1)
    assert planned([x * scale], x).once
    assert not planned([x * scale, ng.assign(w, w * 0.5)], x).once


def test_weights_of_loops_are_packed_once_for_all_calls_or_before_the_first_trip_where_they_change():
    """Also those of a loop within a loop, which reads them through the body around it."""
    t, u, n, h = axis(3, "T"), axis(2, "U"), axis(1, "N"), axis(400, "H")
    x, w = hole(t, u, n, h), weights(h - 1, h)

    def cell(s, z):
        s = ng.tanh(z + ng.dot(w, s) * 0.1)
        return s, s

    def outer(s, z):
        return ng.scan(cell, s, z, u)

    def bodies(made, k):
        (scan,) = [s for s in made.steps if isinstance(s, OpaqueOp)]
        return [scan.attrs["body"]] + (bodies(scan.attrs["body"], k - 1) if k else [])

    zero = ng.constant(0.0, [n, h])
    for step, xs, over, depth in ((cell, x[{t: 0}], u, 0), (outer, x, t, 1)):
        _, y = ng.scan(step, zero, xs, over)
        made = planned([y], x, rtol=1e-3, atol=1e-3)
        assert len(made.once) == 1 and made.kept == made.once[0].targets[0].bytes > 0
        inside = bodies(made, depth)
        assert all(not b.once and b.kept == 0 for b in inside)
        assert any(r.source.loop_invariant and len(r.source.dims) == 3 for k in inside[-1].kernels for s in k.stages for r in s.reads())
        made = planned([y, ng.assign(w, w * 0.5)], x, rtol=1e-3, atol=1e-3)
        assert not made.once and bodies(made, depth)[0].once


def test_weights_are_packed_once_and_by_a_kernel_where_they_change():
    k, o, n = axis(300, "K"), axis(700, "O"), axis(140, "N")
    x, w = hole(n, k), weights(k, o)
    made = planned([ng.dot(x, w)], x, rtol=1e-4, atol=1e-4)
    (packed,) = [b for b in made.buffers if b.storage == "once"]
    width = packed.dims[-1][2]
    assert packed.dims == (("O", width, None), ("K", 1, None), ("O", 1, width)) and width % 16 == 0
    assert len(made.steps) == 1
    again = planned([ng.dot(x, w), ng.assign(w, w * 0.5)], x, rtol=1e-4, atol=1e-4)
    assert not again.once and again.kept == 0
    stores = [t.target for s in again.steps for stage in s.stages for t in stage.to]
    assert any(b.storage in ("arena", "local") and set(b.axes) == {"K", "O"} and b.dims[-1][0] == "O" for b in stores)


def test_attention_packs_in_its_turns():
    q, k, v = (axis(n, name) for n, name in ((64, "Q"), (64, "K"), (32, "V")))
    d, heads = axis(32, "D"), axis(8, "E")
    x, y, z = hole(heads, q, d), hole(heads, k, d), hole(heads, k, v)
    scores = ng.contract(x, y, over=[d]) * 0.25
    made = planned([ng.contract(ng.softmax(scores, [k]), z, over=[k])], x, y, z, rtol=1e-4, atol=1e-4)
    (kernel,) = made.steps
    panels = [s for s in kernel.stages if all(isinstance(t.target, Local) for t in s.to) and len(s.before) == 1]
    assert panels and all(0 < s.depth <= len(kernel.loops) for s in panels)


def test_odd_lengths_and_types():
    k, o, n = axis(67, "K"), axis(203, "O"), axis(33, "N")
    for dtype in (np.float64, np.int32, "bfloat16"):
        x = hole(n, k, dtype=dtype)
        w = ng.variable([k, o], initial_value=np.arange(67 * 203).reshape(67, 203) % 7 - 3, dtype=dtype)
        planned([ng.dot(x, w)], x)


def test_rows_start_at_vectors():
    c, o = axis(64, "C"), axis(60, "O")
    x = hole(N, c)
    made = planned([ng.dot(x, weights(o, c))], x)
    (packed,) = [b for b in made.buffers if b.storage == "once"]
    assert packed.axes == ("C", "O") and packed.strides == (64, 1)


@pytest.mark.parametrize(("length", "row"), [(100, 112), (1024, 1040), (512, 528), (256, 0), (5, 0), (3072, 3088)])
def test_rows_do_not_fall_onto_each_other(length, row):
    b = Buffer("b", dims_of(("A", "B")), ng.float32, "arena")
    set_row(b, lambda a: length, DEFAULT)
    assert b.row == row


@pytest.mark.parametrize(("n", "rows"), [(64, 56), (128, 14), (784, 128), (650, 20), (2048, 7), (48, 49), (1000, 1)])
@pytest.mark.parametrize("machine", [DEFAULT, *[replace(DEFAULT, vector_bits=bits, vector_registers=16) for bits in (256, 128)]])
def test_panels_divide_and_fit_registers(n, rows, machine):
    w = panel_width(n, rows, machine)
    lanes = machine.lanes32
    assert w % lanes == 0 and w // lanes <= 4
    assert -(-n // w) * w <= 1.2 * -(-n // lanes) * lanes


def test_vectors_lie_along_what_turns_have_enough_of():
    """Of an axis of 256, work items have 8 places: that fills half a vector. One of open length fills them in part, too."""
    c, k = AxisId("C"), AxisId("K")
    factors = [OperandAxes((c,), frozenset({c}), False), OperandAxes((k,), frozenset({k}), False)]
    lengths = {c: 256, k: 512}
    assert vector_of((c, k), factors, None, lengths.__getitem__, lengths.get, 16) == c
    assert vector_of((c, k), factors, None, lengths.__getitem__, lengths.get, 16, {c: 8}) == k
    assert vector_of((c, k), factors, None, lengths.__getitem__, {k: 512}.get, 16) == k


def test_a_copy_of_an_input_is_made_once_and_keeps_its_order():
    """The gradients of a strided convolution: four sums read the same, with other borders, and so do those for its filters."""
    n, c, h, w, k, r, s = (axis(size, a) for size, a in ((2, "N"), (16, "C"), (16, "H"), (16, "W"), (128, "K"), (3, "R"), (3, "S")))
    for order in ((n, c, h, w), (n, h, w, c)):
        x, f = hole(*order), hole(k, c, r, s)
        y = ng.conv(x, f, {h: r, w: s}, stride=2, padding=1)
        dy = hole(*y.axes)
        made = planned([ng.deriv(y, x, dy), ng.deriv(y, f, dy)], x, f, dy, rtol=1e-3, atol=1e-3)
        for given in (made.inputs[0], made.inputs[2]):
            copies = [b for b in made.buffers if b.storage == "arena" and b.border and set(b.axes) == set(given.axes)]
            assert [b.axes for b in copies] == [given.axes]


def test_rows_of_an_input_that_fall_onto_each_other_are_spread():
    k, o, n = axis(1024, "K"), axis(64, "O"), axis(32, "N")
    x = hole(n, k)
    made = planned([ng.dot(x, weights(k, o))], x, rtol=1e-3, atol=1e-3)
    assert [b.row for b in made.buffers if b.storage == "arena" and b.axes == ("N", "K")] == [1040]
    made = planned([ng.dot(x, weights(k, axis(8, "O")))], x, rtol=1e-3, atol=1e-3)  # read too seldom for a copy
    assert not [b for b in made.buffers if b.storage == "arena" and b.axes == ("N", "K")]


def test_rows_of_an_input_of_open_length_are_spread_in_memory():
    k, n = axis(1024, "K"), ng.make_axis(None, name="N")
    x = hole(n, k)
    with ngt.allocate_transformer("direct") as transformer:
        made = plan(transformer.computation(ng.dot(x, weights(k, axis(64, "O"))), x).program)
    (copy,) = [b for b in made.buffers if b.row]
    assert copy.strides is None and strides_of(copy, lambda a: made.axes[a])[-2:] == (1040, 1)


def copies_of(made):
    return [
        s.target for k in made.kernels for stage in k.stages for s in stage.to if type(s.target) is Local or s.target.storage == "arena"
    ]


@pytest.mark.parametrize(
    ("rows", "long", "columns", "copied"),
    [(16, 1000, 300, False), (32, 1024, 256, False), (60, 800, 96, False), (60, 300, 96, True), (256, 512, 256, True)],
)
def test_factors_along_a_long_sum_are_read_as_they_are_where_one_has_few_rows(rows, long, columns, copied):
    """A copy in panels would take as long as the products; with more rows, or a sum that is short for them, it does not."""
    m, k, n = axis(rows, "M"), axis(long, "K"), axis(columns, "P")
    x, y = hole(m, k), hole(n, k)
    assert bool(copies_of(planned([ng.dot(x, y)], x, y, rtol=1e-3, atol=1e-3))) == copied
    assert copies_of(planned([ng.dot(x, ng.exp(y))], x, y, rtol=1e-3, atol=1e-3))  # what is computed is computed once


@pytest.mark.parametrize(("rows", "columns", "copied"), [(100, 300, False), (128, 300, True), (24, 512, False), (32, 512, True)])
def test_vectors_that_are_there_are_copied_only_for_many_rows(rows, columns, copied):
    """Rows lie far apart; where they fall onto each other in the cache, as those of 512 columns, fewer are enough."""
    m, k, n = axis(rows, "M"), axis(200, "K"), axis(columns, "P")
    x, y = hole(m, k), hole(k, n)
    made = planned([ng.dot(x, y)], x, y, rtol=1e-3, atol=1e-3)
    assert any({"K", "P"} == {a for a, *_ in b.dims} for b in copies_of(made)) == copied


@pytest.mark.parametrize(("long", "rows", "turned"), [(20, 256, False), (640, 256, True), (128, 300, False), (640, 300, True)])
def test_rows_whose_terms_fall_out_of_the_first_cache_are_turned_over(long, rows, turned):
    """As in the gradient of weights: rows side by side, the terms of their sum apart. Those of 256 rows fall into few of its sets."""
    k, m, n = axis(long, "K"), axis(rows, "M"), axis(160, "P")
    x, y = hole(k, m), hole(k, n)
    made = planned([ng.contract(x, y, over=[k])], x, y, rtol=1e-3, atol=1e-3)
    assert any(b.axes[-1] == "K" for b in copies_of(made)) == turned


def test_the_result_of_a_short_sum_is_stored_as_it_lies():
    """Vectors along the rows, which are few, would need no copy of what has many columns, and store element by element."""
    n = axis(3072, "P")
    for rows, long, vector in ((64, 64, "P"), (64, 1000, "M")):
        m, k = axis(rows, "M"), axis(long, "K")
        x, y = hole(m, k), hole(n, k)
        copies = copies_of(planned([ng.dot(x, y)], x, y, rtol=1e-3, atol=1e-3))
        assert [vector in b.axes for b in copies] == [True]


@pytest.mark.parametrize("long, turned", [(60, True), (300, False)])
def test_results_of_short_sums_whose_last_axis_fills_no_vector_are_turned_over(long, turned):
    """Vectors lie along the rows then, and each element of the result would be stored by itself; a long sum takes longer than that."""
    i, j, m, n, k = (axis(size, name) for size, name in ((40, "I"), (3, "J"), (30, "M"), (8, "P"), (long, "K")))
    x, y = hole(i, j, k), hole(m, k, n)
    for end in (lambda z: z, lambda z: ng.relu(z + 1.0)):
        z = end(ng.axes_with_order(ng.sum(x * y, reduction_axes=[k]), [m, i, n, j]))
        made = planned([z], x, y, rtol=1e-4, atol=1e-4)
        summed = [s for kernel in made.kernels for s in kernel.stages if s.combine]
        assert [type(t.target) is Local for s in summed for t in s.to] == [turned]


def test_a_matrix_that_is_multiplied_from_both_sides_has_no_copies():
    m, n = axis(300, "M"), axis(400, "P")
    x, a = hole(n), weights(m, n)
    made = planned([ng.dot(ng.tanh(ng.dot(a, x)), a)], x, rtol=1e-3, atol=1e-3)
    assert not [b for b in made.buffers if b.storage == "once"]
    made = planned([ng.dot(a, x)], x, rtol=1e-3, atol=1e-3)
    assert [b for b in made.buffers if b.storage == "once"]


def test_a_factor_is_put_in_the_order_of_the_other_where_that_is_larger():
    """Both steps along the sum would be long ones for one of them."""
    m, k, n = axis(200, "M"), axis(30, "K"), axis(50, "P")
    x, y = hole(n, k), hole(m, k, n)
    made = planned([ng.contract(x, y, over=[n, k])], x, y, rtol=1e-4, atol=1e-4)
    (copy,) = copies_of(made)
    assert copy.axes == ("K", "P")
    x, y = hole(m, n), hole(n, axis(8, "O"))
    made = planned([ng.axes_with_order(ng.contract(x, y, over=[n]), [y.axes[1], m])], x, y, rtol=1e-4, atol=1e-4)
    (copy,) = copies_of(made)
    assert copy.axes == ("O", "P")


def test_a_mask_that_heads_share_is_stored_once_along_the_vectors_of_its_readers():
    h, q, k, c = (ng.make_axis(n, name=a) for n, a in ((8, "H"), (512, "Q"), (512, "K"), (32, "C")))
    x, y, m = ng.placeholder([h, q, c]), ng.placeholder([h, k, c]), ng.placeholder([q, k])
    mask = ng.where(ng.equal(ng.where(m > 0.5, m, 0.0), 0.0), -1e30, 0.0)
    scores = ng.softmax(ng.contract(x, y, over=[c]) + mask, normalization_axes=[k])
    with ngt.allocate_transformer("cpu") as t:
        f = t.computation(ng.contract(scores, y, over=[k]), x, y, m)
        draw = np.random.default_rng(0)
        a, b, given = draw.random((8, 512, 32), "f"), draw.random((8, 512, 32), "f"), draw.random((512, 512), "f")
        s = np.einsum("hqc,hkc->hqk", a, b).astype("d") + np.where(given > 0.5, 0.0, -1e30)
        e = np.exp(s - s.max(2, keepdims=True))
        wanted = np.einsum("hqk,hkc->hqc", e / e.sum(2, keepdims=True), b)
        np.testing.assert_allclose(np.asarray(f(a, b, given)).reshape(-1), wanted.reshape(-1), rtol=2e-4, atol=1e-5)
        plan, schedule = f.plan, f.schedule
    assert plan.count("= where(") == 2 and "lanes indexed" not in schedule


@pytest.mark.parametrize("batch, heads", [(1, 3), (2, 3)])
def test_heads_that_are_joined_are_read_where_they_lie(batch, heads):
    """Attention's result for all heads is the operand of the next product, without a copy of it."""
    n, t, s, head, d, k = [ng.make_axis(size, name=name) for name, size in zip("NTSHDK", (batch, 100, 100, heads, 64, 256), strict=True)]
    share, value = ng.placeholder([n, head, t, s]), ng.placeholder([n, s, head, d])
    joined = ng.flatten(ng.axes_with_order(ng.contract(share, value, over=[s]), [n, t, head, d]), [head, d])
    made = planned([ng.contract(joined, weights(joined.axes[-1], k), over=[joined.axes[-1]])], share, value)
    assert not [s for s in made.steps if isinstance(s, Kernel) and not any(stage.combine for stage in s.stages)]


@pytest.mark.parametrize("kind", ["join", "elem", "reduce"])
def test_a_result_that_an_inner_value_is_copied_to_is_that_value(kind):
    """As a cache of one sequence, which attention reads, and which the call returns with a dim for the sequence."""
    b, h, p, d, k = [ng.make_axis(size, name=name) for name, size in zip("BHPDK", (1, 4, 40, 16, 8), strict=True)]
    past, new, query = ng.placeholder([h, p, d]), ng.placeholder([h, k, d]), ng.placeholder([h, d])
    cache = {
        "join": lambda: ng.concat_along_axis([past, ng.tanh(past)], p),
        "elem": lambda: ng.tanh(past) * 2.0,
        "reduce": lambda: ng.contract(past, new, over=[h]),
    }[kind]()
    along = next(a for a in cache.axes if a.name in "PK")
    scores = ng.softmax(ng.contract(cache, query, over=[d]), along)
    turned = ng.axes_with_order(ng.expand_dims(cache, b, 0), [*cache.axes[::-1], b])
    for shown in (ng.expand_dims(cache, b, 0), turned):
        p_ = program([scores, shown], past, new, query)
        graph = build(p_)
        assert any(_copied(n, graph.known, graph.users.__getitem__) for n in graph.nodes)
        after = drop_result_copies(graph)
        assert len(after.nodes) == len(graph.nodes) - 1 and not any(n.op == "copy" and n.result for n in after.nodes)
        planned([scores, shown], past, new, query)
    both = program([scores, ng.expand_dims(cache, b, 0), turned], past, new, query)
    assert sum(n.op == "copy" and n.result for n in drop_result_copies(build(both)).nodes) == 1
    planned([scores, ng.expand_dims(cache, b, 0), turned], past, new, query)


def test_two_results_in_other_orders_are_not_stored_element_by_element():
    n, c, d = [ng.make_axis(size, name=name) for name, size in zip("NCD", (120, 64, 48), strict=True)]
    x = ng.placeholder([n, c, d])
    made = planned([x * 2.0, ng.axes_with_order(x * 3.0, [n, d, c])], x)
    shown = schedule_text(schedule_plan(made, DEFAULT), origins=False)
    assert "lanes indexed" not in shown and "lanes transposed" in shown

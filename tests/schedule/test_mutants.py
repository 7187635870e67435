"""Mistakes in a schedule: each is caught by `verify` or `interpret` alone."""

from dataclasses import replace

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ProgramError
from ngraph.op_graph.expr import Len
from ngraph.plan.kernels import Local
from ngraph.plan.planner import plan
from ngraph.schedule import interpret as interpreter
from ngraph.schedule.cpu import schedule_plan
from ngraph.schedule.form import Place, PrefetchAhead
from ngraph.schedule.interpret import interpret
from ngraph.schedule.search import Segment, open_segments, segments
from ngraph.schedule.verify import verify
from ngraph.targets import TARGETS


def made(rows=37):
    """Softmax of relu(x · w) over so many rows, scheduled, with arguments and what it gives."""
    n, c, k = ng.make_axis(rows, name="N"), ng.make_axis(70, name="C"), ng.make_axis(53, name="K")
    x, w = ng.placeholder([n, c]), ng.placeholder([c - 1, k])
    y = ng.softmax(ng.maximum(ng.dot(w, x), 0), normalization_axes=[k])
    f = ngt.make_transformer_factory("cpu")().computation(ng.axes_with_order(y, [n, k]), x, w)
    draw = np.random.default_rng(0)
    given = [draw.standard_normal(s).astype(np.float32) for s in ((rows, 70), (70, 53))]
    z = np.maximum(given[0].astype(float) @ given[1], 0)
    e = np.exp(z - z.max(1, keepdims=True))
    return schedule_plan(f.native.chosen.plan, TARGETS["x86-64-v4"]), given, e / e.sum(1, keepdims=True)


def stages(scheduled):
    return [s for k in scheduled.kernels.values() for v in k.versions for s in v.stages]


def first_with(scheduled, test):
    return next(s for s in stages(scheduled) if test(s))


def runs_right(scheduled, given, wanted):
    (got,), _ = interpret(scheduled, given)
    return np.allclose(got, wanted, rtol=1e-4, atol=1e-5)


def a_loop_is_missing(s):
    stage = first_with(s, lambda s: len(s.tile.order) > 1)
    stage.tile = stage.tile._replace(order=stage.tile.order[1:])


def a_sum_runs_outside(s):
    stage = first_with(s, lambda s: s.sums)
    stage.sums = ()


def lanes_that_no_target_has(s):
    stage = first_with(s, lambda s: s.tile.vector is not None)
    stage.tile = stage.tile._replace(lanes=12)


def rows_are_columns(s):
    stage = first_with(s, lambda s: s.tile.tile is not None)
    stage.tile = stage.tile._replace(across=stage.tile.tile)


def contiguous_lanes_lie_apart(s):
    stage = first_with(s, lambda s: any(a.mode == "contiguous" for a in s.accesses))
    a = next(a for a in stage.accesses if a.mode == "contiguous")
    a.coef[stage.tile.vector] = 2


def an_unknown_prefetch(s):
    stages(s)[0].accesses[0].prefetch = PrefetchAhead("soon", 1)


def an_address_one_too_far(s):
    stage = first_with(s, lambda s: any(type(a.source) is not Local for a in s.stores))
    next(a for a in stage.stores if type(a.source) is not Local).const += 1


def strides_are_swapped(s):
    kernel = next(k for k in s.kernels.values() if any(len(v) == 2 for v in k.strides.values()))
    b = next(b for b, v in kernel.strides.items() if len(v) == 2)
    kernel.strides = {**kernel.strides, b: kernel.strides[b][::-1]}


def locals_share_a_place(s):
    kernel = next(k for k in s.kernels.values() if len(k.places) > 1)
    kernel.places = {b: Place("scratch", p.elements, 0) for b, p in kernel.places.items()}
    kernel.scratch = 1 << 20


def scratch_is_too_short(s):
    kernel = next(k for k in s.kernels.values() if k.places)
    kernel.places = {b: Place("scratch", p.elements, 64) for b, p in kernel.places.items()}
    kernel.scratch = 64


def work_items_store_in_one_place(s):
    stage = first_with(s, lambda s: any(a.base for a in s.stores if type(a.source) is not Local))
    next(a for a in stage.stores if a.base and type(a.source) is not Local).base = ()


def a_digit_is_lost(s):
    stage = first_with(s, lambda s: s.free)
    d = stage.free[0]
    a, unit, n = d.parts[0]
    other = replace(d, parts=((a, unit, n - 1), *d.parts[1:]), extent=d.extent - 1)
    stage.free = (other, *stage.free[1:])
    stage.tile = stage.tile._replace(order=tuple([other if x is d else x for x in stage.tile.order]))


VERIFIED = [
    a_loop_is_missing,
    a_sum_runs_outside,
    lanes_that_no_target_has,
    rows_are_columns,
    contiguous_lanes_lie_apart,
    an_unknown_prefetch,
    an_address_one_too_far,
    strides_are_swapped,
    locals_share_a_place,
    scratch_is_too_short,
    a_digit_is_lost,
]


def test_without_a_mistake_all_is_well():
    scheduled, given, wanted = made()
    verify(scheduled)
    assert runs_right(scheduled, given, wanted)


@pytest.mark.parametrize("mistake", VERIFIED)
def test_verify_alone_catches_it(mistake):
    scheduled, _, _ = made()
    mistake(scheduled)
    with pytest.raises(ProgramError):
        verify(scheduled)


def opened():
    """A product of matrices all of whose lengths are open, scheduled with vectors along its columns and with rows."""
    n, c, k = (ng.make_axis(None, name=name) for name in "NCK")
    x, w = ng.placeholder([n, c]), ng.placeholder([c, k])
    f = ngt.make_transformer_factory("direct")().computation(ng.axes_with_order(ng.dot(x, w), [n, k]), x, w)
    return schedule_plan(plan(f.program), TARGETS["x86-64-v4"])


def tiled(s):
    return first_with(s, lambda s: s.tile.vector is not None and s.tile.tile is not None)


def with_extent(stage, d, extent):
    """Gives a loop of a stage other places."""
    other = replace(d, parts=tuple([(a, unit, extent) for a, unit, _ in d.parts]), extent=extent, most=extent)
    stage.free = tuple([other if x is d else x for x in stage.free])
    order = tuple([other if x is d else x for x in stage.tile.order])
    stage.tile = stage.tile._replace(order=order, **{f: other for f in ("vector", "tile", "across") if getattr(stage.tile, f) is d})


def a_vector_is_taken_for_the_only_one(s):
    stage = tiled(s)
    with_extent(stage, stage.tile.vector, stage.tile.lanes)


def rows_behind_whole_tiles_are_left_out(s):
    stage = tiled(s)
    rows = stage.tile.tile
    with_extent(stage, rows, rows.extent // stage.tile.rows * stage.tile.rows)


def columns_beside_a_vector_are_its_own_loop(s):
    stage = tiled(s)
    stage.chosen = stage.chosen._replace(second=stage.chosen.vector)


def a_vector_runs_for_each_of_its_columns(s):
    stage = tiled(s)
    stage.tile = stage.tile._replace(order=(stage.tile.vector, *stage.tile.order))


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (a_vector_is_taken_for_the_only_one, "and 1 places may come"),
        (rows_behind_whole_tiles_are_left_out, "and 1 places may come"),
        (columns_beside_a_vector_are_its_own_loop, "is the vector and the columns beside it"),
        (a_vector_runs_for_each_of_its_columns, "the free loops .* run as"),
    ],
)
def test_verify_alone_catches_what_leaves_out_places_of_open_lengths(mistake, message):
    scheduled = opened()
    verify(scheduled)
    mistake(scheduled)
    with pytest.raises(ProgramError, match=message):
        verify(scheduled)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda *given: [x._replace(left=None) for x in open_segments(*given)],  # a row too many is stored
        lambda *given: [x for x in open_segments(*given) if x.left is None],  # cut rows and vectors do not run
        lambda *given: [x._replace(left=x.left and max(x.left - 1, 1)) for x in open_segments(*given)],
    ],
)
def test_a_wrong_tail_of_open_rows_is_caught(monkeypatch, wrong):
    scheduled = opened()
    a, b = (np.random.default_rng(3).standard_normal(shape).astype(np.float32) for shape in ((7, 5), (5, 19)))
    lengths = dict(zip([a for a in scheduled.plan.axes if scheduled.plan.axes[a] == Len(a)], (7, 5, 19), strict=True))
    (got,), _ = interpret(scheduled, [a, b], lengths=lengths)
    np.testing.assert_allclose(got, a @ b, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(interpreter, "open_segments", wrong)
    try:
        (got,), _ = interpret(scheduled, [a, b], lengths=lengths)
    except ProgramError:
        return
    assert not np.allclose(got, a @ b, rtol=1e-4, atol=1e-5)


def test_verify_catches_work_items_that_store_in_one_place():
    scheduled, _, _ = made(2000)
    verify(scheduled)
    work_items_store_in_one_place(scheduled)
    with pytest.raises(ProgramError, match="all work items along"):
        verify(scheduled)


def a_coefficient_of_a_read(s):
    stage = first_with(s, lambda s: s.sums and s.reads)
    a = next(a for a in stage.reads.values() if stage.sums[-1] in a.coef)
    a.coef[stage.sums[-1]] += 1


def a_read_of_what_nobody_stored(s):
    stage = next(s for s in reversed(stages(s)) if any(type(a.source) is Local for a in s.reads.values()))
    next(a for a in stage.reads.values() if type(a.source) is Local).const += 1


@pytest.mark.parametrize("mistake", [a_coefficient_of_a_read, a_read_of_what_nobody_stored])
def test_interpret_alone_catches_it(mistake):
    scheduled, given, wanted = made()
    mistake(scheduled)
    try:
        with np.errstate(all="ignore"):
            right = runs_right(scheduled, given, wanted)
    except ProgramError:
        return
    assert not right


def test_interpret_catches_a_stage_that_runs_too_seldom():
    scheduled, given, wanted = made(700)
    kernel = next(k for k in scheduled.kernels.values() if len(k.kernel.loops) and len(k.kernel.stages) > 1)
    for version in kernel.versions:
        for stage in version.stages[:-1]:
            stage.stage = replace(stage.stage, depth=0)
    try:
        right = runs_right(scheduled, given, wanted)
    except ProgramError:
        return
    assert not right


@pytest.mark.parametrize(
    "wrong",
    [
        lambda n, unit, units: [x._replace(left=None) for x in segments(n, unit, units)],  # the tail is not cut
        lambda n, unit, units: [x for x in segments(n, unit, units) if x.left is None],  # it does not run
        lambda n, unit, units: [Segment(x.first, x.last, x.units, x.left and x.left - 1) for x in segments(n, unit, units)],
    ],
)
def test_a_wrong_tail_is_caught(monkeypatch, wrong):
    scheduled, given, wanted = made()
    monkeypatch.setattr(interpreter, "segments", wrong)
    try:
        right = runs_right(scheduled, given, wanted)
    except ProgramError:
        return
    assert not right

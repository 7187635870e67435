"""Schedules for processors: random plans print, parse back, are lawful, and run as NumPy says."""

import re
from dataclasses import replace

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ParseError
from ngraph.op_graph.expr import Idx
from ngraph.ops.moving import read
from ngraph.plan.planner import plan
from ngraph.plan.text import arrays
from ngraph.schedule import cpu
from ngraph.schedule.cpu import schedule_kernel, schedule_plan
from ngraph.schedule.form import ScheduledPlan
from ngraph.schedule.interpret import interpret
from ngraph.schedule.search import _units_used, alternatives, open_segments, remainders, segments
from ngraph.schedule.text import parse, text
from ngraph.schedule.verify import verify
from ngraph.targets import TARGETS, host
from ngraph.targets.products import AVX512_BF16
from ngraph.tools.explain import stages


@pytest.mark.parametrize("seed", range(160))
def test_a_random_plan_runs_in_the_order_of_its_schedule(cases, seed):
    case = cases(seed)
    if case is None:
        return  # the seed draws no plan
    scheduled = verify(schedule_plan(case.plan, case.target))
    with np.errstate(all="ignore"):
        assert case.differs(*interpret(scheduled, case.inputs, case.state, case.lengths)) is None


@pytest.mark.parametrize("seed", range(160, 220))
def test_what_is_parsed_runs_alike(cases, seed):
    case = cases(seed)
    if case is None:
        return
    scheduled = schedule_plan(case.plan, case.target)
    shown = text(scheduled)
    back = verify(parse(shown, {case.target.name: case.target}, arrays(case.plan)))
    assert text(back) == shown
    with np.errstate(all="ignore"):
        assert case.differs(*interpret(back, case.inputs, case.state, case.lengths)) is None


@pytest.mark.parametrize("seed", range(220, 250))
def test_every_alternative_gives_the_same(cases, seed):
    case = cases(seed)
    if case is None:
        return
    first = schedule_plan(case.plan, case.target)
    views = dict.fromkeys([view for k in first.kernels.values() for view in k.searched])
    for rank in (1, 2, 5):
        picks = {view: found[rank] for view in views if len(found := alternatives(view, case.target, 6)) > rank}
        other = schedule_plan(case.plan, case.target, lambda *a, picks=picks: schedule_kernel(*a, picks))
        with np.errstate(all="ignore"):
            assert case.differs(*interpret(verify(other), case.inputs, case.state, case.lengths)) is None


@pytest.mark.parametrize("seed", range(250, 310))
def test_short_code_gives_the_same(cases, seed, monkeypatch):
    """As all kernels have that take little of their plan's time."""
    monkeypatch.setattr(cpu, "MIN_FULL_SHARE", 1e4)
    case = cases(seed)
    if case is None:
        return
    scheduled = schedule_plan(case.plan, case.target)
    shown = text(verify(scheduled))
    back = verify(parse(shown, {case.target.name: case.target}, arrays(case.plan)))
    assert text(back) == shown
    with np.errstate(all="ignore"):
        assert case.differs(*interpret(scheduled, case.inputs, case.state, case.lengths)) is None


def test_a_kernel_that_takes_little_time_is_written_short():
    """Its tile is smaller than that of the same kernel alone, and its last, shorter block runs the same code."""
    n, c, k = ng.make_axis(150, name="N"), ng.make_axis(40, name="C"), ng.make_axis(120, name="K")
    m, d = ng.make_axis(1500, name="M"), ng.make_axis(1500, name="D")
    x, w = ng.placeholder([n, c]).named("x"), ng.placeholder([c - 1, k]).named("w")
    a = ng.placeholder([m, d]).named("a")

    def stages_of(*results):
        f = ngt.make_transformer_factory("cpu")().computation([ng.exp(ng.dot(w, x)), *results], x, w, *[a] * len(results))
        made = schedule_plan(plan(f.program, machine=TARGETS["x86-64-v4"]), TARGETS["x86-64-v4"])
        return [v.stages[0] for k in made.kernels.values() for v in k.versions if any(d.extent == 40 for d in v.stages[0].reduced)]

    alone, beside = stages_of(), stages_of(ng.exp(ng.dot(a, ng.cast_axes(a, [d - 1, m]))))
    assert beside[0].tile.rows * beside[0].tile.columns < alone[0].tile.rows * alone[0].tile.columns
    assert len(beside) == 1


def model(target="x86-64-v4"):
    """The kernels of relu(x · w + b), and its plan's text as loop nests."""
    n, c, k = ng.make_axis(33, name="N"), ng.make_axis(70, name="C"), ng.make_axis(50, name="K")
    x, w, b = ng.placeholder([n, c]).named("x"), ng.placeholder([c - 1, k]).named("w"), ng.placeholder([k]).named("b")
    f = ngt.make_transformer_factory("cpu")().computation(ng.maximum(ng.dot(w, x) + b, 0), x, w, b)
    return schedule_plan(plan(f.program, machine=TARGETS[target]), TARGETS[target])


def test_the_nest_of_a_product_reads_as_one():
    shown = text(model())
    assert re.search(
        r"for N = 33 vector 16 columns \d\n +for K = 50 rows \d+\n +sum C' = 70 steps \d listed\n +%0 : float32 = read", shown
    ), shown
    assert re.search(r"= combine add\(%2\)\n    .*\n +%7 : float32 = maximum.*\n +store %7 in .* lanes contiguous", shown, re.S), shown


@pytest.mark.parametrize("k, versions", [(480, 1), (496, 1), (484, 2)])
def test_a_last_block_of_whole_vectors_runs_the_loops_of_the_others(k, versions):
    n, c, o = ng.make_axis(40, name="N"), ng.make_axis(96, name="C"), ng.make_axis(k, name="K")
    x, w = ng.placeholder([n, c]).named("x"), ng.variable([c - 1, o], initial_value=0.5)
    f = ngt.make_transformer_factory("cpu")().computation(ng.maximum(ng.dot(w, x), 0), x)
    scheduled = schedule_plan(plan(f.program, machine=TARGETS["x86-64-v4"]), TARGETS["x86-64-v4"])
    kernel = next(s for s in scheduled.kernels.values() if any(stage.stage.combine for stage in s.versions[0].stages))
    lengths = {a: scheduled.plan.length(a) for a, _ in kernel.kernel.loops}
    assert [a for a, block in kernel.kernel.loops if lengths[a] == k and k % block], kernel.kernel.loops  # its last block is shorter
    assert len(kernel.versions) == versions
    given = np.random.default_rng(0).standard_normal((40, 96)).astype(np.float32)
    assert np.allclose(f(given), np.maximum(given @ np.full((96, k), 0.5, np.float32), 0).T, atol=1e-4)
    shown = text(scheduled)
    assert text(verify(parse(shown, {"x86-64-v4": TARGETS["x86-64-v4"]}, arrays(scheduled.plan)))) == shown


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("units", [1, 2, 3, 4, 5, 6, 8, 10, 12, 13, 16, 22, 24])
def test_steps_of_an_open_loop_do_every_place_once(units, rows):
    for multiple in (1, 2, 3, 4, 6, 8, 12):
        steps = remainders(units, rows, multiple)
        assert steps[0].units == units and all(a.units > b.units for a, b in zip(steps, steps[1:], strict=False))
        for n in range(3 * units + 9):
            done = [i for first, last, size, left in open_segments(n, 1, units, rows) for i in range(first, last)]
            assert done == list(range(n))
            if n % multiple == 0:  # the steps that are left out would have found nothing
                left = n
                for size, least in steps:
                    left -= min((left + size - least) // size * size, left)
                assert left == 0, (n, multiple, steps)


def test_the_price_of_what_is_left_counts_every_iteration():
    """Behind whole tiles of 11 rows, 10 are three iterations of 4, the last of two rows: each takes half the time of a whole tile."""
    for units in (5, 8, 11, 13, 16):
        for block in (None, 8, 32, 64):
            assert _units_used(units, 1, 0.0, 64, False, block) == pytest.approx(units)
            assert _units_used(units, 1, 0.5, 64, True, block) < units
    assert _units_used(4, 8, 0.2, 64**4, False, None) == pytest.approx(4, rel=1e-3)  # of a product of assumed lengths
    assert _units_used(8, 1, 0.5, 64, True, 32) > _units_used(11, 1, 8 / 22, 64, True, 32) * 8 / 11 * 1.04


@pytest.mark.parametrize("rows", [None, 3, 17])
@pytest.mark.parametrize("outer, middle, inner", [(4, 32, 16), (3, 5, 7), (2, 40, 3), (5, 16, 1)])
def test_a_read_by_digits_of_an_axis_has_a_loop_for_each(rows, outer, middle, inner):
    n, a, b, c = [ng.make_axis(size, name=name) for name, size in zip("NABC", (rows, outer, middle, inner), strict=True)]
    flat = ng.make_axis(outer * middle * inner, name="F")
    x = ng.placeholder([n, b, c, a])
    index = {a: Idx(flat) // (middle * inner), b: Idx(flat) // inner % middle, c: Idx(flat) % inner if inner > 1 else 0}
    y = read(x, [n, flat], index)
    f = ngt.make_transformer_factory("cpu")().computation([ng.tanh(y), ng.sum(y, flat)], x)
    for length in (rows,) if rows else (1, 2, 19):
        given = np.random.default_rng(length).standard_normal((length, middle, inner, outer)).astype("f")
        expected = given.astype("d").transpose(0, 3, 1, 2).reshape(length, -1)
        assert np.allclose(f(given)[0], np.tanh(expected), atol=1e-6) and np.allclose(f(given)[1], expected.sum(1), atol=1e-4)


def test_a_flattened_transposition_moves_vectors():
    r, b, c, flat = [ng.make_axis(size, name=name) for name, size in zip("RBCF", (64, 32, 16, 512), strict=True)]
    x = ng.placeholder([r, b, c])
    f = ngt.make_transformer_factory("cpu")().computation(read(x, [r, flat], {b: Idx(flat) % 32, c: Idx(flat) // 32}), x)
    shown = text(schedule_plan(plan(f.program, machine=TARGETS["x86-64-v4"]), TARGETS["x86-64-v4"]), origins=False)
    assert "for F // 32 = 16" in shown and "lanes transposed" in shown and "lanes indexed" not in shown


def test_pairs_of_elements_are_transposed_in_registers():
    """As those of a factor in bfloat16, whose rows lie along the sum."""
    n, c, k = [ng.make_axis(size, name=name) for name, size in zip("NCK", (150, 512, 256), strict=True)]
    x, w = ng.placeholder([n, c]), ng.placeholder([k, c])
    y = ng.contract(ng.cast(x, "bfloat16"), ng.cast(w, "bfloat16"), over=c)
    plain = TARGETS["x86-64-v4"]
    machine = replace(plain, products=(*plain.products, AVX512_BF16))
    f = ngt.make_transformer_factory("cpu")().computation(y, x, w)
    shown = text(schedule_plan(plan(f.program, machine=machine), machine), origins=False)
    assert "pack2" in shown and "lanes transposed" in shown and "lanes indexed" not in shown


def test_a_computation_shows_its_schedule():
    a = ng.make_axis(40, name="A")
    x = ng.placeholder([a])
    f = ngt.make_transformer_factory("cpu")().computation(ng.sum(x * x), x)
    assert "sum A = 40" in f.schedule
    names = [s.name for s in stages(f)]
    assert names.index("plan") < names.index("schedule") < names.index("llvm")


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("for K = 50", "for K = 51", r"no such loop left; it has .*K = 50"),
        ("for K = 50", "for C = 50", r"no such loop left"),
        ("lanes contiguous", "lanes reversed", r"lanes of the kernel's accesses are"),
        (" vector 16", " vektor 16", r"the end of the line|is expected"),
        ("for x86-64-v4", "for pdp11", r"a target is expected, one of x86-64"),
        ("  for N = ", "  sum N = ", r"no such loop left"),
    ],
)
def test_a_text_that_fits_no_kernel_is_refused(old, new, message):
    shown = text(model())
    assert old in shown
    with pytest.raises(ParseError, match=message):
        parse(shown.replace(old, new, 1), TARGETS)


def test_a_schedule_changed_in_its_text_runs():
    scheduled = model()
    shown = text(scheduled)
    changed = re.sub(r"rows \d+", "rows 3", re.sub(r"columns \d+", "columns 1", shown))
    assert changed != shown
    draw = np.random.default_rng(0)
    inputs = [draw.standard_normal(s).astype(np.float32) for s in ((33, 70), (70, 50), (50,))]
    (got,), _ = interpret(verify(parse(changed, TARGETS)), inputs)
    wanted = np.maximum(inputs[0] @ inputs[1] + inputs[2], 0)
    np.testing.assert_allclose(got if got.shape == wanted.shape else got.T, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [0, 1, 2, 5, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127])
@pytest.mark.parametrize("unit, units", [(1, 1), (1, 6), (16, 1), (16, 3), (8, 4)])
def test_segments_cover_every_place_once(n, unit, units):
    seen = []
    for first, last, size, left in segments(n, unit, units):
        assert 1 <= size <= units
        for i in range(first, last, unit * size):
            end = i + (size - 1) * unit + (unit if left is None else left)
            seen += range(i, end)
    assert seen == list(range(n))


def test_a_kernel_of_an_open_length_is_scheduled():
    n = ng.make_axis(name="N")
    x = ng.placeholder([n])
    f = ngt.make_transformer_factory("cpu")().computation(ng.sum(x * x, out_axes=()), x)
    chosen = f.native.chosen.plan
    scheduled = verify(schedule_plan(chosen, host()))
    assert isinstance(scheduled, ScheduledPlan)
    given = np.arange(77, dtype=np.float32)
    (got,), _ = interpret(scheduled, [given])
    assert got == np.sum(given * given)
    assert all(schedule_kernel(chosen, k, host()).versions for k in scheduled.kernels)


@pytest.mark.parametrize("open_", ["M", "K", "N", "MKN"])
def test_a_product_of_open_lengths_runs_in_the_order_of_its_schedule(open_):
    """Tiles with what is left of them, and packed panels whose last one is shorter."""
    M, K, N = (ng.make_axis(None if a in open_ else 40, name=a) for a in "MKN")
    x, w = ng.placeholder([M, K]), ng.placeholder([N, K])
    f = ngt.make_transformer_factory("cpu")().computation(ng.axes_with_order(ng.dot(x, w), [M, N]), x, w)
    scheduled = verify(schedule_plan(f.native.code((None,) * len(f.native.symbols)).plan, TARGETS["x86-64-v3"]))
    draw = np.random.default_rng(0)
    for length in (0, 1, 3, 13, 33, 65, 70):
        m, k, n = (length if a in open_ else 40 for a in "MKN")
        a, b = draw.standard_normal((m, k), np.float32), draw.standard_normal((n, k), np.float32)
        lengths = dict.fromkeys(f.native.symbols, length)
        (got,), _ = interpret(scheduled, [a, b], lengths=lengths)
        np.testing.assert_allclose(got, a @ b.T, rtol=1e-4, atol=1e-4)

"""What makes kernels fast, seen in their text: no register goes to the stack, tiles, loops that become one, shuffles for gathers."""

import re
from dataclasses import replace

import numpy as np
import plans
import pytest
from kernels import RUNNABLE
from plan_programs import arrays_for, axis, hole, oracle, program

import ngraph as ng
from ngraph.codegen.kernel import emit
from ngraph.op_graph.expr import Idx
from ngraph.ops.rearrange import reindex
from ngraph.plan.kernels import Kernel
from ngraph.plan.packing import panel_width
from ngraph.plan.planner import plan
from ngraph.runtime.host import jit
from ngraph.schedule.search import AccessDescriptor, View, schedule, split
from ngraph.targets import DEFAULT, TARGETS, host
from ngraph.tensors import winograd

V4, V3 = TARGETS["x86-64-v4"], TARGETS["x86-64-v3"]


def codes(results, holes, target=V4):
    made = plan(program(results, *holes))
    return [emit(made, k, target) for k in made.every if isinstance(k, Kernel)]


def spills(code, target):
    """Vectors that go to the stack, in kernels that keep nothing else there."""
    return re.findall(r"[yz]mm\d+, [-\d]*\(%rsp\S*\)", jit.compile_assembly(code.text, target))


def contraction(m, n, k):
    i, j, r = axis(m, "I"), axis(n, "J"), axis(k, "R")
    x, w, b = hole(i, r), hole(r, j), hole(j)
    return [ng.relu(ng.dot(x, w) + b)], [x, w, b]


def convolution(c, k, size, window, stride):
    n, ci, ko, h, w, r, s = (axis(m, a) for m, a in ((2, "N"), (c, "C"), (k, "K"), (size, "H"), (size, "W"), (window, "R"), (window, "S")))
    x, f = hole(n, ci, h, w), hole(ko, ci, r, s)
    return [ng.relu(ng.conv(x, f, {h: r, w: s}, stride=stride, padding=window // 2))], [x, f]


MAIN = {
    "gemm": lambda: contraction(128, 768, 768),
    "uneven gemm": lambda: contraction(101, 300, 1203),
    "conv 3x3": lambda: convolution(64, 64, 28, 3, 1),
    "conv 1x1": lambda: convolution(64, 128, 14, 1, 1),
    "conv 3x3 stride 2": lambda: convolution(64, 64, 28, 3, 2),
}


@pytest.mark.parametrize("target", [V3, V4], ids=lambda t: t.name)
@pytest.mark.parametrize("make", MAIN.values(), ids=list(MAIN))
def test_sums_stay_in_registers(make, target, monkeypatch):
    monkeypatch.setattr(winograd, "MAX_WINOGRAD_TIME", 0)  # convolutions are the sums that they are written as
    every = codes(*make(), target)
    assert any("fma" in c.text for c in every)
    for c in every:
        masks = 0 if target.mask_registers else 1  # that of the last columns is a vector there
        assert "alloca" not in c.text and len(spills(c, target)) <= masks


@pytest.mark.parametrize("terms", [646, 650, 651, 653])
def test_they_do_for_any_number_of_terms(terms):
    for c in codes(*contraction(140, 512, terms)):
        assert len(spills(c, V4)) <= 2  # between its loops, if at all


def test_sums_over_outer_axes_run_side_by_side():
    n, h, c = axis(64, "N"), axis(100, "H"), axis(16, "C")
    x = hole(n, h, c)
    texts = [code.text for code in codes([ng.sum(x, out_axes=[c])], [x])]
    assert any(t.count("phi <16 x float>") == 4 for t in texts) and not any("gather" in t for t in texts)


def test_a_product_with_one_vector_reads_long_pieces():
    i, j, r = axis(1, "I"), axis(4096, "J"), axis(1024, "R")
    x, w = hole(i, r), hole(r, j)
    (code,) = codes([ng.dot(x, w)], [x, w])
    assert code.text.count("phi <16 x float>") >= 16  # vectors of w side by side


def test_a_contraction_has_a_tile_of_sums():
    (code,) = codes(*contraction(128, 768, 768))[-1:]
    assert code.text.count("phi <16 x float>") >= 16


def test_loops_that_memory_walks_as_one_are_one():
    x = hole(*[axis(n, a) for n, a in ((4, "N"), (8, "C"), (6, "H"), (10, "W"))])
    (code,) = codes([x + 1.0], [x])
    assert code.text.count("phi i64") <= 2  # work items and one loop inside


def test_strided_reads_are_shuffles():
    n, h, w = axis(8, "N"), axis(64, "H"), axis(64, "W")
    x = hole(n, h, w)
    every = codes([ng.max_pool(x, {h: 2, w: 2})], [x])
    assert not any("gather" in c.text for c in every) and any("shufflevector" in c.text for c in every)


@pytest.mark.parametrize("size, window, stride, pad", [(112, 3, 2, 1), (56, 2, 2, 0), (57, 3, 2, 1), (57, 3, 3, 0), (56, 3, 1, 1)])
def test_gradients_of_pooling_gather_and_scatter_nothing(size, window, stride, pad):
    """Strided reads with predicates are shuffles of whole vectors, and what goes between each other is stored as whole vectors."""
    n, c, h, w = axis(2, "N"), axis(4, "C"), axis(size, "H"), axis(size, "W")
    x = hole(n, c, h, w)
    for pool in (ng.max_pool, ng.avg_pool):
        y = pool(x, {h: window, w: window}, stride=stride, padding=pad)
        dy = hole(*y.axes)
        made = plan(program([ng.deriv(y, x, dy)], x, dy))
        for kernel in made.kernels:  # what fills borders, of one column, is no part of these
            assert "gather" not in (text := emit(made, kernel, V4).text) and "scatter" not in text


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int8, np.bool_, np.float16, np.int64])
@pytest.mark.parametrize("length, step", [(16, 2), (37, 2), (41, 3), (50, 4), (7, 3), (130, 2), (33, 4), (2, 2), (64, 4)])
def test_values_that_are_stored_between_each_other_are_the_same(length, step, kind):
    """Each element k times, minus what is there; also where the last one is not there so often."""
    i, short, long = axis(9, "I"), axis(-(-length // step), "J"), axis(length, "K")
    x, y = hole(i, short, dtype=kind), hole(i, long, dtype=kind)
    repeated = reindex.build(x, axes=ng.make_axes([i, long]), index=((i, Idx(i)), (short, Idx(long) // step)), predicate=(), pad_value=0)
    draw = np.random.default_rng(length)
    a, b = (draw.integers(0, 2 if kind is np.bool_ else 100, (9, n)).astype(kind) for n in (len(short), length))
    made = plan(program([ng.maximum(repeated, y)], x, y))
    assert len(made.kernels[0].stages[0].to) == min(step, length)
    for target in (host(), *RUNNABLE):
        (got,), _ = plans.run(made, [a, b], target=target)
        assert np.array_equal(got, np.maximum(np.repeat(a, step, axis=1)[:, :length], b))


def test_rows_that_are_not_there_are_zeros_from_elsewhere():
    """A masked load of a row before an array, where no page is, takes a hundred times as long as one of zeros."""
    h, w, c = axis(32, "H"), axis(32, "W"), axis(32, "C")
    x = hole(h, w, c)
    rows = ng.pad(x, [(1, 1), (0, 0), (0, 0)])
    (code,) = codes([rows[:32] + rows[1:33] + rows[2:]], [x])
    assert "masked" not in code.text and "ptr @table0" in code.text


def test_what_changes_sides_is_turned_over_in_registers():
    i, j = axis(96, "I"), axis(80, "J")
    x = hole(i, j)
    every = codes([ng.axes_with_order(x, [j, i]) + 1.0], [x])
    assert not any("gather" in c.text or "scatter" in c.text for c in every) and any("shufflevector" in c.text for c in every)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int8, np.bool_, np.float16])
@pytest.mark.parametrize("rows, columns", [(16, 16), (37, 41), (5, 100), (100, 5), (33, 2), (1, 40), (40, 17)])
def test_turned_over_values_are_the_same(rows, columns, kind):
    i, j, k = axis(rows, "I"), axis(columns, "J"), axis(3, "K")
    draw = np.random.default_rng(0)
    for order in ([j, i, k], [k, j, i], [j, k, i]):
        x, y = hole(i, k, j, dtype=kind), hole(*order, dtype=kind)
        a = draw.integers(0, 2 if kind is np.bool_ else 100, (rows, 3, columns)).astype(kind)
        b = draw.integers(0, 2 if kind is np.bool_ else 27, [len(n) for n in order]).astype(kind)
        made = plan(program([ng.axes_with_order(ng.maximum(x, y), order)], x, y))
        turned = a.transpose([(i, k, j).index(n) for n in order])
        for target in (host(), *RUNNABLE):
            assert np.array_equal(plans.run(made, [a, b], target=target)[0][0], np.maximum(turned, b))


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int8, np.bool_, np.float16])
@pytest.mark.parametrize("length", [64, 37, 16, 5, 1])
def test_what_stands_the_other_way_round_is_read_in_vectors(length, kind):
    i, j = axis(9, "I"), axis(length, "J")
    x = hole(i, j, dtype=kind)
    if length > 16:
        assert not any("gather" in c.text for c in codes([ng.flip(x, j)], [x]))
    a = np.random.default_rng(length).integers(0, 2 if kind is np.bool_ else 100, (9, length)).astype(kind)
    made = plan(program([ng.pad(ng.flip(x, j), [(0, 0), (2, 3)])], x))
    for target in (host(), *RUNNABLE):
        (got,), _ = plans.run(made, [a], target=target)
        assert np.array_equal(got, np.pad(a[:, ::-1], [(0, 0), (2, 3)]))


@pytest.mark.parametrize("shape", [(8, 64), (3, 50), (130,), (5, 6, 12), (2, 132), (7, 3)])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_words_of_a_block_of_random_bits_are_made_together(shape, kind):
    """Where rows begin with a block; and elsewhere the words are the same."""
    axes = [axis(n, f"A{k}") for k, n in enumerate(shape)]
    drawn = program([ng.uniform(axes=axes, dtype=kind), ng.normal(axes=axes, dtype=kind)])
    _, state = arrays_for(drawn)
    state = {name: np.abs(value) for name, value in state.items()}
    wanted, after = oracle.interpret(drawn, [], dict(state))
    made = plan(drawn)
    for target in (host(), *RUNNABLE):
        got, now = plans.run(made, [], state, target=target)
        assert np.array_equal(got[0], wanted[0])
        np.testing.assert_allclose(got[1], wanted[1], rtol=1e-5, atol=1e-6)
        assert all(np.array_equal(now[name], after[name]) for name in after)
    if shape == (8, 64) and kind is np.float32:
        (code,) = codes([ng.uniform(axes=axes)], [])[:1]
        assert code.text.count(" = mul ") < 50  # ten rounds of two products, once


@pytest.mark.parametrize("source", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_floats_become_integers_in_vectors(source, kind):
    """Too large ones become the last integer there is, NaN becomes 0."""
    edges = [0.5, 127, 128, 255, 256, 32767.5, 65535.9, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2.0**63, 2.0**64, 1e30, np.inf]
    with np.errstate(all="ignore"):
        x = np.array([np.nan, 0.0, *edges, *[-e for e in edges]] * 3).astype(source)
    p = hole(axis(len(x), "I"), dtype=source)
    made = plan(program([ng.cast(p, kind)], p))
    low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    wanted = [0 if e != e else max(low, min(high, int(max(min(e, 1e40), -1e40)))) for e in x.astype(np.float64).tolist()]
    for target in (host(), *RUNNABLE):
        assert [int(e) for e in plans.run(made, [x], target=target)[0][0]] == wanted
        assert ".sat.v" not in emit(made, made.kernels[0], target).text


def test_the_next_panel_is_asked_for_in_time():
    assert "@llvm.prefetch" in codes(*contraction(56, 2048, 512))[-1].text
    assert "@llvm.prefetch" not in codes(*contraction(7, 2048, 512))[-1].text  # one row of tiles: they come in order anyway
    assert "@llvm.prefetch" not in codes(*contraction(56, 256, 512))[-1].text  # they stay in the cache


def with_rest(m, n, k):
    i, j, r = axis(m, "I"), axis(n, "J"), axis(k, "R")
    x, w, rest = hole(i, r), hole(r, j), hole(i, j)
    return [ng.relu(ng.dot(x, w) + rest)], [x, w, rest]


def test_what_sums_meet_is_asked_for_while_they_are_made():
    assert codes(*with_rest(8192, 64, 64))[-1].text.count("call void @llvm.prefetch") > 4
    assert not any("@llvm.prefetch" in c.text for c in codes(*with_rest(1024, 64, 64)))  # it is in the cache
    assert not any("@llvm.prefetch" in c.text for c in codes(*with_rest(65536, 64, 2)))  # it would come too late
    assert not any(spills(c, V4) for c in codes(*with_rest(8192, 64, 64)))


@pytest.mark.parametrize(("batch", "rows"), [(4, 8192), (None, 8192), (None, 512)])
def test_what_sums_meet_is_asked_for_by_the_assumed_size_of_open_lengths(batch, rows):
    """An open batch counts with its assumed length, which for two million operations and more for each sample is 4."""
    n, i, j, r = axis(batch, "N"), axis(rows, "I"), axis(64, "J"), axis(64, "R")
    x, w, rest = hole(n, i, r), hole(r, j), hole(n, i, j)
    asked = any("@llvm.prefetch" in c.text for c in codes([ng.relu(ng.dot(x, w) + rest)], [x, w, rest]))
    assert asked == (rows == 8192)  # else it is in the cache


def test_what_an_update_meets_is_asked_for_once():
    """Each line of two arrays changed in place, in a few work items near the end of a sum of one block: else they push out its operands."""
    n, f, g = axis(960, "N"), axis(1024, "F"), axis(1024, "G")
    x, y = hole(n, f), hole(n, g)
    mean, weights = (ng.variable([f, g], initial_value=0.1) for _ in range(2))
    moved = mean * 0.9 + ng.sum(x * y, reduction_axes=[n])
    code = codes([ng.sequential([ng.assign(mean, moved), ng.assign(weights, weights - 0.01 * moved)])], [x, y])[-1]
    asked = re.findall(r"call void @llvm.prefetch\S*\(ptr \S+, i32 \d, i32 3", code.text)
    columns = int(re.search(r"columns=(\d+)", code.debug_info["schedules"][0])[1])
    assert len(asked) == 2 * columns * 2  # tiles of two heights
    assert len(spills(code, V4)) == code.text.count("phi <16 x float>")  # each sum waits there for what follows it, and nothing else does


@pytest.mark.parametrize("m, n, k", [(9001, 70, 33), (8192, 64, 7), (40001, 17, 100)])
def test_values_that_were_asked_for(m, n, k):
    results, holes = with_rest(m, n, k)
    draw = np.random.default_rng(0)
    given = [draw.integers(-4, 5, [len(a) for a in h.axes]).astype(np.float32) for h in holes]
    want = np.maximum(given[0] @ given[1] + given[2], 0)
    for target in (host(), *RUNNABLE):
        assert np.array_equal(plans.run(plan(program(results, *holes)), given, target=target)[0][0], want)


def test_panels_fit_the_cache():
    m = DEFAULT
    assert panel_width(512, 7, m) == 64 and panel_width(512, 7, m, deep=4608 * 4) == 32


def test_what_is_left_of_a_vector_is_a_part_of_one():
    (code,) = codes(*contraction(128, 24, 768))[-1:]
    assert "@llvm.fma.v8f32" in code.text and "@llvm.fma.v16f32" in code.text
    (code,) = codes(*contraction(128, 30, 768))[-1:]
    assert "@llvm.fma.v8f32" not in code.text


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int8, np.bool_, np.float16])
@pytest.mark.parametrize("columns", [1, 3, 17, 18, 20, 23, 25, 36, 71])
def test_parts_of_vectors_are_the_same(columns, kind):
    i, j, r, w = axis(19, "I"), axis(columns, "J"), axis(6, "R"), axis(2 * columns + 3, "W")
    draw = np.random.default_rng(0)
    x, y, z = hole(i, r, dtype=kind), hole(r, j, dtype=kind), hole(i, w, dtype=kind)
    a, b, c = (draw.integers(0, 2 if kind is np.bool_ else 4, s).astype(kind) for s in ((19, 6), (6, columns), (19, 2 * columns + 3)))
    strided = ng.slice_along_axis(z, w, slice(1, 2 * columns + 1, 2))
    picked = ng.cast_axes(strided, [i, j])
    made = plan(program([ng.dot(x, y), ng.max(picked, reduction_axes=[i]), ng.maximum(picked, ng.max(x, reduction_axes=[r]))], x, y, z))
    product = a.astype(np.int64) @ b.astype(np.int64)
    wanted = product, c[:, 1:-2:2].max(0), np.maximum(c[:, 1:-2:2], a.max(1)[:, None])
    for target in (host(), *RUNNABLE):
        for got, want in zip(plans.run(made, [a, b, c], target=target)[0], wanted, strict=True):
            assert np.array_equal(got, want)


def test_rows_of_two_lengths_share_the_work():
    assert split(128, 14) == [(8, 13), (2, 12)]
    assert split(12, 14) == [(1, 12)] and split(0, 4) == [] and split(5, 4) == [(1, 3), (1, 2)]


@pytest.mark.parametrize("sizes", [(64, 64, 64), (13, 100, 7), (1, 4096, 1024), (None, 64, 64), (0, 64, 64)])
@pytest.mark.parametrize("registers", [16, 32])
def test_tiles_fit_the_registers(sizes, registers):
    m, n, k = range(3)
    x = AccessDescriptor((1024, 0, 1), frozenset((m, k)), frozenset(), 4)
    w = AccessDescriptor((0, 1, 1024), frozenset((n, k)), frozenset(), 4)
    y = AccessDescriptor((1024, 1, 0), frozenset((m, n)), frozenset(), 4, True, True)
    view = View((m, n), (k,), sizes, (x, w, y), (), (frozenset((m, n, k)),), 16)
    found = schedule(view, replace(V4, vector_registers=registers))
    assert found.rows * found.columns + (found.columns if found.rows > 1 else 2) <= registers
    assert found.vector == n and set(found.order) == {m, n}
    assert sizes[0] != 64 or found.rows > 1


@pytest.mark.parametrize("rows, terms, most", [(256, 1024, 4), (128, 4096, 4), (32, 64, 8), (128, 1000, 8)])
def test_a_matrix_times_a_vector_reads_few_rows_abreast(rows, terms, most):
    """Each row of a tile reads lines that no other uses: too many such streams are not there in time. What shares them may have more."""
    m, n, k = range(3)
    w = AccessDescriptor((terms, 0, 1), frozenset((m, k)), frozenset(), 4)
    x, y = (
        AccessDescriptor((0, terms, 1), frozenset((n, k)), frozenset(), 4),
        AccessDescriptor((1, 8, 0), frozenset((m, n)), frozenset(), 4, True, True),
    )
    alone = View((m, n), (k,), (rows, 1, terms), (w, x, y), (), (frozenset((m, n, k)),), 16)
    found = schedule(alone, V4)
    assert found.vector == k and found.units(m) <= most
    assert schedule(alone._replace(sizes=(rows, 8, terms)), V4).rows > 4


class FivePieces(plans.Compiled):
    pieces = 5


def test_sums_do_not_depend_on_how_turns_are_dealt_out():
    """Pieces of the work items in any cut give equal bits: what a work item computes is a matter of the work item alone."""
    results, holes = contraction(70, 130, 333)
    made = plan(program(results, *holes))
    draw = np.random.default_rng(0)
    arrays = [draw.normal(size=[made.length(a) for a in b.axes]).astype(np.float32) for b in made.inputs]
    (a,), (b,) = plans.run(made, arrays)[0], plans.run(made, arrays, kind=FivePieces)[0]
    assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.int8])
@pytest.mark.parametrize("terms", [2, 3, 9, 10])
def test_the_first_of_the_best_few(kind, dtype, terms):
    """Ties go to the first, so do NaNs, and 0 is no better than -0."""
    draw = np.random.default_rng(terms)
    values = draw.integers(-2, 3, (64, terms)).astype(dtype)
    if np.issubdtype(dtype, np.floating):
        values[draw.random(values.shape) < 0.2] = np.nan
        values[draw.random(values.shape) < 0.1] = -0.0
        values[draw.random(values.shape) < 0.1] = np.inf
    rows, columns = axis(64, "I"), axis(terms, "J")
    x = hole(rows, columns, dtype=dtype)
    made = plan(program([getattr(ng, f"arg{kind}")(x, reduction_axes=columns)], x))
    (got,), _ = plans.run(made, [values])
    assert np.array_equal(got, getattr(np, f"arg{kind}")(values, axis=1))
    assert any(stage.reduced for kernel in made.kernels for stage in kernel.stages) == (terms > 9)


def test_a_turn_inside_one_panel_knows_its_place():
    """Panels are wider than what a work item takes of them: which one it is follows from the work item, not in each term of a sum."""
    n, c, k, w, r = axis(1, "N"), axis(512, "C"), axis(512, "K"), axis(1500, "W"), axis(3, "R")
    x, f = hole(n, c, w), ng.variable([k, c, r], initial_value=0.0)
    made = plan(program([ng.conv(x, f, {w: r}, padding=1)], x), winograd=False)
    step = next(step for step in made.kernels if any(s.reduced for s in step.stages))
    panels = [d for s in step.stages for read in s.reads() for d in read.source.dims if d[1] > 1]
    assert panels and all(div > dict(step.loops).get(a, div) for a, div, _ in panels)
    code = emit(made, step, V4)
    assert len(spills(code, V4)) <= 2 and code.text.count("ashr") <= 2

"""Plans for lengths that calls bring: what is assumed; work items, schedules and tiles for short and assumed ones; values at odd ones."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ParseError, ProgramError
from ngraph.op_graph.expr import Len
from ngraph.plan.kernels import Kernel, Local
from ngraph.plan.planner import plan
from ngraph.plan.text import arrays
from ngraph.runtime.host.bytecode import FIELDS, KERNEL
from ngraph.schedule import cpu
from ngraph.schedule.cpu import schedule_plan
from ngraph.schedule.interpret import interpret
from ngraph.schedule.search import AccessDescriptor, View, schedule
from ngraph.schedule.text import parse, text
from ngraph.schedule.verify import verify
from ngraph.targets import TARGETS, runnable

V4 = TARGETS["x86-64-v4"]
WEIGHTS = np.random.default_rng(0).standard_normal((96, 64)).astype("f") / 10


def pictures(side):
    """relu(w · picture) at each place of a batch of pictures whose number is open, and the input."""
    n, y, x, c, k = [ng.make_axis(m, name=a) for a, m in zip("NYXCK", (None, side, side, 64, 96), strict=True)]
    given = ng.placeholder([n, y, x, c])
    return ng.axes_with_order(ng.relu(ng.contract(given, ng.constant(WEIGHTS, [k, c]), over=[c])), [n, y, x, k]), given


def planned(*made):
    return plan(ngt.make_transformer_factory("direct")().computation(*made).program)


def items(found, kernel, lengths):
    return math.prod([-(-found.length(a, lengths) // b) for a, b in kernel.loops])


@pytest.mark.parametrize(("side", "assumed"), [(19, 4), (15, 64)])
def test_batches_are_assumed_to_be_small_where_much_is_computed_for_each_place(side, assumed):
    found = planned(*pictures(side))
    (batch,) = [a for a in found.axes if found.axes[a] == Len(a)]
    assert found.guess(batch) == assumed
    assert found.guess(next(a for a in found.axes if found.axes[a] == 96)) == 96


def test_batches_that_products_are_summed_over_are_not_assumed_to_be_small():
    """The gradient of weights sums over the batch: in training it has many places, however much is computed for each."""
    x, w = ng.placeholder("N=? C=2048"), ng.variable("C=2048 K=2048", initial_value=0.1)
    y = ng.dot(x, w)
    for made, assumed in (([y], 4), ([y, ng.deriv(ng.sum(y * y, out_axes=()), w)], 64)):
        found = planned(made, x)
        (batch,) = [a for a in found.axes if found.axes[a] == Len(a)]
        assert found.guess(batch) == assumed


@pytest.mark.parametrize("lengths", [(1, 3, 8), (1, 6, 16), (2, 3, 9)])
def test_short_lengths_are_work_for_all_cores(lengths):
    """Batch, height and width are open; channels are what no call changes."""
    n, y, x, c, k = [ng.make_axis(name=a) for a in "NYX"] + [ng.make_axis(480, name=a) for a in "CK"]
    given, weights = ng.placeholder([n, y, x, c]), ng.placeholder([k, c])
    found = planned(ng.axes_with_order(ng.relu(ng.contract(given, weights, over=[c])), [n, y, x, k]), given, weights)
    product = max([k for k in found.steps if type(k) is Kernel], key=lambda k: k.seconds)
    opened = [a for a in found.axes if found.axes[a] == Len(a)]
    assert len(opened) == 3 and items(found, product, dict(zip(opened, lengths, strict=True))) >= 4


def test_a_batch_shorter_than_a_tile_is_not_divided_where_each_part_reads_all_weights():
    """The axis that a product sums gives a tile no rows, however long it is. Pictures make the batch one of 4."""
    n, c, k, p = [ng.make_axis(m, name=a) for a, m in zip("NCKP", (None, 128, 512, 1 << 21), strict=True)]
    given, weights, pictures = ng.placeholder([n, c]), ng.constant(np.ones((512, 128), "f"), [k, c]), ng.placeholder([n, p])
    found = planned([ng.contract(given, weights, over=[c]), ng.relu(pictures)], given, pictures)
    (batch,) = [a for a in found.axes if found.axes[a] == Len(a)]
    assert found.guess(batch) == 4
    product = max(found.steps, key=lambda kernel: len(kernel.stages[-1].reduced))
    assert batch not in dict(product.loops) and items(found, product, {batch: 4}) == 2


def test_rows_of_a_tile_lie_along_a_known_axis_where_the_open_one_is_assumed_to_be_short():
    batch, row, column, summed = range(4)
    x = AccessDescriptor((7 * 64, 64, 0, 1), frozenset((batch, row, summed)), frozenset(), 4)
    w = AccessDescriptor((0, 0, 1, 64), frozenset((column, summed)), frozenset(), 4)
    y = AccessDescriptor((7 * 64, 64, 1, 0), frozenset((batch, row, column)), frozenset(), 4, True, True)
    sums = (frozenset(range(4)),)
    view = View((batch, row, column), (summed,), (None, 7, 64, 64), (x, w, y), (), sums, 16, frozenset(), frozenset([batch]))
    assert schedule(view, V4).tile == batch
    assert schedule(view._replace(likely=(4, 7, 64, 64)), V4).tile == row


def test_a_schedule_says_how_loops_of_open_length_end():
    n, m, c = ng.make_axis(name="N"), ng.make_axis(name="M"), ng.make_axis(64, name="C")
    x, w = ng.placeholder([n, c]), ng.placeholder([c, m])
    shown = text(schedule_plan(planned(ng.axes_with_order(ng.relu(ng.dot(x, w)), [n, m]), x, w), V4), origins=False)
    assert re.search(r"for M = Len\(M\) vector 16 columns 3 left 1 masked\n", shown)
    assert re.search(r"rows 8 left 4 1\n", shown) and "sum C = 64\n" in shown
    assert text(parse(shown, {"x86-64-v4": V4}), origins=False) == shown
    with pytest.raises(ParseError, match="the end of a loop with this tile is left 4 1"):
        parse(shown.replace("left 4 1", "left 4 2 1"), {"x86-64-v4": V4})


@pytest.mark.parametrize("target", runnable())
def test_values_at_lengths_around_each_tile(target, monkeypatch):
    monkeypatch.setenv("NGRAPH_TARGET", target)
    with ngt.allocate_transformer("cpu") as transformer:
        call = transformer.computation(*pictures(17))
        for length in (0, 1, 2, 3, 4, 5, 7, 8, 11, 13):
            given = np.random.default_rng(length).standard_normal((length, 17, 17, 64)).astype("f")
            expected = np.maximum(given.astype("d") @ WEIGHTS.T.astype("d"), 0)
            np.testing.assert_allclose(call(given), expected, rtol=1e-4, atol=1e-5)
        assert list(call.native.codes) == [(None,)]


@pytest.mark.parametrize("columns", [1, 4, 15, 16, 17, 33, 70])
def test_a_vector_of_a_short_assumed_length_is_not_the_only_one(columns):
    """K is assumed to be of 4, for a matrix begins with it, so one vector takes all of its assumed places, but not those of each call."""
    rows, terms, K = (ng.make_axis(None, name=name) for name in "IJK")
    x, y, z = ng.placeholder([rows, terms]), ng.placeholder([terms, K]), ng.placeholder([K, terms])
    r = np.random.default_rng(columns)
    a, b, c = (r.standard_normal(shape).astype(np.float32) for shape in ((13, 33), (33, columns), (columns, 33)))
    with ngt.make_transformer_factory("cpu")() as transformer:
        f = transformer.computation(ng.contract(x, y, over=[terms]), x, y, z)
        np.testing.assert_allclose(f(a, b, c), a @ b, rtol=1e-4, atol=1e-5)


SUMMED = np.random.default_rng(1).standard_normal((64, 96)).astype("f") / 10


def rows_of_five(summed=64):
    """w · x at five places of each of N rows, and the input: a tile's rows lie along the places where N is small."""
    n, p, c, k = [ng.make_axis(m, name=a) for a, m in zip("NPCK", (None, 5, summed, 96), strict=True)]
    given = ng.placeholder([n, p, c])
    return ng.axes_with_order(ng.relu(ng.contract(given, ng.constant(SUMMED[:summed], [c, k]), over=[c])), [n, p, k]), given


def bounded(made):
    return [k for k in made.kernels.values() if len(k.bounds) > 1]


def test_a_kernel_has_schedules_for_short_lengths_where_they_pay(monkeypatch):
    made = verify(schedule_plan(planned(*rows_of_five()), V4))
    (kernel,) = bounded(made)
    assert len(kernel.bounds) <= 3 and kernel.bounds[-1] is None
    tiles = [kernel.bounded(bound)[0].stages[-1].tile for bound in kernel.bounds]
    assert [tile.tile.parts[0][0] for tile in (tiles[0], tiles[-1])] == ["P", "N"]
    shown = text(made, origins=False)
    assert re.search(r"when Len\(N\) <= 4\n", shown) and "\notherwise\n" in shown
    assert text(parse(shown, {"x86-64-v4": V4}, arrays(made.plan)), origins=False) == shown
    for wrong in (shown.replace("when Len(N) <= 4", "when Len(N) < 4"), shown.replace("when Len(N) <= 4", "when N <= 4")):
        with pytest.raises(ParseError):
            parse(wrong, {"x86-64-v4": V4}, arrays(made.plan))
    for name, value in (("MIN_BOUNDED_SHARE", 1.01), ("MIN_BOUNDED_GAIN", 100.0)):  # of the plan; of the time
        with monkeypatch.context() as changed:
            changed.setattr(cpu, name, value)
            assert not bounded(schedule_plan(made.plan, V4))


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 16, 17, 31])
def test_the_schedule_of_a_length_gives_the_oracles_values(length):
    made = schedule_plan(planned(*rows_of_five(7)), V4)
    (axis,) = [a for a in made.plan.axes if made.plan.axes[a] == Len(a)]
    given = np.random.default_rng(length).standard_normal((length, 5, 7)).astype("f")
    (got,), _ = interpret(made, [given], lengths={axis: length})
    np.testing.assert_allclose(got, np.maximum(given.astype("d") @ SUMMED[:7], 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", runnable())
def test_a_row_has_the_same_bits_in_every_batch(target, monkeypatch):
    """Whatever the schedule is that the length of a call chooses, and whatever calls came before it."""
    monkeypatch.setenv("NGRAPH_TARGET", target)
    given = np.random.default_rng(5).standard_normal((70, 5, 64)).astype("f")
    with ngt.allocate_transformer("cpu") as transformer:
        call = transformer.computation(*rows_of_five())
        whole = np.array(call(given))
        np.testing.assert_allclose(whole, np.maximum(given.astype("d") @ SUMMED, 0), rtol=1e-4, atol=1e-5)
        for length in (3, 70, 1, 17, 16, 2, 5, 4, 0, 7, 3):
            np.testing.assert_array_equal(call(given[:length]), whole[:length])


def without_longer_lengths(kernel):
    kernel.versions = kernel.bounded(kernel.bounds[0])


def longer_lengths_first(kernel):
    first = kernel.bounded(kernel.bounds[0])
    kernel.versions = (*[replace(v, bound=v.bound._replace(most=99)) for v in first], *kernel.versions)


def lengths_of_a_known_axis(kernel):
    other = next(a for a in kernel.kernel.stages[-1].free if a.startswith("P"))
    kernel.versions = tuple([v if v.bound is None else replace(v, bound=v.bound._replace(axis=other)) for v in kernel.versions])


def sums_in_another_order(kernel):
    stage = kernel.bounded(kernel.bounds[0])[0].stages[-1]
    stage.sums = stage.sums[::-1] if len(stage.sums) > 1 else (replace(stage.sums[0], parts=(("C", 2, 80), ("C", 1, 2))),)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (without_longer_lengths, "no version is for longer lengths"),
        (longer_lengths_first, "stand behind those for up to 99"),
        (lengths_of_a_known_axis, "which has no open length"),
        (sums_in_another_order, "in another order than those of more"),
    ],
)
def test_verify_alone_catches_a_wrong_choice_by_lengths(mistake, message):
    made = verify(schedule_plan(planned(*rows_of_five()), V4))
    mistake(bounded(made)[0])
    with pytest.raises(ProgramError, match=message):
        verify(made)


def test_what_does_not_depend_on_an_open_length_is_computed_where_it_is_0():
    k, j, x = ng.placeholder("K=4"), ng.placeholder("J=4"), ng.placeholder("K=4 N=? J=4")
    below = ng.less(k, j)
    part = ng.where(below, ng.cos(x), 0.0)
    with ngt.make_transformer_factory("cpu")() as transformer:
        f = transformer.computation([ng.cos(ng.sum(part * ng.sin(x), "J")) * part, below], x, k, j)
        for n in (0, 5, 0):
            _, found = f(np.ones((4, n, 4)), np.arange(4.0), np.arange(4.0) + 0.5)
            np.testing.assert_array_equal(found, np.arange(4.0)[:, None] < np.arange(4.0) + 0.5)


def test_joined_parts_that_a_work_item_would_hold_whole_are_a_kernel_of_their_own():
    """A picture that is doubled by a deconvolution, and a bias: with one picture in a call, work items share out its rows."""
    n, y, x, c, k, r, s = [ng.make_axis(m, name=a) for a, m in zip("NYXCKRS", (None, None, None, 24, 24, 2, 2), strict=True)]
    given, filters, bias = ng.placeholder([n, c, y, x]), ng.constant(np.ones((24, 24, 2, 2), "f"), [c, k, r, s]), ng.placeholder([k])
    doubled = ng.deconv(ng.relu(given), filters, {y: r, x: s}, stride=2)
    found = planned(ng.relu(doubled + bias), given, bias)
    opened = [a for a in found.axes if found.axes[a] == Len(a)]
    last = found.kernels[-1]
    assert all(type(store.target) is not Local for stage in last.stages for store in stage.to)
    assert items(found, last, dict(zip(opened, (1, 64, 64), strict=True))) >= 4


def test_a_convolution_of_few_places_is_transformed_only_if_short_lengths_do_not_lose():
    """Sums over 960 channels for 60: the transformed weights are twice as many bytes, which a call of a few places does not earn back."""

    def transformed(width):
        n, x, c, k, r = [ng.make_axis(m, name=a) for a, m in zip("NXCKR", (None, width, 960, 60, 3), strict=True)]
        given, filters = ng.placeholder([n, x, c]), ng.constant(np.ones((60, 960, 3), "f"), [k, c, r])
        found = planned(ng.conv(given, filters, {x: r}, padding=1), given)
        return any(str(a).startswith("point") for a in found.axes)

    assert not transformed(None) and transformed(96)


def test_what_fills_a_border_says_whose_value_it_surrounds():
    n, y, x, c, k, r, s = [ng.make_axis(m, name=a) for a, m in zip("NYXCKRS", (None, None, None, 16, 16, 3, 3), strict=True)]
    given, filters = ng.placeholder([n, y, x, c]), ng.constant(np.ones((16, 3, 3), "f"), [c, r, s])
    found = planned(ng.conv(ng.exp(given), filters, {y: r, x: s}, padding=1, groups=[c]), given)
    fills = [kernel for kernel in found.kernels if not any(list(stage.reads()) for stage in kernel.stages)]
    assert fills and all("exp" in str(kernel.origin) for kernel in fills)


def test_one_work_item_at_the_guess_is_several_in_long_calls():
    """An elementwise value, and a sum whose only dim is known."""
    x, y, k = ng.placeholder("N=? D=8"), ng.placeholder("N=? K=128"), ng.placeholder("K=128")
    for made, given in ((ng.tanh(x), [x]), (ng.sum(y * k, "N"), [y, k])):
        found = planned(made, *given)
        (axis,) = [a for a in found.axes if found.axes[a] == Len(a)]
        (kernel,) = [s for s in found.steps if type(s) is Kernel]
        assert items(found, kernel, {axis: 1 << 20}) >= 2


def test_products_stay_apart_where_no_length_divided_both():
    """Both are so small at a few assumed places that one kernel would be faster; at many places one core would do all."""
    a, p, v = ng.placeholder("N=? M=?"), ng.placeholder("M=? J=?"), ng.placeholder("J=? K=32")
    found = planned(ng.relu(ng.dot(a, ng.relu(ng.dot(p, v)))), a, p, v)
    lengths = dict.fromkeys([x for x in found.axes if found.axes[x] == Len(x)], 600)
    assert [items(found, k, lengths) >= 2 for k in found.kernels] == [True, True]


def test_threads_follow_from_the_lengths_inside_work_items():
    """The work items of two products over a few assumed places are small, and those of 600 places are not."""
    n = 600
    a, p, v = ng.placeholder("N=? M=?"), ng.placeholder("M=? J=?"), ng.placeholder("J=? K=256")
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape).astype("f") for shape in ((n, n), (n, n), (n, 256))]
    with ng.config(num_threads=2), ngt.make_transformer_factory("cpu")() as transformer:
        call = transformer.computation(ng.relu(ng.dot(a, ng.relu(ng.dot(p, v)))), a, p, v)
        expected = np.maximum(given[0].astype("d") @ np.maximum(given[1].astype("d") @ given[2], 0), 0)
        np.testing.assert_allclose(call(*given), expected, rtol=1e-3, atol=1e-2)
        table = next(iter(call.native.bound.values())).take().walk.table.table
        assert {int(row[FIELDS["ways"] // 8]) for row in table if row[0] == KERNEL} == {2}


def test_a_matrix_of_two_open_lengths_is_no_batch_and_its_products_have_tall_tiles():
    """Tokens of two open lengths are a batch; vectors lie along features, which fill them, rather than along nodes."""
    n, k, d = (ng.make_axis(size, name=name) for name, size in (("n", None), ("k", None), ("d", 500)))
    x, w = ng.placeholder([n, k]), ng.placeholder([k, d])
    found = planned(ng.contract(x, w, over=[k]), x, w)
    assert not found.few
    shown = text(schedule_plan(found, V4), origins=False)
    assert {m[1] for m in re.finditer(r"for (\w+) .* vector", shown)} == {"d"}
    assert {m[1] for m in re.finditer(r"for (\w+) .* rows (?:[4-9]|\d\d)", shown)} == {"n"}
    tokens = ng.placeholder([n, k], dtype="int32")
    table = ng.variable([ng.make_axis(50, name="v"), d], initial_value=ng.UniformInit())
    assert planned(ng.gather(table, tokens, axes=table.axes[:1]), tokens).few == {"n"}

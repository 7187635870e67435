"""Sums in blocks that a work item takes one after another: plans, their texts, verifiers and interpreters, and what the processor makes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machines import usable

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ProgramError
from ngraph.plan import blocking, packing
from ngraph.plan.interpret import interpret
from ngraph.plan.kernels import Kernel
from ngraph.plan.planner import plan
from ngraph.plan.text import arrays, parse, text
from ngraph.plan.verify import verify
from ngraph.program.lower import lower
from ngraph.schedule import interpret as schedule_interpret
from ngraph.schedule import text as schedule_text
from ngraph.schedule import verify as schedule_verify
from ngraph.schedule.cpu import schedule_plan
from ngraph.targets import DEFAULT, TARGETS

SMALL = usable(l1=1024, l2=65536)  # the first cache holds sixteen lines


@pytest.fixture
def short(monkeypatch):
    """Sums of two vectors are long, and copies pay from four reads on."""
    monkeypatch.setattr(blocking, "SUM_BLOCK_VECTORS", 1)
    monkeypatch.setattr(packing, "MIN_READS_TO_PACK_FAR_ROWS", 4)


def gradients(o, b, t, n, known=(True, True), kind="both"):
    """The updates of a layer's weights and bias over t steps of n rows: the ops, their inputs, given arrays, what comes out."""
    O, B = ng.make_axis(o, name="O"), ng.make_axis(b, name="B")
    T, N = (ng.make_axis(k if open_ else None, name=a) for k, a, open_ in zip((t, n), "TN", known, strict=True))
    dz, x = ng.placeholder([T, N, O]), ng.placeholder([N, T, B] if kind == "crossed" else [T, N, B])
    w, c = ng.placeholder([O, B]), ng.placeholder([O])
    step = ng.axes_with_order(ng.contract(dz, x, over=[T, N]), [O, B])
    results = [w - 0.5 * step]
    if kind != "weights":
        results += [c - ng.sum(dz, reduction_axes=[T, N])]
    if kind in ("both", "crossed"):
        results += [ng.axes_with_order(step * step + 1.0, [B, O])]
    draw = np.random.default_rng(o + 7 * b + t)
    arrays_ = [
        draw.integers(-4, 5, [len(a) if a.length is not None else {"T": t, "N": n}[a.name] for a in p.axes]).astype("f")
        for p in (dz, x, w, c)
    ]
    z, y = arrays_[0].astype(float), arrays_[1].astype(float)
    total = np.einsum("tno,ntb->ob" if kind == "crossed" else "tno,tnb->ob", z, y)
    wanted = [arrays_[2] - 0.5 * total]
    if kind != "weights":
        wanted += [arrays_[3] - z.sum((0, 1))]
    if kind in ("both", "crossed"):
        wanted += [total.T**2 + 1]
    return results, [dz, x, w, c], arrays_, wanted


def serial(made):
    return [k for k in made.kernels if k.serial]


def same(got, wanted):
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(a, b.astype("f"))


def test_a_long_sum_has_a_serial_loop_and_copies_of_a_block_alone():
    results, holes, given_, wanted = gradients(512, 128, 40, 32)
    for target in ("x86-64-v3", "x86-64-v4"):
        made = verify(plan(lower(results, holes).program, machine=TARGETS[target]))
        (kernel,) = serial(made)
        (last, block) = kernel.loops[-1]
        assert last == "T" and 40 % block == 0
        inside = kernel.stages[kernel.repeated]
        assert {s.depth for s in inside} == {len(kernel.loops)} and len(inside) < len(kernel.stages)
        assert not [b for b in made.buffers if b.storage == "arena" and "T" in b.axes]  # no copy of a whole operand
        same(interpret(made, given_)[0], wanted)


def test_a_short_sum_has_none():
    results, holes, *_ = gradients(512, 128, 4, 32)
    assert not serial(plan(lower(results, holes).program))


def test_the_text_of_a_serial_loop_is_read_again():
    results, holes, given_, wanted = gradients(512, 128, 40, 32)
    made = plan(lower(results, holes).program)
    shown = text(made)
    assert " serial" in shown
    again = verify(parse(shown, arrays(made)))
    assert text(again) == shown and [k.serial for k in again.kernels] == [k.serial for k in made.kernels]
    same(interpret(again, given_)[0], wanted)


def test_operands_of_two_sums_are_copied_once():
    """Both gradients of a recurrent layer read one turned copy, in the order in which it lies."""
    T, N, O, A, B = (ng.make_axis(n, name=a) for n, a in ((24, "T"), (32, "N"), (128, "O"), (128, "A"), (128, "B")))
    dz, x, y = ng.placeholder([T, N, O]), ng.placeholder([T, N, A]), ng.placeholder([N, T, B])
    both = [ng.contract(dz, x, over=[T, N]), ng.contract(dz, y, over=[T, N])]
    made = plan(lower(both, [dz, x, y]).program, machine=TARGETS["x86-64-v4"])
    source = made.inputs[0]
    copies = [s for k in made.kernels for s in k.stages if not s.combine and source in [r.source for r in s.reads()]]
    orders = {s.to[0].target.axes for s in copies}
    assert orders and all(axes.index("T") < axes.index("N") for axes in orders)
    for k in serial(made):
        assert sum(source in [r.source for r in s.reads()] for s in k.stages) == 1


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 20),
    st.integers(1, 9),
    st.sampled_from(["weights", "bias", "both", "crossed"]),
    st.tuples(st.booleans(), st.booleans()),
    st.sampled_from([SMALL, replace(SMALL, cores=8)]),
)
def test_random_sums_in_blocks_are_exact(short, o, b, t, n, kind, known, machine):
    """Whole numbers add up exactly in any order: the plan and the schedule give what NumPy gives."""
    results, holes, given_, wanted = gradients(o, b, t, n, known, kind)
    whole = lower(results, holes).program
    lengths = {"T": t, "N": n}
    made = verify(plan(whole, machine=machine))
    same(interpret(made, given_, lengths=lengths)[0], wanted)
    scheduled = schedule_verify.verify(schedule_plan(made, machine))
    same(schedule_interpret.interpret(scheduled, given_, lengths=lengths)[0], wanted)
    shown = schedule_text.text(scheduled)
    assert schedule_text.text(schedule_text.parse(shown, {machine.name: machine}, arrays(made))) == shown


def test_small_sums_reach_the_serial_loop(short):
    """The random sums above are in blocks, for some of their sizes."""
    for known in ((True, True), (False, False)):
        results, holes, *_ = gradients(36, 33, 17, 9, known, "bias")
        assert serial(plan(lower(results, holes).program, machine=SMALL))


@pytest.mark.parametrize("threads", [1, 2])
def test_the_processor_adds_them_up_at_all_lengths(threads):
    """One compilation for all lengths, among them none, one block, whole blocks and one place more; equal bits for equal inputs."""
    results, holes, *_ = gradients(512, 128, 3, 3, (False, False))
    with ng.config(num_threads=threads, cache=""), ngt.allocate_transformer("cpu") as transformer:
        f = transformer.computation(results, *holes)
        first = None
        for t, n in ((3, 3), (40, 32), (0, 5), (1, 1), (8, 32), (9, 31), (7, 64), (33, 1), (5, 0), (40, 32)):
            *_, given_, wanted = gradients(512, 128, t, n, (False, False))
            got = [np.array(a) for a in f(*given_)]
            same(got, wanted)
            if (t, n) == (40, 32):
                first = first or [a.tobytes() for a in got]
                assert [a.tobytes() for a in got] == first
        assert " serial" in f.plan


def broken(name, kernel):
    """A kernel with one mistake."""
    inside = kernel.repeated
    stages = list(kernel.stages)
    if name == "parallel":
        return replace(kernel, serial=False)
    if name == "never cleared":
        return replace(kernel, stages=kernel.stages[inside.start :])
    if name == "cleared in every block":
        return replace(kernel, stages=tuple([replace(s, depth=len(kernel.loops)) if k < inside.start else s for k, s in enumerate(stages)]))
    if name == "stored before the last block":
        return replace(kernel, stages=(*stages[: inside.start], *stages[inside.stop :], *stages[inside]))
    return replace(kernel, stages=(*stages[inside], *stages[: inside.start], *stages[inside.stop :]))


@pytest.mark.parametrize("name", ["parallel", "never cleared", "cleared in every block", "stored before the last block", "cleared last"])
def test_mistakes_are_caught(name):
    results, holes, given_, wanted = gradients(512, 128, 40, 32, kind="weights")
    made = plan(lower(results, holes).program, machine=DEFAULT)
    made.steps = tuple([broken(name, s) if type(s) is Kernel and s.serial else s for s in made.steps])
    with pytest.raises((ProgramError, AssertionError)):
        verify(made)
        same(interpret(made, given_)[0], wanted)

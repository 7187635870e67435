"""Mistakes in a schedule for blocks of threads: `verify` alone catches each of them, and `interpret` alone those that a run can show."""

from dataclasses import replace

import families
import numpy as np
import pytest

from ngraph.errors import ProgramError
from ngraph.op_graph.expr import Idx, combine
from ngraph.schedule.form import LoopKind, Place
from ngraph.schedule.interpret import interpret
from ngraph.schedule.verify import verify


def product():
    return families.gemm(70, 100, 90)


def rows():
    return families.softmax(33, 257)


def whole():
    return families.total(70, 100)


def with_copies(scheduled):
    return next(s for s in families.stages(scheduled) if s.copies)


def without_barrier(where):
    def mistake(scheduled):
        stage = next(s for s in families.stages(scheduled) if where in s.block.barriers)
        stage.block = stage.block._replace(barriers=stage.block.barriers - {where})

    mistake.__name__ = f"no_barrier_{where}"
    return mistake


def swapped_strides_of_a_tile(scheduled):
    stage = with_copies(scheduled)
    swap(stage.copies[0][2].stores[0])


def swapped_strides_of_a_source(scheduled):
    stage = with_copies(scheduled)
    swap(stage.copies[0][2].reads[0])


def swapped_strides_of_a_result(scheduled):
    swap(families.stages(scheduled)[-1].stores[-1])


def swap(access):
    loops = list(access.coef)
    first, other = next((a, b) for a in loops for b in loops if a.parts[0][0] != b.parts[0][0] and a.spread and b.spread)
    access.coef[first], access.coef[other] = access.coef[other], access.coef[first]


def tails_moved(by):
    """The predicates of the first stage with some, of one place more or less."""

    def mistake(scheduled):
        stage = next(s for s in families.stages(scheduled) if s.block.tails)
        stage.block = stage.block._replace(tails=tuple([combine("+", e, by) for e in stage.block.tails]))

    mistake.__name__ = f"tail_{'longer' if by > 0 else 'shorter'}"
    return mistake


def no_tail_of_a_tile(scheduled):
    stage = with_copies(scheduled)
    for _, _, copy in stage.copies:
        copy.block = copy.block._replace(tails=())


def no_tail_of_a_sum(scheduled):
    stage = next(s for s in families.stages(scheduled) if s.stage.reduced and s.block.tails)
    (axis, *_) = stage.stage.reduced[::-1]
    stage.block = stage.block._replace(tails=tuple([e for e in stage.block.tails if Idx(axis) not in (getattr(e, "b", None),)]))


def too_many_threads(scheduled):
    kernel(scheduled).threads = 2048


def too_few_threads(scheduled):
    kernel(scheduled).threads = 64


def no_whole_warps(scheduled):
    kernel(scheduled).threads = 250


def too_small_a_local(scheduled):
    made = kernel(scheduled)
    local = next(b for b, p in made.places.items() if p.space == "shared" and p.elements > 2)
    place = made.places[local]
    made.places = {**made.places, local: Place("shared", place.elements // 2, place.offset)}


def locals_that_overlap(scheduled):
    made = kernel(scheduled)
    made.places = {b: Place(p.space, p.elements, 0) for b, p in made.places.items()}


def more_shared_memory_than_there_is(scheduled):
    kernel(scheduled).shared = 1 << 20


def more_registers_than_there_are(scheduled):
    stage = with_copies(scheduled)
    stage.tile = stage.tile._replace(rows=64)


def threads_that_leave_before_a_barrier(scheduled):
    stage = next(s for s in families.stages(scheduled) if s.block.barriers - {"stage"} and s.block.tails)
    stage.block = stage.block._replace(skip=True)


def a_local_in_registers_that_others_read(scheduled):
    made = kernel(scheduled)
    read = {a.source for s in families.stages(scheduled) for a in s.reads.values()}
    local = max([b for b, p in made.places.items() if p.space == "shared" and b in read], key=lambda b: made.places[b].elements)
    made.places = {**made.places, local: Place("register", made.places[local].elements)}


def a_sum_spread_as_if_free(scheduled):
    stage = next(s for s in families.stages(scheduled) if any(d.spread is LoopKind.WARP for d in s.reduced))
    loop = next(d for d in stage.reduced if d.spread is LoopKind.WARP)
    object.__setattr__(loop, "spread", LoopKind.THREAD)


def kernel(scheduled):
    return next(iter(scheduled.kernels.values()))


BARRIERS = [(product, "tile"), (product, "copied"), (rows, "stage"), (whole, "folded")]
VERIFY = [(of, without_barrier(where)) for of, where in BARRIERS]
VERIFY += [(product, m) for m in (swapped_strides_of_a_tile, swapped_strides_of_a_source, swapped_strides_of_a_result)]
VERIFY += [(of, tails_moved(by)) for of in (product, rows, whole) for by in (1, -1)]
VERIFY += [(product, m) for m in (no_tail_of_a_tile, no_tail_of_a_sum, too_many_threads, too_few_threads, no_whole_warps)]
VERIFY += [(of, too_small_a_local) for of in (product, rows, whole)]
VERIFY += [(product, m) for m in (locals_that_overlap, more_shared_memory_than_there_is, more_registers_than_there_are)]
VERIFY += [(product, threads_that_leave_before_a_barrier), (whole, threads_that_leave_before_a_barrier)]
VERIFY += [(whole, a_sum_spread_as_if_free), (rows, a_sum_spread_as_if_free), (rows, a_local_in_registers_that_others_read)]

INTERPRET = [(of, without_barrier(where)) for of, where in BARRIERS]
INTERPRET += [(product, m) for m in (swapped_strides_of_a_tile, swapped_strides_of_a_source, swapped_strides_of_a_result)]
INTERPRET += [(product, tails_moved(1)), (product, tails_moved(-1)), (rows, tails_moved(1)), (whole, tails_moved(-1))]
INTERPRET += [(product, m) for m in (no_tail_of_a_tile, no_tail_of_a_sum, too_few_threads, threads_that_leave_before_a_barrier)]
INTERPRET += [(of, too_small_a_local) for of in (product, rows, whole)]
INTERPRET += [(rows, a_local_in_registers_that_others_read), (whole, a_sum_spread_as_if_free)]


def named(x):
    return x.__name__


@pytest.mark.parametrize("of", [product, rows, whole], ids=named)
def test_what_is_right_passes(of):
    scheduled, given, wanted = of()
    assert np.allclose(interpret(verify(scheduled), given)[0][0], wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("of", "mistake"), VERIFY, ids=named)
def test_verify_alone_catches_it(of, mistake):
    scheduled, _, _ = of()
    mistake(scheduled)
    with pytest.raises(ProgramError):
        verify(scheduled)


@pytest.mark.parametrize(("of", "mistake"), INTERPRET, ids=named)
def test_interpret_alone_catches_it(of, mistake):
    scheduled, given, wanted = of()
    mistake(scheduled)
    try:
        with np.errstate(all="ignore"):
            (got,), _ = interpret(scheduled, given)
    except ProgramError:
        return
    assert not np.allclose(got, wanted, rtol=1e-4, atol=1e-3)


def test_a_race_says_who_did_what():
    scheduled, given, _ = product()
    without_barrier("copied")(scheduled)
    with pytest.raises(ProgramError, match=r"thread \d+ reads tile0 at element \d+, which thread \d+ has stored since the last barrier"):
        interpret(scheduled, given)


def test_a_missing_barrier_says_where():
    scheduled, _, _ = product()
    broken = next(iter(scheduled.kernels.values()))
    without_barrier("tile")(scheduled)
    with pytest.raises(ProgramError, match="copies tiles that other threads may still read, and there is no barrier before the copies"):
        verify(replace(scheduled, kernels={broken.kernel: broken}))


EACH = [
    (families.gemm, (70, 100, 90)),
    (families.softmax, (33, 257)),
    (families.layer_norm, (33, 257)),
    (families.total, (300, 1001)),
    (families.convolution, (1, 33, 14, 20)),
    (families.cell, (4, 17, 33)),
]


@pytest.mark.parametrize(("family", "size"), EACH, ids=lambda x: getattr(x, "__name__", str(x)))
def test_every_barrier_is_needed(family, size):
    """Without any one of the barriers that were chosen, `verify` refuses the schedule, and threads run a race.

    But stages that fill parts of one border: the rules go by buffers, and take them for the same elements.
    """
    scheduled, given, _ = family(*size)
    every = [(s, where) for s in families.stages(scheduled) for where in s.block.barriers]
    assert every
    for stage, where in every:
        whole = stage.block
        stage.block = whole._replace(barriers=whole.barriers - {where})
        with pytest.raises(ProgramError, match="there is no barrier"):
            verify(scheduled)
        if any(stage.stage.reads()) or where != "stage":
            with pytest.raises(ProgramError, match="since the last barrier"):
                interpret(scheduled, given)
        stage.block = whole
    verify(scheduled)

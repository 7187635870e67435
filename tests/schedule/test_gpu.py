"""Schedules for a described graphics processor: lawful, printed and parsed back, and run thread by thread as NumPy says."""

import math
from dataclasses import replace

import families
import numpy as np
import pytest

from ngraph.errors import ParseError, ProgramError, UnsupportedError
from ngraph.plan.text import arrays
from ngraph.schedule.form import LoopKind
from ngraph.schedule.gpu import schedule_plan
from ngraph.schedule.interpret import interpret
from ngraph.schedule.text import parse, text
from ngraph.schedule.verify import verify

SIZES = {
    families.gemm: [(70, 100, 90), (64, 64, 64), (129, 17, 65), (3, 33, 5), (1, 40, 37), (7, 1, 130)],
    families.softmax: [(70, 100), (3, 1000), (5, 7), (1, 1), (33, 257)],
    families.layer_norm: [(70, 100), (3, 1000), (5, 7), (1, 1), (33, 257)],
    families.total: [(70, 100), (300, 1001), (5, 7), (1, 1), (1, 4099)],
    families.convolution: [(2, 5, 9, 7), (1, 33, 14, 20), (3, 16, 8, 16), (1, 1, 4, 1)],
    families.cell: [(5, 3, 7), (4, 17, 33), (1, 40, 70)],
}
CASES = [(family, size, "float32") for family, sizes in SIZES.items() for size in sizes]
CASES += [(family, size, "bfloat16") for family, sizes in SIZES.items() for size in sizes[:2]]
TOLERANCE = {"float32": 2e-5, "bfloat16": 0.02}  # bfloat16 is rounded after each op


@pytest.mark.parametrize(("family", "size", "dtype"), CASES, ids=lambda x: getattr(x, "__name__", str(x)))
def test_blocks_of_threads_give_what_numpy_gives(family, size, dtype):
    scheduled, given, wanted = family(*size, dtype)
    shown = text(verify(scheduled))
    back = verify(parse(shown, {"sm_90": families.SM_90}, arrays(scheduled.plan)))
    assert text(back) == shown
    for each in (scheduled, back):
        (got,), _ = interpret(each, given)
        far = np.abs(got.astype(float) - wanted).max(initial=0)
        scale = math.sqrt(given[0].size) if family is families.total else np.abs(wanted).max()  # terms of a sum cancel
        assert far <= TOLERANCE[dtype] * scale


@pytest.mark.parametrize("seed", range(120))
def test_a_random_plan_runs_on_blocks_of_threads(cases, seed):
    case = cases(seed)
    if case is None:
        return  # the seed draws no plan
    try:
        scheduled = schedule_plan(case.plan, families.SM_90)
    except UnsupportedError as refused:
        assert "takes atomic instructions" in str(refused) or "open length" in str(refused)
        return
    shown = text(verify(scheduled))
    back = verify(parse(shown, {"sm_90": families.SM_90}, arrays(scheduled.plan)))
    assert text(back) == shown
    with np.errstate(all="ignore"):
        assert case.differs(*interpret(back, case.inputs, case.state, case.lengths)) is None


def kinds(scheduled):
    return {s.kind(d) for s in families.stages(scheduled) for d in s.loops}


def test_a_product_goes_through_shared_memory():
    scheduled, _, _ = families.gemm(130, 100, 90)
    (kernel,) = scheduled.kernels.values()
    (stage,) = families.stages(scheduled)
    assert kernel.threads == 256 and kernel.kernel.loops == (("N", 64), ("K", 64))
    assert sorted(kernel.places[tile].elements for _, tile, _ in stage.copies) == [16 * 64, 16 * 64]
    assert {a.source for a in stage.reads.values() if not a.epilogue} == {tile for _, tile, _ in stage.copies}
    assert stage.tile.rows == stage.tile.columns == 4
    assert stage.block.barriers >= {"tile", "copied"}


def test_sums_are_shared_out_to_warps_and_their_lanes():
    scheduled, _, _ = families.total(300, 1001)
    assert {LoopKind.WARP, LoopKind.GROUP_REDUCE} <= kinds(scheduled)
    spread = [math.prod([d.extent for d in s.spread]) for s in families.stages(scheduled)]
    assert max(spread) == 256
    rows, _, _ = families.softmax(3, 1000)
    assert LoopKind.WARP in kinds(rows)


def test_elements_next_to_each_other_are_a_vector():
    scheduled, _, _ = families.softmax(64, 128)
    assert LoopKind.VECTOR in kinds(scheduled)


@pytest.mark.parametrize(
    ("before", "after"),
    [("warp", "wrap"), ("in shared", "in stack"), ("copy %0", "copy %99"), ("threads 256", "threads"), ("mask [", "mask ")],
)
def test_other_texts_are_not_parsed(before, after):
    scheduled, _, _ = families.gemm(70, 100, 90) if "warp" not in before else families.total(70, 100)
    shown = text(scheduled)
    assert before in shown
    with pytest.raises((ParseError, ProgramError)):
        parse(shown.replace(before, after, 1), {"sm_90": families.SM_90})


def test_what_has_no_schedule_says_why():
    small = replace(families.SM_90, shared=64)
    plan = families.softmax(3, 1000)[0].plan
    with pytest.raises(UnsupportedError, match="bytes of shared memory, and sm_90 has 64"):
        schedule_plan(plan, small)

"""Predicted seconds of schedules: they grow with work, know the levels of memory, and exist for every kernel, whatever it looks like."""

import math
from dataclasses import replace

import pytest

import ngraph as ng
from ngraph.ops.linear import dot
from ngraph.passes import default_passes, run
from ngraph.plan.kernels import Kernel
from ngraph.plan.planner import plan
from ngraph.program.lower import lower
from ngraph.schedule.cost import seconds
from ngraph.schedule.cpu import schedule_kernel, schedule_plan
from ngraph.schedule.search import alternatives
from ngraph.targets import DEFAULT, TARGETS

V4 = replace(DEFAULT, l1=32 << 10, l2=1 << 20, l3=32 << 20)


def axis(n, name):
    return ng.make_axis(n, name=name)


def heaviest(results, *holes, target=V4):
    """The seconds of the kernel that takes most of them."""
    made = plan(run(lower(results, holes).program, default_passes), machine=target)
    return max([seconds(schedule_kernel(made, k, target)) for k in made.kernels if isinstance(k, Kernel)])


def product(m, k, n, target=V4):
    m, k, n = axis(m, "M"), axis(k, "K"), axis(n, "N")
    x, w = ng.placeholder([m, k]), ng.placeholder([k, n])
    return heaviest([dot(x, w)], x, w, target=target)


def chain(n, ops=1):
    x = ng.placeholder([axis(n, "N")])
    y = x
    for _ in range(ops):
        y = ng.tanh(y)
    return heaviest([y], x)


def test_time_grows_with_work():
    assert 1.8 < product(512, 256, 256) / product(256, 256, 256) < 2.2
    assert 3 < chain(1 << 16, 4) / chain(1 << 16, 1) < 4.5
    assert product(256, 256, 256, TARGETS["x86-64-v2"]) > 3 * product(256, 256, 256)  # vectors of four


def test_a_product_runs_near_the_speed_of_multiply_adds():
    least = 512**3 / 16 / V4.vector_speed
    assert least < product(512, 512, 512) < 1.6 * least


def test_what_no_cache_holds_takes_as_long_as_memory():
    def add(n):
        x, y = ng.placeholder([axis(n, "N")]), ng.placeholder([axis(n, "N")])
        return heaviest([x + y], x, y) / n

    n = 1 << 26  # 256 MB each
    assert add(n) >= 16 / V4.memory_bandwidth and add(n) > 3 * add(1 << 18) > 3 * add(1 << 11)


def test_apart_is_slower_than_side_by_side():
    n, h = axis(512, "N"), axis(512, "H")
    x = ng.placeholder([n, h])
    beside, across = ng.placeholder([n, h]), ng.placeholder([h, n])
    assert heaviest([x + across], x, across) > heaviest([x + beside], x, beside)


def test_the_chosen_schedule_is_not_predicted_to_be_much_slower_than_others():
    n, c, k = axis(128, "N"), axis(300, "C"), axis(200, "K")
    x, w = ng.placeholder([n, c]), ng.placeholder([c, k])
    made = plan(run(lower([dot(x, w)], [x, w]).program, default_passes), machine=V4)
    kernel = max([k for k in made.kernels if isinstance(k, Kernel)], key=lambda k: k.seconds)
    first = schedule_kernel(made, kernel, V4)
    others = [schedule_kernel(made, kernel, V4, {view: s}) for view in first.searched for s in alternatives(view, V4, 20)[1:]]
    assert len(others) > 5 and seconds(first) <= 1.2 * min(map(seconds, others)) and max(map(seconds, others)) > 1.2 * seconds(first)


@pytest.mark.parametrize("first", range(300, 340, 10))
def test_every_kernel_has_a_price(cases, first):
    found = 0
    for case in [c for c in map(cases, range(first, first + 10)) if c is not None]:
        for kernel in schedule_plan(case.plan, case.target).kernels.values():
            took = seconds(kernel)
            assert math.isfinite(took) and 0 < took < 10
            found += 1
    assert found

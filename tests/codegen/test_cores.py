"""How many cores a machine has, and what was measured of it, changes no bit: sums are added up as program, lengths and target say."""

from dataclasses import replace

import numpy as np
import plans
import pytest
from kernels import HOST
from machines import machines
from plan_programs import arrays_for, axis, hole, program

import ngraph as ng
from ngraph.ops.linear import dot
from ngraph.plan.kernels import Kernel
from ngraph.plan.planner import plan
from ngraph.plan.text import text
from ngraph.plan.verify import verify
from ngraph.schedule.cores import order_of_sums, share_out
from ngraph.schedule.cpu import schedule_kernel

CORES = (1, 2, 3, 8, 64)


def product(m=192, k=300, n=256):
    m, k, n = axis(m, "M"), axis(k, "K"), axis(n, "N")
    x, w, b = hole(m, k), hole(k, n), hole(n)
    return program([ng.maximum(dot(x, w) + b, 0)], x, w, b)


def softmax(n=1000, h=300):
    n, h = axis(n, "N"), axis(h, "H")
    x = hole(n, h)
    e = ng.exp(x - ng.max(x, reduction_axes=(h,)))
    return program([e / ng.sum(e, reduction_axes=(h,))], x)


def total(n=3000, h=200):
    n, h = axis(n, "N"), axis(h, "H")
    x, y = hole(n, h), hole(n, h)
    return program([ng.mean(ng.sigmoid(x) * ng.tanh(y), out_axes=()), ng.sum(x * y, reduction_axes=(n,))], x, y)


def gradient(m=128, k=200, n=96):
    m, k, n = axis(m, "M"), axis(k, "K"), axis(n, "N")
    x, w = hole(m, k), hole(k, n)
    y = ng.tanh(dot(x, w))
    return program([ng.deriv(ng.sum(y * y, out_axes=()), w)], x, w)


def elementwise(n=4096, h=256):
    n, h = axis(n, "N"), axis(h, "H")
    x = hole(n, h)
    return program([ng.tanh(x) * 3 + 1], x)


PROGRAMS = (product, softmax, total, gradient, elementwise)


def orders(made, target):
    return [order_of_sums(schedule_kernel(made, k, target)) for k in made.every if isinstance(k, Kernel)]


def items(made):
    return [int(np.prod([-(-made.length(a) // b) for a, b in k.loops])) for k in made.kernels]


@pytest.mark.parametrize("make", PROGRAMS)
def test_sums_do_not_depend_on_the_number_of_cores(make):
    p = make()
    given, _ = arrays_for(p)
    targets = [replace(HOST, cores=n) for n in CORES]
    made = [verify(share_out(plan(p, machine=t), t)) for t in targets]
    assert len({text(m) for m in made[:2]}) == 1
    assert len({repr(orders(m, HOST)) for m in made}) == 1
    first, *others = [plans.run(m, given)[0] for m in made]
    for other in others:
        for a, b in zip(first, other, strict=True):
            np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))


@pytest.mark.parametrize("make, sizes", [(product, (1024, 1024, 1024)), (gradient, (512, 784, 512)), (gradient, (128, 200, 96))])
def test_more_cores_have_more_work_items(make, sizes):
    few, many = (share_out(plan(make(*sizes), machine=t), t) for t in (replace(HOST, cores=2), replace(HOST, cores=64)))
    pairs = list(zip(items(few), items(many), strict=True))
    longest = max(range(len(pairs)), key=lambda k: few.kernels[k].seconds)
    assert all(a <= b for a, b in pairs) and pairs[longest][1] >= 2 * pairs[longest][0], pairs


def test_plans_of_random_machines_add_up_alike_however_many_cores_they_have():
    for other in machines(7, 3):
        for make in PROGRAMS:
            p = make()
            assert len({text(plan(p, machine=replace(other, cores=n))) for n in CORES}) == 1

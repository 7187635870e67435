"""Sums of products of bfloat16 by pairs of terms: where they are taken, and that they give what the oracle gives."""

import ml_dtypes
import numpy as np
import pytest
from machines import BF16
from plan_programs import agree, axis, hole, program

import ngraph as ng
from ngraph.plan.planner import plan
from ngraph.plan.text import parse, text
from ngraph.plan.verify import verify
from ngraph.targets import DEFAULT

SHORT = ml_dtypes.bfloat16


def dot(m, k, n, x=SHORT, y=SHORT):
    m, k, n = axis(m, "M"), axis(k, "K"), axis(n, "N")
    a, b = hole(m, k, dtype=x), hole(k, n, dtype=y)
    return [ng.dot(a, b)], [a, b]


def window(stride=1, pad=1):
    n, c, k, h, w, r, s = (axis(m, a) for m, a in ((2, "N"), (35, "C"), (32, "K"), (14, "H"), (13, "W"), (3, "R"), (3, "S")))
    x, f = hole(n, c, h, w, dtype=SHORT), hole(k, c, r, s, dtype=SHORT)
    y = ng.conv(x, f, {h: r, w: s}, stride=stride, padding=pad)
    dy = hole(*y.axes, dtype=SHORT)
    return [y, ng.deriv(y, x, dy), ng.deriv(y, f, dy)], [x, f, dy]


def twice():
    """One factor of two products, and a sum along another axis of it."""
    m, k, n = axis(64, "M"), axis(49, "K"), axis(66, "N")
    x, a, b = hole(m, k, dtype=SHORT), hole(k, n, dtype=SHORT), hole(m, n, dtype=SHORT)
    return [ng.dot(x, a), ng.dot(x, a * 2), ng.dot(x, b)], [x, a, b]


FORMS = {
    "even": lambda: dot(64, 64, 64),
    "odd": lambda: dot(65, 63, 67),
    "windows": window,
    "windows by two": lambda: window(stride=2),
    "twice": twice,
}


@pytest.mark.parametrize("make", FORMS.values(), ids=list(FORMS))
def test_they_give_what_the_oracle_gives(make):
    results, holes = make()
    p = program(results, *holes)
    made = verify(plan(p, machine=BF16, winograd=False))
    assert text(made).count("dot2(") >= len(results)
    assert text(parse(text(made))) == text(made)
    agree(p, made, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    "results, holes, machine",
    [
        (*dot(64, 64, 64), DEFAULT),  # no such instruction
        (*dot(64, 64, 64, np.float16, np.float16), BF16),
        (*dot(64, 64, 64, np.float32, np.float32), BF16),
        (*dot(64, 64, 64, SHORT, np.float32), BF16),
        (*dot(1, 1000, 1000), BF16),  # each element is read once: packing takes longer
        (*dot(4, 8, 4), BF16),
    ],
    ids=["another machine", "float16", "float32", "one of two", "a vector", "small"],
)
def test_others_stay_as_they_are(results, holes, machine):
    assert "pack2(" not in text(plan(program(results, *holes), machine=machine))


def test_parameters_are_packed_before_any_call():
    m, k, n = axis(1, "M"), axis(512, "K"), axis(512, "N")
    x, w = hole(m, k, dtype=SHORT), ng.variable([k, n], dtype=SHORT, initial_value=0)
    made = plan(program([ng.dot(x, w)], x), machine=BF16)
    assert any(line.op == "pack2" for step in made.once for s in step.stages for line in s.before)
    assert any(b.storage == "once" and b.dtype.name == "uint32" for b in made.buffers)


@pytest.mark.parametrize("kind, pairs", [(SHORT, True), (np.float32, False)], ids=["bfloat16", "float32"])
def test_windows_of_five_are_summed_by_pairs_and_otherwise_transformed(kind, pairs):
    n, c, k, h, w, r, s = (axis(m, a) for m, a in ((32, "N"), (16, "C"), (32, "K"), (14, "H"), (14, "W"), (5, "R"), (5, "S")))
    x, f = hole(n, c, h, w, dtype=kind), hole(k, c, r, s, dtype=kind)
    made = text(plan(program([ng.conv(x, f, {h: r, w: s}, padding=2)], x, f), machine=BF16))
    assert ("dot2(" in made, "point0" in made) == (pairs, not pairs)


@pytest.mark.parametrize("machine", [BF16, DEFAULT], ids=["pairs", "others"])
def test_a_sum_is_stored_in_the_dtype_to_which_it_is_rounded(machine):
    """A layer's sum is rounded to bfloat16; its mean and what follows that are computed in float32, in kernels of their own."""
    n, c, k, h = axis(64, "N"), axis(48, "C"), axis(40, "K"), axis(30, "H")
    x, f = hole(n, c, h, dtype=SHORT), hole(k, c, dtype=SHORT)
    y = ng.cast(ng.dot(f, x), np.float32)
    p = program([ng.cast(y - ng.mean(y, out_axes=[k]), SHORT)], x, f)
    made = verify(plan(p, machine=machine))
    kinds = [b.dtype.name for b in made.buffers if b.storage == "arena" and {*b.axes} >= {"N", "K", "H"}]
    assert kinds == ["bfloat16"]
    assert text(parse(text(made))) == text(made)
    agree(p, made, rtol=2e-2, atol=2e-2)


def test_a_transformed_sum_is_stored_in_the_dtype_to_which_all_cast_it():
    n, c, k, h, w, r, s = (axis(m, a) for m, a in ((8, "N"), (32, "C"), (32, "K"), (16, "H"), (16, "W"), (3, "R"), (3, "S")))
    x, f = hole(n, c, h, w, dtype=SHORT), hole(k, c, r, s, dtype=SHORT)
    y = ng.cast(ng.conv(x, f, {h: r, w: s}, padding=1), np.float32)
    p = program([ng.cast(y - ng.mean(y, out_axes=[k]), SHORT)], x, f)
    made = verify(plan(p, machine=DEFAULT))
    stored = {b.dtype.name for b in made.buffers if b.storage == "arena" and {*b.axes} == {"N", "K", "H", "W"}}
    assert "point0" in text(made)
    assert stored == {"bfloat16"}
    agree(p, made, rtol=3e-2, atol=3e-2)

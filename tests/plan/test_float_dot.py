"""Sums of products of small whole numbers in int32, taken in floats: where, and to the last bit."""

import numpy as np
import pytest
from plan_programs import agree, axis, hole, program

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.plan.planner import plan
from ngraph.plan.text import text
from ngraph.plan.verify import verify

INT = np.int32


def dot(m=65, k=63, n=67, x=np.uint8, y=np.int8, kind=INT):
    m, k, n = axis(m, "M"), axis(k, "K"), axis(n, "N")
    a, b = hole(m, k, dtype=x), hole(k, n, dtype=y)
    return [ng.dot(ng.cast(a, kind), ng.cast(b, kind))], [a, b]


def window(channels):
    n, c, k, h, w, r, s = (axis(m, a) for m, a in ((2, "N"), (channels, "C"), (32, "K"), (9, "H"), (8, "W"), (3, "R"), (3, "S")))
    x, f = hole(n, c, h, w, dtype=np.uint8), hole(k, c, r, s, dtype=np.int8)
    return [ng.conv(ng.cast(x, INT) - 7, ng.cast(f, INT), {h: r, w: s}, stride=2, padding=1)], [x, f]


@pytest.mark.parametrize(
    "make, sums",
    [(dot, 1), (lambda: dot(8, 1040, 32), 2), (lambda: dot(8, 1031, 32), 2), (lambda: window(20), 1), (lambda: window(101), 2)],
    ids=["one", "parts", "parts that leave a rest", "windows", "windows in parts"],
)
def test_they_give_what_the_oracle_gives(make, sums):
    results, holes = make()
    p = program(results, *holes)
    made = verify(plan(p))
    combines = [c.dtype.name for k in made.kernels for s in k.stages for c in s.combine]
    assert "float32" in combines and len(combines) == sums
    agree(p, made, rtol=0, atol=0)


def test_the_largest_numbers_are_summed_without_an_error():
    results, holes = dot(8, 2048, 32, np.uint8, np.uint8)
    p = program(results, *holes)
    inputs = [np.full([8, 2048], 255, np.uint8), np.full([2048, 32], 255, np.uint8)]
    inputs[0][:, ::7] = 254
    with ngt.allocate_transformer("cpu") as t:
        got = t.computation(results[0], *holes)(*inputs)
    np.testing.assert_array_equal(got, inputs[0].astype(np.int64) @ inputs[1].astype(np.int64))
    assert "float32" in text(plan(p))


@pytest.mark.parametrize("results, holes", [dot(x=np.int16, y=np.int16), dot(x=np.int32, y=np.int32), dot(4, 8, 4)])
def test_others_stay_as_they_are(results, holes):
    assert "float32" not in text(plan(program(results, *holes)))

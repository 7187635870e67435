"""Whole numbers in floats: which values are some for certain, and sums of their products, which are exact whatever takes them."""

import numpy as np
import pytest
from machines import BF16
from plan_programs import axis, hole, program

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.plan.planner import plan
from ngraph.plan.text import text
from ngraph.tensors import value_range
from ngraph.tensors.build import build

FLOAT = np.float32


def seen(make, dtype=np.uint8):
    """What is known of a value made of a placeholder, where that is summed."""
    n = axis(100, "N")
    x = hole(n, dtype=dtype)
    graph = build(program([ng.sum(make(x), out_axes=())], x))
    (total,) = [node for node in graph.nodes if node.kind == "reduce"]
    return value_range.integer_range(total.args[0])


@pytest.mark.parametrize(
    "make, dtype, wanted",
    [
        (lambda x: ng.cast(x, FLOAT), np.uint8, (0, 255)),
        (lambda x: ng.cast(x, FLOAT) - 128.0, np.uint8, (-128, 127)),
        (lambda x: ng.cast(x, FLOAT) * -3.0 + 1.0, np.int8, (-380, 385)),
        (lambda x: ng.maximum(ng.cast(x, FLOAT), 5.0), np.int8, (5, 127)),
        (lambda x: ng.cast(x, FLOAT) * 0.5, np.uint8, None),
        (lambda x: ng.sqrt(ng.cast(x, FLOAT)), np.uint8, None),
        (lambda x: x + 0.0 * x, FLOAT, None),
        (lambda x: ng.cast(ng.cast(x * 2, np.int8), FLOAT), FLOAT, (-128, 127)),
    ],
    ids=["a cast", "a zero point", "multiples", "a maximum", "halves", "roots", "floats", "floats that became integers"],
)
def test_what_is_known_of_values(make, dtype, wanted):
    assert seen(make, dtype) == wanted


def test_long_chains_are_looked_at_in_few_steps():
    def doubled(x):
        y = ng.cast(x, FLOAT)
        for _ in range(60):
            y = y + y
        return y

    assert seen(doubled) is None


@pytest.mark.parametrize("channels, size", [(5, 9), (16, 28), (64, 56)])
def test_a_convolution_of_whole_numbers_is_exact(channels, size):
    """With weights given as an argument, and as a constant; Winograd's way would be faster, and off by a few."""
    n, c, k, h, w, r, s = (axis(m, a) for m, a in zip((2, channels, 32, size, size, 3, 3), "NCKHWRS", strict=True))
    draw = np.random.default_rng(0)
    a = draw.integers(0, 255, (2, channels, size, size)).astype(np.uint8)
    b = draw.integers(-100, 100, (32, channels, 3, 3)).astype(np.int8)
    x, f = hole(n, c, h, w, dtype=np.uint8), hole(k, c, r, s, dtype=np.int8)
    padded = np.pad(a.astype(np.int64) - 128, ((0, 0), (0, 0), (1, 1), (1, 1)))
    want = sum(
        np.einsum("kc,nchw->nkhw", b[:, :, i, j].astype(np.int64), padded[:, :, i : i + size, j : j + size])
        for i in range(3)
        for j in range(3)
    )
    for weights in (f, ng.constant(b, [k, c, r, s])):
        y = ng.conv(ng.cast(x, FLOAT) - 128.0, ng.cast(weights, FLOAT), {h: r, w: s}, padding=1)
        with ngt.allocate_transformer("cpu") as t:
            got = t.computation(y, x, *([f] if weights is f else []))(a, *([b] if weights is f else []))
        np.testing.assert_array_equal(got, want)


def test_small_ones_are_multiplied_by_pairs():
    m, k, n = axis(64, "M"), axis(100, "K"), axis(64, "N")
    x, y = hole(m, k, dtype=np.uint8), hole(k, n, dtype=np.int8)
    for zero, there in ((128.0, True), (400.0, False)):  # up to 256 bfloat16 holds all
        p = program([ng.dot(ng.cast(x, FLOAT) - zero, ng.cast(y, FLOAT))], x, y)
        assert ("dot2(" in text(plan(p, machine=BF16))) == there

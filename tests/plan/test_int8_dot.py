"""Sums of products of 8-bit integers by fours: where they are taken, and that they give what the oracle gives, to the last bit."""

import numpy as np
import pytest
from machines import INT8
from plan_programs import agree, arrays_for, axis, hole, program

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.plan.interpret import interpret
from ngraph.plan.planner import plan
from ngraph.plan.text import parse, text
from ngraph.plan.verify import verify
from ngraph.program.interpret import interpret as oracle
from ngraph.targets import DEFAULT

FLOAT, INT = np.float32, np.int32


def dot(m=65, k=63, n=67, x=np.uint8, y=np.int8, move=lambda x, y: (x, y), kind=FLOAT):
    m, k, n = axis(m, "M"), axis(k, "K"), axis(n, "N")
    a, b = hole(m, k, dtype=x), hole(k, n, dtype=y)
    return [ng.dot(*move(ng.cast(a, kind), ng.cast(b, kind)))], [a, b]


def window(stride=1, zero=0, dtype=np.uint8, channels=35):
    n, c, k, h, w, r, s = (axis(m, a) for m, a in ((2, "N"), (channels, "C"), (32, "K"), (14, "H"), (13, "W"), (3, "R"), (3, "S")))
    x, f = hole(n, c, h, w, dtype=dtype), hole(k, c, r, s, dtype=np.int8)
    return [ng.conv(ng.cast(x, FLOAT) - zero, ng.cast(f, FLOAT), {h: r, w: s}, stride=stride, padding=1)], [x, f]


def computed(sides="x", kind=FLOAT):
    """Zero points that a call finds: one for all, or one for each row and column."""
    m, k, n = axis(64, "M"), axis(62, "K"), axis(66, "N")
    a, b, p, q = hole(m, k, dtype=np.uint8), hole(k, n, dtype=np.uint8), hole(m, dtype=np.uint8), hole(n, dtype=np.uint8)
    x, y = ng.cast(a, kind), ng.cast(b, kind)
    x = x - ng.cast(p if "x" in sides else ng.max(p, out_axes=()), kind)
    y = y - ng.cast(q, kind) if "y" in sides else y - ng.cast(100, kind)
    return [ng.dot(x, y)], [a, b, p, q]


def quantised(per="column"):
    """Values and weights with scales and zero points, as QDQ models have them."""
    m, k, n = axis(64, "M"), axis(62, "K"), axis(66, "N")
    a, w = hole(m, k, dtype=np.uint8), hole(k, n, dtype=np.int8)
    scales = ng.variable([n] if per == "column" else [], initial_value=0.25 + np.arange(66, dtype=FLOAT) / 8 if per == "column" else 0.25)
    x = ng.cast(ng.cast(a, INT) - 121, FLOAT) * 0.5
    return [ng.dot(x, ng.cast(w, FLOAT) * scales)], [a, w]


def flags():
    """What is true of values, as 0 and 1: no byte of theirs."""
    m, k, n = axis(64, "M"), axis(62, "K"), axis(66, "N")
    a, b = hole(m, k, dtype=np.int8), hole(k, n, dtype=np.int8)
    return [
        ng.dot(ng.cast(ng.cast(a, np.bool_), FLOAT), ng.cast(ng.cast(b, np.uint8), FLOAT)),
        ng.dot(ng.cast(a > 3, INT), ng.cast(b, INT)),
    ], [a, b]


FORMS = {
    "flags": flags,
    "multiples": lambda: dot(move=lambda x, y: (x * 3, y)),
    "what is cut off": lambda: dot(y=np.uint8, move=lambda x, y: (ng.minimum(ng.maximum(x, 3), 200), y - 7)),
    "as they are": dot,
    "in whole groups": lambda: dot(64, 64, 64),
    "int32": lambda: dot(kind=INT),
    "the signed one first": lambda: dot(x=np.int8, y=np.uint8),
    "both signed": lambda: dot(x=np.int8),
    "none signed": lambda: dot(y=np.uint8),
    "zero points": lambda: dot(y=np.uint8, move=lambda x, y: (x - 7, y - 130)),
    "zero points in int32": lambda: dot(y=np.uint8, kind=INT, move=lambda x, y: (x - 7, 130 + y)),
    "a computed one": computed,
    "computed ones": lambda: computed("xy"),
    "computed ones in int32": lambda: computed("xy", INT),
    "windows": window,
    "windows by two": lambda: window(2, 3),
    "windows over what is padded with a zero point": lambda: window(1, 121),
    "windows over signed ones": lambda: window(1, -5, np.int8),
}


@pytest.mark.parametrize("make", FORMS.values(), ids=list(FORMS))
def test_they_give_what_the_oracle_gives(make):
    results, holes = make()
    p = program(results, *holes)
    made = verify(plan(p, machine=INT8))
    assert "dot4(" in text(made)
    assert text(parse(text(made))) == text(made)
    agree(p, made, rtol=0, atol=0)


@pytest.mark.parametrize(
    "results, holes, machine",
    [
        (*dot(), DEFAULT),  # no such instruction
        (*dot(move=lambda x, y: (ng.sqrt(x), y)), INT8),
        (*dot(move=lambda x, y: (x * 3, y), kind=INT), INT8),
        (*dot(x=np.int16), INT8),
        (*dot(8, 1 << 17, 8), INT8),  # a sum may be larger than int32 holds
        (*dot(1, 1000, 1000), INT8),  # each element is read once: packing takes longer
        (*dot(4, 8, 4), INT8),
        (*window(zero=-5), INT8),  # 5 to 260, and 0 where it is padded
    ],
    ids=["another machine", "roots", "multiples", "int16", "a long sum", "a vector", "small", "padding that is not a byte"],
)
def test_others_stay_as_they_are(results, holes, machine):
    assert "pack4(" not in text(plan(program(results, *holes), machine=machine))


def test_sums_of_parameters_are_taken_before_any_call():
    m, k, n = axis(16, "M"), axis(512, "K"), axis(512, "N")
    x, w = hole(m, k, dtype=np.uint8), ng.variable([k, n], dtype=np.int8, initial_value=0)
    made = plan(program([ng.dot(ng.cast(x, FLOAT) - 9, ng.cast(w, FLOAT))], x), machine=INT8)
    lines = [line.op for step in made.once for s in step.stages for line in s.before]
    sums = [c for step in made.once for s in step.stages for c in s.combine]
    assert "pack4" in lines and sums
    assert not any(s.combine for step in made.steps for s in step.stages if "dot4" not in [line.op for line in s.before])


@pytest.mark.parametrize("make", FORMS.values(), ids=list(FORMS))
def test_machine_code_gives_it_too(make):
    """On this machine: by its instruction for groups of four, if it has one."""
    results, holes = make()
    p = program(results, *holes)
    inputs, state = arrays_for(p)
    with ngt.allocate_transformer("cpu") as t:
        got = t.computation(results, *holes)(*inputs)
    for a, b in zip(got, oracle(p, inputs, dict(state))[0], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("per", ["column", "tensor"])
def test_scales_multiply_the_sum(per):
    results, holes = quantised(per)
    p = program(results, *holes)
    made = verify(plan(p, machine=INT8))
    assert "dot4(" in text(made)
    agree(p, made, rtol=1e-6, atol=0)


def test_scales_that_change_along_the_sum_stay_in_it():
    m, k, n = axis(64, "M"), axis(62, "K"), axis(66, "N")
    a, w, scales = hole(m, k, dtype=np.uint8), hole(k, n, dtype=np.int8), ng.variable([k], initial_value=0.5)
    p = program([ng.dot(ng.cast(a, FLOAT) * scales, ng.cast(w, FLOAT))], a, w)
    assert "pack4(" not in text(plan(p, machine=INT8))


def test_sums_of_nothing_but_zeros_are_no_negative_zero():
    m, k, n = axis(64, "M"), axis(62, "K"), axis(66, "N")
    a, w = hole(m, k, dtype=np.uint8), hole(k, n, dtype=np.int8)
    y = ng.dot(ng.cast(a, FLOAT) * -0.5, ng.cast(w, FLOAT))
    assert "dot4(" in text(plan(program([y], a, w), machine=INT8))
    with ngt.allocate_transformer("cpu") as t:
        got = t.computation(y, a, w)(np.zeros((64, 62), np.uint8), np.ones((62, 66), np.int8))
    assert not np.signbit(got).any()


@pytest.mark.parametrize("first", [0, 1])
def test_a_part_and_the_whole_of_a_factor_have_groups_of_their_own(first):
    """A product over half of an axis, and one over all of it, with the same factors."""
    m, k, n = axis(64, "M"), axis(512, "K"), axis(64, "N")
    a, b = hole(m, k, dtype=np.uint8), hole(k, n, dtype=np.int8)
    half, whole = ng.dot(ng.cast(a[:, :256], INT), ng.cast(b[:256], INT)), ng.dot(ng.cast(a, INT), ng.cast(b, INT))
    draw = np.random.default_rng(0)
    x, y = draw.integers(0, 256, (64, 512), np.uint8), draw.integers(-128, 128, (512, 64), np.int8)
    made = plan(program([half, whole][:: 1 - 2 * first], a, b), machine=INT8)
    assert "pack4" in text(made)
    got = interpret(made, [x, y], {})[0][:: 1 - 2 * first]
    for z, terms in zip(got, (256, 512), strict=True):
        np.testing.assert_array_equal(z, x[:, :terms].astype(INT) @ y[:terms].astype(INT))

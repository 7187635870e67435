"""Kernels that differ in names alone are written once, and what is taken for alike is alike."""

import dataclasses
import inspect
import sys

import numpy as np
import plans
import pytest
from cells import case, cells
from plan_programs import agree, axis, hole, program
from test_kernels import network

import ngraph as ng
from ngraph.codegen.deduplication import moved
from ngraph.codegen.kernel import emit
from ngraph.op_graph.expr import Idx, Len, minimum
from ngraph.plan.deduplication import shape
from ngraph.plan.kernels import Buffer, Kernel
from ngraph.plan.planner import plan
from ngraph.plan.verify import verify
from ngraph.program.lower import lower
from ngraph.targets import host

EVERY = sorted({(r, d) for r, d, _ in cells("value") if d == "float32"})


def layers(count):
    """So many equal layers, each over axes of its own."""
    n, axes = axis(60, "N"), [axis(256, f"H{k}") for k in range(count + 1)]
    x = hole(axes[0], n)
    weights = [hole(k, h) for h, k in zip(axes, axes[1:], strict=False)]
    y = x
    for h, w in zip(axes, weights, strict=False):
        y = ng.tanh(ng.dot(w, ng.softmax(y, h)))
    return program([y], x, *weights)


def check(made):
    """Each kernel of a plan, written by itself, is what a like one before it was, moved. How many kernels and shapes there are."""
    first = {}
    kernels = [s for s in made.every if type(s) is Kernel]
    for k in kernels:
        s, code = shape(made, k), emit(made, k, host())
        if s.key in first:
            other, known = first[s.key]
            assert moved(known, other, s) == code
        else:
            first[s.key] = s, code
    return len(kernels), len(first)


def test_equal_layers_are_one():
    few, many = check(plan(layers(12))), check(plan(layers(36)))  # of as many as one kernel takes together, of the rest, of the ends
    assert many[0] > few[0] and many[1] == few[1]


def test_small_layers_share_kernels_that_do_not_grow():
    """Layers that fit one kernel together, were it long enough: a hundred of them are the same few kernels again and again."""
    n, h = axis(32, "N"), axis(64, "H")

    def stack(count):
        x, ws = hole(n, h), [hole(h, axis(64, f"G{k}")) for k in range(count)]
        y = x
        for w in ws:
            y = y + ng.cast_axes(ng.tanh(ng.dot(y, w)), [n, h])
        return plan(program([y], x, *ws))

    made = stack(96)
    kernels, different = check(made)
    assert different <= 4 < kernels
    assert max(len(k.stages) for k in made.kernels) == max(len(k.stages) for k in stack(48).kernels)


def test_numbers_that_differ_in_the_sign_of_zero_are_two():
    """Kernels that read their numbers: 0.0 and -0.0 are equal, and not the same."""
    numbers, n = (1.0, 0.0, -0.0, 2.0, 3.0, 4.0, 5.0), axis(30, "N")
    holes = [hole(axis(40, f"K{k}"), n) for k in range(len(numbers))]
    made = plan(program([ng.sort(h * c, n) for h, c in zip(holes, numbers, strict=True)], *holes))
    assert any(b.name.startswith("number_") for b in made.buffers)
    got, _ = plans.run(made, [np.ones((40, 30), np.float32)] * len(numbers))
    assert [repr(float(x[0, 0])) for x in got] == [repr(c) for c in numbers]


@pytest.mark.parametrize(("record", "dtype"), EVERY, ids=["-".join(c) for c in EVERY])
def test_what_is_alike_has_equal_code(record, dtype):
    c = case(record, dtype)
    check(plan(lower(c.roots, c.holes).program))


def test_open_lengths_and_training_steps():
    n, h = ng.make_axis(None, name="N"), axis(16, "H")
    x, y = hole(h, n), hole(h, n)
    check(plan(program([ng.tanh(x) * 2, ng.sum(ng.tanh(y), h) * 2, ng.tanh(x) * 3], x, y)))
    check(plan(network()))


CHANGES = {
    "a length": lambda p, k, b: p.axes.update({b.axes[0]: 17}),
    "an open length": lambda p, k, b: p.axes.update({b.axes[0]: Len(b.axes[0])}),
    **{f: lambda p, k, b, f=f: setattr(b, f, "another") for f in Buffer.__slots__ if f not in ("name", "offset", "value", "shares")},
    "whose memory": lambda p, k, b: setattr(b, "shares", k.targets[0]),
    "a block": lambda p, k, b: dataclasses.replace(k, loops=tuple((a, n + 1) for a, n in k.loops) or ((b.axes[0], 2),)),
    "a stage": lambda p, k, b: dataclasses.replace(k, stages=k.stages[:-1]),
    "a depth": lambda p, k, b: dataclasses.replace(k, stages=tuple(dataclasses.replace(s, depth=s.depth + 1) for s in k.stages)),
    "a predicate": lambda p, k, b: setattr(next(r for s in k.stages for r in s.reads()), "predicate", (Idx(b.axes[0]),)),
}
NAMES = {
    "a name": lambda p, k, b: setattr(b, "name", "another"),
    "a place": lambda p, k, b: setattr(b, "offset", None if b.offset is None else b.offset + 64),
    "an origin": lambda p, k, b: dataclasses.replace(k, origin=()),
    "a price": lambda p, k, b: dataclasses.replace(k, seconds=k.seconds + 1),
}


def test_an_index_that_is_too_deep_is_like_no_other():
    made = plan(layers(2))
    k = next(s for s in made.every if type(s) is Kernel)
    read = next(r for s in k.stages for r in s.reads())
    a = next(iter(read.index))
    for _ in range(80):
        read.index[a] = minimum(read.index[a] + 1, Len(a)) * 2
    assert shape(made, k).key == shape(made, k).key
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(len(inspect.stack(0)) + 120)
        found = shape(made, k)
    finally:
        sys.setrecursionlimit(limit)
    assert found is None


def changed(how):
    """The keys of a kernel before and after a change."""
    made = plan(layers(2))
    k = next(s for s in made.every if type(s) is Kernel)
    before = shape(made, k).key
    other = how(made, k, k.sources[0])
    return before, shape(made, other if type(other) is Kernel else k).key


@pytest.mark.parametrize("what", CHANGES)
def test_a_kernel_that_differs_is_not_alike(what):
    before, after = changed(CHANGES[what])
    assert before != after


@pytest.mark.parametrize("what", NAMES)
def test_names_and_places_do_not_count(what):
    before, after = changed(NAMES[what])
    assert before == after


def test_kernels_that_differ_in_numbers_alone_read_them():
    n, k = axis(60, "N"), axis(48, "K")
    xs = [hole(n, k) for _ in range(8)]
    outs = [ng.sum(ng.exp(ng.maximum((x + 0.5) / (0.3 + 0.01 * i), -1 - i)), reduction_axes=[k]) ** (2 + i % 2) for i, x in enumerate(xs)]
    p = program(outs, *xs)
    made = plan(p)
    keys = {shape(made, s).key for s in made.every if type(s) is Kernel}
    values = [line.attrs["value"] for s in made.kernels for stage in s.stages for _, line in stage.lines() if line.op == "number"]
    assert len(made.kernels) == 8 and len(keys) == 2  # exponents stay: a square is another code than a cube
    assert 0.5 in values and not any(v < 0 or 0.29 < v < 0.36 for v in values)
    assert sum([b.storage == "constant" and not b.dims for b in made.buffers]) == 16
    agree(p, verify(made))


def test_a_few_kernels_keep_their_numbers():
    n = axis(60, "N")
    x = hole(n)
    made = plan(program([ng.exp(x * (2 + i)) for i in range(3)], x))
    assert not any(b.storage == "constant" for b in made.buffers)

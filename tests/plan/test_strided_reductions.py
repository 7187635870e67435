"""split: gradients of strided windows do the needed arithmetic only, without predicates of remainders: they give what the oracle gives."""

import math

import pytest
from plan_programs import agree, axis, hole, program

import ngraph as ng
from ngraph.op_graph import expr
from ngraph.op_graph.expr import Idx
from ngraph.ops.rearrange import reindex
from ngraph.plan.kernels import Local
from ngraph.plan.verify import verify
from ngraph.tensors.build import build
from ngraph.tensors.strided_reductions import split_strided_reductions
from ngraph.tensors.verify import verify as verify_graph

N, C, K = axis(4, "N"), axis(3, "C"), axis(5, "K")


def remainders(made):
    """The predicates that ask whether a division comes out even."""
    predicates = [g for k in made.kernels for s in k.stages for r in s.reads() for g in r.predicate]
    return [g for g in predicates if "%" in expr.text(g)]


def products(made):
    """Places at which stages multiply and sum."""
    total = 0
    for k in made.kernels:
        for s in k.stages:
            if any(c.kind == "add" for c in s.combine) and "multiply" in [line.op for line in s.before]:
                total += math.prod([made.length(a) for a in {*s.free, *s.reduced, *[a for a, _ in k.loops[: s.depth]]}])
    return total


def convolution(height, width, window, stride, pad, dilation=1):
    h, w, r, s = axis(height, "H"), axis(width, "W"), axis(window, "R"), axis(window, "S")
    x, f = hole(N, C, h, w), hole(K, C, r, s)
    y = ng.conv(x, f, {h: r, w: s}, stride=stride, padding=pad, dilation=dilation)
    return x, f, y


@pytest.mark.parametrize(
    ("height", "width", "window", "stride", "pad", "dilation"),
    [
        (8, 8, 3, 2, 1, 1),
        (9, 7, 3, 2, 1, 1),
        (12, 11, 5, 3, 2, 1),
        (8, 6, 1, 2, 0, 1),
        (13, 13, 3, 2, 2, 2),
        (10, 9, 2, 4, 0, 1),
        (15, 8, 3, 2, 0, 3),
    ],
)
def test_gradient_of_a_strided_convolution(height, width, window, stride, pad, dilation):
    x, f, y = convolution(height, width, window, stride, pad, dilation)
    p = program([ng.deriv(ng.sum(y * y, out_axes=()), x)], x, f)
    made = verify(agree(p, rtol=1e-4, atol=1e-4))
    assert not remainders(made)


def test_its_arithmetic_is_what_is_needed():
    x, f, y = convolution(16, 16, 3, 2, 1)
    dy = hole(*y.axes)
    made = verify(agree(program([ng.deriv(ng.sum(y * dy, out_axes=()), x)], x, f, dy), rtol=1e-4, atol=1e-4))
    assert products(made) <= 1.3 * math.prod([len(a) for a in (N, C, K)]) * 8 * 8 * 9


@pytest.mark.parametrize(
    ("height", "width", "window", "stride", "pad"), [(8, 8, 2, 2, 0), (9, 8, 3, 2, 1), (10, 11, 3, 3, 0), (7, 7, 3, 2, 0)]
)
def test_gradient_of_pooling(height, width, window, stride, pad):
    h, w = axis(height, "H"), axis(width, "W")
    x = hole(N, C, h, w)
    y = ng.max_pool(x, {h: window, w: window}, stride=stride, padding=pad)
    made = verify(agree(program([ng.deriv(ng.sum(y * y, out_axes=()), x)], x), rtol=1e-4, atol=1e-4))
    assert not remainders(made)


def test_transposed_convolution():
    h, w, r, s = axis(6, "H"), axis(5, "W"), axis(4, "R"), axis(3, "S")
    x, f = hole(N, C, h, w), hole(C, K, r, s)
    made = verify(agree(program([ng.deconv(x, f, {h: r, w: s}, stride=2)], x, f), rtol=1e-4, atol=1e-4))
    assert not remainders(made)


def test_a_pooling_window_is_written_out():
    h, w = axis(9, "H"), axis(8, "W")
    x = hole(N, C, h, w)
    best = ng.max_pool(ng.relu(x), {h: 3, w: 3}, stride=2, padding=1)
    mean = ng.avg_pool(x, {h: 2, w: 2})
    made = verify(agree(program([best, mean], x)))
    assert not any(s.reduced for k in made.kernels for s in k.stages)


def test_terms_of_a_computed_value_are_computed_once_each():
    r = axis(3, "R")
    x, y = hole(N, C, r), hole(N, C, r)
    made = verify(agree(program([ng.sum(ng.exp(x) * ng.tanh(y), reduction_axes=[r]), ng.max(ng.tanh(x - y), reduction_axes=[r])], x, y)))
    assert made.arena == 0


def loops(made):
    return [(k, s) for k in made.kernels for s in k.stages]


@pytest.mark.parametrize("window", [2, 3])
@pytest.mark.parametrize("last", [False, True], ids=["rows", "channels"])
def test_the_gradient_of_windows_side_by_side_is_one_pass(window, last):
    """Each place of a window in a class of its own: what lies side by side is read side by side, nothing is kept on the way."""
    h, w = axis(4 * window, "H"), axis(5 * window, "W")
    x = hole(N, h, w, C) if last else hole(N, C, h, w)
    for pool in (ng.max_pool, ng.avg_pool):
        y = pool(x, {h: window, w: window})
        dy = hole(*y.axes)
        made = verify(agree(program([ng.deriv(y, x, dy)], x, dy), rtol=1e-6, atol=1e-6))
        ((_, stage),) = loops(made)
        assert len(stage.to) == window**2
        assert not any("//" in expr.text(e) or "%" in expr.text(e) for r in stage.reads() for e in r.index.values())


def test_elements_that_are_repeated_fall_into_classes():
    h, w = axis(6, "H"), axis(5, "W")
    twice, thrice = axis(11, "H2"), axis(15, "W3")
    x, z = hole(N, h, w), hole(N, twice, thrice)
    repeated = reindex.build(
        x,
        axes=ng.make_axes([N, twice, thrice]),
        index=((N, Idx(N)), (h, Idx(twice) // 2), (w, Idx(thrice) // 3)),
        predicate=(),
        pad_value=0,
    )
    made = verify(agree(program([ng.relu(repeated) + z], x, z)))
    ((_, stage),) = loops(made)
    assert len(stage.to) == 6 and sum(r.source is made.inputs[0] for r in stage.reads()) == 1


def test_a_value_in_classes_that_is_read_under_a_predicate_as_well_keeps_the_predicate():
    h, twice = axis(6, "H"), axis(11, "H2")
    x, z = hole(N, h), hole(N, twice)
    repeated = reindex.build(x, axes=ng.make_axes([N, twice]), index=((N, Idx(N)), (h, Idx(twice) // 2)), predicate=(), pad_value=0) + z
    first = reindex.build(repeated, axes=repeated.axes, index=((N, Idx(N)), (twice, Idx(twice))), predicate=(4 - Idx(twice),), pad_value=7)
    verify(agree(program([first - repeated], x, z)))


def test_a_class_that_is_shorter_reads_nothing_before_the_start():
    """15 = 4 + 4 + 4 + 3: what stands at the last place of the shorter class, counted from the end, would be at -1."""
    h, q = axis(15, "H"), axis(4, "Q")
    x, y = hole(h), hole(q, N)
    index = (q, Idx(h) % 4), (N, Idx(N))
    small = reindex.build(y * 2 - ng.exp(y), axes=ng.make_axes([h, N]), index=index, predicate=(), pad_value=0)
    back = reindex.build(x, axes=x.axes, index=((h, 14 - Idx(h)),), predicate=(), pad_value=0)
    verify(agree(program([small + back], x, y)))


def test_classes_of_unequal_length_are_stored_together():
    """111 = 56 + 55: the last place of the shorter ones is left out by a predicate."""
    h, w = axis(11, "H"), axis(13, "W")
    x = hole(N, C, h, w)
    y = ng.max_pool(x, {h: 3, w: 3}, stride=2, padding=1)
    dy = hole(*y.axes)
    made = verify(agree(program([ng.deriv(y, x, dy)], x, dy), rtol=1e-6, atol=1e-6))
    (stage,) = [s for _, s in loops(made) if len(s.to) > 1]
    assert len(stage.to) == 4 and [len(s.predicate) for s in stage.to] == [0, 1, 1, 2]


def test_classes_of_an_open_length_change_no_assumed_length():
    h, r = axis(None, "H"), axis(5, "R")
    x, f = hole(C, h), hole(C, K, r)
    graph = build(program([ng.deconv(x, f, {h: r}, stride=2)], x, f))
    split = verify_graph(split_strided_reductions(graph))
    assert split.made and {a: split.guesses[a] for a in graph.axes} == graph.guesses


def test_what_is_kept_for_others_is_what_spreads():
    """Of max-pooling's gradient the place of each maximum, once; not for each place of its window what goes there."""
    h, w = axis(48, "H"), axis(48, "W")
    x = hole(N, axis(16, "C"), h, w)
    y = ng.max_pool(x, {h: 3, w: 3}, stride=2, padding=1)
    dy = hole(*y.axes)
    made = agree(program([ng.deriv(y, x, dy)], x, dy), rtol=1e-6, atol=1e-6)
    (kept,) = {s.target for _, stage in loops(made) for s in stage.to if type(s.target) is Local}  # its border too is stored
    assert len(kept.axes) == 2 and kept.dtype.kind == "int"

"""Sums over windows by fewer products: the matrices are exact, plans give what the oracle gives, errors are bounded, and it pays."""

from fractions import Fraction

import numpy as np
import plans
import pytest
from kernels import RUNNABLE
from plan_programs import agree, arrays_for, axis, hole, program

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.plan.planner import plan
from ngraph.plan.text import text
from ngraph.plan.verify import verify
from ngraph.program import interpret as oracle
from ngraph.targets import host
from ngraph.tensors import winograd


@pytest.fixture
def always(monkeypatch):
    """Everything that can be transformed is."""
    monkeypatch.setattr(winograd, "MAX_WINOGRAD_TIME", float("inf"))


def conv(n=2, c=5, k=7, height=9, width=12, window=3, pad=1, kind=np.float32, **how):
    axes = [axis(m, a) for m, a in zip((n, c, k, height, width, window, window), "NCKHWRS", strict=True)]
    n, c, k, h, w, r, s = axes
    x, f = hole(n, c, h, w, dtype=kind), hole(k, c, r, s, dtype=kind)
    return x, f, ng.conv(x, f, {h: r, w: s}, padding=pad, **how), axes


def points(made):
    """How many sums of products at points a plan has."""
    over = [(s, (*s.free, *[a for a, _ in step.loops])) for step in made.every for s in step.stages]
    return sum(1 for s, axes in over if s.reduced and any(str(a).startswith("point") for a in axes))


@pytest.mark.parametrize("m, taps", [(2, 3), (4, 3), (2, 5), (3, 4), (3, 2), (5, 2), (2, 2), (1, 4)])
def test_the_matrices_are_exact(m, taps):
    a, g, b = winograd.matrices(m, taps)
    draw = np.random.default_rng(0)
    x = [Fraction(int(v), 7) for v in draw.integers(-50, 50, m + taps - 1)]
    w = [Fraction(int(v), 3) for v in draw.integers(-50, 50, taps)]

    def times(rows, v):
        return [sum(p * q for p, q in zip(row, v, strict=True)) for row in rows]

    products = [p * q for p, q in zip(times(g, w), times(b, x), strict=True)]
    assert times(a, products) == [sum(x[i + j] * w[j] for j in range(taps)) for i in range(m)]


@pytest.mark.parametrize(
    ("window", "pad", "kind"),
    [(3, 1, np.float32), (3, 0, np.float64), (5, 2, np.float32), (4, 1, np.float32)],
    ids=["3", "3 inside", "5", "4"],
)
def test_a_convolution_and_its_gradients(always, window, pad, kind):
    x, f, y, _ = conv(window=window, pad=pad, kind=kind)
    loss = ng.sum(y * y, out_axes=())
    p = program([y, ng.deriv(loss, x), ng.deriv(loss, f)], x, f)
    made = verify(plan(p))
    assert points(made) >= 2
    inputs, _ = arrays_for(p)
    expected, _ = oracle.interpret(p, inputs, {})
    for target in (host(), *RUNNABLE):
        for got, want in zip(plans.run(made, inputs, target=target)[0], expected, strict=True):
            assert np.abs(got - want).max() <= (2e-5 if kind is np.float32 else 1e-12) * np.abs(want).max()


def test_what_stands_behind_it_is_made_with_its_results(always):
    x, f, y, (n, _, k, h, w, *_) = conv(height=8, width=8)
    b, z = hole(k), hole(n, k, h, w)
    made = verify(agree(program([ng.relu(y + b) + z], x, f, b, z), rtol=1e-3, atol=1e-3))
    assert points(made) == 1
    (last,) = [s for s in made.steps if any(t.storage == "output" for t in s.targets)]
    assert not any(r.source in last.targets for stage in last.stages for r in stage.reads())


def test_its_epilogue_is_in_its_kernel():
    x, f, y, (n, _, k, h, w, *_) = conv(n=1, c=64, k=64, height=56, width=56)
    b, z = hole(k), hole(n, k, h, w)
    of_sum = plan(program([y], x, f))
    made = plan(program([ng.relu(y * b + b) + z], x, f, b, z))
    assert points(made) == 1 and len(made.steps) == len(of_sum.steps)


def test_sums_that_meet_are_both_transformed(always):
    """The epilogue that both have belongs to one of them."""
    x, f, y, (n, c, k, h, w, r, s) = conv(height=8, width=8)
    g, b = hole(k, c, r, s), hole(k)
    z = ng.conv(x, g, {h: r, w: s}, padding=1)
    for result in (ng.relu(y * b + z), ng.relu(z + y), ng.tanh(z) + ng.tanh(y)):
        assert points(verify(agree(program([result], x, f, g, b), rtol=1e-3, atol=1e-3))) == 2


def test_the_update_of_a_filter_stays_in_its_memory():
    n, c, k, h, w, r, s = (axis(m, a) for m, a in zip((32, 16, 32, 14, 14, 5, 5), "NCKHWRS", strict=True))
    x, t = hole(n, c, h, w), hole(n, k, h, w)
    f, v = ng.variable([k, c, r, s], initial_value=0.5), ng.variable([k, c, r, s], initial_value=0)
    loss = ng.squared_L2(ng.conv(x, f, {h: r, w: s}, padding=2) - t, out_axes=())
    moved = ng.assign(v, 0.9 * v + ng.deriv(loss, f))
    made = plan(program([ng.sequential([moved, ng.assign(f, f - 0.1 * v), loss])], x, t))
    assert points(made) == 3 and sum(b.storage == "state" and b.shares is not None for b in made.buffers) == 2


def test_one_axis_and_groups(always):
    n, c, k, t, r = axis(3, "N"), axis(6, "C"), axis(4, "K"), axis(21, "T"), axis(3, "R")
    x, f = hole(n, c, t), hole(k, c, r)
    y = ng.conv(x, f, {t: r}, padding=1)
    assert points(verify(agree(program([y, ng.deriv(ng.sum(y * y, out_axes=()), f)], x, f), rtol=1e-3, atol=1e-3))) == 2
    x, f, y, _ = conv(stride=2)
    assert not points(agree(program([y], x, f), rtol=1e-3, atol=1e-3))
    x, f, y, _ = conv(dilation=2, pad=2)
    assert not points(agree(program([y], x, f), rtol=1e-3, atol=1e-3))


def test_it_is_taken_where_it_pays():
    def taken(**sizes):
        x, f, y, _ = conv(n=1, **sizes)
        return bool(points(plan(program([y], x, f))))

    assert taken(c=64, k=64, height=56, width=56) and taken(c=70, k=60, height=33, width=29)
    assert not taken(c=3, k=64, height=56, width=56) and not taken(c=64, k=3, height=56, width=56)
    assert not taken(c=512, k=512, height=7, width=7)  # its filters would be more to read than there is to compute
    assert not taken(c=8, k=8, height=6, width=6)


def test_it_can_be_forbidden(always):
    """By a setting, also inside bodies; then whole numbers give whole numbers."""
    x, f, y, (n, _, k, h, w, *_) = conv()
    limit = hole()
    chosen = ng.cond(limit > 0, lambda: y, lambda: ng.conv(x, f * 2, {h: f.axes[2], w: f.axes[3]}, padding=1))
    own = program([y, chosen], x, f, limit)
    alone = text(plan(program([y], x, f))).count("point")
    assert text(plan(own)).count("point") == 2 * alone > 0 and "point" not in text(plan(own, winograd=False))
    draw = np.random.default_rng(0)
    values = [draw.integers(-9, 10, a.axes.lengths).astype(np.float32) for a in (x, f)]
    for allowed in (True, False):
        with ng.config(winograd=allowed), ngt.allocate_transformer("cpu") as t:
            shown = t.computation([y, chosen], x, f, limit)
            results = shown(*values, np.float32(-1))
            assert ("point" in str(shown.plan)) == allowed
            assert all(np.array_equal(a, np.rint(a)) for a in results) == (not allowed)


def test_errors_are_bounded_at_full_size():
    x, f, y, _ = conv(n=1, c=256, k=64, height=28, width=28)
    p = program([y], x, f)
    made = plan(p)
    assert points(made)
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=(1, 256, 28, 28)).astype(np.float32), draw.normal(size=(64, 256, 3, 3)).astype(np.float32)
    (got,), _ = plans.run(made, [a, b])
    padded = np.pad(a[0].astype(np.float64), ((0, 0), (1, 1), (1, 1)))
    want = sum(
        np.einsum("kc,chw->khw", b[:, :, i, j].astype(np.float64), padded[:, i : i + 28, j : j + 28]) for i in range(3) for j in range(3)
    )
    assert np.abs(got[0] - want).max() <= 2e-5 * np.abs(want).max()


def test_filters_are_transformed_in_the_order_in_which_they_are_read():
    """Filters that change: from the first transform on their vectors lie as the products want them, and nothing is copied on the way."""
    x, f, y, _ = conv(8, 256, 256, 14, 14)
    made = verify(plan(program([y], x, f)))
    (kernel,) = [step for step in made.steps if any(s.reduced for s in step.stages)]
    targets = [s.target for stage in kernel.stages for s in stage.to]
    assert points(made) == 1 and {t.dims[-1][0] for t in targets if {"C", "K"} <= set(t.axes)} == {"K"}
    assert not any(len(stage.before) == 1 for stage in kernel.stages)


@pytest.mark.parametrize("channels, window, pays", [(32, 5, False), (64, 5, False), (64, 2, False), (128, 3, True), (256, 5, True)])
def test_short_sums_over_windows_that_lie_together_stay_as_they_are(channels, window, pays):
    """In the user's own order, places last, tiles are turned over and back: that takes as long as short sums do."""
    n, c, k, w, r = axis(16, "N"), axis(channels, "C"), axis(channels, "K"), axis(1000, "W"), axis(window, "R")
    x, f = hole(n, c, w), ng.variable([k, c, r], initial_value=0.0)
    assert ("point" in text(plan(program([ng.conv(x, f, {w: r}, padding=window // 2)], x)))) == pays

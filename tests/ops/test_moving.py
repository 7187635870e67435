"""Rolls, tiles and padding read runs of consecutive elements: the runs of any places, and that nothing is left to remainders."""

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import AxisError
from ngraph.ops.moving import LONGEST, PARTS, _runs

RANDOM = np.random.default_rng(0)
PLACES = {
    "roll": lambda n: np.roll(np.arange(n), RANDOM.integers(-20, 20)),
    "tile": lambda n: np.tile(np.arange(n), RANDOM.integers(1, 4)),
    "any": lambda n: RANDOM.integers(0, 3, n),
    **{m: lambda n, m=m: np.pad(np.arange(n), tuple(RANDOM.integers(0, 6, 2)), m) for m in ("edge", "reflect", "wrap")},
}


@pytest.mark.parametrize("kind", PLACES)
def test_runs_are_the_places(kind):
    for _ in range(300):
        places = PLACES[kind](RANDOM.integers(1, 9))
        runs = _runs(places)
        assert runs is not None or len(places) > PARTS
        assert runs is None or [first + step * k for first, step, count in runs for k in range(count)] == list(places)


def test_many_runs_are_none():
    assert _runs(np.tile([0, 2], PARTS)) is None and _runs(np.arange(5)[::-1]) == [(4, -1, 5)] and LONGEST * 8 == 1 << 25


MOVES = {
    "roll": (lambda x, a, k: ng.roll(x, {"H": a, "W": -k}), lambda v, a, k: np.roll(v, (a, -k), (0, 1))),
    "tile": (lambda x, a, k: ng.tile(x, {"W": k, "H": a}), lambda v, a, k: np.tile(v, (a, k))),
    **{
        m: (
            lambda x, a, k, m=m: ng.pad(x, {"W": (a, k)}, mode=m),
            lambda v, a, k, m=m: np.pad(v, ((0, 0), (a, k)), m.replace("circular", "wrap")),
        )
        for m in ("edge", "reflect", "circular")
    },
}


@pytest.mark.parametrize("transformer", ["numpy", "cpu"])
@pytest.mark.parametrize("kind", MOVES)
def test_moves_and_their_gradients(kind, transformer):
    ours, theirs = MOVES[kind]
    for shape in ((3, 7), (1, 1), (2, 1), (1, 5)):
        for a, k in ((1, 2), (3, 0), (0, 9)):
            x = ng.placeholder([ng.make_axis(n, name=m) for n, m in zip(shape, "HW", strict=True)])
            value = RANDOM.standard_normal(shape).astype(np.float32)
            y = ours(x, a, k)
            expected = theirs(value, a, k)
            weights = RANDOM.standard_normal(expected.shape).astype(np.float32)
            slope = ng.deriv(ng.sum(y * ng.constant(weights, y.axes), out_axes=()), x)
            found, gradient = ngt.make_transformer_factory(transformer)().computation([y, slope], x)(value)
            np.testing.assert_array_equal(found, expected)
            places = theirs(np.arange(value.size).reshape(shape), a, k)
            adjoint = np.bincount(places.ravel(), weights.ravel().astype(np.float64), value.size).reshape(shape)
            np.testing.assert_allclose(gradient, adjoint, rtol=1e-5, atol=1e-5)


def test_vectors_are_read_from_consecutive_elements():
    x = ng.placeholder("H=8 W=64")
    for op in (ng.roll(x, 3, "W"), ng.tile(x, {"W": 2}), ng.pad(x, {"W": 3}, mode="reflect"), ng.pad(x, {"W": 3}, mode="circular")):
        plan = dict(ngt.make_transformer_factory("cpu")().computation(op, x).stages())["fuse"]
        assert "%" not in "".join(line.partition("= read")[2].partition("[")[2] for line in plan.splitlines()), plan


@pytest.mark.parametrize("mode", ["edge", "reflect", "circular"])
def test_paddings_longer_than_the_axis_and_of_lengths_that_come_with_calls(mode):
    """One reflection where the padding is shorter than the axis, several where it is longer, one element, and open lengths."""
    for shape in ((5, 7), (1, 4), (4, 1), (2, 3)):
        value = RANDOM.standard_normal(shape).astype(np.float32)
        for across, along in (((1, 0), (2, 3)), ((4, 4), (6, 6)), ((0, 9), (8, 1))):
            expected = np.pad(value, (across, along), mode.replace("circular", "wrap"))
            for text in ("H={} W={}".format(*shape), "H=? W=?", f"H=? W={shape[1]}"):
                x = ng.placeholder(text)
                found = ng.function(ng.pad(x, {"H": across, "W": along}, mode=mode), x)(value)
                np.testing.assert_array_equal(found, expected, err_msg=f"{text} {across} {along}")


@pytest.mark.parametrize("lengths", ["H=3 W=4", "H=? W=?"])
@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_counts_may_be_integers_of_numpy(lengths, kind):
    x, v = ng.placeholder(lengths), np.arange(12, dtype=np.float32).reshape(3, 4)
    two = kind(2)
    results = [
        (ng.roll(x, {"W": two, "H": kind(1)}), np.roll(v, (2, 1), (1, 0))),
        (ng.repeat(x, two, "H"), np.repeat(v, 2, 0)),
        (ng.tile(x, {"W": two}), np.tile(v, (1, 2))),
        (ng.pad(x, {"H": kind(1), "W": (two, kind(0))}, value=np.float64(2.5)), np.pad(v, ((1, 1), (2, 0)), constant_values=2.5)),
        (ng.split(x, "W", two)[1], v[:, 2:]),
        (x[:: kind(2), kind(1)], v[::2, 1]),
    ]
    for got, (_, wanted) in zip(ng.function([made for made, _ in results], x)(v), results, strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert all(type(a.length) is int for made, _ in results for a in made.axes if a.length is not None)


@pytest.mark.parametrize("write", [lambda x: ng.repeat(x, -1, "H"), lambda x: ng.tile(x, {"H": -2})])
def test_counts_below_0_are_refused(write):
    with pytest.raises(AxisError, match=r"H=5 is taken -\d times"):
        write(ng.placeholder("N=2 H=5"))

"""Every slice of every short axis is Python's, whether the length is known or comes with the call; and what is chosen of nothing."""

import itertools

import numpy as np
import pytest

import ngraph as ng
from ngraph.errors import ArgumentError, AxisError

B = ng.make_axis(2, name="B")
EDGES = (None, *range(-8, 9))
STEPS = (None, 1, 2, 5, -1, -2, -7)
EVERY = [slice(*s) for s in itertools.product(EDGES, EDGES, STEPS)]
FEW = [slice(*s) for s in itertools.product((None, -7, -4, -1, 0, 2, 7), (None, -6, -3, -1, 0, 3, 7), (1, 3, -1, -2))]  # for compiled code


def differing(transformer, lengths, known):
    """(length, slice) where the transformer does not give NumPy's elements, or takes them for another shape."""
    slices = FEW if transformer.name == "cpu" else EVERY
    wrong = []
    for ns in ([n] for n in lengths) if known else [lengths]:
        x = ng.placeholder([ng.make_axis(ns[0] if known else None, name="A"), B])
        for some in [slices[k : k + 100] for k in range(0, len(slices), 100)]:
            f = transformer.computation([x[s] for s in some], x)
            for n in ns:
                v = np.arange(2.0 * n, dtype="f4").reshape(n, 2)
                wrong += [(n, s) for s, got in zip(some, f(v), strict=True) if not np.array_equal(got, v[s])]
    return wrong


@pytest.mark.parametrize("known", [True, False], ids=["known", "open"])
def test_every_slice_of_short_axes_is_pythons(transformer, known):
    lengths = (1, 3, 4) if transformer.name == "cpu" and known else range(7)
    assert differing(transformer, lengths, known) == []


@pytest.mark.parametrize("choose, by", [(ng.argmax, np.argmax), (ng.argmin, np.argmin)])
def test_nothing_can_be_chosen_of_no_elements(transformer, choose, by):
    A, Z = ng.make_axis(name="A"), ng.make_axis(0, name="Z")
    x, z = ng.placeholder([A, B]), ng.placeholder([Z, B])
    with pytest.raises(AxisError, match="among no elements"):
        choose(z, reduction_axes=[Z])
    assert choose(z, reduction_axes=[B]).axes == z.axes - ng.make_axes([B])
    v = np.array([[3, 1], [2, 5], [3, 5]], "f4")
    for cut, least in ((slice(None), 1), (slice(1, None), 2), (slice(None, None, 3), 1)):
        f = transformer.computation(choose(x[cut], reduction_axes=[A]), x)
        for _ in range(4):  # the later ones of compiled code do not pass through Python
            np.testing.assert_array_equal(f(v), by(v[cut], axis=0))
        with pytest.raises(ArgumentError, match="along A"):
            f(v[: least - 1])
        np.testing.assert_array_equal(f(v), by(v[cut], axis=0))
    along = transformer.computation(choose(x, reduction_axes=[B]), x)
    assert along(v[:0]).shape == (0,)


def test_nothing_can_be_chosen_of_what_turns_out_empty(transformer):
    x = ng.placeholder([B])
    (found,) = ng.nonzero(ng.greater(x, 0))
    f = transformer.computation(ng.argmax(found, out_axes=()), x)
    assert f(np.array([4, 1], "f4")) == 1
    with pytest.raises(ArgumentError, match="among no elements"):
        f(np.array([0, 0], "f4"))


def test_a_length_that_comes_after_the_op_is_looked_at_when_the_computation_is_made(transformer):
    L = ng.make_axis(name="L")
    y = ng.placeholder([L])
    best = ng.argmax(y, out_axes=())
    L.length = 0
    with pytest.raises(AxisError, match="among no elements"):
        transformer.computation(best, y)


def test_what_is_sliced_can_be_chosen_from_by_the_axis_before(transformer):
    H = ng.make_axis(5, name="H")
    x = ng.placeholder([H, B])
    v = np.array([[9, 0], [1, 2], [5, 1], [5, 7], [0, 7]], "f4")
    f = transformer.computation([ng.argmax(x[1:], reduction_axes=[H]), ng.argmin(x[::-2], reduction_axes=[B, H])], x)
    best, least = f(v)
    np.testing.assert_array_equal(best, v[1:].argmax(0))
    assert least == v[::-2].T.argmin()

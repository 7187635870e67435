"""Axes that are read at digits of their index are split, for known and open lengths; values stay what they are."""

import itertools
import random

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.op_graph.expr import Idx, Len, combine, evaluate
from ngraph.program.program import AxisId
from ngraph.tensors.build import build
from ngraph.tensors.digits import simplified, split_digits
from ngraph.tensors.edit import GraphEditor
from ngraph.tensors.graph import TensorGraph
from ngraph.tensors.verify import verify

LENGTHS = {"A": 4, "B": 6, "C": 5, "L": 7, "M": 3}
OPEN = {"L": Len(AxisId("L")), "M": Len(AxisId("M"))}
EDITOR = GraphEditor(TensorGraph({AxisId(a): OPEN.get(a, n) for a, n in LENGTHS.items()}))


def value(e, at):
    return evaluate(e, lambda x: at[x.of] if type(x) is Idx else LENGTHS[x.of])


def drawn(rng):
    """A sum of multiples of indices, divided once or twice; units are lengths, products of these, and numbers that are neither."""
    units = [1, 4, 6, 24, 5, 2, 3, -1, -6, OPEN["L"], OPEN["M"], OPEN["L"] * 4, OPEN["L"] * OPEN["M"], OPEN["M"] * 6]
    e = 0
    for a in rng.sample("ABCLM", rng.randrange(1, 4)):
        e = e + Idx(AxisId(a)) * rng.choice(units)
    for _ in range(rng.randrange(1, 3)):
        e = combine(rng.choice(["//", "%"]), e, rng.choice([u for u in units if not isinstance(u, int) or u > 1]))
    return e


def divisions(e):
    return 0 if isinstance(e, int) or not hasattr(e, "op") else (e.op in ("//", "%")) + divisions(e.a) + divisions(e.b)


def test_divisions_that_are_carried_out_change_no_value():
    rng, fewer = random.Random(0), 0
    places = [dict(zip(LENGTHS, at, strict=True)) for at in itertools.product(*map(range, LENGTHS.values()))]
    for _ in range(1500):
        e = drawn(rng)
        made = simplified(e, EDITOR)
        fewer += divisions(made) < divisions(e)
        for at in rng.sample(places, 12):
            assert value(made, at) == value(e, at), (e, made, at)
    assert fewer > 200


def normed(x, channel, spatial):
    """A group normalisation as files have it: dims joined, normalised, and apart again."""
    names = [a.name for a in x.axes if a.name not in (channel, *spatial)]
    parts = f"({channel} {' '.join(spatial)})"
    flat = ng.rearrange(x, f"{' '.join(a.name for a in x.axes)} -> {' '.join(names)} {parts}")
    whole = flat.axes[-1]
    centred = flat - ng.mean(flat, whole.name)
    made = centred / ng.sqrt(ng.mean(ng.square(centred), whole.name) + 1e-5)
    return ng.rearrange(made, f"{' '.join(names)} {parts} -> {' '.join(a.name for a in x.axes)}")


def graph_of(y, *inputs):
    program = ngt.make_transformer_factory("direct")().computation(y, *inputs).program
    before = build(program)
    return before, split_digits(before)


def divided(graph):
    return sum(divisions(e) for n in graph.nodes for r in n.reads for e in r.index.values() if any(type(x) is Idx for x in leaves(e)))


def leaves(e):
    return [] if isinstance(e, int) else [*leaves(e.a), *leaves(e.b)] if hasattr(e, "op") else [e]


@pytest.mark.parametrize("axes", ["N=2 H=5 W=3 C=4", "N=? H=5 W=3 C=4", "N=? H=? W=3 C=4", "N=2 H=? W=? C=4"])
def test_a_normalisation_over_joined_dims_divides_no_index(axes):
    x = ng.placeholder(axes)
    before, after = graph_of(normed(x, "C", "HW"), x)
    assert divided(before) > 0 and divided(after) == 0
    assert verify(after) is after


@pytest.mark.parametrize("transformer", ["cpu", "direct", "numpy"])
@pytest.mark.parametrize("axes", ["N=3 H=5 W=3 C=4", "N=? H=? W=3 C=4", "N=3 H=? W=? C=4"])
def test_its_values_and_derivatives(axes, transformer):
    x = ng.placeholder(axes)
    y = normed(x, "C", "HW")
    weights = np.random.default_rng(1).standard_normal((3, 5, 3, 4))
    with ngt.make_transformer_factory(transformer)() as t:
        z = ng.placeholder(axes)
        call = t.computation([y, ng.deriv(ng.sum(y * z, out_axes=()), x)], x, z)
        given = np.random.default_rng(0).standard_normal((3, 5, 3, 4))
        got, slope = call(given.astype("f"), weights.astype("f"))
    centre = given - given.mean((1, 2, 3), keepdims=True)
    root = np.sqrt((centre**2).mean((1, 2, 3), keepdims=True) + 1e-5)
    expected = centre / root
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    means = [(v).mean((1, 2, 3), keepdims=True) for v in (weights, weights * expected)]
    np.testing.assert_allclose(slope, (weights - means[0] - expected * means[1]) / root, rtol=1e-3, atol=1e-4)


def test_what_is_a_result_or_read_whole_stays():
    x = ng.placeholder("N=? C=4")
    flat = ng.rearrange(x, "N C -> (N C)")
    before, after = graph_of([flat * 2, ng.sum(flat, flat.axes[0].name)], x)
    assert divided(before) == divided(after) > 0


def test_windows_over_an_enlarged_picture_divide_no_index():
    """Each element of a window would be found by division otherwise: the picture is materialised."""
    x = ng.placeholder("N=? H=? W=? C=8")
    enlarged = ng.pixel_shuffle(x, "C", {"H": 2, "W": 2})
    filters = ng.constant(np.ones((3, 3, 2, 5), "f"), [ng.make_axis(n, name=a) for a, n in zip("HWCK", (3, 3, 2, 5), strict=True)])
    made = ng.conv(enlarged, filters, ["H", "W"], padding=1)
    _, graph = graph_of(made, x)
    product = next(n for n in graph.nodes if n.op == "multiply")
    assert not any(divisions(e) for r in product.reads for e in r.index.values())

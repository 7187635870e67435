"""Results are the caller's own, whatever a graph does: no array that comes out shares memory with another, or with what stays inside."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ngraph as ng
import ngraph.transformers as ngt

A, B = ng.make_axis(2, name="A"), ng.make_axis(3, name="B")
TABLE = np.arange(24, dtype=np.float32).reshape(2, 12)  # large enough to be held by reference
WIDE = ng.make_axis(12, name="WIDE")

# ops that a transformer can make by looking at memory in another way, or by giving what it has
VIEWS = {
    "itself": lambda x: x,
    "other order": lambda x: ng.axes_with_order(x, list(x.axes)[::-1]),
    "slice": lambda x: x[..., 1:] if len(x.axes[-1]) > 1 else x,
    "reversed": lambda x: x[..., ::-1],
    "row": lambda x: ng.expand_dims(x[0], ng.make_axis(1, name="one"), 0) if len(x.axes) > 1 else x,
    "flat": lambda x: ng.flatten(x),
    "broadcast": lambda x: ng.broadcast(x, [*x.axes, ng.make_axis(2, name="more")]) if "more" not in x.axes.names else x,
    "renamed": lambda x: ng.map_roles(x, {x.axes[0].name: "other"}) if "other" not in x.axes.names else x,
    "cast": lambda x: ng.cast(x, x.dtype),
    "value of": lambda x: ng.value_of(x),
    "plus one": lambda x: x + 1,
}


def computed(sources, recipe):
    made = list(sources)
    for name, k in recipe:
        made.append(VIEWS[name](made[k % len(made)]))
    return made[len(sources) :] or made


@pytest.mark.parametrize("name", ["direct", "numpy", "cpu"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(sorted(VIEWS)), st.integers(0, 20)), max_size=8), st.booleans())
def test_no_result_shares_memory(name, recipe, writes):
    x, v = ng.placeholder([A, B]), ng.variable([A, B], initial_value=np.ones((2, 3)))
    results = [*computed([x, v, ng.constant(TABLE, [A, WIDE])], recipe), v, ng.value_of(v), x]
    if writes:
        results.append(ng.assign(v, v + x))
    with ngt.make_transformer_factory(name)() as transformer:
        f = transformer.computation(results, x)
        argument = np.arange(6, dtype=np.float32).reshape(2, 3)
        first = [r for r in f(argument) if r is not None]
        kept = [r.copy() for r in first]
        inside = [argument, TABLE, *transformer.state.arrays.values()]
        for a, b in itertools.combinations(first, 2):
            assert not np.shares_memory(a, b)
        for a in first:
            assert not any(np.shares_memory(a, b) for b in inside)
        second = [r for r in f(argument + 1) if r is not None]
        for a, b in zip(first, kept, strict=True):
            np.testing.assert_array_equal(a, b)
        before = {k: s.copy() for k, s in transformer.state.arrays.items()}
        for a in [*first, *second]:
            a[...] = -99  # the caller may do with them as he likes
        for k, s in transformer.state.arrays.items():
            np.testing.assert_array_equal(s, before[k])
        if not writes:
            for a, b in zip([r for r in f(np.arange(6, dtype=np.float32).reshape(2, 3)) if r is not None], kept, strict=True):
                np.testing.assert_array_equal(a, b)

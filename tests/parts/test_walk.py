"""Walks over foreign graphs: order, depth, circles, and what has been done before; compared with recursion on random graphs."""

import random

import pytest

from ngraph.parts.walk import closure, post_order


def drawn(seed):
    """A random graph without circles: what each number needs, all of them smaller."""
    draw = random.Random(seed)
    return {n: draw.sample(range(n), min(n, draw.randrange(4))) for n in range(draw.randrange(1, 30))}


def recursive(roots, needs, done):
    for x in roots:
        if x not in done:
            yield from recursive(needs(x), needs, done)
            done.add(x)
            yield x


@pytest.mark.parametrize("seed", range(20))
def test_the_order_is_that_of_recursion(seed):
    graph = drawn(seed)
    roots = random.Random(seed).sample(sorted(graph), min(3, len(graph)))
    found = list(post_order(roots, graph.get))
    assert found == list(recursive(roots, graph.get, set())) and set(found) == closure(roots, graph.get)
    assert all(found.index(n) < found.index(x) for x in found for n in graph[x])


def test_what_the_caller_has_noted_is_left_out_and_what_it_needs_alone_too():
    graph = {"d": ["b", "c"], "c": ["a"], "b": ["e"], "a": [], "e": []}
    values = {"b": 7}
    for x in post_order(["d"], graph.get, values):
        values[x] = sum(values[n] for n in graph[x]) + 1
    assert values == {"b": 7, "a": 1, "c": 2, "d": 10}


def test_a_thing_may_need_more_once_others_are_known():
    """As a composite op does, which stands for what it lowers to."""
    lowered = {}

    def needs(x):
        return [lowered.setdefault(x, "small")] if x == "big" else []

    assert list(post_order(["big"], needs)) == ["small", "big"]


def test_depth_is_no_matter():
    assert list(post_order([0], lambda n: [n + 1] if n < 100_000 else []))[-1] == 0
    assert len(closure([0], lambda n: [n + 1] if n < 100_000 else [])) == 100_001


def test_a_closure_goes_round_circles():
    assert closure("a", {"a": "b", "b": "ca", "c": "", "d": "a"}.get) == set("abc")

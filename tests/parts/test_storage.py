"""Places by lifetimes: what lives at one time never shares a place, and the lowest gap is taken; on random lives, by brute force."""

import random

import pytest

from ngraph.parts.storage import lifetimes, lowest_place


def test_lifetimes_are_from_the_first_mention_to_the_last():
    steps = [("mul", ["x", "w"]), ("add", ["t", "b"]), ("mul", ["t", "x"])]
    assert lifetimes(reads for _, reads in steps) == {"x": (0, 2), "w": (0, 0), "t": (1, 2), "b": (1, 1)}
    assert list(lifetimes([["b", "a"], ["c", "a"]])) == ["b", "a", "c"] and lifetimes([]) == {}


@pytest.mark.parametrize("seed", range(50))
def test_the_lowest_place_is_what_trying_finds(seed):
    draw = random.Random(seed)
    taken = [(draw.randrange(20), draw.randrange(5)) for _ in range(draw.randrange(6))]
    size = draw.randrange(1, 6)
    free = next(at for at in range(60) if all(at + size <= offset or offset + n <= at for offset, n in taken))
    found = lowest_place(size, taken)
    if all(n for _, n in taken):
        assert found == free
    assert all(found + size <= offset or offset + n <= found for offset, n in taken)


def test_an_arena_for_a_foreign_list_of_steps():
    """As NNVM plans memory: each value lies where nothing lies that is still wanted."""
    steps = [("a", []), ("b", ["a"]), ("c", ["b"]), ("d", ["c", "b"])]
    sizes = {"a": 4, "b": 2, "c": 4, "d": 1}
    lives, places = lifetimes([made, *reads] for made, reads in steps), {}
    for made, _ in steps:
        first = lives[made][0]
        places[made] = lowest_place(sizes[made], [(places[x], sizes[x]) for x in places if lives[x][1] >= first])
    assert places == {"a": 0, "b": 4, "c": 0, "d": 6}

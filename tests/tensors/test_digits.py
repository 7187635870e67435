"""Digits of an index that lie in memory as the index does are one index again, against all values for some lengths."""

import itertools
import random

from ngraph.op_graph.expr import Idx, Len, combine, evaluate
from ngraph.tensors.index import digits_in, without_digits

LENGTHS = {"I": 60, "J": 7, "L": 4}


def length(axis):
    return Len(axis) if axis == "L" else LENGTHS[axis]


def total(walked, at):
    def leaf(x):
        return at[x.of] if type(x) is Idx else LENGTHS[x.of]

    return sum(evaluate(combine("*", e, stride), leaf) for stride, e in walked)


def places():
    return [dict(zip("IJ", at, strict=True)) for at in itertools.product(range(60), range(7))]


def digits(i, sizes):
    """Indices along dims of these sizes of a flat index, the upper ones first."""
    found = []
    for n in sizes[:0:-1]:
        found.insert(0, combine("%", i, n))
        i = combine("//", i, n)
    return [i, *found]


def test_digits_in_order_are_the_index():
    i, j = Idx("I"), Idx("J")
    for index in (i, i + j, i * 2 + j, Len("L") * j + i):
        for sizes in ((3, 5), (2, 3, 5), (4, Len("L"), 3), (2, 2, 2, 2), (60,)):
            strides = [1]
            for n in sizes[:0:-1]:
                strides.insert(0, combine("*", strides[0], n))
            walked = list(zip(strides, digits(index, sizes), strict=True))
            assert without_digits(walked, length) == [(1, index)]
            apart = [(combine("*", stride, 8), e) for stride, e in walked]
            assert without_digits([*apart, (3, j)], length) == [(8, index), (3, j)]


def test_digits_that_lie_otherwise_stay_digits():
    i = Idx("I")
    for walked in ([(12, i // 5), (2, i % 5)], [(1, i // 5), (12, i % 5)], [(5, i // 5), (1, (i + 1) % 5)], [(5, i // 4), (1, i % 5)]):
        assert without_digits(walked, length) == walked


def test_values_stay_what_they_are():
    rng, met = random.Random(0), 0
    for _ in range(400):
        sizes = [rng.randrange(1, 6) for _ in range(rng.randrange(1, 5))]
        index = rng.choice([Idx("I"), Idx("I") + Idx("J"), Idx("I") * 2, Idx("J") * 3 + 1])
        dims = [*zip(sizes, digits(index, sizes), strict=True)]
        if rng.random() < 0.5:
            rng.shuffle(dims)
        if rng.random() < 0.5:
            dims.insert(rng.randrange(len(dims) + 1), (rng.randrange(1, 4), Idx("J")))
        walked, stride = [], 1
        for n, e in dims[::-1]:
            walked.insert(0, (stride, e))
            stride *= n
        made = without_digits(walked, length)
        met += len(made) < len(walked)
        assert len(made) <= len(walked)
        for at in rng.sample(places(), 20):
            assert total(made, at) == total(walked, at), (walked, made)
    assert met > 100


def test_pairs_of_digits():
    i = Idx("I")
    assert [*digits_in({"A": i // 5, "B": i % 5})] == [("A", "B")]
    assert sorted(digits_in({"A": i % 2, "B": i // 6, "C": i // 2 % 3})) == [("B", "C"), ("C", "A")]
    assert not [*digits_in({"A": i // 4, "B": i % 5, "C": Idx("J")})]

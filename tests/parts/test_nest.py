"""Nests come apart into leaves and together again."""

import dataclasses
from collections import namedtuple
from typing import Any

import pytest

from ngraph.parts import nest


@dataclasses.dataclass
class Point:
    x: Any
    y: Any


Two = namedtuple("Two", "a b")
NESTS = [1, None, [], (1, [2, (3,)]), {"a": 1, "b": {"c": [2, None]}}, Point(1, {"y": (2, 3)}), Two(1, [2]), [Point(Two(1, 2), ()), {}]]


@pytest.mark.parametrize("case", NESTS, ids=str)
def test_there_and_back(case):
    leaves = nest.leaves(case)
    assert nest.rebuilt(case, leaves) == case and type(nest.rebuilt(case, leaves)) is type(case)
    assert leaves == list(range(1, len(leaves) + 1)) and len(nest.paths(case)) == len(leaves) == len(set(nest.paths(case)))


def test_what_is_a_leaf_may_be_said():
    assert nest.leaves([1, (2, 3)], lambda x: isinstance(x, tuple)) == [1, (2, 3)]
    assert nest.paths(Point(1, {"z": [2]})) == ["x", "y.z.0"]

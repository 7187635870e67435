"""Places for values that live for a while: from when until when, and the lowest place beside those that are taken.

>>> lifetimes([["a"], ["a", "b"], ["b"]])
{'a': (0, 1), 'b': (1, 2)}
>>> lowest_place(8, [(0, 4), (8, 4)])
12
>>> lowest_place(4, [(0, 4), (8, 4)])
4
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def lifetimes(steps: Iterable[Iterable[T]]) -> dict[T, tuple[int, int]]:
    """For each thing that steps name, the numbers of the first and the last that do, in the order in which they are met."""
    found: dict[T, tuple[int, int]] = {}
    for k, things in enumerate(steps):
        for x in things:
            found[x] = (found[x][0] if x in found else k, k)
    return found


def lowest_place(size: int, taken: Iterable[tuple[int, int]]) -> int:
    """The lowest offset at which `size` fits beside what is taken: offsets and sizes, in any order, which may overlap."""
    at = 0
    for offset, length in sorted(taken):
        if at + size <= offset:
            break
        at = max(at, offset + length)
    return at

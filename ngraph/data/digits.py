"""Handwritten digits as arrays, and the 8x8 ones inside the package (see LICENSE.md beside them)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class DigitSet:
    """Images as float32 from 0 to 1, [count, rows, columns], and labels as int32, [count]."""

    images: Array
    labels: Array

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self, size: int, random: np.random.Generator | None = None) -> Iterator[tuple[Array, Array]]:
        """Yields batches of exactly `size`, shuffled where `random` is given; a remainder at the end is dropped."""
        order = np.arange(len(self.labels)) if random is None else random.permutation(len(self.labels))
        for start in range(0, len(order) - size + 1, size):
            chosen = order[start : start + size]
            yield self.images[chosen], self.labels[chosen]


@dataclass(frozen=True, eq=False)
class Digits:
    """A data set of digits: its name and its training and test sets."""

    name: str
    train: DigitSet
    test: DigitSet


def digits() -> Digits:
    """Returns the 1,797 images of 8 x 8 inside the package, every fifth of them in the test set."""
    with np.load(os.path.join(os.path.dirname(__file__), "digits.npz")) as stored:
        images, labels = stored["images"].astype(np.float32) / 16, stored["labels"].astype(np.int32)
    held_out = np.arange(len(labels)) % 5 == 0
    return Digits("8x8 digits", DigitSet(images[~held_out], labels[~held_out]), DigitSet(images[held_out], labels[held_out]))

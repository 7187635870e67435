"""Places between elements, as whole numbers that follow from the ratio of lengths, and the order of passes along axes."""

import itertools
import math

import numpy as np
import pytest

from ngraph.ops.resampling import order_of_passes, places, regular_places

SCALES = [2.0, 3.0, 8.0, 0.5, 0.25, 1.5, 0.75, 4 / 3, 1.75, 0.2, 1.0]


@pytest.mark.parametrize("mode", ["half_pixel", "pytorch_half_pixel", "asymmetric"])
def test_the_elements_below_regular_places(mode):
    found = 0
    for scale, size in itertools.product(SCALES, (1, 2, 3, 7, 40)):
        many, steps = int(size * scale), regular_places(mode, scale)
        if many < 1 or steps is None:
            continue
        a, b, c = steps
        wanted = np.floor(places(mode, size, many, scale) + 1e-9)
        if mode == "pytorch_half_pixel" and many == 1:
            wanted = [math.floor(0.5 / scale - 0.5)]  # its one element lies at 0, which has the weights of the elements beside it
        assert [(a * k + b) // c for k in range(many)] == list(wanted), (scale, size)
        found += 1
    assert found > 25


def test_other_places_are_not_regular():
    assert regular_places("align_corners", 2.0) is None
    assert regular_places("half_pixel", 0.75) == (4, 0, 3) and regular_places("half_pixel", 0.7) is None
    assert regular_places("half_pixel", 0.0) is None and regular_places("asymmetric", 9.0) is None
    assert regular_places("pytorch_half_pixel", 0.5) is None


def test_passes_that_leave_few_rows_come_first():
    assert order_of_passes([2.0, 2.0, 2.0]) == [2, 1, 0]
    assert order_of_passes([0.25, 2.0, 0.4, 1.0]) == [0, 2, 3, 1]

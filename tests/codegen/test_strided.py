"""Elements at strides 2 to 4 beside zeros, picked from whole vectors that several reads share; every kind of vector machine."""

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.targets import runnable


@pytest.fixture(params=["host", *runnable()])
def target(request, monkeypatch):
    if request.param != "host":
        monkeypatch.setenv("NGRAPH_TARGET", request.param)
    return request.param


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("rows", [2, 3, 4])
@pytest.mark.parametrize("front", [0, 1])
def test_rows_beside_each_other_have_masks_of_their_own(target, rows, k, front):
    """Rows that lie a whole number of vectors apart: a load of one must not stand in for that of another with another mask."""
    for width in (4, 8, 12, 16):
        for length in (width + 2, width + 10, 32):
            n, r, w = ng.make_axis(3, name="N"), ng.make_axis(rows, name="R"), ng.make_axis(width * k, name="W")
            z = ng.placeholder([n, r, w])
            parts = [ng.pad(z[:, row, ::k], [0, (front, length - width - front)]) for row in range(rows)]
            total = sum(parts[1:], parts[0])
            v = np.random.default_rng(0).normal(size=(3, rows, width * k)).astype(np.float32)
            expected = np.pad(v[:, :, ::k].sum(1), [(0, 0), (front, length - width - front)])
            with ngt.allocate_transformer("cpu") as t:
                np.testing.assert_allclose(t.computation(total, z)(v), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
def test_each_kth_element_of_rows_is_transposed(target, dtype, k):
    """All phases of them, in tiles of whole vectors and of parts, at the end of the memory and before it."""
    draw = np.random.default_rng(k)
    for rows, columns, spare in ((16, 16, 0), (35, 33, 1), (7, 50, 0), (64, 5, 2)):
        n, w = ng.make_axis(rows, name="N"), ng.make_axis(columns * k + spare, name="W")
        x = ng.placeholder([n, w], dtype=np.dtype(dtype))
        parts = [x["W", phase : phase + (columns - 1) * k + 1 : k] for phase in range(k)]
        parts = [ng.cast_axes(p, parts[0].axes) for p in parts]
        turned = [ng.axes_with_order(p * p, parts[0].axes[::-1]) for p in (parts[0], parts[-1])]
        both = ng.axes_with_order(sum(parts[1:], parts[0]), parts[0].axes[::-1])
        v = draw.integers(0, 9, (rows, columns * k + spare)).astype(dtype)
        picked = [v[:, phase : columns * k : k].T for phase in range(k)]
        with ngt.allocate_transformer("cpu") as t:
            found = t.computation([*turned, both], x)(v)
        for got, want in zip(found, (picked[0] ** 2, picked[-1] ** 2, sum(picked)), strict=True):
            np.testing.assert_array_equal(got, want)

"""LU factors against SciPy's: LAPACK's pivots at odd sizes, in any order of axes, of matrices that are singular or not finite."""

import numpy as np
import pytest
from scipy import linalg

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.targets import runnable
from ngraph.util.utils import executor

NEAR = {"float64": {"rtol": 1e-8, "atol": 1e-9}, "float32": {"rtol": 2e-2, "atol": 2e-3}}


def drawn(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def factors(array, order="b i j"):
    """The order of rows [b, i], L [b, i, k] and U [b, k, j] of matrices [b, i, j], which are given with their axes in this order."""
    lengths = dict(zip("bij", array.shape, strict=True))
    names = order.split()
    x = ng.placeholder(" ".join(f"{k}={lengths[k]}" for k in names), dtype=str(array.dtype))
    results = list(ng.linalg.lu(x, "i", "j", "k"))
    with executor(results, x) as f:
        arrays = f(np.ascontiguousarray(np.transpose(array, ["bij".index(k) for k in names])))
    axes = [[a.short_name for a in r.axes] for r in results]
    return [np.transpose(a, [have.index(k) for k in want]) for a, have, want in zip(arrays, axes, ("bi", "bik", "bkj"), strict=True)]


def compare(array, order="b i j"):
    near = NEAR[str(array.dtype)]
    for a, rows, lower, upper in zip(array, *factors(array, order), strict=True):
        places, left, right = linalg.lu(a, p_indices=True)
        np.testing.assert_array_equal(rows, np.argsort(places))
        np.testing.assert_allclose(lower, left, **near)
        np.testing.assert_allclose(upper, right, **near)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 31, 63, 65, 127, 129, 200])
def test_pivots_are_lapack_s(n, dtype):
    compare(drawn((1, n, n), n).astype(dtype))
    compare(drawn((3, n, n), n).astype(dtype))


@pytest.mark.parametrize("shape", [(1, 9, 4), (1, 4, 9), (1, 33, 70), (1, 70, 33), (1, 1, 5), (1, 5, 1), (19, 5, 3), (19, 3, 5)])
def test_rectangular_matrices(shape):
    compare(drawn(shape, 1))
    compare(drawn(shape, 1).astype("float32"))


@pytest.mark.parametrize("target", runnable())
@pytest.mark.parametrize("shape", [(1, 4, 2), (1, 5, 5), (1, 17, 5), (3, 9, 9)])
def test_vectors_of_other_processors(shape, target, monkeypatch):
    """A vector of float64 has two lanes there, fewer than there are columns that are updated together elsewhere."""
    monkeypatch.setenv("NGRAPH_TARGET", target)
    compare(drawn(shape, 3))
    compare(drawn(shape, 3).astype("float32"))


@pytest.mark.parametrize("order", ["b j i", "j b i", "i j b", "j i b", "i b j"])
@pytest.mark.parametrize("shape", [(1, 21, 21), (3, 50, 30), (19, 6, 6)])
def test_any_order_of_axes(shape, order):
    compare(drawn(shape, 2), order)


@pytest.mark.parametrize("transformer", ["cpu", "numpy", "direct"])
@pytest.mark.parametrize("shape", [(1, 6, 6), (1, 40, 40), (33, 6, 6)])
def test_singular_matrices(shape, transformer):
    """Of two equal candidates the first is the pivot; a column without one is left where it is, and the determinant is 0."""
    zero, a = np.zeros(shape), np.sign(drawn(shape, 3))
    a[:, :, 2] = 0
    compare(zero)
    if shape[1] == 6:  # of more, rounding decides between pivots
        compare(a)
    x = ng.placeholder(f"b={shape[0]} i={shape[1]} j={shape[2]}", dtype="float64")
    with ngt.allocate_transformer(transformer) as held:
        f = held.computation([ng.linalg.det(x, "i", "j"), *ng.linalg.slogdet(x, "i", "j")], x)
        for of in (zero, a):
            det, sign, log = f(of)
            assert not np.any(det) and not np.any(sign) and np.all(log == -np.inf)


@pytest.mark.parametrize("shape", [(1, 5, 5), (1, 40, 40), (19, 5, 5)])
def test_what_is_not_a_number_is_no_pivot(shape):
    a = drawn(shape, 4)
    a[0, 2, 0] = np.nan
    rows, lower, upper = factors(a)
    sizes = np.abs(a[0, :, 0])
    assert rows[0, 0] == np.nanargmax(sizes) and np.isnan(lower[0][rows[0] == 2, 0]).all()
    np.testing.assert_array_equal(upper[0, 0], a[0, rows[0, 0]])
    for one, order, left, right in zip(a[1:], rows[1:], lower[1:], upper[1:], strict=True):
        np.testing.assert_allclose(left @ right, one[order], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("lengths", [(5, 8, 65), (64, 9, 130)])
def test_lengths_that_come_with_the_call(lengths):
    x = ng.placeholder("i=? j=?", dtype="float64")
    with executor(list(ng.linalg.slogdet(x, "i", "j")), x) as f:
        for n in lengths:
            a = drawn((n, n), n)
            np.testing.assert_allclose(f(a), np.linalg.slogdet(a), rtol=1e-8)

"""Products of floats, whole and running, whose parts overflow or become 0 in any other order than that of the axes."""

import itertools

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.op_graph.opdef import REGISTRY

LARGE = {"float16": 1e2, "bfloat16": 1e30, "float32": 1e30, "float64": 1e250}
SHAPES = [(7,), (124,), (1000,), (5, 37, 8), (3, 16), (64, 129), (2, 3, 200, 3), (3001,)]


def wide(array):
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array


def close(got, expected, terms):
    eps = 2.0**-8 if got.dtype.itemsize == 2 else np.finfo(got.dtype).eps
    np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=(1 + terms) * eps)


@pytest.mark.parametrize("transformer", ["cpu", "numpy", "direct"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", LARGE)
def test_every_other_factor_is_the_reciprocal(dtype, shape, transformer):
    """The product is 1 or a factor, while that of every other one is infinity or 0."""
    axes = [ng.make_axis(n, name="ABCD"[k]) for k, n in enumerate(shape)]
    x = ng.placeholder(axes, dtype=dtype)
    v = np.where(np.indices(shape).sum(0) % 2, 1 / LARGE[dtype], LARGE[dtype]).astype(x.dtype.np)
    for count in range(1, len(shape) + 1):
        for gone in itertools.combinations(range(len(shape)), count):
            y = ng.prod(x, reduction_axes=[axes[k] for k in gone])
            moved = np.moveaxis(wide(v), gone, range(-count, 0))
            terms = moved.reshape(*moved.shape[: v.ndim - count], -1)
            expected = np.multiply.accumulate(terms, axis=-1)[..., -1]
            assert np.isfinite(expected).all() and (expected != 0).all()
            with ngt.allocate_transformer(transformer) as t:
                close(np.asarray(t.computation(y, x)(v)), expected, terms.shape[-1])


def test_a_zero_among_large_factors():
    x = ng.placeholder([ng.make_axis(124, name="A")])
    v = np.full(124, 1e3, np.float32)
    v[0] = 0
    assert ngt.make_transformer().computation(ng.prod(x, out_axes=()), x)(v) == 0


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(40,), (3, 41), (17, 33), (2, 5000)])
@pytest.mark.parametrize("dtype", LARGE)
def test_running_products(dtype, shape, reverse):
    """Four factors side by side whose product overflows, where what is before makes up for it."""
    b = LARGE[dtype] ** 0.5
    factors = np.array([b**-2, b, b, b, b, b**-2])
    axes = [ng.make_axis(n, name="AB"[k]) for k, n in enumerate(shape)]
    x = ng.placeholder(axes, dtype=dtype)
    for k, (axis, n) in enumerate(zip(axes, shape, strict=True)):
        line = np.resize(factors, n)[:: -1 if reverse else 1]
        v = np.broadcast_to(line.reshape([n if k == d else 1 for d in range(len(shape))]), shape).astype(x.dtype.np)
        for exclusive in (False, True):
            y = REGISTRY["cumulate"].build(x, kind="multiply", axis=axis, exclusive=exclusive, reverse=reverse)
            terms = np.flip(wide(v), k) if reverse else wide(v)
            running = np.multiply.accumulate(terms, axis=k)
            if exclusive:
                running = np.concatenate([np.ones_like(running.take([0], k)), running.take(range(n - 1), k)], k)
            expected = np.flip(running, k) if reverse else running
            assert np.isfinite(expected).all()
            with ngt.allocate_transformer("cpu") as t:
                close(np.asarray(t.computation(y, x)(v)), expected, n)

"""Random numbers of `keras.random`: distributions (oracle: SciPy), bounds, seeds."""

import hashlib
import itertools
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

import ngraph.keras

import keras  # isort: skip  # behind ngraph.keras

MANY = 40_000
LEAST = 1e-4  # probability of a sample under the distribution; the seeds are fixed
CONTINUOUS = {
    "uniform": ((-3.0, 5.0), stats.uniform(-3, 8)),
    "normal": ((2.0, 3.0), stats.norm(2, 3)),
    "truncated_normal": ((1.0, 0.5), stats.truncnorm(-2, 2, 1, 0.5)),
    "gamma": ((2.5,), stats.gamma(2.5)),
    "gamma below 1": ((0.3,), stats.gamma(0.3)),
    "beta": ((0.5, 3.0), stats.beta(0.5, 3.0)),
}


def drawn(name, *args, compiled=False, **more):
    """Numbers of `keras.random`, as float64."""
    draw = lambda _: getattr(keras.random, name.split()[0])(*args, **more)
    found = (ngraph.keras.jit(draw) if compiled else draw)(np.zeros(1, "float32"))
    return np.asarray(found).astype("float64")


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", list(CONTINUOUS))
def test_continuous_distributions(name, compiled):
    args, wanted = CONTINUOUS[name]
    assert stats.kstest(drawn(name, (MANY,), *args, seed=11, compiled=compiled), wanted.cdf).pvalue > LEAST


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("low", "high", "dtype"), [(-3, 14, "int32"), (0, 256, "uint8"), (-(2**31), 2**31 - 1, "int32"), (5, 2**40, "int64"), (0, 17, "int64")]
)
def test_whole_numbers_are_uniform(low, high, dtype, compiled):
    found = drawn("randint", (MANY,), low, high, dtype=dtype, seed=5, compiled=compiled)
    assert found.min() >= low and found.max() < high
    bins = min(high - low, 64)
    if high - low == bins:
        counts = np.bincount((found - low).astype(int), minlength=bins)
    else:
        counts, _ = np.histogram(found, bins, (low, high))
    assert stats.chisquare(counts).pvalue > LEAST


def test_bounds_of_whole_numbers_may_be_tensors():
    low = np.array([[0], [10], [-7]])
    found = drawn("randint", (3, 500), low, low + 3, seed=1)
    assert all(set(row) == {k, k + 1, k + 2} for row, (k,) in zip(found, low, strict=True))


@pytest.mark.parametrize("compiled", [False, True])
def test_discrete_distributions(compiled):
    found = drawn("binomial", (MANY,), 6.0, 0.3, seed=6, compiled=compiled)
    wanted = stats.binom(6, 0.3).pmf(np.arange(7)) * MANY
    assert stats.chisquare(np.bincount(found.astype(int), minlength=7), wanted).pvalue > LEAST
    odds = np.array([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]])
    for row, p in zip(drawn("categorical", np.log(odds).astype("float32"), MANY, seed=7, compiled=compiled), odds, strict=True):
        assert stats.chisquare(np.bincount(row.astype(int), minlength=3), p * MANY).pvalue > LEAST
    kept = drawn("dropout", np.ones(MANY, "float32"), 0.3, seed=8, compiled=compiled)
    np.testing.assert_allclose(np.unique(kept), [0, 1 / 0.7], rtol=1e-6)
    assert stats.binomtest(int((kept == 0).sum()), MANY, 0.3).pvalue > LEAST


def test_all_permutations_are_drawn():
    found = [tuple(drawn("shuffle", np.arange(3), seed=k)) for k in range(1200)]
    assert stats.chisquare([found.count(p) for p in itertools.permutations(range(3))]).pvalue > LEAST


def test_seeds_beside_one_another_are_independent():
    generator = keras.random.SeedGenerator(9)
    rows = np.stack([drawn("normal", (5000,), seed=k) for k in range(8)] + [drawn("normal", (5000,), seed=generator) for _ in range(8)])
    apart = np.corrcoef(rows) - np.eye(16)
    assert abs(apart).max() < 4.5 / np.sqrt(5000)
    firsts = [drawn("uniform", (1,), seed=k)[0] for k in range(1000)]
    assert stats.kstest(firsts, "uniform").pvalue > LEAST


def digest(seed):
    """A hash of numbers of all kinds."""
    shapes = [("uniform", (7, 3)), ("normal", (1001,)), ("truncated_normal", (9, 9)), ("gamma", (5,), 0.7), ("beta", (5,), 0.7, 2.0)]
    shapes += [("binomial", (5,), 9.0, 0.4), ("randint", (6,), 0, 99), ("shuffle", np.arange(20)), ("categorical", np.zeros((2, 5)), 4)]
    return hashlib.sha256(b"".join(drawn(*given, seed=seed).tobytes() for given in shapes)).hexdigest()


def test_seeds_repeat_in_threads_and_processes():
    wanted = [digest(seed) for seed in range(3)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(digest, [0, 1, 2] * 8)) == wanted * 8
    code = "import runpy, sys; print(*map(runpy.run_path(sys.argv[1])['digest'], range(3)))"
    for threads in "14":
        more = {"PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": threads, "NGRAPH_NUM_THREADS": threads}
        made = subprocess.run([sys.executable, "-c", code, __file__], capture_output=True, text=True, env={**os.environ, **more})
        assert made.stdout.split() == wanted, made.stderr


@pytest.mark.parametrize("name", list(CONTINUOUS))
def test_float64_is_drawn_in_float64(name):
    """Keras's functions promote to 32 bits; these do not."""
    args, wanted = ((0.05,), stats.gamma(0.05)) if name == "gamma below 1" else CONTINUOUS[name]
    found = getattr(keras.random, name.split()[0])((MANY,), *args, dtype="float64", seed=3)
    assert found.dtype.name == "float64"
    found = np.asarray(found)
    with np.errstate(over="ignore", under="ignore"):
        assert np.mean(found == found.astype("float32")) < 0.6 and len(np.unique(found)) > 0.4 * MANY
    assert stats.kstest(found, wanted.cdf).pvalue > LEAST

"""The functions that NumPy lacks, against plain loops, the standard library, and published test vectors."""

import itertools
import math

import numpy as np
import pytest

from ngraph import numpy_functions as nf


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erf_is_within_two_units_in_the_last_place(dtype):
    x = np.concatenate([np.linspace(-7, 7, 20001), np.logspace(-30, 0, 300), [0.0, -0.0, np.inf, -np.inf]]).astype(dtype)
    exact = np.array([math.erf(v) for v in x.astype(np.float64)]).astype(dtype)
    with np.errstate(all="ignore"):
        got = nf.erf(x)
    assert got.dtype == dtype
    assert np.max(np.abs(got - exact) / np.spacing(np.abs(exact))) <= 2
    assert math.copysign(1, got[-3]) == -1 and np.isnan(nf.erf(np.array([np.nan], dtype)))[0]


def plain_philox(counter, key):
    """Philox-4x32-10 with Python's own integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(b >> 32) ^ c[1] ^ k[0], b % 2**32, (a >> 32) ^ c[3] ^ k[1], a % 2**32]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


def test_philox_gives_the_published_words():
    # from the known answers that its authors publish with Random123
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
    assert plain_philox(*pi) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]
    got = nf.philox(np.array([0, 0], np.uint64), 0, 0, (2, 2))
    assert got.dtype == np.uint32 and [f"{w:08x}" for w in got.ravel()] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]


@pytest.mark.parametrize("seed, step, stream, trip", [(2**64 - 1, 2**64 - 1, 2**32 - 1, 2**32 - 1), (0x123456789ABCDEF, 7, 12, 0)])
def test_philox_counts_by_four(seed, step, stream, trip):
    got = nf.philox(np.array([seed, step], np.uint64), stream, trip, (3, 3))
    want = [w for n in range(3) for w in plain_philox((n, step % 2**32, stream, trip), (seed % 2**32, seed >> 32))]
    assert got.ravel().tolist() == want[:9]
    assert nf.philox(np.array([seed, step], np.uint64), stream, trip, (0, 3)).shape == (0, 3)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "uint32", "uint64"])
def test_casts_saturate(dtype):
    limits = np.iinfo(dtype)
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, -0.9, 0.9, 1.5, 100.7, float(limits.max), float(limits.min)])
    with np.errstate(all="ignore"):
        got = nf.saturate(x, np.dtype(dtype))
    whole = [
        0 if v != v else limits.max if v == np.inf else limits.min if v == -np.inf else max(limits.min, min(limits.max, math.trunc(v)))
        for v in x
    ]
    assert got.dtype == dtype and got.tolist() == whole


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64"])
def test_integer_power_wraps(dtype):
    bits, signed = np.dtype(dtype).itemsize * 8, dtype[0] == "i"
    base = np.array([0, 1, 2, 3, 7, 100, -1 if signed else 255, -2 if signed else 254], dtype)
    exponent = np.array([0, 1, 2, 5, 31, 100] + ([-1, -2] if signed else []), dtype)
    got = nf.integer_power(base[:, None], exponent)
    for i, a in enumerate(base.tolist()):
        for j, b in enumerate(exponent.tolist()):
            exact = pow(a, b) if b >= 0 else (1 if a == 1 else (-1) ** (b % 2) if a == -1 else 0)
            exact %= 1 << bits
            assert int(got[i, j]) % (1 << bits) == exact, (a, b)


def slow_convolve(x, f, spatial, out):
    b, g, c = x.shape[:3]
    k, n = f.shape[1], len(out)
    result = np.zeros((b, g, k, *out))
    for places in itertools.product(*map(range, out)):
        for taps in itertools.product(*map(range, f.shape[3:])):
            at = [o * stride + r * dilation - pad for o, r, (stride, dilation, _, pad) in zip(places, taps, spatial, strict=True)]
            if any(p % s[2] or not 0 <= p // s[2] < x.shape[3 + d] for d, (p, s) in enumerate(zip(at, spatial, strict=True))):
                continue
            here = tuple(p // s[2] for p, s in zip(at, spatial, strict=True))
            result[(..., *places)] += np.einsum("bgc,gkc->bgk", x[(..., *here)], f[(..., *taps)])
    assert n == len(spatial)
    return result


@pytest.mark.parametrize(
    "sizes, filters, spatial, out",
    [
        ((2, 1, 3, 7), (1, 4, 3, 3), [(1, 1, 1, 1)], (7,)),
        ((2, 2, 3, 8), (2, 4, 3, 3), [(2, 1, 1, 0)], (5,)),
        ((1, 1, 2, 6), (1, 2, 2, 3), [(1, -1, 1, -2)], (6,)),
        ((3, 1, 2, 5), (1, 2, 2, 3), [(1, 1, 2, 1)], (9,)),
        ((2, 1, 3, 5), (1, 4, 3, 5), [(1, 2, 1, 3)], (3,)),
        ((2, 5, 1, 6, 6), (5, 1, 1, 3, 3), [(1, 1, 1, 1), (2, 1, 1, 0)], (6, 3)),
        ((2, 1, 2, 4, 5), (1, 3, 2, 2, 3), [(1, 2, 1, 0), (2, -1, 3, 1)], (3, 4)),
        ((0, 1, 2, 4), (1, 3, 2, 2), [(1, 1, 1, 0)], (3,)),
        ((1, 1, 0, 4), (1, 3, 0, 2), [(1, 1, 1, 0)], (3,)),
        ((1, 1, 2, 4), (1, 3, 2, 2), [(1, 1, 1, 0)], (0,)),
        ((4, 1, 3, 9), (1, 2, 3, 9), [(1, 1, 1, 0)], (1,)),
    ],
)
@pytest.mark.parametrize("columns", [1, 1 << 22])
def test_convolve(sizes, filters, spatial, out, columns, monkeypatch):
    monkeypatch.setattr(nf, "COLUMNS", columns)  # in pieces of one, and whole
    r = np.random.default_rng(0)
    x, f = r.normal(size=sizes), r.normal(size=filters)
    np.testing.assert_allclose(nf.convolve(x, f, spatial, out), slow_convolve(x, f, spatial, out), atol=1e-12)


@pytest.mark.parametrize("mode", ["clip", "wrap", "fill"])
def test_scatter_adds_every_occurrence(mode):
    r = np.random.default_rng(1)
    x, u = r.normal(size=(4, 2)), r.normal(size=(3, 5, 2))
    i = r.integers(-6, 9, size=(3, 5))
    want = x.copy()
    for a, b in np.ndindex(3, 5):
        at = i[a, b]
        if mode == "fill" and not 0 <= at < 4:
            continue
        want[np.clip(at, 0, 3) if mode != "wrap" else at % 4] += u[a, b]
    np.testing.assert_allclose(nf.scatter(np.add, x, (i,), u, mode), want, atol=1e-12)


def test_sorting_is_stable_both_ways_with_nan_last():
    key = np.array([2.0, np.nan, 1.0, 2.0, np.nan, -np.inf, 1.0])
    assert nf.sorted_positions(key, 0, False, False).tolist() == [5, 2, 6, 0, 3, 1, 4]
    assert nf.sorted_positions(key, 0, True, False).tolist() == [0, 3, 2, 6, 5, 1, 4]
    assert nf.sorted_positions(key, 0, True, True).tolist() == [1, 4, 0, 3, 2, 6, 5]
    assert nf.sorted_positions(np.array([-128, 127, 0, 127], np.int8), 0, True, False).tolist() == [1, 3, 2, 0]
    assert nf.sorted_positions(np.array([0, 255, 7], np.uint8), 0, True, False).tolist() == [1, 2, 0]


def test_strided_reads_outside_give_the_pad_value():
    x = np.arange(6.0).reshape(2, 3)
    got = nf.strided(x, ((0, ((0, 1),)), (-1, ((1, 2), (2, 1)))), (2, 2, 2), -1.0)
    assert got.tolist() == [[[-1, 0], [1, 2]], [[-1, 3], [4, 5]]]
    back = nf.strided(x, ((1, ((0, -1),)), (2, ((1, -1),))), (2, 4), 9.0)
    assert back.tolist() == [[5, 4, 3, 9], [2, 1, 0, 9]]

"""The error of every function, measured against NumPy's extended precision and mpmath, stays within what `math.py` promises."""

import zlib

import mpmath as mp
import numpy as np
import pytest
from kernels import HOST, RUNNABLE, apply

EXTENDED = np.finfo(np.longdouble).nmant >= 63
DTYPES = (np.float32, np.float64)
TARGETS = [HOST, *(t for t in RUNNABLE if t.vector_bits < HOST.vector_bits)]
# the bound in ulp for float32 and float64
BOUNDS = dict.fromkeys("exp exp2 expm1 log log2 log10 log1p sqrt sin cos tanh atan".split(), (2, 2)) | {
    "erf": (2, 4),
    "power": (2, 4),
    "tan": (3, 3),
}
EXTENDED_OF = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "log2": np.log2,
    "log10": np.log10,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "tanh": np.tanh,
    "atan": np.arctan,
    "power": np.power,
}
EXACT_OF = {name: getattr(mp, name) for name in "exp expm1 log log10 log1p sqrt sin cos tan tanh atan erf power".split()}
EXACT_OF |= {"exp2": lambda x: mp.mpf(2) ** x, "log2": lambda x: mp.log(x, 2)}


def ulps(got, exact):
    """The distance in units of the last place of the exact result, rounded; 0 where both are the same infinity or NaN."""
    with np.errstate(all="ignore"):
        near = exact.astype(got.dtype)
        unit = np.spacing(np.abs(near)).astype(np.longdouble)
        same = (got == near) | (np.isnan(got) & np.isnan(near))
        off = np.abs(got.astype(np.longdouble) - exact) / unit
    return np.where(same & ~np.isfinite(near), 0, np.where(np.isfinite(near) & np.isfinite(got), off, np.where(same, 0, np.inf)))


def any_bits(dtype, n, draw):
    """Floats of every exponent alike, NaN and infinities too."""
    raw = draw.integers(0, 256, n * np.dtype(dtype).itemsize, dtype=np.uint8)
    return raw.view(dtype)


def specials(dtype):
    f = np.finfo(dtype)
    edges = [0.0, f.smallest_subnormal, f.smallest_subnormal * 3, f.tiny, f.tiny * (1 - f.eps), f.eps, 0.5, 1, 1 + f.eps, 1 - f.eps / 2]
    edges += [2, 3, np.pi, np.pi / 2, 88.7, 88.8, 103.9, 104.1, 709.7, 709.8, 745.1, 745.2, 2.0**20, 1e5, 1e10, 1e22, f.max, np.inf]
    positive = np.array(edges, np.float64).astype(dtype)
    return np.concatenate([positive, -positive, np.array([np.nan], dtype)])


def arguments(op, dtype, n=60_000):
    draw = np.random.default_rng(zlib.crc32(op.encode()))
    parts = [np.linspace(-width, width, n).astype(dtype) for width in (1e-3, 1.2, 8, 120, 760, 1e6)]
    return np.concatenate([*parts, any_bits(dtype, n, draw), specials(dtype)])


def exact(op, *xs):
    """By mpmath, element by element, as two float64 in one long double."""
    out = np.empty(len(xs[0]), np.longdouble)
    with mp.workdps(60):
        for k, args in enumerate(zip(*xs, strict=True)):
            value = EXACT_OF[op](*(mp.mpf(float(a)) for a in args))
            high = float(value)
            out[k] = np.longdouble(high) + np.longdouble(float(value - mp.mpf(high))) if np.isfinite(high) else high
    return out


def worst(op, got, want, *xs):
    off = ulps(got, want)
    k = int(np.argmax(off))
    return float(off[k]), f"{op}{tuple(x[k] for x in xs)} = {want[k]}, got {got[k]}"


@pytest.mark.skipif(not EXTENDED, reason="NumPy has no extended precision here; the tests with mpmath run")
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", [o for o in EXTENDED_OF if o != "power"])
def test_functions_by_dense_sweeps(op, dtype, target):
    x = arguments(op, dtype)
    with np.errstate(all="ignore"):
        want = EXTENDED_OF[op](x.astype(np.longdouble))
    off, where = worst(op, apply(op, [x], target=target), want, x)
    assert off <= BOUNDS[op][dtype is np.float64], where


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("dtype", DTYPES)
def test_erf(dtype, target):
    x = np.concatenate(
        [np.linspace(-7, 7, 4001), np.geomspace(1e-300, 1e300, 200), np.linspace(0.99, 1.01, 100), np.linspace(2.49, 2.51, 100)]
    )
    with np.errstate(all="ignore"):
        x = np.concatenate([x.astype(dtype), [0.0]]).astype(dtype)
    x = x[np.isfinite(x)]
    off, where = worst("erf", apply("erf", [x], target=target), exact("erf", x), x)
    assert off <= BOUNDS["erf"][dtype is np.float64], where
    ends = np.array([np.inf, -np.inf, np.nan, -0.0], dtype)
    np.testing.assert_array_equal(apply("erf", [ends], target=target), np.array([1, -1, np.nan, -0.0], dtype))


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("op", ("sin", "cos", "tan"))
def test_circular_functions_of_the_hardest_arguments(op, target):
    # nearest float64 to multiples of pi / 2, one at every scale; the last but one is the worst of all (Muller, Elementary Functions, 11)
    with mp.workdps(400):
        x = [float(mp.mpf(round(float(mp.mpf(2) ** k * 1.1))) * mp.pi / 2) for k in range(1000)]
    x = np.array([*x, 6381956970095103.0 * 2.0**797, 1.7976931348623157e308])
    with mp.workdps(400):
        want = np.array([np.longdouble(float(EXACT_OF[op](mp.mpf(float(v))))) for v in x])
    off, where = worst(op, apply(op, [x], target=target), want, x)
    assert off <= BOUNDS[op][1] + 0.5, where  # half of one is the reference's own


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("dtype", DTYPES)
def test_power(dtype, target):
    draw = np.random.default_rng(3)
    x = np.exp(draw.uniform(-20, 20, 3000))
    y = draw.uniform(-30, 30, 3000)
    near = 1 + draw.normal(size=3000) * 1e-4
    far = draw.uniform(-1, 1, 3000) * (7e6 if dtype is np.float64 else 8e5)
    small = draw.uniform(0.1, 10, 1000), draw.uniform(-3, 3, 1000)
    x = np.concatenate([x, near, small[0], -np.arange(1.0, 30), [1e-310, 1e300, 2, 10]]).astype(dtype)
    y = np.concatenate([y, far, small[1], np.arange(-15, 14.0), [0.5, -1.03, -1074, 308]]).astype(dtype)
    x, y = x[np.isfinite(x)], y[np.isfinite(x)]
    finite = x != 0
    x, y = x[finite], y[finite]
    off, where = worst("power", apply("power", [x, y], target=target), exact("power", x, y), x, y)
    assert off <= BOUNDS["power"][dtype is np.float64], where


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("dtype", DTYPES)
def test_power_at_the_edges_is_numpys(dtype, target):
    edges = np.array([0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 2.5, np.inf, -np.inf, np.nan, 1e30, -1e30, np.finfo(dtype).tiny], dtype)
    x, y = (a.ravel() for a in np.meshgrid(edges, edges))
    with np.errstate(all="ignore"):
        want = np.power(x, y)
    got = apply("power", [x, y], target=target)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=4 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(np.signbit(got)[~np.isnan(want)], np.signbit(want)[~np.isnan(want)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", "sin tan tanh atan erf expm1 log1p sqrt".split())
def test_zero_keeps_its_sign(op, dtype):
    got = apply(op, [np.array([0.0, -0.0], dtype)])
    assert list(np.signbit(got)) == [False, True] and not got.any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", [o for o in BOUNDS if o != "power"])
def test_a_scalar_loop_gives_the_bits_of_a_vector_loop(op, dtype):
    x = np.concatenate([arguments(op, dtype, 997), specials(dtype)])
    np.testing.assert_array_equal(apply(op, [x], lanes=1), apply(op, [x]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers_of_the_base_are_exact(dtype):
    low, high = (-1074, 1024) if dtype is np.float64 else (-149, 128)
    n = np.arange(low, high)
    powers = np.array([2.0 ** int(k) for k in n]).astype(dtype)
    np.testing.assert_array_equal(apply("exp2", [n.astype(dtype)]), powers)
    np.testing.assert_array_equal(apply("log2", [powers]), n)
    tens = np.arange(0, 23 if dtype is np.float64 else 11)
    np.testing.assert_array_equal(apply("log10", [np.array([float(f"1e{k}") for k in tens], dtype)]), tens)

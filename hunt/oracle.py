"""The oracle of random programs: the functions of ngraph by docs/spec.md, in plain NumPy, with none of ngraph's code.

A value carries, beside its numbers, for each of them how far a right answer may lie from it: `e` is 0 where only this very number is
right (integers, bools, what is moved, what is exact), the sum of what roundings may do elsewhere, and infinite where nothing can be said
because a rounding decides (the smaller of two numbers that may be equal, cut to an integer). Numbers of all floats are kept as float64,
rounded to their dtype as each op rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

FLOATS = {
    "float16": (11, -14, 15),
    "bfloat16": (8, -126, 127),
    "float32": (24, -126, 127),
    "float64": (53, -1022, 1023),
}  # digits, exponents
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NARROW = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn")
NARROW += ("float4_e2m1fn", "int4", "uint4", "int2", "uint2")
WHOLE_NARROW = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}
INF = np.inf


class Refused(Exception):
    """The program is one that ngraph refuses: axes or dtypes do not fit."""


def numpy_type(d: str) -> Any:
    return np.dtype(bool) if d == "bool" else np.dtype(getattr(ml_dtypes, d)) if d == "bfloat16" or d in NARROW else np.dtype(d)


def is_float(d: str) -> bool:
    return d in FLOATS


def bits(d: str) -> int:
    return numpy_type(d).itemsize * 8


def limits(d: str) -> tuple[int, int]:
    return WHOLE_NARROW[d] if d in WHOLE_NARROW else (int(np.iinfo(d).min), int(np.iinfo(d).max))


Dim = tuple[str, int, Any]  # name, dual level, what the length is known by: a number, or how an open one came about


@dataclass
class V:
    """A value: dtype, dims in the declared order, numbers, how far they may be off, and whether the signs of zeros are known."""

    d: str
    dims: tuple[Dim, ...]
    v: np.ndarray
    e: np.ndarray
    z: bool = True

    def pos(self, name: tuple[str, int]) -> int:
        for k, a in enumerate(self.dims):
            if a[:2] == tuple(name):
                return k
        raise Refused(f"no axis {name}")

    @property
    def names(self) -> list[tuple[str, int]]:
        return [a[:2] for a in self.dims]


def exact(d: str, dims: Sequence[Dim], v: Any, z: bool = True) -> V:
    v = np.asarray(v)
    return V(d, tuple(dims), v.astype(np.float64) if is_float(d) else v, np.zeros(v.shape), z)


def like(x: V, v: np.ndarray, e: np.ndarray, d: str | None = None, dims: Any = None, z: bool = True) -> V:
    return V(d or x.d, tuple(x.dims if dims is None else dims), np.asarray(v), _known(e, v), z)


def _known(e: Any, v: Any) -> np.ndarray:
    """Bounds without NaN, one for each number."""
    e = np.broadcast_to(np.asarray(e, np.float64), np.shape(v))
    return np.where(np.isnan(e), INF, e)


# ---- roundings ----------------------------------------------------------------------------------------------------------------


def spacing(v: np.ndarray, d: str) -> np.ndarray:
    """The distance of neighbouring numbers of the dtype at `v`."""
    digits, low, high = FLOATS[d]
    with np.errstate(all="ignore"):
        exponent = np.frexp(np.where(np.isfinite(v), v, 1.0))[1]
    return np.ldexp(1.0, np.clip(exponent - digits, low - digits + 1, high - digits + 1))


def largest(d: str) -> float:
    digits, _, high = FLOATS[d]
    return math.ldexp(2.0 - 2.0 ** (1 - digits), high)


def rounded(v: np.ndarray, d: str) -> np.ndarray:
    """The nearest numbers of the dtype, ties to even, beyond the largest infinite."""
    v = np.asarray(v)
    if d == "float64":
        return v.astype(np.float64)
    v = v.astype(np.float64)
    with np.errstate(all="ignore"):
        q = spacing(v, d)
        r = np.where(np.isfinite(v), np.rint(v / q) * q, v)
        return np.where(np.abs(r) > largest(d), np.copysign(INF, r), r)


def unit(d: str) -> float:
    """Half the distance of 1 and the next larger number."""
    return 2.0 ** -FLOATS[d][0]


def accumulator(d: str) -> str:
    return "float32" if d in ("float16", "bfloat16") else d


def finish(v: np.ndarray, e: Any, d: str, ulps: float = 0.0, z: bool = True, dims: Any = ()) -> V:
    """A result that is `v` but for `e`, rounded once to a float dtype, by an op that is itself off by so many distances of numbers."""
    with np.errstate(all="ignore"):
        v = np.asarray(v)
        r = rounded(v, d)
        e = _known(e, r)
        distance = np.abs(v - np.where(np.isfinite(r), r, 0))
        away = np.asarray(distance, np.float64)
        step = spacing(np.abs(r) + np.where(np.isfinite(e), e, 0), d)
        if (
            d == "float64"
        ):  # rounded twice, which beside the middle of two numbers may give the other one; half the least step is not a float64
            away = np.where(distance > step.astype(np.longdouble) * (0.5 - 2.0**-9), step, away)
        off = np.where((e == 0) & (ulps == 0), away, e + away + step * (1 if ulps == 0 else ulps + 1))
        off = np.where(np.isfinite(r), off, e)
        top = largest(d)
        near = e + ulps * step + np.where((e == 0) & (ulps == 0), 0, step / 2)
        size = np.abs(np.asarray(v, np.float64))
        unsure = np.where(np.isfinite(v) & (near > 0) & (size + near >= top) & (size - near <= top * (1 + 2.0**-10)), INF, 0.0)
        off = np.where(np.isnan(r), np.where(np.isinf(e), INF, 0.0), off + unsure)
        off = np.where(np.isinf(r) & np.isfinite(e) & (unsure == 0), 0.0, off)
    return V(d, tuple(dims), r, _known(off, r), z)


# ---- dtypes (section 4) -------------------------------------------------------------------------------------------------------


def promote(a: str, b: str) -> str:
    if a == b:
        return a
    if a in NARROW or b in NARROW:
        raise Refused("narrow dtypes meet no other")
    if "bool" in (a, b):
        return b if a == "bool" else a
    if is_float(a) and is_float(b):
        return "float32" if bits(a) == bits(b) else a if bits(a) > bits(b) else b
    if is_float(a) or is_float(b):
        return a if is_float(a) else b
    if a[0] == b[0]:
        return a if bits(a) > bits(b) else b
    s, u = (a, b) if a[0] == "i" else (b, a)
    return s if bits(s) > bits(u) else "float64" if bits(u) == 64 else f"int{bits(u) * 2}"


def weak(number: Any, d: str) -> str:
    """The dtype of a Python number beside a tensor."""
    if isinstance(number, bool) or is_float(d) or d in NARROW:
        return d
    return d if isinstance(number, int) and d != "bool" else "float32"


def number(text: Any) -> Any:
    """A number of a case: floats that JSON has no word for are texts."""
    return float(text) if isinstance(text, str) else text


def common(xs: Sequence[Any], dtype: str | None = None) -> list[V]:
    """Values and Python numbers in the dtype in which they meet."""
    tensors = [x for x in xs if isinstance(x, V)]
    meet = dtype or tensors[0].d
    for x in [] if dtype else tensors[1:]:
        meet = promote(meet, x.d)
    for x in [] if dtype else xs:
        if not isinstance(x, V):
            meet = weak(x, meet)
    return [cast(x, meet) if isinstance(x, V) else filled(x, meet) for x in xs]


def filled(x: Any, d: str) -> V:
    if d in INTS or d in WHOLE_NARROW:
        low, high = limits(d)
        if isinstance(x, float) or not low <= x <= high:
            raise Refused(f"{x} as {d}")
    if isinstance(x, float):
        return cast(exact("float64", (), np.float64(x)), d)
    return cast(exact("int64", (), np.int64(x)) if x < 2**63 else exact("uint64", (), np.uint64(x)), d)


def arithmetic(xs: Sequence[Any], dtype: str | None = None) -> list[V]:
    made = common(xs, dtype)
    computes(*made)
    return [cast(x, "float32") for x in made] if made[0].d == "bool" else made


def floating(xs: Sequence[Any]) -> list[V]:
    made = common(xs)
    computes(*made)
    return made if is_float(made[0].d) else [cast(x, "float32") for x in made]


def computes(*xs: V) -> None:
    if any(x.d in NARROW for x in xs):
        raise Refused("narrow dtypes are not computed with")


@cache
def codes(d: str) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of a narrow float in order, and which of them has an even code."""
    every = np.arange(256, dtype=np.uint8)
    top = 1 << {"float6_e2m3fn": 6, "float6_e3m2fn": 6, "float4_e2m1fn": 4}.get(d, 8)
    every = every[:top]
    v = every.view(numpy_type(d)).astype(np.float64)
    keep = np.isfinite(v) & ~((v == 0) & np.signbit(v))
    order = np.argsort(v[keep])
    return v[keep][order], (every[keep][order] % 2 == 0)


def _narrow_float(v: np.ndarray, d: str) -> np.ndarray:
    """The nearest number of a narrow float, by way of float32."""
    v = rounded(v, "float32")
    table, even = codes(d)
    k = np.clip(np.searchsorted(table, v), 1, len(table) - 1)
    low, high = table[k - 1], table[k]
    with np.errstate(all="ignore"):
        if d == "float8_e8m0fnu":
            r = np.where(v - low < high - v, low, high)  # powers of two alone: of ties the larger
            r = np.where(v <= table[0], table[0], r)
            return np.where(np.isnan(v) | (v < 0) | (v == 0), np.nan, np.where(v > table[-1], _beyond(v, table, d), r))
        r = np.where(v - low < high - v, low, np.where(v - low > high - v, high, np.where(even[k - 1], low, high)))
        r = np.where(np.abs(v) > table[-1], _beyond(v, table, d), r)
        r = np.where((r == 0) & np.signbit(v) & (not d.endswith("fnuz")), -0.0, r)
        return np.where(np.isnan(v), np.nan, r)


def _beyond(v: np.ndarray, table: np.ndarray, d: str) -> np.ndarray:
    """Above the largest number: half a step further still rounds to it."""
    step = table[-1] - table[-2]
    kept = np.abs(v) < table[-1] + step / 2
    if d.startswith(("float6", "float4")):
        beyond = table[-1]
    elif d == "float8_e5m2":
        beyond = INF
    else:
        beyond = np.nan
    if not d.startswith(("float6", "float4")) and d != "float8_e8m0fnu":
        tie = np.abs(v) == table[-1] + step / 2
        even = codes(d)[1][-1]
        kept = kept | (tie & even)
    return np.copysign(np.where(kept, table[-1], beyond), v)


def cast(x: V, d: str) -> V:
    if x.d == d:
        return x
    v, e = x.v, x.e
    with np.errstate(all="ignore"):
        if d == "bool":
            r = v != 0
            return like(x, r, np.where((e > 0) & (np.abs(_wide(v)) <= e), INF, 0), d)
        if is_float(d):
            if is_float(x.d) or x.d in NARROW:
                return finish(_wide(v), e, d, dims=x.dims, z=x.z)
            exactly = v.astype(np.longdouble)  # 64 digits hold every integer
            r = v.astype(np.float32).astype(np.float64) if d == "float32" else v.astype(np.float64)
            if d in ("float16", "bfloat16"):
                sticky = np.where(exactly != r, np.nextafter(r, np.where(exactly > r, INF, -INF)), r)
                return finish(sticky, np.where(e > 0, INF, 0), d, dims=x.dims)
            return V(d, x.dims, r, np.where(e > 0, INF, np.abs((exactly - r).astype(np.float64))))
        low, high = limits(d) if d in INTS or d in WHOLE_NARROW else (0, 0)
        if d in INTS or d in WHOLE_NARROW:
            if is_float(x.d) or (x.d in NARROW and x.d not in WHOLE_NARROW):
                r, off = _cut(v, low, high), np.zeros(v.shape)
                moved = e > 0
                if moved.any():
                    off = np.where(moved & ((_cut(v - e, low, high) != r) | (_cut(v + e, low, high) != r)), INF, 0.0)
            else:
                span = high - low + 1
                r = np.array([(int(i) - low) % span + low for i in v.ravel()], object).reshape(v.shape)
                off = e
            return like(x, r.astype(numpy_type(d) if d in INTS else np.int8), off, d)
        r = _narrow_float(_wide(v), d)
        if (e > 0).any():
            a, b = _narrow_float(_wide(v) - e, d), _narrow_float(_wide(v) + e, d)
            same = ((a == r) | (np.isnan(a) & np.isnan(r))) & ((b == r) | (np.isnan(b) & np.isnan(r)))
            e = np.where((e > 0) & ~same, INF, 0)
        if d.startswith(("float6", "float4")):  # which have no NaN: what stands for it, nobody says
            e = np.where(np.isnan(r), INF, e)
        return like(x, r, e, d, z=x.z)


def _wide(v: np.ndarray) -> np.ndarray:
    return v.astype(np.float64)


def _cut(v: np.ndarray, low: int, high: int) -> np.ndarray:
    """Cut toward zero, held at the limits; NaN is 0."""
    return np.array([0 if f != f else high if f >= high else low if f <= low else int(f) for f in v.ravel().tolist()], object).reshape(
        v.shape
    )


# ---- axes ---------------------------------------------------------------------------------------------------------------------


def union(*xs: V) -> list[Dim]:
    """The axes of an elementwise result: those of the first operand that has all, else the first's and then what is new."""
    merged: dict[tuple[str, int], Dim] = {}
    for x in xs:
        for a in x.dims:
            if merged.setdefault(a[:2], a)[2] != a[2]:
                raise Refused("unlike lengths meet")
    for x in xs:
        if len(x.dims) == len(merged):
            return list(x.dims)
    return list(merged.values())


def along(x: V, dims: Sequence[Dim]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and bounds with a dim for each of these axes, of length 1 where it has none."""
    order = [x.pos(a[:2]) for a in dims if a[:2] in x.names]
    index = tuple(slice(None) if a[:2] in x.names else None for a in dims)
    return np.transpose(x.v, order)[index], np.transpose(x.e, order)[index]


def lined(xs: Sequence[V], first: Sequence[V] | None = None) -> tuple[list[Dim], list[np.ndarray], list[np.ndarray], tuple[int, ...]]:
    dims = union(*(first or xs))
    if first:
        union(*first, *xs)
    pairs = [along(x, dims) for x in xs]
    shape = np.broadcast_shapes(*[v.shape for v, _ in pairs]) if pairs else ()
    return dims, [v for v, _ in pairs], [e for _, e in pairs], shape


# ---- elementwise functions ----------------------------------------------------------------------------------------------------


def _erf(v: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[float])(v)


def _cdf(v: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda t: 0.5 * math.erfc(-t / math.sqrt(2)), otypes=[float])(v)


def _sigmoid(v: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-v))


def _square(v: np.ndarray) -> np.ndarray:
    return v * v


# name: function, how its error goes on (monotone, or a bound on its slope), distances of numbers that it may be off, and that at 1
UNARY: dict[str, tuple[Callable[[np.ndarray], np.ndarray], Any, float, float]] = {
    "exp": (np.exp, "monotone", 4, 0),
    "expm1": (np.expm1, "monotone", 4, 0),
    "log": (np.log, "monotone", 4, 0),
    "log1p": (np.log1p, "monotone", 4, 0),
    "sqrt": (np.sqrt, "monotone", 0, 0),
    "sin": (np.sin, 1.0, 4, 1),
    "cos": (np.cos, 1.0, 4, 1),
    "tanh": (np.tanh, "monotone", 4, 4),
    "atan": (np.arctan, "monotone", 4, 0),
    "erf": (_erf, "monotone", 4, 4),
    "exp2": (np.exp2, "monotone", 4, 0),
    "log2": (np.log2, "monotone", 4, 0),
    "log10": (np.log10, "monotone", 4, 0),
    "asin": (np.arcsin, "monotone", 4, 0),
    "acos": (np.arccos, "monotone", 4, 0),
    "sinh": (np.sinh, "monotone", 4, 0),
    "asinh": (np.arcsinh, "monotone", 4, 0),
    "acosh": (np.arccosh, "monotone", 4, 0),
    "atanh": (np.arctanh, "monotone", 4, 0),
    "sigmoid": (_sigmoid, "monotone", 4, 4),
    "gelu": (lambda v: v * _cdf(v), 1.2, 4, 16),
    "silu": (lambda v: v / (1 + np.exp(-v)), 1.2, 4, 8),
    "softplus": (lambda v: np.logaddexp(v, 0.0), "monotone", 4, 8),
    "reciprocal": (lambda v: 1 / v, "inverse", 0, 0),
}


def moved(f: Callable[[np.ndarray], np.ndarray], v: np.ndarray, e: np.ndarray, how: Any) -> np.ndarray:
    """Returns the error bound of f(v) where v has the error bound e."""
    with np.errstate(all="ignore"):
        if how == "inverse":
            return np.where(e == 0, 0.0, np.where(np.abs(v) > e, e / (np.abs(v) * (np.abs(v) - e)), INF))
        if how != "monotone":
            return np.where(e == 0, 0.0, how * e)
        here = f(v)
        ends = np.maximum(np.abs(f(v + e) - here), np.abs(f(v - e) - here))
        return np.where(e == 0, 0.0, ends)


def unary(name: str, x: V) -> V:
    f, how, ulps, at_one = UNARY[name]
    with np.errstate(all="ignore"):
        v, e = f(x.v), moved(f, x.v, x.e, how)
        if at_one:
            e = e + at_one * unit(x.d) * 2 * np.minimum(
                1.0, np.maximum(np.abs(x.v), 0 if name not in ("cos", "sigmoid", "softplus") else 1)
            )
        if name in ("sin", "cos"):  # the argument is reduced by pi
            e = e + 2 * unit(x.d) * np.minimum(np.abs(v) + np.abs(x.v) * 2.0**-20, 1.0)
        if accumulator(x.d) != x.d:
            ulps = min(ulps, 1)
        return finish(v, e, x.d, ulps, x.z, x.dims)


def whole_function(name: str, x: V) -> V:
    """floor, ceil, trunc, round and sign: steps, which a rounding may be on either side of."""
    if not is_float(x.d):
        if name == "sign":
            return like(x, np.sign(x.v).astype(x.v.dtype), x.e)
        return x
    f = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint, "sign": np.sign}[name]
    r = f(x.v)
    unsure = (x.e > 0) & ((f(x.v - x.e) != r) | (f(x.v + x.e) != r))
    return like(x, r, np.where(unsure, np.maximum(np.abs(f(x.v + x.e) - r), np.abs(f(x.v - x.e) - r)), 0.0), z=x.z and name != "sign")


def _wrapped(v: Any, d: str) -> np.ndarray:
    return np.asarray(v).astype(numpy_type(d))


def binary(name: str, xs: Sequence[V]) -> V:
    """An op on two aligned operands of one dtype."""
    d = xs[0].d
    dims, (x, y), (ex, ey), shape = lined(xs)
    e = np.broadcast_to(ex + ey, shape)
    z = all(a.z for a in xs)
    with np.errstate(all="ignore"):
        if not is_float(d):
            r = np.broadcast_to(_whole_binary(name, x, y, d), shape)
            return V(d, tuple(dims), r, np.where(e > 0, INF, 0))
        wide = np.longdouble if d == "float64" else np.float64
        a, b = x.astype(wide), y.astype(wide)
        if name in ("add", "subtract"):
            r, off = (a + b if name == "add" else a - b), e
        elif name == "multiply":
            r, off = a * b, _product_error(x, y, ex, ey)
        elif name == "divide":
            r = a / b
            off = np.where(e == 0, 0.0, np.where(np.abs(y) > ey, (ex + np.abs(x / y) * ey) / (np.abs(y) - ey), INF))
        elif name == "remainder":
            r = np.remainder(a, b)
            off = np.where(e == 0, 0.0, INF)
            off = np.where((off == 0) & np.isfinite(r), unit(d) * np.abs(np.where(np.isfinite(b), b, 0)).astype(float), off)
        elif name == "power":
            return _power(x, y, ex, ey, d, dims, shape)
        else:
            r = np.maximum(a, b) if name == "maximum" else np.minimum(a, b)
            off = np.maximum(ex, ey) + np.zeros(shape)
            only = np.where(np.isnan(x), ex, np.where(np.isnan(y), ey, off))
            return V(d, tuple(dims), np.broadcast_to(r, shape).astype(float), _known(only, np.broadcast_to(r, shape)), False)
        lost = np.broadcast_to(np.isinf(ex) | np.isinf(ey), shape)
        return finish(np.broadcast_to(r, shape), np.where(lost, INF, off), d, z=z, dims=dims)


def _product_error(x: np.ndarray, y: np.ndarray, ex: np.ndarray, ey: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        left = np.where(ey == 0, 0.0, np.abs(x) * ey)
        right = np.where(ex == 0, 0.0, np.abs(y) * ex)
        return left + right + np.where((ex == 0) | (ey == 0), 0.0, ex * ey)


def _power(x: np.ndarray, y: np.ndarray, ex: np.ndarray, ey: np.ndarray, d: str, dims: Any, shape: Any) -> V:
    r = np.broadcast_to(np.power(x.astype(np.longdouble), y.astype(np.longdouble)).astype(np.float64), shape)
    off = np.zeros(shape)
    for sx in (-1, 1):
        for sy in (-1, 1):
            off = np.maximum(off, np.abs(np.power(x + sx * ex, y + sy * ey) - r))
    off = np.where(np.broadcast_to((ex == 0) & (ey == 0), shape), 0.0, np.where(np.broadcast_to(x > ex, shape), off, INF))
    sure = np.broadcast_to((y == 0) | (y == 1) | (x == 1), shape) & (off == 0)
    made = finish(r, off, d, 1 if accumulator(d) != d else 16, False, dims)
    return V(d, made.dims, made.v, np.where(sure & np.isfinite(r), 0.0, made.e), False)


def _whole_binary(name: str, x: np.ndarray, y: np.ndarray, d: str) -> np.ndarray:
    if d == "bool":
        return {"maximum": np.logical_or, "minimum": np.logical_and, "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[
            name
        ](x, y)
    n = bits(d)
    if name in ("add", "subtract", "multiply", "maximum", "minimum"):
        return {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}[name](x, y)
    if name in ("and", "or", "xor"):
        return {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[name](x, y)

    def one(a: int, b: int) -> int:
        if name == "floordivide":
            return 0 if b == 0 else a // b
        if name == "remainder":
            return 0 if b == 0 else a % b
        if name == "shl":
            return a << b if 0 <= b < n else 0
        if name == "shr":
            return a >> b if 0 <= b < n else -1 if a < 0 else 0
        if b < 0:
            return {1: 1, -1: 1 if b % 2 == 0 else -1}.get(a, 0)
        return pow(a, b, 1 << n)

    a, b = np.broadcast_arrays(x, y)
    low, span = limits(d)[0], 1 << n
    return (
        np.array([(one(int(p), int(q)) - low) % span + low for p, q in zip(a.ravel(), b.ravel(), strict=True)], object)
        .reshape(a.shape)
        .astype(d)
    )


def compare(kind: str, xs: Sequence[V], first: Sequence[V] | None = None) -> V:
    dims, (x, y), (ex, ey), shape = lined(xs, first)
    f = {"equal": np.equal, "less": np.less, "less_equal": np.less_equal, "not_equal": np.not_equal}[kind]
    with np.errstate(all="ignore"):
        r = np.broadcast_to(f(x, y), shape)
        e = np.broadcast_to(ex + ey, shape)
        if is_float(xs[0].d) or xs[0].d in NARROW:
            unsure = (e > 0) & ~(np.abs(x - y) > e)
        else:
            unsure = e > 0
    return V("bool", tuple(dims), r, np.where(np.isinf(e) | unsure, INF, 0.0))


def where(c: V, x: V, y: V) -> V:
    c = cast(c, "bool")
    dims, (x_, y_, c_), (ex, ey, ec), shape = lined([x, y, c])
    with np.errstate(all="ignore"):
        r = np.broadcast_to(np.where(c_, x_, y_), shape)
        e = np.broadcast_to(np.where(c_, ex, ey), shape)
        if (ec > 0).any():
            both = np.where((x_ == y_) | ((x_ != x_) & (y_ != y_)), np.maximum(ex, ey), INF)
            if is_float(x.d):
                both = np.where(np.isfinite(x_) & np.isfinite(y_), np.abs(x_ - y_) + np.maximum(ex, ey), both)
            e = np.where(np.broadcast_to(ec > 0, shape), both, e)
    return V(x.d, tuple(dims), r, _known(e, r), x.z and y.z and not (ec > 0).any())


# ---- sums and the like --------------------------------------------------------------------------------------------------------


def gone_axes(x: V, at: dict[str, Any]) -> list[int]:
    """The positions of the axes that a reduction takes: all but batch and recurrent ones, or as its arguments say."""
    if at.get("reduce") is not None:
        return [x.pos(tuple(a)) for a in at["reduce"]]
    if at.get("keep") is not None:
        keep = [x.pos(tuple(a)) for a in at["keep"]]
        return [k for k in range(len(x.dims)) if k not in keep]
    return [k for k, a in enumerate(x.dims) if a[:2] not in (("N", 0), ("REC", 0))]  # duals have no flags


def kept(x: V, gone: Sequence[int], at: dict[str, Any] | None = None) -> list[int]:
    """The positions of the axes that stay, in the order of the result."""
    if at is not None and at.get("keep") is not None:
        return [x.pos(tuple(a)) for a in at["keep"]]
    return [k for k in range(len(x.dims)) if k not in gone]


def rows(x: V, gone: Sequence[int], stay: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and bounds with the axes that go as one last dim, in their order."""
    order = [*stay, *gone]
    shape = [x.v.shape[k] for k in stay] + [math.prod(x.v.shape[k] for k in gone)]
    return np.transpose(x.v, order).reshape(shape), np.transpose(x.e, order).reshape(shape)


def summed(v: np.ndarray, e: np.ndarray, d: str, terms: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Sums along the last dim in any order in the accumulator of d; each term is off by `terms` roundings more."""
    n, u = v.shape[-1], unit(accumulator(d))
    with np.errstate(all="ignore"):
        finite = np.isfinite(v)
        size = np.where(finite, np.abs(v) + np.where(np.isfinite(e), e, 0), 0).sum(-1)
        r = v.astype(np.longdouble).sum(-1) if d == "float64" else v.sum(-1)
        whole = (e == 0).all(-1) & finite.all(-1) & (v == np.rint(v)).all(-1) & (size < 2.0 ** FLOATS[accumulator(d)][0])
        off = (
            e.sum(-1)
            + (n + terms) * u * size * (1 + 1e-6)
            + (n > 1) * n * 2.0 ** (FLOATS[accumulator(d)][1] - FLOATS[accumulator(d)][0] + 1)
        )
        off = np.where(whole, 0.0, off if n > 1 or terms > 1 else e.sum(-1))
        lost = np.isinf(e).any(-1) | ((size > largest(accumulator(d)) * 0.99) & (n > 1))
    return r, np.where(lost & ~np.isnan(v).any(-1), INF, np.where(np.isinf(e).any(-1), INF, off))


def reduce(kind: str, x: V, gone: Sequence[int], stay: Sequence[int]) -> V:
    v, e = rows(x, gone, stay)
    dims = [x.dims[k] for k in stay]
    n = v.shape[-1]
    with np.errstate(all="ignore"):
        if kind in ("max", "min"):
            if is_float(x.d):
                edge: Any = -INF if kind == "max" else INF
            else:
                edge = (kind == "min") if x.d == "bool" else limits(x.d)[0 if kind == "max" else 1]
            if n == 0:
                return exact(x.d, dims, np.full(v.shape[:-1], edge, v.dtype))
            r = v.max(-1) if kind == "max" else v.min(-1)
            if x.d in INTS or x.d == "bool":
                return V(x.d, tuple(dims), r, np.where((e > 0).any(-1), INF, 0))
            return V(x.d, tuple(dims), r, np.where(np.isnan(r) & ~np.isinf(e).any(-1), 0, e.max(-1)), False)
        if not is_float(x.d):
            f = np.add if kind == "add" else np.multiply
            return V(x.d, tuple(dims), f.reduce(v, axis=-1, dtype=v.dtype), np.where((e > 0).any(-1), INF, 0))
        if kind == "add":
            r, off = summed(v, e, x.d)
            return finish(r, off, x.d, z=False, dims=dims)
        return _product(v, e, x.d, dims)


def _product(v: np.ndarray, e: np.ndarray, d: str, dims: Any) -> V:
    """Products, in whose parts overflow and underflow may come and go: such ones are only checked where every order gives one answer."""
    n, u = v.shape[-1], unit(accumulator(d))
    with np.errstate(all="ignore"):
        r = v.astype(np.longdouble).prod(-1)
        share = np.where(v == 0, np.where(e > 0, INF, 0), e / np.abs(v)).sum(-1) + (n + 2) * u
        logs = np.log2(np.abs(np.where((v == 0) | ~np.isfinite(v), 1.0, v)))
        high, low = FLOATS[accumulator(d)][2], FLOATS[accumulator(d)][1]
        over = np.maximum(logs, 0).sum(-1) >= high
        wild = over | (np.minimum(logs, 0).sum(-1) <= low)
        special = (~np.isfinite(v)).any(-1)
        ones = (np.abs(v) == 1).all(-1)
        off = np.abs(r).astype(float) * np.where(share < 0.1, share * 1.1, INF)
        off = np.where((r == 0) & np.isfinite(share), 0.0, off)
        off = np.where(ones | (n < 2), e.max(-1, initial=0), off)
        tiny = spacing(np.zeros(r.shape), accumulator(d)) * n
        off = np.where((wild & (special | ~(v == 0).any(-1))) | over, INF, off + np.where((r != 0) & (n > 1) & ~ones, tiny, 0))
        off = np.where(np.isnan(v).any(-1) & ~np.isinf(e).any(-1), 0.0, off)
    return finish(r, off, d, z=False, dims=dims)


def mean_of(v: np.ndarray, e: np.ndarray, d: str) -> tuple[np.ndarray, np.ndarray]:
    """Means along the last dim, before they are rounded to d."""
    n = v.shape[-1]
    r, off = summed(v, e, d)
    with np.errstate(all="ignore"):
        m = r / n if n else r * np.nan
        return m, off / max(n, 1) + np.where(off > 0, 2 * unit(accumulator(d)) * np.abs(np.where(np.isfinite(m), m, 0)).astype(float), 0)


def averaged(x: V) -> V:
    computes(x)
    return x if is_float(x.d) else cast(x, "float64")


def mean(x: V, gone: Sequence[int], stay: Sequence[int]) -> V:
    v, e = rows(x, gone, stay)
    m, off = mean_of(v, e, x.d)
    return finish(m, off, x.d, z=False, dims=[x.dims[k] for k in stay])


def variance(x: V, gone: Sequence[int], stay: Sequence[int]) -> V:
    v, e = rows(x, gone, stay)
    u = unit(accumulator(x.d))
    with np.errstate(all="ignore"):
        m, em = mean_of(v, e, x.d)
        m = np.asarray(m, np.float64) if accumulator(x.d) != "float32" else rounded(np.asarray(m), "float32")
        em = em + np.abs(np.where(np.isfinite(m), m, 0)) * 2 * u
        far = v - m[..., None]
        ef = e + em[..., None] + np.abs(np.where(np.isfinite(far), far, 0)) * 2 * u
        square = far * far
        es = _product_error(far, far, ef, ef) + np.where(np.isfinite(square), square, 0) * 2 * u
        top = largest(accumulator(x.d))
        es = np.where(np.isfinite(square) & (square > top * 0.5), INF, es)
        r, off = mean_of(square, es, x.d)
    return finish(r, off, x.d, 1, z=False, dims=[x.dims[k] for k in stay])


def squares(v: np.ndarray, e: np.ndarray, d: str) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(all="ignore"):
        s = v * v
        es = _product_error(v, v, e, e)
        lost = np.isfinite(s) & (s > largest(accumulator(d)) * 0.99)
        tiny = np.ldexp(1.0, FLOATS[accumulator(d)][1] - FLOATS[accumulator(d)][0] + 1)
        fine = rounded(s, accumulator(d)) == s
        return summed(s, np.where(lost, INF, np.where(fine & (e == 0), es, es + tiny)), d, 2)


# ---- exponentials along axes --------------------------------------------------------------------------------------------------


def exponentials(v: np.ndarray, e: np.ndarray, d: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers less the largest of their row; and, relative, how far e to them, and the sum of those, may be off."""
    u = unit(accumulator(d))
    with np.errstate(all="ignore"):
        m = v.max(-1, keepdims=True, initial=-INF)
        shifted = v - m
        reach = np.where(np.isfinite(shifted), np.abs(shifted), 0)
        off = e + e.max(-1, keepdims=True, initial=0) + 2 * u * reach
        share = np.expm1(np.minimum(off, 700)) + 10 * u
        return shifted, np.where(np.isinf(off), INF, share), off


def softmax_rows(v: np.ndarray, e: np.ndarray, d: str) -> tuple[np.ndarray, np.ndarray]:
    u, n = unit(accumulator(d)), v.shape[-1]
    with np.errstate(all="ignore"):
        shifted, share, _ = exponentials(v, e, d)
        p = np.exp(shifted)
        total = p.sum(-1, keepdims=True)
        worst = np.where(p > 0, share, 0).max(-1, keepdims=True, initial=0)
        r = p / total
        tiny = np.ldexp(1.0, FLOATS[accumulator(d)][1]) * 4  # where e to a number underflows
        return r, np.where(
            np.isnan(r), np.where(np.isinf(e).any(-1, keepdims=True), INF, 0), r * (share + worst + (n + 8) * u) * 1.5 + tiny
        )


def logsumexp_rows(v: np.ndarray, e: np.ndarray, d: str, finite: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """The logarithm of the sum of e to the numbers. finite: infinities as such, not as NaN."""
    u, n = unit(accumulator(d)), v.shape[-1]
    with np.errstate(all="ignore"):
        m = v.max(-1, initial=-INF)
        by = np.where(np.isfinite(m), m, 0) if finite else m
        s = np.log(np.exp(v - by[..., None]).sum(-1))
        r = s + by
        reach = np.where(np.isfinite(v - by[..., None]), np.abs(v - by[..., None]), 0)
        weight = np.exp(np.where(np.isfinite(v), v - by[..., None], -INF))
        off = 2 * e.max(-1, initial=0) + u * (
            (n + 8) + 8 * np.abs(np.where(np.isfinite(s), s, 0)) + 4 * (weight * reach).max(-1, initial=0)
        )
        off = off + 4 * u * np.abs(np.where(np.isfinite(by), by, 0))
        lost = np.isinf(e).any(-1)
        return r, np.where(lost, INF, np.where(np.isfinite(r), off, 0.0))


# ---- products -----------------------------------------------------------------------------------------------------------------


def contraction(x: V, y: V, over: Sequence[tuple[str, int]], extra: float = 1.0) -> V:
    """The sum over axes of x*y; the result has x's other axes, then y's."""
    union(x, y)
    every = {a[:2]: a for a in (*x.dims, *y.dims)}
    stay = [every[n] for n in every if n not in over]
    stay = [a for a in x.dims if a[:2] not in over] + [a for a in y.dims if a[:2] not in over and a[:2] not in x.names]
    dims = [*stay, *[every[n] for n in over]]
    (a, ea), (b, eb) = along(x, dims), along(y, dims)
    shape = np.broadcast_shapes(a.shape, b.shape)
    flat = [*shape[: len(stay)], math.prod(shape[len(stay) :])]
    with np.errstate(all="ignore"):
        if not is_float(x.d):
            p = np.broadcast_to(a * b, shape).reshape(flat)
            e = np.broadcast_to(ea + eb, shape).reshape(flat)
            return V(x.d, tuple(stay), np.add.reduce(p, axis=-1, dtype=p.dtype), np.where((e > 0).any(-1), INF, 0))
        p = np.broadcast_to(a * b, shape).reshape(flat)
        e = np.broadcast_to(_product_error(a, b, ea, eb), shape).reshape(flat)
        d = accumulator(x.d)
        tiny = np.ldexp(1.0, FLOATS[d][1] - FLOATS[d][0] + 1)
        e = np.where((e == 0) & (rounded(p, d) == p), 0.0, e + tiny)
        finite = np.broadcast_to(np.isfinite(a) & np.isfinite(b), shape).reshape(flat)
        e = np.where(finite & ~(np.abs(p) <= largest(d) * 0.99), INF, e)  # infinite, but not if it is rounded with its sum
        r, off = summed(p, e, x.d, 2 * extra)
    return finish(r, off, x.d, z=False, dims=stay)


# ---- random words (section 6) -------------------------------------------------------------------------------------------------


def philox(counter: Sequence[Any], key: tuple[int, int]) -> np.ndarray:
    """Philox 4x32 of ten rounds; Salmon and others, "Parallel random numbers: as easy as 1, 2, 3" (2011)."""
    mask = np.uint64(0xFFFFFFFF)
    c = [np.asarray(x, np.uint64) & mask for x in np.broadcast_arrays(*counter)]
    k = [key[0], key[1]]
    for _ in range(10):
        p, q = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(q >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]), q & mask, (p >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]), p & mask]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, -1)


def words(shape: tuple[int, ...], seed: int, step: int, stream: int, trips: Sequence[int]) -> np.ndarray:
    trip = 0
    for index in trips:
        trip = (trip * 0x9E3779B1 + index + 1) % 2**32
    count = math.prod(shape)
    made = philox((np.arange(-(-count // 4), dtype=np.uint64), step % 2**32, stream % 2**32, trip), (seed % 2**32, seed >> 32))
    return made.reshape(-1)[:count].reshape(shape)


DIGITS_OF_UNIFORMS = {"bfloat16": 8, "float16": 11, "float32": 24}


def fractions(shape: tuple[int, ...], d: str, draw: Callable[[int], np.ndarray]) -> np.ndarray:
    """Uniform numbers in [0, 1): the top bits of a word, of two for float64; `draw` gives the words of a stream so many on."""
    if d == "float64":
        return (((draw(0) >> np.uint64(5)) << np.uint64(26)) + (draw(1) >> np.uint64(6))).astype(np.float64) * 2.0**-53
    digits = DIGITS_OF_UNIFORMS[d]
    return (draw(0) >> np.uint64(32 - digits)).astype(np.float64) * 2.0**-digits


# ---- a whole program ----------------------------------------------------------------------------------------------------------


class Run:
    """One call of a case: which lengths its open axes have, what variables hold, which random numbers come."""

    def __init__(self, case: dict[str, Any], run: int, step: int, streams: dict[str, int], state: dict[str, V]):
        self.case, self.run, self.step, self.streams = case, run, step, streams
        self.env: dict[str, Any] = dict(state)
        self.state = dict(state)
        self.trips: list[int] = []
        self.printed: list[str] = []

    def length(self, name: str) -> int:
        return int(self.case["axes"][name]["n"][self.run])

    def dim(self, name: str, level: int) -> Dim:
        axis = self.case["axes"][name]
        return (name, level, f"{name}" if axis["open"] else axis["n"][0])

    def arg(self, a: Any) -> Any:
        return number(a["n"]) if isinstance(a, dict) else self.env[a]

    def args(self, op: dict[str, Any]) -> list[Any]:
        return [self.arg(a) for a in op["args"]]

    def ops(self, ops: Sequence[dict[str, Any]]) -> None:
        for op in ops:
            with np.errstate(all="ignore"):
                made = FUNCTIONS[op["op"]](self, self.args(op), op.get("at", {}), op["id"])
            if isinstance(made, tuple):
                for k, v in enumerate(made):
                    self.env[f"{op['id']}.{k}"] = v
            elif made is not None:
                self.env[op["id"]] = made

    def draws(self, seed: int | None, ident: str, shape: tuple[int, ...]) -> Callable[[int], np.ndarray]:
        if seed is not None:
            return lambda k: words(shape, seed, self.step, 2**32 - 4 + k, self.trips)
        return lambda k: words(shape, self.case["seed"], self.step, self.streams.get(ident, 0) + k, self.trips)


FUNCTIONS: dict[str, Callable[[Run, list[Any], dict[str, Any], str], Any]] = {}


def means(*names: str) -> Callable[[Any], Any]:
    def keep(f: Any) -> Any:
        for name in names:
            FUNCTIONS[name] = f
        return f

    return keep


def _elementwise() -> None:
    for name in UNARY:
        FUNCTIONS[name] = lambda r, a, at, i, name=name: unary(name, *floating(a))
    for name, inner in (("floor", "floor"), ("ceil", "ceil"), ("trunc", "trunc"), ("rounded", "round")):
        FUNCTIONS[name] = lambda r, a, at, i, inner=inner: whole_function(inner, *arithmetic(a))
    for name, inner in (("add", "add"), ("subtract", "subtract"), ("multiply", "multiply"), ("mod", "remainder"), ("power", "power")):
        FUNCTIONS[name] = lambda r, a, at, i, inner=inner: binary(inner, arithmetic(a, at.get("dtype")))
    for name in ("maximum", "minimum"):
        FUNCTIONS[name] = lambda r, a, at, i, name=name: binary(name, _computed(common(a, at.get("dtype"))))
    for name, inner, turned in (
        ("equal", "equal", False), ("not_equal", "not_equal", False), ("less", "less", False),
        ("less_equal", "less_equal", False), ("greater", "less", True), ("greater_equal", "less_equal", True),
    ):  # fmt: skip
        FUNCTIONS[name] = lambda r, a, at, i, inner=inner, turned=turned: _truth(
            compare(inner, common(a[::-1] if turned else a), common(a)), at.get("dtype")
        )
    for name in ("and", "or", "xor", "shl", "shr"):
        FUNCTIONS["bits_" + name] = lambda r, a, at, i, name=name: binary(name, _of_bits(common(a), name))


def _truth(x: V, dtype: str | None) -> V:
    return x if dtype is None else cast(x, dtype)


def _computed(xs: list[V]) -> list[V]:
    computes(*xs)
    return xs


def _of_bits(xs: list[V], name: str) -> list[V]:
    if is_float(xs[0].d) or xs[0].d in NARROW or (xs[0].d == "bool" and name in ("shl", "shr")):
        raise Refused("bits of floats")
    return xs


_elementwise()


def exactly_or(x: V, v: np.ndarray, e: np.ndarray | None = None) -> V:
    return finish(v, x.e if e is None else e, x.d, z=x.z, dims=x.dims) if is_float(x.d) else like(x, v, x.e)


@means("divide")
def _divide(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    return binary("divide", floating(a))


@means("floordivide")
def _floordivide(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    """NumPy's floor_divide, exact where whole numbers are exact in the dtype that computes; beyond that off by its two roundings."""
    xs = arithmetic(a)
    d = xs[0].d
    if not is_float(d):
        return binary("floordivide", xs)
    about = whole_function("floor", binary("divide", xs))
    wide = np.longdouble if d == "float64" else np.float64
    with np.errstate(all="ignore"):
        dims, (x, y), (ex, ey), shape = lined(xs)
        r = np.broadcast_to(np.floor_divide(x.astype(wide), y.astype(wide)), shape)
        size, step = np.abs(r).astype(float), unit(accumulator(d))
        off = np.where(np.isfinite(size) & (size * step > 0.125), 4 * step * size, 0.0)
        return finish(r, np.where(ex + ey == 0, 0.0, about.e) + off, d, z=about.z, dims=dims)


@means("negative")
def _negative(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    (x,) = arithmetic(a)
    if x.d.startswith("uint"):
        raise Refused("negative of unsigned")
    return like(x, np.negative(x.v), x.e, z=x.z)


@means("absolute")
def _absolute(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    (x,) = arithmetic(a)
    return like(x, np.abs(x.v), x.e)


@means("sign")
def _sign(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    (x,) = arithmetic(a)
    if x.d.startswith("uint"):
        raise Refused("sign of unsigned")
    return whole_function("sign", x)


@means("square")
def _square_of(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    (x,) = arithmetic(a)
    return binary("multiply", [x, x])


@means("relu")
def _relu(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    (x,) = arithmetic(a)
    return binary("maximum", [x, filled(0, x.d)])


@means("elu")
def _elu(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    (x,) = floating(a)
    alpha = at["alpha"]
    with np.errstate(all="ignore"):
        v = np.where(x.v > 0, x.v, np.expm1(np.minimum(x.v, 0)) * alpha)
        v = np.where(np.isnan(x.v), np.nan, v)
        slope = max(1.0, abs(alpha))
        made = finish(v, np.where(x.e == 0, 0.0, slope * x.e), x.d, 4, False, x.dims)
        return like(x, made.v, np.where((x.v > 0) & (x.e == 0), 0.0, made.e), z=False)


@means("gelu_tanh")
def _gelu_tanh(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    (x,) = floating(a)
    with np.errstate(all="ignore"):
        v = x.v * 0.5 * (np.tanh((x.v + x.v**3 * 0.044715) * math.sqrt(2 / math.pi)) + 1.0)
        e = np.where(x.e == 0, 0, 1.2 * x.e) + 16 * unit(accumulator(x.d)) * np.minimum(
            np.abs(x.v) + np.abs(x.v) ** 3 * np.exp(-(x.v**2) / 4), 1e30
        )
        e = e + 4 * unit(accumulator(x.d)) * np.abs(x.v)
        cubes = np.abs(x.v) > largest(accumulator(x.d)) ** (1 / 3) / 2  # x * x * x is infinite, and tanh of that 1
        return finish(np.where(cubes & np.isfinite(x.v), np.where(x.v > 0, x.v, -0.0), v), e, x.d, 4, False, x.dims)


@means("clip")
def _clip(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    ends = a[1:]
    xs = common([a[0], *ends]) if ends else [a[0]]
    computes(*xs)
    if not ends and xs[0].d in NARROW:
        raise Refused("narrow")
    x, *given = [cast(v, "float32") if v.d == "bool" else v for v in xs]
    has = at["has"]
    low = given.pop(0) if has[0] else None
    high = given.pop(0) if has[1] else None
    x = x if low is None else binary("maximum", [x, low])
    return x if high is None else binary("minimum", [x, high])


@means("safelog")
def _safelog(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    x = a[0]
    limit = float(at["limit"])
    (x,) = arithmetic([x])
    bottom = binary("maximum", common([x, math.exp(limit)]))
    (bottom,) = floating([bottom])
    return binary("maximum", common([unary("log", bottom), limit]))


@means("logical_and", "logical_or")
def _logical(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    return binary(at["kind"], [cast(x, "bool") for x in a])


@means("logical_not", "bits_invert")
def _not(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    (x,) = a
    if is_float(x.d) or x.d in NARROW:
        raise Refused("bits of floats")
    return like(x, np.invert(x.v), x.e)


@means("stop_gradient", "value_of", "all_reduce", "broadcast_from", "checkpoint", "dualed")
def _same(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    return a[0]


@means("PrintOp")
def _print_op(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    return a[0]


@means("where")
def _where(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    return where(a[0], *common(a[1:]))


@means("cast")
def _cast(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    x, d = a[0], at["dtype"]
    if at.get("saturate") and (is_float(d) or (d in NARROW and d not in WHOLE_NARROW)) and x.d not in ("bool", d):
        if x.d in NARROW or (x.d in INTS and bits(x.d) < 32):
            x = cast(x, "float32")
        top = largest(d) if is_float(d) else float(codes(d)[0][-1])
        # held at the largest number first, in the dtype that it has
        highest = INF if is_float(x.d) else limits(x.d)[1]
        if highest > top:
            low = -top if x.d not in INTS else max(-int(top), limits(x.d)[0])
            ends = [filled(low if is_float(x.d) else int(low), x.d), filled(top if is_float(x.d) else int(top), x.d)]
            x = binary("minimum", [binary("maximum", [x, ends[0]]), ends[1]])
    return cast(x, d)


@means("bitcast")
def _bitcast(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    (x,) = a
    d = at["dtype"]
    if bits(d) != bits(x.d):
        raise Refused("unlike widths")
    raw = np.ascontiguousarray(out_of(x)).view(numpy_type(d)).reshape(x.v.shape)
    made = into(d, x.dims, raw)
    nan = np.isnan(x.v) if x.v.dtype.kind == "f" else np.zeros(x.v.shape, bool)  # which of them it is, nobody says
    return like(made, made.v, np.where((x.e > 0) | nan, INF, 0))


def out_of(x: V) -> np.ndarray:
    """The numbers as an array of the dtype itself."""
    with np.errstate(all="ignore"):
        return np.asarray(x.v).astype(numpy_type(x.d))


def into(d: str, dims: Sequence[Dim], array: np.ndarray) -> V:
    if is_float(d) or (d in NARROW and d not in WHOLE_NARROW):
        return V(d, tuple(dims), array.astype(np.float64), np.zeros(array.shape))
    return V(d, tuple(dims), array.astype(np.int8) if d in WHOLE_NARROW else array, np.zeros(array.shape))


# ---- reductions


def _summing(x: V) -> V:
    computes(x)
    return cast(x, "int32") if x.d == "bool" else x


@means("sum", "prod", "max", "min")
def _reduction(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    x, kind = a[0], at["kind"]
    computes(x)
    x = cast(x, at["dtype"]) if at.get("dtype") else _summing(x) if kind in ("add", "multiply") else x
    if x.d == "bool" and kind in ("add", "multiply"):
        raise Refused("sum as bool")
    gone = gone_axes(x, at)
    if not gone:
        return moved_dims(x, kept(x, gone, at))
    return reduce(kind, x, gone, kept(x, gone, at))


def moved_dims(x: V, order: Sequence[int]) -> V:
    return V(x.d, tuple(x.dims[k] for k in order), np.transpose(x.v, order), np.transpose(x.e, order), x.z)


@means("mean")
def _mean(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    x = cast(a[0], at["dtype"]) if at.get("dtype") else averaged(a[0])
    if not is_float(x.d):
        raise Refused("a mean as integers")
    gone = gone_axes(x, at)
    return mean(x, gone, kept(x, gone, at))


@means("variance")
def _variance(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    x = averaged(a[0])
    gone = gone_axes(x, at)
    return variance(x, gone, kept(x, gone, at))


@means("squared_L2")
def _squared(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    x = a[0]
    computes(x)
    gone = gone_axes(x, at)
    stay = kept(x, gone, at)
    (x,) = arithmetic([x])
    if not is_float(x.d):
        return reduce("add", binary("multiply", [x, x]), gone, stay) if gone else moved_dims(binary("multiply", [x, x]), stay)
    v, e = rows(x, gone, stay)
    s, off = squares(v, e, x.d)
    return finish(s, off, x.d, z=False, dims=[x.dims[k] for k in stay])


@means("L2_norm")
def _norm(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    (x,) = floating(a)
    gone = gone_axes(x, at)
    stay = kept(x, gone, at)
    v, e = rows(x, gone, stay)
    with np.errstate(all="ignore"):
        s, off = squares(v, e, x.d)
        s = np.asarray(s, np.float64) + 1e-8
        off = off + 2 * unit(accumulator(x.d)) * np.where(np.isfinite(s), s, 0)
        root = np.sqrt(s)
        return finish(
            root,
            moved(np.sqrt, s, np.minimum(off, np.where(np.isinf(off), INF, off)), "monotone"),
            x.d,
            1,
            False,
            [x.dims[k] for k in stay],
        )


@means("L1_norm")
def _norm1(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    (x,) = arithmetic(a)
    x = like(x, np.abs(x.v), x.e)
    gone = gone_axes(x, at)
    return reduce("add", x, gone, kept(x, gone, at)) if gone else moved_dims(x, kept(x, gone, at))


@means("logsumexp")
def _logsumexp(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    (x,) = floating(a)
    gone = gone_axes(x, at)
    stay = kept(x, gone, at)
    v, e = logsumexp_rows(*rows(x, gone, stay), x.d)
    return finish(v, e, x.d, 1, False, [x.dims[k] for k in stay])


@means("softmax", "log_softmax")
def _softmax(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    (x,) = floating(a)
    gone = gone_axes(x, at)
    stay = kept(x, gone)
    v, e = rows(x, gone, stay)
    with np.errstate(all="ignore"):
        if at["log"]:
            total, off = logsumexp_rows(v, e, x.d, finite=False)
            w = v - total[..., None]
            off = e + off[..., None] + 4 * unit(accumulator(x.d)) * np.abs(np.where(np.isfinite(w), w, 0))
            infinite = np.isneginf(v) & np.isfinite(total)[..., None]
            off = np.where(infinite, np.where(np.isinf(e), INF, 0), off)
        else:
            w, off = softmax_rows(v, e, x.d)
    order = [*stay, *gone]
    shape = [x.v.shape[k] for k in order]
    back = np.argsort(order)
    made = finish(np.transpose(w.reshape(shape), back), np.transpose(off.reshape(shape), back), x.d, 1, False, x.dims)
    return made


@means("argmax", "argmin")
def _argmax(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    x = a[0]
    computes(x)
    gone = gone_axes(x, at)
    stay = kept(x, gone, at)
    v, e = rows(x, gone, stay)
    if v.shape[-1] == 0:
        raise Refused("the largest of nothing")
    largest_ = at["kind"] == "max"
    w = v.astype(np.int8) if x.d == "bool" else v
    found = np.argmax(w, -1) if largest_ else np.argmin(w, -1)
    best = np.take_along_axis(v, found[..., None], -1)
    eb = np.take_along_axis(e, found[..., None], -1)
    with np.errstate(all="ignore"):
        near = (np.abs(_wide(v) - _wide(best)) <= e + eb) & (np.arange(v.shape[-1]) != found[..., None]) & ((e + eb) > 0)
        near = near | np.isinf(e)
    lost = near.any(-1) & ~(np.isnan(_wide(best[..., 0])) & ~np.isinf(e).any(-1))
    return _truth(V("int32", tuple(x.dims[k] for k in stay), found.astype(np.int32), np.where(lost, INF, 0.0)), at.get("dtype"))


@means("tensor_size")
def _tensor_size(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    gone = gone_axes(a[0], at)
    return finish(np.asarray(float(math.prod(a[0].v.shape[k] for k in gone))), 0.0, "float32")


@means("batch_size")
def _batch_size(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    n = [a[0].v.shape[k] for k, dim in enumerate(a[0].dims) if dim[:2] == ("N", 0)]
    return finish(np.asarray(float(math.prod(n))), 0.0, "float32")


@means("cumsum")
def _cumsum(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    x = _summing(a[0])
    k = x.pos(tuple(at["axis"]))
    v, e = np.moveaxis(x.v, k, -1), np.moveaxis(x.e, k, -1)
    n = v.shape[-1]
    if at["reverse"]:
        v, e = v[..., ::-1], e[..., ::-1]
    parts = [(v[..., : j + (not at["exclusive"])], e[..., : j + (not at["exclusive"])]) for j in range(n)]
    if not is_float(x.d):
        out = [np.add.reduce(p, axis=-1, dtype=v.dtype) for p, _ in parts]
        off = [np.where((q > 0).any(-1), INF, 0.0) for _, q in parts]
        w, o = (np.stack(s, -1) if n else np.zeros(v.shape, v.dtype) for s in (out, off))
    else:
        made = [finish(*summed(p, q, x.d), x.d) for p, q in parts]
        w, o = (np.stack(s, -1) if n else np.zeros(v.shape) for s in ([m.v for m in made], [m.e for m in made]))
    if at["reverse"]:
        w, o = w[..., ::-1], o[..., ::-1]
    return like(x, np.moveaxis(w, -1, k), np.moveaxis(o, -1, k), z=False)


def ordered(x: V, k: int, descending: bool, nan_largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """The stable order along dim k, NaN last or the largest; and which rows have elements that a rounding may exchange."""
    v, e = np.moveaxis(x.v, k, -1), np.moveaxis(x.e, k, -1)
    if x.d == "bool":
        v = v.astype(np.int8)
    nan = v != v
    flat = v.reshape(math.prod(v.shape[:-1]), v.shape[-1])
    order = np.empty(flat.shape, np.int64)
    for row, (values, lost) in enumerate(zip(flat, nan.reshape(flat.shape), strict=True)):
        sign, last = (-1, not nan_largest) if descending else (1, True)
        keys = [(bool(lost[j]) == last, 0 if lost[j] else sign * v_) for j, v_ in enumerate(values.tolist())]
        order[row] = sorted(range(len(keys)), key=lambda j: keys[j])
    order = order.reshape(v.shape)
    s, es = np.take_along_axis(v, order, -1), np.take_along_axis(e, order, -1)
    with np.errstate(all="ignore"):
        gap = np.abs(_wide(s[..., 1:]) - _wide(s[..., :-1]))
        near = (gap <= es[..., 1:] + es[..., :-1]) & ((es[..., 1:] + es[..., :-1]) > 0)
    return order, near.any(-1) | np.isinf(es).any(-1)


def take_order(x: V, order: np.ndarray, unsure: np.ndarray, k: int, key: bool) -> V:
    v, e = np.moveaxis(x.v, k, -1), np.moveaxis(x.e, k, -1)
    w, o = np.take_along_axis(v, order, -1), np.take_along_axis(e, order, -1)
    if key and is_float(x.d):
        o = np.where(unsure[..., None], e.max(-1, keepdims=True, initial=0), o)
    else:
        o = np.where(unsure[..., None], INF, o)
    return like(x, np.moveaxis(w, -1, k), np.moveaxis(o, -1, k), z=x.z and not key)


@means("sort")
def _sort(r: Run, a: list[Any], at: dict[str, Any], i: str) -> Any:
    x = a[0]
    computes(x)
    k = x.pos(tuple(at["axis"]))
    order, unsure = ordered(x, k, at["descending"], at["nan_largest"])
    values = [broadcast(v, x.dims, x.v.shape) for v in a[1:]]
    made = [take_order(v, order, unsure, k, j == 0) for j, v in enumerate([x, *values])]
    return tuple(made) if values else made[0]


@means("top_k")
def _top_k(r: Run, a: list[Any], at: dict[str, Any], i: str) -> Any:
    x = a[0]
    computes(x)
    k, n = x.pos(tuple(at["axis"])), at["k"]
    if n > x.v.shape[k]:
        raise Refused("more than there are")
    order, unsure = ordered(x, k, at["largest"], at["nan_largest"])
    order = order[..., :n]
    dims = [(a_[0], a_[1], n) if j == k else a_ for j, a_ in enumerate(x.dims)]
    best = take_order(x, order, unsure, k, True)
    place = np.moveaxis(order.astype(np.int32), -1, k)
    off = np.moveaxis(np.broadcast_to(np.where(unsure[..., None], INF, 0.0), order.shape), -1, k)
    return like(best, best.v, best.e, dims=dims, z=False), V("int32", tuple(dims), place, off)


# ---- what moves


def broadcast(x: V, dims: Sequence[Dim], shape: Sequence[int]) -> V:
    if any(n not in [d[:2] for d in dims] for n in x.names):
        raise Refused("an axis would be lost")
    for a in x.dims:
        if next(d for d in dims if d[:2] == a[:2])[2] != a[2]:
            raise Refused("unlike lengths meet")
    v, e = along(x, dims)
    return V(x.d, tuple(dims), np.broadcast_to(v, shape), np.broadcast_to(e, shape), x.z)


def target_dims(r: Run, x: V, refs: Sequence[Any]) -> tuple[list[Dim], list[int]]:
    """Dims and lengths for names: those of x as it has them, others as the case has them."""
    dims, shape = [], []
    for name, level in refs:
        if (name, level) in x.names:
            k = x.pos((name, level))
            dims.append(x.dims[k])
            shape.append(x.v.shape[k])
        else:
            dims.append(r.dim(name, level))
            shape.append(r.length(name))
    return dims, shape


@means("broadcast", "expand_dims", "axes_with_order")
def _broadcast(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    return broadcast(a[0], *target_dims(r, a[0], at["axes"]))


@means("map_roles", "cast_axes", "cast_role", "dualed_axes")
def _renamed(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    x = a[0]
    dims = tuple((n, level, old[2]) for (n, level), old in zip(at["axes"], x.dims, strict=True))
    if len({d[:2] for d in dims}) != len(dims):
        raise Refused("an axis twice")
    return V(x.d, dims, x.v, x.e, x.z)


def resized(dim: Dim, n: int, how: str) -> Dim:
    return (dim[0], dim[1], n if isinstance(dim[2], int) else f"{dim[2]}{how}")


@means("slice", "slice_along_axis", "tensor_slice", "getitem")
def _slice(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    x = a[0]
    index: list[Any] = []
    dims = []
    for k, item in enumerate(at["items"]):
        if isinstance(item, int):
            if not -x.v.shape[k] <= item < x.v.shape[k]:
                raise Refused("an index outside")
            index.append(item)
            continue
        if isinstance(item, list):
            s = slice(*item)
            index.append(s)
            n = len(range(x.v.shape[k])[s])
            whole = s.start in (None, 0) and s.stop is None and s.step in (None, 1)
            dims.append(x.dims[k] if whole else resized(x.dims[k], n, str(item)))
        else:
            index.append(slice(None))
            dims.append(x.dims[k])
    return V(x.d, tuple(dims), x.v[tuple(index)], x.e[tuple(index)], x.z)


@means("flip")
def _flip(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    x = a[0]
    ks = tuple(x.pos(tuple(n)) for n in at["axes"])
    return like(x, np.flip(x.v, ks), np.flip(x.e, ks), z=x.z)


@means("pad")
def _pad(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    x = a[0]
    sides = at["sides"]
    fill = filled(number(at["value"]), x.d).v if x.d != "bool" else bool(at["value"])
    v = np.pad(x.v, sides, constant_values=fill)
    dims = [d if s == [0, 0] else resized(d, n, f"+{s}") for d, s, n in zip(x.dims, sides, v.shape, strict=True)]
    return like(x, v, np.pad(x.e, sides), dims=dims, z=x.z)


@means("diagonal")
def _diagonal(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    x = a[0]
    p, q = x.pos(tuple(at["axis"])), x.pos(tuple(at["other"]))
    n = min(x.v.shape[p], x.v.shape[q])
    j = np.arange(n)
    rest = [k for k in range(len(x.dims)) if k not in (p, q)]

    def pick(v: np.ndarray) -> np.ndarray:
        w = np.transpose(v, [*rest, p, q])[..., j, j]
        return np.moveaxis(w, -1, p - (q < p))

    if x.dims[p][2] == x.dims[q][2]:
        kept_ = x.dims[p]
    elif isinstance(x.dims[p][2], int) and isinstance(x.dims[q][2], int):
        kept_ = (*x.dims[p][:2], n)
    else:
        kept_ = (*x.dims[p][:2], f"min({x.dims[p][2]},{x.dims[q][2]})")
    dims = [kept_ if k == p else d for k, d in enumerate(x.dims) if k != q]
    return like(x, pick(x.v), pick(x.e), dims=dims, z=x.z)


@means("concat_along_axis")
def _concat(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    xs = common(a)
    name = tuple(at["axis"])
    first = xs[0]
    k = first.pos(name)
    if len(xs) == 1:
        return first
    total: Any = 0
    vs, es = [], []
    for x in xs:
        if set(x.names) != set(first.names):
            raise Refused("other axes")
        for n, d in zip(first.names, first.dims, strict=True):
            if n != name and x.dims[x.pos(n)][2] != d[2]:
                raise Refused("unlike lengths meet")
        order = [x.pos(n) for n in first.names]
        vs.append(np.transpose(x.v, order))
        es.append(np.transpose(x.e, order))
        tag = x.dims[x.pos(name)][2]
        total = total + tag if isinstance(total, int) and isinstance(tag, int) else f"{total}&{tag}"
    v = np.concatenate(vs, k)
    return V(
        first.d, tuple((*name, total) if j == k else d for j, d in enumerate(first.dims)), v, np.concatenate(es, k), all(x.z for x in xs)
    )


@means("stack")
def _stack(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    xs = common(a)
    first = xs[0]
    lined_ = [broadcast(x, first.dims, first.v.shape) for x in xs]
    if any(set(x.names) != set(first.names) for x in xs) or (at["name"], 0) in first.names:
        raise Refused("other axes")
    dims = [*first.dims[: at["pos"]], (at["name"], 0, len(xs)), *first.dims[at["pos"] :]]
    return V(
        first.d, tuple(dims), np.stack([x.v for x in lined_], at["pos"]), np.stack([x.e for x in lined_], at["pos"]), all(x.z for x in xs)
    )


@means("flatten", "flatten_at")
def _flatten(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    """Groups of axes joined, each at the place of its first."""
    x = a[0]
    groups = [[x.pos(tuple(n)) for n in g] for g in at["groups"] if len(g) > 1]
    joined = {k: g for g in groups for k in g}
    order, shape, dims, done = [], [], [], set()
    for k, d in enumerate(x.dims):
        g = joined.get(k)
        if g is None:
            order.append(k)
            shape.append(x.v.shape[k])
            dims.append(d)
        elif tuple(g) not in done:
            done.add(tuple(g))
            order += g
            n = math.prod(x.v.shape[j] for j in g)
            shape.append(n)
            tag: Any = n if all(isinstance(x.dims[j][2], int) for j in g) else "*".join(str(x.dims[j][2]) for j in g)
            dims.append((f"*{i}.{len(done)}", 0, tag))
    return like(x, np.transpose(x.v, order).reshape(shape), np.transpose(x.e, order).reshape(shape), dims=dims, z=x.z)


@means("unflatten", "rearrange_split")
def _unflatten(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    """One axis taken apart into new ones, the last fastest."""
    x = a[0]
    k = x.pos(tuple(at["axis"]))
    parts = at["parts"]
    if math.prod(n for _, n in parts) != x.v.shape[k] or any((n, 0) in x.names for n, _ in parts):
        raise Refused("does not come apart")
    shape = [*x.v.shape[:k], *[n for _, n in parts], *x.v.shape[k + 1 :]]
    dims = [*x.dims[:k], *[(name, 0, n) for name, n in parts], *x.dims[k + 1 :]]
    return like(x, x.v.reshape(shape), x.e.reshape(shape), dims=dims, z=x.z)


@means("iota")
def _iota(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    n = r.length(at["axis"][0])
    return cast(exact("int64", [r.dim(*at["axis"])], np.arange(n, dtype=np.int64)), at["dtype"])


@means("all_gather", "reduce_scatter")
def _alone(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    if at["op"] == "reduce_scatter":
        computes(a[0])
        if a[0].d == "bool":
            raise Refused("sum of bool")
    return a[0]


# ---- indexing


def target(i: np.ndarray, n: int, mode: str) -> tuple[np.ndarray, np.ndarray]:
    i = np.array([int(j) for j in i.ravel()], object).reshape(i.shape)
    if n == 0:
        return np.zeros(i.shape, np.int64), np.zeros(i.shape, bool)
    inside = np.array([0 <= j < n for j in i.ravel()], bool).reshape(i.shape)
    held = np.array([j % n if mode == "wrap" else max(0, min(n - 1, j)) for j in i.ravel()], np.int64).reshape(i.shape)
    return held, inside if mode == "fill" else np.ones(i.shape, bool)


def zero_of(x: V) -> np.ndarray:
    """0 of a dtype, or where it has none the number whose bits are 0."""
    return np.asarray(2.0**-127 if x.d == "float8_e8m0fnu" else 0).astype(x.v.dtype)


def gather(x: V, indices: Sequence[V], axes: Sequence[tuple[str, int]], mode: str) -> V:
    union(*indices)
    places = list({d[:2]: d for v in indices for d in v.dims}.values())  # the first's, then what others have beside
    rest = [d for d in x.dims if d[:2] not in axes]
    for d in rest:
        for p in places:
            if p[:2] == d[:2] and p[2] != d[2]:
                raise Refused("unlike lengths meet")
    at = min(x.pos(a) for a in axes)
    before, after = [d for d in x.dims[:at] if d[:2] not in axes], [d for d in x.dims[at:] if d[:2] not in axes]
    dims = [*before, *[p for p in places if p[:2] not in [d[:2] for d in rest]], *after]
    sizes = {d[:2]: n for d, n in zip(x.dims, x.v.shape, strict=True) if d[:2] not in axes}
    sizes.update({d[:2]: n for v in indices for d, n in zip(v.dims, v.v.shape, strict=True)})
    shape = tuple(sizes[d[:2]] for d in dims)
    inside, index, lost = np.ones(shape, bool), [], np.zeros(shape, bool)
    for d, n in zip(x.dims, x.v.shape, strict=True):
        if d[:2] in axes:
            i, ei = along(indices[list(axes).index(d[:2])], dims)
            held, ok = target(i, n, mode)
            inside = inside & ok
            lost = lost | (ei > 0)
        else:
            held = np.arange(n).reshape([n if e[:2] == d[:2] else 1 for e in dims])
        index.append(np.broadcast_to(held, shape))
    if x.v.size == 0:
        return exact(x.d, dims, np.broadcast_to(zero_of(x), shape))
    zero = zero_of(x)
    e = np.where(lost, INF, np.where(inside, x.e[tuple(index)], 0))
    return V(x.d, tuple(dims), np.where(inside, x.v[tuple(index)], zero), e, x.z)


def _index(x: V) -> V:
    if x.d not in INTS:
        raise Refused("an index that is not whole")
    return x


@means("take", "gather")
def _take(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    return gather(a[0], [_index(x) for x in a[1:]], [tuple(n) for n in at["axes"]], at["mode"])


@means("lookuptable")
def _lookup(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    made = gather(a[0], [_index(a[1])], [tuple(at["axis"])], "fill")
    order = [made.pos(tuple(n)) for n in at["axes"]]
    return moved_dims(made, order)


@means("put", "scatter_add", "scatter")
def _put(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    x, idx, u = a
    how, name = at["combine"], tuple(at["axis"])
    _index(idx)
    x, u = common([x, u])
    if how != "set":
        computes(x)
    if x.d == "bool" and how in ("add", "multiply"):
        raise Refused("sum of bool")
    k = x.pos(name)
    rest = [(d, n) for d, n in zip(x.dims, x.v.shape, strict=True) if d[:2] != name]
    wanted = [(d, n) for d, n in zip(idx.dims, idx.v.shape, strict=True)]
    for d, n in rest:
        same = [w for w in wanted if w[0][:2] == d[:2]]
        if same and same[0][0][2] != d[2]:
            raise Refused("unlike lengths meet")
        if not same:
            wanted.append((d, n))
    dims, shape = [d for d, _ in wanted], tuple(n for _, n in wanted)
    u = broadcast(u, dims, shape)
    iv, ie = along(idx, dims)
    held, inside = target(np.broadcast_to(iv, shape), x.v.shape[k], at["mode"])
    unknown = bool((ie > 0).any())
    v, e = x.v.copy(), x.e.copy()
    terms: dict[tuple[int, ...], list[tuple[Any, float]]] = {}
    for place in np.ndindex(*shape):
        if inside[place]:
            where_ = tuple(int(held[place]) if d[:2] == name else place[[w[:2] for w in dims].index(d[:2])] for d in x.dims)
            terms.setdefault(where_, []).append((u.v[place], float(u.e[place])))
    with np.errstate(all="ignore"):
        for where_, given in terms.items():
            many = [*given] if how == "set" else [(v[where_], float(e[where_])), *given]
            if how == "set":
                v[where_], e[where_] = given[0]
                if len(given) > 1 and any(g[0] != given[0][0] or g[0] == 0 or g[1] for g in given):
                    e[where_] = INF
                continue
            one = V(x.d, (("_", 0, len(many)),), np.array([m[0] for m in many], v.dtype), np.array([m[1] for m in many]))
            made = reduce({"add": "add", "multiply": "multiply", "max": "max", "min": "min"}[how], one, [0], [])
            v[where_], e[where_] = made.v, made.e
    return like(x, v, np.full(e.shape, INF) if unknown else e, z=x.z and how == "set")


@means("one_hot")
def _one_hot(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    x = a[0]
    computes(x)
    name, n = at["name"], at["n"]
    if (name, 0) in x.names:
        raise Refused("an axis twice")
    hot = np.arange(n).reshape(-1, *[1] * x.v.ndim) == x.v.astype(np.int8 if x.d == "bool" else x.v.dtype)[None]
    unsure = np.zeros(hot.shape)
    if (x.e > 0).any():
        unsure = np.where((x.e > 0)[None] & (np.abs(np.arange(n).reshape(-1, *[1] * x.v.ndim) - x.v[None]) <= x.e[None]), INF, 0)
    return V("float32", ((name, 0, n), *x.dims), hot.astype(np.float64), unsure)


# ---- products


@means("dot")
def _dot(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    x, y = arithmetic(a)
    pairs = [n for n in x.names if (n[0], n[1] + 1) in y.names]
    in_y = {(n[0], n[1] + 1): f"={k}" for k, n in enumerate(pairs)}
    in_x = {n: f"={k}" for k, n in enumerate(pairs)}
    for n in pairs:
        if x.dims[x.pos(n)][2] != y.dims[y.pos((n[0], n[1] + 1))][2]:
            raise Refused("unlike lengths meet")
    both = [n for n in x.names if n not in in_x and n in y.names and n not in in_y]

    def named(v: V, new: dict[tuple[str, int], str]) -> V:
        return V(v.d, tuple((new[d[:2]], 0, d[2]) if d[:2] in new else d for d in v.dims), v.v, v.e)

    over = [*((n, 0) for n in in_x.values()), *both]
    return contraction(named(x, in_x), named(y, in_y), over)


@means("contract")
def _contract(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    x, y = arithmetic(a)
    return contraction(x, y, [tuple(n) for n in at["over"]])


MOST_ROWS = 40  # of matrices whose condition leaves float32 some digits


@means("linalg")
def _linalg(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    """See `hunt.programs._build_linalg`; bounds are those of backward stable algorithms, with the condition of the matrices."""
    (x,) = floating(a)
    rows, over, kind = x.pos(tuple(at["rows"])), x.pos(tuple(at["over"])), at["kind"]
    dims = [k for k in range(len(x.dims)) if k not in (rows, over)]
    n, m = x.v.shape[rows], x.v.shape[over]
    if not n or not m or max(n, m) > MOST_ROWS:
        raise Refused("no matrices, or large ones")
    v, e = (np.transpose(z, [*dims, rows, over]) for z in (x.v, x.e))
    unsure = ~(np.isfinite(v).all((-1, -2)) & (e.max((-1, -2)) < 1e-3))
    t = np.where(unsure[..., None, None], 0.5, np.tanh(np.where(np.isfinite(v), v, 0)))
    error = np.where(unsure, INF, e.max((-1, -2)) + 4 * unit(x.d))
    precision, eye = unit(accumulator(x.d)), np.eye(n)
    g = t @ np.swapaxes(t, -1, -2) + eye
    condition = np.linalg.cond(g) if g.size else np.ones(g.shape[:-2])
    if kind not in ("cholesky", "eigh", "triangular_solve") and not at["symmetric"]:
        g = np.roll(g, 1, -2)
    made, grown = _matrix_result(kind, at, t, g)
    made = np.where(unsure[(..., *[None] * (made.ndim - unsure.ndim))], np.nan, made)  # with an infinite bound: any value, NaN too
    off = np.where(unsure, INF, (error + (n + m) * precision + 2 * unit(x.d)) * 32 * (n + m) * condition**grown)
    scale = np.abs(made)
    if made.ndim == t.ndim:
        scale = np.maximum(scale, np.abs(made).max((-1, -2), keepdims=True)) + 1
        made, off = (
            np.transpose(np.broadcast_to(z, made.shape), np.argsort([*dims, rows, over])) for z in (made, off[..., None, None] * scale)
        )
        return finish(made, off, x.d, 1, False, x.dims)
    stay = dims + ([over] if kind == "lu" else [])
    if kind == "lu":
        off, scale = off[..., None], np.abs(made).max(-1, keepdims=True)
    return finish(made, off * (scale + 1), x.d, 1, False, [x.dims[k] for k in stay])


def _matrix_result(kind: str, at: dict[str, Any], t: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, int]:
    """Returns what a case makes of matrices g, and the power of their condition by which errors grow."""
    if kind == "qr":
        return t, 0
    if kind == "svd":
        return np.linalg.svd(t, compute_uv=False).max(-1, initial=0), 0
    if kind == "matrix_norm":
        return np.sqrt((t * t).sum((-1, -2))), 0
    if kind == "det":
        return np.linalg.det(g), 1
    if kind == "slogdet":
        return np.add(*np.linalg.slogdet(g)), 1
    if kind == "lu":
        return (g.sum(-2)[..., None, :] @ t)[..., 0, :], 1
    if kind == "eigh":
        return g @ t, 1
    if kind == "cholesky":
        return np.linalg.cholesky(g) @ t, 1
    if kind == "triangular_solve":
        factor = np.linalg.cholesky(g)
        return np.linalg.solve(factor if at["lower"] else np.swapaxes(factor, -1, -2), t), 1
    power = -1 if kind in ("solve", "lstsq", "inv", "pinv") else at["power"]
    return np.linalg.matrix_power(g, power) @ t, abs(power) + 1


@means("einsum")
def _einsum(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    xs = arithmetic(a)
    out = [tuple(n) for n in at["out"]]
    if len(xs) == 1:
        gone = [k for k, n in enumerate(xs[0].names) if n not in out]
        stay = [xs[0].pos(n) for n in out]
        return reduce("add", xs[0], gone, stay) if gone else moved_dims(xs[0], stay)
    x, y = xs
    over = [n for n in dict.fromkeys([*x.names, *y.names]) if n not in out]
    made = contraction(x, y, over)
    return moved_dims(made, [made.pos(n) for n in out])


@means("conv", "deconv")
def _conv(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    """at: axis of x, axis of the filter, stride, dilation, (before, after), whether it is the adjoint."""
    x, f = arithmetic(a)
    name, window = tuple(at["axis"]), tuple(at["window"])
    k, w = x.pos(name), f.pos(window)
    n, size = x.v.shape[k], f.v.shape[w]
    stride, dilation, (before, after) = at["stride"], at["dilation"], at["pad"]
    if at["adjoint"]:
        many = max((n - 1) * stride + (size - 1) * dilation + 1 - before - after, 0)
    else:
        spare = n + before + after - ((size - 1) * dilation + 1)
        if spare < 0:
            raise Refused("no window fits")
        many = spare // stride + 1
    fill = np.zeros((), x.v.dtype)
    at_ = np.arange(many)[:, None]
    offsets = np.arange(size)[None, :]
    if at["adjoint"]:
        far = at_ - offsets * dilation + before
        source, ok = far // stride, (far % stride == 0)
    else:
        source, ok = at_ * stride + offsets * dilation - before, np.ones((many, size), bool)
    ok = ok & (source >= 0) & (source < n)
    held = np.where(ok, source, 0)

    def windows(v: np.ndarray, zero: Any) -> np.ndarray:
        v = np.moveaxis(v, k, -1)
        made = np.where(ok, v[..., held], zero) if n else np.zeros((*v.shape[:-1], many, size), v.dtype)
        return np.moveaxis(made, -2, k)

    out = (*name, many if isinstance(x.dims[k][2], int) else f"{x.dims[k][2]}~{at}")
    dims = [out if j == k else d for j, d in enumerate(x.dims)]
    xw = V(x.d, (*dims, ("~", 0, size)), windows(x.v, fill), windows(x.e, 0.0))
    fw = V(f.d, tuple(("~", 0, size) if j == w else d for j, d in enumerate(f.dims)), f.v, f.e)
    shared = [d[:2] for d in fw.dims if d[:2] in xw.names and d[:2] != ("~", 0)]
    over = [m for m in shared if m != ("N", 0)]
    made = contraction(xw, fw, [*over, ("~", 0)], 16)
    if is_float(made.d) and made.e.size:  # fast convolutions are as exact as the largest of their neighbours
        size_ = contraction(V(x.d, xw.dims, np.abs(xw.v), xw.e), V(f.d, fw.dims, np.abs(fw.v), fw.e), [*over, ("~", 0)])
        finite = np.where(np.isfinite(size_.v), size_.v, 0)
        if (made.e > 0).any():
            made.e = np.where(np.isfinite(made.v), made.e + 64 * unit(accumulator(made.d)) * finite.max(), made.e)
        if not np.isfinite(xw.v).all() or not np.isfinite(fw.v).all():
            made.e = np.where(np.isfinite(made.v), made.e, INF)
    # what only the filter has stands in the place of what is summed
    own = [d for d in made.dims if d[:2] not in [q[:2] for q in dims]]
    first = next((j for j, d in enumerate(dims) if d[:2] in over), None)
    order: list[tuple[str, int]] = []
    for j, d in enumerate(dims):
        if j == first:
            order += [o[:2] for o in own]
        if d[:2] not in over:
            order.append(d[:2])
    if first is None:
        order += [o[:2] for o in own]
    return moved_dims(made, [made.pos(o) for o in order])


@means("max_pool", "avg_pool")
def _pool(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    average = at["average"]
    (x,) = floating(a) if average else _computed(list(a))
    k = x.pos(tuple(at["axis"]))
    n, size, stride, dilation, (before, after) = x.v.shape[k], at["size"], at["stride"], at["dilation"], at["pad"]
    if n + before + after < (size - 1) * dilation + 1 or max(before, after) > (size - 1) * dilation:
        raise Refused("no window fits")
    many = (n + before + after - ((size - 1) * dilation + 1)) // stride + 1
    source = np.arange(many)[:, None] * stride + np.arange(size)[None] * dilation - before
    ok = (source >= 0) & (source < n)
    held = np.where(ok, source, 0)
    v, e = np.moveaxis(x.v, k, -1), np.moveaxis(x.e, k, -1)
    dims = [resized(d, many, f"o{size},{stride},{dilation},{before},{after}") if j == k else d for j, d in enumerate(x.dims)]
    edge: Any = 0 if average else -INF if is_float(x.d) else False if x.d == "bool" else limits(x.d)[0]
    if n == 0:
        w, o = np.full((*v.shape[:-1], many, size), edge, v.dtype), np.zeros((*v.shape[:-1], many, size))
    else:
        w, o = np.where(ok, v[..., held], np.asarray(edge).astype(v.dtype)), np.where(ok, e[..., held], 0)
    if average:
        total, off = summed(w, o, x.d)
        count = ok.sum(-1)
        with np.errstate(all="ignore"):
            q = total / count
            off = off / np.maximum(count, 1) + np.where(
                off > 0, 4 * unit(accumulator(x.d)) * np.abs(np.where(np.isfinite(q), q, 0)).astype(float), 0
            )
        made = finish(q, off, x.d, z=False)
        w2, o2 = made.v, made.e
    else:
        w2 = w.max(-1)
        o2 = (
            np.where((o > 0).any(-1), INF, 0.0)
            if not is_float(x.d)
            else np.where(np.isnan(w2) & ~np.isinf(o).any(-1), 0, o.max(-1, initial=0))
        )
    return like(x, np.moveaxis(w2, -1, k), np.moveaxis(o2, -1, k), d=x.d, dims=dims, z=False)


# ---- losses


@means("cross_entropy_binary_inner", "cross_entropy_binary", "cross_entropy_multi")
def _cross_entropy(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    """at: which; whether y comes straight from its logits, and along which axes these were normalised."""
    y, t = floating(a)
    dims, (v, s), (ev, es), shape = lined([y, t])
    v, s, ev, es = (np.broadcast_to(q, shape) for q in (v, s, ev, es))
    u, which = unit(accumulator(y.d)), at["which"]
    with np.errstate(all="ignore"):
        if which == "multi":
            if at["logits"]:
                raise AssertionError("multi of logits is a row of its own")
            log, el = _safe(v, ev, y.d)
            each, e = -(log * s), _product_error(log, s, el, es)
        elif at["logits"]:
            each = np.maximum(v, 0) - v * s + np.log1p(np.exp(-np.abs(v)))
            e = ev * (1 + np.abs(s)) + np.abs(v) * es + ev * es + 8 * u * (np.abs(v) * (1 + np.abs(s)) + 1)
        else:
            a_, ea = _safe(v, ev, y.d)
            b_, eb = _safe(1 - v, ev + u * np.abs(1 - v), y.d)
            each = -(a_ * s + b_ * (1 - s))
            e = _product_error(a_, s, ea, es) + _product_error(b_, 1 - s, eb, es + u) + 4 * u * (np.abs(a_ * s) + np.abs(b_ * (1 - s)))
        whole = V(accumulator(y.d), tuple(dims), each, _known(np.where(np.isnan(each), np.where(np.isinf(ev + es), INF, 0), e), each))
        if which == "inner":
            return finish(whole.v, whole.e, y.d, 1, False, dims)
        gone = gone_axes(whole, at)
        stay = kept(whole, gone, at)
        total, off = summed(*rows(whole, gone, stay), y.d, 4)
        if at["bits"]:
            total, off = total / math.log(2), off / math.log(2) + 4 * u * np.abs(np.where(np.isfinite(total), total, 0)).astype(float)
    return finish(total, off, y.d, 1, False, [dims[k] for k in stay])


def _safe(v: np.ndarray, e: np.ndarray, d: str) -> tuple[np.ndarray, np.ndarray]:
    """safelog, in the accumulator of d."""
    with np.errstate(all="ignore"):
        f = lambda x: np.maximum(np.log(np.maximum(x, math.exp(-50.0))), -50.0)
        r = f(v)
        off = np.maximum(np.abs(f(v + e) - r), np.abs(f(v - e) - r))
        u = unit(accumulator(d))
        return r, np.where(e == 0, 0, off) + np.where(np.isfinite(r), 8 * u * np.abs(r) + 1e-300, 0) + np.where(e > 0, 4 * u, 0)


@means("cross_entropy_logits")
def _logits(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    """cross_entropy_multi of the softmax of x over all axes that go."""
    x, t = floating(a)
    t = broadcast(t, x.dims, x.v.shape)
    gone = gone_axes(x, at)
    stay = kept(x, gone)
    v, e = rows(x, gone, stay)
    s, es = rows(t, gone, stay)
    u = unit(accumulator(x.d))
    with np.errstate(all="ignore"):
        lse, el = logsumexp_rows(v, e, x.d, finite=False)
        m = v.max(-1, keepdims=True, initial=-INF)
        shifted = v - m
        mass, em = summed(s, es, x.d)
        p = shifted * s
        ep = _product_error(
            shifted, s, e + e.max(-1, keepdims=True, initial=0) + 2 * u * np.abs(np.where(np.isfinite(shifted), shifted, 0)), es
        )
        right, er = summed(p, ep, x.d, 2)
        left = (lse - m[..., 0]) * mass
        reach = np.abs(np.where(np.isfinite(lse - m[..., 0]), lse - m[..., 0], 0))
        off = el * np.abs(mass).astype(float) + reach * em + el * em + er + 8 * u * (np.abs(left) + np.abs(right)).astype(float)
        r_ = left - right
        if at["bits"]:
            r_, off = r_ / math.log(2), off / math.log(2) + 4 * u * np.abs(np.where(np.isfinite(r_), r_, 0)).astype(float)
        off = np.where(
            np.isfinite(r_),
            off,
            np.where(np.isfinite(v).all(-1) & np.isfinite(s).all(-1), INF, np.where(np.isinf(e).any(-1) | np.isinf(es).any(-1), INF, 0)),
        )
    return finish(r_, off, x.d, 1, False, [x.dims[k] for k in stay])


@means("attention")
def _attention(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    """Self-attention of q, k, v [..., T, D]: at has the axes; the result has q's axes."""
    q, k, v = floating(a)
    t, f = tuple(at["queries"]), tuple(at["features"])
    other = (t[0], t[1] - 1)

    def turned(x: V) -> V:
        return V(x.d, tuple((*other, d[2]) if d[:2] == t else d for d in x.dims), x.v, x.e)

    k, v = turned(k), turned(v)
    u = unit(q.d)
    scale = 1 / math.sqrt(q.v.shape[q.pos(f)])
    by = binary("multiply", [q, filled(scale, q.d)])
    scores = contraction(by, k, [f])
    stay = [j for j, n in enumerate(scores.names) if n != other]
    sv, se = rows(scores, [scores.pos(other)], stay)
    if at["causal"]:
        n = sv.shape[-1]
        place = [scores.names[j] for j in stay].index(t)
        rows_ = np.arange(n).reshape([n if j == place else 1 for j in range(len(stay))] + [1])
        allowed = np.broadcast_to(np.arange(n) <= rows_, sv.shape)
        sv, se = np.where(allowed, sv, -INF), np.where(allowed, se, 0)
        se = np.where(
            np.isnan(np.where(allowed, sv, 0)).any(-1, keepdims=True) | np.isinf(np.where(allowed, sv, 0)).any(-1, keepdims=True), INF, se
        )
    w, ew = softmax_rows(sv, se, q.d)
    weights = finish(w, ew, q.d, 2, dims=[*[scores.dims[j] for j in stay], scores.dims[scores.pos(other)]])
    made = contraction(weights, v, [other], 4)
    made = moved_dims(
        made,
        [made.pos(n) for n in [*[n for n in q.names if n != f], *[n for n in v.names if n not in (other,) and n not in q.names or n == f]]],
    )
    return made if u else made


# ---- random numbers


@means("uniform", "bernoulli", "normal", "randint")
def _random(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    dims = [r.dim(*n) for n in at["axes"]]
    shape = tuple(r.length(n) for n, _ in at["axes"])
    draw = r.draws(at.get("seed"), i, shape)
    which, d = at["which"], at.get("dtype", "float32")
    if which == "randint":
        low, high = at["low"], at["high"]
        w = np.array([low + (int(x) * (high - low) >> 32) for x in draw(0).ravel()], object).reshape(shape)
        return exact(d, dims, w.astype(numpy_type(d)))
    if which == "uniform":
        f = fractions(shape, d, draw)
        low, high = float(at["low"]), float(at["high"])
        if (low, high) == (0.0, 1.0):
            return exact(d, dims, f)
        part = binary("multiply", [exact(d, dims, f), filled(high - low, d)])
        return binary("add", [part, filled(low, d)])
    if which == "bernoulli":
        f = exact("float32", dims, fractions(shape, "float32", draw))
        made = compare("less", common([f, a[0]]))
        return _truth(made, at.get("dtype"))
    inner = "float64" if d == "float64" else "float32"
    p, q = fractions(shape, inner, draw), fractions(shape, inner, lambda k: draw(k + 2))
    z = np.sqrt(-2 * np.log1p(-p)) * np.cos(2 * np.pi * q)
    loc, scale = float(at["loc"]), float(at["scale"])
    off = (8 * np.abs(z) + 16 * np.sqrt(-2 * np.log1p(-p))) * 2 * unit(inner)
    return finish(z * scale + loc, off * abs(scale) + 4 * unit(inner) * (abs(loc) + np.abs(z * scale)), d, 1, False, dims)


@means("permutation")
def _permutation(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    n = r.length(at["axis"][0])
    w = r.draws(at.get("seed"), i, (n,))(0)
    return exact("int32", [r.dim(*at["axis"])], np.argsort(w, kind="stable").astype(np.int32))


# ---- control


def fitted(new: V, old: V) -> V:
    """Returns the carry of a body with the axes and the dtype of its input."""
    if not set(new.names) <= set(old.names) or (new.d != old.d and promote(new.d, old.d) != old.d):
        raise Refused("another type is carried")
    return cast(broadcast(new, old.dims, old.v.shape), old.d)


def at_trip(x: V, k: int, t: int) -> V:
    return V(x.d, tuple(d for j, d in enumerate(x.dims) if j != k), np.take(x.v, t, k), np.take(x.e, t, k), x.z)


@means("scan")
def _scan(r: Run, a: list[Any], at: dict[str, Any], i: str) -> tuple[V, ...]:
    carries, xs = a[: at["carries"]], a[at["carries"] :]
    name = tuple(at["axis"])
    n = xs[0].v.shape[xs[0].pos(name)] if xs else r.length(name[0])
    dim = xs[0].dims[xs[0].pos(name)] if xs else r.dim(*name)
    if any(x.dims[x.pos(name)][2] != dim[2] for x in xs):
        raise Refused("unlike lengths meet")
    stacks: list[dict[int, V]] = [{} for _ in at["ys"]]
    kinds: list[V] = []
    for t in reversed(range(n)) if at["reverse"] else range(n):
        r.trips.append(t)
        _enter(r, i, [*carries, *[at_trip(x, x.pos(name), t) for x in xs]])
        r.ops(at["ops"])
        carries = [fitted(r.env[c], old) for c, old in zip(at["next"], carries, strict=True)]
        for stack, y in zip(stacks, at["ys"], strict=True):
            stack[t] = r.env[y]
        r.trips.pop()
    if n == 0 and at["ys"]:  # the types of what it would have given
        _enter(r, i, [*carries, *[V(x.d, tuple(d for d in x.dims if d[:2] != name), *_one(x, name)) for x in xs]])
        r.trips.append(0)
        r.ops(at["ops"])
        r.trips.pop()
        kinds = [r.env[y] for y in at["ys"]]
    made = []
    for k, stack in enumerate(stacks):
        one = stack[0] if n else kinds[k]
        if name in one.names:
            raise Refused("an axis twice")
        v = np.stack([stack[t].v for t in range(n)]) if n else np.zeros((0, *one.v.shape), one.v.dtype)
        e = np.stack([stack[t].e for t in range(n)]) if n else np.zeros(v.shape)
        made.append(V(one.d, (dim, *one.dims), v, e, all(s.z for s in stack.values())))
    return (*carries, *made)


def _one(x: V, name: tuple[str, int]) -> tuple[np.ndarray, np.ndarray]:
    shape = [n for d, n in zip(x.dims, x.v.shape, strict=True) if d[:2] != name]
    return np.zeros(shape, x.v.dtype), np.zeros(shape)


def _enter(r: Run, i: str, params: Sequence[V]) -> None:
    for k, p in enumerate(params):
        r.env[f"{i}/{k}"] = p


@means("while_loop")
def _while(r: Run, a: list[Any], at: dict[str, Any], i: str) -> tuple[V, ...]:
    """The first carry is an int32 counter that starts at 0; the loop runs while it is below `limit`."""
    carries = [exact("int32", (), np.int32(0)), *a]
    trip = 0
    while carries[0].v < at["limit"]:
        r.trips.append(trip)
        _enter(r, i, carries)
        r.ops(at["ops"])
        r.trips.pop()
        trip += 1
        carries = [exact("int32", (), np.int32(trip)), *[fitted(r.env[c], old) for c, old in zip(at["next"], carries[1:], strict=True)]]
    return tuple(carries)


@means("cond")
def _cond(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    (p,) = a
    p = cast(p, "bool")
    branches = []
    for k in ("then", "else"):
        r.ops(at[k])
        branches.append(r.env[at[k + "_gives"]])
    x, y = branches
    if x.d != y.d or set(x.dims) != set(y.dims):
        raise Refused("branches of unlike types")
    y = broadcast(y, x.dims, x.v.shape)
    chosen = x if bool(p.v) else y
    return chosen if p.e == 0 else where(p, x, y)


@means("checkpoint_of")
def _checkpoint(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    _enter(r, i, a)
    r.ops(at["ops"])
    return r.env[at["gives"]]


@means("sequential")
def _sequential(r: Run, a: list[Any], at: dict[str, Any], i: str) -> V:
    """Steps, each an assign (or a doall of several); reads in each step see what earlier ones wrote. The value is the last step's."""
    start = {v: r.env[v] for v in r.state}
    result = None
    for step in at["steps"]:
        new = {}
        for part in step["parts"]:
            r.ops(part["ops"])
            if part["var"] is None:
                result = r.env[part["gives"]]
            else:
                new[part["var"]] = assigned(r.env[part["var"]], r.env[part["gives"]])
        r.env.update(new)
        r.state.update(new)
    r.env.update(start)
    return result


def assigned(old: V, new: Any) -> V:
    """The value of a variable after an assign."""
    new = filled(new, old.d) if not isinstance(new, V) else new
    if is_float(new.d) and not is_float(old.d):
        raise Refused("would be cut")
    if (new.d in NARROW) != (old.d in NARROW) or (new.d in NARROW and new.d != old.d):
        raise Refused("narrow")
    return broadcast(cast(new, old.d), old.dims, old.v.shape)


def assign(r: Run, it: dict[str, Any], start: dict[str, V]) -> V:
    """Returns a variable's value after one of a case's own assigns; all of them read the values from before."""
    old = start[it["var"]]
    value = r.arg(it["value"]) if it.get("value") is not None else None
    how = it["how"]
    if how in ("assign", "fill"):
        return assigned(old, value)
    if how == "init_tensor":
        return r.case_initial[it["var"]]  # type: ignore[attr-defined,no-any-return]
    if how in ("iadd", "isub", "imul"):
        f = {"iadd": "add", "isub": "subtract", "imul": "multiply"}[how]
        return assigned(old, binary(f, arithmetic([old, value])))
    part = _slice(r, [old], {"items": it["items"]}, "")
    new = broadcast(cast(value, old.d) if isinstance(value, V) else filled(value, old.d), part.dims, part.v.shape)
    v, e = np.array(old.v), np.array(old.e)
    index = tuple(k if isinstance(k, int) else slice(*k) for k in it["items"])
    v[index], e[index] = new.v, new.e
    return like(old, v, e, z=old.z and new.z)

"""Element types as records, and the promotion table.

A dtype is a record (name, kind, bits, NumPy type), so that further ones can be added without changing an op. There is one record per
name, so records are compared by identity; with what `as_dtype` takes they are equal where it gives the record.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import ml_dtypes
import numpy as np

from ngraph.errors import DTypeError, nearest


@dataclass(frozen=True)
class NarrowFormat:
    """The layout of a narrow dtype in the low `width` bits of its byte: sign, exponent, fraction. Without an exponent it is an integer.

    `special` names the codes that are not finite numbers. 'ieee': the highest exponent is infinity and NaN; 'fn': all ones is NaN; 'fnuz':
    NaN replaces -0; 'finite': there are none; 'power': an exponent alone, where all bits set is NaN.
    """

    width: int
    exponent: int
    fraction: int
    bias: int
    signed: bool
    special: str

    @property
    def top(self) -> int:
        """The code of the largest finite number."""
        ones = (1 << self.width - self.signed) - 1
        return ones - {"ieee": 1 << self.fraction, "fn": 1, "power": 1}.get(self.special, 0)

    @property
    def infinite(self) -> int:
        """The code for overflow: infinity, else NaN, else the largest finite number."""
        return {"fnuz": 1 << self.width - 1, "finite": self.top}.get(self.special, self.top + 1)


@dataclass(frozen=True, eq=False)
class DType:
    """An element type. `kind`: 'bool', 'int', 'uint', 'float', 'narrow' or 'token'; `np`: the NumPy dtype; `bits`: its size in memory.

    Narrow dtypes, of 8 bits and less, are for storage: they can be moved, cast and compared, not computed with.
    """

    name: str
    kind: str
    bits: int
    np: Any
    form: NarrowFormat | None = None

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        if type(other) is DType:
            return self is other
        try:
            return as_dtype(other) is self
        except DTypeError:
            return False

    __hash__ = object.__hash__  # that of a key: other forms of a dtype find nothing in a dict of records, as with NumPy's

    def __reduce__(self) -> tuple[Any, ...]:
        return as_dtype, (self.name,)  # a copy, in this process or another, is the one record of this name

    @property
    def dtype(self) -> Any:
        """The NumPy dtype, by which NumPy takes a record where it takes a dtype: `np.zeros(3, x.dtype)`."""
        return self.np

    @cached_property
    def python(self) -> type:
        """The type of Python numbers that holds its values: bool, int or float."""
        if self.kind == "bool":
            return bool
        return float if self.is_float or (self.form is not None and self.form.exponent) else int

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    def array(self, value: Any) -> np.ndarray:
        """Returns numbers as an array of this dtype, rounded as NumPy does; overflow of floats gives infinity."""
        with np.errstate(over="ignore"):
            return np.asarray(value).astype(self.np)

    @property
    def zero(self) -> int | float:
        """0; for a dtype that has none, float8_e8m0fnu, the number whose bits are 0."""
        return float(np.zeros((), self.np)) or 0

    @property
    def lowest(self) -> Any:
        """The identity of max: -inf for floats, the least integer, False; for narrow dtypes the least finite number."""
        if self.form is not None:
            return self._of_code((1 << self.form.width - 1 | (self.form.top if self.form.exponent else 0)) if self.form.signed else 0)
        return {"float": -np.inf, "bool": False}.get(self.kind, None if self.is_float else self._integer_limits()[0])

    @property
    def highest(self) -> Any:
        """The identity of min: inf for floats, the greatest integer, True; for narrow dtypes the greatest finite number."""
        if self.form is not None:
            return self._of_code(self.form.top)
        return {"float": np.inf, "bool": True}.get(self.kind, None if self.is_float else self._integer_limits()[1])

    def _of_code(self, code: int) -> Any:
        return self.python(np.array([code], np.uint8).view(self.np)[0])

    def _integer_limits(self) -> tuple[int, int]:
        if self.kind == "int":
            return -(1 << self.bits - 1), (1 << self.bits - 1) - 1
        return 0, (1 << self.bits) - 1


REGISTRY: dict[str, DType] = {}
_BY_NUMPY: dict[Any, DType] = {}


def register(name: str, kind: str, bits: int, numpy_type: Any, form: NarrowFormat | None = None) -> DType:
    """Registers a new element type and returns it; the name must be unused."""
    if name in REGISTRY:
        raise ValueError(f"dtype {name} is registered already")
    d = REGISTRY[name] = DType(name, kind, bits, None if numpy_type is None else np.dtype(numpy_type), form)
    if numpy_type is not None:
        _BY_NUMPY[d.np] = d
    return d


bool_ = register("bool", "bool", 8, np.bool_)
int8, int16, int32, int64 = (register(f"int{b}", "int", b, f"int{b}") for b in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (register(f"uint{b}", "uint", b, f"uint{b}") for b in (8, 16, 32, 64))
float16 = register("float16", "float", 16, np.float16)
bfloat16 = register("bfloat16", "float", 16, ml_dtypes.bfloat16)
float32 = register("float32", "float", 32, np.float32)
float64 = register("float64", "float", 64, np.float64)
token = register("token", "token", 0, None)

# narrow dtypes: width, exponent, fraction, bias, signed, `special` (OCP 8-bit and microscaling formats; Graphcore's for fnuz)
NARROW = {
    "float8_e4m3fn": NarrowFormat(8, 4, 3, 7, True, "fn"),
    "float8_e4m3fnuz": NarrowFormat(8, 4, 3, 8, True, "fnuz"),
    "float8_e5m2": NarrowFormat(8, 5, 2, 15, True, "ieee"),
    "float8_e5m2fnuz": NarrowFormat(8, 5, 2, 16, True, "fnuz"),
    "float8_e8m0fnu": NarrowFormat(8, 8, 0, 127, False, "power"),
    "float6_e2m3fn": NarrowFormat(6, 2, 3, 1, True, "finite"),
    "float6_e3m2fn": NarrowFormat(6, 3, 2, 3, True, "finite"),
    "float4_e2m1fn": NarrowFormat(4, 2, 1, 1, True, "finite"),
    **{f"{sign}int{w}": NarrowFormat(w, 0, w - (not sign), 0, not sign, "finite") for w in (4, 2) for sign in ("", "u")},
}
(
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float6_e2m3fn,
    float6_e3m2fn,
    float4_e2m1fn,
    int4,
    uint4,
    int2,
    uint2,
) = [register(n, "narrow", 8, getattr(ml_dtypes, n), f) for n, f in NARROW.items()]


def as_dtype(d: Any) -> DType:
    """Returns the record for a record, a name, a NumPy dtype or scalar type. Raises DTypeError that lists the available ones."""
    if type(d) is DType:
        return d
    if isinstance(d, str) and d in REGISTRY:
        return REGISTRY[d]
    try:
        if d is not None and not (isinstance(d, str) and len(d) == 1):  # float64 to NumPy, and codes such as H, which may be an axis
            return _BY_NUMPY[np.dtype(d)]
        raise KeyError
    except (KeyError, TypeError, ValueError):
        names = [n for n in REGISTRY if n != "token"]
        meant = nearest(d, names) if isinstance(d, str) else None
        near = f"; the nearest is {meant}" if meant else ""
        raise DTypeError(f"{d!r} is not an element type", fix=f"take one of {', '.join(names)}{near}") from None


@cache
def promote(a: DType, b: DType) -> DType:
    """Returns the common dtype of `a` and `b` (docs/spec.md 4); bool with bool stays bool. Raises DTypeError where one is narrow."""
    if a is b:
        return a
    if "narrow" in (a.kind, b.kind):
        raise DTypeError(f"{a} meets {b}", fix="cast first: ng.cast(x, 'float32')")
    if a.kind == "bool":
        return b
    if b.kind == "bool":
        return a
    if a.is_float or b.is_float:
        if a.is_float and b.is_float:
            if a.bits == b.bits:
                return float32  # float16 with bfloat16
            return a if a.bits > b.bits else b
        return a if a.is_float else b
    if a.kind == b.kind:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    return float64 if unsigned.bits == 64 else REGISTRY[f"int{unsigned.bits * 2}"]


def accumulator(dtype: DType, given: Any = None) -> DType:
    """Returns the dtype in which sums of this dtype are added up: the `given` one, else float32 for 16-bit floats, else their own."""
    if given is not None:
        return as_dtype(given)
    return float32 if dtype.is_float and dtype.bits == 16 else dtype


def computes(what: str, *given: DType) -> None:
    """Raises DTypeError where one of the dtypes is narrow, so that `what` is not available for it."""
    for d in given:
        if d.kind == "narrow":
            raise DTypeError(f"{what} of {d}, which only keeps values", fix="cast first: ng.cast(x, 'float32')")


def weak(kind: type, other: DType) -> DType:
    """Returns the dtype that a Python number of type `kind` takes beside a tensor of dtype `other`."""
    if kind is bool or other.is_float or other.kind == "narrow":
        return other
    if kind is int:
        return other if other.is_integer else float32
    return float32


def rounded_once(array: Any, dtype: Any) -> Any:
    """Returns numbers of 32 bits or more in ml_dtypes' bfloat16, rounded once; its own conversion rounds them to float32 first.

    Where float32 is inexact, the neighbour whose last bit is 1 is rounded (Boldo and Melquiond, "Emulation of FMA", 2008, theorem 3).
    """
    exact = array.astype(np.longdouble)
    near = exact.astype(np.float32)
    bits = near.view(np.uint32)
    odd = (bits - (np.abs(near) > np.abs(exact))) | np.uint32(1)
    return np.where((near == exact) | np.isnan(exact), bits, odd).astype(np.uint32).view(np.float32).astype(dtype)


def cast_array(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Returns an array in another dtype, each number rounded once; otherwise as NumPy converts it."""
    wide = array.dtype.itemsize > 2 and array.dtype.kind in "iuf" and array.dtype != np.float32
    return rounded_once(array, dtype.np) if wide and dtype is bfloat16 else array.astype(dtype.np)


def check_fits(what: str, value: Any, dtype: DType, beside: str = "") -> None:
    """Raises DTypeError where an integer dtype cannot represent the numbers: fractions, or integers beyond its limits.

    `beside` is the label of the tensor whose dtype this is, where the numbers are its other operand.
    """
    if dtype.python is not int:
        return
    if isinstance(value, int):
        low = high = value
    else:
        array = np.asarray(value)
        own = _BY_NUMPY.get(array.dtype)
        if own is None or own is dtype or own.kind == "bool" or not array.size:
            return
        if own.python is float:
            whole = np.trunc(array) == array
            if not whole.all():
                raise DTypeError(
                    f"{what}: {array[~whole].flat[0]} is not a whole number, and {dtype} holds no other",
                    fix="cut it on purpose with np.trunc(value), or take a float dtype",
                )
        low, high = array.min().item(), array.max().item()
    if low < dtype.lowest or high > dtype.highest:
        least, most = min(low, dtype.lowest), max(high, dtype.highest)
        signed = [d for d in (int8, int16, int32, int64) if d.lowest <= least and most <= d.highest]
        wider = (signed or [uint64 if least >= 0 and most <= uint64.highest else float64])[0]
        raise DTypeError(
            f"{what}: {low if low < dtype.lowest else high} does not fit into {dtype}, which holds {dtype.lowest} to {dtype.highest}",
            fix=f"cast first: ng.cast({beside}, '{wider}')" if beside else f"take a wider dtype, such as {wider}",
        )

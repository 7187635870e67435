"""Element types as records, and the one promotion table.

A dtype is a record (name, kind, bits, NumPy type), so that others are added without touching an op. Comparisons and dict
keys are by identity: there is one record per name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from ngraph.errors import DTypeError


@dataclass(frozen=True, eq=False)
class DType:
    """An element type. `kind` is one of 'bool', 'int', 'uint', 'float', 'token'; `np` the NumPy dtype."""

    name: str
    kind: str
    bits: int
    np: Any

    def __repr__(self) -> str:
        return self.name

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def lowest(self) -> Any:
        """The identity of max: -inf for floats, the least integer, False."""
        return {"float": -np.inf, "bool": False}.get(self.kind, None if self.is_float else self._integer_limits()[0])

    @property
    def highest(self) -> Any:
        """The identity of min."""
        return {"float": np.inf, "bool": True}.get(self.kind, None if self.is_float else self._integer_limits()[1])

    def _integer_limits(self) -> tuple[int, int]:
        if self.kind == "int":
            return -(1 << self.bits - 1), (1 << self.bits - 1) - 1
        return 0, (1 << self.bits) - 1


REGISTRY: dict[str, DType] = {}
_BY_NUMPY: dict[Any, DType] = {}


def register(name: str, kind: str, bits: int, numpy_type: Any) -> DType:
    """A new element type; the name must be free."""
    if name in REGISTRY:
        raise ValueError(f"dtype {name} is registered already")
    d = REGISTRY[name] = DType(name, kind, bits, None if numpy_type is None else np.dtype(numpy_type))
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


def as_dtype(d: Any) -> DType:
    """A record from a record, a name, a NumPy dtype or scalar type. Raises DTypeError naming what there is."""
    if type(d) is DType:
        return d
    if isinstance(d, str) and d in REGISTRY:
        return REGISTRY[d]
    try:
        return _BY_NUMPY[np.dtype(d)]
    except (KeyError, TypeError):
        names = ", ".join(n for n in REGISTRY if n != "token")
        raise DTypeError(f"{d!r} is no element type", fix=f"take one of {names}") from None


@cache
def promote(a: DType, b: DType) -> DType:
    """The dtype in which `a` and `b` meet (docs/spec.md 4), bool with bool staying bool."""
    if a is b:
        return a
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


def weak(kind: type, other: DType) -> DType:
    """The dtype that a Python number of type `kind` takes beside a tensor of dtype `other`."""
    if kind is bool or other.is_float:
        return other
    if kind is int:
        return other if other.is_integer else float32
    return float32

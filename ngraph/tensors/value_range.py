"""Value-range analysis: values that are integers, of any dtype, and their ranges, derived from the ops that compute them.

Dot products of such values are exact while they are small enough; another algorithm for them must keep that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ngraph.targets.tuning import MAX_RANGE_STEPS
from ngraph.tensors.graph import FMA, Arg, Constant, ScalarConstant, TensorNode
from ngraph.tensors.index import Read

Range = tuple[float, float]
BFLOAT16_INTEGERS_END = 256  # up to here every whole number is a bfloat16
MADE: dict[str, Callable[..., Range]] = {  # elementwise ops of two whole numbers whose result is one
    "add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "subtract": lambda x, y: (x[0] - y[1], x[1] - y[0]),
    "multiply": lambda x, y: (min(p := [a * b for a in x for b in y]), max(p)),
    "maximum": lambda x, y: (max(x[0], y[0]), max(x[1], y[1])),
    "minimum": lambda x, y: (min(x[0], y[0]), min(x[1], y[1])),
}


def integer_range(a: Arg, steps: int = MAX_RANGE_STEPS) -> Range | None:
    """Returns the least and the greatest value of an argument that is certainly an integer; `steps` bounds the depth of the search."""
    if type(a) is ScalarConstant:
        return (float(a.value),) * 2 if float(a.value).is_integer() else None
    if type(a) is not Read:
        return None
    made = _of(a.source, steps - 1) if steps else None
    if made is None or not a.predicate:
        return made
    return (min(made[0], float(a.pad_value)), max(made[1], float(a.pad_value))) if float(a.pad_value).is_integer() else None


def _of(source: Any, steps: int) -> Range | None:
    """Returns the same for the source of a read."""
    if isinstance(source, TensorNode) and source.kind == "elem":
        if source.op in ("cast", "copy"):
            cast = integer_range(source.args[0], steps)
            if source.dtype.is_float:
                return cast if cast is None or source.dtype.bits > 16 or max(map(abs, cast)) <= BFLOAT16_INTEGERS_END else None
            return _within(source.dtype, cast)
        if source.op in MADE or source.op in FMA:
            made = _made(source, [integer_range(b, steps) for b in source.args])
            return made if source.dtype.is_float else _within(source.dtype, made)
    if source.dtype.kind in ("int", "uint", "bool"):
        return _within(source.dtype, None)
    if type(source) is Constant and source.value.small:  # what large ones hold is no part of a program's meaning
        array = np.asarray(source.value.array, np.float64)
        if array.size and np.isfinite(array).all() and (array == np.rint(array)).all():
            return float(array.min()), float(array.max())
    return None


def _made(n: TensorNode, found: list[Range | None]) -> Range | None:
    """Returns the range of an op's result on integers of these ranges, if all are known."""
    known = [r for r in found if r is not None]
    if len(known) < len(found):
        return None
    if n.op not in FMA:
        return MADE[n.op](*known)
    x, y, z = known
    product = MADE["multiply"](x, y)
    return MADE["subtract"](z, product) if n.op == "fnma" else MADE["add" if n.op == "fma" else "subtract"](product, z)


def _within(dtype: Any, found: Range | None) -> Range:
    """Returns the range of an integer of a dtype; the full range where it may wrap around."""
    least, most = (0.0, 1.0) if dtype.kind == "bool" else (float(dtype.lowest), float(dtype.highest))
    return found if found is not None and least <= found[0] and found[1] <= most else (least, most)

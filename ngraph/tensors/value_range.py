"""Value-range analysis: values that are integers, of any dtype, and their ranges, derived from the ops that compute them.

Sums of products of such values are exact as long as they are small enough; another way to take them must leave them so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ngraph.targets.tuning import MAX_RANGE_STEPS
from ngraph.tensors.graph import Arg, Constant, ScalarConstant, TensorNode
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
    """The least and the greatest that an argument may be, if it is a whole number for certain: seen in so many steps."""
    if type(a) is ScalarConstant:
        return (float(a.value),) * 2 if float(a.value).is_integer() else None
    if type(a) is not Read:
        return None
    made = _of(a.source, steps - 1) if steps else None
    if made is None or not a.guard:
        return made
    return (min(made[0], float(a.fill)), max(made[1], float(a.fill))) if float(a.fill).is_integer() else None


def _of(source: Any, steps: int) -> Range | None:
    """The same of what is read."""
    if isinstance(source, TensorNode) and source.kind == "elem":
        if source.op in ("cast", "copy"):
            cast = integer_range(source.args[0], steps)
            if source.dtype.is_float:
                return cast if cast is None or source.dtype.bits > 16 or max(map(abs, cast)) <= BFLOAT16_INTEGERS_END else None
            return _within(source.dtype, cast)
        if source.op in (*MADE, "fma"):
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
    if n.op != "fma":
        return MADE[n.op](*known)
    (x, y, z), minus = known, n.attrs.get("minus")
    product = MADE["multiply"](x, y)
    return MADE["subtract"](z, product) if minus == "product" else MADE["subtract" if minus else "add"](product, z)


def _within(dtype: Any, found: Range | None) -> Range:
    """Returns the range of an integer of a dtype; the full range where it may wrap around."""
    least, most = (0.0, 1.0) if dtype.kind == "bool" else (float(dtype.lowest), float(dtype.highest))
    return found if found is not None and least <= found[0] and found[1] <= most else (least, most)

"""What numbers may be, in words: `check("Adam", COUNT, accumulate=0)` raises "Adam: accumulate is a whole number above 0, not 0"."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ngraph.op_graph.op import Op

COUNT = "a whole number above 0"
INTEGER = "a whole number"
WHOLE = "a whole number, 0 or more"
POSITIVE = "a number above 0"
NOT_NEGATIVE = "a number, 0 or more"
SHARE = "a number from 0 to 1"
BELOW_1 = "a number from 0 to below 1"

_TESTS: dict[str, Callable[[Any], bool]] = {
    COUNT: lambda v: bool(v == int(v) and v > 0),
    INTEGER: lambda v: bool(v == int(v)),
    WHOLE: lambda v: bool(v == int(v) and v >= 0),
    POSITIVE: lambda v: bool(0 < v < math.inf),
    NOT_NEGATIVE: lambda v: bool(0 <= v < math.inf),
    SHARE: lambda v: bool(0 <= v <= 1),
    f"{POSITIVE}, or 'dynamic'": lambda v: bool(0 < v < math.inf),
    BELOW_1: lambda v: bool(0 <= v < 1),
}


def check(who: str, bound: str, **numbers: Any) -> None:
    """Raises ValueError for a number out of bounds, or what is no number. None and ops, whose values nobody knows yet, pass."""
    for name, value in numbers.items():
        if value is None or isinstance(value, Op):
            continue
        try:
            fine = _TESTS[bound](value)
        except (TypeError, ValueError, OverflowError):
            fine = False
        if not fine:
            raise ValueError(f"{who}: {name} is {bound}, not {value!r}")

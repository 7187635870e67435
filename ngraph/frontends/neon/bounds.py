"""Checks of numbers, with bounds in words: `check("Adam", COUNT, accumulate=0)` raises "accumulate is a whole number above 0, not 0"."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ngraph.errors import ArgumentError, ArgumentTypeError
from ngraph.frontends.neon.calls import speaker
from ngraph.op_graph.arguments import shown
from ngraph.op_graph.op import Op

COUNT = "a whole number above 0"
INTEGER = "a whole number"
WHOLE = "a whole number, 0 or more"
POSITIVE = "a number above 0"
NOT_NEGATIVE = "a number, 0 or more"
SHARE = "a number from 0 to 1"
ABOVE_0 = "a number above 0, up to 1"
BELOW_1 = "a number from 0 to below 1"

DYNAMIC = f"{POSITIVE}, or 'dynamic'"

_BOUNDS: dict[str, tuple[Callable[[Any], bool], str]] = {  # the test of each, and a number that passes it
    COUNT: (lambda v: bool(v == int(v) and v > 0), "1"),
    INTEGER: (lambda v: bool(v == int(v)), "-1"),
    WHOLE: (lambda v: bool(v == int(v) and v >= 0), "0"),
    POSITIVE: (lambda v: bool(0 < v < math.inf), "1.0"),
    NOT_NEGATIVE: (lambda v: bool(0 <= v < math.inf), "0.0"),
    SHARE: (lambda v: bool(0 <= v <= 1), "0.9"),
    ABOVE_0: (lambda v: bool(0 < v <= 1), "0.9"),
    BELOW_1: (lambda v: bool(0 <= v < 1), "0.9"),
    DYNAMIC: (lambda v: isinstance(v, str) and v == "dynamic" or bool(0 < v < math.inf), "'dynamic'"),
}


def check(who: str, bound: str, **numbers: Any) -> None:
    """Raises ArgumentError for a number out of bounds, or a value that is not a number. None and ops, whose values are unknown, pass."""
    for name, value in numbers.items():
        if value is None or isinstance(value, Op):
            continue
        fits, example = _BOUNDS[bound]
        try:
            fine = not isinstance(value, bool) and fits(value)
        except (TypeError, ValueError, OverflowError):
            fine = False
        if not fine:
            kind = ArgumentError if isinstance(value, (int, float, np.number)) and not isinstance(value, bool) else ArgumentTypeError
            raise kind(f"{speaker(who)}: {name} is {bound}, not {shown(value)}", fix=f"take {name}={example}")

"""One table of samples for the functions of `ng`: what is called, and what NumPy, SciPy and PyTorch say it is.

    row("cumprod", ["A B"], lambda x: ng.cumprod(x, "B"), lambda x: np.cumprod(x, 1), torch=lambda x: torch.cumprod(x, 1))

is all that a function needs: tests/ops/test_functions.py compares values in every dtype on every transformer, also along axes of length
0 and 1, slopes with finite differences of the reference and with PyTorch's gradients, and what ONNX Runtime makes of the export.

An input is names of axes, with a length where it matters (`A=6`), and after a colon its values: from low to high (`0.1..3`), whole
numbers (`ints 0..4`), bools (`bools`), NaN and infinities among others (`special`). Lengths are 3, 4, 5 … in the order of the letters.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import ngraph as ng
from ngraph.op_graph.dtypes import as_dtype

LENGTHS = {"A": 3, "B": 4, "C": 5, "D": 2, "H": 6, "W": 5, "N": 7}
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTS = ("int8", "uint8", "int32", "int64")
NUMBERS = (*FLOATS, *INTS)
ANY = (*NUMBERS, "bool")


class Row(NamedTuple):
    """A function's sample.

    call      of ops           reference  of arrays: float64 for floats, else the arrays themselves
    torch     of tensors of float64, for gradients; None: not compared     edges  whether special values are fed, too
    dtypes    of the inputs without values of their own                     onnx   whether it is exported
    ulp       the tolerance, in units of the largest element or of 1        slope  whether it has a gradient
    lengths   whether it also takes axes of length 1, and of length 0
    """

    name: str
    inputs: Sequence[str]
    call: Callable[..., Any]
    reference: Callable[..., Any]
    torch: Callable[..., Any] | None = None
    dtypes: Sequence[str] = FLOATS
    edges: bool = False
    onnx: bool = True
    ulp: float = 8
    slope: bool = True
    lengths: Sequence[int] = (1, 0)


ROWS: list[Row] = []


def row(name: str, inputs: Sequence[str], call: Any, reference: Any, **more: Any) -> None:
    ROWS.append(Row(name, inputs, call, reference, **more))


class Given(NamedTuple):
    """An input: its axes, array, and whether slopes are taken along it."""

    axes: list[Any]
    array: np.ndarray
    smooth: bool


@functools.cache
def axis(name: str, length: int) -> Any:
    return ng.make_axis(length, name=name)


def given(r: Row, k: int, dtype: str, length: int | None = None, special: bool = False) -> Given:
    """Returns input k of a row in a dtype; with every axis of `length` whose length the row does not state."""
    dims, _, values = r.inputs[k].partition(":")
    axes = []
    for token in dims.split():
        name, _, said = token.partition("=")
        axes.append(axis(name, int(said) if said else LENGTHS[name[0]] if length is None else length))
    shape = [len(a) for a in axes]
    rng = np.random.default_rng(zlib.crc32(f"{r.name} {k}".encode()))
    n = int(np.prod(shape))
    kind = as_dtype(dtype)
    if values.startswith("ints"):
        low, high = map(int, re.findall(r"-?\d+", values))
        return Given(axes, rng.integers(low, high + 1, shape).astype("int32"), False)
    if values == "bools" or kind.kind == "bool":
        return Given(axes, rng.integers(0, 2, shape).astype(bool), False)
    if kind.is_integer:
        low = max(-9, kind.lowest)
        return Given(axes, rng.integers(low, 10, shape).astype(kind.np), False)
    if special or values == "special":
        pool = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e4, -1e4, 1e-3, 3.0, 7.0]
        return Given(axes, rng.choice(pool, shape).astype(kind.np), False)
    low, high = (float(v) for v in values.split("..")) if values else (-2.0, 2.0)
    steps = (rng.permutation(n) + rng.uniform(0.25, 0.75, n)) / max(n, 1)
    return Given(axes, (low + (high - low) * steps).astype(np.float32).astype(kind.np).reshape(shape), True)


def wide(a: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) if as_dtype(a.dtype).is_float else a


def several(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (tuple, list)) else [x]

"""Shared by records of one family: unions of operands' axes, and the alignment of arrays in NumPy references."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ngraph.op_graph.axes import Axes, merge
from ngraph.op_graph.opdef import Call


def axes_like(template: Iterable[Any], axes: Iterable[Any]) -> tuple[Any, ...]:
    """Returns `axes` as Axes where they are an op-graph's, as a tuple where they are a program's ids."""
    return Axes(axes) if type(template) is Axes else tuple(axes)


def union(*groups: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the axes of an elementwise result: those of an operand that has them all, else the left's, then the right's other axes."""
    merged = merge(*groups)
    if merged is groups[0]:
        return merged
    for group in groups:
        if len(group) == len(merged):
            return group
    return axes_like(groups[0], merged)


def without(axes: tuple[Any, ...], gone: Iterable[Any]) -> tuple[Any, ...]:
    """Returns `axes` without `gone`, in order."""
    dropped = set(gone)
    return axes_like(axes, [a for a in axes if a not in dropped])


def align(array: np.ndarray, axes: Sequence[Any], to: Sequence[Any]) -> np.ndarray:
    """Returns the array with its dims in the order of `to`, and length 1 along axes that it lacks."""
    order = [axes.index(a) for a in to if a in axes]
    moved = np.transpose(array, order)
    return moved.reshape([array.shape[axes.index(a)] if a in axes else 1 for a in to])


def wide(array: np.ndarray) -> np.ndarray:
    """Returns 16-bit floats as float32, in which they are computed; other arrays unchanged."""
    return array.astype(np.float32) if array.dtype.itemsize == 2 and array.dtype.kind not in "iub" else array


def elementwise_reference(function: Any) -> Any:
    """Returns a record's `reference` for a NumPy function of aligned arrays."""

    def reference(call: Call, *arrays: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            lined = [wide(align(a, t.axes, call.axes)) for a, t in zip(arrays, call.inputs, strict=True)]
            result = np.asarray(function(*lined, **call.attrs))
            return np.broadcast_to(result, call.shape(call.axes)).astype(call.dtype.np)

    return reference

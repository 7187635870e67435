"""Nodes whose inputs are all known are computed while the graph is read: what shapes are made of.

Works on numbers and on expressions of lengths alike, which stand in arrays of objects; larger arrays are left to the compiler. Each
function here gives NotImplemented where it leaves the node to its translator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngraph.frontends.positional.values import ConstantArray, Sizes, StringInput, Value, settled
from ngraph.op_graph import expr
from ngraph.op_graph.expr import Expr

MAX_FOLDED_ELEMENTS = 4096  # elements


def fold(function: Callable[..., Any], inputs: Sequence[Value], size: Callable[..., float]) -> Any:
    """Returns the result of a function of arrays on inputs, or NotImplemented. size: its number of elements, if more than its inputs'."""
    if any(i is not None and i.array.size > MAX_FOLDED_ELEMENTS for i in inputs):
        return NotImplemented
    open_ = any(isinstance(i, Sizes) for i in inputs)
    kinds = [i.np.kind for i in inputs if i is not None]
    if not open_ and any(k in "OSUcV" for k in kinds):
        return NotImplemented
    if open_ and not all(k in "iub" for k in kinds):
        return NotImplemented
    arrays = [None if i is None else i.array for i in inputs]
    if size(*arrays) > MAX_FOLDED_ELEMENTS:
        return NotImplemented
    with np.errstate(all="ignore"):
        result = function(*arrays)
    if result is NotImplemented:
        return NotImplemented
    return tuple(packed(r, inputs) for r in result) if isinstance(result, tuple) else packed(result, inputs)


def broadcast_size(*shapes: Sequence[int]) -> float:
    """Returns the number of elements of broadcast arrays; inf where they do not fit."""
    try:
        return math.prod(np.broadcast_shapes(*shapes))
    except ValueError:
        return math.inf


def packed(result: Any, inputs: Sequence[Value]) -> Any:
    """An array as a value: `ConstantArray`, or `Sizes`; a value as it is."""
    if isinstance(result, (ConstantArray, Sizes)):
        return result
    result = np.asarray(result, object if type(result) is int else None)  # one element of an array of objects
    if result.dtype != object:
        return ConstantArray(result)
    dtype = next((i.np for i in inputs if isinstance(i, Sizes)), np.dtype(np.int64))
    return settled(result, dtype)


def same(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays of one dtype, which the result keeps."""

    def run(*arrays: Any) -> Any:
        given = function(*arrays)
        if given is NotImplemented or any(a.dtype == object for a in arrays):
            return given if given is NotImplemented else np.asarray(given, object)
        return np.asarray(given).astype(arrays[0].dtype)

    return run


def known(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays, for numbers alone."""
    return lambda *arrays: NotImplemented if any(a is not None and a.dtype == object for a in arrays) else function(*arrays)


@same
def divide(a: Any, b: Any) -> Any:
    """a / b; of integers the whole part."""
    if a.dtype == object or b.dtype == object:
        if any(not isinstance(e, Expr) and e <= 0 for e in b.ravel()):
            return NotImplemented
        return a // b
    if a.dtype.kind in "iu":
        if not np.all(b):
            return NotImplemented
        return np.where((a < 0) != (b < 0), -(abs(a) // abs(b)), abs(a) // abs(b))
    return a / b


@same
def remainder(a: Any, b: Any) -> Any:
    """Returns the remainder of a / b, with the sign of b."""
    return a % b if b.dtype == object or np.all(b) else NotImplemented


def compared(g: Any, kind: str, a: Any, b: Any) -> Any:
    """Whether a = b (`eq`), a < b (`lt`), a <= b (`le`), each for itself; of expressions this call's answer."""
    if a.dtype != object and b.dtype != object:
        return {"eq": np.equal, "lt": np.less, "le": np.less_equal}[kind](a, b)
    a, b = np.broadcast_arrays(a, b)
    found = [g.truth(kind, *(e if isinstance(e, Expr) else int(e) for e in pair)) for pair in zip(a.ravel(), b.ravel(), strict=True)]
    return np.array(found, bool).reshape(a.shape)


def extreme(kind: str, *arrays: Any) -> Any:
    """max or min of any number of arrays."""
    total = arrays[0]
    for b in arrays[1:]:
        if total.dtype != object and b.dtype != object:
            total = {"max": np.maximum, "min": np.minimum}[kind](total, b)
        else:
            x, y = np.broadcast_arrays(total, b)
            pairs = zip(x.ravel(), y.ravel(), strict=True)
            made = [expr.combine(kind, *(e if isinstance(e, Expr) else int(e) for e in p)) for p in pairs]
            total = np.array(made, object).reshape(x.shape)
    return total


def cast(a: Any, dtype: np.dtype[Any]) -> Any:
    """Numbers as another dtype, where NumPy's cast is the compiler's."""
    if a.dtype == object:
        return settled(a, dtype) if dtype.kind == "i" and dtype.itemsize >= 4 else NotImplemented
    if dtype.isbuiltin != 1 or dtype.kind not in "iufb" or a.dtype.kind not in "iufb" or dtype.itemsize == 2:
        return NotImplemented
    if a.dtype.kind == "f" and dtype.kind in "iu" and not (np.isfinite(a).all() and (abs(a) < 1e9).all()):
        return NotImplemented
    return a.astype(dtype)


def take(a: Any, i: Any, axis: int) -> Any:
    """a at indices along an axis; one that is out of bounds is left to who can say so."""
    if i.dtype == object or (i.size and not (-a.shape[axis] <= i.min() and i.max() < a.shape[axis])):
        return NotImplemented
    return np.take(a, i, axis=axis)


def sliced(a: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    """Slices along axes, the first ones by default: as Python's, but backwards from before the first element they begin at that."""
    if any(i is not None and i.dtype == object for i in (starts, ends, axes, steps)):
        return NotImplemented
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    items = [slice(None)] * a.ndim
    for first, last, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step < 0 and first < -a.shape[axis]:
            first = 0
        items[int(axis)] = slice(int(first), None if step < 0 and last <= -(1 << 62) else int(last), int(step))
    return a[tuple(items)]


def reshaped(a: Any, shape: Any, keep: bool = True) -> Any:
    """Another shape, where keep is set with 0 for a length that stays."""
    if shape.dtype == object:
        return NotImplemented
    return a.reshape([a.shape[k] if d == 0 and keep else int(d) for k, d in enumerate(shape)])


def ranged(start: Any, limit: Any, delta: Any) -> Any:
    """Numbers from start on, before limit, by delta."""
    if any(a.dtype == object for a in (start, limit, delta)) or not delta:
        return NotImplemented
    if abs((limit - start) / delta) > MAX_FOLDED_ELEMENTS:
        return NotImplemented
    return np.asarray(np.arange(start.item(), limit.item(), delta.item()), start.dtype)


def reduced(function: Callable[..., Any], a: Any, axes: Sequence[int] | None, keep: bool) -> Any:
    """Returns a sum, product or extreme of integers over axes, all by default."""
    if a.size == 0 or a.dtype.kind == "f":
        return NotImplemented
    got = function(a, axis=tuple(range(a.ndim)) if axes is None else tuple(int(k) for k in axes), keepdims=keep)
    if got is NotImplemented:
        return got
    return np.asarray(got, object) if a.dtype == object else np.asarray(got).astype(a.dtype)


# ---- strings ------------------------------------------------------------------------------------------------------------


def is_text(v: Value) -> bool:
    """Whether a value holds strings."""
    return isinstance(v, (StringInput, ConstantArray)) and v.array.dtype.kind in "OSU"


def of_text(g: Any, name: str, run: Callable[..., Any], inputs: Sequence[Value], outputs: int) -> Any:
    """A function that moves strings: known ones now, others in a step in Python."""
    if all(isinstance(i, ConstantArray) for i in inputs if i is not None):
        found = run(*[None if i is None else i.array for i in inputs])
        return tuple(map(ConstantArray, found)) if isinstance(found, tuple) else ConstantArray(found)
    given = [i for i in inputs if i is not None]
    at = [k for k, i in enumerate(inputs) if i is not None]

    def placed(*arrays: Any) -> Any:
        whole: list[Any] = [None] * len(inputs)
        for k, a in zip(at, arrays, strict=True):
            whole[k] = a
        return run(*whole)

    return tuple(g.host(name, placed, given, [object] * outputs))

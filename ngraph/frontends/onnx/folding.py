"""Nodes whose inputs are all known are computed while the graph is read: what shapes are made of.

Works on numbers and on expressions of lengths alike; larger arrays are left to the compiler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from ngraph.frontends.onnx.proto import numpy_type
from ngraph.frontends.positional.values import ConstantArray, Sizes, StringInput, Value, settled
from ngraph.op_graph import expr
from ngraph.op_graph.expr import Expr

MAX_FOLDED_ELEMENTS = 4096  # elements


def fold(n: Any, inputs: Sequence[Value]) -> Any:
    """The node's result, or NotImplemented."""
    if any(i is not None and i.array.size > MAX_FOLDED_ELEMENTS for i in inputs):
        return NotImplemented
    open_ = any(isinstance(i, Sizes) for i in inputs)
    kinds = [i.np.kind for i in inputs if i is not None]
    if not open_ and any(k in "OSUcV" for k in kinds):
        return NotImplemented
    if open_ and not all(k in "iub" for k in kinds):
        return NotImplemented
    arrays = [None if i is None else i.array for i in inputs]
    if result_size(n, arrays) > MAX_FOLDED_ELEMENTS:
        return NotImplemented
    with np.errstate(all="ignore"):
        result = FOLD[n.op](n, *arrays)
    if result is NotImplemented:
        return NotImplemented
    if isinstance(result, tuple):
        return tuple(packed(r, inputs, open_) for r in result)
    return packed(result, inputs, open_)


def result_size(n: Any, arrays: Sequence[Any]) -> float:
    """How many elements a node's result has, where that may be more than its inputs have; inf where the inputs do not fit."""
    if n.op == "Gather":
        a, i = arrays
        return a.size // max(a.shape[n.attr("axis", 0)], 1) * i.size
    if n.op == "ConstantOfShape" and arrays[0].dtype != object:
        return float(np.prod(arrays[0].astype(float)))
    if n.op == "Tile" and arrays[1].dtype != object:
        return arrays[0].size * float(np.prod(arrays[1].astype(float)))
    if n.op not in BROADCAST:
        return 0
    shapes = [a.shape for a in arrays if a is not None]
    if n.op == "Expand":
        shapes = [shapes[0], () if arrays[1].dtype == object else tuple(int(d) for d in arrays[1])]
    try:
        return math.prod(np.broadcast_shapes(*shapes))
    except ValueError:
        return math.inf


def packed(result: Any, inputs: Sequence[Value], open_: bool) -> Any:
    result = np.asarray(result)
    if result.dtype != object:
        return ConstantArray(result)
    dtype = next((i.np for i in inputs if isinstance(i, Sizes)), np.dtype(np.int64))
    return settled(result, dtype)


def _same(f: Callable[..., Any]) -> Callable[..., Any]:
    """Of arrays of one dtype, which the result keeps."""

    def run(n: Any, *arrays: Any) -> Any:
        given = f(*arrays)
        if any(a.dtype == object for a in arrays):
            return np.asarray(given, object)
        return np.asarray(given).astype(arrays[0].dtype)

    return run


def _divide(a: Any, b: Any) -> Any:
    if a.dtype == object or b.dtype == object:
        if any(not isinstance(e, Expr) and e <= 0 for e in b.ravel()):
            return NotImplemented
        return a // b
    if a.dtype.kind in "iu":
        if not np.all(b):
            return NotImplemented
        return np.where((a < 0) != (b < 0), -(abs(a) // abs(b)), abs(a) // abs(b))
    return a / b


def _div(n: Any, a: Any, b: Any) -> Any:
    got = _divide(a, b)
    return got if got is NotImplemented else _same(lambda *_: got)(n, a, b)


def _mod(n: Any, a: Any, b: Any) -> Any:
    if n.attr("fmod", 0) or (b.dtype != object and not np.all(b)):
        return NotImplemented
    return _same(lambda a, b: a % b)(n, a, b)


def _compare(kind: str, swap: bool = False) -> Callable[..., Any]:
    def run(n: Any, a: Any, b: Any) -> Any:
        if swap:
            a, b = b, a
        if a.dtype != object and b.dtype != object:
            return {"eq": np.equal, "lt": np.less, "le": np.less_equal}[kind](a, b)
        a, b = np.broadcast_arrays(a, b)
        found = [n.g.truth(kind, *(e if isinstance(e, Expr) else int(e) for e in pair)) for pair in zip(a.ravel(), b.ravel(), strict=True)]
        return np.array(found, bool).reshape(a.shape)

    return run


def _each(kind: str) -> Callable[..., Any]:
    """max or min of any number of arrays."""

    def run(n: Any, *arrays: Any) -> Any:
        total = arrays[0]
        for b in arrays[1:]:
            if total.dtype != object and b.dtype != object:
                total = {"max": np.maximum, "min": np.minimum}[kind](total, b)
            else:
                x, y = np.broadcast_arrays(total, b)
                pairs = zip(x.ravel(), y.ravel(), strict=True)
                total = np.array([expr.combine(kind, *(e if isinstance(e, Expr) else int(e) for e in p)) for p in pairs], object).reshape(
                    x.shape
                )
        return total

    return run


def _cast(n: Any, a: Any) -> Any:
    to = n.attr("to")
    if to is None or to == onnx.TensorProto.STRING:
        return NotImplemented
    dtype = numpy_type(to)
    if a.dtype == object:
        return a if dtype.kind in "iu" and dtype.itemsize >= 4 else NotImplemented
    if dtype.isbuiltin != 1 or dtype.kind not in "iufb" or a.dtype.kind not in "iufb" or dtype.itemsize == 2:
        return NotImplemented
    if a.dtype.kind == "f" and dtype.kind in "iu" and not (np.isfinite(a).all() and (abs(a) < 1e9).all()):
        return NotImplemented
    return a.astype(dtype)


def axes_of(n: Any, given: Any, rank: int) -> list[int]:
    return [int(a) % rank if rank else 0 for a in given]


def _unsqueeze(n: Any, a: Any, axes: Any = None) -> Any:
    axes = n.attr("axes") if axes is None else axes.ravel()
    rank = a.ndim + len(axes)
    return np.expand_dims(a, tuple(int(k) % rank for k in axes))


def _squeeze(n: Any, a: Any, axes: Any = None) -> Any:
    axes = n.attr("axes") if axes is None else axes.ravel()
    return np.squeeze(a, None if axes is None else tuple(int(k) for k in axes))


def _gather(n: Any, a: Any, i: Any) -> Any:
    if i.dtype == object:
        return NotImplemented
    axis = n.attr("axis", 0)
    if i.size and not (-a.shape[axis] <= i.min() and i.max() < a.shape[axis]):
        return NotImplemented  # the translator says what is wrong, if it is
    return np.take(a, i, axis=axis)


def _concat(n: Any, *arrays: Any) -> Any:
    return np.concatenate(arrays, axis=n.attr("axis", 1))


def _slice(n: Any, a: Any, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None) -> Any:
    if starts is None:
        starts, ends, axes = (None if n.attr(k) is None else np.array(n.attr(k)) for k in ("starts", "ends", "axes"))
    if any(i is not None and i.dtype == object for i in (starts, ends, axes, steps)):
        return NotImplemented
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    items = [slice(None)] * a.ndim
    for first, last, axis, step in zip(starts, ends, axes, steps, strict=True):
        items[int(axis)] = slice(int(first), int(last) if last > -(1 << 62) else None, int(step))
    return a[tuple(items)]


def _reshape(n: Any, a: Any, shape: Any = None) -> Any:
    shape = np.array(n.attr("shape")) if shape is None else shape
    if shape.dtype == object:
        return NotImplemented
    keep = not n.attr("allowzero", 0)
    return a.reshape([a.shape[k] if d == 0 and keep else int(d) for k, d in enumerate(shape)])


def _range(n: Any, start: Any, limit: Any, delta: Any) -> Any:
    if any(a.dtype == object for a in (start, limit, delta)) or not delta:
        return NotImplemented
    if abs((limit - start) / delta) > MAX_FOLDED_ELEMENTS:
        return NotImplemented
    return np.asarray(np.arange(start.item(), limit.item(), delta.item()), start.dtype)


def _filled(n: Any, shape: Any) -> Any:
    if shape.dtype == object:
        return NotImplemented
    value = n.attr("value")
    return np.zeros(shape, np.float32) if value is None else np.full(shape, value.ravel()[0], value.dtype)


def _expand(n: Any, a: Any, shape: Any) -> Any:
    if shape.dtype == object:
        return NotImplemented
    return np.broadcast_to(a, np.broadcast_shapes(a.shape, tuple(int(d) for d in shape)))


def _where(n: Any, c: Any, a: Any, b: Any) -> Any:
    if c.dtype == object:
        return NotImplemented
    return np.where(c, a, b)


def _reduced(f: Any) -> Callable[..., Any]:
    def run(n: Any, a: Any, axes: Any = None) -> Any:
        axes = n.attr("axes") if axes is None else axes.ravel()
        if axes is not None and len(axes) == 0:
            axes = None
            if n.attr("noop_with_empty_axes", 0):
                return a
        if axes is None and n.attr("noop_with_empty_axes", 0):
            return a
        axes = tuple(range(a.ndim)) if axes is None else tuple(int(k) for k in axes)
        if a.size == 0 or a.dtype.kind == "f":
            return NotImplemented
        got = f(a, axis=axes, keepdims=bool(n.attr("keepdims", 1)))
        return np.asarray(got, object) if a.dtype == object else np.asarray(got).astype(a.dtype)

    return run


def _split(n: Any, a: Any, sizes: Any = None) -> Any:
    axis = n.attr("axis", 0)
    sizes = n.attr("split") if sizes is None else sizes
    if sizes is None:
        each = -(-a.shape[axis] // n.outputs)
        return tuple(np.split(a, range(each, a.shape[axis], each), axis))[: n.outputs]
    return tuple(np.split(a, np.cumsum([int(s) for s in sizes])[:-1], axis))


FOLD: dict[str, Callable[..., Any]] = {
    "Add": _same(np.add),
    "Sub": _same(np.subtract),
    "Mul": _same(np.multiply),
    "Div": _div,
    "Mod": _mod,
    "Neg": _same(np.negative),
    "Equal": _compare("eq"),
    "Less": _compare("lt"),
    "LessOrEqual": _compare("le"),
    "Greater": _compare("lt", True),
    "GreaterOrEqual": _compare("le", True),
    "Max": _each("max"),
    "Min": _each("min"),
    "Cast": _cast,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Gather": _gather,
    "Concat": _concat,
    "Slice": _slice,
    "Reshape": _reshape,
    "Range": _range,
    "ConstantOfShape": _filled,
    "Expand": _expand,
    "Where": _where,
    "Split": _split,
    "ReduceProd": _reduced(np.prod),
    "ReduceSum": _reduced(np.sum),
    "Identity": lambda n, a: a,
    "Transpose": lambda n, a: np.transpose(a, n.attr("perm")),
    "Not": lambda n, a: np.logical_not(a),
    "And": lambda n, a, b: np.logical_and(a, b),
    "Or": lambda n, a, b: np.logical_or(a, b),
    "Abs": lambda n, a: NotImplemented if a.dtype == object else abs(a),
    "Floor": lambda n, a: NotImplemented if a.dtype == object else np.floor(a),
    "Ceil": lambda n, a: NotImplemented if a.dtype == object else np.ceil(a),
    "Sqrt": lambda n, a: NotImplemented if a.dtype == object else np.sqrt(a),
    "Tile": lambda n, a, r: NotImplemented if r.dtype == object else np.tile(a, r),
}

# ops whose inputs, or an input and a shape, are broadcast against each other
BROADCAST = frozenset("Add Sub Mul Div Mod Equal Less LessOrEqual Greater GreaterOrEqual Max Min Where And Or Expand".split())

# ops that move strings as they move numbers
TEXTUAL = frozenset("Concat Expand Gather Identity Reshape Slice Split Squeeze Tile Transpose Unsqueeze Where".split())


def is_text(v: Value) -> bool:
    return isinstance(v, StringInput) or (isinstance(v, ConstantArray) and v.array.dtype == object)


def of_text(n: Any, inputs: Sequence[Value]) -> Any:
    """An op that moves strings: known ones now, others in a step in Python."""

    def run(*arrays: Any) -> Any:
        return FOLD[n.op](n, *arrays)

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

    return tuple(n.g.host(n.op, placed, given, [object] * n.outputs))

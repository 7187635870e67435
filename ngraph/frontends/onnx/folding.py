"""ONNX nodes that are computed while the graph is read, where all their inputs are known: by op, from node and arrays to arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngraph.export.onnx import package as onnx
from ngraph.frontends.onnx.proto import numpy_type
from ngraph.frontends.positional import folding
from ngraph.frontends.positional.folding import broadcast_size, known, same
from ngraph.frontends.positional.values import Value


def fold(n: Any, inputs: Sequence[Value]) -> Any:
    """The node's result, or NotImplemented."""
    return folding.fold(lambda *arrays: FOLD[n.op](n, *arrays), inputs, lambda *arrays: result_size(n, arrays))


def of_text(n: Any, inputs: Sequence[Value]) -> Any:
    """An op that moves strings."""
    return folding.of_text(n.g, n.op, lambda *arrays: FOLD[n.op](n, *arrays), inputs, n.outputs)


def result_size(n: Any, arrays: Sequence[Any]) -> float:
    """Returns the number of elements of a node's result, where that may exceed its inputs'; inf where the inputs do not fit."""
    if n.op == "Gather":
        a, i = arrays
        return a.size // max(a.shape[n.attr("axis", 0)], 1) * i.size
    if n.op == "ConstantOfShape" and arrays[0].dtype != object:
        return float(np.prod(arrays[0].astype(float)))
    if n.op == "Tile" and arrays[1].dtype != object:
        return arrays[0].size * float(np.prod(arrays[1].astype(float)))
    if n.op == "OneHot" and arrays[1].dtype != object:
        return arrays[0].size * float(arrays[1].ravel()[0])
    if n.op not in BROADCAST:
        return 0
    shapes = [a.shape for a in arrays if a is not None]
    if n.op == "Expand":
        shapes = [shapes[0], () if arrays[1].dtype == object else tuple(int(d) for d in arrays[1])]
    return broadcast_size(*shapes)


def _cast(n: Any, a: Any) -> Any:
    to = n.attr("to")
    return NotImplemented if to is None or to == onnx.TensorProto.STRING else folding.cast(a, numpy_type(to))


def _axes(n: Any, given: Any) -> Any:
    """The attribute axes, or what an input says."""
    return n.attr("axes") if given is None else given.ravel()


def _unsqueeze(n: Any, a: Any, axes: Any = None) -> Any:
    axes = _axes(n, axes)
    rank = a.ndim + len(axes)
    return np.expand_dims(a, tuple(int(k) % rank for k in axes))


def _squeeze(n: Any, a: Any, axes: Any = None) -> Any:
    axes = _axes(n, axes)
    return np.squeeze(a, None if axes is None else tuple(int(k) for k in axes))


def _slice(n: Any, a: Any, *given: Any) -> Any:
    numbers = given or [None if n.attr(k) is None else np.array(n.attr(k)) for k in ("starts", "ends", "axes")]
    return folding.sliced(a, *numbers)


def _reshape(n: Any, a: Any, shape: Any = None) -> Any:
    return folding.reshaped(a, np.array(n.attr("shape")) if shape is None else shape, not n.attr("allowzero", 0))


def _filled(n: Any, shape: Any) -> Any:
    value = n.attr("value")
    return np.zeros(shape, np.float32) if value is None else np.full(shape, value.ravel()[0], value.dtype)


def _expand(n: Any, a: Any, shape: Any) -> Any:
    if shape.dtype == object:
        return NotImplemented
    return np.broadcast_to(a, np.broadcast_shapes(a.shape, tuple(int(d) for d in shape)))


def _where(n: Any, c: Any, a: Any, b: Any) -> Any:
    return NotImplemented if c.dtype == object else np.where(c, a, b)


def _one_hot(n: Any, indices: Any, depth: Any, values: Any) -> Any:
    if indices.dtype.kind not in "iu" or depth.dtype.kind not in "iu":
        return NotImplemented
    (count,) = depth.ravel()
    places = np.where(indices < 0, indices + count, indices)  # negative ones count from the end
    hot = np.moveaxis(places[..., None] == np.arange(count), -1, n.attr("axis", -1))
    return np.where(hot, values[1:], values[:1])


def _reduced(function: Any) -> Callable[..., Any]:
    def run(n: Any, a: Any, axes: Any = None) -> Any:
        axes = _axes(n, axes)
        none = axes is None or len(axes) == 0
        if none and n.attr("noop_with_empty_axes", 0):
            return a
        return folding.reduced(function, a, None if none else axes, bool(n.attr("keepdims", 1)))

    return run


def _split(n: Any, a: Any, sizes: Any = None) -> Any:
    axis = n.attr("axis", 0)
    sizes = n.attr("split") if sizes is None else sizes
    if sizes is None:
        each = -(-a.shape[axis] // n.outputs)
        return tuple(np.split(a, range(each, a.shape[axis], each), axis))[: n.outputs]
    return tuple(np.split(a, np.cumsum([int(s) for s in sizes])[:-1], axis))


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that no attribute changes."""
    return lambda n, *arrays: function(*arrays)


FOLD: dict[str, Callable[..., Any]] = {
    "Div": _plain(folding.divide),
    "Mod": lambda n, a, b: NotImplemented if n.attr("fmod", 0) else folding.remainder(a, b),
    "Equal": lambda n, a, b: folding.compared(n.g, "eq", a, b),
    "Less": lambda n, a, b: folding.compared(n.g, "lt", a, b),
    "LessOrEqual": lambda n, a, b: folding.compared(n.g, "le", a, b),
    "Greater": lambda n, a, b: folding.compared(n.g, "lt", b, a),
    "GreaterOrEqual": lambda n, a, b: folding.compared(n.g, "le", b, a),
    "Max": lambda n, *arrays: folding.extreme("max", *arrays),
    "Min": lambda n, *arrays: folding.extreme("min", *arrays),
    "Cast": _cast,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Gather": lambda n, a, i: folding.take(a, i, n.attr("axis", 0)),
    "Concat": lambda n, *arrays: np.concatenate(arrays, axis=n.attr("axis", 1)),
    "Slice": _slice,
    "Reshape": _reshape,
    "Range": _plain(folding.ranged),
    "ConstantOfShape": lambda n, shape: NotImplemented if shape.dtype == object else _filled(n, shape),
    "Expand": _expand,
    "Where": _where,
    "OneHot": _one_hot,
    "Split": _split,
    "ReduceProd": _reduced(np.prod),
    "ReduceSum": _reduced(np.sum),
    "Identity": _plain(lambda a: a),
    "Transpose": lambda n, a: np.transpose(a, n.attr("perm")),
    **{op: _plain(same(f)) for op, f in {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Neg": np.negative}.items()},
    **{op: _plain(f) for op, f in {"Not": np.logical_not, "And": np.logical_and, "Or": np.logical_or}.items()},
    **{op: _plain(known(f)) for op, f in {"Abs": np.abs, "Floor": np.floor, "Ceil": np.ceil, "Sqrt": np.sqrt}.items()},
    "Tile": lambda n, a, r: NotImplemented if r.dtype == object else np.tile(a, r),
}


# ops whose inputs, or an input and a shape, are broadcast against each other
BROADCAST = frozenset("Add Sub Mul Div Mod Equal Less LessOrEqual Greater GreaterOrEqual Max Min Where And Or Expand".split())


# ops that move strings as they move numbers
TEXTUAL = frozenset("Concat Expand Gather Identity Reshape Slice Split Squeeze Tile Transpose Unsqueeze Where".split())

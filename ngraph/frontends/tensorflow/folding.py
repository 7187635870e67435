"""TensorFlow's nodes that are computed while the graph is read, where all their inputs are known: what shapes are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.positional import folding
from ngraph.frontends.positional.folding import broadcast_size, known, same
from ngraph.frontends.positional.values import ConstantArray, Sizes, Tensor, Value
from ngraph.op_graph.expr import Expr


def fold(n: Any, inputs: Sequence[Value]) -> Any:
    """Returns a node's result, or NotImplemented where it is left to its translator."""
    if n.op in DECIDES and all(i.rank == 0 for i in inputs):
        if any(isinstance(i, ConstantArray) and i.array == DECIDES[n.op] for i in inputs):
            return ConstantArray(np.array(DECIDES[n.op]))
    function = FOLD.get(n.op)
    if function is None or not inputs or not all(isinstance(i, (ConstantArray, Sizes)) for i in inputs):
        return NotImplemented
    return folding.fold(lambda *arrays: function(n, *arrays), inputs, lambda *arrays: _size(n, arrays))


def _size(n: Any, arrays: Sequence[Any]) -> float:
    """Returns the number of elements of a node's result, where that may exceed its inputs'; inf where the inputs do not fit."""
    if n.op in ("Fill", "Tile", "BroadcastTo") or n.op.startswith("Gather"):
        shape = arrays[0] if n.op == "Fill" else arrays[1]
        if n.op.startswith("Gather"):
            return float(arrays[0].size) * max(arrays[1].size, 1)
        if shape.dtype == object:
            return 0.0
        return float(np.prod(shape.astype(float))) * (arrays[0].size if n.op == "Tile" else 1)
    if n.op in BROADCAST:
        return broadcast_size(*[a.shape for a in arrays])
    return 0.0


def strided_items(n: Any, many: int, begin: Sequence[Any], end: Sequence[Any], strides: Sequence[Any]) -> list[Any]:
    """Returns NumPy's index for a StridedSlice of `many` dims: slices, numbers (also computed ones), and None for new dims.

    Bit k of a mask is for entry k: begin_mask and end_mask leave an end open, ellipsis_mask stands for all dims that no entry names,
    new_axis_mask makes a dim of length 1, shrink_axis_mask takes the one element at `begin`.
    """
    masks = {k: int(n.attr(f"{k}_mask", 0)) for k in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    count = len(begin)
    named = sum(1 for k in range(count) if not (masks["ellipsis"] >> k & 1 or masks["new_axis"] >> k & 1))
    items: list[Any] = []
    for k in range(count):
        on = {mask for mask, bits in masks.items() if bits >> k & 1}
        if "ellipsis" in on:
            items += [slice(None)] * (many - named)
        elif "new_axis" in on:
            items.append(None)
        elif "shrink_axis" in on:
            items.append(begin[k] if isinstance(begin[k], (Expr, Tensor)) else int(begin[k]))
        else:
            ends = (("begin", begin[k]), ("end", end[k]))
            first, last = (None if mask in on else v if isinstance(v, Expr) else int(v) for mask, v in ends)
            items.append(slice(first, last, int(strides[k])))
    return items


def _strided(n: Any, a: Any, begin: Any, end: Any, strides: Any) -> Any:
    if any(i.dtype == object for i in (begin, end, strides)):
        return NotImplemented
    items = strided_items(n, a.ndim, begin, end, strides)
    return a[tuple(np.newaxis if i is None else i for i in items)]


def _cast(n: Any, a: Any) -> Any:
    to = n.attr("DstT")
    return NotImplemented if to is None or to.hasobject or n.attr("Truncate", False) else folding.cast(a, to)


def _joined(n: Any, *arrays: Any) -> Any:
    *parts, axis = arrays
    return np.concatenate(parts, int(axis))


def _reduced(function: Any) -> Callable[..., Any]:
    return lambda n, a, axes: same(lambda x: folding.reduced(function, x, axes.ravel(), bool(n.attr("keep_dims", False))))(a)


def _extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function for the greatest or least numbers; of lengths that are open only where nothing has to be compared."""

    def run(a: Any, axis: Any, keepdims: bool) -> Any:
        several = a.dtype == object and any(a.shape[k] != 1 for k in axis)
        return NotImplemented if several else function(a, axis=axis, keepdims=keepdims)

    return run


def _split_v(n: Any, a: Any, sizes: Any, axis: Any) -> Any:
    if sizes.dtype == object:
        return NotImplemented
    sizes = np.where(sizes < 0, a.shape[int(axis)] - sizes[sizes >= 0].sum(), sizes)
    return tuple(np.split(a, np.cumsum(sizes)[:-1], int(axis)))


def _chosen(n: Any, c: Any, a: Any, b: Any) -> Any:
    """Returns a Select of lengths; its rows are chosen by a condition of one dim."""
    if n.op == "Select" and c.ndim == 1 and a.ndim > 1:
        c = c.reshape(-1, *[1] * (a.ndim - 1))
    return np.where(c, a, b)


def _alike(number: int) -> Callable[..., Any]:
    return lambda n, a: np.full(a.shape, number, n.attr("T") if a.dtype == object else a.dtype) if a.dtype.kind in "iuO" else NotImplemented


def _slice(n: Any, a: Any, begin: Any, size: Any) -> Any:
    if begin.dtype == object or size.dtype == object:
        return NotImplemented
    return a[tuple(slice(int(b), None if s < 0 else int(b + s)) for b, s in zip(begin, size, strict=True))]


def stitch_order(numbers: Sequence[Any]) -> Any:
    """Returns for each row of what is stitched the place of its source among the rows of all parts: the last one that has its number."""
    every = np.concatenate([np.ravel(i) for i in numbers])
    order = np.full(every.max(initial=-1) + 1, -1, np.int64)
    order[every] = np.arange(every.size)
    if (order < 0).any():
        raise GraphError(f"DynamicStitch says nothing of row {int(np.argmin(order))}", fix="number all rows")
    return order


def _stitched(n: Any, *inputs: Any) -> Any:
    numbers, parts = inputs[: len(inputs) // 2], inputs[len(inputs) // 2 :]
    if any(i.dtype == object for i in numbers):
        return NotImplemented
    return np.concatenate([d.reshape(i.size, *d.shape[i.ndim :]) for i, d in zip(numbers, parts, strict=True)])[stitch_order(numbers)]


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda n, *arrays: function(*arrays)


def _floor_div(a: Any, b: Any) -> Any:
    if a.dtype == object or b.dtype == object:
        return a // b if b.dtype != object and (b > 0).all() else NotImplemented
    return np.floor_divide(a, b).astype(a.dtype) if a.dtype.kind in "iu" and np.all(b) else NotImplemented


DECIDES = {"LogicalAnd": False, "LogicalOr": True}  # the operand that decides, whatever the other one is

BROADCAST: dict[str, Callable[..., Any]] = {  # functions of a node and two arrays that are broadcast against each other
    **dict.fromkeys(("Add", "AddV2"), _plain(same(np.add))),
    "Sub": _plain(same(np.subtract)),
    "Mul": _plain(same(np.multiply)),
    "FloorDiv": _plain(_floor_div),
    "FloorMod": _plain(folding.remainder),
    "RealDiv": lambda n, a, b: folding.divide(a, b) if a.dtype.kind == "f" else NotImplemented,
    "Maximum": lambda n, a, b: folding.extreme("max", a, b),
    "Minimum": lambda n, a, b: folding.extreme("min", a, b),
    "Equal": lambda n, a, b: folding.compared(n.g, "eq", a, b),
    "NotEqual": lambda n, a, b: np.logical_not(folding.compared(n.g, "eq", a, b)),
    "Less": lambda n, a, b: folding.compared(n.g, "lt", a, b),
    "LessEqual": lambda n, a, b: folding.compared(n.g, "le", a, b),
    "Greater": lambda n, a, b: folding.compared(n.g, "lt", b, a),
    "GreaterEqual": lambda n, a, b: folding.compared(n.g, "le", b, a),
    "LogicalAnd": _plain(np.logical_and),
    "LogicalOr": _plain(np.logical_or),
}

FOLD: dict[str, Callable[..., Any]] = {
    **BROADCAST,
    "Neg": _plain(same(np.negative)),
    "LogicalNot": _plain(np.logical_not),
    "Cast": _cast,
    "Pack": lambda n, *arrays: np.stack(arrays, n.attr("axis", 0)),
    "Unpack": lambda n, a: tuple(np.moveaxis(a, n.attr("axis", 0), 0)),
    "ConcatV2": _joined,
    "Concat": lambda n, axis, *arrays: _joined(n, *arrays, axis),
    "Split": lambda n, axis, a: tuple(np.split(a, n.attr("num_split"), int(axis))),
    "SplitV": _split_v,
    "StridedSlice": _strided,
    "ZerosLike": _alike(0),
    "OnesLike": _alike(1),
    **dict.fromkeys(("Select", "SelectV2"), _chosen),
    "Slice": _slice,
    "GatherV2": lambda n, a, i, axis: NotImplemented if n.attr("batch_dims", 0) else folding.take(a, i, int(axis)),
    "Gather": lambda n, a, i: folding.take(a, i, 0),
    "Reshape": lambda n, a, shape: folding.reshaped(a, shape, False),
    "ExpandDims": lambda n, a, axis: np.expand_dims(a, int(axis.item())),
    "Squeeze": lambda n, a: np.squeeze(a, tuple(n.attr("squeeze_dims", [])) or None),
    "Range": _plain(folding.ranged),
    "Fill": lambda n, shape, value: NotImplemented if shape.dtype == object or value.dtype == object else np.full(shape, value),
    "Max": _reduced(_extreme(np.max)),
    "Min": _reduced(_extreme(np.min)),
    "Prod": _reduced(np.prod),
    "Sum": _reduced(np.sum),
    "Transpose": lambda n, a, order: np.transpose(a, order),
    "Tile": lambda n, a, times: NotImplemented if times.dtype == object else np.tile(a, times),
    "BroadcastTo": lambda n, a, shape: NotImplemented if shape.dtype == object else np.broadcast_to(a, shape),
    "ReverseV2": lambda n, a, axes: np.flip(a, tuple(int(k) for k in axes)),
    "Size": lambda n, a: np.asarray(a.size, n.attr("out_type", np.dtype(np.int32))),
    "Rank": lambda n, a: np.asarray(a.ndim, np.int32),
    **dict.fromkeys(("DynamicStitch", "ParallelDynamicStitch"), _stitched),
    "InvertPermutation": _plain(known(same(np.argsort))),
    **{op: _plain(known(f)) for op, f in {"Abs": np.abs, "Floor": np.floor, "Ceil": np.ceil, "Sqrt": np.sqrt}.items()},
}

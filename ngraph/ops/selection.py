"""Selection of elements by value: the largest k along an axis, and the positions of nonzero elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from ngraph.errors import AxisError
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axis, as_axis, merge
from ngraph.op_graph.dtypes import computes
from ngraph.op_graph.expr import Idx
from ngraph.op_graph.op import Op, TensorType
from ngraph.op_graph.opdef import Call, OpDef, find_axis, op, show_input
from ngraph.ops.aligned import align, axes_like, wide
from ngraph.ops.elementwise import ALL, as_op, cast, filled, floordivide, mod, not_equal
from ngraph.ops.indexing import scatter
from ngraph.ops.rearrange import broadcast, iota, reindex
from ngraph.ops.reduce import count
from ngraph.ops.sorting import compact, sort_record
from ngraph.ops.state import parts, together


def _top_k_type(inputs: tuple[TensorType, ...], axis: Any, out: Any, largest: bool, nan_largest: bool) -> tuple[TensorType, TensorType]:
    (x,) = inputs
    computes("top_k", x.dtype)
    axes = axes_like(x.axes, [out if a == axis else a for a in x.axes])
    merge(axes)
    return TensorType(axes, x.dtype), TensorType(axes, dtypes.int32)


def _top_k_lower(op: Op, x: Op) -> Op:
    axis, out, largest, nan_largest = (op.attrs[name] for name in ("axis", "out", "largest", "nan_largest"))
    both = parts(sort_record.build(x, broadcast(iota(axis), x.axes), axis=axis, descending=largest, nan_largest=nan_largest))
    first = tuple([(a, Idx(out if a == axis else a)) for a in x.axes])
    return together.build(*(reindex.build(t, axes=op.type[0].axes, index=first, predicate=(), pad_value=0) for t in both))


def _top_k_grad(op: Op, dys: Any, x: Op) -> tuple[Op | None]:
    """Returns the gradient, scattered to the positions of the chosen elements."""
    if dys[0] is None:
        return (None,)
    zeros = filled(0, x.axes, dys[0].dtype)
    return (scatter.build(zeros, parts(op)[1], dys[0], axes=(op.attrs["axis"],), combine="add", mode="clip"),)


def _top_k_reference(call: Call, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    axes, axis = call.inputs[0].axes, call.attrs["axis"]
    rows = np.moveaxis(wide(x), axes.index(axis), -1)
    nan = np.isnan(rows) if rows.dtype.kind == "f" else np.zeros(rows.shape, bool)
    rank = np.unique(np.where(nan, np.zeros((), rows.dtype), rows), return_inverse=True)[1].reshape(rows.shape)
    largest, nan_largest = call.attrs["largest"], call.attrs["nan_largest"]
    rank = np.where(nan, -x.size if largest and nan_largest else x.size, -rank if largest else rank)
    chosen = np.argsort(rank, axis=-1, kind="stable")[..., : call.length(call.attrs["out"])]
    found = np.moveaxis(np.take_along_axis(rows, chosen, axis=-1), -1, axes.index(axis))
    placed = [call.attrs["out"] if a == axis else a for a in axes]
    where = np.moveaxis(chosen, -1, axes.index(axis))
    return align(found, placed, call.results[0].axes).astype(call.dtype.np), align(where, placed, call.results[1].axes).astype(np.int32)


top_k_record: OpDef = op(
    "top_k",
    "The k largest (or smallest) elements along an axis, sorted, and their indices; of equal ones the first; NaN last, or the largest.",
    type=_top_k_type,
    reference=_top_k_reference,
    lower=_top_k_lower,
    grad=_top_k_grad,
    samples=lambda s: [
        top_k_record.build(x, axis=axis, out=axis.resized(k), largest=largest, nan_largest=nan_largest)
        for largest, nan_largest in ((True, False), (False, False), (True, True))
        for x, axis, k in (
            (s.x(s.I, s.J), s.J, 2),
            (s.x(s.J, s.I), s.J, 4),
            (s.x(s.N), s.N, 1),
            (s.x(s.N, s.I), s.N, 0),
            (s.x(s.O, s.J), s.O, 1),
            (s.x(s.Z, s.J), s.J, 3),
            (s.x(s.I, s.I - 1), s.I - 1, 2),
            (s.special(s.N, s.I), s.N, 4),
        )
    ],
    kinds=ALL,
    onnx="TopK",
    torch="aten.topk",
)


def top_k(x: Any, axis: Axis | str, k: int | Axis | str, largest: bool = True, nan_largest: bool = False) -> tuple[Op, Op]:
    """Returns (values, indices) of the `k` largest, or smallest, elements along `axis`, sorted; the first of equal ones. NaN is last.

    k: their number, and then the axis keeps its name; or an axis of that length for the results. Indices are int32. The derivative goes
    to the chosen elements. nan_largest: NaN counts as larger than all numbers, as in PyTorch. Raises AxisError where k exceeds the
    length; an unknown length is not checked: results beyond it are zeros.

    >>> values, places = ng.top_k(ng.constant([3, 9, 7], "H=3"), "H", 2)
    >>> ng.function([values, places])()
    [ComputedArray([9, 7]), ComputedArray([1, 2], dtype=int32)]
    """
    x = as_op(x)
    mine, k = find_axis(x, axis, "top_k"), as_axis(k)
    number = k.length if isinstance(k, Axis) else int(k)
    if number is None or number < 0 or (mine.length is not None and number > mine.length):
        raise AxisError(
            f"top_k({x.label}): {k!r} elements are requested along {mine!r}",
            details=(show_input(x),),
            fix=f"ask for at most {mine.length}" if mine.length is not None else "ask for 0 or more",
        )
    out = k if isinstance(k, Axis) else mine.resized(number)
    if out in x.axes and out != mine:
        raise AxisError(f"top_k({x.label}): {out!r} is an axis of {x.label} already", details=(show_input(x),), fix="take another name")
    values, indices = parts(top_k_record.build(x, axis=mine, out=out, largest=bool(largest), nan_largest=bool(nan_largest)))
    return values, indices


def nonzero(x: Any, name: str | None = None) -> tuple[Op, ...]:
    """Returns the positions where `x` is not 0: one int32 index for each axis of x, in row-major order.

    They lie along one new axis, called `name`, whose length the computation determines. NaN is not 0.
    Raises AxisError for a tensor without axes.

    >>> [op.axes for op in ng.nonzero(ng.placeholder("H=3 W=4"), "K")]
    [Axes(K=?), Axes(K=?)]
    """
    x = as_op(x)
    if not x.axes:
        raise AxisError(f"nonzero({x.label}) of a tensor without axes", details=(show_input(x),), fix="compare it with 0")
    flat, _ = compact(x if x.dtype.kind == "bool" else not_equal(x, 0), name=name)
    found = []
    for k, a in enumerate(x.axes):
        rest = x.axes[k + 1 :]
        position = floordivide(flat, count(rest, dtypes.int32)) if rest else flat
        found.append(cast(mod(position, count((a,), dtypes.int32)) if k else position, dtypes.int32))
    return tuple(found)

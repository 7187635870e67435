"""What several translators need of tensors: a stretch of a dim, positions along it, rows of a table, functions of broadcast values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ngraph.frontends.onnx.shapes import index_along
from ngraph.frontends.positional.values import Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.expr import Idx
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.indexing import gather
from ngraph.ops.rearrange import iota


def part(g: Any, t: Tensor, dim: int, start: Any, length: Any) -> Tensor:
    """`length` elements along a dim, from `start` on."""
    dim %= t.rank
    axis = t.dims[dim]
    if axis is None:
        return t
    own = g.resized(axis, length)
    return g.read(t, [own if k == dim else d for k, d in enumerate(t.dims)], {axis: Idx(own) + start})


def place(t: Tensor, dim: int) -> Tensor:
    """The position along a dim, as int32, shaped to meet the tensor."""
    dim %= t.rank
    axis = t.dims[dim]
    if axis is None:
        return Tensor(e.filled(0, (), dtypes.int32), ())
    return Tensor(iota(axis), [None] * dim + [axis] + [None] * (t.rank - 1 - dim))


def each(g: Any, function: Callable[..., Op], *values: Value) -> Tensor:
    """A function of ops, element by element, of values that are broadcast."""
    ops, dims = g.align(*values)
    return g.made(function(*ops), dims)


def rows(g: Any, table: Tensor, at: Tensor, what: str = "") -> Tensor:
    """The rows of a matrix at these indices, from the end where negative. With `what` dim they are along, all outside it are refused."""
    t = g.apart(g.full(table, [0]), at.dims)
    axis = t.dims[0]
    if what:
        index = index_along(g, at.op, None, axis, what, negative=False)
        return g.made(gather.build(t.op, index, axes=(axis,), mode="clip"), [*at.dims, *t.dims[1:]])
    index = e.where(e.less(at.op, 0), at.op + e.constant_record.build(value=axis.size, axes=(), dtype=at.op.dtype), at.op)
    return g.made(gather.build(t.op, index, axes=(axis,), mode="clip"), [*at.dims, *t.dims[1:]])

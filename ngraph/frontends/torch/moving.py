"""Translators of ops that move elements, and of those that make tensors of numbers and lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ngraph.frontends.positional import shapes
from ngraph.frontends.positional.elementwise import alone
from ngraph.frontends.positional.indexing import gathered
from ngraph.frontends.positional.values import Tensor
from ngraph.frontends.torch.graph import TorchNode, memory_order
from ngraph.frontends.torch.table import translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.expr import Expr, ExprLike, Idx
from ngraph.ops import elementwise as e
from ngraph.ops.indexing import scatter
from ngraph.ops.rearrange import iota, product

# ---- other shapes -------------------------------------------------------------------------------------------------------


@translates("aten.view.default", "aten._unsafe_view", "aten.reshape")
def view(n: TorchNode, a: Tensor, size: Any) -> Tensor:
    return n.g.reshape(a, n.shape)


@translates("aten.permute")
def permute(n: TorchNode, a: Tensor, dims: Sequence[int]) -> Tensor:
    return shapes.permuted(a, *[k % a.rank for k in dims])


@translates("aten.transpose")
def transpose(n: TorchNode, a: Tensor, j: int, k: int) -> Tensor:
    order = list(range(a.rank))
    if order:
        order[j], order[k] = order[k], order[j]
    return shapes.permuted(a, *order)


@translates("aten.t", "aten.numpy_T")
def turned(n: TorchNode, a: Tensor) -> Tensor:
    return shapes.permuted(a, *reversed(range(a.rank)))


@translates("aten.expand")
def expand(n: TorchNode, a: Tensor, size: Any, implicit: bool = False) -> Tensor:
    return n.g.expanded(a, n.shape)


@translates("aten.unsqueeze")
def unsqueeze(n: TorchNode, a: Tensor, dim: int) -> Tensor:
    return shapes.unsqueezed(a, [dim % (a.rank + 1)])


@translates("aten.squeeze")
def squeeze(n: TorchNode, a: Tensor, dim: Any = None) -> Tensor:
    given = range(a.rank) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    dims = [k % a.rank for k in given] if a.rank else []
    return shapes.squeezed(n.g, a, [k for k in dims if n.g.same(a.shape[k], 1)])


@translates("aten.repeat")
def repeat(n: TorchNode, a: Tensor, repeats: Sequence[Any]) -> Tensor:
    wide = Tensor(a.op, [None] * (len(repeats) - a.rank) + list(a.dims))
    return shapes.tiled(n.g, wide, repeats)


@translates("aten.flip")
def flip(n: TorchNode, a: Tensor, dims: Sequence[int]) -> Tensor:
    return shapes.flipped(n.g, a, [k % a.rank for k in dims if a.rank])


@translates("aten.roll")
def roll(n: TorchNode, a: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    if not dims:
        shape = list(a.shape)
        flat = n.g.reshape(a, [product(shape)])
        return n.g.reshape(roll(n, flat, shifts, [0]), shape)
    return shapes.rolled(n.g, a, shifts, [k % a.rank for k in dims])


# ---- parts --------------------------------------------------------------------------------------------------------------


@translates("aten.slice.Tensor")
def slice_(n: TorchNode, a: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Tensor:
    first = first_of(n, a, dim, start)
    return shapes.sliced(n.g, a, dim % a.rank, first, n.g.number(step), n.shape[dim % a.rank])


def first_of(n: TorchNode, a: Tensor, dim: int, start: Any) -> ExprLike:
    """Returns the first index of a slice."""
    size = a.shape[dim % a.rank]
    if start is None:
        return 0
    if n.g.truth("lt", start, 0):
        start = start + size
    if n.g.truth("lt", start, 0):
        return 0
    return size if n.g.truth("lt", size, start) else start


@translates("aten.select.int")
def select(n: TorchNode, a: Tensor, dim: int, index: Any) -> Tensor:
    if isinstance(index, Tensor):  # a number that is computed, in the body of a loop
        found = gathered(n.g, a, Tensor(index.op, [None]), dim % a.rank, "the tensor")
        return shapes.at(n.g, found, dim % a.rank, 0)
    size = a.shape[dim % a.rank]
    if n.g.truth("lt", index, 0):
        index = index + size
    return shapes.at(n.g, a, dim % a.rank, index)


@translates("aten.narrow")
def narrow(n: TorchNode, a: Tensor, dim: int, start: Any, length: Any) -> Tensor:
    return shapes.sliced(n.g, a, dim % a.rank, start, 1, length)


@translates("aten.split_with_sizes")
def split_with_sizes(n: TorchNode, a: Tensor, sizes: Sequence[Any], dim: int = 0) -> tuple[Tensor, ...]:
    return tuple(shapes.split(n.g, a, dim % a.rank, sizes))


@translates("aten.split.Tensor")
def split(n: TorchNode, a: Tensor, size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    k = dim % a.rank
    return tuple(shapes.split(n.g, a, k, [n.shape_of(j)[k] for j in range(len(n.val))]))


@translates("aten.unbind.int")
def unbind(n: TorchNode, a: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    return tuple([shapes.at(n.g, a, dim % a.rank, k) for k in range(len(n.val))])


@translates("aten.diagonal")
def diagonal(n: TorchNode, a: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    return shapes.diagonal(n.g, a, offset, dim1, dim2, n.shape[-1])


@translates("aten.unfold")
def unfold(n: TorchNode, a: Tensor, dim: int, size: int, step: int) -> Tensor:
    if not a.rank:
        return Tensor(a.op, [None])
    k = dim % a.rank
    t = n.g.full(a, [k])
    outer, inner = n.g.fresh(n.shape[k]), n.g.fresh(size)
    dims = [outer if j == k else d for j, d in enumerate(t.dims)]
    return n.g.read(t, [*dims, inner], {t.dims[k]: Idx(outer) * step + Idx(inner)})


def flat_of(n: TorchNode, a: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """The elements of a tensor as they lie in memory, and the order of its dims there.

    Raises UnsupportedError where they do not lie one behind the other.
    """
    source = n.node.args[0].meta["val"]
    order = memory_order(source)
    whole = source.untyped_storage().nbytes() == source.numel() * source.dtype.itemsize
    first = source.storage_offset()
    if not whole or not source.permute(order).is_contiguous() or not isinstance(first, int) or first:
        raise n.lack("as_strided of a tensor with gaps in memory, or of a part of another")
    return n.g.full(n.g.reshape(shapes.permuted(a, *order), [product(a.shape)])), order


def within(n: TorchNode, flat: Tensor, size: Sequence[Any], stride: Sequence[Any], offset: Any) -> None:
    """Raises UnsupportedError where these dims reach beyond the memory of a tensor: that is torch's error."""
    if any(n.g.same(s, 0) for s in size):
        return
    last = 0 if offset is None else offset
    for length, by in zip(size, stride, strict=True):
        last = last + (length - 1) * by
    if not n.g.truth("lt", last, flat.shape[0]):
        raise n.lack("as_strided beyond the memory of a tensor")


@translates("aten.as_strided")
def as_strided(n: TorchNode, a: Tensor, size: Sequence[Any], stride: Sequence[Any], offset: Any = None) -> Tensor:
    flat, _ = flat_of(n, a)
    within(n, flat, size, stride, offset)
    axes = [n.g.fresh(s) for s in n.shape]
    at: ExprLike = 0 if offset is None else offset
    for axis, by in zip(axes, stride, strict=True):
        at = at + Idx(axis) * by
    if isinstance(at, int):
        return shapes.at(n.g, flat, 0, at)
    return n.g.read(flat, axes, {flat.dims[0]: at})


@translates("aten.as_strided_scatter")
def as_strided_scatter(n: TorchNode, a: Tensor, source: Tensor, size: Sequence[Any], stride: Sequence[Any], offset: Any = None) -> Tensor:
    flat, order = flat_of(n, a)
    within(n, flat, size, stride, offset)
    u = n.g.full(n.of(source, a.dtype))
    at = shapes.size_op(0 if offset is None else offset)
    for axis, by in zip(u.dims, stride, strict=True):
        at = at + iota(axis, dtypes.int64) * shapes.size_op(by)
    made = scatter.build(flat.op, at, u.op, axes=flat.dims, combine="set", mode="clip")
    laid = n.g.reshape(Tensor(made, flat.dims), [n.shape[k] for k in order])
    return shapes.permuted(laid, *[order.index(k) for k in range(len(order))])


@translates("aten.cat")
def cat(n: TorchNode, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    rank = len(n.shape)
    ts = [n.give(t) for t in tensors if t.rank == rank and not (rank == 1 and t.shape[0] == 0)]
    return shapes.joined(n.g, ts, dim % rank) if ts else n.give(tensors[0])


@translates("aten.stack")
def stack(n: TorchNode, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    made: Tensor = shapes.stacked(n.g, [n.give(t) for t in tensors], dim % len(n.shape))
    return made


@translates("aten.constant_pad_nd")
def pad(n: TorchNode, a: Tensor, sizes: Sequence[Any], value: Any = 0) -> Tensor:
    number = n.dtype.np.type(n.g.number(value) if isinstance(value, Expr) else value).item()
    for j in range(len(sizes) // 2):
        before, after = sizes[2 * j], sizes[2 * j + 1]
        if before == 0 and after == 0:
            continue
        a = shapes.padded(n.g, a, a.rank - 1 - j, before, after, pad_value=number)
    return a


def put(n: TorchNode, a: Tensor, source: Tensor, dim: int, first: ExprLike, step: int) -> Tensor:
    """A tensor with another in place of every step-th element along a dim."""
    k = dim % a.rank
    t = n.g.full(a)
    u = n.g.apart(n.g.full(n.of(source, a.dtype)), t.dims)
    d, s = t.dims[k], u.dims[k]
    if n.g.same(s.size, 0):
        return a
    u = n.g.renamed(u, [x if j == k else d for j, (d, x) in enumerate(zip(t.dims, u.dims, strict=True))])
    inside = n.g.read(u, t.dims, {u.dims[k]: (Idx(d) - first) // step})
    at = iota(d, dtypes.int64)
    begins = shapes.size_op(first)
    within = e.logical_and(e.less_equal(begins, at), e.less(at, begins + shapes.size_op(s.size * step)))
    if step != 1:
        within = e.logical_and(within, e.equal(e.remainder.build(at - begins, shapes.size_op(step)), 0))
    kept = n.g.full(inside) if any(x is None for x in inside.dims) else inside
    kept = n.g.renamed(kept, t.dims)
    return n.g.made(e.where(within, kept.op, t.op), t.dims)


@translates("aten.slice_scatter")
def slice_scatter(n: TorchNode, a: Tensor, source: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Tensor:
    return put(n, a, source, dim, first_of(n, a, dim, start), n.g.number(step))


@translates("aten.select_scatter")
def select_scatter(n: TorchNode, a: Tensor, source: Tensor, dim: int, index: Any) -> Tensor:
    k = dim % a.rank
    if n.g.truth("lt", index, 0):
        index = index + a.shape[k]
    return put(n, a, Tensor(source.op, [*source.dims[:k], None, *source.dims[k:]]), dim, index, 1)


@translates("aten.diagonal_scatter")
def diagonal_scatter(n: TorchNode, a: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A tensor with another in place of a diagonal of two of its dims."""
    j, k = dim1 % a.rank, dim2 % a.rank
    t = n.g.full(a)
    u = n.g.apart(n.g.full(n.of(source, a.dtype)), t.dims)
    rows, columns = t.dims[j], t.dims[k]
    if n.g.same(u.shape[-1], 0):
        return t
    first = min(offset, 0) * -1
    u = n.g.renamed(u, [*[d for i, d in enumerate(t.dims) if i not in (j, k)], u.dims[-1]])
    wide = n.g.full(n.g.read(u, [*u.dims[:-1], rows], {u.dims[-1]: Idx(rows) - first}))
    wide = n.g.renamed(wide, [*u.dims[:-1], rows])
    on = e.equal(iota(rows, dtypes.int64) + offset, iota(columns, dtypes.int64))
    return n.g.made(e.where(on, wide.op, t.op), t.dims)


# ---- made of numbers ----------------------------------------------------------------------------------------------------


def full_of(n: TorchNode, value: Any) -> Tensor:
    """A tensor of the result's shape with one number everywhere."""
    return n.g.expanded(n.of(value, n.dtype), n.shape)


@translates("aten.full", "aten.new_full")
def full(n: TorchNode, *args: Any, **named: Any) -> Tensor:
    return full_of(n, named.get("fill_value", args[-1] if args else 0))


@translates("aten.full_like")
def full_like(n: TorchNode, a: Any, value: Any, **named: Any) -> Tensor:
    return full_of(n, value)


@translates("aten.fill")
def fill(n: TorchNode, a: Any, value: Any) -> Tensor:
    return full_of(n, value)


@translates(
    "aten.zeros", "aten.zeros_like", "aten.new_zeros", "aten.zero", "aten._efficientzerotensor", "aten._new_zeros_with_same_feature_meta"
)
def zeros(n: TorchNode, *args: Any, **named: Any) -> Tensor:
    return full_of(n, False if n.dtype.kind == "bool" else 0)


@translates("aten.empty", "aten.empty_like", "aten.new_empty", "aten.empty_strided", "aten.empty_permuted", "aten.new_empty_strided")
def empty(n: TorchNode, *args: Any, **named: Any) -> Tensor:
    return full_of(n, False if n.dtype.kind == "bool" else 0)  # any values do


@translates("aten.ones", "aten.ones_like", "aten.new_ones")
def ones(n: TorchNode, *args: Any, **named: Any) -> Tensor:
    return full_of(n, True if n.dtype.kind == "bool" else 1)


@translates("aten.scalar_tensor")
def scalar_tensor(n: TorchNode, value: Any, **named: Any) -> Tensor:
    return n.of(value, n.dtype)


@translates("aten.arange.start_step")
def arange(n: TorchNode, start: Any, end: Any, step: Any = 1, **named: Any) -> Tensor:
    return counted(n, start, step)


@translates("aten.arange.start")
def arange_from(n: TorchNode, start: Any, end: Any, **named: Any) -> Tensor:
    return counted(n, start, 1)


@translates("aten.arange.default")
def arange_to(n: TorchNode, end: Any, **named: Any) -> Tensor:
    return counted(n, 0, 1)


def counted(n: TorchNode, start: Any, step: Any) -> Tensor:
    """Numbers from start on by step; floats by one product and one sum each."""
    axis = n.g.fresh(n.shape[0])
    wide = n.dtype if n.dtype in (dtypes.int64, dtypes.float64) else dtypes.float64 if n.dtype.is_float else dtypes.int64
    place = iota(axis, dtypes.int64)
    made = e.cast(place, wide)
    if isinstance(step, Expr) or step != 1:
        made = made * n.of(step, wide).op
    if isinstance(start, Expr) or start != 0:
        made = made + n.of(start, wide).op
    return n.g.made(e.cast(made, n.dtype), [axis])


@translates("prims.iota")
def prims_iota(n: TorchNode, length: Any, start: Any = 0, step: Any = 1, **named: Any) -> Tensor:
    return counted(n, start, step)


@translates("aten.eye")
def eye(n: TorchNode, *args: Any, **named: Any) -> Tensor:
    return shapes.eye(n.g, n.shape, 0, n.dtype)


def triangle(n: TorchNode, a: Tensor, offset: int, upper: bool) -> Tensor:
    """Matrices with zeros on one side of a diagonal."""
    if a.dtype.kind == "bool":
        made = shapes.triangle(n.g, n.of(a, dtypes.uint8), offset, upper)
        return alone(n.g, lambda x: e.not_equal(x, 0), made)
    return shapes.triangle(n.g, a, offset, upper)


@translates("aten.tril")
def tril(n: TorchNode, a: Tensor, diagonal: int = 0) -> Tensor:
    return triangle(n, a, -diagonal, False)


@translates("aten.triu")
def triu(n: TorchNode, a: Tensor, diagonal: int = 0) -> Tensor:
    return triangle(n, a, diagonal, True)

"""Gathers and scatters, and what is found by its value. `name` is what errors call the tensor; `negative` says whether indices below 0
count from the end, or are out of bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph.errors import BoundsError, GraphError, NgraphError
from ngraph.frontends.positional.shapes import joined, size_op
from ngraph.frontends.positional.values import ConstantArray, Sizes, Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axis
from ngraph.op_graph.expr import Expr, ExprLike
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.indexing import bounded
from ngraph.ops.indexing import gather as gather_op
from ngraph.ops.indexing import scatter as scatter_op
from ngraph.ops.rearrange import broadcast, iota
from ngraph.ops.selection import nonzero as nonzero_op
from ngraph.ops.selection import top_k_record
from ngraph.ops.state import parts


def index_along(g: Any, i: Op, known: Any, axis: Axis, what: str, negative: bool = True) -> Op:
    """The index `i` of an axis, which stands for `what`, counted from its start; one out of bounds is refused, or clamped by who reads.

    known: the index's array, where it is known. negative: whether those below 0 count from the end.
    Raises BoundsError for a known one.
    """
    size = axis.size
    if known is not None and isinstance(size, int) and g.indices == "raise":
        outside = (known < (-size if negative else 0)) | (known >= size)
        if not outside.any():
            return i if (known >= 0).all() else e.where(e.less(i, 0), i + size, i)
        if not g.bodies:  # a branch may never be taken
            raise out_of_bounds(g, known[outside][0], size, what, negative)
    if g.indices == "raise":
        return bounded(i, axis, what, negative, g.clamped)
    i = e.cast(i, dtypes.int64)
    return e.where(e.less(i, 0), i + size_op(axis.size), i) if negative else i


def out_of_bounds(g: Any, index: Any, size: int, what: str, negative: bool = True) -> NgraphError:
    """The error for an index that is known when the graph is read."""
    return BoundsError.of(f"index {index} is out of bounds of {what}, which has length {size}", size, negative, "", 0, g.clamped)


def dim_named(k: int, name: str) -> str:
    """A dim in an error's words."""
    return f"dim {k} of {name}"


def known_array(v: Value) -> Any:
    """The array of a value that is known; None of others."""
    return v.array if isinstance(v, ConstantArray) else None


def gathered(g: Any, t: Tensor, indices: Value, k: int, name: str, negative: bool = True) -> Tensor:
    """The tensor at indices of dim k, in whose place the dims of the indices stand."""
    one = None
    if isinstance(indices, (ConstantArray, Sizes)) and indices.array.size == 1:
        one = indices.array.ravel()[0]
        one = counted_from_start(g, one if isinstance(one, Expr) else int(one), t, k, name, negative)
    if one is not None:
        d = t.dims[k]
        if d is not None:
            t = g.read(t, [None if j == k else a for j, a in enumerate(t.dims)], {d: one})
        return Tensor(t.op, [*t.dims[:k], *[None] * indices.rank, *t.dims[k + 1 :]])
    t = g.full(t, [k])
    i = g.apart(g.tensor(indices), t.dims)
    index = index_along(g, i.op, known_array(indices), t.dims[k], dim_named(k, name), negative)
    return g.made(gather_op(t.op, index, axes=(t.dims[k],), mode="clip"), [*t.dims[:k], *i.dims, *t.dims[k + 1 :]])


def counted_from_start(g: Any, i: ExprLike, t: Tensor, k: int, name: str, negative: bool) -> ExprLike | None:
    """The one index of dim k from its start; None where it is to be looked at, or clamped, when the call comes to it."""
    size, given = t.shape[k], i
    if negative and g.truth("lt", i, 0):
        i = i + size
    if not g.truth("lt", i, 0) and g.truth("lt", i, size):
        return i
    if g.bodies or g.indices != "raise":
        return None
    raise out_of_bounds(g, g.hint(i) - g.hint(size) * (i is not given), g.hint(size), dim_named(k, name), negative)


def _beside(g: Any, t: Tensor, i: Tensor, k: int) -> tuple[Tensor, Tensor, list[tuple[Axis, Op]]]:
    """A tensor and indices for single elements of it, with axes for all dims; i has t's axes where they are as long, but for dim k;
    for the others an index of their own."""
    if t.rank != i.rank:
        raise GraphError(f"an index of {i.rank} dims for {t.rank}")
    t, i = g.full(t), g.apart(g.full(i), t.dims)
    own = []
    names = list(i.dims)
    for j, (a, b) in enumerate(zip(t.dims, i.dims, strict=True)):
        if j == k:
            continue
        if g.same(a.size, b.size):
            names[j] = a
        elif g.truth("lt", a.size, b.size):
            raise GraphError(f"dim {j} of the index has length {g.hint(b.size)}, and that of what it reads or writes {g.hint(a.size)}")
        else:
            own.append((a, b))
    i = g.renamed(i, names)
    return t, i, [(a, iota(b, dtypes.int64)) for a, b in own]


def gathered_elements(g: Any, t: Tensor, indices: Value, k: int, name: str, negative: bool = True) -> Tensor:
    """At each place of the indices the element of t there, but for dim k, where the index says."""
    t, i, own = _beside(g, t, g.tensor(indices), k)
    index = index_along(g, i.op, known_array(indices), t.dims[k], dim_named(k, name), negative)
    op = gather_op(t.op, index, *(o for _, o in own), axes=(t.dims[k], *(a for a, _ in own)), mode="clip")
    return g.made(op, i.dims)


def scattered_elements(g: Any, t: Tensor, indices: Value, updates: Value, k: int, combine: str, name: str, negative: bool = True) -> Tensor:
    """t with updates where `gathered_elements` would read; combine: `set`, `add`, `multiply`, `min` or `max`."""
    t, i, own = _beside(g, t, g.tensor(indices), k)
    u = _updates(g, g.tensor(updates), i.dims)
    index = index_along(g, i.op, known_array(indices), t.dims[k], dim_named(k, name), negative)
    axes = (t.dims[k], *(a for a, _ in own))
    return g.made(scatter_op.build(t.op, index, *(o for _, o in own), u.op, axes=axes, combine=combine, mode="clip"), t.dims)


def _updates(g: Any, u: Tensor, dims: Sequence[Any]) -> Tensor:
    """The updates of a scatter, along these dims. Raises GraphError where they have another shape."""
    u = g.full(u)
    if u.rank != len(dims) or not all(g.same(a.size, b.size) for a, b in zip(u.dims, dims, strict=True)):
        raise GraphError(f"updates of the shape {g.show(u)} where {[g.hint(d.size) for d in dims]} is written")
    return g.renamed(u, dims)


def _columns(g: Any, i: Tensor) -> list[Tensor]:
    """The slices of an index tensor along its last dim."""
    count = g.number(i.shape[-1])
    last = i.dims[-1]
    if last is None:
        return [Tensor(i.op, i.dims[:-1])]
    found = []
    for k in range(count):
        read = g.read(i, [*i.dims[:-1], None], {last: k})
        found.append(Tensor(read.op, read.dims[:-1]))
    return found


def _each_along(g: Any, columns: Sequence[Tensor], indices: Value, t: Tensor, name: str, first: int = 0) -> list[Op]:
    """The columns of indices as indices of the dims of `t` from `first` on."""
    if first + len(columns) > t.rank:
        raise GraphError(f"indices of {len(columns)} dims for {t.rank - first}")
    known = known_array(indices)
    return [
        index_along(g, c.op, None if known is None else known[..., q], t.dims[first + q], dim_named(first + q, name))
        for q, c in enumerate(columns)
    ]


def gathered_slices(g: Any, x: Value, indices: Value, b: int, name: str) -> Tensor:
    """For each row of indices the slice of x there: the last dim of the indices runs over the first dims of x, after b that both have."""
    i = g.tensor(indices)
    t = g.full(g.tensor(x))
    if b >= min(t.rank, i.rank) or not all(g.same(p, q) for p, q in zip(t.shape[:b], i.shape[:b], strict=True)):
        raise GraphError(f"the first {b} dims of {g.show(t)} and {g.show(i)} are not alike")
    i = g.apart(i, t.dims)
    full = g.full(i, range(b))
    i = g.renamed(full, [*t.dims[:b], *full.dims[b:]])
    columns = _columns(g, i)
    if not columns:
        raise GraphError("the last dim of the indices has length 0")
    ops = _each_along(g, columns, indices, t, name, b)
    op = gather_op(t.op, *ops, axes=tuple(t.dims[b : b + len(columns)]), mode="clip")
    return g.made(op, [*i.dims[:-1], *t.dims[b + len(columns) :]])


def scattered_slices(g: Any, x: Value, indices: Value, updates: Value, combine: str, name: str) -> Tensor:
    """x with updates where `gathered_slices` would read."""
    t = g.full(g.tensor(x))
    i = g.apart(g.full(g.tensor(indices), range(indices.rank - 1)), t.dims)
    columns = _columns(g, i)
    q = len(columns)
    u = _updates(g, g.tensor(updates), [*i.dims[:-1], *t.dims[q:]])
    if not q:
        return u
    ops = [broadcast(o, i.dims[:-1]) for o in _each_along(g, columns, indices, t, name)]
    op = scatter_op.build(t.op, *ops, u.op, axes=tuple(t.dims[:q]), combine=combine, mode="clip")
    return g.made(op, t.dims)


def scattered_rows(g: Any, x: Value, rows: Value, updates: Value, combine: str, name: str) -> Tensor:
    """x with updates in the rows of these numbers."""
    i = g.tensor(rows)
    return scattered_slices(g, x, Tensor(i.op, [*i.dims, None]), updates, combine, name)


def written_at(g: Any, past: Value, update: Value, places: Value, k: int, wrap: bool, name: str) -> Tensor:
    """Updates written into a cache at each batch's own place along dim k, 0 by default."""
    t = g.full(g.tensor(past))
    u = g.full(g.tensor(update))
    new = g.fresh(u.shape[k])
    u = g.renamed(u, [new if j == k else d for j, d in enumerate(t.dims)])
    index = iota(new, dtypes.int64)
    if places is not None:
        at = g.tensor(places)
        at = g.renamed(g.full(at), [t.dims[0]])
        index = index + e.cast(at.op, dtypes.int64)
    if not wrap:
        index = index_along(g, index, None, t.dims[k], dim_named(k, name), negative=False)
    op = scatter_op.build(t.op, index, u.op, axes=(t.dims[k],), combine="set", mode="wrap" if wrap else "clip")
    return g.made(op, t.dims)


def reversed_parts(g: Any, x: Value, lengths: Value, b: int, k: int, name: str) -> Tensor:
    """The first elements along dim k turned round, as many as `lengths` says for each index of dim b."""
    t = g.full(g.tensor(x), [b, k])
    many = g.renamed(g.full(g.tensor(lengths)), [t.dims[b]]).op
    place = iota(t.dims[k], dtypes.int64)
    many = e.cast(many, dtypes.int64)
    turned = e.where(e.less(place, e.absolute(many)), many - 1 - place, place)  # outside for lengths below 0 and above that of the dim
    index = index_along(g, turned, None, t.dims[k], dim_named(k, name), negative=False)
    return g.made(gather_op(t.op, index, axes=(t.dims[k],), mode="clip"), t.dims)


def top_k(g: Any, t: Tensor, k: int, count: ExprLike, largest: bool, nan_largest: bool = False) -> tuple[Tensor, Tensor]:
    """The largest or smallest along dim k in order, and where they stand; NaN is last, or the largest."""
    t = g.full(t, [k])
    d = t.dims[k]
    out = g.resized(d, count)
    if g.truth("lt", d.size, out.size):
        raise GraphError(f"there are no {count} along dim {k} of {g.show(t)}")
    values, places = parts(top_k_record.build(t.op, axis=d, out=out, largest=largest, nan_largest=nan_largest))
    dims = [out if j == k else a for j, a in enumerate(t.dims)]
    return g.made(values, dims), g.made(e.cast(places, dtypes.int64), dims)


def place(t: Tensor, dim: int) -> Tensor:
    """The position along a dim, as int32, shaped to meet the tensor."""
    dim %= t.rank
    axis = t.dims[dim]
    if axis is None:
        return Tensor(e.filled(0, (), dtypes.int32), ())
    return Tensor(iota(axis), [None] * dim + [axis] + [None] * (t.rank - 1 - dim))


def rows(g: Any, table: Tensor, at: Tensor, what: str = "") -> Tensor:
    """The rows of a matrix at these indices, from the end where negative. With `what` dim they are along, all outside it are refused."""
    t = g.apart(g.full(table, [0]), at.dims)
    axis = t.dims[0]
    if what:
        index = index_along(g, at.op, None, axis, what, negative=False)
        return g.made(gather_op.build(t.op, index, axes=(axis,), mode="clip"), [*at.dims, *t.dims[1:]])
    index = e.where(e.less(at.op, 0), at.op + e.constant_record.build(value=axis.size, axes=(), dtype=at.op.dtype), at.op)
    return g.made(gather_op.build(t.op, index, axes=(axis,), mode="clip"), [*at.dims, *t.dims[1:]])


# ---- what is found by its value -----------------------------------------------------------------------------------------


def positions(g: Any, t: Tensor) -> tuple[list[Op], Axis]:
    """For each dim the index where the tensor is not 0, along one new axis."""
    whole = g.full(t)
    found = nonzero_op(broadcast(whole.op, whole.dims))
    return list(found), found[0].axes[0]


def nonzero(g: Any, t: Tensor) -> Tensor:
    """Returns the positions where a tensor is not 0: a row for each dim."""
    rank = t.rank
    if not rank:
        t = Tensor(t.op, [None])
    found, axis = positions(g, t)
    rows = [Tensor(e.cast(f, dtypes.int64), [None, axis]) for f in found]
    made = joined(g, rows, 0)
    if g.unknown(axis):
        g.cut([made])
    return made if rank else Tensor(made.op, made.dims)


def compressed(g: Any, t: Tensor, condition: Value, k: int) -> Tensor:
    """Along dim k what stands where a condition holds. Raises GraphError for one that is longer than the dim."""
    t, (size,) = g.full(t, [k]), condition.shape
    if g.follows(size) and g.follows(t.shape[k]) and not g.truth("le", size, t.shape[k]):
        raise GraphError(f"the condition has length {g.hint(size)}, and dim {k} of {g.show(t)} {g.hint(t.shape[k])}")
    if isinstance(condition, ConstantArray):
        index: Value = ConstantArray(np.flatnonzero(condition.array))
    else:
        (place,), axis = positions(g, g.tensor(condition))
        index = Tensor(e.cast(place, dtypes.int64), [axis])
        g.cut([index])
    i = g.apart(g.tensor(index), t.dims)
    return g.made(gather_op(t.op, i.op, axes=(t.dims[k],), mode="clip"), [*t.dims[:k], *i.dims, *t.dims[k + 1 :]])


def unique(a: Any, axis: int | None, in_order: bool) -> tuple[Any, ...]:
    """Returns an array's distinct elements, sorted or by first occurrence; their first positions, the inverse indices, and the counts."""
    y, first, inverse, counts = np.unique(a, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    inverse = inverse.reshape(-1)
    if not in_order:
        order = np.argsort(first, kind="stable")
        rank = np.argsort(order, kind="stable")
        y = np.take(y, order, axis=0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], rank[inverse]
    return y, first, inverse, counts

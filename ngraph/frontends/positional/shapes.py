"""Ops that move elements: other shapes, slices, joins, paddings, blocks; and tensors that are made of sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ngraph.errors import AxisError, GraphError
from ngraph.frontends.positional.folding import is_text, of_text
from ngraph.frontends.positional.trace import factors
from ngraph.frontends.positional.values import ConstantArray, Sizes, Tensor, Value, check_room, settled
from ngraph.op_graph import dtypes, expr
from ngraph.op_graph.axes import Axes, Axis
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.expr import Expr, ExprLike, Idx
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops import moving
from ngraph.ops.rearrange import broadcast, concat, iota, product, slice_range

TO_THE_END = 1 << 31  # what exporters write for "to the end"
LARGEST_KNOWN_RANGE = 4096  # numbers of a range that are made while the graph is read, so that shapes may be made of them

# ---- shapes -------------------------------------------------------------------------------------------------------------


def size_op(size: ExprLike, dtype: Any = dtypes.int64) -> Op:
    """A length as a scalar."""
    return e.constant_record.build(value=size if isinstance(size, Expr) else int(size), axes=Axes(), dtype=dtype)


def check_dims(g: Any, t: Tensor, what: str, *names: str) -> None:
    """Raises GraphError where the tensor has more or fewer dims than these."""
    if t.rank != len(names):
        raise GraphError(f"{what} has {t.rank} dims, {g.show(t)}, and takes {len(names)}: {', '.join(names)}")


def check_sizes(g: Any, v: Value, what: str, *sizes: ExprLike) -> None:
    """Raises GraphError where a value has another shape than these lengths."""
    if v.rank != len(sizes) or not all(g.same(a, b) for a, b in zip(v.shape, sizes, strict=True)):
        raise GraphError(f"{what} is {g.show(v)}, and takes [{', '.join([str(g.hint(s)) for s in sizes])}]")


def permuted(t: Tensor, *order: int | None) -> Tensor:
    """The dims in another order, which moves nothing: where each of the result comes from, None for a new one of length 1."""
    return Tensor(t.op, [None if k is None else t.dims[k] for k in order])


def turned(t: Tensor) -> Tensor:
    """A matrix transposed."""
    return Tensor(t.op, [*t.dims[:-2], t.dims[-1], t.dims[-2]])


def without(t: Tensor, gone: int) -> Tensor:
    """The tensor less a dim that has no axis."""
    return Tensor(t.op, [d for k, d in enumerate(t.dims) if k != gone])


def shape_of(v: Value, start: int = 0, end: int | None = None, dtype: Any = np.int64) -> ConstantArray | Sizes:
    """The lengths of a value's dims, from one to another."""
    return settled(v.shape[start:end], dtype)


def resolved(old: Sequence[ExprLike], wanted: Sequence[ExprLike], keep: bool = True) -> list[ExprLike]:
    """A shape in which -1 means what is left and, where `keep` is set, 0 the old length."""
    sizes = [old[k] if isinstance(s, int) and s == 0 and keep else s for k, s in enumerate(wanted)]
    open_ = [k for k, s in enumerate(sizes) if isinstance(s, int) and s == -1]
    if len(open_) > 1:
        raise GraphError(f"{list(wanted)} leaves more than one length open")
    if open_:
        rest = [s for s in sizes if not (isinstance(s, int) and s == -1)]
        sizes[open_[0]] = quotient(old, rest)
    return sizes


def quotient(whole: Sequence[ExprLike], parts: Sequence[ExprLike]) -> ExprLike:
    """The product of `whole` over that of `parts`, with common factors taken away."""
    left: list[ExprLike] = []
    for s in whole:
        left += _flat(s)
    below: list[ExprLike] = []
    for s in parts:
        for f in _flat(s):
            if isinstance(f, Expr) and f in left:
                left.remove(f)
            else:
                below.append(f)
    number, under = (math.prod(f for f in fs if isinstance(f, int)) for fs in (left, below))
    common = math.gcd(number, under) or 1
    above = product([f for f in left if not isinstance(f, int)])
    under_all = product([under // common, *(f for f in below if not isinstance(f, int))])
    if isinstance(under_all, int) and under_all == 0:
        return 0
    return above * (number // common) // under_all


def _flat(s: ExprLike) -> list[ExprLike]:
    if isinstance(s, expr.Bin) and s.op == "*":
        return [*_flat(s.a), *_flat(s.b)]
    return [s]


def reshaped(g: Any, t: Tensor, wanted: Sequence[ExprLike], keep: bool = True) -> Tensor:
    """The elements in another shape, see `resolved`. Raises GraphError where it has another number of elements."""
    sizes = resolved(t.shape, wanted, keep)
    before, after = product(t.shape), product(sizes)
    if isinstance(before, int) and isinstance(after, int) and before != after:
        raise GraphError(f"{g.show(t)} has {before} elements, and the shape {sizes} has {after}")
    if factors(before) != factors(after) and not g.same(before, after):
        raise GraphError(f"{g.show(t)} has {g.hint(before)} elements, and the shape {[g.hint(s) for s in sizes]} {g.hint(after)}")
    return g.reshape(t, sizes)


def transposed(t: Tensor, order: Sequence[int]) -> Tensor:
    """The dims in another order. Raises GraphError for what is not an order of them."""
    if sorted(order) != list(range(t.rank)):
        raise GraphError(f"perm {order} is not an order of {t.rank} dims")
    return permuted(t, *order)


def squeezed(g: Any, t: Tensor, given: Sequence[int] | None) -> Tensor:
    """The tensor less dims of length 1; None: all that have it. Raises GraphError for one that has another length."""
    if given is None:
        gone = [k for k, d in enumerate(t.dims) if d is None or g.same(d.size, 1)]
    else:
        gone = [k % t.rank for k in given]
    for k in gone:
        d = t.dims[k]
        if d is not None:
            if not g.same(d.size, 1):
                raise GraphError(f"dim {k} of {g.show(t)} does not have length 1")
            t = g.squeezed(t, k)
    return Tensor(t.op, [d for k, d in enumerate(t.dims) if k not in gone])


def unsqueezed(t: Tensor, given: Sequence[int]) -> Tensor:
    """The tensor with new dims of length 1, at these places of the result."""
    rank = t.rank + len(given)
    new = {k % rank for k in given}
    if len(new) != len(given) or any(not -rank <= k < rank for k in given):
        raise GraphError(f"axes {given} name a dim twice, or none of {rank}")
    rest = iter(t.dims)
    return Tensor(t.op, [None if k in new else next(rest) for k in range(rank)])


def tiled(g: Any, t: Tensor, times: Sequence[ExprLike]) -> Tensor:
    """Each dim so many times over."""
    dims = list(t.dims)
    index: dict[Axis, ExprLike] = {}
    for k, r in enumerate(times):
        d = dims[k]
        if isinstance(r, int) and r == 1:
            continue
        if d is None:
            dims[k] = g.fresh(r)
        else:
            dims[k] = g.resized(d, d.size * r)
            index[d] = Idx(dims[k]) % d.size
    return g.read(t, dims, index) if dims != list(t.dims) or index else t


# ---- made of sizes ------------------------------------------------------------------------------------------------------


def filled(g: Any, number: Any, sizes: Sequence[ExprLike]) -> Tensor:
    """A NumPy scalar in every place of a shape."""
    dims = [None if isinstance(s, int) and s == 1 else g.fresh(s) for s in sizes]
    return Tensor(e.filled(number.item(), [d for d in dims if d is not None], as_dtype(number.dtype)), dims)


def ranged(g: Any, start: Value, limit: Value, delta: Value) -> Value:
    """Numbers from start on, before limit, by delta; of lengths that stay open too."""
    values = start, limit, delta
    if all(isinstance(v, (ConstantArray, Sizes)) for v in values) and any(isinstance(v, Sizes) for v in values):
        first, last = (g.sizes(v)[0] for v in (start, limit))
        (step,) = g.sizes(delta)
        if g.same(step, 0):
            raise GraphError("the step of a range is 0")
        span, apart = (last - first, step) if g.truth("lt", 0, step) else (first - last, -step)
        count = (span + (apart - 1)) // apart
        axis = g.fresh(count if expr.not_negative(count) else expr.maximum(count, 0))
        made = iota(axis, as_dtype(start.np))
        if step != 1:
            made = made * (step if isinstance(step, int) else size_op(step, as_dtype(start.np)))
        return Tensor(made if isinstance(first, int) and first == 0 else made + size_op(first, as_dtype(start.np)), [axis])
    first, last, step = (g.known(v).ravel()[0] for v in values)
    if not step:
        raise GraphError("the step of a range is 0")
    if first.dtype.kind in "iuf" and first.dtype.itemsize >= 4:
        places = max(0, math.ceil((float(last) - float(first)) / float(step)))
        if places <= LARGEST_KNOWN_RANGE:
            made = np.arange(places, dtype=first.dtype) * step + first
            return ConstantArray(made.astype(first.dtype))
        axis = g.fresh(places)
        d = as_dtype(first.dtype)
        return Tensor(iota(axis, d) * step.item() + first.item(), [axis])
    check_room(max(0, math.ceil((float(last) - float(first)) / float(step))))
    return ConstantArray(np.arange(float(first), float(last), float(step)).astype(first.dtype))


def eye(g: Any, shape: Sequence[ExprLike], offset: int, dtype: Any) -> Tensor:
    """A matrix with ones on a diagonal, which stands `offset` to the right."""
    i, j = (g.fresh(s) for s in shape)
    return g.made(e.cast(e.equal(iota(i) + offset, iota(j)), dtype), [i, j])


def triangle(g: Any, x: Value, offset: ExprLike, upper: bool) -> Tensor:
    """Matrices with zeros below a diagonal, or above it."""
    t = g.full(g.tensor(x), (x.rank - 2, x.rank - 1))
    i, j = t.dims[-2:]
    diagonal = iota(i) + (offset if isinstance(offset, int) else size_op(offset, dtypes.int32))
    inside = e.less_equal(diagonal, iota(j)) if upper else e.less_equal(iota(j), diagonal)
    return g.made(e.where(inside, t.op, e.filled(0, (), t.op.dtype)), t.dims)


def one_hot(g: Any, t: Tensor, length: ExprLike, at: int, on: Op, off: Op) -> Tensor:
    """A new dim `at`, with `on` where its index is the tensor's number, else `off`."""
    axis = g.fresh(length)
    at = at + t.rank + 1 if at < 0 else at
    made = e.where(e.equal(iota(axis, dtypes.int64), e.cast(t.op, dtypes.int64)), on, off)
    return g.made(made, [*t.dims[:at], axis, *t.dims[at:]])


def on_diagonal(g: Any, x: Value, offset: int, rows: ExprLike = -1, columns: ExprLike = -1, fill: Any = 0) -> Tensor:
    """Matrices with x on a diagonal, which stands `offset` to the right; rows, columns: how many, -1 for as many as it needs."""
    t = g.full(g.tensor(x))
    d, down, right = t.dims[-1], max(0, -offset), max(0, offset)
    open_ = [isinstance(many, int) and many == -1 for many in (rows, columns)]
    least = [d.size + abs(offset)] * 2 if all(open_) else [d.size + down, d.size + right]
    i, j = (g.fresh(few if free else many) for free, few, many in zip(open_, least, (rows, columns), strict=True))
    dims, place = [*t.dims[:-1], i, j], Idx(i) - down
    spread = g.read(t, dims, {d: place}, predicate=(place, d.size - 1 - place))
    return g.made(e.where(e.equal(iota(i) + offset, iota(j)), spread.op, e.filled(fill, (), t.op.dtype)), dims)


def diagonal(g: Any, x: Value, offset: int = 0, rows: int = -2, columns: int = -1, size: ExprLike | None = None) -> Tensor:
    """The diagonal of two dims, which stands `offset` to the right, as the last dim. size: its length, where who calls knows it."""
    pair = [rows % x.rank, columns % x.rank]
    t, down, right = g.full(g.tensor(x), pair), max(0, -offset), max(0, offset)
    i, j = (t.dims[k] for k in pair)
    size = expr.minimum(i.size - down, j.size - right) if size is None else size
    axis = g.fresh(max(size, 0) if isinstance(size, int) else size)
    return g.read(t, [*[d for k, d in enumerate(t.dims) if k not in pair], axis], {i: Idx(axis) + down, j: Idx(axis) + right})


# ---- slices, joins, paddings --------------------------------------------------------------------------------------------


def bound(g: Any, value: ExprLike, size: ExprLike, low: ExprLike, high: ExprLike) -> ExprLike:
    """A slice's bound, counted from the end where it is negative, and kept from `low` to `high`."""
    if isinstance(value, int) and value >= TO_THE_END - 1:
        return high
    if isinstance(value, int) and value <= 1 - TO_THE_END:
        return low
    if value == size:
        return high if not g.truth("lt", high, size) else size if not g.truth("lt", high, value) else high
    if g.truth("lt", value, 0):
        value = value + size
    if g.truth("lt", value, low):
        return low
    return high if g.truth("lt", high, value) else value


def _cut_by_size(size: ExprLike, first: ExprLike, last: ExprLike, step: int) -> slice | None:
    """Returns the slice if its known ends are cut off by an open size, of at least one element, in another way than by a longer one."""
    if not isinstance(size, Expr) or not isinstance(first, int) or not isinstance(last, int):
        return None
    finite = [n for n in (first, last) if abs(n) < TO_THE_END - 1]
    if not any(abs(n) > 1 for n in finite) and not (1 in finite and (first == -1 or step < 0)):
        return None

    def end(n: int, outermost: bool) -> int | None:
        return None if outermost and n not in finite else max(-TO_THE_END, min(n, TO_THE_END))

    return slice(end(first, (first > 0) == (step < 0)), end(last, (last > 0) == (step > 0)), step)


def sliced(g: Any, t: Tensor, k: int, first: ExprLike, step: ExprLike, count: ExprLike) -> Tensor:
    """Every `step`-th element from `first` on along dim k."""
    d = t.dims[k]
    if d is None:
        if isinstance(count, int) and count == 1:
            return t
        t = g.full(t, [k])
        d = t.dims[k]
    if first == 0 and step == 1 and count == d.size:
        return t
    out = g.resized(d, count)
    return g.read(t, [out if j == k else a for j, a in enumerate(t.dims)], {d: Idx(out) * step + first})


def flipped(g: Any, t: Tensor, dims: Sequence[int]) -> Tensor:
    """The tensor with the order along dims reversed."""
    index = {d: d.size - 1 - Idx(d) for k in dims if (d := t.dims[k]) is not None}
    return g.read(t, t.dims, index) if index else t


def rolled(g: Any, t: Tensor, shifts: Sequence[int], dims: Sequence[int]) -> Tensor:
    """Elements moved along dims, those that leave at one end to the other one."""
    for by, k in zip(shifts, dims, strict=True):
        d = t.dims[k]
        if d is not None and not g.same(d.size, 0):
            t = g.read(t, t.dims, {d: (Idx(d) + (d.size - by % d.size)) % d.size})
    return t


def broadcast_shape(g: Any, x: Sequence[ExprLike], y: Sequence[ExprLike]) -> list[ExprLike]:
    """Returns the lengths of two shapes that are broadcast against each other, as NumPy has it."""
    rank = max(len(x), len(y))
    x, y = [1] * (rank - len(x)) + list(x), [1] * (rank - len(y)) + list(y)
    return [p if p == q or not g.same(p, 1) else q for p, q in zip(x, y, strict=True)]


def slices(
    g: Any, t: Tensor, firsts: Sequence[ExprLike], lasts: Sequence[ExprLike], dims: Sequence[int], by: Sequence[ExprLike], lowest: int = -1
) -> Tensor:
    """Along each of these dims what Python's slice(first, last, step) takes.

    lowest: where a start below the first element lies in steps backwards: -1, so that nothing is taken, or 0, as ONNX has it.
    """
    for first, last, k, step in zip(firsts, lasts, dims, by, strict=True):
        if not -t.rank <= k < t.rank or g.same(step, 0):
            raise GraphError(f"there is no slice along dim {k} by {step} of {g.show(t)}")
        k %= t.rank
        size = t.shape[k]
        forward = g.truth("lt", 0, step)
        whole = _cut_by_size(size, first, last, step) if g.unseen is not None and isinstance(step, int) else None
        if whole is not None:  # one graph is wanted for all sizes
            a, _, count = slice_range(size, whole, AxisError, lowest)
        else:
            if forward:
                a, b = bound(g, first, size, 0, size), bound(g, last, size, 0, size)
                span = b - a
            else:
                a, b = bound(g, first, size, lowest, size - 1), bound(g, last, size, -1, size - 1)
                if isinstance(a, int) and a == lowest == 0 and g.truth("le", size, 0):
                    a = -1
                span = a - b
            apart = step if forward else -step
            count = (span + (apart - 1)) // apart
            if not (isinstance(a, int) and a == 0 and step == 1):
                count = 0 if g.truth("le", count, 0) else count
        t = sliced(g, t, k, a, step, count)
    return t


def part(g: Any, t: Tensor, dim: int, start: Any, length: Any) -> Tensor:
    """`length` elements along a dim, from `start` on."""
    dim %= t.rank
    axis = t.dims[dim]
    if axis is None:
        return t
    own = g.resized(axis, length)
    return g.read(t, [own if k == dim else d for k, d in enumerate(t.dims)], {axis: Idx(own) + start})


def at(g: Any, t: Tensor, k: int, i: ExprLike) -> Tensor:
    """The tensor at an index of dim k, which goes."""
    d = t.dims[k]
    rest = [a for j, a in enumerate(t.dims) if j != k]
    return Tensor(t.op, rest) if d is None else g.read(t, rest, {d: i})


def split(g: Any, t: Tensor, k: int, sizes: Sequence[ExprLike]) -> list[Tensor]:
    """Parts of these lengths, one after another along dim k. Raises GraphError where they do not sum to its length."""
    starts = list(accumulate(sizes, initial=0))
    size, total = t.shape[k], starts.pop()
    if g.differ(total, size):
        parts = ", ".join([str(g.hint(s)) for s in sizes])
        raise GraphError(f"parts of {parts} do not sum to the length {g.hint(size)} of dim {k} of {g.show(t)}")
    return [sliced(g, t, k, start, 1, s) for start, s in zip(starts, sizes, strict=True)]


def joined(g: Any, ts: Sequence[Tensor], k: int) -> Tensor:
    """Tensors one after another along dim k."""
    if len(ts) == 1:
        return ts[0]
    if len(ts) == 2 and (grown := g.appended(ts[0], ts[1], k)) is not None:
        return grown
    if len({t.rank for t in ts}) > 1:
        raise GraphError(f"tensors of different ranks are joined: {', '.join(g.show(t) for t in ts)}")
    whole = [g.full(t, [k]) for t in ts]
    for j in range(ts[0].rank):
        if j != k and any(t.dims[j] is None for t in whole):  # then all have length 1 there
            whole = [g.squeezed(t, j) if t.dims[j] is not None and g.same(t.shape[j], 1) else t for t in whole]
    met, dims = g.meet(whole, skip=k)
    others = [d for d in dims if d is not None]
    sizes = [t.shape for t in ts]
    for j in range(ts[0].rank):
        if j != k and any((t.dims[j] is None) != (met[0].dims[j] is None) for t in met):
            raise GraphError(f"tensors that are joined along dim {k} differ in dim {j}: {sizes}")
    parts = [t.dims[k] for t in met]
    ops = [broadcast(t.op, [*others, p]) for t, p in zip(met, parts, strict=True)]
    total: ExprLike = 0
    for p in parts:
        total = total + p.size
    axis = g.fresh(total)
    op = concat.build(*ops, parts=tuple(parts), axis=axis)
    return g.made(op, [axis if j == k else d for j, d in enumerate(dims)])


def stacked(g: Any, values: list[Value], k: int = 0) -> Value:
    """Values of one shape along a new dim k."""
    if all(isinstance(v, ConstantArray) for v in values):
        return ConstantArray(np.stack([v.array for v in values], k))
    if any(map(is_text, values)):
        return of_text(g, "Stack", lambda *arrays: np.stack(arrays, k), values, 1)[0]
    ts = [g.tensor(v) for v in values]
    return joined(g, [Tensor(t.op, [*t.dims[:k], None, *t.dims[k:]]) for t in ts], k)


def padded(g: Any, t: Tensor, k: int, before: ExprLike, after: ExprLike, mode: str = "constant", pad_value: Any = 0) -> Tensor:
    """Dim k with more (or less) at both ends."""
    t = g.full(t, [k])
    d = t.dims[k]
    size = d.size
    out = g.resized(d, size + before + after)
    named = {"wrap": "circular"}.get(mode, mode)
    if named not in moving.PADDED:
        raise GraphError(f"there is no padding mode {mode!r}")
    op = moving.padded(t.op, {d: (before, after)}, {d: out}, named, pad_value)
    return g.made(op, [out if j == k else a for j, a in enumerate(t.dims)])


# ---- blocks -------------------------------------------------------------------------------------------------------------


def depth_to_space(g: Any, t: Tensor, b: int, depth_first: bool) -> Tensor:
    """Channels laid out as blocks of b x b; depth_first: the block's places are the slowest part of the channels."""
    check_dims(g, t, "the tensor", "batch", "channels", "height", "width")
    batch, c, h, w = t.shape
    if depth_first:
        t = permuted(g.reshape(t, [batch, b, b, c // (b * b), h, w]), 0, 3, 4, 1, 5, 2)
    else:
        t = permuted(g.reshape(t, [batch, c // (b * b), b, b, h, w]), 0, 1, 4, 2, 5, 3)
    return g.reshape(t, [batch, c // (b * b), h * b, w * b])


def space_to_depth(g: Any, t: Tensor, b: int, depth_first: bool) -> Tensor:
    """And back."""
    check_dims(g, t, "the tensor", "batch", "channels", "height", "width")
    batch, c, h, w = t.shape
    order = (0, 3, 5, 1, 2, 4) if depth_first else (0, 1, 3, 5, 2, 4)
    t = permuted(g.reshape(t, [batch, c, h // b, b, w // b, b]), *order)
    return g.reshape(t, [batch, c * b * b, h // b, w // b])

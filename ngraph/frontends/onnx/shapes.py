"""Translators of ops that move elements: shapes, slices, joins, gathers and scatters, and those that make tensors of sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph.errors import BoundsError, GraphError
from ngraph.frontends.onnx.proto import numpy_type
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional.trace import factors
from ngraph.frontends.positional.values import ConstantArray, Sizes, Tensor, Value, check_room, settled
from ngraph.op_graph import dtypes, expr
from ngraph.op_graph.axes import Axes, Axis
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.expr import Expr, ExprLike, Idx
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.indexing import bounded
from ngraph.ops.indexing import gather as gather_op
from ngraph.ops.indexing import scatter as scatter_op
from ngraph.ops.rearrange import broadcast, concat, iota, product
from ngraph.ops.selection import nonzero as nonzero_op
from ngraph.ops.selection import top_k_record
from ngraph.ops.state import parts

TO_THE_END = 1 << 31  # what exporters write for "to the end"


# ---- constants and shapes -----------------------------------------------------------------------------------------------


@translates("Constant")
def constant(n: Any) -> Value:
    for name, dtype in (("value_int", np.int64), ("value_ints", np.int64), ("value_float", np.float32), ("value_floats", np.float32)):
        if n.has(name):
            return ConstantArray(np.array(n.attr(name), dtype))
    for name in ("value_string", "value_strings"):
        if n.has(name):
            return ConstantArray(np.array(n.attr(name), object))
    if n.has("sparse_value"):
        return n.frame.library.constant(n.attr("sparse_value"))
    a = n.given.get("value")
    if a is not None and not a.ref_attr_name:
        return n.frame.library.constant(a.t)
    return None if n.attr("value") is None else ConstantArray(n.attr("value"))  # None: of a function whose caller leaves it out


@translates("Identity")
def identity(n: Any, x: Value) -> Value:
    return list(x) if isinstance(x, list) else x


@translates("Shape")
def shape(n: Any, x: Value) -> Value:
    found = np.empty(x.rank, object)
    found[:] = list(x.shape)
    start, end = n.attr("start", 0), n.attr("end")
    return settled(found[slice(start, end)])


@translates("Size")
def size(n: Any, x: Value) -> Value:
    return settled(np.array(product(x.shape), object))


def resolved(n: Any, old: Sequence[ExprLike], wanted: Sequence[ExprLike]) -> list[ExprLike]:
    """A shape in which 0 means the old length and -1 what is left."""
    keep = not n.attr("allowzero", 0)
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


@translates("Reshape")
def reshape(n: Any, x: Value, wanted: Value = None) -> Tensor:
    t = n.g.tensor(x)
    sizes = resolved(n, t.shape, n.attr("shape") if wanted is None else n.g.sizes(wanted))
    before, after = product(t.shape), product(sizes)
    if isinstance(before, int) and isinstance(after, int) and before != after:
        raise GraphError(f"{n.g.show(t)} has {before} elements, and the shape {sizes} has {after}")
    if factors(before) != factors(after) and not n.g.same(before, after):
        raise GraphError(f"{n.g.show(t)} has {n.g.hint(before)} elements, and the shape {[n.g.hint(s) for s in sizes]} {n.g.hint(after)}")
    return n.g.reshape(t, sizes)


@translates("Flatten")
def flatten(n: Any, x: Value) -> Tensor:
    t = n.g.tensor(x)
    at = n.attr("axis", 1)
    at = at + t.rank if at < 0 else at
    return n.g.reshape(t, [product(t.shape[:at]), product(t.shape[at:])])


@translates("Transpose")
def transpose(n: Any, x: Value) -> Tensor:
    t = n.g.tensor(x)
    order = n.attr("perm") or list(range(t.rank))[::-1]
    if sorted(order) != list(range(t.rank)):
        raise GraphError(f"perm {order} is no order of {t.rank} dims")
    return Tensor(t.op, [t.dims[k] for k in order])


@translates("Squeeze")
def squeeze(n: Any, x: Value, axes: Value = None) -> Tensor:
    t = n.g.tensor(x)
    given = n.attr("axes") if axes is None else n.g.ints(axes)
    if given is None:
        gone = [k for k, d in enumerate(t.dims) if d is None or n.g.same(d.size, 1)]
    else:
        gone = [k % t.rank for k in given]
    for k in gone:
        d = t.dims[k]
        if d is not None:
            if not n.g.same(d.size, 1):
                raise GraphError(f"dim {k} of {n.g.show(t)} has not length 1")
            t = n.g.squeezed(t, k)
    return Tensor(t.op, [d for k, d in enumerate(t.dims) if k not in gone])


@translates("Unsqueeze")
def unsqueeze(n: Any, x: Value, axes: Value = None) -> Tensor:
    t = n.g.tensor(x)
    given = n.attr("axes") if axes is None else n.g.ints(axes)
    rank = t.rank + len(given)
    new = {k % rank for k in given}
    if len(new) != len(given) or any(not -rank <= k < rank for k in given):
        raise GraphError(f"axes {given} name a dim twice, or none of {rank}")
    rest = iter(t.dims)
    return Tensor(t.op, [None if k in new else next(rest) for k in range(rank)])


@translates("Expand")
def expand(n: Any, x: Value, wanted: Value) -> Tensor:
    return n.g.expanded(n.g.tensor(x), n.g.sizes(wanted))


@translates("Tile")
def tile(n: Any, x: Value, repeats: Value, axis: Value = None) -> Tensor:
    t = n.g.tensor(x)
    times = n.g.sizes(repeats)
    if axis is not None and n.version < 6:
        k = n.g.ints(axis)[0]
        times = [times[0] if j == k else 1 for j in range(t.rank)]
    dims = list(t.dims)
    index: dict[Axis, ExprLike] = {}
    for k, r in enumerate(times):
        d = dims[k]
        if isinstance(r, int) and r == 1:
            continue
        if d is None:
            dims[k] = n.g.fresh(r)
        else:
            dims[k] = n.g.resized(d, d.size * r)
            index[d] = Idx(dims[k]) % d.size
    return n.g.read(t, dims, index) if dims != list(t.dims) or index else t


@translates("ConstantOfShape")
def constant_of_shape(n: Any, wanted: Value) -> Tensor:
    value = n.attr("value")
    number = np.float32(0) if value is None else value.ravel()[0]
    sizes = n.g.sizes(wanted)
    dims = [None if isinstance(s, int) and s == 1 else n.g.fresh(s) for s in sizes]
    axes = [d for d in dims if d is not None]
    return Tensor(e.filled(number.item(), axes, as_dtype(number.dtype)), dims)


@translates("Range")
def range_(n: Any, start: Value, limit: Value, delta: Value) -> Value:
    values = start, limit, delta
    if all(isinstance(v, (ConstantArray, Sizes)) for v in values) and any(isinstance(v, Sizes) for v in values):
        first, last = (n.g.sizes(v)[0] for v in (start, limit))
        step = n.g.number(n.g.sizes(delta)[0])
        span = last - first if step > 0 else first - last
        axis = n.g.fresh(expr.maximum((span + (abs(step) - 1)) // abs(step), 0))
        base = e.constant_record.build(value=first, axes=Axes(), dtype=as_dtype(start.np))
        return Tensor(iota(axis, as_dtype(start.np)) * step + base, [axis])
    first, last, step = (n.g.known(v).ravel()[0] for v in values)
    if not step:
        raise GraphError("the step of a range is 0")
    if first.dtype.kind in "iuf" and first.dtype.itemsize >= 4:
        count = max(0, math.ceil((float(last) - float(first)) / float(step)))
        if count <= 4096:
            made = np.arange(count, dtype=first.dtype) * step + first
            return ConstantArray(made.astype(first.dtype))
        axis = n.g.fresh(count)
        d = as_dtype(first.dtype)
        return Tensor(iota(axis, d) * step.item() + first.item(), [axis])
    check_room(max(0, math.ceil((float(last) - float(first)) / float(step))))
    return ConstantArray(np.arange(float(first), float(last), float(step)).astype(first.dtype))


@translates("EyeLike")
def eye_like(n: Any, x: Value) -> Tensor:
    dtype = as_dtype(numpy_type(n.attr("dtype")) if n.has("dtype") else x.np)
    i, j = (n.g.fresh(s) for s in x.shape)
    return n.g.made(e.cast(e.equal(iota(i) + n.attr("k", 0), iota(j)), dtype), [i, j])


@translates("Trilu")
def trilu(n: Any, x: Value, k: Value = None) -> Tensor:
    t = n.g.full(n.g.tensor(x), (x.rank - 2, x.rank - 1))
    i, j = t.dims[-2:]
    offset = 0 if k is None else n.g.ints(k)[0]
    inside = e.less_equal(iota(i) + offset, iota(j)) if n.attr("upper", 1) else e.less_equal(iota(j), iota(i) + offset)
    zero = e.filled(0, (), t.op.dtype)
    return n.g.made(e.where(inside, t.op, zero), t.dims)


@translates("OneHot")
def one_hot(n: Any, indices: Value, depth: Value, values: Value) -> Tensor:
    t = n.g.tensor(indices)
    length = n.g.sizes(depth)[0] if not np.dtype(depth.np).kind == "f" else int(n.g.known(depth).ravel()[0])
    axis = n.g.fresh(length)
    at = n.attr("axis", -1)
    at = at + t.rank + 1 if at < 0 else at
    x = e.cast(t.op, dtypes.int64)
    total = e.constant_record.build(value=length, axes=Axes(), dtype=dtypes.int64)
    x = e.where(e.less(x, 0), x + total, x)
    pair = n.g.tensor(values)
    off, on = (n.g.squeezed(n.g.read(pair, [n.g.fresh(1)], {pair.dims[0]: k}), 0).op for k in (0, 1))
    return n.g.made(e.where(e.equal(iota(axis, dtypes.int64), x), on, off), [*t.dims[:at], axis, *t.dims[at:]])


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


def sliced(g: Any, t: Tensor, k: int, first: ExprLike, step: int, count: ExprLike) -> Tensor:
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


@translates("Slice")
def slice_(n: Any, x: Value, starts: Value = None, ends: Value = None, axes: Value = None, steps: Value = None) -> Tensor:
    g, t = n.g, n.g.tensor(x)
    if starts is None:
        firsts, lasts, dims = n.attr("starts"), n.attr("ends"), n.attr("axes")
    else:
        firsts, lasts, dims = g.sizes(starts), g.sizes(ends), None if axes is None else g.ints(axes)
    dims = list(range(len(firsts))) if dims is None else dims
    by = [1] * len(firsts) if steps is None else g.ints(steps)
    for first, last, k, step in zip(firsts, lasts, dims, by, strict=True):
        if not -t.rank <= k < t.rank or step == 0:
            raise GraphError(f"there is no slice along dim {k} by {step} of {g.show(t)}")
        k %= t.rank
        size = t.shape[k]
        if step > 0:
            a, b = bound(g, first, size, 0, size), bound(g, last, size, 0, size)
            span = b - a
        else:
            a, b = bound(g, first, size, 0, size - 1), bound(g, last, size, -1, size - 1)
            span = a - b
        count = (span + (abs(step) - 1)) // abs(step)
        if not (isinstance(a, int) and a == 0 and step == 1):
            count = 0 if g.truth("le", count, 0) else count
        t = sliced(g, t, k, a, step, count)
    return t


@translates("Split")
def split(n: Any, x: Value, sizes: Value = None) -> tuple[Tensor, ...]:
    g, t = n.g, n.g.tensor(x)
    k = n.attr("axis", 0) % t.rank
    each = n.attr("split") if sizes is None else g.sizes(sizes)
    if each is None:
        size, parts = t.shape[k], len(n.proto.output)
        step = (size + (parts - 1)) // parts
        each = [step] * (parts - 1) + [size - step * (parts - 1)]
    found, start = [], 0
    for s in each:
        found.append(sliced(g, t, k, start, 1, s))
        start = start + s
    return tuple(found)


@translates("Concat")
def concat_(n: Any, *values: Value) -> Value:
    k = n.attr("axis", 1)
    k = k + values[0].rank if k < 0 else k
    return joined(n.g, [n.g.tensor(v) for v in values], k)


def joined(g: Any, ts: Sequence[Tensor], k: int) -> Tensor:
    """Tensors one after another along dim k."""
    if len(ts) == 1:
        return ts[0]
    if len({t.rank for t in ts}) > 1:
        raise GraphError(f"tensors of unlike ranks are joined: {', '.join(g.show(t) for t in ts)}")
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


@translates("Pad")
def pad(n: Any, x: Value, pads: Value = None, value: Value = None, axes: Value = None) -> Tensor:
    g, t = n.g, n.g.tensor(x)
    if pads is None:
        sizes, fill = n.attr("pads", n.attr("paddings")), n.attr("value", 0.0)
    else:
        sizes, fill = g.sizes(pads), 0 if value is None else g.known(value).ravel()[0].item()
    dims = list(range(t.rank)) if axes is None else [k % t.rank for k in g.ints(axes)]
    half = len(sizes) // 2
    mode = n.attr("mode", "constant")
    for k, before, after in zip(dims, sizes[:half], sizes[half:], strict=True):
        if isinstance(before, int) and isinstance(after, int) and before == after == 0:
            continue
        t = padded(g, t, k, before, after, mode, fill)
    return t


def padded(g: Any, t: Tensor, k: int, before: ExprLike, after: ExprLike, mode: str = "constant", fill: Any = 0) -> Tensor:
    """Dim k with more (or less) at both ends."""
    t = g.full(t, [k])
    d = t.dims[k]
    size = d.size
    out = g.resized(d, size + before + after)
    i: ExprLike = Idx(out) - before
    if mode == "edge":
        i = expr.minimum(expr.maximum(i, 0), size - 1)
    elif mode == "wrap":
        i = i % size
    elif mode == "reflect":
        if g.same(size, 1):
            i = 0
        else:
            period = (size - 1) * 2
            i = expr.minimum(i % period, period - i % period)
    elif mode != "constant":
        raise GraphError(f"there is no padding mode {mode!r}")
    return g.read(t, [out if j == k else a for j, a in enumerate(t.dims)], {d: i}, fill=fill)


# ---- gathers and scatters -----------------------------------------------------------------------------------------------


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
            raise out_of_bounds(known[outside][0], size, what, negative)
    if g.indices == "raise":
        return bounded(i, axis, what, negative, CLAMPED)
    i = e.cast(i, dtypes.int64)
    return e.where(e.less(i, 0), i + size_of(axis), i) if negative else i


def size_of(axis: Axis) -> Op:
    """The length of an axis as an op."""
    return e.constant_record.build(value=axis.size, axes=Axes(), dtype=dtypes.int64)


CLAMPED = "ng.onnx.load(path, indices='clip') takes the nearest"


def out_of_bounds(index: Any, size: int, what: str, negative: bool = True) -> BoundsError:
    """The error for an index that is known when the graph is read."""
    return BoundsError.of(f"index {index} is out of bounds of {what}, which has length {size}", size, negative, "", 0, CLAMPED)


def dim_of(n: Any, k: int, given: int = 0) -> str:
    """Dim k of an input of the node, of the first by default, in words."""
    return f"dim {k} of {n.proto.input[given]}"


def known_array(v: Value) -> Any:
    """The array of a value that is known; None of others."""
    return v.array if isinstance(v, ConstantArray) else None


@translates("Gather")
def gather(n: Any, x: Value, indices: Value) -> Tensor:
    g, t = n.g, n.g.tensor(x)
    k = n.attr("axis", 0) % t.rank
    one = None
    if isinstance(indices, (ConstantArray, Sizes)) and indices.array.size == 1:
        one = indices.array.ravel()[0]
        one = counted_from_start(n, one if isinstance(one, Expr) else int(one), t, k)
    if one is not None:
        d = t.dims[k]
        if d is not None:
            t = g.read(t, [None if j == k else a for j, a in enumerate(t.dims)], {d: one})
        return Tensor(t.op, [*t.dims[:k], *[None] * indices.rank, *t.dims[k + 1 :]])
    t = g.full(t, [k])
    i = g.apart(g.tensor(indices), t.dims)
    index = index_along(g, i.op, known_array(indices), t.dims[k], dim_of(n, k))
    return g.made(gather_op(t.op, index, axes=(t.dims[k],), mode="clip"), [*t.dims[:k], *i.dims, *t.dims[k + 1 :]])


def counted_from_start(n: Any, i: ExprLike, t: Tensor, k: int) -> ExprLike | None:
    """The one index of dim k from its start; None where it is to be looked at, or clamped, when the call comes to it."""
    g, size, given = n.g, t.shape[k], i
    if g.truth("lt", i, 0):
        i = i + size
    if not g.truth("lt", i, 0) and g.truth("lt", i, size):
        return i
    if g.bodies or g.indices != "raise":
        return None
    raise out_of_bounds(g.hint(i) - g.hint(size) * (i is not given), g.hint(size), dim_of(n, k))


def _beside(g: Any, t: Tensor, i: Tensor, k: int) -> tuple[Tensor, Tensor, list[tuple[Axis, Op]]]:
    """For GatherElements and ScatterElements: t and i with axes for all dims; i has t's axes where they are as long, but for dim k;
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


@translates("GatherElements")
def gather_elements(n: Any, x: Value, indices: Value) -> Tensor:
    g, t, i = n.g, n.g.tensor(x), n.g.tensor(indices)
    k = n.attr("axis", 0) % t.rank
    t, i, own = _beside(g, t, i, k)
    index = index_along(g, i.op, known_array(indices), t.dims[k], dim_of(n, k))
    op = gather_op(t.op, index, *(o for _, o in own), axes=(t.dims[k], *(a for a, _ in own)), mode="clip")
    return g.made(op, i.dims)


COMBINE = {"none": "set", "add": "add", "mul": "multiply", "min": "min", "max": "max"}


@translates("ScatterElements", "Scatter")
def scatter_elements(n: Any, x: Value, indices: Value, updates: Value) -> Tensor:
    g, t, i = n.g, n.g.tensor(x), n.g.tensor(indices)
    k = n.attr("axis", 0) % t.rank
    t, i, own = _beside(g, t, i, k)
    u = _updates(g, g.tensor(updates), i.dims)
    index = index_along(g, i.op, known_array(indices), t.dims[k], dim_of(n, k))
    axes = (t.dims[k], *(a for a, _ in own))
    op = scatter_op.build(t.op, index, *(o for _, o in own), u.op, axes=axes, combine=COMBINE[n.attr("reduction", "none")], mode="clip")
    return g.made(op, t.dims)


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


def _each_along(n: Any, columns: Sequence[Tensor], indices: Value, t: Tensor, first: int = 0) -> list[Op]:
    """The columns of indices as indices of the dims of `t` from `first` on."""
    if first + len(columns) > t.rank:
        raise GraphError(f"indices of {len(columns)} dims for {t.rank - first}")
    known = known_array(indices)
    return [
        index_along(n.g, c.op, None if known is None else known[..., q], t.dims[first + q], dim_of(n, first + q))
        for q, c in enumerate(columns)
    ]


@translates("GatherND")
def gather_nd(n: Any, x: Value, indices: Value) -> Tensor:
    g, b = n.g, n.attr("batch_dims", 0)
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
    ops = _each_along(n, columns, indices, t, b)
    op = gather_op(t.op, *ops, axes=tuple(t.dims[b : b + len(columns)]), mode="clip")
    return g.made(op, [*i.dims[:-1], *t.dims[b + len(columns) :]])


@translates("ScatterND")
def scatter_nd(n: Any, x: Value, indices: Value, updates: Value) -> Tensor:
    g = n.g
    t = g.full(g.tensor(x))
    i = g.apart(g.full(g.tensor(indices), range(indices.rank - 1)), t.dims)
    columns = _columns(g, i)
    q = len(columns)
    u = _updates(g, g.tensor(updates), [*i.dims[:-1], *t.dims[q:]])
    how = COMBINE[n.attr("reduction", "none")]
    if not q:
        return u
    ops = _each_along(n, columns, indices, t)
    op = scatter_op.build(t.op, *ops, u.op, axes=tuple(t.dims[:q]), combine=how, mode="clip")
    return g.made(op, t.dims)


@translates("TensorScatter")
def tensor_scatter(n: Any, past: Value, update: Value, places: Value = None) -> Tensor:
    """Updates written into a cache at each batch's own place along an axis."""
    g = n.g
    t = g.full(g.tensor(past))
    u = g.full(g.tensor(update))
    k = n.attr("axis", -2) % t.rank
    new = g.fresh(u.shape[k])
    u = g.renamed(u, [new if j == k else d for j, d in enumerate(t.dims)])
    index = iota(new, dtypes.int64)
    if places is not None:
        at = g.tensor(places)
        at = g.renamed(g.full(at), [t.dims[0]])
        index = index + e.cast(at.op, dtypes.int64)
    mode = "wrap" if n.attr("mode", "linear") == "circular" else "clip"
    if mode == "clip":
        index = index_along(g, index, None, t.dims[k], dim_of(n, k), negative=False)
    op = scatter_op.build(t.op, index, u.op, axes=(t.dims[k],), combine="set", mode=mode)
    return g.made(op, t.dims)


@translates("ReverseSequence")
def reverse_sequence(n: Any, x: Value, lengths: Value) -> Tensor:
    g = n.g
    b, k = n.attr("batch_axis", 1), n.attr("time_axis", 0)
    t = g.full(g.tensor(x), [b, k])
    many = g.renamed(g.full(g.tensor(lengths)), [t.dims[b]]).op
    place = iota(t.dims[k], dtypes.int64)
    many = e.cast(many, dtypes.int64)
    turned = e.where(e.less(place, e.absolute(many)), many - 1 - place, place)  # outside for lengths below 0 and above that of the dim
    index = index_along(g, turned, None, t.dims[k], dim_of(n, k), negative=False)
    return g.made(gather_op(t.op, index, axes=(t.dims[k],), mode="clip"), t.dims)


@translates("TopK")
def top_k(n: Any, x: Value, k: Value = None) -> tuple[Tensor, Tensor]:
    g, t = n.g, n.g.tensor(x)
    at = n.attr("axis", -1) % t.rank
    count = n.attr("k") if k is None else g.sizes(k)[0]
    t = g.full(t, [at])
    d = t.dims[at]
    out = g.resized(d, count)
    if g.truth("lt", d.size, out.size):
        raise GraphError(f"there are no {count} along dim {at} of {g.show(t)}")
    values, places = parts(top_k_record.build(t.op, axis=d, out=out, largest=bool(n.attr("largest", 1))))
    dims = [out if j == at else a for j, a in enumerate(t.dims)]
    return g.made(values, dims), g.made(e.cast(places, dtypes.int64), dims)


# ---- what is found by its value -----------------------------------------------------------------------------------------


def positions(g: Any, t: Tensor) -> tuple[list[Op], Axis]:
    """For each dim the index where the tensor is not 0, along one new axis."""
    whole = g.full(t)
    found = nonzero_op(broadcast(whole.op, whole.dims))
    return list(found), found[0].axes[0]


@translates("NonZero")
def nonzero(n: Any, x: Value) -> Tensor:
    g, t = n.g, n.g.tensor(x)
    rank = t.rank
    if not rank:
        t = Tensor(t.op, [None])
    found, axis = positions(g, t)
    rows = [Tensor(e.cast(f, dtypes.int64), [None, axis]) for f in found]
    made = joined(g, rows, 0)
    if g.unknown(axis):
        g.cut([made])
    return made if rank else Tensor(made.op, made.dims)


@translates("Compress")
def compress(n: Any, x: Value, condition: Value) -> Tensor:
    g, t = n.g, n.g.tensor(x)
    at = n.attr("axis")
    if at is None:
        t, at = g.reshape(t, [product(t.shape)]), 0
    at %= t.rank
    t = g.full(t, [at])
    if isinstance(condition, ConstantArray):
        index: Value = ConstantArray(np.flatnonzero(condition.array))
    else:
        (place,), axis = positions(g, g.tensor(condition))
        index = Tensor(e.cast(place, dtypes.int64), [axis])
        g.cut([index])
    i = g.apart(g.tensor(index), t.dims)
    return g.made(gather_op(t.op, i.op, axes=(t.dims[at],), mode="clip"), [*t.dims[:at], *i.dims, *t.dims[at + 1 :]])


@translates("Unique")
def unique(n: Any, x: Value) -> tuple[Value, ...]:
    axis, in_order = n.attr("axis"), n.attr("sorted", 1)

    def run(a: Any) -> tuple[Any, ...]:
        y, first, inverse, counts = np.unique(a, return_index=True, return_inverse=True, return_counts=True, axis=axis)
        inverse = inverse.reshape(-1)
        if not in_order:
            order = np.argsort(first, kind="stable")
            rank = np.argsort(order, kind="stable")
            y = np.take(y, order, axis=0 if axis is None else axis)
            first, counts, inverse = first[order], counts[order], rank[inverse]
        return y, first, inverse, counts

    return tuple(n.g.host("Unique", run, [x], [x.np, np.int64, np.int64, np.int64]))


# ---- blocks -------------------------------------------------------------------------------------------------------------


def permuted(t: Tensor, order: Sequence[int]) -> Tensor:
    return Tensor(t.op, [t.dims[k] for k in order])


@translates("DepthToSpace")
def depth_to_space(n: Any, x: Value) -> Tensor:
    g, t, b = n.g, n.g.tensor(x), n.attr("blocksize")
    batch, c, h, w = t.shape
    if n.attr("mode", "DCR") == "DCR":
        t = permuted(g.reshape(t, [batch, b, b, c // (b * b), h, w]), (0, 3, 4, 1, 5, 2))
    else:
        t = permuted(g.reshape(t, [batch, c // (b * b), b, b, h, w]), (0, 1, 4, 2, 5, 3))
    return g.reshape(t, [batch, c // (b * b), h * b, w * b])


@translates("SpaceToDepth")
def space_to_depth(n: Any, x: Value) -> Tensor:
    g, t, b = n.g, n.g.tensor(x), n.attr("blocksize")
    batch, c, h, w = t.shape
    order = (0, 3, 5, 1, 2, 4) if n.attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    t = permuted(g.reshape(t, [batch, c, h // b, b, w // b, b]), order)
    return g.reshape(t, [batch, c * b * b, h // b, w // b])

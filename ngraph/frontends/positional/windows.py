"""Windows that go over the spatial dims of a tensor [n, c, spatial…]: pooling and convolution.

A tensor whose channels stand last is one of these with its dims in another order (`permuted`), which moves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.positional.elementwise import each
from ngraph.frontends.positional.indexing import index_along, known_array
from ngraph.frontends.positional.products import multiplied
from ngraph.frontends.positional.reductions import power_mean
from ngraph.frontends.positional.sampling import between
from ngraph.frontends.positional.shapes import check_sizes, padded, permuted, size_op
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value, check_room
from ngraph.op_graph import dtypes, expr
from ngraph.op_graph.axes import Axis
from ngraph.op_graph.dtypes import accumulator
from ngraph.op_graph.expr import Expr, ExprLike, Idx
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.convolution import convolve
from ngraph.ops.indexing import scatter
from ngraph.ops.pooling import max_record
from ngraph.ops.rearrange import iota, product, reindex
from ngraph.ops.reduce import reduce
from ngraph.ops.sorting import argreduce


class Window(NamedTuple):
    """The windows of one spatial dim: length, stride, dilation, padding at both ends, and number."""

    size: int
    stride: int
    dilation: int
    before: ExprLike
    after: ExprLike
    many: ExprLike


class Windowing(NamedTuple):
    """The attributes of windows in a file: lengths, strides, dilations, pads (all leading, then all trailing); automatic padding; rounding.

    auto  NOTSET, VALID (no padding), SAME_UPPER or SAME_LOWER (as many windows as strides), with the odd element behind, or in front
    up    whether a last window counts that exceeds the padding
    """

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[ExprLike]
    auto: str = "NOTSET"
    up: bool = False


def windowing(
    kernel: Sequence[int], strides: Any = None, dilations: Any = None, pads: Any = None, auto: str = "NOTSET", up: Any = 0
) -> Windowing:
    """`Windowing` with ones for strides and dilations that are left out, and no padding."""
    k = len(kernel)
    return Windowing(kernel, strides or [1] * k, dilations or [1] * k, pads or [0] * 2 * k, auto, bool(up))


def windows(g: Any, t: Tensor, w: Windowing) -> list[Window]:
    """The windows along the dims from 2 on. Raises GraphError where their numbers do not fit the tensor."""
    kernel, strides, dilations, pads, auto, up = w
    k = len(kernel)
    if not len(strides) == len(dilations) == k or len(pads) != 2 * k or t.rank != k + 2 or min(*strides, *dilations, *kernel) < 1:
        raise GraphError(f"a kernel of {list(kernel)}, strides {strides}, dilations {dilations}, pads {pads} do not fit {g.show(t)}")
    found = []
    for j, size in enumerate(t.shape[2:]):
        reach = (kernel[j] - 1) * dilations[j] + 1
        before, after = pads[j], pads[j + k]
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            count = (size + (strides[j] - 1)) // strides[j]
            missing = reach - 1 if strides[j] == 1 else expr.maximum((count - 1) * strides[j] + reach - size, 0)
            before = missing // 2 if auto == "SAME_UPPER" else missing - missing // 2
            after = missing - before
        else:
            if auto == "VALID":
                before = after = 0
            # rounded up, so that the last window starts within the tensor, or in front of it
            more = min(strides[j] - 1, max(g.number(reach - 1 - after), 0)) if up else 0
            count = (size + (before + after - reach + more)) // strides[j] + 1
        found.append(Window(kernel[j], strides[j], dilations[j], before, after, count))
    return found


def outs_of(g: Any, t: Tensor, ws: Sequence[Window]) -> list[Axis]:
    """An axis for the windows of each spatial dim."""
    return [g.resized(d, w.many) for d, w in zip(t.dims[2:], ws, strict=True)]


# ---- pooling ------------------------------------------------------------------------------------------------------------


def read(g: Any, t: Tensor, ws: Sequence[Window], pad_value: Any) -> tuple[Tensor, list[Axis], list[Axis]]:
    """The tensor with an axis along each window; the axes that count windows, and those within."""
    t = g.full(t, range(2, t.rank))
    outs, inner = outs_of(g, t, ws), [g.fresh(w.size) for w in ws]
    index = {a: Idx(o) * w.stride + Idx(r) * w.dilation - w.before for a, o, r, w in zip(t.dims[2:], outs, inner, ws, strict=True)}
    whole = {a: index.get(a, Idx(a)) for a in t.op.axes}
    kept = [d for d in t.dims[:2] if d is not None]
    op = reindex(t.op, axes=(*kept, *outs, *inner), index=whole, pad_value=pad_value)
    return Tensor(op, [*t.dims[:2], *outs, *inner]), outs, inner


def max_pool(g: Any, t: Tensor, ws: Sequence[Window], places: bool = False, last_first: bool = False) -> tuple[Tensor, ...]:
    """The largest of each window; places: and its flat position in t, where last_first: the first spatial dim runs fastest."""
    t = g.full(t, range(2, t.rank))
    r, outs, inner = read(g, t, ws, t.op.dtype.lowest)
    dims = [*t.dims[:2], *outs]
    windows = [(a, i, o, w.stride, w.dilation, w.before) for a, i, o, w in zip(t.dims[2:], inner, outs, ws, strict=True)]
    y = g.made(max_record.build(t.op, windows=tuple(windows)), dims)
    if not places:
        return (y,)
    flat = e.cast(argreduce.build(r.op, kind="max", axes=tuple(inner)), dtypes.int64)
    within: list[Op] = []
    for w in ws[::-1]:
        within.insert(0, e.remainder(flat, w.size))
        flat = e.divide.build(flat, size_op(w.size))
    order = range(len(ws))[:: -1 if last_first else 1]
    place = position(g, t.dims[:2], t.shape[:2])
    for j in order:
        i = iota(outs[j], dtypes.int64) * ws[j].stride + within[j] * ws[j].dilation - size_op(ws[j].before)
        place = place * size_op(t.shape[2 + j]) + i
    return y, g.made(place, dims)


def position(g: Any, dims: Sequence[Axis | None], sizes: Sequence[ExprLike]) -> Op:
    """The flat position along dims, int64."""
    place = e.filled(0, (), dtypes.int64)
    for d, s in zip(dims, sizes, strict=True):
        place = place * size_op(s) + (0 if d is None else iota(d, dtypes.int64))
    return place


def counted(g: Any, out: Axis, w: Window, size: ExprLike, padding: bool, dtype: Any) -> Op:
    """Returns the number of elements that each window along one dim covers, with or without padding."""
    first: ExprLike = 0 if padding else w.before
    last = size + (w.before + w.after if padding else w.before)
    if isinstance(first, int) and isinstance(last, int) and isinstance(w.many, int):
        check_room(w.many, w.size)
        at = np.arange(w.many)[:, None] * w.stride + np.arange(w.size) * w.dilation
        many = ((at >= first) & (at < last)).sum(1)
        if (many == many[:1]).all():
            return e.filled(int(many[0]) if len(many) else 1, (), dtype)
        t = g.renamed(g.tensor(ConstantArray(many.astype(np.int64))), [out])
        return e.cast(t.op, dtype)
    r = g.fresh(w.size)
    at_ = iota(out, dtypes.int64) * w.stride + iota(r, dtypes.int64) * w.dilation
    inside = e.logical_and(e.less_equal(size_op(first), at_), e.less(at_, size_op(last)))
    return reduce.build(e.cast(inside, dtype), kind="add", axes=(r,))


def average_pool(g: Any, t: Tensor, ws: Sequence[Window], padding: bool = False) -> Tensor:
    """The mean of each window; padding: of what is outside too."""
    r, outs, inner = read(g, t, ws, 0)

    def means(x: Op) -> Op:
        many = e.filled(1, (), x.dtype)
        for out, w, size in zip(outs, ws, t.shape[2:], strict=True):
            many = many * counted(g, out, w, size, padding, x.dtype)
        return reduce.build(x, kind="add", axes=tuple(inner)) / many

    return g.made(e.rounding_once(means)(r.op), [*t.dims[:2], *outs])


def lp_pool(g: Any, t: Tensor, ws: Sequence[Window], p: float) -> Tensor:
    """The p-norm of each window."""
    r, outs, inner = read(g, t, ws, 0)
    return g.made(power_mean(r.op, tuple(inner), p), [*t.dims[:2], *outs])


def max_unpool(g: Any, t: Tensor, indices: Value, by: Windowing, wanted: Sequence[ExprLike] | None, name: str) -> Tensor:
    """Each value goes to its flat position in a tensor of zeros, which then gets the wanted lengths. name: what errors call the result."""
    kernel, strides, _, pads, *_ = by
    k = len(kernel)
    check_sizes(g, indices, "the positions", *t.shape)
    least = [(s - 1) * strides[j] + (kernel[j] - pads[j] - pads[j + k]) for j, s in enumerate(t.shape[2:])]
    sizes = [*t.shape[:2], *least]
    axis = g.fresh(product(sizes))
    i, u = (g.reshape(g.tensor(v), [product(t.shape)]) for v in (indices, t))
    i, u = g.full(i), g.full(u)
    u = g.renamed(u, i.dims)
    zeros = e.filled(0, (axis,), t.op.dtype)
    place = index_along(g, i.op, known_array(indices), axis, f"{name} as one row", negative=False)
    flat = scatter.build(zeros, place, u.op, axes=(axis,), combine="set", mode="clip")
    y = g.reshape(Tensor(flat, [axis]), sizes)
    for d, (a, b) in enumerate(zip(sizes, wanted or sizes, strict=True)):
        if not g.same(a, b):
            y = padded(g, y, d, 0, b - a)
    return y


def col2im(g: Any, t: Tensor, sizes: Sequence[int], by: Windowing) -> Tensor:
    """Blocks summed where they lie in an image of these lengths: each element reads the blocks that cover it."""
    kernel, strides, dilations, pads, *_ = by
    k = len(sizes)
    counts = [(s + pads[j] + pads[j + k] - dilations[j] * (kernel[j] - 1) - 1) // strides[j] + 1 for j, s in enumerate(sizes)]
    channels = t.shape[1] // math.prod(kernel)
    t = g.full(g.reshape(t, [t.shape[0], channels, *kernel, *counts]))
    outs = [g.fresh(s) for s in sizes]
    index: dict[Axis, Any] = {}
    predicate = []
    for j, (r, o, i) in enumerate(zip(t.dims[2 : 2 + k], t.dims[2 + k :], outs, strict=True)):
        distance = Idx(i) + pads[j] - Idx(r) * dilations[j]
        index[o] = distance // strides[j]
        if strides[j] > 1:
            predicate.append(0 - distance % strides[j])
    inner = t.dims[2 : 2 + k]
    whole = {a: index.get(a, Idx(a)) for a in t.op.axes}
    read = reindex(t.op, axes=(*t.dims[:2], *inner, *outs), index=whole, predicate=tuple(predicate))
    return g.made(reduce.build(read, kind="add", axes=tuple(inner)), [*t.dims[:2], *outs])


# ---- convolution --------------------------------------------------------------------------------------------------------


def grouped(g: Any, v: Value, groups: int, dim: int) -> Tensor:
    """A tensor whose dim is split into groups and the rest."""
    shape = list(v.shape)
    if isinstance(shape[dim], int) and shape[dim] % groups:
        raise GraphError(f"{groups} groups do not divide dim {dim} of {list(shape)}")
    new = [*shape[:dim], groups, shape[dim] // groups, *shape[dim + 1 :]]
    return g.tensor(ConstantArray(v.array.reshape(new))) if isinstance(v, ConstantArray) else g.reshape(g.tensor(v), new)


def convolved(
    g: Any, x: Tensor, w: Tensor, numbers: Sequence[tuple[int, int, int, int]], outs: Sequence[Axis], accumulate: Any = None
) -> Tensor:
    """x [n, g, c, spatial…] with w [g, c, m, spatial…] gives [n, g, m, outs…]; numbers: stride, dilation, in_dilation, pad each."""
    k = len(outs)
    x = g.full(x, range(3, 3 + k))
    w = g.apart(g.full(w, range(3, 3 + k)), [*x.dims, *outs])
    names = list(w.dims)
    for j in (0, 1):
        if w.dims[j] is None and x.dims[j + 1] is not None and g.same(x.dims[j + 1].size, 1):
            x = g.squeezed(x, j + 1)
        elif x.dims[j + 1] is None and w.dims[j] is not None and g.same(w.dims[j].size, 1):
            w = g.squeezed(w, j)
        a, b = x.dims[j + 1], w.dims[j]
        if (a is None) != (b is None) or (a is not None and b is not None and not g.same(a.size, b.size)):
            what = "groups" if j == 0 else "channels of a group"
            raise GraphError(f"there are {g.hint(x.shape[j + 1])} {what}, and the filters are for {g.hint(w.shape[j])}")
        names[j] = a
    w = g.renamed(w, names)
    over = () if x.dims[2] is None else (x.dims[2],)
    spatial = tuple([(a, r, o, *m) for a, r, o, m in zip(x.dims[3:], w.dims[3:], outs, numbers, strict=True)])
    op = convolve.build(x.op, w.op, over=over, spatial=spatial, accumulate=accumulate or accumulator(x.dtype))
    return g.made(op, [x.dims[0], x.dims[1], w.dims[2], *outs])


def with_bias(g: Any, y: Tensor, bias: Value) -> Tensor:
    """y [n, c, …] plus a number for each channel."""
    if bias is None:
        return y
    b = g.tensor(bias)
    return each(g, lambda p, q: p + q, y, Tensor(b.op, [*b.dims, *[None] * (y.rank - 2)]))


def convolution(g: Any, x: Tensor, w: Value, by: Windowing, groups: int = 1, accumulate: Any = None) -> Tensor:
    """x [n, c, spatial…] with w [m, c / groups, kernel…]: [n, m, spatial…]."""
    ws = windows(g, x, by)
    k = len(ws)
    for j, v in enumerate(ws):
        if isinstance(v.before, Expr):  # a padding that depends on a length is put there first
            x = padded(g, x, 2 + j, v.before, v.after)
            ws[j] = v._replace(before=0)
    outs = outs_of(g, x, ws)
    numbers = [(v.stride, v.dilation, 1, g.number(v.before)) for v in ws]
    m = w.shape[0]
    if groups == 1:
        left, right = Tensor(x.op, [x.dims[0], None, *x.dims[1:]]), g.tensor(w)
        right = Tensor(right.op, [None, right.dims[1], right.dims[0], *right.dims[2:]])
        y = convolved(g, left, right, numbers, outs, accumulate)
        return Tensor(y.op, [y.dims[0], *y.dims[2:]])
    left = grouped(g, x, groups, 1)
    right = permuted(grouped(g, w, groups, 0), 0, 2, 1, *range(3, 3 + k))
    y = convolved(g, left, right, numbers, outs, accumulate)
    return g.reshape(y, [y.shape[0], m, *y.shape[3:]])


def conv_transpose(
    g: Any, t: Tensor, w: Value, by: Windowing, groups: int = 1, more: Sequence[int] | None = None, shape: Sequence[int] | None = None
) -> Tensor:
    """The transpose of a convolution: t [n, c, spatial…] with w [c, m / groups, kernel…]: [n, m, spatial…].

    more: elements behind each spatial dim. shape: of the result, or of its spatial dims, which then decides the padding.
    """
    kernel, strides, dilations, pads, auto, _ = by
    k = len(kernel)
    more = more or [0] * k
    outs, numbers = [], []
    for j in range(k):
        size = t.shape[2 + j]
        whole = (size - 1) * strides[j] + (more[j] + (kernel[j] - 1) * dilations[j] + 1)
        before: ExprLike = pads[j]
        count: ExprLike = whole - pads[j] - pads[j + k]
        if shape is not None or auto in ("SAME_UPPER", "SAME_LOWER"):
            count = shape[j - k] if shape is not None else size * strides[j]
            left = max(g.number(whole - count), 0)
            before = left // 2 if auto == "SAME_UPPER" else left - left // 2
        outs.append(g.resized(t.dims[2 + j], count))
        numbers.append((1, -dilations[j], strides[j], -g.number(before)))
    left_ = grouped(g, t, groups, 1)
    right = grouped(g, w, groups, 0)
    y = convolved(g, left_, right, numbers, outs)
    return g.reshape(y, [y.shape[0], product([groups, w.shape[1]]), *y.shape[3:]])


def deform_conv(g: Any, t: Tensor, w: Value, offset: Value, mask: Value, by: Windowing, groups: int, bends: int) -> Tensor:
    """Each tap of the filter reads where an offset says, between four elements; outside there is 0. bends: groups of offsets."""
    kernel = by.kernel
    if len(kernel) != 2:
        raise GraphError(f"a deformable convolution over {len(kernel)} dims; there is one over 2")
    ws = windows(g, t, by)
    batch, channels = t.shape[:2]
    taps = kernel[0] * kernel[1]
    counts = [v.many for v in ws]
    # offsets [n, b, taps, 2, oh, ow]; x [n, b, c / b, h, w]
    offs = g.full(g.reshape(g.tensor(offset), [batch, bends, kernel[0], kernel[1], 2, *counts]))
    data = grouped(g, t, bends, 1)
    data = g.full(data)
    offs = g.apart(offs, data.dims)
    offs = g.renamed(offs, [*data.dims[:2], *offs.dims[2:]])
    places = []
    for j, v in enumerate(ws):
        d = dtypes.float32
        r, o = offs.dims[2 + j], offs.dims[5 + j]
        base = e.cast(iota(o) * v.stride + iota(r) * v.dilation - v.before, d)
        two = offs.dims[4]
        shift = g.read(offs, [a if i != 4 else None for i, a in enumerate(offs.dims)], {two: j})
        places.append(base + e.cast(shift.op, d))
    read = between(data.op, data.dims[3:], places)
    if mask is not None:
        m = g.full(g.reshape(g.tensor(mask), [batch, bends, kernel[0], kernel[1], *counts]))
        m = g.renamed(m, [*data.dims[:2], offs.dims[2], offs.dims[3], offs.dims[5], offs.dims[6]])
        read = read * m.op
    y = g.made(read, [data.dims[0], data.dims[1], data.dims[2], *offs.dims[2:4], *offs.dims[5:7]])
    y = g.reshape(y, [batch, groups, channels // groups, taps, *counts])
    f = grouped(g, w, groups, 0)  # [g, m / g, c / g, kh, kw]
    f = g.reshape(f, [groups, f.shape[1], f.shape[2], taps])
    (a, b), dims = g.meet(
        [
            Tensor(y.op, [y.dims[0], y.dims[1], None, y.dims[2], y.dims[3], *y.dims[4:]]),
            Tensor(f.op, [None, f.dims[0], f.dims[1], f.dims[2], f.dims[3], None, None]),
        ]
    )
    over = tuple(d for d in dims[3:5] if d is not None)
    z = g.made(multiplied(a.op, b.op, over), [*dims[:3], *dims[5:]])
    return g.reshape(z, [batch, w.shape[0], *counts])

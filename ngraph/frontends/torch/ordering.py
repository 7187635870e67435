"""Translators of what depends on the order of values: sorted, ranked, counted; and of elements that are found by their place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph.frontends.positional import indexing, reductions, shapes
from ngraph.frontends.positional.elementwise import each
from ngraph.frontends.positional.products import multiplied
from ngraph.frontends.positional.values import ConstantArray, Tensor
from ngraph.frontends.torch import dtype as kinds
from ngraph.frontends.torch.checking import checked, refused
from ngraph.frontends.torch.graph import TorchNode
from ngraph.frontends.torch.indexing import combined
from ngraph.frontends.torch.pointwise import truth, where
from ngraph.frontends.torch.table import translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axis
from ngraph.op_graph.expr import Expr, Idx, maximum
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops import functions, sorting
from ngraph.ops.control import scan
from ngraph.ops.rearrange import broadcast, iota
from ngraph.ops.rearrange import product as size_product
from ngraph.ops.reduce import reduce

HALVINGS = 40  # of a row that is searched: rows have fewer than 2 ** 40 elements


def alone(n: TorchNode, a: Tensor) -> tuple[Tensor, Tensor]:
    """Returns what a tensor without dims gives where a value and its place are asked for."""
    return n.give(a), Tensor(e.filled(0, (), dtypes.int64), [])


def summed(x: Op, axis: Axis) -> Op:
    """The sum along an axis, which may be one that a tensor is the same along, of length 1."""
    return reduce.build(x, kind="add", axes=(axis,)) if axis in x.axes else x


def sortable(a: Tensor) -> Op:
    return e.cast(a.op, dtypes.uint8) if a.dtype.kind == "bool" else a.op


def along(n: TorchNode, a: Tensor, dim: int) -> tuple[Tensor, int, Axis]:
    """Returns a tensor with an axis along a dim, the dim counted from the start, and the axis."""
    k = dim % a.rank
    t = n.g.full(a, [k])
    axis = t.dims[k]
    assert axis is not None
    return t, k, axis


# ---- running extremes ---------------------------------------------------------------------------------------------------


def running(n: TorchNode, a: Tensor, dim: int, kind: str) -> tuple[Tensor, Tensor]:
    """The largest or smallest so far, and the last place where it stood."""
    if not a.rank:
        return alone(n, a)
    t, _, axis = along(n, a, dim)
    x = sortable(t)
    best = sorting.cumulate.build(x, kind=kind, axis=axis, exclusive=False, reverse=False)
    now = e.equal(x, best)
    if x.dtype.is_float:
        now = e.logical_or(now, functions.isnan(x))
    places = e.where(now, iota(axis, dtypes.int64), e.filled(0, (), dtypes.int64))
    places = sorting.cumulate.build(places, kind="max", axis=axis, exclusive=False, reverse=False)
    return n.give(n.g.made(best, t.dims)), n.g.made(places, t.dims)


@translates("aten.cummax")
def cummax(n: TorchNode, a: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return running(n, a, dim, "max")


@translates("aten.cummin")
def cummin(n: TorchNode, a: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return running(n, a, dim, "min")


@translates("aten.logcumsumexp", "aten._logcumsumexp")
def log_cumulated(n: TorchNode, a: Tensor, dim: int) -> Tensor:
    """A loop, since the largest so far is taken away at each place: no sum overflows, and none is lost beside a later one."""
    if not a.rank:
        return n.give(a)
    t, k, axis = along(n, n.of(a, kinds.wide(n.dtype)), dim)
    start = e.filled(float("-inf"), tuple([d for d in t.op.axes if d != axis]), t.dtype)

    def turn(so_far: Op, x: Op) -> tuple[Op, Op]:
        high, low = e.maximum(so_far, x), e.minimum(so_far, x)
        grown = high + e.log1p(e.exp(low - high))
        made = broadcast(e.where(e.less(e.absolute(high), float("inf")), grown, high), so_far.axes)
        return made, made

    _, found = scan(turn, start, t.op, axis)
    return n.give(n.g.made(found, t.dims))


# ---- ranks --------------------------------------------------------------------------------------------------------------


def ordered(n: TorchNode, a: Tensor, dim: int, descending: bool = False) -> tuple[Tensor, Tensor, int, Axis]:
    """Returns a tensor sorted along a dim, NaN as the largest, the place that each element had, the dim and its axis."""
    t, k, axis = along(n, a, dim)
    values, places = sorting.sort(sortable(t), axis, iota(axis, dtypes.int64), descending=descending, nan_largest=True)
    return n.g.made(values, t.dims), n.g.made(e.cast(places, dtypes.int64), t.dims), k, axis


@translates("aten.sort")
def sort(n: TorchNode, a: Any, *args: Any, **named: Any) -> tuple[Tensor, Tensor]:
    stable = "stable" in named or (args and (args[0] is None or isinstance(args[0], bool)))
    given = list(args[1:] if stable and args and "stable" not in named else args)
    dim = named.get("dim", given[0] if given else -1)
    descending = named.get("descending", given[1] if len(given) > 1 else False)
    if not a.rank:
        return alone(n, a)
    values, places, _, _ = ordered(n, a, dim, bool(descending))
    return n.give(values), places


@translates("aten.kthvalue")
def kth_value(n: TorchNode, a: Tensor, k: Any, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    if not a.rank:
        return alone(n, a)
    values, places, j, _ = ordered(n, a, dim)
    found = [shapes.at(n.g, t, j, k - 1) for t in (values, places)]
    value, place = [shapes.unsqueezed(t, [j]) if keepdim else t for t in found]
    return n.give(value), place


def middle(n: TorchNode, a: Tensor, dim: int, keep: bool, skip: bool) -> tuple[Tensor, Tensor]:
    """The lower one of the middle elements and its place; of those that are not NaN, or a NaN where there is one."""
    if not a.rank:
        return alone(n, a)
    values, places, k, axis = ordered(n, a, dim)
    last = e.cast(shapes.size_op(axis.size), dtypes.int64) - 1
    at = e.divide.build(last, e.filled(2, (), dtypes.int64))
    if values.dtype.is_float:
        numbers = summed(e.cast(e.logical_not(functions.isnan(values.op)), dtypes.int64), axis)
        if skip:
            at = e.maximum(e.divide.build(numbers - 1, e.filled(2, (), dtypes.int64)), 0)
        else:
            at = e.where(e.less_equal(numbers, last), numbers, at)
    here = e.equal(iota(axis, dtypes.int64), at)
    dims = [None if j == k else d for j, d in enumerate(values.dims)] if keep else [d for j, d in enumerate(values.dims) if j != k]
    value, place = (n.g.made(summed(e.where(here, t.op, 0), axis), dims) for t in (values, places))
    return n.give(value), place


def middle_of_all(n: TorchNode, a: Tensor, skip: bool) -> Tensor:
    if n.g.same(size_product(a.shape), 0):
        return n.of(float("nan"), n.dtype)
    return middle(n, n.g.reshape(a, [size_product(a.shape)]), 0, False, skip)[0]


@translates("aten.median.default")
def median_of_all(n: TorchNode, a: Tensor) -> Tensor:
    return middle_of_all(n, a, False)


@translates("aten.nanmedian.default")
def nanmedian_of_all(n: TorchNode, a: Tensor) -> Tensor:
    return middle_of_all(n, a, True)


@translates("aten.median.dim")
def median(n: TorchNode, a: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return middle(n, a, dim, keepdim, False)


@translates("aten.nanmedian.dim")
def nanmedian(n: TorchNode, a: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return middle(n, a, dim, keepdim, True)


@translates("aten.mode")
def mode(n: TorchNode, a: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The most frequent value, the smallest of several, and the last place where it stands."""
    if not a.rank:
        return alone(n, a)
    values, places, k, axis = ordered(n, a, dim)
    place = iota(axis, dtypes.int64)
    before = n.g.read(values, values.dims, {axis: maximum(Idx(axis) - 1, 0)}).op
    new = e.logical_or(e.not_equal(values.op, before), e.equal(place, 0))
    first = sorting.cumulate.build(
        e.where(new, place, e.filled(0, (), dtypes.int64)), kind="max", axis=axis, exclusive=False, reverse=False
    )
    at = reductions.best(place - first, (axis,), "max")  # the first place where a run is as long as the longest one
    here = e.equal(place, at)
    dims = [None if j == k else d for j, d in enumerate(values.dims)] if keepdim else [d for j, d in enumerate(values.dims) if j != k]
    value, found = (n.g.made(summed(e.where(here, t.op, 0), axis), dims) for t in (values, places))
    return n.give(value), found


# ---- rows that are searched ---------------------------------------------------------------------------------------------


@translates("aten.searchsorted")
def searchsorted(
    n: TorchNode, row: Tensor, values: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None, sorter: Any = None
) -> Tensor:
    """The place of each value in a sorted row: as many halvings as its length has bits."""
    right = right or side == "right"
    if sorter is not None:
        row = indexing.gathered_elements(n.g, row, sorter, row.rank - 1, "the row")
    wide = n.common(*n.node.args[:2])
    v = n.of(values, wide)
    size = row.shape[-1]
    bits = size.bit_length() if isinstance(size, int) else HALVINGS
    low = n.g.expanded(n.of(0, dtypes.int64), v.shape)
    high = n.g.expanded(n.of(size, dtypes.int64), v.shape)
    if n.g.same(size, 0):
        return n.give(low)
    row = n.of(row, wide)
    last = shapes.size_op(size, dtypes.int64) - 1

    def found(at: Tensor) -> Tensor:
        inside = Tensor(e.minimum(at.op, last), at.dims)
        if row.rank == 1:
            return indexing.gathered(n.g, row, inside, 0, "the row")
        return indexing.gathered_elements(n.g, row, inside, row.rank - 1, "the row")

    for _ in range(bits):
        at = each(n.g, lambda a, b: e.divide.build(a + b, e.filled(2, (), dtypes.int64)), low, high)
        below = each(n.g, lambda x, y: e.logical_not(e.less(y, x) if right else e.less_equal(y, x)), found(at), v)
        open_ = each(n.g, e.less, low, high)
        go = each(n.g, e.logical_and, below, open_)
        stop = each(n.g, lambda b, o: e.logical_and(e.logical_not(b), o), below, open_)
        low = each(n.g, lambda g, a, b: e.where(g, a + 1, b), go, at, low)
        high = each(n.g, lambda g, a, b: e.where(g, a, b), stop, at, high)
    return n.give(low)


@translates("aten.bucketize")
def bucketize(n: TorchNode, values: Any, row: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    return searchsorted(n, row, values, right=right)


@translates("aten.histc")
def histogram(n: TorchNode, a: Tensor, bins: Any = 100, low: Any = 0, high: Any = 0) -> Tensor:
    bins, low, high = [n.g.number(v) if isinstance(v, Expr) else v for v in (bins, low, high)]
    flat = n.g.full(n.g.reshape(a, [size_product(a.shape)]))
    x, axes = flat.op, tuple([d for d in flat.dims if d is not None])
    if low == high == 0 and not n.g.same(axes[0].size, 0):
        least, most = (reduce.build(x, kind=kind, axes=axes) for kind in ("min", "max"))
    else:
        least, most = (e.filled(n.dtype.np.type(v).item(), (), n.dtype) for v in (low, high))
    same = e.equal(least, most)
    least, most = e.where(same, least - 1.0, least), e.where(same, most + 1.0, most)
    at = e.cast(e.floor((x - least) * float(bins) / (most - least)), dtypes.int64)
    at = e.where(e.equal(at, bins), bins - 1, at)
    within = e.logical_and(e.less_equal(least, x), e.less_equal(x, most))
    empty = n.g.expanded(n.of(0, n.dtype), [bins])
    at_ = Tensor(e.where(within, at, e.filled(0, (), dtypes.int64)), flat.dims)
    ones = Tensor(e.cast(within, n.dtype), flat.dims)
    return indexing.scattered_elements(n.g, empty, at_, ones, 0, "add", "the histogram")


# ---- places in a row of all elements ------------------------------------------------------------------------------------


@translates("aten.take")
def take(n: TorchNode, a: Tensor, index: Tensor) -> Tensor:
    return indexing.gathered(n.g, n.g.reshape(a, [size_product(a.shape)]), index, 0, "the tensor")


@translates("aten.put")
def put(n: TorchNode, a: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    flat, at, values = (n.g.reshape(t, [size_product(t.shape)]) for t in (a, index, n.of(source, a.dtype)))
    kind = combined(a.dtype, "add" if accumulate else "set")
    made = indexing.scattered_elements(n.g, n.g.full(flat), at, values, 0, kind, "the tensor")
    return n.g.reshape(made, n.shape)


@translates("aten.masked_scatter")
def masked_scatter(n: TorchNode, a: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The k-th place where the mask holds gets the k-th element of the source; the call fails where the source has too few."""
    what, fix = "the source of masked_scatter has fewer elements than the mask has true places", "a source of mask.sum() elements or more"
    m = n.g.expanded(Tensor(truth(mask.op), mask.dims), n.shape)
    if n.g.same(size_product(source.shape), 0):
        return checked(n, n.g.expanded(a, n.shape), m, what, fix)
    flat = n.g.full(n.g.reshape(m, [size_product(n.shape)]))
    held = e.cast(flat.op, dtypes.int64)
    at = sorting.cumulate.build(held, kind="add", axis=flat.dims[0], exclusive=True, reverse=False)
    values = n.g.reshape(n.of(source, a.dtype), [size_product(source.shape)])
    most = shapes.size_op(values.shape[0], dtypes.int64) - 1
    nothing = refused(Tensor(e.logical_and(flat.op, e.less(most, at)), flat.dims), what, fix)
    found = indexing.gathered(n.g, values, Tensor(e.minimum(at, most) + nothing.op, flat.dims), 0, "the source")
    return where(n, m, n.g.reshape(found, n.shape), a)


@translates("aten._trilinear")
def trilinear(
    n: TorchNode,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    """Three tensors with new dims multiplied, and summed over dims."""
    ts = [shapes.unsqueezed(t, list(given)) if given else t for t, given in ((a, expand1), (b, expand2), (c, expand3))]
    met, dims = n.g.meet(ts)
    axes = tuple([dims[k] for k in sumdim if dims[k] is not None])
    first = multiplied(met[0].op, met[1].op, tuple([d for d in axes if d not in met[2].op.axes]))
    made = multiplied(first, met[2].op, tuple([d for d in axes if d in met[2].op.axes]))
    return n.give(n.g.made(made, [d for k, d in enumerate(dims) if k not in sumdim]))


# ---- distances ----------------------------------------------------------------------------------------------------------


def differences(n: TorchNode, a: Tensor, b: Tensor) -> Tensor:
    """[…, rows of a, rows of b, columns]: each row less each other one."""
    left = Tensor(a.op, [*a.dims[:-1], None, a.dims[-1]])
    right = Tensor(b.op, [*b.dims[:-2], None, *b.dims[-2:]])
    return each(n.g, e.subtract, left, right)


@translates("aten._cdist_forward")
def distances(n: TorchNode, a: Tensor, b: Tensor, p: float, mode: Any = None) -> Tensor:
    d = differences(n, a, b)
    size = Tensor(e.absolute(d.op), d.dims)
    axes = reductions.along(size, [size.rank - 1])
    x = size.op

    def summed(y: Op, kind: str = "add") -> Op:
        return reduce.build(y, kind=kind, axes=axes) if axes else y

    if n.g.same(a.shape[-1], 0):
        return n.g.expanded(n.of(0, n.dtype), n.shape)
    if p == 0:
        made = summed(e.cast(e.not_equal(x, 0.0), x.dtype))
    elif p == float("inf"):
        made = summed(x, "max")
    elif p == 1:
        made = summed(x)
    elif p == 2:
        made = e.sqrt(summed(x * x))
    else:
        made = e.power(summed(e.power(x, float(p))), 1.0 / p)
    return n.g.made(made, size.dims[:-1])


@translates("aten._pdist_forward")
def pair_distances(n: TorchNode, a: Tensor, p: float = 2.0) -> Tensor:
    """The distances of all pairs of rows, each pair once."""
    rows = n.g.number(a.shape[0])
    if rows < 2:
        return n.g.expanded(n.of(0, n.dtype), n.shape)
    i, j = np.triu_indices(rows, 1)
    first, other = (indexing.gathered(n.g, a, ConstantArray(k.astype(np.int64)), 0, "the rows") for k in (i, j))
    found = distances(
        n, Tensor(first.op, [first.dims[0], None, *first.dims[1:]]), Tensor(other.op, [other.dims[0], None, *other.dims[1:]]), p
    )
    return n.g.reshape(found, n.shape)


@translates("aten._cdist_backward")
def distances_backward(n: TorchNode, dy: Tensor, a: Tensor, b: Tensor, p: float, found: Tensor) -> Tensor:
    """The derivative for the first rows; where two rows are equal it is 0."""
    d = differences(n, a, b)
    over, by = (Tensor(t.op, [*t.dims, None]) for t in (found, dy))

    def slope(x: Op, r: Op, g: Op) -> Op:
        sign = e.sign(x)
        if p == 0:
            made = x * 0.0
        elif p == 1:
            made = sign * g
        elif p == float("inf"):
            made = sign * g * e.cast(e.equal(e.absolute(x), r), x.dtype)
        elif p == 2:
            made = g * x / r
        else:
            made = sign * e.power(e.absolute(x), p - 1.0) * g / e.power(r, p - 1.0)
        return e.where(e.logical_or(e.equal(r, 0.0), e.equal(x, 0.0)), 0.0, made)

    s = each(n.g, slope, d, over, by)
    axes = reductions.along(s, [s.rank - 2])
    total = reduce.build(s.op, kind="add", axes=axes) if axes else s.op
    return n.g.expanded(n.g.made(total, [*s.dims[:-2], s.dims[-1]]), n.shape)

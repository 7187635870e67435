"""Statistics along axes: deviations, norms, quantiles, tests of all elements; sums by segment, counts, and places in sorted tensors.

Without `reduction_axes` and `out_axes` all but batch and recurrent axes are reduced, as in `ng.sum`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ngraph.errors import ArgumentError, AxisError
from ngraph.op_graph import dtypes
from ngraph.op_graph.arguments import one_of
from ngraph.op_graph.axes import Axes, Axis, as_axis, make_axis
from ngraph.op_graph.expr import Idx
from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import find_axis, own_axes, show_input
from ngraph.ops.control import scan
from ngraph.ops.elementwise import (
    absolute,
    as_op,
    cast,
    common,
    constant,
    equal,
    filled,
    floating,
    floor,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    not_equal,
    power,
    rounded,
    rounding_once,
    sqrt,
    where,
)
from ngraph.ops.functions import isinf, isnan, logaddexp
from ngraph.ops.indexing import gather, scatter
from ngraph.ops.rearrange import broadcast, flatten, iota, map_roles, reindex
from ngraph.ops.reduce import averaged, count, in_order, listed, reduce, reduced_axes, reduction, var_record
from ngraph.ops.sorting import compact, cumsum, sort, sort_record
from ngraph.ops.state import parts

# ---- deviations and norms ---------------------------------------------------------------------------------------------


def root(x: Op) -> Op:
    """Returns the square root, whose derivative at 0 is 0."""
    none = equal(x, 0.0)
    return where(none, 0.0, sqrt(where(none, 1.0, x)))


def std(x: Any, reduction_axes: Any = None, out_axes: Any = None, correction: float = 0) -> Op:
    """Returns the standard deviation, the square root of `ng.var` of the same arguments; its derivative is 0 where it is 0.

    >>> import ngraph as ng
    >>> from ngraph.util.utils import executor
    >>> executor(ng.std(ng.constant([1.0, 3.0], "H=2")))()
    array(1.)
    """
    x = averaged(as_op(x))
    out_axes = listed(out_axes)
    gone = reduced_axes(x, reduction_axes, out_axes, "std")
    made = rounding_once(lambda x: root(var_record.build(x, axes=gone, correction=correction)))(x)
    return made if out_axes is None else in_order(made, out_axes)


def largest_size(x: Op, axes: Any) -> Op:
    """Returns the largest of sizes, which are 0 or more, along these axes; of nothing 0."""
    found = reduce.build(x, kind="max", axes=own_axes(x, axes, "max"))
    lengths = [a.length for a in axes]
    if None not in lengths and 0 not in lengths:
        return found
    return where(equal(count(axes), 0.0), 0.0, found)


def norm(x: Any, p: float = 2, reduction_axes: Any = None, out_axes: Any = None) -> Op:
    """Returns the p-norm: the sum of |x| to the p, to the power of 1 / p. Integers and bool become float32.

    p: 2 for the Euclidean length; infinity for the largest |x|, -infinity for the smallest, 0 for how many are not 0. Of nothing 0, and
    infinity where p is negative. Axes as in `ng.sum`.
    The derivative of the Euclidean length is 0 where it is 0. `ng.L2_norm` adds an epsilon.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.norm(ng.constant([3.0, 4.0], "H=2")))()
        array(5.)
    """
    (x,), _ = floating((as_op(x),), {})
    out_axes = listed(out_axes)
    gone = reduced_axes(x, reduction_axes, out_axes, "norm")

    def made(x: Op) -> Op:
        if math.isinf(p):
            return largest_size(absolute(x), gone) if p > 0 else reduce.build(absolute(x), kind="min", axes=gone)
        if p == 0:
            return reduce.build(cast(not_equal(x, 0.0), x.dtype), kind="add", axes=gone)
        if p in (1, 2):
            total = reduce.build(x * x if p == 2 else absolute(x), kind="add", axes=gone)
            return root(total) if p == 2 else total
        return power(reduce.build(power(absolute(x), float(p)), kind="add", axes=gone), 1 / p)

    found = rounding_once(made)(x)
    return found if out_axes is None else in_order(found, out_axes)


def any(x: Any, reduction_axes: Any = None, out_axes: Any = None) -> Op:
    """Returns whether at least one element is true, as bool; numbers are true unless they are 0. Of nothing False. Axes as in `ng.sum`.

    >>> import ngraph as ng
    >>> from ngraph.util.utils import executor
    >>> executor(ng.any(ng.constant([0.0, 2.0], "H=2")))()
    array(True)
    """
    return reduction(cast(x, dtypes.bool_), "max", reduction_axes, out_axes)


def all(x: Any, reduction_axes: Any = None, out_axes: Any = None) -> Op:
    """Returns whether every element is true, as bool; numbers are true unless they are 0. Of nothing True. Axes as in `ng.sum`.

    >>> import ngraph as ng
    >>> from ngraph.util.utils import executor
    >>> executor(ng.all(ng.constant([0.0, 2.0], "H=2")))()
    array(False)
    """
    return reduction(cast(x, dtypes.bool_), "min", reduction_axes, out_axes)


# ---- quantiles --------------------------------------------------------------------------------------------------------


def _behind(low: Op, part: Op) -> Op:
    return cast(less(0.0, part), part.dtype)


def _to_odd(low: Op, part: Op) -> Op:
    odd = where(equal(part, 0.5), 1.0 - low % 2.0, 0.0)  # the nearest place, which is the odd one, counted from 0, for a part of 1/2
    return maximum(cast(less(0.5, part), part.dtype), odd)


def _part(low: Op, part: Op) -> Op:
    return part


# A share q of n elements stands at the place n q + alpha + (1 - alpha - beta) q - 1 among them, sorted. Of a place between two elements
# `read` says what is read: by "one" the element at the place before it plus a step of 0 or 1, by "two" both, with the weight of the upper.
# alpha, beta, read, and the step or weight from the place before and the part of the way behind it: names and values are NumPy's.
_METHODS: dict[str, tuple[float, float, str, Callable[[Op, Op], Op]]] = {
    "linear": (1, 1, "two", _part),
    "lower": (1, 1, "one", lambda low, part: part * 0.0),
    "higher": (1, 1, "one", _behind),
    "nearest": (1, 1, "one", lambda low, part: rounded(low + part) - low),
    "midpoint": (1, 1, "two", lambda low, part: _behind(low, part) * 0.5),
    "inverted_cdf": (0, 1, "one", _behind),
    "averaged_inverted_cdf": (0, 1, "two", lambda low, part: _behind(low, part) * 0.5 + 0.5),
    "closest_observation": (0, 1, "one", _to_odd),
    "interpolated_inverted_cdf": (0, 1, "two", _part),
    "hazen": (0.5, 0.5, "two", _part),
    "weibull": (0, 0, "two", _part),
    "median_unbiased": (1 / 3, 1 / 3, "two", _part),
    "normal_unbiased": (3 / 8, 3 / 8, "two", _part),
}


def _one_axis(x: Op, axes: Axes) -> tuple[Op, Axis]:
    """Returns `x` with these axes joined into one, and that axis."""
    if len(axes) == 1:
        return x, axes[0]
    kept = [a for a in x.axes if a not in axes]
    x = flatten(x, axes) if axes else broadcast(x, (*x.axes, make_axis(1)))
    return x, next(a for a in x.axes if a not in kept)


def quantile(x: Any, q: Any, reduction_axes: Any = None, out_axes: Any = None, method: str = "linear") -> Op:
    """Returns the value below which a share `q` of the elements lies: from 0, the smallest, to 1, the largest. NaN where one is NaN, and
    where there are no elements.

    q: a number, or a tensor, whose axes the result has first. method: the element or elements that are taken for a share between two, by
    NumPy's names: `linear`, `lower`, `higher`, `nearest`, `midpoint`, `inverted_cdf`, `averaged_inverted_cdf`, `closest_observation`,
    `interpolated_inverted_cdf`, `hazen`, `weibull`, `median_unbiased`, `normal_unbiased`. Axes as in `ng.sum`; integers and bool become
    float32. The derivative goes to the elements that are chosen.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.quantile(ng.constant([1.0, 2.0, 4.0], "H=3"), 0.75))()
        array(3.)
    """
    one_of("quantile", "method", method, _METHODS)
    if isinstance(q, (int, float)) and not 0 <= q <= 1:
        raise ArgumentError(f"the quantile at {q}", fix="take a share from 0 to 1; a percentile is 100 times it")
    (x,), _ = floating((as_op(x),), {})
    out_axes = listed(out_axes)
    gone = reduced_axes(x, reduction_axes, out_axes, "quantile")
    rows, axis = _one_axis(x, gone)
    inner = dtypes.float64 if x.dtype is dtypes.float64 else dtypes.float32
    share = cast(q, inner) if isinstance(q, Op) else constant(q, dtype=inner)
    ordered = sort(rows, axis)
    many = count((axis,), inner)
    alpha, beta, reads, chosen = _METHODS[method]
    place = share * (many - 1.0) if alpha == beta == 1 else many * share + (alpha + share * (1 - alpha - beta)) - 1.0
    low = floor(place)
    step = chosen(low, place - low)

    def read(i: Op) -> Op:
        return gather(ordered, cast(minimum(maximum(i, 0.0), many - 1.0), dtypes.int32), axes=(axis,), mode="clip")

    if reads == "one":
        found = read(low + step)
    else:
        below, above = read(low), read(low + 1.0)
        alike = logical_and(equal(below, above), isinf(below))
        found = where(alike, below, below + (above - below) * cast(step, x.dtype))
    last = read(many - 1.0)
    found = where(isnan(last), last, found)  # NaN stands last
    if not axis.length:  # 0, or open
        found = where(equal(many, 0.0), math.nan, found)
    order = [*share.axes, *(a for a in x.axes if a not in gone)]
    return broadcast(found, order) if out_axes is None else in_order(found, [*share.axes, *own_axes(x, out_axes, "quantile")])


def median(x: Any, reduction_axes: Any = None, out_axes: Any = None) -> Op:
    """Returns the middle element, or the mean of the two in the middle, as in NumPy; NaN where one is NaN. All else as in `quantile`.

    >>> import ngraph as ng
    >>> from ngraph.util.utils import executor
    >>> executor(ng.median(ng.constant([5.0, 1.0, 2.0, 9.0], "H=4")))()
    array(3.5)
    """
    return quantile(x, 0.5, reduction_axes, out_axes)


# ---- segments and counts ----------------------------------------------------------------------------------------------


def _segments(x: Any, ids: Any, segments: Axis | str, axis: Any, combine: str, start: Any, name: str) -> tuple[Op, Op, Axis, Axis]:
    """Returns what is combined by segment, the ids, the axis that they replace, and that of the segments."""
    x, ids = as_op(x), as_op(ids)
    out = as_axis(segments)
    if axis is None and len(ids.axes) != 1:
        raise AxisError(f"{name}: the ids have {len(ids.axes)} axes", details=(show_input(ids),), fix="say axis=, the one that goes")
    along = find_axis(ids, ids.axes[0] if axis is None else axis, name)
    find_axis(x, along, name)
    if out in x.axes:
        raise AxisError(f"{name}: x has {out!r} already", details=(show_input(x),), fix="take a new axis for the segments")
    if not ids.dtype.is_integer:
        raise ArgumentError(f"{name} by ids of {ids.dtype}", fix="cast them: ng.cast(ids, 'int32')")
    rest = [a for a in x.axes if a != along]
    base = filled(start(x.dtype), (out, *rest), x.dtype)
    return scatter(base, ids, x, axes=(out,), combine=combine, mode="fill"), ids, along, out


def segment_sum(x: Any, ids: Any, segments: Axis | str, axis: Axis | str | None = None) -> Op:
    """Returns for each segment the sum of the elements of `x` with its number, along `segments`, which stands first; of none 0.

    ids: integers along an axis of x, which goes; those outside count nowhere. segments: a new axis, or text such as "S=4".
    axis: the axis that goes, where `ids` has more than one. Bool is counted as int32. Raises AxisError.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> x, ids = ng.constant([1.0, 2.0, 4.0], "N=3"), ng.constant([0, 2, 0], "N=3", dtype="int32")
        >>> executor(ng.segment_sum(x, ids, "S=3"))()
        array([5., 0., 2.])
    """
    x = as_op(x)
    x = cast(x, dtypes.int32) if x.dtype.kind == "bool" else x
    return _segments(x, ids, segments, axis, "add", lambda d: 0, "segment_sum")[0]


def segment_max(x: Any, ids: Any, segments: Axis | str, axis: Axis | str | None = None) -> Op:
    """Returns for each segment the largest element of `x` with its number; of none the lowest number, -infinity of floats.

    All else as in `segment_sum`. Equal elements share the gradient.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> x, ids = ng.constant([1.0, 2.0, 4.0], "N=3"), ng.constant([0, 1, 0], "N=3", dtype="int32")
        >>> executor(ng.segment_max(x, ids, "S=2"))()
        array([4., 2.])
    """
    return _segments(x, ids, segments, axis, "max", lambda d: d.lowest, "segment_max")[0]


def segment_mean(x: Any, ids: Any, segments: Axis | str, axis: Axis | str | None = None) -> Op:
    """Returns for each segment the mean of the elements of `x` with its number; of none 0. Integers and bool become float32.

    All else as in `segment_sum`.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> x, ids = ng.constant([1.0, 2.0, 4.0], "N=3"), ng.constant([0, 1, 0], "N=3", dtype="int32")
        >>> executor(ng.segment_mean(x, ids, "S=2"))()
        array([2.5, 2. ])
    """
    (x,), _ = floating((as_op(x),), {})

    def made(x: Op) -> Op:
        total, i, along, out = _segments(x, ids, segments, axis, "add", lambda d: 0, "segment_mean")
        ones = filled(1, i.axes, x.dtype)
        base = filled(0, (out, *(a for a in i.axes if a != along)), x.dtype)
        many = scatter(base, i, ones, axes=(out,), combine="add", mode="fill")
        return total / maximum(many, 1.0)

    return rounding_once(made)(x)


def bincount(x: Any, bins: Axis | str, weights: Any = None, reduction_axes: Any = None) -> Op:
    """Returns how often each number from 0 on is in `x`, along `bins`, which stands first: int32, or the sums of `weights`.

    bins: a new axis, as long as there are numbers, or text such as "K=10"; numbers outside are not counted. weights: with axes of x.
    reduction_axes: the axes of x that are counted along, all by default.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.bincount(ng.constant([1, 3, 1], "N=3", dtype="int32"), "K=4"))()
        array([0, 2, 0, 1], dtype=int32)
    """
    x, out = as_op(x), as_axis(bins)
    if not x.dtype.is_integer:
        raise ArgumentError(f"bincount of {x.dtype}", fix="cast it: ng.cast(x, 'int32'), or take ng.histogram")
    gone = x.axes if reduction_axes is None else own_axes(x, reduction_axes, "bincount")
    w = filled(1, x.axes, dtypes.int32) if weights is None else broadcast(as_op(weights), x.axes)
    x, axis = _one_axis(x, gone)
    w, _ = _one_axis(w, gone)
    base = filled(0, (out, *(a for a in x.axes if a != axis)), w.dtype)
    return scatter(base, x, broadcast(w, x.axes), axes=(out,), combine="add", mode="fill")


def histogram(x: Any, bins: Axis | str, low: Any = None, high: Any = None, reduction_axes: Any = None) -> tuple[Op, Op]:
    """Returns (counts, edges): how many elements lie in each of equal parts from `low` to `high`, int32, and the parts' ends.

    bins: a new axis, as long as there are parts, or text such as "K=10"; the edges have one more along it. low, high: numbers or scalars,
    by default the smallest and the largest element. A part holds its lower end, and the last one its upper end; what lies outside, and
    NaN, is not counted. reduction_axes: as in `bincount`.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> counts, edges = ng.histogram(ng.constant([0.0, 1.0, 1.5, 4.0], "N=4"), "K=2")
        >>> executor(counts)()
        array([3, 1], dtype=int32)
    """
    (x,), _ = floating((as_op(x),), {})
    out = as_axis(bins)
    inner = dtypes.accumulator(x.dtype)
    x = cast(x, inner)
    first, last = (
        cast(as_op(e), inner) if e is not None else reduce.build(x, kind=kind, axes=x.axes) for e, kind in ((low, "min"), (high, "max"))
    )
    flat = equal(first, last)  # NumPy's way: half below and half above
    first, last = where(flat, first - 0.5, first), where(flat, last + 0.5, last)
    ends = out.resized(out.size + 1)
    i = iota(ends, inner)
    n = count((out,), inner)
    edges = where(equal(i, n), last, first + i * ((last - first) / n))
    inside = logical_and(less_equal(first, x), less_equal(x, last))
    at = minimum(floor((where(inside, x, first) - first) / (last - first) * n), n - 1.0)

    def edge(k: Op) -> Op:
        return gather(edges, cast(k, dtypes.int32), axes=(ends,), mode="clip")

    at = at - cast(less(x, edge(at)), inner)
    at = at + cast(logical_and(less_equal(edge(at + 1.0), x), less(at, n - 1.0)), inner)
    return bincount(cast(where(inside, at, -1.0), dtypes.int32), out, reduction_axes=reduction_axes), edges


# ---- sorted tensors ---------------------------------------------------------------------------------------------------


def argsort(x: Any, axis: Axis | str, descending: bool = False) -> Op:
    """Returns the positions along `axis` that sort `x`, int32; stable, NaN last. `ng.take(x, ng.argsort(x, "H"), "H")` is sorted.

    >>> import ngraph as ng
    >>> from ngraph.util.utils import executor
    >>> executor(ng.argsort(ng.constant([3.0, 1.0, 2.0], "H=3"), "H"))()
    array([1, 2, 0], dtype=int32)
    """
    x = as_op(x)
    along = find_axis(x, axis, "argsort")
    places = broadcast(iota(along), x.axes)
    return parts(sort_record.build(x, places, axis=along, descending=bool(descending), nan_largest=False))[1]


def searchsorted(ordered: Any, values: Any, axis: Axis | str | None = None, side: str = "left") -> Op:
    """Returns where `values` would be put into a sorted tensor so that it stays sorted: from 0 to its length, int32.

    ordered: ascending along `axis`, its only one by default; other axes that both have are the same index. side: `left`, in front of
    equal elements, or `right`, behind them. NaN counts as the largest number.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.searchsorted(ng.constant([1.0, 3.0, 5.0], "H=3"), ng.constant([3.0, 9.0], "N=2")))()
        array([1, 3], dtype=int32)
    """
    one_of("searchsorted", "side", side, ("left", "right"))
    rows, v = common((as_op(ordered), values))
    if axis is None and len(rows.axes) != 1:
        raise AxisError(f"searchsorted: {rows.label} has {len(rows.axes)} axes", details=(show_input(rows),), fix="say axis=")
    along = find_axis(rows, rows.axes[0] if axis is None else axis, "searchsorted")
    if along in v.axes:
        inner = make_axis(name=f"{along.name}_sorted").resized(along.size)
        rows, along = map_roles(rows, {along: inner}), inner
    n = along.length
    many = count((along,), dtypes.int32) if n is None else n
    axes = [*v.axes, *(a for a in rows.axes if a != along and a not in v.axes)]
    at = filled(0, axes, dtypes.int32)
    step = 1 << (30 if n is None else max(n.bit_length() - 1, 0))
    while step and n != 0:  # `at` elements stand in front; more, by halves
        probe = gather(rows, at + (step - 1), axes=(along,), mode="fill" if n is None else "clip")
        smaller = less(probe, v) if side == "left" else less_equal(probe, v)
        if v.dtype.is_float:
            smaller = logical_or(
                smaller, logical_and(isnan(v), logical_not(isnan(probe)) if side == "left" else filled(True, (), dtypes.bool_))
            )
        inside = less_equal(at + step, many)
        at = where(logical_and(smaller, inside), at + step, at)
        step >>= 1
    return at


def unique(x: Any, name: str | None = None, inverse: bool = False, counts: bool = False) -> Any:
    """Returns the different elements of `x`, sorted, along a new axis whose length the computation determines; NaN once, last.

    name: of the new axis. inverse: also the place of each element of x among them, int32, with the axes of x. counts: also how often
    each is there, int32. With one of them the result is a tuple, in this order. The derivative of an element goes to the first of its kind.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.unique(ng.constant([3.0, 1.0, 3.0], "H=3")))()
        array([1., 3.])
    """
    x = as_op(x)
    rows, axis = _one_axis(x, x.axes)
    ordered, came_from = parts(sort_record.build(rows, iota(axis), axis=axis, descending=False, nan_largest=False))
    before = reindex(ordered, axes=(axis,), index={axis: Idx(axis) - 1})
    fresh = not_equal(ordered, before)
    if x.dtype.is_float:
        fresh = logical_and(fresh, logical_not(logical_and(isnan(ordered), isnan(before))))
    fresh = logical_or(fresh, equal(iota(axis), 0))
    places, many = compact(fresh, name=name)
    values = gather(ordered, places, axes=(axis,), mode="clip")
    found: list[Op] = [values]
    if inverse:
        rank = cumsum(fresh, axis) - 1
        went = scatter(filled(0, (axis,), dtypes.int32), came_from, rank, axes=(axis,), combine="set", mode="clip")
        found.append(went if x.axes == rows.axes else _apart(went, axis, x.axes))
    if counts:
        (new,) = places.axes
        following = gather(places, iota(new) + 1, axes=(new,), mode="clip")
        after = where(equal(iota(new) + 1, many), count((axis,), dtypes.int32), following)
        found.append(after - places)
    return values if len(found) == 1 else tuple(found)


def _apart(x: Op, axis: Axis, axes: Axes) -> Op:
    """Returns `x` along `axis` with the axes that it joins."""
    if not axes:
        return reindex(x, axes=(), index={axis: 0})
    at: Any = 0
    for a in axes:
        at = at * a.size + Idx(a)
    return reindex(x, axes=axes, index={axis: at})


def logcumsumexp(x: Any, axis: Axis | str, reverse: bool = False) -> Op:
    """Returns the logarithm of the cumulative sum of e to the x along `axis`, without overflow. Integers and bool become float32.

    reverse: from the end. Raises AxisError for an axis that x lacks.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.logcumsumexp(ng.constant([1000.0, 1000.0], "H=2"), "H"))()
        array([1000.        , 1000.69314718])
    """
    (x,), _ = floating((as_op(x),), {})
    along = find_axis(x, axis, "logcumsumexp")
    rest = [a for a in x.axes if a != along]

    def made(x: Op) -> Op:
        def step(carry: Op, now: Op) -> tuple[Op, Op]:
            total = logaddexp(carry, now)
            return total, total

        return broadcast(scan(step, filled(-math.inf, rest, x.dtype), x, along, reverse=reverse)[1], x.axes)

    return rounding_once(made)(x)

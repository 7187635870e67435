"""Ops that compare along an axis: argmax and argmin, cumulative sums and others, sorting, and positions of true elements.

NaN counts as the largest in `argreduce` of either kind (the first one is chosen), is last in `sort` in either order unless it counts as
the largest there, and propagates in cumulative values from its position on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngraph.errors import AxisError, DTypeError
from ngraph.op_graph import dtypes, expr
from ngraph.op_graph.arguments import DTYPE
from ngraph.op_graph.axes import Axes, Axis, make_axis, show_axes
from ngraph.op_graph.dtypes import computes
from ngraph.op_graph.expr import ExprLike, Run
from ngraph.op_graph.op import Op, TensorType
from ngraph.op_graph.opdef import REGISTRY, Call, OpDef, find_axis, op, own_axes
from ngraph.ops.aligned import align, axes_like, wide
from ngraph.ops.control import effect, scan
from ngraph.ops.elementwise import ALL, as_op, cast, equal, filled, less, logical_and, logical_not, logical_or, maximum, not_equal, where
from ngraph.ops.rearrange import broadcast, iota, product
from ngraph.ops.reduce import KINDS, in_order, listed, reduced_axes
from ngraph.ops.state import parts, sequential_record


def _has(name: str, x: TensorType, axes: Sequence[Any]) -> None:
    missing = [a for a in axes if a not in x.axes]
    if missing:
        raise AxisError(f"{name}: {', '.join(map(str, missing))} is not an axis of {list(x.axes)}")


# ---- argmax and argmin ------------------------------------------------------------------------------------------------


def _argreduce_type(inputs: tuple[TensorType, ...], kind: str, axes: tuple[Any, ...]) -> TensorType:
    (x,) = inputs
    _has(f"argreduce {kind}", x, axes)
    computes(f"argreduce {kind}", x.dtype)
    empty = [a for a in axes if type(a) is Axis and a.length == 0]
    if empty:
        raise AxisError(
            f"arg{kind} along {show_axes(empty)}: among no elements there is none to choose",
            fix=f"reduce other axes, or give {empty[0].label} at least one element",
        )
    return TensorType(axes_like(x.axes, [a for a in x.axes if a not in axes]), dtypes.int32)


def _argreduce(call: Call, x: np.ndarray) -> np.ndarray:
    kind, axes = call.attrs["kind"], call.attrs["axes"]
    rows = align(wide(x), call.inputs[0].axes, (*call.axes, *axes)).reshape(
        *call.shape(call.axes), int(np.prod(call.shape(axes), dtype=int))
    )
    return np.asarray({"max": np.argmax, "min": np.argmin}[kind](rows, axis=-1)).astype(np.int32)


argreduce: OpDef = op(
    "argreduce",
    "Where the largest or smallest (`kind`: `max min`) stands: the flat position over `axes` in that order; the first of equal ones, "
    "the first NaN before all; of nothing an error.",
    form="(x; kind, axes) → int32",
    type=_argreduce_type,
    reference=_argreduce,
    samples=lambda s: [
        argreduce.build(x, kind=kind, axes=axes)
        for kind in ("max", "min")
        for x, axes in (
            (s.x(s.I, s.J), (s.J,)),
            (s.x(s.J, s.I, s.K), (s.I, s.J)),
            (s.x(s.J, s.I, s.K), (s.K, s.J, s.I)),
            (s.x(s.I, s.J), ()),
            (s.x(), ()),
            (s.x(s.I, s.I - 1), (s.I - 1,)),
            (s.x(s.O, s.I), (s.O,)),
            (s.x(s.Z, s.J), (s.J,)),
            *((s.special(s.N, s.I, s.J), axes) for axes in ((s.N,), (s.I,), (s.J, s.I))),
        )
    ],
    kinds=ALL,
    onnx="ArgMax",
)
argreduce.attrs["nonempty"] = "axes"  # the attribute that lists axes which must not be empty


def _names_axes(x: Op, said: Any) -> bool:
    """Whether this stands for axes where a dtype may stand: it is none, or the name of an axis of x."""
    return said is not None and (not DTYPE.fits(said) or isinstance(said, str) and bool(x.axes.find_by_name(said)))


def _where_best(x: Any, kind: str, dtype: Any, reduction_axes: Any, out_axes: Any) -> Op:
    x = as_op(x)
    if reduction_axes is None and _names_axes(x, dtype):
        dtype, reduction_axes = None, dtype
    named = None if reduction_axes is None else own_axes(x, reduction_axes, f"arg{kind}")
    out_axes = listed(out_axes)
    gone = reduced_axes(x, named, out_axes, f"arg{kind}")
    gone = gone if named is None else named  # their order defines the flat position
    found = argreduce.build(x, kind=kind, axes=gone)
    for a in gone:
        for leaf in expr.leaves(a.size):
            if isinstance(leaf, Run):  # a length that the call determines
                some = effect.build(leaf.of, kind="nonempty", text=f"arg{kind} along {a.label}")
                found = sequential_record.build(some, found)
    result = cast(found, dtype or dtypes.int32)
    return result if out_axes is None else in_order(result, out_axes)


def argmax(x: Any, dtype: Any = None, reduction_axes: Any = None, out_axes: Any = None) -> Op:
    """Returns the position of the maximum, int32 unless `dtype` is given; the first of equal ones, the first NaN before all.

    reduction_axes, out_axes: as in `sum`; axes may stand second, too: `ng.argmax(x, "K")`.
    Over several axes it is the flat position, in the order of `reduction_axes` (else of x's
    axes). Raises AxisError for axes that x lacks, or of length 0; the call checks an unknown length.

    >>> ng.function(ng.argmax(ng.constant([[1, 5, 2], [7, 0, 7]], "N=2 H=3"), reduction_axes="H"))()
    ComputedArray([1, 0], dtype=int32)
    """
    return _where_best(x, "max", dtype, reduction_axes, out_axes)


def argmin(x: Any, dtype: Any = None, reduction_axes: Any = None, out_axes: Any = None) -> Op:
    """Returns the position of the minimum; all else as in `argmax`.

    >>> ng.function(ng.argmin(ng.constant([[1, 5, 2], [7, 0, 7]], "N=2 H=3"), reduction_axes="H"))()
    ComputedArray([0, 1], dtype=int32)
    """
    return _where_best(x, "min", dtype, reduction_axes, out_axes)


# ---- running values ---------------------------------------------------------------------------------------------------


def _identity(kind: str, dtype: Any) -> Any:
    return {"add": 0, "multiply": 1, "max": dtype.lowest, "min": dtype.highest}[kind]


def _cumulate_type(inputs: tuple[TensorType, ...], kind: str, axis: Any, exclusive: bool, reverse: bool) -> TensorType:
    (x,) = inputs
    _has(f"cumulate {kind}", x, (axis,))
    computes(f"cumulate {kind}", x.dtype)
    if x.dtype.kind == "bool" and kind in ("add", "multiply"):
        raise DTypeError(f"cumulate {kind} of bool", fix="cast to an integer first: ng.cast(x, 'int32')")
    return x


def _cumulate(call: Call, x: np.ndarray) -> np.ndarray:
    kind, reverse = call.attrs["kind"], call.attrs["reverse"]
    rows = np.moveaxis(wide(x), call.inputs[0].axes.index(call.attrs["axis"]), 0)
    rows = rows[::-1] if reverse else rows
    if call.attrs["exclusive"] and len(rows):
        first = np.full((1, *rows.shape[1:]), _identity(kind, call.dtype)).astype(rows.dtype)
        rows = np.concatenate([first, rows[:-1]])
    with np.errstate(all="ignore"):
        done = KINDS[kind].accumulate(rows, axis=0, dtype=rows.dtype)
        done = np.moveaxis(done[::-1] if reverse else done, 0, call.inputs[0].axes.index(call.attrs["axis"]))
        return align(done, call.inputs[0].axes, call.axes).astype(call.dtype.np)


def _cumulate_grad(op: Op, dy: Op, x: Op) -> Op:
    """Returns the gradient, by one walk back along the axis: sums accumulate, products and extrema are loops."""
    kind, axis, exclusive, reverse = (op.attrs[k] for k in ("kind", "axis", "exclusive", "reverse"))
    if kind == "add":
        return cumulate.build(dy, kind="add", axis=axis, exclusive=exclusive, reverse=not reverse)
    dtype = dtypes.float32 if x.dtype.bits == 16 else x.dtype
    dy, x = cast(dy, dtype), cast(x, dtype)

    def running(of: Op, kind: str, exclusive: bool) -> Op:
        return cumulate.build(of, kind=kind, axis=axis, exclusive=exclusive, reverse=reverse)

    before = running(x, kind, True)
    none = filled(0, [a for a in x.axes if a != axis], dtype)
    if kind == "multiply":  # each result is the one before it times x

        def factor(later: Op, now: tuple[Op, ...]) -> tuple[Op, Op]:
            dy, x, before = now
            total = later if exclusive else later + dy
            return total * x + dy if exclusive else total * x, total * before

        _, dx = scan(factor, none, (dy, x, before), axis, reverse=not reverse)
        return cast(broadcast(dx, x.axes), op.inputs[0].dtype)

    # elements that equal the result share its gradient equally; NaN counts as equal to NaN, which it makes of the result
    result = running(x, kind, False)
    best, first = _alike(x, result), logical_not(_alike(result, before))  # first: of the results that are equal
    found = running(cast(best, dtypes.int32), "add", False)
    earlier = running(where(first, found - cast(best, dtypes.int32), 0), "max", False)  # that were found when these results began
    count = cast(maximum(found - earlier, 1), dtype)

    def share(later: tuple[Op, Op], now: tuple[Op, ...]) -> tuple[tuple[Op, Op], Op]:
        (total, after), (dy, count, best, first) = later, now
        total = total + (after if exclusive else dy) / count
        return (where(first, 0.0, total), dy), where(best, total, 0.0)

    _, dx = scan(share, (none, none), (dy, count, best, first), axis, reverse=not reverse)
    return cast(broadcast(dx, x.axes), op.inputs[0].dtype)


def _alike(x: Op, y: Op) -> Op:
    return logical_or(equal(x, y), logical_and(not_equal(x, x), not_equal(y, y)))


def _cumulate_samples(s: Any) -> list[Op]:
    kinds = ("max", "min") if s.kind == "bool" else tuple(KINDS)
    plain = [
        cumulate.build(x, kind=kind, axis=axis, exclusive=exclusive, reverse=reverse)
        for kind in kinds
        for exclusive, reverse in ((False, False), (True, False), (False, True), (True, True))
        for x, axis in ((s.x(s.I, s.J), s.J), (s.x(s.J, s.I), s.J), (s.special(s.N, s.I), s.N))
    ]
    edges = [
        cumulate.build(x, kind=kind, axis=axis, exclusive=exclusive, reverse=False)
        for kind in kinds
        for exclusive in (False, True)
        for x, axis in ((s.x(s.Z, s.J), s.Z), (s.x(s.Z, s.J), s.J), (s.x(s.O), s.O), (s.x(s.I, s.I - 1), s.I - 1))
    ]
    return [*plain, *edges]


cumulate: OpDef = op(
    "cumulate",
    "The running `kind`, `add multiply max min`, along `axis`; exclusive: without the element itself; reverse: from the end.",
    form="(x; kind, axis, exclusive, reverse)",
    type=_cumulate_type,
    reference=_cumulate,
    grad=_cumulate_grad,
    samples=_cumulate_samples,
    kinds=ALL,
    ulp=16,
    onnx="CumSum",
)


def cumsum(x: Any, axis: Any, exclusive: bool = False, reverse: bool = False) -> Op:
    """Returns the cumulative sum along `axis` (an Axis or its name); of bool int32.

    exclusive: each result excludes its own element. reverse: from the end. Raises AxisError for an axis that x lacks.

    >>> ng.function(ng.cumsum(ng.arange(4, axis="H"), "H"))()
    ComputedArray([0, 1, 3, 6], dtype=int32)
    """
    return _cumulated(x, "add", axis, exclusive, reverse, "cumsum")


def _cumulated(x: Any, kind: str, axis: Any, exclusive: bool, reverse: bool, name: str) -> Op:
    x = as_op(x)
    x = cast(x, dtypes.int32) if x.dtype.kind == "bool" and kind in ("add", "multiply") else x
    return cumulate.build(x, kind=kind, axis=find_axis(x, axis, name), exclusive=bool(exclusive), reverse=bool(reverse))


def cumprod(x: Any, axis: Axis | str, exclusive: bool = False, reverse: bool = False) -> Op:
    """Returns the cumulative product along `axis`, an Axis or its name; of bool int32. All else as in `cumsum`.

    >>> import ngraph as ng
    >>> from ngraph.util.utils import executor
    >>> executor(ng.cumprod(ng.constant([2.0, 3.0, 4.0], "H=3"), "H"))()
    array([ 2.,  6., 24.])
    """
    return _cumulated(x, "multiply", axis, exclusive, reverse, "cumprod")


def cummax(x: Any, axis: Axis | str, reverse: bool = False) -> Op:
    """Returns the largest element up to each place along `axis`, an Axis or its name; NaN from the first NaN on.

    reverse: from the end. Equal elements share the gradient. Raises AxisError for an axis that x lacks.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.cummax(ng.constant([2.0, 1.0, 4.0], "H=3"), "H"))()
        array([2., 2., 4.])
    """
    return _cumulated(x, "max", axis, False, reverse, "cummax")


def cummin(x: Any, axis: Axis | str, reverse: bool = False) -> Op:
    """Returns the smallest element up to each place along `axis`, an Axis or its name. All else as in `cummax`.

    >>> import ngraph as ng
    >>> from ngraph.util.utils import executor
    >>> executor(ng.cummin(ng.constant([2.0, 1.0, 4.0], "H=3"), "H"))()
    array([2., 1., 1.])
    """
    return _cumulated(x, "min", axis, False, reverse, "cummin")


# ---- sort -------------------------------------------------------------------------------------------------------------


def _sort_type(inputs: tuple[TensorType, ...], axis: Any, descending: bool, nan_largest: bool) -> Any:
    key = inputs[0]
    _has("sort", key, (axis,))
    computes("sort", key.dtype)
    for v in inputs[1:]:
        if set(v.axes) != set(key.axes):
            raise AxisError(f"sort: a value has the axes {list(v.axes)}, its key {list(key.axes)}", fix="broadcast both to the same axes")
    return inputs if len(inputs) > 1 else key


def _sort(call: Call, key: np.ndarray, *values: np.ndarray) -> Any:
    axes, axis = call.inputs[0].axes, call.attrs["axis"]
    dim = axes.index(axis)
    k = wide(key)
    nan = k != k
    rank = np.unique(np.where(nan, np.zeros((), k.dtype), k), return_inverse=True)[1].reshape(k.shape)  # equal elements, equal ranks
    descending, nan_largest = call.attrs["descending"], call.attrs["nan_largest"]
    rank = np.where(nan, -k.size if descending and nan_largest else k.size, -rank if descending else rank)
    order = np.argsort(rank, axis=dim, kind="stable")
    moved = [np.take_along_axis(align(a, t.axes, axes), order, axis=dim) for a, t in zip((key, *values), call.inputs, strict=True)]
    return tuple([align(a, axes, t.axes) for a, t in zip(moved, call.results, strict=True)])


def _sort_grad(op: Op, dys: Any, key: Op, *values: Op) -> tuple[Op | None, ...]:
    """Returns the gradients, moved back to the elements' original positions, which sorting an iota along with the key gives."""
    axis = op.attrs["axis"]
    here = broadcast(iota(axis), key.axes)
    came_from = parts(sort_record.build(key, here, **op.attrs))[1]
    went_to = parts(sort_record.build(came_from, here, axis=axis, descending=False, nan_largest=False))[1]
    gather = REGISTRY["gather"].build
    each = dys if values else (dys,)
    return tuple([None if dy is None else gather(dy, went_to, axes=(axis,), mode="clip") for dy in each])


def _sort_samples(s: Any) -> list[Op]:
    i, j, n = s.I, s.J, s.N
    cases: list[Callable[[], tuple[tuple[Op, ...], Axis]]] = [
        lambda: ((s.x(j),), j),
        lambda: ((s.x(i, j),), j),
        lambda: ((s.x(j, i), s.x(i, j)), j),
        lambda: ((s.x(i, j), s.x(i, j), s.ints(j, i, low=0, high=9)), i),
        lambda: ((s.special(n, i),), n),
        lambda: ((s.special(n, i), s.ints(n, i, low=0, high=99)), n),
        lambda: ((s.special(s.axis(26, name="S")),), s.axis(26, name="S")),
        lambda: ((s.ints(n, i, low=0, high=1, dtype=s.dtype), s.x(i, n)), n),
        lambda: ((s.x(s.Z, j),), s.Z),
        lambda: ((s.x(s.Z, j),), j),
        lambda: ((s.x(s.O, j), s.x(j, s.O)), s.O),
        lambda: ((s.x(i, i - 1),), i - 1),
    ]
    ways = ((False, False), (True, False), (True, True))
    return [
        sort_record.build(*xs, axis=axis, descending=descending, nan_largest=nan_largest)
        for descending, nan_largest in ways
        for case in cases
        for xs, axis in [case()]
    ]


sort_record: OpDef = op(
    "sort",
    "The key in order along `axis`, then the values moved alike; stable; NaN stands last, or first where it is the largest and the order "
    "descends.",
    form="(key, values…; axis, descending, nan_largest)",
    type=_sort_type,
    reference=_sort,
    grad=_sort_grad,
    samples=_sort_samples,
    kinds=ALL,
)


def sort(x: Any, axis: Any, *values: Any, descending: bool = False, nan_largest: bool = False) -> Any:
    """Returns `x` sorted along `axis` (an Axis or its name); stable, NaN last.

    values: tensors to be reordered with it, broadcast to the axes of x; then the result is a tuple, the sorted x first.
    nan_largest: NaN counts as larger than all numbers, so that it is first in descending order, as in PyTorch.
    Raises AxisError for an axis that x lacks, or values with more axes.

    >>> ng.function(ng.sort(ng.constant([3, 1, 2], "H=3"), "H"))()
    ComputedArray([1, 2, 3])
    """
    x = as_op(x)
    axis = find_axis(x, axis, "sort")
    made = sort_record.build(x, *(broadcast(as_op(v), x.axes) for v in values), axis=axis, descending=descending, nan_largest=nan_largest)
    return parts(made) if values else made


# ---- compact ----------------------------------------------------------------------------------------------------------


def _compact_type(inputs: tuple[TensorType, ...], axes: tuple[Any, ...], axis: Any) -> tuple[TensorType, TensorType]:
    (c,) = inputs
    if c.dtype.kind != "bool":
        raise DTypeError(f"compact of {c.dtype}", fix="compare it with something first")
    if set(axes) != set(c.axes) or axis in c.axes:
        raise AxisError(
            f"compact of {list(c.axes)} over {list(axes)} along {axis}", fix="name all of its axes, and a new one for the result"
        )
    one = Axes((axis,)) if type(axis) is Axis else (axis,)
    return TensorType(one, dtypes.int32), TensorType(one[:0], dtypes.int32)


def _compact(call: Call, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found = np.flatnonzero(align(c, call.inputs[0].axes, call.attrs["axes"])).astype(np.int32)
    return found, np.asarray(len(found), np.int32)


compact_record: OpDef = op(
    "compact",
    "The flat positions (over `axes`, in that order) where c holds, along the new `axis`, of length Run of the second result; and their "
    "count.",
    form="(c; axes, axis) → int32, int32",
    type=_compact_type,
    reference=_compact,
    samples=lambda s: [
        made
        for k, axes in enumerate(((s.I,), (s.I, s.J), (s.J, s.I, s.K), (s.Z, s.J), (s.O,), (), (s.I, s.I - 1)))
        for made in (*compact(s.bools(*axes), name=f"P{k}"), compact(less(s.x(*axes), 0.5), axes[::-1], name=f"Q{k}")[0])
    ],
)


def compact(c: Any, axes: Any = None, name: str | None = None, bound: ExprLike | None = None) -> tuple[Op, Op]:
    """Returns the flat positions where `c` holds, in order, along a new axis called `name`, and their count; both int32.

    axes: the order of c's axes in a flat position; its own by default. bound: the largest number of positions. The new axis has a
    length only after the step has run. Raises DTypeError unless c is bool.
    """
    c = as_op(c)
    axis = make_axis(name=name)
    order = c.axes if axes is None else Axes(axes)
    positions, count = parts(compact_record.build(c, axes=order, axis=axis))
    axis.family.length = expr.minimum(Run(count), product(a.size for a in c.axes) if bound is None else bound)
    return positions, count

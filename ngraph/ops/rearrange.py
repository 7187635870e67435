"""Ops that move elements without computing: order, names, slices, padding, joining and splitting of axes.

All of them are built on five core records: `broadcast`, `rename`, `reindex` (a read at indices that are expressions), `concat`,
and `iota`. Axes that change their length keep their name. Lengths may be unknown: all arithmetic on them is on expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index as index_of
from typing import Any

import numpy as np

from ngraph.errors import AxisError, DTypeError
from ngraph.op_graph import dtypes, expr
from ngraph.op_graph.axes import (
    Axes,
    Axis,
    Clash,
    Family,
    as_axis,
    joined_axis,
    make_axis,
    merge,
    new_axis,
    rests_on,
    show_axes,
    show_made,
    words,
)
from ngraph.op_graph.checks import checked_lengths, distance
from ngraph.op_graph.dtypes import as_dtype, computes
from ngraph.op_graph.expr import APPLY, Bin, ExprLike, Idx, Len, Run
from ngraph.op_graph.op import Op, TensorType
from ngraph.op_graph.opdef import REGISTRY, Call, OpDef, find_axis, op, own_axes, own_or_new_axes, show_input
from ngraph.ops.aligned import align, axes_like, without
from ngraph.ops.elementwise import (
    MOVED,
    as_op,
    as_ops,
    cast,
    common,
    constant,
    constant_record,
    filled,
    less_equal,
    logical_and,
    maximum,
    minimum,
    where,
)
from ngraph.parts.deferred import deferred

indexing = deferred("ngraph.ops.indexing")

# ---- expressions ------------------------------------------------------------------------------------------------------


def at_least_zero(e: ExprLike) -> ExprLike:
    """Returns max(e, 0), or just `e` where it cannot be negative."""
    return e if expr.not_negative(e) else expr.maximum(e, 0)


def product(sizes: Iterable[ExprLike]) -> ExprLike:
    total: ExprLike = 1
    for size in sizes:
        total = total * size
    return total


def _settled(e: ExprLike) -> ExprLike:
    """Returns `e` with known lengths substituted."""
    return expr.substitute(e, lambda leaf: leaf.of.size if isinstance(leaf, Len) and leaf.of.length is not None else leaf)


def radix(digits: Sequence[ExprLike], sizes: Sequence[ExprLike]) -> ExprLike:
    """Returns the flat position of `digits` in axes of these sizes, the last one fastest."""
    total: ExprLike = 0
    for k, digit in enumerate(digits):
        total = total + digit * product(sizes[k + 1 :])
    return total


def digits(position: ExprLike, sizes: Sequence[ExprLike]) -> list[ExprLike]:
    """Returns the index along each of the axes of these sizes for a flat `position`: the inverse of `radix`."""
    if any(s == 0 for s in sizes):
        return [0 for _ in sizes]  # without elements there are no reads
    found = []
    for k, size in enumerate(sizes):
        digit = position // product(sizes[k + 1 :])
        found.append(digit if k == 0 else digit % size)
    return found


# ---- iota -------------------------------------------------------------------------------------------------------------

iota_record: OpDef = op(
    "iota",
    "0, 1, 2 … along an axis.",
    form="(; axis, dtype)",
    type=lambda inputs, axis, dtype: TensorType(Axes((axis,)) if type(axis) is Axis else (axis,), dtype),
    reference=lambda call: np.arange(call.length(call.attrs["axis"])).astype(call.dtype.np),
    samples=lambda s: [iota(axis, s.dtype) for axis in (s.I, s.O, s.Z, s.I - 1)],
    kinds=("float", "int", "uint"),
    onnx="Range",
)


def iota(axis: Axis | str, dtype: Any = dtypes.int32) -> Op:
    """Returns 0, 1, 2 and so on along `axis`. dtype: any but bool; int32 by default.

    >>> ng.function(ng.iota("H=3"))()
    ComputedArray([0, 1, 2], dtype=int32)
    """
    axis, d = as_axis(axis), as_dtype(dtype)
    if d.kind == "bool":
        raise DTypeError("iota of bool", fix="take an integer dtype and compare it")
    computes("iota", d)
    return iota_record.build(axis=axis, dtype=d)


# ---- broadcast --------------------------------------------------------------------------------------------------------


def _broadcast_type(inputs: tuple[TensorType, ...], axes: tuple[Any, ...]) -> TensorType:
    (x,) = inputs
    merge(x.axes, axes)
    missing = [a for a in x.axes if a not in axes]
    if missing:
        raise AxisError(f"broadcast: {', '.join(map(str, missing))} of {list(x.axes)} is missing in {list(axes)}")
    return TensorType(axes, x.dtype)


broadcast_record: OpDef = op(
    "broadcast",
    "All of x's axes and more, x repeated along the new ones; also how the declared order of axes is changed.",
    form="(x; axes)",
    type=_broadcast_type,
    reference=lambda call, x: np.array(np.broadcast_to(align(x, call.inputs[0].axes, call.axes), call.shape(call.axes))),
    grad=lambda op, dy, x: dy,
    samples=lambda s: [
        broadcast(s.x(s.I), (s.J, s.I)),
        broadcast(s.x(), (s.I, s.N)),
        broadcast(s.x(s.I, s.J, s.K), (s.K, s.I, s.J)),
        broadcast(s.x(s.O), (s.O, s.I, s.I - 1)),
        broadcast(s.x(s.I), (s.I, s.Z)),
        broadcast(s.special(s.K), (s.N, s.K)),
    ],
    kinds=MOVED,
    onnx="Expand",
    torch="aten.expand",
)


def broadcast(x: Any, axes: Any) -> Op:
    """Returns `x` with these axes, in this order, repeated along those that it lacks. Raises AxisError where one of its axes is missing.

    >>> ng.broadcast(ng.ones("H=3"), "N=2 H=3").axes
    Axes(N=2, H=3)
    """
    x = as_op(x)
    axes = own_or_new_axes(x, axes)
    missing = [a.label for a in x.axes if a not in axes]
    if missing:
        raise AxisError(
            f"broadcast({x.label}): {', '.join(missing)} is missing in {show_axes(axes)}",
            details=(show_input(x),),
            fix="broadcasting only adds axes; take one away with ng.sum or a slice, or rename it with ng.map_roles",
        )
    same = len(axes) == len(x.axes) and all(a == b and a.size == b.size for a, b in zip(x.axes, axes, strict=True))
    return x if same else broadcast_record.build(x, axes=axes)


def axes_with_order(x: Any, axes: Any) -> Op:
    """Returns `x` with its axes declared in another order. Raises AxisError unless `axes` are exactly those of `x`.

    >>> ng.axes_with_order(ng.placeholder("N=2 H=3 W=4"), "W N H").axes
    Axes(W=4, N=2, H=3)
    """
    x = as_op(x)
    axes = own_axes(x, axes, "axes_with_order")
    if not axes.is_equal_set(x.axes):
        raise AxisError(
            f"axes_with_order({x.label}): {show_axes(axes)} is not an order of {show_axes(x.axes)}",
            details=(show_input(x),),
            fix="name each axis once; ng.broadcast adds axes",
        )
    return broadcast(x, [x.axes[x.axes.index(a)] for a in axes])


def expand_dims(x: Any, axis: Axis | str, dim: int = 0) -> Op:
    """Returns `x` repeated along a new axis at position `dim`; `x` itself where it has the axis already.

    >>> ng.expand_dims(ng.ones("H=3"), "N=1").axes
    Axes(N=1, H=3)
    """
    x, axis = as_op(x), as_axis(axis)
    if axis in x.axes:
        return as_op(x)
    at = dim if dim >= 0 else dim + len(x.axes) + 1
    if not 0 <= at <= len(x.axes):
        raise AxisError(
            f"expand_dims({x.label}): there is no position {dim} among {len(x.axes) + 1}",
            details=(show_input(x),),
            fix=f"take 0 to {len(x.axes)}",
        )
    return broadcast(x, (*x.axes[:at], axis, *x.axes[at:]))


# ---- rename -----------------------------------------------------------------------------------------------------------


def _rename_type(inputs: tuple[TensorType, ...], to: tuple[Any, ...]) -> TensorType:
    (x,) = inputs
    new = dict(to)
    gone = [a for a in new if a not in x.axes]
    axes = [new.get(a, a) for a in x.axes]
    if gone or len(set(axes)) != len(axes):
        raise AxisError(f"rename {', '.join(f'{a} to {b}' for a, b in to)} of {list(x.axes)} names no axis of it, or gives one twice")
    return TensorType(axes_like(x.axes, axes), x.dtype)


rename_record: OpDef = op(
    "rename",
    "x with other names for some of its axes; `to` is pairs (old, new); costs nothing.",
    form="(x; to)",
    type=_rename_type,
    reference=lambda call, x: x,
    grad=lambda op, dy, x: rename_record.build(dy, to=tuple([(b, a) for a, b in op.attrs["to"]])),
    samples=lambda s: [
        rename_record.build(s.x(s.I, s.J), to=((s.I, s.axis(3, name="R")),)),
        rename_record.build(s.x(s.I, s.J), to=((s.I, s.axis(3, name="J")), (s.J, s.axis(4, name="I")))),
        rename_record.build(s.x(s.I, s.I - 1), to=((s.I - 1, s.axis(3, name="R")),)),
        rename_record.build(s.x(s.I), to=((s.I, s.I - 1),)),
        rename_record.build(s.x(s.Z, s.J), to=((s.Z, s.axis(0, name="R")),)),
        rename_record.build(s.special(s.K), to=((s.K, s.axis(2, name="R")),)),
    ],
    kinds=MOVED,
)


def relabelled(x: Op, new: Sequence[Axis], name: str) -> Op:
    """Returns `x` with the axes `new` in place of its own; a length that only one side has is propagated to the other.

    A known length that is given for one that each call brings is checked in each call.
    """
    unlike = [(a, b) for a, b in zip(x.axes, new, strict=True) if a.length is not None and b.length is not None and a.length != b.length]
    if unlike:
        raise AxisError(
            f"{name}({x.label}): {'; '.join(f'{a!r} cannot become {b!r}' for a, b in unlike)}",
            details=(show_input(x), f"new axes: {show_axes(new)}"),
            fix="a new name keeps the length; to change it, slice or pad",
        )
    twice = [a.label for k, a in enumerate(new) if a in new[:k]]
    if twice:
        raise AxisError(
            f"{name}({x.label}): {', '.join(twice)} would occur twice in {show_axes(new)}",
            details=(show_input(x),),
            fix="rename the other one too, or use a dual",
        )
    pairs = []
    for a, b in zip(x.axes, new, strict=True):
        if a.family is b.family and a.dual == b.dual:
            continue
        if a.family is not b.family:
            if a.family.length is None and b.family.length is not None and not rests_on(b.size, {a.family}):
                a.family.length = b.size
            elif a.size != b.size:
                x, b = checked_out(x, a, b, a.size, name)
        pairs.append((a, b))
    return rename_record.build(x, to=tuple(pairs)) if any(a != b for a, b in pairs) else x


def _same_number(x: Op, axes: Axes, name: str) -> None:
    if len(axes) != len(x.axes):
        raise AxisError(
            f"{name}({x.label}): {len(axes)} new axes for the {len(x.axes)} of {x.label}",
            details=(show_input(x), f"new axes: {show_axes(axes)}"),
            fix="give one new axis for each",
        )


def _by_position(x: Op, axes: Any, name: str) -> Axes:
    """Returns new axes for those of `x`; a name alone makes one of the same length. Raises AxisError for another number of axes."""
    given = words(axes) if isinstance(axes, str) else axes
    if isinstance(given, (list, tuple)) and len(given) == len(x.axes):
        given = [_renewed(old, new) if isinstance(new, str) and "=" not in new else new for old, new in zip(x.axes, given, strict=True)]
    axes = Axes(given)
    _same_number(x, axes, name)
    return axes


def cast_axes(x: Any, axes: Any) -> Op:
    """Returns `x` with `axes` in place of its own, by position. Raises AxisError where numbers or lengths differ.

    >>> ng.cast_axes(ng.ones("H=3 W=4"), "P=3 Q=4").axes
    Axes(P=3, Q=4)
    """
    x = as_op(x)
    axes = _by_position(x, axes, "cast_axes")
    return relabelled(x, axes, "cast_axes")


def _renewed(old: Axis, new: Axis | str) -> Axis:
    """Returns `new` with the length of `old`; a name makes a new axis."""
    if isinstance(new, str):
        return Axis(Family(new, old.size, {}, frozenset(), None))
    return new if new.length is None else new.resized(old.size)


def cast_role(x: Any, axes: Any) -> Op:
    """Returns `x` with the names and flags of `axes`, by position, and its own lengths. Raises AxisError where the numbers differ.

    >>> ng.cast_role(ng.ones("H=3 W=4"), "P=3 Q=4").axes
    Axes(P=3, Q=4)
    """
    x = as_op(x)
    axes = _by_position(x, axes, "cast_role")
    return relabelled(x, [_renewed(a, b) for a, b in zip(x.axes, axes, strict=True)], "cast_role")


def map_roles(x: Any, axes_map: Mapping[Any, Any] = {}, **names: Any) -> Op:
    """Returns `x` with some axes renamed: {old: new}, both axes or names, or old=new; lengths stay.

    Raises AxisError for an axis that `x` lacks.

    >>> ng.map_roles(ng.placeholder("N=2 H=3 W=4"), {"H": "P"}).axes
    Axes(N=2, P=3, W=4)
    """
    x = as_op(x)
    new = {find_axis(x, old, "map_roles"): to for old, to in {**axes_map, **names}.items()}
    return relabelled(x, [_renewed(a, new[a]) if a in new else a for a in x.axes], "map_roles")


# ---- reindex ----------------------------------------------------------------------------------------------------------


def _reindex_type(inputs: tuple[TensorType, ...], axes: tuple[Any, ...], index: Any, predicate: Any, pad_value: Any) -> TensorType:
    (x,) = inputs
    named = [a for a, _ in index]
    if len(named) != len(x.axes) or set(named) != set(x.axes):
        raise AxisError(f"reindex names {list(named)}, and x has {list(x.axes)}", fix="give one index for each axis of x")
    for e in (*[e for _, e in index], *predicate):
        for leaf in expr.leaves(e):
            if isinstance(leaf, Idx) and leaf.of not in axes:
                raise AxisError(f"reindex reads along {leaf.of}, which is not an axis of the result {list(axes)}")
    return TensorType(axes, x.dtype)


def _indices(call: Call, e: ExprLike) -> np.ndarray:
    """Returns the values of `e` over the result's axes, with length 1 along those that it does not depend on."""

    def leaf(leaf: expr.Leaf) -> Any:
        n = call.length(leaf.of)
        if isinstance(leaf, Len):
            return n
        shape = [1] * len(call.axes)
        shape[call.axes.index(leaf.of)] = n
        return np.arange(n).reshape(shape)

    with np.errstate(all="ignore"):
        return np.asarray(expr.evaluate(e, leaf))


def _reindex_reference(call: Call, x: np.ndarray) -> np.ndarray:
    index = dict(call.attrs["index"])
    shape = call.shape(call.axes)
    inside = np.ones(shape, bool)
    for e in call.attrs["predicate"]:
        inside = inside & (_indices(call, e) >= 0)
    where_to = []
    for axis, n in zip(call.inputs[0].axes, x.shape, strict=True):
        i = _indices(call, index[axis])
        inside = inside & (i >= 0) & (i < n)
        where_to.append(np.broadcast_to(np.clip(i, 0, max(n - 1, 0)), shape))
    pad_value = np.full(shape, call.attrs["pad_value"]).astype(x.dtype)
    if x.size == 0:
        return pad_value
    return np.asarray(np.where(inside, x[tuple(where_to)], pad_value)) if where_to else np.asarray(np.where(inside, x, pad_value))


def _linear(e: ExprLike) -> tuple[dict[Any, int], ExprLike] | None:
    """Returns `e` as integer coefficients of `Idx`es and a rest without any; None where it is not linear."""
    if isinstance(e, Idx):
        return {e.of: 1}, 0
    if isinstance(e, int) or not any(isinstance(leaf, Idx) for leaf in expr.leaves(e)):
        return {}, e
    assert isinstance(e, Bin)
    if e.op not in ("+", "-", "*"):
        return None
    a, b = _linear(e.a), _linear(e.b)
    if a is None or b is None:
        return None
    if e.op == "*":
        if isinstance(e.a, int):
            a, b = b, a
        factor = b[1]
        if b[0] or not isinstance(factor, int):
            return None
        return {k: c * factor for k, c in a[0].items()}, a[1] * factor
    sign = 1 if e.op == "+" else -1
    total = {k: a[0].get(k, 0) + sign * b[0].get(k, 0) for k in (*a[0], *b[0])}
    return {k: c for k, c in total.items() if c}, a[1] + b[1] if sign == 1 else a[1] - b[1]


class _Solution:
    """The inverse of a `reindex`: the result index to which each element of x was read, as expressions over x's indices.

    A result axis is `solved`, or `kept` as an axis of the adjoint read, which is then summed over it. Kept axes are renamed where
    x has one of that name. `predicate` holds the conditions of the solution.
    """

    def __init__(self, op: Op, x: Op):
        self.x, self.axes = x, op.attrs["axes"]
        self.open = [(axis, _settled(e)) for axis, e in op.attrs["index"]]
        self.solved: dict[Axis, ExprLike] = {}
        self.kept: dict[Axis, Axis] = {}
        self.predicate: list[ExprLike] = []

    def keep(self, axis: Axis) -> None:
        taken = axis in self.x.axes
        self.kept[axis] = Axis(Family(f"{axis.name}_summed", axis.size, {}, frozenset(), None)) if taken else axis

    def now(self, axis: Axis) -> ExprLike:
        """Returns the index along an axis of the result, over x's axes and the kept ones."""
        return self.solved[axis] if axis in self.solved else Idx(self.kept[axis])

    def split(self) -> None:
        """Solves axes of x that are read at the flat position of several result indices: each of these is a digit of x's index."""
        for axis, e in list(self.open):
            over = list(dict.fromkeys(leaf.of for leaf in expr.leaves(e) if isinstance(leaf, Idx)))
            sizes = [_settled(a.size) for a in over]
            if len(over) > 1 and 0 not in sizes and e == radix([Idx(a) for a in over], sizes) and _settled(axis.size) == product(sizes):
                self.solved.update(zip(over, digits(Idx(axis), sizes), strict=True))
                self.open.remove((axis, e))

    def joined(self) -> None:
        """Solves axes of x that are read at the digits of one result index: that index is their flat position."""
        reads: dict[Axis, list[tuple[Axis, ExprLike]]] = {}
        for axis, e in self.open:
            for a in dict.fromkeys(leaf.of for leaf in expr.leaves(e) if isinstance(leaf, Idx)):
                reads.setdefault(a, []).append((axis, e))
        for a, mine in reads.items():
            sizes = [_settled(axis.size) for axis, _ in mine]
            if len(mine) > 1 and _settled(a.size) == product(sizes) and [e for _, e in mine] == digits(Idx(a), sizes):
                self.solved[a] = radix([Idx(axis) for axis, _ in mine], sizes)
                self.open = [m for m in self.open if m not in mine]

    def linear(self) -> bool:
        """Solves the rest, one unknown from each equation; the others in it are kept. Returns False where an equation is not linear."""
        forms = [(axis, _linear(e)) for axis, e in self.open]
        if any(form is None for _, form in forms):
            return False
        for axis, (factors, rest) in sorted(forms, key=lambda f: len(f[1][0])):  # type: ignore[index, misc]  # no form is None here
            free = [a for a in factors if a not in self.solved and a not in self.kept]
            chosen = max(free, key=lambda a: (1 << 60 if a.length is None else a.length, -abs(factors[a])), default=None)
            for a in free:
                if a is not chosen:
                    self.keep(a)
            known = rest
            for a, c in factors.items():
                if a is not chosen:
                    known = known + self.now(a) * c
            if chosen is None:  # x was read at this one index
                if known != 0 or axis.length != 1:
                    self.predicate += [Idx(axis) - known, known - Idx(axis)]
                continue
            c = factors[chosen]
            distance = Idx(axis) - known if c > 0 else known - Idx(axis)
            self.solved[chosen] = distance // abs(c)
            if abs(c) != 1:
                self.predicate.append(0 - distance % abs(c))
        return True

    def read(self, op: Op, dy: Op) -> Op | None:
        """Returns the adjoint read of `dy`, still to be summed over the kept axes; None where the indices cannot be inverted."""
        self.split()
        self.joined()
        if not self.linear():
            return None
        for a in self.axes:
            if a not in self.solved and a not in self.kept:
                self.keep(a)
        predicate = [
            expr.substitute(_settled(g), lambda leaf: self.now(leaf.of) if isinstance(leaf, Idx) else leaf) for g in op.attrs["predicate"]
        ]
        index = tuple((a, self.now(a)) for a in (*self.solved, *self.kept))
        axes = Axes((*self.x.axes, *self.kept.values()))
        return reindex.build(dy, axes=axes, index=index, predicate=(*self.predicate, *predicate), pad_value=0)


def _computed(e: ExprLike) -> Op:
    """Returns the values of an index expression, as an int32 op."""
    if isinstance(e, Idx):
        return iota(e.of)
    if isinstance(e, Bin):
        apply = {"min": minimum, "max": maximum}.get(e.op) or APPLY[e.op]
        return apply(_computed(e.a), _computed(e.b))
    if isinstance(e, int):
        return filled(e, (), dtypes.int32)
    if isinstance(e, Run):
        return cast(e.of, dtypes.int32)
    return constant_record.build(value=e, axes=Axes(), dtype=dtypes.int32)


def _scattered(op: Op, dy: Op, x: Op) -> Op:
    """Returns the adjoint of any read: each element of dy is added at the position that it was read from."""
    indices = [_computed(e) for _, e in op.attrs["index"]]
    inside = filled(True, op.axes, dtypes.bool_)
    for g in op.attrs["predicate"]:
        inside = logical_and(inside, less_equal(0, _computed(g)))
    indices[0] = where(inside, indices[0], -1)
    zeros = filled(0, x.axes, dy.dtype)
    places = tuple(axis for axis, _ in op.attrs["index"])
    return REGISTRY["scatter"].build(zeros, *indices, dy, axes=places, combine="add", mode="fill")


def _reindex_prepare(inputs: tuple[Any, ...], attrs: dict[str, Any]) -> tuple[tuple[Op, ...], dict[str, Any]]:
    """Checks that axes in the indices are those of x and of the result; returns them with their lengths there."""
    x, axes = as_op(inputs[0]), Axes(attrs["axes"])
    own = {a: a for a in axes}

    def resolved(e: ExprLike) -> ExprLike:
        return expr.substitute(e, lambda leaf: Idx(own.get(leaf.of, leaf.of)) if isinstance(leaf, Idx) else leaf)

    pairs = attrs["index"].items() if isinstance(attrs["index"], Mapping) else attrs["index"]
    index = tuple([(find_axis(x, a, "reindex"), resolved(e)) for a, e in pairs])
    predicate = tuple([resolved(g) for g in attrs.get("predicate", ())])
    return (x,), {"axes": axes, "index": index, "predicate": predicate, "pad_value": attrs.get("pad_value", 0)}


def _reindex_gradient(op: Op, dy: Op, x: Op) -> Op:
    read = _Solution(op, x).read(op, dy)
    return _scattered(op, dy, x) if read is None else read


reindex: OpDef = op(
    "reindex",
    "result[axes] = x[index], where `index` is pairs (axis of x, Expr over Idx of result axes), every axis of x named once. Where an "
    "index lies outside its axis or a `predicate` Expr is negative: `pad_value` (a number). Slice, reverse, pad, window, flatten, "
    "diagonal, dilate, tile.",
    form="(x; axes, index, predicate, pad_value)",
    type=_reindex_type,
    reference=_reindex_reference,
    prepare=_reindex_prepare,
    grad=_reindex_gradient,
    samples=lambda s: _reindex_samples(s),
    kinds=MOVED,
)


def _reindex_samples(s: Any) -> list[Op]:
    i, j, r = s.axis(4, name="I"), s.axis(6, name="J"), s.axis(2, name="R")

    def read(x: Op, axes: Sequence[Axis], index: dict[Axis, ExprLike], predicate: Sequence[ExprLike] = (), pad_value: float = 0) -> Op:
        return reindex.build(x, axes=Axes(axes), index=tuple(index.items()), predicate=tuple(predicate), pad_value=pad_value)

    made = [
        read(s.x(s.I, s.J), (s.J, s.I), {s.J: 3 - Idx(s.J), s.I: Idx(s.I)}),
        read(s.x(s.I), (i,), {s.I: Idx(i) * 2 - 1}, pad_value=1),
        read(s.x(s.J), (j, r), {s.J: Idx(j) * 2 + Idx(r) - 1}),
        read(s.x(s.J), (s.I,), {s.J: Idx(s.I) // 2}),
        read(s.x(s.J), (j,), {s.J: Idx(j) % 4}, [4 - Idx(j)]),
        read(s.x(s.J), (j,), {s.J: Idx(j) // 2}, [0 - Idx(j) % 2]),
        read(s.x(s.I, s.I - 1), (s.I,), {s.I: Idx(s.I), s.I - 1: Idx(s.I)}),
        read(s.x(s.I, s.J), (s.J,), {s.I: 1, s.J: Idx(s.J)}),
        read(s.x(s.I, s.J), (s.K, s.N), {s.I: Idx(s.K) + Idx(s.N) - 1, s.J: Idx(s.K) - Idx(s.N) + 2}),
        read(s.x(s.Z, s.J), (i, s.J), {s.Z: Idx(i), s.J: Idx(s.J)}, pad_value=1),
        read(s.x(s.I), (s.Z,), {s.I: Idx(s.Z)}),
        read(s.x(), (s.I,), {}, [Idx(s.I) - 1]),
        read(s.special(s.K, s.O), (s.K, s.O), {s.K: 1 - Idx(s.K), s.O: Idx(s.O)}),
        flatten(s.x(s.I, s.J, s.K)),
        flatten(s.x(s.K, s.O, s.N), (s.N, s.K)),
        unflatten(flatten(s.x(s.I, s.J, s.K))),
        diagonal(s.x(s.J, s.I, s.K), s.I, s.K),
        windows(s.x(s.J, s.K), {s.J: r}, stride=2, padding=1),
    ]
    return made if s.dtype.kind != "bool" else made[:-1]


def _read(x: Op, axes: Iterable[Axis], index: Mapping[Axis, ExprLike], pad_value: Any = 0, predicate: Sequence[ExprLike] = ()) -> Op:
    """Returns `x` read at `index`; axes without an entry are read as they are."""
    pairs = [(a, e) for a, e in index.items()] + [(a, Idx(a)) for a in x.axes if a not in index]
    return reindex.build(x, axes=Axes(tuple(axes)), index=tuple(pairs), predicate=tuple(predicate), pad_value=pad_value)


# ---- slices -----------------------------------------------------------------------------------------------------------


def _ceil_divide(e: ExprLike, by: int) -> ExprLike:
    return (e + (by - 1)) // by


def _whole(number: Any) -> int | None:
    """Returns the integer that `number` is, None where it is none."""
    if isinstance(number, (bool, np.bool_)):
        return None
    try:
        return index_of(number)
    except TypeError:
        return None


def slice_range(n: ExprLike, s: slice, complain: Callable[..., AxisError], lowest: int = -1) -> tuple[ExprLike, int, ExprLike]:
    """Returns first index, step and length of a slice of `n` elements, by Python's rules.

    lowest: where a start in front of all elements lies in steps backwards: -1, so that nothing is taken, or 0, as ONNX has it.
    """
    bounds = [None if b is None else _whole(b) for b in (s.start, s.stop, s.step)]
    if any(given is not None and b is None for given, b in zip((s.start, s.stop, s.step), bounds, strict=True)):
        raise complain("bounds of a slice are whole numbers")
    start, stop, step = bounds
    step = 1 if step is None else step
    if step == 0:
        raise complain("the step of a slice is 0", "take a step of 1, or of -1 for the other direction")
    if step > 0:  # clamped only where the length would be wrong, so that equal slices have equal lengths
        first = 0 if start is None else start if start >= 0 else at_least_zero(n + start)
        last = n if stop is None else n + stop if stop < 0 else expr.minimum(n, stop)
        return first, step, at_least_zero(_ceil_divide(last - first, step))
    first = n - 1 if start is None else n + start if start < 0 else expr.minimum(n - 1, start)
    first = first if lowest < 0 else at_least_zero(first)
    last = -1 if stop is None else stop if stop >= 0 else expr.maximum(n + stop, -1)
    return first, step, at_least_zero(_ceil_divide(first - last, -step))


# a slice with bounds that the program computes: the axis has a length only once they are known


def _place_of(bound: Op, n: ExprLike) -> ExprLike:
    """Returns the place that a bound of a slice denotes among `n` elements, by Python's rules."""
    if bound.is_constant and isinstance(value := bound.attrs["value"], int):
        return expr.minimum(value, n) if value >= 0 else at_least_zero(n + value)
    at: ExprLike = Run(bound)
    if bound.dtype.kind != "uint":
        at = at + n * expr.minimum(expr.maximum(0 - at, 0), 1)
    return expr.maximum(expr.minimum(at, n), 0)


def _cut_type(inputs: tuple[TensorType, ...], axis: Any, out: Any) -> TensorType:
    x, *bounds = inputs
    for b in bounds:
        if b.axes or not b.dtype.is_integer:
            raise AxisError(
                f"a slice up to {b!r}, which is not a whole number", fix="give an integer without axes: ng.cast(bound, 'int32')"
            )
    return TensorType(axes_like(x.axes, [out if a == axis else a for a in x.axes]), x.dtype)


def _cut_reference(call: Call, x: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    at = call.inputs[0].axes.index(call.attrs["axis"])
    return x[(slice(None),) * at + (slice(int(start), int(stop)),)]


def _cut_lower(op: Op, x: Op, start: Op, stop: Op) -> Op:
    axis, out = op.attrs["axis"], op.attrs["out"]
    return _read(x, op.axes, {axis: _place_of(start, axis.size) + Idx(out)})


cut: OpDef = op(
    "cut",
    "The elements of x from `start` to before `stop`, integer scalars that count as in Python, along `axis`, which becomes `out`.",
    form="(x, start, stop; axis, out)",
    type=_cut_type,
    reference=_cut_reference,
    lower=_cut_lower,
    samples=lambda s: [
        made
        for x, axis in ((s.x(s.I, s.J), s.J), (s.x(s.J, s.K), s.J), (s.x(s.J), s.J), (s.x(s.Z, s.I), s.Z), (s.special(s.J), s.J))
        for bounds in ((None, 2), (1, None), (0, 99), (-3, -1), (3, 2), (2, -9))
        for made in [_sliced(x, {axis: slice(*[b if b is None else s.given(b, dtype=dtypes.int32) for b in bounds])}, "slice")]
    ],
    kinds=MOVED,
)


def _cut(x: Op, axis: Axis, s: slice, complain: Callable[..., AxisError]) -> Op:
    """Returns the elements of `x` in a slice with bounds of which one is an op, at least."""
    if s.step is not None and _whole(s.step) != 1:
        raise complain("the step of a slice with computed bounds is not 1", "slice first, then take every so many")

    def bound(b: Any) -> Op:
        at = 0 if b is None else _whole(b)
        return as_op(b) if at is None else filled(at, (), dtypes.int64)

    n, (start, stop) = axis.size, [bound(b) if not isinstance(b, Op) else b for b in (s.start, s.stop)]
    for b in (start, stop):
        if b.axes or not b.dtype.is_integer:
            raise complain(f"the bound {b!r} is not an integer without axes", "give one place for all rows: ng.cast(bound, 'int32')")
    first, last = _place_of(start, n), n if s.stop is None else _place_of(stop, n)
    stop = constant_record.build(value=n, axes=Axes(), dtype=dtypes.int64) if s.stop is None else stop
    return cut.build(x, start, stop, axis=axis, out=axis.resized(last if first == 0 else expr.maximum(last - first, 0)))


def _sliced(x: Op, items: Mapping[Axis, Any], name: str) -> Op:
    """Returns `x` with some axes sliced, or dropped at one index."""
    index: dict[Axis, ExprLike] = {}
    axes: list[Axis] = []
    computed: list[tuple[Axis, slice, Callable[..., AxisError]]] = []
    for axis in x.axes:
        item = items.get(axis, slice(None))
        n = axis.size

        def complain(what: str, fix: str = "use whole numbers, slices and ...", axis: Axis = axis, item: Any = item) -> AxisError:
            return AxisError(f"{name}({x.label}): {what}: {item!r} along {axis!r}", details=(show_input(x),), fix=fix)

        if isinstance(item, slice) and (isinstance(item.start, Op) or isinstance(item.stop, Op)):
            computed.append((axis, item, complain))
            axes.append(axis)
            continue
        if isinstance(item, slice):
            first, step, length = slice_range(n, item, complain)
            kept = axis.resized(length)
            axes.append(kept)
            if (first, step) != (0, 1) or kept is not axis:
                index[axis] = first + Idx(kept) * step
            continue
        at = _whole(item)
        if at is None:
            raise complain("no index")
        if isinstance(n, int) and not -n <= at < n:
            raise complain(f"there are {n} elements, and the index is outside", f"take {-n} to {n - 1}")
        index[axis] = at if at >= 0 else n + at
    made = _read(x, axes, index) if index else x
    for axis, item, complain in computed:
        made = _cut(made, axis, item, complain)
    return made


def tensor_slice(x: Any, slices: Sequence[Any], axes: Any = None) -> Op:
    """Returns `x` with one slice or index for each axis, as in NumPy; an index drops its axis, any step but 0 is allowed.

    Sliced axes keep their name. axes: new axes for those that stay, by position. Raises AxisError for an index outside (where the
    length is still unknown there is no check, and reads beyond it give zeros).

    >>> ng.tensor_slice(ng.placeholder("N=2 H=3 W=4"), [slice(None), 0, slice(1, 3)]).axes
    Axes(N=2, W=2)
    """
    x = as_op(x)
    if len(slices) != len(x.axes):
        raise AxisError(
            f"tensor_slice({x.label}): {len(slices)} slices for {show_axes(x.axes)}",
            details=(show_input(x),),
            fix="give one for each axis, slice(None) for all of it",
        )
    result = _sliced(x, dict(zip(x.axes, slices, strict=True)), "tensor_slice")
    return result if axes is None else cast_axes(result, axes)


def slice_along_axis(x: Any, axis: Axis | str, idx: Any) -> Op:
    """Returns `x` at one index of an axis, which is dropped, or at a slice of it, which keeps its name.

    >>> ng.slice_along_axis(ng.placeholder("N=2 H=3 W=4"), "H", slice(1, 3)).axes
    Axes(N=2, H=2, W=4)
    """
    x = as_op(x)
    return _sliced(x, {find_axis(x, axis, "slice_along_axis"): idx}, "slice_along_axis")


def _getitem(x: Op, key: Any) -> Op:
    """Returns `x[1:, ..., 0]` by position, `x["H", 2:5]` or `x[{H: slice(2, 5)}]` by axis."""
    if isinstance(key, Mapping):
        return _at_places(x, {find_axis(x, a, "slice"): item for a, item in key.items()})
    items = key if isinstance(key, tuple) else (key,)
    if items and isinstance(items[0], (str, Axis)):
        return _sliced_by_name(x, items)
    if any(item is None for item in items):
        raise AxisError(
            f"slice({x.label}): no index: None among those of {show_axes(x.axes)}",
            details=(show_input(x),),
            fix="leave it out, since operands are matched by name; ng.expand_dims(x, 'A=1') adds an axis",
        )
    dots = [k for k, item in enumerate(items) if item is Ellipsis]
    if len(items) - len(dots) > len(x.axes) or len(dots) > 1:
        raise AxisError(
            f"slice({x.label}): {len(items)} indices for {show_axes(x.axes)}",
            details=(show_input(x),),
            fix="give at most one for each axis, and ... once; ng.expand_dims adds an axis",
        )
    at = dots[0] if dots else len(items)
    after = items[at + 1 :]
    places = dict(zip(x.axes, items[:at], strict=False))
    places.update(zip(x.axes[len(x.axes) - len(after) :], after, strict=True))
    return _at_places(x, places)


def _sliced_by_name(x: Op, items: Sequence[Any]) -> Op:
    """Returns `x["H", 2:5, "W", 0]`: axes, or names, each followed by its index."""
    if len(items) % 2 or not all(isinstance(a, (str, Axis)) for a in items[::2]):
        raise AxisError(
            f"slice({x.label}): names and indices do not alternate",
            details=(show_input(x),),
            fix='write x["H", 2:5] or x["H", 2:5, "W", 0]',
        )
    places = {find_axis(x, a, "slice"): item for a, item in zip(items[::2], items[1::2], strict=True)}
    return _at_places(x, places)


def _at_places(x: Op, places: Mapping[Axis, Any]) -> Op:
    """Returns `x` at a slice or an index of axes, as `_sliced`; an index may also be an op or an array of integers, as in `ng.take`.

    The axes of an op replace the axis; an array has one dim, and the axis keeps its name. Raises AxisError for flags that are computed.
    """
    arrays = {a: i for a, i in places.items() if isinstance(i, (Op, np.ndarray, list, tuple)) and _whole(i) is None}
    made = _sliced(x, {a: i for a, i in places.items() if a not in arrays}, "slice")
    for axis, item in arrays.items():
        if not isinstance(item, Op):
            item = _listed(x, axis, item)
        elif item.is_tensor_op and item.dtype.kind == "bool":
            raise AxisError(
                f"slice({x.label}): an array of flags along {axis!r}",
                details=(show_input(x),),
                fix="use ng.where(mask, x, 0), or ng.take(x, ng.nonzero(mask)[0], axis)",
            )
        made = indexing.take(made, item, axis, mode="raise")
    return made


def _listed(x: Op, axis: Axis, item: Any) -> Op:
    """Returns an array or list of places along an axis, or of a flag for each, as an op along an axis of that name. Raises AxisError."""

    def wrong(what: str, fix: str) -> AxisError:
        return AxisError(f"slice({x.label}): {what} along {axis!r}", details=(show_input(x),), fix=fix)

    try:
        places = np.asarray(item) if len(item) else np.zeros(0, np.int64)
    except ValueError:
        raise wrong("lists of unlike lengths", "give one list of whole numbers") from None
    if places.ndim != 1 or places.dtype.kind not in "iub":
        what = f"an array of {places.ndim} dims" if places.ndim != 1 else f"indices of {places.dtype}"
        raise wrong(what, "give it axes, ng.constant(array, [...]), and whole numbers")
    n = axis.length
    if places.dtype.kind == "b":
        if n != len(places):
            raise wrong(f"{len(places)} flags", "give one flag for each element of an axis of known length")
        places = np.flatnonzero(places)
    outside = places[(places < -n) | (places >= n)] if n is not None else places[:0]
    if outside.size:
        raise wrong(f"there are {n} elements, and index {outside[0]} is outside", f"take {-(n or 0)} to {(n or 0) - 1}")
    return constant(places.astype(np.int64), [axis.resized(len(places))])


for _name, _function in (("__getitem__", _getitem),):
    setattr(Op, _name, _function)


def flip(x: Any, axes: Any) -> Op:
    """Returns `x` with the order along these axes (one, or several) reversed.

    >>> ng.function(ng.flip(ng.arange(3, axis="H"), "H"))()
    ComputedArray([2, 1, 0], dtype=int32)
    """
    x = as_op(x)
    found = own_axes(x, axes, "flip")
    return _read(x, x.axes, {a: a.size - 1 - Idx(a) for a in found}) if found else x


def both_sides(padding: Any) -> tuple[int, int]:
    """Returns (before, after) for a padding given as a number or as such a pair."""
    one = _whole(padding)
    pair = (one, one) if one is not None else tuple(_whole(p) for p in padding)
    if len(pair) != 2 or None in pair:
        raise AxisError(f"{padding!r} is not padding", fix="give a whole number, or (before, after)")
    return pair  # type: ignore[return-value]  # two ints, as checked above


def diagonal(x: Any, axis: Axis | str, other: Axis | str) -> Op:
    """Returns `x` where the indices along two axes are equal; `axis` stays, with the length of the shorter one.

    >>> ng.function(ng.diagonal(ng.constant([[1, 2], [3, 4]], "H=2 W=2"), "H", "W"))()
    ComputedArray([1, 4])
    """
    x = as_op(x)
    a, b = find_axis(x, axis, "diagonal"), find_axis(x, other, "diagonal")
    if a == b:
        raise AxisError(f"diagonal({x.label}): {a.label} twice", details=(show_input(x),), fix="name two axes")
    kept = a.resized(expr.minimum(a.size, b.size))
    axes = [kept if c is a else c for c in x.axes if c is not b]
    return _read(x, axes, {a: Idx(kept), b: Idx(kept)})


# ---- windows ----------------------------------------------------------------------------------------------------------


def windows_along(x: Op, axis: Axis, window: Axis, stride: int, padding: tuple[int, int], dilation: int, name: str) -> ExprLike:
    """Returns the number of windows that fit along the padded axis. Raises AxisError where all lengths are known and none fits."""
    padded, reach = axis.size + sum(padding), (window.size - 1) * dilation + 1
    spare = padded - reach
    if isinstance(spare, int) and spare < 0:
        raise AxisError(
            f"{name}({x.label}): no window of {window!r} fits along {axis!r}: with dilation {dilation} it is {reach} long, "
            f"and the axis with padding {padding} is {padded}",
            details=(show_input(x),),
            fix="take a shorter window, more padding, or fewer layers before it that halve the length",
        )
    count = spare // stride + 1
    return count if count == axis.size else at_least_zero(count)  # a length is not negative, in whatever form it is known


def windows(
    x: Any,
    spatial: Mapping[Any, Axis],
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    pad_value: Any = 0,
    out: Mapping[Any, Axis] | None = None,
) -> Op:
    """Returns sliding windows: {H: R} adds the axis R along each window, and H then counts the windows.

    stride, dilation: a number for all, or a dict by axis. padding: a number, (before, after), or a dict of them, read as `pad_value`.
    out: other axes for the counts of windows, {H: P}. Source: im2col, Chellapilla et al. 2006. Raises AxisError.
    """
    x = as_op(x)
    found = {find_axis(x, a, "windows"): r for a, r in spatial.items()}
    taken = [r.label for r in found.values() if r in x.axes]
    if taken:
        raise AxisError(
            f"windows({x.label}): {', '.join(taken)} is an axis of {x.label} already", details=(show_input(x),), fix="take another name"
        )
    strides, dilations = per_axis(x, found, stride, "windows"), per_axis(x, found, dilation, "windows")
    pads = {a: both_sides(p) for a, p in per_axis(x, found, padding, "windows").items()}
    given = {find_axis(x, a, "windows"): new_axis(o) for a, o in (out or {}).items()}
    outs: dict[Axis, Axis] = {}
    for a, r in found.items():
        size = windows_along(x, a, r, strides[a], pads[a], dilations[a], "windows")
        x, outs[a] = checked_out(x, a, given[a], size, "windows") if a in given else (x, a.resized(size))
    index = {a: Idx(outs[a]) * strides[a] + Idx(r) * dilations[a] - pads[a][0] for a, r in found.items()}
    return _read(x, (*(outs.get(a, a) for a in x.axes), *found.values()), index, pad_value=pad_value)


def per_axis(x: Op, axes: Iterable[Axis], setting: Any, name: str) -> dict[Axis, Any]:
    """Returns a setting for each axis, from one for all or from a dict by axis or name."""
    if not isinstance(setting, Mapping):
        return dict.fromkeys(axes, setting)
    given = {find_axis(x, a, name): v for a, v in setting.items()}
    missing = [a.label for a in axes if a not in given]
    if missing:
        raise AxisError(f"{name}({x.label}): nothing is said for {', '.join(missing)} in {setting}", details=(show_input(x),))
    return given


def checked_out(x: Op, a: Axis, given: Axis, size: ExprLike, name: str) -> tuple[Op, Axis]:
    """Returns x and the axis given for a result along `a` of this length: it takes the length, or must have it in each call."""
    if given.family.length is None and not rests_on(size, {given.family}):
        given.family.length = size
    elif given.length is None:
        given = given.resized(size)  # a length that may differ from its own, or that depends on it, as that of the axis of x
    elif not isinstance(size, int):
        what, fix = f"axis {a.label} for a result of {given!r}", "leave the length of the result's axis open"
        return _read(x, x.axes, {a: Idx(a) + checked_lengths(a, distance(size, given.size), what, fix)}), given
    elif given.length != size:
        raise AxisError(
            f"{name}({x.label}): the result's axis {given!r} would have length {size}",
            details=(show_input(x),),
            fix=f"ng.make_axis({size}, name={given.name!r}), or leave its length open",
        )
    return x, given


# ---- joining and splitting --------------------------------------------------------------------------------------------


def _join(x: Op, groups: Sequence[Sequence[Axis]], order: Sequence[Axis] | None = None) -> Op:
    """Returns `x` with each group of axes joined, at the position of the group's first axis in `x`."""
    index: dict[Axis, ExprLike] = {}
    joined: dict[Axis, Axis] = {}
    for group in groups:
        if len(group) < 2:
            continue
        axis = joined_axis(group)
        index.update(zip(group, digits(Idx(axis), [a.size for a in group]), strict=True))
        joined.update(dict.fromkeys(group, axis))
    if not index:
        return x
    axes = dict.fromkeys(joined.get(a, a) for a in x.axes)
    return _read(x, axes if order is None else order, index)


def flatten(x: Any, axes: Any = None) -> Op:
    """Returns `x` with axes joined into one, in the order given, the last fastest; all of them by default.

    axes: axes of `x` to join; or the axes of the result, some of them joined ones as `flatten` makes. Raises AxisError.

    >>> ng.flatten(ng.placeholder("N=2 H=3 W=4"), "H W").axes
    Axes(N=2, H*W=12)
    """
    x = as_op(x)
    if axes is None:
        return _join(x, [x.axes])
    axes = own_or_new_axes(x, axes)
    whole = [a for a in axes if a.is_flattened and a not in x.axes]
    if not whole:
        return _join(x, [[find_axis(x, a, "flatten") for a in axes]])
    wanted = [p for a in axes for p in ((a.family.parts or ()) if a in whole else (a,))]
    if len(wanted) != len(x.axes) or set(wanted) != set(x.axes):
        raise AxisError(
            f"flatten({x.label}): {show_axes(axes)} is not made of {show_axes(x.axes)}",
            details=(show_input(x),),
            fix="name axes of x to join",
        )
    groups = {a: [find_axis(x, p, "flatten") for p in a.family.parts or ()] for a in whole}
    order = [joined_axis(groups[a]) if a in groups else a for a in axes]
    return cast_axes(_join(x, list(groups.values()), order), axes)


def flatten_at(x: Any, idx: int) -> Op:
    """Returns `x` as a matrix: the axes before position `idx` joined, and those from it on; at either end, all joined into one.

    >>> ng.flatten_at(ng.placeholder("N=2 H=3 W=4"), 1).axes
    Axes(N=2, H*W=12)
    """
    x = as_op(x)
    at = idx if idx >= 0 else idx + len(x.axes)
    if not 0 <= at <= len(x.axes):
        raise AxisError(f"flatten_at({x.label}): there is no position {idx} in {show_axes(x.axes)}", details=(show_input(x),))
    return flatten(x) if at in (0, len(x.axes)) else _join(x, [x.axes[:at], x.axes[at:]])


def unflatten(x: Any, axes: Any = None) -> Op:
    """Returns `x` with joined axes split.

    axes: the axes of the result; or one axis of `x`. By default every axis that `flatten` joined is split into its parts. An axis that
    was not joined can be split, too, if it is the only one missing in `axes` and the lengths multiply to its own; one part may be without
    a length. Raises AxisError; where lengths that a call brings do not multiply to it, the call raises BoundsError.

    >>> ng.unflatten(ng.flatten(ng.ones("N=2 H=3 W=4"), "H W")).axes
    Axes(N=2, H=3, W=4)
    """
    x = as_op(x)
    if isinstance(axes, Axis) or isinstance(axes, str) and len(words(axes)) == 1:
        mine = find_axis(x, axes, "unflatten")
        axes = Axes(p for a in x.axes for p in ((a.family.parts or (a,)) if a is mine else (a,)))
    elif axes is None:
        axes = Axes(p for a in x.axes for p in a.family.parts or (a,))
    axes = own_or_new_axes(x, axes)
    split: dict[Axis, list[Axis]] = {}
    for a in x.axes:
        if a not in axes and a.family.parts and all(p in axes for p in a.family.parts):
            split[a] = [axes[axes.index(p)] for p in a.family.parts]
    used = {p for parts in split.values() for p in parts}
    rest = [a for a in x.axes if a not in axes and a not in split]
    new = [a for a in axes if a not in x.axes and a not in used]
    if len(rest) == 1:
        split[rest[0]] = new
        rest = new = []
    for a, parts in split.items():
        _take_rest(a, parts)
    wrong = [a for a, parts in split.items() if not _same_size(a.size, product(p.size for p in parts))]
    if rest or new or wrong:
        raise AxisError(
            f"unflatten({x.label}): {show_axes(wrong or rest)} cannot be split into {show_axes(axes)}",
            details=(show_input(x),),
            fix="give axes whose lengths multiply to it",
        )
    index = {a: radix([Idx(p) for p in parts], [p.size for p in parts]) + _parted(a, parts) for a, parts in split.items()}
    kept = {a: a for a in x.axes}
    return _read(x, [kept.get(a, a) for a in axes], index) if index else axes_with_order(x, axes)


def _take_rest(a: Axis, parts: Sequence[Axis]) -> None:
    """Gives the only part without a length what the others leave of that of `a`, an axis that they split."""
    others = product(p.size for p in parts if p.family.length is not None)
    unknown = [p for p in parts if p.family.length is None]
    if len(unknown) == 1 and isinstance(others, int) and others > 0 and not rests_on(a.size, {unknown[0].family}):
        unknown[0].family.length = a.size // others


def _parted(a: Axis, parts: Sequence[Axis]) -> ExprLike:
    """Returns 0 for an index expression. A call in which the parts' lengths do not multiply to that of `a` ends with a BoundsError."""
    apart = distance(a.size, product(p.size for p in parts))
    return checked_lengths(a, apart, f"axis {a.label} split into {show_axes(parts)}", "give parts whose lengths multiply to it")


def _same_size(a: ExprLike, b: ExprLike) -> bool:
    """Whether two lengths agree; unknown ones do."""
    return a == b if isinstance(a, int) and isinstance(b, int) else True


# ---- concat -----------------------------------------------------------------------------------------------------------


def _concat_type(inputs: tuple[TensorType, ...], parts: tuple[Any, ...], axis: Any) -> TensorType:
    if len(parts) != len(inputs) or any(p not in x.axes for p, x in zip(parts, inputs, strict=True)):
        raise AxisError(f"concat along {list(parts)} of {[list(x.axes) for x in inputs]}", fix="name one axis of each input")
    if any(x.dtype is not inputs[0].dtype for x in inputs):
        raise DTypeError(f"concat of {', '.join(str(x.dtype) for x in inputs)}", fix="cast to one dtype")
    others = [without(x.axes, (p,)) for x, p in zip(inputs, parts, strict=True)]
    merged = merge(*others)
    if any(len(o) != len(merged) for o in others):
        raise AxisError(f"concat of {[list(x.axes) for x in inputs]}", fix="broadcast them to the same axes first")
    return TensorType(axes_like(inputs[0].axes, [axis if a == parts[0] else a for a in inputs[0].axes]), inputs[0].dtype)


def _concat_reference(call: Call, *arrays: np.ndarray) -> np.ndarray:
    along = call.attrs["axis"]
    lined = []
    for x, t, part in zip(arrays, call.inputs, call.attrs["parts"], strict=True):
        lined.append(align(x, [along if a == part else a for a in t.axes], call.axes))
    return np.concatenate(lined, axis=call.axes.index(along))


def _concat_gradient(op: Op, dy: Op, *inputs: Op) -> tuple[Op, ...]:
    axis = op.attrs["axis"]
    given = []
    start: ExprLike = 0
    for x, part in zip(inputs, op.attrs["parts"], strict=True):
        given.append(_read(dy, [*without(x.axes, (part,)), part], {dy.axes[dy.axes.index(axis)]: start + Idx(part)}))
        start = start + part.size
    return tuple(given)


concat: OpDef = op(
    "concat",
    "Tensors one after another: `parts[k]` is x_k's axis; all other axes agree; `axis` has the sum of their lengths.",
    form="(x…; parts, axis)",
    type=_concat_type,
    reference=_concat_reference,
    prepare=lambda inputs, attrs: (common(as_ops(inputs)), attrs),
    grad=_concat_gradient,
    samples=lambda s: [
        concat_along_axis([s.x(s.I, s.J), s.x(s.J, s.axis(2, name="I"))], s.I),
        concat_along_axis([s.x(s.Z), s.x(s.axis(3, name=s.Z.name)), s.x(s.axis(1, name=s.Z.name))], s.Z),
        concat_along_axis([s.x(s.I, s.I - 1), s.x(s.I, s.I - 1)], s.I - 1),
        concat_along_axis([s.special(s.K, s.O), s.x(s.K, s.O)], s.O),
        stack([s.x(s.I, s.K), s.x(s.K, s.I)], s.axis(2, name="S"), 1),
        stack([s.x(), s.x(), s.x()], s.axis(3, name="S")),
    ],
    kinds=MOVED,
    onnx="Concat",
    torch="aten.cat",
)


def _same_axes(xs: Sequence[Op], others: Sequence[Axes], name: str) -> None:
    unlike = [x for x, o in zip(xs, others, strict=True) if not o.is_equal_set(others[0])]
    if unlike:
        raise AxisError(
            f"{name}({', '.join(x.label for x in xs)}): the axes are not the same",
            details=tuple(show_input(x) for x in (xs[0], *unlike)),
            fix="add the missing ones with ng.broadcast",
        )
    try:
        merge(*others)
    except Clash as clash:
        a, b = next((pair for pair in clash.pairs if pair[0].length != pair[1].length), (None, None))
        if a is None or b is None:
            return  # flags, of which the op tells
        holders = [next(x for x, o in zip(xs, others, strict=True) if any(c is own for c in o)) for own in (a, b)]
        raise AxisError(
            f"{name}({', '.join(x.label for x in xs)}): axis {a.label} has length {a.length} in {holders[0].label} and {b.length} in"
            f" {holders[1].label}",
            details=(*map(show_input, holders), show_made(a), show_made(b)),
            fix="give both one length: pad, cut or resize one",
        ) from None


def concat_along_axis(x_list: Iterable[Any], axis: Axis | str) -> Op:
    """Returns tensors concatenated along `axis`, which each has, of any length; the other axes agree, in any order.

    The axis keeps its name. Promotes dtypes. Raises AxisError that names all tensors that do not fit.

    >>> ng.concat_along_axis([ng.ones("H=2 W=4"), ng.ones("H=3 W=4")], "H").axes
    Axes(H=5, W=4)
    """
    x_list = tuple(x_list)
    if not x_list:
        raise AxisError("concat_along_axis of no tensors", fix="give at least one")
    xs = common(as_ops(x_list))
    parts = [find_axis(x, axis, "concat_along_axis") for x in xs]
    _same_axes(xs, [x.axes - Axes(p) for x, p in zip(xs, parts, strict=True)], "concat_along_axis")
    if len(xs) == 1:
        return xs[0]
    total: ExprLike = 0
    for p in parts:
        total = total + p.size
    return concat.build(*xs, parts=tuple(parts), axis=parts[0].resized(total))


def stack(x_list: Iterable[Any], axis: Axis | str, pos: int = 0) -> Op:
    """Returns tensors of equal axes stacked along a new one at position `pos`, of that length. Promotes dtypes. Raises AxisError.

    >>> ng.stack([ng.ones("H=3"), ng.zeros("H=3")], "K").axes
    Axes(K=2, H=3)
    """
    x_list = tuple(x_list)
    if not x_list:
        raise AxisError("stack of no tensors", fix="give at least one")
    xs, axis = common(as_ops(x_list)), make_axis(name=axis) if isinstance(axis, str) and "=" not in axis else as_axis(axis)
    if any(axis in x.axes for x in xs):
        raise AxisError(
            f"stack({', '.join(x.label for x in xs)}): {axis!r} is an axis of them already",
            details=tuple(show_input(x) for x in xs),
            fix="take a new axis, or ng.concat_along_axis",
        )
    if axis.length is None:
        axis.length = len(xs)
    if axis.length != len(xs):
        raise AxisError(f"stack: {len(xs)} tensors along {axis!r}", fix=f"ng.make_axis({len(xs)}, name={axis.name!r})")
    _same_axes(xs, [x.axes for x in xs], "stack")
    one = axis.resized(1)
    slices = [expand_dims(axes_with_order(x, xs[0].axes), one, pos) for x in xs]
    return slices[0] if len(xs) == 1 else concat.build(*slices, parts=(one,) * len(xs), axis=axis)

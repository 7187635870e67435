"""Sums of products over named axes: the core `contract`, and `dot` with its pairing of duals."""

from __future__ import annotations

from typing import Any

import numpy as np

from ngraph.errors import AxisError, DTypeError, nearest
from ngraph.op_graph.arguments import checked
from ngraph.op_graph.axes import Axes, Axis, make_axis, show_axes
from ngraph.op_graph.dtypes import DType, accumulator, computes
from ngraph.op_graph.op import Op, TensorType
from ngraph.op_graph.opdef import Call, OpDef, op, own_axes, show_input
from ngraph.ops.aligned import align, axes_like, union, without
from ngraph.ops.elementwise import NUMERIC, arithmetic
from ngraph.ops.rearrange import axes_with_order, relabelled
from ngraph.warn import warn


def _type(inputs: tuple[TensorType, ...], over: tuple[Any, ...], accumulate: DType) -> TensorType:
    x, y = inputs
    computes("contract", x.dtype, y.dtype)
    if x.dtype is not y.dtype or x.dtype.kind == "bool":
        raise DTypeError(f"contract of {x.dtype} and {y.dtype}", fix="cast to one numeric dtype")
    merged = union(x.axes, y.axes)
    missing = [a for a in over if a not in merged]
    if missing:
        raise AxisError(f"contract over {', '.join(map(str, missing))}, which neither {list(x.axes)} nor {list(y.axes)} has")
    return TensorType(axes_like(merged, [*without(x.axes, over), *without(y.axes, (*over, *x.axes))]), x.dtype)


def _reference(call: Call, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    a, b = call.inputs
    over = call.attrs["over"]
    every = [*call.axes, *over]
    with np.errstate(all="ignore"):
        kind = call.attrs["accumulate"].np
        product = align(x.astype(kind), a.axes, every) * align(y.astype(kind), b.axes, every)
        product = np.broadcast_to(product, call.shape(every))
        return np.asarray(product.sum(axis=tuple(range(len(call.axes), len(every))), dtype=kind)).astype(call.dtype.np)


def _gradient(op: Op, dy: Op, x: Op, y: Op) -> tuple[Op, Op]:
    """Returns the gradients: each operand's is dy contracted with the other operand over all axes that it lacks."""

    def toward(mine: Op, other: Op) -> Op:
        over = [a for a in union(dy.axes, other.axes) if a not in mine.axes]
        return contract(dy, other, over=tuple(over))

    return toward(x, y), toward(y, x)


def _prepare(inputs: tuple[Any, ...], attrs: dict[str, Any]) -> tuple[tuple[Op, ...], dict[str, Any]]:
    ops, _ = arithmetic(inputs, {})
    over = tuple(own_axes(ops, attrs["over"], "contract"))
    return ops, {**attrs, "over": over, "accumulate": accumulator(ops[0].dtype, attrs.get("accumulate"))}


contract: OpDef = op(
    "contract",
    "The sum over `over` of x*y, added up as dtype `accumulate`, the result in x's; `over` axes are in x or y or both, other axes that "
    "both have are the same index.",
    form="(x, y; over, accumulate)",
    commutes=True,
    example='>>> ng.contract(ng.placeholder("I=2 J=3"), ng.placeholder("J=3 K=4"), over="J").axes\nAxes(I=2, K=4)',
    type=_type,
    reference=_reference,
    prepare=_prepare,
    grad=_gradient,
    samples=lambda s: [
        contract(x, y, over=over)
        for x, y, over in (
            (s.x(s.I, s.J), s.x(s.J, s.K), (s.J,)),
            (s.x(s.J, s.I), s.x(s.K, s.J), (s.J,)),
            (s.x(s.N, s.I, s.J), s.x(s.J, s.N, s.K), (s.J,)),
            (s.x(s.I, s.J, s.K), s.x(s.K, s.I, s.N), (s.K, s.I)),
            (s.x(s.I), s.x(s.I), (s.I,)),
            (s.x(s.I), s.x(s.J), ()),
            (s.x(), s.x(s.J), (s.J,)),
            (s.x(s.I, s.J), s.x(s.J), (s.I, s.J)),
            (s.x(s.I, s.I - 1), s.x(s.I - 1, s.N), (s.I - 1,)),
            (s.x(s.Z, s.I), s.x(s.Z, s.J), (s.Z,)),
            (s.x(s.Z, s.I), s.x(s.I, s.J), (s.I,)),
            (s.x(s.O, s.I), s.x(s.I, s.O), (s.I, s.O)),
            (s.special(s.I, s.J), s.x(s.J), (s.J,)),
        )
    ],
    kinds=NUMERIC,
    ulp=16,
    error=1e-5,
)


def _renamed(x: Op, pairs: list[tuple[Axis, Axis]]) -> Op:
    """Returns `x` with axes renamed; the other axes stay."""
    new = dict(pairs)
    return relabelled(x, [new.get(a, a) for a in x.axes], "dot") if pairs else x


def _meeting_axis(a: Axis, taken: set[Axis]) -> Axis:
    """Returns an axis of the length of `a` that neither operand has."""
    name = a.name + "_dot"
    while any(t.name == name for t in taken):
        name += "_"
    met = make_axis(a.length, name=name, batch=False, recurrent=False)
    if a.length is None:
        met.family.length = a.size
    return met


def dot(x: Any, y: Any, out_axes: Any = None) -> Op:
    """Returns the sum of products over paired axes.

    First duals pair: an axis at level n in x with the same axis at level n + 1 in y, as `W[C - 1]` with `X[C]`. Then remaining axes
    that both have. The result has x's remaining axes, then y's. Contracting a batch axis by the second rule warns, and so does a dot
    that pairs no axis, which is written `x * y`; `ng.config(strict=True)` makes both errors. out_axes: the result's axes in
    another order. Raises AxisError for different lengths.

    >>> ng.dot(ng.placeholder("N=2 H=3 W=4"), ng.placeholder("W=4 K=5")).axes
    Axes(N=2, H=3, K=5)
    """
    (x, y), _ = arithmetic((x, y), {})
    pairs = [(a, a + 1) for a in x.axes if a + 1 in y.axes]
    paired_y = {b for _, b in pairs}
    paired_x = {a for a, _ in pairs}
    both = [a for a in x.axes if a not in paired_x and a in y.axes and a not in paired_y]
    _check_lengths(x, y, [*pairs, *((a, a) for a in both)])
    _warn_batch(x, y, both)
    if not pairs and not both and x.axes and y.axes:
        _warn_unpaired(x, y)
    taken = {*x.axes, *y.axes}
    over: list[Axis] = []
    in_x: list[tuple[Axis, Axis]] = []
    in_y: list[tuple[Axis, Axis]] = []
    for a, b in pairs:
        b = y.axes[y.axes.index(b)]
        if a in y.axes:  # another level of the name exists there: both are renamed to a third
            met = _meeting_axis(a, taken)
            taken.add(met)
            in_x.append((a, met))
            in_y.append((b, met))
            over.append(met)
        else:
            in_y.append((b, a))
            over.append(a)
    result = contract(_renamed(x, in_x), _renamed(y, in_y), over=(*over, *both))
    return result if out_axes is None else axes_with_order(result, out_axes)


def _check_lengths(x: Op, y: Op, pairs: list[tuple[Axis, Axis]]) -> None:
    wrong = []
    for a, b in pairs:
        mine, theirs = x.axes[x.axes.index(a)], y.axes[y.axes.index(b)]
        if mine.length is not None and theirs.length is not None and mine.length != theirs.length:
            wrong.append(f"axis {mine.label} has length {mine.length} in {x.label} and {theirs.length} in {y.label}")
    if wrong:
        raise AxisError(
            f"dot({x.label}, {y.label}): {'; '.join(wrong)}",
            details=(show_input(x), show_input(y)),
            fix="give them one axis, or rename one of the two",
        )


def _warn_batch(x: Op, y: Op, both: list[Axis]) -> None:
    batch = [a for a in both if a.is_batch]
    if not batch:
        return
    what = f"dot({x.label}, {y.label}) sums over the batch axis {show_axes(batch)}, which both have"
    fix = "ng.sum(x * y, ...) keeps it; to contract it on purpose, pair it with a dual"
    warn(what, details=(show_input(x), show_input(y)), fix=fix, error=AxisError)


def _warn_unpaired(x: Op, y: Op) -> None:
    """Warns of a dot that sums over no axis, since its axes may be misspelt."""
    names = {b.name: b for b in y.axes}
    alike = [(a, names[near]) for a in x.axes if (near := nearest(a.name, names)) is not None]
    renamed = [f"ng.map_roles({y.label}, {{{b.name!r}: {a.name!r}}})" for a, b in alike if a.length is None or b.length in (None, a.length)]
    fix = f"give them one axis: {renamed[0]}; {x.label} * {y.label} is the product without a sum" if renamed else ""
    warn(
        f"dot({x.label}, {y.label}) pairs no axis of {show_axes(x.axes)} with one of {show_axes(y.axes)}, so it sums nothing",
        details=(show_input(x), show_input(y)),
        fix=fix or f"{x.label} * {y.label} is the product without a sum; a sum needs an axis that both have",
        error=AxisError,
    )


_checked_dot = checked(dot)
for _name, _function in (("__matmul__", lambda x, y: _checked_dot(x, y)), ("__rmatmul__", lambda x, y: _checked_dot(y, x))):
    setattr(Op, _name, _function)


def linear_map_axes(in_axes: Any, out_axes: Any) -> Axes:
    """Returns the axes of weights with which `dot(W, x)` maps `in_axes` to `out_axes`: out_axes, and the duals of in_axes.

    >>> ng.linear_map_axes(ng.axes("C=3"), ng.axes("K=5"))
    Axes(K=5, C'=3)
    """
    return Axes.linear_map_axes(in_axes, out_axes)

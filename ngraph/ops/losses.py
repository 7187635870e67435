"""Softmax and cross-entropies. Losses of logits are computed in a numerically stable way, without the probabilities."""

from __future__ import annotations

import math
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ngraph.errors import UnmatchedAxesError
from ngraph.op_graph.axes import Axes
from ngraph.op_graph.dtypes import DType, accumulator
from ngraph.op_graph.op import Op, TensorType
from ngraph.op_graph.opdef import Call, OpDef, op, show_input
from ngraph.ops.aligned import wide, without
from ngraph.ops.elementwise import (
    absolute,
    as_op,
    cast,
    cast_record,
    composite,
    exp,
    floating,
    log,
    log1p,
    maximum,
    rounding_once,
    safelog,
    sigmoid,
)
from ngraph.ops.reduce import reduce, reduced_axes, sum


def _dims(call: Call) -> tuple[int, ...]:
    return tuple(call.inputs[0].axes.index(a) for a in call.attrs["axes"])


def _exponentials(x: Op, axes: Any) -> tuple[Op, Op, Op]:
    """Returns x less its maximum, e to that, and the sum of those, which softmax and its losses share."""
    shifted = x - reduce.build(x, kind="max", axes=axes)
    e = exp(shifted)
    return shifted, e, reduce.build(e, kind="add", axes=axes)


def _softmax_lower(op: Op, x: Op) -> Op:
    def shares(x: Op) -> Op:
        _, e, total = _exponentials(x, op.attrs["axes"])
        return e * (1.0 / total)

    return rounding_once(shares)(x)


def _softmax_reference(call: Call, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        x = wide(x)
        if x.size == 0:
            return x.astype(call.dtype.np)
        e = np.exp(x - x.max(axis=_dims(call), keepdims=True))
        return (e / e.sum(axis=_dims(call), keepdims=True)).astype(call.dtype.np)


softmax_record: OpDef = op(
    "softmax",
    "e to the x, divided by its sum along axes.",
    type=lambda inputs, axes: inputs[0],
    reference=_softmax_reference,
    lower=_softmax_lower,
    grad=lambda op, dy, x: op * (dy - reduce.build(dy * op, kind="add", axes=op.attrs["axes"])),
    samples=lambda s: [
        softmax_record.build(x, axes=axes)
        for x, axes in (
            (s.x(s.I, s.J), (s.J,)),
            (s.x(s.J, s.N, s.I), (s.I, s.J)),
            (s.x(s.O, s.J), (s.O,)),
            (s.x(s.I, s.I - 1), (s.I,)),
            (s.x(s.Z, s.I), (s.I,)),
            (s.special(s.I, s.J), (s.J,)),
        )
    ],
    ulp=16,
    error=1e-6,
    onnx="Softmax",
)


def softmax(x: Any, normalization_axes: Any = None) -> Op:
    """Returns e to the x, divided by its sum over `normalization_axes`: all but batch and recurrent axes by default.

    >>> ng.function(ng.softmax(ng.constant([0.0, 0.0], "Y=2"), "Y"))()
    ComputedArray([0.5, 0.5])
    """
    (x,), _ = floating((as_op(x),), {})
    return softmax_record.build(x, axes=reduced_axes(x, normalization_axes, None, "softmax"))


def _logits_lower(op: Op, x: Op, t: Op) -> Op:
    axes = op.attrs["axes"]

    def loss(x: Op, t: Op) -> Op:
        shifted, _, total = _exponentials(x, axes)
        mass = reduce.build(t, kind="add", axes=axes)
        return log(total) * mass - reduce.build(shifted * t, kind="add", axes=axes)

    return rounding_once(loss)(x, t)


def _logits_gradient(op: Op, dy: Op, x: Op, t: Op) -> tuple[Op, Op]:
    axes = op.attrs["axes"]
    mass = reduce.build(t, kind="add", axes=axes)
    shifted, e, total = _exponentials(x, axes)
    return dy * (e * (mass / total) - t), dy * (log(total) - shifted)


def _logits_reference(call: Call, x: np.ndarray, t: np.ndarray) -> np.ndarray:
    t = wide(np.transpose(t, [call.inputs[1].axes.index(a) for a in call.inputs[0].axes]))
    x, dims = wide(x), _dims(call)
    with np.errstate(all="ignore"):
        if x.size == 0:
            return np.zeros(call.shape(call.axes), call.dtype.np)
        m = x.max(axis=dims, keepdims=True)
        log_softmax = x - m - np.log(np.exp(x - m).sum(axis=dims, keepdims=True))
        return np.asarray(-(t * log_softmax).sum(axis=dims)).astype(call.dtype.np)


def _logits_type(inputs: tuple[TensorType, ...], axes: tuple[Any, ...]) -> TensorType:
    return TensorType(without(inputs[0].axes, axes), inputs[0].dtype)


cross_entropy_of_logits: OpDef = op(
    "cross_entropy_of_logits",
    "Minus the sum along axes of t times the logarithm of softmax(x).",
    type=_logits_type,
    reference=_logits_reference,
    lower=_logits_lower,
    grad=_logits_gradient,
    samples=lambda s: [
        cross_entropy_of_logits.build(x, t, axes=axes)
        for x, t, axes in (
            (s.x(s.I, s.J), s.x(s.I, s.J, low=0.1, high=1), (s.J,)),
            (s.x(s.I, s.N), s.x(s.N, s.I, low=0.1, high=1), (s.I,)),
            (s.x(s.O, s.J), s.x(s.J, s.O, low=0.1, high=1), (s.O, s.J)),
            (s.x(s.Z, s.J), s.x(s.Z, s.J, low=0.1, high=1), (s.J,)),
        )
    ],
    ulp=32,
    error=1e-5,
)

cross_entropy_binary_of_logits: OpDef = composite(
    "cross_entropy_binary_of_logits",
    "-(t log sigmoid(x) + (1 - t) log(1 - sigmoid(x))), exact for large x.",
    lambda x, t: np.maximum(x, 0) - x * t + np.log1p(np.exp(-np.abs(x))),
    rounding_once(lambda x, t: maximum(x, 0.0) - x * t + log1p(exp(-absolute(x)))),
    lambda op, dy, x, t: (dy * (sigmoid(x) - t), -(dy * x)),
    arity=2,
    ulp=16,
    error=1e-6,
)


_skipped: WeakKeyDictionary[Op, Op] = WeakKeyDictionary()  # a loss from logits -> the probabilities that were passed, or a cast of them


def _widened(y: Op) -> list[Op]:
    """Returns `y` and what it is a cast of to a wider float, as mixed precision makes one, the first op last."""
    chain = [y]
    while y.opdef is cast_record and y.dtype.is_float and y.inputs[0].dtype.is_float and y.inputs[0].dtype.bits < y.dtype.bits:
        chain.append(y := y.inputs[0])
    return chain


def _from_logits(record: OpDef, y: Op, t: Op, **attrs: Any) -> Op:
    """Returns the loss computed from the logits of the probabilities `y`, or of those that it is a cast of."""
    made = record.build(cast(_widened(y)[-1].inputs[0], t.dtype), t, **attrs)
    _skipped[made] = y
    return made


def through_probabilities(loss: Op, y: Op, t: Op) -> Op | None:
    """Returns the loss as a function of the probabilities `y`, where it was computed from their logits; else None."""
    passed = _skipped.get(loss)
    if passed is None or not any(y is o for o in _widened(passed)):
        return None
    p = cast(passed, t.dtype)
    return _of_shares(p, t) if loss.opdef is cross_entropy_binary_of_logits else -reduce.build(safelog(p) * t, kind="add", **loss.attrs)


def _of_shares(p: Op, t: Op) -> Op:
    return -(safelog(p) * t + safelog(1.0 - p) * (1.0 - t))


def _same_axes(name: str, y: Op, t: Op) -> None:
    if not (set(t.axes) <= set(y.axes) or set(y.axes) <= set(t.axes)):
        raise UnmatchedAxesError(
            f"{name}({y.label}, {t.label}): neither has all axes of the other",
            details=(show_input(y), show_input(t)),
            fix="rename an axis of one of them: ng.map_roles(x, {old: new})",
        )


def _given(y: Any, t: Any, record: OpDef | None) -> tuple[tuple[Op, ...], Op | None, tuple[DType, DType]]:
    """Returns prediction and target in one dtype; the prediction as passed if this record made it; that dtype and its accumulator."""
    y = as_op(y)
    straight = y if record is not None and _widened(y)[-1].opdef is record else None
    both, _ = floating((y, t), {})
    return both, straight, (both[0].dtype, accumulator(both[0].dtype))


def cross_entropy_multi(
    y: Any, t: Any, usebits: bool = False, out_axes: Any = None, enable_softmax_opt: bool = True, enable_diff_opt: bool = True
) -> Op:
    """Returns minus the sum of t times log(y), over all but batch and recurrent axes or all but `out_axes`; in bits with `usebits`.

    y: probabilities; where they are the result of `softmax`, or of a cast of it, the loss is computed from its logits. t: targets.

    >>> y, t = ng.constant([0.5, 0.25, 0.25], "Y=3"), ng.constant([1.0, 0.0, 0.0], "Y=3")
    >>> round(float(ng.function(ng.cross_entropy_multi(y, t, out_axes=()))()), 3)
    0.693
    """
    (y, t), x, (kind, wide) = _given(y, t, softmax_record if enable_softmax_opt else None)
    _same_axes("cross_entropy_multi", y, t)
    gone = reduced_axes(y if set(t.axes) <= set(y.axes) else t, None, out_axes, "cross_entropy_multi")
    normal = () if x is None else _widened(x)[-1].attrs["axes"]
    t = cast(t, wide)
    if x is not None and set(normal) <= set(gone) and set(t.axes) == set(y.axes):
        loss = _from_logits(cross_entropy_of_logits, x, t, axes=normal)
        rest = Axes(a for a in gone if a not in set(normal))
        loss = sum(loss, reduction_axes=rest) if rest else loss
        loss = loss if out_axes is None else sum(loss, reduction_axes=[], out_axes=out_axes)
    else:
        loss = -sum(safelog(cast(y, wide)) * t, out_axes=out_axes)
    return cast(loss * (1 / math.log(2)) if usebits else loss, kind)


def _binary(y: Any, t: Any, from_logits: bool) -> tuple[Op, DType]:
    """Returns the binary cross-entropy of each element, of 16-bit floats still in float32; and its final dtype."""
    (y, t), x, (kind, wide) = _given(y, t, sigmoid if from_logits else None)
    _same_axes("cross_entropy_binary", y, t)
    t = cast(t, wide)
    if x is not None:
        return _from_logits(cross_entropy_binary_of_logits, x, t), kind
    return _of_shares(cast(y, wide), t), kind


def cross_entropy_binary_inner(y: Any, t: Any, enable_sig_opt: bool = True, enable_diff_opt: bool = True) -> Op:
    """Returns -(t log y + (1 - t) log(1 - y)) of each element; computed from the logits where y is the result of `sigmoid`.

    >>> y, t = ng.constant([0.5, 0.25], "H=2"), ng.constant([1.0, 0.0], "H=2")
    >>> ng.function(ng.cross_entropy_binary_inner(y, t))().round(3)
    array([0.693, 0.288])
    """
    loss, kind = _binary(y, t, enable_sig_opt)
    return cast(loss, kind)


def cross_entropy_binary(
    y: Any, t: Any, usebits: bool = False, out_axes: Any = None, enable_sig_opt: bool = True, enable_diff_opt: bool = True
) -> Op:
    """Returns the sum of `cross_entropy_binary_inner` over all but batch and recurrent axes, or all but `out_axes`.

    >>> y, t = ng.constant([0.5, 0.25], "H=2"), ng.constant([1.0, 0.0], "H=2")
    >>> round(float(ng.function(ng.cross_entropy_binary(y, t, out_axes=()))()), 3)
    0.981
    """
    each, kind = _binary(y, t, enable_sig_opt)
    loss = sum(each, out_axes=out_axes)
    return cast(loss * (1 / math.log(2)) if usebits else loss, kind)

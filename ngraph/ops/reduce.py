"""Reductions: the core `reduce` and the ops composed of it (sums, means, norms, sizes).

Without `reduction_axes` and `out_axes` all but batch and recurrent axes are reduced; `out_axes` are kept, `reduction_axes` reduced.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence, ValuesView
from typing import Any

import numpy as np

from ngraph.errors import AxisError, DTypeError
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axes, Axis, show_axes
from ngraph.op_graph.dtypes import computes
from ngraph.op_graph.expr import ExprLike
from ngraph.op_graph.op import Op, TensorType
from ngraph.op_graph.opdef import REGISTRY, Call, OpDef, op, own_axes, show_input
from ngraph.ops.aligned import wide, without
from ngraph.ops.elementwise import (
    ALL,
    absolute,
    add,
    as_op,
    cast,
    constant_record,
    equal,
    filled,
    floating,
    maximum,
    rounding_once,
    sqrt,
)

KINDS = {"add": np.add, "multiply": np.multiply, "max": np.maximum, "min": np.minimum}


def _type(inputs: tuple[TensorType, ...], kind: str, axes: tuple[Any, ...]) -> TensorType:
    (x,) = inputs
    computes(f"reduce {kind}", x.dtype)
    if x.dtype.kind == "bool" and kind in ("add", "multiply"):
        raise DTypeError(f"reduce {kind} of bool", fix="cast to an integer first: ng.cast(x, 'int32')")
    missing = [a for a in axes if a not in x.axes]
    if missing:
        raise AxisError(f"reduce {kind}: {', '.join(map(str, missing))} is not an axis of {list(x.axes)}")
    return TensorType(without(x.axes, axes), x.dtype)


def _reference(call: Call, x: np.ndarray) -> np.ndarray:
    kind, axes = call.attrs["kind"], call.attrs["axes"]
    dims = tuple(call.inputs[0].axes.index(a) for a in axes)
    with np.errstate(all="ignore"):
        x = wide(x)
        if kind in ("max", "min"):
            d = call.dtype
            edge = d.lowest if kind == "max" else d.highest
            return np.asarray(KINDS[kind].reduce(x, axis=dims, initial=np.array(edge).astype(x.dtype)[()])).astype(d.np)
        return np.asarray(KINDS[kind].reduce(x, axis=dims, dtype=x.dtype)).astype(call.dtype.np)


def _product_gradient(dy: Op, x: Op, axes: Sequence[Any]) -> Op:
    """Returns dy times the product of all other elements, correct where elements are 0, too: running products from both ends."""
    if not axes:
        return dy
    last = axes[-1]
    if len(axes) > 1:
        inner = reduce.build(x, kind="multiply", axes=(last,))
        dy = _product_gradient(dy, inner, axes[:-1])
    running = REGISTRY["cumulate"].build
    before = running(x, kind="multiply", axis=last, exclusive=True, reverse=False)
    after = running(x, kind="multiply", axis=last, exclusive=True, reverse=True)
    return dy * before * after


def _gradient(op: Op, dy: Op, x: Op) -> Op:
    kind, axes = op.attrs["kind"], op.attrs["axes"]
    if kind == "add":
        return dy
    if kind == "multiply":
        return _product_gradient(dy, x, axes)
    best = cast(equal(x, op), x.dtype)  # ties share the gradient equally
    return dy * best / reduce.build(best, kind="add", axes=axes)


reduce: OpDef = op(
    "reduce",
    "`kind` along `axes`: `add multiply max min`. Of nothing: 0, 1, the lowest, the highest (floats: -inf, inf); bool: or, and for max, "
    "min; 16-bit floats accumulate in float32; floats are multiplied in the order of the axes.",
    form="(x; kind, axes)",
    type=_type,
    reference=_reference,
    grad=_gradient,
    samples=lambda s: [
        reduce.build(x, kind=kind, axes=axes)
        for kind in (("max", "min") if s.dtype.kind == "bool" else KINDS)
        for x, axes in (
            (s.x(s.I, s.J), (s.J,)),
            (s.x(s.J, s.I, s.K), (s.I, s.J)),
            (s.x(s.I, s.J), ()),
            (s.x(s.I, s.I - 1), (s.I - 1,)),
            (s.x(s.O, s.I), (s.O,)),
            (s.x(s.Z, s.J), (s.Z,)),
            (s.x(s.Z, s.J), (s.J,)),
            (s.special(s.I, s.J), (s.I,)),
        )
    ],
    kinds=ALL,
    ulp=16,
    smooth=False,
)


def reduced_axes(x: Op, reduction_axes: Any = None, out_axes: Any = None, name: str = "reduce") -> Axes:
    """Returns the axes to reduce, by the rule of the module. Raises AxisError for axes that x lacks, or that are both kept and reduced."""
    axes = x.axes
    if reduction_axes is None and out_axes is None:
        return Axes(a for a in axes if not (a.is_batch or a.is_recurrent))
    gone = None if reduction_axes is None else own_axes(x, reduction_axes, name)
    stay = None if out_axes is None else own_axes(x, out_axes, name)
    if gone is None:
        return axes - stay
    if stay is not None and (gone & stay or len(gone) + len(stay) != len(axes)):
        raise AxisError(
            f"{name}({x.label}): reduction_axes {show_axes(gone)} and out_axes {show_axes(stay)} do not split {show_axes(axes)}",
            details=(show_input(x),),
            fix="give one of the two",
        )
    return Axes(a for a in axes if a in gone)


def ordered_as(x: Op, axes: Axes) -> Op:
    """Returns `x` with its axes declared in this order."""
    if len(x.axes) == len(axes) and all(a == b and _as_long(a, b) for a, b in zip(x.axes, axes, strict=True)):
        return x
    return REGISTRY["broadcast"].build(x, axes=axes)  # broadcast also compares lengths, and unifies unknown ones


def _as_long(a: Axis, b: Axis) -> bool:
    return a.family is b.family or (a.length is not None and a.length == b.length)


def listed(axes: Any) -> Any:
    """Returns axes that are read more than once: a tuple in place of an iterator."""
    return tuple(axes) if isinstance(axes, Iterator) else axes


def in_order(x: Op, axes: Any) -> Op:
    """Returns `x` with its own axes in the order of `axes`, whose lengths may be those before a slice or a pooling."""
    return ordered_as(x, own_axes(x, axes, "out_axes"))


def reduction(x: Any, kind: str, reduction_axes: Any = None, out_axes: Any = None, dtype: Any = None) -> Op:
    x, out_axes = as_op(x), listed(out_axes)
    if dtype is not None:
        x = cast(x, dtype)
    elif x.dtype.kind == "bool" and kind in ("add", "multiply"):
        x = cast(x, dtypes.int32)
    gone = reduced_axes(x, reduction_axes, out_axes, {"add": "sum", "multiply": "prod"}.get(kind, kind))
    result = reduce.build(x, kind=kind, axes=gone) if gone else x
    return result if out_axes is None else in_order(result, out_axes)


def sum(x: Any, reduction_axes: Any = None, out_axes: Any = None, dtype: Any = None) -> Op:
    """Returns the sum, int32 for bool; other dtypes are kept.

    reduction_axes: axes, or their names, to sum over, as "H W". out_axes: those that stay; () for a scalar. Without both, all axes are
    summed over but batch (`N`) and time (`REC`). Raises AxisError for axes that x lacks.

    >>> ng.function(ng.sum(ng.constant([[1, 5, 2], [7, 0, 7]], "N=2 H=3"), "H"))()
    ComputedArray([ 8, 14])
    """
    return reduction(x, "add", reduction_axes, out_axes, dtype)


def prod(x: Any, reduction_axes: Any = None, out_axes: Any = None, dtype: Any = None) -> Op:
    """Returns the product. Axes as in `sum`.

    >>> ng.function(ng.prod(ng.constant([[1, 5, 2], [7, 1, 7]], "N=2 H=3"), "H"))()
    ComputedArray([10, 49])
    """
    return reduction(x, "multiply", reduction_axes, out_axes, dtype)


def max(x: Any, reduction_axes: Any = None, out_axes: Any = None, dtype: Any = None) -> Op:
    """Returns the maximum; ties share the gradient equally. Axes as in `sum`.

    >>> ng.function(ng.max(ng.constant([[1, 5, 2], [7, 0, 7]], "N=2 H=3"), "H"))()
    ComputedArray([5, 7])
    """
    return reduction(x, "max", reduction_axes, out_axes, dtype)


def min(x: Any, reduction_axes: Any = None, out_axes: Any = None, dtype: Any = None) -> Op:
    """Returns the minimum; ties share the gradient equally. Axes as in `sum`.

    >>> ng.function(ng.min(ng.constant([[1, 5, 2], [7, 0, 7]], "N=2 H=3"), "H"))()
    ComputedArray([1, 0])
    """
    return reduction(x, "min", reduction_axes, out_axes, dtype)


def count(axes: Sequence[Axis], dtype: Any = dtypes.float32) -> Op:
    """Returns the number of elements of `axes` together, as a scalar; lengths may still be unknown."""
    total: ExprLike = 1
    for a in axes:
        total = total * a.size
    if isinstance(total, int):
        return filled(total, (), dtype)
    return constant_record.build(value=total, axes=Axes(), dtype=dtype)


def tensor_size(x: Any, reduction_axes: Any = None, out_axes: Any = None) -> Op:
    """Returns the number of elements that `sum` would reduce: without arguments the batch axis does not count, so [N] gives 1.

    >>> float(ng.function(ng.tensor_size(ng.ones("H=3 W=4")))())
    12.0
    """
    x = as_op(x)
    return count(reduced_axes(x, reduction_axes, out_axes, "tensor_size"))


def batch_size(x: Any) -> Op:
    """Returns the length of the batch axis, 1 where there is none.

    >>> ng.function(ng.batch_size(ng.ones("N=5 H=2")))()
    ComputedArray(5., dtype=float32)
    """
    return count(as_op(x).axes.batch_axes())


def averaged(x: Any, dtype: Any = None) -> Op:
    """Returns `x` in the dtype of its mean."""
    x = as_op(x)
    return cast(x, dtype or (x.dtype if x.dtype.is_float else dtypes.float64))


def mean(x: Any, reduction_axes: Any = None, out_axes: Any = None, dtype: Any = None) -> Op:
    """Returns the mean over exactly the axes that `sum` would reduce, float64 for integers and bool, as in NumPy.

    16-bit floats are summed and divided in float32, and rounded once. dtype: x is cast to it first.

    >>> ng.function(ng.mean(ng.constant([[1.0, 5.0], [7.0, 0.0]], "N=2 H=2"), "H"))()
    ComputedArray([3. , 3.5])
    """
    x, out_axes = averaged(x, dtype), listed(out_axes)
    gone = reduced_axes(x, reduction_axes, out_axes, "mean")
    made = rounding_once(lambda x: sum(x, gone) / count(gone, x.dtype))(x)
    return made if out_axes is None else in_order(made, out_axes)


def _var_lower(op: Op, x: Op) -> Op:
    axes, correction = op.attrs["axes"], op.attrs["correction"]

    def found(x: Op) -> Op:
        distance, many = x - mean(x, reduction_axes=axes), count(axes, x.dtype)
        return reduce.build(distance * distance, kind="add", axes=axes) / (maximum(many - correction, 0.0) if correction else many)

    return rounding_once(found)(x)


def _var_gradient(op: Op, dy: Op, x: Op) -> Op:
    axes, correction = op.attrs["axes"], op.attrs["correction"]
    # the mean has no share in it, as the distances add up to 0; the factor may be infinite, and comes first, as in PyTorch
    made = rounding_once(lambda dy, x: dy * (2.0 / (count(axes, x.dtype) - correction)) * (x - mean(x, reduction_axes=axes)))
    return made(dy, x)


def _var(call: Call, x: np.ndarray) -> np.ndarray:
    dims = tuple(call.inputs[0].axes.index(a) for a in call.attrs["axes"])
    with np.errstate(all="ignore"):
        x = wide(x)
        many = math.prod([x.shape[k] for k in dims])
        distance = x - x.sum(axis=dims, keepdims=True) / np.array(many, x.dtype)
        found = (distance * distance).sum(axis=dims) / np.maximum(np.array(many - call.attrs["correction"], x.dtype), 0)
        return np.asarray(found).astype(call.dtype.np)


var_record: OpDef = op(
    "var",
    "The sum of squared distances from the mean along axes, over the number of elements less `correction`.",
    form="(x; axes, correction)",
    type=lambda inputs, axes, correction: TensorType(without(inputs[0].axes, axes), inputs[0].dtype),
    reference=_var,
    lower=_var_lower,
    grad=_var_gradient,
    samples=lambda s: [
        var_record.build(x, axes=axes, correction=c)
        for x, axes, c in (
            (s.x(s.I, s.J), (s.J,), 0),
            (s.x(s.J, s.N, s.I), (s.I, s.J), 1),
            (s.x(s.I, s.J), (s.I,), 0.5),
            (s.x(s.O, s.J), (s.O,), 0.5),
            (s.x(s.Z, s.I), (s.I,), 0),
            (s.x(s.I, s.I - 1), (s.I,), 1),
        )
    ],
    ulp=32,
)


def var(x: Any, reduction_axes: Any = None, out_axes: Any = None, correction: float = 0) -> Op:
    """Returns the variance: the sum of squared distances from the mean, over the number of elements less `correction`.

    correction: 0 for that of all elements, 1 for the unbiased estimate from a sample (PyTorch's default). Axes as in `ng.sum`; float64
    for integers and bool. Where there are no more elements than the correction it is infinite, and NaN where all are equal; its derivative
    divides by the difference as it is, as PyTorch's does.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.var(ng.constant([1.0, 2.0, 3.0], "H=3"), correction=1))()
        array(1.)
    """
    x, out_axes = averaged(as_op(x)), listed(out_axes)
    gone = reduced_axes(x, reduction_axes, out_axes, "var")
    made = var_record.build(x, axes=gone, correction=correction)
    return made if out_axes is None else in_order(made, out_axes)


def variance(x: Any, out_axes: Any = None, reduction_axes: Any = None) -> Op:
    """Returns `ng.var(x, reduction_axes, out_axes)`, the mean squared distance from the mean; the axes to keep come first.

    >>> ng.function(ng.variance(ng.constant([1.0, 3.0], "H=2"), reduction_axes="H"))()
    ComputedArray(1.)
    """
    return var(x, reduction_axes, out_axes)


def _several(x: Any) -> list[Op] | None:
    """Returns the tensors in a list, a dict or a generator; None for one tensor."""
    several = x.values() if isinstance(x, Mapping) else x
    if isinstance(several, (Iterator, ValuesView)) or isinstance(several, (list, tuple)) and any(isinstance(p, Op) for p in several):
        return [as_op(p) for p in several]
    return None


def _summed(x: Any, out_axes: Any, reduction_axes: Any, term: Callable[[Op], Op], finish: Callable[[Op], Op] = lambda x: x) -> Op:
    """Returns `finish` of the sum of `term` over the elements of a tensor, or over those of several together."""
    several = _several(x)
    parts = [as_op(x)] if several is None else several
    stay = listed(() if several is not None and out_axes is None and reduction_axes is None else out_axes)
    gone = listed(reduction_axes)
    made = rounding_once(lambda *parts: finish(functools.reduce(add, [sum(term(p), gone, stay) for p in parts])))
    return made(*parts) if parts else filled(0, (), dtypes.float32)


def L2_norm(x: Any, eps: float = 1e-08, out_axes: Any = None, reduction_axes: Any = None) -> Op:
    """Returns the square root of the sum of squares plus `eps`, differentiable at 0. Integers and bool become float32.

    x: a tensor, or several, as in `squared_L2`.

    >>> ng.function(ng.L2_norm(ng.constant([3.0, -4.0], "H=2"), out_axes=()))()
    ComputedArray(5.)
    """
    several = _several(x)
    x = floating((as_op(x),), {})[0][0] if several is None else [floating((p,), {})[0][0] for p in several]
    return _summed(x, out_axes, reduction_axes, lambda x: x * x, lambda x: sqrt(x + eps))


def L1_norm(x: Any, out_axes: Any = None, reduction_axes: Any = None) -> Op:
    """Returns the sum of absolute values; keeps the batch axis by default.

    x: a tensor, or several, as in `squared_L2`.

    >>> ng.function(ng.L1_norm(ng.constant([3.0, -4.0], "H=2"), out_axes=()))()
    ComputedArray(7.)
    """
    return _summed(x, out_axes, reduction_axes, absolute)


def squared_L2(x: Any, out_axes: Any = None, reduction_axes: Any = None) -> Op:
    """Returns the sum of squares; keeps the batch axis by default.

    x: a tensor; or several in a list, a dict such as `layer.variables`, or a generator, whose elements are summed together, all by default.

    >>> ng.function(ng.squared_L2(ng.constant([3.0, -4.0], "H=2"), out_axes=()))()
    ComputedArray(25.)
    >>> ng.function(ng.squared_L2(ng.constant(w, "H=2") for w in ([3.0, -4.0], [1.0, 1.0])))()
    ComputedArray(27.)
    """
    return _summed(x, out_axes, reduction_axes, lambda x: x * x)

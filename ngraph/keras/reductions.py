"""Functions of `keras.ops.numpy` along dims: reductions, running sums, orders."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from keras.src.backend.common import standardize_dtype
from keras.src.backend.common.dtypes import result_type

from ngraph.frontends.positional import indexing, reductions
from ngraph.frontends.positional.values import Tensor
from ngraph.keras.convert import convert_to_tensor
from ngraph.keras.elementwise import FUNCTIONS, divide, float_of, in_float, isnan, logical_not, maximum, sqrt, square, subtract
from ngraph.keras.tensors import BackendTensor, apply
from ngraph.keras.traces import KerasTrace
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops import sorting, statistics
from ngraph.ops.rearrange import flip as flipped
from ngraph.parts.deferred import deferred

numpy = deferred("ngraph.keras.numpy")  # which is made of these functions


def axes_of(x: BackendTensor, axis: Any) -> tuple[int, ...]:
    """Returns dims counted from the start; None: all. Raises ValueError for one that is not there."""
    if axis is None:
        return tuple(range(x.ndim))
    given = [int(axis)] if not isinstance(axis, (list, tuple)) else [int(a) for a in axis]
    wrong = [a for a in given if not -x.ndim <= a < x.ndim]
    if wrong:
        raise ValueError(f"axis {wrong[0]} is out of bounds for a tensor of shape {x.shape}")
    return tuple(dict.fromkeys([a % x.ndim for a in given]))


def axis_of(x: BackendTensor, axis: Any) -> int:
    """Returns one dim counted from the start. Raises TypeError for several, or None."""
    if axis is None or isinstance(axis, (list, tuple)):
        raise TypeError(f"axis has to be the number of one dim, and is {axis!r}")
    return axes_of(x, axis)[0]


def _ends(kind: str) -> Callable[[Op, tuple[Any, ...]], Op]:
    def function(x: Op, axes: tuple[Any, ...]) -> Op:
        if x.dtype.kind != "bool":
            return reductions.total(x, axes, kind)
        return e.less(0, reductions.total(e.cast(x, dtypes.int8), axes, kind))  # the end of no elements is the lowest or highest number

    return function


def _mean(x: Op, axes: tuple[Any, ...]) -> Op:
    return reductions.mean(x, axes)


REDUCED: dict[str, Callable[[Op, tuple[Any, ...]], Op]] = {
    "sum": lambda x, axes: reductions.total(x, axes),
    "prod": lambda x, axes: reductions.total(x, axes, "multiply"),
    "max": _ends("max"),
    "min": _ends("min"),
    "mean": _mean,
    "logsumexp": lambda x, axes: reductions.in_float(lambda y: reductions.log_sum_exp(y, axes), x),
}


def reduced(g: KerasTrace, t: Tensor, name: str, axes: tuple[int, ...], keep: bool) -> Tensor:
    return reductions.reduce_over(t, axes, REDUCED[name], keep)


def over(name: str, x: BackendTensor, axis: Any, keepdims: bool) -> Any:
    return apply(reduced, x, name=name, axes=axes_of(x, axis), keep=bool(keepdims))


def _sum_dtype(dtype: Any) -> str:
    """Returns the dtype of sums and products: small integers are summed as 32-bit ones."""
    dtype = standardize_dtype(dtype)
    if dtype in ("bool", "int8", "int16"):
        return "int32"
    return "uint32" if dtype in ("uint8", "uint16") else dtype


def sum(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    x = convert_to_tensor(x)
    return over("sum", convert_to_tensor(x, _sum_dtype(x.dtype)), axis, keepdims)


def prod(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
    x = convert_to_tensor(x)
    return over("prod", convert_to_tensor(x, dtype or _sum_dtype(x.dtype)), axis, keepdims)


def mean(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return over("mean", in_float(x), axis, keepdims)


def _end(name: str) -> Callable[..., Any]:
    def function(x: Any, axis: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
        x = convert_to_tensor(x)
        if initial is not None and 0 in [n for n in x.shape if isinstance(n, int)]:
            low = np.broadcast_to(np.asarray(initial, x.dtype), [1 if k in axes_of(x, axis) else n for k, n in enumerate(x.shape)])
            found = convert_to_tensor(np.array(low))
            return found if keepdims else apply(squeezed, found, axes=axes_of(x, axis))
        if 0 in [n for k, n in enumerate(x.shape) if k in axes_of(x, axis) and isinstance(n, int)]:
            raise ValueError("zero-size array to reduction operation which has no identity")
        found = over(name, x, axis, keepdims)
        if initial is not None:
            f = FUNCTIONS["maximum" if name == "max" else "minimum"]
            found = convert_to_tensor(f(found, convert_to_tensor(initial, x.dtype)), x.dtype)
        return found

    function.__name__ = name
    return function


def squeezed(g: KerasTrace, t: Tensor, axes: tuple[int, ...]) -> Tensor:
    for k in axes:
        t = g.squeezed(t, k)
    return Tensor(t.op, [d for k, d in enumerate(t.dims) if k not in axes])


max = _end("max")
min = _end("min")
amax, amin = max, min


def all(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return over("min", convert_to_tensor(x, "bool"), axis, keepdims)


def any(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return over("max", convert_to_tensor(x, "bool"), axis, keepdims)


def count_nonzero(x: Any, axis: Any = None) -> Any:
    return sum(convert_to_tensor(convert_to_tensor(x, "bool"), "int32"), axis)


def var(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    x = convert_to_tensor(x)
    dtype = float_of(x.dtype)
    wide = convert_to_tensor(x, "float32" if dtype in ("float16", "bfloat16") else dtype)
    centred = subtract(wide, mean(wide, axis, True))
    return convert_to_tensor(mean(square(centred), axis, keepdims), dtype)


def std(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return sqrt(var(x, axis, keepdims))


def ptp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return subtract(max(x, axis, keepdims), min(x, axis, keepdims))


def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return over("logsumexp", in_float(x), axis, keepdims)


def average(x: Any, axis: Any = None, weights: Any = None) -> Any:
    x = convert_to_tensor(x)
    if weights is None:
        return mean(x, axis)
    weights = convert_to_tensor(weights)
    dtype = result_type(x.dtype, weights.dtype, float)
    x, weights = convert_to_tensor(x, dtype), convert_to_tensor(weights, dtype)
    if axis is not None and weights.ndim != x.ndim:
        (k,) = axes_of(x, axis)
        weights = numpy.reshape(weights, [-1 if j == k else 1 for j in range(x.ndim)])
    weights = numpy.broadcast_to(weights, x.shape)
    return numpy.divide(sum(numpy.multiply(x, weights), axis), sum(weights, axis))


# ---- places -------------------------------------------------------------------------------------------------------------


def best(g: KerasTrace, t: Tensor, axis: int, kind: str, keep: bool) -> Tensor:
    x = Tensor(e.cast(t.op, dtypes.int8), t.dims) if t.dtype.kind == "bool" else t
    found = reductions.reduce_over(x, [axis], lambda op, axes: reductions.best(op, axes, kind), keep)
    return Tensor(e.cast(found.op, dtypes.int32), found.dims)


def _place(kind: str) -> Callable[..., Any]:
    def function(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        x = convert_to_tensor(x)
        if axis is None:
            found = apply(best, numpy.reshape(x, [-1]), axis=0, kind=kind, keep=False)
            return numpy.reshape(found, [1] * x.ndim) if keepdims else found
        return apply(best, x, axis=axis_of(x, axis), kind=kind, keep=bool(keepdims))

    function.__name__ = f"arg{kind}"
    return function


argmax, argmin = _place("max"), _place("min")

# ---- along one dim ------------------------------------------------------------------------------------------------------


def cumulated(g: KerasTrace, t: Tensor, axis: int, kind: str) -> Tensor:
    return reductions.cumulated(t, axis, kind, False, False)


def _running(kind: str) -> Callable[..., Any]:
    def function(x: Any, axis: Any = None, dtype: Any = None) -> Any:
        x = convert_to_tensor(x)
        dtype = standardize_dtype(dtype or x.dtype)
        x = convert_to_tensor(x, "int32" if dtype == "bool" else dtype)
        if axis is None:
            x, axis = numpy.reshape(x, [-1]), 0
        return apply(cumulated, x, axis=axis_of(x, axis), kind=kind)

    return function


cumsum, cumprod = _running("add"), _running("multiply")


def ordered(g: KerasTrace, t: Tensor, axis: int, places: bool) -> Tensor:
    """Sorted along a dim, or the places of the sorted elements; equal ones keep their order."""
    kind = t.dtype
    x = Tensor(e.cast(t.op, dtypes.int8), t.dims) if kind.kind == "bool" else t
    if x.dims[axis] is None:
        return Tensor(e.filled(0, x.op.axes, dtypes.int32), x.dims) if places else t
    if places:
        return Tensor(e.cast(_order(x.op, x.dims[axis]), dtypes.int32), x.dims)
    found = sorting.sort(x.op, x.dims[axis])
    return Tensor(e.cast(found, kind), x.dims)


def _order(x: Op, axis: Any) -> Op:
    return statistics.argsort(x, axis)


def sort(x: Any, axis: Any = -1) -> Any:
    x = convert_to_tensor(x)
    if axis is None:
        x, axis = numpy.reshape(x, [-1]), 0
    return apply(ordered, x, axis=axis_of(x, axis), places=False) if x.ndim else x


def argsort(x: Any, axis: Any = -1) -> Any:
    x = convert_to_tensor(x)
    if axis is None or not x.ndim:
        x, axis = numpy.reshape(x, [-1]), 0
    return apply(ordered, x, axis=axis_of(x, axis), places=True)


def top(g: KerasTrace, t: Tensor, k: int) -> tuple[Tensor, Tensor]:
    values, places = indexing.top_k(g, t, t.rank - 1, k, True, nan_largest=True)
    return values, Tensor(e.cast(places.op, dtypes.int32), places.dims)


def flip_of(g: KerasTrace, t: Tensor, axes: tuple[int, ...]) -> Tensor:
    gone = [t.dims[k] for k in axes if t.dims[k] is not None]
    return Tensor(flipped(t.op, gone), t.dims) if gone else t


def flip(x: Any, axis: Any = None) -> Any:
    x = convert_to_tensor(x)
    return apply(flip_of, x, axes=axes_of(x, axis))


METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


def quantile(x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False, present: bool = False) -> Any:
    """Returns quantiles of the sorted elements along dims, which go; those of several q stand in front.

    A NaN makes them NaN; where `present`, NaN are sorted behind the others, and q counts among the others.
    """
    if method not in METHODS:
        raise ValueError(f"Invalid method: {method!r}. Expected one of {METHODS}")
    x, q = in_float(x), convert_to_tensor(q)
    axes = axes_of(x, axis)
    rest = [k for k in range(x.ndim) if k not in axes]
    flat = numpy.reshape(numpy.transpose(x, [*rest, *axes]), [*[x.shape[k] for k in rest], math.prod([x.shape[k] for k in axes])])
    filled, missing = _filled(flat, np.inf)
    flat = sort(filled if present else flat, -1)
    many = sum(convert_to_tensor(logical_not(missing), "int32"), -1, True) if present else convert_to_tensor(flat.shape[-1], "int32")
    last = subtract(many, 1)
    at = numpy.multiply(convert_to_tensor(numpy.reshape(q, [-1]), x.dtype), convert_to_tensor(maximum(last, 0), x.dtype))
    low, high = (convert_to_tensor(f(at), "int32") for f in (numpy.floor, numpy.ceil))
    if method == "nearest":
        low = high = convert_to_tensor(numpy.round(at), "int32")
    pick = numpy.take_along_axis if present else numpy.take
    a, b = pick(flat, low, axis=-1), pick(flat, high, axis=-1)
    part = subtract(at, convert_to_tensor(low, x.dtype))
    if method == "midpoint":
        part = convert_to_tensor(numpy.where(numpy.equal(low, high), 0.0, 0.5), x.dtype)
    found = {"lower": a, "higher": b, "nearest": a}.get(method)
    if found is None:  # equal ones may be infinite
        found = numpy.where(numpy.equal(a, b), a, numpy.add(a, numpy.multiply(subtract(b, a), part)))
    bad = numpy.less(last, 0) if present else any(missing, -1, True)
    found = numpy.moveaxis(numpy.where(bad, convert_to_tensor(float("nan"), x.dtype), found), -1, 0)
    if keepdims:
        found = numpy.reshape(found, [found.shape[0], *[1 if k in axes else n for k, n in enumerate(x.shape)]])
    return found if q.ndim else found[0]


def median(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return quantile(x, 0.5, axis, "linear", keepdims)


def percentile(x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False, present: bool = False) -> Any:
    q = convert_to_tensor(q)
    q = convert_to_tensor(q, float_of(q.dtype, convert_to_tensor(x).dtype))
    return quantile(x, divide(q, 100.0), axis, method, keepdims, present)


# ---- without NaN --------------------------------------------------------------------------------------------------------


def _filled(x: Any, number: float) -> tuple[BackendTensor, BackendTensor]:
    """Returns a tensor with a number in place of NaN, and where NaN is."""
    x = convert_to_tensor(x)
    missing = isnan(x)
    if not as_dtype(x.dtype).is_float:
        return x, missing
    return numpy.where(missing, convert_to_tensor(number, x.dtype), x), missing


def nansum(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return sum(_filled(x, 0.0)[0], axis, keepdims)


def nanprod(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return prod(_filled(x, 1.0)[0], axis, keepdims)


def nanmean(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    filled, missing = _filled(in_float(x), 0.0)
    many = sum(convert_to_tensor(logical_not(missing), filled.dtype), axis, keepdims)
    return divide(sum(filled, axis, keepdims), many)


def nanvar(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    x = in_float(x)
    return nanmean(square(subtract(x, nanmean(x, axis, True))), axis, keepdims)


def nanstd(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return sqrt(nanvar(x, axis, keepdims))


def _nan_chosen(function: Callable[..., Any], number: float, none: float) -> Callable[..., Any]:
    """Returns a function of the elements that are not NaN, which stand for `number`; it gives `none` where there are no others."""

    def found(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        filled, missing = _filled(x, number)
        made = function(filled, axis, keepdims)
        if not as_dtype(filled.dtype).is_float:
            return made
        return numpy.where(all(missing, axis, keepdims), convert_to_tensor(none, made.dtype), made)

    return found


nanmax, nanmin = _nan_chosen(max, -np.inf, np.nan), _nan_chosen(min, np.inf, np.nan)
nanargmax, nanargmin = _nan_chosen(argmax, -np.inf, -1), _nan_chosen(argmin, np.inf, -1)


def nancumsum(x: Any, axis: Any = None, dtype: Any = None) -> Any:
    return cumsum(_filled(x, 0.0)[0], axis, dtype)


def nancumprod(x: Any, axis: Any = None, dtype: Any = None) -> Any:
    return cumprod(_filled(x, 1.0)[0], axis, dtype)


def nanquantile(x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False) -> Any:
    return quantile(x, q, axis, method, keepdims, present=True)


def nanmedian(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return nanquantile(x, 0.5, axis, "linear", keepdims)


def nanpercentile(x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False) -> Any:
    return percentile(x, q, axis, method, keepdims, present=True)

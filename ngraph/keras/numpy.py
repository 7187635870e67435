"""The functions of `keras.ops.numpy`: those of the modules that it imports whole, and what is made of them."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from keras.src.backend.common import standardize_dtype
from keras.src.backend.common.backend_utils import vectorize_impl
from keras.src.backend.common.dtypes import result_type

from ngraph.frontends.positional.elementwise import each
from ngraph.frontends.positional.values import Tensor
from ngraph.keras import elementwise as el
from ngraph.keras.convert import convert_to_tensor
from ngraph.keras.core import vectorized_map
from ngraph.keras.creation import *  # noqa: F403
from ngraph.keras.creation import ones_like, zeros, zeros_like
from ngraph.keras.indices import *  # noqa: F403
from ngraph.keras.moving import *  # noqa: F403
from ngraph.keras.moving import diagonal, expand_dims, ravel, reshape, squeeze, transpose, where
from ngraph.keras.products import *  # noqa: F403
from ngraph.keras.products import matmul
from ngraph.keras.reductions import *  # noqa: F403
from ngraph.keras.reductions import all as all_of
from ngraph.keras.reductions import any as any_of
from ngraph.keras.reductions import argsort, axis_of, flip, mean
from ngraph.keras.reductions import sum as sum_of
from ngraph.keras.tensors import BackendTensor, apply
from ngraph.keras.traces import VALUE_NEEDED, KerasTrace, NotTraceable
from ngraph.op_graph.dtypes import as_dtype
from ngraph.ops import elementwise as e
from ngraph.ops.activations import clip_record
from ngraph.ops.functions import nan_to_num as without_nan
from ngraph.ops.statistics import searchsorted as search
from ngraph.parts.deferred import deferred

linalg, nn = deferred("ngraph.keras.linalg"), deferred("ngraph.keras.nn")  # which are made of these functions

globals().update(el.FUNCTIONS)
if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


# ---- elements -----------------------------------------------------------------------------------------------------------


def clipped(g: KerasTrace, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    if x.dtype.is_float:
        return each(g, clip_record, x, low, high)
    return each(g, lambda a, b, c: e.minimum(e.maximum(a, b), c), x, low, high)


def clip(x: Any, x_min: Any, x_max: Any) -> Any:
    x = convert_to_tensor(x)
    dtype = result_type(*[el.dtype_of(v) for v in (x, x_min, x_max) if v is not None])
    dtype = "int32" if dtype == "bool" else dtype
    x, low, high = (v if v is None else convert_to_tensor(v, dtype) for v in (x, x_min, x_max))
    if low is None or high is None:
        return el.minimum(x, high) if low is None and high is not None else x if low is None else el.maximum(x, low)
    return apply(clipped, x, low, high)


def round(x: Any, decimals: int = 0) -> Any:
    x = convert_to_tensor(x)
    if not np.issubdtype(x.dtype, np.floating) and x.dtype.name != "bfloat16":
        if decimals >= 0:
            return convert_to_tensor(x, "int32") if x.dtype == bool else x
        return convert_to_tensor(round(convert_to_tensor(x, "float64"), decimals), x.dtype)
    if decimals == 0:
        return apply(el.one, x, name="rounded")
    by = convert_to_tensor(10.0**decimals, x.dtype)
    return el.divide(apply(el.one, el.multiply(x, by), name="rounded"), by)


def fabs(x: Any) -> Any:
    return el.absolute(el.in_float(x))


def copy(x: Any) -> Any:
    return convert_to_tensor(x)


def real(x: Any) -> Any:
    return convert_to_tensor(x)


conjugate = conj = real


def imag(x: Any) -> Any:
    return zeros_like(x)


def angle(x: Any) -> Any:
    x = el.in_float(x)
    return where(el.isnan(x), x, where(el.signbit(x), convert_to_tensor(math.pi, x.dtype), convert_to_tensor(0.0, x.dtype)))


def isreal(x: Any) -> Any:
    return ones_like(x, "bool")


def nan_free(g: KerasTrace, t: Tensor, nan: float, posinf: Any, neginf: Any) -> Tensor:
    return Tensor(without_nan(t.op, nan, posinf, neginf), t.dims)


def nan_to_num(x: Any, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    x = convert_to_tensor(x)
    if not as_dtype(x.dtype).is_float:
        return x
    return apply(nan_free, x, nan=float(nan), posinf=posinf, neginf=neginf)


def isclose(x1: Any, x2: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    a, b = el.met(x1, x2)
    if not as_dtype(a.dtype).is_float:
        a, b = el.in_float(a), el.in_float(b)
    near = el.less_equal(el.absolute(el.subtract(a, b)), el.add(atol, el.multiply(rtol, el.absolute(b))))
    found = where(el.logical_or(el.isinf(a), el.isinf(b)), el.equal(a, b), near)
    return el.logical_or(found, el.logical_and(el.isnan(a), el.isnan(b))) if equal_nan else found


def allclose(x1: Any, x2: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    return all_of(isclose(x1, x2, rtol, atol, equal_nan))


def ldexp(x1: Any, x2: Any) -> Any:
    x1, x2 = convert_to_tensor(x1), convert_to_tensor(x2)
    dtype = el.float_of(x1.dtype, x2.dtype)
    return el.multiply(convert_to_tensor(x1, dtype), el.exp2(convert_to_tensor(x2, dtype)))


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    if len(condlist) != len(choicelist):
        raise ValueError("`condlist` and `choicelist` must have the same length")
    found = default
    for condition, choice in zip(condlist[::-1], choicelist[::-1], strict=True):
        found = where(condition, choice, found)
    return found


def view(x: Any, dtype: Any = None) -> Any:
    x = convert_to_tensor(x)
    if x.t is None:
        return BackendTensor(np.asarray(x.array, order="C").view(np.dtype(standardize_dtype(dtype or x.dtype))))
    return apply(bits, x, dtype=standardize_dtype(dtype or x.dtype))


def bits(g: KerasTrace, t: Tensor, dtype: str) -> Tensor:
    return Tensor(t.op if t.dtype is as_dtype(dtype) else e.bitcast(t.op, dtype=as_dtype(dtype)), t.dims)


# ---- along dims ---------------------------------------------------------------------------------------------------------


def diff(a: Any, n: int = 1, axis: int = -1) -> Any:
    a = convert_to_tensor(a)
    axis = axis_of(a, axis)
    front = (*[slice(None)] * axis,)
    for _ in range(n):
        later, early = a[(*front, slice(1, None))], a[(*front, slice(None, -1))]
        a = el.not_equal(later, early) if a.dtype == bool else el.subtract(later, early)
    return a


def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    y = el.in_float(y)
    axis = axis_of(y, axis)
    front = (*[slice(None)] * axis,)
    both = el.add(y[(*front, slice(1, None))], y[(*front, slice(None, -1))])
    if x is None:
        steps: Any = dx
    else:
        x = convert_to_tensor(x, y.dtype)
        steps = diff(x, axis=axis if x.ndim > 1 else 0)
        if x.ndim == 1:
            steps = reshape(steps, [-1 if k == axis else 1 for k in range(y.ndim)])
    return el.divide(sum_of(el.multiply(both, steps), axis), 2.0)


def flipud(x: Any) -> Any:
    return flip(x, 0)


def fliplr(x: Any) -> Any:
    return flip(x, 1)


def argpartition(x: Any, kth: int, axis: int = -1) -> Any:
    return argsort(x, axis)


def found_in(g: KerasTrace, t: Tensor, v: Tensor, side: str) -> Tensor:
    t, v = g.full(t), g.apart(g.full(v), t.dims)
    return g.made(e.cast(search(t.op, v.op, side=side), "int32"), v.dims)


def searchsorted(sorted_sequence: Any, values: Any, side: str = "left") -> Any:
    a, b = el.met(sorted_sequence, values)
    if a.ndim != 1:
        raise ValueError(
            f"`searchsorted` only supports 1-D sorted sequences. You can use `keras.ops.vectorized_map` to extend it. {a.shape}"
        )
    return apply(found_in, a, b, side=side)


def digitize(x: Any, bins: Any) -> Any:
    """Returns the bin of each number; the bins rise or fall."""
    bins = convert_to_tensor(bins)
    rising = searchsorted(bins, x, side="right")
    if bins.shape[0] < 2:
        return rising
    falling = el.subtract(convert_to_tensor(bins.shape[0], rising.dtype), searchsorted(flip(bins), x, side="right"))
    return where(el.greater_equal(bins[-1], bins[0]), rising, falling)


def isin(x1: Any, x2: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    a, b = el.met(x1, x2)
    found = any_of(el.equal(expand_dims(a, -1), ravel(b)), -1)
    return el.logical_not(found) if invert else found


def unravel_index(indices: Any, shape: Sequence[int]) -> Any:
    i = convert_to_tensor(indices)
    i = where(el.less(i, 0), el.add(i, math.prod(shape)), i)
    found = []
    for n in reversed(list(shape)):
        found.append(el.mod(i, convert_to_tensor(n, i.dtype)))
        i = el.floor_divide(i, convert_to_tensor(n, i.dtype))
    return tuple(found[::-1])


def ndim(x: Any) -> int:
    return convert_to_tensor(x).ndim


def size(x: Any) -> Any:
    return convert_to_tensor(x).size


def vectorize(pyfunc: Callable[..., Any], *, excluded: Any = None, signature: Any = None) -> Any:
    return vectorize_impl(pyfunc, lambda f: lambda *xs: vectorized_map(lambda ys: f(*ys), xs), excluded=excluded, signature=signature)


def bincount(x: Any, weights: Any = None, minlength: int = 0, sparse: bool = False) -> Any:
    if sparse:
        raise ValueError("`sparse=True` is not supported with the ngraph backend")
    x = convert_to_tensor(x)
    if x.t is None:
        if 0 in x.shape:
            return zeros((*x.shape[:-1], minlength), "int32" if weights is None else convert_to_tensor(weights).dtype)
        many = builtins.max(int(x.array.max()) + 1, minlength)
    elif minlength:
        many = minlength
    else:
        raise NotTraceable("the number of bins is known only with the values", "give minlength=")
    dtype = "int32" if weights is None else convert_to_tensor(weights).dtype
    hot = nn.one_hot(x, many, dtype=dtype)
    if weights is not None:
        hot = el.multiply(hot, expand_dims(convert_to_tensor(weights), -1))
    return convert_to_tensor(sum_of(hot, -2), dtype)


def corrcoef(x: Any) -> Any:
    x = el.in_float(x)
    x = reshape(x, (1, -1)) if x.ndim == 1 else x
    centred = el.subtract(x, mean(x, -1, True))
    c = matmul(centred, transpose(centred))
    d = el.sqrt(diagonal(c))
    return squeeze(clip(el.divide(el.divide(c, expand_dims(d, 1)), expand_dims(d, 0)), -1.0, 1.0))


# ---- by NumPy, of tensors that are known -------------------------------------------------------------------------------


def by_numpy(name: str, function: Callable[..., Any], *values: Any, **static: Any) -> Any:
    """Returns a NumPy function of tensors whose values are known. Raises NotTraceable while a computation is read."""
    xs = [convert_to_tensor(v) if v is not None else None for v in values]
    if builtins.any(x is not None and x.t is not None for x in xs):
        raise NotTraceable(f"keras.ops.{name}: {VALUE_NEEDED}")
    found = function(*[None if x is None else x.array for x in xs], **static)
    return tuple([BackendTensor(np.asarray(v)) for v in found]) if isinstance(found, tuple) else BackendTensor(np.asarray(found))


def nonzero(x: Any) -> Any:
    return by_numpy("nonzero", lambda a: tuple([i.astype(np.int32) for i in np.nonzero(a)]), x)


def unique(
    x: Any,
    sorted: bool = True,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: Any = None,
    size: Any = None,
    fill_value: Any = None,
) -> Any:
    """Returns the distinct elements in order; size: so many of them, filled up with fill_value."""

    def function(a: Any) -> Any:
        made = list(np.unique(a, return_index=True, return_inverse=True, return_counts=True, axis=axis))
        k = 0 if axis is None else axis % a.ndim
        if axis is None:
            made[2] = made[2].reshape(a.shape)
        if size is not None:
            values, many = made[0], made[0].shape[k]
            fill = values.take([0], k) if fill_value is None else np.full_like(values.take([0], k), fill_value)
            values = values.take(range(builtins.min(size, many)), k)
            made[0] = np.concatenate([values, *[fill] * (size - many)], k) if size > many else values
            first, counts = (
                np.concatenate([v, np.full(builtins.max(size - many, 0), n, v.dtype)])[:size]
                for v, n in ((made[1], made[1][0]), (made[3], 0))
            )
            made[1], made[3] = first, counts
        wanted = [
            made[0],
            *[v.astype(np.int32) for v, on in zip(made[1:], (return_index, return_inverse, return_counts), strict=True) if on],
        ]
        return tuple(wanted) if len(wanted) > 1 else wanted[0]

    return by_numpy("unique", function, x)


def histogram(x: Any, bins: Any = 10, range: Any = None) -> Any:
    x = convert_to_tensor(x)
    dtype = el.float_of(x.dtype)
    count, edges = by_numpy(
        "histogram", lambda a: np.histogram(a, bins=np.asarray(bins)[()] if not isinstance(bins, int) else bins, range=range), x
    )
    return convert_to_tensor(count, dtype), convert_to_tensor(edges, dtype)


def _of_two(name: str) -> Callable[[Any, Any], Any]:
    def function(x1: Any, x2: Any) -> Any:
        return by_numpy(name, getattr(np, name), *el.met(x1, x2))

    return function


gcd, lcm = _of_two("gcd"), _of_two("lcm")


def slogdet(x: Any) -> Any:
    return linalg.slogdet(x)

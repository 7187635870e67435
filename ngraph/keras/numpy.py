"""The functions of `keras.ops.numpy`: those of `elementwise`, `reductions` and `moving`, and what is made of them."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from keras.src.backend import config
from keras.src.backend.common import standardize_dtype
from keras.src.backend.common.backend_utils import vectorize_impl
from keras.src.backend.common.dtypes import result_type

from ngraph.errors import UnsupportedError
from ngraph.frontends.positional import products
from ngraph.frontends.positional.elementwise import each
from ngraph.frontends.positional.values import Tensor
from ngraph.keras import moving as _moving
from ngraph.keras import reductions as _reductions
from ngraph.keras.core import convert_to_tensor, vectorized_map
from ngraph.keras.elementwise import dtype_of, float_of, in_float, met, one, table
from ngraph.keras.moving import *  # noqa: F403
from ngraph.keras.moving import broadcast_all, has_open, ravel, reshape, shape_of, stack, transpose, where
from ngraph.keras.reductions import *  # noqa: F403
from ngraph.keras.reductions import any as any_of
from ngraph.keras.reductions import argsort, axes_of, flip, mean
from ngraph.keras.reductions import sum as sum_of
from ngraph.keras.tensors import RUN_EAGERLY, VALUE_NEEDED, BackendTensor, KerasTrace, OpenLength, apply, size_of
from ngraph.op_graph.dtypes import as_dtype
from ngraph.ops import elementwise as e
from ngraph.ops.activations import clip_record
from ngraph.ops.functions import nan_to_num as without_nan
from ngraph.ops.rearrange import iota
from ngraph.ops.statistics import searchsorted as search
from ngraph.parts.deferred import deferred

linalg, nn = deferred("ngraph.keras.linalg"), deferred("ngraph.keras.nn")  # which are made of these functions

_FUNCTIONS = table()
globals().update(_FUNCTIONS)
if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


(
    add,
    subtract,
    multiply,
    divide,
    equal,
    less,
    less_equal,
    greater_equal,
    absolute,
    floor,
    exp,
    cos,
    sin,
    power,
    logical_and,
    isnan,
    isinf,
) = (
    _FUNCTIONS[name]
    for name in (
        "add subtract multiply divide equal less less_equal greater_equal absolute floor exp cos sin power logical_and isnan isinf"
    ).split()
)


# ---- elements -----------------------------------------------------------------------------------------------------------


def clipped(g: KerasTrace, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    if x.dtype.is_float:
        return each(g, clip_record, x, low, high)
    return each(g, lambda a, b, c: e.minimum(e.maximum(a, b), c), x, low, high)


def clip(x: Any, x_min: Any, x_max: Any) -> Any:
    x = convert_to_tensor(x)
    dtype = result_type(*[dtype_of(v) for v in (x, x_min, x_max)])
    dtype = "int32" if dtype == "bool" else dtype
    return apply(clipped, *[convert_to_tensor(v, dtype) for v in (x, x_min, x_max)])


def round(x: Any, decimals: int = 0) -> Any:
    x = convert_to_tensor(x)
    if not np.issubdtype(x.dtype, np.floating) and x.dtype.name != "bfloat16":
        if decimals >= 0:
            return convert_to_tensor(x, "int32") if x.dtype == bool else x
        return convert_to_tensor(round(convert_to_tensor(x, "float64"), decimals), x.dtype)
    if decimals == 0:
        return apply(one, x, name="rounded")
    by = convert_to_tensor(10.0**decimals, x.dtype)
    return divide(apply(one, multiply(x, by), name="rounded"), by)


def fabs(x: Any) -> Any:
    return absolute(in_float(x))


def copy(x: Any) -> Any:
    return convert_to_tensor(x)


def real(x: Any) -> Any:
    return convert_to_tensor(x)


conjugate = conj = real


def imag(x: Any) -> Any:
    return zeros_like(x)


def angle(x: Any) -> Any:
    x = in_float(x)
    return where(isnan(x), x, where(_FUNCTIONS["signbit"](x), convert_to_tensor(math.pi, x.dtype), convert_to_tensor(0.0, x.dtype)))


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
    a, b = met(x1, x2)
    if not as_dtype(a.dtype).is_float:
        a, b = in_float(a), in_float(b)
    near = less_equal(absolute(subtract(a, b)), add(atol, multiply(rtol, absolute(b))))
    found = where(_FUNCTIONS["logical_or"](isinf(a), isinf(b)), equal(a, b), near)
    return _FUNCTIONS["logical_or"](found, logical_and(isnan(a), isnan(b))) if equal_nan else found


def allclose(x1: Any, x2: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    return _reductions.all(isclose(x1, x2, rtol, atol, equal_nan))


def ldexp(x1: Any, x2: Any) -> Any:
    x1, x2 = convert_to_tensor(x1), convert_to_tensor(x2)
    dtype = float_of(x1.dtype, x2.dtype)
    return multiply(convert_to_tensor(x1, dtype), _FUNCTIONS["exp2"](convert_to_tensor(x2, dtype)))


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
        return BackendTensor(np.ascontiguousarray(x.array).view(np.dtype(standardize_dtype(dtype or x.dtype))))
    return apply(bits, x, dtype=standardize_dtype(dtype or x.dtype))


def bits(g: KerasTrace, t: Tensor, dtype: str) -> Tensor:
    return Tensor(t.op if t.dtype is as_dtype(dtype) else e.bitcast(t.op, dtype=as_dtype(dtype)), t.dims)


# ---- made of shapes -----------------------------------------------------------------------------------------------------


def filled(g: KerasTrace, t: Tensor, shape: tuple[Any, ...]) -> Tensor:
    return g.expanded(t, [size_of(n) for n in shape])


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    value = convert_to_tensor(fill_value, dtype or (config.floatx() if isinstance(fill_value, float) else None))
    shape = shape_of(shape)
    if _moving.known(value) and not has_open(shape):
        return BackendTensor(np.array(np.broadcast_to(value.array, shape)))
    return apply(filled, value, shape=shape)


def ones(shape: Any, dtype: Any = None) -> Any:
    return full(shape, 1, dtype or config.floatx())


def zeros(shape: Any, dtype: Any = None) -> Any:
    return full(shape, 0, dtype or config.floatx())


empty = zeros


def full_like(x: Any, fill_value: Any, dtype: Any = None) -> Any:
    x = convert_to_tensor(x)
    return full(x.shape, fill_value, dtype or x.dtype)


def ones_like(x: Any, dtype: Any = None) -> Any:
    return full_like(x, 1, dtype)


def zeros_like(x: Any, dtype: Any = None) -> Any:
    return full_like(x, 0, dtype)


empty_like = zeros_like


def array(x: Any, dtype: Any = None) -> Any:
    return convert_to_tensor(x, dtype)


def counted(g: KerasTrace, size: Any, dtype: str) -> Tensor:
    axis = g.fresh(size_of(size))
    return Tensor(iota(axis, as_dtype(dtype)), [axis])


def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None) -> Any:
    given = [v for v in (start, stop, step) if v is not None]
    if dtype is None:
        dtype = result_type(*["int32" if isinstance(v, OpenLength) else dtype_of(v) for v in given])
    dtype = standardize_dtype(dtype)
    start, stop, step = (0, start, 1) if stop is None else (start, stop, 1 if step is None else step)
    if has_open((start, stop)) and isinstance(step, int) and step == 1:
        return add(apply(counted, size=stop - start, dtype=dtype), convert_to_tensor(start, dtype))
    start, stop, step = (np.asarray(v)[()] for v in (start, stop, step))
    return BackendTensor(np.arange(start, stop, step).astype(np.dtype(dtype)))


def eye(N: int, M: Any = None, k: int = 0, dtype: Any = None) -> Any:
    return tri_of(N, M, k, dtype, equal)


def identity(n: int, dtype: Any = None) -> Any:
    return eye(n, dtype=dtype)


def tri(N: int, M: Any = None, k: int = 0, dtype: Any = None) -> Any:
    return tri_of(N, M, k, dtype, greater_equal)


def tri_of(N: Any, M: Any, k: Any, dtype: Any, holds: Callable[[Any, Any], Any]) -> Any:
    """Returns a matrix of ones where the row and the k-th diagonal's column satisfy a comparison."""
    rows, columns = arange(N, dtype="int32"), arange(N if M is None else M, dtype="int32")
    found = holds(_moving.expand_dims(add(rows, int(k)), 1), _moving.expand_dims(columns, 0))
    return convert_to_tensor(found, dtype or config.floatx())


def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None, axis: int = 0) -> Any:
    if dtype is None:
        dtype = float_of(*[dtype_of(v) for v in (start, stop)])
    inner = standardize_dtype(dtype)
    inner = inner if as_dtype(inner).is_float else config.floatx()
    start, stop = broadcast_all([convert_to_tensor(v, inner) for v in (start, stop)])
    many = num - 1 if endpoint else num
    step = divide(subtract(stop, start), builtins.max(many, 1)) if many else full_like(start, float("nan"))
    k = reshape(arange(num, dtype=inner), [num] + [1] * start.ndim)
    part = divide(k, builtins.max(many, 1))
    found = add(multiply(start, subtract(1.0, part)), multiply(stop, part))
    if not as_dtype(dtype).is_float:
        found = floor(found)
    found = _moving.moveaxis(convert_to_tensor(found, dtype), 0, axis)
    return (found, step) if retstep else found


def logspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10, dtype: Any = None, axis: int = 0) -> Any:
    at = linspace(start, stop, num, endpoint, axis=axis)
    return convert_to_tensor(power(convert_to_tensor(base, at.dtype), at), dtype or at.dtype)


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    a, b = in_float(start), in_float(stop)
    at = linspace(_FUNCTIONS["log"](absolute(a)), _FUNCTIONS["log"](absolute(b)), num, endpoint, axis=axis)
    found = multiply(exp(at), _moving.expand_dims(_FUNCTIONS["sign"](a), axis) if a.ndim else _FUNCTIONS["sign"](a))
    return convert_to_tensor(found, dtype or found.dtype)


def meshgrid(*x: Any, indexing: str = "xy") -> Any:
    if indexing not in ("xy", "ij"):
        raise ValueError(f"Valid values for `indexing` are 'xy' and 'ij', but received: {indexing}")
    xs = [ravel(v) for v in x]
    order = list(range(len(xs)))
    if indexing == "xy" and len(xs) > 1:
        order[0], order[1] = 1, 0
    sizes = [None] * len(xs)
    for v, k in zip(xs, order, strict=True):
        sizes[k] = v.shape[0]
    return [_moving.broadcast_to(reshape(v, [-1 if j == k else 1 for j in range(len(xs))]), sizes) for v, k in zip(xs, order, strict=True)]


def vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    x = convert_to_tensor(x)
    x = convert_to_tensor(x, "int32") if x.dtype == bool else x
    n = int(x.shape[0]) if N is None else N
    columns = [ones_like(x)]
    for _ in range(n - 1):
        columns.append(multiply(columns[-1], x))
    columns = columns[:n]
    return stack(columns if increasing else columns[::-1], -1) if n else zeros((x.shape[0], 0), x.dtype)


def _window(*parts: float) -> Callable[[Any], Any]:
    """Returns a window that is a sum of cosines."""

    def function(x: Any) -> Any:
        n = int(x)
        if n == 1:
            return ones((1,))
        at = multiply(arange(n, dtype=config.floatx()), 2 * math.pi / builtins.max(n - 1, 1))
        found = zeros_like(at)
        for k, part in enumerate(parts):
            found = add(found, multiply(cos(multiply(at, float(k))), part))
        return found

    return function


hamming, hanning, blackman = _window(0.54, -0.46), _window(0.5, -0.5), _window(0.42, -0.5, 0.08)


def bartlett(x: Any) -> Any:
    return convert_to_tensor(np.bartlett(int(x)), config.floatx())


def kaiser(x: Any, beta: Any) -> Any:
    return convert_to_tensor(np.kaiser(int(x), float(beta)), config.floatx())


# ---- products -----------------------------------------------------------------------------------------------------------


def product(g: KerasTrace, a: Tensor, b: Tensor) -> Tensor:
    if a.dtype.kind == "bool":
        found = products.matmul(g, Tensor(e.cast(a.op, "int32"), a.dims), Tensor(e.cast(b.op, "int32"), b.dims))
        return Tensor(e.not_equal(found.op, 0), found.dims)
    return products.matmul(g, a, b)


def matmul(x1: Any, x2: Any) -> Any:
    x1, x2 = convert_to_tensor(x1), convert_to_tensor(x2)
    if x1.dtype == np.int8 and x2.dtype == np.int8:
        return apply(product, convert_to_tensor(x1, "int32"), convert_to_tensor(x2, "int32"))
    a, b = met(x1, x2)
    return apply(product, a, b)


def dot(x1: Any, x2: Any) -> Any:
    a, b = met(x1, x2)
    if not a.ndim or not b.ndim:
        return multiply(a, b)
    return tensordot(a, b, axes=([a.ndim - 1], [builtins.max(b.ndim - 2, 0)]))


def inner(x1: Any, x2: Any) -> Any:
    a, b = met(x1, x2)
    if not a.ndim or not b.ndim:
        return multiply(a, b)
    return tensordot(a, b, axes=([a.ndim - 1], [b.ndim - 1]))


def vdot(x1: Any, x2: Any) -> Any:
    a, b = met(ravel(x1), ravel(x2))
    return matmul(a, b)


def outer(x1: Any, x2: Any) -> Any:
    a, b = met(ravel(x1), ravel(x2))
    return multiply(_moving.expand_dims(a, 1), _moving.expand_dims(b, 0))


def tensordot(x1: Any, x2: Any, axes: Any = 2) -> Any:
    a, b = met(x1, x2)
    if isinstance(axes, int):
        axes = (list(range(a.ndim - axes, a.ndim)), list(range(axes)))
    left, right = ([k] if isinstance(k, int) else list(k) for k in axes)
    left, right = [k % a.ndim for k in left], [k % b.ndim for k in right]
    letters = [chr(97 + k) for k in range(a.ndim + b.ndim)]
    of_a = letters[: a.ndim]
    of_b = letters[a.ndim :]
    for k, j in zip(left, right, strict=True):
        of_b[j] = of_a[k]
    rest = [x for k, x in enumerate(of_a) if k not in left] + [x for k, x in enumerate(of_b) if k not in right]
    equation = f"{''.join(of_a)},{''.join(of_b)}->{''.join(rest)}"
    return einsum(equation, a, b) if a.dtype == bool else apply(summed, a, b, equation=equation)


def summed(g: KerasTrace, *ts: Tensor, equation: str) -> Tensor:
    return products.einsum(g, equation, ts)


def einsum(subscripts: str, *operands: Any, **kwargs: Any) -> Any:
    xs = [convert_to_tensor(x) for x in operands]
    dtypes_ = {x.dtype.name for x in xs}
    dtype = "int32" if dtypes_ == {"int8"} else result_type(*dtypes_)
    if dtype == "bool":
        return convert_to_tensor(einsum(subscripts, *[convert_to_tensor(x, "int32") for x in xs]), "bool")
    xs = [convert_to_tensor(x, dtype) for x in xs]
    equation = subscripts.replace(" ", "")
    taken = equation.split("->")[0].split(",")
    if len(taken) != len(xs):
        raise ValueError(f"einsum: {subscripts!r} takes {len(taken)} tensors, and got {len(xs)}")
    return apply(summed, *xs, equation=equation)


def kron(x1: Any, x2: Any) -> Any:
    a, b = met(x1, x2)
    rank = builtins.max(a.ndim, b.ndim)
    a, b = _moving.atleast(a, rank), _moving.atleast(b, rank)
    shape = [m * n for m, n in zip(a.shape, b.shape, strict=True)]
    a = reshape(a, [v for n in a.shape for v in (n, 1)])
    return reshape(multiply(a, reshape(b, [v for n in b.shape for v in (1, n)])), shape)


def cross(x1: Any, x2: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = met(x1, x2)
    a, b = _moving.moveaxis(a, axisa, -1), _moving.moveaxis(b, axisb, -1)

    def part(x: Any, k: int) -> Any:
        return x[..., k] if int(x.shape[-1]) > k else zeros_like(x[..., 0])

    p, q = [part(a, k) for k in range(3)], [part(b, k) for k in range(3)]
    found = [subtract(multiply(p[i], q[j]), multiply(p[j], q[i])) for i, j in ((1, 2), (2, 0), (0, 1))]
    if int(a.shape[-1]) == 2 and int(b.shape[-1]) == 2:
        return found[2]
    return _moving.moveaxis(stack(found, -1), -1, axisc)


def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return sum_of(_moving.diagonal(x, offset, axis1, axis2), -1)


def correlate(x1: Any, x2: Any, mode: str = "valid") -> Any:
    if mode not in ("valid", "same", "full"):
        raise ValueError(f"Invalid mode: {mode!r}. Mode should be one of the following: valid, same, full")
    a, b = met(x1, x2)
    dtype = a.dtype
    if not as_dtype(dtype).is_float:
        dtype = "float64" if dtype == np.int64 else config.floatx()
    a, b = convert_to_tensor(a, dtype), convert_to_tensor(b, dtype)
    m, n = int(a.shape[0]), int(b.shape[0])
    turned = m < n
    if turned:
        a, b, m, n = b, a, n, m
    before, after = {"valid": (0, 0), "full": (n - 1, n - 1), "same": (n // 2, n - 1 - n // 2)}[mode]
    wide = reshape(_moving.pad(a, [(before, after)]), (1, -1, 1))
    found = reshape(nn.conv(wide, reshape(b, (-1, 1, 1)), 1, "valid", "channels_last"), (-1,))
    return flip(found) if turned else found


def corrcoef(x: Any) -> Any:
    x = in_float(x)
    x = reshape(x, (1, -1)) if x.ndim == 1 else x
    centred = subtract(x, mean(x, -1, True))
    c = matmul(centred, transpose(centred))
    d = _FUNCTIONS["sqrt"](_moving.diagonal(c))
    return _moving.squeeze(clip(divide(divide(c, _moving.expand_dims(d, 1)), _moving.expand_dims(d, 0)), -1.0, 1.0))


# ---- along dims ---------------------------------------------------------------------------------------------------------


def diff(a: Any, n: int = 1, axis: int = -1) -> Any:
    a = convert_to_tensor(a)
    axis = axes_of(a, axis)[0]
    front = (*[slice(None)] * axis,)
    for _ in range(n):
        later, early = a[(*front, slice(1, None))], a[(*front, slice(None, -1))]
        a = _FUNCTIONS["not_equal"](later, early) if a.dtype == bool else subtract(later, early)
    return a


def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    y = in_float(y)
    axis = axes_of(y, axis)[0]
    front = (*[slice(None)] * axis,)
    both = add(y[(*front, slice(1, None))], y[(*front, slice(None, -1))])
    if x is None:
        steps: Any = dx
    else:
        x = convert_to_tensor(x, y.dtype)
        steps = diff(x, axis=axis if x.ndim > 1 else 0)
        if x.ndim == 1:
            steps = reshape(steps, [-1 if k == axis else 1 for k in range(y.ndim)])
    return divide(sum_of(multiply(both, steps), axis), 2.0)


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
    a, b = met(sorted_sequence, values)
    if a.ndim != 1:
        raise ValueError(
            f"`searchsorted` only supports 1-D sorted sequences. You can use `keras.ops.vectorized_map` to extend it. {a.shape}"
        )
    return apply(found_in, a, b, side=side)


def digitize(x: Any, bins: Any) -> Any:
    return searchsorted(bins, x, side="right")


def isin(x1: Any, x2: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    a, b = met(x1, x2)
    found = any_of(equal(_moving.expand_dims(a, -1), ravel(b)), -1)
    return _FUNCTIONS["logical_not"](found) if invert else found


def unravel_index(indices: Any, shape: Sequence[int]) -> Any:
    i = convert_to_tensor(indices)
    i = where(less(i, 0), add(i, math.prod(shape)), i)
    found = []
    for n in reversed(list(shape)):
        found.append(_FUNCTIONS["mod"](i, convert_to_tensor(n, i.dtype)))
        i = _FUNCTIONS["floor_divide"](i, convert_to_tensor(n, i.dtype))
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
        raise UnsupportedError("the number of bins is known only with the values", fix="give minlength=")
    dtype = "int32" if weights is None else convert_to_tensor(weights).dtype
    hot = nn.one_hot(x, many, dtype=dtype)
    if weights is not None:
        hot = multiply(hot, _moving.expand_dims(convert_to_tensor(weights), -1))
    return convert_to_tensor(sum_of(hot, -2), dtype)


# ---- by NumPy, of tensors that are known -------------------------------------------------------------------------------


def by_numpy(name: str, function: Callable[..., Any], *values: Any, **static: Any) -> Any:
    """Returns a NumPy function of tensors whose values are known. Raises UnsupportedError while a computation is read."""
    xs = [convert_to_tensor(v) if v is not None else None for v in values]
    if builtins.any(x is not None and x.t is not None for x in xs):
        raise UnsupportedError(f"keras.ops.{name}: {VALUE_NEEDED}", fix=RUN_EAGERLY)
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
    x = in_float(x)
    count, edges = by_numpy(
        "histogram", lambda a: np.histogram(a, bins=np.asarray(bins)[()] if not isinstance(bins, int) else bins, range=range), x
    )
    return convert_to_tensor(count, "int32"), convert_to_tensor(edges, x.dtype)


def _whole(name: str) -> Callable[[Any, Any], Any]:
    def function(x1: Any, x2: Any) -> Any:
        return by_numpy(name, getattr(np, name), *met(x1, x2))

    return function


gcd, lcm = _whole("gcd"), _whole("lcm")


def nextafter(x1: Any, x2: Any) -> Any:
    a, b = met(x1, x2, floats=True)
    return by_numpy("nextafter", np.nextafter, a, b)


def i0(x: Any) -> Any:
    x = in_float(x)
    return convert_to_tensor(by_numpy("i0", np.i0, x), x.dtype)


def slogdet(x: Any) -> Any:
    return linalg.slogdet(x)

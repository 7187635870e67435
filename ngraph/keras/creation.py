"""Tensors made of shapes and numbers: `full`, `arange`, `linspace`, windows of signals, …"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from keras.src.backend import config
from keras.src.backend.common import standardize_dtype
from keras.src.backend.common.dtypes import result_type

from ngraph.frontends.positional.values import Tensor
from ngraph.keras import elementwise as el
from ngraph.keras.convert import convert_to_tensor
from ngraph.keras.indices import broadcast_all
from ngraph.keras.moving import broadcast_to, expand_dims, has_open, known, moveaxis, ravel, reshape, shape_of, stack
from ngraph.keras.tensors import BackendTensor, OpenLength, apply, size_of
from ngraph.keras.traces import KerasTrace
from ngraph.op_graph.dtypes import as_dtype
from ngraph.ops.rearrange import iota

# ---- made of shapes -----------------------------------------------------------------------------------------------------


def filled(g: KerasTrace, t: Tensor, shape: tuple[Any, ...]) -> Tensor:
    return g.expanded(t, [size_of(n) for n in shape])


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    value = convert_to_tensor(fill_value, dtype or config.floatx())
    shape = shape_of(shape)
    if known(value) and not has_open(shape):
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
        dtype = result_type(*["int32" if isinstance(v, OpenLength) else el.dtype_of(v) for v in given])
    dtype = standardize_dtype(dtype)
    start, stop, step = (0, start, 1) if stop is None else (start, stop, 1 if step is None else step)
    if has_open((start, stop)) and isinstance(step, int) and step == 1:
        return el.add(apply(counted, size=stop - start, dtype=dtype), convert_to_tensor(start, dtype))
    start, stop, step = (np.asarray(v)[()] for v in (start, stop, step))
    return BackendTensor(np.arange(start, stop, step).astype(np.dtype(dtype)))


def eye(N: int, M: Any = None, k: int = 0, dtype: Any = None) -> Any:
    return tri_of(N, M, k, dtype, el.equal)


def identity(n: int, dtype: Any = None) -> Any:
    return eye(n, dtype=dtype)


def tri(N: int, M: Any = None, k: int = 0, dtype: Any = None) -> Any:
    return tri_of(N, M, k, dtype, el.greater_equal)


def tri_of(N: Any, M: Any, k: Any, dtype: Any, holds: Callable[[Any, Any], Any]) -> Any:
    """Returns a matrix of ones where the row and the k-th diagonal's column satisfy a comparison."""
    rows, columns = arange(N, dtype="int32"), arange(N if M is None else M, dtype="int32")
    found = holds(expand_dims(el.add(rows, int(k)), 1), expand_dims(columns, 0))
    return convert_to_tensor(found, dtype or config.floatx())


def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None, axis: int = 0) -> Any:
    if dtype is None:
        dtype = el.float_of(*[el.dtype_of(v) for v in (start, stop)])
    inner = standardize_dtype(dtype)
    inner = inner if as_dtype(inner).is_float else config.floatx()
    start, stop = broadcast_all([convert_to_tensor(v, inner) for v in (start, stop)])
    many = num - 1 if endpoint else num
    step = el.divide(el.subtract(stop, start), builtins.max(many, 1)) if many else full_like(start, float("nan"))
    k = reshape(arange(num, dtype=inner), [num] + [1] * start.ndim)
    part = el.divide(k, builtins.max(many, 1))
    found = el.add(el.multiply(start, el.subtract(1.0, part)), el.multiply(stop, part))
    if not as_dtype(dtype).is_float:
        found = el.floor(found)
    found = moveaxis(convert_to_tensor(found, dtype), 0, axis)
    return (found, step) if retstep else found


def logspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10, dtype: Any = None, axis: int = 0) -> Any:
    at = linspace(start, stop, num, endpoint, axis=axis)
    return convert_to_tensor(el.power(convert_to_tensor(base, at.dtype), at), dtype or at.dtype)


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    a, b = el.in_float(start), el.in_float(stop)
    at = linspace(el.log(el.absolute(a)), el.log(el.absolute(b)), num, endpoint, axis=axis)
    found = el.multiply(el.exp(at), expand_dims(el.sign(a), axis) if a.ndim else el.sign(a))
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
    return [broadcast_to(reshape(v, [-1 if j == k else 1 for j in range(len(xs))]), sizes) for v, k in zip(xs, order, strict=True)]


def vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    x = convert_to_tensor(x)
    x = convert_to_tensor(x, "int32") if x.dtype == bool else x
    n = int(x.shape[0]) if N is None else N
    columns = [ones_like(x)]
    for _ in range(n - 1):
        columns.append(el.multiply(columns[-1], x))
    columns = columns[:n]
    return stack(columns if increasing else columns[::-1], -1) if n else zeros((x.shape[0], 0), x.dtype)


def _window(*parts: float) -> Callable[[Any], Any]:
    """Returns a window that is a sum of cosines."""

    def function(x: Any) -> Any:
        n = int(x)
        if n == 1:
            return ones((1,))
        at = el.multiply(arange(n, dtype=config.floatx()), 2 * math.pi / builtins.max(n - 1, 1))
        found = zeros_like(at)
        for k, part in enumerate(parts):
            found = el.add(found, el.multiply(el.cos(el.multiply(at, float(k))), part))
        return found

    return function


hamming, hanning, blackman = _window(0.54, -0.46), _window(0.5, -0.5), _window(0.42, -0.5, 0.08)


def bartlett(x: Any) -> Any:
    return convert_to_tensor(np.bartlett(int(x)), config.floatx())


def kaiser(x: Any, beta: Any) -> Any:
    return convert_to_tensor(np.kaiser(int(x), float(beta)), config.floatx())

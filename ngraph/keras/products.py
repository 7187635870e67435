"""Products of tensors: `matmul`, `einsum`, `tensordot`, `correlate`, …"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
from keras.src.backend import config
from keras.src.backend.common.dtypes import result_type

from ngraph.frontends.positional import products
from ngraph.frontends.positional.values import Tensor
from ngraph.keras.convert import convert_to_tensor
from ngraph.keras.creation import zeros_like
from ngraph.keras.elementwise import met, multiply, subtract
from ngraph.keras.moving import atleast, diagonal, expand_dims, moveaxis, pad, ravel, reshape, stack
from ngraph.keras.reductions import axes_of, flip
from ngraph.keras.reductions import sum as sum_of
from ngraph.keras.tensors import apply
from ngraph.keras.traces import KerasTrace
from ngraph.op_graph.dtypes import as_dtype
from ngraph.ops import elementwise as e
from ngraph.parts.deferred import deferred

nn = deferred("ngraph.keras.nn")  # which is made of these functions


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
    return convert_to_tensor(matmul(a, b), a.dtype)  # matmul widens int8


def outer(x1: Any, x2: Any) -> Any:
    a, b = met(ravel(x1), ravel(x2))
    return multiply(expand_dims(a, 1), expand_dims(b, 0))


def tensordot(x1: Any, x2: Any, axes: Any = 2) -> Any:
    a, b = met(x1, x2)
    if isinstance(axes, int):
        axes = (list(range(a.ndim - axes, a.ndim)), list(range(axes)))
    left, right = ([k] if isinstance(k, int) else list(k) for k in axes)
    left, right = list(axes_of(a, left)), list(axes_of(b, right))
    pairs = [(a.shape[k], b.shape[j]) for k, j in zip(left, right, strict=False)]
    if len(left) != len(right) or builtins.any(isinstance(m, int) and isinstance(n, int) and m != n for m, n in pairs):
        raise ValueError(f"the dims {left} of a tensor of shape {a.shape} do not meet the dims {right} of one of shape {b.shape}")
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
    a, b = atleast(a, rank), atleast(b, rank)
    shape = [m * n for m, n in zip(a.shape, b.shape, strict=True)]
    a = reshape(a, [v for n in a.shape for v in (n, 1)])
    return reshape(multiply(a, reshape(b, [v for n in b.shape for v in (1, n)])), shape)


def cross(x1: Any, x2: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = met(x1, x2)
    a, b = moveaxis(a, axisa, -1), moveaxis(b, axisb, -1)

    if builtins.any(x.shape[-1] not in (2, 3) for x in (a, b)):
        raise ValueError(f"cross: the vectors of tensors of shape {a.shape} and {b.shape} have to have two or three elements each")

    def part(x: Any, k: int) -> Any:
        return x[..., k] if int(x.shape[-1]) > k else zeros_like(x[..., 0])

    p, q = [part(a, k) for k in range(3)], [part(b, k) for k in range(3)]
    found = [subtract(multiply(p[i], q[j]), multiply(p[j], q[i])) for i, j in ((1, 2), (2, 0), (0, 1))]
    if int(a.shape[-1]) == 2 and int(b.shape[-1]) == 2:
        return found[2]
    return moveaxis(stack(found, -1), -1, axisc)


def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return sum_of(diagonal(x, offset, axis1, axis2), -1)


def correlate(x1: Any, x2: Any, mode: str = "valid") -> Any:
    if mode not in ("valid", "same", "full"):
        raise ValueError(f"Invalid mode: {mode!r}. Mode should be one of the following: valid, same, full")
    a, b = met(x1, x2)
    if a.ndim != 1 or b.ndim != 1:
        raise ValueError(f"correlate takes tensors of one dim; those given have the shapes {a.shape} and {b.shape}")
    dtype = a.dtype
    if not as_dtype(dtype).is_float:
        dtype = "float64" if dtype == np.int64 else config.floatx()
    a, b = convert_to_tensor(a, dtype), convert_to_tensor(b, dtype)
    m, n = int(a.shape[0]), int(b.shape[0])
    turned = m < n
    if turned:
        a, b, m, n = b, a, n, m
    before, after = {"valid": (0, 0), "full": (n - 1, n - 1), "same": (n // 2, n - 1 - n // 2)}[mode]
    wide = reshape(pad(a, [(before, after)]), (1, -1, 1))
    found = reshape(nn.conv(wide, reshape(b, (-1, 1, 1)), 1, "valid", "channels_last"), (-1,))
    return flip(found) if turned else found

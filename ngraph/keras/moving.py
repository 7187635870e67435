"""Functions of `keras.ops.numpy` that move elements: shapes, slices, joins, indices."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np
from keras.src.backend.common.backend_utils import canonicalize_axis, to_tuple_or_list
from keras.src.backend.common.dtypes import result_type

from ngraph.errors import UnsupportedError
from ngraph.frontends.positional import shapes
from ngraph.frontends.positional.values import Tensor
from ngraph.keras.convert import convert_to_tensor
from ngraph.keras.elementwise import met
from ngraph.keras.reductions import axes_of, axis_of, flip
from ngraph.keras.tensors import BackendTensor, OpenLength, apply, size_of
from ngraph.keras.traces import KerasTrace, taping
from ngraph.op_graph.dtypes import as_dtype
from ngraph.ops import elementwise as e
from ngraph.ops.moving import PADDED
from ngraph.parts.deferred import deferred

numpy = deferred("ngraph.keras.numpy")  # which is made of these functions


def known(x: BackendTensor) -> bool:
    """Whether a tensor is an array whose elements may be moved by NumPy at once."""
    return x.t is None and not taping()


def shape_of(given: Any) -> tuple[Any, ...]:
    """Returns a shape that a user gave: numbers, open lengths, or a tensor of numbers."""
    if isinstance(given, (int, np.integer, OpenLength)):
        return (given if isinstance(given, OpenLength) else int(given),)
    if isinstance(given, BackendTensor) and not given.ndim:
        return (int(given),)
    return tuple([n if isinstance(n, OpenLength) else int(n) for n in given])


def has_open(sizes: Sequence[Any]) -> bool:
    return builtins.any(isinstance(n, OpenLength) for n in sizes)


# ---- shapes -------------------------------------------------------------------------------------------------------------


def reshaped(g: KerasTrace, t: Tensor, shape: tuple[Any, ...]) -> Tensor:
    return shapes.reshaped(g, t, [size_of(n) for n in shape], keep=False)


def reshape(x: Any, newshape: Any) -> Any:
    x, newshape = convert_to_tensor(x), shape_of(newshape)
    if known(x) and not has_open(newshape):
        return BackendTensor(x.array.reshape(newshape))
    return apply(reshaped, x, shape=newshape)


def transposed(g: KerasTrace, t: Tensor, order: tuple[int, ...]) -> Tensor:
    return shapes.transposed(t, order)


def transpose(x: Any, axes: Any = None) -> Any:
    x = convert_to_tensor(x)
    order = tuple(range(x.ndim))[::-1] if axes is None else axes_of(x, axes)
    if len(order) != x.ndim:
        raise ValueError(f"axes have to be each dim of a tensor of shape {x.shape} once, and are {axes}")
    if known(x):
        return BackendTensor(np.ascontiguousarray(x.array.transpose(order)).reshape([x.array.shape[k] for k in order]))
    return apply(transposed, x, order=order)


def expanded(g: KerasTrace, t: Tensor, axes: tuple[int, ...]) -> Tensor:
    return shapes.unsqueezed(t, axes)


def expand_dims(x: Any, axis: Any) -> Any:
    x = convert_to_tensor(x)
    axes = to_tuple_or_list(axis)
    axes = tuple([canonicalize_axis(a, x.ndim + len(axes)) for a in axes])
    return BackendTensor(np.expand_dims(x.array, axes)) if known(x) else apply(expanded, x, axes=axes)


def squeeze_of(g: KerasTrace, t: Tensor, axes: tuple[int, ...]) -> Tensor:
    return shapes.squeezed(g, t, axes)


def squeeze(x: Any, axis: Any = None) -> Any:
    x = convert_to_tensor(x)
    axes = tuple([k for k, n in enumerate(x.shape) if isinstance(n, int) and n == 1]) if axis is None else axes_of(x, axis)
    wrong = [k for k in axes if isinstance(x.shape[k], int) and x.shape[k] != 1]
    if wrong:
        raise ValueError(f"cannot select an axis to squeeze out which has size not equal to one, axis={axis}, shape={x.shape}")
    return BackendTensor(np.squeeze(x.array, axes)) if known(x) else apply(squeeze_of, x, axes=axes)


def ravel(x: Any) -> Any:
    return reshape(x, (-1,))


def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    x = convert_to_tensor(x)
    old, new = (axes_of(x, to_tuple_or_list(given)) for given in (source, destination))
    order = [k for k in range(x.ndim) if k not in old]
    for k, j in sorted(zip(new, old, strict=True)):
        order.insert(k, j)
    return transpose(x, order)


def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    x = convert_to_tensor(x)
    order = list(range(x.ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return transpose(x, order)


def broadcasted(g: KerasTrace, t: Tensor, shape: tuple[Any, ...]) -> Tensor:
    return g.expanded(t, [size_of(n) for n in shape])


def broadcast_to(x: Any, shape: Any) -> Any:
    x, shape = convert_to_tensor(x), shape_of(shape)
    if known(x) and not has_open(shape):
        return BackendTensor(np.array(np.broadcast_to(x.array, shape)))
    return apply(broadcasted, x, shape=shape)


def tiled(g: KerasTrace, t: Tensor, times: tuple[Any, ...]) -> Tensor:
    return shapes.tiled(g, t, [size_of(n) for n in times])


def tile(x: Any, repeats: Any) -> Any:
    x, times = convert_to_tensor(x), shape_of(repeats)
    times = (1,) * (x.ndim - len(times)) + times
    if len(times) > x.ndim:
        x = reshape(x, (1,) * (len(times) - x.ndim) + tuple(x.shape))
    return apply(tiled, x, times=times)


# ---- joins --------------------------------------------------------------------------------------------------------------


def joined(g: KerasTrace, *ts: Tensor, axis: int) -> Tensor:
    return shapes.joined(g, list(ts), axis)


def _met(xs: Sequence[Any]) -> list[BackendTensor]:
    xs = [convert_to_tensor(x) for x in xs]
    if len({x.dtype for x in xs}) > 1:
        dtype = result_type(*[x.dtype for x in xs])
        xs = [convert_to_tensor(x, dtype) for x in xs]
    return xs


def concatenate(xs: Sequence[Any], axis: int | None = 0) -> Any:
    xs = _met(xs)
    if axis is None:
        xs, axis = [ravel(x) for x in xs], 0
    axis = canonicalize_axis(axis, xs[0].ndim)
    return BackendTensor(np.concatenate([x.array for x in xs], axis)) if builtins.all(map(known, xs)) else apply(joined, *xs, axis=axis)


def stack(x: Sequence[Any], axis: int = 0) -> Any:
    xs = _met(x)
    axis = canonicalize_axis(axis, xs[0].ndim + 1)
    if builtins.all(map(known, xs)):
        return BackendTensor(np.stack([v.array for v in xs], axis))
    return concatenate([expand_dims(v, axis) for v in xs], axis)


def append(x1: Any, x2: Any, axis: int | None = None) -> Any:
    return concatenate([x1, x2], axis)


def hstack(xs: Sequence[Any]) -> Any:
    xs = [atleast(x, 1) for x in xs]
    return concatenate(xs, 0 if xs[0].ndim == 1 else 1)


def vstack(xs: Sequence[Any]) -> Any:
    return concatenate([x if (x := convert_to_tensor(v)).ndim > 1 else reshape(x, (1, -1)) for v in xs], 0)


def dstack(xs: Sequence[Any]) -> Any:
    def three(x: Any) -> Any:
        x = atleast(x, 1)
        return x if x.ndim > 2 else expand_dims(x, 2) if x.ndim == 2 else reshape(x, (1, -1, 1))

    return concatenate([three(x) for x in xs], 2)


def atleast(x: Any, rank: int) -> Any:
    x = convert_to_tensor(x)
    return x if x.ndim >= rank else reshape(x, (1,) * (rank - x.ndim) + tuple(x.shape))


def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    x = convert_to_tensor(x)
    axis = axis_of(x, axis)
    size = x.shape[axis]
    if isinstance(indices_or_sections, (int, np.integer)):
        many = int(indices_or_sections)
        if isinstance(size, int) and size % many:
            raise ValueError(f"array split does not result in an equal division: dim {axis} of length {size} into {many}")
        cuts = [size // many * k for k in range(1, many)]
    else:
        cuts = [c if isinstance(c, OpenLength) else int(c) for c in np.ravel(np.asarray(indices_or_sections))]
    return [x[(*[slice(None)] * axis, slice(a, b))] for a, b in zip([0, *cuts], [*cuts, size], strict=True)]


def array_split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    x = convert_to_tensor(x)
    if not isinstance(indices_or_sections, int):
        return split(x, indices_or_sections, axis)
    size, more = divmod(int(x.shape[axis]), indices_or_sections)
    cuts = np.cumsum([size + (k < more) for k in range(indices_or_sections)])[:-1]
    return split(x, cuts, axis)


def hsplit(x: Any, indices_or_sections: Any) -> list[Any]:
    return split(x, indices_or_sections, 0 if convert_to_tensor(x).ndim == 1 else 1)


def vsplit(x: Any, indices_or_sections: Any) -> list[Any]:
    return split(x, indices_or_sections, 0)


def dsplit(x: Any, indices_or_sections: Any) -> list[Any]:
    return split(x, indices_or_sections, 2)


# ---- paddings, turns ----------------------------------------------------------------------------------------------------


def padded(g: KerasTrace, t: Tensor, *value: Tensor, widths: tuple[tuple[Any, Any], ...], mode: str, number: Any = 0) -> Tensor:
    for k, (before, after) in enumerate(widths):
        if not (isinstance(before, int) and isinstance(after, int) and before == after == 0):
            t = shapes.padded(g, t, k, size_of(before), size_of(after), mode, number)
    return t


def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = None) -> Any:
    x = convert_to_tensor(x)
    if constant_values is not None and mode != "constant":
        raise ValueError(f"Argument `constant_values` can only be provided when `mode == 'constant'`. Received: mode={mode}")
    if isinstance(pad_width, (BackendTensor, np.ndarray)):
        pad_width = np.asarray(pad_width).tolist()
    pairs: Any = [pad_width] * x.ndim if isinstance(pad_width, int) else list(pad_width)
    pairs = [tuple(p) if isinstance(p, (list, tuple, np.ndarray)) else (p, p) for p in pairs]
    pairs = pairs * x.ndim if len(pairs) == 1 else pairs
    widths: Any = tuple([tuple([n if isinstance(n, OpenLength) else int(n) for n in p]) for p in pairs])
    if known(x) and not builtins.any(has_open(p) for p in widths):
        more: Any = {} if mode != "constant" else {"constant_values": np.asarray(constant_values or 0, x.dtype)}
        return BackendTensor(np.pad(x.array, widths, mode=mode, **more))  # type: ignore[call-overload]  # the mode is a name
    if mode not in PADDED and mode != "wrap":
        raise UnsupportedError(f"padding {mode!r} of a tensor that is being computed", fix=f"take one of {', '.join(PADDED)}")
    number = 0 if constant_values is None else convert_to_tensor(constant_values).item()
    return apply(padded, x, widths=widths, mode=mode, number=as_dtype(x.dtype).python(number))


def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    x = convert_to_tensor(x)
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    axes = [axis_of(x, k) for k in to_tuple_or_list(axis)]
    shifts = to_tuple_or_list(shift)
    for k, by in zip(axes, [*shifts] * (len(axes) if len(shifts) == 1 else 1), strict=True):
        n = x.shape[k]
        if isinstance(n, int) and not n:
            continue
        by = by % n if isinstance(by, (int, OpenLength)) else int(by) % n
        front = (*[slice(None)] * k,)
        x = concatenate([x[(*front, slice(n - by, n))], x[(*front, slice(0, n - by))]], k)
    return x


def rot90(array: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    x = convert_to_tensor(array)
    if x.ndim < 2:
        raise ValueError(f"Input array must have at least 2 dimensions. Received: array.ndim={x.ndim}")
    if len(axes) != 2 or axes[0] == axes[1]:
        raise ValueError(f"Invalid axes: {axes}. Axes must be a tuple of two different dimensions.")
    a, b = axes_of(x, axes)
    k %= 4
    if k == 0:
        return x
    if k == 2:
        return flip(x, (a, b))
    return swapaxes(flip(x, b), a, b) if k == 1 else flip(swapaxes(x, a, b), b)


# ---- triangles, diagonals -----------------------------------------------------------------------------------------------


def tril(x: Any, k: int = 0) -> Any:
    return _masked(x, int(k), False)


def triu(x: Any, k: int = 0) -> Any:
    return _masked(x, int(k), True)


def _masked(x: Any, k: int, upper: bool) -> Any:
    x = convert_to_tensor(x)
    if x.ndim == 1:  # as NumPy: a row stands for a square
        x = broadcast_to(x, (x.shape[0], x.shape[0]))
    return apply(shapes.triangle, x, offset=k, upper=upper)


def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    x = convert_to_tensor(x)
    if x.ndim < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    return apply(shapes.diagonal, x, offset=int(offset), rows=axis1, columns=axis2)


def diag(x: Any, k: int = 0) -> Any:
    x = convert_to_tensor(x)
    if x.ndim not in (1, 2):
        raise ValueError("Input must be 1-d or 2-d")
    return apply(shapes.on_diagonal, x, offset=int(k)) if x.ndim == 1 else diagonal(x, k)


def diagflat(x: Any, k: int = 0) -> Any:
    return diag(ravel(x), k)


# ---- choices ------------------------------------------------------------------------------------------------------------


def chosen(g: KerasTrace, c: Tensor, a: Tensor, b: Tensor) -> Tensor:
    (p, x, y), dims = g.align(c, a, b)
    return g.made(e.where(p, x, y), dims)


def where(condition: Any, x1: Any = None, x2: Any = None) -> Any:
    condition = convert_to_tensor(condition, "bool")
    if x1 is None or x2 is None:
        return numpy.nonzero(condition)
    a, b = met(x1, x2)
    return apply(chosen, condition, a, b)

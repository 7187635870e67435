"""Slices of tensors, and elements at indices."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph.frontends.positional import indexing, shapes
from ngraph.frontends.positional.values import Tensor
from ngraph.keras.convert import convert_to_tensor
from ngraph.keras.moving import broadcast_to, known, moveaxis, ravel, stack, transpose
from ngraph.keras.reductions import axis_of
from ngraph.keras.tensors import BackendTensor, OpenLength, apply, size_of
from ngraph.keras.traces import KerasTrace, NotTraceable

# ---- slices -------------------------------------------------------------------------------------------------------------


def sliced(g: KerasTrace, t: Tensor, key: tuple[Any, ...]) -> Tensor:
    """The tensor at slices, numbers and new dims, one for each dim of it from the first on."""
    dim = 0
    gone: list[int] = []
    new: list[tuple[int, int]] = []
    for item in key:
        if item is None:
            new.append((dim, len(gone)))
            continue
        size = t.shape[dim]
        if isinstance(item, tuple):
            first, last, step = bounds_of(item)
            step = 1 if step is None else step
            first = (0 if step > 0 else shapes.TO_THE_END) if first is None else first
            last = (shapes.TO_THE_END if step > 0 else -shapes.TO_THE_END) if last is None else last
            if (first, step) != (0, 1) or last != shapes.TO_THE_END:
                t = shapes.slices(g, t, [first], [last], [dim], [step])
        else:
            i = size_of(item)
            if isinstance(i, int) and isinstance(size, int):
                if not -size <= i < size:
                    raise IndexError(f"index {i} is out of bounds for axis {dim} with size {size}")
                i %= size
            elif g.truth("lt", i, 0):
                i = i + size
            t = g.full(t, [dim])
            t = g.squeezed(shapes.sliced(g, t, dim, i, 1, 1), dim)
            gone.append(dim)
        dim += 1
    dims = [d for k, d in enumerate(t.dims) if k not in gone]
    for k, before in reversed(new):
        dims.insert(k - before, None)
    return Tensor(t.op, dims)


def bounds_of(item: tuple[Any, ...]) -> Any:
    return [None if v is None else size_of(v) for v in item]


def _is_array(item: Any) -> bool:
    return isinstance(item, (list, np.ndarray, BackendTensor)) or hasattr(item, "_held")


def getitem(x: Any, key: Any) -> Any:
    """Returns x[key]: NumPy's indexing by slices, numbers, None, `...`, and integer tensors; masks where they are known."""
    x = convert_to_tensor(x)
    items = list(key) if isinstance(key, tuple) else [key]
    items = [np.asarray(i) if isinstance(i, BackendTensor) and i.t is None else i for i in items]
    items = [int(i) if isinstance(i, np.ndarray) and not i.ndim and i.dtype.kind in "iu" else i for i in items]
    if known(x) and not builtins.any(isinstance(i, (BackendTensor, OpenLength)) for i in _parts(items)):
        found = x.array[tuple([np.asarray(i) if isinstance(i, (list, BackendTensor)) or hasattr(i, "_held") else i for i in items])]
        return BackendTensor(np.asarray(found))
    if builtins.any(i is Ellipsis for i in items):
        at = next(k for k, i in enumerate(items) if i is Ellipsis)
        many = x.ndim - len([i for i in items if i is not None and i is not Ellipsis])
        items[at : at + 1] = [slice(None)] * many
    arrays = [k for k, i in enumerate(items) if _is_array(i)]
    if not arrays:
        return apply(sliced, x, key=tuple([_plain(i) for i in items]))
    basic = tuple([(None, None, None) if k in arrays else _plain(i) for k, i in enumerate(items)])
    y = apply(sliced, x, key=basic) if builtins.any(i != (None, None, None) for i in basic) else x
    places = []  # the dim of each index array in y
    for k in arrays:
        places.append(len([i for i in items[:k] if i is None or isinstance(i, slice) or _is_array(i)]))
    indices = [convert_to_tensor(items[k]) for k in arrays]
    if builtins.any(i.dtype == bool for i in indices):
        raise NotTraceable("how many elements a mask takes is known only with its value", "use keras.ops.where, or run_eagerly=True")
    indices = list(broadcast_all([convert_to_tensor(i, "int32") for i in indices]))
    if len(places) == 1:
        return take(y, indices[0], axis=places[0])
    together = places == list(range(places[0], places[0] + len(places)))
    order = [*places, *[k for k in range(y.ndim) if k not in places]]
    found = apply(at_indices, transpose(y, order), stack(indices, axis=-1))
    if together and places[0]:
        n = indices[0].ndim
        found = moveaxis(found, list(range(n)), list(range(places[0], places[0] + n)))
    return found


def at_indices(g: KerasTrace, t: Tensor, i: Tensor) -> Tensor:
    return indexing.gathered_slices(g, t, i, 0, "the tensor")


def _parts(items: Sequence[Any]) -> list[Any]:
    return [p for i in items for p in ((i.start, i.stop, i.step) if isinstance(i, slice) else (i,))]


def _plain(item: Any) -> Any:
    """Returns an item of a key as something hashable."""
    if isinstance(item, slice):
        return tuple([None if v is None else v if isinstance(v, OpenLength) else int(v) for v in (item.start, item.stop, item.step)])
    return item if item is None or isinstance(item, OpenLength) else int(item)


def broadcast_all(values: Sequence[BackendTensor]) -> list[BackendTensor]:
    """Returns tensors broadcast to one shape."""
    if len({tuple(map(str, v.shape)) for v in values}) == 1:
        return list(values)
    return [apply(alike, v, *[w for w in values if w is not v]) for v in values]


def alike(g: KerasTrace, *ts: Tensor) -> Tensor:
    met_, dims = g.meet(list(ts))
    return g.made(met_[0].op, dims)


# ---- indices ------------------------------------------------------------------------------------------------------------


def taken(g: KerasTrace, t: Tensor, i: Tensor, axis: int) -> Tensor:
    return indexing.gathered(g, t, i, axis, "the tensor")


def take(x: Any, indices: Any, axis: int | None = None) -> Any:
    """Returns the tensor at indices of a dim; those below 0 count from the end, others outside are taken as the nearest."""
    x, indices = convert_to_tensor(x), convert_to_tensor(indices)
    if indices.dtype.kind not in "iu":
        indices = convert_to_tensor(indices, "int32")
    if axis is None:
        x, axis = ravel(x), 0
    axis = axis_of(x, axis)
    if known(x) and known(indices):
        size = x.array.shape[axis]
        i = np.where(indices.array < 0, indices.array.astype(np.int64) + size, indices.array)
        return BackendTensor(np.asarray(np.take(x.array, i, axis=axis, mode="clip")))
    return apply(taken, x, indices, axis=axis)


def taken_along(g: KerasTrace, t: Tensor, i: Tensor, axis: int) -> Tensor:
    return indexing.gathered_elements(g, t, i, axis, "the tensor")


def take_along_axis(x: Any, indices: Any, axis: int | None = None) -> Any:
    x, indices = convert_to_tensor(x), convert_to_tensor(indices, "int32")
    if axis is None:
        x, axis = ravel(x), 0
    axis = axis_of(x, axis)
    x = broadcast_to(x, [n if k == axis else m for k, (n, m) in enumerate(zip(x.shape, _wider(x, indices, axis), strict=True))])
    indices = broadcast_to(indices, [n if k == axis else m for k, (n, m) in enumerate(zip(indices.shape, x.shape, strict=True))])
    return apply(taken_along, x, indices, axis=axis)


def _wider(x: BackendTensor, indices: BackendTensor, axis: int) -> list[Any]:
    return [m if isinstance(n, int) and n == 1 and k != axis else n for k, (n, m) in enumerate(zip(x.shape, indices.shape, strict=True))]


def repeated(g: KerasTrace, t: Tensor, axis: int, times: Any) -> Tensor:
    times = size_of(times)
    t = Tensor(t.op, [*t.dims[: axis + 1], None, *t.dims[axis + 1 :]])
    shape = list(t.shape)
    wide = g.expanded(t, [*shape[: axis + 1], times, *shape[axis + 2 :]])
    return g.reshape(wide, [*shape[:axis], shape[axis] * times, *shape[axis + 2 :]])


def repeat(x: Any, repeats: Any, axis: int | None = None) -> Any:
    x = convert_to_tensor(x)
    if axis is None:
        x, axis = ravel(x), 0
    axis = axis_of(x, axis)
    if isinstance(repeats, OpenLength):
        return apply(repeated, x, axis=axis, times=repeats)
    times = convert_to_tensor(repeats)
    if times.t is not None:
        raise NotTraceable
    many = times.array.ravel()
    if len(many) == 1:
        return apply(repeated, x, axis=axis, times=int(many[0]))
    if isinstance(x.shape[axis], int) and x.shape[axis] != len(many):
        raise ValueError(f"repeat: {len(many)} numbers of repeats for dim {axis} of a tensor of shape {x.shape}")
    return take(x, np.repeat(np.arange(len(many)), many), axis=axis)

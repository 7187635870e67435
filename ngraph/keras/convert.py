"""Variables, and conversions between tensors, arrays and dtypes: what all functions of the backend begin with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from keras.src import tree
from keras.src.backend.common import KerasVariable, standardize_dtype
from keras.src.backend.common.dtypes import result_type
from keras.src.backend.common.keras_tensor import KerasTensor
from keras.src.backend.common.name_scope import name_scope as name_scope

from ngraph.errors import ArgumentError, UnsupportedError
from ngraph.frontends.positional.values import Tensor
from ngraph.keras.tensors import BackendTensor, OpenLength, apply, lifted, whole
from ngraph.keras.traces import KerasTrace, reading, taping
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType, as_dtype
from ngraph.ops import elementwise as e
from ngraph.parts.deferred import deferred

numpy = deferred("ngraph.keras.numpy")  # which is made of this module


class TracedVariable(KerasVariable):
    """A variable: an array of its own, which compiled steps write in place, or its value in the computation that is being read."""

    _assigned: list[Any] | None = None  # what is assigned to it, while a derivative follows that

    @property
    def _value(self) -> Any:
        held = self.__dict__.get("_held")
        g = reading()
        if g is not None and held is not None:
            return BackendTensor(t=g.tensor(g.current(g.name_of(self))), g=g)
        if held is not None:
            self._lent = True
        return held

    @_value.setter
    def _value(self, value: Any) -> None:
        g = reading()
        if g is not None and value is not None and self.__dict__.get("_held") is not None:
            name = g.name_of(self)
            g.current(name)
            t, assigned = lifted(g, value), self._assigned
            if assigned is not None and not g.bodies:
                t = Tensor(e.stop_gradient(whole(g, t)), t.dims)
                assigned.append(t)
            g.assign(name, t)
            return
        if value is not None and value.t is not None:
            raise UnsupportedError(
                f"the variable {self.path} gets a value of a computation that is being read",
                fix="create variables before: model.build(...)",
            )
        if self._assigned is not None:
            value = BackendTensor(value.array)
            self._assigned.append(value)
        self._held, self._lent = value, True

    @contextlib.contextmanager
    def followed(self) -> Iterator[list[Any]]:
        """Yields what is assigned to the variable meanwhile: values of their own, whose derivatives are part of the variable's."""
        before, self._assigned = self._assigned, []
        try:
            yield self._assigned
        finally:
            self._assigned = before

    @property
    def array(self) -> Any:
        """The array of its value before the computation that is being read."""
        return self._held.array

    def own_array(self) -> Any:
        """Returns the array, which may be written: a copy where somebody else may have it."""
        array = self._held.array
        if self._lent or not array.flags.writeable or not array.flags.c_contiguous:
            array = np.array(array, order="C")
            self._held, self._lent = BackendTensor(array), False
        return array

    def _initialize(self, value: Any) -> None:
        self._value = value

    def _direct_assign(self, value: Any) -> None:
        self._value = value

    def _convert_to_tensor(self, value: Any, dtype: Any = None) -> Any:
        return convert_to_tensor(value, dtype=dtype)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.value.__array__(dtype, copy)


# ---- conversions --------------------------------------------------------------------------------------------------------


def _narrow(source: DType, target: DType) -> np.iinfo[Any] | None:
    """Returns the bounds of integers of 8 and 16 bits to which floats are cast: beyond them the nearest one is taken, as by JAX."""
    return np.iinfo(target.np) if source.is_float and target.is_integer and target.np.itemsize < 4 else None


def casted(g: KerasTrace, t: Tensor, dtype: str) -> Tensor:
    """The value as another dtype."""
    x, wanted = t.op, as_dtype(dtype)
    bounds = _narrow(x.dtype, wanted)
    if bounds is not None:
        wide = e.cast(x, dtypes.float32) if x.dtype.np.itemsize < 4 else x
        x = e.minimum(e.maximum(wide, float(bounds.min)), float(bounds.max))
    return Tensor(e.cast(x, wanted), t.dims)


def cast(x: Any, dtype: Any) -> Any:
    return convert_to_tensor(x, dtype)


def in_dtype(x: BackendTensor, dtype: str) -> BackendTensor:
    if x.dtype.name == dtype:
        return x
    if x.t is None and not taping():
        with np.errstate(all="ignore"):
            array, bounds = x.array, _narrow(as_dtype(x.dtype), as_dtype(dtype))
            if bounds is not None:
                array = array.astype(np.float32 if array.dtype.itemsize < 4 else array.dtype).clip(bounds.min, bounds.max)
            return BackendTensor(array.astype(np.dtype(dtype)))
    return apply(casted, x, dtype=dtype)


def convert_to_tensor(x: Any, dtype: Any = None, sparse: Any = None, ragged: Any = None) -> Any:
    """Returns x, a number, an array, nested lists or a variable, as a tensor. Raises UnsupportedError for sparse or ragged ones."""
    if sparse or ragged:
        raise ValueError(f"`{'sparse' if sparse else 'ragged'}=True` is not supported with the ngraph backend")
    dtype = None if dtype is None else standardize_dtype(dtype)
    if isinstance(x, KerasVariable):
        x = x.value
    if isinstance(x, BackendTensor):
        return x if dtype is None else in_dtype(x, dtype)
    if isinstance(x, OpenLength):
        return in_dtype(x.tensor(), dtype or "int32")
    if isinstance(x, KerasTensor):
        raise ValueError(
            "A KerasTensor is symbolic: it's a placeholder for a shape and a dtype. It doesn't have any actual numerical value. "
            "You cannot convert it to a tensor."
        )
    if isinstance(x, (list, tuple)):
        leaves = tree.flatten(x)
        if any(isinstance(v, (BackendTensor, KerasVariable, OpenLength)) for v in leaves):
            return _of_nest(x, dtype)
        if dtype is None:
            dtype = result_type(*[getattr(v, "dtype", type(v)) for v in leaves]) if leaves else "float32"
    elif dtype is None and isinstance(x, (bool, int, float)):
        dtype = result_type(type(x))
    if hasattr(x, "detach") and hasattr(x, "numpy") and not hasattr(x, "device_buffer"):
        x = x.detach().cpu().numpy()
    array = np.asarray(x)
    if array.dtype.kind in "SUO" and dtype is None:
        raise ValueError(f"a tensor of numbers is wanted, not of {array.dtype}")
    if array.dtype.kind == "c":
        raise UnsupportedError("there are no complex tensors with the ngraph backend", fix="pass a real and an imaginary part")
    wanted = np.dtype(dtype) if dtype is not None else array.dtype
    if array.dtype == wanted:
        return BackendTensor(np.array(array, order="C"))
    with np.errstate(all="ignore"):
        return BackendTensor(np.ascontiguousarray(array.astype(wanted)).reshape(array.shape))


def _of_nest(x: Sequence[Any], dtype: str | None) -> BackendTensor:
    parts = [convert_to_tensor(v) for v in x]
    dtype = dtype or result_type(*[p.dtype for p in parts])
    return numpy.stack([in_dtype(p, dtype) for p in parts])


def convert_to_numpy(x: Any) -> Any:
    if isinstance(x, KerasVariable):
        x = x.value
    return np.array(x)


def is_tensor(x: Any) -> bool:
    return isinstance(x, BackendTensor)


def shape(x: Any) -> Any:
    return tuple(convert_to_tensor(x).shape) if not hasattr(x, "shape") else tuple(x.shape)


def random_seed_dtype() -> str:
    return "uint32"


@contextlib.contextmanager
def device_scope(device_name: Any) -> Iterator[None]:
    """A context that names a device: there is one, the CPU. Raises ArgumentError for another."""
    if not str(device_name).lower().startswith("cpu"):
        raise ArgumentError(f"there is no device {device_name!r} for the ngraph backend", fix="name cpu:0")
    yield

"""The values of names in a model's graph while it is read.

Tensor         an op, and which of its axes is which dim; a dim of length 1 needs no axis
ConstantArray  an array that is known now: constants, and what is computed of them
Sizes          whole numbers, some of them expressions of lengths that come later: what Shape gives
StringInput    strings or complex numbers that come with the call, in a slot
list           a sequence
Nothing        an optional without a value
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ngraph.errors import GraphError
from ngraph.op_graph.expr import ExprLike
from ngraph.op_graph.op import Op

LARGEST_TABLE = 1 << 26  # numbers: 512 MiB of float64


class Tensor:
    """An op and its dims: for each its axis, or None where it has length 1 and the op has no axis for it."""

    __slots__ = ("op", "dims")

    def __init__(self, op: Op, dims: Any):
        self.op, self.dims = op, tuple(dims)
        assert {d for d in self.dims if d is not None} == set(op.axes), (self.dims, op)

    @property
    def dtype(self) -> Any:
        return self.op.dtype

    @property
    def np(self) -> Any:
        return self.op.dtype.np

    @property
    def shape(self) -> tuple[ExprLike, ...]:
        return tuple([1 if d is None else d.size for d in self.dims])

    @property
    def rank(self) -> int:
        return len(self.dims)

    def __repr__(self) -> str:
        return f"Tensor({self.op!r}, {self.dims})"


class Held:
    """A value held as a NumPy array while the graph is read."""

    __slots__ = ("array",)
    array: Any
    np: Any

    @property
    def shape(self) -> tuple[ExprLike, ...]:
        return self.array.shape

    @property
    def rank(self) -> int:
        return self.array.ndim

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.array!r})"


class ConstantArray(Held):
    """An array that is known while the graph is read."""

    __slots__ = ("name",)

    def __init__(self, array: Any, name: str = ""):
        self.array = np.asarray(array)
        self.name = name

    @property
    def np(self) -> Any:
        return self.array.dtype


class Sizes(Held):
    """An array of objects, ints and expressions, that stands for whole numbers of type `np`."""

    __slots__ = ("np",)

    def __init__(self, array: Any, dtype: Any = np.int64):
        self.array, self.np = np.asarray(array, object), np.dtype(dtype)


class StringInput(Held):
    """Strings, or complex numbers, that come with the call: the slot they come in, their dims, and those of this call."""

    __slots__ = ("slot", "np")

    def __init__(self, slot: int, array: Any):
        self.slot, self.array, self.np = slot, array, np.dtype(object if array.dtype.kind in "OSU" else array.dtype)


class Nothing:
    """An optional without a value. There is one: NOTHING."""


NOTHING = Nothing()

Value = Any  # Tensor | ConstantArray | Sizes | StringInput | list | Nothing


def call(value: Value, name: str) -> None:
    """Gives a value the name that a file has for it, unless it has one."""
    if type(value) is Tensor:
        value.op.hint = value.op.hint or name
    elif type(value) is ConstantArray:
        value.name = value.name or name


def settled(array: Any, dtype: Any = np.int64) -> ConstantArray | Sizes:
    """`ConstantArray` where every number is known, else `Sizes`."""
    array = np.asarray(array, object)
    if all(isinstance(e, (int, np.integer)) for e in array.ravel()):
        return ConstantArray(array.astype(dtype))
    return Sizes(array, dtype)


def check_room(*lengths: int) -> None:
    """Raises GraphError for the lengths of a table that is made while the graph is read, where it would be too large for that."""
    if math.prod(lengths) > LARGEST_TABLE:
        shape = " x ".join(f"{n:,}" for n in lengths)
        raise GraphError(f"a table of {shape} numbers would be made while the graph is read; at most {LARGEST_TABLE:,} are")

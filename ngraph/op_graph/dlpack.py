"""Arrays of other libraries by DLPack's C exchange API (DLPack 1.3): their memory without a copy, and new ones made by their library.

A type that has the API names it as `__dlpack_c_exchange_api__`, a capsule of function pointers. These take any instance, also those that
`__dlpack__` refuses, such as PyTorch's parameters. https://dmlc.github.io/dlpack/latest/c_api.html
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph.errors import ArgumentError, ArgumentTypeError
from ngraph.op_graph.dtypes import REGISTRY, DType, as_dtype

NAME = b"dlpack_exchange_api"
VERSION = 1  # of the layout of these records
CPU = 1  # the type of a device
KINDS = {"int": 0, "uint": 1, "float": 2, "bool": 6}
CODES = {  # of dtypes whose kind does not say it
    "bfloat16": 4,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}


class DLTensor(ctypes.Structure):
    """The place of an array: address, device, rank, dtype, lengths, strides in elements, bytes to its first element."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("dtype", ctypes.c_uint32),  # code, bits, and the number of lanes in the upper half
        ("lengths", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
    ]


class ManagedTensor(ctypes.Structure):
    """An array that its owner is told to release."""

    _fields_ = [
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


class _Functions(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        *[(name, ctypes.c_void_p) for name in ("allocate", "managed", "export", "describe", "stream")],
    ]


ON_ERROR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)


class ExchangeAPI:
    """The functions of one type's library: their addresses, and calls of them."""

    def __init__(self, functions: _Functions):
        self.functions = functions
        made = ctypes.PYFUNCTYPE
        self._describe = made(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(functions.describe)
        self._function = functools.cache(made(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ON_ERROR))
        self._allocate = self._function(functions.allocate)
        self._export = made(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(functions.export)

    def describe(self, x: Any) -> DLTensor:
        """Returns where `x` lies; the lengths and strides are valid while it lives."""
        found = DLTensor()
        self._describe(x, ctypes.addressof(found))
        return found

    def empty(self, shape: Sequence[int], dtype: DType, order: Sequence[int] | None = None, source: tuple[int, int] | None = None) -> Any:
        """Returns a new array of the library, without values. Raises MemoryError with the library's reason.

        order: its dims from the slowest in memory to the fastest. source: the address of another allocator, and of what it takes first.
        """
        said: list[str] = []
        dims = [shape[d] for d in order] if order is not None else list(shape)
        lengths, steps = _words(dims), _words(dense(dims))
        wanted = DLTensor(None, CPU, 0, len(shape), code(dtype), ctypes.addressof(lengths), ctypes.addressof(steps), 0)
        managed, result = ctypes.c_void_p(), ctypes.c_void_p()
        told = ON_ERROR(lambda context, kind, message: said.append((message or b"").decode(errors="replace")))
        allocate, context = (self._allocate, None) if source is None else (self._function(source[0]), source[1])
        if allocate(ctypes.addressof(wanted), ctypes.addressof(managed), context, told):
            raise MemoryError("; ".join(said) or f"no {dtype}{list(shape)} could be made")
        if order is not None:  # its library allocates rows first: the same memory with the dims that were asked for
            strides = [0] * len(shape)
            for d, step in zip(order, dense(dims), strict=True):
                strides[d] = step
            lengths, steps = _words(shape), _words(strides)
            tensor = ManagedTensor.from_address(managed.value or 0).tensor
            tensor.lengths, tensor.strides = ctypes.addressof(lengths), ctypes.addressof(steps)
        self._export(managed, ctypes.addressof(result))
        made = ctypes.cast(result, ctypes.py_object).value
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(made))  # `made` has a reference of its own
        return made

    def copied(self, array: np.ndarray, order: Sequence[int] | None = None) -> Any:
        """Returns a copy of an array, made by the library."""
        made = self.empty(array.shape, as_dtype(array.dtype), order)
        view(made, self)[...] = array
        return made


def dense(shape: Sequence[int]) -> list[int]:
    """Returns the strides, in elements, of an array whose rows follow one another."""
    return [math.prod(shape[k + 1 :]) for k in range(len(shape))]


def _words(numbers: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(numbers))(*numbers)


@functools.cache
def _capsule_pointer() -> Any:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return get


_known: dict[int, ExchangeAPI] = {}  # by address: subclasses share it


def exchange_api(kind: type) -> ExchangeAPI | None:
    """Returns the API of a type's library; None where it has none of this version."""
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    try:
        at = _capsule_pointer()(capsule, NAME)
    except (ValueError, ctypes.ArgumentError):
        return None
    if at not in _known:
        functions = _Functions.from_address(at)
        while functions.major != VERSION:
            if not functions.previous:
                return None
            functions = _Functions.from_address(functions.previous)
        if not (functions.describe and functions.allocate and functions.export):
            return None
        _known[at] = ExchangeAPI(functions)
    return _known[at]


@functools.cache
def code(dtype: DType) -> int:
    """Returns the word that stands for a dtype. Raises ArgumentTypeError where DLPack has none, or packs it."""
    kind = CODES.get(dtype.name, None if dtype.kind == "narrow" else KINDS.get(dtype.kind, None))
    if kind is None:
        raise ArgumentTypeError(f"DLPack has no arrays of {dtype} with an element in each byte")
    return kind | dtype.bits << 8 | 1 << 16


@functools.cache
def _dtypes() -> dict[int, DType]:
    return {code(d): d for d in REGISTRY.values() if d.name in CODES or d.kind in KINDS}


def dtype_word(dtype: np.dtype) -> int:
    """Returns the word that stands for a NumPy dtype; 0, which stands for none, where there is none."""
    return next((word for word, d in _dtypes().items() if d.np == dtype), 0)


def view(x: Any, api: ExchangeAPI) -> np.ndarray:
    """Returns the memory of `x` as an array, which keeps `x` alive. Raises ArgumentError for memory or dtypes that cannot be read here."""
    what = f"a {type(x).__module__.partition('.')[0]}.{type(x).__qualname__}"
    try:
        t = api.describe(x)
    except Exception as error:  # whatever the library raises for what has no memory, such as a sparse array
        raise ArgumentError(
            f"{what} has no memory to read: {str(error).splitlines()[0]}", fix="pass a dense array in host memory"
        ) from error
    if t.device_type != CPU:
        raise ArgumentError(f"{what} lies on a device of DLPack's type {t.device_type}", fix="move it to host memory: x.cpu()")
    dtype = _dtypes().get(t.dtype)
    if dtype is None:
        kind, bits, lanes = t.dtype & 0xFF, t.dtype >> 8 & 0xFF, t.dtype >> 16
        raise ArgumentError(
            f"{what} has a dtype that ngraph lacks: DLPack's code {kind} of {bits} bits{f' in {lanes} lanes' if lanes != 1 else ''}",
            fix="convert it first",
        )
    shape = tuple(ctypes.c_int64.from_address(t.lengths + 8 * k).value for k in range(t.rank))
    if 0 in shape:
        return np.empty(shape, dtype.np)
    if not t.data:
        raise ArgumentError(f"{what} has no memory", fix="pass an array with values")
    size = dtype.np.itemsize
    if t.strides:
        strides = tuple(size * ctypes.c_int64.from_address(t.strides + 8 * k).value for k in range(t.rank))
    else:
        strides = tuple(size * step for step in dense(shape))
    before = sum(-s * (n - 1) for s, n in zip(strides, shape, strict=True) if s < 0)
    after = sum(s * (n - 1) for s, n in zip(strides, shape, strict=True) if s > 0)
    memory = (ctypes.c_char * (before + after + size)).from_address(t.data + t.offset - before)
    memory.owner = x  # the array's base: while that lives, so does the memory
    return np.ndarray(shape, dtype.np, memory, before, strides)

"""TensorFlow's dtypes by number and name, and the arrays of its TensorProto."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from ngraph.errors import ParseError, UnsupportedError

# name without DT_: number, NumPy's dtype (None: no array holds it), the field of TensorProto that lists elements
_ROWS: tuple[tuple[str, int, Any, str], ...] = (
    ("FLOAT", 1, np.float32, "float_val"),
    ("DOUBLE", 2, np.float64, "double_val"),
    ("INT32", 3, np.int32, "int_val"),
    ("UINT8", 4, np.uint8, "int_val"),
    ("INT16", 5, np.int16, "int_val"),
    ("INT8", 6, np.int8, "int_val"),
    ("STRING", 7, object, "string_val"),
    ("COMPLEX64", 8, np.complex64, "scomplex_val"),
    ("INT64", 9, np.int64, "int64_val"),
    ("BOOL", 10, np.bool_, "bool_val"),
    ("BFLOAT16", 14, ml_dtypes.bfloat16, "half_val"),
    ("UINT16", 17, np.uint16, "int_val"),
    ("COMPLEX128", 18, np.complex128, "dcomplex_val"),
    ("HALF", 19, np.float16, "half_val"),
    ("RESOURCE", 20, None, ""),
    ("VARIANT", 21, None, ""),
    ("UINT32", 22, np.uint32, "uint32_val"),
    ("UINT64", 23, np.uint64, "uint64_val"),
    ("FLOAT8_E5M2", 24, ml_dtypes.float8_e5m2, "float8_val"),
    ("FLOAT8_E4M3FN", 25, ml_dtypes.float8_e4m3fn, "float8_val"),
    ("QINT8", 11, np.int8, "int_val"),
    ("QUINT8", 12, np.uint8, "int_val"),
    ("QINT32", 13, np.int32, "int_val"),
    ("QINT16", 15, np.int16, "int_val"),
    ("QUINT16", 16, np.uint16, "int_val"),
)
NUMBERS = {f"DT_{name}{ref}": number + (100 if ref else 0) for name, number, _, _ in _ROWS for ref in ("", "_REF")}
_BY_NUMBER = {number: (name, None if kind is None else np.dtype(kind), field) for name, number, kind, field in _ROWS}


def numpy_type(number: int) -> np.dtype[Any] | None:
    """Returns NumPy's dtype for one of TensorFlow's, strings as object; None for resources and variants.

    Raises UnsupportedError for a dtype that has none, such as quantised ones.
    """
    found = _BY_NUMBER.get(number % 100)
    if found is None:
        raise UnsupportedError(f"TensorFlow's dtype number {number} has no counterpart here", fix="convert the model to plain numbers")
    return found[1]


def type_name(number: int) -> str:
    """Returns the name of a dtype in lower case, such as `float`."""
    return _BY_NUMBER.get(number % 100, (f"dtype {number}",))[0].lower()


def number_of(dtype: np.dtype[Any]) -> int:
    """Returns TensorFlow's number of a NumPy dtype. Raises UnsupportedError where it has none."""
    for number, (_, kind, _) in _BY_NUMBER.items():
        if kind == dtype:
            return number
    raise UnsupportedError(f"TensorFlow has no dtype for NumPy's {dtype}", fix="cast the array")


def shape_of(proto: Any) -> tuple[int | None, ...] | None:
    """Returns the lengths of a TensorShapeProto, None for an open one; None for an unknown rank."""
    return None if proto.unknown_rank else tuple([None if d.size < 0 else d.size for d in proto.dim])


def array_of(t: Any) -> np.ndarray[Any, Any]:
    """Returns the array of a TensorProto. Raises ParseError where its data do not have its shape."""
    shape = shape_of(t.tensor_shape)
    dtype = numpy_type(t.dtype)
    if shape is None or None in shape or dtype is None:
        raise ParseError(f"a constant of {type_name(t.dtype)} with the shape {shape} holds no array", fix="is the file damaged?")
    lengths = [n for n in shape if n is not None]
    count = math.prod(lengths)
    field = _BY_NUMBER[t.dtype % 100][2]
    if t.tensor_content:
        if dtype.hasobject or len(t.tensor_content) != count * dtype.itemsize:
            raise ParseError(f"{len(t.tensor_content)} bytes for {lengths} elements of {dtype}", fix="is the file damaged?")
        return np.frombuffer(t.tensor_content, dtype).reshape(lengths)
    listed = list(getattr(t, field))  # numbers of 16 bits as whole numbers, complex ones as pairs, bytes for numbers of 8 bits
    kinds = {"half_val": np.uint16, "scomplex_val": np.float32, "dcomplex_val": np.float64, "float8_val": np.uint8}
    found = np.array(listed, kinds.get(field, dtype)).view(dtype)
    if len(found) > count or (count and not len(found) and dtype.hasobject):
        raise ParseError(f"{len(found)} elements for the shape {lengths}", fix="is the file damaged?")
    if not len(found):
        return np.zeros(lengths, dtype)  # Protocol Buffers leave out zeros
    if len(found) < count:  # the last element stands for the rest
        if count > 1 << 28:
            raise ParseError(f"a constant repeats one element {count:,} times", fix="is the file damaged?")
        found = np.concatenate([found, np.full(count - len(found), found[-1], dtype)])
    return found.reshape(lengths)


def make_constant(node: Any, a: np.ndarray[Any, Any]) -> None:
    """Makes a NodeDef a Const of these numbers."""
    node.op, t = "Const", node.attr["value"].tensor
    t.Clear()
    t.dtype = node.attr["dtype"].type = number_of(a.dtype)
    for length in a.shape:
        t.tensor_shape.dim.add().size = length
    t.tensor_content = a.tobytes()

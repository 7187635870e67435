"""ONNX's names of ops and element types, for importer and exporter."""

from __future__ import annotations

from ngraph.export.onnx import package as onnx
from ngraph.op_graph.dtypes import DType

PACKED = {  # bits of element types of less than a byte, which are packed, the first in the lowest bits
    getattr(onnx.TensorProto, name): bits
    for name, bits in (("UINT4", 4), ("INT4", 4), ("FLOAT4E2M1", 4), ("UINT2", 2), ("INT2", 2), ("FLOAT6E2M3", 6), ("FLOAT6E3M2", 6))
    if hasattr(onnx.TensorProto, name)
}


def element_name(dtype: DType) -> str:
    """Returns ONNX's name of an element type: `float8e4m3fn`; those of a TensorProto are the same in capitals."""
    name = {"float32": "float", "float64": "double", "float8_e8m0fnu": "float8e8m0"}.get(dtype.name)
    if name is None:
        name = dtype.name.replace("_", "")
        name = name.removesuffix("fn") if name.startswith(("float4", "float6")) else name
    return name


def onnx_name(dtype: DType) -> str:
    """Returns the name in ONNX's type constraints: `tensor(float8e4m3fn)`."""
    return f"tensor({element_name(dtype)})"


def onnx_type(dtype: DType) -> int:
    """Returns the type's number in a TensorProto."""
    return int(onnx.TensorProto.DataType.Value(element_name(dtype).upper()))

"""ONNX files as Python sees them: models read with every length checked, tensors as NumPy arrays, attributes as values.

External data is mapped into memory, and only from files inside the model's own folder, or that of the file which it is a link to.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from ngraph.errors import ParseError, UnsupportedError
from ngraph.export.onnx import package as onnx
from ngraph.export.onnx.names import PACKED, element_name
from ngraph.frontends.onnx.wire import OWN, skeleton
from ngraph.frontends.positional.values import check_room
from ngraph.op_graph.arrays import MappedFile
from ngraph.op_graph.dtypes import REGISTRY
from ngraph.op_graph.files import told

IR = range(1, 15)
OPSETS = range(1, 29)
EXPANSION = (
    16  # nodes read for each that the file has, where that is more than MOST_NODES: a deep network whose layers are calls of one function
)


FIELDS = {"float32": "float_data", "float64": "double_data", "int32": "int32_data", "int64": "int64_data"}  # with values of the type itself


class Home(NamedTuple):
    """The location of a model's external tensors: the folder of external data, and the content of its own file."""

    folder: str = ""
    content: MappedFile | bytes = b""
    allowed: tuple[str, ...] = ()  # that folder, and the one in which a file that is a link lies itself, without links


def read(source: Any) -> tuple[onnx.ModelProto, Home]:
    """The model, whose large tensors stay where they are, and where that is. source: a path, a file's bytes, or a ModelProto.

    Raises ParseError, FileError.
    """
    if isinstance(source, onnx.ModelProto):
        model, home, name = source, Home(), "the model"
    elif isinstance(source, (bytes, bytearray, memoryview)):
        home, name = Home("", bytes(source)), "the model"
        model = parsed(skeleton(home.content), name)
    else:
        path = os.fspath(source)
        with told(path, "read"):
            folder, name = os.path.dirname(os.path.abspath(path)), os.path.basename(path)
            home = Home(folder, MappedFile.of(path), (os.path.realpath(folder), os.path.dirname(os.path.realpath(path))))
        model = parsed(skeleton(home.content), name)
    check(model, name)
    return model, home


def whole(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """A model with all that it has, external data too, for other systems. Raises ParseError."""
    model, home = read(path)
    for t in tensors(model):
        if t.data_location == onnx.TensorProto.EXTERNAL:
            bits = PACKED.get(t.data_type, numpy_type(t.data_type).itemsize * 8)
            t.raw_data = external(t, home, f"tensor {t.name!r}", -(-math.prod(t.dims) * bits // 8)).tobytes()
            t.ClearField("external_data")
            t.ClearField("data_location")
    return model


def parsed(content: bytes, name: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except (DecodeError, ValueError, RecursionError) as error:
        raise ParseError(f"{name} is not an ONNX model, or a damaged one: {error}", fix="fetch or export it again") from None
    return model


def check(model: onnx.ModelProto, name: str) -> None:
    """Raises ParseError for a model without a graph, UnsupportedError for versions that are not known here."""
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise ParseError(f"{name} holds no graph, so it is not an ONNX model", fix="fetch or export it again")
    if model.ir_version not in IR:
        raise UnsupportedError(f"{name} has IR version {model.ir_version}; known are {IR.start} to {IR.stop - 1}", fix="export it again")
    for opset in model.opset_import:
        if not domain_of(opset) and opset.version not in OPSETS:
            raise UnsupportedError(
                f"{name} has opset {opset.version} of ai.onnx; known are {OPSETS.start} to {OPSETS.stop - 1}",
                fix="export it with a lower opset, or convert it with onnx.version_converter",
            )


# ---- dtypes -----------------------------------------------------------------------------------------------------------


@cache
def numpy_type(number: int) -> np.dtype[Any]:
    """The NumPy type of a TensorProto data type; strings are objects. Raises UnsupportedError."""
    name = type_name(number).lower()
    if name in ("string", "complex64", "complex128"):
        return np.dtype(object if name == "string" else name)
    for dtype in REGISTRY.values():
        if dtype.np is not None and element_name(dtype) == name:
            return np.dtype(dtype.np)
    raise UnsupportedError(f"the tensor data type {number} is not known", fix="is the file damaged?")


@cache
def type_name(number: int) -> str:
    """As ONNX calls it: FLOAT, INT64."""
    return str(onnx.TensorProto.DataType.Name(number)) if number in onnx.TensorProto.DataType.values() else str(number)


# ---- tensors ----------------------------------------------------------------------------------------------------------


def array(tensor: onnx.TensorProto, home: Home) -> np.ndarray[Any, Any]:
    """A tensor's values; external ones are mapped, not read. Raises ParseError where data and shape disagree."""
    label = f"tensor {tensor.name!r}" if tensor.name else "a tensor"
    shape = tuple(tensor.dims)
    if any(d < 0 for d in shape):
        raise ParseError(f"{label} has the shape {shape}", fix="is the file damaged?")
    count = math.prod(shape)
    dtype = numpy_type(tensor.data_type)
    bits = PACKED.get(tensor.data_type, dtype.itemsize * 8)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raw = external(tensor, home, label, -(-count * bits // 8))
        return from_raw(raw, dtype, bits, shape, count, label)
    if tensor.HasField("raw_data"):
        return from_raw(np.frombuffer(tensor.raw_data, np.uint8), dtype, bits, shape, count, label)
    held = sum(len(getattr(tensor, f)) for f in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data"))
    each = 2 if tensor.data_type in (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128) else 1
    if held not in (count * each, -(-count * bits // 8)):
        raise ParseError(f"{label} of shape {shape} holds {held} values", fix="is the file damaged?")
    try:
        if tensor.data_type == onnx.TensorProto.STRING:
            return np.array([s.decode("utf-8") for s in tensor.string_data], object).reshape(shape)
        field = FIELDS.get(dtype.name)  # the rest is for the whole package, which takes longer to load than ngraph
        return np.array(getattr(tensor, field), dtype).reshape(shape) if field else np.asarray(onnx.numpy_helper.to_array(tensor))
    except (ValueError, TypeError, OverflowError) as error:
        raise ParseError(f"{label} cannot be read: {error}", fix="is the file damaged?") from None


def from_raw(
    raw: np.ndarray[Any, Any], dtype: np.dtype[Any], bits: int, shape: tuple[int, ...], count: int, label: str
) -> np.ndarray[Any, Any]:
    """Bytes as values of a type, without a copy where they lie well."""
    need = -(-count * bits // 8)
    if dtype.hasobject or len(raw) != need:
        raise ParseError(f"{label} of shape {shape} and type {dtype} holds {len(raw)} bytes, not {need}", fix="is the file damaged?")
    if bits == 6:
        places = np.unpackbits(raw, bitorder="little", count=6 * count).reshape(count, 6)
        return (places @ (1 << np.arange(6))).astype(np.uint8).view(dtype).reshape(shape)
    if bits < 8:
        each = 8 // bits
        parts = np.stack([(raw >> (bits * k)) & ((1 << bits) - 1) for k in range(each)], axis=-1).reshape(-1)[:count]
        if dtype.name.startswith("int"):
            parts = ((parts.astype(np.int8) ^ (1 << (bits - 1))) - (1 << (bits - 1))).astype(np.int8)
            return parts.astype(dtype).reshape(shape)
        return (parts.astype(dtype) if dtype.name.startswith("uint") else parts.view(dtype)).reshape(shape)
    return raw.view(dtype).reshape(shape)


def external(tensor: onnx.TensorProto, home: Home, label: str, need: int) -> np.ndarray[Any, Any]:
    """The bytes of a tensor that its proto does not hold, mapped: as many as it says, `need` where it does not.

    Raises ParseError for a path that leaves the folder, or a bad range.
    """
    about = {e.key: e.value for e in tensor.external_data}
    place = about.get("location", "")
    content = home.content if place == OWN and home.content else beside(place, home, label)
    size = len(content)
    try:
        offset = int(about.get("offset", 0))
        length = int(about.get("length", need))
    except ValueError:
        raise ParseError(f"{label}: offset and length of its data are not numbers: {about}", fix="is the file damaged?") from None
    if not 0 <= offset <= offset + length <= size:
        raise ParseError(f"{label} lies at {offset} to {offset + length} of {place!r}, which has {size} bytes", fix="is it cut off?")
    return np.frombuffer(content, np.uint8, length, offset) if length else np.zeros(0, np.uint8)


def beside(place: str, home: Home, label: str) -> MappedFile | bytes:
    """The content of a file in a model's folder. Raises ParseError for one that is not there, or elsewhere."""
    if not place:
        raise ParseError(f"{label} lies in a file without a name", fix="is the file damaged?")
    if not home.folder:
        raise ParseError(f"{label} lies in the file {place!r}, and the model came without a folder", fix="load it by its path")
    path = os.path.realpath(os.path.join(home.folder, place.replace("\0", "?")))
    if os.path.isabs(place) or not any(os.path.commonpath([folder, path]) == folder for folder in home.allowed):
        raise ParseError(f"{label} lies in {place!r}, outside the model's folder", fix="put the data beside the model")
    if not os.path.isfile(path):
        raise ParseError(f"{label} lies in {place!r}, which is not there", fix="put the data beside the model")
    with told(path, "read"):
        return MappedFile.of(path)


# ---- attributes -------------------------------------------------------------------------------------------------------


def attribute(a: onnx.AttributeProto, home: Home) -> Any:
    """An attribute as a Python value; tensors as arrays, graphs as they are."""
    kind = onnx.AttributeProto
    if a.type == kind.STRING:
        return a.s.decode("utf-8", "surrogateescape")
    if a.type == kind.STRINGS:
        return [s.decode("utf-8", "surrogateescape") for s in a.strings]
    if a.type == kind.TENSOR:
        return array(a.t, home)
    if a.type == kind.TENSORS:
        return [array(t, home) for t in a.tensors]
    plain = {kind.FLOAT: "f", kind.INT: "i", kind.GRAPH: "g", kind.SPARSE_TENSOR: "sparse_tensor", kind.TYPE_PROTO: "tp"}
    lists = {kind.FLOATS: "floats", kind.INTS: "ints", kind.GRAPHS: "graphs"}
    if a.type in plain:
        return getattr(a, plain[a.type])
    if a.type in lists:
        return list(getattr(a, lists[a.type]))
    raise ParseError(f"attribute {a.name!r} has a type {a.type} that is not known", fix="is the file damaged?")


def dense(sparse: onnx.SparseTensorProto, home: Home) -> np.ndarray[Any, Any]:
    """A sparse tensor's values among zeros. Raises ParseError for positions outside."""
    shape = tuple(sparse.dims)
    values, indices = array(sparse.values, home), array(sparse.indices, home)
    if any(d < 0 for d in shape):
        raise ParseError(f"a sparse tensor has the shape {shape}", fix="is the file damaged?")
    check_room(*shape)
    if indices.ndim == 2:
        if indices.shape != (len(values), len(shape)):
            raise ParseError(f"a sparse tensor of {len(values)} values has positions of shape {indices.shape}", fix="is the file damaged?")
        inside = ((indices >= 0) & (indices < np.array(shape))).all()
        flat = np.ravel_multi_index(tuple(indices.T), shape) if inside else None
    else:
        inside, flat = ((indices >= 0) & (indices < math.prod(shape))).all(), indices
    if not inside or flat is None or len(flat) != len(values):
        raise ParseError("a sparse tensor has positions outside its shape", fix="is the file damaged?")
    whole = np.zeros(math.prod(shape), values.dtype)
    whole[flat] = values
    return whole.reshape(shape)


def domain_of(x: onnx.NodeProto | onnx.OperatorSetIdProto) -> str:
    """Its domain; ai.onnx is ""."""
    return "" if x.domain == "ai.onnx" else x.domain


def imported(x: onnx.ModelProto | onnx.FunctionProto) -> dict[str, int]:
    """{domain: version} that a model or a function names."""
    return {domain_of(o): o.version for o in x.opset_import}


def graphs_in(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs in its attributes."""
    return [graph for a in node.attribute for graph in (*([a.g] if a.type == onnx.AttributeProto.GRAPH else []), *a.graphs)]


def nodes_in(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes in their order, each before those of the graphs in its attributes, at any depth."""
    todo = [*nodes][::-1]
    while todo:
        node = todo.pop()
        yield node
        for graph in graphs_in(node):
            todo += [*graph.node][::-1]


def tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The arrays of a model's graphs and functions, and of the attributes of their nodes."""
    graphs, bodies = [model.graph], [f.node for f in model.functions]
    while graphs or bodies:
        if graphs:
            graph = graphs.pop()
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (sparse.values, sparse.indices)
            bodies.append(graph.node)
        for node in bodies.pop():
            graphs += graphs_in(node)
            for a in node.attribute:
                yield from (a.t, *a.tensors, a.sparse_tensor.values, a.sparse_tensor.indices)


def opsets(model: onnx.ModelProto) -> dict[str, int]:
    """{domain: version} of a model's nodes."""
    found = imported(model)
    found.setdefault("", 1 if model.ir_version < 3 else OPSETS.stop - 1)
    return found

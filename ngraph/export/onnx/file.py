"""Writes graphs as files: equal graphs give equal bytes, large arrays lie beside the file, and writes are atomic."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ngraph import __version__
from ngraph.export.onnx.names import PACKED, onnx_type
from ngraph.export.onnx.writer import OutputGraph, OutputNode, Shared
from ngraph.op_graph import expr
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import ExprLike
from ngraph.op_graph.files import written
from ngraph.program.lower import unique
from ngraph.program.program import AxisId

LIMIT = (1 << 31) - (1 << 24)  # bytes that a protobuf file may have, less space for the nodes
SMALL = 1 << 10  # bytes up to which an array is always stored in the file itself
PAGE = 4096  # bytes: alignment of arrays in the file beside it, so that they can be mapped

Array = np.ndarray[Any, Any]


# ---- graphs -------------------------------------------------------------------------------------------------------------


def needed(part: OutputGraph, outputs: Iterable[str]) -> set[str]:
    """Removes the nodes without uses; returns the names that the rest reads."""
    wanted = set(outputs)
    kept = []
    for node in reversed(part.nodes):
        if wanted.isdisjoint(node.outputs):
            continue
        kept.append(node)
        wanted.update(node.inputs)
        for a in node.attrs.values():
            if isinstance(a, OutputGraph):
                wanted |= needed(a, [r.name for r in a.outputs])
    part.nodes = kept[::-1]
    return wanted


def rename(part: OutputGraph, new: Mapping[str, str]) -> None:
    """Renames tensors everywhere in a graph."""
    for node in part.nodes:
        node.inputs = [new.get(n, n) for n in node.inputs]
        node.outputs = [new.get(n, n) for n in node.outputs]
        for a in node.attrs.values():
            if isinstance(a, OutputGraph):
                rename(a, new)
                a.outputs = [r._replace(name=new.get(r.name, r.name)) for r in a.outputs]


def within(part: OutputGraph) -> Iterator[OutputNode]:
    """Yields the nodes of a graph and of the graphs in their attributes."""
    for node in part.nodes:
        yield node
        for a in node.attrs.values():
            if isinstance(a, OutputGraph):
                yield from within(a)


def name_nodes(part: OutputGraph) -> None:
    """Names nodes, no two alike: as in the file they were read from, all but the one with the result with a number; others by results."""
    taken: set[str] = set()
    for node in sorted(within(part), key=lambda n: (not n.name, not n.last)):
        node.name = unique(node.name or node.outputs[0], taken)
        taken.add(node.name)


class AxisNames:
    """The names of axes in the file."""

    def __init__(self, hints: Mapping[AxisId, str]):
        self.hints = hints

    def axis(self, a: AxisId) -> str:
        return self.hints.get(a, str(a))

    def dim(self, n: ExprLike) -> int | str | None:
        """Returns a number, the name of an axis, or an expression over lengths of axes; None where a step computes the length."""
        if isinstance(n, int):
            return n
        if not all(isinstance(leaf, expr.Len) for leaf in expr.leaves(n)):
            return None
        return expr.text(n, lambda leaf: self.axis(leaf.of))

    def info(self, name: str, dtype: DType, sizes: Sequence[ExprLike]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, onnx_type(dtype), [self.dim(n) for n in sizes])


def graph(part: OutputGraph, shared: Shared, names: AxisNames) -> onnx.GraphProto:
    """Returns a graph without its constants."""
    made = onnx.GraphProto(name=part.name)
    made.node.extend(node(n, shared, names) for n in part.nodes)
    for refs, field in ((part.inputs, made.input), (part.outputs, made.output)):
        for r in refs:
            known = shared.types.get(r.name)
            if known is not None:
                field.append(names.info(r.name, known[0], known[1]))
            else:
                field.append(helper.make_tensor_value_info(r.name, onnx_type(r.dtype), None))
    return made


def node(n: OutputNode, shared: Shared, names: AxisNames) -> onnx.NodeProto:
    made = onnx.NodeProto(op_type=n.op, name=n.name)
    made.input.extend(n.inputs)
    made.output.extend(n.outputs)
    for key in sorted(n.attrs):
        a = n.attrs[key]
        kind = onnx.AttributeProto.INTS if isinstance(a, list) and not a else None
        made.attribute.append(helper.make_attribute(key, graph(a, shared, names) if isinstance(a, OutputGraph) else a, attr_type=kind))
    return made


# ---- arrays -------------------------------------------------------------------------------------------------------------


def tensor(name: str, array: Array, dtype: int) -> onnx.TensorProto:
    made = onnx.TensorProto(name=name, data_type=dtype)
    made.dims.extend(array.shape)
    return made


def raw(array: Array, dtype: int) -> bytes:
    """Returns the bytes of an array in ONNX's format: little endian, small types packed, the first in the lowest bits."""
    flat = np.ascontiguousarray(array).reshape(-1)
    bits = PACKED.get(dtype, 0)
    if not bits:
        return bytes(flat.astype(flat.dtype.newbyteorder("<"), copy=False).tobytes())
    codes = flat.view(np.uint8) & ((1 << bits) - 1)
    places = codes[:, None] >> np.arange(bits, dtype=np.uint8) & 1
    return np.packbits(places.reshape(-1), bitorder="little").tobytes()


class Beside:
    """The arrays stored in a file of their own, and their offsets."""

    def __init__(self, place: str, least: int | None, total: int):
        self.place = place
        self.least = least if least is not None else SMALL if total > LIMIT else None
        self.arrays: list[tuple[int, Array, int]] = []
        self.end = 0

    def put(self, made: onnx.TensorProto, array: Array) -> None:
        size = -(-array.size * PACKED.get(made.data_type, array.dtype.itemsize * 8) // 8)
        if self.least is None or size < max(self.least, 1):
            made.raw_data = raw(array, made.data_type)
            return
        start = -(-self.end // PAGE) * PAGE
        self.arrays.append((start, array, made.data_type))
        self.end = start + size
        made.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", self.place), ("offset", str(start)), ("length", str(size))):
            made.external_data.add(key=key, value=value)

    def chunks(self) -> Iterator[bytes]:
        at = 0
        for start, array, dtype in self.arrays:
            yield bytes(start - at)
            content = raw(array, dtype)
            yield content
            at = start + len(content)


# ---- the file -----------------------------------------------------------------------------------------------------------


def model(made: onnx.GraphProto, opset: int, about: Mapping[str, str]) -> onnx.ModelProto:
    """Returns the model around a graph, in the oldest version of the format that has this opset, so that most runtimes can read it."""
    ids = [helper.make_opsetid("", opset)]
    whole = onnx.ModelProto(
        ir_version=max(helper.find_min_ir_version_for(ids), 4), producer_name="ngraph", producer_version=__version__, opset_import=ids
    )
    whole.graph.CopyFrom(made)
    for key, value in about.items():
        whole.metadata_props.add(key=key, value=value)
    return whole


def axes_of(types: Mapping[str, Sequence[Any]]) -> str:
    """Returns the names of tensors' axes as JSON, null where a dim has none."""
    return json.dumps({name: list(axes) for name, axes in types.items() if axes}, ensure_ascii=False, separators=(",", ":"))


def write(path: str, content: bytes, beside: Beside) -> None:
    """Writes both files, or neither; the arrays are written before the model that names them."""
    folder = os.path.dirname(os.path.abspath(path))
    with ExitStack() as files:
        files.enter_context(written(path, [content]))
        if beside.arrays:
            files.enter_context(written(os.path.join(folder, beside.place), beside.chunks()))

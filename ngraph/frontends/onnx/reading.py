"""Reading ONNX files: what a model takes and gives, the arrays that are variables, and its graph, walked for each reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ngraph.errors import UnsupportedError
from ngraph.export.onnx import package as onnx
from ngraph.frontends.onnx import graph, proto, translate
from ngraph.frontends.onnx.wire import OWN
from ngraph.frontends.positional.ports import About, Port
from ngraph.frontends.positional.reader import Reader, parameter, trainable
from ngraph.frontends.positional.trace import ModelTrace
from ngraph.frontends.positional.values import Value
from ngraph.op_graph.dtypes import as_dtype

__all__ = ["OnnxReader", "port", "refused", "translate"]


def port(info: onnx.ValueInfoProto) -> Port:
    kind, t, wrap = "tensor", info.type, "{}"
    while t.WhichOneof("value") in ("optional_type", "sequence_type"):
        this = str(t.WhichOneof("value"))[:-5]
        kind = "sequence" if this == "sequence" else kind if kind == "sequence" else "optional"
        wrap = wrap.format(f"{'seq' if this == 'sequence' else 'optional'}({{}})")
        t = getattr(t, f"{this}_type").elem_type
    field = t.WhichOneof("value")
    if field not in ("tensor_type", "sparse_tensor_type"):
        return Port(info.name, field or "unknown", None, None, kind)
    tensor = getattr(t, field)
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim)
        if any(isinstance(d, int) and d < 0 for d in shape):
            shape = tuple(None if isinstance(d, int) and d < 0 else d for d in shape)
    name = {"FLOAT": "float", "DOUBLE": "double"}.get(proto.type_name(tensor.elem_type), proto.type_name(tensor.elem_type).lower())
    return Port(info.name, wrap.format(f"tensor({name})"), shape, proto.numpy_type(tensor.elem_type) if tensor.elem_type else None, kind)


def refused(model: onnx.ModelProto, home: proto.Home) -> list[str]:
    """Every node that has no translation, with the reason and the nearest that has one."""
    return graph.unsupported(model, graph.Library(model, home))


class OnnxReader(Reader):
    """The reader of an ONNX file."""

    def __init__(self, source: Any, transformer: Any, patterns: Sequence[str] = (), indices: str = "raise"):
        self.proto, home = proto.read(source)
        main = self.proto.graph
        self.library = graph.Library(self.proto, home)
        bad = graph.unsupported(self.proto, self.library)
        if bad:
            raise UnsupportedError(
                f"{len(bad)} node{'s' * (len(bad) > 1)} of {main.name or 'the model'} cannot be translated",
                details=tuple(bad),
                fix="`ngraph ops --onnx` lists what can be",
            )
        own = {t.name for t in main.initializer} | {t.values.name for t in main.sparse_initializer}
        inputs, defaults = ([port(i) for i in main.input if (i.name in own) == known] for known in (False, True))
        about = About(main.name or "model", tuple(inputs), tuple(defaults), tuple([port(o) for o in main.output]))
        floats = {t.name: t for t in main.initializer if patterns and is_float(t)}
        variables = {name: parameter(name, self.library.constant(floats[name]).array) for name in trainable(patterns, list(floats))}
        super().__init__(about, transformer, variables, indices)

    def external(self) -> list[str]:
        """The files beside the model that have data of its tensors."""
        held = [t for t in proto.tensors(self.proto) if t.data_location == onnx.TensorProto.EXTERNAL]
        found = dict.fromkeys(e.value for t in held for e in t.external_data if e.key == "location")
        return [name for name in found if name != OWN]

    def initial(self, name: str) -> np.ndarray[Any, Any] | None:
        """See `Reader.initial`."""
        return next((self.library.constant(t).array for t in self.proto.graph.initializer if t.name == name), None)

    def values(self, g: ModelTrace, inputs: Mapping[str, Value], outputs: Sequence[str]) -> list[Value]:
        """See `Reader.values`."""
        g.most, g.clamped = self.library.most, "ng.onnx.load(path, indices='clip') takes the nearest"
        frame = graph.GraphNames(self.library, self.library.opsets)
        frame.names.update(inputs)
        return graph.walk_graph(g, frame, self.proto.graph, outputs)


def is_float(t: onnx.TensorProto) -> bool:
    """Whether an array of a file holds floats."""
    dtype = proto.numpy_type(t.data_type)
    return not dtype.hasobject and dtype.kind != "c" and as_dtype(dtype).is_float

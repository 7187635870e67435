"""The `onnx.backend.base` interface: `prepare`, `run_model`, `run_node`, `supports_device`, `is_compatible`, as functions of this module.

It runs on the transformer `cpu`, whatever the environment sets.

Words: docs/glossary.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

from ngraph.errors import UnsupportedError
from ngraph.frontends.onnx.model import Model, load
from ngraph.transformers import allocate_transformer


class Representation(BackendRep):
    """A prepared model: `run` takes its inputs in order, or by name."""

    def __init__(self, model: Model):
        self.model = model

    def run(self, inputs: Any, **options: Any) -> Any:
        """Returns the outputs, by position and by name."""
        names = [p.name for p in self.model.inputs]
        if isinstance(inputs, dict):
            feeds = inputs
        else:
            given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
            every = names if len(given) <= len(names) else [*names, *(p.name for p in self.model.defaults)]
            feeds = dict(zip(every, given, strict=False))
        found = self.model.run(None, feeds)
        return namedtupledict("Outputs", [p.name for p in self.model.outputs])(*found)


class NgraphBackend(Backend):
    """The backend class of onnx for ngraph."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> bool:
        """Whether every node can be translated, and the device is available."""
        if not cls.supports_device(device):
            return False
        try:
            load(model, allocate_transformer("cpu"))
        except UnsupportedError:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> Representation:
        if not cls.supports_device(device):
            raise UnsupportedError(f"there is no device {device!r}", fix="take CPU")
        return Representation(load(model, allocate_transformer("cpu")))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **options: Any) -> Any:
        return cls.prepare(model, device).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **options: Any,
    ) -> Any:
        """Runs one node as a model of its own."""
        arrays = [np.asarray(i) for i in (inputs if isinstance(inputs, (list, tuple)) else [inputs])]
        info = [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in zip([i for i in node.input if i], arrays, strict=True)
        ]
        outs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "node", info, outs)
        opsets = [onnx.helper.make_opsetid(node.domain, options.get("opset_version", onnx.defs.onnx_opset_version()))]
        return cls.run_model(onnx.helper.make_model(graph, opset_imports=opsets), arrays, device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.partition(":")[0].upper() == "CPU"


is_compatible, prepare, run_model, run_node, supports_device = (
    NgraphBackend.is_compatible,
    NgraphBackend.prepare,
    NgraphBackend.run_model,
    NgraphBackend.run_node,
    NgraphBackend.supports_device,
)

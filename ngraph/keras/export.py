"""`model.export(path, format="onnx")`: the model's forward computation, written by ngraph's exporter."""

from __future__ import annotations

from typing import Any

from keras.src import backend, tree

from ngraph.errors import UnsupportedError
from ngraph.frontends.positional.stages import StageRun
from ngraph.keras.convert import convert_to_tensor
from ngraph.keras.core import SPEC_LENGTHS
from ngraph.keras.tensors import BackendTensor, lifted, whole
from ngraph.keras.traces import KerasTrace, LengthNeeded, TraceScope
from ngraph.ops.state import variable as weight
from ngraph.parts.deferred import deferred

onnx = deferred("ngraph.frontends.onnx")  # which needs the package onnx


class ExportArchive:
    """The archive of TensorFlow's SavedModels, which are not written. Raises UnsupportedError when it is made."""

    def __init__(self, *args: Any, **kwargs: Any):
        told = "`export_saved_model` only currently supports the tensorflow, jax and torch backends."  # Keras's own words
        raise UnsupportedError(told, fix='model.export(path, format="onnx")')


class WeightTrace(KerasTrace):
    """A reading in which the model's variables are ngraph's, with their values, under their Keras paths."""

    def name_of(self, variable: Any) -> str:
        name = str(id(variable))
        if name not in self.variables:
            array = variable.array
            dims = [self.fresh(n) for n in array.shape]
            self.held[name] = variable
            self.variables[name] = weight(dims, dtype=array.dtype, initial_value=array, name=variable.path)
        return name


def _lengths(shape: Any, k: int) -> list[Any]:
    """Returns the dims of an input: numbers, and names for those that are open; dim 0 of all inputs is `batch`."""
    return [("batch" if j == 0 else f"dim_{k}_{j}") if n is None else int(n) for j, n in enumerate(shape)]


def export_onnx(model: Any, filepath: Any, input_signature: Any, opset_version: int | None = None) -> None:
    """Writes the model's forward computation as an ONNX file.

    input_signature: a nest of InputSpecs, KerasTensors or tensors; its lengths of None stay open in the file. opset_version: as of
    `ng.onnx.save`. Raises UnsupportedError where the computation needs the value of an open length, or ONNX lacks an op.
    """
    specs = tree.flatten(input_signature)
    names = [getattr(spec, "name", None) or f"input_{k}" for k, spec in enumerate(specs)]
    found = []
    for size in SPEC_LENGTHS:  # read twice: what two lengths give differently cannot stay open
        g = WeightTrace(StageRun({}, {}))
        sizes: dict[str, Any] = {}
        holes = []
        for k, spec in enumerate(specs):
            dims = [
                g.fresh(n) if isinstance(n, int) else sizes.setdefault(n, g.open_dim(n, size + len(sizes))) for n in _lengths(spec.shape, k)
            ]
            holes.append(g.holes_of((), backend.standardize_dtype(spec.dtype), dims))
        given = tree.pack_sequence_as(input_signature, [BackendTensor(t=t, g=g) for _, t in holes])
        try:
            with TraceScope(g):
                made = tree.flatten(model(given[0], training=False) if len(given) == 1 else model(*given, training=False))
            found.append((g.answers, holes, [whole(g, lifted(g, convert_to_tensor(y))) for y in made]))
        except LengthNeeded as error:
            raise UnsupportedError(
                f"the model needs the value of the open length {', '.join(sorted(error.names))}",
                fix="give all lengths: input_signature=[keras.InputSpec(shape=...)]",
            ) from None
    (answers, holes, results), (other, *_) = found
    if answers != other:
        raise UnsupportedError("the model computes something else for other lengths", fix="give all lengths: input_signature=...")
    outputs = {f"output_{k}": op for k, op in enumerate(results)}
    inputs = {n: op for n, (op, _) in zip(names, holes, strict=True)}
    onnx.save(outputs, filepath, opset_version, inputs=inputs, name=model.name)

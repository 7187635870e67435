"""Exportable objects as ops by name: ops, functions, computations, neon layers and trainers, and imported models."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from ngraph.errors import ArgumentError, ArgumentTypeError, UnsupportedError
from ngraph.export.onnx import file
from ngraph.export.onnx import model as exporter
from ngraph.export.onnx.model import Exported, Value, check_shape
from ngraph.frontends.onnx.model import Model
from ngraph.frontends.positional.ports import Port
from ngraph.op_graph.arguments import checked, shown
from ngraph.op_graph.op import Op, TensorType, ordered
from ngraph.program.lower import unique
from ngraph.runtime.computation import Computation
from ngraph.runtime.state import initial
from ngraph.transformers.function import ArrayFunction

EXPORTED = "ops, a function, a computation, a layer, a trainer or a model"


def _named(ops: Any, what: str) -> dict[str, Op]:
    """Ops by name: as they are given, or as they are called."""
    if not isinstance(ops, Op) and (isinstance(ops, (str, bytes, np.ndarray)) or not hasattr(ops, "__iter__")):
        raise ArgumentTypeError(f"to be exported are ops, and {what} is {shown(ops)}", fix=f"give {EXPORTED}")
    if isinstance(ops, Mapping):
        found = {str(k): v for k, v in ops.items()}
    else:
        found = {}
        for op in [ops] if isinstance(ops, Op) else list(ops):
            found[unique(getattr(op, "hint", None) or what, found)] = op
    if "" in found:
        raise ArgumentError(f"an {what} has no name", fix="names of a file's values have letters")
    wrong = [f"{name} is {op!r}" for name, op in found.items() if not isinstance(op, Op)]
    if wrong:
        raise ArgumentError(f"to be exported are ops, and {'; '.join(wrong)}", fix=f"give {EXPORTED}")
    return found


def _value(transformer: Any) -> Value:
    """A variable's value: what the transformer holds, else its initial one."""
    if transformer is None:
        return initial
    return lambda v: transformer.get(v) if v in transformer.state.arrays else initial(v)


def exported(
    what: Any, inputs: Any, transformer: Any, shapes: Mapping[str, Sequence[int | None]], values: Mapping[str, Any], name: str
) -> Exported:
    """Returns the arguments of `save` as ops by name. Raises ArgumentError."""
    if isinstance(what, Model):
        return _model(what, shapes, values, name)
    if hasattr(what, "fit") and hasattr(what, "prediction"):  # a trainer
        what = what.prediction()
    state: Any = None
    extra: dict[str, Op] = {}  # new values of inputs that a computation writes
    if isinstance(what, Computation):
        results, inputs, state = what.results.ops, list(what.parameters), what.state
        name = name or what.name
        extra = {f"{what.parameters[k].label}.new": op for k, op in what.results.writes.items()}
    elif isinstance(what, ArrayFunction):
        results, inputs, state = what.outputs_by_name(), what.inputs_by_name(), what.computation.state
    elif callable(what) and not isinstance(what, Op):
        if inputs is None:
            fix = "ng.onnx.save(layer, path, inputs=placeholder, transformer=that_has_trained_it), or ng.onnx.save(trainer, path)"
            raise ArgumentError(f"{what!r} is exported as what it makes of an input", fix=fix)
        results = getattr(what, "inference_outputs", what)(*_named(inputs, "input").values())
        name = name or str(getattr(what, "name", "") or "")
    else:
        results = what
    given = {**_named(results, "output"), **extra}
    tensors = {k: op for k, op in given.items() if type(op.type) is TensorType}
    several = [k for k, op in given.items() if isinstance(op.type, tuple) and type(op.type) is not TensorType]
    if several:
        raise ArgumentError(f"{', '.join(several)} has several values", fix="export its parts, as the function that made it gives them")
    effects = [op for op in given.values() if op.type is None]
    if not given:
        raise ArgumentError("there is nothing to export", fix=f"give results: {EXPORTED}")
    if inputs is None:
        inputs = sorted((o for o in ordered(given.values()) if o.is_placeholder), key=lambda o: o.serial)
    taken = _named(inputs, "input")
    lost = [o for o in ordered(given.values()) if o.is_placeholder and o not in set(taken.values())]
    if lost:
        every = ", ".join([*taken, *(o.label for o in lost)])
        raise ArgumentError(f"{lost[0].label} is needed, and is none of the inputs", fix=f"inputs=[{every}]")
    same = [name for name in given if name in taken]
    if same and isinstance(results, Mapping):
        raise ArgumentError(f"an input and a result are called {same[0]}", fix="give the result another name")
    if same:  # names of ops, that nobody gave to results
        tensors = {unique(k, {*taken, *given}) if k in taken else k: op for k, op in tensors.items()}
    value = _value(transformer)
    if state is not None:
        value = state.get
    return Exported(tensors, effects, taken, value, name or "ngraph")


SIZES = (32, 1, 112, 3)  # lengths for dims that stay open while the graph is read: multiples of these, all different
BATCHED = 2  # the first so many of these are tried with 2 for the first dim, which is a batch in most models


def _model(model: Model, shapes: Mapping[str, Sequence[int | None]], values: Mapping[str, Any], name: str) -> Exported:
    """An imported model, read with some lengths for its open dims, which stay open where the model does not ask for them."""
    last: Exception | None = None
    ports = _ports(model, shapes)
    for attempt, size in enumerate(SIZES):
        names: dict[str, int] = {}
        tried: dict[str, Any] = {}
        for p in ports:
            dims = []
            if p.name in values:
                tried[p.name] = values[p.name]
                continue
            given = shapes.get(p.name) or [None] * len(p.shape or ())
            for k, (d, n) in enumerate(zip(p.shape or (), given, strict=False)):
                label = d if isinstance(d, str) else f"{p.name}.{k}"
                if n is not None:
                    names[label] = n
                first = size * (len(names) + 2) if k or attempt >= BATCHED else 2
                dims.append(d if isinstance(d, int) else names.setdefault(label, model.reader.fitting(label, first)))
            tried[p.name] = tuple(dims)
        try:
            found, read = model.reader.graph_and_dims(tried)
            break
        except UnsupportedError as error:
            why = error.message
            raise UnsupportedError(f"{model.name} cannot be exported: {why}", fix="export a part of it that does not") from None
        except Exception as error:  # these lengths do not fit the model; others may
            last = error
    else:
        assert last is not None
        raise UnsupportedError(
            f"{model.name} cannot be read with open lengths: {str(last).splitlines()[0]}",
            fix="give the lengths: shapes={'x': (1, 3, 224, 224)}, None for those that stay open",
        ) from last
    strange = {o for o in ordered(found.outputs.values()) if o.is_placeholder} - set(found.inputs.values())
    if strange:
        raise UnsupportedError(f"{model.name} cannot be exported: some of its nodes are steps in Python", fix="`ngraph info` lists its ops")
    _stay_open(model, ports, found.inputs, shapes)
    _for_all_lengths(model, ports, tried, shapes, size)
    transformer = model.transformer
    return Exported(found.outputs, [], found.inputs, lambda v: transformer.get(v), name or model.name, read)


def _ports(model: Model, shapes: Mapping[str, Sequence[int | None]]) -> list[Port]:
    """Returns the inputs of a model, with the given dims for those whose rank its file leaves open.

    Raises UnsupportedError where none are given, ArgumentError where they do not fit.
    """
    made = [p._replace(shape=tuple(shapes[p.name])) if p.shape is None and p.name in shapes else p for p in model.inputs]
    unknown = [p.name for p in made if p.shape is None and p.kind == "tensor"]
    if unknown:
        said = f"the file of {model.name} does not say how many dims {', '.join(unknown)} {'has' if len(unknown) == 1 else 'have'}"
        fix = f"give them: shapes={{{unknown[0]!r}: (1, 224, 224, 3)}}, or --shape {unknown[0]}:?,224,224,3"
        raise UnsupportedError(said, fix=fix)
    for p in made:
        if p.shape is not None and p.name in shapes:
            check_shape(p.name, f"the dims [{', '.join(map(str, p.shape))}]", p.shape, shapes[p.name])
    return made


def _stay_open(model: Model, ports: Sequence[Port], inputs: Mapping[str, Op], shapes: Mapping[str, Sequence[int | None]]) -> None:
    """Raises UnsupportedError where the model needs lengths that are open in its file and were not given."""
    closed = []
    for p in ports:
        op = inputs[p.name]
        lengths = {a.name: a.length for a in op.axes}
        for k, d in enumerate(p.shape or ()):
            label = d if isinstance(d, str) else f"{p.name}.{k}"
            given = shapes[p.name][k] if p.name in shapes else None
            if not isinstance(d, int) and given is None and lengths.get(label) is not None:
                closed.append(f"{label} of {p.name}")
    if closed:
        raise UnsupportedError(
            f"{model.name} is another graph for other lengths of {', '.join(closed)}",
            fix="give the lengths of that input: shapes={'x': (None, 3, 224, 224)}, or --shape x:?,3,224,224",
        )


def _for_all_lengths(
    model: Model, ports: Sequence[Port], tried: Mapping[str, Any], shapes: Mapping[str, Sequence[int | None]], more: int
) -> None:
    """Raises UnsupportedError where the graph is another one for other lengths, such as one with more turns of a loop."""
    given, names = dict[str, int](), dict[str, None]()
    for p in ports:
        for k, (d, n) in enumerate(zip(p.shape or (), shapes.get(p.name, ()), strict=False)):
            if n is not None:
                given[d if isinstance(d, str) else f"{p.name}.{k}"] = n
    # the first dim a little longer, and much; the others stay multiples, with which what strides have halved fits again
    for first, others in ((3, 8 * more), (8 * more + 1, 16 * more)):
        other, lengths = dict(tried), dict(given)
        for p in ports:
            if p.shape is None or not isinstance(tried[p.name], tuple):
                continue
            dims = []
            for k, (d, n) in enumerate(zip(p.shape, tried[p.name], strict=True)):
                label = d if isinstance(d, str) else f"{p.name}.{k}"
                if not isinstance(d, int) and label not in given:
                    names[f"{label} of {p.name}"] = None
                dims.append(
                    n if isinstance(d, int) else lengths.setdefault(label, model.reader.fitting(label, n + (others if k else first)))
                )
            other[p.name] = tuple(dims)
        if names and not model.reader.holds(other):
            raise UnsupportedError(
                f"{model.name} is another graph for other lengths of {', '.join(names)}",
                fix="give the lengths of that input: shapes={'x': (None, 3, 224, 224)}, or --shape x:?,3,224,224",
            )


# ---- to a file ----------------------------------------------------------------------------------------------------------


def build(
    what: Any,
    path: str,
    opset: int | None = None,
    inputs: Any = None,
    transformer: Any = None,
    shapes: Mapping[str, Any] | None = None,
    external: int | None = None,
    name: str = "",
) -> tuple[onnx.ModelProto, file.Beside]:
    """The model, and the arrays that lie beside it; arguments as in `save`."""
    opset = exporter.checked(opset)
    if external is not None and (isinstance(external, bool) or not isinstance(external, (int, np.integer)) or external < 0):
        raise ArgumentError(f"external={external!r} is no number of bytes", fix="external=1024")
    if shapes is not None and not isinstance(shapes, Mapping):
        raise ArgumentTypeError(f"shapes= takes lengths by the names of inputs, not {shown(shapes)}", fix="shapes={'x': (1, 3, 224, 224)}")
    for input_, given in (shapes or {}).items():
        if not isinstance(given, (tuple, list, np.ndarray)):
            raise ArgumentTypeError(
                f"the shape of {input_} is {shown(given)}", fix=f"shapes={{{input_!r}: (1, None)}}, None for open lengths"
            )
    values = {k: v for k, v in (shapes or {}).items() if isinstance(v, np.ndarray)}
    lengths = {k: v.shape if isinstance(v, np.ndarray) else v for k, v in (shapes or {}).items()}
    return exporter.build(exported(what, inputs, transformer, lengths, values, name), path, opset, lengths, external)


@checked
def save(
    what: Any,
    path: str | os.PathLike[str],
    opset: int | None = None,
    *,
    inputs: Any = None,
    transformer: Any = None,
    shapes: Mapping[str, Any] | None = None,
    external: int | None = None,
    name: str = "",
) -> None:
    """Writes an ONNX file: an op, several, or a dict of them by name; a function that `ng.function` made, or a computation; a neon
    layer, in inference mode; a neon trainer, whose predictions with the trained weights the file computes; or an imported model.

    opset: 13 to 28, as far as the installed onnx goes; 20 by default. inputs: the placeholders, in order, or by name; by default all that
    are needed, in the order they were made. transformer: whose values of variables are written; their initial ones without it.
    shapes: {input: lengths} for lengths that are open, None for those that stay so, as all do by default. Of an imported model also an
    array, for an input whose values decide what the graph is; then it is the graph for these values.
    external: arrays of so many bytes or more go into a file beside this one, called as it is and `.data`; by default only where one file
    cannot hold them. name: the graph's. Variables become initializers; what a graph assigns comes out as `<variable>.new`.
    Raises UnsupportedError naming all ops that ONNX cannot say at this opset, ArgumentError. A file is there whole, or not at all.
    """
    if not isinstance(path, (str, os.PathLike)):
        fix = "exchange the two" if isinstance(what, (str, os.PathLike)) else "save to a file, and read its bytes: open(path, 'rb').read()"
        raise ArgumentTypeError(f"a model is saved to the path of a file, not to {type(path).__name__}", fix=fix)
    place = os.fspath(path)
    made, beside = build(what, place, opset, inputs, transformer, shapes, external, name)
    file.write(place, made.SerializeToString(deterministic=True), beside)

"""Builds a model from ops, step by step."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import onnx

from ngraph.errors import ArgumentError, UnsupportedError, show_line
from ngraph.export.onnx import file, loops, moving, products, rules
from ngraph.export.onnx.names import onnx_type
from ngraph.export.onnx.whole import put_together
from ngraph.export.onnx.writer import GraphWriter, Shared, TensorRef, hints, takes
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.op import Op
from ngraph.parts.runner import Pipeline, pass_, run
from ngraph.passes import dead, fold, share, simplify_rules, specialise
from ngraph.program.lower import Lowered, lower, unique
from ngraph.program.program import AxisId, Program, State, Step
from ngraph.rewrite.driver import rewrite
from ngraph.rewrite.pattern import Rules
from ngraph.runtime.computation import declared_orders

__all__ = ["Exported", "build", "loops", "moving", "products"]

OPSETS = range(13, min(28, onnx.defs.onnx_opset_version()) + 1)
DEFAULT = 20  # an opset that runtimes of recent years read

Array = np.ndarray[Any, Any]
Value = Callable[[Op], Array]


class Exported(NamedTuple):
    """The export's arguments: results and inputs by name, the values of variables, and the dims of values as they were read.

    dims: {name of a value: for each dim which of its axes it is, None for one of length 1 that the op lacks}.
    """

    results: dict[str, Op]
    effects: list[Op]
    inputs: dict[str, Op]
    value: Value
    name: str
    dims: Mapping[str, tuple[int | None, ...]] = {}


# ---- the program --------------------------------------------------------------------------------------------------------


# a reshape and a transpose are two nodes; merged they would be index arithmetic
SIMPLE = Rules(*[r for r in simplify_rules if r.name != "reindex of reindex"])


@pass_(gives=("simple",))
def simplify_for_export(program: Program) -> Program:
    """`program` with what `SIMPLE` says."""
    return rewrite(program, SIMPLE)


export_passes = Pipeline(
    specialise,
    dead,
    share,
    simplify_for_export,
    fold,
    simplify_for_export,
    share,
    dead,
    put_together,
    dead,
)


def _program(what: Exported, opset: int, shapes: Mapping[str, Sequence[int | None]]) -> Lowered:
    """Returns the program, simplified and without the state of random numbers, which runtimes have themselves."""
    roots = [*what.results.values(), *what.effects]
    lowered = lower(roots, list(what.inputs.values()), what.name, whole=lambda op: rules.claims(op, opset))
    own = {label for label, v in lowered.states.items() if v.attrs.get("advance") is not None}
    program = declared_orders(lowered.program, roots)
    theirs, called = {*what.results, *what.inputs}, {s.name: s.name for s in program.state_in}
    for name in sorted(theirs & called.keys()):  # another name for a variable called as a result or an input is
        called[name] = unique(name, {*theirs, *called, *called.values()})
    program = program.with_(
        state_in=tuple([State(called[s.name], s.value) for s in program.state_in]),
        state_out=tuple([(called[label], v) for label, v in program.state_out if label not in own]),
    )
    # without the verifier: some steps are composite ops, which files contain and programs do not
    program = run(program, export_passes, {"lengths": _lengths(program, what, shapes), "opset": opset})
    return Lowered(program, lowered.inputs, {called[label]: v for label, v in lowered.states.items()})


def _lengths(program: Program, what: Exported, shapes: Mapping[str, Sequence[int | None]]) -> dict[str, int]:
    """Returns the lengths that the user gave, by axis. Raises ArgumentError where they do not fit."""
    unknown = [n for n in shapes if n not in what.inputs]
    if unknown:
        raise ArgumentError(f"there is no input {', '.join(unknown)}", fix=f"there are {', '.join(what.inputs)}")
    found: dict[str, int] = {}
    for name, value in zip(what.inputs, program.inputs, strict=True):
        dims = shapes.get(name)
        if dims is None:
            continue
        axes = list(value.axes)
        check_shape(name, f"the axes {', '.join(axes) or 'of a scalar: none'}", [program.axes[a] for a in axes], dims)
        found.update({a: int(n) for a, n in zip(axes, dims, strict=True) if n is not None and not isinstance(program.axes[a], int)})
    return found


def check_shape(name: str, described: str, lengths: Sequence[object], given: Sequence[int | None]) -> None:
    """Raises ArgumentError where a given shape does not fit an input, whose open lengths are no numbers."""
    if len(given) != len(lengths):
        fix = f"give {len(lengths)} length{'s' * (len(lengths) != 1)}"
        raise ArgumentError(f"input {name} has {described}, and the shape {tuple(given)} was given", fix=fix)
    for k, (own, n) in enumerate(zip(lengths, given, strict=True)):
        if n is None:
            continue
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
            raise ArgumentError(f"{n!r} is not a length for dim {k} of input {name}", fix="give a number; None leaves it open")
        if isinstance(own, int) and own != n:
            raise ArgumentError(f"dim {k} of input {name} has length {own}, and {n} was given", fix=f"leave it as it is: {own}")


# ---- the graph ----------------------------------------------------------------------------------------------------------


def _written(
    program: Program, lowered: Lowered, what: Exported, opset: int
) -> tuple[GraphWriter, list[tuple[str, TensorRef]], dict[str, Op]]:
    """Returns nodes for a program; the outputs; the variables that become initializers. Raises UnsupportedError."""
    shared = Shared(opset, what.dims)
    for name in (*what.results, *what.inputs, *(s.name for s in program.state_in)):
        shared.taken.add(name)
    shared.reserved |= hints(program) - shared.taken
    w = GraphWriter(program, shared, program.name)
    for name, value in zip(what.inputs, program.inputs, strict=True):
        w.part.inputs.append(TensorRef(name, tuple(value.axes), value.dtype))
        w.refs[value] = w.part.inputs[-1]
    for s in program.state_in:
        w.refs[s.value] = TensorRef(s.name, tuple(s.value.axes), s.value.dtype)
    for ref in w.refs.values():
        shared.types[ref.name] = ref.dtype, tuple(w.shape(ref.dims)), ref.dims
    refused: dict[str, None] = {}

    def refuse(step: Step, reason: str) -> None:
        place = step.origin[0] if step.origin else None
        where = show_line((place.file, place.line)) if place is not None and place.file else "in what was imported"
        refused[f"{where}: {place.name + ': ' if place is not None and place.name != step.op else ''}{step.op} needs {reason}"] = None

    w.refused = refuse
    w.run()
    ends = [*zip(what.inputs, program.inputs, strict=True), *((s.name, s.value) for s in program.state_in)]
    for name, v in [*ends, *zip(what.results, program.outputs, strict=True)]:
        if not takes("Identity", opset, v.dtype):
            refused[f"{name} has elements of type {v.dtype}"] = None
    if refused:
        raise UnsupportedError(
            f"{len(refused)} op{'s' * (len(refused) > 1)} of {what.name} cannot be exported at opset {opset}",
            details=tuple(refused),
        )
    outputs = [(name, w.output(w.refs[v], v.axes)) for name, v in zip(what.results, program.outputs, strict=True)]
    for label, v in program.state_out:
        home = next(s.value for s in program.state_in if s.name == label)
        outputs.append((shared.fresh(f"{label}.new"), w.output(w.refs[v], home.axes)))
    return w, outputs, lowered.states


def _finished(w: GraphWriter, outputs: Sequence[tuple[str, TensorRef]]) -> set[str]:
    """Names outputs and removes nodes without uses; returns the names of tensors that are read."""
    own = {name for node in w.part.nodes for name in node.outputs}
    new, named = dict(w.shared.swapped), set()
    for name, ref in outputs:
        w.label = name
        if ref.name != name and (ref.name not in own or ref.name in named):  # an imported model may give an input under its own name
            ref = TensorRef(w.node("Identity", [ref.name])[0], ref.dims, ref.dtype)
        named.add(ref.name)
        new.pop(new.pop(ref.name, ""), None)
        new[ref.name] = name
        w.part.outputs.append(ref)
    file.rename(w.part, new)
    w.part.outputs = [r._replace(name=new[r.name]) for r in w.part.outputs]
    w.shared.types = {new.get(n, n): t for n, t in w.shared.types.items()}
    w.shared.types.update({r.name: (r.dtype, tuple(w.shape(r.dims)), r.dims) for r in w.part.outputs})
    read = file.needed(w.part, [name for name, _ in outputs])
    again = {made: base for made, base in w.shared.variants.items() if made in read and base not in read}
    again = {made: base for base, made in {base: made for made, base in again.items()}.items()}  # one for each name
    file.rename(w.part, again)
    file.name_nodes(w.part)
    w.shared.arrays = {again.get(n, n): a for n, a in w.shared.arrays.items() if n in read}
    return {again.get(n, n) for n in read}


def checked(opset: int | None) -> int:
    """Returns the opset to write. Raises UnsupportedError for one that cannot be written."""
    opset = DEFAULT if opset is None else opset
    if isinstance(opset, bool) or not isinstance(opset, int) or opset not in OPSETS:
        raise UnsupportedError(f"opset {opset!r} cannot be written", fix=f"take one from {OPSETS[0]} to {OPSETS[-1]}")
    return opset


def _fix(what: Exported, opset: int, shapes: Mapping[str, Sequence[int | None]]) -> str:
    """Returns the fix where ops cannot be exported: the newest opset, if it has them all."""
    newest = OPSETS[-1]
    if opset < newest:
        with suppress(UnsupportedError):
            lowered = _program(what, newest, shapes)
            _written(lowered.program, lowered, what, newest)
            return f"opset={newest} has them"
    return "leave these ops out: no opset has them"


def build(
    what: Exported, path: str, opset: int, shapes: Mapping[str, Sequence[int | None]], external: int | None
) -> tuple[onnx.ModelProto, file.Beside]:
    """Returns the model, and the arrays beside it. Raises UnsupportedError that lists all ops that ONNX lacks at this opset."""
    lowered = _program(what, opset, shapes)
    program = lowered.program
    try:
        w, outputs, states = _written(program, lowered, what, opset)
    except UnsupportedError as error:
        error.fix = _fix(what, opset, shapes)
        raise error.at(error.line) from None
    read = _finished(w, outputs)
    names = file.AxisNames(program.hints)
    made = file.graph(w.part, w.shared, names)
    changed = {label for label, _ in program.state_out}
    arrays = {s.name: np.asarray(what.value(states[s.name])) for s in program.state_in if s.name in read or s.name in changed}
    types = w.shared.types
    made.input.extend(names.info(n, types[n][0], types[n][1]) for n in arrays if n in changed)  # with a default, so that a loop can feed it
    arrays.update({n: a for n, a in w.shared.arrays.items() if n in read})
    beside = file.Beside(os.path.basename(path) + ".data", external, sum(a.nbytes for a in arrays.values()))
    for n, a in arrays.items():
        made.initializer.append(file.tensor(n, a, onnx_type(as_dtype(a.dtype))))
        beside.put(made.initializer[-1], a)
    inner = {n for node in w.part.nodes for n in node.outputs} - {n for n, _ in outputs}
    made.value_info.extend(names.info(n, t[0], t[1]) for n, t in types.items() if n in inner and n in read)
    told = {n: t[2] for n, t in types.items() if n in inner and n in read or n in arrays or n in (*what.inputs, *(k for k, _ in outputs))}
    called = {n: [None if a is None else names.axis(AxisId(a)) for a in dims] for n, dims in told.items()}
    return file.model(made, opset, {"ngraph.axes": file.axes_of(called)}), beside

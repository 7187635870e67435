"""The oracle: runs a program step by step, each by its record's `reference`. As plain as possible: no pass, no buffer, no optimisation.

Every transformer is compared with it. It shares nothing with any of them, and checks the references, too: each result must have the
shape and dtype of the program's value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ngraph.errors import ArgumentError, ProgramError
from ngraph.op_graph import expr
from ngraph.op_graph.axes import Axis
from ngraph.op_graph.expr import Expr, Len
from ngraph.op_graph.op import Op, Origin, TensorType
from ngraph.op_graph.opdef import Call, OpDef, find
from ngraph.program.program import AxisId, Program, Step, Value, run_values


def interpret(
    program: Program,
    inputs: Sequence[Any],
    state: Mapping[str, Any] | None = None,
    lengths: Mapping[AxisId, int] | None = None,
) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """Returns the outputs, and the state after the run.

    inputs: one array for each of the program's, dims in the order of its axes. state: by name, for each in `state_in`.
    lengths: of symbols that no input has. Outputs have the order of their values' axes and exactly their dtype. The arrays given stay as
    they are: a value that replaces an input is among the outputs.
    Raises ArgumentError where an array does not fit, ProgramError that names a record whose reference violates its own type.
    """
    run = _Run(program, dict(lengths or {}))
    given = dict(state or {})
    if len(inputs) != len(program.inputs):
        raise ArgumentError(f"{program.name} takes {len(program.inputs)} inputs, not {len(inputs)}")
    missing = [s.name for s in program.state_in if s.name not in given]
    if missing:
        raise ArgumentError(f"{program.name} needs the state {', '.join(missing)}")
    for value, array in zip(program.inputs, inputs, strict=True):
        run.take(value, array, value.hint)
    for s in program.state_in:
        run.take(s.value, given[s.name], s.name)
    if program.token_in is not None:
        run.arrays[program.token_in] = None
    run.check_sources()
    for step in program.steps:
        run.step(step)
    given.update({name: run.arrays[value] for name, value in program.state_out})
    return [run.arrays[v] for v in program.outputs], given


class _Run:
    """The values computed so far, and the lengths of the symbols."""

    def __init__(self, program: Program, lengths: dict[AxisId, int]):
        self.program, self.lengths = program, lengths
        self.symbols = set(program.symbols())
        self.arrays: dict[Value, Any] = {}

    def take(self, value: Value, array: Any, name: str) -> None:
        """Stores an argument and binds the symbols among its axes."""
        if value.dtype.np is None:
            self.arrays[value] = array
            return
        array = np.asarray(array)
        if array.dtype != value.dtype.np:
            raise ArgumentError(f"{name} is {value.dtype}, and got {array.dtype}", fix=f"convert it: array.astype({value.dtype.np.name!r})")
        if array.ndim != len(value.axes):
            raise ArgumentError(f"{name} has the axes {self.show(value)}, and got an array of shape {array.shape}")
        for axis, n in zip(value.axes, array.shape, strict=True):
            if axis in self.symbols and self.lengths.setdefault(axis, n) != n:
                raise ArgumentError(f"axis {self.hint(axis)} has length {n} in {name}, and {self.lengths[axis]} in another argument")
        self.arrays[value] = array

    def check_sources(self) -> None:
        """Raises ArgumentError where a length that is known, or follows from the symbols, differs in an argument."""
        for value in self.program.sources():
            array = self.arrays[value]
            for axis, n in zip(value.axes, () if array is None else array.shape, strict=False):
                wanted = self.length(axis)
                if n != wanted:
                    raise ArgumentError(f"axis {self.hint(axis)} of {value.hint or 'an argument'} has length {wanted}, and got {n}")

    def hint(self, axis: AxisId) -> str:
        return self.program.hints.get(axis, str(axis))

    def show(self, value: Value) -> str:
        return "[" + ", ".join(map(self.hint, value.axes)) + "]"

    def length(self, axis: AxisId) -> int:
        return self.program.length(axis, self.lengths, self.integer)

    def integer(self, value: Value) -> int:
        """Returns a run-time integer. Raises LookupError before its step has run."""
        return int(self.arrays[value])

    def body(self, program: Program, arrays: Sequence[Any]) -> list[Any]:
        """Runs a body; its axes, and so their lengths, are those of the enclosing program."""
        known = {a: self.length(a) for a in program.symbols() if a in self.program.axes}
        return interpret(program, arrays, lengths=known)[0]

    def step(self, step: Step) -> None:
        record = find(step.op)
        if record is None:
            raise ProgramError(f"{step.op} is not a registered op", line=_line(step.origin))
        call = Call(
            {k: with_integers(a, self.integer) for k, a in step.attrs.items()},
            tuple([v.type for v in step.inputs]),
            own_order(record, step),
            self.length,
            self.body,
        )
        results = apply(record, call, [self.arrays[v] for v in step.inputs], step.origin)
        for value, own, array in zip(step.results, call.results, results, strict=True):
            self.arrays[value] = array if own.axes == value.axes else np.transpose(array, [own.axes.index(a) for a in value.axes])
        results = tuple([self.arrays[v] for v in step.results])
        for value, array in zip(step.results, results, strict=True):
            if array is not None:
                self.arrays[value] = array = array[self.bounds(step, value)]
                check_shape(record, value.type, array, self.length, step.origin)

    def bounds(self, step: Step, value: Value) -> tuple[slice, ...]:
        """Returns slices to the value's bounds: beyond the program's bound of a run-time length, a step's elements are dropped."""
        own = [any(v in step.results for v in run_values(self.program.axes[a])) for a in value.axes]
        return tuple([slice(self.length(a) if mine else None) for a, mine in zip(value.axes, own, strict=True)])


def with_integers(a: Any, integer: Callable[[Value], int]) -> Any:
    """Returns an attribute with its run-time integers substituted."""
    if isinstance(a, tuple):
        return tuple([with_integers(x, integer) for x in a])
    if isinstance(a, Expr):
        return expr.substitute(a, lambda leaf: integer(leaf.of) if isinstance(leaf, expr.Run) else leaf)
    return a


def own_order(record: OpDef, step: Step) -> tuple[TensorType, ...]:
    """Returns the types of the results with axes in the record's order; a step may list them in any."""
    made = record.type(tuple([v.type for v in step.inputs]), **step.attrs)
    types = made if type(made) is tuple else (made,)
    pairs = zip(types, [v.type for v in step.results], strict=True)
    return tuple([t if set(t.axes) == set(own.axes) else own for t, own in pairs])


def apply(record: OpDef, call: Call, arrays: Sequence[Any], origin: Sequence[Origin] = ()) -> tuple[Any, ...]:
    """Returns the results of a record's reference, one array each; dtypes checked."""
    if record.reference is None:
        raise ProgramError(f"the record of {record.name} has no reference", line=_line(origin))
    got = record.reference(call, *arrays)
    results = tuple(got) if isinstance(got, (tuple, list)) else (got,)
    if len(results) != len(call.results):
        raise ProgramError(f"the reference of {record.name} gives {len(results)} results, its type {len(call.results)}", line=_line(origin))
    checked = []
    for array, t in zip(results, call.results, strict=True):
        if t.dtype.np is not None and np.asarray(array).dtype != t.dtype.np:
            raise ProgramError(f"the reference of {record.name} gives {np.asarray(array).dtype}, its type {t.dtype}", line=_line(origin))
        checked.append(None if t.dtype.np is None else np.asarray(array))
    return tuple(checked)


def check_shape(record: OpDef, t: TensorType, array: np.ndarray, length: Any, origin: Sequence[Origin]) -> None:
    shape = tuple([length(a) for a in t.axes])
    if array.shape != shape:
        raise ProgramError(f"the reference of {record.name} gives shape {array.shape}, its type {t} has {shape}", line=_line(origin))


def _line(origin: Sequence[Origin]) -> tuple[str, int] | None:
    return (origin[0].file, origin[0].line) if origin and origin[0].file else None


def whole(op: Op, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
    """Computes one op of an op-graph by its own record's reference, even where the record has a lowering.

    arrays: one for each input, dims in the order of its axes. Lengths come from the arrays, else from the axes.
    """
    lengths: dict[Axis, int] = {}
    given = {id(i): array for i, array in zip(op.inputs, arrays, strict=True)}
    for i, array in zip(op.inputs, arrays, strict=True):
        lengths.update(zip(i.type.axes, np.shape(array), strict=True))

    def length(axis: Axis) -> int:
        if axis.length is not None:
            return axis.length  # one op can have two lengths of one name: the axis has its own
        computed = [leaf for leaf in expr.leaves(axis.size) if type(leaf) is expr.Run]
        if computed and all(id(leaf.of) in given for leaf in computed):
            return int(expr.evaluate(axis.size, lambda leaf: int(given[id(leaf.of)]) if type(leaf) is expr.Run else length(leaf.of)))
        if axis in lengths:
            return lengths[axis]
        own = axis.size
        if own == Len(axis.primary):
            if axis.primary in lengths:
                return lengths[axis.primary]
            raise LookupError(f"the length of {axis!r} is not known")
        return int(expr.evaluate(own, lambda leaf: length(leaf.of)))

    results = op.type if type(op.type) is tuple else (op.type,)
    call = Call(op.attrs, tuple([i.type for i in op.inputs]), results, length, lambda body, a: interpret(body, a)[0])
    got = apply(op.opdef, call, arrays)
    for array, t in zip(got, results, strict=True):
        check_shape(op.opdef, t, array, length, (op.origin,))
    return got

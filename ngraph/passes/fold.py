"""Constant folding: steps that depend on constants alone are computed once, at compile time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngraph.errors import BoundsError, DivisionError, OperandError, UnsupportedError
from ngraph.op_graph import expr
from ngraph.op_graph.arrays import SMALL as BY_VALUE
from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.expr import Expr, ExprLike, Leaf, Run
from ngraph.op_graph.opdef import REGISTRY
from ngraph.parts.deferred import deferred
from ngraph.parts.runner import pass_
from ngraph.program.program import AxisId, Program, Step, Value
from ngraph.rewrite.driver import map_bodies, merge_origins

numpy_ops = deferred("ngraph.numpy_ops")  # most programs have nothing to fold
MAX_GROWN_CONSTANT_BYTES = 64 * 1024  # bytes: a folded constant above this must not be larger than its inputs
MAX_BROADCAST_ELEMENTS = 1 << 20  # elements: a broadcast number is not materialised beyond this to compute with it

Evaluate = Callable[[Program, Sequence[np.ndarray]], Sequence[np.ndarray]]  # a program of one step, and its inputs


@pass_(gives=("folded",))
def fold(program: Program) -> Program:
    """Returns `program` with steps on constants computed by NumPy.

    A step stays whose result has an unknown length, or would be a constant of over 64 KB that is larger than its inputs. Casts of 8-bit
    integers to wider numbers stay, since they show that products of such values are integers, and small.
    Results of over 64 bytes are held by reference.
    """
    return fold_with(program, lambda one, arrays: numpy_ops.evaluate(one, _declared, arrays))


def fold_with(program: Program, evaluate: Evaluate) -> Program:
    """Like `fold`, with another evaluator. Where `evaluate` raises UnsupportedError, the step stays."""
    return _Folding(evaluate).program(program)


def _declared(program: Program) -> dict[Value, tuple[AxisId, ...]]:
    return {v: v.axes for values in (program.inputs, *(s.results for s in program.steps)) for v in values}


class _Folding:
    def __init__(self, evaluate: Evaluate):
        self.evaluate = evaluate
        self.bodies: dict[Program, Program] = {}

    def body(self, body: Program) -> Program:
        if body not in self.bodies:
            self.bodies[body] = self.program(body)
        return self.bodies[body]

    def program(self, program: Program) -> Program:
        known: dict[Value, np.ndarray] = {}  # values of constants; of broadcasts a view
        held: dict[Value, int] = {}  # bytes that the program stores for each
        makers: dict[Value, Step] = {}
        steps: list[Step] = []
        lengths: dict[AxisId, int] = {}

        def length(axis: AxisId) -> int:
            if axis not in lengths:
                lengths[axis] = program.length(axis)
            return lengths[axis]

        for step in program.steps:
            step = map_bodies(step, self.body)
            steps.append(step)
            if step.op == "constant":
                self.constant(step, known, held, length)
            elif step.inputs and all(v in known for v in step.inputs) and not between_processes(step):
                step = Step(step.results, step.op, step.inputs, step.attrs, merge_origins([step, *(makers[v] for v in step.inputs)]))
                source = makers[step.inputs[0]]
                if step.op == "rename" and source.op == "constant" and _in_place(step):  # the same array
                    steps[-1] = Step(step.results, "constant", (), {**source.attrs, "axes": step.result.axes}, step.origin)
                    self.constant(steps[-1], known, held, length)
                else:
                    steps[-1:] = self.computed(program, step, known, held, length)
            makers.update((v, s) for s in steps[-len(step.results) :] for v in s.results if v in known)
        if not any(type(leaf) is Run for e in program.axes.values() for leaf in expr.leaves(e)):
            return program.with_(steps=tuple(steps))

        def number(leaf: Leaf) -> ExprLike:
            return int(known[leaf.of]) if type(leaf) is Run and leaf.of in known else leaf

        axes = {a: expr.substitute(e, number) for a, e in program.axes.items()}
        return program.with_(axes=axes, steps=tuple(steps))

    def constant(self, step: Step, known: dict[Value, np.ndarray], held: dict[Value, int], length: Callable[[AxisId], int]) -> None:
        value, result = step.attrs["value"], step.result
        if isinstance(value, Expr):
            return
        shape = _shape(result.axes, length)
        if shape is None:
            return
        array = value.array if type(value) is ArrayRef else result.dtype.array(value)
        known[result] = array.reshape(shape) if type(value) is ArrayRef else np.broadcast_to(array, shape)
        held[result] = array.nbytes

    def computed(
        self, program: Program, step: Step, known: dict[Value, np.ndarray], held: dict[Value, int], length: Callable[[AxisId], int]
    ) -> list[Step]:
        shapes = [_shape(v.axes, length) for v in step.results]
        if any(s is None for s in shapes) or any(v.dtype.np is None for v in step.results):
            return [step]
        taken = sum(held[v] for v in step.inputs)
        if step.op == "broadcast":
            (x,), (result,) = step.inputs, step.results
            order = [x.axes.index(a) for a in result.axes if a in x.axes]
            moved = known[x].transpose(order).reshape([length(a) if a in x.axes else 1 for a in result.axes])
            known[result], held[result] = np.broadcast_to(moved, shapes[0]), held[x]  # type: ignore[arg-type]
            return [step]
        sizes = [int(np.prod(s)) * v.dtype.np.itemsize for s, v in zip(shapes, step.results, strict=True) if s is not None]
        grown = any(size > max(MAX_GROWN_CONSTANT_BYTES, taken) for size in sizes)
        if grown or any(known[v].size > MAX_BROADCAST_ELEMENTS and held[v] < known[v].nbytes for v in step.inputs):
            return [step]
        if step.op == "cast" and sizes[0] > BY_VALUE:
            (x,) = step.inputs
            if x.dtype.is_integer and x.dtype.bits == 8 < step.result.dtype.bits:
                return [step]
        inputs = tuple(dict.fromkeys(step.inputs))
        one = Program(program.axes, program.hints, inputs, steps=(step,), outputs=step.results, name=program.name)
        try:
            arrays = self.evaluate(one, [known[v] for v in inputs])
        except (UnsupportedError, BoundsError, DivisionError, OperandError):  # an index out of bounds raises when a call computes it
            return [step]
        made = [_constant(v, np.asarray(array), step) for v, array in zip(step.results, arrays, strict=True)]
        for s, array in zip(made, arrays, strict=True):
            known[s.result] = np.asarray(array)
            held[s.result] = known[s.result].nbytes
        return made


def between_processes(step: Step) -> bool:
    """Whether the value depends on other processes."""
    record = REGISTRY.get(step.op)
    return record is not None and "processes" in record.attrs


def _in_place(rename: Step) -> bool:
    """Whether the new axes are in the positions of the old ones; else the array is transposed."""
    new = dict(rename.attrs["to"])
    return rename.result.axes == tuple([new.get(a, a) for a in rename.inputs[0].axes])


def _shape(axes: tuple[AxisId, ...], length: Callable[[AxisId], int]) -> tuple[int, ...] | None:
    try:
        return tuple([length(a) for a in axes])
    except LookupError:
        return None


def _constant(value: Value, array: np.ndarray, step: Step) -> Step:
    array = np.ascontiguousarray(array, dtype=value.dtype.np)
    held: Any = array.item() if not value.axes else ArrayRef(array, ours=True)
    if not value.axes and value.dtype.is_float:
        held = float(held)
    return Step((value,), "constant", (), {"value": held, "axes": value.axes, "dtype": value.dtype}, step.origin)

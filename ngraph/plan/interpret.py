"""Interprets a plan with NumPy arrays, line by line: as plain as possible, so that the meaning of a plan can be compared with the oracle.

Memory is as in the plan: one arena of bytes, filled with garbage, into which buffers are placed. Work items run in an adverse order.
Reading what no stage has stored, and accesses outside of an array, raise ProgramError that names the stage.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ngraph.errors import ProgramError
from ngraph.op_graph import expr
from ngraph.op_graph.expr import Expr, ExprLike, Idx, Leaf, Len
from ngraph.op_graph.op import TensorType
from ngraph.op_graph.opdef import REGISTRY, Call
from ngraph.plan.kernels import Buffer, Kernel, Line, Local, OpaqueOp, Plan, Stage, Store, extent, room_of, shape_of
from ngraph.program.program import AxisId
from ngraph.tensors.index import Load, Read
from ngraph.tensors.scalars import COMBINE, combined, elementwise

GARBAGE = 0xA5


def interpret(
    plan: Plan,
    inputs: Sequence[Any],
    state: Mapping[str, Any] | None = None,
    lengths: Mapping[AxisId, int] | None = None,
) -> tuple[list[Any], dict[str, np.ndarray]]:
    """Returns the outputs, and the state after the run; arguments as for `ngraph.program.interpret`, which it never calls.

    The arrays given stay as they are: what replaces an input is among the outputs.
    """
    return PlanRun(plan, dict(lengths or {})).call(inputs, state or {})


class PlanRun:
    """The arrays so far, and the lengths of the symbols."""

    def __init__(self, plan: Plan, lengths: dict[AxisId, int]):
        self.plan, self.lengths = plan, lengths
        self.memory = {storage: np.full(size, GARBAGE, np.uint8) for storage, size in (("arena", plan.arena), ("once", plan.kept))}
        self.arrays: dict[Buffer, Any] = {}
        for b in plan.buffers:
            if b.value is not None:
                self.arrays[b] = b.value.array

    def call(self, inputs: Sequence[Any], state: Mapping[str, Any]) -> tuple[list[Any], dict[str, np.ndarray]]:
        """Runs all steps; returns the outputs, and the state afterwards."""
        plan, given = self.plan, dict(state)
        written = {k for k, _ in plan.writes}
        for k, (b, array) in enumerate(zip(plan.inputs, inputs, strict=True)):
            self.take(b, np.array(array) if k in written else array)
        for name, before, _ in plan.state:
            self.take(before, np.array(given[name]))
        if plan.token_in is not None:
            self.arrays[plan.token_in] = None
        for step in plan.every:
            if type(step) is Kernel:
                self.kernel(step)
            elif type(step) is OpaqueOp:
                self.routine(step)
        given.update({name: self.arrays[after] for name, _, after in plan.state})
        return [self.arrays[b] for b in plan.outputs], given

    def take(self, b: Buffer, array: Any) -> None:
        array = np.asarray(array)
        for (a, div, mod), n in zip(b.dims, array.shape, strict=True):
            if self.plan.axes[a] == Len(a) and div == 1 and mod is None:
                self.lengths.setdefault(a, n)
        self.arrays[b] = array

    def length(self, axis: AxisId) -> int:
        return self.plan.length(axis, self.lengths, lambda b: int(self.arrays[b]))

    def shape(self, b: Buffer) -> tuple[int, ...]:
        return tuple(shape_of(b, self.length))

    def place(self, b: Buffer) -> np.ndarray:
        """Returns the memory of a buffer that is about to be filled."""
        if b.shares is not None:
            self.arrays[b] = self.arrays[b.shares]
        elif b.offset is not None:
            full = room_of(b, self.length)
            n = math.prod(full) * b.dtype.np.itemsize
            flat = self.memory[b.storage][b.offset : b.offset + n].view(b.dtype.np)
            self.arrays[b] = _without_room(self.shape(b), flat.reshape(full))
        elif not b.border or b not in self.arrays:  # else its border has been filled
            self.arrays[b] = _without_room(self.shape(b), np.full(room_of(b, self.length), GARBAGE, np.uint8).astype(b.dtype.np))
        return self.arrays[b]

    # opaque ops
    def routine(self, step: OpaqueOp) -> None:
        """Runs a core op by its record, with results in the plan's memory; bodies are plans."""
        record = REGISTRY[step.op]
        attrs = {k: self.settled(a) for k, a in step.attrs.items()}
        types = tuple([TensorType(b.axes, b.dtype) for b in step.inputs])
        results = tuple([TensorType(b.axes, b.dtype) for b in step.results])
        if record.reference is None:
            raise ProgramError(f"{step.op} has no reference to run")
        arrays = [None if self.arrays[b] is None else np.array(self.arrays[b]) for b in step.inputs]
        got = record.reference(Call(attrs, types, results, self.length, self.body), *arrays)
        each = got if type(got) in (tuple, list) else (got,)
        for b, array in zip(step.results, each if step.results else (), strict=True):  # a check has no result, only an error
            self.arrays[b] = None if b.dtype.np is None else np.asarray(array)
        for b in step.results:
            array = self.arrays[b]
            if array is not None:
                array = array[tuple([slice(self.length(a)) for a in b.axes])]
                self.place(b)[...] = array

    def body(self, plan: Plan, arrays: Sequence[Any]) -> list[Any]:
        known = {a: self.length(a) for a, n in plan.axes.items() if n == Len(a) and a in self.plan.axes}
        return interpret(plan, arrays, lengths=known)[0]

    def settled(self, a: Any) -> Any:
        if isinstance(a, tuple):
            return tuple([self.settled(x) for x in a])
        if isinstance(a, Expr):
            return expr.substitute(a, lambda x: int(self.arrays[x.of]) if type(x) is Load else x)
        return a

    # kernels
    def kernel(self, kernel: Kernel) -> None:
        for b in kernel.targets:
            self.place(b)
        self.work_items(kernel)

    def work_items(self, kernel: Kernel) -> None:
        """Runs all work items of a kernel whose targets have memory."""
        stored: set[Buffer] = set()
        counts = [-(-self.length(a) // b) for a, b in kernel.loops]
        items = list(itertools.product(*map(range, counts[: len(kernel.parallel)])))
        items = items[1::2] + items[0::2][::-1]  # they are parallel: no order may matter
        targets = {s.target for stage in kernel.stages for s in stage.to}
        before: tuple[int, ...] = ()
        for n, item in enumerate(items):
            run = [k for k, s in enumerate(kernel.stages) if not n or item[: s.depth] != before[: s.depth]]
            stored.difference_update([s.target for k in run for s in kernel.stages[k].to])  # stores of other stages persist
            early: set[Buffer] | None = None
            for block, some in kernel.rounds(run, counts[-1] if counts else 0):
                if early is not None and kernel.repeated.start in some:  # a block finds nothing that the one before has stored first
                    stored &= early
                for k in some:
                    stage = kernel.stages[k]
                    for r in stage.reads():
                        if r.source in targets and r.source not in stored:
                            raise ProgramError(f"stage {k} reads {r.source.name}, which no stage before it stores")
                    _WorkItem(self, kernel, (*item, *block)).stage(stage)
                    stored.update([s.target for s in stage.to])
                early = {*stored} if early is None else early
            before = item


class _WorkItem:
    """One stage in one work item: its start along each axis, and its extent."""

    def __init__(self, run: PlanRun, kernel: Kernel, item: tuple[int, ...]):
        self.run = run
        self.start = {a: t * b for (a, b), t in zip(kernel.loops, item, strict=True)}
        self.block = dict(kernel.loops)

    def extent(self, a: AxisId) -> int:
        n = self.run.length(a)
        return min(self.block[a], n - self.start[a]) if a in self.block else n

    def stage(self, stage: Stage) -> None:
        axes = (*stage.free, *stage.reduced)
        shape = tuple([self.extent(a) for a in axes])
        lines: dict[int, np.ndarray] = {}
        for k, line in enumerate(stage.before):
            lines[k] = self.line(line, axes, shape, lines)
        ends = shape[: len(stage.free)]
        dims = tuple(range(len(ends), len(shape)))
        for k, c in enumerate(stage.combine, len(stage.before)):
            lines[k] = combined(c.kind, lines[c.line], dims, c.dtype)
        after: dict[int, np.ndarray] = {k: v for k, v in lines.items() if k >= len(stage.before)}
        for k, line in enumerate(stage.after, len(stage.before) + len(stage.combine)):
            after[k] = self.line(line, stage.free, ends, after)
        for s in stage.to:
            early = s.line < len(stage.before)
            self.store(s, axes if early else stage.free, shape if early else ends, lines if early else after)

    def line(self, line: Line, axes: tuple[AxisId, ...], shape: tuple[int, ...], lines: dict[int, np.ndarray]) -> np.ndarray:
        if line.op == "number":
            return np.broadcast_to(line.dtype.array(line.attrs["value"]), shape)
        if line.op == "index":
            return np.broadcast_to(self.whole(line.attrs["value"], axes, lines), shape).astype(line.dtype.np)
        if line.op == "predicate":
            return self.holds(line.attrs["predicate"], axes, shape, lines)
        if line.op == "read":
            assert line.read is not None
            return self.read(line.read, axes, shape, lines)
        return elementwise(line.op, line.attrs, line.dtype, [lines[k] for k in line.args], shape)

    # indices
    def whole(self, e: ExprLike, axes: tuple[AxisId, ...], lines: dict[int, np.ndarray]) -> Any:
        """Returns an expression at every index, as an array that broadcasts."""

        def leaf(x: Leaf) -> Any:
            if type(x) is Idx:
                if x.of in axes:
                    along = np.arange(self.extent(x.of), dtype=np.int64) + self.start.get(x.of, 0)
                    return along.reshape([-1 if a == x.of else 1 for a in axes])
                if x.of not in self.block:  # of a loop: the start of its block
                    raise ProgramError(f"index {x.of} is neither an axis of the stage nor a loop")
                return self.start[x.of]
            if type(x) is Load:
                return lines[x.of].astype(np.int64) if type(x.of) is int else int(self.run.arrays[x.of])
            return self.run.length(x.of)

        return expr.evaluate(e, leaf)

    def holds(
        self, predicate: tuple[ExprLike, ...], axes: tuple[AxisId, ...], shape: tuple[int, ...], lines: dict[int, np.ndarray]
    ) -> np.ndarray:
        ok = np.ones(shape, bool)
        for e in predicate:
            ok = ok & (self.whole(e, axes, lines) >= 0)
        return ok

    def places(
        self, b: Buffer, index: Mapping[AxisId, ExprLike], ok: np.ndarray, axes: tuple[AxisId, ...], lines: dict[int, np.ndarray]
    ) -> tuple[np.ndarray, ...]:
        """Returns the position along each dim, where `ok`."""
        found = []
        for (a, div, mod), n in zip(b.dims, self.run.arrays[b].shape, strict=True):
            at = np.broadcast_to(self.whole(index[a], axes, lines), ok.shape)[ok]
            if type(b) is Local:  # relative to the start of the work item
                at = at - (self.start.get(a, 0) if self.block.get(a, 1) > 1 else 0)
            at = at // div if mod is None else at // div % mod
            at = at + b.border[a][0] if a in b.border else at
            if at.size and (at.min() < 0 or at.max() >= n):
                raise ProgramError(f"{b.name} has {n} places along {a}, and is asked for {at.min()} to {at.max()}")
            found.append(at)
        return tuple(found)

    def read(self, r: Read, axes: tuple[AxisId, ...], shape: tuple[int, ...], lines: dict[int, np.ndarray]) -> np.ndarray:
        ok = self.holds(r.predicate, axes, shape, lines)
        made = np.full(shape, r.source.dtype.array(r.pad_value) if r.predicate else 0, r.source.dtype.np)
        made[ok] = self.run.arrays[r.source][self.places(r.source, r.index, ok, axes, lines)]
        return made

    def store(self, s: Store, axes: tuple[AxisId, ...], shape: tuple[int, ...], lines: dict[int, np.ndarray]) -> None:
        b = s.target
        if type(b) is Local and s.combine == "set":
            old = self.run.arrays.get(b)
            size = tuple([extent(d, self.extent(d[0])) + sum(b.border.get(d[0], ())) for d in b.dims])
            if old is None or old.shape != size or not s.predicate:
                self.run.arrays[b] = np.full(size, GARBAGE, np.uint8).astype(b.dtype.np) if old is None or old.shape != size else old
        ok = self.holds(s.predicate, axes, shape, lines)
        at, array, value = self.places(b, s.index, ok, axes, lines), self.run.arrays[b], np.broadcast_to(lines[s.line], shape)[ok]
        if not at:  # a scalar as an array of one
            array, at = array.reshape(1), (np.zeros(value.size, np.int64),)
        if s.combine == "set":
            array[at] = value
        else:
            with np.errstate(all="ignore"):
                COMBINE[s.combine].at(array, at, value)


def _without_room(shape: tuple[int, ...], room: np.ndarray) -> np.ndarray:
    """Returns the array of this shape in memory that has more at the end of each row."""
    return room[..., : shape[-1]] if shape else room

"""Kernel deduplication: kernels that differ only in names share one code; those that differ in numbers, too, read these from memory.

`shape` is everything that a kernel's code depends on, with axes and buffers numbered in order of appearance; kernels of equal keys have
equal texts. Kernels of equal texts may have different keys: then one is written in vain.

The layers of a quantised model differ in scales and zero points. Where kernels have different numbers at the same places, and are equal
beside them, they read those from memory (`read_numbers`).
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import Bin
from ngraph.parts.runner import pass_
from ngraph.plan.kernels import Buffer, Kernel, Line, Local, Plan, PlanStep, Stage, used
from ngraph.program.program import AxisId
from ngraph.targets.tuning import MIN_KERNELS_TO_SHARE
from ngraph.tensors.index import Read
from ngraph.tensors.memo import memo

PLAIN = frozenset("add subtract multiply fma maximum minimum compare where".split())  # ops whose code is the same for any number


class Shape(NamedTuple):
    """A key, and the objects that it refers to by number."""

    key: bytes
    axes: tuple[AxisId, ...]
    buffers: tuple[Buffer, ...]


class _Shape(pickle.Pickler):
    """Pickles a kernel without names, origins, addresses and caches."""

    def __init__(self, file: io.BytesIO, numbers: bool):
        super().__init__(file, 5)
        self.numbers = numbers
        self.axes: dict[AxisId, int] = {}
        self.buffers: list[Buffer] = []

    def reducer_override(self, x: Any) -> Any:
        """Returns how an object is written; pickle calls this for no text, number or plain container."""
        how = _HOW.get(type(x))
        return NotImplemented if how is None else how(self, x)

    def _axis(self, x: AxisId) -> Any:
        return int, (self.axes.setdefault(x, len(self.axes)),)

    def _line(self, x: Line) -> Any:
        return (tuple, (("number", x.dtype),)) if x.op == "number" and not self.numbers else NotImplemented

    def _buffer(self, x: Buffer) -> Any:
        self.buffers.append(x)
        root = x.shares
        while root is not None and root.shares is not None:
            root = root.shares
        fields = [getattr(x, f) for f in Buffer.__slots__ if f not in ("name", "offset", "value", "shares")]
        return list, (), None, iter([type(x) is Local, x.offset is None or x.offset % 64, root, *fields])


_HOW: dict[type, Callable[[_Shape, Any], Any]] = {  # how objects of a type are written, if not as pickle does it
    AxisId: _Shape._axis,
    DType: lambda _, x: (str, (x.name,)),
    ArrayRef: lambda _, x: (str, ("",)),
    Line: _Shape._line,
    Bin: lambda _, x: (tuple, ((x.op, x.a, x.b),)),
    Read: lambda _, x: (tuple, ((x.source, x.index, x.predicate, x.pad_value),)),
    Buffer: _Shape._buffer,
    Local: _Shape._buffer,
    Kernel: lambda _, x: (tuple, ((x.loops, x.stages),)),
}


def shape(plan: Plan, kernel: Kernel, numbers: bool = True) -> Shape | None:
    """Returns everything of a kernel that its code depends on, known lengths included; None where expressions are too deep to pickle.

    Without `numbers` those in its lines are left out.
    """
    file = io.BytesIO()
    written = _Shape(file, numbers)
    try:
        written.dump(kernel)
    except RecursionError:
        return None
    lengths = [_length(plan, a) for a in written.axes]
    key = hashlib.blake2b(repr(lengths).encode() + file.getvalue(), digest_size=32).digest()
    return Shape(key, tuple(written.axes), tuple(written.buffers))


def _length(plan: Plan, a: AxisId) -> int | tuple[int]:
    """Returns the length of an axis, or the guess that its schedule is made for."""
    try:
        return plan.length(a)
    except LookupError:
        return (plan.guess(a),)


# ---- numbers in which kernels differ --------------------------------------------------------------------------------------

Place = tuple[int, str, int]  # of a line: its stage, `before` or `after`, and its position there


@pass_(needs=("unplaced",), keeps=("unplaced",))
def read_numbers(plan: Plan) -> Plan:
    """Returns the plan with reads of constants in place of the numbers in which otherwise equal kernels differ."""
    outlines: dict[Any, list[tuple[Kernel, dict[Place, Line]]]] = {}
    for step in plan.every:
        if type(step) is Kernel and (numbers := dict(_numbers(step))):
            outline = tuple([tuple([line.op for _, line in stage.lines()]) for stage in step.stages])
            outlines.setdefault(outline, []).append((step, numbers))
    groups: dict[bytes, list[tuple[Kernel, dict[Place, Line]]]] = {}
    for some in outlines.values():
        if len({tuple([line.attrs["value"] for line in numbers.values()]) for _, numbers in some}) >= MIN_KERNELS_TO_SHARE:
            for step, numbers in some:
                if (this := shape(plan, step, False)) is not None:
                    groups.setdefault(this.key, []).append((step, numbers))
    changed: dict[PlanStep, PlanStep] = {}
    made: dict[Any, Buffer] = {}
    for group in groups.values():
        places = [p for p in group[0][1] if len({lines[p].attrs["value"] for _, lines in group if p in lines}) > 1]
        kinds = {tuple([lines[p].attrs["value"] for p in places if p in lines]) for _, lines in group}
        if len(kinds) >= MIN_KERNELS_TO_SHARE and all(p in lines for p in places for _, lines in group):
            changed |= {kernel: _reading(kernel, {p: lines[p] for p in places}, made) for kernel, lines in group}
    if changed:
        plan.once, plan.start, plan.steps = (tuple([changed.get(s, s) for s in some]) for some in (plan.once, plan.start, plan.steps))
        for k, b in enumerate(made.values()):
            b.name = f"number_{k}"
        plan.buffers += tuple(made.values())
    return plan


def _numbers(kernel: Kernel) -> Iterator[tuple[Place, Line]]:
    """Yields the numbers of a kernel that could be read: operands of ops whose code is the same for any number."""
    for k, stage in enumerate(kernel.stages):
        users: dict[int, set[bool]] = {}
        for _, line in stage.lines():
            for n in (*line.args, *used(*line.exprs)):
                users.setdefault(n, set()).add(line.op in PLAIN or (line.op == "divide" and line.dtype.is_float))
        for part, first in (("before", 0), ("after", len(stage.before) + len(stage.combine))):
            for n, line in enumerate(getattr(stage, part)):
                if line.op == "number" and users.get(n + first) == {True}:
                    yield (k, part, n), line


def _held(value: Any, dtype: DType) -> Buffer:
    """Returns a buffer with a number."""
    return Buffer("number", (), dtype, "constant", value=ArrayRef(np.asarray(value, dtype.np)))


def _reading(kernel: Kernel, numbers: dict[Place, Line], made: dict[Any, Buffer]) -> Kernel:
    """Returns a kernel that reads these numbers."""
    stages: list[Stage] = list(kernel.stages)
    for (k, part, n), line in numbers.items():
        lines: list[Line] = list(getattr(stages[k], part))
        lines[n] = Line("read", (), line.dtype, read=Read(memo(made, _held, line.attrs["value"], line.dtype), {}))
        stages[k] = replace(stages[k], before=tuple(lines)) if part == "before" else replace(stages[k], after=tuple(lines))
    return replace(kernel, stages=tuple(stages))

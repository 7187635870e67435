"""Runs a plan twice, kernel by kernel: by its interpreter and as machine code, each on the interpreter's results so far.

The first kernel that differs is wrong, since nothing before it differs. It is shown with its loops and the user's lines.
"""

from __future__ import annotations

import itertools
import linecache
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ngraph.errors import NgraphError, show_line
from ngraph.op_graph import expr
from ngraph.op_graph.expr import ExprLike, Len
from ngraph.plan.interpret import GARBAGE, PlanRun
from ngraph.plan.kernels import Buffer, Kernel, Local, OpaqueOp, Plan, PlanStep
from ngraph.plan.text import step_text
from ngraph.program.program import AxisId
from ngraph.transformers.executable.code import KernelStep, LoadedPlan, origin

ALIGN, FENCE = 64, 256  # bytes; a store beside a result is at most some vectors away
EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}  # from 1 to the next number
SHOWN = 8  # differing elements in a report
# by bits: tolerance for functions, and for sums in another form, relative to the largest value
RELATIVE_TOLERANCE = {16: 2.0**-6, 32: 1e-4, 64: 1e-11}
SWAY = 64  # factor for roundings relative to the effect of changes in the arguments' last bits


class Difference(NamedTuple):
    """A step whose machine code differs from the plan. `places`: index by axis, value of the code, value of the plan."""

    step: PlanStep
    number: int  # of the kernel, counted from 1
    plan: Plan
    buffer: Buffer | None  # None where bytes beside its results were written
    places: Sequence[tuple[str, Any, Any]]
    wrong: int
    size: int

    @property
    def ops(self) -> list[str]:
        return list(dict.fromkeys([o.name for o in origin(self.step) if o.name]))

    @property
    def line(self) -> tuple[str, int] | None:
        """The user's line of the last op in it."""
        return next(((o.file, o.line) for o in reversed(origin(self.step)) if o.file), None)

    def text(self) -> list[str]:
        """Returns values, loops, and the user's lines."""
        if self.buffer is None:
            said = [f"it writes {self.wrong} bytes that belong to none of its results"]
        else:
            said = [f"{self.wrong:,} of {self.size:,} elements of {self.buffer.name or 'a result'} : {self.buffer.dtype.name} differ:"]
            said += ["  " + (f"[{at}]  " if at else "") + f"machine code {got}, plan {want}" for at, got, want in self.places]
        lines = dict.fromkeys([(o.file, o.line) for o in origin(self.step) if o.file])
        shown = [f"  {show_line(at)}  {linecache.getline(*at).strip()}" for at in lines]
        return [*said, "its loops:", *[f"  {line}" for line in step_text(self.plan, self.step)], *(["made by:", *shown] if shown else [])]


class _FirstDifference(Exception):
    """Ends a run at its first difference."""


def compared(code: LoadedPlan, lengths: Mapping[AxisId, int], inputs: Sequence[Any], state: Mapping[str, Any]) -> int:
    """Returns the number of kernels that ran. Raises NgraphError for the first that differs."""
    count = itertools.count(1)
    try:
        Both(code, dict(lengths), count).call(inputs, state)
    except _FirstDifference as found:
        d: Difference = found.args[0]
        what = f"kernel {d.number} of {code.plan.name} ({', '.join(d.ops) or 'of no op'}) does not do what its plan says"
        fix = "this is a mistake in ngraph: please report it with this text; NGRAPH_TRANSFORMER=numpy does without kernels"
        raise NgraphError(what, details=tuple(d.text()), fix=fix, line=d.line) from None
    return next(count) - 1


class MachineRun(PlanRun):
    """The arrays that machine code computes."""

    def __init__(self, code: LoadedPlan, lengths: dict[AxisId, int]):
        super().__init__(code.plan, lengths)
        self.device = code.device
        self.native: dict[int, list[KernelStep]] = {}
        for s in code.every:
            if type(s) is KernelStep:
                self.native.setdefault(id(s.step), []).append(s)

    def take(self, b: Buffer, array: Any) -> None:
        super().take(b, np.array(array, order="C"))

    def place(self, b: Buffer) -> np.ndarray:
        """Returns memory between guard bytes, for buffers with memory of their own."""
        if b.shares is not None or b.offset is not None:
            return super().place(b)
        shape = self.shape(b)
        size = math.prod(shape) * b.dtype.np.itemsize
        whole = np.full(size + 2 * FENCE, GARBAGE, np.uint8)
        self.arrays[b] = whole[FENCE : FENCE + size].view(b.dtype.np).reshape(shape)
        return self.arrays[b]

    def work_items(self, kernel: Kernel) -> None:
        self.run(kernel, self.arrays)

    def run(self, step: PlanStep, arrays: dict[Buffer, Any]) -> None:
        """Runs the machine code of a step, over these arrays."""
        for native in self.native[id(step)]:
            code = native.code
            for b in code.buffers:
                if b.storage == "constant" and not arrays[b].flags.c_contiguous:
                    arrays[b] = np.array(arrays[b], order="C")
            args = np.array([*[arrays[b].ctypes.data for b in code.buffers], *map(self.length, code.lengths)], np.int64)
            scratch = np.full(self.number(code.scratch) + ALIGN, GARBAGE, np.uint8)
            aligned = -(-scratch.ctypes.data // ALIGN) * ALIGN
            self.device.launch(native.entry.address, args.ctypes.data, self.number(code.work_items), aligned)

    def number(self, e: ExprLike) -> int:
        return int(expr.evaluate(e, lambda x: self.length(x.of)))


class Both(PlanRun):
    """The arrays that the interpreter computes; machine code computes its own beside it, step by step.

    Where these differ, roundings may have accumulated: then a step's code runs on the interpreter's values, and if that differs, too,
    the step is wrong. The first of the two runs is necessary, since a recomputed value must equal the stored one to the bit,
    such as a maximum and the values compared with it.
    """

    def __init__(self, code: LoadedPlan, lengths: dict[AxisId, int], count: Iterator[int]):
        super().__init__(code.plan, lengths)
        self.code, self.count, self.machine = code, count, MachineRun(code, self.lengths)

    def take(self, b: Buffer, array: Any) -> None:
        super().take(b, np.array(array, order="C"))
        self.machine.take(b, array)

    def body(self, plan: Plan, arrays: Sequence[Any]) -> list[Any]:
        known = {a: self.length(a) for a, n in plan.axes.items() if n == Len(a) and a in self.plan.axes}
        return Both(self.code.bodies[id(plan)], known, self.count).call(arrays, {})[0]

    def work_items(self, kernel: Kernel) -> None:
        number = next(self.count)
        targets = [b for b in kernel.targets if type(b) is not Local]
        before = _Memory(self, targets)
        super().work_items(kernel)
        wanted, after = before.targets_now(), _Memory(self, targets)
        for b in targets:
            self.machine.place(b)
        own = _Memory(self.machine, targets)
        self.machine.work_items(kernel)
        got, beside = own.targets_now(), own.beside()
        if beside:
            raise _FirstDifference(Difference(kernel, number, self.plan, None, (), beside, 0))
        if any(differing(got[b], wanted[b]).any() for b in targets):
            before.restore()
            sways = self.sways(kernel, wanted)
            before.restore()
            self.machine.run(kernel, self.arrays)
            got = before.targets_now()
            after.restore()
            for b in targets:
                self.compare(kernel, number, b, got[b], wanted[b], sways.get(b, 0.0))

    def sways(self, kernel: Kernel, wanted: Mapping[Buffer, np.ndarray]) -> dict[Buffer, float]:
        """Returns how far each result moves where the last bits of a kernel's float operands change."""
        floats = [b for b in kernel.sources if type(b) is not Local and b.dtype.is_float and b not in wanted]
        held = {b: self.arrays[b] for b in floats}
        draw = np.random.default_rng(0)
        for b, a in held.items():
            self.arrays[b] = (a * (1 + EPS[b.dtype.name] * draw.choice([-1.0, 1.0], a.shape))).astype(a.dtype)
        super().work_items(kernel)
        self.arrays.update(held)
        with np.errstate(all="ignore"):
            moved = {b: np.abs(self.arrays[b].astype(np.float64) - w.astype(np.float64)) for b, w in wanted.items() if b.dtype.is_float}
        return {b: float(a[np.isfinite(a)].max(initial=0.0)) for b, a in moved.items()}

    def routine(self, step: OpaqueOp) -> None:
        """Runs an opaque op by its record, and by its machine code if it has some; both continue with the record's results."""
        natives = self.machine.native.get(id(step), [])
        given = {b: np.array(self.arrays[b], order="C") for b in step.inputs if self.arrays[b] is not None}
        super().routine(step)
        made = {b: self.arrays[b] for b in step.results}
        if natives:
            number = next(self.count)
            arrays = dict(given)
            for b in [b for n in natives for b in n.code.buffers if b not in given]:
                garbage = np.full(self.shape(b), GARBAGE, np.uint8).astype(b.dtype.np)
                arrays[b] = np.array(given[b.shares]) if b.shares in given else garbage
            self.machine.arrays.update({b: a for b, a in made.items() if a is not None})  # lengths are among them
            self.machine.run(step, arrays)
            axis, few = step.attrs.get("axis"), step.attrs.get("few")  # elements beyond this many along an axis are unspecified
            for b, a in made.items():
                asked = tuple([slice(few if x == axis else None) for x in b.axes])
                self.compare(step, number, b, arrays[b][asked], a[asked])
        for b, a in made.items():
            self.machine.arrays[b] = a
            if a is not None:
                self.machine.place(b)[...] = a

    def compare(self, step: PlanStep, number: int, b: Buffer, got: np.ndarray, wanted: np.ndarray, sway: float = 0.0) -> None:
        """Ends the run where values differ by more than roundings explain."""
        wrong = differing(got, wanted, SWAY * sway)
        if wrong.any():
            names = [a + (f" // {div}" if div > 1 else "") + (f" % {mod}" if mod is not None else "") for a, div, mod in b.dims]
            places = [tuple(map(int, at)) for at in np.argwhere(wrong)[:SHOWN]]
            shown = [(", ".join([f"{n}: {k}" for n, k in zip(names, at, strict=True)]), got[at], wanted[at]) for at in places]
            raise _FirstDifference(Difference(step, number, self.plan, b, shown, int(wrong.sum()), wrong.size))


def differing(got: np.ndarray, wanted: np.ndarray, room: float = 0.0) -> np.ndarray:
    """Returns a mask of different elements. Integers must be equal; floats may differ by a part of the largest one, and by `room`."""
    same = _words(got) == _words(wanted)
    if wanted.dtype.kind in "biu":
        return np.asarray(~same)
    with np.errstate(all="ignore"):
        a, b = got.astype(np.float64), wanted.astype(np.float64)
        near = RELATIVE_TOLERANCE.get(wanted.itemsize * 8, 0.0) * np.abs(b[np.isfinite(b)]).max(initial=0.0) + room
        close = np.where(np.isfinite(a) & np.isfinite(b), np.abs(a - b) <= near, (a == b) | (np.isnan(a) & np.isnan(b)))
    return np.asarray(~(same | close))


class _Memory:
    """The memory of a run, with the locations of some buffers, to be restored and compared."""

    def __init__(self, run: PlanRun, targets: Sequence[Buffer]):
        self.places = {b: run.arrays[b] for b in targets}
        whole = {id(a): a for a in [*run.memory.values(), *map(_whole, self.places.values())]}
        self.held = [(a, a.copy()) for a in whole.values()]

    def targets_now(self) -> dict[Buffer, np.ndarray]:
        return {b: a.copy() for b, a in self.places.items()}

    def restore(self) -> None:
        for a, held in self.held:
            a[...] = held

    def beside(self) -> int:
        """Returns the number of changed bytes outside of the buffers."""
        now = [(a, a.copy()) for a, _ in self.held]
        self.restore()
        old = self.targets_now()
        for a, new in now:
            a[...] = new
        for b, a in self.places.items():
            a[...] = old[b]
        changed = sum([int((_bytes(a) != _bytes(held)).sum()) for a, held in self.held])
        for a, new in now:
            a[...] = new
        return changed


def _words(a: np.ndarray) -> np.ndarray:
    """Returns the elements by their bits."""
    return np.ascontiguousarray(a).view(f"u{a.itemsize}").reshape(a.shape)


def _bytes(a: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(a).reshape(-1).view(np.uint8)


def _whole(a: np.ndarray) -> np.ndarray:
    """Returns the array that owns the memory of another."""
    while isinstance(a.base, np.ndarray):
        a = a.base
    return a

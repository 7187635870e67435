"""A plan as loaded kernels: each different one is compiled once in a process, however many plans have it."""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ngraph.codegen.kernel import KernelCode, emit
from ngraph.codegen.loader import Code as Loaded
from ngraph.codegen.pool import Pool, pool
from ngraph.codegen.routines import emit_routine
from ngraph.errors import UnsupportedError
from ngraph.op_graph.op import Origin
from ngraph.plan.kernels import Kernel, Plan, PlanStep, Routine
from ngraph.targets import Target


class Entry:
    """A kernel in memory, for as long as somebody holds this."""

    __slots__ = ("code", "address", "__weakref__")

    def __init__(self, code: Loaded, which: int):
        self.code, self.address = code, code.address("kernel", which)


class Native(NamedTuple):
    """A step, or a part of one, that is a kernel."""

    step: PlanStep
    code: KernelCode
    entry: Entry
    seconds: float  # predicted, on one core


class Control(NamedTuple):
    """A loop or a branch, which the table runs."""

    step: Routine


class Host(NamedTuple):
    """A step that Python runs."""

    step: Routine


Step = Native | Control | Host
_entries: weakref.WeakValueDictionary[tuple[str, Target], Entry] = weakref.WeakValueDictionary()


def compile_text(text: str, target: Target) -> bytes:
    """The object of a module."""
    made: bytes = importlib.import_module("ngraph.codegen.jit").compile_object(text, target)  # loads LLVM
    return made


def assembly(text: str, target: Target) -> str:
    made: str = importlib.import_module("ngraph.codegen.jit").compile_assembly(text, target)
    return made


def load_text(text: str, target: Target) -> Loaded:
    return Loaded(compile_text(text, target))


def entries(texts: Iterable[str], target: Target) -> dict[str, Entry]:
    """Kernels by their texts; those that this process has not yet are compiled and loaded together."""
    found = {t: _entries.get((t, target)) for t in texts}
    missing = [t for t, e in found.items() if e is None]
    if missing:
        loaded = Loaded(*[compile_text(t, target) for t in missing])
        for k, t in enumerate(missing):
            found[t] = _entries[t, target] = Entry(loaded, k)
    return {t: e for t, e in found.items() if e is not None}


class Code:
    """A plan's steps, ready to be bound to memory; `bodies` are the plans inside its routines."""

    def __init__(self, plan: Plan, target: Target):
        self.plan, self.target = plan, target
        made = [emitted(plan, s, target) for s in plan.every]
        self.bodies = {id(b): Code(b, target) for s in plan.every if type(s) is Routine for b in bodies(s)}
        loaded = entries([c.text for codes in made for c in codes], target)
        steps: list[tuple[Step, ...]] = []
        for s, codes in zip(plan.every, made, strict=True):
            if not codes:
                assert type(s) is Routine
                steps.append((Control(s) if bodies(s) else Host(s),))
            else:
                steps.append(tuple([Native(s, c, loaded[c.text], seconds(s) / len(codes)) for c in codes]))
        flat = [step for part in steps for step in part]
        self.once, self.start, self.steps = flat, flat, flat
        first, second = (sum(map(len, steps[:n])) for n in (len(plan.once), len(plan.once) + len(plan.start)))
        self.once, self.start, self.steps = flat[:first], flat[first:second], flat[second:]

    @property
    def every(self) -> list[Step]:
        return [*self.once, *self.start, *self.steps]

    def kernels(self) -> list[Native]:
        """All kernels, those of bodies too."""
        own = [s for s in self.every if type(s) is Native]
        return own + [k for body in self.bodies.values() for k in body.kernels()]

    @property
    def texts(self) -> dict[str, list[Native]]:
        """The different kernels, each with the steps that it runs."""
        found: dict[str, list[Native]] = {}
        for k in self.kernels():
            found.setdefault(k.code.text, []).append(k)
        return found

    def threads(self) -> Pool:
        return pool(load_text)


def bodies(routine: Routine) -> list[Plan]:
    """The plans inside a routine."""
    return [a for a in routine.attrs.values() if type(a) is Plan]


def emitted(plan: Plan, step: PlanStep, target: Target) -> Sequence[KernelCode]:
    """The code of a step; none for what Python runs."""
    if type(step) is Kernel:
        return (emit(plan, step, target),)
    assert type(step) is Routine
    try:
        return emit_routine(plan, step, target)
    except UnsupportedError:
        return ()


def seconds(step: PlanStep) -> float:
    """How long a step is predicted to take on one core."""
    return getattr(step, "seconds", 0.0) or 0.0


def origin(step: Any) -> tuple[Origin, ...]:
    return tuple(step.origin)

"""A plan as loaded kernels: each different one is compiled once in a process, however many plans have it."""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ngraph.codegen.alike import Shape, moved, shape
from ngraph.codegen.kernel import KernelCode, emit
from ngraph.codegen.loader import Code as Loaded
from ngraph.codegen.pool import Pool, pool
from ngraph.codegen.routines import emit_routine
from ngraph.errors import UnsupportedError
from ngraph.op_graph.op import Origin
from ngraph.plan.kernels import Kernel, Plan, PlanStep, Routine
from ngraph.runtime.cache import cache
from ngraph.runtime.tune import picks, tune
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
_entries: weakref.WeakValueDictionary[bytes, Entry] = weakref.WeakValueDictionary()


class Part(NamedTuple):
    """A kernel as it is kept from run to run: how it is called, and the key of its object."""

    code: KernelCode  # without its text
    key: bytes


class Recipe(NamedTuple):
    """A plan with the kernels of each step, in order, and the same of the plans inside its routines."""

    plan: Plan
    parts: tuple[tuple[Part, ...], ...]
    bodies: tuple[Recipe, ...]
    tuned: bool = False


def recipe(plan: Plan, target: Target, tuned: bool = False) -> Recipe:
    """Writes the kernels of a plan, those that are alike once; they are compiled meanwhile. `tuned`: with schedules that were measured."""
    own = cache()
    if tuned:
        tune(every(plan), target)
    made: dict[Plan, list[tuple[Part, ...]]] = {}
    known: dict[bytes, tuple[Part, Shape]] = {}

    def texts(p: Plan) -> Iterator[str]:
        made[p] = []
        for s in p.every:
            this = shape(p, s) if type(s) is Kernel else None
            if this is not None and this.key in known:
                part, other = known[this.key]
                made[p].append((Part(moved(part.code, other, this), part.key),))
                continue
            codes = emitted(p, s, target, tuned)
            parts = tuple([Part(replace(c, text=""), own.key(c.text, target)) for c in codes])
            made[p].append(parts)
            if this is not None:
                known[this.key] = parts[0], this
            yield from [c.text for c in codes]
            for body in bodies(s):
                yield from texts(body)

    def together(p: Plan) -> Recipe:
        return Recipe(p, tuple(made[p]), tuple([together(b) for s in p.every for b in bodies(s)]), tuned)

    own.objects(texts(plan), target)
    return together(plan)


def assembly(text: str, target: Target) -> str:
    made: str = importlib.import_module("ngraph.codegen.jit").compile_assembly(text, target)
    return made


def load_text(text: str, target: Target) -> Loaded:
    return Loaded(cache().object(text, target))


def entries(keys: Iterable[bytes], again: Callable[[], Any]) -> dict[bytes, Entry]:
    """Kernels by their keys; those that this process has not yet are loaded together. `again` compiles all, where one is kept no more."""
    found = {k: _entries.get(k) for k in keys}
    missing = [k for k, e in found.items() if e is None]
    if missing:
        objects = [cache().find(k) for k in missing]
        if None in objects:
            again()
            objects = [cache().find(k) for k in missing]
        loaded = Loaded(*[o for o in objects if o is not None])
        for which, k in enumerate(missing):
            found[k] = _entries[k] = Entry(loaded, which)
    return {k: e for k, e in found.items() if e is not None}


def entry(text: str, target: Target) -> Entry:
    """The kernel of a text."""
    key = cache().key(text, target)
    return entries([key], lambda: cache().object(text, target))[key]


class Code:
    """A plan's steps, ready to be bound to memory; `bodies` are the plans inside its routines, `copy` copies bytes."""

    def __init__(self, made: Recipe, target: Target):
        self.plan, self.target, self.tuned = plan, target, tuned = made.plan, target, made.tuned
        self.bodies = {id(b.plan): Code(b, target) for b in made.bodies}
        loaded = entries([part.key for parts in made.parts for part in parts], lambda: recipe(plan, target, tuned))
        steps: list[tuple[Step, ...]] = []
        for s, parts in zip(plan.every, made.parts, strict=True):
            if not parts:
                assert type(s) is Routine
                steps.append((Control(s) if bodies(s) else Host(s),))
            else:
                steps.append(tuple([Native(s, p.code, loaded[p.key], seconds(s) / len(parts)) for p in parts]))
        flat = [step for part in steps for step in part]
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
        """The different kernels, written again, each with the steps that it runs."""
        found: dict[str, list[Native]] = {}
        natives = iter([s for s in self.every if type(s) is Native])
        for s in self.plan.every:
            for c in emitted(self.plan, s, self.target, self.tuned):
                found.setdefault(c.text, []).append(next(natives))
        for body in self.bodies.values():
            for t, ks in body.texts.items():
                found.setdefault(t, []).extend(ks)
        return found

    def threads(self) -> Pool:
        return pool(load_text)


def bodies(step: PlanStep) -> list[Plan]:
    """The plans inside a routine."""
    return [a for a in step.attrs.values() if type(a) is Plan] if type(step) is Routine else []


def every(plan: Plan) -> list[Plan]:
    """A plan and the plans inside its routines, those inside these too."""
    found = [plan]
    for p in found:
        found += [body for s in p.every for body in bodies(s)]
    return found


def emitted(plan: Plan, step: PlanStep, target: Target, tuned: bool = False) -> Sequence[KernelCode]:
    """The code of a step; none for what Python runs."""
    if type(step) is Kernel:
        return (emit(plan, step, target, picks(plan, step, target) if tuned else None),)
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

"""A plan as loaded kernels: each different one is compiled once in a process, however many plans have it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ngraph.codegen.signature import KernelCode
from ngraph.op_graph.op import Origin
from ngraph.plan.kernels import Buffer, OpaqueOp, Plan, PlanStep
from ngraph.runtime.cache import cache, digest
from ngraph.runtime.host.loader import LoadedObjects as Loaded
from ngraph.runtime.host.pool import Pool, pool
from ngraph.targets import Target


class Entry:
    """A kernel in memory, for as long as somebody holds this."""

    __slots__ = ("code", "address", "__weakref__")

    def __init__(self, code: Loaded, which: int):
        self.code, self.address = code, code.address("kernel", which)


class NativeStep(NamedTuple):
    """A step, or a part of one, that is a kernel."""

    step: PlanStep
    code: KernelCode
    entry: Entry
    seconds: float  # predicted, on one core


class Control(NamedTuple):
    """A loop or a branch, which the table runs."""

    step: OpaqueOp


class HostCallback(NamedTuple):
    """A step that Python runs."""

    step: OpaqueOp


Step = NativeStep | Control | HostCallback
_entries: weakref.WeakValueDictionary[bytes, Entry] = weakref.WeakValueDictionary()


class CompiledKernel(NamedTuple):
    """A kernel as it is kept from run to run: how it is called, and the key of its object."""

    code: KernelCode  # without its text
    key: bytes


class CompiledPlan(NamedTuple):
    """A plan with the kernels of each step, in order, and the same of the plans inside its routines."""

    plan: Plan
    parts: tuple[tuple[CompiledKernel, ...], ...]
    bodies: tuple[CompiledPlan, ...]
    tuned: bool = False


class StrippedKernel(NamedTuple):
    """A kernel by what a call needs of it."""

    sources: tuple[Buffer, ...]
    targets: tuple[Buffer, ...]
    seconds: float
    origin: tuple[Origin, ...] = ()


def stripped_key(fingerprint: bytes, facts: Any) -> bytes:
    """Under which the cache has the bare recipe of a program of this meaning."""
    return digest(b"bare", cache().plan_key(fingerprint, facts))


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
            if None in objects:
                raise LookupError("kernels are gone from the cache")
        loaded = Loaded(*[o for o in objects if o is not None])
        for which, k in enumerate(missing):
            found[k] = _entries[k] = Entry(loaded, which)
    return {k: e for k, e in found.items() if e is not None}


def entry(text: str, target: Target) -> Entry:
    """The kernel of a text."""
    key = cache().key(text, target)
    return entries([key], lambda: cache().object(text, target))[key]


class LoadedPlan:
    """A plan's steps, ready to be bound to memory; `bodies` are the plans inside its routines, `copy` copies bytes."""

    def __init__(self, made: CompiledPlan, target: Target, again: Callable[[], Any] = lambda: None):
        """`again` compiles what is kept no more; LookupError where it does not."""
        self.plan, self.target, self.tuned = plan, target, _ = made.plan, target, made.tuned
        self.bodies = {id(b.plan): LoadedPlan(b, target, again) for b in made.bodies}
        loaded = entries([part.key for parts in made.parts for part in parts], again)
        steps: list[tuple[Step, ...]] = []
        for s, parts in zip(plan.every, made.parts, strict=True):
            if not parts:
                assert type(s) is OpaqueOp
                steps.append((Control(s) if bodies(s) else HostCallback(s),))
            else:
                steps.append(tuple([NativeStep(s, p.code, loaded[p.key], seconds(s) / len(parts)) for p in parts]))
        flat = [step for part in steps for step in part]
        first, second = (sum(map(len, steps[:n])) for n in (len(plan.once), len(plan.once) + len(plan.start)))
        self.once, self.start, self.steps = flat[:first], flat[first:second], flat[second:]

    @property
    def every(self) -> list[Step]:
        return [*self.once, *self.start, *self.steps]

    def kernels(self) -> list[NativeStep]:
        """All kernels, those of bodies too."""
        own = [s for s in self.every if type(s) is NativeStep]
        return own + [k for body in self.bodies.values() for k in body.kernels()]

    def host_callbacks(self) -> list[OpaqueOp]:
        """The steps that Python runs, those of bodies too."""
        own = [s.step for s in self.every if type(s) is HostCallback]
        return own + [s for body in self.bodies.values() for s in body.host_callbacks()]

    def threads(self) -> Pool:
        return pool(load_text)


def bodies(step: PlanStep) -> list[Plan]:
    """The plans inside a routine."""
    return [a for a in step.attrs.values() if type(a) is Plan] if type(step) is OpaqueOp else []


def seconds(step: PlanStep) -> float:
    """How long a step is predicted to take on one core."""
    return getattr(step, "seconds", 0.0) or 0.0


def origin(step: Any) -> tuple[Origin, ...]:
    return tuple(step.origin)

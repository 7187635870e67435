"""A plan with its kernels loaded, and its cached form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ngraph.codegen.signature import KernelCode
from ngraph.errors import show_line
from ngraph.op_graph.op import Origin
from ngraph.plan.kernels import Buffer, OpaqueOp, Plan, PlanStep
from ngraph.runtime.cache import cache, digest
from ngraph.transformers.executable.device import KernelDevice, LoadedKernel


class KernelStep(NamedTuple):
    """A step, or a part of one, that is a kernel."""

    step: PlanStep
    code: KernelCode
    entry: LoadedKernel
    seconds: float  # predicted, on one core


class Control(NamedTuple):
    """A loop or a branch, which the table runs."""

    step: OpaqueOp


class HostCallback(NamedTuple):
    """A step that Python runs."""

    step: OpaqueOp


Step = KernelStep | Control | HostCallback


class CompiledKernel(NamedTuple):
    """A kernel in the cache: its signature, and the key of its object."""

    code: KernelCode  # without its text
    key: bytes


class CompiledPlan(NamedTuple):
    """A plan with the kernels of each step, in order, and the same of the plans nested in its opaque ops."""

    plan: Plan
    parts: tuple[tuple[CompiledKernel, ...], ...]
    bodies: tuple[CompiledPlan, ...]
    tuned: bool = False


class StrippedKernel(NamedTuple):
    """The part of a kernel that calls need."""

    sources: tuple[Buffer, ...]
    targets: tuple[Buffer, ...]
    seconds: float
    origin: tuple[Origin, ...] = ()


def stripped_key(fingerprint: bytes, facts: Any) -> bytes:
    """Returns the cache key of the stripped plan of a program with this fingerprint."""
    return digest(b"bare", cache().plan_key(fingerprint, facts))


class LoadedPlan:
    """A plan's steps, ready to be bound to memory; `bodies` are the plans nested in its opaque ops."""

    def __init__(self, made: CompiledPlan, device: KernelDevice, again: Callable[[], Any] = lambda: None):
        """Loads the kernels; `again` compiles those that are not in the cache any more. Raises LookupError where it cannot."""
        self.plan, self.device, self.target, self.tuned = made.plan, device, device.target, made.tuned
        self.layout: Any = None  # memory layout: `layout.Layout.of`
        self.shared: Any = None  # memory of calls: `frame.SharedPlan.of`
        self.calls = 0  # those that went through Python
        self.entries: list[Any] = []  # faster ways in, which count their own
        self.bodies = {id(b.plan): LoadedPlan(b, device, again) for b in made.bodies}
        loaded = device.load([part.key for parts in made.parts for part in parts], again)
        plan, steps = made.plan, list[tuple[Step, ...]]()
        for s, parts in zip(plan.every, made.parts, strict=True):
            if not parts:
                assert type(s) is OpaqueOp
                steps.append((Control(s) if s.bodies else HostCallback(s),))
            else:
                steps.append(tuple([KernelStep(s, p.code, loaded[p.key], p.code.seconds or seconds(s) / len(parts)) for p in parts]))
        flat = [step for part in steps for step in part]
        first, second = (sum(map(len, steps[:n])) for n in (len(plan.once), len(plan.once) + len(plan.start)))
        self.once, self.start, self.steps = flat[:first], flat[first:second], flat[second:]

    @property
    def every(self) -> list[Step]:
        return [*self.once, *self.start, *self.steps]

    @property
    def bordered(self) -> bool:
        """Whether borders of its buffers, or of those of bodies, are filled before the first call and have to last."""
        return bool(self.start) or any(body.bordered for body in self.bodies.values())

    def kernels(self) -> list[KernelStep]:
        """All kernels, those of bodies included."""
        own = [s for s in self.every if type(s) is KernelStep]
        return own + [k for body in self.bodies.values() for k in body.kernels()]

    def host_callbacks(self) -> list[OpaqueOp]:
        """The steps that Python runs, those of bodies included."""
        own = [s.step for s in self.every if type(s) is HostCallback]
        return own + [s for body in self.bodies.values() for s in body.host_callbacks()]


def seconds(step: PlanStep) -> float:
    """Returns the predicted seconds of a step on one core."""
    return getattr(step, "seconds", 0.0) or 0.0


def origin(step: Any) -> tuple[Origin, ...]:
    return tuple(step.origin)


def title(step: Any) -> str:
    """The user's ops that a step computes, and the line of the last."""
    found = list(dict.fromkeys([o.name for o in origin(step) if o.name]))
    line = next((show_line((o.file, o.line)) for o in reversed(origin(step)) if o.file), "")
    return f"{', '.join(found[:4])}{' …' if len(found) > 4 else ''}{f' ({line})' if line else ''}" or getattr(step, "op", "kernel")

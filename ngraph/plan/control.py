"""Hoisting of invariant steps out of loop bodies' plans: the enclosing plan runs them once for many calls where it can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ngraph.plan.kernels import Buffer, Kernel, Line, OpaqueOp, Plan, PlanStep
from ngraph.program.program import AxisId
from ngraph.tensors.index import Read


def lifted(plan: Plan, still: set[Buffer]) -> None:
    """Takes out of the bodies of scans what depends on nothing but buffers that no call changes; the bodies get it as inputs."""
    steps: list[PlanStep] = []
    for step in plan.steps:
        body = step.attrs.get("body") if type(step) is OpaqueOp and step.op == "scan" else None
        steps.append(_lifted(plan, step, body, still) if type(step) is OpaqueOp and type(body) is Plan else step)
    plan.steps = tuple(steps)


def _lifted(plan: Plan, step: OpaqueOp, body: Plan, still: set[Buffer]) -> OpaqueOp:
    outside = {b: out for b, out in zip(body.inputs, step.inputs, strict=True) if b.loop_invariant and out in still}
    taken: list[Buffer] = []
    left: list[PlanStep] = []
    for k in body.once:
        axes = {a: n for a, n in body.axes.items() if type(k) is Kernel and a in _axes(k)}
        agree = all(isinstance(n, int) and plan.axes.get(a, n) == n for a, n in axes.items())
        if type(k) is not Kernel or not agree or not outside.keys() >= set(k.sources):
            left.append(k)
            continue
        plan.axes |= axes
        for b in k.targets:
            outside[b] = made = Buffer(b.name, b.dims, b.dtype, "once")
            made.border, made.pad_value, made.row = b.border, b.pad_value, b.row
            still.add(made)
            taken.append(b)
        plan.once += (_over(k, outside),)
        plan.buffers += tuple([outside[b] for b in k.targets])
    for b in taken:
        b.storage, b.offset, b.loop_invariant = "input", None, True
    body.once, body.inputs = tuple(left), (*body.inputs, *taken)
    body.kept = max([(b.offset or 0) + (b.bytes or 0) for b in body.buffers if b.storage == "once"], default=0)
    return replace(step, inputs=(*step.inputs, *[outside[b] for b in taken])) if taken else step


def _axes(kernel: Kernel) -> set[AxisId]:
    found = {a for a, _ in kernel.loops}
    found.update([a for s in kernel.stages for a in (*s.free, *s.reduced)])
    return found.union([a for b in (*kernel.sources, *kernel.targets) for a in b.axes])


def _over(kernel: Kernel, other: Mapping[Buffer, Buffer]) -> Kernel:
    """The same kernel over other buffers."""

    def line(x: Line) -> Line:
        r = x.read
        return x if r is None or r.source not in other else replace(x, read=Read(other[r.source], r.index, r.predicate, r.pad_value))

    stages = [
        replace(
            s,
            before=tuple(map(line, s.before)),
            after=tuple(map(line, s.after)),
            to=tuple([replace(t, target=other.get(t.target, t.target)) for t in s.to]),
        )
        for s in kernel.stages
    ]
    return replace(kernel, stages=tuple(stages))

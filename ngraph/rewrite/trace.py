"""Traces of applied rules: for DEBUG=5, `explain`, and the message when a pass breaks a program. Without a tracer they cost nothing.

with tracing() as trace:
    program = simplify(program)
print(trace)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from ngraph.errors import show_line
from ngraph.op_graph.op import Origin
from ngraph.parts.scopes import ScopedValue
from ngraph.program.program import Step


class Firing(NamedTuple):
    """One application of a rule to a step, and the steps that replace it."""

    rule: str
    step: Step
    made: tuple[Step, ...]

    @property
    def origin(self) -> tuple[Origin, ...]:
        return self.step.origin

    def __str__(self) -> str:
        hint = self.step.results[0].hint if self.step.results else ""
        where = ", ".join(show_line((o.file, o.line)) for o in self.origin[:2] if o.file)
        return f"{self.rule}   at {self.step.op}{f' {hint}' if hint else ''}{f'   {where}' if where else ''}"


@dataclass
class RewriteTrace:
    """The applications within a block, and the number of patterns tried for them."""

    firings: list[Firing] = field(default_factory=list)
    attempts: int = 0
    steps: int = 0  # steps visited by the driver

    def counts(self) -> dict[str, int]:
        """Returns the number of applications of each rule, in the order of their first."""
        found: dict[str, int] = {}
        for f in self.firings:
            found[f.rule] = found.get(f.rule, 0) + 1
        return found

    def __str__(self) -> str:
        return "\n".join(map(str, self.firings)) or "no rule fired"


_current: ScopedValue[RewriteTrace | None] = ScopedValue("ngraph_trace", None)


def current() -> RewriteTrace | None:
    """Returns the active trace; None where there is none."""
    return _current.get()


@contextmanager
def tracing() -> Iterator[RewriteTrace]:
    """Records the driver's actions in this block; an enclosing trace records them, too."""
    outer, trace = _current.get(), RewriteTrace()
    try:
        with _current.of(trace):
            yield trace
    finally:
        if outer is not None:
            outer.firings += trace.firings
            outer.attempts += trace.attempts
            outer.steps += trace.steps

"""What passes read of a program: facts, which the runner computes once for all that need them between two changes."""

from __future__ import annotations

from ngraph.parts.runner import fact
from ngraph.program.program import Program, Step, Value

Makers = dict[Value, Step]
Uses = dict[Value, int]


@fact
def makers(program: Program) -> Makers:
    """The step that gives each value; what comes in is not in it."""
    return {v: s for s in program.steps for v in s.results}


@fact
def uses(program: Program) -> Uses:
    """How often each value is asked for, by steps and from outside; those that nobody asks for are not in it."""
    return program.uses()

"""Facts about programs that passes read: the runner computes each once for all passes between two changes."""

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
    """Returns the number of uses of each value, by steps and as a result; unused values are not in it."""
    return program.uses()

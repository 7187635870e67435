"""The runner of `ngraph.parts` under the settings of this package: `check` and `debug`, and errors that show the user's line."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from ngraph.config import config
from ngraph.errors import ProgramError
from ngraph.op_graph.memory import no_collection
from ngraph.parts import runner
from ngraph.parts.deferred import deferred
from ngraph.parts.runner import BrokenForm, PassError, Ran, form, part
from ngraph.program.program import Program
from ngraph.program.text import text
from ngraph.rewrite.trace import RewriteTrace, tracing

verification = deferred("ngraph.program.verify")


def _verify(program: Program) -> Program:
    verified: Program = verification.verify(program, body=bool(part()))
    return verified


form(Program, "program", "steps", size=lambda p: len(p.steps), text=text, verify=_verify, broken=ProgramError)


def run(value: Any, passes: Iterable[Any], holds: Iterable[str] = (), **given: Any) -> Any:
    """`value`, a program or what is made of it, after these passes. `holds` are the properties that it has already, `given` facts.

    Raises ProgramError before any pass runs where one needs what none before it gives or what one before it loses, naming those that
    would give it; and, under `config(check=True)`, where a pass breaks an invariant, with the pass, the value before it, its rules,
    and the value after it.
    """
    tell = show if config.debug >= 5 else None
    try:
        with no_collection():
            return runner.run(value, passes, given, holds, config.check, tell, tracing)
    except BrokenForm as error:
        raise _broken(error) from error.__cause__
    except PassError as error:
        raise ProgramError(error.message, details=error.details, fix=error.fix) from None


def show(ran: Ran) -> None:
    """Prints a pass, what it took and left, how often each of its rules fired, and what it gave."""
    fired = [f"  {count:6} x {rule}" for rule, count in ran.trace.counts().items()]
    print("\n".join([f"-- after {ran.name}: {ran.size} {ran.form.unit}, {ran.seconds * 1e3:.1f} ms", *fired, ran.text]), file=sys.stderr)


def _broken(error: BrokenForm) -> ProgramError:
    trace: RewriteTrace = error.trace
    made = {s: f.rule for f in trace.firings for s in f.made}
    steps = error.after.steps if isinstance(error.after, Program) else ()
    suspects = list(dict.fromkeys([made[s] for s in steps if s in made]))
    return ProgramError(
        error.message,
        details=(
            f"rules that made steps of it: {', '.join(suspects) or 'none'}",
            f"rules that fired: {', '.join(f'{r} ({n})' for r, n in trace.counts().items()) or 'none'}",
            *error.details,
        ),
        line=getattr(error.__cause__, "line", None),
    )

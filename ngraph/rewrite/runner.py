"""Passes in a row: what each needs and gives, the law checked after each, and what `DEBUG=5` shows.

A pass is a plain function from program to program. `@pass_(needs=("lengths",), gives=("plan order",))` notes on it what must hold
before and what holds after; properties are names that passes agree on, nothing more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from ngraph.config import config
from ngraph.errors import ProgramError
from ngraph.op_graph.memory import no_collection
from ngraph.program.program import Program
from ngraph.program.text import text
from ngraph.program.verify import verify
from ngraph.rewrite.trace import RewriteTrace, tracing

Pass = Callable[[Program], Program]
PASSES: dict[str, Pass] = {}


def pass_(needs: Iterable[str] = (), gives: Iterable[str] = ()) -> Callable[[Callable[..., Any]], Any]:
    """Notes on a function what it needs and gives, and registers it under its own name."""

    def mark(function: Callable[..., Any]) -> Any:
        function.needs, function.gives = tuple(needs), tuple(gives)  # type: ignore[attr-defined]
        return register(function.__name__, function)

    return mark


def register(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a pass known by name, from here or from another package. Raises ValueError where the name is taken."""
    if name in PASSES:
        raise ValueError(f"a pass {name!r} is registered already")
    PASSES[name] = function
    return function


def passes() -> dict[str, Pass]:
    """The registered passes by name, in the order of their registration."""
    return dict(PASSES)


def _function(step: Any) -> Any:
    """What a `functools.partial` was made of; else the pass itself."""
    return getattr(step, "func", step)


def name_of(step: Any) -> str:
    """What a pass is called: its registered name, else that of its function."""
    for name, function in PASSES.items():
        if function is step:
            return name
    return str(getattr(_function(step), "__name__", repr(step)))


def _notes(step: Any, what: str) -> tuple[str, ...]:
    return tuple(getattr(_function(step), what, ()))


def run(program: Program, passes: Iterable[Pass], holds: Iterable[str] = ()) -> Program:
    """`program` after these passes. `holds` are the properties that it has already.

    Raises ProgramError where a pass needs what none before it gives, naming those that would; and, under `config(check=True)`,
    where a pass breaks the program, with the program before, the pass, its rules, and the program after.
    """
    have = list(holds)
    for step in passes:
        for need in _notes(step, "needs"):
            if need not in have:
                givers = [name for name, p in PASSES.items() if need in _notes(p, "gives")]
                raise ProgramError(
                    f"pass {name_of(step)} needs {need!r}, which does not hold here",
                    details=(f"passes before it: {', '.join(have) or 'none that give anything'}",),
                    fix=f"put {' or '.join(givers)} before it" if givers else "no registered pass gives it",
                )
        with no_collection():
            program = _run_one(program, step)
        have += _notes(step, "gives")
    return program


class Ran(NamedTuple):
    """A pass that has run: its name, the program after it, and the rules that fired."""

    name: str
    program: Program
    trace: RewriteTrace


_watched: ContextVar[list[Ran] | None] = ContextVar("ngraph_watched", default=None)


@contextmanager
def watching() -> Iterator[list[Ran]]:
    """A list that `run` fills in this block with each pass that it runs."""
    seen: list[Ran] = []
    token = _watched.set(seen)
    try:
        yield seen
    finally:
        _watched.reset(token)


def _run_one(program: Program, step: Pass) -> Program:
    seen = _watched.get()
    if not (config.check or config.debug >= 5 or seen is not None):
        return step(program)
    with tracing() as trace:
        after = step(program)
    if seen is not None:
        seen.append(Ran(name_of(step), after, trace))
    if config.debug >= 5:
        show(step, trace, after)
    if config.check:
        try:
            verify(after)
        except ProgramError as error:
            raise _broken(step, trace, program, after, error) from error
    return after


def show(step: Pass, trace: RewriteTrace, after: Program) -> None:
    """Prints a pass, how often each of its rules fired, and the program after it."""
    fired = [f"  {count:6} x {rule}" for rule, count in trace.counts().items()]
    print("\n".join([f"-- after {name_of(step)}", *fired, text(after)]), file=sys.stderr)


def _broken(step: Pass, trace: RewriteTrace, before: Program, after: Program, error: ProgramError) -> ProgramError:
    made = {s: f.rule for f in trace.firings for s in f.made}
    suspects = list(dict.fromkeys([made[s] for s in after.steps if s in made]))
    return ProgramError(
        f"pass {name_of(step)} broke the program: {error}",
        details=(
            f"rules that made steps of it: {', '.join(suspects) or 'none'}",
            f"rules that fired: {', '.join(f'{r} ({n})' for r, n in trace.counts().items()) or 'none'}",
            *("before | " + line for line in text(before).splitlines()),
            *("after  | " + line for line in text(after).splitlines()),
        ),
        line=error.line,
    )

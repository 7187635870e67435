"""Passes in a row over any form: what each needs, gives and keeps, the facts that it reads, and who looks on.

    >>> form(list, "list", "items", size=len, text=str)
    >>> total = fact(sum, "total")
    >>> @pass_(gives=("sorted",), keeps=("total",))
    ... def order(items):
    ...     return sorted(items)
    >>> @pass_(needs=("sorted", "total"))
    ... def shares(items, total):
    ...     return [x / total for x in items]
    >>> run([3, 1], Pipeline(order, shares))
    [0.25, 0.75]
    >>> run([3, 1], (shares, order))
    Traceback (most recent call last):
    ngraph.parts.runner.PassError: pass shares needs 'sorted', which no pass before it gives
      fix: put order before it

A form is a type of values that passes take and give: programs, graphs, plans. A property is a name for what holds of a value; each pass
loses those that it does not keep. A fact is a value that a function computes of a form, kept as long as it is true. A pass that reads
one needs it by name and takes it as an argument of that name. The order is checked before the first pass runs.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial, update_wrapper
from typing import Any, NamedTuple

from .scopes import ScopedValue


class PassError(ValueError):
    """Passes in an order that their needs do not allow, or one that broke what it was given.

    message, details, fix   what is wrong, both sides of it, how to put it right
    """

    def __init__(self, message: str, details: tuple[str, ...] = (), fix: str = ""):
        super().__init__(f"{message}\n  fix: {fix}" if fix else message)
        self.message, self.details, self.fix = message, details, fix


class BrokenForm(PassError):
    """The error for a result that violates the invariants of its form; `trace` is the pass's trace, `after` its result."""

    def __init__(self, message: str, details: tuple[str, ...], trace: Any, after: Any):
        super().__init__(message, details)
        self.trace, self.after = trace, after


# ---- forms ----------------------------------------------------------------------------------------------------------------


class Form(NamedTuple):
    """The display and verification of values of one type.

    name, unit   the name of a value, and the unit of its size
    verify       raises `broken` where a value violates an invariant; None where there are none
    mutable      whether passes change the value itself: then its text is taken at once, and facts are lost unless a pass keeps them
    """

    name: str
    unit: str
    size: Callable[[Any], int]
    text: Callable[[Any], str]
    verify: Callable[[Any], Any] | None = None
    broken: type[Exception] = ValueError
    mutable: bool = False


FORMS: dict[type, Form] = {}


def form(kind: type, name: str, unit: str, size: Callable[[Any], int], text: Callable[[Any], str], **more: Any) -> None:
    """Says how values of a type are shown and checked; see `Form`."""
    FORMS[kind] = Form(name, unit, size, text, **more)


def form_of(value: Any) -> Form:
    """Returns the form of this value; a value of an unregistered type counts as mutable, without invariants."""
    return FORMS.get(type(value)) or Form(type(value).__name__, "values", lambda _: 1, repr, mutable=True)


# ---- passes ---------------------------------------------------------------------------------------------------------------


class Pass:
    """A function from a form to a form, and what has been said about it.

    needs   the facts that it reads, which it takes as arguments of their names; properties that a pass before it has to give
    gives   properties that hold after it
    keeps   facts that are the same after it, and properties that hold after it where they did before

    Called with a value alone, outside of a row, it has the facts computed for it.
    """

    def __init__(self, function: Callable[..., Any], needs: Iterable[str], gives: Iterable[str], keeps: Iterable[str], name: str = ""):
        if hasattr(function, "__name__"):
            update_wrapper(self, function)
        self.function, self.name = function, name or str(getattr(function, "__name__", function))
        self.needs, self.gives, self.keeps = tuple(needs), tuple(gives), tuple(keeps)
        taken = list(inspect.signature(function).parameters.values())[1:]
        self.facts = tuple([p.name for p in taken if p.name in self.needs])
        unsaid = [p.name for p in taken if p.name not in self.needs and p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
        if unsaid:
            what = f"pass {self.name} takes {', '.join(unsaid)}, and does not say that it needs {'it' if len(unsaid) == 1 else 'them'}"
            raise PassError(what, fix=f"needs={(*self.needs, *unsaid)!r}")

    def __call__(self, value: Any, *arguments: Any, **named: Any) -> Any:
        known = {name: FACTS[name](value) for name in self.facts[len(arguments) :] if name not in named and name in FACTS}
        made = self.function(value, *arguments, **named, **known)
        if made is None:
            raise PassError(f"pass {self.name} returned None", fix="return the value, the same one where nothing changed")
        return made

    def __repr__(self) -> str:
        return f"<pass {self.name}>"


PASSES: dict[str, Pass] = {}
FACTS: dict[str, Callable[[Any], Any]] = {}


def pass_(needs: Iterable[str] = (), gives: Iterable[str] = (), keeps: Iterable[str] = (), name: str = "") -> Callable[..., Pass]:
    """A decorator that makes a pass of a function, and registers it by its name.

    Raises PassError where the name is taken, or the function takes an argument that is none of its needs.
    """

    def mark(function: Callable[..., Any]) -> Pass:
        made = Pass(function, needs, gives, keeps, name)
        if made.name in PASSES:
            raise PassError(f"a pass {made.name!r} is registered already", fix="give it another name")
        PASSES[made.name] = made
        return made

    return mark


def fact(function: Callable[[Any], Any], name: str = "") -> Callable[[Any], Any]:
    """The function itself, from now on what computes the fact of its name. Raises PassError where the name is taken."""
    name = name or function.__name__
    if name in FACTS:
        raise PassError(f"a fact {name!r} is registered already", fix="give it another name")
    FACTS[name] = function
    return function


def described(step: Any) -> Pass:
    """A pass with what is known of it: `functools.partial` brings facts itself, a plain function needs, gives and keeps nothing."""
    if isinstance(step, Pass):
        return step
    if isinstance(step, partial):
        inner = described(step.func)
        return Pass(step, [n for n in inner.needs if n not in step.keywords], inner.gives, inner.keeps, inner.name)
    return Pass(step, (), (), ())


class Pipeline(tuple[Any, ...]):
    """Passes in a row, as a value. One is named as stages are: `simplify.2` is the second of this name."""

    def __new__(cls, *passes: Any) -> Pipeline:
        return super().__new__(cls, passes)

    @property
    def names(self) -> list[str]:
        return numbered([described(p).name for p in self])

    def replace(self, name: str, *passes: Any) -> Pipeline:
        """The pipeline with these passes in the place of that one. Raises PassError where it is not there."""
        if name not in self.names:
            raise PassError(f"there is no pass {name!r} in the pipeline", fix=f"it has {', '.join(self.names) or 'none'}")
        k = self.names.index(name)
        return Pipeline(*self[:k], *passes, *self[k + 1 :])

    def without(self, name: str) -> Pipeline:
        return self.replace(name)

    def before(self, name: str, *passes: Any) -> Pipeline:
        return self.replace(name, *passes, *self._named(name))

    def after(self, name: str, *passes: Any) -> Pipeline:
        return self.replace(name, *self._named(name), *passes)

    def _named(self, name: str) -> list[Any]:
        return [p for p, own in zip(self, self.names, strict=True) if own == name]

    def __repr__(self) -> str:
        return f"<pipeline {', '.join(self.names)}>"


def numbered(names: Iterable[str]) -> list[str]:
    """The names, each but its first with how often it has stood there: `simplify`, `share`, `simplify.2`."""
    times: dict[str, int] = {}
    found = []
    for name in names:
        times[name] = times.get(name, 0) + 1
        found.append(name if times[name] == 1 else f"{name}.{times[name]}")
    return found


# ---- running --------------------------------------------------------------------------------------------------------------


def check_order(passes: Iterable[Any], given: Iterable[str] = (), holds: Iterable[str] = ()) -> None:
    """Raises PassError where a pass needs what nobody gives before it, or what one before it loses; runs nothing."""
    have, lost = dict.fromkeys(holds, ""), dict[str, str]()
    there = {*given, *FACTS}
    for step in map(described, passes):
        for need in step.needs:
            if need in have or need in there:
                continue
            what = f"pass {step.name} needs {need!r}, which {lost[need] + ' loses' if need in lost else 'no pass before it gives'}"
            held = ", ".join([f"{p} (by {by})" if by else p for p, by in have.items()])
            givers = [p.name for p in PASSES.values() if need in p.gives]
            fix = f"put {' or '.join(givers)} before it" if givers else "no registered pass gives it"
            if need in lost:
                fix += f", behind {lost[need]}; or let {lost[need]} keep it" if givers else f"; let {lost[need]} keep it"
            elif need in step.facts:
                fix = f"give it where the passes are run, as {need}=..., or register what computes it: fact({need})"
            raise PassError(what, (f"what holds before it: {held or 'nothing'}",), fix)
        lost |= {p: step.name for p in have if p not in step.keeps}
        have = {p: by for p, by in have.items() if p in step.keeps} | dict.fromkeys(step.gives, step.name)
        lost = {p: by for p, by in lost.items() if p not in have}


class Ran(NamedTuple):
    """A pass that has run.

    name      its name, behind that of the body in which it ran
    value     what it gave; of a form whose values change later, the text
    trace     what was taken down while it ran
    """

    name: str
    value: Any
    form: Form
    size: int
    seconds: float
    trace: Any

    @property
    def text(self) -> str:
        return self.value if self.form.mutable else self.form.text(self.value)


_watched: ScopedValue[list[Ran] | None] = ScopedValue("ngraph_watched", None)
_inside = ScopedValue("ngraph_inside", "")


def part() -> str:
    """The names that `inside` gives to what runs now, each with a point behind it; "" for the whole."""
    return _inside.get()


@contextmanager
def watching() -> Iterator[list[Ran]]:
    """A list that `run` fills in this block with each pass that it runs."""
    seen: list[Ran] = []
    with _watched.of(seen):
        yield seen


def inside(name: str) -> AbstractContextManager[object]:
    """Names passes that run in this block as those of a part of the whole: `scan.fold`."""
    return _inside.of(f"{part()}{name}.")


def run(
    value: Any,
    passes: Iterable[Any],
    given: Mapping[str, Any] | None = None,
    holds: Iterable[str] = (),
    check: bool = False,
    tell: Callable[[Ran], None] | None = None,
    tracing: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Any:
    """`value` after these passes.

    given     facts that nobody computes, which are true throughout: lengths, a machine
    holds     the properties that `value` has already
    check     verify what each pass gives, and compute the facts anew that it says it keeps
    tell      is called with each pass that has run
    tracing   a block around each pass that looks on or checks, which takes down what happens

    Raises PassError before any pass runs where the order is wrong, BrokenForm where a pass under `check` breaks the invariants of its form.
    """
    steps, given = [described(p) for p in passes], given or {}
    check_order(steps, given, holds)
    known: dict[str, Any] = {}
    for step in steps:
        for name in step.facts:
            if name not in given and name not in known:
                known[name] = FACTS[name](value)
        facts = {name: given[name] if name in given else known[name] for name in step.facts}
        seen = _watched.get()
        after = _look(value, step, facts, check, tell, tracing, seen) if check or tell or seen is not None else step(value, **facts)
        if after is not value or form_of(after).mutable:
            known = {name: found for name, found in known.items() if name in step.keeps}
        value = after
        if check:
            _recomputed(step, value, known)
    return value


def _look(
    value: Any,
    step: Pass,
    facts: dict[str, Any],
    check: bool,
    tell: Callable[[Ran], None] | None,
    tracing: Callable[[], AbstractContextManager[Any]],
    seen: list[Ran] | None,
) -> Any:
    """Runs a pass with checks, timing and tracing; returns its result."""
    before = form_of(value)
    text = before.text(value) if check and before.mutable else ""
    start = time.perf_counter()
    with tracing() as trace:
        after = step(value, **facts)
    seconds, own = time.perf_counter() - start, form_of(after)
    if tell is not None or seen is not None:
        ran = Ran(part() + step.name, own.text(after) if own.mutable else after, own, own.size(after), seconds, trace)
        if seen is not None:
            seen.append(ran)
        if tell is not None:
            tell(ran)
    if check and own.verify is not None:
        try:
            own.verify(after)
        except own.broken as error:
            shown = (("before | ", text or before.text(value)), ("after  | ", own.text(after)))
            lines = [which + line for which, whole in shown for line in whole.splitlines()]
            raise BrokenForm(f"pass {step.name} broke the {own.name}: {error}", tuple(lines), trace, after) from error
    return after


def _recomputed(step: Pass, value: Any, known: Mapping[str, Any]) -> None:
    """Raises PassError where a fact that a pass says it keeps is another now."""
    for name, found in known.items():
        now = FACTS[name](value)
        if now != found:
            details = (f"before: {found!r}"[:200], f"after:  {now!r}"[:200])
            raise PassError(
                f"pass {step.name} says that it keeps {name}, which is another after it", details, f"take {name!r} out of its keeps"
            )

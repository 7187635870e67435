"""`ngraph errors`: the help page of each error, which is its docstring; `--docs` prints the page of the documentation."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

from ngraph import errors as room
from ngraph.errors import NgraphError, NgraphWarning, nearest
from ngraph.verbs import Answer, UsageError, verb

HEAD = """\
# Errors

Printed from the docstrings of the error classes by `ngraph errors --docs`. They stand in `ngraph.errors`; all are `ngraph.NgraphError`,
so one `except` catches them, and most are also one of Python's own.

A message starts with your own line, says what disagreed, shows both sides with axes and lengths and where each was made, and ends with a
fix. Its parts are attributes: `error.line` (file and number), `error.message`, `error.details`, `error.fix`. Most errors are raised when
the graph is built, on the line that is wrong; those about arguments and state when a computation is called. The `ngraph` command shows the
Python traceback of an error in your program under `-v`.
"""


def classes() -> Iterator[type[NgraphError | NgraphWarning]]:
    """Returns the errors that users see, and the warning class, in the order of their file."""
    return (c for c in vars(room).values() if isinstance(c, type) and issubclass(c, NgraphError | NgraphWarning))


def bases(c: type[NgraphError | NgraphWarning]) -> list[str]:
    """Returns the names of Python's own errors among its bases."""
    return [b.__name__ for b in c.__bases__ if b.__module__ == "builtins"]


def page() -> str:
    """Returns the pages of all errors as `docs/errors.md`."""
    parts = [HEAD]
    for c in classes():
        also = "".join(f" (also a `{b}`)" for b in bases(c) if b != "Exception")
        parts.append(f"## {c.__name__}{also}\n\n{cleandoc(c.__doc__ or '')}\n")
    return "\n".join(parts)


def _arguments(parser: Any) -> None:
    parser.add_argument("name", nargs="?", help="one of them; all without this")
    parser.add_argument("--docs", action="store_true", help="as the page of the documentation has them")


@verb("errors", "print what each error means and how to fix it", _arguments)
def errors(arguments: Any) -> Answer:
    """Runs `ngraph errors`, `ngraph errors AxisError`, `ngraph errors --docs`."""
    chosen = [c for c in classes() if arguments.name in (None, c.__name__)]
    if not chosen:
        names = [c.__name__ for c in classes()]
        near = nearest(arguments.name, names)
        raise UsageError(f"there is no error {arguments.name!r}; there are {', '.join(names)}", fix=f"did you mean {near}?" if near else "")
    data = [{"error": c.__name__, "also": bases(c), "help": cleandoc(c.__doc__ or "")} for c in chosen]
    if arguments.docs:
        return Answer(page().rstrip("\n"), data)
    return Answer("\n\n".join(f"{d['error']}\n{d['help']}" for d in data), data)

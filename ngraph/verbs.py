"""The verbs of the `ngraph` command: a registry to which any room, or another package, adds.

    @verb("size", "count the ops of a graph", lambda parser: parser.add_argument("program"))
    def size(arguments): return Answer("12 ops", {"ops": 12})

The command imports the modules in its table and those under the entry point group `ngraph.verbs`.

Words: docs/glossary.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ngraph.errors import NgraphError


class Answer(NamedTuple):
    """The result of a verb: text for a person, and the same as data for `--json`."""

    text: str
    data: Any


class UsageError(NgraphError, ValueError):
    """A request of the command for something that does not exist; the message lists what does, and the exit status is 2."""


class Verb(NamedTuple):
    """One verb: `arguments` adds its options to an argparse parser, `run` takes the parsed arguments."""

    name: str
    help: str
    arguments: Callable[[Any], Any]
    run: Callable[[Any], Answer]


REGISTRY: dict[str, Verb] = {}


def verb(name: str, help: str, arguments: Callable[[Any], Any] = lambda parser: None) -> Callable[[Callable[[Any], Answer]], Any]:
    """Registers the decorated function as a verb. Raises ValueError where the name is taken."""

    def add(run: Callable[[Any], Answer]) -> Callable[[Any], Answer]:
        if name in REGISTRY:
            raise ValueError(f"a verb {name!r} is registered already")
        REGISTRY[name] = Verb(name, help, arguments, run)
        return run

    return add

"""The verbs of the `ngraph` command, a registry that any room, or another package, adds to.

    @verb("size", "count the ops of a graph", lambda parser: parser.add_argument("program"))
    def size(arguments): return Answer("12 ops", {"ops": 12})

The command imports the modules that its table names and those under the entry point group `ngraph.verbs`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ngraph.errors import NgraphError


class Answer(NamedTuple):
    """What a verb found: text for a person, and the same as data for `--json`."""

    text: str
    data: Any


class UsageError(NgraphError, ValueError):
    """The command was asked for something that is not there; it says what is, and exits with 2."""


class Verb(NamedTuple):
    """One verb: `arguments` adds its options to an argparse parser, `run` takes what was parsed."""

    name: str
    help: str
    arguments: Callable[[Any], Any]
    run: Callable[[Any], Answer]


REGISTRY: dict[str, Verb] = {}


def verb(name: str, help: str, arguments: Callable[[Any], Any] = lambda parser: None) -> Callable[[Callable[[Any], Answer]], Any]:
    """Registers the function under it as a verb. Raises ValueError where the name is taken."""

    def add(run: Callable[[Any], Answer]) -> Callable[[Any], Answer]:
        if name in REGISTRY:
            raise ValueError(f"a verb {name!r} is registered already")
        REGISTRY[name] = Verb(name, help, arguments, run)
        return run

    return add

"""The `ngraph` command: finds the verb, runs it, prints its answer.

Exit code 0: done. 1: the user's program, or what it was asked to do, failed. 2: the command was called wrongly.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import entry_points

from ngraph import __version__
from ngraph.errors import NgraphError
from ngraph.verbs import REGISTRY, UsageError

# each registers its verbs when imported
MODULES = tuple(f"ngraph.tools.{m}" for m in ("cache", "doctor", "errors", "explain", "graph", "models", "ops", "rooms"))


def load_verbs() -> None:
    """Imports every module that registers a verb: ours, and those of other packages."""
    for module in MODULES:
        importlib.import_module(module)
    for point in entry_points(group="ngraph.verbs"):
        point.load()


def parser() -> argparse.ArgumentParser:
    """The command line, with one sub-command per registered verb."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print data instead of text")
    common.add_argument("-v", "--verbose", action="store_true", help="show the Python traceback of an error")
    whole = argparse.ArgumentParser(prog="ngraph", description="Looks into programs written with ngraph.")
    whole.add_argument("--version", action="version", version=f"ngraph {__version__}")
    verbs = whole.add_subparsers(dest="verb", required=True, metavar="VERB")
    for v in REGISTRY.values():
        v.arguments(verbs.add_parser(v.name, help=v.help, description=v.help[0].upper() + v.help[1:] + ".", parents=[common]))
    return whole


def red(text: str) -> str:
    """In red where the terminal shows colours and nobody said NO_COLOR (https://no-color.org)."""
    return f"\x1b[31m{text}\x1b[0m" if sys.stderr.isatty() and not os.environ.get("NO_COLOR") else text


def complain(kind: str, error: BaseException, verbose: bool) -> None:
    """The error in one paragraph; its traceback only where it was asked for."""
    if verbose:
        traceback.print_exception(error)
    else:
        print(f"{red(kind)}: {error}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and gives its exit code."""
    load_verbs()
    given = parser().parse_args(arguments)
    try:
        answer = REGISTRY[given.verb].run(given)
        print(json.dumps(answer.data, indent=2) if given.json else answer.text)
        sys.stdout.flush()
    except UsageError as error:
        complain("ngraph", error, given.verbose)
        return 2
    except BrokenPipeError:  # the reader of our output, such as `head`, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (NgraphError, OSError) as error:
        complain(type(error).__name__, error, given.verbose)
        return 1
    return 0

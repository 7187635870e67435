"""The `ngraph` command: finds the verb, runs it, prints its answer.

Exit code 0: done. 1: the user's program or model, or the operation, failed. 2: the command line was wrong. 130: interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import json
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from ngraph import __version__
from ngraph.errors import ENDS, NgraphError
from ngraph.op_graph.files import told
from ngraph.verbs import REGISTRY, Answer, UsageError

# each module registers its verbs when imported; only that of the given verb is, so that the command starts fast
MODULES = {
    "cache": "cache",
    "completion": "completion",
    "doctor": "doctor",
    "errors": "errors",
    "explain": "explain",
    "graph": "graph",
    "inside": "profile view",
    "models": "info check run bench diff convert",
    "ops": "ops",
    "rooms": "rooms",
}


UNEXPECTED = "unexpected"
INTERRUPTED = 130  # 128 and the number of the signal, as shells have it


def load_verbs(wanted: str = "") -> None:
    """Imports the module of one of ngraph's verbs; without one every module that registers verbs, those of other packages included."""
    own = [module for module, verbs in MODULES.items() if wanted in verbs.split()]
    for module in own or MODULES:
        importlib.import_module(f"ngraph.tools.{module}")
    if not own:
        for point in importlib.import_module("importlib.metadata").entry_points(group="ngraph.verbs"):
            point.load()


class Parser(argparse.ArgumentParser):
    """A parser whose errors are printed as all others are."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses as `argparse` does; for an unknown option of a verb, the error names the nearest one."""
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            near = difflib.get_close_matches(rest[0].partition("=")[0], self._option_string_actions, 1)
            self.error(f"unrecognized arguments: {' '.join(rest)}" + (f"\ndid you mean {near[0]}?" if near else ""))
        return found, rest

    def error(self, message: str) -> NoReturn:
        """Raises UsageError; the fix is the second line of a message, or the nearest of the allowed words."""
        said, _, fix = message.removeprefix("argument MODEL: ").partition("\n")
        found = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)$", said)
        near = difflib.get_close_matches(found[1], re.findall(r"[\w-]+", found[2]), 1, 0.5) if found else []
        fix = fix or (f"did you mean {near[0]}?" if near else f"`{self.prog} --help` says what it takes")
        raise UsageError(said, fix=fix)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line, with one sub-command per registered verb."""
    common = Parser(add_help=False)
    common.add_argument("--json", action="store_true", help="print data instead of text")
    common.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    common.add_argument("-v", "--verbose", action="store_true", help="show the Python traceback of an error")
    whole = Parser(prog="ngraph", description="Runs models, and looks into programs written with ngraph.")
    whole.add_argument("--version", action="version", version=f"ngraph {__version__}")
    verbs = whole.add_subparsers(dest="verb", required=True, metavar="VERB")
    for v in sorted(REGISTRY.values()):
        about = v.help[0].upper() + v.help[1:] + "."
        v.arguments(verbs.add_parser(v.name, help=v.help, description=about, epilog=v.run.__doc__, parents=[common]))
    return whole


def red(text: str) -> str:
    """Returns the text in red where the terminal shows colours and NO_COLOR is not set (https://no-color.org)."""
    return f"\x1b[31m{text}\x1b[0m" if sys.stderr.isatty() and not os.environ.get("NO_COLOR") else text


def say(text: str) -> None:
    """Writes text to stdout, with question marks for unsupported letters. Raises FileError where it cannot be written."""
    if sys.stdout is None:  # closed by the parent process
        return
    coding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        with told("stdout", "written"):
            print(text.encode(coding, "replace").decode(coding), flush=True)
    except OSError:  # Python would write the rest once more at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def complain(kind: str, error: BaseException, given: Any) -> None:
    """Prints the error in one paragraph, with its traceback where -v is given, and as data on stdout where --json is."""
    message = str(error)
    if isinstance(error, OSError) and not isinstance(error, NgraphError) and error.filename is not None:
        message = f"{error.filename}: {error.strerror}"
    if kind == UNEXPECTED:
        message = f"{type(error).__name__}: {message} (an internal error of ngraph; -v shows the traceback)"
    if given.verbose:
        traceback.print_exception(error)
    else:
        print(f"{red(kind)}: {message}", file=sys.stderr)
    if given.json:
        parts = {"message": message, "details": list(getattr(error, "details", ())), "fix": getattr(error, "fix", "")}
        with contextlib.suppress(OSError):
            say(json.dumps({"error": {"kind": kind, **parts}}, indent=2))


def answered(given: Any) -> int:
    """Runs a verb and prints its answer; returns the exit code."""
    try:
        answer: Answer = REGISTRY[given.verb].run(given)
        if not given.quiet:
            say(json.dumps(answer.data, indent=2) if given.json else answer.text)
        return 0
    except UsageError as error:
        complain("ngraph", error, given)
        return 2
    except BrokenPipeError:  # the reader of the output, such as `head`, has ended
        return 0
    except (NgraphError, OSError) as error:
        complain(type(error).__name__, error, given)
    except Exception as error:
        complain(UNEXPECTED, error, given)
    return 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    try:
        return done(list(sys.argv[1:] if arguments is None else arguments) or ["--help"])
    except KeyboardInterrupt:
        print(red("ngraph") + ": interrupted", file=sys.stderr)
        return INTERRUPTED


def done(words: Sequence[str]) -> int:
    """Runs a command line and returns its exit code."""
    try:
        load_verbs(words[0])
        given = parser().parse_args(words)
    except SystemExit as stop:  # --help and --version
        return int(stop.code or 0)
    except UsageError as error:
        complain("ngraph", error, argparse.Namespace(verbose=False, json="--json" in words))
        return 2
    return answered(given)


ENDS.add(id(main.__code__))

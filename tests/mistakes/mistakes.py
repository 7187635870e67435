"""Mistakes that users make, in files by area, each with the message that it must give and the fix that must work.

The format of `AREA.txt`, one mistake after another:

    === title of the mistake
    program; the line with the mistake ends with  # <- here
    --- fix
    what replaces the marked line, as the message's fix advises; nothing where no line of code is the fix
    --- says
    the message, written by `make goldens` and then read aloud

A program is a file `model.py` in an empty current folder, with `np`, `ng` (ngraph) and `ngt` (ngraph.transformers) bound. A line
`$ ngraph WORDS` runs the command.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import os
import re
import shlex
import tempfile
import warnings
from contextvars import copy_context
from typing import NamedTuple
from unittest import mock

import numpy as np

import ngraph as ng
import ngraph.transformers as ngt
from ngraph import warn
from ngraph.config import config
from ngraph.errors import NgraphError, NgraphWarning
from ngraph.frontends.neon import graph
from ngraph.tools.main import main
from ngraph.transformers.base import TRANSFORMERS

FOLDER = os.path.dirname(os.path.abspath(__file__))
MARK = re.compile(r"\s*# <- here$")
NUMBERED = re.compile(r"\b(Axis|scope|role)_\d+")  # names that nobody gave, by a count over the whole process


class Mistake(NamedTuple):
    """One of an area: its title, the program and the fix as lines, the number of the marked line, the message that is expected."""

    title: str
    program: tuple[str, ...]
    line: int
    fix: tuple[str, ...]
    says: str

    @property
    def mended(self) -> tuple[str, ...]:
        """The program with the fix in place of the marked line."""
        return (*self.program[: self.line - 1], *self.fix, *self.program[self.line :])

    def text(self, says: str) -> str:
        """The mistake as it stands in its file, with this message."""
        return "\n".join([f"=== {self.title}", *self.program, "--- fix", *self.fix, "--- says", says, ""])


class Told(NamedTuple):
    """What a user is told: the message with the name of its class in front, and the place that it blames."""

    message: str
    place: tuple[str, int] | None


class CommandFailed(Exception):
    """The command wrote this message, and its exit code was not 0."""


def read(text: str, area: str) -> list[Mistake]:
    """The mistakes of an area's text. Raises ValueError where one is not in the format."""
    found = []
    for part in re.split(r"^=== ", text, flags=re.M)[1:]:
        title, *lines = part.rstrip().split("\n")
        try:
            fix, says = lines.index("--- fix"), lines.index("--- says")
            program = lines[:fix]
            (line,) = [n for n, said in enumerate(program, 1) if MARK.search(said)]
        except ValueError as error:
            raise ValueError(f"{area}.txt, {title!r}: one line marked `# <- here`, `--- fix` and `--- says` are wanted") from error
        found.append(Mistake(title, tuple(program), line, tuple(lines[fix + 1 : says]), "\n".join(lines[says + 1 :]).strip("\n")))
    return found


def areas() -> list[str]:
    """The names of the areas."""
    return sorted(name.removesuffix(".txt") for name in os.listdir(FOLDER) if name.endswith(".txt"))


def of_area(area: str) -> list[Mistake]:
    with open(os.path.join(FOLDER, f"{area}.txt"), encoding="utf-8") as file:
        return read(file.read(), area)


def _command(words: str) -> None:
    """Runs the `ngraph` command. Raises CommandFailed with what it wrote where its exit code is not 0."""
    wrote = io.StringIO()
    with contextlib.redirect_stderr(wrote), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = main(shlex.split(words, comments=True))
        except SystemExit as exit:  # of argparse
            code = exit.code
    if code:
        raise CommandFailed(wrote.getvalue().strip())


def _place(error: BaseException) -> tuple[str, int] | None:
    """The line of model.py that an error went through last."""
    at, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "model.py":
            at = ("model.py", trace.tb_lineno)
        trace = trace.tb_next
    return at


def _run(program: tuple[str, ...], folder: str) -> list[Told]:
    source = "\n".join(program) + "\n"
    linecache.cache["model.py"] = (len(source), None, source.splitlines(keepends=True), "model.py")
    python = re.sub(r"^\$ ngraph (.*)$", lambda found: f"_command({found[1]!r})", source, flags=re.M)
    names = {"__name__": "__main__", "__file__": "model.py", "np": np, "ng": ng, "ngt": ngt, "_command": _command}
    told = []
    warn.forget()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            exec(compile(python, "model.py", "exec"), names)
        except CommandFailed as error:
            told.append(Told(str(error), _place(error)))
        except NgraphError as error:
            told.append(Told(f"{type(error).__name__}: {error}", error.line))
        except Exception as error:  # one of ours did not see it: the test says so
            told.append(Told(f"{type(error).__name__}: {error} (no NgraphError)", None))
    for w in warned:
        if issubclass(w.category, NgraphWarning):
            told.append(Told(f"NgraphWarning: {w.filename}:{w.lineno}: {w.message}", (w.filename, w.lineno)))
        elif not issubclass(w.category, (DeprecationWarning, PendingDeprecationWarning, FutureWarning)):  # those of other packages
            told.append(Told(f"{w.category.__name__}: {w.message} (no NgraphWarning)", None))
    return [Told(NUMBERED.sub(r"\1_#", t.message.replace(folder, "FOLDER")), t.place) for t in told]


def run(program: tuple[str, ...]) -> list[Told]:
    """All that a user is told who runs these lines as model.py in an empty folder."""
    back = os.getcwd()
    own = {name: cls for name, cls in TRANSFORMERS.items() if cls.__module__.startswith("ngraph.")}  # without those of other tests
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ),
        mock.patch.dict(TRANSFORMERS, own, clear=True),
        mock.patch.dict(config._given, clear=True),  # so that the program's environment is read
        mock.patch.dict(graph._top, clear=True),  # numbers of layers begin at 0, so that their names are always the same
    ):
        os.chdir(folder)
        try:
            return copy_context().run(_run, program, folder)
        finally:
            os.chdir(back)
            linecache.cache.pop("model.py", None)

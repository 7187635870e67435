"""Objects from a user's program: runs the file and finds the object that `model.py:train` names.

The file runs as the module `__explain__`, so code under `if __name__ == "__main__":` does not run. Its output goes to
stderr; its folder comes first on the path, as when Python runs it.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from collections.abc import Callable
from typing import Any

from ngraph.errors import NgraphError, nearest
from ngraph.frontends.positional import formats
from ngraph.op_graph.files import told
from ngraph.verbs import UsageError


class ProgramFailed(NgraphError):
    """An error of the user's program itself; the message shows the line."""


def run_file(path: str) -> dict[str, Any]:
    """Returns the names that the program defines. Raises UsageError where there is no such file, ProgramFailed where it fails."""
    if not os.path.isfile(path):
        folder = os.path.isdir(path)
        raise UsageError(
            f"{path} is a folder" if folder else f"there is no file {path}",
            fix="name a file in it" if folder else "give the path of a file that is there",
        )
    if not path.endswith(".py") and formats.known(path):
        raise UsageError(f"{path} is a model, no program", fix="`ngraph explain`, `info`, `view`, `run` and `profile` take its path alone")
    with told(path, "read"), open(path, "rb"):
        pass
    before, arguments = list(sys.path), sys.argv
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    sys.argv = [path]
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return runpy.run_path(path, run_name="__explain__")
    except NgraphError:
        raise
    except SystemExit as stop:
        if stop.code not in (None, 0):
            raise ProgramFailed(f"the program stopped itself with {stop.code!r}", line=(path, 1)) from stop
        raise UsageError(f"{path} stops itself before its end, so nothing can be looked at") from stop
    except Exception as error:
        raise ProgramFailed(f"{type(error).__name__}: {error}", line=_last_line(error, path)) from error
    finally:
        sys.path[:], sys.argv = before, arguments


def _last_line(error: Exception, path: str) -> tuple[str, int]:
    """Returns the deepest line of the program itself in the error's traceback."""
    where, trace = 1, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            where = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.lineno is not None:
        where = error.lineno
    return path, where


def a(word: str) -> str:
    """Returns a word with its article."""
    return f"{'an' if word[0].lower() in 'aeiou' else 'a'} {word}"


def find(target: str, wanted: Callable[[Any], bool], what: str, best: Callable[[Any], bool] = lambda x: True) -> Any:
    """Returns the object that `prog.py:name` names (`name` may have dots); without a name, the only wanted one, or the only best one.

    Raises UsageError that lists the program's objects.
    """
    path, _, name = target.rpartition(":") if ":" in target and not os.path.exists(target) else (target, "", "")
    names = run_file(path)
    there = [n for n, v in names.items() if not n.startswith("_") and wanted(v)]
    likely = [n for n in there if best(names[n])] or there
    instead = f"as in {path}:{nearest(name, there) or likely[0]}" if there else ""
    listed = f"{path} has {', '.join(there)}" if there else f"{path} has none"
    if not name:
        if len(likely) != 1:
            raise UsageError(f"say which {what}, as in {path}:{likely[0] if likely else 'name'}; {listed}")
        return names[likely[0]]
    first, *rest = name.split(".")
    try:
        found = names[first]
        for attribute in rest:
            found = getattr(found, attribute)
    except (KeyError, AttributeError):
        raise UsageError(f"{path} defines no {name}; it has to be {a(what)}; {listed}", fix=instead) from None
    if not wanted(found):
        raise UsageError(f"{name} in {path} is {a(type(found).__name__)}, no {what}; {listed}", fix=instead)
    return found

"""Warnings: valid programs that are probably not intended. Each is shown once for each of the user's lines.

`ng.config(warnings="off")` silences them for a block, `warnings="always"` repeats them, `strict=True` makes them errors.

Words: docs/glossary.md.
"""

from __future__ import annotations

import warnings

from ngraph.config import config
from ngraph.errors import Line, NgraphError, NgraphWarning, user_line

_shown: set[tuple[Line | None, str]] = set()


def warn(
    message: str, *, fix: str = "", details: tuple[str, ...] = (), line: Line | None = None, error: type[NgraphError] = NgraphError
) -> None:
    """Issues the warning `message` at the user's line (or at `line`, a file and a number), with both sides in `details` and a fix.

    Raises `error` with the same text where `ng.config(strict=True)` holds.
    """
    at = line if line is not None else user_line()
    if config.strict:
        raise error(message, fix=fix, details=details, line=at)
    if config.warnings == "off" or (config.warnings == "once" and (at, message) in _shown):
        return
    _shown.add((at, message))
    text = "\n".join([message, *("    " + d for d in details), *([f"  fix: {fix}"] if fix else [])])
    file, number = at or ("<unknown>", 0)
    warnings.warn_explicit(text, NgraphWarning, file, number)


def forget() -> None:
    """Resets the set of shown warnings, as in a new process; for tests."""
    _shown.clear()

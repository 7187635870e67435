"""The files of ngraph's own modules: keys of the cache cover their content.

`ngraph/__init__.py` imports this module before any other, so that `BEGAN` is earlier than the others' reading.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from importlib.machinery import all_suffixes

HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BEGAN = time.time_ns()
TICK = 20_000_000  # nanoseconds by which a file's time may lag behind the clock: two ticks of the slowest kernel clock, 100 Hz
PACKAGE = __name__.partition(".")[0] + "."  # begins the names of the modules
COARSE = 2_000_000_000  # nanoseconds within which two changes may have one time: the resolution of the coarsest file system

Modules = dict[str, tuple[int, ...]]


def modules() -> Modules:
    """Returns all files that Python could import from this package: their time of writing, in nanoseconds, length and location.

    Raises OSError where the package is not in a folder, but in an archive, say.
    """
    suffixes, folders, found = tuple(all_suffixes()), [HOME], Modules()
    for folder in folders:
        with os.scandir(folder) as entries:
            for e in entries:
                if e.name.endswith(suffixes):
                    s = e.stat()
                    found[e.path[len(HOME) + 1 :]] = s.st_ctime_ns, s.st_mtime_ns, s.st_size, s.st_ino, s.st_dev
                elif e.name != "__pycache__" and e.is_dir():
                    folders.append(e.path)
    return dict(sorted(found.items()))


def contents(found: Modules) -> Iterator[bytes]:
    """Yields path and content of each, in turn. Raises OSError."""
    for path in found:
        yield path.encode()
        with open(os.path.join(HOME, path), "rb") as file:
            yield file.read()


def newest(found: Modules) -> int:
    """Returns the time at which the last of them was written."""
    return max([when for when, *_ in found.values()], default=BEGAN)


def unchanged() -> bool:
    """Whether no module was written between the beginning of this process and its reading, so that it runs the files' content."""
    global _unchanged
    new = [name for name in list(sys.modules) if name not in _checked and name.startswith(PACKAGE)]  # the rest was read before its check
    try:
        for path in [getattr(sys.modules.get(name), "__file__", None) for name in new]:
            _unchanged = _unchanged and (path is None or os.stat(path).st_ctime_ns < BEGAN - TICK)
    except OSError:
        _unchanged = False
    _checked.update(new)
    return _unchanged


_unchanged, _checked = True, set[str]()  # at the last check, and the modules that were checked so far

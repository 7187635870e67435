"""Files that the command reads and writes: paths are checked before any computation, and errors show them as they were typed."""

from __future__ import annotations

import argparse
import errno
import io
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ngraph.errors import nearest
from ngraph.op_graph.files import refused, told, write_whole
from ngraph.verbs import UsageError

# by extension: what to do with files that are not models
OTHERS = {".py": "`ngraph explain` and `ngraph graph` look into programs", ".npz": "arrays go with --inputs"}


def existing(path: str) -> str:
    """Returns the path of an existing file; for another, argparse reports it with the nearest existing one."""
    if os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"{path} is a folder\nname a file in it")
    if os.path.exists(path) and not os.path.isfile(path):
        raise argparse.ArgumentTypeError(f"{path} is a pipe or a device\nwrite its content to a file, and name that")
    if not os.path.isfile(path):
        folder, name = os.path.split(path)
        there = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
        near = nearest(name, there)
        fix = f"there is {os.path.join(folder, near)}" if near else "give the path of a file that is there"
        raise argparse.ArgumentTypeError(f"there is no file {path}\n{fix}")
    return path


def model_file(path: str) -> str:
    """Returns the path of an existing file that may be a model; `prog.py:name`, as `explain` takes it, is none."""
    program = path.rpartition(":")[0]
    ending = os.path.splitext(program if program.endswith(".py") and os.path.isfile(program) else existing(path))[1].lower()
    if ending in OTHERS:
        raise argparse.ArgumentTypeError(f"{path} is not a model\n{OTHERS[ending]}")
    return path


def number_from(least: float, whole: bool = True) -> Callable[[str], Any]:
    """Returns a converter for argparse: a number of at least `least` if it is an integer, else a finite number above it."""

    def read(word: str) -> int | float:
        try:
            found: int | float = int(word) if whole else float(word)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{word!r} is not a {'whole ' if whole else ''}number") from None
        if not (found >= least if whole else least < found < math.inf):
            raise argparse.ArgumentTypeError(f"{word} is {'below' if whole else 'not a number above'} {least:g}")
        return found

    return read


def check_output(path: str | None, *endings: str, reads: Mapping[str, str | None] | None = None) -> None:
    """Checks a path that is to be written later: its extension, its folder, and that it is not an input of the command.

    endings   its allowed extensions; any without them. reads: the role and path of each file that the command reads
    Raises UsageError, FileError.
    """
    if path is None:
        return
    if os.path.isdir(path):
        raise refused(path, "written", IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)))
    if endings and not path.lower().endswith(endings):
        wanted = os.path.splitext(path)[0] + endings[0]
        free = wanted not in (reads or {}).values()
        raise UsageError(f"{path} does not end in {' or '.join(endings)}", fix=f"call it {wanted}" if free else "name another file")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise refused(path, "written", FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise refused(path, "written", PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    for what, read in (reads or {}).items():
        if read is not None and os.path.exists(path) and os.path.exists(read) and os.path.samefile(path, read):
            raise UsageError(f"{path} is {what}, and would be written over", fix="name another file")


def write(path: str, content: str | bytes | memoryview) -> None:
    """Writes a file atomically; a pipe or another device is written directly. Raises FileError."""
    data = content.encode() if isinstance(content, str) else content
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        with told(path, "written"), open(path, "wb") as file:
            file.write(data)
    else:
        write_whole(path, bytes(data))


def write_arrays(path: str, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Writes arrays as an .npz file under their names, of any characters. Raises FileError."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)
    write(path, made.getvalue())


def read_arrays(path: str) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the arrays of an .npz file by name. Raises UsageError where it is none, FileError."""
    try:
        with told(path, "read"), open(path, "rb") as opened:
            file = np.load(opened, allow_pickle=False)
            return {name: file[name] for name in file.files}
    except (ValueError, TypeError, AttributeError, EOFError, zipfile.BadZipFile, NotImplementedError, zlib.error):
        raise UsageError(f"{path} is not a .npz file of plain arrays", fix="make one with np.savez(path, **{name: array})") from None

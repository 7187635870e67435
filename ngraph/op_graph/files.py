"""Atomic file writes: content goes to a temporary name beside its destination and is moved there.

Errors of the operating system are reported with the user's own path.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from ngraph.errors import FileError
from ngraph.parts.deferred import deferred

try:
    import fcntl
except ImportError:  # without file locks, temporary files of killed savers stay
    fcntl = None  # type: ignore[assignment]  # a module elsewhere

difflib = deferred("difflib")  # for a file that is not there
TEMPORARY = r"\.{}(\.[0-9a-f]{{12}}\.safetensors)?\.[0-9a-f]{{16}}\.tmp"  # temporary names of a file, or of the arrays beside it


@contextmanager
def told(path: str | os.PathLike[str], doing: str) -> Iterator[None]:
    """Surrounds file operations on `path`. Raises FileError where one fails; `doing` is the verb: "read", "written"."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise refused(path, doing, error) from None


def refused(path: str | os.PathLike[str], doing: str, error: OSError) -> FileError:
    """Returns the error for a file that cannot be `doing`, with the system's reason."""
    why = error.strerror or str(error)
    made = _kind(type(error))(f"{os.fspath(path)} cannot be {doing}: {why[:1].lower()}{why[1:]}", fix=_fix(os.fspath(path), doing, error))
    made.errno, made.strerror, made.filename = error.errno, error.strerror, os.fspath(path)
    return made


_kinds: dict[type[OSError], type[FileError]] = {OSError: FileError}


def _kind(of: type[OSError]) -> type[FileError]:
    """Returns the subclass of FileError that is also this error of the system."""
    if of not in _kinds:
        _kinds[of] = type("FileError", (FileError, of), {"__module__": FileError.__module__})
    return _kinds[of]


def _fix(path: str, doing: str, error: OSError) -> str:
    folder, name = os.path.split(path)
    if error.errno == errno.EISDIR or os.path.isdir(path):
        return f"name a file in this folder: {os.path.join(path, 'NAME')!r}"
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return "name a folder, or make it one: a file stands there"
    if folder and not os.path.exists(folder):
        return f"make the folder before: os.makedirs({folder!r})" if doing == "written" else f"there is no folder {folder!r}"
    if error.errno == errno.ENOENT and doing == "read":
        with suppress(OSError):
            near = difflib.get_close_matches(name, os.listdir(folder or "."), 1, 0.5)
            return f"there is {os.path.join(folder, near[0])!r}" if near else "write it first, or give the path of a file that is there"
    return ""


@contextmanager
def saving(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yields the destination of a file about to be written, with links resolved, and removes temporary files of killed savers.

    Savers share a lock on the folder; a saver that gets it exclusively knows that no other is active, so such files are left over.
    Raises FileError where something else than a file stands at `path`.
    """
    given, path = path, os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise refused(given, "written", OSError(errno.EISDIR if os.path.isdir(path) else errno.EINVAL, "it is not a regular file"))
    folder, name = os.path.split(path)
    handle = None
    with suppress(OSError):  # a folder that cannot be read or locked: nothing is removed
        handle = os.open(folder, os.O_RDONLY)
        if fcntl is not None:
            _clean(handle, folder, TEMPORARY.format(re.escape(name)))
    try:
        yield path
    finally:
        if handle is not None:
            os.close(handle)


def _clean(handle: int, folder: str, pattern: str) -> None:
    """Removes left-over temporary files if no other saver is active, and registers this saver in any case."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in os.listdir(folder):
            if re.fullmatch(pattern, name):
                with suppress(OSError):
                    os.unlink(os.path.join(folder, name))
    except BlockingIOError:
        pass
    fcntl.flock(handle, fcntl.LOCK_SH)


@contextmanager
def written(path: str | os.PathLike[str], chunks: Iterable[bytes]) -> Iterator[None]:
    """Atomically replaces the file at `path` with these bytes when the block ends, synced to disk. Permissions are kept.

    The file stays unchanged where the bytes cannot be written, or the block raises. Raises FileError.
    """
    with saving(path) as place:
        folder, name = os.path.split(place)
        temporary = os.path.join(folder, f".{name}.{os.urandom(8).hex()}.tmp")
        try:
            with told(path, "written"), open(temporary, "xb") as f:
                with suppress(FileNotFoundError):
                    os.chmod(temporary, stat.S_IMODE(os.stat(place).st_mode))
                f.writelines(chunks)
                f.flush()
                os.fsync(f.fileno())
            yield
            with told(path, "written"):
                os.replace(temporary, place)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        with suppress(OSError):  # a folder that cannot be read
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Atomically replaces the file at `path` with `content`, synced to disk. Raises FileError."""
    with written(path, [content]):
        pass

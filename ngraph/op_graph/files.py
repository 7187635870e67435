"""Files that are whole at every moment: written under a temporary name beside their place, then moved there.

What the system refuses is told by the user's own path.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from ngraph.errors import FileError

try:
    import fcntl
except ImportError:  # no such locks here: what killed savers leave then stays
    fcntl = None  # type: ignore[assignment]

TEMPORARY = r"\.{}(\.[0-9a-f]{{12}}\.safetensors)?\.[0-9a-f]{{16}}\.tmp"  # of a file, or of arrays that lie beside it


@contextmanager
def told(path: str | os.PathLike[str], doing: str) -> Iterator[None]:
    """Around what the system does with the file at `path`; raises FileError where it cannot be `doing`: "read", "written"."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise refused(path, doing, error) from None


def refused(path: str | os.PathLike[str], doing: str, error: OSError) -> FileError:
    """The error for a file that cannot be `doing`, and why."""
    why = error.strerror or str(error)
    made = _kind(type(error))(f"{os.fspath(path)} cannot be {doing}: {why[:1].lower()}{why[1:]}", fix=_fix(os.fspath(path), doing, error))
    made.errno, made.strerror, made.filename = error.errno, error.strerror, os.fspath(path)
    return made


_kinds: dict[type[OSError], type[FileError]] = {OSError: FileError}


def _kind(of: type[OSError]) -> type[FileError]:
    """FileError, which is the system's error too."""
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
    """The place where a file is about to be written, links followed. Temporary files of savers that were killed are removed.

    Savers share a lock on the folder, and who gets it alone knows that all such files are nobody's.
    Raises FileError where something else than a file stands at `path`.
    """
    given, path = path, os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise refused(given, "written", OSError(errno.EISDIR if os.path.isdir(path) else errno.EINVAL, "this is no place for a file"))
    folder, name = os.path.split(path)
    handle = None
    with suppress(OSError):  # a folder that cannot be read, or not be locked: then nothing is removed
        handle = os.open(folder, os.O_RDONLY)
        if fcntl is not None:
            _clean(handle, folder, TEMPORARY.format(re.escape(name)))
    try:
        yield path
    finally:
        if handle is not None:
            os.close(handle)


def _clean(handle: int, folder: str, pattern: str) -> None:
    """Removes these files if nobody else is saving; in any case, from here on somebody is."""
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
    """Where the block ends, the file at `path` becomes these bytes, which are on the disk by then. It keeps its permissions.

    It stays as it was where they cannot be written, or the block raises. Raises FileError.
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
    """The file at `path` becomes `content`, on the disk, or stays as it was, whatever happens meanwhile. Raises FileError."""
    with written(path, [content]):
        pass

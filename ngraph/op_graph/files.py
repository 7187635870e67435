"""Files that are whole at every moment: written under a temporary name beside their place, then moved there."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

try:
    import fcntl
except ImportError:  # no such locks here: what killed savers leave then stays
    fcntl = None  # type: ignore[assignment]

TEMPORARY = r"\.{}(\.[0-9a-f]{{12}}\.safetensors)?\.[0-9a-f]{{16}}\.tmp"  # of a file, or of arrays that lie beside it


@contextmanager
def saving(path: str | os.PathLike[str]) -> Iterator[str]:
    """The place where a file is about to be written, links followed. Temporary files of savers that were killed are removed.

    Savers share a lock on the folder, and who gets it alone knows that all such files are nobody's.
    Raises OSError where something else than a file stands at `path`.
    """
    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(errno.EISDIR if os.path.isdir(path) else errno.EINVAL, "this is no place for a file", path)
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

    It stays as it was where they cannot be written, or the block raises. Raises OSError.
    """
    with saving(path) as place:
        folder, name = os.path.split(place)
        temporary = os.path.join(folder, f".{name}.{os.urandom(8).hex()}.tmp")
        try:
            with open(temporary, "xb") as f:
                with suppress(FileNotFoundError):
                    os.chmod(temporary, stat.S_IMODE(os.stat(place).st_mode))
                f.writelines(chunks)
                f.flush()
                os.fsync(f.fileno())
            yield
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
    """The file at `path` becomes `content`, on the disk, or stays as it was, whatever happens meanwhile. Raises OSError."""
    with written(path, [content]):
        pass

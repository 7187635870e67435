"""Arrays by reference: how graphs and programs hold constants without copying or comparing large ones.

Those of a file are mapped: they take pages of it, which the system has anyway and may drop, and no memory of their own.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from ngraph.errors import ParseError
from ngraph.op_graph.dtypes import DType, as_dtype

SMALL = 64  # bytes: an array up to this size stands in a program by value
LINE = 64  # bytes: where vectors read well


class MappedFile(mmap.mmap):
    """A file's bytes. Whoever reads them `check`s before: a file that became shorter has no bytes to give, and ends the process."""

    path: str
    was: tuple[int, ...]

    @staticmethod
    def of(path: str | os.PathLike[str]) -> MappedFile | bytes:
        """The file at `path`, mapped once however often it is asked for; an empty one cannot be. Raises OSError."""
        with open(path, "rb") as file:
            was = _state(os.fstat(file.fileno()))
            if not was[-1]:
                return b""
            found = _maps.get(was)
            if found is None:
                found = _maps[was] = MappedFile(file.fileno(), 0, access=mmap.ACCESS_READ)
                found.path, found.was = os.fspath(path), was
            return found

    def check(self) -> None:
        """Raises ParseError where the file was written since; a new one in its place does no harm."""
        try:
            now = _state(os.stat(self.path))
        except OSError:
            return
        if now[:2] == self.was[:2] and now != self.was:
            raise ParseError(f"{self.path} has changed since it was read", fix="read it again; write new files beside, and move them there")

    def let_go(self) -> None:
        """Its pages are not wanted for now."""
        _let_go(self)


class Pages(NamedTuple):
    """A file's bytes that NumPy has mapped for reading: `np.memmap(…, mode="r")`, `np.load(…, mmap_mode="r")`."""

    held: mmap.mmap
    path: str
    end: int  # bytes that the file has at least

    def check(self) -> None:
        """Raises ParseError where the file became shorter: it then has no bytes to give, and who asks for them ends the process."""
        if self.held.size() < self.end:
            fix = "give a copy of the array, or write new files beside and move them there"
            raise ParseError(f"{self.path} was mapped, and has become shorter since", fix=fix)

    def let_go(self) -> None:
        """Its pages are not wanted for now."""
        _let_go(self.held)


def _let_go(pages: mmap.mmap) -> None:
    if hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)


_maps: WeakValueDictionary[tuple[int, ...], MappedFile] = WeakValueDictionary()


def _state(s: os.stat_result) -> tuple[int, ...]:
    return s.st_dev, s.st_ino, s.st_mtime_ns, s.st_size


def content_of(array: np.ndarray) -> MappedFile | Pages | bytes | None:
    """The file or the bytes in which an array lies, that nobody changes through it; None for other arrays."""
    x: Any = array
    last: Any = None
    while isinstance(x, np.ndarray) and not x.flags.writeable:
        last, x = x, x.base
    if isinstance(x, memoryview):
        x = x.obj
    if type(x) is mmap.mmap and isinstance(last, np.memmap) and last.mode == "r":
        return Pages(x, os.fspath(last.filename or "a file"), last.offset + last.nbytes)
    return x if isinstance(x, (MappedFile, bytes)) else None


def file_of(array: np.ndarray) -> MappedFile | Pages | None:
    """The file in which an array lies, if it does."""
    held = content_of(array)
    return None if isinstance(held, bytes) else held


@contextmanager
def reading(array: np.ndarray) -> Iterator[None]:
    """Around what reads all of an array: its file, where it lies in one, is looked at before, and its pages are let go afterwards."""
    held = file_of(array)
    if held is not None:
        held.check()
    yield
    if held is not None:
        held.let_go()


def settled(array: np.ndarray) -> np.ndarray:
    """The array in memory and order that many reads bear well: dense, no longer in a file, from there to a line of the cache."""
    if content_of(array) is None and array.flags.c_contiguous and array.flags.aligned:
        return array
    room = np.empty(array.nbytes + LINE, np.uint8)
    start = -room.ctypes.data % LINE
    made = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    with reading(array):
        made[...] = array
    return made


class ArrayRef:
    """An array by reference. Small ones compare by value, large ones by identity; never written to."""

    __slots__ = ("array", "name", "_key")

    def __init__(self, array: np.ndarray, name: str = ""):
        array = np.asarray(array)
        if array.nbytes <= SMALL or not (array.flags.owndata or content_of(array) is not None):
            array = array.copy()
        array.flags.writeable = False
        self.array, self.name = array, name
        self._key = (array.dtype.str, array.dtype.name, array.shape, array.tobytes()) if array.nbytes <= SMALL else None

    @property
    def small(self) -> bool:
        return self._key is not None

    @property
    def dtype(self) -> DType:
        return as_dtype(self.array.dtype)

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is ArrayRef and self._key is not None and self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key) if self._key is not None else id(self)

    def __repr__(self) -> str:
        return f"ArrayRef({self.array.dtype}{list(self.array.shape)}{' ' + self.name if self.name else ''})"

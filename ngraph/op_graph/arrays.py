"""Arrays by reference: graphs and programs hold constants without copying or comparing large ones.

Arrays in files are memory-mapped: they use the system's page cache, which it may drop, and no memory of their own.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from ngraph.errors import ParseError
from ngraph.op_graph.dlpack import exchange_api, view
from ngraph.op_graph.dtypes import DType, as_dtype

SMALL = 64  # bytes: an array up to this size is stored in a program by value
LINE = 64  # bytes: alignment for vector loads, one cache line


class MappedFile(mmap.mmap):
    """A memory-mapped file. Readers call `check` first: reading past the end of a file that was truncated ends the process (SIGBUS)."""

    path: str
    was: tuple[int, ...]
    hashed: bytes | None

    @staticmethod
    def of(path: str | os.PathLike[str]) -> MappedFile | bytes:
        """Returns the file at `path`, mapped once for all callers; an empty file, which cannot be mapped, gives b"". Raises OSError."""
        with open(path, "rb") as file:
            was = _state(os.fstat(file.fileno()))
            if not was[-1]:
                return b""
            found = _maps.get(was)
            if found is None:
                found = _maps[was] = MappedFile(file.fileno(), 0, access=mmap.ACCESS_READ)
                found.path, found.was, found.hashed = os.fspath(path), was, None
            return found

    def check(self) -> None:
        """Raises ParseError where the file was written since it was mapped; a new file at the same path does no harm."""
        now = _now(self.path)
        if now[:2] == self.was[:2] and now != self.was:
            raise ParseError(f"{self.path} has changed since it was read", fix="read it again; write new files beside, and move them there")

    def digest(self) -> bytes:
        """Returns a hash of the content, computed once. Raises ParseError where the file was written since it was mapped."""
        self.check()
        if self.hashed is None:
            self.hashed = hashlib.sha256(self).digest()
        return self.hashed

    def let_go(self) -> None:
        """Tells the system that the pages are not needed for now."""
        _let_go(self)


class Pages(NamedTuple):
    """A file that NumPy has mapped for reading: `np.memmap(…, mode="r")`, `np.load(…, mmap_mode="r")`."""

    held: mmap.mmap
    path: str
    end: int  # bytes that the file must have at least
    was: tuple[int, ...]  # the state of the file at this path when this mapping was first seen

    @staticmethod
    def of(held: mmap.mmap, path: str, end: int) -> Pages:
        was = _met.get(held)
        if was is None:
            was = _met[held] = _now(path)
        return Pages(held, path, end, was)

    def check(self) -> None:
        """Raises ParseError where the file was truncated, since reading past its end ends the process (SIGBUS).

        It raises, too, where the file was written: values read earlier would not agree with values read now.
        """
        fix = "give a copy of the array, or write new files beside and move them there"
        if self.held.size() < self.end:
            raise ParseError(f"{self.path} was mapped, and has become shorter since", fix=fix)
        now = _now(self.path)
        if now[:2] == self.was[:2] and now != self.was:
            raise ParseError(f"{self.path} was mapped, and was written since", fix=fix)

    def let_go(self) -> None:
        """Tells the system that the pages are not needed for now."""
        _let_go(self.held)


def _let_go(pages: mmap.mmap) -> None:
    if hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)


_maps: WeakValueDictionary[tuple[int, ...], MappedFile] = WeakValueDictionary()
_met: WeakKeyDictionary[mmap.mmap, tuple[int, ...]] = WeakKeyDictionary()


def _state(s: os.stat_result) -> tuple[int, ...]:
    return s.st_dev, s.st_ino, s.st_mtime_ns, s.st_size


def _now(path: str) -> tuple[int, ...]:
    """Returns the state of the file at a path: device, inode, modification time and size; () where there is no file."""
    try:
        return _state(os.stat(path))
    except OSError:
        return ()


def content_of(array: np.ndarray) -> MappedFile | Pages | bytes | None:
    """Returns the file or bytes that hold an array which nobody can change, through it or through any other array; None for other arrays.

    A read-only flag alone is not enough: its owner can lift the flag, and views made earlier may be writable.
    """
    x: Any = array
    last: Any = None
    while isinstance(x, np.ndarray) and not x.flags.writeable:
        last, x = x, x.base
    if isinstance(x, memoryview):
        x = x.obj
    if type(x) is mmap.mmap and isinstance(last, np.memmap) and last.mode == "r":
        return Pages.of(x, os.fspath(last.filename or "a file"), last.offset + last.nbytes)
    return x if isinstance(x, (MappedFile, bytes)) else None


def immutable(array: np.ndarray) -> np.ndarray:
    """Returns the array itself where nobody can write its memory, else a dense copy that nobody can write; object arrays unchanged."""
    if array.dtype.hasobject or content_of(array) is not None:
        return array
    return np.ndarray(array.shape, array.dtype, array.tobytes())


def as_array(x: Any) -> np.ndarray:
    """Returns `x` as an array: by DLPack's C exchange API, `__array__` or `__dlpack__`; the result may share memory with `x`.

    Raises ArgumentError for an array without host memory of a known dtype, and what `__array__` and `__dlpack__` raise.
    """
    if isinstance(x, (np.ndarray, np.generic)):
        return np.asarray(x)
    api = exchange_api(type(x))
    if api is not None:
        return view(x, api)
    if hasattr(x, "__dlpack__") and not hasattr(x, "__array__"):
        return np.from_dlpack(x)
    return np.asarray(x)


def slowest_first(strides: Sequence[int]) -> tuple[int, ...]:
    """Returns dims in the order in which they lie in memory, the slowest first, by the elements or bytes from one place to the next."""
    return tuple(sorted(range(len(strides)), key=lambda k: -strides[k]))


def file_of(array: np.ndarray) -> MappedFile | Pages | None:
    """Returns the file in which an array lies; None where it lies in memory."""
    held = content_of(array)
    return None if isinstance(held, bytes) else held


@contextmanager
def reading(array: np.ndarray) -> Iterator[None]:
    """Surrounds a read of a whole array: checks its file, where it lies in one, before the read, and releases the pages afterwards."""
    held = file_of(array)
    if held is not None:
        held.check()
    yield
    if held is not None:
        held.let_go()


def settled(array: np.ndarray) -> np.ndarray:
    """Returns the array prepared for many reads: dense, in memory rather than in a file, aligned to a cache line."""
    if content_of(array) is None and array.flags.c_contiguous and array.flags.aligned:
        return array
    room = np.empty(array.nbytes + LINE, np.uint8)
    start = -room.ctypes.data % LINE
    made = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    with reading(array):
        made[...] = array
    return made


class ArrayRef:
    """An array by reference, never written to. Small arrays compare by value, large ones by identity.

    The array is copied where somebody else might write it: unless it is `ours` alone, bytes, or a mapped file.
    """

    __slots__ = ("array", "name", "_key")

    def __init__(self, array: np.ndarray, name: str = "", ours: bool = False):
        array = np.asarray(array)
        if array.nbytes <= SMALL or not (ours and array.flags.owndata or content_of(array) is not None):
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

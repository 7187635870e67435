"""An index of compiled programs for calls of a model file, searched before the file's graph is read or its reader imported.

An entry of the cache maps a file's content, the inputs of a call, and everything else that matters (sources, compiler, the package that
reads the format, target, machine, settings) to the plan and to the locations of its large arrays: in the model's own files, of
which nothing is stored twice, or in the entry, if reading has computed them. Only models for which shapes alone determine the program
have entries; others are read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache as once
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ngraph.config import config
from ngraph.frontends.positional.ports import About, Port
from ngraph.op_graph.arrays import MappedFile, content_of
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.files import told
from ngraph.runtime.cache import cache, digest, makers

if TYPE_CHECKING:
    from ngraph.frontends.positional.formats import Format

KIND = "models"
MAX_HASHED_BYTES = 64 << 20  # bytes of a file from which on its content is not looked at, but when it was written
SEARCHED = 1 << 12  # bytes of an array from which on it is looked for in the file, where the parser has copied it
STORED = 32 << 20  # bytes of arrays that an entry holds at most


class DirectCall(NamedTuple):
    """A straight way: a callable, the slots that it takes, and which of what it gives is which output."""

    call: Callable[..., Any]
    takes: tuple[int, ...]
    order: tuple[int, ...]


class ArrayLocation(NamedTuple):
    """The location of an array: the file, -1: the entry, the offset of its first byte, and its strides where it is not dense."""

    file: int
    start: int
    strides: tuple[int, ...] | None = None


class ModelIndex:
    """The entries of one model file for one transformer."""

    def __init__(self, path: str, file: MappedFile, package: bytes, facts: Any, options: str):
        self.folder, self.files = os.path.dirname(os.path.abspath(path)), {"": file}
        self.key, self.facts = digest(makers(), package, repr((facts, options)).encode(), identity(file)), facts
        self.asked = False

    @staticmethod
    def of(source: Any, transformer: Any, format: Format, indices: str = "raise") -> ModelIndex | None:
        """That of a path, read as a format; None where nothing is kept. Raises FileError where the file cannot be read."""
        if not isinstance(source, (str, os.PathLike)) or cache().folder is None:
            return None
        facts, version = transformer.facts(), installed(format.package) if format.package else b""
        main = format.main(source)
        if not facts or not version or os.path.isdir(main):
            return None
        with told(main, "read"):
            file = MappedFile.of(main)
        return ModelIndex(os.fspath(main), file, version, facts, indices + format.options(source)) if isinstance(file, MappedFile) else None

    # ---- what is there
    def about(self) -> About | None:
        """Returns the model's inputs and outputs, after checking that its external data is unchanged; None for a miss."""
        found = self._read(digest(self.key, b"about"), lambda entry, _: (beside(self.folder, entry["files"]), ported(entry["about"])))
        if found is None or found[0] is None:
            self.asked = True  # what it leads to is made again with it
            return None
        self.files |= found[0]
        return found[1]

    def find(self, slots: Mapping[int, Any], transformer: Any) -> DirectCall | None:
        """Returns the compiled call for such inputs; None for a miss."""
        self.asked = True
        if transformer.facts() != self.facts:
            return None

        def way(entry: Any, stored: memoryview) -> DirectCall | None:
            contents = [stored, *self.files.values()]
            arrays = [placed(contents[p[0] + 1], p[1], name, shape, p[2]) for p, name, shape in entry["arrays"]]
            call = transformer.recall(entry["kept"], arrays)
            return None if call is None else DirectCall(call, tuple(entry["takes"]), tuple(entry["order"]))

        return self._read(self._key(slots), way)

    def _key(self, slots: Mapping[int, Any]) -> bytes:
        inputs = [(k, as_dtype(a.dtype).name, a.shape) for k, a in sorted(slots.items())]
        return digest(self.key, repr((config.lengths, inputs)).encode(), *[identity(f) for f in self.files.values()])

    def _read(self, key: bytes, made: Callable[[Any, memoryview], Any]) -> Any:
        data = cache().find(key, KIND)
        if data is None:
            return None
        try:
            head, _, stored = data.partition(b"\n")
            return made(json.loads(head), memoryview(stored))
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError):  # its checksum is right, and still it says nothing
            cache().drop(KIND, key)
            return None

    # ---- what is added
    def keep(self, about: About, external: Iterable[str], slots: Mapping[int, Any], way: DirectCall, transformer: Any) -> None:
        """Adds what a call of these inputs was compiled to, if a later process can do with it."""
        plain = all(type(a) is np.ndarray and not a.dtype.hasobject for a in slots.values())
        files = beside(self.folder, dict.fromkeys(external))
        kept = transformer.keep(way.call, [slots[k] for k in way.takes]) if plain and transformer.facts() == self.facts else None
        if kept is None or files is None:
            return
        self.files |= files
        blob = bytearray()
        finder = Finder(list(self.files.values()))
        arrays = []
        for ref in kept[1]:
            a = ref.array
            place = finder.place(a)
            if place is None:
                place = ArrayLocation(-1, len(blob))
                blob += a.tobytes()
            arrays.append((place, as_dtype(a.dtype).name, a.shape))
        if len(blob) > STORED:
            return
        entry = {"kept": kept[0], "arrays": arrays, "takes": way.takes, "order": way.order}
        names = {name: identity(file).hex() for name, file in self.files.items() if name}
        cache().keep(KIND, digest(self.key, b"about"), packed({"about": [about.name, *written(about)], "files": names}))
        cache().keep(KIND, self._key(slots), packed(entry, blob))


def packed(entry: Any, blob: bytes | bytearray = b"") -> bytes:
    return json.dumps(entry).encode() + b"\n" + blob


def written(about: About) -> list[list[Any]]:
    """Its ports, in words that JSON has."""
    return [[(*p[:3], None if p.dtype is None else p.dtype.name, p.kind) for p in group] for group in about[1:]]


def ported(given: Sequence[Any]) -> About:
    """Returns a model's inputs and outputs from their stored form."""
    name, *groups = given
    return About(name, *[tuple([Port(n, t, s if s is None else tuple(s), _dtype(d), k) for n, t, s, d, k in g]) for g in groups])


def _dtype(name: str | None) -> Any:
    try:
        return None if name is None else as_dtype(name).np
    except TypeError:  # of strings, of complex numbers
        return np.dtype(name)


def placed(content: Any, start: int, dtype: str, shape: Sequence[int], strides: Sequence[int] | None = None) -> np.ndarray:
    """The array that lies there. Raises ValueError where the file has no room for it."""
    of = as_dtype(dtype).np
    if strides is not None:
        made: np.ndarray = np.ndarray(tuple(shape), of, content, start, tuple(strides))
        made.flags.writeable = False
        return made
    size = int(np.prod(shape, dtype=object)) * of.itemsize
    return np.frombuffer(content, np.uint8, size, start).view(of).reshape(shape)


# ---- files


@once
def installed(package: str) -> bytes:
    """Returns the version of a package, by the names and sizes of its files; b"" where there is none. It is not imported."""
    found = PathFinder.find_spec(package)
    if found is None or found.origin is None:
        return b""
    home = os.path.dirname(found.origin)
    names = [f.name for f in os.scandir(os.path.dirname(home)) if f.name.startswith(f"{package}-")]
    return repr((sorted(names), sorted((f.name, f.stat().st_size) for f in os.scandir(home) if f.is_file()))).encode()


def identity(file: MappedFile) -> bytes:
    """Returns the identity of a file: a hash of its content; for large files location, length and time of writing."""
    if len(file) <= MAX_HASHED_BYTES:
        return file.digest()
    file.check()
    return repr(file.was).encode()


def beside(folder: str, names: Mapping[str, str | None]) -> dict[str, MappedFile] | None:
    """The files of these names, if they are there, and are what they were where that is told."""
    found: dict[str, MappedFile] = {}
    for name, was in names.items():
        try:
            file = MappedFile.of(os.path.join(folder, name))
        except OSError:
            return None
        if isinstance(file, MappedFile):
            if was is not None and identity(file).hex() != was:
                return None
            found[name] = file
    return found


class Finder:
    """Finds arrays in files: mapped ones by their address, those that a parser has copied by their content."""

    def __init__(self, files: Sequence[MappedFile]):
        self.files = files
        self.starts = [np.frombuffer(f, np.uint8, 1).ctypes.data for f in files]
        self.at = 0  # where the last one ended: they come in the order of the file, mostly

    def place(self, array: np.ndarray) -> ArrayLocation | None:
        held, dense = content_of(array), array.flags.c_contiguous
        if isinstance(held, MappedFile):
            k = next((k for k, f in enumerate(self.files) if f is held), None)
            if k is None or min(array.strides, default=0) < 0:
                return None
            return ArrayLocation(k, array.ctypes.data - self.starts[k], None if dense else array.strides)
        if held is None or array.nbytes < SEARCHED or not dense:
            return None
        content, file = array.tobytes(), self.files[0]
        for start in (self.at, 0):
            found = file.find(content, start)
            if found >= 0:
                self.at = found + len(content)
                return ArrayLocation(0, found)
        return None

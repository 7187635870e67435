"""The compilation cache: objects of kernels and plans, in this process and in a folder.

    cache().objects(texts, target)       the object of each kernel's text; new ones are compiled, as texts come
    cache().plan(program, facts, make)   the plan that `make()` gave for a structurally equal program, with any names
    cache().planned(key, names)          the same without the program: by the key of `plan_key`, and names for it
    cache().keep(kind, key, data)        bytes of any kind, and `find(key, kind)` again

The folder (`config.cache`) holds one file for each entry: a head with the entry's key and a checksum, and the content. A file that is
truncated, changed, of another version or another user's is not an entry. Files are created atomically, by renaming, and are written and
deleted under a lock that the system releases when a process ends; the least recently used are deleted first.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import io
import itertools
import os
import pickle
import re
import struct
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache as once
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from ngraph.config import config
from ngraph.op_graph.arrays import SMALL, ArrayRef
from ngraph.op_graph.dtypes import REGISTRY as DTYPES
from ngraph.op_graph.dtypes import DType, as_dtype
from ngraph.op_graph.op import Origin
from ngraph.op_graph.opdef import OPS, foreign
from ngraph.plan.kernels import Buffer, Local, Plan
from ngraph.program.program import AxisId, Program, State, Step
from ngraph.program.text import _Printer
from ngraph.runtime.host import jit, worker
from ngraph.runtime.host.workers import llvm_folder, workers
from ngraph.runtime.sources import BEGAN, COARSE, TICK, contents, modules, newest, unchanged
from ngraph.targets import Cpu
from ngraph.warn import warn

try:
    import fcntl
except ImportError:  # no Linux: nothing is compiled there
    fcntl = None  # type: ignore[assignment]  # a module elsewhere

FORMAT = b"ngraph 1"
HASH = 32  # bytes of a digest
HEAD = struct.Struct("<8s32s32sQ")  # format, key, checksum of the content, its length
KINDS = ("objects", "plans", "graphs", "machines", "tunings", "models", "sources", "texts")
NEW = ".new"  # a file that is being written
MAX_FOLDER_BYTES = 1 << 30  # bytes in the folder
IN_PROCESS = 64 << 20  # bytes kept in this process
LOCK_TIMEOUT_SECONDS = 2.0  # seconds to wait for another process's lock; after that the entry is not written
_ENTRY = re.compile(rf"[0-9a-f]{{64}}(?:{re.escape(NEW)})?")


def digest(*parts: bytes) -> bytes:
    """Returns one hash of several parts."""
    return digest_of(parts)


def digest_of(parts: Iterable[bytes]) -> bytes:
    """Returns the hash of parts that come one by one, so that they need not be in memory together."""
    h = hashlib.blake2b(digest_size=HASH)
    for part in parts:
        h.update(len(part).to_bytes(8, "little"))
        h.update(part)
    return h.digest()


# ---- parts of keys


@once
def compiler() -> bytes:
    """Returns a digest of the compiler: LLVM, by its package's version and its library's size, and the module that calls it. No import."""
    folder, parts = llvm_folder(), []
    for path in (os.path.join(folder, "_version.py"), worker.__file__):
        with open(path, "rb") as file:
            parts.append(file.read())
    libraries = os.path.join(folder, "binding")
    sizes = [f"{f} {os.path.getsize(os.path.join(libraries, f))}" for f in sorted(os.listdir(libraries)) if f.startswith("libllvmlite")]
    return digest(*parts, *[s.encode() for s in sizes])


@once
def sources() -> bytes:
    """Returns a digest of ngraph's own modules; one of this process alone where they cannot be read, or were written since it began.

    They are read once: the folder records the digest for files of these names, lengths and times.
    """
    try:
        found, folder = modules(), cache().folder
        if newest(found) >= BEGAN - TICK:
            return os.urandom(HASH)
        key = digest(repr(found).encode())
        noted = None if folder is None else folder.read("sources", key)
        if noted is None or len(noted) != HASH:
            noted = digest_of(contents(found))
            if folder is not None and newest(found) < time.time_ns() - COARSE:
                folder.put("sources", {key: noted})
        return noted
    except OSError:
        return os.urandom(HASH)


@once
def _makers() -> bytes:
    return digest(sources(), compiler(), *[v.encode() for v in (np.__version__, ml_dtypes.__version__, sys.version)])


@once
def _makers_with(version: int) -> bytes:
    """Returns `makers` at a version of the facts about ops: files of other packages that fill some in are included."""
    parts = []
    for fact in sorted(foreign(), key=lambda f: (f.column, f.name, f.level)):
        parts.append(f"{fact.column} {fact.name} {fact.level} {fact.where}".encode())
        try:
            with open(fact.where.rpartition(":")[0], "rb") as file:
                parts.append(file.read())
        except OSError:  # typed in: the source cannot be compared next time
            parts.append(os.urandom(HASH))
    return digest(_makers(), *parts) if parts else _makers()


def makers() -> bytes:
    """Returns a digest of everything that affects compilation: ngraph itself, LLVM, NumPy with its narrow dtypes, which fold constants,
    Python, and the files of other packages with facts about ops."""
    return _makers_with(OPS.version)


class _Canonical(_Printer):
    """Prints structurally equal programs alike: numbers for axes, arrays and state, no names, no origins."""

    def __init__(self, outer: _Canonical | None = None):
        super().__init__(False, True, outer)
        self.axis_names: dict[str, str] = outer.axis_names if outer else {}
        self.refs: dict[ArrayRef, int] = outer.refs if outer else {}
        self.steps: list[Step] = outer.steps if outer else []
        self.hints: list[str] = outer.hints if outer else []

    def program(self, p: Program) -> str:
        self.steps += p.steps
        self.hints += [v.hint for v in p.sources()]
        self.hints += [v.hint for s in p.steps for v in s.results]
        number = {s.name: str(k) for k, s in enumerate(p.state_in)}
        bare = p.with_(
            hints={a: a for a in p.axes},
            state_in=tuple([State(number[s.name], s.value) for s in p.state_in]),
            state_out=tuple([(number[name], v) for name, v in p.state_out]),
        )
        return self.lines(bare)

    def axis(self, a: str) -> str:
        found = self.axis_names.get(a)
        if found is None:
            found = self.axis_names[a] = f"a{len(self.axis_names)}"
        return found

    def defined(self, v: Any) -> str:
        shown = self.types.get(v.type)
        if shown is None:
            shown = self.types[v.type] = f"{v.type.dtype.name}[{', '.join(map(self.axis, v.type.axes))}]"
        return f"{self.names[v]} : {shown}"

    def attr(self, a: Any, s: Any) -> str:
        return _Canonical(self).program(a) if type(a) is Program else super().attr(a, s)

    def array(self, ref: ArrayRef) -> str:
        if ref.small:
            return super().array(ref)
        return f"array({self.refs.setdefault(ref, len(self.refs))} {ref.dtype.name} {list(ref.array.shape)})"


# ---- plans as bytes, for any structurally equal program


class ProgramNames(NamedTuple):
    """The parts of a plan that come from its program, each by its number. Axes and large arrays are required, the rest is for people."""

    axes: Sequence[str]
    arrays: Sequence[ArrayRef]
    states: Sequence[str] = ()
    values: Sequence[str] = ()
    origins: Sequence[tuple[Origin, ...]] = ()


def program_fingerprint(program: Program) -> tuple[bytes, ProgramNames]:
    """Returns the structural hash of a program, and its names for its parts."""
    found = _meant.get(program)
    if found is None:
        canonical = _Canonical()
        text = canonical.program(program)
        states, origins = [s.name for s in program.state_in], [s.origin for s in canonical.steps]
        names = ProgramNames([*canonical.axis_names], [*canonical.refs], states, canonical.hints, origins)
        found = _meant[program] = digest(text.encode()), names
    return found


_meant: weakref.WeakKeyDictionary[Program, tuple[bytes, ProgramNames]] = weakref.WeakKeyDictionary()


class _Of(NamedTuple):
    """A name from the program: of a "state", a "value", or an array ("name"), by number."""

    what: str
    number: int


class _Dump(pickle.Pickler):
    """Pickles parts of the program (axes, arrays, names, origins) as numbers."""

    def __init__(self, file: io.BytesIO, names: ProgramNames):
        super().__init__(file, 5)
        self.table: dict[tuple[Any, ...], int] = {}
        self.axes = {a: k for k, a in enumerate(names.axes)}
        self.refs = {ref: k for k, ref in enumerate(names.arrays)}
        self.state = {name: _Of("state", k) for k, name in enumerate(names.states)}
        self.values = {hint: _Of("value", k) for k, hint in reversed(list(enumerate(names.values))) if hint}
        self.arrays = {ref.name: _Of("name", k) for ref, k in self.refs.items() if ref.name}
        self.origins: dict[Origin, tuple[int, int]] = {}
        for k, of in enumerate(names.origins):
            for j, o in enumerate(of):
                self.origins.setdefault(o, (k, j))

    def _number(self, *what: Any) -> Any:
        """Returns a part of the program as its place in `table`, which is written first."""
        return _part, (self.table.setdefault(what, len(self.table)),)

    def reducer_override(self, x: Any) -> Any:
        """Returns how an object is written; pickle calls this for no text, number or plain container."""
        how = _HOW.get(type(x))
        if how is None:
            how = _HOW[type(x)] = _Dump._as_array if isinstance(x, np.generic | np.ndarray) else _Dump._as_pickle_does
        return how(self, x)

    def _as_pickle_does(self, x: Any) -> Any:
        return NotImplemented

    def _axis(self, x: AxisId) -> Any:
        return self._number("axis", self.axes[x]) if x in self.axes else self._number("own", str(x))

    def _ref(self, x: ArrayRef) -> Any:
        return self._number("array", self.refs[x]) if x in self.refs else (_ref, (x.array, x.name))

    def _origin(self, x: Origin) -> Any:
        return self._number("origin", *self.origins[x]) if x in self.origins else NotImplemented

    def _dtype(self, x: DType) -> Any:
        return self._number("dtype", x.name)

    def _of(self, x: _Of) -> Any:
        return self._number(*x)

    def _plan(self, x: Plan) -> Any:
        state = tuple([(self.state.get(name, name), before, after) for name, before, after in x.state])
        return _plan, (), {**vars(x), "state": state, "guesses": {}}

    def _buffer(self, x: Buffer) -> Any:
        slots = {f: getattr(x, f) for f in Buffer.__slots__}
        known = (self.values, self.state, self.arrays) if x.storage == "input" else (self.state, self.arrays, self.values)
        slots["name"] = next((names[x.name] for names in known if x.name in names), x.name)
        return _buffer, (type(x) is Local,), (None, slots)

    def _as_array(self, x: Any) -> Any:
        if x.nbytes > SMALL:  # the key does not cover its content
            raise pickle.PicklingError("a plan holds a large array that is not its program's")
        return _array, (as_dtype(x.dtype), x.shape, x.tobytes(), isinstance(x, np.generic))


_HOW: dict[type, Callable[[_Dump, Any], Any]] = {  # how objects of a type are written; others are added as they come
    AxisId: _Dump._axis,
    ArrayRef: _Dump._ref,
    Origin: _Dump._origin,
    DType: _Dump._dtype,
    _Of: _Dump._of,
    Plan: _Dump._plan,
    Buffer: _Dump._buffer,
    Local: _Dump._buffer,
}


def _part(number: int) -> Any:
    """Stands in an entry for a part of the program; `_Load` finds it."""
    raise LookupError(number)


def _plan() -> Plan:
    return Plan.__new__(Plan)


def _buffer(local: bool) -> Buffer:
    return (Local if local else Buffer).__new__(Local if local else Buffer)


def _ref(array: np.ndarray, name: str) -> ArrayRef:
    return ArrayRef(array, name)


def _array(dtype: DType, shape: tuple[int, ...], data: bytes, scalar: bool) -> Any:
    made = np.frombuffer(data, dtype.np).reshape(shape)
    return made[()] if scalar else made


class _Load(pickle.Unpickler):
    """Unpickles only records of ngraph, and entries of a table."""

    def __init__(self, file: io.BytesIO, table: Sequence[Any]):
        super().__init__(file)
        self.table = table

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name) if module.startswith("ngraph.") else None
        if found is _part:
            return self.table.__getitem__
        if found in (_plan, _buffer, _ref, _array) or isinstance(found, type) and found.__module__.startswith("ngraph."):
            return found
        raise pickle.UnpicklingError(f"an entry of the cache holds {module}.{name}")


def dumped(made: Any, names: ProgramNames) -> bytes:
    file = io.BytesIO()
    dump = _Dump(file, names)
    dump.dump(made)
    return pickle.dumps(list(dump.table)) + file.getvalue()


def loaded(data: bytes, names: ProgramNames) -> Any:
    """Returns the object that was dumped, with these names. Raises any exception of pickle."""
    axes = frozenset(names.axes)

    def origin(k: int, j: int) -> Origin:
        of = names.origins[k] if k < len(names.origins) else ()
        return of[min(j, len(of) - 1)] if of else Origin("", "", "", 0)

    def own(name: str) -> AxisId:
        if name in axes:
            raise pickle.UnpicklingError(f"the plan has an axis {name} of its own, and so has the program")
        return AxisId(name)

    kinds: dict[str, Callable[..., Any]] = {
        "axis": lambda k: AxisId(names.axes[k]),
        "own": own,
        "array": names.arrays.__getitem__,
        "origin": origin,
        "dtype": DTYPES.__getitem__,
        "state": names.states.__getitem__,
        "value": lambda k: names.values[k] if k < len(names.values) else "",
        "name": lambda k: names.arrays[k].name,
    }
    file = io.BytesIO(data)
    table = [kinds[what](*numbers) for what, *numbers in _Load(file, ()).load()]
    return _Load(file, table).load()


# ---- the folder


class Folder:
    """Entries on disk. Errors of the file system count as missing entries: no method raises OSError."""

    def __init__(self, path: str, limit: int = MAX_FOLDER_BYTES):
        self.path, self.limit = path, limit
        self.room: int | None = None  # bytes that this process may still add before it has to check the size again
        self.counts, self.owner = [0, 0], os.getpid()  # hits and misses since they were last added to the folder's

    def get(self, kind: str, key: bytes) -> bytes | None:
        """Returns the content of a valid entry, None for a miss; counted."""
        found = self.read(kind, key)
        self.counts[found is None] += 1
        return found

    def read(self, kind: str, key: bytes) -> bytes | None:
        """Returns the same, not counted."""
        path = os.path.join(self.path, kind, key.hex())
        try:
            with open(path, "rb") as file:
                data, owner = file.read(), os.fstat(file.fileno()).st_uid
            content = data[HEAD.size :]
            if data[: HEAD.size] != _head(key, content) or owner not in (os.geteuid(), 0):
                self._drop(path)
                return None
            with contextlib.suppress(OSError):  # a folder that cannot be written can be read
                os.utime(path)  # the time of its last use
            return content
        except OSError:
            return None

    def put(self, kind: str, entries: Mapping[bytes, bytes]) -> None:
        """Adds entries; the least recently used are deleted where the limit is exceeded."""
        folder = os.path.join(self.path, kind)
        with contextlib.suppress(OSError), self._locked():
            os.makedirs(folder, 0o700, exist_ok=True)
            for key, content in entries.items():
                path = os.path.join(folder, key.hex())
                try:
                    with open(path + NEW, "wb", opener=_private) as file:
                        file.write(_head(key, content) + content)
                    os.replace(path + NEW, path)
                except OSError:  # for example, the disk is full: the partial file is removed
                    self._drop(path + NEW)
                    raise
                self.room = None if self.room is None else self.room - HEAD.size - len(content)
            if self.room is None or self.room < 0:
                self._trim()
            self._tell()

    def writable(self) -> bool:
        """Whether entries can be added."""
        try:
            with self._locked():
                return True
        except OSError:
            return False

    def drop(self, kind: str, key: bytes) -> None:
        """Deletes an invalid entry."""
        self._drop(os.path.join(self.path, kind, key.hex()))

    def _drop(self, path: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(path)

    def entries(self) -> Iterator[tuple[str, str, os.stat_result]]:
        """Yields kind, path and stat of each file that is an entry, or a partial one."""
        for kind in KINDS:
            with contextlib.suppress(OSError), os.scandir(os.path.join(self.path, kind)) as found:
                for f in found:
                    if _ENTRY.fullmatch(f.name):
                        with contextlib.suppress(OSError):
                            yield kind, f.path, f.stat(follow_symlinks=False)

    def _trim(self) -> None:
        """Deletes partial files of ended processes, since the lock is held, and the oldest entries until a tenth is free."""
        kept = []
        for _, path, facts in self.entries():
            if path.endswith(NEW):
                self._drop(path)
            else:
                kept.append((facts.st_mtime_ns, facts.st_size, path))
        size = sum(bytes_ for _, bytes_, _ in kept)
        if size > self.limit:
            for _, bytes_, path in sorted(kept):
                if size <= self.limit * 9 // 10:
                    break
                self._drop(path)
                size -= bytes_
        self.room = min(self.limit - size, self.limit // 8)  # other processes add to it, too

    def clear(self) -> int:
        """Deletes all entries and counts; returns the number of entries."""
        with self._locked():
            paths = [path for _, path, _ in self.entries()]
            for path in [*paths, self._counts_path]:
                self._drop(path)
        self.counts, self.room = [0, 0], None
        return len(paths)

    @property
    def _counts_path(self) -> str:
        return os.path.join(self.path, "counts")

    def told(self) -> list[int]:
        """Returns the hits and misses of all processes that have added theirs."""
        try:
            with open(self._counts_path, encoding="ascii") as file:
                hits, misses = map(int, file.read().split())
                return [hits, misses]
        except (OSError, ValueError):
            return [0, 0]

    def tell(self) -> None:
        """Adds this process's counts to those in the folder."""
        if any(self.counts) and self.owner == os.getpid() and os.path.isdir(self.path):
            with contextlib.suppress(OSError), self._locked():
                self._tell()

    def _tell(self) -> None:
        total = [a + b for a, b in zip(self.told(), self.counts, strict=True)]
        with open(self._counts_path, "w", encoding="ascii", opener=_private) as file:
            file.write(f"{total[0]} {total[1]}\n")
        self.counts = [0, 0]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the lock of threads and processes. Raises OSError where that takes too long or is impossible."""
        os.makedirs(self.path, 0o700, exist_ok=True)
        with open(os.path.join(self.path, "lock"), "a", opener=_private) as file:
            end = time.monotonic() + LOCK_TIMEOUT_SECONDS
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.002)
            yield


def _head(key: bytes, content: bytes) -> bytes:
    return HEAD.pack(FORMAT, key, digest(content), len(content))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0), 0o600)


# ---- both levels


class Cache:
    """Objects and plans, in this process and, where `folder` is not empty, on disk."""

    def __init__(self, folder: str, limit: int = MAX_FOLDER_BYTES):
        self.folder = Folder(folder, limit) if folder and fcntl is not None else None
        self.here: dict[bytes, bytes] = {}  # entries seen by this process
        self.size = 0
        if self.folder is not None:
            atexit.register(self.folder.tell)

    def object(self, text: str, target: Cpu) -> bytes:
        """Returns the object of one text."""
        return self.objects([text], target)[0]

    def written(self, write: Callable[..., str], target: Cpu, *facts: Any) -> bytes:
        """Returns the object of the text `write(target, *facts)`, where ngraph's modules and these values determine the text.

        The cache records the object's key for the function and the values, by their `repr`, so that a later process writes no text.
        """
        named = digest(b"text", makers(), f"{write.__module__}.{write.__qualname__}".encode(), repr((target, facts)).encode())
        key = self.find(named, "texts", counted=False)
        found = None if key is None else self.find(key)
        if found is None:
            text = write(target, *facts)
            found = self.object(text, target)
            self.keep("texts", named, self.key(text, target))
        return found

    def objects(self, texts: Iterable[str], target: Cpu) -> list[bytes]:
        """Returns the object of each text, in order; equal texts are compiled once, and new ones while more texts come.

        Raises `workers.Failed` with LLVM's message where a text is not IR.
        """
        if self.size > IN_PROCESS:
            self.here, self.size = {}, 0
        keys: list[bytes] = []
        known: dict[bytes, bytes] = {}
        new: dict[bytes, None] = {}

        def unknown() -> Iterator[str]:
            for text in texts:
                key = self.key(text, target)
                keys.append(key)
                if key not in known and key not in new:
                    found = self.find(key)
                    if found is None:
                        new[key] = None
                        yield text
                    else:
                        known[key] = found

        made = dict(zip(new, compiled(unknown(), target), strict=True))
        for key, data in made.items():
            self._keep(key, data)
        if made and self.folder is not None:
            self.folder.put("objects", made)
        known |= made
        return [known[key] for key in keys]

    def key(self, text: str, target: Cpu) -> bytes:
        """Returns the key of the object of a text."""
        return digest(compiler(), *[s.encode() for s in (target.triple, target.cpu, target.features, text)])

    def find(self, key: bytes, kind: str = "objects", counted: bool = True) -> bytes | None:
        """Returns an entry of a kind, from this process or from disk; None for a miss."""
        found = self.here.get(key)
        if found is None and self.folder is not None:
            found = self.folder.get(kind, key) if counted else self.folder.read(kind, key)
            if found is not None:
                self._keep(key, found)
        return found

    def keep(self, kind: str, key: bytes, data: bytes) -> None:
        """Adds an entry of a kind, here and on disk; only here where a module may have changed since it was read."""
        self._keep(key, data)
        if self.folder is not None and unchanged():
            self.folder.put(kind, {key: data})

    def _keep(self, key: bytes, data: bytes) -> None:
        self.here[key] = data
        self.size += len(data)

    def plan(self, program: Program, facts: Any, make: Callable[[], Any]) -> Any:
        """Returns the result of `make()`: a plan, or records of ngraph with plans, buffers, axes and arrays in them.

        It is reused from an earlier, structurally equal program with any names, origins and large arrays, which are replaced by this
        program's. `facts` is everything else that determines it, by its `repr`: lengths, target, machine, settings.
        """
        fingerprint, names = program_fingerprint(program)
        key = self.plan_key(fingerprint, facts)
        made = self.planned(key, names)
        if made is None:
            made = make()
            self.keep_plan(key, made, names)
        return made

    def plan_key(self, fingerprint: bytes, facts: Any) -> bytes:
        """Returns the key of `plan` for a program with this fingerprint."""
        return digest(makers(), fingerprint, repr(facts).encode())

    def keep_plan(self, key: bytes, made: Any, names: ProgramNames) -> None:
        """Adds an entry for `planned`; not where it cannot be pickled."""
        with contextlib.suppress(pickle.PicklingError, RecursionError):
            self.keep("plans", key, dumped(made, names))

    def planned(self, key: bytes, names: ProgramNames) -> Any:
        """Returns the entry for a key, with these names; None for a miss."""
        found = self.find(key, "plans")
        if found is None:
            return None
        try:
            return loaded(found, names)
        except Exception:  # any exception of pickle for invalid data
            self.drop("plans", key)
            return None

    def drop(self, kind: str, key: bytes) -> None:
        """Deletes an invalid entry."""
        self.size -= len(self.here.pop(key, b""))
        if self.folder is not None:
            self.folder.drop(kind, key)


def start_compiler() -> None:
    """Starts loading LLVM in other processes while this one plans."""
    with contextlib.suppress(OSError):
        workers.start()


def compiled(texts: Iterable[str], target: Cpu) -> list[bytes]:
    """Returns objects of texts, compiled by worker processes; by this one where there can be none."""
    given = iter(texts)
    first = next(given, None)
    if first is None:
        return []
    every = itertools.chain([first], given)
    try:
        workers.start()
    except OSError:
        return [jit.compile_object(text, target) for text in every]
    return workers.compile(every, target)


_caches: dict[str, Cache] = {}


def cache() -> Cache:
    """Returns the cache of the current folder, `config.cache`."""
    folder = config.cache
    found = _caches.get(folder)
    if found is None:
        if folder and os.path.exists(folder) and not os.path.isdir(folder):
            warn(
                f"nothing that is compiled can be kept: {folder} is not a folder",
                fix="name a folder, NGRAPH_CACHE=folder, or NGRAPH_CACHE=off",
            )
        found = _caches.setdefault(folder, Cache(folder))
    return found

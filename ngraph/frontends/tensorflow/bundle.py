"""TensorFlow's checkpoints of format 2: an index `PREFIX.index`, a table of LevelDB's format, and the data `PREFIX.data-00000-of-00001`.

The index maps names to entries (dtype, shape, shard, offset, size, checksum). Sources: tensorflow/core/util/tensor_bundle, and
"Table format" of LevelDB's documentation. Data stay in the mapped file until an array is asked for.
"""

from __future__ import annotations

import glob
import math
import os
import re
from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ngraph.errors import ArgumentError, FileError, ParseError, UnsupportedError, nearest
from ngraph.frontends.positional.leveldb import DAMAGED, table, varint, written
from ngraph.frontends.positional.text import objects
from ngraph.frontends.tensorflow.dtypes import number_of, numpy_type, shape_of, type_name
from ngraph.frontends.tensorflow.messages import classes, parsed
from ngraph.op_graph.arrays import MappedFile

CHECKED_BYTES = 1 << 18  # bytes that are copied for the checksum at a time: they stay in a cache


class Checkpoint:
    """The arrays of a checkpoint by name, with the methods of `tf.train.load_checkpoint`.

    prefix: the path without `.index`. Raises FileError where there is none, ParseError for damaged files.
    """

    def __init__(self, prefix: str):
        self.prefix = os.fspath(prefix)
        path = f"{self.prefix}.index"
        try:
            with open(path, "rb") as f:
                data = f.read()
        except OSError as error:
            near = sorted(glob.glob(os.path.join(os.path.dirname(path) or ".", "*.index")))
            fix = f"there are {', '.join(n[:-6] for n in near[:4])}" if near else "give the path without .index"
            raise FileError(f"there is no checkpoint {self.prefix}: {error.strerror}", fix=fix) from error
        rows = dict(table(data, path, _checksum))
        header = parsed("BundleHeaderProto", rows.pop(b"", b""), path)
        if header.endianness != 0:
            raise UnsupportedError(f"{path} was written on a machine with big-endian numbers", fix="write it again on this machine")
        self._shards = max(1, header.num_shards)
        self._slices = {key: value for key, value in rows.items() if key[:1] == b"\0"}  # of partitioned variables
        arrays = [(key, value) for key, value in rows.items() if key not in self._slices]
        self._entries = {key.decode("utf-8", "replace"): parsed("BundleEntryProto", v, f"{path}: {key!r}") for key, v in arrays}
        self._open: dict[int, Any] = {}

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Returns the shape of each array, by name."""
        return {name: [n or 0 for n in shape_of(e.shape) or ()] for name, e in self._entries.items()}

    def get_variable_to_dtype_map(self) -> dict[str, Any]:
        """Returns NumPy's dtype of each array, by name; object for strings."""
        return {name: numpy_type(e.dtype) for name, e in self._entries.items()}

    def has_tensor(self, name: str) -> bool:
        """Returns whether there is an array of this name."""
        return name in self._entries

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def get_tensor(self, name: str) -> np.ndarray[Any, Any]:
        """Returns an array by name, read-only where it lies in the mapped file.

        Raises ArgumentError for an unknown name, ParseError where data and checksum do not agree.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise ArgumentError(f"{self.prefix} has no array {name!r}", fix=nearest(name, list(self._entries)) or "print(list(checkpoint))")
        return self._joined(name, entry) if entry.slices else self._array(name, entry)

    def files(self, folder: str) -> list[str]:
        """Returns the paths of its files that are there, relative to a folder."""
        every = [f"{self.prefix}.index", *map(self._shard, range(self._shards))]
        return [os.path.relpath(path, folder) for path in every if os.path.isfile(path)]

    def _shard(self, number: int) -> str:
        return f"{self.prefix}.data-{number:05d}-of-{self._shards:05d}"

    def _array(self, name: str, entry: Any) -> np.ndarray[Any, Any]:
        dtype, shape = numpy_type(entry.dtype), shape_of(entry.shape)
        if dtype is None or shape is None:
            raise UnsupportedError(f"{name!r} of {self.prefix} is of {type_name(entry.dtype)}, not an array")
        lengths = [n or 0 for n in shape]
        data = self._data(name, entry)
        if dtype.hasobject:
            return _strings(data, math.prod(lengths), f"{name!r} of {self.prefix}", entry.crc32c).reshape(lengths)
        if len(data) != math.prod(lengths) * dtype.itemsize:
            raise ParseError(f"{name!r} of {self.prefix}: {len(data)} bytes for {lengths} elements of {dtype}", fix=DAMAGED)
        if _checksum(data) != entry.crc32c:
            raise ParseError(f"{name!r} of {self.prefix}: data and checksum do not agree", fix=DAMAGED)
        return np.frombuffer(data, dtype).reshape(lengths)

    def _joined(self, name: str, entry: Any) -> np.ndarray[Any, Any]:
        """Returns a partitioned array, put together from its slices."""
        dtype = numpy_type(entry.dtype)
        whole = np.zeros([n or 0 for n in shape_of(entry.shape) or ()], dtype)
        if whole.nbytes > 1 << 34:
            raise ParseError(f"{name!r} of {self.prefix} would take {whole.nbytes:,} bytes", fix=DAMAGED)
        for part in entry.slices:
            key = _slice_key(name, part)
            found = self._slices.get(key)
            if found is None:
                raise ParseError(f"{name!r} of {self.prefix}: a slice is missing", fix=DAMAGED)
            where = tuple([slice(x.start, x.start + x.length) if x.WhichOneof("has_length") else slice(None) for x in part.extent])
            piece = self._array(name, parsed("BundleEntryProto", found, self.prefix))
            if whole[where].shape != piece.shape:
                raise ParseError(f"{name!r} of {self.prefix}: a slice of the shape {list(piece.shape)} does not fit", fix=DAMAGED)
            whole[where] = piece
        return whole

    def _data(self, name: str, entry: Any) -> memoryview:
        if not 0 <= entry.shard_id < self._shards:
            raise ParseError(f"{name!r} of {self.prefix} lies in shard {entry.shard_id} of {self._shards}", fix=DAMAGED)
        file = self._open.get(entry.shard_id)
        if file is None:
            path = self._shard(entry.shard_id)
            try:
                file = memoryview(MappedFile.of(path))
            except OSError as error:
                raise FileError(f"{path}, which holds {name!r}, cannot be read: {error.strerror}", fix="copy all files of it") from error
            self._open[entry.shard_id] = file
        if entry.offset < 0 or entry.size < 0 or entry.offset + entry.size > len(file):
            raise ParseError(f"{name!r} of {self.prefix} lies outside of its file", fix=DAMAGED)
        return memoryview(file)[entry.offset : entry.offset + entry.size]


def load_checkpoint(prefix: str) -> Checkpoint:
    """Returns the arrays of a checkpoint, of a path without `.index`, or of a folder's latest one, as `tf.train.load_checkpoint`.

    Raises FileError where there is none, ParseError for damaged files.
    """
    prefix = os.fspath(prefix)
    return Checkpoint(latest(prefix) if os.path.isdir(prefix) else prefix.removesuffix(".index"))


def latest(folder: str) -> str:
    """Returns the prefix of a folder's latest checkpoint, as its file `checkpoint` names it, or the newest index of the folder."""
    note = os.path.join(folder, "checkpoint")
    if os.path.isfile(note):
        with open(note, encoding="utf-8", errors="replace") as f:
            said = re.search(r'^model_checkpoint_path: "(.*)"', f.read(), re.M)
        if said:
            return os.path.join(folder, said.group(1))
    found = sorted(glob.glob(os.path.join(folder, "*.index")), key=os.path.getmtime)
    if not found:
        raise FileError(f"{folder} has no checkpoint", fix="give the path of one, without .index")
    return found[-1][:-6]


def save_checkpoint(prefix: str, arrays: Mapping[str, Any]) -> None:
    """Writes arrays by name as a checkpoint that `tf.train.load_checkpoint` reads: PREFIX.index and PREFIX.data-00000-of-00001.

    Raises UnsupportedError for a dtype that TensorFlow lacks, and for strings; FileError where the files cannot be written.
    """
    made, shard = classes(), bytearray()
    header = made["BundleHeaderProto"](num_shards=1, version=made["VersionDef"](producer=1))
    rows: list[tuple[bytes, bytes]] = [(b"", header.SerializeToString())]
    for name in sorted(arrays, key=lambda n: n.encode()):
        array = np.asarray(arrays[name])
        if array.dtype.hasobject:
            raise UnsupportedError(f"{name!r} holds {array.dtype}: only numbers are written", fix="leave it out")
        data = np.ascontiguousarray(array).tobytes()
        entry = made["BundleEntryProto"](dtype=number_of(array.dtype), offset=len(shard), size=len(data), crc32c=_checksum(data))
        entry.shape.SetInParent()
        for n in array.shape:
            entry.shape.dim.add(size=n)
        rows.append((name.encode(), entry.SerializeToString()))
        shard += data
    try:
        for path, content in ((f"{prefix}.data-00000-of-00001", bytes(shard)), (f"{prefix}.index", written(rows, _checksum))):
            with open(f"{path}.tmp", "wb") as f:
                f.write(content)
            os.replace(f"{path}.tmp", path)
    except OSError as error:
        raise FileError(f"{prefix} cannot be written: {error.strerror}", fix="give a path in a folder that exists") from error


def _checksum(data: Any) -> int:
    """Returns the CRC32C of bytes, rotated and shifted as LevelDB stores it."""
    import google_crc32c

    crc = 0
    for k in range(0, len(data), CHECKED_BYTES):  # it takes `bytes` alone, and a copy of all would be new memory
        crc = google_crc32c.extend(crc, bytes(data[k : k + CHECKED_BYTES]))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _strings(data: memoryview, count: int, what: str, stored: int) -> np.ndarray[Any, Any]:
    """Returns strings: their lengths, a checksum of these, their bytes."""
    lengths, at = [], 0
    for _ in range(count):
        n, at = varint(data, at)
        lengths.append(n)
    at += 4  # the checksum of the lengths, which the entry's covers too
    if at + sum(lengths) != len(data):
        raise ParseError(f"{what}: {len(data)} bytes for strings of {sum(lengths)}", fix=DAMAGED)
    if _checksum(b"".join(n.to_bytes(4 if n < 1 << 32 else 8, "little") for n in lengths) + data[at - 4 :].tobytes()) != stored:
        raise ParseError(f"{what}: data and checksum do not agree", fix=DAMAGED)
    ends = list(accumulate(lengths, initial=at))
    return objects([bytes(data[a:b]) for a, b in pairwise(ends)])


def _ordered(n: int) -> bytes:
    """Returns a number as LevelDB's users order it: its first byte's leading ones count the bytes (OrderedCode)."""
    if -64 <= n < 64:
        return bytes([n & 0xFF ^ 0x80])
    count = 2
    while not -(1 << (7 * count - 1)) <= n < 1 << (7 * count - 1):
        count += 1
    raw = bytearray((n & ((1 << (8 * count)) - 1)).to_bytes(count, "big"))
    header = (0xFF << (8 - count)) & 0xFF
    raw[0] ^= header if count < 8 else 0xFF
    return bytes(raw)


def _slice_key(name: str, part: Any) -> bytes:
    """Returns the key of a slice: 0, the name, the rank, then start and length along each dim, -1 for a whole one."""

    def number(n: int) -> bytes:  # of OrderedCode::WriteNumIncreasing: how many bytes, then these
        raw = n.to_bytes((n.bit_length() + 7) // 8, "big")
        return bytes([len(raw)]) + raw

    text = name.encode().replace(b"\0", b"\0\xff")  # byte 255, which is escaped too, is not in UTF-8
    made = number(0) + text + b"\0\1" + number(len(part.extent))
    for x in part.extent:
        whole = x.WhichOneof("has_length") is None
        made += _ordered(0 if whole else x.start) + _ordered(-1 if whole else x.length)
    return made

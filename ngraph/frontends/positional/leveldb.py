"""Tables of LevelDB's format, in which checkpoints have their indexes: sorted entries of bytes by bytes.

A table is data blocks, a block of facts, a block that names the data blocks, and a footer; behind each block stand a byte for its
compression and a sum of four bytes (LevelDB, doc/table_format.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ngraph.errors import ParseError, UnsupportedError
from ngraph.frontends.positional.varint import coded

MAGIC = 0xDB4775248B80FB57  # the last 8 bytes of a table
FOOTER = 48  # bytes: two handles, padding, the magic number
BLOCK = 262144  # bytes of a block from which on the next one begins, as TensorFlow does in its checkpoints
RESTART = 16  # entries after which one is written whole
DAMAGED = "is the checkpoint damaged? Write it again"

Checksum = Callable[[Any], int]


def varint(data: Any, at: int) -> tuple[int, int]:
    """Returns a number of seven bits a byte, lowest first, and where it ends."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ParseError("a number in a table does not end", fix=DAMAGED)
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def table(data: bytes, path: str, checksum: Checksum) -> Iterator[tuple[bytes, bytes]]:
    """Yields the entries of a table in order."""
    if len(data) < FOOTER or int.from_bytes(data[-8:], "little") != MAGIC:
        raise ParseError(f"{path} is not an index of a checkpoint", fix=DAMAGED)
    at = len(data) - FOOTER
    for _ in range(2):  # the handle of the table's facts, which nobody needs
        _, at = varint(data, at)
    start, at = varint(data, at)
    size, _ = varint(data, at)
    for _, handle in block(data, start, size, path, checksum):
        start, at = varint(handle, 0)
        size, _ = varint(handle, at)
        yield from block(data, start, size, path, checksum)


def block(data: bytes, start: int, size: int, path: str, checksum: Checksum) -> Iterator[tuple[bytes, bytes]]:
    """Yields the entries of a block, whose keys leave out what they share with the one before."""
    if start + size + 5 > len(data) or size < 4:
        raise ParseError(f"{path}: a block lies outside of the file", fix=DAMAGED)
    held, kind = data[start : start + size], data[start + size]
    if kind:
        raise UnsupportedError(f"{path} is compressed", fix="TensorFlow does not compress its checkpoints: write it again with TensorFlow")
    if checksum(data[start : start + size + 1]) != int.from_bytes(data[start + size + 1 : start + size + 5], "little"):
        raise ParseError(f"{path}: a block and its checksum do not agree", fix=DAMAGED)
    end = size - 4 * (int.from_bytes(held[-4:], "little") + 1)
    if end < 0:
        raise ParseError(f"{path}: a block has more restarts than bytes", fix=DAMAGED)
    at, key = 0, b""
    while at < end:
        shared, at = varint(held, at)
        own, at = varint(held, at)
        length, at = varint(held, at)
        if shared > len(key) or at + own + length > end:
            raise ParseError(f"{path}: an entry exceeds its block", fix=DAMAGED)
        key = key[:shared] + held[at : at + own]
        yield key, held[at + own : at + own + length]
        at += own + length


def packed_block(rows: list[tuple[bytes, bytes]]) -> bytes:
    """Returns a block of sorted entries."""
    made, restarts, last = bytearray(), [], b""
    for k, (key, value) in enumerate(rows):
        shared = 0
        if k % RESTART == 0:
            restarts.append(len(made))
        else:
            shared = next((j for j, (a, b) in enumerate(zip(key, last, strict=False)) if a != b), min(len(key), len(last)))
        made += coded(shared) + coded(len(key) - shared) + coded(len(value)) + key[shared:] + value
        last = key
    for at in restarts or [0]:
        made += at.to_bytes(4, "little")
    return bytes(made) + len(restarts or [0]).to_bytes(4, "little")


def written(rows: list[tuple[bytes, bytes]], checksum: Checksum) -> bytes:
    """Returns a table of sorted entries."""
    made = bytearray()

    def put(piece: bytes) -> bytes:
        handle = coded(len(made)) + coded(len(piece))
        made.extend(piece + b"\0" + checksum(piece + b"\0").to_bytes(4, "little"))
        return handle

    index: list[tuple[bytes, bytes]] = []
    part: list[tuple[bytes, bytes]] = []
    size = 0
    for row in rows:
        part.append(row)
        size += len(row[0]) + len(row[1])
        if size >= BLOCK:
            index.append((part[-1][0], put(packed_block(part))))
            part, size = [], 0
    if part:
        index.append((part[-1][0], put(packed_block(part))))
    handles = put(packed_block([])) + put(packed_block(index))
    return bytes(made) + handles.ljust(FOOTER - 8, b"\0") + MAGIC.to_bytes(8, "little")

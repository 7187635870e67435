"""ONNX files as bytes: a model's skeleton, which leaves out the data of large tensors and says where in the file it lies.

So a parser reads kilobytes where a file has gigabytes, and weights are used where they are. The format is that of Protocol Buffers'
encoding: fields of a tag (number and kind) and a value, whose length comes first where it has any. The numbers of fields are onnx.proto's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ngraph.frontends.positional.varint import coded

OWN = "\0"  # the location of data in the model's own file, which is not a file's name
MIN_LAZY_BYTES = 1 << 12  # bytes
MAX_DEPTH = 64  # messages within each other that are looked into; a graph inside of a node is two
RAW_DATA, EXTERNAL_DATA, DATA_LOCATION = 9, 13, 14  # fields of a tensor
PARTS = {  # the fields of a message that have tensors inside, by number, and what they are
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph"},
}
LENGTHS = {1: 8, 5: 4}  # bytes of the fixed kinds
VARINT, DELIMITED = 0, 2


class Field(NamedTuple):
    """A field of a message, from `start` to `end`; its value begins at `value`."""

    number: int
    kind: int
    start: int
    value: int
    end: int


def skeleton(content: Any) -> bytes:
    """The model in these bytes without the data of its large tensors; all of it where it is not what it should be."""
    if len(content) < MIN_LAZY_BYTES:
        return bytes(content)
    with memoryview(content) as view:
        try:
            return _skeleton(view, 0, len(view), "model", 0)
        except ValueError:
            return bytes(content)


def _skeleton(view: memoryview, start: int, end: int, kind: str, depth: int) -> bytes:
    """A message between two places, without the data of the large tensors inside."""
    parts: list[bytes | memoryview] = []
    seen = set[int]()
    for f in fields(view, start, end):
        if kind == "attribute" and f.number in PARTS[kind]:
            if f.number in seen:
                raise ValueError("two values of one attribute, which a parser merges")
            seen.add(f.number)
        part = PARTS[kind].get(f.number) if f.kind == DELIMITED and f.end - f.value >= MIN_LAZY_BYTES and depth < MAX_DEPTH else None
        if part is None:
            parts.append(view[f.start : f.end])
        elif part == "tensor":
            parts.append(_tensor(view, f))
        else:
            parts.append(message(f.number, _skeleton(view, f.value, f.end, part, depth + 1)))
    return b"".join(parts)


def _tensor(view: memoryview, tensor: Field) -> bytes | memoryview:
    """The tensor, its data kept outside, in the file itself; as it is where the data is not one large run of bytes."""
    inside = list(fields(view, tensor.value, tensor.end))
    data = [f for f in inside if f.number == RAW_DATA and f.kind == DELIMITED]
    if len(data) != 1 or data[0].end - data[0].value < MIN_LAZY_BYTES or any(f.number in (EXTERNAL_DATA, DATA_LOCATION) for f in inside):
        return view[tensor.start : tensor.end]
    about = {"location": OWN, "offset": str(data[0].value), "length": str(data[0].end - data[0].value)}
    entries = [message(EXTERNAL_DATA, message(1, key.encode()) + message(2, value.encode())) for key, value in about.items()]
    rest = [view[f.start : f.end] for f in inside if f is not data[0]]
    return message(tensor.number, b"".join([*rest, *entries, coded(DATA_LOCATION << 3), coded(1)]))


def fields(view: memoryview, start: int, end: int) -> Iterator[Field]:
    """The fields of the message between two places. Raises ValueError where it is none."""
    at = start
    while at < end:
        first = at
        tag, at = number(view, at, end)
        kind = tag & 7
        if kind == VARINT:
            value, (_, at) = at, number(view, at, end)
        elif kind == DELIMITED:
            length, value = number(view, at, end)
            at = value + length
        elif kind in LENGTHS:
            value, at = at, at + LENGTHS[kind]
        else:
            raise ValueError("a group, or no message")
        if at > end:
            raise ValueError("cut off")
        yield Field(tag >> 3, kind, first, value, at)


def number(view: memoryview, at: int, end: int) -> tuple[int, int]:
    """A varint, and the place behind it. Raises ValueError."""
    found = shift = 0
    while at < end and shift < 64:
        byte = view[at]
        at += 1
        found |= (byte & 127) << shift
        if byte < 128:
            return found, at
        shift += 7
    raise ValueError("cut off")


def message(number: int, content: bytes) -> bytes:
    """A field that holds a message, or bytes."""
    return coded(number << 3 | DELIMITED) + coded(len(content)) + content

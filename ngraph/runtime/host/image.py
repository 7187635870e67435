"""A table of instructions without addresses, as a file can store it: running it needs no plan, and no Python.

    image = TableImage.load(data)
    memory = image.memory.copy()                       # instructions, then words
    memory[image.lengths["N"]] = 7                     # lengths that calls bring
    image.bind(memory, "table", address of memory)     # each region where it lies
    run from instruction `image.start` on              # computes what depends on lengths: offsets, sizes, work items, trips
    memory[image.sizes["arena"]]                       # how many bytes a region needs; bind it, and run from `start` on once more
    run from instruction 0 on                          # a call; bind only what has moved before the next one

Lengths need `start` to be run again, twice where regions grow. Regions are `table`, `arena`, `once` (bytes that outlast calls), `kernel k`,
`constant k`, `input k`, `output k`, `state NAME`; `scratch` is not a region, but what the frame needs for each thread.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ngraph.errors import ParseError

MAGIC = b"ngraph table 1\n\0"
HEAD = struct.Struct("<16sQQ")  # file type, bytes of the description, words


class TableImage(NamedTuple):
    """`relocations`: for each region the words that become its address plus an offset; `lengths`, `sizes`: words by name."""

    memory: np.ndarray
    relocations: Mapping[str, Sequence[tuple[int, int]]]
    lengths: Mapping[str, int]
    sizes: Mapping[str, int]
    start: int

    def bind(self, memory: np.ndarray, region: str, base: int) -> None:
        """Sets the address of a region, in a copy of the memory."""
        for word, offset in self.relocations.get(region, ()):
            memory[word] = base + offset

    def dump(self) -> bytes:
        said = json.dumps(
            {"relocations": self.relocations, "lengths": self.lengths, "sizes": self.sizes, "start": self.start}, sort_keys=True
        ).encode()
        return HEAD.pack(MAGIC, len(said), len(self.memory)) + said + self.memory.astype("<i8").tobytes()

    @staticmethod
    def load(data: bytes) -> TableImage:
        """Returns the image of these bytes. Raises ParseError for other or too few bytes."""
        if len(data) < HEAD.size or data[: len(MAGIC)] != MAGIC:
            raise ParseError("this is not a table of instructions")
        _, size, words = HEAD.unpack_from(data)
        if len(data) != HEAD.size + size + 8 * words:
            raise ParseError(f"this table of instructions has {len(data)} bytes, and says {HEAD.size + size + 8 * words}")
        said = json.loads(data[HEAD.size : HEAD.size + size])
        relocations = {region: [(int(k), int(n)) for k, n in places] for region, places in said["relocations"].items()}
        memory = np.frombuffer(data, "<i8", words, HEAD.size + size).astype(np.int64)
        return TableImage(memory, relocations, said["lengths"], said["sizes"], said["start"])

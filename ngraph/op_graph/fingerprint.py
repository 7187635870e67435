"""Structural hashing of op-graphs: equal bytes are lowered to equal programs, whatever the ops' names and source lines.

The bytes cover records, inputs, attributes, types, axes with names and lengths, and array contents. They exclude initial values of
variables, and the fresh names of unnamed axes.
"""

from __future__ import annotations

import hashlib
import marshal
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ngraph.op_graph.arrays import SMALL, ArrayRef, settled
from ngraph.op_graph.axes import Axes, Axis, Family
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.op import Op, TensorType
from ngraph.op_graph.opdef import OpDef
from ngraph.op_graph.text import PLAIN, SIMPLE, Encoder, inside, numbered

MAX_HASHED_BYTES = 1 << 24  # bytes of array contents that are hashed at most
VERSION = 2  # of marshal's format: later ones have several encodings of one value
UNNAMED = re.compile(r"Axis_\d+")


class Fingerprint(NamedTuple):
    """The bytes, and the objects that they refer to by number: ops, large arrays; and the records of the ops."""

    data: bytes
    numbers: dict[Op, int]
    arrays: list[ArrayRef]
    records: list[OpDef]


def fingerprint(results: Sequence[Op], parameters: Sequence[Op]) -> Fingerprint | None:
    """Returns the fingerprint of the graph from parameters to results; None where a value has no bytes, such as a user's function."""
    e = _Encoder()
    roots = [*results, *parameters]
    try:
        rows = [*e.rows(roots)]
        families: list[Any] = []
        while len(families) < len(e.families):
            for f in list(e.families)[len(families) :]:
                rows += e.rows(inside(f.length))  # a length that an op computes at run time
                families.append(e.family(f))
        contents = [_content(a) for _, a in e.large.values()]
        data = marshal.dumps((rows, families, [*e.lists], contents, [e.numbers[r] for r in roots], len(results)), VERSION)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return Fingerprint(data, e.numbers, [ref for _, ref in e.refs.values()], [*e.records])


class _Encoder(Encoder):
    """An encoder of values for `marshal`."""

    def __init__(self) -> None:
        super().__init__({})
        self.records: dict[OpDef, None] = {}
        self.refs: dict[int, tuple[int, ArrayRef]] = {}
        self.lists: dict[tuple[tuple[int, ...], ...], int] = {}
        self.met: dict[int, tuple[int, tuple[Axis, ...]]] = {}
        self.unnamed: dict[str, str] = {}
        self.large: dict[int, tuple[int, np.ndarray]] = {}  # by id: arrays, numbered, whose contents are hashed when all are known
        self.bytes = 0  # of these

    def rows(self, roots: Iterable[Op]) -> Iterator[Any]:
        """Yields a row for each op that has no number yet; its inputs, and the ops that its attributes name, come first."""
        numbers, encode = self.numbers, self.encode
        for op in numbered(roots, numbers):
            self.records[op.opdef] = None
            said = [(k, a if type(a) in SIMPLE else encode(a)) for k, a in op.attrs.items() if k != "initial_value"]
            yield op.opdef.name, [numbers[i] for i in op.inputs], said, self.type(op.type)

    def type(self, t: Any) -> Any:
        if type(t) is not TensorType:
            return None if t is None else [self.type(part) for part in t]
        return t.dtype.name, self.axes(t.axes)

    def axes(self, axes: tuple[Axis, ...]) -> int:
        """Returns the number of this list of axes among all lists in the graph."""
        found = self.met.get(id(axes))
        if found is None:
            number = self.lists.setdefault(tuple([tuple(self.axis(a)) for a in axes]), len(self.lists))
            found = self.met[id(axes)] = number, axes  # the entry keeps `axes` alive, so that no other object gets its id
        return found[0]

    def family(self, f: Family) -> Any:
        name = UNNAMED.sub(lambda found: self.unnamed.setdefault(found[0], f"#{len(self.unnamed)}"), f.name)
        parts = None if f.parts is None else [self.axis(a) for a in f.parts]
        length = f.found_length()
        met = [self.families.setdefault(other, len(self.families)) for other in f.met] if length is None else []
        return name, self.encode(f.length), self.encode(length), sorted(f.flags.items()), sorted(map(str, f.roles)), parts, met

    def encode(self, x: Any) -> Any:
        kind = type(x)
        if kind in SIMPLE:
            return x
        if kind is Axes:
            return {"axes": self.axes(x)}
        if kind is ArrayRef:
            number, _ = self.refs.setdefault(id(x), (len(self.refs), x)) if not x.small else (-1, x)
            return {"ref": [number, self.array(x.array)]}
        if kind not in PLAIN and callable(x) and not x.__module__.startswith("ngraph."):
            raise TypeError(f"{x!r} is a user's")
        return super().encode(x)

    def array(self, a: np.ndarray, name: str = "") -> list[Any]:
        if a.nbytes <= SMALL:
            return super().array(settled(a))
        self.bytes += a.nbytes if id(a) not in self.large else 0
        if self.bytes > MAX_HASHED_BYTES:
            raise ValueError("there is too much to look at")
        return [as_dtype(a.dtype).name, list(a.shape), self.large.setdefault(id(a), (len(self.large), a))[0]]


def _content(array: np.ndarray) -> bytes:
    """Returns a hash of an array's bytes."""
    return hashlib.blake2b(settled(array).reshape(-1).view(np.uint8).data, digest_size=32).digest()

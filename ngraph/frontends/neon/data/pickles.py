"""Reads pickles of plain data, protocols 0 to 5, by an interpreter of its own that calls nothing that a file names.

The result consists of numbers, texts, bytes, lists, tuples, dicts and NumPy arrays of numbers and texts; all else is refused. An array
is created here from the file's bytes, after their number has been compared with its shape and dtype. So a damaged or malicious file
can neither run code nor allocate more memory than it has bytes. The time is linear in the file's length, and no value is copied.

Source of the opcodes: the standard library's `pickletools`.
"""

from __future__ import annotations

import codecs
import math
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

MAX_RANK = 32  # axes of an array: the limit of NumPy 1
MAX_KEY = 1 << 60  # integer keys of a dict: below it each has a hash of its own
_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248]|c8|c16|[SU][1-9]\d{0,5})")


class Unreadable(Exception):
    """An error for a pickle that is broken, or holds more than plain data."""


class _Name:
    """A global that the file names, such as `numpy.dtype`. It is looked up in `_MAKERS`, never imported."""

    def __init__(self, module: Any, name: Any):
        self.text = f"{_text(module)}.{_text(name)}"


class _Unbuilt:
    """An array or a dtype whose state comes later; `keys` are its numbers in the memo."""

    def __init__(self, build: Callable[[Any], Any]):
        self.build = build
        self.keys: list[int] = []


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("latin1")
    if not isinstance(value, str):
        raise Unreadable(f"a text is needed where it has {type(value).__name__}")
    return value


def _whole(value: Any, what: str) -> int:
    if type(value) is not int or value < 0:
        raise Unreadable(f"{what} is {type(value).__name__}, not a whole number from 0")
    return value


# ---- replacements of the functions that pickles of arrays name -------------------------------------------------------------


def _dtype(name: Any, *_: Any) -> _Unbuilt:
    said = _text(name)
    if re.fullmatch(r"[|]?O8?", said):
        return _Unbuilt(lambda state: "objects")
    if not _DTYPE.fullmatch(said):
        raise Unreadable(f"it has an array of dtype {said[:20]!r}, and only numbers and texts are allowed")
    made = np.dtype(said)

    def build(state: Any) -> np.dtype[Any]:
        order = _text(state[1]) if isinstance(state, tuple) and len(state) > 1 else ""
        if order not in ("<", ">", "|", "="):
            raise Unreadable("a dtype has no byte order")
        return made.newbyteorder(order)  # type: ignore[arg-type]  # one of four letters, as checked

    return _Unbuilt(build)


def _array(shape: Any, dtype: Any, data: Any, fortran: bool) -> Any:
    """Returns the array of that shape over these bytes; of objects along one axis, a list of them."""
    if not isinstance(shape, tuple) or len(shape) > MAX_RANK:
        raise Unreadable("an array has no shape")
    size = math.prod(_whole(n, "a length") for n in shape)
    if dtype == "objects":
        if not isinstance(data, list) or len(shape) != 1 or len(data) != size:
            raise Unreadable("an array of objects is not one list")
        return data
    if not isinstance(dtype, np.dtype) or not isinstance(data, (bytes, bytearray)):
        raise Unreadable("an array has no dtype or no bytes")
    if len(data) != size * dtype.itemsize:
        raise Unreadable(f"an array of {dtype}{list(shape)} needs {size * dtype.itemsize:,} bytes, and has {len(data):,}")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def _reconstruct(kind: Any, *_: Any) -> _Unbuilt:
    if not isinstance(kind, _Name) or kind.text != "numpy.ndarray":
        raise Unreadable("it has an array of a class of its own")

    def build(state: Any) -> Any:
        if not isinstance(state, tuple) or len(state) not in (4, 5):
            raise Unreadable("an array has no state")
        shape, dtype, fortran, data = state[-4:]
        return _array(shape, dtype, data, bool(fortran))

    return _Unbuilt(build)


def _scalar(dtype: Any, data: Any) -> Any:
    return _array((), dtype, data, False)[()]


def _encode(text: Any, encoding: Any) -> bytes:
    if _text(encoding) not in ("latin1", "latin-1"):
        raise Unreadable(f"it has bytes in the encoding {_text(encoding)[:20]!r}")
    return _text(text).encode("latin1")


def _nothing() -> bytes:
    return b""


_MAKERS: dict[str, tuple[Callable[..., Any], int, int]] = {  # name -> its replacement here, least and most arguments
    **{f"numpy.{core}.multiarray._reconstruct": (_reconstruct, 3, 3) for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray.scalar": (_scalar, 2, 2) for core in ("core", "_core")},
    **{
        f"numpy.{core}.numeric._frombuffer": (lambda data, dtype, shape, order: _array(shape, dtype, data, _text(order) == "F"), 4, 4)
        for core in ("core", "_core")
    },
    "numpy.dtype": (_dtype, 1, 3),
    "_codecs.encode": (_encode, 2, 2),
    "__builtin__.bytes": (_nothing, 0, 0),
    "builtins.bytes": (_nothing, 0, 0),
}


# ---- the interpreter ----------------------------------------------------------------------------------------------------


class _Reader:
    """The stack, the memo, and the position in the file; a method for each kind of opcode."""

    def __init__(self, content: bytes):
        self.content, self.at = content, 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    # operands of an opcode
    def take(self, count: int) -> bytes:
        if count > len(self.content) - self.at:
            raise Unreadable(f"it ends within a value at byte {self.at:,}")
        self.at += count
        return self.content[self.at - count : self.at]

    def number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))[0]

    def counted(self, form: str) -> bytes:
        return self.take(_whole(self.number(form), "a length"))

    def line(self) -> bytes:
        end = self.content.find(b"\n", self.at)
        if end < 0:
            raise Unreadable(f"it ends within a line at byte {self.at:,}")
        return self.take(end + 1 - self.at)[:-1]

    # the stack
    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise Unreadable(f"it has too few values before byte {self.at:,}")
        return self.stack.pop()

    def since_mark(self) -> list[Any]:
        if not self.marks:
            raise Unreadable(f"it has too few values before byte {self.at:,}")
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def top(self, kind: type) -> Any:
        value = self.pop()
        if type(value) is not kind:
            raise Unreadable(f"it fills a {kind.__name__} where it has {type(value).__name__}")
        self.push(value)
        return value

    def drop(self) -> None:
        if self.marks and self.marks[-1] == len(self.stack):
            self.marks.pop()
        else:
            self.pop()

    def last(self, count: int) -> tuple[Any, ...]:
        return tuple([self.pop() for _ in range(count)][::-1])

    # containers
    def extend(self, values: list[Any]) -> None:
        self.top(list).extend(values)

    def fill(self, pairs: list[Any]) -> None:
        into = self.top(dict)
        if len(pairs) % 2:
            raise Unreadable("a dict has a key and no value")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not isinstance(key, (str, bytes)) and not (type(key) is int and abs(key) < MAX_KEY):
                raise Unreadable(f"a dict has a key that is {type(key).__name__}, and only texts and whole numbers are allowed")
            into[key] = value

    def paired(self) -> None:
        pairs = self.since_mark()
        self.push({})
        self.fill(pairs)

    # the memo
    def keep(self, key: int) -> None:
        value = self.pop()
        self.push(value)
        self.memo[key] = value
        if isinstance(value, _Unbuilt):
            value.keys.append(key)

    def recall(self, key: int) -> None:
        if key not in self.memo:
            raise Unreadable(f"it asks for the value {key}, which it has not kept")
        self.push(self.memo[key])

    # arrays
    def call(self) -> None:
        function, arguments = self.last(2)
        if not isinstance(function, _Name) or function.text not in _MAKERS:
            named = function.text if isinstance(function, _Name) else type(function).__name__
            raise Unreadable(f"it asks for {named[:60]}, and only arrays are allowed")
        maker, least, most = _MAKERS[function.text]
        if not isinstance(arguments, tuple) or not least <= len(arguments) <= most:
            raise Unreadable(f"{function.text} has other arguments than it takes")
        self.push(maker(*arguments))

    def build(self) -> None:
        unbuilt, state = self.last(2)
        if not isinstance(unbuilt, _Unbuilt):
            raise Unreadable(f"it gives a state to {type(unbuilt).__name__}, and only arrays have one")
        made = unbuilt.build(state)
        self.push(made)
        for key in unbuilt.keys:
            if self.memo.get(key) is unbuilt:
                self.memo[key] = made

    def load(self) -> Any:
        while True:
            code = self.take(1)
            if code == b".":
                break
            rule = _RULES.get(code)
            if rule is None:
                raise Unreadable(f"it asks for more than plain data (opcode {code!r} at byte {self.at - 1:,})")
            rule(self)
        result = self.pop()
        if self.stack or self.marks:
            raise Unreadable("it ends before all of its values are used")
        return _plain(result)


def _plain(value: Any) -> Any:
    """Returns the value, if it contains plain data alone; each list is visited once, however often it occurs."""
    seen: set[int] = set()
    todo = [value]
    while todo:
        held = todo.pop()
        if isinstance(held, (_Name, _Unbuilt, np.dtype)):
            raise Unreadable(f"it holds {held.text if isinstance(held, _Name) else 'part of an array'}, and only arrays are allowed")
        if isinstance(held, (list, tuple, dict)) and id(held) not in seen:
            seen.add(id(held))
            todo.extend(held.values() if isinstance(held, dict) else held)
    return value


def _digits(line: bytes) -> int:
    if not re.fullmatch(rb"-?\d{1,40}L?", line):
        raise Unreadable(f"{line[:20]!r} is not a whole number")
    return int(line.rstrip(b"L"))


def _int_or_bool(line: bytes) -> int:
    return {b"00": False, b"01": True}[line] if line in (b"00", b"01") else _digits(line)


def _float(line: bytes) -> float:
    if len(line) > 400:  # digits: the longest double has 325 after the point
        raise Unreadable("a number has too many digits")
    return float(line)


def _quoted(line: bytes) -> bytes:
    line = line.strip()
    if len(line) < 2 or line[:1] not in b"'\"" or line[-1:] != line[:1]:
        raise Unreadable("a text has no quotes")
    return codecs.escape_decode(line[1:-1])[0]


def _utf8(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def _little(raw: bytes) -> int:
    return int.from_bytes(raw, "little", signed=True)


def _protocol(r: _Reader) -> None:
    number = r.number("B")
    if number > 5:
        raise Unreadable(f"it is of protocol {number}, and 0 to 5 are known")


_RULES: dict[bytes, Callable[[_Reader], Any]] = {
    b"\x80": _protocol,
    b"\x95": lambda r: r.number("Q"),  # a frame: no operation
    b"(": lambda r: r.marks.append(len(r.stack)),
    b"0": lambda r: r.drop(),
    b"1": lambda r: r.since_mark(),
    b"2": lambda r: r.stack.extend([v := r.pop(), v]),
    # numbers
    b"N": lambda r: r.push(None),
    b"\x88": lambda r: r.push(True),
    b"\x89": lambda r: r.push(False),
    b"I": lambda r: r.push(_int_or_bool(r.line())),
    b"L": lambda r: r.push(_digits(r.line())),
    b"J": lambda r: r.push(r.number("i")),
    b"K": lambda r: r.push(r.number("B")),
    b"M": lambda r: r.push(r.number("H")),
    b"\x8a": lambda r: r.push(_little(r.counted("B"))),
    b"\x8b": lambda r: r.push(_little(r.counted("i"))),
    b"F": lambda r: r.push(_float(r.line())),
    b"G": lambda r: r.push(struct.unpack(">d", r.take(8))[0]),
    # texts of Python 2 are bytes
    b"S": lambda r: r.push(_quoted(r.line())),
    b"T": lambda r: r.push(r.counted("i")),
    b"U": lambda r: r.push(r.counted("B")),
    b"B": lambda r: r.push(r.counted("I")),
    b"C": lambda r: r.push(r.counted("B")),
    b"\x8e": lambda r: r.push(r.counted("Q")),
    b"\x96": lambda r: r.push(r.counted("Q")),
    b"V": lambda r: r.push(r.line().decode("raw-unicode-escape")),
    b"X": lambda r: r.push(_utf8(r.counted("I"))),
    b"\x8c": lambda r: r.push(_utf8(r.counted("B"))),
    b"\x8d": lambda r: r.push(_utf8(r.counted("Q"))),
    # containers
    b"]": lambda r: r.push([]),
    b"l": lambda r: r.push(r.since_mark()),
    b"a": lambda r: r.extend([r.pop()]),
    b"e": lambda r: r.extend(r.since_mark()),
    b")": lambda r: r.push(()),
    b"t": lambda r: r.push(tuple(r.since_mark())),
    b"\x85": lambda r: r.push(r.last(1)),
    b"\x86": lambda r: r.push(r.last(2)),
    b"\x87": lambda r: r.push(r.last(3)),
    b"}": lambda r: r.push({}),
    b"d": lambda r: r.paired(),
    b"s": lambda r: r.fill([*r.last(2)]),
    b"u": lambda r: r.fill(r.since_mark()),
    # the memo
    b"p": lambda r: r.keep(_whole(_digits(r.line()), "a number in the memo")),
    b"q": lambda r: r.keep(r.number("B")),
    b"r": lambda r: r.keep(r.number("I")),
    b"\x94": lambda r: r.keep(len(r.memo)),
    b"g": lambda r: r.recall(_digits(r.line())),
    b"h": lambda r: r.recall(r.number("B")),
    b"j": lambda r: r.recall(r.number("I")),
    # arrays
    b"c": lambda r: r.push(_Name(r.line(), r.line())),
    b"\x93": lambda r: r.push(_Name(*r.last(2))),
    b"R": lambda r: r.call(),
    b"b": lambda r: r.build(),
}


def loads(content: bytes) -> Any:
    """Returns the plain data of a pickle. Raises Unreadable, and nothing else, for everything else."""
    try:
        return _Reader(content).load()
    except (ValueError, OverflowError) as error:  # of invalid texts, numbers and shapes
        raise Unreadable(str(error)) from None

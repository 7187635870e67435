"""Steps in Python on strings, which are bytes here: functions of arrays, and how a reading takes them in.

Sources: farmhash.cc (farmhashna::Hash64) for `fingerprint64`; the syntax page of RE2 for patterns.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from ngraph.errors import GraphError, UnsupportedError
from ngraph.frontends.positional.values import ConstantArray, Value

Array = np.ndarray[Any, Any]


def in_python(n: Any, function: Callable[..., Any], values: Sequence[Value], dtypes: Sequence[Any]) -> tuple[Value, ...]:
    """Returns a function of arrays: computed now where all are known, else in a step in Python, which is counted."""
    if all(isinstance(v, ConstantArray) for v in values):
        found = function(*[v.array for v in values])
        found = found if isinstance(found, (tuple, list)) else (found,)
        return tuple(ConstantArray(np.asarray(f).astype(d)) for f, d in zip(found, dtypes, strict=True))
    return tuple(n.g.host(n.op, function, values, dtypes))


def by_element(function: Callable[..., Any], dtype: Any) -> Callable[..., Array]:
    """Returns the function of arrays, broadcast against each other, that applies a function of their elements."""

    def run(*arrays: Array) -> Array:
        arrays = np.broadcast_arrays(*arrays)
        made = np.empty(arrays[0].size, dtype)
        for k, elements in enumerate(zip(*[a.ravel().tolist() for a in arrays], strict=True)):
            made[k] = function(*elements)
        return made.reshape(arrays[0].shape)

    return run


def as_bytes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function whose arrays of strings come as bytes; text becomes UTF-8."""

    def plain(a: Array) -> Array:
        if a.dtype != object or all(isinstance(s, bytes) for s in a.ravel()):
            return a
        return by_element(lambda s: s if isinstance(s, bytes) else str(s).encode(), object)(a)

    return lambda *arrays: function(*[plain(np.asarray(a)) for a in arrays])


def objects(items: Sequence[Any], shape: Sequence[int] | None = None) -> Array:
    """Returns an array of strings of a shape, by default a vector."""
    made = np.empty(len(items), object)
    made[:] = list(items)
    return made if shape is None else made.reshape(shape)


def joined_along(a: Array, along: Sequence[int], keep: bool, separator: bytes) -> Array:
    """Returns strings joined along dims, all by default; those of the last of these dims stand next to each other."""
    order = [int(k) % a.ndim for k in along] or list(range(a.ndim))
    rest = [k for k in range(a.ndim) if k not in order]
    many = math.prod(a.shape[k] for k in rest)
    rows = a.transpose(rest + order).reshape(many, a.size // max(many, 1))
    return objects([separator.join(row) for row in rows], [1 if k in order else a.shape[k] for k in range(a.ndim) if keep or k in rest])


def pieces(s: bytes, marks: bytes, skip_empty: bool) -> list[bytes]:
    """Returns what stands between the bytes of `marks`; without marks each byte. An empty string has no pieces."""
    if not s:
        return []
    found = [s[k : k + 1] for k in range(len(s))] if not marks else [s]
    for mark in marks:
        found = [p for piece in found for p in piece.split(bytes([mark]))]
    return [p for p in found if p] if skip_empty else found


def numbers_in(a: Array, dtype: np.dtype[Any], little: bool) -> Array:
    """Returns the numbers whose bytes strings are, along a last dim. Raises GraphError for strings of several lengths."""
    order = dtype if little or dtype.itemsize == 1 else dtype.newbyteorder(">")
    lengths = {len(s) for s in a.ravel()}
    if len(lengths) > 1 or any(k % dtype.itemsize for k in lengths):
        raise GraphError(f"strings of {sorted(lengths)} bytes are not rows of {dtype}", fix="give strings of one length")
    joined = np.frombuffer(b"".join(a.ravel()), order).astype(dtype)
    return joined.reshape(*a.shape, lengths.pop() // dtype.itemsize if lengths else 0)


def joined_segments(a: Array, numbers: Array, many: int, separator: bytes) -> Array:
    """Returns `many` rows of strings: each joins those of its number, in order. Raises GraphError for numbers that are no row's."""
    rows = a.reshape(numbers.size, -1)
    parts: list[list[list[bytes]]] = [[[] for _ in range(rows.shape[1])] for _ in range(many)]
    for number, row in zip(numbers.ravel().tolist(), rows, strict=True):
        if not 0 <= number < many:
            raise GraphError(f"a segment has the number {number}, and there are {many}", fix="number segments from 0 on, or give more")
        for part, s in zip(parts[number], row, strict=True):
            part.append(s)
    return objects([separator.join(part) for found in parts for part in found], [many, *a.shape[numbers.ndim :]])


def groups(
    words: Array, ends: Array, widths: Sequence[int], pad: int, keep_short: bool, before: bytes, behind: bytes, by: bytes
) -> tuple[Array, Array]:
    """Returns the words of each row joined in groups of each width, with marks before and behind the row, and where rows begin.

    pad: how many marks there are at most, -1: as many as a group has room for; keep_short: whether a row without a group is one
    """

    def row(words: list[bytes]) -> list[bytes]:
        found = []
        for width in widths:
            many = min(width - 1 if pad < 0 else pad, width - 1)
            marked = [before] * many + words + [behind] * many
            found += [by.join(marked[k : k + width]) for k in range(len(marked) - width + 1)]
        if not found and words and keep_short:
            found = [by.join([before] * pad + words + [behind] * pad)]
        return found

    rows = [row(words[a:b].tolist()) for a, b in zip(ends, ends[1:], strict=False)] if words.size else [[]] * (len(ends) - 1)
    return objects([s for found in rows for s in found]), np.cumsum([0, *map(len, rows)])


def from_base64(s: bytes) -> bytes:
    """Returns what web-safe base64 stands for, padded or not. Raises GraphError for what is none."""
    try:
        return base64.b64decode(s + b"=" * (-len(s) % 4), b"-_", validate=True)
    except binascii.Error as error:
        raise GraphError(f"{s[:40]!r} is not base64: {error}") from None


# ---- numbers as text ------------------------------------------------------------------------------------------------------


def shown(dtype: Any, letter: str, precision: int, width: int, fill: str) -> Callable[[Any], bytes]:
    """Returns the function that writes a number of a dtype as C's printf does; `letter` is `e`, `f` or `g`. Strings stay."""
    size = f"%{fill}{width if width > -1 else ''}"
    form = f"{size}{f'.{precision}' if precision > -1 else ''}{letter}" if dtype.kind in "fV" else f"{size}d"

    def run(v: Any) -> bytes:
        if isinstance(v, bytes):
            return v
        if isinstance(v, bool):
            return b"true" if v else b"false"
        return (form % v).encode()

    return run


def summary(a: Any, most: int, depth: int = 1) -> str:
    """Returns an array as text, of each dim the first and last `most` items; all of them where that is below 0."""
    if np.ndim(a) == 0:
        v = a[()] if isinstance(a, np.ndarray) else a
        if isinstance(v, bytes):
            return '"' + v.decode("utf-8", "replace") + '"'
        return str(int(v)) if isinstance(v, (bool, np.bool_)) else f"{v:g}" if np.dtype(type(v)).kind in "fV" else str(v)
    whole = most < 0 or len(a) <= 2 * most
    rows = [summary(row, most, depth + 1) for row in (a if whole else [*a[:most], *a[-most:]])]
    if not whole:
        rows.insert(most, "...")
    return "[" + (" " if a.ndim == 1 else "\n" * (a.ndim - 1) + " " * depth).join(rows) + "]"


def murmur64(s: bytes, seed: int) -> int:
    """Returns 64 bits of a string: A. Appleby's MurmurHash64A (2008), public domain."""
    full, by = (1 << 64) - 1, 0xC6A4A7935BD1E995
    found = seed ^ len(s) * by & full
    for k in range(0, len(s), 8):
        word = int.from_bytes(s[k : k + 8], "little")
        if len(s) - k >= 8:
            word = word * by & full
            word = (word ^ word >> 47) * by & full
        found = (found ^ word) * by & full
    found = (found ^ found >> 47) * by & full
    return found ^ found >> 47


def keyed_fingerprint(s: bytes, key: Sequence[int]) -> int:
    """Returns 64 bits of a string under a key of two numbers: SipHash-2-4. Source: J. Aumasson and D. Bernstein, "SipHash" (2012)."""
    full = (1 << 64) - 1
    first, second = (k & full for k in key)
    v = [first ^ 0x736F6D6570736575, second ^ 0x646F72616E646F6D, first ^ 0x6C7967656E657261, second ^ 0x7465646279746573]

    def mix(turns: int) -> None:
        def add(a: int, b: int, by: int) -> None:
            v[a] = v[a] + v[b] & full
            v[b] = (v[b] << by | v[b] >> 64 - by) & full ^ v[a]

        for _ in range(turns):
            add(0, 1, 13)
            v[0] = v[0] << 32 & full | v[0] >> 32
            add(2, 3, 16)
            add(0, 3, 21)
            add(2, 1, 17)
            v[2] = v[2] << 32 & full | v[2] >> 32

    padded = s + b"\0" * (7 - len(s) % 8) + bytes([len(s) & 255])
    for k in range(0, len(padded), 8):
        word = int.from_bytes(padded[k : k + 8], "little")
        v[3] ^= word
        mix(2)
        v[0] ^= word
    v[2] ^= 0xFF
    mix(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


# ---- patterns -----------------------------------------------------------------------------------------------------------

POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~", "space": r"\t\n\v\f\r ", "upper": "A-Z",
    "word": r"0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip


@cache
def pattern(text: str) -> re.Pattern[str]:
    """Returns a pattern of RE2's syntax. Raises UnsupportedError for one that Python's `re` has not."""
    made, at, within = "", 0, False
    while at < len(text):
        two, one = text[at : at + 2], text[at]
        posix = re.match(r"\[:(\^?)(\w+):\]", text[at:]) if within else None
        if posix and posix[2] in POSIX and not posix[1]:
            made, at = made + POSIX[posix[2]], at + posix.end()
            continue
        if one == "\\":
            made += {r"\z": r"\Z", r"\s": r"\t\n\f\r " if within else r"[\t\n\f\r ]"}.get(two, two)
            at += 2
            continue
        if within:
            made, within = made + (r"\[" if one == "[" else one), one != "]"
        elif one == "[":
            first = re.match(r"\[\^?\]?", text[at:])
            assert first is not None
            made, at, within = made + first[0].replace("]", r"\]"), at + first.end() - 1, True
        else:
            made += r"\Z" if one == "$" else one
        at += 1
    try:
        return re.compile(made, re.ASCII)
    except re.error as error:
        raise UnsupportedError(f"{text!r} is not a pattern of Python's re: {error}", fix="write it without RE2's own classes") from None


def _text(s: bytes) -> str:
    return s.decode("utf-8", "surrogateescape")


def full_match(s: bytes, of: bytes) -> bool:
    """Returns whether all of a string matches a pattern."""
    return pattern(_text(of)).fullmatch(_text(s)) is not None


def replaced(s: bytes, of: bytes, rewrite: bytes, everywhere: bool = True) -> bytes:
    r"""Returns a string with matches replaced; `\1` stands for a group. Raises GraphError for a rewrite that is not one."""
    compiled, said = pattern(_text(of)), _text(rewrite)
    for escape in re.findall(r"\\(.?)", said, re.DOTALL):
        if escape != "\\" and not (escape.isdecimal() and int(escape) <= compiled.groups):
            raise GraphError(f"{said!r} is not a rewrite of {compiled.pattern!r}: \\{escape} is not a group of it")
    text, made, last, before = _text(s), list[str](), 0, -1
    for match in compiled.finditer(text):
        if match.start() == match.end() == before:  # an empty match right behind another is none
            continue
        put = re.sub(r"\\(.)", lambda e, m=match: "\\" if e[1] == "\\" else m[int(e[1])] or "", said)  # type: ignore[misc]
        made += [text[last : match.start()], put]
        last = before = match.end()
        if not everywhere:
            break
    return ("".join(made) + text[last:]).encode("utf-8", "surrogateescape")


# ---- hashes -------------------------------------------------------------------------------------------------------------

_BITS = (1 << 64) - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


def _turned(x: int, k: int) -> int:
    x &= _BITS
    return (x >> k | x << (64 - k)) & _BITS


def _shifted(x: int) -> int:
    x &= _BITS
    return x ^ x >> 47


def _pair(u: int, v: int, by: int) -> int:
    a = _shifted((u ^ v) * by)
    return _shifted((v ^ a) * by) * by & _BITS


def _weak(w: int, x: int, y: int, z: int, a: int, b: int) -> tuple[int, int]:
    a += w
    b = _turned(b + a + z, 21)
    c, a = a, a + x + y
    return (a + z) & _BITS, (b + _turned(a, 44) + c) & _BITS


def fingerprint64(s: bytes) -> int:
    """Returns the 64 bits of FarmHash's Fingerprint64."""
    n, by = len(s), _K2 + len(s) * 2

    def word(at: int, size: int = 8) -> int:
        return int.from_bytes(s[at : at + size], "little")

    if n < 4:
        y, z = (s[0] + (s[n >> 1] << 8), n + (s[-1] << 2)) if n else (0, 0)
        return _shifted((y * _K2 & _BITS) ^ (z * _K0 & _BITS)) * _K2 & _BITS if n else _K2
    if n < 8:
        return _pair(n + (word(0, 4) << 3) & _BITS, word(n - 4, 4), by)
    if n <= 16:
        a, b = word(0) + _K2, word(n - 8)
        return _pair((_turned(b, 37) * by + a) & _BITS, (_turned(a, 25) + b) * by & _BITS, by)
    if n <= 64:
        a, b, c, d = word(0) * (_K1 if n <= 32 else _K2), word(8), word(n - 8) * by, word(n - 16) * _K2
        y = (_turned(a + b, 43) + _turned(c, 30) + d) & _BITS
        z = _pair(y, (a + _turned(b + _K2, 18) + c) & _BITS, by)
        if n <= 32:
            return z
        e, f, g, h = word(16) * by, word(24), (y + word(n - 32)) * by, (z + word(n - 24)) * by
        return _pair((_turned(e + f, 43) + _turned(g, 30) + h) & _BITS, (e + _turned(f + a, 18) + g) & _BITS, by)
    x, y = (81 * _K2 + word(0)) & _BITS, 81 * _K1 + 113
    z, v, w, by = _shifted(y * _K2 + 113) * _K2, (0, 0), (0, 0), _K1
    last = (n - 1) // 64
    for turn in range(last + 1):
        at, nine = turn * 64, 1
        if turn == last:
            by, nine, at = _K1 + ((z & 0xFF) << 1), 9, n - 64
            first = w[0] + (n - 1 & 63)
            v = (v[0] + first, v[1])
            w = (first + v[0], w[1])
        x = _turned(x + y + v[0] + word(at + 8), 37) * by
        y = _turned(y + v[1] + word(at + 48), 42) * by
        x = (x ^ w[1] * nine) & _BITS
        y += v[0] * nine + word(at + 40)
        z = _turned(z + w[0], 33) * by
        v = _weak(word(at), word(at + 8), word(at + 16), word(at + 24), v[1] * by, x + w[0])
        w = _weak(word(at + 32), word(at + 40), word(at + 48), word(at + 56), z + w[1], y + word(at + 16))
        z, x = x, z & _BITS
    u = _pair(v[0], w[0], by & _BITS) + _shifted(y) * _K0 + z
    return _pair(u & _BITS, (_pair(v[1], w[1], by & _BITS) + x) & _BITS, by & _BITS)


# ---- characters by number ---------------------------------------------------------------------------------------------------


def characters(data: bytes, encoding: str, bad: Callable[[int], list[int]]) -> list[tuple[int, int]]:
    """Returns the characters of encoded text, each as its first byte's place and its number.

    bad: what stands for a malformed part, by its place.
    """
    found, at = list[tuple[int, int]](), 0
    while at < len(data):
        try:
            piece, malformed = data[at:].decode(encoding), 0
        except UnicodeDecodeError as error:
            piece, malformed = data[at : at + error.start].decode(encoding), max(error.end - error.start, 1)
        for c in piece:
            found.append((at, ord(c)))
            at += len(c.encode(encoding))
        if malformed:
            found += [(at, code) for code in bad(at)]
            at += malformed
    return found

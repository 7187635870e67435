"""Loads relocatable ELF objects into executable memory without LLVM, so that a warm start need not import it.

`Object` reads one, `ObjectLayout` places many in one block of memory and relocates them for its address, `LoadedObjects`
does so in this process. Supported are the features of generated kernels, on x86-64 and aarch64. Memory is never writable and executable
at once. Sources: System V ABI, chapter 4; its x86-64 supplement, 4.4; ELF for the Arm 64-bit Architecture, 5.7.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ngraph.errors import ParseError, UnsupportedError

X86_64, AARCH64 = 62, 183
PAGE = 1 << 16  # the largest page size of kernels for aarch64
MAX_CODE_BYTES = 1 << 30  # bytes of all objects together; branches and offsets reach 2 GB
PROGBITS, SYMTAB, RELA, NOBITS, REL = 1, 2, 4, 8, 9
WRITE, ALLOC, EXECUTE, THREAD_LOCAL = 1, 2, 4, 0x400
GLOBAL, WEAK = 1, 2


class Section(NamedTuple):
    """A loadable section: its bytes (none where it starts as zeros), size, alignment and flags."""

    data: bytes
    size: int
    align: int
    flags: int


class Symbol(NamedTuple):
    """A name for an address: `section` is a number in the object, 0 where it is undefined there."""

    name: str
    section: int
    value: int
    seen: bool  # exported


class Relocation(NamedTuple):
    """A relocation: the number at `offset` in `section`, of this kind, depends on the symbol's address."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


class Object:
    """A 64-bit little-endian relocatable object. Raises ParseError where it is none, UnsupportedError where it is of another kind."""

    def __init__(self, data: bytes):
        self.data = data
        if data[:6] != b"\x7fELF\x02\x01":
            raise ParseError("this is not an ELF object of 64 bits, little-endian")
        kind, self.machine, _, _, _, start, *_, size, count, names = self._unpack("<HHIQQQIHHHHHH", 16)
        if kind != 1 or size != 64:
            raise ParseError("this ELF file is not a relocatable object")
        self.headers = [self._unpack("<IIQQQQIIQQ", start + 64 * k) for k in range(count)]
        self.names = self._header(names)
        self.sections = {k: s for k, h in enumerate(self.headers) if (s := self._section(h)) is not None}
        tables = [h for h in self.headers if h[1] == SYMTAB]
        self.symbols = [s for h in tables[:1] for s in self._symbols(h)]
        self.relocations = [r for h in self.headers if h[7] in self.sections for r in self._relocations(h)]

    def _unpack(self, form: str, offset: int) -> tuple[int, ...]:
        try:
            return struct.unpack_from(form, self.data, offset)
        except (struct.error, OverflowError):
            raise ParseError("this ELF object is cut off", position=offset) from None

    def _header(self, k: int) -> tuple[int, ...]:
        if not 0 <= k < len(self.headers):
            raise ParseError(f"this ELF object has no section {k}")
        return self.headers[k]

    def _bytes(self, header: tuple[int, ...]) -> bytes:
        start, size = header[4], header[5]
        if start + size > len(self.data):
            raise ParseError("this ELF object is cut off", position=start)
        return self.data[start : start + size]

    def _name(self, table: bytes, offset: int) -> str:
        end = table.find(b"\0", offset)
        if end < 0:
            raise ParseError("a name in this ELF object has no end")
        return table[offset:end].decode("latin-1")

    def _section(self, header: tuple[int, ...]) -> Section | None:
        """Returns a section to load; None for unwind tables, since nothing here is ever unwound."""
        name, kind, flags, _, _, size, _, _, align, _ = header
        if not flags & ALLOC or not size:
            return None
        named = self._name(self._bytes(self.names), name)
        if named == ".eh_frame":
            return None
        align = max(align, 1)
        known = kind in (PROGBITS, NOBITS) and not flags & THREAD_LOCAL and flags & (WRITE | EXECUTE) != WRITE | EXECUTE
        if not known or align & (align - 1) or align > PAGE:
            raise UnsupportedError(f"the loader does not know the section {named!r}: kind {kind}, flags {flags:#x}, alignment {align}")
        if size > MAX_CODE_BYTES:
            raise ParseError(f"the section {named!r} claims {size} bytes")
        return Section(b"" if kind == NOBITS else self._bytes(header), size, align, flags)

    def _symbols(self, header: tuple[int, ...]) -> Iterator[Symbol]:
        table, names = self._bytes(header), self._bytes(self._header(header[6]))
        for name, info, _, section, value, _ in struct.iter_unpack("<IBBHQQ", table[: len(table) // 24 * 24]):
            if section in self.sections and value > self.sections[section].size:
                raise ParseError(f"the symbol {self._name(names, name)!r} lies outside its section")
            yield Symbol(self._name(names, name), section, value, info >> 4 in (GLOBAL, WEAK))

    def _relocations(self, header: tuple[int, ...]) -> Iterator[Relocation]:
        if header[1] == REL:
            raise UnsupportedError("the loader does not know relocations without addends")
        if header[1] == RELA:
            table, section = self._bytes(header), header[7]
            for offset, info, addend in struct.iter_unpack("<QQq", table[: len(table) // 24 * 24]):
                if info >> 32 >= len(self.symbols):
                    raise ParseError(f"this ELF object has no symbol {info >> 32}")
                yield Relocation(section, offset, info & 0xFFFFFFFF, info >> 32, addend)


def undefined_symbols(compiled: bytes) -> set[str]:
    """Returns the symbols that an object needs from elsewhere; generated code needs none."""
    return {s.name for s in Object(compiled).symbols if s.section == 0 and s.name}


# ---- relocations: kind -> (format of the number, its new value); s: the symbol's address with the addend, p: the number's own address

Patch = Callable[[int, int, int], int]  # of the present number, s, p


def _fits(value: int, bits: int, what: str) -> int:
    """Returns a signed value of this many bits; raises UnsupportedError where it does not fit."""
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise UnsupportedError(f"a relocated {what} does not fit {bits} bits")
    return value & (1 << bits) - 1


def _page(word: int, s: int, p: int) -> int:
    pages = _fits((s >> 12) - (p >> 12), 21, "page")
    return word & 0x9F00001F | (pages & 3) << 29 | pages >> 2 << 5


def _low(shift: int) -> Patch:
    """Returns the patch of the low twelve bits of an address, in an instruction that counts elements of 1 << shift bytes."""

    def patch(word: int, s: int, p: int) -> int:
        if s & (1 << shift) - 1:
            raise UnsupportedError(f"a relocated address is not a multiple of {1 << shift}")
        return word & 0xFFC003FF | (s & 0xFFF) >> shift << 10

    return patch


def _branch(word: int, s: int, p: int) -> int:
    return word & 0xFC000000 | _fits(s - p, 28, "branch") >> 2


_ABSOLUTE: tuple[str, Patch] = ("<Q", lambda _, s, p: s & 0xFFFFFFFFFFFFFFFF)
_RELATIVE: tuple[str, Patch] = ("<I", lambda _, s, p: _fits(s - p, 32, "distance"))
_DISTANCE: tuple[str, Patch] = ("<Q", lambda _, s, p: s - p & 0xFFFFFFFFFFFFFFFF)
KINDS: dict[int, dict[int, tuple[str, Patch]]] = {
    X86_64: {1: _ABSOLUTE, 2: _RELATIVE, 4: _RELATIVE, 9: _RELATIVE, 24: _DISTANCE, 41: _RELATIVE, 42: _RELATIVE},
    AARCH64: {
        257: _ABSOLUTE,
        260: _DISTANCE,
        261: _RELATIVE,
        275: ("<I", _page),
        282: ("<I", _branch),
        283: ("<I", _branch),
        311: ("<I", _page),
        312: ("<I", _low(3)),
        **{kind: ("<I", _low(shift)) for kind, shift in {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}.items()},
    },
}
# relocations to a word that holds the address
INDIRECT = {X86_64: {9, 41, 42}, AARCH64: {311, 312}}
# code that jumps to the address in the word after it, and that word; one for each external symbol
STUBS = {X86_64: b"\xff\x25\x02\0\0\0\x0f\x0b", AARCH64: b"\x50\0\0\x58\0\x02\x1f\xd6"}
STUB = 16


class ObjectLayout:
    """Objects of one machine, placed one after the other: first code, then constants, then writable data, each from a page on.

    `symbols` are addresses of external names. Raises UnsupportedError for an unknown name, two machines, or too many bytes.
    """

    def __init__(self, objects: Sequence[bytes], symbols: Mapping[str, int] | None = None):
        self.objects = [Object(data) for data in objects]
        self.symbols = symbols or {}
        machines = sorted({o.machine for o in self.objects})
        if len(machines) > 1 or not KINDS.keys() >= set(machines):
            raise UnsupportedError(f"the loader does not know objects of the machines {machines}; it knows {sorted(KINDS)}")
        self.machine = machines[0] if machines else X86_64
        self.words: dict[tuple[int, int] | str, int] = {}  # offsets of symbols' stubs
        self._place()

    def _place(self) -> None:
        self.offsets: list[dict[int, int]] = [{} for _ in self.objects]
        self.parts: list[tuple[int, int, int]] = []  # offset, size, flags
        end = 0
        for flags in (EXECUTE, 0, WRITE):
            start = end
            for o, offsets in zip(self.objects, self.offsets, strict=True):
                for k, s in o.sections.items():
                    if s.flags & (EXECUTE | WRITE) == flags:
                        offsets[k] = at = -(-end // s.align) * s.align
                        end = at + s.size
            if flags == EXECUTE:
                end = self._place_stubs(-(-end // STUB) * STUB)
            if end > MAX_CODE_BYTES:
                raise UnsupportedError(f"these objects take {end} bytes; the loader takes at most {MAX_CODE_BYTES}")
            if end > start:
                self.parts.append((start, end - start, flags))
            end = -(-end // PAGE) * PAGE
        self.size = end

    def _place_stubs(self, end: int) -> int:
        for k, o in enumerate(self.objects):
            for r in o.relocations:
                if (key := self._key(k, r)) is not None and key not in self.words:
                    self.words[key] = end
                    end += STUB
        return end

    def _key(self, k: int, r: Relocation) -> tuple[int, int] | str | None:
        """Returns the key of the stub that a relocation needs: of an external name, or of a symbol whose address is loaded from memory."""
        s = self.objects[k].symbols[r.symbol]
        if s.section == 0:
            if s.name not in self.symbols:
                raise UnsupportedError(f"an object wants the symbol {s.name!r}, which is not here")
            return s.name
        return (k, r.symbol) if r.kind in INDIRECT[self.machine] else None

    def offset(self, name: str, which: int = 0) -> int:
        """Returns the offset of a function or table of an object. Raises KeyError where the object exports none of that name."""
        for s in self.objects[which].symbols:
            if s.name == name and s.seen and s.section in self.offsets[which]:
                return self._offset(which, s)
        raise KeyError(name)

    def _offset(self, k: int, s: Symbol) -> int:
        if s.section not in self.offsets[k]:
            raise UnsupportedError(f"an object wants {s.name!r} in its section {s.section}, which is not loaded")
        return self.offsets[k][s.section] + s.value

    def write(self, memory: Any, base: int) -> None:
        """Writes all objects into a buffer of `size` zeros for the address `base`, a multiple of PAGE."""
        for o, offsets in zip(self.objects, self.offsets, strict=True):
            for k, at in offsets.items():
                data = o.sections[k].data
                memory[at : at + len(data)] = data
        for key, at in self.words.items():
            address = self.symbols[key] if isinstance(key, str) else base + self._offset(key[0], self.objects[key[0]].symbols[key[1]])
            memory[at : at + STUB] = STUBS[self.machine] + struct.pack("<Q", address)
        for k, o in enumerate(self.objects):
            for r in o.relocations:
                self._relocate(memory, base, k, r)

    def _relocate(self, memory: Any, base: int, k: int, r: Relocation) -> None:
        if r.kind not in KINDS[self.machine]:
            raise UnsupportedError(f"the loader does not know relocation {r.kind} of machine {self.machine}")
        form, patch = KINDS[self.machine][r.kind]
        section = self.objects[k].sections[r.section]
        if r.offset + struct.calcsize(form) > len(section.data):
            raise ParseError("a relocation lies outside its section", position=r.offset)
        at = self.offsets[k][r.section] + r.offset
        key = self._key(k, r)
        if key is None:
            place = self._offset(k, self.objects[k].symbols[r.symbol])
        else:
            place = self.words[key] + (STUB - 8 if r.kind in INDIRECT[self.machine] else 0)
        struct.pack_into(form, memory, at, patch(struct.unpack_from(form, memory, at)[0], base + place + r.addend, base + at))


class LoadedObjects:
    """Objects in this process's memory; `address(name, which)` is valid while this lives.

    Raises what `ObjectLayout` does, and OSError.
    """

    def __init__(self, *objects: bytes, symbols: Mapping[str, int] | None = None):
        layout = ObjectLayout(objects, symbols)
        # a page more than needed, so that it contains a multiple of PAGE
        self._memory = mmap.mmap(-1, layout.size + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        skipped = -start % PAGE
        self._layout, self._base = layout, start + skipped
        layout.write(memoryview(self._memory)[skipped:], self._base)
        for at, size, flags in layout.parts:
            if flags != WRITE:
                # the system synchronises the instruction cache of aarch64 when a page becomes executable
                _protect(self._base + at, size, mmap.PROT_READ | (mmap.PROT_EXEC if flags == EXECUTE else 0))

    def address(self, name: str, which: int = 0) -> int:
        """Returns the address of a function of one of the objects. Raises KeyError where it has none of that name."""
        return self._base + self._layout.offset(name, which)


def _protect(start: int, size: int, protection: int) -> None:
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    if protect(ctypes.c_void_p(start), ctypes.c_size_t(size), protection):
        raise OSError(ctypes.get_errno(), "the system allows no code that was made in memory")

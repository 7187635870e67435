"""From IR text to machine code: instruction selection by LLVM without any of its passes, and loading of the object.

Nothing that `import ngraph` loads imports this module: llvmlite costs a quarter of a second.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from ngraph.targets import Target, host


def _new_machine(triple: str, cpu: str, features: str) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=3, reloc="pic", codemodel="small")


_machine = cache(_new_machine)


def machine(target: Target) -> Any:
    """LLVM's target machine; one for each description."""
    return _machine(target.triple, target.cpu, target.features)


def parse(text: str) -> Any:
    """A verified module. Raises RuntimeError with LLVM's words where the text is no IR."""
    module = llvm.parse_assembly(text)
    module.verify()
    return module


def compile_object(text: str, target: Target) -> bytes:
    """The relocatable object of a module."""
    made: bytes = machine(target).emit_object(parse(text))
    return made


def compile_assembly(text: str, target: Target) -> str:
    """The same as assembly text, to read."""
    made: str = machine(target).emit_assembly(parse(text))
    return made


class Code:
    """A loaded object; `address(name)` of a function in it is good as long as this lives."""

    def __init__(self, compiled: bytes):
        this = host()
        own = _new_machine(this.triple, this.cpu, this.features)  # the engine owns it from here
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(f'target triple = "{this.triple}"'), own)
        self._engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(compiled))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Where a function lies. Raises KeyError where the object has none of that name."""
        found: int = self._engine.get_function_address(name)
        if not found:
            raise KeyError(name)
        return found


def load(text: str, target: Target | None = None) -> Code:
    """Compiles for `target`, by default the host, whose instructions must include it, and loads."""
    return Code(compile_object(text, target or host()))


def undefined_symbols(compiled: bytes) -> set[str]:
    """What an ELF object (64 bits, little-endian) wants from elsewhere; own code wants nothing."""
    return {name for name, section in _symbols(compiled) if section == 0 and name}


def _symbols(compiled: bytes) -> Iterator[tuple[str, int]]:
    """(name, section) of every symbol. System V ABI, chapters "Sections" and "Symbol Table"."""
    if compiled[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no ELF object of 64 bits, little-endian")
    (offset,) = struct.unpack_from("<Q", compiled, 0x28)
    size, count = struct.unpack_from("<HH", compiled, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", compiled, offset + size * k) for k in range(count)]
    for _, kind, _, _, start, length, link, *_ in headers:
        if kind != 2:  # a symbol table
            continue
        names = headers[link][4]
        for at in range(start, start + length, 24):
            name, _, _, section = struct.unpack_from("<IBBH", compiled, at)
            end = compiled.index(b"\0", names + name)
            yield compiled[names + name : end].decode(), section

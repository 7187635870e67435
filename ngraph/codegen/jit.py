"""From IR text to machine code: instruction selection by LLVM without any of its passes, and loading of the object.

Nothing that `import ngraph` loads imports this module: llvmlite costs a quarter of a second.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import llvmlite.binding as llvm

from ngraph.codegen.loader import Code
from ngraph.targets import Target, host


@cache
def _machine(triple: str, cpu: str, features: str) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=3, reloc="pic", codemodel="small")


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


def load(text: str, target: Target | None = None) -> Code:
    """Compiles for `target`, by default the host, whose instructions must include it, and loads."""
    return Code(compile_object(text, target or host()))

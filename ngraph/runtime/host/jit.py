"""From IR text to machine code in this process: instruction selection by LLVM without any of its passes, and loading of the object.

LLVM is loaded with the first text, which costs a quarter of a second; `workers` compiles without loading it here.
"""

from __future__ import annotations

from typing import Any

from ngraph.runtime.host import worker
from ngraph.runtime.host.loader import LoadedObjects
from ngraph.targets import Cpu, host


def compile_object(text: str, target: Cpu) -> bytes:
    """The relocatable object of a module. Raises RuntimeError with LLVM's words where the text is no IR."""
    return worker.compile_object(target.triple, target.cpu, target.features, text)


def compile_assembly(text: str, target: Cpu) -> str:
    """The same as assembly text, to read."""
    machine: Any = worker.machine(target.triple, target.cpu, target.features)
    made: str = machine.emit_assembly(worker.parse(text))
    return made


def load(text: str, target: Cpu | None = None) -> LoadedObjects:
    """Compiles for `target`, by default the host, whose instructions must include it, and loads."""
    return LoadedObjects(compile_object(text, target or host()))

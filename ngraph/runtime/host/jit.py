"""Machine code from IR text in this process: instruction selection by LLVM without any of its passes, and loading of the object.

LLVM is loaded with the first text, which takes a quarter of a second; `workers` compiles without loading it here.
"""

from __future__ import annotations

from typing import Any

from ngraph.runtime.host import worker
from ngraph.runtime.host.loader import LoadedObjects
from ngraph.targets import Cpu, host


def compile_object(text: str, target: Cpu) -> bytes:
    """Returns the relocatable object of a module. Raises RuntimeError with LLVM's message where the text is not IR."""
    return worker.compile_object(target.triple, target.cpu, target.features, text)


def compile_assembly(text: str, target: Cpu) -> str:
    """Returns the assembly text of a module, to read."""
    machine: Any = worker.machine(target.triple, target.cpu, target.features, worker.opt(text))
    made: str = machine.emit_assembly(worker.parse(text))
    return made


def load(text: str, target: Cpu | None = None) -> LoadedObjects:
    """Compiles for `target`, by default the host, whose instructions must include it, and loads the object."""
    return LoadedObjects(compile_object(text, target or host()))

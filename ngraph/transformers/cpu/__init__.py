"""Compiles programs to machine code for this processor: plan, kernels, one table that threads walk.

`native` a program, compiled for the lengths of its calls · `code` a plan as loaded kernels · `frame` the memory and the table of one call
· `host` steps that Python runs. None of it is loaded before something is compiled.
"""

from __future__ import annotations

import importlib
import importlib.util

from ngraph.program.program import Program
from ngraph.runtime.computation import Executable
from ngraph.transformers.base import Transformer


class CpuTransformer(Transformer):
    """The default: native code, several threads, nothing but what it generated itself."""

    name = "cpu"

    def compile(self, program: Program) -> Executable:
        program.check_lengths()
        made: Executable = importlib.import_module("ngraph.transformers.cpu.native").Native(program).executable()
        return made

    @classmethod
    def unavailable(cls) -> str:
        return "" if importlib.util.find_spec("llvmlite") else "llvmlite is not installed"

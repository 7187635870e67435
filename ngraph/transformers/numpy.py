"""Runs a program as Python over NumPy, which `printed` writes."""

from __future__ import annotations

from ngraph.parts.deferred import deferred
from ngraph.program.program import Program
from ngraph.runtime.computation import Executable
from ngraph.transformers.base import Transformer

printed = deferred("ngraph.transformers.printed")


class NumPyTransformer(Transformer):
    """Generated Python code that can be read, kept and run without this package."""

    name = "numpy"

    def compile(self, program: Program) -> Executable:
        made = printed.printed(program)
        return Executable(made.compiled(), made.module, made.made.memory, made.in_place)

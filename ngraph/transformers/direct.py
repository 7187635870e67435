"""Executes a program by NumPy calls, one step at a time; without code generation, so it is ready at once."""

from __future__ import annotations

from ngraph.numpy_ops import translate, walk
from ngraph.passes.dim_orders import dim_orders
from ngraph.program.program import Program
from ngraph.runtime.computation import Executable
from ngraph.transformers.base import Transformer


class DirectTransformer(Transformer):
    """For single calls, for debugging, and where no other transformer is available."""

    name = "direct"

    def compile(self, program: Program) -> Executable:
        made = translate(program, dim_orders)
        return Executable(walk(made.lines), memory=made.memory)

"""Executes a program by NumPy calls, one step at a time; without code generation, so it is ready at once."""

from __future__ import annotations

from ngraph.parts.deferred import deferred
from ngraph.program.program import Program
from ngraph.runtime.computation import Executable
from ngraph.transformers.base import Transformer

numpy_ops, orders = deferred("ngraph.numpy_ops"), deferred("ngraph.passes.dim_orders")


class DirectTransformer(Transformer):
    """For single calls, for debugging, and where no other transformer is available."""

    name = "direct"

    def compile(self, program: Program) -> Executable:
        made = numpy_ops.translate(program, orders.dim_orders)
        return Executable(numpy_ops.walk(made.lines), memory=made.memory)

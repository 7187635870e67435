"""The code of a kernel as that of another one that differs from it in nothing but names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ngraph.codegen.signature import KernelCode
from ngraph.op_graph import expr
from ngraph.op_graph.expr import ExprLike, Leaf, Len
from ngraph.plan.deduplication import Shape


def moved(code: KernelCode, old: Shape, new: Shape) -> KernelCode:
    """The code of a kernel as that of another one of equal key."""
    axes, buffers = dict(zip(old.axes, new.axes, strict=True)), dict(zip(old.buffers, new.buffers, strict=True))

    def leaf(x: Leaf) -> ExprLike:
        return Len(axes[x.of]) if type(x) is Len else x

    def over(e: ExprLike) -> ExprLike:
        return e if isinstance(e, int) else expr.substitute(e, leaf)

    def named(found: Sequence[Any], names: dict[Any, Any]) -> tuple[Any, ...]:
        return tuple([names[f] for f in found])

    return replace(
        code,
        buffers=named(code.buffers, buffers),
        lengths=named(code.lengths, axes),
        work_items=over(code.work_items),
        scratch=over(code.scratch),
        growth=over(code.growth),
    )

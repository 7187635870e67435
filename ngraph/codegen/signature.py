"""A kernel as it is called: what is kept of it when its text has been compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ngraph.op_graph.expr import ExprLike
from ngraph.plan.kernels import Buffer
from ngraph.program.program import AxisId


@dataclass(frozen=True)
class KernelCode:
    """A kernel's text with everything needed to compile and to call it.

    work_items, scratch   their number, and bytes, over `Len` of `lengths`
    seconds               that all work items take on one core, as predicted for guessed lengths; 0: unknown
    growth                a number over `Len` of `lengths` with which these seconds grow
    """

    text: str
    buffers: tuple[Buffer, ...]
    lengths: tuple[AxisId, ...]
    work_items: ExprLike
    scratch: ExprLike
    growth: ExprLike
    seconds: float = 0.0
    debug_info: Mapping[str, Any] = field(default_factory=dict, compare=False)

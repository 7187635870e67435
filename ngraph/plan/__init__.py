"""Tensor graph → plan: kernels over buffers, found by one fusion pass that knows no op by name.

`kernels`              the data structures: plans, kernels, stages, buffers, stores
`fuse`, `cost`         which nodes become one kernel, and the cost that decides it
`stages`               a fused group as the stages of a kernel
`layout`, `packing`, `padding`, `memory`   packed operands, padded copies, the arena
`schedule`             vectors, tiles and loop order
`deduplication`        kernels of equal structure, which are compiled once
`planner`              all of it in a row, as pipelines of passes over graphs and plans
`text`, `verify`, `interpret`   plans printed and parsed, checked, and run in NumPy

Every core op becomes stages, or an opaque op (sort, compact, cumulate, control flow over sub-plans, effects). Each work item recomputes
small values for itself. A reduction over parallel loops runs in two stages (split-K): partial results lie along an axis `split_k`, and
a second reduction, which is fused like any other, adds them up. How many there are follows from kernel and target alone.

Words: docs/glossary.md.
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ngraph.plan.interpret import interpret
from ngraph.plan.kernels import Buffer, Combine, Kernel, Line, Local, Memory, OpaqueOp, Plan, Stage, Store
from ngraph.plan.text import arrays, parse, text
from ngraph.plan.verify import verify
from ngraph.tensors.index import Load, Read

if _TYPE_CHECKING:
    from ngraph.plan.planner import plan

__all__ = [
    "Buffer",
    "Combine",
    "Kernel",
    "Line",
    "Load",
    "Local",
    "Memory",
    "Plan",
    "Read",
    "OpaqueOp",
    "Stage",
    "Store",
    "arrays",
    "interpret",
    "parse",
    "plan",
    "text",
    "verify",
]


def __getattr__(name: str) -> _Any:
    if name == "plan":  # a start that finds its plans does without the planner
        return _importlib.import_module("ngraph.plan.planner").plan
    raise AttributeError(f"module 'ngraph.plan' has no attribute {name!r}")

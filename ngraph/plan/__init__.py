"""Program → plan: kernels over buffers, found by one merge that knows no op by name.

`kernels` the nouns · `nodes` a program as scalar operations over spaces · `split` reductions in classes and in terms · `winograd` sums
over windows by fewer products · `pairs`, `quads`, `exact` sums of products of short numbers several at a time, or in floats, by what
`whole` knows of them · `fuse` the merge · `price` what it is judged by, and loops · `stages` a group as the stages of a kernel ·
`layout`, `panels`, `borders` where values lie · `memory` the arena · `schedule` vectors and tiles · `alike` equal kernels · `planner` all
of it in a row · `text`, `verify`, `interpret` to look at plans.

Every core op is stages, or a routine (sort, compact, cumulate, control flow over sub-plans, effects). A turn of a kernel's loops computes
for itself what is small (once in a thread, its stages have a depth of 0), and a part of what takes in the loops: the parts lie along an
axis `split_k` and are put together by a reduction that merges like any other. How many there are follows from kernel and machine alone.
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ngraph.plan.cost import MachineModel
from ngraph.plan.interpret import interpret
from ngraph.plan.kernels import Buffer, Combine, Kernel, Line, Load, Local, Memory, OpaqueOp, Plan, Read, Stage, Store
from ngraph.plan.text import arrays, parse, text
from ngraph.plan.verify import verify

if _TYPE_CHECKING:
    from ngraph.plan.planner import plan

__all__ = [
    "Buffer",
    "Combine",
    "Kernel",
    "Line",
    "Load",
    "Local",
    "MachineModel",
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

"""Program → plan: kernels over buffers, found by one merge that knows no op by name.

`kernels` the nouns · `nodes` a program as scalar operations over spaces · `fuse` the merge · `price` what it is judged by · `stages`
a group as the stages of a kernel · `memory` the arena · `planner` all of it in a row · `text`, `verify`, `interpret` to look at plans.

What is there: every core op, as stages, or as a routine (sort, compact, cumulate, control flow over sub-plans, effects); fusion with
blocks, locals and recomputation; state in place. What is not there yet: reductions over loops (chunks), so a total runs in one turn;
renaming of producers; split axes; packed operands and panels; layouts, borders and padding other than dense ones in the order of the
value's axes; schedules; cut K; Winograd; hoisting out of scans. Every stage runs in every turn (depth is always that of all loops).
"""

from ngraph.plan.interpret import interpret
from ngraph.plan.kernels import Buffer, Combine, Kernel, Line, Load, Local, Memory, Plan, Read, Routine, Stage, Store
from ngraph.plan.planner import plan
from ngraph.plan.price import Machine
from ngraph.plan.text import arrays, parse, text
from ngraph.plan.verify import verify

__all__ = [
    "Buffer",
    "Combine",
    "Kernel",
    "Line",
    "Load",
    "Local",
    "Machine",
    "Memory",
    "Plan",
    "Read",
    "Routine",
    "Stage",
    "Store",
    "arrays",
    "interpret",
    "parse",
    "plan",
    "text",
    "verify",
]

"""Program → program: one function for each pass, in any order that satisfies their needs.

`simplify`          local equivalences; `rules` is its table
`share`             common-subexpression elimination
`fold`              constant folding
`dead`              dead-code elimination
`specialise`        lengths that became known
`hoist`             loop-invariant code motion, products of all iterations at once
`concat_gradients`  sums of slices' gradients as one concatenation
`gather_products`   products with gathered rows of a table
`loop_cse`          common-subexpression elimination across loops: the backward scan reads what the forward scan computed
`sink`              cheap slices computed in the loop that reads them
`dim_orders`        the order of the dims of each value in a NumPy array

`facts` holds what they read. `ngraph.rewrite.runner` runs them in sequence and verifies the program after each.

Words: docs/glossary.md.
"""

from ngraph.parts.runner import PASSES, Pipeline, pass_
from ngraph.passes.concat_gradients import concat_gradients
from ngraph.passes.dead import dead
from ngraph.passes.fold import fold
from ngraph.passes.gather_products import gather_products
from ngraph.passes.hoist import hoist
from ngraph.passes.loop_cse import loop_cse
from ngraph.passes.rules import simplify_rules
from ngraph.passes.share import share
from ngraph.passes.simplify import simplify
from ngraph.passes.sink import sink
from ngraph.passes.specialise import specialise
from ngraph.rewrite.runner import run

default_passes = Pipeline(
    share,  # first, since rules test whether two values are one
    simplify,
    fold,
    simplify,  # folded values may be 0 or 1
    share,
    dead,
)
plan_passes = Pipeline(  # before a program is planned, for the lengths that are known
    specialise,
    concat_gradients,  # before sums leave the loops that they stand in
    hoist,
    dead,  # what left its loop
    loop_cse,
    gather_products,  # where the products stand that were hoisted, before their rows are looked up in loops again
    sink,
    dead,  # what loops compute themselves
)

__all__ = [
    "PASSES",
    "Pipeline",
    "concat_gradients",
    "dead",
    "default_passes",
    "fold",
    "gather_products",
    "hoist",
    "loop_cse",
    "pass_",
    "plan_passes",
    "run",
    "share",
    "simplify",
    "simplify_rules",
    "sink",
    "specialise",
]

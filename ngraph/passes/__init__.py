"""Program → program: one function each, in any order that their needs allow.

`simplify`          local equivalences; `rules` is its table
`share`             common-subexpression elimination
`fold`              constant folding
`dead`              dead-code elimination
`specialise`        lengths that became known
`hoist`             loop-invariant code motion, products of all iterations at once
`concat_gradients`  sums of pieces that lie beside each other as one concatenation
`gather_products`   products with rows of a table that are gathered
`loop_cse`          common-subexpression elimination across loops: the backward scan reads what the forward scan computed
`sink`              cheap slices computed in the loop that reads them
`dim_orders`        the order of the dims of each value in a NumPy array

`ngraph.rewrite.runner` runs them in a row and checks the program after each.
"""

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
from ngraph.rewrite.runner import pass_, passes, register, run

default_passes = (
    share,  # first, for rules ask whether two values are one
    simplify,
    fold,
    simplify,  # what was folded may be a 0 or a 1
    share,
    dead,
)

__all__ = [
    "dead",
    "default_passes",
    "fold",
    "hoist",
    "joined",
    "lookups",
    "pass_",
    "passes",
    "register",
    "run",
    "saved",
    "share",
    "simplify",
    "simplify_rules",
    "specialise",
    "sunk",
]

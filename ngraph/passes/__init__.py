"""Program → program: one function each, in any order that their needs allow.

`simplify` local equivalences (its table: `rules`) · `share` equal steps become one · `fold` what constants alone decide ·
`dead` what nobody needs · `specialise` lengths that became known · `hoist` what need not be in a loop · `joined` sums of pieces ·
`gather_products` products with rows of a table · `saved` what the way back of a loop need not work out again ·
`sink` what a loop had better make itself.
`ngraph.rewrite.runner` runs them in a row and checks the law.
"""

from ngraph.passes.concat_gradients import joined
from ngraph.passes.dead import dead
from ngraph.passes.fold import fold
from ngraph.passes.gather_products import gather_products
from ngraph.passes.hoist import hoist
from ngraph.passes.loop_cse import saved
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

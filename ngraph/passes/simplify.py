"""Peephole rewriting, from the first step to the last. The rules are in `rules.py`; packages may register more."""

from __future__ import annotations

from ngraph.parts.runner import pass_
from ngraph.passes.rules import simplify_rules
from ngraph.program.program import Program
from ngraph.rewrite.driver import rewrite


@pass_(gives=("simple",))
def simplify(program: Program) -> Program:
    """Returns `program` with `simplify_rules` applied; those that differ at NaN, infinity or -0 only under `ng.config(exact=False)`."""
    return rewrite(program, simplify_rules)

"""Local equivalences as data, and the one driver that applies them.

`pattern` rules and their patterns · `driver` program → program by rules · `trace` the applied rules · `runner` passes in sequence, under
the settings of this package

Words: docs/glossary.md.
"""

from ngraph.rewrite.driver import Built, rewrite
from ngraph.rewrite.pattern import Rule, Rules, any_of, functions, many, var
from ngraph.rewrite.trace import RewriteTrace, tracing

__all__ = ["Built", "Rule", "Rules", "RewriteTrace", "any_of", "functions", "many", "rewrite", "tracing", "var"]

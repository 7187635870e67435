"""Core op → NumPy: one table, used by `direct` (which calls it), `numpy` (which prints it) and constant folding.

`lines` the form of translated programs · `translate` the translation · `table`, `reindex` each core op's calls · `walk` a callable.

Lengths may be unknown until the call: lines contain them as expressions over variables. A tensor may lack dims that its value has;
it is then constant along them, and is broadcast only when a call needs it.

Words: docs/glossary.md.
"""

from ngraph.numpy_ops import reindex, table
from ngraph.numpy_ops.lines import CallLine, Lines, Name, Use, Variable, VariableRef, bytes_of, several, used
from ngraph.numpy_ops.translate import LINES, Translation, Translator, translate
from ngraph.numpy_ops.walk import LineRunner, check_bounds, evaluate, function, named_function, walk
from ngraph.op_graph.opdef import NUMPY

__all__ = [
    "LINES",
    "NUMPY",
    "CallLine",
    "Lines",
    "Name",
    "VariableRef",
    "Translation",
    "Translator",
    "Use",
    "Variable",
    "LineRunner",
    "bytes_of",
    "check_bounds",
    "evaluate",
    "function",
    "named_function",
    "reindex",
    "several",
    "table",
    "translate",
    "used",
    "walk",
]

"""Core op → NumPy: one table, read by `direct` (which calls it), `numpy` (which prints it) and the pass that folds constants.

`lines` what programs become · `translate` how · `table`, `reindex` the calls that each core op is · `walk` lines as a callable.

Lengths may be known only at the call: they stand in the lines as expressions over variables. A tensor may lack dims that its value
has; it then is the same along them, and no broadcast is ever carried out before somebody needs it.
"""

from ngraph.numpy_ops import reindex, table
from ngraph.numpy_ops.lines import SEVERAL, CallLine, Lines, Name, Use, Variable, VariableRef, bytes_of, used
from ngraph.numpy_ops.translate import LINES, NUMPY, Translation, Translator, translate
from ngraph.numpy_ops.walk import LineRunner, check_bounds, evaluate, function, walk

__all__ = [
    "LINES",
    "NUMPY",
    "SEVERAL",
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
    "reindex",
    "table",
    "translate",
    "used",
    "walk",
]

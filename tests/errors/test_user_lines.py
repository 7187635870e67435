"""Errors as a user sees them: each script runs as a process, and the first line of the message names its file and line."""

import subprocess
import sys
import textwrap

import pytest

from ngraph.errors import user_line

SETUP = """\
import numpy as np
import ngraph as ng
import ngraph.transformers as ngt
C, C5 = ng.make_axis(4, name="C"), ng.make_axis(5, name="C")
N, H = ng.make_axis(8, name="N"), ng.make_axis(3, name="H")
"""

# the last line of each script is the one to blame; then the error, and what its message must say
CASES = {
    "dot lengths": (
        'W = ng.variable([H, C - 1]).named("W")\nX = ng.placeholder([C5, N]).named("X")\nng.dot(W, X)',
        "AxisError",
        ["dot(W, X)", "length 4 in W and 5 in X", "C'=4", "C=5", "fix:"],
    ),
    "add lengths": (
        'x = ng.placeholder([C, N]).named("x")\ny = ng.placeholder([N, C5]).named("y")\nx + y',
        "AxisError",
        ["add(x, y)", "axis C has length 4 in x and 5 in y", "[C=4, N=8]", "[N=8, C=5]", "fix:"],
    ),
    "every conflict at once": (
        'N9 = ng.make_axis(9, name="N")\nx, y = ng.placeholder([C, N]), ng.placeholder([C5, N9])\nx * y',
        "AxisError",
        ["axis C has length 4", "axis N has length 8"],
    ),
    "unlike flags": (
        'P, Q = ng.make_axis(3, name="P", batch=True), ng.make_axis(3, name="P")\nx, y = ng.placeholder([P]), ng.placeholder([Q])\nx + y',
        "AxisError",
        ["P is a batch axis in only one"],
    ),
    "axis twice": ("ng.placeholder([H, H])", "AxisError", ["H occurs twice", "[H=3, H=3]", "dual"]),
    "axes overlap": ("ng.make_axes([C, N]) + ng.make_axes([N, H])", "AxisError", ["N stands on both sides of +", "use |"]),
    "negative length": ("ng.make_axis(-1)", "AxisError", ["cannot be negative: -1"]),
    "no axis": ("ng.placeholder([4])", "AxisError", ["4 is not an axis", "ng.make_axis(4, name="]),
    "no text of axes": ('ng.placeholder("C:4")', "AxisError", ["'C:4' is not an axis", "N=? H=28 W"]),
    "an axis that is misspelt": (
        'x = ng.placeholder("Height=3 W=2").named("x")\nng.mean(x, "height W Hight")',
        "AxisError",
        ["height is not an axis of x", "name one of [Height=3, W=2], as Height"],
    ),
    "an axis of no operand": (
        'x, y = ng.placeholder("I=3 J=2").named("x"), ng.placeholder("J=2 K=4").named("y")\nng.contract(x, y, over="JJ")',
        "AxisError",
        ["contract(x, y): JJ is not an axis of x or y", "name one of [I=3, J=2, K=4], as J"],
    ),
    "array without axes": (
        'x = ng.placeholder([C, N]).named("x")\nx + np.ones(8, np.float32)',
        "AxisError",
        ["shape (8,)", "x [C=4, N=8]", "ng.constant(array"],
    ),
    "constant shape": ("ng.constant(np.ones((2, 3)), [C, N])", "AxisError", ["shape (2, 3)", "[C=4, N=8]"]),
    "derivative of a tensor": ('x = ng.variable([C]).named("x")\nng.deriv(x * x, x)', "GraphError", ["axes [C=4]", "ng.sum"]),
    "derivative of integers": ('x = ng.variable((), dtype="int32").named("x")\nng.deriv(x * 1.0, x)', "DTypeError", ["x", "not a float"]),
    "truth of an op": ("x = ng.placeholder(())\nif x < 1: pass", "GraphError", ["no value while the graph is built", "ng.where"]),
    "assign to a placeholder": (
        'x = ng.placeholder(()).named("x")\nng.assign(x, 1)',
        "GraphError",
        ["assign to x, which is not a variable"],
    ),
    "assign too many axes": (
        'v = ng.variable([C]).named("v")\nx = ng.placeholder([C, N]).named("x")\nng.assign(v, x)',
        "AxisError",
        ["assign(v, x)", "N is not an axis of v"],
    ),
    "assign float to integer": (
        'v = ng.variable((), dtype="int32").named("v")\nng.assign(v, 1.5 * v)',
        "DTypeError",
        ["float32 into int32", "ng.cast"],
    ),
    "initial value": ("ng.variable([C], initial_value=np.ones(3))", "AxisError", ["shape (3,)", "[C=4]"]),
    "reduce over a stranger": (
        'x = ng.placeholder([C]).named("x")\nng.sum(x, reduction_axes=[H])',
        "AxisError",
        ["sum(x)", "H is not an axis of x"],
    ),
    "reduction split": (
        'x = ng.placeholder([C, N]).named("x")\nng.sum(x, reduction_axes=[C], out_axes=[C])',
        "AxisError",
        ["do not split", "[C=4, N=8]"],
    ),
    "strict batch": (
        'x, y = ng.placeholder([C, N]).named("x"), ng.placeholder([H, N]).named("y")\nwith ng.config(strict=True): ng.dot(x, y)',
        "AxisError",
        ["batch axis [N=8]"],
    ),
    "bits of a float": ("x = ng.placeholder(())\nx << 1", "DTypeError", ["bitwise of float32", "ng.cast"]),
    "no such dtype": ('ng.placeholder((), dtype="float12")', "DTypeError", ["float12", "float32", "fix:"]),
    "text as a tensor": ('x = ng.placeholder([C])\nx + "a"', "NoTensor", ["add: y is 'a', which is not a tensor", "fix:"]),
    "rows of different lengths": ("ng.constant([[1, 2], [3]])", "DTypeError", ["rows of different lengths"]),
    "a number for axes": ("x = ng.placeholder([C])\nng.sum(x, 4)", "AxisError", ["4 is not an axis", "name one of [C=4]"]),
    "a number added to an axis": ("C + 1.5", "AxisError", ["1.5 is not an axis"]),
    "derivative by a number": (
        'x = ng.variable([C]).named("x")\nloss = ng.sum(x, out_axes=()).named("loss")\nng.deriv(loss, 3)',
        "GraphError",
        ["derivative of loss", "3, which is not an op"],
    ),
    "print in a condition": (
        "t = ngt.make_transformer()\nt.computation(ng.while_loop(lambda c: ng.PrintOp(c) < 3.0, lambda c: c + 1.0, ng.constant(0.0)))",
        "GraphError",
        ["the condition of a loop has effects", "fix:"],
    ),
    "unfed placeholder": (
        't = ngt.make_transformer()\ny = ng.placeholder([C]).named("y"); t.computation(y + 1)',
        "GraphError",
        ["placeholder y [C=4]", "parameters"],
    ),
    "assigned twice": (
        "t = ngt.make_transformer()\nv = ng.variable(())\nf = t.computation([ng.assign(v, 1), ng.assign(v, 2)])",
        "GraphError",
        ["assigned twice", "sequential"],
    ),
    "wrong shape": (
        't = ngt.make_transformer()\nx = ng.placeholder([C, N]).named("x")\nf = t.computation(x + 1, x)\nf(np.ones((5, 8)))',
        "ArgumentError",
        ["x", "C", "4", "5"],
    ),
    "wrong count": (
        't = ngt.make_transformer()\nx = ng.placeholder([C, N]).named("x")\nf = t.computation(x + 1, x)\nf()',
        "ArgumentError",
        ["x"],
    ),
    "after initialize": (
        "t = ngt.make_transformer()\nx = ng.placeholder(())\nf = t.computation(x + 1, x)\nt.initialize()\nt.computation(x + 2, x)",
        "StateError",
        ["initialize"],
    ),
    "no such transformer": ('ngt.make_transformer_factory("abacus")', "", ["abacus", "numpy"]),
}


@pytest.mark.parametrize("name", CASES)
def test_error(name, tmp_path):
    body, kind, says = CASES[name]
    script = tmp_path / "model.py"
    script.write_text(SETUP + textwrap.dedent(body) + "\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    message = done.stderr[done.stderr.rindex("Traceback") :]
    first = next(line for line in message.splitlines() if line and not line.startswith((" ", "Traceback")))
    assert kind in first
    blamed = next((n for n, line in enumerate(script.read_text().splitlines(), 1) if "y = ng.placeholder([C])" in line), None)
    expected = blamed or len(script.read_text().splitlines())
    assert f"model.py:{expected}: " in first, message
    for part in says:
        assert part in message, message


def test_a_dot_over_the_batch_axis_warns_at_the_users_line(tmp_path):
    script = tmp_path / "model.py"
    script.write_text(SETUP + "x, y = ng.placeholder([C, N]), ng.placeholder([H, N])\nprint(ng.dot(x, y).axes)\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "model.py:7: NgraphWarning: dot(placeholder, placeholder) sums over the batch axis [N=8]" in done.stderr


def test_code_without_a_hash_has_a_line_too():
    function = (lambda: user_line()).__code__.replace(co_filename="theirs.py", co_firstlineno=7)
    function = function.replace(co_consts=({}, *function.co_consts))
    with pytest.raises(TypeError):
        hash(function)
    assert eval(function) == ("theirs.py", 7)

"""What is made once for equal arguments: the key is all arguments, and what makes the value sees nothing else."""

import ast
import pathlib
import types

import pytest

import ngraph.codegen
import ngraph.plan
import ngraph.tensors
from ngraph.op_graph import dtypes
from ngraph.op_graph.expr import Idx
from ngraph.plan.kernels import Line
from ngraph.program.program import AxisId
from ngraph.tensors.graph import ScalarConstant
from ngraph.tensors.index import Read
from ngraph.tensors.memo import memo, memo_key

A = AxisId("a")


def test_a_value_is_made_once_for_equal_arguments():
    made, table = [], {}

    def make(*args):
        made.append(args)
        return len(made)

    assert [memo(table, make, 1, "x"), memo(table, make, 1, "y"), memo(table, make, 1, "x")] == [1, 2, 1]
    assert memo(table, lambda *args: 0, 1, "x") == 0  # another function


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (0.0, -0.0),
        (1, 1.0),
        (1, True),
        (ScalarConstant(0.0, dtypes.float32), ScalarConstant(-0.0, dtypes.float32)),
        (Read("x", {A: Idx(A)}), Read("y", {A: Idx(A)})),
        (Read("x", {A: Idx(A)}), Read("x", {A: Idx(A) + 1})),
        (Read("x", {A: Idx(A)}), Read("x", {A: Idx(A)}, (Idx(A),))),
        (Read("x", {A: Idx(A)}, (Idx(A),), 0.0), Read("x", {A: Idx(A)}, (Idx(A),), -0.0)),
        (Line("number", (), dtypes.float32, {"value": 0.0}), Line("number", (), dtypes.float32, {"value": -0.0})),
        (Line("add", (0, 1), dtypes.float32), Line("add", (0, 0), dtypes.float32)),
        ((1, 2.0), (1, 2)),
    ],
)
def test_what_differs_is_told_apart(one, other):
    assert memo_key(one) != memo_key(other)


def test_what_is_equal_is_one():
    assert memo_key(Read("x", {A: Idx(A)}, (), 0.0)) == memo_key(Read("x", {A: Idx(A)}, (), 0.0))
    assert memo_key(float("nan")) == memo_key(float("nan"))


@pytest.mark.parametrize("room", [ngraph.tensors, ngraph.plan, ngraph.codegen], ids=lambda room: room.__name__)
def test_what_makes_a_value_is_a_function_that_sees_its_arguments_alone(room):
    """No closure and no bound method is given to `memo`: they would see what is not in the key."""
    for path in pathlib.Path(room.__path__[0]).glob("*.py"):
        module = getattr(room, path.stem, None) or __import__(f"{room.__name__}.{path.stem}", fromlist=["x"])
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "memo":
                made = eval(ast.unparse(call.args[1]), vars(module))
                assert isinstance(made, types.FunctionType) and made.__closure__ is None, f"{path.name}:{call.lineno}"

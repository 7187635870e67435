"""What the parameters of a translator say: how each input is read, and which attributes it has."""

from __future__ import annotations

from inspect import Parameter, signature

import numpy as np
import pytest

from ngraph.frontends.positional.values import ConstantArray, Tensor
from ngraph.frontends.tensorflow import table
from ngraph.frontends.tensorflow import translate as translate  # its modules register
from ngraph.frontends.tensorflow.table import Dim, Ints
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType

AS_THEY_ARE = {"Value", "TensorList"}
OF_ELEMENTS = {"bytes", "int"}  # of functions of strings, see `host.elements`


class Reading:
    """Values that are known, each as its array."""

    def ints(self, v):
        return v.array.ravel().tolist()

    sizes = ints

    def known(self, v):
        return v.array

    def tensor(self, v):
        return "tensor", v.array

    def show(self, v):
        return str(v.shape)


class GivenNode:
    def __init__(self, **attributes):
        self.g, self.attributes = Reading(), attributes

    def attr(self, name, default=None):
        return self.attributes.get(name, default)


def test_every_annotation_is_one_that_is_read():
    known = {*table.READ, *AS_THEY_ARE, *OF_ELEMENTS}
    for op, function in table.TABLE.items():
        for p in list(signature(function).parameters.values())[1:]:
            said = p.annotation is Parameter.empty or p.kind is Parameter.KEYWORD_ONLY
            assert said or p.annotation.partition(" | ")[0] in known, f"{op}: {p}"


def test_inputs_and_attributes_come_as_the_parameters_say():
    def translator(g, t: Tensor, k: Dim, *more: Ints, kind: DType = dtypes.int32, name: str = "none", many: int):
        return g, t, k, more, kind, name, many

    n, x = GivenNode(kind=np.dtype(np.float64), many=3), ConstantArray(np.ones((2, 3)))
    made = table.reading(translator)
    g, (what, array), *rest = made(n, x, ConstantArray([-1]), ConstantArray([1, 2]), ConstantArray([3]))
    assert g is n.g and what == "tensor" and array is x.array
    assert rest == [1, ([1, 2], [3]), dtypes.float64, "none", 3]
    assert made(GivenNode(), x, ConstantArray([0]))[4:] == (dtypes.int32, "none", None)
    with pytest.raises(Exception, match="there is no dim 2"):
        made(n, x, ConstantArray([2]))


def test_the_whole_node_is_the_first_parameter_by_another_name():
    n = GivenNode()
    assert table.reading(lambda n, x: (n, x))(n, 1) == (n, 1)
    assert table.reading(lambda g, x: (g, x))(n, 1) == (n.g, 1)

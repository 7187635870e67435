"""Functions of one operand whose formula has two sides: values, and a derivative where these meet that is one of theirs, or between."""

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.frontends.positional import elementwise

SIDES = {  # the function below 0, where it is x above
    "elu": (lambda x: elementwise.elu(x, 1.5), lambda x: 1.5 * np.expm1(x), 1),
    "celu": (lambda x: elementwise.celu(x, 2.0), lambda x: 2 * np.expm1(x / 2), 1),
    "selu": (lambda x: elementwise.selu(x, 1.7, 1.1), lambda x: 1.1 * 1.7 * np.expm1(x), 1.1),
    "leaky_relu": (lambda x: elementwise.leaky_relu(x, 0.3), lambda x: 0.3 * x, 1),
}


@pytest.mark.parametrize("name", SIDES)
def test_values_and_derivatives_where_two_sides_meet(name):
    function, below, above = SIDES[name]
    numbers = np.array([-3, -0.5, -1e-9, -0.0, 0, 1e-9, 2])
    x = ng.placeholder([ng.make_axis(len(numbers), name="N")], dtype=np.float64)
    y = function(x)
    with ngt.make_transformer_factory("direct")() as transformer:
        values, slopes = transformer.computation([y, ng.deriv(y, x, ng.ones(y.axes, y.dtype))], x)(numbers)
    np.testing.assert_allclose(values, np.where(numbers < 0, below(np.minimum(numbers, 0)), numbers * above), 1e-12)
    left = (below(0.0) - below(-1e-7)) / 1e-7
    least, most = sorted((left, above))
    assert (slopes[2:6] >= least - 1e-6).all() and (slopes[2:6] <= most + 1e-6).all(), slopes

"""Ops of another package: a record is all that `numpy` and `direct` need; `cpu` fuses those that say how, and names those that do not."""

import warnings

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph import warn
from ngraph.codegen.math import MACHINE_CODE
from ngraph.op_graph.opdef import OPS, REGISTRY
from ngraph.ops.elementwise import absolute, elementwise

CODE = {"machine_code": lambda x: x / (MACHINE_CODE["abs"](x) + 1.0)}


@pytest.fixture
def softsign():
    """Makes a record of x / (1 + |x|) with these facts; takes everything back at the end."""
    made = []

    def make(**facts):
        name = f"softsign_{len(made)}"
        record = elementwise(
            name, "x / (1 + |x|).", lambda x: x / (1 + np.abs(x)), lambda op, dy, x: dy / (absolute(x) + 1.0) ** 2, cost=6, **facts
        )
        made.append(name)
        return record

    yield make
    for name in made:
        del REGISTRY[name]
        for column, facts in OPS.facts(name).items():
            for fact in list(facts):
                OPS.take_back(name, column, fact.level)


def computed(transformer, record, lengths=(5, 67)):
    """The values of a small program with the op in its midst, its slope, those of NumPy, and the computation."""
    A, B = ng.make_axis(lengths[0], name="A"), ng.make_axis(lengths[1], name="B")
    x = ng.placeholder([A, B])
    y = ng.sum(record(x * 2.0) * 3.0 + 1.0, reduction_axes=[B])
    given = np.linspace(-3, 3, lengths[0] * lengths[1], dtype=np.float32).reshape(lengths)
    computation = ngt.make_transformer_factory(transformer)().computation([y, ng.deriv(ng.sum(y), x)], x)
    double = 2 * given.astype(np.float64)
    wanted = (3 * double / (1 + abs(double)) + 1).sum(1), 6 / (1 + abs(double)) ** 2
    return computation(given), wanted, computation


@pytest.mark.parametrize("transformer", ["cpu", "numpy", "direct"])
@pytest.mark.parametrize("facts", [CODE, {}], ids=["with code", "without"])
def test_its_values_and_its_gradient_are_right(softsign, transformer, facts):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ng.NgraphWarning)
        got, wanted, _ = computed(transformer, softsign(**facts))
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_it_is_fused_where_it_says_how(softsign):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, _, computation = computed("cpu", softsign(**CODE))
    assert "softsign_0(" in computation.plan and "routine" not in computation.plan


def test_it_is_named_where_it_runs_in_numpy(softsign):
    warn.forget()
    with pytest.warns(ng.NgraphWarning, match="there is no machine code for softsign_0: NumPy runs it") as told:
        _, _, computation = computed("cpu", softsign())
    assert told[0].filename == __file__
    assert "Python runs softsign_0 (tests/ops/test_foreign.py:" in str(computation.profile(np.zeros((5, 67), np.float32)))


def test_code_that_comes_later_is_taken_by_later_computations(softsign):
    record = softsign()
    with pytest.warns(ng.NgraphWarning):
        warn.forget()
        computed("cpu", record)
    OPS.fill(record.name, **CODE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        computed("cpu", record)

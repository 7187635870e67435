"""Help of ops: signature, meaning, element types, errors, an example that runs, and the source; the command prints the same."""

import doctest
import inspect
import os
import pydoc

import numpy as np
import pytest

import ngraph as ng
from ngraph.op_graph.opdef import OpDef
from ngraph.tools.main import main
from ngraph.tools.ops import HOME

RECORDS = {n: getattr(ng, n) for n in ng.__all__ if isinstance(getattr(ng, n), OpDef)}


@pytest.mark.parametrize("name", RECORDS)
def test_help_of_a_record(name):
    record = RECORDS[name]
    text = pydoc.plain(pydoc.render_doc(record))
    assert record.doc in " ".join(text.split()) or record.doc.split(".")[0][:30] in text
    assert all(word in text for word in ("ng.", "kinds of elements: ", "raises: ", "source: ngraph/ops/", ">>> "))
    assert list(inspect.signature(record).parameters) == list(record.parameters)
    file, line = record.where.rsplit(":", 1)
    with open(os.path.join(os.path.dirname(os.path.dirname(HOME)), file), encoding="utf-8") as source:
        assert "= " in source.read().splitlines()[int(line) - 1]
    tests = doctest.DocTestParser().get_doctest(record.__doc__, {"ng": ng, "np": np}, name, None, 0)
    assert tests.examples and doctest.DocTestRunner(verbose=False).run(tests).failed == 0


def test_the_class_of_records_has_its_own_help():
    assert OpDef.__doc__.startswith("All that the compiler knows about one op.")


def test_the_command_prints_the_same(capsys):
    for name, record in (("exp", ng.exp), ("absolute", ng.absolute)):
        assert main(["ops", name]) == 0 and capsys.readouterr().out.startswith(record.__doc__)


def test_the_table_of_ops_fits_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "72")
    assert main(["ops"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 72


def test_inputs_are_passed_by_name_too():
    A = ng.make_axis(3, name="A", roles=None)
    x, y = ng.placeholder([A]).named("x"), ng.placeholder([A]).named("y")
    f = ng.transformers.make_transformer().computation([ng.subtract(y=x, x=y), ng.power(x, y=y), ng.tanh(x=x)], x, y)
    a, b = np.array([1.0, 2, 3], np.float32), np.array([3.0, 2, 1], np.float32)
    for got, expected in zip(f(a, b), [b - a, a**b, np.tanh(a)], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    for wrong, said in (
        (lambda: ng.subtract(x=x), "'y'"),
        (lambda: ng.subtract(x, y, y=y), "multiple values"),
        (lambda: ng.tanh(z=x), "no argument z"),
    ):
        with pytest.raises(ng.NgraphError, match=said):
            wrong()


def test_kinds_of_ops_are_looked_for_in_types():
    with pytest.raises(AttributeError, match=r"write ng\.types\.TensorOp"):
        ng.TensorOp  # noqa: B018  the error is the point

"""Every public name of `ng` and `ng.linalg` has a signature, a docstring, an example that runs, and a place on a page."""

import doctest
import inspect

import numpy as np
import pytest

import ngraph as ng
from ngraph.op_graph.opdef import OpDef
from ngraph.tools import api

PUBLIC = {
    f"{module.__name__.rpartition('.')[2]}.{name}": (thing, page)
    for module, page in ((ng, "ng.md"), (ng.linalg, "linalg.md"))
    for name, thing in api.public(module).items()
}
FUNCTIONS = {name: thing for name, (thing, _) in PUBLIC.items() if inspect.isfunction(thing) or isinstance(thing, OpDef)}


def lacks(thing, page, name):
    """Yields what a public name lacks."""
    if not inspect.getdoc(thing):
        yield "a docstring"
    try:
        inspect.signature(thing)
    except (TypeError, ValueError):
        if callable(thing) and not inspect.isclass(thing):
            yield "a signature"
    if name.rpartition(".")[2] not in page:
        yield "a page"
    if (inspect.isfunction(thing) or isinstance(thing, OpDef)) and ">>> " not in (thing.__doc__ or ""):
        yield "an example"


def test_every_name_has_all_that_a_reader_needs():
    pages = api.pages()
    assert len(FUNCTIONS) > 250
    assert {name: list(found) for name, (thing, page) in PUBLIC.items() if (found := list(lacks(thing, pages[page], name)))} == {}


def test_what_a_name_lacks_is_found():
    def bare(x):
        return x

    assert list(lacks(bare, "", "ng.bare")) == ["a docstring", "a page", "an example"]


@pytest.mark.parametrize("name", sorted(n for n, thing in FUNCTIONS.items() if not isinstance(thing, OpDef)))
def test_an_example_runs(name):  # those of records run in tests/ops/test_help.py
    tests = doctest.DocTestParser().get_doctest(inspect.getdoc(FUNCTIONS[name]), {"ng": ng, "np": np}, name, None, 0)
    assert tests.examples and doctest.DocTestRunner(verbose=False).run(tests).failed == 0

"""Each pass left out in turn: the results stay what they are, and what is kept as text of some small model does not."""

import functools
import os
import sys

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.passes import default_passes
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower
from ngraph.program.text import text
from ngraph.rewrite.runner import run

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "goldens"))
from models import MODELS

# what only the first or the second run of a pass that runs twice can find
SMALL = {
    "equal operands": lambda x: ng.maximum(ng.exp(x), ng.exp(x)),
    "constants behind a choice": lambda x: x + ng.where(ng.constant(True), TABLE, x) * TABLE,
    "a factor that is 1 once it is computed": lambda x: x * ng.sqrt(ng.constant(1.0)),
}
C = ng.make_axis(3, name="C")
TABLE = ng.constant(np.arange(3, dtype=np.float32), [C])
MODELS = {**MODELS, **{name: (lambda f=f: (lambda x: (f(x), [x]))(ng.placeholder([C]))) for name, f in SMALL.items()}}

LENGTHS = {"N": 3, "T": 4}
LEFT_OUT = [default_passes[:k] + default_passes[k + 1 :] for k in range(len(default_passes))]
NAMES = default_passes.names


@functools.cache
def built(model):
    """Once, for random ops made anew draw other numbers."""
    results, parameters = MODELS[model]()
    return (list(results) if isinstance(results, (list, tuple)) else [results]), parameters


def whole(model):
    return lower(*built(model)).program


def computed(model, passes):
    """What a transformer with these passes gives for three calls, the state in between, and afterwards."""
    results, parameters = built(model)
    draw = np.random.default_rng(7)
    arrays = [
        draw.integers(0, 3, [LENGTHS.get(a.name, a.length) if a.length is None else a.length for a in p.axes]).astype(p.dtype.np)
        for p in parameters
    ]
    with ngt.allocate_transformer("direct") as transformer:
        transformer.graph_passes = list(passes)
        f = transformer.computation(results, *parameters)
        given = [[r for r in f(*arrays) if r is not None] for _ in range(3)]
        return [*sum(given, []), *(transformer.get(v) for v in transformer.state.names.values())]


@pytest.mark.parametrize("k", range(len(LEFT_OUT)), ids=NAMES)
def test_without_it_results_are_the_same(k):
    for model in MODELS:
        for a, b in zip(computed(model, default_passes), computed(model, LEFT_OUT[k]), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6, err_msg=model)


@pytest.mark.parametrize("k", range(len(LEFT_OUT)), ids=NAMES)
def test_without_it_some_program_is_another(k):
    changed = [m for m in MODELS if text(run(whole(m), LEFT_OUT[k]), origins=False) != text(run(whole(m), default_passes), origins=False)]
    assert changed, "nothing would be missed if this pass were left out"


@pytest.mark.parametrize("name", sorted({p.name for p in default_passes}))
def test_a_pass_that_does_nothing_is_noticed(name):
    """The same for all places of a pass at once."""
    without = [p for p in default_passes if p.name != name]
    assert any(len(run(whole(m), without).steps) > len(run(whole(m), default_passes).steps) for m in MODELS)


def test_the_oracle_runs_no_pass(monkeypatch):
    """With every pass broken it gives what it gave."""
    results, parameters = built("attention")
    arrays = [np.ones(p.axes.lengths, p.dtype.np) for p in parameters]
    before = interpret(lower(results, parameters).program, arrays)[0]
    monkeypatch.setattr("ngraph.rewrite.runner.run", None)
    monkeypatch.setattr("ngraph.parts.runner.run", None)
    monkeypatch.setattr("ngraph.parts.runner.Pass.__call__", None)
    after = interpret(lower(results, parameters).program, arrays)[0]
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)

"""Which transformer one gets, how others join, and when computations may be made."""

import importlib.metadata

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ArgumentError, StateError, UnsupportedError
from ngraph.numpy_ops import translate, walk
from ngraph.passes.dim_orders import dim_orders
from ngraph.runtime.computation import Executable
from ngraph.transformers import base

C = ng.make_axis(3, name="C")


@pytest.fixture(autouse=True)
def as_it_was():
    before = dict(base.TRANSFORMERS)
    yield
    ngt.set_transformer_factory(None)
    base.TRANSFORMERS.clear()
    base.TRANSFORMERS.update(before)


class Toy(ngt.Transformer):
    """Has no name, so is not registered."""

    def compile(self, program):
        return Executable(walk(translate(program, dim_orders).lines))


def test_choices():
    assert {"direct", "numpy"} <= set(ngt.transformer_choices()) and ngt.transformer_choices() == sorted(ngt.transformer_choices())
    assert "" not in base.TRANSFORMERS and Toy not in base.TRANSFORMERS.values()


def test_the_default_can_be_set_three_ways(capsys):
    with ng.config(transformer=""):
        assert ngt.make_transformer().name == ("cpu" if "cpu" in ngt.transformer_choices() else "numpy")
    with ng.config(transformer="direct", debug=1):
        assert ngt.make_transformer().name == "direct"
        assert "transformer: direct" in capsys.readouterr().err
        factory = ngt.make_transformer_factory("numpy")
        assert ngt.make_transformer().name == "direct"
        ngt.set_transformer_factory(factory)
        assert ngt.make_transformer().name == "numpy"
    with ng.config(transformer="nowhere"):
        ngt.set_transformer_factory(None)
        with pytest.raises(ArgumentError, match="no transformer 'nowhere'"):
            ngt.make_transformer()


def test_one_that_cannot_be_had_says_why():
    class Broken(Toy):
        name = "broken"

        @classmethod
        def unavailable(cls):
            return "its device is switched off"

    assert "broken" not in ngt.transformer_choices()
    with pytest.raises(UnsupportedError, match="cannot be had here: its device is switched off"):
        ngt.make_transformer_factory("broken")
    with pytest.raises(ValueError, match="direct"):
        ngt.allocate_transformer("gpu9")


def test_a_class_with_a_name_is_registered():
    class Mine(Toy):
        name = "mine"

    x = ng.placeholder([C])
    assert "mine" in ngt.transformer_choices()
    assert ngt.allocate_transformer("mine").computation(x + 1, x)([1, 2, 3]).tolist() == [2, 3, 4]


def test_other_packages_are_asked_only_for_names_that_are_not_known(monkeypatch):
    loaded = []

    class Point:
        name = "elsewhere"

        def load(self):
            loaded.append(1)
            return Toy

    asked = []
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: asked.append(group) or [Point()])
    ngt.allocate_transformer("direct")
    assert asked == [] and loaded == []
    assert "elsewhere" in ngt.transformer_choices() and loaded == []
    assert type(ngt.allocate_transformer("elsewhere")) is Toy and loaded == [1] and set(asked) == {"ngraph.transformers"}


def test_computations_come_any_time_before_initialize(transformer):
    x, w = ng.placeholder([C]), ng.variable([C], initial_value=1)
    first = transformer.computation(x + w, x)
    first([1, 2, 3])
    second = transformer.computation([x * w, ng.assign(w, x)], x)
    second([1, 2, 3])
    transformer.initialize()
    assert first([1, 1, 1]).tolist() == [2, 3, 4]  # initialize does not undo what was learned
    with pytest.raises(StateError, match="cannot be added after .*initialize"):
        transformer.computation(x, x)
    transformer.initialize()


def test_allocate_compiles_and_gives_initial_values(transformer):
    w = ng.variable([C], initial_value=4)
    run = transformer.computation(w)
    assert not run.compiled and w not in transformer.state.arrays
    transformer.allocate()
    assert run.compiled and transformer.state.arrays[w].tolist() == [4, 4, 4]
    transformer.computation(w + 1)


def test_passes_can_be_registered_until_something_is_compiled(transformer):
    seen = []
    x = ng.placeholder([C])
    transformer.register_graph_pass(lambda program: seen.append("last") or program)
    transformer.register_graph_pass(lambda program: seen.append("first") or program, 0)
    run = transformer.computation(x + 1, x)
    run([1, 2, 3])
    assert seen == ["first", "last"]
    with pytest.raises(StateError, match="a pass comes too late for computation_0"):
        transformer.register_graph_pass(lambda program: program)


def test_takes_core_ops(transformer):
    x = ng.placeholder([C])
    program = transformer.computation(ng.softmax(x, [C]), x).program
    assert all(transformer.takes(step) for step in program.steps)


def test_memory_is_reported(transformer):
    x, w = ng.placeholder([C]), ng.variable([C])
    table = ng.constant(np.arange(3, dtype=np.float32), [C])
    run = transformer.computation((x * w + table) * ng.exp(x), x)
    if transformer.name == "cpu":  # which keeps no value between its kernels, for there is one
        assert run.memory == {"arena": 0, "constants": 12, "packed": 0, "state": 12, "outputs": 12}
    else:
        assert run.memory == {"arguments": 12, "state": 12, "constants": 12, "temporaries": 36}


def test_names_of_computations(transformer):
    x = ng.placeholder([C])
    made = [transformer.computation(x, x, name=n) for n in (None, "train", "train", "a-b", "1st")]
    assert transformer.computations == made and [c.name for c in made] == ["computation_0", "train", "train_2", "a_b", "c_1st"]
    assert "train" in repr(transformer.computations[1]) and "C=3" in repr(transformer.computations[1])

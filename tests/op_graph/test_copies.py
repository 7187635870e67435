"""Copies and pickles: records and dtypes are the same object afterwards; an op says that it cannot be copied."""

import copy
import pickle

import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import NgraphError, StateError
from ngraph.op_graph.dtypes import REGISTRY as DTYPES

WAYS = [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), lambda x: copy.deepcopy([x])[0]]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("thing", [*DTYPES.values(), ng.tanh, ng.contract], ids=str)
def test_dtypes_and_records_stay_what_they_are(way, thing):
    assert way(thing) is thing


@pytest.mark.parametrize("way", WAYS)
def test_ops_and_computations_are_neither_copied_nor_pickled(way):
    x = ng.placeholder(()).named("x")
    f = ngt.make_transformer().computation(x + 1, x)
    for thing in (x, x == 1, f):
        with pytest.raises(StateError, match="can be neither copied nor pickled"):
            way(thing)


def test_an_op_is_no_number_and_no_array():
    import numpy as np

    x = ng.placeholder(()).named("x")
    for ask in (float, int, complex, np.asarray, len, list, lambda x: np.array([x])):
        with pytest.raises(NgraphError, match="x (has no value|has no length|cannot be iterated)"):
            ask(x)
    assert not hasattr(x, "_nothing") and not hasattr(x, "ravel")

"""Makes what the tests of this room share importable."""

import os
import sys

import pytest

import ngraph.transformers as ngt

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


@pytest.fixture(params=["direct", "numpy", "cpu"])
def transformer(request):
    """A fresh transformer of each kind."""
    with ngt.allocate_transformer(request.param) as made:
        yield made

"""Makes what the tests of this room and of transformers share importable."""

import os
import sys

import pytest

import ngraph.transformers as ngt

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "transformers"))


@pytest.fixture(params=["direct", "numpy", "cpu"])
def transformer(request):
    """A fresh transformer of each kind."""
    with ngt.allocate_transformer(request.param) as made:
        yield made

import pytest

import ngraph.transformers as ngt


@pytest.fixture(params=["direct", "numpy", "cpu"])
def transformer(request):
    """A fresh transformer of each kind."""
    with ngt.allocate_transformer(request.param) as made:
        yield made

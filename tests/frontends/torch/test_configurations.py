"""Models of transformers of random configurations, a fixed seed of each: `configurations.py` draws more."""

import pytest

from tests.frontends.torch.configurations import MODELS, trains


@pytest.mark.parametrize("name", MODELS)
def test_training_gives_the_losses_of_eager(name):
    trains(name, 0, dynamic=False)

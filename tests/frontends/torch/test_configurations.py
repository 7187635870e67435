"""Models of transformers of random configurations, a fixed seed of each: `configurations.py` draws more."""

import pytest

from tests.frontends.torch.configurations import runs, trains


@pytest.mark.parametrize("name", ["bert", "gpt2", "distilbert", "resnet", "convnext", "whisper", "mamba"])
def test_training_gives_the_losses_of_eager(name):
    trains(name, 0, dynamic=False)


@pytest.mark.parametrize("name", ["t5", "clip", "gemma2", "qwen_moe"])
def test_inference_gives_the_results_of_eager(name):
    runs(name, 0, dynamic=False)

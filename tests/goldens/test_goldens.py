"""Programs and generated code of small models are what they were, in any process. `make goldens` rewrites them; then read the diff."""

import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
MODELS = (
    "logistic_regression", "perceptron", "convolutional_network", "attention",
    "recurrent_network", "batch_norm", "lengths_that_come_later", "state_in_order",
)  # fmt: skip
FILES = sorted(f"{m}.{stage}.txt" for m in MODELS for stage in ("lowered", "passes", "numpy"))
SETTINGS = ("DEBUG", "DUMP", "NGRAPH_EXACT", "NGRAPH_SEED")


def written(folder, seed):
    """{file: text} by a fresh process, with this seed for the order of sets."""
    environment = {k: v for k, v in os.environ.items() if k not in SETTINGS} | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": ROOT}
    subprocess.run([sys.executable, os.path.join(HERE, "texts.py"), str(folder)], env=environment, check=True, cwd=ROOT)
    return {name: (folder / name).read_text(encoding="utf-8") for name in sorted(os.listdir(folder))}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return written(tmp_path_factory.mktemp("goldens"), 0)


@pytest.mark.parametrize("file", FILES)
def test_golden(file, texts, golden):
    golden(f"tests/goldens/text/{file}", texts[file])


def test_nothing_else_is_kept(texts):
    assert FILES == sorted(texts) == sorted(os.listdir(os.path.join(HERE, "text")))


@pytest.mark.parametrize("seed", [1, 20261])
def test_no_decision_depends_on_the_order_of_a_set(seed, texts, tmp_path):
    assert written(tmp_path, seed) == texts

"""Every example runs with --quick, which checks that its loss falls, and has --help."""

import os
import subprocess
import sys

import pytest

from ngraph.data.mnist import data_folder
from ngraph.frontends.neon.data.readers import idx_pair

EXAMPLES = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..", "examples"))
NAMES = """mnist_mlp mnist_cnn cifar10_mlp cifar10_conv cifar10_msra char_rnn char_lstm word_lstm gpt timeseries_lstm imdb_rnn
reverse_attention mnist_gan autoencoder wide_deep mobilenet char_conv""".split()


def has_mnist():
    try:
        return len(idx_pair(data_folder(), "train")[0]) > 0
    except OSError:
        return False


def run(name, folder, *flags):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")]), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, os.path.join(EXAMPLES, f"{name}.py"), *flags], cwd=folder, env=env, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("name", NAMES)
def test_quick(name, tmp_path):
    if name.startswith(("mnist", "autoencoder")) and not has_mnist():
        pytest.skip("MNIST is not here")
    done = run(name, tmp_path, "--quick")
    if "bible.txt is missing" in done.stderr:
        pytest.skip("the text is not here")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_help(tmp_path):
    done = run("gpt", tmp_path, "--help")
    assert done.returncode == 0 and "--quick" in done.stdout and "small GPT" in done.stdout

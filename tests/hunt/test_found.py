"""Every find of `make hunt`, reduced, checked again: `hunt/found/KIND_NAME.json` each."""

import glob
import json
import os

import pytest

from hunt import runner

FOUND = sorted(glob.glob(os.path.join(os.path.dirname(runner.__file__), "found", "*.json")))


@pytest.mark.parametrize("path", FOUND, ids=[os.path.splitext(os.path.basename(p))[0] for p in FOUND])
def test_a_find_stays_mended(path):
    with open(path, encoding="utf-8") as file:
        kept = json.load(file)
    assert runner.check(kept["kind"], kept["case"]) is None

"""Pictures of samples: each stands in its place, and the user's backend of matplotlib stays."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("matplotlib")

SCRIPT = """
import sys
import numpy as np
from ngraph.frontends.neon.reports import draw_samples
ramp = np.linspace(0, 1, 12)
pictures = np.array([np.tile(ramp[::-1 if k == 9 else 1], (6, 1)) for k in range(10)])
assert draw_samples(pictures, ["same"] * 9 + ["mirrored"], sys.argv[1], "A title")
assert draw_samples(np.zeros((2, 3, 5, 5)), ["", ""], sys.argv[2])
assert draw_samples(np.zeros((0, 5, 5)), [], sys.argv[2]) == ""
assert "matplotlib.pyplot" not in sys.modules
"""


def test_samples_stand_in_rows_of_eight(tmp_path):
    gray, colours = tmp_path / "gray.png", tmp_path / "colours.png"
    subprocess.run([sys.executable, "-c", SCRIPT, gray, colours], check=True)
    from matplotlib.image import imread

    drawn = imread(gray)[..., :3].mean(-1)
    assert drawn.shape == (round(120 * (1.5 * 2 + 0.25)), round(120 * 1.3 * 8))
    for k in range(10):
        left, top = 1.3 * (k % 8) + 0.05, 1.5 * (k // 8) + 0.5
        row = drawn[round(120 * (top + 0.3)), round(120 * (left + 0.02)) : round(120 * (left + 1.18))]
        assert np.all(np.diff(row) * (-1 if k == 9 else 1) >= -0.01) and abs(row[-1] - row[0]) > 0.9
    assert np.all(drawn[round(120 * 2.2), round(120 * 2.7) :] == 1), "places without a picture are empty"
    assert imread(colours).shape == (round(120 * 1.75), round(120 * 2.6), 4)

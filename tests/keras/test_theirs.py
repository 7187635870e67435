"""A sample of Keras's own tests, of those that come in its wheel: the cases of theirs.txt, and how each ends."""

import json
import os
import runpy
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.mark.parametrize("folders", [["layers"], ["losses", "metrics", "ops", "optimizers", "trainers"]], ids="+".join)
def test_cases_of_keras_end_as_expected(folders):
    command = [sys.executable, os.path.join(HERE, "theirs.py"), "check", os.path.join(HERE, "theirs.txt"), *folders]
    made = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()})
    assert made.returncode == 0, made.stdout + made.stderr


def test_outcomes_against_expectations_are_told(tmp_path):
    out, cases = tmp_path / "out.jsonl", tmp_path / "cases.txt"
    cases.write_text("# a comment\na::passes\na::fails\na::mended  # no such thing\na::known  # cannot be\na::gone\n")
    ends = {"a::passes": "passed", "a::fails": "failed", "a::mended": "passed", "a::known": "failed", "b::collection": "failed"}
    out.write_text("".join(json.dumps({"case": case, "outcome": end, "why": "why"}) + "\n" for case, end in ends.items()))
    theirs = runpy.run_path(os.path.join(HERE, "theirs.py"))
    assert theirs["surprises"](str(out), theirs["named"](str(cases))) == [
        "a::fails: failed: why",
        "a::mended: passes, but is expected to fail: no such thing",
        "a::gone: not found: the module has no such case, or could not be read",
        "b::collection: why",
    ]

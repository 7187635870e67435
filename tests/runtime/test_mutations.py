"""Readers of text, JSON and weights bear whatever a file holds; `mutations.py` takes any number of mutants, here a part of them."""

import json
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


@pytest.mark.parametrize("format", ["text", "program", "graph", "weights"])
def test_mutants_are_read_or_refused(format):
    """In a process of its own: one that crashes, hangs, or takes much memory is seen from here."""
    command = [sys.executable, os.path.join(HERE, "mutations.py"), format, "2000", "0"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": ROOT}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert told["read"] + told["refused"] == 2000 and told["refused"] > 1000 and told["read"] > 10, told
    assert told["grown MiB"] < 64, told

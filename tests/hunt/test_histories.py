"""Random histories: some agree, their programs run by themselves, and each is reduced to one that does."""

import itertools
import json
import subprocess
import sys

import pytest

import hunt
from hunt import histories


@pytest.mark.parametrize("seed", range(6))
def test_some_agree(seed):
    case = histories.draw(seed)
    assert json.loads(json.dumps(case)) == case == histories.draw(seed)
    assert histories.check(case) is None
    for simpler in itertools.islice(histories.smaller(case), 0, None, 7):
        assert simpler != case and histories.check(simpler) is None


def test_its_program_runs_by_itself(tmp_path):
    text = histories.program(histories.draw(1))
    made = subprocess.run([sys.executable, "-"], input=text, text=True, capture_output=True, cwd=hunt.__path__[0] + "/..")
    assert made.returncode == 0, made.stderr
    wrong = text.replace("W, B = first_w0, first_b0", "W, B = first_w0 + 1, first_b0 + 1", 1)
    made = subprocess.run([sys.executable, "-"], input=wrong, text=True, capture_output=True, cwd=hunt.__path__[0] + "/..")
    assert made.returncode != 0 and "differ, at" in made.stderr


def test_every_kind_of_computation_event_and_form_is_drawn():
    cases = [histories.draw(seed) for seed in range(300)]
    events = [e for case in cases for e in case["events"]]
    assert {c["kind"] for case in cases for c in case["computations"]} == set(histories.KINDS)
    assert {e["form"] for e in events if e["do"] == "call"} == set(histories.FORMS)
    assert {e["do"] for e in events} == {"call", "set", "get", "given", "back", "again"}
    assert {case["given"] for case in cases} == set(histories.GIVEN)

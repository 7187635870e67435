"""Where everything has to be there, a test that is skipped fails: `NGRAPH_TESTS_NEED_ALL=1`, as continuous integration sets it."""

import os
import re
import runpy
import shutil
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
CONFTEST = os.path.join(HERE, "conftest.py")
ROOM = runpy.run_path(CONFTEST)

PROGRAM = """
import pytest

{module}

@pytest.mark.skipif(True, reason="{mark}")
def test_marked():
    pass

def test_runs():
    pytest.importorskip("{package}")

@pytest.mark.xfail(reason="known")
def test_known():
    raise AssertionError

def test_says():
    {says}
"""
NEED_ALL, LISTED = ROOM["NEED_ALL"], next(iter(ROOM["MAY_BE_SKIPPED"]))


def outcome(folder, need, **what):
    """How a run of a file of tests ends: exit code, and the last line."""
    program = {"module": "", "mark": LISTED, "package": "sys", "says": "pass"} | what
    (folder / "test_it.py").write_text(PROGRAM.format(**program))
    shutil.copy(CONFTEST, folder)
    environment = {**os.environ, NEED_ALL: need, "PYTHONPATH": ROOM["ROOT"]}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder), "test_it.py"]
    made = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return made.returncode, made.stdout


@pytest.mark.parametrize(
    "what",
    [{"module": 'pytest.importorskip("nowhere")'}, {"mark": "no emulator"}, {"package": "nowhere"}, {"says": 'pytest.skip("no torch")'}],
    ids=["a module", "a mark", "a package", "a test"],
)
def test_what_is_skipped_fails_where_everything_has_to_be_there(tmp_path, what):
    code, said = outcome(tmp_path, "0", **what)
    assert code == (5 if "module" in what else 0) and "skipped" in said
    code, said = outcome(tmp_path, "1", **what)
    assert code != 0 and "was skipped, and NGRAPH_TESTS_NEED_ALL is set: " in said


def test_what_is_listed_may_be_skipped(tmp_path):
    code, said = outcome(tmp_path, "1")
    assert code == 0 and "2 passed, 1 skipped, 1 xfailed" in said


def test_the_list_holds_no_reason_that_nobody_gives():
    text = ""
    for folder, _, files in os.walk(HERE):
        for name in files:
            if re.fullmatch(r"\w+\.py", name) and name != "conftest.py":
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    text += file.read()
    assert [reason for reason in ROOM["MAY_BE_SKIPPED"] if f'"{reason}"' not in text] == []


def test_continuous_integration_sets_it():
    with open(os.path.join(ROOM["ROOT"], ".ci", "run"), encoding="utf-8") as file:
        assert f"\nexport {NEED_ALL}=1\n" in file.read()

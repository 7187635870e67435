"""Settings: one table says what each may be, in `ng.config(...)` and in the environment."""

import os
import re
import subprocess
import sys

import pytest

import ngraph as ng
from ngraph.config import BRIDGE, ELSEWHERE, SETTINGS
from ngraph.errors import NgraphWarning, SettingError, UnknownName, user_line

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = "import ngraph as ng\nx = ng.placeholder(())\nprint(ng.config)\n"

REFUSED = {  # by variable: values that it cannot have, and what the fix says
    "NGRAPH_NUM_THREADS": (["abc", "0", "-2", "1.5"], "a whole number from 1 on"),
    "NGRAPH_WARNINGS": (["never"], "one of once, always, off"),
    "NGRAPH_EXACT": (["maybe", "2"], "1 or 0, true or false, on or off"),
    "NGRAPH_STRICT": (["ja"], "1 or 0, true or false, on or off"),
}


def run(tmp_path, **variables):
    (tmp_path / "model.py").write_text(SCRIPT)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("NGRAPH_") and k not in ("DEBUG", "CHECK", "DUMP")}
    env = {**clean, "PYTHONPATH": ROOT, **variables}
    return subprocess.run([sys.executable, "model.py"], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("variable, value", [(v, value) for v, (values, _) in REFUSED.items() for value in values])
def test_a_variable_that_is_wrong_is_an_error_at_the_users_line(variable, value, tmp_path):
    done = run(tmp_path, **{variable: value})
    assert done.returncode == 1
    said = f"SettingError: model.py:3: the environment variable {variable} is {value!r}\n  fix: it takes {REFUSED[variable][1]}"
    assert said in done.stderr


def test_variables_are_read(tmp_path):
    done = run(tmp_path, NGRAPH_NUM_THREADS="3", NGRAPH_EXACT="off", DEBUG="0", NGRAPH_WARNINGS="always", NGRAPH_CACHE="off", DUMP="there")
    assert done.stderr == "" and "exact=False" in done.stdout and "num_threads=3" in done.stdout and "warnings='always'" in done.stdout
    assert "cache=''" in done.stdout and f"dump={str(tmp_path / 'there')!r}" in done.stdout


def test_a_variable_of_another_program_warns_and_is_not_used(tmp_path):
    done = run(tmp_path, DEBUG="yes", CHECK="all")
    assert done.returncode == 0 and "debug=0" in done.stdout and "check=False" in done.stdout
    assert "model.py:3: NgraphWarning: the environment variable DEBUG is 'yes', and is not used" in done.stderr
    assert "the environment variable CHECK is 'all'" in done.stderr


def test_a_variable_that_nothing_reads_warns_with_the_nearest(tmp_path):
    done = run(tmp_path, NGRAPH_THREADS="2", NGRAPH_COLOUR="red", NGRAPH_TESTS_ANY="1", NGRAPH_SEED="7")
    assert "there is no variable NGRAPH_THREADS\n  fix: set NGRAPH_NUM_THREADS" in done.stderr
    assert "there is no variable NGRAPH_COLOUR\n  fix: unset it; there are NGRAPH_EXACT" in done.stderr
    assert done.stderr.count("NgraphWarning") == 2


def test_every_variable_that_is_read_is_known():
    read = set()
    for folder, _, files in os.walk(os.path.join(ROOT, "ngraph")):
        for file in files:
            if file.endswith(".py"):
                with open(os.path.join(folder, file), encoding="utf-8") as f:
                    read |= set(re.findall(r"(?:environ(?:\.get\(|\[)|from_environment\()\"(NGRAPH_\w+)\"", f.read()))
    assert read and {v for v in read if not v.startswith(BRIDGE)} <= {*ELSEWHERE, *(s.variable for s in SETTINGS.values())}


WRONG = [("num_threads", -2), ("num_threads", "abc"), ("num_threads", 1.5), ("num_threads", True), ("exact", "maybe"), ("exact", None)]
WRONG += [("warnings", "never"), ("warnings", False), ("debug", 6), ("debug", "loud"), ("cache", 3), ("transformer", 3), ("dump", None)]


@pytest.mark.parametrize("name, value", WRONG)
def test_a_value_that_is_wrong_is_an_error_where_the_block_is_made(name, value):
    with pytest.raises(SettingError, match=f"{name}=.* is ") as told:
        ng.config(**{name: value})
    assert told.value.line == (__file__, user_line()[1] - 1) and "it takes " in told.value.fix


def test_words_and_numbers_mean_the_same_as_in_the_environment(tmp_path):
    with ng.config(exact="off", num_threads="2", cache="off", strict=1, debug="1", dump=tmp_path):
        c = ng.config
        assert (c.exact, c.num_threads, c.cache, c.strict, c.debug, c.dump) == (False, 2, "", True, 1, str(tmp_path))
    with ng.config(num_threads=0):
        assert ng.config.num_threads == 0


def test_a_setting_that_is_not_there_names_the_nearest():
    with pytest.raises(UnknownName, match="no setting exat\n  fix: take exact"):
        ng.config(exat=False)
    with pytest.raises(AttributeError, match="take num_threads"):
        ng.config.numthreads  # noqa: B018
    with pytest.raises(UnknownName, match="take winograd"):
        ng.config.winogrd = False
    assert not hasattr(ng.config, "_repr_html_")


def test_settings_are_not_assigned():
    with pytest.raises(SettingError, match=r"set for a block.*\n  fix: with ng.config\(exact=False\): ..., or NGRAPH_EXACT"):
        ng.config.exact = False


def test_a_block_that_is_never_entered_warns_at_its_line():
    with pytest.warns(NgraphWarning, match=r"ng.config\(strict=True\) changes nothing by itself") as warned:
        ng.config(strict=True)
    assert warned[0].filename == __file__


def test_a_block_may_nest_and_decorate(recwarn):
    block = ng.config(exact=False)

    @ng.config(debug=2)
    def inside():
        return ng.config.exact, ng.config.debug

    with block, block:
        assert inside() == (False, 2)
    assert ng.config.exact and not recwarn.list

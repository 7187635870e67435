"""The runner ends nowhere, whatever a case does; mistakes that are planted are found, and by the cases alone."""

import itertools
import os
import time

import pytest

from hunt import KINDS, planted, runner

TOYS = "tests.hunt.toys"
FOUND = {  # mistakes, three of each kind, and a seed of it that finds each: `make planted WHICH=kind` says which ones do
    "wide loads are shared whatever their masks": 341,
    "the mask of the neighbour: one lane too many": 0,
    "only the last guard counts": 0,
    "get gives the state's own array": 0,
    "restoring leaves out the last variable": 0,
    "a branch takes the other way": 2,
    "gradients are summed over the batch": 1,
    "the epsilon of batch norm stands outside of the root": 0,
    "channels are dealt out to groups one by one": 15,
    "a known index below 0 is not counted from the end": 125,
    "padding before and behind change places": 15,
    "an order of dims is written as its inverse": 19,
}
GET = planted.Mistake("get gives the state's own array", TOYS, None)


@pytest.mark.parametrize("name", FOUND)
def test_a_mistake_is_found(name):
    outcome = planted.sought(planted.mistakes()[name], 60, [FOUND[name]])
    assert outcome.differs and "Traceback" not in outcome.differs.splitlines()[0], outcome.line()


def test_every_mistake_has_a_kind_and_a_name_that_says_what_is_wrong():
    known = planted.mistakes()
    assert len(known) >= 20 and {m.kind for m in known.values()} <= set(KINDS)
    assert all(" " in name and callable(m.make) for name, m in known.items())
    assert planted.chosen([]) == list(known.values())
    kinds = {m.kind for m in known.values()}
    assert [m for kind in sorted(kinds) for m in planted.chosen([kind])] == sorted(known.values(), key=lambda m: m.kind)
    with pytest.raises(KeyError):
        planted.chosen(["nothing of the kind"])


def test_it_is_made_in_the_process_that_checks_and_nothing_is_kept_there():
    outcome = planted.sought(GET, 60, [5])
    assert (outcome.differs, outcome.seed, outcome.tried) == ("planted, and keeps nothing", 5, 1) and "found after" in outcome.line()
    worker = runner.Worker()
    assert worker.ask(TOYS, 5) == ({"do": "look", "seed": 5}, None)
    worker.stop()


def test_what_differs_without_it_is_no_find_of_it(monkeypatch):
    monkeypatch.setattr(runner.Worker, "start", lambda self, start=runner.Worker.start: (setattr(self, "plant", None), start(self)))
    outcome = planted.sought(GET, 60, [12, 13, 14])
    assert (outcome.differs, outcome.tried) == ("", 3) and "MISSED (seeds 13 differ without it)" in outcome.line()


def test_what_cannot_be_planted_is_told(capsys):
    outcome = planted.sought(planted.Mistake("there is no such mistake", TOYS, None), 60, [1])
    assert not outcome.differs and "NOT PLANTED" in outcome.line() and "KeyError" in capsys.readouterr().err


def test_a_case_that_ends_or_waits_is_a_find_and_the_next_is_checked(monkeypatch):
    worker = runner.Worker()
    assert worker.ask(TOYS, None, {"do": "end"})[1] == "ended the process: exit 3"
    assert worker.ask(TOYS, None, {"do": "look"})[1] is None
    monkeypatch.setattr(runner, "SECONDS", 1.0)
    assert worker.ask(TOYS, None, {"do": "wait"})[1] == "took more than 1 seconds"
    assert worker.ask(TOYS, None, {"do": "differ"})[1] == "differs always"
    assert worker.ask(TOYS, 99)[1].startswith("draw(99) raises ValueError('no case has seed 99')\nTraceback")
    assert worker.ask(TOYS, 5) == ({"do": "look", "seed": 5}, None)
    worker.stop()


def test_a_find_is_reduced(tmp_path):
    worker = runner.Worker()
    case, differs = runner.reduced(worker, TOYS, {"do": "differ", "size": 4}, "differs always")
    worker.stop()
    assert case == {"do": "differ", "size": 0} and differs == "differs always"
    find = next(find for _, find in runner.hunt(TOYS, iter([12, 13]), time.monotonic() + 60) if find is not None)
    assert (find.seed, find.differs) == (13, "differs always")
    with open(runner.write(find, str(tmp_path)), encoding="utf-8") as file:
        assert file.read() == "# differs always\n# {'do': 'look', 'seed': 13}\n"


def test_continuous_integration_hunts():
    with open(os.path.join(os.path.dirname(os.path.dirname(runner.__file__)), ".ci", "run"), encoding="utf-8") as file:
        assert "\nmake hunt MINUTES=2 FIRST=1 </dev/null\n" in file.read()


def test_all_ends_when_somebody_wants_that():
    try:
        runner.stopping.set()
        assert list(runner.hunt(TOYS, itertools.count(), time.monotonic() + 60)) == []
    finally:
        runner.stopping.clear()

"""The runner ends nowhere, whatever a case does; mistakes that are planted are found, and by the cases alone."""

import itertools
import os
import time

import pytest

from hunt import KINDS, planted, runner

TOYS = "tests.hunt.toys"
FOUND = {  # mistakes and a seed that finds each: all those in derivatives, some of other kinds; `make planted WHICH=kind` says which do
    "wide loads are shared whatever their masks": 382,
    "the mask of the neighbour: one lane too many": 1,
    "only the last predicate counts": 20,
    "get gives the state's own array": 0,
    "restoring leaves out the last variable": 0,
    "a branch takes the other way": 2,
    "gradients are summed over the batch": 1,
    "the epsilon of batch norm stands outside of the root": 0,
    "channels are dealt out to groups one by one": 15,
    "a known index below 0 is not counted from the end": 125,
    "padding before and behind change places": 15,
    "an order of dims is written as its inverse": 19,
    "errors are walked": 2,
    "a constant stops the walk": 4,
    "constants in bodies are not met": 54,
    "the second use of an op is dropped": 1,
    "parts made twice overwrite each other": 574,
    "the second error of one output is dropped": 7,
    "probabilities of a loss from logits are skipped": 636,
    "what was broadcast is not summed": 1,
    "every input of jvp moves along the first tangent": 1,
    "the carried gradient of a scan is dropped": 14,
    "a scan goes back in the order of its way forward": 23,
    "what is the same in each trip counts once": 23,
    "the other branch of a cond": 8,
    "the other operand's gradient of a difference has no sign": 5,
    "a product has one term": 1,
    "a quotient's second term is divided once": 23,
    "a root's slope lacks its half": 12,
    "tanh' is 1 - y": 5,
    "a power keeps its exponent": 11,
    "x ** 0 has a slope at 0": 1798,
    "a tie gives each its whole": 289,
    "where passes to both": 20,
    "ties of a maximum do not share": 349,
    "a gather's gradient sets": 37,
    "a strided window's gradient is shifted": 263,
    "a filter's gradient swaps stride and dilation": 845,
    "softmax' lacks its sum": 6,
    "a running sum does not turn back": 93,
    "what is sorted goes back unsorted": 99,
    "the error of a sequential goes to its first step": 1,
    "what a variable's value is read for has no derivative": 109,
    "carries are saved along the axis that they have": 56,
    "a loop keeps for another what has its axis": 637,
    "a stopped gradient flows": 10,
    "a constant that is renamed is not transposed": 402,
}
GET = planted.Mistake("get gives the state's own array", TOYS, None)


@pytest.mark.parametrize("name", FOUND)
def test_a_mistake_is_found(name):
    outcome = planted.sought(planted.mistakes()[name], 60, [FOUND[name]])
    assert outcome.differs and "Traceback" not in outcome.differs.splitlines()[0], outcome.line()


def test_every_mistake_has_a_kind_and_a_name_that_says_what_is_wrong():
    known = planted.mistakes()
    assert len(known) >= 60 and {m.kind for m in known.values()} <= set(KINDS)
    assert all(" " in name and callable(m.make) for name, m in known.items())
    assert set(FOUND) <= set(known) and {name for name, m in known.items() if m.kind == "derivatives"} <= set(FOUND)
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
    monkeypatch.undo()
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
        assert "\nmake hunt MINUTES=2 FIRST=1 MOST=480 </dev/null\n" in file.read()


def test_all_ends_when_somebody_wants_that():
    try:
        runner.stopping.set()
        assert list(runner.hunt(TOYS, itertools.count(), time.monotonic() + 60)) == []
    finally:
        runner.stopping.clear()

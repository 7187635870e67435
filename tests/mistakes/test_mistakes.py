"""Each mistake of each area is told at the line where it was made, in the words that its file keeps, and goes away with the fix."""

import functools

import pytest

from .mistakes import areas, of_area, read, run

WANTED, MENDED = 200, 180  # mistakes in all, and those among them whose fix is a line that works
ALL = {f"{area}: {m.title}": m for area in areas() for m in of_area(area)}


@functools.cache
def told(name):
    return run(ALL[name].program)


@pytest.mark.parametrize("name", ALL)
def test_a_mistake_is_told_at_its_line(name):
    mistake = ALL[name]
    assert told(name), "nothing is said"
    message, place = told(name)[0]
    assert "(no Ngraph" not in message, message
    assert place == ("model.py", mistake.line), f"{message}\n\nblames {place}, and the mistake is in line {mistake.line}"
    assert not mistake.fix or "fix: " in message, message


@pytest.mark.parametrize("name", [name for name, m in ALL.items() if m.fix])
def test_the_fix_works(name):
    assert not (said := run(ALL[name].mended)), said[0].message


@pytest.mark.parametrize("area", areas())
def test_messages(area, golden):
    mistakes = of_area(area)
    found = ["\n".join(t.message for t in told(f"{area}: {m.title}")) for m in mistakes]
    golden(f"tests/mistakes/{area}.txt", "\n".join(m.text(says) for m, says in zip(mistakes, found, strict=True)))


def test_there_are_many():
    assert len(ALL) == sum(len(of_area(area)) for area in areas()), "two mistakes of one area have one title"
    assert len(ALL) >= WANTED and sum(bool(m.fix) for m in ALL.values()) >= MENDED


# ---- what the test sees ------------------------------------------------------------------------------------------------


def outcome(program, line=1):
    (first, *_) = run(tuple(program.split("\n"))) or [None]
    return first and (first.message, first.place == ("model.py", line))


def test_what_is_silent_or_raw_or_misplaced_is_seen():
    assert outcome("x = 1") is None
    message, here = outcome("x = 1\n{}[3]", 2)
    assert message == "KeyError: 3 (no NgraphError)" and not here
    message, here = outcome("x = 1\nng.make_axis(-1)", 1)
    assert message.startswith("AxisError: model.py:2: ") and not here
    message, here = outcome("import warnings\nwarnings.warn('odd')", 2)
    assert message == "UserWarning: odd (no NgraphWarning)" and not here


def test_a_command_that_fails_is_told():
    message, here = outcome("x = 1\n$ ngraph ops nothing-like-it  # <- here", 2)
    assert "nothing-like-it" in message and here


def test_the_format_is_checked():
    with pytest.raises(ValueError, match="axes.txt, 'a title'"):
        read("=== a title\nx = 1\n--- fix\n--- says\n", "axes")

"""Passes in a row: needs and gives, the verifier after each, what DEBUG=5 shows."""

import pytest

from ngraph.config import config
from ngraph.errors import ProgramError
from ngraph.parts.runner import PASSES, PassError, pass_
from ngraph.passes import default_passes, fold, run, simplify
from ngraph.rewrite import Rule, Rules, functions, rewrite, var
from ngraph.testing.rules import Steps

x = var("x")
exp = functions("exp")


@pytest.fixture
def table():
    before = dict(PASSES)
    yield PASSES
    PASSES.clear()
    PASSES.update(before)


def program():
    s = Steps(H=3)
    return s.program(s("exp", s("multiply", s.input("H"), s.number(1))))


def test_the_standard_passes_are_listed():
    assert {p.__name__ for p in default_passes} == {"dead", "fold", "share", "simplify"} <= set(PASSES)


def test_an_unmet_need_names_the_pass_that_gives_it(table):
    @pass_(gives=("tiles",))
    def tile(p):
        return p

    @pass_(needs=("tiles",), gives=("order",))
    def arrange(p):
        return p

    with pytest.raises(ProgramError, match="pass arrange needs 'tiles'") as error:
        run(program(), (simplify, arrange))
    assert "put tile before it" in str(error.value) and "simple" in str(error.value)
    assert run(program(), (tile, arrange)) is not None
    assert run(program(), (arrange,), holds=("tiles",)) is not None
    with pytest.raises(ProgramError, match="needs 'tiles'"):
        run(program(), (arrange, tile))


def test_a_need_that_nobody_gives_says_so(table):
    @pass_(needs=("magic",))
    def lost(p):
        return p

    with pytest.raises(ProgramError, match="no registered pass gives it"):
        run(program(), (lost,))


def test_passes_from_outside_are_registered_by_name(table):
    def mine(p):
        return p

    made = pass_(name="mine")(mine)
    assert PASSES["mine"] is made and made.function is mine
    with pytest.raises(PassError, match="'mine' is registered"):
        pass_(name="mine")(fold)


def test_a_pass_that_breaks_the_program_is_shown_with_its_rules_before_and_after():
    def breaks(p):
        after = rewrite(p, Rules(Rule("bad exp", exp(x), lambda x: x * 2)))
        step = after.steps[-1]
        return after.with_(steps=(step, *after.steps[:-1]))

    with config(check=True), pytest.raises(ProgramError) as error:
        run(program(), (simplify, breaks))
    message = str(error.value)
    assert "pass breaks broke the program" in message and "bad exp" in message
    assert "before | " in message and "exp(" in message and "after  | " in message and "multiply(" in message


def test_without_check_nothing_is_verified():
    def breaks(p):
        return p.with_(steps=p.steps[::-1])

    assert [s.op for s in run(program(), (breaks,)).steps] == ["exp", "multiply", "constant"]
    with config(check=True), pytest.raises(ProgramError):
        run(program(), (breaks,))


def test_debug_prints_each_pass_its_rules_and_the_program(capsys):
    with config(debug=5):
        run(program(), default_passes)
    shown = capsys.readouterr().err
    assert "-- after share" in shown and "-- after dead" in shown and "1 x x * 1" in shown and "exp(" in shown

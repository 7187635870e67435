"""Each rule by itself: both sides through the oracle on random programs of its form; and a rule without its condition is caught."""

import numpy as np
import pytest

from ngraph.op_graph import dtypes
from ngraph.passes.dead import dead
from ngraph.passes.rules import exact_rules, finite, simplify_rules
from ngraph.rewrite import Rule, functions, rewrite, var
from ngraph.testing.rules import Steps, check_rule, differs, needs_condition

x, y = var("x"), var("y")

# these round once where the pattern rounds twice, or the other way round; all others move or keep bits
POWERS, SUMS = (
    {"x ** 2", "x ** 3", "x ** -1"},
    {"reduce of reduce", "sum of contract", "sum of number", "contract with 1", "contract of broadcast"},
)
ROUNDING = POWERS | SUMS

NAMES = [r.name for r in simplify_rules]


@pytest.mark.parametrize("name", NAMES)
def test_both_sides_are_equal_and_the_rule_fires_on_its_own_pattern(name):
    rule = simplify_rules[name]
    assert check_rule(rule, bits=not rule.inexact and name not in ROUNDING) >= 3


def two_sums_of_halves():
    s = Steps(H=3, W=4)
    inner = s("reduce", s.input("H", "W", dtype=dtypes.float16), kind="add", axes=("H",))
    return s.program(s("reduce", inner, kind="add", axes=("W",)))


BY_HAND = {"reduce of reduce": two_sums_of_halves}


@pytest.mark.parametrize("name", [r.name for r in simplify_rules if r.when])
def test_a_rule_without_its_condition_is_caught(name):
    rule = simplify_rules[name]
    if name in BY_HAND:
        draw = np.random.Generator(np.random.PCG64(3))
        assert any(differs(rule.without_condition(), BY_HAND[name](), draw) for _ in range(100))
    else:
        assert needs_condition(rule)


def test_the_exact_rules_are_those_without_a_word_on_where_they_differ():
    assert all(not r.inexact for r in exact_rules) and all(r.inexact for r in finite)
    assert len(NAMES) == len(set(NAMES))


exp, tanh, maximum, floor = functions("exp tanh maximum floor")


@pytest.mark.parametrize(
    "wrong",
    [
        Rule("wrong value", x * 1, lambda x: x * 2),
        Rule("wrong at -0", x + 0.0, lambda x: x),
        Rule("wrong at NaN", maximum(x, y) - maximum(x, y), lambda x: 0),
        Rule("wrong operand", x - exp(y), lambda x, y: exp(y) - x * 1),
        Rule("wrong where negative", floor(x / 2), lambda x: floor(x * 0.25) * 2),
    ],
    ids=lambda r: r.name,
)
def test_wrong_rules_are_caught(wrong):
    with pytest.raises(AssertionError, match="gives"):
        check_rule(wrong, tries=2000, firings=200)


def test_a_rule_that_cannot_fire_is_caught():
    with pytest.raises(AssertionError, match="never fired"):
        check_rule(Rule("never", tanh(exp(x)), lambda x: x, when=lambda x: False))


def test_sums_of_what_is_there_anyway_are_made_of_it():
    """A sum over a product that somebody else reads, too, takes fewer additions than the product over more axes takes products."""
    for others in (False, True):
        s = Steps(N=64, I=8, O=16)
        product = s("contract", s.input("N", "I"), s.input("I", "O"), over=("I",), accumulate=dtypes.float32)
        total = s("reduce", product, kind="add", axes=("N",))
        made = rewrite(s.program(*([product, total] if others else [total])), exact_rules)
        assert [step.op for step in made.steps].count("reduce") == others
        s = Steps(N=64, I=8)
        rows = s("reduce", s.input("N", "I"), kind="add", axes=("I",))
        total = s("reduce", rows, kind="add", axes=("N",))
        made = dead(rewrite(s.program(*([rows, total] if others else [total])), exact_rules))
        assert [step.op for step in made.steps].count("reduce") == 1 + others
        if others:
            assert made.steps[-1].inputs == made.steps[0].results

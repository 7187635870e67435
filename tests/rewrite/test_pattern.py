"""What patterns match: constants in every dress, either order of operands, attributes, all that is left."""

import pytest

from ngraph.config import config
from ngraph.op_graph import dtypes
from ngraph.rewrite import Rule, Rules, any_of, functions, many, rewrite, tracing, var
from ngraph.testing.rules import Steps

x, y, a = var("x"), var("y"), var("a")
exp, log, cast, reduce, concat, iota, compare = functions("exp log cast reduce concat iota compare")


def fires(rule, make, **settings):
    s = Steps(H=3, W=4)
    program = s.program(make(s))
    with tracing() as trace, config(**settings):
        rewrite(program, Rules(rule))
    return len(trace.firings)


@pytest.mark.parametrize(
    "one",
    [
        lambda s: s.number(1),
        lambda s: s.number(1, axes=["H", "W"]),
        lambda s: s("broadcast", s.number(1), axes=("H", "W")),
        lambda s: s("broadcast", s("broadcast", s.number(1), axes=("H",)), axes=("W", "H")),
    ],
)
@pytest.mark.parametrize("swap", [False, True])
def test_a_number_matches_a_constant_filled_or_broadcast_on_either_side(one, swap):
    def make(s):
        pair = (s.input("H"), one(s))
        return s("multiply", *(pair[::-1] if swap else pair))

    assert fires(("x * 1", x * 1, lambda x: x), make) == 1


def test_zeros_are_told_apart_by_sign_for_floats_only():
    plus, minus = ("x + 0", x + 0.0, lambda x: x), ("x + -0", x + -0.0, lambda x: x)
    for rule, n, dtype, count in (
        (plus, 0.0, dtypes.float32, 1),
        (plus, -0.0, dtypes.float32, 0),
        (minus, -0.0, dtypes.float32, 1),
        (minus, 0.0, dtypes.float32, 0),
        (minus, 0, dtypes.int32, 1),
        (plus, 0, dtypes.int32, 1),
    ):
        assert fires(rule, lambda s, n=n, d=dtype: s("add", s.input("H", dtype=d), s.number(n, d))) == count


def test_a_number_is_compared_as_the_dtype_holds_it():
    rule = ("x * 0.1", x * 0.1, lambda x: x)
    assert fires(rule, lambda s: s("multiply", s.input("H"), s.number(0.100000001))) == 1
    assert fires(rule, lambda s: s("multiply", s.input("H", dtype=dtypes.float64), s.number(0.100000001, dtypes.float64))) == 0
    minus = ("-x", -x, lambda x: x)
    assert fires(minus, lambda s: s("multiply", s.input("H", dtype=dtypes.uint8), s.number(255, dtypes.uint8))) == 1


def test_subtraction_is_not_matched_in_the_other_order():
    assert fires(("x - 0", x - 0, lambda x: x), lambda s: s("subtract", s.number(0), s.input("H"))) == 0


def test_the_same_hole_twice_is_the_same_value():
    rule = ("x + x", x + x, lambda x: x)

    def twice(s):
        v = s.input("H")
        return s("add", v, v)

    assert fires(rule, twice) == 1
    assert fires(rule, lambda s: s("add", s.input("H"), s.input("H"))) == 0


def test_a_nested_commutative_pattern_matches_in_all_four_orders():
    rule = ("x + exp y * 2", x + exp(y) * 2, lambda x, y: x)
    for outer in (False, True):
        for inner in (False, True):

            def make(s, outer=outer, inner=inner):
                pair = (s("exp", s.input("H")), s.number(2))
                product = s("multiply", *(pair[::-1] if inner else pair))
                pair = (s.input("H"), product)
                return s("add", *(pair[::-1] if outer else pair))

            assert fires(rule, make) == 1


def test_attributes_match_by_value_and_holes_take_them():
    rule = Rule("to int", cast(x, dtype=dtypes.int32), lambda x: x * 1, when=lambda x: x.dtype is dtypes.int32)
    assert fires(rule, lambda s: s("cast", s.input("H", dtype=dtypes.int32), dtype=dtypes.int32)) == 1
    assert fires(rule, lambda s: s("cast", s.input("H", dtype=dtypes.int32), dtype=dtypes.float32)) == 0
    both = ("sums", reduce(reduce(x, kind=a), kind=a), lambda x: x * 0 + 1)
    assert fires(both, lambda s: s("reduce", s("reduce", s.input("H"), kind="max", axes=()), kind="min", axes=())) == 0
    assert fires(both, lambda s: s("reduce", s("reduce", s.input("H"), kind="max", axes=()), kind="max", axes=())) == 1


def test_many_takes_what_is_left_and_may_ask_who_made_it():
    every, made = many("xs"), many("xs", "exp log")
    for hole, count in ((every, 1), (made, 0)):
        rule = ("concat", any_of(["concat"])(hole), lambda step, xs: None if len(xs) != 2 else concat(*xs, **step.attrs))
        s = Steps(H=3, W=4, All=7)
        program = s.program(s("concat", s.input("H"), s.input("W"), parts=("H", "W"), axis="All"))
        with tracing() as trace, pytest.raises(Exception, match="circles") if count else config():
            rewrite(program, Rules(rule))
        assert bool(trace.firings) == bool(count)


def test_no_inputs_can_be_matched_too():
    rule = Rule("iota", iota(axis=a), lambda a: 0, when=lambda a, new: new.length(a) == 3)
    assert fires(rule, lambda s: s("iota", axis="H", dtype=dtypes.int32)) == 1
    assert fires(rule, lambda s: s("iota", axis="W", dtype=dtypes.int32)) == 0


def test_inexact_rules_wait_for_leave():
    rule = ("log exp", log(exp(x)), lambda x: x, "differs where exp overflows")

    def make(s):
        return s("log", s("exp", s.input("H")))

    assert fires(rule, make) == 0
    assert fires(rule, make, exact=False) == 1


def test_tables_add_and_take_rules_from_outside():
    one, two = Rules(("a", x * 1, lambda x: x)), Rules(("b", x / 1, lambda x: x))
    both = one + two
    assert [r.name for r in both] == ["a", "b"] and len(one) == 1
    with pytest.raises(ValueError, match="'a' stands in this table"):
        both.register(("a", x * 1, lambda x: x))
    s = Steps(H=3)
    program = s.program(s("exp", s.input("H")))
    assert rewrite(program, both).steps == program.steps
    both.register(("exp", exp(x), lambda x: x))
    assert rewrite(program, both).steps == ()
    both.remove("exp")
    assert rewrite(program, both).steps == program.steps
    with pytest.raises(KeyError):
        both["exp"]


def test_rules_and_patterns_print_as_they_are_written():
    assert repr(Rule("r", log(exp(x)), lambda x: x)) == "<rule r: log(exp(x))>"
    assert repr(x * 1 + cast(y, dtype=a)) == "add(multiply(x, 1), cast(y, dtype=a))"
    assert repr(Rules(("r", x * 1, lambda x: x))) == "Rules(r)"
    assert repr(compare(many("xs"), kind="lt")) == "compare(*xs, kind='lt')"

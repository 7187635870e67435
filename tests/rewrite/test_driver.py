"""What the driver keeps: types, origins, the caller's order of axes, sub-programs; and that its work is linear."""

import numpy as np
import pytest

from ngraph.config import config
from ngraph.errors import ProgramError
from ngraph.op_graph import dtypes
from ngraph.passes import dead, default_passes, run, share, simplify
from ngraph.passes.rules import simplify_rules
from ngraph.program.interpret import interpret
from ngraph.program.text import text
from ngraph.program.verify import verify
from ngraph.rewrite import Rule, Rules, functions, rewrite, tracing, var
from ngraph.testing.rules import Steps

x, y = var("x"), var("y")
exp, log, tanh, concat = functions("exp log tanh concat")


def ops(program):
    return [s.op for s in program.steps]


def test_a_result_that_lacks_axes_is_broadcast():
    s = Steps(H=3, W=4)
    program = s.program(s("multiply", s.input("H"), s.number(1, axes=["H", "W"])))
    after = dead(rewrite(program, Rules(("x * 1", x * 1, lambda x: x))))
    assert ops(after) == ["broadcast"] and set(after.outputs[0].axes) == {"H", "W"}
    verify(after)


def test_no_broadcast_where_the_user_of_the_result_carries_the_axes():
    s = Steps(H=3, W=4)
    lacking = s("multiply", s.input("H"), s.number(1, axes=["H", "W"]))
    program = s.program(s("add", lacking, s.input("H", "W")))
    assert ops(dead(simplify(program))) == ["add"]


def test_outputs_keep_their_order_of_axes():
    s = Steps(H=3, W=4)
    v = s.input("H", "W")
    program = s.program(s("broadcast", s("multiply", v, s.number(1)), axes=("W", "H")))
    after = run(program, default_passes)
    assert after.outputs[0].axes == ("W", "H")
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert np.array_equal(interpret(after, [array])[0][0], array.T)


def test_a_result_of_another_type_is_refused():
    s = Steps(H=3, W=4)
    v = s.input("H", "W")
    program = s.program(s("exp", s("reduce", v, kind="max", axes=("W",))))
    with pytest.raises(ProgramError, match=r"rule 'wrong' gives float32\[H, W\] in place of float32\[H\]"):
        rewrite(program, Rules(Rule("wrong", exp(x), lambda x, step: x.of(x.maker.inputs[0]))))
    cast = functions("cast")
    with pytest.raises(ProgramError, match="gives int32"):
        rewrite(program, Rules(Rule("wrong", exp(x), lambda x: cast(x, dtype=dtypes.int32))))


def test_new_steps_carry_the_origins_of_all_that_they_stand_for():
    s = Steps(H=3)
    program = s.program(s("log", s("exp", s.input("H"))))
    after = dead(rewrite(program, Rules(("log exp", log(exp(x)), lambda x: tanh(x) * 2))))
    assert ops(after) == ["tanh", "constant", "multiply"]
    for step in after.steps:
        assert [o.name for o in step.origin] == ["log", "exp"]


def test_at_most_sixteen_origins_are_kept():
    s = Steps(H=3)
    v = s.input("H", dtype=dtypes.int32)
    for _ in range(40):
        v = s("add", v, s.number(1, dtypes.int32))
    after = dead(simplify(s.program(v)))
    assert ops(after) == ["constant", "add"] and after.steps[0].attrs["value"] == 40
    assert len(after.steps[1].origin) == 16


def test_programs_are_never_changed():
    s = Steps(H=3, W=4)
    v = s("multiply", s.input("H"), s.number(1, axes=["W"]))
    program = s.program(s("add", v, v))
    before = text(program)
    run(program, default_passes)
    assert text(program) == before


def test_what_a_rule_builds_is_rewritten_in_turn():
    s = Steps(H=3)
    program = s.program(s("tanh", s.input("H")))
    table = Rules(("a", tanh(x), lambda x: exp(log(x))), ("b", exp(log(x)), lambda x: x))
    with tracing() as trace:
        assert ops(dead(rewrite(program, table))) == []
    assert list(trace.counts()) == ["a", "b"]


def test_rules_that_go_in_circles_are_named():
    s = Steps(H=3)
    program = s.program(s("tanh", s.input("H")))
    with pytest.raises(ProgramError, match="circles .*there, back, there, back"):
        rewrite(program, Rules(("there", tanh(x), lambda x: exp(x)), ("back", exp(x), lambda x: tanh(x))))


def test_a_right_side_may_decline():
    s = Steps(H=3)
    program = s.program(s("tanh", s.input("H")))
    after = rewrite(program, Rules(Rule("no", tanh(x), lambda x: None if (exp(x) * 2) else None)))
    assert after.steps == program.steps


def scan_of_ones():
    body = Steps(H=3)
    carry, item = body.input("H"), body.input("H")
    product = body("multiply", body("add", carry, item), body.number(1))
    s = Steps(H=3, T=5)
    start, items = s.input("H"), s.input("H", "T")
    return s.program(*s("scan", start, items, body=body.program(product, product), axis="T", reverse=False, carries=1, xs=1))


def test_bodies_are_rewritten_too():
    program = scan_of_ones()
    after = run(program, default_passes)
    assert ops(after) == ["scan"] and ops(after.steps[0].attrs["body"]) == ["add"]
    arrays = [np.ones(3, np.float32), np.arange(15, dtype=np.float32).reshape(3, 5)]
    for a, b in zip(interpret(program, arrays)[0], interpret(after, arrays)[0], strict=True):
        assert np.array_equal(a, b)


def test_a_choice_that_is_known_is_taken():
    def branch(op):
        body = Steps(H=3)
        return body.program(body(op, body.input("H")))

    s = Steps(H=3)
    v = s.input("H")
    program = s.program(s("cond", s.number(False, dtypes.bool_), v, **{"then": branch("exp"), "else": branch("tanh")}))
    assert ops(run(program, default_passes)) == ["tanh"]


def chain(count):
    """Work for the rules at every step."""
    s = Steps(H=3, W=4)
    v, w = s.input("H", "W"), s.input("W")
    while len(s.steps) < count:
        v = s("multiply", s("add", v, w), s.number(1))
        v = s("subtract", s("tanh", v), s("multiply", w, s.number(-1)))
    return s.program(v)


def attempts(count):
    with tracing() as trace:
        run(chain(count), default_passes)
    return trace.attempts


def test_the_number_of_attempts_grows_with_the_steps_and_no_faster():
    small, large = attempts(1500), attempts(6000)
    assert large <= 4.1 * small and small <= 10 * 1500


def test_sixty_thousand_steps_without_recursion():
    program = run(chain(60_000), default_passes)
    assert set(ops(program)) == {"add", "tanh"}


def test_a_trace_says_what_fired_where_and_nests():
    s = Steps(H=3)
    program = s.program(s("multiply", s.input("H"), s.number(1)))
    with tracing() as outer:
        with tracing() as inner:
            simplify(program)
    assert [f.rule for f in outer.firings] == [f.rule for f in inner.firings] == ["x * 1"]
    assert "x * 1   at multiply" in str(outer) and "test.py:2" in str(outer)


def test_equal_programs_are_rewritten_to_equal_text():
    assert text(run(chain(300), default_passes)) == text(run(chain(300), default_passes))


def test_simplifying_twice_changes_nothing_more():
    with config(exact=False):
        once = run(chain(300), (*default_passes, simplify, share, dead))
        with tracing() as trace:
            twice = run(once, (simplify, share, dead))
    assert trace.firings == [] and text(once) == text(twice)


def test_rules_from_outside_take_part():
    s = Steps(H=3)
    program = s.program(s("tanh", s("tanh", s.input("H"))))
    simplify_rules.register(("tanh tanh", tanh(tanh(x)), lambda x: tanh(x)))
    try:
        assert ops(dead(simplify(program))) == ["tanh"]
    finally:
        simplify_rules.remove("tanh tanh")
    assert ops(dead(simplify(program))) == ["tanh", "tanh"]

"""The order of effects: what reads see, what `sequential` changes, and that the order of results never matters."""

import itertools

import numpy as np
import pytest

import ngraph as ng
from ngraph.errors import GraphError
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower


def run(results, state, feeds=()):
    """Values of the results (None for effects) and the state afterwards, by the oracle."""
    lowered = lower(results, [p for p, _ in feeds])
    start = {name: np.float32(state[v]) for name, v in lowered.states.items()}
    outputs, after = interpret(lowered.program, [np.float32(x) for _, x in feeds], start)
    values = iter(outputs)
    return [float(next(values)) if r.type is not None else None for r in results], {
        v: float(after[name]) for name, v in lowered.states.items()
    }


def permuted(results, state, feeds=()):
    """The same as `run`, for every order of the results."""
    first, after = run(results, state, feeds)
    for order in itertools.permutations(range(len(results))):
        values, again = run([results[k] for k in order], state, feeds)
        assert values == [first[k] for k in order]
        assert again == after
    return first, after


@pytest.fixture
def w():
    return ng.variable((), initial_value=1).named("w")


def test_a_read_sees_the_start_and_a_bare_variable_the_end(w):
    values, after = permuted([w + 1, ng.assign(w, 5), w, ng.value_of(w)], {w: 0})
    assert values == [1, None, 5, 0]
    assert after == {w: 5}


def test_an_assign_not_asked_for_does_not_happen(w):
    ng.assign(w, 5)
    assert permuted([w + 1], {w: 0})[0] == [1]


def test_sequential_lets_later_parts_see_earlier_assigns(w):
    assert permuted([ng.sequential([ng.assign(w, 5), w + 1])], {w: 0})[0] == [6]


def test_an_op_runs_once_and_at_its_place():
    x = ng.variable(()).named("x")
    x0, x1 = x + x, x + x
    s = ng.sequential([x0, ng.assign(x, 2), x1, x0])
    assert permuted([s, x0, x1, x], {x: 0})[0] == [0, 0, 4, 2]


def test_an_op_inside_a_sequential_runs_there_wherever_else_it_is_asked_for(w):
    after = w * 10
    s = ng.sequential([ng.assign(w, 3), after])
    assert permuted([after, s, after + 0], {w: 1})[0] == [30, 30, 30]


def test_the_same_op_in_two_sequentials_at_different_states_is_an_error(w):
    shared = w * 2
    a, b = ng.sequential([ng.assign(w, 3), shared]), ng.sequential([shared, w + 0])
    with pytest.raises(GraphError, match="two sequentials"):
        lower([a, b])
    with pytest.raises(GraphError, match="two sequentials"):
        lower([b, a])


def test_the_same_op_in_two_sequentials_at_one_state_is_fine(w):
    v = ng.variable(()).named("v")
    shared = w * 2
    a, b = ng.sequential([shared, ng.assign(w, 3), w + shared]), ng.sequential([shared, ng.assign(v, 7), v + shared])
    assert permuted([a, b], {w: 1, v: 0})[0] == [5, 9]


def test_two_unordered_assigns_are_an_error_that_names_both_lines(w):
    a, b = ng.assign(w, 1), ng.assign(w, 2)
    for results in ([a, b], [ng.doall([a, b])], [ng.sequential([a]), b], [ng.sequential([ng.doall([a, b])])]):
        with pytest.raises(GraphError, match="assigned twice") as e:
            lower(results)
        assert str(e.value).count("test_state.py") >= 2


def test_assigns_in_one_sequential_follow_each_other(w):
    s = ng.sequential([ng.assign(w, w + 1), ng.assign(w, w * 10), w + 0])
    values, after = permuted([s, w], {w: 2})
    assert values == [30, 30] and after == {w: 30}


def test_doall_reads_the_state_before_it():
    a, b = ng.variable(()).named("a"), ng.variable(()).named("b")
    swap = ng.doall([ng.assign(a, b), ng.assign(b, a)])
    assert permuted([swap, a, b], {a: 1, b: 2})[0] == [None, 2, 1]
    swap = ng.sequential([ng.doall([ng.assign(a, b), ng.assign(b, a)]), a * 10 + b])
    assert permuted([swap, a, b], {a: 1, b: 2})[0] == [21, 2, 1]


def test_nested_sequentials_continue_one_another(w):
    inner = ng.sequential([ng.assign(w, w + 1), w * 2])
    outer = ng.sequential([ng.assign(w, 10), inner, w + 100])
    values, after = permuted([outer, inner, w], {w: 0})
    assert values == [111, 22, 11] and after == {w: 11}


def test_two_sequentials_start_from_the_same_state():
    a, b = ng.variable(()).named("a"), ng.variable(()).named("b")
    s, t = ng.sequential([ng.assign(a, 5), a + b]), ng.sequential([ng.assign(b, 7), a + b])
    assert permuted([s, t, a, b], {a: 1, b: 2})[0] == [7, 8, 5, 7]


def test_value_of_is_the_value_at_its_place(w):
    before, after = ng.value_of(w), ng.value_of(w)
    s = ng.sequential([before, ng.assign(w, 9), after])
    assert permuted([s, before, after], {w: 4})[0] == [9, 4, 9]


def test_an_assign_in_two_sequentials_counts_in_both(w):
    up = ng.assign(w, w + 1)
    s, t = ng.sequential([up, w * 1]), ng.sequential([up, w * 2])
    assert permuted([s, t], {w: 1})[0] == [2, 4]


def test_an_unfed_placeholder_is_named_with_its_line():
    x = ng.placeholder(()).named("x")
    with pytest.raises(GraphError, match=r"test_state.py:\d+: placeholder x \[\] is needed"):
        lower([x + 1])


def test_updates_of_the_walk_through_do_not_disturb_each_other():
    v, m, x = ng.variable(()).named("v"), ng.variable(()).named("m"), ng.placeholder(()).named("x")
    loss = (v * x - 1) ** 2
    step = m * 0.5 + ng.deriv(loss, v)
    values, after = permuted([loss, ng.doall([ng.assign(m, step), ng.assign(v, v - step * 0.1)]), v], {v: 2, m: 1}, [(x, 3)])
    grad = 2 * (2 * 3 - 1) * 3
    assert values[0] == 25 and after[m] == 0.5 + grad and np.isclose(after[v], 2 - 0.1 * (0.5 + grad))

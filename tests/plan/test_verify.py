"""What `verify` and the plan's interpreter catch: plans that are broken by hand."""

from dataclasses import replace

import numpy as np
import pytest
from plan_programs import axis, hole, program

import ngraph as ng
from ngraph.errors import ParseError, ProgramError
from ngraph.plan.interpret import interpret
from ngraph.plan.planner import plan
from ngraph.plan.text import parse, text
from ngraph.plan.verify import verify

N, H = axis(64, "N"), axis(96, "H")


@pytest.fixture
def softmax():
    x = hole(N, H)
    return plan(program([ng.softmax(x, normalization_axes=[H])], x))


def broken(made, change):
    (kernel,) = made.steps
    return replace(made, steps=(replace(kernel, stages=change(kernel.stages)),))


def test_a_stage_reads_what_an_earlier_one_stores(softmax):
    wrong = broken(softmax, lambda stages: stages[::-1])
    with pytest.raises(ProgramError, match="no stage before it stores it"):
        verify(wrong)
    with pytest.raises(ProgramError, match="no stage before it stores"):
        interpret(wrong, [np.zeros((64, 96), np.float32)])


def test_lines_come_before_their_use(softmax):
    def change(stages):
        last = stages[-1]
        return (*stages[:-1], replace(last, before=last.before[::-1]))

    with pytest.raises(ProgramError, match="not there yet"):
        verify(broken(softmax, change))


def test_a_result_is_stored(softmax):
    with pytest.raises(ProgramError, match="nothing has filled it"):
        verify(broken(softmax, lambda stages: tuple([replace(s, to=s.to[1:]) if s is stages[-1] else s for s in stages])))


def test_turns_store_apart(softmax):
    (kernel,) = softmax.steps
    (store,) = kernel.stages[-1].to
    wrong = replace(store, index={a: 0 if a == "N" else e for a, e in store.index.items()})
    with pytest.raises(ProgramError, match="same place in several work items"):
        verify(broken(softmax, lambda stages: (*stages[:-1], replace(stages[-1], to=(wrong,)))))


def test_buffers_that_live_together_lie_apart():
    n, k, h = axis(512, "N"), axis(3000, "K"), axis(1000, "H")
    x, w, v = hole(n, k), hole(k, h), hole(h, k)
    first = ng.tanh(ng.dot(x, w))
    made = plan(program([ng.dot(ng.dot(first, v), w) + first], x, w, v))
    inside = [b for b in made.buffers if b.storage == "arena"]
    assert len(inside) >= 2
    verify(made)
    for b in inside:
        b.offset = 0
    made.arena = max(b.bytes for b in inside)
    with pytest.raises(ProgramError, match="lie on each other"):
        verify(made)


@pytest.mark.parametrize(
    "wrong", ["ngraph plan 1\nkernels\n", "ngraph plan 1\nrun %b0\n", "ngraph program 1\n", "ngraph plan 1\ninputs 3\n"]
)
def test_what_is_no_plan_says_where(wrong):
    with pytest.raises(ParseError, match="line [12]"):
        parse(wrong)


def test_text_is_read_back(softmax):
    shown = text(softmax)
    again = parse(shown)
    assert text(again) == shown and again.memory == softmax.memory
    x = np.random.default_rng(0).normal(size=(64, 96)).astype(np.float32)
    assert interpret(again, [x])[0][0].tobytes() == interpret(softmax, [x])[0][0].tobytes()


def test_what_others_read_is_stored_in_each_call():
    k, j, x = ng.placeholder("K=4"), ng.placeholder("J=4"), ng.placeholder("K=4 N=? J=4")
    below = ng.less(k, j)
    part = ng.where(below, ng.cos(x), 0.0)
    made = plan(program([ng.cos(ng.sum(part * ng.sin(x), "J")) * part, below], x, k, j))
    (kernel,) = made.steps
    verify(made)
    stages = tuple([replace(s, depth=int("N" in map(str, (*s.free, *s.reduced)))) for s in kernel.stages])
    with pytest.raises(ProgramError, match="which others read, in no work item where N is 0"):
        verify(replace(made, steps=(replace(kernel, loops=(("N", 16),), stages=stages),)))

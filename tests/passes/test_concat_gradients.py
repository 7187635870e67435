"""Sums of pieces that lie beside each other are joined; other sums stay, and every bit too."""

import numpy as np
import pytest

from ngraph.op_graph import dtypes
from ngraph.op_graph.expr import Idx, Len
from ngraph.passes.concat_gradients import concat_gradients
from ngraph.program.interpret import interpret
from ngraph.program.program import AxisId
from ngraph.program.verify import verify
from ngraph.testing.rules import Steps

A, H, K = AxisId("A"), AxisId("H"), AxisId("K")


def one(s, x, k):
    """x at one place of A, else 0."""
    return s("reindex", x, axes=(A, H), index=((H, Idx(H)),), predicate=(Idx(A) - k, k - Idx(A)), pad_value=0)


def some(s, x, start):
    """x, whose axis is K, from a place of A on."""
    return s("reindex", x, axes=(A, H), index=((K, Idx(A) - start), (H, Idx(H))), predicate=(), pad_value=0)


def ops(program):
    return [step.op for step in program.steps]


def same(program, count=0):
    """The program after the pass; it gives the same bits."""
    made = verify(concat_gradients(program))
    draw = np.random.default_rng(count)
    shapes, arrays = {A: 4, H: 3, K: 2}, []
    for v in program.inputs:
        shape = [shapes[a] for a in v.axes]
        arrays.append(np.where(draw.random(shape) < 0.3, -0.0, draw.normal(size=shape) * 4).astype(v.dtype.np))
    for a, b in zip(interpret(program, arrays)[0], interpret(made, arrays)[0], strict=True):
        assert a.tobytes() == b.tobytes()
    return made


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_single_places_become_one_array(dtype):
    s = Steps(A=4, H=3)
    xs = [s.input("H", dtype=dtypes.REGISTRY[dtype]) for _ in range(4)]
    total = one(s, xs[0], 3)
    for x, k in zip(xs[1:], (1, 0, 2), strict=True):
        total = s("add", total, one(s, x, k))
    made = same(s.program(total))
    assert "concat" in ops(made) and ops(made).count("reindex") == 4 and all(not step.attrs.get("predicate") for step in made.steps)


def test_gaps_are_zeros_and_ranges_count_too():
    s = Steps(A=4, H=3, K=2)
    total = s("add", one(s, s.input("H"), 3), some(s, s.input("K", "H"), 0))
    made = same(s.program(total))
    assert ops(made).count("concat") == 1


def test_other_terms_stay():
    s = Steps(A=4, H=3, K=2)
    x, y = s.input("A", "H"), s.input("K", "H")
    total = s("add", s("add", some(s, y, 0), x), some(s, y, 2))
    made = same(s.program(total))
    assert "concat" in ops(made) and "add" in ops(made)


def test_pieces_on_each_other_stay():
    s = Steps(A=4, H=3, K=2)
    y = s.input("K", "H")
    program = s.program(s("add", some(s, y, 0), some(s, y, 1)))
    assert concat_gradients(program) is program


def test_what_others_need_stays():
    s = Steps(A=4, H=3, K=2)
    first = s("add", some(s, s.input("K", "H"), 0), s.input("A", "H"))
    made = same(s.program(s("add", first, some(s, s.input("K", "H"), 2)), first))
    assert "concat" not in ops(made)


def test_lengths_that_come_with_the_call_stay():
    s = Steps(A=None, H=3)
    program = s.program(s("add", one(s, s.input("H"), 0), one(s, s.input("H"), 1)))
    assert program.axes[A] == Len(A) and concat_gradients(program) is program


def test_sums_in_loops():
    s = Steps(A=4, H=3)
    b = Steps(A=4, H=3)
    c, x = b.input("A", "H"), b.input("H")
    body = b.program(b("add", one(b, x, 0), one(b, b("multiply", x, x), 2)))
    body = body.with_(inputs=(c, x))
    made = concat_gradients(s.program(s("scan", s.input("A", "H"), s.input("A", "H"), body=body, axis=A, reverse=False, carries=1, xs=1)))
    (loop,) = made.steps
    assert "concat" in ops(loop.attrs["body"])

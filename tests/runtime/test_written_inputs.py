"""Inputs that a call writes: every transformer against NumPy, on arrays of any strides; the texts, the verifiers, the errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ArgumentError, AxisError, DTypeError, GraphError, NanError, ProgramError
from ngraph.plan.interpret import interpret as interpret_plan
from ngraph.plan.planner import plan
from ngraph.plan.text import parse as parse_plan
from ngraph.plan.text import text as plan_text
from ngraph.plan.verify import verify as verify_plan
from ngraph.program.interpret import interpret
from ngraph.program.text import equal, from_json, parse, text, to_json
from ngraph.program.verify import verify
from ngraph.tensors import build
from ngraph.tensors import interpret as tensors_interpret
from ngraph.tensors import text as tensors_text

ALL = pytest.mark.parametrize("name", ["cpu", "numpy", "direct"])


def made(name: str) -> Any:
    return ngt.make_transformer_factory(name)()


def axes(*lengths: int | None) -> list[Any]:
    return [ng.make_axis(n, name=f"A{k}") for k, n in enumerate(lengths)]


@ALL
def test_the_value_lands_in_the_callers_array(name: str) -> None:
    p, m = axes(5, 7)
    x, g = ng.placeholder([p, m]).named("x"), ng.placeholder([m]).named("g")
    f = made(name).computation(ng.sum(x, [p, m]), x, g, writes={x: x + g})
    a, b = np.random.rand(5, 7).astype("f"), np.random.rand(7).astype("f")
    for _ in range(6):  # the first calls go other ways than later ones
        before = a.copy()
        total = f(a, b)
        np.testing.assert_allclose(total, before.sum(), rtol=1e-5)
        np.testing.assert_array_equal(a, before + b)


@ALL
def test_a_value_may_lack_axes_and_be_a_number(name: str) -> None:
    p, m = axes(4, 3)
    x, y = ng.placeholder([p, m]), ng.placeholder([p], dtype="int32")
    f = made(name).computation(None, x, y, writes={x: ng.cast(y, "float32"), y: 7})
    a, b = np.zeros((4, 3), "f"), np.arange(4, dtype="i4")
    assert f(a, b) is None
    np.testing.assert_array_equal(a, np.repeat(np.arange(4)[:, None], 3, 1))
    np.testing.assert_array_equal(b, 7)


@ALL
def test_two_inputs_change_places(name: str) -> None:
    (p,) = axes(9)
    x, y = ng.placeholder([p]), ng.placeholder([p])
    f = made(name).computation([x, x], x, y, writes={x: y, y: x})
    a, b = np.arange(9.0, dtype="f"), np.ones(9, "f")
    for _ in range(4):
        before = a.copy(), b.copy()
        once, again = f(a, b)
        np.testing.assert_array_equal(once, before[0])
        np.testing.assert_array_equal(again, before[0])
        np.testing.assert_array_equal(a, before[1])
        np.testing.assert_array_equal(b, before[0])


@ALL
def test_a_written_value_is_also_a_result_of_its_own(name: str) -> None:
    (p,) = axes(6)
    x = ng.placeholder([p])
    y = x * 2.0
    f = made(name).computation([y, x], x, writes={x: y})
    a = np.arange(6.0, dtype="f")
    new, old = f(a)
    np.testing.assert_array_equal(new, a)
    np.testing.assert_array_equal(old, np.arange(6.0))
    new += 1
    assert a[0] == 0 and not np.may_share_memory(new, a)


@ALL
def test_state_and_written_inputs_together(name: str) -> None:
    (p,) = axes(5)
    t = made(name)
    w, x = ng.variable([p], initial_value=1.0), ng.placeholder([p])
    f = t.computation([ng.assign(w, w + x), w * 1.0], x, writes={x: x + w})
    a = np.ones(5, "f")
    for k in range(5):
        held, before = t.get(w) if k else np.ones(5, "f"), a.copy()
        f(a)
        np.testing.assert_array_equal(a, before + held)
        np.testing.assert_array_equal(t.get(w), held + before)


@ALL
def test_an_operand_of_a_length_that_data_decides(name: str) -> None:
    n = ng.placeholder((), dtype="int64").named("n")
    (p,) = axes(8)
    x = ng.placeholder([p])
    f = made(name).computation(ng.cumsum(ng.sort(x, p), p), x, n, writes={n: n + 1, x: ng.sort(x, p)})
    a, count = np.float32([3, 1, 2, 9, 8, 7, 5, 4]), np.array(2)
    got = f(a, count)
    np.testing.assert_array_equal(a, np.sort(a))
    np.testing.assert_allclose(got, np.cumsum(a))
    assert count == 3


@ALL
def test_open_lengths_and_none_at_all(name: str) -> None:
    with ng.config(lengths="open"):
        p, m = axes(None, None)
        x, y = ng.placeholder([p, m]), ng.placeholder([m])
        f = made(name).computation(None, x, y, writes={x: ng.tensor_slice(x, [slice(None, None, -1), slice(None)]) * y, y: ng.sum(x, p)})
        for shape in ((3, 4), (1, 1), (17, 5), (0, 3), (3, 0), (64, 33), (3, 4)):
            a, b = np.random.rand(*shape).astype("f"), np.random.rand(shape[1]).astype("f")
            wanted = a[::-1] * b, a.sum(0)
            f(a, b)
            np.testing.assert_allclose(a, wanted[0], rtol=1e-5)
            np.testing.assert_allclose(b, wanted[1], rtol=1e-5, atol=1e-6)


@ALL
def test_a_read_argument_that_shares_memory_is_read_before(name: str) -> None:
    p, m = axes(5, 5)
    x, y = ng.placeholder([p, m]), ng.placeholder([m, p])
    f = made(name).computation(None, x, y, writes={x: x + ng.sum(y, p)})
    for turned in (lambda a: a, lambda a: a.T, lambda a: a[::-1]):
        for _ in range(3):
            a = np.random.rand(5, 5).astype("f")
            wanted = a + turned(a.copy()).sum(1)
            f(a, turned(a))
            np.testing.assert_allclose(a, wanted, rtol=1e-5)


@ALL
def test_arrays_that_cannot_be_written(name: str) -> None:
    p, m = axes(5, 7)
    x, y = ng.placeholder([p, m]).named("x"), ng.placeholder([p, m]).named("y")
    f = made(name).computation(x * 2.0, x, y, writes={x: y, y: x})
    a, b = np.zeros((5, 7), "f"), np.zeros((5, 7), "f")
    frozen = np.zeros((5, 7), "f")
    frozen.flags.writeable = False
    block = np.zeros(40, "f")
    for _ in range(2):
        for bad, said in [
            ((frozen, b), "read-only"),
            ((np.broadcast_to(np.zeros(7, "f"), (5, 7)), b), "read-only"),
            ((np.lib.stride_tricks.as_strided(block, (5, 7), (4, 4)), b), "share one"),
            (([[0.0] * 7] * 5, b), "a list"),
            ((1.0, b), "a float"),
            ((a.astype("d"), b), "float64"),
            ((np.zeros(7, "f"), b), r"float32\[7\]"),
            ((np.zeros((5, 6), "f"), b), "length 7, and got 6"),
            ((a, a), "share memory"),
            ((block[:35].reshape(5, 7), block[5:].reshape(5, 7)), "share memory"),
        ]:
            with pytest.raises(ArgumentError, match=said):
                f(*bad)
        with pytest.raises(ArgumentError, match="out= shares memory with y"):
            f(a, b, out=b)
        f(a, b)
        assert not a.any() and not b.any()
    woven = np.arange(70.0, dtype="f").reshape(5, 14)
    f(woven[:, ::2], woven[:, 1::2])  # within each other, and apart
    np.testing.assert_array_equal(woven[0, :4], [1, 0, 3, 2])


def test_what_cannot_be_asked_for() -> None:
    p, m = axes(5, 7)
    t = made("cpu")
    x, y = ng.placeholder([p]).named("x"), ng.placeholder([p, m]).named("y")
    with pytest.raises(GraphError, match="y is not a parameter"):
        t.computation(x, x, writes={y: y})
    with pytest.raises(AxisError, match="A1 is not an axis of x"):
        t.computation(x, x, y, writes={x: y})
    n = ng.placeholder([p], dtype="int32")
    with pytest.raises(DTypeError, match="would be cut"):
        t.computation(x, x, n, writes={n: x})
    with pytest.raises(GraphError, match="not a parameter"):
        t.computation(None, x, writes={x: ng.sum(y, m)})


def program_of() -> Any:
    p, m = axes(5, 7)
    x, y = ng.placeholder([p, m]).named("x"), ng.placeholder([m, p]).named("y")
    return made("cpu").computation(ng.sum(y, p), x, y, writes={x: y, y: x * 2.0}, name="f").program


def test_texts_parse_back_and_interpreters_agree() -> None:
    program = verify(program_of())
    written = text(program)
    assert "write %0 = output 1\nwrite %1 = output 2\n" in written
    assert equal(parse(written), program) and text(parse(written)) == written
    assert equal(from_json(to_json(program)), program)
    assert not equal(parse(written.replace("write %1 = output 2\n", "")), program)
    graph = build.build(program)
    assert tensors_text.text(tensors_text.parse(tensors_text.text(graph))) == tensors_text.text(graph)
    p = verify_plan(plan(program))
    assert plan_text(parse_plan(plan_text(p))) == plan_text(p)
    a, b = np.random.rand(5, 7).astype("f"), np.random.rand(7, 5).astype("f")
    before = a.copy(), b.copy()
    found = interpret(program, [a, b])[0]
    np.testing.assert_array_equal(found[1], b.T)
    np.testing.assert_array_equal(found[2], 2 * a.T)
    for other in (tensors_interpret.interpret(graph, [a, b])[0], interpret_plan(p, [a, b])[0]):
        for one, two in zip(found, other, strict=True):
            np.testing.assert_allclose(two, one, rtol=1e-6)
    np.testing.assert_array_equal(a, before[0])  # interpreters leave what they are given
    np.testing.assert_array_equal(b, before[1])


def test_verifiers_refuse() -> None:
    program = program_of()
    for writes, said in [
        (((0, 1), (0, 1)), "input 0 occurs twice"),
        (((0, 1), (1, 1)), "replaces y"),
        (((0, 2),), "replaces x"),
        (((0, 9),), "output 9 replaces input 0, of 3 outputs"),
    ]:
        with pytest.raises(ProgramError, match=said):
            verify(program.with_(writes=writes))
    p = plan(program)
    k, n = p.writes[0]
    p.writes = tuple(w for w in p.writes if w != (k, n))
    with pytest.raises(ProgramError, match="does not replace it"):
        verify_plan(p)


@ALL
def test_a_nan_leaves_written_inputs_as_they_were(name: str) -> None:
    (p,) = axes(4)
    x = ng.placeholder([p])
    f = made(name).computation(None, x, writes={x: ng.log(x)})
    a = np.float32([1, 2, -1, 3])
    with ng.config(nans="raise"), pytest.raises(NanError, match="log"):
        f(a)
    np.testing.assert_array_equal(a, np.float32([1, 2, -1, 3]))


def strided(rng: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array of these lengths: dense or not, its dims in any order, some of them backwards."""
    order = rng.permutation(len(shape))
    steps = [int(rng.choice([1, 1, 2, 3])) * int(rng.choice([1, 1, -1])) for _ in shape]
    whole = np.zeros([max(shape[k], 1) * abs(steps[k]) + int(rng.integers(2)) for k in order], dtype)
    turned = whole.transpose(np.argsort(order)) if shape else whole
    view = turned[tuple(slice(None, None, s) for s in steps)][tuple(slice(n) for n in shape)] if shape else whole
    view[...] = (rng.random(shape) * 8).astype(dtype)
    return view


@ALL
@pytest.mark.parametrize("seed", range(12))
def test_random_writes_on_random_strides(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, m = int(rng.choice([0, 1, 2, 7, 33])), int(rng.choice([1, 3, 16, 29]))
    a, b = axes(None if seed % 3 == 0 else p, m)
    ins = [ng.placeholder([a, b]), ng.placeholder([b, a]), ng.placeholder([b]), ng.placeholder([a, b])]
    shapes = [(p, m), (m, p), (m,), (p, m)]

    def drawn(k: int) -> tuple[Any, Any]:
        """A value with the axes of input k, and the same in NumPy."""
        kind, other = int(rng.integers(7)), int(rng.integers(4))
        if kind == 0:
            return ins[other if k != 2 else 2] * 2.0, lambda v: 2 * place(v[other if k != 2 else 2], other if k != 2 else 2, k)
        if kind == 1:
            return ng.sum(ins[0], a) + ins[2], lambda v: spread(v[0].sum(0) + v[2], k)
        if kind == 2:
            return ng.sum(ins[3] * ins[1], a), lambda v: spread((v[3] * v[1].T).sum(0), k)
        if kind == 3:
            return ins[k] + 1.0, lambda v: v[k] + 1
        if kind == 4:
            return ng.tensor_slice(ins[2], [slice(None, None, -1)]), lambda v: spread(v[2][::-1], k)
        if kind == 5:
            return ng.cumsum(ins[2], b), lambda v: spread(np.cumsum(v[2]), k)
        return ins[k] * ng.sum(ins[2], b), lambda v: v[k] * v[2].sum()

    def place(x: np.ndarray, of: int, k: int) -> np.ndarray:
        if x.ndim == 1:
            return spread(x, k)
        return x.T if (of == 1) != (k == 1) else x

    def spread(x: np.ndarray, k: int) -> np.ndarray:
        return x if k == 2 else np.broadcast_to(x[:, None], (m, p)) if k == 1 else np.broadcast_to(x, (p, m))

    chosen = sorted(rng.choice(4, size=int(rng.integers(1, 5)), replace=False).tolist())
    drawn_ = {k: drawn(k) for k in chosen}
    f = made(name).computation([ins[0] * 1.0, ng.sum(ins[1], a)], *ins, writes={ins[k]: v for k, (v, _) in drawn_.items()})
    for _ in range(4):
        given = [strided(rng, s, np.float32) for s in shapes]
        before = [g.copy() for g in given]
        one, two = f(*given)
        np.testing.assert_array_equal(one, before[0])
        np.testing.assert_allclose(two, before[1].sum(1), rtol=1e-5, atol=1e-5)
        for k, g in enumerate(given):
            np.testing.assert_allclose(g, drawn_[k][1](before) if k in drawn_ else before[k], rtol=1e-4, atol=1e-4)

"""What goes into a computation and what comes out."""

import threading
import warnings
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ArgumentError, GraphError, NgraphWarning, StateError
from ngraph.warn import forget

C, N = ng.make_axis(3, name="C"), ng.make_axis(name="N", batch=True)


def adder(transformer):
    x = ng.placeholder([C]).named("x")
    return x, transformer.computation(x + 1, x)


def test_results_come_in_the_form_that_was_asked_for(transformer):
    x = ng.placeholder([C])
    a, b = x + 1, x * 2
    w = ng.variable([C], initial_value=0)
    one, two, three = transformer.computation(a, x), transformer.computation([a, b], x), transformer.computation((a,), x)
    assert isinstance(one([1, 2, 3]), np.ndarray)
    assert [r.tolist() for r in two([1, 2, 3])] == [[2, 3, 4], [2, 4, 6]]
    assert isinstance(three([1, 2, 3]), tuple)
    named = transformer.computation({a, b}, x)([1, 2, 3])
    assert named[a].tolist() == [2, 3, 4] and named[b].tolist() == [2, 4, 6]
    assert transformer.computation(None)() is None
    assert transformer.computation(ng.assign(w, x), x)([1, 2, 3]) is None
    assert transformer.computation([ng.assign(w, x + 4), a], x)([1, 2, 3])[0] is None
    assert transformer.get(w).tolist() == [5, 6, 7]


def test_results_come_in_the_nest_that_was_asked_for(transformer):
    class Two(NamedTuple):
        first: Any
        rest: Any

    x, w = ng.placeholder([C]), ng.variable([C], initial_value=0)
    a, b, update = x + 1, x * 2, ng.assign(w, x)
    run = transformer.computation({"mean": ng.mean(x, out_axes=()), "all": [a, (b, None)], "step": {"w": update, "two": Two(b, a)}}, x)
    for _ in range(3):
        got = run([1, 2, 3])
        assert list(got) == ["mean", "all", "step"] and float(got["mean"]) == 2
        assert isinstance(got["all"], list) and got["all"][0].tolist() == [2, 3, 4] and got["all"][1][1] is None
        assert got["step"]["w"] is None and isinstance(got["step"]["two"], Two) and got["step"]["two"].rest.tolist() == [2, 3, 4]
    assert transformer.get(w).tolist() == [1, 2, 3]
    pairs = transformer.computation([[a, b], [update, b]], x)([1, 2, 3])
    assert isinstance(pairs, tuple) and isinstance(pairs[0], list) and pairs[1][0] is None
    named = transformer.computation({"a": a, "b": {"c": b}}, x)
    out = {"b": {"c": np.zeros(3, np.float32)}, "a": np.zeros(3, np.float32)}
    assert named([1, 2, 3], out=out) is out and out["b"]["c"].tolist() == [2, 4, 6] and out["a"].tolist() == [2, 3, 4]
    with pytest.raises(ArgumentError, match="out= has the parts a, b, and got a"):
        named([1, 2, 3], out={"a": out["a"]})
    every = transformer.add_computation(ng.computation({"a": a, "b": [b]}, "all"))
    assert every([1, 2, 3])["b"][0].tolist() == [2, 4, 6]
    with pytest.raises(GraphError, match="gives ops, and 'x' is none"):
        transformer.computation({"a": a, "b": ["x"]}, x)


def test_results_are_the_callers_own(transformer):
    x = ng.placeholder([C])
    w = ng.variable([C], initial_value=2)
    table = ng.constant(np.arange(3.0, dtype=np.float32), [C])
    run = transformer.computation([x, w, table, x, w + 0, ng.constant(5.0), x + 1], x)
    given = np.ones(3, np.float32)
    first = run(given)
    for k, r in enumerate(first):
        assert isinstance(r, np.ndarray) and r.flags.writeable and not np.shares_memory(r, given)
        assert all(not np.shares_memory(r, other) for other in first[:k])
        r[...] = 77
    assert given.tolist() == [1, 1, 1]
    assert [r.ravel().tolist() for r in run(given)] == [[1, 1, 1], [2, 2, 2], [0, 1, 2], [1, 1, 1], [2, 2, 2], [5], [2, 2, 2]]


def test_five_calls_give_five_values(transformer):
    x = ng.placeholder(())
    plus_one = transformer.computation(x + 1, x)
    results = [plus_one(i) for i in range(5)]
    assert [r.shape for r in results] == [()] * 5 and [float(r) for r in results] == [1, 2, 3, 4, 5]


def test_out_is_filled(transformer):
    x, run = adder(transformer)
    out = np.zeros(3, np.float32)
    assert run([1, 2, 3], out=out) is out and out.tolist() == [2, 3, 4]
    both = transformer.computation([x, x + 1], x)
    pair = (np.zeros(3, np.float32), np.zeros(3, np.float32))
    assert both([1, 2, 3], out=pair) is pair and pair[1].tolist() == [2, 3, 4]
    for wrong in (np.zeros(4, np.float32), np.zeros(3), [0, 0, 0]):
        with pytest.raises(ArgumentError, match="out= holds"):
            run([1, 2, 3], out=wrong)


class Wrapped:
    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


class Packed:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize(
    "value",
    [
        [1, 2, 3],
        (1.0, 2.0, 3.0),
        np.array([1, 2, 3]),
        np.array([1, 2, 3], np.float64),
        np.array([1, 2, 3], np.uint8),
        np.array([1, 2, 3], ml_dtypes.bfloat16),
        np.array([3, 9, 2, 9, 1], np.float32)[::-2],
        np.array([1, 2, 3], ">f4"),
        Wrapped(np.array([1.0, 2.0, 3.0])),
        Packed(np.array([1.0, 2.0, 3.0], np.float32)),
    ],
    ids=["list", "tuple", "int64", "float64", "uint8", "bfloat16", "strides", "big endian", "__array__", "__dlpack__"],
)
def test_arguments_of_any_kind(transformer, value):
    _, run = adder(transformer)
    assert run(value).tolist() == [2, 3, 4]


def test_a_number_fills_a_tensor(transformer):
    x, run = adder(transformer)
    assert run(4).tolist() == run(np.float32(4)).tolist() == [5, 5, 5]
    y, z = ng.placeholder([N]).named("y"), ng.placeholder([N])
    both = transformer.computation(y + z, y, z)
    assert both(1, [1, 2]).tolist() == [2, 3]
    with pytest.raises(ArgumentError, match="is not known"):
        both(1, 2)


def test_what_does_not_fit_is_refused(transformer):
    x, run = adder(transformer)
    whole = ng.placeholder([C], dtype=ng.int8).named("whole")
    truth = ng.placeholder([C], dtype=ng.bool_).named("truth")
    ints = transformer.computation(whole + 1, whole)
    assert ints([1, 2, -3]).tolist() == [2, 3, -2] and ints([True, False, True]).tolist() == [2, 1, 2]
    for wrong, said in (([1.0, 2.5, 3.0], "2.5"), ([1, 2, 128.0], "128.0"), ([1, np.nan, 2], "nan"), ([np.inf, 1, 2], "inf")):
        with pytest.raises(ArgumentError, match=f"whole is int8, and got float64 with {said}, which it cannot hold"):
            ints(wrong)
    for kind in (np.float16, np.float32, np.float64):
        forget()
        with pytest.warns(NgraphWarning, match=f"whole is int8, and got {kind.__name__} of whole numbers, which are taken as such"):
            assert ints(np.array([127, -128, -3], kind)).tolist() == [-128, -127, -2]
    with ng.config(strict=True), pytest.raises(ArgumentError, match="of whole numbers"):
        ints([1.0, 2.0, 3.0])
    with pytest.raises(ArgumentError, match="from 1 to 300"):
        ints([1, 2, 300])
    with pytest.raises(ArgumentError, match="truth is bool, and got int64"):
        transformer.computation(truth, truth)([0, 1, 2])
    with pytest.raises(ArgumentError, match="got <U1|got object|no array"):
        run(["a", "b", "c"])
    with pytest.raises(ArgumentError, match="axis C of placeholder x has length 3, and got 4") as caught:
        run(np.ones(4))
    assert "test_computation.py" in str(caught.value).splitlines()[0] and "made at" in str(caught.value)
    with pytest.raises(ArgumentError, match=r"x has the axes \[C=3\], and got an array of shape \(3, 1\)"):
        run(np.ones((3, 1)))
    with pytest.raises(ArgumentError, match="takes 1 argument, not 2"):
        run(1, 2)
    with pytest.raises(ArgumentError, match=r"x \[C=3\], made at .*is not fed"):
        run()


def test_feed_dict(transformer):
    x, y = ng.placeholder([C]).named("x"), ng.placeholder(()).named("y")
    run = transformer.computation(x * y, x, y)
    assert run(feed_dict={y: 2, x: [1, 2, 3]}).tolist() == [2, 4, 6]
    with pytest.raises(ArgumentError, match="x .* is not fed"):
        run(feed_dict={y: 2})
    with pytest.raises(ArgumentError, match="is not a parameter of it"):
        run(feed_dict={y: 2, x: [1, 2, 3], ng.placeholder(()): 1})
    with pytest.raises(ArgumentError, match="both positional values and a feed_dict"):
        run(1, feed_dict={y: 2})


def test_parameters_are_checked_when_the_computation_is_made(transformer):
    x, y = ng.placeholder([C]).named("x"), ng.placeholder(()).named("y")
    with pytest.raises(GraphError, match="y .* is needed, and is not a parameter"):
        transformer.computation(x * y, x)
    with pytest.raises(GraphError, match="occurs twice"):
        transformer.computation(x, x, x)
    with pytest.raises(GraphError, match="is not a placeholder"):
        transformer.computation(x, x, x + 1)
    with pytest.raises(GraphError, match="is none"):
        transformer.computation([x, 3], x)


def test_fifty_lengths_are_one_compilation(transformer, monkeypatch, tmp_path):
    compiled = []
    real = type(transformer).compile
    monkeypatch.setattr(transformer, "compile", lambda program: compiled.append(program) or real(transformer, program))
    M = ng.make_axis(name="M")
    x, w = ng.placeholder([N, C]), ng.placeholder([C, M])
    with ng.config(cache=str(tmp_path)):  # where nothing is found that others compiled
        run = transformer.computation([ng.dot(x, w), ng.mean(x, out_axes=()), ng.sum(x, out_axes=[N])], x, w)
    r = np.random.default_rng(0)
    for n in range(50):
        a, b = r.normal(size=(n + 1, 3)).astype("f"), r.normal(size=(3, 2 * n)).astype("f")
        product, mean, rows = run(a, b)
        np.testing.assert_allclose(product, a @ b, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(mean, a.mean(), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(rows, a.sum(1), rtol=1e-4, atol=1e-6)
    assert len(compiled) == 1


def test_two_arguments_that_disagree_on_a_length(transformer):
    x, y = ng.placeholder([N, C]).named("x"), ng.placeholder([N]).named("y")
    run = transformer.computation(x * y, x, y)
    assert run(np.ones((4, 3)), np.ones(4)).shape == (4, 3)
    for a, b in ((np.ones((4, 3), "f"), np.ones(5, "f")), (np.ones((4, 3)), np.ones(5))):
        with pytest.raises(ArgumentError, match="axis N has length 4 in x and 5 in y"):
            run(a, b)


def test_every_difference_is_named_at_once(transformer):
    x, y = ng.placeholder([N, C]).named("x"), ng.placeholder([C]).named("y")
    run = transformer.computation(x * y, x, y)
    with pytest.raises(ArgumentError) as caught:
        run(np.ones((4, 2)), np.ones(7))
    assert "placeholder x has length 3, and got 2" in str(caught.value) and "placeholder y has length 3, and got 7" in str(caught.value)


def test_outputs_have_the_declared_order(transformer):
    A, B, D = (ng.make_axis(n, name=name) for n, name in ((2, "A"), (3, "B"), (4, "D")))
    x, y = ng.placeholder([A, B]), ng.placeholder([B, D])
    r = np.random.default_rng(0)
    a, b = r.normal(size=(2, 3)).astype("f"), r.normal(size=(3, 4)).astype("f")
    z = ng.dot(x, y)
    turned = ng.axes_with_order(z, [D, A])
    run = transformer.computation([z, turned, ng.axes_with_order(x, [B, A])], x, y)
    given = run(a, b)
    for got, want in zip(given, (a @ b, (a @ b).T, a.T), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)
        assert got.flags.c_contiguous


def test_no_warning_reaches_the_user(transformer):
    x, i = ng.placeholder([C]), ng.placeholder([C], dtype=ng.int32)
    run = transformer.computation([1 / x, ng.log(x), ng.exp(x * 1e9), x - x / x, i // i, i % i, ng.cast(x * 1e30, ng.int8)], x, i)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results = run([0, -1, np.inf], [0, 5, -5])
    assert results[4].tolist() == [0, 1, 1] and results[5].tolist() == [0, 0, 0] and results[6].tolist() == [0, -128, 127]


def test_threads_share_a_computation(transformer):
    x = ng.placeholder([N, C])
    w = ng.variable([C], initial_value=0)
    read, write = transformer.computation(ng.sum(x * w, out_axes=[N]), x), transformer.computation(ng.assign(w, w + 1))
    ones, wrong = np.ones((50, 3), "f"), []

    def reads():
        for _ in range(100):
            got = read(ones)
            if not (got == got[0]).all() or got[0] % 3:
                wrong.append(got)

    def writes():
        for _ in range(100):
            write()

    threads = [threading.Thread(target=f) for f in (reads, writes, reads, writes)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and transformer.get(w).tolist() == [200] * 3


def test_a_closed_transformer_says_so(transformer):
    x, run = adder(transformer)
    run(1)
    transformer.close()
    with pytest.raises(StateError, match="closed"):
        run(1)
    with pytest.raises(StateError, match="closed"):
        transformer.computation(x, x)


def test_debug_prints_what_is_compiled(capsys, tmp_path):
    x = ng.placeholder([C])
    with ng.config(debug=4, dump=str(tmp_path)):
        ngt.allocate_transformer("numpy").computation(x + 1, x, name="plus one")(0)
    said = capsys.readouterr().err
    assert "plus_one: " in said and "def plus_one(" in said
    assert "def plus_one(" in (tmp_path / "plus_one" / "8-source.py").read_text()

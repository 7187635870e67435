"""Reads and writes at indices that are checked (`mode="raise"`), against NumPy, on every transformer, and in files that are written."""

import numpy as np
import onnxruntime
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import BoundsError, StateError

J, K, N = (ng.make_axis(n, name=name) for name, n in {"J": 40, "K": 3, "N": 6}.items())
X = np.arange(120, dtype=np.float32).reshape(40, 3)
RIGHT, WRONG = np.array([0, 39, -1, -40, 7, 7], "int32"), [40, -41, 1 << 30, -(1 << 31)]


def bad(index, at=3):
    found = RIGHT.copy()
    found[at] = index
    return found


def refuses(index, call, *args, n=40, axis="J"):
    with pytest.raises(BoundsError, match=f"test_bounds.py:\\d+: index {index} is out of bounds of axis {axis}, which has length {n}"):
        call(*args)


@pytest.mark.parametrize("opened", [False, True])
def test_reads_and_writes(transformer, opened):
    j, n = (ng.make_axis(name=a.name) if opened else a for a in (J, N))
    x, i, u = ng.placeholder([j, K]), ng.placeholder([n], dtype="int32"), ng.placeholder([n, K])
    read = transformer.computation(ng.take(x, i, j, mode="raise"), x, i)
    write = transformer.computation(ng.ops.indexing.put(x, i, u, j, combine="add", mode="raise"), x, i, u)
    us = np.ones((6, 3), np.float32)
    want = X.copy()
    np.add.at(want, RIGHT, us)
    for wrong in WRONG:
        np.testing.assert_array_equal(read(X, RIGHT), X[RIGHT])
        np.testing.assert_array_equal(write(X, RIGHT, us), want)
        refuses(wrong, read, X, bad(wrong))
        refuses(wrong, write, X, bad(wrong), us)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int64", "uint32", "uint64"])
def test_every_type_of_index(transformer, dtype):
    """An axis longer than the type counts, one shorter, and the ends of the type."""
    ends = np.iinfo(dtype)
    for length in (3, 300):
        m = ng.make_axis(length, name="M")
        x, i = ng.placeholder([m], dtype="int32"), ng.placeholder([N], dtype=dtype)
        f = transformer.computation(ng.take(x, i, m, mode="raise"), x, i)
        values = np.arange(length, dtype="int32")
        for k in {int(ends.min), int(ends.max), 0, 2, 3, min(length - 1, int(ends.max)), min(length, int(ends.max))}:
            index = np.array([0, 0, 0, 0, 0, k], dtype)
            if -length <= k < length:
                np.testing.assert_array_equal(f(values, index), [0, 0, 0, 0, 0, k % length])
            else:
                refuses(k, f, values, index, n=length, axis="M")


@pytest.mark.parametrize("mode", ["clip", "wrap", "fill"])
@pytest.mark.parametrize("dtype", ["int64", "uint32", "uint64"])
def test_modes_at_the_ends_of_the_type(transformer, dtype, mode):
    """One axis for both operands: its length is known in the first call and open in later ones."""
    n = ng.make_axis(name="N")
    x, i = ng.placeholder([n]), ng.placeholder([n], dtype=dtype)
    f = transformer.computation(ng.take(x, i, n, mode=mode), x, i)
    ends = np.iinfo(dtype)
    for length in (16, 7, 1, 33, 16):
        values = np.arange(1, length + 1, dtype=np.float32)
        index = np.array([0, 1, length - 1, length, ends.max, ends.max - 1, ends.min, 5], dtype).repeat(5)[:length]
        inside = np.array([0 <= int(k) < length for k in index])
        near = [int(k) % length if mode == "wrap" else min(max(int(k), 0), length - 1) for k in index]
        np.testing.assert_array_equal(f(values, index), np.where(inside | (mode != "fill"), values[near], 0))


def test_an_axis_without_elements(transformer):
    empty = ng.make_axis(0, name="E")
    for axis in (N, ng.make_axis(0, name="M")):
        x, i = ng.placeholder([empty]), ng.placeholder([axis], dtype="int32")
        f = transformer.computation(ng.take(x, i, empty, mode="raise"), x, i)
        if axis.length:
            refuses(0, f, np.zeros(0), np.zeros(6, "int32"), n=0, axis="E")
        else:
            assert f(np.zeros(0), np.zeros(0, "int32")).shape == (0,)


def test_an_index_that_is_computed(transformer):
    """The check is made on the index, wherever it comes from, with no copy of it that was asked for."""
    x, i = ng.placeholder([J, K]), ng.placeholder([N], dtype="int32")
    where = ng.argmax(ng.take(x, i, J, mode="raise"), reduction_axes=[K])
    f = transformer.computation(ng.take(x, i * 2 + where - 2, J, mode="raise"), x, i)
    np.testing.assert_array_equal(f(X, RIGHT // 2), X[RIGHT // 2 * 2])
    refuses(40, f, X, np.full(6, 20))


def test_gradients(transformer):
    x, i = ng.variable([J, K], initial_value=X), ng.placeholder([N], dtype="int32")
    y = ng.take(x, i, J, mode="raise")
    f = transformer.computation([y, ng.deriv(ng.sum(y * y, out_axes=()), x)], i)
    want = np.zeros_like(X)
    np.add.at(want, RIGHT, 2 * X[RIGHT])
    np.testing.assert_allclose(f(RIGHT)[1], want, rtol=1e-6)
    refuses(-41, f, bad(-41))
    np.testing.assert_allclose(f(RIGHT)[1], want, rtol=1e-6)


# ---- loops and branches ------------------------------------------------------------------------------------------------


def test_a_scan_checks_every_step(transformer):
    t = ng.make_axis(name="T")
    x, i = ng.placeholder([J]), ng.placeholder([t], dtype="int32")
    f = transformer.computation(ng.scan(lambda s, k: (s + ng.take(x, k, J, mode="raise"), None), ng.constant(0.0), i, t)[0], x, i)
    for _ in range(2):
        assert f(X[:, 0], RIGHT) == X[RIGHT, 0].sum()
        refuses(40, f, X[:, 0], bad(40, 5))
    assert f(X[:, 0], RIGHT[:0]) == 0


def test_a_while_loop_checks_the_steps_that_it_takes(transformer):
    x, last = ng.placeholder([J]), ng.placeholder([], dtype="int32")
    count = ng.constant(0, [], dtype="int32")
    total = ng.while_loop(
        lambda c: ng.less(c[0], last), lambda c: (c[0] + 1, c[1] + ng.take(x, c[0], J, mode="raise")), (count, ng.constant(0.0))
    )[1]
    f = transformer.computation(total, x, last)
    for _ in range(2):
        assert [f(X[:, 0], n) for n in (0, 3, 40)] == [X[:n, 0].sum() for n in (0, 3, 40)]
        refuses(40, f, X[:, 0], 41)


def test_a_branch_checks_where_it_is_taken(transformer):
    c, x, i = ng.placeholder([], dtype="bool"), ng.placeholder([J]), ng.placeholder([N], dtype="int32")
    f = transformer.computation(ng.cond(c, lambda: ng.take(x, i, J, mode="raise"), lambda: ng.cast(i, "float32")), c, x, i)
    for _ in range(2):
        np.testing.assert_array_equal(f(True, X[:, 0], RIGHT), X[RIGHT, 0])
        np.testing.assert_array_equal(f(False, X[:, 0], bad(99)), bad(99))
        refuses(99, f, True, X[:, 0], bad(99))


# ---- threads, state, files ---------------------------------------------------------------------------------------------


def test_several_threads_find_the_first(transformer):
    n = 1 << 18
    rows = ng.make_axis(n, name="M")
    index = np.random.default_rng(0).integers(-40, 40, n).astype("int32")
    for threads in (1, 2, 3):
        with ng.config(num_threads=threads):
            x, i = ng.placeholder([J, K]), ng.placeholder([rows], dtype="int32")
            f = transformer.computation(ng.take(x, i, J, mode="raise"), x, i)
            np.testing.assert_array_equal(f(X, index), X[index])
            wrong = index.copy()
            wrong[[n // 3, n - 1]] = 77, -99
            refuses(77, f, X, wrong)
            np.testing.assert_array_equal(f(X, index), X[index])


def test_state_after_an_error(transformer, tmp_path):
    """A call that fails gives nothing; what it would have written is told as torn where it is written in place, else it is as before."""
    w, i = ng.variable([J, K], initial_value=X), ng.placeholder([N], dtype="int32")
    other = ng.variable([], initial_value=5.0)
    step = transformer.computation([ng.assign(w, w + ng.sum(ng.take(w, i, J, mode="raise"), out_axes=())), ng.sum(w, out_axes=())], i)
    read, count = transformer.computation(other + 0), transformer.computation(ng.assign(other, other + 1))
    step(RIGHT)
    before = transformer.get(w).copy()
    refuses(40, step, bad(40))
    count()
    assert read() == 6.0
    if transformer.state.torn:
        with pytest.raises(StateError, match="was cut off"):
            transformer.save(str(tmp_path / "state.npz"))
        transformer.set(w, before)
    np.testing.assert_array_equal(transformer.get(w), before)
    step(RIGHT)
    np.testing.assert_allclose(transformer.get(w), before + before[RIGHT].sum(dtype=np.float32), rtol=1e-6)


def session(path):
    onnxruntime.set_default_logger_severity(4)
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def test_exported_reads_refuse_as_well(tmp_path):
    """Also where the index is used for more than to read: then a node looks at it first."""
    path = str(tmp_path / "m.onnx")
    x, i = ng.placeholder([J, K]).named("x"), ng.placeholder([N], dtype="int32").named("i")
    checked = ng.ops.indexing.bounded(i, J, "axis J")
    for results in ([ng.take(x, i, J, mode="raise")], [checked], [ng.ops.indexing.gather(x, checked, axes=(J,), mode="clip"), checked * 2]):
        f = ngt.make_transformer().computation(results, x, i)
        ng.onnx.save(f, path)
        made = session(path)
        feeds = {p.name: {"x": X, "i": RIGHT}[p.name] for p in made.get_inputs()}
        for got, want in zip(made.run(None, feeds), f(X, RIGHT), strict=True):
            np.testing.assert_array_equal(got, want)
        again = ng.onnx.load(path)
        for got, want in zip(again.run(feeds).values(), f(X, RIGHT), strict=True):
            np.testing.assert_array_equal(got, want)
        for wrong in (40, -41):
            with pytest.raises(Exception, match=f"{wrong}|out of"):
                made.run(None, feeds | {"i": bad(wrong)})
            with pytest.raises(BoundsError, match=f"index {wrong} is out of bounds"):
                again.run(feeds | {"i": bad(wrong)})


def test_an_exported_index_that_may_not_count_from_the_end(tmp_path):
    path = str(tmp_path / "m.onnx")
    x, i = ng.placeholder([J, K]).named("x"), ng.placeholder([N], dtype="int32").named("i")
    at = ng.ops.indexing.bounded(i, J, "axis J", negative=False)
    ng.onnx.save(ngt.make_transformer().computation(ng.ops.indexing.gather(x, at, axes=(J,), mode="clip"), x, i), path)
    made = session(path)
    np.testing.assert_array_equal(made.run(None, {"x": X, "i": abs(RIGHT) % 40})[0], X[abs(RIGHT) % 40])
    for wrong in (40, -1):
        with pytest.raises(Exception, match="40"):
            made.run(None, {"x": X, "i": np.full(6, wrong, "int32")})


def test_an_exported_loop_refuses_as_well(tmp_path):
    path = str(tmp_path / "m.onnx")
    t = ng.make_axis(4, name="T")
    x, i = ng.placeholder([J]).named("x"), ng.placeholder([t], dtype="int32").named("i")
    total, _ = ng.scan(lambda s, k: (s * 0.5 + ng.take(x, k, J, mode="raise"), None), ng.constant(0.0), i, t)
    f = ngt.make_transformer().computation(total, x, i)
    ng.onnx.save(f, path)
    made, again = session(path), ng.onnx.load(path)
    feeds = {"x": X[:, 0], "i": RIGHT[:4]}
    assert made.run(None, feeds)[0] == f(X[:, 0], RIGHT[:4]) == next(iter(again.run(feeds).values()))
    with pytest.raises(Exception, match="41|out of"):
        made.run(None, feeds | {"i": bad(-41)[:4]})
    with pytest.raises(BoundsError, match="index -41 is out of bounds"):
        again.run(feeds | {"i": bad(-41)[:4]})

"""State: initial values, sharing, what an interrupted update leaves, random numbers, and files."""

import gc
import os
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ArgumentError, OutOfMemoryError, ParseError, StateError
from ngraph.ops.control import HOST_CALLS
from ngraph.ops.random import rng
from ngraph.runtime import weights
from ngraph.runtime.lock import ReadersWriter

C, K = ng.make_axis(3, name="C"), ng.make_axis(2, name="K")


@pytest.mark.parametrize(
    "initial, want",
    [
        (None, [[0, 0], [0, 0], [0, 0]]),
        (2, [[2, 2], [2, 2], [2, 2]]),
        ([1, 2], [[1, 2], [1, 2], [1, 2]]),
        (np.arange(6).reshape(3, 2), [[0, 1], [2, 3], [4, 5]]),
        (lambda: 5, [[5, 5], [5, 5], [5, 5]]),
        (lambda axes: np.full(axes.lengths, axes.size), [[6, 6], [6, 6], [6, 6]]),
        (lambda axes=None: 1 if axes is None else 2, [[2, 2], [2, 2], [2, 2]]),
        (ng.constant(3), [[3, 3], [3, 3], [3, 3]]),
    ],
    ids=["none", "number", "row", "array", "function of nothing", "function of axes", "either", "constant"],
)
def test_initial_values(transformer, initial, want):
    w = ng.variable([C, K], initial_value=initial)
    assert transformer.computation(w)().tolist() == want == transformer.get(w).tolist()


def test_initial_values_that_do_not_fit(transformer):
    w = ng.variable([C], initial_value=lambda: np.ones(4))
    with pytest.raises(ArgumentError, match="cannot hold an array of shape"):
        transformer.computation(w)()
    with pytest.raises(StateError, match="length of M is not known"):
        transformer.get(ng.variable([ng.make_axis(name="M")]))


def test_initial_values_are_made_once_and_late(transformer):
    calls = []
    w = ng.variable([C], initial_value=lambda: calls.append(1) or len(calls))
    run = transformer.computation(w)
    assert calls == []
    assert run().tolist() == run().tolist() == transformer.get(w).tolist() == [1, 1, 1]


def test_computations_share_state(transformer):
    w = ng.variable([C], initial_value=1)
    read, write = transformer.computation(w * 2), transformer.computation(ng.assign(w, w + 1))
    assert read().tolist() == [2, 2, 2]
    version = transformer.state.version
    write()
    assert read().tolist() == [4, 4, 4] and transformer.state.version == version + 1
    later = transformer.computation([w, ng.assign(w, w * 10)])
    assert later()[0].tolist() == [20, 20, 20]
    with ngt.allocate_transformer(transformer.name) as other:
        assert other.computation(w)().tolist() == [1, 1, 1]


def test_state_that_passes_drop_is_not_asked_for(transformer):
    """What the graph reads, and no result needs: a loop's start in the slope of something else, a factor that falls out."""
    T, B = ng.make_axis(3, name="T"), ng.make_axis(2, name="B")
    v, w = (ng.variable([B], initial_value=[1.0, 2.0]).named(n) for n in "vw")
    xs = ng.placeholder([T, B])
    end, _ = ng.scan(lambda c, x: (c + v * x, None), w, xs, T)
    slope = transformer.computation(ng.deriv(ng.sum(end, out_axes=()), v), xs)
    nothing = transformer.computation(ng.where(ng.constant(True), xs * 2, xs + w), xs)
    writes = transformer.computation([ng.assign(v, v + 1), ng.where(ng.constant(True), v, w)])
    for _ in range(2):
        assert slope(np.ones((3, 2))).tolist() == [3, 3]
        assert nothing(np.ones((3, 2))).tolist() == [[2, 2]] * 3
    assert writes()[1].tolist() == [1, 2] and transformer.get(v).tolist() == [2, 3]


def test_set_and_get(transformer):
    w = ng.variable([C, K], initial_value=1)
    given = np.arange(6.0).reshape(3, 2)
    transformer.set(w, given)
    given[...] = 9
    held = transformer.get(w)
    held[...] = 7
    assert transformer.computation(w + 0)().tolist() == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(ArgumentError, match="cannot hold"):
        transformer.set(w, np.ones((2, 3)))
    with pytest.raises(StateError, match="is not a variable"):
        transformer.set(ng.placeholder([C]), 1)


def test_arrays_that_were_replaced_are_let_go_of(transformer, monkeypatch):
    """What a computation has looked up stays no longer than the state has it; `out=` and other readers find the new one."""
    monkeypatch.setattr("ngraph.transformers.cpu.device.CpuDevice.entry", lambda *_: None)
    w, v = (ng.variable([C, K], initial_value=k) for k in (1, 2))
    x = ng.placeholder([C])
    runs = [transformer.computation(w * v + x, x), transformer.computation(ng.dot(x, w), x), transformer.computation(ng.assign(v, v * w))]
    out, one = np.empty((3, 2), np.float32), np.ones(3, np.float32)

    def values():
        for _ in range(3):
            for run in runs[:2]:
                run(one)
        return runs[0](one, out=out)[0, 0], runs[1](one)[0]

    assert values() == (3, 3)
    runs[2]()
    assert values() == (3, 3)
    old = [weakref.ref(transformer.state.arrays[u]) for u in (w, v)]
    transformer.set(w, 5)
    gc.collect()
    assert old[0]() is None and old[1]() is not None
    assert values() == (11, 15)
    runs[2]()
    assert values() == (51, 15)
    transformer.close()
    gc.collect()
    assert old[1]() is None
    with pytest.raises(StateError, match="closed"):
        runs[0](one)


def test_swapped_and_repeated_state(transformer):
    a, b, c = (ng.variable([C], initial_value=k) for k in (1, 2, 3))
    run = transformer.computation([ng.assign(a, b), ng.assign(b, a), ng.assign(c, a), ng.assign(ng.variable([C]), a)])
    run()
    assert [transformer.get(v)[0] for v in (a, b, c)] == [2, 1, 1]
    add = transformer.computation([ng.assign(a, a + 1)])
    add()
    assert [transformer.get(v)[0] for v in (a, b, c)] == [3, 1, 1]


def test_state_keeps_what_the_caller_gave(transformer):
    x = ng.placeholder([C])
    w = ng.variable([C])
    run = transformer.computation(ng.assign(w, x), x)
    given = np.ones(3, np.float32)
    run(given)
    given[...] = 5
    assert transformer.get(w).tolist() == [1, 1, 1]


def test_old_and_new_value_in_one_call(transformer):
    w = ng.variable([C], initial_value=1)
    old, new = ng.value_of(w) * 1, w + 1
    run = transformer.computation([old, new, ng.assign(w, new), w, new * 2])
    for k in (1, 2, 3):
        before, after, _, end, double = run()
        assert (before[0], after[0], end[0], double[0]) == (k, k + 1, k + 1, 2 * k + 2)


def test_variables_as_arguments(transformer):
    w = ng.variable([C], initial_value=1)
    run = transformer.computation(w * 2, w)
    assert run([1, 2, 3]).tolist() == [2, 4, 6] and transformer.get(w).tolist() == [1, 1, 1]


def test_an_update_cut_off_in_the_middle_is_not_saved(tmp_path):
    def fail(text, *arrays):
        if armed:
            raise KeyboardInterrupt

    armed = []
    HOST_CALLS["fail"] = fail
    try:
        for name in ("direct", "numpy", "cpu"):
            v, w = (ng.variable([C], initial_value=1).named(n) for n in "vw")
            half = v * 2 + 1
            stop = ng.ops.control.effect.build(half, kind="fail", text="")
            with ngt.allocate_transformer(name) as transformer:
                run = transformer.computation([ng.assign(v, half), stop, ng.assign(w, w + v)])
                armed.clear()
                run()
                transformer.save(tmp_path / "w")
                armed.append(1)
                with pytest.raises(KeyboardInterrupt):
                    run()
                if name == "direct":  # writes nothing before all is computed
                    assert transformer.get(v).tolist() == [3, 3, 3]
                    continue
                with pytest.raises(StateError, match="update of v, w was cut off"):
                    transformer.save(tmp_path / "w")
                transformer.restore(tmp_path / "w")
                assert transformer.get(v).tolist() == [3, 3, 3] and transformer.get(w).tolist() == [2, 2, 2]
                transformer.save(tmp_path / "w")
    finally:
        del HOST_CALLS["fail"]


def test_a_computation_inside_one_that_writes_is_refused_not_stuck():
    w = ng.variable([C], initial_value=1)
    with ngt.allocate_transformer("direct") as transformer:
        inner = transformer.computation(w)
        HOST_CALLS["inner"] = lambda text, *arrays: inner()
        try:
            run = transformer.computation([ng.assign(w, w + 1), ng.ops.control.effect.build(w, kind="inner", text="")])
            with pytest.raises(StateError, match="from inside one that writes"):
                run()
        finally:
            del HOST_CALLS["inner"]
        assert inner().tolist() == [1, 1, 1]


def test_many_readers_or_one_writer():
    lock, inside, seen = ReadersWriter(), [], []

    def reader():
        for _ in range(200):
            with lock.reading():
                inside.append("r")
                seen.append("w" in inside)
                inside.remove("r")

    def writer():
        for _ in range(200):
            with lock.writing():
                inside.append("w")
                seen.append(len(inside) > 1)
                inside.remove("w")

    threads = [threading.Thread(target=f) for f in (reader, writer, reader, writer)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(20)
    assert len(seen) == 800 and not any(seen) and inside == []
    with lock.reading(), lock.reading():
        pass


# ---- random numbers


def test_seeds(transformer, monkeypatch):
    def drawn(t):
        run = t.computation(ng.uniform([C, K]))
        return [run().tolist(), run().tolist()]

    x = ng.uniform([C, K])
    run = transformer.computation(x)
    first, second = run().tolist(), run().tolist()
    assert first != second
    transformer.seed(0)
    assert [run().tolist(), run().tolist()] == [first, second]
    transformer.seed(5)
    assert run().tolist() not in (first, second) and transformer.get(rng).tolist() == [5, 1]
    with ngt.allocate_transformer(transformer.name) as other:
        other.seed(5)
        assert other.computation(x)().tolist() == (transformer.seed(5), run().tolist())[1]
    monkeypatch.setenv("NGRAPH_SEED", "5")
    with ngt.allocate_transformer(transformer.name) as other:
        assert other.computation(x)().tolist() == (transformer.seed(5), run().tolist())[1]


# ---- files


def test_save_and_restore(transformer, tmp_path):
    kinds = [ng.float32, ng.float64, ng.float16, ng.bfloat16, ng.int8, ng.uint64, ng.bool_]
    many = [ng.persistent_tensor([C, K], dtype=d, initial_value=np.arange(6).reshape(3, 2) % 2).named(f"v{d}") for d in kinds]
    scalar, empty = ng.variable((), initial_value=3).named("s"), ng.variable([ng.make_axis(0, name="Z")]).named("none")
    passing = ng.temporary([C]).named("passing")
    run = transformer.computation([*many, scalar, empty, passing])
    path = tmp_path / "weights.safetensors"
    transformer.save(path)
    assert sorted(weights.read_arrays(path)) == sorted([*(v.hint for v in many), "s", "none"])
    before = run()
    for v in many:
        transformer.set(v, np.ones((3, 2), bool))
    transformer.set(scalar, 9)
    transformer.restore(path)
    for a, b in zip(before, run(), strict=True):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()
    assert transformer.get(many[3]).dtype == ml_dtypes.bfloat16
    assert os.listdir(tmp_path) == ["weights.safetensors"]


def test_names_in_files_are_unique(transformer, tmp_path):
    a, b = (ng.variable([C], initial_value=k).named("W") for k in (1, 2))
    transformer.computation(a)
    transformer.computation(b)
    transformer.save(tmp_path / "w")
    arrays = weights.read_arrays(tmp_path / "w")
    assert {k: v.tolist() for k, v in arrays.items()} == {"W": [1, 1, 1], "W_2": [2, 2, 2]}


def test_restore_compares_everything_before_it_changes_anything(transformer, tmp_path):
    a, b, c = (ng.variable([C], initial_value=k).named(n) for k, n in enumerate("abc"))
    transformer.computation([a, b, c])
    weights.write_arrays(tmp_path / "w", {"a": np.ones(3, "f"), "b": np.ones(4, "f"), "d": np.ones(3), "c": np.ones(3)})
    with pytest.raises(StateError, match="3 differences") as caught:
        transformer.restore(tmp_path / "w")
    for said in (r"b has shape (4,) in the file, (3,) here", "c is float64 in the file, float32 here", "d is not a variable here"):
        assert said in str(caught.value)
    assert [transformer.get(v)[0] for v in (a, b, c)] == [0, 1, 2]
    weights.write_arrays(tmp_path / "part", {"a": np.full(3, 7, "f"), "d": np.ones(3)})
    with pytest.raises(StateError, match="b is not in the file"):
        transformer.restore(tmp_path / "part")
    transformer.restore(tmp_path / "part", partial=True)
    assert [transformer.get(v)[0] for v in (a, b, c)] == [7, 1, 2]


def test_a_broken_file_is_refused(transformer, tmp_path):
    transformer.computation(ng.variable([C]).named("a"))
    (tmp_path / "w").write_bytes(b"\x08\0\0\0\0\0\0\0notjson!")
    with pytest.raises(ParseError, match="is not a safetensors file"):
        transformer.restore(tmp_path / "w")


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_crash_while_saving_leaves_the_old_file(transformer, tmp_path, monkeypatch, moment):
    w = ng.variable([C], initial_value=1).named("w")
    transformer.computation(w)
    transformer.save(tmp_path / "w")
    old = (tmp_path / "w").read_bytes()
    transformer.set(w, 2)

    def crash(*args):
        raise OSError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, moment, crash)
        with pytest.raises(OSError, match="no space"):
            transformer.save(tmp_path / "w")
    assert (tmp_path / "w").read_bytes() == old and os.listdir(tmp_path) == ["w"]
    transformer.save(tmp_path / "w")
    assert weights.read_arrays(tmp_path / "w")["w"].tolist() == [2, 2, 2]


def test_a_variable_that_does_not_fit_into_memory_is_said_so(transformer):
    a, b = ng.make_axis(1 << 24, name="A"), ng.make_axis(1 << 24, name="B")
    w = ng.variable([a, b], initial_value=0.5).named("huge")
    with pytest.raises(OutOfMemoryError, match=r"no room for the variable huge \[A=16777216, B=16777216\]"):
        transformer.computation(ng.sum(w, out_axes=()))()


def test_a_variable_that_loops_in_loops_take_and_do_not_read(transformer):
    """Its derivative is 0, and what a derivative takes of it once is not taken by any version of the program."""
    T, W = ng.axes("T=2 W=3")
    x, v = ng.placeholder([W], dtype="float64"), ng.variable([W, T], initial_value=1.5, dtype="float64")
    last = ng.checkpoint(lambda u: ng.scan(lambda h, _: (ng.tanh(h), None), u, v, T, reverse=True)[0], x)
    value, *slopes = transformer.computation([ng.sum(last, out_axes=()), *ng.deriv(ng.sum(last, out_axes=()), [x, v])], x)([0.1, 0.2, 0.3])
    h = np.tanh([0.1, 0.2, 0.3])
    np.testing.assert_allclose(value, np.tanh(h).sum(), rtol=1e-12)
    np.testing.assert_allclose(slopes[0], (1 - np.tanh(h) ** 2) * (1 - h**2), rtol=1e-12)
    assert not slopes[1].any()

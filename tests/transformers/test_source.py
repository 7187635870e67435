"""The code that `numpy` prints: it reads well, runs by itself, and updates state where it lies."""

import re
import subprocess
import sys

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.op_graph.opdef import REGISTRY
from ngraph.ops.control import HOST_CALLS
from ngraph.testing.samples import SampleSource

N, I, H, O = (ng.make_axis(n, name=name) for n, name in ((6, "N"), (5, "I"), (4, "H"), (3, "O")))


def perceptron():
    """One step of momentum descent on a small perceptron."""
    x, y = ng.placeholder([N, I]).named("x"), ng.placeholder([N], dtype=ng.int64).named("y")
    r = np.random.default_rng(0)

    def parameter(axes, name):
        p = ng.variable(axes, initial_value=lambda a: r.normal(size=a.lengths)).named(name)
        return p, ng.persistent_tensor(axes, initial_value=0).named("v_" + name)

    pairs = [parameter([I, H], "w1"), parameter([H], "b1"), parameter([H, O], "w2"), parameter([O], "b2")]
    w1, b1, w2, b2 = (p for p, _ in pairs)
    h = ng.relu(ng.dot(x, w1) + b1).named("h")
    z = ng.dot(h, w2) + b2
    loss = ng.mean(ng.cross_entropy_multi(ng.softmax(z, [O]), ng.one_hot(y, O), out_axes=[N]), out_axes=()).named("loss")
    updates = []
    for p, v in pairs:
        step = v * 0.9 + ng.deriv(loss, p)
        updates += [ng.assign(v, step), ng.assign(p, p - 0.1 * step)]
    return [loss, ng.doall(updates)], (x, y)


def alone(source, arrays, constants=None, name="train"):
    """What the printed module gives in a process that has no ngraph, from arrays and constants in files."""
    script = f"""
import sys, runpy
import numpy as np
sys.modules["ngraph"] = None
space = runpy.run_path("printed.py", dict(np.load("constants.npz")))
results = space["{name}"](*[np.load(f"in{{k}}.npy") for k in range({len(arrays)})])
np.savez("out.npz", *results)
"""
    return script, arrays, constants or {}


def run_alone(tmp_path, source, arrays, constants=None, name="train"):
    script, arrays, constants = alone(source, arrays, constants, name)
    (tmp_path / "printed.py").write_text(source)
    (tmp_path / "run.py").write_text(script)
    np.savez(tmp_path / "constants.npz", **constants)
    for k, a in enumerate(arrays):
        np.save(tmp_path / f"in{k}.npy", a)
    for file in ("run.py", "printed.py"):
        done = subprocess.run([sys.executable, "-I", file], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "out.npz") as found:
        return [found[k] for k in found.files]


def test_a_training_step_runs_without_ngraph(tmp_path):
    results, parameters = perceptron()
    r = np.random.default_rng(1)
    x, y = r.normal(size=(6, 5)).astype("f"), r.integers(0, 3, 6)
    with ngt.allocate_transformer("numpy") as transformer:
        train = transformer.computation(results, *parameters, name="train")
        source = train.source
        states = [transformer.get(v) for v in train.variables]
        given = run_alone(tmp_path, source, [x, y, *states])
        loss, _ = train(x, y)
        assert given[0].tobytes() == loss.tobytes()
        written = [name for name, _ in train.program.state_out]
        by_name = {s.name: v for s, v in zip(train.program.state_in, train.variables, strict=True)}
        for name, array in zip(written, given[1:], strict=True):
            assert transformer.get(by_name[name]).tobytes() == array.tobytes(), name


def test_momentum_descent_updates_in_place():
    results, parameters = perceptron()
    with ngt.allocate_transformer("numpy") as transformer:
        train = transformer.computation(results, *parameters, name="train")
        r = np.random.default_rng(1)
        x, y = r.normal(size=(6, 5)).astype("f"), r.integers(0, 3, 6)
        train(x, y)
        before = {v: (id(a), a) for v, a in transformer.state.arrays.items()}
        train(x, y)
        assert all(id(a) == before[v][0] for v, a in transformer.state.arrays.items())
    source = train.source
    for name in ("w1", "b1", "w2", "b2"):
        assert re.search(rf"np.multiply\(v_{name}, 0.9, out=v_{name}\)", source)
        assert re.search(rf"np.subtract\({name}, \w+, out={name}\)", source)


def test_names_and_lines_are_the_users():
    results, parameters = perceptron()
    with ngt.allocate_transformer("numpy") as transformer:
        source = transformer.computation(results, *parameters, name="train").source
    assert "def train(x, y, " in source and "np.matmul(x, w1)" in source
    assert re.search(r"^    h = np\.maximum\(\w+, 0\.0\)", source, re.M)
    lines = open(__file__).read().splitlines()
    here = next(k for k, line in enumerate(lines, 1) if "h = ng.relu(" in line)
    assert f"test_source.py:{here}" in source
    assert "import ngraph" not in source and "from ngraph" not in source


def test_lengths_are_variables_named_after_their_axes(tmp_path):
    batch = ng.make_axis(name="B")
    x = ng.placeholder([batch, I]).named("x")
    with ngt.allocate_transformer("numpy") as transformer:
        run = transformer.computation([ng.mean(x, out_axes=[I]), ng.flatten(x), ng.constant(1.0, [batch])], x, name="run")
        source = run.source
    assert "B = x.shape[0]" in source
    a = np.arange(15, dtype="f").reshape(3, 5)
    mean, flat, ones = run_alone(tmp_path, source, [a], name="run")
    np.testing.assert_allclose(mean, a.mean(0))
    assert flat.tolist() == a.ravel().tolist() and ones.tolist() == [1, 1, 1]


def test_constants_stand_inline_or_by_name(tmp_path):
    x = ng.placeholder([I]).named("x")
    small, large = np.array([1.5, np.nan, -np.inf, 0.1, 2e-30], np.float32), np.arange(100, dtype=np.float64).reshape(5, 20)
    table = ng.constant(large, [I, ng.make_axis(20, name="T")]).named("table")
    with ngt.allocate_transformer("numpy") as transformer:
        run = transformer.computation([x + ng.constant(small, [I]), ng.cast(x, ng.float64) * table], x, name="run")
        source = run.source
    assert "np.array([" in source and "table: np.ndarray  # float64[5, 20], to be set" in source
    ones = np.ones(5, np.float32)
    first, second = run_alone(tmp_path, source, [ones], {"table": large}, name="run")
    assert np.array_equal(first, ones + small, equal_nan=True) and np.array_equal(second, large)


def test_helpers_come_along(tmp_path):
    x = ng.placeholder([N, I]).named("x")
    w = ng.placeholder([O, I, ng.make_axis(2, name="R")]).named("f")
    outputs = [ng.erf(x), ng.cast(x, ng.int8), ng.cumsum(x, N), ng.sort(x, N), ng.argmax(x, reduction_axes=[I]), ng.conv(x, w, {N: "R"})]
    with ngt.allocate_transformer("numpy") as transformer:
        run = transformer.computation(outputs, x, w, name="run")
        source = run.source
        r = np.random.default_rng(0)
        given = [r.normal(size=(6, 5)).astype("f"), r.normal(size=(3, 5, 2)).astype("f")]
        for a, b in zip(run_alone(tmp_path, source, given, name="run"), run(*given), strict=True):
            assert a.dtype == b.dtype and a.tobytes() == b.tobytes()
    assert "def strided(" in source and "def scatter(" not in source


def test_loops_are_functions_inside(tmp_path):
    s = SampleSource("float32")
    c, xs, k = ng.placeholder([H]).named("c"), ng.placeholder([N, H]).named("xs"), ng.placeholder([H]).named("k")
    body = s.body(lambda c, x, k: (c * k + x, c * c), [H], [H], [H])
    looped = REGISTRY["scan"].build(c, xs, k, body=body, axis=N, reverse=False, carries=1, xs=1)
    last, squares = ng.ops.state.parts(looped)
    after = c + 1  # c is read after the loop that starts with it: its memory must not be taken before
    with ngt.allocate_transformer("numpy") as transformer:
        run = transformer.computation([last, squares, after * 2], c, xs, k, name="run")
        r = np.random.default_rng(0)
        c0, x0, k0 = r.normal(size=4).astype("f"), r.normal(size=(6, 4)).astype("f"), r.normal(size=4).astype("f")
        given = run(c0, x0, k0)
        printed = run_alone(tmp_path, run.source, [c0, x0, k0], name="run")
    value, wanted = c0.astype("d"), []
    for x in x0:
        wanted.append(value * value)
        value = value * k0 + x
    for results in (given, printed):
        np.testing.assert_allclose(results[0], value, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(results[1], wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(results[2], (c0 + 1) * 2, rtol=1e-6)
    assert "    def body(" in run.source and "scan(body, " in run.source


def test_what_a_loop_was_given_is_not_overwritten():
    """A loop of no trips gives back what it was given: that memory has two names."""
    Z = ng.make_axis(name="Z")
    c, xs = ng.placeholder([H]), ng.placeholder([Z, H])
    start = c * 3
    body = SampleSource("float32").body(lambda c, x: (c + x,), [H], [H])
    last = REGISTRY["scan"].build(start, xs, body=body, axis=Z, reverse=False, carries=1, xs=1)
    with ngt.allocate_transformer("numpy") as transformer:
        run = transformer.computation([ng.exp(start + last), last], c, xs)
        given = run(np.ones(4), np.zeros((0, 4)))
    assert given[1].tolist() == [3] * 4 and np.allclose(given[0], np.exp(6))


def test_other_host_calls_are_named(tmp_path):
    seen = []
    HOST_CALLS["watch"] = lambda text, *arrays: seen.append((text, *arrays))
    try:
        x = ng.placeholder([I]).named("x")
        with ngt.allocate_transformer("numpy") as transformer:
            doubled = x * 2
            run = transformer.computation([doubled + 1, ng.ops.control.effect.build(doubled, kind="watch", text="now")], x, name="run")
            run([1, 2, 3, 4, 5])
            run([0, 0, 0, 0, 0])
        assert [t for t, _ in seen] == ["now", "now"] and seen[0][1].tolist() == [2, 4, 6, 8, 10]
        assert "watch: object  # a function of (text, *arrays), to be set" in run.source
    finally:
        del HOST_CALLS["watch"]


@pytest.mark.parametrize("name", ["for", "np", "print", "1", "", "a b/c", "erf", "x"])
def test_awkward_names(name):
    x, y = ng.placeholder([I]).named(name), ng.placeholder([I]).named(name)
    with ngt.allocate_transformer("numpy") as transformer:
        run = transformer.computation([ng.erf(x + y).named(name), (x - y).named(name)], x, y, name=name or None)
        assert run(1, 2)[1].tolist() == [-1] * 5
        compile(run.source, "source", "exec")


def test_bfloat16_prints(tmp_path):
    x = ng.placeholder([I], dtype=ng.bfloat16).named("x")
    with ngt.allocate_transformer("numpy") as transformer:
        run = transformer.computation(x * 1.1, x, name="run")
        assert "bfloat16 = ml_dtypes.bfloat16" in run.source
        space = {}
        exec(run.source, space)
        given = np.arange(5).astype(space["bfloat16"])
        assert space["run"](given)[0].tobytes() == run(given).tobytes()

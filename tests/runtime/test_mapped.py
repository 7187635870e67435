"""Initial values and constants out of files that NumPy has mapped: no copy is kept, nothing is written to them, none is trusted blindly."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import ParseError

A, B, N, R = (ng.make_axis(n, name=k) for k, n in {"A": 512, "B": 1024, "N": 4, "R": 1000}.items())
ROWS = np.array([1, 5, 999, 7])
TRANSFORMERS = ["cpu", "numpy", "direct"]


@pytest.fixture
def weights(tmp_path):
    """Two files and what is in them: weights that `cpu` packs, and a table that it reads in every call."""
    draw = np.random.default_rng(0)
    w, t = draw.standard_normal((512, 1024), np.float32), draw.standard_normal((1000, 512), np.float32)
    for name, value in {"w": w, "t": t}.items():
        np.save(tmp_path / f"{name}.npy", value)
    return tmp_path, w, t


def mapped(folder, name, mode="r"):
    return np.load(folder / f"{name}.npy", mmap_mode=mode)


def layer(transformer, folder):
    w, t = ng.variable([A, B], initial_value=mapped(folder, "w")), ng.variable([R, A], initial_value=mapped(folder, "t"))
    rows = ng.placeholder([N], dtype=ng.int64)
    return w, t, transformer.computation(ng.dot(ng.take(t, rows, R), w), rows)


def near(x, y):
    return np.allclose(x, y, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_variables_begin_as_the_file_says_and_never_write_it(name, weights):
    folder, w0, t0 = weights
    transformer = ngt.allocate_transformer(name)
    w, t, run = layer(transformer, folder)
    for _ in range(3):
        assert near(run(ROWS), t0[ROWS] @ w0)
    double = transformer.computation(ng.assign(w, w * 2))
    double(), double()
    assert near(run(ROWS), t0[ROWS] @ w0 * 4)
    assert np.array_equal(transformer.get(w), w0 * 4) and np.array_equal(transformer.get(t), t0)
    assert np.array_equal(mapped(folder, "w"), w0)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_constants(name, weights):
    folder, w0, t0 = weights
    x = ng.placeholder([N, A])
    run = ngt.allocate_transformer(name).computation(ng.dot(x, ng.constant(mapped(folder, "w"), [A, B])), x)
    assert near(run(t0[:4]), t0[:4] @ w0)


def test_a_part_of_a_file_in_another_order(weights):
    folder, w0, _ = weights
    half = ng.make_axis(256, name="half")
    for part, axes in ((mapped(folder, "w")[256:], [half, B]), (mapped(folder, "w")[:256].T, [B, half])):
        x = ng.placeholder([half])
        run = ngt.allocate_transformer("cpu").computation(ng.dot(x, ng.variable(axes, initial_value=part)), x)
        ones = np.ones(256, np.float32)
        assert near(run(ones), ones @ (w0[256:] if axes[0] is half else w0[:256]))


def test_changes_to_a_private_map_are_kept(weights):
    folder, w0, _ = weights
    private = mapped(folder, "w", "c")
    private += 1
    private.flags.writeable = False
    x = ng.placeholder([A])
    run = ngt.allocate_transformer("cpu").computation(ng.dot(x, ng.variable([A, B], initial_value=private)), x)
    ones = np.ones(512, np.float32)
    assert near(run(ones), ones @ (w0 + 1)) and near(private, w0 + 1)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_file_that_became_shorter_is_an_error(name, weights):
    folder, *_ = weights
    _, _, run = layer(ngt.allocate_transformer(name), folder)
    os.truncate(folder / "w.npy", 4096)
    with pytest.raises(ParseError, match=r"w\.npy was mapped, and has become shorter since") as error:
        run(ROWS)
    assert "give a copy of the array" in str(error.value)


def test_calls_no_longer_need_the_file(weights):
    folder, w0, t0 = weights
    transformer = ngt.allocate_transformer("cpu")
    w, t, run = layer(transformer, folder)
    run(ROWS)
    for name in "wt":
        os.truncate(folder / f"{name}.npy", 0)
    assert near(run(ROWS), t0[ROWS] @ w0)
    for v in (w, t):
        with pytest.raises(ParseError, match="has become shorter"):
            transformer.get(v)
    transformer.set(w, w0 * 2)
    assert near(run(ROWS), t0[ROWS] @ w0 * 2) and np.array_equal(transformer.get(w), w0 * 2)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the peak of a process's memory is read from /proc")
def test_memory_holds_one_copy(tmp_path):
    script = """
        import sys
        import numpy as np
        import ngraph as ng, ngraph.transformers as ngt

        def peak():
            return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024

        axes = [ng.make_axis(4096, name=f"A{k}") for k in range(5)]
        x = y = ng.placeholder(axes[:1])
        for k in range(4):  # 64 MiB each
            np.save(f"{sys.argv[1]}/{k}.npy", np.full((4096, 4096), 1 / 4096, np.float32))
            value = np.load(f"{sys.argv[1]}/{k}.npy", mmap_mode="r")
            y = ng.dot(y, ng.variable(axes[k : k + 2], initial_value=value))
        run = ngt.make_transformer().computation(y, x)
        before = peak()
        assert np.allclose(run(np.ones(4096)), 1)
        print(peak() - before)
    """
    env = {**os.environ, "NGRAPH_TRANSFORMER": "cpu"}
    made = subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], capture_output=True, text=True, env=env)
    assert made.returncode == 0, made.stderr
    assert float(made.stdout) < 4 * 64 + 64 + 48  # packed, a portion of the files, what compiling takes; without files it would be 512

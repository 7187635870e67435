"""`ngraph explain --compare`: each kernel by its machine code and as its plan says; a wrong one is shown with the user's lines."""

import json

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.codegen import nest
from ngraph.errors import ArgumentError, NgraphError, UnsupportedError
from ngraph.tools import main
from ngraph.transformers.executable.compared import MachineRun, differing

PROGRAM = """
import ngraph as ng
import ngraph.transformers as ngt

N, C, K = ng.make_axis(None, name="N"), ng.make_axis(37, name="C"), ng.make_axis(5, name="K")
x = ng.placeholder([N, C]).named("x")
w = ng.variable([C, K], initial_value=0.5).named("w")
ordered = ng.sort(x, C)
least = ng.max(-ng.exp(ordered), out_axes=[N])
y = ng.dot(ng.tanh(ordered), w) + least
train = ngt.make_transformer_factory("cpu")().computation([y, ng.assign(w, w * 2)], x, name="train")
walked = ngt.make_transformer_factory("direct")().computation(y, x, name="walked")
"""
LINE = 9  # of `least`


@pytest.fixture
def ngraph(tmp_path, monkeypatch, capsys):
    (tmp_path / "prog.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        with ng.config(cache=str(tmp_path / "cache")):
            code = main.main(arguments)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def wrong(monkeypatch):
    """Maxima that begin at 0, and not at the lowest number."""
    right = nest.identity
    monkeypatch.setattr(nest, "identity", lambda kind, dtype, lanes: right("add" if kind == "max" else kind, dtype, lanes))


def test_kernels_that_agree_are_counted(ngraph):
    lines = ngraph("explain", "prog.py:train", "--after", "plan")[1].splitlines()
    count = sum(line.startswith(("kernel", "routine")) for line in lines)  # a copy of w among them, on some processors
    code, out, _ = ngraph("explain", "prog.py:train", "--compare")
    assert count >= 3 and code == 0 and out == f"train: {count} kernels compared with the plan: no differences\n"
    assert json.loads(ngraph("explain", "prog.py:train", "--compare", "--json")[1])["kernels"] == count


def test_the_first_wrong_kernel_is_shown_with_its_loops_and_the_users_line(ngraph, wrong):
    code, out, err = ngraph("explain", "prog.py:train", "--compare")
    assert code == 1 and out == ""
    assert "kernel 3 of train" in err and "does not do what its plan says" in err
    assert " elements of a result : float32 differ:\n" in err and "]  machine code " in err and ", plan -" in err
    assert "combine max(" in err
    assert f"prog.py:{LINE}  least = ng.max(-ng.exp(ordered), out_axes=[N])" in err


def test_inputs_come_from_a_file(ngraph, tmp_path):
    x = np.ones((2, 37), np.float32)
    np.savez(tmp_path / "in.npz", x=x)
    assert ngraph("explain", "prog.py:train", "--compare", "--inputs", "in.npz")[0] == 0
    np.savez(tmp_path / "other.npz", z=x)
    code, _, err = ngraph("explain", "prog.py:train", "--compare", "--inputs", "other.npz")
    assert code == 2 and "other.npz has z, and train takes x" in err
    np.savez(tmp_path / "more.npz", x=x, z=x)
    code, _, err = ngraph("explain", "prog.py:train", "--compare", "--inputs", "more.npz")
    assert code == 2 and "more.npz has x, z, and train takes x" in err
    np.savez(tmp_path / "short.npz", x=x[:, 1:])
    code, _, err = ngraph("explain", "prog.py:train", "--compare", "--inputs", "short.npz")
    assert code == 1 and "axis C of placeholder x has length 37, and got 36" in err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--compare", "--list"], "--list shows stages, and --compare shows kernels\n  fix: leave out --list"),
        (["--compare", "-o", "x.txt"], "-o shows stages, and --compare shows kernels\n  fix: leave out -o"),
        (["--seed", "0"], "--seed is for --compare\n  fix: give --compare, or leave out --seed"),
        (["--compare", "--seed", "-1"], "argument --seed: -1 is below 0"),
        (["--compare", "--inputs", "nope.npz"], "there is no file nope.npz"),
        (["--compare", "--inputs", "prog.py"], "prog.py is not a .npz file of plain arrays"),
        (["--compare", "--inputs", "prog.py", "--seed", "3"], "--seed is for random inputs, and --inputs brings others"),
    ],
)
def test_options_that_would_do_nothing_are_refused(ngraph, options, says):
    code, out, err = ngraph("explain", "prog.py:train", *options)
    assert code == 2 and out == "" and says in err


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("nope.py:f", "there is no file nope.py"),
        ("prog.py:nope", "prog.py defines no nope"),
        ("prog.py:ng", "ng in prog.py is a module, no computation"),
        ("model.onnx:f", "model.onnx is a model, no program"),
        (".", ". is a folder, and --compare runs a program"),
    ],
)
def test_what_is_no_computation_is_refused(ngraph, tmp_path, target, says):
    (tmp_path / "model.onnx").write_bytes(b"")
    code, out, err = ngraph("explain", target, "--compare")
    assert code == 2 and out == "" and says in err


def test_what_is_not_compiled_cannot_be_compared(ngraph):
    code, _, err = ngraph("explain", "prog.py:walked", "--compare")
    assert code == 1 and "was not compiled to machine code" in err


def computed(results, *holes):
    return ngt.make_transformer_factory("cpu")().computation(results, *holes)


def test_state_stays_as_it_is():
    n = ng.make_axis(70, name="N")
    x, w = ng.placeholder([n]), ng.variable([n], initial_value=1)
    f = computed([ng.sum(w * x, out_axes=()), ng.assign(w, w + x)], x)
    ones = np.ones(70, np.float32)
    assert [f.compare(ones) > 0 for _ in range(2)] == [True, True]
    assert f(ones)[0] == 70


def test_loops_are_compared_trip_by_trip(tmp_path, wrong):
    t, n = ng.make_axis(4, name="T"), ng.make_axis(19, name="N")
    x = ng.placeholder([t, n])

    def step(carry, now):
        return carry - ng.max(-ng.exp(now), out_axes=()), carry

    last, _ = ng.scan(step, ng.constant(np.zeros(19, np.float32), [n]), x, t)
    with ng.config(cache=str(tmp_path)), pytest.raises(NgraphError, match="max"):
        computed(last, x).compare(np.ones((4, 19), np.float32))


def test_bytes_beside_the_results_are_seen(monkeypatch):
    n = ng.make_axis(33, name="N")
    x = ng.placeholder([n])
    f, right = computed(ng.exp(x), x), MachineRun.run

    def beside(self, step, arrays):
        right(self, step, arrays)
        for b in step.targets:
            self.arrays[b].base.view(np.uint8).reshape(-1)[-200:-190] = 1 if self.arrays[b].base is not None else 0

    monkeypatch.setattr(MachineRun, "run", beside)
    with pytest.raises(NgraphError, match="it writes 10 bytes that belong to none of its results"):
        f.compare(np.ones(33, np.float32))


def test_a_maximum_and_what_is_compared_to_it_are_of_one_make():
    """A gradient that computes again, elsewhere, what it compares with a maximum: to the bit, or nothing is the largest."""
    m, n, k = (ng.make_axis(length, name=name) for length, name in ((6, "M"), (90, "P"), (50, "K")))
    x, w = ng.placeholder([m, n]), ng.placeholder([n, k])
    y = ng.max(ng.exp(ng.dot(x, w) * 0.1) * 3 + 1, out_axes=[m])
    f = computed([y, ng.deriv(ng.sum(ng.sort(y, m) * y, out_axes=()), w)], x, w)
    draw = np.random.default_rng(0)
    assert f.compare(*(draw.normal(size=[a.length for a in h.axes]).astype(np.float32) for h in (x, w))) > 2


def test_arguments_have_to_fit():
    x = ng.placeholder([ng.make_axis(3, name="N")])
    with pytest.raises(ArgumentError, match="takes 1 argument, not 0"):
        computed(ng.exp(x), x).compare()
    with pytest.raises(UnsupportedError, match="make it on transformer cpu"):
        ngt.make_transformer_factory("numpy")().computation(ng.exp(x), x).compare(np.ones(3))


@pytest.mark.parametrize(
    ("got", "wanted", "wrong"),
    [
        (np.array([1.0, 2.0], np.float32), np.array([1.0, 2.0001], np.float32), [False, False]),
        (np.array([1.0, 2.0], np.float32), np.array([1.0, 2.001], np.float32), [False, True]),
        (np.array([1.0, 2.0]), np.array([1.0, 2.0001]), [False, True]),
        (np.array([np.nan, np.inf, -0.0]), np.array([np.nan, np.inf, 0.0]), [False, False, False]),
        (np.array([np.nan, np.inf]), np.array([0.0, -np.inf]), [True, True]),
        (np.array([100000, 7]), np.array([100001, 7]), [True, False]),
        (np.array([True]), np.array([False]), [True]),
    ],
)
def test_what_counts_as_a_difference(got, wanted, wrong):
    assert differing(got, wanted).tolist() == wrong

"""Calls of one model with lengths that change: the bits of a call, what it compiles, what it runs in Python, memory, threads."""

import gc
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest
from growth import needs_statm, printed
from onnx import TensorProto, helper

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.runtime.computation import Computation
from ngraph.transformers.executable import table
from ngraph.transformers.executable.versions import VersionedExecutable
from tests.together import together

C, H = 24, 40


def weights(*axes):
    return ng.constant(np.random.default_rng(len(axes)).standard_normal([a.length for a in axes]).astype("f") / 5, list(axes))


def attention():
    """Texts of any number and length: attention, a normalisation, two products."""
    n, t, c, d, h = ng.make_axis(name="N"), ng.make_axis(name="T"), *(ng.make_axis(m, name=a) for m, a in ((C, "C"), (C, "D"), (H, "H")))
    x = ng.placeholder([n, t, c])
    q, k, v = (ng.contract(x, weights(c, d), over=[c]) * s for s in (1.0, 0.5, 2.0))
    y = ng.attention(q, k, v, features=d, queries=t, causal=True)
    y = y - ng.mean(y, reduction_axes=d)
    y = y / ng.sqrt(ng.mean(ng.square(y), reduction_axes=d) + 1e-5)
    y = ng.contract(ng.relu(ng.contract(y, weights(d, h), over=[d])), weights(h, c), over=[h])
    return [y, ng.sum(y, out_axes=[c]), ng.max(y, out_axes=[n])], x, lambda draw: (draw.integers(1, 9), draw.integers(0, 70), C)


def pictures():
    """Pictures of any number and size: a convolution, a pool, the mean of each."""
    n, h, w = (ng.make_axis(name=a) for a in "NHW")
    c, k, r, s = (ng.make_axis(m, name=a) for m, a in ((3, "C"), (20, "K"), (3, "R"), (3, "S")))
    x = ng.placeholder([n, c, h, w])
    y = ng.relu(ng.conv(x, weights(k, c, r, s), {h: r, w: s}, padding=1))
    z = ng.max_pool(y, {y.axes["H"]: 2, y.axes["W"]: 2}, stride=2)
    return [z, ng.mean(z, out_axes=[n, k])], x, lambda draw: (draw.integers(1, 4), 3, draw.integers(2, 40), draw.integers(2, 40))


def recurrence():
    """Texts of any number and length: a scan, and the gradient of its sum."""
    n, t, c, d = ng.make_axis(name="N"), ng.make_axis(name="T"), ng.make_axis(C, name="C"), ng.make_axis(C, name="D")
    x, w = ng.placeholder([t, n, c]), weights(d, c)

    def step(state, x):
        new = ng.tanh(x + ng.contract(ng.cast_axes(state, [n, d]), w, over=[d]))
        return ng.axes_with_order(new, [n, c]), new

    last, every = ng.scan(step, ng.constant(0.0, [n, c]), x, t)
    return [last, every, ng.deriv(ng.sum(every * every, out_axes=()), x)], x, lambda draw: (draw.integers(0, 50), draw.integers(1, 20), C)


MODELS = {"attention": attention, "pictures": pictures, "recurrence": recurrence}


def inputs(shape, count, seed=0):
    draw = np.random.default_rng(seed)
    return [draw.standard_normal(shape(draw)).astype("f") for _ in range(count)]


def bits(results):
    return [np.asarray(r).tobytes() for r in results]


@pytest.mark.parametrize("name", MODELS)
def test_bits_of_an_input_depend_on_nothing_but_it(name, monkeypatch):
    """Not on the calls before, nor on the number of threads; and they are, up to rounding, those of code for its lengths."""
    results, x, shape = MODELS[name]()
    given, wanted = inputs(shape, 24), {}
    monkeypatch.setattr(table, "SHARE", 1e-12)  # whatever can be shared out is
    for threads in (1, 2, 3):
        for order in (range(24), range(23, -1, -1), np.random.default_rng(threads).permutation(24)):
            with ng.config(num_threads=threads), ngt.allocate_transformer("cpu") as t:
                f = t.computation(results, x)
                for k in order:
                    got = bits(f(given[k]))
                    assert wanted.setdefault(k, got) == got, f"input {k}, {given[k].shape}, {threads} threads"
                assert len(f.native.codes) == 1
    with ng.config(lengths="first"):
        for k in (3, 11, 19):
            with ngt.allocate_transformer("cpu") as t:
                f = t.computation(results, x)
                for got, one in zip(f(given[k]), wanted[k], strict=True):
                    assert None not in next(iter(f.native.codes))
                    got = np.asarray(got)
                    other = np.frombuffer(one, got.dtype).reshape(got.shape)
                    np.testing.assert_allclose(other, got, rtol=1e-4, atol=2e-5 * max(1, np.abs(got).max(initial=0)))


def compilations(monkeypatch):
    """A list that grows by the key of each version that is compiled or found."""
    made, compile_ = [], VersionedExecutable.code

    def counted(self, key):
        if key not in self.codes:
            made.append(key)
        return compile_(self, key)

    monkeypatch.setattr(VersionedExecutable, "code", counted)
    return made


@pytest.mark.parametrize("dim", ["n", -1, None], ids=["symbol", "-1", "nothing"])
def test_a_file_with_open_lengths_compiles_once(dim, monkeypatch):
    """An axis that has a symbol, -1 or nothing for its length is open in the first compilation; fifty other lengths compile nothing."""
    made = compilations(monkeypatch)
    value = np.random.default_rng(0).standard_normal((5, 7)).astype("f")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Softmax", ["y"], ["z"], axis=1)]
    tensor = helper.make_tensor("w", TensorProto.FLOAT, (5, 7), value.ravel())
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", ["n", 5]), ("z", None))]
    graph = helper.make_graph(nodes, "rows", ends[:1], ends[1:], [tensor])
    first = graph.input[0].type.tensor_type.shape.dim[0]
    first.Clear()
    if dim is not None:
        setattr(first, "dim_param" if isinstance(dim, str) else "dim_value", dim)
    model = ng.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    for n in (3, *range(51)):
        x = np.random.default_rng(n).standard_normal((n, 5)).astype("f")
        e = np.exp(x @ value)
        np.testing.assert_allclose(model(x), e / e.sum(1, keepdims=True), rtol=1e-4, atol=1e-6)
    assert made == [(None,)]


def test_new_lengths_run_no_python_for_each_kernel():
    """A call of new lengths enters as many Python functions with twenty kernels as with two."""
    entered = {}
    for stages in (1, 10):
        n, m = ng.make_axis(name="N"), ng.make_axis(name="M")
        x = ng.placeholder([n, m])
        y = x
        for k in range(stages):
            y = ng.cumsum(ng.tanh(y * 0.5 + k), y.axes[k % 2])
        with ngt.allocate_transformer("cpu") as t:
            f = t.computation(y, x)
            for k in range(5):
                f(np.ones((k + 1, k + 2), "f"))
            assert f.plan.count("kernel") >= stages
            names = entered[stages] = []
            sys.setprofile(lambda frame, event, _, names=names: names.append(frame.f_code.co_name) if event == "call" else None)
            try:
                f(np.ones((41, 43), "f"))
            finally:
                sys.setprofile(None)
    assert sorted(entered[1]) == sorted(entered[10]) and 0 < len(entered[1]) < 150, entered


GROWTH = """
import numpy as np
import ngraph as ng
import ngraph.transformers as ngt

draw = np.random.default_rng(0)
n, m, c, k = ng.make_axis(name="N"), ng.make_axis(name="M"), ng.make_axis(8, name="C"), ng.make_axis(16, name="K")
x, w = ng.placeholder([n, m, c]), ng.constant(draw.standard_normal((8, 16)).astype("f"), [c, k])
y = ng.softmax(ng.contract(x, w, over=[c]), normalization_axes=m)
with ngt.allocate_transformer("cpu") as t:
    f, most = t.computation([y, ng.sum(y, out_axes=[n])], x), np.ones((40, 60, 8), "f")
    shapes = np.stack([draw.integers(0, 41, 10_500), draw.integers(0, 61, 10_500)], 1).tolist()
    f(most)
    for rows, columns in shapes[:500]:
        f(most[:rows, :columns])
    before = resident()
    for rows, columns in shapes[500:]:
        f(most[:rows, :columns])
    print(resident() - before, len(f.native.codes), len(f.native.bound))
"""


@needs_statm
def test_ten_thousand_calls_of_random_lengths_keep_no_memory():
    growth, codes, bound = printed(GROWTH)
    assert growth < 1 << 20 and codes == 1 and bound <= 16


@pytest.mark.parametrize("name", MODELS)
def test_eight_threads_of_unlike_lengths_share_a_model(name):
    """Also at the start, where each call may be the one that makes the way past Python."""
    results, x, shape = MODELS[name]()
    given, wrong = inputs(shape, 32, seed=5), []
    with ngt.allocate_transformer("cpu") as t:
        f = t.computation(results, x)
        wanted = [bits(f(a)) for a in given]
    for turn in range(4):
        with ngt.allocate_transformer("cpu") as t:
            f = t.computation(results, x)

            def calls(seed, f=f):
                for k in np.random.default_rng(seed).permutation(32):
                    if bits(f(given[k])) != wanted[k]:
                        wrong.append((seed, k, given[k].shape))

            together(*[partial(calls, 8 * turn + k) for k in range(8)])
            assert not wrong and len(f.native.codes) == 1


def deep():
    """A computation of many rows that takes a while, and two inputs."""
    n, m = ng.make_axis(name="N"), ng.make_axis(512, name="M")
    x, w = ng.placeholder([n, m]), ng.constant(np.eye(512, dtype="f")[::-1], [m, ng.make_axis(512, name="K")])
    y = x
    for _ in range(8):
        y = ng.tanh(ng.contract(ng.cast_axes(y, [n, m]), w, over=[m])) + 1
    return y, x, *(np.random.default_rng(0).standard_normal((rows, 512)).astype("f") for rows in (4000, 30))


@pytest.mark.parametrize("change", ["calls", "close", "compile"])
def test_what_others_do_leaves_a_call_alone(change):
    """A call is under way, outside Python, while another thread makes slow and fast calls, closes the computation or replaces its code."""
    y, x, large, small = deep()
    with ngt.allocate_transformer("cpu") as t:
        for _ in range(3):
            f = t.computation(y, x)
            want = [bits([f(a)]) for a in (large, small) * 4][-2:]
            got, under_way = {}, threading.Event()

            def call(f=f, got=got, under_way=under_way):
                under_way.set()
                got["large"] = bits([f(large)])

            def other(f=f, got=got, under_way=under_way):
                under_way.wait()
                time.sleep(0.01)
                if change == "calls":
                    got["small"] = [bits([f(a)]) for a in (small.tolist(), small, small)]
                else:
                    f.close() if change == "close" else f.compile(N=30)
                    gc.collect()

            together(call, other)
            assert got.pop("large") == want[0]
            assert not got or got == {"small": [want[1]] * 3}


def test_the_first_call_leaves_alone_those_that_come_before_it_ends(monkeypatch):
    """The way past Python is there before the call that made it has ended; another thread takes it, and is not disturbed."""
    y, x, large, small = deep()
    with ngt.allocate_transformer("cpu") as t:
        f = t.computation(y, x)
        want = [bits([f(a)]) for a in (large, small)]
    hasten, got = Computation._hasten, []
    other = threading.Thread(target=lambda: got.append(bits([f(large)])))

    def hastened(self, took=None):
        hasten(self, took)
        if self._fast is not None and other.ident is None:
            other.start()
            time.sleep(0.02)

    monkeypatch.setattr(Computation, "_hasten", hastened)
    with ngt.allocate_transformer("cpu") as t:
        f = t.computation(y, x)
        own = [bits([f(small)]) for _ in range(8)]
        other.join()
    assert own == want[1:] * 8 and got == want[:1]

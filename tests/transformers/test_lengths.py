"""Lengths that change with every call: one compilation, equal bits whatever came before, memory that does not grow, no Python by kernel."""

import os
import random
from functools import partial

import numpy as np
import pytest
from growth import needs_statm, printed

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.transformers.executable.frame import SharedPlan
from tests.together import together

C = ng.make_axis(6, name="C")
DRAW = np.random.default_rng(0)
TABLE = DRAW.standard_normal((6, 6)).astype("f")


def blocks(depth=3):
    """Convolutions, norms over the open axis, a product, a loop along the open axis: kernels that cannot be one."""
    n = ng.make_axis(name="N")
    x = ng.placeholder([n, C])
    y, d = x, ng.make_axis(6, name="D")
    for _ in range(depth):
        y = ng.contract(y, ng.constant(TABLE, [C, d]), over=[C])
        y = ng.cast_axes(ng.tanh(y - ng.mean(y, reduction_axes=[n])), [n, C])
    zero = ng.constant(0.0, [C])
    _, y = ng.scan(lambda carry, row: (carry * 0.5 + row, carry + row), zero, y, n)
    return y, x


def by_numpy(x, depth=3):
    for _ in range(depth):
        x = x @ TABLE
        x = np.tanh(x - x.mean(0, keepdims=True))
    carry, found = np.zeros(6), []
    for row in x:
        found.append(carry + row)
        carry = carry * 0.5 + row
    return np.array(found).reshape(-1, 6)


def value(length):
    return np.random.default_rng(length).standard_normal((length, 6)).astype("f")


@pytest.fixture
def call():
    with ngt.allocate_transformer("cpu") as cpu:
        yield cpu.computation(*blocks())


def test_fifty_lengths_are_one_compilation(call):
    for length in random.Random(0).sample(range(1, 400), 50):
        np.testing.assert_allclose(call(value(length)), by_numpy(value(length).astype("d")), rtol=2e-4, atol=2e-5)
    assert list(call.native.codes) == [(None,)]


def test_bits_do_not_depend_on_traffic(call):
    """Not on the order of calls, on repetition, on a version for other lengths, or on the number of threads."""
    lengths = [*range(1, 40), 130, 257]
    first = {n: call(value(n)) for n in lengths}
    for seed in range(2):
        for n in random.Random(seed).choices(lengths, k=150):
            assert call(value(n)).tobytes() == first[n].tobytes()
    for threads in (1, 2):
        with ng.config(num_threads=threads), ngt.allocate_transformer("cpu") as cpu:
            fresh = cpu.computation(*blocks())
            for n in reversed(lengths):
                for _ in range(70 if n == 5 else 1):
                    assert fresh(value(n)).tobytes() == first[n].tobytes()


GROWTH = """
import random, sys
sys.path.insert(0, FOLDER)
from test_lengths import blocks, ngt, value

with ngt.allocate_transformer("cpu") as cpu:
    call, draw = cpu.computation(*blocks()), random.Random(0)
    values = {n: value(n) for n in range(1, 300)}
    for n in values:
        call(values[n])
    before = resident()
    for _ in range(10_000):
        call(values[draw.randrange(1, 300)])
    print(resident() - before, len(call.native.bound))
"""


@needs_statm
def test_memory_does_not_grow():
    growth, bound = printed(GROWTH.replace("FOLDER", repr(os.path.dirname(__file__))))
    assert growth < 1 << 20 and bound <= 16


def test_threads_with_unlike_lengths_share_one(call):
    expected = {n: call(value(n)).tobytes() for n in range(1, 60)}
    wrong = []

    def work(seed):
        draw = random.Random(seed)
        for _ in range(60):
            n = draw.randrange(1, 60)
            if call(value(n)).tobytes() != expected[n]:
                wrong.append(n)

    together(*[partial(work, k) for k in range(8)])
    assert not wrong and list(call.native.codes) == [(None,)]


def test_new_lengths_run_no_python_for_each_kernel(call, monkeypatch):
    """After the first calls, all that is instantiated by length is one object."""
    from ngraph.transformers.executable import frame, table

    for n in (5, 9, 300):
        call(value(n))
    made = []
    monkeypatch.setattr(frame.ActivationRecord, "__init__", lambda *_: made.append("record"))
    monkeypatch.setattr(table.Table, "native", lambda *_: made.append("kernel"))
    for n in (6, 31, 299, 2):
        np.testing.assert_allclose(call(value(n)), by_numpy(value(n).astype("d")), rtol=2e-4, atol=2e-5)
    assert not made


def test_weights_are_packed_once_for_all_lengths(monkeypatch):
    n, d = ng.make_axis(name="N"), ng.make_axis(64, name="D")
    e = ng.make_axis(64, name="E")
    w = ng.variable([d, e], initial_value=DRAW.standard_normal((64, 64)).astype("f"))
    x = ng.placeholder([n, d])
    with ngt.allocate_transformer("cpu") as cpu:
        f = cpu.computation(ng.contract(x, w, over=[d]), x)
        for length in (3, 50, 7, 200):
            a = np.random.default_rng(length).standard_normal((length, 64)).astype("f")
            np.testing.assert_allclose(f(a), a @ cpu.state.arrays[w], rtol=1e-4, atol=1e-4)
        kept = {b.kept.address for b in f.native.bound.values()}
        assert f.versions == {"N open": 4} and len(kept) == 1


def test_the_program_may_ask_for_a_version(call):
    call(value(4))
    call.compile(N=7)
    assert list(call.native.codes) == [(None,), (7,)]
    np.testing.assert_allclose(call(value(7)), by_numpy(value(7).astype("d")), rtol=2e-4, atol=2e-5)


def test_a_length_that_keeps_coming_makes_no_version(call):
    first = call(value(9)).tobytes()
    assert all(call(value(9)).tobytes() == first for _ in range(300))
    assert list(call.native.codes) == [(None,)] and call.versions == {"N open": 301}


def test_lengths_zero_and_one(call):
    assert call(np.zeros((0, 6), "f")).shape == (0, 6)
    for n in (1, 2, 0, 3):
        found = call(value(n))
        np.testing.assert_allclose(found, by_numpy(value(n).astype("d")) if n else found, rtol=2e-4, atol=2e-5)


def test_debug_says_which_version_is_made_and_why(capsys):
    with ng.config(debug=1), ngt.allocate_transformer("cpu") as cpu:
        f = cpu.computation(*blocks(1), name="f")
        f(value(3))
        f(value(4))
        f.compile(N=8)
        assert f.versions == {"N open": 2, "N=8": 0}
        assert f.profile(value(8), calls=2).versions == (("N open", 2), ("N=8", 3))
    said = [line for line in capsys.readouterr().err.splitlines() if "version" in line]
    assert said == ["f: version 1 (N open): code for all lengths", "f: version 2 (N=8): the program asked for it"]


def test_packed_weights_are_shared_by_all_lengths(monkeypatch):
    """Though the same program computes a value of open length from constants alone: positions, checked and looked up in a table."""
    packed, true = [], SharedPlan.portions
    monkeypatch.setattr(SharedPlan, "portions", lambda self, arrays: packed.append(self) or true(self, arrays))
    n, w, h = ng.make_axis(name="N"), ng.make_axis(256, name="W"), ng.make_axis(320, name="H")
    m, v = ng.make_axis(512, name="M"), ng.make_axis(40, name="V")
    weights, table = DRAW.standard_normal((256, 320)).astype("f"), DRAW.standard_normal((40, 256)).astype("f")
    words = (np.arange(512) * 7 % 40).astype("i4")
    x = ng.placeholder([n, w])
    places = ng.take(ng.constant(words, [m]), ng.iota(n), axis=m)
    rows = ng.take(ng.constant(table, [v, w]), places, axis=v, mode="raise")
    y = ng.contract(x + ng.exp(ng.sin(rows)), ng.constant(weights, [w, h]), over=[w])
    with ngt.allocate_transformer("cpu") as cpu:
        f = cpu.computation(y, x)
        for length in (3, 1, 40, 7, 128, 2, 41):
            given = DRAW.standard_normal((length, 256)).astype("f")
            want = (given + np.exp(np.sin(table[words[:length]]))) @ weights
            np.testing.assert_allclose(f(given), want, rtol=2e-4, atol=2e-3)
        assert len(packed) == 1 and packed[0].code.once

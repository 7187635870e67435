"""Random numbers against the published known answers, and against what a distribution must have."""

import numpy as np
import pytest

import ngraph as ng
import ngraph.ops.random as ops
from ngraph.errors import AxisError, DTypeError
from ngraph.op_graph.text import dumps, loads
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower


@pytest.mark.parametrize(
    "counter,key,words",
    [  # Random123's kat_vectors for philox4x32 with 10 rounds
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0), "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_known_answers(counter, key, words):
    assert " ".join(f"{int(w):08x}" for w in ops.philox(counter, key)) == words


def one_block(counter, key):
    """Philox 4x32-10 in Python's own integers, written from the paper's figure."""
    c, (k0, k1) = list(counter), key
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k0, b % 2**32, (a >> 32) ^ c[3] ^ k1, a % 2**32]
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c


def test_bits_follow_seed_step_stream_index_and_trips():
    A, B = ng.make_axis(3, name="A"), ng.make_axis(7, name="B")
    state = ng.placeholder(ops.rng.axes, dtype="uint64")
    trips = [ng.placeholder([], dtype="int32") for _ in range(2)]
    made = ops.random_bits.build(state, *trips, stream=12, axes=ng.make_axes([A, B]))
    seed, step = 0x0123456789ABCDEF, 2**32 + 5
    (got,) = interpret(lower([made], [state, *trips]).program, [np.array([seed, step], np.uint64), np.int32(4), np.int32(9)])[0]
    trip = 0
    for index in (4, 9):
        trip = (trip * 0x9E3779B1 + index + 1) % 2**32
    wanted = [one_block((i // 4, 5, 12, trip), (seed % 2**32, seed >> 32))[i % 4] for i in range(21)]
    np.testing.assert_array_equal(got.ravel(), np.array(wanted, np.uint32))


def draw(*results, seed=1, step=0):
    return interpret(lower(results).program, [], {"rng": np.array([seed, step], np.uint64)})[0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_distributions(dtype):
    N = ng.make_axis(40_000, name="N")
    drawn = draw(ng.uniform([N], dtype=dtype), ng.uniform([N], -3.0, 5.0, dtype=dtype), ng.normal([N], 2.0, 3.0, dtype=dtype))
    u, v, z = (a.astype(np.float64) for a in drawn)
    assert u.min() >= 0 and u.max() < 1 and abs(u.mean() - 0.5) < 0.01 and abs(u.var() - 1 / 12) < 0.005
    assert v.min() >= -3 and v.max() <= 5 and abs(v.mean() - 1) < 0.05
    assert abs(z.mean() - 2) < 0.06 and abs(z.std() - 3) < 0.06 and np.isfinite(z).all()
    assert abs(np.mean(np.abs(z - 2) < 3) - 0.6827) < 0.01  # within one standard deviation
    assert abs(np.corrcoef(u, z)[0, 1]) < 0.02


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("low,high", [(1.0, 2.0), (100.0, 101.0), (5.0, 5.0), (0.0, 0.1)])
def test_uniform_numbers_lie_below_their_end(low, high, dtype):
    (u,) = draw(ng.uniform("N=20000", low, high, dtype=dtype))
    least = float(u.dtype.type(low))
    assert (u.astype(float) >= least).all() and ((u.astype(float) < high).all() or least >= high and (u.astype(float) == least).all())


def test_streams_do_not_depend_on_traversal_results_or_scope():
    N = ng.make_axis(8, name="N")
    a = ng.uniform([N])
    with ng.name_scope("inner"):
        b = ng.uniform([N])
    first, second = draw(a, b), draw(b, a)
    np.testing.assert_array_equal(first[0], second[1])
    np.testing.assert_array_equal(first[1], second[0])
    np.testing.assert_array_equal(draw(b)[0], first[1])
    assert not np.array_equal(*first)
    assert not np.array_equal(draw(a, step=1)[0], first[0]) and not np.array_equal(draw(a, seed=2)[0], first[0])


def test_saved_streams_stay_and_are_not_given_again():
    N = ng.make_axis(8, name="N")
    a = ng.normal([N])
    (again,) = loads(dumps([a]))
    np.testing.assert_array_equal(draw(a)[0], draw(again)[0])
    attrs = ng.uniform([N]).attrs
    loaded = [attrs["stream"] + 4 * k for k in (1, 2, 5)] + [2**32 - 4]
    for stream in loaded:
        ops.uniform_record.build(ops.rng, **{**attrs, "stream": stream})  # as loading does
    made = [ng.uniform([N]).attrs["stream"] for _ in range(8)]
    assert len({*made, *loaded, attrs["stream"]}) == 8 + 4 + 1 and all(stream % 4 == 0 for stream in made)


def test_no_derivative_flows():
    N = ng.make_axis(4, name="N")
    x = ng.placeholder([N])
    y = ng.sum(x * ng.uniform(x), out_axes=())
    program = lower([ng.deriv(y, x), ng.deriv(ng.sum(ng.uniform(x), out_axes=()), x)], [x]).program
    slopes, none = interpret(program, [np.ones(4, np.float32)], {"rng": np.array([1, 0], np.uint64)})[0]
    assert (slopes > 0).all() and not none.any()


def test_what_it_refuses():
    N = ng.make_axis(4, name="N")
    with pytest.raises(DTypeError):
        ng.uniform([N], dtype="int32")
    with pytest.raises(AxisError):
        ng.uniform()
    with pytest.raises(AxisError):
        ng.normal([N], axes=[N])

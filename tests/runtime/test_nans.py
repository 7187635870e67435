"""`ng.config(nans="raise")`: the op that makes the first nan or infinity is named, with its line and what went into it."""

import os
import subprocess
import sys

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import NanError

N, M = ng.make_axis(4, name="N"), ng.make_axis(3, name="M")
GOOD = np.array([1, 2, 3, 0.5], np.float32)
BAD = np.array([1, -1, 3, 0.5], np.float32)
HERE = os.path.basename(__file__)


@pytest.fixture(params=["cpu", "numpy", "direct"])
def transformer(request):
    with ngt.make_transformer_factory(request.param)() as made:
        yield made


def line():
    return sys._getframe(1).f_lineno


def refused(computation, *arguments, **options):
    with ng.config(nans="raise"), pytest.raises(NanError) as error:
        computation(*arguments, **options)
    return error.value


def test_the_first_nan_is_named(transformer):
    x = ng.placeholder([N]).named("x")
    with ng.name_scope("outer"):
        y = ng.log(x)
        at = line() - 1
    f = transformer.computation(ng.tanh(y * 2 + x) + ng.sqrt(ng.absolute(x)), x)
    assert np.isnan(f(BAD)).any()
    error = refused(f, BAD)
    assert error.line == (__file__, at) and error.message.endswith("log in outer made the first nan")
    assert error.details[0] == "x: float32[4], from -1 to 3" and "direct" in error.details[1] and "above 0" in error.fix
    with ng.config(nans="raise"):
        np.testing.assert_array_equal(f(GOOD), f(GOOD))
    assert np.isnan(f(BAD)).any()


@pytest.mark.parametrize(
    "build, value, op, made",
    [
        (lambda x: ng.exp(x), 100, "exp", "infinity"),
        (lambda x: ng.sqrt(x), -1, "sqrt", "nan"),
        (lambda x: 1 / x, 0, "divide", "infinity"),
        (lambda x: ng.softmax(x * 1e30, x.axes), 1e20, "multiply", "infinity"),
        (lambda x: ng.exp(x) / ng.sum(ng.exp(x), x.axes), 100, "exp", "infinity"),
        (lambda x: ng.power(x, 0.5), -1, "power", "nan"),
        (lambda x: ng.sum(x * x * x), 1e19, "multiply", "infinity"),
        (lambda x: ng.contract(x, x, over=x.axes), 1e20, "contract", "infinity"),
        (lambda x: ng.cast(x, ng.float16), 1e6, "cast", "infinity"),
        (lambda x: ng.cast(ng.log(ng.cast(x, ng.bfloat16)), ng.float32), -1, "log", "nan"),
        (lambda x: ng.deriv(ng.sum(ng.sqrt(x), out_axes=()), x), 0, "divide", "infinity"),
    ],
)
def test_ops_that_make_them(build, value, op, made):
    x = ng.variable([N], initial_value=1.0).named("x")
    f = ngt.make_transformer().computation(build(x), x)
    spoiled = GOOD.copy()
    spoiled[1] = value
    error = refused(f, spoiled)
    assert op in error.message and error.message.endswith(f"made the first {made}"), error


def test_infinities_that_are_meant_pass(transformer):
    """A mask of minus infinity is a constant, and what is not seen in the result does not matter."""
    x = ng.placeholder([N]).named("x")
    masked = ng.softmax(ng.where(x > 0, x, float("-inf")), x.axes)
    f = transformer.computation([masked, 1 / (1 + ng.exp(-x * 1000))], x)
    with ng.config(nans="raise"):
        f(BAD)
        g = transformer.computation(ng.maximum(x, float("inf")), x)
        g(GOOD)


def test_nan_in_is_nan_out(transformer):
    """What arguments or state have is not made by an op; what is made beside it is."""
    x, y = ng.placeholder([N]).named("x"), ng.placeholder([N]).named("y")
    f = transformer.computation(x * 2 + y, x, y)
    with ng.config(nans="raise"):
        assert np.isnan(f(GOOD, np.full(4, np.nan, np.float32))).all()
        integers = transformer.computation(ng.cast(x, ng.int32), x)
        integers(GOOD)
    both = transformer.computation([ng.log(x), y], x, y)
    assert "log made the first nan" in str(refused(both, BAD, np.full(4, np.nan, np.float32)))


def test_state_is_as_before(transformer):
    x, w, n = ng.placeholder([N]).named("x"), ng.variable([N], initial_value=1.0).named("w"), ng.variable((), dtype=ng.int32).named("n")
    update = ng.sequential([ng.assign(w, ng.log(w * x)), ng.assign(n, n + 1), ng.constant(0.0)])
    f = transformer.computation(update, x)
    f(np.full(4, np.e, np.float32))
    before = transformer.get(w)
    error = refused(f, BAD)
    assert "log made the first nan" in str(error) and "state is as it was" in str(error)
    np.testing.assert_array_equal(transformer.get(w), before)
    assert transformer.get(n) == 1
    f(BAD)
    assert np.isnan(transformer.get(w)[1]) and transformer.get(n) == 2


def test_within_a_loop(transformer):
    """The step of the body, at the turn that makes it."""
    x = ng.placeholder([N, M]).named("x")

    def step(carry, now):
        with ng.name_scope("body"):
            new = ng.sqrt(carry - now)
        return new, new

    last, _ = ng.scan(step, ng.broadcast(ng.constant(9.0), [N]), x, M)
    f = transformer.computation(last, x)
    values = np.zeros((4, 3), np.float32)
    values[2, 1] = 5
    error = refused(f, values)
    assert error.message.endswith("sqrt in body made the first nan") and "from -2 to 3" in error.details[0]


def test_results_of_all_forms(transformer):
    x = ng.placeholder([N]).named("x")
    y, z = ng.log(x), x + 1
    for results in (y, [z, y], {y, z}, [ng.assign(ng.variable([N]).named("v"), y), z]):
        assert "log made the first nan" in str(refused(transformer.computation(results, x), BAD))
    f = transformer.computation([y, z], x)
    out = [np.zeros(4, np.float32), np.zeros(4, np.float32)]
    assert "log" in str(refused(f, BAD, out=out))
    assert "log" in str(refused(f, feed_dict={x: BAD}))
    with ng.config(nans="raise"):
        f(GOOD, out=out)
    np.testing.assert_allclose(out[0], np.log(GOOD), rtol=1e-6)


def test_calls_are_as_fast_as_before_afterwards():
    x = ng.placeholder([N]).named("x")
    f = ngt.make_transformer_factory("cpu")().computation(x + 1, x)
    for _ in range(8):
        f(GOOD)
    fast = f.func
    assert fast != f.call
    with ng.config(nans="raise"):
        assert f.func == f.call
        with ng.config(nans="ignore"):
            assert np.isnan(f(np.full(4, np.nan, np.float32))).all()
        made = f._maker.computation(ng.log(x), x)
        for _ in range(8):
            made(GOOD)
        with pytest.raises(NanError):
            made(BAD)
    assert f.func is fast and made.func != made.call and np.isnan(made(BAD)).any()


def test_by_the_environment():
    program = """
import numpy as np, ngraph as ng, ngraph.transformers as ngt
x = ng.placeholder([ng.make_axis(2, name="N")])
f = ngt.make_transformer().computation(ng.log(x), x)
for _ in range(8): f(np.ones(2, np.float32))
try: f(-np.ones(2, np.float32))
except ng.NgraphError as error: print(type(error).__name__)
with ng.config(nans="ignore"): print(f(-np.ones(2, np.float32)))
try: f(-np.ones(2, np.float32))
except ng.NgraphError as error: print(type(error).__name__)
"""
    said = subprocess.run([sys.executable, "-c", program], env={**os.environ, "NGRAPH_NANS": "raise"}, capture_output=True, text=True)
    assert said.stdout.split("\n")[:3] == ["NanError", "[nan nan]", "NanError"], said.stderr

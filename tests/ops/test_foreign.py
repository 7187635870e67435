"""Ops of another package: a record is all that `numpy` and `direct` need; `cpu` fuses those that say how, and names those that do not."""

import warnings

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph import warn
from ngraph.codegen.math import MACHINE_CODE
from ngraph.op_graph import expr
from ngraph.op_graph.op import TensorType
from ngraph.op_graph.opdef import OPS, REGISTRY, op
from ngraph.ops.elementwise import absolute, elementwise
from ngraph.ops.state import parts

CODE = {"machine_code": lambda x: x / (MACHINE_CODE["abs"](x) + 1.0)}


@pytest.fixture
def softsign():
    """Makes a record of x / (1 + |x|) with these facts; takes everything back at the end."""
    made = []

    def make(**facts):
        name = f"softsign_{len(made)}"
        record = elementwise(
            name, "x / (1 + |x|).", lambda x: x / (1 + np.abs(x)), lambda op, dy, x: dy / (absolute(x) + 1.0) ** 2, cost=6, **facts
        )
        made.append(name)
        return record

    yield make
    for name in made:
        del REGISTRY[name]
        for column, facts in OPS.facts(name).items():
            for fact in list(facts):
                OPS.take_back(name, column, fact.level)


def computed(transformer, record, lengths=(5, 67)):
    """The values of a small program with the op in its midst, its slope, those of NumPy, and the computation."""
    A, B = ng.make_axis(lengths[0], name="A"), ng.make_axis(lengths[1], name="B")
    x = ng.placeholder([A, B])
    y = ng.sum(record(x * 2.0) * 3.0 + 1.0, reduction_axes=[B])
    given = np.linspace(-3, 3, lengths[0] * lengths[1], dtype=np.float32).reshape(lengths)
    computation = ngt.make_transformer_factory(transformer)().computation([y, ng.deriv(ng.sum(y), x)], x)
    double = 2 * given.astype(np.float64)
    wanted = (3 * double / (1 + abs(double)) + 1).sum(1), 6 / (1 + abs(double)) ** 2
    return computation(given), wanted, computation


@pytest.mark.parametrize("transformer", ["cpu", "numpy", "direct"])
@pytest.mark.parametrize("facts", [CODE, {}], ids=["with code", "without"])
def test_its_values_and_its_gradient_are_right(softsign, transformer, facts):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ng.NgraphWarning)
        got, wanted, _ = computed(transformer, softsign(**facts))
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_it_is_fused_where_it_says_how(softsign):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, _, computation = computed("cpu", softsign(**CODE))
    assert "softsign_0(" in computation.plan and "routine" not in computation.plan


def test_it_is_named_where_it_runs_in_numpy(softsign):
    warn.forget()
    with pytest.warns(ng.NgraphWarning, match="there is no machine code for softsign_0: NumPy runs it") as told:
        _, _, computation = computed("cpu", softsign())
    assert told[0].filename == __file__
    assert "Python runs softsign_0 (tests/ops/test_foreign.py:" in str(computation.profile(np.zeros((5, 67), np.float32)))


def test_code_that_comes_later_is_taken_by_later_computations(softsign):
    record = softsign()
    with pytest.warns(ng.NgraphWarning):
        warn.forget()
        computed("cpu", record)
    OPS.fill(record.name, **CODE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        computed("cpu", record)


# ---- ops that have a type and a reference, and nothing else ----


@pytest.fixture
def by_reference():
    """Makes records that have a type and a reference alone; takes them back at the end."""
    made = []

    def make(name, type, reference):
        made.append(name)
        return op(name, "For a test.", type=type, reference=reference)

    yield make
    for name in made:
        del REGISTRY[name]


def spectrum(by_reference):
    """The real part of a spectrum along an axis, and where the largest value was: two results, of two dtypes, one with a new axis."""

    def type(inputs, axis, out):
        rest = tuple([a for a in inputs[0].axes if a != axis])
        return TensorType((*rest, out), ng.float64), TensorType(rest, ng.int32)

    def reference(call, x):
        x = np.moveaxis(x, list(call.inputs[0].axes).index(call.attrs["axis"]), -1).astype(np.float64)
        return np.fft.rfft(x).real[..., : call.length(call.attrs["out"])], np.argmax(x, -1).astype(np.int32)

    return by_reference("spectrum_by_reference", type, reference)


@pytest.mark.parametrize("transformer", ["cpu", "numpy", "direct"])
@pytest.mark.parametrize("along", ["H", "W"])
@pytest.mark.filterwarnings("ignore::ngraph.NgraphWarning")
def test_an_op_runs_by_its_reference(by_reference, transformer, along):
    record = spectrum(by_reference)
    H, W, K = ng.make_axis(name="H"), ng.make_axis(7, name="W"), ng.make_axis(3, name="K")
    x = ng.placeholder([H, W])
    real, largest = parts(record(x * 2.0, axis={"H": H, "W": W}[along], out=K))
    f = ngt.make_transformer_factory(transformer)().computation([ng.sum(real, reduction_axes=[K]), largest + 1], x)
    for n in (5, 6, 5):
        given = np.random.RandomState(n).randn(n, 7).astype(np.float32)
        rows = given if along == "W" else given.T
        total, place = f(given)
        np.testing.assert_allclose(total, np.fft.rfft(2.0 * rows).real[:, :3].sum(1), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(place, rows.argmax(1) + 1)


@pytest.mark.parametrize("transformer", ["cpu", "numpy", "direct"])
@pytest.mark.filterwarnings("ignore::ngraph.NgraphWarning")
def test_a_reference_runs_in_the_body_of_a_loop(by_reference, transformer):
    reverse = by_reference("flip_by_reference", lambda inputs: inputs[0], lambda call, x: x[::-1])
    T, H = ng.make_axis(name="T"), ng.make_axis(5, name="H")
    x = ng.placeholder([T, H])
    _, states = ng.scan(lambda state, now: (reverse(state) + now,) * 2, ng.constant(0.0, axes=[H]), x, T)
    f = ngt.make_transformer_factory(transformer)().computation(states, x)
    for n in (3, 1, 4):
        given = np.random.RandomState(n).randn(n, 5).astype(np.float32)
        state, wanted = np.zeros(5, np.float32), []
        for row in given:
            state = state[::-1] + row
            wanted.append(state)
        np.testing.assert_array_equal(f(given), wanted)


@pytest.mark.parametrize("transformer", ["cpu", "numpy", "direct"])
@pytest.mark.filterwarnings("ignore::ngraph.NgraphWarning")
def test_a_reference_finds_the_length_of_its_result(by_reference, transformer):
    def type(inputs, axis):
        return TensorType((axis,), inputs[0].dtype), TensorType((), ng.int32)

    def reference(call, x):
        kept = x[x > 0]
        return kept, np.asarray(len(kept), np.int32)

    N, kept = ng.make_axis(name="N"), ng.make_axis(name="kept")
    x = ng.placeholder([N])
    positive, count = parts(by_reference("positive_by_reference", type, reference)(x, axis=kept))
    kept.family.length = expr.minimum(expr.Run(count), N.size)
    f = ngt.make_transformer_factory(transformer)().computation([positive * 2.0, count], x)
    for n in (6, 0, 9):
        given = np.random.RandomState(n).randn(n).astype(np.float32)
        values, number = f(given)
        np.testing.assert_array_equal(values, 2 * given[given > 0])
        assert number == (given > 0).sum()


@pytest.mark.parametrize("transformer", ["cpu", "numpy", "direct"])
@pytest.mark.filterwarnings("ignore::ngraph.NgraphWarning")
def test_a_reference_may_return_its_input(by_reference, transformer):
    same = by_reference("same_by_reference", lambda inputs: inputs[0], lambda call, x: x)
    x = ng.placeholder("H=3 W=2")
    y = ng.exp(x)
    f = ngt.make_transformer_factory(transformer)().computation([same(y) + 1.0, y, same(x), same(ng.constant(2.0))], x)
    given = np.array([[0, 1], [2, 3], [-1, -2]], np.float32)
    more, y, x, two = f(given)
    np.testing.assert_allclose(more, np.exp(given) + 1, rtol=1e-6)
    np.testing.assert_allclose(y, np.exp(given), rtol=1e-6)
    np.testing.assert_array_equal(x, given)
    assert two == 2


def test_a_reference_that_runs_is_seen(by_reference):
    record = spectrum(by_reference)
    x, K = ng.placeholder("H=4 W=7"), ng.make_axis(3, name="K")
    warn.forget()
    with pytest.warns(ng.NgraphWarning, match="there is no machine code for spectrum_by_reference: NumPy runs it"):
        f = ngt.make_transformer_factory("cpu")().computation(parts(record(x, axis=x.axes[1], out=K)), x)
        f(np.zeros((4, 7), np.float32))
    assert "routine spectrum_by_reference(" in f.plan
    assert "Python runs spectrum_by_reference (tests/ops/test_foreign.py:" in str(f.profile(np.zeros((4, 7), np.float32)))
    printed = ngt.make_transformer_factory("numpy")().computation(parts(record(x, axis=x.axes[1], out=K)), x).source
    assert "spectrum_by_reference: object  # a function of (lengths, integers, *arrays) that returns a tuple, to be set" in printed


@pytest.mark.parametrize("transformer", ["cpu", "numpy", "direct"])
@pytest.mark.filterwarnings("ignore::ngraph.NgraphWarning")
@pytest.mark.parametrize(
    "reference, said",
    [
        (lambda call, x: x.astype(np.float64), "gives float64, its type float32"),
        (lambda call, x: x[:2], r"gives shape \(2,\), its type float32\[H\] has \(3,\)"),
        (lambda call, x: (x, x), "gives 2 results, its type 1"),
        (None, "has no lowering, no reference and no entry"),
    ],
)
def test_a_reference_that_violates_its_type_is_named(by_reference, transformer, reference, said):
    record = by_reference("wrong_by_reference", lambda inputs: inputs[0], reference)
    x = ng.placeholder("H=3")
    with pytest.raises(ng.NgraphError, match=f"wrong_by_reference {said}"):
        ngt.make_transformer_factory(transformer)().computation(record(x), x)(np.zeros(3, np.float32))

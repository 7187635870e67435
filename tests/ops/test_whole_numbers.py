"""Python's whole numbers beside integer tensors, as NumPy 2 has them: what does not fit is refused, and comparisons are exact."""

import operator

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import DTypeError

DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
N = ng.make_axis(3, name="N")
FUNCTIONS = {
    "add": (ng.add, np.add),
    "subtract": (ng.subtract, np.subtract),
    "multiply": (ng.multiply, np.multiply),
    "maximum": (ng.maximum, np.maximum),
    "minimum": (ng.minimum, np.minimum),
    "bitwise": (operator.and_, np.bitwise_and),
}
COMPARISONS = {
    "equal": (ng.equal, np.equal),
    "not_equal": (ng.not_equal, np.not_equal),
    "less": (ng.less, np.less),
    "less_equal": (ng.less_equal, np.less_equal),
    "greater": (ng.greater, np.greater),
    "greater_equal": (ng.greater_equal, np.greater_equal),
}


def edges(dtype):
    """The limits of a dtype, their neighbours on both sides, and numbers far beyond."""
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return [low - 1, low, low + 1, 0, high - 1, high, high + 1, -(2**40), 2**40, -(2**70), 2**70]


def values(dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return np.array([low, 1, high], dtype)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_number_is_refused_where_numpy_refuses_it(dtype, name):
    ours, numpys = FUNCTIONS[name]
    x, given = ng.placeholder([N], dtype=dtype), values(dtype)
    results, wanted = [], []
    for number in edges(dtype):
        for swap in (False, True):
            try:
                with np.errstate(over="ignore"):
                    expected = numpys(number, given) if swap else numpys(given, number)
            except OverflowError:
                with pytest.raises(DTypeError, match="does not fit into"):
                    ours(number, x) if swap else ours(x, number)
                continue
            results.append(ours(number, x) if swap else ours(x, number))
            wanted.append(expected)
    assert len(results) >= 10 and all(r.dtype.name == dtype for r in results)
    for found, expected in zip(ngt.make_transformer().computation(results, x)(given), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_comparisons_are_those_of_the_whole_numbers(dtype):
    x, given = ng.placeholder([N], dtype=dtype), values(dtype)
    cases = [(n, swap, *COMPARISONS[name]) for n in edges(dtype) for swap in (False, True) for name in COMPARISONS]
    results = [ours(n, x) if swap else ours(x, n) for n, swap, ours, _ in cases]
    with np.errstate(all="ignore"):
        wanted = [numpys(n, given) if swap else numpys(given, n) for n, swap, _, numpys in cases]
    for found, expected in zip(ngt.make_transformer().computation(results, x)(given), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_operators_of_one_tensor(dtype):
    x, given = ng.placeholder([N], dtype=dtype), values(dtype)
    made, wanted = [~x, +x, abs(x)], [~given, given, np.abs(given)]
    if dtype.startswith("int"):
        made, wanted = [*made, -x], [*wanted, -given]
    for found, expected in zip(ngt.make_transformer().computation(made, x)(given), wanted, strict=True):
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, expected)


def test_operators_compare_as_the_functions_do():
    x, given = ng.placeholder([N], dtype="int8"), values("int8")
    compute = ngt.make_transformer().computation([x == 300, x != 300, x < 300, x > -300, x >= 300, 300 > x], x)
    for found, expected in zip(
        compute(given), [given == 300, given != 300, given < 300, given > -300, given >= 300, given < 300], strict=True
    ):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("number", [1.5, float("nan"), float("inf"), 2.0**63, np.float32(0.5), 128, np.int64(-129)])
def test_what_an_integer_constant_cannot_hold_is_refused(number):
    dtype = "int64" if number == 2.0**63 else "int8"
    for make in (
        lambda: ng.constant(number, dtype=dtype),
        lambda: ng.constant(np.array([0, number]), [ng.make_axis(2, name="P")], dtype=dtype),
        lambda: ng.variable((), dtype=dtype, initial_value=number),
        lambda: ng.assign(ng.variable((), dtype=dtype), number),
    ):
        with pytest.raises(DTypeError, match="is not a whole number|does not fit into"):
            make()


@pytest.mark.parametrize("number", [0, -128, 127, 3.0, True, np.int64(5), np.float32(-7)])
def test_what_an_integer_constant_holds_is_kept(number):
    made = [ng.constant(number, dtype="int8"), ng.constant(np.array([number]), dtype="int8")]
    assert [int(np.squeeze(v)) for v in ngt.make_transformer().computation(made)()] == [int(number)] * 2

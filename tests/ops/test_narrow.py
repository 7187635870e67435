"""Dtypes of 8 bits and less: every code and many numbers are converted as ml_dtypes does, on every transformer; arithmetic is refused."""

import ml_dtypes
import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.errors import DTypeError
from ngraph.op_graph.dtypes import NARROW, REGISTRY

FLOATS = [n for n in NARROW if n.startswith("float")]
WHOLE = [n for n in NARROW if "int" in n]
TRANSFORMERS = ("direct", "numpy", "cpu")
N = ng.make_axis(name="N")


def run(transformer, results, x, value):
    with ngt.allocate_transformer(transformer) as t:
        return t.computation(results, x)(value)


def codes(a):
    return np.asarray(a).view(np.uint8)


def numbers(dtype):
    """Ties, what lies just beside them, denormals, limits, infinities, NaN, and any bits of float32."""
    d = REGISTRY[dtype]
    draw = np.random.default_rng(7)
    with np.errstate(all="ignore"):
        own = np.arange(256, dtype=np.uint8).view(d.np).astype(np.float64)
    own = np.unique(own[np.isfinite(own)])
    ties = (own[1:] + own[:-1]) / 2
    ends = np.array([d.highest * f for f in (1, 1.01, 1.03, 1.0625, 1.07, 1.125, 1.25, 1.5, 2, 1e3)])
    with np.errstate(over="ignore"):
        exact = np.concatenate([own, ties, ends, -ends, [0.0, -0.0, np.inf, -np.inf, 1e30, -1e30, 1e-30, -1e-30]]).astype(np.float32)
    beside = np.concatenate([np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(-np.inf))])
    bits = draw.integers(0, 1 << 32, 4000, dtype=np.uint32).view(np.float32)
    near = (draw.normal(size=4000) * np.float64(d.highest) ** draw.uniform(-0.5, 1, 4000)).astype(np.float32)
    return np.concatenate([exact, beside, near, bits, np.array([np.nan, -np.nan], np.float32)])


@pytest.mark.parametrize("transformer", TRANSFORMERS)
def test_every_code_as_every_other_type(transformer):
    """The numbers of all codes, as float32, as integers and as each other."""
    for name, form in NARROW.items():
        d = REGISTRY[name]
        x = ng.placeholder([N], dtype=d)
        array = np.arange(1 << form.width, dtype=np.uint8).view(d.np)
        others = [n for n in NARROW if n != name]
        got = run(transformer, [ng.cast(x, t) for t in ("float32", "float16", "float64", "bfloat16", "int32", "bool", *others)], x, array)
        with np.errstate(all="ignore"):
            wanted = array.astype(np.float32)
            np.testing.assert_array_equal(got[0], wanted)
            real = ~np.isnan(wanted)
            np.testing.assert_array_equal(np.signbit(got[0])[real], np.signbit(wanted)[real])
            for g in got[1:4]:
                np.testing.assert_array_equal(g.astype(np.float32), wanted.astype(g.dtype).astype(np.float32))
            whole = np.clip(np.nan_to_num(np.trunc(wanted.astype(np.float64)), nan=0), -(2.0**31), 2.0**31 - 1).astype(np.int64)
            np.testing.assert_array_equal(got[4], whole)
            np.testing.assert_array_equal(got[5], wanted != 0)
            for g, other in zip(got[6:], others, strict=True):
                kept = wanted if name in FLOATS else wanted.astype(np.int32)
                np.testing.assert_array_equal(codes(g), codes(as_ml(kept, other)), err_msg=f"{name} to {other}")


def as_ml(x, dtype):
    """What ml_dtypes makes of numbers, floats cut and held at the limits before they become integers."""
    d = getattr(ml_dtypes, dtype)
    with np.errstate(all="ignore"):
        if dtype in FLOATS:
            return x.astype(d)
        if x.dtype.kind == "f":
            info = ml_dtypes.iinfo(d)
            x = np.trunc(np.clip(np.nan_to_num(x.astype(np.float64), nan=0), float(info.min), float(info.max))).astype(np.int64)
        return (x.astype(np.int64) & 0xF).astype(np.uint8).astype(d)


@pytest.mark.parametrize("transformer", TRANSFORMERS)
def test_many_numbers_as_each_narrow_type(transformer):
    for name in NARROW:
        array = numbers(name)
        x = ng.placeholder([N])
        narrow, wide = run(transformer, [ng.cast(x, name), ng.cast(ng.cast(x, "float64"), name)], x, array)
        wanted = codes(as_ml(array, name))
        np.testing.assert_array_equal(codes(narrow), wanted, err_msg=name)
        np.testing.assert_array_equal(codes(wide), wanted, err_msg=f"{name} from float64")


@pytest.mark.parametrize("transformer", TRANSFORMERS)
def test_numbers_of_other_types(transformer):
    """By way of float32; bool is 0 and 1."""
    fine = np.array([1 + 2.0**-4 + 2.0**-40, 1 + 2.0**-4 - 2.0**-40, 1.5 - 2.0**-40, 300.0, -(2.0**-200), 1e300, 2.0**-126, 2.0**-30])
    half = np.array([0.1, 1.0625, 448, 465, 65504, -6e-8, np.inf], np.float16)
    whole = np.array([0, 1, -1, 9, 17, 300, -300, 2**31 - 1, 1 << 40, -(1 << 40)])
    for array in (fine, half, half.astype(ml_dtypes.bfloat16), whole, whole.astype(np.int8), np.array([True, False])):
        x = ng.placeholder([N], dtype=array.dtype)
        for name, got in zip(NARROW, run(transformer, [ng.cast(x, name) for name in NARROW], x, array), strict=True):
            exact = array if array.dtype.kind in "ib" else array.astype(np.float64)
            np.testing.assert_array_equal(codes(got), codes(as_ml(exact, name)), err_msg=f"{name} from {array.dtype}")


@pytest.mark.parametrize("transformer", TRANSFORMERS)
def test_saturation(transformer):
    """With `saturate`, what lies beyond the largest number is that number; NaN stays."""
    for name in FLOATS:
        d = REGISTRY[name]
        if name == "float8_e8m0fnu":
            continue
        array = numbers(name)
        x = ng.placeholder([N])
        got = run(transformer, ng.cast(x, name, saturate=True), x, array)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(codes(got), codes(np.clip(array, -d.highest, d.highest).astype(d.np)), err_msg=name)
    x = ng.placeholder([N])
    half = run(transformer, ng.cast(x, "float16", saturate=True), x, np.array([1e6, -np.inf, 1], np.float32))
    np.testing.assert_array_equal(half, [65504, -65504, 1])
    brain = run(transformer, ng.cast(x, "bfloat16", saturate=True), x, np.array([np.inf, -3.4e38], np.float32))
    np.testing.assert_array_equal(brain.astype(np.float64), [3.3895313892515355e38, -3.3895313892515355e38])


@pytest.mark.parametrize("transformer", TRANSFORMERS)
def test_values_are_moved_chosen_and_compared(transformer):
    h, w = ng.make_axis(3, name="H"), ng.make_axis(4, name="W")
    for name in NARROW:
        d = REGISTRY[name]
        array = np.arange(1, 13, dtype=np.uint8).reshape(3, 4).astype(np.float32).astype(d.np)
        x = ng.placeholder([h, w], dtype=d)
        c = ng.constant(np.arange(12).reshape(3, 4) % 2 == 0, [h, w])
        turned = ng.axes_with_order(x, [w, h])
        padded = ng.pad(x, {w: (1, 0)})
        joined = ng.concat_along_axis([x, x], h)
        results = [turned, ng.where(c, x, 1), padded, joined, ng.equal(x, x), ng.less(x, 2), ng.bitcast(x, dtype="uint8")]
        one, zero = (codes(np.array([n], np.float32).astype(d.np)) for n in (1, 0))
        got = run(transformer, results, x, array)
        np.testing.assert_array_equal(codes(got[0]), codes(array).T)
        np.testing.assert_array_equal(codes(got[1]), np.where(np.arange(12).reshape(3, 4) % 2 == 0, codes(array), one))
        np.testing.assert_array_equal(codes(got[2]), np.pad(codes(array), ((0, 0), (1, 0)), constant_values=zero[0]))
        np.testing.assert_array_equal(codes(got[3]), np.concatenate([codes(array)] * 2))
        plain = array.astype(np.float32)
        np.testing.assert_array_equal(got[4], plain == plain)
        np.testing.assert_array_equal(got[5], plain < 2)
        np.testing.assert_array_equal(got[6], codes(array))


@pytest.mark.parametrize("name", NARROW)
def test_arithmetic_is_refused(name):
    h = ng.make_axis(3, name="H")
    x = ng.placeholder([h], dtype=name)
    refused = [
        lambda: x + x,
        lambda: x * 2,
        lambda: -x,
        lambda: ng.sum(x),
        lambda: ng.max(x),
        lambda: ng.exp(x),
        lambda: ng.dot(x, x),
        lambda: x + ng.cast(x, "float32"),
        lambda: ng.cumsum(x, h),
        lambda: ng.sort(x, h),
        lambda: ng.argmax(x),
        lambda: ng.maximum(x, x),
    ]
    for f in refused:
        with pytest.raises(DTypeError, match="cast first"):
            f()


def test_state_and_files_keep_them(tmp_path):
    h = ng.make_axis(5, name="H")
    with ngt.allocate_transformer("cpu") as t:
        held = {}
        for name in NARROW:
            array = np.arange(1, 6).astype(np.float32).astype(REGISTRY[name].np)
            v = ng.variable([h], initial_value=array, dtype=name).named(name)
            held[v] = array
        c = t.computation([ng.value_of(v) for v in held])
        for got, array in zip(c(), held.values(), strict=True):
            assert got.dtype == array.dtype
            np.testing.assert_array_equal(codes(got), codes(array))
        t.save(tmp_path / "state.safetensors")
        t.restore(tmp_path / "state.safetensors")
        for got, array in zip(c(), held.values(), strict=True):
            np.testing.assert_array_equal(codes(got), codes(array))


@pytest.mark.parametrize("name", NARROW)
def test_initial_values_are_any_numbers(name, tmp_path):
    """Floats, arrays of them, what a function gives, and numbers of the dtype itself; a graph that is kept in a file, too."""
    d, A = REGISTRY[name], ng.make_axis(2, name="A")
    own = np.ones(2, d.np)
    for value in (1.0, [1.0, 1.0], np.float32(1), own, own[0], lambda: np.ones(2), lambda axes: own):
        v = ng.variable([A], dtype=name, initial_value=value)
        graphs = [v]
        if not callable(value):
            ng.op_graph.text.save([v], tmp_path / "v.json")
            graphs += ng.op_graph.text.load(tmp_path / "v.json")
        for g in graphs:
            found = ngt.make_transformer().computation(g)()
            assert found.dtype == d.np and np.array_equal(codes(found), codes(own))

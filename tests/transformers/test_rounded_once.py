"""What is made of 16-bit floats in several steps is the exact value, rounded once; means of integers are NumPy's."""

import math

import ml_dtypes
import numpy as np
import pytest

import ngraph as ng

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

R, C = ng.make_axis(3, name="R"), ng.make_axis(2112, name="C")
KINDS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
DIGITS = {"float16": 11, "bfloat16": 8}
SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133}


def halfway(exact, dtype):
    """The distance of a 16-bit number from the next at these values, halved: what one rounding may be off, and a little for float32."""
    _, exponent = np.frexp(exact)
    return np.maximum(np.ldexp(1.0, exponent - DIGITS[dtype]), SMALLEST[dtype]) / 2 * (1 + 2**-6)


def softmax(a):
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def logsumexp(a):
    m = a.max(-1)
    return np.log(np.exp(a - m[:, None]).sum(-1)) + m


def binary(p, t):
    return -(t * np.log(p) + (1 - t) * np.log(1 - p))


def pooled(a, size, pad):
    wide = np.pad(a, ((0, 0), (pad, pad)))
    inside = np.pad(np.ones_like(a), ((0, 0), (pad, pad)))
    at = [slice(k, k + size) for k in range(0, wide.shape[1] - size + 1, size)]
    return np.stack([wide[:, s].sum(1) / inside[:, s].sum(1) for s in at], 1)


def logits(a, t):
    return (logsumexp(a)[:, None] * t - a * t).sum(-1)


def cdf(a):
    return np.vectorize(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)), otypes=[float])(a)


large = {"low": 30, "high": 250}  # whose sums and squares are beyond float16
around = {"low": -14, "high": 9}
OF_ROWS = {
    "mean": (lambda x, t: ng.mean(x, out_axes=[R]), lambda a, t: a.mean(1), large),
    "variance": (lambda x, t: ng.variance(x, out_axes=[R]), lambda a, t: a.var(1), large),
    "L2_norm": (lambda x, t: ng.L2_norm(x, out_axes=[R]), lambda a, t: np.sqrt((a * a).sum(1)), large),
    "squared_L2": (lambda x, t: ng.squared_L2(x, out_axes=[R]), lambda a, t: (a * a).sum(1), {"low": 0, "high": 5}),
    "L1_norm": (lambda x, t: ng.L1_norm(x, out_axes=[R]), lambda a, t: abs(a).sum(1), {"low": -9, "high": 9}),
    "avg_pool": (lambda x, t: ng.avg_pool(x, {C: 600}, padding=44), lambda a, t: pooled(a, 600, 44), large),
    "softmax": (lambda x, t: ng.softmax(x, [C]), lambda a, t: softmax(a), {"low": 0, "high": 2}),
    "log_softmax": (lambda x, t: ng.log_softmax(x, [C]), lambda a, t: a - logsumexp(a)[:, None], {"low": 0, "high": 2}),
    "logsumexp": (lambda x, t: ng.logsumexp(x, [C]), lambda a, t: logsumexp(a), {"low": -3, "high": 3}),
    "cross_entropy_multi": (lambda x, t: ng.cross_entropy_multi(ng.softmax(x, [C]), t, out_axes=[R]), logits, {"low": -1, "high": 1}),
    "in bits": (
        lambda x, t: ng.cross_entropy_multi(ng.softmax(x, [C]), t, usebits=True, out_axes=[R]),
        lambda a, t: logits(a, t) / math.log(2),
        {"low": -1, "high": 1},
    ),
    "of probabilities": (
        lambda x, t: ng.cross_entropy_multi(x, t, out_axes=[R]),
        lambda a, t: -(t * np.log(a)).sum(-1),
        {"low": 0.1, "high": 0.9},
    ),
    "cross_entropy_binary": (
        lambda x, t: ng.cross_entropy_binary(x, t, out_axes=[R]),
        lambda a, t: binary(a, t).sum(-1),
        {"low": 0.1, "high": 0.9},
    ),
    "binary of sigmoid": (
        lambda x, t: ng.cross_entropy_binary(ng.sigmoid(x), t, out_axes=[R]),
        lambda a, t: binary(1 / (1 + np.exp(-a)), t).sum(-1),
        {"low": -4, "high": 4},
    ),
    "sigmoid": (lambda x, t: ng.sigmoid(x), lambda a, t: 1 / (1 + np.exp(-a)), around),
    "silu": (lambda x, t: ng.silu(x), lambda a, t: a / (1 + np.exp(-a)), around),
    "softplus": (lambda x, t: ng.softplus(x), lambda a, t: np.logaddexp(a, 0), around),
    "elu": (lambda x, t: ng.elu(x, 0.7), lambda a, t: np.where(a > 0, a, np.expm1(a) * 0.7), around),
    "gelu": (lambda x, t: ng.gelu(x), lambda a, t: a * cdf(a), {"low": -2, "high": 9}),
}


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("name", OF_ROWS)
def test_the_exact_value_is_rounded_once(name, dtype, transformer):
    build, exactly, drawn = OF_ROWS[name]
    rng = np.random.default_rng(5)
    v, s = rng.uniform(drawn["low"], drawn["high"], (3, 2112)).astype(KINDS[dtype]), rng.uniform(0, 1, (3, 2112)).astype(KINDS[dtype])
    x, t = ng.placeholder([R, C], dtype=dtype), ng.placeholder([R, C], dtype=dtype)
    got = transformer.computation(build(x, t), x, t)(v, s)
    exact = exactly(v.astype(np.float64), s.astype(np.float64))
    assert got.dtype == KINDS[dtype] and got.shape == exact.shape
    off = abs(got.astype(np.float64) - exact) / halfway(exact, dtype)
    assert off.max() <= 1, off.max()


def test_a_mean_of_more_elements_than_16_bits_count(transformer):
    B = ng.make_axis(name="B")
    x = ng.placeholder([B], dtype="float16")
    f = transformer.computation([ng.mean(x, out_axes=()), ng.variance(x, out_axes=())], x)
    mean, variance = f(np.ones(70_000, np.float16))
    assert mean == 1 and variance == 0


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_means_of_integers_are_numpys(dtype, transformer):
    A, B = ng.make_axis(7, name="A"), ng.make_axis(5, name="B")
    x = ng.placeholder([A, B], dtype=dtype)
    rng = np.random.default_rng(3)
    info = None if dtype == "bool" else np.iinfo(dtype)
    v = rng.integers(0, 2, (7, 5)).astype(bool) if info is None else rng.integers(info.min, info.max, (7, 5), dtype, endpoint=True)
    results = [ng.mean(x, out_axes=[B]), ng.mean(x, out_axes=()), ng.variance(x, out_axes=[B]), ng.mean(x, dtype="float32", out_axes=[B])]
    got = transformer.computation(results, x)(v)
    for found, wanted in zip(got, [v.mean(0), v.mean(), v.var(0), v.mean(0, dtype="f4")], strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-5 if found.dtype == np.float32 else 1e-14)


def test_the_norm_of_integers_does_not_wrap(transformer):
    x = ng.placeholder([ng.make_axis(3, name="A")], dtype="int8")
    assert transformer.computation(ng.L2_norm(x, out_axes=()), x)(np.array([100, 100, 50], "i1")) == pytest.approx(150, rel=1e-6)


def nearest(n, digits):
    """The nearest integer of so many binary digits, ties to the even one."""
    cut = max(abs(n).bit_length() - digits, 0)
    kept, rest = divmod(abs(n), 1 << cut)
    up = 2 * rest > 1 << cut or 2 * rest == 1 << cut and kept % 2
    return (kept + up << cut) * (-1 if n < 0 else 1)


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint64", "int32", "uint32"])
@pytest.mark.parametrize("kind", KINDS)
def test_casts_and_arguments_of_wide_numbers_are_rounded_once(kind, dtype, transformer):
    """Numbers halfway between two 16-bit ones and one unit beside: what rounds to float32 first takes them for halfway."""
    rng, digits = np.random.default_rng(4), DIGITS[kind] + 1
    bits = 15 if kind == "float16" else {"float64": 53, "int64": 63, "int32": 31}.get(dtype, int(dtype[-2:]))
    odd = rng.integers(2 ** (digits - 2), 2 ** (digits - 1), 60).tolist()
    signs = np.where(rng.integers(0, 2, 60) & (dtype[0] != "u"), -1, 1).tolist()
    whole = [((2 * m + 1 << bits - digits) + k % 3 - 1) * sign for k, (m, sign) in enumerate(zip(odd, signs, strict=True))]
    v, exact = np.array(whole, dtype), np.array([float(nearest(n, DIGITS[kind])) for n in whole])
    n = ng.make_axis(60, name="N")
    x, y = ng.placeholder([n], dtype=dtype), ng.placeholder([n], dtype=kind)
    for got in transformer.computation([ng.cast(x, kind), y, ng.cast(ng.constant(v), kind), ng.constant(v, dtype=kind)], x, y)(v, v):
        np.testing.assert_array_equal(got.astype(np.float64), exact)


def p_norm(a, p):
    return (abs(a) ** p).sum((2, 3), keepdims=True) ** (1 / p)


def deviations(a, axes):
    return (a - a.mean(axes, keepdims=True)) / (a.std(axes, keepdims=True) + 1e-9)


ONNX = {
    "ReduceMean": ({"axes": [2, 3]}, lambda a: a.mean((2, 3), keepdims=True)),
    "ReduceL2": ({"axes": [2, 3]}, lambda a: p_norm(a, 2)),
    "ReduceLogSum": ({"axes": [2, 3]}, lambda a: np.log(a.sum((2, 3), keepdims=True))),
    "ReduceLogSumExp": ({"axes": [2, 3]}, lambda a: np.log(np.exp(a - 250).sum((2, 3), keepdims=True)) + 250),
    "GlobalAveragePool": ({}, lambda a: a.mean((2, 3), keepdims=True)),
    "GlobalLpPool": ({"p": 3}, lambda a: p_norm(a, 3)),
    "AveragePool": ({"kernel_shape": [40, 40], "strides": [40, 40]}, lambda a: a[:, :, :40, :40].mean((2, 3), keepdims=True)),
    "LpPool": ({"kernel_shape": [40, 40], "strides": [40, 40]}, lambda a: p_norm(a[:, :, :40, :40], 2)),
    "LpNormalization": ({"axis": 3}, lambda a: a / np.sqrt((a * a).sum(3, keepdims=True))),
    "MeanVarianceNormalization": ({}, lambda a: deviations(a, (0, 2, 3))),
    "Softmax": ({"axis": 3}, lambda a: softmax(a)),
    "LogSoftmax": ({"axis": 3}, lambda a: np.log(softmax(a))),
}


@pytest.mark.parametrize("node", ONNX)
def test_nodes_of_files_round_once(node, transformer):
    attributes, exactly = ONNX[node]
    v = np.random.default_rng(2).uniform(30, 250, (1, 2, 60, 60)).astype(np.float16)
    if "Softmax" in node:
        v = (v / 200).astype(np.float16)
    made = helper.make_node(node, ["x"], ["y"], **attributes)
    given, gives = (helper.make_tensor_value_info(n, TensorProto.FLOAT16, s) for n, s in (("x", v.shape), ("y", None)))
    file = helper.make_model(helper.make_graph([made], "g", [given], [gives]), opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    got = np.asarray(ng.onnx.load(file, transformer=transformer)(v))
    exact = exactly(v.astype(np.float64))
    near = 2.0**-22 * 250 / 64 if node == "MeanVarianceNormalization" else 0.0  # float32's error of x - mean, over the deviation
    off = abs(got.astype(np.float64) - exact) / (halfway(exact, "float16") + near)
    assert got.dtype == np.float16 and off.max() <= 1, off.max()

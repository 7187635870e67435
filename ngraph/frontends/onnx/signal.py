"""Translators of Fourier transforms, of random numbers, and of what trainers need."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph.autodiff import deriv
from ngraph.frontends.onnx.proto import numpy_type
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional import factors, fourier
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.expr import ExprLike
from ngraph.ops import elementwise as e
from ngraph.ops.random import normal, uniform
from ngraph.ops.reduce import reduce
from ngraph.ops.sorting import argreduce


@translates("DFT")
def dft(n: Any, x: Value, length: Value = None, axis: Value = None) -> Tensor:
    g, t = n.g, n.g.tensor(x)
    at = n.attr("axis", 1) if n.version < 20 else -2 if axis is None else g.ints(axis)[0]
    count = None if length is None else g.ints(length)[0]
    return fourier.dft(g, t, at % t.rank, count, bool(n.attr("inverse", 0)), bool(n.attr("onesided", 0)))


@translates("STFT")
def stft(n: Any, signal: Value, step: Value, window: Value = None, length: Value = None) -> Tensor:
    size = n.g.ints(length)[0] if length is not None else n.g.number(window.shape[0])
    return fourier.stft(n.g, n.g.tensor(signal), n.g.ints(step)[0], size, window, bool(n.attr("onesided", 1)))


@translates("MelWeightMatrix")
def mel_weights(n: Any, bins: Value, length: Value, rate: Value, low: Value, high: Value) -> ConstantArray:
    made = fourier.mel_weights(*(n.g.ints(v)[0] for v in (bins, length, rate)), *(float(n.g.known(v)) for v in (low, high)))
    return ConstantArray(made.astype(numpy_type(n.attr("output_datatype", 1))))


@translates("Det")
def determinant(n: Any, x: Value) -> Tensor:
    return factors.determinant(n.g, x)


# ---- random numbers -----------------------------------------------------------------------------------------------------


def seed_of(n: Any) -> dict[str, int]:
    """A seed is a float, whose bits are as good as any number."""
    given = n.attr("seed")
    return {} if given is None else {"seed": struct.unpack("<I", struct.pack("<f", given))[0]}


@translates("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
def random(n: Any, like: Value = None) -> Tensor:
    g = n.g
    shape: Sequence[ExprLike] = n.attr("shape") if like is None else like.shape
    dtype = as_dtype(numpy_type(n.attr("dtype")) if n.has("dtype") else np.float32 if like is None else like.np)
    axes = [g.fresh(s) for s in shape]
    wide = dtype if dtype.is_float and dtype.bits >= 32 else dtypes.float32
    if n.op.startswith("RandomNormal"):
        made = normal(axes, n.attr("mean", 0.0), n.attr("scale", 1.0), dtype=wide, **seed_of(n))
    else:
        made = uniform(axes, n.attr("low", 0.0), n.attr("high", 1.0), dtype=wide, **seed_of(n))
    return g.made(e.cast(made, dtype), axes)


@translates("Multinomial")
def multinomial(n: Any, x: Value) -> Tensor:
    """Draws by the largest of log-probabilities with Gumbel noise."""
    g = n.g
    t = g.full(g.tensor(x))
    draws = g.fresh(n.attr("sample_size", 1))
    noise = uniform([t.dims[0], draws, t.dims[1]], dtype=dtypes.float32, **seed_of(n))
    score = e.cast(t.op, dtypes.float32) - e.log(-e.log(e.maximum(noise, 1e-30)))
    chosen = argreduce.build(score, kind="max", axes=(t.dims[1],))
    return g.made(e.cast(chosen, as_dtype(numpy_type(n.attr("dtype", 6)))), [t.dims[0], draws])


# ---- training -----------------------------------------------------------------------------------------------------------


TRAINING = "ai.onnx.preview.training"


@translates("Gradient", domain=TRAINING)
def gradient(n: Any, *values: Value) -> tuple[Tensor, ...]:
    g = n.g
    y = g.tensor(n.frame.find(n.attr("y")))
    whole = reduce.build(y.op, kind="add", axes=tuple(y.op.axes)) if y.op.axes else y.op
    xs = [g.tensor(v) for v in values[: len(n.attr("xs"))]]
    return tuple(g.made(deriv(whole, x.op), x.dims) for x in xs)


def trained(n: Any, values: Sequence[Value], parts: int) -> list[list[Tensor]]:
    """The tensors of each parameter: itself, its gradient, and its state."""
    ts = [n.g.tensor(v) for v in values]
    count = len(ts) // parts
    return [[ts[k + count * p] for p in range(parts)] for k in range(count)]


def spread(rows: Sequence[Sequence[Tensor]]) -> tuple[Tensor, ...]:
    return tuple(row[k] for k in range(len(rows[0])) for row in rows)


@translates("Momentum", domain=TRAINING)
def momentum(n: Any, rate: Value, step: Value, *values: Value) -> tuple[Tensor, ...]:
    g = n.g
    r, t = g.tensor(rate).op, g.tensor(step).op
    alpha, decay = n.attr("alpha"), n.attr("norm_coefficient")
    beta = e.where(e.equal(t, 0), 1.0, n.attr("beta"))
    rows = []
    for row in trained(n, values, 3):
        (x, dx, v), dims = g.align(*row)
        slope = dx + x * decay
        v = v * alpha + slope * beta
        moved = slope + v * alpha if n.attr("mode") == "nesterov" else v
        rows.append([g.made(x - r * moved, dims), g.made(v, dims)])
    return spread(rows)


@translates("Adagrad", domain=TRAINING)
def adagrad(n: Any, rate: Value, step: Value, *values: Value) -> tuple[Tensor, ...]:
    g = n.g
    r, t = g.tensor(rate).op, g.tensor(step).op
    r = r / (e.cast(t, r.dtype) * n.attr("decay_factor", 0.0) + 1.0)
    rows = []
    for row in trained(n, values, 3):
        (x, dx, h), dims = g.align(*row)
        slope = dx + x * n.attr("norm_coefficient", 0.0)
        h = h + slope * slope
        rows.append([g.made(x - r * slope / (e.sqrt(h) + n.attr("epsilon", 1e-6)), dims), g.made(h, dims)])
    return spread(rows)


@translates("Adam", domain=TRAINING)
def adam(n: Any, rate: Value, step: Value, *values: Value) -> tuple[Tensor, ...]:
    g = n.g
    r, t = g.tensor(rate).op, g.tensor(step).op
    alpha, beta = n.attr("alpha", 0.9), n.attr("beta", 0.999)
    k = e.cast(t, r.dtype)
    later = r * e.sqrt(1.0 - e.power(beta, k)) / (1.0 - e.power(alpha, k))
    r = e.where(e.less(0, t), later, r)
    rows = []
    for row in trained(n, values, 4):
        (x, dx, v, h), dims = g.align(*row)
        slope = dx + x * n.attr("norm_coefficient", 0.0)
        v, h = v * alpha + slope * (1 - alpha), h * beta + slope * slope * (1 - beta)
        new = (x - r * v / (e.sqrt(h) + n.attr("epsilon", 1e-6))) * (1 - n.attr("norm_coefficient_post", 0.0))
        rows.append([g.made(new, dims), g.made(v, dims), g.made(h, dims)])
    return spread(rows)

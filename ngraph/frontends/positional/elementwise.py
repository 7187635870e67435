"""Ops that work on each element by itself, of values that are broadcast: arithmetic, activations, casts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.positional.values import ConstantArray, Sizes, Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType, as_dtype
from ngraph.op_graph.op import Op
from ngraph.ops import activations, functions
from ngraph.ops import elementwise as e
from ngraph.ops.random import uniform


def each(g: Any, function: Callable[..., Op], *values: Value) -> Tensor:
    """A function of ops, element by element, of values that are broadcast."""
    ops, dims = g.align(*values)
    return g.made(function(*ops), dims)


def alone(g: Any, function: Callable[[Op], Op], x: Value) -> Tensor:
    """A function of one op, element by element."""
    t = g.tensor(x)
    return Tensor(function(t.op), t.dims)


# ---- two operands -------------------------------------------------------------------------------------------------------


def truncated(x: Op, y: Op) -> Op:
    """The whole part of x / y for integers."""
    q = e.divide.build(x, y)
    if x.dtype.kind == "uint":
        return q
    # the floor is one too low where the signs differ and something is left
    low = e.logical_and(e.not_equal(q * y, x), e.not_equal(e.less(x, 0), e.less(y, 0)))
    return q + e.cast(low, x.dtype)


def divide(x: Op, y: Op) -> Op:
    """x / y; of integers its whole part."""
    return e.divide(x, y) if x.dtype.is_float else truncated(x, y)


def remainder(x: Op, y: Op, of_dividend: bool) -> Op:
    """Returns the remainder of x / y, with the sign of y; of_dividend: with that of x."""
    if not of_dividend:
        return e.remainder(x, y)
    if x.dtype.is_float:
        r = e.remainder(e.absolute(x), e.absolute(y))
        return e.where(e.equal(r, 0.0), x * 0.0, e.where(e.less(x, 0.0), -r, r))  # a remainder of 0 has the sign of x, too
    return x - truncated(x, y) * y


def floor_quotient(x: Op, y: Op) -> Op:
    """Returns the floor of x / y as NumPy and PyTorch have it for floats: the quotient of what is left when the remainder is taken away."""
    left = remainder(x, y, True)
    quotient = (x - left) / y
    lower = e.logical_and(e.not_equal(left, 0.0), e.not_equal(e.less(y, 0.0), e.less(left, 0.0)))
    quotient = e.where(lower, quotient - 1.0, quotient)
    near = e.floor(quotient)
    near = e.where(e.greater(quotient - near, 0.5), near + 1.0, near)
    near = e.where(e.equal(quotient, 0.0), (x / y) * 0.0, near)
    return e.where(e.equal(y, 0.0), x / y, near)


def sign_bit(x: Op) -> Op:
    """Returns whether the sign bit of each element is set: of -0 and some NaN, too."""
    if x.dtype.is_float:
        return e.less(e.bitcast(x, dtype=dtypes.as_dtype(f"int{x.dtype.bits}")), 0)
    return e.less(x, 0) if x.dtype.kind == "int" else e.filled(False, x.axes, dtypes.bool_)


def count_of_bits(x: Op) -> Op:
    """Returns how many bits of whole numbers are set, as uint8: sums of neighbours, in fields that become twice as wide each time."""
    bits, width = x.dtype.bits, 1
    x = bitcast(x, as_dtype(f"uint{bits}"))
    while width < bits:
        mask = sum(((1 << width) - 1) << k for k in range(0, bits, 2 * width))
        x = e.bitwise(x, mask, kind="and") + e.bitwise(e.bitwise(x, width, kind="shr"), mask, kind="and")
        width *= 2
    return e.cast(x, dtypes.uint8)


def next_after(x: Op, y: Op) -> Op:
    """Returns the next float from x towards y: bits as whole numbers run with the floats on each side of 0."""
    kind = as_dtype(f"int{x.dtype.bits}")
    whole = e.bitcast(x, dtype=kind)
    away = e.equal(e.less(x, y), e.less(0.0, x))  # whether the step goes away from 0
    moved = e.bitcast(e.where(away, whole + 1, whole - 1), dtype=x.dtype)
    least = e.bitcast(e.filled(1, x.axes, kind), dtype=x.dtype)
    moved = e.where(e.equal(x, 0.0), e.where(e.less(0.0, y), least, -least), moved)
    nan = e.logical_or(functions.isnan(x), functions.isnan(y))
    return e.where(nan, x + y, e.where(e.equal(x, y), y, moved))


WHOLE_POWERS: dict[float, Callable[[Op], Op]] = {
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    0.5: lambda x: e.sqrt(x),
    -1: lambda x: e.reciprocal(x),
}


def power(g: Any, a: Value, b: Value) -> Tensor:
    """a to the power of b, as the dtype of a; small whole exponents are products."""
    (x, y), dims = g.align(a, b)
    if isinstance(b, ConstantArray) and b.array.size == 1 and x.dtype.is_float and float(b.array.ravel()[0]) in WHOLE_POWERS:
        k = float(b.array.ravel()[0])
        return g.made(WHOLE_POWERS[k](x), dims)
    meet = x.dtype
    if y.dtype is not meet:
        meet = y.dtype if y.dtype.is_float and not x.dtype.is_float else dtypes.promote(x.dtype, y.dtype)
    return g.made(e.cast(e.power(e.cast(x, meet), e.cast(y, meet)), x.dtype), dims)


def folded(g: Any, function: Callable[[Op, Op], Op], values: Sequence[Value], mean: bool = False) -> Tensor:
    """A function of two ops over any number of values; mean: divided by how many there are."""
    ops, dims = g.align(*values)
    total = ops[0]
    for op in ops[1:]:
        total = function(total, op)
    return g.made(e.divide(total, len(ops)) if mean else total, dims)


# ---- one operand --------------------------------------------------------------------------------------------------------


def leaky_relu(x: Op, slope: Any) -> Op:
    """x, below 0 times a slope; of integers, too."""
    return activations.prelu(x, slope) if x.dtype.is_float else e.where(e.less(x, 0), x * slope, x)


def elu(x: Op, alpha: float = 1.0) -> Op:
    """x, below 0 alpha * (exp(x) - 1)."""
    return e.where(e.less(x, 0), alpha * e.expm1(e.minimum(x, 0.0)), x)


def celu(x: Op, alpha: float) -> Op:
    """x, below 0 alpha * (exp(x / alpha) - 1)."""
    return e.where(e.less(x, 0), alpha * e.expm1(e.minimum(x, 0.0) / alpha), x)


def selu(x: Op, alpha: float, gamma: float) -> Op:
    """gamma times `elu`, as self-normalizing networks have it."""
    return gamma * elu(x, alpha)


def hard_sigmoid(x: Op, alpha: float = 0.2, beta: float = 0.5) -> Op:
    """alpha * x + beta, held between 0 and 1."""
    return e.minimum(e.maximum(x * alpha + beta, 0.0), 1.0)


def gelu(x: Op, tanh: bool = False) -> Op:
    """x times the normal distribution's share below it; tanh: by a formula with tanh."""
    return activations.gelu(x, approximate=tanh)


# by name: a function of an op and numbers, and what the numbers are where they are not given
ACTIVATIONS: dict[str, tuple[Callable[..., Op], tuple[float, ...]]] = {
    "relu": (lambda x: e.relu(x), ()),
    "tanh": (lambda x: e.tanh(x), ()),
    "sigmoid": (lambda x: e.sigmoid(x), ()),
    "affine": (lambda x, a, b: x * a + b, (1.0, 0.0)),
    "leakyrelu": (leaky_relu, (0.01,)),
    "thresholdedrelu": (lambda x, a: e.where(e.less(a, x), x, 0.0), (1.0,)),
    "scaledtanh": (lambda x, a, b: e.tanh(x * b) * a, (1.0, 1.0)),
    "hardsigmoid": (hard_sigmoid, (0.2, 0.5)),
    "hardswish": (lambda x, a, b: x * hard_sigmoid(x, a, b), (1 / 6, 0.5)),
    "elu": (elu, (1.0,)),
    "softsign": (lambda x: x / (e.absolute(x) + 1.0), ()),
    "softplus": (lambda x: activations.softplus(x), ()),
    "mish": (lambda x: activations.mish(x), ()),
    "clip": (lambda x, a, b: e.minimum(e.maximum(x, a), b), (-math.inf, math.inf)),
}


def activation(name: str, numbers: Sequence[float] = ()) -> Callable[[Op], Op]:
    """The function of this name, in any case, with numbers in front of its defaults. Raises GraphError where there is none."""
    if name.lower() not in ACTIVATIONS:
        raise GraphError(f"there is no activation {name!r}", fix=f"there are {', '.join(ACTIVATIONS)}")
    function, defaults = ACTIVATIONS[name.lower()]
    given = [*numbers[: len(defaults)], *defaults[len(numbers) :]]
    return lambda x: function(x, *given)


# functions of one op without numbers
FUNCTIONS: dict[str, Callable[[Op], Op]] = {
    "negative": lambda x: e.negative(x) if x.dtype.kind in ("int", "float") else e.filled(0, (), x.dtype) - x,
    **{name: getattr(functions, name) for name in "ceil tan sinh cosh asin acos asinh acosh atanh".split()},
    "sign": lambda x: e.cast(e.less(0, x), x.dtype) if x.dtype.kind == "uint" else e.sign(x),
    "is_nan": functions.isnan,
}


def shrunk(x: Op, bias: float, lambd: float) -> Op:
    """0 from -lambd to lambd, else nearer to 0 by the bias."""
    wide = x if x.dtype.is_float else e.cast(x, dtypes.float32)
    return e.cast(e.where(e.less(wide, -lambd), wide + bias, e.where(e.less(lambd, wide), wide - bias, 0.0)), x.dtype)


def is_one_of(x: Op, numbers: Sequence[float]) -> Op:
    """Whether each element is one of these numbers."""
    found = e.filled(False, x.axes, dtypes.bool_)
    for number in numbers:
        found = e.logical_or(found, e.equal(x, number))
    return found


def clipped(x: Op, low: Any, high: Any) -> Op:
    """x held between two numbers or scalars; None leaves an end open."""
    x = x if low is None else e.maximum(x, low)
    return x if high is None else e.minimum(x, high)


def dropout(g: Any, t: Tensor, rate: float, seed: int | None) -> tuple[Tensor, Tensor]:
    """Some elements made 0, the others larger by their share; and which are kept."""
    draw = uniform(t.op.axes, dtype=dtypes.float32, **({} if seed is None else {"seed": seed}))
    keep = e.less_equal(rate, draw)
    return Tensor(e.where(keep, t.op * (1 / (1 - rate)), 0.0), t.dims), Tensor(keep, t.dims)


# ---- casts --------------------------------------------------------------------------------------------------------------


def casted(g: Any, x: Value, target: Any) -> Value:
    """x as another NumPy dtype: integers wrap, floats to integers truncate; strings are read as numbers, numbers written as strings."""
    source = np.dtype(x.np)
    if source == target and not isinstance(x, Sizes):
        return x
    if target.hasobject or (source.hasobject and not isinstance(x, Sizes)):
        if isinstance(x, ConstantArray):
            return ConstantArray(cast_text(x.array, target))
        return g.host("Cast", lambda a: cast_text(a, target), [x], [target])[0]
    t = g.tensor(x)
    return Tensor(e.cast(t.op, as_dtype(target)), t.dims)


def cast_text(a: np.ndarray[Any, Any], target: Any) -> np.ndarray[Any, Any]:
    """Strings of numbers, and numbers of strings."""
    if np.dtype(target).hasobject:
        if a.dtype.hasobject:
            return a
        if a.dtype.kind not in "iub":
            wide = a.astype(np.float32) if a.dtype.itemsize <= 4 else a
            texts = [float_text(v) for v in wide.ravel()]
        else:
            texts = [str(v) for v in a.ravel()]
        return np.array(texts, object).reshape(a.shape)
    if np.dtype(target).kind in "iu":
        return np.array([int(float(v)) if not v.lstrip("+-").isdigit() else int(v) for v in a.ravel()]).astype(target).reshape(a.shape)
    if np.dtype(target).kind == "b":
        return np.array([bool(v) for v in a.ravel()]).reshape(a.shape)
    return np.array([float(v) for v in a.ravel()]).astype(target).reshape(a.shape)


def float_text(v: Any) -> str:
    """A float as ONNX and NumPy write it."""
    if np.isnan(v):
        return "NaN"
    if np.isinf(v):
        return "INF" if v > 0 else "-INF"
    return np.format_float_positional(v, trim="-") if 1e-4 <= abs(v) < 1e8 or v == 0 else np.format_float_scientific(v, trim="-")


def as_narrow(x: Op, target: DType, saturate: bool, mode: str = "up") -> Op:
    """A cast to a narrow dtype; `mode`, `up`, `down` or `nearest`, is for powers of two alone (float8_e8m0fnu).

    Floats become integers in two steps, so that only the low bits stay of what does not fit, as the standard's tests have it.
    """
    assert target.form is not None
    if target.python is int:
        return e.cast(e.cast(x, dtypes.int32) if x.dtype.python is float else x, target)
    if target.form.special != "power":
        return e.cast(x, target, saturate=saturate)
    if mode not in ("up", "down", "nearest"):
        raise GraphError(f"there is no round_mode {mode!r}", fix="there are up, down and nearest")
    bits = e.bitcast(e.cast(x, dtypes.float32), dtype=dtypes.uint32)
    exponent = e.bitwise(e.bitwise(bits, 23, kind="shr"), 0xFF, kind="and")
    fraction = e.bitwise(bits, 0x7FFFFF, kind="and")
    half = 0x400000
    if mode != "down":
        more = e.less(0 if mode == "up" else half, fraction)
        if mode == "nearest":
            more = e.logical_or(more, e.logical_and(e.equal(fraction, half), e.less(0, exponent)))
        exponent = exponent + e.cast(e.logical_and(more, e.less(exponent, 0xFE if saturate else 0xFF)), dtypes.uint32)
    return e.bitcast(e.cast(exponent, dtypes.uint8), dtype=target)


def bitcast(x: Op, target: DType) -> Op:
    """The bits of x as another dtype of the same size; bools are bytes."""
    if x.dtype.kind == "bool":
        return e.bitcast(e.cast(x, dtypes.uint8), dtype=target)
    if target.kind == "bool":
        return e.not_equal(e.bitcast(x, dtype=dtypes.uint8), 0)
    return x if x.dtype is target else e.bitcast(x, dtype=target)

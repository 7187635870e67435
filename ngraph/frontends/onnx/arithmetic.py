"""Translators of ops that work on each element by itself, and of reductions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from ngraph.errors import GraphError
from ngraph.frontends.onnx.proto import numpy_type
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional.values import ConstantArray, Sizes, StringInput, Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axis
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.op import Op
from ngraph.ops import activations, sorting
from ngraph.ops import elementwise as e
from ngraph.ops.random import uniform
from ngraph.ops.rearrange import flip, iota
from ngraph.ops.reduce import count, reduce

# ---- two operands, and any number ---------------------------------------------------------------------------------------


def _old_broadcast(n: Any, a: Value, b: Value) -> Value:
    """Before version 7 the second operand stood at `axis` of the first."""
    axis = n.attr("axis")
    if n.version >= 7 or not n.attr("broadcast", 0) or axis is None:
        return b
    t = n.g.tensor(b)
    axis = axis + a.rank if axis < 0 else axis
    return Tensor(t.op, [*t.dims, *[None] * (a.rank - axis - t.rank)])


def binary(*names: str, **options: Any) -> Callable[[Callable[..., Op]], Any]:
    """A translator from a function of two ops whose axes have met."""

    def add(function: Callable[..., Op]) -> Any:
        def translate(n: Any, a: Value, b: Value) -> Tensor:
            (x, y), dims = n.g.align(a, _old_broadcast(n, a, b))
            return n.g.made(function(n, x, y), dims)

        translates(*names, **options)(translate)
        return function

    return add


def each(function: Callable[..., Op], *names: str, **options: Any) -> None:
    """A translator from a function of one op, which works on each element by itself."""

    def translate(n: Any, x: Value) -> Tensor:
        t = n.g.tensor(x)
        return Tensor(function(n, t.op), t.dims)

    translates(*names, **options)(translate)


for _name, _record in (("Add", e.add), ("Sub", e.subtract), ("Mul", e.multiply)):
    binary(_name)(lambda n, x, y, f=_record: f(x, y))
binary("Greater")(lambda n, x, y: e.greater(x, y))
binary("Less")(lambda n, x, y: e.less(x, y))
binary("GreaterOrEqual")(lambda n, x, y: e.greater_equal(x, y))
binary("LessOrEqual")(lambda n, x, y: e.less_equal(x, y))
binary("And")(lambda n, x, y: e.logical_and(x, y))
binary("Or")(lambda n, x, y: e.logical_or(x, y))
binary("Xor")(lambda n, x, y: e.bitwise(x, y, kind="xor"))
binary("BitwiseAnd")(lambda n, x, y: e.bitwise(x, y, kind="and"))
binary("BitwiseOr")(lambda n, x, y: e.bitwise(x, y, kind="or"))
binary("BitwiseXor")(lambda n, x, y: e.bitwise(x, y, kind="xor"))


@binary("BitShift")
def _shift(n: Any, x: Op, y: Op) -> Op:
    return e.bitwise(x, y, kind="shl" if n.attr("direction") == "LEFT" else "shr")


@translates("Equal")
def equal(n: Any, a: Value, b: Value) -> Value:
    if isinstance(a, StringInput) or isinstance(b, StringInput) or np.dtype(a.np) == object:
        return n.g.host("Equal", lambda x, y: np.equal(x, y), [a, b], [np.bool_])[0]
    (x, y), dims = n.g.align(a, _old_broadcast(n, a, b))
    return n.g.made(e.equal(x, y), dims)


def truncated(x: Op, y: Op) -> Op:
    """The whole part of x / y for integers."""
    q = e.divide.build(x, y)
    if x.dtype.kind == "uint":
        return q
    # the floor is one too low where the signs differ and something is left
    low = e.logical_and(e.not_equal(q * y, x), e.not_equal(e.less(x, 0), e.less(y, 0)))
    return q + e.cast(low, x.dtype)


@binary("Div")
def _div(n: Any, x: Op, y: Op) -> Op:
    return e.divide(x, y) if x.dtype.is_float else truncated(x, y)


@binary("Mod")
def _mod(n: Any, x: Op, y: Op) -> Op:
    if not n.attr("fmod", 0) and not x.dtype.is_float:
        return e.remainder(x, y)
    if x.dtype.is_float:
        r = e.remainder(e.absolute(x), e.absolute(y)) if n.attr("fmod", 0) else e.remainder(x, y)
        return e.where(e.less(x, 0.0), -r, r) if n.attr("fmod", 0) else r
    return x - truncated(x, y) * y


WHOLE_POWERS: dict[float, Callable[[Op], Op]] = {
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    0.5: lambda x: e.sqrt(x),
    -1: lambda x: e.reciprocal(x),
}


@translates("Pow")
def power(n: Any, a: Value, b: Value) -> Tensor:
    """The exponent may be of another dtype; small whole ones are products."""
    (x, y), dims = n.g.align(a, _old_broadcast(n, a, b))
    if isinstance(b, ConstantArray) and b.array.size == 1 and x.dtype.is_float and float(b.array.ravel()[0]) in WHOLE_POWERS:
        k = float(b.array.ravel()[0])
        return n.g.made(WHOLE_POWERS[k](x), dims)
    meet = x.dtype
    if y.dtype is not meet:
        meet = y.dtype if y.dtype.is_float and not x.dtype.is_float else dtypes.promote(x.dtype, y.dtype)
    return n.g.made(e.cast(e.power(e.cast(x, meet), e.cast(y, meet)), x.dtype), dims)


def many(name: str, function: Callable[[Op, Op], Op]) -> None:
    def translate(n: Any, *values: Value) -> Tensor:
        ops, dims = n.g.align(*values)
        total = ops[0]
        for op in ops[1:]:
            total = function(total, op)
        return n.g.made(e.divide(total, len(ops)) if name == "Mean" else total, dims)

    translates(name)(translate)


many("Max", e.maximum)
many("Min", e.minimum)
many("Sum", e.add)
many("Mean", e.add)


@translates("Where")
def where(n: Any, c: Value, a: Value, b: Value) -> Value:
    if np.dtype(a.np) == object and not isinstance(a, Sizes):
        return n.g.host("Where", np.where, [c, a, b], [object])[0]
    (p, x, y), dims = n.g.align(c, a, b)
    return n.g.made(e.where(p, x, y), dims)


@translates("PRelu")
def prelu(n: Any, a: Value, slope: Value) -> Tensor:
    s = n.g.tensor(slope)
    if n.version < 7 and s.rank == 1 and a.rank > 2:
        s = Tensor(s.op, [*s.dims, *[None] * (a.rank - 2)])
    (x, y), dims = n.g.align(a, s)
    return n.g.made(e.where(e.less(x, 0), x * y, x), dims)


# ---- one operand --------------------------------------------------------------------------------------------------------


def _number(n: Any, x: Op, name: str, default: float) -> float:
    return float(n.attr(name, default))


each(lambda n, x: e.negative(x) if x.dtype.kind in ("int", "float") else x * -1, "Neg")
each(lambda n, x: x if x.dtype.is_integer else -e.floor(-x), "Ceil")
each(lambda n, x: e.divide(e.sin(x), e.cos(x)), "Tan")
each(lambda n, x: (e.exp(x) - e.exp(-x)) * 0.5 if x.dtype.bits > 32 else _sinh(x), "Sinh")
each(lambda n, x: (e.exp(x) + e.exp(-x)) * 0.5, "Cosh")
each(lambda n, x: _asin(x), "Asin")
each(lambda n, x: math.pi / 2 - _asin(x), "Acos")
each(lambda n, x: e.sign(x) * e.log1p(e.absolute(x) + x * x / (e.sqrt(x * x + 1.0) + 1.0)), "Asinh")
each(lambda n, x: e.log(x + e.sqrt((x - 1.0) * (x + 1.0))), "Acosh")
each(lambda n, x: 0.5 * (e.log1p(x) - e.log1p(-x)), "Atanh")
each(lambda n, x: e.inverted(x), "BitwiseNot")
each(lambda n, x: e.not_equal(x, x), "IsNaN")
each(lambda n, x: e.relu(x), "Relu")
each(lambda n, x: _by_sign(x), "Sign")
each(lambda n, x: e.where(e.less(x, 0), x * _number(n, x, "alpha", 0.01), x), "LeakyRelu")
each(lambda n, x: e.where(e.less(x, 0), _number(n, x, "alpha", 1.0) * e.expm1(e.minimum(x, 0.0)), x), "Elu")
each(
    lambda n, x: e.maximum(x, 0.0) + e.minimum(0.0, _number(n, x, "alpha", 1.0) * e.expm1(e.minimum(x, 0.0) / _number(n, x, "alpha", 1.0))),
    "Celu",
)
each(
    lambda n, x: (
        _number(n, x, "gamma", 1.05070102214813232421875)
        * e.where(e.less_equal(x, 0.0), _number(n, x, "alpha", 1.67326319217681884765625) * e.expm1(e.minimum(x, 0.0)), x)
    ),
    "Selu",
)
each(lambda n, x: e.minimum(e.maximum(x * _number(n, x, "alpha", 0.2) + _number(n, x, "beta", 0.5), 0.0), 1.0), "HardSigmoid")
each(lambda n, x: x * e.minimum(e.maximum(x * (1 / 6) + 0.5, 0.0), 1.0), "HardSwish")
each(lambda n, x: e.maximum(x, 0.0) + e.log1p(e.exp(-e.absolute(x))), "Softplus")
each(lambda n, x: x / (e.absolute(x) + 1.0), "Softsign")
each(lambda n, x: x * e.tanh(activations.softplus(x)), "Mish")
each(lambda n, x: e.where(e.less(_number(n, x, "alpha", 1.0), x), x, 0.0), "ThresholdedRelu")
each(lambda n, x: x * e.sigmoid(x * _number(n, x, "alpha", 1.0)), "Swish")
each(lambda n, x: _shrink(n, x), "Shrink")
each(lambda n, x: _is_infinite(n, x), "IsInf")


@translates("Gelu")
@translates("Gelu", domain="com.microsoft")
def gelu(n: Any, x: Value) -> Tensor:
    t = n.g.tensor(x)
    x = t.op
    if n.attr("approximate", "none") == "tanh":
        return Tensor(x * 0.5 * (1.0 + e.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))), t.dims)
    return Tensor(x * 0.5 * (1.0 + e.erf(x * math.sqrt(0.5))), t.dims)


def _sinh(x: Op) -> Op:
    a = e.expm1(x)
    return (a + a / (a + 1.0)) * 0.5


def _asin(x: Op) -> Op:
    """By the half angle, exact near the ends."""
    return 2.0 * e.atan(x / (1.0 + e.sqrt((1.0 - x) * (1.0 + x))))


def _by_sign(x: Op) -> Op:
    return e.cast(e.less(0, x), x.dtype) if x.dtype.kind == "uint" else e.sign(x)


def _shrink(n: Any, x: Op) -> Op:
    bias, lambd = n.attr("bias", 0.0), n.attr("lambd", 0.5)
    wide = x if x.dtype.is_float else e.cast(x, dtypes.float32)
    return e.cast(e.where(e.less(wide, -lambd), wide + bias, e.where(e.less(lambd, wide), wide - bias, 0.0)), x.dtype)


def _is_infinite(n: Any, x: Op) -> Op:
    found = e.filled(False, x.axes, dtypes.bool_)
    for name, value in (("detect_positive", np.inf), ("detect_negative", -np.inf)):
        if n.attr(name, 1):
            found = e.logical_or(found, e.equal(x, value))
    return found


@translates("Clip")
def clip(n: Any, x: Value, low: Value = None, high: Value = None) -> Tensor:
    t = n.g.tensor(x)
    op = t.op
    if n.version < 11:
        bounds: list[Any] = [n.attr("min"), n.attr("max")]
    else:
        bounds = [None if b is None else n.g.tensor(b).op for b in (low, high)]
    if bounds[0] is not None:
        op = e.maximum(op, bounds[0])
    if bounds[1] is not None:
        op = e.minimum(op, bounds[1])
    return Tensor(op, t.dims)


@translates("Cast", "CastLike")
def cast(n: Any, x: Value, like: Value = None) -> Value:
    target = np.dtype(like.np) if n.op == "CastLike" else numpy_type(_type_number(n.attr("to")))
    return casted(n, x, target)


def _type_number(to: Any) -> int:
    return int(onnx.TensorProto.DataType.Value(to)) if isinstance(to, str) else int(to)


def casted(n: Any, x: Value, target: Any) -> Value:
    source = np.dtype(x.np)
    if source == target and not isinstance(x, Sizes):
        return x
    if target.hasobject or (source.hasobject and not isinstance(x, Sizes)):
        if isinstance(x, ConstantArray):
            return ConstantArray(_cast_text(x.array, target))
        return n.g.host("Cast", lambda a: _cast_text(a, target), [x], [target])[0]
    t = n.g.tensor(x)
    return Tensor(cast_op(t.op, as_dtype(target)), t.dims)


def cast_op(x: Op, target: Any) -> Op:
    """Integers wrap, floats to integers truncate."""
    return e.cast(x, target)


def _cast_text(a: np.ndarray[Any, Any], target: Any) -> np.ndarray[Any, Any]:
    """Strings of numbers, and numbers of strings."""
    if np.dtype(target).hasobject:
        if a.dtype.hasobject:
            return a
        if a.dtype.kind not in "iub":
            wide = a.astype(np.float32) if a.dtype.itemsize <= 4 else a
            texts = [_float_text(v) for v in wide.ravel()]
        else:
            texts = [str(v) for v in a.ravel()]
        return np.array(texts, object).reshape(a.shape)
    if np.dtype(target).kind in "iu":
        return np.array([int(float(v)) if not v.lstrip("+-").isdigit() else int(v) for v in a.ravel()]).astype(target).reshape(a.shape)
    if np.dtype(target).kind == "b":
        return np.array([bool(v) for v in a.ravel()]).reshape(a.shape)
    return np.array([float(v) for v in a.ravel()]).astype(target).reshape(a.shape)


def _float_text(v: Any) -> str:
    if np.isnan(v):
        return "NaN"
    if np.isinf(v):
        return "INF" if v > 0 else "-INF"
    return np.format_float_positional(v, trim="-") if 1e-4 <= abs(v) < 1e8 or v == 0 else np.format_float_scientific(v, trim="-")


@translates("BitCast")
def bitcast(n: Any, x: Value) -> Tensor:
    target = as_dtype(numpy_type(_type_number(n.attr("to"))))
    t = n.g.tensor(x)
    if t.op.dtype.kind == "bool":
        return Tensor(e.bitcast(e.cast(t.op, dtypes.uint8), dtype=target), t.dims)
    if target.kind == "bool":
        return Tensor(e.not_equal(e.bitcast(t.op, dtype=dtypes.uint8), 0), t.dims)
    return Tensor(t.op if t.op.dtype is target else e.bitcast(t.op, dtype=target), t.dims)


@translates("Dropout")
def dropout(n: Any, x: Value, ratio: Value = None, training: Value = None) -> tuple[Value, ...]:
    """Outside training it is the identity."""
    t = n.g.tensor(x)
    if training is not None and bool(n.g.known(training)):
        rate = 0.5 if ratio is None else float(n.g.known(ratio))
        if rate:
            draw = (
                uniform(t.op.axes, dtype=dtypes.float32)
                if n.attr("seed") is None
                else uniform(t.op.axes, dtype=dtypes.float32, seed=n.attr("seed"))
            )
            keep = e.less_equal(rate, draw)
            return Tensor(e.where(keep, t.op * (1 / (1 - rate)), 0.0), t.dims), Tensor(keep, t.dims)
    kept = n.g.made(e.filled(True, t.op.axes, dtypes.bool_), t.dims)
    mask_type = dtypes.bool_ if n.version >= 10 else t.op.dtype
    return x, Tensor(e.cast(kept.op, mask_type), kept.dims)


# ---- reductions ---------------------------------------------------------------------------------------------------------


def reduced_dims(n: Any, t: Tensor, axes: Value = None, name: str = "axes") -> list[int]:
    """The dims that a reduction takes, from an input or an attribute."""
    given = n.g.ints(axes) if axes is not None else n.attr(name)
    if given is None or len(given) == 0:
        return [] if n.attr("noop_with_empty_axes", 0) else list(range(t.rank))
    wrong = [k for k in given if not -t.rank <= k < t.rank]
    if wrong:
        raise GraphError(f"there is no dim {wrong[0]} of {n.g.show(t)}")
    return [k % t.rank for k in given]


def reduce_over(g: Any, t: Tensor, dims: Sequence[int], function: Callable[[Op, tuple[Axis, ...]], Op], keep: bool) -> Tensor:
    """A function of an op and the axes that go, over dims; those of length 1 that have no axis stay as they are."""
    axes = tuple([t.dims[k] for k in dims if t.dims[k] is not None])
    op = function(t.op, axes)
    left = [None if k in dims else d for k, d in enumerate(t.dims) if keep or k not in dims]
    return Tensor(op, left)


def total(x: Op, axes: tuple[Any, ...], kind: str = "add") -> Op:
    return reduce.build(x, kind=kind, axes=axes) if axes else x


def mean(x: Op, axes: tuple[Any, ...]) -> Op:
    if not axes:
        return x
    return _in_float(lambda y: total(y, axes) / count(axes, y.dtype), x)


def log_sum_exp(x: Op, axes: tuple[Any, ...]) -> Op:
    if not axes:
        return x
    top = total(x, axes, "max")
    finite = e.where(e.less(e.absolute(top), np.inf), top, 0.0)
    return e.log(total(e.exp(x - finite), axes)) + finite


REDUCTIONS: dict[str, Callable[[Op, tuple[Any, ...]], Op]] = {
    "ReduceSum": total,
    "ReduceMean": mean,
    "ReduceProd": lambda x, axes: total(x, axes, "multiply"),
    "ReduceMax": lambda x, axes: total(x, axes, "max"),
    "ReduceMin": lambda x, axes: total(x, axes, "min"),
    "ReduceL1": lambda x, axes: total(e.absolute(x) if x.dtype.kind != "uint" else x, axes),
    "ReduceL2": lambda x, axes: _in_float(lambda y: e.sqrt(total(y * y, axes)), x),
    "ReduceSumSquare": lambda x, axes: e.rounding_once(lambda y: total(y * y, axes))(x),
    "ReduceLogSum": lambda x, axes: _in_float(lambda y: e.log(total(y, axes)), x),
    "ReduceLogSumExp": lambda x, axes: _in_float(lambda y: log_sum_exp(y, axes), x),
}


def _in_float(function: Callable[[Op], Op], x: Op) -> Op:
    """A function of floats; of integers it is computed in float64, of 16-bit floats in float32, and then has their dtype."""
    return e.rounding_once(function)(x) if x.dtype.is_float else e.cast(function(e.cast(x, dtypes.float64)), x.dtype)


@translates(*REDUCTIONS)
def reduction(n: Any, x: Value, axes: Value = None) -> Value:
    t = n.g.tensor(x)
    dims = reduced_dims(n, t, axes)
    if not dims and n.attr("noop_with_empty_axes", 0):
        dims = []
        if n.op in ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceLogSumExp"):
            return t
    return reduce_over(n.g, t, dims, REDUCTIONS[n.op], bool(n.attr("keepdims", 1)))


@translates("ArgMax", "ArgMin")
def argmax(n: Any, x: Value) -> Tensor:
    t = n.g.tensor(x)
    k = n.attr("axis", 0) % t.rank
    kind = n.op[3:].lower()

    def best(op: Op, axes: tuple[Axis, ...]) -> Op:
        if not axes:
            return e.filled(0, op.axes, dtypes.int64)
        if n.attr("select_last_index", 0):
            (axis,) = axes
            found = sorting.argreduce.build(flip(op, axis), kind=kind, axes=axes)
            return count(axes, dtypes.int64) - 1 - e.cast(found, dtypes.int64)
        return e.cast(sorting.argreduce.build(op, kind=kind, axes=axes), dtypes.int64)

    return reduce_over(n.g, t, [k], best, bool(n.attr("keepdims", 1)))


# ---- along axes, with the shape kept ------------------------------------------------------------------------------------


def softmax_over(x: Op, axes: tuple[Any, ...], log: bool = False) -> Op:
    if not axes:
        return e.filled(0 if log else 1, x.axes, x.dtype)

    def shares(x: Op) -> Op:
        shifted = x - total(x, axes, "max")
        if log:
            return shifted - e.log(total(e.exp(shifted), axes))
        y = e.exp(shifted)
        return y / total(y, axes)

    return e.rounding_once(shares)(x)


@translates("Softmax", "LogSoftmax", "Hardmax")
def softmax(n: Any, x: Value) -> Tensor:
    """From version 13 on along one dim; before along all dims from `axis` on."""
    t = n.g.tensor(x)
    axis = n.attr("axis", -1 if n.version >= 13 else 1)
    axis = axis % t.rank if t.rank else 0
    dims = [axis] if n.version >= 13 else range(axis, t.rank)
    axes = tuple([t.dims[k] for k in dims if t.dims[k] is not None])
    if n.op == "Hardmax":
        return Tensor(_hardmax(t.op, axes), t.dims)
    return Tensor(softmax_over(t.op, axes, n.op == "LogSoftmax"), t.dims)


def _hardmax(x: Op, axes: tuple[Any, ...]) -> Op:
    if not axes:
        return e.filled(1, x.axes, x.dtype)
    place = iota(axes[0])
    for a in axes[1:]:
        place = place * count((a,), dtypes.int32) + iota(a)
    return e.cast(e.equal(sorting.argreduce.build(x, kind="max", axes=axes), place), x.dtype)


@translates("CumSum", "CumProd")
def cumulate(n: Any, x: Value, axis: Value) -> Tensor:
    t = n.g.tensor(x)
    k = int(n.g.known(axis).ravel()[0]) % t.rank
    if t.dims[k] is None:
        start = 0 if n.op == "CumSum" else 1
        return Tensor(e.filled(start, t.op.axes, t.op.dtype), t.dims) if n.attr("exclusive", 0) else t
    kind = "add" if n.op == "CumSum" else "multiply"
    exclusive, reverse = bool(n.attr("exclusive", 0)), bool(n.attr("reverse", 0))
    return Tensor(sorting.cumulate.build(t.op, kind=kind, axis=t.dims[k], exclusive=exclusive, reverse=reverse), t.dims)


@translates("LpNormalization")
def lp_normalization(n: Any, x: Value) -> Tensor:
    t = n.g.tensor(x)
    axis = t.dims[n.attr("axis", -1) % t.rank]
    axes = () if axis is None else (axis,)

    def directions(x: Op) -> Op:
        size = total(e.absolute(x), axes) if n.attr("p", 2) == 1 else e.sqrt(total(x * x, axes))
        return e.where(e.equal(size, 0.0), 0.0, x / size)

    return Tensor(e.rounding_once(directions)(t.op), t.dims)

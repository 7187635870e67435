"""Translators of ops that work on each element by itself, and of reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ngraph.export.onnx import package as onnx
from ngraph.frontends.onnx.proto import numpy_type
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional import elementwise as by_element
from ngraph.frontends.positional import reductions
from ngraph.frontends.positional.reductions import REDUCTIONS, along, dims_of, reduce_over
from ngraph.frontends.positional.values import Sizes, StringInput, Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e

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
            return by_element.each(n.g, lambda x, y: function(n, x, y), a, _old_broadcast(n, a, b))

        translates(*names, **options)(translate)
        return function

    return add


def each(function: Callable[..., Op], *names: str, **options: Any) -> None:
    """A translator from a function of one op, which works on each element by itself."""

    def translate(n: Any, x: Value) -> Tensor:
        return by_element.alone(n.g, lambda op: function(n, op), x)

    translates(*names, **options)(translate)


_OF_TWO = (e.add, e.subtract, e.multiply, e.greater, e.less, e.greater_equal, e.less_equal, e.logical_and, e.logical_or)
for _name, _record in zip("Add Sub Mul Greater Less GreaterOrEqual LessOrEqual And Or".split(), _OF_TWO, strict=True):
    binary(_name)(lambda n, x, y, f=_record: f(x, y))
for _name, _kind in (("Xor", "xor"), ("BitwiseAnd", "and"), ("BitwiseOr", "or"), ("BitwiseXor", "xor")):
    binary(_name)(lambda n, x, y, kind=_kind: e.bitwise(x, y, kind=kind))
binary("BitShift")(lambda n, x, y: e.bitwise(x, y, kind="shl" if n.attr("direction") == "LEFT" else "shr"))
binary("Div")(lambda n, x, y: by_element.divide(x, y))
binary("Mod")(lambda n, x, y: by_element.remainder(x, y, bool(n.attr("fmod", 0))))


@translates("Equal")
def equal(n: Any, a: Value, b: Value) -> Value:
    if isinstance(a, StringInput) or isinstance(b, StringInput) or np.dtype(a.np) == object:
        return n.g.host("Equal", lambda x, y: np.equal(x, y), [a, b], [np.bool_])[0]
    return by_element.each(n.g, e.equal, a, _old_broadcast(n, a, b))


@translates("Pow")
def power(n: Any, a: Value, b: Value) -> Tensor:
    return by_element.power(n.g, a, _old_broadcast(n, a, b))


for _name, _function in (("Max", e.maximum), ("Min", e.minimum), ("Sum", e.add), ("Mean", e.add)):
    translates(_name)(lambda n, *values, f=_function: by_element.folded(n.g, f, values, n.op == "Mean"))


@translates("Where")
def where(n: Any, c: Value, a: Value, b: Value) -> Value:
    if np.dtype(a.np) == object and not isinstance(a, Sizes):
        return n.g.host("Where", np.where, [c, a, b], [object])[0]
    return by_element.each(n.g, e.where, c, a, b)


@translates("PRelu")
def prelu(n: Any, a: Value, slope: Value) -> Tensor:
    s = n.g.tensor(slope)
    if n.version < 7 and s.rank == 1 and a.rank > 2:
        s = Tensor(s.op, [*s.dims, *[None] * (a.rank - 2)])
    return by_element.each(n.g, by_element.leaky_relu, a, s)


# ---- one operand --------------------------------------------------------------------------------------------------------


def _plain(functions: dict[str, Callable[[Op], Op]], names: str) -> None:
    """Translators from functions of one op, `ONNX's name=ours`."""
    for pair in names.split():
        name, _, ours = pair.partition("=")
        key = ours or name.lower()
        each(lambda n, x, f=functions[key]: f(x), name)


_plain(by_element.FUNCTIONS, "Neg=negative Ceil Tan Sinh Cosh Asin Acos Asinh Acosh Atanh Sign IsNaN=is_nan")


def _activation(name: str, *numbers: tuple[str, float]) -> None:
    """A translator from an activation, of attributes with these defaults."""
    each(lambda n, x: by_element.activation(name, [float(n.attr(a, default)) for a, default in numbers])(x), name)


for _name in ("Relu", "HardSwish", "Softplus", "Softsign", "Mish"):
    _activation(_name)
_activation("LeakyRelu", ("alpha", 0.01))
_activation("Elu", ("alpha", 1.0))
_activation("HardSigmoid", ("alpha", 0.2), ("beta", 0.5))
_activation("ThresholdedRelu", ("alpha", 1.0))
each(lambda n, x: by_element.celu(x, float(n.attr("alpha", 1.0))), "Celu")
each(lambda n, x: by_element.selu(x, n.attr("alpha", 1.67326319217681884765625), n.attr("gamma", 1.05070102214813232421875)), "Selu")
each(lambda n, x: x * e.sigmoid(x * float(n.attr("alpha", 1.0))), "Swish")
each(lambda n, x: e.inverted(x), "BitwiseNot")
each(lambda n, x: by_element.shrunk(x, n.attr("bias", 0.0), n.attr("lambd", 0.5)), "Shrink")
for _domain in ("", "com.microsoft"):
    each(lambda n, x: by_element.gelu(x, n.attr("approximate", "none") == "tanh"), "Gelu", domain=_domain)


@translates("IsInf")
def is_infinite(n: Any, x: Value) -> Tensor:
    wanted = [value for name, value in (("detect_positive", np.inf), ("detect_negative", -np.inf)) if n.attr(name, 1)]
    return by_element.alone(n.g, lambda op: by_element.is_one_of(op, wanted), x)


@translates("Clip")
def clip(n: Any, x: Value, low: Value = None, high: Value = None) -> Tensor:
    bounds = [n.attr("min"), n.attr("max")] if n.version < 11 else [None if b is None else n.g.tensor(b).op for b in (low, high)]
    return by_element.alone(n.g, lambda op: by_element.clipped(op, *bounds), x)


@translates("Cast", "CastLike")
def cast(n: Any, x: Value, like: Value = None) -> Value:
    """To narrow floats, from version 19 on, with `saturate` and `round_mode`."""
    source, target = np.dtype(x.np), np.dtype(like.np) if n.op == "CastLike" else numpy_type(_type_number(n.attr("to")))
    plain = target == source or target.hasobject or source.hasobject or target.isbuiltin == 1 or as_dtype(target).kind != "narrow"
    if plain or n.version < 19:
        return by_element.casted(n.g, x, target)
    saturate, mode = bool(n.attr("saturate", 1)), n.attr("round_mode", "up")
    return by_element.alone(n.g, lambda op: by_element.as_narrow(op, as_dtype(target), saturate, mode), x)


def _type_number(to: Any) -> int:
    return int(onnx.TensorProto.DataType.Value(to)) if isinstance(to, str) else int(to)


@translates("BitCast")
def bitcast(n: Any, x: Value) -> Tensor:
    target = as_dtype(numpy_type(_type_number(n.attr("to"))))
    return by_element.alone(n.g, lambda op: by_element.bitcast(op, target), x)


@translates("Dropout")
def dropout(n: Any, x: Value, ratio: Value = None, training: Value = None) -> tuple[Value, ...]:
    """Outside training it is the identity."""
    t = n.g.tensor(x)
    if training is not None and bool(n.g.known(training)):
        rate = 0.5 if ratio is None else float(n.g.known(ratio))
        if rate:
            return by_element.dropout(n.g, t, rate, n.attr("seed"))
    kept = n.g.made(e.filled(True, t.op.axes, dtypes.bool_), t.dims)
    return x, Tensor(e.cast(kept.op, dtypes.bool_ if n.version >= 10 else t.op.dtype), kept.dims)


# ---- reductions ---------------------------------------------------------------------------------------------------------


UNCHANGED = ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceLogSumExp")  # what is over no dims


def reduced_dims(n: Any, t: Tensor, axes: Value = None) -> list[int]:
    """The dims that a reduction takes, from an input or an attribute."""
    given = n.g.ints(axes) if axes is not None else n.attr("axes")
    if given is None or len(given) == 0:
        return [] if n.attr("noop_with_empty_axes", 0) else list(range(t.rank))
    return list(dict.fromkeys(dims_of(n.g, t, given)))  # a dim that is named twice counts once, as in ONNX Runtime


@translates(*["Reduce" + kind for kind in "Sum Mean Prod Max Min L1 L2 SumSquare LogSum LogSumExp".split()])
def reduction(n: Any, x: Value, axes: Value = None) -> Value:
    t = n.g.tensor(x)
    dims = reduced_dims(n, t, axes)
    if not dims and n.attr("noop_with_empty_axes", 0) and n.op in UNCHANGED:
        return t
    return reduce_over(t, dims, REDUCTIONS[n.op.removeprefix("Reduce").lower()], bool(n.attr("keepdims", 1)))


@translates("ArgMax", "ArgMin")
def argmax(n: Any, x: Value) -> Tensor:
    t, kind, last = n.g.tensor(x), n.op[3:].lower(), bool(n.attr("select_last_index", 0))
    k = n.attr("axis", 0) % t.rank
    return reduce_over(t, [k], lambda op, axes: reductions.best(op, axes, kind, last), bool(n.attr("keepdims", 1)))


# ---- along axes, with the shape kept ------------------------------------------------------------------------------------


@translates("Softmax", "LogSoftmax", "Hardmax")
def softmax(n: Any, x: Value) -> Tensor:
    """From version 13 on along one dim; before along all dims from `axis` on."""
    t = n.g.tensor(x)
    axis = n.attr("axis", -1 if n.version >= 13 else 1)
    axis = axis % t.rank if t.rank else 0
    axes = along(t, [axis] if n.version >= 13 and t.rank else range(axis, t.rank))
    if n.op == "Hardmax":
        return Tensor(reductions.hardmax(t.op, axes), t.dims)
    return Tensor(reductions.softmax(t.op, axes, n.op == "LogSoftmax"), t.dims)


@translates("CumSum", "CumProd")
def cumulate(n: Any, x: Value, axis: Value) -> Tensor:
    t = n.g.tensor(x)
    k = int(n.g.known(axis).ravel()[0]) % t.rank
    exclusive, reverse = bool(n.attr("exclusive", 0)), bool(n.attr("reverse", 0))
    return reductions.cumulated(t, k, "add" if n.op == "CumSum" else "multiply", exclusive, reverse)


@translates("LpNormalization")
def lp_normalization(n: Any, x: Value) -> Tensor:
    t = n.g.tensor(x)
    return Tensor(reductions.direction(t.op, along(t, [n.attr("axis", -1) % t.rank]), n.attr("p", 2)), t.dims)

"""Elementwise ops: arithmetic, comparisons, functions; and the operators of `Op`.

Operands are matched by axis name and may lack axes of the result. Promotion (docs/spec.md 4) inserts casts here. The ops of the first
half are core; those of the second half lower to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import reduce as fold_left
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ngraph.errors import ArgumentTypeError, AxisError, DTypeError, NgraphError, NoTensor
from ngraph.op_graph import dtypes
from ngraph.op_graph.arrays import ArrayRef, as_array, content_of
from ngraph.op_graph.axes import Axes, make_axis, show_axes
from ngraph.op_graph.dtypes import DType, accumulator, as_dtype
from ngraph.op_graph.expr import Expr, evaluate
from ngraph.op_graph.labelled import arranged, axes_of
from ngraph.op_graph.op import Op, TensorType
from ngraph.op_graph.opdef import REGISTRY, Call, OpDef, op
from ngraph.ops.aligned import elementwise_reference, union

NUMERIC = ("float", "int", "uint")
ALL = ("float", "int", "uint", "bool")
MOVED = (*ALL, "narrow")
WHOLE = ("int", "uint", "bool")

# ---- constants, and conversion of users' values to ops ---------------------------------------------------------------


def _constant_reference(call: Call) -> np.ndarray:
    value = call.attrs["value"]
    if type(value) is ArrayRef:
        return value.array.reshape(call.shape(call.axes))
    if isinstance(value, Expr):
        value = evaluate(value, lambda leaf: call.length(leaf.of))
    return np.full(call.shape(call.axes), value).astype(call.dtype.np)


constant_record: OpDef = op(
    "constant",
    "`value` is a Python number or an Expr over `Len`, filled over `axes`; or an ArrayRef whose dims are `axes` in order.",
    form="(; value, axes, dtype)",
    type=lambda inputs, value, axes, dtype: TensorType(axes, dtype),
    reference=_constant_reference,
    samples=lambda s: [
        constant(2, (s.I, s.Z), dtype=s.dtype),
        constant(1, (), dtype=s.dtype),
        constant(np.ones((3, 4)), (s.I, s.J), dtype=s.dtype),
        constant(np.zeros((3, 40)), dtype=s.dtype),
    ],
    kinds=MOVED,
)


def constant(
    const: Any,
    axes: Any = None,
    dtype: Any = None,
    name: str | None = None,
    docstring: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Op:
    """Returns a constant tensor.

    const: a number, filled over `axes`; or an array, whose shape must be the lengths of `axes`. An array alone makes fresh axes.
    An array with named dims, such as xarray's, is matched to `axes` by name, or makes axes of these names.
    dtype: default: the array's own, float32 for Python numbers. docstring, metadata: notes for `op.metadata`.
    Raises AxisError where shape and axes disagree.

    >>> ng.constant([[1, 2], [3, 4]], "H=2 W=2")
    <constant: int64[H=2, W=2]>
    """
    return _constant(const, axes, dtype).described(name, docstring, metadata)


def _constant(const: Any, axes: Any, dtype: Any) -> Op:
    if isinstance(const, Op):
        return const
    if isinstance(const, (bool, int, float)) and not isinstance(const, np.generic):
        d = as_dtype(dtype) if dtype is not None else dtypes.bool_ if isinstance(const, bool) else dtypes.float32
        dtypes.check_fits("a constant", const, d)
        return filled(const, axes, d)
    axes = axes_of(const, Axes()) if axes is None else axes
    array = array_of(const if axes is None else arranged(const, Axes(axes), "a constant"), "a constant")
    if array.dtype.kind in "OSUMmc":
        raise NoTensor(
            f"a constant of {type(const).__name__} {const!r} is not an array of numbers", fix="give numbers, or np.asarray of them"
        )
    d = as_dtype(dtype if dtype is not None else array.dtype)
    if dtype is not None:
        dtypes.check_fits("a constant", array, d)
    array = array if d.np == array.dtype and content_of(array) is not None else dtypes.cast_array(array, d)
    if axes is None:
        axes = Axes(make_axis(n) for n in array.shape)
    axes = Axes(axes)
    for axis, n in zip(axes, array.shape, strict=False):
        if axis.length is None and len(axes) == array.ndim:
            axis.length = n
    if array.shape == () and axes:
        return filled(array[()].item(), axes, d)
    if array.shape != axes.lengths:
        raise AxisError(
            f"a constant of shape {array.shape} does not have the shape of its axes {show_axes(axes)}",
            fix="give the axes in the array's order",
        )
    return constant_record.build(value=ArrayRef(array, ours=True), axes=axes, dtype=d)


def array_of(x: Any, what: str) -> np.ndarray:
    """Returns `x` as an array. Raises DTypeError, in which `what` names it, for rows of unequal lengths."""
    try:
        return as_array(x)
    except ValueError as error:
        if isinstance(x, (list, tuple)) and any(isinstance(part, Op) for part in x):
            raise NoTensor(f"{what} of a list of ops is not an array", fix="make one tensor of them: ng.stack(ops, axis)") from None
        if isinstance(error, NgraphError):
            raise
        raise DTypeError(f"{what} of rows of different lengths is not an array", fix="give rows of one length, or pad them") from None


def filled(number: Any, axes: Any, dtype: DType) -> Op:
    """Returns a number filled over axes, stored as a Python number of the dtype's kind."""
    return constant_record.build(value=dtype.python(number), axes=Axes(axes), dtype=dtype)


def as_op(x: Any) -> Op:
    """Returns `x` itself if it is an op, else a constant of it.

    >>> ng.as_op(3.5)
    <constant: float32[]>
    """
    return x if isinstance(x, Op) else constant(x)


def as_ops(xs: Any) -> tuple[Op, ...]:
    """Returns each of them as an op, as `as_op` does.

    >>> [op.dtype for op in ng.as_ops([1, 2.0])]
    [float32, float32]
    """
    return tuple(as_op(x) for x in xs)


def like(x: Any, other: Op) -> Op:
    """Returns an operand beside the tensor `other` as an op: a number takes its dtype by weak promotion, an array its axes."""
    if isinstance(x, Op):
        return x
    if isinstance(x, (bool, int, float)):
        return constant(
            x if not isinstance(x, np.generic) else x.item(), dtype=dtypes.weak(type(x) if type(x) in (bool, int) else float, other.dtype)
        )
    named = axes_of(x, other.axes)
    if named is not None:
        return constant(x, named)
    array = array_of(x, "an array")
    if array.shape == ():
        return constant(array, ())
    if array.shape != other.axes.lengths:
        raise AxisError(
            f"an array of shape {array.shape} meets {other.label} {show_axes(other.axes)}, and its axes are not given",
            fix="give it axes: ng.constant(array, [...])",
        )
    return constant(array, other.axes)


# ---- promotion ------------------------------------------------------------------------------------------------------


_uncast: WeakKeyDictionary[Op, Op] = WeakKeyDictionary()  # a constant of another dtype -> the constant that it was cast from


def uncast(x: Op) -> Op:
    """Returns the constant that `cast` made this constant of; any other op itself."""
    while x.is_constant and x in _uncast:
        x = _uncast[x]
    return x


def cast(x: Any, dtype: Any, saturate: bool = False) -> Op:
    """Returns `x` cast to another element type; floats to integers truncate and saturate (docs/spec.md 3). Identity for an equal dtype.

    saturate: values beyond the largest number of a float type become that number, not infinity or NaN.

    >>> ng.function(ng.cast(ng.constant([1.7, -1.7], "H=2"), "int32"))()
    ComputedArray([ 1, -1], dtype=int32)
    """
    x, d = as_op(x), as_dtype(dtype)
    if x.dtype is d:
        return x
    if saturate and d.python is float and x.dtype.kind != "bool":
        x = cast(x, dtypes.float32) if x.dtype.kind == "narrow" or x.dtype.is_integer and x.dtype.bits < 32 else x
        top = float(np.nextafter(d.np.type(np.inf), d.np.type(0))) if d.is_float else d.highest
        if x.dtype.highest > top:
            x = minimum(maximum(x, x.dtype.python(max(-top, x.dtype.lowest))), x.dtype.python(top))
    if x.opdef is constant_record and isinstance(x.attrs["value"], (bool, int, float)) and d.kind == "float":
        made = filled(x.attrs["value"], x.type.axes, d)  # the number itself, not rounded twice
        _uncast[made] = x
        return made
    return cast_record.build(x, dtype=d)


def rounding_once(function: Callable[..., Op]) -> Callable[..., Op]:
    """Returns `function` of ops of one float dtype such that 16-bit floats are computed in float32 and the result is rounded once."""

    def made(*inputs: Op) -> Op:
        kind = inputs[0].dtype
        wide = accumulator(kind)
        return function(*inputs) if wide is kind else cast(function(*(cast(i, wide) for i in inputs)), kind)

    return made


def _reference_cast(call: Call, x: np.ndarray) -> np.ndarray:
    d = call.dtype
    source = as_dtype(x.dtype)
    with np.errstate(all="ignore"):
        if source.kind == "narrow":
            x = x.astype(np.float32 if source.python is float else np.int32)
        if d.kind == "narrow":
            return _narrowed(x, d)
        if d.is_integer and x.dtype.kind not in "iub":
            low, high = int(d.lowest), int(d.highest)
            exact = [
                0 if v != v else max(low, min(high, math.trunc(v) if math.isfinite(v) else (high if v > 0 else low)))
                for v in map(float, x.ravel())
            ]
            return np.array(exact, dtype=object).astype(d.np).reshape(x.shape) if exact else np.zeros(x.shape, d.np)
        if d.kind == "bool":
            return np.asarray(x != 0)
        return dtypes.cast_array(x, d)


def _narrowed(x: np.ndarray, d: DType) -> np.ndarray:
    """Returns numbers in a narrow dtype, converted by way of float32 as ml_dtypes does; floats to integers truncate and saturate."""
    if d.python is float:
        return x.astype(np.float32).astype(d.np)
    if x.dtype.kind not in "iub":
        x = np.trunc(np.clip(np.nan_to_num(x.astype(np.float64), nan=0.0), d.lowest, d.highest)).astype(np.int8)
    return x.astype(d.np)


cast_record: OpDef = op(
    "cast",
    "The nearest value of another element type, ties to the even one (of float8_e8m0fnu, of powers of two, to the larger; to narrow floats "
    "by way of float32); beyond the largest number "
    "infinity, NaN where a narrow type has none, that number where it has neither. Floats to integers truncate toward zero and saturate, "
    "NaN gives 0; integers to integers wrap; to bool: not zero.",
    form="(x; dtype)",
    elementwise=True,
    type=lambda inputs, dtype: TensorType(inputs[0].axes, dtype),
    reference=_reference_cast,
    grad=lambda op, dy, x: cast(dy, x.dtype) if op.dtype.is_float and x.dtype.is_float else None,
    samples=lambda s: [
        cast_record.build(x, dtype=d)
        for x in (s.x(s.I, s.J), s.x(), s.special(s.K))
        for d in (
            dtypes.float32,
            dtypes.float64,
            dtypes.int8,
            dtypes.int32,
            dtypes.uint16,
            dtypes.int64,
            dtypes.bool_,
            dtypes.bfloat16,
            dtypes.float16,
            *map(as_dtype, ("float8_e4m3fn", "float4_e2m1fn", "int4")),
        )
    ],
    kinds=MOVED,
    onnx="Cast",
)

bitcast: OpDef = op(
    "bitcast",
    "The same bits as another element type of equal width.",
    example='>>> ng.bitcast(ng.placeholder("H=3"), dtype="int32").dtype\nint32',
    form="(x; dtype)",
    elementwise=True,
    type=lambda inputs, dtype: _same_bits(inputs[0], as_dtype(dtype)),
    reference=lambda call, x: np.ascontiguousarray(x).view(call.dtype.np).reshape(x.shape),
    prepare=lambda inputs, attrs: ((as_op(inputs[0]),), {**attrs, "dtype": as_dtype(attrs["dtype"])}),
    samples=lambda s: [bitcast(s.x(s.I, s.J), dtype=f"uint{s.dtype.bits}"), bitcast(s.special(s.K), dtype=f"int{s.dtype.bits}")],
    kinds=(*NUMERIC, "narrow"),
)


def _same_bits(x: TensorType, dtype: DType) -> TensorType:
    if x.dtype.bits != dtype.bits:
        raise DTypeError(f"bitcast from {x.dtype} ({x.dtype.bits} bits) to {dtype} ({dtype.bits} bits)", fix="take a dtype as wide")
    return TensorType(x.axes, dtype)


def common(inputs: tuple[Any, ...], dtype: DType | None = None) -> tuple[Op, ...]:
    """Returns the operands as ops of one dtype: `dtype`, or the promoted one; numbers are weak, arrays take axes by shape."""
    tensors = [i for i in inputs if isinstance(i, Op)]
    if len(tensors) == len(inputs):
        first = tensors[0].dtype
        if (dtype is None or dtype is first) and {t.dtype for t in tensors} == {first}:
            return inputs
    if not tensors:
        tensors = [as_op(i) for i in inputs]
        inputs = tuple(tensors)
    anchor = max(tensors, key=lambda t: len(t.axes))
    meet = dtype or fold_left(dtypes.promote, [t.dtype for t in tensors])
    made = []
    for i in inputs:
        if not isinstance(i, Op):
            if isinstance(i, (bool, int, float)):
                if dtype is None:
                    meet = dtypes.weak(type(i) if type(i) in (bool, int) else float, meet)
            else:
                i = like(i, anchor)
                meet = dtype or dtypes.promote(meet, i.dtype)
        made.append(i)
    return tuple([cast(i, meet) if isinstance(i, Op) else _number(i, meet, anchor) for i in made])


def _number(number: Any, dtype: DType, beside: Op) -> Op:
    """Returns a number beside a tensor as an op of the common dtype. Raises DTypeError where an integer dtype cannot represent it."""
    if dtype.python is int and not (isinstance(number, int) and dtype.lowest <= number <= dtype.highest):
        dtypes.check_fits(f"a number beside {beside.label}", number, dtype, beside.label)
    return filled(number.item() if isinstance(number, np.generic) else number, (), dtype)


def arithmetic(inputs: tuple[Any, ...], attrs: dict[str, Any]) -> tuple[tuple[Op, ...], dict[str, Any]]:
    """Returns operands of one numeric dtype; bool alone becomes float32."""
    wanted = attrs.pop("dtype", None)
    ops = common(inputs, as_dtype(wanted) if wanted is not None else None)
    return (ops if ops[0].dtype.kind != "bool" else common(ops, dtypes.float32)), attrs


def any_kind(inputs: tuple[Any, ...], attrs: dict[str, Any]) -> tuple[tuple[Op, ...], dict[str, Any]]:
    """Returns operands of one dtype of any kind."""
    wanted = attrs.pop("dtype", None)
    return common(inputs, as_dtype(wanted) if wanted is not None else None), attrs


def floating(inputs: tuple[Any, ...], attrs: dict[str, Any]) -> tuple[tuple[Op, ...], dict[str, Any]]:
    """Returns operands of one float dtype; integers and bool become float32."""
    ops, attrs = any_kind(inputs, attrs)
    dtypes.computes("a function", *[o.dtype for o in ops])
    return (ops if ops[0].dtype.is_float else common(ops, dtypes.float32)), attrs


def comparable(inputs: tuple[Any, ...], attrs: dict[str, Any]) -> tuple[tuple[Op, ...], dict[str, Any]]:
    """Returns operands of one dtype; narrow ones become float32, which represents all their values."""
    inputs = tuple([cast(i, dtypes.float32) if isinstance(i, Op) and i.dtype.kind == "narrow" else i for i in inputs])
    return any_kind(_within_limits(inputs), attrs)


def _within_limits(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the operands; an integer tensor beside a number beyond its dtype becomes zeros beside a number on that side of zero."""
    tensors, numbers = [i for i in inputs if isinstance(i, Op)], [i for i in inputs if isinstance(i, int)]
    if len(tensors) != 1 or len(numbers) != 1 or not tensors[0].dtype.is_integer:
        return inputs
    d, n = tensors[0].dtype, numbers[0]
    if d.lowest <= n <= d.highest:
        return inputs
    zeros, side = filled(0, tensors[0].axes, dtypes.int32), 1 if n > d.highest else -1
    return tuple([zeros if isinstance(i, Op) else side for i in inputs])


# ---- declarations of elementwise records ------------------------------------------------------------------------------

_SHIFTS = ("shl", "shr")


def _typed(name: str, arity: int, kinds: tuple[str, ...], result: DType | None, choices: Iterable[str]) -> Callable[..., TensorType]:
    def type_rule(inputs: tuple[TensorType, ...], **attrs: Any) -> TensorType:
        if len(inputs) != arity:
            fix = f"write {name}({', '.join('xyz'[:arity])})"
            raise ArgumentTypeError(f"{name} takes {arity} tensor{'s' * (arity > 1)}, and got {len(inputs)}", fix=fix)
        if attrs and (set(attrs) != {"kind"} or attrs["kind"] not in choices):
            raise TypeError(f"{name} takes {'kind: ' + ', '.join(choices) if choices else 'no attribute'}, not {attrs}")
        first = inputs[0].dtype
        dtypes.computes(name, *[i.dtype for i in inputs])
        if first.kind not in kinds:
            wanted = next((d for kind, d in (("float", "float32"), ("int", "int32"), ("bool", "bool")) if kind in kinds), kinds[0])
            of_truth = "; of truth: ng.logical_and, ng.logical_or, ~(x > 0)" if name == "bitwise" else ""
            raise DTypeError(f"{name} of {first}", fix=f"cast first: ng.cast(x, '{wanted}'); {name} takes {', '.join(kinds)}{of_truth}")
        if first.kind == "bool" and attrs.get("kind") in _SHIFTS:
            raise DTypeError("a shift of bool", fix="cast first: ng.cast(x, 'int32')")
        if len(inputs) == 1:
            return inputs[0] if result is None else TensorType(inputs[0].axes, result)
        for i in inputs:
            if i.dtype is not first:
                raise DTypeError(f"{name} of {' and '.join(str(i.dtype) for i in inputs)}", fix="cast to one dtype")
        return TensorType(union(*[i.axes for i in inputs]), result or first)

    return type_rule


def elementwise(
    name: str,
    doc: str,
    function: Callable[..., Any],
    grad: Callable[..., Any] | None = None,
    *,
    arity: int = 1,
    kinds: tuple[str, ...] = ("float",),
    result: DType | None = None,
    prepare: Callable[..., Any] | None = None,
    choices: Iterable[str] = (),
    low: float = -2,
    high: float = 2,
    **fields: Any,
) -> OpDef:
    """Returns a record of an elementwise op; type, promotion, reference and samples are derived from the NumPy function."""
    if prepare is None:
        prepare = floating if kinds == ("float",) else arithmetic if "bool" not in kinds else any_kind
    fields.setdefault("form", f"({'x, y'[: 3 * arity - 2]}{'; kind' if choices else ''}){f' → {result}' if result else ''}")
    fields.setdefault("samples", lambda s: (s.unary if arity == 1 else s.binary)(record, low, high))
    if "lower" not in fields and not choices:
        fields.setdefault("numpy", f"np.{function.__name__}" if isinstance(function, np.ufunc) else function)
    record: OpDef = op(
        name,
        doc,
        type=_typed(name, arity, kinds, result, choices),
        reference=elementwise_reference(function),
        prepare=prepare,
        grad=grad,
        kinds=kinds,
        elementwise=True,
        **fields,
    )
    return record


# ---- core: arithmetic -------------------------------------------------------------------------------------------------


def _divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind in "iu":
        return np.where(y == 0, np.zeros((), x.dtype), np.floor_divide(x, np.where(y == 0, np.ones((), x.dtype), y)))
    return x / y


def _remainder(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind in "iu":
        return np.where(y == 0, np.zeros((), x.dtype), np.remainder(x, np.where(y == 0, np.ones((), x.dtype), y)))
    return np.remainder(x, y)


def _power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind not in "iu":
        return np.power(x, y)
    bits = x.dtype.itemsize * 8  # exact, wrapping; a negative exponent gives the truncated reciprocal
    wrap = (1 << bits) - 1

    def one(a: int, b: int) -> int:
        if b < 0:
            return {1: 1, -1: 1 if b % 2 == 0 else -1}.get(a, 0)
        return pow(a & wrap, b, 1 << bits)

    x, y = np.broadcast_arrays(x, y)
    values = [one(int(a), int(b)) & wrap for a, b in zip(x.ravel(), y.ravel(), strict=True)]
    return np.array(values, dtype=np.uint64).astype(f"u{x.dtype.itemsize}").view(x.dtype).reshape(x.shape)


def _ties(op: Op, dy: Op, x: Op, y: Op) -> tuple[Op, Op]:
    """Returns the gradients: the larger (smaller) operand takes dy; a tie halves it, and beside NaN both take it, as in PyTorch."""
    shared = where(equal(x, y), dy * 0.5, dy)
    unless_x_is_less, unless_y_is_less = where(less(x, y), 0.0, shared), where(less(y, x), 0.0, shared)
    return (unless_x_is_less, unless_y_is_less) if op.opdef is maximum else (unless_y_is_less, unless_x_is_less)


def _power_gradient(op: Op, dy: Op, x: Op, y: Op) -> tuple[Op, Op]:
    """Returns the gradients. By x: 0 where y is 0, since 1 is constant. By y: 0 where x is 0 and y is not negative; NaN for negative x.

    Both replace x and not the result where the gradient is 0, so that higher derivatives are not NaN there.
    """
    base = x
    if not (y.is_constant and isinstance(y.const, float) and y.const != 0):
        base = where(logical_and(equal(y, 0.0), logical_not(less(1.0 / (x * x), math.inf))), 1.0, x)
    flat = logical_and(equal(x, 0.0), less_equal(0.0, y))
    return dy * y * power(base, y - 1.0), dy * op * log(where(flat, 1.0, x))


@rounding_once
def _quotient(x: Op, y: Op) -> Op:
    """Returns floor(x / y), exact where rounding would bring x / y up to an integer (1 // 0.1 is 9)."""
    q = floor(x / y)  # right where y is 0; where y is infinite, but for a quotient below 0, which is rounded to -0
    q = where(logical_or(logical_and(less(x, 0.0), less(0.0, y)), logical_and(less(0.0, x), less(y, 0.0))), minimum(q, -1.0), q)
    plain = logical_and(less(0.0, absolute(y)), less(absolute(y), math.inf))
    times = rounded((x - remainder(x, y)) / y)
    return where(plain, where(equal(times, 0.0), stop_gradient(x / y * 0.0), times), q)  # 0 has the sign of the quotient, as in NumPy


add: OpDef = elementwise(
    "add",
    "x + y; integers wrap.",
    np.add,
    lambda op, dy, x, y: (dy, dy),
    arity=2,
    kinds=NUMERIC,
    commutes=True,
    onnx="Add",
    torch="aten.add",
)
subtract: OpDef = elementwise(
    "subtract", "x - y; integers wrap.", np.subtract, lambda op, dy, x, y: (dy, -dy), arity=2, kinds=NUMERIC, onnx="Sub"
)
multiply: OpDef = elementwise(
    "multiply",
    "x * y; integers wrap.",
    np.multiply,
    lambda op, dy, x, y: (dy * y, dy * x),
    arity=2,
    kinds=NUMERIC,
    commutes=True,
    onnx="Mul",
)
divide: OpDef = elementwise(
    "divide",
    "x / y for floats; the floor of it for integers, which is 0 where y is 0.",
    _divide,
    lambda op, dy, x, y: (dy / y, -(dy * op / y)),
    arity=2,
    kinds=NUMERIC,
    prepare=floating,
    low=0.5,
    high=3,
    samples=lambda s: s.binary(divide.build, 0.5, 3),
    numpy="np.divide",
    cost=5,
    onnx="Div",
)
remainder: OpDef = elementwise(
    "remainder",
    "x - floor(x / y) * y: the sign of y, as in Python; integers by 0 give 0.",
    _remainder,
    lambda op, dy, x, y: (dy, -(dy * _quotient(x, y))),
    arity=2,
    kinds=NUMERIC,
    low=0.6,
    high=3,
    smooth=False,
    numpy="np.remainder",
    cost=8,
)
power: OpDef = elementwise(
    "power",
    "x to the y; integers wrap, and a negative exponent gives the whole part of the reciprocal, 0 for x = 0.",
    _power,
    _power_gradient,
    arity=2,
    kinds=NUMERIC,
    low=0.5,
    high=2,
    ulp=16,
    numpy="np.power",
    cost=25,
    onnx="Pow",
)
maximum: OpDef = elementwise("maximum", "The larger; NaN propagates.", np.maximum, _ties, arity=2, kinds=ALL, smooth=False, commutes=True)
minimum: OpDef = elementwise("minimum", "The smaller; NaN propagates.", np.minimum, _ties, arity=2, kinds=ALL, smooth=False, commutes=True)

_COMPARE = {"eq": np.equal, "lt": np.less, "le": np.less_equal}
compare: OpDef = elementwise(
    "compare",
    "`kind`: x = y (`eq`), x < y (`lt`) or x <= y (`le`).",
    lambda x, y, kind: _COMPARE[kind](x, y),
    arity=2,
    kinds=ALL,
    result=dtypes.bool_,
    prepare=comparable,
    choices=_COMPARE,
    commutes=("eq",),
    samples=lambda s: [x for kind in _COMPARE for x in s.binary(lambda a, b, k=kind: compare(a, b, kind=k), -2, 2)],
)


def _truth(truth: Op, dtype: Any) -> Op:
    """Returns a truth in this dtype; programs that compute with comparisons ask for numbers."""
    return truth if dtype is None else cast(truth, dtype)


def _turned(x: Any, y: Any, kind: str) -> Op:
    """Returns the comparison of y with x, whose axes have the order of an op of x and y."""
    made = compare(y, x, kind=kind)
    right, left = made.inputs
    order = union(left.axes, right.axes)
    return made if made.axes == order else REGISTRY["broadcast"].build(made, axes=order)


def equal(x: Any, y: Any, dtype: Any = None) -> Op:
    """Returns x = y, as bool or as 0 and 1 of `dtype`; so does `x == y`.

    >>> ng.function(ng.equal(ng.arange(3, axis="H"), 1))()
    ComputedArray([False,  True, False])
    """
    return _truth(compare(x, y, kind="eq"), dtype)


def less(x: Any, y: Any, dtype: Any = None) -> Op:
    """Returns x < y, as bool or as 0 and 1 of `dtype`; False at NaN.

    >>> ng.function(ng.less(ng.arange(3, axis="H"), 1))()
    ComputedArray([ True, False, False])
    """
    return _truth(compare(x, y, kind="lt"), dtype)


def less_equal(x: Any, y: Any, dtype: Any = None) -> Op:
    """Returns x <= y, as bool or as 0 and 1 of `dtype`; False at NaN.

    >>> ng.function(ng.less_equal(ng.arange(3, axis="H"), 1))()
    ComputedArray([ True,  True, False])
    """
    return _truth(compare(x, y, kind="le"), dtype)


def greater(x: Any, y: Any, dtype: Any = None) -> Op:
    """Returns x > y, as bool or as 0 and 1 of `dtype`; False at NaN.

    >>> ng.function(ng.greater(ng.arange(3, axis="H"), 1))()
    ComputedArray([False, False,  True])
    """
    return _truth(_turned(x, y, "lt"), dtype)


def greater_equal(x: Any, y: Any, dtype: Any = None) -> Op:
    """Returns x >= y, as bool or as 0 and 1 of `dtype`; False at NaN.

    >>> ng.function(ng.greater_equal(ng.arange(3, axis="H"), 1))()
    ComputedArray([False,  True,  True])
    """
    return _truth(_turned(x, y, "le"), dtype)


def _shift(x: np.ndarray, y: np.ndarray, left: bool) -> np.ndarray:
    bits = x.dtype.itemsize * 8
    inside = (y >= 0) & (y < bits)
    count = np.where(inside, y, 0).astype(x.dtype)
    if left:
        return np.where(inside, np.left_shift(x, count), np.zeros((), x.dtype))
    return np.where(inside, np.right_shift(x, count), np.where(x < 0, -1, 0).astype(x.dtype))


_BITWISE: dict[str, Callable[[Any, Any], Any]] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": lambda x, y: _shift(x, y, True),
    "shr": lambda x, y: _shift(x, y, False),
}
bitwise: OpDef = elementwise(
    "bitwise",
    "`kind`: `and or xor shl shr`, of the bits of integers, or the truth of bool (no shifts). shr is arithmetic for signed integers; "
    "counts outside 0..bits-1 give 0 (shr of negatives: -1).",
    lambda x, y, kind: _BITWISE[kind](x, y),
    arity=2,
    kinds=WHOLE,
    choices=_BITWISE,
    commutes=("and", "or", "xor"),
    samples=lambda s: [
        x
        for kind in (("and", "or", "xor") if s.dtype.kind == "bool" else _BITWISE)
        for x in s.binary(lambda a, b, k=kind: bitwise(a, b, kind=k), 0, 9)
    ],
)

# ---- core: choice and functions ---------------------------------------------------------------------------------------


def _where_type(inputs: tuple[TensorType, ...]) -> TensorType:
    c, x, y = inputs
    if c.dtype.kind != "bool" or x.dtype is not y.dtype:
        raise DTypeError(f"where of {c.dtype}, {x.dtype} and {y.dtype}", fix="the first is bool, the others of one dtype")
    return TensorType(union(x.axes, y.axes, c.axes), x.dtype)


def _where_prepare(inputs: tuple[Any, ...], attrs: dict[str, Any]) -> tuple[tuple[Op, ...], dict[str, Any]]:
    c = as_op(inputs[0])
    return (cast(c, dtypes.bool_), *common(inputs[1:])), attrs


where: OpDef = op(
    "where",
    "x where c, a bool, holds, else y.",
    form="(c, x, y)",
    elementwise=True,
    type=_where_type,
    reference=elementwise_reference(lambda c, x, y: np.where(c, x, y)),
    prepare=_where_prepare,
    grad=lambda op, dy, c, x, y: (None, where(c, dy, 0.0), where(c, 0.0, dy)),
    samples=lambda s: [
        *s.binary(lambda x, y: where(s.bools(*x.axes), x, y), -2, 2),
        where(s.bools(s.I, s.J), s.x(s.J), s.x()),
        where(s.bools(s.J), s.x(s.I, s.J), s.x(s.J, s.I)),
    ],
    kinds=MOVED,
    onnx="Where",
)

absolute: OpDef = elementwise(
    "abs",
    "The distance from 0; also of integers, whose lowest stays.",
    np.abs,
    lambda op, dy, x: dy * sign(x),
    kinds=NUMERIC,
    smooth=False,
    numpy="np.abs",
    onnx="Abs",
)
floor: OpDef = elementwise(
    "floor",
    "The whole number at or below; integers stay.",
    lambda x: x if x.dtype.kind in "iu" else np.floor(x),
    kinds=NUMERIC,
    numpy="np.floor",
    onnx="Floor",
)
rounded: OpDef = elementwise(
    "round",
    "The nearest whole number, halves to the even one; integers stay.",
    lambda x: x if x.dtype.kind in "iu" else np.rint(x),
    kinds=NUMERIC,
    numpy="np.rint",
    onnx="Round",
)
exp: OpDef = elementwise("exp", "e to the x.", np.exp, lambda op, dy, x: dy * op, cost=9, onnx="Exp")
expm1: OpDef = elementwise("expm1", "e to the x, less 1, exact near 0.", np.expm1, lambda op, dy, x: dy * (op + 1.0), cost=14)
log: OpDef = elementwise("log", "The natural logarithm.", np.log, lambda op, dy, x: dy / x, low=0.1, high=4, cost=12, onnx="Log")
log1p: OpDef = elementwise("log1p", "log(1 + x), exact near 0.", np.log1p, lambda op, dy, x: dy / (x + 1.0), low=-0.5, high=4, cost=14)
sqrt: OpDef = elementwise("sqrt", "The square root.", np.sqrt, lambda op, dy, x: dy * 0.5 / op, low=0.1, high=4, cost=6, onnx="Sqrt")
sin: OpDef = elementwise("sin", "Sine of an angle in radians.", np.sin, lambda op, dy, x: dy * cos(x), cost=14, onnx="Sin")
cos: OpDef = elementwise("cos", "Cosine of an angle in radians.", np.cos, lambda op, dy, x: -(dy * sin(x)), cost=14, onnx="Cos")
tanh: OpDef = elementwise("tanh", "Hyperbolic tangent.", np.tanh, lambda op, dy, x: dy * (1.0 - op * op), error=2e-7, cost=14, onnx="Tanh")
atan: OpDef = elementwise(
    "atan", "The angle in radians whose tangent is x.", np.arctan, lambda op, dy, x: dy / (x * x + 1.0), cost=18, onnx="Atan"
)
erf: OpDef = elementwise(
    "erf",
    "The error function: 2/sqrt(pi) times the integral of e to the -t*t from 0 to x.",
    lambda x: np.vectorize(math.erf, otypes=[np.float64])(x),
    lambda op, dy, x: dy * (2 / math.sqrt(math.pi)) * exp(-(x * x)),
    error=2e-7,
    numpy="erf",
    cost=18,
    onnx="Erf",
)

# ---- lowered to these ------------------------------------------------------------------------------------------------


def composite(
    name: str, doc: str, function: Callable[..., Any], lower: Callable[..., Op], grad: Callable[..., Any] | None = None, **fields: Any
) -> OpDef:
    """Returns an elementwise record that lowers to smaller ops; without `grad`, the lowering is differentiated."""
    return elementwise(name, doc, function, grad, lower=lambda op, *inputs: lower(*inputs), **fields)


negative: OpDef = composite(
    "negative", "0 less x.", np.negative, lambda x: x * -1, lambda op, dy, x: -dy, kinds=("float", "int"), onnx="Neg"
)
reciprocal: OpDef = composite(
    "reciprocal", "1 / x.", lambda x: 1 / x, lambda x: 1.0 / x, lambda op, dy, x: -(dy * op * op), low=0.5, high=3, onnx="Reciprocal"
)
square: OpDef = composite("square", "x * x.", np.square, lambda x: x * x, lambda op, dy, x: dy * (x * 2.0), kinds=NUMERIC)
sign: OpDef = composite(
    "sign",
    "1, 0 or -1; NaN stays.",
    np.sign,
    lambda x: where(equal(x, x), cast(less(0, x), x.dtype) - cast(less(x, 0), x.dtype), x),
    lambda op, dy, x: None,
    kinds=NUMERIC,
    smooth=False,
    onnx="Sign",
)
sigmoid: OpDef = composite(
    "sigmoid",
    "1 / (1 + e to the -x).",
    lambda x: 1 / (1 + np.exp(-x)),
    rounding_once(lambda x: 1.0 / (exp(-x) + 1.0)),
    lambda op, dy, x: dy * (op * (1.0 - op)),
    error=2e-7,
    onnx="Sigmoid",
)
relu: OpDef = composite(
    "relu",
    "x where it is above 0, else 0; its derivative at 0 is 0.",
    lambda x: np.maximum(x, 0),
    lambda x: maximum(x, 0),
    lambda op, dy, x: where(less(0.0, x), dy, 0.0),
    kinds=NUMERIC,
    smooth=False,
    onnx="Relu",
)
not_equal_record: OpDef = composite(
    "not_equal",
    "x differs from y, as bool.",
    np.not_equal,
    lambda x, y: logical_not(equal(x, y)),
    arity=2,
    kinds=ALL,
    result=dtypes.bool_,
    prepare=comparable,
)


def not_equal(x: Any, y: Any, dtype: Any = None) -> Op:
    """Returns whether x differs from y, as bool or as 0 and 1 of `dtype`; True at NaN.

    >>> ng.function(ng.not_equal(ng.arange(3, axis="H"), 1))()
    ComputedArray([ True, False,  True])
    """
    return _truth(not_equal_record(x, y), dtype)


logical_not: OpDef = composite(
    "logical_not", "True where x is False.", np.logical_not, lambda x: bitwise(x, True, kind="xor"), kinds=("bool",), onnx="Not"
)
stop_gradient: OpDef = elementwise(
    "stop_gradient",
    "x, through which no derivative flows.",
    lambda x: x,
    lambda op, dy, x: None,
    kinds=ALL,
    lower=lambda op, x: x,
    smooth=False,
)
stop_gradient.attrs["no_gradient_check"] = "its gradient is 0 by definition, not the slope"


def inverted(x: Op) -> Op:
    """Returns `~x`: bitwise complement of an integer, negation of a bool."""
    if x.dtype.kind == "bool":
        return logical_not(x)
    return bitwise(x, x.dtype.highest if x.dtype.kind == "uint" else -1, kind="xor")


def logical_and(x: Any, y: Any) -> Op:
    """Returns True where both are true; numbers are true unless they are 0.

    >>> ng.function(ng.logical_and(ng.constant([True, True], "H=2"), ng.constant([True, False], "H=2")))()
    ComputedArray([ True, False])
    """
    return bitwise(cast(x, dtypes.bool_), cast(y, dtypes.bool_), kind="and")


def logical_or(x: Any, y: Any) -> Op:
    """Returns True where at least one is true; numbers are true unless they are 0.

    >>> ng.function(ng.logical_or(ng.constant([False, True], "H=2"), ng.constant([False, False], "H=2")))()
    ComputedArray([False,  True])
    """
    return bitwise(cast(x, dtypes.bool_), cast(y, dtypes.bool_), kind="or")


def mod(x: Any, y: Any, dtype: Any = None) -> Op:
    """Returns the remainder with the sign of y; dtype as in `ng.add`.

    >>> ng.function(ng.mod(ng.constant([7, -7], "H=2"), 4))()
    ComputedArray([3, 1])
    """
    return remainder(x, y, dtype=dtype)


def floordivide(x: Any, y: Any, dtype: Any = None) -> Op:
    """Returns floor(x / y), so that x = y * (x // y) + x % y; of integers an integer (0 where y is 0).

    >>> ng.function(ng.floordivide(ng.constant([7, -7], "H=2"), 2))()
    ComputedArray([ 3, -4])
    """
    (x, y), _ = arithmetic((x, y), {"dtype": dtype})
    return _quotient(x, y) if x.dtype.is_float else divide.build(x, y)


def safelog(x: Any, limit: float = -50.0) -> Op:
    """Returns log(x), at least `limit`: the log of max(x, exp(limit)).

    >>> ng.function(ng.safelog(ng.constant([1.0, 0.0], "H=2")))()
    ComputedArray([  0., -50.])
    """
    x = as_op(x)
    return maximum(log(maximum(x, math.exp(limit))), limit)


# ---- operators of Op --------------------------------------------------------------------------------------------------


def _flipped(function: Callable[..., Any]) -> Callable[[Op, Any], Any]:
    return lambda x, y: function(y, x)


def _bits(kind: str) -> Callable[[Any, Any], Op]:
    return lambda x, y: bitwise(x, y, kind=kind)


for _name, _function in (
    ("add", add),
    ("sub", subtract),
    ("mul", multiply),
    ("truediv", divide),
    ("floordiv", floordivide),
    ("mod", mod),
    ("divmod", lambda x, y: (floordivide(x, y), mod(x, y))),
    ("pow", power),
    ("and", _bits("and")),
    ("or", _bits("or")),
    ("xor", _bits("xor")),
    ("lshift", _bits("shl")),
    ("rshift", _bits("shr")),
):
    setattr(Op, f"__{_name}__", (lambda f: lambda x, y: f(x, y))(_function))
    setattr(Op, f"__r{_name}__", _flipped(_function))
for _name, _function in (("lt", less), ("le", less_equal), ("gt", greater), ("ge", greater_equal)):
    setattr(Op, f"__{_name}__", (lambda f: lambda x, y: f(x, y))(_function))
_unary: tuple[tuple[str, Callable[[Op], Op]], ...] = (
    ("neg", lambda x: negative(x)),
    ("pos", lambda x: x),
    ("abs", lambda x: absolute(x)),
    ("invert", lambda x: inverted(x)),
)
for _name, _one in _unary:
    setattr(Op, f"__{_name}__", _one)

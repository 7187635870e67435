"""Elementwise functions beyond those of `elementwise`: circular and hyperbolic functions and their inverses, powers, rounding, tests.

All but `tan`, `exp2`, `log2` and `log10` lower to smaller ops, within 4 units in the last place of the exact value. Zeros keep their sign.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ngraph.op_graph import dtypes
from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import OpDef
from ngraph.ops.elementwise import (
    NUMERIC,
    absolute,
    as_op,
    atan,
    bitwise,
    cast,
    composite,
    cos,
    elementwise,
    equal,
    exp,
    expm1,
    filled,
    floor,
    less,
    log1p,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    rounded,
    rounding_once,
    sigmoid,
    sin,
    sqrt,
    where,
)

# ---- core -------------------------------------------------------------------------------------------------------------

tan: OpDef = elementwise(
    "tan",
    "Tangent of an angle in radians.",
    np.tan,
    lambda op, dy, x: dy * (op * op + 1.0),
    low=-1.2,
    high=1.2,
    cost=22,
    onnx="Tan",
    torch="aten.tan",
)
exp2: OpDef = elementwise(
    "exp2", "2 to the x; exact for whole x.", np.exp2, lambda op, dy, x: dy * op * math.log(2), cost=9, torch="aten.exp2"
)
log2: OpDef = elementwise(
    "log2",
    "The logarithm of base 2; exact for powers of 2.",
    np.log2,
    lambda op, dy, x: dy / (x * math.log(2)),
    low=0.1,
    high=4,
    cost=13,
    torch="aten.log2",
)
log10: OpDef = elementwise(
    "log10",
    "The logarithm of base 10; exact for powers of 10.",
    np.log10,
    lambda op, dy, x: dy / (x * math.log(10)),
    low=0.1,
    high=4,
    cost=22,
    torch="aten.log10",
)

# ---- rounding ---------------------------------------------------------------------------------------------------------


def _of_floats(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: x if x.dtype.kind in "iu" else function(x)


ceil: OpDef = composite(
    "ceil",
    "The whole number at or above; integers stay.",
    _of_floats(np.ceil),
    lambda x: x if x.dtype.is_integer else -floor(-x),
    lambda op, dy, x: None,
    kinds=NUMERIC,
    smooth=False,
    onnx="Ceil",
    torch="aten.ceil",
)
trunc: OpDef = composite(
    "trunc",
    "The whole number at or nearer to 0; integers stay.",
    _of_floats(np.trunc),
    lambda x: x if x.dtype.is_integer else where(less(0.0, x), floor(x), -floor(-x)),
    lambda op, dy, x: None,
    kinds=NUMERIC,
    smooth=False,
    torch="aten.trunc",
)
for _record in (ceil, trunc):
    _record.attrs["no_gradient_check"] = "its gradient is 0; slopes across a step are not"

# ---- circular functions -----------------------------------------------------------------------------------------------


def _odd(of_size: Callable[[Op], Op]) -> Callable[[Op], Op]:
    """Returns the odd function that is `of_size` above 0; 0 of either sign and NaN stay."""

    def made(x: Op) -> Op:
        y = of_size(absolute(x))
        return where(less(x, 0.0), -y, where(less(0.0, x), y, x))

    return rounding_once(made)


def _beside_1(x: Op) -> Op:
    """Returns 1 - x * x, exact near 1 and -1."""
    return (1.0 - x) * (x + 1.0)


asin: OpDef = composite(
    "asin",
    "The angle in radians, from -pi/2 to pi/2, whose sine is x; NaN beyond 1.",
    np.arcsin,
    rounding_once(lambda x: atan(x / (sqrt(_beside_1(x)) + 1.0)) * 2.0),
    lambda op, dy, x: dy / sqrt(_beside_1(x)),
    low=-0.9,
    high=0.9,
    onnx="Asin",
    torch="aten.asin",
)
acos: OpDef = composite(
    "acos",
    "The angle in radians, from 0 to pi, whose cosine is x; NaN beyond 1.",
    np.arccos,
    rounding_once(lambda x: atan(sqrt((1.0 - x) / (x + 1.0))) * 2.0),
    lambda op, dy, x: -(dy / sqrt(_beside_1(x))),
    low=-0.9,
    high=0.9,
    onnx="Acos",
    torch="aten.acos",
)


def _quadrants(y: Op, x: Op) -> Op:
    """Returns the angle of (x, y): by the quotient of the shorter and the longer side, then by octant."""
    a, b = absolute(y), absolute(x)
    long = maximum(a, b)
    same = logical_or(equal(long, 0.0), logical_and(equal(a, math.inf), equal(b, math.inf)))
    angle = atan(where(same, cast(less(0.0, long), x.dtype), minimum(a, b) / long))
    angle = where(less(b, a), math.pi / 2 - angle, angle)
    angle = where(_negative(x), math.pi - angle, angle)
    return where(_negative(y), -angle, angle)


def _negative(x: Op) -> Op:
    """Returns whether the sign of x is minus, of -0, too."""
    return logical_or(less(x, 0.0), less(1.0 / x, 0.0))


def _atan2_gradient(op: Op, dy: Op, y: Op, x: Op) -> tuple[Op, Op]:
    square = x * x + y * y
    scale = where(equal(square, 0.0), 0.0, dy / square)
    return scale * x, -(scale * y)


atan2: OpDef = composite(
    "atan2",
    "The angle in radians, from -pi to pi, of the point (y, x): y stands first.",
    np.arctan2,
    rounding_once(_quadrants),
    _atan2_gradient,
    arity=2,
    form="(y, x)",
    low=0.3,
    high=3,
    torch="aten.atan2",
)


def _turn(x: Op) -> Op:
    """Returns pi x, less whole turns."""
    return (x - rounded(x * 0.5) * 2.0) * math.pi


def _sine_over(x: Op) -> Op:
    m = x - rounded(x * 0.5) * 2.0  # from -1 to 1
    sine = _odd(lambda a: sin(minimum(a, 1.0 - a) * math.pi))(m)
    return where(equal(x, 0.0), 1.0, sine / where(equal(x, 0.0), 1.0, x * math.pi))


def _sinc_gradient(op: Op, dy: Op, x: Op) -> Op:
    turn = _turn(x)
    return dy * where(equal(x, 0.0), 0.0, (cos(turn) - op) / where(equal(x, 0.0), 1.0, x))


sinc: OpDef = composite(
    "sinc",
    "sin(pi x) / (pi x), which is 1 at 0.",
    np.sinc,
    rounding_once(_sine_over),
    _sinc_gradient,
    error=5e-7,
    torch="aten.sinc",
)

# ---- hyperbolic functions ---------------------------------------------------------------------------------------------

_HALF_RANGE = {32: 80.0, 64: 700.0}  # e to the x overflows not far above; there half of x is taken, and the result squared
_SQUARE_RANGE = {32: 1e9, 64: 1e18}  # above, x * x + 1 is x * x, and log(x + 1) is log(x), to the last bit

_LOG_2 = math.log(2)


def _sinh(a: Op) -> Op:
    far = less(_HALF_RANGE[a.dtype.bits], a)
    m = expm1(where(far, a * 0.5, a))
    return where(far, m * (m * 0.5), (m + m / (m + 1.0)) * 0.5)


def _cosh(x: Op) -> Op:
    a = absolute(x)
    far = less(_HALF_RANGE[a.dtype.bits], a)
    e = exp(where(far, a * 0.5, a))
    return where(far, e * (e * 0.5), (e + 1.0 / e) * 0.5)


def _asinh(a: Op) -> Op:
    far = less(_SQUARE_RANGE[a.dtype.bits], a)
    b = where(far, 1.0, a)
    return log1p(where(far, a, b + b * b / (sqrt(b * b + 1.0) + 1.0))) + _LOG_2 * cast(far, a.dtype)


def _acosh(x: Op) -> Op:
    far = less(_SQUARE_RANGE[x.dtype.bits], x)
    t = where(far, x, x - 1.0)
    return log1p(where(far, t, t + sqrt(t) * sqrt(t + 2.0))) + _LOG_2 * cast(far, x.dtype)


sinh: OpDef = composite("sinh", "Hyperbolic sine.", np.sinh, _odd(_sinh), lambda op, dy, x: dy * cosh(x), onnx="Sinh", torch="aten.sinh")
cosh: OpDef = composite(
    "cosh", "Hyperbolic cosine.", np.cosh, rounding_once(_cosh), lambda op, dy, x: dy * sinh(x), onnx="Cosh", torch="aten.cosh"
)
asinh: OpDef = composite(
    "asinh",
    "The number whose hyperbolic sine is x.",
    np.arcsinh,
    _odd(_asinh),
    lambda op, dy, x: dy / sqrt(x * x + 1.0),
    onnx="Asinh",
    torch="aten.asinh",
)
acosh: OpDef = composite(
    "acosh",
    "The number, at least 0, whose hyperbolic cosine is x; NaN below 1.",
    np.arccosh,
    rounding_once(_acosh),
    lambda op, dy, x: dy / sqrt((x - 1.0) * (x + 1.0)),
    low=1.1,
    high=4,
    onnx="Acosh",
    torch="aten.acosh",
)
atanh: OpDef = composite(
    "atanh",
    "The number whose hyperbolic tangent is x; NaN beyond 1.",
    np.arctanh,
    _odd(lambda a: log1p(a * 2.0 / (1.0 - a)) * 0.5),
    lambda op, dy, x: dy / _beside_1(x),
    low=-0.9,
    high=0.9,
    onnx="Atanh",
    torch="aten.atanh",
)

# ---- of two operands --------------------------------------------------------------------------------------------------


def _hypot(x: Op, y: Op) -> Op:
    a, b = absolute(x), absolute(y)
    long = maximum(a, b)
    share = minimum(a, b) / where(equal(long, 0.0), 1.0, long)
    infinite = logical_or(equal(a, math.inf), equal(b, math.inf))
    return where(infinite, math.inf, long * sqrt(share * share + 1.0))


hypot: OpDef = composite(
    "hypot",
    "The length of the vector (x, y), without overflow; infinite where one of them is.",
    np.hypot,
    rounding_once(_hypot),
    lambda op, dy, x, y: (dy * (x / op), dy * (y / op)),
    arity=2,
    low=0.3,
    high=3,
    torch="aten.hypot",
)


def _logaddexp(x: Op, y: Op) -> Op:
    alike = equal(x, y)
    return where(alike, x + math.log(2), maximum(x, y) + log1p(exp(-absolute(where(alike, 0.0, x - y)))))


def _logaddexp_gradient(op: Op, dy: Op, x: Op, y: Op) -> tuple[Op, Op]:
    both_infinite = logical_and(equal(x, y), equal(absolute(x), math.inf))
    share = sigmoid(where(both_infinite, 0.0, x - y))
    return dy * share, dy * (1.0 - share)


logaddexp: OpDef = composite(
    "logaddexp",
    "log(e to the x + e to the y), without overflow.",
    np.logaddexp,
    rounding_once(_logaddexp),
    _logaddexp_gradient,
    arity=2,
    error=5e-7,
    torch="aten.logaddexp",
)

# ---- tests ------------------------------------------------------------------------------------------------------------


def _test(name: str, doc: str, function: Callable[[Any], Any], of_float: Callable[[Op], Op], of_others: bool, onnx: str = "") -> OpDef:
    """Returns the record of a test of numbers; those that are not floats all give `of_others`."""

    def lower(x: Op) -> Op:
        return of_float(x) if x.dtype.is_float else filled(of_others, x.axes, dtypes.bool_)

    return composite(
        name,
        doc,
        lambda x: function(x) if x.dtype.kind == "f" else np.full(x.shape, of_others),
        lower,
        lambda op, dy, x: None,
        kinds=("float", "int", "uint", "bool"),
        result=dtypes.bool_,
        onnx=onnx,
        torch=f"aten.{name}",
    )


isnan: OpDef = _test("isnan", "Whether x is NaN.", np.isnan, lambda x: logical_not(equal(x, x)), False, "IsNaN")
isinf: OpDef = _test("isinf", "Whether x is infinite, of either sign.", np.isinf, lambda x: equal(absolute(x), math.inf), False, "IsInf")
isfinite: OpDef = _test("isfinite", "Whether x is neither infinite nor NaN.", np.isfinite, lambda x: less(absolute(x), math.inf), True)


def nan_to_num(x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Op:
    """Returns `x` with numbers in place of NaN and the infinities: by default 0, the largest and the lowest of its dtype.

    Other dtypes than floats have none of these and stay. The derivative is that of x where it stays, else 0.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.nan_to_num(ng.constant([1.0, float("nan"), float("-inf")]), neginf=-9.0))()
        array([ 1.,  0., -9.])
    """
    x = as_op(x)
    if not x.dtype.is_float:
        return x
    largest = float(np.nextafter(x.dtype.np.type(np.inf), x.dtype.np.type(0)))
    top, low = (largest if posinf is None else posinf), (-largest if neginf is None else neginf)
    return where(isnan(x), nan, where(equal(x, math.inf), top, where(equal(x, -math.inf), low, x)))


def logical_xor(x: Any, y: Any) -> Op:
    """Returns True where exactly one is true; numbers are true unless they are 0.

    >>> ng.function(ng.logical_xor(ng.constant([True, True], "H=2"), ng.constant([True, False], "H=2")))()
    ComputedArray([False,  True])
    """
    return bitwise(cast(x, dtypes.bool_), cast(y, dtypes.bool_), kind="xor")

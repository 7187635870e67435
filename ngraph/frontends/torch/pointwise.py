"""Translators of ops that work on each element by itself, with PyTorch's promotion, integer division, NaN and rounding rules."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ngraph.frontends.positional import elementwise as by_element
from ngraph.frontends.positional.values import ConstantArray, Tensor
from ngraph.frontends.torch import dtype as kinds
from ngraph.frontends.torch.checking import refused
from ngraph.frontends.torch.graph import TorchNode
from ngraph.frontends.torch.table import translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import merge
from ngraph.op_graph.op import Op
from ngraph.ops import activations, functions
from ngraph.ops import elementwise as e
from ngraph.ops.rearrange import broadcast

# ---- arithmetic ---------------------------------------------------------------------------------------------------------


def scaled(x: Op, alpha: Any) -> Op:
    """x times a Python number, which is 1 by default; it wraps to the dtype of x, where that has integers."""
    if alpha == 1 and not isinstance(alpha, bool):
        return x
    return x * (float(alpha) if x.dtype.is_float else int(np.array(int(alpha)).astype(x.dtype.np)))


def summed(n: TorchNode, a: Any, b: Any, alpha: Any) -> Tensor:
    if n.dtype.kind == "bool":
        return n.each(e.logical_or if alpha else lambda x, y: x, a, b)
    return n.each(lambda x, y: x + scaled(y, alpha), a, b)


@translates("aten.add")
def add(n: TorchNode, a: Any, b: Any, alpha: Any = 1) -> Tensor:
    return summed(n, a, b, alpha)


@translates("aten.sub")
def subtract(n: TorchNode, a: Any, b: Any, alpha: Any = 1) -> Tensor:
    return n.each(lambda x, y: x - scaled(y, alpha), a, b)


@translates("aten.rsub")
def subtract_from(n: TorchNode, a: Any, b: Any, alpha: Any = 1) -> Tensor:
    return n.each(lambda x, y: y - scaled(x, alpha), a, b)


@translates("aten.mul")
def multiply(n: TorchNode, a: Any, b: Any) -> Tensor:
    return n.each(e.logical_and if n.dtype.kind == "bool" else e.multiply, a, b)


def checked_division(n: TorchNode, function: Callable[[Op, Op], Op], a: Any, b: Any) -> Tensor:
    """Returns a function of each dividend and divisor. It fails where a whole number is divided by 0, as PyTorch does."""
    if n.dtype.is_float or isinstance(b, (int, float)) and int(b):
        return n.each(function, a, b)
    what, fix = "a divisor of whole numbers", "x // torch.where(y == 0, 1, y)"
    zero = by_element.each(n.g, lambda x, y: e.equal(broadcast(y, merge(x.axes, y.axes)), 0), n.of(a, n.dtype), n.of(b, n.dtype))
    return n.each(lambda x, y, nothing: function(x, y + nothing), a, b, refused(zero, what, fix, "divisor"))


@translates("aten.div", "aten.true_divide")
def divide(n: TorchNode, a: Any, b: Any, rounding_mode: str | None = None) -> Tensor:
    if rounding_mode is None:
        return n.each(e.divide, a, b)
    if not n.dtype.is_float:
        return checked_division(n, e.divide.build if rounding_mode == "floor" else by_element.truncated, a, b)
    if rounding_mode == "trunc":
        return n.each(lambda x, y: functions.trunc(x / y), a, b)
    return n.each(by_element.floor_quotient, a, b)


@translates("aten.floor_divide")
def floor_divide(n: TorchNode, a: Any, b: Any) -> Tensor:
    return divide(n, a, b, "floor")


@translates("aten.remainder")
def remainder(n: TorchNode, a: Any, b: Any) -> Tensor:
    def function(x: Op, y: Op) -> Op:
        if not x.dtype.is_float:
            return e.remainder.build(x, y)
        r = by_element.remainder(x, y, True)  # what is 0 keeps the sign of x
        return e.where(e.logical_and(e.not_equal(r, 0.0), e.not_equal(e.less(r, 0.0), e.less(y, 0.0))), r + y, r)

    return checked_division(n, function, a, b)


@translates("aten.fmod")
def fmod(n: TorchNode, a: Any, b: Any) -> Tensor:
    return checked_division(n, lambda x, y: by_element.remainder(x, y, True), a, b)


@translates("aten.pow")
def power(n: TorchNode, a: Any, b: Any) -> Tensor:
    dtype = kinds.wide(n.dtype)
    if isinstance(b, (int, float)) and not isinstance(b, bool):
        if dtype.is_float and b == -0.5:
            return n.each(FLOATS["rsqrt"], a)
        if dtype.is_float:
            return n.give(by_element.power(n.g, n.of(a, dtype), ConstantArray(np.array(b, dtype.np))))
        if 0 <= b <= 8:
            return n.each(lambda x: product_of(x, int(b)), a)
    return n.each(e.power, a, b)


def product_of(x: Op, k: int) -> Op:
    """x to a whole power."""
    made = e.filled(1, x.axes, x.dtype) if k == 0 else x
    for _ in range(k - 1):
        made = made * x
    return made


@translates("aten.neg")
def negative(n: TorchNode, a: Any) -> Tensor:
    return n.each(by_element.FUNCTIONS["negative"], a)


@translates("aten.abs")
def absolute(n: TorchNode, a: Any) -> Tensor:
    return n.each(lambda x: x if x.dtype.kind in ("uint", "bool") else e.absolute(x), a)


@translates("aten.sign", "aten.sgn")
def sign(n: TorchNode, a: Any) -> Tensor:
    if n.dtype.kind == "bool":
        return n.of(a)
    f = by_element.FUNCTIONS["sign"]
    return n.each(lambda x: e.where(functions.isnan(x), 0.0, f(x)) if x.dtype.is_float else f(x), a)


@translates("aten.signbit")
def sign_bit(n: TorchNode, a: Any) -> Tensor:
    return n.each(by_element.sign_bit, a, dtype=kinds.wide(a.dtype))


for _name, _function in (
    ("floor", e.floor),
    ("ceil", functions.ceil),
    ("trunc", functions.trunc),
):
    translates(f"aten.{_name}")(lambda n, a, f=_function: n.each(f, a) if n.dtype.is_float else n.give(a))


@translates("aten.round")
def rounded(n: TorchNode, a: Any, decimals: int = 0) -> Tensor:
    if not n.dtype.is_float:
        return n.give(a)
    if not decimals:
        return n.each(e.rounded, a)
    by = float(10 ** abs(decimals))
    return n.each(lambda x: e.rounded(x * by) / by if decimals > 0 else e.rounded(x / by) * by, a)


# functions of floats; integers and bools are cast first
FLOATS: dict[str, Callable[[Op], Op]] = {
    "exp": e.exp,
    "expm1": e.expm1,
    "log": e.log,
    "log1p": e.log1p,
    "sqrt": e.sqrt,
    "rsqrt": lambda x: 1.0 / e.sqrt(x),
    "sin": e.sin,
    "cos": e.cos,
    "atan": e.atan,
    "tanh": e.tanh,
    "sigmoid": e.sigmoid,
    "erf": e.erf,
    "reciprocal": e.reciprocal,
    "log_sigmoid": lambda x: e.minimum(x, 0.0) - e.log1p(e.exp(-e.absolute(x))),
}
for _name, _of_float in FLOATS.items():
    translates(f"aten.{_name}")(lambda n, a, f=_of_float: n.each(f, a))


# ---- comparisons and bits -----------------------------------------------------------------------------------------------

for _name, _compare in (
    ("eq", e.equal),
    ("ne", e.not_equal),
    ("lt", e.less),
    ("le", e.less_equal),
    ("gt", e.greater),
    ("ge", e.greater_equal),
):
    translates(f"aten.{_name}")(lambda n, a, b, f=_compare: n.each(f, a, b, dtype=n.common(*n.node.args)))


def truth(x: Op) -> Op:
    """Whether each element is not 0; of NaN, too."""
    return x if x.dtype.kind == "bool" else e.not_equal(x, 0)


for _name, _kind in (("and", e.logical_and), ("or", e.logical_or), ("xor", e.not_equal)):
    translates(f"aten.logical_{_name}")(
        lambda n, a, b, f=_kind: n.give(by_element.each(n.g, lambda x, y: f(truth(x), truth(y)), n.of(a), n.of(b)))
    )
    translates(f"aten.bitwise_{_name}", f"aten.__{_name}__")(
        lambda n, a, b, f=_kind, kind=_name: n.each(f if n.dtype.kind == "bool" else lambda x, y: e.bitwise(x, y, kind=kind), a, b)
    )


@translates("aten.logical_not")
def logical_not(n: TorchNode, a: Any) -> Tensor:
    return n.give(by_element.alone(n.g, lambda x: e.logical_not(truth(x)), n.of(a)))


@translates("aten.bitwise_not")
def bitwise_not(n: TorchNode, a: Any) -> Tensor:
    return n.each(e.logical_not if n.dtype.kind == "bool" else e.inverted, a)


@translates("aten.bitwise_left_shift", "aten.__lshift__")
def shift_left(n: TorchNode, a: Any, b: Any) -> Tensor:
    if n.dtype.is_float:
        return n.each(lambda x, y: x * e.power(2.0, y), a, b)
    return n.each(lambda x, y: e.bitwise(x, y, kind="shl"), a, b)


@translates("aten.bitwise_right_shift", "aten.__rshift__")
def shift_right(n: TorchNode, a: Any, b: Any) -> Tensor:
    if n.dtype.is_float:
        return n.each(lambda x, y: x / e.power(2.0, y), a, b)
    return n.each(lambda x, y: e.bitwise(x, y, kind="shr"), a, b)


@translates("aten.angle")
def angle(n: TorchNode, a: Any) -> Tensor:
    def of(x: Op) -> Op:
        turned = e.where(e.less(x, 0.0), e.filled(math.pi, (), x.dtype), 0.0)
        return e.where(functions.isnan(x), x, turned) if a.dtype.is_float else turned

    return n.each(of, a)


@translates("aten.isnan")
def is_nan(n: TorchNode, a: Any) -> Tensor:
    return by_element.alone(n.g, lambda x: functions.isnan(x) if x.dtype.is_float else e.filled(False, x.axes, dtypes.bool_), a)


@translates("aten.isinf")
def is_infinite(n: TorchNode, a: Any) -> Tensor:
    return by_element.alone(n.g, lambda x: functions.isinf(x) if x.dtype.is_float else e.filled(False, x.axes, dtypes.bool_), a)


# ---- choices ------------------------------------------------------------------------------------------------------------


@translates("aten.maximum")
def maximum(n: TorchNode, a: Any, b: Any) -> Tensor:
    return n.each(e.logical_or if n.dtype.kind == "bool" else e.maximum, a, b)


@translates("aten.minimum")
def minimum(n: TorchNode, a: Any, b: Any) -> Tensor:
    return n.each(e.logical_and if n.dtype.kind == "bool" else e.minimum, a, b)


def without_nan(f: Callable[[Op, Op], Op]) -> Callable[[Op, Op], Op]:
    """A choice of two that takes the other one where one is NaN."""

    def choose(x: Op, y: Op) -> Op:
        if not x.dtype.is_float:
            return f(x, y)
        return e.where(functions.isnan(x), y, e.where(functions.isnan(y), x, f(x, y)))

    return choose


@translates("aten.fmax")
def fmax(n: TorchNode, a: Any, b: Any) -> Tensor:
    return n.each(e.logical_or if n.dtype.kind == "bool" else without_nan(e.maximum), a, b)


@translates("aten.fmin")
def fmin(n: TorchNode, a: Any, b: Any) -> Tensor:
    return n.each(e.logical_and if n.dtype.kind == "bool" else without_nan(e.minimum), a, b)


@translates("aten.clamp")
def clamp(n: TorchNode, a: Any, low: Any = None, high: Any = None, **named: Any) -> Tensor:
    low, high = named.get("min", low), named.get("max", high)
    t = n.of(a, n.dtype)
    if low is not None:
        t = by_element.each(n.g, e.maximum, t, n.of(bounded(low, n), n.dtype))
    if high is not None:
        t = by_element.each(n.g, e.minimum, t, n.of(bounded(high, n), n.dtype))
    return t


def bounded(bound: Any, n: TorchNode) -> Any:
    """A bound that is a Python number, as far as integers of the result reach."""
    if isinstance(bound, float) and n.dtype.is_integer:
        if math.isinf(bound):
            return n.dtype.highest if bound > 0 else n.dtype.lowest
        return int(bound)
    return bound


@translates("aten.clamp_min")
def clamp_min(n: TorchNode, a: Any, low: Any) -> Tensor:
    return clamp(n, a, low)


@translates("aten.clamp_max")
def clamp_max(n: TorchNode, a: Any, high: Any) -> Tensor:
    return clamp(n, a, None, high)


@translates("aten.where")
def where(n: TorchNode, condition: Any, a: Any, b: Any) -> Tensor:
    c = n.of(condition)
    c = Tensor(truth(c.op), c.dims)
    return n.g.expanded(by_element.each(n.g, e.where, c, n.of(a, n.dtype), n.of(b, n.dtype)), n.shape)


@translates("aten.masked_fill")
def masked_fill(n: TorchNode, a: Any, mask: Any, value: Any) -> Tensor:
    return where(n, mask, value, a)


# ---- activations --------------------------------------------------------------------------------------------------------


@translates("aten.relu")
def relu(n: TorchNode, a: Any) -> Tensor:
    return n.each(lambda x: e.maximum(x, 0), a)


@translates("aten.gelu")
def gelu(n: TorchNode, a: Any, approximate: str = "none") -> Tensor:
    return n.each(lambda x: by_element.gelu(x, approximate == "tanh"), a)


@translates("aten.elu")
def elu(n: TorchNode, a: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    def function(x: Op) -> Op:
        low = e.expm1(e.minimum(x, 0.0) * input_scale) * (alpha * scale)
        return e.where(e.less(0.0, x), x * scale, low)

    return n.each(function, a)


@translates("aten.leaky_relu")
def leaky_relu(n: TorchNode, a: Any, slope: float = 0.01) -> Tensor:
    return n.each(lambda x: e.where(e.less(0.0, x), x, x * slope), a)


@translates("aten.hardtanh")
def hardtanh(n: TorchNode, a: Any, low: float = -1.0, high: float = 1.0) -> Tensor:
    return clamp(n, a, low, high)


@translates("aten.softplus")
def softplus(n: TorchNode, a: Any, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    def function(x: Op) -> Op:
        y = x * beta
        return e.where(e.less(threshold, y), x, activations.softplus(y) / beta)

    return n.each(function, a)


@translates("aten.hardswish")
def hardswish(n: TorchNode, a: Any) -> Tensor:
    return n.each(lambda x: x * e.minimum(e.maximum(x + 3.0, 0.0), 6.0) / 6.0, a)


@translates("aten.lerp")
def lerp(n: TorchNode, a: Any, b: Any, weight: Any) -> Tensor:
    def function(x: Op, y: Op, w: Op) -> Op:
        return e.where(e.less(e.absolute(w), 0.5), x + w * (y - x), y - (y - x) * (1.0 - w))

    return n.each(function, a, b, weight)


@translates("aten.copysign")
def copysign(n: TorchNode, a: Any, b: Any) -> Tensor:
    def function(x: Op, y: Op) -> Op:
        size = e.absolute(x)
        return e.where(by_element.sign_bit(y), -size, size)

    return n.each(function, a, b)


@translates("aten.addcmul")
def addcmul(n: TorchNode, a: Any, b: Any, c: Any, value: Any = 1) -> Tensor:
    return n.each(lambda x, y, z: x + scaled(y * z, value), a, b, c)


@translates("aten.addcdiv")
def addcdiv(n: TorchNode, a: Any, b: Any, c: Any, value: Any = 1) -> Tensor:
    return n.each(lambda x, y, z: x + scaled(y / z, value), a, b, c)


@translates("prims.fma")
def fma(n: TorchNode, a: Any, b: Any, c: Any) -> Tensor:
    """x * y + z, which kernels round once, where the processor can."""
    return n.each(lambda x, y, z: x * y + z, a, b, c)


@translates("prims.div")
def divided(n: TorchNode, a: Any, b: Any) -> Tensor:
    """The quotient, of integers its whole part."""
    return n.each(lambda x, y: x / y if x.dtype.is_float else by_element.truncated(x, y), a, b)


# ---- casts and copies ---------------------------------------------------------------------------------------------------


@translates("aten._to_copy", "prims.convert_element_type", "aten.to")
def to_copy(n: TorchNode, a: Any, *args: Any, **named: Any) -> Tensor:
    return casted(n, a)


def casted(n: TorchNode, a: Tensor) -> Tensor:
    """A tensor in the dtype of the result; bools are what is not 0."""
    if n.dtype.kind == "bool":
        return by_element.alone(n.g, truth, a)
    return n.give(a)


@translates("aten.copy")
def copy(n: TorchNode, a: Any, b: Any, non_blocking: bool = False) -> Tensor:
    return n.g.expanded(casted(n, n.of(b)), n.shape)


@translates("aten.clone", "aten.alias", "aten.detach", "aten.lift_fresh_copy", "aten.lift_fresh", "aten.contiguous", "prims.copy_strided")
def same(n: TorchNode, a: Any, *strides: Any, **named: Any) -> Tensor:
    return n.give(a)


@translates("prims.device_put")
def device_put(n: TorchNode, a: Any, *args: Any) -> Tensor:
    return n.give(a)


@translates("aten.view.dtype")
def bits(n: TorchNode, a: Any, dtype: Any = None) -> Tensor:
    if n.dtype.bits != a.dtype.bits:
        raise n.lack("a view as a dtype of another size")
    return by_element.alone(n.g, lambda x: by_element.bitcast(x, n.dtype), a)

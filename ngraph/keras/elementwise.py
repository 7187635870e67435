"""Functions of `keras.ops.numpy` that work on each element by itself: a table each of functions of one, and of two tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from keras.src.backend.common.dtypes import result_type

from ngraph.frontends.positional import elementwise as by_element
from ngraph.frontends.positional import special as in_double
from ngraph.frontends.positional.elementwise import alone, each, remainder, sign_bit
from ngraph.frontends.positional.values import Tensor
from ngraph.keras.convert import convert_to_tensor
from ngraph.keras.tensors import BackendTensor, OpenLength, apply
from ngraph.keras.traces import KerasTrace
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops import functions, special


def float_of(*dtypes_: Any) -> str:
    """Returns the float dtype that functions of these dtypes give."""
    return result_type(*dtypes_, float)


def dtype_of(x: Any) -> Any:
    """Returns the dtype that Keras's promotion sees: the type of a Python number, which a length is."""
    number = int if isinstance(x, OpenLength) else type(x)
    return getattr(x, "dtype", number) if not isinstance(x, (list, tuple)) else convert_to_tensor(x).dtype


def in_float(x: Any) -> BackendTensor:
    """Returns x as floats."""
    x = convert_to_tensor(x)
    return convert_to_tensor(x, float_of(x.dtype))


def met(*values: Any, floats: bool = False) -> list[BackendTensor]:
    """Returns values as tensors of the dtype that they promote to."""
    values = tuple([convert_to_tensor(v) if isinstance(v, (list, tuple, np.ndarray)) else v for v in values])
    dtype = result_type(*[dtype_of(v) for v in values], *([float] if floats else []))
    return [convert_to_tensor(v, dtype) for v in values]


def one(g: KerasTrace, t: Tensor, name: str) -> Tensor:
    return alone(g, ONE[name], t)


def two(g: KerasTrace, a: Tensor, b: Tensor, name: str) -> Tensor:
    return each(g, TWO[name], a, b)


# of one tensor, as a function of an op
ONE: dict[str, Callable[[Op], Op]] = {
    "absolute": lambda x: x if x.dtype.kind in ("uint", "bool") else e.absolute(x),
    "negative": by_element.FUNCTIONS["negative"],
    "square": lambda x: e.cast(x, "int32") if x.dtype.kind == "bool" else x * x,
    "sign": lambda x: e.cast(e.less(0, x), x.dtype) if x.dtype.kind in ("uint", "bool") else e.sign(x),
    "floor": lambda x: e.floor(x),
    "ceil": lambda x: functions.ceil(x),
    "trunc": lambda x: functions.trunc(x) if x.dtype.is_float else x,
    "rounded": lambda x: e.rounded(x),
    "reciprocal": lambda x: e.reciprocal(x),
    "sqrt": lambda x: e.sqrt(x),
    "cbrt": lambda x: e.sign(x) * e.power(e.absolute(x), 1.0 / 3.0),
    "rsqrt": lambda x: e.reciprocal(e.sqrt(x)),
    "exp2": lambda x: functions.exp2(x),
    "log2": lambda x: functions.log2(x),
    "log10": lambda x: functions.log10(x),
    "arccos": lambda x: functions.acos(x),
    "arcsin": lambda x: functions.asin(x),
    "arctan": lambda x: e.atan(x),
    "arccosh": lambda x: functions.acosh(x),
    "arcsinh": lambda x: functions.asinh(x),
    "arctanh": lambda x: functions.atanh(x),
    "sinc": lambda x: functions.sinc(x),
    "tan": lambda x: functions.tan(x),
    "sinh": lambda x: functions.sinh(x),
    "cosh": lambda x: functions.cosh(x),
    "deg2rad": lambda x: x * (math.pi / 180.0),
    "rad2deg": lambda x: x * (180.0 / math.pi),
    "erf": lambda x: e.erf(x),
    "erfc": in_double.erfc,
    "erfinv": lambda x: special.erfinv(x),
    "i0": lambda x: e.cast(in_double.BESSEL["i0"](e.cast(x, dtypes.float64)), x.dtype),
    "isnan": lambda x: functions.isnan(x) if x.dtype.is_float else e.filled(False, x.axes, dtypes.bool_),
    "isinf": lambda x: functions.isinf(x) if x.dtype.is_float else e.filled(False, x.axes, dtypes.bool_),
    "isfinite": lambda x: functions.isfinite(x) if x.dtype.is_float else e.filled(True, x.axes, dtypes.bool_),
    "isneginf": lambda x: e.equal(x, -math.inf) if x.dtype.is_float else e.filled(False, x.axes, dtypes.bool_),
    "isposinf": lambda x: e.equal(x, math.inf) if x.dtype.is_float else e.filled(False, x.axes, dtypes.bool_),
    "logical_not": lambda x: e.logical_not(e.cast(x, dtypes.bool_)),
    "bitwise_not": lambda x: e.inverted(x),
    "signbit": sign_bit,
    **{name: (lambda record: lambda x: record(x))(getattr(e, name)) for name in "exp expm1 log log1p sin cos tanh sigmoid relu".split()},
}

SAME = "absolute negative square sign trunc bitwise_not".split()  # of one tensor, with its dtype
WHOLE = "floor ceil".split()  # with the dtype of floats, or Keras's float for integers
FLOAT = (
    "reciprocal sqrt cbrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh arccos arcsin arctan arccosh arcsinh "
    "arctanh sinc deg2rad rad2deg erf erfc erfinv i0"
).split()
TRUTH = "isnan isinf isfinite isneginf isposinf logical_not signbit".split()


def unary(name: str, floats: bool) -> Callable[[Any], Any]:
    """Returns a function of `keras.ops` of one tensor."""

    def function(x: Any) -> Any:
        return apply(one, in_float(x) if floats else convert_to_tensor(x), name=name)

    function.__name__ = name
    return function


def _bits(kind: str) -> Callable[[Op, Op], Op]:
    return lambda x, y: e.bitwise(x, y, kind=kind)


def _floor_divide(x: Op, y: Op) -> Op:
    if x.dtype.is_float:
        return by_element.floor_quotient(x, y)
    return e.where(e.equal(y, 0), 0, e.divide.build(x, e.where(e.equal(y, 0), 1, y)))


def _mod(x: Op, y: Op) -> Op:
    return e.remainder(x, y) if x.dtype.is_float else e.where(e.equal(y, 0), 0, e.remainder(x, e.where(e.equal(y, 0), 1, y)))


def _heaviside(x: Op, y: Op) -> Op:
    return e.where(e.less(x, 0), 0.0, e.where(e.equal(x, 0), y, e.where(functions.isnan(x), x, 1.0)))


def _no_nan(x: Op, y: Op) -> Op:
    return e.where(e.equal(y, 0), 0.0, e.divide(x, e.where(e.equal(y, 0), 1.0, y)))


def _logaddexp2(x: Op, y: Op) -> Op:
    return functions.logaddexp(x * math.log(2), y * math.log(2)) * (1 / math.log(2))


def _present(function: Callable[[Op, Op], Op]) -> Callable[[Op, Op], Op]:
    """A function of two ops that gives the other one where one is NaN."""
    return lambda x, y: (
        e.where(functions.isnan(x), y, e.where(functions.isnan(y), x, function(x, y))) if x.dtype.is_float else function(x, y)
    )


# of two tensors that are broadcast, as a function of two ops of one dtype
TWO: dict[str, Callable[[Op, Op], Op]] = {
    "add": lambda x, y: x + y if x.dtype.kind != "bool" else e.logical_or(x, y),
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y if x.dtype.kind != "bool" else e.logical_and(x, y),
    "divide": lambda x, y: e.divide(x, y),
    "floor_divide": _floor_divide,
    "mod": _mod,
    "fmod": lambda x, y: remainder(x, y, True),
    "power": lambda x, y: e.power(x, y),
    "maximum": lambda x, y: e.maximum(x, y) if x.dtype.kind != "bool" else e.logical_or(x, y),
    "minimum": lambda x, y: e.minimum(x, y) if x.dtype.kind != "bool" else e.logical_and(x, y),
    "fmax": _present(lambda x, y: e.maximum(x, y)),
    "fmin": _present(lambda x, y: e.minimum(x, y)),
    "arctan2": lambda x, y: functions.atan2(x, y),
    "hypot": lambda x, y: functions.hypot(x, y),
    "logaddexp": lambda x, y: functions.logaddexp(x, y),
    "nextafter": lambda x, y: by_element.next_after(x, y),
    "logaddexp2": _logaddexp2,
    "heaviside": _heaviside,
    "divide_no_nan": _no_nan,
    "equal": lambda x, y: e.equal(x, y),
    "not_equal": lambda x, y: e.not_equal(x, y),
    "less": lambda x, y: e.less(x, y),
    "less_equal": lambda x, y: e.less_equal(x, y),
    "greater": lambda x, y: e.less(y, x),
    "greater_equal": lambda x, y: e.less_equal(y, x),
    "logical_and": lambda x, y: e.logical_and(x, y),
    "logical_or": lambda x, y: e.logical_or(x, y),
    "logical_xor": lambda x, y: functions.logical_xor(x, y),
    "bitwise_and": _bits("and"),
    "bitwise_or": _bits("or"),
    "bitwise_xor": _bits("xor"),
    "left_shift": _bits("shl"),
    "right_shift": _bits("shr"),
}

FLOATS = "divide arctan2 hypot logaddexp logaddexp2 heaviside divide_no_nan nextafter".split()  # of two tensors, in floats


def binary(name: str, floats: bool, rule: Callable[..., list[Any]] = met) -> Callable[[Any, Any], Any]:
    """Returns a function of `keras.ops` of two tensors."""

    def function(x1: Any, x2: Any) -> Any:
        a, b = rule(x1, x2, floats=floats)
        return apply(two, a, b, name=name)

    function.__name__ = name
    return function


def truths(*values: Any, floats: bool = False) -> list[BackendTensor]:
    """Returns values as bools."""
    return [convert_to_tensor(v, "bool") for v in values]


def wide(*values: Any, floats: bool = False) -> list[BackendTensor]:
    """As `met`, but bools are integers."""
    return [convert_to_tensor(v, "int32") if v.dtype == bool else v for v in met(*values, floats=floats)]


def table() -> dict[str, Callable[..., Any]]:
    """Returns the functions of `keras.ops.numpy` that these tables make, by name."""
    found: dict[str, Callable[..., Any]] = {name: unary(name, False) for name in (*SAME, *TRUTH)}
    found.update({name: unary(name, True) for name in (*FLOAT, *WHOLE)})
    for name in TWO:
        rule = truths if name.startswith("logical_") else wide if name in ("floor_divide", "mod", "fmod", "power") else met
        found[name] = binary(name, name in FLOATS, rule)
    aliases = {"abs": "absolute", "bitwise_invert": "bitwise_not", "true_divide": "divide"}
    aliases |= {"bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift"}
    return found | {new: found[old] for new, old in aliases.items()}


def constant(x: Any, dtype: Any) -> Any:
    """Returns a Python number as an element of a dtype."""
    return as_dtype(dtype).np.type(x)


FUNCTIONS = table()
globals().update(FUNCTIONS)
if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...

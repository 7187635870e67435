"""The functions of `keras.ops.nn`: activations, windows, losses, normalization, attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from keras.src import backend
from keras.src.backend.common.dtypes import result_type

from ngraph.frontends.positional import elementwise as positional
from ngraph.frontends.positional import reductions, shapes
from ngraph.frontends.positional.values import Tensor
from ngraph.keras import numpy
from ngraph.keras.convert import cast, convert_to_tensor
from ngraph.keras.ctc import ctc_decode as ctc_decode
from ngraph.keras.ctc import ctc_loss as ctc_loss
from ngraph.keras.elementwise import in_float
from ngraph.keras.moving import expand_dims, where
from ngraph.keras.numpy import add, divide, multiply, subtract
from ngraph.keras.reductions import axes_of
from ngraph.keras.tensors import apply, size_of
from ngraph.keras.traces import KerasTrace
from ngraph.keras.windows import *  # noqa: F403
from ngraph.op_graph import dtypes
from ngraph.op_graph.op import Op
from ngraph.ops import activations, functions
from ngraph.ops import elementwise as e

# ---- activations --------------------------------------------------------------------------------------------------------


def _squareplus(x: Op, b: float) -> Op:
    size = functions.hypot(x, math.sqrt(b))
    return e.where(e.less(x, 0.0), 0.5 * b / (size + e.absolute(x)), (x + size) * 0.5)


def _log_sigmoid(x: Op) -> Op:
    return e.negative(activations.softplus(e.negative(x)))


def _selu(x: Op) -> Op:
    return positional.selu(x, 1.6732632423543772, 1.0507009873554805)


def _sparse_plus(x: Op) -> Op:
    return e.where(e.less_equal(x, -1.0), 0.0, e.where(e.less(x, 1.0), 0.25 * (x + 1.0) * (x + 1.0), x))


# by name: a function of an op and numbers
ACTIVATIONS: dict[str, Callable[..., Op]] = {
    "relu": lambda x: e.relu(x),
    "relu6": lambda x: e.where(e.less(6.0, x), e.filled(6, (), x.dtype), e.relu(x)),
    "sigmoid": lambda x: e.sigmoid(x),
    "sparse_sigmoid": lambda x: e.where(e.less_equal(x, -1.0), 0.0, e.where(e.less_equal(1.0, x), 1.0, 0.5 * (x + 1.0))),
    "tanh": lambda x: e.tanh(x),
    "tanh_shrink": lambda x: x - e.tanh(x),
    "softplus": lambda x: activations.softplus(x),
    "softsign": lambda x: x / (e.absolute(x) + 1.0),
    "silu": lambda x: activations.silu(x),
    "log_sigmoid": _log_sigmoid,
    "hard_sigmoid": lambda x: positional.hard_sigmoid(x, 1 / 6, 0.5),
    "hard_silu": lambda x: x * positional.hard_sigmoid(x, 1 / 6, 0.5),
    "selu": _selu,
    "hard_tanh": lambda x: e.minimum(e.maximum(x, -1.0), 1.0),
    "sparse_plus": _sparse_plus,
    "soft_shrink": lambda x, t: positional.shrunk(x, t, t),
    "hard_shrink": lambda x, t: positional.shrunk(x, 0.0, t),
    "squareplus": _squareplus,
    "leaky_relu": lambda x, slope: positional.leaky_relu(x, slope),
    "elu": lambda x, alpha: positional.elu(x, alpha),
    "celu": lambda x, alpha: positional.celu(x, alpha),
    "gelu": lambda x, tanh: positional.gelu(x, bool(tanh)),
    "threshold": lambda x, t, value: e.where(e.less(t, x), x, value),
}


def activated(g: KerasTrace, t: Tensor, name: str, numbers: tuple[float, ...]) -> Tensor:
    return Tensor(e.rounding_once(lambda x: ACTIVATIONS[name](x, *numbers))(t.op), t.dims)


def _activation(name: str, *defaults: Any, names: Sequence[str] = ()) -> Callable[..., Any]:
    def function(x: Any, *given: Any, **named: Any) -> Any:
        numbers = [*given, *defaults[len(given) :]]
        for k, n in enumerate(names):
            numbers[k] = named.get(n, numbers[k])
        x = convert_to_tensor(x)
        x = x if name == "relu" else in_float(x)
        return apply(activated, x, name=name, numbers=tuple(numbers))

    function.__name__ = name
    return function


relu, relu6, sigmoid, sparse_sigmoid, tanh, tanh_shrink, softplus, softsign, silu, log_sigmoid = map(
    _activation, "relu relu6 sigmoid sparse_sigmoid tanh tanh_shrink softplus softsign silu log_sigmoid".split()
)
hard_sigmoid, hard_silu, selu, hard_tanh, sparse_plus = map(_activation, "hard_sigmoid hard_silu selu hard_tanh sparse_plus".split())
soft_shrink, hard_shrink = (_activation(name, 0.5, names=("threshold",)) for name in ("soft_shrink", "hard_shrink"))
squareplus = _activation("squareplus", 4, names=("b",))
leaky_relu = _activation("leaky_relu", 0.2, names=("negative_slope",))
elu, celu = (_activation(name, 1.0, names=("alpha",)) for name in ("elu", "celu"))
gelu = _activation("gelu", True, names=("approximate",))


def threshold(x: Any, threshold: float, default_value: float) -> Any:
    return apply(activated, in_float(x), name="threshold", numbers=(float(threshold), float(default_value)))


def glu(x: Any, axis: int = -1) -> Any:
    x = in_float(x)
    if int(x.shape[axis]) % 2:
        raise ValueError(f"axis size must be divisible by 2. Received: x.shape={x.shape} with axis={axis}")
    a, b = numpy.split(x, 2, axis)
    return multiply(a, sigmoid(b))


def shares(g: KerasTrace, t: Tensor, axes: tuple[int, ...], log: bool) -> Tensor:
    return Tensor(reductions.softmax(t.op, reductions.along(t, axes), log), t.dims)


def softmax(x: Any, axis: Any = -1) -> Any:
    x = in_float(x)
    return apply(shares, x, axes=axes_of(x, axis), log=False)


def log_softmax(x: Any, axis: Any = -1) -> Any:
    x = in_float(x)
    return apply(shares, x, axes=axes_of(x, axis), log=True)


def sparsemax(x: Any, axis: int = -1) -> Any:
    x = in_float(x)
    n = int(x.shape[axis])
    ordered = numpy.flip(numpy.sort(x, axis), axis)
    total = numpy.cumsum(ordered, axis)
    k = numpy.reshape(numpy.arange(1, n + 1, dtype=x.dtype), [n if j == axis % x.ndim else 1 for j in range(x.ndim)])
    support = numpy.greater(add(1.0, multiply(k, ordered)), total)
    many = numpy.sum(cast(support, "int32"), axis, True)
    tau = divide(subtract(numpy.take_along_axis(total, subtract(many, 1), axis), 1.0), cast(many, x.dtype))
    return numpy.maximum(subtract(x, tau), 0.0)


# ---- encodings, losses --------------------------------------------------------------------------------------------------


def encoded(g: KerasTrace, t: Tensor, many: Any, axis: int, dtype: str) -> Tensor:
    """A new dim with 1 where its index is the tensor's number; rows of zeros for numbers outside."""
    one, zero = (e.filled(v, (), dtypes.as_dtype(dtype)) for v in (1, 0))
    return shapes.one_hot(g, t, size_of(many), axis, one, zero)


def one_hot(x: Any, num_classes: int, axis: int = -1, dtype: Any = None, sparse: bool = False) -> Any:
    if sparse:
        raise ValueError("Unsupported value `sparse=True` with the ngraph backend")
    x = convert_to_tensor(x)
    dtype = backend.standardize_dtype(dtype or backend.floatx())
    return apply(encoded, x, many=num_classes, axis=axis + x.ndim + 1 if axis < 0 else axis, dtype=dtype)


def multi_hot(x: Any, num_classes: int, axis: int = -1, dtype: Any = None, sparse: bool = False) -> Any:
    x = convert_to_tensor(x)
    hot = one_hot(cast(x, "int32"), num_classes, axis, dtype, sparse)
    return numpy.max(hot, 1 if x.ndim > 1 else 0)


def _log_shares(output: Any, from_logits: bool, axis: int) -> Any:
    if from_logits:
        return log_softmax(output, axis)
    output = divide(output, numpy.sum(output, axis, True))
    return numpy.log(numpy.clip(output, backend.epsilon(), 1.0 - backend.epsilon()))


def _same_shapes(target: Any, output: Any, least: int = 0) -> None:
    if len(target.shape) != len(output.shape) or any(a != b for a, b in zip(target.shape, output.shape, strict=True)):
        raise ValueError(
            f"Arguments `target` and `output` must have the same shape. Received: target.shape={target.shape}, output.shape={output.shape}"
        )
    if len(target.shape) < least:
        raise ValueError(
            f"Arguments `target` and `output` must be at least rank {least}. "
            f"Received: target.shape={target.shape}, output.shape={output.shape}"
        )


def categorical_crossentropy(target: Any, output: Any, from_logits: bool = False, axis: int = -1) -> Any:
    target, output = convert_to_tensor(target), convert_to_tensor(output)
    _same_shapes(target, output, 1)
    return numpy.negative(numpy.sum(multiply(target, _log_shares(output, from_logits, axis)), axis))


def sparse_categorical_crossentropy(target: Any, output: Any, from_logits: bool = False, axis: int = -1) -> Any:
    target, output = convert_to_tensor(target, "int32"), convert_to_tensor(output)
    if target.ndim == output.ndim and target.shape[-1] == 1:
        target = numpy.squeeze(target, -1)
    if output.ndim < 1:
        raise ValueError(f"Argument `output` must be at least rank 1. Received: output.shape={output.shape}")
    if target.ndim != output.ndim - 1 or any(a != b for a, b in zip(target.shape, output.shape[:-1], strict=True)):
        raise ValueError(
            "Arguments `target` and `output` must have the same shape up until the last dimension: "
            f"target.shape={target.shape}, output.shape={output.shape}"
        )
    hot = one_hot(target, output.shape[axis], axis, output.dtype)
    return numpy.negative(numpy.sum(multiply(hot, _log_shares(output, from_logits, axis)), axis))


def binary_crossentropy(target: Any, output: Any, from_logits: bool = False) -> Any:
    target, output = convert_to_tensor(target), convert_to_tensor(output)
    _same_shapes(target, output)
    rest = subtract(1.0, target)
    if from_logits:
        found = add(multiply(target, log_sigmoid(output)), multiply(rest, log_sigmoid(numpy.negative(output))))
    else:
        output = numpy.clip(output, backend.epsilon(), 1.0 - backend.epsilon())
        found = add(multiply(target, numpy.log(output)), multiply(rest, numpy.log(subtract(1.0, output))))
    return numpy.negative(found)


# ---- normalization ------------------------------------------------------------------------------------------------------


def moments(x: Any, axes: Any, keepdims: bool = False, synchronized: bool = False) -> tuple[Any, Any]:
    if synchronized:
        raise NotImplementedError("Argument synchronized=True is not supported with the ngraph backend.")
    x = convert_to_tensor(x)
    narrow = x.dtype.name in ("float16", "bfloat16")
    wide = cast(x, "float32") if narrow else x
    mean = numpy.mean(wide, axes, True)
    variance = numpy.var(wide, axes, True)
    if not keepdims:
        mean, variance = numpy.squeeze(mean, axes), numpy.squeeze(variance, axes)
    if narrow:
        top = float(np.finfo(np.float16).max)
        mean, variance = (cast(numpy.clip(v, -top, top), x.dtype) for v in (mean, variance))
    return mean, variance


def batch_normalization(x: Any, mean: Any, variance: Any, axis: int, offset: Any = None, scale: Any = None, epsilon: float = 1e-3) -> Any:
    x = convert_to_tensor(x)
    shape: list[Any] = [1] * x.ndim
    shape[axis] = convert_to_tensor(mean).shape[0]
    mean, variance = numpy.reshape(mean, shape), numpy.reshape(variance, shape)
    inverse = numpy.rsqrt(add(variance, epsilon))
    if scale is not None:
        inverse = multiply(inverse, numpy.reshape(scale, shape))
    rest = numpy.negative(multiply(mean, inverse))
    if offset is not None:
        rest = add(rest, numpy.reshape(offset, shape))
    return add(multiply(x, inverse), rest)


def psnr(x1: Any, x2: Any, max_val: float) -> Any:
    x1, x2 = convert_to_tensor(x1), convert_to_tensor(x2)
    if x1.shape != x2.shape:
        raise ValueError(f"Input shapes {x1.shape} and {x2.shape} must match for PSNR calculation. ")
    error = numpy.mean(numpy.square(subtract(x1, x2)))
    return subtract(20.0 * math.log10(float(np.asarray(max_val))), multiply(10.0, numpy.log10(error)))


# ---- attention ----------------------------------------------------------------------------------------------------------


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    scale: Any = None,
    is_causal: bool = False,
    flash_attention: Any = None,
    attn_logits_soft_cap: Any = None,
) -> Any:
    """Returns for each query [batch, time, heads, width] the values' mean by the softmax of its products with the keys."""
    query, key, value = (convert_to_tensor(v) for v in (query, key, value))
    if query.ndim != 4 or key.ndim != 4 or value.ndim != 4:
        raise ValueError(
            "`dot_product_attention` only supports 4D inputs. "
            f"Received: query.shape={query.shape}, key.shape={key.shape}, value.shape={value.shape}."
        )
    dtype = result_type(query.dtype, key.dtype, value.dtype)
    query, key, value = (cast(v, dtype) for v in (query, key, value))
    heads, groups = int(query.shape[2]), int(key.shape[2])
    if heads != groups:
        key, value = (numpy.repeat(v, heads // groups, axis=2) for v in (key, value))
    scale = 1.0 / math.sqrt(int(query.shape[-1])) if scale is None else scale
    scores = numpy.einsum("BTNH,BSNH->BNTS", query, key)
    narrow = dtype in ("float16", "bfloat16")
    scores = multiply(cast(scores, "float32") if narrow else scores, scale)
    if attn_logits_soft_cap is not None:
        scores = multiply(numpy.tanh(divide(scores, attn_logits_soft_cap)), attn_logits_soft_cap)
    if bias is not None:
        scores = add(scores, cast(bias, scores.dtype))
    allowed = None if mask is None else cast(mask, "bool")
    if is_causal:
        rows, columns = numpy.arange(query.shape[1], dtype="int32"), numpy.arange(key.shape[1], dtype="int32")
        before = numpy.greater_equal(expand_dims(rows, 1), expand_dims(columns, 0))
        before = numpy.reshape(before, (1, 1, *before.shape))
        allowed = before if allowed is None else numpy.logical_and(allowed, before)
    if allowed is not None:
        scores = where(allowed, scores, cast(-0.7 * float(np.finfo(np.float32).max), scores.dtype))
    weights = cast(softmax(scores), dtype)
    return numpy.einsum("BNTS,BSNH->BTNH", weights, value)

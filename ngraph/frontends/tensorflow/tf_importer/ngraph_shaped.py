"""Ops by position, under TensorFlow's names: `import ngraph.frontends.tensorflow.tf_importer.ngraph_shaped as ns; ns.add(x, y)`.

Tensors have axes named by their position (`utils_pos_axes`), and are broadcast as NumPy broadcasts.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import ngraph as ng
from ngraph.errors import ArgumentError
from ngraph.frontends.tensorflow.tf_importer.utils_broadcast import broadcast_to, broadcasted_shape
from ngraph.frontends.tensorflow.tf_importer.utils_pos_axes import cast_to_pos_axes, make_pos_axes
from ngraph.op_graph.op import Op


def _named(op: Op, name: str | None) -> Op:
    return op if name is None else op.named(name)


def placeholder(dtype: Any = None, shape: Sequence[int | None] | None = None, name: str | None = None) -> Op:
    """Returns a placeholder of a shape, None for open lengths."""
    return _named(ng.placeholder(make_pos_axes(shape or ()), dtype=dtype), name)


def Variable(initial_value: Any = None, name: str | None = None, dtype: Any = None) -> Op:
    """Returns a variable that starts as this array. Raises ArgumentError without one."""
    if initial_value is None:
        raise ArgumentError("a variable has no initial value", fix="give initial_value=")
    value = np.asarray(initial_value)
    return _named(ng.variable(make_pos_axes(value.shape), dtype=dtype, initial_value=value), name)


def constant(value: Any, dtype: Any = None, shape: Sequence[int] | None = None, name: str = "Const", verify_shape: bool = False) -> Op:
    """Returns a constant; one number fills a shape, but with verify_shape. Raises ArgumentError for a value of another shape."""
    array = np.asarray(value)
    if shape is not None and tuple(shape) != array.shape:
        if verify_shape or array.shape:
            raise ArgumentError(f"the value has the shape {list(array.shape)}, not {list(shape)}", fix="give one of the shape")
        array = np.full(tuple(shape), value, array.dtype)
    return _named(ng.constant(array, axes=make_pos_axes(array.shape), dtype=dtype), name)


def ones(shape: Sequence[int], dtype: Any = np.float32, name: str | None = None) -> Op:
    """Returns ones of a shape."""
    return constant(1.0, dtype, shape, name or "ones")


def zeros(shape: Sequence[int], dtype: Any = np.float32, name: str | None = None) -> Op:
    """Returns zeros of a shape."""
    return constant(0.0, dtype, shape, name or "zeros")


def _binary(function: Callable[..., Op], name: str, what: str) -> Callable[..., Op]:
    def call(x: Any, y: Any, name: str | None = None) -> Op:
        x, y = (v if isinstance(v, Op) else constant(v) for v in (x, y))
        shape = broadcasted_shape(x.axes.lengths, y.axes.lengths)
        return _named(function(broadcast_to(x, shape), broadcast_to(y, shape)), name)

    call.__name__, call.__doc__ = name, f"Returns {what}, broadcast."
    return call


def _unary(function: Callable[..., Op], name: str, what: str) -> Callable[..., Op]:
    def call(x: Op, name: str | None = None) -> Op:
        return _named(function(x), name)

    call.__name__, call.__doc__ = name, f"Returns {what} of each element."
    return call


def _reduction(function: Callable[..., Op], name: str, what: str) -> Callable[..., Op]:
    def call(input_tensor: Op, axis: Any = None, keep_dims: bool = False, name: str | None = None) -> Op:
        rank = len(input_tensor.axes)
        wanted = builtins.range(rank) if axis is None else [axis] if isinstance(axis, int) else axis
        places = {k % rank for k in wanted} if rank else set()
        found = function(input_tensor, reduction_axes=ng.make_axes([a for k, a in enumerate(input_tensor.axes) if k in places]))
        if keep_dims:
            kept = make_pos_axes([1 if k in places else a.length for k, a in enumerate(input_tensor.axes)])
            found = ng.cast_axes(found, [a for k, a in enumerate(kept) if k not in places])
            return _named(ng.axes_with_order(ng.broadcast(found, kept), kept), name)
        return _named(cast_to_pos_axes(found), name)

    call.__name__, call.__doc__ = name, f"Returns {what} along `axis`, a number or several; None: all."
    return call


add = _binary(ng.add, "add", "x + y")
subtract = _binary(ng.subtract, "subtract", "x - y")
multiply = _binary(ng.multiply, "multiply", "x * y")
divide = _binary(ng.divide, "divide", "x / y")
mod = _binary(ng.mod, "mod", "the remainder of x / y")
pow = _binary(ng.power, "pow", "x to the power y")
maximum = _binary(ng.maximum, "maximum", "the greater of x and y")
minimum = _binary(ng.minimum, "minimum", "the lesser of x and y")
equal = _binary(ng.equal, "equal", "x == y")
not_equal = _binary(ng.not_equal, "not_equal", "x != y")
less = _binary(ng.less, "less", "x < y")
less_equal = _binary(ng.less_equal, "less_equal", "x <= y")
greater = _binary(ng.greater, "greater", "x > y")
greater_equal = _binary(ng.greater_equal, "greater_equal", "x >= y")

abs = _unary(ng.absolute, "abs", "the absolute value")
exp = _unary(ng.exp, "exp", "e to the power")
log = _unary(ng.log, "log", "the natural logarithm")
tanh = _unary(ng.tanh, "tanh", "the hyperbolic tangent")
sigmoid = _unary(ng.sigmoid, "sigmoid", "1 / (1 + exp(-x))")
relu = _unary(ng.relu, "relu", "the part above 0")
negative = _unary(ng.negative, "negative", "the negative")
square = _unary(ng.square, "square", "the square")
sign = _unary(ng.sign, "sign", "the sign")

reduce_sum = _reduction(ng.sum, "reduce_sum", "the sum")
reduce_mean = _reduction(ng.mean, "reduce_mean", "the mean")
reduce_max = _reduction(ng.max, "reduce_max", "the greatest element")
reduce_min = _reduction(ng.min, "reduce_min", "the least element")
reduce_prod = _reduction(ng.prod, "reduce_prod", "the product")


def matmul(left: Op, right: Op, transpose_a: bool = False, transpose_b: bool = False, name: str | None = None) -> Op:
    """Returns the product of two matrices. Raises ArgumentError for tensors of other ranks, or lengths that disagree."""
    a, b = ([*x.axes][:: -1 if turned else 1] for x, turned in ((left, transpose_a), (right, transpose_b)))
    if len(a) != 2 or len(b) != 2 or a[1].length != b[0].length:
        shapes = f"{[x.length for x in a]} and {[x.length for x in b]}"
        raise ArgumentError(f"the matrices {shapes} have no product", fix="give matrices [n, k] and [k, m]")
    row, inner, column = make_pos_axes([a[0].length, a[1].length, b[1].length], [1, 2, 0])
    x = ng.cast_axes(left, [inner, row] if transpose_a else [row, inner])
    y = ng.cast_axes(right, [column, inner] if transpose_b else [inner, column])
    return _named(ng.axes_with_order(ng.contract(x, y, over=inner), [row, column]), name)


def softmax(logits: Op, dim: int = -1, name: str | None = None) -> Op:
    """Returns the softmax along a dim."""
    return _named(ng.softmax(logits, normalization_axes=[*logits.axes][dim]), name)


def sparse_softmax_cross_entropy_with_logits(labels: Op, logits: Op, name: str | None = None) -> Op:
    """Returns the cross entropy [n] of logits [n, classes] with classes in labels [n]. Raises ArgumentError for other shapes."""
    if len(logits.axes) != 2 or len(labels.axes) != 1 or logits.axes[0].length != labels.axes[0].length:
        shapes = f"logits {list(logits.axes.lengths)} and labels {list(labels.axes.lengths)}"
        raise ArgumentError(f"{shapes} do not fit", fix="give logits [n, classes] and labels [n]")
    rows, classes = logits.axes
    hot = ng.one_hot(ng.cast_axes(labels, [rows]), axis=classes)
    return _named(cast_to_pos_axes(-ng.sum(ng.log_softmax(logits, classes) * hot, reduction_axes=classes)), name)

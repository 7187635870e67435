"""Layers without weights of their own, as functions: norms over layers, batches and groups of channels; dropout; gated linear units.

16-bit floats are normalised in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ngraph.errors import ArgumentError, AxisError
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axes, Axis, make_axis, show_axes
from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import find_axis, own_axes, show_input
from ngraph.ops.elementwise import as_op, cast, floating, rounding_once, sigmoid, sqrt, where
from ngraph.ops.moving import split
from ngraph.ops.random import uniform
from ngraph.ops.rearrange import axes_with_order, flatten, map_roles, unflatten
from ngraph.ops.reduce import mean


def _weighted(x: Op, weight: Any, bias: Any, normal: Callable[..., Op]) -> Op:
    """Returns `normal` of x, times the weight, plus the bias: all in one dtype, 16-bit floats in float32."""
    given = [w for w in (weight, bias) if w is not None]
    ops, _ = floating((x, *given), {})
    for w in ops[1:]:
        more = [a for a in w.axes if a not in x.axes]
        if more:
            raise AxisError(
                f"the weight or bias {w.label} has {show_axes(more)}, and what it scales lacks it",
                details=(show_input(x), show_input(w)),
                fix="give weights that have axes of it alone",
            )

    def made(x: Op, *others: Op) -> Op:
        rest = iter(others)
        y = normal(x)
        y = y if weight is None else y * next(rest)
        return y if bias is None else y + next(rest)

    return axes_with_order(rounding_once(made)(*ops), x.axes)


def _standard(x: Op, axes: Axes, eps: float) -> Op:
    distance = x - mean(x, reduction_axes=axes)
    return distance / sqrt(mean(distance * distance, reduction_axes=axes) + eps)


def layer_norm(x: Any, axes: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Op:
    """Returns `x` less its mean along `axes`, over its standard deviation there, times `weight`, plus `bias`: tensors with these axes.

    Source: J. Ba and others, "Layer normalization" (2016).

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.layer_norm(ng.constant([1.0, 3.0], "D=2"), "D", eps=0))()
        array([-1.,  1.])
    """
    (x,), _ = floating((as_op(x),), {})
    gone = own_axes(x, axes, "layer_norm")
    return _weighted(x, weight, bias, lambda x: _standard(x, gone, eps))


def rms_norm(x: Any, axes: Any, weight: Any = None, eps: float = 1e-6) -> Op:
    """Returns `x` over the root of its mean square along `axes`, times `weight`, a tensor with these axes.

    Source: B. Zhang and R. Sennrich, "Root mean square layer normalization" (2019).

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.rms_norm(ng.constant([2.0, -2.0], "D=2"), "D", eps=0))()
        array([ 1., -1.])
    """
    (x,), _ = floating((as_op(x),), {})
    gone = own_axes(x, axes, "rms_norm")
    return _weighted(x, weight, None, lambda x: x / sqrt(mean(x * x, reduction_axes=gone) + eps))


def batch_norm(
    x: Any,
    axes: Any,
    weight: Any = None,
    bias: Any = None,
    mean_of_x: Any = None,
    variance_of_x: Any = None,
    eps: float = 1e-5,
) -> Op:
    """Returns `x` less its mean for each index of `axes` (the channels), over its standard deviation, times `weight`, plus `bias`.

    mean_of_x, variance_of_x: tensors with these axes, in inference; without them those of x along all other axes, as in training.
    Source: S. Ioffe and C. Szegedy, "Batch normalization" (2015). `ngraph.frontends.neon.BatchNorm` is a layer with moving means.

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> x = ng.constant([[1.0, 3.0], [5.0, 5.0]], "C=2 N=2")
        >>> executor(ng.batch_norm(x, "C", bias=ng.constant([0.0, 7.0], "C=2"), eps=1e-30))()
        array([[-1.,  1.],
               [ 7.,  7.]])
    """
    (x,), _ = floating((as_op(x),), {})
    channels = own_axes(x, axes, "batch_norm")
    if (mean_of_x is None) != (variance_of_x is None):
        raise ArgumentError("batch_norm with one of mean and variance", fix="give both, or none for those of x")
    if mean_of_x is None:
        rest = x.axes - channels
        return _weighted(x, weight, bias, lambda x: _standard(x, rest, eps))
    m, v = as_op(mean_of_x), as_op(variance_of_x)
    return _weighted(x, weight, bias, lambda x: (x - cast(m, x.dtype)) / sqrt(cast(v, x.dtype) + eps))


def group_norm(x: Any, channel: Axis | str, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, axes: Any = None) -> Op:
    """Returns `x` less its mean in each of `groups` parts of its channels, over its standard deviation, times `weight`, plus `bias`.

    channel: the axis of the channels, which weight and bias have. axes: the axes that a mean takes in with the part of the channels; all
    but batch axes by default. One group for each channel is instance normalisation. Raises AxisError where the groups do not divide.
    Source: Y. Wu and K. He, "Group normalization" (2018).

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.group_norm(ng.constant([1.0, 3.0, 5.0, 9.0], "C=4"), "C", 2, eps=0))()
        array([-1.,  1., -1.,  1.])
    """
    (x,), _ = floating((as_op(x),), {})
    c = find_axis(x, channel, "group_norm")
    if c.length is None or groups < 1 or c.length % groups:
        raise AxisError(f"group_norm({x.label}): {c!r} has no {groups} equal parts", details=(show_input(x),), fix="take a divisor of it")
    others = Axes(a for a in x.axes if a != c and not a.is_batch) if axes is None else own_axes(x, axes, "group_norm") - Axes(c)
    g, inside = make_axis(groups, name=f"{c.name}_group"), make_axis(c.length // groups, name=f"{c.name}_inside")

    def normal(x: Op) -> Op:
        apart = unflatten(x, [b for a in x.axes for b in ((g, inside) if a == c else (a,))])
        whole = flatten(_standard(apart, Axes((inside, *others)), eps), [g, inside])
        joined = next(a for a in whole.axes if a not in x.axes)
        return map_roles(whole, {joined: c})

    return _weighted(x, weight, bias, normal)


def dropout(x: Any, rate: float = 0.5, training: Any = True, seed: int | None = None) -> Op:
    """Returns `x` with a share `rate` of its elements 0 at random, the others larger by 1 / (1 - rate); new in each call.

    training: False gives x itself; or a bool scalar that a call gives. seed: as in `ng.uniform`. Integers and bool become float32.
    Source: N. Srivastava and others, "Dropout" (2014). Raises ArgumentError for a rate outside 0 to 1.

        >>> import ngraph as ng
        >>> ng.dropout(ng.ones("N=2 H=3"), 0.1).axes.lengths
        (2, 3)
    """
    if not 0 <= rate <= 1:
        raise ArgumentError(f"dropout at a rate of {rate}", fix="take the share that is dropped, from 0 to 1")
    (x,), _ = floating((as_op(x),), {})
    if training is False or rate == 0:
        return x
    kept = rate <= uniform(x.axes, dtype=dtypes.float32, seed=seed)
    dropped = where(kept, x * (1 / (1 - rate) if rate < 1 else 0.0), 0.0)
    return dropped if training is True else where(training, dropped, x)


def glu(x: Any, axis: Axis | str) -> Op:
    """Returns the first half of `x` along `axis`, times the sigmoid of the second half. Raises AxisError for an odd length.

    Source: Y. Dauphin and others, "Language modeling with gated convolutional networks" (2016).

        >>> import ngraph as ng
        >>> from ngraph.util.utils import executor
        >>> executor(ng.glu(ng.constant([3.0, 0.0], "D=2"), "D"))()
        array([1.5])
    """
    (x,), _ = floating((as_op(x),), {})
    whole = find_axis(x, axis, "glu")
    if (whole.length or 0) % 2:
        raise AxisError(f"glu({x.label}): {whole!r} has no two halves", details=(show_input(x),), fix="take an axis of even length")
    first, second = split(x, whole, 2)
    return rounding_once(lambda a, b: a * sigmoid(b))(first, second)

"""Translators of convolution, pooling and normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ngraph.frontends.onnx.proto import numpy_type
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional import norms, windows
from ngraph.frontends.positional.reductions import mean, power_mean, reduce_over, total
from ngraph.frontends.positional.values import Tensor, Value
from ngraph.frontends.positional.windows import Windowing, with_bias
from ngraph.op_graph.dtypes import as_dtype


def windowing(n: Any, kernel: Sequence[int] | None = None) -> Windowing:
    """The windows that a node's attributes say."""
    kernel = n.attr("kernel_shape") if kernel is None else kernel
    strides, dilations, pads = (n.attr(name) for name in ("strides", "dilations", "pads"))
    return windows.windowing(kernel, strides, dilations, pads, n.attr("auto_pad", "NOTSET"), n.attr("ceil_mode", 0))


# ---- convolution --------------------------------------------------------------------------------------------------------


def convolution(n: Any, x: Tensor, w: Value) -> Tensor:
    return windows.convolution(n.g, x, w, windowing(n, n.g.numbers(w.shape[2:])), n.attr("group", 1))


@translates("Conv")
def conv(n: Any, x: Value, w: Value, bias: Value = None) -> Tensor:
    return with_bias(n.g, convolution(n, n.g.tensor(x), w), bias)


@translates("ConvTranspose")
def conv_transpose(n: Any, x: Value, w: Value, bias: Value = None) -> Tensor:
    by, more = windowing(n, n.g.numbers(w.shape[2:])), n.attr("output_padding")
    return with_bias(n.g, windows.conv_transpose(n.g, n.g.tensor(x), w, by, n.attr("group", 1), more, n.attr("output_shape")), bias)


@translates("DeformConv")
def deform_conv(n: Any, x: Value, w: Value, offset: Value, bias: Value = None, mask: Value = None) -> Tensor:
    by, groups = windowing(n, n.g.numbers(w.shape[2:])), (n.attr("group", 1), n.attr("offset_group", 1))
    return with_bias(n.g, windows.deform_conv(n.g, n.g.tensor(x), w, offset, mask, by, *groups), bias)


@translates("Col2Im")
def col2im(n: Any, x: Value, image: Value, block: Value) -> Tensor:
    return windows.col2im(n.g, n.g.tensor(x), n.g.ints(image), windowing(n, n.g.ints(block)))


# ---- pooling ------------------------------------------------------------------------------------------------------------


@translates("MaxPool")
def max_pool(n: Any, x: Value) -> tuple[Tensor, ...]:
    t = n.g.tensor(x)
    return windows.max_pool(n.g, t, windows.windows(n.g, t, windowing(n)), n.wants(1), bool(n.attr("storage_order", 0)))


@translates("AveragePool")
def average_pool(n: Any, x: Value) -> Tensor:
    t = n.g.tensor(x)
    return windows.average_pool(n.g, t, windows.windows(n.g, t, windowing(n)), bool(n.attr("count_include_pad", 0)))


@translates("LpPool")
def lp_pool(n: Any, x: Value) -> Tensor:
    t = n.g.tensor(x)
    return windows.lp_pool(n.g, t, windows.windows(n.g, t, windowing(n)), n.attr("p", 2))


@translates("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(n: Any, x: Value) -> Tensor:
    t = n.g.tensor(x)
    function = {
        "GlobalAveragePool": mean,
        "GlobalMaxPool": lambda x, axes: total(x, axes, "max"),
        "GlobalLpPool": lambda x, axes: power_mean(x, axes, n.attr("p", 2)),
    }[n.op]
    return reduce_over(t, range(2, t.rank), function, True)


@translates("MaxUnpool")
def max_unpool(n: Any, x: Value, indices: Value, shape: Value = None) -> Tensor:
    wanted = None if shape is None else n.g.sizes(shape)
    return windows.max_unpool(n.g, n.g.tensor(x), indices, windowing(n), wanted, n.gives[0])


# ---- normalization ------------------------------------------------------------------------------------------------------


@translates("BatchNormalization")
def batch_norm(n: Any, x: Value, scale: Value, bias: Value, average: Value, variance: Value) -> tuple[Tensor, ...]:
    g, t = n.g, n.g.tensor(x)
    if n.version < 9 and not n.attr("spatial", 1):
        vectors = [Tensor(u.op, [None, *u.dims]) for u in map(g.tensor, (scale, bias, average, variance))]
    else:
        vectors = [norms.by_channel(g, v, t.rank) for v in (scale, bias, average, variance)]
    training = n.attr("training_mode", 0) if n.version >= 14 else 0
    return norms.batch_norm(g, t, vectors, n.attr("epsilon", 1e-5), n.attr("momentum", 0.9) if training else None)


@translates("InstanceNormalization")
def instance_norm(n: Any, x: Value, scale: Value, bias: Value) -> Tensor:
    return norms.instance_norm(n.g, n.g.tensor(x), scale, bias, n.attr("epsilon", 1e-5))


@translates("LayerNormalization")
@translates("LayerNormalization", domain="com.microsoft")
def layer_norm(n: Any, x: Value, scale: Value = None, bias: Value = None) -> tuple[Tensor, ...]:
    t, wide = n.g.tensor(x), as_dtype(numpy_type(n.attr("stash_type", 1)))
    return norms.layer_norm(n.g, t, scale, bias, n.attr("axis", -1) % t.rank, n.attr("epsilon", 1e-5), wide)


@translates("RMSNormalization")
def rms_norm(n: Any, x: Value, scale: Value) -> Tensor:
    t, wide = n.g.tensor(x), as_dtype(numpy_type(n.attr("stash_type", 1)))
    return norms.rms_norm(n.g, t, scale, n.attr("axis", -1) % t.rank, n.attr("epsilon", 1e-5), wide)


@translates("LRN")
def local_response(n: Any, x: Value) -> Tensor:
    return norms.local_response(n.g, n.g.tensor(x), n.attr("size"), n.attr("alpha", 1e-4), n.attr("beta", 0.75), n.attr("bias", 1.0))


@translates("MeanVarianceNormalization")
def mean_variance(n: Any, x: Value) -> Tensor:
    t = n.g.tensor(x)
    return norms.mean_variance(t, [k % t.rank for k in n.attr("axes", [0, 2, 3])])

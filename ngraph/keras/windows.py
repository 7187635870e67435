"""Convolutions, poolings and other functions of windows: those of `keras.ops.nn`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from keras.src import backend
from keras.src.backend.common.backend_utils import compute_conv_transpose_padding_args_for_jax

from ngraph.frontends.positional import windows
from ngraph.frontends.positional.shapes import padded, permuted
from ngraph.frontends.positional.values import Tensor
from ngraph.keras import numpy
from ngraph.keras.convert import convert_to_tensor
from ngraph.keras.ctc import ctc_decode as ctc_decode
from ngraph.keras.ctc import ctc_loss as ctc_loss
from ngraph.keras.tensors import apply
from ngraph.keras.traces import KerasTrace

# ---- windows ------------------------------------------------------------------------------------------------------------


def each_dim(given: Any, many: int) -> list[int]:
    """Returns one number for each spatial dim."""
    return [int(given)] * many if isinstance(given, (int, np.integer)) else [int(n) for n in given]


def first_channels(t: Tensor, last: bool) -> Tensor:
    """[n, spatial…, c] as [n, c, spatial…], which moves nothing."""
    return permuted(t, 0, t.rank - 1, *range(1, t.rank - 1)) if last else t


def last_channels(t: Tensor, last: bool) -> Tensor:
    """And back."""
    return permuted(t, 0, *range(2, t.rank), 1) if last else t


AUTO = {"same": "SAME_UPPER", "valid": "VALID", "causal": "CAUSAL"}


def pooled(g: KerasTrace, t: Tensor, kind: str, size: Any, strides: Any, auto: str, last: bool) -> Tensor:
    t = first_channels(t, last)
    ws = windows.windows(g, t, windows.windowing(list(size), list(strides), auto=auto))
    made = windows.max_pool(g, t, ws)[0] if kind == "max" else windows.average_pool(g, t, ws)
    return last_channels(made, last)


def _pool(kind: str, inputs: Any, pool_size: Any, strides: Any, padding: str, data_format: Any) -> Any:
    x = convert_to_tensor(inputs)
    many = x.ndim - 2
    size = each_dim(pool_size, many)
    if padding.lower() not in ("valid", "same"):
        raise ValueError(f"Invalid padding '{padding}', must be 'same' or 'valid'.")
    last = backend.standardize_data_format(data_format) == "channels_last"
    steps = tuple(size if strides is None else each_dim(strides, many))
    return apply(pooled, x, kind=kind, size=tuple(size), strides=steps, auto=AUTO[padding.lower()], last=last)


def max_pool(inputs: Any, pool_size: Any, strides: Any = None, padding: str = "valid", data_format: Any = None) -> Any:
    return _pool("max", inputs, pool_size, strides, padding, data_format)


def average_pool(inputs: Any, pool_size: Any, strides: Any = None, padding: str = "valid", data_format: Any = None) -> Any:
    return _pool("average", inputs, pool_size, strides, padding, data_format)


def _adaptive(inputs: Any, output_size: Any, data_format: Any, reduce: Callable[..., Any]) -> Any:
    """Returns for each of the output's places what a reduction gives of its share of each spatial dim."""
    x = convert_to_tensor(inputs)
    last = backend.standardize_data_format(data_format) == "channels_last"
    for k, n in enumerate(each_dim(output_size, x.ndim - 2)):
        dim = k + 1 if last else k + 2
        size = int(x.shape[dim])
        front = (*[slice(None)] * dim,)
        if size % n == 0:
            wide = numpy.reshape(x, (*x.shape[:dim], n, size // n, *x.shape[dim + 1 :]))
            x = reduce(wide, dim + 1)
            continue
        parts = [x[(*front, slice(size * j // n, -(-size * (j + 1) // n)))] for j in range(n)]
        x = numpy.concatenate([reduce(p, dim, True) for p in parts], dim)
    return x


def adaptive_average_pool(inputs: Any, output_size: Any, data_format: Any = None) -> Any:
    return _adaptive(inputs, output_size, data_format, numpy.mean)


def adaptive_max_pool(inputs: Any, output_size: Any, data_format: Any = None) -> Any:
    return _adaptive(inputs, output_size, data_format, numpy.max)


def convolved(g: KerasTrace, t: Tensor, w: Tensor, strides: Any, auto: str, dilations: Any, last: bool, groups: int) -> Tensor:
    t = first_channels(t, last)
    kernel = [g.number(n) for n in w.shape[:-2]]
    if auto == "CAUSAL":
        for k, (n, d) in enumerate(zip(kernel, dilations, strict=True)):
            t = padded(g, t, 2 + k, (n - 1) * d, 0)
        auto = "VALID"
    w = permuted(w, w.rank - 1, w.rank - 2, *range(w.rank - 2))
    made = windows.convolution(g, t, w, windows.windowing(kernel, list(strides), list(dilations), auto=auto), groups)
    return last_channels(made, last)


def conv(inputs: Any, kernel: Any, strides: Any = 1, padding: str = "valid", data_format: Any = None, dilation_rate: Any = 1) -> Any:
    x, w = numpy.met(inputs, kernel)
    last = backend.standardize_data_format(data_format) == "channels_last"
    channels, of_kernel = int(x.shape[-1 if last else 1]), int(w.shape[-2])
    if channels % of_kernel:
        raise ValueError(
            "The number of input channels must be evenly divisible by kernel's in_channels. "
            f"Received input channels {channels} and kernel in_channels {of_kernel}. "
        )
    many = x.ndim - 2
    found = apply(
        convolved,
        x,
        w,
        strides=tuple(each_dim(strides, many)),
        auto=AUTO[padding.lower()],
        dilations=tuple(each_dim(dilation_rate, many)),
        last=last,
        groups=channels // of_kernel,
    )
    if any(isinstance(n, int) and n < 1 for n in found.shape[1:]):
        raise ValueError(
            "The convolution operation resulted in an empty output. This can happen if the input is too small for the given kernel size, "
            "strides, dilation rate, and padding mode. Please check the input shape and convolution parameters."
        )
    return found


def depthwise_conv(
    inputs: Any, kernel: Any, strides: Any = 1, padding: str = "valid", data_format: Any = None, dilation_rate: Any = 1
) -> Any:
    kernel = convert_to_tensor(kernel)
    wide = numpy.reshape(kernel, (*kernel.shape[:-2], 1, kernel.shape[-1] * kernel.shape[-2]))
    return conv(inputs, wide, strides, padding, data_format, dilation_rate)


def separable_conv(
    inputs: Any,
    depthwise_kernel: Any,
    pointwise_kernel: Any,
    strides: Any = 1,
    padding: str = "valid",
    data_format: Any = None,
    dilation_rate: Any = 1,
) -> Any:
    between = depthwise_conv(inputs, depthwise_kernel, strides, padding, data_format, dilation_rate)
    return conv(between, pointwise_kernel, 1, "valid", data_format, 1)


def deconvolved(g: KerasTrace, t: Tensor, w: Tensor, strides: Any, pads: Any, dilations: Any, last: bool) -> Tensor:
    """The transpose of a convolution; pads: around the spread input, before and after each dim."""
    t = first_channels(t, last)
    kernel = [g.number(n) for n in w.shape[:-2]]
    w = permuted(w, w.rank - 1, w.rank - 2, *range(w.rank - 2))
    reach = [(n - 1) * d for n, d in zip(kernel, dilations, strict=True)]
    before = [r - p[0] for r, p in zip(reach, pads, strict=True)]
    after = [r - p[1] for r, p in zip(reach, pads, strict=True)]
    by = windows.windowing(kernel, list(strides), list(dilations), [*before, *after])
    return last_channels(windows.conv_transpose(g, t, w, by), last)


def conv_transpose(
    inputs: Any,
    kernel: Any,
    strides: Any = 1,
    padding: str = "valid",
    output_padding: Any = None,
    data_format: Any = None,
    dilation_rate: Any = 1,
) -> Any:
    x, w = numpy.met(inputs, kernel)
    last = backend.standardize_data_format(data_format) == "channels_last"
    if int(x.shape[-1 if last else 1]) != int(w.shape[-1]):
        raise ValueError(
            "The number of input channels must match the kernel's input channels. "
            f"Received: input channels {x.shape[-1 if last else 1]}, kernel input channels {w.shape[-1]}."
        )
    pads = compute_conv_transpose_padding_args_for_jax(
        input_shape=x.shape,
        kernel_shape=w.shape,
        strides=strides,
        padding=padding,
        output_padding=output_padding,
        dilation_rate=dilation_rate,
    )
    many = x.ndim - 2
    return apply(
        deconvolved,
        x,
        w,
        strides=tuple(each_dim(strides, many)),
        pads=tuple([tuple(map(int, p)) for p in pads]),
        dilations=tuple(each_dim(dilation_rate, many)),
        last=last,
    )


def _pair(given: Any) -> tuple[int, int]:
    return (given, given) if isinstance(given, int) else tuple(given)


def unfold(input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """Returns the windows of [n, c, h, w] as columns [n, c * window, windows]."""
    x = convert_to_tensor(input)
    (kh, kw), (dh, dw), (ph, pw), (sh, sw) = map(_pair, (kernel_size, dilation, padding, stride))
    x = numpy.pad(x, [(0, 0), (0, 0), (ph, ph), (pw, pw)])
    n, c, h, w = x.shape
    oh, ow = (h - (kh - 1) * dh - 1) // sh + 1, (w - (kw - 1) * dw - 1) // sw + 1
    parts = [
        x[:, :, i * dh : i * dh + (oh - 1) * sh + 1 : sh, j * dw : j * dw + (ow - 1) * sw + 1 : sw] for i in range(kh) for j in range(kw)
    ]
    return numpy.reshape(numpy.stack(parts, 2), (n, c * kh * kw, oh * ow))


def folded(g: KerasTrace, t: Tensor, sizes: Any, kernel: Any, dilations: Any, pads: Any, strides: Any) -> Tensor:
    by = windows.windowing(list(kernel), list(strides), list(dilations), [*pads, *pads])
    return windows.col2im(g, t, list(sizes), by)


def fold(x: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    sizes, kernel, dilations, pads, strides = map(_pair, (output_size, kernel_size, dilation, padding, stride))
    if int(x.shape[1]) % math.prod(kernel):
        raise ValueError(f"fold: dim 1 has length {x.shape[1]}, which the kernel {kernel} does not divide")
    return apply(folded, convert_to_tensor(x), sizes=sizes, kernel=kernel, dilations=dilations, pads=pads, strides=strides)


def depth_to_space(x: Any, block_size: int, data_format: str = "channels_last") -> Any:
    x, b = convert_to_tensor(x), block_size
    if data_format == "channels_last":
        n, h, w, c = x.shape
        y = numpy.transpose(numpy.reshape(x, (n, h, w, b, b, c // (b * b))), (0, 1, 3, 2, 4, 5))
        return numpy.reshape(y, (n, h * b, w * b, c // (b * b)))
    n, c, h, w = x.shape
    y = numpy.transpose(numpy.reshape(x, (n, c // (b * b), b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return numpy.reshape(y, (n, c // (b * b), h * b, w * b))


def space_to_depth(x: Any, block_size: int, data_format: str = "channels_last") -> Any:
    x, b = convert_to_tensor(x), block_size
    if data_format == "channels_last":
        n, h, w, c = x.shape
        y = numpy.transpose(numpy.reshape(x, (n, h // b, b, w // b, b, c)), (0, 1, 3, 2, 4, 5))
        return numpy.reshape(y, (n, h // b, w // b, c * b * b))
    n, c, h, w = x.shape
    y = numpy.transpose(numpy.reshape(x, (n, c, h // b, b, w // b, b)), (0, 1, 3, 5, 2, 4))
    return numpy.reshape(y, (n, c * b * b, h // b, w // b))

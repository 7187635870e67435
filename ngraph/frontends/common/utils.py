"""Gradient descent over given variables, and the arithmetic of windows, under the names of ngraph's importers of 2017."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import ngraph as ng
from ngraph.errors import ArgumentError
from ngraph.frontends.neon.schedules import as_schedule
from ngraph.op_graph.op import Op

__all__ = [
    "CommonSGDOptimizer",
    "ConvParameters",
    "common_conv2d_pool_output_shape",
    "common_conv2d_pool_padding",
    "conv_output_dim",
    "deconv_output_dim",
    "make_convparams",
    "make_poolparams",
    "squeeze_axes",
]


class CommonSGDOptimizer:
    """Gradient descent: `minimize` gives the op that takes a step.

    lr_params: the rate, as a number, a dict with the name of a policy, or a function from the number of the step, an op, to the rate.
    Raises ArgumentError for another one.
    """

    def __init__(self, lr_params: Any):
        self._iteration = ng.placeholder((), dtype=ng.uint32)
        self._rate = lr_params(self._iteration) if callable(lr_params) else as_schedule(lr_params)(self._iteration)

    def get_iter_buffer(self) -> Op:
        """Returns the placeholder of the step's number, a uint32, which a computation with a policy takes."""
        return self._iteration

    def get_lr_subgraph(self) -> Op:
        """Returns the rate, an op of the step's number."""
        return self._rate

    def minimize(self, cost: Op, variables: Iterable[Op]) -> Op:
        """Returns an op that assigns to each variable its value less the rate times the derivative of the cost by it."""
        return ng.doall([ng.assign(v, v - self._rate * ng.deriv(cost, v)) for v in variables])


class ConvParameters(NamedTuple):
    """Lengths of one dim of a convolution or pooling: padding and output follow from them.

    pooling: whether padding may be no wider than the window, as for pooling.
    """

    input_size: int
    filter_size: int
    stride: int = 1
    dilation: int = 1
    pooling: bool = False

    def get_padding_size(self, padding: int | tuple[int, int] | str) -> tuple[int, int]:
        """Returns the places added before and behind.

        padding: one number for both sides, a pair, or `valid` (none), `same` (the output has ceil(input / stride) places), `causal` (no
        output reads a later place), `full` (each window that meets the input counts). Raises ArgumentError for another name.
        """
        if isinstance(padding, int):
            return padding, padding
        if not isinstance(padding, str):
            return padding[0], padding[1]
        reach = self.dilation * (self.filter_size - 1)
        more = max(0, self.stride * (math.ceil(self.input_size / self.stride) - 1) + 1 + reach - self.input_size)
        found = {"valid": (0, 0), "same": (more // 2, more - more // 2), "causal": (reach, 0), "full": (reach, reach)}
        if padding not in found:
            raise ArgumentError(f"padding={padding!r} is none of {', '.join(found)}", fix="padding='same'")
        return found[padding]

    def get_output_size(self, padding: int | tuple[int, int] | str) -> int:
        """Returns the length of the output. Raises ArgumentError where there is none."""
        before, behind = self.get_padding_size(padding)
        reach = self.dilation * (self.filter_size - 1)
        if self.pooling and max(before, behind) > reach:
            raise ArgumentError(f"the padding ({before}, {behind}) is wider than the window of {reach + 1}", fix="pad less")
        size = math.ceil((self.input_size + before + behind - reach) / self.stride)
        if size < 0:
            raise ArgumentError(f"a window of {reach + 1} does not fit into {self.input_size} places", fix="pad more")
        return size

    def get_transpose_size(self, padding: int | tuple[int, int] | str) -> int:
        """Returns the length of the output of a transposed convolution. Raises ArgumentError where there is none."""
        before, behind = self.get_padding_size(padding)
        size = self.stride * (self.input_size - 1) + self.dilation * (self.filter_size - 1) + 1 - before - behind
        if size < 0:
            raise ArgumentError(f"the padding ({before}, {behind}) leaves no output", fix="pad less")
        return size


def conv_output_dim(X: int, S: int, padding: Any, strides: int, pooling: bool = False, dilation: int = 1) -> int:
    """Returns the length of a convolution's or pooling's output: X places, a window of S."""
    return ConvParameters(X, S, strides, dilation, pooling).get_output_size(padding)


def deconv_output_dim(X: int, S: int, padding: Any, strides: int, dilation: int = 1) -> int:
    """Returns the length of a transposed convolution's output: X places, a window of S."""
    return ConvParameters(X, S, strides, dilation).get_transpose_size(padding)


def make_convparams(
    nout: int, filter_shape: Mapping[str, int], strides: Mapping[str, int], padding: Mapping[str, int], dilation: Mapping[str, int]
) -> dict[str, int]:
    """Returns the dict that `ng.convolution` takes, for `nout` output channels and the numbers of the dims D, H and W."""
    found = {"K": nout, **{to: filter_shape[dim] for to, dim in zip("TRS", "DHW", strict=True)}}
    for dim in "DHW":
        found.update({f"str_{dim.lower()}": strides[dim], f"pad_{dim.lower()}": padding[dim], f"dil_{dim.lower()}": dilation[dim]})
    return found


def make_poolparams(op: str, pool_shape: Mapping[str, int], strides: Mapping[str, int], padding: Mapping[str, int]) -> dict[str, Any]:
    """Returns the dict that `ng.pooling` takes: the op `max` or `avg`, and the numbers of the dims C, D, H and W."""
    found: dict[str, Any] = {"op": op, **{to: pool_shape[dim] for to, dim in zip("JTRS", "CDHW", strict=True)}}
    for dim in "CDHW":
        found.update({f"str_{dim.lower()}": strides[dim], f"pad_{dim.lower()}": padding[dim]})
    return found


def _windows(input_NHWC: Sequence[int], filter_HWIO: Sequence[int], stride_NHWC: Sequence[int], padding: str) -> list[ConvParameters]:
    if padding not in ("SAME", "VALID"):
        raise ArgumentError(f"padding={padding!r} is none of SAME and VALID", fix="padding='SAME'")
    if not len(input_NHWC) == len(filter_HWIO) == len(stride_NHWC) == 4:
        raise ArgumentError("input, filter and strides are four numbers each", fix="give NHWC, HWIO and the strides of NHWC")
    if input_NHWC[3] != filter_HWIO[2]:
        raise ArgumentError(f"the input has {input_NHWC[3]} channels, and the filter takes {filter_HWIO[2]}", fix="give another filter")
    if stride_NHWC[0] != 1 or stride_NHWC[3] != 1:
        raise ArgumentError(f"strides {list(stride_NHWC)} of batch and channels", fix="strides are [1, height, width, 1]")
    return [ConvParameters(input_NHWC[k], filter_HWIO[k - 1], stride_NHWC[k]) for k in (1, 2)]


def common_conv2d_pool_output_shape(
    input_NHWC: Sequence[int], filter_HWIO: Sequence[int], stride_NHWC: Sequence[int], padding: str
) -> tuple[int, int, int, int]:
    """Returns N, H, W and C of a convolution's output. padding: TensorFlow's SAME or VALID. Raises ArgumentError for what does not fit."""
    high, wide = (w.get_output_size(padding.lower()) for w in _windows(input_NHWC, filter_HWIO, stride_NHWC, padding))
    return input_NHWC[0], high, wide, filter_HWIO[3]


def common_conv2d_pool_padding(
    input_NHWC: Sequence[int], filter_HWIO: Sequence[int], stride_NHWC: Sequence[int], padding: str
) -> tuple[int, int, int, int]:
    """Returns the places added at top, bottom, left and right. padding: TensorFlow's SAME or VALID."""
    (top, bottom), (left, right) = (w.get_padding_size(padding.lower()) for w in _windows(input_NHWC, filter_HWIO, stride_NHWC, padding))
    return top, bottom, left, right


def squeeze_axes(inputs: Iterable[Op]) -> list[Op]:
    """Returns the tensors without their axes of length 1."""
    return [ng.tensor_slice(x, [0 if axis.length == 1 else slice(None) for axis in x.axes]) for x in inputs]

"""Pictures of other sizes: PyTorch's `upsample_*` as one node of a graph, which PyTorch would take apart into reads of single elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from ngraph.frontends.positional.sampling import Resizing, mixed, resized_dims
from ngraph.frontends.positional.values import Tensor
from ngraph.frontends.torch import dtype as kinds
from ngraph.frontends.torch import private
from ngraph.frontends.torch.graph import TorchNode
from ngraph.frontends.torch.layers import pullback
from ngraph.frontends.torch.table import translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.expr import ExprLike
from ngraph.ops import elementwise as e
from ngraph.ops.resampling import order_of_passes, rows_read

LINEAR, CUBIC, NEAREST = ([name for name in private.UPSAMPLING if kind in name] for kind in ("linear", "cubic", "nearest"))
MAX_EXACT_SCALE = 32  # up to which float32 rounds no quotient of a place by the scale beyond a whole number; 41 is the first that is


Lengths = Sequence[ExprLike]
Scales = Sequence[float | None]


def _translated(names: Sequence[str], function: Callable[..., Tensor]) -> None:
    """Adds the translators of ops and of their derivatives: of a linear function of a node, a tensor, its new lengths, and what follows."""

    @translates(*(f"aten.{name}" for name in names))
    def resize(n: TorchNode, x: Tensor, size: Lengths, *how: Any) -> Tensor:
        return n.give(function(n, n.of(x, dtypes.float32 if n.dtype.is_integer else kinds.wide(n.dtype)), size, *how))

    @translates(*(f"aten.{name}_backward" for name in names))
    def resize_backward(n: TorchNode, dy: Tensor, size: Lengths, shape: Lengths, *how: Any) -> Tensor:
        dy = n.of(dy, kinds.wide(n.dtype))
        zeros = n.g.expanded(n.of(0.0, dy.dtype), list(shape))
        return n.give(pullback(n, lambda x: function(n, x, size, *how), [zeros], dy)[0])


def _resized(n: TorchNode, x: Tensor, size: Lengths, scales: Scales, by: Resizing) -> Tensor:
    dims = range(x.rank - len(size), x.rank)
    known = [0.0 if s is None or by.places == "align_corners" else s for s in scales] or [0.0] * len(size)
    return resized_dims(n.g, x, dims, size, known, by)


def _weighted(kind: str, n: TorchNode, x: Tensor, size: Lengths, corners: bool, *scales: float | None) -> Tensor:
    """Returns the tensor with weighted elements beside each place of the new lengths."""
    places = "align_corners" if corners else "half_pixel"
    return _resized(n, x, size, scales, Resizing(kind, places, dtype=np.float64, single=n.dtype is not dtypes.float64))


def _repeated(n: TorchNode, x: Tensor, size: Lengths, *scales: float | None) -> Tensor:
    """Returns the tensor with each element repeated a whole number of times along its last dims."""
    old = x.shape[-len(size) :]
    times = [_times(many, was, s) for many, was, s in zip(size, old, scales or [None] * len(size), strict=True)]
    if not all(times):
        raise n.lack("elements that are not repeated a whole number of times")
    return _resized(n, x, size, [float(k) for k in times], Resizing("nearest", "asymmetric", "floor"))


def _in_16_bits(weights: Any) -> Any:
    """Returns weights as multiples of the smallest power of 2 of which 16 bits count the largest one, as PyTorch has them for pixels."""
    bits = min(22, int(np.floor(np.log2((2**15 - 0.5) / np.max(weights)))))
    return np.trunc(weights * 2.0**bits + np.copysign(0.5, weights)) / 2.0**bits


def _smoothed(kind: str, n: TorchNode, x: Tensor, size: Lengths, corners: bool, *scales: float | None) -> Tensor:
    """Returns the tensor by kernels that grow where it becomes smaller. Pixels of uint8 are rounded after each pass, the last dim first."""
    old = x.shape[-len(size) :]
    if not all(isinstance(k, int) and k for k in (*old, *size)):
        raise n.lack("antialias of lengths that come with calls")
    ratios = [many / was for many, was in zip(n.g.numbers(size), n.g.numbers(old), strict=True)]
    if any(s is not None and s != ratio for s, ratio in zip(scales, ratios, strict=False)):
        raise n.lack("antialias by a scale that is not the ratio of the lengths")
    pixels = n.dtype.is_integer
    for k in reversed(range(len(ratios))) if pixels else order_of_passes(ratios):
        near, weights = rows_read(n.g.number(old[k]), n.g.number(size[k]), kind, corners, True)
        x = mixed(n.g, x, x.rank - len(size) + k, near, _in_16_bits(weights) if pixels else weights)
        x = Tensor(e.maximum(e.minimum(e.floor(x.op + 0.5), 255.0), 0.0), x.dims) if pixels else x
    return x


_translated(LINEAR, partial(_weighted, "linear"))
_translated(CUBIC, partial(_weighted, "cubic"))
_translated(NEAREST, _repeated)
_translated(["_upsample_bilinear2d_aa"], partial(_smoothed, "linear"))
_translated(["_upsample_bicubic2d_aa"], partial(_smoothed, "cubic"))


# ---- what stays whole ----------------------------------------------------------------------------------------------------


def _times(many: Any, size: Any, scale: float | None) -> int:
    """Returns how often each element is repeated, by the scale that is given or by known sizes; 0 where not a whole number of times."""
    if scale is None:
        if not isinstance(many, int) or not isinstance(size, int) or size == 0 or many % size:
            return 0
        scale = many // size
    return int(scale) if scale == int(scale) and 0 < scale <= MAX_EXACT_SCALE else 0


def kept(name: str, x: torch.Tensor, sizes: Sequence[Any], scales: Scales | None) -> bool:
    """Whether an op stays whole: where it is of floats, and of those that repeat elements where it does so a whole number of times."""
    whole = name not in NEAREST or all(map(_times, sizes, x.shape[2:], scales or [None] * len(sizes)))
    return whole and x.is_floating_point()


def rules() -> dict[Any, Callable[..., Any]]:
    """Returns how the overloads that `torch.nn.functional.interpolate` calls become those that are translated."""
    return private.upsampling(kept)

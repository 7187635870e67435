"""Pictures of other sizes: PyTorch's `upsample_*` as one node of a graph, which PyTorch would take apart into reads of single elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from ngraph.ops.resampling import order_of_passes, rows_read

LINEAR, CUBIC, NEAREST = ([name for name in private.UPSAMPLING if kind in name] for kind in ("linear", "cubic", "nearest"))
MAX_EXACT_SCALE = 32  # up to which float32 rounds no quotient of a place by the scale beyond a whole number; 41 is the first that is


def _resized(n: TorchNode, x: Tensor, size: Sequence[ExprLike], scales: Sequence[float | None], by: Resizing) -> Tensor:
    dims = range(x.rank - len(size), x.rank)
    known = [0.0 if s is None or by.places == "align_corners" else s for s in scales] or [0.0] * len(size)
    return resized_dims(n.g, x, dims, size, known, by)


def _by(n: TorchNode, kind: str, corners: bool) -> Resizing:
    return Resizing(kind, "align_corners" if corners else "half_pixel", dtype=np.float64, single=n.dtype is not dtypes.float64)


def _weighted(kind: str, names: Sequence[str]) -> None:
    """Adds the translators of ops that weight elements, and of their derivatives."""

    @translates(*(f"aten.{name}" for name in names))
    def resize(n: TorchNode, x: Tensor, size: Sequence[ExprLike], corners: bool, *scales: float | None) -> Tensor:
        return n.give(_resized(n, n.of(x, kinds.wide(n.dtype)), size, scales, _by(n, kind, corners)))

    @translates(*(f"aten.{name}_backward" for name in names))
    def resize_backward(
        n: TorchNode, dy: Tensor, size: Sequence[ExprLike], shape: Sequence[ExprLike], corners: bool, *scales: float | None
    ) -> Tensor:
        return n.give(_slope(n, dy, shape, lambda x: _resized(n, x, size, scales, _by(n, kind, corners))))


def _slope(n: TorchNode, dy: Tensor, shape: Sequence[ExprLike], function: Callable[[Tensor], Tensor]) -> Tensor:
    """Returns the derivative of a linear function of a tensor of this shape, times dy."""
    dy = n.of(dy, kinds.wide(n.dtype))
    zeros = n.of(0.0, dy.dtype)
    return pullback(n, function, [n.g.expanded(zeros, list(shape))], dy)[0]


_weighted("linear", LINEAR)
_weighted("cubic", CUBIC)


@translates(*(f"aten.{name}" for name in NEAREST))
def repeat(n: TorchNode, x: Tensor, size: Sequence[ExprLike], *scales: float | None) -> Tensor:
    return n.give(_repeated(n, x, size, scales))


@translates(*(f"aten.{name}_backward" for name in NEAREST))
def repeat_backward(n: TorchNode, dy: Tensor, size: Sequence[ExprLike], shape: Sequence[ExprLike], *scales: float | None) -> Tensor:
    return n.give(_slope(n, dy, shape, lambda x: _repeated(n, x, size, scales)))


def _repeated(n: TorchNode, x: Tensor, size: Sequence[ExprLike], scales: Sequence[float | None]) -> Tensor:
    """Returns the tensor with each element repeated a whole number of times along its last dims."""
    old = x.shape[-len(size) :]
    times = [_times(many, was, s) for many, was, s in zip(size, old, scales or [None] * len(size), strict=True)]
    if not all(times):
        raise n.lack("elements that are not repeated a whole number of times")
    return _resized(n, x, size, [float(k) for k in times], Resizing("nearest", "asymmetric", "floor"))


# ---- kernels that grow where a picture becomes smaller -----------------------------------------------------------------


def _smoothed(n: TorchNode, kind: str, x: Tensor, size: Sequence[ExprLike], corners: bool, scales: Sequence[float | None]) -> Tensor:
    old = x.shape[-len(size) :]
    lengths = [*old, *size]
    if not all(isinstance(k, int) and k for k in lengths):
        raise n.lack("antialias of lengths that come with calls")
    ratios = [many / was for many, was in zip(n.g.numbers(size), n.g.numbers(old), strict=True)]
    if any(s is not None and s != ratio for s, ratio in zip(scales, ratios, strict=False)):
        raise n.lack("antialias by a scale that is not the ratio of the lengths")
    for k in order_of_passes(ratios):
        rows = rows_read(n.g.number(old[k]), n.g.number(size[k]), kind, corners, True)
        x = mixed(n.g, x, x.rank - len(size) + k, *rows)
    return x


def _smooths(kind: str, name: str) -> None:
    """Adds the translators of an op with a kernel that grows, and of its derivative."""

    @translates(f"aten.{name}")
    def smooth(n: TorchNode, x: Tensor, size: Sequence[ExprLike], corners: bool, *scales: float | None) -> Tensor:
        return n.give(_smoothed(n, kind, n.of(x, kinds.wide(n.dtype)), size, corners, scales))

    @translates(f"aten.{name}_backward")
    def smooth_backward(
        n: TorchNode, dy: Tensor, size: Sequence[ExprLike], shape: Sequence[ExprLike], corners: bool, *scales: float | None
    ) -> Tensor:
        return n.give(_slope(n, dy, shape, lambda x: _smoothed(n, kind, x, size, corners, scales)))


_smooths("linear", "_upsample_bilinear2d_aa")
_smooths("cubic", "_upsample_bicubic2d_aa")


# ---- what stays whole ----------------------------------------------------------------------------------------------------


def _times(many: Any, size: Any, scale: float | None) -> int:
    """Returns how often each element is repeated, by the scale that is given or by known sizes; 0 where not a whole number of times."""
    if scale is None:
        if not isinstance(many, int) or not isinstance(size, int) or size == 0 or many % size:
            return 0
        scale = many // size
    return int(scale) if scale == int(scale) and 0 < scale <= MAX_EXACT_SCALE else 0


def kept(name: str, x: torch.Tensor, sizes: Sequence[Any], scales: Sequence[float | None] | None) -> bool:
    """Whether an op stays whole: where it is of floats, and of those that repeat elements where it does so a whole number of times.

    PyTorch finds no shapes of the ops' derivatives for open lengths.
    """
    if not x.is_floating_point() or x.requires_grad and any(isinstance(n, torch.SymInt) for n in x.shape):
        return False
    return name not in NEAREST or all(map(_times, sizes, x.shape[2:], scales or [None] * len(sizes)))


def rules() -> dict[Any, Callable[..., Any]]:
    """Returns how the overloads that `torch.nn.functional.interpolate` calls become those that are translated."""
    return private.upsampling(kept)

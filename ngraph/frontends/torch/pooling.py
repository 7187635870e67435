"""Translators of pooling: windows of one length, and those that share a dim out among the results; and of padding's derivative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ngraph.frontends.positional import windows
from ngraph.frontends.positional.indexing import scattered_elements
from ngraph.frontends.positional.reductions import along, best, total
from ngraph.frontends.positional.sampling import grid_sample
from ngraph.frontends.positional.shapes import padded, size_op
from ngraph.frontends.positional.values import Tensor
from ngraph.frontends.positional.windows import Windowing, windowing
from ngraph.frontends.torch import dtype as kinds
from ngraph.frontends.torch.graph import TorchNode
from ngraph.frontends.torch.layers import many, pullback
from ngraph.frontends.torch.table import translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.expr import ExprLike, Idx
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.rearrange import broadcast, iota
from ngraph.ops.rearrange import product as product_of
from ngraph.ops.reduce import count

# ---- pooling ------------------------------------------------------------------------------------------------------------


def pooled(n: TorchNode, a: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, up: bool) -> tuple[Tensor, Windowing]:
    """A tensor with batch and channels in front, and its windows."""
    spatial = next((k for k in (1, 2, 3) if f"{k}d" in str(n.node.target)), len(kernel))
    kernel = many(kernel, spatial)
    pads = many(padding, spatial)
    t = a if a.rank == spatial + 2 else Tensor(a.op, [None, *a.dims])
    return t, windowing(kernel, many(stride, spatial) if stride else kernel, many(dilation, spatial), [*pads, *pads], up=up)


def unbatched(t: Tensor, a: Tensor) -> Tensor:
    """A result without the batch that its input lacks."""
    return t if t.rank == a.rank else Tensor(t.op, t.dims[1:])


@translates("aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices")
def max_pool(
    n: TorchNode, a: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> tuple[Tensor, ...]:
    t, by = pooled(n, a, kernel, stride, padding, dilation, ceil_mode)
    y, places = windows.max_pool(n.g, t, windows.windows(n.g, t, by), True)
    plane = product_of(t.shape[2:])
    places = Tensor(e.remainder.build(places.op, size_op(plane)), places.dims)  # within a plane, as PyTorch counts them
    return unbatched(y, a), unbatched(places, a)


def averaged(
    n: TorchNode, a: Tensor, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool, divisor: int | None
) -> Tensor:
    t, by = pooled(n, a, kernel, stride, padding, 1, ceil_mode)
    ws = windows.windows(n.g, t, by)
    if divisor is None:
        y = windows.average_pool(n.g, t, ws, count_include_pad)
    else:
        r, outs, inner = windows.read(n.g, t, ws, 0)
        y = n.g.made(total(r.op, tuple(inner)) / float(divisor), [*t.dims[:2], *outs])
    return unbatched(y, a)


@translates("aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d")
def average_pool(
    n: TorchNode,
    a: Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    return n.give(averaged(n, n.of(a, kinds.wide(n.dtype)), kernel, stride, padding, ceil_mode, count_include_pad, divisor_override))


@translates("aten.avg_pool2d_backward", "aten.avg_pool3d_backward")
def average_pool_backward(
    n: TorchNode, dy: Tensor, a: Tensor, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, include: bool, divisor: Any
) -> Tensor:
    return pullback(n, lambda x: averaged(n, x, kernel, stride, padding, ceil_mode, include, divisor), [a], dy)[0]


# ---- windows that share out a dim ---------------------------------------------------------------------------------------


class Share:
    """The windows of one dim of n elements, m of them: the k-th begins at k * n // m, and ends before the next whole of (k + 1) * n / m.

    out: their axis      inner: the axis within the longest of them; of an open dim it may be longer      even: whether all fill it
    """

    def __init__(self, n: TorchNode, size: ExprLike, many: int):
        self.size, self.many, self.even = size, many, False
        if isinstance(size, int):
            longest: ExprLike = max((-(-(k + 1) * size // many) - k * size // many for k in range(many)), default=1)
            self.even = not many or not size % many
        else:
            longest = (size + (many - 1)) // many + 1
        self.out, self.inner = n.g.fresh(many), n.g.fresh(longest)

    def first(self) -> Any:
        """The index of the first element of each window."""
        return Idx(self.out) * self.size // self.many

    def sizes(self) -> Op:
        """The number of elements of each window, int32."""
        k = iota(self.out, dtypes.int64)
        m = size_op(self.many)
        size = size_op(self.size)
        last = e.divide.build(k * size + (size + (self.many - 1)), m)
        return e.cast(last - e.divide.build(k * size, m), dtypes.int32)


def shared(n: TorchNode, a: Tensor, size: Sequence[int], pad: Any) -> tuple[Tensor, list[Share]]:
    """Returns each window's elements, behind the windows; `pad` stands behind the last of a window that is shorter than others."""
    k = len(size)
    t = n.g.full(a, range(a.rank - k, a.rank))
    shares = [Share(n, m, s) for m, s in zip(a.shape[-k:], size, strict=True)]
    index = {d: s.first() + Idx(s.inner) for d, s in zip(t.dims[-k:], shares, strict=True)}
    dims = [*t.dims[:-k], *[s.out for s in shares], *[s.inner for s in shares]]
    x = broadcast(n.g.read(t, dims, index, pad_value=pad).op, [d for d in dims if d is not None])
    for s in shares:
        if not s.even:
            x = e.where(e.less(iota(s.inner), s.sizes()), x, e.filled(pad, (), x.dtype))
    return Tensor(x, dims), shares


@translates("aten._adaptive_avg_pool2d", "aten._adaptive_avg_pool3d", "aten.adaptive_avg_pool1d")
def adaptive_average_pool(n: TorchNode, a: Tensor, size: Any) -> Tensor:
    return n.give(adapted(n, n.of(a, kinds.wide(n.dtype)), n.g.numbers(size)))


def adapted(n: TorchNode, a: Tensor, size: Sequence[int]) -> Tensor:
    k = len(size)
    if all(s == 1 for s in size):
        dims = range(a.rank - k, a.rank)
        axes = along(a, list(dims))
        mean = total(a.op, axes) / count(axes, a.dtype) if axes else a.op
        return Tensor(mean, [None if j in dims else d for j, d in enumerate(a.dims)])
    t, shares = shared(n, a, size, 0.0)
    x = total(t.op, tuple([s.inner for s in shares]))
    for s in shares:
        x = x / e.cast(s.sizes(), x.dtype)
    return n.g.made(x, t.dims[:-k])


@translates("aten._adaptive_avg_pool2d_backward", "aten._adaptive_avg_pool3d_backward")
def adaptive_average_pool_backward(n: TorchNode, dy: Tensor, a: Tensor) -> Tensor:
    k = 2 if "2d" in str(n.node.target) else 3
    return pullback(n, lambda x: adapted(n, x, n.g.numbers(dy.shape[-k:])), [a], dy)[0]


@translates("aten.adaptive_max_pool2d", "aten.adaptive_max_pool3d")
def adaptive_max_pool(n: TorchNode, a: Tensor, size: Any) -> tuple[Tensor, Tensor]:
    """The largest of each window, and its place in the plane."""
    t, shares = shared(n, a, n.g.numbers(size), a.dtype.lowest if a.dtype.is_integer else float("-inf"))
    inner = tuple([s.inner for s in shares])
    within: list[Op] = []
    flat = best(t.op, inner, "max")
    for axis in inner[::-1]:
        within.insert(0, e.remainder.build(flat, size_op(axis.size)))
        flat = e.divide.build(flat, size_op(axis.size))
    place: Op = e.filled(0, (), dtypes.int64)
    for s, at in zip(shares, within, strict=True):
        m = size_op(s.size)
        place = place * m + e.divide.build(iota(s.out, dtypes.int64) * m, size_op(s.many)) + at
    dims = t.dims[: -len(size)]
    return n.g.made(total(t.op, inner, "max"), dims), n.g.made(place, dims)


@translates("aten.adaptive_max_pool2d_backward", "aten.adaptive_max_pool3d_backward")
def adaptive_max_pool_backward(n: TorchNode, dy: Tensor, a: Tensor, at: Tensor) -> Tensor:
    return scattered_plane(n, dy, a, at, 2 if "2d" in str(n.node.target) else 3)


def scattered_plane(n: TorchNode, dy: Tensor, a: Tensor, at: Tensor, k: int) -> Tensor:
    """Each value added where its place in the last k dims is, of zeros."""
    ahead = list(a.shape[:-k])
    zeros = n.g.full(n.g.expanded(n.of(0, n.dtype), [*ahead, product_of(a.shape[-k:])]))
    i, u = (n.g.reshape(t, [*ahead, product_of(dy.shape[-k:])]) for t in (at, dy))
    return n.g.reshape(scattered_elements(n.g, zeros, i, u, len(ahead), "add", "the tensor"), n.shape)


@translates("aten.max_pool2d_with_indices_backward", "aten.max_pool3d_with_indices_backward")
def max_pool_backward(
    n: TorchNode, dy: Tensor, a: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, at: Tensor
) -> Tensor:
    return scattered_plane(n, dy, a, at, 2 if "2d" in str(n.node.target) else 3)


def pooled_derivative(dy: torch.Tensor, x: torch.Tensor, *how: Any) -> torch.Tensor:
    """The derivative of a pooling, where torch has to compute it."""
    aten, flat = torch.ops.aten, len(how[0]) == 2
    pool = aten.max_pool2d_with_indices if flat else aten.max_pool3d_with_indices
    derivative = aten.max_pool2d_with_indices_backward if flat else aten.max_pool3d_with_indices_backward
    found: torch.Tensor = derivative(dy, x, *how, pool(x, *how)[1])
    return found


def defined() -> Any:
    """Defines the derivative of a pooling that takes no places, which `private.find_maxima_again` calls; returns what holds it."""
    library = torch.library.Library("ngraph", "FRAGMENT")
    form = "SymInt[] kernel, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool ceil_mode"
    library.define(f"max_pool_backward(Tensor dy, Tensor x, {form}) -> Tensor")
    library.impl("max_pool_backward", pooled_derivative, "CPU")
    torch.library.register_fake("ngraph::max_pool_backward", lambda dy, x, *how: torch.empty_like(x), lib=library)
    return library


LIBRARY = defined()  # the op is there as long as this is


@translates("ngraph.max_pool_backward")
def max_pool_again(n: TorchNode, dy: Tensor, a: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Tensor:
    def forward(a: Tensor) -> Tensor:
        t, by = pooled(n, a, kernel, stride, padding, dilation, ceil_mode)
        return unbatched(windows.max_pool(n.g, t, windows.windows(n.g, t, by))[0], a)

    return pullback(n, forward, [a], dy)[0]


# ---- places between elements --------------------------------------------------------------------------------------------

MODES, PADDINGS = ("linear", "nearest", "cubic"), ("zeros", "border", "reflection")


def sampled(g: Any, a: Tensor, grid: Tensor, mode: int, padding: int, corners: bool) -> Tensor:
    return grid_sample(g, a, grid, MODES[mode], PADDINGS[padding], corners)


@translates("aten.grid_sampler_2d", "aten.grid_sampler_3d")
def grid_sampler(n: TorchNode, a: Tensor, grid: Tensor, mode: int, padding: int, corners: bool) -> Tensor:
    return n.give(sampled(n.g, a, grid, mode, padding, corners))


@translates("aten.grid_sampler_2d_backward", "aten.grid_sampler_3d_backward")
def grid_sampler_backward(
    n: TorchNode, dy: Tensor, a: Tensor, grid: Tensor, mode: int, padding: int, corners: bool, mask: Sequence[bool]
) -> tuple[Tensor, Tensor]:
    found = pullback(n, lambda x, y: sampled(n.g, x, y, mode, padding, corners), [a, grid], dy)
    return found[0], found[1]


# ---- padding ------------------------------------------------------------------------------------------------------------


@translates("aten.replication_pad1d_backward", "aten.replication_pad2d_backward", "aten.replication_pad3d_backward")
def replication_pad_backward(n: TorchNode, dy: Tensor, x: Tensor, padding: Sequence[Any]) -> Tensor:
    def forward(t: Tensor) -> Tensor:
        for k in range(len(padding) // 2):
            t = padded(n.g, t, t.rank - 1 - k, padding[2 * k], padding[2 * k + 1], "edge")
        return t

    wide = kinds.wide(n.dtype)
    return n.give(pullback(n, forward, [n.of(x, wide)], n.of(dy, wide))[0])

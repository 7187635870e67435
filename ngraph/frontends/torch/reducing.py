"""Translators of reductions, and of what works along dims and keeps the shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ngraph.frontends.positional import reductions
from ngraph.frontends.positional.elementwise import alone, each
from ngraph.frontends.positional.indexing import top_k as largest_of
from ngraph.frontends.positional.reductions import along, reduce_over, total
from ngraph.frontends.positional.values import Tensor
from ngraph.frontends.torch import dtype as kinds
from ngraph.frontends.torch.graph import TorchNode
from ngraph.frontends.torch.pointwise import truth
from ngraph.frontends.torch.table import translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.rearrange import product as size_product
from ngraph.ops.reduce import count


def dims_of(t: Tensor, dim: Any) -> list[int]:
    """Dims counted from the start; all where none are given."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(t.rank))
    given = [dim] if isinstance(dim, int) else list(dim)
    return [k % t.rank for k in given] if t.rank else []


def folded(n: TorchNode, a: Tensor, dim: Any, keep: bool, f: Callable[[Op, tuple[Any, ...]], Op], dtype: Any = None) -> Tensor:
    """A reduction over dims, computed in a dtype; by default that of the result."""
    t = n.of(a, dtype or kinds.wide(n.dtype))
    return n.give(reduce_over(t, dims_of(t, dim), f, keep))


@translates("aten.sum")
def sum_(n: TorchNode, a: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    return folded(n, a, dim, keepdim, total)


@translates("aten.mean")
def mean(n: TorchNode, a: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    return folded(n, a, dim, keepdim, averaged)


def averaged(x: Op, axes: tuple[Any, ...]) -> Op:
    """The mean of floats; of none of them NaN."""
    return total(x, axes) / count(axes, x.dtype) if axes else x


@translates("aten.prod")
def product(n: TorchNode, a: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    return folded(n, a, dim, keepdim, lambda x, axes: total(x, axes, "multiply"))


@translates("aten.amax")
def largest(n: TorchNode, a: Any, dim: Any = (), keepdim: bool = False) -> Tensor:
    return folded(n, a, dim, keepdim, lambda x, axes: extreme(x, axes, "max"))


@translates("aten.amin")
def smallest(n: TorchNode, a: Any, dim: Any = (), keepdim: bool = False) -> Tensor:
    return folded(n, a, dim, keepdim, lambda x, axes: extreme(x, axes, "min"))


def extreme(x: Op, axes: tuple[Any, ...], kind: str) -> Op:
    """The largest or the smallest over axes; of bools, too."""
    if x.dtype.kind != "bool":
        return total(x, axes, kind)
    return e.cast(total(e.cast(x, dtypes.uint8), axes, kind), dtypes.bool_)


@translates("aten.any", "aten._is_any_true")
def any_(n: TorchNode, a: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
    return logical(n, a, dim, keepdim, "max", "any")


@translates("aten.all", "aten._is_all_true")
def all_(n: TorchNode, a: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
    return logical(n, a, dim, keepdim, "min", "all")


def logical(n: TorchNode, a: Tensor, dim: Any, keep: bool, kind: str, name: str) -> Tensor:
    t = alone(n.g, lambda x: e.cast(truth(x), dtypes.uint8), a)
    # a sum or a product over none has the right neutral element, which an extreme of bytes has too
    found = reduce_over(t, dims_of(t, dim), lambda x, axes: total(x, axes, kind), keep)
    return n.give(alone(n.g, lambda x: e.not_equal(x, 0), found))


def spread(n: TorchNode, a: Tensor, dim: Any, correction: Any, dtype: Any = None) -> tuple[Tensor, Tensor]:
    """Variance and mean over dims, which stay with length 1."""
    t = n.of(a, dtype or kinds.wide(n.dtype))
    dims = dims_of(t, dim)
    middle = reduce_over(t, dims, averaged, True)
    apart = each(n.g, lambda x, m: (x - m) * (x - m), t, middle)
    by = 1.0 if correction is None else float(correction)

    def share(x: Op, axes: tuple[Any, ...]) -> Op:
        many = count(axes, x.dtype) if axes else e.filled(1, (), x.dtype)
        return total(x, axes) / e.maximum(many - by, 0.0)

    axes = along(t, dims)
    if not axes:
        apart = each(n.g, lambda x, m: (x - m) * (x - m), t, middle)
    found = share(apart.op, along(apart, dims))
    return n.g.made(found, [None if k in dims else d for k, d in enumerate(t.dims)]), middle


@translates("aten.var")
def variance(n: TorchNode, a: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, correction: Any = None) -> Tensor:
    if isinstance(unbiased, bool) and correction is None:
        correction = int(unbiased)
    found, _ = spread(n, a, dim, correction)
    return n.give(kept(found, dims_of(a, dim), keepdim))


@translates("aten.var_mean")
def variance_and_mean(n: TorchNode, a: Any, dim: Any = None, keepdim: bool = False, correction: Any = None) -> tuple[Tensor, Tensor]:
    found, middle = spread(n, a, dim, correction)
    dims = dims_of(a, dim)
    return n.give(kept(found, dims, keepdim)), n.give(kept(middle, dims, keepdim))


def kept(t: Tensor, dims: Sequence[int], keep: bool) -> Tensor:
    """A tensor whose reduced dims have length 1, or without them."""
    return t if keep else Tensor(t.op, [d for k, d in enumerate(t.dims) if k not in dims])


# ---- places -------------------------------------------------------------------------------------------------------------


def best(n: TorchNode, a: Tensor, dim: int | None, keep: bool, kind: str) -> Tensor:
    """The place of the largest or smallest; of NaN, where there is one."""
    t = a if a.dtype.kind != "bool" else n.of(a, dtypes.uint8)
    rank = t.rank
    if dim is None:
        shape = [1] * rank
        t = n.g.reshape(t, [size_product(t.shape)])
        found = reduce_over(t, [0], lambda x, axes: reductions.best(x, axes, kind), False)
        return Tensor(found.op, [None] * len(shape)) if keep else found
    return reduce_over(t, dims_of(t, dim), lambda x, axes: reductions.best(x, axes, kind), keep)


@translates("aten.argmax")
def argmax(n: TorchNode, a: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return best(n, a, dim, keepdim, "max")


@translates("aten.argmin")
def argmin(n: TorchNode, a: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return best(n, a, dim, keepdim, "min")


def with_place(n: TorchNode, a: Tensor, dim: int, keep: bool, kind: str) -> tuple[Tensor, Tensor]:
    value = reduce_over(a, dims_of(a, dim), lambda x, axes: extreme(x, axes, kind), keep)
    return n.give(value), best(n, a, dim, keep, kind)


@translates("aten.max.dim")
def max_dim(n: TorchNode, a: Any, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return with_place(n, a, dim, keepdim, "max")


@translates("aten.min.dim")
def min_dim(n: TorchNode, a: Any, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return with_place(n, a, dim, keepdim, "min")


@translates("aten.max.default")
def max_all(n: TorchNode, a: Any) -> Tensor:
    return extreme_of_all(n, a, "max")


@translates("aten.min.default")
def min_all(n: TorchNode, a: Any) -> Tensor:
    return extreme_of_all(n, a, "min")


def extreme_of_all(n: TorchNode, a: Tensor, kind: str) -> Tensor:
    if any(n.g.same(s, 0) for s in a.shape):
        raise n.lack("there is no element")  # torch's error
    return folded(n, a, None, False, lambda x, axes: extreme(x, axes, kind))


@translates("aten.topk")
def top_k(n: TorchNode, a: Any, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    if not a.rank:
        return a, Tensor(e.filled(0, (), dtypes.int64), [])
    return largest_of(n.g, a, dim % a.rank, k, largest, nan_largest=True)


# ---- along dims ---------------------------------------------------------------------------------------------------------


@translates("aten.cumsum")
def cumsum(n: TorchNode, a: Any, dim: int, dtype: Any = None) -> Tensor:
    return n.give(reductions.cumulated(n.of(a, kinds.wide(n.dtype)), dim % a.rank, "add", False, False)) if a.rank else n.give(a)


@translates("aten.cumprod")
def cumprod(n: TorchNode, a: Any, dim: int, dtype: Any = None) -> Tensor:
    return n.give(reductions.cumulated(n.of(a, kinds.wide(n.dtype)), dim % a.rank, "multiply", False, False)) if a.rank else n.give(a)


@translates("aten._softmax")
def softmax(n: TorchNode, a: Any, dim: int, half_to_float: bool = False) -> Tensor:
    t = n.of(a, kinds.wide(n.dtype))
    return n.give(Tensor(reductions.softmax(t.op, along(t, dims_of(t, dim) if t.rank else [])), t.dims))


@translates("aten._log_softmax")
def log_softmax(n: TorchNode, a: Any, dim: int, half_to_float: bool = False) -> Tensor:
    t = n.of(a, kinds.wide(n.dtype))
    return n.give(Tensor(reductions.softmax(t.op, along(t, dims_of(t, dim) if t.rank else []), True), t.dims))


@translates("aten.logsumexp")
def log_sum_exp(n: TorchNode, a: Any, dim: Any, keepdim: bool = False) -> Tensor:
    return folded(n, a, dim, keepdim, reductions.log_sum_exp)


@translates("aten.linalg_vector_norm")
def vector_norm(n: TorchNode, a: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    def norm(x: Op, axes: tuple[Any, ...]) -> Op:
        size = e.absolute(x)
        if ord == float("inf"):
            return total(size, axes, "max")
        if ord == float("-inf"):
            return total(size, axes, "min")
        if ord == 0:
            return total(e.cast(e.not_equal(x, 0.0), x.dtype), axes)
        if ord == 1:
            return total(size, axes)
        if ord == 2:
            return e.sqrt(total(x * x, axes)) if axes else size
        return e.power(total(e.power(size, float(ord)), axes), 1.0 / float(ord))

    return folded(n, a, dim, keepdim, norm)

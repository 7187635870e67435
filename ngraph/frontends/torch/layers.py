"""Translators of products, convolution, pooling, normalization and attention, with the derivatives that AOTAutograd leaves whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ngraph.autodiff.backward import deriv
from ngraph.frontends.positional import attention, norms, windows
from ngraph.frontends.positional.elementwise import each
from ngraph.frontends.positional.products import matmul, rows_by_group, sums_by_group
from ngraph.frontends.positional.reductions import along, reduce_over, total
from ngraph.frontends.positional.shapes import turned
from ngraph.frontends.positional.values import Tensor
from ngraph.frontends.positional.windows import windowing, with_bias
from ngraph.frontends.torch import dtype as kinds
from ngraph.frontends.torch import private
from ngraph.frontends.torch.graph import TorchNode
from ngraph.frontends.torch.pointwise import scaled
from ngraph.frontends.torch.table import translates
from ngraph.op_graph.dtypes import DType
from ngraph.ops import elementwise as e
from ngraph.ops.rearrange import broadcast
from ngraph.ops.reduce import count


def pullback(n: TorchNode, forward: Callable[..., Tensor], inputs: Sequence[Tensor], dy: Tensor) -> list[Tensor]:
    """The vector-Jacobian products of a function of tensors, by our own derivatives."""
    return pullback_of_many(n, lambda *ts: [forward(*ts)], inputs, [dy])


def pullback_of_many(
    n: TorchNode, forward: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor], dys: Sequence[Tensor]
) -> list[Tensor]:
    """The vector-Jacobian products of a function that gives several tensors.

    In one graph with the loss, inputs may be made of each other, and errors of inputs: neither is a way that counts.
    """
    whole = [still(n.g.full(t)) for t in inputs]
    ys = [n.g.full(y) for y in forward(*whole)]
    errors = [still(n.g.renamed(n.g.full(dy), y.dims)) for dy, y in zip(dys, ys, strict=True)]
    if len(ys) == 1:
        found = deriv(ys[0].op, [t.op for t in whole], broadcast(errors[0].op, ys[0].op.axes))
    else:
        parts = [total(y.op * broadcast(d.op, y.op.axes), tuple(y.op.axes)) for y, d in zip(ys, errors, strict=True)]
        found = deriv(sum(parts[1:], parts[0]), [t.op for t in whole])
    return [n.g.ones(Tensor(broadcast(d, t.op.axes), t.dims)) for d, t in zip(found, whole, strict=True)]


def still(t: Tensor) -> Tensor:
    """A tensor as a value that depends on nothing."""
    return Tensor(e.stop_gradient(t.op), t.dims)


# ---- products -----------------------------------------------------------------------------------------------------------


@translates("aten.mm", "aten.bmm", "aten.matmul", "aten.dot", "aten.mv", "aten.vdot")
def product(n: TorchNode, a: Tensor, b: Tensor, dtype: Any = None) -> Tensor:
    return n.give(matmul(n.g, a, b))


@translates("aten._grouped_mm", "transformers.grouped_mm_fallback")
def product_by_groups(
    n: TorchNode, a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:
    """Products of matrices that lie behind each other in a dim: of rows, of columns, or of both operands' inner dim."""
    if bias is not None:
        raise n.lack("a bias of groups")
    if offs is None:
        return n.give(matmul(n.g, a, b))
    if a.rank == b.rank == 2:
        return n.give(sums_by_group(n.g, turned(a), b, offs))
    if b.rank == 2:
        return n.give(turned(rows_by_group(n.g, turned(b), turned(a), offs)))
    return n.give(rows_by_group(n.g, a, b, offs))


@translates("transformers.grouped_mm_fallback_backward")
def product_by_groups_backward(n: TorchNode, x: Tensor, weight: Tensor, offs: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    return rows_by_group(n.g, grad, turned(weight), offs), sums_by_group(n.g, x, grad, offs)


def wide_product(n: TorchNode, a: Tensor, b: Tensor) -> Tensor:
    """A product as sums in float32 where its operands have 16 bits, so that what is added to it is rounded with it, once."""
    wide = kinds.wide(a.dtype)
    return matmul(n.g, n.of(a, wide), n.of(b, wide))


def plus(n: TorchNode, bias: Tensor, y: Tensor, beta: Any, alpha: Any) -> Tensor:
    """beta * bias + alpha * y; a bias of beta 0 is not read."""
    wide = kinds.wide(n.dtype)
    y, bias = n.of(y, wide), n.of(bias, wide)
    if beta == 0:
        return n.g.expanded(n.give(Tensor(scaled(y.op, alpha), y.dims)), n.shape)
    return n.g.expanded(n.give(each(n.g, lambda p, q: scaled(p, beta) + scaled(q, alpha), bias, y)), n.shape)


@translates("aten.addmm", "aten.addmv", "aten.baddbmm")
def addmm(n: TorchNode, bias: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return plus(n, bias, wide_product(n, a, b), beta, alpha)


@translates("aten.addbmm")
def addbmm(n: TorchNode, bias: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    y = wide_product(n, a, b)
    y = Tensor(total(y.op, along(y, [0])), y.dims[1:])
    return plus(n, bias, y, beta, alpha)


@translates("aten.linear")
def linear(n: TorchNode, a: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    y = wide_product(n, a, turned(w) if w.rank == 2 else w)
    return n.give(y if bias is None else each(n.g, e.add, y, n.of(bias, y.dtype)))


# ---- convolution --------------------------------------------------------------------------------------------------------


def many(given: Any, k: int) -> list[int]:
    """A list of k numbers, of a list of one or of k."""
    given = [given] if isinstance(given, int) else list(given)
    return given * k if len(given) == 1 else given


def convolved(
    n: TorchNode,
    a: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    extra: Any,
    groups: int,
) -> Tensor:
    k = w.rank - 2
    kernel = n.g.numbers(w.shape[2:])
    stride, padding, dilation = (n.g.numbers(many(x, k)) for x in (stride, padding, dilation))
    alone = a.rank == w.rank - 1
    if alone:
        a = Tensor(a.op, [None, *a.dims])
    if bias is not None:  # rounded with the sums, once
        wide = kinds.wide(a.dtype)
        a, w, bias = n.of(a, wide), n.of(w, wide), n.of(bias, wide)
    by = windowing(kernel, stride, dilation, [*padding, *padding])
    if transposed:
        y = windows.conv_transpose(n.g, a, w, by, groups, many(extra, k))
    else:
        y = windows.convolution(n.g, a, w, by, groups)
    y = with_bias(n.g, y, bias)
    return Tensor(y.op, y.dims[1:]) if alone else y


def empty(n: TorchNode, shape: Sequence[Any]) -> bool:
    """Whether a tensor of this shape is known to have no elements."""
    return any(n.g.same(s, 0) for s in shape)


def zeros(n: TorchNode, dtype: DType, k: int) -> Tensor:
    """The k-th result of a node, of zeros."""
    return n.g.expanded(n.of(0, dtype), n.shape_of(k))


@translates("aten.convolution")
def convolution(
    n: TorchNode, a: Tensor, w: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, extra: Any, groups: int
) -> Tensor:
    if empty(n, n.shape):  # PyTorch gives no channels where the input has none
        return zeros(n, n.dtype, 0)
    return n.give(convolved(n, a, w, bias, stride, padding, dilation, transposed, extra, groups))


@translates("aten.convolution_backward")
def convolution_backward(
    n: TorchNode,
    dy: Tensor,
    a: Tensor,
    w: Tensor,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    extra: Any,
    groups: int,
    mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    if empty(n, dy.shape):
        return tuple(zeros(n, dy.dtype, k) if on else None for k, on in enumerate(mask))
    wanted = [t for t, on in zip((a, w), mask, strict=False) if on]
    found: list[Tensor] = []
    if wanted:
        if len(wanted) == 2:
            found = pullback(n, lambda x, f: convolved(n, x, f, None, stride, padding, dilation, transposed, extra, groups), wanted, dy)
        elif mask[0]:
            found = pullback(n, lambda x: convolved(n, x, w, None, stride, padding, dilation, transposed, extra, groups), wanted, dy)
        else:
            found = pullback(n, lambda f: convolved(n, a, f, None, stride, padding, dilation, transposed, extra, groups), wanted, dy)
    given = iter(found)
    results: list[Tensor | None] = [next(given) if on else None for on in mask[:2]]
    results.append(sum_over(dy, [k for k in range(dy.rank) if k != 1]) if mask[2] else None)
    return tuple(results)


def sum_over(t: Tensor, dims: Sequence[int]) -> Tensor:
    """The sum over dims, which go."""
    return Tensor(total(t.op, along(t, dims)), [d for k, d in enumerate(t.dims) if k not in dims])


# ---- normalization ------------------------------------------------------------------------------------------------------


@translates("aten.native_layer_norm")
def layer_norm(n: TorchNode, a: Tensor, shape: Sequence[Any], weight: Any, bias: Any, eps: float) -> tuple[Tensor, ...]:
    wide = kinds.wide(n.dtype)
    t = n.of(a, wide)
    scale, shift = (None if v is None else n.of(v, wide) for v in (weight, bias))
    y, mean, inverse = norms.layer_norm(n.g, t, scale, shift, t.rank - len(shape), eps, wide)
    kept = kinds.OURS[n.val[1].dtype]
    return n.give(y), n.of(mean, kept), n.of(inverse, kept)


@translates("aten.native_group_norm")
def group_norm(
    n: TorchNode, a: Tensor, weight: Any, bias: Any, batch: Any, channels: Any, rest: Any, groups: int, eps: float
) -> tuple[Tensor, ...]:
    wide = kinds.wide(n.dtype)
    t = n.g.reshape(n.of(a, wide), [batch, groups, n.g.number(channels) // groups, rest])
    y, mean, inverse = norms.layer_norm(n.g, t, None, None, 2, eps, wide)
    y = n.g.reshape(y, n.shape)
    for v, f in ((weight, e.multiply), (bias, e.add)):
        y = y if v is None else each(n.g, f, y, norms.by_channel(n.g, n.of(v, wide), y.rank))
    return n.give(y), *(n.of(Tensor(s.op, s.dims[:2]), kinds.OURS[n.val[1].dtype]) for s in (mean, inverse))


def slopes() -> dict[Any, Callable[..., Any]]:
    """Returns how the derivative of a group norm is taken apart: PyTorch's rule divides by the number of elements, though there be none."""
    op = torch.ops.aten.native_group_norm_backward.default
    rule = private.rule_of(op)

    def slope(dy: torch.Tensor, x: torch.Tensor, mean: Any, inverse: Any, weight: Any, *args: Any) -> Any:
        if not private.surely(x.numel() == 0):
            return rule(dy, x, mean, inverse, weight, *args)
        _, channels, _, groups, wanted = args
        scales = (inverse * 0).sum(0)[:, None].expand(groups, channels // groups).reshape(channels)  # NaN, as that of a mean of nothing
        made = torch.empty_like(x), scales.to(x.dtype), x.new_zeros(channels)
        return tuple([t if want else None for t, want in zip(made, wanted, strict=True)])

    return {op: slope}


def by_channel(n: TorchNode, v: Any, t: Tensor, otherwise: float) -> Tensor:
    return n.of(otherwise, t.dtype) if v is None else norms.by_channel(n.g, n.of(v, t.dtype), t.rank)


def normalized(n: TorchNode, t: Tensor, weight: Any, bias: Any, mean: Tensor, inverse: Tensor) -> Tensor:
    """(t - mean) * inverse * weight + bias, as one product and one sum for each element."""
    w, b = by_channel(n, weight, t, 1.0), by_channel(n, bias, t, 0.0)
    by = each(n.g, e.multiply, inverse, w)
    return each(n.g, lambda x, s, m, c: x * s + (c - m * s), t, by, mean, b)


def statistics_dtype(a: Tensor, *parameters: Tensor | None) -> DType:
    """The dtype of a batch's statistics: that of the parameters; the node's own value has 16 bits also where they have 32."""
    return next((t.dtype for t in parameters if t is not None), a.dtype)


@translates("aten._native_batch_norm_legit_no_training")
def batch_norm_inference(
    n: TorchNode, a: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> tuple[Tensor, ...]:
    wide = kinds.wide(n.dtype)
    t = n.of(a, wide)
    m, v = (norms.by_channel(n.g, n.of(s, wide), t.rank) for s in (mean, var))
    inverse = Tensor(1.0 / e.sqrt(v.op + eps), v.dims)
    none = n.g.fresh(0)
    empty = Tensor(e.filled(0, (none,), statistics_dtype(a, weight, bias, mean, var)), [none])
    return n.give(normalized(n, t, weight, bias, m, inverse)), empty, empty


def batch_norm_training(
    n: TorchNode, a: Tensor, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> tuple[Tensor, ...]:
    """The result, mean, inverse deviation, and the running statistics moved."""
    wide = kinds.wide(n.dtype)
    t = n.of(a, wide)
    dims = [k for k in range(t.rank) if k != 1]
    axes = along(t, dims)
    many_ = count(axes, wide) if axes else e.filled(1, (), wide)
    shape = [None, t.dims[1], *[None] * (t.rank - 2)]
    m = Tensor(total(t.op, axes) / many_ if axes else t.op, shape)
    apart = each(n.g, lambda x, y: (x - y) * (x - y), t, m)
    v = Tensor(total(apart.op, along(apart, dims)) / many_, shape)
    inverse = Tensor(1.0 / e.sqrt(v.op + eps), v.dims)
    y = n.give(normalized(n, t, weight, bias, m, inverse))
    moved = []
    for old, new in ((mean, m), (var, Tensor(v.op * (many_ / e.maximum(many_ - 1.0, 1e-30)), v.dims))):
        if old is not None:
            now = Tensor(new.op, [new.dims[1]])
            moved.append(n.of(each(n.g, lambda p, q: p * momentum + q * (1.0 - momentum), now, n.of(old, wide)), old.dtype))
    kept = statistics_dtype(a, weight, bias, mean, var)
    return y, *(n.of(Tensor(s.op, [s.dims[1]]), kept) for s in (m, inverse)), *moved


@translates("aten._native_batch_norm_legit_functional")
def batch_norm_functional(
    n: TorchNode, a: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, training: bool, momentum: float, eps: float
) -> tuple[Tensor, ...]:
    if not training:
        return *batch_norm_inference(n, a, weight, bias, mean, var, momentum, eps), mean, var
    return batch_norm_training(n, a, weight, bias, mean, var, momentum, eps)


@translates("aten._native_batch_norm_legit.no_stats")
def batch_norm_alone(n: TorchNode, a: Tensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> tuple[Tensor, ...]:
    return batch_norm_training(n, a, weight, bias, None, None, momentum, eps)


@translates("aten._weight_norm_interface_backward")
def weight_norm_backward(n: TorchNode, dw: Tensor, v: Tensor, g: Tensor, sizes: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The gradients of v * (g / sizes), where the sizes are the norms of v over all dims but one."""
    wide = kinds.wide(n.dtype)
    dw, v, g, sizes = (n.of(t, wide) for t in (dw, v, g, sizes))
    met = reduce_over(each(n.g, e.multiply, dw, v), [k for k in range(v.rank) if k != dim % v.rank], total, True)
    dv = each(n.g, lambda d, x, y, s, m: (d - x * (m / (s * s))) * (y / s), dw, v, g, sizes, met)
    return n.give(dv), n.of(each(n.g, e.divide, met, sizes), kinds.OURS[n.val[1].dtype])


# ---- attention ----------------------------------------------------------------------------------------------------------


def attended(
    n: TorchNode, q: Tensor, k: Tensor, v: Tensor, causal: bool, mask: Tensor | None, scale: float | None
) -> tuple[Tensor, Tensor]:
    """Attention of [batch, heads, time, width], and the logarithm of the sums of its scores' exponents.

    Where there are fewer heads of keys and values, each serves a group of queries' heads, which have a dim of their own.
    """
    g = n.g
    if (heads := g.number(q.shape[1])) > (groups := g.number(k.shape[1])):
        rows = [groups, heads // groups]
        of_mask = mask
        if mask is not None and mask.rank == 4:
            alone = mask.dims[1] is None
            of_mask = g.reshape(mask, [mask.shape[0], *([1, 1] if alone else rows), *mask.shape[2:]])
        queries = g.reshape(q, [q.shape[0], *rows, *q.shape[2:]])
        keys, values = (Tensor(t.op, [*t.dims[:2], None, *t.dims[2:]]) for t in (k, v))
        y, logs = scores_times_values(g, queries, keys, values, causal, of_mask, scale)
        return g.reshape(y, [*q.shape[:3], v.shape[3]]), g.reshape(logs, list(q.shape[:3]))
    return scores_times_values(g, q, k, v, causal, mask, scale)


def scores_times_values(
    g: Any, q: Tensor, k: Tensor, v: Tensor, causal: bool, mask: Tensor | None, scale: float | None
) -> tuple[Tensor, Tensor]:
    """Attention of [..., time, width], whose dims in front are broadcast, and the logarithm of the sums of its scores' exponents."""
    width = g.number(q.shape[-1])
    s = matmul(g, q, turned(k))
    s = Tensor(s.op * (scale if scale is not None else 1 / math.sqrt(width)), s.dims)
    if causal:
        i = attention.times(q, k)
        s = each(g, lambda x, a, b: e.where(e.less_equal(b, a), x, -math.inf), s, *i)
    if mask is not None:
        if mask.dtype.kind == "bool":
            s = each(g, lambda x, m: e.where(m, x, -math.inf), s, mask)
        else:
            s = each(g, lambda x, m: x + e.cast(m, x.dtype), s, mask)
    axes = along(s, [s.rank - 1])
    top = g.made(total(s.op, axes, "max"), [*s.dims[:-1], None])
    top = Tensor(e.where(e.equal(top.op, -math.inf), 0.0, top.op), top.dims)
    p = each(g, lambda a, b: e.exp(a - b), s, top)
    below = g.made(total(p.op, along(p, [p.rank - 1])), [*p.dims[:-1], None])
    below = Tensor(e.where(e.equal(below.op, 0.0), 1.0, below.op), below.dims)  # of a query that may attend to nothing: it gives 0
    y = matmul(g, each(g, e.divide, p, below), v)
    logs = each(g, lambda a, b: e.log(a) + b, below, top)
    return y, Tensor(logs.op, logs.dims[:-1])


@translates("aten._scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    n: TorchNode,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
    **named: Any,
) -> tuple[Tensor, ...]:
    if dropout_p:
        raise n.lack("attention with dropout")
    wide = kinds.wide(n.dtype)
    y, logs = attended(n, n.of(q, wide), n.of(k, wide), n.of(v, wide), is_causal, attn_mask, scale)
    return n.give(y), n.of(logs, kinds.OURS[n.val[1].dtype])


@translates("aten._scaled_dot_product_flash_attention_for_cpu_backward")
def flash_attention_backward(
    n: TorchNode,
    dy: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    logs: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    wide = kinds.wide(n.dtype)
    given = [n.of(t, wide) for t in (q, k, v)]
    found = pullback(n, lambda a, b, c: attended(n, a, b, c, is_causal, attn_mask, scale)[0], given, n.of(dy, wide))
    return tuple(n.give(t) for t in found)

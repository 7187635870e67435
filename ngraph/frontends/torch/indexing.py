"""Translators of gathers and scatters. Indices outside are errors; those below 0 count from the end in `x[i]` alone, as in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ngraph.frontends.positional import indexing
from ngraph.frontends.positional.elementwise import each
from ngraph.frontends.positional.shapes import joined, sliced
from ngraph.frontends.positional.values import Tensor
from ngraph.frontends.torch import dtype as kinds
from ngraph.frontends.torch import private
from ngraph.frontends.torch.graph import TorchNode
from ngraph.frontends.torch.table import translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType
from ngraph.ops import elementwise as e
from ngraph.ops.indexing import gather as gather_op
from ngraph.ops.indexing import scatter as scatter_op
from ngraph.ops.rearrange import broadcast

COMBINE = {"sum": "add", "add": "add", "prod": "multiply", "multiply": "multiply", "amax": "max", "amin": "min"}
OF_BOOLS = {"add": "max", "multiply": "min"}  # PyTorch adds bools as `or` and multiplies them as `and`


@translates("aten.embedding")
def embedding(n: TorchNode, weight: Tensor, indices: Tensor, *args: Any, **named: Any) -> Tensor:
    return indexing.gathered(n.g, weight, indices, 0, "the embedding", negative=False)


@translates("aten.index_select")
def index_select(n: TorchNode, a: Tensor, dim: int, index: Tensor) -> Tensor:
    if not a.rank:
        return a
    at = index if index.rank else Tensor(index.op, [None])
    return indexing.gathered(n.g, a, at, dim % a.rank, "the tensor", negative=False)


@translates("aten.gather")
def gather(n: TorchNode, a: Tensor, dim: int, index: Tensor, sparse_grad: bool = False) -> Tensor:
    if any(n.g.same(s, 0) for s in index.shape):
        return n.g.expanded(n.of(0, n.dtype), n.shape)
    if not a.rank or not index.rank:
        a, at = (t if t.rank else Tensor(t.op, [None]) for t in (a, index))
        found = indexing.gathered_elements(n.g, a, at, 0, "the tensor", negative=False)
        return n.g.reshape(found, n.shape)
    return indexing.gathered_elements(n.g, a, index, dim % a.rank, "the tensor", negative=False)


def combined(dtype: DType, kind: str) -> str:
    """Returns how a scatter combines elements of a dtype."""
    return OF_BOOLS.get(kind, kind) if dtype.kind == "bool" else kind


def scattered(n: TorchNode, a: Tensor, dim: int, index: Tensor, source: Any, combine: str) -> Tensor:
    shape = n.shape
    if not a.rank:
        a = Tensor(a.op, [None])
    if not index.rank:
        index = Tensor(index.op, [None])
    if isinstance(source, Tensor):
        u = source if source.rank else Tensor(source.op, [None])
        u = n.of(u, a.dtype)
        for k, (have, want) in enumerate(zip(u.shape, index.shape, strict=True)):
            if not n.g.same(have, want):
                u = sliced(n.g, u, k, 0, 1, want)
    else:
        u = n.g.expanded(n.of(source, a.dtype), index.shape)
    made = indexing.scattered_elements(n.g, a, index, u, dim % a.rank, combined(a.dtype, combine), "the tensor", negative=False)
    return n.g.reshape(made, shape)


@translates("aten.scatter.src", "aten.scatter.value")
def scatter(n: TorchNode, a: Tensor, dim: int, index: Tensor, source: Any = None, **named: Any) -> Tensor:
    return scattered(n, a, dim, index, named.get("src", named.get("value", source)), "set")


@translates("aten.scatter.reduce", "aten.scatter.value_reduce")
def scatter_by(n: TorchNode, a: Tensor, dim: int, index: Tensor, source: Any, *, reduce: str) -> Tensor:
    return scattered(n, a, dim, index, source, COMBINE[reduce])


@translates("aten.scatter_add")
def scatter_add(n: TorchNode, a: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return scattered(n, a, dim, index, source, "add")


@translates("aten.scatter_reduce.two")
def scatter_reduce(n: TorchNode, a: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
    """Elements combined where they go; include_self: with what stands there already."""
    if not include_self:
        neutral = {"sum": 0, "mean": 0, "prod": 1, "amax": lowest(a.dtype), "amin": highest(a.dtype)}[reduce]
        a = scattered(n, a, dim, index, neutral, "set")
    if reduce != "mean":
        return scattered(n, a, dim, index, source, COMBINE[reduce])
    whole = scattered(n, a, dim, index, source, "add")
    start = n.g.expanded(n.of(1 if include_self else 0, a.dtype), a.shape)
    many = scattered(n, start, dim, index, 1, "add")
    return each(n.g, lambda x, k: e.divide.build(x, e.maximum(k, 1)), whole, many)


def lowest(d: DType) -> Any:
    return float("-inf") if d.is_float else d.lowest


def highest(d: DType) -> Any:
    return float("inf") if d.is_float else d.highest


@translates("aten.index_reduce")
def index_reduce(n: TorchNode, a: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
    """Slices combined where they go."""
    k = dim % max(a.rank, 1)
    at = Tensor(index.op, [None]) if not index.rank else index
    u = source if source.rank else Tensor(source.op, [None])
    wide = n.g.expanded(Tensor(at.op, [*[None] * k, *at.dims, *[None] * (u.rank - 1 - k)]), u.shape)
    return scatter_reduce(n, a, k, wide, u, reduce, include_self=include_self)


def meeting(n: TorchNode, a: Tensor, indices: Sequence[Tensor | None]) -> tuple[Tensor, list[int], list[Tensor], list[Any]]:
    """The tensor with axes along indexed dims; those dims; indices that have met; and their dims."""
    at = [k for k, i in enumerate(indices) if i is not None]
    given = [i for i in indices if i is not None]
    if any(i.dtype.kind == "bool" for i in given):
        raise n.lack("an index of bools, whose number decides a length")
    t = n.g.full(a, at)
    met, dims = n.g.meet(given)
    apart = [n.g.apart(Tensor(m.op, m.dims), t.dims) for m in met]
    met, dims = n.g.meet(apart)
    return t, at, met, dims


def places(n: TorchNode, t: Tensor, at: Sequence[int], met: Sequence[Tensor]) -> list[Any]:
    """Indices counted from the start."""
    return [indexing.index_along(n.g, i.op, None, t.dims[k], f"dim {k} of the tensor") for k, i in zip(at, met, strict=True)]


@translates("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(n: TorchNode, a: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    t, at, met, dims = meeting(n, a, indices)
    found = gather_op(t.op, *places(n, t, at, met), axes=tuple([t.dims[k] for k in at]), mode="clip")
    beside = at == list(range(at[0], at[-1] + 1))
    rest = [d for k, d in enumerate(t.dims) if k not in at]
    where = at[0] if beside else 0
    return n.g.made(found, [*rest[:where], *dims, *rest[where:]])


@translates("aten.index_put", "aten._unsafe_index_put")
def index_put(n: TorchNode, a: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    given = [i for i in indices if i is not None]
    if len(given) == 1 and given[0].dtype.kind == "bool" and not accumulate and values.rank <= 0 and indices[0] is not None:
        mask = Tensor(given[0].op, [*given[0].dims, *[None] * (a.rank - given[0].rank)])
        return n.g.expanded(each(n.g, e.where, mask, n.of(values, a.dtype), a), n.shape)
    t, at, met, dims = meeting(n, n.g.full(a), indices)
    beside = at == list(range(at[0], at[-1] + 1))
    rest = [d for k, d in enumerate(t.dims) if k not in at]
    where = at[0] if beside else 0
    shape = [1 if d is None else d.size for d in (*rest[:where], *dims, *rest[where:])]
    u = n.g.full(n.g.expanded(n.of(values, a.dtype), shape))
    whole = n.g.full(Tensor(met[0].op, dims) if len(met) == 1 else Tensor(n.g.made(met[0].op, dims).op, dims))
    names = [*rest[:where], *whole.dims, *rest[where:]]
    u = n.g.renamed(u, names)
    found = []
    for m in met:
        wide = n.g.expanded(m, [1 if d is None else d.size for d in whole.dims])
        wide = n.g.renamed(n.g.full(wide), whole.dims)
        found.append(wide)
    axes = tuple([t.dims[k] for k in at])
    kind = combined(a.dtype, "add" if accumulate else "set")
    return n.g.made(scatter_op.build(t.op, *places(n, t, at, found), u.op, axes=axes, combine=kind, mode="clip"), t.dims)


# ---- what is found by its value -----------------------------------------------------------------------------------------


@translates("aten.nonzero")
def nonzero(n: TorchNode, a: Tensor) -> Tensor:
    if not a.rank:
        places, axis = indexing.positions(n.g, n.g.reshape(a, [1]))
        none = n.g.fresh(0)
        return Tensor(broadcast(e.cast(places[0], dtypes.int64), (axis, none)), [axis, none])
    found, axis = indexing.positions(n.g, a)
    return joined(n.g, [Tensor(e.cast(f, dtypes.int64), [axis, None]) for f in found], 1)


def whole_indices(indices: Sequence[Any]) -> list[Any] | None:
    """Indices with the positions of each mask in its place; None where there is no mask."""
    found, masks = list[Any](), False
    for i in indices:
        if i is not None and i.dtype in (torch.bool, torch.uint8) and i.dim():
            places = torch.ops.aten.nonzero.default(i)
            found += [places.select(1, k) for k in range(i.dim())]
            masks = True
        else:
            found.append(i)
    return found if masks else None


def index_of_masks(x: torch.Tensor, indices: Sequence[Any]) -> Any:
    found = whole_indices(indices)
    return NotImplemented if found is None else torch.ops.aten.index.Tensor(x, found)


def index_put_of_masks(x: torch.Tensor, indices: Sequence[Any], values: torch.Tensor, accumulate: bool = False) -> Any:
    if values.dim() == 0 and not accumulate:
        return NotImplemented  # a choice between two values
    given = [(k, i) for k, i in enumerate(indices) if i is not None]
    if len(given) == 1 and given[0][1].dtype in (torch.bool, torch.uint8) and given[0][1].dim():
        return put_at_mask(x, given[0][1], given[0][0], values, accumulate)
    try:
        found = whole_indices(indices)
    except private.DynamicOutputShapeException:  # Dynamo takes no such lengths into its graphs
        return NotImplemented
    return NotImplemented if found is None else torch.ops.aten.index_put.default(x, found, values, accumulate)


def put_at_mask(x: torch.Tensor, mask: torch.Tensor, at: int, values: torch.Tensor, accumulate: bool) -> torch.Tensor:
    """Returns x with values where a mask of its dims from `at` on holds: one for each true place, or one for all of them."""
    ranks, ends = list(range(mask.dim())), list(range(at, at + mask.dim()))
    flags, lead, tail = mask != 0, x.shape[:at], x.shape[at + mask.dim() :]
    y = x.movedim(ends, ranks)
    whole = flags.reshape(*flags.shape, *[1] * (x.dim() - mask.dim())).expand(y.shape)
    k = values.shape[-1 - len(tail)] if values.dim() > len(tail) else 1
    values = values.expand(*lead, k, *tail).movedim(at, 0)
    if private.surely(k == 1):
        chosen = values.reshape(*[1] * mask.dim(), *values.shape[1:])
        made = torch.where(whole, y + chosen if accumulate else chosen, y)
    else:
        what, fix = "the values of index_put are not as many as the true places of its mask", "x[mask] = values with mask.sum() values"
        values = torch.ops.ngraph.checked(values, flags.sum() != k, what, fix)
        made = torch.ops.aten.masked_scatter.default(torch.zeros_like(y) if accumulate else y, whole, values)
        made = y + made if accumulate else made
    return torch.ops.aten.copy.default(torch.empty_like(x), made.movedim(ranks, ends))


def select_scatter(x: torch.Tensor, source: torch.Tensor, dim: int, index: Any) -> Any:
    """Returns x with `source` in one place along a dim. PyTorch's own rule promotes x where their dtypes differ."""
    return private.rule_of(torch.ops.aten.select_scatter.default)(x, source.to(x.dtype), dim, index)


def masked_select(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    x, mask = torch.broadcast_tensors(x, mask)
    return index_of_masks(x.reshape(-1), [mask.reshape(-1)])


def nonzero_static(x: torch.Tensor, *, size: Any, fill_value: int = -1) -> torch.Tensor:
    """The places of the first `size` elements that are not 0; behind the last of them `fill_value` stands."""
    count = math.prod(x.shape)
    if not x.dim() or private.surely(count == 0):
        return x.new_full((size, x.dim()), fill_value, dtype=torch.int64)
    flags = x.reshape(-1) != 0
    at = torch.where(flags, flags.cumsum(0) - 1, size).clamp(max=size)
    row = torch.arange(count, device=x.device)
    found = torch.full_like(row[:1], count).expand(size + 1).scatter(0, at, row)[:size]
    strides = [math.prod(x.shape[k + 1 :]) for k in range(x.dim())]
    places = torch.stack([found // stride % length for stride, length in zip(strides, x.shape, strict=True)], 1)
    return torch.where(found[:, None] == count, fill_value, places)


def distinct(rows: torch.Tensor, inverse: bool, counts: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns where runs of equal rows begin, the run of each row, and how long each is; nothing of what is not wanted. NaN equals none."""
    place = torch.arange(rows.shape[0], device=rows.device)
    differ = rows != rows.index_select(0, (place - 1).clamp(min=0))
    new = (place == 0) | (differ if rows.dim() == 1 else differ.flatten(1).any(1))
    starts = torch.ops.aten.nonzero.default(new).select(1, 0)
    run, nothing = new.cumsum(0) - 1, place[:0]
    lengths = (
        torch.zeros(starts.shape[0], dtype=torch.int64, device=rows.device).index_add(0, run, torch.ones_like(run)) if counts else nothing
    )
    return starts, run, run if inverse else nothing, lengths


def unique(x: torch.Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    flat = x.reshape(-1)
    first, inverse, counts = firsts(flat, return_inverse, return_counts)
    return flat[first], inverse.view(x.shape) if return_inverse else inverse, counts


def firsts(x: torch.Tensor, inverse: bool, counts: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns where each value of a row stands first, the values in order, which of them each element has, and how often each is there."""
    values, places = x.sort(stable=True)
    starts, run, which, lengths = distinct(values, inverse, counts)
    return places[starts], torch.zeros_like(run).scatter(0, places, run) if inverse else which, lengths


def unique_dim(x: torch.Tensor, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    """The distinct slices along a dim, in the order of their first elements, of those that agree in them in that of the next."""
    if any(private.surely(n == 0) for n in x.shape):
        return NotImplemented  # eager refuses most of them
    rows = x.movedim(dim, -1).reshape(-1, x.shape[dim])
    if private.unbacked(rows.shape[0]):
        return NotImplemented  # how many elements a slice has comes with what is computed
    first, inverse, counts = firsts(in_order(rows), return_inverse, return_counts)
    return x.index_select(dim, first), inverse, counts


def in_order(rows: torch.Tensor) -> torch.Tensor:
    """Returns a number for each column of rows [height, n] in the order of the columns: the first elements decide, then the next."""
    if rows.shape[0] == 1:
        return rows[0]
    height, n = 1, rows.shape[1]
    while height < rows.shape[0]:
        height *= 2
    keys = torch.nn.functional.pad(ranks(rows), (0, 0, 0, height - rows.shape[0]))
    while height > 2:
        keys = ranks(keys[::2] * n + keys[1::2])
        height //= 2
    return keys[0] * n + keys[1]


def ranks(rows: torch.Tensor) -> torch.Tensor:
    """Returns how many values of each row are distinct and smaller than each element; each NaN is larger than all before it."""
    values, places = rows.sort(dim=1, stable=True)
    n = torch.arange(rows.shape[1], device=rows.device)
    new = values != values.index_select(1, (n - 1).clamp(min=0))
    return torch.zeros_like(places).scatter(1, places, ((n > 0) & new).cumsum(1))


def unique_consecutive(x: torch.Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    if dim is not None and x.dim() > 1:
        if any(private.surely(n == 0) for n in x.shape):
            return NotImplemented  # eager refuses most of them
        starts, _, inverse, counts = distinct(x.movedim(dim, 0), return_inverse, return_counts)
        return x.index_select(dim, starts), inverse, counts
    flat = x.reshape(-1)
    starts, _, inverse, counts = distinct(flat, return_inverse, return_counts)
    return flat[starts], inverse.view(x.shape) if return_inverse else inverse, counts


def number_in(x: torch.Tensor) -> Any:
    """Returns the length that a tensor of one element holds; None where Dynamo takes no such lengths into its graphs."""
    try:
        found = x.item()
    except private.DataDependentOutputException:
        return None
    torch._check(found >= 0)
    return found


def repeat_interleave(repeats: torch.Tensor, *, output_size: Any = None) -> Any:
    """Returns each place as often as `repeats` says there."""
    if private.surely(repeats.shape[0] == 0):
        return NotImplemented
    checked = torch.ops.ngraph.checked(repeats, repeats < 0, "repeats are below 0", "repeats.clamp(min=0)")
    ends = checked.cumsum(0)
    total = number_in(ends[-1]) if output_size is None else output_size
    if total is None:
        return NotImplemented
    if output_size is not None:
        what, fix = "output_size is not the sum of the repeats", "output_size=int(repeats.sum())"
        ends = torch.ops.ngraph.checked(ends, ends[-1] != output_size, what, fix)
    return torch.searchsorted(ends, torch.arange(total, device=repeats.device), right=True).to(repeats.dtype)


def bincount(x: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> Any:
    """Returns how often each number from 0 on is there, or the sum of the weights that stand at it."""
    if private.surely(x.shape[0] == 0):
        return NotImplemented
    x = torch.ops.ngraph.checked(x, x < 0, "a number below 0 is counted by bincount", "x.clamp(min=0)").to(torch.int64)
    count = number_in((x.amax() + 1).clamp(min=minlength))
    if count is None:
        return NotImplemented
    dtype = torch.int64 if weights is None else torch.float32 if weights.dtype is torch.float32 else torch.float64
    ones = torch.ones_like(x) if weights is None else weights.to(dtype)
    return torch.zeros(count, dtype=dtype, device=x.device).index_add(0, x, ones)


def embedding_renorm(weight: torch.Tensor, indices: torch.Tensor, max_norm: float, norm_type: float) -> torch.Tensor:
    """The rows of `weight` [rows, width] with those that are looked up, and whose norm is larger, brought to this norm."""
    found = indices.flatten()
    rows = weight[found]
    norms = torch.linalg.vector_norm(rows, norm_type, dim=1, keepdim=True)
    shorter = rows * (max_norm / (norms + 1e-7)).to(rows.dtype)
    return weight.index_put([found], torch.where(norms > max_norm, shorter, rows))


# ---- bags of embeddings -------------------------------------------------------------------------------------------------


def embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """The sum (mode 0), mean (1) or greatest (2) of the rows of each bag; the bag of each row, rows by bag, and which row was the greatest.

    weight [rows, width]; indices [n] and offsets [bags], where each bag starts among them. Rows of `padding_idx` count in no bag.
    """
    if sparse or scale_grad_by_freq:
        return NotImplemented  # a gradient without most of its rows; one that PyTorch divides in ways of its own
    bags = offsets.shape[0] - int(include_last_offset)
    if private.surely(bags == 0):  # PyTorch reads no index then
        rows, width = indices[:0], weight.shape[1]
        return weight.new_zeros(0, width), rows, offsets[:0], (rows.new_zeros(0, width) if mode == 2 else offsets[:0])
    starts = (offsets[:1] == 0).all() & (offsets[1:] >= offsets[:-1]).all() & (offsets <= indices.shape[0]).all()
    torch._assert_async(starts, "offsets of bags start at 0, do not fall, and are no more than there are indices")
    torch._assert_async((indices >= 0).all(), "an index of an embedding is at least 0")
    row = torch.arange(indices.shape[0], dtype=offsets.dtype, device=indices.device)
    bag = torch.searchsorted(offsets[:bags], row, right=True) - 1
    there = indices != padding_idx
    sizes = torch.zeros(bags, dtype=offsets.dtype, device=indices.device).index_add(0, bag, there.to(offsets.dtype))
    rows = weight[indices].to(kinds.computed_in(weight.dtype))
    if mode == 2:
        rows = torch.where(there[:, None], rows, float("-inf"))
        wide_bag = bag[:, None].expand(rows.shape)
        most = rows.new_full((bags, rows.shape[1]), float("-inf")).scatter_reduce(0, wide_bag, rows, "amax")
        first = torch.where((rows == most[bag]) & there[:, None], row[:, None], indices.shape[0])
        place = torch.full_like(most, indices.shape[0], dtype=offsets.dtype).scatter_reduce(0, wide_bag, first.to(offsets.dtype), "amin")
        greatest = torch.cat([indices, indices.new_zeros(1)])[place]
        return torch.where(sizes[:, None] > 0, most, 0.0).to(weight.dtype), bag.to(indices.dtype), sizes, greatest
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    found = rows.new_zeros(bags, rows.shape[1]).index_add(0, bag, torch.where(there[:, None], rows, 0.0))
    if mode == 1:
        found = found / sizes.clamp(min=1)[:, None]
    return found.to(weight.dtype), bag.to(indices.dtype), sizes, sizes.clone()


def embedding_bag_backward(
    grad: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    offset2bag: torch.Tensor,
    bag_size: torch.Tensor,
    maximum_indices: torch.Tensor,
    num_weights: Any,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: torch.Tensor | None,
    padding_idx: int = -1,
) -> Any:
    """The derivative for the weight [rows, width]."""
    if sparse or scale_grad_by_freq:
        return NotImplemented
    whole = grad.new_zeros(num_weights, grad.shape[1])
    if mode == 2:
        some = torch.where(bag_size[:, None] > 0, grad, 0.0)
        return whole.scatter_add(0, maximum_indices.to(torch.int64), some)
    if private.surely(grad.shape[0] == 0):
        return whole
    rows = grad[offset2bag]
    if mode == 1:
        rows = rows / bag_size.clamp(min=1)[offset2bag][:, None]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    return whole.index_add(0, indices, torch.where((indices != padding_idx)[:, None], rows, 0.0))


def weights_of_bags_backward(
    grad: torch.Tensor,
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    offset2bag: torch.Tensor,
    mode: int,
    padding_idx: int = -1,
) -> torch.Tensor:
    """The derivative for the factors of the rows."""
    if private.surely(grad.shape[0] == 0):
        return grad.new_zeros(indices.shape[0])
    return torch.where(indices != padding_idx, (grad[offset2bag] * weight[indices]).sum(1), 0.0)


def masked_scatter_backward(grad: torch.Tensor, mask: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """The derivative for the elements that `masked_scatter` takes, one after another: that of the k-th true place is that of the k-th."""
    count, flags = math.prod(sizes), mask.expand_as(grad).flatten()
    at = torch.where(flags, flags.cumsum(0) - 1, count)
    return grad.new_zeros(count + 1).scatter(0, at, grad.flatten())[:count].view(sizes)


def rules() -> dict[Any, Any]:
    """Returns how ops whose values decide a length, norms of embeddings, and bags of them, are taken apart, by overload."""
    aten = torch.ops.aten
    return {
        aten.index.Tensor: index_of_masks,
        aten.index_put.default: index_put_of_masks,
        aten.masked_select.default: masked_select,
        aten.nonzero_static.default: nonzero_static,
        aten._unique2.default: unique,
        aten.unique_dim.default: unique_dim,
        aten.unique_consecutive.default: unique_consecutive,
        aten.repeat_interleave.Tensor: repeat_interleave,
        aten.bincount.default: bincount,
        aten.masked_scatter_backward.default: masked_scatter_backward,
        aten.embedding_renorm.default: embedding_renorm,
        aten.select_scatter.default: select_scatter,
        **bags(),
    }


def bags() -> dict[Any, Any]:
    """Returns how bags of embeddings are taken apart, by overload."""
    aten = torch.ops.aten
    return {
        aten._embedding_bag.default: embedding_bag,
        aten._embedding_bag_forward_only.default: embedding_bag,
        aten._embedding_bag_backward.default: embedding_bag_backward,
        aten._embedding_bag_per_sample_weights_backward.default: weights_of_bags_backward,
    }

"""Products of matrices, sums of products by letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ngraph.errors import GraphError
from ngraph.frontends.positional.elementwise import each
from ngraph.frontends.positional.shapes import size_op
from ngraph.frontends.positional.values import Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axis
from ngraph.op_graph.dtypes import DType, accumulator
from ngraph.op_graph.expr import Idx
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.control import scan, while_loop
from ngraph.ops.indexing import gather
from ngraph.ops.linear import contract
from ngraph.ops.rearrange import iota
from ngraph.ops.reduce import reduce
from ngraph.ops.sorting import cumsum

MAX_TILE_ROWS = 32  # of a group that are multiplied together: larger tiles are padded more, and took longer, as did smaller ones


def matmul(g: Any, a: Tensor, b: Tensor, accumulate: DType | None = None) -> Tensor:
    """NumPy's matmul: the rows of a meet the columns of b, dims in front are broadcast."""
    if not a.rank or not b.rank:
        raise GraphError(f"a matrix product of {g.show(a)} and {g.show(b)}")
    if not g.same(a.shape[-1], b.shape[-2 if b.rank > 1 else -1]):
        m, n = g.hint(a.shape[-1]), g.hint(b.shape[-2 if b.rank > 1 else -1])
        raise GraphError(f"{g.show(a)} and {g.show(b)} have no product: the last dim of the one has length {m}, the rows of the other {n}")
    left = a.dims if a.rank > 1 else [None, *a.dims]
    right = b.dims if b.rank > 1 else [*b.dims, None]
    (x, y), dims = g.meet([Tensor(a.op, [*left, None]), Tensor(b.op, [*right[:-2], None, *right[-2:]])], of=(a, b))
    over = () if dims[-2] is None else (dims[-2],)
    op = multiplied(x.op, y.op, over, accumulate)
    kept = [*dims[:-3], *([dims[-3]] if a.rank > 1 else []), *([dims[-1]] if b.rank > 1 else [])]
    return g.made(op, kept)


def multiplied(x: Op, y: Op, over: tuple[Any, ...], accumulate: DType | None = None) -> Op:
    """The sum of products over axes, of which either may lack some."""
    mine = tuple([a for a in over if a in x.axes or a in y.axes])
    return contract.build(x, y, over=mine, accumulate=accumulate or accumulator(x.dtype)) if mine else x * y


def scaled(x: Op, by: float) -> Op:
    """x times a number, whole for integers."""
    return x if by == 1 else x * (by if x.dtype.is_float else int(by))


def gemm(g: Any, x: Tensor, y: Tensor, c: Value, alpha: float, beta: float) -> Tensor:
    """alpha times the product of two matrices, plus beta times a third, which may be left out."""
    z = matmul(g, x, y)
    z = Tensor(scaled(z.op, alpha), z.dims)
    return z if c is None else each(g, lambda p, q: p + scaled(q, beta), z, c)


def einsum(g: Any, equation: str, ts: Sequence[Tensor]) -> Tensor:
    """NumPy's einsum."""
    text = equation.replace(" ", "")
    taken, _, given = text.partition("->")
    terms = [letters(term, t.rank) for term, t in zip(taken.split(","), ts, strict=True)]
    if "->" in text:
        spread = max((len([x for x in term if x.startswith(".")]) for term in terms), default=0)
        out = letters(given, len(given.replace("...", "")) + (spread if "..." in given else 0))
    else:
        every = [x for term in terms for x in term]
        dots = sorted({x for x in every if x.startswith(".")}, key=lambda x: -int(x[1:]))
        out = [*dots, *sorted(x for x in set(every) if not x.startswith(".") and every.count(x) == 1)]
    ts = [diagonal(g, t, term) for t, term in zip(ts, terms, strict=True)]
    terms = [list(dict.fromkeys(term)) for term in terms]
    names = list(dict.fromkeys(x for term in terms for x in term))
    spread_out = [Tensor(t.op, [t.dims[term.index(x)] if x in term else None for x in names]) for t, term in zip(ts, terms, strict=True)]
    met, dims = g.meet(spread_out, of=ts)
    total: Op | None = None
    for k, t in enumerate(met):
        later = {d for other in met[k + 1 :] for d in other.dims}
        done = [d for d, x in zip(dims, names, strict=True) if d is not None and x not in out and d not in later]
        if total is None:
            gone = tuple([d for d in done if d in t.op.axes]) if len(met) == 1 else ()
            total = reduce.build(t.op, kind="add", axes=gone) if gone else t.op
        else:
            total = multiplied(total, t.op, tuple(done))
    assert total is not None
    return g.made(total, [dims[names.index(x)] for x in out])


def letters(term: str, rank: int) -> list[str]:
    """The letters of an einsum term; dims under the dots are `.k`, counted from the last of them."""
    if "..." not in term:
        return list(term)
    before, after = term.split("...")
    many = rank - len(before) - len(after)
    return [*before, *(f".{k}" for k in range(many - 1, -1, -1)), *after]


def diagonal(g: Any, t: Tensor, term: Sequence[str]) -> Tensor:
    """The tensor where dims of one letter have one index."""
    for x in dict.fromkeys(term):
        places = [k for k, y in enumerate(term) if y == x]
        if len(places) > 1:
            t = g.full(t, places)
            first = t.dims[places[0]]
            index = {t.dims[k]: Idx(first) for k in places[1:]}
            t = g.read(t, [d for k, d in enumerate(t.dims) if k not in places[1:]], index)
            term = [y for k, y in enumerate(term) if k not in places[1:]]
    return t


# ---- products by groups of rows -----------------------------------------------------------------------------------------


class Groups:
    """Rows in groups that follow each other: the axis of the groups, and for each its first row and the one behind its last, in int64."""

    def __init__(self, g: Any, ends: Tensor, axis: Axis):
        self.axis = axis
        self.end = e.cast(g.renamed(g.full(ends), [axis]).op, dtypes.int64)
        before = gather(self.end, e.maximum(iota(axis, dtypes.int64) - 1, 0), axes=(axis,), mode="clip")
        self.first = e.where(e.equal(iota(axis), 0), e.filled(0, (), dtypes.int64), before)

    def of(self, ends: Op, places: Op) -> Op:
        """Returns the group of each place: the number of groups that end there or before; at most the last."""
        return e.minimum(self._passed(ends, places), size_op(self.axis.size) - 1)

    def inside(self, places: Op) -> Op:
        """Whether a place is in any group."""
        return e.less(self._passed(self.end, places), size_op(self.axis.size))

    def _passed(self, ends: Op, places: Op) -> Op:
        return reduce.build(e.cast(e.less_equal(ends, places), dtypes.int64), kind="add", axes=(self.axis,))

    def pick(self, x: Op, of: Op) -> Op:
        """Returns for each place what its group has."""
        return gather(x, of, axes=(self.axis,), mode="clip")


def rows_by_group(g: Any, x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
    """Rows [rows, k] times the matrix of their group, of w [groups, k, n]; group k ends before row ends[k], and rows behind the last are 0.

    Each group is cut into tiles of as many rows, of which its last one is padded, and the tiles are multiplied as one batch.
    """
    x = g.full(x)
    w = g.full(g.apart(w, x.dims))
    group, _, column = w.dims
    w = g.renamed(w, [group, x.dims[1], column])
    row, inner = x.dims
    groups, place = Groups(g, ends, group), iota(row, dtypes.int64)
    mine = groups.of(groups.end, place)
    tile = tile_rows(g.hint(row.size), g.hint(group.size))
    if tile == 1:
        y = multiplied(x.op, groups.pick(w.op, mine), (inner,))
    else:
        tiles = (groups.end - groups.first + (tile - 1)) // tile
        behind = cumsum(tiles, group)
        number, within = g.fresh(row.size // tile + group.size), g.fresh(tile)
        of = groups.of(behind, iota(number, dtypes.int64))
        start = groups.pick(groups.first, of) + (iota(number, dtypes.int64) - groups.pick(behind - tiles, of)) * tile
        rows = gather(x.op, start + iota(within, dtypes.int64), axes=(row,), mode="clip")
        made = multiplied(rows, groups.pick(w.op, of), (inner,))
        at = place - groups.pick(groups.first, mine)
        y = gather(made, groups.pick(behind - tiles, mine) + at // tile, at % tile, axes=(number, within), mode="clip")
    return g.made(e.where(groups.inside(place), y, 0), [row, column])


def tile_rows(rows: int, groups: int) -> int:
    """Returns how many rows are multiplied together: a power of two, no more than a group has in the mean."""
    mean = rows // max(groups, 1)
    return min(MAX_TILE_ROWS, 1 << max(mean.bit_length() - 1, 0))


def sums_by_group(g: Any, x: Tensor, y: Tensor, ends: Tensor) -> Tensor:
    """The sums of products of the rows of x [rows, m] and y [rows, n] in each group: [groups, m, n]. `ends` is as in `rows_by_group`."""
    x = g.full(x)
    row, left = x.dims
    y = g.full(y)
    y = g.renamed(g.apart(y, x.dims), [row, y.dims[1] if y.dims[1] not in x.dims else g.fresh(y.dims[1].size)])
    right = y.dims[1]
    group, within = g.fresh(ends.shape[0]), g.fresh(MAX_TILE_ROWS)
    groups, wide = Groups(g, ends, group), accumulator(x.dtype)

    def of_group(_: Any, bounds: Any) -> Any:
        first, end = bounds

        def tile(at: Op, total: Op) -> tuple[Op, Op]:
            place = at + iota(within, dtypes.int64)
            a, b = (e.cast(e.where(e.less(place, end), gather(t.op, place, axes=(row,), mode="clip"), 0), wide) for t in (x, y))
            return at + MAX_TILE_ROWS, total + multiplied(a, b, (within,))

        return None, while_loop(lambda at, _: e.less(at, end), tile, (first, e.filled(0, (left, right), wide)))[1]

    _, made = scan(of_group, None, (groups.first, groups.end), group)
    return g.made(e.cast(made, x.dtype), [group, left, right])

"""Factors of the matrices that lie in a tensor's last two dims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngraph.frontends.positional.elementwise import each
from ngraph.frontends.positional.products import matmul
from ngraph.frontends.positional.shapes import eye, size_op, turned
from ngraph.frontends.positional.values import Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axis
from ngraph.op_graph.expr import minimum
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops import linalg
from ngraph.ops.control import scan
from ngraph.ops.indexing import gather
from ngraph.ops.rearrange import broadcast, iota


def matrices(g: Any, x: Value) -> tuple[Tensor, Axis, Axis]:
    """Returns a tensor whose last two dims have axes, and those."""
    t = g.full(g.tensor(x), (x.rank - 2, x.rank - 1))
    rows, columns = t.dims[-2:]
    return t, rows, columns


def determinant(g: Any, x: Value) -> Tensor:
    """Returns the determinants of matrices."""
    t, i, j = matrices(g, x)
    return g.made(linalg.det(t.op, i, j), t.dims[:-2])


def inverse(g: Any, x: Value) -> Tensor:
    """Returns the inverses of matrices."""
    t, i, j = matrices(g, x)
    return g.made(linalg.inv(t.op, i, j), [*t.dims[:-2], j, i])


def qr(g: Any, x: Value) -> tuple[Tensor, Tensor]:
    """Returns matrices with orthogonal columns [rows, k] and upper triangles [k, columns], k the shorter of both."""
    t, i, j = matrices(g, x)
    k = g.fresh(minimum(i.size, j.size))
    q, r = linalg.qr(t.op, i, j, inner=k)
    return g.made(q, [*t.dims[:-1], k]), g.made(r, [*t.dims[:-2], k, j])


def svd(g: Any, x: Value) -> tuple[Tensor, Tensor, Tensor]:
    """Returns left singular vectors [rows, k], singular values [k] and right vectors [columns, k], k the shorter of rows and columns."""
    t, i, j = matrices(g, x)
    k = g.fresh(minimum(i.size, j.size))
    u, s, v = linalg.svd(t.op, i, j, inner=k)
    batch = t.dims[:-2]
    return g.made(u, [*batch, i, k]), g.made(s, [*batch, k]), g.made(v, [*batch, j, k])


def eigh(g: Any, x: Value) -> tuple[Tensor, Tensor]:
    """Returns the eigenvalues [k] and eigenvectors [rows, k] of symmetric matrices, of which the lower triangles are read."""
    t, i, j = matrices(g, x)
    k = g.fresh(i.size)
    values, vectors = linalg.eigh(t.op, i, j, inner=k)
    return g.made(values, [*t.dims[:-2], k]), g.made(vectors, [*t.dims[:-2], i, k])


def solved(g: Any, a: Tensor, b: Tensor, solver: Callable[[Op, Op, Axis, Axis], Op]) -> Tensor:
    """Returns what a solver gives for matrices and the columns of others, whose batches are broadcast."""
    (x, y), dims = g.meet([Tensor(a.op, [*a.dims, None]), Tensor(b.op, [*b.dims[:-1], None, b.dims[-1]])])
    x = g.full(x, (x.rank - 3, x.rank - 2))
    i, j = x.dims[-3:-1]
    y = g.full(y, (y.rank - 3, y.rank - 1))
    right = g.renamed(y, [*y.dims[:-3], i, None, y.dims[-1]])
    found: Tensor = g.made(solver(x.op, right.op, i, j), [*dims[:-3], j, y.dims[-1]])
    return found


def ridge(g: Any, a: Tensor, b: Tensor, weight: float) -> Tensor:
    """Returns the x for which the sum of squares of a x - b, and of x times a weight, is least, by normal equations."""
    by_rows, (m, k) = turned(a), g.numbers(a.shape[-2:])
    square = matmul(g, by_rows, a) if m >= k else matmul(g, a, by_rows)
    whole = each(g, lambda s, one: s + one * weight, square, eye(g, square.shape[-2:], 0, a.op.dtype))
    if m >= k:
        return solved(g, whole, matmul(g, by_rows, b), linalg.solve)
    return matmul(g, by_rows, solved(g, whole, b, linalg.solve))


def triangle_of_bands(g: Any, bands: Tensor, lower: bool) -> Tensor:
    """Returns triangular matrices by their diagonals, [..., diagonals, rows]: the main one first, or, of upper ones, last."""
    t = g.full(bands, (bands.rank - 2, bands.rank - 1))
    many, i = t.dims[-2:]
    j = g.fresh(i.size)
    below = iota(i, dtypes.int64) - iota(j, dtypes.int64)
    at = below if lower else below + size_op(many.size - 1)
    inside = e.logical_and(e.less_equal(0, below if lower else -below), e.logical_and(e.less_equal(0, at), e.less(at, size_op(many.size))))
    found = gather(t.op, at, iota(i, dtypes.int64), axes=(many, i), mode="clip")
    return g.made(e.where(inside, found, e.filled(0, (), t.op.dtype)), [*t.dims[:-2], i, j])


def square_root(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns the principal square roots of matrices, by a step in Python: Denman's and Beavers' iteration, in float64.

    The root of a matrix that has none, since an eigenvalue is negative or 0, does not settle: it is NaN.
    """
    found, rest, one = a.astype(np.float64), a.astype(np.float64), np.eye(a.shape[-1])
    with np.errstate(all="ignore"):
        for _ in range(40):
            try:
                inverse = np.linalg.inv(rest)
            except np.linalg.LinAlgError:
                return np.full_like(a, np.nan)
            found, rest = found @ (one + inverse) / 2, one / 2 + (rest + inverse) / 4
        error = np.abs(found @ found - a).max((-2, -1), keepdims=True, initial=0)
        settled = error <= 1e-4 * np.abs(a).max((-2, -1), keepdims=True, initial=0)
    return np.where(settled, found, np.nan).astype(a.dtype)


def tridiagonal_solve(diagonals: Sequence[Op], b: Op, rows: Axis, pivots: bool) -> Op:
    """Returns x with A x = b along `rows`. diagonals: of A, above the main one, it, and below it; their last and first elements are unused.

    pivots: whether a row changes places with the next one where that has the larger first element, as LAPACK's gtsv does.
    """
    zero, at = e.filled(0, (), b.dtype), iota(rows)
    above, main, below = (broadcast(d, [a for a in b.axes if a in d.axes or a == rows]) for d in diagonals)
    above = e.where(e.equal(at, size_op(rows.size - 1, dtypes.int32)), zero, above)
    below = e.where(e.equal(at, 0), zero, below)
    start = [e.filled(v, tuple([a for a in t.axes if a != rows]), b.dtype) for v, t in ((1, main), (0, above), (0, b))]

    def down(pending: Sequence[Op], row: Sequence[Op]) -> tuple[Any, Any]:
        """Eliminates the first element of a row by the row before it. One of both is final: three elements from the main one on, and b."""
        (u, v, s), (p, q, low, r) = pending, row
        swap = e.less(e.absolute(u), e.absolute(low)) if pivots else e.less(e.absolute(u), zero)
        factor = e.where(swap, u / low, low / u)
        done = tuple([e.where(swap, new, old) for new, old in ((low, u), (q, v), (p, p * zero), (r, s))])
        after = (q, v), (p, p * zero), (r, s)
        return tuple([e.where(swap, old - factor * new, new - factor * old) for new, old in after]), done

    def up(following: Sequence[Op], row: Sequence[Op]) -> tuple[Any, Any]:
        """Gives the element that is known, and finds the one before it by the row that is final there."""
        (x, y), (u, v, w, s) = following, row
        return ((s - v * x - w * y) / u, x), x

    (u, _, s), done = scan(down, tuple(start), (above, main, below, b), rows)
    first = s / u
    found: Op = scan(up, (first, first * zero), done, rows, reverse=True)[1]
    return found

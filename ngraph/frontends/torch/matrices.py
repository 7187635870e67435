"""Translators of linear algebra: the last two dims are rows and columns. Factors have LAPACK's signs, as ours do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ngraph.frontends.positional import factors, shapes
from ngraph.frontends.positional.elementwise import each
from ngraph.frontends.positional.factors import matrices
from ngraph.frontends.positional.indexing import index_along
from ngraph.frontends.positional.products import matmul
from ngraph.frontends.positional.values import Tensor
from ngraph.frontends.torch.graph import TorchNode
from ngraph.frontends.torch.table import translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axis
from ngraph.op_graph.expr import ExprLike, minimum
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops import factorisation, linalg
from ngraph.ops.control import scan, while_loop
from ngraph.ops.rearrange import broadcast, iota
from ngraph.ops.reduce import reduce
from ngraph.ops.state import parts

TERMS = 12  # of the series of a matrix's exponential, whose norm is at most 1/2: what is left is below 2 ** -13 / 13!, float64's epsilon


def on_diagonal(n: TorchNode, a: Tensor) -> tuple[Op, Axis, Sequence[Axis | None]]:
    """Returns the diagonals of matrices, their axis, and the dims in front."""
    t = shapes.diagonal(n.g, a)
    t = n.g.full(t, [t.rank - 1])
    return broadcast(t.op, [d for d in t.dims if d is not None]), t.dims[-1], t.dims[:-1]


def first_error(n: TorchNode, factor: Tensor, wrong: Callable[[Op], Op]) -> Tensor:
    """Returns for each matrix the place, from 1 on, where the diagonal of its factor is wrong first; 0 where it is not."""
    x, k, batch = on_diagonal(n, factor)
    beyond = e.filled(dtypes.int32.highest - 1, (), dtypes.int32)
    first = reduce.build(broadcast(e.where(wrong(x), iota(k, dtypes.int32), beyond), x.axes), kind="min", axes=(k,))
    return n.g.made(e.where(e.less(first, beyond), first + 1, e.filled(0, (), dtypes.int32)), batch)


def singular(n: TorchNode, packed: Tensor) -> Tensor:
    """Returns for each matrix of LU factors the place of the first 0 on its diagonal; 0 for none."""
    return first_error(n, packed, lambda x: e.equal(x, 0.0))


def nothing(n: TorchNode, k: int, like: Tensor) -> Tensor:
    """Returns the k-th result, which has no elements."""
    return n.g.expanded(n.of(0, like.dtype), n.shape_of(k))


def identity(n: TorchNode, like: Tensor) -> Tensor:
    """Returns a matrix with the rows and columns of others, and ones on its diagonal."""
    t, i, j = matrices(n.g, like)
    return Tensor(e.cast(e.equal(iota(i), iota(j)), t.dtype), [i, j])


# ---- factors ------------------------------------------------------------------------------------------------------------


def lower_factor(n: TorchNode, a: Tensor) -> Tensor:
    t, i, j = matrices(n.g, a)
    return n.g.made(linalg.cholesky(t.op, i, j), t.dims)


def checked_factor(a: torch.Tensor, upper: bool = False) -> torch.Tensor:
    made, info = torch.linalg.cholesky_ex(a, upper=upper)
    torch.ops.aten._linalg_check_errors.default(info, "cholesky", is_matrix=a.ndim == 2)
    return made


def rules() -> dict[Any, Any]:
    """Returns how ops are taken apart that raise an error for some matrices: PyTorch has the check as an op."""
    return {torch.ops.aten.cholesky.default: checked_factor}


@translates("aten.cholesky")
def cholesky(n: TorchNode, a: Tensor, upper: bool = False) -> Tensor:
    return shapes.turned(lower_factor(n, shapes.turned(a))) if upper else lower_factor(n, a)


@translates("aten.linalg_cholesky_ex")
def cholesky_ex(n: TorchNode, a: Tensor, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    made = cholesky(n, a, upper)
    return made, first_error(n, made, lambda x: e.logical_not(e.less(0.0, x)))


@translates("aten.linalg_qr")
def qr(n: TorchNode, a: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    if mode == "complete" and not n.g.truth("le", a.shape[-2], a.shape[-1]):
        raise n.lack("complete factors of a matrix with more rows than columns")
    q, r = factors.qr(n.g, a)
    return nothing(n, 0, a) if mode == "r" else q, r


@translates("aten._linalg_svd")
def svd(n: TorchNode, a: Tensor, full_matrices: bool = False, compute_uv: bool = True, **named: Any) -> tuple[Tensor, ...]:
    if full_matrices and compute_uv and not n.g.same(a.shape[-2], a.shape[-1]):
        raise n.lack("full matrices of singular vectors, of a matrix that is not square")
    u, values, v = factors.svd(n.g, a)
    if not compute_uv:
        return nothing(n, 0, a), values, nothing(n, 2, a)
    return u, values, shapes.turned(v)


@translates("aten._linalg_eigh")
def eigh(n: TorchNode, a: Tensor, UPLO: str = "L", compute_v: bool = True) -> tuple[Tensor, Tensor]:
    values, vectors = factors.eigh(n.g, a if UPLO.upper() == "L" else shapes.turned(a))
    return values, vectors if compute_v else nothing(n, 1, a)


# ---- LU -----------------------------------------------------------------------------------------------------------------


def packed_lu(n: TorchNode, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns both triangles of matrices in one, the row that each row was, and the sign of their exchange."""
    t, i, j = matrices(n.g, a)
    packed, order, swaps = parts(factorisation.lu.build(t.op, rows=i, columns=j))
    batch = t.dims[:-2]
    return n.g.made(packed, t.dims), n.g.made(order, [*batch, i]), n.g.made(swaps, batch)


def pick(at: Op, x: Op, axis: Axis) -> Op:
    """Returns the element of x where `at` holds along an axis."""
    return reduce.build(e.where(at, x, 0), kind="add", axes=(axis,))


def exchanged(now: Op, place: Op, axis: Axis, k: Op, at: Op) -> Op:
    """Returns a row of numbers with the k-th one and another one exchanged."""
    first, other = pick(e.equal(place, k), now, axis), pick(e.equal(place, at), now, axis)
    return e.where(e.equal(place, k), other, e.where(e.equal(place, at), first, now))


def pivots_of(n: TorchNode, order: Tensor, count: ExprLike) -> Tensor:
    """Returns the rows, from 1 on, that are exchanged with the first, the second, … to bring rows into an order."""
    t = n.g.full(order, [order.rank - 1])
    i = t.dims[-1]
    first = n.g.full(shapes.sliced(n.g, t, t.rank - 1, 0, 1, count), [t.rank - 1])
    k = n.g.fresh(count)
    first = n.g.renamed(first, [*first.dims[:-1], k])
    place = iota(i, dtypes.int32)

    def turn(now: Op, trip: Op, wanted: Op) -> tuple[Op, Op]:
        at = pick(e.equal(now, wanted), broadcast(place, now.axes), i)
        return exchanged(now, place, i, trip, at), at + 1

    _, found = scan(turn, broadcast(place, t.op.axes), (iota(k, dtypes.int32), e.cast(first.op, dtypes.int32)), k)
    return n.g.made(found, [*t.dims[:-1], k])


def order_of(n: TorchNode, pivots: Tensor, rows: ExprLike) -> Tensor:
    """Returns the row that each row was before these were exchanged with the first, the second, …"""
    t = n.g.full(pivots, [pivots.rank - 1])
    i, k = n.g.fresh(rows), t.dims[-1]
    place = iota(i, dtypes.int32)
    batch = [d for d in t.dims[:-1] if d is not None]

    def turn(now: Op, trip: Op, pivot: Op) -> tuple[Op, None]:
        return broadcast(exchanged(now, place, i, trip, e.cast(pivot, dtypes.int32)), now.axes), None

    rows_of = index_along(n.g, e.cast(t.op, dtypes.int64) - 1, None, i, "the rows, which pivots count from 1", negative=False)
    made, _ = scan(turn, broadcast(place, [*batch, i]), (iota(k, dtypes.int32), rows_of), k)
    return n.g.made(made, [*t.dims[:-1], i])


def permutation(n: TorchNode, order: Tensor, dtype: Any) -> Tensor:
    """Returns matrices that bring rows back from an order."""
    t = n.g.full(order, [order.rank - 1])
    k = t.dims[-1]
    i = n.g.fresh(k.size)
    return n.g.made(e.cast(e.equal(e.cast(t.op, dtypes.int64), iota(i, dtypes.int64)), dtype), [*t.dims[:-1], i, k])


def triangles(n: TorchNode, packed: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the unit lower and the upper triangles of LU factors that stand in one."""
    least = minimum(packed.shape[-2], packed.shape[-1])
    low, i, j = matrices(n.g, shapes.sliced(n.g, packed, packed.rank - 1, 0, 1, least))
    a, b = iota(i), iota(j)
    lower = n.g.made(e.where(e.less(b, a), low.op, e.cast(e.equal(a, b), low.dtype)), low.dims)
    return lower, shapes.triangle(n.g, shapes.sliced(n.g, packed, packed.rank - 2, 0, 1, least), 0, True)


def pivoting(n: TorchNode, pivot: bool) -> None:
    if not pivot:
        raise n.lack("LU factors without pivoting")


@translates("aten.linalg_lu_factor_ex")
def lu_factor(n: TorchNode, a: Tensor, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, ...]:
    pivoting(n, pivot)
    packed, order, _ = packed_lu(n, a)
    return packed, pivots_of(n, order, n.shape_of(1)[-1]), singular(n, packed)


@translates("aten.linalg_lu")
def lu(n: TorchNode, a: Tensor, pivot: bool = True) -> tuple[Tensor, ...]:
    pivoting(n, pivot)
    packed, order, _ = packed_lu(n, a)
    return permutation(n, order, a.dtype), *triangles(n, packed)


@translates("aten.lu_unpack")
def lu_unpack(n: TorchNode, packed: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> tuple[Tensor, ...]:
    low, high = triangles(n, packed) if unpack_data else (nothing(n, 1, packed), nothing(n, 2, packed))
    if not unpack_pivots:
        return nothing(n, 0, packed), low, high
    return permutation(n, order_of(n, pivots, packed.shape[-2]), packed.dtype), low, high


def lu_of_determinant(n: TorchNode, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns what `packed_lu` does, of the transpose where the matrices lie row by row: PyTorch's derivative takes them to be so."""
    return packed_lu(n, shapes.turned(a) if n.node.args[0].meta["val"].is_contiguous() else a)


@translates("aten._linalg_det")
def det(n: TorchNode, a: Tensor) -> tuple[Tensor, ...]:
    packed, order, swaps = lu_of_determinant(n, a)
    diagonal, k, batch = on_diagonal(n, packed)
    found = reduce.build(diagonal, kind="multiply", axes=(k,)) * e.cast(swaps.op, a.dtype)
    return n.g.made(found, batch), packed, pivots_of(n, order, n.shape_of(2)[-1])


@translates("aten._linalg_slogdet")
def slogdet(n: TorchNode, a: Tensor) -> tuple[Tensor, ...]:
    packed, order, swaps = lu_of_determinant(n, a)
    diagonal, k, batch = on_diagonal(n, packed)
    sign = reduce.build(e.sign(diagonal), kind="multiply", axes=(k,)) * e.cast(swaps.op, a.dtype)
    log = reduce.build(e.log(e.absolute(diagonal)), kind="add", axes=(k,))
    return n.g.made(sign, batch), n.g.made(log, batch), packed, pivots_of(n, order, n.shape_of(3)[-1])


# ---- systems ------------------------------------------------------------------------------------------------------------


def solved(n: TorchNode, a: Tensor, b: Tensor, solver: Callable[[Op, Op, Axis, Axis], Op]) -> Tensor:
    """Returns what a solver of ours gives for matrices and the columns of others, whose batches are broadcast."""
    rows, columns = a.shape[-1], b.shape[-1]
    if n.g.same(rows, 0) or n.g.same(columns, 0):
        batch = shapes.broadcast_shape(n.g, a.shape[:-2], b.shape[:-2])
        return n.g.expanded(n.of(0, a.dtype), [*batch, rows, columns])
    return factors.solved(n.g, a, b, solver)


def triangular(n: TorchNode, a: Tensor, b: Tensor, upper: bool, unit: bool = False) -> Tensor:
    return solved(n, a, b, lambda x, y, i, j: linalg.triangular_solve(x, y, i, j, lower=not upper, unit=unit))


@translates("aten.linalg_solve_triangular")
def solve_triangular(n: TorchNode, a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    if left:
        return triangular(n, a, b, upper, unitriangular)
    return shapes.turned(triangular(n, shapes.turned(a), shapes.turned(b), not upper, unitriangular))


@translates("aten.triangular_solve")
def triangular_solve(
    n: TorchNode, b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    x = triangular(n, shapes.turned(a), b, not upper, unitriangular) if transpose else triangular(n, a, b, upper, unitriangular)
    return x, n.g.expanded(a, n.shape_of(1))


@translates("aten._linalg_solve_ex")
def solve_ex(n: TorchNode, a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False) -> tuple[Tensor, ...]:
    vector = b.rank == 1 or (b.rank == a.rank - 1 and all(n.g.same(p, q) for p, q in zip(b.shape, a.shape[:-1], strict=True)))
    right = Tensor(b.op, [*b.dims, None]) if vector else b
    if left:
        x = solved(n, a, right, linalg.solve)
    else:
        x = shapes.turned(solved(n, shapes.turned(a), shapes.turned(right), linalg.solve))
    x = n.g.reshape(x, n.shape_of(0))
    packed, order, _ = packed_lu(n, a)
    return x, n.g.expanded(packed, n.shape_of(1)), pivots_of(n, order, n.shape_of(2)[-1]), singular(n, packed)


@translates("aten.linalg_lu_solve")
def lu_solve(n: TorchNode, packed: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    order = permutation(n, order_of(n, pivots, packed.shape[-2]), packed.dtype)
    if not left:
        b, adjoint = shapes.turned(b), not adjoint
    if adjoint:
        y = triangular(n, shapes.turned(packed), b, False)
        x = matmul(n.g, order, triangular(n, shapes.turned(packed), y, True, True))
    else:
        y = triangular(n, packed, matmul(n.g, shapes.turned(order), b), False, True)
        x = triangular(n, packed, y, True)
    return x if left else shapes.turned(x)


@translates("aten.linalg_inv_ex")
def inverse(n: TorchNode, a: Tensor, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    t, i, j = matrices(n.g, a)
    if n.g.same(i.size, 0):
        return n.g.expanded(n.of(0, n.dtype), n.shape), n.g.expanded(n.of(0, dtypes.int32), n.shape_of(1))
    return n.g.made(linalg.inv(t.op, i, j), [*t.dims[:-2], j, i]), singular(n, packed_lu(n, a)[0])


@translates("aten.cholesky_solve")
def cholesky_solve(n: TorchNode, b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    if upper:
        return triangular(n, factor, triangular(n, shapes.turned(factor), b, False), True)
    return triangular(n, shapes.turned(factor), triangular(n, factor, b, False), True)


@translates("aten.cholesky_inverse")
def cholesky_inverse(n: TorchNode, factor: Tensor, upper: bool = False) -> Tensor:
    return cholesky_solve(n, identity(n, factor), factor, upper)


@translates("aten.linalg_pinv.atol_rtol_tensor")
def pseudo_inverse(n: TorchNode, a: Tensor, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Tensor:
    """By singular values, of which those count as 0 that are at most `atol`, or `rtol` times the largest."""
    if any(n.g.same(s, 0) for s in a.shape[-2:]):
        return n.g.expanded(n.of(0, n.dtype), n.shape)
    t, i, j = matrices(n.g, a)
    k = n.g.fresh(minimum(i.size, j.size))
    batch = t.dims[:-2]
    if hermitian:
        values, u = linalg.eigh(t.op, i, j, inner=k)
        turned = n.g.renamed(n.g.made(u, [*batch, i, k]), [*batch, j, k])
        v, size = turned.op, e.absolute(values)
    else:
        u, values, v = linalg.svd(t.op, i, j, inner=k)
        size = values
    largest = reduce.build(size, kind="max", axes=(k,))
    limit = n.g.made(largest, [*batch, None])
    given = [Tensor(x.op, [*x.dims, None]) if x is not None else None for x in (atol, rtol)]
    if given[1] is not None:
        limit = each(n.g, e.multiply, limit, n.of(given[1], n.dtype))
    else:
        limit = Tensor(limit.op * (float(max(n.g.numbers(a.shape[-2:]))) * float(np.finfo(n.dtype.np).eps)), limit.dims)
        if given[0] is not None:
            limit = each(n.g, lambda x, y: e.where(e.less(0.0, y), 0.0, x), limit, n.of(given[0], n.dtype))
    if given[0] is not None:
        limit = each(n.g, e.maximum, limit, n.of(given[0], n.dtype))
    row = each(
        n.g, lambda s, z, top: e.where(e.less(top, z), 1.0 / s, 0.0), n.g.made(values, [*batch, k]), n.g.made(size, [*batch, k]), limit
    )
    left = each(n.g, e.multiply, n.g.made(v, [*batch, j, k]), Tensor(row.op, [*row.dims[:-1], None, row.dims[-1]]))
    return matmul(n.g, left, n.g.made(u, [*batch, k, i]))


# ---- functions of matrices ----------------------------------------------------------------------------------------------


@translates("aten.linalg_matrix_exp")
def matrix_exponential(n: TorchNode, a: Tensor) -> Tensor:
    """The exponential by Taylor's series of a matrix divided by a power of 2, and then squared as often (Golub and Van Loan, 9.3).

    Each matrix is divided by its own power; the squares go on until the largest is done, and a matrix that is done stays.
    """
    t, i, j = matrices(n.g, n.of(a, dtypes.float64))
    one = identity(n, t)
    norm = reduce.build(reduce.build(e.absolute(t.op), kind="add", axes=(j,)), kind="max", axes=(i,))
    wanted = e.maximum(e.cast(e.floor(e.log(e.maximum(norm, 1e-300)) / 0.6931471805599453), dtypes.int32) + 2, 0)
    small = n.g.made(t.op * e.exp(e.cast(wanted, dtypes.float64) * -0.6931471805599453), t.dims)
    made = Tensor(broadcast(one.op, t.op.axes), t.dims)
    for k in range(TERMS, 0, -1):  # Horner's rule: 1 + a (1 + a / 2 (1 + a / 3 (…
        made = each(n.g, lambda x, y, k=k: x + y / float(k), one, matmul(n.g, small, made))
    most = reduce.build(wanted, kind="max", axes=tuple(wanted.axes)) if wanted.axes else wanted

    def square(done: Op, x: Op) -> tuple[Op, Op]:
        squared = n.g.renamed(matmul(n.g, Tensor(x, t.dims), Tensor(x, t.dims)), t.dims)
        return done + 1, broadcast(e.where(e.less(done, wanted), squared.op, x), t.op.axes)

    _, found = while_loop(lambda done, x: e.less(done, most), square, (e.filled(0, (), dtypes.int32), broadcast(made.op, t.op.axes)))
    return n.give(n.g.made(found, t.dims))


@translates("aten.linalg_householder_product")
def householder_product(n: TorchNode, a: Tensor, tau: Tensor) -> Tensor:
    """The product of reflections 1 - tau v vᵀ: v has a one on the diagonal of the matrix, and below what stands there."""
    t, i, j = matrices(n.g, a)
    return reflected(n, a, tau, identity(n, t), False)


def reflected(n: TorchNode, a: Tensor, tau: Tensor, start: Tensor, transposed: bool) -> Tensor:
    """The product of reflections, the first of which is the last to be taken, with a matrix; or of the transposed product."""
    t, i, _ = matrices(n.g, a)
    k = n.g.fresh(tau.shape[-1])
    columns = n.g.full(shapes.sliced(n.g, t, t.rank - 1, 0, 1, k.size), [t.rank - 1])
    columns = n.g.renamed(columns, [*columns.dims[:-1], k])
    by = n.g.full(tau, [tau.rank - 1])
    by = n.g.renamed(by, [*t.dims[:-2], k]) if tau.rank == t.rank - 1 else by
    v = e.where(e.less(iota(k), iota(i)), columns.op, e.cast(e.equal(iota(k), iota(i)), t.dtype))
    made = n.g.full(start, (start.rank - 2, start.rank - 1))
    c = made.dims[-1] if made.dims[-1] is not i else n.g.fresh(made.shape[-1])
    made = n.g.renamed(made, [*made.dims[:-2], i, c])
    batch = [d for d in t.dims[:-2] if d is not None]
    whole = broadcast(made.op, [*batch, i, c])

    def turn(y: Op, v: Op, by: Op) -> tuple[Op, None]:
        along = reduce.build(v * y, kind="add", axes=(i,))
        return broadcast(y - v * (along * by), y.axes), None

    found, _ = scan(turn, whole, (v, by.op), k, reverse=not transposed)
    return n.g.made(found, [*t.dims[:-2], i, c])


@translates("aten.ormqr")
def times_reflections(n: TorchNode, a: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    if left:
        return reflected(n, a, tau, other, transpose)
    return shapes.turned(reflected(n, a, tau, shapes.turned(other), not transpose))

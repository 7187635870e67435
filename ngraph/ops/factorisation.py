"""Records of matrix factorisations. Two axes of an operand are the rows and columns of matrices, all others count matrices.

`cholesky`, `triangular_solve`, `lu`, `det` and `solve` are composites: large matrices are cut into blocks, whose products are contractions,
down to `cholesky_block`, `triangular_block` and `lu_block`, core ops with generated code. `qr`, `svd` and `eigh` are core ops without
machine code: LAPACK computes them, as a step on the host.

The algorithms are those of Golub and Van Loan, Matrix Computations, 4th edition: 4.2 (Cholesky), 3.1 (triangular systems), 3.4 (LU).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngraph.errors import AxisError, DTypeError
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axis, make_axis, merge
from ngraph.op_graph.expr import ExprLike, Idx, maximum, minimum
from ngraph.op_graph.op import Op, TensorType
from ngraph.op_graph.opdef import Call, OpDef, op
from ngraph.ops.aligned import align, axes_like, wide
from ngraph.ops.elementwise import as_op, cast, equal, filled, less, where
from ngraph.ops.indexing import gather, scatter
from ngraph.ops.linear import contract
from ngraph.ops.rearrange import broadcast, concat_along_axis, iota, reindex, rename_record, slice_along_axis
from ngraph.ops.reduce import reduce
from ngraph.ops.state import parts, together

MIN_BLOCK = 64  # rows: products of smaller blocks take longer than the block's own factorisation
MIN_LU_BLOCK = 128  # rows, of LU: det of 100 to 1,024 rows takes 2 to 30 % less time than with 64, and code of half as many kernels
MAX_BLOCKS = 16  # along one side: each block is a kernel call or more, and more of them take longer to compile


# ---- shared by all -----------------------------------------------------------------------------------------------------


def matrix_axes(name: str, x: TensorType, rows: Any, columns: Any) -> tuple[Any, ...]:
    """Returns the axes that count matrices. Raises AxisError where rows or columns are no two axes of x, DTypeError for non-floats."""
    if rows == columns or rows not in x.axes or columns not in x.axes:
        raise AxisError(
            f"{name}: rows along {rows} and columns along {columns} of a tensor with the axes {list(x.axes)}",
            fix="name two different axes of it",
        )
    if not x.dtype.is_float:
        raise DTypeError(f"{name} of {x.dtype}", fix="cast to a float first: ng.cast(x, 'float64')")
    return tuple([a for a in x.axes if a not in (rows, columns)])


def renamed(x: Op, *pairs: tuple[Axis, Axis]) -> Op:
    """Returns `x` with other axes, pairs of old and new."""
    return rename_record.build(x, to=pairs)


def beside(axis: Axis, suffix: str) -> Axis:
    """Returns another axis of the same length."""
    return make_axis(name=f"{axis.name}{axis.mark}_{suffix}").resized(axis.size)


@dataclass(frozen=True)
class Matrices:
    """A tensor with the two axes that are the rows and columns of its matrices; its other axes count them."""

    x: Op
    rows: Axis
    columns: Axis

    @property
    def T(self) -> Matrices:
        return Matrices(self.x, self.columns, self.rows)

    @property
    def batch(self) -> list[Axis]:
        return [a for a in self.x.axes if a not in (self.rows, self.columns)]

    def along(self, rows: Axis, columns: Axis) -> Op:
        """Returns the tensor with other axes for rows and columns."""
        return renamed(self.x, *[pair for pair in ((self.rows, rows), (self.columns, columns)) if pair[0] != pair[1]])

    def _columns_of(self, y: Matrices) -> Axis:
        """Returns an axis as long as y's columns that neither tensor has."""
        names = (beside(y.columns, str(k)) for k in itertools.count(1))
        return next(a for a in names if a not in self.x.axes and a not in y.x.axes)

    def __matmul__(self, y: Matrices) -> Matrices:
        columns = self._columns_of(y)
        return Matrices(contract(self.x, y.along(self.columns, columns), over=(self.columns,)), self.rows, columns)

    def __add__(self, y: Matrices) -> Matrices:
        return Matrices(self.x + y.along(self.rows, self.columns), self.rows, self.columns)

    def __sub__(self, y: Matrices) -> Matrices:
        return Matrices(self.x - y.along(self.rows, self.columns), self.rows, self.columns)

    def __mul__(self, by: Any) -> Matrices:
        return Matrices(self.x * by, self.rows, self.columns)

    def solve(self, y: Matrices, lower: bool, unit: bool = False) -> Matrices:
        """Returns the X with self X = y; of self one triangle is read."""
        columns = self._columns_of(y)
        right = y.along(self.rows, columns)
        return Matrices(
            triangular_solve(self.x, right, rows=self.rows, columns=self.columns, lower=lower, unit=unit), self.columns, columns
        )

    def triangle(self, lower: bool = True, diagonal: float = 1.0) -> Matrices:
        """Returns one triangle, zeros elsewhere; the diagonal is multiplied by `diagonal`."""
        i, j = iota(self.rows), iota(self.columns)
        kept = where(less(j, i) if lower else less(i, j), self.x, 0.0)
        kept = kept if diagonal == 0 else where(equal(i, j), self.x * diagonal if diagonal != 1 else self.x, kept)
        return Matrices(kept, self.rows, self.columns)

    def unit_lower(self) -> Matrices:
        """Returns the strict lower triangle with ones on the diagonal."""
        on = equal(iota(self.rows), iota(self.columns))
        return Matrices(where(on, 1.0, self.triangle(diagonal=0.0).x), self.rows, self.columns)

    def taken(self, axis: Axis, start: ExprLike, size: ExprLike) -> Matrices:
        """Returns `size` rows or columns from `start` on; both may depend on lengths that a call brings."""
        short = axis.resized(size)
        axes = tuple([short if a == axis else a for a in self.x.axes])
        index = {a: Idx(short) + start if a == axis else Idx(a) for a in self.x.axes}
        return _matrices(reindex(self.x, axes=axes, index=index), self)

    def cut(self, axis: Axis, at: ExprLike) -> tuple[Matrices, Matrices]:
        """Returns the matrices cut in two along their rows or columns: at most `at` of them, and the rest."""
        n = axis_in(self.x, axis).size
        return self.taken(axis, 0, minimum(n, at)), self.taken(axis, minimum(n, at), maximum(n - at, 0))


def _matrices(x: Op, like: Matrices) -> Matrices:
    return Matrices(x, axis_in(x, like.rows), axis_in(x, like.columns))


def in_float32(lower: Callable[..., Op]) -> Callable[..., Op]:
    """Returns a lowering by which 16-bit floats are computed in float32, so that they are rounded once."""

    def lowered(made: Op, *inputs: Op) -> Op:
        dtype = inputs[0].dtype
        if dtype.bits > 16:
            return lower(made, *inputs)
        again = made.opdef.build(*(cast(x, dtypes.float32) for x in inputs), **made.attrs)
        if type(again.type) is TensorType:
            return cast(again, dtype)
        return together.build(*(cast(part, dtype) if part.dtype.is_float else part for part in parts(again)))

    return lowered


def axis_in(x: Op, axis: Axis) -> Axis:
    """Returns an axis with the length that it has in x."""
    return x.axes[x.axes.index(axis)]


def _split(n: Any, *others: Any, least: int = MIN_BLOCK) -> int:
    """Returns where matrices of `n` rows are cut in two; 0 for those that are one block, of `least` rows or fewer, or of unknown size."""
    if any(type(m) is not int for m in (n, *others)):
        return 0
    block = max(least, -(-n // MAX_BLOCKS))
    count = -(-n // block)
    return 0 if count < 2 else (count + 1) // 2 * block


def _cut(x: Op, axis: Axis, at: int) -> tuple[Op, Op]:
    return slice_along_axis(x, axis, slice(0, at)), slice_along_axis(x, axis, slice(at, None))


# ---- Cholesky ----------------------------------------------------------------------------------------------------------


def _cholesky_type(inputs: tuple[TensorType, ...], rows: Any, columns: Any) -> TensorType:
    (x,) = inputs
    matrix_axes("cholesky", x, rows, columns)
    return x


def _cholesky_reference(call: Call, x: np.ndarray) -> np.ndarray:
    axes, (rows, columns) = call.inputs[0].axes, (call.attrs[k] for k in ("rows", "columns"))
    dims = (*[a for a in axes if a not in (rows, columns)], rows, columns)
    a = wide(align(x, axes, dims))
    f = np.zeros_like(a)
    with np.errstate(all="ignore"):
        for k in range(a.shape[-1]):
            rest = a[..., k:, k] - (f[..., k:, :k] * f[..., k : k + 1, :k]).sum(-1)
            f[..., k:, k] = rest / np.sqrt(rest[..., :1])
    return align(f, dims, call.axes).astype(call.dtype.np)


@in_float32
def _cholesky_lower(op: Op, x: Op) -> Op:
    rows, columns = op.attrs["rows"], op.attrs["columns"]
    at = _split(axis_in(x, columns).size, axis_in(x, rows).size)
    if not at:
        return cholesky_block.build(x, rows=rows, columns=columns)
    top, bottom = Matrices(x, rows, columns).cut(rows, at)
    (above, right), (left, corner) = top.cut(columns, at), bottom.cut(columns, at)
    first = Matrices(cholesky.build(above.x, rows=above.rows, columns=above.columns), above.rows, above.columns)
    below = first.solve(left.T, lower=True).T
    rest = corner - below @ below.T
    second = cholesky.build(rest.x, rows=rest.rows, columns=rest.columns)
    upper = concat_along_axis([first.x, filled(0, right.x.axes, x.dtype)], columns)
    return concat_along_axis([upper, concat_along_axis([below.along(left.rows, left.columns), second], columns)], rows)


def _cholesky_gradient(op: Op, dy: Op, x: Op) -> Op:
    """Returns the symmetric gradient (Murray, Differentiation of the Cholesky decomposition, arXiv:1602.07527)."""
    factor = Matrices(op, op.attrs["rows"], op.attrs["columns"])
    inner = (factor.T @ Matrices(dy, factor.rows, factor.columns).triangle()).triangle(diagonal=0.5)
    whole = factor.T.solve(factor.T.solve(inner, lower=False).T, lower=False).T
    return ((whole + whole.T) * 0.5).along(factor.rows, factor.columns)


def positive(s: Any, n: int, *batch: Axis) -> tuple[Op, Axis, Axis]:
    """Returns symmetric matrices whose eigenvalues are above 1, with their two axes."""
    i, j, k = (s.axis(n, name=name) for name in "RCP")
    x = s.x(*batch, i, k)
    return contract(x, renamed(x, (i, j)), over=(k,)) + on_diagonal(1.0 + n, i, j, s.dtype), i, j


def on_diagonal(v: Any, rows: Axis, columns: Axis, dtype: Any) -> Op:
    """Returns matrices with this value on their diagonal."""
    return cast(where(equal(iota(rows), iota(columns)), v, 0.0), dtype)


def _square(s: Any, n: int, *batch: Axis) -> tuple[Op, Axis, Axis]:
    """Returns matrices that are far from singular, with their two axes."""
    i, j = s.axis(n, name="R"), s.axis(n, name="C")
    return s.x(*batch, j, i) + on_diagonal(3.0 + n, i, j, s.dtype), i, j


def _positive_samples(record: Callable[[], OpDef]) -> Callable[[Any], list[Op]]:
    cases: list[tuple[int, str]] = [(1, ""), (3, ""), (4, "N"), (0, "K"), (3, "Z"), (2, "KN")]
    return lambda s: [
        record().build(x, rows=i, columns=j) for n, names in cases for x, i, j in [positive(s, n, *[getattr(s, b) for b in names])]
    ]


cholesky_block: OpDef = op(
    "cholesky_block",
    "The lower triangular L with L Lᵀ = x of symmetric positive definite matrices, of which the lower triangles are read; zeros above; "
    "NaN from the first column on whose pivot is negative.",
    form="(x; rows, columns)",
    type=_cholesky_type,
    reference=_cholesky_reference,
    grad=_cholesky_gradient,
    samples=_positive_samples(lambda: cholesky_block),
    ulp=64,
    error=1e-5,
)

cholesky: OpDef = op(
    "cholesky",
    "As `cholesky_block`, for matrices of any size: products of blocks.",
    form="(x; rows, columns)",
    type=_cholesky_type,
    reference=_cholesky_reference,
    grad=_cholesky_gradient,
    lower=_cholesky_lower,
    samples=_positive_samples(lambda: cholesky),
    ulp=64,
    error=1e-5,
)


# ---- triangular systems ------------------------------------------------------------------------------------------------


def _solve_type(inputs: tuple[TensorType, ...], rows: Any, columns: Any, **_: Any) -> TensorType:
    a, b = inputs
    merge(a.axes, b.axes)
    batch = matrix_axes("triangular_solve", a, rows, columns)
    missing = [axis for axis in (rows, *batch) if axis not in b.axes]
    if missing or columns in b.axes:
        raise AxisError(
            f"triangular_solve: right-hand sides with the axes {list(b.axes)} for matrices with {list(a.axes)}, rows along {rows}",
            fix=f"give them {rows} and all other axes of the matrices but {columns}",
        )
    if a.dtype is not b.dtype:
        raise DTypeError(f"triangular_solve of {a.dtype} and {b.dtype}", fix="cast to one dtype")
    solved = a.axes[a.axes.index(columns)]  # with the length that it has there
    return TensorType(axes_like(b.axes, [solved if axis == rows else axis for axis in b.axes]), b.dtype)


def _solve_prepare(inputs: tuple[Any, ...], attrs: dict[str, Any]) -> tuple[tuple[Op, ...], dict[str, Any]]:
    a, b = (as_op(x) for x in inputs)
    lacking = [axis for axis in a.axes if axis not in b.axes and axis != attrs["columns"]]
    return (a, broadcast(b, [*lacking, *b.axes]) if lacking else b), {"lower": True, "unit": False, **attrs}


def _solved(call: Call, a: np.ndarray, b: np.ndarray, rows: Any, columns: Any, solver: Callable[..., np.ndarray]) -> np.ndarray:
    """Returns solver(matrices [..., rows, columns], sides [..., rows, one column for each further element of b]) along the op's axes."""
    left, right = (t.axes for t in call.inputs)
    batch = [axis for axis in left if axis not in (rows, columns)]
    others = [axis for axis in right if axis not in (*batch, rows)]
    sides = (*call.shape((*batch, rows)), int(np.prod(call.shape(others), dtype=int)))
    x = solver(wide(align(a, left, (*batch, rows, columns))), wide(align(b, right, (*batch, rows, *others))).reshape(sides))
    x = x.reshape(call.shape((*batch, columns, *others))).astype(call.dtype.np)
    return align(x, (*batch, columns, *others), call.axes)


def _solve_reference(call: Call, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    rows, columns, lower, unit = (call.attrs[k] for k in ("rows", "columns", "lower", "unit"))

    def substituted(m: np.ndarray, sides: np.ndarray) -> np.ndarray:
        x, n = sides.copy(), call.length(rows)
        with np.errstate(all="ignore"):
            for k in range(n) if lower else reversed(range(n)):
                done = slice(0, k) if lower else slice(k + 1, None)
                x[..., k, :] -= (m[..., k, done, None] * x[..., done, :]).sum(-2)
                if not unit:
                    x[..., k, :] /= m[..., k, k, None]
        return x

    return _solved(call, a, b, rows, columns, substituted)


@in_float32
def _solve_lower(op: Op, a: Op, b: Op) -> Op:
    at = _split(axis_in(a, op.attrs["rows"]).size)
    if not at:
        return triangular_block.build(a, b, **op.attrs)
    rows, columns, lower = (op.attrs[k] for k in ("rows", "columns", "lower"))
    top, bottom = Matrices(a, rows, columns).cut(rows, at)
    (first, above), (below, last) = top.cut(columns, at), bottom.cut(columns, at)
    upper, under = _cut(b, rows, at)

    def solved(m: Matrices, right: Op) -> Op:
        return triangular_solve.build(m.x, right, **{**op.attrs, "rows": m.rows, "columns": m.columns})

    if lower:
        x = solved(first, upper)
        y = solved(last, under - contract(below.x, x, over=(below.columns,)))
    else:
        y = solved(last, under)
        x = solved(first, upper - contract(above.x, y, over=(above.columns,)))
    return concat_along_axis([x, y], columns)


def _solve_gradient(op: Op, dy: Op, a: Op, b: Op) -> tuple[Op, Op]:
    i, j, lower, unit = (op.attrs[k] for k in ("rows", "columns", "lower", "unit"))
    db = triangular_solve(a, dy, rows=j, columns=i, lower=not lower, unit=unit)
    da = contract(-db, op, over=tuple([axis for axis in op.axes if axis not in a.axes]))
    return Matrices(da, i, j).triangle(lower, 0.0 if unit else 1.0).x, db


def _solve_samples(record: Callable[[], OpDef]) -> Callable[[Any], list[Op]]:
    def samples(s: Any) -> list[Op]:
        made = []
        for n, batch, more in (
            (3, (), ()),
            (4, (s.N,), (s.K,)),
            (1, (), (s.J,)),
            (0, (s.K,), ()),
            (2, (s.Z,), (s.J,)),
            (3, (), (s.J, s.K)),
        ):
            for lower in (True, False):
                a, i, j = _square(s, n, *batch)
                made.append(record().build(a, s.x(*more, i, *batch), rows=i, columns=j, lower=lower, unit=False))
        a, i, j = _square(s, 3)
        return [*made, record().build(a * 0.2, s.x(i, s.N), rows=i, columns=j, lower=True, unit=True)]

    return samples


triangular_block: OpDef = op(
    "triangular_block",
    "The x with Σ over `columns` of a·x = b, where a is triangular along `rows` and `columns` (`lower` or upper; `unit`: ones on its "
    "diagonal, which is not read) and b has `rows`: x has `columns` in their place. Axes of b that a lacks are further right-hand sides.",
    form="(a, b; rows, columns, lower, unit)",
    type=_solve_type,
    reference=_solve_reference,
    grad=_solve_gradient,
    samples=_solve_samples(lambda: triangular_block),
    ulp=64,
    error=1e-5,
)

triangular_solve: OpDef = op(
    "triangular_solve",
    "As `triangular_block`, for matrices of any size: products of blocks.",
    form="(a, b; rows, columns, lower, unit)",
    type=_solve_type,
    prepare=_solve_prepare,
    reference=_solve_reference,
    grad=_solve_gradient,
    lower=_solve_lower,
    samples=_solve_samples(lambda: triangular_solve),
    ulp=64,
    error=1e-5,
)


# ---- LU ----------------------------------------------------------------------------------------------------------------


def _lu_type(inputs: tuple[TensorType, ...], rows: Any, columns: Any) -> tuple[TensorType, ...]:
    (x,) = inputs
    batch = matrix_axes("lu", x, rows, columns)
    return (
        x,
        TensorType(axes_like(x.axes, (*batch, x.axes[x.axes.index(rows)])), dtypes.int32),
        TensorType(axes_like(x.axes, batch), dtypes.int32),
    )


def _lu_reference(call: Call, x: np.ndarray) -> tuple[np.ndarray, ...]:
    axes, (rows, columns) = call.inputs[0].axes, (call.attrs[k] for k in ("rows", "columns"))
    batch = [a for a in axes if a not in (rows, columns)]
    packed = wide(align(x, axes, (*batch, rows, columns))).copy()
    *counts, m, n = packed.shape
    order = np.broadcast_to(np.arange(m, dtype=np.int32), (*counts, m)).copy()
    sign = np.ones(counts, np.int32)
    with np.errstate(all="ignore"):
        for each in np.ndindex(*counts):
            a = packed[each]
            for k in range(min(m, n)):
                p = k + int(np.argmax(np.abs(a[k:, k])))
                if p != k:
                    a[[k, p]], order[(*each, [k, p])] = a[[p, k]], order[(*each, [p, k])]
                    sign[each] *= -1
                a[k + 1 :, k] /= a[k, k] or 1  # as LAPACK, which leaves a column without a pivot
                a[k + 1 :, k + 1 :] -= a[k + 1 :, k, None] * a[k, k + 1 :]
    last = call.results[1].axes
    packed = packed.astype(call.dtype.np)
    return align(packed, (*batch, rows, columns), call.axes), align(order, (*batch, rows), last), align(sign, batch, call.results[2].axes)


def rows_taken(x: Op, order: Op, rows: Axis) -> Op:
    """Returns x with its rows in another order: row k of the result is row order[k] of x."""
    return gather.build(x, order, axes=(rows,), mode="clip")


@in_float32
def _lu_lower(op: Op, x: Op) -> Op:
    rows, columns = op.attrs["rows"], op.attrs["columns"]
    m, n = axis_in(x, rows).size, axis_in(x, columns).size
    at = 0
    if isinstance(m, int) and isinstance(n, int):  # a wide matrix of few rows is cut behind its square
        at = _split(min(m, n), least=MIN_LU_BLOCK) or (m if n > max(m, MIN_LU_BLOCK) else 0)
    if not at:
        return lu_block.build(x, rows=rows, columns=columns)
    left, right = Matrices(x, rows, columns).cut(columns, at)
    packed, order, sign = parts(lu.build(left.x, rows=left.rows, columns=left.columns))
    (corner, below), (above, rest) = (
        _matrices(packed, left).cut(rows, at),
        _matrices(rows_taken(right.x, order, rows), right).cut(rows, at),
    )
    above = _matrices(corner.solve(above, lower=True, unit=True).along(above.rows, above.columns), above)
    if at == m:
        return together.build(concat_along_axis([corner.x, above.x], columns), order, sign)
    rest = rest - below @ above
    packed, then, more = parts(lu.build(rest.x, rows=rest.rows, columns=rest.columns))
    first, last = _cut(order, rows, at)
    under = concat_along_axis([rows_taken(below.x, then, below.rows), packed], columns)
    order = concat_along_axis([first, rows_taken(last, then, below.rows)], rows)
    return together.build(concat_along_axis([concat_along_axis([corner.x, above.x], columns), under], rows), order, sign * more)


def _lu_gradient(op: Op, dys: Sequence[Op | None], x: Op) -> tuple[Op | None]:
    """Returns the gradient of the packed factors (Seeger and others, Auto-differentiating linear algebra, arXiv:1710.08717)."""
    if dys[0] is None:
        return (None,)
    rows, columns = op.attrs["rows"], op.attrs["columns"]
    y, order, _ = parts(op)
    packed, dy = (Matrices(t, rows, columns) for t in (y, dys[0]))
    m, n = axis_in(x, rows).size, axis_in(x, columns).size
    tall, wide = (minimum(m, n) != size for size in (m, n))  # where only a call says which, both, and one of the two parts is empty
    (packed, below), (dy, dbelow) = packed.cut(rows, n), dy.cut(rows, n)
    (packed, right), (dy, dright) = packed.cut(columns, m), dy.cut(columns, m)
    below, dbelow = below.cut(columns, m)[0], dbelow.cut(columns, m)[0]
    under = packed.solve(dbelow.T, lower=False).T  # the rows below are those of A times the inverse of U
    after = packed.T.solve(dright, lower=False, unit=True)  # the columns on the right are the inverse of L times those of A
    dl, du = dy - after @ right.T if wide else dy, dy - below.T @ under if tall else dy
    whole = _square_lu_gradient(packed, dl, du).along(packed.rows, packed.columns)
    if tall:
        whole = concat_along_axis([whole, under.along(below.rows, packed.columns)], rows)
    if wide:
        beyond = after.along(packed.rows, right.columns)
        if tall:
            none = filled(0, (*packed.batch, below.rows, right.columns), x.dtype)
            beyond = concat_along_axis([beyond, none], rows)
        whole = concat_along_axis([whole, beyond], columns)
    return (scatter.build(filled(0, x.axes, x.dtype), order, whole, axes=(rows,), combine="add", mode="clip"),)


def _square_lu_gradient(packed: Matrices, dl: Matrices, du: Matrices) -> Matrices:
    """Returns the gradient of the square matrix in front of the factorisation, from those of both factors."""
    left = (packed.unit_lower().T @ dl.triangle(diagonal=0.0)).triangle(diagonal=0.0)
    right = (du.triangle(lower=False) @ packed.triangle(lower=False).T).triangle(lower=False)
    inner = packed.T.solve(left + right, lower=False, unit=True)
    return packed.solve(inner.T, lower=False).T


def _lu_samples(record: Callable[[], OpDef]) -> Callable[[Any], list[Op]]:
    def samples(s: Any) -> list[Op]:
        made = []
        for m, n, batch in ((3, 3, ()), (4, 2, (s.N,)), (2, 4, (s.K,)), (1, 1, ()), (0, 2, ()), (3, 3, (s.Z,)), (5, 5, (s.K, s.N))):
            i, j = s.axis(m, name="R"), s.axis(n, name="C")
            made.append(parts(record().build(s.x(j, *batch, i), rows=i, columns=j)))
        return [part for each in made for part in each]

    return samples


lu_block: OpDef = op(
    "lu_block",
    "Factors of x with its rows in another order, by partial pivoting: L below the diagonal (ones on it are left out) and U above, in one "
    "tensor; for each row the row of x that it is; and the sign of that permutation.",
    form="(x; rows, columns) → x's, int32, int32",
    type=_lu_type,
    reference=_lu_reference,
    grad=_lu_gradient,
    samples=_lu_samples(lambda: lu_block),
    ulp=64,
    error=1e-5,
)

lu: OpDef = op(
    "lu",
    "As `lu_block`, for matrices of any size: products of blocks.",
    form="(x; rows, columns) → x's, int32, int32",
    type=_lu_type,
    reference=_lu_reference,
    grad=_lu_gradient,
    lower=_lu_lower,
    samples=_lu_samples(lambda: lu),
    ulp=64,
    error=1e-5,
)


def _det_type(inputs: tuple[TensorType, ...], rows: Any, columns: Any) -> TensorType:
    (x,) = inputs
    return TensorType(axes_like(x.axes, matrix_axes("det", x, rows, columns)), x.dtype)


def _det_reference(call: Call, x: np.ndarray) -> np.ndarray:
    axes, last = call.inputs[0].axes, tuple([call.attrs[k] for k in ("rows", "columns")])
    batch = [a for a in axes if a not in last]
    return align(np.asarray(np.linalg.det(wide(align(x, axes, (*batch, *last))))), batch, call.axes).astype(call.dtype.np)


def diagonal_of_lu(x: Op, rows: Axis, columns: Axis) -> tuple[Op, Op]:
    """Returns the diagonal of U, along `rows`, and the sign of the exchange of rows."""
    packed, _, swaps = parts(lu.build(x, rows=rows, columns=columns))
    return gather.build(packed, iota(rows), axes=(columns,), mode="clip"), cast(swaps, x.dtype)


@in_float32
def _det_lower(op: Op, x: Op) -> Op:
    rows = axis_in(x, op.attrs["rows"])
    diagonal, swaps = diagonal_of_lu(x, rows, op.attrs["columns"])
    return reduce.build(diagonal, kind="multiply", axes=(rows,)) * swaps


def _det_samples(s: Any) -> list[Op]:
    made = []
    for n, batch in ((3, ()), (2, (s.N,)), (1, (s.K,)), (0, (s.N,)), (3, (s.Z,)), (4, (s.K, s.N))):
        i, j = s.axis(n, name="R"), s.axis(n, name="C")
        made.append(det.build(s.x(j, *batch, i) + on_diagonal(2.0, i, j, s.dtype), rows=i, columns=j))
    return made


det: OpDef = op(
    "det",
    "The determinants of square matrices: the product of U's diagonal, by the sign of the exchange of rows.",
    form="(x; rows, columns)",
    type=_det_type,
    reference=_det_reference,
    lower=_det_lower,
    samples=_det_samples,
    ulp=64,
    error=1e-5,
)


# ---- systems -----------------------------------------------------------------------------------------------------------


def _system_type(inputs: tuple[TensorType, ...], rows: Any, columns: Any, transposed: bool) -> TensorType:
    return _solve_type(inputs, *((columns, rows) if transposed else (rows, columns)))


def _system_reference(call: Call, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    rows, columns = (call.attrs[k] for k in (("columns", "rows") if call.attrs["transposed"] else ("rows", "columns")))
    return _solved(call, a, b, rows, columns, np.linalg.solve)


@in_float32
def _system_lower(op: Op, a: Op, b: Op) -> Op:
    rows, columns = op.attrs["rows"], op.attrs["columns"]
    packed, order, _ = parts(lu.build(a, rows=rows, columns=columns))
    i, j = rows, columns  # both systems read the same matrices, so that between them the solutions' axis is renamed
    if not op.attrs["transposed"]:
        y = triangular_solve(packed, rows_taken(b, order, rows), rows=i, columns=j, unit=True)
        return triangular_solve(packed, renamed(y, (axis_in(y, j), i)), rows=i, columns=j, lower=False)
    y = triangular_solve(packed, b, rows=j, columns=i)
    x = triangular_solve(packed, renamed(y, (axis_in(y, i), j)), rows=j, columns=i, lower=False, unit=True)
    return scatter.build(filled(0, x.axes, x.dtype), order, x, axes=(rows,), combine="set", mode="clip")


def _system_gradient(op: Op, dy: Op, a: Op, b: Op) -> tuple[Op, Op]:
    db = solve.build(a, dy, **{**op.attrs, "transposed": not op.attrs["transposed"]})  # shares the factors of the forward pass
    return contract(-db, op, over=tuple([axis for axis in op.axes if axis not in a.axes])), db


def _system_samples(s: Any) -> list[Op]:
    made = []
    for n, batch, more in ((3, (), ()), (4, (s.N,), (s.K,)), (1, (), (s.J,)), (2, (s.Z,), (s.J,)), (3, (), (s.J, s.K))):
        for transposed in (False, True):
            a, i, j = _square(s, n, *batch)
            made.append(solve.build(a, s.x(*more, j if transposed else i, *batch), rows=i, columns=j, transposed=transposed))
    return made


solve: OpDef = op(
    "solve",
    "The x with Σ over `columns` of a·x = b, of square matrices; `transposed`: with Σ over `rows` of a·x = b, which has `columns`.",
    form="(a, b; rows, columns, transposed)",
    type=_system_type,
    reference=_system_reference,
    grad=_system_gradient,
    lower=_system_lower,
    samples=_system_samples,
    ulp=64,
    error=1e-5,
)

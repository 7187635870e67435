"""Linear algebra over named axes, `ng.linalg`: two axes of a tensor are the rows and columns of matrices, all others count them.

    >>> import ngraph as ng
    >>> a = ng.placeholder("B=2 i=3 j=3")
    >>> ng.linalg.cholesky(a, "i", "j"), ng.linalg.inv(a, "i", "j"), ng.linalg.det(a, "i", "j")
    (<cholesky: float32[B=2, i=3, j=3]>, <inv: float32[B=2, j=3, i=3]>, <det: float32[B=2]>)

A matrix maps its columns to its rows: Σ over j of a[i, j] x[j] = b[i]. So a solution has the columns where the right-hand side had the
rows, and an inverse has both axes in each other's place. Integers are computed as float32, 16-bit floats in float32.

Cholesky factors, LU factors and triangular systems are generated code; `qr`, `svd` and `eigh` are steps on the host, by LAPACK. All have
derivatives, with PyTorch's conventions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ngraph.errors import ArgumentError, AxisError
from ngraph.op_graph import misspelt
from ngraph.op_graph.arguments import checked
from ngraph.op_graph.axes import Axis, make_axis
from ngraph.op_graph.checks import checked_lengths, distance
from ngraph.op_graph.expr import Idx, minimum
from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import find_axis, show_input
from ngraph.ops import factorisation, spectral
from ngraph.ops.elementwise import absolute, as_op, cast, common, equal, log, sign, sqrt
from ngraph.ops.factorisation import Matrices, beside, renamed
from ngraph.ops.linear import contract
from ngraph.ops.moving import read
from ngraph.ops.rearrange import broadcast, iota
from ngraph.ops.reduce import min, prod, sum
from ngraph.ops.state import parts
from ngraph.ops.statistics import largest_size

__all__ = (
    "cholesky",
    "det",
    "eigh",
    "inv",
    "lstsq",
    "lu",
    "matrix_norm",
    "matrix_power",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "triangular_solve",
)


def __dir__() -> list[str]:
    return list(__all__)


if not TYPE_CHECKING:  # type checkers report unknown names themselves

    def __getattr__(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        raise misspelt.no_attribute("ngraph.linalg", name, misspelt.foreign().OF_LINALG, __all__, "ng.linalg")


def _float(x: Op) -> Op:
    return x if x.dtype.is_float else cast(x, "float32")


def _matrices(x: Any, rows: Any, columns: Any, name: str, square: bool = False) -> Matrices:
    """Returns a tensor of floats with the axes of its matrices. Raises AxisError for axes that it lacks, or unequal lengths."""
    x = _float(as_op(x))
    made = Matrices(x, find_axis(x, rows, name), find_axis(x, columns, name))
    if made.rows == made.columns:
        raise AxisError(
            f"{name}({x.label}): {made.rows.label} is both rows and columns", details=(show_input(x),), fix="name two different axes"
        )
    m, n = made.rows.size, made.columns.size
    if square and type(m) is type(n) is int and m != n:
        raise AxisError(
            f"{name}({x.label}): matrices of {m} rows ({made.rows!r}) and {n} columns ({made.columns!r}) are not square",
            details=(show_input(x),),
            fix="use ng.linalg.lstsq or pinv, or name two axes of one length",
        )
    if square and m != n and not (type(m) is type(n) is int):
        what = f"axis {made.rows.label} of square matrices with columns {made.columns.label}"
        first = checked_lengths(made.rows, distance(m, n), what, "give matrices with as many rows as columns")
        made = Matrices(read(x, x.axes, {made.rows: Idx(made.rows) + first}), made.rows, made.columns)
    return made


def _inner(x: Matrices, axis: Axis | str | None, size: Any) -> Axis:
    """Returns the new axis between two factors."""
    if isinstance(axis, Axis) and (axis.length is None or axis.length == size):
        return axis if axis.length is not None else axis.resized(size)
    if isinstance(axis, Axis):
        raise AxisError(f"the axis between the factors has length {axis.length}, and {size} is needed", fix=f"ng.make_axis({size}, ...)")
    return make_axis(name=axis or f"{x.rows.short_name}{x.columns.short_name}").resized(size)


def _eye(rows: Axis, columns: Axis, dtype: Any) -> Op:
    return cast(equal(iota(rows), iota(columns)), dtype)


@checked
def cholesky(x: Any, rows: Any, columns: Any) -> Op:
    """Returns the lower triangular L with L Lᵀ = x of symmetric positive definite matrices, with the axes of x; zeros above.

    rows, columns: axes of x, or names; its others count matrices. The lower triangle of x is read. A matrix that is not positive
    definite gives NaN from the first column on that shows it. The gradient is symmetric. Raises AxisError for unequal lengths.
    Source: Golub and Van Loan, Matrix Computations, 4.2.

    >>> a = ng.constant([[4.0, 2.0], [2.0, 5.0]], ng.axes("i=2 j=2"))
    >>> ng.linalg.cholesky(a, "i", "j")
    <cholesky: float64[i=2, j=2]>
    """
    m = _matrices(x, rows, columns, "linalg.cholesky", square=True)
    return factorisation.cholesky.build(m.x, rows=m.rows, columns=m.columns)


@checked
def triangular_solve(a: Any, b: Any, rows: Any, columns: Any, lower: bool = True, unit: bool = False) -> Op:
    """Returns the x with Σ over `columns` of a·x = b for triangular a: b's axes, with `columns` in place of `rows`.

    Only one triangle of `a` is read, the lower one unless `lower` is false; with `unit` ones stand for its diagonal. Axes of b that a
    lacks are further right-hand sides. A zero on the diagonal gives infinities or NaN. Raises AxisError where b lacks `rows`.

    >>> a, b = ng.placeholder("i=3 j=3"), ng.placeholder("i=3 k=2")
    >>> ng.linalg.triangular_solve(a, b, "i", "j")
    <triangular_solve: float32[j=3, k=2]>
    """
    m, right = _system(a, b, rows, columns, "linalg.triangular_solve")
    return factorisation.triangular_solve(m.x, right, rows=m.rows, columns=m.columns, lower=bool(lower), unit=bool(unit))


def _system(a: Any, b: Any, rows: Any, columns: Any, name: str, square: bool = True) -> tuple[Matrices, Op]:
    """Returns the matrices and right-hand sides of a system. Raises AxisError that shows both where they do not fit."""
    m, right = _matrices(a, rows, columns, name, square), _float(as_op(b))
    x, right = common((m.x, right))
    if m.rows not in right.axes or m.columns in right.axes:
        raise AxisError(
            f"{name}({x.label}, {right.label}): right-hand sides have the matrices' rows, {m.rows!r}, and not their columns, {m.columns!r}",
            details=(show_input(x), show_input(right)),
            fix="give them the axis of the rows, or exchange rows and columns",
        )
    return Matrices(x, m.rows, m.columns), right


@checked
def lu(x: Any, rows: Any, columns: Any, inner: Any = None) -> tuple[Op, Op, Op]:
    """Returns `(order, l, u)` with l u = x taken in `order`: the row of x for each row (int32), unit lower and upper triangles.

    l has `rows` and `inner`, u `inner` and `columns`; inner: a new axis or its name, by default called after both. By partial pivoting.

    >>> [op.axes for op in ng.linalg.lu(ng.placeholder("i=3 j=3"), "i", "j", "k")]
    [Axes(i=3), Axes(i=3, k=3), Axes(k=3, j=3)]
    """
    m = _matrices(x, rows, columns, "linalg.lu")
    packed, order, _ = parts(factorisation.lu.build(m.x, rows=m.rows, columns=m.columns))
    size = minimum(m.rows.size, m.columns.size)
    k = _inner(m, inner, size)
    factors = Matrices(packed, m.rows, m.columns)
    lower, upper = (factors if size == a.size else factors.taken(a, 0, size) for a in (m.columns, m.rows))
    return order, lower.unit_lower().along(m.rows, k), upper.triangle(lower=False).along(k, m.columns)


@checked
def solve(a: Any, b: Any, rows: Any, columns: Any) -> Op:
    """Returns the x with Σ over `columns` of a·x = b: b's axes, with `columns` in place of `rows`.

    a: square matrices, whose other axes count them. Axes of b that a lacks are further right-hand sides. By LU factors with partial
    pivoting; a singular matrix gives infinities or NaN. Raises AxisError where b lacks `rows`.

    >>> a, b = ng.placeholder("i=3 j=3"), ng.placeholder("i=3")
    >>> ng.linalg.solve(a, b, "i", "j")
    <solve: float32[j=3]>
    """
    m, right = _system(a, b, rows, columns, "linalg.solve")
    lacking = [axis for axis in m.batch if axis not in right.axes]
    right = broadcast(right, [*lacking, *right.axes]) if lacking else right
    return factorisation.solve.build(m.x, right, rows=m.rows, columns=m.columns, transposed=False)


@checked
def inv(x: Any, rows: Any, columns: Any) -> Op:
    """Returns the inverses of square matrices: Σ over `rows` of inverse[j, i] x[i, j'] is 1 where j is j'. `solve` is more exact.

    >>> a = ng.constant([[4.0, 2.0], [2.0, 3.0]], "i=2 j=2")
    >>> ng.function(ng.linalg.inv(a, "i", "j"))()
    ComputedArray([[ 0.375, -0.25 ],
                   [-0.25 ,  0.5  ]])
    """
    m = _matrices(x, rows, columns, "linalg.inv", square=True)
    other = beside(m.rows, "inv")
    return renamed(solve(m.x, _eye(m.rows, other, m.x.dtype), m.rows, m.columns), (other, m.rows))


@checked
def det(x: Any, rows: Any, columns: Any) -> Op:
    """Returns the determinants of square matrices: x's axes but `rows` and `columns`. The gradient of a singular matrix is not finite.

    >>> a = ng.constant([[4.0, 2.0], [2.0, 3.0]], "i=2 j=2")
    >>> float(ng.function(ng.linalg.det(a, "i", "j"))())
    8.0
    """
    m = _matrices(x, rows, columns, "linalg.det", square=True)
    return factorisation.det.build(m.x, rows=m.rows, columns=m.columns)


@checked
def slogdet(x: Any, rows: Any, columns: Any) -> tuple[Op, Op]:
    """Returns the signs of the determinants of square matrices, and the logarithms of their absolute values, which do not overflow.

    >>> a = ng.constant([[4.0, 2.0], [2.0, 3.0]], "i=2 j=2")
    >>> [round(float(x), 3) for x in ng.function(list(ng.linalg.slogdet(a, "i", "j")))()]
    [1.0, 2.079]
    """
    m = _matrices(x, rows, columns, "linalg.slogdet", square=True)
    diagonal, swaps = factorisation.diagonal_of_lu(m.x, m.rows, m.columns)
    return prod(sign(diagonal), reduction_axes=[m.rows]) * swaps, sum(log(absolute(diagonal)), reduction_axes=[m.rows])


@checked
def qr(x: Any, rows: Any, columns: Any, inner: Any = None) -> tuple[Op, Op]:
    """Returns `(q, r)`: orthogonal columns (`rows`, `inner`) and an upper triangle (`inner`, `columns`) whose product is x.

    inner: a new axis or its name, as long as the shorter of both. Signs are LAPACK's, which computes it on the host.

    >>> [op.axes for op in ng.linalg.qr(ng.placeholder("i=5 j=3"), "i", "j", "k")]
    [Axes(i=5, k=3), Axes(k=3, j=3)]
    """
    m = _matrices(x, rows, columns, "linalg.qr")
    q, r = parts(spectral.qr.build(m.x, rows=m.rows, columns=m.columns, inner=_inner(m, inner, minimum(m.rows.size, m.columns.size))))
    return q, r


@checked
def svd(x: Any, rows: Any, columns: Any, inner: Any = None) -> tuple[Op, Op, Op]:
    """Returns `(u, s, v)` with Σ over `inner` of u[i, k] s[k] v[j, k] = x[i, j]; singular values from the largest to the smallest.

    u has `rows` and `inner`, v has `columns` and `inner`, so v is what others call Vᵀ, by names alone. inner: a new axis or its name, as
    long as the shorter of both. LAPACK computes it on the host. Gradients of u and v, and second ones, are infinite where singular values
    are equal.

    >>> [op.axes for op in ng.linalg.svd(ng.placeholder("i=5 j=3"), "i", "j", "k")]
    [Axes(i=5, k=3), Axes(k=3), Axes(j=3, k=3)]
    """
    m = _matrices(x, rows, columns, "linalg.svd")
    inner = _inner(m, inner, minimum(m.rows.size, m.columns.size))
    u, s, v = parts(spectral.svd.build(m.x, rows=m.rows, columns=m.columns, inner=inner))
    return u, s, v


@checked
def eigh(x: Any, rows: Any, columns: Any, inner: Any = None) -> tuple[Op, Op]:
    """Returns `(values, vectors)` of symmetric matrices: eigenvalues (`inner`), the smallest first, and vectors (`rows`, `inner`).

    The lower triangle is read. inner: a new axis or its name. LAPACK computes it on the host. Gradients of vectors, and second ones, are
    infinite where eigenvalues are equal.

    >>> values, vectors = ng.linalg.eigh(ng.placeholder("i=3 j=3"), "i", "j", "e")
    >>> values.axes, vectors.axes
    (Axes(e=3), Axes(i=3, e=3))
    """
    m = _matrices(x, rows, columns, "linalg.eigh", square=True)
    w, v = parts(spectral.eigh.build(m.x, rows=m.rows, columns=m.columns, inner=_inner(m, inner, m.rows.size)))
    return w, v


@checked
def pinv(x: Any, rows: Any, columns: Any, rcond: float | None = None) -> Op:
    """Returns the pseudo-inverses of matrices, which map `rows` to `columns`: both axes stand in each other's place.

    rcond: singular values below it times the largest count as 0; by default the longer side times the dtype's epsilon.

    >>> ng.linalg.pinv(ng.placeholder("i=5 j=3"), "i", "j").axes
    Axes(j=3, i=5)
    """
    m = _matrices(x, rows, columns, "linalg.pinv")
    return spectral.pinv.build(m.x, rows=m.rows, columns=m.columns, rcond=None if rcond is None else float(rcond))


@checked
def lstsq(a: Any, b: Any, rows: Any, columns: Any) -> Op:
    """Returns the x for which the sum of squares of a·x - b is least; of several the shortest. Axes as in `solve`; a has full rank.

    By a QR factorisation; by the pseudo-inverse where only a call says whether there are more rows or more columns.

    >>> ng.linalg.lstsq(ng.placeholder("i=5 j=3"), ng.placeholder("i=5"), "i", "j").axes
    Axes(j=3)
    """
    m, right = _system(a, b, rows, columns, "linalg.lstsq", square=False)
    short = minimum(m.rows.size, m.columns.size)
    if short not in (m.rows.size, m.columns.size):
        return contract(spectral.pinv.build(m.x, rows=m.rows, columns=m.columns, rcond=None), right, over=(m.rows,))
    tall = m.columns.size == short
    i, j = (m.rows, m.columns) if tall else (m.columns, m.rows)
    k = beside(j, "q")
    q, r = parts(spectral.qr.build(m.x, rows=i, columns=j, inner=k))
    if tall:
        return factorisation.triangular_solve(r, contract(q, right, over=(i,)), rows=k, columns=j, lower=False)
    return contract(q, factorisation.triangular_solve(r, right, rows=j, columns=k, lower=True), over=(k,))


@checked
def matrix_power(x: Any, n: int, rows: Any, columns: Any) -> Op:
    """Returns the n-th power of square matrices, by repeated squaring; of the inverse for n below 0, and the identity for 0.

    The result has x's axes, `rows` and `columns` as x has them, of the inverse, too.

    >>> a = ng.constant([[1.0, 1.0], [0.0, 1.0]], "i=2 j=2")
    >>> ng.function(ng.linalg.matrix_power(a, 3, "i", "j"))()
    ComputedArray([[1., 3.],
                   [0., 1.]])
    """
    m = _matrices(x, rows, columns, "linalg.matrix_power", square=True)
    if not isinstance(n, int) or isinstance(n, bool):
        raise ArgumentError(f"linalg.matrix_power: {n!r} is not a whole number", fix="use ng.linalg.eigh for other powers")
    if n == 0:
        return broadcast(_eye(m.rows, m.columns, m.x.dtype), m.x.axes)
    made, square = None, m
    if n < 0:
        square = Matrices(inv(m.x, m.rows, m.columns), m.columns, m.rows)
    for bit in bin(abs(n))[:1:-1]:
        if bit == "1":
            made = square if made is None else made @ square
        square = square @ square
    assert made is not None
    return made.along(m.rows, m.columns)


@checked
def matrix_norm(x: Any, rows: Any, columns: Any, ord: Any = "fro") -> Op:
    """Returns the norms of matrices: `fro`, `nuc`, 1 and inf (the largest sum of a column, a row), 2, or -1, -2, -inf (the smallest).
    Those of matrices without elements are 0, but infinity for -1, -2 and -inf.

    >>> a = ng.constant([[3.0, 0.0], [0.0, 4.0]], "i=2 j=2")
    >>> float(ng.function(ng.linalg.matrix_norm(a, "i", "j"))())
    5.0
    """
    m = _matrices(x, rows, columns, "linalg.matrix_norm")
    if ord == "fro":
        return sqrt(sum(m.x * m.x, reduction_axes=[m.rows, m.columns]))
    if ord in (1, -1, float("inf"), -float("inf")):
        first, second = (m.rows, m.columns) if abs(ord) == 1 else (m.columns, m.rows)
        sums = sum(absolute(m.x), reduction_axes=[first])
        return largest_size(sums, [second]) if ord > 0 else min(sums, reduction_axes=[second])
    if ord in ("nuc", 2, -2):
        _, s, _ = svd(m.x, m.rows, m.columns)
        inner = [a for a in s.axes if a not in m.x.axes]
        return largest_size(s, inner) if ord == 2 else {"nuc": sum, -2: min}[ord](s, reduction_axes=inner)
    raise ArgumentError(f"linalg.matrix_norm: there is no norm {ord!r}", fix="one of 'fro', 'nuc', 1, -1, 2, -2, inf, -inf")

"""Records of what a library computes, as steps on the host: the factorisations `qr`, `svd` and `eigh`, and the Fourier transform `dft`.

Two axes of the operand are the rows and columns of matrices, `inner` is the new axis between the factors. Gradients are those of
Seeger and others, Auto-differentiating linear algebra (arXiv:1710.08717), and Townsend, Differentiating the singular value
decomposition (2016); those through vectors are infinite where singular values or eigenvalues are equal, those of the values are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngraph.errors import AxisError
from ngraph.op_graph.axes import Axis
from ngraph.op_graph.expr import minimum
from ngraph.op_graph.op import Op, TensorType
from ngraph.op_graph.opdef import Call, OpDef, op
from ngraph.ops.aligned import align, axes_like, wide
from ngraph.ops.elementwise import cast, equal, filled, greater, where
from ngraph.ops.factorisation import Matrices, axis_in, beside, in_float32, matrix_axes, on_diagonal, positive, renamed
from ngraph.ops.linear import contract
from ngraph.ops.rearrange import axes_with_order, concat_along_axis, iota
from ngraph.ops.reduce import count, reduce
from ngraph.ops.state import parts


def _typed(name: str, *axes: Callable[[Any, Any, Any], tuple[Any, ...]]) -> Callable[..., tuple[TensorType, ...]]:
    """Returns the type rule of an op whose results have these axes behind the batch, given rows, columns and inner."""

    def rule(inputs: tuple[TensorType, ...], rows: Any, columns: Any, inner: Any) -> tuple[TensorType, ...]:
        (x,) = inputs
        batch = matrix_axes(name, x, rows, columns)
        if inner in (rows, columns, *batch):
            raise AxisError(f"{name}: {inner} is an axis of the matrices already", fix="give the axis between the factors another name")
        return tuple([TensorType(axes_like(x.axes, (*batch, *last(rows, columns, inner))), x.dtype) for last in axes])

    return rule


def _referred(function: Callable[[np.ndarray], Sequence[np.ndarray]]) -> Callable[..., tuple[np.ndarray, ...]]:
    """Returns the reference for a function of arrays whose last dims are rows and columns."""

    def reference(call: Call, x: np.ndarray) -> tuple[np.ndarray, ...]:
        axes, rows, columns = call.inputs[0].axes, call.attrs["rows"], call.attrs["columns"]
        batch = [a for a in axes if a not in (rows, columns)]
        made = function(wide(align(x, axes, (*batch, rows, columns))))
        return tuple([np.asarray(a).astype(t.dtype.np) for a, t in zip(made, call.results, strict=True)])

    return reference


def _known(dys: Sequence[Op | None], results: Sequence[Op]) -> list[Op]:
    return [filled(0, r.axes, r.dtype) if dy is None else dy for dy, r in zip(dys, results, strict=True)]


def _unused(dy: Op | None) -> bool:
    """Returns whether nothing depends on a result, whose derivative is then none, or the number 0."""
    return dy is None or (dy.is_constant and np.ndim(dy.attrs["value"]) == 0 and dy.attrs["value"] == 0)


def _scaled(m: Matrices, v: Op, of: Axis) -> Matrices:
    """Returns the matrices with each column multiplied by an element of v, which has the axis `of` for them."""
    return m * (v if of == m.columns else renamed(v, (of, m.columns)))


def _differences(v: Op, of: Axis, like: Matrices) -> Op:
    """Returns 1 / (v of the column - v of the row), 0 on the diagonal."""
    row, column = (renamed(v, (of, a)) if a != of else v for a in (like.rows, like.columns))
    on = equal(iota(like.rows), iota(like.columns))
    return where(on, 0.0, 1.0 / where(on, 1.0, column - row))


# ---- QR ----------------------------------------------------------------------------------------------------------------


def _qr_gradient(op: Op, dys: Sequence[Op | None], x: Op) -> tuple[Op]:
    rows, columns, inner = (op.attrs[k] for k in ("rows", "columns", "inner"))
    q, r = parts(op)
    dq, dr = _known(dys, (q, r))
    k, n = axis_in(q, inner).size, axis_in(x, columns).size
    q_, r_, dq_, dr_ = Matrices(q, rows, inner), Matrices(r, inner, columns), Matrices(dq, rows, inner), Matrices(dr, inner, columns)
    if k == n:
        return (_tall_qr_gradient(q_, r_, dq_, dr_).along(rows, columns),)
    m = axis_in(x, rows).size
    (first, _), (dfirst, drest) = r_.cut(columns, m), dr_.cut(columns, m)
    rest = Matrices(x, rows, columns).cut(columns, m)[1]
    left = _tall_qr_gradient(q_, first, dq_ + rest @ drest.T, dfirst).along(rows, first.columns)
    return (concat_along_axis([left, (q_ @ drest).along(rows, rest.columns)], columns),)


def _tall_qr_gradient(q: Matrices, r: Matrices, dq: Matrices, dr: Matrices) -> Matrices:
    m = r @ dr.T - dq.T @ q
    both = m.triangle() + m.triangle(diagonal=0.0).T
    return r.solve((dq + q @ both).T, lower=False).T


def _qr_samples(s: Any) -> list[Op]:
    made: list[Op] = []
    for m, n, batch in ((3, 3, ()), (4, 2, (s.N,)), (2, 3, ()), (1, 1, (s.Z,)), (3, 2, (s.K, s.J))):
        i, j, k = s.axis(m, name="R"), s.axis(n, name="C"), s.axis(min(m, n), name="P")
        made += parts(qr.build(s.x(j, *batch, i) + on_diagonal(3.0, i, j, s.dtype), rows=i, columns=j, inner=k))
    return made


qr: OpDef = op(
    "qr",
    "Matrices as orthogonal columns along `inner` (`rows`, `inner`) times an upper triangle (`inner`, `columns`); signs as LAPACK's.",
    form="(x; rows, columns, inner) → x's, x's",
    type=_typed("qr", lambda i, j, k: (i, k), lambda i, j, k: (k, j)),
    reference=_referred(np.linalg.qr),
    grad=_qr_gradient,
    samples=_qr_samples,
    ulp=64,
    library="LAPACK",
    error=2e-5,
)


# ---- singular values ---------------------------------------------------------------------------------------------------


def _singular_values(x: np.ndarray) -> tuple[np.ndarray, ...]:
    u, s, v = _of_finite(lambda y: np.linalg.svd(y, full_matrices=False), x)
    return u, s, np.swapaxes(v, -1, -2)


def _of_finite(factors: Callable[[np.ndarray], tuple[np.ndarray, ...]], x: np.ndarray) -> list[np.ndarray]:
    """Returns the factors of matrices, NaN for those with elements that are not finite, for which LAPACK finds none."""
    wrong = ~np.isfinite(x).all((-1, -2))
    results = [*factors(np.where(wrong[..., None, None], 0, x) if wrong.any() else x)]
    for r in results:
        r[wrong] = np.nan
    return results


def _svd_gradient(op: Op, dys: Sequence[Op | None], x: Op) -> tuple[Op]:
    rows, columns, inner = (op.attrs[k] for k in ("rows", "columns", "inner"))
    results = parts(op)
    u, v = Matrices(results[0], rows, inner), Matrices(results[2], columns, inner)
    s = results[1]
    dku, ds, dkv = _known(dys, results)
    total = _scaled(u, ds, inner) @ v.T
    if _unused(dys[0]) and _unused(dys[2]):  # then equal singular values, and those of 0, need no quotient
        return (total.along(rows, columns),)
    du, dv = Matrices(dku, rows, inner), Matrices(dkv, columns, inner)
    size = axis_in(s, inner).size
    left, right = u.T @ du, v.T @ dv
    apart = _differences(s * s, inner, left)
    middle = _scaled((left - left.T) * apart, s, inner)
    other = (right - right.T) * _differences(s * s, inner, right)
    middle = middle + _scaled(other.T, s, inner).T
    total = total + u @ middle @ v.T
    if axis_in(x, rows).size != size:
        total = total + _scaled(du - u @ left, 1.0 / s, inner) @ v.T
    if axis_in(x, columns).size != size:
        total = total + u @ _scaled(dv - v @ right, 1.0 / s, inner).T
    return (total.along(rows, columns),)


def _svd_samples(s: Any) -> list[Op]:
    made = []
    for m, n, batch in ((3, 3, ()), (4, 2, (s.N,)), (2, 3, ()), (1, 1, (s.Z,)), (3, 2, (s.K, s.J))):
        i, j, k = s.axis(m, name="R"), s.axis(n, name="C"), s.axis(min(m, n), name="P")
        x = s.x(j, *batch, i) * 0.2 + on_diagonal(2.0 * (iota(i, s.dtype) + 1.0), i, j, s.dtype)
        u, values, v = parts(svd.build(x, rows=i, columns=j, inner=k))
        made += [values, u * u, v * v]
    return made


svd: OpDef = op(
    "svd",
    "Orthogonal columns (`rows`, `inner`), singular values from the largest to the smallest (`inner`), and orthogonal columns "
    "(`columns`, `inner`), whose product is x; signs as LAPACK's.",
    form="(x; rows, columns, inner) → x's, x's, x's",
    type=_typed("svd", lambda i, j, k: (i, k), lambda i, j, k: (k,), lambda i, j, k: (j, k)),
    reference=_referred(_singular_values),
    grad=_svd_gradient,
    samples=_svd_samples,
    ulp=64,
    library="LAPACK",
    error=2e-5,
)


# ---- eigenvalues -------------------------------------------------------------------------------------------------------


def _eigh_gradient(op: Op, dys: Sequence[Op | None], x: Op) -> tuple[Op]:
    rows, columns, inner = (op.attrs[k] for k in ("rows", "columns", "inner"))
    w, v = parts(op)
    dw, dv = _known(dys, (w, v))
    vectors = Matrices(v, rows, inner)
    total = _scaled(vectors, dw, inner) @ vectors.T
    if not _unused(dys[1]):  # else equal eigenvalues need no quotient
        left = vectors.T @ Matrices(dv, rows, inner)
        total = total + vectors @ (left * _differences(w, inner, left)) @ vectors.T
    return (total.along(rows, columns),)


def _eigh_samples(s: Any) -> list[Op]:
    made = []
    for n, batch in ((3, ()), (2, (s.N,)), (1, (s.Z,)), (3, (s.K, s.J))):
        x, i, j = positive(s, n, *batch)
        x = x + on_diagonal(9.0 * iota(i, s.dtype), i, j, s.dtype)
        w, v = parts(eigh.build(x, rows=i, columns=j, inner=s.axis(n, name="E")))
        made += [w, v * v]
    return made


eigh: OpDef = op(
    "eigh",
    "Eigenvalues (`inner`), the smallest first, and eigenvectors (`rows`, `inner`) of symmetric matrices, of which the lower triangle is "
    "read; signs as LAPACK's.",
    form="(x; rows, columns, inner) → x's, x's",
    type=_typed("eigh", lambda i, j, k: (k,), lambda i, j, k: (i, k)),
    reference=_referred(lambda x: _of_finite(np.linalg.eigh, x)),
    grad=_eigh_gradient,
    samples=_eigh_samples,
    ulp=64,
    library="LAPACK",
    error=2e-5,
)


# ---- pseudo-inverse ----------------------------------------------------------------------------------------------------


def _pinv_type(inputs: tuple[TensorType, ...], rows: Any, columns: Any, rcond: float | None) -> TensorType:
    (x,) = inputs
    matrix_axes("pinv", x, rows, columns)
    swapped = {rows: columns, columns: rows}
    return TensorType(axes_like(x.axes, [swapped.get(a, a) for a in x.axes]), x.dtype)


def _pinv_reference(call: Call, x: np.ndarray) -> np.ndarray:
    axes, rows, columns = call.inputs[0].axes, call.attrs["rows"], call.attrs["columns"]
    batch = [a for a in axes if a not in (rows, columns)]
    m = wide(align(x, axes, (*batch, rows, columns)))
    rcond = call.attrs["rcond"]
    rcond = max(m.shape[-2:]) * np.finfo(m.dtype).eps if rcond is None else rcond
    (made,) = _of_finite(lambda y: (np.linalg.pinv(y, rcond=rcond),), m)
    return align(made.astype(call.dtype.np), (*batch, columns, rows), call.axes)


@in_float32
def _pinv_lower(op: Op, x: Op) -> Op:
    rows, columns = op.attrs["rows"], op.attrs["columns"]
    m, n = axis_in(x, rows).size, axis_in(x, columns).size
    inner = beside(columns, "s").resized(minimum(m, n))
    u, s, v = parts(svd.build(x, rows=rows, columns=columns, inner=inner))
    rcond = op.attrs["rcond"]
    limit = (
        cast(count((axis_in(x, rows if minimum(m, n) == n else columns),)), x.dtype) * float(np.finfo(x.dtype.np).eps)
        if rcond is None
        else rcond
    )
    kept = greater(s, reduce.build(s, kind="max", axes=(inner,)) * limit)
    return axes_with_order(contract(v * where(kept, 1.0 / where(kept, s, 1.0), 0.0), u, over=(inner,)), op.axes)


def _pinv_gradient(op: Op, dy: Op, x: Op) -> Op:
    """Returns the gradient (Golub and Pereyra, The differentiation of pseudo-inverses, 1973)."""
    a = Matrices(x, op.attrs["rows"], op.attrs["columns"])
    p, g = Matrices(op, a.columns, a.rows), Matrices(dy, a.rows, a.columns)
    first = p.T @ g.T @ p.T
    left = g @ p @ p.T
    right = p.T @ p @ g
    return (left - a @ p @ left + right - right @ p @ a - first).along(a.rows, a.columns)


def _pinv_samples(s: Any) -> list[Op]:
    made = []
    for m, n, batch in ((3, 3, ()), (4, 2, (s.N,)), (2, 3, ()), (1, 1, (s.Z,)), (3, 2, (s.K, s.J))):
        i, j = s.axis(m, name="R"), s.axis(n, name="C")
        made.append(pinv.build(s.x(j, *batch, i) * 0.2 + on_diagonal(2.0, i, j, s.dtype), rows=i, columns=j, rcond=None))
    return made


pinv: OpDef = op(
    "pinv",
    "The pseudo-inverses of matrices, which map `rows` to `columns`; singular values below `rcond` times the largest count as 0.",
    form="(x; rows, columns, rcond)",
    type=_pinv_type,
    reference=_pinv_reference,
    grad=_pinv_gradient,
    lower=_pinv_lower,
    samples=_pinv_samples,
    ulp=64,
    error=2e-5,
)


# ---- Fourier transforms of a length that a call brings ------------------------------------------------------------------


def _dft_type(inputs: tuple[TensorType, ...], axis: Any, out: Any, inverse: bool) -> tuple[TensorType, TensorType]:
    x = inputs[0]
    if axis not in x.axes or out in x.axes or any(set(i.axes) != set(x.axes) for i in inputs):
        raise AxisError(f"dft of {x} along {axis} to {out}", fix="name an axis of both parts, and a new one for the result")
    made = TensorType(axes_like(x.axes, [out if a == axis else a for a in x.axes]), x.dtype)
    return made, made


def _dft_reference(call: Call, re: np.ndarray, *im: np.ndarray) -> tuple[np.ndarray, ...]:
    axes, axis, out, inverse = call.inputs[0].axes, call.attrs["axis"], call.attrs["out"], call.attrs["inverse"]
    x = wide(re)
    for array, t in zip(im, call.inputs[1:], strict=True):
        x = x + 1j * wide(align(array, t.axes, axes))
    length, n, k = call.length(out), max(call.length(axis), call.length(out)), list(axes).index(axis)
    y = np.zeros((*x.shape[:k], 0, *x.shape[k + 1 :]), complex)
    if n and not im:  # the other frequencies of a real signal are conjugate
        y = np.fft.rfft(x, n, axis=k)
        if length > n // 2 + 1:
            y = np.concatenate([y, np.flip(y[(*(slice(None),) * k, slice(1, (n + 1) // 2))], k).conj()], k)
        y = y.conj() + 0 if inverse else y  # 0 in place of -0
    elif n:
        y = (np.fft.ifft if inverse else np.fft.fft)(x, n, axis=k, norm="forward" if inverse else "backward")
    y = y[(*(slice(None),) * k, slice(length))]
    return y.real.astype(call.dtype.np), y.imag.astype(call.dtype.np)


def _dft_gradient(op: Op, dys: Sequence[Op | None], *x: Op) -> tuple[Op, ...]:
    """Returns the adjoint: the transform of the other direction, of dy."""
    known = [axes_with_order(dy, op.type[0].axes) for dy in _known(dys, parts(op))]
    adjoint = parts(dft.build(*known, axis=op.attrs["out"], out=op.attrs["axis"], inverse=not op.attrs["inverse"]))
    return adjoint[: len(x)]


def _dft_samples(s: Any) -> list[Op]:
    made: list[Op] = []
    for n, frequencies, inverse in ((5, 5, False), (6, 4, False), (3, 6, True), (1, 1, True), (0, 0, False)):
        axis, out = s.axis(n, name="T"), s.axis(frequencies, name="F")
        for inputs in ((s.x(s.I, axis),), (s.x(axis, s.J), s.x(s.J, axis))):
            made += parts(dft.build(*inputs, axis=axis, out=out, inverse=inverse))
    return made


dft: OpDef = op(
    "dft",
    "The sums over `axis` of x times e to the -2 pi i * index * index / n (the other sign where `inverse`), along `out`: real and "
    "imaginary part. n is the length of the longer of both axes. x is real, or real and imaginary part.",
    form="(x…; axis, out, inverse) → x's, x's",
    type=_dft_type,
    reference=_dft_reference,
    grad=_dft_gradient,
    samples=_dft_samples,
    ulp=64,
    error=2e-6,
    library="pocketfft",
)

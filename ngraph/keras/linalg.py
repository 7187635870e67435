"""The functions of `keras.ops.linalg`: factorisations of matrices in the last two dims, and systems of equations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ngraph.frontends.positional import factors
from ngraph.frontends.positional.values import Tensor
from ngraph.keras import numpy
from ngraph.keras.convert import cast, convert_to_tensor
from ngraph.keras.elementwise import in_float
from ngraph.keras.gradients import along
from ngraph.keras.numpy import by_numpy
from ngraph.keras.reductions import axes_of
from ngraph.keras.tensors import apply
from ngraph.keras.traces import KerasTrace
from ngraph.ops import linalg as of_axes

FACTORS: dict[str, Callable[..., Any]] = {
    "cholesky": lambda x, i, j, k: [(of_axes.cholesky(x, i, j), "ij")],
    "inv": lambda x, i, j, k: [(of_axes.inv(x, i, j), "..")],
    "det": lambda x, i, j, k: [(of_axes.det(x, i, j), "")],
    "slogdet": lambda x, i, j, k: [(y, "") for y in of_axes.slogdet(x, i, j)],
    "qr": lambda x, i, j, k: list(zip(of_axes.qr(x, i, j, k), ("ik", "kj"), strict=True)),
    "svd": lambda x, i, j, k: list(zip(of_axes.svd(x, i, j, k), ("ik", "k", "kj"), strict=True)),
    "eigh": lambda x, i, j, k: list(zip(of_axes.eigh(x, i, j, k), ("k", "ik"), strict=True)),
    "pinv": lambda x, i, j, k: [(of_axes.pinv(x, i, j), "..")],
}


def factored(g: KerasTrace, t: Tensor, name: str) -> tuple[Tensor, ...]:
    """The factors of matrices. What axes each has is told by letters: i rows, j columns, k between them; `..` columns, then rows."""
    t = g.full(t)
    i, j = t.dims[-2:]
    k = g.fresh(min(g.number(i.size), g.number(j.size)))
    made = []
    for op, letters in FACTORS[name](t.op, i, j, k):
        batch = list(t.dims[:-2])
        if letters == "..":
            own = [a for a in op.axes if a not in batch]
            dims = [a for a in own if a == j] + [a for a in own if a == i] if {*own} == {i, j} else own
        else:
            dims = [{"i": i, "j": j, "k": k}[x] for x in letters]
        made.append(g.made(op, [*batch, *dims]))
    return tuple(made)


def _factors(x: Any, name: str) -> tuple[Any, ...]:
    x = in_float(x)
    narrow = x.dtype.name in ("float16", "bfloat16")
    found = apply(factored, cast(x, "float32") if narrow else x, name=name)
    return tuple([cast(y, x.dtype) for y in found]) if narrow else found


def _square(x: Any) -> Any:
    x = convert_to_tensor(x)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"Expected a square matrix. Received: a.shape={x.shape}")
    return x


def cholesky(a: Any, upper: bool = False) -> Any:
    (found,) = _factors(a, "cholesky")
    if found.t is None and np.isnan(found.array).any():
        raise ValueError("Cholesky decomposition failed. The input might not be a valid positive definite matrix.")
    return numpy.swapaxes(found, -1, -2) if upper else found


def cholesky_inverse(a: Any, upper: bool = False) -> Any:
    a = in_float(a)
    a = numpy.swapaxes(a, -1, -2) if upper else a
    inverse = solve_triangular(a, numpy.eye(int(a.shape[-1]), dtype=a.dtype), lower=True)
    return numpy.matmul(numpy.swapaxes(inverse, -1, -2), inverse)


def det(a: Any) -> Any:
    return _factors(_square(a), "det")[0]


def slogdet(x: Any) -> Any:
    return _factors(x, "slogdet")


def inv(a: Any) -> Any:
    return _factors(_square(a), "inv")[0]


def pinv(x: Any, rcond: Any = None) -> Any:
    """Returns the inverse by singular values, without those below rcond times the largest."""
    x = in_float(x)
    u, s, v = svd(x, full_matrices=False)
    rcond = 10.0 * max(int(x.shape[-2]), int(x.shape[-1])) * float(np.finfo(x.dtype).eps) if rcond is None else rcond
    keep = numpy.greater(s, numpy.multiply(numpy.max(s, -1, True), rcond))
    inverse = numpy.where(keep, numpy.divide(1.0, numpy.where(keep, s, 1.0)), 0.0)
    scaled = numpy.multiply(numpy.swapaxes(v, -1, -2), numpy.expand_dims(cast(inverse, x.dtype), -2))
    return numpy.matmul(scaled, numpy.swapaxes(u, -1, -2))


def qr(x: Any, mode: str = "reduced") -> Any:
    if mode not in ("reduced", "complete"):
        raise ValueError(f"`mode` argument value not supported. Expected one of {{'reduced', 'complete'}}. Received: mode={mode}")
    if mode == "complete" and convert_to_tensor(x).shape[-2] != convert_to_tensor(x).shape[-1]:
        return by_numpy("qr", lambda a: tuple(np.linalg.qr(a, mode="complete")), in_float(x))
    return _factors(x, "qr")


def svd(x: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    x = in_float(x)
    if full_matrices and compute_uv and x.shape[-2] != x.shape[-1]:
        return by_numpy("svd", lambda a: tuple(np.linalg.svd(a, full_matrices=True)), x)
    u, s, v = _factors(x, "svd")
    return (u, s, v) if compute_uv else s


def eigh(x: Any) -> Any:
    return _factors(_square(x), "eigh")


def eig(x: Any) -> Any:
    """Returns eigenvalues and eigenvectors of matrices whose eigenvalues are real. Raises ValueError for others."""

    def function(a: Any) -> Any:
        w, v = np.linalg.eig(a)
        if np.iscomplexobj(w) and np.abs(w.imag).max() > 1e-6 * np.abs(w).max():
            raise ValueError("the eigenvalues are complex numbers, which the ngraph backend does not have")
        return w.real.astype(a.dtype), v.real.astype(a.dtype)

    return by_numpy("eig", function, in_float(x))


def lu_factor(x: Any) -> Any:
    """Returns the factors of matrices in one, L below the diagonal, and the rows that were exchanged."""

    def function(a: Any) -> Any:
        if a.ndim > 2:
            made = [function(m) for m in a]
            return np.stack([m[0] for m in made]), np.stack([m[1] for m in made])
        a, pivots = a.copy(), np.zeros(min(a.shape), np.int32)
        for k in range(len(pivots)):
            p = k + int(np.argmax(np.abs(a[k:, k])))
            pivots[k] = p
            a[[k, p]] = a[[p, k]]
            if a[k, k]:
                a[k + 1 :, k] /= a[k, k]
                a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
        return a, pivots

    return by_numpy("lu_factor", function, in_float(x))


# ---- systems ------------------------------------------------------------------------------------------------------------


def solved(g: KerasTrace, a: Tensor, b: Tensor, kind: str, vectors: bool) -> Tensor:
    """The x with a x = b; vectors: b has one column, and no dim for it."""
    solver = of_axes.solve if kind == "solve" else partial(of_axes.triangular_solve, lower=kind == "lower")
    found = factors.solved(g, a, Tensor(b.op, [*b.dims, None]) if vectors else b, solver)
    return Tensor(found.op, found.dims[:-1]) if vectors else found


def _system(a: Any, b: Any, kind: str) -> Any:
    a, b = numpy.met(a, b, floats=True)
    vectors = b.ndim == a.ndim - 1
    return apply(solved, a, b, kind=kind, vectors=vectors)


def solve(a: Any, b: Any) -> Any:
    return _system(_square(a), b, "solve")


def solve_triangular(a: Any, b: Any, lower: bool = False) -> Any:
    return _system(a, b, "lower" if lower else "upper")


def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    a, b = numpy.met(a, b, floats=True)
    if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[0] != b.shape[0]:
        raise ValueError(f"Leading dimensions of input arrays must match. Received: a.shape={a.shape}, b.shape={b.shape}")
    rcond = float(np.finfo(a.dtype).eps) * max(int(a.shape[0]), int(a.shape[1])) if rcond is None else rcond
    return numpy.matmul(pinv(a, rcond), b)


def matrix_rank(x: Any, tol: Any = None) -> Any:
    x = in_float(x)
    if x.ndim < 2:
        return cast(numpy.any(numpy.not_equal(x, 0)), "int32")
    s = svd(x, compute_uv=False)
    if tol is None:
        tol = numpy.multiply(numpy.max(s, -1, True), max(int(x.shape[-2]), int(x.shape[-1])) * float(np.finfo(x.dtype).eps))
    return numpy.sum(cast(numpy.greater(s, tol), "int32"), -1)


# ---- norms --------------------------------------------------------------------------------------------------------------


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Returns norms of vectors along one dim, or of matrices along two, as NumPy has them."""
    x = in_float(x)
    if axis is None:
        if ord is None or (x.ndim == 1 and ord == 2) or (x.ndim == 2 and ord == "fro"):
            return _two(x, None, keepdims)
        if x.ndim > 2:
            raise ValueError(f"Invalid `axis` argument for input of rank {x.ndim}. Received: axis={axis}")
        axis = tuple(range(x.ndim))
    axes = axes_of(x, axis)
    if len(axes) == 1:
        return _vectors(x, ord, axes[0], keepdims)
    if len(axes) != 2:
        raise ValueError(f"Invalid axis values. Received: axis={axis}")
    return _matrices(x, ord, axes, keepdims)


def _two(x: Any, axes: Any, keepdims: bool) -> Any:
    return numpy.sqrt(numpy.sum(numpy.square(x), axes, keepdims))


def _vectors(x: Any, order: Any, axis: int, keepdims: bool) -> Any:
    if order is None or order == 2:
        return _two(x, axis, keepdims)
    size = numpy.absolute(x)
    if order == np.inf:
        return numpy.max(size, axis, keepdims)
    if order == -np.inf:
        return numpy.min(size, axis, keepdims)
    if order == 0:
        return cast(numpy.sum(cast(numpy.not_equal(x, 0), x.dtype), axis, keepdims), x.dtype)
    if order == 1:
        return numpy.sum(size, axis, keepdims)
    if isinstance(order, str):
        raise ValueError(f"Invalid `ord` argument for vector norm. Received: ord={order}")
    return numpy.power(numpy.sum(numpy.power(size, float(order)), axis, keepdims), 1.0 / order)


def _matrices(x: Any, order: Any, axes: Sequence[int], keepdims: bool) -> Any:
    if order is None or order == "fro":
        return _two(x, axes, keepdims)
    row, column = axes
    if order in (1, -1, np.inf, -np.inf):
        first, last = (row, column) if abs(order) == 1 else (column, row)
        sums = numpy.sum(numpy.absolute(x), first, True)
        end = numpy.max if order > 0 else numpy.min
        found = end(sums, last, True)
    elif order in (2, -2, "nuc"):
        s = svd(numpy.moveaxis(x, axes, (-2, -1)), compute_uv=False)
        found = numpy.sum(s, -1) if order == "nuc" else (numpy.max if order == 2 else numpy.min)(s, -1)
        for a in sorted(axes):
            found = numpy.expand_dims(found, a)
    else:
        raise ValueError(f"Invalid `ord` argument for matrix norm. Received: ord={order}")
    return found if keepdims else numpy.squeeze(found, tuple(axes))


def jvp(fun: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """Returns the value of a function and its derivative in a direction."""
    return along(fun, primals, tangents, has_aux)

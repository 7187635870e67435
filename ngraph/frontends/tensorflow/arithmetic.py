"""Translators of TensorFlow's ops that work on each element by itself, of reductions, products and linear algebra."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ngraph.errors import GraphError, UnsupportedError
from ngraph.frontends.positional import elementwise as by_element
from ngraph.frontends.positional import factors, products, reductions, windows
from ngraph.frontends.positional import special as in_double
from ngraph.frontends.positional.reductions import REDUCTIONS, reduce_over
from ngraph.frontends.positional.shapes import at, broadcast_shape, padded, sliced, stacked, turned
from ngraph.frontends.positional.text import in_python
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value
from ngraph.frontends.tensorflow.table import Array, Dim, Dims, Translator, rows, translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType, as_dtype
from ngraph.op_graph.op import Op
from ngraph.ops import activations, factorisation, functions, incomplete, linalg, special
from ngraph.ops import elementwise as e
from ngraph.ops.rearrange import iota
from ngraph.ops.state import parts
from ngraph.ops.statistics import logcumsumexp

# ---- elements -----------------------------------------------------------------------------------------------------------


def _where_not_zero(tested: Op, y: Op) -> Op:
    """Returns y, and 0 where what is tested is 0."""
    return e.where(e.equal(tested, 0), e.filled(0, (), y.dtype), y)


def _shifted(kind: str) -> Callable[[Op, Op], Op]:
    """Shifts by a number of bits held within the dtype's, as TensorFlow does on processors."""
    return lambda x, y: e.bitwise(x, e.minimum(e.maximum(y, 0), x.dtype.bits - 1), kind=kind)


# Functions of elements, of operands that are broadcast against each other.
ELEMENTS: dict[str, Callable[..., Op]] = {
    **{name.capitalize(): getattr(e, name) for name in "sqrt exp expm1 log log1p sin cos atan tanh sigmoid erf floor relu".split()},
    **{name.capitalize(): getattr(functions, name) for name in "tan asin acos sinh cosh asinh acosh atanh ceil atan2".split()},
    **{name.capitalize(): getattr(special, name) for name in "erfinv lgamma digamma".split()},
    **{name.capitalize(): getattr(e, name) for name in "maximum minimum less greater equal".split()},
    "Abs": e.absolute,
    "Neg": by_element.FUNCTIONS["negative"],
    "Sign": by_element.FUNCTIONS["sign"],
    "Square": lambda x: x * x,
    "Rsqrt": lambda x: e.rounding_once(lambda y: 1.0 / e.sqrt(y))(x),
    **dict.fromkeys(("Reciprocal", "Inv"), e.reciprocal),
    "Erfc": in_double.erfc,
    **dict.fromkeys(("Round", "Rint"), lambda x: e.rounded(x) if x.dtype.is_float else x),
    "Relu6": lambda x: e.minimum(e.maximum(x, 0), 6),
    "Elu": by_element.elu,
    "Selu": lambda x: by_element.selu(x, 1.6732632423543772, 1.0507009873554805),
    "Softplus": activations.softplus,
    "Softsign": lambda x: x / (e.absolute(x) + 1.0),
    "IsNan": functions.isnan,
    "IsInf": functions.isinf,
    "IsFinite": functions.isfinite,
    "LogicalNot": e.logical_not,
    "Invert": e.inverted,
    "PopulationCount": by_element.count_of_bits,
    "ZerosLike": lambda x: e.filled(0, x.axes, x.dtype),
    "OnesLike": lambda x: e.filled(1, x.axes, x.dtype),
    **dict.fromkeys(("Add", "AddV2"), e.add),
    "Sub": e.subtract,
    "Mul": e.multiply,
    "MulNoNan": lambda x, y: _where_not_zero(y, x * y),
    "Div": by_element.divide,
    "RealDiv": e.divide,
    "DivNoNan": lambda x, y: _where_not_zero(y, e.divide(x, e.where(e.equal(y, 0), e.filled(1, (), y.dtype), y))),
    "FloorDiv": lambda x, y: e.floor(e.divide(x, y)) if x.dtype.is_float else e.divide.build(x, y),
    "TruncateDiv": lambda x, y: functions.trunc(x / y) if x.dtype.is_float else by_element.divide(x, y),
    "FloorMod": e.remainder,
    **dict.fromkeys(("Mod", "TruncateMod"), lambda x, y: by_element.remainder(x, y, True)),
    "SquaredDifference": lambda x, y: (x - y) * (x - y),
    "NextAfter": by_element.next_after,
    "Xdivy": lambda x, y: _where_not_zero(x, x / y),
    "Xlogy": lambda x, y: _where_not_zero(x, x * e.log(y)),
    "Xlog1py": lambda x, y: _where_not_zero(x, x * e.log1p(y)),
    "LessEqual": e.less_equal,
    "GreaterEqual": e.greater_equal,
    "NotEqual": e.not_equal,
    "LogicalAnd": e.logical_and,
    "LogicalOr": e.logical_or,
    **{f"Bitwise{kind.capitalize()}": partial(e.bitwise, kind=kind) for kind in ("and", "or", "xor")},
    "LeftShift": _shifted("shl"),
    "RightShift": _shifted("shr"),
    "SelectV2": e.where,
    "ClipByValue": lambda x, low, high: e.minimum(e.maximum(x, low), high),
    # gradients of functions of one operand: TensorFlow gives (result, gradient) or (gradient, operand), as its op says
    "ReluGrad": lambda dy, x: e.where(e.less(0, x), dy, e.filled(0, (), dy.dtype)),
    "Relu6Grad": lambda dy, x: e.where(e.logical_and(e.less(0, x), e.less(x, 6)), dy, e.filled(0, (), dy.dtype)),
    "EluGrad": lambda dy, y: e.where(e.less(y, 0), dy * (y + 1.0), dy),
    "SeluGrad": lambda dy, y: e.where(e.less(y, 0), dy * (y + 1.7580993408473766), dy * 1.0507009873554805),
    "SoftplusGrad": lambda dy, x: dy * e.sigmoid(x),
    "SoftsignGrad": lambda dy, x: dy / ((e.absolute(x) + 1.0) * (e.absolute(x) + 1.0)),
    "SigmoidGrad": lambda y, dy: dy * y * (1.0 - y),
    "TanhGrad": lambda y, dy: dy * (1.0 - y * y),
    "SqrtGrad": lambda y, dy: dy * 0.5 / y,
    "RsqrtGrad": lambda y, dy: dy * -0.5 * (y * y * y),
    **dict.fromkeys(("ReciprocalGrad", "InvGrad"), lambda y, dy: -(dy * y * y)),
}

SPECIAL: dict[str, Callable[..., Op]] = {  # those that are computed in float64
    "Zeta": in_double.zeta,
    "Polygamma": in_double.polygamma,
    "Igamma": lambda a, x: incomplete.gamma_shares(a, x)[0],
    "Igammac": lambda a, x: incomplete.gamma_shares(a, x)[1],
    "IgammaGradA": incomplete.gamma_share_by_a,
    "RandomGammaGrad": incomplete.gamma_sample_by_a,
    "Betainc": in_double.beta_share,
    "Dawsn": in_double.dawson,
    "Ndtri": in_double.ndtri,
    "Expint": in_double.exponential_integral,
    "FresnelCos": lambda x: in_double.fresnel(x)[0],
    "FresnelSin": lambda x: in_double.fresnel(x)[1],
    "Spence": in_double.spence,
    **{f"Bessel{name.capitalize()}": function for name, function in in_double.BESSEL.items()},
}


def _of_elements(how: Callable[..., Tensor], function: Callable[..., Op]) -> Translator:
    return lambda g, *xs: how(g, function, *xs)


rows({op: _of_elements(by_element.each, function) for op, function in ELEMENTS.items()})
rows({op: _of_elements(in_double.in_double, function) for op, function in SPECIAL.items()})
rows(
    {
        "LeakyRelu": lambda n, x: by_element.alone(n.g, lambda op: by_element.leaky_relu(op, n.attr("alpha", 0.2)), x),
        "LeakyReluGrad": lambda n, *xs: by_element.each(n.g, lambda dy, x: e.where(e.less(0, x), dy, dy * n.attr("alpha", 0.2)), *xs),
        "ApproximateEqual": lambda n, *xs: by_element.each(n.g, lambda x, y: e.less(e.absolute(x - y), n.attr("tolerance", 1e-5)), *xs),
        "Identity IdentityN StopGradient PreventGradient Snapshot CheckNumerics DeepCopy PlaceholderWithDefault": lambda n, *xs: xs,
        "Cast": lambda n, x: by_element.casted(n.g, x, n.attr("DstT")),
        "LinSpace": lambda g, first, *more: ConstantArray(np.linspace(*map(g.known, (first, *more)), dtype=first.np)),
        "Pow": lambda g, x, y: by_element.power(g, x, y),
        "AddN AccumulateNV2": lambda g, *xs: by_element.folded(g, e.add, xs),
        "Einsum": lambda n, *xs: products.einsum(n.g, n.attr("equation"), [n.g.tensor(x) for x in xs]),
        "MatrixDeterminant": lambda g, x: factors.determinant(g, x),
    }
)


@translates("L2Loss")
def l2_loss(g: Any, t: Tensor) -> Tensor:
    return Tensor(REDUCTIONS["sumsquare"](t.op, tuple(t.op.axes)) * 0.5, ())


@translates("Bitcast")
def bitcast(g: Any, x: Value, *, type: DType) -> Tensor:
    if as_dtype(np.dtype(x.np)).bits != type.bits:
        raise GraphError(f"the bits of {x.np} as {type}, which has another size", fix="there is a Bitcast of dtypes of one size alone")
    return by_element.alone(g, lambda op: by_element.bitcast(op, type), x)


@translates("Select")
def select_rows(g: Any, t: Tensor, x: Value, y: Value) -> Tensor:
    if t.rank == 1 and x.rank > 1:  # a condition for each row
        t = Tensor(t.op, [*t.dims, *[None] * (x.rank - 1)])
    return by_element.each(g, e.where, t, x, y)


@translates("BiasAdd", "BiasAddV1")
def bias_add(g: Any, t: Tensor, bias: Tensor, *, data_format: str = "NHWC") -> Tensor:
    return windows.with_bias(g, t, bias) if data_format.startswith("NC") else by_element.each(g, e.add, t, bias)


@translates("BiasAddGrad")
def bias_add_grad(n: Any, t: Tensor, *, data_format: str = "NHWC") -> Tensor:
    channel = 1 if data_format.startswith("NC") else t.rank - 1
    return reduce_over(t, [k for k in range(t.rank) if k != channel], reductions.total, False)


# ---- reductions ---------------------------------------------------------------------------------------------------------

_REDUCED = {**{name: name.lower() for name in ("Sum", "Mean", "Prod", "Max", "Min")}, "EuclideanNorm": "l2", "All": "min", "Any": "max"}


@translates(*_REDUCED)
def reduced(n: Any, t: Tensor, dims: Dims, *, keep_dims: bool = False) -> Value:
    return n.g.ones(reduce_over(t, dims, REDUCTIONS[_REDUCED[n.op]], keep_dims))


@translates("ArgMax", "ArgMin")
def arg_best(n: Any, t: Tensor, k: Dim, *, output_type: DType = dtypes.int64) -> Tensor:
    return reduce_over(t, [k], lambda op, axes: e.cast(reductions.best(op, axes, n.op[3:].lower()), output_type), False)


@translates("Cumsum", "Cumprod")
def cumulated(n: Any, t: Tensor, k: Dim, *, exclusive: bool = False, reverse: bool = False) -> Tensor:
    return reductions.cumulated(t, k, "add" if n.op == "Cumsum" else "multiply", exclusive, reverse)


@translates("CumulativeLogsumexp")
def cumulated_exponentials(g: Any, t: Tensor, k: Dim, *, exclusive: bool = False, reverse: bool = False) -> Value:
    if exclusive:  # of what stands before each, which is nothing before the first one
        t = sliced(g, t, k, int(reverse), 1, t.shape[k] - 1)
        t = padded(g, t, k, int(not reverse), int(reverse), pad_value=t.op.dtype.lowest)
    t = g.full(t, [k])
    return g.made(logcumsumexp(t.op, t.dims[k], reverse), t.dims)


@translates("Cross")
def cross(g: Any, t: Tensor, u: Tensor) -> Value:
    x, y = ([at(g, v, v.rank - 1, k) for k in range(3)] for v in (t, u))
    made = [by_element.each(g, lambda p, q, r, s: p * q - r * s, x[i], y[j], x[j], y[i]) for i, j in ((1, 2), (2, 0), (0, 1))]
    return stacked(g, list(made), t.rank - 1)


@translates("Softmax", "LogSoftmax")
def softmax(n: Any, t: Tensor) -> Tensor:
    return Tensor(reductions.softmax(t.op, reductions.along(t, [t.rank - 1]), n.op == "LogSoftmax"), t.dims)


def _cross_entropy(g: Any, logits: Tensor, labels: Callable[[Tensor], Op]) -> tuple[Tensor, Tensor]:
    """The losses of rows, and their derivatives by the logits; labels: shares of the classes, along the axes of the logits."""
    t = g.full(logits, [logits.rank - 1])
    axes = (t.dims[-1],)
    shares = labels(t)
    log = reductions.softmax(t.op, axes, True)
    return g.made(-reductions.total(shares * log, axes), t.dims[:-1]), g.made(e.exp(log) - shares, t.dims)


@translates("SoftmaxCrossEntropyWithLogits", results="loss backprop")
def cross_entropy(g: Any, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    shape = broadcast_shape(g, logits.shape, labels.shape)
    return _cross_entropy(g, g.full(g.expanded(logits, shape)), lambda t: g.renamed(g.full(g.expanded(labels, shape)), t.dims).op)


@translates("SparseSoftmaxCrossEntropyWithLogits", results="loss backprop")
def sparse_cross_entropy(g: Any, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    def shares(t: Tensor) -> Op:
        i = g.renamed(labels, t.dims[:-1])
        return e.cast(e.equal(iota(t.dims[-1], i.op.dtype), i.op), t.op.dtype)

    return _cross_entropy(g, logits, shares)


# ---- linear algebra -----------------------------------------------------------------------------------------------------


@translates("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "SparseMatMul")
def matmul(n: Any, x: Tensor, y: Tensor, *, Tout: Any = None) -> Tensor:
    x = turned(x) if n.attr("transpose_a", False) or n.attr("adj_x", False) else x
    y = turned(y) if n.attr("transpose_b", False) or n.attr("adj_y", False) else y
    if Tout is not None:  # the dtype of the sums, which may be wider than that of the operands
        x, y = (Tensor(e.cast(t.op, as_dtype(Tout)), t.dims) for t in (x, y))
    return products.matmul(n.g, x, y)


translates("MatrixSquareRoot", python=True)(lambda n, x: in_python(n, factors.square_root, [x], [x.np])[0])
translates("SelfAdjointEigV2", results="e v")(lambda g, x: factors.eigh(g, x))


@translates("Cholesky")
def cholesky(g: Any, x: Value) -> Value:
    t, i, j = factors.matrices(g, x)
    return g.made(linalg.cholesky(t.op, i, j), t.dims)


@translates("LogMatrixDeterminant", results="sign log_abs_determinant")
def log_determinant(g: Any, x: Value) -> tuple[Tensor, ...]:
    t, i, j = factors.matrices(g, x)
    return tuple(g.made(op, t.dims[:-2]) for op in linalg.slogdet(t.op, i, j))


@translates("Lu", results="lu p")
def lu(g: Any, x: Value, *, output_idx_type: DType = dtypes.int32) -> tuple[Tensor, ...]:
    t, i, j = factors.matrices(g, x)
    packed, order, _ = parts(factorisation.lu.build(t.op, rows=i, columns=j))
    return g.made(packed, t.dims), g.made(e.cast(order, output_idx_type), t.dims[:-1])


@translates("Svd", results="s u v")
def singular_values(n: Any, x: Value, *, full_matrices: bool = False, compute_uv: bool = True) -> tuple[Value, ...]:
    if full_matrices and compute_uv:

        def run(a: Any) -> Any:
            u, s, v = np.linalg.svd(a, full_matrices=True)
            return s, u, np.swapaxes(v, -1, -2)

        return tuple(n.g.host(n.op, run, [x], [x.np] * 3))
    u, s, v = factors.svd(n.g, x)
    return s, u, v


@translates("Qr", results="q r")
def qr(n: Any, x: Value, *, full_matrices: bool = False) -> tuple[Value, ...]:
    if full_matrices:
        return tuple(n.g.host(n.op, lambda a: tuple(np.linalg.qr(a, "complete")), [x], [x.np] * 2))
    return factors.qr(n.g, x)


@translates("MatrixInverse")
def inverse(g: Any, x: Tensor, *, adjoint: bool = False) -> Value:
    return factors.inverse(g, turned(x) if adjoint else x)


@translates("MatrixSolve", "MatrixTriangularSolve")
def solve(n: Any, a: Tensor, b: Tensor, *, lower: bool = True, adjoint: bool = False) -> Tensor:
    solver = linalg.solve if n.op == "MatrixSolve" else partial(linalg.triangular_solve, lower=lower != adjoint)
    return factors.solved(n.g, turned(a) if adjoint else a, b, solver)


@translates("MatrixSolveLs")
def solve_least_squares(n: Any, a: Tensor, b: Tensor, weight: Array, *, fast: bool = True) -> Tensor:
    """Returns the x for which the sum of squares of a x - b, and of x times a weight, is least."""
    if fast and weight:
        return factors.ridge(n.g, a, b, float(weight))
    return factors.solved(n.g, a, b, linalg.lstsq)


@translates("BandedTriangularSolve")
def banded_solve(n: Any, bands: Tensor, b: Tensor, *, lower: bool = True, adjoint: bool = False) -> Tensor:
    a = factors.triangle_of_bands(n.g, bands, lower)
    return factors.solved(n.g, turned(a) if adjoint else a, b, partial(linalg.triangular_solve, lower=lower != adjoint))


@translates("TridiagonalSolve")
def tridiagonal_solve(g: Any, diagonals: Tensor, b: Value, *, partial_pivoting: bool = True, perturb_singular: bool = False) -> Value:
    """Returns the solutions of systems whose matrices have three diagonals, [..., 3, rows]: above the main one, it, and below it."""
    if perturb_singular:
        raise UnsupportedError("TridiagonalSolve with perturb_singular=True", fix="solve systems that are not singular")
    three = [at(g, diagonals, diagonals.rank - 2, k) for k in range(3)]
    *three, side = g.meet([*(Tensor(t.op, [*t.dims, None]) for t in three), factors.matrices(g, b)[0]])[0]
    return g.made(factors.tridiagonal_solve([t.op for t in three], side.op, side.dims[-2], partial_pivoting), side.dims)


@translates("TridiagonalMatMul")
def tridiagonal_product(g: Any, above: Tensor, main: Tensor, below: Tensor, b: Tensor) -> Tensor:
    """Returns the product of matrices with three diagonals, [..., 1, rows], and of others."""
    y, k = g.full(b, [b.rank - 2]), b.rank - 2
    rows = y.shape[k]
    next_, last = (padded(g, sliced(g, y, k, *cut), k, *by) for cut, by in (((1, 1, rows - 1), (0, 1)), ((0, 1, rows - 1), (1, 0))))
    made = [by_element.each(g, e.multiply, turned(v), t) for v, t in ((above, next_), (main, y), (below, last))]
    return by_element.folded(g, e.add, made)

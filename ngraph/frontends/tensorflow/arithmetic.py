"""Translators of TensorFlow's ops that work on each element by itself, of reductions, products and linear algebra."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ngraph.errors import GraphError, UnsupportedError
from ngraph.frontends.positional import elementwise as by_element
from ngraph.frontends.positional import factors, products, reductions
from ngraph.frontends.positional import special as in_double
from ngraph.frontends.positional.reductions import REDUCTIONS, dims_of, reduce_over
from ngraph.frontends.positional.shapes import at, broadcast_shape, padded, sliced, stacked, turned
from ngraph.frontends.positional.text import in_python
from ngraph.frontends.positional.values import ConstantArray, Held, Tensor, Value
from ngraph.frontends.tensorflow.table import translates
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.op import Op
from ngraph.ops import activations, factorisation, functions, linalg, special
from ngraph.ops import elementwise as e
from ngraph.ops.rearrange import iota
from ngraph.ops.state import parts
from ngraph.ops.statistics import logcumsumexp

# ---- one operand --------------------------------------------------------------------------------------------------------


def _rounded(x: Op) -> Op:
    return e.rounded(x) if x.dtype.is_float else x


UNARY: dict[str, Callable[[Op], Op]] = {
    "Abs": e.absolute,
    "Neg": by_element.FUNCTIONS["negative"],
    "Sign": by_element.FUNCTIONS["sign"],
    "Square": lambda x: x * x,
    "Sqrt": e.sqrt,
    "Rsqrt": lambda x: e.rounding_once(lambda y: 1.0 / e.sqrt(y))(x),
    "Reciprocal": e.reciprocal,
    "Inv": e.reciprocal,
    "Exp": e.exp,
    "Expm1": e.expm1,
    "Log": e.log,
    "Log1p": e.log1p,
    "Sin": e.sin,
    "Cos": e.cos,
    "Tan": functions.tan,
    "Asin": functions.asin,
    "Acos": functions.acos,
    "Atan": e.atan,
    "Sinh": functions.sinh,
    "Cosh": functions.cosh,
    "Asinh": functions.asinh,
    "Acosh": functions.acosh,
    "Atanh": functions.atanh,
    "Tanh": e.tanh,
    "Sigmoid": e.sigmoid,
    "Erf": e.erf,
    "Erfc": lambda x: 1.0 - e.erf(x),
    "Erfinv": special.erfinv,
    "Lgamma": special.lgamma,
    "Digamma": special.digamma,
    "Floor": e.floor,
    "Ceil": functions.ceil,
    "Round": _rounded,
    "Rint": _rounded,
    "Relu": e.relu,
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
}


def _unary(op: str, function: Callable[[Op], Op]) -> None:
    translates(op)(lambda n, x: by_element.alone(n.g, function, x))


for _op, _function in UNARY.items():
    _unary(_op, _function)


SPECIAL: dict[str, Callable[..., Op]] = {
    "Zeta": in_double.zeta,
    "Polygamma": in_double.polygamma,
    "Igamma": lambda a, x: in_double.gamma_shares(a, x)[0],
    "Igammac": lambda a, x: in_double.gamma_shares(a, x)[1],
    "Betainc": in_double.beta_share,
    "Dawsn": in_double.dawson,
    "Expint": in_double.exponential_integral,
    "FresnelCos": lambda x: in_double.fresnel(x)[0],
    "FresnelSin": lambda x: in_double.fresnel(x)[1],
    "Spence": in_double.spence,
    **{f"Bessel{name.capitalize()}": function for name, function in in_double.BESSEL.items()},
}


def _special(op: str, function: Callable[..., Op]) -> None:
    translates(op)(lambda n, *xs: in_double.in_double(n.g, function, *xs))


for _op, _several in SPECIAL.items():
    _special(_op, _several)


@translates("LeakyRelu")
def leaky_relu(n: Any, x: Value) -> Tensor:
    return by_element.alone(n.g, lambda op: by_element.leaky_relu(op, n.attr("alpha", 0.2)), x)


@translates("Identity", "IdentityN", "StopGradient", "PreventGradient", "Snapshot", "CheckNumerics", "DeepCopy", "PlaceholderWithDefault")
def identity(n: Any, *xs: Value) -> tuple[Value, ...]:
    return xs


@translates("ZerosLike", "OnesLike")
def alike(n: Any, x: Value) -> Tensor:
    return by_element.alone(n.g, lambda op: e.filled(0 if n.op == "ZerosLike" else 1, op.axes, op.dtype), x)


@translates("Cast")
def cast(n: Any, x: Value) -> Value:
    return by_element.casted(n.g, x, n.attr("DstT"))


@translates("Bitcast")
def bitcast(n: Any, x: Value) -> Tensor:
    target = as_dtype(n.attr("type"))
    if as_dtype(np.dtype(x.np)).bits != target.bits:
        raise GraphError(f"the bits of {x.np} as {target}, which has another size", fix="there is a Bitcast of dtypes of one size alone")
    return by_element.alone(n.g, lambda op: by_element.bitcast(op, target), x)


# ---- two operands -------------------------------------------------------------------------------------------------------


def _floor_div(x: Op, y: Op) -> Op:
    return e.floor(e.divide(x, y)) if x.dtype.is_float else e.divide.build(x, y)


def _unless_zero(function: Callable[[Op, Op], Op]) -> Callable[[Op, Op], Op]:
    """A function of two operands that is 0 where the second is."""

    def run(x: Op, y: Op) -> Op:
        none = e.equal(y, 0)
        return e.where(none, e.filled(0, (), x.dtype), function(x, e.where(none, e.filled(1, (), y.dtype), y)))

    return run


def _times_unless_zero(function: Callable[[Op], Op]) -> Callable[[Op, Op], Op]:
    """x times a function of y; 0 where x is 0."""

    def run(x: Op, y: Op) -> Op:
        return e.where(e.equal(x, 0), e.filled(0, (), x.dtype), x * function(y))

    return run


def _shifted(kind: str) -> Callable[[Op, Op], Op]:
    """Shifts by a number of bits held within the dtype's, as TensorFlow does on processors."""

    def run(x: Op, y: Op) -> Op:
        return e.bitwise(x, e.minimum(e.maximum(y, 0), x.dtype.bits - 1), kind=kind)

    return run


BINARY: dict[str, Callable[[Op, Op], Op]] = {
    "Add": e.add,
    "AddV2": e.add,
    "Sub": e.subtract,
    "Mul": e.multiply,
    "MulNoNan": lambda x, y: e.where(e.equal(y, 0), e.filled(0, (), x.dtype), x * y),
    "Div": lambda x, y: by_element.divide(x, y),
    "RealDiv": e.divide,
    "DivNoNan": _unless_zero(e.divide),
    "FloorDiv": _floor_div,
    "TruncateDiv": lambda x, y: functions.trunc(x / y) if x.dtype.is_float else by_element.divide(x, y),
    "FloorMod": lambda x, y: e.remainder(x, y),
    "Mod": lambda x, y: by_element.remainder(x, y, True),
    "TruncateMod": lambda x, y: by_element.remainder(x, y, True),
    "Maximum": e.maximum,
    "Minimum": e.minimum,
    "SquaredDifference": lambda x, y: (x - y) * (x - y),
    "Atan2": functions.atan2,
    "NextAfter": by_element.next_after,
    "Xdivy": lambda x, y: e.where(e.equal(x, 0), e.filled(0, (), x.dtype), x / y),
    "Xlogy": _times_unless_zero(e.log),
    "Xlog1py": _times_unless_zero(e.log1p),
    "Less": e.less,
    "LessEqual": e.less_equal,
    "Greater": e.greater,
    "GreaterEqual": e.greater_equal,
    "LogicalAnd": e.logical_and,
    "LogicalOr": e.logical_or,
    "BitwiseAnd": lambda x, y: e.bitwise(x, y, kind="and"),
    "BitwiseOr": lambda x, y: e.bitwise(x, y, kind="or"),
    "BitwiseXor": lambda x, y: e.bitwise(x, y, kind="xor"),
    "LeftShift": _shifted("shl"),
    "RightShift": _shifted("shr"),
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
    "ReciprocalGrad": lambda y, dy: -(dy * y * y),
    "InvGrad": lambda y, dy: -(dy * y * y),
}


def _binary(op: str, function: Callable[[Op, Op], Op]) -> None:
    translates(op)(lambda n, x, y: by_element.each(n.g, function, x, y))


for _op, _two in BINARY.items():
    _binary(_op, _two)


@translates("LeakyReluGrad")
def leaky_relu_grad(n: Any, dy: Value, x: Value) -> Tensor:
    return by_element.each(n.g, lambda g, op: e.where(e.less(0, op), g, g * n.attr("alpha", 0.2)), dy, x)


@translates("Equal", "NotEqual")
def equal(n: Any, x: Value, y: Value) -> Value:
    function, again = (e.equal, np.equal) if n.op == "Equal" else (e.not_equal, np.not_equal)
    if any(isinstance(v, Held) and np.dtype(v.np) == object and not hasattr(v, "name") for v in (x, y)):
        return n.g.host(n.op, again, [x, y], [np.bool_])[0]
    return by_element.each(n.g, function, x, y)


@translates("ApproximateEqual")
def nearly_equal(n: Any, x: Value, y: Value) -> Tensor:
    return by_element.each(n.g, lambda a, b: e.less(e.absolute(a - b), n.attr("tolerance", 1e-5)), x, y)


translates("Pow")(lambda n, x, y: by_element.power(n.g, x, y))
translates("AddN", "AccumulateNV2")(lambda n, *xs: by_element.folded(n.g, e.add, xs))
translates("SelectV2")(lambda n, c, x, y: by_element.each(n.g, e.where, c, x, y))


@translates("Select")
def select_rows(n: Any, c: Value, x: Value, y: Value) -> Tensor:
    t = n.g.tensor(c)
    if t.rank == 1 and x.rank > 1:  # a condition for each row
        t = Tensor(t.op, [*t.dims, *[None] * (x.rank - 1)])
    return by_element.each(n.g, e.where, t, x, y)


@translates("ClipByValue")
def clip(n: Any, x: Value, low: Value, high: Value) -> Tensor:
    return by_element.each(n.g, lambda a, b, c: e.minimum(e.maximum(a, b), c), x, low, high)


@translates("BiasAdd", "BiasAddV1")
def bias_add(n: Any, x: Value, bias: Value) -> Tensor:
    t = n.g.tensor(bias)
    if n.attr("data_format", "NHWC").startswith("NC"):
        t = Tensor(t.op, [*t.dims, *[None] * (x.rank - 2)])
    return by_element.each(n.g, e.add, x, t)


@translates("BiasAddGrad")
def bias_add_grad(n: Any, dy: Value) -> Tensor:
    t = n.g.tensor(dy)
    channel = 1 if n.attr("data_format", "NHWC").startswith("NC") else t.rank - 1
    return reduce_over(t, [k for k in range(t.rank) if k != channel], reductions.total, False)


# ---- reductions ---------------------------------------------------------------------------------------------------------


def _flag(kind: str) -> Callable[[Op, tuple[Any, ...]], Op]:
    return lambda x, axes: reductions.total(x, axes, kind)


_REDUCED = {
    "Sum": REDUCTIONS["sum"],
    "Mean": REDUCTIONS["mean"],
    "Prod": REDUCTIONS["prod"],
    "Max": REDUCTIONS["max"],
    "Min": REDUCTIONS["min"],
    "EuclideanNorm": REDUCTIONS["l2"],
    "All": _flag("min"),
    "Any": _flag("max"),
}


@translates(*_REDUCED)
def reduced(n: Any, x: Value, axes: Value) -> Tensor:
    t = n.g.tensor(x)
    dims = dims_of(n.g, t, n.g.ints(axes))
    return n.g.ones(reduce_over(t, dims, _REDUCED[n.op], bool(n.attr("keep_dims", False))))


@translates("L2Loss")
def l2_loss(n: Any, x: Value) -> Tensor:
    t = n.g.tensor(x)
    made = reduce_over(t, range(t.rank), REDUCTIONS["sumsquare"], False)
    return Tensor(made.op * 0.5, made.dims)


@translates("ArgMax", "ArgMin")
def arg_best(n: Any, x: Value, axis: Value) -> Tensor:
    t = n.g.tensor(x)
    (k,) = dims_of(n.g, t, n.g.ints(axis))
    to = as_dtype(n.attr("output_type", np.dtype(np.int64)))
    return reduce_over(t, [k], lambda op, axes: e.cast(reductions.best(op, axes, n.op[3:].lower()), to), False)


@translates("Cumsum", "Cumprod")
def cumulated(n: Any, x: Value, axis: Value) -> Tensor:
    t = n.g.tensor(x)
    (k,) = dims_of(n.g, t, n.g.ints(axis))
    kind = "add" if n.op == "Cumsum" else "multiply"
    return reductions.cumulated(t, k, kind, bool(n.attr("exclusive", False)), bool(n.attr("reverse", False)))


@translates("CumulativeLogsumexp")
def cumulated_exponentials(n: Any, x: Value, axis: Value) -> Tensor:
    g, back = n.g, bool(n.attr("reverse", False))
    t = g.tensor(x)
    (k,) = dims_of(g, t, g.ints(axis))
    if n.attr("exclusive", False):  # of what stands before each, which is nothing before the first one
        t = padded(g, sliced(g, t, k, int(back), 1, t.shape[k] - 1), k, int(not back), int(back), pad_value=t.op.dtype.lowest)
    t = g.full(t, [k])
    return g.made(logcumsumexp(t.op, t.dims[k], back), t.dims)


@translates("Cross")
def cross(n: Any, a: Value, b: Value) -> Tensor:
    g, t, u = n.g, n.g.tensor(a), n.g.tensor(b)
    x, y = ([at(g, v, v.rank - 1, k) for k in range(3)] for v in (t, u))
    made = [by_element.each(g, lambda p, q, r, s: p * q - r * s, x[i], y[j], x[j], y[i]) for i, j in ((1, 2), (2, 0), (0, 1))]
    return stacked(g, list(made), t.rank - 1)


@translates("Softmax", "LogSoftmax")
def softmax(n: Any, x: Value) -> Tensor:
    t = n.g.tensor(x)
    return Tensor(reductions.softmax(t.op, reductions.along(t, [t.rank - 1]), n.op == "LogSoftmax"), t.dims)


def _cross_entropy(n: Any, logits: Value, labels: Callable[[Tensor], Op]) -> tuple[Tensor, Tensor]:
    """The losses of rows, and their derivatives by the logits; labels: shares of the classes, along the axes of the logits."""
    t = n.g.full(n.g.tensor(logits), [logits.rank - 1])
    axes = (t.dims[-1],)
    shares = labels(t)
    log = reductions.softmax(t.op, axes, True)
    loss = Tensor(-reductions.total(shares * log, axes), t.dims[:-1])
    return n.g.made(loss.op, loss.dims), n.g.made(e.exp(log) - shares, t.dims)


@translates("SoftmaxCrossEntropyWithLogits", results="loss backprop")
def cross_entropy(n: Any, logits: Value, labels: Value) -> tuple[Tensor, Tensor]:
    g = n.g
    shape = broadcast_shape(g, logits.shape, labels.shape)
    t = g.full(g.expanded(g.tensor(logits), shape))
    return _cross_entropy(n, t, lambda at: g.renamed(g.full(g.expanded(g.tensor(labels), shape)), at.dims).op)


@translates("SparseSoftmaxCrossEntropyWithLogits", results="loss backprop")
def sparse_cross_entropy(n: Any, logits: Value, labels: Value) -> tuple[Tensor, Tensor]:
    def shares(t: Tensor) -> Op:
        i = n.g.tensor(labels)
        i = n.g.renamed(i, t.dims[:-1])
        return e.cast(e.equal(iota(t.dims[-1], i.op.dtype), i.op), t.op.dtype)

    return _cross_entropy(n, logits, shares)


# ---- products -----------------------------------------------------------------------------------------------------------


@translates("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "SparseMatMul")
def matmul(n: Any, a: Value, b: Value) -> Tensor:
    x, y = n.g.tensor(a), n.g.tensor(b)
    if n.attr("transpose_a", False) or n.attr("adj_x", False):
        x = turned(x)
    if n.attr("transpose_b", False) or n.attr("adj_y", False):
        y = turned(y)
    to = n.attr("Tout")
    if to is not None:  # the dtype of the sums, which may be wider than that of the operands
        x, y = (Tensor(e.cast(t.op, as_dtype(to)), t.dims) for t in (x, y))
    return products.matmul(n.g, x, y)


@translates("Einsum")
def einsum(n: Any, *xs: Value) -> Tensor:
    return products.einsum(n.g, n.attr("equation"), [n.g.tensor(x) for x in xs])


# ---- linear algebra -----------------------------------------------------------------------------------------------------


@translates("MatrixSquareRoot", python=True)
def matrix_root(n: Any, x: Value) -> Value:
    return in_python(n, factors.square_root, [x], [x.np])[0]


@translates("Cholesky")
def cholesky(n: Any, x: Value) -> Tensor:
    t, i, j = factors.matrices(n.g, x)
    return n.g.made(linalg.cholesky(t.op, i, j), t.dims)


@translates("MatrixDeterminant")
def determinant(n: Any, x: Value) -> Tensor:
    return factors.determinant(n.g, x)


@translates("LogMatrixDeterminant", results="sign log_abs_determinant")
def log_determinant(n: Any, x: Value) -> tuple[Tensor, ...]:
    t, i, j = factors.matrices(n.g, x)
    return tuple(n.g.made(op, t.dims[:-2]) for op in linalg.slogdet(t.op, i, j))


@translates("Lu", results="lu p")
def lu(n: Any, x: Value) -> tuple[Tensor, ...]:
    t, i, j = factors.matrices(n.g, x)
    packed, order, _ = parts(factorisation.lu.build(t.op, rows=i, columns=j))
    to = as_dtype(n.attr("output_idx_type", np.dtype(np.int32)))
    return n.g.made(packed, t.dims), n.g.made(e.cast(order, to), t.dims[:-1])


@translates("SelfAdjointEigV2", results="e v")
def eigenvalues(n: Any, x: Value) -> tuple[Tensor, ...]:
    return factors.eigh(n.g, x)


@translates("Svd", results="s u v")
def singular_values(n: Any, x: Value) -> tuple[Value, ...]:
    if n.attr("full_matrices", False) and n.attr("compute_uv", True):

        def run(a: Any) -> Any:
            u, s, v = np.linalg.svd(a, full_matrices=True)
            return s, u, np.swapaxes(v, -1, -2)

        return tuple(n.g.host(n.op, run, [x], [x.np] * 3))
    u, s, v = factors.svd(n.g, x)
    return s, u, v


@translates("Qr", results="q r")
def qr(n: Any, x: Value) -> tuple[Value, ...]:
    if n.attr("full_matrices", False):
        return tuple(n.g.host(n.op, lambda a: tuple(np.linalg.qr(a, "complete")), [x], [x.np] * 2))
    return factors.qr(n.g, x)


@translates("MatrixInverse")
def inverse(n: Any, x: Value) -> Tensor:
    t, i, j = factors.matrices(n.g, x)
    if n.attr("adjoint", False):
        t, i, j = turned(t), j, i
    made = linalg.inv(t.op, i, j)  # has the columns' axis for its rows
    order = [j, i] if set(made.axes) >= {i, j} else [i, j]
    return n.g.made(made, [*t.dims[:-2], *order])


def _system(n: Any, a: Value, b: Value) -> tuple[Tensor, Tensor, Any]:
    """Matrices [..., i, k] and sides [..., i, r], with the axes of the batch in common."""
    (x, i, k), (y, _, _) = factors.matrices(n.g, a), factors.matrices(n.g, b)
    if n.attr("adjoint", False):
        x, i, k = turned(x), k, i
    (left, right), dims = n.g.meet([Tensor(x.op, [*x.dims, None]), Tensor(y.op, [*y.dims[:-1], None, y.dims[-1]])])
    assert dims[-3] == i and dims[-2] == k
    return left, right, dims


@translates("MatrixSolve")
def solve(n: Any, a: Value, b: Value) -> Tensor:
    x, y, dims = _system(n, a, b)
    return n.g.made(linalg.solve(x.op, y.op, dims[-3], dims[-2]), [*dims[:-3], dims[-2], dims[-1]])


@translates("MatrixTriangularSolve")
def triangular_solve(n: Any, a: Value, b: Value) -> Tensor:
    x, y, dims = _system(n, a, b)
    lower = bool(n.attr("lower", True)) != bool(n.attr("adjoint", False))
    return n.g.made(linalg.triangular_solve(x.op, y.op, dims[-3], dims[-2], lower), [*dims[:-3], dims[-2], dims[-1]])


@translates("TridiagonalSolve")
def tridiagonal_solve(n: Any, diagonals: Value, b: Value) -> Tensor:
    """Returns the solutions of systems whose matrices have three diagonals, [..., 3, rows]: above the main one, it, and below it."""
    if n.attr("perturb_singular", False):
        raise UnsupportedError("TridiagonalSolve with perturb_singular=True", fix="solve systems that are not singular")
    g, (y, _, _) = n.g, factors.matrices(n.g, b)
    three = [at(g, g.tensor(diagonals), diagonals.rank - 2, k) for k in range(3)]
    *three, side = g.meet([*(Tensor(t.op, [*t.dims, None]) for t in three), y])[0]
    made = factors.tridiagonal_solve([t.op for t in three], side.op, side.dims[-2], bool(n.attr("partial_pivoting", True)))
    return g.made(made, side.dims)


@translates("TridiagonalMatMul")
def tridiagonal_product(n: Any, above: Value, main: Value, below: Value, b: Value) -> Tensor:
    """Returns the product of matrices with three diagonals, [..., 1, rows], and of others."""
    g, y = n.g, n.g.full(n.g.tensor(b), [b.rank - 2])
    k, rows = y.rank - 2, y.shape[-2]
    next_, last = (padded(g, sliced(g, y, k, *cut), k, *by) for cut, by in (((1, 1, rows - 1), (0, 1)), ((0, 1, rows - 1), (1, 0))))
    made = [by_element.each(g, e.multiply, turned(g.tensor(v)), t) for v, t in ((above, next_), (main, y), (below, last))]
    return by_element.folded(g, e.add, made)


@translates("Ndtri")
def normal_quantile(n: Any, x: Value) -> Tensor:
    return by_element.alone(n.g, lambda p: special.erfinv(p * 2.0 - 1.0) * math.sqrt(2.0), x)


@translates("LinSpace")
def linspace(n: Any, start: Value, stop: Value, num: Value) -> Value:
    first, last = (n.g.known(v) for v in (start, stop))
    (many,) = n.g.ints(num)
    return ConstantArray(np.linspace(first, last, many, dtype=first.dtype))

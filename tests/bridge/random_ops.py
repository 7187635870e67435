"""Ops of TensorFlow drawn at random: for each a function that draws its inputs and attributes, and a run beside TensorFlow.

`CASES` has the functions by op, `LEFT_OUT` the ops that are not drawn, by the reason. A case is one op in a graph of its own, with its
inputs fed, or constants where the importer says so; `compare` gives it to TensorFlow's session and to `ng.tensorflow.load`.
"""

import os
import tempfile
import zlib

import ml_dtypes
import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_library, op_def_registry

import ngraph as ng
from ngraph.frontends.tensorflow import support

v1 = tf.compat.v1
TYPES = "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()
FLOATS = TYPES[:4]
COMPLEX = ["complex64", "complex128"]
INTS = TYPES[4:-1]
WIDE = ["float32", "float64"]
BY_NAME = {name: np.dtype(getattr(ml_dtypes, name, None) or name) for name in TYPES}
PRECISION = {"float64": 1e-10, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}  # relative differences that are rounding
SUMS = {"float64": 1e-10, "float32": 2e-5, "float16": 1.2e-2, "bfloat16": 8e-2}  # where TensorFlow rounds partial results as well


class Known(np.ndarray):
    """An array that is a constant of the graph."""


def known(array, dtype=None):
    """Returns an array as a constant of the graph."""
    return np.asarray(array, dtype).view(Known)


class Skip(Exception):
    """What was drawn is no case."""


class Draw:
    """Random choices for one case of an op."""

    def __init__(self, op, seed):
        self.op, self.seed = op, seed
        self.r = np.random.default_rng([zlib.crc32(op.encode()), seed])
        self.definition = op_def_registry.get(op)
        self.loose = False

    def one(self, choices):
        """Returns one of several."""
        choices = list(choices)
        return choices[self.r.integers(len(choices))]

    def maybe(self, chance=0.5):
        """Returns whether something with this chance happens."""
        return bool(self.r.random() < chance)

    def dtype(self, attr="T", only=TYPES):
        """Returns one of the dtypes that an attribute of the op allows; float32 most often."""
        said = next(a for a in self.definition.attr if a.name == attr)
        allowed = [tf.as_dtype(t).name for t in said.allowed_values.list.type]
        there = [t for t in only if not allowed or t in allowed]
        return "float32" if "float32" in there and self.maybe(0.3) else self.one(there)

    def shape(self, rank=None, low=1, high=6, most=4):
        """Returns lengths."""
        rank = int(self.r.integers(0, most + 1)) if rank is None else rank
        return [int(s) for s in self.r.integers(low, high + 1, rank)]

    def array(self, dtype, shape, low=-4.0, high=4.0, special=False):
        """Returns numbers within bounds; special: with some that are not finite, or at the ends of the dtype."""
        if dtype.startswith("complex"):
            return (self.array("float64", shape, low, high) + 1j * self.array("float64", shape, low, high)).astype(dtype)
        kind = BY_NAME[dtype]
        if dtype == "bool":
            return self.r.random(shape) < 0.5
        if dtype in INTS:
            ends = np.iinfo(kind)
            a = self.r.integers(max(int(np.floor(low)), ends.min), max(min(int(high), ends.max), 0) + 1, shape).astype(kind)
            extremes = [ends.min, ends.max, 0]
        else:
            a = np.asarray(self.r.uniform(low, high, shape)).astype(kind)
            extremes = [np.inf, -np.inf, np.nan, 0.0, -0.0]
        if special and a.size:
            flat = a.reshape(-1)
            for k in self.r.integers(0, a.size, max(1, a.size // 4)):
                flat[k] = self.one(extremes)
        return a

    def indices(self, shape, many, dtype=None):
        """Returns numbers from 0 below `many`."""
        if many == 0 and np.prod(shape):
            raise Skip
        return np.asarray(self.r.integers(0, max(many, 1), shape)).astype(dtype or self.one(["int32", "int64"]))

    def broadcast(self, shape):
        """Returns a shape that broadcasts with this one."""
        shape = [1 if self.maybe(0.3) else s for s in shape]
        return shape[self.r.integers(0, len(shape) + 1) :] if self.maybe(0.4) else shape

    def axes(self, rank, some=None):
        """Returns axes without repetition, negative ones as well."""
        many = int(self.r.integers(0, rank + 1)) if some is None else some
        return [int(k) - rank * self.maybe(0.3) for k in self.r.permutation(rank)[:many]]


CASES = {}
LOOSE = set()


def case(*ops, loose=False):
    """Registers the function under it for ops. loose: results are sums whose partial results TensorFlow may round."""

    def add(function):
        for op in ops:
            assert op not in CASES, op
            CASES[op] = function
            if loose:
                LOOSE.add(op)
        return function

    return add


def split(text):
    return text.split()


# ---- elements -----------------------------------------------------------------------------------------------------------

DOMAINS = {
    "Exp": (-6, 4), "Expm1": (-6, 4), "Sinh": (-4, 4), "Cosh": (-4, 4), "Asin": (-1, 1), "Acos": (-1, 1), "Atanh": (-0.95, 0.95),
    "Erfinv": (-0.95, 0.95), "Ndtri": (0.03, 0.97), "Acosh": (1.05, 9), "Log": (0.05, 9), "Sqrt": (0, 9), "Rsqrt": (0.1, 9),
    "Lgamma": (0.2, 9), "Digamma": (0.2, 9), "Reciprocal": (0.3, 4), "Inv": (0.3, 4), "Log1p": (-0.8, 9), "Tan": (-1.4, 1.4),
}  # fmt: skip
UNARY = split(
    "Abs Neg Sign Square Sqrt Rsqrt Reciprocal Inv Exp Expm1 Log Log1p Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Tanh Sigmoid "
    "Erf Erfc Erfinv Lgamma Digamma Floor Ceil Round Rint Relu Relu6 Elu Selu Softplus Softsign IsNan IsInf IsFinite LogicalNot Invert "
    "Ndtri ZerosLike OnesLike Identity StopGradient PreventGradient Snapshot DeepCopy"
)


@case(*UNARY)
def unary(d):
    floats = d.op in split("Round Reciprocal Inv")  # of integers TensorFlow rounds to 0, or has no kernel
    dtype = "bool" if d.op == "LogicalNot" else d.dtype(only=FLOATS if floats else TYPES)
    if (d.op, dtype) == ("Softplus", "bfloat16"):
        raise Skip("TensorFlow gives x itself from 2.85 on")
    low, high = DOMAINS.get(d.op, (-9, 9))
    exact = d.op in split("Lgamma Digamma Erf")  # poles are left to the samples of the ops themselves; TensorFlow's erf of -inf is NaN
    return [d.array(dtype, d.shape(), low, high, special=not exact and d.maybe(0.4))], {}


@case("NextAfter")
def next_after(d):
    shape, dtype = d.shape(), d.dtype(only=WIDE)
    x = d.array(dtype, shape, -2, 2, special=True)
    return [x, x.copy() if d.maybe(0.2) else d.array(dtype, d.broadcast(shape), -2, 2, special=True)], {}


@case("MatrixSquareRoot")
def matrix_root(d):
    dtype, n = d.dtype(only=WIDE), int(d.r.integers(1, 6))
    x = d.array(dtype, [*d.shape(most=2, high=3), n, n], -1, 1)
    return [(x @ np.swapaxes(x, -1, -2) + np.triu(np.ones((n, n))) + np.eye(n)).astype(dtype)], {}


@case("StatelessMultinomial")
def stateless_multinomial(d):
    logits = d.array(d.one(["float32", "float64", "float16"]), d.shape(2, high=7), -3, 3)
    logits.ravel()[:: d.one([3, 99])] = -np.inf
    logits[:, -1] = 0
    seed = np.asarray(d.r.integers(-(2**31), 2**31 - 1, 2)).astype(d.one(["int32", "int64"]))
    return [logits, known(d.r.integers(1, 20), "int32"), seed], {"output_dtype": d.one([tf.int32, tf.int64])}


@case("SparseReduceSum")
def sparse_sum(d):
    shape = d.shape(int(d.r.integers(1, 4)))
    there = d.r.random(shape) < 0.5
    values = d.array(d.one(["float32", "float64", "int32", "int64"]), [int(there.sum())])
    axes = known(d.axes(len(shape)), "int32")
    return [np.argwhere(there).astype("int64"), values, known(shape, "int64"), axes], {"keep_dims": d.maybe()}


@case(*(f"Bessel{kind}" for kind in split("I0 I0e I1 I1e J0 J1 K0 K0e K1 K1e Y0 Y1")))
def bessel(d):
    low = 0.02 if d.op[6] in "KY" else -30
    dtype = d.dtype(only=WIDE if d.op.endswith(("0", "1")) else FLOATS)  # of 16-bit floats beyond 65504 TensorFlow gives infinity
    return [d.array(dtype, d.shape(), low, 30)], {}


@case("Igamma", "Igammac", "Betainc", "Zeta", "Polygamma")
def euler(d):
    """Whole numbers and bounds of the domains among others; TensorFlow's zeta and polygamma of negative numbers are not functions."""
    shape, dtype = d.shape(), d.dtype(only=WIDE)
    low, high = {"Zeta": (1.1, 9), "Polygamma": (0, 5)}.get(d.op, (0.05, 30))
    a = d.array(dtype, shape, low, high)
    a = np.floor(a) if d.op == "Polygamma" else a
    if d.op == "Betainc":
        return [a, d.array(dtype, shape, 0.05, 30), d.array(dtype, shape, 0, 1)], {}
    return [a, d.array(dtype, d.broadcast(shape), 0.05, 30)], {}


@case("IgammaGradA", "RandomGammaGrad")
def by_concentration(d):
    """Samples as they are drawn, and zeros among them."""
    shape, dtype = d.shape(), d.dtype(only=WIDE)
    a = np.exp(d.array(dtype, shape, -2, d.one([1, 3])))
    x = np.asarray(d.r.gamma(a)).astype(a.dtype)
    return [a, np.where(d.r.random(shape) < 0.1, x.dtype.type(0), x)], {}


@case("Dawsn", "Expint", "FresnelCos", "FresnelSin", "Spence")
def integrals(d):
    """Both sides of where the method changes; TensorFlow's of 16 bits overflow on the way, and its Expint of infinity is NaN."""
    low, high = {"Dawsn": (-9, 9), "Expint": (-0.5, 60), "Spence": (-0.2, 9)}.get(d.op, (-9, 9))
    dtype = d.dtype(only=WIDE)
    return [d.array(dtype, d.shape(), low, d.one([1, high]), special=d.op != "Expint" and d.maybe(0.2))], {}


@case("PopulationCount")
def bits(d):
    return [d.array(d.dtype(only=INTS), d.shape(), -9e9, 9e9, special=True)], {}


@case("TridiagonalSolve", "TridiagonalMatMul", loose=True)
def tridiagonal(d):
    dtype, of = d.dtype(only=WIDE), d.shape(most=2, high=3)
    rows, columns = d.shape(2, high=9)
    side = d.array(dtype, [*of, rows, columns])
    if d.op == "TridiagonalMatMul":
        return [*(d.array(dtype, [*of, 1, rows]) for _ in range(3)), side], {}
    diagonals, pivots = d.array(dtype, [*of, 3, rows], -1, 1), d.maybe()
    diagonals[..., 1, :] += 0 if pivots and rows > 3 else 3  # else a system may be singular
    return [diagonals, side], {"partial_pivoting": pivots}


@case("CheckNumerics", "LeakyRelu")
def alike(d):
    attrs = {"message": "x"} if d.op == "CheckNumerics" else {"alpha": float(d.one([0.0, 0.2, 1.5]))}
    return [d.array(d.dtype(), d.shape())], attrs


@case("Cast")
def cast(d):
    a, b = d.one(TYPES), d.one(TYPES)
    return [d.array(a, d.shape(), 0 if b.startswith("u") else -9, 99, special=b in FLOATS)], {"DstT": b}


@case("Bitcast")
def bitcast(d):
    a = d.one(TYPES[:-1])
    b = d.one([t for t in TYPES[:-1] if BY_NAME[t].itemsize == BY_NAME[a].itemsize])
    return [d.array(a, d.shape(), special=True)], {"type": b}


BINARY = split(
    "Add AddV2 Sub Mul MulNoNan Div RealDiv DivNoNan FloorDiv TruncateDiv FloorMod Mod TruncateMod Maximum Minimum SquaredDifference Atan2 "
    "Xdivy Xlogy Xlog1py Less LessEqual Greater GreaterEqual Equal NotEqual LogicalAnd LogicalOr BitwiseAnd BitwiseOr BitwiseXor LeftShift "
    "RightShift Pow"
)


@case(*BINARY)
def binary(d):
    dtype = "bool" if d.op.startswith("Logical") else d.dtype(only=FLOATS if d.op == "RealDiv" else TYPES)
    shape = d.shape()
    shapes = [shape, d.broadcast(shape)]
    if d.maybe():
        shapes.reverse()
    if d.op.startswith("Bitwise"):
        shapes[1] = shapes[0]
    low, high = (0.1, 4) if d.op == "Xlog1py" else (-9, 9)
    if dtype in INTS and d.op == "Pow":
        low, high = 0, 4
    division = "Div" in d.op or "Mod" in d.op
    special = d.maybe(0.4) and d.op not in ("Pow", "LeftShift", "RightShift") and (dtype in FLOATS or not division)
    a, b = (d.array(dtype, s, low, high, special) for s in shapes)
    if dtype in INTS and division:
        b = np.where(b == 0, np.array(1, b.dtype), b)
    if d.op in ("LeftShift", "RightShift"):
        b = d.array(dtype, shapes[1], 0, BY_NAME[dtype].itemsize * 8 - 1)
    if dtype in FLOATS and d.op == "Pow":
        a = np.abs(a) + a.dtype.type(0.1)
    if dtype in FLOATS and d.op == "Xdivy" and not special:
        a = np.where(a > 0, a, a.dtype.type(0))
    return [a, b], {}


@case(
    *split("ReluGrad Relu6Grad EluGrad SeluGrad SoftplusGrad SoftsignGrad SigmoidGrad TanhGrad SqrtGrad RsqrtGrad ReciprocalGrad InvGrad")
)
def grads(d):
    dtype, shape = d.dtype(), d.shape()
    low = 0.3 if d.op in ("SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad") else -4
    return [d.array(dtype, shape, low), d.array(dtype, shape, low)], {}


@case("LeakyReluGrad")
def leaky(d):
    dtype, shape = d.dtype(), d.shape()
    return [d.array(dtype, shape), d.array(dtype, shape)], {"alpha": float(d.one([0.2, 0.7]))}


@case("ApproximateEqual")
def nearly(d):
    dtype, shape = d.dtype(), d.shape()
    return [d.array(dtype, shape), d.array(dtype, shape)], {"tolerance": float(d.one([0.5, 2.5]))}


@case("AddN", "AccumulateNV2", loose=True)
def add_n(d):
    dtype, shape = d.dtype(), d.shape()
    attrs = {"shape": shape} if d.op == "AccumulateNV2" else {}
    return [[d.array(dtype, shape) for _ in range(d.r.integers(1, 5))]], attrs


@case("IdentityN")
def identities(d):
    return [[d.array(d.one(TYPES), d.shape()) for _ in range(d.r.integers(1, 4))]], {}


@case("Select", "SelectV2")
def select(d):
    dtype, shape = d.dtype(), d.shape()
    if d.op == "SelectV2":
        return [d.array("bool", d.broadcast(shape)), d.array(dtype, shape), d.array(dtype, d.broadcast(shape))], {}
    c = d.one([shape, [], shape[:1]])
    return [d.array("bool", c), d.array(dtype, shape), d.array(dtype, shape)], {}


@case("ClipByValue")
def clip(d):
    dtype, shape = d.dtype(), d.shape()
    bounds = shape if d.maybe(0.3) else []
    return [d.array(dtype, shape, -9, 9), d.array(dtype, bounds, 0, 2), d.array(dtype, bounds, 2, 5)], {}


@case("BiasAdd", "BiasAddV1")
def bias(d):
    dtype, shape = d.dtype(), d.shape(rank=int(d.r.integers(2, 6)))
    form = d.one(["NHWC", "NCHW"]) if d.op == "BiasAdd" and len(shape) > 2 else "NHWC"
    attrs = {"data_format": form} if d.op == "BiasAdd" else {}
    return [d.array(dtype, shape), d.array(dtype, [shape[1 if form == "NCHW" else -1]])], attrs


@case("BiasAddGrad", loose=True)
def bias_grad(d):
    return [d.array(d.dtype(), d.shape(rank=int(d.r.integers(2, 6))))], {"data_format": d.one(["NHWC", "NCHW"])}


# ---- reductions ---------------------------------------------------------------------------------------------------------


@case("Sum", "Mean", "Prod", "Max", "Min", "EuclideanNorm", loose=True)
def reduce(d):
    dtype, shape = d.dtype(), d.shape(low=0 if d.maybe(0.1) else 1)
    low = -9 if d.op in ("Max", "Min", "Sum") else -2
    axes = d.axes(len(shape))
    if d.op in ("Max", "Min", "Mean") and 0 in shape:
        raise Skip
    axis = known(axes[0] if len(axes) == 1 and d.maybe() else axes, d.one(["int32", "int64"]))
    return [d.array(dtype, shape, low, 9 if low == -9 else 2, d.op in ("Max", "Min") and d.maybe(0.2)), axis], {"keep_dims": d.maybe()}


@case("All", "Any")
def flags(d):
    shape = d.shape(low=0 if d.maybe(0.1) else 1)
    return [d.r.random(shape) < d.one([0.1, 0.9]), known(d.axes(len(shape)), "int32")], {"keep_dims": d.maybe()}


@case("L2Loss", loose=True)
def l2(d):
    return [d.array(d.dtype(), d.shape())], {}


@case("ArgMax", "ArgMin")
def arg(d):
    shape = d.shape(rank=int(d.r.integers(1, 5)))
    dtype = d.dtype()
    a = d.array(dtype, shape, -3, 3)
    return [np.round(a.astype("float64")).astype(a.dtype) if dtype in FLOATS else a, known(d.axes(len(shape), 1)[0], "int32")], {
        "output_type": d.one(["int32", "int64", *(["int16", "uint16"] if d.op == "ArgMax" else [])])
    }


@case("Cumsum", "Cumprod", loose=True)
def cumulate(d):
    shape = d.shape(rank=int(d.r.integers(1, 5)))
    return [d.array(d.dtype(), shape, -2, 2), known(d.axes(len(shape), 1)[0], "int32")], {"exclusive": d.maybe(), "reverse": d.maybe()}


@case("Softmax", "LogSoftmax", loose=True)
def softmax(d):
    return [d.array(d.dtype(), d.shape(rank=int(d.r.integers(1, 4))), -9, 9)], {}


@case("SoftmaxCrossEntropyWithLogits", loose=True)
def cross(d):
    dtype, (m, n) = d.dtype(), d.shape(rank=2)
    a, b = d.one([([m, n], [m, n]), ([1, n], [m, n]), ([m, n], [1, n])])
    return [d.array(dtype, a), d.array(dtype, b, 0, 1)], {}


@case("SparseSoftmaxCrossEntropyWithLogits", loose=True)
def sparse_cross(d):
    m, n = d.shape(rank=2)
    return [d.array(d.dtype(), [m, n]), d.indices([m], n)], {}


# ---- products -----------------------------------------------------------------------------------------------------------


def _operands(d, m, k, n, left, right, batch=((), ())):
    shapes = [[*batch[0], *((k, m) if left else (m, k))], [*batch[1], *((n, k) if right else (k, n))]]
    return shapes


@case("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "SparseMatMul", loose=True)
def matmul(d):
    m, k, n = d.shape(rank=3, high=9)
    left, right = d.maybe(), d.maybe()
    if d.op in ("MatMul", "SparseMatMul"):
        dtype = d.one(WIDE[:1]) if d.op == "SparseMatMul" else d.dtype()
        return [d.array(dtype, s) for s in _operands(d, m, k, n, left, right)], {"transpose_a": left, "transpose_b": right}
    batch = d.shape(rank=int(d.r.integers(0, 3)))
    pair = (batch, batch if d.op == "BatchMatMul" else d.broadcast(batch))
    attrs = {"adj_x": left, "adj_y": right}
    if d.op == "BatchMatMulV3":
        ta, tb, to = d.one([("float32",) * 3, ("int8", "int8", "int32"), ("bfloat16", "bfloat16", "float32"), ("float64",) * 3])
        a, b = _operands(d, m, k, n, left, right, pair)
        most = 127 if ta == "int8" else 4  # sums go beyond int8
        return [d.array(ta, a, -most, most), d.array(tb, b, -most, most)], attrs | {"Tout": to}
    dtype = d.dtype()
    return [d.array(dtype, s) for s in _operands(d, m, k, n, left, right, pair)], attrs


@case("Einsum", loose=True)
def einsum(d):
    dtype = d.dtype(only=FLOATS[:2] + ["int32", "int64"])
    letters = {c: int(d.r.integers(1, 5)) for c in "abcdef"}
    equation = d.one(["ab,bc->ac", "abc,cd->abd", "abc,abd->acd", "ab,ab->", "ab->ba", "abcd,abed->abce", "...ab,...bc->...ac", "ab,c->abc",
                      "aab->b", "abc->b", "ab,cb->ca", "a,a->a"])  # fmt: skip
    inputs = []
    for part in equation.split("->")[0].split(","):
        plain = part.replace("...", "")
        inputs.append(d.array(dtype, [*([2, 3] if "..." in part else []), *[letters[c] for c in plain]]))
    return [inputs], {"equation": equation}


def _square(d, dtype, batch, n):
    a = d.array(dtype, [*batch, n, n], -1, 1)
    return a + (n + 1) * np.eye(n, dtype=a.dtype)


@case("Cholesky", "MatrixDeterminant", "MatrixInverse", "MatrixSolve", "MatrixTriangularSolve", loose=True)
def linear(d):
    dtype, n, batch = d.dtype(only=WIDE), int(d.r.integers(1, 7)), d.shape(rank=int(d.r.integers(0, 3)), high=3)
    a = _square(d, dtype, batch, n)
    if d.op == "Cholesky":
        return [a @ np.swapaxes(a, -1, -2)], {}
    if d.op == "MatrixDeterminant":
        return [a], {}
    adjoint = {"adjoint": d.maybe()}
    if d.op == "MatrixInverse":
        return [a], adjoint
    b = d.array(dtype, [*batch, n, int(d.r.integers(1, 5))])
    return [a, b], adjoint | ({"lower": d.maybe()} if d.op == "MatrixTriangularSolve" else {})


@case("LinSpace")
def linspace(d):
    dtype = d.dtype(only=WIDE)
    return [known(d.array(dtype, [])), known(d.array(dtype, [])), known(d.r.integers(1, 9), "int32")], {}


# ---- layers -------------------------------------------------------------------------------------------------------------

LAYER_TYPES = ["float32", "float32", "float64", "float16", "bfloat16"]


def _ordered(lengths, last):
    """Returns lengths [batch, channels, spatial…] in a layout."""
    batch, channels, *sides = lengths
    return [batch, *sides, channels] if last else [batch, channels, *sides]


def _form(d, k):
    last = d.maybe(0.75)
    return last, {2: "NHWC" if last else "NCHW", 3: "NDHWC" if last else "NCDHW"}[k]


def _windows(d, k, explicit=True):
    """Returns sides, kernel, strides, dilations, paddings' attributes and the sides of the result."""
    kernel, strides = d.shape(k, high=4), d.shape(k, high=3)
    dilations = d.shape(k, high=2) if d.maybe(0.4) and strides == [1] * k or d.maybe(0.1) else [1] * k
    reach = [(n - 1) * q + 1 for n, q in zip(kernel, dilations, strict=True)]
    sides = [int(n + d.r.integers(0, 7)) for n in reach]
    padding = d.one(["SAME", "VALID", *(["EXPLICIT"] if explicit else [])])
    pads = [[int(v) for v in d.r.integers(0, n, 2)] for n in reach] if padding == "EXPLICIT" else [[0, 0]] * k
    if padding == "SAME":
        results = [-(-s // t) for s, t in zip(sides, strides, strict=True)]
    else:
        results = [(s + sum(p) - n) // t + 1 for s, p, n, t in zip(sides, pads, reach, strides, strict=True)]
    return sides, kernel, strides, dilations, padding, pads, results


def _attributes(last, form, strides, dilations, padding, pads):
    attrs = {"strides": _ordered([1, 1, *strides], last), "padding": padding, "data_format": form}
    if dilations is not None:
        attrs["dilations"] = _ordered([1, 1, *dilations], last)
    if padding == "EXPLICIT":
        attrs["explicit_paddings"] = [v for pair in _ordered([[0, 0], [0, 0], *pads], last) for v in pair]
    return attrs


CONVOLUTIONS = split(
    "Conv2D Conv2DBackpropInput Conv2DBackpropFilter Conv3D Conv3DBackpropInputV2 Conv3DBackpropFilterV2 DepthwiseConv2dNative "
    "DepthwiseConv2dNativeBackpropInput DepthwiseConv2dNativeBackpropFilter"
)


@case(*CONVOLUTIONS, loose=True)
def convolution(d):
    k, deep = 3 if "3D" in d.op else 2, d.op.startswith("Depth")
    last, form = _form(d, k)
    sides, kernel, strides, dilations, padding, pads, results = _windows(d, k, explicit=k == 2)
    if deep:
        strides, dilations = [strides[0]] * 2, [1, 1]  # TensorFlow's kernels on processors leave dilations out
        reach = [(n - 1) * q + 1 for n, q in zip(kernel, dilations, strict=True)]
        results = [-(-s // t) if padding == "SAME" else (s + sum(p) - n) // t + 1
                   for s, p, n, t in zip(sides, pads, reach, strides, strict=True)]  # fmt: skip
    if d.op == "Conv2D" and padding == "SAME" and len(set(strides)) > 1 and any(n >= s for n, s in zip(kernel, sides, strict=True)):
        raise Skip("TensorFlow's Conv2D reads beyond an image that a window covers, where strides differ")
    groups = int(d.one([1, 1, 1, 2])) if d.op == "Conv2D" else 1
    batch, depth, many = d.shape(3, high=4)
    channels = depth * groups
    filters = [*kernel, depth, many if deep else many * groups]
    out = depth * many if deep else many * groups
    dtype = d.one([t for t in LAYER_TYPES if t != "bfloat16" or not deep])
    attrs = _attributes(last, form, strides, dilations, padding, pads)
    x, w, y = _ordered([batch, channels, *sides], last), filters, _ordered([batch, out, *results], last)
    if "Input" in d.op:
        return [known(x, "int32"), d.array(dtype, w, -1, 1), d.array(dtype, y, -1, 1)], attrs
    if "Filter" in d.op:
        return [d.array(dtype, x, -1, 1), known(w, "int32"), d.array(dtype, y, -1, 1)], attrs
    return [d.array(dtype, x, -1, 1), d.array(dtype, w, -1, 1)], attrs


POOLS = split("MaxPool AvgPool MaxPool3D AvgPool3D MaxPoolV2 MaxPoolGrad AvgPoolGrad MaxPool3DGrad AvgPool3DGrad")
POOLS += split("MaxPoolGradV2 MaxPoolGradGrad MaxPoolGradGradV2 MaxPool3DGradGrad")


@case(*POOLS, loose=True)
def pool(d):
    k = 3 if "3D" in d.op else 2
    last, form = _form(d, k)
    sides, kernel, strides, _, padding, pads, results = _windows(d, k, explicit=d.op in ("MaxPool", "MaxPoolGrad"))
    reach = kernel
    if padding == "EXPLICIT":
        pads = [[min(a, n - 1), min(b, n - 1)] for (a, b), n in zip(pads, kernel, strict=True)]
    results = [-(-s // t) if padding == "SAME" else (s + sum(p) - n) // t + 1
               for s, p, n, t in zip(sides, pads, reach, strides, strict=True)]  # fmt: skip
    if min(results) < 1:
        raise Skip
    attrs = _attributes(last, form, strides, None, padding, pads) | {"ksize": _ordered([1, 1, *kernel], last)}
    batch, channels = d.shape(2, high=4)
    dtype = d.one(["float32", "float32", "float64", "float16", "bfloat16"])
    x = d.array(dtype, _ordered([batch, channels, *sides], last))
    if d.op == "MaxPool3DGrad" or "GradGrad" in d.op:  # without equal numbers, of which TensorFlow takes another one than in two dims
        x = d.r.permutation(x.size).reshape(x.shape).astype(np.float32)
    shape = _ordered([batch, channels, *results], last)
    dy = d.array(x.dtype.name, x.shape if "GradGrad" in d.op else shape)
    if d.op == "MaxPoolV2":
        return [x, known(attrs.pop("ksize"), "int32"), known(attrs.pop("strides"), "int32")], attrs
    if d.op.startswith("AvgPool") and "Grad" in d.op:
        return [known(x.shape, "int32"), dy], attrs
    if "Grad" in d.op:
        forward = tf.raw_ops.MaxPool3D if "3D" in d.op else tf.raw_ops.MaxPool
        try:
            y = forward(input=tf.constant(x), **attrs).numpy()
        except (tf.errors.OpError, NotImplementedError, TypeError) as error:  # it has no kernel of this dtype and layout
            raise Skip(str(error)) from error
        given = [known(attrs.pop(name), "int32") for name in ("ksize", "strides")] if d.op.endswith("V2") else []
        return [x, y, dy, *given], attrs
    return [x], attrs


@case("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", loose=True)
def batch_norm(d):
    dtype = "float32" if d.op == "FusedBatchNorm" else d.one(["float32", "float32", "float16", "bfloat16"])
    training, (last, form) = d.maybe(), _form(d, 3 if d.op.endswith("V3") and d.maybe(0.3) else 2)
    batch, channels, *sides = d.shape(5 if "D" in form else 4)
    share = float(d.one([1.0, 1.0, 0.3])) if training else 1.0
    x = d.array(dtype, _ordered([batch, channels, *sides], last))
    rows = [d.array("float32", [channels], *ends) for ends in ((0.5, 2), (-1, 1), (-1, 1), (0.5, 2))]
    if training and share == 1.0:
        rows[2:] = [np.zeros(0, np.float32)] * 2
    return [x, *rows], {"epsilon": 0.01, "data_format": form, "is_training": training, "exponential_avg_factor": share}


@case("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3", loose=True)
def batch_norm_grad(d):
    dtype = "float32" if not d.op[-2] == "V" else d.one(["float32", "float32", "float16", "bfloat16"])
    training, (last, form) = d.maybe(), _form(d, 2)
    batch, channels, *sides = d.shape(4)
    x, dy = (d.array(dtype, _ordered([batch, channels, *sides], last)) for _ in range(2))
    scale, offset, mean, variance = (d.array("float32", [channels], *ends) for ends in ((0.5, 2), (-1, 1), (-1, 1), (0.5, 2)))
    more = []
    if d.op.endswith("V3"):
        more = [np.zeros(0, np.float32)]
    if training:
        made = tf.raw_ops.FusedBatchNormV3(x=x, scale=scale, offset=offset, mean=[], variance=[], epsilon=0.01, data_format=form)
        mean, variance = made.reserve_space_1.numpy(), made.reserve_space_2.numpy()
        more = more and [made.reserve_space_3.numpy()]
    return [dy, x, scale, mean, variance, *more], {"epsilon": 0.01, "data_format": form, "is_training": training}


@case("LRN", "LRNGrad", loose=True)
def lrn(d):
    attrs = {"depth_radius": int(d.r.integers(1, 4)), "bias": 1.5, "alpha": 0.3, "beta": float(d.one([0.5, 0.7]))}
    x = d.array(d.dtype(only=["float32"]), d.shape(4))
    return [x] if d.op == "LRN" else [d.array("float32", x.shape), x, tf.raw_ops.LRN(input=x, **attrs).numpy()], attrs


@case("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", loose=True)
def resize(d):
    corners = d.maybe(0.3)
    sizes = known(d.shape(2, high=9), "int32")
    return [d.array(d.dtype(), d.shape(4, high=7), -4, 100), sizes], {
        "align_corners": corners,
        "half_pixel_centers": not corners and d.maybe(),
    }


@case("ResizeBilinearGrad", "ResizeNearestNeighborGrad", "ResizeBicubicGrad", loose=True)
def resize_gradient(d):
    corners, nearest = d.maybe(0.3), d.op == "ResizeNearestNeighborGrad"
    batch, channels = (int(k) for k in d.r.integers(1, 4, 2))
    small, large = d.shape(2, high=7), d.shape(2, high=9)
    dtype = d.one(["float32", "float64"])
    dy = d.array(dtype if nearest else "float32", [batch, *large, channels])
    like = known(small, "int32") if nearest else d.array(dtype, [batch, *small, channels])
    return [dy, like], {"align_corners": corners, "half_pixel_centers": not corners and d.maybe()}


@case("ResizeArea", loose=True)
def resize_area(d):
    return [d.array(d.dtype(), d.shape(4, high=7), -4, 100), known(d.shape(2, high=9), "int32")], {"align_corners": d.maybe(0.3)}


@case("ScaleAndTranslate", "ScaleAndTranslateGrad", loose=True)
def scale_and_translate(d):
    kernel = d.one(split("lanczos1 lanczos3 lanczos5 gaussian box triangle keyscubic mitchellcubic"))
    x, sizes = d.array(d.dtype(), d.shape(4, high=9), -4, 100), d.shape(2, high=9)
    if d.maybe():  # as tf.image.resize has it, where kernels end just at elements
        numbers = [known(np.divide(sizes, x.shape[1:3]).astype("float32")), known(np.zeros(2, "float32"))]
    else:
        numbers = [known(d.array("float32", [2], *ends)) for ends in ((0.3, 3), (-2, 2))]
    attrs = {"kernel_type": kernel, "antialias": d.maybe()}
    if d.op.endswith("Grad"):
        return [d.array("float32", [x.shape[0], *sizes, x.shape[3]]), x.astype("float32"), *numbers], attrs
    return [x, known(sizes, "int32"), *numbers], attrs


# ---- shapes -------------------------------------------------------------------------------------------------------------


@case("Shape", "Size")
def shape_of(d):
    return [d.array(d.one(TYPES), d.shape())], {"out_type": d.one(["int32", "int64"])}


@case("Rank")
def rank(d):
    return [d.array(d.one(TYPES), d.shape())], {}


@case("ShapeN")
def shapes(d):
    dtype = d.one(TYPES)
    return [[d.array(dtype, d.shape()) for _ in range(d.r.integers(1, 4))]], {"out_type": d.one(["int32", "int64"])}


@case("Reshape")
def reshape(d):
    shape = d.shape(low=0 if d.maybe(0.1) else 1)
    many = int(np.prod(shape))
    new = d.one([[many], [-1], [*shape, 1], [1, *shape], shape[::-1], [*shape[:-2], -1] if shape else [1], [1, -1]])
    if many == 0 and -1 in new:
        raise Skip
    return [d.array(d.one(TYPES), shape), known(new, d.one(["int32", "int64"]))], {}


@case("EnsureShape")
def ensure(d):
    shape = d.shape()
    return [d.array(d.one(TYPES), shape)], {"shape": [None if d.maybe() else s for s in shape]}


@case("ExpandDims")
def expand(d):
    shape = d.shape()
    return [d.array(d.one(TYPES), shape), known(d.r.integers(-len(shape) - 1, len(shape) + 1), d.one(["int32", "int64"]))], {}


@case("Squeeze")
def squeeze(d):
    shape = [1 if d.maybe() else s for s in d.shape()]
    ones = [k - len(shape) * d.maybe(0.3) for k, s in enumerate(shape) if s == 1]
    return [d.array(d.one(TYPES), shape)], {"squeeze_dims": ones[: d.r.integers(0, len(ones) + 1)]}


@case("Transpose", "ConjugateTranspose")
def transpose(d):
    shape = d.shape()
    if not shape and d.op == "ConjugateTranspose":
        raise Skip("TensorFlow ends the process")
    return [d.array(d.one(TYPES), shape), known(d.r.permutation(len(shape)), d.one(["int32", "int64"]))], {}


@case("BroadcastTo")
def broadcast_to(d):
    shape = d.shape()
    return [d.array(d.one(TYPES), d.broadcast(shape)), known(shape, d.one(["int32", "int64"]))], {}


@case("BroadcastArgs", "BroadcastGradientArgs")
def broadcast_args(d):
    shape = d.shape()
    dtype = d.one(["int32", "int64"])
    pair = [known(shape, dtype), known(d.broadcast(shape), dtype)]
    return pair[:: d.one([1, -1])], {}


@case("Tile")
def tile(d):
    shape = d.shape()
    return [d.array(d.one(TYPES), shape), known(d.r.integers(0 if d.maybe(0.1) else 1, 4, len(shape)), d.one(["int32", "int64"]))], {}


@case("Fill")
def fill(d):
    return [known(d.shape(), d.one(["int32", "int64"])), d.array(d.one(TYPES), [])], {}


@case("Range")
def range_(d):
    dtype = d.dtype("Tidx", only=["float32", "float64", "int32", "int64", "int8", "int16", "uint16"])
    step = d.one([1, 2, 3] if dtype[0] == "u" else [1, 2, 3, -1, -2])
    ends = sorted([int(v) for v in d.r.integers(0, 20, 2)], reverse=step < 0)
    more = 0.5 if dtype in FLOATS and d.maybe() else 0
    return [known(ends[0] + more, dtype), known(ends[1], dtype), known(step, dtype)], {}


@case("StridedSlice", "StridedSliceGrad", "TensorStridedSliceUpdate", "StridedSliceAssign", "ResourceStridedSliceAssign")
def strided(d):
    shape = d.shape(rank=int(d.r.integers(1, 5)))
    begin, end, strides, masks = [], [], [], dict.fromkeys(("begin", "end", "ellipsis", "new_axis", "shrink_axis"), 0)
    at, dims = 0, len(shape)
    named = int(d.r.integers(1, dims + 1))
    ellipsis = d.maybe(0.3)
    place = int(d.r.integers(0, named + 1))
    for k in range(named):
        if ellipsis and k == place:
            masks["ellipsis"] |= 1 << len(begin)
            begin, end, strides = [*begin, 0], [*end, 0], [*strides, 1]
            at = dims - (named - k)
        if d.maybe(0.15):
            masks["new_axis"] |= 1 << len(begin)
            begin, end, strides = [*begin, 0], [*end, 0], [*strides, 1]
        n = shape[at]
        bit = 1 << len(begin)
        if d.maybe(0.25):
            masks["shrink_axis"] |= bit
            begin.append(int(d.r.integers(-n, n)))
            end.append(begin[-1] + 1)
            strides.append(1)
        else:
            strides.append(int(d.one([1, 1, 2, -1, -2])))
            begin.append(int(d.r.integers(-n - 1, n + 2)))
            end.append(int(d.r.integers(-n - 1, n + 2)))
            masks["begin"] |= bit * d.maybe(0.4)
            masks["end"] |= bit * d.maybe(0.4)
        at += 1
    kind = d.one(["int32", "int64"])
    attrs = {f"{name}_mask": v for name, v in masks.items()}
    rows = [known(v, kind) for v in (begin, end, strides)]
    assigned = d.op.endswith("Assign")
    a = d.array(d.one(["float32", "float64", "int32"] if assigned else TYPES), shape)
    if d.op == "StridedSlice":
        return [a, *rows], attrs
    if assigned or d.op == "TensorStridedSliceUpdate":
        like = tf.raw_ops.StridedSlice(input=a, begin=rows[0], end=rows[1], strides=rows[2], **attrs)
        return [Variables([a]) if assigned else a, *rows, d.array(a.dtype.name, like.shape)], attrs
    a = d.array(d.one(FLOATS), shape)
    dy = tf.raw_ops.StridedSlice(input=a, begin=rows[0], end=rows[1], strides=rows[2], **attrs).numpy()
    return [known(shape, kind), *rows, dy], attrs


@case("Slice")
def slice_(d):
    shape = d.shape(low=0 if d.maybe(0.1) else 1)
    begin = [int(d.r.integers(0, s + 1)) for s in shape]
    size = [-1 if d.maybe(0.2) else int(d.r.integers(0, s - b + 1)) for s, b in zip(shape, begin, strict=True)]
    kind = d.one(["int32", "int64"])
    first = np.array(begin, kind)
    return [d.array(d.one(TYPES), shape), first if d.maybe(0.3) and -1 not in size else known(first), known(size, kind)], {}


@case("Split")
def split_(d):
    shape = d.shape(rank=int(d.r.integers(1, 5)))
    (k,) = d.axes(len(shape), 1)
    many = int(d.r.integers(1, 4))
    shape[k] *= many
    return [known(k, "int32"), d.array(d.one(TYPES), shape)], {"num_split": many}


@case("SplitV")
def split_v(d):
    shape = d.shape(rank=int(d.r.integers(1, 5)))
    (k,) = d.axes(len(shape), 1)
    sizes = [int(v) for v in d.r.integers(0, 4, d.r.integers(1, 4))]
    shape[k] = sum(sizes)
    if d.maybe(0.3):
        sizes[d.r.integers(len(sizes))] = -1
    return [d.array(d.one(TYPES), shape), known(sizes, d.one(["int32", "int64"])), known(k, "int32")], {"num_split": len(sizes)}


@case("Unpack")
def unpack(d):
    shape = d.shape(rank=int(d.r.integers(1, 5)))
    (k,) = d.axes(len(shape), 1)
    return [d.array(d.one(TYPES), shape)], {"num": shape[k], "axis": k}


@case("Pack", "ParallelConcat")
def pack(d):
    dtype, shape = d.one(TYPES), d.shape()
    many = int(d.r.integers(1, 4))
    if d.op == "ParallelConcat":
        return [[d.array(dtype, [1, *shape]) for _ in range(many)]], {"shape": [many, *shape]}
    return [[d.array(dtype, shape) for _ in range(many)]], {"axis": int(d.r.integers(-len(shape) - 1, len(shape) + 1))}


@case("ConcatV2", "Concat")
def concat(d):
    dtype, shape = d.one(TYPES), d.shape(rank=int(d.r.integers(1, 5)))
    (k,) = d.axes(len(shape), 1)
    parts = []
    for _ in range(d.r.integers(2, 5)):
        shape[k] = int(d.r.integers(0, 5))
        parts.append(d.array(dtype, list(shape)))
    axis = known(k, "int32")
    return [axis, parts] if d.op == "Concat" else [parts, axis], {}


@case("ConcatOffset")
def concat_offset(d):
    shape = d.shape(rank=int(d.r.integers(1, 5)))
    k = int(d.r.integers(len(shape)))
    parts = [known([*shape[:k], int(d.r.integers(0, 5)), *shape[k + 1 :]], "int32") for _ in range(d.r.integers(2, 5))]
    return [known(k, "int32"), parts], {}


@case("DynamicStitch", "ParallelDynamicStitch")
def stitch(d):
    dtype, rest, many = d.one(TYPES), d.shape(most=2), int(d.r.integers(1, 9))
    numbers = d.r.permutation(many)
    if d.op == "DynamicStitch":  # a number that stands twice has the last row
        numbers = np.concatenate([numbers, d.r.integers(0, many, int(d.r.integers(0, 4)))])
    parts = np.split(numbers, np.sort(d.r.integers(0, len(numbers) + 1, int(d.r.integers(0, 3)))))
    parts = [i.reshape(1, -1) if d.maybe(0.3) else i for i in parts]
    return [[known(i, "int32") for i in parts], [d.array(dtype, [*i.shape, *rest]) for i in parts]], {}


@case("Pad", "PadV2", "MirrorPad")
def pad(d):
    shape = d.shape(low=2)
    dtype = d.one(TYPES)
    mode = d.one(["REFLECT", "SYMMETRIC"])
    most = [4] * len(shape) if not d.op.startswith("MirrorPad") else [s + (mode == "SYMMETRIC") for s in shape]
    pads = known([[int(d.r.integers(0, m)) for _ in range(2)] for m in most], d.one(["int32", "int64"])).reshape(-1, 2)
    if d.op.startswith("MirrorPad"):
        return [d.array(dtype, shape), pads], {"mode": mode}
    return [d.array(dtype, shape), pads, *([known(d.array(dtype, []))] if d.op == "PadV2" else [])], {}


@case("MirrorPadGrad", loose=True)
def pad_gradient(d):
    (x, pads), attrs = pad(d)
    shape = [s + sum(ends) for s, ends in zip(x.shape, pads.tolist(), strict=True)]
    return [d.array(d.one(WIDE), shape), pads], attrs


@case("Reverse", "ReverseV2")
def reverse(d):
    shape = d.shape()
    a = d.array(d.one(TYPES), shape)
    if d.op == "Reverse":
        return [a, known(d.r.random(len(shape)) < 0.5)], {}
    return [a, known(d.axes(len(shape)), d.one(["int32", "int64"]))], {}


@case("ReverseSequence")
def reverse_sequence(d):
    shape = d.shape(rank=int(d.r.integers(2, 5)))
    b, s = (int(k) for k in d.r.permutation(len(shape))[:2])
    return [d.array(d.one(TYPES), shape), d.indices([shape[b]], shape[s] + 1)], {"seq_dim": s, "batch_dim": b}


@case("Roll")
def roll(d):
    shape = d.shape(rank=int(d.r.integers(1, 5)))
    axes = [int(k) for k in d.r.integers(-len(shape), len(shape), d.r.integers(1, 4))]
    kind = d.one(["int32", "int64"])
    return [d.array(d.one(TYPES), shape), known(d.r.integers(-9, 9, len(axes)), kind), known(axes, kind)], {}


@case("GatherV2", "Gather")
def gather(d):
    shape = d.shape(rank=int(d.r.integers(1, 5)))
    a = d.array(d.one(TYPES), shape)
    if d.op == "Gather":
        return [a, d.indices(d.shape(most=3), shape[0])], {}
    k = int(d.r.integers(len(shape)))
    batch = int(d.r.integers(0, k + 1)) if d.maybe(0.4) else 0
    i = d.indices([*shape[:batch], *d.shape(most=2)], shape[k])
    return [a, i, known(k - len(shape) * d.maybe(0.3), d.one(["int32", "int64"]))], {
        "batch_dims": batch - i.ndim * (batch < i.ndim and batch > 0 and d.maybe(0.3))
    }


def _places(d, shape, unique=False):
    """Returns indices [..., q] into the first q dims of a shape."""
    q = int(d.r.integers(1, len(shape) + 1))
    many = d.shape(rank=int(d.r.integers(1, 3)), high=4)
    kind = d.one(["int32", "int64"])
    if unique:
        total = int(np.prod(shape[:q]))
        many = [int(d.r.integers(1, total + 1))]
        return np.stack(np.unravel_index(d.r.permutation(total)[: many[0]], shape[:q]), -1).astype(kind)
    return np.stack([d.r.integers(0, s, many) for s in shape[:q]], -1).astype(kind)


@case("GatherNd")
def gather_nd(d):
    shape = d.shape(rank=int(d.r.integers(1, 5)))
    return [d.array(d.one(TYPES), shape), _places(d, shape)], {}


@case(*(f"TensorScatter{kind}" for kind in ("Update", "Add", "Sub", "Max", "Min")), "ScatterNd", "ScatterNdNonAliasingAdd", loose=True)
def scatter_nd(d):
    shape, dtype = d.shape(rank=int(d.r.integers(1, 5))), d.one(TYPES if d.op == "ScatterNd" else TYPES[:-1])
    i = _places(d, shape, unique=d.op.endswith("Update"))
    u = d.array(dtype, [*i.shape[:-1], *shape[i.shape[-1] :]])
    if d.op == "ScatterNd":
        return [i, u, known(shape, i.dtype)], {}
    return [d.array(dtype, shape), i, u], {}


@case("SegmentSum", *(f"UnsortedSegment{kind}" for kind in ("Sum", "Max", "Min", "Prod")), loose=True)
def segments(d):
    shape, dtype, many = d.shape(rank=int(d.r.integers(1, 4))), d.dtype(), int(d.r.integers(1, 6))
    if d.op == "SegmentSum":
        return [d.array(dtype, shape), known(np.sort(d.indices([shape[0]], many)))], {}
    rank = int(d.r.integers(1, len(shape) + 1))
    i = d.indices(shape[:rank], many)
    return [d.array(dtype, shape), np.where(d.r.random(i.shape) < 0.1, i.dtype.type(-1), i), known(many, d.one(["int32", "int64"]))], {}


@case("OneHot")
def one_hot(d):
    dtype, shape = d.one(TYPES), d.shape(most=3)
    i = (d.r.integers(-1, 5, shape)).astype(d.one(["int32", "int64", "int8"]))
    return [i, known(d.r.integers(1, 6), "int32"), d.array(dtype, []), d.array(dtype, [])], {"axis": int(d.r.integers(-1, len(shape) + 1))}


@case("ApproxTopK")
def nearly_best(d):
    shape = d.shape(rank=int(d.r.integers(1, 4)))
    x = d.r.permutation(int(np.prod(shape))).reshape(shape).astype("float32")
    return [x], {"k": int(d.r.integers(1, shape[-1] + 1))}


@case("TopKV2")
def top_k(d):
    shape = d.shape(rank=int(d.r.integers(1, 4)))
    a, k = d.array(d.dtype(), shape, -3, 3), int(d.r.integers(0, shape[-1] + 1))
    return [a, known(k, "int32")], {"sorted": True}


@case("Where")
def where(d):
    return [d.array(d.one(TYPES), d.shape(rank=int(d.r.integers(1, 4))), 0, 2)], {}


@case("Unique", "UniqueV2", "UniqueWithCounts")
def unique(d):
    a = d.array(d.one(INTS + FLOATS), d.shape(rank=1, high=9), 0, 4)
    a = np.round(a.astype(float)).astype(a.dtype)
    return [a, *([known([0] if d.maybe() else [], "int32")] if d.op == "UniqueV2" else [])], {"out_idx": d.one(["int32", "int64"])}


@case("InvertPermutation")
def invert(d):
    return [d.r.permutation(int(d.r.integers(1, 9))).astype(d.one(["int32", "int64"]))], {}


@case("DepthToSpace", "SpaceToDepth")
def blocks(d):
    by, last = int(d.r.integers(2, 4)), d.maybe(0.7)
    batch, channels, h, w = d.shape(4, high=3)
    lengths = [batch, channels * by * by, h, w] if d.op == "DepthToSpace" else [batch, channels, h * by, w * by]
    return [d.array(d.one(TYPES), _ordered(lengths, last))], {"block_size": by, "data_format": "NHWC" if last else "NCHW"}


@case("BatchToSpaceND", "SpaceToBatchND")
def to_batch(d):
    m = int(d.r.integers(1, 4))
    by, rest = d.shape(m, high=3), d.shape(int(d.r.integers(0, 3)))
    sides = [n + 1 for n in d.shape(m, high=3)]
    kind = d.one(["int32", "int64"])
    if d.op == "BatchToSpaceND":
        crops = [[int(d.r.integers(0, 2)) for _ in range(2)] for _ in range(m)]
        shape = [int(np.prod(by)) * int(d.r.integers(1, 3)), *sides, *rest]
        return [d.array(d.one(TYPES), shape), known(by, kind), known(crops, kind)], {}
    pads = []
    for n, b in zip(sides, by, strict=True):
        before = int(d.r.integers(0, 3))
        pads.append([before, -(n + before) % b])
    return [d.array(d.one(TYPES), [int(d.r.integers(1, 3)), *sides, *rest]), known(by, kind), known(pads, kind)], {}


@case("MatrixBandPart")
def band(d):
    shape = d.shape(rank=int(d.r.integers(2, 5)))
    kind = d.one(["int32", "int64"])
    bounds = [known(d.r.integers(-1, s + 1), kind) for s in shape[-2:]]
    return [d.array(d.one(TYPES), shape), *bounds], {}


@case("MatrixDiag")
def diagonal(d):
    return [d.array(d.one(TYPES), d.shape(rank=int(d.r.integers(1, 4))))], {}


@case("Diag")
def diag(d):
    return [d.array(d.one(WIDE + ["int32", "int64", "float16", "bfloat16"]), d.shape(rank=int(d.r.integers(1, 4)), high=3))], {}


@case("DiagPart")
def diag_part(d):
    half = d.shape(rank=int(d.r.integers(1, 3)), high=3)
    return [d.array(d.one(WIDE + ["int32", "int64", "float16", "bfloat16"]), half * 2)], {}


@case("MatrixDiagPart")
def diagonal_part(d):
    return [d.array(d.one(TYPES), d.shape(rank=int(d.r.integers(2, 5))))], {}


def _band(d, rows, columns):
    """Returns the first and the last diagonal."""
    first = int(d.r.integers(-rows + 1, columns))
    last = first if d.maybe() else int(d.r.integers(first, columns))
    return first, last


def _lengths(rows, columns, first, last):
    return [min(rows + min(k, 0), columns - max(k, 0)) for k in range(first, last + 1)]


@case("MatrixDiagV2", "MatrixDiagV3")
def diagonal_at(d):
    batch, (rows, columns) = d.shape(rank=int(d.r.integers(0, 3)), high=3), d.shape(2)
    first, last = _band(d, rows, columns)
    longest = max(_lengths(rows, columns, first, last))
    dtype = d.one([*TYPES, *COMPLEX])
    x = d.array(dtype, [*batch, *([last - first + 1] if last > first else []), longest])
    attrs = {"align": d.one(["RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT"])} if d.op.endswith("3") else {}
    k = known([first, last] if last > first or d.maybe(0.3) else first, "int32")
    given = [known(v if last > first or d.maybe() else -1, "int32") for v in (rows, columns)]
    return [x, k, *given, known(d.array(dtype, []))], attrs


@case("MatrixDiagPartV2", "MatrixDiagPartV3")
def diagonal_part_at(d):
    batch, (rows, columns) = d.shape(rank=int(d.r.integers(0, 3)), high=3), d.shape(2)
    first, last = _band(d, rows, columns)
    dtype = d.one([*TYPES, *COMPLEX])
    attrs = {"align": d.one(["RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT"])} if d.op.endswith("3") else {}
    k = known([first, last] if last > first else first, "int32")
    return [d.array(dtype, [*batch, rows, columns]), k, known(d.array(dtype, []))], attrs


@case("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3")
def set_diagonal(d):
    batch, (rows, columns) = d.shape(rank=int(d.r.integers(0, 3)), high=3), d.shape(2)
    dtype = d.one([*TYPES, *COMPLEX])
    x = d.array(dtype, [*batch, rows, columns])
    if d.op == "MatrixSetDiag":
        return [x, d.array(dtype, [*batch, min(rows, columns)])], {}
    first, last = _band(d, rows, columns)
    longest = max(_lengths(rows, columns, first, last))
    attrs = {"align": d.one(["RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT"])} if d.op.endswith("3") else {}
    diagonals = d.array(dtype, [*batch, *([last - first + 1] if last > first else []), longest])
    return [x, diagonals, known([first, last] if last > first else first, "int32")], attrs


@case("PlaceholderWithDefault")
def with_default(d):
    shape = d.shape()
    return [d.array(d.one(TYPES), shape)], {"shape": shape}


# ---- factors of matrices, whose signs are compared with those of TensorFlow through what they make --------------------------


@case("LogMatrixDeterminant", "Lu", loose=True)
def determinant(d):
    dtype, n, batch = d.dtype(only=WIDE), int(d.r.integers(1, 7)), d.shape(rank=int(d.r.integers(0, 3)), high=3)
    return [_square(d, dtype, batch, n)[..., d.r.permutation(n), :]], {"output_idx_type": d.one(["int32", "int64"])} if d.op == "Lu" else {}


@case("SelfAdjointEigV2", "Svd", "Qr", loose=True)
def factors(d):
    dtype, batch, (m, n) = d.dtype(only=WIDE), d.shape(rank=int(d.r.integers(0, 3)), high=3), d.shape(rank=2)
    if d.op == "SelfAdjointEigV2":
        a = d.array(dtype, [*batch, n, n])
        return [a + np.swapaxes(a, -1, -2)], {"compute_v": True}
    attrs = {"full_matrices": d.maybe(0.3)} | ({"compute_uv": True} if d.op == "Svd" else {})
    return [d.array(dtype, [*batch, m, n])], attrs


@case("Cross")
def cross_product(d):
    dtype, shape = d.dtype(), [*d.shape(most=3), 3]
    return [d.array(dtype, shape), d.array(dtype, shape)], {}


@case("CumulativeLogsumexp", loose=True)
def cumulated_exponentials(d):
    shape = d.shape(rank=int(d.r.integers(1, 5)))
    a = d.array(d.dtype(only=FLOATS[:3]), shape, -9, 9)
    return [a, known(d.axes(len(shape), 1)[0], "int32")], {"exclusive": d.maybe(), "reverse": d.maybe()}


# ---- images -------------------------------------------------------------------------------------------------------------


def _boxes(d, many, low=-0.2, high=1.2):
    return d.array("float32", [many, 4], low, high)


@case("CropAndResize")
def crop(d):
    batch, many = (int(k) for k in d.r.integers(1, 4, 2))
    x = d.array(d.one(["float32", "float32", "uint8", "int32", "float64", "float16"]), [batch, *d.shape(3, high=7)])
    attrs = {"method": d.one(["bilinear", "nearest"]), "extrapolation_value": float(d.one([0.0, 2.5]))}
    return [x, _boxes(d, many), d.indices([many], batch, "int32"), known(d.shape(2, high=5), "int32")], attrs


@case("CropAndResizeGradImage", "CropAndResizeGradBoxes", loose=True)
def crop_gradient(d):
    (x, boxes, numbers, sizes), attrs = crop(d)
    dy = d.array("float32", [len(boxes), *sizes.tolist(), x.shape[3]])
    if d.op.endswith("Image"):
        return [dy, boxes, numbers, known(x.shape, "int32")], {"T": tf.float32, "method": attrs["method"]}
    return [dy, x, boxes, numbers], {}


@case("ExtractGlimpse", "ExtractGlimpseV2")
def glimpse(d):
    attrs = {"centered": d.maybe(), "normalized": d.maybe(), "uniform_noise": False, "noise": "zero"}
    x, far = d.array("float32", d.shape(4, high=9)), 1.3 if attrs["normalized"] else 8
    return [x, known(d.shape(2, high=7), "int32"), d.array("float32", [len(x), 2], -far, far)], attrs


@case("ImageProjectiveTransformV2", "ImageProjectiveTransformV3")
def transformation(d):
    batch, way = int(d.r.integers(1, 4)), d.one(["NEAREST", "BILINEAR"])
    kinds = ["float32", "float64", "float16", "uint8", "int32"]  # between pixels, whole numbers are cut off just below or above one
    x = d.array(d.one(kinds if way == "NEAREST" else kinds[:2]), [batch, *d.shape(3, high=7)])
    moves = np.array([1, 0, 0, 0, 1, 0, 0, 0]) + d.r.normal(0, [0.3, 0.3, 2, 0.3, 0.3, 2, 0.02, 0.02], [d.one([1, batch]), 8])
    fill = [np.float32(d.one([0.0, 2.0]))] if d.op.endswith("3") else []
    modes = ["CONSTANT", "NEAREST", "REFLECT", "WRAP"]
    return [x, moves.astype("float32"), known(d.shape(2, high=6), "int32"), *fill], {"interpolation": way, "fill_mode": d.one(modes)}


@case("NonMaxSuppression", *(f"NonMaxSuppressionV{k}" for k in (2, 3, 4, 5)), "NonMaxSuppressionWithOverlaps")
def suppression(d):
    many = int(d.r.integers(1, 40))
    scores = d.r.permutation(many).astype("float32") / many  # no equal ones, of which any may come first
    limits = [np.float32(d.one([0.3, 0.5, 0.7])), np.float32(d.one([0.0, 0.4])), np.float32(d.one([0.0, 0.0, 0.6]))]
    count = {"NonMaxSuppression": 0, "NonMaxSuppressionV2": 1, "NonMaxSuppressionV5": 3}.get(d.op, 2)
    attrs = {"pad_to_max_output_size": d.maybe()} if d.op[-1] in "45" else {"iou_threshold": 0.4} if not count else {}
    boxes = d.array("float32", [many, many], 0, 1) if d.op.endswith("Overlaps") else _boxes(d, many)
    return [boxes, scores, np.int32(d.r.integers(1, 12)), *limits[:count]], attrs


@case("CombinedNonMaxSuppression")
def suppression_of_classes(d):
    batch, many, kinds = (int(k) for k in d.r.integers(1, (3, 20, 4)))
    q = d.one([1, kinds])
    boxes = d.array("float32", [batch, many, q, 4], -0.2, 1.2)
    boxes[..., 2:] = boxes[..., :2] + np.abs(boxes[..., 2:])
    scores = (d.r.permutation(batch * many * kinds) / (batch * many * kinds)).astype("float32").reshape(batch, many, kinds)
    limits = [np.float32(d.one([0.3, 0.6])), np.float32(d.one([0.0, 0.3]))]
    numbers = [known(d.r.integers(1, 6), "int32"), known(d.r.integers(1, 9), "int32")]
    return [boxes, scores, *numbers, *limits], {"pad_per_class": d.maybe(), "clip_boxes": d.maybe()}


@case("RGBToHSV", "HSVToRGB", "AdjustHue", "AdjustSaturation", "AdjustContrastv2")
def colours(d):
    dtype = d.one(["float32", "float32", "float16", *(["float64"] if d.op in ("RGBToHSV", "HSVToRGB") else [])])
    x = d.array(dtype, [*d.shape(rank=int(d.r.integers(2, 4))), 3], 0, 1)
    if d.maybe(0.2):
        x[..., 1] = x[..., 0]  # equal channels
    ends = {"AdjustHue": (-1, 1), "AdjustSaturation": (0, 2), "AdjustContrastv2": (0, 3)}.get(d.op)
    return [x, *([d.array("float32", [], *ends)] if ends else [])], {}


@case("ExtractImagePatches")
def patches(d):
    sides, kernel, strides, rates, padding, _, _ = _windows(d, 2, explicit=False)
    attrs = {"ksizes": [1, *kernel, 1], "strides": [1, *strides, 1], "rates": [1, *rates, 1], "padding": padding}
    batch, channels = d.shape(2, high=3)
    return [d.array(d.dtype(), [batch, *sides, channels])], attrs


@case("MaxPoolWithArgmax", "MaxPoolGradWithArgmax")
def pool_with_places(d):
    sides, kernel, strides, _, padding, _, _ = _windows(d, 2, explicit=False)
    batch, channels = d.shape(2, high=3)
    shape = [batch, *[max(s, n) for s, n in zip(sides, kernel, strict=True)], channels]
    x = d.r.permutation(int(np.prod(shape))).reshape(shape).astype("float32")  # no equal ones
    attrs = {
        "ksize": [1, *kernel, 1],
        "strides": [1, *strides, 1],
        "padding": padding,
        "Targmax": d.one(["int32", "int64"]),
        "include_batch_in_index": d.maybe(),
    }
    if "Grad" not in d.op:
        return [x], attrs
    y, places = tf.raw_ops.MaxPoolWithArgmax(input=x, **attrs)
    del attrs["Targmax"]
    return [x, d.array("float32", list(y.shape)), places.numpy()], attrs


@case("Dilation2D", "Dilation2DBackpropInput", "Dilation2DBackpropFilter")
def dilation(d):
    sides, kernel, strides, rates, padding, _, _ = _windows(d, 2, explicit=False)
    batch, channels = d.shape(2, high=3)
    dtype = d.dtype(only=["float32", "float64", "int32", "float16"])
    attrs = {"strides": [1, *strides, 1], "rates": [1, *rates, 1], "padding": padding}
    x, f = d.array(dtype, [batch, *sides, channels]), d.array(dtype, [*kernel, channels])
    if "Backprop" not in d.op:
        return [x, f], attrs
    x = (d.r.permutation(x.size) * 9.0).reshape(x.shape).astype(d.one(WIDE))  # no equal sums
    f = f.astype(x.dtype)
    try:
        y = tf.raw_ops.Dilation2D(input=x, filter=f, **attrs)
    except (tf.errors.OpError, ValueError) as error:
        raise Skip(str(error)) from error
    return [x, f, d.array(x.dtype.name, list(y.shape))], attrs


# ---- quantised floats -----------------------------------------------------------------------------------------------------

FAKE = [f"FakeQuantWithMinMax{kind}" for kind in ("Args", "Vars", "VarsPerChannel")]


@case(*FAKE, *(f"{op}Gradient" for op in FAKE), loose=True)
def fake_quant(d):
    shape = d.shape(rank=int(d.r.integers(1, 5)))
    x = [d.array("float32", shape, -9, 9) for _ in range(2 if d.op.endswith("Gradient") else 1)]
    attrs = {"num_bits": int(d.one([8, 8, 4, 2, 16])), "narrow_range": d.maybe()}
    ends = [np.float32(-d.r.uniform(0, 5)), np.float32(d.r.uniform(0.1, 5))]
    if "Args" in d.op:
        return x, attrs | {"min": float(ends[0]), "max": float(ends[1])}
    if "PerChannel" in d.op:
        ends = [np.array([end * (1 + k / 7) for k in range(shape[-1])], "float32") for end in ends]
    return [*x, *ends], attrs


@case("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV3", "QuantizeAndDequantizeV4")
def quantize_and_dequantize(d):
    shape = d.shape(rank=int(d.r.integers(1, 4)))
    given, axis, bits, signed = d.maybe(), int(d.r.integers(-1, len(shape))) if d.maybe(0.4) else -1, int(d.one([8, 8, 4])), d.maybe(0.8)
    many = [] if axis < 0 else [shape[axis]]
    dtype = d.one(["float32", "float32", "float64"])
    x = d.array(dtype, shape, -4 if signed else 0, 4)
    ends = [d.array(dtype, many, -3, -1) * signed, d.array(dtype, many, 1, 3)]
    attrs = {"signed_input": signed, "range_given": given, "narrow_range": d.maybe(), "axis": axis}
    if d.op.endswith("3"):
        return [x, *ends, known(bits, "int32")], attrs
    return [x, *ends], attrs | {"num_bits": bits, "round_mode": d.one(["HALF_TO_EVEN", "HALF_UP"])}


# ---- segments, sparse tensors, bins -----------------------------------------------------------------------------------------


@case("SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd", loose=True)
def sorted_segments(d):
    shape, dtype, many = d.shape(rank=int(d.r.integers(1, 4))), d.dtype(), int(d.r.integers(1, 6))
    i = np.sort(d.indices([shape[0]], many))
    return [d.array(dtype, shape), known(i) if d.maybe() else i], {}


@case(*(f"SparseSegment{kind}{more}" for kind in ("Sum", "Mean", "SqrtN") for more in ("", "WithNumSegments")), loose=True)
def sparse_segments(d):
    shape, many, rows = d.shape(rank=int(d.r.integers(1, 4))), int(d.r.integers(1, 6)), int(d.r.integers(1, 7))
    i = np.sort(d.indices([rows], many, d.one(["int32", "int64"])))
    count = [known(many, "int32")] if d.op.endswith("Segments") else []
    return [d.array(d.one(WIDE), shape), d.indices([rows], shape[0]), i, *count], {}


@case(*(f"SparseSegment{kind}Grad" for kind in ("Sum", "Mean", "SqrtN")), loose=True)
def sparse_segments_gradient(d):
    (t, places, i), _ = sparse_segments(d)
    dy = d.array(t.dtype.name, [int(i[-1]) + 1, *t.shape[1:]])
    return [dy, places.astype(i.dtype), i, known(len(t), "int32")], {}


@case("DynamicPartition")
def partition(d):
    shape, many = d.shape(rank=int(d.r.integers(1, 4))), int(d.r.integers(1, 4))
    i = d.indices(shape[: int(d.r.integers(1, len(shape) + 1))], many, "int32")
    return [d.array(d.one(TYPES), shape), i], {"num_partitions": many}


def _sparse(d, shape, dtype):
    """Returns places in order and values of a sparse tensor."""
    total = int(np.prod(shape))
    flat = np.sort(d.r.permutation(total)[: d.r.integers(0, total + 1)])
    return np.stack(np.unravel_index(flat, shape), 1).astype("int64").reshape(-1, len(shape)), d.array(dtype, [len(flat)])


@case("SparseToDense")
def to_dense(d):
    shape, dtype = d.shape(rank=int(d.r.integers(1, 4))), d.one(TYPES)
    places, values = _sparse(d, shape, dtype)
    if len(shape) == 1 and d.maybe():
        places = places[:, 0]
    if d.maybe(0.2):
        values = d.array(dtype, [])
    return [places, known(shape, "int64"), values, d.array(dtype, [])], {}


@case("SparseTensorDenseMatMul", loose=True)
def sparse_matmul(d):
    m, k, n = d.shape(rank=3)
    left, right, dtype = d.maybe(), d.maybe(), d.one(WIDE)
    places, values = _sparse(d, [k, m] if left else [m, k], dtype)
    b = d.array(dtype, [n, k] if right else [k, n])
    return [places, values, known([k, m] if left else [m, k], "int64"), b], {"adjoint_a": left, "adjoint_b": right}


@case("SparseReshape")
def sparse_reshape(d):
    shape = d.shape(rank=int(d.r.integers(1, 4)))
    new = d.one([[-1], [*shape, 1], shape[::-1], [-1, shape[-1]]])
    return [_sparse(d, shape, "float32")[0], np.array(shape, "int64"), np.array(new, "int64")], {}


@case("SparseFillEmptyRows")
def fill_rows(d):
    shape, dtype = d.shape(rank=int(d.r.integers(1, 4))), d.one(["float32", "int64", "float64"])
    return [*_sparse(d, shape, dtype), np.array(shape, "int64"), d.array(dtype, [])], {}


@case("SparseReorder")
def reorder(d):
    shape = d.shape(rank=int(d.r.integers(1, 4)))
    places, values = _sparse(d, shape, "float32")
    order = d.r.permutation(len(values))
    return [places[order], values[order], np.array(shape, "int64")], {}


@case("SparseAdd", "SparseSparseMaximum", "SparseSparseMinimum")
def two_sparse(d):
    shape, dtype = d.shape(rank=int(d.r.integers(1, 4))), d.one(["float32", "float64", "int32", "int64"])
    size = np.array(shape, "int64")
    least = [np.array(d.one([0, 0, 1, 3]), dtype)] if d.op == "SparseAdd" else []
    return [*_sparse(d, shape, dtype), size, *_sparse(d, shape, dtype), size, *least], {}


@case("SparseAddGrad")
def sparse_add_gradient(d):
    a, b = two_sparse(d)[0][::3]
    every = np.unique(np.concatenate([a, b]), axis=0)
    return [d.array(d.one(WIDE), [len(every)]), a, b, every], {}


@case("SparseConcat")
def sparse_concat(d):
    rank, dtype, k = int(d.r.integers(1, 4)), d.one(["float32", "int64", "int32"]), 0
    k, shape = int(d.r.integers(rank)), d.shape(rank)
    shapes = [[int(d.r.integers(1, 5)) if j == k else s for j, s in enumerate(shape)] for _ in range(d.r.integers(2, 4))]
    places, values = zip(*(_sparse(d, s, dtype) for s in shapes), strict=True)
    return [list(places), list(values), [np.array(s, "int64") for s in shapes]], {"concat_dim": d.one([k, k - rank])}


@case("SparseSplit")
def sparse_split(d):
    shape, dtype = d.shape(rank=int(d.r.integers(1, 4))), d.one(["float32", "int64", "int32"])
    k = int(d.r.integers(len(shape)))
    return [np.array(k, "int64"), *_sparse(d, shape, dtype), np.array(shape, "int64")], {"num_split": int(d.r.integers(1, shape[k] + 1))}


@case("SparseSoftmax")
def sparse_softmax(d):
    shape = d.shape(rank=int(d.r.integers(2, 4)))
    return [*_sparse(d, shape, d.one(WIDE)), np.array(shape, "int64")], {}


@case("SparseReduceMax")
def sparse_max(d):
    shape = d.shape(rank=int(d.r.integers(1, 4)))
    axes = known(d.axes(len(shape)), "int32")
    return [*_sparse(d, shape, d.one(["float32", "float64", "int32"])), np.array(shape, "int64"), axes], {"keep_dims": d.maybe()}


@case("SparseDenseCwiseAdd", "SparseDenseCwiseMul", "SparseDenseCwiseDiv", "SparseTensorDenseAdd")
def sparse_and_dense(d):
    shape, dtype = d.shape(rank=int(d.r.integers(1, 4))), d.one(WIDE)
    other = shape if d.op == "SparseTensorDenseAdd" else [d.one([1, s]) for s in shape][int(d.r.integers(0, 2)) :]
    return [*_sparse(d, shape, dtype), known(shape, "int64"), d.array(dtype, other, 0.5, 4)], {}


@case("SparseFillEmptyRowsGrad")
def fill_rows_gradient(d):
    many = int(d.r.integers(1, 7))
    return [d.r.permutation(many)[: d.r.integers(0, many + 1)].astype("int64"), d.array(d.one(WIDE), [many])], {}


@case("SparseBincount")
def sparse_counts(d):
    shape = d.shape(rank=int(d.r.integers(1, 3)))
    places, values = _sparse(d, shape, "int64")
    numbers, dtype = d.indices(values.shape, 9), d.one(["float32", "float64", "int32", "int64"])
    weights = d.array(dtype, [len(values) if d.maybe() else 0])
    size = known(d.r.integers(1, 8), numbers.dtype)
    return [places, numbers, np.array(shape, "int64"), size, weights], {"binary_output": not weights.size and d.maybe()}


@case("ComputeAccidentalHits")
def hits(d):
    true = d.indices(d.shape(2), 9, "int64")
    return [true, d.r.permutation(9)[: d.r.integers(1, 9)].astype("int64")], {"num_true": true.shape[1]}


@case("EditDistance")
def edit_distance(d):
    rank, dtype = int(d.r.integers(2, 4)), d.one(["int64", "int32"])
    given = []
    for shape in (d.shape(rank), d.shape(rank)):
        rows = d.r.integers(0, shape[-1] + 1, shape[:-1])
        places = np.argwhere(np.arange(shape[-1]) < rows[..., None]).astype("int64")
        given += [places, d.array(dtype, [len(places)], 0, 2), np.array(shape, "int64")]
    return given, {"normalize": d.maybe()}


@case("CTCLoss", loose=True)
def ctc(d):
    time, batch, classes = (int(d.r.integers(*ends)) for ends in ((5, 12), (1, 4), (2, 6)))
    counts = d.r.integers(0, 3, batch)
    at = np.argwhere(np.arange(3) < counts[:, None]).astype("int64")
    labels = d.indices([len(at)], classes - 1, "int32")
    steps = d.r.integers(5, time + 1, batch).astype("int32")
    return [d.array("float32", [time, batch, classes]), at, labels, steps], {}


@case("RaggedTensorToSparse")
def ragged_to_sparse(d):
    kind, splits, many = d.one(["int32", "int64"]), [], int(d.r.integers(0, 5))
    for _ in range(d.r.integers(1, 4)):
        splits.append(np.cumsum([0, *d.r.integers(0, 4, many)]).astype(kind))
        many = int(splits[-1][-1])
    return [splits, d.array(d.one(["float32", "int64", "int32"]), [many, *d.shape(most=1)])], {}


@case("RaggedTensorToTensor")
def ragged(d):
    dtype, kind = d.one(["float32", "int64", "int32"]), d.one(["int32", "int64"])
    lengths = d.r.integers(0, 4, int(d.r.integers(1, 5)))
    rows, kinds = [np.concatenate([[0], np.cumsum(lengths)]).astype(kind)], ["ROW_SPLITS"]
    if d.maybe(0.3):
        inner = d.r.integers(0, 3, lengths.sum())
        rows.append(np.concatenate([[0], np.cumsum(inner)]).astype(kind))
        kinds.append("ROW_SPLITS")
    elif d.maybe():
        rows, kinds = (
            [np.array(len(lengths), kind), np.repeat(np.arange(len(lengths)), lengths).astype(kind)],
            ["FIRST_DIM_SIZE", "VALUE_ROWIDS"],
        )
    many = int(rows[-1][-1]) if kinds[-1] == "ROW_SPLITS" else len(rows[-1])
    rest = d.shape(most=1)
    dims = len(rows) + (kinds[0] == "ROW_SPLITS") + len(rest)
    wanted = known(-1, kind) if d.maybe() else known([-1] * dims if d.maybe() else [-1, 2, *[-1] * (dims - 2)], kind)
    return [wanted, d.array(dtype, [many, *rest]), d.array(dtype, []), rows], {"row_partition_types": kinds}


@case("RaggedRange")
def ragged_range(d):
    many, dtype = int(d.r.integers(1, 5)), d.one(["int32", "int64", "float32"])
    first, last = d.array(dtype, [many], -3, 3), d.array(dtype, [many], 3, 9)
    return [first, last, d.array(dtype, [], 1, 2)], {"Tsplits": d.one(["int32", "int64"])}


@case("RaggedGather")
def ragged_gather(d):
    lengths, kind = d.r.integers(0, 4, int(d.r.integers(1, 5))), d.one(["int32", "int64"])
    splits = np.concatenate([[0], np.cumsum(lengths)]).astype(kind)
    values = d.array(d.one(["float32", "int64"]), [int(splits[-1]), *d.shape(most=1)])
    return [[splits], values, d.indices(d.shape(rank=1), len(lengths))], {"OUTPUT_RAGGED_RANK": 1}


@case("Bincount", "DenseBincount", loose=True)
def bincount(d):
    rank = 1 if d.op == "Bincount" or d.maybe() else 2
    kind = "int32" if d.op == "Bincount" else d.one(["int32", "int64"])
    x, many, to = d.indices(d.shape(rank=rank, high=9), 7, kind), int(d.r.integers(3, 9)), d.one(["int32", "int64", "float32", "float64"])
    binary = d.op == "DenseBincount" and d.maybe(0.3)
    weights = d.array(to, x.shape if d.maybe() and not binary else [0])
    return [x, known(many, kind), weights], {"binary_output": binary} if d.op == "DenseBincount" else {}


@case("LowerBound", "UpperBound")
def bound(d):
    batch, many, values = d.shape(rank=3)
    dtype = d.one(["float32", "int32", "int64", "float64"])
    return [np.sort(d.array(dtype, [batch, many], -4, 4), 1), d.array(dtype, [batch, values], -5, 5)], {
        "out_type": d.one(["int32", "int64"])
    }


@case("Bucketize")
def bucketize(d):
    dtype = d.one(["float32", "int32", "int64", "float64"])
    return [d.array(dtype, d.shape(), -9, 9)], {"boundaries": sorted(float(v) for v in d.r.integers(-7, 7, int(d.r.integers(0, 5))))}


@case("HistogramFixedWidth")
def histogram(d):
    dtype = d.one(["float32", "float64", "int32"])
    ends = np.array([-3, 5], dtype)
    many = known(d.one([1, 2, 4, 8]), "int32")  # bins whose ends are exact
    return [d.array(dtype, d.shape(), -6, 8), ends, many], {"dtype": d.one(["int32", "int64"])}


@case("InTopK", "InTopKV2")
def in_top_k(d):
    m, n = d.shape(rank=2)
    kind = d.one(["int32", "int64"])
    k = int(d.r.integers(1, n + 1))
    i = d.indices([m], n + 1, kind)
    x = d.array("float32", [m, n], special=d.maybe(0.2))
    return ([x, i], {"k": k}) if d.op == "InTopK" else ([x, i, known(k, kind)], {})


@case("ListDiff")
def list_difference(d):
    dtype = d.one(["int32", "int64", "float32"])
    a, b = (np.round(d.array(dtype, d.shape(rank=1, high=9), 0, 5).astype(float)).astype(dtype) for _ in range(2))
    return [a, b], {"out_idx": d.one(["int32", "int64"])}


@case("CTCGreedyDecoder")
def greedy_decoder(d):
    times, batch, kinds = (int(k) for k in d.r.integers((1, 1, 2), (9, 4, 5)))
    x = d.array(d.one(WIDE), [times, batch, kinds])
    return [x, d.r.integers(0, times + 1, batch).astype("int32")], {"merge_repeated": d.maybe(), "blank_index": int(d.one([-1, 0]))}


@case("Empty")
def empty(d):
    return [known(d.shape(), "int32")], {"dtype": d.one(TYPES), "init": True}


# ---- complex numbers ------------------------------------------------------------------------------------------------------


def _complex(d, shape, wide):
    return (d.array("float64", shape) + 1j * d.array("float64", shape)).astype("complex128" if wide else "complex64")


@case("Complex")
def complex_(d):
    dtype, shape = d.one(WIDE), d.shape()
    return [d.array(dtype, shape), d.array(dtype, d.broadcast(shape))], {"Tout": "complex128" if dtype == "float64" else "complex64"}


@case("Real", "Imag", "Conj", "ComplexAbs", "Angle")
def parts(d):
    wide = d.maybe(0.3)
    return [_complex(d, d.shape(), wide)], {} if d.op == "Conj" else {"Tout": "float64" if wide else "float32"}


@case("FFT", "IFFT", "FFT2D", "IFFT2D", "FFT3D", "IFFT3D", loose=True)
def fft(d):
    rank = int(d.op[-2]) if d.op.endswith("D") else 1
    return [_complex(d, d.shape(rank=rank + int(d.r.integers(0, 2)), high=9), d.maybe(0.3))], {}


@case("RFFT", "IRFFT", "RFFT2D", "IRFFT2D", "RFFT3D", "IRFFT3D", loose=True)
def rfft(d):
    rank, wide = int(d.op[-2]) if d.op.endswith("D") else 1, d.maybe(0.3)
    lengths = d.shape(rank, low=2, high=9)
    shape = [*d.shape(int(d.r.integers(0, 2))), *lengths]
    if d.op.startswith("I"):
        shape[-1] = lengths[-1] // 2 + 1
        x = np.fft.rfftn(d.array("float64", [*shape[:-1], lengths[-1]]), axes=list(range(-rank, 0))).astype(
            "complex128" if wide else "complex64"
        )
        return [x, known(lengths, "int32")], {"Treal": "float64" if wide else "float32"}
    if d.maybe(0.4):  # cut, or filled with zeros
        lengths = [max(n + int(d.r.integers(-1, 3)), 1) for n in lengths]
        shape[-rank:] = lengths if rank > 1 else shape[-1:]
    return [d.array("float64" if wide else "float32", shape), known(lengths, "int32")], {"Tcomplex": "complex128" if wide else "complex64"}


@case("FFTND", "IFFTND", "RFFTND", "IRFFTND", loose=True)
def fft_along(d):
    shape = d.shape(rank=int(d.r.integers(1, 4)), low=2, high=7)
    axes = sorted(int(k) for k in d.r.permutation(len(shape))[: d.r.integers(1, len(shape) + 1)])
    lengths = [shape[k] for k in axes]
    if d.op == "IRFFTND":
        shape[axes[-1]] = lengths[-1] // 2 + 1
        x = np.fft.rfftn(d.array("float64", [n if k != axes[-1] else lengths[-1] for k, n in enumerate(shape)]), axes=axes)
        return [x.astype("complex64"), known(lengths, "int32"), known(axes, "int32")], {"Treal": "float32"}
    if d.op == "RFFTND":
        return [d.array("float32", shape), known(lengths, "int32"), known(axes, "int32")], {"Tcomplex": "complex64"}
    return [_complex(d, shape, False), known(lengths, "int32"), known(axes, "int32")], {}


@case("AudioSpectrogram", loose=True)
def spectrogram(d):
    size = int(d.r.integers(2, 40))
    attrs = {"window_size": size, "stride": int(d.r.integers(1, 20)), "magnitude_squared": d.maybe()}
    return [d.array("float32", [size + int(d.r.integers(0, 60)), int(d.r.integers(1, 3))])], attrs


@case("Mfcc", loose=True)
def mfcc(d):
    bins, rate = int(d.one([65, 129])), int(d.one([8000, 16000]))
    attrs = {"upper_frequency_limit": float(d.one([3800.0, 4000.0])), "filterbank_channel_count": int(d.one([10, 20]))}
    x = d.array("float32", [*d.shape(2, high=3), bins], 0, 9)
    return [x, known(rate, "int32")], attrs | {"dct_coefficient_count": int(d.r.integers(1, 10))}


# ---- random numbers with a seed -----------------------------------------------------------------------------------------

SEEDED = split(
    "StatelessRandomUniform StatelessRandomNormal StatelessTruncatedNormal StatelessRandomUniformInt StatelessRandomUniformFullInt"
)


def _counter(d):
    return [d.r.integers(0, 2**63, 1).astype("uint64"), d.r.integers(0, 2**40, 2).astype("uint64"), known(d.one([1, 3]), "int32")]


@case(*SEEDED, *(f"{op}V2" for op in SEEDED))
def seeded(d):
    ints = "Int" in d.op
    shape = known(d.shape(), "int32")
    if "FullInt" in d.op:
        dtype = d.dtype("dtype", only=["int32", "int64", "uint32", "uint64"])
    else:
        dtype = d.one(["int32", "int64"]) if ints else d.dtype("dtype", only=FLOATS)
    seed = _counter(d) if d.op.endswith("V2") else [d.r.integers(-(2**31), 2**31, 2).astype(d.one(["int32", "int64"]))]
    bounds = [d.array(dtype, [], -50, 0), d.array(dtype, [], 1, 90)] if "UniformInt" in d.op else []
    return [shape, *seed, *bounds], {} if "UniformInt" in d.op else {"dtype": dtype}


@case("DrawBoundingBoxes", "DrawBoundingBoxesV2")
def boxes_drawn(d):
    batch, height, width = d.shape(3, high=9)
    depth = d.one([1, 3, 4])
    corners = d.array("float32", [batch, d.one([0, 3, 12]), 4], -0.3, 1.3)
    corners = np.concatenate([np.minimum(corners[..., :2], corners[..., 2:]), corners[..., 2:]], -1) if d.maybe(0.7) else corners
    table = [d.array("float32", [d.one([0, 1, 5]), depth], 0, 1)] if d.op.endswith("V2") else []
    return [d.array(d.one(["float32", "float16"]), [batch, height, width, depth], 0, 1), corners, *table], {}


@case("SparseSlice")
def sparse_slice(d):
    shape = np.array(d.shape(d.one([1, 2, 3])))
    full = np.where(d.r.random(shape) < 0.5, d.array(dtype := d.dtype(), shape), np.zeros([], BY_NAME[dtype]))
    at = np.argwhere(full != 0)
    return [at, full[tuple(at.T)], shape, np.array([d.r.integers(0, s + 1) for s in shape]), np.array(d.shape(len(shape)))], {}


@case("RaggedBincount")
def ragged_counts(d):
    rows = d.r.integers(0, 5, int(d.r.integers(1, 6)))
    many, dtype, size = int(rows.sum()), d.one(["float32", "float64", "int32", "int64"]), int(d.r.integers(1, 8))
    weights = d.array(dtype, [many if d.maybe() else 0])
    numbers = d.indices([many], 9)
    return [np.cumsum([0, *rows]), numbers, known(size, numbers.dtype), weights], {"binary_output": not weights.size and d.maybe()}


@case("StatelessRandomGammaV2", "StatelessRandomGammaV3", "StatelessRandomPoisson", "StatelessRandomBinomial")
def sampled(d):
    """Concentrations around 1, and rates and counts on both sides of where the method changes, with more samples of each."""
    dtype = d.one(["float32", "float64", "float16"])
    gamma, of = "Gamma" in d.op, d.shape(most=2)
    first = d.array(dtype, of, *(0.05, 3) if gamma else (0, d.one([12, 60])))
    if gamma:
        first = np.where(d.r.random(of) < 0.3, first.dtype.type(1), first)
    more = [] if "Binomial" not in d.op else [d.array(dtype, of, -0.1, 1.1)]
    seed = _counter(d) if d.op.endswith("V3") else [d.r.integers(-(2**31), 2**31, 2).astype(d.one(["int32", "int64"]))]
    if d.op == "StatelessRandomPoisson" and d.maybe(0.3):
        first = first.astype(d.one(["int32", "int64"]))
    attrs = {} if gamma else {"dtype": d.one(["float32", "float64", "float16", "int32", "int64"])}
    return [known([*d.shape(most=2, high=9), *of], "int32"), *seed, np.round(first) if more else first, *more], attrs


@case("StatelessParameterizedTruncatedNormal")
def within_bounds(d):
    """Bounds on each side of the mean, near and far, of which one may be infinite; few enough numbers for one of TensorFlow's threads."""
    dtype, of = d.one(["float32", "float64", "float16"]), d.shape(most=1, high=3)
    mean, deviation = d.array(dtype, d.broadcast(of), -2, 2), d.array(dtype, of, 0.2, 3)
    low = d.array(dtype, of, -4, 4)
    high = np.asarray(low + d.array(dtype, of, 0.1, d.one([1, 6])))
    end = d.one([low, high, None])
    if end is not None:
        end[...] = np.where(d.r.random(of) < 0.3, np.copysign(np.inf, -1 if end is low else 1), end)
    return [known([*d.shape(most=2, high=3), *of], "int32"), d.r.integers(-(2**31), 2**31, 2), mean, deviation, low, high], {}


@case("StatelessShuffle")
def seeded_order(d):
    return [d.array(d.dtype(), d.shape(int(d.r.integers(1, 4)), high=40)), *_counter(d)], {}


@case("StatelessRandomGetKeyCounter")
def key_counter(d):
    return [d.r.integers(-(2**31), 2**31, 2).astype(d.one(["int32", "int64"]))], {}


# ---- variables ----------------------------------------------------------------------------------------------------------
# A case here has variables for its first inputs: their arrays stand in front, in a list of their own.


class Variables(list):
    """What the variables of a case hold before it."""


def _places_in(d, many):
    return d.r.permutation(many)[: d.r.integers(1, many + 1)].astype(d.one(["int32", "int64"]))


@case(*(f"{of}Scatter{kind}" for kind in split("Add Sub Update Max Min Mul Div") for of in ("", "Resource")), loose=True)
def scatter(d):
    shape = d.shape(rank=int(d.r.integers(1, 4)))
    dtype = d.one(["float32", "float64", "float16", *(["int32"] if not d.op.endswith("Div") else [])])  # no quotients of integers
    i = _places_in(d, shape[0]) if d.op.endswith("Update") else d.indices(d.shape(rank=int(d.r.integers(0, 3)), high=4), shape[0])
    u = d.array(dtype, [*i.shape, *shape[1:]], 1, 4)
    return [Variables([d.array(dtype, shape)]), i, u], {}


@case(*(f"{of}ScatterNd{kind}" for kind in split("Add Sub Update Max Min") for of in ("", "Resource")), loose=True)
def scatter_slices(d):
    shape, dtype = d.shape(rank=int(d.r.integers(1, 4))), d.one(["float32", "float64", "int32"])
    i = _places(d, shape, unique=d.op.endswith("Update"))
    return [Variables([d.array(dtype, shape)]), i, d.array(dtype, [*i.shape[:-1], *shape[i.shape[-1] :]])], {}


@case("Assign", "AssignAdd", "AssignSub", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
def assign(d):
    shape, dtype = d.shape(), d.one(["float32", "float64", "int32", "int64", "float16", "bfloat16"])
    return [Variables([d.array(dtype, shape)]), d.array(dtype, shape)], {}


@case("ReadVariableOp")
def read(d):
    dtype = d.one(TYPES[:-1])
    return [Variables([d.array(dtype, d.shape())])], {"dtype": dtype}


@case("VariableShape")
def variable_shape(d):
    return [Variables([d.array("float32", d.shape())])], {"out_type": d.one(["int32", "int64"])}


@case("ResourceGather")
def resource_gather(d):
    shape, dtype = d.shape(rank=int(d.r.integers(1, 4))), d.one(["float32", "int32", "float64"])
    return [Variables([d.array(dtype, shape)]), d.indices(d.shape(most=2), shape[0])], {"dtype": dtype}


def _generator(d):
    return Variables([np.array([d.one([-1, 5, d.r.integers(0, 2**63)]), d.r.integers(0, 99), d.r.integers(-(2**63), 2**63)], "int64")])


@case("RngReadAndSkip")
def skipped(d):
    return [_generator(d), known(1, "int32"), np.asarray(d.r.integers(0, 2**40), "uint64")], {}


@case("StatefulRandomBinomial")
def drawn_from_a_generator(d):
    dtype, of = d.one(["float32", "float64"]), d.shape(most=2)
    count = np.round(d.array(dtype, d.broadcast(of), 0, d.one([12, 60])))
    shape = known([*d.shape(most=2, high=9), *of], "int32")
    return [_generator(d), known(1, "int64"), shape, count, d.array(dtype, of, -0.1, 1.1)], {"dtype": d.one(["float32", "int32", "int64"])}


POSITIVE = split("accum accumulator ms v vhat square gradient_squared_accumulator accum_update vhat rho mg")


def _optimizer(d):
    """An optimizer's step: variables for inputs that are references or handles, numbers below 1 for the scalars."""
    dtype, shape = d.one(["float32", "float64", "float32", "float16"]), d.shape(rank=int(d.r.integers(1, 4)))
    sparse = "Sparse" in d.op
    homes, rest = Variables(), []
    rows = _places_in(d, shape[0]) if sparse else None
    for arg in d.definition.input_arg:
        if arg.is_ref or arg.type == tf.resource.as_datatype_enum:
            homes.append(d.array(dtype, shape, 0.5 if arg.name not in ("var", "m", "linear", "mom", "gradient_accumulator") else -1, 1.5))
            if arg.name == "mg":  # the mean of gradients, whose square is below the mean of their squares
                homes[-1] = d.array(dtype, shape, -0.3, 0.3)
        elif arg.name in ("grad", "delta"):
            rest.append(d.array(dtype, [*rows.shape, *shape[1:]] if sparse else shape, -1, 1))
        elif arg.name == "indices":
            rest.append(rows)
        elif arg.name == "global_step":
            rest.append(np.array(d.r.integers(1, 9), "int64"))
        elif arg.name == "lr_power":
            rest.append(d.array(dtype, [], -0.7, -0.3))
        else:
            rest.append(d.array(dtype, [], 0.05, 0.9))
    flags = [a.name for a in d.definition.attr if a.name in ("use_nesterov", "update_slots", "multiply_linear_by_lr")]
    return [homes, *rest], {name: d.maybe() for name in flags}


GROUPS = {row.op: row.group for row in support.rows()}
case(*(op for op in GROUPS if "Apply" in op), loose=True)(_optimizer)

# ---- integers of a range ------------------------------------------------------------------------------------------------


def levels(d, shape, dtype=None):
    """Returns integers, and the range of the floats that they stand for."""
    kind = np.dtype(dtype or d.one(["uint8", "int8"]))
    ends = np.iinfo(kind)
    low = np.float32(-d.r.uniform(0.5, 4)) if d.maybe(0.8) else np.float32(0)
    return [d.r.integers(max(ends.min, -99999), min(ends.max, 99999) + 1, shape).astype(kind), low, np.float32(d.r.uniform(0.5, 6))]


@case("QuantizeV2")
def quantize(d):
    shape, axis = d.shape(int(d.r.integers(1, 4))), -1
    mode = d.one(["MIN_COMBINED", "MIN_FIRST", "SCALED"])
    kind = d.one([tf.quint8, tf.qint8])
    if d.maybe(0.3):
        axis = int(d.r.integers(len(shape)))
        shape[axis] += 1
    bounds = [d.array("float32", [shape[axis]] if axis >= 0 else [], *ends) for ends in ((-3, 0.5), (0.6, 4))]
    # with round_mode=HALF_TO_EVEN oneDNN may take it, whose scale is another one
    narrow = {"narrow_range": d.maybe()} if mode == "SCALED" else {}
    return [d.array("float32", shape), *bounds], {"T": kind, "mode": mode, "axis": axis, **narrow}


@case("Dequantize")
def dequantize(d):
    mode = d.one(["MIN_COMBINED", "MIN_FIRST", "SCALED"])
    return levels(d, d.shape()), {"mode": mode}


@case("QuantizedRelu", "QuantizedRelu6")
def quantized_relu(d):
    return levels(d, d.shape(), "uint8"), {}


@case("QuantizedReshape")
def quantized_reshape(d):
    x, low, high = levels(d, [2, 3, 4])
    return [x, known(d.one([[6, 4], [24], [2, -1, 1]]), "int32"), low, high], {}


@case("QuantizedMaxPool", "QuantizedAvgPool")
def quantized_pool(d):
    sizes = [1, *d.shape(2, high=3), 1]
    padding = d.one(["SAME", "VALID"])
    return levels(d, [2, *d.shape(2, low=3), 3], "uint8"), {"ksize": sizes, "strides": [1, d.one([1, 2]), 1, 1][:4], "padding": padding}


@case("QuantizedConv2D")
def quantized_conv(d):
    channels = d.one([1, 3])
    (x, *of_x), (w, *of_w) = levels(d, [2, *d.shape(2, low=3), channels], "uint8"), levels(d, [2, 3, channels, 4], "uint8")
    step = d.one([1, 2])
    return [x, w, *of_x, *of_w], {"strides": [1, step, step, 1], "padding": d.one(["SAME", "VALID"])}


@case("QuantizedMatMul")
def quantized_matmul(d):
    m, k, n = d.shape(3)
    flips = {"transpose_a": d.maybe(), "transpose_b": d.maybe()}
    shapes = [k, m] if flips["transpose_a"] else [m, k], [n, k] if flips["transpose_b"] else [k, n]
    (a, *of_a), (b, *of_b) = (levels(d, shape, "uint8") for shape in shapes)
    return [a, b, *of_a, *of_b], flips


@case("QuantizedMul", "QuantizedBiasAdd")
def quantized_sum(d):
    shape = d.shape(2)
    (a, *of_a), (b, *of_b) = levels(d, shape, "uint8"), levels(d, shape[1:], "uint8")
    return [a, b, *of_a, *of_b], {"out_type": tf.qint32} if d.op == "QuantizedBiasAdd" else {}


@case("QuantizedConcat")
def quantized_concat(d):
    shape, k = d.shape(3), int(d.r.integers(3))
    parts = [levels(d, [s if j != k else d.one([1, 2, 3]) for j, s in enumerate(shape)], "uint8") for _ in range(3)]
    return [known(k, "int32"), *([part[j] for part in parts] for j in range(3))], {}


@case("RequantizationRange", "Requantize", "QuantizeDownAndShrinkRange")
def requantize(d):
    x, *_ = levels(d, d.shape(2), "int32")
    most = np.float32(d.r.uniform(1e4, 1e6))
    more = [np.float32(-d.r.uniform(1, 30)), np.float32(d.r.uniform(1, 30))] if d.op == "Requantize" else []
    return [x, -most, most, *more], {} if d.op.endswith("Range") and d.op[0] == "R" else {"out_type": tf.quint8}


# ---- recurrent layers, systems, sets ------------------------------------------------------------------------------------


@case("LSTMBlockCell", "BlockLSTM", "BlockLSTMV2", loose=True)
def lstm_block(d):
    rows, inputs, hidden = d.shape(3)
    times = [int(d.r.integers(1, 5))] if d.op.startswith("Block") else []
    x = d.array("float32", [*times, rows, inputs], -2, 2)
    state = [d.array("float32", [rows, hidden], -2, 2) for _ in range(2)]
    weights = [d.array("float32", shape, -1, 1) for shape in ([inputs + hidden, 4 * hidden], [hidden], [hidden], [hidden], [4 * hidden])]
    first = [np.asarray(d.r.integers(0, times[0] + 1), "int64")] if times else []
    attrs = {"cell_clip": d.one([0.0, 0.5, 3.0]), "use_peephole": d.maybe()}
    return [*first, x, *state, *weights], attrs if d.op.endswith("V2") else attrs | {"forget_bias": d.one([0.0, 1.0])}


@case("GRUBlockCell", loose=True)
def gru_block(d):
    rows, inputs, hidden = d.shape(3)
    shapes = [[inputs + hidden, 2 * hidden], [inputs + hidden, hidden], [2 * hidden], [hidden]]
    return [d.array("float32", shape, -1, 1) for shape in ([rows, inputs], [rows, hidden], *shapes)], {}


@case("MatrixSolveLs", loose=True)
def least_squares(d):
    dtype, batch = d.dtype(only=WIDE), d.shape(most=2, high=2)
    m, n, k = d.shape(3)
    a = d.array(dtype, [*batch, m, n], -1, 1) + 2 * np.eye(m, n, dtype=dtype)
    fast = d.maybe()
    return [a, d.array(dtype, [*batch, m, k]), known(d.one([0.0, 0.5]) if fast else 0.0, "float64")], {"fast": fast}


@case("BandedTriangularSolve", loose=True)
def banded(d):
    dtype, batch, n = d.dtype(only=WIDE), d.shape(most=2, high=2), int(d.r.integers(1, 6))
    many, lower = int(d.r.integers(1, n + 1)), d.maybe()
    bands = d.array(dtype, [*batch, many, n], -1, 1)
    bands[..., 0 if lower else many - 1, :] += 3
    return [bands, d.array(dtype, [*batch, n, 2])], {"lower": lower, "adjoint": d.maybe()}


@case("UnravelIndex")
def unravel(d):
    sizes, dtype = d.shape(int(d.r.integers(1, 5))), d.one(["int32", "int64"])
    return [d.indices(d.one([[], [4], [1]]), int(np.prod(sizes)), dtype), known(sizes, dtype)], {}


@case("NthElement")
def nth(d):
    x = d.array(d.dtype(), d.shape(int(d.r.integers(1, 4))))
    return [x, known(d.r.integers(x.shape[-1]), "int32")], {"reverse": d.maybe()}


@case("SetSize", "DenseToDenseSetOperation", "DenseToSparseSetOperation", "SparseToSparseSetOperation")
def sets(d):
    shape, dtype = d.shape(int(d.r.integers(2, 4))), d.one(["int32", "int64", "uint8"])

    def one(sparse):
        sizes = [*shape[:-1], d.one([1, 3, 5])]
        x = d.r.integers(0, 6, sizes).astype(dtype)
        there = d.r.random(sizes) < 0.6
        return [np.argwhere(there).astype("int64"), x[there], known(sizes, "int64")] if sparse else [x]

    if d.op == "SetSize":
        return one(True), {}
    how = {"set_operation": d.one(["a-b", "b-a", "intersection", "union"])}
    return [*one(d.op.startswith("Sparse")), *one("ToSparse" in d.op)], how


@case("IsotonicRegression")
def isotonic(d):
    dtype = d.one(["float32", "float64"])
    return [d.array(dtype, d.shape(2, high=9))], {"output_dtype": tf.as_dtype(dtype)}


@case("CTCBeamSearchDecoder", loose=True)
def beam_search(d):
    times, rows, classes = (int(d.r.integers(low, high)) for low, high in ((1, 7), (1, 4), (2, 6)))
    width = d.one([1, 3, 20])
    how = {"beam_width": width, "top_paths": 1 if width == 1 else d.one([1, 2]), "merge_repeated": d.maybe()}
    return [d.array("float32", [times, rows, classes], -3, 3), d.r.integers(1, times + 1, rows).astype("int32")], how


# ---- what is not drawn --------------------------------------------------------------------------------------------------

WHY = {  # the reason, for groups of the table and for ops
    "control": "calls, branches, loops and numbers without a seed are no functions of tensors: test_functions.py has programs of them",
    "host": "strings, tables and files: recorded answers of each stand in tests/frontends/tensorflow/test_host.py",
    "lists": "lists live in loops: test_functions.py and tests/frontends/tensorflow have programs of them",
}
REMOVED = "today's TensorFlow makes no graph with it"
LEFT_OUT = {op: WHY[group] for op, group in GROUPS.items() if group in WHY and op not in CASES}
LEFT_OUT |= dict.fromkeys(split("BatchMatrixBandPart BatchMatrixDiag BatchMatrixDiagPart TopK"), REMOVED)
LEFT_OUT |= dict.fromkeys(
    split("VarHandleOp Variable VariableV2 VarIsInitializedOp IsVariableInitialized"), "all cases of variables have it"
)
LEFT_OUT |= dict.fromkeys(
    split("StatelessRandomGetAlg StatelessRandomGetKeyCounterAlg"), "its result names an algorithm that machines choose"
)
LEFT_OUT["Const"] = "all constants of cases are such nodes"

# ---- a case beside TensorFlow -------------------------------------------------------------------------------------------


# Which of an op's results are compared; the others are what TensorFlow's kernels keep for themselves, or vectors of either sign.
RESULTS = {
    "Svd": slice(1),
    "SelfAdjointEigV2": slice(1),
    **{f"FusedBatchNorm{k}": slice(3) for k in ("", "V2", "V3")},
    **{f"FusedBatchNormGrad{k}": slice(3) for k in ("", "V2", "V3")},
    **dict.fromkeys(("BlockLSTM", "BlockLSTMV2"), slice(1, 7, 5)),  # behind the last step the others are memory as it was
}

# Ops whose floats are as near as this, in units of the last place: C's logarithm and sine, which are in normal numbers, round otherwise.
UNITS = {op: 2 if "Normal" in op else 0 for op, group in GROUPS.items() if group == "stateless"}

# TensorFlow's kernel does not advance a generator whose array its initial constant shares: a saved model has it.
LAZY = "StatefulRandomBinomial"

# Ops of which TensorFlow's CPU has no kernel: NumPy gives what is compared.
BY_NUMPY = {
    "FFTND": lambda x, lengths, axes: np.fft.fftn(x, lengths, axes).astype(x.dtype),
    "IFFTND": lambda x, lengths, axes: np.fft.ifftn(x, lengths, axes).astype(x.dtype),
    "RFFTND": lambda x, lengths, axes: np.fft.rfftn(x, lengths, axes).astype("complex64"),
    "IRFFTND": lambda x, lengths, axes: np.fft.irfftn(x, lengths, axes).astype("float32"),
}


def is_quantised(definition, arg):
    """Returns whether an input has one of TensorFlow's quantised dtypes."""
    allowed = [tf.as_dtype(t) for a in definition.attr if a.name == arg.type_attr for t in a.allowed_values.list.type]
    return all(t.is_quantized for t in allowed) and (bool(allowed) or (arg.type_attr == "T" and definition.name.startswith("Quantized")))


def as_quantised(t):
    return tf.bitcast(t, f"q{t.dtype.name}")


class Case:
    """One op with inputs and attributes that were drawn."""

    def __init__(self, op, seed):
        d = Draw(op, seed)
        self.op, self.seed = op, seed
        self.inputs, self.attrs = CASES[op](d)
        self.open = d.maybe(0.3)
        self.constant = d.maybe(0.15)  # so that the importer computes it while it reads the graph
        self.float_types = {a.dtype.name for a in self.arrays()}

    def arrays(self):
        for given in self.inputs:
            yield from given if isinstance(given, list) else [given]

    def __str__(self):
        def said(a):
            if isinstance(a, list):
                return f"{type(a).__name__}{[said(v) for v in a]}"
            text = np.array2string(np.asarray(a), threshold=8).replace("\n", "") if a.size < 9 or isinstance(a, Known) else ""
            return f"{'known ' if isinstance(a, Known) else ''}{a.dtype.name}{list(a.shape)}{text}"

        kind = " open" * self.open + " constant" * self.constant
        return f"{self.op} case {self.seed}{kind}: {', '.join(map(said, self.inputs))} {self.attrs}"

    def graph(self):
        """Builds the op in the graph. Returns feeds by tensor, initial values by variable, what to fetch."""
        feeds, homes = {}, []
        definition = op_def_registry.get(self.op)

        def tensor(a):
            if isinstance(a, Known) or self.constant:
                return tf.constant(np.asarray(a))
            made = v1.placeholder(a.dtype, [None] * a.ndim if self.open else a.shape)
            feeds[made] = a
            return made

        arguments, at = {}, 0
        for given in self.inputs:
            if isinstance(given, Variables):
                for a in given:
                    arg = definition.input_arg[at]
                    homes.append(v1.Variable(a, name=f"home{at}", use_resource=not arg.is_ref))
                    arguments[arg.name] = homes[-1].handle if not arg.is_ref else homes[-1]._ref()
                    at += 1
                continue
            arg = definition.input_arg[at]
            read = as_quantised if is_quantised(definition, arg) else lambda t: t
            arguments[arg.name] = [read(tensor(a)) for a in given] if isinstance(given, list) else read(tensor(given))
            at += 1
        inferred = {v for a in definition.input_arg for v in (a.type_attr, a.number_attr, a.type_list_attr)}
        defaults = {a.name: None for a in definition.attr if a.HasField("default_value") and a.name not in inferred}
        operation = op_def_library._apply_op_helper(self.op, **arguments, **(defaults | self.attrs))[2]
        made = [t for t in operation.outputs[RESULTS.get(self.op, slice(None))] if not t.dtype._is_ref_dtype]
        with tf.control_dependencies([operation]):
            made += [home.read_value() for home in homes if self.op != LAZY]
        results = [tf.identity(tf.bitcast(t, t.dtype.name[1:]) if t.dtype.is_quantized else t) for t in made]
        return feeds, homes, results


def answers(made):
    """Returns TensorFlow's results, the bytes of the graph, the feeds by name, the fetches by name, and the variables by name.

    The results are NumPy's where TensorFlow has no kernel. Raises Skip where TensorFlow refuses the case.
    """
    with tf.Graph().as_default() as graph:
        try:
            feeds, homes, results = made.graph()
            with v1.Session(config=v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)) as session:
                if homes:
                    session.run(v1.global_variables_initializer())
                by_numpy = BY_NUMPY.get(made.op)
                wanted = [by_numpy(*map(np.asarray, made.inputs))] if by_numpy else session.run(results, feeds)
        except (tf.errors.OpError, ValueError, TypeError, NotImplementedError) as error:  # the test counts what runs, of each op
            raise Skip(str(error).splitlines()[0][:300]) from error
        meta = v1.train.export_meta_graph().SerializeToString() if homes else graph.as_graph_def().SerializeToString()
        starts = {home.op.name: a for home, a in zip(homes, made.inputs[0], strict=True)} if homes else {}
        return wanted, meta, {t.name: a for t, a in feeds.items()}, [t.name for t in results], starts


def loaded(data, starts, transformer):
    """Returns the model of a graph, or of a meta graph beside a checkpoint with what its variables hold."""
    if not starts:
        return ng.tensorflow.load(data, transformer)
    with tempfile.TemporaryDirectory() as folder:
        prefix = os.path.join(folder, "model")
        ng.tensorflow.save_checkpoint(prefix, starts)
        with open(f"{prefix}.meta", "wb") as file:
            file.write(data)
        model = ng.tensorflow.load(f"{prefix}.meta", transformer)
        for name in starts:
            model.value(name)
        return model


def differences(case, found, wanted):
    """Yields what differs from TensorFlow's results."""
    for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
        b = np.asarray(b)
        if a.dtype != b.dtype or a.shape != b.shape:
            yield f"result {k} is {a.dtype}{list(a.shape)}, TensorFlow's {b.dtype}{list(b.shape)}"
            continue
        if b.dtype.kind == "c":
            a, b = (np.stack([v.real, v.imag]) for v in (a, b))
        if b.dtype.name not in PRECISION:
            if not (np.abs(a - b) <= 512).all() if case.op == "QuantizedBiasAdd" else not np.array_equal(a, b):  # of 2**32
                yield f"result {k}: {a.ravel()[:12]}, TensorFlow's {b.ravel()[:12]}"
            continue
        narrow = min((case.float_types | {b.dtype.name}) & set(PRECISION), key=lambda t: -PRECISION[t])
        table = SUMS if case.op in LOOSE else PRECISION
        limit = table[narrow]
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite = np.abs(y[np.isfinite(y)])
        scale = max(1.0, float(finite.max())) if case.op in LOOSE and finite.size else 1.0
        with np.errstate(all="ignore"):
            near = np.isclose(x, y, limit, limit * scale, equal_nan=True)
            if case.op in UNITS:
                near = np.abs(x - y) <= UNITS[case.op] * np.spacing(np.abs(b)).astype(np.float64)
        if not near.all():
            at = tuple(int(v) for v in np.argwhere(~near)[0])
            yield f"result {k} has {x[at]} at {list(at)}, TensorFlow's {y[at]}; {np.count_nonzero(~near)} of {near.size} differ"


def compare(case, transformer):
    """Returns what differs between TensorFlow's results and ours, as text; an empty text where nothing does. Raises Skip."""
    wanted, data, feeds, fetched, starts = answers(case)
    try:
        found = loaded(data, starts, transformer).run(fetched, feeds)
    except Exception as error:  # every error is a find: TensorFlow ran the case
        return f"{type(error).__name__}: {str(error)[:400]}"
    return "; ".join(differences(case, found, wanted))

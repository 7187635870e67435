"""Prices of clusters in seconds, on one thread: in TensorFlow by their nodes, and here by their plans.

TensorFlow's price is that of each node: the call of its op, the longer of its arithmetic and of the bytes that it moves, and what
its elements cost beside that. The rates are those of TensorFlow 2.21 on one core of an AMD EPYC with AVX-512, scaled to the vectors of the
machine at hand. Ours is the call of a cluster, its arguments and results, and the seconds that schedules predict for its plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import tensorflow as tf

from ngraph.bridge.flatten import TypedFunction, TypedNode
from ngraph.bridge.marking import BRANCHES
from ngraph.frontends.tensorflow.dtypes import numpy_type
from ngraph.targets.machine import Cpu
from ngraph.targets.tuning import ASSUMED_LENGTH, VECTOR_SPEED

TRIVIAL = frozenset("Const Identity IdentityN StopGradient Snapshot Reshape Squeeze ExpandDims Shape ShapeN Size Rank NoOp".split())

OP_CALL = 1e-6  # seconds of the call of an op in TensorFlow
CLUSTER_CALL, ARGUMENT = 80e-6, 1.5e-6  # seconds of the call of a cluster, and of each of its arguments and results
BYTES = 40e9  # bytes that an op reads and writes in a second: sums of 65,536 to a million elements
FLOPS = 105e9  # operations in a second of products of matrices, of 256 x 256 and more, and of convolutions
DEPTHWISE = 45e9  # the same of depthwise convolutions
ELEMENT: dict[str, float] = {  # seconds of an element of the result, where that is more than its bytes
    **dict.fromkeys("Exp Expm1 Log Log1p Tanh Sigmoid Softplus Elu Selu Softmax LogSoftmax".split(), 0.6e-9),
    **dict.fromkeys("Erf Rsqrt Sqrt".split(), 0.4e-9),
    **dict.fromkeys("Sin Cos".split(), 1.5e-9),
    **dict.fromkeys(["Transpose"], 0.9e-9),
    **dict.fromkeys("Cumsum Cumprod".split(), 8e-9),
    "Pow": 12e-9,
}
READ_ELEMENT: dict[str, float] = {"TopK": 7e-9, "TopKV2": 7e-9}  # seconds of an element of the first argument
CHEAP_POWERS = (-1.0, -0.5, 0.5, 1.0, 2.0, 3.0)  # exponents for which TensorFlow puts other ops
UNMEASURED = (  # how ops begin whose price nobody knows: clusters with them are kept
    *BRANCHES,
    *"Matrix BatchMatrix Cholesky Qr Svd SelfAdjointEig LogMatrix Lu Tridiagonal FFT IFFT RFFT IRFFT".split(),
    *"Lgamma Digamma Igamma Betainc Polygamma Zeta Bessel Erfinv Ndtri Erfc Tan Asin Acos Atan Sinh Cosh Unique".split(),
)
MEASURED_LANES = 16  # elements of 32 bits in a vector of the machine of these rates


def in_tensorflow(function: TypedFunction, names: Iterable[str], machine: Cpu) -> float | None:
    """Returns about how many seconds TensorFlow takes for nodes; None where one has no price."""
    calls = work = 0.0
    for name in names:
        node = function.nodes[name]
        if node.op.startswith(UNMEASURED) and node.op not in ELEMENT:
            return None
        if node.op not in TRIVIAL:
            calls += OP_CALL
            work += _seconds(function, node)
    return calls + work * MEASURED_LANES * VECTOR_SPEED / (machine.lanes32 * machine.vector_speed)


def here(borders: int, plan: float = 0.0) -> float:
    """Returns the seconds of a cluster here. borders: its arguments and results; plan: the seconds predicted for its kernels."""
    return CLUSTER_CALL + ARGUMENT * borders + plan


def why_given_back(ours: float, theirs: float) -> str:
    """Returns why TensorFlow runs a cluster; "" where ours is not slower."""
    return f"TensorFlow runs it in about {theirs * 1e6:.0f} us, and ours takes {ours * 1e6:.0f}" if ours > theirs else ""


def _seconds(function: TypedFunction, node: TypedNode) -> float:
    """Returns the seconds of a node's work."""
    values = [f"{node.name}:{k}" for k in range(len(node.dtypes))]
    moved = sum(_bytes(function, v) for v in (*node.takes, *values))
    made = _count(function, values[0]) if values else 0
    read = _count(function, node.takes[0]) if node.takes else 0
    each = 0.0 if node.op == "Pow" and _exponent(function, node) in CHEAP_POWERS else ELEMENT.get(node.op, 0.0)
    elements = made * each + read * READ_ELEMENT.get(node.op, 0.0)
    return max(flops(function, node) / (DEPTHWISE if "Depthwise" in node.op else FLOPS), moved / BYTES) + elements


def _exponent(function: TypedFunction, node: TypedNode) -> float | None:
    """Returns the exponent of a power, where it is one number that the graph holds."""
    maker = function.maker(node.takes[1])
    if maker is None or maker.op != "Const" or _count(function, node.takes[1]) != 1:
        return None
    return float(tf.make_ndarray(maker.proto.attr["value"].tensor).item())


def flops(function: TypedFunction, node: TypedNode) -> float:
    """Returns the additions and multiplications of products: two for each pair of elements that is multiplied."""
    takes, op = node.takes, node.op
    if "MatMul" in op:
        a = _shape(function, takes[0])
        turned = any(key in node.proto.attr and node.proto.attr[key].b for key in ("transpose_a", "adj_x"))
        return 2.0 * _count(function, f"{node.name}:0") * (a[-2:][:1] if turned else a[-1:] or [1])[0]
    if op == "Einsum":
        terms = node.proto.attr["equation"].s.decode().split("->")[0].split(",")
        lengths: dict[str, int] = {}
        for term, value in zip(terms, takes, strict=True):
            shape = _shape(function, value)
            lead, _, tail = term.replace(" ", "").partition("...")
            lengths |= dict(zip(reversed(tail or lead), reversed(shape), strict=False))
            if "..." in term:
                lengths |= dict(zip(lead, shape, strict=False))
                lengths["..."] = max(lengths.get("...", 1), prod(shape[len(lead) : len(shape) - len(tail)]))
        return 2.0 * prod(lengths.values())
    if "Conv2D" in op or "Conv3D" in op or "Depthwise" in op:
        weights = f"{node.name}:0" if "BackpropFilter" in op else takes[1]
        outer = takes[2] if "Backprop" in op else f"{node.name}:0"
        shape = _shape(function, weights)
        places = prod(shape[:-2]) if "Depthwise" in op else prod(shape[:-1])
        return 2.0 * _count(function, outer) * places
    return 0.0


def _shape(function: TypedFunction, value: str) -> list[int]:
    shape: Any = function.shape(value)
    return [ASSUMED_LENGTH] if shape is None else [ASSUMED_LENGTH if n is None else n for n in shape]


def _count(function: TypedFunction, value: str) -> int:
    return prod(_shape(function, value))


def _bytes(function: TypedFunction, value: str) -> int:
    dtype = numpy_type(function.dtype(value))
    return 0 if dtype is None else _count(function, value) * dtype.itemsize

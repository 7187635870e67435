"""Rules for elementwise ops, reductions, and sources such as constants.

One-to-one names are in the ops' records, as for the importer; ops that ONNX lacks are composed of smaller nodes here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ngraph.export.onnx.lengths import same
from ngraph.export.onnx.names import onnx_type
from ngraph.export.onnx.writer import INT64, NODES, Cannot, Dims, GraphWriter, OutputNode, TensorRef, schema, takes
from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.dtypes import REGISTRY as DTYPES
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import Expr
from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import ELEMENTWISE, ONNX, REGISTRY
from ngraph.program.program import AxisId, Step

BOOL, INT32, FLOAT32, FLOAT64 = DTYPES["bool"], DTYPES["int32"], DTYPES["float32"], DTYPES["float64"]

# ---- one to one ---------------------------------------------------------------------------------------------------------

WHOLE = ("floor", "round")  # identity for integers


@NODES.of("elementwise")
def named(w: GraphWriter, step: Step, *refs: TensorRef) -> TensorRef:
    if step.op in WHOLE and not refs[0].dtype.is_float:
        return refs[0]
    fused = _biased(w, step, refs) if step.op == "add" else _scaled(w, step, refs) if step.op == "multiply" else None
    return fused or w.elementwise(ONNX[step.op], *refs, dtype=BOOL if step.result.dtype is BOOL else None)


CHANNEL = {"Conv": 1, "ConvTranspose": 1, "Gemm": 1}  # the dim of the result that a bias is along


def _products(w: GraphWriter, step: Step, refs: tuple[TensorRef, ...]) -> Iterator[tuple[TensorRef, OutputNode, TensorRef]]:
    """Yields each operand computed by a Conv or Gemm for this step alone, that node, and the other operand, aligned to its channel."""
    for k, value in enumerate(step.inputs):
        x, other = refs[k], refs[1 - k]
        maker = w.shared.makers.get(x.name)
        if maker is None or maker.op not in CHANNEL or maker.part is not w.part or other.name == x.name or not w.alone(value):
            continue
        at = CHANNEL[maker.op]
        if len(x.dims) > at and other.axes in ((), (x.dims[at],)):
            yield x, maker, other


def _biased(w: GraphWriter, step: Step, refs: tuple[TensorRef, ...]) -> TensorRef | None:
    """Returns a sum folded into the bias of such a node, for constants and variables; None where it cannot."""
    for x, maker, bias in _products(w, step, refs):
        array = w.array(bias)
        if array is not None and bias.axes == () and maker.op != "Gemm":
            count = w.known(x.dims[1]) if x.dims[1] is not None else 1
            bias = bias if count is None else TensorRef(w.constant(np.full(count, array.reshape(()))), (x.dims[1],), bias.dtype)
        ready = w.array(bias) is not None or (bias.dims == bias.axes and bias.name not in w.shared.makers)
        if len(maker.inputs) == 2 and bias.axes and ready:
            maker.inputs.append(w.arranged(bias, bias.axes).name)
            return w.changed(x)
    return None


def _scaled(w: GraphWriter, step: Step, refs: tuple[TensorRef, ...]) -> TensorRef | None:
    """Returns a product of such a node with constants folded into its constant weights; of a sum: the mean; None where it cannot."""
    for x, y in (refs, refs[::-1]):
        share = w.literal(y)
        if share and x.name in w.shared.sums and x.dtype.is_float and (1 / share).is_integer():
            return _mean(w, x, w.number(1 / share, y.dtype))
    for x, maker, factor in _products(w, step, refs):
        weights, scale = w.shared.arrays.get(maker.inputs[1]), w.array(factor)
        if maker.op != "Conv" or weights is None or scale is None or len(maker.inputs) != 2 or not x.dtype.is_float:
            continue
        scale = scale.reshape(-1, *[1] * (weights.ndim - 1))
        maker.inputs[1] = w.variant((weights * scale).astype(weights.dtype), maker.inputs[1])
        return w.changed(x)
    return None


def claims(op: Op, opset: int) -> bool:
    """Whether a composite op is exported as one node."""
    found = CLAIMS.get(op.opdef.name)
    return found is not None and bool(found(op, opset))


def _takes(name: str) -> Any:
    return lambda op, opset: takes(name, opset, op.inputs[0].dtype)


def _along_one(name: str) -> Any:
    return lambda op, opset: takes(name, opset, op.inputs[0].dtype) and len(op.attrs["axes"]) == 1


def _scalars(op: Op, opset: int) -> bool:
    return takes("Clip", opset, op.dtype) and all(not i.axes for i in op.inputs[1:])


CLAIMS: dict[str, Any] = {
    **{n: _takes(ONNX[n]) for n in ELEMENTWISE.names if ONNX[n] and not REGISTRY[n].core},
    "softmax": _along_one("Softmax"),
    "log_softmax": _along_one("LogSoftmax"),
    "logsumexp": _takes("ReduceLogSumExp"),
    "clip": _scalars,
    "top_k": _takes("TopK"),
    "det": _takes("Det"),
    **dict.fromkeys(("uniform", "normal", "randint", "lookuptable", "one_hot"), lambda op, opset: True),
}


@NODES.of("maximum", "minimum")
def _extremes(w: GraphWriter, step: Step, x: TensorRef, y: TensorRef) -> TensorRef:
    if x.dtype is BOOL:
        return w.elementwise("Or" if step.op == "maximum" else "And", x, y)
    return w.elementwise("Max" if step.op == "maximum" else "Min", x, y)


@NODES.of("clip")
def _clip(w: GraphWriter, step: Step, x: TensorRef, low: TensorRef, high: TensorRef) -> TensorRef:
    """Returns Clip without bounds that have no effect: of integers, as a runtime takes the largest number, which is below inf, for none.

    Runtimes ignore a bound that is NaN, with which all is NaN.
    """
    if any(n != n for n in map(w.literal, (low, high))):
        return w.elementwise("Min", w.elementwise("Max", x, low), high)
    bounds: list[TensorRef | None] = [None if w.literal(b) == edge else b for b, edge in ((low, x.dtype.lowest), (high, x.dtype.highest))]
    if not any(bounds):
        return x
    return w.op("Clip", x, *((low, high) if x.dtype.is_float else bounds), dims=x.dims, dtype=x.dtype)


@NODES.of("compare")
def _compare(w: GraphWriter, step: Step, x: TensorRef, y: TensorRef, kind: str) -> TensorRef:
    if x.dtype is BOOL and kind != "eq":  # false is less than true
        return w.elementwise("And" if kind == "lt" else "Or", w.elementwise("Not", x), y)
    return w.elementwise({"eq": "Equal", "lt": "Less", "le": "LessOrEqual"}[kind], x, y, dtype=BOOL)


# ---- arithmetic of integers ---------------------------------------------------------------------------------------------


def _other_than(w: GraphWriter, y: TensorRef, *numbers: int) -> TensorRef:
    """Returns integers with a 1 in place of invalid divisors; a constant without such divisors stays."""
    array = w.array(y)
    if array is not None and not np.isin(array, numbers).any():
        return y
    for n in numbers:
        y = w.elementwise("Where", w.elementwise("Equal", y, w.number(n, y.dtype), dtype=BOOL), w.number(1, y.dtype), y)
    return y


def _at(w: GraphWriter, y: TensorRef, n: int, then: TensorRef, otherwise: TensorRef) -> TensorRef:
    """Returns `then` where y is n, else `otherwise`."""
    array = w.array(y)
    if array is not None and not (array == n).any():
        return otherwise
    return w.elementwise("Where", w.elementwise("Equal", y, w.number(n, y.dtype), dtype=BOOL), then, otherwise)


def _wide_enough(w: GraphWriter, refs: tuple[TensorRef, ...]) -> list[TensorRef]:
    """Returns integers in a type whose minimum they do not reach, so that negation is exact; 64 bits stay."""
    d = refs[0].dtype
    wide = INT64 if d.kind == "int" or d.bits < 64 else d
    return [w.cast(r, wide) for r in refs]


@NODES.of("divide")
def _divide(w: GraphWriter, step: Step, *refs: TensorRef) -> TensorRef:
    """Returns the floor for integers: ONNX truncates, and division by 0 is undefined, so divisors of 0, and of 64 bits -1, are replaced."""
    dtype = refs[0].dtype
    if dtype.is_float:
        return _mean(w, *refs) or w.elementwise("Div", *refs)
    x, y = _wide_enough(w, refs)
    z = _other_than(w, y, *((0, -1) if dtype.name == "int64" else (0,)))
    made = w.elementwise("Div", x, z)
    if dtype.kind == "int":
        left = w.elementwise("Sub", x, w.elementwise("Mul", made, z))
        less = w.elementwise("Not", w.elementwise("Equal", left, w.elementwise("Mod", x, z), dtype=BOOL))
        made = w.elementwise("Sub", made, w.cast(less, made.dtype))
        if dtype.name == "int64":
            made = _at(w, y, -1, w.elementwise("Sub", w.number(0, x.dtype), x), made)
    return w.cast(_at(w, y, 0, w.number(0, x.dtype), made), dtype)


def _mean(w: GraphWriter, x: TensorRef, y: TensorRef) -> TensorRef | None:
    """Returns ReduceMean for a sum divided by its number of terms; None for other quotients."""
    summed = w.shared.sums.get(x.name)
    size = w.shared.sizes.get(y.name, w.literal(y))
    if summed is None or size is None or not same(w.size(summed[1]), int(size) if isinstance(size, float) and size == int(size) else size):
        return None
    made = reduced(w, "ReduceMean", *summed, x.dtype)
    return TensorRef(made.name, x.dims, x.dtype)


@NODES.of("remainder")
def _remainder(w: GraphWriter, step: Step, *refs: TensorRef) -> TensorRef:
    """Returns the remainder: ONNX's Mod of integers has the divisor's sign; that of floats x's, as in C."""
    dtype = refs[0].dtype
    if dtype.is_float:
        x, y = refs
        made = w.elementwise("Mod", x, y, fmod=1)
        zero = w.number(0, dtype)
        apart = w.elementwise("Less", w.elementwise("Mul", w.elementwise("Sign", made), w.elementwise("Sign", y)), zero, dtype=BOOL)
        return w.elementwise("Where", apart, w.elementwise("Add", made, y), made)
    x, y = _wide_enough(w, refs)
    made = w.elementwise("Mod", x, _other_than(w, y, *((0, -1) if dtype.name == "int64" else (0,))))
    if dtype.name == "int64":
        made = _at(w, y, -1, w.number(0, x.dtype), made)
    return w.cast(_at(w, y, 0, w.number(0, x.dtype), made), dtype)


@NODES.of("power")
def _power(w: GraphWriter, step: Step, x: TensorRef, y: TensorRef) -> TensorRef:
    if x.dtype.is_float:
        return w.elementwise("Pow", x, y)
    return _integer_power(w, x, y)


def _integer_power(w: GraphWriter, x: TensorRef, y: TensorRef) -> TensorRef:
    """Returns the power by squaring, one bit of the exponent in each iteration, so that results wrap as products do."""
    dtype, bits = x.dtype, x.dtype.bits
    x, y = (w.cast(r, DTYPES["int64"]) for r in (x, y)) if dtype.bits < 64 or dtype.kind == "int" else (x, y)
    d = x.dtype
    dims = w.common((x, y))
    zero, one, two = (w.number(n, d) for n in (0, 1, 2))
    spread = w.arranged(w.elementwise("Add", w.elementwise("Mul", x, zero), w.elementwise("Mul", y, zero)), dims)
    base, exponent = (w.arranged(w.elementwise("Add", r, spread), dims) for r in (x, w.elementwise("Max", y, zero)))
    done = w.elementwise("Add", spread, one)
    body = w.body("power")
    body.taken("turn", TensorRef("", (), INT64))
    go = body.taken("go", TensorRef("", (), BOOL))
    last, b, e = body.taken("done", done), body.taken("base", base), body.taken("exponent", exponent)
    odd = body.elementwise("Equal", body.elementwise("Mod", e, two), one, dtype=BOOL)
    new = body.elementwise("Where", odd, body.elementwise("Mul", last, b), last)
    body.leave([go, new, body.elementwise("Mul", b, b), body.elementwise("Div", e, two)])
    names = w.node("Loop", [w.scalar(bits), w.number(True, BOOL).name, done.name, base.name, exponent.name], 3, body=body.part)
    made = TensorRef(names[0], dims, d)
    if dtype.kind == "int":  # for a negative exponent the truncated reciprocal
        sign = w.elementwise("Where", w.elementwise("Equal", w.elementwise("Mod", y, two), zero, dtype=BOOL), one, w.number(-1, d))
        below = _at(w, x, 1, one, _at(w, x, -1, sign, zero))
        made = w.elementwise("Where", w.elementwise("Less", y, zero, dtype=BOOL), below, made)
    return w.cast(made, dtype)


@NODES.of("bitwise")
def _bitwise(w: GraphWriter, step: Step, x: TensorRef, y: TensorRef, kind: str) -> TensorRef:
    if x.dtype is BOOL:
        if kind == "xor" and w.literal(y) is True:
            return w.elementwise("Not", x)
        return w.elementwise({"and": "And", "or": "Or", "xor": "Xor"}[kind], x, y)
    if kind in ("shl", "shr"):
        return _shift(w, x, y, kind)
    return w.elementwise({"and": "BitwiseAnd", "or": "BitwiseOr", "xor": "BitwiseXor"}[kind], x, y)


def _shift(w: GraphWriter, x: TensorRef, y: TensorRef, kind: str) -> TensorRef:
    """Returns the shift: ONNX shifts unsigned integers, by fewer places than their bits. Negative numbers: the complement, shifted."""
    dtype, bits = x.dtype, x.dtype.bits
    unsigned = DTYPES[f"uint{bits}"]
    count = w.literal(y)
    fits = count is not None and 0 <= count < bits
    zero = w.number(0, dtype)
    far = None
    if not fits:
        below = w.elementwise("Less", y, w.number(bits, dtype), dtype=BOOL)
        if dtype.kind == "int":
            below = w.elementwise("And", w.elementwise("LessOrEqual", zero, y, dtype=BOOL), below)
        far = w.elementwise("Not", below)
        y = w.elementwise("Where", far, zero, y)
    negative = w.elementwise("Less", x, zero, dtype=BOOL) if dtype.kind == "int" and kind == "shr" else None
    if negative is not None:
        minus = w.number(-1, dtype)
        x = w.elementwise("Where", negative, w.elementwise("Sub", minus, x), x)
    made = w.elementwise("BitShift", w.cast(x, unsigned), w.cast(y, unsigned), direction="LEFT" if kind == "shl" else "RIGHT")
    made = w.cast(made, dtype)
    if far is not None:
        made = w.elementwise("Where", far, zero, made)
    return made if negative is None else w.elementwise("Where", negative, w.elementwise("Sub", minus, made), made)


# ---- functions that ONNX lacks ------------------------------------------------------------------------------------------


@NODES.of("expm1")
def _expm1(w: GraphWriter, step: Step, x: TensorRef) -> TensorRef:
    """Returns tanh(x / 2) * (exp(x) + 1), exact near 0."""
    half = w.elementwise("Tanh", w.elementwise("Mul", x, w.number(0.5, x.dtype)))
    return w.elementwise("Mul", half, w.elementwise("Add", w.elementwise("Exp", x), w.number(1, x.dtype)))


@NODES.of("exp2")
def _exp2(w: GraphWriter, step: Step, x: TensorRef) -> TensorRef:
    return w.elementwise("Pow", w.number(2, x.dtype), x)


@NODES.of("log2", "log10")
def _log_of_base(w: GraphWriter, step: Step, x: TensorRef) -> TensorRef:
    return w.elementwise("Div", w.elementwise("Log", x), w.number(math.log(2 if step.op == "log2" else 10), x.dtype))


@NODES.of("log1p")
def _log1p(w: GraphWriter, step: Step, x: TensorRef) -> TensorRef:
    """Returns 2 atanh(x / (x + 2)) near 0, where 1 + x would lose precision."""
    one, two, half = (w.number(n, x.dtype) for n in (1, 2, 0.5))
    near = w.elementwise("Less", w.elementwise("Abs", x), half, dtype=BOOL)
    inner = w.elementwise("Where", near, x, w.number(0, x.dtype))
    close = w.elementwise("Mul", w.elementwise("Atanh", w.elementwise("Div", inner, w.elementwise("Add", inner, two))), two)
    return w.elementwise("Where", near, close, w.elementwise("Log", w.elementwise("Add", x, one)))


@NODES.of("cast")
def _cast(w: GraphWriter, step: Step, x: TensorRef, dtype: DType) -> TensorRef:
    """Returns the cast, with floats saturated to 8 and 16 bits first; beyond 32 and 64 bits ONNX leaves the result open."""
    if x.dtype.is_float and dtype.is_integer and dtype.bits <= 16:
        maker = w.shared.makers.get(x.name)
        if maker is None or maker.op != "Clip":
            x = w.op("Clip", x, *[w.number(n, x.dtype) for n in (dtype.lowest, dtype.highest)], dims=x.dims, dtype=x.dtype)
    return w.cast(x, dtype)


@NODES.of("bitcast")
def _bitcast(w: GraphWriter, step: Step, x: TensorRef, dtype: DType) -> TensorRef:
    if x.dtype is dtype:
        return x
    if x.dtype.is_integer and dtype.is_integer:  # integers wrap
        return w.cast(x, dtype)
    if schema("BitCast", w.opset) is None and x.dtype.name in FRACTIONS and dtype.is_integer:
        return w.cast(_bits_of(w, x), dtype)
    if schema("BitCast", w.opset) is None and dtype.name in FRACTIONS and x.dtype.is_integer:
        return w.cast(_float_of(w, w.cast(x, DTYPES[f"int{dtype.bits}"]), dtype), dtype)
    return w.op("BitCast", x, dims=x.dims, dtype=dtype, exact=True, to=onnx_type(dtype))


FRACTIONS = {"float16": (10, -14), "bfloat16": (7, -126), "float32": (23, -126)}  # bits of the fraction, least exponent of normal numbers


def _bits_of(w: GraphWriter, x: TensorRef) -> TensorRef:
    """Returns the bits of floats as signed int64, computed in float64, which is exact. Every NaN has the bits of the positive quiet one."""
    fraction, least = FRACTIONS[x.dtype.name]
    top = 2 - least  # the exponent that an infinity would have
    y = w.cast(x, FLOAT64)

    def number(n: float) -> TensorRef:
        return w.number(n, FLOAT64)

    nan = w.op("IsNaN", y, dims=y.dims, dtype=BOOL)
    signed = w.elementwise("Where", w.elementwise("Equal", y, number(0), dtype=BOOL), w.elementwise("Div", number(1), y), y)
    size = w.elementwise("Min", w.elementwise("Abs", w.elementwise("Where", nan, number(0), y)), number(2.0**top))
    inside = w.elementwise("Mul", size, number(1 + 2.0 ** -(fraction + 2)))  # the logarithm of no number rounds to a whole one
    exponent = w.elementwise("Floor", w.elementwise("Div", w.elementwise("Log", inside), number(math.log(2))))
    exponent = w.elementwise("Min", w.elementwise("Max", exponent, number(least)), number(top))
    scale = w.elementwise("Pow", number(2), w.elementwise("Sub", number(fraction), exponent))
    above = w.elementwise("Mul", w.elementwise("Sub", exponent, number(least)), number(2.0**fraction))
    made = w.elementwise("Add", w.elementwise("Mul", size, scale), above)
    made = w.elementwise("Where", nan, number(2.0**fraction * (top - least + 1.5)), made)
    lowest = w.elementwise("Where", w.elementwise("Less", signed, number(0), dtype=BOOL), number(-(2.0 ** (x.dtype.bits - 1))), number(0))
    return w.cast(w.elementwise("Add", made, lowest), INT64)


def _float_of(w: GraphWriter, x: TensorRef, dtype: DType) -> TensorRef:
    """Returns the float64 that has the value of signed integers' bits as floats of a dtype."""
    fraction, least = FRACTIONS[dtype.name]

    def number(n: float) -> TensorRef:
        return w.number(n, FLOAT64)

    y = w.cast(x, FLOAT64)
    negative = w.elementwise("Less", y, number(0), dtype=BOOL)
    y = w.elementwise("Where", negative, w.elementwise("Add", y, number(2.0 ** (dtype.bits - 1))), y)
    field = w.elementwise("Floor", w.elementwise("Mul", y, number(2.0**-fraction)))
    left = w.elementwise("Sub", y, w.elementwise("Mul", field, number(2.0**fraction)))
    normal = w.elementwise("Less", number(0), field, dtype=BOOL)
    exponent = w.elementwise("Add", w.elementwise("Max", field, number(1)), number(least - 1 - fraction))
    size = w.elementwise("Add", left, w.elementwise("Where", normal, number(2.0**fraction), number(0)))
    made = w.elementwise("Mul", size, w.elementwise("Pow", number(2), exponent))
    infinite = w.elementwise("LessOrEqual", number(2.0 ** (2 - least)), made, dtype=BOOL)
    zero = w.elementwise("Equal", left, number(0), dtype=BOOL)
    made = w.elementwise("Where", infinite, w.elementwise("Where", zero, number(math.inf), number(math.nan)), made)
    return w.elementwise("Mul", made, w.elementwise("Where", negative, number(-1), number(1)))


# ---- along axes ---------------------------------------------------------------------------------------------------------


def reduced(w: GraphWriter, op: str, x: TensorRef, axes: tuple[AxisId, ...], dtype: DType) -> TensorRef:
    """Returns a reduction; its axes are an input at some opsets, an attribute at others. Dims of length 1 stay."""
    places = [x.dims.index(a) for a in axes]
    dims: Dims = tuple([a for a in x.dims if a not in axes])
    if len(schema(op, w.opset).inputs) > 1:
        return w.op(op, x, w.ints(places), dims=dims, dtype=dtype, keepdims=0)
    return w.op(op, x, dims=dims, dtype=dtype, axes=places, keepdims=0)


REDUCE = {"add": "ReduceSum", "multiply": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}


@NODES.of("reduce")
def _reduce(w: GraphWriter, step: Step, x: TensorRef, kind: str, axes: tuple[AxisId, ...]) -> TensorRef:
    if not axes:
        return x
    x = w.full(x, x.dims + tuple([a for a in axes if a not in x.dims]))
    if any(w.length(a) == 0 for a in axes):
        start = {"add": 0, "multiply": 1, "max": x.dtype.lowest, "min": x.dtype.highest}[kind]
        return w.filled(start, tuple([a for a in x.dims if a not in axes]), x.dtype)
    made = reduced(w, REDUCE[kind], x, axes, x.dtype)
    if kind == "add":
        w.shared.sums[made.name] = x, axes
    return made


@NODES.of("softmax", "log_softmax")
def _softmax(w: GraphWriter, step: Step, x: TensorRef, axes: tuple[AxisId, ...]) -> TensorRef:
    x = w.full(x, x.dims + tuple([a for a in axes if a not in x.dims]))
    return w.op(ONNX[step.op], x, dims=x.dims, dtype=x.dtype, axis=x.dims.index(axes[0]))


@NODES.of("logsumexp")
def _logsumexp(w: GraphWriter, step: Step, x: TensorRef, axes: tuple[AxisId, ...]) -> TensorRef:
    x = w.full(x, x.dims + tuple([a for a in axes if a not in x.dims]))
    if any(w.length(a) == 0 for a in axes):
        return w.filled(-math.inf, tuple([a for a in x.dims if a not in axes]), x.dtype)
    return reduced(w, "ReduceLogSumExp", x, axes, x.dtype) if axes else x


@NODES.of("argreduce")
def _argreduce(w: GraphWriter, step: Step, x: TensorRef, kind: str, axes: tuple[AxisId, ...]) -> TensorRef:
    x = w.full(x, x.dims + tuple([a for a in axes if a not in x.dims]))
    rest = tuple([a for a in x.axes if a not in axes])
    if not axes or any(w.length(a) == 0 for a in axes):
        return w.filled(0, rest, INT32)
    op = "ArgMax" if kind == "max" else "ArgMin"
    if x.dtype is BOOL:
        x = w.cast(x, INT32)
    if len(axes) == 1:
        at = x.dims.index(axes[0])
        return w.op(op, x, dims=(*x.dims[:at], *x.dims[at + 1 :]), dtype=INT32, axis=at, keepdims=0)
    flat = w.merged(x, [*[[a] for a in rest], axes])
    return w.op(op, flat, dims=rest, dtype=INT32, axis=len(rest), keepdims=0)


@NODES.of("cumulate")
def _cumulate(w: GraphWriter, step: Step, x: TensorRef, kind: str, axis: AxisId, exclusive: bool, reverse: bool) -> TensorRef:
    x = w.full(x, x.dims if axis in x.dims else (*x.dims, axis))
    op = {"add": "CumSum", "multiply": "CumProd"}.get(kind, "")
    at = x.dims.index(axis)
    if schema(op, w.opset) is not None:
        place = w.constant(np.array(at, np.int64))
        return w.op(op, x, place, dims=x.dims, dtype=x.dtype, exclusive=int(exclusive), reverse=int(reverse))
    return _running(w, x, kind, at, exclusive, reverse)


def _running(w: GraphWriter, x: TensorRef, kind: str, at: int, exclusive: bool, reverse: bool) -> TensorRef:
    """Returns cumulative products and extremes: a Scan with one node in it."""
    rest = (*x.dims[:at], *x.dims[at + 1 :])
    start = {"multiply": 1, "max": x.dtype.lowest, "min": x.dtype.highest}[kind]
    first = w.full(w.number(start, x.dtype), rest)
    body = w.body("running")
    carry, now = body.taken("carry", first), body.taken("now", TensorRef(x.name, rest, x.dtype))
    op = {"multiply": "Mul", "max": "Or" if x.dtype is BOOL else "Max", "min": "And" if x.dtype is BOOL else "Min"}[kind]
    new = body.elementwise(op, carry, now)
    body.leave([new, carry if exclusive else new])
    way = [int(reverse)]
    names = w.node(
        "Scan",
        [first.name, x.name],
        2,
        body=body.part,
        num_scan_inputs=1,
        scan_input_axes=[at],
        scan_output_axes=[at],
        scan_input_directions=way,
        scan_output_directions=way,
    )
    return TensorRef(names[1], x.dims, x.dtype)


@NODES.of("sort")
def _sort(w: GraphWriter, step: Step, *refs: TensorRef, axis: AxisId, descending: bool, nan_largest: bool) -> tuple[TensorRef, ...]:
    """Returns TopK of all elements; values are gathered at its indices."""
    dims = tuple(step.inputs[0].axes)
    key, *values = (w.full(r, dims) for r in refs)
    if w.length(axis) == 1:
        return (key, *values)
    at = dims.index(axis)
    compared = key if takes("TopK", w.opset, key.dtype) else w.cast(key, INT64 if key.dtype.is_integer or key.dtype is BOOL else FLOAT32)
    _, found = w.node("TopK", [compared.name, w.vector([w.length(axis)])], 2, axis=at, largest=int(descending), sorted=1)
    places = TensorRef(found, dims, INT64)
    return tuple([w.op("GatherElements", r, places, dims=dims, dtype=r.dtype, axis=at) for r in (key, *values)])


@NODES.of("compact")
def _compact(w: GraphWriter, step: Step, c: TensorRef, axes: tuple[AxisId, ...], axis: AxisId) -> tuple[TensorRef, TensorRef]:
    found, count = step.results
    c = w.full(c, axes)
    flat = w.reshaped(c.name, [w.size(axes)], (), c.dtype) if len(axes) != 1 else c
    places = w.node("Squeeze", [w.node("NonZero", [flat.name])[0], w.ints([0])])[0]
    total = w.node("Squeeze", [w.node("Shape", [places])[0], w.ints([0])])[0]
    number = w.cast(TensorRef(total, (), INT64), count.dtype)
    w.refs[count] = number
    kept = w.vector([w.settle(w.program.axes[axis])])
    places = w.node("Slice", [places, w.ints([0]), kept, w.ints([0])])[0]
    return w.cast(TensorRef(places, (axis,), INT64), found.dtype), number


# ---- sources ------------------------------------------------------------------------------------------------------------


@NODES.of("constant")
def _constant(w: GraphWriter, step: Step, value: Any, axes: tuple[AxisId, ...], dtype: DType) -> TensorRef:
    if isinstance(value, ArrayRef):  # a folded constant is named after the first of its operands that has a name
        made_of = next((o.name for o in step.origin if o.name not in REGISTRY), "")
        return TensorRef(w.constant(value.array, value.name or step.result.hint or made_of), tuple(axes), dtype)
    if isinstance(value, Expr):
        made = w.cast(TensorRef(w.scalar(w.settle(value)), (), INT64), dtype)
        w.shared.sizes[made.name] = w.settle(value)
        return made
    return w.number(value, dtype, step.result.hint)


@NODES.of("iota")
def _iota(w: GraphWriter, step: Step, axis: AxisId, dtype: DType) -> TensorRef:
    return w.cast(w.counted(axis), dtype)


@NODES.of("uniform", "normal")
def _random(w: GraphWriter, step: Step, *refs: TensorRef, axes: tuple[AxisId, ...], dtype: DType, stream: int, **numbers: Any) -> TensorRef:
    if "loc" in numbers:
        numbers["mean"] = numbers.pop("loc")
    return drawn(w, "RandomNormal" if step.op == "normal" else "RandomUniform", axes, dtype, **numbers)


def drawn(w: GraphWriter, op: str, axes: tuple[AxisId, ...], dtype: DType, **numbers: Any) -> TensorRef:
    """Returns random numbers of the runtime: an op with a shape; one like a tensor for a scalar, or for lengths that calls bring."""
    wide = dtype if dtype.bits > 16 else FLOAT32
    sizes = w.shape(axes)
    if sizes and all(isinstance(n, int) for n in sizes):
        (name,) = w.node(op, [], shape=sizes, dtype=onnx_type(wide), **numbers)
    else:
        (name,) = w.node(f"{op}Like", [w.full(w.number(0, wide), axes).name], dtype=onnx_type(wide), **numbers)
    return w.cast(TensorRef(name, axes, wide), dtype)


@NODES.of("randint")
def _randint(
    w: GraphWriter, step: Step, *refs: TensorRef, axes: tuple[AxisId, ...], dtype: DType, stream: int, low: int, high: int
) -> TensorRef:
    wide = DTYPES["float64"]
    whole = w.elementwise("Floor", drawn(w, "RandomUniform", axes, wide, low=0.0, high=float(high - low)))
    return w.cast(w.elementwise("Add", w.cast(whole, INT64), w.number(low, INT64)), dtype)


@NODES.of("random_bits")
def _random_bits(w: GraphWriter, step: Step, *refs: TensorRef, **attrs: Any) -> TensorRef:
    raise Cannot("random bits of a generator of our own; ng.uniform, ng.normal and ng.randint go out as the runtime's random numbers")


# ---- collectives: there is one process ----------------------------------------------------------------------------------


@NODES.of("all_reduce", "broadcast_from")
def _same(w: GraphWriter, step: Step, x: TensorRef, **attrs: Any) -> TensorRef:
    return x


@NODES.of("all_gather", "reduce_scatter")
def _all_of_it(w: GraphWriter, step: Step, x: TensorRef, axis: AxisId, out: AxisId, **attrs: Any) -> TensorRef:
    return TensorRef(x.name, tuple([out if a == axis else a for a in x.dims]), x.dtype)

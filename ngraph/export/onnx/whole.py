"""Recomposition: groups of smaller ops, from an importer or a user, that are one node in ONNX."""

from __future__ import annotations

import functools
import math
from typing import Any

from ngraph.export.onnx.lengths import same
from ngraph.export.onnx.products import fits, window_read
from ngraph.export.onnx.writer import takes
from ngraph.op_graph import expr
from ngraph.op_graph.expr import ExprLike, Len
from ngraph.parts.runner import pass_
from ngraph.program.program import AxisId, Program, Step, Value
from ngraph.rewrite.driver import Builder, Built, rewrite
from ngraph.rewrite.pattern import Rule, Rules, functions, match, number, same_number, var

x, c, z = (var(n) for n in "xcz")
a = var("a")
absolute, erf, exp, log, log1p, maximum, minimum, negative = functions("abs erf exp log log1p maximum minimum negative")
reduce, reindex, softmax, log_softmax, gelu, softplus, clip, max_pool = functions(
    "reduce reindex softmax log_softmax gelu softplus clip max_pool"
)


def length(new: Builder, axis: AxisId) -> ExprLike:
    """Returns the length of an axis over those that calls bring."""
    own = new.axes[axis]
    return expr.substitute(own, lambda leaf: length(new, leaf.of) if type(leaf) is Len and leaf.of != axis else leaf)


def pooled(x: Built, step: Step, new: Builder) -> Any:
    """Returns max pooling for windows whose padding is never the maximum. None where ONNX has no such window."""
    read = x.of(step.inputs[0]).maker
    assert read is not None
    windows = window_read(read, step.attrs["axes"], lambda axis: length(new, axis))
    if windows is None or not same_number(read.attrs["pad_value"], x.dtype.lowest, x.dtype):
        return None
    return max_pool(x, windows=windows) if fits(windows, lambda axis: length(new, axis)) else None


def near(number: Any, value: float) -> bool:
    return number is not None and math.isclose(number, value, rel_tol=1e-6)


def bell(c: Built, z: Built) -> bool:
    """Whether constants are those of gelu: a half, and the root of a half or of 2."""
    return near(c.number, 0.5) and (near(z.number, math.sqrt(0.5)) or near(z.number, math.sqrt(2)))


@functools.cache
def rules(opset: int) -> Rules:
    """Returns the equivalences, for ops and element types of an opset."""

    def has(name: str, step: Step) -> bool:
        return takes(name, opset, step.result.dtype)

    shifted = x - reduce(x, kind="max", axes=a)
    total = reduce(exp(shifted), kind="add", axes=a)
    made = Rules(
        Rule("softmax", exp(shifted) / total, lambda x, a: softmax(x, axes=a), when=lambda a, step: len(a) == 1 and has("Softmax", step)),
        Rule(
            "log_softmax",
            shifted - log(total),
            lambda x, a: log_softmax(x, axes=a),
            when=lambda a, step: len(a) == 1 and has("LogSoftmax", step),
        ),
        Rule(
            "softplus",
            maximum(x, 0.0) + log1p(exp(negative(absolute(x)))),
            lambda x: softplus(x),
            when=lambda step: has("Softplus", step),
        ),
        Rule(
            "clip",
            minimum(maximum(x, c), z),
            lambda x, c, z: clip(x, c.number, z.number),
            when=lambda c, z, step: c.number is not None and z.number is not None and has("Clip", step),
        ),
        Rule(
            "max_pool",
            reduce(reindex(x), kind="max", axes=a),
            lambda x, step, new: pooled(x, step, new),
            when=lambda step: has("MaxPool", step),
        ),
    )
    for k, inner in enumerate((x * z, x / z)):
        for j, outer in enumerate(((x * c) * (erf(inner) + 1.0), (x * (erf(inner) + 1.0)) * c)):
            made.register(Rule(f"gelu {2 * k + j}", outer, lambda x: gelu(x), when=lambda c, z, step: bell(c, z) and has("Gelu", step)))
    return made


# ---- norms and quantisation, which have no records ------------------------------------------------------------------------

Makers = dict[Value, Step]
m, g, v, b = (var(n) for n in "mgvb")
sqrt, reciprocal, cast, rounded = functions("sqrt reciprocal cast round")
BATCH = [n for p in ((x - m) * (g / sqrt(v + c)) + b, (x - m) / sqrt(v + c) * g + b) for n in Rule("", p, lambda x: x).variants]
LAYER = [n for p in (x / sqrt(v + c), x * reciprocal(sqrt(v + c))) for n in Rule("", p, lambda x: x).variants]
QUANTIZE = [n for p in (cast(clip(rounded(x / c) + z, g, b)),) for n in Rule("", p, lambda x: x).variants]
DEQUANTIZE = [n for p in (cast(cast(x) - z) * c, cast(x) * c) for n in Rule("", p, lambda x: x).variants]
FIND: dict[str, tuple[Any, ...]] = {}  # op of a step -> candidates for its replacement


def named(program: Program, opset: int) -> Program:
    """Returns `program` with steps named as in NODES, which only the rules of this room handle."""
    makers: Makers = {}
    new = Builder(program, makers)
    steps = []
    for step in program.steps:
        for find in FIND.get(step.op, ()):
            made = find(step, makers, new)
            if made is not None and takes(NODES[made.op], opset, made.inputs[0].dtype):
                step = made
                break
        steps.append(step)
        makers.update(dict.fromkeys(step.results, step))
    return program.with_(steps=tuple(steps))


NODES = {
    "batch_norm": "BatchNormalization",
    "layer_norm": "LayerNormalization",
    "quantize": "QuantizeLinear",
    "dequantize": "DequantizeLinear",
}


def found(nodes: list[Any], step: Step, makers: Makers) -> dict[str, Any] | None:
    """Returns the bindings of the first pattern that matches; None where none does."""
    for node in nodes:
        bound: dict[str, Any] = {}
        if step.op in node.ops and match(node, step, makers, bound, []):
            return bound
    return None


def batch_norm(step: Step, makers: Makers, new: Builder) -> Step | None:
    """Returns batch normalisation with given mean and variance along one axis; None where the step is no such."""
    bound = found(BATCH, step, makers)
    if bound is None:
        return None
    x, *along = (bound[n] for n in "xgbmv")
    epsilon = number(bound["c"], makers)
    if epsilon is None or any(len(a.axes) != 1 or a.axes != along[0].axes for a in along) or along[0].axes[0] not in x.axes:
        return None
    return Step(step.results, "batch_norm", (x, *along), {"epsilon": float(epsilon)}, step.origin)


def layer_norm(step: Step, makers: Makers, new: Builder) -> Step | None:
    """Returns layer normalisation: x less its mean, over the root of the mean of squares of that; None where the step is no such."""
    bound = found(LAYER, step, makers)
    if bound is None:
        return None
    centred, square = makers.get(bound["x"]), mean_of(bound["v"], makers, new)
    epsilon = number(bound["c"], makers)
    if centred is None or square is None or epsilon is None or centred.op != "subtract":
        return None
    squared = makers.get(square[0])
    mean = mean_of(centred.inputs[1], makers, new)
    if squared is None or squared.op != "multiply" or squared.inputs != (centred.result, centred.result):
        return None
    if mean is None or mean[0] is not centred.inputs[0] or set(mean[1]) != set(square[1]):
        return None
    return Step(step.results, "layer_norm", (mean[0],), {"axes": tuple(mean[1]), "epsilon": float(epsilon)}, step.origin)


def scaled_norm(step: Step, makers: Makers, new: Builder) -> Step | None:
    """Returns a norm with a scale, or a bias, along its axes; None where the step is no such."""
    for k, value in enumerate(step.inputs):
        maker, other = makers.get(value), step.inputs[1 - k]
        if maker is not None and maker.op == "layer_norm" and len(maker.inputs) == (1 if step.op == "multiply" else 2):
            if set(other.axes) == set(maker.attrs["axes"]):
                return Step(step.results, "layer_norm", (*maker.inputs, other), maker.attrs, step.origin)
    return None


def mean_of(value: Value, makers: Makers, new: Builder) -> tuple[Value, tuple[AxisId, ...]] | None:
    """Returns the operand and axes of which a value is the mean; None where it is none."""
    step = makers.get(value)
    if step is None or step.op not in ("divide", "multiply"):
        return None
    for summed, share in (step.inputs, step.inputs[::-1])[: 1 if step.op == "divide" else 2]:
        total = makers.get(summed)
        if total is None or total.op != "reduce" or total.attrs["kind"] != "add":
            continue
        size: ExprLike = 1
        for axis in total.attrs["axes"]:
            size = size * length(new, axis)
        count = number(share, makers)
        maker = makers.get(share)
        if count is None and maker is not None and maker.op == "constant" and isinstance(maker.attrs["value"], expr.Expr):
            own = expr.substitute(maker.attrs["value"], lambda leaf: length(new, leaf.of) if type(leaf) is Len else leaf)
            if step.op == "divide" and same(own, size):
                return total.inputs[0], total.attrs["axes"]
        elif count is not None and isinstance(size, int) and (count == size if step.op == "divide" else count * size == 1):
            return total.inputs[0], total.attrs["axes"]
    return None


def constant_of(value: Value, makers: Makers) -> bool:
    maker = makers.get(value)
    return maker is not None and maker.op == "constant" and len(value.axes) <= 1


def quantize(step: Step, makers: Makers, new: Builder) -> Step | None:
    """Returns quantisation: x over a scale, rounded, with a zero point, saturated to 8 bits; None where the step is no such."""
    bound, dtype = found(QUANTIZE, step, makers), step.attrs["dtype"]
    if bound is None or dtype.name not in ("int8", "uint8") or bound["x"].dtype.name != "float32":
        return None
    if number(bound["g"], makers) != dtype.lowest or number(bound["b"], makers) != dtype.highest:
        return None
    if not all(constant_of(bound[n], makers) for n in "cz"):
        return None
    return Step(step.results, "quantize", (bound["x"], bound["c"], bound["z"]), {"dtype": dtype}, step.origin)


def dequantize(step: Step, makers: Makers, new: Builder) -> Step | None:
    """Returns dequantisation: 8-bit integers less a zero point, times a scale; None where the step is no such."""
    bound = found(DEQUANTIZE, step, makers)
    if bound is None or bound["x"].dtype.name not in ("int8", "uint8") or step.result.dtype.name != "float32":
        return None
    zero = bound.get("z")
    if (zero is None and bound["x"].dtype.kind == "uint") or not all(constant_of(bound[n], makers) for n in "cz" if n in bound):
        return None  # unsigned 8-bit integers, times a number, may be an image's
    return Step(step.results, "dequantize", tuple([bound[n] for n in "xcz" if n in bound]), {}, step.origin)


FIND.update(
    {
        "add": (batch_norm, scaled_norm),
        "divide": (layer_norm,),
        "multiply": (layer_norm, scaled_norm, dequantize),
        "cast": (quantize,),
    }
)


@pass_(needs=("opset",), gives=("whole",))
def put_together(program: Program, opset: int) -> Program:
    """Returns `program` with ONNX's composite ops in place of the steps that compute them."""
    return named(rewrite(program, rules(opset)), opset)

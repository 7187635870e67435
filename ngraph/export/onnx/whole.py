"""Smaller ops put together again: what an importer or a user took apart, and ONNX has as one node."""

from __future__ import annotations

import functools
import math
from typing import Any

from ngraph.export.onnx.products import fits, window_read
from ngraph.export.onnx.writer import takes
from ngraph.op_graph import expr
from ngraph.op_graph.expr import ExprLike, Len
from ngraph.program.program import AxisId, Program, Step
from ngraph.rewrite.driver import Builder, Built, rewrite
from ngraph.rewrite.pattern import Rule, Rules, functions, same_number, var

x, c, z = (var(n) for n in "xcz")
a = var("a")
absolute, erf, exp, log, log1p, maximum, minimum, negative = functions("abs erf exp log log1p maximum minimum negative")
reduce, reindex, softmax, log_softmax, gelu, softplus, clip, max_pool = functions(
    "reduce reindex softmax log_softmax gelu softplus clip max_pool"
)


def length(new: Builder, axis: AxisId) -> ExprLike:
    """The length of an axis over those that come with the call."""
    own = new.axes[axis]
    return expr.substitute(own, lambda leaf: length(new, leaf.of) if type(leaf) is Len and leaf.of != axis else leaf)


def pooled(x: Built, step: Step, new: Builder) -> Any:
    """The largest of windows, where what is read beyond the ends is never the largest. None where ONNX has no such window."""
    read = x.of(step.inputs[0]).maker
    assert read is not None
    windows = window_read(read, step.attrs["axes"], lambda axis: length(new, axis))
    if windows is None or not same_number(read.attrs["fill"], x.dtype.lowest, x.dtype):
        return None
    return max_pool(x, windows=windows) if fits(windows, lambda axis: length(new, axis)) else None


def near(number: Any, value: float) -> bool:
    return number is not None and math.isclose(number, value, rel_tol=1e-6)


def bell(c: Built, z: Built) -> bool:
    """Whether numbers are those of gelu: a half, and the root of a half or of 2."""
    return near(c.number, 0.5) and (near(z.number, math.sqrt(0.5)) or near(z.number, math.sqrt(2)))


@functools.cache
def rules(opset: int) -> Rules:
    """The equivalences, for ops and element types that there are at an opset."""

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


def put_together(program: Program, opset: int) -> Program:
    """`program` with ops that ONNX has whole in place of what makes them up."""
    return rewrite(program, rules(opset))

"""Common parts of ai.onnx.ml's models: scores as probabilities, and the label of the best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.positional.reductions import along, total
from ngraph.frontends.positional.shapes import joined
from ngraph.frontends.positional.values import Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops import sorting
from ngraph.ops.indexing import gather

FAMILY = "ai.onnx.ml"


def post(g: Any, t: Tensor, transform: str) -> Tensor:
    """Scores [rows, classes] by the attribute post_transform."""
    x = t.op
    axes = along(t, range(1, t.rank))
    if transform == "NONE":
        return t
    if transform == "LOGISTIC":
        return Tensor(e.sigmoid(x), t.dims)
    if transform == "PROBIT":
        return Tensor(probit(x), t.dims)
    if transform not in ("SOFTMAX", "SOFTMAX_ZERO"):
        raise GraphError(f"there is no post_transform {transform!r}", fix="there are NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO and PROBIT")
    top = total(x, axes, "max")
    p = e.exp(x - top)
    if transform == "SOFTMAX_ZERO":  # what is 0 stays 0
        p = e.where(e.less(1e-7, e.absolute(x)), p, x * e.exp(-top))
    return Tensor(p / total(p, axes), t.dims)


def probit(x: Op) -> Op:
    """The inverse of the normal distribution, by Winitzki's formula for the inverse error function."""
    y = x * 2.0 - 1.0
    half = e.log((1.0 - y) * (1.0 + y))
    a = 2 / (math.pi * 0.147) + half * 0.5
    return e.sign(y) * e.sqrt(e.sqrt(a * a - half / 0.147) - a) * math.sqrt(2)


def column(g: Any, t: Tensor, k: int) -> Op:
    """A column of a matrix."""
    axis = t.dims[1]
    return t.op if axis is None else g.read(t, t.dims[:1], {axis: k}).op


def chosen(n: Any, scores: Tensor, labels: Sequence[Any]) -> Value:
    """The label of the largest score of each row."""
    axis = scores.dims[1]
    best = e.filled(0, scores.op.axes, dtypes.int32) if axis is None else sorting.argreduce.build(scores.op, kind="max", axes=(axis,))
    return labelled(n, Tensor(best, scores.dims[:1]), labels)


def labelled(n: Any, index: Tensor, labels: Sequence[Any]) -> Value:
    """Labels by their number: whole numbers, or strings in a step of Python."""
    if isinstance(labels[0], str):
        names = np.array(labels, object)
        return n.g.host(n.op, lambda k: names[k], [index], [object])[0]
    own = n.g.fresh(len(labels))
    table = e.constant(np.asarray(labels, np.int64), [own])
    return n.g.made(gather.build(table, index.op, axes=(own,), mode="clip"), index.dims)


def binary(n: Any, score: Tensor, labels: Sequence[Any], edge: float, transform: str, positive: bool) -> tuple[Value, ...]:
    """Two classes by the score of the second alone [rows, 1]: the label, and both scores.

    positive: the score is a probability, and the other its rest; else the other is its opposite.
    """
    index = e.cast(e.less(edge, score.op), dtypes.int32)
    label = labelled(n, Tensor(index, score.dims[:1]), labels)
    x = score.op
    if transform == "PROBIT":
        return label, Tensor(probit(x), score.dims)
    if positive:
        both = 1.0 - x, x
    elif transform == "LOGISTIC":
        both = e.sigmoid(-x), e.sigmoid(x)
    else:
        both = -x, x
    return label, joined(n.g, [Tensor(b, score.dims) for b in both], 1)

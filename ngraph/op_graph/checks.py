"""Lengths that each call checks, where expressions do not tell whether they fit."""

from __future__ import annotations

from ngraph.op_graph import dtypes, expr
from ngraph.op_graph.axes import Axes, Axis, make_axis
from ngraph.op_graph.expr import ExprLike, Run
from ngraph.op_graph.op import place_of_now
from ngraph.op_graph.opdef import REGISTRY


def checked_lengths(a: Axis, wrong: ExprLike, what: str, fix: str, length: ExprLike | None = None) -> ExprLike:
    """Returns 0 for an index expression; a call for whose lengths `wrong` is above 0 ends with a BoundsError about `a`.

    length: that of `a`, where its own expression has no value.
    """
    if wrong == 0:
        return 0
    file, line = place_of_now().line or ("", 0)
    number = REGISTRY["constant"].build(value=a.size if length is None else length, axes=Axes(), dtype=dtypes.int64)
    outside = REGISTRY["broadcast"].build(number, axes=Axes([make_axis(name="outside").resized(expr.minimum(wrong, 1))]))
    checked = REGISTRY["check_bounds"].build(outside, axis=a, negative="length", what=what, file=file, line=line, fix=fix)
    return Run(REGISTRY["reduce"].build(checked, kind="add", axes=tuple(outside.axes)))


def distance(a: ExprLike, b: ExprLike) -> ExprLike:
    """Returns how far two lengths are apart: 0 where they are one expression."""
    return expr.maximum(a - b, b - a)

"""Colours of images: functions of red, green and blue, or of hue, saturation and value, all from 0 to 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ngraph.frontends.positional.values import Tensor, Value
from ngraph.op_graph import dtypes
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.rearrange import stack


def by_channels(g: Any, function: Callable[..., Sequence[Op]], x: Value, k: int, *more: Value) -> Tensor:
    """Returns a function of the three channels along dim k of images, and of further numbers, in float32 for 16-bit floats."""
    t = g.full(g.tensor(x), [k])
    wide, channel = dtypes.accumulator(t.op.dtype), t.dims[k]
    given = [e.cast(t.op[{channel: j}], wide) for j in range(3)]
    numbers = [e.cast(g.tensor(v).op, wide) for v in more]
    found: Tensor = g.made(stack([e.cast(op, t.op.dtype) for op in function(*given, *numbers)], channel), t.dims)
    return found


def to_hsv(r: Op, g: Op, b: Op) -> tuple[Op, Op, Op]:
    """Returns hue, saturation and value of red, green and blue."""
    value = e.maximum(r, e.maximum(g, b))
    span = value - e.minimum(r, e.minimum(g, b))
    grey, dark = e.less_equal(span, 0), e.less_equal(value, 0)
    norm = 1.0 / (e.where(grey, e.filled(1, (), span.dtype), span) * 6.0)
    hue = e.where(e.equal(r, value), norm * (g - b), e.where(e.equal(g, value), norm * (b - r) + 2.0 / 6.0, norm * (r - g) + 4.0 / 6.0))
    hue = e.where(grey, e.filled(0, (), hue.dtype), hue)
    saturation = e.where(dark, e.filled(0, (), span.dtype), span / e.where(dark, e.filled(1, (), value.dtype), value))
    return e.where(e.less(hue, 0), hue + 1.0, hue), saturation, value


def from_hsv(h: Op, s: Op, v: Op) -> tuple[Op, Op, Op]:
    """Returns red, green and blue of hue, saturation and value."""

    def bounded(x: Op) -> Op:
        return e.minimum(e.maximum(x, 0.0), 1.0)

    turn = h * 6.0
    shares = bounded(e.absolute(turn - 3.0) - 1.0), bounded(2.0 - e.absolute(turn - 2.0)), bounded(2.0 - e.absolute(turn - 4.0))
    red, green, blue = ((1.0 - s + s * share) * v for share in shares)
    return red, green, blue

"""The gradient of `checkpoint`: the body is recomputed together with its derivatives, in the body of a loop of one trip.

A body is closed, so its steps are not merged with equal ones outside; and since it needs the errors, it cannot run before the backward
pass has reached it (docs/decisions/0005).
"""

from __future__ import annotations

from typing import Any

from ngraph.autodiff.control import is_float, quiet, slopes_of
from ngraph.op_graph.axes import make_axis
from ngraph.op_graph.op import Body, Op
from ngraph.ops.checkpoint import checkpoint_record
from ngraph.ops.control import scan_record
from ngraph.ops.elementwise import filled
from ngraph.ops.state import parts, placeholder


def _gradient(op: Op, dys: Any, *inputs: Op) -> tuple[Op | None, ...]:
    body, _ = quiet(op.attrs["body"])
    errors = [(o, dy) for o, dy in zip(body.outputs, dys, strict=True) if dy is not None and is_float(o)]
    moving = [i for i in body.inputs if is_float(i)]
    if not moving or not errors:
        return (None,) * len(inputs)
    holes = [placeholder(o.axes, dtype=o.dtype) for o, _ in errors]
    slopes = slopes_of([o for o, _ in errors], holes, moving)
    starts = [placeholder(i.axes, dtype=i.dtype) for i in moving]  # the loop's carries start as zeros, which it never reads
    made = scan_record.build(
        *(filled(0, i.axes, i.dtype) for i in moving),
        *inputs,
        *(dy for _, dy in errors),
        body=Body((*starts, *body.inputs, *holes), slopes),
        axis=make_axis(1, name="once"),
        reverse=False,
        carries=len(moving),
        xs=0,
    )
    found = dict(zip(moving, parts(made) if type(made.type) is tuple else (made,), strict=True))
    return tuple([found.get(i) for i in body.inputs])


checkpoint_record.grad = _gradient

"""Gradient checkpointing: values that a function computes forward are recomputed for its gradient instead of kept.

Forward, the op is inlined. Its gradient (`ngraph.autodiff.checkpoint`) recomputes the function in the body of a loop of one trip, which
no pass merges with surrounding ops. Source: T. Chen and others, "Training deep nets with sublinear memory cost" (2016).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ngraph.errors import GraphError
from ngraph.op_graph import dtypes
from ngraph.op_graph.op import Body, Op, TensorType, copy_graph, ordered
from ngraph.op_graph.opdef import Call, OpDef, op
from ngraph.ops.control import check_values, close, in_form, run_body
from ngraph.ops.elementwise import as_op, filled, sin
from ngraph.ops.reduce import ordered_as
from ngraph.ops.state import parts, placeholder, together


def _type(inputs: tuple[TensorType, ...], body: Any) -> tuple[TensorType, ...]:
    check_values("checkpoint", "body's inputs", body.inputs, inputs)
    return tuple([o.type for o in body.outputs])


def inlined(body: Body, inputs: tuple[Op, ...]) -> list[Op]:
    """Returns the body's results as ops of the inputs."""
    new = copy_graph(body.outputs, dict(zip(body.inputs, inputs, strict=True)))
    return [ordered_as(new[o], o.axes) for o in body.outputs]


def lowered(op: Op, *inputs: Op) -> Op:
    """Returns the results of an op that are those of its body."""
    return together.build(*inlined(op.attrs["body"], inputs))


def reference(call: Call, *arrays: Any) -> Any:
    """Computes the same in NumPy."""
    return tuple(run_body(call, call.attrs["body"], arrays, call.inputs, call.results))


def refuse_effects(name: str, results: Sequence[Op], why: str = "") -> None:
    """Raises GraphError where results of a function need what assigns, or has another effect."""
    effects = [o for o in ordered(results) if o.opdef.name in ("assign", "effect")]
    if effects:
        raise GraphError(
            f"{name}: the function has effects: {', '.join(o.label for o in effects)}{why}",
            line=effects[0].line,
            fix="give the value as one more result, and assign or print it outside",
        )


def _samples(s: Any) -> list[Op]:
    def case(function: Callable[..., Any], *inputs: Op) -> Op:
        return checkpoint_record.build(*inputs, body=s.body(function, *inputs))

    i, j = s.I, s.J
    return [
        case(lambda x: sin(sin(x) * x), s.x(i, j)),
        case(lambda x, y: (x * y, sin(x) + y), s.x(i, j), s.x(j, i)),
        case(lambda x, y: (x, y + y), s.x(i), s.x()),
        case(lambda x: x * x, s.special(i, s.N)),
        case(lambda x, y: x + y, s.x(s.Z, i), s.x(i)),
        case(lambda x, y: x * sin(y), s.x(i, i - 1), s.x(s.O, i)),
    ]


checkpoint_record: OpDef = op(
    "checkpoint",
    "The results of a body; its gradient recomputes the body instead of keeping its values.",
    type=_type,
    reference=reference,
    lower=lowered,
    samples=_samples,
    ulp=16,
    error=1e-6,
)


def checkpoint(function: Callable[..., Any], *inputs: Any) -> Any:
    """Returns `function(*inputs)`; for derivatives only the inputs are kept, and the rest is recomputed.

    function: takes as many ops as there are inputs; gives an op or a tuple of ops, as this function then does. It may use surrounding ops,
    which are kept, too. Random ops inside draw the same numbers again when recomputed; prints inside happen once. Raises GraphError
    where it assigns.

    >>> ng.checkpoint(lambda x: ng.tanh(x), ng.placeholder("N=2 H=3 W=4")).axes
    Axes(N=2, H=3, W=4)
    """
    given = [as_op(x) for x in inputs]
    since = filled(0, (), dtypes.int32).serial
    holes = [placeholder(x.axes, dtype=x.dtype) for x in given]
    results = function(*holes)
    outputs = [as_op(o) for o in results] if isinstance(results, (list, tuple)) else [as_op(results)]
    (body,), captured = close([(holes, outputs)], since)
    refuse_effects("checkpoint", body.outputs, ", which would happen twice")
    return in_form(results, parts(checkpoint_record.build(*given, *captured, body=body)))

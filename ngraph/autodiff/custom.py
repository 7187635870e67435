"""Functions of ops with derivatives of their own: `custom_gradient`.

The op has two bodies: what the function computes, and what its derivatives are, from the errors and the arguments. Both are inlined where
they are used, so that values which both compute are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ngraph.autodiff.backward import fit
from ngraph.autodiff.control import quiet
from ngraph.errors import AxisError, GraphError
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Clash, merge, show_axes
from ngraph.op_graph.op import Body, Op, TensorType, copy_graph
from ngraph.op_graph.opdef import OpDef, op, show_input
from ngraph.ops.checkpoint import inlined, lowered, reference, refuse_effects
from ngraph.ops.control import check_values, close, in_form, spread
from ngraph.ops.elementwise import as_op, as_ops, cos, filled, sin, stop_gradient
from ngraph.ops.state import parts, placeholder
from ngraph.parts import nest


def _type(inputs: tuple[TensorType, ...], body: Any, gradient: Any) -> tuple[TensorType, ...]:
    results = tuple([o.type for o in body.outputs])
    check_values("custom_gradient", "body's inputs", body.inputs, inputs)
    check_values("custom_gradient", "gradient's inputs", gradient.inputs, (*results, *inputs))
    return results


def _gradient(op: Op, dys: Any, *inputs: Op) -> tuple[Op | None, ...]:
    errors = [filled(0, t.axes, t.dtype) if dy is None else dy for dy, t in zip(dys, op.type, strict=True)]
    slopes = inlined(op.attrs["gradient"], (*errors, *inputs))
    return (*slopes, *(None for _ in inputs[len(slopes) :]))


def _samples(s: Any) -> list[Op]:
    def case(function: Callable[..., Any], gradient: Callable[..., Any], *inputs: Op) -> Op:
        body = s.body(function, *inputs)
        return custom_record.build(*inputs, body=body, gradient=s.body(gradient, *body.outputs, *inputs))

    i, j = s.I, s.J
    return [
        case(sin, lambda e, x: e * cos(x), s.x(i, j)),
        case(lambda x, y: (x * y, x + y), lambda e, f, x, y: (e * y + f, e * x + f), s.x(i, j), s.x(j)),
        case(lambda x, y: x * y, lambda e, x, y: (e * y, e * x), s.x(), s.x(i, i - 1)),
        case(lambda x: x * x, lambda e, x: e * x * 2.0, s.special(i, s.N)),
        case(lambda x: x + x, lambda e, x: e * 2.0, s.x(s.Z, s.O)),
    ]


custom_record: OpDef = op(
    "custom_gradient",
    "The results of a body; `gradient`, of the errors and the inputs, gives the derivatives by the first inputs, one each.",
    form="(x…; body, gradient)",
    type=_type,
    reference=reference,
    grad=_gradient,
    lower=lowered,
    samples=_samples,
    ulp=16,
    error=1e-6,
)


def _slopes(form: Any, given: Any) -> list[Any]:
    """Returns the derivative for each leaf of the arguments, None where there is none. Raises ValueError for one in another form."""
    if given is None:
        return [None for _ in nest.leaves(form)]
    wanted, inner = nest.parts(form), nest.parts(given)
    if wanted is None and inner is None:
        return [given]
    if wanted is None or inner is None or set(wanted) != set(inner):
        raise ValueError("one value" if inner is None else f"the parts {', '.join(map(str, inner)) or 'none'}")
    return [s for key, part in wanted.items() for s in _slopes(part, inner[key])]


def _fitted(slope: Any, argument: Op) -> Op:
    """Returns a derivative as its argument has it. Raises AxisError where a length disagrees."""
    if slope is None or not argument.dtype.is_float:
        return filled(0, argument.axes, argument.dtype)
    slope = as_op(slope)
    try:
        merge(argument.axes, slope.axes)
    except Clash:
        raise AxisError(
            f"custom_gradient: a derivative has {show_axes(slope.axes)}, and its argument {show_axes(argument.axes)}",
            details=(show_input(slope),),
            fix="give the derivative the lengths of its argument",
        ) from None
    return fit(slope, argument)


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that computes what `function` does, and has the derivative that it gives: a pair (result, gradient).

    function: of ops, numbers, arrays or nests of these by position, and of anything by name. gradient: takes the error, which is the
    derivative by the result, in the form of the result, or its elements where that is a tuple. It gives the derivative by the
    argument, in its form; a tuple of one for each of several; None for one that has none. It may use what `function` computed, and what
    it computes may be differentiated again. Each derivative is summed over axes that its argument lacks, and broadcast along others.
    What both use beside the arguments is constant. Forward-mode derivatives, as in `ng.jvp`, need a gradient that is linear in the error.
    Raises GraphError for a function that gives no such pair, or assigns; AxisError where lengths disagree.

    >>> import ngraph as ng
    >>> clipped = ng.custom_gradient(lambda x: (x, lambda error: ng.clip(error, -1, 1)))
    >>> x = ng.placeholder("H=3")
    >>> ng.function(ng.grad(lambda x: ng.sum(clipped(x) ** 2, out_axes=()))(x), x)([0.25, 3.0, -4.0])
    ComputedArray([ 0.5,  1. , -1. ], dtype=float32)
    """

    def found(*args: Any, **named: Any) -> Any:
        given = as_ops(nest.leaves(args))
        since = filled(0, (), dtypes.int32).serial
        holes = [placeholder(x.axes, dtype=x.dtype) for x in given]
        made = function(*nest.rebuilt(args, holes), **named)
        if not isinstance(made, (tuple, list)) or len(made) != 2 or not callable(made[1]) or isinstance(made[1], Op):
            raise GraphError(
                f"custom_gradient: the function gives {type(made).__name__}, not a pair of its result and its gradient",
                fix="return result, lambda error: derivative",
            )
        outputs = as_ops(nest.leaves(made[0]))
        errors = [placeholder(o.axes, dtype=o.dtype) for o in outputs]
        slopes = _silent(_taken(args, spread(made[1], in_form(made[0], errors)), holes), Body(holes, outputs))
        (body, gradient), captured = close([(holes, outputs), ([*errors, *holes], slopes)], since)
        refuse_effects("custom_gradient", [*body.outputs, *gradient.outputs])
        beside = [stop_gradient(x) for x in captured]
        return in_form(made[0], parts(custom_record.build(*given, *beside, body=body, gradient=gradient)))

    return found


def _taken(args: Sequence[Any], given: Any, holes: Sequence[Op]) -> list[Op]:
    """Returns the derivatives that a user's gradient gave, one for each leaf of the arguments. Raises GraphError, AxisError."""
    form = args[0] if len(args) == 1 else tuple(args)
    try:
        slopes = _slopes(form, tuple(given) if isinstance(given, list) else given)
    except ValueError as error:
        wanted = f"{len(args)} arguments" if len(args) != 1 else "argument"
        raise GraphError(
            f"custom_gradient: the gradient gives {error}, which is not the form of the {wanted}",
            fix="give one derivative for each argument, in its form; None for one that has none",
        ) from None
    return [_fitted(s, x) for s, x in zip(slopes, holes, strict=True)]


def _silent(slopes: Sequence[Op], body: Body) -> list[Op]:
    """Returns the derivatives without the prints of the body, which what they use of the body would print again."""
    _, new = quiet(body)
    copied = copy_graph(slopes, {o: n for o, n in new.items() if n is not o})
    return [copied[o] for o in slopes]

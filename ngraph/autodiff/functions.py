"""Transformations of functions of ops: `grad`, `value_and_grad`, `jacobian`, `hessian`, `hvp`.

A function takes ops, numbers or arrays, or nests of them (dicts, lists, tuples, dataclasses), and returns ops. What it uses beside
its arguments is constant. Each transformation returns such a function again, so they compose.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ngraph.autodiff.backward import deriv, vjp
from ngraph.autodiff.batching import with_axes
from ngraph.errors import ArgumentError, ArgumentTypeError, AxisError, DTypeError, GraphError
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axes, Axis, make_axis
from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import REGISTRY, show_input
from ngraph.ops.elementwise import as_op, cast, equal, filled, logical_and
from ngraph.ops.rearrange import axes_with_order, broadcast, iota
from ngraph.ops.state import placeholder, value_of
from ngraph.parts import nest

Function = Callable[..., Any]
Where = int | Sequence[int]


def _separate(name: str, args: Sequence[Any], wrt: Where) -> tuple[list[Any], list[Any]]:
    """Returns the arguments, those of `wrt` as ops of their own; and these again, one nest for each number."""
    places = [wrt] if isinstance(wrt, (int, str)) else list(wrt)
    wrong = [k for k in places if not isinstance(k, int) or not -len(args) <= k < len(args)]
    if wrong:
        raise ArgumentError(f"{name}: there is no argument {wrong[0]!r} among {len(args)}", fix="wrt counts the arguments from 0")
    taken = list(args)
    for k in places:
        own = [value_of(_float(name, as_op(x), len(args))) for x in nest.leaves(args[k])]
        taken[k] = nest.rebuilt(args[k], own)
    return taken, [taken[k] for k in places]


def _float(name: str, x: Op, arguments: int = 1) -> Op:
    if not x.dtype.is_float:
        others = ", or name other arguments: wrt=1" if arguments > 1 else "; close over what has no derivative"
        raise DTypeError(f"{name}: {x.label} is {x.dtype}, and has no derivative", details=(show_input(x),), fix=f"pass floats{others}")
    return x


def _scalar(name: str, value: Any) -> Op:
    if isinstance(value, (tuple, list, Mapping)):
        raise GraphError(
            f"{name}: the function gives a {type(value).__name__} of {len(value)} values, not one scalar",
            fix="return the scalar alone, or (scalar, anything) with has_aux=True",
        )
    found = as_op(value)
    if found.axes:
        raise GraphError(
            f"{name}: the function gives {found.label}, which has axes {list(found.axes)}",
            details=(show_input(found),),
            fix="sum it to a scalar: ng.sum(x, out_axes=()), or take ng.jacobian",
        )
    return found


def _takes(function: Function, args: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Raises ArgumentTypeError where a function cannot be called with these arguments."""
    try:
        inspect.signature(function).bind(*args, **named)
    except TypeError as error:
        said = getattr(function, "__name__", repr(function))
        raise ArgumentTypeError(f"{said} does not take these arguments: {error}", fix="pass a function of as many arguments") from None
    except ValueError:  # a function of C without a signature
        return


def _one_or_all(wrt: Where, found: list[Any]) -> Any:
    return found[0] if isinstance(wrt, int) else tuple(found)


def value_and_grad(function: Function, wrt: Where = 0, has_aux: bool = False) -> Function:
    """Returns a function that gives the value of `function`, a scalar, and its gradient with respect to the argument number `wrt`.

    wrt: a number, or several for a tuple of gradients. A gradient has the form of its argument, and each leaf its axes and dtype.
    has_aux: `function` returns (scalar, anything); so does the result, as ((scalar, anything), gradient).
    Raises GraphError where the value has axes, DTypeError for an argument that is not a float. Source: docs/autodiff.md.

    >>> import ngraph as ng
    >>> value, slope = ng.value_and_grad(lambda w: ng.sum(w * w, out_axes=()))(ng.placeholder("H=3"))
    >>> value.axes, slope.axes
    (Axes(), Axes(H=3))
    """

    return _differentiated("value_and_grad", function, wrt, has_aux)


def _differentiated(name: str, function: Function, wrt: Where, has_aux: bool) -> Function:
    """See `value_and_grad`; `name` is what the user called."""

    def found(*args: Any, **named: Any) -> Any:
        taken, moved = _separate(name, args, wrt)
        _takes(function, taken, named)
        given = function(*taken, **named)
        value = _scalar(name, given[0] if has_aux else given)
        slopes = [nest.rebuilt(part, [deriv(value, x) for x in nest.leaves(part)]) for part in moved]
        return ((value, given[1]) if has_aux else value), _one_or_all(wrt, slopes)

    return found


def grad(function: Function, wrt: Where = 0, has_aux: bool = False) -> Function:
    """Returns a function that gives the gradient of `function`, whose value is a scalar, with respect to the argument number `wrt`.

    Arguments and errors as in `value_and_grad`; with `has_aux` it gives (gradient, anything).

    >>> import ngraph as ng
    >>> ng.grad(lambda p: ng.sum(p["w"] * p["w"], out_axes=()))({"w": ng.placeholder("H=3")})["w"].axes
    Axes(H=3)
    """

    def found(*args: Any, **named: Any) -> Any:
        value, slope = _differentiated("grad", function, wrt, has_aux)(*args, **named)
        return (slope, value[1]) if has_aux else slope

    return found


def _apart(axes: Axes, taken: Axes) -> list[tuple[Axis, Axis]]:
    """Returns each axis with the dual that stands for it in a Jacobian: one level lower, or more where `taken` has that one."""
    level = 1
    while any(a - level in taken for a in axes):
        level += 1
    return [(a, a - level) for a in axes]


def _slopes(y: Op, moved: Sequence[Op]) -> list[Op]:
    """Returns the derivatives of every element of `y`: the axes of y, then the duals of those of each op of `moved`."""
    error = placeholder(y.axes, dtype=y.dtype)
    slopes = vjp(y, list(moved), error)
    copies = [(a, make_axis(batch=False, recurrent=False).resized(a.size)) for a in y.axes]  # unnamed: a Jacobian inside has rows as well
    unit = filled(True, (), dtypes.bool_)
    for a, row in copies:
        unit = logical_and(unit, equal(iota(a), iota(row)))
    rows = [row for _, row in copies]
    unit = cast(broadcast(unit, (*rows, *y.axes)), y.dtype)
    found = []
    for x, slope in zip(moved, with_axes(slopes, {error: unit}), strict=True):
        whole = axes_with_order(broadcast(slope, (*rows, *x.axes)), (*rows, *x.axes))
        to = (*_apart(x.axes, y.axes), *((row, a) for a, row in copies))
        found.append(REGISTRY["rename"].build(whole, to=to) if to else whole)
    return found


def jacobian(function: Function, wrt: Where = 0) -> Function:
    """Returns a function that gives the derivative of every element of the result by every element of the argument number `wrt`.

    Each has the axes of the result, then the duals of the argument's: `ng.dot(jacobian, v)` is the change of the result along v. The
    result and the argument may be nests; there is one Jacobian for each leaf of the result, in the form of the argument.
    Raises DTypeError for an argument or result that is not a float, UnsupportedError as `ng.vmap`.

    >>> import ngraph as ng
    >>> ng.jacobian(lambda x: x * x)(ng.placeholder("H=3")).axes
    Axes(H=3, H'=3)
    """

    def found(*args: Any, **named: Any) -> Any:
        taken, moved = _separate("jacobian", args, wrt)
        given = function(*taken, **named)
        inner = nest.leaves(moved)
        slopes = [nest.rebuilt(moved, _slopes(_float("jacobian", as_op(y)), inner)) for y in nest.leaves(given)]
        return nest.rebuilt(given, [_one_or_all(wrt, s) for s in slopes])

    return found


def hessian(function: Function, wrt: Where = 0) -> Function:
    """Returns a function that gives the second derivatives of `function`, whose value is a scalar: the Jacobian of its gradient.

    Each has the axes of an argument, then the duals of another's. Arguments and errors as in `ng.grad` and `ng.jacobian`.

    >>> import ngraph as ng
    >>> ng.hessian(lambda x: ng.sum(x * x * x, out_axes=()))(ng.placeholder("H=3")).axes
    Axes(H=3, H'=3)
    """
    return jacobian(grad(function, wrt), wrt)


def hvp(function: Function, x: Any, direction: Any) -> Any:
    """Returns the product of the Hessian of `function`, whose value is a scalar, at `x` with a vector, without the Hessian itself.

    x, direction: ops, numbers or arrays, or nests of one form; the result has it, too. Raises GraphError, DTypeError.

    >>> import ngraph as ng
    >>> x = ng.placeholder("H=3")
    >>> ng.hvp(lambda x: ng.sum(x * x * x, out_axes=()), x, 2 * x).axes
    Axes(H=3)
    """
    (own,), _ = _separate("hvp", [x], 0)
    inner = nest.leaves(own)
    try:
        along = [as_op(v) for v in nest.leaves_like(own, direction)]
    except ValueError as error:
        raise ArgumentError(f"hvp: the direction has {error}", fix="give it the form of what is differentiated") from None
    if len(along) != len(inner):
        raise ArgumentError(f"hvp: {len(along)} directions for {len(inner)} arguments", fix="give one for each")
    for mine, v in zip(inner, along, strict=True):
        if not set(v.axes) <= set(mine.axes):
            raise AxisError(
                f"hvp: the direction has axes {list(v.axes)}, and what is differentiated {list(mine.axes)}",
                details=(show_input(v),),
                fix="give it the axes of its argument",
            )
    slopes = nest.leaves(_differentiated("hvp", function, 0, False)(own)[1])
    return nest.rebuilt(x, vjp(slopes, inner, along))

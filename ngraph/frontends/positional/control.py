"""Branches and loops, whose bodies are functions from values to values, read as often as they are needed.

A branch whose condition is known is read in place. One that depends on a few numbers of the input is decided for this call. Others
become ops with bodies, as do loops of more than a few trips, where shapes stay the same and nothing has to be known in between. What
bodies assign to variables is carried through them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.positional.shapes import at, stacked
from ngraph.frontends.positional.trace import Inside
from ngraph.frontends.positional.values import NOTHING, ConstantArray, Held, Sizes, Tensor, Value, settled
from ngraph.op_graph import dtypes
from ngraph.op_graph.expr import ExprLike, Idx
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.control import cond as cond_op
from ngraph.ops.control import scan as scan_op
from ngraph.ops.control import while_loop as while_op
from ngraph.ops.rearrange import broadcast, iota

Values = Sequence[Value]


MOST_TRIPS = 1024  # of a loop that is unrolled
FEW_TRIPS = 8  # up to so many a loop is unrolled, where that is possible


def as_op(g: Any, attempt: Callable[[Sequence[str]], Values]) -> tuple[Value, ...] | None:
    """Returns the results of an op with bodies; None where it cannot be built.

    attempt: reads the bodies and builds the op, whose first results are the values of these variables. It is called without variables, and
    again with those that the bodies assign.
    """
    names: list[str] = []
    before, outer = dict(g.state), g.assigned
    while True:
        g.assigned = set()
        g.bodies += 1
        try:
            found = attempt(names)
        except Inside:
            return None
        finally:
            g.bodies -= 1
            seen, g.assigned = g.assigned, outer
            entered(g, before)
        if seen <= set(names):
            for name, value in zip(names, found, strict=False):
                g.assign(name, value)
            return tuple(found[len(names) :])
        names = sorted(seen)


def entered(g: Any, state: Mapping[str, Value]) -> None:
    """Variables hold these values, and else what they held before the call."""
    g.state.clear()
    g.state.update(state)


def with_state(g: Any, names: Sequence[str], turn: Callable[[Values], Values], takes: int, gives: int) -> Callable[[Values], list[Value]]:
    """A turn that has the values of variables among what it carries, behind `takes` values, and gives them behind `gives`."""

    def run(values: Values) -> list[Value]:
        behind = takes + len(names)
        g.state.update(zip(names, values[takes:behind], strict=True))
        given = turn([*values[:takes], *values[behind:]])
        return [*given[:gives], *map(g.current, names), *given[gives:]]

    return run


def fitted(g: Any, v: Value, like: Tensor) -> Op:
    """A value as an op with the axes and dtype of another tensor. Raises Inside where it has another shape."""
    if not isinstance(v, (Tensor, ConstantArray, Sizes)):
        raise Inside
    t = g.tensor(v)
    if t.rank != like.rank or t.dtype is not like.dtype or not all(g.same(a, b) for a, b in zip(t.shape, like.shape, strict=True)):
        raise Inside
    t = g.renamed(g.full(t), like.dims)
    return broadcast(t.op, like.dims)


def tensor_of(g: Any, v: Value) -> Tensor:
    """A value as a tensor with an axis for each dim. Raises Inside for what is none."""
    if not isinstance(v, (Tensor, ConstantArray, Sizes)):
        raise Inside
    return g.full(g.tensor(v))


def scalar(g: Any, t: Tensor) -> Op:
    """A tensor of one number as an op without axes."""
    return (g.squeezed(t, 0) if t.rank and t.dims[0] is not None else t).op


# ---- branches -----------------------------------------------------------------------------------------------------------


def branch(g: Any, condition: Value, then: Callable[[], Values], other: Callable[[], Values], optional: bool = False) -> tuple[Value, ...]:
    """The branch that holds, where that is known or follows from few numbers; else an op that takes one of two ways.

    optional: a result that only one of them has is zeros behind the other one, where nobody asks for it.
    """
    if isinstance(condition, Tensor) and not g.few(condition):
        before = dict(g.state)

        def way(function: Callable[[], Values], names: Sequence[str]) -> Values:
            entered(g, before)
            values = function()
            return [*map(g.current, names), *values]

        found = as_op(g, lambda names: choice(g, condition, lambda: way(then, names), lambda: way(other, names), optional))
        if found is not None:
            return found
    return tuple((then if g.known(condition).ravel()[0] else other)())


def zeros(like: Tensor) -> Tensor:
    """Returns zeros with the axes and the dtype of a tensor that has an axis for each dim."""
    return Tensor(e.filled(0, like.dims, like.dtype), like.dims)


def number_for_nothing() -> Tensor:
    """Returns what stands for an optional without a value among the results of a body."""
    return Tensor(e.filled(0, (), dtypes.float32), ())


def choice(g: Any, condition: Tensor, then: Callable[[], Values], other: Callable[[], Values], optional: bool = False) -> tuple[Value, ...]:
    """Both branches as one op; optional: see `branch`. Raises Inside where they give no tensors of one shape."""
    wanted: list[Tensor] = []
    absent: set[int] = set()  # what the first way does not give
    lacking: dict[int, Tensor] = {}  # what the second one gives there

    def first() -> tuple[Op, ...]:
        found, none = then(), number_for_nothing()
        absent.update([k for k, v in enumerate(found) if optional and v is NOTHING])
        wanted[:] = [zeros(lacking.get(k, none)) if k in absent else tensor_of(g, v) for k, v in enumerate(found)]
        return tuple(broadcast(t.op, t.dims) for t in wanted)

    def second() -> tuple[Op, ...]:
        found = list(other())
        for k, v in enumerate(found):
            if optional and v is NOTHING:
                found[k] = zeros(wanted[k])
            elif k in absent and k not in lacking:
                lacking[k], found[k] = tensor_of(g, v), wanted[k]
        return tuple(fitted(g, v, t) for v, t in zip(found, wanted, strict=True))

    made = cond_op(scalar(g, condition), first, second)
    if lacking:  # whose shapes are known now
        made = cond_op(scalar(g, condition), first, second)
    nowhere = absent - set(lacking)
    return tuple(NOTHING if k in nowhere else g.made(op, t.dims) for k, (op, t) in enumerate(zip(made, wanted, strict=True)))


# ---- loops --------------------------------------------------------------------------------------------------------------


def loop(
    g: Any,
    most: Value,
    condition: Value,
    carry: Values,
    turn: Callable[[Values], Values],
    empties: Sequence[Callable[[], Value]] = (),
    uneven: bool = False,
) -> tuple[Value, ...]:
    """Returns the carry after the last trip, and for each of `empties` the stacked values of the trips; without trips, its result.

    most: the largest number of trips; None: no limit. condition: whether there is a first trip; None: there is.
    turn: from the trip's number, the condition and the carry to the next condition, the next carry, and values to stack.
    uneven: values to stack may differ in shape, and are a list then.
    It becomes an op where the carry keeps its shape, else it is unrolled.
    """
    trips = None if most is None else g.sizes(most)[0] if isinstance(most, (ConstantArray, Sizes)) else most
    short = isinstance(trips, int) and trips <= FEW_TRIPS
    if not short and all(isinstance(v, (Tensor, ConstantArray, Sizes)) for v in carry):

        def attempt(names: Sequence[str]) -> Values:
            return rolled(g, trips, condition, [*map(g.current, names), *carry], with_state(g, names, turn, 2, 1), len(empties))

        found = as_op(g, attempt)
        if found is not None:
            return found
    return unrolled(g, most, condition, carry, turn, empties, uneven)


def rolled(g: Any, trips: Any, condition: Value, carry: Values, turn: Callable[[Values], Values], outs: int) -> tuple[Value, ...]:
    """The loop as one op. Raises Inside where it cannot be one."""
    always = condition is None or (isinstance(condition, ConstantArray) and bool(condition.array.ravel()[0]))
    if always and trips is not None and not isinstance(trips, Tensor):
        axis = g.fresh(trips)

        def counted(values: Values) -> Values:
            on, *given = turn([values[-1], ConstantArray(np.array(True)), *values[:-1]])
            if not isinstance(on, ConstantArray) or not on.array.all():
                raise Inside  # it may end before
            return given

        return scan_rolled(g, carry, [Tensor(iota(axis, dtypes.int64), [axis])], counted, Slices([0], [False], [0] * outs, [False] * outs))
    if outs:
        raise Inside
    first = e.filled(True, (), dtypes.bool_) if condition is None else scalar(g, g.tensor(condition))
    limit = None if trips is None else g.tensor(trips if isinstance(trips, Tensor) else settled(np.array(trips, object))).op

    def holds(state: Any) -> Op:
        return state[1] if limit is None else e.logical_and(state[1], e.less(state[0], limit))

    def next_(state: Any) -> tuple[Op, ...]:
        on, *given = turn([Tensor(state[0], []), Tensor(state[1], []), *(Tensor(s, t.dims) for s, t in zip(state[2:], start, strict=True))])
        return (state[0] + 1, scalar(g, g.tensor(on)), *(fitted(g, v, t) for v, t in zip(given, start, strict=True)))

    start = [g.full(g.tensor(v)) for v in carry]
    ops = tuple(broadcast(t.op, t.dims) for t in start)
    _, _, *after = while_op(holds, next_, (e.filled(0, (), dtypes.int64), first, *ops))
    return tuple(g.made(a, t.dims) for a, t in zip(after, start, strict=True))


def unrolled(
    g: Any, most: Value, condition: Value, carry: Values, turn: Callable[[Values], Values], empties: Any, uneven: bool = False
) -> tuple[Value, ...]:
    """The loop turn by turn: each one's condition is known before the next."""
    trips = None if most is None else int(g.known(most).ravel()[0])
    holds = True if condition is None else bool(g.known(condition).ravel()[0])
    state = list(carry)
    stacks: list[list[Value]] = [[] for _ in empties]
    trip = 0
    while holds and (trips is None or trip < trips):
        if trip >= MOST_TRIPS:
            raise GraphError(f"the loop changes the shape of what it carries, and runs more than {MOST_TRIPS} times")
        outside: dict[str, Value] = {f"carry {k}": v for k, v in enumerate(state)}
        outside.update({f"stack {k} {j}": v for k, stack in enumerate(stacks) for j, v in enumerate(stack)})
        g.scopes.append(outside)
        try:
            given = turn([ConstantArray(np.array(trip, np.int64)), ConstantArray(np.array(holds)), *state])
            outside.update({f"given {k}": v for k, v in enumerate(given)})
            if trips is None or trip + 1 < trips:
                holds = bool(g.known(given[0]).ravel()[0])
        finally:
            g.scopes.pop()
        stacks = [[outside[f"stack {k} {j}"] for j in range(len(stack))] for k, stack in enumerate(stacks)]
        state = [outside[f"given {1 + k}"] for k in range(len(carry))]
        for k, stack in enumerate(stacks):
            stack.append(outside[f"given {1 + len(carry) + k}"])
        trip += 1
    return (*state, *(together(g, stack, uneven) if stack else empty() for stack, empty in zip(stacks, empties, strict=True)))


def together(g: Any, stack: list[Value], uneven: bool = False) -> Value:
    """Returns values as one, or in a list where they are no tensors of one kind: what branches and loops keep for their derivatives.

    uneven: a list is for tensors of several shapes, too.
    """
    kinds = {(v.rank, v.np) if isinstance(v, (Tensor, Held)) else None for v in stack}
    if len(kinds) > 1 or None in kinds:
        return stack
    first = stack[0].shape
    even = not uneven or all(g.same(a, b) for v in stack[1:] for a, b in zip(first, v.shape, strict=True))
    return stacked(g, stack) if even else stack


class Slices(NamedTuple):
    """The directions of a scan: the sliced dims, and which of them run backwards; the same of stacked values."""

    axes: Sequence[int]
    back: Sequence[Any]
    out_axes: Sequence[int]
    out_back: Sequence[Any]


def scan(g: Any, state: Values, xs: Values, turn: Callable[[Values], Values], way: Slices) -> tuple[Value, ...]:
    """The last state, and what the turns over slices gave, stacked. turn: from state and slices to the next state and what is stacked.

    It is an op where there are more than a few slices, else unrolled.
    """
    ts = [g.tensor(x) for x in xs]
    way = way._replace(axes=[k % t.rank for k, t in zip(way.axes, ts, strict=True)])
    size = ts[-1].shape[way.axes[-1]]
    if not (isinstance(size, int) and 0 < size <= FEW_TRIPS):  # without trips unrolling does not show what is stacked

        def attempt(names: Sequence[str]) -> Values:
            return scan_rolled(g, [*map(g.current, names), *state], ts, with_state(g, names, turn, 0, 0), way)

        found = as_op(g, attempt)
        if found is not None:
            return found
    return scan_unrolled(g, state, ts, turn, way)


def scan_rolled(g: Any, state: Values, xs: Sequence[Tensor], turn: Callable[[Values], Values], way: Slices) -> tuple[Value, ...]:
    """The scan as one op. Raises Inside where it cannot be one."""
    axes, start = way.axes, [g.full(g.tensor(v)) for v in state]
    xs = [g.full(x, [k]) for x, k in zip(xs, axes, strict=True)]
    axis = g.fresh(xs[0].shape[axes[0]])
    if not all(g.same(axis.size, x.shape[k]) for x, k in zip(xs, axes, strict=True)):
        raise GraphError("the axes of a Scan have different lengths")
    xs = [g.renamed(x, [axis if j == k else d for j, d in enumerate(x.dims)]) for x, k in zip(xs, axes, strict=True)]
    back = bool(way.back[0])  # slices in the other direction are those of a reversed tensor

    def reversed_(x: Tensor) -> Tensor:
        return g.read(x, x.dims, {axis: axis.size - 1 - Idx(axis)})

    xs = [x if bool(b) == back else reversed_(x) for x, b in zip(xs, way.back, strict=True)]
    shapes: list[Tensor] = []
    none = number_for_nothing()

    def step(state: Any, slices: Any) -> tuple[Any, Any]:
        mine = [Tensor(s, [d for j, d in enumerate(x.dims) if j != k]) for s, x, k in zip(slices, xs, axes, strict=True)]
        given = turn([*(Tensor(s, t.dims) for s, t in zip(state, start, strict=True)), *mine])
        shapes[:] = [none if v is NOTHING else tensor_of(g, v) for v in given[len(start) :]]
        return tuple(fitted(g, v, t) for v, t in zip(given, start, strict=False)), tuple(t.op for t in shapes)

    after, ys = scan_op(step, tuple(broadcast(t.op, t.dims) for t in start), tuple(x.op for x in xs), axis, back)
    results = []
    for y, t, k, b in zip(ys or (), shapes, way.out_axes, way.out_back, strict=True):
        k %= t.rank + 1
        made = Tensor(y, [*t.dims[:k], axis, *t.dims[k:]])
        results.append(g.made(y, made.dims) if bool(b) == back else reversed_(made))
    return (*(g.made(a, t.dims) for a, t in zip(after or (), start, strict=True)), *results)


def scan_unrolled(g: Any, state: Values, xs: Sequence[Tensor], turn: Callable[[Values], Values], way: Slices) -> tuple[Value, ...]:
    """The scan turn by turn."""
    axes, back, out_axes, out_back = way
    length = g.number(xs[0].shape[axes[0]])
    stacks: list[list[Value]] = [[] for _ in out_axes]
    for trip in range(length):
        given = turn([*state, *(at(g, x, k, length - 1 - trip if b else trip) for x, k, b in zip(xs, axes, back, strict=True))])
        state = given[: len(state)]
        for stack, v in zip(stacks, given[len(state) :], strict=True):
            stack.append(v)
    ends: list[tuple[list[Value], ExprLike, Any]] = list(zip(stacks, out_axes, out_back, strict=True))
    return (*state, *(stacked(g, stack[::-1] if reverse else stack, k % (stack[0].rank + 1)) for stack, k, reverse in ends))

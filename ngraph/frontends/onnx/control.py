"""Translators of branches, loops, sequences and optionals.

A branch whose condition is known is walked in place. One that depends on a few numbers of the input is decided for this call. Others
become ops with bodies, as do loops of more than a few trips, where shapes stay the same and nothing has to be known in between.
Sequences and optionals are lists while the graph is read, so cost nothing when it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.onnx.proto import numpy_type
from ngraph.frontends.onnx.shapes import joined, sliced
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional.trace import Inside
from ngraph.frontends.positional.values import NOTHING, ConstantArray, Nothing, Sizes, Tensor, Value, settled
from ngraph.op_graph import dtypes
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops.control import cond as cond_op
from ngraph.ops.control import scan as scan_op
from ngraph.ops.control import while_loop as while_op
from ngraph.ops.rearrange import broadcast, iota

MOST_TRIPS = 1024  # of a loop that is unrolled
FEW_TRIPS = 8  # up to so many a loop is unrolled, where that is possible


@contextmanager
def body(g: Any) -> Iterator[None]:
    """Within it graphs are read as bodies of one op."""
    g.bodies += 1
    try:
        yield
    finally:
        g.bodies -= 1


def fitted(g: Any, v: Value, like: Tensor) -> Op:
    """A value as an op with the axes and dtype of another tensor. Raises Inside where it has another shape."""
    if not isinstance(v, (Tensor, ConstantArray, Sizes)):
        raise Inside
    t = g.tensor(v)
    if t.rank != like.rank or t.dtype is not like.dtype or not all(g.same(a, b) for a, b in zip(t.shape, like.shape, strict=True)):
        raise Inside
    t = g.renamed(g.full(t), like.dims)
    return broadcast(t.op, like.dims)


# ---- branches -----------------------------------------------------------------------------------------------------------


@translates("If")
def if_(n: Any, condition: Value) -> tuple[Value, ...]:
    """The branch that holds, where that is known or follows from few numbers; else an op that takes one of two ways."""
    branches = n.attr("then_branch"), n.attr("else_branch")
    if isinstance(condition, Tensor) and not n.g.few(condition):
        try:
            with body(n.g):
                return choice(n, condition, branches)
        except Inside:
            pass
    holds = bool(n.g.known(condition).ravel()[0])
    return tuple(n.graph(branches[0 if holds else 1], []))


def choice(n: Any, condition: Tensor, branches: tuple[Any, Any]) -> tuple[Value, ...]:
    g = n.g
    wanted: list[Tensor] = []

    def then() -> tuple[Op, ...]:
        for v in n.graph(branches[0], []):
            if not isinstance(v, (Tensor, ConstantArray, Sizes)):
                raise Inside
            wanted.append(g.full(g.tensor(v)))
        return tuple(broadcast(t.op, t.dims) for t in wanted)

    def other() -> tuple[Op, ...]:
        return tuple(fitted(g, v, t) for v, t in zip(n.graph(branches[1], []), wanted, strict=True))

    p = g.squeezed(condition, 0) if condition.rank and condition.dims[0] is not None else condition
    made = cond_op(p.op, then, other)
    return tuple(g.made(op, t.dims) for op, t in zip(made, wanted, strict=True))


# ---- loops --------------------------------------------------------------------------------------------------------------


@translates("Loop")
def loop(n: Any, most: Value, condition: Value, *carry: Value) -> tuple[Value, ...]:
    """A loop of ours where what it carries keeps its shape, else unrolled."""
    trips = None if most is None else n.g.sizes(most)[0] if isinstance(most, (ConstantArray, Sizes)) else most
    short = isinstance(trips, int) and trips <= FEW_TRIPS
    if not short and all(isinstance(v, (Tensor, ConstantArray, Sizes)) for v in carry):
        try:
            with body(n.g):
                return rolled(n, trips, condition, carry)
        except Inside:
            pass
    return unrolled(n, most, condition, *carry)


def rolled(n: Any, trips: Any, condition: Value, carry: Sequence[Value]) -> tuple[Value, ...]:
    g, graph = n.g, n.attr("body")
    start = [g.full(g.tensor(v)) for v in carry]
    ops = tuple(broadcast(t.op, t.dims) for t in start)
    always = condition is None or (isinstance(condition, ConstantArray) and bool(condition.array.ravel()[0]))
    outs = len(graph.output) - 1 - len(carry)

    def turn(trip: Op, holds: Value, state: Sequence[Op]) -> list[Value]:
        return n.graph(graph, [Tensor(trip, []), holds, *(Tensor(s, t.dims) for s, t in zip(state, start, strict=True))])

    if always and trips is not None and not isinstance(trips, Tensor):
        axis = g.fresh(trips)
        shapes: list[Tensor] = []

        def step(state: Any, xs: Any) -> tuple[Any, Any]:
            on, *given = turn(e.cast(xs[0], dtypes.int64), ConstantArray(np.array(True)), state)
            if not isinstance(on, ConstantArray) or not on.array.all():
                raise Inside  # it may end before
            shapes[:] = [g.full(g.tensor(v)) for v in given[len(start) :]]
            return tuple(fitted(g, v, t) for v, t in zip(given, start, strict=False)), tuple(t.op for t in shapes)

        after, ys = scan_op(step, ops, (iota(axis, dtypes.int64),), axis)
        ends = [g.made(a, t.dims) for a, t in zip(after or (), start, strict=True)]
        return (*ends, *(g.made(y, [axis, *t.dims]) for y, t in zip(ys or (), shapes, strict=True)))
    if outs:
        raise Inside
    first = e.filled(True, (), dtypes.bool_) if condition is None else g.tensor(condition)
    first = first if not isinstance(first, Tensor) else (g.squeezed(first, 0).op if first.rank and first.dims[0] is not None else first.op)
    limit = None if trips is None else g.tensor(trips if isinstance(trips, Tensor) else settled(np.array(trips, object))).op

    def holds(state: Any) -> Op:
        return state[1] if limit is None else e.logical_and(state[1], e.less(state[0], limit))

    def again(state: Any) -> tuple[Op, ...]:
        on, *given = turn(state[0], Tensor(state[1], []), state[2:])
        more = g.tensor(on)
        more = g.squeezed(more, 0) if more.rank and more.dims[0] is not None else more
        return (state[0] + 1, more.op, *(fitted(g, v, t) for v, t in zip(given, start, strict=True)))

    _, _, *after = while_op(holds, again, (e.filled(0, (), dtypes.int64), first, *ops))
    return tuple(g.made(a, t.dims) for a, t in zip(after, start, strict=True))


def unrolled(n: Any, most: Value, condition: Value, *carry: Value) -> tuple[Value, ...]:
    """Each trip's condition is known before the next."""
    g, graph = n.g, n.attr("body")
    trips = None if most is None else int(g.known(most).ravel()[0])
    holds = True if condition is None else bool(g.known(condition).ravel()[0])
    state = list(carry)
    stacks: list[list[Value]] = [[] for _ in range(len(graph.output) - 1 - len(carry))]
    trip = 0
    while holds and (trips is None or trip < trips):
        if trip >= MOST_TRIPS:
            raise GraphError(f"the loop changes the shape of what it carries, and runs more than {MOST_TRIPS} times")
        outside: dict[str, Value] = {f"carry {k}": v for k, v in enumerate(state)}
        outside.update({f"stack {k} {j}": v for k, stack in enumerate(stacks) for j, v in enumerate(stack)})
        g.scopes.append(outside)
        try:
            given = n.graph(graph, [ConstantArray(np.array(trip, np.int64)), ConstantArray(np.array(holds)), *state])
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
    results = []
    for k, stack in enumerate(stacks):
        results.append(stacked(g, stack) if stack else empty(graph.output[1 + len(carry) + k]))
    return (*state, *results)


def empty(info: Any) -> ConstantArray:
    t = info.type.tensor_type
    return ConstantArray(np.zeros((0, *[d.dim_value for d in t.shape.dim]), numpy_type(t.elem_type or 1)))


def stacked(g: Any, values: list[Value], k: int = 0) -> Value:
    """Values of one shape along a new dim k."""
    if all(isinstance(v, ConstantArray) for v in values):
        return ConstantArray(np.stack([v.array for v in values], k))
    ts = [g.tensor(v) for v in values]
    return joined(g, [Tensor(t.op, [*t.dims[:k], None, *t.dims[k:]]) for t in ts], k)


@translates("Scan", since=9)
def scan(n: Any, *inputs: Value) -> tuple[Value, ...]:
    """A loop of ours over the axis, where all slices are taken in one direction, else unrolled."""
    count = n.attr("num_scan_inputs")
    back = {*(n.attr("scan_input_directions") or [0] * count), *(n.attr("scan_output_directions") or ())}
    size = n.g.tensor(inputs[-1]).shape[(n.attr("scan_input_axes") or [0] * count)[-1]]
    if len(back) == 1 and not (isinstance(size, int) and size <= FEW_TRIPS):
        try:
            with body(n.g):
                return scan_rolled(n, count, back == {1}, inputs)
        except Inside:
            pass
    return scan_unrolled(n, *inputs)


def scan_rolled(n: Any, count: int, reverse: bool, inputs: Sequence[Value]) -> tuple[Value, ...]:
    g, graph = n.g, n.attr("body")
    start = [g.full(g.tensor(v)) for v in inputs[: len(inputs) - count]]
    xs = [g.tensor(x) for x in inputs[len(inputs) - count :]]
    places = [k % x.rank for k, x in zip(n.attr("scan_input_axes") or [0] * count, xs, strict=True)]
    xs = [g.full(x, [k]) for x, k in zip(xs, places, strict=True)]
    axis = g.fresh(xs[0].shape[places[0]])
    if not all(g.same(axis.size, x.shape[k]) for x, k in zip(xs, places, strict=True)):
        raise GraphError("the axes of a Scan have unlike lengths")
    xs = [g.renamed(x, [axis if j == k else d for j, d in enumerate(x.dims)]) for x, k in zip(xs, places, strict=True)]
    shapes: list[Tensor] = []

    def step(state: Any, slices: Any) -> tuple[Any, Any]:
        mine = [Tensor(s, [d for j, d in enumerate(x.dims) if j != k]) for s, x, k in zip(slices, xs, places, strict=True)]
        given = n.graph(graph, [*(Tensor(s, t.dims) for s, t in zip(state, start, strict=True)), *mine])
        shapes[:] = [g.full(g.tensor(v)) for v in given[len(start) :]]
        return tuple(fitted(g, v, t) for v, t in zip(given, start, strict=False)), tuple(t.op for t in shapes)

    after, ys = scan_op(step, tuple(broadcast(t.op, t.dims) for t in start), tuple(x.op for x in xs), axis, reverse)
    out_axes = n.attr("scan_output_axes") or [0] * len(shapes)
    results = []
    for y, t, k in zip(ys or (), shapes, out_axes, strict=True):
        k %= t.rank + 1
        results.append(g.made(y, [*t.dims[:k], axis, *t.dims[k:]]))
    return (*(g.made(a, t.dims) for a, t in zip(after or (), start, strict=True)), *results)


def scan_unrolled(n: Any, *inputs: Value) -> tuple[Value, ...]:
    g, body, count = n.g, n.attr("body"), n.attr("num_scan_inputs")
    state, xs = list(inputs[: len(inputs) - count]), [g.tensor(x) for x in inputs[len(inputs) - count :]]
    axes = [k % x.rank for k, x in zip(n.attr("scan_input_axes") or [0] * count, xs, strict=True)]
    back = n.attr("scan_input_directions") or [0] * count
    outs = len(body.output) - len(state)
    out_axes, out_back = n.attr("scan_output_axes") or [0] * outs, n.attr("scan_output_directions") or [0] * outs
    length = g.number(xs[0].shape[axes[0]])
    stacks: list[list[Value]] = [[] for _ in range(outs)]
    for trip in range(length):
        slices = []
        for x, k, reverse in zip(xs, axes, back, strict=True):
            t = sliced(g, x, k, length - 1 - trip if reverse else trip, 1, 1)
            slices.append(Tensor(t.op, [d for j, d in enumerate(t.dims) if j != k]))
        given = n.graph(body, [*state, *slices])
        state = given[: len(state)]
        for stack, v in zip(stacks, given[len(state) :], strict=True):
            stack.append(v)
    results = []
    for stack, k, reverse in zip(stacks, out_axes, out_back, strict=True):
        rank = stack[0].rank + 1
        results.append(stacked(g, stack[::-1] if reverse else stack, k % rank))
    return (*state, *results)


@translates("Scan", since=8)
def scan8(n: Any, lengths: Value, *inputs: Value) -> tuple[Value, ...]:
    """Version 8 had a batch dim in front of everything."""
    g, body, count = n.g, n.attr("body"), n.attr("num_scan_inputs")
    ts = [g.tensor(x) for x in inputs]
    batch = g.number(ts[0].shape[0])
    back = n.attr("directions") or [0] * count
    rows = []
    for b in range(batch):
        mine = []
        for t in ts:
            one = sliced(g, t, 0, b, 1, 1)
            mine.append(Tensor(one.op, one.dims[1:]))
        state, xs = mine[: len(mine) - count], mine[len(mine) - count :]
        length = g.number(xs[0].shape[0])
        stacks: list[list[Value]] = [[] for _ in range(len(body.output) - len(state))]
        for trip in range(length):
            slices = []
            for x, reverse in zip(xs, back, strict=True):
                t = sliced(g, x, 0, length - 1 - trip if reverse else trip, 1, 1)
                slices.append(Tensor(t.op, t.dims[1:]))
            given = n.graph(body, [*state, *slices])
            state = given[: len(state)]
            for stack, v in zip(stacks, given[len(state) :], strict=True):
                stack.append(v)
        rows.append([*state, *(stacked(g, s) for s in stacks)])
    return tuple(stacked(g, [row[k] for row in rows]) for k in range(len(rows[0])))


# ---- sequences ----------------------------------------------------------------------------------------------------------


@translates("SequenceConstruct")
def sequence(n: Any, *values: Value) -> Value:
    return (list(values),)


@translates("SequenceEmpty")
def sequence_empty(n: Any) -> Value:
    return ([],)


@translates("SequenceLength")
def sequence_length(n: Any, s: Value) -> Value:
    return ConstantArray(np.array(len(s), np.int64))


def _place(n: Any, s: list[Value], position: Value, more: int = 0) -> int:
    k = int(n.g.known(position).ravel()[0])
    if not -len(s) <= k < len(s) + more:
        raise GraphError(f"a sequence of {len(s)} has no place {k}")
    return k + len(s) if k < 0 else k


@translates("SequenceAt")
def sequence_at(n: Any, s: Value, position: Value) -> Value:
    return s[_place(n, s, position)]


@translates("SequenceInsert")
def sequence_insert(n: Any, s: Value, v: Value, position: Value = None) -> Value:
    k = len(s) if position is None else _place(n, s, position, 1)
    return ([*s[:k], v, *s[k:]],)


@translates("SequenceErase")
def sequence_erase(n: Any, s: Value, position: Value = None) -> Value:
    k = len(s) - 1 if position is None else _place(n, s, position)
    return ([*s[:k], *s[k + 1 :]],)


@translates("SplitToSequence")
def split_to_sequence(n: Any, x: Value, sizes: Value = None) -> Value:
    g, t = n.g, n.g.tensor(x)
    k = n.attr("axis", 0) % t.rank
    length = g.number(t.shape[k])
    keep = True
    if sizes is None:
        n.g.count(length)
        each, keep = [1] * length, bool(n.attr("keepdims", 1))
    else:
        given = g.known(sizes)
        if given.ndim:
            each = [int(s) for s in given]
        else:
            step = int(given)
            if step <= 0:
                raise GraphError(f"a sequence of parts of length {step}")
            n.g.count(-(-length // step))
            each = [min(step, length - at) for at in range(0, length, step)]
    found, start = [], 0
    for s in each:
        part = sliced(g, t, k, start, 1, s)
        found.append(part if keep else Tensor(part.op, [d for j, d in enumerate(part.dims) if j != k]))
        start += s
    return (found,)


@translates("ConcatFromSequence")
def concat_from_sequence(n: Any, s: Value) -> Value:
    k = n.attr("axis")
    if n.attr("new_axis", 0):
        return stacked(n.g, s, k % (s[0].rank + 1))
    return joined(n.g, [n.g.tensor(v) for v in s], k % s[0].rank)


# ---- optionals ----------------------------------------------------------------------------------------------------------


@translates("Optional")
def optional(n: Any, v: Value = None) -> Value:
    return (NOTHING if v is None else v,)


@translates("OptionalHasElement")
def has_element(n: Any, v: Value = None) -> Value:
    return ConstantArray(np.array(v is not None and not isinstance(v, Nothing)))


@translates("OptionalGetElement")
def get_element(n: Any, v: Value) -> Value:
    if isinstance(v, Nothing):
        raise GraphError("the optional has no value")
    return (v,) if isinstance(v, list) else v

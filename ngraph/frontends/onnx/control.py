"""Translators of branches, loops, sequences and optionals.

A branch whose condition is known is walked in place. One that depends on a few numbers of the input is decided for this call.
Sequences and optionals are lists while the graph is read, so cost nothing when it runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.onnx.proto import numpy_type
from ngraph.frontends.onnx.shapes import joined, sliced
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.onnx.values import NOTHING, Known, Nothing, Tensor, Value

MOST_TRIPS = 1 << 16  # of a loop that is unrolled


@translates("If")
def if_(n: Any, condition: Value) -> tuple[Value, ...]:
    holds = bool(n.g.known(condition).ravel()[0])
    return tuple(n.graph(n.attr("then_branch" if holds else "else_branch"), []))


@translates("Loop")
def loop(n: Any, most: Value, condition: Value, *carry: Value) -> tuple[Value, ...]:
    """Unrolled: each trip's condition is known before the next."""
    g, body = n.g, n.attr("body")
    trips = None if most is None else int(g.known(most).ravel()[0])
    holds = True if condition is None else bool(g.known(condition).ravel()[0])
    state = list(carry)
    stacks: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(carry))]
    trip = 0
    while holds and (trips is None or trip < trips):
        if trip >= MOST_TRIPS:
            raise GraphError(f"the loop runs more than {MOST_TRIPS} times")
        outside: dict[str, Value] = {f"carry {k}": v for k, v in enumerate(state)}
        outside.update({f"stack {k} {j}": v for k, stack in enumerate(stacks) for j, v in enumerate(stack)})
        g.scopes.append(outside)
        try:
            given = n.graph(body, [Known(np.array(trip, np.int64)), Known(np.array(holds)), *state])
            holds = bool(g.known(given[0]).ravel()[0]) if trips is None or trip + 1 < trips or condition is not None else True
            outside.update({f"given {k}": v for k, v in enumerate(given)})
        finally:
            g.scopes.pop()
        stacks = [[outside[f"stack {k} {j}"] for j in range(len(stack))] for k, stack in enumerate(stacks)]
        state = [outside[f"given {1 + k}"] for k in range(len(carry))]
        for k, stack in enumerate(stacks):
            stack.append(outside[f"given {1 + len(carry) + k}"])
        trip += 1
    results = []
    for k, stack in enumerate(stacks):
        results.append(stacked(g, stack) if stack else empty(body.output[1 + len(carry) + k]))
    return (*state, *results)


def empty(info: Any) -> Known:
    t = info.type.tensor_type
    return Known(np.zeros((0, *[d.dim_value for d in t.shape.dim]), numpy_type(t.elem_type or 1)))


def stacked(g: Any, values: list[Value], k: int = 0) -> Value:
    """Values of one shape along a new dim k."""
    if all(isinstance(v, Known) for v in values):
        return Known(np.stack([v.array for v in values], k))
    ts = [g.tensor(v) for v in values]
    return joined(g, [Tensor(t.op, [*t.dims[:k], None, *t.dims[k:]]) for t in ts], k)


@translates("Scan", since=9)
def scan(n: Any, *inputs: Value) -> tuple[Value, ...]:
    """Unrolled along axes of known length."""
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
    return Known(np.array(len(s), np.int64))


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
        each, keep = [1] * length, bool(n.attr("keepdims", 1))
    else:
        given = g.known(sizes)
        if given.ndim:
            each = [int(s) for s in given]
        else:
            step = int(given)
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
    return Known(np.array(v is not None and not isinstance(v, Nothing)))


@translates("OptionalGetElement")
def get_element(n: Any, v: Value) -> Value:
    if isinstance(v, Nothing):
        raise GraphError("the optional has no value")
    return (v,) if isinstance(v, list) else v

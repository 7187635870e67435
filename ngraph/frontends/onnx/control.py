"""Translators of branches, loops, sequences and optionals. Sequences are lists while the graph is read, so cost nothing when it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from ngraph.errors import GraphError
from ngraph.frontends.onnx.proto import numpy_type
from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional import control
from ngraph.frontends.positional.shapes import at, joined, split, stacked, without
from ngraph.frontends.positional.values import NOTHING, ConstantArray, Nothing, Sizes, Tensor, Value
from ngraph.ops import elementwise as e


@translates("If")
def if_(n: Any, condition: Value) -> tuple[Value, ...]:
    then, other = n.attr("then_branch"), n.attr("else_branch")
    return control.branch(n.g, condition, lambda: n.graph(then, []), lambda: n.graph(other, []))


@translates("Loop")
def loop(n: Any, most: Value, condition: Value, *carry: Value) -> tuple[Value, ...]:
    graph = n.attr("body")

    def turn(values: Sequence[Value]) -> Any:
        return n.graph(graph, values)

    @cache
    def first() -> Any:
        start = [ConstantArray(np.array(0, np.int64)), ConstantArray(np.array(True)), *carry]
        return control.as_op(n.g, lambda names: turn(start))

    empties = [partial(empty, n.g, info, k, first) for k, info in enumerate(graph.output) if k > len(carry)]
    return control.loop(n.g, most, condition, carry, turn, empties)


def empty(g: Any, info: Any, k: int, first: Callable[[], Any]) -> Value:
    """Returns what a loop without trips stacks of its body's output k: of the declared dtype and shape, else of those of the first trip."""
    t = info.type.tensor_type
    if not (t.elem_type and t.HasField("shape")):
        found = first()
        if found is not None and isinstance(found[k], (Tensor, ConstantArray, Sizes)):
            like = g.full(g.tensor(found[k]))
            none = g.fresh(0)
            return Tensor(e.filled(0, [none, *like.dims], like.dtype), [none, *like.dims])
    return ConstantArray(np.zeros((0, *[d.dim_value for d in t.shape.dim]), numpy_type(t.elem_type or 1)))


@translates("Scan", since=9)
def scan(n: Any, *inputs: Value) -> tuple[Value, ...]:
    graph, count = n.attr("body"), n.attr("num_scan_inputs")
    state, xs = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    outs = len(graph.output) - len(state)
    names = (("scan_input_axes", count), ("scan_input_directions", count), ("scan_output_axes", outs), ("scan_output_directions", outs))
    way = control.Slices(*(n.attr(name) or [0] * k for name, k in names))
    return control.scan(n.g, state, xs, lambda values: n.graph(graph, values), way)


@translates("Scan", since=8)
def scan8(n: Any, lengths: Value, *inputs: Value) -> tuple[Value, ...]:
    """Version 8 had a batch dim in front of everything."""
    g, graph, count = n.g, n.attr("body"), n.attr("num_scan_inputs")
    ts = [g.tensor(x) for x in inputs]
    zeros = [0] * (len(graph.output) - (len(ts) - count))
    way = control.Slices([0] * count, n.attr("directions") or [0] * count, zeros, zeros)
    rows = []
    for b in range(g.number(ts[0].shape[0])):
        mine = [at(g, t, 0, b) for t in ts]
        state, xs = mine[: len(mine) - count], mine[len(mine) - count :]
        rows.append(control.scan_unrolled(g, state, xs, lambda values: n.graph(graph, values), way))
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
    parts = split(g, t, k, each)
    return (parts if keep else [without(p, k) for p in parts],)


@translates("ConcatFromSequence")
def concat_from_sequence(n: Any, s: Value) -> Value:
    k = n.attr("axis")
    if n.attr("new_axis", 0):
        return stacked(n.g, s, k % (s[0].rank + 1))
    return joined(n.g, [n.g.tensor(v) for v in s], k % s[0].rank)


@translates("SequenceMap")
def sequence_map(n: Any, s: Value, *others: Value) -> tuple[list[Value], ...]:
    """The body for each place of the sequences; a tensor stands for itself in each."""
    graph = n.attr("body")
    if any(isinstance(v, list) and len(v) != len(s) for v in others):
        raise GraphError(f"sequences of {', '.join(str(len(v)) for v in (s, *others) if isinstance(v, list))} values are mapped together")
    turns = [n.graph(graph, [v[k] if isinstance(v, list) else v for v in (s, *others)]) for k in range(len(s))]
    return tuple([turn[k] for turn in turns] for k in range(len(graph.output)))


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

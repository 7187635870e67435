"""Branches and loops: `torch.cond`, `while_loop`, `scan`, `map`, and graphs that are called in place.

The graphs of their bodies are modules that a graph holds (`get_attr`); PyTorch has traced derivatives into bodies of their own before.
A `while_loop` that is differentiated gives the states of all its turns, as many as values decide: `counted` makes two loops of it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule, Node

from ngraph.errors import GraphError, NgraphError
from ngraph.frontends.positional import control
from ngraph.frontends.positional.values import ConstantArray, Tensor, Value
from ngraph.frontends.torch.graph import Reading, TorchNode, graph_values, name_of, unfit
from ngraph.frontends.torch.table import translates
from ngraph.ops import elementwise as e


@translates("higher_order.cond")
def cond(n: TorchNode, condition: Any, then: GraphModule, other: GraphModule, operands: Sequence[Value] = ()) -> tuple[Value, ...]:
    first = n.of(condition)
    return control.branch(n.g, first, lambda: graph_values(n.g, then, operands), lambda: graph_values(n.g, other, operands))


@translates("higher_order.while_loop")
def while_loop(
    n: TorchNode, condition: GraphModule, body: GraphModule, carry: Sequence[Value], outside: Sequence[Value] = ()
) -> tuple[Value, ...]:
    return looped(n, condition, carry, outside, lambda state: graph_values(n.g, body, [*state, *outside]))


def looped(
    n: TorchNode,
    condition: GraphModule,
    carry: Sequence[Value],
    outside: Sequence[Value],
    body: Callable[[Sequence[Value]], Sequence[Value]],
) -> tuple[Value, ...]:
    """Returns the carry after the last turn. body: from the carry to the next; the condition reads as much of it as it takes."""
    takes = len(condition.graph.find_nodes(op="placeholder")) - len(outside)

    def holds(values: Sequence[Value]) -> Value:
        (found,) = graph_values(n.g, condition, [*values[:takes], *outside])
        return n.of(found)

    def turn(values: Sequence[Value]) -> list[Value]:
        after = body(values[2:])
        return [holds(after), *after]

    start = [n.of(v) for v in carry]
    return control.loop(n.g, None, holds(start), start, turn)


@translates("while_loop_turns")
def turns(
    n: TorchNode, condition: GraphModule, body: GraphModule, carry: Sequence[Value], outside: Sequence[Value], least: int
) -> tuple[Value, ...]:
    def turn(state: Sequence[Value]) -> list[Value]:
        count = n.of(state[-1])
        return [*graph_values(n.g, body, [*state[:-1], *outside]), Tensor(count.op + 1, count.dims)]

    *last, count = looped(n, condition, [*carry, n.of(0)], outside, turn)
    return Tensor(e.maximum(n.of(count).op, least), []), *last


@translates("while_loop_states")
def states(
    n: TorchNode, body: GraphModule, carry: Sequence[Value], outside: Sequence[Value], length: Any, after: bool
) -> tuple[Value, ...]:
    def turn(values: Sequence[Value]) -> list[Value]:
        now = values[2:]
        new = graph_values(n.g, body, [*now, *outside])
        return [ConstantArray(np.array(True)), *new, *(new if after else now)]

    start = [n.of(v) for v in carry]
    return control.loop(n.g, length, None, start, turn, [no_turns] * len(start))[len(start) :]


def no_turns() -> Value:
    """Raises GraphError: the length of a loop that `counted` made is not known when it is read."""
    raise GraphError("the number of turns of a loop is known before it has run")


def while_loop_turns(*args: Any) -> Any:
    """Stands in a node that `counted` has made, which gives the number of turns of a loop, but `least`, and its last state."""
    raise NotImplementedError


def while_loop_states(*args: Any) -> Any:
    """Stands in a node that `counted` has made, which gives the states before each of `length` turns of a loop, or after, stacked."""
    raise NotImplementedError


def counted(gm: GraphModule) -> None:
    """Makes two loops of each `while_loop` that stacks its states: one that counts the turns, and one of so many turns.

    The derivative reads the states before each turn, and the last one. Where the graph takes nothing else, there may be no turn; else one
    row is left, as in PyTorch, whose derivative of no turn is that of one. A loop with something that is not ours stays as it is.
    """
    for node in gm.graph.nodes:
        if name_of(node) != "higher_order.while_loop_stack_output":
            continue
        condition, body, carry, outside = node.args
        last, before, others = taken_of(node, carry)
        with gm.graph.inserting_after(node):
            first = gm.graph.call_function(while_loop_turns, (condition, body, carry, outside, int(others)))
        stacks = node.meta["val"]
        length = stacks[0].shape[0]
        first.meta = {**node.meta, "val": (stacks[0].new_empty((), dtype=torch.int64), *[t.new_empty(t.shape[1:]) for t in stacks])}
        made = [first]

        def add(target: Any, args: Any, val: Any, node: Node = node, made: list[Node] = made) -> Node:
            with gm.graph.inserting_after(made[-1]):
                new = gm.graph.call_function(target, args)
            new.meta = {**node.meta, "val": val}
            made.append(new)
            return new

        count = add(operator.getitem, (first, 0), first.meta["val"][0])
        number = add(torch.ops.aten._local_scalar_dense.default, (count,), length)
        rows = add(while_loop_states, (body, carry, outside, number, others), stacks)
        if not translated(first, rows):
            for new in reversed(made):
                gm.graph.erase_node(new)
            continue
        for k, user in last:
            user.replace_all_uses_with(add(operator.getitem, (first, 1 + k), user.meta["val"]))
        for k, user in before:
            user.replace_all_uses_with(add(operator.getitem, (rows, k), user.meta["val"]))
        if others:
            node.replace_all_uses_with(rows)
        gm.graph.eliminate_dead_code()


def taken_of(node: Node, carry: Sequence[Any]) -> tuple[list[tuple[int, Node]], list[tuple[int, Node]], bool]:
    """Returns the nodes that are the last state of a loop, and those that are the states before each turn, with the number of the value
    in the carry, and whether anything else is read of the node's stacks.
    """
    last, before, others = list[tuple[int, Node]](), list[tuple[int, Node]](), False
    for item in node.users:
        k = int(item.args[1])
        for user in item.users:
            if name_of(user) == "aten.select.int" and user.args[1:] == (0, -1):
                last.append((k, user))
                continue
            found = [u for u in user.users if is_shifted(u, carry[k], user)] if is_but_last(user) else []
            before += [(k, u) for u in found]
            others |= not found or len(found) < len(user.users)
    return ([], [], True) if others else (last, before, False)


def is_but_last(node: Node) -> bool:
    return name_of(node) == "aten.slice.Tensor" and node.args[1:] == (0, 0, -1)


def is_shifted(node: Node, first: Any, rest: Node) -> bool:
    """Whether a node is a value as one row, and other rows behind it."""
    parts: Any = node.args[0] if name_of(node) == "aten.cat.default" and len(node.args) == 1 else ()
    if len(parts) != 2 or parts[1] is not rest or not isinstance(parts[0], Node):
        return False
    return name_of(parts[0]) == "aten.unsqueeze.default" and parts[0].args == (first, 0)


def translated(*nodes: Node) -> bool:
    """Whether nodes are ours, read by themselves."""
    reading = Reading()
    try:
        for node in nodes:
            for a in node.all_input_nodes:
                if isinstance(a.meta.get("val"), torch.Tensor):
                    if unfit(a.meta["val"]):
                        return False
                    reading.hole(a)
            reading.read(node)
    except NgraphError:
        return False
    return True


@translates("higher_order.scan")
def scan(n: TorchNode, body: GraphModule, state: Sequence[Value], xs: Sequence[Value], outside: Sequence[Value] = ()) -> tuple[Value, ...]:
    stacks = len(n.val) - len(state)
    way = control.Slices([0] * len(xs), [False] * len(xs), [0] * stacks, [False] * stacks)
    return control.scan(n.g, list(state), list(xs), lambda values: graph_values(n.g, body, [*values, *outside]), way)


@translates("higher_order.map_impl")
def map_(n: TorchNode, body: GraphModule, xs: Sequence[Value], outside: Sequence[Value] = ()) -> tuple[Value, ...]:
    return scan(n, body, (), xs, outside)


@translates("higher_order.invoke_subgraph")
def invoke_subgraph(n: TorchNode, body: GraphModule, identifier: Any, *operands: Value) -> tuple[Value, ...]:
    return tuple(graph_values(n.g, body, operands))


@translates("higher_order.wrap_with_set_grad_enabled")
def wrap_with_set_grad_enabled(n: TorchNode, enabled: bool, body: GraphModule, *operands: Value) -> tuple[Value, ...]:
    return tuple(graph_values(n.g, body, operands))

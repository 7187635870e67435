"""Branches and loops: `torch.cond`, `while_loop`, `scan`, `map`, and graphs that are called in place.

The graphs of their bodies are modules that a graph holds (`get_attr`); PyTorch has traced derivatives into bodies of their own before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import GraphModule

from ngraph.frontends.positional import control
from ngraph.frontends.positional.values import Value
from ngraph.frontends.torch.graph import TorchNode, graph_values
from ngraph.frontends.torch.table import translates


@translates("higher_order.cond")
def cond(n: TorchNode, condition: Any, then: GraphModule, other: GraphModule, operands: Sequence[Value] = ()) -> tuple[Value, ...]:
    first = n.of(condition)
    return control.branch(n.g, first, lambda: graph_values(n.g, then, operands), lambda: graph_values(n.g, other, operands))


@translates("higher_order.while_loop")
def while_loop(
    n: TorchNode, condition: GraphModule, body: GraphModule, carry: Sequence[Value], outside: Sequence[Value] = ()
) -> tuple[Value, ...]:
    def holds(values: Sequence[Value]) -> Value:
        (found,) = graph_values(n.g, condition, [*values, *outside])
        return n.of(found)

    def turn(values: Sequence[Value]) -> list[Value]:
        after = graph_values(n.g, body, [*values[2:], *outside])
        return [holds(after), *after]

    start = [n.of(v) for v in carry]
    return control.loop(n.g, None, holds(start), start, turn)


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

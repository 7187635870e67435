"""Checks of divisors: where whole numbers are divided by 0, PyTorch raises an error, and kernels of ours give a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from ngraph.frontends.torch import private
from ngraph.frontends.torch.graph import name_of

DIVISIONS = frozenset(f"aten.{name}" for name in "div floor_divide remainder fmod".split())
CHECKED = "its divisor is checked"


def check_divisors(gm: GraphModule) -> None:
    """Adds to a graph, though not to the bodies in it, the checks that raise PyTorch's error where a divisor is 0."""
    aten = torch.ops.aten
    for node in list(gm.graph.nodes):
        if not divides_whole_numbers(node) or CHECKED in node.meta:
            continue
        node.meta[CHECKED] = True
        x, divisor = node.args[:2]
        if isinstance(divisor, Node):
            right = after(node, aten.ne.Scalar, divisor, 0)
            if not alike(divisor.meta["val"].shape, node.meta["val"].shape):  # where x is empty, nothing is divided
                same = after(right, aten.ne.Tensor, x, x)
                right = after(same, aten.logical_or.default, right, same)
        else:
            right = after(node, aten.ne.Tensor, x, x)
        every = after(right, aten.all.default, right)
        after(every, aten._assert_async.msg, every, "ZeroDivisionError")


def divides_whole_numbers(node: Node) -> bool:
    """Whether a node divides whole numbers by a tensor, or by 0."""
    if name_of(node).rpartition(".")[0] not in DIVISIONS:
        return False
    result, divisor = node.meta.get("val"), node.args[1]
    if not isinstance(result, torch.Tensor) or result.is_floating_point() or result.is_complex():
        return False
    return isinstance(divisor.meta.get("val"), torch.Tensor) if isinstance(divisor, Node) else isinstance(divisor, int) and divisor == 0


def alike(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two shapes are the same in every call."""
    return len(a) == len(b) and all(private.surely(n == m) for n, m in zip(a, b, strict=True))


def after(node: Node, target: Any, *args: Any) -> Node:
    """Returns a new node behind one."""
    with node.graph.inserting_after(node):
        made: Node = node.graph.call_function(target, args)
    made.meta = {"stack_trace": node.meta.get("stack_trace")}
    made.meta["val"] = target(*[a.meta["val"] if isinstance(a, Node) else a for a in args])
    return made

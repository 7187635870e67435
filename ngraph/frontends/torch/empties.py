"""Tensors of no elements that PyTorch's kernels refuse, or give other shapes than its functions of shapes, which trace graphs."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from ngraph.errors import UnsupportedError
from ngraph.frontends.torch import private
from ngraph.frontends.torch.graph import fetch, hint, line_of, place_in, tensors_in, unfit

FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType)
UNSAFE = ("embedding_bag",)  # functions whose kernels read memory that is not theirs: of indices, and no bags
HOMES = ("torch", "_operator", "math", "builtins")  # packages whose functions compute, and do nothing else


class Refused(NamedTuple):
    """A node of Dynamo's whose function PyTorch refuses for tensors of no elements, or does not compute as traced, and why."""

    node: Node
    name: str
    words: str

    def row(self) -> dict[str, Any]:
        """Returns what the report says of it: PyTorch runs the graph."""
        reason = f"of a tensor of no elements, and PyTorch says: {self.words}"
        return {"reason": reason, "line": line_of(self.node), "count": 1, "bytes": 0}

    def error(self) -> UnsupportedError:
        """Returns the error where PyTorch may not run the graph."""
        what = f"PyTorch would run this graph, which calls {self.name} for a tensor of no elements"
        return UnsupportedError(what, details=(self.words,), fix="call it with elements", line=place_in([self.node]))


def refused(gm: GraphModule) -> Refused | None:
    """Returns the first node of a graph of Dynamo's that takes a tensor of no elements, and which is not for zeros what has been traced."""
    for node in gm.graph.nodes:
        if not any(any(isinstance(n, int) and n == 0 for n in t.shape) for t in taken(node)) or not computes(node):
            continue
        try:
            args, named = map_arg((node.args, node.kwargs), zeros_for)
        except UnsupportedError:
            continue
        with torch.no_grad(), torch.random.fork_rng(devices=[]), private.no_fakes():
            try:
                function = getattr(args[0], node.target) if node.op == "call_method" else node.target
                result = function(*(args[1:] if node.op == "call_method" else args), **named)
                words = unlike(result, node.meta.get("example_value"))
            except Exception as error:  # an op raises what it likes
                words = next(iter(str(error).splitlines()), type(error).__name__)
        if words:
            return Refused(node, getattr(node.target, "__name__", str(node.target)), words)
    return None


def unlike(result: Any, traced: Any) -> str:
    """Returns how the shapes of tensors differ from those that Dynamo has traced; "" where they do not."""
    pairs = zip(tensors_in(result), tensors_in(traced), strict=False)
    shapes = next(((list(a.shape), list(b.shape)) for a, b in pairs if tuple(a.shape) != tuple(map(hint, b.shape))), None)
    return f"it gives the shape {shapes[0]}, and {shapes[1]} where it is traced" if shapes else ""


def taken(node: Node) -> Iterator[torch.Tensor]:
    """Yields the tensors that a node takes."""
    for a in node.all_input_nodes:
        yield from tensors_in(value_of(a))


def value_of(node: Node) -> Any:
    """Returns what Dynamo knows of a node's value."""
    if node.op == "get_attr":
        return fetch(node.graph.owning_module, str(node.target))
    return node.meta.get("example_value")


def computes(node: Node) -> bool:
    """Whether a node calls a function of PyTorch's or Python's that only computes; a user's own op may do more."""
    target = node.target
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(target).startswith("aten.")
    if getattr(target, "__name__", "") in UNSAFE:
        return False
    if not isinstance(target, FUNCTIONS) or target.__name__.startswith("_"):  # such as what begins the transforms of torch.func
        return node.op == "call_method"
    home = target.__module__ or "torch"
    return home.partition(".")[0] in HOMES and "distributed" not in home


def zeros_for(node: Node) -> Any:
    """Returns the value of a node in the call that is being compiled, with zeros in its tensors. Raises UnsupportedError for others."""
    value = value_of(node)
    if isinstance(value, torch.Tensor) and not unfit(value):
        size, stride = [hint(n) for n in value.shape], [hint(n) for n in value.stride()]
        room = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if all(size) else 0
        with private.no_fakes():
            return torch.zeros(room, dtype=value.dtype).as_strided(size, stride)
    if isinstance(value, (torch.SymInt, torch.SymFloat)) and not private.unbacked(value):
        return hint(value) if isinstance(value, torch.SymInt) else value.node.hint
    if isinstance(value, (int, float, str)):
        return value
    raise UnsupportedError("a value of another kind")

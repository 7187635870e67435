"""The translators: for each overload of ATen, or for all overloads of one name, a function.

    @translates("aten.addmm.default")
    def addmm(n, bias, a, b, beta=1, alpha=1): ...

`n` is the node (`TorchNode`); then come its arguments as PyTorch has them, positional ones and those by name, with a `Tensor` for a
tensor and a length, maybe open, for a SymInt. It gives a tensor, or a tuple of them, of the dtypes and shapes that PyTorch gives. Ops
that are one of ours, element by element, need none: their records say in the column `torch` what PyTorch calls them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ngraph.frontends.torch import private
from ngraph.op_graph.opdef import ELEMENTWISE, REGISTRY, TORCH, OpDef

Translator = Callable[..., Any]

TABLE: dict[str, Translator] = {}


def translates(*ops: str) -> Callable[[Translator], Translator]:
    """Registers the function under it for these overloads (`aten.add.Tensor`), or for all of one name (`aten.add`)."""

    def add(function: Translator) -> Translator:
        TABLE.update(dict.fromkeys(ops, function))
        return function

    return add


def find(op: str) -> Translator | None:
    """The translator of an overload; None where there is none. A copy of a view is what the view is."""
    if op.rpartition(".")[0] in private.COPIES:
        op = op.replace("_copy", "", 1)
    return TABLE.get(op) or TABLE.get(op.rpartition(".")[0])


def translated(op: str) -> bool:
    """Whether an overload has a translator, or is a record."""
    return find(op) is not None or op.rpartition(".")[0] in one_to_one()


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """Returns how ops are taken apart before they are translated."""
    return private.decompositions(translated)


@cache
def one_to_one() -> dict[str, OpDef]:
    """The records that an op of PyTorch is without more: what it is called, and the record."""
    return {TORCH[name]: REGISTRY[name] for name in ELEMENTWISE.names if TORCH[name] and TORCH[name] not in TABLE}

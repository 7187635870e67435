"""Values that eager PyTorch refuses: an op fails where one of its operands has them, as PyTorch does.

`ngraph::checked` gives its first operand, and the call fails where the second one holds anywhere. Rules that take ops apart call it.
"""

from __future__ import annotations

from typing import Any

import torch

from ngraph.frontends.positional.elementwise import each
from ngraph.frontends.positional.values import Tensor
from ngraph.frontends.torch import private
from ngraph.frontends.torch.graph import TorchNode
from ngraph.frontends.torch.table import translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import make_axis, merge
from ngraph.op_graph.op import Op
from ngraph.ops import elementwise as e
from ngraph.ops import indexing
from ngraph.ops.rearrange import broadcast


def refused(wrong: Tensor, what: str, fix: str, kind: str = "operand") -> Tensor:
    """Returns zeros of int64; the call whose `wrong` holds anywhere fails. kind: of the error, as `check_bounds` has it."""
    axis = make_axis(1, name=kind)
    return Tensor(indexing.bounded(e.cast(wrong.op, dtypes.int32), axis, what, kind, fix), wrong.dims)


def eager(x: torch.Tensor, wrong: torch.Tensor, what: str, fix: str) -> torch.Tensor:
    """The first operand, where torch has to check it."""
    if wrong.any():
        raise RuntimeError(what)
    return x.clone()


def defined() -> Any:
    """Defines the op, and returns what holds it."""
    library = torch.library.Library("ngraph", "FRAGMENT")
    library.define("checked(Tensor x, Tensor wrong, str what, str fix) -> Tensor")
    library.impl("checked", eager, "CPU")
    torch.library.register_fake("ngraph::checked", lambda x, wrong, what, fix: torch.empty_like(x), lib=library)
    return library


LIBRARY = defined()  # the op is there as long as this is


@translates("ngraph.checked")
def checked(n: TorchNode, a: Tensor, wrong: Tensor, what: str, fix: str) -> Tensor:
    """The first operand, for calls in which the second one holds nowhere."""

    def taken(x: Op, nothing: Op) -> Op:
        return e.where(e.equal(nothing, 0), broadcast(x, merge(x.axes, nothing.axes)), e.filled(0, (), x.dtype))

    return each(n.g, taken, a, refused(n.g.full(wrong), what, fix))


def shares(x: torch.Tensor, what: str, fix: str) -> torch.Tensor:
    """Returns x, whose elements are checked to be from 0 to 1."""
    found: torch.Tensor = torch.ops.ngraph.checked(x, ~((x >= 0) & (x <= 1)), f"{what} are not from 0 to 1", fix)
    return found


def rules() -> dict[Any, Any]:
    """Returns how losses of probabilities are taken apart, by overload."""
    op = torch.ops.aten.binary_cross_entropy.default
    rule = private.rule_of(op)

    def binary_cross_entropy(x: torch.Tensor, target: torch.Tensor, weight: Any = None, reduction: int = 1) -> Any:
        x = shares(x, "elements of the input of binary_cross_entropy", "binary_cross_entropy_with_logits, which takes any number")
        target = shares(target, "elements of the target of binary_cross_entropy", "target.clamp(0, 1)")
        return rule(x, target, weight, reduction)

    return {op: binary_cross_entropy}

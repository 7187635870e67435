"""Values that eager PyTorch refuses: an op fails where one of its operands has them, as PyTorch does.

`ngraph::checked` gives its first operand, and the call fails where the second one holds anywhere. Rules that take ops apart call it.
"""

from __future__ import annotations

from typing import Any

import torch

from ngraph.frontends.positional.elementwise import each
from ngraph.frontends.positional.values import Tensor
from ngraph.frontends.torch import private
from ngraph.frontends.torch.graph import TorchNode, if_zero
from ngraph.frontends.torch.table import find, translates
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import make_axis
from ngraph.ops import elementwise as e
from ngraph.ops import indexing


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
    return if_zero(n.g, a, refused(n.g.full(wrong), what, fix))


@translates("aten._assert_async")
def assertion(n: TorchNode, holds: Tensor, what: str = "an asserted value is 0", *token: Any) -> Tensor:
    """Zero, for calls in which one number is not 0."""
    return refused(each(n.g, lambda x: e.equal(e.cast(x, dtypes.float64), 0), holds), what, "give it values for which the assertion holds")


@translates("aten._linalg_check_errors")
def factored(n: TorchNode, info: Tensor, name: str, is_matrix: bool = True) -> Tensor:
    """Zeros, for calls in which the info of each factorization is 0."""
    fix = "is the matrix singular, or not positive definite? Add a small multiple of torch.eye(n) to it"
    return refused(each(n.g, lambda x: e.not_equal(x, 0), info), f"{name}: the factorization could not be completed", fix)


@translates("higher_order.with_effects")
def in_order(n: TorchNode, token: Any, op: Any, *args: Any, **named: Any) -> tuple[Any, Any]:
    """The token, and what an op gives that PyTorch keeps in order by it: a check."""
    function = find(str(op))
    if function is None:
        raise n.lack(f"no translation of {op}")
    return token, function(n, *args, **named)


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

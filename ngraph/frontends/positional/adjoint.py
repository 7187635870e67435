"""Derivatives of functions of tensors with dims in an order, for formats whose files have nodes for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ngraph.autodiff.backward import deriv
from ngraph.frontends.positional.values import Tensor
from ngraph.ops import elementwise as e
from ngraph.ops.rearrange import broadcast


def adjoint(g: Any, function: Callable[[Tensor], Tensor], shape: Sequence[Any], dtype: Any, dy: Tensor, at: Any = None) -> Tensor:
    """Returns the derivative of a function of one tensor, times dy; at: the tensor, zeros where the function is linear."""
    if at is None:
        dims = [g.fresh(s) for s in shape]
        x = Tensor(e.stop_gradient(e.filled(0, dims, dtype)), dims)
    else:
        x = g.full(at)
    y = g.full(function(x))
    error = g.renamed(g.full(dy), y.dims)
    made = deriv(broadcast(y.op, y.dims), x.op, broadcast(error.op, y.dims))
    return g.made(made, x.dims)

"""Losses whose own decomposition in PyTorch gives other values than its kernel, taken apart as the kernel computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ngraph.frontends.torch import private

REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
MEANS = ("mse", "smooth_l1", "huber")  # losses whose derivative PyTorch's rules divide by the number of elements


def multilabel_margin(input: torch.Tensor, target: torch.Tensor, reduction: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the loss, and 1 where a class is a label. A row's labels end before its first -1, and only these have margins."""
    rows, labels = torch.atleast_2d(input), torch.atleast_2d(target)
    given = (labels == -1).cumsum(1) == 0
    at = torch.where(given, labels, 0)
    is_label = torch.zeros_like(rows).scatter_add(1, at, given.to(rows.dtype)) > 0
    margins = torch.relu(1 - rows.gather(1, at)[:, :, None] + rows[:, None, :])
    loss = torch.where(given[:, :, None] & ~is_label[:, None, :], margins, 0).sum((1, 2)) / rows.shape[1]
    if reduction == REDUCTIONS["none"]:
        loss = loss.reshape(input.shape[:-1])
    else:
        loss = loss.mean() if reduction == REDUCTIONS["mean"] else loss.sum()
    return loss, is_label.to(input.dtype).reshape(target.shape)


def multilabel_margin_loss(
    input: torch.Tensor, target: torch.Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> torch.Tensor:
    """Returns the loss; arguments as `torch.nn.functional.multilabel_margin_loss` takes them."""
    if size_average is not None or reduce is not None:
        mean = size_average is None or size_average
        reduction = "none" if reduce is not None and not reduce else "mean" if mean else "sum"
    return multilabel_margin(input, target, REDUCTIONS[reduction])[0]


def slopes() -> dict[Any, Any]:
    """Returns how derivatives of means are taken apart: PyTorch's rules divide by the number of elements, though there be none."""
    aten = torch.ops.aten
    return {op: unless_empty(private.rule_of(op)) for op in (getattr(aten, f"{name}_loss_backward").default for name in MEANS)}


def unless_empty(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a rule for the derivative of a loss, which is empty where the input is."""

    def slope(dy: torch.Tensor, x: torch.Tensor, *args: Any) -> Any:
        return torch.empty_like(x) if private.surely(x.numel() == 0) else rule(dy, x, *args)

    return slope


def rules() -> dict[Any, Any]:
    """Returns how the ops of exported programs are taken apart, by overload."""
    return {torch.ops.aten.multilabel_margin_loss_forward.default: multilabel_margin}

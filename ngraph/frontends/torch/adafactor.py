"""Adafactor's step in ops alone: that of PyTorch asks values of tensors (`item()`), where Dynamo ends its graph and compiles none of it."""

from __future__ import annotations

from typing import Any

import torch

from ngraph.frontends.torch import private

PLAIN = private.plain(private.ADAFACTOR_STEPS[0])


def step(
    params: list[Any],
    grads: list[Any],
    row_vars: list[Any],
    col_vars: list[Any],
    variances: list[Any],
    state_steps: list[Any],
    grad_scale: Any,
    found_inf: Any,
    *,
    d: float,
    lr: Any,
    beta2_decay: float,
    weight_decay: float,
    eps1: float | None,
    eps2: float,
    maximize: bool,
    has_complex: bool,
) -> None:
    """See `torch.optim.Adafactor`. Numbers of a step are tensors of float64 without dims, as they are Python's floats in PyTorch."""
    if not private.taking() or grad_scale is not None or found_inf is not None:
        lists = params, grads, row_vars, col_vars, variances, state_steps
        numbers = {"d": d, "lr": lr, "beta2_decay": beta2_decay, "weight_decay": weight_decay, "eps1": eps1, "eps2": eps2}
        PLAIN(*lists, grad_scale, found_inf, **numbers, maximize=maximize, has_complex=has_complex)
        return
    for k, p in enumerate(params):
        g, row, column = -grads[k] if maximize else grads[k], row_vars[k], col_vars[k]
        least, size = torch.finfo(p.dtype).eps if eps1 is None else eps1, p.numel() ** 0.5
        state_steps[k] += 1
        now = state_steps[k].double()
        share = (now**beta2_decay).to(p.dtype)
        rate = (now**-0.5 / lr).clamp(max=1.0) * lr  # the smaller of both, by ops that Dynamo takes with a rate that changes
        scale = (p.norm(2).double() / size).clamp(min=eps2) * rate
        if weight_decay != 0:
            p.mul_(1 - lr * weight_decay)
        if g.dim() > 1:
            row.lerp_(g.norm(dim=-1, keepdim=True).square() / g.size(-1), share)
            column.lerp_(g.norm(dim=-2, keepdim=True).square() / g.size(-2), share)
            estimate = row @ column / row.mean(-2, keepdim=True).clamp(min=least)
        else:
            variances[k].lerp_(g * g, share)
            estimate = variances[k]
        update = estimate.clamp(min=least * least).rsqrt() * g
        limit = (update.norm(2).double() / (size * d)).clamp(min=1.0)
        p.add_(update * (-scale / limit).to(p.dtype))


def taken() -> None:
    """Lets Dynamo trace this step in place of PyTorch's, for our backend."""
    for steps in private.ADAFACTOR_STEPS:
        private.traced_as(steps, step)

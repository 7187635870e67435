"""The layers that PyTorch's transformer modules call as one op in inference, taken apart into ops that are translated."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional as F

KEYS_OF_ROWS = 1  # the type of a mask [batch, keys]; others are [queries, keys], or as the scores are


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Attention of [batch, time, width] and its weights, None where they are not needed. The mask is true where a score does not count."""
    width = embed_dim // num_head
    factors = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    q, k, v = (F.linear(x, w, b).unflatten(-1, (num_head, width)).transpose(1, 2) for x, w, b in factors)
    scores = (q / math.sqrt(width)) @ k.transpose(-1, -2)
    if mask is not None:
        mask = mask.to(torch.bool)
        if mask_type == KEYS_OF_ROWS:
            mask = mask[:, None, None]
        scores = scores.masked_fill(mask, float("-inf"))
    weights = scores.softmax(-1)
    y = F.linear((weights @ v).transpose(1, 2).flatten(2), proj_weight, proj_bias)
    if not need_weights:
        return y, None
    return y, weights.mean(1) if average_attn_weights else weights


def encoder_layer(
    src: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor,
    ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    """Attention and a network of two layers, each with what it is given added to it, and normalized before or after."""

    def first(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attended(x: torch.Tensor) -> torch.Tensor:
        given = (embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask)
        return attention(x, x, x, *given, need_weights=False, mask_type=mask_type)[0]

    def network(x: torch.Tensor) -> torch.Tensor:
        hidden = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(hidden) if use_gelu else F.relu(hidden), ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attended(first(src))
        return x + network(second(x))
    x = first(src + attended(src))
    return second(x + network(x))


def rules() -> dict[Any, Any]:
    """Returns how the ops are taken apart, by overload."""
    aten = torch.ops.aten
    return {aten._native_multi_head_attention.default: attention, aten._transformer_encoder_layer_fwd.default: encoder_layer}

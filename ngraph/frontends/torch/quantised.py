"""Quantised tensors as PyTorch has them: `quantized_decomposed.*` taken apart into ATen's ops, and products of narrow integers.

Each rule does what PyTorch's own implementation does, in its order and dtypes, so that the integers are those of eager; what that reads
from tensors on the host (`scale.item()`) stays in the graph. Scales that are Python's numbers are divided in float64, as there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from ngraph.frontends.positional.products import matmul
from ngraph.frontends.positional.shapes import turned
from ngraph.frontends.positional.values import Tensor
from ngraph.frontends.torch import table
from ngraph.frontends.torch.graph import TorchNode
from ngraph.frontends.torch.table import translates
from ngraph.op_graph import dtypes

DEFINED_BY = "torch.ao.quantization.fx._decomposed"  # importing it defines the ops; who has them in a graph has imported it
EPS = torch.finfo(torch.float32).eps


# ---- products


@translates("aten._int_mm")
def int_mm(n: TorchNode, a: Tensor, b: Tensor) -> Tensor:
    """A product of int8 matrices, summed in int32."""
    return matmul(n.g, n.of(a, dtypes.int32), n.of(b, dtypes.int32))


@translates("aten._weight_int8pack_mm")
def weight_int8pack_mm(n: TorchNode, x: Tensor, w: Tensor, scales: Tensor) -> Tensor:
    """Rows of x with rows of int8 weights, summed in float32, each column times its scale, rounded once."""
    near = [n.of(t, dtypes.float32) for t in (x, w, scales)]
    return n.each(lambda y, s: y * s, matmul(n.g, near[0], turned(near[1])), near[2], dtype=dtypes.float32)


# ---- rules


def floated(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def number(t: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of one element as a number of this dtype."""
    return t.reshape(()).to(dtype)


def quantize(x: torch.Tensor, scale: float, zero: int, low: Any, high: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.clamp(torch.round(floated(x) * (1.0 / scale)) + zero, low, high).to(dtype)


def quantize_by_tensors(x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, low: Any, high: Any, dtype: torch.dtype) -> torch.Tensor:
    inverse = (1.0 / number(scale, torch.float64)).float()
    made = torch.round(floated(x) * inverse) + number(zero, torch.float32)
    if isinstance(low, torch.Tensor):
        low, high = number(low, torch.float32), number(high, torch.float32)
    return torch.clamp(made, low, high).to(dtype)


def dequantize(
    x: torch.Tensor, scale: float, zero: int, low: Any, high: Any, dtype: Any, *, out_dtype: torch.dtype | None = None
) -> torch.Tensor:
    return (x.to(out_dtype or torch.float32) - zero) * scale


def dequantize_by_tensors(
    x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, low: Any, high: Any, dtype: Any, *, out_dtype: torch.dtype | None = None
) -> torch.Tensor:
    return (x.to(out_dtype or torch.float32) - number(zero, torch.float32)) * number(scale, torch.float32)


def along(t: torch.Tensor, x: torch.Tensor, axis: int) -> torch.Tensor:
    """A vector as it meets the dim `axis` of x."""
    return t.reshape([-1 if k == axis % x.dim() else 1 for k in range(x.dim())])


def quantize_channels(x: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, axis: int, low: int, high: int, dtype: Any) -> Any:
    made = torch.round(floated(x) * (1.0 / along(scales, x, axis))) + along(zeros, x, axis)
    return torch.clamp(made, low, high).to(dtype)


def dequantize_channels(
    x: torch.Tensor, scales: torch.Tensor, zeros: Any, axis: int, low: int, high: int, dtype: Any, *, out_dtype: Any = None
) -> torch.Tensor:
    whole = x if zeros is None else x - along(zeros, x, axis)
    return (whole * along(scales, x, axis)).to(out_dtype or torch.float32)


def ends(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The smallest element of x, at most 0, and the largest, at least 0."""
    return torch.clamp(torch.amin(x), max=0), torch.clamp(torch.amax(x), min=0)


def choose(x: torch.Tensor, low: int, high: int, eps: float, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    least, most = ends(x)
    scale = torch.maximum((most - least) / float(high - low), torch.full((1,), eps))
    zero = torch.clamp(low - torch.round(least / scale).to(torch.int32), low, high)
    return scale.double(), zero.to(torch.int64)


def choose_symmetric(x: torch.Tensor, low: int, high: int, eps: float, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    least, most = ends(x)
    scale = torch.maximum(torch.maximum(-least, most) / (float(high - low) / 2), torch.full((1,), eps))
    return scale.double(), torch.full((1,), 128 if dtype is torch.uint8 else 0, dtype=torch.int64)


def choose_rows(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    scales = x.abs().amax(dim=-1, keepdim=True)
    scales = (scales.float() if scales.dtype is torch.float16 else scales).clamp(min=1e-5).div(127)
    return scales, torch.zeros_like(scales)


def choose_rows_asymmetric(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    least = torch.clamp(torch.amin(x, dim=-1, keepdim=True), max=0)
    most = torch.clamp(torch.amax(x, dim=-1, keepdim=True), min=0)
    scale = ((most - least) / 255.0).clamp(min=EPS)
    low, high = least / scale, most / scale
    zero = torch.where((-128 + low) + (127 + high) > 0, -128 - low, 127 - high)
    return scale.double(), torch.clamp(zero, -128, 127).round().to(torch.int64)


def quantize_rows(x: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, low: int, high: int, dtype: torch.dtype) -> torch.Tensor:
    return x.mul(1.0 / scales).add(zeros).round().clamp(low, high).to(dtype)


def dequantize_rows(
    x: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, low: int, high: int, dtype: Any, output_dtype: torch.dtype
) -> torch.Tensor:
    return ((x - zeros) * scales).to(output_dtype)


def grouped(x: torch.Tensor, scales: torch.Tensor, size: int) -> torch.Tensor:
    """The rows of x in groups of one scale each."""
    return x.reshape(-1, x.shape[-1] if size > x.shape[-1] and scales.shape[-1] == 1 else size)


def quantize_groups(x: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, low: int, high: int, dtype: Any, size: int) -> Any:
    made = grouped(x, scales, size).mul(1.0 / scales.reshape(-1, 1)).add(zeros.reshape(-1, 1))
    return made.round().clamp(low, high).to(dtype).reshape_as(x)


def dequantize_groups(
    x: torch.Tensor, scales: torch.Tensor, zeros: Any, low: int, high: int, dtype: Any, size: int, output_dtype: torch.dtype
) -> torch.Tensor:
    whole = grouped(x, scales, size)
    whole = whole if zeros is None else whole.sub(zeros.reshape(-1, 1))
    return whole.mul(scales.reshape(-1, 1)).reshape_as(x).to(output_dtype)


RULES: dict[str, Callable[..., Any]] = {
    "quantize_per_tensor.default": quantize,
    "quantize_per_tensor.tensor": quantize_by_tensors,
    "quantize_per_tensor.tensor2": quantize_by_tensors,
    "dequantize_per_tensor.default": dequantize,
    "dequantize_per_tensor.tensor": dequantize_by_tensors,
    "dequantize_per_tensor.tensor2": dequantize_by_tensors,
    "quantize_per_channel.default": quantize_channels,
    "dequantize_per_channel.default": dequantize_channels,
    "choose_qparams.tensor": choose,
    "choose_qparams_symmetric.tensor": choose_symmetric,
    "choose_qparams_per_token.default": choose_rows,
    "choose_qparams_per_token_asymmetric.default": choose_rows_asymmetric,
    "quantize_per_token.default": quantize_rows,
    "dequantize_per_token.default": dequantize_rows,
    "quantize_per_channel_group.default": quantize_groups,
    "dequantize_per_channel_group.default": dequantize_groups,
    "convert_element_type.no_fuse": torch.Tensor.to,
}


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Returns how all ops are taken apart before they are translated, those of quantised tensors where they are defined."""
    if DEFINED_BY not in sys.modules:
        return table.decompositions()
    ops = torch.ops.quantized_decomposed
    return {**table.decompositions(), **{getattr(getattr(ops, n.split(".")[0]), n.split(".")[1]): rule for n, rule in RULES.items()}}

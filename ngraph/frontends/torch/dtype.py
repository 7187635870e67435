"""Element types of PyTorch and of ngraph, and arrays that share memory with tensors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType

OURS: dict[torch.dtype, DType] = {
    torch.bool: dtypes.bool_,
    torch.uint8: dtypes.uint8,
    torch.int8: dtypes.int8,
    torch.int16: dtypes.int16,
    torch.int32: dtypes.int32,
    torch.int64: dtypes.int64,
    torch.uint16: dtypes.uint16,
    torch.uint32: dtypes.uint32,
    torch.uint64: dtypes.uint64,
    torch.float16: dtypes.float16,
    torch.bfloat16: dtypes.bfloat16,
    torch.float32: dtypes.float32,
    torch.float64: dtypes.float64,
}
THEIRS = {ours.np: theirs for theirs, ours in OURS.items()}
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
HALVES = (dtypes.float16, dtypes.bfloat16)


def array_of(t: torch.Tensor) -> np.ndarray[Any, Any]:
    """Returns a tensor as an array over the same memory, with its strides."""
    if t.dtype is torch.bfloat16:  # NumPy has no such dtype of its own, so that torch lends the bits
        return t.detach().view(torch.int16).numpy().view(BFLOAT16)
    if t.requires_grad:
        t = t.detach()
    try:
        return t.numpy()
    except RuntimeError:  # conjugate or negative bits are set
        return t.resolve_neg().numpy()


def tensor_of(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """Returns an array as a tensor over the same memory."""
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def wide(dtype: DType) -> DType:
    """The dtype in which PyTorch computes what it gives as `dtype`: float32 for floats of 16 bits."""
    return dtypes.float32 if dtype in HALVES else dtype


def computed_in(dtype: torch.dtype) -> torch.dtype:
    """`wide` of a dtype of PyTorch's."""
    return THEIRS[wide(OURS[dtype]).np]

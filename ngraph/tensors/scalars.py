"""Elementwise operations and combinations in NumPy, for the interpreters of tensor graphs and of plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ngraph.errors import ProgramError
from ngraph.op_graph.dtypes import DType, as_dtype
from ngraph.op_graph.op import TensorType
from ngraph.op_graph.opdef import REGISTRY, Call
from ngraph.ops.random import philox
from ngraph.program.program import AxisId
from ngraph.targets.products import DOTS, PACKS
from ngraph.tensors.graph import FMA

COMBINE = {"add": np.add, "multiply": np.multiply, "max": np.maximum, "min": np.minimum}
FLAT = AxisId("flat")
TRIP, WORD = 0x9E3779B1, 0xFFFFFFFF  # docs/spec.md 6


def elementwise(op: str, attrs: Mapping[str, Any], dtype: DType, arrays: Sequence[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """One operation on arrays of this shape. Raises ProgramError where its record gives another dtype than the one that is wanted."""
    args = [np.ascontiguousarray(a).ravel() for a in arrays]
    n = int(np.prod(shape, dtype=np.int64))
    if op == "random_bits":
        return _random(attrs["stream"], args).reshape(shape)
    if op in FMA:
        x, y, z = args
        return np.asarray(z - x * y if op == "fnma" else x * y - z if op == "fms" else x * y + z).reshape(shape)
    if op in PACKS:
        held = f"<u{PACKS[op].operand_bits // 8}"
        return np.stack([a.view(held) for a in args], -1).view("<u4").astype(np.uint32).reshape(shape)
    if op in DOTS:
        row = DOTS[op]
        x, y = (a.astype("<u4").view(d.np).reshape(-1, row.k).astype(row.sum.np) for a, d in zip(args, row.operands, strict=True))
        return np.asarray(sum([x[:, k] * y[:, k] for k in reversed(range(row.k))])).reshape(shape)
    types = tuple([TensorType((FLAT,), as_dtype(a.dtype)) for a in args])
    call = Call({**attrs, "dtype": dtype} if op in ("cast", "bitcast") else dict(attrs), types, (TensorType((FLAT,), dtype),), lambda _: n)
    reference = REGISTRY[op].reference
    assert reference is not None
    made = np.asarray(reference(call, *args))
    if made.dtype != dtype.np:
        raise ProgramError(f"{op} gives {made.dtype} where {dtype} is wanted")
    return made.reshape(shape)


def combined(kind: str, x: np.ndarray, dims: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Returns a reduction; without elements 0, 1, the lowest, the highest."""
    with np.errstate(all="ignore"):
        if kind in ("add", "multiply"):
            return np.asarray(COMBINE[kind].reduce(x, axis=dims, dtype=dtype.np))
        edge = np.array(dtype.lowest if kind == "max" else dtype.highest).astype(dtype.np)
        return np.asarray(COMBINE[kind].reduce(x, axis=dims, initial=edge[()])).astype(dtype.np)


def _random(stream: int, args: Sequence[np.ndarray]) -> np.ndarray:
    """Returns words of Philox, one per element; seed, step and trips are equal wherever predicates hold, and 0 elsewhere."""
    if not args[-1].size:
        return np.zeros(0, np.uint32)
    seed, step, *trips = [int(a.max()) for a in args[:-1]]
    mixed = 0
    for t in trips:
        mixed = (mixed * TRIP + t + 1) & WORD
    at = args[-1]
    words = philox(((at // 4).astype(np.uint64), step & WORD, stream, mixed), (seed & WORD, seed >> 32))
    return np.stack(np.broadcast_arrays(*words))[at % 4, np.arange(at.size)]

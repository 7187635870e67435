"""NumPy's broadcasting of tensors whose axes are named by their position."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import ngraph as ng
from ngraph.errors import ArgumentError
from ngraph.frontends.tensorflow.tf_importer.utils_pos_axes import cast_to_pos_axes, make_pos_axes
from ngraph.op_graph.op import Op

__all__ = ["broadcast_to", "broadcasted_shape", "is_compatible_broadcast_shape", "is_compatible_numpy_shape"]


def is_compatible_numpy_shape(left_shape: Sequence[int], right_shape: Sequence[int]) -> bool:
    """Returns whether two shapes can be broadcast against each other."""
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(left_shape), reversed(right_shape), strict=False))


def is_compatible_broadcast_shape(src_shape: Sequence[int], dst_shape: Sequence[int]) -> bool:
    """Returns whether the first shape can be broadcast to the second."""
    fits = all(a in (1, b) for a, b in zip(reversed(src_shape), reversed(dst_shape), strict=False))
    return len(src_shape) <= len(dst_shape) and fits


def broadcasted_shape(left_shape: Sequence[int], right_shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the shape of two tensors broadcast against each other. Raises ArgumentError where they cannot be."""
    if not is_compatible_numpy_shape(left_shape, right_shape):
        raise ArgumentError(f"{list(left_shape)} and {list(right_shape)} do not fit", fix="lengths from the last on are equal, or 1")
    return np.broadcast_shapes(tuple(left_shape), tuple(right_shape))


def broadcast_to(x: Op, out_shape: Sequence[int]) -> Op:
    """Returns a tensor broadcast to a shape, its axes named by position. Raises ArgumentError where it cannot be."""
    if not is_compatible_broadcast_shape(x.axes.lengths, out_shape):
        said = f"{list(x.axes.lengths)} cannot be broadcast to {list(out_shape)}"
        raise ArgumentError(said, fix="lengths from the last on are equal, or 1")
    x, to = cast_to_pos_axes(x), make_pos_axes(out_shape)
    wider = [a.length == 1 and b.length != 1 for a, b in zip(x.axes, to[len(to) - len(x.axes) :], strict=True)]
    x = ng.tensor_slice(x, [0 if grows else slice(None) for grows in wider]) if any(wider) else x
    return ng.axes_with_order(ng.broadcast(x, to), to)

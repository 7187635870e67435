"""Axes named by their position, counted from the last dim: a tensor of four dims has POS_3, POS_2, POS_1, POS_0."""

from __future__ import annotations

from collections.abc import Sequence

import ngraph as ng
from ngraph.errors import ArgumentError
from ngraph.op_graph.axes import Axis
from ngraph.op_graph.op import Op

__all__ = ["POS_AXIS_PREFIX", "cast_to_pos_axes", "make_pos_axes", "make_pos_axis", "reorder_pos_axes"]

POS_AXIS_PREFIX = "POS_"


def make_pos_axis(length: int | None, pos: int, prefix: str = POS_AXIS_PREFIX) -> Axis:
    """Returns the axis of a position, of this length, None for an open one. Raises ArgumentError for a position below 0."""
    if not isinstance(pos, int) or pos < 0:
        raise ArgumentError(f"the position {pos!r} is not a number from 0 on", fix="0 is the last dim")
    return ng.make_axis(length, name=f"{prefix}{pos}")


def make_pos_axes(shape: Sequence[int | None], positions: Sequence[int] | None = None, prefix: str = POS_AXIS_PREFIX) -> list[Axis]:
    """Returns the axes of a shape. positions: of the dims, by default counted down to 0. Raises ArgumentError where they do not fit."""
    positions = range(len(shape))[::-1] if positions is None else positions
    if len(set(positions)) != len(shape) or len(positions) != len(shape):
        raise ArgumentError(f"the positions {list(positions)} are not one for each dim of {list(shape)}", fix="give each dim its own")
    return [make_pos_axis(n, pos, prefix) for n, pos in zip(shape, positions, strict=True)]


def cast_to_pos_axes(x: Op, prefix: str = POS_AXIS_PREFIX) -> Op:
    """Returns a tensor with its axes named by their position."""
    return ng.cast_axes(x, make_pos_axes(x.axes.lengths, prefix=prefix))


def reorder_pos_axes(x: Op, prefix: str = POS_AXIS_PREFIX) -> Op:
    """Returns a tensor with its axes, all named by positions, in descending order. Raises ArgumentError for other axes."""
    by_name = {axis.name: axis for axis in x.axes}
    names = [f"{prefix}{k}" for k in range(len(x.axes))[::-1]]
    if set(names) != set(by_name):
        raise ArgumentError(f"the axes {', '.join(by_name)} are not {', '.join(names)} in some order", fix="cast_to_pos_axes(x)")
    return ng.axes_with_order(x, [by_name[name] for name in names])

"""State that grows: a variable with room for so many places along one dim, of which each call uses the first ones, and appends more.

What comes behind a call's first places is written in place (`appended`), where the graph joins the state with what is new. So a decoder
that takes the keys and values of the past, and gives them with those of its token, copies none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ngraph.frontends.positional.values import Tensor
from ngraph.op_graph import dtypes
from ngraph.op_graph.axes import Axes, Axis
from ngraph.op_graph.expr import ExprLike, Idx
from ngraph.op_graph.op import Op
from ngraph.ops.elementwise import constant_record
from ngraph.ops.indexing import scatter
from ngraph.ops.rearrange import broadcast, iota

if TYPE_CHECKING:
    from ngraph.frontends.positional.trace import ModelTrace


class Growth(NamedTuple):
    """An input that is state that grows: along which dim, what the used length is called, and for how many places there is room."""

    dim: int
    label: str
    capacity: int


class Grown(NamedTuple):
    """The end of such a state: the variable's new value, the part of it that is used, and how long that is."""

    full: Op
    used: Tensor
    length: ExprLike


class GrowingState:
    """One such state while a graph is read."""

    def __init__(self, g: ModelTrace, variable: Op, dim: int, axis: Axis):
        self.g, self.variable, self.dim, self.axis = g, variable, dim, axis
        self.past = self._part(variable, axis)
        self.grown: dict[Op, Grown] = {}  # values that append to it, by their op

    def _part(self, full: Op, axis: Axis) -> Tensor:
        """The first places of the variable or of its new value, as many as an axis has."""
        axes, room = self.variable.axes, self.variable.axes[self.dim]
        return self.g.read(Tensor(full, axes), [axis if k == self.dim else a for k, a in enumerate(axes)], {room: Idx(axis)})

    def _written(self, new: Tensor, start: ExprLike) -> Op | None:
        """The variable with new places from `start` on; None where the other dims do not agree. Places beyond the room are dropped."""
        g, axes, room = self.g, self.variable.axes, self.variable.axes[self.dim]
        if new.rank != len(axes) or not all(
            g.same(n, a.size) for k, (n, a) in enumerate(zip(new.shape, axes, strict=True)) if k != self.dim
        ):
            return None
        own = g.fresh(new.shape[self.dim])
        new = g.renamed(g.full(new), [own if k == self.dim else a for k, a in enumerate(axes)])
        first = constant_record.build(value=start, axes=Axes(), dtype=dtypes.int64)
        every = broadcast(new.op, [*(a for a in axes if a != room), own])
        return scatter.build(self.variable, iota(own, dtypes.int64) + first, every, axes=(room,), combine="set", mode="fill")

    def appended(self, new: Tensor) -> Tensor | None:
        """The used part with more behind it; None where the other dims do not agree."""
        full = self._written(new, self.axis.size)
        if full is None:
            return None
        length = self.axis.size + new.shape[self.dim]
        made = Grown(full, self._part(full, self.g.fresh(length)), length)
        self.grown[made.used.op] = made
        return made.used

    def became(self, value: Tensor) -> Grown | None:
        """The state after the call, where it gets this value: written as a whole, unless it is the past with more behind it."""
        made = self.grown.get(value.op)
        if made is not None and list(made.used.dims) == list(value.dims):
            return made
        full = self._written(value, 0)
        return None if full is None else Grown(full, value, value.shape[self.dim])

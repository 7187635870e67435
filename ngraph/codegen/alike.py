"""Which kernels of a plan differ in nothing but names, so that the code of one is that of all.

`shape` is what writing a kernel depends on, with axes and buffers by the order in which they are met; kernels of equal keys have equal
texts. Kernels of equal texts may have different keys: then one is written for nothing.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ngraph.codegen.called import KernelCode
from ngraph.op_graph import expr
from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import Bin, ExprLike, Leaf, Len
from ngraph.plan.kernels import Buffer, Kernel, Local, Plan, Read
from ngraph.program.program import AxisId


class Shape(NamedTuple):
    """A key, and what stands in it by number."""

    key: bytes
    axes: tuple[AxisId, ...]
    buffers: tuple[Buffer, ...]


class _Shape(pickle.Pickler):
    """Writes a kernel without names, origins, places in memory and what was remembered along the way."""

    def __init__(self, file: io.BytesIO):
        super().__init__(file, 5)
        self.axes: dict[AxisId, int] = {}
        self.buffers: list[Buffer] = []

    def persistent_id(self, x: Any) -> Any:
        kind = type(x)
        if kind is AxisId:
            return self.axes.setdefault(x, len(self.axes))
        return x.name if kind is DType else "" if kind is ArrayRef else None

    def reducer_override(self, x: Any) -> Any:
        kind = type(x)
        if kind is Bin:
            return tuple, ((x.op, x.a, x.b),)
        if kind is Read:
            return tuple, ((x.source, x.index, x.guard, x.fill),)
        if kind is Buffer or kind is Local:
            self.buffers.append(x)
            root = x.shares
            while root is not None and root.shares is not None:
                root = root.shares
            fields = [getattr(x, f) for f in Buffer.__slots__ if f not in ("name", "offset", "value", "shares")]
            return list, (), None, iter([kind is Local, x.offset is None or x.offset % 64, root, *fields])
        return (tuple, ((x.loops, x.stages),)) if kind is Kernel else NotImplemented


def shape(plan: Plan, kernel: Kernel) -> Shape | None:
    """All of a kernel that its code depends on, the lengths that the plan knows with it; None where expressions are too deep to write."""
    file = io.BytesIO()
    written = _Shape(file)
    try:
        written.dump(kernel)
    except RecursionError:
        return None
    lengths = [_length(plan, a) for a in written.axes]
    key = hashlib.blake2b(repr(lengths).encode() + file.getvalue(), digest_size=32).digest()
    return Shape(key, tuple(written.axes), tuple(written.buffers))


def _length(plan: Plan, a: AxisId) -> int | None:
    try:
        return plan.length(a)
    except LookupError:
        return None


def moved(code: KernelCode, old: Shape, new: Shape) -> KernelCode:
    """The code of a kernel as that of another one of equal key."""
    axes, buffers = dict(zip(old.axes, new.axes, strict=True)), dict(zip(old.buffers, new.buffers, strict=True))

    def leaf(x: Leaf) -> ExprLike:
        return Len(axes[x.of]) if type(x) is Len else x

    def over(e: ExprLike) -> ExprLike:
        return e if isinstance(e, int) else expr.substitute(e, leaf)

    def named(found: Sequence[Any], names: dict[Any, Any]) -> tuple[Any, ...]:
        return tuple([names[f] for f in found])

    return replace(
        code, buffers=named(code.buffers, buffers), lengths=named(code.lengths, axes), turns=over(code.turns), scratch=over(code.scratch)
    )

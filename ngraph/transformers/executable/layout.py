"""Memory layout of a plan's buffers for all lengths of calls: sizes and offsets are numbers, or expressions over those lengths."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ngraph.op_graph import expr
from ngraph.op_graph.expr import Bin, ExprLike, Leaf, Len, maximum, minimum
from ngraph.plan.kernels import Buffer, Dim, OpaqueOp, Plan
from ngraph.program.program import AxisId
from ngraph.tensors.index import bounds
from ngraph.transformers.executable.code import Control, KernelStep, LoadedPlan

ALIGN = 64  # bytes: a line of the cache
_numbers = itertools.count()


class Computed(Leaf):
    """A number with a name of its own, so that expressions over it stay small: `value` is what it stands for."""

    __slots__ = ("value",)

    def __init__(self, value: ExprLike):
        super().__init__(next(_numbers))
        self.value = value


class Inner(NamedTuple):
    """A loop or branch in its surroundings' arena: where its bodies, by name, and its own memory lie, how often it runs."""

    bodies: dict[str, tuple[Any, ExprLike]]  # a `Layout`, and what is made of it for given lengths
    spare: dict[int, ExprLike]  # the second place of a carry
    flag: ExprLike
    trips: ExprLike
    end: ExprLike

    @staticmethod
    def of(outer: Layout, step: OpaqueOp, at: ExprLike, length: Callable[[AxisId], ExprLike]) -> Inner:
        """Raises LookupError where lengths are not known."""
        found: dict[str, tuple[Any, ExprLike]] = {}
        for name, body in step.attrs.items():
            if type(body) is Plan:
                known = {a: length(a) for a, n in body.axes.items() if n == Len(a) and a in outer.plan.axes}
                made = Layout(outer.code.bodies[id(body)], known, outer.symbols, outer.names)
                if any(real(b) and made.sizes[b] is None for b in (*body.inputs, *body.outputs)):
                    raise LookupError(f"the body of a {step.op} has values of unknown size")
                at = outer.named(aligned_up(at))
                found[name] = made, at
                at = at + made.apart + made.lasting
        spare: dict[int, ExprLike] = {}
        trips = length(step.attrs["axis"]) if step.op == "scan" else 0
        for k in range(step.attrs.get("carries", 0)):
            body, _ = found["body"]
            at = outer.named(aligned_up(at))
            spare[k] = at
            at = at + (body.sizes[body.plan.inputs[k]] or 0)
        at = outer.named(at)
        return Inner(found, spare, at, trips, at + 1)


class Layout:
    """Sizes and offsets in bytes. `lengths` of a plan's open axes are numbers, or expressions over `symbols`, which calls bring."""

    def __init__(self, code: LoadedPlan, lengths: Mapping[AxisId, ExprLike], symbols: frozenset[AxisId], names: dict[ExprLike, Computed]):
        self.code, self.plan, self.lengths, self.symbols, self.names = code, code.plan, dict(lengths), symbols, names
        self.arena: ExprLike = self.plan.arena
        self.lasting: ExprLike = self.plan.kept
        self.offsets: dict[Buffer, ExprLike] = {}
        self.sizes: dict[Buffer, ExprLike | None] = {b: self._size(b) for b in self._buffers()}
        self.total: ExprLike = self.arena
        self.inner: dict[OpaqueOp, Inner] = {}
        for s in code.every:
            if type(s) is Control:
                self._inner(s.step)

    @staticmethod
    def of(code: LoadedPlan, symbols: frozenset[AxisId]) -> Layout:
        """That of a whole program, made once; these are the axes whose lengths calls bring."""
        if code.layout is None:
            opened = frozenset([a for a in symbols if code.plan.axes.get(a) == Len(a)])
            code.layout = Layout(code, {a: Len(a) for a in opened}, opened, {})
        made: Layout = code.layout
        return made

    def named(self, e: ExprLike) -> ExprLike:
        """A number, or the name of an expression."""
        if not isinstance(e, Bin):
            return e
        if e not in self.names:
            self.names[e] = Computed(e)
        return self.names[e]

    # ---- lengths

    def over(self, e: ExprLike) -> ExprLike:
        """An expression over lengths as one over what calls bring, and what is loaded."""

        def leaf(x: Leaf) -> ExprLike:
            if type(x) is not Len:
                return x
            if x.of in self.lengths:
                return self.lengths[x.of]
            own = self.plan.axes[x.of]
            return own if isinstance(own, int) or own == x else self.over(own)

        return expr.substitute(e, leaf)

    def length(self, axis: AxisId) -> ExprLike:
        """The length of an axis. Raises LookupError where it is known only when steps have run."""
        e = self.over(Len(axis))
        if not self.early(e):
            raise LookupError(f"the length of {axis} has no value here")
        return e

    def early(self, e: ExprLike) -> bool:
        """Whether a number is known before any step runs."""
        return all(type(x) is Computed or type(x) is Len and x.of in self.symbols for x in expr.leaves(e))

    def most(self, e: ExprLike) -> ExprLike | None:
        """Returns an upper bound of an expression over lengths that is known before any step runs; None where there is none."""
        if self.early(e):
            return e
        _, top = bounds(expr.substitute(e, lambda x: maximum(x, 0)), lambda _: None)  # no length is negative
        return int(top) if top < math.inf else self._top(e)

    def _top(self, e: ExprLike) -> ExprLike | None:
        if not isinstance(e, Bin):
            return e if self.early(e) else None
        a, b = self._top(e.a), self._top(e.b)
        if e.op == "min":
            return b if a is None else a if b is None else minimum(a, b)
        if e.op in ("%", "//") and isinstance(e.b, int) and e.b > 0:
            return e.b - 1 if e.op == "%" else None if a is None else a // e.b
        if e.op == "-":
            return None if a is None else a - e.b if isinstance(e.b, int) else a
        if a is None or b is None or e.op not in ("+", "*", "max"):
            return None
        return a + b if e.op == "+" else a * b if e.op == "*" else maximum(a, b)

    # ---- memory

    def _buffers(self) -> list[Buffer]:
        """All buffers, those between the parts of a routine too."""
        found = dict.fromkeys(self.plan.buffers)
        for s in self.code.every:
            if type(s) is KernelStep:
                found.update(dict.fromkeys(s.code.buffers))
        return list(found)

    def _size(self, b: Buffer) -> ExprLike | None:
        """Bytes; buffers without a place in the arena whose size is known, or bounded, get one behind it."""
        if b.dtype.np is None:
            return None
        size: ExprLike | None = b.bytes
        if size is None:
            shape: list[ExprLike] = []
            for d in b.dims:
                n = self.most(self.over(Len(d[0])))
                if n is None:
                    return None
                shape.append(room(b, d, n))
            if shape and b.row:
                shape[-1] = maximum(shape[-1], b.row)
            size = self.named(math.prod(shape, start=b.dtype.np.itemsize))
        if b.offset is None and b.storage in ("arena", "run", "temp"):
            self.offsets[b] = self.arena
            self.arena = self.named(self.arena + aligned_up(size))
        elif b.offset is None and b.storage == "once":
            self.offsets[b] = self.lasting = self.named(aligned_up(self.lasting))
            self.lasting = self.named(self.lasting + size)
        elif b.offset is not None:
            self.offsets[b] = b.offset
        return size

    def _inner(self, step: OpaqueOp) -> None:
        """Puts the bodies of a loop or branch behind the arena, if all lengths are known: they lie where those of other steps lie too."""
        try:
            inner = Inner.of(self, step, self.arena, self.length)
        except LookupError:
            return
        if any(b.code.start for b, _ in inner.bodies.values()):  # whose borders have to last
            inner = Inner.of(self, step, self.total, self.length)
        self.inner[step], self.total = inner, self.named(maximum(self.total, inner.end))

    @property
    def apart(self) -> ExprLike:
        """Bytes of the arena, those of bodies too, up to where other memory may begin."""
        return self.named(aligned_up(self.total))


def aligned_up(n: ExprLike) -> ExprLike:
    return (n + (ALIGN - 1)) // ALIGN * ALIGN


def room(b: Buffer, dim: Dim, n: ExprLike) -> ExprLike:
    """Returns the number of elements of a buffer along a dim of such a length, those of the border included."""
    _, div, mod = dim
    extent = (n + (div - 1)) // div
    return (extent if mod is None else minimum(extent, mod)) + sum(b.border.get(dim[0], ()))


def real(b: Buffer) -> bool:
    """Whether it is memory at all, and no token."""
    return b.dtype.np is not None

"""Addresses of a kernel's reads and stores as sums over its loops: what schedulers of all machines share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ngraph.op_graph import expr
from ngraph.op_graph.expr import ExprLike, Idx, Len, combine
from ngraph.plan.kernels import Buffer, Dim, Kernel, Line, Local, Plan, Stage, room_of
from ngraph.program.program import AxisId
from ngraph.schedule.form import Access, BlockStart, Loop, Tile
from ngraph.schedule.linear import Forms, LinearForm
from ngraph.targets.tuning import MAX_SHUFFLED_STEP
from ngraph.tensors.index import Load, in_order, loads, without_digits


class KernelAddresses:
    """The grid of a kernel, and strides of its buffers.

    block   the places of a work item along each loop of the grid
    walks   the strides that are known so far
    """

    def __init__(self, plan: Plan, kernel: Kernel) -> None:
        self.plan, self.kernel = plan, kernel
        self.block = dict(kernel.loops)
        self.known: dict[AxisId, ExprLike] = {}
        self.walks: dict[Buffer, tuple[ExprLike, ...]] = {}
        self.grid: dict[AxisId, Loop] = {}
        for a, b in kernel.loops:
            count = (self.length(a) + (b - 1)) // b
            most = count if isinstance(count, int) else None
            self.grid[a] = Loop(((a, b, count),), count, most, grid=True, guess=-(-plan.guess(a) // b))

    def length(self, a: AxisId) -> ExprLike:
        """The length of an axis: a number, else `Len` of it."""
        if a not in self.known:
            try:
                self.known[a] = self.plan.length(a)
            except LookupError:
                self.known[a] = Len(a)
        return self.known[a]

    def strides(self, b: Buffer) -> tuple[ExprLike, ...]:
        """Elements from one place to the next along each dim."""
        if b not in self.walks:
            self.walks[b] = strides_of(b, self.length)
        return self.walks[b]

    def room(self, b: Local, dim: Dim) -> ExprLike:
        """Returns the number of elements of a Local's dim, its border included, enough for every work item."""
        a, div, mod = dim
        if a in b.border:  # no loop cuts it, and it is a dim as it is
            return self.length(a) + sum(b.border[a])
        n, block = self.length(a), self.block.get(a, 1)
        n = n if block == 1 else min(n, block) if isinstance(n, int) else block
        n = (n + (div - 1)) // div
        return n if mod is None else mod if not isinstance(n, int) else min(n, mod)

    def place(self, a: AxisId, digits: Iterable[Loop]) -> LinearForm:
        """The index along an axis: its block's start, and a place in the block."""
        coef: dict[Loop, ExprLike] = {self.grid[a]: self.block[a]} if a in self.block else {}
        return LinearForm(coef | {d: d.unit for d in digits}, 0)


class StageAddresses:
    """The addresses of a stage's reads and stores, and the loops that its lines depend on.

    free, reduced   the loops
    forms           the linear forms of indices
    blocked         axes from whose block's start indices of Locals count
    """

    forms: Forms
    blocked: frozenset[AxisId]
    free: list[Loop]
    reduced: list[Loop]
    dims: frozenset[Loop]
    stores: list[Access]

    def __init__(self, kernel: KernelAddresses, stage: Stage) -> None:
        self.addresses, self.stage = kernel, stage
        self.lines = dict(stage.lines())
        self.border = len(stage.before)
        self.uses: dict[int, tuple[int, ...]] = {}
        self.deps: dict[int, frozenset[Loop]] = {}
        self.reads: dict[int, Access] = {}
        self.reducing = bool(stage.combine or stage.reduced)
        self.blocked = frozenset([a for a, b in kernel.block.items() if b > 1])

    def find_accesses(self) -> None:
        """Finds how each read and store moves."""
        for n, line in self.stage.lines():
            if line.read is not None:
                self.reads[n] = self.access(line.read.source, line.read.index, line.read.predicate, line.read.pad_value)
        self.stores = [self.access(s.target, s.index, s.predicate, None) for s in self.stage.to]

    def find_deps(self) -> None:
        """Finds what each line uses and depends on."""
        stage = self.stage
        for n, line in enumerate(stage.before):
            self._line(n, line)
        for n, c in enumerate(stage.combine, self.border):
            self.deps[n], self.uses[n] = self.deps[c.line].intersection(self.free), ()
        for n, line in enumerate(stage.after, self.border + len(stage.combine)):
            self._line(n, line)
        for a in self.stores:
            a.deps = self.moving([*a.predicate, *[e for _, e in a.rest]]).union(a.coef)
        if self.reducing:
            for n, a in self.reads.items():
                a.epilogue = n >= self.border
            for s, a in zip(stage.to, self.stores, strict=True):
                a.epilogue = s.line >= self.border

    def _line(self, n: int, line: Line) -> None:
        inside = line.exprs
        deps = self.moving(inside) if line.read is None else frozenset()
        if line.read is not None:
            a = self.reads[n]
            inside = [*a.predicate, *[e for _, e in a.rest]]
            deps = a.deps = self.moving(inside).union(a.coef)
        self.uses[n] = uses = (*line.args, *loads(*inside))
        self.deps[n] = deps.union(*[self.deps[u] for u in uses])

    def moving(self, exprs: Iterable[ExprLike]) -> frozenset[Loop]:
        """The loops along which expressions move."""
        found: set[Loop] = set()
        for e in exprs:
            for leaf in expr.leaves(e):
                if type(leaf) is Idx:
                    found.update(self.forms.place[leaf.of].coef)
                elif type(leaf) is Load:
                    found.update(self.deps[leaf.of])
        return frozenset(found & self.dims)

    def access(self, b: Buffer, index: Mapping[AxisId, ExprLike], predicate: tuple[ExprLike, ...], pad_value: Any) -> Access:
        kernel = self.addresses
        made = Access(b, predicate, pad_value)
        total, digits = LinearForm({}, 0), list[tuple[ExprLike, ExprLike]]()
        for (a, div, mod), stride in zip(b.dims, kernel.strides(b), strict=True):
            e = index[a]
            if type(b) is Local and a in self.blocked:
                e = combine("-", e, BlockStart(a))
            e = combine("//", e, div) if div > 1 else e
            e = e if mod is None else combine("%", e, mod)
            e = combine("+", e, b.border[a][0]) if a in b.border else e
            form = self.forms.of(e)
            if form is None:
                digits.append((stride, e))
            else:
                total = total.plus(form, stride)
        for stride, e in without_digits(digits, self.addresses.plan.axes.__getitem__):
            form = self.forms.of(e)
            if form is None:
                made.rest.append((stride, e))
            else:
                total = total.plus(form, stride)
        base: list[tuple[Loop | None, ExprLike]] = []
        if isinstance(total.const, int):
            made.const = total.const
        else:
            base.append((None, total.const))
        for d, c in total.coef.items():
            if d.grid:
                base.append((d, c))
            else:
                made.coef[d] = c
        made.base = tuple(base)
        step = total.coef.get(kernel.grid[kernel.kernel.loops[-1][0]], 0) if kernel.kernel.loops else 0
        made.turn = step if isinstance(step, int) else 0
        high = total.extremes()[1]
        if b.bytes is not None and not made.rest and high < math.inf:
            made.room = b.bytes // (b.dtype.bits // 8) - 1 - int(high)
        return made

    def takes_in_order(self) -> bool:
        """Whether an accumulator of the stage takes its terms one after the other."""
        return any(in_order(c.kind, c.dtype) for c in self.stage.combine)

    def mode(self, a: Access, tile: Tile) -> str:
        """Returns the memory pattern of an access's lanes."""
        v, t = tile.vector, tile.tile
        if v is None or v not in a.deps:
            return "scalar"
        step = a.coef.get(v, 0)
        if v in self.moving([e for _, e in a.rest]):
            return "indexed"
        if isinstance(step, int) and 2 <= step <= MAX_SHUFFLED_STEP and not a.rest:
            return "strided"
        along = None if t is None else a.coef.get(t)
        if isinstance(along, int) and 1 <= along <= MAX_SHUFFLED_STEP and step not in (0, 1) and not a.rest and not a.predicate:
            return "transposed"
        if step == -1 and not a.rest:
            return "reversed"
        return {0: "one", 1: "contiguous"}.get(step, "indexed") if isinstance(step, int) else "indexed"


def strides_of(b: Buffer, length: Callable[[AxisId], ExprLike]) -> tuple[ExprLike, ...]:
    """Elements of a buffer from one place to the next along each dim, as expressions over lengths."""
    if b.strides is not None:
        return b.strides
    return dense(room_of(b, length))


def dense(shape: list[ExprLike]) -> tuple[ExprLike, ...]:
    """The strides of an array whose places lie one after another."""
    made: list[ExprLike] = []
    step: ExprLike = 1
    for n in reversed(shape):
        made.append(step)
        step = combine("*", step, n)
    return tuple(made[::-1])


def inside_expressions(stage: Stage, reads: Mapping[int, Access], stores: Iterable[Access]) -> list[ExprLike]:
    """The expressions that code computes where it stands: predicates, indices, and what accesses do not walk."""
    inside = [e for a in (*reads.values(), *stores) for e in (*a.predicate, *[e for _, e in a.rest])]
    for _, line in stage.lines():
        inside += line.exprs if line.read is None else ()
    return inside

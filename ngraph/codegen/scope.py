"""The scope of a stage's code: open loops, positions in the tile, and the values computed there.

A value is found by (line, position in the tile); the tables of values are opened and closed with the loops. This gives common
subexpressions, register tiles, scalars beside vectors and loop-invariant values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from ngraph.codegen import math as scalar
from ngraph.codegen.forms import Whole, apply, plus, register, times
from ngraph.codegen.lanes import leading, meet_all
from ngraph.codegen.text import IRValue, constant, counting
from ngraph.errors import ProgramError
from ngraph.op_graph import dtypes
from ngraph.op_graph.expr import Bin, ExprLike
from ngraph.program.program import AxisId
from ngraph.schedule.address import inside_expressions
from ngraph.schedule.form import Access, Loop, ScheduledStage
from ngraph.schedule.linear import LinearForm
from ngraph.targets.tuning import MAX_CUT_ROWS, MIN_PARTIAL_LANES
from ngraph.tensors.index import Load, bounds

if TYPE_CHECKING:
    from ngraph.codegen.kernel import FunctionWriter

INT32_END = 1 << 31  # whole numbers below fit into 31 bits


class ScopedTable(dict[Any, Any]):
    """A table in scopes: what an inner one added is gone when it is left."""

    def __init__(self) -> None:
        self.undo: list[list[tuple[Any, Any]]] = [[]]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.undo[-1].append((key, self.get(key)))
        super().__setitem__(key, value)

    @contextmanager
    def scope(self) -> Iterator[None]:
        self.undo.append([])
        yield
        for key, old in reversed(self.undo.pop()):
            if old is None:
                del self[key]
            else:
                super().__setitem__(key, old)


class Open(NamedTuple):
    """An open loop: it stands at `base` + `offset`; `units` of the tile from there, in the last of which `left` places if it is cut.

    Of rows, `left` are inside, all of them or up to `MAX_CUT_ROWS` fewer.
    """

    base: IRValue | None
    offset: int
    units: int = 1
    left: Whole | None = None


class Scope:
    """The loops of one stage while its code is written."""

    def __init__(self, kernel: FunctionWriter, scheduled: ScheduledStage) -> None:
        self.kernel, self.scheduled, self.w = kernel, scheduled, kernel.w
        self.stage, self.tile, self.vec = scheduled.stage, scheduled.tile, scheduled.tile.vector
        self.lanes = scheduled.tile.lanes
        self.lines = dict(scheduled.stage.lines())
        self.deps, self.uses, self.reads, self.stores = scheduled.deps, scheduled.uses, scheduled.reads, scheduled.stores
        self.known = ScopedTable()
        self.opened: dict[Loop, Open] = {}
        self.covered: dict[Loop, Whole] = {}  # elements of digits whose upper digit stands at its last place
        self.sizes = {d: kernel.number(d.extent) for d in scheduled.loops}
        self.totals = {d: kernel.number(d.total) for d in scheduled.loops}
        self.pointers = {a: self._base(a) for a in scheduled.accesses}
        self._prepare(inside_expressions(self.stage, self.reads, self.stores))

    # ---- registers that come before every use

    def _base(self, a: Access) -> str:
        """The address of an access at the start of a work item, constants left out."""
        w, kernel = self.w, self.kernel
        base: Whole = 0
        for d, c in a.base:
            base = plus(w, base, kernel.number(c) if d is None else times(w, kernel.at[d.parts[0][0]], kernel.number(c)))
        for c in a.coef.values():
            kernel.number(c)
        return w.at(kernel.pointer(a.source), base, a.dtype)

    def _prepare(self, exprs: Iterable[ExprLike]) -> None:
        """Makes the registers that the forms of expressions and of their parts need."""
        todo = list(exprs)
        while todo:
            e = todo.pop()
            form = self.scheduled.forms.of(e)
            if form is not None:
                for c in (*form.coef.values(), form.const):
                    self.kernel.number(c)
            elif type(e) is Bin:
                todo += [e.a, e.b]

    # ---- loops

    def size(self, d: Loop) -> Whole:
        """Returns the number of iterations of a loop here."""
        if d not in self.covered:
            return self.sizes[d]
        return apply(self.w, "//", plus(self.w, self.covered[d], d.unit - 1), d.unit)

    def total(self, d: Loop) -> Whole:
        """Returns the number of elements that all iterations of a digit cover here."""
        return self.covered.get(d, self.totals[d])

    def ragged(self, d: Loop) -> bool:
        """Whether the last place of a digit covers less than the others, or may do so."""
        total = self.total(d)
        return d.lower is not None and (total % d.unit > 0 if isinstance(total, int) else d.uneven or d in self.covered)

    @contextmanager
    def covering(self, d: Loop | None, total: Whole) -> Iterator[None]:
        """In the block, a digit and those below it cover so many elements."""
        before = dict(self.covered)
        while d is not None:
            self.covered[d] = total
            total, d = apply(self.w, "min", total, d.unit), d.lower
        yield
        self.covered = before

    @contextmanager
    def scope(self, opened: Mapping[Loop, Open], moved: Mapping[Access, Whole] | None = None) -> Iterator[None]:
        """Inside a loop: where it stands, by how much pointers have moved; what becomes known there is forgotten afterwards."""
        before = self.opened
        with self.known.scope():
            self.opened = {**before, **opened}
            for a, by in (moved or {}).items():
                self.known[a] = self.w.at(self.pointer(a), by, a.dtype)
            yield
        self.opened = before

    def coef(self, a: Access, d: Loop) -> Whole:
        """Elements from one place of a loop to the next."""
        return self.kernel.number(a.coef.get(d, 0))

    def pointer(self, a: Access) -> str:
        """The address of an access where the open loops stand, constants left out."""
        found: str | None = self.known.get(a)
        if found is None:
            found = self.pointers[a]
            if a.epilogue:  # made where it is needed
                for d, o in self.opened.items():
                    if o.base is not None and d in a.coef:
                        found = self.w.at(found, times(self.w, o.base, self.coef(a, d)), a.dtype)
                self.known[a] = found
        return found

    # ---- places of the tile

    def units(self, d: Loop | None) -> int:
        """Returns the number of steps of the tile that are open along a loop."""
        return self.opened[d].units if d in self.opened else 1

    def places(self, deps: frozenset[Loop]) -> Iterator[tuple[int, int]]:
        """The places of the tile, as (row, column), at which something that moves with these loops differs."""
        columns = range(self.units(self.tile.across) if self.tile.across in deps else 1)
        for i in range(self.units(self.tile.tile) if self.tile.tile in deps else 1):
            for j in columns:
                yield i, j

    def step(self, d: Loop, i: int, j: int) -> Whole:
        """Returns the offset of a tile position along a loop. A row that is not inside is the last one that is."""
        if d is self.tile.across:
            return j * self.lanes if d is self.vec else j
        if d is not self.tile.tile:
            return 0
        rows = self.cut_row(i)
        return i if rows is None else apply(self.w, "min", plus(self.w, rows, -1), i)

    def cut_row(self, i: int) -> Whole | None:
        """Returns the number of rows inside, where row i may be none of them."""
        o = self.opened.get(self.tile.tile) if self.tile.tile is not self.tile.vector else None  # type: ignore[arg-type]  # no loop is None
        return o.left if o is not None and i >= o.units - MAX_CUT_ROWS else None

    def row_inside(self, i: int) -> IRValue | None:
        """Whether row i is inside; None where it is in every call."""
        rows = self.cut_row(i)
        return None if rows is None else self.w.op("icmp sgt", register(rows), constant(i, dtypes.int64), dtype=dtypes.bool_)

    def left(self, j: int) -> Whole:
        """Returns the number of lanes of a step that are inside."""
        o = self.opened.get(self.vec)  # type: ignore[arg-type]  # no loop is None
        return self.lanes if o is None or o.left is None or (self.tile.across is self.vec and j < o.units - 1) else o.left

    def width(self, j: int) -> int:
        """The lanes of a step: those of a vector, or of the shortest part of one that has all that are inside."""
        left = self.left(j) if self.vec in self.scheduled.free else self.lanes
        return min(self.lanes, max(MIN_PARTIAL_LANES, 1 << (left - 1).bit_length())) if isinstance(left, int) else self.lanes

    def mask(self, j: int) -> IRValue | None:
        """Returns the mask of lanes of a step that are inside; None if all are."""
        left = self.left(j)
        return leading(left, self.width(j)) if isinstance(left, int) else self.w.tail(left, self.lanes)

    # ---- indices

    def index(self, e: ExprLike, i: int, j: int) -> Whole:
        """An expression at a place of the tile."""
        form = self.scheduled.forms.of(e)
        if form is not None:
            return self._position(form, i, j)
        if type(e) is Load:
            return scalar.emit(self.w, "cast", (self.value(e.of, i, j),), {"dtype": dtypes.int64})
        if type(e) is not Bin:
            raise ProgramError(f"no code for the index {e!r}")
        small = e.op in ("//", "%") and self._small(e.a)
        return apply(self.w, e.op, self.index(e.a, i, j), self.index(e.b, i, j), small)

    def value(self, n: int, i: int, j: int) -> IRValue:
        """A line at a place of the tile."""
        raise NotImplementedError

    def _small(self, e: ExprLike) -> bool:
        """Whether an expression surely lies in 0 … 2**31 - 1."""
        low, high = bounds(e, self._known_length)
        return low >= 0 and high < INT32_END

    def _known_length(self, a: AxisId) -> int | None:
        n = self.kernel.length(a)
        return n if isinstance(n, int) else None

    def _position(self, f: LinearForm, i: int, j: int) -> Whole:
        w, number = self.w, self.kernel.number
        total, lanes = number(f.const), number(f.coef.get(self.vec, 0)) if self.vec is not None else 0
        for d, c in f.coef.items():
            if d.grid:
                total = plus(w, total, times(w, self.kernel.at[d.parts[0][0]], number(c)))
                continue
            o = self.opened[d]
            offset = plus(w, o.offset, self.step(d, i, j))
            total = plus(w, total, times(w, offset if o.base is None else plus(w, o.base, offset), number(c)))
        if self.vec is None or lanes == 0:
            return total
        n = self.width(j)
        return plus(w, w.splat(register(total), n), times(w, counting(dtypes.int64, n), lanes))

    def holds(self, predicate: Iterable[ExprLike], i: int, j: int) -> tuple[IRValue | None, IRValue | None]:
        """Whether no predicate is negative: of those that are the same for all lanes, and of the others; None where there is none."""
        one: IRValue | None = None
        each: IRValue | None = None
        for e in predicate:
            x = register(self.index(e, i, j))
            found = self.w.op("icmp sge", x, self.w.constant(0, x), dtype=dtypes.bool_)
            if found.lanes == 1:
                one = meet_all(self.w, one, found)
            else:
                each = meet_all(self.w, each, found)
        return one, each

"""One stage of a kernel as loops: a vector axis, a register tile, values by demand.

A value is known by (line, place in the tile); tables of what is known are opened and closed with the loops. That one device gives
common values, register tiles, scalars beside vectors and values taken out of loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from ngraph.codegen import math as scalar
from ngraph.codegen.forms import Dim, Forms, LinearForm, Start, Whole, apply, certain, extremes, meet, plus, register, times
from ngraph.codegen.philox import WORDS, random_bits, side_by_side
from ngraph.codegen.text import Body, IRValue, IRWriter, constant, counting
from ngraph.errors import ProgramError
from ngraph.op_graph import dtypes, expr
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import Bin, ExprLike, Idx, combine
from ngraph.op_graph.opdef import COST
from ngraph.plan.kernels import Buffer, Combine, Line, Local, Stage
from ngraph.plan.schedule import AccessDescriptor, CoreModel, View, schedule, split
from ngraph.program.program import AxisId
from ngraph.targets.tuning import (
    INTERLEAVED_PLACES,
    MAX_LISTED_OFFSETS,
    MAX_SHUFFLED_STEP,
    MAX_UNROLLED_STEPS,
    MIN_INSTRUCTIONS_PER_LINE,
    MIN_INTERLEAVED_COST,
    MIN_PARTIAL_LANES,
    MIN_STEPS_TO_PREFETCH,
    PAGE_BYTES,
    PREFETCH_ROUNDS,
    SPILLED_UNROLL,
)
from ngraph.tensors.index import PRODUCTS, Load, bounds, in_order, loads
from ngraph.tensors.memo import memo

if TYPE_CHECKING:
    from ngraph.codegen.kernel import KernelText

INT32_END = 1 << 31
TOGETHER = ("pair", "quad")  # of short elements in 32 bits
FREE = ("read", "number", "index", "guard", "copy")
FOLD = {"add": "add", "multiply": "multiply", "max": "maximum", "min": "minimum"}
FOLD_BOOL = {"add": "or", "multiply": "and", "max": "or", "min": "and"}


class Access:
    """One read or store: an address that moves with loops, what else is added to it, and where it is allowed."""

    __slots__ = ("source", "dtype", "pointer", "coef", "const", "rest", "guard", "fill", "zero", "deps", "room", "ahead", "turn")

    def __init__(self, source: Buffer, pointer: str, guard: tuple[ExprLike, ...], fill: Any):
        self.source, self.dtype, self.pointer, self.guard, self.fill = source, source.dtype, pointer, guard, fill
        self.zero = not guard or fill is None or not any(self.dtype.array(fill).tobytes())  # is all that is filled in
        self.coef: dict[Dim, Whole] = {}
        self.const = 0
        self.rest: list[tuple[Whole, ExprLike]] = []  # (elements, times what)
        self.deps: frozenset[Dim] = frozenset()
        self.turn = 0  # elements to the same place in the next turn
        self.ahead = 0  # the same where each turn brings its own from memory: worth a prefetch
        self.room: int | None = None  # elements of the buffer behind the last one that it reaches, where that is known


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
    """Where an open loop stands: at `base` + `offset`; `units` of the tile from there, in the last of which `left` places if it is cut."""

    base: IRValue | None
    offset: int
    units: int = 1
    left: Whole | None = None


class Tile(NamedTuple):
    """A schedule in the loops of a nest."""

    lanes: int
    vector: Dim | None
    tile: Dim | None
    across: Dim | None
    rows: int
    columns: int
    order: tuple[Dim, ...]

    def units(self, d: Dim) -> int:
        """How many steps of a loop are done together."""
        return self.rows if d is self.tile else self.columns if d is self.across else 1


class Nest:
    """The loops of one stage in one turn."""

    def __init__(self, kernel: KernelText, stage: Stage):
        self.kernel, self.stage, self.w = kernel, stage, kernel.w
        cuts = self._cuts()
        digits = {a: kernel.digits(a, cuts.get(a, [])) for a in (*stage.free, *stage.reduced)}
        self.free = [d for a in stage.free for d in digits[a]]
        self.reduced = [d for a in stage.reduced for d in digits[a]]
        self.dims = frozenset((*self.free, *self.reduced))
        place = {a: kernel.place(a, digits.get(a, ())) for a in (*digits, *kernel.block)}
        start = {a: kernel.place(a, ()) for a in kernel.block}
        self.forms = Forms(self.w, place, start, kernel.length, kernel.at)
        self.lines = dict(stage.lines())
        self.border = len(stage.before)
        self.uses: dict[int, tuple[int, ...]] = {}
        self.deps: dict[int, frozenset[Dim]] = {}
        self.reads: dict[int, Access] = {}
        self.known = ScopedTable()
        self.opened: dict[Dim, Open] = {}
        self.prefetched: list[tuple[Access, int, list[str]]] = []
        self.reducing = bool(stage.combine or stage.reduced)
        self.cold = kernel.cold
        self._look()
        self.plan = self._schedule()
        self.streamed = {a for a in self.reads.values() if a.ahead and a.deps >= self.dims}
        self.paged = self._paged()
        kernel.touched.update([a.source for a in self.reads.values()])
        self.lanes, self.vec, self.tile, self.across = self.plan.lanes, self.plan.vector, self.plan.tile, self.plan.across

    # ---- what there is

    def _cuts(self) -> dict[AxisId, list[int]]:
        """Into which digits memory cuts the axes of the stage: their units, each a multiple of the one before."""
        found: dict[AxisId, set[int]] = {}
        for b, index in [(r.source, r.index) for r in self.stage.reads()] + [(s.target, s.index) for s in self.stage.to]:
            for a, div, mod in b.dims:
                if (div > 1 or mod is not None) and type(index[a]) is Idx:
                    found.setdefault(index[a].of, set()).update([k for k in (div, div * (mod or 1)) if k > 1])  # type: ignore[union-attr]
        made: dict[AxisId, list[int]] = {}
        for a, units in found.items():
            for k in sorted(units):
                if k % made.setdefault(a, [1])[-1] == 0:
                    made[a].append(k)
        return {a: units[1:] for a, units in made.items()}

    def _look(self) -> None:
        """What each line uses and depends on, and how each read and store moves."""
        stage = self.stage
        for n, line in stage.lines():
            if line.read is not None:
                self.reads[n] = self._access(line.read.source, line.read.index, line.read.guard, line.read.fill)
        self.stores = [self._access(s.target, s.index, s.guard, None) for s in stage.to]
        self._merge()
        self.interleaved = self._runs()
        self.forms.prepare(self._inside())
        for n, line in enumerate(stage.before):
            self._line(n, line)
        for n, c in enumerate(stage.combine, self.border):
            self.deps[n], self.uses[n] = self.deps[c.line].intersection(self.free), ()
        for n, line in enumerate(stage.after, self.border + len(stage.combine)):
            self._line(n, line)
        for a in self.stores:
            a.deps = self._moving([*a.guard, *[e for _, e in a.rest]]).union(a.coef)
        epilogue = [a for n, a in self.reads.items() if n >= self.border]
        epilogue += [a for s, a in zip(stage.to, self.stores, strict=True) if s.line >= self.border]
        self.epilogue = set(epilogue) if self.reducing else set()  # their pointers are made when they are needed
        self.hoisted = [a for a in (*self.reads.values(), *self.stores) if a not in self.epilogue]

    def _line(self, n: int, line: Line) -> None:
        inside = line.exprs
        deps = self._moving(inside) if line.read is None else frozenset()
        if line.read is not None:
            a = self.reads[n]
            inside = [*a.guard, *[e for _, e in a.rest]]
            deps = a.deps = self._moving(inside).union(a.coef)
        self.uses[n] = uses = (*line.args, *loads(*inside))
        self.deps[n] = deps.union(*[self.deps[u] for u in uses])

    def _moving(self, exprs: Iterable[ExprLike]) -> frozenset[Dim]:
        """The dims along which expressions move."""
        found: set[Dim] = set()
        for e in exprs:
            for leaf in expr.leaves(e):
                if type(leaf) is Idx:
                    found.update(self.forms.place[leaf.of].coef)
                elif type(leaf) is Load:
                    found.update(self.deps[leaf.of])
        return frozenset(found & self.dims)

    def _inside(self) -> list[ExprLike]:
        """The expressions that code computes where it stands: guards, indices, and what accesses do not walk."""
        inside = [e for a in (*self.reads.values(), *self.stores) for e in (*a.guard, *[e for _, e in a.rest])]
        for _, line in self.stage.lines():
            inside += line.exprs if line.read is None else ()
        return inside

    def _merge(self) -> None:
        """Loops that every access walks as one become one."""
        accesses, inside = [*self.reads.values(), *self.stores], self._inside()
        apart = {d for e in inside for leaf in expr.leaves(e) if type(leaf) is Idx for d in self.forms.place[leaf.of].coef}
        apart |= {d for d in self.dims if type(d.size) is not int or d.uneven}
        for loops in (self.free, self.reduced):
            todo = [d for d in loops if d not in apart]
            pairs = [(o, i) for o in todo for i in todo if o is not i]
            while pairs:
                outer, inner = pairs.pop(0)
                if outer not in loops or inner not in loops:
                    continue
                n = inner.size
                assert isinstance(n, int) and isinstance(outer.size, int)
                steps = [(a.coef.get(outer, 0), a.coef.get(inner, 0)) for a in accesses]
                if any(not isinstance(c, int) or not isinstance(k, int) or k != c * n for k, c in steps):
                    continue
                one = Dim(outer.size * n, outer.size * n)
                for a, (_, c) in zip(accesses, steps, strict=True):
                    a.coef = {d: k for d, k in a.coef.items() if d is not outer and d is not inner} | ({one: c} if c else {})
                loops[loops.index(outer)] = one
                loops.remove(inner)
                todo = [d for d in loops if d not in apart]
                pairs = [(one, d) for d in todo if d is not one] + [(d, one) for d in todo if d is not one]
                pairs += [(o, i) for o in todo for i in todo if o is not i and one not in (o, i)]
        self.dims = frozenset((*self.free, *self.reduced))

    def _runs(self) -> dict[int, list[int]]:
        """For each store those that go to the places next to each other, all along, itself among them."""
        alike: dict[Any, list[int]] = {}
        for k, (a, s) in enumerate(zip(self.stores, self.stage.to, strict=True)):
            alone = k if s.combine != "set" or a.rest or (a.guard and a.dtype.bits < 32) else -1  # of narrowed lanes masks are constants
            alike.setdefault((alone, a.pointer, a.dtype, frozenset(a.coef.items()), s.line < self.border), []).append(k)
        runs: dict[int, list[int]] = {}
        for some in alike.values():
            run: list[int] = []
            for k in sorted(some, key=lambda k: self.stores[k].const):
                run = run if run and self.stores[run[-1]].const + 1 == self.stores[k].const else []
                run.append(k)
                runs[k] = run
        return runs

    def _access(self, b: Buffer, index: Mapping[AxisId, ExprLike], guard: tuple[ExprLike, ...], fill: Any) -> Access:
        w, kernel = self.w, self.kernel
        made = Access(b, kernel.pointer(b), guard, fill)
        total = LinearForm({}, 0)
        for (a, div, mod), stride in zip(b.dims, kernel.strides(b), strict=True):
            e = index[a]
            if type(b) is Local and kernel.block.get(a, 1) > 1:
                e = combine("-", e, Start(a))
            e = combine("//", e, div) if div > 1 else e
            e = e if mod is None else combine("%", e, mod)
            e = combine("+", e, b.border[a][0]) if a in b.border else e
            form = self.forms.of(e)
            if form is None:
                made.rest.append((stride, e))
            else:
                total = self.forms.sum(total, form, stride)
        base: Whole = 0
        if type(total.const) is int:
            made.const = total.const
        else:
            base = total.const
        for d, c in total.coef.items():
            if d in kernel.at:
                base = plus(w, base, times(w, kernel.at[d], c))
            else:
                made.coef[d] = c
        made.pointer = w.at(made.pointer, base, b.dtype)
        step = total.coef.get(kernel.counters[kernel.kernel.loops[-1][0]], 0) if kernel.kernel.loops else 0
        made.turn = step if isinstance(step, int) else 0
        made.ahead = made.turn if kernel.streams(b) else 0
        high = extremes(total)[1]
        if b.bytes is not None and not made.rest and high < math.inf:
            made.room = b.bytes // (b.dtype.bits // 8) - 1 - int(high)
        return made

    def _schedule(self) -> Tile:
        target, stage = self.kernel.target, self.stage
        walks = [self._walk(a) for a in self.reads.values()]
        stores = enumerate(zip(self.stores, stage.to, strict=True))
        walks += [self._walk(a, True, s.combine != "set", len(self.interleaved[k])) for k, (a, s) in stores]
        moving = [a for a in (*self.reads.values(), *self.stores) if a.deps]  # what stays fills no vector
        bits = [a.dtype.bits for a in moving] + [c.dtype.bits for c in stage.combine]
        lanes = target.lanes(max([32 if b == 16 else b for b in bits], default=32))
        fused = {c.line for c in stage.combine if c.kind == "add" and self.lines[c.line].op in PRODUCTS}
        shown = range(self.border) if self.reducing else self.lines
        work = [(float(COST[self.lines[n].op]), self.deps[n]) for n in shown if n not in fused and self.lines[n].op not in FREE]
        self.work = sum([k for k, _ in work])
        sums = [self.deps[c.line] for c in stage.combine]
        bound = [d for d in self.dims if d.uneven and d.lower is not None]
        bound += self.reduced if self._in_order() else []
        loops, free = (*self.free, *self.reduced), range(len(self.free))
        number = {d: k for k, d in enumerate(loops)}

        def numbers(dims: Iterable[Dim]) -> frozenset[int]:
            return frozenset([number[d] for d in dims])

        seen = [
            AccessDescriptor(tuple([_step(a.coef.get(d, 0)) for d in loops]), numbers(a.deps), numbers(non_affine), a.dtype.bits // 8, *how)
            for a, non_affine, how in walks
        ]
        view = View(
            tuple(free),
            tuple(range(len(free), len(loops))),
            tuple([d.most for d in loops]),
            tuple(seen),
            tuple([(k, numbers(deps)) for k, deps in work]),
            tuple(map(numbers, sums)),
            numbers(bound),
        )
        machine = CoreModel(lanes, target.vector_registers, target.l1, target.l2)
        if not self.cold:
            self.kernel.views[view] = machine
        made = self.kernel.picks.get(view) or schedule(view, machine)
        self.kernel.debug_info.append(f"{' '.join([f'{k}:{d.most}' for k, d in enumerate(loops)])} {made}")
        vector, tile, second = [None if k is None else loops[k] for k in (made.vector, made.tile, made.second)]
        across = second if second is not None else vector
        return Tile(made.lanes, vector, tile, across, made.rows, made.columns, tuple([loops[k] for k in made.order]))

    def _in_order(self) -> bool:
        """Whether an accumulator of the stage takes its terms one after the other."""
        return any(in_order(c.kind, c.dtype) for c in self.stage.combine)

    def _walk(self, a: Access, store: bool = False, combines: bool = False, run: int = 1) -> tuple[Access, frozenset[Dim], Any]:
        return a, self._moving([e for _, e in a.rest]), (store, a in self.epilogue, combines, run)

    def _paged(self) -> set[Access]:
        """What comes from memory line by line while others are computed with: a page ahead it is asked for, beyond that memory is busy."""
        v = self.plan.vector

        def moves(a: Access) -> bool:
            return (a.source.bytes or 0) > 2 * self.kernel.target.l2 and a.deps >= self.dims

        reads = [a for a in self.reads.values() if moves(a)]
        lines = len(reads) + 2 * sum(map(moves, self.stores))  # what is stored is read before
        if v is None or self.work < MIN_INSTRUCTIONS_PER_LINE * lines or self.cold:
            return set()
        return {a for a in reads if a.coef.get(v) == 1 and not (a.ahead or a.rest or a.guard)}

    # ---- loops

    def write(self) -> Sequence[IRValue]:
        """The whole stage."""
        epilogue = self.border if self.reducing else len(self.lines) + self.border
        roots = [s.line for s in self.stage.to if s.line < epilogue] + [c.line for c in self.stage.combine]
        self._hoist(roots, (*self.plan.order, *self.reduced))
        self._walk_free(0, roots)
        return []

    def _walk_free(self, k: int, roots: list[int]) -> None:
        order = self.plan.order
        if k == len(order):
            self._leaf()
            return

        def body(*_: IRValue) -> list[IRValue]:
            self._hoist(roots, (*order[k + 1 :], *self.reduced))
            self._walk_free(k + 1, roots)
            return []

        self._each(order[k], (), body)

    def _each(self, d: Dim, carried: Sequence[IRValue], body: Body) -> tuple[IRValue, ...]:
        """A loop over a dim, in segments: equal steps of the tile; what is less than a vector is masked."""
        w, n = self.w, d.size
        unit, units = (self.lanes if d is self.vec else 1), self.plan.units(d)
        values = tuple(carried)

        def segment(first: Whole, last: Whole, units: int, left: int | None = None, cut: bool = False) -> None:
            nonlocal values

            def inside(i: IRValue, *carried: IRValue) -> Sequence[IRValue]:
                base, offset = (i, 0) if i.name[0] == "%" else (None, int(i.name))
                rest = meet(w, "sub", last, i) if cut else left
                with self._scope(
                    {d: Open(base, offset, units, rest)}, {a: times(w, i, a.coef[d]) for a in self.hoisted if base and d in a.coef}
                ):
                    return body(*carried)

            values = w.loop(first, last, unit * units, values, inside)

        if not isinstance(n, int):
            whole = times(w, apply(w, "//", n, unit * units), unit * units) if unit * units > 1 else n
            segment(0, whole, units)
            if unit * units > 1:
                segment(whole, n, 1, cut=unit > 1)
        elif d.ragged:
            assert d.lower is not None
            total = d.total
            segment(0, total // d.unit, 1)
            d.lower.cover(total % d.unit)
            before, self.cold = self.cold, self.cold or total // d.unit > 1
            segment(total // d.unit, n, 1)
            self.cold = before
            d.lower.cover(d.unit)
        else:
            first = 0
            pieces = [(k, size, None) for k, size in split(-(-n // unit), units)]
            if n % unit:  # the last vector of the last piece is cut
                (k, size, _) = pieces.pop()
                pieces += [(k - 1, size, None)] if k > 1 else []
                pieces += [(1, size, n % unit)]  # type: ignore[list-item]
            for k, size, left in pieces:
                last = min(first + k * size * unit, n)
                segment(first, last, size, left)
                first = last
        return values

    @contextmanager
    def _scope(self, opened: Mapping[Dim, Open], moved: Mapping[Access, Whole] | None = None) -> Iterator[None]:
        """Inside a loop: where it stands, by how much pointers have moved; what becomes known there is forgotten afterwards."""
        before = self.opened
        with self.known.scope():
            self.opened = {**before, **opened}
            for a, by in (moved or {}).items():
                self.known[a] = self.w.at(self._pointer(a), by, a.dtype)
            yield
        self.opened = before

    def _pointer(self, a: Access) -> str:
        """The address of an access where the open loops stand, constants left out."""
        found: str | None = self.known.get(a)
        if found is None:
            found = a.pointer
            if a in self.epilogue:
                for d, o in self.opened.items():
                    if o.base is not None and d in a.coef:
                        found = self.w.at(found, times(self.w, o.base, a.coef[d]), a.dtype)
                self.known[a] = found
        return found

    def _units(self, d: Dim | None) -> int:
        """How many steps of the tile are open along a dim."""
        return self.opened[d].units if d in self.opened else 1

    def _places(self, deps: frozenset[Dim]) -> Iterator[tuple[int, int]]:
        """The places of the tile at which something that depends on these dims differs."""
        columns = range(self._units(self.across) if self.across in deps else 1)
        for i in range(self._units(self.tile) if self.tile in deps else 1):
            for j in columns:
                yield i, j

    def _hoist(self, roots: Iterable[int], inside: Sequence[Dim]) -> None:
        """Computes what the loops inside need and do not change."""
        if not inside:
            return
        inner, todo, seen = frozenset(inside), list(roots), set[int]()
        while todo:
            n = todo.pop()
            if n in seen:
                continue
            seen.add(n)
            if not self.deps[n].isdisjoint(inner):
                todo += self.uses[n]
            elif self.lines[n].op != "number":
                for i, j in self._places(self.deps[n]):
                    self._value(n, i, j)

    # ---- inside

    def _leaf(self) -> None:
        if self.reducing:
            self._reduce()
        self._put([k for k, s in enumerate(self.stage.to) if not self.reducing or s.line >= self.border])

    def _reduce(self) -> None:
        """The reduced loops with their accumulators, then one value of each where vectors lie along a reduced loop."""
        w, flat = self.w, self.vec in self.reduced
        tracks: list[tuple[int, int, int]] = []  # accumulator, place in the tile
        first: list[IRValue] = []
        for k, c in enumerate(self.stage.combine):
            deps = self.deps[c.line]
            columns = self.plan.columns if self.across in self.reduced else self._units(self.across) if self.across in deps else 1
            for i in range(self._units(self.tile) if self.tile in deps else 1):
                tracks += [(k, i, j) for j in range(columns)]
            wide = self.vec in deps or flat
            first += [identity(c.kind, c.dtype, self._width(j) if wide else 1) for _, _, j in tracks[len(first) :]]
        early = [k for k, s in enumerate(self.stage.to) if s.line < self.border]
        roots = [self.stage.to[k].line for k in early] + [c.line for c in self.stage.combine]
        products = [c.line for c in self.stage.combine if self.lines[c.line].op in PRODUCTS]
        summed = [n for n in roots if n not in products] + [n for p in products for n in self.lines[p].args]
        order, inner = self._one_loop() if not early and not self._in_order() else (list(self.reduced), [])
        if inner:
            self._foresee(inner[-1])
        self.prefetched = self._prefetches() if inner and not order else []

        def leaf(*carried: IRValue) -> Sequence[IRValue]:
            made = []
            for t, ((k, i, j), v) in enumerate(zip(tracks, carried, strict=True)):
                if t % INTERLEAVED_PLACES == 0:
                    self._interleaved_rows(summed, [place for _, *place in tracks[t : t + INTERLEAVED_PLACES]])
                made.append(self._fold(k, i, j, v))
            self._put(early)
            return made

        def level(k: int, carried: Sequence[IRValue]) -> Sequence[IRValue]:
            if k == len(order):
                return self._together(inner, carried, leaf) if inner else leaf(*carried)

            def body(*values: IRValue) -> Sequence[IRValue]:
                self._hoist(roots, (*order[k + 1 :], *inner))
                return level(k + 1, values)

            return self._each(order[k], carried, body)

        of: dict[tuple[int, int, int], list[IRValue]] = {}
        for (k, i, j), v in zip(tracks, level(0, first), strict=True):
            of.setdefault((k, i, 0 if self.across in self.reduced else j), []).append(v)
        for (k, i, j), values in of.items():
            kind = self.stage.combine[k].kind
            while len(values) > 1:
                values = [fold(w, kind, a, b) for a, b in zip(values[::2], values[1::2], strict=False)] + values[len(values) // 2 * 2 :]
            self.known[self.border + k, i, j] = self._as_one(kind, values[0]) if flat else values[0]

    def _prefetches(self) -> list[tuple[Access, int, list[str]]]:
        """What meets the sums when they are done, and comes from memory: elements from row to row, where the first row's lines are."""
        t, v, rows, columns = self.tile, self.vec, self._units(self.tile), self._units(self.across)
        if t is None or v is None or rows < 2 or math.prod([certain(d.size) for d in self.reduced]) < MIN_STEPS_TO_PREFETCH:
            return []
        found, seen = [], set[Any]()
        for a in (*self.reads.values(), *self.stores):
            place = a.source.shares or a.source, a.const, frozenset(a.coef.items())
            step, beside = a.coef.get(t), a.coef.get(v) == 1 and not a.rest and not a.guard
            if (
                a in self.epilogue
                and beside
                and isinstance(step, int)
                and (a.source.bytes or 0) > self.kernel.target.l2
                and place not in seen
            ):
                seen.add(place)
                line = self.kernel.target.line * 8 // (self.lanes * a.dtype.bits) if self.across is v else 1
                with self._scope({}):
                    found.append((a, step, [self._address(a, 0, j)[0] for j in range(0, columns, max(line, 1))]))
        return found

    def _ask(self, i: IRValue, turns: int) -> None:
        """Asks for what is awaited, a share of the rows in each of some of the last turns of the loop that makes the sums."""
        if not self.prefetched:
            return
        w, rows = self.w, self._units(self.tile)
        each = -(-rows // max(turns, 1))
        span = -(-rows // each)
        first = max(0, turns - PREFETCH_ROUNDS * span)  # earlier, it would be evicted before it is read

        def rows_of(turn: Whole) -> list[IRValue]:
            for k in range(each):
                row = apply(w, "min", plus(w, times(w, turn, each), k), rows - 1)
                for a, step, lines in self.prefetched:
                    for line in lines:
                        w.prefetch(w.at(line, times(w, row, step), a.dtype))
            return []

        if i.name[0] != "%":
            if first <= int(i.name) < first + span:
                rows_of(int(i.name) - first)
            return
        turn = register(plus(w, i, -first))
        inside = w.op("icmp ult", turn, constant(span, dtypes.int64), dtype=dtypes.bool_)
        w.when(inside, [], lambda: rows_of(turn))

    def _foresee(self, d: Dim) -> None:
        """Which lines of an operand's next panel each row of tiles asks for: all that use a panel share those of the next one."""
        unroll, t = self._unroll(d, certain(d.size)), self.tile
        rows = -(-t.size // self.plan.rows) if t is not None and isinstance(t.size, int) else 1
        panels = {a: self._panel(a) for a in self.hoisted if d in a.coef} if unroll > 1 and rows > 1 else {}
        if t is None or not any(panels.values()):
            return
        w, o, share = self.w, self.opened[t], -(-unroll // rows)
        row = apply(w, "//", plus(w, o.offset if o.base is None else o.base, self.plan.rows - 1), self.plan.rows)
        first = apply(w, "%", times(w, row, share), unroll)
        for a, step in panels.items():
            if step:
                self.known["next", a] = plus(w, times(w, first, a.coef[d]), step), d, share

    def _panel(self, a: Access) -> int:
        """Elements from a panel to the next one, if it is read from memory and again by each row of tiles; else 0."""
        l2, size = self.kernel.target.l2, a.source.bytes or 0
        if size <= l2 or self._apart(a) != 1 or self.tile in a.deps or a.rest or a.guard:
            return 0
        step = min([c for d, c in a.coef.items() if d in self.free and d is not self.vec and isinstance(c, int)], default=a.turn)
        return step if 0 < step * a.dtype.bits // 8 <= l2 // 2 else 0

    def _one_loop(self) -> tuple[list[Dim], list[Dim]]:
        """The reduced loops, outermost first: those that remain loops, and those that become one whose offsets are known beforehand."""
        early = [a for a in self.hoisted if not a.deps.isdisjoint(self.reduced)]
        fixed = all(isinstance(d.size, int) and d.size > 0 and not d.uneven for d in self.reduced)
        fixed = fixed and self.vec not in self.reduced and self.across not in self.reduced
        plain = all(isinstance(c, int) for a in early for c in a.coef.values())
        inside = [e for a in early for e in (*a.guard, *[e for _, e in a.rest])]
        for line in self.stage.before:
            inside += line.exprs if line.read is None else ()
        if not fixed or not plain or not self._moving(inside).isdisjoint(self.reduced):
            return list(self.reduced), []
        main = [a for a in early if self.vec in a.coef] or early
        order = sorted(self.reduced, key=lambda d: -max([abs(a.coef.get(d, 0)) for a in main], default=0))  # type: ignore[arg-type]
        k, steps = len(order), 1
        while k and steps * certain(order[k - 1].size) <= MAX_LISTED_OFFSETS:
            k -= 1
            steps *= certain(order[k].size)
        return (order[:k], order[k:]) if k < len(order) else (order[:-1], order[-1:])

    def _together(self, order: Sequence[Dim], carried: Sequence[IRValue], leaf: Body) -> tuple[IRValue, ...]:
        """Loops as one: each turn does some steps of the innermost one; offsets that do not step evenly come from a table."""
        w, sizes = self.w, [certain(d.size) for d in order]
        inner, n = order[-1], sizes[-1]
        unroll = self._unroll(inner, n)
        moving = [a for a in self.hoisted if any(d in a.coef for d in order)]
        turns = list(product(*[range(k) for k in sizes[:-1]], range(0, n - n % unroll, unroll))) if len(order) > 1 else []
        steps = {a: [certain(a.coef.get(d, 0)) for d in order] for a in moving}
        offsets = {a: [sum([c * t for c, t in zip(steps[a], turn, strict=True)]) for turn in turns] for a in moving}

        def moves(i: IRValue) -> dict[Access, Whole]:
            found: dict[Access, Whole] = {}
            for a in moving:
                step, far = steps[a][-1] * unroll, offsets[a]
                if len(order) > 1:
                    step = far[1] if len(far) > 1 else 0
                if any(x != k * step for k, x in enumerate(far)):
                    kind = dtypes.int32 if max(map(abs, far)) < INT32_END else dtypes.int64
                    entry = w.load(w.at(w.table(far, kind), i, kind), kind) if i.name[0] == "%" else None
                    found[a] = far[int(i.name)] if entry is None else w.convert("sext", entry, dtypes.int64)
                else:
                    found[a] = times(w, int(i.name) if i.name[0] != "%" else i, step)
            return found

        def turn(i: IRValue, values: Sequence[IRValue], steps: int) -> Sequence[IRValue]:
            self._ask(i, rounds)
            with self._scope({d: Open(None, 0) for d in order}, moves(i)):
                for u in range(steps):
                    with self._scope({inner: Open(None, u)}):
                        values = leaf(*values)
                return values

        rounds = len(turns) if len(order) > 1 else n // unroll
        values = w.loop(0, rounds, 1, carried, lambda i, *v: turn(i, v, unroll))
        if n % unroll:  # one loop alone
            values = tuple(turn(constant(n // unroll, dtypes.int64), values, n % unroll))
        return values

    def _unroll(self, d: Dim, n: int) -> int:
        """How many steps of a reduced loop are written out: no two of them may read the same element, or it would stay in a register."""
        tail = any(o.left is not None and x.most is not None and x.most > self.lanes for x, o in self.opened.items())
        if tail or self.cold:
            return 1
        most = MAX_UNROLLED_STEPS
        for a in self.hoisted:
            step, row = a.coef.get(d, 0), a.coef.get(self.tile, 0) if self.tile is not None else 0
            if step and row:
                shared = [u for u in range(1, most) if u * step % row == 0 and 0 < u * step // row < self.plan.rows]  # type: ignore[operator]
                most = min([most, *shared])
        alone = len(self.reduced) == 1
        full = self.plan.rows * self.plan.columns * len(self.stage.combine) > self.kernel.target.vector_registers // 2
        good = [u for u in range(most, 1, -1) if n % u == 0 and not (u == SPILLED_UNROLL and full)]
        return good[0] if good else most if alone and n >= most else 1

    def _fold(self, k: int, i: int, j: int, old: IRValue) -> IRValue:
        """An accumulator with one more value."""
        c, w = self.stage.combine[k], self.w
        if self.across in self.reduced and j >= self._units(self.across):
            return old
        line, mask = self.lines[c.line], self._mask(j) if self.vec in self.reduced else None
        fused = self._fused(c) if mask is None else None
        if fused is not None:
            x, y = (w.splat(self._value(a, i, j), old.lanes) for a in line.args)
            return fused(x, y, old)
        x = w.splat(self._value(c.line, i, j), old.lanes)
        if mask is not None:
            x = w.select(mask, x, identity(c.kind, c.dtype, old.lanes))
        return fold(w, c.kind, old, x)

    def _fused(self, c: Combine) -> Callable[[IRValue, IRValue, IRValue], IRValue] | None:
        """What adds a product to a sum by one instruction, if anything does."""
        op, w = self.lines[c.line].op, self.w
        if c.kind != "add":
            return None
        if op == "multiply":
            return w.fma if c.dtype.is_float and c.dtype.bits > 16 else None
        return {"multiply_pairs": w.dot2_accumulate, "multiply_quads": w.dot4_accumulate}.get(op)

    def _as_one(self, kind: str, x: IRValue) -> IRValue:
        """The lanes of a vector as one: halves meet halves."""
        n = x.lanes
        while n > 1:
            n //= 2
            x = fold(self.w, kind, self.w.shuffle(x, range(n)), self.w.shuffle(x, range(n, 2 * n))) if n > 1 else x
            if n == 1:
                return fold(self.w, kind, self.w.lane(x, 0), self.w.lane(x, 1))
        return x

    # ---- values

    def _value(self, n: int, i: int, j: int) -> IRValue:
        """A line at a place of the tile: a vector if it moves along the vector axis, else a scalar."""
        found = self.known.get(self._key(n, i, j))
        if found is not None:
            return found
        todo = [n]
        while todo:
            n = todo[-1]
            key = self._key(n, i, j)
            if key in self.known:
                todo.pop()
                continue
            whole = self._together_there(n, i, j) if self.lines[n].op in TOGETHER else None
            missing = [] if whole is not None else [u for u in self.uses[n] if self._key(u, i, j) not in self.known]
            if missing:
                todo += missing[::-1]
                continue
            todo.pop()
            self.known[key] = found = whole or self._compute(n, i, j)
        return found  # type: ignore[return-value]

    def _interleaved_rows(self, roots: Iterable[int], places: Sequence[Sequence[int]]) -> None:
        """Computes what several places of the tile need line by line, where a line takes long: their chains then run beside each other."""
        needed, todo = set[int](), list(roots)
        while todo:
            n = todo.pop()
            if n not in needed and any(self._key(n, i, j) not in self.known for i, j in places):
                needed.add(n)
                todo += self.uses[n]
        if len(places) > 1 and any(COST[self.lines[n].op] >= MIN_INTERLEAVED_COST for n in needed):
            for n in sorted(needed):
                for i, j in places:
                    self._value(n, i, j)

    def _key(self, n: int, i: int, j: int) -> tuple[int, int, int]:
        deps = self.deps[n]
        return n, i if self.tile in deps else 0, j if self.across in deps else 0

    def _compute(self, n: int, i: int, j: int) -> IRValue:
        line, w = self.lines[n], self.w
        if line.op == "read":
            return self._read(self.reads[n], i, j)
        if line.op == "number":
            return number(line.attrs["value"], line.dtype)
        if line.op == "index":
            at = register(self._index(line.attrs["value"], i, j))
            return scalar.emit(w, "cast", (at,), {"dtype": line.dtype})
        if line.op == "guard":
            return meet_all(w, *self._holds(line.attrs["guard"], i, j)) or constant(True, dtypes.bool_)
        args = [self.known[self._key(a, i, j)] for a in self.uses[n]]
        if line.op == "copy":
            return args[0]
        if line.op == "random_bits":
            return self._random(n, args[:-1], i, j) or random_bits(w, args, line.attrs["stream"])
        attrs = {**line.attrs, "dtype": line.dtype} if line.op in ("cast", "bitcast") else line.attrs
        return scalar.emit(w, line.op, args, attrs)

    def _random(self, n: int, same: Sequence[IRValue], i: int, j: int) -> IRValue | None:
        """Random words of whole vectors side by side, that begin where a block of words does; None where that is not so."""
        flat = self.lines[n].args[-1]
        form, v = self.forms.of(self.lines[flat].attrs["value"]), self.vec
        beside = range(self._units(v)) if self.across is v else range(j, j + 1)
        if form is None or v is None or form.coef.get(v) != 1 or len(beside) * self.lanes < 2 * WORDS:
            return None
        apart = [form.const, *[c for d, c in form.coef.items() if d is not v]]
        if self.opened[v].left is not None or self.lanes % WORDS or not all(isinstance(c, int) and c % WORDS == 0 for c in apart):
            return None
        first = self.w.lane(self._value(flat, i, beside[0]), 0)
        found = side_by_side(self.w, same, self.lines[n].attrs["stream"], first, len(beside), self.lanes)
        for k, x in zip(beside, found, strict=True):
            self.known[self._key(n, i, k)] = x
        return found[beside.index(j)]

    # ---- indices

    def _index(self, e: ExprLike, i: int, j: int) -> Whole:
        """An expression at a place of the tile."""
        form = self.forms.of(e)
        if form is not None:
            return self._position(form, i, j)
        if type(e) is Load:
            return scalar.emit(self.w, "cast", (self._value(e.of, i, j),), {"dtype": dtypes.int64})
        if type(e) is not Bin:
            raise ProgramError(f"no code for the index {e!r}")
        small = e.op in ("//", "%") and self._small(e.a)
        return apply(self.w, e.op, self._index(e.a, i, j), self._index(e.b, i, j), small)

    def _small(self, e: ExprLike) -> bool:
        """Whether an expression surely lies in 0 … 2**31 - 1."""
        low, high = bounds(e, self._known_length)
        return low >= 0 and high < INT32_END

    def _known_length(self, a: AxisId) -> int | None:
        n = self.kernel.length(a)
        return n if isinstance(n, int) else None

    def _step(self, d: Dim, i: int, j: int) -> int:
        """How far along a dim a place of the tile lies."""
        if d is self.across:
            return j * self.lanes if d is self.vec else j
        return i if d is self.tile else 0

    def _position(self, f: LinearForm, i: int, j: int) -> Whole:
        w, total = self.w, f.const
        lanes: Whole = 0
        for d, c in f.coef.items():
            o = self.opened.get(d)
            if o is None:
                total = plus(w, total, times(w, self.kernel.at[d], c))
                continue
            offset = o.offset + self._step(d, i, j)
            total = plus(w, total, times(w, offset if o.base is None else plus(w, o.base, offset), c))
            if d is self.vec:
                lanes = c
        if self.vec is None or lanes == 0:
            return total
        n = self._width(j)
        return plus(w, w.splat(register(total), n), times(w, counting(dtypes.int64, n), lanes))

    def _holds(self, guard: Iterable[ExprLike], i: int, j: int) -> tuple[IRValue | None, IRValue | None]:
        """Whether no guard is negative: of those that are the same for all lanes, and of the others; None where there is none."""
        one: IRValue | None = None
        each: IRValue | None = None
        for e in guard:
            x = register(self._index(e, i, j))
            holds = self.w.op("icmp sge", x, self.w.constant(0, x), dtype=dtypes.bool_)
            if holds.lanes == 1:
                one = meet_all(self.w, one, holds)
            else:
                each = meet_all(self.w, each, holds)
        return one, each

    def _mask(self, j: int) -> IRValue | None:
        """Which lanes of a step are inside; None if all are."""
        left = self._left(j)
        return leading(left, self._width(j)) if isinstance(left, int) else self.w.tail(left, self.lanes)

    def _width(self, j: int) -> int:
        """The lanes of a step: those of a vector, or of the shortest part of one that has all that are inside."""
        left = self._left(j) if self.vec in self.free else self.lanes
        return min(self.lanes, max(MIN_PARTIAL_LANES, 1 << (left - 1).bit_length())) if isinstance(left, int) else self.lanes

    def _left(self, j: int) -> Whole:
        """How many lanes of a step are inside."""
        o = self.opened.get(self.vec)  # type: ignore[arg-type]
        return self.lanes if o is None or o.left is None or (self.across is self.vec and j < o.units - 1) else o.left

    # ---- memory

    def _apart(self, a: Access) -> Whole:
        """Elements from one lane to the next."""
        return 0 if self.vec is None else a.coef.get(self.vec, 0)

    def _strided(self, a: Access, i: int, j: int) -> IRValue | None:
        """Each k-th element, k from 2 to 4, by loads of whole vectors and shuffles; None where that is not so."""
        w, n = self.w, self.lanes
        k = self._apart(a)
        if not isinstance(k, int) or not 2 <= k <= MAX_SHUFFLED_STEP or a.rest:
            return None
        offset, left = a.const, self._left(j)
        for d, c in a.coef.items():
            steps = self.opened[d].offset + self._step(d, i, j)
            if steps and not isinstance(c, int):
                return None
            offset += steps * c if isinstance(c, int) else 0
        if not isinstance(left, int):
            return None
        first, phase = offset // k * k, offset % k
        if offset < 0 or not all(isinstance(c, int) and c >= 0 for c in a.coef.values()):  # what lies before may be nobody's
            first, phase = offset, 0
        end = (left - 1) * k + phase + 1  # elements behind this one are nobody's business
        if left == n and a.room is not None and a.room >= k - 1:
            end = n * k
        at, found = self._pointer(a), None
        one, each = self._holds(a.guard, i, j)
        for q in range(-(-end // n)):
            some = None
            if each is not None:  # an element is allowed where the lane that it is for is
                m, places = each.lanes, range(q * n - phase, (q + 1) * n - phase)
                lanes = [e // k if 0 <= e < k * m and e % k == 0 else m for e in places]
                some = w.shuffle(each, lanes, constant(False, dtypes.bool_, m))
            mask = meet_all(w, leading(end - q * n, n), some)
            place = self._or_nothing(one, w.at(at, first + q * n, a.dtype), a, n)
            x = memo(self.known, load, w, place, a.dtype, n, mask)
            if found is None:
                found = x
                if end <= n:
                    found = w.shuffle(x, [min(phase + lane * k, n - 1) for lane in range(n)])
                continue
            picks = [phase + lane * k for lane in range(n)]
            earlier = [e if q == 1 else lane for lane, e in enumerate(picks)]
            found = w.shuffle(found, [o if e < q * n else n + e % n if e // n == q else 0 for e, o in zip(picks, earlier, strict=True)], x)
        assert found is not None
        return self._filled(a, meet_all(w, one, each), self._narrow(found, j))

    def _or_nothing(self, one: IRValue | None, at: str, a: Access, n: int) -> str:
        """Where zeros are instead, if it is not allowed: masked loads from a page that is not there are slow."""
        return at if one is None else self.w.pure(f"select {one}, ptr {at}, ptr {self.kernel.nothing(n * a.dtype.bits // 8)}")

    def _filled(self, a: Access, holds: IRValue | None, x: IRValue) -> IRValue:
        """What is read, with its fill where it is not allowed; there it is 0."""
        if holds is None or a.zero:
            return x
        return self.w.select(self.w.splat(holds, x.lanes), x, self.w.splat(number(a.fill, a.dtype), x.lanes))

    def _together_there(self, n: int, i: int, j: int) -> IRValue | None:
        """Parts of 32 bits that lie side by side in memory as one element each; None where they do not."""
        line, w = self.lines[n], self.w
        parts = [self.reads[k] for k in line.args if self.lines[k].op == "read"]
        first = parts[0] if len(parts) == len(line.args) else None
        if first is None or any(a.guard or a.rest or a.coef != first.coef for a in parts):
            return None
        if self.vec in first.deps and self._apart(first) != len(parts):
            return None
        at = [(self._pointer(a), a.const) for a in parts]
        if any(p != at[0][0] or not isinstance(c, int) or c != first.const + k for k, (p, c) in enumerate(at)):
            return None
        place = w.at(self._pointer(first), self._offset(first, i, j), first.dtype)
        lanes, mask = (self._width(j), self._mask(j)) if self.vec in first.deps else (1, None)
        return w.load(place, line.dtype, lanes, align=first.dtype.bits // 8, mask=mask)

    def _is_transposed(self, a: Access, i: int, j: int) -> IRValue | None:
        """Elements that lie apart along vectors and side by side along the rows of the tile: vectors of rows, turned over."""
        w, n, top = self.w, self.lanes, i - i % self.lanes
        step, rows = self._apart(a), min(self._units(self.tile) - top, n)
        if rows == 1 or a.coef.get(self.tile) != 1 or step == 0 or step == 1 or a.rest or a.guard:  # type: ignore[arg-type]
            return None
        left = self._left(j)
        if not isinstance(left, int):
            return None
        at = w.at(self._pointer(a), self._offset(a, top, j), a.dtype)
        return self._narrow(memo(self.known, transposed_rows, w, at, a.dtype, n, left, rows, step)[i - top], j)

    def _mirrored(self, a: Access, i: int, j: int) -> IRValue | None:
        """Elements that lie side by side in the opposite order: a vector that ends where the first lane reads, turned about."""
        if self._apart(a) != -1 or a.rest:
            return None
        w, n = self.w, self._width(j)
        one, each = self._holds(a.guard, i, j)
        mask = meet_all(w, self._mask(j), each, n)
        there = None if mask is None else w.shuffle(mask, range(n)[::-1])
        at = w.at(self._pointer(a), plus(w, self._offset(a, i, j), 1 - n), a.dtype)
        x = w.load(self._or_nothing(one, at, a, n), a.dtype, n, mask=there)
        return self._filled(a, meet_all(w, one, each), w.shuffle(x, range(n)[::-1]))

    def _narrow(self, x: IRValue, j: int) -> IRValue:
        """A vector without the lanes that its step has not."""
        n = self._width(j)
        return x if x.lanes <= n else self.w.shuffle(x, range(n))

    def _offset(self, a: Access, i: int, j: int) -> Whole:
        """The elements from where an access's pointer stands to a place of the tile, in the first lane."""
        offset: Whole = a.const
        for d, c in a.coef.items():
            steps = self.opened[d].offset + self._step(d, i, j)
            if steps:
                offset = plus(self.w, offset, times(self.w, steps, c))
        return offset

    def _address(self, a: Access, i: int, j: int) -> tuple[str, IRValue | None]:
        """A pointer, and what each lane adds to it in elements: None where lanes lie side by side, or there are none."""
        w = self.w
        at, offset, lanes = self._pointer(a), self._offset(a, i, j), self._apart(a)
        for stride, e in a.rest:
            offset = plus(w, offset, times(w, self._index(e, i, j), stride))
        vector = isinstance(offset, IRValue) and offset.lanes > 1
        if not vector:
            at = w.at(at, offset, a.dtype)
        if self.vec is None or (not vector and lanes in (0, 1)):
            return at, None
        n = self._width(j)
        apart: Whole = times(w, counting(dtypes.int64, n), lanes)
        return at, w.splat(register(plus(w, offset, apart) if vector else apart), n)

    def _read(self, a: Access, i: int, j: int) -> IRValue:
        w, vector = self.w, self.vec in a.deps
        whole = (self._strided(a, i, j) or self._is_transposed(a, i, j) or self._mirrored(a, i, j)) if vector else None
        if whole is not None:
            return whole
        one, each = self._holds(a.guard, i, j)
        at, apart = self._address(a, i, j)
        n = self._width(j) if vector else 1
        if apart is None:
            at = self._or_nothing(one, at, a, n)
        holds = meet_all(w, one, each)
        if not vector:
            return self._filled(a, holds, w.load(at, a.dtype))
        mask = meet_all(w, self._mask(j), each if apart is None else meet_all(w, one, each), n)
        if apart is None and self.vec not in a.coef:
            apart = constant(0, dtypes.int64, n)  # one element, for some lanes
        x = w.load(at, a.dtype, n, mask=mask) if apart is None else w.gather(at, apart, a.dtype, mask)
        if a in self.paged and mask is None:
            w.prefetch(w.at(at, PAGE_BYTES * 8 // a.dtype.bits, a.dtype))
        elif a.ahead and apart is None and a in self.streamed:
            w.prefetch(w.at(at, a.ahead, a.dtype))
        elif ("next", a) in self.known:
            far, d, share = self.known["next", a]
            if self.opened[d].offset < share:
                w.prefetch(w.at(at, far, a.dtype), locality=2)
        return self._filled(a, holds, x)

    def _put(self, which: list[int]) -> None:
        """Stores at every place of the tile; the values of a place come before its first store, for buffers may share memory."""
        if not which:
            return
        moves = [self.stores[k].deps | self.deps[self.stage.to[k].line] for k in which]
        places = list(self._places(frozenset().union(*moves)))
        for k, (i, j) in enumerate(places):
            if k % INTERLEAVED_PLACES == 0:
                self._interleaved_rows([self.stage.to[t].line for t in which], places[k : k + INTERLEAVED_PLACES])
            here = [k for k, m in zip(which, moves, strict=True) if (not i or self.tile in m) and (not j or self.across in m)]
            values = {k: self._value(self.stage.to[k].line, i, j) for k in here}
            while values:
                k = next(iter(values))
                run = self.interleaved[k]
                if 1 < len(run) == self._apart(self.stores[k]) and values.keys() >= set(run):
                    self._interleaved_store([self.stores[n] for n in run], [values.pop(n) for n in run], i, j)
                else:
                    self._store(self.stage.to[k].combine, self.stores[k], values.pop(k), i, j)

    def _interleaved_store(self, stores: Sequence[Access], values: Sequence[IRValue], i: int, j: int) -> None:
        """Stores vectors whose lanes lie between each other, from the first one's place on: by shuffles, as whole vectors."""
        w, n, k, left = self.w, self._width(j), len(values), self._left(j)
        at, _ = self._address(stores[0], i, j)
        holds = [meet_all(w, *self._holds(a.guard, i, j)) for a in stores]
        every = None if holds == [None] * k else [w.splat(h or constant(True, dtypes.bool_), n) for h in holds]
        for q in range(k):
            rest = plus(w, times(w, left, k), -q * n)
            if not isinstance(rest, int) or rest > 0:
                mask = leading(rest, n) if isinstance(rest, int) else w.tail(rest, n)
                mask = meet_all(w, mask, None if every is None else interleaved(w, every, q))
                w.store(interleaved(w, [w.splat(x, n) for x in values], q), w.at(at, q * n, stores[0].dtype), mask=mask)

    def _store(self, how: str, a: Access, x: IRValue, i: int, j: int) -> None:
        w, vector = self.w, self.vec in a.deps
        holds = meet_all(w, *self._holds(a.guard, i, j))
        at, apart = self._address(a, i, j)
        if not vector:
            x = w.lane(x, 0)

            def one() -> Sequence[IRValue]:
                w.store(x if how == "set" else fold(w, how, w.load(at, a.dtype), x), at)
                return []

            if holds is None:
                one()
            else:
                w.when(holds, [], one, rare=False)
            return
        n = self._width(j)
        x, mask = w.splat(x, n), meet_all(w, self._mask(j), holds, n)
        if apart is None and self.vec not in a.coef:
            apart = constant(0, dtypes.int64, n)
        if how != "set":
            old = w.load(at, a.dtype, n, mask=mask) if apart is None else w.gather(at, apart, a.dtype, mask)
            x = fold(w, how, old, x)
        if apart is None:
            w.store(x, at, mask=mask)
        else:
            w.scatter(x, at, apart, mask)


def leading(count: int, lanes: int) -> IRValue | None:
    """The mask of so many of some lanes; None for all."""
    if count >= lanes:
        return None
    return IRValue(f"<{', '.join([f'i1 {str(k < count).lower()}' for k in range(lanes)])}>", dtypes.bool_, lanes)


def load(w: IRWriter, at: str, dtype: DType, lanes: int, mask: IRValue | None) -> IRValue:
    """A vector from memory."""
    return w.load(at, dtype, lanes, mask=mask)


def transposed_rows(w: IRWriter, at: str, dtype: DType, lanes: int, left: int, rows: int, step: Whole) -> Sequence[IRValue]:
    """The transpose of `left` rows, `step` elements apart, of `rows` elements each: the k-th vector has the k-th element of every row."""
    lines = [w.at(at, times(w, lane, step), dtype) for lane in range(left)]
    loaded = [w.load(x, dtype, lanes, mask=leading(rows, lanes)) for x in lines]
    return transposed(w, loaded + loaded[-1:] * (lanes - left))


def interleaved(w: IRWriter, rows: Sequence[IRValue], q: int) -> IRValue:
    """The q-th of as many vectors, in which the lanes of these lie between each other."""
    n, k = rows[0].lanes, len(rows)
    places = [divmod(q * n + lane, k) for lane in range(n)]  # lane, of which
    x = rows[0]
    for m in range(1, k):
        here = [lane if m == 1 else e for e, (lane, _) in enumerate(places)]
        x = w.shuffle(x, [n + lane if of == m else h for h, (lane, of) in zip(here, places, strict=True)], rows[m])
    return x


def transposed(w: IRWriter, rows: Sequence[IRValue]) -> Sequence[IRValue]:
    """As many vectors as each has lanes, rows as columns: blocks of one half are exchanged with those of the other, of 1, 2, 4 … lanes."""
    n, rows = len(rows), list(rows)
    for s in [1 << k for k in range(n.bit_length() - 1)]:
        for r in [r for r in range(n) if not r & s]:
            x, y = rows[r], rows[r + s]
            rows[r] = w.shuffle(x, [n + c - s if c & s else c for c in range(n)], y)
            rows[r + s] = w.shuffle(x, [n + c if c & s else c + s for c in range(n)], y)
    return rows


def _step(c: Whole) -> int | None:
    return c if isinstance(c, int) else None


def meet_all(w: IRWriter, a: IRValue | None, b: IRValue | None, lanes: int = 1) -> IRValue | None:
    """Both of two conditions, of which one may be missing."""
    if a is None or b is None:
        found = a or b
        return None if found is None else w.splat(found, lanes)
    lanes = max(lanes, a.lanes, b.lanes)
    return w.op("and", w.splat(a, lanes), w.splat(b, lanes))


def number(value: Any, dtype: DType) -> IRValue:
    """A constant as NumPy would make it."""
    return constant(dtype.array(value).item(), dtype)


def identity(kind: str, dtype: DType, lanes: int) -> IRValue:
    """What changes nothing: 0, 1, the lowest, the highest."""
    return constant({"add": 0, "multiply": 1, "max": dtype.lowest, "min": dtype.highest}[kind], dtype, lanes)


def fold(w: IRWriter, kind: str, a: IRValue, b: IRValue) -> IRValue:
    """Two values as one; sums of bool are `or`."""
    if a.dtype.kind == "bool":
        return w.op(FOLD_BOOL[kind], a, b)
    return scalar.emit(w, FOLD[kind], (a, b))

"""Convolutions with fewer multiplications: the algorithms of Toom, Cook and Winograd (Lavin and Gray, 2015, arXiv:1509.09308).

m results of a window of r terms, y_i = sum over j of d_(i+j) g_j, are A (G g * B d): m + r - 1 products instead of m r. The matrices come
from evaluating at m + r - 1 points. What moves along the window is cut into tiles of m + r - 1 places, both factors are transformed, the
products at each point are sums over all other axes, and their results are transformed back. Along two axes it is done one after the other.

It is taken where it needs less time: where the other axes of the sum are long enough to pay for the transforms. In the gradient of a
filter the window is what stays and the map is what is summed: there tiles are cut out of the terms.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, NamedTuple

from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import ExprLike, Idx
from ngraph.parts.deferred import deferred
from ngraph.parts.runner import pass_
from ngraph.program.program import AxisId
from ngraph.targets.machine import Cpu
from ngraph.targets.tuning import (
    ASSUMED_SPREAD,
    MAX_EPILOGUE_STEPS,
    MAX_WINDOW,
    MAX_WINOGRAD_TIME,
    MIN_TILED_LENGTH,
    PLANNED_CORES,
    PRODUCT_COST,
    TRANSFORM_COST,
    TRANSPOSE_COST,
)
from ngraph.tensors.bf16_dot import cost_of_pairs
from ngraph.tensors.edit import Draft, GraphEditor, summed
from ngraph.tensors.graph import Arg, PiecewisePart, ScalarConstant, TensorGraph
from ngraph.tensors.index import Read, affine, identity_index, loop_variant_axes
from ngraph.tensors.value_range import integer_range

if TYPE_CHECKING:
    from fractions import Fraction

fractions = deferred("fractions")
POINTS = (0, 1, -1, 2, -2)  # and infinity; more would cost more digits than the error of a sum allows
Matrix = tuple[tuple["Fraction", ...], ...]


class Along(NamedTuple):
    """One axis of the window: the index of x is `out + sign tap + start`. Tiles have `m` results, or `taps` terms.

    at      the axis of x's source; `tile` the axis of tiles, if there are several; `point` the axis of the points
    results whether tiles consist of results, not of terms
    """

    at: AxisId
    out: AxisId
    tap: AxisId
    sign: int
    m: int
    taps: int
    tiles: ExprLike
    results: bool
    k: int  # its number

    @property
    def points(self) -> int:
        return self.m + self.taps - 1

    @property
    def step(self) -> int:
        """Returns the distance between two tiles."""
        return self.m if self.results else self.taps

    def many(self, lengths: Mapping[AxisId, int]) -> int:
        """Returns the number of tiles at these lengths."""
        return -(-lengths[self.out if self.results else self.tap] // self.step)


class Sum(NamedTuple):
    """A contraction in which x is read through windows and y is not."""

    node: Draft
    x: Read
    y: Read
    along: tuple[Along, ...]


@pass_(needs=("machine",), keeps=("integer sums",))
def winograd(graph: TensorGraph, machine: Cpu) -> TensorGraph:
    """Replaces convolutions by their transformed form where that takes less time."""
    if not any(n.kind == "reduce" and n.op == "add" and len(n.reduced) > 1 and n.dtype.is_float for n in graph.nodes):
        return graph
    e = GraphEditor(graph)
    nodes: list[Draft] = []
    ends: dict[Draft, tuple[Sum, list[Draft]]] = {}
    taken: set[Draft] = set()  # by the epilogue of a sum: one that meets it later ends before
    for n in e.nodes:
        s = _best(e, n, machine) if n.kind == "reduce" and n.op == "add" and len(n.reduced) > 1 else None
        if s is not None:
            # what follows the gradient of a filter updates it, in its own memory
            chain = list(takewhile(lambda u: u not in taken, _chain(n))) if s.along[0].results else [n]
            taken.update(chain)
            ends[chain[-1]] = s, chain
        if n not in ends:
            nodes.append(n)
            continue
        s, chain = ends[n]
        e.nodes, e.origin = nodes, tuple(dict.fromkeys([o for u in chain for o in u.origin]))
        _transformed(e, s, chain)
        nodes = e.nodes
    e.nodes = nodes
    return e.frozen()


def _chain(n: Draft) -> list[Draft]:
    """Returns a sum and the elementwise epilogue that depends on it alone."""
    found = [n]
    while len(found) <= MAX_EPILOGUE_STEPS and not n.result and len(n.users) == 1:
        (u,) = n.users
        if u.kind != "elem" or u.space != frozenset(n.axes) or u.op == "random_bits":
            break
        if any(len(r.identity_indexed) < len(r.index) or r.predicate for r in u.reads if r.source is n):
            break
        if any(type(e) is not Idx for r in u.reads for e in (*r.index.values(), *r.predicate)):
            break
        found.append(u)
        n = u
    while found[-1].op == "cast" and found[-1].dtype.bits > found[-2].dtype.bits:
        found.pop()  # readers widen what is stored short
    return found


# ---- which sums, along which axes -------------------------------------------------------------------------------------------


def _best(graph: GraphEditor, n: Draft, machine: Cpu) -> Sum | None:
    """Returns the cheapest tiling, if one is profitable."""
    p = summed(n)
    if p is None or not n.dtype.is_float or n.dtype.bits < 32:
        return None
    reads = [a for a in p.args if type(a) is Read and a.source.dtype is n.dtype]
    if len(reads) == 2 and all(integer_range(r) is not None for r in reads):
        return None  # sums of whole numbers are to be exact
    if len(reads) != 2 or any(r.predicate and r.pad_value != 0 for r in reads):
        return None
    every = [Sum(n, x, y, along) for x, y in (reads, reads[::-1]) for along in _ways(graph, n, x, y)]
    if not every:
        return None
    guesses = graph.guesses()
    best = min(every, key=lambda s: _cost(graph, s, machine, guesses))
    pairs = cost_of_pairs(graph, n, machine)  # of bfloat16, beside which the transforms' errors are small
    direct = MAX_WINOGRAD_TIME * PRODUCT_COST * n.size if pairs is None else pairs
    return best if _cost(graph, best, machine, guesses) < direct and _pays_when_short(graph, best, machine) else None


def _pays_when_short(graph: GraphEditor, s: Sum, machine: Cpu) -> bool:
    """Whether the transformed form takes less time in the geometric mean of guessed and of short lengths, where some are open.

    Short calls are assumed to find their operands in the caches.
    """
    opened = [a for a in {*s.node.space, *s.x.source.axes} if graph.known(a) is None]
    if not opened:
        return True
    guesses = graph.guesses()
    short = guesses | {a: max(1, guesses[a] // ASSUMED_SPREAD) for a in opened}
    ways = [(lengths, math.prod([lengths[a] for a in s.node.space])) for lengths in (guesses, short)]
    return math.prod([_cost(graph, s, machine, at, machine.all_caches_bandwidth) / (PRODUCT_COST * n) for at, n in ways]) < 1


def _ways(graph: GraphEditor, n: Draft, x: Read, y: Read) -> Iterable[tuple[Along, ...]]:
    """Yields the possible tilings along the windows of x."""
    found: list[list[Along]] = []
    for at, e in x.index.items():
        form = affine(e)
        if form is None or len(form[0]) != 2:
            continue
        out, tap = sorted(form[0], key=lambda a: a in n.reduced)
        if out in n.reduced or tap in n.axes or form[0][out] != 1 or abs(form[0][tap]) != 1:
            continue
        if out in y.axes or any(out in loop_variant_axes(g) or tap in loop_variant_axes(g) for a, g in x.index.items() if a != at):
            continue
        if (
            sum(type(g) is Idx and g.of == tap for g in y.index.values()) != 1
            or sum(tap in loop_variant_axes(g) for g in y.index.values()) != 1
        ):
            continue
        some = list(_cuts(graph, at, out, tap, form[0][tap], len(found)))
        if some and len(found) < 2:
            found.append(some)
    if not found or any(g for g in y.predicate):
        return []
    return [tuple(c._replace(k=k) for k, c in enumerate(w)) for w in _product(found)]


def _product(found: list[list[Along]]) -> Iterable[tuple[Along, ...]]:
    """Yields combinations of one tiling per axis, all with the same number of points."""
    first, *rest = found
    for a in first:
        if not rest:
            yield (a,)
        for b in rest[0] if rest else ():
            if a.points == b.points:
                yield a, b


def _cuts(graph: GraphEditor, at: AxisId, out: AxisId, tap: AxisId, sign: int, k: int) -> Iterable[Along]:
    results, terms = graph.known(out) or 0, graph.known(tap) or 0  # of open length is none
    many = graph.guesses()[out]
    for points in (6, 4):
        if 2 <= terms <= MAX_WINDOW and many >= MIN_TILED_LENGTH and points - terms + 1 >= 2:
            m = points - terms + 1
            yield Along(at, out, tap, sign, m, terms, (graph.length(out) + (m - 1)) // m, True, k)
        elif 2 <= results <= MAX_WINDOW and terms >= MIN_TILED_LENGTH and sign == 1 and points - results + 1 >= 2:
            taps = points - results + 1
            yield Along(at, out, tap, sign, results, taps, -(-terms // taps), False, k)


def _cost(graph: GraphEditor, s: Sum, machine: Cpu, lengths: Mapping[AxisId, int], rate: float | None = None) -> float:
    """Returns the cost in vector instructions per lane at these lengths: products at all points, and transforms.

    rate: the bytes per second of the untiled operand; by default by its size.
    """

    def size(axes: Iterable[AxisId]) -> int:
        return math.prod([lengths[a] for a in axes])

    windows = {a for w in s.along for a in (w.out, w.tap)}
    points = math.prod([w.points for w in s.along])
    tiles = math.prod([w.many(lengths) for w in s.along])
    made = math.prod([w.many(lengths) for w in s.along if w.results])
    read = math.prod([w.many(lengths) for w in s.along if not w.results])
    products = size([a for a in s.node.space if a not in windows]) * points * tiles
    x = size([a for a in s.x.axes if a not in windows]) * points * tiles
    y = size([a for a in s.y.axes if a not in windows]) * points * read
    z = size([a for a in s.node.axes if a not in windows]) * points * made
    known = _parameters(graph, s.y)
    untiled = y if s.along[0].results else z  # that is large: it is written, which takes a read, and read again
    moved = untiled * s.node.dtype.bits // 8
    rate = rate or (machine.memory_bandwidth if moved > machine.usable_l3 // 4 else machine.all_caches_bandwidth)
    far = (1 if known else 3) * moved / rate * machine.speed * PLANNED_CORES
    turned = TRANSPOSE_COST * sum([size(axes) for axes in _turned(s)])
    return max(PRODUCT_COST * products, far) + TRANSFORM_COST * len(s.along) / 2 * (x + z + (0 if known else y)) + turned


def _turned(s: Sum) -> Iterable[tuple[AxisId, ...]]:
    """The axes of what the user gives or gets in an order in which a window of results runs on."""
    source, end = s.x.source, _chain(s.node)[-1]
    results = [w for w in s.along if w.results]
    if not isinstance(source, Draft) and source.axes[-1] in [w.at for w in results]:
        yield source.axes
    if end.result and end.axes[-1] in [w.out for w in results]:
        yield end.axes


def _parameters(graph: GraphEditor, r: Read) -> bool:
    still = {s.value for s in graph.graph.states} - {old for _, old, _ in graph.state_out}
    return not isinstance(r.source, Draft) and r.source in still


# ---- the matrices -----------------------------------------------------------------------------------------------------------


@functools.cache
def matrices(m: int, taps: int) -> tuple[Matrix, Matrix, Matrix]:
    """Returns A (m rows), G (a row for each point) and B, with y = A (G g * B d)."""
    points = [fractions.Fraction(p) for p in POINTS[: m + taps - 2]]
    last = len(points)

    def powers(n: int) -> list[list[Fraction]]:
        return [[p**k for k in range(n)] for p in points] + [[fractions.Fraction(k == n - 1) for k in range(n)]]

    a = powers(m)
    scale = [math.prod([p - q for q in points if q != p]) for p in points] + [fractions.Fraction(1)]
    g = [[x / s for x in row] for row, s in zip(powers(taps), scale, strict=True)]
    b = [_polynomial([q for q in points if q != p]) for p in points] + [_polynomial(points)]
    rows = [tuple(row + [fractions.Fraction(0)] * (last + 1 - len(row))) for row in b]
    return tuple(zip(*a, strict=True)), tuple(map(tuple, g)), tuple(rows)


def _polynomial(roots: Iterable[Fraction]) -> list[Fraction]:
    """Returns the coefficients of the product of all x - root, the lowest first."""
    made = [fractions.Fraction(1)]
    for r in roots:
        made = [a - r * b for a, b in zip([fractions.Fraction(0), *made], [*made, fractions.Fraction(0)], strict=True)]
    return made


def _combined(graph: GraphEditor, rows: Matrix, args: Sequence[Arg], axes: tuple[AxisId, ...], dtype: DType) -> list[Arg]:
    """Returns the products of a matrix's rows with `args`; rows or columns that differ only in signs share subexpressions."""
    columns = list(zip(*rows, strict=True))
    pairs = _twins(columns) if len(rows) < len(columns) else {}
    if pairs:
        terms: list[Arg] = []
        made: list[tuple[Fraction, ...]] = []
        for j, column in enumerate(columns):
            if j in pairs:
                k = pairs[j]
                terms += [graph.elem(op, args[j], args[k], axes=axes, dtype=dtype) for op in ("add", "subtract")]
                made += [tuple([a if a == b else fractions.Fraction(0) for a, b in zip(column, columns[k], strict=True)])]
                made += [tuple([a if a != b else fractions.Fraction(0) for a, b in zip(column, columns[k], strict=True)])]
            elif j not in pairs.values():
                terms.append(args[j])
                made.append(column)
        args, rows = terms, tuple(zip(*made, strict=True))
    twins = _twins(rows)
    found: dict[int, Arg] = {}
    for j, row in enumerate(rows):
        if j in found:
            continue
        if j not in twins:
            found[j] = _total(graph, row, args, axes, dtype)
            continue
        other = rows[twins[j]]
        parts = [[a if (a == b) == same else fractions.Fraction(0) for a, b in zip(row, other, strict=True)] for same in (True, False)]
        x, y = (_total(graph, p, args, axes, dtype) for p in parts)
        found[j] = graph.elem("add", x, y, axes=axes, dtype=dtype)
        found[twins[j]] = graph.elem("subtract", x, y, axes=axes, dtype=dtype)
    return [found[j] for j in range(len(rows))]


def _twins(rows: Sequence[tuple[Fraction, ...]]) -> dict[int, int]:
    """Returns pairs of rows that differ in some signs only."""
    found: dict[int, int] = {}
    for j, row in enumerate(rows):
        for k in range(j + 1, len(rows)):
            same = {a == b for a, b in zip(row, rows[k], strict=True) if a}
            if same == {True, False} and all(abs(a) == abs(b) for a, b in zip(row, rows[k], strict=True)):
                if not {j, k} & {*found, *found.values()}:
                    found[j] = k
    return found


def _total(graph: GraphEditor, row: Sequence[Fraction], args: Sequence[Arg], axes: tuple[AxisId, ...], dtype: DType) -> Arg:
    made: Arg | None = None
    for a, x in sorted(zip(row, args, strict=True), key=lambda ax: ax[0] != 1):
        if not a:
            continue
        if made is None:
            made = x if a == 1 else graph.elem("multiply", x, ScalarConstant(float(a), dtype), axes=axes, dtype=dtype)
        elif abs(a) == 1:
            made = graph.elem("add" if a > 0 else "subtract", made, x, axes=axes, dtype=dtype)
        else:
            made = graph.elem("fma", x, ScalarConstant(float(a), dtype), made, axes=axes, dtype=dtype)
    assert made is not None
    return made


# ---- the sum in its new form --------------------------------------------------------------------------------------------------


class _Maker:
    """Builds the nodes of one transformed sum."""

    def __init__(self, graph: GraphEditor, s: Sum):
        self.graph, self.s, self.dtype = graph, s, s.node.dtype
        self.tile = [graph.axis(f"tile{w.k}", w.tiles) for w in s.along]
        self.point = [graph.axis(f"point{w.k}", w.points) for w in s.along]
        windows = {a for w in s.along for a in (w.out, w.tap)}
        self.kept = [a for a in s.node.axes if a not in windows]
        self.summed = [a for a in s.node.reduced if a not in windows]
        self.matrices = [matrices(w.m, w.taps) for w in s.along]

    def own(self, r: Read) -> list[AxisId]:
        """Returns the axes of an operand without its windows, in the order of its source."""
        lies = [e.of for e in r.index.values() if type(e) is Idx]
        mine = [a for a in (*self.kept, *self.summed) if a in r.axes]
        return [a for a in mine if a not in lies] + [a for a in lies if a in mine]

    def joined(self, w: Along, axes: tuple[AxisId, ...], parts: Sequence[Arg]) -> Read:
        """Returns parts concatenated along the axis of the points."""
        point = self.point[w.k]
        made = tuple([PiecewisePart(axes, x, {**identity_index(axes), point: k}) for k, x in enumerate(parts)])
        return self.join((point, *axes), made, w is self.s.along[-1], self.dtype)

    def join(self, axes: tuple[AxisId, ...], parts: tuple[PiecewisePart, ...], last: bool, dtype: DType) -> Read:
        """Returns disjoint parts as one value."""
        return self.graph.node("join", "join", [], axes, dtype, parts=parts, disjoint=True, inline=not last)

    def read(self, r: Read, index: dict[AxisId, ExprLike], integer_range: Iterable[AxisId]) -> Read:
        """Returns an operand at another index, 0 out of bounds along the axes `integer_range` of its source."""
        moved = r.at(index)
        predicates = list(moved.predicate)
        for a in integer_range:
            e = moved.index[a]
            predicates += [e, self.graph.length(a) - 1 - e]
        needed = [g for g in dict.fromkeys(predicates) if not self.graph.holds(g)]
        return Read(moved.source, moved.index, tuple(needed), 0)

    def windows(self) -> Read:
        """Returns the transform of x."""
        s, graph = self.s, self.graph
        own = self.own(s.x)
        back = [w.taps - 1 if w.sign < 0 else 0 for w in s.along]
        place = {w.k: graph.axis(f"place{w.k}", (w.tiles - 1) * w.step + w.points) for w in s.along[1:]}
        index: dict[AxisId, ExprLike] = {w.tap: 0 for w in s.along}
        for w in s.along[1:]:
            index[w.out] = Idx(place[w.k]) - back[w.k]
        first = s.along[0]
        axes = (self.tile[0], *place.values(), *own)
        terms = [
            self.read(s.x, {**index, first.out: Idx(self.tile[0]) * first.step + q - back[0]}, [w.at for w in s.along])
            for q in range(first.points)
        ]
        made = self.joined(first, axes, _combined(graph, self.matrices[0][2], terms, axes, self.dtype))
        for w in s.along[1:]:
            axes = tuple([self.tile[w.k] if a == place[w.k] else a for a in made.source.axes])
            parts = [made.at({place[w.k]: Idx(self.tile[w.k]) * w.step + q}) for q in range(w.points)]
            made = self.joined(w, axes, _combined(graph, self.matrices[w.k][2], parts, axes, self.dtype))
        return made

    def terms(self) -> Read:
        """Returns the transform of y."""
        made, axes = self.s.y, (*[w.tap for w in self.s.along], *self.own(self.s.y))
        for w in self.s.along:
            tile = [] if w.results else [self.tile[w.k]]
            axes = (*tile, *[a for a in axes if a != w.tap])
            integer_range = [a for a, e in made.index.items() if type(e) is Idx and e.of == w.tap]
            base: ExprLike = 0 if w.results else Idx(self.tile[w.k]) * w.taps
            parts = [self.read(made, {w.tap: base + (j if w.sign > 0 else w.taps - 1 - j)}, integer_range) for j in range(w.taps)]
            made = self.joined(w, axes, _combined(self.graph, self.matrices[w.k][1], parts, axes, self.dtype))
            axes = made.source.axes
        return made

    def products(self, x: Read, y: Read) -> Read:
        """Returns the sums of products at each point."""
        n = self.s.node
        tiles = [self.tile[w.k] for w in self.s.along if w.results]
        axes = (*self.point[::-1], *self.kept[:1], *tiles, *self.kept[1:])
        reduced = (*[self.tile[w.k] for w in self.s.along if not w.results], *self.summed)
        p = self.graph.elem("multiply", x, y, axes=(*axes, *reduced), dtype=self.dtype)
        return self.graph.node("reduce", "add", [p], axes, n.dtype, reduced=reduced)

    def back(self, made: Read, chain: Sequence[Draft]) -> Read:
        """Returns the results, with the epilogue fused: the chain from the sum on."""
        last, end = self.s.along[0], chain[-1]
        for w in self.s.along[::-1]:
            axes = tuple([a for a in made.source.axes if a != self.point[w.k]])
            parts = [made.at({self.point[w.k]: j}) for j in range(w.points)]
            rows = _combined(self.graph, self.matrices[w.k][0], parts, axes, self.dtype)
            to = tuple([w.out if a == self.tile[w.k] else a for a in axes]) if w.results else (w.out, *axes)
            joined = []
            for i, row in enumerate(rows):
                at: ExprLike = Idx(self.tile[w.k]) * w.m + i if w.results else i
                predicate = self.graph.length(w.out) - 1 - at
                place = {**identity_index([a for a in axes if a in to]), w.out: at}
                if w is last:
                    row = self.behind(row, axes, {a: e for a, e in place.items() if a in end.axes}, chain)
                joined.append(PiecewisePart(axes, row, place, () if self.graph.holds(predicate) else (predicate,)))
            dtype = end.dtype if w is last else self.dtype
            order = end.axes if w is last else to
            made = self.join(order, tuple(joined), w is last, dtype)
        return made

    def behind(self, x: Arg, axes: tuple[AxisId, ...], place: dict[AxisId, ExprLike], chain: Sequence[Draft]) -> Arg:
        """Returns the epilogue at one index of a tile, where the sum is x."""
        for before, u in pairwise(chain):
            args = [x if type(a) is Read and a.source is before else a.at(place) for a in u.args]
            x = self.graph.elem(u.op, *args, axes=axes, dtype=u.dtype, **u.attrs)
        return x


def _transformed(graph: GraphEditor, s: Sum, chain: Sequence[Draft]) -> None:
    """Replaces the sum and its epilogue, the chain from the sum on, by the transformed form."""
    maker = _Maker(graph, s)
    for r in (s.x, s.y):
        graph.preferences += [(r.source, a, s.node.size) for a, e in r.index.items() if type(e) is Idx and e.of == maker.own(r)[-1]]
    products = maker.products(maker.windows(), maker.terms())
    products.source.hint = s.node.hint if len(chain) > 1 else ""
    made = maker.back(products, chain)
    graph.replaced(chain[-1], made.source)

"""The cost of a group of nodes as one kernel, without a schedule: bytes by work items and levels, weighted work, launches.

It also chooses the axes that work items share out, and those that become loops, with their blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

from ngraph.op_graph.expr import Bin, Idx, Leaf, leaves
from ngraph.program.program import AxisId
from ngraph.targets.machine import Cpu
from ngraph.targets.products import DOTS, PRODUCTS
from ngraph.targets.tuning import (
    ASSUMED_SPREAD,
    COST_ROUNDING,
    MATRIX_SPEED,
    MAX_BLOCK_SIZES,
    MAX_ITEM_SECONDS,
    MAX_RECOMPUTED_COST,
    MAX_SPLIT_K,
    MAX_SPLIT_K_TIME,
    MIN_CONTIGUOUS_BLOCK,
    MIN_ITEM_ELEMENTS,
    MIN_ITEM_SECONDS,
    MIN_MATRIX_LENGTH,
    MIN_REREADS,
    MIN_TILE_ROWS,
    MIN_VECTOR_LENGTH,
    NEGLIGIBLE_SIZE,
    PLANNED_CORES,
    PREDICATED_READ_COST,
    PRODUCT_COST,
    SCATTERED_STORE_COST,
    SERIAL_TRAFFIC_COST,
)
from ngraph.tensors.contraction import operand_axes, vector_of
from ngraph.tensors.graph import PiecewisePart, TensorGraph, TensorNode
from ngraph.tensors.index import Load, Read, affine

Loops = tuple[tuple[AxisId, int], ...]


class AccessCost(NamedTuple):
    """The cost of a read: bytes of its source, its extent along each axis, and its contiguity.

    spans   for each axis of the source: its length, and ((axis, step) ...) where the index is affine
    flow    ((axis, elements) ...): the number of contiguous elements along an axis
    whole   bytes of its source that it reads in all
    """

    bytes: int
    spans: tuple[tuple[int, tuple[tuple[AxisId, int], ...] | None], ...]
    flow: tuple[tuple[AxisId, float], ...]
    whole: int


class Facts(NamedTuple):
    """The facts of a graph that costs depend on.

    length      of each axis, a guess for those that are `open`
    parameters  which reads find parameters
    users       who reads a node; `number` is its place in the order
    work        vector instructions of nodes, as far as asked for
    matrices    the products that the machine takes in registers of matrices
    """

    length: dict[AxisId, int]
    open: frozenset[AxisId]
    parameters: Callable[[Read], bool]
    users: Mapping[TensorNode, tuple[TensorNode, ...]]
    number: Mapping[TensorNode, int]
    work: dict[TensorNode, float]
    matrices: frozenset[str]

    @staticmethod
    def of(graph: TensorGraph, machine: Cpu) -> Facts:
        """Returns the facts of a graph, before any cost is computed."""
        matrices = frozenset([op for op in DOTS if machine.matrix(op) is not None])
        open_ = frozenset([a for a in graph.axes if graph.known(a) is None])
        return Facts(graph.guesses, open_, graph.parameters, graph.users, graph.number, {}, matrices)

    def is_factor(self, n: TensorNode) -> bool:
        """Whether it is a product that is only summed."""
        return n.op in PRODUCTS and n.kind == "elem" and len(self.users[n]) == 1 and self.users[n][0].kind == "reduce"

    def weight(self, n: TensorNode) -> float:
        """Vector instructions of one operation: a product that is only summed is half of a fused multiply-add, and so is its sum."""
        if n.kind == "reduce":
            arg = n.args[0]
            product = type(arg) is Read and isinstance(arg.source, TensorNode) and self.is_factor(arg.source)
            return self.half(arg.source, n) if product else n.weight  # type: ignore[union-attr]  # its source is a node
        return self.half(n, self.users[n][0]) if self.is_factor(n) else n.weight

    def half(self, product: TensorNode, total: TensorNode) -> float:
        """Vector instructions of a product, or of its sum: less in registers of matrices, if factors have rows and lanes to fill them."""
        reads = [r for r in product.args if type(r) is Read]
        if product.op not in self.matrices or len(reads) != 2:
            return PRODUCT_COST / 2
        own = [[a for a in total.axes if a in x.axes and a not in y.axes] for x, y in (reads, reads[::-1])]
        fills = all(max([self.length[a] for a in axes], default=1) >= MIN_MATRIX_LENGTH for axes in own)
        return PRODUCT_COST / 2 / (MATRIX_SPEED if fills else 1)


class FusionGroup:
    """Nodes that may become one kernel. All lists are in the order of the nodes."""

    __slots__ = (
        "nodes set inner outer results recomputed bound shared cut cuts level stage_of kept seconds loops facts length open widest work "
        "loads stores again slack slack_alone largest products parameters"
    ).split()

    loads: dict[Any, float]
    stores: dict[TensorNode, float]

    def __init__(self, nodes: Iterable[TensorNode], facts: Facts):
        self.nodes = sorted(nodes, key=facts.number.__getitem__)
        self.set = set(self.nodes)
        self.facts, self.length, self.open, self.parameters = facts, facts.length.__getitem__, facts.open, facts.parameters
        self.link()
        self.recomputed = self._recomputed()
        self.bound = [n for n in self.nodes if n not in self.recomputed] if self.recomputed else self.nodes
        self.widest = max(self.bound, key=lambda n: (n.size, -facts.number[n]))
        self.shared, self.cut = self._shared()
        known = facts.work
        self.work = sum([known[n] if n in known else known.setdefault(n, n.size * facts.weight(n)) for n in self.nodes])
        self.seconds, self.loops = 0.0, ()  # type: float, Loops
        self.again: dict[Any, float] = {}  # seconds of reading a source again, in later passes
        self.cuts: tuple[TensorNode, ...] = ()  # the reductions that only work items together finish

    def follow(self, became: Mapping[TensorNode, TensorNode], facts: Facts) -> None:
        """Goes over to another version of the graph: that of each node."""
        self.facts, self.length, self.open, self.parameters = facts, facts.length.__getitem__, facts.open, facts.parameters
        if all(became[n] is n for n in self.nodes) and all(became.get(s, s) is s for s in self.loads):
            return
        self.nodes, self.bound = [became[n] for n in self.nodes], [became[n] for n in self.bound]
        self.set, self.recomputed = set(self.nodes), {became[n] for n in self.recomputed}
        self.widest, self.cuts = became[self.widest], tuple([became[n] for n in self.cuts])
        self.loads = {became.get(s, s): seconds for s, seconds in self.loads.items()}
        self.again = {became.get(s, s): seconds for s, seconds in self.again.items()}
        self.stores = {became[n]: seconds for n, seconds in self.stores.items()}
        self.link()

    def link(self) -> None:
        """Records the reads between the nodes and from outside, and the nodes with users outside."""
        inside, users = self.set, self.facts.users
        self.inner: list[tuple[TensorNode, TensorNode, Read]] = []
        self.outer: list[tuple[TensorNode, Read]] = []
        for n in self.nodes:
            for r in n.reads:
                if r.source in inside:
                    self.inner.append((r.source, n, r))
                else:
                    self.outer.append((n, r))
        self.results = [n for n in self.nodes if n.result or not inside.issuperset(users[n])]

    def _recomputed(self) -> set[TensorNode]:
        """Returns producers cheap enough to recompute in every work item, so that they do not constrain the loops."""
        self.largest = max([n.size for n in self.nodes])
        small = _recomputable(self.largest)
        found, kept = set[TensorNode](), set(self.results)  # kept: what has only the work item's own part, and what is made of that
        for n in self.nodes:
            if n.size <= small and n.kind in ("elem", "reduce"):
                if not any(r.source in self.set and r.source not in found for r in n.reads):
                    found.add(n)
                    if n.kind == "reduce" or any(r.source in kept for r in n.reads):
                        kept.add(n)
        if not found:
            return found
        lost = {p for p, _, r in self.inner if p in found and p in kept and len(r.identity_indexed) < len(r.index)}
        if lost:
            for n in self.nodes:
                if n in found and (n in lost or any(r.source in self.set and r.source not in found for r in n.reads)):
                    found.remove(n)
        wanted: set[TensorNode] = set()  # what others in here read: the rest gains nothing from being here
        for n in reversed(self.nodes):
            if n not in found or n in wanted:
                wanted.update([r.source for r in n.reads if r.source in found])
        return found & wanted

    def _shared(self) -> tuple[tuple[AxisId, ...], tuple[AxisId, ...]]:
        """Returns the axes that every work item may fix: all nodes iterate over them, and all reads inside are at the same index.

        Separately: the axes of a reduction that no node here reads; a work item has only a part of such a sum.
        """
        shared, reduced = set(self.bound[0].loopable), set[AxisId]()
        recomputed = self.recomputed
        for n in recomputed:
            shared.difference_update(n.reduced)
        for n in self.results:  # along an axis of open length there may be no work item, and then nobody would store it
            if n in recomputed:
                shared.difference_update(self.open - n.space)
        shared.intersection_update(
            *[n.loopable for n in self.bound], *[r.identity_indexed for p, _, r in self.inner if p not in recomputed]
        )
        cost: dict[TensorNode, float] = {}
        for n in [n for n in self.nodes if n in recomputed]:
            cost[n] = n.weight + sum([cost.get(r.source, 1) for r in n.reads])
        for p, _, r in self.inner:
            if p in recomputed and cost[p] > MAX_RECOMPUTED_COST:  # it may be stored: then a work item has only its own part of it
                shared.difference_update(p.space - r.identity_indexed)
        reduced.update(*[n.reduced for n in self.bound])
        order = [a for a in (*self.widest.axes, *self.widest.reduced) if a in shared and not (a in reduced and a in self.open)]
        return tuple([a for a in order if a not in reduced]), tuple([a for a in order if a in reduced])

    @property
    def divisible(self) -> dict[AxisId, int]:
        """The axes that work items can share out however long open lengths are, open ones or else known ones, and their least blocks."""
        whole = {n.axes[-1] for n in self.results if n.axes}  # along these, work items leave lines of the cache whole
        blocks = {a: MIN_CONTIGUOUS_BLOCK if a in whole else 1 for a in self.shared}
        open_ = {a: b for a, b in blocks.items() if a in self.open}
        return open_ or {a: b for a, b in blocks.items() if self.length(a) >= PLANNED_CORES * b}

    def keeps(self, other: FusionGroup) -> bool:
        """Whether the work items of another group can be those of this one."""
        return all(a in self.shared or a in self.cut for a, _ in other.loops)

    def measure(self, m: Cpu) -> None:
        """Computes its products; its least traffic, in seconds by source and by result; and the part of its cost beyond what is sure.

        slack        beyond least traffic and work on all cores
        slack_alone  beyond the same of a single work item
        """
        whole: dict[Any, int] = {}
        for _, r in self.outer:
            whole[r.source] = max(whole.get(r.source, 0), self.touched(r, {}))
        self.loads = {s: _moving(m, size) for s, size in whole.items()}
        self.stores = {n: 2 * _moving(m, n.bytes) for n in self.results}
        self.products = sum([n.kind == "reduce" and self.facts.weight(n) < 1 for n in self.nodes])
        traffic, work = sum(self.loads.values()) + sum(self.stores.values()), self.work / m.speed
        self.slack = self.seconds - traffic - work / PLANNED_CORES
        self.slack_alone = self.seconds - SERIAL_TRAFFIC_COST * traffic - work

    # levels
    def levels(self) -> None:
        """Computes the level of each node: 2k at every index of pass k, 2k + 1 on its finished accumulators; and the values to store."""
        level: dict[TensorNode, int] = {}
        stage_of: dict[TensorNode, tuple[object, ...]] = {}
        kept: set[TensorNode] = set()
        cost: dict[TensorNode, float] = {}
        shared, spread, users = frozenset(self.shared), self._broadcast_consumers(), self.facts.users
        for n in self.nodes:
            mine, ends, total = 0, [], float(n.weight)
            for r in n.reads:
                p = r.source
                if p not in self.set:
                    total += 1
                    continue
                at = level[p]
                same = len(r.identity_indexed) == len(r.index)
                if at % 2:
                    total += 1
                    if n.kind == "elem" and same and len(n.space) == len(p.axes) and not n.turned:
                        ends.append((at, p))
                    else:
                        at += 1
                elif p.kind == "join":
                    at += 2
                else:
                    summed = n.kind == "reduce" or any(u.kind == "reduce" for u in users[n])
                    again = n.size >= MIN_REREADS * p.size and p.weight > 0 and summed
                    expensive = cost[p] > MAX_RECOMPUTED_COST and (not same or (p, n) in spread)
                    rides = p in self.recomputed
                    if (again and expensive) if rides else (again or expensive):
                        kept.add(p)
                        at += 2
                        total += 1
                    else:
                        total += cost[p]
                if at > mine:
                    mine = at
            if n.kind == "reduce":
                mine += 2 if mine % 2 else 1
                apart = self.facts.number[n] if self._rereads(n, shared) else -2 if n in self.recomputed else -1
                stage_of[n] = (mine, frozenset(n.axes), frozenset(n.reduced), apart)
            elif mine % 2:
                homes = {stage_of[p] for at, p in ends if at == mine}
                if len(homes) > 1 or self._again(n, [p for at, p in ends if at == mine]):
                    mine += 1
                else:
                    (stage_of[n],) = homes
            level[n], cost[n] = mine, total
        for p, n, r in self.inner:
            if level[p] % 2:
                if self.stored_by(n, p, r):
                    continue
                if stage_of.get(n) != stage_of[p] or n.kind == "reduce":
                    kept.add(p)
            elif cost[p] > MAX_RECOMPUTED_COST and level[n] - level[p] > 1 and p not in self.recomputed:
                kept.add(p)
        self.level, self.stage_of, self.kept = level, stage_of, kept

    def stored_by(self, n: TensorNode, p: TensorNode, r: Read) -> bool:
        """Whether a stage that makes p can store it as a part of the array n right away: it is all that becomes of it."""
        if (
            n.kind != "join"
            or not n.disjoint
            or len(self.facts.users[p]) > 1
            or p.result
            or r.predicate
            or len(r.identity_indexed) < len(r.index)
        ):
            return False
        return any(part.arg is r and frozenset(part.axes) == frozenset(p.axes) and not part.predicate for part in n.parts)

    def _broadcast_consumers(self) -> set[tuple[TensorNode, TensorNode]]:
        """Returns edges where a value is broadcast before a use elsewhere: the smaller one is kept if little work is left."""
        found: set[tuple[TensorNode, TensorNode]] = set()
        for m in dict.fromkeys([p for p, _, r in self.inner if p.kind == "elem" and len(r.identity_indexed) < len(r.index)]):
            todo, seen, edges, left = [m], {m}, [], 0.0
            while todo and left <= MAX_RECOMPUTED_COST:
                n = todo.pop()
                left += n.weight
                for r in n.reads:
                    p = r.source
                    if p not in self.set or p.kind != "elem" or len(r.identity_indexed) < len(r.index):
                        left += 1
                    elif n.size >= 2 * p.size:
                        edges.append((p, n))
                        left += 1
                    elif p not in seen:
                        seen.add(p)
                        todo.append(p)
            if left <= MAX_RECOMPUTED_COST:
                found.update(edges)
        return found

    def _again(self, n: TensorNode, ends: list[TensorNode]) -> bool:
        """Whether a cheap value of stored accumulators is only reduced: each reduction recomputes it, and it is not stored."""
        if n.weight > MAX_RECOMPUTED_COST or n.result or not all(u.kind == "reduce" and u in self.set for u in self.facts.users[n]):
            return False
        return all(p.result or not self.set.issuperset(self.facts.users[p]) for p in ends)

    def _rereads(self, n: TensorNode, shared: frozenset[AxisId]) -> bool:
        """Whether operands of a reduction are read again for each index of a free axis: it then wants a stage, with registers, for itself.

        This holds for two operands, as in a matrix product, or for one along an axis that work items do not share out.
        """
        (arg,) = n.args
        p = arg.source if type(arg) is Read else None
        if p not in self.set:
            return False
        lacking = {o: {a for a in n.axes if a not in o.axes and self.length(a) >= MIN_REREADS} for o in p.reads}
        if any(x - y and y - x for x in lacking.values() for y in lacking.values()):
            return True
        return any(not lacks <= shared for o, lacks in lacking.items() if o.source not in self.set)

    def part(self, axes: Iterable[AxisId], fixed: Mapping[AxisId, int]) -> int:
        """Returns the number of elements along these axes in one work item."""
        n = 1
        for a in axes:
            n *= fixed[a] if a in fixed else self.length(a)
        return n

    def walk(self, r: Read) -> AccessCost:
        """Returns the cost of a read, cached."""
        if r.walk is None:
            axes = r.source.axes
            spans = []
            for a in axes:
                form = affine(r.index[a])
                spans.append((self.length(a), None if form is None else tuple([(x, abs(k)) for x, k in form[0].items()])))
            size = math.prod([n for n, _ in spans]) * (r.source.dtype.bits // 8)
            r.walk = AccessCost(size, tuple(spans), tuple(self._flow(r)), self._part(r, spans, {}))
        return r.walk

    def _flow(self, r: Read) -> Iterable[tuple[AxisId, float]]:
        """Yields the axes along which a read moves in its source's last one, with the elements; a step of k counts as the k-th part."""
        axes = r.source.axes
        form = affine(r.index[axes[-1]]) if axes and axes[-1] in r.index else None
        for a, k in form[0].items() if form else ():
            if 0 < k <= 4:
                yield a, self.part(r.axes, {}) * min(1.0, self.length(a) / MIN_VECTOR_LENGTH) / k

    def least_seconds(self, m: Cpu) -> float:
        """Returns the seconds that one core takes for the work, or for what comes from memory and goes there, whichever is more."""
        moved = sum([n.bytes for n in self.results]) + sum({r.source: self.walk(r).bytes for _, r in self.outer}.values())
        return max(self.work / m.speed, moved / m.memory_bandwidth)

    def touched(self, r: Read, fixed: Mapping[AxisId, int]) -> int:
        """Returns the bytes of its source that a read needs in one work item."""
        walk = r.walk or self.walk(r)
        return walk.whole if r.axes.isdisjoint(fixed) else self._part(r, walk.spans, fixed)

    def _part(self, r: Read, spans: Iterable[Any], fixed: Mapping[AxisId, int]) -> int:
        n, whole = 1, True
        for length, moves in spans:
            if moves is None:
                n *= length
                whole = False
                continue
            far = 1
            for a, k in moves:
                far += k * ((fixed[a] if a in fixed else self.length(a)) - 1)
            n *= far if far < length else length
        if not whole:
            n = min(n, self.part(r.axes, fixed))
        return n * (r.source.dtype.bits // 8)


def vector_axis(g: FusionGroup) -> AxisId | None:
    """Returns the axis along which most bytes are contiguous; a product with parameters, which can be packed, has no preference."""
    score: dict[AxisId, float] = {}
    for n, r in g.outer:
        summed = g.facts.users[n][0].reduced if g.facts.is_factor(n) and any(map(g.parameters, n.reads)) else ()
        for a, elements in g.walk(r).flow:
            if a not in summed:
                score[a] = score.get(a, 0) + elements
    for n in g.results:
        if n.axes:
            a = n.axes[-1]
            score[a] = score.get(a, 0) + g.part(n.axes, {}) * min(1.0, g.length(a) / MIN_VECTOR_LENGTH)
    return max(score, key=lambda a: score[a]) if score else None


class CostTable:
    """A cache of groups with their costs. Structurally equal groups, such as the layers of a network, are evaluated once."""

    def __init__(self, machine: Cpu, facts: Facts):
        self.machine, self.facts = machine, facts
        self.templates: dict[Any, int] = {}
        self.known: dict[Any, tuple[float, list[tuple[int, int]], list[int], list[tuple[int, float]]]] = {}
        self.signs: dict[TensorNode, tuple[int, tuple[Any, ...]]] = {}
        self.cutting = True  # reductions may be split

    def cut_no_more(self, facts: Facts) -> None:
        """From here on, in this version of the graph, sums stay whole: nothing would put their parts together."""
        if facts is not self.facts:
            self.facts, self.signs = facts, {}
        self.cutting, self.known = False, {key: found for key, found in self.known.items() if not found[2]}

    def most(self, a: FusionGroup, b: FusionGroup, closely: bool = False) -> float:
        """Returns an upper bound of a merge's saving: common reads, reads of each other and stores that it avoids, a launch.

        closely: with a look at all nodes, for whether anything but a single work item is possible.
        """
        users = self.facts.users
        saved = sum([min(a.loads[s], b.loads[s]) for s in a.loads.keys() & b.loads.keys()])
        for maker, reader in ((a, b), (b, a)):
            for n in reader.loads.keys() & maker.stores.keys():
                saved += reader.loads[n]
                if not n.result and all(u in maker.set or u in reader.set for u in users[n]):
                    saved += maker.stores[n]
        fixed = COST_ROUNDING * (a.seconds + b.seconds) - self.machine.launch
        if _alone(a.work + b.work, max(a.largest, b.largest)) or (closely and _indivisible(a, b)):
            again = _still_again(a, b) if closely and (a.again or b.again) else 0.0
            return a.slack_alone + b.slack_alone + SERIAL_TRAFFIC_COST * saved + fixed - again
        return a.slack + b.slack + saved + fixed

    def seconds(self, nodes: list[TensorNode]) -> float:
        """Returns the seconds of the kernel of these nodes, in order."""
        key, numbers = self.key(nodes)
        if key not in self.known:
            self.learn(key, numbers, price(FusionGroup(nodes, self.facts), self.machine, self.cutting))
        return self.known[key][0]

    def group(self, nodes: Iterable[TensorNode]) -> FusionGroup:
        """Returns these nodes as a group, with its cost."""
        g = FusionGroup(nodes, self.facts)
        key, numbers = self.key(g.nodes)
        if key not in self.known:
            self.learn(key, numbers, price(g, self.machine, self.cutting))
        g.seconds, loops, cuts, again = self.known[key]
        names = list(numbers) if loops or again else []
        g.loops, g.cuts = tuple([(names[a], b) for a, b in loops]), tuple([g.nodes[k] for k in cuts])
        g.again = {names[s]: seconds for s, seconds in again}
        return g

    def learn(self, key: Any, numbers: dict[Any, int], g: FusionGroup) -> None:
        cuts = [k for k, n in enumerate(g.nodes) if n in g.cuts]
        self.known[key] = g.seconds, [(numbers[a], b) for a, b in g.loops], cuts, [(numbers[s], t) for s, t in g.again.items()]

    def key(self, nodes: list[TensorNode]) -> tuple[Any, dict[Any, int]]:
        """Returns everything that a cost depends on, with axes and sources numbered in order of appearance; and the numbers."""
        signs, inside, users = self.signs, set(nodes), self.facts.users
        found = [signs.get(n) or self.sign(n) for n in nodes]
        names = list(chain.from_iterable([own for _, own in found]))
        numbers = {x: k for k, x in enumerate(dict.fromkeys(names))}
        leaves = [n.result or not inside.issuperset(users[n]) for n in nodes]
        return (tuple([template for template, _ in found]), tuple(leaves), tuple(map(numbers.__getitem__, names))), numbers

    def sign(self, n: TensorNode) -> tuple[int, tuple[Any, ...]]:
        """Returns a number shared by nodes that differ in axes and sources only; its axes, its sources and itself."""
        own: dict[AxisId, int] = {}

        def number(axes: Iterable[AxisId]) -> tuple[int, ...]:
            return tuple([own.setdefault(a, len(own)) for a in axes])

        def form(e: Any) -> Any:
            """Returns an index with its axes as numbers."""
            if type(e) is Bin:
                return e.op, form(e.a), form(e.b)
            if type(e) is Load:
                return Load, tuple(sorted(number(e.of.axes))) if type(e.of) is Read else ()
            return (type(e), own.setdefault(e.of, len(own))) if isinstance(e, Leaf) else e

        parts: list[Any] = [
            n.kind,
            n.op,
            n.dtype.bits,
            self.facts.weight(n),
            n.once,
            number(n.axes),
            number(n.reduced),
            tuple(sorted(number(n.loopable))),
        ]
        for r in n.reads:
            index = tuple([form(r.index[a]) for a in r.source.axes]) if r.index else ()
            still = self.facts.parameters(r)
            parts.append((r.source.dtype.bits, number(r.source.axes), index, bool(r.predicate), tuple(sorted(number(r.axes))), still))
        parts += [n.disjoint, len(self.facts.users[n]) > 1, n.result, tuple([number(p.axes) for p in n.parts])]
        for p in n.parts:
            if (computed := _computed_axes(p)) is not None:
                parts.append((tuple(sorted(number(computed))), tuple(sorted(number(_own_places(p))))))
        lengths = tuple([(self.facts.length[a], a in self.facts.open) for a in own])
        template = self.templates.setdefault((tuple(parts), lengths), len(self.templates))
        self.signs[n] = made = template, (*own, *[r.source for r in n.reads], n)
        return made


class _Choice:
    """The choice of shared axes that become loops, and of their blocks: for locality first, then for enough work items to share out.

    short     open lengths as short as there should still be enough work items
    assumed   those lengths while it counts with them
    """

    def __init__(self, g: FusionGroup, m: Cpu, cut: tuple[AxisId, ...]):
        self.g, self.m, self.cut = g, m, cut
        self.loops: dict[AxisId, int] = {}
        self.assumed: dict[AxisId, int] = {}
        self.short = {a: max(1, g.length(a) // ASSUMED_SPREAD) for a in g.widest.space & g.open}
        self.work_items = self.chunks = 1
        held = [n for n in g.nodes if n.kind == "join" and not n.inline and n not in g.results]
        joined = [n for n in held if not g.open.isdisjoint(n.axes)]  # these may be far longer than is assumed
        self.scattered = [n for n in held if n not in joined and any(_computed_axes(p) is not None for p in n.parts)]
        self.crossing = [*[n for n in g.kept if n.kind != "join" and not n.result], *joined]
        fed: set[Any] = set()  # operands of sums
        for n in reversed(g.nodes):
            if n.kind == "reduce" or (n in fed and n.kind == "elem"):
                fed.update([r.source for r in n.reads])
        reads = [r for n, r in g.outer if n in fed or n.kind == "reduce"]
        least = m.usable_l2 // 4  # a single dim is in the cache anyway
        self.heavy = [r for r in reads if g.walk(r).bytes > (NEGLIGIBLE_SIZE // 2 if len(r.axes) > 1 else least)]
        self.v = vector_axis(g)
        self.last = {n.axes[-1] for n in (*g.results, *self.crossing) if len(n.axes) > 1 or {*n.axes} == g.widest.space != set()}
        self.last |= {r.source.axes[-1] for r in self.heavy if r.source.axes}
        self.last |= {a for s, a in _vectors(g, m, {}).items() if not s.result}  # transposed later, maybe

    def length(self, a: AxisId) -> int:
        return self.assumed[a] if a in self.assumed else self.g.length(a)

    def take(self, a: AxisId, block: int) -> None:
        """Makes a loop of an axis, if that gives several work items."""
        n = self.g.length(a)
        if a in self.cut:
            most = max(MAX_SPLIT_K, 4 * PLANNED_CORES) // self.chunks
            step = MIN_VECTOR_LENGTH if a == self.v or a in self.last else 1
            block = max(block, -(-n // most // step) * step) if most else n
        if block < n:
            self.loops[a] = block
            self.work_items *= -(-self.length(a) // block)
            if a in self.cut:
                self.chunks *= -(-n // block)

    def held(self, n: TensorNode) -> int:
        """Returns the bytes of a value that a work item holds."""
        return 4 * sum([self.g.part(axes, self.loops) for axes in ([p.axes for p in n.parts] if n.kind == "join" else [n.axes])])

    def shared_out(self) -> tuple[float, float]:
        """Returns how many cores the work items keep busy, and the times that their traffic takes, more where one core does all.

        Both are means of guessed and short lengths, where some are open.
        """
        busy, slower = [], []
        for assumed in [{}, self.short] if self.short else [{}]:
            places = [(assumed[a] if a in assumed else self.g.length(a), b) for a, b in self.loops.items()]
            items = math.prod([-(-n // b) for n, b in places])
            pieces = math.prod([max(n / b, 1.0) for n, b in places])  # work items, the last ones by their actual size
            busy.append(min(PLANNED_CORES * items / (items + PLANNED_CORES - 1), pieces))
            slower.append(SERIAL_TRAFFIC_COST if items < PLANNED_CORES else 1.0)
        return sum(busy) / len(busy), sum(slower) / len(slower)

    def locals(self) -> int:
        return sum(map(self.held, self.crossing))

    def near(self) -> int:
        """Returns the bytes that a work item uses at once: values between stages; its part of shared sources, and of results."""
        g = self.g
        several = len(set(g.stage_of.values())) + any(n.kind == "elem" for n in g.results) > 1
        if not several or max([g.walk(r).bytes for _, r in g.outer], default=0) <= self.m.usable_l3 // 4:
            return self.locals()
        parts: dict[Any, int] = {}
        for _, r in g.outer:
            if not r.axes.isdisjoint(self.loops):
                parts[r.source] = max(parts.get(r.source, 0), g.touched(r, self.loops))
        return self.locals() + sum(parts.values()) + sum([self.held(n) for n in g.results if n.kind != "reduce"])

    def divides(self, a: AxisId) -> bool:
        """Whether shorter work items along an axis leave partial sums that fit in the last-level cache."""
        if a not in self.cut:
            return True
        parts = 2 * self.chunks * sum([n.bytes for n in self.g.nodes if a in n.reduced])
        return self.chunks <= 4 * MAX_SPLIT_K and parts <= self.m.usable_l3 // 4

    def halve(self, a: AxisId) -> None:
        """Halves the work items along an axis, to equal lengths if a nearby block allows it."""
        n = self.g.length(a)
        b = self.loops.get(a, n)
        half = -(-b // 2)
        made = next((k for k in range(half, min(b, half + MAX_BLOCK_SIZES)) if n % k == 0), half)
        before, after = -(-n // b), -(-n // made)
        self.loops[a], self.work_items = made, self.work_items // before * after
        if a in self.cut:
            self.chunks = self.chunks // before * after

    def wanted(self) -> int:
        """Returns the number of work items that the work justifies."""
        g = self.g
        return wanted_items(g.least_seconds(self.m) * math.prod([n / g.length(a) for a, n in self.assumed.items()]), PLANNED_CORES)

    def choose(self) -> None:
        g, m = self.g, self.m
        if _alone(g.work, g.widest.size):
            return
        axes = [a for a in (*g.shared, *g.cut) if a in g.shared or a in self.cut]
        axes.sort(key=[*g.widest.axes, *g.widest.reduced].index)
        clean = [a for a in axes if all(a in r.axes for r in self.heavy)]
        rest = [a for a in axes if a not in clean]
        v, long = self.v, {a for a in axes if g.length(a) >= 2 * MIN_CONTIGUOUS_BLOCK}
        whole = self.last if not (self.crossing or self.heavy) else set[AxisId]()  # along these, cache lines are stored whole
        for assumed in ([self.short] if self.short else []) + [{}]:
            self.assumed = assumed
            self.work_items = math.prod([-(-self.length(a) // b) for a, b in self.loops.items()])
            want, last = self.wanted(), list[AxisId]()
            for a in sorted([a for a in clean if a != v and g.length(a) > 1 and a not in self.loops], key=whole.__contains__):
                if not self.crossing and self.work_items >= want:
                    break
                if a in whole and a not in long and v in clean and v in long - whole:
                    last.append(a)
                else:
                    self.take(a, max(self.grain(a, want), MIN_CONTIGUOUS_BLOCK) if a in whole & long else self.grain(a, want))
            if v in clean and v not in self.loops:
                if self.crossing and g.length(v) > MIN_CONTIGUOUS_BLOCK and self.locals() > m.usable_l1:
                    self.take(v, MIN_CONTIGUOUS_BLOCK)
                else:
                    last.append(v)
            rest = [a for a in dict.fromkeys((*rest, *last)) if a not in self.loops]
            some = [a for a in rest if self.length(a) > 1]
            while self.work_items < want and some:
                a = min(some, key=self.loss)
                some.remove(a)
                rest.remove(a)
                self.take(a, self.block(a, -(-want // self.work_items), rest))
        for a in rest:
            if a != v and self.locals() > m.usable_l2 // 3 and g.length(a) > 32:
                self.take(a, 32)
        self.shorten([*self.loops], m.usable_l2)
        before = dict(self.loops), self.work_items, self.chunks
        self.shorten(axes, 2 * m.usable_l2)  # where that was not enough, along others
        if self.near() > 2 * m.usable_l2:  # without success
            self.loops, self.work_items, self.chunks = before
        still = [r for r in self.heavy if g.parameters(r)]
        if still and len(self.loops) > 1 and sum({r.source: g.touched(r, {}) for r in still}.values()) <= m.usable_l2 // 2:
            common = {a for r in still for a in r.axes}  # each core keeps all parameters, so that variable data need not move between cores
            self.loops = dict(sorted(self.loops.items(), key=lambda loop: loop[0] in common))

    def shorten(self, axes: list[AxisId], room: int) -> None:
        """Shortens work items along some of these axes until values between stages, and repeated reads, fit in `room` bytes."""
        while self.near() > room:
            least = 1 if self.locals() > self.m.usable_l2 else MIN_TILE_ROWS // 2
            blocks = {a: self.loops.get(a, self.g.length(a)) for a in axes if a != self.v and a not in self.last}
            large = [a for a, b in blocks.items() if b > least and self.divides(a)]
            if not large:
                break
            self.halve(max(large, key=blocks.__getitem__))

    def grain(self, a: AxisId, want: int) -> int:
        """Returns the block: single steps, or enough for a work item to be worth its start, with equal blocks."""
        n, elements = self.length(a), math.prod([self.length(x) for x in self.g.widest.space]) // self.work_items
        each = min(-(-MIN_ITEM_ELEMENTS * n // max(elements, 1)), -(-n * self.work_items // want))
        return -(-n // -(-n // max(each, 1)))

    def loss(self, a: AxisId) -> tuple[bool, int]:
        """Returns the bytes that are read again, or stored in parts, if an axis is cut."""
        g = self.g
        lacking = sum([g.touched(r, self.assumed) for r in self.heavy if a not in r.axes])
        if a in self.cut:
            lacking += sum([4 * n.bytes for n in g.nodes if a in n.reduced])
        return a in self.last and g.length(a) < 2 * MIN_CONTIGUOUS_BLOCK, lacking

    def panel(self, a: AxisId) -> int:
        """Returns the number of steps along an axis for which a reduction's operands fit in half of the second-level cache."""
        g = self.g
        again = [r for r in self.heavy if a in r.axes and any(x not in r.axes and g.length(x) > 1 for x in g.widest.axes)]
        one = sum([g.touched(r, {**self.loops, a: 1}) for r in again])
        return self.m.usable_l2 // 2 // one if one else g.length(a)

    def block(self, a: AxisId, pieces: int, rest: list[AxisId]) -> int:
        """Returns the length of one of about `pieces` blocks: whole panels of a contiguous axis, else one that suits a register tile."""
        n = self.length(a)
        each = -(-n // pieces)
        if a in self.last or a == self.v:
            panel, least = self.panel(a), 2 * MIN_VECTOR_LENGTH
            leaves = least <= 2 * panel < MIN_CONTIGUOUS_BLOCK  # what the longer step reads does not stay in the cache for other rows
            halved = leaves and any(a in r.axes and self.g.parameters(r) for r in self.heavy)
            step = MIN_CONTIGUOUS_BLOCK if n >= 2 * MIN_CONTIGUOUS_BLOCK and not halved else least
            most = max(min(-(-each // step), panel // step), 1)
            apart = step * -(-most // MAX_BLOCK_SIZES)
            return min([*range(most * step, 0, -apart), least], key=lambda size: self.longest(n, size))
        short = a in self.g.open and n < MIN_TILE_ROWS  # it stays whole, unless others give a tile its rows; summed ones do not
        summed = {x for n in self.g.nodes for x in n.reduced} if short else set()
        others = [x for x in self.g.widest.axes if x not in self.loops and x not in (a, self.v) and x not in summed]
        again = [r for r in self.heavy if a not in r.axes] if a in self.assumed else []
        if again:
            each = max(each, -(-MIN_TILE_ROWS // self.rows(again, others)))
        elif a not in self.cut and self.heavy and not any(self.g.length(x) >= MIN_TILE_ROWS for x in others):
            each = max(each, MIN_TILE_ROWS)
        return next((k for k in range(each, min(2 * each, n + 1, each + MAX_BLOCK_SIZES)) if n % k == 0), each)

    def rows(self, reads: list[Read], axes: list[AxisId]) -> int:
        """Returns the places along other open axes that share each of these reads, halfway to short lengths; 1 if all cores have work."""
        if self.work_items >= PLANNED_CORES:
            return 1
        halfway = {x: math.isqrt(n * self.g.length(x)) for x, n in self.assumed.items() if x in axes}
        return min([math.prod([n for x, n in halfway.items() if x not in r.axes]) for r in reads])

    def longest(self, n: int, block: int) -> float:
        """Returns the least possible share of the busiest core, for an axis split into such blocks; rounded, to make ties."""
        whole, left = divmod(n, block)
        items = self.work_items * (whole + (left > 0))
        return round(-(-items // PLANNED_CORES) * block / n / self.work_items, 1)


def wanted_items(seconds: float, cores: int) -> int:
    """Returns the number of work items for a kernel of so many seconds on one core: four for each core, more for long ones."""
    return math.ceil(max(min(4 * cores, seconds / MIN_ITEM_SECONDS), min(16 * cores, seconds / MAX_ITEM_SECONDS)))


def price(g: FusionGroup, m: Cpu, cutting: bool = True) -> FusionGroup:
    """Computes the loops and the seconds of the group as one kernel, with reductions split if that is profitable."""
    g.levels()
    _cost_of(g, m, ())
    if g.cut and cutting:
        before = g.seconds, g.loops, g.cuts, g.again
        _cost_of(g, m, g.cut)
        if not g.cuts or g.seconds >= MAX_SPLIT_K_TIME * before[0]:
            g.seconds, g.loops, g.cuts, g.again = before
    return g


def _cost_of(g: FusionGroup, m: Cpu, cut: tuple[AxisId, ...]) -> None:
    choice = _Choice(g, m, cut)
    choice.choose()
    fixed, items, local = choice.loops, choice.work_items, choice.locals()
    if not fixed:
        local += sum(map(choice.held, choice.scattered))
    sources: dict[object, list[tuple[TensorNode, Read]]] = {}
    for n, r in g.outer:
        sources.setdefault(r.source, []).append((n, r))
    parts = {s: max([g.touched(r, fixed) for _, r in reads]) for s, reads in sources.items()}
    foot = sum(parts.values()) + local
    traffic = anew = 0.0  # seconds
    g.again = {}
    for s, reads in sources.items():
        size = max([g.touched(r, {}) for _, r in reads])
        passes = len({g.level[n] // 2 for n, _ in reads})
        traffic += _moving(m, size)
        if passes > 1:
            g.again[s] = size * (passes - 1) / (_rate(m, size) if foot > m.usable_l2 else m.all_caches_bandwidth)
        run_once_apart = parts[s] * items
        if run_once_apart > size > m.usable_l1:
            anew += (run_once_apart - size) / (m.memory_bandwidth if size > m.usable_l3 else m.all_caches_bandwidth)
    cuts = tuple([n for n in g.nodes if any(a in fixed for a in n.reduced)]) if cut else ()
    for n in g.results:
        size = n.bytes * choice.chunks if n in cuts else n.bytes
        traffic += 2 * _moving(m, size)
    if local > m.usable_l2:
        traffic += 3 * local * items / m.memory_bandwidth
    predicated = {n for p, n, r in g.inner if r.predicate and p not in g.recomputed}
    work = g.work + sum([n.size * g.facts.weight(n) * (PREDICATED_READ_COST - 1) for n in g.nodes if n in predicated])
    work += (items - 1) * sum([n.size * g.facts.weight(n) for n in g.nodes if n in g.recomputed])
    work += SCATTERED_STORE_COST * m.lanes32 * _scattered(g, m, fixed)
    busy, slower = choice.shared_out()
    seconds = traffic * slower + sum(g.again.values()) + max(work / m.speed / busy, anew) + m.launch
    if not fixed and not g.open.isdisjoint(g.widest.space) and not g.divisible:
        seconds *= ASSUMED_SPREAD  # however long its lengths are in a call, one core does all
    g.loops, g.seconds, g.cuts = tuple(fixed.items()), seconds + (m.launch if cuts else 0), cuts


def loops_of_long_calls(g: FusionGroup, m: Cpu) -> Loops:
    """Returns the loop of a group that is one work item at the guessed lengths, in blocks that are worth a thread where lengths are longer.

    So all cores have work in a call that is far longer. There is none where no length is open, or no axis can be shared out.
    """
    blocks = g.divisible if not g.open.isdisjoint(g.widest.space) else {}
    if not blocks:
        return ()
    a = max([a for a in g.widest.axes if a in blocks], key=g.length)  # the first of the longest
    n, least = g.length(a), blocks[a]
    if a in g.open:
        seconds = g.least_seconds(m)
        places = max(n, math.ceil(MIN_ITEM_SECONDS * n / seconds) if seconds else 0)
    else:
        places = -(-n // PLANNED_CORES)
    return ((a, -(-places // least) * least),)


def _computed_axes(p: PiecewisePart) -> frozenset[AxisId] | None:
    """Returns the axes along which the computed places differ that a part of a join is written to; None where none is computed."""
    computed = [leaf.of for e in p.place.values() for leaf in leaves(e) if type(leaf) is Load]
    return frozenset[AxisId]().union(*[r.axes for r in computed]) if computed else None


def _own_places(p: PiecewisePart) -> list[AxisId]:
    """Returns the axes of which each index of a part of a join has a place of its own."""
    return [e.of for e in p.place.values() if type(e) is Idx]


def _scattered(g: FusionGroup, m: Cpu, loops: Mapping[AxisId, int]) -> int:
    """Returns the elements that are stored one by one.

    Of several results over one space, which are made in one loop, some have another last axis than that along which vectors lie. Several
    made of a sum of products, as an optimizer's update makes of a gradient, count where its vectors have elements in so few sets of the
    first cache that their lines drive each other out. A part of a join with computed places is stored so, unless they are the same along
    an axis of the join.
    """
    one_by_one = 0
    for n in g.nodes:
        for p in n.parts:
            computed = _computed_axes(p)
            if computed is not None:
                rows = [a for a in _own_places(p) if a not in computed and g.length(a) > 1]
                one_by_one += 0 if rows else math.prod([g.length(a) for a in p.axes])
    vectors = {g.stage_of[s]: a for s, a in _vectors(g, m, loops).items()} if len(g.results) > 1 else {}
    met: dict[Any, list[int]] = {}  # sizes of such results, by stage
    spaces: dict[frozenset[AxisId], dict[AxisId, int]] = {}
    for n in g.results:
        last = next((a for a in reversed(n.axes) if g.length(a) > 1), None) if n.kind == "elem" else None
        vector = vectors.get(g.stage_of[n]) if n in g.stage_of else None
        if last is not None and vector in n.axes:
            if _conflicts(g, m, n, vector, loops):
                met.setdefault(g.stage_of[n], []).append(n.size)
        elif last is not None:
            along = spaces.setdefault(n.space, {})
            along[last] = along.get(last, 0) + n.size
    one_by_one += sum([sum(sizes) for sizes in met.values() if len(sizes) > 1])
    return one_by_one + sum([sum(along.values()) - max(along.values()) for along in spaces.values()])


def _vectors(g: FusionGroup, m: Cpu, loops: Mapping[AxisId, int]) -> dict[TensorNode, AxisId]:
    """Returns the sums of products of which an operand lacks an axis of the result, and the axis along which their vectors lie."""
    found = {}
    known = {a: None if a in g.open else g.length(a) for a in g.widest.space}
    for n in g.nodes:
        if n.kind != "elem" or not g.facts.is_factor(n):
            continue
        (s,) = g.facts.users[n]
        if s not in g.set or not s.axes or all(r.axes.issuperset(s.axes) for r in n.reads):
            continue
        factors = [operand_axes(r, (*s.axes, *s.reduced), g.length, g.parameters(r)) for r in n.reads]
        last = next((r.axes[-1] for r in g.results if r.axes and r.space == s.space - {*s.reduced}), s.axes[-1])
        vector = vector_of(s.axes, factors, last, g.length, known.get, m.lanes32, loops)
        if vector is not None:
            found[s] = vector
    return found


def _conflicts(g: FusionGroup, m: Cpu, n: TensorNode, a: AxisId, loops: Mapping[AxisId, int]) -> bool:
    """Whether the elements of a result along an axis lie in so few sets of the first cache that it cannot hold the line of each."""
    apart = n.dtype.bits // 8 * math.prod([g.length(x) for x in n.axes[n.axes.index(a) + 1 :]])
    places = min(g.length(a), loops.get(a, g.length(a)))
    each = m.share_of_l1(apart)
    return each > m.line and places * each > m.usable_l1


def _alone(work: float, size: int) -> bool:
    """Whether so much work, on so many elements, is left to a single work item."""
    return max(work, size) < NEGLIGIBLE_SIZE


def _indivisible(a: FusionGroup, b: FusionGroup) -> bool:
    """Whether no axis could be shared out if both were one kernel: nodes that cannot be recomputed have none in common.

    Those are too large for it, or nothing in the kernel reads them.
    """
    small, users = _recomputable(max(a.largest, b.largest)), a.facts.users
    shared: frozenset[AxisId] | None = None
    for n in chain(a.nodes, b.nodes):
        if n.size > small or not any(u in a.set or u in b.set for u in users[n]):
            shared = n.loopable if shared is None else shared & n.loopable
            if not shared:
                return True
    return False


def _still_again(a: FusionGroup, b: FusionGroup) -> float:
    """Returns the seconds of reading sources again that stay where both become one kernel; 0 where its passes could be others."""
    if not (a.loads.keys().isdisjoint(b.stores) and b.loads.keys().isdisjoint(a.stores)):
        return 0.0
    small, found = _recomputable(max(a.largest, b.largest)), dict[Any, float]()
    for g in (a, b):
        least = _recomputable(g.largest)
        if not g.shared and (least == small or not any(least < n.size <= small for n in g.nodes)):
            found.update([(s, max(seconds, found.get(s, 0.0))) for s, seconds in g.again.items()])
    return sum(found.values())


def _recomputable(largest: int) -> int:
    """Returns the size up to which nodes beside one of `largest` elements may be recomputed in every work item."""
    return min(largest // MIN_REREADS, NEGLIGIBLE_SIZE) if largest > 0 else -1


def _rate(m: Cpu, size: int) -> float:
    """Returns the bandwidth for data of this size."""
    return m.memory_bandwidth if size > m.usable_l3 // 4 else m.all_caches_bandwidth


def _moving(m: Cpu, size: int) -> float:
    """Returns the seconds to read or write this many bytes."""
    return size / _rate(m, size)

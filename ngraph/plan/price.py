"""What a group of nodes costs as one kernel, judged without a schedule: bytes by turns and levels, weighted work, launches.

Also which axes its turns may share, and which of them become loops, in what blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ngraph.plan.kernels import Read, affine
from ngraph.plan.nodes import Node
from ngraph.program.program import AxisId


class Machine(NamedTuple):
    """What a price needs to know of a machine: bytes, bytes per second, elements per second of one core, seconds."""

    cores: int = 2
    l1: int = 24 << 10
    l2: int = 600 << 10
    l3: int = 16 << 20
    memory: float = 18e9
    cache: float = 60e9
    speed: float = 40e9
    launch: float = 1e-6


LANES = 16  # elements below which an axis is too short for a vector
DEAR = 5  # vector instructions above which a value is kept, not computed again
REREAD = 8  # times that a value must be asked for again to be kept, however cheap
SMALL = 4096  # bytes or elements that are not worth a thought
GUARDED = 6  # times the work of a guarded read of what the same kernel computes
Loops = tuple[tuple[AxisId, int], ...]


class Group:
    """Nodes that may become one kernel. All lists are in the order of the nodes."""

    __slots__ = ("nodes", "set", "inner", "outer", "results", "riders", "shared", "level", "stage_of", "kept", "seconds", "loops", "length")

    def __init__(self, nodes: Iterable[Node], length: Callable[[AxisId], int]):
        self.nodes = sorted(nodes, key=lambda n: n.number)
        self.set = set(self.nodes)
        self.length = length
        self.inner: list[tuple[Node, Node, Read]] = []
        self.outer: list[tuple[Node, Read]] = []
        for n in self.nodes:
            for r in n.reads:
                if r.source in self.set:
                    self.inner.append((r.source, n, r))
                else:
                    self.outer.append((n, r))
        self.results = [n for n in self.nodes if n.result or not self.set.issuperset(n.users)]
        self.riders = self._riders()
        self.shared = self._shared()
        self.seconds, self.loops = 0.0, ()  # type: float, Loops

    def _riders(self) -> set[Node]:
        """Small values that every turn may compute for itself, so that they bind no loop."""
        most = max([n.size for n in self.nodes])
        leaving, found = set(self.results), set[Node]()
        for n in self.nodes:
            if n.kind == "elem" and n.size * REREAD <= most and n.size <= SMALL and n not in leaving:
                if not any(r.source in self.set and r.source not in found for r in n.reads):
                    found.add(n)
        return found

    def _shared(self) -> tuple[AxisId, ...]:
        """The axes that every turn may fix: all nodes iterate over them, all reads inside are at the same index, none reduces them."""
        bound = [n for n in self.nodes if n not in self.riders]
        shared = set(bound[0].loopable)
        for n in bound[1:]:
            shared &= n.loopable
        for n in bound:
            shared.difference_update(n.reduced)
        for p, _, r in self.inner:
            if p not in self.riders:
                shared &= r.straight
        widest = max(bound, key=lambda n: (n.size, -n.number))
        return tuple([a for a in (*widest.axes, *widest.reduced) if a in shared])

    # levels
    def levels(self) -> None:
        """When each node can be computed: 2k at every index of pass k, 2k + 1 on its finished accumulators; and what is kept for later."""
        level: dict[Node, int] = {}
        stage_of: dict[Node, tuple[object, ...]] = {}
        kept: set[Node] = set()
        cost: dict[Node, float] = {}
        shared = frozenset(self.shared)
        for n in self.nodes:
            mine, ends, total = 0, [], float(n.weight)
            for r in n.reads:
                p = r.source
                if p not in self.set:
                    total += 1
                    continue
                at = level[p]
                same = len(r.straight) == len(r.index)
                if at % 2:
                    total += 1
                    if n.kind == "elem" and same and len(n.space) == len(p.axes):
                        ends.append((at, p))
                    else:
                        at += 1
                elif p.kind == "join":
                    at += 2
                elif p not in self.riders:
                    again = n.size >= REREAD * p.size and p.weight > 0 and (n.kind == "reduce" or any(u.kind == "reduce" for u in n.users))
                    if again or (not same and cost[p] > DEAR):
                        kept.add(p)
                        at += 2
                        total += 1
                    else:
                        total += cost[p]
                if at > mine:
                    mine = at
            if n.kind == "reduce":
                mine += 2 if mine % 2 else 1
                stage_of[n] = (mine, frozenset(n.axes), frozenset(n.reduced), n.number if self._rereads(n, shared) else -1)
            elif mine % 2:
                homes = {stage_of[p] for at, p in ends if at == mine}
                if len(homes) > 1:
                    mine += 1
                else:
                    (stage_of[n],) = homes
            level[n], cost[n] = mine, total
        for p, n, _ in self.inner:
            if level[p] % 2:
                if stage_of.get(n) != stage_of[p] or n.kind == "reduce":
                    kept.add(p)
            elif cost[p] > DEAR and level[n] - level[p] > 1 and p not in self.riders:
                kept.add(p)
        self.level, self.stage_of, self.kept = level, stage_of, kept

    def _rereads(self, n: Node, shared: frozenset[AxisId]) -> bool:
        """Whether an operand of a reduction is read again for each index of a free axis: it then wants a stage for itself."""
        (arg,) = n.args
        p = arg.source if type(arg) is Read else None
        if p not in self.set:
            return False
        return any(
            a not in o.axes and a not in shared and self.length(a) >= REREAD for o in p.reads if o.source not in self.set for a in n.axes
        )

    def part(self, axes: Iterable[AxisId], fixed: dict[AxisId, int]) -> int:
        """Elements along these axes in one turn."""
        n = 1
        for a in axes:
            n *= fixed[a] if a in fixed else self.length(a)
        return n


def vector_axis(g: Group) -> AxisId | None:
    """The axis along which most bytes are contiguous."""
    score: dict[AxisId, float] = {}
    for _, r in g.outer:
        if r.flow is None:
            r.flow = tuple(_flow(g, r))
        for a, elements in r.flow:
            score[a] = score.get(a, 0) + elements
    for n in g.results:
        if n.axes:
            a = n.axes[-1]
            score[a] = score.get(a, 0) + g.part(n.axes, {}) * min(1.0, g.length(a) / LANES)
    return max(score, key=lambda a: score[a]) if score else None


def _flow(g: Group, r: Read) -> Iterable[tuple[AxisId, float]]:
    """The axes along which a read walks its source's last one, and how many elements; a step of k counts as the k-th part of it."""
    axes = r.source.axes
    form = affine(r.index[axes[-1]]) if axes and axes[-1] in r.index else None
    for a, k in form[0].items() if form else ():
        if 0 < k <= 4:
            yield a, g.part(r.axes, {}) * min(1.0, g.length(a) / LANES) / k


def choose_loops(g: Group, m: Machine) -> tuple[Loops, int]:
    """Which shared axes become loops, in what blocks; and the bytes of a turn's Locals."""
    g.levels()
    crossing = [n for n in g.kept if n.kind != "join" and not n.result]
    v = vector_axis(g)
    fed = {r.source for n in g.nodes if n.kind == "reduce" for r in n.reads}
    heavy = [r for n, r in g.outer if (n in fed or n.kind == "reduce") and size_of(g, r) > SMALL // 2]
    clean = [a for a in g.shared if all(a in r.axes for r in heavy)]
    rest = [a for a in g.shared if a not in clean]
    loops: dict[AxisId, int] = {}

    def turns() -> int:
        return math.prod([-(-g.length(a) // b) for a, b in loops.items()])

    def locals_() -> int:
        return sum(4 * g.part(n.axes, loops) for n in crossing)

    small = sum(n.size * max(n.weight, 1) for n in g.nodes) < SMALL
    if not small:
        for a in clean:
            if a != v and g.length(a) > 1 and (crossing or turns() < 32):
                loops[a] = 1
        if v in clean and crossing and g.length(v) > 64:
            loops[v] = 64
        rest += [v] if v in clean and v not in loops else []
        if turns() < m.cores and rest:
            last = {n.axes[-1] for n in g.results if n.axes} | {r.source.axes[-1] for r in heavy if r.source.axes}

            def loss(a: AxisId) -> tuple[bool, int, bool]:
                lacking = sum(size_of(g, r) for r in heavy if a not in r.axes)
                return (a in last and g.length(a) < 16 * m.cores, lacking, g.length(a) < 2 * m.cores)

            a = min(rest, key=loss)
            loops[a] = block(g.length(a), m.cores if heavy else 4 * m.cores, 16 if a == v else 1)
            rest.remove(a)
    for a in rest:
        if a != v and locals_() > m.l2 // 3 and g.length(a) > 32:
            loops[a] = 32
    return tuple([(a, b) for a, b in loops.items() if b < g.length(a)]), locals_()


def block(length: int, pieces: int, of: int) -> int:
    """The length of one of about so many pieces, a multiple of `of`."""
    each = -(-length // pieces)
    return max(-(-each // of) * of, 1)


def size_of(g: Group, r: Read) -> int:
    """The bytes of what a read reads from."""
    n = r.source.dtype.bits // 8
    for a in r.source.axes:
        n *= g.length(a)
    return n


def price(g: Group, m: Machine) -> Group:
    """Fills in the loops and the seconds that the group takes as one kernel."""
    loops, local = choose_loops(g, m)
    fixed = dict(loops)
    turns = math.prod([-(-g.length(a) // b) for a, b in loops])
    sources: dict[object, list[tuple[Node, Read]]] = {}
    for n, r in g.outer:
        sources.setdefault(r.source, []).append((n, r))
    parts = {s: max([g.part(r.axes, fixed) for _, r in reads]) * (reads[0][1].source.dtype.bits // 8) for s, reads in sources.items()}
    foot = sum(parts.values()) + local
    traffic = again = 0.0
    for s, reads in sources.items():
        size = size_of(g, reads[0][1])
        passes = len({g.level[n] // 2 for n, _ in reads})
        if foot > m.l2:
            traffic += size * passes
        else:
            traffic += size
            again += size * (passes - 1)
        once_each = parts[s] * turns
        if once_each > size > m.l1:
            again += once_each - size
    traffic += 2 * sum([n.bytes for n in g.results])
    if local > m.l2:
        traffic += 3 * local * turns
    guarded = {n for p, n, r in g.inner if r.guard and p not in g.riders}
    work = sum([n.size * _weight(n) * (GUARDED if n in guarded else 1) for n in g.nodes])
    ways = min(m.cores, turns)
    seconds = traffic / (m.memory if traffic > m.l3 else m.cache) + again / m.cache + work / m.speed / ways + m.launch
    if ways < m.cores:
        seconds += traffic / m.cache
    g.loops, g.seconds = loops, seconds
    return g


def _weight(n: Node) -> float:
    """A product that is only summed is half of a fused multiply-add, and so is its sum."""
    if n.op == "multiply" and n.kind == "elem" and len(n.users) == 1 and n.users[0].kind == "reduce":
        return 0.35
    if n.kind == "reduce":
        arg = n.args[0]
        p = arg.source if type(arg) is Read else None
        if type(p) is Node and p.op == "multiply" and p.kind == "elem" and len(p.users) == 1:
            return 0.35
    return n.weight

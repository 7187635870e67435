"""The one merge: which nodes become one kernel. No op decides it: only axes, indices, paths and the price.

Best saving first over pairs that share an edge or an input; elementwise chains before, for they are always right. Nothing here walks a
set where the order could show, and ties go to the lower number.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable

from ngraph.plan.nodes import Graph, Node
from ngraph.plan.price import Group, Lengths, Machine, price

WORTH = 0.1  # of what the smaller of two kernels takes: a merge that saves less binds more than it brings
LARGEST = 400  # nodes of one kernel: beyond that nothing is gained, and compilers slow down


def fuse(graph: Graph, machine: Machine) -> list[Group]:
    """The groups, in an order in which they can run."""
    merge = _Merge(graph, machine)
    merge.chains()
    merge.best_first(list(merge.rank))
    merge.best_first(merge.finishing())
    return merge.ordered()


class _Merge:
    """The groups so far, by node; walls are routines with their results, which nothing joins."""

    def __init__(self, graph: Graph, machine: Machine):
        self.graph, self.machine = graph, machine
        guesses = graph.guesses()
        self.lengths = Lengths(guesses, frozenset([a for a in guesses if graph.known(a) is None]))
        self.of: dict[Node, Group] = {}
        self.after: dict[Group, dict[Group, None]] = {}  # who reads from whom
        self.rank: dict[Group, int] = {}  # groups in the order of their making; who is not in it is gone
        self.made = 0
        self.walls: set[Group] = set()
        self.parted: set[Group] = set()  # whose turns have parts of sums
        self.readers: dict[object, list[Node]] = {}  # of what comes from outside
        for n in graph.nodes:
            for r in n.reads:
                if not isinstance(r.source, Node):
                    self.readers.setdefault(r.source, []).append(n)

    def add(self, g: Group) -> None:
        self.rank[g] = self.made
        self.made += 1
        for n in g.nodes:
            self.of[n] = g

    # chains
    def chains(self) -> None:
        """Merges that need no price: an elementwise value with one reader over the same space at the same index."""
        chain: dict[Node, list[Node]] = {}
        for n in self.graph.nodes:
            mine = chain.setdefault(n, [n])
            if n.kind != "elem" or n.result or len(n.users) != 1:
                continue
            (u,) = n.users
            same = u.kind in ("elem", "reduce") and u.space == n.space and u.once == n.once
            if same and all(len(r.straight) == len(r.index) and not r.guard for r in u.reads if r.source is n):
                theirs = chain.setdefault(u, [u])
                if theirs is not mine and len(theirs) + len(mine) <= LARGEST:
                    small, large = sorted((mine, theirs), key=len)
                    large += small
                    for m in small:
                        chain[m] = large
        seen: set[int] = set()
        for n in self.graph.nodes:
            if id(chain[n]) in seen:
                continue
            if n.kind in ("routine", "part"):
                call = n if n.kind == "routine" else n.reads[0].source
                if call not in self.of:
                    g = Group([call, *call.users], self.lengths)  # its parts are all that reads it
                    self.walls.add(g)
                    self.add(g)
            else:
                seen.add(id(chain[n]))
                self.add(price(Group(chain[n], self.lengths), self.machine))

    # the merge
    def best_first(self, groups: list[Group]) -> None:
        """Merges what pays, the most first, with each of these groups as one side."""
        heap: list[tuple[float, int, int, Group, Group, Group]] = []
        tried: set[tuple[int, int]] = set()

        def push(g: Group) -> None:
            for h in self.partners(g):
                a, b = (g, h) if self.rank[g] < self.rank[h] else (h, g)
                pair = (self.rank[a], self.rank[b])
                if pair in tried:
                    continue
                tried.add(pair)
                if not self.promising(a, b):
                    continue
                merged = self.merged(a, b)
                if merged is None:
                    continue
                gain = a.seconds + b.seconds - merged.seconds
                if gain > WORTH * min(a.seconds, b.seconds):
                    first = min(a.nodes[0].number, b.nodes[0].number)
                    heapq.heappush(heap, (-gain, first, len(tried), a, b, merged))

        for g in groups:
            if g not in self.walls:
                push(g)
        while heap:
            _, _, _, a, b, merged = heapq.heappop(heap)
            if a not in self.rank or b not in self.rank or self.path(a, b) or self.path(b, a):
                continue
            del self.rank[a], self.rank[b]
            self.add(merged)
            push(merged)

    def finishing(self) -> list[Group]:
        """Behind each reduction of which turns have parts, what puts them together: groups that may merge on. Those with parts may not."""
        new = []
        for g in list(self.rank):
            for n in g.cuts:
                f = self.graph.chunked(n, math.prod([-(-g.length(a) // b) for a, b in g.loops if a in n.reduced]))
                assert n.chunk is not None
                self.lengths.known[n.chunk] = n.bytes // f.bytes
                for h in (g, *dict.fromkeys([self.of[u] for u in f.users])):
                    h.link()
                new.append(price(Group([f], self.lengths), self.machine))
                self.parted.add(g)
                self.add(new[-1])
        self.after.clear()
        return new

    def merged(self, a: Group, b: Group) -> Group | None:
        """Both as one. What has parts of sums keeps its turns: only what each of them may compute for itself can join it."""
        made = Group([*a.nodes, *b.nodes], self.lengths)
        if a not in self.parted and b not in self.parted:
            return price(made, self.machine)
        held, other = (a, b) if a in self.parted else (b, a)
        if other in self.parted or not made.riders.issuperset(other.nodes) or not made.keeps(held):
            return None
        made.levels()
        made.loops, made.cuts, made.seconds = held.loops, held.cuts, held.seconds
        self.parted.add(made)
        return made

    def promising(self, a: Group, b: Group) -> bool:
        """Whether two groups could run in the same turns, or are too small for turns."""
        if len(a.nodes) + len(b.nodes) > LARGEST or a.nodes[0].once != b.nodes[0].once:
            return False
        if a.seconds < 3 * self.machine.launch and b.seconds < 3 * self.machine.launch:
            return True
        return not a.shared or not b.shared or not set(a.shared).isdisjoint(b.shared)

    def partners(self, g: Group) -> list[Group]:
        """The groups that share an edge or an input with this one, in order."""
        near: set[Group] = set()
        for n in g.nodes:
            near.update([self.of[u] for u in n.users])
        for _, r in g.outer:
            if isinstance(r.source, Node):
                near.add(self.of[r.source])
                near.update([self.of[u] for u in r.source.users])
            else:
                near.update([self.of[u] for u in self.readers[r.source]])
        near.discard(g)
        return sorted(near - self.walls, key=lambda h: self.rank[h])

    def successors(self, g: Group) -> Iterable[Group]:
        """The groups that read from this one."""
        found = self.after.get(g)
        if found is None or any(h not in self.rank for h in found):
            found = self.after[g] = {self.of[u]: None for n in g.nodes for u in n.users}
            found.pop(g, None)
        return found

    def path(self, a: Group, b: Group) -> bool:
        """Whether a way leads from a to b through a third group."""
        todo = [x for x in self.successors(a) if x is not b]
        seen = set(todo)
        while todo:
            x = todo.pop()
            if x is b:
                return True
            for y in self.successors(x):
                if y not in seen:
                    seen.add(y)
                    todo.append(y)
        return False

    # order
    def ordered(self) -> list[Group]:
        """All groups, each behind those it reads from; the one with the lowest node first."""
        waits = {g: len({self.of[r.source] for _, r in g.outer if isinstance(r.source, Node)}) for g in self.rank}
        ready = [(g.nodes[0].number, g) for g, n in waits.items() if not n]
        heapq.heapify(ready)
        line = []
        while ready:
            _, g = heapq.heappop(ready)
            line.append(g)
            for u in self.successors(g):
                waits[u] -= 1
                if not waits[u]:
                    heapq.heappush(ready, (u.nodes[0].number, u))
        return line

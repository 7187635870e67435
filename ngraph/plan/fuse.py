"""Fusion: nodes that become one kernel. No op decides it: only axes, indices, dependences and the cost.

Greedy by largest saving over pairs that share an edge or an input, after elementwise chains, which are always profitable. Nothing
iterates over a set where the order could show, and ties go to the lower number.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from ngraph.plan.cost import CostTable, Facts, FusionGroup, loops_of_long_calls
from ngraph.targets.machine import Cpu
from ngraph.targets.tuning import (
    MAX_CONTRACTIONS,
    MAX_GROUPS_BETWEEN,
    MAX_GROUPS_IN_CLOSURES,
    MAX_KERNEL_NODES,
    MAX_NODES_OF_MANY_PARTNERS,
    MAX_NODES_OF_SMALL_PARTNER,
    MAX_READERS_TRIED,
    MIN_RELATIVE_GAIN,
)
from ngraph.tensors.graph import TensorGraph, TensorNode, lengths_of
from ngraph.tensors.index import Read
from ngraph.tensors.simplify import merge_twins, split_reductions


def fuse(graph: TensorGraph, machine: Cpu) -> tuple[TensorGraph, list[FusionGroup]]:
    """The graph, with reductions in parts where that pays, and its nodes in groups, in an order in which they can run."""
    merge = _Merge(graph, machine)
    merge.chains()
    merge.best_first(merge.connect())
    new = merge.cut_reductions()
    merge.connect()
    merge.best_first(new)
    merge.merge_twins()
    merge.divide_long_calls()
    return merge.graph, merge.connect()


class Closure(NamedTuple):
    """The groups that a group is made of, those that must run before and after these: a bit for each, by their places at first."""

    own: int
    before: int
    after: int


def closures(line: Sequence[FusionGroup], *near: Mapping[FusionGroup, Iterable[FusionGroup]]) -> dict[FusionGroup, Closure]:
    """Returns the closure of each group; near: those directly before and after each."""
    own = {g: 1 << k for k, g in enumerate(line)}
    reached = []
    for groups, neighbours in zip((line, reversed(line)), near, strict=True):
        found: dict[FusionGroup, int] = {}
        for g in groups:
            found[g] = reduce(or_, [own[h] | found[h] for h in neighbours[g]], 0)
        reached.append(found)
    return {g: Closure(own[g], *[found[g] for found in reached]) for g in line}


class _Merge:
    """The groups so far, by node; fusion barriers are opaque ops with their results, which nothing joins."""

    def __init__(self, graph: TensorGraph, machine: Cpu):
        self.graph, self.machine = graph, machine
        self.facts = Facts.of(graph, machine)
        self.prices = CostTable(machine, self.facts)
        self.of: dict[TensorNode, FusionGroup] = {}
        self.after: dict[FusionGroup, dict[FusionGroup, None]] = {}  # groups that read from it
        self.before: dict[FusionGroup, dict[FusionGroup, None]] = {}  # groups from which it reads
        self.place: dict[FusionGroup, int] = {}  # an order in which they can run
        self.closure: dict[FusionGroup, Closure] = {}  # empty where there are too many groups
        self.rank: dict[FusionGroup, int] = {}  # groups in order of creation; merged ones are removed
        self.made = 0
        self.fusion_barriers: set[FusionGroup] = set()
        self.parted: set[FusionGroup] = set()  # groups whose work items have partial sums
        self.find_readers()

    def find_readers(self) -> None:
        """Records the readers of inputs, state and constants."""
        self.readers: dict[object, list[TensorNode]] = {}
        for n in self.graph.nodes:
            for r in n.reads:
                if not isinstance(r.source, TensorNode):
                    self.readers.setdefault(r.source, []).append(n)

    def follow(self, graph: TensorGraph, became: Mapping[TensorNode, TensorNode]) -> None:
        """Goes over to another version of the graph."""
        self.graph, self.facts = graph, Facts.of(graph, self.machine)
        for g in self.rank:
            g.follow(became, self.facts)
        self.of = {n: g for g in self.rank for n in g.nodes}
        self.find_readers()

    def add(self, g: FusionGroup) -> None:
        self.rank[g] = self.made
        self.made += 1
        g.measure(self.machine)
        for n in g.nodes:
            self.of[n] = g

    # chains
    def chains(self) -> None:
        """Merges without evaluating costs: elementwise values whose readers are all in one group, over the same space at the same index.

        And what is a step on the way to one value: a join that is `inline`.
        """
        chain: dict[TensorNode, list[TensorNode]] = {}
        for n in reversed(self.graph.nodes):
            mine, users = [n], self.facts.users[n]
            chain[n] = mine
            if n.result or not all(_same(n, u) for u in users):
                continue
            theirs = chain[users[0]] if users else mine
            if theirs is not mine and all(chain[u] is theirs for u in users) and len(theirs) < MAX_KERNEL_NODES:
                theirs.append(n)
                chain[n] = theirs
        seen: set[int] = set()
        for n in self.graph.nodes:
            if id(chain[n]) in seen:
                continue
            if n.kind in ("routine", "part"):
                call = n if n.kind == "routine" else n.reads[0].source
                if call not in self.of:
                    g = FusionGroup([call, *self.facts.users[call]], self.facts)  # its parts are all that reads it
                    self.fusion_barriers.add(g)
                    self.add(g)
            else:
                seen.add(id(chain[n]))
                self.add(self.prices.group(chain[n]))

    # the merge
    def best_first(self, groups: list[FusionGroup]) -> None:
        """Merges what is profitable, the largest saving first, with each of these groups as one side.

        A pair is queued by an upper bound of its saving, by a closer one when no other is larger, and then by the saving itself: most
        never are evaluated.
        """
        heap: list[tuple[float, int, int, int, FusionGroup, FusionGroup]] = []
        tried: set[tuple[int, int]] = set()
        order = self.facts.number
        bound, close, sure = range(3)

        def push(g: FusionGroup) -> None:
            for h in self.partners(g):
                a, b = (g, h) if self.rank[g] < self.rank[h] else (h, g)
                pair = (self.rank[a], self.rank[b])
                if pair in tried:
                    continue
                tried.add(pair)
                if self.promising(a, b) and not self.apart(a, b):
                    wait(self.most(a, b), len(tried), bound, a, b)

        def wait(gain: float, number: int, known: int, a: FusionGroup, b: FusionGroup) -> None:
            binds = not a.loops or a.loops != b.loops  # the same work items add no constraint
            if gain > (MIN_RELATIVE_GAIN * min(a.seconds, b.seconds) if binds else 0):
                heapq.heappush(heap, (-gain, min(order[a.nodes[0]], order[b.nodes[0]]), number, known, a, b))

        for g in groups:
            if g not in self.fusion_barriers:
                push(g)
        while heap:
            _, _, number, known, a, b = heapq.heappop(heap)
            if a not in self.rank or b not in self.rank:
                continue
            if known == bound:
                wait(self.most(a, b, closely=True), number, close, a, b)
            elif known == close:
                if self.paths(a, b) is not None:  # a path between them stays while both do
                    wait(a.seconds + b.seconds - self.price(a, b), number, sure, a, b)
            else:
                made = self.joined(a, b)
                if made is not None:
                    push(made)

    def cut_reductions(self) -> list[FusionGroup]:
        """Adds the combining reduction after each split one, and returns these groups, which may merge further; split ones may not."""
        cuts = [(g, n) for g in self.rank for n in g.cuts]
        parts = {n: math.prod([-(-g.length(a) // b) for a, b in g.loops if a in n.reduced]) for g, n in cuts}
        became = {n: n for n in self.graph.nodes}
        if parts:
            graph, became = split_reductions(self.graph, parts)
            self.follow(graph, became)
        self.prices.cut_no_more(self.facts)
        new = []
        for g, n in cuts:
            new.append(self.prices.group(self.facts.users[became[n]]))
            self.parted.add(g)
            self.add(new[-1])
        return new

    def most(self, a: FusionGroup, b: FusionGroup, closely: bool = False) -> float:
        """Returns an upper bound of a merge's saving."""
        return min(a.seconds, b.seconds) if a in self.parted or b in self.parted else self.prices.most(a, b, closely)

    def price(self, a: FusionGroup, b: FusionGroup) -> float:
        """Returns the seconds of both as one kernel; infinite where that is impossible."""
        if a not in self.parted and b not in self.parted:
            return self.prices.seconds(sorted([*a.nodes, *b.nodes], key=self.facts.number.__getitem__))
        return math.inf if self.merged(a, b) is None else max(a.seconds, b.seconds)

    def merged(self, a: FusionGroup, b: FusionGroup) -> FusionGroup | None:
        """Returns both as one group. One with partial sums keeps its work items: only values that each can recompute may join it."""
        if a not in self.parted and b not in self.parted:
            return self.prices.group([*a.nodes, *b.nodes])
        made = FusionGroup([*a.nodes, *b.nodes], self.facts)
        held, other = (a, b) if a in self.parted else (b, a)
        if other in self.parted or not made.recomputed.issuperset(other.nodes) or not made.keeps(held):
            return None
        made.loops, made.cuts, made.seconds = held.loops, held.cuts, held.seconds
        return made

    def promising(self, a: FusionGroup, b: FusionGroup) -> bool:
        """Whether two groups could run in the same work items, or are too small for work items."""
        few, many = sorted((len(a.nodes), len(b.nodes)))
        most = MAX_KERNEL_NODES if few <= MAX_NODES_OF_SMALL_PARTNER else MAX_NODES_OF_MANY_PARTNERS
        if few + many > most or a.nodes[0].once != b.nodes[0].once or a.products + b.products > MAX_CONTRACTIONS:
            return False
        if self.graph.numbers and any(not self.length_producers(x).isdisjoint(y.nodes) for x, y in ((a, b), (b, a))):
            return False  # one makes a length of the other
        if a.seconds < 3 * self.machine.launch and b.seconds < 3 * self.machine.launch:
            return True
        return not a.shared or not b.shared or not {*a.shared, *a.cut}.isdisjoint((*b.shared, *b.cut))

    def partners(self, g: FusionGroup) -> list[FusionGroup]:
        """Returns the groups that share an edge or an input with this one, in order."""
        near: set[FusionGroup] = set()
        for n in g.nodes:
            near.update([self.of[u] for u in self.around(self.facts.users[n], n)])
        for n, r in g.outer:
            if isinstance(r.source, TensorNode):
                near.add(self.of[r.source])
                near.update([self.of[u] for u in self.around(self.facts.users[r.source], n)])
            else:
                near.update([self.of[u] for u in self.around(self.readers[r.source], n)])
        near.discard(g)
        return sorted(near - self.fusion_barriers, key=lambda h: self.rank[h])

    def around(self, readers: Sequence[TensorNode], n: TensorNode) -> Sequence[TensorNode]:
        """Returns the readers next to a node, where there are many of one value."""
        if len(readers) <= MAX_READERS_TRIED:
            return readers
        k = bisect_left(readers, self.facts.number[n], key=self.facts.number.__getitem__)
        return readers[max(k - MAX_READERS_TRIED // 2, 0) : k + MAX_READERS_TRIED // 2]

    def merge_twins(self) -> None:
        """Makes one value of what was to be computed again in several kernels, and now is in one group."""
        twins: dict[TensorNode, TensorNode] = {}
        changed = [g for g in self.rank if self.twins(g, twins)]
        if not twins:
            return
        graph, became = merge_twins(self.graph, twins)
        self.follow(graph, became)
        for g in changed:
            made = FusionGroup(dict.fromkeys(g.nodes), self.facts)
            made.loops, made.cuts, made.seconds = g.loops, g.cuts, g.seconds
            self.rank[made] = self.rank.pop(g)
            if g in self.parted:
                self.parted.add(made)
            for n in made.nodes:
                self.of[n] = made

    def twins(self, g: FusionGroup, found: dict[TensorNode, TensorNode]) -> bool:
        """Adds the nodes of a group that are equal to one before them, each with that one; says whether there are any."""
        known: dict[Any, TensorNode] = {}
        before = len(found)
        for n in g.nodes:
            if n.kind != "elem":
                continue
            key = (n.op, n.axes, n.dtype, repr(sorted(n.attrs.items())), tuple([_key(a, found) for a in n.args]))
            first = known.setdefault(key, n)
            if first is not n and not n.result and g.set.issuperset(self.facts.users[n]):
                found[n] = first
        return len(found) > before

    def divide_long_calls(self) -> None:
        """Gives the groups that are one work item at the guessed lengths loops for far longer ones."""
        for g in self.rank:
            if not g.loops and g not in self.fusion_barriers and g not in self.parted:
                g.loops = loops_of_long_calls(g, self.machine)

    # order
    def length_producers(self, g: FusionGroup) -> frozenset[TensorNode]:
        """Returns the nodes that must run before the lengths are known that say what a group does."""
        axes = {a for n in g.nodes for a in lengths_of(n)} if self.graph.numbers else ()
        return frozenset().union(*map(self.graph.length_producers, axes))

    def needed(self, g: FusionGroup) -> list[TensorNode]:
        """Returns the nodes of other groups that a group reads, or that compute its lengths."""
        lengths = sorted([n for n in self.length_producers(g) if self.of[n] is not g], key=self.facts.number.__getitem__)
        return [r.source for _, r in g.outer if isinstance(r.source, TensorNode)] + lengths

    def connect(self) -> list[FusionGroup]:
        """Determines who reads from whom, and an order in which all can run; the one with the lowest node first."""
        self.before = {g: dict.fromkeys([self.of[n] for n in self.needed(g)]) for g in self.rank}
        self.after = {g: {} for g in self.rank}
        for g, makers in self.before.items():
            for h in makers:
                self.after[h][g] = None
        waits, order = {g: len(makers) for g, makers in self.before.items()}, self.facts.number
        ready = [(order[g.nodes[0]], g) for g, n in waits.items() if not n]
        heapq.heapify(ready)
        line = []
        while ready:
            _, g = heapq.heappop(ready)
            line.append(g)
            for u in self.after[g]:
                waits[u] -= 1
                if not waits[u]:
                    heapq.heappush(ready, (order[u.nodes[0]], u))
        self.place = {g: k for k, g in enumerate(line)}
        self.closure = closures(line, self.before, self.after) if len(line) <= MAX_GROUPS_IN_CLOSURES else {}
        return line

    def apart(self, a: FusionGroup, b: FusionGroup) -> bool:
        """Whether a path through a third group is known to connect two: closures are not extended when others merge."""
        if not self.closure:
            return False
        one, other = self.closure[a], self.closure[b]
        third = (one.after & other.before) | (other.after & one.before)
        return bool(third & ~(one.own | other.own))

    def joined(self, a: FusionGroup, b: FusionGroup) -> FusionGroup | None:
        """Replaces two groups by one; not where a path leads from one to the other through a third, or might."""
        place = self.place
        if place[a] > place[b]:
            a, b = b, a
        found = self.paths(a, b)
        if found is None:
            return None
        behind, ahead = found
        merged = self.merged(a, b)
        assert merged is not None
        if a in self.parted or b in self.parted:
            self.parted.add(merged)
        if behind:  # readers are placed after the merged group, and its dependencies before it
            free = sorted([place[x] for x in (a, b, *ahead, *behind)])
            order = [*sorted(ahead, key=place.__getitem__), merged, *sorted(behind, key=place.__getitem__)]
            place.update(zip(order, free, strict=False))
        else:
            place[merged] = place[b]
        for near, far in ((self.after, self.before), (self.before, self.after)):
            near[merged] = {x: None for x in (*near[a], *near[b]) if x is not a and x is not b}
            for x in near[merged]:
                far[x].pop(a, None)
                far[x].pop(b, None)
                far[x][merged] = None
        if self.closure:
            self.closure[merged] = Closure(*map(or_, self.closure.pop(a), self.closure.pop(b)))
        for x in (a, b):
            del self.rank[x], place[x], self.after[x], self.before[x]
        self.add(merged)
        return merged

    def paths(self, a: FusionGroup, b: FusionGroup) -> tuple[list[FusionGroup], list[FusionGroup]] | None:
        """Returns the groups between two that follow the one, and those that the other needs; None where a path connects the two."""
        if self.place[a] > self.place[b]:
            a, b = b, a
        behind = self.between(a, b, self.after)
        ahead = self.between(b, a, self.before) if behind else []
        return None if behind is None or ahead is None else (behind, ahead)

    def between(self, a: FusionGroup, b: FusionGroup, near: dict[FusionGroup, dict[FusionGroup, None]]) -> list[FusionGroup] | None:
        """Returns the groups on paths from a towards b; None where a path reaches b, or the search takes too long."""
        low, high = sorted((self.place[a], self.place[b]))
        found = {x: None for x in near[a] if x is not b and low < self.place[x] < high}
        todo = list(found)
        while todo:
            for y in near[todo.pop()]:
                if y is b or len(found) > MAX_GROUPS_BETWEEN:
                    return None
                if y not in found and low < self.place[y] < high:
                    found[y] = None
                    todo.append(y)
        return list(found)


def _key(a: Any, twins: dict[TensorNode, TensorNode]) -> Any:
    """Returns the key of an argument, in which structurally equal nodes are one."""
    if type(a) is Read:
        return twins.get(a.source, a.source), tuple(sorted(a.index.items())), a.predicate, repr(a.pad_value)
    return repr(a)


def _same(n: TensorNode, u: TensorNode) -> bool:
    """Whether a reader of an elementwise value runs over the same space, and reads it only at the same index; or n is a part of u."""
    if n.kind == "join":
        return n.inline
    if u.kind == "join" and u.disjoint:
        space = all(frozenset(p.axes) == n.space for p in u.parts)
    else:
        space = u.kind in ("elem", "reduce") and u.space == n.space
    same = all(len(r.identity_indexed) == len(r.index) and not r.predicate for r in u.reads if r.source is n)
    return n.kind == "elem" and space and same and u.once == n.once

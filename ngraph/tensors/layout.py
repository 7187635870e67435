"""Decisions before fusion: constants at run time, recomputed producers, and dimension orders."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ngraph.op_graph.expr import Bin, ExprLike, Idx
from ngraph.parts.runner import pass_
from ngraph.program.program import AxisId
from ngraph.targets.machine import Cpu
from ngraph.targets.products import PRODUCTS
from ngraph.targets.tuning import (
    MAX_EPILOGUE_STEPS,
    MAX_RECOMPUTED_COST,
    MAX_REMADE_COST,
    MAX_SMALL_RATIO,
    MAX_WIDENED_BYTES,
    MIN_REREADS,
    MIN_UNPACKED_TERMS,
    MIN_VECTOR_PART,
    NEGLIGIBLE_SIZE,
)
from ngraph.tensors.contraction import operand_axes, vector_of, windowless
from ngraph.tensors.edit import Draft, GraphEditor
from ngraph.tensors.graph import Arg, Constant, TensorGraph, lengths_of
from ngraph.tensors.index import Read, affine, digits_in, identity_index


@pass_(needs=("machine",), gives=("layouts",))
def assign_layouts(graph: TensorGraph, machine: Cpu) -> TensorGraph:
    """Decides, before fusion, which values are prepacked, which are recomputed, and the dimension order of each value."""
    e = GraphEditor(graph)
    _mark_prepacked(e)
    _recompute(e, machine)
    _transpose_results(e, machine)
    _order(e, machine)
    return e.frozen()


# ---- what no call changes -------------------------------------------------------------------------------------------------


def _mark_prepacked(graph: GraphEditor) -> None:
    """Marks nodes that depend on constants and read-only state where storing their value costs less than recomputing it."""
    written = {old for _, old, _ in graph.state_out}
    still = ({s.value for s in graph.graph.states} - written) | graph.graph.loop_invariant
    # What is open in a program is computed in each call: kept for each length, it would keep what all lengths share from being shared.
    unsettled = graph.found_by_steps if graph.graph.loop_invariant else lambda a: graph.known(a) is None
    cost: dict[Draft, float] = {}
    bytewise: set[Any] = set()  # what is made of integers of 8 bits
    for n in graph.nodes:
        sources = [r.source for r in n.reads]
        if any(s in bytewise or (type(s) is Constant and s.dtype.is_integer and s.dtype.bits == 8) for s in sources):
            bytewise.add(n)
        n.once = n.kind in ("elem", "reduce", "join") and not n.result and bool(sources)
        n.once = n.once and all(s.once if isinstance(s, Draft) else type(s) is Constant or s in still for s in sources)
        n.once = n.once and not any(unsettled(a) for a in lengths_of(n))
        cost[n] = 2 * MAX_RECOMPUTED_COST if n.kind != "elem" else n.weight + sum([cost.get(s, 1) for s in sources])
    for n in reversed(graph.nodes):
        if n.once and not any(u.once for u in n.users):  # else it is there before any call
            n.once = (
                cost[n] > MAX_RECOMPUTED_COST
                or (cost[n] >= 2 and cost[n] * _rereads(graph, n) > MAX_RECOMPUTED_COST)
                or (cost[n] >= 2 and n.size <= NEGLIGIBLE_SIZE)
                or (n in bytewise and n.bytes <= MAX_WIDENED_BYTES)
            )


def _rereads(graph: GraphEditor, n: Draft) -> float:
    """Returns the number of times that readers ask for each element: a mask of attention once for each head."""
    length = graph.guesses()
    each = [math.prod([length[a] for a in u.space]) for u in n.users]
    return max(each, default=1) / max(math.prod([length[a] for a in n.axes]), 1)


# ---- what is computed again -----------------------------------------------------------------------------------------------


def _recompute(graph: GraphEditor, machine: Cpu) -> None:
    """Recomputes large values that are cheap to derive from stored ones in the readers that follow a reduction."""
    length = graph.guesses().__getitem__
    level: dict[Draft, int] = {}
    kept: set[Draft] = set()
    products: set[Draft] = set()
    for n in graph.nodes:
        level[n] = max([level[r.source] for r in n.reads if isinstance(r.source, Draft)], default=0)
        level[n] += n.kind != "elem" and n.size >= NEGLIGIBLE_SIZE
        found = contraction(n, graph, lambda r: False, machine)
        for r in found.reads if found is not None else ():
            kept.add(r.source)
        if found is not None:
            assert isinstance(n.args[0], Read)
            products.add(n.args[0].source)
        kept.update([r.source for r in n.reads if r.predicate or any(type(e) is not Idx for e in r.index.values())])
        if n.kind != "elem" or n.result:
            kept.add(n)
    price: dict[Draft, tuple[float, set[Any]]] = {}  # what a value costs that is made again, and the large values that it takes
    for n in graph.nodes:
        if n in kept or n in products or n.bytes < machine.usable_l2 or n.once or _rereads(graph, n) >= 2:
            continue
        cost, large = float(n.weight), set[Any]()
        for r in n.reads:
            more, of = price.get(r.source, (1, {r.source})) if isinstance(r.source, Draft) else (1, {r.source})
            cost += more
            large |= {s for s in of if math.prod([length(a) for a in s.axes]) * MAX_SMALL_RATIO >= n.size}
        if cost <= MAX_REMADE_COST and len(large) <= 2:
            price[n] = (cost, large)
    again: dict[tuple[Draft, Draft], Draft] = {}
    line: list[Draft] = []
    args_of = {n: n.args for n in graph.nodes}

    def copied(arg: Arg, at: int, user: Draft) -> Arg:
        if type(arg) is not Read or arg.source not in price or level[arg.source] >= at:
            return arg
        s = arg.source
        if (s, user) not in again:
            made = Draft(s.kind, s.op, tuple([copied(a, at, user) for a in args_of[s]]), s.axes, s.dtype, attrs=s.attrs)
            made.number, made.origin, made.hint = s.number, s.origin, s.hint
            again[s, user] = made
            line.append(made)
        return Read(again[s, user], arg.index, arg.predicate, arg.pad_value)

    for n in graph.nodes:
        if n not in products and n.kind in ("elem", "reduce"):
            args = tuple([copied(a, level[n] if n.kind == "elem" else level[n] - (n.size >= NEGLIGIBLE_SIZE), n) for a in n.args])
            if any(a is not b for a, b in zip(args, n.args, strict=True)):
                n.set_args(args)
        line.append(n)
    if again:
        graph.nodes = line
        graph.again()


# ---- results that lie otherwise than they are made ------------------------------------------------------------------------


def _transpose_results(graph: GraphEditor, machine: Cpu) -> None:
    """Computes the results of short contractions first, and transposes them, where their vectors lie along another axis than the last.

    The elements of a vector that are not adjacent are stored one by one, which takes as long as the products of a sum of so many terms.
    """
    length, parameters, line = graph.guesses().__getitem__, graph.parameters(), list[Draft]()
    for n in graph.nodes:
        line.append(n)
        end = _end(n) if n.kind == "reduce" and n.split_k is None and math.prod(map(length, n.reduced)) < MIN_UNPACKED_TERMS else None
        if end is None or end.state or not end.axes or end.bytes < machine.usable_l1:
            continue
        found = contraction(n, graph, parameters, machine, end.axes[-1])
        if found is None or found.vector == end.axes[-1]:
            continue
        if end is n:
            end = Draft("elem", "copy", (Read(n, identity_index(n.axes)),), n.axes, n.dtype)
            graph.behind(n, end)
            line.append(end)
        end.turned = True
    graph.nodes = line


# ---- the order of dims ----------------------------------------------------------------------------------------------------

Preferences = dict[AxisId, float]


def _order(graph: GraphEditor, machine: Cpu) -> None:
    """Makes the axis preferred by readers and writer the last one, in each value that the plan owns.

    Elementwise values over one space share an order. A contraction prefers its result and one operand contiguous along its vector axis, and
    the other operand along a summed axis. Its preferences weigh as much as its products, all others as much as the data that they move.
    """
    length = graph.guesses()
    family = _families(graph)
    preferences: dict[Draft, Preferences] = {}
    fixed: set[Draft] = set()

    def prefer(s: object, a: AxisId | None, weight: float) -> None:
        if isinstance(s, Draft) and a is not None and a in s.axes:
            mine = preferences.setdefault(family[s], {})
            mine[a] = mine.get(a, 0.0) + weight * min(1.0, length[a] / machine.lanes32)

    parameters = graph.parameters()
    for n in graph.nodes:
        if n.result or n.kind in ("routine", "part"):
            prefer(n, n.axes[-1] if n.axes else None, n.size)
            fixed.add(n)
        for r in n.reads:
            if n.result and n.op == "copy" and n.axes:
                prefer(r.source, next((a for a, e in r.index.items() if type(e) is Idx and e.of == n.axes[-1]), None), n.size)
            if n.kind in ("routine", "part"):
                fixed.add(r.source)
            elif not isinstance(r.source, Draft) and r.source.axes:
                e = r.index[r.source.axes[-1]]
                if type(e) is Idx and length[e.of] >= machine.lanes32 // MIN_VECTOR_PART:  # a shorter one fills too little of a vector
                    prefer(n, e.of, n.size if r.axes >= n.space else n.size / 2)  # what is spread stays in the cache
        found = contraction(n, graph, parameters, machine)
        if found is not None:
            for s in (n, *[u for u in n.users if u.kind == "join"]):
                prefer(s, found.vector, n.size)
            for r in found.reads:
                if found.vector not in r.axes and isinstance(r.source, Draft) and r.source.kind == "join":
                    continue  # it does as what it is made of
                along = found.vector if found.vector in r.axes else found.inner(r)
                prefer(r.source, next((a for a, e in r.index.items() if along is not None and _steps(e, along)), None), n.size)
    for s, a, weight in graph.preferences:
        prefer(s, a, weight)
    _propagate_orders(graph, family, preferences, prefer)
    above = _upper_digits(graph, family)
    for n in graph.nodes:
        if n in fixed or len(n.axes) < 2:
            continue
        last = _wish(n, preferences.get(family[n]))
        run = [last if last in n.axes else n.axes[-1]]  # axes that lie side by side at the end
        while (upper := above.get((family[n], run[0]))) in n.axes and upper not in run:
            run.insert(0, upper)
        n.axes = (*[a for a in n.axes if a not in run], *run)


def _upper_digits(graph: GraphEditor, family: dict[Draft, Draft]) -> dict[tuple[Draft, AxisId], AxisId]:
    """Returns the axis that should lie directly before another one, by family and that one, for its largest reader.

    The reader has one index for both, of which they are digits, as a flattening has: it then reads a dense array.
    """
    found: dict[tuple[Draft, AxisId], tuple[int, AxisId]] = {}
    for n in graph.nodes:
        for r in n.reads:
            if isinstance(r.source, Draft):
                for upper, lower in digits_in(r.index):
                    key = family[r.source], lower
                    if n.size > found.get(key, (-1, ""))[0]:
                        found[key] = n.size, upper
    return {key: upper for key, (_, upper) in found.items()}


def _wish(n: Draft, mine: Preferences | None) -> AxisId | None:
    """Returns the axis with the greatest weight."""
    return max(mine, key=lambda a: (mine[a], -n.axes.index(a) if a in n.axes else -99)) if mine else None


def _propagate_orders(
    graph: GraphEditor,
    family: dict[Draft, Draft],
    preferences: dict[Draft, Preferences],
    prefer: Callable[[object, AxisId | None, float], None],
) -> None:
    """Gives values without a preference, or with much larger readers, the order of their readers, else that of their operands."""
    free = {family[n] for n in graph.nodes}.difference(preferences)
    for n in reversed(graph.nodes):
        last = _wish(n, preferences.get(family[n]))
        for r in n.reads if last is not None else ():
            if isinstance(r.source, Draft) and (family[r.source] in free or n.size >= 2 * r.source.size):
                prefer(r.source, next((a for a, e in r.index.items() if type(e) is Idx and e.of == last), None), n.size)
    for n in graph.nodes:
        for r in n.reads if family[n] not in preferences else ():
            last = _wish(r.source, preferences.get(family[r.source])) if isinstance(r.source, Draft) else None
            e = r.index.get(last, 0) if last is not None else 0
            near = [a for a in n.axes if _steps(e, a)]  # several where one dim is made of two, such as groups of channels
            prefer(n, max(near, key=graph.guesses().__getitem__, default=None), n.size)


def _families(graph: GraphEditor) -> dict[Draft, Draft]:
    """Returns for each node the first one with which it shares its order: elementwise nodes over one space do."""
    parent: dict[Draft, Draft] = {}

    def root(n: Draft) -> Draft:
        while parent[n] is not n:
            parent[n] = parent[parent[n]]
            n = parent[n]
        return n

    for n in graph.nodes:
        parent[n] = n
        for r in n.reads:
            s = r.source
            if isinstance(s, Draft) and n.kind == "elem" and len(r.identity_indexed) == len(s.axes) == len(n.axes) and s.axes:
                a, b = sorted((root(s), root(n)), key=lambda x: x.number)
                parent[b] = a
    return {n: root(n) for n in graph.nodes}


class Contraction(NamedTuple):
    """A contraction that reads its operands repeatedly: its vector axis, and its operands."""

    vector: AxisId
    reads: tuple[Read, ...]
    reduced: tuple[AxisId, ...]
    length: Callable[[AxisId], int]

    def inner(self, r: Read) -> AxisId | None:
        """Returns the axis along which an operand without the vector axis should be contiguous: the longest summed one, else any."""
        own = [a for a in self.reduced if a in r.axes and self.length(a) > 1 and windowless(r, a, self.length)]
        own = own or [a for a in sorted(r.axes) if self.length(a) > 1 and windowless(r, a, self.length)]
        return max(own, key=lambda a: self.length(a)) if own else None


def contraction(
    n: Draft, graph: GraphEditor, fixed: Callable[[Read], bool], machine: Cpu, last: AxisId | None = None
) -> Contraction | None:
    """Returns a reduction of a product as a contraction, if an operand lacks a free axis of some length. `last`: the result's last axis."""
    if n.kind != "reduce":
        return None
    (arg,) = n.args
    p = arg.source if type(arg) is Read else None
    if not isinstance(p, Draft) or p.kind != "elem" or p.op not in PRODUCTS:
        return None
    length = graph.guesses().__getitem__
    operands = [a for a in p.args if type(a) is Read]
    wide = [a for a in n.axes if length(a) >= MIN_REREADS]
    if len(operands) < 2 or all(a in o.axes for a in wide for o in operands):
        return None
    sources = [_source(o) for o in operands]
    space = (*n.axes, *n.reduced)
    factors = [operand_axes(o, space, length, fixed(s)) for o, s in zip(operands, sources, strict=True)]
    last = n.axes[-1] if n.result and n.axes else last
    vector = vector_of(n.axes, factors, last, length, graph.known, machine.lanes32)
    return None if vector is None else Contraction(vector, tuple(sources), n.reduced, length)


def _steps(e: ExprLike, a: AxisId) -> bool:
    """Whether an index has stride 1 along an axis."""
    if type(e) is Bin and e.op == "%":
        e = e.a
    form = affine(e)
    return form is not None and form[0].get(a) == 1


def _source(r: Read) -> Read:
    """Returns the operand before casts."""
    while isinstance(r.source, Draft) and r.source.op == "cast" and len(r.source.users) == 1:
        inner = r.source.args[0].at(r.index)
        if type(inner) is not Read:
            break
        r = inner
    return r


def _end(n: Draft) -> Draft | None:
    """Returns the output that a value becomes, whose order the plan cannot choose; None where there is none."""
    for _ in range(MAX_EPILOGUE_STEPS):
        if n.result:
            return n
        after = [u for u in n.users if u.kind == "elem" and u.space == frozenset(n.axes)]
        if not after:
            return None
        n = after[0]
    return None

"""A tensor graph while it is changed: nodes as drafts, which may be changed in place, until `frozen` gives the new graph.

    e = GraphEditor(graph)
    for n in list(e.nodes):
        e.replaced(n, e.elem(...).source)
    return e.frozen()

A node that is as it was, made of nodes that are as they were, is the same node in both graphs; a graph in which all are is the same graph.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import ExprLike, Len
from ngraph.op_graph.op import Origin
from ngraph.parts.walk import closure
from ngraph.program.program import AxisId
from ngraph.targets.tuning import ASSUMED_LENGTH
from ngraph.tensors.graph import (
    FIELDS,
    Arg,
    PiecewisePart,
    TensorGraph,
    TensorNode,
    all_reads,
    derive,
    dtype_of,
    known_length,
    parameters_of,
    reread,
    reread_part,
    set_field,
    sizes,
)
from ngraph.tensors.index import Read, bounds, identity_index
from ngraph.tensors.memo import memo

OF_DRAFTS = ("number", "users", "original", "given")
_compared = operator.attrgetter(*[f for f in FIELDS if f not in ("args", "parts", "size", "bytes")])
N = TypeVar("N", bound=TensorNode)


class Draft(TensorNode):
    """A node that may still change.

    number    orders nodes; between two there is room for one that finishes a sum
    users     who reads it, in order
    original  the node that it was, if any, and its arguments and parts as they first were
    """

    __setattr__ = set_field

    number: int
    users: list[Draft]
    original: TensorNode | None
    given: tuple[tuple[Arg, ...], tuple[PiecewisePart, ...]]

    def __init__(self, *args: Any, **named: Any):
        TensorNode.__init__(self, *args, **named)
        self.number, self.users, self.original, self.given = 0, [], None, ((), ())

    def set_args(self, args: tuple[Arg, ...]) -> None:
        """Makes it of other values of the same kinds."""
        self.args = args
        derive(self)

    def moved(self, axes: tuple[AxisId, ...], index: dict[AxisId, ExprLike]) -> None:
        """Makes it along other axes."""
        self.axes, self.args = axes, tuple([a.at(index) for a in self.args])
        derive(self)

    def reread(self, change: Callable[[Read], Read]) -> None:
        """Puts other reads in the place of its own, those inside indices too."""
        self.args, self.parts = tuple([reread(a, change) for a in self.args]), tuple([reread_part(p, change) for p in self.parts])
        derive(self)


def users_of(n: Draft) -> list[Draft]:
    """Returns the readers of a draft, in order."""
    return n.users


def summed(n: Draft) -> Draft | None:
    """The product that a sum takes in place by place, if nobody else asks for it."""
    arg = n.args[0] if n.kind == "reduce" and n.op == "add" else None
    p = arg.source if type(arg) is Read and not arg.guard and len(arg.identity_indexed) == len(arg.index) else None
    return p if isinstance(p, Draft) and p.kind == "elem" and p.op == "multiply" and len(p.users) == 1 and not p.result else None


def _repointed(n: TensorNode, kind: type[N], of: Mapping[Any, TensorNode], change: Callable[[Read], Read]) -> N:
    """A node as one of another class, with `change` made to its reads: those of what `of` says in the place of each source."""
    made = kind.__new__(kind)
    direct = [a for a in (*n.args, *[p.arg for p in n.parts]) if type(a) is Read]
    if len(n.reads) == len(direct):  # nothing is read in indices
        found = iter([r.of(of[r.source]) if r.source in of else r for r in direct])
        args = tuple([next(found) if type(a) is Read else a for a in n.args])
        parts = tuple([p._replace(arg=next(found)) if type(p.arg) is Read else p for p in n.parts])
        reads = tuple([a for a in (*args, *[p.arg for p in parts]) if type(a) is Read])
    else:
        args, parts = tuple([reread(a, change) for a in n.args]), tuple([reread_part(p, change) for p in n.parts])
        reads = all_reads(args, parts)
    fields = made.__dict__
    fields.update(n.__dict__)
    fields.update(args=args, parts=parts, reads=reads)
    for name in OF_DRAFTS:
        fields.pop(name, None)
    return made


def _resourced(of: Mapping[Any, Any]) -> Callable[[Read], Read]:
    """Reads of what `of` says in the place of each source."""
    return lambda r: r.of(of[r.source]) if r.source in of else r


def free_axis(axes: dict[AxisId, ExprLike], made: set[AxisId], stem: str, length: ExprLike) -> AxisId:
    """Adds an axis of this length to `axes` and to those that rewrites have made; one that they have made is taken if it is as long."""
    names = (AxisId(stem if k == 1 else f"{stem}.{k}") for k in itertools.count(1))
    found = next(a for a in names if a not in axes or (a in made and axes[a] == length))
    made.add(found)
    axes[found] = length
    return found


class GraphEditor:
    """See the module. What nodes are made of is written as in `TensorGraph`."""

    def __init__(self, graph: TensorGraph):
        self.graph = graph
        self.axes: dict[AxisId, ExprLike] = dict(graph.axes)
        self.made = set(graph.made)  # axes that the program has not
        self.lengths = graph.lengths  # which no other version of the graph has otherwise
        self.guessed = dict(graph.guesses)
        self.origin: tuple[Origin, ...] = ()
        self.laid: dict[Any, Read] = {}  # what lies somewhere, whole
        drafts: dict[Any, Draft] = {}
        change = _resourced(drafts)
        for n in graph.nodes:
            d = drafts[n] = _repointed(n, Draft, drafts, change)
            d.number, d.users, d.original, d.given = 0, [], n, (d.args, d.parts)
        self.nodes = list(drafts.values())
        self.outputs: list[Any] = [drafts[n] for n in graph.outputs]
        self.state_out = [(name, v, drafts[n]) for name, v, n in graph.state_out]
        self.token_out = drafts.get(graph.token_out, graph.token_out)
        self.numbers = {v: change(r) for v, r in graph.numbers.items()}
        self.preferences = [(drafts.get(s, s), a, weight) for s, a, weight in graph.preferences]
        self.link()

    # lengths
    def known(self, a: AxisId) -> int | None:
        """The length of an axis, if it is known before a call."""
        return known_length(self.axes, a, self.lengths)

    def length(self, a: AxisId) -> ExprLike:
        n = self.known(a)
        return Len(a) if n is None else n

    def guesses(self) -> dict[AxisId, int]:
        """The length of each axis, of those too that nobody knows."""
        return self.guessed

    def axis(self, stem: str, length: ExprLike) -> AxisId:
        """An axis of this length that the program has not: one that is there for another rewrite, if it is as long."""
        made = free_axis(self.axes, self.made, stem, length)
        self.guessed[made] = ASSUMED_LENGTH if (n := self.known(made)) is None else n
        return made

    def parameters(self) -> Callable[[Read], bool]:
        """Whether what a read finds is made of constants and state alone: many calls, or trips, find the same there, or next to it."""
        return parameters_of(self.graph.states, self.graph.loop_invariant)

    # making nodes
    def node(self, kind: str, op: str, args: Sequence[Arg], axes: tuple[AxisId, ...], dtype: DType, **more: Any) -> Read:
        """A new node, as a read of it at its own index."""
        n = Draft(kind, op, tuple(args), axes, dtype, origin=self.origin, **more)
        n.number = len(self.nodes)
        self.nodes.append(n)
        return Read(n, identity_index(axes))

    def elem(self, op: str, *args: Arg, axes: tuple[AxisId, ...], dtype: DType, **attrs: Any) -> Read:
        return self.node("elem", op, args, axes, dtype, attrs=attrs)

    def cast(self, x: Arg, axes: tuple[AxisId, ...], dtype: DType) -> Arg:
        return x if dtype_of(x) is dtype else self.elem("cast", x, axes=axes, dtype=dtype)

    def reduce(self, kind: str, x: Arg, axes: tuple[AxisId, ...], over: tuple[AxisId, ...], dtype: DType, selects: str = "") -> Arg:
        """`x`, as `dtype`, over `over`, which may be no axes."""
        x = self.cast(x, (*axes, *over), dtype)
        return self.node("reduce", kind, [x], axes, dtype, reduced=over, selects=selects) if over else x

    def whole(self, x: Arg, axes: tuple[AxisId, ...]) -> Read:
        """A read of a value that lies somewhere, whole, in this order of axes."""
        if type(x) is Read and not x.guard and x.source.axes == axes and x.identity_indexed.issuperset(axes):
            return x
        return self.elem("copy", x, axes=axes, dtype=dtype_of(x))

    def given(self, x: Arg, axes: tuple[AxisId, ...]) -> Read:
        """The same for a routine: what several take lies somewhere once."""
        return memo(self.laid, GraphEditor.whole, self, x, axes)

    def guarded(self, x: Arg, axes: tuple[AxisId, ...], index: dict[AxisId, ExprLike], guard: Iterable[ExprLike], fill: Any) -> Arg:
        """`x`, whose axes are `axes`, at another index; `fill` where a guard is negative."""
        guards = tuple([g for g in dict.fromkeys(guard) if not bounds(g, self.known)[0] >= 0])
        if guards and (type(x) is not Read or (x.guard and repr(x.fill) != repr(fill))):
            x = self.elem("copy", x, axes=axes, dtype=dtype_of(x))
        made = x.at(index)
        return Read(made.source, made.index, made.guard + guards, fill) if guards and type(made) is Read else made

    def moved(self, x: Arg, axes: tuple[AxisId, ...], index: dict[AxisId, ExprLike], guard: Iterable[ExprLike], fill: Any) -> Arg:
        """The same, with `fill` also where an index lies outside."""
        guards = [*guard]
        for a, e in index.items():
            guards += (e, self.length(a) - 1 - e)
        return self.guarded(x, axes, index, guards, fill)

    # changing what is there
    def behind(self, n: Draft, f: Draft) -> None:
        """Puts a new node that reads another one behind it: all that read that one read the new one."""
        f.number, f.origin = n.number + 1, n.origin
        f.size, f.bytes = sizes(f, self.guesses())
        self.replaced(n, f)
        n.users = [f]

    def replaced(self, n: Draft, f: Draft) -> None:
        """Puts a node in the place of another, for all that read it."""
        f.result, f.state, f.hint, f.once = n.result, n.state, n.hint, n.once
        f.users, n.result, n.state = [u for u in n.users if u is not f], False, ""
        change = _resourced({n: f})
        for u in f.users:
            u.reread(change)
        self.outputs = [f if x is n else x for x in self.outputs]
        self.state_out = [(name, old, f if x is n else x) for name, old, x in self.state_out]
        self.numbers = {v: r.of(f) if r.source is n else r for v, r in self.numbers.items()}

    def again(self) -> None:
        """Drops what nobody needs any more, and counts anew."""
        self.drop()
        self.link()

    def drop(self) -> None:
        """Keeps what somebody needs."""
        roots = [n for n in self.nodes if n.result or n.kind in ("routine", "part")]
        needed = closure(roots, lambda n: [r.source for r in n.reads if isinstance(r.source, Draft)])
        self.nodes = [n for n in self.nodes if n in needed]

    def link(self) -> None:
        """Numbers, sizes, and who reads what."""
        guesses = self.guesses()
        for k, n in enumerate(self.nodes):
            n.number, n.users = 2 * k, []
            if n.original is None or n.axes is not n.original.axes:
                n.size, n.bytes = sizes(n, guesses)
            for r in n.reads:
                if isinstance(r.source, Draft) and (not r.source.users or r.source.users[-1] is not n):
                    r.source.users.append(n)

    # the end
    def frozen(self) -> TensorGraph:
        """The graph as it is now."""
        self.drop()
        graph, made = self.graph, dict[Any, TensorNode]()
        change = _resourced(made)
        for d in self.nodes:
            made[d] = _frozen(d, made, change, self.guesses())
        preferences = tuple([(made.get(s, s), a, weight) for s, a, weight in self.preferences if not isinstance(s, Draft) or s in made])
        nodes, outputs = tuple(made.values()), tuple([made[n] for n in self.outputs])
        state_out = tuple([(name, v, made[n]) for name, v, n in self.state_out])
        if (nodes, outputs, state_out, preferences) == (graph.nodes, graph.outputs, graph.state_out, graph.preferences):
            return graph
        return replace(
            graph,
            axes=self.axes,
            made=frozenset(self.made),
            nodes=nodes,
            outputs=outputs,
            state_out=state_out,
            token_out=made.get(self.token_out, self.token_out),
            numbers={v: change(r) for v, r in self.numbers.items()},
            preferences=preferences,
        )


def _frozen(d: Draft, made: Mapping[Any, TensorNode], change: Callable[[Read], Read], guesses: Mapping[AxisId, int]) -> TensorNode:
    """A draft as a node: the one that it was where nothing has changed."""
    n = d.original
    if n is not None and d.args is d.given[0] and d.parts is d.given[1] and all(map(operator.is_, _compared(d), _compared(n))):
        if all(made[r.source] is r.source.original for r in d.reads if isinstance(r.source, Draft)):
            return n
    d.size, d.bytes = sizes(d, guesses)
    return _repointed(d, TensorNode, made, change)


# ---- rewrites that change few nodes: no drafts are made --------------------------------------------------------------------


class Rebuilt:
    """A graph whose nodes are gone through in order and, where need be, replaced.

    read    what readers find in the place of a node; `became` is the node itself, as it is now
    """

    def __init__(self, graph: TensorGraph):
        self.graph, self.nodes = graph, list[TensorNode]()
        self.read: dict[Any, TensorNode] = {}
        self.became: dict[TensorNode, TensorNode] = {}
        self.change = _resourced(self.read)

    def current(self, n: TensorNode) -> TensorNode:
        """A node that reads what is there now."""
        if self.read.keys().isdisjoint([r.source for r in n.reads]):
            return n
        return _repointed(n, TensorNode, self.read, self.change)

    def add(self, n: TensorNode, node: TensorNode, read: TensorNode | None = None) -> None:
        """Puts a node, and what others read of it from now on, in the place of one."""
        self.became[n] = node
        self.nodes += [node] if read is None else [node, read]
        if read is not None or node is not n:
            self.read[n] = node if read is None else read

    def done(self, axes: Mapping[AxisId, ExprLike], made: Iterable[AxisId]) -> TensorGraph:
        """The graph of these nodes, over these axes."""
        g, now = self.graph, self.read
        return replace(
            g,
            axes=axes,
            made=frozenset(made),
            nodes=tuple(self.nodes),
            outputs=tuple([now.get(n, n) for n in g.outputs]),
            state_out=tuple([(name, v, now.get(n, n)) for name, v, n in g.state_out]),
            token_out=now.get(g.token_out, g.token_out),
            numbers={v: self.change(r) for v, r in g.numbers.items()},
            preferences=tuple([(now.get(s, s), a, weight) for s, a, weight in g.preferences]),
        )

"""A tensor graph under change: nodes are drafts, which may be changed in place, until `frozen` returns the new graph.

    e = GraphEditor(graph)
    for n in list(e.nodes):
        e.replaced(n, e.elem(...).source)
    return e.frozen()

An unchanged node with unchanged arguments is the same node in both graphs; a graph without changes is the same graph.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ngraph.op_graph import expr
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import ExprLike, Len, Run
from ngraph.op_graph.op import Origin
from ngraph.parts.walk import closure
from ngraph.program.program import AxisId
from ngraph.tensors.graph import (
    DERIVED,
    FIELDS,
    Arg,
    PiecewisePart,
    TensorGraph,
    TensorNode,
    all_reads,
    derive,
    dtype_of,
    formula,
    guessed_length,
    known_length,
    parameters_of,
    reread,
    reread_part,
    set_field,
    sizes,
)
from ngraph.tensors.index import Read, affine, bounds, identity_index, least
from ngraph.tensors.memo import memo

OF_DRAFTS = ("number", "users", "original", "given", "touched")
_compared = operator.attrgetter(*[f for f in FIELDS if f not in ("args", "parts", "size", "bytes")])
_UNTOUCHED = frozenset(("number", "users", "size", "bytes", "args", "parts", *DERIVED))  # set for all drafts, or compared apart
N = TypeVar("N", bound=TensorNode)


class Draft(TensorNode):
    """A node that may still change.

    number    the position in the order; numbers leave room for a second reduction stage between two nodes
    users     the nodes that read it, in order
    original  the node before the change, if any; `given` are its arguments and parts then
    touched   whether another field has been set since
    """

    number: int
    users: list[Draft]
    original: TensorNode | None
    given: tuple[tuple[Arg, ...], tuple[PiecewisePart, ...]]
    touched: bool

    def __init__(self, *args: Any, **named: Any):
        TensorNode.__init__(self, *args, **named)
        self.begin(None)

    def __setattr__(self, name: str, value: Any) -> None:
        set_field(self, name, value)
        if name not in _UNTOUCHED:
            self.__dict__["touched"] = True

    def begin(self, original: TensorNode | None) -> None:
        """Makes it the draft of a node, which it is equal to."""
        self.__dict__.update(number=0, users=[], original=original, given=(self.args, self.parts), touched=False)

    def set_args(self, args: tuple[Arg, ...]) -> None:
        """Replaces the arguments by others of the same dtypes."""
        self.args = args
        derive(self)

    def moved(self, axes: tuple[AxisId, ...], index: dict[AxisId, ExprLike]) -> None:
        """Moves the node to other axes."""
        self.axes, self.args = axes, tuple([a.at(index) for a in self.args])
        derive(self)

    def reread(self, change: Callable[[Read], Read]) -> None:
        """Replaces the reads of the node, those inside indices too."""
        self.args, self.parts = tuple([reread(a, change) for a in self.args]), tuple([reread_part(p, change) for p in self.parts])
        derive(self)


def users_of(n: Draft) -> list[Draft]:
    """Returns the readers of a draft, in order."""
    return n.users


def summed(n: Draft) -> Draft | None:
    """Returns the product that a sum reads elementwise, if nothing else reads it."""
    arg = n.args[0] if n.kind == "reduce" and n.op == "add" else None
    p = arg.source if type(arg) is Read and not arg.predicate and len(arg.identity_indexed) == len(arg.index) else None
    return p if isinstance(p, Draft) and p.kind == "elem" and p.op == "multiply" and len(p.users) == 1 and not p.result else None


def _repointed(n: TensorNode, kind: type[N], of: Mapping[Any, TensorNode], change: Callable[[Read], Read]) -> N:
    """Returns a node as an instance of another class, its reads changed by `change` and their sources replaced by `of`."""
    made = kind.__new__(kind)
    direct = [a for a in (*n.args, *[p.arg for p in n.parts]) if type(a) is Read]
    args, parts, reads = n.args, n.parts, n.reads
    if of.keys().isdisjoint([r.source for r in reads]):
        pass
    elif len(reads) == len(direct):  # nothing is read in indices
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
    """Replaces the source of each read by what `of` returns for it."""
    return lambda r: r.of(of[r.source]) if r.source in of else r


def free_axis(axes: dict[AxisId, ExprLike], made: set[AxisId], stem: str, length: ExprLike) -> AxisId:
    """Adds an axis of this length to `axes` and to those that rewrites have made; reuses one of theirs of the same length."""
    names = (AxisId(stem if k == 1 else f"{stem}.{k}") for k in itertools.count(1))
    found = next(a for a in names if a not in axes or (a in made and axes[a] == length))
    made.add(found)
    axes[found] = length
    return found


class GraphEditor:
    """The editor described in the module; its fields are those of `TensorGraph`."""

    def __init__(self, graph: TensorGraph):
        self.graph = graph
        self.axes: dict[AxisId, ExprLike] = dict(graph.axes)
        self.made = set(graph.made)  # axes that the program has not
        self.lengths = graph.lengths  # which no other version of the graph has otherwise
        self.guessed = dict(graph.guesses)
        self.origin: tuple[Origin, ...] = ()
        self.laid: dict[Any, Read] = {}  # what lies somewhere, whole
        drafts: dict[Any, Draft] = graph.__dict__.pop("drafts", {})  # of the editor that has made it
        change = _resourced(drafts)
        for n in graph.nodes:
            d = drafts.get(n)
            if d is None:
                d = drafts[n] = _repointed(n, Draft, drafts, change)
            d.begin(n)
        self.nodes = [drafts[n] for n in graph.nodes]
        self.outputs: list[Any] = [drafts[n] for n in graph.outputs]
        self.state_out = [(name, v, drafts[n]) for name, v, n in graph.state_out]
        self.token_out = drafts.get(graph.token_out, graph.token_out)
        self.numbers = {v: change(r) for v, r in graph.numbers.items()}
        self.preferences = [(drafts.get(s, s), a, weight) for s, a, weight in graph.preferences]
        self.link()

    # lengths
    def known(self, a: AxisId) -> int | None:
        """Returns the length of an axis, if it is known before a call."""
        return known_length(self.axes, a, self.lengths)

    def length(self, a: AxisId) -> ExprLike:
        n = self.known(a)
        return Len(a) if n is None else n

    def found_by_steps(self, a: AxisId) -> bool:
        """Whether the length of an axis is computed by the program, in each call anew."""
        return self.known(a) is None and any(
            type(leaf) is Run or (type(leaf) is Len and leaf.of != a and self.found_by_steps(leaf.of)) for leaf in expr.leaves(self.axes[a])
        )

    def formula(self, a: AxisId) -> ExprLike:
        """Returns the length of an axis as an expression of other lengths; one that a step computes stays its own."""
        return formula(self.axes, a, self.known(a))

    def holds(self, predicate: ExprLike) -> bool:
        """Whether a predicate is never negative, whatever the open lengths are."""
        low, _ = bounds(predicate, self.known)
        attained = low > -math.inf and affine(predicate) is not None
        return low >= 0 or (not attained and least(predicate, self.formula) >= 0)

    def guesses(self) -> dict[AxisId, int]:
        """Returns the length of each axis; open lengths are guessed."""
        return self.guessed

    def axis(self, stem: str, length: ExprLike) -> AxisId:
        """Returns an axis of this length that the program lacks, shared with other rewrites where lengths agree."""
        made = free_axis(self.axes, self.made, stem, length)
        self.guessed[made] = guessed_length(self.axes, made, self.graph.guessed_symbols, {}) if (n := self.known(made)) is None else n
        return made

    def parameters(self) -> Callable[[Read], bool]:
        """Whether the value read depends on constants and state alone, so that it is the same in many calls or iterations."""
        return parameters_of(self.graph.states, self.graph.loop_invariant)

    # making nodes
    def node(self, kind: str, op: str, args: Sequence[Arg], axes: tuple[AxisId, ...], dtype: DType, **more: Any) -> Read:
        """Adds a node and returns the read of it at its own index."""
        n = Draft(kind, op, tuple(args), axes, dtype, origin=self.origin, **more)
        n.number = len(self.nodes)
        self.nodes.append(n)
        return Read(n, identity_index(axes))

    def elem(self, op: str, *args: Arg, axes: tuple[AxisId, ...], dtype: DType, **attrs: Any) -> Read:
        return self.node("elem", op, args, axes, dtype, attrs=attrs)

    def cast(self, x: Arg, axes: tuple[AxisId, ...], dtype: DType) -> Arg:
        return x if dtype_of(x) is dtype else self.elem("cast", x, axes=axes, dtype=dtype)

    def reduce(self, kind: str, x: Arg, axes: tuple[AxisId, ...], over: tuple[AxisId, ...], dtype: DType, selects: str = "") -> Arg:
        """Returns `x` reduced over the axes `over`, in `dtype`; without axes, `x` itself."""
        x = self.cast(x, (*axes, *over), dtype)
        return self.node("reduce", kind, [x], axes, dtype, reduced=over, selects=selects) if over else x

    def whole(self, x: Arg, axes: tuple[AxisId, ...]) -> Read:
        """Returns a read of a materialised value in this dimension order."""
        if type(x) is Read and not x.predicate and x.source.axes == axes and x.identity_indexed.issuperset(axes):
            return x
        return self.elem("copy", x, axes=axes, dtype=dtype_of(x))

    def given(self, x: Arg, axes: tuple[AxisId, ...]) -> Read:
        """Does the same for an opaque op: an operand of several of them is materialised once."""
        return memo(self.laid, GraphEditor.whole, self, x, axes)

    def predicated(
        self, x: Arg, axes: tuple[AxisId, ...], index: dict[AxisId, ExprLike], predicate: Iterable[ExprLike], pad_value: Any
    ) -> Arg:
        """Returns `x`, whose axes are `axes`, at another index; `pad_value` where a predicate is negative."""
        predicates = tuple([g for g in dict.fromkeys(predicate) if not self.holds(g)])
        if predicates and (type(x) is not Read or (x.predicate and repr(x.pad_value) != repr(pad_value))):
            x = self.elem("copy", x, axes=axes, dtype=dtype_of(x))
        made = x.at(index)
        return Read(made.source, made.index, made.predicate + predicates, pad_value) if predicates and type(made) is Read else made

    def moved(self, x: Arg, axes: tuple[AxisId, ...], index: dict[AxisId, ExprLike], predicate: Iterable[ExprLike], pad_value: Any) -> Arg:
        """Does the same, with `pad_value` also where an index is out of bounds."""
        predicates = [*predicate]
        for a, e in index.items():
            predicates += (e, self.length(a) - 1 - e)
        return self.predicated(x, axes, index, predicates, pad_value)

    # changing what is there
    def behind(self, n: Draft, f: Draft) -> None:
        """Inserts a node after one that it reads: all other readers of that one read the new node."""
        f.number, f.origin = n.number + 1, n.origin
        f.size, f.bytes = sizes(f, self.guesses())
        self.replaced(n, f)
        n.users = [f]

    def replaced(self, n: Draft, f: Draft) -> None:
        """Replaces a node by another for all its readers."""
        f.result, f.state, f.hint, f.once = n.result, n.state, n.hint, n.once
        f.users, n.result, n.state = [u for u in n.users if u is not f], False, ""
        change = _resourced({n: f})
        for u in f.users:
            u.reread(change)
        self.outputs = [f if x is n else x for x in self.outputs]
        self.state_out = [(name, old, f if x is n else x) for name, old, x in self.state_out]
        self.numbers = {v: r.of(f) if r.source is n else r for v, r in self.numbers.items()}

    def again(self) -> None:
        """Removes dead nodes, and computes numbers, sizes and users again."""
        self.drop()
        self.link()

    def drop(self) -> None:
        """Removes dead nodes."""
        roots = [n for n in self.nodes if n.result or n.kind in ("routine", "part")]
        needed = closure(roots, lambda n: [r.source for r in n.reads if isinstance(r.source, Draft)])
        self.nodes = [n for n in self.nodes if n in needed]

    def link(self) -> None:
        """Computes numbers, sizes and users."""
        guesses = self.guesses()
        for k, n in enumerate(self.nodes):
            fields, original = n.__dict__, n.original
            fields["number"] = 2 * k
            fields["users"] = []
            if original is None or n.axes is not original.axes:
                fields["size"], fields["bytes"] = sizes(n, guesses)
            for r in n.reads:
                if isinstance(r.source, Draft):
                    users = r.source.users
                    if not users or users[-1] is not n:
                        users.append(n)

    # the end
    def frozen(self) -> TensorGraph:
        """Returns the new graph."""
        self.drop()
        graph, made = self.graph, dict[Any, TensorNode]()
        change = _resourced(made)
        guesses = self.guesses()
        for d in self.nodes:
            made[d] = _frozen(d, made, change, guesses)
        preferences = tuple([(made.get(s, s), a, weight) for s, a, weight in self.preferences if not isinstance(s, Draft) or s in made])
        nodes, outputs = tuple(made.values()), tuple([made[n] for n in self.outputs])
        state_out = tuple([(name, v, made[n]) for name, v, n in self.state_out])
        if (nodes, outputs, state_out, preferences) != (graph.nodes, graph.outputs, graph.state_out, graph.preferences):
            graph = replace(
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
        graph.__dict__["drafts"] = {n: d for d, n in made.items()}  # the next editor goes on with them
        return graph


def _frozen(d: Draft, made: Mapping[Any, TensorNode], change: Callable[[Read], Read], guesses: Mapping[AxisId, int]) -> TensorNode:
    """Returns a draft as a node: the original one where nothing has changed."""
    n = d.original
    if n is not None and d.args is d.given[0] and d.parts is d.given[1]:
        if not d.touched or all(map(operator.is_, _compared(d), _compared(n))):
            for r in d.reads:
                if isinstance(r.source, Draft) and made[r.source] is not r.source.original:
                    break
            else:
                return n
    d.size, d.bytes = sizes(d, guesses)
    return _repointed(d, TensorNode, made, change)


# ---- rewrites that change few nodes: no drafts are made --------------------------------------------------------------------


class Rebuilt:
    """A graph whose nodes are visited in order and replaced where a rewrite says so.

    read    what replaces a node for its readers; `became` is the node itself after the rewrite
    """

    def __init__(self, graph: TensorGraph):
        self.graph, self.nodes = graph, list[TensorNode]()
        self.read: dict[Any, TensorNode] = {}
        self.became: dict[TensorNode, TensorNode] = {}
        self.change = _resourced(self.read)

    def current(self, n: TensorNode) -> TensorNode:
        """Returns the node with reads of the values that replace its sources."""
        if self.read.keys().isdisjoint([r.source for r in n.reads]):
            return n
        return _repointed(n, TensorNode, self.read, self.change)

    def add(self, n: TensorNode, node: TensorNode, read: TensorNode | None = None) -> None:
        """Replaces a node by another, and says what its readers read instead."""
        self.became[n] = node
        self.nodes += [node] if read is None else [node, read]
        if read is not None or node is not n:
            self.read[n] = node if read is None else read

    def done(self, axes: Mapping[AxisId, ExprLike], made: Iterable[AxisId]) -> TensorGraph:
        """Returns the graph of these nodes over these axes."""
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

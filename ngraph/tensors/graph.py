"""Tensor graphs: scalar operations over index spaces, with reads at indices. Data movement is the index of a read.

    elem     one scalar operation at every index of `axes`
    reduce   the reduction of one argument, which has `axes` and `reduced`, over `reduced`
    join     one array from parts, each written at an index of its own: concat, scatter
    routine  an opaque op: a core op that is not a loop nest; its results are nodes `part`

Graphs and nodes are values: a rewrite returns a new graph (`edit`), which shares the unchanged nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ngraph.op_graph import expr
from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import Bin, Expr, ExprLike, Idx, Len, Run
from ngraph.op_graph.op import Origin
from ngraph.op_graph.opdef import COST, OPS
from ngraph.program.program import AxisId, State, Value, attr_axes
from ngraph.targets.products import PACKS
from ngraph.targets.tuning import ASSUMED_BATCH, ASSUMED_LENGTH, GATHERED_READ_COST, MAX_ASSUMED_PARTS
from ngraph.tensors.index import Load, Read, in_order, substitute_index

FMA = {"fma": "x * y + z", "fms": "x * y - z", "fnma": "z - x * y"}  # rounded once

for _op, _cost in {
    **dict.fromkeys(FMA, 2),
    "copy": 0,
    **{op: 3 * row.k - 2 for op, row in PACKS.items()},
}.items():  # operations that programs lack
    OPS.fill(_op, cost=_cost)  # each value that is packed is widened, moved and joined to the others, the first one only widened


class ScalarConstant(NamedTuple):
    """A constant that has the same value at every index."""

    value: Any
    dtype: DType

    def at(self, index: Any) -> ScalarConstant:
        return self


class IndexValue(NamedTuple):
    """An integer computed from the index."""

    value: ExprLike
    dtype: DType

    def at(self, index: Any) -> IndexValue:
        return IndexValue(substitute_index(self.value, index), self.dtype)


Arg = Read | ScalarConstant | IndexValue


class PiecewisePart(NamedTuple):
    """A part of a join: its axes, its value, the index that it writes to, and how it is combined with the elements there."""

    axes: tuple[AxisId, ...]
    arg: Arg
    place: dict[AxisId, ExprLike]
    predicate: tuple[ExprLike, ...] = ()
    combine: str = "set"


class Constant:
    """An array by reference, as a source of reads; equal arrays with equal axes are one constant."""

    __slots__ = ("value", "axes", "dtype")

    def __init__(self, value: ArrayRef, axes: tuple[AxisId, ...], dtype: DType):
        self.value, self.axes, self.dtype = value, axes, dtype

    def __eq__(self, other: object) -> bool:
        return type(other) is Constant and other.value == self.value and other.axes == self.axes

    def __hash__(self) -> int:
        return hash((self.value, self.axes))


class TensorNode:
    """One operation over an index space; see the module.

    attrs     of the op
    result    whether it is an output of the graph; `state` is the state that it becomes, "" for none
    once      whether it is constant at run time
    split_k   the axis of `axes` along which the partial results of a split-K reduction lie, one for each work item
    turned    whether it transposes a sum whose vectors lie along another axis than its own last one; that sum is stored first
    disjoint  whether no two parts of a join write to one element
    inline    whether a join is computed where its only reader is
    selects   of a reduction to the first index of the best value: "max" or "min", which value is best
    size      scalar operations; `bytes` of the result; open lengths are guessed
    space     the axes that it iterates over; `loopable` are those that may be divided among work items
    reads     all reads, those inside indices too
    weight    vector instructions of one operation
    """

    kind: str
    op: str
    args: tuple[Arg, ...]
    axes: tuple[AxisId, ...]
    dtype: DType
    reduced: tuple[AxisId, ...]
    attrs: Mapping[str, Any]
    parts: tuple[PiecewisePart, ...]
    origin: tuple[Origin, ...]
    hint: str
    result: bool
    state: str
    once: bool
    split_k: AxisId | None
    turned: bool
    disjoint: bool
    inline: bool
    selects: str
    size: int
    bytes: int
    space: frozenset[AxisId]
    loopable: frozenset[AxisId]
    reads: tuple[Read, ...]
    weight: int

    def __init__(
        self,
        kind: str,
        op: str,
        args: tuple[Arg, ...],
        axes: tuple[AxisId, ...],
        dtype: DType,
        reduced: tuple[AxisId, ...] = (),
        attrs: Mapping[str, Any] = {},
        parts: tuple[PiecewisePart, ...] = (),
        origin: tuple[Origin, ...] = (),
        hint: str = "",
        result: bool = False,
        state: str = "",
        once: bool = False,
        split_k: AxisId | None = None,
        turned: bool = False,
        disjoint: bool = False,
        inline: bool = False,
        selects: str = "",
        size: int = 0,
        bytes: int = 0,
    ):
        values = (kind, op, args, axes, dtype, reduced, attrs, parts, origin, hint, result, state, once, split_k, turned, disjoint, inline)
        self.__dict__.update(zip(FIELDS, (*values, selects, size, bytes), strict=True))
        derive(self)

    if not TYPE_CHECKING:  # drafts of nodes are changed in place

        def __setattr__(self, name: str, value: Any) -> None:
            raise AttributeError(f"{self!r} is a value: change {name} of a draft of it, see ngraph.tensors.edit")

    def __repr__(self) -> str:
        return f"<{self.kind} {self.op}: {self.dtype.name}[{', '.join(self.axes)}]>"


DERIVED = ("space", "loopable", "reads", "weight")
FIELDS = tuple([f for f in TensorNode.__annotations__ if f not in DERIVED])  # in the order of the arguments that make a node
set_field = object.__setattr__


def changed(n: TensorNode, **fields: Any) -> TensorNode:
    """Returns a node with these fields changed."""
    return TensorNode(**{f: getattr(n, f) for f in FIELDS} | fields)


def derive(n: TensorNode) -> None:
    """Computes the derived fields of a node."""
    space = frozenset([a for a in (*n.axes, *n.reduced) if a != n.split_k])
    loopable = space.difference(n.reduced if n.kind == "reduce" and in_order(n.op, n.dtype) else ())
    for p in n.parts:  # work items may share what every part writes at its own index
        loopable &= {a for a, e in p.place.items() if type(e) is Idx and e.of == a}
    if n.disjoint:  # and what all of them are made along, where each index has places for itself
        loopable |= frozenset.intersection(*[frozenset(p.axes) for p in n.parts])
    reads = all_reads(n.args, n.parts)
    weight = COST[n.op] if n.kind == "elem" else 1
    if n.op == "copy" and any(type(x) is Load for r in reads for e in r.index.values() for x in expr.leaves(e)):
        weight = GATHERED_READ_COST
    n.__dict__.update(zip(DERIVED, (space, loopable, reads, weight), strict=True))


def all_reads(args: Iterable[Arg], parts: Iterable[PiecewisePart]) -> tuple[Read, ...]:
    """Returns the reads of a node with these arguments and parts."""
    exprs = [e for p in parts for e in (*p.place.values(), *p.predicate)]
    return tuple(reads_of([*args, *(p.arg for p in parts)], exprs))


def reads_of(args: Iterable[Arg], exprs: Iterable[ExprLike]) -> list[Read]:
    """Returns all reads of arguments and expressions, those inside indices too."""
    found: list[Read] = []
    todo: list[Any] = [*args]
    exprs = list(exprs)
    while todo or exprs:
        for e in exprs:
            todo += [leaf.of for leaf in expr.leaves(e) if type(leaf) is Load]
        exprs = []
        for a in todo:
            if type(a) is Read:
                found.append(a)
                exprs += [e for e in (*a.index.values(), *a.predicate) if type(e) is not int and type(e) is not Idx]
            elif type(a) is IndexValue:
                exprs.append(a.value)
        todo = []
    return found


def reread(a: Arg, change: Callable[[Read], Read]) -> Arg:
    """Returns an argument with its reads replaced, those inside indices first."""
    if type(a) is IndexValue:
        return IndexValue(reread_expr(a.value, change), a.dtype)
    if type(a) is not Read:
        return a
    index = {k: reread_expr(e, change) for k, e in a.index.items()}
    predicate = tuple([reread_expr(e, change) for e in a.predicate])
    return change(
        a if predicate == a.predicate and all(e is a.index[k] for k, e in index.items()) else Read(a.source, index, predicate, a.pad_value)
    )


def reread_expr(e: ExprLike, change: Callable[[Read], Read]) -> ExprLike:
    """Returns an expression with the reads that it loads replaced."""
    if type(e) is int or type(e) is Idx:
        return e
    return expr.substitute(e, lambda x: Load(reread(x.of, change)) if type(x) is Load and type(x.of) is Read else x)


def reread_part(p: PiecewisePart, change: Callable[[Read], Read]) -> PiecewisePart:
    """Returns a part of a join with its reads replaced."""
    place, predicate = {a: reread_expr(e, change) for a, e in p.place.items()}, [reread_expr(e, change) for e in p.predicate]
    return PiecewisePart(p.axes, reread(p.arg, change), place, tuple(predicate), p.combine)


def lengths_of(n: TensorNode) -> set[AxisId]:
    """Returns the axes whose lengths say what a node, or a draft of one, does: those of its space, its attributes and its indices."""
    exprs: list[ExprLike] = [e for r in n.reads for e in (*r.index.values(), *r.predicate)]
    exprs += [a.value for a in (*n.args, *[p.arg for p in n.parts]) if type(a) is IndexValue]
    exprs += [e for p in n.parts for e in (*p.place.values(), *p.predicate)]
    found = {leaf.of for e in exprs for leaf in expr.leaves(e) if type(leaf) is Len}
    return found.union(n.space, *[p.axes for p in n.parts], *map(attr_axes, n.attrs.values()))


def dtype_of(x: Arg) -> DType:
    return x.source.dtype if type(x) is Read else x.dtype  # type: ignore[union-attr]  # an Arg that is no Read has a dtype


def known_length(axes: Mapping[AxisId, ExprLike], a: AxisId, known: dict[AxisId, int | None]) -> int | None:
    """Returns the length of an axis, if it is known before a call; `known` is a memo of lengths."""
    if a not in known:
        own = axes.get(a)
        known[a] = own if own is None or type(own) is int else _known(axes, own, a, known)
    return known[a]


def _known(axes: Mapping[AxisId, ExprLike], length: ExprLike, a: AxisId, known: dict[AxisId, int | None]) -> int | None:
    """Returns the length of an axis that is an expression, if it is known."""

    def leaf(e: expr.Leaf) -> int:
        found = known_length(axes, e.of, known) if type(e) is Len and e.of != a else None
        if found is None:
            raise LookupError
        return found

    try:
        return int(expr.evaluate(length, leaf))
    except LookupError:
        return None


def formula(axes: Mapping[AxisId, ExprLike], a: AxisId, known: int | None) -> ExprLike:
    """Returns the length of an axis, which may be known, as an expression of other lengths; one that a step computes stays its own."""
    if known is not None:
        return known
    return Len(a) if any(type(leaf) is Run for leaf in expr.leaves(axes[a])) else axes[a]


def guessed_symbols(axes: Mapping[AxisId, ExprLike], few: Iterable[AxisId], made: Collection[AxisId] = ()) -> dict[AxisId, int]:
    """The lengths that costs take for axes whose length comes with a call.

    They are `ASSUMED_BATCH` for axes with `few` places, else `ASSUMED_LENGTH` or, where others are parts of it, more. Axes that rewrites
    have `made` are no such parts.

    Pictures that a model halves five times are larger than 64 x 64, and what is left of them is smaller: both differ from
    `ASSUMED_LENGTH` by the root of what they are divided by.
    """
    found: dict[AxisId, int] = {}

    def look(e: ExprLike, by: int) -> None:
        if isinstance(e, Bin):
            look(e.a, by * e.b if e.op == "//" and isinstance(e.b, int) else by)
            look(e.b, by)
        elif isinstance(e, Len) and axes[e.of] != e:
            look(axes[e.of], by)
        elif isinstance(e, Len):
            found[e.of] = max(found.get(e.of, 1), min(by, MAX_ASSUMED_PARTS))

    for a, length in axes.items():
        if a not in made:
            look(length, 1)
    large = {a: -(-math.isqrt(ASSUMED_LENGTH**2 * by) // by) * by for a, by in found.items()}
    return large | dict.fromkeys(few, ASSUMED_BATCH)


def guessed_length(axes: Mapping[AxisId, ExprLike], a: AxisId, symbols: Mapping[AxisId, int], guessed: dict[AxisId, int]) -> int:
    """The length of an axis that costs take, where those of `guessed_symbols` come with a call; at least 1. `guessed` is a memo."""
    try:
        return max(_guessed(axes, a, symbols, guessed), 1)
    except ZeroDivisionError:
        return ASSUMED_LENGTH


def _guessed(axes: Mapping[AxisId, ExprLike], a: AxisId, symbols: Mapping[AxisId, int], guessed: dict[AxisId, int]) -> int:
    found = guessed.get(a)
    if found is not None:
        return found
    own = axes[a]
    if type(own) is int:
        found = own
    elif own == Len(a):
        found = symbols.get(a, ASSUMED_LENGTH)
    else:
        found = int(expr.evaluate(own, lambda e: _guessed(axes, e.of, symbols, guessed) if type(e) is Len else ASSUMED_LENGTH))
    guessed[a] = found
    return found


@dataclass(frozen=True, eq=False, repr=False)
class TensorGraph:
    """The nodes in an order in which they can run, with the inputs, outputs and state of the graph.

    axes            {axis: length}; a length may hold `Run` of a value of the program, which `numbers` says where to find
    made            the axes that rewrites have added
    few             the axes of open length of which calls are assumed to have few places, as batches have
    inputs, states  the incoming values; `token_in` orders effects
    outputs         the nodes that are results; `state_out` has (name, value before, node), `token_out` is the last effect
    writes          (k, n) where output n, a node that is no other output, replaces input k
    loop_invariant  the inputs that are the same in all iterations of the loop whose body this graph is
    preferences     (source, axis, weight) ...: the axis along which a source is traversed, and how many operations depend on that
    """

    axes: Mapping[AxisId, ExprLike]
    nodes: tuple[TensorNode, ...] = ()
    inputs: tuple[Value, ...] = ()
    states: tuple[State, ...] = ()
    token_in: Value | None = None
    outputs: tuple[TensorNode, ...] = ()
    state_out: tuple[tuple[str, Value, TensorNode], ...] = ()
    writes: tuple[tuple[int, int], ...] = ()
    token_out: TensorNode | Value | None = None
    numbers: Mapping[Value, Read] = field(default_factory=dict)
    made: frozenset[AxisId] = frozenset()
    few: frozenset[AxisId] = frozenset()
    loop_invariant: frozenset[Value] = frozenset()
    preferences: tuple[tuple[Any, AxisId, float], ...] = ()
    name: str = "program"
    lengths: dict[AxisId, int | None] = field(default_factory=dict)  # found so far; versions share it, for it never changes

    def __repr__(self) -> str:
        return f"<TensorGraph {self.name}: {len(self.nodes)} node{'s' * (len(self.nodes) != 1)}>"

    @property
    def sources(self) -> tuple[Value, ...]:
        """Returns the incoming values."""
        token = () if self.token_in is None else (self.token_in,)
        return (*self.inputs, *[s.value for s in self.states], *token)

    # lengths
    def known(self, a: AxisId) -> int | None:
        """Returns the length of an axis, if it is known before a call."""
        return known_length(self.axes, a, self.lengths)

    def formula(self, a: AxisId) -> ExprLike:
        """Returns the length of an axis as an expression of other lengths; one that a step computes stays its own."""
        return formula(self.axes, a, self.known(a))

    @cached_property
    def _producers(self) -> dict[AxisId, frozenset[TensorNode]]:
        return {}

    @cached_property
    def guesses(self) -> dict[AxisId, int]:
        """The length of each axis, of unknown ones too."""
        symbols, guessed = self.guessed_symbols, dict[AxisId, int]()
        return {a: guessed_length(self.axes, a, symbols, guessed) if (n := self.known(a)) is None else n for a in self.axes}

    @cached_property
    def guessed_symbols(self) -> dict[AxisId, int]:
        """See `guessed_symbols`; those of the program's axes, so that no rewrite changes a guess."""
        return guessed_symbols(self.axes, self.few, self.made)

    def length_producers(self, a: AxisId) -> frozenset[TensorNode]:
        """Returns the nodes that must run before the length of an axis is known."""
        if a not in self._producers:
            length, found = self.axes[a], set[TensorNode]()
            for leaf in expr.leaves(length) if isinstance(length, Expr) and self.known(a) is None else ():
                if type(leaf) is Len and leaf.of != a:
                    found |= self.length_producers(leaf.of)
                elif type(leaf) is Run and isinstance(made := self.numbers[leaf.of].source, TensorNode):
                    found.add(made)
            self._producers[a] = frozenset(found)
        return self._producers[a]

    # what follows
    @cached_property
    def number(self) -> dict[TensorNode, int]:
        """Returns the position of each node in the order."""
        return {n: k for k, n in enumerate(self.nodes)}

    @cached_property
    def users(self) -> dict[TensorNode, tuple[TensorNode, ...]]:
        """Returns the nodes that read each node, in order."""
        found: dict[TensorNode, dict[TensorNode, None]] = {n: {} for n in self.nodes}
        for n in self.nodes:
            for r in n.reads:
                if isinstance(r.source, TensorNode):
                    found[r.source][n] = None
        return {n: tuple(users) for n, users in found.items()}

    @property
    def parameters(self) -> Callable[[Read], bool]:
        """Whether the value read depends on constants and state alone, so that it is the same in many calls or iterations."""
        return parameters_of(self.states, self.loop_invariant)


def parameters_of(states: Iterable[State], loop_invariant: Iterable[Value]) -> Callable[[Read], bool]:
    """Whether the value read depends on constants, these states and loop-invariant inputs alone."""
    still = {s.value for s in states}.union(loop_invariant)
    return lambda r: r.source.once if isinstance(r.source, TensorNode) else type(r.source) is Constant or r.source in still


def sizes(n: TensorNode, guesses: Mapping[AxisId, int]) -> tuple[int, int]:
    """Returns the number of scalar operations of a node, and the bytes of its result."""
    return math.prod([guesses[a] for a in n.space]), math.prod([guesses[a] for a in n.axes]) * (n.dtype.bits // 8)

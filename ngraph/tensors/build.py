"""Program → nodes: scalar operations over spaces of axes, with reads at indices. What moves data becomes the index of a read.

    elem     one scalar operation at every index of `axes`
    reduce   its one argument over `axes` and `reduced`, combined
    join     one array from parts, each written at an index of its own: concat, scatter
    routine  a core op that is no loop nest; its results are nodes `part`

Rules stand in a table by core op; only those that are no elementwise operation need one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from ngraph.errors import UnsupportedError
from ngraph.op_graph import dtypes, expr
from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.dtypes import DType, accumulator
from ngraph.op_graph.expr import Expr, ExprLike, Idx, Len, Run, maximum, minimum
from ngraph.op_graph.op import Origin
from ngraph.op_graph.opdef import COST, ELEMENTWISE, OPS, REGISTRY
from ngraph.parts.registry import Column
from ngraph.parts.walk import closure
from ngraph.program.program import AxisId, Program, Step, Value
from ngraph.targets.products import PACKS
from ngraph.targets.tuning import ASSUMED_LENGTH, GATHERED_READ_COST
from ngraph.tensors.control import arranged
from ngraph.tensors.index import Load, Read, bounds, identity_index, in_order, loads, substitute_index
from ngraph.tensors.memo import memo

NODES: Column[Any] = OPS.column("plan_nodes", Callable, None, "(graph, step): adds the nodes of a step that is no elementwise operation")
for _op, _cost in {"fma": 2, "copy": 0, **{op: 3 * row.k - 2 for op, row in PACKS.items()}}.items():  # operations that only plans have
    OPS.fill(_op, cost=_cost)  # each value that is packed is widened, moved and joined to the others, the first one only widened


class ScalarConstant(NamedTuple):
    """The same everywhere."""

    value: Any
    dtype: DType

    def at(self, index: Any) -> ScalarConstant:
        return self


class IndexValue(NamedTuple):
    """A whole number that follows from the index."""

    value: ExprLike
    dtype: DType

    def at(self, index: Any) -> IndexValue:
        return IndexValue(substitute_index(self.value, index), self.dtype)


Arg = Read | ScalarConstant | IndexValue


class PiecewisePart(NamedTuple):
    """A part of a join: over which axes, what, where to, and how it meets what is there."""

    axes: tuple[AxisId, ...]
    arg: Arg
    place: dict[AxisId, ExprLike]
    guard: tuple[ExprLike, ...] = ()
    combine: str = "set"


class Node:
    """See the module. `number` orders nodes as their steps stand in the program; `buffer` is where others find a result."""

    __slots__ = (
        "number kind op args axes reduced dtype attrs parts origin users result state space loopable "
        "size bytes weight reads hint once split_k turned"
    ).split()

    number: int
    size: int
    bytes: int

    def __init__(
        self,
        kind: str,
        op: str,
        args: Sequence[Arg],
        axes: tuple[AxisId, ...],
        dtype: DType,
        reduced: tuple[AxisId, ...] = (),
        attrs: dict[str, Any] | None = None,
        parts: tuple[PiecewisePart, ...] = (),
    ):
        self.kind, self.op, self.args, self.axes, self.dtype, self.reduced = kind, op, tuple(args), axes, dtype, reduced
        self.attrs, self.parts = attrs or {}, parts
        self.origin: tuple[Origin, ...] = ()
        self.users: list[Node] = []
        self.result = False  # leaves the program
        self.state = ""  # the state that it becomes
        self.hint = ""
        self.once = False  # no call changes it
        self.split_k: AxisId | None = None  # along which its parts lie, where work items have parts of its sum
        self.turned = False  # made of a sum whose vectors lie along another axis than its own last one: that is stored first
        self._settle()
        self.weight = COST[op] if kind == "elem" else 1
        if op == "copy" and any(type(x) is Load for r in self.reads for e in r.index.values() for x in expr.leaves(e)):
            self.weight = GATHERED_READ_COST

    def _settle(self) -> None:
        self.space = frozenset((*self.axes, *self.reduced))
        self.loopable = self.space.difference(self.reduced if self.kind == "reduce" and in_order(self.op, self.dtype) else ())
        for p in self.parts:  # work items may share what every part writes at its own index
            self.loopable &= {a for a, e in p.place.items() if type(e) is Idx and e.of == a}
        if "apart" in self.attrs:  # and what all of them are made along, where each index has places for itself
            self.loopable |= frozenset.intersection(*[frozenset(p.axes) for p in self.parts])
        exprs = [e for p in self.parts for e in (*p.place.values(), *p.guard)]
        self.reads = tuple(_reads([*self.args, *(p.arg for p in self.parts)], exprs))

    def set_args(self, args: tuple[Arg, ...]) -> None:
        """Makes it of other values of the same kinds."""
        self.args = args
        self._settle()

    def moved(self, axes: tuple[AxisId, ...], index: dict[AxisId, ExprLike]) -> None:
        """Makes it along other axes."""
        self.axes, self.args = axes, tuple([a.at(index) for a in self.args])
        self._settle()

    def reread(self, change: Callable[[Read], Read]) -> None:
        """Puts other reads in the place of its own, those inside indices too."""
        self.args = tuple([_reread(a, change) for a in self.args])
        parts = []
        for p in self.parts:
            place, guard = {a: _reread_expr(e, change) for a, e in p.place.items()}, [_reread_expr(e, change) for e in p.guard]
            parts.append(PiecewisePart(p.axes, _reread(p.arg, change), place, tuple(guard), p.combine))
        self.parts = tuple(parts)
        self._settle()

    def __repr__(self) -> str:
        return f"<{self.kind} {self.op} {self.number}: {self.dtype.name}[{', '.join(self.axes)}]>"


def _reread(a: Arg, change: Callable[[Read], Read]) -> Arg:
    if type(a) is IndexValue:
        return IndexValue(_reread_expr(a.value, change), a.dtype)
    if type(a) is not Read:
        return a
    index = {k: _reread_expr(e, change) for k, e in a.index.items()}
    return change(Read(a.source, index, tuple([_reread_expr(e, change) for e in a.guard]), a.fill))


def _reread_expr(e: ExprLike, change: Callable[[Read], Read]) -> ExprLike:
    if type(e) is int or type(e) is Idx:
        return e
    return expr.substitute(e, lambda x: Load(_reread(x.of, change)) if type(x) is Load and type(x.of) is Read else x)


def _reads(args: Iterable[Arg], exprs: Iterable[ExprLike]) -> list[Read]:
    """All reads of arguments and expressions, those inside indices too."""
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
                exprs += [e for e in (*a.index.values(), *a.guard) if type(e) is not int and type(e) is not Idx]
            elif type(a) is IndexValue:
                exprs.append(a.value)
        todo = []
    return found


class NodeGraph:
    """The nodes of a program, in order, and what its values are made of. `scalar_ops`: the elementwise ops of which loops can be made."""

    def __init__(self, program: Program, scalar_ops: Collection[str] = ELEMENTWISE.names):
        self.program = program
        self.nodes: list[Node] = []
        self.at: dict[Value, Arg] = {}
        self.sources: list[Value] = list(program.sources())
        self.origin: tuple[Origin, ...] = ()
        self.lengths: dict[AxisId, int | None] = {}
        self.made: dict[AxisId, ExprLike] = {}  # axes that the program has not
        self.outputs: list[Any] = []
        self.state: list[tuple[str, Value, Any]] = []
        self.token: Any = None
        self.laid: dict[Any, Read] = {}  # what routines take
        self.runs: list[Value] = []  # numbers that lengths need
        self.waits: dict[AxisId, frozenset[Node]] = {}
        self.loop_invariant: set[Value] = set()  # inputs of a body that are the same in all trips
        self.preferences: list[tuple[Any, AxisId, float]] = []  # along which axis a source is walked, and how much depends on that
        for v in self.sources:
            self.at[v] = Read(v, identity_index(v.axes))
        for step in program.steps:
            self.origin = step.origin
            (NODES[step.op] or (_element if step.op in scalar_ops else _routine))(self, step)
        self._finish()

    # lengths
    def known(self, a: AxisId) -> int | None:
        """The length of an axis, if the plan knows it."""
        if a not in self.lengths:
            try:
                self.lengths[a] = self.program.length(a)
            except LookupError:
                self.lengths[a] = None
        return self.lengths[a]

    def length(self, a: AxisId) -> ExprLike:
        n = self.known(a)
        return Len(a) if n is None else n

    def length_producers(self, a: AxisId) -> frozenset[Node]:
        """Returns the nodes that must run before the length of an axis is known."""
        if a not in self.waits:
            length = self.made[a] if a in self.made else self.program.axes[a]
            found: set[Node] = set()
            for leaf in expr.leaves(length) if isinstance(length, Expr) and self.known(a) is None else ():
                if type(leaf) is Len and leaf.of != a:
                    found |= self.length_producers(leaf.of)
                elif type(leaf) is Run and isinstance(r := self.at[leaf.of], Read) and isinstance(r.source, Node):
                    found.add(r.source)
            self.waits[a] = frozenset(found)
        return self.waits[a]

    def guesses(self) -> dict[AxisId, int]:
        """The length of each axis, of those too that nobody knows."""
        return {a: ASSUMED_LENGTH if (n := self.known(a)) is None else n for a in (*self.program.axes, *self.made)}

    def parameters(self) -> Callable[[Read], bool]:
        """Whether what a read finds is made of constants and state alone: many calls, or trips, find the same there, or next to it."""
        state = {s.value for s in self.program.state_in} | self.loop_invariant
        return lambda r: r.source.once if type(r.source) is Node else type(r.source) is Constant or r.source in state

    # making nodes
    def node(self, kind: str, op: str, args: Sequence[Arg], axes: tuple[AxisId, ...], dtype: DType, **fields: Any) -> Read:
        """A new node, as a read of it at its own index."""
        n = Node(kind, op, args, axes, dtype, **fields)
        n.number, n.origin = len(self.nodes), self.origin
        self.nodes.append(n)
        return Read(n, identity_index(axes))

    def elem(self, op: str, *args: Arg, axes: tuple[AxisId, ...], dtype: DType, **attrs: Any) -> Read:
        return self.node("elem", op, args, axes, dtype, attrs=attrs)

    def cast(self, x: Arg, axes: tuple[AxisId, ...], dtype: DType) -> Arg:
        return x if dtype_of(x) is dtype else self.elem("cast", x, axes=axes, dtype=dtype)

    def reduce(self, kind: str, x: Arg, axes: tuple[AxisId, ...], over: tuple[AxisId, ...], dtype: DType) -> Arg:
        """`x`, as `dtype`, over `over`, which may be no axes."""
        x = self.cast(x, (*axes, *over), dtype)
        return self.node("reduce", kind, [x], axes, dtype, reduced=over) if over else x

    def whole(self, x: Arg, axes: tuple[AxisId, ...]) -> Read:
        """A read of a value that lies somewhere, whole, in this order of axes."""
        if type(x) is Read and not x.guard and x.source.axes == axes and x.identity_indexed.issuperset(axes):
            return x
        return self.elem("copy", x, axes=axes, dtype=dtype_of(x))

    def given(self, x: Arg, axes: tuple[AxisId, ...]) -> Read:
        """The same for a routine: what several take lies somewhere once."""
        return memo(self.laid, NodeGraph.whole, self, x, axes)

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

    def number(self, x: Arg, axes: tuple[AxisId, ...]) -> ExprLike:
        """An argument of whole numbers as an expression."""
        if type(x) is ScalarConstant:
            return int(x.value)
        if type(x) is IndexValue and x.dtype.bits >= 32:
            return x.value
        return Load(x if type(x) is Read else self.elem("copy", x, axes=axes, dtype=dtype_of(x)))

    def settled(self, e: Any) -> Any:
        """An expression with its run-time numbers as loads."""
        return expr.substitute(e, lambda x: self.number(self.at[x.of], ()) if type(x) is Run else x) if isinstance(e, Expr) else e

    # the end
    def _finish(self) -> None:
        p, taken = self.program, set()
        self.origin = p.steps[-1].origin if p.steps else ()
        kept: dict[Value, Read] = {}
        for v in p.outputs:
            if v not in kept:
                r = self.whole(self.at[v], v.axes)
                if not isinstance(r.source, Node) or r.source in taken:
                    r = self.elem("copy", r, axes=v.axes, dtype=v.dtype)
                kept[v] = r
                taken.add(r.source)
                r.source.result, r.source.hint = True, v.hint or r.source.hint
            self.outputs.append(kept[v].source)
        before = {s.name: s.value for s in p.state_in}
        for name, v in p.state_out:
            old = before[name]
            if v is old:
                continue
            r = self.whole(self.at[v], old.axes)
            if r.source is old:  # it stays as it is
                continue
            if not isinstance(r.source, Node) or r.source in taken:
                r = self.elem("copy", self.at[v], axes=old.axes, dtype=old.dtype)
            taken.add(r.source)
            r.source.result, r.source.state, r.source.hint = True, name, r.source.hint or name
            self.state.append((name, old, r.source))
        if p.token_out is not None:
            self.token = self.at[p.token_out].source  # type: ignore[union-attr]
        for a, length in p.axes.items():
            if isinstance(length, Expr) and self.known(a) is None:  # lengths that steps find
                for leaf in expr.leaves(length):
                    if type(leaf) is Run:
                        self.run_length(leaf.of)
        self._drop()
        self._rename()
        self._link()
        self._contract()

    def _contract(self) -> None:
        """Sums with products that nobody else reads become `fma(x, y, z)`: x * y + z, rounded once; `minus` says which is taken away.

        Here, and not where code is written: a value that several kernels compute for themselves has the same bits in all of them, and an
        element is equal to the maximum that it is.
        """
        for n in self.nodes:
            if n.kind != "elem" or n.op not in ("add", "subtract") or not n.dtype.is_float or n.dtype.bits < 32:
                continue
            for k in (1, 0):
                m = self._own_product(n, *n.args[:: -1 if k else 1])
                if m is not None:
                    n.attrs = {"minus": "product" if k else "rest"} if n.op == "subtract" else {}
                    n.op, n.weight, n.origin = "fma", COST["fma"], tuple(dict.fromkeys([*m.origin, *n.origin]))
                    n.set_args((*m.args, n.args[1 - k]))
                    break
        self.again()

    def _own_product(self, n: Node, r: Arg, other: Arg) -> Node | None:
        """The product that one argument is, if nothing but this argument asks for it."""
        m = r.source if type(r) is Read and not r.guard and r.identity_indexed == n.space else None
        own = type(m) is Node and m.kind == "elem" and m.op == "multiply" and m.space == n.space and m.users == [n] and not m.result
        return m if own and not (type(other) is Read and other.source is m) else None

    def again(self) -> None:
        """Drops what nobody needs any more, and counts anew."""
        self._drop()
        self._link()

    def run_length(self, v: Value) -> None:
        """A number that a length needs has to lie in memory."""
        x = self.whole(self.at[v], ())
        if isinstance(x.source, Node):
            x.source.result = True
        self.at[v] = x
        self.runs.append(v)

    def _drop(self) -> None:
        """Keeps what somebody needs, and says who reads what."""
        roots = [n for n in self.nodes if n.result or n.kind in ("routine", "part")]
        needed = closure(roots, lambda n: [r.source for r in n.reads if isinstance(r.source, Node)])
        self.nodes = [n for n in self.nodes if n in needed]
        for n in self.nodes:
            n.users = []
            for r in n.reads:
                if isinstance(r.source, Node) and (not r.source.users or r.source.users[-1] is not n):
                    r.source.users.append(n)

    def _rename(self) -> None:
        """A value whose readers all stand at `Idx(b)` of an axis a is made along b, so that it can be made where it is read.

        Not where that would part it from what it is made of: from a value that others read as well.
        """
        names: dict[Node, dict[AxisId, AxisId]] = {}
        at: dict[Node, list[Read]] = {}
        for n in reversed(self.nodes):
            if n.kind in ("elem", "reduce") and not n.result:
                found = {a: b for a in n.axes if (b := self._asked(a, at.get(n, []))) is not None and self._free(n, a, b)}
                new = [found.get(a, a) for a in n.axes]
                if found and len({*new, *n.reduced}) == len(n.space):
                    names[n] = found
                    n.moved(tuple(new), {a: Idx(b) for a, b in found.items()})
            for r in n.reads:
                if isinstance(r.source, Node):
                    at.setdefault(r.source, []).append(r)

        def rekeyed(r: Read) -> Read:
            known = names.get(r.source, {})
            return Read(r.source, {known.get(k, k): e for k, e in r.index.items()}, r.guard, r.fill) if known else r

        for n in self.nodes:
            if any(r.source in names for r in n.reads):
                n.reread(rekeyed)

    def _asked(self, a: AxisId, reads: list[Read]) -> AxisId | None:
        """The axis at whose own index all these reads stand along a, if it is another one of the same length."""
        wanted = {e.of if type(e) is Idx else None for r in reads for e in [r.index[a]]}
        b = wanted.pop() if len(wanted) == 1 else None
        return b if b is not None and b != a and self.known(a) == self.known(b) is not None else None

    def _free(self, n: Node, a: AxisId, b: AxisId) -> bool:
        """Whether nothing that n is made of is held at a by other readers; a product that is summed is never made where its factors are."""
        factors = n.kind == "elem" and n.op == "multiply" and len(n.users) == 1 and n.users[0].kind == "reduce"
        return factors or not any(isinstance(r.source, Node) and len(r.source.users) > 1 and a in r.identity_indexed for r in n.reads)

    def _link(self) -> None:
        """Numbers, sizes, and who reads what."""
        guess = self.guesses()
        for k, n in enumerate(self.nodes):
            n.number, n.users = 2 * k, []  # between two there is room for one that finishes a sum
            n.size = math.prod([guess[a] for a in (*n.axes, *n.reduced)])
            n.bytes = math.prod([guess[a] for a in n.axes]) * (n.dtype.bits // 8)
            for r in n.reads:
                if isinstance(r.source, Node) and (not r.source.users or r.source.users[-1] is not n):
                    r.source.users.append(n)

    # reductions in parts
    def split_reduction(self, n: Node, parts: int) -> Node:
        """Gives a reduction an axis of so many parts, and puts the reduction over it, which is new, behind it."""
        split_k = self.axis("chunk", parts)
        f = Node("reduce", n.op, [Read(n, identity_index((split_k, *n.axes)))], n.axes, n.dtype, reduced=(split_k,))
        self.behind(n, f)
        n.split_k, n.axes, n.bytes = split_k, (split_k, *n.axes), n.bytes * parts
        return f

    def behind(self, n: Node, f: Node) -> None:
        """Puts a new node that reads another one behind it: all that read that one read the new one."""
        f.number, f.origin = n.number + 1, n.origin
        f.size, f.bytes = n.bytes // (n.dtype.bits // 8) * math.prod([self.known(a) or 1 for a in f.reduced]), n.bytes
        self.replaced(n, f)
        n.users = [f]

    def replaced(self, n: Node, f: Node) -> None:
        """Puts a node in the place of another, for all that read it."""
        f.result, f.state, f.hint, f.once = n.result, n.state, n.hint, n.once
        f.users, n.result, n.state = [u for u in n.users if u is not f], False, ""
        for u in f.users:
            u.reread(lambda r: Read(f, r.index, r.guard, r.fill) if r.source is n else r)
        self.outputs = [f if x is n else x for x in self.outputs]
        self.state = [(name, old, f if x is n else x) for name, old, x in self.state]
        self.waits.clear()
        for v in self.runs:
            x = self.at[v]
            self.at[v] = Read(f, identity_index(f.axes)) if type(x) is Read and x.source is n else x

    def axis(self, stem: str, length: ExprLike) -> AxisId:
        """An axis of this length that no program has."""
        names = (AxisId(stem if k == 1 else f"{stem}.{k}") for k in itertools.count(1))
        made = next(a for a in names if self.made.get(a, length) == length and a not in self.program.axes)
        self.made[made], self.lengths[made] = length, length if isinstance(length, int) else None
        return made


def summed(n: Node) -> Node | None:
    """The product that a sum takes in place by place, if nobody else asks for it."""
    arg = n.args[0] if n.kind == "reduce" and n.op == "add" else None
    p = arg.source if type(arg) is Read and not arg.guard and len(arg.identity_indexed) == len(arg.index) else None
    return p if type(p) is Node and p.kind == "elem" and p.op == "multiply" and len(p.users) == 1 and not p.result else None


def dtype_of(x: Arg) -> DType:
    return x.source.dtype if type(x) is Read else x.dtype  # type: ignore[union-attr]


# ---- one rule for each core op that is no scalar operation ----------------------------------------------------------------


COUNTING = {"add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b}


def _counted(g: NodeGraph, s: Step) -> IndexValue | None:
    """Arithmetic on indices, where nothing wraps around, is an index."""
    args, dtype = [g.at[v] for v in s.inputs], s.result.dtype
    if s.op not in COUNTING or dtype.kind != "int" or dtype.bits < 32 or not any(type(a) is IndexValue for a in args):
        return None
    if not all(type(a) is IndexValue or type(a) is ScalarConstant for a in args):
        return None
    value = COUNTING[s.op](
        *[a.value if isinstance(a, IndexValue) else int(a.value) for a in args if isinstance(a, IndexValue | ScalarConstant)]
    )
    low, high = bounds(value, g.known)
    return IndexValue(value, dtype) if dtype.lowest <= low and high <= dtype.highest and not loads(value) else None


def _element(g: NodeGraph, s: Step) -> None:
    index = _counted(g, s)
    if index is not None:
        g.at[s.result] = index
        return
    attrs = {k: a for k, a in s.attrs.items() if k != "dtype"}
    g.at[s.result] = r = g.elem(s.op, *[g.at[v] for v in s.inputs], axes=s.result.axes, dtype=s.result.dtype, **attrs)
    r.source.hint = s.result.hint


@NODES.of("constant")
def _constant(g: NodeGraph, s: Step) -> None:
    value, axes, dtype = s.attrs["value"], s.attrs["axes"], s.attrs["dtype"]
    if type(value) is ArrayRef:
        g.at[s.result] = Read(Constant(value, axes, dtype), identity_index(axes))
    elif isinstance(value, Expr):
        g.at[s.result] = g.cast(IndexValue(g.settled(value), dtypes.int64), (), dtype)
    else:
        g.at[s.result] = ScalarConstant(value, dtype)


class Constant:
    """An array by reference, as a source of reads; the same array with the same axes is the same constant."""

    __slots__ = ("value", "axes", "dtype")

    def __init__(self, value: ArrayRef, axes: tuple[AxisId, ...], dtype: DType):
        self.value, self.axes, self.dtype = value, axes, dtype

    def __eq__(self, other: object) -> bool:
        return type(other) is Constant and other.value == self.value and other.axes == self.axes

    def __hash__(self) -> int:
        return hash((self.value, self.axes))


@NODES.of("iota")
def _iota(g: NodeGraph, s: Step) -> None:
    x, dtype = IndexValue(Idx(s.attrs["axis"]), dtypes.int64), s.attrs["dtype"]
    n = g.known(s.attrs["axis"])
    fits = dtype.is_integer and dtype.bits >= 32 and n is not None and n < 1 << 31
    g.at[s.result] = IndexValue(x.value, dtype) if fits else g.cast(x, s.result.axes, dtype)


@NODES.of("random_bits")
def _random_bits(g: NodeGraph, s: Step) -> None:
    state, *trips = s.inputs
    flat: ExprLike = 0
    for a in s.attrs["axes"]:
        flat = flat * g.length(a) + Idx(a)
    (axis,) = state.axes
    words = [g.at[state].at({axis: k}) for k in (0, 1)]
    args = [*words, *[g.at[t] for t in trips], IndexValue(flat, dtypes.int64)]
    g.at[s.result] = g.elem("random_bits", *args, axes=s.result.axes, dtype=s.result.dtype, stream=s.attrs["stream"])


@NODES.of("broadcast")
def _broadcast(g: NodeGraph, s: Step) -> None:
    g.at[s.result] = g.at[s.inputs[0]]


@NODES.of("rename")
def _rename(g: NodeGraph, s: Step) -> None:
    g.at[s.result] = g.at[s.inputs[0]].at({old: Idx(new) for old, new in s.attrs["to"]})


@NODES.of("reindex")
def _reindex(g: NodeGraph, s: Step) -> None:
    index = {a: g.settled(e) for a, e in s.attrs["index"]}
    guard = [g.settled(e) for e in s.attrs["guard"]]
    (x,) = s.inputs
    g.at[s.result] = g.moved(g.at[x], x.axes, index, guard, s.attrs["fill"])


def _place(g: NodeGraph, i: Value, axis: AxisId, mode: str) -> tuple[ExprLike, tuple[ExprLike, ...]]:
    """Returns the position of an index along an axis, and the expressions that must not be negative for it."""
    n, x = g.length(axis), g.at[i]
    if i.dtype.bits == 64 and i.dtype.kind == "uint" and isinstance(n, int):  # into the range of int64 first
        limit = ScalarConstant(max(n, 1), i.dtype)
        x = g.elem("remainder" if mode == "wrap" else "minimum", x, limit, axes=i.axes, dtype=i.dtype)
    e = g.number(x, i.axes)
    some = () if isinstance(n, int) and n > 0 else (n - 1,)
    if mode == "wrap":
        return (e % maximum(n, 1), some)
    if mode == "clip" and e == maximum(minimum(e, n - 1), 0):  # it is where it belongs
        return e, some
    if mode == "clip":
        return maximum(minimum(e, n - 1), 0), some
    return e, (e, n - 1 - e)


@NODES.of("check_bounds")
def _check_bounds(g: NodeGraph, s: Step) -> None:
    """The index counted from the start, as an expression; one reduction over it says whether a routine has to look for the error."""
    (i,), n, flag, whole = s.inputs, g.length(s.attrs["axis"]), dtypes.bool_, dtypes.int64
    x: Arg = g.at[i]
    if i.dtype.kind == "uint" and i.dtype.bits == 64:  # into the range of int64 first
        x = g.elem("minimum", x, ScalarConstant(1 << 62, i.dtype), axes=i.axes, dtype=i.dtype)
    given, x = x, g.cast(x, i.axes, whole)
    least: Arg = (
        ScalarConstant(-n if s.attrs["negative"] else 0, whole)
        if isinstance(n, int)
        else IndexValue(0 - n if s.attrs["negative"] else 0, whole)
    )
    most = ScalarConstant(n, whole) if isinstance(n, int) else IndexValue(n, whole)
    low = g.elem("compare", x, least, axes=i.axes, dtype=flag, kind="lt")
    high = g.elem("compare", most, x, axes=i.axes, dtype=flag, kind="le")
    outside = g.reduce("max", g.elem("where", low, ScalarConstant(True, flag), high, axes=i.axes, dtype=flag), (), i.axes, flag)
    g.node("routine", s.op, [g.given(g.at[i], i.axes), g.given(outside, ())], (), dtypes.token, attrs=dict(s.attrs))
    e = g.number(given, i.axes)
    if s.attrs["negative"] and i.dtype.kind == "int":
        e = e + n * minimum(maximum(0 - e, 0), 1)
    g.at[s.result] = IndexValue(maximum(minimum(e, n - 1), 0), whole)


@NODES.of("gather")
def _gather(g: NodeGraph, s: Step) -> None:
    x, *indices = s.inputs
    index = identity_index(x.axes)
    guards: list[ExprLike] = []
    for a, i in zip(s.attrs["axes"], indices, strict=True):
        index[a], more = _place(g, i, a, s.attrs["mode"])
        guards += more
    g.at[s.result] = g.guarded(g.at[x], x.axes, index, guards, 0)


@NODES.of("scatter")
def _scatter(g: NodeGraph, s: Step) -> None:
    x, *indices, u = s.inputs
    index = identity_index(x.axes)
    guards: list[ExprLike] = []
    for a, i in zip(s.attrs["axes"], indices, strict=True):
        index[a], more = _place(g, i, a, s.attrs["mode"])
        guards += more
    how = s.attrs["combine"]
    wide = accumulator(x.dtype) if how in ("add", "multiply") else x.dtype
    first, update = g.cast(g.at[x], x.axes, wide), g.cast(g.at[u], u.axes, wide)
    parts = (PiecewisePart(x.axes, first, identity_index(x.axes)), PiecewisePart(u.axes, update, index, tuple(guards), how))
    g.at[s.result] = g.cast(g.node("join", "scatter", [], x.axes, wide, parts=parts), x.axes, x.dtype)


@NODES.of("concat")
def _concat(g: NodeGraph, s: Step) -> None:
    axis, parts = s.attrs["axis"], []
    start: ExprLike = 0
    for own, v in zip(s.attrs["parts"], s.inputs, strict=True):
        index = {a: Idx(own) + start if a == axis else Idx(a) for a in s.result.axes}
        axes, arg = tuple([own if a == axis else a for a in s.result.axes]), g.at[v]
        if g.known(own) == 1:  # no axis at all
            axes, arg, index[axis] = tuple([a for a in axes if a != own]), arg.at({own: 0}), start
        parts.append(PiecewisePart(axes, arg, index))
        start = start + g.length(own)
    g.at[s.result] = g.node("join", "join", [], s.result.axes, s.result.dtype, parts=tuple(parts), attrs={"apart": True})


@NODES.of("reduce")
def _reduce(g: NodeGraph, s: Step) -> None:
    v, axes, over = s.result, s.result.axes, tuple(s.attrs["axes"])
    made = g.reduce(s.attrs["kind"], g.at[s.inputs[0]], axes, over, accumulator(v.dtype))
    g.at[v] = g.cast(made, axes, v.dtype)


@NODES.of("argreduce")
def _argreduce(g: NodeGraph, s: Step) -> None:
    """The best, then the first place that holds it; a NaN is the best, and unequal to itself."""
    (x,), axes, over = s.inputs, s.result.axes, tuple(s.attrs["axes"])
    space, flag, whole = (*axes, *over), dtypes.bool_, dtypes.int32
    value = g.at[x]
    best = g.reduce(s.attrs["kind"], value, axes, over, x.dtype)
    hit: Arg = g.elem("compare", value, best, axes=space, dtype=flag, kind="eq")
    if x.dtype.is_float:
        same = g.elem("compare", value, value, axes=space, dtype=flag, kind="eq")
        hit = g.elem("where", same, hit, ScalarConstant(True, flag), axes=space, dtype=flag)
    flat: ExprLike = 0
    for a in over:
        flat = flat * g.length(a) + Idx(a)
    nowhere = ScalarConstant((1 << 31) - 1, whole)
    place = g.elem("where", hit, IndexValue(flat, whole), nowhere, axes=space, dtype=whole)
    first = g.reduce("min", place, axes, over, whole)
    if type(first) is Read and over:
        first.source.attrs = {"chosen": s.attrs["kind"]}
    g.at[s.result] = first


def _product(g: NodeGraph, s: Step, x: Arg, y: Arg, over: tuple[AxisId, ...]) -> None:
    """The sum of products, kept as `accumulate`."""
    v, kind = s.result, s.attrs["accumulate"]
    space = (*v.axes, *over)
    x, y = (_gathered(g, g.cast(a, v.axes, kind), v.axes) for a, v in zip((x, y), s.inputs, strict=True))
    made = g.elem("multiply", x, y, axes=space, dtype=kind)
    g.at[v] = g.cast(g.reduce("add", made, v.axes, over, kind), v.axes, v.dtype)


def _gathered(g: NodeGraph, x: Arg, axes: tuple[AxisId, ...]) -> Arg:
    """A value that is read at indices which are read, as an array of its own: products read it again and again."""
    found = type(x) is Read and x.axes <= frozenset(axes) and any(type(e) is Load for i in x.index.values() for e in expr.leaves(i))
    return g.elem("copy", x, axes=axes, dtype=dtype_of(x)) if found else x


@NODES.of("contract")
def _contract(g: NodeGraph, s: Step) -> None:
    x, y = (g.at[v] for v in s.inputs)
    _product(g, s, x, y, tuple(s.attrs["over"]))


@NODES.of("convolve")
def _convolve(g: NodeGraph, s: Step) -> None:
    x, f = s.inputs
    spatial = s.attrs["spatial"]
    # what the filters are summed over may be an axis of the result, too: then it moves by itself
    over, windows = s.attrs["over"], [window for _, window, *_ in spatial]
    taps = {a: g.axis(f"{a} tap", g.length(a)) if a in s.result.axes else a for a in (*over, *windows)}
    index: dict[AxisId, ExprLike] = {a: Idx(taps[a] if a in over else a) for a in x.axes}
    guards: list[ExprLike] = []
    for inner, window, out, stride, dilation, spread, pad in spatial:
        at = Idx(out) * stride + Idx(taps[window]) * dilation - pad
        if spread != 1:
            guards.append(0 - at % spread)
        index[inner] = at // spread
    kind = s.attrs["accumulate"]
    moved = g.moved(g.cast(g.at[x], x.axes, kind), x.axes, index, guards, 0)
    filters = _gathered(g, g.cast(g.at[f], f.axes, kind), f.axes).at({a: Idx(tap) for a, tap in taps.items()})
    _product(g, s, moved, filters, tuple(taps.values()))


def _lies(g: NodeGraph, v: Value) -> tuple[AxisId, ...] | None:
    """The order in which a value that comes from outside or from a routine lies."""
    x = g.at[v]
    if type(x) is not Read or x.guard or not x.identity_indexed.issuperset(v.axes) or set(x.source.axes) != set(v.axes):
        return None
    given = type(x.source) is Value or (type(x.source) is Node and x.source.kind == "part")
    return tuple(x.source.axes) if given else None


def _routine(g: NodeGraph, s: Step) -> None:
    attrs, orders, results = arranged(s, lambda v: _lies(g, v))
    args = [g.at[v] if v.dtype.kind == "token" else g.given(g.at[v], axes) for v, axes in zip(s.inputs, orders, strict=True)]
    attrs = {k: tuple(map(g.settled, a)) if type(a) is tuple else g.settled(a) for k, a in attrs.items()}
    call = g.node("routine", s.op, args, (), dtypes.token, attrs=attrs).source
    made = REGISTRY[s.op].type(tuple([v.type for v in s.inputs]), **s.attrs)
    for k, (v, own, wanted) in enumerate(zip(s.results, made if type(made) is tuple else (made,), results, strict=True)):
        axes = wanted or (own.axes if set(own.axes) == set(v.axes) else v.axes)
        g.at[v] = part = g.node("part", "part", [Read(call, {})], axes, v.dtype, attrs={"k": k})
        part.source.hint = v.hint


@NODES.of("all_reduce", "all_gather", "reduce_scatter", "broadcast_from")
def _identity(g: NodeGraph, s: Step) -> None:
    """Lowers a collective to its operand: a plan runs on one process."""
    moved: dict[AxisId, ExprLike] = {}
    if "out" in s.attrs:
        axis, out = s.attrs["axis"], s.attrs["out"]
        here, there = g.known(axis), g.known(out)
        if None not in (here, there) and here != there:
            raise UnsupportedError(f"{s.op} from {axis}={here} to {out}={there}: there is one process, which has all of it")
        moved = {axis: Idx(out)}
    g.at[s.result] = g.at[s.inputs[0]].at(moved)

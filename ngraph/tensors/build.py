"""Program → tensor graph: one rule for each core op that is not an elementwise operation.

The rules are a table by core op (`NODES`). Data movement becomes the index of a read; an op that is not a loop nest becomes an opaque op
(`routine`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from ngraph.errors import UnsupportedError
from ngraph.op_graph import dtypes, expr
from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.dtypes import accumulator
from ngraph.op_graph.expr import Expr, ExprLike, Idx, Len, Run, maximum, minimum
from ngraph.op_graph.opdef import ELEMENTWISE, OPS, REGISTRY
from ngraph.parts.registry import Column
from ngraph.program.program import AxisId, Program, Step, Value
from ngraph.targets.tuning import MIN_SAMPLE_OPERATIONS
from ngraph.tensors.control import arranged
from ngraph.tensors.edit import GraphEditor
from ngraph.tensors.graph import (
    Arg,
    Constant,
    IndexValue,
    PiecewisePart,
    ScalarConstant,
    TensorGraph,
    TensorNode,
    dtype_of,
    guessed_length,
    known_length,
)
from ngraph.tensors.index import Load, Read, bounds, divided_axes, identity_index, loads, loop_variant_axes

NODES: Column[Any] = OPS.column(
    "plan_nodes", Callable, None, "(graph, step): adds the nodes of a step that is not an elementwise operation"
)


def build(program: Program, scalar_ops: Collection[str] = ELEMENTWISE.names, loop_invariant: Collection[Value] = ()) -> TensorGraph:
    """Returns the tensor graph of a program. `scalar_ops`: the elementwise ops that loops can hold; others become opaque ops."""
    g = GraphBuilder(program, loop_invariant)
    for step in program.steps:
        g.origin = step.origin
        (NODES[step.op] or (_element if step.op in scalar_ops else _routine))(g, step)
    g.finish()
    return g.frozen()


def batch_axes(program: Program) -> frozenset[AxisId]:
    """The axes of open length that stand first in an input with another one, or for each place of which very much is computed.

    Batches are small where other lengths vary too, and of pictures, sounds and texts; but not in training, where products are summed over
    them. A matrix of floats with two open lengths may be of anything.
    """
    axes, known = program.axes, dict[AxisId, int | None]()
    firsts, found = list[AxisId](), list[AxisId]()
    for v in filter(lambda v: v.axes, program.inputs):
        first, *others = v.axes
        if axes[first] == Len(first) and known_length(axes, first, known) is None:
            varied = any(axes[a] == Len(a) for a in others) and not (v.dtype.is_float and len(others) == 1)
            (found if varied else firsts).append(first)
    return frozenset([*found, *[a for a in dict.fromkeys(firsts) if a not in found and _few(program, a)]])


def _few(program: Program, batch: AxisId) -> bool:
    """Whether so much is computed for each place of an axis, and no product summed over it, that calls are assumed to have few."""
    one, two = dict[AxisId, int](), dict[AxisId, int]()

    def more(axes: Iterable[AxisId]) -> int:
        """Returns how much larger a space is with two places of the axis than with one."""
        own = dict.fromkeys(axes)
        sizes = [math.prod([guessed_length(program.axes, a, {batch: n}, of) for a in own]) for n, of in ((1, one), (2, two))]
        return sizes[1] - sizes[0]

    operations = 0
    for s in program.steps:  # a product and its sum count as one operation; what loops compute is not counted
        if s.op in ("contract", "convolve") and more(s.attrs["over"]):
            return False
        read = s.inputs[1:] if s.op == "convolve" else s.inputs  # its windows are axes of its filters
        operations += more([a for v in (*s.results, *read) for a in v.axes])
    return operations >= MIN_SAMPLE_OPERATIONS


class GraphBuilder(GraphEditor):
    """The nodes built so far, and the read that stands for each value of the program."""

    def __init__(self, program: Program, loop_invariant: Collection[Value] = ()):
        super().__init__(
            TensorGraph(
                axes=program.axes,
                few=batch_axes(program),
                inputs=program.inputs,
                states=program.state_in,
                token_in=program.token_in,
                loop_invariant=frozenset(loop_invariant),
                name=program.name,
                writes=program.writes,
            )
        )
        self.program = program
        self.at: dict[Value, Arg] = {v: Read(v, identity_index(v.axes)) for v in program.sources()}

    def number(self, x: Arg, axes: tuple[AxisId, ...]) -> ExprLike:
        """Returns an integer argument as an index expression."""
        if type(x) is ScalarConstant:
            return int(x.value)
        if type(x) is IndexValue and x.dtype.bits >= 32:
            return x.value
        return Load(x if type(x) is Read else self.elem("copy", x, axes=axes, dtype=dtype_of(x)))

    def settled(self, e: Any) -> Any:
        """Returns an expression whose run-time numbers are loads."""
        return expr.substitute(e, lambda x: self.number(self.at[x.of], ()) if type(x) is Run else x) if isinstance(e, Expr) else e

    # the end
    def finish(self) -> None:
        """Marks the outputs of the graph, and the numbers that lengths need."""
        p, taken = self.program, set()
        self.origin = p.steps[-1].origin if p.steps else ()
        kept: dict[Value, Read] = {}
        written = {n for _, n in p.writes}  # they have memory of their own: the caller's
        for n, v in enumerate(p.outputs):
            r = None if n in written else kept.get(v)
            if r is None:
                r = self.whole(self.at[v], v.axes)
                if not isinstance(r.source, TensorNode) or r.source in taken:
                    r = self.elem("copy", r, axes=v.axes, dtype=v.dtype)
                taken.add(r.source)
                r.source.result, r.source.hint = True, v.hint or r.source.hint
                if n not in written:
                    kept[v] = r
            self.outputs.append(r.source)
        before = {s.name: s.value for s in p.state_in}
        for name, v in p.state_out:
            old = before[name]
            if v is old:
                continue
            r = self.whole(self.at[v], old.axes)
            if r.source is old:  # it stays as it is
                continue
            if not isinstance(r.source, TensorNode) or r.source in taken:
                r = self.elem("copy", self.at[v], axes=old.axes, dtype=old.dtype)
            taken.add(r.source)
            r.source.result, r.source.state, r.source.hint = True, name, r.source.hint or name
            self.state_out.append((name, old, r.source))
        if p.token_out is not None:
            token = self.at[p.token_out]
            assert isinstance(token, Read)
            self.token_out = token.source
        for a, length in p.axes.items():
            if isinstance(length, Expr) and self.known(a) is None:  # lengths that steps find
                for leaf in expr.leaves(length):
                    if type(leaf) is Run:
                        self.run_length(leaf.of)

    def run_length(self, v: Value) -> None:
        """Materialises a number on which a length depends."""
        x = self.whole(self.at[v], ())
        if isinstance(x.source, TensorNode):
            x.source.result = True
        self.at[v] = self.numbers[v] = x


# ---- one rule for each core op that is not a scalar operation ----------------------------------------------------------------


COUNTING = {"add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b}


def _counted(g: GraphBuilder, s: Step) -> IndexValue | None:
    """Turns integer arithmetic on indices into an index expression where nothing can wrap around."""
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


def _element(g: GraphBuilder, s: Step) -> None:
    index = _counted(g, s)
    if index is not None:
        g.at[s.result] = index
        return
    attrs = {k: a for k, a in s.attrs.items() if k != "dtype"}
    g.at[s.result] = r = g.elem(s.op, *[g.at[v] for v in s.inputs], axes=s.result.axes, dtype=s.result.dtype, **attrs)
    r.source.hint = s.result.hint


@NODES.of("constant")
def _constant(g: GraphBuilder, s: Step) -> None:
    value, axes, dtype = s.attrs["value"], s.attrs["axes"], s.attrs["dtype"]
    if type(value) is ArrayRef:
        g.at[s.result] = Read(Constant(value, axes, dtype), identity_index(axes))
    elif isinstance(value, Expr):
        g.at[s.result] = g.cast(IndexValue(g.settled(value), dtypes.int64), (), dtype)
    else:
        g.at[s.result] = ScalarConstant(value, dtype)


@NODES.of("iota")
def _iota(g: GraphBuilder, s: Step) -> None:
    x, dtype = IndexValue(Idx(s.attrs["axis"]), dtypes.int64), s.attrs["dtype"]
    n = g.known(s.attrs["axis"])
    fits = dtype.is_integer and dtype.bits >= 32 and n is not None and n < 1 << 31
    g.at[s.result] = IndexValue(x.value, dtype) if fits else g.cast(x, s.result.axes, dtype)


@NODES.of("random_bits")
def _random_bits(g: GraphBuilder, s: Step) -> None:
    state, *trips = s.inputs
    flat: ExprLike = 0
    for a in s.attrs["axes"]:
        flat = flat * g.length(a) + Idx(a)
    (axis,) = state.axes
    words = [g.at[state].at({axis: k}) for k in (0, 1)]
    args = [*words, *[g.at[t] for t in trips], IndexValue(flat, dtypes.int64)]
    g.at[s.result] = g.elem("random_bits", *args, axes=s.result.axes, dtype=s.result.dtype, stream=s.attrs["stream"])


@NODES.of("broadcast")
def _broadcast(g: GraphBuilder, s: Step) -> None:
    g.at[s.result] = g.at[s.inputs[0]]


@NODES.of("rename")
def _rename(g: GraphBuilder, s: Step) -> None:
    g.at[s.result] = g.at[s.inputs[0]].at({old: Idx(new) for old, new in s.attrs["to"]})


@NODES.of("reindex")
def _reindex(g: GraphBuilder, s: Step) -> None:
    index = {a: g.settled(e) for a, e in s.attrs["index"]}
    predicate = [g.settled(e) for e in s.attrs["predicate"]]
    (x,) = s.inputs
    g.at[s.result] = g.moved(_undivided(g, x, index), x.axes, index, predicate, s.attrs["pad_value"])


def _undivided(g: GraphBuilder, v: Value, index: Mapping[AxisId, ExprLike]) -> Arg:
    """Returns a value that will be read at this index; a view whose indices divide where windows move is materialised.

    Otherwise each element of each window would be found by division: those of a picture that was enlarged, or made of channels.
    """
    x = g.at[v]
    if type(x) is Read and any(len(loop_variant_axes(index[a])) > 1 for a in divided_axes(x) if a in index):
        g.at[v] = x = g.elem("copy", x, axes=v.axes, dtype=v.dtype)
    return x


def _place(g: GraphBuilder, i: Value, axis: AxisId, mode: str) -> tuple[ExprLike, tuple[ExprLike, ...]]:
    """Returns the position of an index along an axis, and the expressions that must not be negative for it."""
    n, x = g.length(axis), g.at[i]
    if i.dtype.bits == 64 and i.dtype.kind == "uint":  # into the range of int64 first
        if mode == "wrap":
            limit: Arg = ScalarConstant(max(n, 1), i.dtype) if isinstance(n, int) else IndexValue(maximum(n, 1), i.dtype)
            x = g.elem("remainder", x, limit, axes=i.axes, dtype=i.dtype)
        else:
            x = g.elem("minimum", x, ScalarConstant(max(n, 1) if isinstance(n, int) else 1 << 62, i.dtype), axes=i.axes, dtype=i.dtype)
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
def _check_bounds(g: GraphBuilder, s: Step) -> None:
    """Returns the index counted from the start, as an expression. A reduction over it tells whether an opaque op must find the error."""
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
def _gather(g: GraphBuilder, s: Step) -> None:
    x, *indices = s.inputs
    index = identity_index(x.axes)
    predicates: list[ExprLike] = []
    for a, i in zip(s.attrs["axes"], indices, strict=True):
        index[a], more = _place(g, i, a, s.attrs["mode"])
        predicates += more
    g.at[s.result] = g.predicated(g.at[x], x.axes, index, predicates, x.dtype.zero)


@NODES.of("scatter")
def _scatter(g: GraphBuilder, s: Step) -> None:
    x, *indices, u = s.inputs
    index = identity_index(x.axes)
    predicates: list[ExprLike] = []
    for a, i in zip(s.attrs["axes"], indices, strict=True):
        index[a], more = _place(g, i, a, s.attrs["mode"])
        predicates += more
    how = s.attrs["combine"]
    wide = accumulator(x.dtype) if how in ("add", "multiply") else x.dtype
    first, update = g.cast(g.at[x], x.axes, wide), g.cast(g.at[u], u.axes, wide)
    parts = (PiecewisePart(x.axes, first, identity_index(x.axes)), PiecewisePart(u.axes, update, index, tuple(predicates), how))
    g.at[s.result] = g.cast(g.node("join", "scatter", [], x.axes, wide, parts=parts), x.axes, x.dtype)


@NODES.of("concat")
def _concat(g: GraphBuilder, s: Step) -> None:
    axis, parts = s.attrs["axis"], []
    start: ExprLike = 0
    for own, v in zip(s.attrs["parts"], s.inputs, strict=True):
        index = {a: Idx(own) + start if a == axis else Idx(a) for a in s.result.axes}
        axes, arg = tuple([own if a == axis else a for a in s.result.axes]), g.at[v]
        if g.known(own) == 1:  # no axis at all
            axes, arg, index[axis] = tuple([a for a in axes if a != own]), arg.at({own: 0}), start
        parts.append(PiecewisePart(axes, arg, index))
        start = start + g.length(own)
    g.at[s.result] = g.node("join", "join", [], s.result.axes, s.result.dtype, parts=tuple(parts), disjoint=True)


@NODES.of("reduce")
def _reduce(g: GraphBuilder, s: Step) -> None:
    v, axes, over = s.result, s.result.axes, tuple(s.attrs["axes"])
    made = g.reduce(s.attrs["kind"], g.at[s.inputs[0]], axes, over, accumulator(v.dtype))
    g.at[v] = g.cast(made, axes, v.dtype)


@NODES.of("argreduce")
def _argreduce(g: GraphBuilder, s: Step) -> None:
    """Reduces to the best value, then to the first index that holds it; a NaN counts as best, and is unequal to itself."""
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
    g.at[s.result] = g.reduce("min", place, axes, over, whole, selects=s.attrs["kind"])


def _product(g: GraphBuilder, s: Step, x: Arg, y: Arg, over: tuple[AxisId, ...]) -> None:
    """Builds the sum of products in the dtype `accumulate`."""
    v, kind = s.result, s.attrs["accumulate"]
    space = (*v.axes, *over)
    x, y = (_gathered(g, g.cast(a, v.axes, kind), v.axes, space) for a, v in zip((x, y), s.inputs, strict=True))
    made = g.elem("multiply", x, y, axes=space, dtype=kind)
    g.at[v] = g.cast(g.reduce("add", made, v.axes, over, kind), v.axes, v.dtype)


def _gathered(g: GraphBuilder, x: Arg, axes: tuple[AxisId, ...], space: tuple[AxisId, ...]) -> Arg:
    """Materialises a gathered operand that products read many times: along axes of their index space that it lacks."""
    if all(a in axes or g.known(a) == 1 for a in space):
        return x
    found = type(x) is Read and x.axes <= frozenset(axes) and any(type(e) is Load for i in x.index.values() for e in expr.leaves(i))
    return g.elem("copy", x, axes=axes, dtype=dtype_of(x)) if found else x


@NODES.of("contract")
def _contract(g: GraphBuilder, s: Step) -> None:
    x, y = (g.at[v] for v in s.inputs)
    _product(g, s, x, y, tuple(s.attrs["over"]))


@NODES.of("convolve")
def _convolve(g: GraphBuilder, s: Step) -> None:
    x, f = s.inputs
    spatial = s.attrs["spatial"]
    # what the filters are summed over may be an axis of the result, too: then it moves by itself
    over, windows = s.attrs["over"], [window for _, window, *_ in spatial]
    taps = {a: g.axis(f"{a} tap", g.length(a)) if a in s.result.axes else a for a in (*over, *windows)}
    index: dict[AxisId, ExprLike] = {a: Idx(taps[a] if a in over else a) for a in x.axes}
    predicates: list[ExprLike] = []
    for inner, window, out, stride, dilation, spread, pad in spatial:
        at = Idx(out) * stride - pad
        if g.known(window) != 1:  # a window of one place moves nothing, and so may be fused with what makes its operand
            at += Idx(taps[window]) * dilation
        if spread != 1:
            predicates.append(0 - at % spread)
        index[inner] = at // spread
    kind = s.attrs["accumulate"]
    moved = g.moved(g.cast(_undivided(g, x, index), x.axes, kind), x.axes, index, predicates, 0)
    space = (*s.result.axes, *taps.values())
    filters = _gathered(g, g.cast(g.at[f], f.axes, kind), f.axes, space).at({a: Idx(tap) for a, tap in taps.items()})
    _product(g, s, moved, filters, tuple(taps.values()))


def _lies(g: GraphBuilder, v: Value) -> tuple[AxisId, ...] | None:
    """Returns the dimension order of a value that is an input or the result of an opaque op."""
    x = g.at[v]
    if type(x) is not Read or x.predicate or not x.identity_indexed.issuperset(v.axes) or set(x.source.axes) != set(v.axes):
        return None
    given = type(x.source) is Value or (isinstance(x.source, TensorNode) and x.source.kind == "part")
    return tuple(x.source.axes) if given else None


def _routine(g: GraphBuilder, s: Step) -> None:
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
def _identity(g: GraphBuilder, s: Step) -> None:
    """Lowers a collective to its operand: a plan runs on one process."""
    moved: dict[AxisId, ExprLike] = {}
    if "out" in s.attrs:
        axis, out = s.attrs["axis"], s.attrs["out"]
        here, there = g.known(axis), g.known(out)
        if None not in (here, there) and here != there:
            raise UnsupportedError(f"{s.op} from {axis}={here} to {out}={there}: there is one process, which has all of it")
        moved = {axis: Idx(out)}
    g.at[s.result] = g.at[s.inputs[0]].at(moved)

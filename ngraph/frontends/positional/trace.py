"""Reading a graph: names to values, questions about lengths to answers that hold for this call, and the stages they make.

The graph is read during a call. A length stays an expression as long as nothing depends on what it is. Where something does (is it
1? are these two equal?), this call's answer is taken and an `Ask` stage noted, so that a later call with another answer reads the
graph again down its own way. What cannot be said with open lengths makes them fixed: `number` does that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from ngraph.errors import GraphError, NgraphError, ParseError, UnsupportedError
from ngraph.frontends.positional.growing import GrowingState, Grown
from ngraph.frontends.positional.stages import Ask, CallStage, Compute, HostStage, StageRun, bytes_of
from ngraph.frontends.positional.values import ConstantArray, Held, Sizes, StringInput, Tensor, Value
from ngraph.op_graph import expr
from ngraph.op_graph.arrays import slowest_first
from ngraph.op_graph.axes import Axes, Axis, make_axis
from ngraph.op_graph.dtypes import as_dtype
from ngraph.op_graph.expr import Bin, Expr, ExprLike, Len
from ngraph.op_graph.expr import Run as RunLength
from ngraph.op_graph.op import Op, ordered
from ngraph.ops.elementwise import cast, constant, constant_record, filled
from ngraph.ops.rearrange import broadcast, digits, product, radix, reindex, rename_record, stack
from ngraph.ops.state import placeholder, value_of
from ngraph.program.program import attr_axes
from ngraph.transformers import make_transformer_factory

MOST_NODES = 1 << 14  # nodes that calls of functions and turns of loops stand for: a few seconds of reading
SMALLER = "is the file damaged? Else call functions less often, or make loops of what repeats"

ASK = {
    "eq": lambda a, b: a == b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}


class Fixed(Exception):
    """These axes must have known lengths: the graph is read again with them."""

    def __init__(self, names: Iterable[str]):
        self.names = frozenset(names)


@cache
def _direct() -> Any:
    """Returns what computes tensors of constants while a graph is read."""
    return make_transformer_factory("direct")()


class Inside(Exception):
    """Within a loop or a branch that was to become one op, something is needed that only a stage of its own can give.

    Its argument, if any, is what is wrong where there is no loop and no branch around.
    """


class ModelTrace:
    """One reading of a model's graph, for one call.

    run      the call: arrays and lengths, filled as stages run        fixed  names of axes whose length is taken as it is
    compute  (ops, placeholders) -> computation                   variables  of the initializers that are not constants
    """

    def __init__(
        self, root: CallStage, run: StageRun, fixed: frozenset[str], compute: Callable[..., Any], variables: Mapping[str, Op] | None = None
    ):
        self.stage, self.key = root, root.step(run)
        self.run, self.fixed, self.compute, self.variables = run, fixed, compute, variables or {}
        self.slots: dict[Op, tuple[int, Any]] = {}  # what stands in slots: where, and as which dims
        self.answers: dict[Any, Hashable] = {}
        self.constants: dict[ConstantArray, Tensor] = {}
        self.evaluated: dict[Op, tuple[Any, np.ndarray[Any, Any]] | None] = {}  # tensors of constants alone, asked for their values
        self.state: dict[str, Value] = {}  # what variables hold that have been assigned on the way here, by name
        self.growing: dict[str, GrowingState] = {}  # variables of which a part is used, which grows, by name
        self.grown: dict[str, Grown] = {}  # what they become
        self.assigned: set[str] = set()  # variables that have been assigned in the innermost op with bodies
        self.scopes: list[dict[str, Value]] = [self.state]
        self.numbered = 0  # axes that were named by their number
        self.next_slot = 0
        self.hosts: list[str] = []
        self.blamed: Exception | None = None  # what the innermost node that failed has raised
        self.indices = "raise"  # or "clip": what becomes of one that is out of bounds
        self.clamped = ""  # how to say `clip`, for errors
        self.few_decide = True  # whether few numbers of the inputs may decide the way on, see `few`
        self.unseen: frozenset[int] | None = None  # where one graph for all values is wanted: inputs of which only the shape is given
        self.nodes = 0  # how many nodes have been read, those of functions and of loops' turns as often as they came
        self.most = MOST_NODES  # how many are
        self.dims: dict[str, tuple[int | None, ...]] = {}  # of the values that ops are called after, see `Reader.graph_and_dims`
        self.bodies = 0  # how many bodies of loops and branches are being read as ops

    def count(self, more: int = 1) -> None:
        """Counts what is read: nodes, and turns of what is unrolled. Raises ParseError where that is too much."""
        self.nodes += more
        if self.nodes > self.most:
            raise ParseError(f"with the turns of loops more than {self.most:,} nodes would be read", fix=SMALLER)

    # ---- stages
    def follow(self, make: Callable[[], CallStage]) -> CallStage:
        """The next stage: the one found by an earlier reading that came this way, else a new one."""
        stage = self.stage.next.get(self.key)
        if stage is None:
            stage = self.stage.next[self.key] = make()
        self.stage, self.key = stage, None
        self.key = stage.step(self.run)
        return stage

    def ask(self, about: Hashable, question: Callable[[StageRun], Hashable], shapes: bool = False) -> Hashable:
        """Returns this call's answer to a question; asked once."""
        if about not in self.answers:
            self.follow(lambda: Ask(question, shapes))
            self.answers[about] = self.key
        return self.answers[about]

    def slot(self) -> int:
        self.next_slot += 1
        return self.next_slot - 1

    # ---- lengths
    def fresh(self, size: ExprLike, name: str = "") -> Axis:
        """A new axis of this length. Raises GraphError for one below 0."""
        size = self.checked_length(size)
        self.numbered += 1
        axis = make_axis(None, name=name or f"D{self.numbered}", batch=False, recurrent=False, channel=False)
        axis.family.length = size
        return axis

    def resized(self, axis: Axis | None, size: ExprLike) -> Axis:
        """An axis with the name of this one and another length; where that is the length of an axis of this name, it is that axis."""
        if isinstance(size, Len) and size.of == axis:
            return size.of
        return self.fresh(size) if axis is None else axis.resized(self.checked_length(size))

    def checked_length(self, size: ExprLike) -> ExprLike:
        """Returns a length. Raises GraphError for one below 0; calls of other shapes are asked where its expression may be.

        In one graph for all calls such a length is 0.
        """
        if isinstance(size, int):
            below = size < 0
        elif expr.is_length(size):
            below = False
        elif self.unseen is not None:
            return expr.maximum(size, 0)
        else:
            below = self.follows(size) and not self.truth("le", 0, size)
        if below:
            raise GraphError(f"a dim would have the length {self.hint(size)}", fix="" if isinstance(size, int) else "give larger inputs")
        return size

    def follows(self, size: ExprLike) -> bool:
        """Whether a length follows from those of the inputs, and of what has been computed before."""
        return all(isinstance(leaf, Len) and leaf.of.name in self.run.lengths for leaf in expr.leaves(size))

    def differ(self, a: ExprLike, b: ExprLike) -> bool:
        """Whether two lengths that follow from those of the inputs are unlike in this call; calls of other shapes are asked."""
        return self.follows(a) and self.follows(b) and not self.same(a, b)

    def open_axis(self, name: str, slot: int, dim: int) -> Axis:
        """The axis of a dim whose length comes with the call; of known length where it is fixed."""
        length = self.run.slots[slot].shape[dim]
        if name in self.fixed:
            self.ask(("length", name), lambda run: run.slots[slot].shape[dim], slot < 0)
            return make_axis(length, name=name)
        axis = make_axis(None, name=name)
        self.run.lengths[name] = length
        return axis

    def hint(self, e: ExprLike) -> int:
        """Returns the value of a length in this call."""
        return self.run.number(e)

    def truth(self, kind: str, a: ExprLike, b: ExprLike) -> bool:
        """Whether a = b (`eq`), a < b (`lt`), a <= b (`le`)."""
        if isinstance(a, (int, np.integer)) and isinstance(b, (int, np.integer)):
            return bool(ASK[kind](a, b))
        if a == b:
            return kind != "lt"
        if kind == "eq" and isinstance(a, int):
            a, b = b, a
        return bool(self.ask((kind, a, b), lambda run: ASK[kind](run.number(a), run.number(b)), True))

    def same(self, a: ExprLike, b: ExprLike) -> bool:
        return self.truth("eq", a, b)

    def number(self, e: ExprLike) -> int:
        """The length as a number: the axes it is made of become fixed."""
        if isinstance(e, Expr):
            raise Fixed(leaf.of.name for leaf in expr.leaves(e))
        return e

    def numbers(self, es: Iterable[ExprLike]) -> list[int]:
        es = list(es)
        open_ = [leaf.of.name for e in es if isinstance(e, Expr) for leaf in expr.leaves(e)]
        if open_:
            raise Fixed(open_)
        return [int(e) for e in es if not isinstance(e, Expr)]

    # ---- values
    def tensor(self, v: Value, dtype: Any = None) -> Tensor:
        """The value as an op."""
        if isinstance(v, Tensor):
            t = v
        elif isinstance(v, ConstantArray):
            if v not in self.constants:
                self.constants[v] = self.constant(v.array, v.name)
            t = self.constants[v]
        elif isinstance(v, Sizes):
            t = self.size_tensor(v)
        else:
            raise GraphError(f"a tensor of numbers is wanted, not {type(v).__name__.lower()}")
        return t if dtype is None else Tensor(cast(t.op, dtype), t.dims)

    def parameter(self, name: str, value: ConstantArray) -> Value:
        """An initializer: a constant, or the variable that it became."""
        variable = self.variables.get(name)
        return value if variable is None else self.ones(Tensor(variable, variable.axes))

    # ---- state
    def current(self, name: str) -> Value:
        """Returns the current value of a variable: that assigned last, else that before the call. Raises GraphError for an unknown name."""
        if name in self.state:
            return self.state[name]
        variable = self.variables.get(name)
        if variable is None:
            raise GraphError(f"there is no variable {name!r}", fix=f"there are {', '.join(self.variables) or 'none'}")
        return self.ones(Tensor(variable, variable.axes))

    def assign(self, name: str, value: Value) -> None:
        """From here on a variable holds this value, and after the call too. Raises GraphError for another shape or dtype."""
        old, new = self.current(name), self.tensor(value)
        wanted, given = self.described(old), self.described(new)
        if old.np != new.np or old.rank != new.rank or not all(self.same(a, b) for a, b in zip(old.shape, new.shape, strict=True)):
            raise GraphError(f"the variable {name!r} is {wanted}, and gets {given}", fix="give it a value of its shape and dtype")
        self.state[name] = new
        self.assigned.add(name)

    def past(self, name: str, dim: int, axis: Axis) -> Value:
        """Returns the used part of a variable that grows, as many places along a dim as the axis has."""
        self.growing[name] = made = GrowingState(self, self.variables[name], dim, axis)
        return made.past

    def appended(self, old: Tensor, new: Tensor, dim: int) -> Tensor | None:
        """Returns state with more behind it, written in place; None where `old` is not state that grows along this dim."""
        state = next((s for s in self.growing.values() if s.past.op is old.op and s.dim == dim), None)
        return None if state is None or self.bodies else state.appended(new)

    def grow(self, name: str, value: Value) -> None:
        """A variable that grows has this value after the call. Raises GraphError for another shape or dtype."""
        state, new = self.growing[name], self.tensor(value)
        made = state.became(new) if new.np == state.past.np else None
        if made is None:
            said = f"the state {name!r} is {self.described(state.past)}, and gets {self.described(new)}"
            raise GraphError(said, fix="give it a value that differs from it in one length alone")
        self.grown[name] = made

    def changes(self) -> dict[str, Op]:
        """Returns the variables' values after the call where they may be new, by name, each with the axes of its variable."""
        found = {name: made.full for name, made in self.grown.items()}
        for name, value in self.state.items():
            axes = self.variables[name].axes
            t = self.renamed(self.full(self.tensor(value)), axes)
            found[name] = broadcast(t.op, axes)
        return found

    def constant(self, array: np.ndarray[Any, Any], name: str = "") -> Tensor:
        if array.dtype == object or array.dtype.kind in "SUc":
            raise GraphError(f"a tensor of numbers is wanted, not of {'strings' if array.dtype.kind != 'c' else 'complex numbers'}")
        dims = [None if n == 1 else self.fresh(n) for n in array.shape]
        axes = [d for d in dims if d is not None]
        if not axes:
            value = array.reshape(()).item()
            made = filled(value, (), as_dtype(array.dtype))
        else:
            values = array.reshape([len(a) for a in axes])
            order = slowest_first(values.strides)  # so that nothing is copied
            made = constant(values.transpose(order), [axes[k] for k in order])
        return Tensor(made.named(name) if name else made, dims)

    def size_tensor(self, v: Sizes) -> Tensor:
        """Lengths as a computed tensor."""
        dtype = as_dtype(v.np)
        each = [constant_record.build(value=e if isinstance(e, Expr) else int(e), axes=Axes(), dtype=dtype) for e in v.array.ravel()]
        if len(each) == 1:
            return Tensor(each[0], [None] * v.rank)
        axis = self.fresh(len(each))
        return self.reshape(Tensor(stack(each, axis), [axis]), v.array.shape)

    def known(self, v: Value) -> np.ndarray[Any, Any]:
        """The value as an array that is known now; a computed one is computed, and the way on is for this value only."""
        if isinstance(v, ConstantArray):
            return v.array
        if isinstance(v, Sizes):
            return np.array(self.numbers(v.array.ravel()), v.np).reshape(v.array.shape)
        if isinstance(v, StringInput):
            self.ask(("value", v.slot), bytes_of(v.slot))
            return v.array
        if v.op not in self.evaluated:
            self.evaluated[v.op] = self._evaluated(v)
        found = self.evaluated[v.op]
        if found is not None and found[0] == v.dims:
            return found[1]
        (slot,) = self.computed([v])
        if self.unseen is not None and slot in self.unseen:
            self.compute([v.op], [])
        a = self.run.slots[slot]
        self.ask(("value", slot), bytes_of(slot))
        return np.asarray(a)

    def _evaluated(self, t: Tensor) -> tuple[Any, np.ndarray[Any, Any]] | None:
        """Returns the dims and the array of a tensor that depends on constants alone; None for others.

        Raises Fixed for one that depends on lengths where one graph for all values is wanted.
        """
        every = list(ordered([t.op]))
        if any(o.is_variable or o.is_placeholder for o in every):
            return None
        lengths = {a.name for a in lengths_in([t.op])}
        if lengths:
            if self.unseen is not None:
                raise Fixed(lengths)
            return None
        whole = self.full(t)
        return t.dims, np.asarray(_direct().computation([broadcast(whole.op, whole.dims)])()[0])

    def few(self, t: Tensor, most: int = 64) -> bool:
        """Whether a tensor depends on few numbers of the inputs, so that the way on may be for their values only."""
        if self.unseen is not None or not self.few_decide:
            return False
        every = list(ordered([t.op]))
        holes = [o for o in every if o.is_placeholder]
        if any(h not in self.slots for h in holes) or any(o.is_variable for o in every):
            return False
        slots = tuple([self.slots[h][0] for h in holes])

        def question(run: StageRun) -> bool:
            return sum(run.slots[slot].size for slot in slots) <= most

        if not any(_open(h) for h in holes):
            return question(self.run)
        return bool(self.ask(("few", slots, most), question, all(slot < 0 for slot in slots)))

    def sizes(self, v: Value) -> list[ExprLike]:
        """A list of whole numbers, of which some may be expressions."""
        if isinstance(v, Sizes):
            return [e if isinstance(e, Expr) else int(e) for e in v.array.ravel()]
        return [int(e) for e in self.known(v).ravel()]

    def ints(self, v: Value) -> list[int]:
        return [int(e) for e in self.known(v).ravel()]

    def full(self, t: Tensor, at: Sequence[int] | None = None) -> Tensor:
        """The tensor with an axis for every dim, also those of length 1; `at`: only for those dims."""
        wanted = range(t.rank) if at is None else at
        dims = [self.fresh(1) if d is None and k in wanted else d for k, d in enumerate(t.dims)]
        axes = [d for d in dims if d is not None]
        return t if dims == list(t.dims) else Tensor(broadcast(t.op, axes), dims)

    def squeezed(self, t: Tensor, k: int) -> Tensor:
        """The tensor without an axis for dim k, of length 1."""
        axis = t.dims[k]
        if axis is None:
            return t
        dims = [None if j == k else d for j, d in enumerate(t.dims)]
        index = {a: 0 if a is axis or a == axis else expr.Idx(a) for a in t.op.axes}
        axes = tuple(a for a in t.op.axes if a != axis)
        return Tensor(reindex(t.op, axes=axes, index=index), dims)

    def ones(self, t: Tensor) -> Tensor:
        """The tensor without axes of known length 1."""
        for k, d in enumerate(t.dims):
            if d is not None and d.length == 1:
                t = self.squeezed(t, k)
        return t

    def made(self, op: Op, dims: Sequence[Axis | None]) -> Tensor:
        """An op's result as a tensor; dims of known length 1 lose their axes, dims given that it lacks are added."""
        missing = [d for d in dims if d is not None and d not in op.axes]
        if missing:
            op = broadcast(op, [*op.axes, *missing])
        return self.ones(Tensor(op, dims))

    def renamed(self, t: Tensor, dims: Sequence[Axis | None]) -> Tensor:
        """The tensor with other axes for its dims; a dim without an axis stays so. Raises GraphError for another length."""
        dims = [None if old is None else new for old, new in zip(t.dims, dims, strict=True)]
        pairs = tuple([(a, b) for a, b in zip(t.dims, dims, strict=True) if a is not None and b is not None and unlike(a, b)])
        for a, b in pairs:
            if self.differ(a.size, b.size):
                raise GraphError(f"a dim of length {self.hint(a.size)} of {self.show(t)} meets one of length {self.hint(b.size)}")
        op = rename_record.build(t.op, to=pairs) if pairs else t.op
        return Tensor(op, dims)

    def apart(self, t: Tensor, other: Iterable[Axis | None]) -> Tensor:
        """The tensor with fresh axes where `other` has axes of the same name."""
        taken = set(other)
        return self.renamed(t, [self.fresh(d.size) if d is not None and d in taken else d for d in t.dims])

    # ---- broadcasting
    def align(self, *values: Value) -> tuple[list[Op], list[Axis | None]]:
        """The values as ops that meet by the names of their axes, and the dims of what they give: NumPy's broadcasting."""
        xs, dims = self.meet([self.tensor(v) for v in values])
        return [x.op for x in xs], dims

    def meet(self, given: Sequence[Tensor], skip: int | None = None, of: Sequence[Tensor] = ()) -> tuple[list[Tensor], list[Axis | None]]:
        """Tensors whose axes have the same names at the same dims, counted from the last; at dim `skip` each has its own.

        An error shows the shapes of `of`, from which these were made.
        """
        xs = list(given)
        rank = max(x.rank for x in xs)
        dims: list[Axis | None] = []
        taken: set[Axis] = set()
        for p in range(-rank, 0):
            target: Axis | None = None
            for i, x in enumerate(xs):
                axis = x.dims[p] if -p <= x.rank and p + rank != skip else None
                if axis is None or target is None:
                    target = target or axis
                elif not (axis is target or self.same(axis.size, target.size)):
                    if self.same(axis.size, 1):
                        xs[i] = self.squeezed(x, x.rank + p)
                    elif self.same(target.size, 1):
                        xs[:i] = [self.squeezed(y, y.rank + p) if -p <= y.rank else y for y in xs[:i]]
                        target = axis
                    else:
                        lengths = f"a dim has length {self.hint(target.size)} in one, and {self.hint(axis.size)} in another"
                        shapes = "the shapes are " + " and ".join(self.show(x) for x in of or given)
                        raise self.unequal(GraphError(lengths, details=(shapes,)), axis.size, target.size)
            if target is not None and target in taken:
                target = self.fresh(target.size)
            if target is not None:
                taken.add(target)
            dims.append(target)
        met = []
        for x in xs:
            mine = dims[rank - x.rank :]
            if skip is not None and (own := x.dims[skip]) is not None:
                mine = [*mine[:skip], self.fresh(own.size) if own in taken else own, *mine[skip + 1 :]]
            met.append(self.renamed(x, mine))
        return met, dims

    def unequal(self, error: NgraphError, a: ExprLike, b: ExprLike) -> NgraphError:
        """Returns the error for two lengths that have to be equal and are not."""
        return error

    def read(self, t: Tensor, dims: Sequence[Axis | None], index: Mapping[Axis, ExprLike], **more: Any) -> Tensor:
        """The tensor read at index expressions over the new dims; axes that `index` does not name are read as they stand."""
        axes = tuple([d for d in dims if d is not None])
        whole = {a: index.get(a, expr.Idx(a)) for a in t.op.axes}
        return self.ones(Tensor(reindex(t.op, axes=axes, index=whole, **more), dims))

    def show(self, v: Value) -> str:
        """The shape that a value has in this call."""
        return str([self.hint(n) for n in v.shape])

    def described(self, v: Value) -> str:
        """A value's element type and shape in this call."""
        if isinstance(v, list):
            return f"a list of {len(v)}"
        if not isinstance(v, (Tensor, Held)):
            return "nothing"
        return f"{'string' if v.np.hasobject else v.np}{self.show(v)}"

    def expanded(self, t: Tensor, shape: Sequence[ExprLike]) -> Tensor:
        """NumPy's broadcast_to, where a dim of the shape that is 1 takes the tensor's."""
        rank = max(t.rank, len(shape))
        shape = [1] * (rank - len(shape)) + list(shape)
        dims: list[Axis | None] = [None] * (rank - t.rank) + list(t.dims)
        for k, n in enumerate(shape):
            d = dims[k]
            if d is None:
                dims[k] = None if isinstance(n, int) and n == 1 else self.fresh(n)
            elif not self.same(d.size, n) and not self.same(n, 1):
                if not self.same(d.size, 1):
                    error = GraphError(f"{self.show(t)} does not expand to {[self.hint(m) for m in shape]}")
                    raise self.unequal(error, d.size, n)
                t = self.squeezed(t, k - rank + t.rank)
                dims[k] = self.fresh(n)
        return self.made(t.op, dims)

    # ---- reshaping
    def reshape(self, t: Tensor, shape: Sequence[ExprLike]) -> Tensor:
        """The elements in another shape; axes stay where a dim stays, the rest is read at digits of the flat position.

        Raises GraphError for another number of elements.
        """
        old: list[Axis] = [d for d in t.dims if d is not None]
        new: list[ExprLike] = [n for n in shape if not (isinstance(n, int) and n == 1)]
        i, j, ni, nj = 0, 0, len(old), len(new)
        while i < ni and j < nj and self.equal(old[i].size, new[j]):
            i, j = i + 1, j + 1
        while ni > i and nj > j and self.equal(old[ni - 1].size, new[nj - 1]):
            ni, nj = ni - 1, nj - 1
        middle = [self.fresh(n) for n in new[j:nj]]
        group = old[i:ni]
        op = t.op
        if not self.equal(product(a.size for a in group), product(a.size for a in middle)):
            if self.differ(product(t.shape), product(shape)):  # they are equal where some dim has length 0, too
                said = f"{self.show(t)} is to have the shape {[self.hint(n) for n in shape]}, which has another number of elements"
                raise GraphError(said)
        if group or middle:
            op = self.regroup(t.op, group, middle)
        axes = iter([*old[:i], *middle, *old[ni:]])
        dims = [None if isinstance(n, int) and n == 1 else next(axes) for n in shape]
        return self.ones(Tensor(op, dims))

    def equal(self, a: ExprLike, b: ExprLike) -> bool:
        """Whether two lengths are known to be equal, without asking."""
        return a == b or factors(a) == factors(b)

    def regroup(self, op: Op, old: Sequence[Axis], new: Sequence[Axis]) -> Op:
        """The axes `old` of an op, which stand for a flat position in this order, made into `new`."""
        rest = [a for a in op.axes if a not in old]
        index: dict[Axis, ExprLike] = {a: expr.Idx(a) for a in rest}
        for a, b in self.groups(old, new):
            flat = radix([expr.Idx(x) for x in b], [x.size for x in b])
            index.update(zip(a, [flat] if len(a) == 1 else digits(flat, [x.size for x in a]), strict=True))
        return reindex(op, axes=(*rest, *new), index=index)

    def groups(self, old: Sequence[Axis], new: Sequence[Axis]) -> Iterator[tuple[list[Axis], list[Axis]]]:
        """The axes in groups of equal numbers of elements, as small as is seen."""
        i = j = 0
        while i < len(old) or j < len(new):
            a, b = list(old[i : i + 1]), list(new[j : j + 1])
            while True:
                m, n = product(x.size for x in a), product(x.size for x in b)
                more_old, more_new = i + len(a) < len(old), j + len(b) < len(new)
                if self.equal(m, n) or not (more_old or more_new):
                    break
                known = isinstance(m, int) and isinstance(n, int)
                if more_old and (not more_new or (known and m < n)):  # type: ignore[operator]  # both are ints where `known`
                    a.append(old[i + len(a)])
                elif more_new and (not more_old or known):
                    b.append(new[j + len(b)])
                else:
                    a, b = list(old[i:]), list(new[j:])
                    break
            i, j = i + len(a), j + len(b)
            yield a, b

    # ---- what has to be computed before the reading can go on
    def computed(self, values: Sequence[Value]) -> list[int]:
        """The slots of these values, computed now if they were not; what else is still used of the way there is computed with them."""
        tensors = [self.tensor(v) for v in values]
        todo = [t for t in tensors if self.slot_of(t) is None]
        if todo:
            within = {o for o in ordered([t.op for t in todo]) if not o.is_placeholder and not o.is_constant}
            live = list({id(t): t for t in todo}.values())
            have = {t.op for t in live}
            for scope in self.scopes:
                for v in scope.values():
                    for t in leaves(v):
                        if t.op in within and t.op not in have:
                            have.add(t.op)
                            live.append(t)
            self.cut(live)
        return [self.slots[t.op][0] for t in tensors]

    def slot_of(self, t: Tensor) -> int | None:
        """The slot that holds this tensor, dim for dim."""
        slot, dims = self.slots.get(t.op, (None, ()))
        return slot if dims == t.dims else None

    def cut(self, tensors: Sequence[Tensor]) -> None:
        """Computes tensors into slots; the reading goes on with placeholders in their place."""
        gives = self.compute_stage(tensors)
        for t, slot in zip(tensors, gives, strict=True):
            self.replace(t, self.hole(slot, t.dtype, t.dims))

    def compute_stage(self, tensors: Sequence[Tensor], effects: Sequence[Op] = ()) -> list[int]:
        """A stage that computes tensors, with all their dims in order, into new slots, and has effects."""
        if self.bodies:
            raise Inside
        whole = [self.full(t) for t in tensors]
        values = [broadcast(t.op, t.dims) for t in whole]
        ops = [*(value_of(o) if o.is_variable else o for o in values), *effects]
        holes = self.holes(ops)
        takes = [self.slots[h][0] for h in holes]
        gives = [self.slot() for _ in whole]
        self.follow(lambda: Compute(self.compute(ops, holes), takes, gives))
        return gives

    def holes(self, ops: Sequence[Op]) -> list[Op]:
        """The placeholders that ops need: those whose values they read, and those that tell them a length that nothing else tells."""
        found = [o for o in ordered(ops) if o.is_placeholder]
        told = {a for h in found for a in _open(h)}
        for a in lengths_in(ops):
            if a not in told:
                found += [h for h in self.slots if h.is_placeholder and a in _open(h)][:1]
                told.update(*map(_open, found[-1:]), [a])
        return found

    def unknown(self, axis: Axis | None) -> bool:
        """Whether a length is known only once a step has run."""
        return axis is not None and any(isinstance(leaf, RunLength) for leaf in expr.leaves(axis.size))

    def hole(self, slot: int, dtype: Any, dims: Sequence[Axis | None] | int) -> Tensor:
        """A placeholder for a slot, with these axes (None: of length 1), or as many open ones."""
        if isinstance(dims, int):
            axes = [self.open_axis(f"R{slot}.{k}", slot, k) for k in range(dims)]
        else:
            axes = [
                self.fresh(1) if d is None else self.open_axis(f"R{slot}.{k}", slot, k) if self.unknown(d) else d
                for k, d in enumerate(dims)
            ]
        return self.input(slot, dtype, axes)

    def input(self, slot: int, dtype: Any, axes: Sequence[Axis], name: str | None = None) -> Tensor:
        """A placeholder for what comes in a slot, such as an input of the model."""
        op = placeholder(axes, dtype=dtype, name=name)
        t = self.ones(Tensor(op, axes))
        self.slots[t.op] = slot, t.dims
        self.slots.setdefault(op, (slot, tuple(axes)))
        return t

    def replace(self, old: Tensor, new: Tensor) -> None:
        for scope in self.scopes:
            for name, v in scope.items():
                scope[name] = swapped(v, old, new)
        old.op, old.dims = new.op, new.dims

    def host(self, name: str, function: Callable[..., Any], values: Sequence[Value], dtypes: Sequence[Any]) -> list[Value]:
        """A step in Python: the results of a function of arrays. dtypes: of the results; object for strings."""
        if self.bodies:
            raise Inside
        if self.unseen is not None:
            raise UnsupportedError(f"{name} is a step in Python, and this model is no one op-graph", fix="call it instead")
        takes = self.taken(values)
        gives = [self.slot() for _ in dtypes]

        def run(*arrays: Any) -> list[Any]:
            given = function(*arrays)
            given = given if isinstance(given, (tuple, list)) else [given]
            return [np.asarray(g).astype(d) for g, d in zip(given, dtypes, strict=True)]

        self.follow(lambda: HostStage(name, run, takes, gives))
        self.hosts.append(name)
        slots = self.run.slots
        ranks = self.ask(("ranks", *gives), lambda run: tuple(run.slots[s].ndim for s in gives))
        return [
            StringInput(s, slots[s]) if np.dtype(d).kind in "Oc" else self.hole(s, as_dtype(d), rank)
            for s, d, rank in zip(gives, dtypes, ranks, strict=True)  # type: ignore[call-overload]  # an answer of `ask` has no type
        ]

    def taken(self, values: Sequence[Value]) -> list[Any]:
        """Returns the arguments of a host callback: slots, and constant arrays."""
        tensors = [v for v in values if isinstance(v, Tensor)]
        found = iter(self.computed(tensors) if tensors else [])
        return [next(found) if isinstance(v, Tensor) else v.slot if isinstance(v, StringInput) else self.known(v) for v in values]


def _open(h: Op) -> list[Axis]:
    """Returns the axes whose lengths a placeholder tells: not those of another length that are called alike."""
    return [a for a in h.axes if isinstance(a.size, Len)]


def lengths_in(ops: Iterable[Op]) -> Iterator[Axis]:
    """Yields the axes whose open lengths ops need, with repetition; those that only bodies of loops and branches need, too."""
    for o in Op.all_op_references(ops):
        for a in (*(o.axes if o.is_tensor_op else ()), *attr_axes(tuple(o.attrs.values()))):
            for leaf in expr.leaves(a.size) if isinstance(a.size, Expr) else ():
                if isinstance(leaf, Len):
                    yield leaf.of


def unlike(a: Axis, b: Axis) -> bool:
    """Whether two axes are not one, by name or by what is known of their lengths."""
    return a is not b and (a != b or a.size != b.size)


def factors(e: ExprLike) -> tuple[int, tuple[str, ...]]:
    """A product as its number and its other factors."""
    number, others, todo = 1, [], [e]
    while todo:
        e = todo.pop()
        if isinstance(e, Bin) and e.op == "*":
            todo += [e.a, e.b]
        elif isinstance(e, Expr):
            others.append(e)
        else:
            number *= int(e)
    return number, tuple(sorted(map(repr, others)))


def leaves(v: Value) -> Iterable[Tensor]:
    """The tensors in a value."""
    if isinstance(v, Tensor):
        yield v
    elif isinstance(v, list):
        for item in v:
            yield from leaves(item)


def swapped(v: Value, old: Tensor, new: Tensor) -> Value:
    if v is old or (isinstance(v, Tensor) and v.op is old.op):
        if v.dims == old.dims:
            return new
        places = [None if d is None else old.dims.index(d) for d in v.dims]
        return Tensor(new.op, [None if p is None else new.dims[p] for p in places])
    if isinstance(v, list):
        v[:] = [swapped(item, old, new) for item in v]
    return v

"""A group of nodes → the stages of its kernel: the order of computation, values kept for later stages, recomputed values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ngraph.op_graph import dtypes, expr
from ngraph.op_graph.dtypes import DType
from ngraph.op_graph.expr import ExprLike, Idx
from ngraph.op_graph.op import Origin
from ngraph.parts.walk import post_order
from ngraph.plan.cost import FusionGroup
from ngraph.plan.kernels import Buffer, Combine, Kernel, Line, Local, Stage, Store, dims_of, variant_loops
from ngraph.program.program import AxisId
from ngraph.targets.tuning import MAX_ORIGINS, MAX_RECOMPUTED_COST
from ngraph.tensors.graph import Arg, IndexValue, PiecewisePart, ScalarConstant, TensorNode, dtype_of
from ngraph.tensors.index import Load, Read, depth, identity_index

Key = tuple[Any, ...]


def kernel_of(g: FusionGroup, buffers: Mapping[Any, Buffer]) -> Kernel:
    """Returns the kernel of a group; `buffers` has the buffer of each source and each result."""
    g.levels()
    return _Stages(g, buffers).kernel()


class _Draft:
    """A stage under construction: its reduction, its stores."""

    def __init__(self, level: int, number: int, free: tuple[AxisId, ...], reduced: tuple[AxisId, ...] = ()):
        self.level, self.number, self.free, self.reduced = level, number, free, reduced
        self.reduces: list[TensorNode] = []
        self.stores: list[TensorNode] = []
        self.parts: list[tuple[TensorNode, PiecewisePart]] = []
        self.ends: list[tuple[TensorNode, PiecewisePart]] = []  # parts that are what it has reduced
        self.alone = False

    @property
    def space(self) -> frozenset[AxisId]:
        return frozenset((*self.free, *self.reduced))

    @property
    def closed(self) -> bool:
        """Whether it stores parts that may overlap, and so nothing else."""
        return any(not n.disjoint for n, _ in self.parts)


class _Stages:
    def __init__(self, g: FusionGroup, buffers: Mapping[Any, Buffer]):
        self.g, self.buffers = g, buffers
        self.fixed = {a for a, b in g.loops if b == 1}
        self.stored_in: dict[TensorNode, Buffer] = {}  # what stages so far have stored
        self.drafts: list[_Draft] = []
        self.locals = 0

    def inner(self, axes: Iterable[AxisId]) -> tuple[AxisId, ...]:
        return tuple([a for a in axes if a not in self.fixed])

    def free(self, n: TensorNode) -> tuple[AxisId, ...]:
        """Returns the axes of a node in a stage: without the axis of partial sums, of which each work item has one."""
        return self.inner([a for a in n.axes if a != n.split_k])

    def kernel(self) -> Kernel:
        g = self.g
        self.draft()
        for n in self.expensive():
            self.store(n)
        self.drafts.sort(key=lambda d: (d.level, d.number))
        stages = [_Lines(self, d).stage() for d in self.drafts]
        names = [a for a, _ in g.loops]
        depths = [max([k + 1 for k, a in enumerate(names) if a in moves], default=0) for moves in variant_loops(g.loops, stages)]
        stages = [replace(s, depth=depth) for s, depth in zip(stages, depths, strict=True)]
        return Kernel(g.loops, tuple(stages), origin_of(g.nodes), g.seconds)

    def draft(self) -> None:
        """Creates the stages of reductions and joins, and a buffer for every stored value."""
        g = self.g
        by_key: dict[Any, _Draft] = {}
        results = set(g.results)
        for n in g.nodes:
            if n.kind == "reduce":
                key = g.stage_of[n]
                if key not in by_key:
                    by_key[key] = _Draft(g.level[n], g.facts.number[n], self.free(n), self.inner(n.reduced))
                    by_key[key].alone = n in g.recomputed
                    self.drafts.append(by_key[key])
                by_key[key].reduces.append(n)
            elif n.kind == "join":
                for part in n.parts:
                    p = part.arg.source if type(part.arg) is Read else None
                    if (
                        type(part.arg) is Read
                        and isinstance(p, TensorNode)
                        and p in g.set
                        and g.level[p] % 2
                        and g.stored_by(n, p, part.arg)
                    ):
                        by_key[g.stage_of[p]].ends.append((n, part))
                        continue
                    free = self.inner(part.axes)
                    beside = n.disjoint and self.drafts and self.drafts[-1]  # parts that share no place are stored together
                    if beside and beside.parts and beside.parts[0][0] is n and beside.space == frozenset(free):
                        beside.parts.append((n, part))
                        continue
                    d = _Draft(g.level[n], g.facts.number[n], free)
                    d.parts.append((n, part))
                    self.drafts.append(d)
        for n in g.nodes:
            if n.kind == "join" or (n not in results and n not in g.kept):
                continue
            if g.level[n] % 2:
                by_key[g.stage_of[n]].stores.append(n)
            else:
                self.store(n)

    def store(self, n: TensorNode) -> None:
        """Assigns an elementwise value to a stage over its space, at its level; a new one where there is none."""
        level, space = self.g.level[n], frozenset(self.free(n))
        alone = n in self.g.recomputed  # a value that several work items store stays separate
        for d in self.drafts:
            if not d.closed and d.level in (level, level + 1) and d.space == space and d.alone == alone:
                if n not in d.stores:
                    d.stores.append(n)
                return
        d = _Draft(level, self.g.facts.number[n], self.free(n))
        d.alone = alone
        d.stores.append(n)
        self.drafts.append(d)

    def expensive(self) -> list[TensorNode]:
        """Returns the values that several stages need and that are expensive to compute: the first one stores them."""
        g, stored = self.g, {n for d in self.drafts for n in d.stores}
        uses: dict[TensorNode, set[int]] = {}
        for k, d in enumerate(self.drafts):
            roots = [r.source for n in d.reduces for r in n.reads] + [n for n in d.stores if not g.level[n] % 2]
            roots += [r.source for n in d.stores if g.level[n] % 2 and n.kind == "elem" for r in n.reads]
            if d.parts:
                roots += [r.source for r in d.parts[0][0].reads]
            seen: set[TensorNode] = set()
            while roots:
                n = roots.pop()
                if not isinstance(n, TensorNode) or n not in g.set or n in seen or n.kind != "elem":
                    continue
                seen.add(n)
                if not g.level[n] % 2:
                    uses.setdefault(n, set()).add(k)
                if n not in stored or n in d.stores:
                    roots += [r.source for r in n.reads]
        cost: dict[TensorNode, float] = {}
        found = []
        for n in g.nodes:
            if n.kind != "elem" or g.level[n] % 2:
                continue
            cost[n] = n.weight + sum([cost.get(r.source, 1) for r in n.reads])
            if n in stored or (n not in g.recomputed and cost[n] > MAX_RECOMPUTED_COST and len(uses.get(n, ())) > 1):
                cost[n] = 1
                if n not in stored:
                    found.append(n)
        return found

    def part_of(self, n: TensorNode) -> ExprLike:
        """Returns the number of a work item's part of a reduction: that of its block along the loops that the reduction covers."""
        part: ExprLike = 0
        for a, b in self.g.loops:
            if a in n.reduced:
                part = part * -(-self.g.length(a) // b) + (Idx(a) if b == 1 else Idx(a) // b)
        return part

    def target(self, n: TensorNode) -> Buffer:
        """Returns the buffer of a node's value."""
        if n in self.buffers:
            return self.buffers[n]
        made = Local(f"l{self.locals}", dims_of(self.free(n)), n.dtype)
        self.locals += 1
        return made


class _Lines:
    """The lines of one stage, created on demand: a value at an index is one line for all of its uses."""

    def __init__(self, owner: _Stages, d: _Draft):
        self.owner, self.d = owner, d
        self.lines: list[Line] = []
        self.first = 0  # the number of the first of `lines`
        self.memo: dict[Key, int] = {}

    def stage(self) -> Stage:
        d, owner = self.d, self.owner
        stores: list[Store] = []
        early = [n for n in d.stores if not owner.g.level[n] % 2]
        late = [n for n in d.stores if owner.g.level[n] % 2]
        written: dict[TensorNode, Buffer] = {}
        inputs = [self.line(n.args[0]) for n in d.reduces]
        for n in early:
            stores.append(self.put(n, self.node_line(n), written))
        for n, part in d.parts:
            stores.append(self.put_part(n, part, written))
        combine = tuple([Combine(n.op, k, n.dtype) for n, k in zip(d.reduces, inputs, strict=True)])
        before, self.first = tuple(self.lines), len(self.lines) + len(combine)
        self.memo = {self.node_key(n): len(before) + k for k, n in enumerate(d.reduces)}
        self.lines = []
        for n in late:
            stores.append(self.put(n, self.node_line(n), written))
        for n, part in d.ends:
            stores.append(self.put_part(n, part, written))
        owner.stored_in.update(written)
        return Stage(d.free, d.reduced, before, combine, tuple(self.lines), tuple(stores), len(owner.g.loops))

    def put(self, n: TensorNode, line: int, written: dict[TensorNode, Buffer]) -> Store:
        written[n] = target = self.owner.target(n)
        line = self.stored(line, n, target)
        index = identity_index(target.axes)
        if n.split_k is not None:
            index[n.split_k] = self.owner.part_of(n)
        return Store(line, target, index)

    def put_part(self, n: TensorNode, part: PiecewisePart, written: dict[TensorNode, Buffer]) -> Store:
        target = written.get(n) or self.owner.stored_in.get(n) or self.owner.target(n)
        written[n] = target
        value = self.stored(self.line(part.arg), n, target)
        index = {a: self.resolved(part.place[a], ()) for a in target.axes}
        return Store(value, target, index, tuple([self.resolved(e, ()) for e in part.predicate]), part.combine)

    def stored(self, line: int, n: TensorNode, target: Buffer) -> int:
        """Returns the line of a node's value in the dtype of its buffer: that of what it is a cast of, or that in which all read it."""
        if target.dtype is n.dtype:
            return line
        if widened(n) is target.dtype:
            return self.line(n.args[0])
        same = (k for k, x in enumerate(self.lines, self.first) if x.op == "cast" and x.args == (line,) and x.dtype is target.dtype)
        known = next(same, None)
        return self.emit("cast", [line], target.dtype) if known is None else known

    # values
    def node_key(self, n: TensorNode) -> Key:
        return self.node_at(n, tuple([Idx(a) for a in n.axes]), ())

    @staticmethod
    def node_at(n: TensorNode, at: tuple[ExprLike, ...], predicate: tuple[ExprLike, ...]) -> Key:
        return ("node", n, at, predicate if n.kind == "elem" else ())  # a finished sum exists under any predicate

    def node_line(self, n: TensorNode) -> int:
        return self.ask(self.node_key(n))

    def line(self, arg: Arg, index: Mapping[AxisId, ExprLike] | None = None, predicate: tuple[ExprLike, ...] = ()) -> int:
        return self.ask(self.key(arg, index, predicate))

    def key(self, arg: Arg, index: Mapping[AxisId, ExprLike] | None, predicate: tuple[ExprLike, ...]) -> Key:
        """Returns the key of a value. `index` is that of the reader of `arg`, None for its own; `predicate` the predicate there."""
        if index is not None:
            arg = arg.at(index)
        if type(arg) is ScalarConstant:
            return ("number", repr(arg.value), arg.dtype, arg.value)
        if type(arg) is IndexValue:
            return ("index", arg.value, arg.dtype, predicate)
        assert type(arg) is Read
        source = arg.source
        at = tuple([arg.index[a] for a in source.axes])
        if source in self.owner.g.set and source not in self.owner.stored_in and not arg.predicate:
            return self.node_at(source, at, predicate)
        return ("read", source, at, arg.predicate, repr(arg.pad_value), predicate, arg.pad_value)

    def ask(self, key: Key) -> int:
        """Returns the line of a value; its operands come first, without recursion."""
        known = self.memo.get(key)
        if known is not None:
            return known
        made: dict[Key, tuple[list[Key], Callable[[list[int]], int]]] = {}

        def needs(k: Key) -> list[Key]:
            found = made.get(k)
            if found is None:
                found = made[k] = self.expand(k)
            return found[0][::-1]

        line = -1
        for k in post_order([key], needs, self.memo):
            needed, make = made[k]
            line = self.memo[k] = make([self.memo[n] for n in needed])
        return line

    def emit(self, op: str, args: Iterable[int], dtype: DType, attrs: Mapping[str, Any] | None = None, read: Read | None = None) -> int:
        self.lines.append(Line(op, tuple(args), dtype, attrs or {}, read))
        return self.first + len(self.lines) - 1

    def expand(self, key: Key) -> tuple[list[Key], Callable[[list[int]], int]]:
        """Returns the operands of a value, and the function that makes its line of their lines."""
        kind = key[0]
        if kind == "number":
            return [], lambda _: self.emit("number", (), key[2], {"value": key[3]})
        if kind == "index":
            return self.inside([key[1]], key[3]), lambda _: self.emit("index", (), key[2], {"value": self.resolved(key[1], key[3])})
        if kind == "predicate":
            return self.inside(key[1], key[2]), lambda _: self.emit(
                "predicate", (), dtypes.bool_, {"predicate": tuple([self.resolved(e, key[2]) for e in key[1]])}
            )
        if kind == "node":
            return self.expand_node(*key[1:])
        return self.expand_read(*key[1:])

    def expand_node(
        self, n: TensorNode, at: tuple[ExprLike, ...], predicate: tuple[ExprLike, ...]
    ) -> tuple[list[Key], Callable[[list[int]], int]]:
        assert n.kind == "elem", f"{n} is asked for before it is there"
        own = all(type(e) is Idx and e.of == a for a, e in zip(n.axes, at, strict=True))
        index = None if own else dict(zip(n.axes, at, strict=True))
        needs = [self.key(a, index, predicate) for a in n.args]
        if n.op == "copy" or (n.op == "cast" and self.shortened(n.args[0]) is n.dtype):
            return needs, lambda args: args[0]
        return needs, lambda args: self.emit(n.op, args, n.dtype, n.attrs)

    def here(self, source: Any) -> Buffer | None:
        """Returns the buffer from which a value is read; None where it is computed here."""
        return self.owner.stored_in.get(source) if source in self.owner.g.set else self.owner.buffers[source]

    def shortened(self, arg: Arg) -> DType | None:
        """Returns the dtype in which a value is stored where that is what its readers cast it to."""
        if type(arg) is not Read or not isinstance(arg.source, TensorNode):
            return None
        here = self.here(arg.source)
        return None if here is None or here.dtype in (arg.source.dtype, widened(arg.source)) else here.dtype

    def expand_read(
        self, source: Any, at: tuple[ExprLike, ...], mine: tuple[ExprLike, ...], _: str, predicate: tuple[ExprLike, ...], pad_value: Any
    ) -> tuple[list[Key], Callable[[list[int]], int]]:
        every = tuple(dict.fromkeys((*mine, *predicate)))
        here = self.here(source)
        if here is None:  # computed here, where the predicates hold
            wanted: list[Key] = [
                ("predicate", mine, every),
                self.node_at(source, at, every),
                ("number", repr(pad_value), source.dtype, pad_value),
            ]
            return wanted, lambda args: self.emit("where", args, source.dtype)

        def make(_: list[int]) -> int:
            index = {a: self.resolved(e, every) for a, e in zip(source.axes, at, strict=True) if a in here.axes}
            read = Read(here, index, tuple([self.resolved(e, every) for e in every]), pad_value)
            line = self.emit("read", (), here.dtype, read=read)
            wide = here.dtype is not source.dtype and here.dtype is widened(source)
            return self.emit("cast", [line], source.dtype) if wide else line

        return self.inside([*at, *every], every), make

    # integers inside indices
    def inside(self, exprs: Iterable[ExprLike], predicate: tuple[ExprLike, ...]) -> list[Key]:
        """Returns the values that expressions load."""
        return [self.loaded(leaf, predicate) for e in exprs for leaf in expr.leaves(e) if type(leaf) is Load]

    def loaded(self, x: Load, predicate: tuple[ExprLike, ...]) -> Key:
        """Returns the key of an integer inside an index: of its predicates, those hold that are known without it."""
        return self.key(x.of, None, tuple([e for e in predicate if depth(e) < depth(x)]))

    def resolved(self, e: ExprLike, predicate: tuple[ExprLike, ...]) -> ExprLike:
        """Returns an expression whose loads name lines."""
        return expr.substitute(e, lambda x: Load(self.ask(self.loaded(x, predicate))) if type(x) is Load else x)


def widened(n: TensorNode) -> DType | None:
    """Returns the dtype of the shorter float of which a value is a cast, if it is one: that one holds all of it."""
    if n.kind != "elem" or n.op != "cast":
        return None
    d = dtype_of(n.args[0])
    return d if d.is_float and n.dtype.is_float and d.bits < n.dtype.bits else None


def origin_of(nodes: Iterable[TensorNode]) -> tuple[Origin, ...]:
    """Returns the origins of all of these, in order, up to the limit."""
    return tuple(dict.fromkeys([o for n in nodes for o in n.origin]))[:MAX_ORIGINS]
